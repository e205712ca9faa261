//! What all connections of a listener share.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_pool::Seldom;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

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
    connections: TaskTracker,
    pub(crate) refusals: Seldom,
}

impl Service {
    pub fn new(handler: Arc<dyn Handler>, limits: Limits) -> Arc<Self> {
        let (draining, connections) = (CancellationToken::new(), TaskTracker::new());
        Arc::new(Self {
            handler,
            limits,
            draining,
            connections,
            refusals: Seldom::default(),
        })
    }

    /// From now on each connection ends after its current request, and idle ones after a short grace. What waits to be
    /// accepted is still accepted, then no more. Returns when all have ended.
    pub async fn drain(&self) {
        self.draining.cancel();
        self.connections.close();
        self.connections.wait().await;
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.connections.len()
    }

    /// Counts a connection while the returned value lives; `None` when there are as many as there may be.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Entered> {
        (self.connections.len() < self.limits.connections).then(|| Entered {
            service: self.clone(),
            _token: self.connections.token(),
        })
    }
}

/// One open connection.
pub(crate) struct Entered {
    service: Arc<Service>,
    _token: TaskTrackerToken,
}

impl Entered {
    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("limits", &self.limits)
            .field("open", &self.open())
            .finish_non_exhaustive()
    }
}
