//! How much of a form is accepted.

/// What one form may hold. The HTTP side passes its configured values; beyond any of them the request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fields, file inputs left empty among them. Default is 1,000, PHP's `max_input_vars`, beyond which PHP drops
    /// fields without telling the client.
    pub fields: u32,
    /// Files. Default is 100: each is a file on disk and a round trip through the file pool.
    pub files: u32,
    /// Brackets in a name, `a[b][c]` has 2. Default is 64, PHP's `max_input_nesting_level`. A `u8`, because what is
    /// written from a name is written by recursion.
    pub levels: u8,
    /// Bytes of a form that are kept in memory until the call is sent: names, values, file names and media types
    /// together, or a whole urlencoded body. Default is 8 MiB, PHP's `post_max_size`.
    pub field_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fields: 1_000,
            files: 100,
            levels: 64,
            field_bytes: 8 << 20,
        }
    }
}
