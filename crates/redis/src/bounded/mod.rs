//! A bound for replies of Redis, kept where their bytes come in: the parser behind it takes all
//! that it is told, a text of a terabyte or lists without end.
//!
//! Follows the framing of RESP2, which is the one that is asked for, and looks at no value.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redis::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Lists within lists. Answers to our commands have five, entries of streams.
const DEEPEST: usize = 8;
/// A word, a number, or an error with its reason has at most so many bytes.
const LONGEST_LINE: u64 = 64 << 10;
/// The digits of a length, with its sign and the end of its line.
const LONGEST_NUMBER: usize = 22;
/// A value costs this beside its bytes.
const VALUE: u64 = size_of::<Value>() as u64;
/// An error shows so many bytes of what is not understood.
const SHOWN: usize = 40;
/// How much is read at a time. A reply that is complete is taken before the next ones fill the
/// memory.
const PART: usize = 64 << 10;

/// A connection that fails with the first byte that leads beyond the bound.
pub(crate) struct Bounded<S> {
    socket: S,
    replies: Replies,
}

impl<S> Bounded<S> {
    /// One reply takes at most so many bytes, its values included.
    pub(crate) fn new(socket: S, longest: usize) -> Self {
        Self {
            socket,
            replies: Replies::new(longest),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        if buf.remaining() <= PART {
            ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
        } else {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(PART));
            ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
            let read = part.filled().len();
            buf.advance(read);
        }
        let new = buf.filled().get(before..).unwrap_or_default();
        self.replies
            .follow(new)
            .map_err(|wrong| io::Error::new(io::ErrorKind::InvalidData, wrong))?;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// Where in a reply the bytes are, and what it takes so far.
struct Replies {
    longest: u64,
    taken: u64,
    /// How many values are missing in each list that is open, the outermost first.
    open: Vec<u64>,
    at: Position,
}

enum Position {
    /// The byte that says what a value is.
    Kind,
    /// The length of a text or of a list.
    Length(Of, Number),
    /// A word, a number or an error, with its length so far and its last byte.
    Line { length: u64, last: u8 },
    /// Within a text: bytes that are missing.
    Text(u64),
    /// Behind a text: what its end still lacks.
    End(&'static [u8]),
}

#[derive(Clone, Copy)]
enum Of {
    Text,
    List,
}

/// A line with a length, as far as it has come.
#[derive(Default)]
struct Number {
    bytes: [u8; LONGEST_NUMBER],
    count: usize,
}

impl Replies {
    fn new(longest: usize) -> Self {
        Self {
            longest: longest as u64,
            taken: 0,
            open: Vec::with_capacity(DEEPEST),
            at: Position::Kind,
        }
    }

    fn follow(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while let Some((&byte, rest)) = bytes.split_first() {
            match &mut self.at {
                Position::Kind => {
                    if self.open.is_empty() {
                        self.taken = 0;
                        self.take(VALUE)?;
                    }
                    self.at = match byte {
                        b'+' | b'-' | b':' => Position::Line { length: 0, last: 0 },
                        b'$' => Position::Length(Of::Text, Number::default()),
                        b'*' => Position::Length(Of::List, Number::default()),
                        _ => return Err(no_redis(bytes)),
                    };
                }
                Position::Length(of, number) => {
                    if let Some(Length(length)) = number.add(byte)? {
                        let of = *of;
                        self.begin(of, length)?;
                    }
                }
                Position::Line { length, last } => match byte {
                    b'\n' if *last == b'\r' => {
                        let length = *length;
                        self.take(length)?;
                        self.end_value();
                    }
                    b'\n' => return Err(no_redis(bytes)),
                    _ if *length == LONGEST_LINE => {
                        return Err(format!("a line has more than {LONGEST_LINE} bytes"));
                    }
                    _ => {
                        *length += 1;
                        *last = byte;
                    }
                },
                Position::Text(missing) => {
                    let here = (*missing).min(bytes.len() as u64);
                    *missing -= here;
                    if *missing == 0 {
                        self.at = Position::End(b"\r\n");
                    }
                    let here = usize::try_from(here).expect("it is not more than is here");
                    bytes = bytes.get(here..).expect("it is not more than is here");
                    continue;
                }
                Position::End(missing) => match missing.split_first() {
                    Some((expected, left)) if *expected == byte => {
                        *missing = left;
                        if left.is_empty() {
                            self.end_value();
                        }
                    }
                    _ => return Err(no_redis(bytes)),
                },
            }
            bytes = rest;
        }
        Ok(())
    }

    /// A text or a list begins; one without a length is no value.
    fn begin(&mut self, of: Of, length: Option<u64>) -> Result<(), String> {
        match (of, length) {
            (_, None) | (Of::List, Some(0)) => self.end_value(),
            (Of::Text, Some(length)) => {
                self.take(length)?;
                self.at = Position::Text(length);
            }
            (Of::List, Some(_)) if self.open.len() == DEEPEST => {
                return Err(format!("lists are within lists, more than {DEEPEST} deep"));
            }
            (Of::List, Some(length)) => {
                self.take(length.saturating_mul(VALUE))?;
                self.open.push(length);
                self.at = Position::Kind;
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<(), String> {
        self.taken = self.taken.saturating_add(bytes);
        if self.taken > self.longest {
            let longest = self.longest;
            return Err(format!("a reply takes more than {longest} bytes"));
        }
        Ok(())
    }

    /// The lists that end with it end, too.
    fn end_value(&mut self) {
        self.at = Position::Kind;
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                break;
            }
            self.open.pop();
        }
    }
}

/// The length of a text or a list; none where it is no value.
struct Length(Option<u64>);

impl Number {
    /// The length, when this byte is its last one.
    fn add(&mut self, byte: u8) -> Result<Option<Length>, String> {
        let Some(place) = self.bytes.get_mut(self.count) else {
            return Err(no_redis(&self.bytes));
        };
        *place = byte;
        self.count += 1;
        let line = self.bytes.get(..self.count).unwrap_or_default();
        if byte != b'\n' {
            return Ok(None);
        }
        let digits = line.strip_suffix(b"\r\n").unwrap_or_default();
        if digits == b"-1" {
            return Ok(Some(Length(None)));
        }
        let is_number = digits.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(digits).ok();
        let length = length.filter(|_| is_number).and_then(|it| it.parse().ok());
        length
            .map(|it| Some(Length(Some(it))))
            .ok_or_else(|| no_redis(line))
    }
}

fn no_redis(bytes: &[u8]) -> String {
    let start = bytes.get(..bytes.len().min(SHOWN)).unwrap_or_default();
    format!(
        "what answers is no Redis: it says `{}`",
        start.escape_ascii()
    )
}

#[cfg(test)]
mod tests;
