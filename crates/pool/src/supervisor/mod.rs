//! Keeps the workers of a pool up: starts them, watches their processes, replaces those that end or
//! are worn, adds and removes some.
//!
//! Runs on the control thread. What happens to calls is the data path's business ([`crate::Pool`]);
//! this side only knows that a worker is up, what its transport reports, and how its process ends.
//! The *pool supervisor* owns the members of a pool and decides; a *slot supervisor*, one task per
//! member, keeps one slot filled.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_process::{Exit, Signal};
use pronghorn_ring::StackLayout;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::core::SlotId;
use crate::pool::{Pool, SlotHandle, Transport};
use crate::roster::Via;

mod error;
mod pool_supervisor;
mod replacements;
mod scaling;
mod slot_supervisor;
mod wear;

pub use error::LaunchError;
pub use scaling::Scaling;
pub use wear::Limits;

use pool_supervisor::{Change, Order, PoolSupervisor};

/// Orders that wait for the pool supervisor. Each is a person's wish or a stop.
const ORDERS: usize = 16;

/// Starts one worker's process and waits until it has announced itself.
pub trait Launcher: Send + Sync + 'static {
    fn launch(&self, slot: SlotId) -> BoxFuture<'_, Result<Launched, LaunchError>>;

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

    /// Bytes that a worker shares with no other process, if they are `at_least` so many.
    fn own_memory(&self, pid: u32, at_least: u64) -> Option<u64> {
        pronghorn_process::own_memory(pid, at_least)
    }
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

/// How many workers a pool has, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// At the start.
    pub workers: usize,
    /// Between which sizes it moves by itself; None: it does not.
    pub scaling: Option<Scaling>,
    /// The most that can be asked for.
    pub most: usize,
    /// How many boot at once, for whatever reason.
    pub at_once: usize,
    pub limits: Limits,
}

/// A pool with a full set of workers, and the task that keeps it so. Dropped, it kills them.
pub struct RunningPool {
    pool: Pool,
    orders: mpsc::Sender<Order>,
    troubles: watch::Receiver<Option<Arc<str>>>,
    renewals: Arc<Notify>,
    supervisor: JoinHandle<()>,
}

/// Why a pool has not got more or fewer workers.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotResized {
    #[error("pool `{pool}` would have {would} workers; it can have from 1 to {most}")]
    OutOfRange {
        pool: String,
        would: usize,
        most: usize,
    },
    #[error("a worker did not come up: {0}")]
    Boot(Arc<str>),
    #[error("pool `{0}` is stopping")]
    Stopping(String),
}

impl RunningPool {
    /// Starts the workers and returns when all have come up.
    ///
    /// # Errors
    ///
    /// The first worker that does not come up ends the start: all others are stopped first.
    pub async fn start(
        pool: Pool,
        filling: impl Into<LauncherRef>,
        plan: Plan,
    ) -> Result<Self, LaunchError> {
        Self::start_with(pool, filling.into().0, plan).await
    }

    pub(crate) async fn start_with(
        pool: Pool,
        launcher: Arc<dyn Launcher>,
        plan: Plan,
    ) -> Result<Self, LaunchError> {
        let (orders, inbox) = mpsc::channel(ORDERS);
        let renewals = Arc::new(Notify::new());
        let (supervisor, troubles) =
            PoolSupervisor::new(pool.clone(), launcher, plan, renewals.clone());
        let supervised = Self {
            pool,
            orders,
            troubles,
            renewals,
            supervisor: Handle::current().spawn(supervisor.run(inbox)),
        };
        supervised.reload(Duration::ZERO).await?;
        Ok(supervised)
    }

    /// Boots a new generation beside the one that works. When all of it is up it takes over, and
    /// the old workers end after what they have at hand, for which they get `grace`. No call is
    /// refused or waits for this. Asked for during a reload, it begins when that has ended.
    ///
    /// # Errors
    ///
    /// The first worker that does not come up ends the reload; the old generation goes on as if
    /// nothing had happened.
    pub async fn reload(&self, grace: Duration) -> Result<(), LaunchError> {
        self.reload_with(None, grace).await
    }

    /// The same with another way to start workers, and how many.
    ///
    /// # Errors
    ///
    /// As above; the pool keeps its own, too.
    pub async fn change(
        &self,
        filling: impl Into<LauncherRef>,
        plan: Plan,
        grace: Duration,
    ) -> Result<(), LaunchError> {
        let launcher = filling.into().0;
        let change = Change { launcher, plan };
        self.reload_with(Some(change), grace).await
    }

    async fn reload_with(
        &self,
        change: Option<Change>,
        grace: Duration,
    ) -> Result<(), LaunchError> {
        let order = |done| Order::Reload {
            change,
            grace,
            done,
        };
        match self.ask(order).await {
            Some(reloaded) => reloaded,
            None => Err(LaunchError::stopped(self.pool.name())),
        }
    }

    /// Adds workers, and returns how many there are when these take calls. A reload keeps them.
    ///
    /// # Errors
    ///
    /// When there would be too many, or one does not come up; then the others of them stay.
    pub async fn add(&self, count: usize) -> Result<usize, NotResized> {
        self.resized(|done| Order::Add { count, done }).await
    }

    /// Takes workers away, which finish what they have, and returns how many there will be.
    ///
    /// # Errors
    ///
    /// When none would be left.
    pub async fn remove(&self, count: usize) -> Result<usize, NotResized> {
        self.resized(|done| Order::Remove { count, done }).await
    }

    async fn resized(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<usize, NotResized>>) -> Order,
    ) -> Result<usize, NotResized> {
        self.ask(order)
            .await
            .unwrap_or_else(|| Err(NotResized::Stopping(self.pool.name().to_owned())))
    }

    /// Refuses waiting calls, lets each worker finish what it has, and ends all. What still runs
    /// after `grace` is killed; returns how many that were.
    pub async fn stop(self, grace: Duration) -> usize {
        self.ask(|done| Order::Stop { grace, done })
            .await
            .unwrap_or(0)
    }

    /// Why the pool has no worker that takes calls; None while it has one.
    pub fn troubles(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.troubles.clone()
    }

    /// Returns when a worker of the generation that works has said that a new one would do better.
    /// Cancel safe.
    pub async fn renewal_asked_for(&self) {
        self.renewals.notified().await;
    }

    async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.orders.send(order(done)).await.ok()?;
        answer.await.ok()
    }
}

impl Drop for RunningPool {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl std::fmt::Debug for RunningPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningPool")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}
