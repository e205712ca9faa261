//! Keeps the workers of a pool up: starts them, watches their processes, replaces those that end or
//! are worn, adds and removes some.
//!
//! Runs on the control thread. What happens to calls is the data path's business ([`crate::Pool`]);
//! this side only knows that a worker is up, what its transport reports, and how its process ends.
//! The *pool supervisor* owns the members of a pool and decides; a *slot supervisor*, one task per
//! member, keeps one slot filled.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::pool::Pool;

mod error;
mod launcher;
mod plan;
mod pool_supervisor;
mod replacements;
mod scaling;
mod slot_supervisor;
mod wear;

pub use error::LaunchError;
pub use launcher::{Connect, Launched, Launcher, LauncherRef, Pace, Watched};
pub use plan::{NotResized, Plan};
pub use scaling::Scaling;
pub use wear::Limits;

use pool_supervisor::{Change, Order, PoolSupervisor};

/// Orders that wait for the pool supervisor. Each is a person's wish or a stop.
const ORDERS: usize = 16;

/// A pool with a full set of workers, and the task that keeps it so. Dropped, it kills them.
pub struct RunningPool {
    pool: Pool,
    orders: mpsc::Sender<Order>,
    troubles: watch::Receiver<Option<Arc<str>>>,
    renewals: Arc<Notify>,
    supervisor: JoinHandle<()>,
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
        Self::start_with(pool, filling.into().into_inner(), plan).await
    }

    pub(crate) async fn start_with(
        pool: Pool,
        launcher: Arc<dyn Launcher>,
        plan: Plan,
    ) -> Result<Self, LaunchError> {
        let (orders, inbox) = mpsc::channel(ORDERS);
        let renewals = Arc::new(Notify::new());
        let (supervisor, troubles) =
            PoolSupervisor::new(pool.clone(), Change { launcher, plan }, renewals.clone());
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
        let launcher = filling.into().into_inner();
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
