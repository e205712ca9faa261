//! Tries again what has failed, as `async-nats` asks for it.
//!
//! Stands in for the crate of this name, which turns on tokio's clock for tests (`test-util`) in
//! all that is built with it: then each look at the clock takes a lock, some 600 instructions for
//! a request. `[patch.crates-io]` in the workspace puts it there.

#![forbid(unsafe_code)]

use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;

/// What is tried, and how often again.
#[derive(Clone, Debug)]
pub struct Retry<F> {
    attempt: F,
    retries: u32,
}

/// Each try is a future of this function.
pub const fn retry_fn<F>(attempt: F) -> Retry<F> {
    Retry {
        attempt,
        retries: 0,
    }
}

impl<F> Retry<F> {
    /// So often after the first failure.
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// Tries, and waits after each failure as long as `backoff` says for its number, from 1 on.
    ///
    /// # Errors
    ///
    /// That of the last try.
    pub async fn custom_backoff<R, T, E, B>(mut self, mut backoff: B) -> Result<T, E>
    where
        F: FnMut() -> R,
        R: Future<Output = Result<T, E>>,
        B: FnMut(u32, &E) -> Duration,
    {
        let mut failures: u32 = 0;
        loop {
            let wait = match (self.attempt)().await {
                Err(error) if failures < self.retries => {
                    failures = failures.saturating_add(1);
                    backoff(failures, &error)
                }
                ended => return ended,
            };
            sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    async fn tried(good_from: u32, retries: u32) -> (Result<u32, u32>, Duration) {
        let start = Instant::now();
        let mut tries = 0;
        let attempt = || {
            tries += 1;
            let this = tries;
            async move {
                if this < good_from {
                    Err(this)
                } else {
                    Ok(this)
                }
            }
        };
        let backoff = |failure: u32, error: &u32| {
            assert_eq!(failure, *error);
            Duration::from_secs(failure.into())
        };
        let ended = retry_fn(attempt).retries(retries).custom_backoff(backoff);
        (ended.await, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_tried_again_after_its_wait() {
        let secs = Duration::from_secs;
        assert_eq!(tried(1, 0).await, (Ok(1), secs(0)));
        assert_eq!(tried(3, u32::MAX).await, (Ok(3), secs(1 + 2)));
        assert_eq!(tried(9, 2).await, (Err(3), secs(1 + 2)));
        assert_eq!(tried(9, 0).await, (Err(1), secs(0)));
    }
}
