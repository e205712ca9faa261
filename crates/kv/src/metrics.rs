//! What is counted of storages in memory. Their processes count themselves; it is read from there.

use std::sync::Arc;

use pronghorn_cache::Figures;
use pronghorn_metrics::Registry;

use crate::driver::Driver;
use crate::storages::Storages;

pub(crate) fn add(registry: &Registry, storages: &Storages) {
    for (name, driver) in storages.iter() {
        if driver.shared().is_some() {
            add_one(&registry.labelled("storage", name), driver);
        }
    }
}

fn add_one(registry: &Registry, driver: &Arc<dyn Driver>) {
    let reads = |read: fn(&Figures) -> u64| {
        let driver = driver.clone();
        move || {
            driver
                .shared()
                .map_or(0.0, |cache| number(read(&cache.figures())))
        }
    };
    registry.present(
        "kv_bytes",
        "Memory that a storage has taken.",
        reads(|it| it.used),
    );
    registry.present(
        "kv_max_bytes",
        "Memory that a storage may take.",
        reads(|it| it.size),
    );
    registry.counted(
        "kv_hits_total",
        "Reads that found an entry, of PHP and over RPC.",
        reads(|it| it.hits),
    );
    registry.counted(
        "kv_misses_total",
        "Reads that found none.",
        reads(|it| it.misses),
    );
    registry.counted(
        "kv_writes_total",
        "Entries that were written or removed.",
        reads(|it| it.writes),
    );
    registry.counted(
        "kv_evictions_total",
        "Entries that had to go although their time was not over.",
        reads(|it| it.evictions),
    );
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a number beyond 2^53 may be rounded"
)]
const fn number(count: u64) -> f64 {
    count as f64
}
