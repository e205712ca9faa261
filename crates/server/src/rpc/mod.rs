//! RPC methods that act on the server itself: RoadRunner's `informer`, `resetter` and `status`, and `pronghorn`, our own.

mod informer;
mod pronghorn;
mod resetter;
mod status;

use std::sync::{Arc, OnceLock};

use pronghorn_plugin_api::rpc::Methods;

use crate::health::Health;
use crate::http::Site;
use crate::workers::Workers;

/// RoadRunner's name for all pools of HTTP.
const HTTP: &str = "http";

/// Adds the methods. The pools are there once HTTP has started.
pub(crate) fn add(
    methods: &Methods,
    health: &Health,
    site: &Arc<OnceLock<Site>>,
    unavailable: u16,
) {
    let operated = Operated {
        health: health.clone(),
        site: site.clone(),
    };
    informer::add(methods, &operated);
    resetter::add(methods, &operated);
    pronghorn::add(methods, &operated);
    status::add(methods, health, unavailable);
}

/// What the methods act on.
#[derive(Clone)]
struct Operated {
    health: Health,
    site: Arc<OnceLock<Site>>,
}

impl Operated {
    /// Services with workers.
    fn names(&self) -> Vec<String> {
        self.health.names().map(ToOwned::to_owned).collect()
    }

    /// The pools that a name stands for: all of HTTP, or one by its own name. None when there are no such.
    fn pools(&self, name: &str) -> Option<Vec<Workers>> {
        let pools = &self.site.get()?.pools;
        if name == HTTP {
            return Some(pools.iter().cloned().collect());
        }
        pools.get(name).cloned().map(|pool| vec![pool])
    }
}
