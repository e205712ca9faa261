//! Ends jobs that have expired while nobody takes them: their pipeline is paused, or has no
//! workers. Elsewhere they end when their turn comes.

use pronghorn_base::{now_ms, with_causes};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_queue::options::JobOptions;
use pronghorn_queue::{Delivery, Settlement};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Pipeline, Pipelines};
use crate::results::Dropped;

/// How often it is looked for them: who pushes again with the key of such a job hardly waits.
const LOOK: Duration = Duration::from_secs(1);

impl Pipelines {
    /// Until `end`; then those that were taken have come to their end. Dropped, it leaves them
    /// where nobody gives them out. While no job expires, it has nothing to do.
    pub(crate) async fn end_expired(self, end: CancellationToken) {
        loop {
            let time_comes = async {
                if self.next_expiry().is_none() {
                    self.0.admission.expiring().await;
                }
                sleep(LOOK).await;
            };
            if end.run_until_cancelled(time_comes).await.is_none() {
                return;
            }
            let now = now_ms();
            if self.next_expiry().is_some_and(|at| at <= now) {
                for pipeline in self.0.registry.all() {
                    self.end_expired_of(&pipeline, now).await;
                }
            }
        }
    }

    fn next_expiry(&self) -> Option<u64> {
        let all = self.0.registry.all();
        let all = all.iter().filter_map(|it| it.driver.next_expiry());
        all.min()
    }

    async fn end_expired_of(&self, pipeline: &Arc<Pipeline>, now_ms: u64) {
        // What the store does not say now, it says in a second.
        while let Ok(taken) = pipeline.driver.take_expired(now_ms).await
            && !taken.is_empty()
        {
            let mut ending = JoinSet::new();
            for delivery in taken {
                let (pipelines, pipeline) = (self.clone(), pipeline.clone());
                ending.spawn(async move { pipelines.end_one(&pipeline, delivery).await });
            }
            let ended = ending.join_all().await;
            if !ended.contains(&true) {
                return;
            }
        }
    }

    /// Whether it has ended.
    async fn end_one(&self, pipeline: &Pipeline, delivery: Delivery) -> bool {
        let Delivery { job, ticket } = delivery;
        let extras = JobOptions::of(&job.headers);
        if let Err(error) = self
            .tell_batches(&pipeline.name, &job.id, &extras, true)
            .await
        {
            let (id, pipeline_name) = (&job.id, &pipeline.name);
            let error = with_causes(&error);
            tracing::error!(target: "jobs", id, pipeline = pipeline_name, "a job has expired, and its end can't be recorded for its batch: {error}");
            // It is looked at again.
            _ = pipeline.driver.settle(ticket, Settlement::Release).await;
            return false;
        }
        let settled = pipeline.driver.settle(ticket, Settlement::Ack).await;
        if settled.is_ok() {
            let until = Instant::now() + self.0.registry.patience();
            self.dropped(until, pipeline, &job, &extras, Dropped::Expired)
                .await;
        } else {
            _ = pipeline.driver.settle(ticket, Settlement::Release).await;
        }
        settled.is_ok()
    }
}
