//! How long calls take, smoothed.

use std::time::Duration;

use super::tuning::{
    FEW, LONGEST, MANY, OF, QUICK, SHORT, SOON, UNTIL_AWAKE, UNTIL_NEXT, UNTIL_TOLD,
};
use crate::core::PrefetchLimits;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// The average of all calls. The worker had to be woken for some.
    all: Average,
    /// The average of those that it had ahead.
    ahead: Average,
    /// The average of what they leave for after their reply.
    rest: Average,
}

impl Pace {
    /// A call took so long, one that the worker had `ahead` or not.
    pub(super) fn note(&mut self, took: Duration, ahead: bool) {
        self.all.note(took);
        if ahead {
            self.ahead.note(took);
        }
    }

    /// The rest of a call after its reply took so long, as the worker says: the server is not
    /// woken to see it.
    pub(super) fn note_rest(&mut self, took: Duration) {
        self.rest.note(took);
    }

    /// Whether so many calls are over in the time of one wake-up that several should share one. A
    /// worker with others is woken as soon as it has one: what this thread does meanwhile, a reply
    /// to each of ten clients perhaps, would come on top of the call.
    pub(super) fn is_quick(self) -> bool {
        self.all.is_below(SHORT) && self.ahead.is_below(QUICK)
    }

    /// With how many calls that it has not begun a worker need not wake the server for a reply; 0:
    /// it always does. To be woken takes a thread away from a processor, perhaps from another
    /// worker. Quick ones find the server awake, or it has as much to do as the worker.
    pub(super) fn enough_calls(self) -> u32 {
        if !self.all.is_below(SHORT) || self.is_quick() {
            return 0;
        }
        let took = self.all.0.max(1);
        let replies_untold = UNTIL_TOLD.subsec_nanos() / took;
        let to_go_on = UNTIL_NEXT.subsec_nanos().div_ceil(took);
        // Calls behind the one that is answered count: with each reply there is one fewer.
        to_go_on.max((FEW + 1).saturating_sub(replies_untold))
    }

    pub(super) fn prefetch(self) -> PrefetchLimits {
        if !self.all.is_below(SHORT) {
            return PrefetchLimits::default();
        }
        if !self.is_quick() {
            return PrefetchLimits {
                most: FEW as usize,
                ..PrefetchLimits::default()
            };
        }
        let before_another = UNTIL_AWAKE.subsec_nanos() / self.ahead.0.max(1);
        PrefetchLimits {
            most: MANY,
            before_waking_idle: (before_another as usize).min(MANY),
            when_cpus_busy: MANY,
        }
    }

    /// The same behind what a call has left after its reply, which may be short where the call is
    /// not.
    pub(super) fn may_have_behind_rest(self) -> PrefetchLimits {
        let mut prefetch = self.prefetch();
        if self.rest.is_below(SHORT) {
            prefetch.most = prefetch.most.max(1);
        }
        if self.rest.is_below(SOON) {
            prefetch.before_waking_idle = prefetch.before_waking_idle.max(1);
        }
        prefetch
    }
}

/// A moving average in nanoseconds. It begins high: what nothing is known of is not short.
#[derive(Debug, Clone, Copy)]
struct Average(u32);

impl Default for Average {
    fn default() -> Self {
        Self(2 * SHORT.subsec_nanos())
    }
}

impl Average {
    fn note(&mut self, took: Duration) {
        self.0 = self.0 - self.0 / OF + took.min(LONGEST).subsec_nanos() / OF;
    }

    fn is_below(self, limit: Duration) -> bool {
        self.0 < limit.subsec_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_short(pace: Pace) -> bool {
        pace.prefetch() != PrefetchLimits::default()
    }

    #[test]
    fn one_long_call_among_short_ones_ends_it_for_a_while() {
        let mut pace = Pace::default();
        assert!(!is_short(pace), "nothing is known");
        for _ in 0..10 {
            pace.note(Duration::from_micros(50), true);
        }
        assert!(is_short(pace));
        pace.note(Duration::from_secs(20), true);
        assert!(!is_short(pace));
        let until_short = (1..100).find(|_| {
            pace.note(Duration::from_micros(50), true);
            is_short(pace)
        });
        assert_eq!(until_short, Some(15));
        for _ in 0..100 {
            pace.note(SHORT, true);
        }
        pace.note(2 * SHORT, true);
        assert!(!is_short(pace));
    }

    #[test]
    fn the_quicker_calls_are_the_more_a_worker_may_have() {
        let of = |took: u64, ahead: bool| {
            let mut pace = Pace::default();
            (0..100).for_each(|_| pace.note(Duration::from_micros(took), ahead));
            let prefetch = pace.prefetch();
            (
                prefetch.most,
                prefetch.before_waking_idle,
                prefetch.when_cpus_busy,
            )
        };
        assert_eq!(of(900, true), (4, 0, 0));
        assert_eq!(of(35, true), (4, 0, 0));
        assert_eq!(of(30, true), (12, 3, 12));
        assert_eq!(of(20, true), (12, 4, 12));
        assert_eq!(of(10, true), (12, 9, 12));
        assert_eq!(of(1, true), (12, 12, 12));
        assert_eq!(of(20, false), (4, 0, 0), "it may have been asleep before");
    }
}
