//! A time in which no worker of a pool takes calls: what others are told of it, and when it is a
//! matter for an operator.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// A pool without a worker for so long is a matter for its operator: a worker that dies of a call
/// is replaced sooner, as long as the application boots in such a time.
const BARE: Duration = Duration::from_secs(3);

pub(super) struct Outage {
    under_way: Option<Bare>,
    /// Why there is no worker, for others; None while there is one.
    why: watch::Sender<Option<Arc<str>>>,
}

/// A time without a worker that takes calls.
struct Bare {
    since: Instant,
    is_told: bool,
}

impl Outage {
    /// None so far, and who hears why there is one.
    pub(super) fn none() -> (Self, watch::Receiver<Option<Arc<str>>>) {
        let (why, receiver) = watch::channel(None);
        let none = Self {
            under_way: None,
            why,
        };
        (none, receiver)
    }

    /// No worker takes calls.
    pub(super) fn goes_on(&mut self, now: Instant) {
        self.under_way.get_or_insert(Bare {
            since: now,
            is_told: false,
        });
    }

    pub(super) fn is_because(&self, why: Arc<str>) {
        self.why.send_replace(Some(why));
    }

    /// A worker takes calls.
    pub(super) fn is_over(&mut self, pool: &str, now: Instant) {
        self.why.send_if_modified(|why| why.take().is_some());
        if let Some(Bare {
            since,
            is_told: true,
        }) = self.under_way.take()
        {
            let seconds = (now - since).as_secs();
            tracing::info!(target: "server", pool, seconds, "the pool has workers again");
        }
    }

    /// Once for each time without workers.
    pub(super) fn tell(&mut self, pool: &str, now: Instant) {
        let Some(bare) = &mut self.under_way else {
            return;
        };
        if !bare.is_told && now - bare.since >= BARE {
            bare.is_told = true;
            let seconds = BARE.as_secs();
            tracing::error!(target: "server", pool, "the pool has had no worker for {seconds} s: each one has died or does not come up; the records before this one say of what");
        }
    }
}
