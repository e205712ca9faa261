//! Jobs in memory, on their way to the process that has taken over.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use pronghorn_plugin_api::rpc::{Encoding, Failure, Forward};
use pronghorn_queue::{DriverError, Job, MOST_BYTES_IN_PART, MOST_IN_PART};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::ours::{Export, ExportedJob, export};
use crate::pipelines::{Pipeline, Pipelines};

/// Pushes the jobs in memory that no worker has to the process that has taken over: they do not
/// wait for those that run here. What is not taken in time stays.
pub(crate) async fn hand_on_waiting(pipelines: &Pipelines, to: &Forward, until: Instant) {
    let in_memory = |it: &Arc<Pipeline>| it.is_in_memory();
    for pipeline in pipelines.registry().all().into_iter().filter(in_memory) {
        let name = &pipeline.name;
        match move_waiting(&pipeline, to, until).await {
            Ok(0) => {}
            Ok(jobs) => {
                tracing::info!(target: "jobs", pipeline = name, jobs, "jobs in memory go on in the next process");
            }
            // They are tried once more at the end.
            Err(why) => {
                tracing::warn!(target: "jobs", pipeline = name, "jobs in memory stay in this process: {why}");
            }
        }
    }
}

async fn move_waiting(pipeline: &Pipeline, to: &Forward, until: Instant) -> Result<usize, Failure> {
    let refused = |error: DriverError| Failure::new(error.to_string());
    let waiting = pipeline.driver.remove(None, None).await.map_err(refused)?;
    let mut jobs = waiting.jobs.into_iter().peekable();
    let mut moved = 0;
    while jobs.peek().is_some() {
        let mut bytes = 0;
        let mut fits = |job: &Job| {
            let before = bytes;
            bytes += job.payload.len();
            before < MOST_BYTES_IN_PART
        };
        let mut part = Vec::new();
        while part.len() < MOST_IN_PART
            && let Some(job) = jobs.next_if(&mut fits)
        {
            part.push(job);
        }
        let exported = |job: &Job| ExportedJob::of(job.clone(), &pipeline.name);
        let pushed = push_batch(part.iter().map(exported).collect(), to, until).await;
        if let Err(NotPushed { left, why }) = pushed {
            part.retain(|job| left.contains(&job.id));
            part.extend(jobs);
            pipeline.driver.push(part).await.map_err(refused)?;
            return Err(why);
        }
        moved += part.len();
    }
    Ok(moved)
}

/// The IDs of jobs that the other process has not taken, or has not answered for: such a job may
/// run twice, and is not lost.
struct NotPushed {
    left: HashSet<String>,
    why: Failure,
}

/// A job whose key another one has got there meanwhile goes without it: its push was answered.
async fn push_batch(
    mut jobs: Vec<ExportedJob>,
    to: &Forward,
    until: Instant,
) -> Result<(), NotPushed> {
    while !jobs.is_empty() {
        let batch = serde_json::json!({"jobs": jobs}).to_string();
        let push = to("jobs.PushBatch", Encoding::Json, batch.into());
        let pushed = timeout_at(until, push).await;
        let pushed = pushed.unwrap_or_else(|_| {
            let why = "the next process did not take all in time";
            Err(Failure::new(why.to_owned()))
        });
        let answer = pushed.map_err(|why| NotPushed {
            left: jobs.iter().map(|job| job.id().to_owned()).collect(),
            why,
        })?;
        let answer: Pushed = serde_json::from_slice(&answer).unwrap_or_default();
        jobs.retain_mut(|job| answer.duplicates.contains_key(job.id()) && job.forget_key());
    }
    Ok(())
}

/// The part of an answer to a push that is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Pushed {
    duplicates: BTreeMap<String, String>,
}

/// Pushes the jobs that are in memory to the process that has taken over.
pub(crate) async fn hand_on(pipelines: &Pipelines, to: &Forward, until: Instant) {
    let in_memory = |it: &Arc<Pipeline>| it.is_in_memory();
    for pipeline in pipelines.registry().all().into_iter().filter(in_memory) {
        let stat = pipelines
            .registry()
            .stat(&pipeline)
            .await
            .unwrap_or_default();
        let all = stat.active + stat.delayed + stat.reserved;
        let pipeline = &pipeline.name;
        let mut moved = 0;
        let outcome = move_all(pipelines, pipeline, to, until, &mut moved).await;
        if let Err(why) = outcome {
            let jobs = all.saturating_sub(moved);
            tracing::warn!(target: "jobs", pipeline, jobs, "jobs in memory end with the server: {why}");
        } else if moved > 0 {
            tracing::info!(target: "jobs", pipeline, jobs = moved, "jobs in memory go on in the next process");
        }
    }
}

async fn move_all(
    pipelines: &Pipelines,
    pipeline: &str,
    to: &Forward,
    until: Instant,
    moved: &mut u64,
) -> Result<(), Failure> {
    let mut after = None;
    loop {
        let asked = Export {
            pipeline: pipeline.to_owned(),
            after,
        };
        let part = export(pipelines.clone(), asked).await?;
        if !part.jobs.is_empty() {
            let count = part.jobs.len() as u64;
            let pushed = push_batch(part.jobs, to, until).await;
            pushed.map_err(|not_pushed| not_pushed.why)?;
            *moved += count;
        }
        after = part.next;
        if after.is_none() {
            return Ok(());
        }
    }
}
