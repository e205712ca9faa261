//! The zygote of a pool: a PHP that has started its engine, or has booted an application as well,
//! and from which each worker is forked. So they share one OPcache, and what was booted.
//!
//! Each generation has its own, started with its first worker, since `php.ini` may have changed.
//! What forbids a fork is found before the first one; then the workers of that generation are
//! started one by one.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_process::{Command, Exit, ForkError, Introduction, Process, Stream, Zygote};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use pronghorn_pool::{Home, SlotId};

use super::{
    Answered, CommandLauncher, FIRST_PASSED, NewWorker, Offer, Offered, StandardStreams, Ways,
    WorkerLink, overtaken,
};
use crate::error::{BootCause, BootError, NotForked};
use crate::worker::RunningWorker;

/// Names the descriptor by which it takes orders.
const VARIABLE: &str = "PRONGHORN_ZYGOTE";
/// Tells it of the requests that it may answer before the first fork.
const WARMUP: &str = "PRONGHORN_WARMUP";
/// What a worker finds in its place.
const PIPES: &str = "PRONGHORN_PIPES";
/// Orders that wait. Each is a worker that boots, and few do at a time.
const ORDERS: usize = 16;
/// What it gets to end when it is not needed any more: PHP ends its modules.
const TO_END: Duration = Duration::from_secs(5);
/// Longer than a zygote takes to find a stuck lock: three seconds.
const TO_LOOK: Duration = Duration::from_secs(8);
/// A process that closes its connection is about to end, and says more by that.
const LAST_MOMENT: Duration = Duration::from_millis(500);
/// So many workers that died by their own fault within that time: what they share may be broken.
/// One that has a bug of its own seldom does so three times in a minute.
const CRASHES: usize = 3;
const WITHIN: Duration = Duration::from_mins(1);

/// How the workers of a pool come to be.
#[derive(Debug, Default)]
pub enum Spawn {
    /// Each is a start of its command.
    #[default]
    Exec,
    /// Forked from a zygote.
    Fork(Zygotes),
}

/// What a zygote has done when it is forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Booted {
    /// Started PHP's engine.
    Engine,
    /// Run the pool's command up to its first wait for a call.
    Application,
}

/// The zygotes of a pool, one for each generation.
#[derive(Debug)]
pub struct Zygotes {
    booted: Booted,
    /// Somebody has asked for forks and may count on them; else they are the choice of a default,
    /// which is more careful.
    is_wanted: bool,
    running: tokio::sync::Mutex<Running>,
    /// The next worker begins a new generation.
    is_old: AtomicBool,
    /// Something forbids to fork the workers of this generation.
    is_forbidden: AtomicBool,
    crashes: Mutex<VecDeque<Instant>>,
}

#[derive(Debug, Default)]
struct Running {
    /// That of this generation.
    current: Option<Current>,
    /// The tasks that own them, also those that are about to end. What is dropped is killed: it has
    /// nothing to lose.
    owners: JoinSet<()>,
}

/// The zygote of a generation.
#[derive(Clone, Debug)]
struct Current {
    orders: mpsc::Sender<Order>,
    pid: u32,
    /// Its workers need not be asked what they would be.
    is_warm: bool,
}

/// An order for a zygote.
enum Order {
    /// A wish for a worker with these descriptors.
    Fork {
        worker: SlotId,
        passed: Vec<OwnedFd>,
        overtakes: bool,
        answer: oneshot::Sender<Result<Process, NotForked>>,
    },
    /// A look whether a lock that its workers share is stuck.
    Look { answer: oneshot::Sender<bool> },
}

impl Zygotes {
    pub fn new(booted: Booted, is_wanted: bool) -> Self {
        Self {
            booted,
            is_wanted,
            running: tokio::sync::Mutex::default(),
            is_old: AtomicBool::new(false),
            is_forbidden: AtomicBool::new(false),
            crashes: Mutex::default(),
        }
    }

    /// Whether workers are forked, as far as is known.
    pub(super) fn fork(&self) -> bool {
        !self.is_forbidden.load(Ordering::Relaxed)
    }

    pub(super) fn begin_generation(&self) {
        self.is_forbidden.store(false, Ordering::Relaxed);
        self.is_old.store(true, Ordering::Relaxed);
    }

    /// Ends all that run. By then nobody orders.
    pub(super) async fn finish(&self) {
        let mut running = self.running.lock().await;
        running.current = None;
        while running.owners.join_next().await.is_some() {}
    }

    /// Whether too many workers died of late for what they share to be trusted. Then the next
    /// worker has a new zygote.
    pub(super) fn died(&self, exit: Exit) -> bool {
        /// Those of a process's own making: SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV.
        const FAULTS: [i32; 6] = [4, 5, 6, 7, 8, 11];
        if !matches!(exit, Exit::Signal(number) if FAULTS.contains(&number)) || !self.fork() {
            return false;
        }
        let now = Instant::now();
        let mut crashes = lock(&self.crashes);
        crashes.push_back(now);
        crashes.retain(|then| now.duration_since(*then) < WITHIN);
        let too_many = crashes.len() >= CRASHES;
        if too_many {
            crashes.clear();
            self.begin_generation();
        }
        too_many
    }

    /// Whether a worker that ended so has left a lock in memory that it shared, so that the others
    /// would wait for ever. Then the next worker has a new zygote.
    pub(super) async fn left_a_lock(&self, exit: Exit) -> bool {
        if !matches!(exit, Exit::Signal(_)) || !self.fork() {
            return false;
        }
        let orders = match &self.running.lock().await.current {
            Some(current) => current.orders.clone(),
            None => return false,
        };
        let (answer, looked) = oneshot::channel();
        _ = orders.send(Order::Look { answer }).await; // its owner answers, or ends with it
        let is_stuck = looked.await.unwrap_or(false);
        if is_stuck {
            self.begin_generation();
        }
        is_stuck
    }

    /// The process of a worker that gets this: forked where that can be, else started.
    pub(super) async fn begin(
        &self,
        of: &CommandLauncher,
        home: &Home,
        worker: SlotId,
        offer: Offer,
        overtakes: bool,
    ) -> Result<NewWorker, BootError> {
        let system = |error| of.spec.failed(BootCause::System(error), None);
        let mut unused = Some(offer);
        let source = self.source(of, worker, &mut unused, overtakes).await?;
        let mut offer = || unused.take().map_or_else(|| of.offer(home), Ok);
        match source {
            WorkerSource::Worker(begun) => return Ok(begun),
            WorkerSource::Nothing => {}
            WorkerSource::Zygote(zygote) => {
                let offer = offer().map_err(system)?;
                if let Some(begun) = self
                    .fork_from(&zygote, of, worker, offer, overtakes)
                    .await?
                {
                    return Ok(begun);
                }
            }
        }
        let offer = offer().map_err(system)?;
        let started = of.start(worker, offer, Vec::new(), overtakes).await?;
        Ok(started.into())
    }

    /// A fork that gets this. None: it has to be started in the other way.
    async fn fork_from(
        &self,
        zygote: &Current,
        of: &CommandLauncher,
        worker: SlotId,
        offer: Offer,
        overtakes: bool,
    ) -> Result<Option<NewWorker>, BootError> {
        let system = |error| of.spec.failed(BootCause::System(error), None);
        let (stdout, their_stdout) = io::pipe().map_err(system)?;
        let (stderr, their_stderr) = io::pipe().map_err(system)?;
        let mut passed = vec![their_stdout.into(), their_stderr.into()];
        passed.extend(offer.passed);
        let (answer, forked) = oneshot::channel();
        let order = Order::Fork {
            worker,
            passed,
            overtakes,
            answer,
        };
        // Its owner answers, or ends with it; in both cases at once or within its own limit.
        _ = zygote.orders.send(order).await;
        let ended = || NotForked::Failed(ForkError::Closed);
        match forked.await.unwrap_or_else(|_| Err(ended())) {
            Ok(process) => {
                let mut worker = RunningWorker::new(&of.spec.pool, process);
                worker.forked_by = Some(zygote.pid);
                worker.overtaking = overtakes.then(|| worker.process.overtake());
                let offered = Offered {
                    private: offer.private,
                    memory: offer.memory,
                    standard: StandardStreams {
                        stdin: None,
                        stdout: Some(stdout.into()),
                        stderr: Some(stderr.into()),
                    },
                };
                Ok(Some(NewWorker {
                    worker,
                    way: WorkerLink::Offered(offered),
                    is_warm: zygote.is_warm,
                }))
            }
            Err(NotForked::Failed(error @ ForkError::NotOurs(_))) => {
                self.running.lock().await.current = None;
                self.forbid(of, &error.to_string(), "");
                Ok(None)
            }
            Err(why) => Err(of.spec.failed(BootCause::NotForked(why), None)),
        }
    }

    /// The zygote of this generation, which is started with the first worker, and again after its
    /// end, or what there is instead. What takes the offer leaves none.
    async fn source(
        &self,
        of: &CommandLauncher,
        worker: SlotId,
        offer: &mut Option<Offer>,
        overtakes: bool,
    ) -> Result<WorkerSource, BootError> {
        let mut running = self.running.lock().await;
        if self.is_old.swap(false, Ordering::Relaxed) {
            // Its owner sees that nobody needs it, and ends it.
            running.current = None;
        }
        if !self.fork() {
            return Ok(WorkerSource::Nothing);
        }
        let current = running.current.as_ref();
        if let Some(current) = current.filter(|current| !current.orders.is_closed()) {
            return Ok(WorkerSource::Zygote(current.clone()));
        }
        while running.owners.try_join_next().is_some() {}
        let (owner, is_warm) = match self.booted {
            Booted::Engine => {
                let (owner, introduction) = Owner::start(of, overtakes).await?;
                if let Some(obstacle) = self.obstacle(of, &introduction) {
                    self.forbid(of, &obstacle.why, obstacle.hint);
                    // Where nobody orders it ends, as one that is not needed any more.
                    running.owners.spawn(owner.run(mpsc::channel(1).1));
                    return Ok(WorkerSource::Nothing);
                }
                (owner, false)
            }
            Booted::Application => match self.boot(of, worker, offer, overtakes).await? {
                Application::Zygote(owner, is_warm) => (owner, is_warm),
                Application::Worker(begun) => return Ok(WorkerSource::Worker(begun)),
                Application::Nothing => return Ok(WorkerSource::Nothing),
            },
        };
        let (orders, inbox) = mpsc::channel(ORDERS);
        let current = Current {
            orders,
            pid: owner.zygote.process.pid(),
            is_warm,
        };
        running.owners.spawn(owner.run(inbox));
        running.current = Some(current.clone());
        Ok(WorkerSource::Zygote(current))
    }

    /// Starts the pool's command so that it can be both, a zygote or a worker: what it is, it knows
    /// when it has booted, and no boot is for nothing.
    async fn boot(
        &self,
        of: &CommandLauncher,
        worker: SlotId,
        offer: &mut Option<Offer>,
        overtakes: bool,
    ) -> Result<Application, BootError> {
        let system = |error| of.spec.failed(BootCause::System(error), None);
        if !of.php.has_extension(&of.spec).await {
            let hint = "`pronghorn extension install` builds it";
            self.forbid(of, "PHP has no extension `pronghorn`", hint);
            return Ok(Application::Nothing);
        }
        let Some(mut offer) = offer.take() else {
            return Ok(Application::Nothing);
        };
        let (link, theirs) = Zygote::pair().map_err(system)?;
        let control = FIRST_PASSED + offer.passed.len();
        offer.passed.push(theirs);
        let mut variables = vec![(VARIABLE.into(), control.to_string().into())];
        let requests = of.spec.warmup.words();
        variables.extend(requests.map(|requests| (WARMUP.into(), requests.into())));
        let (mut worker, offered) = of.start(worker, offer, variables, overtakes).await?;
        let mut ways = offered.open(&mut worker).map_err(system)?;
        let overtaking = worker.overtaking.take();
        let said = self.ask(of, link, &mut worker, &mut ways);
        let said = overtaken(overtaking, said).await;
        match said {
            BootAnswer::Zygote(link, is_warm) => {
                ways.close(&mut worker);
                Ok(Application::Zygote(Owner::new(of, worker, link), is_warm))
            }
            BootAnswer::Nonsense(error) => {
                let cause = BootCause::NotForked(NotForked::Failed(error));
                Err(of.given_up(worker, cause).await)
            }
            // Workers may serve all the same, where a function of `beforeFork()` has failed.
            BootAnswer::Answer(Err(BootCause::Exited(exit)), _) => {
                ways.close(&mut worker);
                let failed = of.given_up(worker, BootCause::Exited(exit)).await;
                let why = format!("the process to fork has ended ({exit}) instead of waiting");
                let mut lines = failed.transcript.lines().map(str::trim);
                let said = lines.find(|line| !line.is_empty());
                let hint = said.map_or_else(String::new, |line| format!("it said: {line}"));
                self.forbid(of, &why, &hint);
                Ok(Application::Nothing)
            }
            BootAnswer::Answer(answer, is_warm) => {
                match of.connect(&mut worker, ways, answer).await {
                    Ok(connection) => Ok(Application::Worker(NewWorker {
                        worker,
                        way: WorkerLink::Connected(Box::new(connection)),
                        is_warm,
                    })),
                    Err(cause) => Err(of.given_up(worker, cause).await),
                }
            }
        }
    }

    /// Waits for the process to say what it is. One that must not be forked is told to be a worker.
    async fn ask(
        &self,
        of: &CommandLauncher,
        link: Zygote,
        worker: &mut RunningWorker,
        ways: &mut Ways,
    ) -> BootAnswer {
        let mut answer = pin!(of.first_answer(worker, ways));
        let introduction = tokio::select! {
            biased;
            introduction = link.introduction() => introduction,
            answer = &mut answer => {
                if answer.is_ok() {
                    let hint = "its script uses another package than pronghorn/worker";
                    self.forbid(of, "the process to fork took calls instead", hint);
                }
                return BootAnswer::Answer(answer, false);
            }
        };
        match introduction {
            Ok(introduction) => match self.obstacle(of, &introduction) {
                None => BootAnswer::Zygote(link, introduction.is_warm()),
                Some(Obstacle { why, hint }) => {
                    self.forbid(of, &why, hint);
                    // Else it has ended, which is an answer.
                    _ = link.serve();
                    BootAnswer::Answer(answer.await, introduction.is_warm())
                }
            },
            // It is about to end, in most cases.
            Err(ForkError::Closed) => BootAnswer::Answer(answer.await, false),
            Err(error) => BootAnswer::Nonsense(error),
        }
    }

    /// Why such a process must not be forked.
    fn obstacle(&self, of: &CommandLauncher, introduction: &Introduction) -> Option<Obstacle> {
        let facts = match introduction {
            Introduction::Ready(facts) => facts,
            Introduction::Refuses(why) => {
                return Some(Obstacle {
                    why: format!(
                        "the booted application holds open what processes can't share: {why}"
                    ),
                    hint: "close it in `Worker::beforeFork()`, in Laravel and Symfony by a \
                           listener of `BeforeFork`, or open it later",
                });
            }
        };
        if facts.threads > 1 {
            let when = match self.booted {
                Booted::Engine => "as soon as it has started",
                Booted::Application => "when the application has booted",
            };
            let why = format!(
                "PHP has {} threads {when}, one of them `{}`, and a forked process would have one",
                facts.threads, facts.thread
            );
            let hint = "an extension starts them";
            return Some(Obstacle { why, hint });
        }
        if facts.has_jit && !self.is_wanted {
            return Some(Obstacle {
                why: "OPcache's JIT is on, which is not safe in a cache that processes share"
                    .to_owned(),
                hint: "`ini: {opcache.jit: disable}` for a shared OPcache, `spawn: exec` if this \
                       is meant",
            });
        }
        if facts.has_jit {
            tracing::warn!(
                target: "server", pool = of.spec.pool,
                "workers are forked (`spawn: fork`) with OPcache's JIT, which is known to crash in \
                 a cache that processes share: `ini: {{opcache.jit: disable}}`"
            );
        }
        let own = facts.own.as_ref().filter(|_| !self.is_wanted);
        own.map(|call| Obstacle {
            why: format!(
                "its boot has called {call}, and forks would have the same result if the \
                 application keeps it"
            ),
            hint: "`spawn: fork` if it keeps none, `spawn: exec` if this is meant",
        })
    }

    /// Once for each generation.
    fn forbid(&self, of: &CommandLauncher, why: &str, hint: &str) {
        if self.is_forbidden.swap(true, Ordering::Relaxed) {
            return;
        }
        let pool = &of.spec.pool;
        let what = match self.booted {
            Booted::Engine => "each worker starts PHP anew and has an OPcache of its own",
            Booted::Application => "each worker boots the application itself",
        };
        let hint = if hint.is_empty() {
            String::new()
        } else {
            format!(" ({hint})")
        };
        if self.is_wanted {
            tracing::warn!(
                target: "server", pool,
                "{what}, in spite of `spawn: fork`: {why}{hint}"
            );
        } else {
            tracing::info!(target: "server", pool, "{what}: {why}{hint}");
        }
    }
}

async fn command_line(of: &CommandLauncher, control: OwnedFd) -> Result<Command, BootError> {
    let mut command = of.command_line(vec![control]).await?;
    command.env.retain(|(name, _)| name != PIPES);
    let control = FIRST_PASSED.to_string();
    command.env.push((VARIABLE.into(), control.into()));
    command.stdin = Stream::Null;
    Ok(command)
}

async fn bring_up(
    zygote: &mut RunningWorker,
    link: &Zygote,
    output: [Option<OwnedFd>; 2],
    limit: Duration,
) -> Result<Introduction, BootCause> {
    for pipe in output.into_iter().flatten() {
        let read = zygote.readers.read(pipe, zygote.output.clone());
        read.map_err(BootCause::System)?;
    }
    let introduction = tokio::select! {
        biased;
        exit = zygote.end() => return Err(BootCause::Exited(exit)),
        introduction = link.introduction() => introduction,
        () = sleep(limit) => return Err(BootCause::NotForked(NotForked::TimedOut(limit))),
    };
    match introduction {
        Err(ForkError::Closed) => match timeout(LAST_MOMENT, zygote.end()).await {
            Ok(exit) => Err(BootCause::Exited(exit)),
            Err(_) => Err(BootCause::NotForked(NotForked::Failed(ForkError::Closed))),
        },
        introduction => {
            introduction.map_err(|error| BootCause::NotForked(NotForked::Failed(error)))
        }
    }
}

/// Where a new worker comes from.
enum WorkerSource {
    Zygote(Current),
    Worker(NewWorker),
    /// It has to be started.
    Nothing,
}

/// The pool's command, when it has booted.
enum Application {
    Zygote(Owner, bool),
    Worker(NewWorker),
    Nothing,
}

/// The first word of a process that can be both. Flags tell whether it is warm.
enum BootAnswer {
    Zygote(Zygote, bool),
    Answer(Result<Answered, BootCause>, bool),
    Nonsense(ForkError),
}

/// Why a process must not be forked, and a hint what to do.
struct Obstacle {
    why: String,
    hint: &'static str,
}

/// Owns a zygote from its first word to its end. What is dropped with it is killed.
struct Owner {
    pool: String,
    zygote: RunningWorker,
    link: Zygote,
    /// For each fork.
    patience: Duration,
}

/// Why an owner has no more to do.
enum Over {
    /// Nobody orders any more.
    Unneeded,
    Ended(Exit),
    /// It can't be relied on.
    Broken,
}

impl Owner {
    async fn start(
        of: &CommandLauncher,
        overtakes: bool,
    ) -> Result<(Self, Introduction), BootError> {
        let system = |error| of.spec.failed(BootCause::System(error), None);
        let (link, theirs) = Zygote::pair().map_err(system)?;
        let mut command = command_line(of, theirs).await?;
        command.overtakes = overtakes;
        let child = of.spec.spawner.spawn(command).await;
        let child = child.map_err(|error| of.spec.failed(BootCause::Spawn(error), None))?;
        let mut zygote = RunningWorker::new(&of.spec.pool, child.process);
        let overtaking = overtakes.then(|| zygote.process.overtake());
        let introduction = bring_up(
            &mut zygote,
            &link,
            [child.stdout, child.stderr],
            of.spec.boot_timeout,
        );
        let introduction = match overtaken(overtaking, introduction).await {
            Ok(introduction) => introduction,
            Err(cause) => {
                if zygote.exit.is_none() {
                    zygote.process.kill_group();
                }
                zygote.readers.finish().await;
                return Err(of.spec.failed(cause, Some(&zygote.output)));
            }
        };
        Ok((Self::new(of, zygote, link), introduction))
    }

    fn new(of: &CommandLauncher, zygote: RunningWorker, link: Zygote) -> Self {
        zygote.output.up();
        Self {
            pool: of.spec.pool.clone(),
            zygote,
            link,
            patience: of.spec.boot_timeout,
        }
    }

    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let over = loop {
            let order = tokio::select! {
                biased;
                exit = self.zygote.end() => break Over::Ended(exit),
                order = orders.recv() => order,
            };
            let (worker, passed, overtakes, answer) = match order {
                Some(Order::Fork {
                    worker,
                    passed,
                    overtakes,
                    answer,
                }) => (worker, passed, overtakes, answer),
                Some(Order::Look { answer }) => match self.is_stuck().await {
                    Ok(is_stuck) => {
                        _ = answer.send(is_stuck); // nobody may wait any more
                        continue;
                    }
                    Err(over) => break over,
                },
                None => break Over::Unneeded,
            };
            // Its user's code does not run meanwhile, and that of the new process not before it is
            // raised by itself.
            let overtaking = overtakes.then(|| self.zygote.process.overtake_with_forks());
            let forked = self.fork(worker, &passed).await;
            drop(overtaking);
            drop(passed);
            let over = match &forked {
                Ok(_) | Err(NotForked::Failed(ForkError::Refused(_) | ForkError::NotOurs(_))) => {
                    None
                }
                Err(NotForked::Ended(exit)) => Some(Over::Ended(*exit)),
                Err(NotForked::TimedOut(_) | NotForked::Failed(_)) => Some(Over::Broken),
            };
            if over.is_some() {
                orders.close(); // before whoever is told asks for another one
            }
            _ = answer.send(forked); // nobody may wait any more: then the process is killed with the answer
            if let Some(over) = over {
                break over;
            }
        };
        drop(orders);
        self.end(over).await;
    }

    async fn fork(&mut self, worker: SlotId, passed: &[OwnedFd]) -> Result<Process, NotForked> {
        let passed: Vec<_> = passed.iter().map(AsFd::as_fd).collect();
        let pid = self.zygote.process.pid();
        tokio::select! {
            biased;
            forked = self.link.fork(pid, worker, &passed) => forked.map_err(NotForked::Failed),
            exit = self.zygote.end() => Err(NotForked::Ended(exit)),
            () = sleep(self.patience) => Err(NotForked::TimedOut(self.patience)),
        }
    }

    async fn is_stuck(&mut self) -> Result<bool, Over> {
        let why = tokio::select! {
            biased;
            said = self.link.is_stuck() => match said {
                Ok(is_stuck) => return Ok(is_stuck),
                Err(error) => NotForked::Failed(error),
            },
            exit = self.zygote.end() => return Err(Over::Ended(exit)),
            () = sleep(TO_LOOK) => NotForked::TimedOut(TO_LOOK),
        };
        let (pool, pid) = (&self.pool, self.zygote.process.pid());
        tracing::error!(target: "server", pool, pid, "the zygote is of no use any more: {why}");
        Err(Over::Broken)
    }

    async fn end(self, over: Over) {
        let Self {
            pool,
            mut zygote,
            link,
            ..
        } = self;
        drop(link);
        let pid = zygote.process.pid();
        match over {
            Over::Ended(exit) => {
                zygote.readers.finish().await;
                let stderr = zygote.output.last_words().lines().join("\n");
                tracing::error!(
                    target: "server", pool, pid, stderr,
                    "the zygote has ended with {exit}: its workers continue, and the next worker \
                     gets a new zygote"
                );
                return;
            }
            Over::Broken => zygote.process.kill_group(),
            Over::Unneeded => {
                if timeout(TO_END, zygote.end()).await.is_err() {
                    tracing::warn!(
                        target: "server", pool, pid,
                        "the zygote is killed: it did not end within {TO_END:?}"
                    );
                    zygote.process.kill_group();
                }
            }
        }
        zygote.end().await;
        zygote.readers.finish().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn three_crashes_in_a_minute_are_too_many() {
        let zygotes = Zygotes::new(Booted::Engine, true);
        let crash = Exit::Signal(11);
        assert!(!zygotes.died(crash) && !zygotes.died(crash));
        tokio::time::advance(WITHIN).await;
        assert!(!zygotes.died(crash) && !zygotes.died(Exit::Signal(6)));
        // What somebody else does to it is no fault of what it shares.
        for exit in [Exit::Signal(9), Exit::Signal(15), Exit::Code(255)] {
            assert!(!zygotes.died(exit));
        }
        assert!(zygotes.died(Exit::Signal(7)) && zygotes.is_old.swap(false, Ordering::Relaxed));
        assert!(!zygotes.died(crash), "it begins anew");
    }
}
