//! Workers as they are now, under RoadRunner's names, by service and process.

use std::borrow::Cow;

use pronghorn_metrics::{Kind, ReadFamily, Reading, Series};
use pronghorn_workers::{PoolFacts, RoadRunnerState, WorkerFacts};

/// The families of one service.
pub(crate) fn families(service: &str, pools: &[PoolFacts]) -> Vec<ReadFamily> {
    use RoadRunnerState::{Errored, Inactive, Ready, Stopping, Working};
    let own = pools.iter().filter(|pool| pool.owner == service);
    let own: Vec<&WorkerFacts> = own.flat_map(|pool| &pool.workers).collect();
    let of = |name: &str, help: &'static str, series| {
        gauge(&format!("rr_{service}_{name}"), help, series)
    };
    let one = |value: u64| vec![series(&[], value)];
    let count = |states: &[RoadRunnerState]| {
        let fits = own
            .iter()
            .filter(|worker| states.contains(&worker.roadrunner_state()));
        one(fits.count() as u64)
    };
    let each = |with_state: bool, value: fn(&WorkerFacts) -> u64| {
        let of_worker = |worker: &&WorkerFacts| {
            let pid = worker.info.pid.to_string();
            let mut labels = vec![("pid", &*pid)];
            if with_state {
                labels.push(("state", worker.roadrunner_state().name()));
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
            one(own.iter().map(|worker| worker.memory()).sum()),
        ),
        of(
            "worker_state",
            "The state of each worker, in its label.",
            each(true, |_| 0),
        ),
        of(
            "worker_memory_bytes",
            "Resident memory of each worker.",
            each(false, WorkerFacts::memory),
        ),
        of(
            "workers_ready",
            "Workers that wait for a call.",
            count(&[Ready]),
        ),
        of(
            "workers_working",
            "Workers that have a call.",
            count(&[Working]),
        ),
        of(
            "workers_invalid",
            "Workers in any other state.",
            count(&[Inactive, Stopping, Errored]),
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
