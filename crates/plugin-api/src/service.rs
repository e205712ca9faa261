//! The life of a service.

use std::error::Error;

use pronghorn_base::BoxFuture;
use pronghorn_metrics::Registry;
use pronghorn_workers::{Io, Pools};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::readiness::Readiness;
use crate::rpc::Methods;
use crate::sockets::Sockets;

/// Why a service did not start; what its source says is printed as well.
pub type StartError = Box<dyn Error + Send + Sync>;

/// A service that was made from its settings and has had no effect yet.
///
/// The server starts services one after the other and stops them in reverse. RPC is the first, so that workers can call
/// from their first line on and until their last; those that others call (caches, locks) come next; those that
/// have workers are last.
pub trait Service: Send {
    /// The name of its section, which is also its name in records and in RPC: `http`, `rpc`.
    fn name(&self) -> &'static str;

    /// Whether it has PHP workers: those services can be reset, and health checks ask after them.
    fn has_workers(&self) -> bool {
        false
    }

    /// Starts it on the runtime it is called on. Done once it does its work or, when that comes later, once
    /// [`Context::readiness`] can tell.
    ///
    /// Whoever drops the future ends what was begun.
    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>>;
}

/// A service at work. Dropped without [`stop`](Self::stop), it ends at once.
pub trait Running: Send {
    /// All services are up, and no other process is responsible any more: from now on, clients are taken from the
    /// listening sockets. A socket that workers need while they boot is served from the start, unless it was inherited.
    ///
    /// # Errors
    ///
    /// When a socket can't be served.
    fn open(&mut self) -> Result<(), StartError> {
        Ok(())
    }

    /// The next process begins to use the sockets that this one offered, or gives them back.
    fn hand_over(&mut self, _step: Handover) {}

    /// Ends it: nothing new is begun, what is under way may finish until `deadline`, what is left is cut off.
    ///
    /// Returns soon after `deadline` at the latest. Whoever drops the future cuts off what is left.
    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped>;
}

/// How far another process is in taking over from this one, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// It boots. Sockets on which workers announce themselves are its own for this time.
    Begun,
    /// It gave up: all is as before.
    Failed,
    /// It takes clients. This process takes no further ones, leaves files of sockets alone, and is about to stop.
    Done,
}

/// What a service is started with.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Cancelled when the server begins to stop, for all services at once, before the first one's
    /// [`stop`](Running::stop): the time to take nothing new. A service that others need to finish
    /// their work goes on until its own `stop`.
    pub shutdown: CancellationToken,
    /// Where the service adds its methods, as it starts.
    pub rpc: Methods,
    /// None for a service that says that it has no workers.
    pub workers: Option<WorkerContext>,
    /// This service's own: its names begin with `pronghorn_`, and it registers at its start.
    pub metrics: Registry,
    /// This service's own.
    pub readiness: Readiness,
    /// Those to take and those to leave for the next process.
    pub sockets: Sockets,
}

/// What a service needs to have workers.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// Where it starts its pools.
    pub pools: Pools,
    /// The threads on which connections of clients and workers live.
    pub io: Io,
}

/// How a service came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// All work was finished.
    Clean,
    /// The deadline came first. Says what was cut off, for the log: `2 calls`.
    CutOff(String),
}
