//! Frames of a request's stream (RFC 9114, section 7): bytes of the stream to blocks of fields and
//! pieces of a body.

use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use quinn::{RecvStream, VarInt};

/// RFC 9114, section 8.1, and RFC 9204, section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(pub(super) u16);

impl Code {
    pub(super) const NO_ERROR: Self = Self(0x100);
    pub(super) const INTERNAL_ERROR: Self = Self(0x102);
    pub(super) const STREAM_CREATION_ERROR: Self = Self(0x103);
    pub(super) const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    pub(super) const FRAME_UNEXPECTED: Self = Self(0x105);
    pub(super) const FRAME_ERROR: Self = Self(0x106);
    pub(super) const EXCESSIVE_LOAD: Self = Self(0x107);
    pub(super) const ID_ERROR: Self = Self(0x108);
    pub(super) const SETTINGS_ERROR: Self = Self(0x109);
    pub(super) const MISSING_SETTINGS: Self = Self(0x10a);
    pub(super) const REQUEST_REJECTED: Self = Self(0x10b);
    pub(super) const REQUEST_CANCELLED: Self = Self(0x10c);
    pub(super) const REQUEST_INCOMPLETE: Self = Self(0x10d);
    pub(super) const MESSAGE_ERROR: Self = Self(0x10e);
    pub(super) const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    pub(super) const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    pub(super) const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);
}

impl From<Code> for VarInt {
    fn from(code: Code) -> Self {
        Self::from_u32(code.0.into())
    }
}

pub(super) const DATA: u64 = 0;
pub(super) const HEADERS: u64 = 1;
pub(super) const CANCEL_PUSH: u64 = 3;
pub(super) const SETTINGS: u64 = 4;
pub(super) const PUSH_PROMISE: u64 = 5;
pub(super) const GOAWAY: u64 = 7;
pub(super) const MAX_PUSH_ID: u64 = 0xd;

/// Whether frames of this type had a meaning in HTTP/2, and have none here (RFC 9114, section
/// 7.2.8).
pub(super) const fn is_of_http2(kind: u64) -> bool {
    matches!(kind, 2 | 6 | 8 | 9)
}

/// Bytes that are read of a stream at a time.
const READ: usize = 64 << 10;
/// Frames of unknown types on one stream: there are some to keep servers used to them (RFC 9114,
/// section 7.2.8).
const UNKNOWN: usize = 64;
/// Octets of the longest number (RFC 9000, section 16).
const LONGEST: usize = 8;

/// Appends a number.
pub(super) fn append_number(to: &mut Vec<u8>, number: u64) {
    let bytes = number.to_be_bytes();
    let (prefix, length) = match number {
        0..0x40 => (0, 1),
        0x40..0x4000 => (0x40, 2),
        0x4000..0x4000_0000 => (0x80, 4),
        _ => (0xc0, 8),
    };
    let start = to.len();
    to.extend_from_slice(&bytes[LONGEST - length..]);
    to[start] |= prefix;
}

/// Appends the beginning of a frame.
pub(super) fn append_head(to: &mut Vec<u8>, kind: u64, length: usize) {
    append_number(to, kind);
    append_number(to, length as u64);
}

/// A number of which not all octets may have come.
#[derive(Debug, Default)]
pub(super) struct Number {
    value: u64,
    /// Octets that have come, and that there are.
    have: usize,
    length: usize,
}

impl Number {
    /// Takes what belongs to it. None until it is whole; then it is for the next one.
    pub(super) fn take(&mut self, bytes: &mut Bytes) -> Option<u64> {
        while bytes.has_remaining() {
            let byte = bytes.get_u8();
            if self.have == 0 {
                self.length = 1 << (byte >> 6);
                self.value = u64::from(byte & 0x3f);
            } else {
                self.value = self.value << 8 | u64::from(byte);
            }
            self.have += 1;
            if self.have == self.length {
                self.have = 0;
                return Some(self.value);
            }
        }
        None
    }

    /// Whether a part of it has come.
    pub(super) const fn is_begun(&self) -> bool {
        self.have > 0
    }
}

/// The next thing that a request's stream brings.
#[derive(Debug)]
pub(super) enum Event {
    /// A block of fields: the first one is the request's.
    Fields(Bytes),
    /// A block of so many bytes or more, which are too many. No more is read.
    TooLong,
    Data(Bytes),
    End,
}

/// Why it brings no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The client has reset it, or the connection is gone.
    Gone,
    /// It breaks a rule: the connection is to end with this code.
    Broken(Code),
}

#[derive(Debug)]
enum Part {
    Kind,
    Length(u64),
    Fields(BytesMut, usize),
    Data(u64),
    Skip(u64),
}

/// Reads the stream of a request.
#[derive(Debug)]
pub(super) struct Frames {
    stream: RecvStream,
    /// Bytes that were read and not looked at.
    bytes: Bytes,
    number: Number,
    part: Part,
    /// Bytes that a block may have.
    longest: usize,
    blocks: u8,
    unknown: usize,
    is_over: bool,
}

impl Frames {
    pub(super) fn new(stream: RecvStream, longest: usize) -> Self {
        Self {
            stream,
            bytes: Bytes::new(),
            number: Number::default(),
            part: Part::Kind,
            longest,
            blocks: 0,
            unknown: 0,
            is_over: false,
        }
    }

    /// Bytes that are kept of a block whose rest has not come.
    pub(super) fn held(&self) -> usize {
        match &self.part {
            Part::Fields(block, _) => block.capacity(),
            Part::Kind | Part::Length(_) | Part::Data(_) | Part::Skip(_) => 0,
        }
    }

    /// The client need not send the rest.
    pub(super) fn stop(&mut self, code: Code) {
        _ = self.stream.stop(code.into()); // it has all been read
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Ended>> {
        loop {
            if self.is_over {
                return Poll::Ready(Ok(Event::End));
            }
            if let Some(event) = self.next()? {
                return Poll::Ready(Ok(event));
            }
            // Its state is the stream's alone: it may be asked for anew each time.
            let read = {
                let reading = pin!(self.stream.read_chunk(READ, true));
                ready!(reading.poll(cx))
            };
            match read {
                Ok(Some(chunk)) => self.bytes = chunk.bytes,
                Ok(None) if matches!(self.part, Part::Kind) && !self.number.is_begun() => {
                    self.is_over = true;
                }
                Ok(None) => return Poll::Ready(Err(Ended::Broken(Code::FRAME_ERROR))),
                Err(_) => return Poll::Ready(Err(Ended::Gone)),
            }
        }
    }

    /// The next event in the bytes that were read. None where none is whole.
    fn next(&mut self) -> Result<Option<Event>, Ended> {
        loop {
            match &mut self.part {
                Part::Kind => {
                    let Some(kind) = self.number.take(&mut self.bytes) else {
                        return Ok(None);
                    };
                    self.begin(kind).map_err(Ended::Broken)?;
                }
                Part::Length(kind) => {
                    let Some(length) = self.number.take(&mut self.bytes) else {
                        return Ok(None);
                    };
                    let len = usize::try_from(length).unwrap_or(usize::MAX);
                    self.part = match *kind {
                        DATA => Part::Data(length),
                        HEADERS if len > self.longest => {
                            self.is_over = true;
                            return Ok(Some(Event::TooLong));
                        }
                        HEADERS => Part::Fields(BytesMut::new(), len),
                        _ => Part::Skip(length),
                    };
                }
                Part::Fields(block, length) => {
                    let missing = *length - block.len();
                    if block.is_empty() && self.bytes.len() >= missing {
                        let block = self.bytes.split_to(missing);
                        self.part = Part::Kind;
                        return Ok(Some(Event::Fields(block)));
                    }
                    let piece = self.bytes.split_to(missing.min(self.bytes.len()));
                    block.extend_from_slice(&piece);
                    if block.len() < *length {
                        return Ok(None);
                    }
                    let block = std::mem::take(block).freeze();
                    self.part = Part::Kind;
                    return Ok(Some(Event::Fields(block)));
                }
                Part::Data(left) => {
                    let take = self
                        .bytes
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= take as u64;
                    if *left == 0 {
                        self.part = Part::Kind;
                    }
                    let piece = self.bytes.split_to(take);
                    if !piece.is_empty() {
                        return Ok(Some(Event::Data(piece)));
                    }
                    if self.bytes.is_empty() {
                        return Ok(None);
                    }
                }
                Part::Skip(left) => {
                    let skip = self
                        .bytes
                        .len()
                        .min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= skip as u64;
                    if *left == 0 {
                        self.part = Part::Kind;
                    }
                    self.bytes.advance(skip);
                    if self.bytes.is_empty() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// A frame of this type begins. After the fields of a request comes its body, then perhaps one
    /// block of trailers, and nothing more.
    fn begin(&mut self, kind: u64) -> Result<(), Code> {
        match kind {
            DATA if self.blocks != 1 => return Err(Code::FRAME_UNEXPECTED),
            HEADERS if self.blocks >= 2 => return Err(Code::FRAME_UNEXPECTED),
            HEADERS => self.blocks += 1,
            DATA => {}
            CANCEL_PUSH | SETTINGS | PUSH_PROMISE | GOAWAY | MAX_PUSH_ID => {
                return Err(Code::FRAME_UNEXPECTED);
            }
            kind if is_of_http2(kind) => return Err(Code::FRAME_UNEXPECTED),
            _ => {
                self.unknown += 1;
                if self.unknown > UNKNOWN {
                    return Err(Code::EXCESSIVE_LOAD);
                }
            }
        }
        self.part = Part::Length(kind);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_are_read_as_they_were_written(
            number in prop_oneof![0..64_u64, 0..0x4000_u64, 0..0x4000_0000_u64, 0..1_u64 << 62],
            cut in 0..9_usize,
        ) {
            let mut bytes = Vec::new();
            append_number(&mut bytes, number);
            bytes.push(7);
            let cut = cut.min(bytes.len() - 2);
            let mut read = Number::default();
            let mut first = Bytes::copy_from_slice(&bytes[..cut]);
            prop_assert_eq!(read.take(&mut first), None);
            prop_assert_eq!(read.is_begun(), cut > 0);
            let mut rest = Bytes::copy_from_slice(&bytes[cut..]);
            prop_assert_eq!(read.take(&mut rest), Some(number));
            prop_assert_eq!(&rest[..], &[7]);
        }
    }
}
