//! One process of a program, or the next one after it: a task that drives the [`Machine`].

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::{LogThrottle, millis, since_1970, with_causes};
use pronghorn_config::{Command, show_duration};
use pronghorn_launch::{Ended, Leftovers, Program, ProgramError, RunningProgram};
use pronghorn_plugin_api::{Finding, ProcessWait};
use pronghorn_pool::{Incident, IncidentKind, Incidents};
use pronghorn_process::{
    Credentials, Exit, NamedSignal, Spawner, family_memory, find_runnable, search_path,
};
use pronghorn_workers::Pools;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::LOG;
use crate::before::Before;
use crate::channel::{Channel, record};
use crate::environment::set;
use crate::files::{self, FileError, FilePlace, Writer};
use crate::guard::{Group, Guard};
use crate::machine::{Action, Event, Machine, ProcessState, Restart, Then, Why};
use crate::notify::{Notice, NotifySocket};
use crate::roadrunner::RoadRunner;
use crate::said::{Hearer, Hearing, LogFiles, Target};
use crate::settings::{HealthSettings, LogFileSettings, ProgramSettings};

/// Orders that were not looked at yet. Each is somebody's wish.
const ORDERS: usize = 16;
/// The pause between two looks at the memory of a process with a limit, as for workers.
const MEMORY_EVERY: Duration = Duration::from_secs(5);
/// The longest pause between two questions whether a process that starts is well.
const WHILE_STARTING: Duration = Duration::from_secs(1);

/// Surroundings in which programs are started.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) before: Before,
    pub(crate) spawner: Spawner,
    /// Where processes are watched.
    pub(crate) runtime: Runtime,
    pub(crate) directory: PathBuf,
    /// They know the environment of commands, which a reload changes.
    pub(crate) pools: Pools,
    /// The workers' user.
    pub(crate) user: Option<Credentials>,
    pub(crate) incidents: Incidents,
    pub(crate) writer: Writer,
    pub(crate) channel: Channel,
    pub(crate) guard: Arc<Guard>,
}

/// A program with its user.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) settings: ProgramSettings,
    pub(crate) user: Option<Credentials>,
}

impl Surroundings {
    /// Where a program works.
    pub(crate) fn directory_of(&self, spec: &Spec) -> PathBuf {
        spec.settings.directory_in(&self.directory)
    }

    /// The user of its processes; None where that is the server's.
    fn user_of<'s>(&'s self, spec: &'s Spec) -> Option<&'s Credentials> {
        spec.user.as_ref().or(self.user.as_ref())
    }

    /// Whether a program could be started, before anything is done for it.
    pub(crate) fn look_up(&self, spec: &Spec) -> Result<(), Refused> {
        let refused = |key, message, hint: String| Refused { key, message, hint };
        let Some(command) = spec.command() else {
            let hint = "for example `command: php artisan queue:work`".to_owned();
            return Err(refused("command", "is missing".to_owned(), hint));
        };
        let directory = self.directory_of(spec);
        if !directory.is_dir() {
            let message = format!("names `{}`, which is no directory", directory.display());
            let hint = "create it, or name another directory".to_owned();
            return Err(refused("directory", message, hint));
        }
        if let Some((message, hint)) = command.needs_shell() {
            return Err(refused("command", message, hint));
        }
        let user = self.user_of(spec);
        let mut variables = self.pools.command_variables(user);
        spec.settings.set_variables(&mut variables);
        let program = command.program();
        let found = find_runnable(program, search_path(&variables), &directory, user);
        found.map_err(|why| {
            let message = format!("runs `{program}`, which {why}");
            refused("command", message, why.hint(&directory))
        })?;
        for (key, file) in spec.settings.files() {
            files::judge(&self.directory.join(file)).map_err(|why| {
                let message = format!("names `{}`, {why}", file.display());
                refused(key, message, why.hint().to_owned())
            })?;
        }
        Ok(())
    }
}

/// Why a program can't be started: of which key, in the words of `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) key: &'static str,
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl Refused {
    /// The same about a key of the configuration.
    pub(crate) fn of(self, program: &str) -> Finding {
        let key = format!("{LOG}.{program}.{}", self.key);
        Finding::missing(key, self.message, self.hint)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, message, hint } = self;
        write!(
            f,
            "it can't be started: its `{key}` {message} (hint: {hint})"
        )
    }
}

impl Spec {
    pub(crate) fn command(&self) -> Option<&Command> {
        self.settings.command.as_ref()
    }
}

/// How the process of an index is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) state: ProcessState,
    pub(crate) pid: Option<u32>,
    /// Since 1970, of its process.
    pub(crate) started: Option<Duration>,
    /// The number of processes that it has had.
    pub(crate) starts: u64,
    /// In a row.
    pub(crate) failures: u32,
    /// The end of the last process, or the reason why none could be started.
    pub(crate) last: Option<String>,
    /// Whether that was as it should be.
    pub(crate) was_expected: bool,
    /// A text that the program tells of itself.
    pub(crate) status: Option<String>,
    /// Since 1970: when the next process starts.
    pub(crate) next: Option<Duration>,
    /// The reason why it is not up, while it starts.
    pub(crate) waits: Option<ProcessWait>,
}

/// An order for an instance.
#[derive(Clone, Debug)]
pub(crate) enum InstanceOrder {
    Start,
    /// The time that it has, if that is less than its own.
    Stop(Option<Duration>),
    Restart,
    Remove,
    /// They hold from the next process on.
    Settings(Arc<Spec>),
    Signal(NamedSignal),
}

/// Who tells it. The process ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    pub(crate) index: u32,
    orders: mpsc::Sender<(InstanceOrder, oneshot::Sender<()>)>,
    facts: watch::Receiver<Facts>,
    task: Arc<AbortOnDrop>,
}

#[derive(Debug)]
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Handle {
    /// An index that is stopped.
    pub(crate) fn new(
        index: u32,
        spec: Arc<Spec>,
        hearing: Arc<Hearing>,
        around: Surroundings,
    ) -> Self {
        let (orders, inbox) = mpsc::channel(ORDERS);
        let facts = Facts {
            state: ProcessState::Stopped,
            pid: None,
            started: None,
            starts: 0,
            failures: 0,
            last: None,
            was_expected: true,
            status: None,
            next: None,
            waits: None,
        };
        let (told, facts) = watch::channel(facts);
        let runtime = around.runtime.clone();
        let instance = Instance {
            index,
            machine: Machine::new(spec.settings.rules),
            spec,
            hearing,
            around,
            told,
            process: None,
            pause_until: None,
            stop_within: None,
        };
        let task = runtime.spawn(instance.work(inbox));
        Self {
            index,
            orders,
            facts,
            task: Arc::new(AbortOnDrop(task)),
        }
    }

    /// Returns when the order has been looked at: what it begins goes on.
    pub(crate) async fn tell(&self, order: InstanceOrder) {
        let (done, looked_at) = oneshot::channel();
        if self.orders.send((order, done)).await.is_ok() {
            _ = looked_at.await; // it was removed meanwhile
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        self.facts.borrow().clone()
    }

    /// Waits until it is up, or has ended as it should.
    pub(crate) async fn came_up(&self) -> Result<(), String> {
        let mut facts = self.facts.clone();
        let is_decided = |facts: &Facts| {
            !matches!(
                facts.state,
                ProcessState::Starting | ProcessState::Stopping(_)
            )
        };
        let facts = match facts.wait_for(is_decided).await {
            Ok(facts) => facts.clone(),
            Err(_) => return Err("it was removed".to_owned()),
        };
        let why = || facts.last.clone().unwrap_or_default();
        match facts.state {
            ProcessState::Running | ProcessState::Starting | ProcessState::Stopping(_) => Ok(()),
            ProcessState::Exited if facts.was_expected => Ok(()),
            ProcessState::Waiting if facts.was_expected => Ok(()),
            ProcessState::Exited | ProcessState::Waiting | ProcessState::GaveUp => Err(why()),
            ProcessState::Stopped | ProcessState::Removed => {
                Err("it was stopped meanwhile".to_owned())
            }
        }
    }

    /// Kills its process, and ends its task. Returns when that is so.
    pub(crate) async fn cut_off(&self) {
        self.task.0.abort();
        let mut facts = self.facts.clone();
        while facts.changed().await.is_ok() {}
    }

    /// Waits until it has no process.
    pub(crate) async fn is_gone(&self) {
        let mut facts = self.facts.clone();
        // An error says that its task has ended.
        _ = facts.wait_for(|facts| !facts.state.has_process()).await;
    }
}

impl ProcessState {
    pub(crate) const fn has_process(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Stopping(_))
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Stopping(_) => "stopping",
            Self::Exited => "exited",
            Self::GaveUp => "gave up",
            Self::Removed => "removed",
        }
    }
}

struct Instance {
    index: u32,
    spec: Arc<Spec>,
    hearing: Arc<Hearing>,
    around: Surroundings,
    machine: Machine,
    told: watch::Sender<Facts>,
    process: Option<Supervised>,
    pause_until: Option<Instant>,
    /// The time that the next end has, if that is less than the program's own.
    stop_within: Option<Duration>,
}

/// A process, and what it is watched by.
struct Supervised {
    /// Above the process, so that it is dropped before that is reaped.
    group: Group,
    running: RunningProgram,
    roadrunner: Option<RoadRunner>,
    since: Instant,
    socket: Option<NotifySocket>,
    is_ready: bool,
    /// Whether it has been well; below, the failures since.
    was_well: bool,
    failures: u32,
    checks: JoinSet<Result<(), String>>,
    /// Why the last check has failed.
    last_check: Option<String>,
    next_check: Option<Instant>,
    next_look: Option<Instant>,
    /// Why the server ends the process, if nobody has asked for it.
    unfit: Option<String>,
    /// Asked to end, it is killed then.
    kill_at: Option<Instant>,
    was_killed: bool,
    /// The time for its end, where the server's stop leaves less than its own.
    cut_to: Option<Duration>,
    /// The settings that it was started with.
    spec: Arc<Spec>,
}

impl Instance {
    async fn work(mut self, mut orders: mpsc::Receiver<(InstanceOrder, oneshot::Sender<()>)>) {
        loop {
            let next = self.next_moment();
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some((order, done)) => {
                        self.obey(order).await;
                        self.publish();
                        _ = done.send(()); // nobody waits for it
                    }
                    None => return, // nobody has it any more: the process is killed
                },
                happened = happens(self.process.as_mut(), next) => match happened {
                    Happened::Ended => self.finish().await,
                    Happened::Due => self.look_at_clock().await,
                    Happened::Notice(sender, told) => self.heard(sender, told),
                    Happened::Checked(checked) => self.judge_health(checked).await,
                },
            }
            self.publish();
            if self.machine.state() == ProcessState::Removed {
                return;
            }
        }
    }

    fn publish(&self) {
        let state = self.machine.state();
        let waits_for = self.waits_for();
        self.told.send_if_modified(|facts| {
            let waits = waits_for.zip(facts.started);
            let waits = waits.map(|(what, since)| ProcessWait { what, since });
            let is_new = facts.state != state
                || facts.waits != waits
                || facts.failures != self.machine.failures()
                || facts.pid != self.pid();
            facts.state = state;
            facts.waits = waits;
            facts.failures = self.machine.failures();
            facts.pid = self.pid();
            if facts.pid.is_none() {
                (facts.started, facts.status) = (None, None);
            }
            facts.next = self
                .pause_until
                .map(|until| since_1970(std::time::SystemTime::now()) + (until - Instant::now()));
            is_new
        });
    }

    /// The reason why a process that starts is not up.
    fn waits_for(&self) -> Option<String> {
        let process = self.process.as_ref()?;
        (self.machine.state() == ProcessState::Starting).then(|| process.waits_for())
    }

    fn pid(&self) -> Option<u32> {
        Some(self.process.as_ref()?.running.pid())
    }

    async fn obey(&mut self, order: InstanceOrder) {
        match order {
            InstanceOrder::Start => self.step(Event::Start).await,
            InstanceOrder::Stop(within) => {
                self.stop_within = within;
                if let Some(process) = &mut self.process
                    && let (Some(at), Some(within)) = (&mut process.kill_at, within)
                {
                    let earlier = Instant::now() + within;
                    if earlier < *at {
                        (*at, process.cut_to) = (earlier, Some(within));
                    }
                }
                self.step(Event::Stop).await;
            }
            InstanceOrder::Restart => self.step(Event::Restart).await,
            InstanceOrder::Remove => self.step(Event::Remove).await,
            InstanceOrder::Settings(spec) => {
                self.machine.set_rules(spec.settings.rules);
                self.spec = spec;
            }
            InstanceOrder::Signal(signal) => {
                if let Some(process) = &self.process {
                    process.running.signal(signal, false);
                }
            }
        }
    }

    async fn step(&mut self, event: Event) {
        let mut action = self.machine.step(event);
        let mut was_refused = false;
        loop {
            match action {
                Action::Nothing => {
                    if self.machine.state() != ProcessState::Waiting {
                        self.pause_until = None;
                    }
                }
                Action::Pause(pause) => self.pause_until = Some(Instant::now() + pause),
                Action::End => self.end(),
                Action::Spawn => {
                    self.pause_until = None;
                    if let Err(error) = self.spawn().await {
                        let why = with_causes(&error);
                        self.note_end(&why, false);
                        self.report(IncidentKind::Boot, 0, &why, None);
                        was_refused = true;
                        action = self.machine.step(Event::NotStarted);
                        continue;
                    }
                }
            }
            break;
        }
        if was_refused {
            self.say_failure();
        }
    }

    async fn spawn(&mut self) -> Result<(), NotStarted> {
        let spec = self.spec.clone();
        let settings = &spec.settings;
        let user = self.around.user_of(&spec);
        let socket = settings
            .notify
            .then(|| NotifySocket::open(user))
            .transpose();
        let socket = socket.map_err(NotStarted::Socket)?;
        let mut program = self.program(spec.command(), settings.stop_timeout);
        let roadrunner = settings.roadrunner.as_ref();
        let roadrunner = roadrunner.map(|file| RoadRunner::prepare(file, user, &mut program));
        let roadrunner = roadrunner.transpose().map_err(NotStarted::RoadRunner)?;
        if let Some(socket) = &socket {
            set(&mut program.environment, "NOTIFY_SOCKET", socket.variable());
        }
        let hearer = Hearer {
            hearing: self.hearing.clone(),
            target: Arc::new(self.target()?),
        };
        let started = program.start(&self.around.spawner, settings.limits, hearer);
        let running = started.await?;
        let group = self.around.guard.watch(running.pid()).await;
        let now = Instant::now();
        let (name, index, pid) = (&spec.name, self.index, running.pid());
        let command = spec.command().map(ToString::to_string).unwrap_or_default();
        record!(
            self.around.channel,
            info,
            program = name,
            index,
            pid,
            command,
            "service was started"
        );
        self.process = Some(Supervised {
            group,
            running,
            roadrunner,
            since: now,
            is_ready: socket.is_none(),
            socket,
            was_well: settings.health.is_none(),
            failures: 0,
            checks: JoinSet::new(),
            last_check: None,
            next_check: settings
                .health
                .as_ref()
                .map(|health| now + health.interval.min(WHILE_STARTING)),
            next_look: settings.max_memory.map(|_| now + MEMORY_EVERY),
            unfit: None,
            kill_at: None,
            was_killed: false,
            cut_to: None,
            spec,
        });
        self.told.send_modify(|facts| {
            facts.starts += 1;
            facts.started = Some(since_1970(std::time::SystemTime::now()));
            facts.status = None;
        });
        if self.is_up() {
            _ = self.machine.step(Event::CameUp); // there is nothing to do for it
        }
        Ok(())
    }

    /// With the environment, the directory and the user of the program.
    fn program(&self, command: Option<&Command>, limit: Duration) -> Program {
        let settings = &self.spec.settings;
        let user = self.around.user_of(&self.spec);
        let mut environment = self.around.pools.command_variables(user);
        set(
            &mut environment,
            "PRONGHORN_PROGRAM",
            self.spec.name.clone().into(),
        );
        let index = self.index.to_string();
        set(&mut environment, "PRONGHORN_PROGRAM_INDEX", index.into());
        settings.set_variables(&mut environment);
        let (path, arguments) = match command {
            Some(command) => (command.program(), command.arguments()),
            None => ("", &[][..]),
        };
        Program {
            path: path.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment,
            directory: self.around.directory_of(&self.spec),
            user: user.cloned(),
            limit,
            leftovers: Leftovers::End,
        }
    }

    fn target(&self) -> Result<Target, NotStarted> {
        let settings = &self.spec.settings;
        let open = |log: &LogFileSettings, file: &Path| {
            let path = self.around.directory.join(file);
            let opened = self.around.writer.open(FilePlace {
                program: self.spec.name.clone(),
                path: path.clone(),
                max_size: log.max_size.bytes(),
                backups: log.backups,
            });
            opened.map_err(|why| NotStarted::File { path, why })
        };
        let files = settings.log.as_ref().and_then(|log| {
            let out = open(log, log.file.as_ref()?);
            let err = log.stderr_file.as_ref().map(|file| open(log, file));
            Some(out.and_then(|out| {
                let err = err.unwrap_or_else(|| Ok(out.clone()))?;
                Ok(LogFiles { out, err })
            }))
        });
        Ok(Target {
            index: self.index,
            files: files.transpose()?,
            logged: settings.log.as_ref().is_none_or(|log| log.also_log),
            name_in_log: settings.name_in_log,
            channel: self.around.channel,
        })
    }

    /// Whether the process is up by all that its settings ask for.
    fn is_up(&self) -> bool {
        self.process.as_ref().is_some_and(|process| {
            let lives = process.since.elapsed() >= process.spec.settings.start_time;
            lives && process.is_ready && process.was_well
        })
    }

    /// Asks the process to end.
    fn end(&mut self) {
        let Some(process) = &mut self.process else {
            return; // the machine says that there is one
        };
        let settings = &process.spec.settings;
        let own = settings.stop_timeout;
        process.cut_to = self.stop_within.take().filter(|within| *within < own);
        let time = process.cut_to.unwrap_or(own);
        process
            .running
            .signal(settings.stop_signal, settings.stop_group);
        process.kill_at = Some(Instant::now() + time);
    }

    /// The process has ended.
    async fn finish(&mut self) {
        let Some(process) = self.process.take() else {
            return;
        };
        let Supervised {
            group,
            running,
            since,
            spec,
            unfit,
            was_killed,
            cut_to,
            ..
        } = process;
        let (pid, lived) = (running.pid(), since.elapsed());
        drop(group);
        let finished = running.finish().await;
        let (exit, left, memory) = match finished {
            Ok(Ended {
                exit,
                left,
                peak_memory,
            }) => (exit, left, peak_memory),
            Err(error) => {
                record!(
                    self.around.channel,
                    error,
                    program = spec.name,
                    pid,
                    "cannot wait for it: {error}"
                );
                (Exit::Code(-1), 0, None)
            }
        };
        let before = self.machine.state();
        let settings = &spec.settings;
        let expected = matches!(exit, Exit::Code(code) if settings.exit_codes.contains(&code));
        let (name, index) = (&spec.name, self.index);
        // RoadRunner leaves its workers behind when it fails.
        if left > 0 && self.around.channel == Channel::Service {
            record!(
                self.around.channel,
                warn,
                program = name,
                index,
                pid,
                processes = left,
                "it has left processes behind, which were killed (hint: a program that goes into the background has an option to stay in the foreground)"
            );
        }
        // Why it was asked to end is told already.
        let is_judged = matches!(
            before,
            ProcessState::Stopping(Then::Judge(Why::StartTimedOut | Why::Unhealthy))
        );
        let has_failed = match before {
            // However well it has ended: started again and again, it would never be up.
            ProcessState::Starting => !expected || settings.rules.restart == Restart::Always,
            ProcessState::Running => !expected,
            _ => is_judged,
        };
        if matches!(before, ProcessState::Stopping(_)) {
            let time = show_duration(rounded(cut_to.unwrap_or(settings.stop_timeout)));
            let limit = match cut_to {
                Some(_) => "`endure.grace_period`",
                None => "`stop_timeout`",
            };
            let signal = settings.stop_signal;
            let killed = format!(
                "did not end after {signal} (`stop_signal`), and was killed after {time} ({limit})"
            );
            if was_killed {
                record!(
                    self.around.channel,
                    warn,
                    program = name,
                    index,
                    pid,
                    "it {killed}"
                );
            }
            record!(
                self.around.channel,
                info,
                program = name,
                index,
                pid,
                "service was stopped"
            );
            let last = match (unfit, was_killed) {
                (Some(why), true) => format!("{why}, {killed}"),
                (None, true) => format!("it {killed}"),
                (Some(why), false) => format!("{why}, and was stopped ({exit})"),
                (None, false) => format!("it was stopped ({exit})"),
            };
            self.note_end(&last, !is_judged);
        } else if has_failed {
            let when = if before == ProcessState::Starting {
                " before it was up"
            } else {
                ""
            };
            let cause = format!("it ended with {exit}{when}");
            self.note_end(&cause, false);
            self.report(IncidentKind::Crash, pid, &cause, memory);
        } else {
            self.note_end(&format!("it ended with {exit}"), true);
            record!(
                self.around.channel,
                info,
                program = name,
                index,
                pid,
                "it ended with {exit}"
            );
        }
        self.step(Event::Ended { expected, lived }).await;
        if has_failed {
            self.say_failure();
        }
    }

    fn note_end(&self, why: &str, was_expected: bool) {
        self.told.send_modify(|facts| {
            facts.last = Some(why.to_owned());
            facts.was_expected = was_expected;
        });
    }

    /// One record for each process that has failed.
    fn say_failure(&self) {
        let (program, index) = (&self.spec.name, self.index);
        let why = self.told.borrow().last.clone().unwrap_or_default();
        let failures = self.machine.failures();
        match self.machine.state() {
            ProcessState::GaveUp => {
                record!(
                    self.around.channel,
                    error,
                    program,
                    index,
                    failures,
                    "{why}: given up (hint: `pronghorn programs start {program}` starts it again)"
                );
            }
            ProcessState::Waiting => {
                let pause = self.pause_until.map(|until| until - Instant::now());
                let pause = show_duration(rounded(pause.unwrap_or_default()));
                record!(
                    self.around.channel,
                    error,
                    program,
                    index,
                    failures,
                    "{why}: the next start is in {pause}"
                );
            }
            ProcessState::Exited => {
                record!(
                    self.around.channel,
                    error,
                    program,
                    index,
                    "{why}: it is not started again"
                );
            }
            ProcessState::Stopped
            | ProcessState::Starting
            | ProcessState::Running
            | ProcessState::Stopping(_)
            | ProcessState::Removed => {
                record!(self.around.channel, error, program, index, "{why}");
            }
        }
    }

    fn report(&self, kind: IncidentKind, pid: u32, cause: &str, memory: Option<u64>) {
        self.around.incidents.tell(|| Incident {
            kind,
            pool: self.around.channel.pool(&self.spec.name),
            pid,
            cause: cause.to_owned(),
            memory,
            stderr: self.hearing.last_words(pid),
            ..Incident::default()
        });
    }

    /// Whoever has the path of a socket can send to it, if only as the user of the program.
    fn heard(&mut self, sender: u32, told: Notice) {
        static STRANGERS: LogThrottle = LogThrottle::new();
        let process = self.process.as_ref();
        if !process.is_some_and(|it| it.running.has_started(sender)) {
            if let Some(messages) = STRANGERS.should_log() {
                record!(
                    self.around.channel,
                    warn,
                    program = self.spec.name,
                    index = self.index,
                    sender,
                    messages,
                    "a message to `NOTIFY_SOCKET` has no effect: its process has ended, or is none of the program's"
                );
            }
            return;
        }
        if let Some(status) = told.status {
            self.told.send_modify(|facts| facts.status = Some(status));
        }
        if let Some(process) = &mut self.process {
            process.is_ready |= told.ready;
        }
        if self.is_up() {
            _ = self.machine.step(Event::CameUp); // there is nothing to do for it
        }
    }

    async fn judge_health(&mut self, checked: Result<(), String>) {
        let well = checked.is_ok();
        let why = checked.err();
        let state = self.machine.state();
        let Some(process) = &mut self.process else {
            return;
        };
        let Some(health) = &process.spec.settings.health else {
            return;
        };
        let is_starting = state == ProcessState::Starting && !process.was_well;
        let interval = if is_starting && !well {
            health.interval.min(WHILE_STARTING)
        } else {
            health.interval
        };
        process.next_check = Some(Instant::now() + interval);
        process.last_check.clone_from(&why);
        if well {
            process.was_well = true;
            process.failures = 0;
        } else if state == ProcessState::Running {
            process.failures += 1;
        }
        let is_unwell = process.failures >= health.failures;
        if is_unwell {
            let times = process.failures;
            let why = why.unwrap_or_default();
            let said = format!("its health command has failed {times} times in a row: {why}");
            self.unfit(Why::Unhealthy, &said).await;
        } else if self.is_up() {
            _ = self.machine.step(Event::CameUp); // there is nothing to do for it
        }
    }

    async fn unfit(&mut self, why: Why, said: &str) {
        let (program, index, pid) = (&self.spec.name, self.index, self.pid());
        let is_failure = match why {
            Why::Memory | Why::Time => {
                record!(
                    self.around.channel,
                    info,
                    program,
                    index,
                    pid,
                    "{said}: it is stopped"
                );
                false
            }
            Why::StartTimedOut | Why::Unhealthy => {
                record!(
                    self.around.channel,
                    error,
                    program,
                    index,
                    pid,
                    "{said}: it is stopped"
                );
                self.report(IncidentKind::TimeOut, pid.unwrap_or_default(), said, None);
                true
            }
        };
        self.note_end(said, !is_failure);
        if let Some(process) = &mut self.process {
            process.unfit = Some(said.to_owned());
        }
        self.step(Event::Unfit(why)).await;
    }

    /// When something is due, at the earliest.
    fn next_moment(&self) -> Option<Instant> {
        let Some(process) = &self.process else {
            return self.pause_until;
        };
        if let Some(kill_at) = process.kill_at {
            return Some(kill_at);
        }
        let settings = &process.spec.settings;
        let is_starting = self.machine.state() == ProcessState::Starting;
        let up_at = (is_starting && process.is_ready && process.was_well)
            .then(|| process.since + settings.start_time);
        let too_late = (is_starting && !(process.is_ready && process.was_well))
            .then(|| process.since + settings.start_timeout.max(settings.start_time));
        let over = settings.exec_timeout.map(|time| process.since + time);
        let check = process.next_check.filter(|_| process.checks.is_empty());
        let moments = [up_at, too_late, over, check, process.next_look];
        moments.into_iter().flatten().min()
    }

    async fn look_at_clock(&mut self) {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let Some(process) = &mut self.process else {
            if is_due(self.pause_until) {
                self.step(Event::PauseOver).await;
            }
            return;
        };
        if let Some(kill_at) = process.kill_at {
            if kill_at <= now {
                process.running.kill();
                process.was_killed = true;
                // Its end is about to be seen; else it waits for a disk.
                process.kill_at = Some(now + Duration::from_secs(1));
            }
            return;
        }
        let settings = process.spec.settings.clone();
        let lived = now - process.since;
        if let Some(time) = settings.exec_timeout.filter(|time| lived >= *time) {
            let said = format!("it has run for {} (`exec_timeout`)", show_duration(time));
            return self.unfit(Why::Time, &said).await;
        }
        if is_due(process.next_look) {
            process.next_look = Some(now + MEMORY_EVERY);
            let takes = family_memory(process.running.pid()).unwrap_or_default();
            if let Some(most) = settings.max_memory
                && takes > most.bytes()
            {
                let takes = takes.div_ceil(1 << 20);
                let said = format!(
                    "it took {takes} MB with all that it has started, more than {most} \
                     (`max_memory`)"
                );
                return self.unfit(Why::Memory, &said).await;
            }
        }
        if is_due(process.next_check) && process.checks.is_empty() {
            let pid = process.running.pid();
            if let Some(health) = &settings.health {
                self.check(health, pid);
            }
        }
        if self.machine.state() != ProcessState::Starting {
            return;
        }
        if self.is_up() {
            _ = self.machine.step(Event::CameUp); // there is nothing to do for it
        } else if lived >= settings.start_timeout.max(settings.start_time) {
            let time = show_duration(settings.start_timeout.max(settings.start_time));
            let mut said = format!("it was not up within {time} (`start_timeout`)");
            if let Some(process) = &self.process {
                said.push_str(&process.lacks());
            }
            self.unfit(Why::StartTimedOut, &said).await;
        }
    }

    /// Runs the health command once.
    fn check(&mut self, health: &HealthSettings, pid: u32) {
        let mut program = self.program(health.command.as_ref(), health.timeout);
        let number = pid.to_string().into();
        set(&mut program.environment, "PRONGHORN_PROGRAM_PID", number);
        let spawner = self.around.spawner.clone();
        let (name, index) = (self.spec.name.clone(), self.index);
        let channel = self.around.channel;
        if let Some(process) = &mut self.process {
            process.next_check = None;
            if let Some(roadrunner) = &process.roadrunner {
                let is_well = roadrunner.is_well(health.timeout);
                let why = "RoadRunner does not say that it is well";
                process.checks.spawn(async move {
                    is_well.await.then_some(()).ok_or_else(|| why.to_owned())
                });
                return;
            }
            process.checks.spawn(async move {
                let told = name.clone();
                let say = move |line: &str| {
                    record!(channel, debug, program = told, index, "health: {line}");
                };
                let checked = program.run(&spawner, say).await;
                checked.map_err(|error| {
                    let why = with_causes(&error);
                    record!(channel, debug, program = name, index, "health: {why}");
                    why
                })
            });
        }
    }
}

impl Supervised {
    /// The last thing that it will have: with all others, it has run for its time as well.
    fn waits_for(&self) -> String {
        if !self.is_ready {
            "`READY=1` (`notify`)".to_owned()
        } else if self.was_well {
            let time = show_duration(self.spec.settings.start_time);
            format!("the end of its first {time} (`start_time`)")
        } else if self.roadrunner.is_some() {
            "RoadRunner's answer that it is well".to_owned()
        } else if let Some(why) = &self.last_check {
            format!("its `health` command, which has failed: {why}")
        } else {
            "its `health` command".to_owned()
        }
    }

    /// The reason why it is not up, as the end of a sentence.
    fn lacks(&self) -> String {
        if !self.is_ready {
            ": it has not said `READY=1` (`notify`)".to_owned()
        } else if let (false, Some(why)) = (self.was_well, &self.last_check) {
            format!(": its health command has failed: {why}")
        } else {
            String::new()
        }
    }
}

/// A pause as a person would say it.
fn rounded(pause: Duration) -> Duration {
    if pause < Duration::from_secs(1) {
        return Duration::from_millis(millis(pause));
    }
    Duration::from_secs(pause.as_secs() + u64::from(pause.subsec_millis() >= 500))
}

/// Why a process was not started.
#[derive(Debug, thiserror::Error)]
enum NotStarted {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error("it can't be started: there is no socket for `NOTIFY_SOCKET`")]
    Socket(#[source] std::io::Error),
    #[error("it can't be started: its configuration can't be written")]
    RoadRunner(#[source] std::io::Error),
    #[error("it can't be started: it writes to `{}`, {why} (hint: {})", path.display(), why.hint())]
    File { path: PathBuf, why: FileError },
}

/// Something that comes from a process, or from the clock.
enum Happened {
    Ended,
    Due,
    /// The process with this number has sent it.
    Notice(u32, Notice),
    Checked(Result<(), String>),
}

/// The next one; `next` is when something is due. Cancel safe.
async fn happens(process: Option<&mut Supervised>, next: Option<Instant>) -> Happened {
    let due = async {
        match next {
            Some(next) => sleep_until(next).await,
            None => std::future::pending().await,
        }
    };
    let Some(process) = process else {
        due.await;
        return Happened::Due;
    };
    let Supervised {
        running,
        socket,
        checks,
        ..
    } = process;
    let told = async {
        match socket {
            Some(socket) => socket.receive().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        // An error is told when it is finished.
        _ = running.ended() => Happened::Ended,
        () = due => Happened::Due,
        Some(well) = checks.join_next() => {
            Happened::Checked(well.unwrap_or_else(|error| Err(error.to_string())))
        }
        // The last: a program may send them without a pause.
        (sender, told) = told => Happened::Notice(sender, told),
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("program", &self.spec.name)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
