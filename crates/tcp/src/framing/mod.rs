//! Where a message ends in a stream of bytes.
//!
//! Knows neither sockets nor time: bytes in, messages out.

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use thiserror::Error;

#[cfg(test)]
mod tests;

/// How messages are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Framing {
    /// All that has arrived is a message once it ends with these bytes, as in RoadRunner. One
    /// message may have them inside, too: it depends on what arrived together.
    Chunk(Vec<u8>),
    /// A message ends with these bytes, and has them.
    Delimiter(Vec<u8>),
    /// A message is a line, without the LF or CR LF at its end.
    Line,
    /// A message says how long it is.
    Length(LengthField),
    /// All that has arrived is a message.
    None,
}

/// Where a message says how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthField {
    /// Bytes of the message before the field.
    pub offset: usize,
    /// Bytes of the field: 1, 2, 4 or 8.
    pub bytes: usize,
    pub order: ByteOrder,
    /// Added to the field's value, it gives the number of bytes behind the field.
    pub extra: i64,
}

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The most significant one.
    Big,
    Little,
}

/// Why no message can be made of what has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadMessage {
    #[error("a message is longer than `max_message`, which is {0} bytes")]
    TooLong(usize),
    #[error("the length {0} of a message can't be right")]
    Length(u64),
}

/// Takes messages out of the bytes of one connection.
#[derive(Debug)]
pub struct Framer {
    /// The longest message.
    most: usize,
    /// The number of bytes at hand that have no end of a message in them.
    scanned: usize,
}

impl Framer {
    pub const fn new(most: usize) -> Self {
        Self { most, scanned: 0 }
    }

    /// Takes the next message, if all of it is there. `is_chunk` says that nothing more has arrived
    /// for now.
    ///
    /// # Errors
    ///
    /// When no message will come: the connection can't go on.
    pub fn next(
        &mut self,
        framing: &Framing,
        received: &mut BytesMut,
        is_chunk: bool,
    ) -> Result<Option<Bytes>, BadMessage> {
        let end = match framing {
            Framing::Chunk(delimiter) => {
                let is_whole = is_chunk && received.ends_with(delimiter);
                is_whole.then_some(received.len())
            }
            Framing::Delimiter(delimiter) => self.find(received, delimiter),
            Framing::Line => self.find(received, b"\n"),
            Framing::Length(field) => field.end(received, self.most)?,
            Framing::None => {
                let len = received.len().min(self.most);
                (len > 0).then_some(len)
            }
        };
        let Some(end) = end else {
            // An end that is still to come would be beyond the limit.
            if received.len() >= self.most && !matches!(framing, Framing::Length(_)) {
                let is_over = !matches!(framing, Framing::Chunk(_)) || received.len() > self.most;
                if is_over {
                    return Err(BadMessage::TooLong(self.most));
                }
            }
            return Ok(None);
        };
        if end > self.most {
            return Err(BadMessage::TooLong(self.most));
        }
        self.scanned = 0;
        let mut message = received.split_to(end).freeze();
        if *framing == Framing::Line {
            message.truncate(len_of_line(&message));
        }
        Ok(Some(message))
    }

    /// Takes the bytes that are left at the end of a connection, if they may be used: a message
    /// without its end.
    pub fn rest(&mut self, framing: &Framing, received: &mut BytesMut) -> Option<Bytes> {
        self.scanned = 0;
        let rest = std::mem::take(received).freeze();
        // The beginning of a message whose length is known is none.
        let is_message = !rest.is_empty() && !matches!(framing, Framing::Length(_));
        is_message.then_some(rest)
    }

    /// Where the first message ends, without looking twice at a byte that is the end of none.
    fn find(&mut self, received: &[u8], delimiter: &[u8]) -> Option<usize> {
        let from = self.scanned.min(received.len());
        let found = match delimiter {
            [byte] => memchr::memchr(*byte, &received[from..]),
            _ => memmem::find(&received[from..], delimiter),
        };
        match found {
            Some(at) => Some(from + at + delimiter.len()),
            None => {
                // It may have begun.
                let begun = delimiter.len().saturating_sub(1);
                self.scanned = received.len().saturating_sub(begun);
                None
            }
        }
    }
}

/// The length of a line, without the LF or CR LF at its end.
fn len_of_line(line: &[u8]) -> usize {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line).len()
}

impl LengthField {
    /// Where the first message ends, if all of it is there.
    fn end(&self, received: &[u8], most: usize) -> Result<Option<usize>, BadMessage> {
        let head = self.offset.saturating_add(self.bytes);
        let Some(field) = received.get(self.offset..head) else {
            return Ok(None);
        };
        let digits = field.iter().copied();
        let value = match self.order {
            ByteOrder::Big => digits.fold(0, push_byte),
            ByteOrder::Little => digits.rev().fold(0, push_byte),
        };
        let rest = i128::from(value) + i128::from(self.extra);
        if rest < 0 {
            return Err(BadMessage::Length(value));
        }
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        let end = head.saturating_add(rest);
        if end > most {
            return Err(BadMessage::TooLong(most));
        }
        Ok((received.len() >= end).then_some(end))
    }
}

fn push_byte(value: u64, byte: u8) -> u64 {
    value << 8 | u64::from(byte)
}

/// Checks what must hold for any bytes, in any pieces: for a fuzzer. The first bytes choose the
/// framing and the pieces.
pub fn fuzz_framing(data: &[u8]) {
    let Some((&[choice, piece, most], stream)) = data.split_first_chunk::<3>() else {
        return;
    };
    let framing = match choice % 5 {
        0 => Framing::Chunk(b"\r\n".to_vec()),
        1 => Framing::Delimiter(b"aab".to_vec()),
        2 => Framing::Line,
        3 => Framing::Length(LengthField {
            offset: usize::from(choice >> 4) % 4,
            bytes: [1, 2, 4, 8][usize::from(choice >> 6)],
            order: if choice & 8 == 0 {
                ByteOrder::Big
            } else {
                ByteOrder::Little
            },
            extra: i64::from(piece >> 4) - 8,
        }),
        _ => Framing::None,
    };
    let most = usize::from(most) + 1;
    let piece = usize::from(piece % 16) + 1;
    let (mut framer, mut received) = (Framer::new(most), BytesMut::new());
    let mut taken = 0;
    for bytes in stream.chunks(piece) {
        received.extend_from_slice(bytes);
        loop {
            match framer.next(&framing, &mut received, true) {
                Ok(Some(message)) => {
                    assert!(message.len() <= most, "a message beyond the limit");
                    taken += message.len();
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(received.len() <= most + 16, "more is kept than a message");
    }
    let rest = framer.rest(&framing, &mut received);
    taken += rest.map_or(0, |rest| rest.len());
    assert!(taken <= stream.len(), "bytes that were not sent");
}
