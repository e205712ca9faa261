//! The Goridge frame, version 1: a header of three to thirteen words, then the payload.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | version 1 in the high half, length of the header in words in the low half |
//! | 1 | 1 | [`Flags`] |
//! | 2 | 4 | length of the payload |
//! | 6 | 4 | CRC-32 of bytes 0 to 5 |
//! | 10 | 1 | [`Stream`] |
//! | 11 | 1 | 0 |
//! | 12 | 4 × n | options |

use thiserror::Error;

/// A header without options: what must be there before anything can be said.
pub const MIN_HEADER: usize = 12;
/// A header with one option, the form of every request and response of a worker.
pub const WORKER_HEADER: usize = 16;
/// The most options a header can have; RoadRunner writes no more either.
pub const MAX_OPTIONS: usize = 10;
/// A payload may be as long as the largest body (`http.max_request_size`, 1,000 MB) and its
/// context.
pub const MAX_PAYLOAD: u32 = 1 << 30;

const VERSION: u8 = 1;
const WORD: usize = 4;
const WORDS_WITHOUT_OPTIONS: u8 = 3;

/// Byte 1: what the payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// Nothing said; a worker's response is then JSON.
    pub const NONE: Self = Self(0);
    /// A control message in JSON: pid or stop.
    pub const CONTROL: Self = Self(0x01);
    /// The context is in our own codec. RoadRunner leaves this bit unused.
    pub const NATIVE: Self = Self(0x02);
    /// Raw bytes.
    pub const RAW: Self = Self(0x04);
    /// The context is JSON.
    pub const JSON: Self = Self(0x08);
    /// `MessagePack` (RPC).
    pub const MSGPACK: Self = Self(0x10);
    /// Go's gob (RPC).
    pub const GOB: Self = Self(0x20);
    /// The payload is the text of an error.
    pub const ERROR: Self = Self(0x40);
    /// The context is protobuf.
    pub const PROTO: Self = Self(0x80);

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Byte 10: where in a streamed response a frame stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stream(pub u8);

impl Stream {
    /// The frame is whole, or the last of its response.
    pub const END: Self = Self(0);
    /// More frames of this response follow.
    pub const MORE: Self = Self(0x01);
    /// Server to worker: stop this response.
    pub const STOP: Self = Self(0x02);
    /// Worker to server, on a chunk: does anybody still read?
    pub const PING: Self = Self(0x04);
    /// Server to worker: the answer.
    pub const PONG: Self = Self(0x08);

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The words between header and payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    words: [u32; MAX_OPTIONS],
    count: u8,
}

impl Options {
    /// As many as given.
    ///
    /// # Panics
    ///
    /// For more than [`MAX_OPTIONS`].
    pub fn new(words: &[u32]) -> Self {
        let mut options = Self::default();
        options
            .words
            .get_mut(..words.len())
            .expect("at most ten options")
            .copy_from_slice(words);
        options.count = u8::try_from(words.len()).expect("at most ten options");
        options
    }

    /// The words in order.
    pub fn as_slice(&self) -> &[u32] {
        self.words
            .get(..usize::from(self.count))
            .unwrap_or_default()
    }
}

/// A decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the payload is.
    pub flags: Flags,
    /// Where in a stream the frame stands.
    pub stream: Stream,
    /// The words behind the fixed part.
    pub options: Options,
    /// Bytes of payload that follow.
    pub payload: u32,
}

/// Bytes that are not a frame, or one that we don't take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The peer's: text on a channel for frames, or frames out of step.
    #[error(
        "these bytes are no frame: the header's check sum is {announced:08x}, of its bytes {actual:08x}"
    )]
    Crc {
        /// What the header says.
        announced: u32,
        /// What its first six bytes give.
        actual: u32,
    },
    /// The peer's: a later version of the protocol.
    #[error("frame of version {0}, only 1 is known")]
    Version(u8),
    /// The peer's: fewer than three words, or more than ten options.
    #[error("header of {0} words, it has 3 to 13")]
    HeaderLength(u8),
    /// The peer's: more than the receiver is ready to take.
    #[error("payload of {announced} bytes, at most {limit} are taken")]
    TooLong {
        /// What the header says.
        announced: u32,
        /// What the receiver takes.
        limit: u32,
    },
}

impl Header {
    /// Reads a header from the start of `input`.
    ///
    /// `None` means that more bytes are needed. The check sum is compared before any other byte is
    /// believed.
    ///
    /// # Errors
    ///
    /// When the bytes are no frame, or announce a payload of more than `limit` bytes.
    pub fn decode(input: &[u8], limit: u32) -> Result<Option<Self>, FrameError> {
        let Some((&[head, flags, l0, l1, l2, l3, c0, c1, c2, c3, stream, _], rest)) =
            input.split_first_chunk::<MIN_HEADER>()
        else {
            return Ok(None);
        };
        let announced = u32::from_le_bytes([c0, c1, c2, c3]);
        let actual = check_sum([head, flags, l0, l1, l2, l3]);
        if announced != actual {
            return Err(FrameError::Crc { announced, actual });
        }
        if head >> 4 != VERSION {
            return Err(FrameError::Version(head >> 4));
        }
        let words = head & 0x0f;
        let count = match words.checked_sub(WORDS_WITHOUT_OPTIONS) {
            Some(count) if usize::from(count) <= MAX_OPTIONS => count,
            _ => return Err(FrameError::HeaderLength(words)),
        };
        let payload = u32::from_le_bytes([l0, l1, l2, l3]);
        if payload > limit {
            return Err(FrameError::TooLong {
                announced: payload,
                limit,
            });
        }
        let mut options = Options {
            count,
            ..Options::default()
        };
        for (index, word) in options
            .words
            .iter_mut()
            .take(usize::from(count))
            .enumerate()
        {
            let Some(bytes) = rest
                .get(index.saturating_mul(WORD)..)
                .and_then(<[u8]>::first_chunk)
            else {
                return Ok(None);
            };
            *word = u32::from_le_bytes(*bytes);
        }
        Ok(Some(Self {
            flags: Flags(flags),
            stream: Stream(stream),
            options,
            payload,
        }))
    }

    /// Bytes of the header itself; the payload starts behind them.
    pub fn len(&self) -> usize {
        MIN_HEADER.saturating_add(usize::from(self.options.count).saturating_mul(WORD))
    }

    /// Never: a header has at least twelve bytes. Here because `len` is.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Appends the header's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&fixed_part(
            self.options.count,
            self.flags,
            self.stream,
            self.payload,
        ));
        for word in self.options.as_slice() {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Appends a whole frame without options: control messages, worker errors, pong and stop.
pub fn encode_plain(out: &mut Vec<u8>, flags: Flags, stream: Stream, payload: &[u8]) {
    let payload_len = u32::try_from(payload.len()).expect("control frames are short");
    Header {
        flags,
        stream,
        options: Options::default(),
        payload: payload_len,
    }
    .encode(out);
    out.extend_from_slice(payload);
}

/// A frame with one option whose context is being written: the header is left open until the
/// lengths are known.
///
/// The payload is the context, then the body; the option is the length of the context. The body
/// need not be in the same buffer: what matters is that it is sent right behind.
#[derive(Debug)]
pub struct OpenFrame {
    start: usize,
}

impl OpenFrame {
    /// Leaves room for the header at the end of `out`.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; WORKER_HEADER]);
        Self { start }
    }

    /// Everything after the header is the context; `body` more bytes will follow it.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLong`] when context and body together pass [`MAX_PAYLOAD`]; `out` is then
    /// as it was before [`begin`](Self::begin).
    pub fn finish(
        self,
        out: &mut Vec<u8>,
        flags: Flags,
        stream: Stream,
        body: usize,
    ) -> Result<(), FrameError> {
        let context = out
            .len()
            .saturating_sub(self.start)
            .saturating_sub(WORKER_HEADER);
        let payload = u32::try_from(context.saturating_add(body)).unwrap_or(u32::MAX);
        let header = out
            .get_mut(self.start..)
            .and_then(<[u8]>::first_chunk_mut::<WORKER_HEADER>);
        match (header, u32::try_from(context)) {
            (Some(header), Ok(context)) if payload <= MAX_PAYLOAD => {
                let (fixed, option) = header.split_at_mut(MIN_HEADER);
                fixed.copy_from_slice(&fixed_part(1, flags, stream, payload));
                option.copy_from_slice(&context.to_le_bytes());
                Ok(())
            }
            _ => {
                out.truncate(self.start);
                Err(FrameError::TooLong {
                    announced: payload,
                    limit: MAX_PAYLOAD,
                })
            }
        }
    }
}

fn fixed_part(options: u8, flags: Flags, stream: Stream, payload: u32) -> [u8; MIN_HEADER] {
    let head = (VERSION << 4) | WORDS_WITHOUT_OPTIONS.saturating_add(options);
    let [l0, l1, l2, l3] = payload.to_le_bytes();
    let [c0, c1, c2, c3] = check_sum([head, flags.0, l0, l1, l2, l3]).to_le_bytes();
    [head, flags.0, l0, l1, l2, l3, c0, c1, c2, c3, stream.0, 0]
}

fn check_sum(summed: [u8; 6]) -> u32 {
    crc32fast::hash(&summed)
}

/// Fuzz entry: whatever decodes must encode to the same bytes.
#[doc(hidden)]
pub fn fuzz_header(data: &[u8]) {
    if let Ok(Some(header)) = Header::decode(data, MAX_PAYLOAD) {
        let mut again = Vec::new();
        header.encode(&mut again);
        // Byte 11 is reserved: read as anything, written as 0.
        let same = again
            .iter()
            .zip(data)
            .enumerate()
            .all(|(i, (a, b))| i == 11 || a == b);
        assert!(
            same && again.len() == header.len(),
            "decoding and encoding differ"
        );
    }
}

#[cfg(test)]
pub(crate) mod tests;
