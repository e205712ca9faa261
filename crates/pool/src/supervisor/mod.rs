//! Keeps the slots of a pool filled: starts workers, watches their processes, replaces those that end.
//!
//! Runs on the control thread. What happens to calls is the data path's business ([`crate::Pool`]); this side only knows
//! that a worker is up, what its transport reports, and how its process ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pronghorn_process::{Exit, Signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::boot::{BootError, CommandLauncher};
use crate::core::SlotId;
use crate::ladder::{self, Ladder};
use crate::pool::{Order, Pool, Report, Seat, Transport};
use crate::roster::Entry;

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
pub struct Supervised {
    pool: Pool,
    launcher: Arc<dyn Launcher>,
    size: usize,
    at_once: usize,
    current: Generation,
    /// Generations that were replaced and whose workers still finish something.
    retiring: JoinSet<()>,
}

/// All workers that one start or reload has brought up.
struct Generation {
    pool: Pool,
    phase: watch::Sender<Phase>,
    slots: Vec<SlotId>,
    keepers: JoinSet<()>,
    progress: mpsc::Receiver<Progress>,
}

/// What a keeper tells of its first worker: that it is up, or why not; and then that it takes calls.
type Progress = Result<(), BootError>;

/// What becomes of a generation's workers, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// They boot, and wait for each other.
    Held,
    /// They take calls and are kept up.
    Kept,
    /// Each finishes its call and ends.
    Stopped,
    /// Their time is over.
    Killed,
}

/// How long killed workers are waited for. The kernel ends them at once, unless one hangs in it.
const AFTER_KILL: Duration = Duration::from_secs(2);

impl Supervised {
    /// Starts `size` workers, `at_once` at a time, and returns when all have come up.
    ///
    /// # Errors
    ///
    /// The first worker that does not come up ends the start: all others are stopped first.
    pub async fn start(
        pool: Pool,
        launcher: Arc<CommandLauncher>,
        size: usize,
        at_once: usize,
    ) -> Result<Self, BootError> {
        Self::start_with(pool, launcher, size, at_once).await
    }

    pub(crate) async fn start_with(
        pool: Pool,
        launcher: Arc<dyn Launcher>,
        size: usize,
        at_once: usize,
    ) -> Result<Self, BootError> {
        let mut current = Generation::boot(&pool, &launcher, size, at_once).await?;
        current.let_in().await;
        Ok(Self {
            pool,
            launcher,
            size,
            at_once,
            current,
            retiring: JoinSet::new(),
        })
    }

    /// Boots a new generation beside the one that works. When all of it is up it takes over, and the old workers end after
    /// what they have at hand, for which they get `grace`. No call is refused or waits for this.
    ///
    /// # Errors
    ///
    /// The first worker that does not come up ends the reload; the old generation goes on as if nothing had happened.
    pub async fn reload(&mut self, grace: Duration) -> Result<(), BootError> {
        self.reload_as(self.launcher.clone(), self.size, grace)
            .await
    }

    /// The same with another command or number of workers, which stay those of the pool.
    ///
    /// # Errors
    ///
    /// As above; the pool keeps its own, too.
    pub async fn change(
        &mut self,
        launcher: Arc<CommandLauncher>,
        size: usize,
        grace: Duration,
    ) -> Result<(), BootError> {
        self.reload_as(launcher, size, grace).await
    }

    async fn reload_as(
        &mut self,
        launcher: Arc<dyn Launcher>,
        size: usize,
        grace: Duration,
    ) -> Result<(), BootError> {
        let mut next = Generation::boot(&self.pool, &launcher, size, self.at_once).await?;
        (self.launcher, self.size) = (launcher, size);
        next.let_in().await;
        let old = std::mem::replace(&mut self.current, next);
        while self.retiring.try_join_next().is_some() {}
        self.retiring.spawn(async move {
            let killed = old.stop(Instant::now() + grace).await;
            if killed > 0 {
                tracing::warn!(target: "server", killed, "workers of the old generation took too long and were killed");
            }
        });
        Ok(())
    }

    /// Refuses waiting calls, lets each worker finish what it has, and ends all. What still runs after `grace` is killed;
    /// returns how many that were.
    pub async fn stop(mut self, grace: Duration) -> usize {
        let deadline = Instant::now() + grace;
        self.pool.close().await;
        let killed = self.current.stop(deadline).await;
        let retired = async { while self.retiring.join_next().await.is_some() {} };
        _ = tokio::time::timeout_at(deadline, retired).await; // what is left is killed as it is dropped
        killed
    }
}

impl Generation {
    /// Boots `size` workers, which then wait to be let in.
    async fn boot(
        pool: &Pool,
        launcher: &Arc<dyn Launcher>,
        size: usize,
        at_once: usize,
    ) -> Result<Self, BootError> {
        let slots = pool.add_slots(size).await;
        let generation = pool.next_generation();
        let (phase, phases) = watch::channel(Phase::Held);
        let (told, progress) = mpsc::channel(size.max(1));
        let boot_permits = Arc::new(Semaphore::new(at_once.max(1)));
        let mut keepers = JoinSet::new();
        for slot in slots.iter().copied() {
            let keeper = Keeper {
                slot,
                generation,
                pool: pool.clone(),
                launcher: launcher.clone(),
                boot_permits: boot_permits.clone(),
                phases: phases.clone(),
            };
            keepers.spawn(keeper.keep(told.clone()));
        }
        drop(told);
        let mut generation = Self {
            pool: pool.clone(),
            phase,
            slots,
            keepers,
            progress,
        };
        for _ in 0..size {
            if let Some(Err(error)) = generation.progress.recv().await {
                generation.end().await;
                return Err(error);
            }
        }
        Ok(generation)
    }

    /// Lets the workers take calls, and returns when all that still live do.
    async fn let_in(&mut self) {
        self.phase.send_replace(Phase::Kept);
        for _ in 0..self.slots.len() {
            _ = self.progress.recv().await; // closed when one has died meanwhile
        }
    }

    /// Lets each worker finish what it has and ends all. Returns how many had to be killed.
    async fn stop(mut self, deadline: Instant) -> usize {
        self.phase.send_replace(Phase::Stopped);
        while let Ok(Some(_)) = tokio::time::timeout_at(deadline, self.keepers.join_next()).await {}
        let killed = self.keepers.len();
        self.end().await;
        killed
    }

    /// Kills what is left and gives the slots back.
    async fn end(mut self) {
        self.phase.send_replace(Phase::Killed);
        let all = async { while self.keepers.join_next().await.is_some() {} };
        if tokio::time::timeout(AFTER_KILL, all).await.is_err() {
            tracing::error!(target: "server", pool = self.pool.name(), "workers do not end although they were killed");
            self.keepers.shutdown().await;
        }
        self.pool.remove_slots(self.slots).await;
    }
}

/// Keeps one slot filled.
struct Keeper {
    slot: SlotId,
    generation: u64,
    pool: Pool,
    launcher: Arc<dyn Launcher>,
    boot_permits: Arc<Semaphore>,
    phases: watch::Receiver<Phase>,
}

impl Keeper {
    async fn keep(mut self, told: mpsc::Sender<Progress>) {
        let mut first = Some(told);
        let mut backoff = Backoff::default();
        while *self.phases.borrow() <= Phase::Kept {
            match self.boot().await {
                Ok(launched) => {
                    if let Some(first) = &first {
                        _ = first.send(Ok(())).await; // nobody listens any more when another one failed
                        reached(&mut self.phases, Phase::Kept).await;
                    }
                    let up = Instant::now();
                    let expected = self.live(launched, first.take()).await;
                    if expected || up.elapsed() >= SETTLED {
                        backoff = Backoff::default();
                    }
                }
                Err(None) => {}
                Err(Some(error)) => {
                    if let Some(first) = first {
                        _ = first.send(Err(error)).await; // as above
                        return; // the generation is given up
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

    /// From a worker's first call to the end of its process. True when that end was no surprise.
    async fn live(&self, launched: Launched, mut first: Option<mpsc::Sender<Progress>>) -> bool {
        let Launched {
            mut process,
            connect,
        } = launched;
        let (seat, mut reports) = self.pool.seat(self.slot);
        let worker = connect(seat);
        self.pool.roster().add(Entry {
            slot: self.slot,
            generation: self.generation,
            pid: process.pid(),
            started: SystemTime::now(),
            worker: worker.clone(),
        });
        let mut ladder = Ladder::default();
        let mut expected = false;
        let mut told_to_stop = false;
        let (mut stopped, mut killed) = (self.phases.clone(), self.phases.clone());
        let mut told_to_die = false;
        let exit = loop {
            tokio::select! {
                exit = process.wait() => break exit,
                Some(report) = reports.recv() => {
                    if let (Report::Entered, Some(first)) = (&report, first.take()) {
                        _ = first.send(Ok(())).await; // whoever waited may have given up
                    }
                    expected |= self.heed(&report, &mut ladder, process.as_ref());
                }
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
        };
        self.pool.roster().remove(self.slot);
        worker.order(Order::Ended(exit));
        let mut died_with = None;
        while let Some(report) = reports.recv().await {
            match report {
                Report::Left => break,
                Report::DiedWith { what, ran, retried } => died_with = Some((what, ran, retried)),
                Report::Entered
                | Report::Overdue { .. }
                | Report::Leaving
                | Report::Garbage { .. }
                | Report::HungUp { .. } => {}
            }
        }
        let expected = expected && died_with.is_none();
        if !expected {
            self.report_crash(exit, process.as_ref(), died_with);
        }
        expected
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
            Report::Garbage { what, request } => {
                tracing::error!(target: "server", pool, pid, request, "worker replaced: what it sent makes no sense: {what}");
                ladder.start(ladder::GARBAGE);
                true
            }
            Report::HungUp { what } => {
                tracing::debug!(target: "server", pool, pid, "worker {what}");
                ladder.start(ladder::HUNG_UP);
                false
            }
            Report::Entered | Report::DiedWith { .. } | Report::Left => false,
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

impl std::fmt::Debug for Supervised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervised")
            .field("pool", &self.pool)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
