//! A request on its way to a FastCGI peer: what was not written yet.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use pronghorn_cgi::fastcgi::{After, LARGEST, OpenParams, RequestId, begin, stdin};
use tokio::io::AsyncWrite;
use tokio::task::JoinHandle;

use pronghorn_pool::SpoolFile;
use pronghorn_pool::{Body, Encoding, Payload, Unencodable};

/// A body up to this size goes out in the same buffer as what comes before it; copying it is
/// cheaper than a second vector.
const JOINED_BODY: usize = 16 << 10;
/// A buffer that grew beyond this is given back after a call.
const KEPT_BUFFER: usize = 64 << 10;

/// What a connection still has to be told. Its buffer is used again and again.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Records, or the header of the one whose content is `piece`.
    records: Vec<u8>,
    written: usize,
    piece: Bytes,
    rest: Rest,
    /// Of the request at hand, or of the last one.
    id: Option<RequestId>,
    /// The beginning of the next request is out already.
    begun: bool,
    after: After,
}

/// What of a body is not under way yet.
#[derive(Debug, Default)]
enum Rest {
    /// All of it is, with its end.
    #[default]
    Nothing,
    /// Its end.
    End,
    Bytes(Bytes),
    File {
        file: Arc<SpoolFile>,
        at: u64,
        reading: Option<JoinHandle<io::Result<Bytes>>>,
    },
}

/// Why a request can't be written to its end.
#[derive(Debug)]
pub(super) enum NotWritten {
    /// The peer takes no more.
    HungUp,
    /// The body can't be read back.
    Unreadable(io::Error),
}

/// A number for a request, which nobody knows before.
pub(super) fn number_after(before: Option<RequestId>) -> RequestId {
    RequestId::after(before, fastrand::u16(..RequestId::CHOICE))
}

impl Outgoing {
    /// On a connection over which the [beginning](begin) of the first request went already.
    pub(super) fn begun(id: RequestId) -> Self {
        Self {
            id: Some(id),
            begun: true,
            after: After::Keep,
            ..Self::default()
        }
    }

    /// Puts a call in the place of the one before, of which nothing is left. Its number on the
    /// connection comes back.
    pub(super) fn set(&mut self, payload: &dyn Payload) -> Result<RequestId, Unencodable> {
        debug_assert!(self.is_done(), "a request was cut off by the next");
        self.records.clear();
        self.written = 0;
        let id = match self.id {
            Some(id) if self.begun => id,
            before => number_after(before),
        };
        self.id = Some(id);
        if !self.begun {
            begin(&mut self.records, id, self.after);
        }
        let params = OpenParams::begin(&mut self.records);
        let body = payload
            .encode(Encoding::Variables, &mut self.records)
            .inspect_err(|_| self.records.clear())?;
        params.finish(&mut self.records, id);
        self.begun = false;
        match body {
            Body::Empty => self.records.extend_from_slice(&stdin(id, 0)),
            Body::Bytes(bytes) if bytes.len() <= JOINED_BODY => {
                if !bytes.is_empty() {
                    self.records.extend_from_slice(&stdin(id, bytes.len()));
                    self.records.extend_from_slice(&bytes);
                }
                self.records.extend_from_slice(&stdin(id, 0));
            }
            Body::Bytes(bytes) => self.rest = Rest::Bytes(bytes),
            Body::File(file) => {
                self.rest = Rest::File {
                    file,
                    at: 0,
                    reading: None,
                }
            }
            Body::Stream(_) => {
                self.records.clear();
                let why =
                    "its body comes while the script runs, and FastCGI tells its length first";
                return Err(Unencodable::Pool(why.to_owned()));
            }
        }
        Ok(id)
    }

    pub(super) fn is_done(&self) -> bool {
        self.written == self.records.len()
            && self.piece.is_empty()
            && matches!(self.rest, Rest::Nothing)
    }

    /// Writes as much as the peer takes. Ready when nothing is left.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        mut peer: Pin<&mut impl AsyncWrite>,
    ) -> Poll<Result<(), NotWritten>> {
        loop {
            while self.written < self.records.len() || !self.piece.is_empty() {
                let records = &self.records[self.written..];
                let written = if self.piece.is_empty() {
                    peer.as_mut().poll_write(cx, records)
                } else {
                    let parts = [IoSlice::new(records), IoSlice::new(&self.piece)];
                    peer.as_mut().poll_write_vectored(cx, &parts)
                };
                // Why it takes no more shows when it is read from.
                let Ok(written) = ready!(written) else {
                    return Poll::Ready(Err(NotWritten::HungUp));
                };
                let of_records = written.min(self.records.len() - self.written);
                self.written += of_records;
                self.piece.advance(written - of_records);
            }
            match ready!(self.rest.poll_next(cx))? {
                Some(piece) => {
                    let id = self.id.expect("a body belongs to a request that was set");
                    self.records.clear();
                    self.records.extend_from_slice(&stdin(id, piece.len()));
                    self.written = 0;
                    self.piece = piece;
                }
                None => {
                    if self.records.capacity() > KEPT_BUFFER {
                        self.records = Vec::new();
                        self.written = 0;
                    }
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl Rest {
    /// What goes into the next record; an empty one ends the body, and `None` is behind that.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, NotWritten>> {
        let piece = match self {
            Self::Nothing => return Poll::Ready(Ok(None)),
            Self::End => {
                *self = Self::Nothing;
                Bytes::new()
            }
            Self::Bytes(bytes) => {
                let piece = bytes.split_to(bytes.len().min(LARGEST));
                if bytes.is_empty() {
                    *self = Self::End;
                }
                piece
            }
            Self::File { file, at, reading } => {
                let read = reading.get_or_insert_with(|| read_piece(file.clone(), *at));
                let read = ready!(Pin::new(read).poll(cx));
                let piece = read.map_err(io::Error::other).flatten();
                let piece = piece.map_err(NotWritten::Unreadable)?;
                *reading = None;
                *at += piece.len() as u64;
                if *at >= file.len() {
                    *self = Self::End;
                }
                piece
            }
        };
        Poll::Ready(Ok(Some(piece)))
    }
}

/// A piece of a spooled body, read off the I/O thread.
fn read_piece(file: Arc<SpoolFile>, at: u64) -> JoinHandle<io::Result<Bytes>> {
    tokio::task::spawn_blocking(move || {
        use std::os::unix::fs::FileExt;
        let left = usize::try_from(file.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let mut piece = vec![0; left.min(LARGEST)];
        file.file().read_exact_at(&mut piece, at)?;
        Ok(piece.into())
    })
}
