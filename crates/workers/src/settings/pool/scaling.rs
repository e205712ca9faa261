//! How many workers a pool has.

use std::time::Duration;

use pronghorn_config::{Era, Table};
use pronghorn_pool::Scaling;
use pronghorn_process::cpus;

use super::{LONGEST, MAX_WORKERS};

/// More workers than are always there, and how many come at once, as RoadRunner's.
const DYNAMIC_WORKERS: usize = 10;
const SPAWN_RATE: usize = 5;
const MOST_DYNAMIC: usize = 100;

/// As RoadRunner 3's, for a pool as a whole: files that were written for it may rely on it.
const MAX_WORKERS_3: usize = 2048;

/// What a worker that was added may idle, as RoadRunner's: long enough that a wave of visitors does
/// not boot it twice.
const SCALING_IDLE: Duration = Duration::from_mins(1);

/// At least 2: one slow call must not stop the site, and a call to oneself must not deadlock.
fn default_workers() -> usize {
    cpus::usable().clamp(2, MAX_WORKERS)
}

pub(super) fn num_workers(t: &mut Table<'_>) -> usize {
    let most = match t.era() {
        Era::V2025 => MAX_WORKERS,
        Era::V3 => MAX_WORKERS_3,
    };
    t.key("num_workers", "How many workers the pool has.")
        .range(1..=most)
        .zero_is_default()
        .roadrunner(
            "the machine's CPUs",
            "an application that calls itself must not deadlock, and a container's CPU limit \
             counts",
        )
        .default_as(
            default_workers(),
            "CPUs that this process may use, at least 2",
        )
}

/// Ours, `min_workers` and `max_workers`, or RoadRunner's `dynamic_allocator`: the same mechanism.
pub(super) fn scaling(t: &mut Table<'_>, num_workers: usize) -> Option<Scaling> {
    let min = t
        .key(
            "min_workers",
            "The smallest number of workers in a pool that grows. By default, `num_workers`.",
        )
        .ours()
        .range(1..=MAX_WORKERS)
        .optional();
    let max = t
        .key(
            "max_workers",
            "The largest number of workers. When a call has waited for 100 ms, the pool adds \
             workers. An added worker ends after a minute without a call. By default, the pool \
             does not grow.",
        )
        .ours()
        .range(1..=MAX_WORKERS)
        .optional();
    let dynamic = t.optional_section_with(
        "dynamic_allocator",
        "RoadRunner's keys for more workers under load. Workers are added when a call has waited \
         for 100 ms.",
        |t| read_dynamic(t, num_workers),
    );
    let fewest = min.unwrap_or(num_workers);
    let ours = match (min, max) {
        (_, Some(max)) if max < fewest => {
            t.error(
                "max_workers",
                &format!("is {max}, which is less than the {fewest} workers that are always there"),
                "write a larger one, or a smaller `min_workers`",
            );
            None
        }
        (_, Some(max)) => Some(Scaling {
            min: fewest,
            max,
            // Four steps from the fewest to the most: quick enough for a wave, without starting all
            // for a ripple.
            step: ((max - fewest) / 4).max(1),
            idle: SCALING_IDLE,
        }),
        (Some(_), None) => {
            t.warn(
                "min_workers",
                "has no effect without `max_workers`",
                "write `num_workers` for a fixed number",
            );
            None
        }
        (None, None) => None,
    };
    if dynamic.is_some() && (min.is_some() || max.is_some()) {
        t.error(
            "dynamic_allocator",
            "says how the pool grows, and `min_workers` and `max_workers` say so too",
            "leave one of them out",
        );
    }
    ours.or(dynamic)
}

fn read_dynamic(t: &mut Table<'_>, num_workers: usize) -> Scaling {
    let most = match t.era() {
        Era::V2025 => MOST_DYNAMIC,
        Era::V3 => MAX_WORKERS_3.saturating_sub(num_workers).max(1),
    };
    let more = t
        .key(
            "max_workers",
            "How many workers may be added to `num_workers`.",
        )
        .range(1..=most)
        .zero_is_default()
        .default(DYNAMIC_WORKERS.min(most));
    let step = t
        .key("spawn_rate", "How many workers are added at a time.")
        .range(1..=MOST_DYNAMIC)
        .zero_is_default()
        .default(SPAWN_RATE);
    let idle = t
        .key(
            "idle_timeout",
            "An added worker ends after this time without a call.",
        )
        .zero_is_default()
        .range(Duration::from_secs(1)..=LONGEST)
        .differs(
            "ends all added workers together, this time after the last one was added",
            "a busy worker is still needed",
        )
        .default(SCALING_IDLE);
    Scaling {
        min: num_workers,
        max: num_workers + more,
        step,
        idle,
    }
}
