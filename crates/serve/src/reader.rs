//! A body as bytes, whatever it is made of: for the connections and codings that need to see them.

use std::collections::VecDeque;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use pronghorn_base::LogThrottle;
use pronghorn_h1 as h1;
use pronghorn_pool::{Content, Piece, Pieces, SpoolFile};
use pronghorn_process::file::{Patience, read_at};
use pronghorn_wire::Fields;
use tokio::task::JoinHandle;

use crate::message::{Body, Part};
use crate::open_file::OpenFile;
use crate::source::{BodySource, Read};

/// How much of a file is read at a time.
pub const FILE_PIECE: usize = 256 << 10;

/// Reads a body piece by piece.
#[derive(Debug)]
pub struct Reader {
    pieces: Option<Pieces>,
    parts: VecDeque<Part>,
    file: Option<FileReader>,
    made: Option<Box<dyn BodySource>>,
    /// A piece that was taken before its turn, and is no bytes.
    next: Option<Piece>,
    /// Bytes of a file that are read at a time.
    most: usize,
}

impl Reader {
    /// A body of any kind.
    pub fn new(body: Body) -> Self {
        let mut made = None;
        let (parts, pieces) = match body {
            Body::Made(body) => {
                made = Some(body);
                (Vec::new(), None)
            }
            Body::Empty => (Vec::new(), None),
            Body::Whole(bytes) => (vec![Part::Bytes(bytes)], None),
            Body::Lent(loan) => (vec![Part::Bytes(loan.into())], None),
            Body::File(file) => (vec![Part::File(file)], None),
            Body::Parts(parts) => (parts, None),
            Body::Pieces { pieces, .. } => (Vec::new(), Some(pieces)),
        };
        Self {
            pieces,
            parts: parts.into(),
            file: None,
            made,
            next: None,
            most: FILE_PIECE,
        }
    }

    /// Whether what comes next is read from a file, so that it need not be in memory before it can
    /// be sent.
    pub(crate) fn is_at_file(&self) -> bool {
        self.file.is_some() || matches!(self.parts.front(), Some(Part::File(_)))
    }

    /// Whether what comes is made while it is sent: it need not begin before there is room for it.
    pub(crate) fn is_made(&self) -> bool {
        self.made.is_some() && self.file.is_none()
    }

    /// Bytes of memory that it takes while it is read, beside the pieces.
    pub(crate) fn cost(&self) -> usize {
        self.made.as_ref().map_or(0, |made| made.cost())
    }

    /// Whether nobody is at work for the client while the next piece is awaited.
    pub(crate) fn is_news(&self) -> bool {
        self.made.as_ref().is_some_and(|made| made.is_news())
    }

    /// Whether the bytes that were read last are from a file.
    pub(crate) fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// Reads so many of the last bytes once more. They were from a file.
    pub(crate) fn read_again(&mut self, bytes: usize) {
        if let Some(file) = &mut self.file {
            file.at -= bytes as u64;
            file.left += bytes as u64;
        }
    }

    /// A worker puts no more bytes behind those that were read last before they are read on. Says
    /// how many are there.
    pub(crate) fn shut(&mut self) -> usize {
        self.pieces.as_mut().map_or(0, Pieces::shut)
    }

    /// Takes those that are there.
    pub(crate) fn take_waiting(&mut self) -> Vec<Bytes> {
        let mut waiting = Vec::new();
        while self.next.is_none() {
            match self.pieces.as_mut().and_then(Pieces::try_next) {
                Some(Piece::Bytes(bytes)) => waiting.push(bytes.into()),
                Some(other) => self.next = Some(other),
                None => break,
            }
        }
        waiting
    }

    /// The piece that was read last comes from a file once more, before all else. Not for a piece
    /// that came from a file: its rest would be lost.
    pub(crate) fn go_on_with(&mut self, file: SpoolFile) {
        debug_assert!(self.file.is_none(), "its rest would be lost");
        self.file = Some(FileReader::of_spool(file));
    }

    /// Reads no more than this of a file at a time from now on.
    pub(crate) fn read_at_most(&mut self, most: usize) {
        self.most = most.clamp(1, FILE_PIECE);
    }

    /// Fields that a body which is made has behind its end.
    pub(crate) fn trailers(&mut self) -> Option<Fields> {
        let trailers = self.made.as_mut().map(|made| made.trailers());
        trailers.filter(|trailers| !trailers.is_empty())
    }

    /// Reads a body on of which the client has all that was announced: a worker whose body nobody
    /// reads would be told that its client has left. Ends with the first byte too many.
    pub(crate) async fn pass_over(mut self, framing: &mut h1::Response) {
        while !framing.has_fault() {
            match poll_fn(|cx| self.poll_next(cx)).await {
                Read::Bytes(bytes) => _ = framing.piece(bytes.len()),
                Read::Broken | Read::End => break,
            }
        }
    }

    /// The next piece. Pending when there is none yet: what was had before should be on its way
    /// then.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        self.poll_content(cx).map(Read::converted)
    }

    /// The same for who sends it from where it is.
    pub(crate) fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Read<Content>> {
        loop {
            if let Some(file) = &mut self.file {
                match ready!(file.poll_next(cx, self.most)) {
                    Ok(Some(bytes)) => return Poll::Ready(Read::Bytes(bytes.into())),
                    Ok(None) => self.file = None,
                    Err(error) => {
                        static FAILED: LogThrottle = LogThrottle::new();
                        if let Some(replies) = FAILED.should_log() {
                            tracing::warn!(
                                target: "http", replies, "a file can't be read to its end: {error}"
                            );
                        }
                        return Poll::Ready(Read::Broken);
                    }
                }
            }
            if let Some(made) = &mut self.made {
                return made.poll_next(cx).map(Read::converted);
            }
            match self.parts.pop_front() {
                Some(Part::Bytes(bytes)) if bytes.is_empty() => continue,
                Some(Part::Bytes(bytes)) => return Poll::Ready(Read::Bytes(bytes.into())),
                Some(Part::File(file)) => {
                    self.file = Some(FileReader::new(file));
                    continue;
                }
                None => {}
            }
            let Some(pieces) = &mut self.pieces else {
                return Poll::Ready(Read::End);
            };
            let next = match self.next.take() {
                Some(next) => Some(next),
                None => ready!(pieces.poll_next(cx)),
            };
            match next {
                Some(Piece::Bytes(content)) => return Poll::Ready(Read::Bytes(content)),
                Some(Piece::Spooled(file)) => self.file = Some(FileReader::of_spool(file)),
                Some(Piece::End) => {
                    self.pieces = None;
                    return Poll::Ready(Read::End);
                }
                None => return Poll::Ready(Read::Broken),
            }
        }
    }
}

/// A file that is being read, off the I/O thread unless what is wanted is in memory anyway.
#[derive(Debug)]
pub(crate) struct FileReader {
    file: OpenedFile,
    at: u64,
    left: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

/// The owner that keeps a file open.
#[derive(Debug, Clone)]
enum OpenedFile {
    File(Arc<File>),
    Spool(Arc<SpoolFile>),
}

impl AsFd for OpenedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::File(file) => file.as_fd(),
            Self::Spool(file) => file.file().as_fd(),
        }
    }
}

impl FileReader {
    pub(crate) fn new(OpenFile { file, start, len }: OpenFile) -> Self {
        Self {
            file: OpenedFile::File(file),
            at: start,
            left: len,
            reading: None,
        }
    }

    fn of_spool(file: SpoolFile) -> Self {
        Self {
            at: 0,
            left: file.len(),
            file: OpenedFile::Spool(Arc::new(file)),
            reading: None,
        }
    }

    /// The next bytes, at most so many; `None` at the end of the stretch.
    ///
    /// # Errors
    ///
    /// When the disk fails, or the file has become shorter.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<Option<Bytes>>> {
        if self.left == 0 {
            return Poll::Ready(Ok(None));
        }
        let (at, wanted) = (self.at, piece(self.left).min(most));
        let bytes = if let Some(reading) = &mut self.reading {
            let read = ready!(Pin::new(reading).poll(cx));
            self.reading = None;
            read.map_err(io::Error::other)??
        } else if let Some(bytes) = read_now(&self.file, at, wanted) {
            bytes
        } else {
            let file = self.file.clone();
            let reading =
                tokio::task::spawn_blocking(move || read(&file, at, wanted, Patience::Waits));
            self.reading = Some(reading);
            return self.poll_next(cx, most);
        };
        if bytes.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.at += bytes.len() as u64;
        self.left -= bytes.len() as u64;
        Poll::Ready(Ok(Some(bytes)))
    }
}

fn piece(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(FILE_PIECE)
}

fn read(file: &impl AsFd, at: u64, wanted: usize, patience: Patience) -> io::Result<Bytes> {
    let mut piece = vec![0; wanted];
    let read = read_at(file, &mut piece, at, patience)?;
    piece.truncate(read);
    Ok(piece.into())
}

/// Bytes that can be read without waiting for a disk.
pub(crate) fn read_now(file: &impl AsFd, at: u64, wanted: usize) -> Option<Bytes> {
    read(file, at, wanted, Patience::None).ok()
}

/// Counts the first bytes from `at` of a file, up to `len`, that are in memory, as far as the ends
/// of its pieces tell: sending them would not wait for a disk.
pub(crate) fn in_memory(file: &File, at: u64, len: u64) -> u64 {
    let there = |at| read_at(file, &mut [0], at, Patience::None).is_ok();
    if len == 0 || !there(at) {
        return 0;
    }
    let mut found = 0;
    while found < len {
        let end = len.min(found + FILE_PIECE as u64);
        if !there(at + end - 1) {
            break;
        }
        found = end;
    }
    found
}
