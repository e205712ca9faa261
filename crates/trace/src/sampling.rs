//! Which traces are kept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::id::TraceId;

/// The rule by which traces are kept. A trace is judged twice: as it begins, which tells the
/// services that are asked next, and as it ends, when it is known what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Whether what the caller has decided counts.
    pub parent: bool,
    /// The share of the traces that no caller has decided on, from 0 to 1.
    pub ratio: f64,
    /// Whether those with an error are kept in any case.
    pub errors: bool,
    /// Traces that took longer are kept in any case.
    pub slow: Option<Duration>,
}

/// The same, as it is looked at by all threads while a reload changes it. The parts may be those of
/// two settings for a moment.
#[derive(Debug)]
pub(crate) struct Live {
    parent: AtomicBool,
    /// A trace whose lower half is below this is kept.
    threshold: AtomicU64,
    errors: AtomicBool,
    /// Nanoseconds.
    slow: AtomicU64,
}

/// As in other services of the same trace: of the lower half of its number, all bits but the
/// highest decide.
const RANGE: u64 = 1 << 63;

impl Live {
    pub(crate) fn new(sampling: &Sampling) -> Self {
        let live = Self {
            parent: AtomicBool::default(),
            threshold: AtomicU64::default(),
            errors: AtomicBool::default(),
            slow: AtomicU64::default(),
        };
        live.set(sampling);
        live
    }

    pub(crate) fn set(&self, sampling: &Sampling) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a ratio from 0 to 1 of a range that is far below u64::MAX"
        )]
        let threshold = (sampling.ratio.clamp(0.0, 1.0) * RANGE as f64) as u64;
        self.parent.store(sampling.parent, Relaxed);
        self.threshold.store(threshold, Relaxed);
        self.errors.store(sampling.errors, Relaxed);
        let slow = sampling.slow.map_or(u64::MAX, nanos);
        self.slow.store(slow, Relaxed);
    }

    /// As the trace begins; `parent` is what its caller has decided.
    pub(crate) fn is_sampled(&self, id: TraceId, parent: Option<bool>) -> bool {
        match parent {
            Some(decided) if self.parent.load(Relaxed) => decided,
            _ => id.low() & (RANGE - 1) < self.threshold.load(Relaxed),
        }
    }

    /// As it ends.
    pub(crate) fn is_kept(&self, sampled: bool, failed: bool, took: Duration) -> bool {
        sampled || failed && self.errors.load(Relaxed) || nanos(took) > self.slow.load(Relaxed)
    }
}

/// In nanoseconds, as spans have it.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLING: Sampling = Sampling {
        parent: true,
        ratio: 0.0,
        errors: true,
        slow: Some(Duration::from_secs(1)),
    };

    fn sampled(sampling: Sampling, parent: Option<bool>) -> usize {
        let live = Live::new(&sampling);
        let ids = std::iter::repeat_with(TraceId::random).take(10_000);
        ids.filter(|id| live.is_sampled(*id, parent)).count()
    }

    #[test]
    fn a_ratio_holds_for_those_that_nobody_has_decided_on() {
        for (ratio, expected) in [(0.0, 0..=0), (1.0, 10_000..=10_000), (0.1, 800..=1200)] {
            let sampling = Sampling { ratio, ..SAMPLING };
            assert!(expected.contains(&sampled(sampling, None)), "{ratio}");
            assert_eq!(sampled(sampling, Some(true)), 10_000);
            assert_eq!(sampled(sampling, Some(false)), 0);
            let alone = Sampling {
                parent: false,
                ..sampling
            };
            assert!(expected.contains(&sampled(alone, Some(true))), "{ratio}");
        }
    }

    #[test]
    fn errors_and_slow_ones_are_kept_in_any_case() {
        let live = Live::new(&SAMPLING);
        let (second, longer) = (Duration::from_secs(1), Duration::from_millis(1001));
        assert!(!live.is_kept(false, false, second));
        assert!(live.is_kept(false, true, second));
        assert!(live.is_kept(false, false, longer));
        assert!(live.is_kept(true, false, Duration::ZERO));
        live.set(&Sampling {
            errors: false,
            slow: None,
            ..SAMPLING
        });
        assert!(!live.is_kept(false, true, Duration::MAX));
    }
}
