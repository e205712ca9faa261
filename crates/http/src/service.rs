//! What all connections of a listener share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::message::Handler;

/// Time limits and sizes beyond those of the protocol.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// What a client may send, and how slowly.
    pub receive: pronghorn_h1::Limits,
    /// Between two writes that a client takes something of. Default is 60 s.
    pub send_pause: Duration,
    /// How long an idle connection of a draining server is kept, for a request that may be on its way. Default is 100 ms,
    /// so that Ctrl-C feels immediate.
    pub drain_idle: Duration,
    /// Open connections in all.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            receive: pronghorn_h1::Limits::default(),
            send_pause: Duration::from_secs(60),
            drain_idle: Duration::from_millis(100),
            connections: 10_000,
        }
    }
}

/// A handler with its limits, and the way to an orderly end.
pub struct Service {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) limits: Limits,
    pub(crate) draining: CancellationToken,
    open: AtomicUsize,
}

impl Service {
    pub fn new(handler: Arc<dyn Handler>, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            handler,
            limits,
            draining: CancellationToken::new(),
            open: AtomicUsize::new(0),
        })
    }

    /// From now on each connection ends after its current request, and idle ones after a short grace.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a connection while the returned value lives; `None` when there are as many as there may be.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Entered> {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let entered = Entered(self.clone());
        (before < self.limits.connections).then_some(entered)
    }
}

/// One open connection.
pub(crate) struct Entered(Arc<Service>);

impl Entered {
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.0
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("limits", &self.limits)
            .field("open", &self.open)
            .finish_non_exhaustive()
    }
}
