//! Which job is next, for which worker.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use pronghorn_queue::SHARE;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::error::PipelineError;
use super::pipeline::{Pipeline, Work};
use super::pools::ConsumerPools;
use super::registry::Registry;

/// Gives jobs to free workers. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Dispatch(Arc<Shared>);

struct Shared {
    registry: Registry,
    pools: ConsumerPools,
    turns: Mutex<Turns>,
    /// Says how many workers each pool has.
    workers: Mutex<HashMap<String, Box<dyn Fn() -> usize + Send + Sync>>>,
    /// Cancelled when no job begins here any more.
    nothing_begins: CancellationToken,
}

/// Which pipeline is to have its turn. Its lock is taken before that of the registry.
#[derive(Default)]
struct Turns {
    /// Jobs taken since one had its turn that was not the best.
    taken: u32,
    /// The pipeline that had a job last.
    last: String,
}

impl Dispatch {
    pub(super) fn new(registry: Registry, pools: ConsumerPools) -> Self {
        Self(Arc::new(Shared {
            registry,
            pools,
            turns: Mutex::default(),
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
        let wake = self.0.pools.wake_of(pool);
        loop {
            let now = Instant::now();
            if let Some(work) = self.take(pool, free, now) {
                return work;
            }
            self.want(pool, free);
            let due = self.of_pool(pool, |pipeline| pipeline.next_due(now));
            let due_comes = async {
                match due.into_iter().flatten().min() {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wake.woken() => {}
                () = due_comes => {}
            }
        }
    }

    /// Tells drivers how many workers are free.
    pub(crate) fn want(&self, pool: &str, free: usize) {
        self.of_pool(pool, |pipeline| {
            let free = if pipeline.next_place(Instant::now()).is_none() {
                free.min(pipeline.places_left())
            } else {
                0
            };
            pipeline.driver.want(free);
        });
    }

    fn of_pool<T>(&self, pool: &str, of: impl Fn(&Pipeline) -> T) -> Vec<T> {
        self.0.registry.look(|pipelines| {
            let mine = pipelines.values().filter(|it| it.pool == pool);
            mine.map(|pipeline| of(pipeline)).collect()
        })
    }

    fn take(&self, pool: &str, free: usize, now: Instant) -> Option<Work> {
        let mut turns = lock(&self.0.turns);
        let Turns { taken, last } = &mut *turns;
        let pipeline = self.0.registry.look(|pipelines| {
            let has_job = |(_, pipeline): (_, &Arc<Pipeline>)| {
                if pipeline.pool != pool || pipeline.places_left() == 0 {
                    return None;
                }
                if free == 0 && !pipeline.is_ours() {
                    return None;
                }
                let head = pipeline.driver.head(now)?;
                pipeline
                    .next_place(now)
                    .is_none()
                    .then(|| (head, pipeline.clone()))
            };
            // From the one behind that of the last job on, so that equal ones take turns.
            let behind = (Bound::Excluded(last.as_str()), Bound::Unbounded);
            let until = (Bound::Unbounded, Bound::Included(last.as_str()));
            let behind = pipelines.range::<str, _>(behind);
            let until = pipelines.range::<str, _>(until);
            let mut heads = behind.chain(until).filter_map(has_job);
            let best = if *taken + 1 >= SHARE {
                heads.next()
            } else {
                heads.min_by_key(|(head, _)| *head)
            };
            best.map(|(_, pipeline)| pipeline)
        })?;
        let delivery = pipeline.driver.take(now)?;
        *taken = (*taken + 1) % SHARE;
        last.clone_from(&pipeline.name);
        let place = pipeline.occupy(now);
        Some(Work {
            pipeline,
            delivery,
            place,
        })
    }
}
