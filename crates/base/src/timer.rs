//! Deadlines that cost nothing while they move.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::task::unconstrained;
use tokio::time::{Instant, Sleep};

/// A deadline that moves with every call or read, as one sleep: it is reset only when it would come
/// too late, and looked at again when it comes too early.
#[derive(Debug, Default)]
pub struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The task that it wakes. A pending sleep needs no second poll by the same task.
    wakes: Option<Waker>,
}

impl Timer {
    /// Ready once the deadline has passed; never without one. The deadline may be another at each
    /// call.
    pub fn poll(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> Poll<()> {
        let Some(deadline) = deadline else {
            return Poll::Pending;
        };
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        let asked = self.wakes.as_ref();
        if !sleep.is_elapsed() && asked.is_some_and(|waker| waker.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        // In a task that has used up its turn, a sleep would be pending without noting the waker.
        while pin!(unconstrained(sleep.as_mut())).poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        self.wakes = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio::task::coop::{consume_budget, has_budget_remaining};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_kept_wherever_it_moves() {
        let mut timer = Timer::default();
        let start = Instant::now();
        for (first, then) in [(9, 5), (1, 5), (5, 5)] {
            let now = Instant::now();
            let mut deadline = now + SECOND * first;
            let mut polls = 0;
            poll_fn(|cx| {
                // Twice by the same task, as after a read; only the second deadline counts.
                _ = timer.poll(cx, Some(deadline));
                deadline = now + SECOND * then;
                polls += 1;
                timer.poll(cx, Some(deadline))
            })
            .await;
            assert_eq!(now.elapsed().as_secs(), u64::from(then), "{first}, {then}");
            assert!(polls <= 3, "woken {polls} times");
        }
        assert_eq!(start.elapsed().as_secs(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_that_asked_last_is_woken() {
        let mut timer = Timer::default();
        let start = Instant::now();
        let deadline = Some(start + SECOND);
        let mut nobody = Context::from_waker(Waker::noop());
        assert!(timer.poll(&mut nobody, deadline).is_pending());
        // The time-out looks once more at its own end, so that it alone proves nothing.
        let woken = tokio::time::timeout(2 * SECOND, poll_fn(|cx| timer.poll(cx, deadline))).await;
        assert_eq!((woken.is_ok(), start.elapsed()), (true, SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_has_used_up_its_turn_is_woken() {
        let mut timer = Timer::default();
        let start = Instant::now();
        let deadline = Some(start + SECOND);
        let woken = poll_fn(move |cx| {
            while has_budget_remaining() {
                _ = pin!(consume_budget()).poll(cx);
            }
            timer.poll(cx, deadline)
        });
        // In a task of its own: the time-out would poll it again.
        let mut task = JoinSet::new();
        task.spawn(woken);
        let woken = tokio::time::timeout(2 * SECOND, task.join_next()).await;
        assert_eq!((woken.is_ok(), start.elapsed()), (true, SECOND));
    }
}
