//! What a pool counts. Written on the data path, read by anyone, never locked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

/// The queue as it is now, and a counter since the start.
#[derive(Debug)]
pub struct Stats {
    waiting: AtomicUsize,
    /// Since when the oldest call waits: microseconds after `start`, and one; 0 when none does.
    oldest: AtomicU64,
    start: Instant,
    replaced_text: AtomicU64,
}

impl Stats {
    pub(crate) fn new() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            oldest: AtomicU64::new(0),
            start: Instant::now(),
            replaced_text: AtomicU64::new(0),
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

    /// Text that the json codec couldn't carry. True the first time.
    pub fn replaced_text(&self) -> bool {
        self.replaced_text.fetch_add(1, Relaxed) == 0
    }
}
