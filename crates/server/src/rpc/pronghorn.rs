//! `pronghorn`: what RoadRunner has no method for.

use std::path::Path;
use std::time::Duration;

use pronghorn_plugin_api::rpc::{Argument, Caller, Failure, Methods, Outcome};
use pronghorn_pool::NotExtended;
use pronghorn_workers::PoolHandle;
use serde::{Deserialize, Serialize};

use super::Operated;
use crate::VERSION;

/// More time for the call that a worker is at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Extension {
    pid: u32,
    /// From now.
    seconds: f64,
}

/// From now; it may be less than what was asked for.
#[derive(Serialize)]
struct Extended {
    seconds: f64,
}

/// Which server answers, for a command that knows an address alone.
#[derive(Clone, Serialize)]
pub(super) struct Identity {
    version: &'static str,
    pid: u32,
    /// Empty for a server without a configuration.
    config: String,
    /// Where it works.
    directory: String,
}

impl Outcome for Identity {}

impl Identity {
    pub(super) fn of(config: Option<&Path>, directory: &Path) -> Self {
        let shown = |path: &Path| path.display().to_string();
        Self {
            version: VERSION,
            pid: std::process::id(),
            config: config.map(shown).unwrap_or_default(),
            directory: shown(directory),
        }
    }
}

impl Argument for Extension {}

impl Outcome for Extended {}

pub(super) fn add(methods: &Methods, operated: &Operated, identity: Identity) {
    let operated = operated.clone();
    let pronghorn = methods.service_by_caller("pronghorn", move |caller: &Caller| {
        let mut pools = operated.all_pools();
        if let Some(borders) = caller.borders() {
            pools.retain(|pool| pool.name() == borders.pool);
        }
        pools
    });
    pronghorn.add("Extend", extend);
    let own = methods.service("pronghorn", identity);
    own.add("Server", async |identity: Identity, _: bool| Ok(identity));
}

/// A worker has more time granted to its own pool's calls alone.
async fn extend(pools: Vec<PoolHandle>, extension: Extension) -> Result<Extended, Failure> {
    let Extension { pid, seconds } = extension;
    let time = Duration::try_from_secs_f64(seconds).ok();
    let Some(time) = time.filter(|time| !time.is_zero()) else {
        return Err(Failure::new(format!(
            "a call cannot be extended by {seconds} seconds"
        )));
    };
    let mut failure = NotExtended::NoWorker(pid);
    for pool in pools {
        match pool.extend(pid, time).await {
            Ok(time) => {
                let seconds = time.as_secs_f64();
                return Ok(Extended { seconds });
            }
            Err(NotExtended::NoWorker(_)) => {}
            Err(why) => failure = why,
        }
    }
    Err(Failure::new(failure.to_string()))
}
