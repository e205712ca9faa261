//! The question before a call.

/// Whether a call to a foreign worker begins with a question, whose answer separates its reply from
/// what was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Each call.
    Always,
    /// Not at all.
    Never,
}
