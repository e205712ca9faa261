//! How long calls take, smoothed.

use std::time::Duration;

use crate::core::PrefetchLimits;

/// Calls that take less, smoothed, are short: what a worker loses between two of them is worth a place in the queue.
const SHORT: Duration = Duration::from_millis(1);
/// Those that take less, with no sleep before them, are quick: several of them are done before another worker is awake.
const QUICK: Duration = Duration::from_micros(32);
/// Those that take so long in all.
const UNTIL_AWAKE: Duration = Duration::from_micros(100);
/// Calls that a worker may have beyond the one at hand, so that it need not sleep between two: short ones, and quick ones.
const FEW: u32 = 4;
const MANY: usize = 12;
/// What is left of a call after its reply, where it takes less, is over before another worker is at work: to wake that
/// one, on another processor perhaps, and to fetch there what this one has in its caches.
const SOON: Duration = Duration::from_micros(300);
/// How long a reply may wait for the next ones, so that they wake the server together, while other calls wait for the worker
/// anyway: shorter than a wait that anybody notices.
const UNTIL_TOLD: Duration = Duration::from_micros(600);
/// How long it may take until the worker has new calls: the server is woken and sends, a client answers. What the worker still
/// has when it wakes the server takes as long, or it would sleep in between.
const UNTIL_NEXT: Duration = Duration::from_micros(150);
/// A longer one counts as this: some fifteen short ones make up for it. Less than a second.
const LONGEST: Duration = Duration::from_millis(50);
/// The last call is one of so many.
const OF: u32 = 8;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Of all calls. The worker had to be woken for some.
    all: Average,
    /// Of those that it had ahead.
    ahead: Average,
    /// Of what they leave for after their reply.
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

    /// What was left of a call after its reply took so long, as the worker says: the server is not woken to see it.
    pub(super) fn note_rest(&mut self, took: Duration) {
        self.rest.note(took);
    }

    /// Whether so many calls are over in the time of one wake-up that several should share one. A worker with others is
    /// woken as soon as it has one: what this thread does meanwhile, a reply to each of ten clients perhaps, would come
    /// on top of the call.
    pub(super) fn is_quick(self) -> bool {
        self.all.is_below(SHORT) && self.ahead.is_below(QUICK)
    }

    /// With how many calls that it has not begun a worker need not wake the server for a reply; 0: it always does. To be woken
    /// takes a thread away from a processor, perhaps from another worker. Quick ones find the server awake, or it has as much
    /// to do as the worker.
    pub(super) fn enough_calls(self) -> u32 {
        if !self.all.is_below(SHORT) || self.is_quick() {
            return 0;
        }
        let took = self.all.0.max(1);
        let replies_untold = UNTIL_TOLD.subsec_nanos() / took;
        let to_go_on = UNTIL_NEXT.subsec_nanos().div_ceil(took);
        // Of those behind the call that is answered: with each reply there is one fewer.
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

    /// The same behind what a call has left after its reply, which may be short where the call is not.
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
