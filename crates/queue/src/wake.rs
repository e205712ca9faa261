//! A driver tells that it may have a job.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use tokio::sync::Notify;

/// Tells a consumer that a driver may have a job for it, or a better one than it had. Clones tell
/// the same one.
#[derive(Clone, Debug, Default)]
pub struct Wake {
    consumer: Arc<Told>,
    /// The driver's, where a consumer has several.
    name: Option<Arc<str>>,
}

/// What a consumer was told and has not yet looked at.
#[derive(Debug, Default)]
struct Told {
    notify: Notify,
    names: Mutex<BTreeSet<Arc<str>>>,
}

impl Wake {
    /// One for a driver of this name that tells the same consumer.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self {
            consumer: self.consumer.clone(),
            name: Some(name.into()),
        }
    }

    /// Tells it.
    pub fn wake(&self) {
        if let Some(name) = &self.name {
            lock(&self.consumer.names).insert(name.clone());
        }
        self.consumer.notify.notify_one();
    }

    /// Waits for one. One that came before counts.
    pub async fn woken(&self) {
        self.consumer.notify.notified().await;
    }

    /// The names of those that have told the consumer since this was asked before. Who looks at
    /// them afterwards misses nothing.
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut lock(&self.consumer.names))
    }
}
