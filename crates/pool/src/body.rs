//! A request's body on its way to a worker that asks for it piece by piece.
//!
//! The worker's side says how much it takes, the client's side reads until it has something.
//! Nothing is read that nobody asked for, so at most one piece is in memory.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use pronghorn_base::lock;

/// Connects the two sides of a body.
pub fn streamed() -> (BodyFeed, BodyStream) {
    let shared = Arc::new(Mutex::new(State::default()));
    (BodyFeed(shared.clone()), BodyStream(shared))
}

/// The client's side. Dropped before the last piece, it tells the worker's side that no more comes.
#[derive(Debug)]
pub struct BodyFeed(Arc<Mutex<State>>);

/// The worker's side.
#[derive(Debug, Clone)]
pub struct BodyStream(Arc<Mutex<State>>);

/// A piece, and whether it is the last one.
pub(crate) type StreamPiece = (Bytes, bool);

#[derive(Debug, Default)]
struct State {
    /// What the worker takes, until it gets something.
    wanted: Option<usize>,
    piece: Option<StreamPiece>,
    complete: bool,
    closed: bool,
    worker: Option<Waker>,
    client: Option<Waker>,
}

impl BodyFeed {
    /// How much the worker takes. To be asked again after [`give`](Self::give).
    pub fn poll_wanted(&self, cx: &Context<'_>) -> Poll<usize> {
        let mut state = lock(&self.0);
        if let Some(wanted) = state.wanted {
            return Poll::Ready(wanted);
        }
        state.client = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Answers the worker's wish; `last` when the body ends with this.
    pub fn give(&self, bytes: Bytes, last: bool) {
        let mut state = lock(&self.0);
        state.wanted = None;
        state.piece = Some((bytes, last));
        state.complete = last;
        wake(state.worker.take());
    }
}

impl Drop for BodyFeed {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.closed = true;
        wake(state.worker.take());
    }
}

impl BodyStream {
    /// Asks for a piece of at most this length.
    pub(crate) fn want(&self, most: usize) {
        let mut state = lock(&self.0);
        state.wanted = Some(most);
        wake(state.client.take());
    }

    /// What was asked for; `None` when no more comes, and the body is not complete.
    pub(crate) fn poll_piece(&self, cx: &Context<'_>) -> Poll<Option<StreamPiece>> {
        let mut state = lock(&self.0);
        if let Some(piece) = state.piece.take() {
            return Poll::Ready(Some(piece));
        }
        if state.complete {
            // It asks once more for what has ended.
            return Poll::Ready(Some((Bytes::new(), true)));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.worker = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
