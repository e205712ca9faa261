//! What the time of a request was spent on, from the stamps of its call.

use pronghorn_base::micros;
use pronghorn_pool::Stamps;
use tokio::time::Instant;

/// The phases, in microseconds. Together they are all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Phases {
    /// Until the body was there.
    pub(crate) read: u64,
    /// Until a worker had the call; until it was refused, if none got it.
    pub(crate) queue: u64,
    /// Until the reply was there: all of it, or the beginning of one that follows in pieces.
    pub(crate) worker: Option<u64>,
    /// Until the response was out.
    pub(crate) write: u64,
}

impl Phases {
    /// Of a response that was out so many microseconds after its request was accepted.
    pub(crate) fn of(stamps: &Stamps, sent: u64) -> Self {
        // Numbers, not durations: those take three times as long to subtract, and this is done for
        // each request.
        let since_accepted =
            |moment: Instant| micros(moment.saturating_duration_since(stamps.accepted));
        // Most requests have no body to wait for; a difference of moments takes longer than a look.
        let read = if stamps.queued == stamps.accepted {
            0
        } else {
            since_accepted(stamps.queued)
        };
        let replied = stamps.complete.or(stamps.first_byte);
        let replied = replied.map_or(sent, since_accepted);
        let begun = stamps.claimed.or(stamps.dispatched).map(since_accepted);
        Self {
            read,
            queue: begun.unwrap_or(replied).saturating_sub(read),
            worker: begun.map(|begun| replied.saturating_sub(begun)),
            write: sent.saturating_sub(replied),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each step may be missing, but happened after those before it.
        #[test]
        fn the_phases_together_are_the_whole_time(steps in prop::array::uniform6((0_u64..1_000_000_000, any::<bool>()))) {
            let accepted = Instant::now();
            let mut now = accepted;
            let mut step = |at: usize| {
                now += Duration::from_nanos(steps[at].0);
                Some(now).filter(|_| steps[at].1)
            };
            let stamps = Stamps {
                accepted,
                queued: step(0).unwrap_or(accepted),
                dispatched: step(1),
                claimed: step(2),
                first_byte: step(3),
                complete: step(4),
            };
            step(5);
            let phases = Phases::of(&stamps, micros(now - accepted));
            let worker = phases.worker.unwrap_or_default();
            let sum = phases.read + phases.queue + worker + phases.write;
            prop_assert_eq!(sum, micros(now - accepted));
        }
    }
}
