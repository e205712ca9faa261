//! Records about what may happen ten thousand times a second.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::mutex::lock;

/// Between two records about the same thing: short enough to see when it ends, long enough to keep
/// the logs readable.
const BETWEEN: Duration = Duration::from_secs(10);

/// Counts events and says which of them is worth a record: the first, and then one every ten
/// seconds.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    quiet_until: Option<Instant>,
    suppressed: u64,
}

impl LogThrottle {
    pub const fn new() -> Self {
        Self(Mutex::new(State {
            quiet_until: None,
            suppressed: 0,
        }))
    }

    /// Another event. When it is worth a record: how many there were since the last record, this
    /// one included.
    pub fn should_log(&self) -> Option<u64> {
        let mut state = lock(&self.0);
        let now = Instant::now();
        state.suppressed += 1;
        if state.quiet_until.is_some_and(|until| now < until) {
            return None;
        }
        state.quiet_until = Some(now + BETWEEN);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_event_is_told_and_the_next_ones_together() {
        let events = LogThrottle::default();
        assert_eq!(events.should_log(), Some(1));
        for _ in 0..1000 {
            assert_eq!(events.should_log(), None);
        }
        advance(BETWEEN).await;
        assert_eq!(events.should_log(), Some(1001));
        assert_eq!(events.should_log(), None);
    }
}
