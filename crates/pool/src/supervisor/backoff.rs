//! How long a slot stays empty after its worker ended.

use std::sync::Mutex;
use std::time::Duration;

use pronghorn_base::{LogThrottle, lock};
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(100);
/// Long enough that a pool which can't boot costs next to nothing, short enough that it is back
/// soon after its cause is gone.
const LONGEST: Duration = Duration::from_secs(10);
/// Up to a quarter is added at random, so that slots which failed together don't try together for
/// ever.
const JITTER: f64 = 0.25;

/// Workers of a pool that died of their calls soon after their start are replaced at once, so many
/// in a row: forty jobs that kill a worker, with three attempts each, hold nobody up.
const AT_ONCE: u32 = 100;
/// After these one in such a time. A start of PHP costs a processor about as much, so a storm of
/// deaths takes one processor and leaves the others to the rest of the machine.
const THEN_EACH: Duration = Duration::from_millis(50);

/// Doubles from try to try. The first try after a worker that had come up is immediate.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        let pause = match self.tries {
            0 => Duration::ZERO,
            tries => FIRST.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST),
        };
        self.tries = self.tries.saturating_add(1);
        pause.mul_f64(fastrand::f64().mul_add(JITTER, 1.0))
    }
}

/// Bounds how often a pool replaces workers that died of their calls soon after their start.
#[derive(Debug)]
pub(super) struct Replacements {
    /// Up to when those so far are accounted for, at one in [`THEN_EACH`].
    accounted: Mutex<Instant>,
    held_back: LogThrottle,
}

impl Replacements {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            accounted: Mutex::new(now),
            held_back: LogThrottle::new(),
        }
    }

    /// How long the next one waits.
    pub(super) fn next(&self, pool: &str, now: Instant) -> Duration {
        let ahead = {
            let mut accounted = lock(&self.accounted);
            *accounted = (*accounted).max(now) + THEN_EACH;
            *accounted - now
        };
        let pause = ahead.saturating_sub(THEN_EACH * AT_ONCE);
        if !pause.is_zero()
            && let Some(times) = self.held_back.should_log()
        {
            let most = 1000 / THEN_EACH.as_millis();
            tracing::error!(target: "server", pool, times, "workers die of their calls faster than they can be replaced: {most} are started in a second; the records of their deaths name the calls");
        }
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_at_once_doubles_and_has_an_end() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(), Duration::ZERO);
        let mut before = Duration::ZERO;
        for _ in 0..7 {
            let pause = backoff.next();
            assert!(pause > before, "{pause:?} after {before:?}");
            before = pause;
        }
        for _ in 0..100 {
            let pause = backoff.next();
            assert!(
                pause >= LONGEST && pause <= LONGEST.mul_f64(1.0 + JITTER),
                "{pause:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_deaths_is_replaced_at_once_and_then_evenly() {
        let replacements = Replacements::new(Instant::now());
        let next = || replacements.next("p", Instant::now());
        for _ in 0..AT_ONCE {
            assert_eq!(next(), Duration::ZERO);
        }
        assert_eq!([next(), next()], [THEN_EACH, 2 * THEN_EACH]);
        tokio::time::advance(THEN_EACH * (AT_ONCE + 2)).await;
        for _ in 0..AT_ONCE {
            assert_eq!(next(), Duration::ZERO);
        }
        assert_eq!(next(), THEN_EACH);
    }
}
