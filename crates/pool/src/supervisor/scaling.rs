//! How many workers a pool wants: decided by how long calls wait.

use std::time::Duration;

/// A wait that shows that workers are missing: far above what a free worker takes, far below what a
/// client notices.
pub(super) const LONG_WAIT: Duration = Duration::from_millis(100);
/// How often the queue is looked at in a pool that may grow.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Between which sizes a pool moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaling {
    /// Workers that are always there.
    pub min: usize,
    pub max: usize,
    /// How many are added at once; the next ones when these are up.
    pub step: usize,
    /// After so long without a call a worker beyond the fewest ends.
    pub idle: Duration,
}

impl Scaling {
    /// How many to add to `size` workers when `waiting` calls wait, the first since `oldest`.
    pub(super) fn grow(&self, size: usize, waiting: usize, oldest: Option<Duration>) -> usize {
        if oldest.is_none_or(|oldest| oldest < LONG_WAIT) {
            return 0;
        }
        self.step.min(waiting).min(self.max.saturating_sub(size))
    }

    /// How many of those that were `idle` for so long to take from `size` workers.
    pub(super) fn shrink(&self, size: usize, idle: impl Iterator<Item = Duration>) -> usize {
        let surplus = size.saturating_sub(self.min);
        idle.filter(|idle| *idle >= self.idle).take(surplus).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALING: Scaling = Scaling {
        min: 2,
        max: 10,
        step: 3,
        idle: Duration::from_secs(60),
    };

    #[test]
    fn it_grows_by_steps_while_calls_wait_and_not_beyond_its_end() {
        let long = Some(LONG_WAIT);
        assert_eq!(SCALING.grow(2, 10, None), 0);
        assert_eq!(SCALING.grow(2, 10, Some(LONG_WAIT / 2)), 0);
        assert_eq!(SCALING.grow(2, 10, long), 3);
        assert_eq!(SCALING.grow(2, 1, long), 1, "no more than calls that wait");
        assert_eq!(SCALING.grow(9, 10, long), 1);
        assert_eq!(SCALING.grow(12, 10, long), 0);
    }

    #[test]
    fn it_gives_up_idle_workers_but_not_the_fewest() {
        let idle = [70, 10, 61, 60].map(Duration::from_secs);
        assert_eq!(SCALING.shrink(10, idle.into_iter()), 3);
        assert_eq!(SCALING.shrink(4, idle.into_iter()), 2);
        assert_eq!(SCALING.shrink(2, idle.into_iter()), 0);
    }
}
