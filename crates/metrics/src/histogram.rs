//! How durations are distributed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pronghorn_base::{lock, micros};

use crate::shard;

/// Upper bounds for what a request or a call takes, in microseconds: from what a kept worker needs
/// for a small reply (100 µs) to the time limit of a call (5 min). About three per decade, so that
/// a quantile is off by half its value at most.
pub const LATENCY: &[u64] = &[
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

/// A duration in microseconds has none to all of these bits.
const BITS: usize = u64::BITS as usize + 1;

/// In a part, the place of the first count.
const FIRST: usize = 1;

/// Counts durations by the first bound that they do not exceed. Clones count together.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// Microseconds, ascending.
    bounds: &'static [u64],
    /// For each number of bits the first bucket that a duration of so many bits can fall into: what
    /// is left to search is a step or two.
    first: [u8; BITS],
    /// For each part (see [`shard`]) the sum in microseconds, which wraps after 584,000 years, then
    /// a count for each bound, and one for what exceeds them all.
    words: Box<[AtomicU64]>,
    /// Of a part.
    len: usize,
    /// Selects the part of a thread.
    mask: usize,
    /// The last one of each bucket; made with the first.
    exemplars: OnceLock<Mutex<Box<[Option<Exemplar>]>>>,
}

/// One of the durations in a bucket, and the trace that tells what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    pub trace_id: u128,
    pub duration: Duration,
    /// In microseconds since the Unix epoch.
    pub at_us: u64,
}

impl Histogram {
    /// By upper bounds in microseconds, ascending.
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.is_sorted(), "bounds ascend");
        let parts = shard::parts();
        // Wherever the first word lies, the parts have no cache line in common.
        let len = (bounds.len() + 2).next_multiple_of(shard::CACHE_LINE) + shard::CACHE_LINE;
        Self(Arc::new(Buckets {
            bounds,
            first: std::array::from_fn(|bits| {
                let least = bits.checked_sub(1).map_or(0, |zeros| 1 << zeros);
                // From an earlier bucket the search takes longer, and finds the same.
                u8::try_from(bounds.partition_point(|bound| *bound < least)).unwrap_or(u8::MAX)
            }),
            words: (0..parts * len).map(|_| AtomicU64::new(0)).collect(),
            len,
            mask: parts - 1,
            exemplars: OnceLock::new(),
        }))
    }

    pub fn observe(&self, duration: Duration) {
        self.observe_micros(micros(duration));
    }

    /// The same, for those who have the number already: several histograms take one duration.
    pub fn observe_micros(&self, micros: u64) {
        let buckets = &*self.0;
        let sum = (shard::own() & buckets.mask) * buckets.len;
        let count = sum + FIRST + buckets.find(micros);
        // Neither is ever missing; so the compiler knows it, too.
        if let (Some(sum), Some(count)) = (buckets.words.get(sum), buckets.words.get(count)) {
            sum.fetch_add(micros, Relaxed);
            count.fetch_add(1, Relaxed);
        }
    }

    /// One that was observed, for whoever asks what such durations are. Takes a lock: for the few
    /// whose traces are kept.
    pub fn exemplify(&self, exemplar: Exemplar) {
        let buckets = &*self.0;
        let all = buckets
            .exemplars
            .get_or_init(|| Mutex::new(vec![None; buckets.bounds.len() + 1].into()));
        let bucket = buckets.find(micros(exemplar.duration));
        if let Some(kept) = lock(all).get_mut(bucket) {
            *kept = Some(exemplar);
        }
    }

    /// The last one of each bucket, or none at all.
    pub(crate) fn exemplars(&self) -> Vec<Option<Exemplar>> {
        let all = self.0.exemplars.get();
        all.map_or_else(Vec::new, |all| lock(all).to_vec())
    }

    pub(crate) fn bounds(&self) -> &'static [u64] {
        self.0.bounds
    }

    /// How many fell into each bucket, not cumulated.
    pub(crate) fn counts(&self) -> Vec<u64> {
        let buckets = 0..=self.0.bounds.len();
        buckets.map(|bucket| self.0.total(FIRST + bucket)).collect()
    }

    pub(crate) fn sum(&self) -> Duration {
        Duration::from_micros(self.0.total(0))
    }
}

impl Buckets {
    /// The bucket that a duration falls into.
    fn find(&self, micros: u64) -> usize {
        let bits = u64::BITS - micros.leading_zeros();
        let mut bucket = usize::from(self.first[bits as usize]);
        while self.bounds.get(bucket).is_some_and(|bound| *bound < micros) {
            bucket += 1;
        }
        bucket
    }

    /// Of one word of all parts.
    fn total(&self, word: usize) -> u64 {
        let of_parts = self.words.iter().skip(word).step_by(self.len);
        let values = of_parts.map(|word| word.load(Relaxed));
        values.fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duration_counts_below_the_first_bound_that_it_does_not_exceed() {
        let histogram = Histogram::new(&[100, 200]);
        for micros in [0, 100, 101, 200, 201, u64::MAX] {
            histogram.observe(Duration::from_micros(micros));
        }
        assert_eq!(histogram.counts(), [2, 2, 2]);
    }

    #[test]
    fn a_bucket_has_the_last_exemplar() {
        let histogram = Histogram::new(&[100, 200]);
        assert_eq!(histogram.exemplars(), []);
        let of = |trace_id, micros| Exemplar {
            trace_id,
            duration: Duration::from_micros(micros),
            at_us: 7,
        };
        for exemplar in [of(1, 150), of(2, 900), of(3, 200)] {
            histogram.exemplify(exemplar);
        }
        let expected = [None, Some(of(3, 200)), Some(of(2, 900))];
        assert_eq!(histogram.exemplars(), expected);
    }

    #[test]
    fn threads_count_together() {
        let histogram = Histogram::new(&[100, 200]);
        std::thread::scope(|scope| {
            for _ in 0..2 * shard::parts() {
                scope.spawn(|| {
                    (0..1000).for_each(|_| histogram.observe(Duration::from_micros(150)));
                });
            }
        });
        let expected = 2000 * shard::parts() as u64;
        assert_eq!(histogram.counts(), [0, expected, 0]);
        assert_eq!(histogram.sum(), Duration::from_micros(150 * expected));
    }

    proptest! {
        #[test]
        fn each_duration_is_counted_once_and_summed(micros in prop::collection::vec(0_u64..1_000_000_000, 0..100)) {
            let histogram = Histogram::new(LATENCY);
            for &each in &micros {
                histogram.observe(Duration::from_micros(each));
            }
            let counts = histogram.counts();
            prop_assert_eq!(counts.iter().sum::<u64>(), micros.len() as u64);
            prop_assert_eq!(histogram.sum(), Duration::from_micros(micros.iter().sum()));
            for (bound, below) in LATENCY.iter().zip(1..) {
                let expected = micros.iter().filter(|each| *each <= bound).count() as u64;
                prop_assert_eq!(counts[..below].iter().sum::<u64>(), expected);
            }
        }
    }
}
