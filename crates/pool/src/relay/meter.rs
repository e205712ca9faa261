//! What a worker takes of a processor, for one that has no clocks of its own to tell it by: its
//! process's clock is looked at from outside, at most a hundred times in a second and once more at
//! the end of each long call.
//!
//! A look is a system call. So a short call is not told, and of a long one that comes at once after
//! another the beginning is known to [`EVERY`] only.

use std::time::Duration;

use pronghorn_process::CpuClock;
use pronghorn_wire::native::Spent;
use tokio::time::Instant;

/// The time between two looks where calls are short, and from which on one is long. What the kernel
/// itself tells in `/proc` is no finer.
const EVERY: Duration = Duration::from_millis(10);

/// The meter of one worker.
#[derive(Debug)]
pub(super) struct Meter<C = CpuClock> {
    clock: C,
    /// The result of the last look.
    last: Option<Look>,
    /// Whether somebody wants to know of the call at hand.
    is_wanted: bool,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    cpu: Duration,
}

/// That can be looked at. In tests, one that nobody's process drives.
pub(super) trait Clock {
    /// None when the process has ended.
    fn look(&self) -> Option<Duration>;
}

impl Clock for CpuClock {
    fn look(&self) -> Option<Duration> {
        self.read()
    }
}

impl<C: Clock> Meter<C> {
    pub(super) const fn new(clock: C) -> Self {
        Self {
            clock,
            last: None,
            is_wanted: false,
        }
    }

    /// A call begins `now`.
    pub(super) fn begin(&mut self, now: Instant, is_wanted: bool) {
        self.is_wanted = is_wanted;
        let is_old = |last: Look| now.saturating_duration_since(last.at) >= EVERY;
        if is_wanted && self.last.is_none_or(is_old) {
            self.last = self.clock.look().map(|cpu| Look { at: now, cpu });
        }
    }

    /// The time that the process had taken when the call at hand began.
    pub(super) fn cpu_before(&self) -> Option<Duration> {
        Some(self.last.filter(|_| self.is_wanted)?.cpu)
    }

    /// The use of time by the call at hand, which began `since`. None for a short one.
    pub(super) fn spent(&self, since: Instant, now: Instant) -> Option<Spent> {
        let took = now.saturating_duration_since(since);
        let before = self.cpu_before().filter(|_| took >= EVERY)?;
        Some(Spent::of(took, before, self.clock.look()?))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Shows what it is set to, and counts looks.
    #[derive(Debug, Default)]
    struct Hand {
        millis: Cell<u64>,
        looks: Cell<u32>,
    }

    impl Clock for &Hand {
        fn look(&self) -> Option<Duration> {
            self.looks.set(self.looks.get() + 1);
            Some(millis(self.millis.get()))
        }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_long_call_is_told() {
        let hand = Hand::default();
        hand.millis.set(500);
        let mut meter = Meter::new(&hand);
        let since = Instant::now();
        meter.begin(since, true);
        assert_eq!(meter.cpu_before(), Some(millis(500)));
        hand.millis.set(530);
        let (cpu, blocked) = (millis(30), millis(70));
        let told = meter.spent(since, since + millis(100));
        assert_eq!(told, Some(Spent { cpu, blocked }));
        hand.millis.set(900); // threads
        let told = meter.spent(since, since + millis(100));
        assert_eq!(told.map(|spent| spent.blocked), Some(Duration::ZERO));
    }

    #[test]
    fn short_calls_cost_a_look_in_ten_milliseconds_and_unwanted_ones_none() {
        let hand = Hand::default();
        let mut meter = Meter::new(&hand);
        let start = Instant::now();
        for call in 0..1000 {
            let since = start + millis(call);
            meter.begin(since, true);
            assert_eq!(meter.spent(since, since + millis(1)), None);
        }
        assert_eq!(hand.looks.get(), 100);
        let since = start + millis(2000);
        meter.begin(since, false);
        assert_eq!(meter.spent(since, since + millis(500)), None);
        assert_eq!(meter.cpu_before(), None);
        assert_eq!(hand.looks.get(), 100);
    }
}
