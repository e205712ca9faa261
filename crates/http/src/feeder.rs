//! Brings a request's body to a worker that asks for it: reads from the client only what the worker
//! wants.

use std::task::{Context, Poll};

use bytes::BytesMut;
use pronghorn_pool::BodyFeed;
use pronghorn_serve::Exchange;
use tokio::time::Instant;

use crate::body::{NotTaken, too_large};

pub(crate) struct Feeder {
    feed: BodyFeed,
    /// Bytes that the body may have.
    most: u64,
    /// Bytes that came.
    read: u64,
    /// Came and was not given.
    buffer: BytesMut,
    wanted: Option<usize>,
    /// The client has sent everything.
    complete: bool,
    /// Since when nobody asked the client for anything.
    idle: Instant,
}

impl Feeder {
    pub(crate) fn new(feed: BodyFeed, most: u64) -> Self {
        Self {
            feed,
            most,
            read: 0,
            buffer: BytesMut::new(),
            wanted: None,
            complete: false,
            idle: Instant::now(),
        }
    }

    /// Bytes that came so far.
    pub(crate) fn read(&self) -> u64 {
        self.read
    }

    /// Feeds the worker. Ready when the rest can't be had, or the client has left.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut dyn Exchange,
    ) -> Poll<NotTaken> {
        loop {
            let Some(wanted) = self.wanted else {
                let Poll::Ready(wanted) = self.feed.poll_wanted(cx) else {
                    return exchange.poll_gone(cx).map(|()| NotTaken::Gone);
                };
                exchange.resume_body(self.idle.elapsed());
                self.wanted = Some(wanted);
                continue;
            };
            if self.complete || self.buffer.len() >= wanted {
                self.give(wanted);
                continue;
            }
            match exchange.poll_body(cx) {
                Poll::Ready(Ok(Some(piece))) => {
                    self.read += piece.len() as u64;
                    if self.read > self.most {
                        return Poll::Ready(too_large(self.most));
                    }
                    self.buffer.extend_from_slice(&piece);
                }
                Poll::Ready(Ok(None)) => self.complete = true,
                Poll::Ready(Err(error)) => return Poll::Ready(error.into()),
                // What is there goes on: a client may wait for an answer to it.
                Poll::Pending if !self.buffer.is_empty() => self.give(wanted),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn give(&mut self, wanted: usize) {
        let piece = self.buffer.split_to(wanted.min(self.buffer.len()));
        let last = self.complete && self.buffer.is_empty();
        self.feed.give(piece.freeze(), last);
        self.wanted = None;
        self.idle = Instant::now();
    }
}
