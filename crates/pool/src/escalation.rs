//! What is done to a worker that should end and doesn't: one table, a row per reason.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// What can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ends the call that it is late with, and not the worker.
    Interrupt,
    Terminate,
    Kill,
}

/// Steps in order, each with the time since the one before.
pub(crate) type Steps = &'static [(Duration, Step)];

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Its call passed the deadline, and PHP can be told: by an exception, which the call has a second
/// to unwind from; if it was caught and went on, by an error that ends PHP with its shutdown
/// functions, which have a second as well. A worker that waits in C for something else hears of
/// neither.
pub(crate) const LATE: Steps = &[
    (Duration::ZERO, Step::Interrupt),
    (seconds(1), Step::Interrupt),
    (seconds(1), Step::Terminate),
    (seconds(5), Step::Kill),
];

/// Its call passed the deadline, and nobody inside PHP can be told. php has no handler for SIGTERM,
/// so it ends here; an application that has one gets the time to use it.
pub(crate) const OVERDUE: Steps = &[(Duration::ZERO, Step::Terminate), (seconds(5), Step::Kill)];

/// It was asked to end over its connection, or said that it will. RoadRunner gives it 10 s as well.
pub(crate) const ASKED: Steps = &[(seconds(10), Step::Terminate), (seconds(5), Step::Kill)];

/// It closed its connection: the end of a process that is ending closes it a moment before.
pub(crate) const HUNG_UP: Steps = &[(seconds(1), Step::Terminate), (seconds(2), Step::Kill)];

/// It sends what makes no sense: nothing it says can be believed.
pub(crate) const GARBAGE: Steps = &[(Duration::ZERO, Step::Kill)];

/// How far up a worker is. Started for one reason it can be started again for a more urgent one.
#[derive(Debug, Default)]
pub(crate) struct Escalation {
    left: Option<(Steps, Pin<Box<Sleep>>)>,
}

impl Escalation {
    /// Begins, unless a step of a reason given before would come sooner.
    pub(crate) fn start(&mut self, steps: Steps) {
        let Some((wait, _)) = steps.first() else {
            return;
        };
        let first = Instant::now() + *wait;
        if self
            .left
            .as_ref()
            .is_none_or(|(_, sleep)| sleep.deadline() > first)
        {
            self.left = Some((steps, Box::pin(tokio::time::sleep_until(first))));
        }
    }

    /// The reason is gone.
    pub(crate) fn stop(&mut self) {
        self.left = None;
    }

    /// Waits for the next step; for ever when there is none. Cancel safe.
    pub(crate) async fn step(&mut self) -> Step {
        loop {
            let Some((steps, sleep)) = &mut self.left else {
                std::future::pending::<()>().await;
                continue;
            };
            sleep.as_mut().await;
            let Some(((_, step), rest)) = steps.split_first() else {
                self.left = None;
                continue;
            };
            self.left = rest.first().map(|(wait, _)| {
                (
                    rest,
                    Box::pin(tokio::time::sleep_until(Instant::now() + *wait)),
                )
            });
            return *step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_steps_come_in_order_and_then_nothing() {
        let start = Instant::now();
        let mut escalation = Escalation::default();
        escalation.start(ASKED);
        assert_eq!(escalation.step().await, Step::Terminate);
        assert_eq!(start.elapsed(), seconds(10));
        assert_eq!(escalation.step().await, Step::Kill);
        assert_eq!(start.elapsed(), seconds(15));
        assert!(
            tokio::time::timeout(seconds(1000), escalation.step())
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_stopped_goes_no_step_further() {
        let mut escalation = Escalation::default();
        escalation.start(LATE);
        assert_eq!(escalation.step().await, Step::Interrupt);
        escalation.stop();
        let step = tokio::time::timeout(seconds(1000), escalation.step());
        assert!(step.await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_more_urgent_reason_comes_first_and_a_less_urgent_one_changes_nothing() {
        let start = Instant::now();
        let mut escalation = Escalation::default();
        escalation.start(ASKED);
        escalation.start(OVERDUE);
        escalation.start(ASKED);
        assert_eq!(escalation.step().await, Step::Terminate);
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(escalation.step().await, Step::Kill);
        assert_eq!(start.elapsed(), seconds(5));
    }
}
