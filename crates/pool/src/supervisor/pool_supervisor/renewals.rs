//! Workers say that a new generation would do better than theirs.

use std::sync::Arc;

use tokio::sync::Notify;

use super::super::slot_supervisor::Renewal;

pub(super) struct Renewals {
    wanted: Arc<Notify>,
    /// The last generation of which a worker has asked for the next.
    asked_by: u64,
}

impl Renewals {
    pub(super) fn new(wanted: Arc<Notify>) -> Self {
        Self {
            wanted,
            asked_by: 0,
        }
    }

    /// Once for each generation: its other workers would say the same.
    pub(super) fn ask(&mut self, pool: &str, generation: u64, why: Renewal) {
        if generation == self.asked_by {
            return;
        }
        self.asked_by = generation;
        let why = match why {
            Renewal::Full => {
                "the OPcache of a worker is full (`opcache.memory_consumption`, `opcache.max_accelerated_files`)"
            }
            Renewal::Reset => "`opcache_reset()` was called",
            Renewal::Locked => {
                "one was killed while it had APCu's lock, for which all that share its memory would wait: the new ones come from a new zygote"
            }
            Renewal::Crashes => {
                "three have died by signals within a minute, and what is broken may be the OPcache that they share: the new ones come from a new zygote"
            }
        };
        tracing::info!(target: "server", pool, "new workers are wanted: {why}");
        self.wanted.notify_one();
    }
}
