//! `pronghorn`: what RoadRunner has no method for.

use std::time::Duration;

use pronghorn_plugin_api::rpc::{Argument, Failure, Methods, Outcome};
use pronghorn_pool::NotExtended;
use serde::{Deserialize, Serialize};

use super::Operated;

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

impl Argument for Extension {}

impl Outcome for Extended {}

pub(super) fn add(methods: &Methods, operated: &Operated) {
    let pronghorn = methods.service("pronghorn", operated.clone());
    pronghorn.add("Extend", extend);
}

async fn extend(operated: Operated, extension: Extension) -> Result<Extended, Failure> {
    let Extension { pid, seconds } = extension;
    let time = Duration::try_from_secs_f64(seconds).ok();
    let Some(time) = time.filter(|time| !time.is_zero()) else {
        return Err(Failure::new(format!(
            "a call cannot be extended by {seconds} seconds"
        )));
    };
    let mut failure = NotExtended::NoWorker(pid);
    for pool in operated.all_pools() {
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
