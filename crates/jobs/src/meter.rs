//! How many things happened in the last minute.

use std::sync::Mutex;

use pronghorn_base::lock;
use tokio::time::Instant;

const SECONDS: usize = 60;

#[derive(Debug)]
pub(crate) struct Meter {
    since: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// A count for each second, in a circle.
    counts: [u32; SECONDS],
    /// The second that is counted now.
    second: u64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            state: Mutex::new(State {
                counts: [0; SECONDS],
                second: 0,
            }),
        }
    }

    pub(crate) fn count(&self) {
        let mut state = self.at_now();
        let at = place(state.second);
        state.counts[at] = state.counts[at].saturating_add(1);
    }

    pub(crate) fn per_minute(&self) -> u64 {
        let state = self.at_now();
        state.counts.iter().map(|count| u64::from(*count)).sum()
    }

    fn at_now(&self) -> std::sync::MutexGuard<'_, State> {
        let now = self.since.elapsed().as_secs();
        let mut state = lock(&self.state);
        let passed = now.saturating_sub(state.second);
        for second in 0..passed.min(SECONDS as u64) {
            state.counts[place(now - second)] = 0;
        }
        state.second = now.max(state.second);
        state
    }
}

fn place(second: u64) -> usize {
    usize::try_from(second % SECONDS as u64).expect("it is below sixty")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_minute_is_counted_and_no_more() {
        let meter = Meter::new();
        for _ in 0..90 {
            meter.count();
            meter.count();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(meter.per_minute(), 118);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(meter.per_minute(), 58);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(meter.per_minute(), 0);
    }
}
