//! Waits before something that failed is tried again.

use std::time::Duration;

/// Waits that double from failure to failure, up to a longest one.
///
/// A wait is between half of its interval and all of it, at random: whoever failed together does
/// not come back together.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    at_once: u32,
    failures: u32,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            at_once: 0,
            failures: 0,
        }
    }

    /// The first tries after this many failures come without a wait.
    #[must_use]
    pub const fn at_once(self, tries: u32) -> Self {
        Self {
            at_once: tries,
            ..self
        }
    }

    /// Counts a failure: how long to wait before the next try.
    pub fn next_wait(&mut self) -> Duration {
        let interval = self.interval(self.failures);
        self.failures = self.failures.saturating_add(1);
        interval.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// The interval after so many earlier failures, without chance: the longest that
    /// [`next_wait`](Self::next_wait) waits then.
    pub fn interval(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(self.at_once) else {
            return Duration::ZERO;
        };
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(doublings));
        doubled.min(self.longest)
    }

    /// Forgets all failures, after a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// Notes a success that lasted this long. One shorter than the longest wait is as none: whoever
    /// fails soon after each success would be tried at the rate of the first wait for ever.
    pub fn succeeded_for(&mut self, time: Duration) {
        if time >= self.longest {
            self.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(10);

    #[test]
    fn waits_grow_to_a_limit() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let mut longest = Duration::ZERO;
        for attempt in 0..50 {
            let wait = backoff.next_wait();
            let whole = (FIRST * 2_u32.pow(attempt.min(10))).min(LONGEST);
            assert!(wait >= whole / 2 && wait <= whole, "{attempt}: {wait:?}");
            longest = longest.max(wait);
        }
        assert!(longest > LONGEST / 2);
        assert_eq!(backoff.interval(u32::MAX), LONGEST);
    }

    #[test]
    fn first_tries_may_come_at_once() {
        let mut backoff = Backoff::new(FIRST, LONGEST).at_once(2);
        assert_eq!(
            [backoff.next_wait(), backoff.next_wait()],
            [Duration::ZERO; 2]
        );
        let wait = backoff.next_wait();
        assert!(wait >= FIRST / 2 && wait <= FIRST, "{wait:?}");
        assert_eq!(backoff.interval(3), 2 * FIRST);
    }

    #[test]
    fn waits_begin_anew_after_a_success_that_held() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        for _ in 0..20 {
            _ = backoff.next_wait();
        }
        backoff.succeeded_for(Duration::from_millis(5));
        assert!(backoff.next_wait() >= LONGEST / 2);
        backoff.succeeded_for(LONGEST);
        assert!(backoff.next_wait() <= FIRST);
        _ = backoff.next_wait();
        backoff.reset();
        assert!(backoff.next_wait() <= FIRST);
    }
}
