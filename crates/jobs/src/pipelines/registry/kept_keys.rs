//! Keys of jobs that wait in the store, for a process that has just opened it, and of jobs that
//! workers of the process before still have.

use std::collections::HashMap;

use pronghorn_base::now_ms;
use pronghorn_queue::{Embedded, options};
use pronghorn_store::Store;

use super::Registry;
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
        for job in pipeline.unique_jobs().await? {
            let Some(unique) = options::kept_key(&job.headers, job.since, now) else {
                continue;
            };
            if !job.is_lent {
                // One that is taken is this job's, or that of one which was pushed by then.
                _ = self.0.keys.take(&unique, &job.id, now);
            } else if !unique.while_queued {
                lent.insert(unique.key, job.id);
            }
        }
        Ok(lent)
    }

    /// Follows the keys of jobs that the process before brings to their end, until it is gone.
    pub(crate) async fn follow_lent_keys(&self, store: &Store) {
        let mut others = store.others();
        loop {
            let are_there = others.borrow_and_update().are_there;
            let mut lent = HashMap::new();
            for pipeline in self.0.stored.all().await {
                // The store says at the next change all that it does not say now.
                lent.extend(self.restore_keys(&pipeline).await.unwrap_or_default());
            }
            self.0.keys.lend(lent);
            if !are_there || others.changed().await.is_err() {
                return;
            }
        }
    }
}
