//! The bounds on the number of parts of an argument.
//!
//! An empty element of a list takes one to three bytes, and hundreds once it is read. Parts are
//! counted while they are read, so that an argument takes no more memory than a small multiple of
//! its bytes.

use std::cell::Cell;

use bytes::{Buf, Bytes};
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost::{DecodeError, Message};
use thiserror::Error;

/// Elements of one list, or entries of one map. No method takes more than half of it.
pub const MOST_IN_A_LIST: usize = 128 << 10;

/// Elements of lists and entries of maps of one argument, fields of objects among them: 32 for
/// each of 65,536 jobs, which are options and headers.
pub const MOST_PARTS: usize = 2 << 20;

/// Counts the parts of one argument. What is passed over is not kept, and does not count.
#[derive(Debug, Default)]
pub(super) struct Parts {
    count: Cell<usize>,
    refused: Cell<Option<TooMany>>,
}

/// The caller's.
#[derive(Clone, Copy, Debug, Error)]
pub(super) enum TooMany {
    #[error("more than {MOST_IN_A_LIST} elements in a list of the argument; send fewer at a time")]
    InAList,
    #[error("more than {MOST_PARTS} fields and elements in the argument; send fewer at a time")]
    Together,
}

/// Why a protobuf message is not read.
#[derive(Debug, Error)]
pub(super) enum Unread {
    #[error(transparent)]
    TooMany(TooMany),
    #[error("proto: {0}")]
    Wrong(DecodeError),
}

impl Parts {
    /// One more, which is the `nth` of its list or map.
    pub(super) fn add(&self, nth: usize) -> Result<(), TooMany> {
        self.count.set(self.count.get() + 1);
        let too_many = if nth > MOST_IN_A_LIST {
            TooMany::InAList
        } else if self.count.get() > MOST_PARTS {
            TooMany::Together
        } else {
            return Ok(());
        };
        self.refused.set(Some(too_many));
        Err(too_many)
    }

    /// Ok for an argument that is all read, or wrong for another reason. A type may have passed
    /// over the error.
    pub(super) fn end(&self) -> Result<(), TooMany> {
        self.refused.get().map_or(Ok(()), Err)
    }
}

/// Reads a protobuf message.
pub(super) fn decode<M: Message + Default>(bytes: Bytes) -> Result<M, Unread> {
    // Its fields are no more than its bytes.
    if bytes.len() > MOST_IN_A_LIST && has_long_list(&bytes) {
        return Err(Unread::TooMany(TooMany::InAList));
    }
    let mut input = Counted {
        bytes,
        left: MOST_READS,
        is_over: false,
    };
    let read = M::decode(&mut input);
    if input.is_over {
        return Err(Unread::TooMany(TooMany::Together));
    }
    read.map_err(Unread::Wrong)
}

/// Whether the message has more fields than a list may have elements: its lists stand among them,
/// element by element. Messages within it have lists of names at most, which count with all parts.
fn has_long_list(mut message: &[u8]) -> bool {
    for _ in 0..=MOST_IN_A_LIST {
        let skipped = decode_key(&mut message)
            .and_then(|(tag, kind)| skip_field(kind, tag, &mut message, DecodeContext::default()));
        if skipped.is_err() {
            return false; // all is read, or it is told when the message is
        }
    }
    true
}

/// A field has a key, a length and its bytes, and an entry of a map is three fields.
const MOST_READS: usize = 4 * MOST_PARTS;

/// Bytes of a message, at their end once too many parts were read from them.
struct Counted {
    bytes: Bytes,
    left: usize,
    is_over: bool,
}

impl Counted {
    fn count(&mut self) {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => {
                self.is_over = true;
                self.bytes.clear();
            }
        }
    }
}

impl Buf for Counted {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.count();
        if !self.is_over {
            self.bytes.advance(count);
        }
    }

    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        self.count();
        if self.is_over {
            return Bytes::new();
        }
        self.bytes.copy_to_bytes(length)
    }

    /// A byte of a number at the end, which is part of one that has been counted.
    fn get_u8(&mut self) -> u8 {
        self.bytes.get_u8()
    }
}
