//! `serve`: from arguments to a server, and from signals to its end.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use pronghorn_config::{Input, Loaded, MAIN_FILES, Severity, load};
use pronghorn_control::Place;
use pronghorn_process::reap_orphans;
use pronghorn_server::logs::{self, Logs};
use pronghorn_server::settings::Settings;
use pronghorn_server::{Control, CrewInfo, Plan, ROADRUNNER_VERSION, Server, VERSION};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::arguments::{Arguments, Name, Serve};
use crate::exit::{Exit, failed, mention, misused, say};
use crate::folders;
use crate::steer::place_of;

/// Where HTTP is served when nothing says otherwise: the first run must work, and only this machine may see it.
const FIRST_ADDRESS: &str = "127.0.0.1:8080";

/// Signals that follow each other within this time are one: nobody types faster.
const ONE_STOP: Duration = Duration::from_millis(100);

pub(crate) fn run(name: Name, arguments: &Arguments, options: &Serve) -> Exit {
    if options.root.is_some() {
        return misused(
            "`--root` needs classic pools, which are not there yet\n\
             hint: a worker script is served with `pronghorn serve worker.php`",
        );
    }
    let mut input = arguments.input();
    if let Some(script) = &options.script
        && let Err(exit) = serve_script(&mut input, script)
    {
        return exit;
    }
    let loaded = load(&input);
    if loaded.file.is_none() && input.overrides.is_empty() {
        return nothing_to_serve(&input);
    }
    let resolved = loaded.resolve::<Settings>(Severity::Warning);
    let report = resolved.report().clone();
    let settings = match resolved.into_settings() {
        Ok(settings) => settings,
        Err(report) => {
            mention(&report.to_string());
            return misused(&format!("nothing was started: {}", report.summary()));
        }
    };
    if options.script.is_some() && settings.http.is_none() {
        return misused(
            "the script would not be started: the configuration has no section `http`\n\
             hint: `-o http.address=127.0.0.1:8080` adds one",
        );
    }
    let folder = folders::working(arguments, loaded.file.as_deref());
    let logs = match logs::init(&settings.logs, &folder) {
        Ok(logs) => logs,
        Err(error) => return failed(&error.to_string()),
    };
    logs::tell(&report);
    let place = place_of(arguments, loaded.file.as_deref());
    let config = loaded.file.is_some().then(|| place.named().to_owned());
    let plan = Plan {
        control: Control::new(config, settings.longest_stop()),
        folder,
        environment: environment(&loaded),
        development: options.dev,
        configuration: loaded
            .files
            .iter()
            .filter_map(|file| std::path::absolute(file).ok())
            .collect(),
        written: loaded.to_json(),
        settings,
    };
    let exit = serve(name, arguments, &place, plan, &logs);
    drop(logs);
    exit
}

/// A script on the command line: its own folder is the working folder when there is no configuration.
fn serve_script(input: &mut Input, script: &Path) -> Result<(), Exit> {
    if !script.is_file() {
        return Err(misused(&format!(
            "there is no script `{}`\nhint: the path is taken from {}",
            script.display(),
            std::env::current_dir().unwrap_or_default().display()
        )));
    }
    let script = std::path::absolute(script).unwrap_or_else(|_| script.to_owned());
    let has_file = input.file.is_some()
        || MAIN_FILES
            .iter()
            .any(|file| input.folder.join(file).exists());
    // What the user wrote wins: `-o` comes behind.
    let mut overrides = vec![format!("server.command=php,{}", script.display())];
    if !has_file {
        overrides.push("version=3".to_owned());
        overrides.push(format!("http.address={FIRST_ADDRESS}"));
    }
    overrides.append(&mut input.overrides);
    input.overrides = overrides;
    Ok(())
}

/// Says what was looked for and what to type, by what lies around.
fn nothing_to_serve(input: &Input) -> Exit {
    let folder = std::path::absolute(&input.folder)
        .or_else(|_| std::env::current_dir())
        .unwrap_or_default();
    let found = ["worker.php", "psr-worker.php", "bin/worker.php"]
        .iter()
        .find(|file| folder.join(file).is_file());
    let legacy = ["public/index.php", "index.php"]
        .iter()
        .find(|file| folder.join(file).is_file());
    let hint = match (found, legacy) {
        (Some(script), _) => format!("`pronghorn serve {script}` serves this worker script"),
        (None, Some(index)) => format!(
            "{index} was found, but an application has to be given a worker script first: see docs/guide/first-worker.md"
        ),
        (None, None) => {
            "`pronghorn serve worker.php` serves a worker script; `-c FILE` names a configuration"
                .to_owned()
        }
    };
    misused(&format!(
        "there is no configuration: neither `{}` is in {}\nhint: {hint}",
        MAIN_FILES.join("` nor `"),
        folder.display()
    ))
}

/// The process's environment and what `--dotenv` adds to it.
fn environment(loaded: &Loaded) -> Vec<(OsString, OsString)> {
    let mut environment: Vec<_> = std::env::vars_os().collect();
    let added = loaded
        .dotenv
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    environment.extend(added);
    environment
}

fn serve(name: Name, arguments: &Arguments, place: &Place, plan: Plan, logs: &Logs) -> Exit {
    let runtime = match Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    let pid_file = arguments.globals.pid.then(|| plan.folder.join(".pid"));
    let grace = plan.settings.endure.grace_period;
    let exit = runtime.block_on(async {
        let mut signals = match Signals::listen(logs) {
            Ok(signals) => signals,
            Err(error) => return failed(&format!("cannot listen for signals: {error}")),
        };
        let _control = plan.control.listen(place);
        let server = tokio::select! {
            started = Server::start(plan) => match started {
                Ok(server) => server,
                Err(error) => return failed(&error.report()),
            },
            () = signals.stop() => return Exit::Done,
        };
        if let Some(file) = &pid_file
            && let Err(error) = std::fs::write(file, std::process::id().to_string())
        {
            tracing::warn!(target: "server", "cannot write `{}`: {error}", file.display());
        }
        if !arguments.globals.silent {
            greet(name, &server);
        }
        signals.stop().await;
        if !arguments.globals.silent && name == Name::Rr {
            say(&format!(
                "stop signal received, grace timeout is: {} seconds\n",
                grace.as_secs()
            ));
        }
        tracing::info!(target: "server", "stopping");
        let forced = async {
            // One stop may arrive twice: `timeout` signals the process and then its group.
            _ = tokio::time::timeout(ONE_STOP, async {
                loop {
                    signals.stop().await;
                }
            })
            .await;
            signals.stop().await;
        };
        tokio::select! {
            () = server.stop() => {
                tracing::info!(target: "server", "stopped");
                Exit::Done
            }
            () = forced => {
                mention("exit forced\n");
                Exit::Failed
            }
        }
    });
    if let Some(file) = &pid_file {
        _ = std::fs::remove_file(file); // it may be gone
    }
    runtime.shutdown_background();
    exit
}

fn greet(name: Name, server: &Server) {
    if name == Name::Rr {
        say(&format!(
            "[INFO] RoadRunner server started; version: {ROADRUNNER_VERSION}, buildtime: development\n"
        ));
        return;
    }
    let Some(address) = server.address() else {
        return say(&format!("Pronghorn {VERSION} runs, without HTTP\n"));
    };
    // What a person can open: 0.0.0.0 and :: are no addresses for a browser.
    let host = if address.ip().is_unspecified() {
        "127.0.0.1".to_owned()
    } else {
        address.ip().to_string()
    };
    let url = if host.contains(':') {
        format!("http://[{host}]:{}", address.port())
    } else {
        format!("http://{host}:{}", address.port())
    };
    let workers = match server.crews() {
        [CrewInfo { size: 1, command }] => format!("1 worker of `{command}`"),
        [CrewInfo { size, command }] => format!("{size} workers of `{command}`"),
        crews => {
            let size: usize = crews.iter().map(|crew| crew.size).sum();
            format!("{size} workers in {} pools", crews.len())
        }
    };
    let stop = if std::io::stdout().is_terminal() {
        "; Ctrl-C stops it"
    } else {
        ""
    };
    say(&format!(
        "Pronghorn {VERSION} serves {url} ({workers}{stop})\n"
    ));
}

/// What ends a server, the dead it must bury, and log files that were moved away.
struct Signals<'a> {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    child: Signal,
    moved: Signal,
    logs: &'a Logs,
}

impl<'a> Signals<'a> {
    fn listen(logs: &'a Logs) -> std::io::Result<Self> {
        pronghorn_process::adopt_orphans();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            child: signal(SignalKind::child())?,
            moved: signal(SignalKind::user_defined1())?,
            logs,
        })
    }

    /// Waits for a signal that stops the server, and heeds the others meanwhile.
    async fn stop(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.quit.recv() => return,
                _ = self.child.recv() => { reap_orphans(); }
                _ = self.moved.recv() => self.reopen_logs(),
            }
        }
    }

    fn reopen_logs(&self) {
        match self.logs.reopen() {
            Ok(()) => tracing::info!(target: "server", "log files opened anew"),
            Err(errors) => {
                for error in errors {
                    tracing::error!(target: "server", "a log file goes on as it is: {error}");
                }
            }
        }
    }
}
