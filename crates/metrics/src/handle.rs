//! Numbers that are shared by those who change and those who read them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::shard;

/// Counts events since the start. Clones count together.
#[derive(Clone, Debug)]
pub struct Counter(Arc<[AtomicU64]>);

impl Default for Counter {
    /// A word for each part, see `shard`.
    fn default() -> Self {
        let words = shard::parts() * shard::CACHE_LINE;
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    pub fn add(&self, events: u64) {
        let own = shard::own() * shard::CACHE_LINE;
        self.0[own & (self.0.len() - 1)].fetch_add(events, Relaxed);
    }

    pub fn get(&self) -> u64 {
        let words = self.0.iter().step_by(shard::CACHE_LINE);
        words
            .map(|word| word.load(Relaxed))
            .fold(0, u64::wrapping_add)
    }
}

/// A number that rises and falls. Clones change the same one.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// Subtracts when `by` is negative.
    pub fn add(&self, by: i64) {
        self.0.fetch_add(by, Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}
