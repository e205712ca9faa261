//! From the settings of a pool to what its supervisor keeps up: how many workers, and for how long.

use std::num::NonZeroU64;
use std::time::Duration;

use pronghorn_config::Size;
use pronghorn_pool::{Limits, Plan};
use pronghorn_process::cpus;

use super::{MAX_WORKERS, PoolSettings};

/// Of a pool in which each call gets a fresh worker, one serves and one is ready.
const DEBUG_WORKERS: usize = 2;

impl PoolSettings {
    pub(crate) fn plan(&self) -> Plan {
        let kept = self.kept();
        let (workers, scaling) = if self.is_debug() {
            (DEBUG_WORKERS, None)
        } else {
            (self.common.num_workers, self.common.scaling)
        };
        let max_memory = kept.and_then(|kept| kept.max_worker_memory);
        Plan {
            workers,
            scaling,
            most: MAX_WORKERS
                .max(workers)
                .max(scaling.map_or(0, |scaling| scaling.max)),
            at_once: boots_at_once(),
            limits: Limits {
                watch_tick: self.common.watch_tick,
                ttl: kept.and_then(|kept| kept.ttl),
                idle_ttl: kept.and_then(|kept| kept.idle_ttl),
                max_memory: max_memory.map(Size::bytes),
            },
        }
    }

    /// Calls after which a worker is replaced.
    pub(crate) fn max_jobs(&self) -> Option<NonZeroU64> {
        if self.is_debug() {
            NonZeroU64::new(1)
        } else {
            self.kept().and_then(|kept| kept.max_jobs)
        }
    }

    /// The hard limit of a call. In development there is none: somebody may sit in a debugger.
    pub(crate) fn exec_ttl(&self, development: bool) -> Option<Duration> {
        self.common.exec_ttl.filter(|_| !development)
    }
}

/// How many workers boot at once: more than there are CPUs, because a boot also waits for the disk;
/// not all of a hundred, because then each takes a hundred times as long.
fn boots_at_once() -> usize {
    (cpus::usable() * 2).max(4)
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Input, Severity, load};

    use super::*;

    fn settings(text: &str) -> PoolSettings {
        let loaded = load(&Input::from_text("a.yaml", text));
        let resolved = loaded.resolve::<PoolSettings>(Severity::Error);
        let report = resolved.report().to_string();
        let Ok(settings) = resolved.into_settings() else {
            panic!("{report}");
        };
        settings
    }

    #[test]
    fn a_pool_has_the_workers_and_limits_that_are_written() {
        let plan = settings(
            "{num_workers: 3, supervisor: {watch_tick: 2s, ttl: 1h, idle_ttl: 5m, \
             max_worker_memory: 100}}",
        )
        .plan();
        assert_eq!((plan.workers, plan.scaling), (3, None));
        assert_eq!(plan.most, MAX_WORKERS, "people may add workers");
        assert_eq!(plan.limits.watch_tick, Duration::from_secs(2));
        assert_eq!(plan.limits.ttl, Some(Duration::from_hours(1)));
        assert_eq!(plan.limits.idle_ttl, Some(Duration::from_mins(5)));
        assert_eq!(plan.limits.max_memory, Some(100 << 20));
    }

    #[test]
    fn a_pool_that_grows_starts_with_the_fewest() {
        let plan = settings("{min_workers: 2, max_workers: 9, num_workers: 5}").plan();
        let scaling = plan.scaling.expect("it grows");
        assert_eq!((plan.workers, scaling.min, scaling.max), (2, 2, 9));
    }

    #[test]
    fn in_debug_mode_each_call_has_a_fresh_worker_and_the_next_one_is_ready() {
        let settings = settings("{debug: true, min_workers: 4, max_workers: 8, max_jobs: 100}");
        let plan = settings.plan();
        assert_eq!((plan.workers, plan.scaling), (2, None));
        assert_eq!(settings.max_jobs(), NonZeroU64::new(1));
    }

    #[test]
    fn the_limit_of_calls_is_off_while_somebody_may_sit_in_a_debugger() {
        let settings = settings("{max_jobs: 7, supervisor: {exec_ttl: 9s}}");
        assert_eq!(settings.max_jobs(), NonZeroU64::new(7));
        assert_eq!(settings.exec_ttl(false), Some(Duration::from_secs(9)));
        assert_eq!(settings.exec_ttl(true), None);
    }
}
