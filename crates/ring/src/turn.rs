//! A thread that is about to sleep lets the workers at its processor run first.
//!
//! While a worker has quick calls to run, each request that arrives would wake the thread, for that
//! request alone and in the middle of a call. Once the worker has nothing to do, its replies and
//! what clients have sent meanwhile are there together.

use std::time::Duration;

use tokio::time::Instant;

/// The calls that a worker of quick ones may have take less: who ran for longer was somebody else.
const LONGEST: Duration = Duration::from_micros(500);
/// Then the thread keeps its processor for so long, or requests would wait for a stranger again and
/// again.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether others may run first.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    not_before: Option<Instant>,
}

impl Turn {
    /// Has `others` run, unless that took too long lately.
    pub(crate) fn give(&mut self, others: impl FnOnce()) {
        let begun = Instant::now();
        if self.may_be_given(begun) {
            others();
            self.was_given(begun, Instant::now());
        }
    }

    fn may_be_given(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|time| now >= time)
    }

    fn was_given(&mut self, begun: Instant, ended: Instant) {
        self.not_before = (ended - begun > LONGEST).then(|| ended + PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_runs_for_long_gets_no_turn_for_a_while() {
        let begun = Instant::now();
        let mut turn = Turn::default();
        assert!(turn.may_be_given(begun));
        turn.was_given(begun, begun + LONGEST);
        assert!(turn.may_be_given(begun + LONGEST));
        let ended = begun + LONGEST + Duration::from_nanos(1);
        turn.was_given(begun, ended);
        assert!(!turn.may_be_given(ended));
        assert!(!turn.may_be_given(ended + PAUSE - Duration::from_nanos(1)));
        assert!(turn.may_be_given(ended + PAUSE));
        turn.was_given(ended + PAUSE, ended + PAUSE);
        assert!(turn.may_be_given(ended + PAUSE));
    }
}
