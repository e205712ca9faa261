//! How much of a worker's output a record may show. Text that was printed past a reply may be the
//! page of a visitor.

use crate::php_message::{Extent, PhpMessage};

/// How text is shown that belongs to no reply and to no log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quote {
    /// All of it: in development, before the first call, and where no visitor asks.
    #[default]
    All,
    /// Messages of PHP, as its log has them. Of the rest how long it was.
    Messages,
}

impl Quote {
    pub fn shows(self, line: &str) -> bool {
        match self {
            Self::All => true,
            Self::Messages => PhpMessage::extent(line) != Extent::None,
        }
    }
}
