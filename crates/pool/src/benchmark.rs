//! What the benchmarks see of the queue. No part of the crate's interface.

use std::time::Duration;

use tokio::time::Instant;

use crate::queue::{Queue, Ticket};

/// Calls that wait, by numbers instead of calls.
#[derive(Debug)]
pub struct WaitingNumbers {
    queue: Queue<u64>,
    since: Instant,
    next: u64,
}

impl WaitingNumbers {
    /// A queue in which this many wait already.
    pub fn new(waiting: u64) -> Self {
        let mut numbers = Self {
            queue: Queue::new(usize::MAX, LONGEST),
            since: Instant::now(),
            next: 0,
        };
        for _ in 0..waiting {
            numbers.push();
        }
        numbers
    }

    /// One more waits.
    pub fn push(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        // It is as long as memory: nothing is refused.
        let ticket = Ticket {
            priority: PRIORITY,
            seq: number,
            since: self.since,
            until: self.since + LONGEST,
            has_left: false,
            affinity: None,
        };
        _ = self.queue.push(ticket, number);
        number
    }

    /// The next one gets a worker.
    pub fn pop(&mut self) -> Option<u64> {
        self.queue.pop(self.since).map(|(_, number)| number)
    }

    /// Its client leaves.
    pub fn forget(&mut self, number: u64) -> Option<u64> {
        self.queue.forget(PRIORITY, number)
    }

    /// Looks for those whose time is over; there are none.
    pub fn expire(&mut self, now: Instant) -> usize {
        self.queue.expire(now).len()
    }
}

const PRIORITY: u8 = 10;
const LONGEST: Duration = Duration::from_secs(3600);
