//! A way to fill the slots of a pool, and the processes that come of it: the supervisors know no
//! other thing of a worker.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_process::{Exit, Signal};
use pronghorn_ring::StackLayout;

use super::error::LaunchError;
use crate::contract::Transport;
use crate::core::SlotId;
use crate::pool::SlotHandle;
use crate::roster::Via;

/// Starts one worker's process and waits until it has announced itself.
pub trait Launcher: Send + Sync + 'static {
    fn launch(&self, slot: SlotId, pace: Pace) -> BoxFuture<'_, Result<Launched, LaunchError>>;

    /// What is launched from now on belongs to a new generation.
    fn begin_generation(&self) {}

    /// After the last worker: what it has beside them ends.
    fn finish(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// How a worker ended that nobody had asked to. True when the others should be replaced.
    fn died(&self, _: Exit) -> bool {
        false
    }

    /// Whether a worker that ended so has left a lock for which others wait. Then they should be
    /// replaced.
    fn left_a_lock(&self, _: Exit) -> BoxFuture<'_, bool> {
        Box::pin(async { false })
    }

    /// Bytes that a worker shares with no other process, if they are `at_least` so many.
    fn own_memory(&self, pid: u32, at_least: u64) -> Option<u64> {
        pronghorn_process::own_memory(pid, at_least)
    }
}

/// Whether a boot goes before what works meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Usual,
    /// Somebody waits for a new generation, which boots beside workers that may all be busy. Not
    /// every server may do so.
    Overtaking,
}

/// A worker that is up and not yet in its pool.
pub struct Launched {
    pub process: Box<dyn Watched>,
    pub via: Via,
    /// Connects it: from then on it takes calls.
    pub connect: Connect,
}

pub type Connect = Box<dyn FnOnce(SlotHandle) -> Arc<dyn Transport> + Send>;

/// A running process, as far as its watcher needs it. Dropped while it runs, it is killed.
pub trait Watched: Send {
    fn pid(&self) -> u32;
    fn wait(&mut self) -> BoxFuture<'_, Exit>;
    fn signal(&self, signal: Signal);
    /// Has this call end with an exception, where its worker has said that it can.
    fn interrupt(&self, call: u32);
    /// The number of the zygote that it came from.
    fn forked_by(&self) -> Option<u32> {
        None
    }
    /// PHP's stack, the innermost frame first, by where the worker says that it is.
    ///
    /// # Errors
    ///
    /// When it can't be read.
    fn stack(&self, _layout: &StackLayout) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// What it said last on stderr.
    fn last_words(&self) -> Vec<String>;
    /// After its end: the most memory that it ever held, in bytes; None when nobody could tell.
    fn peak_memory(&self) -> Option<u64>;
    /// After its end: the processor time that it has taken; None when nobody could tell.
    fn cpu(&self) -> Option<Duration> {
        None
    }
}

/// A way to fill the slots of a pool. Cheap to clone.
#[derive(Clone)]
pub struct LauncherRef(Arc<dyn Launcher>);

impl<L: Launcher> From<Arc<L>> for LauncherRef {
    fn from(launcher: Arc<L>) -> Self {
        Self(launcher)
    }
}

impl LauncherRef {
    pub(super) fn into_inner(self) -> Arc<dyn Launcher> {
        self.0
    }
}

impl std::fmt::Debug for LauncherRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LauncherRef").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Launched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launched")
            .field("pid", &self.process.pid())
            .field("via", &self.via)
            .finish_non_exhaustive()
    }
}
