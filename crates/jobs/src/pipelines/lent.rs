//! Jobs that processes before this one bring to their end: their keys, and batches that wait for
//! them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::with_causes;
use pronghorn_store::Store;
use tokio::time::sleep;

use super::standing::Search;
use super::{Pipeline, PipelineError, Pipelines};
use crate::batches::BatchError;
use crate::keys::{pipeline_of, unscoped};

/// How often a store is asked again that does not answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Pipelines {
    /// Follows these keys until the process before is gone.
    pub(crate) async fn follow_lent_keys(&self, store: &Store) {
        let mut others = store.others();
        loop {
            let are_there = others.borrow_and_update().are_there;
            // Without an answer the keys count that were there before.
            let Ok(lent) = self.0.registry.lent_keys().await else {
                sleep(ASK_AGAIN).await;
                continue;
            };
            self.lend_keys(lent).await;
            if !are_there || others.changed().await.is_err() {
                return;
            }
        }
    }

    /// A batch may have come to have the end of such a job when it had ended there, and its key was
    /// not free here: nobody else tells it.
    pub(super) async fn lend_keys(&self, lent: HashMap<String, String>) {
        for (key, id) in self.0.keys.lend(lent) {
            if self.0.keys.has_ended(&key, &id)
                && let Err(error) = self.tell_followers(pipeline_of(&key), &id, false).await
            {
                let error = with_causes(&error);
                tracing::error!(target: "jobs", id, "the job has ended in the process before, and its end can't be recorded for a batch that waits for it: {error}");
            }
        }
    }

    /// A batch that came in the process before has the end of this job, which may have ended here
    /// before that was written. Nobody else tells the batch then.
    pub(super) async fn tell_if_gone(&self, other: &str) -> Result<(), BatchError> {
        let (pipeline, job) = unscoped(other);
        if !self.is_gone(pipeline, job).await {
            return Ok(());
        }
        let dead = self.dead().pipelines_of(job).await.unwrap_or_default();
        let failed = pipeline.map_or(!dead.is_empty(), |it| dead.contains(it));
        self.tell_followers(pipeline.unwrap_or_default(), job, failed)
            .await
    }

    /// Whether a pipeline of ours has no job of this ID, and no worker has it.
    pub(crate) async fn has_no_job(&self, pipeline: &str, id: &str) -> bool {
        let found = match self.0.registry.get_open(pipeline).await {
            Ok(found) => found,
            Err(error) => return matches!(error, PipelineError::Unknown { .. }),
        };
        let found = self.look_for(&found, id, usize::MAX).await;
        matches!(found, Search::NotThere) && self.keys().running_of(Some(pipeline), id).is_none()
    }

    /// Whether no pipeline has a job, or the one of it has not. False where that is not certain.
    async fn is_gone(&self, pipeline: Option<&str>, job: &str) -> bool {
        let registry = &self.0.registry;
        let left_behind = registry.left_behind().await;
        if registry.waits() || !left_behind.is_ok_and(|it| it.is_empty()) {
            return false;
        }
        let is_asked = |it: &Arc<Pipeline>| pipeline.is_none_or(|name| it.name == name);
        for pipeline in registry.all().into_iter().filter(is_asked) {
            // Between two parts of a list it may change its place.
            let found = self.look_for(&pipeline, job, 1).await;
            if !matches!(found, Search::NotThere) {
                return false;
            }
        }
        self.keys().running_of(pipeline, job).is_none()
    }
}
