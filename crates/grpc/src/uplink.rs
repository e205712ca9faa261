//! Messages of a client that streams, on their way to a worker that asks for them.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use pronghorn_grpc_wire::{Detached, PREFIX, Status, prefix};
use pronghorn_pool::{BodyFeed, BodyStream, streamed};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Reads from the client what the worker wants, until this is dropped.
#[derive(Debug)]
pub(crate) struct Uplink {
    /// Ends with this.
    _tasks: JoinSet<()>,
    failed: oneshot::Receiver<Status>,
    is_over: bool,
}

impl Uplink {
    /// Begins, and gives the worker's end.
    pub(crate) fn new(messages: Detached) -> (Self, BodyStream) {
        let (feed, stream) = streamed();
        let (failing, failed) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if let Err(status) = bring(messages, &feed).await {
                // Nobody waits for it any more: the call has ended.
                _ = failing.send(status);
            }
        });
        let uplink = Self {
            _tasks: tasks,
            failed,
            is_over: false,
        };
        (uplink, stream)
    }

    /// Ready when the client's messages are none, or it has left before the last one.
    pub(crate) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if self.is_over {
            return Poll::Pending;
        }
        match std::task::ready!(Pin::new(&mut self.failed).poll(cx)) {
            Ok(status) => Poll::Ready(status),
            Err(_) => {
                self.is_over = true; // the worker has all of them, or wants no more
                Poll::Pending
            }
        }
    }
}

/// Brings each message with its prefix. What is there goes on: a client may wait for an answer to
/// it.
async fn bring(mut messages: Detached, feed: &BodyFeed) -> Result<(), Status> {
    let mut buffer = BytesMut::new();
    let mut is_over = false;
    loop {
        let wanted = poll_fn(|cx| {
            messages.gather(cx);
            feed.poll_wanted(cx)
        });
        let wanted = wanted.await.max(1);
        if buffer.is_empty() && !is_over {
            match messages.next().await? {
                Some(message) => {
                    buffer.reserve(PREFIX + message.len());
                    buffer.extend_from_slice(&prefix(false, message.len()));
                    buffer.extend_from_slice(&message);
                }
                None => is_over = true,
            }
        }
        let piece = buffer.copy_to_bytes(wanted.min(buffer.len()));
        // Whether more follows is not known before the client says so.
        feed.give(piece, is_over);
        if is_over {
            return Ok(());
        }
    }
}
