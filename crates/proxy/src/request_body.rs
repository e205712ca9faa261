//! The body of a request on its way to a server, one piece at a time.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pronghorn_serve::{BodyError, DetachedBody, Exchange};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::PollSender;

use crate::error::NotForwarded;

/// The body did not come to its end: the server must not take it for whole.
#[derive(Debug)]
pub(crate) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client's body ended too early")
    }
}

impl std::error::Error for Cut {}

impl From<Infallible> for Cut {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

enum Piece {
    Bytes(Bytes),
    End,
}

/// The end of the body from which the connection reads.
pub(crate) struct RequestBody {
    /// None is the end.
    pieces: Option<mpsc::Receiver<Piece>>,
    len: Option<u64>,
}

/// The end into which the client's pieces go.
pub(crate) struct Feed {
    sender: PollSender<Piece>,
    /// Bytes that the body may have.
    most: u64,
    /// Bytes that came.
    pub(crate) read: Arc<AtomicU64>,
    /// Since when the server has not asked for more.
    pub(crate) blocked: Option<Instant>,
}

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fed {
    Whole,
    /// The server wants no more of it.
    Refused,
}

impl RequestBody {
    pub(crate) const fn empty() -> Self {
        Self {
            pieces: None,
            len: Some(0),
        }
    }

    /// A body of this length, if it is known, and of at most so many bytes.
    /// `read` counts them.
    pub(crate) fn fed(len: Option<u64>, most: u64, read: Arc<AtomicU64>) -> (Self, Feed) {
        let (sender, pieces) = mpsc::channel(1);
        let body = Self {
            pieces: Some(pieces),
            len,
        };
        let feed = Feed {
            sender: PollSender::new(sender),
            most,
            read,
            blocked: None,
        };
        (body, feed)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let Some(pieces) = &mut self.pieces else {
            return Poll::Ready(None);
        };
        match ready!(pieces.poll_recv(cx)) {
            Some(Piece::Bytes(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Piece::End) => {
                self.pieces = None;
                Poll::Ready(None)
            }
            None => Poll::Ready(Some(Err(Cut))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.len
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Feed {
    /// Brings pieces of a client to the server, as it asks for them.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut dyn Exchange,
    ) -> Poll<Result<Fed, NotForwarded>> {
        loop {
            if let Some(since) = ready!(self.poll_room(cx)) {
                exchange.resume_body(since.elapsed());
            }
            if self.sender.is_closed() {
                return Poll::Ready(Ok(Fed::Refused));
            }
            let piece = ready!(exchange.poll_body(cx));
            if let Some(fed) = self.give(piece)? {
                return Poll::Ready(Ok(fed));
            }
        }
    }

    /// The same beside the response.
    pub(crate) fn poll_detached(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut DetachedBody,
    ) -> Poll<Result<Fed, NotForwarded>> {
        loop {
            ready!(self.poll_room(cx));
            if self.sender.is_closed() {
                return Poll::Ready(Ok(Fed::Refused));
            }
            let piece = ready!(body.poll_next(cx));
            if let Some(fed) = self.give(piece)? {
                return Poll::Ready(Ok(fed));
            }
        }
    }

    /// Ready when the server asks for a piece: since when it had not, if it had not. Also ready
    /// when it wants no more.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        if self.sender.poll_reserve(cx).is_pending() {
            self.blocked.get_or_insert_with(Instant::now);
            return Poll::Pending;
        }
        Poll::Ready(self.blocked.take())
    }

    fn give(
        &mut self,
        piece: Result<Option<Bytes>, BodyError>,
    ) -> Result<Option<Fed>, NotForwarded> {
        let piece = match piece.map_err(NotForwarded::Body)? {
            Some(bytes) => Piece::Bytes(bytes),
            None => Piece::End,
        };
        let ended = match &piece {
            Piece::End => Some(Fed::Whole),
            Piece::Bytes(bytes) => {
                let len = bytes.len() as u64;
                let read = self.read.fetch_add(len, Relaxed).saturating_add(len);
                if read > self.most {
                    return Err(NotForwarded::TooLarge(self.most));
                }
                None
            }
        };
        match self.sender.send_item(piece) {
            Ok(()) => Ok(ended),
            Err(_) => Ok(Some(Fed::Refused)),
        }
    }
}
