//! Bytes of a reply.

use bytes::Bytes;
use pronghorn_ring::Loan;

/// Bytes of a reply, and where they are.
#[derive(Debug)]
pub enum Content {
    Here(Bytes),
    /// In the memory of the worker that wrote them. It waits for its room back, so they are to be
    /// sent or copied soon, without waiting for anything.
    Lent(Loan),
}

impl Content {
    pub fn len(&self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len(),
            Self::Lent(loan) => loan.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) const fn is_lent(&self) -> bool {
        matches!(self, Self::Lent(_))
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Here(bytes)
    }
}

impl From<Content> for Bytes {
    fn from(content: Content) -> Self {
        match content {
            Content::Here(bytes) => bytes,
            Content::Lent(loan) => loan.into(),
        }
    }
}
