//! When workers that ask for a new generation get it.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Workers that ask for new ones get them at most so often: code that calls `opcache_reset()` with
/// each request must not keep the machine busy with starting PHP.
const BETWEEN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Renewals {
    last: Option<Instant>,
    due: Option<Instant>,
}

impl Renewals {
    /// Workers ask for it now.
    pub(crate) fn ask(&mut self) {
        let earliest = self.last.map(|last| last + BETWEEN);
        self.due = earliest.max(Some(Instant::now()));
    }

    /// Returns when a renewal begins: never, while nobody asks. Cancel safe.
    pub(crate) async fn begin(&mut self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
        self.due = None;
        self.last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long it takes until a renewal begins, if it does within an hour.
    async fn wait(renewals: &mut Renewals) -> Option<Duration> {
        let start = Instant::now();
        let begun = tokio::time::timeout(Duration::from_hours(1), renewals.begin()).await;
        begun.is_ok().then(|| start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn workers_that_ask_all_the_time_get_new_ones_once_a_minute() {
        let mut renewals = Renewals::default();
        assert_eq!(wait(&mut renewals).await, None, "nobody has asked");
        renewals.ask();
        assert_eq!(wait(&mut renewals).await, Some(Duration::ZERO));
        for _ in 0..3 {
            renewals.ask();
            renewals.ask();
        }
        assert_eq!(wait(&mut renewals).await, Some(BETWEEN));
        assert_eq!(wait(&mut renewals).await, None, "all were answered");
        renewals.ask();
        let late = wait(&mut renewals).await;
        assert_eq!(late, Some(Duration::ZERO), "the last one is long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_loses_nothing() {
        let mut renewals = Renewals::default();
        renewals.ask();
        renewals.begin().await;
        renewals.ask();
        let half = tokio::time::timeout(BETWEEN / 2, renewals.begin()).await;
        assert!(half.is_err());
        assert_eq!(wait(&mut renewals).await, Some(BETWEEN / 2));
    }
}
