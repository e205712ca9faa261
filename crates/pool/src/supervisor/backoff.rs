//! How long a slot stays empty after its worker ended.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
/// Long enough that a pool which can't boot costs next to nothing, short enough that it is back
/// soon after its cause is gone.
const LONGEST: Duration = Duration::from_secs(10);
/// Up to a quarter is added at random, so that slots which failed together don't try together for
/// ever.
const JITTER: f64 = 0.25;

/// Doubles from try to try. The first try after a worker that had come up is immediate.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        let pause = match self.tries {
            0 => Duration::ZERO,
            tries => FIRST.saturating_mul(1 << (tries - 1).min(16)).min(LONGEST),
        };
        self.tries = self.tries.saturating_add(1);
        pause.mul_f64(fastrand::f64().mul_add(JITTER, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_at_once_doubles_and_has_an_end() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(), Duration::ZERO);
        let mut before = Duration::ZERO;
        for _ in 0..7 {
            let pause = backoff.next();
            assert!(pause > before, "{pause:?} after {before:?}");
            before = pause;
        }
        for _ in 0..100 {
            let pause = backoff.next();
            assert!(
                pause >= LONGEST && pause <= LONGEST.mul_f64(1.0 + JITTER),
                "{pause:?}"
            );
        }
    }
}
