//! Jobs that are taken away before a worker has them, and those that are told to end.

use futures_util::future::join_all;
use pronghorn_queue::Job;
use pronghorn_queue::options::JobOptions;
use tokio::time::{Instant, timeout};

use super::{Pipeline, PipelineError, Pipelines};
use crate::results::Dropped;

/// What was found of an ID that is cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cancelled {
    /// Jobs that waited, for a worker or for their time.
    pub(crate) removed: u64,
    /// A worker has one, and is told; or will have it at once.
    pub(crate) running: bool,
    /// None was found, but a broker may have it: it does not run when it comes from there.
    pub(crate) noted: bool,
}

/// What was taken away from a pipeline, and how many jobs stayed as workers have them.
type Count = (u64, usize);

impl Pipelines {
    /// Jobs of this ID, in any pipeline or in the one of this name, do not run where they wait, and
    /// end where they run. One that waits for the jobs of its batch goes with the batch.
    ///
    /// It is a worker of this pool who wants it, or somebody else for none.
    pub(crate) async fn cancel(
        &self,
        of: Option<&str>,
        id: &str,
        pool: &str,
    ) -> Result<Cancelled, PipelineError> {
        let (keys, registry) = (&self.0.keys, &self.0.registry);
        let (mut removed, mut reserved, mut has_brokers) = (0, 0, false);
        let all = match of {
            Some(name) => registry.all_of(name).await?,
            None => registry.all(),
        };
        // As it is declared.
        let of = of.map(|name| all.first().map_or(name, |it| &it.name));
        for pipeline in &all {
            if pipeline.is_ours() {
                let found = self.remove(pipeline, Some(id), Dropped::Cancelled);
                let (gone, stayed) = found.await?;
                (removed, reserved) = (removed + gone, reserved + stayed);
            } else {
                has_brokers = true;
            }
        }
        let is_told = keys.cancel_running(of, id);
        if of.is_none() && removed == 0 && reserved == 0 && !is_told {
            for pipeline in registry.all_left_behind().await? {
                let (gone, _) = self.remove(&pipeline, Some(id), Dropped::Cancelled).await?;
                removed += gone;
            }
        }
        if removed == 0 && reserved == 0 && !is_told {
            removed += u64::from(self.cancel_batch(of, id).await?);
        }
        // It is between its pipeline and a worker.
        let comes = reserved > 0 && !is_told;
        let noted = has_brokers && removed == 0 && reserved == 0 && !is_told;
        if (comes || noted) && !keys.note_cancelled(of, id, pool) {
            let why = "too many cancelled jobs wait for their turn";
            return Err(PipelineError::Refused(why.to_owned()));
        }
        Ok(Cancelled {
            removed,
            running: is_told || comes,
            noted,
        })
    }

    /// Takes away all jobs of a pipeline that no worker has and no broker: how many.
    pub(crate) async fn clear(&self, name: &str) -> Result<u64, PipelineError> {
        let all = self.0.registry.all_of(name).await?;
        if let [pipeline] = &all[..]
            && !pipeline.is_ours()
        {
            let (name, driver) = (&pipeline.name, pipeline.driver_name);
            return Err(PipelineError::Refused(format!(
                "the jobs of {name} are in {driver}: only pipelines of `memory` and `embedded` can be cleared here"
            )));
        }
        let mut count = 0;
        for pipeline in all.iter().filter(|it| it.is_ours()) {
            let (removed, _) = self.remove(pipeline, None, Dropped::Cancelled).await?;
            tracing::info!(target: "jobs", pipeline = pipeline.name, driver = pipeline.driver_name, jobs = removed, "the pipeline is cleared");
            count += removed;
        }
        Ok(count)
    }

    /// Batches are told before a pipeline forgets a job: after a crash in between, it runs, and its
    /// batch does not wait for it. Where they can't be told, the job stays, except in memory.
    pub(super) async fn remove(
        &self,
        pipeline: &Pipeline,
        id: Option<&str>,
        why: Dropped,
    ) -> Result<Count, PipelineError> {
        let (mut count, mut reserved, mut after) = (0, 0, None);
        let patience = self.0.registry.patience();
        let until = Instant::now() + patience;
        loop {
            let withdrawn = timeout(patience, pipeline.driver.withdraw(id, after)).await;
            let mut withdrawn = withdrawn.map_err(|_| pipeline.late())??;
            after = withdrawn.next.take();
            reserved += withdrawn.reserved;
            let jobs = withdrawn.jobs.iter();
            let telling = jobs.map(|job| self.told_to_end(pipeline, job, until));
            let told = join_all(telling).await;
            if told.contains(&false) && !pipeline.is_in_memory() {
                let name = &pipeline.name;
                return Err(PipelineError::Refused(format!(
                    "jobs of {name} stay: their end can't be recorded for their batches"
                )));
            }
            let removed = timeout(patience, withdrawn.remove()).await;
            let removed = removed.map_err(|_| pipeline.late())??;
            count += removed.jobs.len() as u64;
            reserved += removed.reserved;
            for job in &removed.jobs {
                let extras = JobOptions::of(&job.headers);
                self.dropped(until, pipeline, job, &extras, why).await;
            }
            if after.is_none() {
                return Ok((count, reserved));
            }
        }
    }

    /// Whether batches know that a job ends.
    async fn told_to_end(&self, pipeline: &Pipeline, job: &Job, until: Instant) -> bool {
        let extras = JobOptions::of(&job.headers);
        self.tell_batches_by(until, pipeline, job, &extras, true)
            .await
    }

    /// A job that no worker had does not run any more.
    pub(super) async fn dropped(
        &self,
        until: Instant,
        pipeline: &Pipeline,
        job: &Job,
        extras: &JobOptions,
        why: Dropped,
    ) {
        let (id, name, of) = (&job.id, &job.name, &pipeline.name);
        let outcome = why.label();
        let said = outcome.text();
        tracing::debug!(target: "jobs", id, job = name, pipeline = of, "{said} before its turn");
        pipeline.metrics.came_to(outcome);
        self.ended(pipeline, job, extras, why.into());
        self.tell_late_followers(until, pipeline, job, extras, true)
            .await;
    }
}
