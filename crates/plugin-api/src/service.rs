//! The life of a service.

use std::any::Any;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_metrics::Registry;
use pronghorn_store::LazyStore;
use pronghorn_workers::{Io, Pools, WorkerUser};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::configuration::Configuration;
use crate::health::Health;
use crate::readiness::Readiness;
use crate::rpc::Methods;
use crate::sockets::Sockets;

/// Why a service did not start; what its source says is printed as well.
pub type StartError = Box<dyn Error + Send + Sync>;

/// A service that was made from its settings and has had no effect yet.
///
/// The server starts services one after the other and stops them in reverse: first those without workers, which workers
/// call from their first line on and until their last, then those that have workers.
pub trait Service: Any + Send {
    /// The name of its section, which is also its name in records and in RPC: `http`, `rpc`.
    fn name(&self) -> &'static str;

    /// Whether it has PHP workers: those services can be reset, and health checks ask after them.
    fn has_workers(&self) -> bool {
        false
    }

    /// How many I/O threads it asks for. The server has as many as the service that asks for most.
    fn io_threads(&self) -> Option<usize> {
        None
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

impl dyn Service {
    /// The service itself, where its kind is known: in its own [`Running::reload`]. None for another kind.
    #[must_use]
    pub fn downcast<S: Service>(self: Box<Self>) -> Option<Box<S>> {
        (self as Box<dyn Any>).downcast().ok()
    }
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

    /// Goes over to other settings: those of `to`, which was made from the configuration as it is now and does not start.
    /// Called for each reload, whether or not they differ.
    ///
    /// The default is for a service whose settings hold until it ends; its workers, if it has some, are replaced all the
    /// same.
    fn reload(&mut self, _to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        Box::pin(std::future::ready(Reload::NeedsRestart))
    }

    /// Where clients reach it, as a person would type it: `http://127.0.0.1:8080`.
    fn addresses(&self) -> Vec<String> {
        Vec::new()
    }

    /// Variables by which workers find it. Those of services without workers count.
    fn variables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// What the work under way may take at most after another process has taken over, where that is longer than a stop.
    fn handover_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The next process begins to use the sockets that this one offered, or gives them back.
    fn hand_over(&mut self, _step: Handover) {}

    /// Ends it: nothing new is begun, what is under way may finish until `deadline`, what is left is cut off.
    ///
    /// Returns soon after `deadline` at the latest. Whoever drops the future cuts off what is left.
    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped>;
}

/// What came of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Reload {
    /// The new settings hold, as far as a reload applies them.
    Applied,
    /// The old ones go on; the service has said why.
    Failed,
    /// The old ones go on: others hold from a restart on.
    NeedsRestart,
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
    /// Where relative paths begin.
    pub folder: PathBuf,
    /// As whom workers run, when that is not the server's own user.
    pub user: Option<WorkerUser>,
    /// How the services with workers are.
    pub health: Health,
    /// What is configured, as text.
    pub configuration: Configuration,
    /// None for a service that says that it has no workers.
    pub workers: Option<WorkerContext>,
    /// This service's own: its names begin with `pronghorn_`, and it registers at its start.
    pub metrics: Registry,
    /// This service's own.
    pub readiness: Readiness,
    /// Those to take and those to leave for the next process.
    pub sockets: Sockets,
    /// Where the server keeps what outlives it. The server closes it behind the last service.
    pub store: LazyStore,
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
