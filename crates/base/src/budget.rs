//! How often something may be done that costs: so many times in a second.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::lock;

const SECOND: Duration = Duration::from_secs(1);

/// So much may be spent in a second; what is left is gone with it.
#[derive(Debug)]
pub struct Budget {
    most: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    spent: u32,
    refused: u64,
}

impl Budget {
    pub const fn per_second(most: u32) -> Self {
        Self {
            most,
            state: Mutex::new(State {
                since: None,
                spent: 0,
                refused: 0,
            }),
        }
    }

    /// Spends one, if there is one: how many were refused since the last that was not.
    pub fn spend(&self) -> Option<u64> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        if state.since.is_none_or(|since| now >= since + SECOND) {
            state.since = Some(now);
            state.spent = 0;
        }
        if state.spent >= self.most {
            state.refused += 1;
            return None;
        }
        state.spent += 1;
        Some(std::mem::take(&mut state.refused))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_in_a_second_and_what_was_refused_is_told() {
        let budget = Budget::per_second(2);
        let spend = |times: usize| (0..times).map(|_| budget.spend()).collect::<Vec<_>>();
        assert_eq!(spend(4), [Some(0), Some(0), None, None]);
        advance(SECOND).await;
        assert_eq!(spend(3), [Some(2), Some(0), None]);
    }
}
