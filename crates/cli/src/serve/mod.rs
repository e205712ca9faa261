//! `serve`: from arguments to a server, and from signals to its end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_config::{Compat, Era, Input, Severity, is_roadrunners, load};
use pronghorn_control::Place;
use pronghorn_process::activation;
use pronghorn_process::{Program, end_by_stops, reap_orphans};
use pronghorn_server::logs::{self, Logs};
use pronghorn_server::settings::{Settings, effective_json};
use pronghorn_server::{
    Control, Manager, Next, OtherProcess, Plan, Predecessor, ReloadWish, Server, Services, Source,
    StartError, UpgradeError, Way, own_files, presets,
};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, timeout, timeout_at};

use crate::arguments::{Arguments, Name, Serve};
use crate::directories;
use crate::exit::{Exit, failed, mention, say};
use crate::htaccess;
use crate::pid_file::PidFile;
use crate::steer::place_of;

mod found;
mod greeting;

use found::Found;
pub(crate) use found::without_configuration;

/// Signals that follow each other within this time are one: nobody types faster.
const ONE_STOP: Duration = Duration::from_millis(100);
/// Beyond the time of a stop, a process has its last records to write and files to remove.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(crate) fn run(name: Name, arguments: &Arguments, options: &Serve, services: Services) -> Exit {
    let predecessor = Predecessor::of_this_process();
    let activated = match &predecessor {
        // They come from that one.
        Some(_) => Ok(Vec::new()),
        None => activation::activated(),
    };
    let activated = match activated {
        Ok(activated) => activated,
        Err(error) => return refuse(&Failure::misused(error.to_string()), None),
    };
    let program = Program::of_this_process(directories::current());
    let set = match &predecessor {
        Some(predecessor) => predecessor.presets(),
        None => {
            let named: Vec<_> = (activated.iter())
                .map(|it| (&*it.name, &it.place))
                .collect();
            presets(&named)
        }
    };
    let mut input = arguments.input();
    input.presets = set;
    let (mut plan, logs, place, found) = match prepare(arguments, input, options, services) {
        Ok(prepared) => prepared,
        Err(failure) => return refuse(&failure, predecessor.as_ref()),
    };
    plan.activated = activated;
    let call = Call {
        name,
        compat: plan.settings.compat,
        silent: arguments.globals.silent,
        pid_file: arguments.globals.pid.then(|| plan.folder.join(".pid")),
        program,
        place,
        found,
    };
    let (exit, next) = serve(&call, plan, predecessor, &logs);
    drop(logs);
    let Call { program, found, .. } = call;
    drop(found);
    let program = program.as_ref().ok();
    let becoming = next
        .zip(program)
        .map(|(next, program)| next.become_it(program));
    match becoming.and_then(Result::err) {
        Some(error) => failed(&format!("cannot become the new process: {error}")),
        None => exit,
    }
}

/// How `serve` was called.
struct Call {
    name: Name,
    compat: Era,
    silent: bool,
    pid_file: Option<PathBuf>,
    program: io::Result<Program>,
    /// Where the control socket is.
    place: Place,
    found: Found,
}

/// A start that came to nothing, in words.
struct Failure {
    exit: Exit,
    message: String,
}

impl Failure {
    fn misused(message: impl Into<String>) -> Self {
        let (exit, message) = (Exit::Misused, message.into());
        Self { exit, message }
    }

    fn failed(message: impl Into<String>) -> Self {
        let (exit, message) = (Exit::Failed, message.into());
        Self { exit, message }
    }
}

/// Says it, also to the process that goes on because of it.
fn refuse(failure: &Failure, predecessor: Option<&Predecessor>) -> Exit {
    if let Some(predecessor) = predecessor {
        predecessor.tell_failure(&failure.message);
    }
    mention(&format!("error: {}\n", failure.message));
    failure.exit
}

/// From arguments and files to what is to be started; logs are written from here on.
fn prepare(
    arguments: &Arguments,
    mut input: Input,
    options: &Serve,
    services: Services,
) -> Result<(Plan, Logs, Place, Found), Failure> {
    let found = found::look(arguments, &mut input, options)?;
    let loaded = load(&input);
    let resolved = loaded.resolve_with(Severity::Warning, |t| Settings::read_with(t, &services));
    let (report, effective) = (resolved.report().clone(), resolved.effective().clone());
    let settings = resolved.into_settings().map_err(|report| {
        mention(&report.to_string());
        Failure::misused(format!("nothing was started: {}", report.summary()))
    })?;
    if options.target.is_some() && !settings.has("http") {
        return Err(Failure::misused(
            "the script would not run: the configuration has no section `http`\n\
             hint: `-o http.address=127.0.0.1:8080` adds one",
        ));
    }
    let folder = directories::working(arguments, loaded.file.as_deref());
    let logs = logs::init(&settings.logs, &folder);
    let logs = logs.map_err(|error| Failure::failed(error.to_string()))?;
    logs::tell(&report);
    greeting::record(&found);
    if options.dev {
        greeting::warn_of_development(&effective);
    }
    let is_written = loaded.file.is_some();
    let findings = is_written.then(|| htaccess::findings(&settings, &loaded, &folder));
    for finding in findings.into_iter().flatten() {
        let (key, message, hint) = (finding.key, finding.message, finding.hint);
        tracing::warn!(target: "config", hint, "`{key}` {message}");
    }
    if let Some(file) = loaded.file.as_deref().filter(|file| is_roadrunners(file)) {
        let Compat { era, reason } = loaded.compat();
        tracing::info!(target: "config", "`{}` is read as {era} reads it: \
                                          {reason}", file.display());
    }
    let place = place_of(arguments, loaded.file.as_deref());
    let config = loaded.file.is_some().then(|| place.named().to_owned());
    let here = directories::current().join(&input.folder);
    let plan = Plan {
        own_files: own_files(&loaded, &here, &folder),
        control: Control::new(config, settings.longest_stop(), logs.newest()),
        folder,
        environment: pronghorn_server::environment(&loaded),
        source: Some(Source::new(
            services,
            input,
            &directories::current(),
            &loaded,
            &effective,
            &settings.logs,
        )),
        development: options.dev,
        configuration: loaded
            .files
            .iter()
            .filter_map(|file| std::path::absolute(file).ok())
            .collect(),
        written: loaded.to_json(&effective),
        loaded: Arc::new(loaded),
        effective: effective_json(&effective),
        activated: Vec::new(),
        settings,
    };
    Ok((plan, logs, place, found))
}

/// Serves until the end. What comes then, if it is another process.
fn serve(
    call: &Call,
    plan: Plan,
    predecessor: Option<Predecessor>,
    logs: &Logs,
) -> (Exit, Option<Next>) {
    let runtime = match Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::failed(format!("cannot start: {error}"));
            return (refuse(&failure, predecessor.as_ref()), None);
        }
    };
    let manager = Manager::of_this_process(plan.settings.endure.watchdog);
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = live(call, plan, predecessor, logs, &manager) => ended,
            never = manager.beat() => match never {},
        }
    });
    runtime.shutdown_background();
    ended
}

async fn live(
    call: &Call,
    plan: Plan,
    predecessor: Option<Predecessor>,
    logs: &Logs,
    manager: &Manager,
) -> (Exit, Option<Next>) {
    let mut signals = match Signals::listen(logs) {
        Ok(signals) => signals,
        Err(error) => {
            let failure = Failure::failed(format!("cannot listen for signals: {error}"));
            return (refuse(&failure, predecessor.as_ref()), None);
        }
    };
    let takes_over = predecessor.is_some();
    let control = plan.control.clone();
    // A command during a long start is answered by whoever serves.
    let mut wishes = control.wishes();
    let mut commands = (!takes_over).then(|| control.listen(&call.place)).flatten();
    let mut server = tokio::select! {
        started = Server::start(plan, predecessor) => match started {
            Ok(server) => server,
            Err(StartError::Rehearsal) => return (Exit::Done, None),
            Err(error) => return (failed(&error.report()), None),
        },
        () = signals.stop() => return (Exit::Done, None),
    };
    signals.before = server.take_before();
    let pid_file = call.pid_file.as_ref().and_then(|path| {
        let written = PidFile::write(path).inspect_err(|error| {
            tracing::warn!(target: "server", "cannot write `{}`: {error}", path.display());
        });
        written.ok()
    });
    if takes_over {
        commands = control.take_over(&call.place);
        tracing::info!(
            target: "server", pid = std::process::id(),
            "upgrade: this process has taken over"
        );
    } else if !call.silent {
        greeting::greet(call, &server).await;
    }
    manager.ready();
    let next = heed(&mut server, call, &mut signals, &mut wishes, logs, manager).await;
    if next.is_none() && !call.silent && call.name == Name::Rr {
        say(&format!(
            "stop signal received, grace timeout is: {} seconds\n",
            server.endure().grace_period.as_secs()
        ));
    }
    tracing::info!(target: "server", "stopping");
    match &next {
        None => manager.stopping(),
        Some(Next::Process(pid, _)) => manager.handed_to(*pid),
        Some(Next::InPlace(_)) => manager.reloading(),
    }
    let is_elsewhere = matches!(next, Some(Next::Process(..)));
    let (exit, next) = finish(server, next, &mut signals).await;
    if let Some(file) = pid_file
        && !is_elsewhere
        && next.is_none()
    {
        file.remove();
    }
    drop(commands);
    (exit, next)
}

/// Lives, until it is to end or another process has taken over.
async fn heed(
    server: &mut Server,
    call: &Call,
    signals: &mut Signals<'_>,
    wishes: &mut Option<Receiver<ReloadWish>>,
    logs: &Logs,
    manager: &Manager,
) -> Option<Next> {
    loop {
        let by_command = async {
            let wish = match wishes {
                Some(wishes) => wishes.recv().await,
                None => None,
            };
            match wish {
                Some(wish) => wish,
                None => std::future::pending().await,
            }
        };
        let wish = tokio::select! {
            wish = signals.next() => wish,
            asked = by_command => Wish::Reload(Some(asked)),
        };
        if !matches!(wish, Wish::Stop) {
            manager.reloading();
        }
        match wish {
            Wish::Stop => return None,
            Wish::Reload(asked) => tokio::select! {
                reloaded = server.reload(logs) => if let Some(asked) = asked {
                    _ = asked.send(reloaded); // the command may have gone
                },
                () = signals.stop() => return None,
            },
            Wish::Upgrade => match upgrade(server, call, signals).await {
                Ok(next) => return Some(next),
                Err(UpgradeError::Stopped) => return None,
                Err(error) => tracing::error!(
                    target: "server",
                    "upgrade failed, this process continues: {error}"
                ),
            },
        }
        manager.ready();
    }
}

async fn upgrade(
    server: &mut Server,
    call: &Call,
    signals: &mut Signals<'_>,
) -> Result<Next, UpgradeError> {
    let way = Way::here(server.endure().upgrade);
    match &call.program {
        Ok(program) => server.upgrade(program, way, signals.stop()).await,
        Err(error) => Err(UpgradeError::NoProgram(error.kind().into())),
    }
}

/// Stops the server. A signal that asks for an end is meant for what is next as well, and for the
/// process before.
async fn finish(
    server: Server,
    next: Option<Next>,
    signals: &mut Signals<'_>,
) -> (Exit, Option<Next>) {
    let longest = server.longest_stop();
    let mut stopped = std::pin::pin!(server.stop());
    let mut others = Vec::new();
    // With a process after this one, the time of a stop holds and not that of a handover.
    let mut limit = None;
    match next {
        None => {}
        Some(Next::Process(pid, other)) => {
            limit = Some(longest);
            tokio::select! {
                () = &mut stopped => {
                    if signals.stop_is_there().await {
                        other.stop();
                    }
                    return (Exit::Done, Some(Next::Process(pid, other)));
                }
                () = signals.stop() => other.stop(),
                () = other.was_asked() => signals.is_told = true,
            }
            tracing::info!(target: "server", pid, "stopping, and so does the process that has taken over");
            others.push(other);
        }
        Some(in_place) => tokio::select! {
            () = &mut stopped => {
                end_by_stops();
                let is_over = signals.stop_is_there().await;
                return (Exit::Done, Some(in_place).filter(|_| !is_over));
            }
            () = signals.stop() => {}
        },
    }
    // From here on, a stop of the process before is this one.
    let is_told = std::mem::replace(&mut signals.is_told, true);
    if let Some(before) = signals.before.take() {
        if !is_told {
            before.stop();
        }
        others.push(before);
    }
    let all_stopped = async {
        let ends = Instant::now() + longest + LAST_WORDS;
        match limit {
            Some(limit) => _ = timeout(limit, stopped).await,
            None => stopped.await,
        }
        for other in &others {
            _ = timeout_at(ends, other.ended()).await;
        }
    };
    let forced = async {
        if is_told {
            // The signal for both processes may come as well, at any time.
            signals.stop().await;
        }
        // One stop may arrive twice: `timeout` signals the process and then its group.
        _ = timeout(ONE_STOP, async {
            loop {
                signals.stop().await;
            }
        })
        .await;
        signals.stop().await;
    };
    let exit = tokio::select! {
        () = all_stopped => {
            tracing::info!(target: "server", "stopped");
            Exit::Done
        }
        () = forced => {
            mention("exit forced\n");
            Exit::Failed
        }
    };
    (exit, None)
}

/// What a person or a service manager wants by a signal.
enum Wish {
    Stop,
    /// For a command, or for nobody who waits.
    Reload(Option<ReloadWish>),
    Upgrade,
}

/// What ends and what renews a server, the dead it must bury, and log files that were moved away.
struct Signals<'a> {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    upgrade: Signal,
    child: Signal,
    moved: Signal,
    /// Sent for a file that would grow beyond `ulimit -f`, and fatal to who does not listen. The
    /// write fails besides, as on a full disk. Children do not inherit this.
    _too_large: Signal,
    /// A stop of this one is as good as a signal.
    before: Option<OtherProcess>,
    /// That stop has come.
    is_told: bool,
    logs: &'a Logs,
}

impl<'a> Signals<'a> {
    /// Must come before the first file is written.
    fn listen(logs: &'a Logs) -> io::Result<Self> {
        pronghorn_process::adopt_orphans();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
            child: signal(SignalKind::child())?,
            moved: signal(SignalKind::user_defined1())?,
            _too_large: signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
            before: None,
            is_told: false,
            logs,
        })
    }

    /// Waits for a signal that asks for something.
    async fn next(&mut self) -> Wish {
        self.wait(true).await
    }

    /// Waits for a signal that stops the server. Other wishes wait, each once.
    async fn stop(&mut self) {
        _ = self.wait(false).await;
    }

    /// Whether such a signal has come by now.
    async fn stop_is_there(&mut self) -> bool {
        // The runtime hears of signals when it has nothing else to do.
        timeout(Duration::from_millis(1), self.stop()).await.is_ok()
    }

    async fn wait(&mut self, for_all: bool) -> Wish {
        loop {
            let told = async {
                match &self.before {
                    Some(before) if !self.is_told => before.was_asked().await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = told => {
                    self.is_told = true;
                    return Wish::Stop;
                }
                _ = self.terminate.recv() => return Wish::Stop,
                _ = self.interrupt.recv() => return Wish::Stop,
                _ = self.quit.recv() => return Wish::Stop,
                _ = self.hangup.recv(), if for_all => return Wish::Reload(None),
                _ = self.upgrade.recv(), if for_all => return Wish::Upgrade,
                _ = self.child.recv() => { reap_orphans(); }
                _ = self.moved.recv() => self.reopen_logs(),
            }
        }
    }

    fn reopen_logs(&self) {
        match self.logs.reopen() {
            Ok(()) => tracing::info!(target: "server", "log files reopened"),
            Err(errors) => {
                for error in errors {
                    tracing::error!(target: "server", "a log file could not be reopened: {error}");
                }
            }
        }
    }
}
