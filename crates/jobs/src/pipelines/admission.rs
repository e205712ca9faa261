//! Which jobs are let in: their options, their keys, and the pipelines that they are for.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;

use pronghorn_base::now_ms;
use pronghorn_queue::options::{self, Unique};
use pronghorn_queue::{DriverError, Job};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::PipelineError;
use super::pipeline::Pipeline;
use super::pools::ConsumerPools;
use super::registry::Registry;
use crate::keys::{Keys, NotTaken, in_pipeline};
use crate::messages::Pushed;
use crate::metrics::Metrics;
use crate::results::Results;

/// IDs of jobs that were not kept, and of those that have their keys.
pub(crate) type Duplicates = BTreeMap<String, String>;

/// The keys that the jobs of a push have taken, with the IDs of these. While the push is under way,
/// others with the same keys wait for its end: their jobs are no duplicates of one that is not
/// kept.
struct TakenKeys {
    keys: Keys,
    taken: Vec<(String, String)>,
}

impl TakenKeys {
    fn new(keys: Keys) -> Self {
        let taken = Vec::new();
        Self { keys, taken }
    }

    /// Takes one more, or returns the job that has it.
    async fn take(
        &mut self,
        unique: Unique,
        id: &str,
        until: Instant,
        pipeline: &Pipeline,
    ) -> Result<Option<String>, PipelineError> {
        loop {
            let answers = self.keys.answers();
            let mut answered = pin!(answers.notified());
            answered.as_mut().enable();
            match self.keys.take(&unique, id, now_ms()) {
                Ok(()) => {
                    self.taken.push((unique.key, id.to_owned()));
                    return Ok(None);
                }
                Err(NotTaken::By(other)) => return Ok(Some(other)),
                // It is of the same push.
                Err(NotTaken::Pending(other)) if self.has(&unique.key) => return Ok(Some(other)),
                Err(NotTaken::Pending(_)) => {
                    let in_time = timeout_at(until, answered).await;
                    in_time.map_err(|_| pipeline.late())?;
                }
                Err(NotTaken::Full) => return Err(PipelineError::TooManyKeys),
            }
        }
    }

    /// Keys are taken in their order.
    fn has(&self, key: &str) -> bool {
        self.taken.last().is_some_and(|(last, _)| last == key)
    }

    fn give_back(&mut self) {
        for (key, id) in self.taken.drain(..) {
            self.keys.give_back(&key, &id);
        }
    }
}

impl Drop for TakenKeys {
    fn drop(&mut self) {
        for (key, id) in &self.taken {
            self.keys.answered(key, id);
        }
    }
}

/// A push that was answered with an error.
struct NotPushed {
    error: PipelineError,
    /// Nobody knows: another job with one of its keys could run beside it.
    may_be_kept: bool,
}

impl NotPushed {
    const fn for_certain(error: PipelineError) -> Self {
        let may_be_kept = false;
        Self { error, may_be_kept }
    }
}

/// Lets jobs into pipelines. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Admission(Arc<AdmissionParts>);

struct AdmissionParts {
    registry: Registry,
    pools: ConsumerPools,
    keys: Keys,
    results: Results,
    metrics: Metrics,
    /// There may be a job that expires.
    expiring: Notify,
}

impl Admission {
    pub(super) fn new(
        registry: Registry,
        pools: ConsumerPools,
        keys: Keys,
        results: Results,
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(AdmissionParts {
            registry,
            pools,
            keys,
            results,
            metrics,
            expiring: Notify::new(),
        }))
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
            let pipeline = self.0.registry.get_open(&name).await?;
            let now = now_ms();
            let mut keys = Vec::new();
            for (at, job) in jobs.iter_mut().enumerate() {
                self.accept(job)?;
                let unique = options::accept(job, pipeline.rules.expires, now);
                let unique = unique.map_err(PipelineError::Refused)?;
                keys.extend(unique.map(|it| (at, in_pipeline(&name, it))));
                can_expire |= options::expires_at(&job.headers).is_some();
                if job.priority == 0 {
                    job.priority = pipeline.priority;
                }
            }
            parts.push((pipeline, jobs, keys));
        }
        let mut duplicates = Duplicates::new();
        for (pipeline, jobs, keys) in parts {
            let mut taken = TakenKeys::new(self.0.keys.clone());
            let held = self.hold(&pipeline, jobs, keys, &mut duplicates, &mut taken);
            let pushed = match held.await {
                Ok(jobs) => self.push_to(&pipeline, jobs).await,
                Err(error) => Err(NotPushed::for_certain(error)),
            };
            if let Err(NotPushed { error, may_be_kept }) = pushed {
                if !may_be_kept {
                    taken.give_back();
                }
                return Err(error);
            }
        }
        if can_expire {
            self.can_expire();
        }
        Ok(duplicates)
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

    /// Whether this server is the one to do what has this name, of all that share a pipeline's
    /// engine; and whether there may be others, who run its jobs as well.
    pub(crate) async fn claim(
        &self,
        pipeline: &str,
        name: &str,
    ) -> Result<(bool, bool), PipelineError> {
        let pipeline = self.0.registry.get_open(pipeline).await?;
        let claimed = timeout(self.0.registry.patience(), pipeline.driver.claim(name)).await;
        let claimed = claimed.map_err(|_| pipeline.late())??;
        Ok((claimed, pipeline.expect_ours().is_err()))
    }

    /// Whether there is what a job names.
    pub(super) fn accept(&self, job: &Job) -> Result<(), PipelineError> {
        match job.pool() {
            Some(pool) => self.0.pools.expect(pool),
            None => Ok(()),
        }
    }

    /// Takes the keys of jobs. Leaves out jobs whose key another one has.
    async fn hold(
        &self,
        pipeline: &Pipeline,
        mut jobs: Vec<Job>,
        mut keys: Vec<(usize, Unique)>,
        duplicates: &mut Duplicates,
        taken: &mut TakenKeys,
    ) -> Result<Vec<Job>, PipelineError> {
        if keys.is_empty() {
            return Ok(jobs);
        }
        // In one order, so that no two pushes wait for each other.
        keys.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
        let until = Instant::now() + self.0.registry.patience();
        let mut left_out = BTreeSet::new();
        for (at, unique) in keys {
            let id = &jobs[at].id;
            if let Some(other) = taken.take(unique, id, until, pipeline).await? {
                duplicates.insert(id.clone(), other);
                left_out.insert(at);
            }
        }
        let mut at = 0..;
        jobs.retain(|_| at.next().is_none_or(|at| !left_out.contains(&at)));
        Ok(jobs)
    }

    async fn push_to(&self, pipeline: &Pipeline, jobs: Vec<Job>) -> Result<(), NotPushed> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.0.keys.pushed(&pipeline.name, &jobs);
        let expected = jobs.iter();
        let expected = expected.filter(|job| options::JobOptions::of(&job.headers).wants_result);
        let expected: Vec<String> = expected.map(|job| job.id.clone()).collect();
        for id in &expected {
            self.0.results.expect(&pipeline.name, id);
        }
        let (started, count) = (Instant::now(), jobs.len() as u64);
        let pushed = timeout(self.0.registry.patience(), pipeline.driver.push(jobs)).await;
        let pushed = match pushed {
            // Whether it is away or not.
            Err(_) => Err(NotPushed {
                error: pipeline.late(),
                may_be_kept: true,
            }),
            Ok(Err(DriverError::Away(why))) => {
                let name = pipeline.name.clone();
                Err(NotPushed::for_certain(PipelineError::NotReady {
                    name,
                    why,
                }))
            }
            Ok(pushed) => pushed.map_err(|error| NotPushed {
                may_be_kept: matches!(error, DriverError::Unavailable(_)),
                error: error.into(),
            }),
        };
        let took = started.elapsed();
        self.0.metrics.pushed(count, took, pushed.is_ok());
        if pushed.is_err() {
            for id in &expected {
                self.0.results.expect_no_more(&pipeline.name, id);
            }
        }
        pushed
    }

    /// A job that can expire may be in a pipeline again.
    pub(crate) fn can_expire(&self) {
        self.0.expiring.notify_one();
    }

    /// Waits until there may be one.
    pub(super) async fn expiring(&self) {
        self.0.expiring.notified().await;
    }
}
