//! Workers as they are now, under RoadRunner's names, by service and process.

use std::borrow::Cow;

use pronghorn_metrics::{Kind, ReadFamily, Reading, Series};
use pronghorn_workers::WorkerProcess;

/// Those of one service.
pub(crate) fn families(service: &str, workers: &[WorkerProcess]) -> Vec<ReadFamily> {
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
    let each = |with_state: bool, value: fn(&WorkerProcess) -> u64| {
        let of_worker = |worker: &&WorkerProcess| {
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
