//! How durations are distributed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pronghorn_base::micros;

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

/// Counts durations by the first bound that they do not exceed. Clones count together.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// Microseconds, ascending.
    bounds: &'static [u64],
    /// One more than bounds: the last is for what exceeds them all.
    counts: Box<[AtomicU64]>,
    /// Microseconds. Wraps after 584,000 years.
    sum: AtomicU64,
}

impl Histogram {
    /// By upper bounds in microseconds, ascending.
    pub(crate) fn new(bounds: &'static [u64]) -> Self {
        debug_assert!(bounds.is_sorted(), "bounds ascend");
        Self(Arc::new(Buckets {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }))
    }

    pub fn observe(&self, duration: Duration) {
        let micros = micros(duration);
        let Buckets {
            bounds,
            counts,
            sum,
        } = &*self.0;
        let bucket = bounds.partition_point(|bound| *bound < micros);
        if let Some(count) = counts.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        sum.fetch_add(micros, Relaxed);
    }

    pub(crate) fn bounds(&self) -> &'static [u64] {
        self.0.bounds
    }

    /// How many fell into each bucket, not cumulated.
    pub(crate) fn counts(&self) -> Vec<u64> {
        self.0
            .counts
            .iter()
            .map(|count| count.load(Relaxed))
            .collect()
    }

    pub(crate) fn sum(&self) -> Duration {
        Duration::from_micros(self.0.sum.load(Relaxed))
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
