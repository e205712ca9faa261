//! `resetter`: new workers in place of the old ones, and caches that are emptied.

use pronghorn_plugin_api::rpc::{Failure, Methods};

use super::Operated;

pub(super) fn add(methods: &Methods, operated: &Operated) {
    let resetter = methods.service("resetter", operated.clone());
    resetter.add("List", async |operated: Operated, _: bool| {
        let caches = operated.caches.names().into_iter().map(ToOwned::to_owned);
        Ok(operated
            .names()
            .into_iter()
            .chain(caches)
            .collect::<Vec<_>>())
    });
    resetter.add("Reset", reset);
}

/// One pool after the other; one that fails does not keep the others from it.
async fn reset(operated: Operated, name: String) -> Result<bool, Failure> {
    if operated.caches.forget(&name) {
        return Ok(true);
    }
    let Some(pools) = operated.pools(&name) else {
        return Err(Failure::new(format!(
            "resetter_rpc_reset:\n\tresetter_plugin_reset_by_name: no such plugin: {name}"
        )));
    };
    let mut failures = Vec::new();
    for pool in pools {
        if let Err(why) = pool.reload().await {
            failures.push(why);
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
