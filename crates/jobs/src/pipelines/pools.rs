//! The pools whose workers run jobs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use pronghorn_queue::Wake;

use super::error::{PipelineError, what_there_is};

/// Each pool with what wakes its consumer. Clones are the same ones.
#[derive(Clone)]
pub(super) struct ConsumerPools(Arc<Mutex<HashMap<String, Wake>>>);

impl ConsumerPools {
    pub(super) fn new<'a>(pools: impl Iterator<Item = &'a str>) -> Self {
        let wakes = pools.map(|pool| (pool.to_owned(), Wake::default()));
        Self(Arc::new(Mutex::new(wakes.collect())))
    }

    pub(super) fn wake_of(&self, pool: &str) -> Wake {
        let mut wakes = lock(&self.0);
        wakes.entry(pool.to_owned()).or_default().clone()
    }

    /// # Errors
    ///
    /// When there is no such pool.
    pub(super) fn expect(&self, pool: &str) -> Result<(), PipelineError> {
        let wakes = lock(&self.0);
        if wakes.contains_key(pool) {
            return Ok(());
        }
        let mut pools: Vec<_> = wakes.keys().map(String::as_str).collect();
        pools.sort_unstable();
        let hint = what_there_is(pool, pools.into_iter());
        let name = pool.escape_debug();
        Err(PipelineError::Refused(format!(
            "there is no pool `{name}`{hint}"
        )))
    }
}
