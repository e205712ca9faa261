//! How long it is waited before a broker is tried again.

use std::time::Duration;

/// A restart of a broker takes seconds; a missed packet less.
const FIRST: Duration = Duration::from_millis(100);
/// One that is back is noticed by then.
const LONGEST: Duration = Duration::from_secs(10);

/// Doubles with each attempt that failed. A part of it is random, so that many servers don't come
/// back at the same moment.
#[derive(Debug)]
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Backoff {
    /// From half of the interval to all of it.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.0.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.0 = (self.0 * 2).min(LONGEST);
        wait
    }

    /// A connection was of use for so long. One that ends soon is as none.
    pub(super) fn served(&mut self, time: Duration) {
        if time >= LONGEST {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_begin_anew_after_a_connection_that_held() {
        let mut backoff = Backoff::default();
        let mut longest = Duration::ZERO;
        for attempt in 0..20 {
            let wait = backoff.next();
            let whole = (FIRST * 2u32.pow(attempt.min(10))).min(LONGEST);
            assert!(wait >= whole / 2 && wait <= whole, "{attempt}: {wait:?}");
            longest = longest.max(wait);
        }
        assert!(longest > LONGEST / 2);
        backoff.served(Duration::from_millis(5));
        assert!(backoff.next() >= LONGEST / 2);
        backoff.served(LONGEST);
        assert!(backoff.next() <= FIRST);
    }
}
