//! What an operator can set for a pool.

/// When a foreign worker's answers are fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fence {
    /// From its first stray answer on.
    #[default]
    Auto,
    Always,
    Never,
}
