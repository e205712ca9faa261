//! A request's body that is read beside its response.

use std::fmt::Debug;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;

use crate::body_error::BodyError;

/// The rest of a request's body, taken from its [`Exchange`](crate::Exchange).
///
/// Nothing limits how long its client pauses: whoever reads it has a deadline for the whole.
/// Dropped before its end, it tells the client that nobody reads on.
#[derive(Debug)]
pub struct DetachedBody {
    body: Source,
    /// Bytes that have come and that the reader has not asked for yet.
    ahead: BytesMut,
    /// The end of the body, if that has come, too.
    ended: Option<Result<(), BodyError>>,
    /// Bytes that the reader has and for which the client may not send more yet.
    held: usize,
}

/// The body of a request of another protocol than HTTP/2.
pub(crate) trait DetachedSource: Debug + Send + 'static {
    /// The next piece; none at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>>;
}

#[derive(Debug)]
enum Source {
    Http2(RecvStream),
    Other(Box<dyn DetachedSource>),
}

impl DetachedBody {
    pub(crate) fn new(body: RecvStream, held: usize) -> Self {
        Self::of(Source::Http2(body), held)
    }

    /// Bytes that were read of it count as taken: the client sends on when more is read.
    pub(crate) fn of_source(body: impl DetachedSource) -> Self {
        Self::of(Source::Other(Box::new(body)), 0)
    }

    fn of(body: Source, held: usize) -> Self {
        Self {
            body,
            ahead: BytesMut::new(),
            ended: None,
            held,
        }
    }

    /// The next piece; `None` at the end. What it gave before is taken as read: the client may send
    /// as much again.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        let held = std::mem::take(&mut self.held);
        if let Source::Http2(body) = &mut self.body
            && held > 0
            && body.flow_control().release_capacity(held).is_err()
        {
            return Poll::Ready(Err(BodyError::Gone));
        }
        let piece = if self.ahead.is_empty() {
            ready!(self.poll_piece(cx))?
        } else {
            Some(std::mem::take(&mut self.ahead).freeze())
        };
        self.held = piece.as_ref().map_or(0, Bytes::len);
        Poll::Ready(Ok(piece))
    }

    /// Puts together what has come while the reader is busy elsewhere. `h2` keeps each frame by
    /// itself, and ends a connection that makes it keep too many small ones. The client may not
    /// send more for it before it is read. Its bytes are returned.
    pub fn gather(&mut self, cx: &mut Context<'_>) -> usize {
        while let Poll::Ready(Ok(Some(piece))) = self.poll_piece(cx) {
            self.ahead.extend_from_slice(&piece);
        }
        self.ahead.len()
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            if let Some(ended) = self.ended {
                return Poll::Ready(ended.map(|()| None));
            }
            let read = match &mut self.body {
                Source::Http2(body) => {
                    let read = ready!(body.poll_data(cx)).transpose();
                    read.map_err(|_| BodyError::Gone)
                }
                Source::Other(body) => ready!(body.poll_next(cx)),
            };
            match read {
                Ok(Some(bytes)) if bytes.is_empty() => {}
                Ok(Some(bytes)) => return Poll::Ready(Ok(Some(bytes))),
                Err(error) => self.ended = Some(Err(error)),
                Ok(None) => self.ended = Some(Ok(())),
            }
        }
    }
}
