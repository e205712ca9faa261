//! Quantiles of what was observed lately, in little memory.
//!
//! Observations are counted in buckets that each reach 2 % further than the one before, so that a
//! quantile is at most 1 % of itself away from the value that a sorted list would give (Masson, Rim
//! and Lee: `DDSketch`, 2019). Time is cut in slices: the oldest is emptied when it is over.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// What counts is between four and five slices old: about ten minutes, as with the libraries of
/// Prometheus.
const SLICES: usize = 5;
const SLICE: Duration = Duration::from_secs(120);
/// How far a quantile may be from the value, as a part of it.
const ACCURACY: f64 = 0.01;
/// The upper bound of a bucket by its lower one.
const GROWTH: f64 = (1.0 + ACCURACY) / (1.0 - ACCURACY);
/// A value that is nearer to zero counts as zero: a nanosecond, where seconds are observed.
const LEAST: f64 = 1e-9;
/// Of a slice: with so many the largest value is 20,000 times the least. Beyond that, the lowest
/// two become one.
const MOST_BUCKETS: usize = 500;

/// Observations of the last minutes.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    slices: [Slice; SLICES],
    /// The one that is filled, and since when.
    current: usize,
    since: Option<Instant>,
}

/// How often each bucket was met, in the order of values.
#[derive(Debug, Default)]
struct Slice(BTreeMap<i32, u64>);

impl Recent {
    /// A value that is no number, or infinite, is in no order with others and does not count.
    pub(crate) fn add(&mut self, value: f64, now: Instant) {
        self.go_on(now);
        if value.is_finite() {
            self.slices[self.current].add(bucket_of(value));
        }
    }

    /// The values of these quantiles, NaN when nothing was observed.
    pub(crate) fn quantiles(&mut self, wanted: &[f64], now: Instant) -> Vec<(f64, f64)> {
        self.go_on(now);
        let mut all = BTreeMap::new();
        for (bucket, count) in self.slices.iter().flat_map(|slice| &slice.0) {
            *all.entry(*bucket).or_insert(0) += count;
        }
        let wanted = wanted.iter();
        wanted.map(|part| (*part, value_at(&all, *part))).collect()
    }

    /// Empties slices whose time is over.
    fn go_on(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let over = now.saturating_duration_since(since).as_secs() / SLICE.as_secs();
        let over = usize::try_from(over).unwrap_or(usize::MAX);
        if over == 0 {
            return;
        }
        for _ in 0..over.min(SLICES) {
            self.current = (self.current + 1) % SLICES;
            self.slices[self.current].0.clear();
        }
        // Slices begin at whole multiples, and after a long silence with what ends it.
        let step = u32::try_from(over)
            .ok()
            .and_then(|over| SLICE.checked_mul(over));
        self.since = Some(step.map_or(now, |step| since + step));
    }
}

impl Slice {
    fn add(&mut self, bucket: i32) {
        *self.0.entry(bucket).or_insert(0) += 1;
        if self.0.len() > MOST_BUCKETS
            && let Some((_, lowest)) = self.0.pop_first()
            && let Some(mut next) = self.0.first_entry()
        {
            *next.get_mut() += lowest;
        }
    }
}

/// 0 for zero; its distance from there grows with the value, on both sides.
fn bucket_of(value: f64) -> i32 {
    let size = value.abs();
    if size < LEAST {
        return 0;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the logarithm of the largest number gives 37,000"
    )]
    let number = ((size.ln() - LEAST.ln()) / GROWTH.ln()).ceil() as i32 + 1;
    if value < 0.0 { -number } else { number }
}

/// In the middle of a bucket, so that both of its ends are equally far away.
fn value_of(bucket: i32) -> f64 {
    if bucket == 0 {
        return 0.0;
    }
    let upper = f64::from(bucket.abs() - 1) * GROWTH.ln() + LEAST.ln();
    let middle = (2.0 / (1.0 + GROWTH)).ln();
    let size = (upper + middle).exp().min(f64::MAX);
    if bucket < 0 { -size } else { size }
}

fn value_at(buckets: &BTreeMap<i32, u64>, part: f64) -> f64 {
    let rank = rank(part, buckets.values().sum());
    let mut below = 0;
    let found = buckets.iter().find(|(_, count)| {
        below += **count;
        below >= rank
    });
    found.map_or(f64::NAN, |(bucket, _)| value_of(*bucket))
}

/// Which observation of so many, the least first, is at this part of them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a part of a number of observations, which may be rounded"
)]
fn rank(part: f64, count: u64) -> u64 {
    ((part * count as f64).ceil() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARTS: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];

    fn near(value: f64, expected: f64) -> bool {
        (value - expected).abs() <= expected.abs() * (ACCURACY + 1e-9) + LEAST
    }

    #[test]
    fn nothing_has_no_quantiles() {
        let mut recent = Recent::default();
        let now = Instant::now();
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            recent.add(value, now);
        }
        assert!(recent.quantiles(&[0.5], now)[0].1.is_nan());
        recent.add(f64::MAX, now);
        recent.add(-f64::MAX, now);
        let found = recent.quantiles(&[0.0, 1.0], now);
        assert!(
            near(found[0].1, -f64::MAX) && near(found[1].1, f64::MAX),
            "{found:?}"
        );
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        let before_the_end = Duration::from_secs(599);
        recent.add(1.0, start);
        let mut at = |after: Duration| recent.quantiles(&[0.5], start + after)[0].1;
        assert!(near(at(4 * SLICE), 1.0));
        assert!(near(at(before_the_end), 1.0));
        assert!(at(5 * SLICE).is_nan());
        for after in 0..100 {
            recent.add(f64::from(after), start + after * SLICE);
        }
        let found = recent.quantiles(&[0.0, 1.0], start + 99 * SLICE);
        assert!(
            near(found[0].1, 95.0) && near(found[1].1, 99.0),
            "{found:?}"
        );
        // An hour, or a hundred years, without any.
        recent.add(7.0, start + Duration::from_secs(3_000_000_000));
        let found = recent.quantiles(&[0.0], start + Duration::from_secs(3_000_000_000));
        assert!(near(found[0].1, 7.0), "{found:?}");
    }

    #[test]
    fn the_lowest_buckets_become_one_where_there_are_too_many() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        for power in 0..3000 {
            recent.add(1.02_f64.powi(power - 1000), now);
        }
        assert_eq!(recent.slices[0].0.len(), MOST_BUCKETS);
        let largest = 1.02_f64.powi(1999);
        assert!(near(recent.quantiles(&[1.0], now)[0].1, largest));
    }

    proptest! {
        #[test]
        fn quantiles_are_near_those_of_a_sorted_list(
            mut values in prop::collection::vec(prop_oneof![-1e3_f64..1e3, 0.9_f64..1.1, Just(0.0)], 1..300)
        ) {
            let (mut recent, now) = (Recent::default(), Instant::now());
            for value in &values {
                recent.add(*value, now);
            }
            values.sort_by(f64::total_cmp);
            for (part, value) in recent.quantiles(&PARTS, now) {
                let rank = rank(part, values.len() as u64);
                let expected = values[usize::try_from(rank).expect("a small one") - 1];
                prop_assert!(near(value, expected), "{part}: {value}, expected {expected}");
            }
        }
    }
}
