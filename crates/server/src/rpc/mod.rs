//! RPC methods that act on the server itself: RoadRunner's `informer` and `resetter`, `app` for the
//! log, and `pronghorn`, our own.

mod app;
mod informer;
mod pronghorn;
mod resetter;

use std::path::Path;

use pronghorn_plugin_api::{Caches, Context, Health};
use pronghorn_workers::{PoolHandle, Pools};

/// Adds the methods. There are pools where a service has workers, and a server may have no
/// configuration.
pub(crate) fn add(
    context: &Context,
    health: &Health,
    pools: Option<&Pools>,
    config: Option<&Path>,
) {
    let methods = &context.rpc;
    let operated = Operated {
        health: health.clone(),
        pools: pools.cloned(),
        caches: context.caches.clone(),
    };
    app::add(methods);
    informer::add(methods, &operated);
    resetter::add(methods, &operated);
    let identity = pronghorn::Identity::of(config, context.directory());
    pronghorn::add(methods, &operated, identity);
}

/// What the methods act on.
#[derive(Clone)]
struct Operated {
    health: Health,
    pools: Option<Pools>,
    caches: Caches,
}

impl Operated {
    /// Services with workers.
    fn names(&self) -> Vec<String> {
        self.health.names().map(ToOwned::to_owned).collect()
    }

    /// The same, and services with other processes.
    fn with_processes(&self) -> Vec<String> {
        let mut names = self.names();
        for service in self.health.processes().services() {
            if !names.iter().any(|known| known == service) {
                names.push(service.to_owned());
            }
        }
        names
    }

    /// The pools that a name stands for: all of a service, or one by its own name. None when there
    /// are no such.
    fn pools(&self, name: &str) -> Option<Vec<PoolHandle>> {
        let pools = self.pools.as_ref()?.named(name);
        (!pools.is_empty()).then_some(pools)
    }

    fn all_pools(&self) -> Vec<PoolHandle> {
        self.pools.as_ref().map(Pools::all).unwrap_or_default()
    }
}
