//! Whether servers of their own answer: asked from time to time, so that readiness knows it without
//! a call, and told to the log when it changes.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::driver::Driver;
use crate::storages::Storages;

const LOG: &str = "kv";

/// While it answers.
const EVERY: Duration = Duration::from_secs(5);
/// While it does not: readiness waits for it.
const EVERY_AWAY: Duration = Duration::from_secs(1);

/// Watches all storages that are servers of their own, until it is dropped.
pub(crate) fn watch(storages: &Storages) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for (name, driver) in storages.iter() {
        if driver.probe().is_some() {
            tasks.spawn(watch_one(name.to_owned(), driver.clone()));
        }
    }
    tasks
}

async fn watch_one(storage: String, driver: Arc<dyn Driver>) {
    let mut was_away = false;
    while let Some(probe) = driver.probe() {
        let wrong = probe.await.err();
        match &wrong {
            Some(wrong) if !was_away => {
                warn!(target: LOG, storage, "the storage is away: {wrong}");
            }
            None if was_away => info!(target: LOG, storage, "the storage is back"),
            _ => {}
        }
        was_away = wrong.is_some();
        sleep(if was_away { EVERY_AWAY } else { EVERY }).await;
    }
}
