//! Keeps one slot filled: boots its worker, watches the process, boots again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pronghorn_base::millis;
use pronghorn_process::{CpuClock, Exit, Signal, Usage};
use pronghorn_ring::StackLayout;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;

use super::error::LaunchError;
use super::launcher::{Launched, Launcher, Pace, Watched};
use super::replacements::{Replacements, STARTS};
use crate::contract::UnderWay;
use crate::core::SlotId;
use crate::escalation::{self, Escalation, Step};
use crate::incident::{CallDetails, Incident, IncidentKind, Progress};
use crate::observer::Look;
use crate::pool::{Order, Pool, Report, Transport};
use crate::roster::{Entry, Via};
use crate::stats::Counter;

/// A worker that dies sooner, and never had a call, is as good as one that did not come up.
const SETTLED: Duration = Duration::from_secs(1);

/// A slot supervisor's number in its pool supervisor; never used again.
pub(super) type MemberId = u64;

/// What becomes of a member, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Its worker boots, and waits for those of the others.
    Held,
    /// It takes calls and is kept up.
    Kept,
    /// It finishes its call and ends.
    Stopped,
    /// Its time is over.
    Killed,
}

/// What a slot supervisor tells its pool supervisor.
#[derive(Debug)]
pub(super) enum News {
    /// The worker has announced itself.
    Up,
    /// It takes calls.
    Entered { pid: u32 },
    /// It has had its calls.
    Worn,
    /// It would do better as a new process.
    AsksForRenewal(Renewal),
    /// It gets no more calls.
    Drained,
    /// Its process has ended.
    Ended,
    /// It did not come up. For the first time, the slot supervisor gives up; later it tries again.
    Failed(LaunchError),
}

/// Why all workers should be new ones.
#[derive(Debug, Clone, Copy)]
pub(super) enum Renewal {
    /// The OPcache of one was emptied.
    Reset,
    /// That of one is full.
    Full,
    /// Too many have died that share one.
    Crashes,
    /// One was killed with a lock that they share.
    Locked,
}

/// A worker that is up: all that it was told, and that was done against it.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each may be so with any other"
)]
struct Life {
    escalation: Escalation,
    is_told_to_stop: bool,
    is_told_to_die: bool,
    /// The call that it is late with.
    late_with: u32,
    /// Whether its process was told to end for that.
    is_ended: bool,
    /// Whether its end is no surprise.
    is_end_expected: bool,
}

/// How a worker that was up has ended.
enum End {
    /// It was told to, or wished to.
    Expected,
    /// By surprise, with a call or after some.
    AtWork,
    /// By surprise, and it never had a call.
    Idle,
}

pub(super) struct SlotSupervisor {
    pub(super) id: MemberId,
    pub(super) slot: SlotId,
    pub(super) generation: u64,
    /// The pace of its first boot.
    pub(super) pace: Pace,
    pub(super) pool: Pool,
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) boots: Arc<Semaphore>,
    pub(super) replacements: Arc<Replacements>,
    pub(super) phases: watch::Receiver<Phase>,
    pub(super) news: mpsc::Sender<(MemberId, News)>,
}

impl SlotSupervisor {
    pub(super) async fn keep(mut self) {
        let mut been_up = false;
        // The first try after a worker that had come up is immediate.
        let mut backoff = STARTS.at_once(1);
        while *self.phases.borrow() <= Phase::Kept {
            let mut pause = Duration::ZERO;
            match self.boot().await {
                Ok(launched) => {
                    self.tell(News::Up).await;
                    reached(&mut self.phases, Phase::Kept).await;
                    if *self.phases.borrow() > Phase::Kept {
                        return; // it was never let in; dropped, the process is killed
                    }
                    been_up = true;
                    self.pace = Pace::Usual;
                    let up = Instant::now();
                    let end = self.live(launched).await;
                    self.tell(News::Ended).await;
                    let now = Instant::now();
                    match end {
                        End::Expected => backoff.reset(),
                        _ if now - up >= SETTLED => backoff.reset(),
                        End::AtWork => {
                            backoff.reset();
                            pause = self.replacements.next(self.pool.name(), now);
                        }
                        End::Idle => {}
                    }
                }
                Err(None) => {}
                Err(Some(error)) => {
                    self.pool.count(Counter::BootFailed);
                    self.pool.tell(|| Incident {
                        kind: IncidentKind::Boot,
                        pool: self.pool.name().to_owned(),
                        cause: error.to_string(),
                        text: error.report().to_owned(),
                        ..Incident::default()
                    });
                    if been_up {
                        tracing::error!(target: "server", pool = self.pool.name(), slot = self.slot, "{}", error.report());
                        self.pool.failed(self.slot).await;
                    }
                    self.tell(News::Failed(error)).await;
                    if !been_up {
                        return;
                    }
                }
            }
            let pause = pause.max(backoff.next_wait());
            tokio::select! {
                biased;
                () = reached(&mut self.phases, Phase::Stopped) => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn tell(&self, news: News) {
        _ = self.news.send((self.id, news)).await; // without its pool supervisor a slot supervisor is about to be dropped
    }

    /// `Err(None)` when the stop came first; the half-started worker is ended by being dropped.
    async fn boot(&self) -> Result<Launched, Option<LaunchError>> {
        let mut phases = self.phases.clone();
        let boot = async {
            let _permit = self.boots.acquire().await;
            self.pool.booting(self.slot).await;
            let since = Instant::now();
            let launched = self.launcher.launch(self.slot, self.pace).await;
            if launched.is_ok() {
                self.pool.stats().booted(since.elapsed());
            }
            launched
        };
        tokio::select! {
            biased;
            () = reached(&mut phases, Phase::Stopped) => Err(None),
            booted = boot => booted.map_err(Some),
        }
    }

    /// From a worker's first call to the end of its process.
    async fn live(&self, launched: Launched) -> End {
        let Launched {
            mut process,
            via,
            connect,
        } = launched;
        let (slot_handle, mut reports) = self.pool.slot_handle(self.slot, process.pid());
        let worker = connect(slot_handle);
        let connection = Connection::new(self, process.as_ref(), via, worker);
        let mut life = Life::default();
        let exit = self.until_exit(&mut life, &mut reports, &mut process).await;
        let has_worked = connection.worker.executions() > 0;
        connection.end(exit);
        self.pool.stats().ended_after(process.cpu());
        let died_with = self.last_reports(&mut life, reports).await;
        if !life.is_told_to_die && self.launcher.left_a_lock(exit).await {
            self.tell(News::AsksForRenewal(Renewal::Locked)).await;
        }
        if life.is_end_expected && died_with.is_none() {
            return End::Expected;
        }
        if let (true, Some(died_with)) = (life.is_told_to_die, &died_with) {
            self.report_kill(process.as_ref(), died_with);
            return End::Expected;
        }
        self.report_crash(exit, process.as_ref(), died_with);
        if self.launcher.died(exit) {
            self.tell(News::AsksForRenewal(Renewal::Crashes)).await;
        }
        if has_worked { End::AtWork } else { End::Idle }
    }

    /// Follows what the transport reports, the escalation and the pool's phases until the process
    /// has ended.
    async fn until_exit(
        &self,
        life: &mut Life,
        reports: &mut mpsc::UnboundedReceiver<Report>,
        process: &mut Box<dyn Watched>,
    ) -> Exit {
        let (mut stopped, mut killed) = (self.phases.clone(), self.phases.clone());
        loop {
            tokio::select! {
                biased;
                Some(report) = reports.recv() => {
                    if let Some(news) = self.follow(life, report, process.as_ref()) {
                        self.tell(news).await;
                    }
                }
                exit = process.wait() => return exit,
                step = life.escalation.step() => match step {
                    Step::Interrupt => process.interrupt(life.late_with),
                    Step::Terminate => {
                        life.is_ended = true;
                        process.signal(Signal::Terminate);
                    }
                    Step::Kill => {
                        life.is_ended = true;
                        process.signal(Signal::Kill);
                    }
                },
                () = reached(&mut killed, Phase::Killed), if !life.is_told_to_die => {
                    life.is_told_to_die = true;
                    life.is_end_expected = true;
                    process.signal(Signal::Kill);
                }
                () = reached(&mut stopped, Phase::Stopped), if !life.is_told_to_stop => {
                    life.is_told_to_stop = true;
                    life.is_end_expected = true;
                    self.pool.drain(self.slot).await;
                    self.tell(News::Drained).await;
                }
            }
        }
    }

    /// Does what a report of a worker's transport asks for while its process runs. Returns what the
    /// pool supervisor has to know.
    fn follow(&self, life: &mut Life, report: Report, process: &dyn Watched) -> Option<News> {
        match report {
            Report::Entered => return Some(News::Entered { pid: process.pid() }),
            Report::Worn => return Some(News::Worn),
            Report::AsksForRenewal { full } => {
                let why = if full { Renewal::Full } else { Renewal::Reset };
                return Some(News::AsksForRenewal(why));
            }
            Report::Slow { call, stack } => {
                look(self.pool.name(), &call, stack.as_deref(), process);
            }
            // Else it waits for its end.
            Report::Recovered { .. } if life.is_ended => {}
            Report::Recovered { may_go_on } => {
                life.escalation.stop();
                life.is_end_expected = life.is_told_to_stop || life.is_told_to_die;
                _ = may_go_on.send(()); // its transport may be gone: then there is nothing to go on with
            }
            Report::Overdue { call, .. } => {
                life.late_with = call.unwrap_or_default();
                life.is_end_expected |= self.heed(&report, &mut life.escalation, process);
            }
            Report::Leaving
            | Report::Garbage { .. }
            | Report::HungUp { .. }
            | Report::DiedWith { .. }
            | Report::Left => {
                life.is_end_expected |= self.heed(&report, &mut life.escalation, process);
            }
        }
        None
    }

    /// Reads what the transport still reports after the end of the process: the call that it died
    /// with, if it had one.
    async fn last_reports(
        &self,
        life: &mut Life,
        mut reports: mpsc::UnboundedReceiver<Report>,
    ) -> Option<DiedWith> {
        let mut died_with = None;
        while let Some(report) = reports.recv().await {
            match report {
                Report::Left => break,
                Report::DiedWith {
                    what,
                    ran,
                    progress,
                    retried,
                    is_told,
                    identity,
                    details,
                } => {
                    if let Some(identity) = identity.filter(|_| !life.is_end_expected) {
                        self.pool.died_of(identity, what.clone());
                    }
                    died_with = Some(DiedWith {
                        what,
                        ran,
                        progress,
                        retried,
                        is_told,
                        details,
                    });
                }
                // It had said so, and its end was seen before that was read.
                Report::Leaving => life.is_end_expected = true,
                Report::Entered
                | Report::Worn
                | Report::Overdue { .. }
                | Report::Slow { .. }
                | Report::Recovered { .. }
                | Report::AsksForRenewal { .. }
                | Report::Garbage { .. }
                | Report::HungUp { .. } => {}
            }
        }
        died_with
    }

    /// Says what a transport reports and starts what has to follow. True when the worker's end is
    /// no surprise.
    fn heed(&self, report: &Report, escalation: &mut Escalation, process: &dyn Watched) -> bool {
        let (pool, pid) = (self.pool.name(), process.pid());
        match report {
            Report::Overdue {
                what,
                ran,
                progress,
                client,
                is_told,
                call,
                details,
                stack,
            } => {
                self.pool.tell(|| Incident {
                    kind: IncidentKind::TimeOut,
                    pool: pool.to_owned(),
                    pid,
                    cause: format!("deadline passed: {}", without_query(what)),
                    request: Some(what.clone()),
                    details: details.clone(),
                    ran: Some(*ran),
                    progress: progress.as_ref().map(|progress| {
                        let clock = CpuClock::of(pid);
                        progress.with_cpu(clock.and_then(CpuClock::read))
                    }),
                    memory: Usage::of(pid).map(|usage| usage.memory),
                    stack: stack_of(process, stack.as_deref()),
                    stderr: process.last_words(),
                    ..Incident::default()
                });
                let (what_follows, steps) = match call {
                    Some(_) => ("the call is interrupted", escalation::LATE),
                    None => ("the worker is stopped", escalation::OVERDUE),
                };
                let ran_ms = millis(*ran);
                if *is_told {
                    tracing::debug!(target: "server", pool, pid, request = what, ran_ms, "deadline passed: {what_follows}");
                } else {
                    tracing::error!(
                        target: "server", pool, pid, request = what, ran_ms,
                        "deadline passed: the client {client}, {what_follows}"
                    );
                }
                escalation.start(steps);
                true
            }
            Report::Leaving => {
                escalation.start(escalation::ASKED);
                true
            }
            Report::Garbage { what, request } => {
                tracing::error!(
                    target: "server", pool, pid, request,
                    "worker replaced after a protocol error: {what}"
                );
                escalation.start(escalation::GARBAGE);
                true
            }
            Report::HungUp { what } => {
                tracing::debug!(target: "server", pool, pid, "worker {what}");
                escalation.start(escalation::HUNG_UP);
                false
            }
            Report::Entered
            | Report::Worn
            | Report::Slow { .. }
            | Report::Recovered { .. }
            | Report::AsksForRenewal { .. }
            | Report::DiedWith { .. }
            | Report::Left => false,
        }
    }

    fn tell_crash(&self, exit: Exit, process: &dyn Watched, died_with: Option<&DiedWith>) {
        self.pool.tell(|| {
            let stderr = process.last_words();
            // PHP's own words for what it could not go on after, which are the same each time. It
            // says them last, and ends with this code: else they are somebody else's.
            let mut lines = stderr.iter().filter(|_| exit == Exit::Code(255));
            let fatal = lines.rfind(|line| begins_fatal(line));
            Incident {
                kind: IncidentKind::Crash,
                pool: self.pool.name().to_owned(),
                pid: process.pid(),
                cause: fatal.map_or_else(|| exit.to_string(), |line| format!("{exit}: {line}")),
                request: died_with.map(|died| died.what.clone()),
                details: died_with.and_then(|died| died.details.clone()),
                ran: died_with.map(|died| died.ran),
                progress: died_with.map(|died| died.progress.with_cpu(process.cpu())),
                // Who tells of it decides that, too.
                retried: died_with
                    .filter(|died| !died.is_told)
                    .map(|died| died.retried),
                memory: process.peak_memory(),
                stderr,
                ..Incident::default()
            }
        });
    }

    /// The server itself has ended the worker: that is no crash.
    fn report_kill(&self, process: &dyn Watched, died_with: &DiedWith) {
        let (pool, pid) = (self.pool.name(), process.pid());
        let DiedWith { what, ran, .. } = died_with;
        tracing::warn!(
            target: "server", pool, pid, request = what, ran_ms = millis(*ran),
            "worker killed: its request did not end in the time that a stop or a reload leaves it"
        );
    }

    fn report_crash(&self, exit: Exit, process: &dyn Watched, died_with: Option<DiedWith>) {
        let (pool, pid) = (self.pool.name(), process.pid());
        let last_words = process.last_words().join("\n");
        let memory_mb = process.peak_memory().map(|bytes| bytes >> 20);
        if died_with.is_some() || exit != Exit::Code(0) {
            self.pool.count(Counter::Crashed);
            self.tell_crash(exit, process, died_with.as_ref());
        }
        match died_with {
            Some(DiedWith {
                what,
                ran,
                is_told: true,
                ..
            }) => tracing::debug!(
                target: "server", pool, pid, request = what, ran_ms = millis(ran), memory_mb,
                stderr = last_words, "worker died with {exit}"
            ),
            Some(DiedWith {
                what, ran, retried, ..
            }) => tracing::error!(
                target: "server", pool, pid, request = what, ran_ms = millis(ran), retried, memory_mb,
                stderr = last_words, "worker died with {exit} during a request"
            ),
            None if exit == Exit::Code(0) => {
                tracing::info!(target: "server", pool, pid, "worker ended by itself with {exit}");
            }
            None => tracing::error!(
                target: "server", pool, pid, memory_mb, stderr = last_words,
                "worker died with {exit} while it was idle"
            ),
        }
    }
}

/// The call that a worker had at its end.
struct DiedWith {
    what: String,
    ran: Duration,
    progress: Box<Progress>,
    retried: bool,
    is_told: bool,
    details: Option<Box<CallDetails>>,
}

/// `GET /path` of `GET /path?query`: what differs from one call to the next is no cause.
fn without_query(request: &str) -> &str {
    request.split('?').next().unwrap_or_default()
}

/// Empty where it can't be read.
fn stack_of(process: &dyn Watched, layout: Option<&StackLayout>) -> Vec<String> {
    let stack = layout.and_then(|layout| process.stack(layout).ok());
    stack.unwrap_or_default()
}

/// Looks at what a worker does from outside. Whoever has made the call writes the record, or this.
fn look(pool: &str, call: &UnderWay, layout: Option<&StackLayout>, process: &dyn Watched) {
    let stack = match layout {
        Some(layout) => process.stack(layout).map_err(|error| error.to_string()),
        None => Err("the worker has no extension, or one of another release".to_owned()),
    };
    let look = Look {
        stack,
        memory: Usage::of(process.pid()).map(|usage| usage.memory),
        age: call.since.elapsed(),
    };
    let Some(look) = call.payload.looked_at(look) else {
        return;
    };
    let (stack, unreadable) = match look.stack {
        Ok(frames) => (Some(frames.join("\n")), None),
        Err(why) => (None, Some(why)),
    };
    tracing::warn!(
        target: "server", pool, pid = process.pid(), request = call.payload.describe(), ran_ms = millis(look.age),
        memory_mb = look.memory.map(|bytes| bytes >> 20), stack, unreadable, "slow call"
    );
}

/// A worker's connection as long as its process lives. Dropped before, its transport is told all
/// the same: a slot supervisor that panics must not leave a place behind that looks busy for ever.
struct Connection {
    pool: Pool,
    slot: SlotId,
    worker: Arc<dyn Transport>,
    exit: Option<Exit>,
}

impl Connection {
    fn new(
        slot_supervisor: &SlotSupervisor,
        process: &dyn Watched,
        via: Via,
        worker: Arc<dyn Transport>,
    ) -> Self {
        slot_supervisor.pool.roster().add(Entry {
            slot: slot_supervisor.slot,
            generation: slot_supervisor.generation,
            pid: process.pid(),
            forked_by: process.forked_by(),
            started: SystemTime::now(),
            via,
            worker: worker.clone(),
        });
        Self {
            pool: slot_supervisor.pool.clone(),
            slot: slot_supervisor.slot,
            worker,
            exit: None,
        }
    }

    fn end(mut self, exit: Exit) {
        self.exit = Some(exit);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        /// What a process that is dropped ends with.
        const KILLED: Exit = Exit::Signal(9);
        self.pool.roster().remove(self.slot);
        self.worker.order(Order::Ended(self.exit.unwrap_or(KILLED)));
    }
}

/// Waits for a phase. A pool supervisor that was dropped is past all of them.
async fn reached(phases: &mut watch::Receiver<Phase>, phase: Phase) {
    _ = phases.wait_for(|now| *now >= phase).await;
}

/// Whether PHP says here why it ends; in some logs the time stands before it.
fn begins_fatal(line: &str) -> bool {
    let after_time = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "));
    let said = after_time.map_or(line, |(_, said)| said);
    said.starts_with("PHP Fatal error: ")
}
