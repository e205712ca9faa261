//! The times of a call, and how far it has come by them.

use std::time::Duration;

use tokio::time::Instant;

use crate::incident::Progress;

/// When each step of a call happened.
#[derive(Debug, Clone, Copy)]
pub struct Stamps {
    /// The client's request was accepted.
    pub accepted: Instant,
    /// It entered the pool.
    pub queued: Instant,
    /// A worker was chosen.
    pub dispatched: Option<Instant>,
    /// The worker has it: over a relay, the frame was written.
    pub claimed: Option<Instant>,
    /// The first byte of the reply arrived.
    pub first_byte: Option<Instant>,
    /// The reply is complete, or it is clear that there will be none. Unknown of one that follows
    /// in pieces.
    pub complete: Option<Instant>,
}

impl Stamps {
    /// How long a worker has had the call.
    pub fn ran(&self) -> Duration {
        self.dispatched
            .map(|start| start.elapsed())
            .unwrap_or_default()
    }

    /// How far the call has come by now.
    pub fn progress(&self) -> Progress {
        let now = Instant::now();
        let taken = self.claimed.or(self.dispatched);
        let worker_has = taken.map(|taken| self.first_byte.unwrap_or(now) - taken);
        Progress {
            read: self.queued - self.accepted,
            queue: taken.unwrap_or(now) - self.queued,
            worker: worker_has.unwrap_or_default(),
            write: self.first_byte.map(|begun| now - begun),
            cpu_before: None,
            spent: None,
        }
    }

    pub(crate) fn new(accepted: Instant, queued: Instant) -> Self {
        Self {
            accepted,
            queued,
            dispatched: None,
            claimed: None,
            first_byte: None,
            complete: None,
        }
    }
}
