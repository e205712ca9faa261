//! The pipelines of a server: which there are, and what people and PHP do with them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_store::{LazyStore, OpenError};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::drivers::{Delivery, Driver, DriverError, Embedded, Memory, Stat, Wake};
use crate::job::Job;
use crate::messages::Pushed;
use crate::metrics::Metrics;
use crate::settings::{DriverSettings, MOST_PIPELINES, PipelineSettings};

/// One job in so many is of another pipeline than the one with the best priority, each in turn.
const SHARE: u32 = 8;

/// Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Pipelines(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    store: LazyStore,
    wake: Wake,
    /// A pipeline was opened, or could not be.
    opened: Notify,
    /// What each thing that is asked of a driver may take.
    patience: Duration,
    metrics: Metrics,
}

#[derive(Default)]
struct State {
    pipelines: BTreeMap<String, Arc<Pipeline>>,
    /// Names that are being declared.
    opening: Vec<String>,
    taken: u32,
    /// The pipeline that had a job last.
    turn: String,
}

/// One of them.
pub(crate) struct Pipeline {
    pub(crate) name: String,
    /// As the configuration names it.
    pub(crate) driver_name: &'static str,
    /// Of jobs that have none.
    pub(crate) priority: i64,
    pub(crate) driver: Arc<dyn Driver>,
    consumes: AtomicBool,
}

/// A job that a worker is to do.
pub(crate) struct Work {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) delivery: Delivery,
}

/// Why something was not done with a pipeline. The texts of the first two are RoadRunner's.
#[derive(Debug, Error)]
pub(crate) enum PipelineError {
    #[error("no such pipeline, requested: {0}")]
    Unknown(String),
    #[error("pipeline already exists, name: {name}, driver: {driver}")]
    Exists { name: String, driver: &'static str },
    #[error("there are {MOST_PIPELINES} pipelines already, and no more are taken")]
    TooMany,
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("the driver of pipeline {0} did not answer in time; it may have done it all the same")]
    Late(String),
    #[error("pipeline {name} is not ready: {why}")]
    NotReady { name: String, why: String },
}

impl Pipelines {
    pub(crate) fn new(store: LazyStore, patience: Duration, metrics: Metrics) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            store,
            wake: Wake::default(),
            opened: Notify::new(),
            patience,
            metrics,
        }))
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Adds a pipeline, which gives out no jobs before it is resumed.
    pub(crate) async fn declare(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<(), PipelineError> {
        {
            let mut state = lock(&self.0.state);
            let known = state.pipelines.get(name);
            if known.is_some() || state.opening.iter().any(|opening| opening == name) {
                return Err(PipelineError::Exists {
                    name: name.to_owned(),
                    driver: settings.driver.name(),
                });
            }
            if state.pipelines.len() + state.opening.len() >= MOST_PIPELINES {
                return Err(PipelineError::TooMany);
            }
            state.opening.push(name.to_owned());
        }
        self.open_announced(name, settings).await
    }

    /// Reserves a name for a pipeline that is opened later; who pushes waits for it.
    pub(crate) fn announce(&self, name: &str) {
        lock(&self.0.state).opening.push(name.to_owned());
    }

    pub(crate) async fn open_announced(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<(), PipelineError> {
        let opened = self.open(name, settings).await;
        let mut state = lock(&self.0.state);
        state.opening.retain(|opening| opening != name);
        let opened = opened.map(|pipeline| {
            state.pipelines.insert(name.to_owned(), Arc::new(pipeline));
        });
        drop(state);
        self.0.opened.notify_waiters();
        opened
    }

    async fn open(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<Pipeline, PipelineError> {
        let wake = self.0.wake.clone();
        let driver: Arc<dyn Driver> = match settings.driver {
            DriverSettings::Memory { max_size } => Arc::new(Memory::new(max_size, wake)),
            DriverSettings::Embedded { .. } => {
                let store = self.0.store.get().await?;
                Arc::new(Embedded::open(name, store, wake).await?)
            }
        };
        Ok(Pipeline {
            name: name.to_owned(),
            driver_name: settings.driver.name(),
            priority: settings.priority,
            driver,
            consumes: AtomicBool::new(false),
        })
    }

    /// Keeps jobs. Those of one pipeline are kept together, or none of them.
    pub(crate) async fn push(&self, jobs: Pushed) -> Result<(), PipelineError> {
        let mut by_pipeline: BTreeMap<String, Vec<Job>> = BTreeMap::new();
        for (pipeline, job) in jobs {
            by_pipeline.entry(pipeline).or_default().push(job);
        }
        let mut parts = Vec::with_capacity(by_pipeline.len());
        for (name, jobs) in by_pipeline {
            parts.push((self.get_open(&name).await?, jobs));
        }
        for (pipeline, mut jobs) in parts {
            for job in &mut jobs {
                if job.priority == 0 {
                    job.priority = pipeline.priority;
                }
            }
            let (started, count) = (Instant::now(), jobs.len() as u64);
            let pushed = timeout(self.0.patience, pipeline.driver.push(jobs)).await;
            let pushed = match pushed {
                Ok(pushed) => pushed.map_err(PipelineError::from),
                Err(_) => Err(pipeline.late()),
            };
            let took = started.elapsed();
            self.0.metrics.pushed(count, took, pushed.is_ok());
            pushed?;
        }
        Ok(())
    }

    pub(crate) fn pause(&self, name: &str) -> Result<(), PipelineError> {
        self.get(name)?.consume(false);
        Ok(())
    }

    pub(crate) fn resume(&self, name: &str) -> Result<(), PipelineError> {
        self.get(name)?.consume(true);
        Ok(())
    }

    /// Takes a pipeline away. Jobs in memory go with it; those in a store stay there.
    pub(crate) async fn destroy(&self, name: &str) -> Result<(), PipelineError> {
        let pipeline = lock(&self.0.state).pipelines.remove(name);
        let pipeline = pipeline.ok_or_else(|| PipelineError::Unknown(name.to_owned()))?;
        pipeline.consume(false);
        let closed = timeout(self.0.patience, pipeline.driver.close()).await;
        closed.map_err(|_| pipeline.late())
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Pipeline>> {
        lock(&self.0.state).pipelines.values().cloned().collect()
    }

    pub(crate) async fn stat(&self, pipeline: &Pipeline) -> Result<Stat, PipelineError> {
        let stat = timeout(self.0.patience, pipeline.driver.stat()).await;
        Ok(stat.map_err(|_| pipeline.late())??)
    }

    /// How many jobs workers have.
    pub(crate) async fn reserved(&self) -> u64 {
        let mut reserved = 0;
        for pipeline in self.all() {
            reserved += self.stat(&pipeline).await.map_or(0, |stat| stat.reserved);
        }
        reserved
    }

    /// At the end of the server, jobs in memory end with it.
    pub(crate) async fn say_what_is_lost(&self) {
        for pipeline in self.all() {
            let Ok(stat) = self.stat(&pipeline).await else {
                continue;
            };
            let jobs = stat.active + stat.delayed + stat.reserved;
            if pipeline.driver_name == "memory" && jobs > 0 {
                let pipeline = &pipeline.name;
                tracing::warn!(target: "jobs", pipeline, jobs, "jobs in memory end with the server");
            }
        }
    }

    /// Whether all pipelines that consume can; else what is wrong with the first that can't.
    pub(crate) fn ready(&self) -> Result<(), String> {
        let state = lock(&self.0.state);
        let mut consuming = state.pipelines.values().filter(|it| it.consumes());
        consuming.try_for_each(|pipeline| {
            let health = pipeline.driver.health();
            health.map_err(|why| format!("pipeline `{}`: {why}", pipeline.name))
        })
    }

    /// Gives back what was taken and is not settled.
    pub(crate) async fn close(&self) {
        let mut closing = JoinSet::new();
        for pipeline in self.all() {
            closing.spawn(async move { pipeline.driver.close().await });
        }
        closing.join_all().await;
    }

    /// Waits for one that is being opened.
    async fn get_open(&self, name: &str) -> Result<Arc<Pipeline>, PipelineError> {
        let open = async {
            loop {
                let mut opened = std::pin::pin!(self.0.opened.notified());
                opened.as_mut().enable();
                let pipeline = self.get(name);
                if pipeline.is_ok() || !self.is_opening(name) {
                    return pipeline;
                }
                opened.await;
            }
        };
        let late = |_| PipelineError::Late(name.to_owned());
        timeout(self.0.patience, open).await.map_err(late)?
    }

    fn is_opening(&self, name: &str) -> bool {
        let state = lock(&self.0.state);
        state.opening.iter().any(|opening| opening == name)
    }

    fn get(&self, name: &str) -> Result<Arc<Pipeline>, PipelineError> {
        let state = lock(&self.0.state);
        let exact = state.pipelines.get(name);
        // RoadRunner reads names from its file in lower case, so PHP may use those.
        let similar = || {
            let mut all = state.pipelines.values();
            all.find(|pipeline| pipeline.name.eq_ignore_ascii_case(name))
        };
        let pipeline = exact.or_else(similar).cloned();
        pipeline.ok_or_else(|| PipelineError::Unknown(name.to_owned()))
    }

    /// Waits for a job for one of so many free workers: the best one of all pipelines. Cancel safe.
    pub(crate) async fn next(&self, free: usize) -> Work {
        loop {
            let now = Instant::now();
            if let Some(work) = self.take(now) {
                return work;
            }
            self.want(free);
            let due = self.all().into_iter().filter_map(|p| p.driver.next_due());
            let due = due.min();
            let due_comes = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.0.wake.woken() => {}
                () = due_comes => {}
            }
        }
    }

    /// Tells drivers how many workers are free.
    pub(crate) fn want(&self, free: usize) {
        let state = lock(&self.0.state);
        for pipeline in state.pipelines.values() {
            pipeline.driver.want(free);
        }
    }

    fn take(&self, now: Instant) -> Option<Work> {
        let mut state = lock(&self.0.state);
        let State {
            pipelines,
            taken,
            turn,
            ..
        } = &mut *state;
        // From the one behind that of the last job on, so that equal ones take turns.
        let behind = (Bound::Excluded(turn.as_str()), Bound::Unbounded);
        let until = (Bound::Unbounded, Bound::Included(turn.as_str()));
        let behind = pipelines.range::<str, _>(behind);
        let until = pipelines.range::<str, _>(until);
        let has_job = |(_, pipeline): (_, &Arc<Pipeline>)| {
            let head = pipeline.driver.head(now)?;
            Some((head, pipeline.clone()))
        };
        let mut heads = behind.chain(until).filter_map(has_job);
        let pipeline = if *taken + 1 >= SHARE {
            heads.next()?.1
        } else {
            heads.min_by_key(|(head, _)| *head)?.1
        };
        let delivery = pipeline.driver.take(now)?;
        *taken = (*taken + 1) % SHARE;
        turn.clone_from(&pipeline.name);
        Some(Work { pipeline, delivery })
    }
}

impl Pipeline {
    /// What the engine calls the place of its jobs.
    pub(crate) fn queue(&self) -> &str {
        self.driver.queue().unwrap_or(&self.name)
    }

    fn late(&self) -> PipelineError {
        let name = self.name.clone();
        match self.driver.health() {
            Ok(()) => PipelineError::Late(name),
            Err(why) => PipelineError::NotReady { name, why },
        }
    }

    pub(crate) fn consumes(&self) -> bool {
        self.consumes.load(Ordering::Relaxed)
    }

    fn consume(&self, consumes: bool) {
        self.consumes.store(consumes, Ordering::Relaxed);
        if consumes {
            self.driver.resume();
        } else {
            self.driver.pause();
        }
    }
}
