//! The pipelines of a server: which there are, and what people and PHP do with them.

mod batched;
mod expiry;
mod kept_keys;
mod left_behind;
mod removing;
mod standing;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{lock, now_ms, with_causes};
use pronghorn_brokers::{Brokers, OpenFailure, Opening};
use pronghorn_plugin_api::QueueReport;
use pronghorn_queue::extras::{self, Extras, Unique};
use pronghorn_queue::{
    Delivery, Driver, DriverError, Job, Keeper, Memory, OpenPipelines, Part, Stat, Wake,
};
use pronghorn_store::{LazyStore, OpenError};
use thiserror::Error;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::batches::{BatchError, Batches};
use crate::dead::{DeadError, DeadLetters};
use crate::keys::{self, Keys, NotTaken};
use crate::messages::Pushed;
use crate::meter::Meter;
use crate::metrics::{Metrics, PipelineMetrics};
use crate::recent::Recent;
use crate::results::{Dropped, Ended, Results};
use crate::rules::{Rules, Window};
use crate::settings::{DriverSettings, MOST_PIPELINES, PipelineSettings};

pub(crate) use self::standing::Standing;

/// Of the pipelines that there are, in a complaint.
const MOST_NAMED: usize = 10;

/// One job in so many is of another pipeline than the one with the best priority, each in turn.
const SHARE: u32 = 8;

/// Who looks at all pipelines waits so long for one whose broker is away, which says so itself.
const GLANCE: Duration = Duration::from_secs(2);

/// Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Pipelines(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    store: LazyStore,
    /// Of each pool's consumer.
    wakes: Mutex<HashMap<String, Wake>>,
    keys: Keys,
    results: Results,
    dead: DeadLetters,
    batches: Batches,
    recent: Recent,
    /// Says how many workers each pool has.
    workers: Mutex<HashMap<String, Box<dyn Fn() -> usize + Send + Sync>>>,
    /// Those in the store.
    stored: OpenPipelines,
    /// A pipeline was opened, or could not be.
    opened: Notify,
    /// There may be a job that expires.
    expiring: Notify,
    /// Cancelled when no job begins here any more.
    nothing_begins: CancellationToken,
    /// What each thing that is asked of a driver may take.
    patience: Duration,
    metrics: Metrics,
    /// Of pipelines that are declared.
    brokers: Brokers,
}

#[derive(Default)]
struct State {
    pipelines: BTreeMap<String, Arc<Pipeline>>,
    /// Names that are being declared.
    opening: Vec<String>,
    /// Destroyed, and workers have jobs of them.
    leaving: Vec<Arc<Pipeline>>,
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
    /// Whose workers run its jobs, those that name no other.
    pub(crate) pool: String,
    pub(crate) rules: Rules,
    pub(crate) driver: Arc<dyn Driver>,
    consumes: AtomicBool,
    /// It was destroyed.
    leaves: AtomicBool,
    /// Jobs that workers have.
    occupied: AtomicUsize,
    ended: Meter,
    pub(crate) metrics: PipelineMetrics,
    rate: Option<Window>,
    wake: Wake,
}

/// A job that a worker is to do.
pub(crate) struct Work {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) delivery: Delivery,
    pub(crate) place: Occupied,
}

/// One of the places of a pipeline, until it is dropped.
pub(crate) struct Occupied(Arc<Pipeline>);

impl Drop for Occupied {
    fn drop(&mut self) {
        // In one order with the note that the pipeline leaves: one of the two sees the other.
        self.0.occupied.fetch_sub(1, Ordering::SeqCst);
        if self.0.rules.concurrency.is_some() {
            self.0.wake.wake();
        }
    }
}

/// Why something was not done with a pipeline. The texts of the first two are RoadRunner's.
#[derive(Debug, Error)]
pub(crate) enum PipelineError {
    #[error("no such pipeline, requested: {name}{hint}")]
    Unknown {
        name: String,
        /// What there is, behind RoadRunner's words.
        hint: String,
    },
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
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(
        "{} jobs with the option `unique` wait or run already, and no more are taken",
        keys::MOST
    )]
    TooManyKeys,
    #[error("{0}")]
    Refused(String),
    #[error("pipeline {name} is not ready: {why}")]
    NotReady { name: String, why: String },
}

impl From<OpenFailure> for PipelineError {
    fn from(failure: OpenFailure) -> Self {
        match failure {
            OpenFailure::Store(error) => Self::Store(error),
            OpenFailure::Driver(error) => Self::Driver(error),
            OpenFailure::NotBuilt(_) => Self::Refused(failure.to_string()),
        }
    }
}

impl Pipelines {
    /// For consumers with these pools.
    pub(crate) fn new<'a>(
        store: LazyStore,
        patience: Duration,
        metrics: Metrics,
        pools: impl Iterator<Item = &'a str>,
        brokers: Brokers,
    ) -> Self {
        let wakes = pools.map(|pool| (pool.to_owned(), Wake::default()));
        Self(Arc::new(Shared {
            state: Mutex::default(),
            dead: DeadLetters::new(store.clone()),
            batches: Batches::new(store.clone()),
            recent: Recent::default(),
            workers: Mutex::default(),
            store,
            wakes: Mutex::new(wakes.collect()),
            keys: Keys::default(),
            results: Results::default(),
            stored: OpenPipelines::default(),
            opened: Notify::new(),
            expiring: Notify::new(),
            nothing_begins: CancellationToken::new(),
            patience,
            metrics,
            brokers,
        }))
    }

    pub(crate) fn brokers(&self) -> &Brokers {
        &self.0.brokers
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(crate) fn results(&self) -> &Results {
        &self.0.results
    }

    /// Cancelled when no job begins here any more.
    pub(crate) fn nothing_begins(&self) -> &CancellationToken {
        &self.0.nothing_begins
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.0.recent
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

    pub(crate) fn dead(&self) -> &DeadLetters {
        &self.0.dead
    }

    /// How many there are of each pipeline.
    pub(crate) async fn dead_letters(&self) -> Result<BTreeMap<String, u64>, DeadError> {
        self.0.dead.counts().await
    }

    /// Pushes a job that was given up.
    pub(crate) async fn push_again(&self, pipeline: &str, job: Job) -> Result<(), PipelineError> {
        let id = job.id.clone();
        let duplicates = self.push(vec![(pipeline.to_owned(), job)]).await?;
        match duplicates.get(&id) {
            None => Ok(()),
            Some(other) => Err(PipelineError::Refused(format!(
                "the job {other} has its key, and waits or runs"
            ))),
        }
    }

    /// A job does not run any more.
    pub(crate) fn ended(&self, pipeline: &Pipeline, job: &Job, extras: &Extras, ended: Ended) {
        pipeline.ended.count();
        if let Some(key) = &extras.unique {
            self.0.keys.ended(key, &job.id);
        }
        if extras.wants_result {
            self.0.results.keep(&job.id, ended);
        }
    }

    fn wake_of(&self, pool: &str) -> Wake {
        let mut wakes = lock(&self.0.wakes);
        wakes.entry(pool.to_owned()).or_default().clone()
    }

    /// Adds a pipeline, which gives out no jobs before it is resumed.
    pub(crate) async fn declare(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<(), PipelineError> {
        if !lock(&self.0.wakes).contains_key(&settings.pool) {
            return Err(self.no_pool(&settings.pool));
        }
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
        // Of those that it has kept.
        self.0.expiring.notify_one();
        opened
    }

    async fn open(
        &self,
        name: &str,
        settings: &PipelineSettings,
    ) -> Result<Pipeline, PipelineError> {
        let wake = self.wake_of(&settings.pool);
        let driver: Arc<dyn Driver> = match &settings.driver {
            DriverSettings::Memory { max_size } => Arc::new(Memory::new(*max_size, wake.clone())),
            DriverSettings::Embedded { .. } => {
                let store = self.0.store.get().await?;
                let embedded = self.0.stored.open(name, store).await?;
                embedded.pause();
                self.restore_keys(&embedded).await?;
                embedded.tell(wake.clone());
                Arc::new(embedded)
            }
            DriverSettings::Broker(place) => {
                let opening = Opening {
                    pipeline: name,
                    priority: settings.priority,
                    wake: wake.clone(),
                };
                place.open(opening, &self.0.store, &self.0.stored).await?
            }
        };
        Ok(Pipeline {
            name: name.to_owned(),
            driver_name: settings.driver.name(),
            priority: settings.priority,
            pool: settings.pool.clone(),
            rules: settings.rules.clone(),
            driver,
            consumes: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            occupied: AtomicUsize::new(0),
            ended: Meter::new(),
            metrics: self.0.metrics.of_pipeline(name),
            rate: settings.rules.rate.map(Window::new),
            wake,
        })
    }

    /// Keeps jobs. Those of one pipeline are kept together, or none of them. Returns those that are
    /// there already: their IDs, and those of the jobs that have their keys.
    pub(crate) async fn push(&self, jobs: Pushed) -> Result<Duplicates, PipelineError> {
        let mut by_pipeline: BTreeMap<String, Vec<Job>> = BTreeMap::new();
        for (pipeline, job) in jobs {
            by_pipeline.entry(pipeline).or_default().push(job);
        }
        let mut parts = Vec::with_capacity(by_pipeline.len());
        let mut can_expire = false;
        for (name, mut jobs) in by_pipeline {
            let pipeline = self.get_open(&name).await?;
            let now = now_ms();
            let mut keys = Vec::new();
            for (at, job) in jobs.iter_mut().enumerate() {
                self.accept(job)?;
                let unique = extras::accept(job, pipeline.rules.expires, now);
                keys.extend(unique.map_err(PipelineError::Refused)?.map(|it| (at, it)));
                can_expire |= extras::expires_at(&job.headers).is_some();
                if job.priority == 0 {
                    job.priority = pipeline.priority;
                }
            }
            parts.push((pipeline, jobs, keys));
        }
        let mut duplicates = Duplicates::new();
        for (pipeline, jobs, keys) in parts {
            let mut held = Vec::new();
            let pushed = match self.hold(jobs, keys, &mut duplicates, &mut held) {
                Ok(jobs) => self.push_to(&pipeline, jobs).await,
                Err(error) => Err(error),
            };
            if pushed.is_err() {
                for (key, id) in &held {
                    self.0.keys.give_back(key, id);
                }
            }
            pushed?;
        }
        if can_expire {
            self.0.expiring.notify_one();
        }
        Ok(duplicates)
    }

    /// Whether this server is the one to do what has this name, of all that share a pipeline's
    /// engine; and whether there may be others, who run its jobs as well.
    pub(crate) async fn claim(
        &self,
        pipeline: &str,
        name: &str,
    ) -> Result<(bool, bool), PipelineError> {
        let pipeline = self.get_open(pipeline).await?;
        let claimed = timeout(self.0.patience, pipeline.driver.claim(name)).await;
        let claimed = claimed.map_err(|_| pipeline.late())??;
        Ok((claimed, pipeline.expect_ours().is_err()))
    }

    /// Whether there is what a job names.
    fn accept(&self, job: &Job) -> Result<(), PipelineError> {
        match job.pool() {
            Some(pool) if !lock(&self.0.wakes).contains_key(pool) => Err(self.no_pool(pool)),
            _ => Ok(()),
        }
    }

    fn no_pool(&self, name: &str) -> PipelineError {
        let mut pools: Vec<_> = lock(&self.0.wakes).keys().cloned().collect();
        pools.sort_unstable();
        let hint = what_there_is(name, pools.iter().map(String::as_str));
        let name = name.escape_debug();
        PipelineError::Refused(format!("there is no pool `{name}`{hint}"))
    }

    /// Takes the keys of jobs, and notes which it has `held`. Leaves out jobs whose key another one
    /// has.
    fn hold(
        &self,
        jobs: Vec<Job>,
        keys: Vec<(usize, Unique)>,
        duplicates: &mut Duplicates,
        held: &mut Vec<(String, String)>,
    ) -> Result<Vec<Job>, PipelineError> {
        if keys.is_empty() {
            return Ok(jobs);
        }
        let mut keys = keys.into_iter().peekable();
        let mut kept = Vec::with_capacity(jobs.len());
        for (at, job) in jobs.into_iter().enumerate() {
            if let Some((_, unique)) = keys.next_if(|(of, _)| *of == at) {
                match self.0.keys.take(&unique, &job.id, now_ms()) {
                    Ok(()) => held.push((unique.key, job.id.clone())),
                    Err(NotTaken::By(other)) => {
                        duplicates.insert(job.id, other);
                        continue;
                    }
                    Err(NotTaken::Full) => return Err(PipelineError::TooManyKeys),
                }
            }
            kept.push(job);
        }
        Ok(kept)
    }

    async fn push_to(&self, pipeline: &Pipeline, jobs: Vec<Job>) -> Result<(), PipelineError> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.0.keys.pushed(&jobs);
        let (started, count) = (Instant::now(), jobs.len() as u64);
        let pushed = timeout(self.0.patience, pipeline.driver.push(jobs)).await;
        let pushed = match pushed {
            Ok(pushed) => pushed.map_err(PipelineError::from),
            Err(_) => Err(pipeline.late()),
        };
        let took = started.elapsed();
        self.0.metrics.pushed(count, took, pushed.is_ok());
        pushed
    }

    pub(crate) fn pause(&self, name: &str) -> Result<(), PipelineError> {
        self.get(name)?.consume(false);
        tracing::info!(target: "jobs", pipeline = name, "the pipeline is paused");
        Ok(())
    }

    pub(crate) fn resume(&self, name: &str) -> Result<(), PipelineError> {
        self.get(name)?.consume(true);
        Ok(())
    }

    /// Takes a pipeline away. Jobs in memory go with it; those in a store or at a broker stay
    /// there. A job that a worker has stays its worker's, and the driver is closed when the last of
    /// them has ended.
    pub(crate) async fn destroy(&self, name: &str) -> Result<(), PipelineError> {
        let pipeline = {
            let mut state = lock(&self.0.state);
            let pipeline = state.pipelines.remove(name);
            if let Some(pipeline) = &pipeline {
                pipeline.leaves.store(true, Ordering::SeqCst);
                state.leaving.push(pipeline.clone());
            }
            pipeline
        };
        let pipeline = pipeline.ok_or_else(|| self.unknown(name))?;
        pipeline.consume(false);
        tracing::info!(target: "jobs", pipeline = name, "the pipeline is destroyed");
        self.end_lost(&pipeline).await?;
        self.close_if_left(&pipeline).await
    }

    /// A job has left its worker and is settled.
    pub(crate) async fn free(&self, place: Occupied) {
        let pipeline = place.0.clone();
        drop(place);
        if pipeline.leaves.load(Ordering::SeqCst) {
            let closed = self.close_if_left(&pipeline).await;
            if let Err(error) = closed {
                let (pipeline, why) = (&pipeline.name, with_causes(&error));
                tracing::warn!(target: "jobs", pipeline, "a destroyed pipeline can't be left in order: {why}");
            }
        }
    }

    /// Closes a pipeline that is destroyed, unless workers have jobs of it.
    async fn close_if_left(&self, pipeline: &Arc<Pipeline>) -> Result<(), PipelineError> {
        {
            let mut state = lock(&self.0.state);
            let place = state
                .leaving
                .iter()
                .position(|it| Arc::ptr_eq(it, pipeline));
            let is_busy = pipeline.occupied.load(Ordering::SeqCst) > 0;
            let Some(place) = place.filter(|_| !is_busy) else {
                return Ok(());
            };
            state.leaving.swap_remove(place);
        }
        // Those that workers did not bring to an end.
        self.end_lost(pipeline).await?;
        let closed = timeout(self.0.patience, pipeline.driver.close()).await;
        closed.map_err(|_| pipeline.late())
    }

    /// Ends the jobs of a destroyed pipeline that nobody can have any more.
    async fn end_lost(&self, pipeline: &Pipeline) -> Result<(), PipelineError> {
        if pipeline.is_in_memory() {
            self.remove(pipeline, None, Dropped::Destroyed).await?;
        }
        Ok(())
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Pipeline>> {
        lock(&self.0.state).pipelines.values().cloned().collect()
    }

    pub(crate) async fn stat(&self, pipeline: &Pipeline) -> Result<Stat, PipelineError> {
        let patience = match pipeline.driver.health() {
            Ok(()) => self.0.patience,
            Err(_) => self.0.patience.min(GLANCE),
        };
        let stat = timeout(patience, pipeline.driver.stat()).await;
        Ok(stat.map_err(|_| pipeline.late())??)
    }

    /// How all of them are, by name. Brokers are asked side by side.
    pub(crate) async fn stats(&self) -> Vec<(Arc<Pipeline>, Result<Stat, PipelineError>)> {
        let mut asking = JoinSet::new();
        for pipeline in self.all() {
            let pipelines = self.clone();
            asking.spawn(async move {
                let stat = pipelines.stat(&pipeline).await;
                (pipeline, stat)
            });
        }
        let mut stats = asking.join_all().await;
        stats.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        stats
    }

    /// The same for the status endpoint and RoadRunner's `informer`.
    pub(crate) async fn reports(&self) -> Vec<QueueReport> {
        // Without a store there are none.
        let dead = self.dead_letters().await.unwrap_or_default();
        let mut reports = Vec::new();
        for (pipeline, stat) in self.stats().await {
            let error = match &stat {
                Err(error) => with_causes(error),
                Ok(_) => pipeline.driver.health().err().unwrap_or_default(),
            };
            let stat = stat.unwrap_or_default();
            reports.push(QueueReport {
                pipeline: pipeline.name.clone(),
                driver: pipeline.driver_name.to_owned(),
                queue: pipeline.queue().to_owned(),
                priority: pipeline.priority,
                active: stat.active,
                delayed: stat.delayed,
                reserved: stat.reserved,
                oldest: stat.oldest,
                dead: dead.get(&pipeline.name).copied().unwrap_or(0),
                ready: pipeline.consumes(),
                error,
            });
        }
        reports
    }

    /// Some of the jobs of a pipeline, with its name.
    pub(crate) async fn list(
        &self,
        name: &str,
        after: Option<Vec<u8>>,
    ) -> Result<(String, Part), PipelineError> {
        let pipeline = self.get_or_left_behind(name).await?;
        let part = timeout(self.0.patience, pipeline.driver.list(after)).await;
        let part = part.map_err(|_| pipeline.late())??;
        Ok((pipeline.name.clone(), part))
    }

    /// How many jobs workers have.
    pub(crate) fn reserved(&self) -> usize {
        let state = lock(&self.0.state);
        let all = state.pipelines.values().chain(&state.leaving);
        all.map(|it| it.occupied.load(Ordering::Relaxed)).sum()
    }

    /// At the end of the server, jobs in memory end with it.
    pub(crate) async fn say_what_is_lost(&self) {
        let mut all = self.all();
        all.retain(|pipeline| pipeline.is_in_memory());
        for pipeline in all {
            let Ok(stat) = self.stat(&pipeline).await else {
                continue;
            };
            let jobs = stat.active + stat.delayed + stat.reserved;
            if jobs > 0 {
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
        let leaving = std::mem::take(&mut lock(&self.0.state).leaving);
        for pipeline in self.all().into_iter().chain(leaving) {
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
        let pipeline = {
            let state = lock(&self.0.state);
            let exact = state.pipelines.get(name);
            // RoadRunner reads names from its file in lower case, so PHP may use those.
            let similar = || {
                let mut all = state.pipelines.values();
                all.find(|pipeline| pipeline.name.eq_ignore_ascii_case(name))
            };
            exact.or_else(similar).cloned()
        };
        pipeline.ok_or_else(|| self.unknown(name))
    }

    /// Whether there is such a pipeline.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn expect(&self, name: &str) -> Result<(), PipelineError> {
        self.get(name).map(|_| ())
    }

    fn unknown(&self, name: &str) -> PipelineError {
        let all = self.all();
        PipelineError::Unknown {
            name: name.to_owned(),
            hint: what_there_is(name, all.iter().map(|it| it.name.as_str())),
        }
    }

    /// Waits for a job for one of so many free workers of a pool: the best one of its pipelines.
    /// Where none is free, the job is to be at hand for one, and comes from a pipeline whose jobs
    /// are this server's own: others may have free workers for the rest. Cancel safe.
    pub(crate) async fn next(&self, pool: &str, free: usize) -> Work {
        let wake = self.wake_of(pool);
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
        let state = lock(&self.0.state);
        let mine = state.pipelines.values().filter(|it| it.pool == pool);
        mine.map(|pipeline| of(pipeline)).collect()
    }

    fn take(&self, pool: &str, free: usize, now: Instant) -> Option<Work> {
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
        let mut heads = behind.chain(until).filter_map(has_job);
        let pipeline = if *taken + 1 >= SHARE {
            heads.next()?.1
        } else {
            heads.min_by_key(|(head, _)| *head)?.1
        };
        let delivery = pipeline.driver.take(now)?;
        *taken = (*taken + 1) % SHARE;
        turn.clone_from(&pipeline.name);
        let place = pipeline.occupy(now);
        Some(Work {
            pipeline,
            delivery,
            place,
        })
    }
}

/// Behind the complaint about a name: the one that may be meant, and those that there are. Nothing
/// where there are none.
pub(crate) fn what_there_is<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let quoted = |name: &str| format!("`{}`", name.escape_debug());
    let meant = pronghorn_config::nearest(name, known.clone());
    let there_are = match meant {
        Some(meant) => format!("; did you mean {}? There are", quoted(meant)),
        None => "; there are".to_owned(),
    };
    let first: Vec<_> = known.clone().take(MOST_NAMED).map(quoted).collect();
    let more = known.count().saturating_sub(MOST_NAMED);
    match (first.len(), more) {
        (0, _) => String::new(),
        (_, 0) => format!("{there_are}: {}", first.join(", ")),
        (_, more) => format!("{there_are}: {} and {more} more", first.join(", ")),
    }
}

/// IDs of jobs that were not kept, and of those that have their keys.
pub(crate) type Duplicates = BTreeMap<String, String>;

impl Pipeline {
    /// What the engine calls the place of its jobs.
    pub(crate) fn queue(&self) -> &str {
        self.driver.queue().unwrap_or(&self.name)
    }

    /// Jobs that ended in the last minute.
    pub(crate) fn per_minute(&self) -> u64 {
        self.ended.per_minute()
    }

    fn occupy(self: &Arc<Self>, now: Instant) -> Occupied {
        self.occupied.fetch_add(1, Ordering::SeqCst);
        if let Some(rate) = &self.rate {
            rate.take(now);
        }
        Occupied(self.clone())
    }

    /// How many further jobs may run beside those that do.
    fn places_left(&self) -> usize {
        let most = self.rules.concurrency.unwrap_or(usize::MAX);
        most.saturating_sub(self.occupied.load(Ordering::Relaxed))
    }

    /// When its rate lets another job begin, if not now.
    fn next_place(&self, now: Instant) -> Option<Instant> {
        self.rate.as_ref()?.next(now)
    }

    /// When to look again whether there is a job to run.
    fn next_due(&self, now: Instant) -> Option<Instant> {
        if self.places_left() == 0 {
            return None;
        }
        if self.driver.head(now).is_some() {
            return self.next_place(now);
        }
        self.driver.next_due()
    }

    /// Whether nobody but this server has its jobs.
    pub(crate) fn is_ours(&self) -> bool {
        self.driver.keeper().is_this_server()
    }

    /// Whether its jobs end with the process.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.driver.keeper() == Keeper::Process
    }

    /// Jobs of a batch are told by this server alone.
    fn expect_ours(&self) -> Result<(), PipelineError> {
        if self.is_ours() {
            return Ok(());
        }
        let (name, driver) = (&self.name, self.driver_name);
        Err(PipelineError::Refused(format!(
            "the pipeline {name} is in {driver}; a batch takes pipelines of the drivers `memory` and `embedded`"
        )))
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

#[cfg(test)]
mod tests;
