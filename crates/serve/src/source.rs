//! A body that is made while it is sent, and what it gives.

use std::fmt::Debug;
use std::task::{Context, Poll};

use bytes::Bytes;
use pronghorn_wire::Fields;

/// The next piece of a body.
#[derive(Debug)]
pub enum Read<B = Bytes> {
    Bytes(B),
    End,
    /// It can't be had whole: the client must not take it for that.
    Broken,
}

impl<B> Read<B> {
    pub(crate) fn converted<C: From<B>>(self) -> Read<C> {
        match self {
            Self::Bytes(bytes) => Read::Bytes(bytes.into()),
            Self::End => Read::End,
            Self::Broken => Read::Broken,
        }
    }
}

/// Makes a body piece by piece.
pub trait BodySource: Debug + Send {
    /// Bytes of memory that it takes from its first piece to its last, beside the pieces. Where it
    /// takes some, it is not asked for a piece before there is room to send one.
    fn cost(&self) -> usize {
        0
    }

    /// Whether nobody is at work for the client while the next piece is awaited: it is news of this
    /// server, or the answer to what the client sends next. The connection may make room for others
    /// then.
    fn is_news(&self) -> bool {
        false
    }

    /// The next piece. Pending when there is none yet: what was had before should be on its way
    /// then.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Read>;

    /// Fields behind the body that are only known at its end, where the protocol has a place for
    /// them. Asked for once, after [`Read::End`].
    fn trailers(&mut self) -> Fields {
        Fields::new()
    }
}
