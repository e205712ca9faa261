//! A thread that serves requests, as workers that live on it need it. Who runs the thread need not
//! know how they are connected.

use std::sync::Arc;

use tokio::runtime::{Builder, Handle};

/// Looks whether workers of this thread have said something. A thread that sleeps looks before
/// that; a busy one calls this wherever it comes by, as on every read and write of a client. On
/// other threads it does nothing.
pub use pronghorn_ring::collect;

/// A thread that serves requests.
#[derive(Debug, Clone)]
pub struct Home {
    pub runtime: Handle,
    /// What workers in shared memory see of it; or why there is none, and its workers use pipes.
    pub ring: Result<pronghorn_ring::Thread, Arc<str>>,
}

impl Home {
    /// Has the runtime look for what workers have said before it sleeps. Without it they are heard
    /// all the same, later.
    pub fn prepare(runtime: &mut Builder) -> &mut Builder {
        runtime
            .on_thread_park(pronghorn_ring::Thread::before_park)
            .on_thread_unpark(pronghorn_ring::Thread::after_park)
    }

    /// On a runtime of one thread that was prepared.
    pub fn new(runtime: Handle) -> Self {
        let ring =
            pronghorn_ring::Thread::serve(&runtime).map_err(|error| error.to_string().into());
        Self { runtime, ring }
    }
}
