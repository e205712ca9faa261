//! The pools whose workers run jobs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use pronghorn_queue::Wake;

use super::error::{PipelineError, what_there_is};
use super::turns::Turns;

/// The pools of a server for jobs. Clones are the same ones.
#[derive(Clone)]
pub(super) struct ConsumerPools(Arc<Mutex<HashMap<String, Arc<ConsumerPool>>>>);

/// A pool, and the pipelines whose jobs its workers run.
pub(super) struct ConsumerPool {
    pub(super) name: String,
    /// Wakes its consumer.
    pub(super) wake: Wake,
    /// The lock is taken before that of the registry.
    pub(super) turns: Mutex<Turns>,
}

impl ConsumerPool {
    fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            wake: Wake::default(),
            turns: Mutex::default(),
        })
    }
}

impl ConsumerPools {
    pub(super) fn new<'a>(pools: impl Iterator<Item = &'a str>) -> Self {
        let pools = pools.map(|pool| (pool.to_owned(), ConsumerPool::new(pool)));
        Self(Arc::new(Mutex::new(pools.collect())))
    }

    pub(super) fn get(&self, pool: &str) -> Arc<ConsumerPool> {
        let mut pools = lock(&self.0);
        if let Some(known) = pools.get(pool) {
            return known.clone();
        }
        let new = ConsumerPool::new(pool);
        pools.insert(pool.to_owned(), new.clone());
        new
    }

    /// # Errors
    ///
    /// When there is no such pool.
    pub(super) fn expect(&self, pool: &str) -> Result<(), PipelineError> {
        let known = lock(&self.0);
        if known.contains_key(pool) {
            return Ok(());
        }
        let mut pools: Vec<_> = known.keys().map(String::as_str).collect();
        pools.sort_unstable();
        let hint = what_there_is(pool, pools.into_iter());
        let name = pool.escape_debug();
        Err(PipelineError::Refused(format!(
            "there is no pool `{name}`{hint}"
        )))
    }
}
