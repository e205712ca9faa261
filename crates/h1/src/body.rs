//! A request's body: where its bytes are among those that were received.

use std::num::IntErrorKind;

use crate::refusal::Refusal;

/// A chunk's size line, with extensions that nobody reads.
const SIZE_LINE: usize = 256;
/// Of a size, zeros before it included.
const MOST_DIGITS: usize = 16;
/// Trailers, which are dropped.
const TRAILERS: usize = 8 << 10;

/// How far into its body a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyState {
    /// So many bytes are left.
    Length(u64),
    /// At the start of a size line.
    ChunkSize,
    /// In a chunk with so many bytes left.
    Chunk(u64),
    /// Behind a chunk: its CRLF comes.
    ChunkEnd,
    /// Behind the last chunk; so many bytes of trailers have passed.
    Trailers(usize),
    Done,
}

/// What the next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyStep {
    /// So many bytes of framing: skip them.
    Skip(usize),
    /// So many bytes of the body.
    Data(usize),
    /// Nothing can be said without more.
    More,
    Done,
}

impl BodyState {
    pub(crate) fn step(&mut self, input: &[u8]) -> Result<BodyStep, Refusal> {
        match *self {
            Self::Done | Self::Length(0) => {
                *self = Self::Done;
                Ok(BodyStep::Done)
            }
            Self::Length(left) => Ok(self.data(left, input, Self::Length)),
            Self::Chunk(0) => {
                *self = Self::ChunkEnd;
                self.step(input)
            }
            Self::Chunk(left) => Ok(self.data(left, input, Self::Chunk)),
            Self::ChunkSize => match line(input, SIZE_LINE)? {
                None => Ok(BodyStep::More),
                Some(line) => {
                    let size = chunk_size(line)?;
                    *self = if size == 0 {
                        Self::Trailers(0)
                    } else {
                        Self::Chunk(size)
                    };
                    Ok(BodyStep::Skip(line.len().saturating_add(2)))
                }
            },
            Self::ChunkEnd => match input {
                [b'\r', b'\n', ..] => {
                    *self = Self::ChunkSize;
                    Ok(BodyStep::Skip(2))
                }
                [] | [b'\r'] => Ok(BodyStep::More),
                _ => Err(Refusal::Chunk("a chunk is longer than its size says")),
            },
            Self::Trailers(passed) => match line(input, TRAILERS)? {
                None => Ok(BodyStep::More),
                Some(line) => {
                    let passed = passed.saturating_add(line.len());
                    if passed > TRAILERS {
                        return Err(Refusal::Chunk("its trailers are too long"));
                    }
                    *self = if line.is_empty() {
                        Self::Done
                    } else if is_field(line) {
                        Self::Trailers(passed)
                    } else {
                        return Err(Refusal::Chunk("a trailer is no field"));
                    };
                    Ok(BodyStep::Skip(line.len().saturating_add(2)))
                }
            },
        }
    }

    fn data(&mut self, left: u64, input: &[u8], state: fn(u64) -> Self) -> BodyStep {
        let there = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
        if there == 0 {
            return BodyStep::More;
        }
        *self = state(left.saturating_sub(there as u64));
        BodyStep::Data(there)
    }
}

/// A line without its CRLF. A lone LF, a lone CR or NUL in it is refused.
fn line(input: &[u8], limit: usize) -> Result<Option<&[u8]>, Refusal> {
    match memchr::memchr3(b'\r', b'\n', 0, input) {
        Some(end) => match input.get(end..).unwrap_or_default() {
            [b'\r', b'\n', ..] if end <= limit => Ok(input.get(..end)),
            [b'\r'] if end <= limit => Ok(None),
            [b'\r', b'\n', ..] | [b'\r'] => Err(Refusal::Chunk("a line is too long")),
            _ => Err(Refusal::Chunk("a line does not end in CRLF")),
        },
        None if input.len() > limit => Err(Refusal::Chunk("a line is too long")),
        None => Ok(None),
    }
}

/// A name and a colon, as in a head. What is none could be the next request to somebody else.
fn is_field(line: &[u8]) -> bool {
    let end = line.iter().position(|&byte| !is_token(byte));
    end.is_some_and(|end| end > 0 && line.get(end) == Some(&b':'))
}

/// RFC 9110, section 5.6.2.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// Hexadecimal digits, then perhaps extensions (RFC 9112, section 7.1.1), which are skipped.
fn chunk_size(line: &[u8]) -> Result<u64, Refusal> {
    let digits = line
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    let (size, rest) = line.split_at_checked(digits).unwrap_or_default();
    // White space before an extension is allowed by the grammar's BWS.
    if !matches!(rest.trim_ascii_start(), [] | [b';', ..])
        || (rest.trim_ascii_start().is_empty() && !rest.is_empty())
    {
        return Err(Refusal::Chunk("a size is no hexadecimal number"));
    }
    let text = std::str::from_utf8(size).unwrap_or_default();
    let size = u64::from_str_radix(text, 16);
    match size.map_err(|error| *error.kind()) {
        // No body is that long, and nobody's signed number overflows.
        Ok(size) if i64::try_from(size).is_ok() && digits <= MOST_DIGITS => Ok(size),
        Ok(_) | Err(IntErrorKind::PosOverflow) => Err(Refusal::Chunk("a size is too large")),
        Err(_) => Err(Refusal::Chunk("a size is no hexadecimal number")),
    }
}
