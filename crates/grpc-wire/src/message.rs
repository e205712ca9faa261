//! Messages in a body: a flag, a length of four bytes, the bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes before each message.
pub const PREFIX: usize = 5;

/// The message is compressed.
const COMPRESSED: u8 = 1;
/// In gRPC-Web: not a message but trailers.
pub(crate) const TRAILERS: u8 = 0x80;

/// Bytes of lines of a worker: in them, it also tells what was thrown, with 64 KB of a trace.
const LONGEST_TRAILERS: usize = 256 << 10;

/// A message as it stands in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawMessage {
    pub compressed: bool,
    /// In a body of gRPC-Web, or of one of our workers: lines of trailers.
    pub trailers: bool,
    pub bytes: Bytes,
}

/// Why a body is none of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// It announces more than may come.
    TooLong { announced: u64, most: usize },
    /// It begins with a flag that nobody knows.
    Flag(u8),
}

/// Takes messages out of the bytes of a body, however they are cut.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    most: usize,
    most_of_trailers: usize,
}

impl Decoder {
    /// Messages may have so many bytes. None are reserved for a message before they have come.
    pub fn new(most: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            most,
            most_of_trailers: most,
        }
    }

    /// The same for those of a worker, which is believed more: its lines of trailers may be longer
    /// than its messages.
    pub fn of_worker(most: usize) -> Self {
        Self {
            most_of_trailers: most.max(LONGEST_TRAILERS),
            ..Self::new(most)
        }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that are held for a message that is not whole.
    pub fn held(&self) -> usize {
        self.buffer.len()
    }

    /// The next message, if all of it is there.
    ///
    /// # Errors
    ///
    /// When what is there can't become one.
    pub fn take(&mut self) -> Result<Option<RawMessage>, FrameError> {
        let Some((&[flag, a, b, c, d], rest)) = self.buffer.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        if flag & !(COMPRESSED | TRAILERS) != 0 {
            return Err(FrameError::Flag(flag));
        }
        let announced = u32::from_be_bytes([a, b, c, d]);
        let most = if flag & TRAILERS == 0 {
            self.most
        } else {
            self.most_of_trailers
        };
        let length = usize::try_from(announced)
            .ok()
            .filter(|length| *length <= most);
        let Some(length) = length else {
            let announced = u64::from(announced);
            return Err(FrameError::TooLong { announced, most });
        };
        if rest.len() < length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        Ok(Some(RawMessage {
            compressed: flag & COMPRESSED != 0,
            trailers: flag & TRAILERS != 0,
            bytes: self.buffer.split_to(length).freeze(),
        }))
    }
}

/// The bytes before a message of this length.
pub fn prefix(compressed: bool, length: usize) -> [u8; PREFIX] {
    flagged(u8::from(compressed), length)
}

fn flagged(flag: u8, length: usize) -> [u8; PREFIX] {
    // No message of a gigabyte is taken anywhere, and four do not fit.
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [flag, a, b, c, d]
}

/// A message with its prefix.
pub fn frame(compressed: bool, message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + message.len());
    out.put_slice(&prefix(compressed, message.len()));
    out.put_slice(message);
    out.freeze()
}

/// Lines of trailers as the last message of gRPC-Web.
pub(crate) fn frame_trailers(lines: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + lines.len());
    out.put_slice(&flagged(TRAILERS, lines.len()));
    out.put_slice(lines);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_gigabyte_in_five_bytes_is_refused_at_once() {
        let mut decoder = Decoder::new(100);
        decoder.add(&[0, 0x40, 0, 0, 0]);
        let refused = decoder.take();
        let announced = 1 << 30;
        let most = 100;
        assert_eq!(refused, Err(FrameError::TooLong { announced, most }));
        let mut decoder = Decoder::new(100);
        decoder.add(&[0, 0, 0, 0, 100]);
        assert_eq!(decoder.take(), Ok(None));
        assert!(decoder.buffer.capacity() < 4096);
        let mut decoder = Decoder::new(100);
        decoder.add(&[2, 0, 0, 0, 1]);
        assert_eq!(decoder.take(), Err(FrameError::Flag(2)));
        let lines = frame_trailers(&[b'x'; 101]);
        let mut decoder = Decoder::of_worker(100);
        decoder.add(&lines);
        assert!(decoder.take().unwrap().unwrap().trailers);
        let mut decoder = Decoder::new(100);
        decoder.add(&lines);
        assert!(decoder.take().is_err());
    }

    fn all(decoder: &mut Decoder) -> Vec<RawMessage> {
        let mut found = Vec::new();
        while let Some(message) = decoder.take().unwrap() {
            found.push(message);
        }
        found
    }

    proptest! {
        #[test]
        fn messages_survive_every_cut(
            messages in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..6),
            cut in 1_usize..20,
        ) {
            let body: Vec<u8> = messages.iter().flat_map(|(flag, it)| frame(*flag, it)).collect();
            let mut decoder = Decoder::new(50);
            let mut found = Vec::new();
            for piece in body.chunks(cut) {
                decoder.add(piece);
                found.extend(all(&mut decoder));
            }
            let found: Vec<_> =
                found.into_iter().map(|it| (it.compressed, it.bytes.to_vec())).collect();
            prop_assert_eq!(found, messages);
            prop_assert_eq!(decoder.held(), 0);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut decoder = Decoder::new(20);
            decoder.add(&bytes);
            while let Ok(Some(message)) = decoder.take() {
                prop_assert!(message.bytes.len() <= 20);
            }
        }
    }
}
