//! How long a slot stays empty after its worker ended.

use std::sync::Mutex;
use std::time::Duration;

use pronghorn_base::{Backoff, LogThrottle, lock};
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(100);
/// Long enough that a pool which can't boot costs next to nothing, short enough that it is back
/// soon after its cause is gone.
const LONGEST: Duration = Duration::from_secs(10);

/// The waits between tries to start workers.
pub(super) const STARTS: Backoff = Backoff::new(FIRST, LONGEST);

/// Workers of a pool that died of their calls soon after their start are replaced at once, so many
/// in a row: forty jobs that kill a worker, with three attempts each, hold nobody up.
const AT_ONCE: u32 = 100;
/// After these one in such a time. A start of PHP costs a processor about as much, so a storm of
/// deaths takes one processor and leaves the others to the rest of the machine.
const THEN_EACH: Duration = Duration::from_millis(50);

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
