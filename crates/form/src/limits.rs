//! How much of a form is accepted.

/// PHP's `max_input_vars`, beyond which PHP drops fields without telling the client.
pub const FIELDS: u32 = 1_000;

/// Each is a file on disk and a round trip through the file pool.
pub const FILES: u32 = 100;

/// PHP's `max_input_nesting_level`.
pub const LEVELS: u8 = 64;

/// 8 MiB, PHP's `post_max_size`.
pub const FIELD_BYTES: usize = 8 << 20;

/// What one form may hold. The defaults are the constants. The HTTP side passes its configured
/// values; beyond any of them the request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fields, file inputs left empty among them.
    pub fields: u32,
    /// Files.
    pub files: u32,
    /// Brackets in a name, `a[b][c]` has 2. A `u8`, because what is written from a name is written
    /// by recursion.
    pub levels: u8,
    /// Bytes of a form that are kept in memory until the call is sent: names, values, file names
    /// and media types together, or a whole urlencoded body.
    pub field_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fields: FIELDS,
            files: FILES,
            levels: LEVELS,
            field_bytes: FIELD_BYTES,
        }
    }
}
