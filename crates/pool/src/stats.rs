//! What a pool counts. Written on the data path, read by anyone, never locked.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::call::Refused;

/// Counters since the start, and the queue's length now.
#[derive(Debug, Default)]
pub struct Stats {
    waiting: AtomicUsize,
    dispatched: AtomicU64,
    retried: AtomicU64,
    client_gone: AtomicU64,
    worker_faults: AtomicU64,
    overdue: AtomicU64,
    replaced_text: AtomicU64,
    queue_full: AtomicU64,
    waited_too_long: AtomicU64,
    no_worker: AtomicU64,
}

impl Stats {
    /// Calls that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub(crate) fn set_waiting(&self, waiting: usize) {
        self.waiting.store(waiting, Relaxed);
    }

    pub(crate) fn dispatched(&self) {
        self.dispatched.fetch_add(1, Relaxed);
    }

    pub(crate) fn retried(&self) {
        self.retried.fetch_add(1, Relaxed);
    }

    pub(crate) fn client_gone(&self) {
        self.client_gone.fetch_add(1, Relaxed);
    }

    pub(crate) fn worker_fault(&self) {
        self.worker_faults.fetch_add(1, Relaxed);
    }

    pub(crate) fn overdue(&self) {
        self.overdue.fetch_add(1, Relaxed);
    }

    /// Text that the json codec couldn't carry. True the first time.
    pub fn replaced_text(&self) -> bool {
        self.replaced_text.fetch_add(1, Relaxed) == 0
    }

    pub(crate) fn refused(&self, reason: Refused) {
        match reason {
            Refused::QueueFull => &self.queue_full,
            Refused::WaitedTooLong => &self.waited_too_long,
            Refused::NoWorker | Refused::Stopping => &self.no_worker,
        }
        .fetch_add(1, Relaxed);
    }
}
