//! Two of Go's metrics, which RoadRunner's board asks for.

use std::fs;

use pronghorn_metrics::{Kind, ReadFamily, Reading, Series};
use pronghorn_process::Usage;

pub(crate) fn families() -> Vec<ReadFamily> {
    let memory = Usage::of(std::process::id()).map(|usage| usage.memory);
    let threads = fs::read_dir("/proc/self/task").ok();
    let of = |name: &str, help: &'static str, value: Option<u64>| {
        value.map(|value| ReadFamily {
            name: name.to_owned(),
            help: help.into(),
            kind: Kind::Gauge,
            series: vec![Series {
                labels: Vec::new(),
                reading: Reading::Count(value),
            }],
        })
    };
    let families = [
        of(
            "go_memstats_heap_inuse_bytes",
            "Resident memory of the server, for boards that ask for Go's.",
            memory,
        ),
        of(
            "go_goroutines",
            "Threads of the server, for boards that ask for Go's.",
            threads.map(|threads| threads.count() as u64),
        ),
    ];
    families.into_iter().flatten().collect()
}
