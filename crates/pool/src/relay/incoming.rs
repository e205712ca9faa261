//! Frames out of a worker's bytes. No I/O: the relay reads into the buffer, this takes frames out
//! of it.

use std::ops::RangeInclusive;

use bytes::{Buf, Bytes, BytesMut};
use pronghorn_ring::Loan;
use pronghorn_wire::frame::{FrameError, Header, MAX_PAYLOAD, MIN_HEADER, Stream};
use pronghorn_wire::native::numbers::MAX_CONTEXT;

use crate::content::Content;
use crate::quote::Quote;

/// A frame up to this size is read whole, and written at once: a body of a megabyte with its head.
/// A larger one comes in pieces, so that memory stays bounded and the client gets the first bytes
/// while the last are being written.
pub(crate) const WHOLE: usize = (1 << 20) + (64 << 10);
/// A piece that is read is at most this long: what one read from a socket can give.
pub(crate) const PIECE: usize = 256 << 10;
/// Room for a read when nothing larger is expected. Most replies fit.
pub(crate) const READ: usize = 16 << 10;
/// As much of a frame as says how long it is: with one option, as the frames of workers have.
pub(crate) const START: usize = MIN_HEADER + 4;
/// Of shared memory, a body of this length is sent from where it lies: a copy costs more than what
/// the others need for that.
const LENT: usize = READ;
/// A frame up to this size is copied out, and the buffer used again; a larger one takes the buffer
/// with it.
const COPIED: usize = 4 << 10;
/// A piece of a large body up to this size, too: it would take a buffer of four times that with it
/// for as long as it waits for its client.
const COPIED_PIECE: usize = 64 << 10;
/// How much of what is no frame is kept for people to read.
const QUOTED: usize = 4 << 10;
/// The reason why a record has a length in place of a text, and the remedy.
pub(crate) const LEFT_OUT: &str = "are left out here, because they may be a visitor's: return what is for the \
     client, and write what is for the log to stderr";
/// And of what nobody can read.
const QUOTED_BYTES: usize = 64;

/// The next thing among the worker's bytes.
#[derive(Debug)]
pub enum Item {
    /// A whole frame. Without option, the context is empty and all is body.
    Frame {
        header: Header,
        context: Bytes,
        body: Content,
    },
    /// A frame whose body of `len` bytes follows in pieces.
    Large {
        header: Header,
        context: Bytes,
        len: u64,
    },
    /// A piece of it; `last` after the last one.
    Piece { bytes: Content, last: bool },
}

/// The worker's bytes make no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garbage(pub String);

/// Bytes that were read and not yet taken.
#[derive(Debug)]
pub struct Incoming {
    buffer: BytesMut,
    /// Behind the bytes in the buffer: the rest of a frame, or a piece of a large one.
    lent: Option<Loan>,
    /// A frame that is longer comes in pieces.
    most_whole: usize,
    /// Bytes of a large body that have not come yet.
    large_left: u64,
    /// How many bytes the frame that has begun still needs.
    wanted: usize,
    quote: Quote,
}

/// Bytes that are in shared memory, and are rather sent from there.
#[derive(Debug)]
pub(crate) struct Wish {
    /// How they began when the lengths were read from them: the worker can have changed that since.
    start: Option<[u8; START]>,
    /// The first ones, which are not for that.
    pub(crate) head: usize,
    /// The least and the most of what follows.
    pub(crate) body: RangeInclusive<usize>,
}

impl Default for Incoming {
    fn default() -> Self {
        Self::starting_with(b"", WHOLE)
    }
}

impl Incoming {
    /// A frame of at most `most_whole` bytes is handed over whole.
    pub(crate) fn starting_with(leftover: &[u8], most_whole: usize) -> Self {
        Self {
            buffer: BytesMut::from(leftover),
            lent: None,
            most_whole,
            large_left: 0,
            wanted: 0,
            quote: Quote::All,
        }
    }

    /// Bytes that are no frame are told so.
    pub(crate) fn quoting(self, quote: Quote) -> Self {
        Self { quote, ..self }
    }

    /// Whether what is read next begins a frame.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.buffer.is_empty() && self.large_left == 0
    }

    /// Makes room for all of the frame that begins with these bytes: with room for a part of it,
    /// that part would be copied once more.
    pub fn expect(&mut self, start: [u8; START]) {
        if let Ok(Some(header)) = Header::decode(&start, MAX_PAYLOAD) {
            let whole = header.len() + header.payload as usize;
            self.wanted = if whole > self.most_whole { 0 } else { whole };
        }
    }

    /// What it takes [lent](Self::put_lent) rather than [read](Self::room). `start` is how the next
    /// frame begins, as far as that is there.
    ///
    /// The pieces of a stream are not for that: they come faster than they are sent one by one.
    pub(crate) fn wish(&self, start: Option<[u8; START]>) -> Option<Wish> {
        if !self.buffer.is_empty() {
            return None;
        }
        if self.large_left > 0 {
            let left = usize::try_from(self.large_left).unwrap_or(usize::MAX);
            let body = left.min(LENT)..=left;
            return Some(Wish {
                start: None,
                head: 0,
                body,
            });
        }
        let header = Header::decode(&start?, MAX_PAYLOAD).ok()??;
        let context = Self::context_len(&header).ok()?;
        let (head, body) = (header.len() + context, header.payload as usize - context);
        if body < LENT || header.stream != Stream::END {
            return None;
        }
        let is_large = head + body > self.most_whole;
        let body = if is_large { LENT } else { body }..=body;
        Some(Wish { start, head, body })
    }

    /// Takes what it [wished](Self::wish) for.
    pub(crate) fn put_lent(&mut self, wish: &Wish, mut head: Vec<u8>, body: Loan) {
        for (byte, seen) in head.iter_mut().zip(wish.start.into_iter().flatten()) {
            *byte = seen;
        }
        self.buffer.extend_from_slice(&head);
        self.lent = Some(body);
    }

    /// Where to read to. Never empty.
    pub fn room(&mut self) -> &mut BytesMut {
        let room = if self.large_left > 0 {
            PIECE
        } else {
            self.wanted.max(READ)
        };
        self.buffer.reserve(room);
        &mut self.buffer
    }

    /// The next item, or `None` when more bytes are needed.
    #[expect(
        clippy::should_implement_trait,
        reason = "it goes on after `None`, when there is more to read"
    )]
    pub fn next(&mut self) -> Result<Option<Item>, Garbage> {
        if self.large_left > 0 {
            return Ok(self.piece());
        }
        self.wanted = 0;
        if self.buffer.first().is_some_and(|first| first >> 4 != 1) {
            // No need to wait for the rest of a header: this starts none.
            return Err(self.no_frame());
        }
        let header = match Header::decode(&self.buffer, MAX_PAYLOAD) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.garbage(&error)),
        };
        let context = Self::context_len(&header)?;
        let payload = header.payload as usize;
        let whole = header.len() + payload;
        if whole > self.most_whole && payload > context {
            return Ok(self.large(header, context));
        }
        let (context, body) = if let Some(body) = self.lent.take() {
            let head = header.len() + context;
            let (context, _) = self.take(header.len(), context, head);
            (context, Content::Lent(body))
        } else if self.buffer.len() < whole {
            self.wanted = whole - self.buffer.len();
            return Ok(None);
        } else {
            let (context, body) = self.take(header.len(), context, whole);
            (context, body.into())
        };
        Ok(Some(Item::Frame {
            header,
            context,
            body,
        }))
    }

    fn context_len(header: &Header) -> Result<usize, Garbage> {
        let context = match header.options.as_slice() {
            [] => 0,
            [context] => *context,
            more => return Err(Garbage(format!("a frame with {} options", more.len()))),
        };
        if context > MAX_CONTEXT {
            return Err(Garbage(format!(
                "a head of {context} bytes, at most {MAX_CONTEXT} are taken"
            )));
        }
        if context > header.payload {
            return Err(Garbage(format!(
                "a context of {context} bytes in a frame of {}",
                header.payload
            )));
        }
        Ok(context as usize)
    }

    fn large(&mut self, header: Header, context: usize) -> Option<Item> {
        let head = header.len() + context;
        if self.buffer.len() < head {
            self.wanted = head - self.buffer.len();
            return None;
        }
        let context_bytes = Bytes::copy_from_slice(&self.buffer[header.len()..head]);
        self.buffer.advance(head);
        let len = u64::from(header.payload) - context as u64;
        self.large_left = len;
        Some(Item::Large {
            header,
            context: context_bytes,
            len,
        })
    }

    fn piece(&mut self) -> Option<Item> {
        let bytes = self.next_piece()?;
        self.large_left -= bytes.len() as u64;
        Some(Item::Piece {
            bytes,
            last: self.large_left == 0,
        })
    }

    fn next_piece(&mut self) -> Option<Content> {
        if let Some(piece) = self.lent.take() {
            return Some(Content::Lent(piece));
        }
        let there = usize::try_from(self.large_left)
            .unwrap_or(usize::MAX)
            .min(self.buffer.len());
        if there == 0 {
            return None;
        }
        let bytes = if there <= COPIED_PIECE {
            let bytes = Bytes::copy_from_slice(&self.buffer[..there]);
            self.buffer.advance(there);
            bytes
        } else {
            self.buffer.split_to(there.min(PIECE)).freeze()
        };
        Some(bytes.into())
    }

    /// The `context` bytes from `start` on, and those from there to `end`; everything up to `end`
    /// is gone afterwards.
    fn take(&mut self, start: usize, context: usize, end: usize) -> (Bytes, Bytes) {
        let body = start + context;
        if end <= COPIED {
            // One by one: to divide what is in one piece takes memory as well, and two counts.
            let taken = (
                Bytes::copy_from_slice(&self.buffer[start..body]),
                Bytes::copy_from_slice(&self.buffer[body..end]),
            );
            self.buffer.advance(end);
            return taken;
        }
        let mut taken = self.buffer.split_to(end).freeze();
        taken.advance(start);
        (taken.split_to(context), taken)
    }

    fn garbage(&self, error: &FrameError) -> Garbage {
        match error {
            FrameError::Crc { .. } => self.no_frame(),
            FrameError::Version(_) | FrameError::HeaderLength(_) | FrameError::TooLong { .. } => {
                Garbage(error.to_string())
            }
        }
    }

    /// The bytes that were read and not taken.
    pub fn into_rest(self) -> Vec<u8> {
        self.buffer.into()
    }

    /// With the start of what is there, for people to read, where that may be shown.
    fn no_frame(&self) -> Garbage {
        let start = &self.buffer[..self.buffer.len().min(QUOTED)];
        let text = String::from_utf8_lossy(start);
        let printable = |c: char| !c.is_control() || matches!(c, '\t' | '\r' | '\n');
        let is_text = text.chars().all(printable);
        let shown = match self.quote {
            Quote::All => text.trim_end(),
            Quote::Messages => {
                let mut lines = text.lines();
                // PHP shows a message after an empty line.
                lines.find(|line| !line.is_empty()).unwrap_or_default()
            }
        };
        Garbage(if !self.quote.shows(shown) {
            let what = if is_text { "text" } else { "other bytes" };
            format!(
                "no frame but {what}, {} bytes of it so far, which {LEFT_OUT}",
                self.buffer.len()
            )
        } else if is_text {
            format!("no frame but text: {shown}")
        } else {
            let few = &start[..start.len().min(QUOTED_BYTES)];
            format!("no frame but bytes: {}", few.escape_ascii())
        })
    }

    /// Whether what is next, and was refused, is text. Otherwise it is a frame that makes no sense.
    pub fn holds_text(&self) -> bool {
        !matches!(Header::decode(&self.buffer, MAX_PAYLOAD), Ok(Some(_)))
    }

    /// Drops bytes until a frame could start, and gives them back as text; at least one byte, if
    /// text it is. For a worker whose output and frames share a pipe: what it prints between frames
    /// must not end it. With how many bytes they were, of which a long text has the first ones.
    pub fn skip_text(&mut self) -> (String, usize) {
        let could_start = |at: usize| match Header::decode(&self.buffer[at..], MAX_PAYLOAD) {
            Ok(Some(_)) => true,
            // Too short to tell: a frame starts with its version and a count of words.
            Ok(None) => self.buffer[at] >> 4 == 1 && self.buffer.len() - at < MIN_HEADER,
            Err(_) => false,
        };
        let end = (0..self.buffer.len())
            .find(|at| could_start(*at))
            .unwrap_or(self.buffer.len());
        let text = self.buffer.split_to(end);
        let start = &text[..text.len().min(QUOTED)];
        (String::from_utf8_lossy(start).into_owned(), text.len())
    }

    /// How text is told.
    pub(crate) fn quote(&self) -> Quote {
        self.quote
    }
}
