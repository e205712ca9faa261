//! Jobs in memory, on their way to the process that has taken over.

use std::sync::Arc;

use pronghorn_plugin_api::rpc::{Encoding, Failure, Forward};

use super::ours::{Export, export};
use crate::pipelines::{Pipeline, Pipelines};

/// Pushes the jobs that are in memory to the process that has taken over.
pub(crate) async fn hand_on(pipelines: &Pipelines, to: &Forward) {
    let in_memory = |it: &Arc<Pipeline>| it.driver_name == "memory";
    for pipeline in pipelines.all().into_iter().filter(in_memory) {
        let stat = pipelines.stat(&pipeline).await.unwrap_or_default();
        let all = stat.active + stat.delayed + stat.reserved;
        let pipeline = &pipeline.name;
        let mut moved = 0;
        let outcome = move_all(pipelines, pipeline, to, &mut moved).await;
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
            let batch = serde_json::json!({"jobs": part.jobs});
            let batch = batch.to_string().into();
            to("jobs.PushBatch", Encoding::Json, batch).await?;
            *moved += part.jobs.len() as u64;
        }
        after = part.next;
        if after.is_none() {
            return Ok(());
        }
    }
}
