//! Queues of jobs, for whoever shows them: health checks, RPC.

use std::fmt;
use std::sync::{Arc, OnceLock};

use pronghorn_base::BoxFuture;

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Its name here.
    pub pipeline: String,
    /// As the configuration names it.
    pub driver: String,
    /// What the engine calls it.
    pub queue: String,
    /// Of jobs that have none.
    pub priority: i64,
    /// They wait for a worker.
    pub active: u64,
    /// They wait for their time.
    pub delayed: u64,
    /// Workers have them.
    pub reserved: u64,
    /// Whether workers get its jobs.
    pub ready: bool,
    /// What is wrong with it; empty when nothing is.
    pub error: String,
}

/// The queues of a server. Clones are the same ones.
#[derive(Clone, Default)]
pub struct Queues(Arc<OnceLock<Source>>);

type Source = Box<dyn Fn() -> BoxFuture<'static, Vec<QueueReport>> + Send + Sync>;

impl Queues {
    /// The service that has them says how they are asked.
    pub fn answer_with(
        &self,
        source: impl Fn() -> BoxFuture<'static, Vec<QueueReport>> + Send + Sync + 'static,
    ) {
        _ = self.0.set(Box::new(source)); // a service starts once
    }

    /// None where no service has any.
    pub async fn ask(&self) -> Option<Vec<QueueReport>> {
        let source = self.0.get()?;
        Some(source().await)
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queues").finish_non_exhaustive()
    }
}
