//! Which jobs are let in: their options, their keys, and the pipelines that they are for.

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_base::now_ms;
use pronghorn_queue::options::{self, Unique};
use pronghorn_queue::{DriverError, Job};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

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
            Err(_) => Err(pipeline.late()),
            Ok(Err(DriverError::Away(why))) => {
                let name = pipeline.name.clone();
                Err(PipelineError::NotReady { name, why })
            }
            Ok(pushed) => pushed.map_err(PipelineError::from),
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
