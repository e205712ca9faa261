//! Keeps the slots of a pool filled: starts workers, watches their processes, replaces those that end.
//!
//! Runs on the control thread. What happens to calls is the data path's business ([`crate::Pool`]); this side only knows
//! that a worker is up, what its transport reports, and how its process ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_process::{Exit, Signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::boot::{BootError, CommandLauncher};
use crate::core::SlotId;
use crate::ladder::{self, Ladder};
use crate::pool::{Order, Pool, Report, Seat, Transport};

mod backoff;

use backoff::Backoff;

/// A worker that lived this long came up: if it dies, its successor is started at once.
const SETTLED: Duration = Duration::from_secs(1);

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts one worker's process and waits until it has announced itself.
pub(crate) trait Launcher: Send + Sync + 'static {
    fn launch(&self, slot: SlotId) -> BoxFuture<'_, Result<Launched, BootError>>;
}

/// A worker that is up and not yet in its pool.
pub(crate) struct Launched {
    pub(crate) process: Box<dyn Watched>,
    /// Connects it: from then on it takes calls.
    pub(crate) connect: Box<dyn FnOnce(Seat) -> Arc<dyn Transport> + Send>,
}

/// A running process, as far as its watcher needs it. Dropped while it runs, it is killed.
pub(crate) trait Watched: Send {
    fn pid(&self) -> u32;
    fn wait(&mut self) -> BoxFuture<'_, Exit>;
    fn signal(&self, signal: Signal);
    /// What it said last on stderr.
    fn last_words(&self) -> Vec<String>;
}

/// A pool with a full set of workers, and the tasks that keep it so.
#[derive(Debug)]
pub struct Supervised {
    pool: Pool,
    phase: watch::Sender<Phase>,
    slots: JoinSet<()>,
}

/// What becomes of a pool's workers, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// They are kept up.
    Kept,
    /// Each finishes its call and ends.
    Stopped,
    /// Their time is over.
    Killed,
}

/// How long killed workers are waited for. The kernel ends them at once, unless one hangs in it.
const AFTER_KILL: Duration = Duration::from_secs(2);

impl Supervised {
    /// Starts `slots` workers, `at_once` at a time, and returns when all have come up.
    ///
    /// # Errors
    ///
    /// The first worker that does not come up ends the start: all others are stopped first.
    pub async fn start(
        pool: Pool,
        launcher: CommandLauncher,
        slots: usize,
        at_once: usize,
    ) -> Result<Self, BootError> {
        Self::start_with(pool, Arc::new(launcher), slots, at_once).await
    }

    pub(crate) async fn start_with(
        pool: Pool,
        launcher: Arc<dyn Launcher>,
        slots: usize,
        at_once: usize,
    ) -> Result<Self, BootError> {
        let (phase, phases) = watch::channel(Phase::Kept);
        let (first_boots, mut boots) = mpsc::channel(slots.max(1));
        let boot_permits = Arc::new(Semaphore::new(at_once.max(1)));
        let mut tasks = JoinSet::new();
        for slot in 0..slots {
            let keeper = Keeper {
                slot,
                pool: pool.clone(),
                launcher: launcher.clone(),
                boot_permits: boot_permits.clone(),
                phases: phases.clone(),
            };
            tasks.spawn(keeper.keep(first_boots.clone()));
        }
        drop(first_boots);
        let mut supervised = Self {
            pool,
            phase,
            slots: tasks,
        };
        while let Some(boot) = boots.recv().await {
            if let Err(error) = boot {
                supervised.kill().await;
                return Err(error);
            }
        }
        Ok(supervised)
    }

    /// Refuses waiting calls, lets each worker finish what it has, and ends all. What still runs after `grace` is killed;
    /// returns how many that were.
    pub async fn stop(mut self, grace: Duration) -> usize {
        let deadline = Instant::now() + grace;
        self.pool.close().await;
        self.phase.send_replace(Phase::Stopped);
        while let Ok(Some(_)) = tokio::time::timeout_at(deadline, self.slots.join_next()).await {}
        let killed = self.slots.len();
        self.kill().await;
        killed
    }

    async fn kill(&mut self) {
        self.phase.send_replace(Phase::Killed);
        let all = async { while self.slots.join_next().await.is_some() {} };
        if tokio::time::timeout(AFTER_KILL, all).await.is_err() {
            tracing::error!(target: "server", pool = self.pool.name(), "workers do not end although they were killed");
            self.slots.shutdown().await;
        }
    }
}

/// Keeps one slot filled.
struct Keeper {
    slot: SlotId,
    pool: Pool,
    launcher: Arc<dyn Launcher>,
    boot_permits: Arc<Semaphore>,
    phases: watch::Receiver<Phase>,
}

impl Keeper {
    async fn keep(mut self, first_boot: mpsc::Sender<Result<(), BootError>>) {
        let mut first_boot = Some(first_boot);
        let mut backoff = Backoff::default();
        while *self.phases.borrow() == Phase::Kept {
            match self.boot().await {
                Ok(launched) => {
                    if let Some(first) = first_boot.take() {
                        _ = first.send(Ok(())).await; // nobody waits any more when another one failed
                    }
                    let up = Instant::now();
                    self.live(launched).await;
                    if up.elapsed() >= SETTLED {
                        backoff = Backoff::default();
                    }
                }
                Err(None) => {}
                Err(Some(error)) => {
                    if let Some(first) = first_boot.take() {
                        _ = first.send(Err(error)).await;
                        return; // the start is over
                    }
                    tracing::error!(target: "server", pool = self.pool.name(), slot = self.slot, "{}", error.report());
                    self.pool.failed(self.slot).await;
                }
            }
            let pause = backoff.next();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = reached(&mut self.phases, Phase::Stopped) => {}
            }
        }
    }

    /// `Err(None)` when the stop came first; the half-started worker is ended by being dropped.
    async fn boot(&mut self) -> Result<Launched, Option<BootError>> {
        let _permit = self.boot_permits.acquire().await;
        self.pool.booting(self.slot).await;
        tokio::select! {
            booted = self.launcher.launch(self.slot) => booted.map_err(Some),
            () = reached(&mut self.phases, Phase::Stopped) => Err(None),
        }
    }

    /// From a worker's first call to the end of its process.
    async fn live(&self, launched: Launched) {
        let Launched {
            mut process,
            connect,
        } = launched;
        let (seat, mut reports) = self.pool.seat(self.slot);
        let worker = connect(seat);
        let mut ladder = Ladder::default();
        let mut expected = false;
        let mut told_to_stop = false;
        let (mut stopped, mut killed) = (self.phases.clone(), self.phases.clone());
        let mut told_to_die = false;
        let exit = loop {
            tokio::select! {
                exit = process.wait() => break exit,
                Some(report) = reports.recv() => expected |= self.heed(&report, &mut ladder, process.as_ref()),
                signal = ladder.step() => process.signal(signal),
                () = reached(&mut killed, Phase::Killed), if !told_to_die => {
                    told_to_die = true;
                    expected = true;
                    process.signal(Signal::Kill);
                }
                () = reached(&mut stopped, Phase::Stopped), if !told_to_stop => {
                    told_to_stop = true;
                    expected = true;
                    self.pool.drain(self.slot).await;
                }
            }
            if told_to_stop {
                ladder.start(ladder::ASKED);
            }
        };
        worker.order(Order::Ended(exit));
        let mut died_with = None;
        while let Some(report) = reports.recv().await {
            match report {
                Report::Left => break,
                Report::DiedWith { what, ran, retried } => died_with = Some((what, ran, retried)),
                Report::Overdue { .. }
                | Report::Leaving
                | Report::Garbage { .. }
                | Report::HungUp { .. } => {}
            }
        }
        if !expected || died_with.is_some() {
            self.report_crash(exit, process.as_ref(), died_with);
        }
    }

    /// Says what a transport reports and starts what has to follow. True when the worker's end is no surprise.
    fn heed(&self, report: &Report, ladder: &mut Ladder, process: &dyn Watched) -> bool {
        let (pool, pid) = (self.pool.name(), process.pid());
        match report {
            Report::Overdue { what, ran } => {
                tracing::error!(
                    target: "server", pool, pid, request = what, ran_ms = millis(*ran),
                    "deadline passed: the client got 504, the worker is stopped"
                );
                ladder.start(ladder::OVERDUE);
                true
            }
            Report::Leaving => {
                ladder.start(ladder::ASKED);
                true
            }
            Report::Garbage { what } => {
                tracing::error!(target: "server", pool, pid, "worker replaced: it sent {what}");
                ladder.start(ladder::GARBAGE);
                true
            }
            Report::HungUp { what } => {
                tracing::debug!(target: "server", pool, pid, "worker {what}");
                ladder.start(ladder::HUNG_UP);
                false
            }
            Report::DiedWith { .. } | Report::Left => false,
        }
    }

    fn report_crash(
        &self,
        exit: Exit,
        process: &dyn Watched,
        died_with: Option<(String, Duration, bool)>,
    ) {
        let (pool, pid) = (self.pool.name(), process.pid());
        let last_words = process.last_words().join("\n");
        match died_with {
            Some((what, ran, retried)) => tracing::error!(
                target: "server", pool, pid, request = what, ran_ms = millis(ran), retried, stderr = last_words,
                "worker died with {exit} during a request"
            ),
            None if exit == Exit::Code(0) => {
                tracing::info!(target: "server", pool, pid, "worker ended by itself with {exit}");
            }
            None => tracing::error!(
                target: "server", pool, pid, stderr = last_words, "worker died with {exit} while it was idle"
            ),
        }
    }
}

/// Waits for a phase. A pool that was dropped is past all of them.
async fn reached(phases: &mut watch::Receiver<Phase>, phase: Phase) {
    _ = phases.wait_for(|now| *now >= phase).await;
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
