//! A driver tells that it may have a job.

use std::sync::Arc;

use tokio::sync::Notify;

/// Tells a consumer that a driver may have a job for it. Clones tell the same one.
#[derive(Clone, Debug, Default)]
pub struct Wake(Arc<Notify>);

impl Wake {
    /// Tells it.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits for one. One that came before counts.
    pub async fn woken(&self) {
        self.0.notified().await;
    }
}
