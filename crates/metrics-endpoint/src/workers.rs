//! Workers as they are now: by state, with the memory that they hold.

use std::borrow::Cow;
use std::collections::BTreeMap;

use pronghorn_metrics::{Kind, ReadFamily, Reading, Series};
use pronghorn_plugin_api::Health;
use pronghorn_pool::{SlotState, WorkerInfo};
use pronghorn_process::Usage;
use pronghorn_workers::Pools;

/// RoadRunner's names of states, which are few.
const STATES: [&str; 5] = ["inactive", "ready", "working", "stopping", "errored"];

struct Worker {
    owner: &'static str,
    pool: String,
    pid: u32,
    state: &'static str,
    memory: u64,
}

/// Under our names by pool, and under RoadRunner's by service and process.
pub(crate) async fn families(pools: &Pools, health: &Health) -> Vec<ReadFamily> {
    let mut workers = Vec::new();
    for pool in pools.all() {
        let (owner, name) = (pool.owner(), pool.name().to_owned());
        let found = pool.inspect().await;
        workers.extend(found.iter().map(|info| Worker::of(owner, &name, info)));
    }
    let mut families = by_pool(&workers);
    for service in health.names() {
        families.extend(of_service(service, &workers));
    }
    families
}

impl Worker {
    fn of(owner: &'static str, pool: &str, info: &WorkerInfo) -> Self {
        Self {
            owner,
            pool: pool.to_owned(),
            pid: info.pid,
            state: match info.state {
                SlotState::Empty | SlotState::Booting => STATES[0],
                SlotState::Ready => STATES[1],
                SlotState::Busy => STATES[2],
                SlotState::Draining | SlotState::Stopping => STATES[3],
                SlotState::Failed => STATES[4],
            },
            // It may have ended meanwhile.
            memory: Usage::of(info.pid).map_or(0, |usage| usage.memory),
        }
    }
}

fn by_pool(workers: &[Worker]) -> Vec<ReadFamily> {
    let mut pools: BTreeMap<&str, Vec<&Worker>> = BTreeMap::new();
    for worker in workers {
        pools.entry(&worker.pool).or_default().push(worker);
    }
    let (mut states, mut memory) = (Vec::new(), Vec::new());
    for (pool, workers) in pools {
        for state in STATES {
            let count = workers
                .iter()
                .filter(|worker| worker.state == state)
                .count();
            states.push(series(&[("pool", pool), ("state", state)], count as u64));
        }
        let bytes = workers.iter().map(|worker| worker.memory).sum();
        memory.push(series(&[("pool", pool)], bytes));
    }
    vec![
        gauge("pronghorn_pool_workers", "Workers by state.", states),
        gauge(
            "pronghorn_pool_workers_memory_bytes",
            "Resident memory of all workers; shared pages count for each of them.",
            memory,
        ),
    ]
}

fn of_service(service: &str, workers: &[Worker]) -> Vec<ReadFamily> {
    let own: Vec<_> = workers
        .iter()
        .filter(|worker| worker.owner == service)
        .collect();
    let of = |name: &str, help: &'static str, series| {
        gauge(&format!("rr_{service}_{name}"), help, series)
    };
    let one = |value: u64| vec![series(&[], value)];
    let count = |states: &[&str]| {
        let fits = own.iter().filter(|worker| states.contains(&worker.state));
        one(fits.count() as u64)
    };
    let each = |with_state: bool, value: fn(&Worker) -> u64| {
        let of_worker = |worker: &&Worker| {
            let pid = worker.pid.to_string();
            let mut labels = vec![("pid", &*pid)];
            if with_state {
                labels.push(("state", worker.state));
            }
            series(&labels, value(worker))
        };
        own.iter().map(of_worker).collect()
    };
    vec![
        of(
            "total_workers",
            "Workers, as RoadRunner counts them.",
            one(own.len() as u64),
        ),
        of(
            "workers_memory_bytes",
            "Resident memory of all workers.",
            one(own.iter().map(|worker| worker.memory).sum()),
        ),
        of(
            "worker_state",
            "The state of each worker, in its label.",
            each(true, |_| 0),
        ),
        of(
            "worker_memory_bytes",
            "Resident memory of each worker.",
            each(false, |worker| worker.memory),
        ),
        of(
            "workers_ready",
            "Workers that wait for a call.",
            count(&["ready"]),
        ),
        of(
            "workers_working",
            "Workers that have a call.",
            count(&["working"]),
        ),
        of(
            "workers_invalid",
            "Workers in any other state.",
            count(&["inactive", "stopping", "errored"]),
        ),
    ]
}

fn gauge(name: &str, help: &'static str, series: Vec<Series>) -> ReadFamily {
    ReadFamily {
        name: name.to_owned(),
        help: help.into(),
        kind: Kind::Gauge,
        series,
    }
}

fn series(labels: &[(&'static str, &str)], value: u64) -> Series {
    let label = |(name, value): &(&'static str, &str)| (Cow::from(*name), (*value).to_owned());
    Series {
        labels: labels.iter().map(label).collect(),
        reading: Reading::Count(value),
    }
}
