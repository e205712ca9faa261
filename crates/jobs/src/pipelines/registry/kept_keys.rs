//! Keys of jobs that wait in the store, for a process that has just opened it, and of jobs that
//! workers of the process before still have.

use std::collections::HashMap;

use pronghorn_base::now_ms;
use pronghorn_queue::{Embedded, options};

use super::Registry;
use crate::keys::in_pipeline;
use crate::pipelines::error::PipelineError;

impl Registry {
    /// Jobs that have had their keys before have them again. Says which ones are with workers of
    /// the process before.
    pub(super) async fn restore_keys(
        &self,
        pipeline: &Embedded,
    ) -> Result<HashMap<String, String>, PipelineError> {
        let now = now_ms();
        let mut lent = HashMap::new();
        let restoring = self.0.keys.restoring();
        for job in pipeline.unique_jobs().await? {
            let Some(unique) = options::kept_key(&job.headers, job.since, now) else {
                continue;
            };
            let unique = in_pipeline(pipeline.name(), unique);
            if !job.is_lent {
                restoring.take(&unique, &job.id, now);
            } else if !unique.while_queued {
                lent.insert(unique.key, job.id);
            }
        }
        Ok(lent)
    }

    /// The keys of jobs that workers of the process before have, with the IDs of the jobs. Those
    /// that were put back have theirs here.
    pub(in crate::pipelines) async fn lent_keys(
        &self,
    ) -> Result<HashMap<String, String>, PipelineError> {
        let mut lent = HashMap::new();
        for pipeline in self.0.stored.all().await {
            lent.extend(self.restore_keys(&pipeline).await?);
        }
        Ok(lent)
    }
}
