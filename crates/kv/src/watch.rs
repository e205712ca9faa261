//! Whether servers of their own answer: asked from time to time, so that readiness knows it without
//! a call, and told to the log when it changes.

use std::sync::Arc;

use pronghorn_base::{PeerChange, watch_peer};
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::driver::Driver;
use crate::storages::Storages;

const LOG: &str = "kv";

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
    let ask = || async {
        match driver.probe() {
            Some(probe) => probe.await.map_err(|wrong| wrong.to_string()),
            None => Ok(()),
        }
    };
    let tell = |change, wrong: &str| match change {
        PeerChange::Lost => warn!(target: LOG, storage, "the storage is away: {wrong}"),
        PeerChange::Found | PeerChange::Back => info!(target: LOG, storage, "the storage is back"),
    };
    watch_peer(ask, tell).await;
}
