//! A request's body that is read beside its response.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;

use crate::body_error::BodyError;

/// The rest of a request's body, taken from its [`Exchange`](crate::Exchange).
///
/// Nothing limits how long its client pauses: whoever reads it has a deadline for the whole.
/// Dropped before its end, it tells the client that nobody reads on.
#[derive(Debug)]
pub struct DetachedBody {
    body: RecvStream,
    /// Bytes that the reader has and for which the client may not send more yet.
    held: usize,
}

impl DetachedBody {
    pub(crate) fn new(body: RecvStream, held: usize) -> Self {
        Self { body, held }
    }

    /// The next piece; `None` at the end. What it gave before is taken as read: the client may send
    /// as much again.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        let held = std::mem::take(&mut self.held);
        if held > 0 && self.body.flow_control().release_capacity(held).is_err() {
            return Poll::Ready(Err(BodyError::Gone));
        }
        loop {
            match self.body.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) if bytes.is_empty() => {}
                Poll::Ready(Some(Ok(bytes))) => {
                    self.held = bytes.len();
                    return Poll::Ready(Ok(Some(bytes)));
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(BodyError::Gone)),
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
