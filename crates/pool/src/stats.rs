//! What a pool counts. Written on the data path and by the supervisor, read by anyone, never locked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use crate::call::Refused;

/// The queue as it is now, and counters since the start.
#[derive(Debug)]
pub struct Stats {
    waiting: AtomicUsize,
    /// Since when the oldest call waits: microseconds after `start`, and one; 0 when none does.
    oldest: AtomicU64,
    start: Instant,
    replaced_text: AtomicU64,
    counters: [AtomicU64; Counter::ALL.len()],
}

/// What is counted; none of it happens on the way of a call that goes well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Calls refused: the queue was full.
    QueueFull,
    /// Calls refused: no worker became free in time.
    WaitedTooLong,
    /// Calls refused: no worker could be started.
    NoWorker,
    /// Calls refused: the pool was stopping.
    Stopping,
    /// Calls refused: workers had died of the same request.
    Poisoned,
    /// Calls dropped from the queue because their client had left.
    ClientGone,
    /// Calls that passed their deadline.
    Overdue,
    /// Calls given to a second worker because the first one died.
    Retried,
    /// Workers that ended without being asked to.
    Crashed,
    /// Workers replaced after `max_jobs` calls.
    WornByCalls,
    /// Workers replaced for their age, `ttl`.
    WornByAge,
    /// Workers replaced because they had nothing to do, `idle_ttl`.
    WornByIdling,
    /// Workers replaced for their memory, `max_worker_memory`.
    WornByMemory,
    /// Workers that did not come up.
    BootFailed,
    /// Calls that waited while a worker was free, which is a bug; the watchdog brought them together.
    Healed,
}

impl Counter {
    pub const ALL: [Self; 15] = [
        Self::QueueFull,
        Self::WaitedTooLong,
        Self::NoWorker,
        Self::Stopping,
        Self::Poisoned,
        Self::ClientGone,
        Self::Overdue,
        Self::Retried,
        Self::Crashed,
        Self::WornByCalls,
        Self::WornByAge,
        Self::WornByIdling,
        Self::WornByMemory,
        Self::BootFailed,
        Self::Healed,
    ];

    /// As metrics and `status` call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::WaitedTooLong => "waited_too_long",
            Self::NoWorker => "no_worker",
            Self::Stopping => "stopping",
            Self::Poisoned => "poisoned",
            Self::ClientGone => "client_gone",
            Self::Overdue => "overdue",
            Self::Retried => "retried",
            Self::Crashed => "crashed",
            Self::WornByCalls => "worn_by_calls",
            Self::WornByAge => "worn_by_age",
            Self::WornByIdling => "worn_by_idling",
            Self::WornByMemory => "worn_by_memory",
            Self::BootFailed => "boot_failed",
            Self::Healed => "healed",
        }
    }
}

impl From<Refused> for Counter {
    fn from(reason: Refused) -> Self {
        match reason {
            Refused::QueueFull => Self::QueueFull,
            Refused::WaitedTooLong => Self::WaitedTooLong,
            Refused::NoWorker => Self::NoWorker,
            Refused::Stopping => Self::Stopping,
        }
    }
}

impl Stats {
    pub(crate) fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            oldest: AtomicU64::new(0),
            start: Instant::now(),
            replaced_text: AtomicU64::new(0),
            counters: Default::default(),
        }
    }

    /// Calls that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// How long the oldest of them has waited by now.
    pub fn oldest_wait(&self) -> Option<Duration> {
        let since = self.oldest.load(Relaxed).checked_sub(1)?;
        let since = self.start + Duration::from_micros(since);
        Some(since.elapsed())
    }

    pub(crate) fn set_waiting(&self, waiting: usize, oldest: Option<Instant>) {
        self.waiting.store(waiting, Relaxed);
        let oldest = oldest.map_or(0, |oldest| {
            let since = oldest.saturating_duration_since(self.start);
            u64::try_from(since.as_micros())
                .unwrap_or(u64::MAX)
                .saturating_add(1)
        });
        self.oldest.store(oldest, Relaxed);
    }

    /// How often it happened.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Relaxed)
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.counters[counter as usize].fetch_add(1, Relaxed);
    }

    /// Text that the json codec couldn't carry. True the first time.
    pub fn replaced_text(&self) -> bool {
        self.replaced_text.fetch_add(1, Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_counter_has_its_own_place() {
        for (place, counter) in Counter::ALL.into_iter().enumerate() {
            assert_eq!(counter as usize, place, "{}", counter.name());
        }
    }
}
