//! A limiter of requests: a rate for each client, and a burst.
//!
//! GCRA: of each client one moment is kept, that at which it would be idle had its requests come
//! evenly. It moves on with each request, and a request is refused when it is too far ahead. The
//! table has a fixed size: where it is full, the client that is nearest to being idle is forgotten,
//! which gives it at most its burst once more.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Mutex;

use pronghorn_base::lock;

use crate::settings::Rate;

/// Clients that are known at a time: [`SETS`] × [`WAYS`], 1 MB for each limit.
const SETS: usize = 4096;
const WAYS: usize = 16;

/// A rate and a burst for each client. It knows no clock: moments are nanoseconds from some start.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// Between two requests that come evenly.
    interval: u64,
    /// A client may be so far ahead of that.
    tolerance: u64,
    keys: RandomState,
    sets: Box<[Mutex<[Slot; WAYS]>]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// A keyed hash of the client. Two clients share one, and a limit, once in 10^19.
    tag: u64,
    idle_at: u64,
}

impl Limiter {
    pub(crate) fn new(rate: Rate, burst: u32) -> Self {
        let per = u64::try_from(rate.per.as_nanos()).unwrap_or(u64::MAX);
        let interval = per / u64::from(rate.count);
        Self {
            interval,
            tolerance: interval.saturating_mul(u64::from(burst.saturating_sub(1))),
            keys: RandomState::new(),
            sets: (0..SETS).map(|_| Mutex::default()).collect(),
        }
    }

    /// The number by which a client is known.
    pub(crate) fn tag(&self, client: impl Hash) -> u64 {
        self.keys.hash_one(client).max(1) // 0 is an empty slot
    }

    /// Whether a request would be let through now. Err is how long to wait for that.
    pub(crate) fn look(&self, tag: u64, now: u64) -> Result<(), u64> {
        let at = usize::try_from(tag % SETS as u64).unwrap_or_default();
        let known = lock(&self.sets[at])
            .iter()
            .find(|slot| slot.tag == tag)
            .copied();
        let ahead = known.map_or(0, |slot| slot.idle_at.saturating_sub(now));
        match ahead.checked_sub(self.tolerance) {
            None | Some(0) => Ok(()),
            Some(wait) => Err(wait),
        }
    }

    /// A request now. Err is how long to wait for one that would be let through.
    pub(crate) fn take(&self, tag: u64, now: u64) -> Result<(), u64> {
        let at = usize::try_from(tag % SETS as u64).unwrap_or_default();
        let mut set = lock(&self.sets[at]);
        let known = set.iter().position(|slot| slot.tag == tag);
        let at = known.unwrap_or_else(|| {
            let idle_first = set.iter().enumerate().min_by_key(|(_, slot)| slot.idle_at);
            idle_first.map_or(0, |(at, _)| at)
        });
        let idle_at = if known.is_some() {
            set[at].idle_at.max(now)
        } else {
            now
        };
        let ahead = idle_at - now;
        if ahead > self.tolerance {
            return Err(ahead - self.tolerance);
        }
        set[at] = Slot {
            tag,
            idle_at: idle_at.saturating_add(self.interval),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limiter(count: u32, seconds: u64, burst: u32) -> Limiter {
        let rate = Rate {
            count,
            per: Duration::from_secs(seconds),
        };
        Limiter::new(rate, burst)
    }

    #[test]
    fn a_burst_passes_at_once_and_then_one_at_a_time() {
        let limiter = limiter(2, 1, 3);
        for _ in 0..3 {
            assert_eq!(limiter.take(7, SECOND), Ok(()));
        }
        assert_eq!(limiter.look(7, SECOND), Err(SECOND / 2));
        assert_eq!(limiter.look(8, SECOND), Ok(()), "another client");
        assert_eq!(limiter.take(7, SECOND), Err(SECOND / 2));
        assert_eq!(limiter.take(8, SECOND), Ok(()), "another client");
        // Being refused costs nothing.
        assert_eq!(limiter.take(7, SECOND + SECOND / 2), Ok(()));
        assert_eq!(limiter.take(7, SECOND + SECOND / 2), Err(SECOND / 2));
        // After a long pause there is one burst and no more.
        for _ in 0..3 {
            assert_eq!(limiter.take(7, 100 * SECOND), Ok(()));
        }
        assert!(limiter.take(7, 100 * SECOND).is_err());
    }

    #[test]
    fn over_a_long_time_the_rate_holds() {
        let limiter = limiter(100, 60, 5);
        let asked = (0..6000_u64).map(|at| limiter.take(9, at * SECOND / 100));
        let let_through = asked.flatten().count();
        assert!(
            (100..=105).contains(&let_through),
            "{let_through} in a minute"
        );
    }

    #[test]
    fn a_flood_of_clients_takes_no_memory_and_frees_no_busy_one() {
        let limiter = limiter(1, 1, 10);
        // Ten requests at once: idle in ten seconds.
        for _ in 0..10 {
            assert_eq!(limiter.take(SETS as u64, 0), Ok(()));
        }
        // Others in the same set, each a request: all of them are nearer to being idle.
        for other in 2..2000_u64 {
            assert_eq!(limiter.take(other * SETS as u64, 0), Ok(()));
        }
        assert!(
            limiter.take(SETS as u64, 0).is_err(),
            "it was not forgotten"
        );
    }

    #[test]
    fn time_that_goes_backwards_is_the_same_time() {
        let limiter = limiter(1, 1, 1);
        assert_eq!(limiter.take(1, 10 * SECOND), Ok(()));
        assert_eq!(limiter.take(1, 9 * SECOND), Err(2 * SECOND));
    }
}
