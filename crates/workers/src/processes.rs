//! What the processes of a server take: its own, and its workers by state. Read when somebody wants
//! to know it: nothing of it is counted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;

use pronghorn_metrics::{Kind, ReadFamily, Reading, Series};
use pronghorn_process::Usage;

use crate::facts::{PoolFacts, RoadRunnerState, WorkerFacts};

/// Workers by pool, for whoever reads metrics.
pub fn worker_families(facts: &[PoolFacts]) -> Vec<ReadFamily> {
    // Services may have pools of the same name.
    let mut pools: BTreeMap<&str, Vec<&WorkerFacts>> = BTreeMap::new();
    for facts in facts.iter().filter(|facts| !facts.workers.is_empty()) {
        pools.entry(&facts.name).or_default().extend(&facts.workers);
    }
    let (mut states, mut memory, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    for (pool, workers) in pools {
        for state in RoadRunnerState::ALL {
            let fits = |worker: &&&WorkerFacts| worker.roadrunner_state() == state;
            let count = workers.iter().filter(fits).count() as u64;
            states.push(series(&[("pool", pool), ("state", state.name())], count));
        }
        let bytes = |of: fn(&WorkerFacts) -> u64| workers.iter().map(|worker| of(worker)).sum();
        memory.push(series(&[("pool", pool)], bytes(WorkerFacts::memory)));
        shared.push(series(&[("pool", pool)], bytes(WorkerFacts::shared)));
    }
    let family = |name: &str, help: &'static str, series| ReadFamily {
        name: name.to_owned(),
        help: help.into(),
        kind: Kind::UpDownCounter,
        series,
    };
    vec![
        family("pronghorn_pool_workers", "Workers by state.", states),
        family(
            "pronghorn_pool_workers_memory_bytes",
            "Resident memory of all workers; shared pages count for each of them.",
            memory,
        ),
        family(
            "pronghorn_pool_workers_memory_shared_bytes",
            "Of the resident memory of all workers, pages of files and of shared memory.",
            shared,
        ),
    ]
}

/// The server's own process, under the names that Prometheus' libraries give.
pub fn server_families() -> Vec<ReadFamily> {
    let Some(usage) = Usage::of(std::process::id()) else {
        return Vec::new();
    };
    let mut families = vec![
        one(
            "process_resident_memory_bytes",
            "Resident memory of the server, without its workers.",
            Kind::UpDownCounter,
            Reading::Count(usage.memory),
        ),
        one(
            "process_cpu_seconds_total",
            "Processor time of the server, without its workers.",
            Kind::Counter,
            Reading::Value(usage.cpu.as_secs_f64()),
        ),
    ];
    if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
        families.push(one(
            "process_open_fds",
            "Open files and connections of the server.",
            Kind::UpDownCounter,
            Reading::Count(descriptors.count() as u64),
        ));
    }
    families
}

fn one(name: &str, help: &'static str, kind: Kind, reading: Reading) -> ReadFamily {
    ReadFamily {
        name: name.to_owned(),
        help: help.into(),
        kind,
        series: vec![Series {
            labels: Vec::new(),
            reading,
        }],
    }
}

fn series(labels: &[(&'static str, &str)], value: u64) -> Series {
    let label = |(name, value): &(&'static str, &str)| (Cow::from(*name), (*value).to_owned());
    Series {
        labels: labels.iter().map(label).collect(),
        reading: Reading::Count(value),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pronghorn_pool::SlotState::{Busy, Ready};

    use super::*;
    use crate::facts::tests::pool;

    /// Its workers take `memory` bytes each, half of them shared.
    fn taking(memory: u64, mut facts: PoolFacts) -> PoolFacts {
        for worker in &mut facts.workers {
            worker.usage = Some(Usage {
                memory,
                shared: memory / 2,
                cpu: Duration::ZERO,
            });
        }
        facts
    }

    /// The values of a family, each with those of its labels.
    fn values(families: &[ReadFamily], name: &str) -> Vec<(Vec<String>, u64)> {
        let family = families.iter().find(|family| family.name == name);
        let series = family.expect(name).series.iter();
        let read = series.map(|series| {
            let labels = series.labels.iter().map(|(_, value)| value.clone());
            match series.reading {
                Reading::Count(count) => (labels.collect(), count),
                ref other => panic!("{other:?}"),
            }
        });
        read.collect()
    }

    #[test]
    fn workers_add_up_by_pool_and_state() {
        let facts = [
            taking(10, pool("b", &[Busy])),
            taking(4, pool("a", &[Ready])),
            taking(20, pool("b", &[Busy])),
            pool("c", &[]),
        ];
        let families = worker_families(&facts);
        let states = values(&families, "pronghorn_pool_workers");
        assert_eq!(
            states.len(),
            2 * RoadRunnerState::ALL.len(),
            "a state without workers is 0"
        );
        let there = states.into_iter().filter(|(_, count)| *count > 0);
        let label = |pool: &str, state: &str| vec![pool.to_owned(), state.to_owned()];
        let expected = [(label("a", "ready"), 1), (label("b", "working"), 2)];
        assert_eq!(there.collect::<Vec<_>>(), expected);
        for (name, of_a, of_b) in [
            ("pronghorn_pool_workers_memory_bytes", 4, 30),
            ("pronghorn_pool_workers_memory_shared_bytes", 2, 15),
        ] {
            let expected = [(vec!["a".to_owned()], of_a), (vec!["b".to_owned()], of_b)];
            assert_eq!(values(&families, name), expected);
        }
    }

    #[test]
    fn the_server_itself_takes_something() {
        let families = server_families();
        let memory = values(&families, "process_resident_memory_bytes");
        assert!(memory[0].1 > 100_000, "{memory:?}");
        assert!(values(&families, "process_open_fds")[0].1 >= 1);
    }
}
