//! What a pool counts. Written on the data path, read by anyone, never locked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The queue's length now, and a counter since the start.
#[derive(Debug, Default)]
pub struct Stats {
    waiting: AtomicUsize,
    replaced_text: AtomicU64,
}

impl Stats {
    /// Calls that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub(crate) fn set_waiting(&self, waiting: usize) {
        self.waiting.store(waiting, Relaxed);
    }

    /// Text that the json codec couldn't carry. True the first time.
    pub fn replaced_text(&self) -> bool {
        self.replaced_text.fetch_add(1, Relaxed) == 0
    }
}
