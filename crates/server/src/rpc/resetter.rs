//! `resetter`: new workers and processes in place of the old ones, and caches that are emptied.

use pronghorn_plugin_api::InOrder;
use pronghorn_plugin_api::rpc::{Failure, Methods};

use super::Operated;

pub(super) fn add(methods: &Methods, operated: &Operated) {
    let resetter = methods.service("resetter", operated.clone());
    resetter.add("List", async |operated: Operated, _: bool| {
        let caches = operated.caches.names().into_iter().map(ToOwned::to_owned);
        Ok(operated
            .with_processes()
            .into_iter()
            .chain(caches)
            .collect::<Vec<_>>())
    });
    resetter.add("Reset", reset);
}

/// Several programs at a time, and one pool after the other; one that fails does not keep the
/// others from it.
async fn reset(operated: Operated, name: String) -> Result<bool, Failure> {
    if operated.caches.forget(&name) {
        return Ok(true);
    }
    let programs = operated.health.processes().restartable(&name);
    let pools = operated.pools(&name);
    if pools.is_none() && programs.is_empty() {
        return Err(Failure::new(format!(
            "resetter_rpc_reset:\n\tresetter_plugin_reset_by_name: no such plugin: {name}"
        )));
    }
    let mut failures = Vec::new();
    let work = programs.into_iter().map(|program| {
        let order = program.order;
        let restarting = async move {
            let restarted = program.restart().await;
            restarted.map_err(|why| format!("{}: {why}", program.group))
        };
        (order, restarting)
    });
    let mut restarting = InOrder::new(work);
    while let Some(restarted) = restarting.next().await {
        failures.extend(restarted.err());
    }
    for pool in pools.unwrap_or_default() {
        if let Err(why) = pool.reload().await {
            failures.push(why.to_string());
        }
    }
    if failures.is_empty() {
        return Ok(true);
    }
    Err(Failure::new(format!(
        "resetter_rpc_reset:\n\t{}",
        failures.join("\n\t")
    )))
}
