//! One server, as its connections see it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use pronghorn_base::LogThrottle;
use pronghorn_pool::{Affinity, CallError, Pending, Pool, Terms};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::call::TcpCall;
use crate::end::End;
use crate::metrics::Metrics;
use crate::registry::{ConnectionEntry, Registry};
use crate::settings::Dialogue;

/// A server, shared by all its connections.
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    dialogue: ArcSwap<Dialogue>,
    pool: Pool,
    /// As many calls as have room in the queue of the pool: others wait in their connections, and
    /// none is refused.
    pub(crate) calls: Arc<Semaphore>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: Metrics,
    failed: LogThrottle,
    bad: LogThrottle,
    unheard: LogThrottle,
}

impl Server {
    pub(crate) fn new(
        name: &str,
        dialogue: Dialogue,
        pool: Pool,
        calls: Arc<Semaphore>,
        registry: Arc<Registry>,
        metrics: Metrics,
    ) -> Self {
        Self {
            name: name.into(),
            dialogue: ArcSwap::from_pointee(dialogue),
            pool,
            calls,
            registry,
            metrics,
            failed: LogThrottle::default(),
            bad: LogThrottle::default(),
            unheard: LogThrottle::default(),
        }
    }

    /// Has a worker answer: the one of the connection, if it has one of its own.
    pub(crate) fn call(&self, call: Arc<TcpCall>, affinity: Option<&Affinity>) -> Pending {
        let now = Instant::now();
        let terms = Terms {
            affinity: affinity.map(Affinity::id),
            ..Terms::default()
        };
        self.pool.call(call, terms, now, now)
    }

    /// A place for a call in the queue of the pool. A connection with a worker of its own needs
    /// none: only that worker's connections are in its line, each once, and they do not keep others
    /// from theirs.
    pub(crate) async fn place(&self, affinity: Option<&Affinity>) -> Option<SemaphorePermit<'_>> {
        if affinity.is_some() {
            return None;
        }
        self.calls.acquire().await.ok() // it is never closed
    }

    /// Keeps the calls of a connection on one worker.
    pub(crate) fn affinity(&self) -> Affinity {
        self.pool.affinity()
    }

    /// The settings of a connection that begins now.
    pub(crate) fn dialogue(&self) -> Arc<Dialogue> {
        self.dialogue.load_full()
    }

    /// Connections that begin from now on go like this.
    pub(crate) fn set_dialogue(&self, dialogue: Dialogue) {
        self.dialogue.store(Arc::new(dialogue));
    }

    /// A connection has ended.
    pub(crate) fn ended(&self, entry: &ConnectionEntry, end: &End) {
        self.metrics.ended(end);
        let ConnectionEntry { server, remote, .. } = entry;
        match end {
            End::Failed(CallError::Thrown(thrown)) => {
                self.pool.tell_failure(|left_out| {
                    tracing::error!(
                        target: "tcp", class = thrown.class, file = thrown.file, line = thrown.line,
                        server = &**server, remote_address = &**remote, pool = self.pool.name(),
                        trace = thrown.trace, left_out,
                        "the handler threw, and the connection is closed: {thrown}"
                    );
                });
            }
            End::Failed(why) => {
                if let Some(connections) = self.failed.should_log() {
                    tracing::warn!(
                        target: "tcp", server = &**server, remote_address = &**remote, connections,
                        "connections closed, because nobody answers: {why}"
                    );
                }
            }
            End::BadAnswer(why) => {
                if let Some(connections) = self.failed.should_log() {
                    tracing::warn!(
                        target: "tcp", server = &**server, remote_address = &**remote, connections,
                        "connections closed, because an answer can't be sent: {why}"
                    );
                }
            }
            End::BadMessage(why) => {
                if let Some(connections) = self.bad.should_log() {
                    tracing::warn!(
                        target: "tcp", server = &**server, remote_address = &**remote, connections,
                        "connections closed: {why}"
                    );
                }
            }
            _ => {
                let reason = end.name();
                tracing::debug!(
                    target: "tcp", server = &**server, remote_address = &**remote, reason,
                    "a connection has ended"
                );
            }
        }
    }

    /// No worker has heard that a connection has ended.
    pub(crate) fn tell_unheard(&self, entry: &ConnectionEntry, why: &str) {
        if let Some(connections) = self.unheard.should_log() {
            tracing::warn!(
                target: "tcp", server = &*entry.server, remote_address = &*entry.remote, connections,
                "no worker has heard of the end of connections: {why}"
            );
        }
    }
}
