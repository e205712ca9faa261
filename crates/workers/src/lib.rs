//! Pools of PHP workers for the services of a server.
//!
//! The server makes [`Pools`] and [`IoThreads`] once; a service that has workers starts its pools
//! with them and gets a [`PoolSet`]. A command, a signal or a changed file acts on all pools,
//! whichever service they belong to.
//!
//! Knows no service and no protocol: what a call carries, and what warms a worker up, comes from
//! the service.

#![forbid(unsafe_code)]

mod facts;
mod io;
mod launch;
mod memory;
mod on_init;
mod pools;
mod processes;
mod renewals;
pub mod settings;
mod start;
mod user;
mod watching;

pub use facts::{PoolFacts, RoadRunnerState, WorkerFacts, newest_generation};
pub use io::{Io, IoThread, IoThreads, MAX_IO_THREADS, default_io_threads};
pub use launch::{Lacking, Launch};
pub use memory::{MemoryShare, TooMuchMemory};
pub use on_init::{OnInitError, run as run_on_init};
pub use pools::{
    DEFAULT_POOL, PoolHandle, PoolInfo, PoolResources, PoolSet, PoolSpec, Pools, Reloaded, Resized,
    Standing, StartedPools, Versions,
};
pub use processes::{server_families, worker_families};
pub use pronghorn_launch::{PhpError, SHORTER};
pub use settings::{OnInit, RelayAddress, ServerSettings};
pub use start::{Start, lacks_script, words};
pub use user::{UserError, WorkerUser, WorkerUsers};
pub use watching::{Watch, Watching};
