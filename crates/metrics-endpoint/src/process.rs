//! The server's own process, under the names that Prometheus' libraries give; and two of Go's,
//! which RoadRunner's board asks for.

use std::fs;

use pronghorn_metrics::{Kind, ReadFamily, Reading, Series};
use pronghorn_process::Usage;

pub(crate) fn families() -> Vec<ReadFamily> {
    let Some(usage) = Usage::of(std::process::id()) else {
        return Vec::new();
    };
    let memory = Reading::Count(usage.memory);
    let mut families = vec![
        one(
            "process_resident_memory_bytes",
            "Resident memory of the server, without its workers.",
            Kind::Gauge,
            memory.clone(),
        ),
        one(
            "process_cpu_seconds_total",
            "Processor time of the server, without its workers.",
            Kind::Counter,
            Reading::Value(usage.cpu.as_secs_f64()),
        ),
        one(
            "go_memstats_heap_inuse_bytes",
            "Resident memory of the server, for boards that ask for Go's.",
            Kind::Gauge,
            memory,
        ),
    ];
    if let Some(threads) = entries("/proc/self/task") {
        families.push(one(
            "go_goroutines",
            "Threads of the server, for boards that ask for Go's.",
            Kind::Gauge,
            threads,
        ));
    }
    if let Some(descriptors) = entries("/proc/self/fd") {
        families.push(one(
            "process_open_fds",
            "Open files and connections of the server.",
            Kind::Gauge,
            descriptors,
        ));
    }
    families
}

fn entries(folder: &str) -> Option<Reading> {
    let entries = fs::read_dir(folder).ok()?;
    Some(Reading::Count(entries.count() as u64))
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
