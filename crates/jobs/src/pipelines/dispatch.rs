//! Which job is next, for which worker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::error::PipelineError;
use super::pipeline::{Pipeline, Work};
use super::pools::{ConsumerPool, ConsumerPools};
use super::registry::Registry;

/// Gives jobs to free workers. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Dispatch(Arc<Shared>);

struct Shared {
    registry: Registry,
    pools: ConsumerPools,
    /// Says how many workers each pool has.
    workers: Mutex<HashMap<String, Box<dyn Fn() -> usize + Send + Sync>>>,
    /// Cancelled when no job begins here any more.
    nothing_begins: CancellationToken,
}

impl Dispatch {
    pub(super) fn new(registry: Registry, pools: ConsumerPools) -> Self {
        Self(Arc::new(Shared {
            registry,
            pools,
            workers: Mutex::default(),
            nothing_begins: CancellationToken::new(),
        }))
    }

    pub(crate) fn pause(&self, name: &str) -> Result<(), PipelineError> {
        self.0.registry.get(name)?.consume(false);
        tracing::info!(target: "jobs", pipeline = name, "the pipeline is paused");
        Ok(())
    }

    pub(crate) fn resume(&self, name: &str) -> Result<(), PipelineError> {
        self.0.registry.get(name)?.consume(true);
        Ok(())
    }

    /// Says how many workers a pool has, when it is asked.
    pub(crate) fn count_workers(
        &self,
        pool: &str,
        count: impl Fn() -> usize + Send + Sync + 'static,
    ) {
        lock(&self.0.workers).insert(pool.to_owned(), Box::new(count));
    }

    /// How many workers run the jobs of a pipeline.
    pub(crate) fn consumers(&self, pipeline: &Pipeline) -> usize {
        let workers = lock(&self.0.workers);
        let count = workers.get(&pipeline.pool).filter(|_| pipeline.consumes());
        count.map_or(0, |count| count())
    }

    /// Cancelled when no job begins here any more.
    pub(crate) fn nothing_begins(&self) -> &CancellationToken {
        &self.0.nothing_begins
    }

    /// Waits for a job for one of so many free workers of a pool: the best one of its pipelines.
    /// Where none is free, the job is to be at hand for one, and comes from a pipeline whose jobs
    /// are this server's own: others may have free workers for the rest. Cancel safe.
    pub(crate) async fn next(&self, pool: &str, free: usize) -> Work {
        let pool = self.0.pools.get(pool);
        loop {
            if let Some(work) = self.take(&pool, free, Instant::now()) {
                return work;
            }
            self.want_of(&pool, free);
            let due = lock(&pool.turns).next_due();
            let due_comes = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = pool.wake.woken() => {}
                () = due_comes => {}
            }
        }
    }

    /// Tells drivers how many workers are free.
    pub(crate) fn want(&self, pool: &str, free: usize) {
        self.want_of(&self.0.pools.get(pool), free);
    }

    /// Pipelines of this server have their jobs at hand.
    fn want_of(&self, pool: &ConsumerPool, free: usize) {
        let turns = lock(&pool.turns);
        for name in turns.shared() {
            let Some(pipeline) = self.pipeline_of(pool, name) else {
                continue;
            };
            let free = if pipeline.next_place(Instant::now()).is_none() {
                free.min(pipeline.places_left())
            } else {
                0
            };
            pipeline.driver.want(free);
        }
    }

    fn pipeline_of(&self, pool: &ConsumerPool, name: &str) -> Option<Arc<Pipeline>> {
        let pipeline = self.0.registry.named(name);
        pipeline.filter(|pipeline| pipeline.pool == pool.name)
    }

    fn take(&self, pool: &ConsumerPool, free: usize, now: Instant) -> Option<Work> {
        let look = |name: &str| Some(self.pipeline_of(pool, name)?.look(now));
        let take = |name: &str| {
            let pipeline = self.pipeline_of(pool, name)?;
            let delivery = pipeline.driver.take(now)?;
            let place = pipeline.occupy(now);
            Some(Work {
                pipeline,
                delivery,
                place,
            })
        };
        let mut turns = lock(&pool.turns);
        turns.take(pool.wake.names(), free == 0, now, look, take)
    }
}
