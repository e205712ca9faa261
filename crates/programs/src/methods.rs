//! `service.*`, which are RoadRunner's, and `programs.*`, which are ours.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{LogThrottle, lock};
use pronghorn_config::{Command, SpacedCommand};
use pronghorn_plugin_api::InOrder;
use pronghorn_plugin_api::rpc::{Argument, Failure, Methods, Outcome};
use pronghorn_process::{NamedSignal, Usage};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::all::AllPrograms;
use crate::instance::{Facts, Spec};
use crate::machine::Restart;
use crate::messages::{Create, List, Response, Service, Status, Statuses, Update, Wrong};
use crate::program::{Idle, Program};
use crate::programs::{Programs, ProgramsError, by_order};
use crate::said::Line;
use crate::settings::{MOST_PROCESSES, ProgramSettings};
use crate::shown::{AllShown, cpu_percent};
use crate::{ALL, LOG};

/// The longest wait of a command for programs to come up: their own limits may be hours.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Lines that are shown if nobody gives a number.
const LINES: usize = 100;
/// Bytes of a name that comes over RPC: it stands in each record of its program.
const LONGEST_NAME: usize = 255;

/// Bytes of one line and its surroundings, at most, for the room of a reply.
const ROOM_OF_LINES: usize = 1 << 20;

pub(crate) fn add_roadrunners(methods: &Methods, programs: &Programs) {
    let service = methods.service("service", programs.clone());
    service.add("Create", create);
    service.add("Terminate", terminate);
    service.add("Restart", restart);
    service.add("Status", status);
    service.add("Statuses", statuses);
    service.add("List", list);
    service.add("Update", update);
}

pub(crate) fn add(methods: &Methods, all: &AllPrograms) {
    let ours = methods.service("programs", all.clone());
    ours.add("List", async |programs: AllPrograms, _: Nothing| {
        Ok(AllShown::of(&programs.all()))
    });
    ours.add("Start", async |programs: AllPrograms, of: ProgramNames| {
        start(&programs, of.found(&programs)?).await?;
        Ok(Response::ok())
    });
    ours.add("Stop", async |programs: AllPrograms, of: ProgramNames| {
        // At once: each has a time of its own, and there may be hundreds.
        let mut stops = JoinSet::new();
        for program in of.found(&programs)? {
            stops.spawn(async move { program.stop(None).await });
        }
        while stops.join_next().await.is_some() {}
        Ok(Response::ok())
    });
    ours.add(
        "Restart",
        async |programs: AllPrograms, of: ProgramNames| {
            all_done(&replace_all(of.found(&programs)?).await)?;
            Ok(Response::ok())
        },
    );
    ours.add("Signal", signal);
    ours.add_with_room("Logs", ROOM_OF_LINES, lines);
}

/// Nothing is asked for.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Nothing {}

impl Argument for Nothing {}

/// Programs by their names; all for none.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProgramNames {
    names: Vec<String>,
}

impl Argument for ProgramNames {}

impl ProgramNames {
    fn found(&self, programs: &AllPrograms) -> Result<Vec<Arc<Program>>, Failure> {
        if self.names.is_empty() {
            return Ok(programs.all());
        }
        let found = self.names.iter().map(|name| programs.get(name));
        found
            .collect::<Result<_, _>>()
            .map_err(|error| failed(&error))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Signalling {
    name: String,
    signal: String,
    index: Option<u32>,
}

impl Argument for Signalling {}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Looking {
    name: String,
    after: u64,
    most: Option<usize>,
}

impl Argument for Looking {}

#[derive(Serialize)]
struct Lines {
    lines: Vec<Line>,
    /// The number of the program's newest line: the next question begins after it.
    last: u64,
}

impl Outcome for Lines {}

impl Response {
    fn ok() -> Self {
        Self {
            message: "OK".to_owned(),
            ok: true,
        }
    }
}

fn failed(error: &ProgramsError) -> Failure {
    Failure::new(error.to_string())
}

/// RoadRunner cuts it at spaces, and so does this: where quotes are not closed, they are letters.
fn command(text: &str) -> Result<Command, Failure> {
    match SpacedCommand::parse(text) {
        Ok(SpacedCommand(command)) => Ok(command),
        Err(_) => {
            let words = text.split_whitespace().map(ToOwned::to_owned);
            Command::new(words).ok_or_else(|| Failure::new("the command is empty"))
        }
    }
}

fn process_num(name: &str, number: i64) -> Result<u32, Failure> {
    match u32::try_from(number) {
        Ok(0) | Err(_) if number <= 0 => Err(failed(&ProgramsError::NoProcess(name.to_owned()))),
        Ok(number) if number <= MOST_PROCESSES => Ok(number),
        _ => Err(Failure::new(format!(
            "process_num is {number}; at most {MOST_PROCESSES} are allowed"
        ))),
    }
}

/// Nothing, or less, is no limit.
fn exec_timeout(seconds: i64) -> Option<Duration> {
    let seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
    seconds.map(ProgramSettings::seconds)
}

fn pairs(env: BTreeMap<String, String>) -> Vec<(String, String)> {
    env.into_iter().collect()
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), Failure> {
    let is_wrong = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if env.iter().any(is_wrong) {
        return Err(Failure::new(
            "a variable's name is empty or holds `=`, or there is a zero byte",
        ));
    }
    Ok(())
}

const fn restart_rule(remains: bool) -> Restart {
    if remains {
        Restart::Always
    } else {
        Restart::No
    }
}

/// Starts programs in their order, and waits until they are up. Those that have not come up or
/// begun within [`LONGEST_WAIT`] still do, in their turn.
async fn start(all: &AllPrograms, programs: Vec<Arc<Program>>) -> Result<(), Failure> {
    let failures: Arc<Mutex<Vec<String>>> = Arc::default();
    let done = all.begin(start_in_order(programs, failures.clone()));
    _ = timeout(LONGEST_WAIT, done).await; // what is left goes on
    all_done(&lock(&failures))
}

/// One that fails does not keep the others from it.
async fn start_in_order(programs: Vec<Arc<Program>>, failures: Arc<Mutex<Vec<String>>>) {
    let groups = by_order(programs);
    // A stop takes one that waits out of the line.
    let mut waiting = HashSet::new();
    for program in groups.iter().skip(1).flatten() {
        let facts = program.facts();
        if !program.is_in_line() && facts.iter().any(|(_, it)| !it.state.has_process()) {
            program.line_up("programs with a lower `order`");
            waiting.insert(program.spec().name.clone());
        }
    }
    for group in groups {
        let mut settling = JoinSet::new();
        for program in group {
            let name = program.spec().name.clone();
            if waiting.contains(&name) && !program.is_in_line() {
                continue;
            }
            if let Err(why) = program.start().await {
                lock(&failures).push(format!("{name}: {why}"));
                continue;
            }
            settling.spawn(async move {
                let settled = program.settled().await;
                settled.map_err(|why| format!("{name}: it did not come up: {why}"))
            });
        }
        while let Some(settled) = settling.join_next().await {
            lock(&failures).extend(settled.ok().and_then(Result::err));
        }
    }
}

/// All failures, a line for each.
fn all_done(failures: &[String]) -> Result<(), Failure> {
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure::new(failures.join("\n")))
}

/// Logs a refusal: the application may not show it to anybody.
fn tell_refused<T>(method: &str, program: &str, result: Result<T, Failure>) -> Result<T, Failure> {
    static REFUSED: LogThrottle = LogThrottle::new();
    if let Err(why) = &result
        && let Some(calls) = REFUSED.should_log()
    {
        let program: String = program.chars().take(LONGEST_NAME).collect();
        tracing::warn!(target: LOG, program, method, calls, "a call over RPC was refused: {why}");
    }
    result
}

async fn create(programs: Programs, asked: Create) -> Result<Response, Failure> {
    let name = asked.name.clone();
    let created = create_program(programs, asked).await;
    tell_refused("service.Create", &name, created)
}

async fn create_program(programs: Programs, asked: Create) -> Result<Response, Failure> {
    if asked.name.is_empty() {
        return Err(Failure::new("the service has no name"));
    }
    if asked.name == ALL {
        return Err(Failure::new(
            "`all` can't be the name of a program: `pronghorn programs` takes it for all of them",
        ));
    }
    if asked.name.contains(char::is_control) {
        return Err(Failure::new("the name holds a control character"));
    }
    if asked.name.len() > LONGEST_NAME {
        let length = asked.name.len();
        return Err(Failure::new(format!(
            "the name has {length} bytes; at most {LONGEST_NAME} are allowed"
        )));
    }
    if programs.get(&asked.name).is_ok() {
        return Err(failed(&ProgramsError::Exists(asked.name)));
    }
    check_env(&asked.env)?;
    let mut settings = ProgramSettings::of_command(command(&asked.command)?);
    settings.process_num = process_num(&asked.name, asked.process_num)?;
    settings.exec_timeout = exec_timeout(asked.exec_timeout);
    settings.rules.restart = restart_rule(asked.remain_after_exit);
    settings.rules.pause = ProgramSettings::restart_pause(asked.restart_sec);
    settings.stop_timeout = ProgramSettings::stop_time(asked.timeout_stop_sec);
    settings.name_in_log = asked.service_name_in_logs;
    settings.env = pairs(asked.env);
    let spec = Programs::spec(&asked.name, settings);
    let spec = spec.map_err(|why| Failure::new(format!("{}: {why}", asked.name)))?;
    programs
        .create(spec)
        .await
        .map_err(|error| failed(&error))?;
    Ok(Response::ok())
}

async fn terminate(programs: Programs, of: Service) -> Result<Response, Failure> {
    let removed = programs.remove(&of.name).await;
    tell_refused(
        "service.Terminate",
        &of.name,
        removed.map_err(|error| failed(&error)),
    )?;
    Ok(Response::ok())
}

async fn restart(programs: Programs, of: Service) -> Result<Response, Failure> {
    let restarted = match programs.get(&of.name) {
        Ok(program) => replace(&program).await,
        Err(error) => Err(failed(&error)),
    };
    tell_refused("service.Restart", &of.name, restarted)?;
    Ok(Response::ok())
}

/// Replaces the processes of programs, of several at the same time if there is no order between
/// them. Says what has failed.
async fn replace_all(programs: Vec<Arc<Program>>) -> Vec<String> {
    let work = programs.into_iter().map(|program| {
        let order = program.spec().settings.order;
        (order, async move { replace(&program).await })
    });
    let (mut replacing, mut failures) = (InOrder::new(work), Vec::new());
    while let Some(replaced) = replacing.next().await {
        failures.extend(replaced.err().map(|why| why.to_string()));
    }
    failures
}

async fn replace(program: &Program) -> Result<(), Failure> {
    let replaced = program.replace(program.spec(), Idle::Starts).await;
    replaced.map_err(|why| Failure::new(format!("{}: {why}", program.spec().name)))
}

/// As in RoadRunner, a larger number of processes counts from the next restart on.
async fn update(programs: Programs, asked: Update) -> Result<Response, Failure> {
    let name = asked.name.clone();
    let updated = update_program(programs, asked).await;
    tell_refused("service.Update", &name, updated)
}

async fn update_program(programs: Programs, asked: Update) -> Result<Response, Failure> {
    let program = programs.get(&asked.name).map_err(|error| failed(&error))?;
    let mut settings = program.spec().settings.clone();
    if let Some(number) = asked.process_num {
        settings.process_num = process_num(&asked.name, number)?;
    }
    if let Some(seconds) = asked.exec_timeout {
        settings.exec_timeout = exec_timeout(seconds);
    }
    if let Some(remains) = asked.remain_after_exit {
        settings.rules.restart = restart_rule(remains);
    }
    if let Some(env) = asked.env {
        check_env(&env.values)?;
        settings.env = pairs(env.values);
    }
    if let Some(seconds) = asked.restart_sec {
        settings.rules.pause = ProgramSettings::restart_pause(seconds);
    }
    if let Some(is_named) = asked.service_name_in_logs {
        settings.name_in_log = is_named;
    }
    if let Some(seconds) = asked.timeout_stop_sec {
        settings.stop_timeout = ProgramSettings::stop_time(seconds);
    }
    let before = program.spec();
    program
        .update(Arc::new(Spec {
            settings,
            name: before.name.clone(),
            user: before.user.clone(),
        }))
        .await;
    Ok(Response::ok())
}

async fn list(programs: Programs, _: Service) -> Result<List, Failure> {
    Ok(List {
        services: programs.names(),
    })
}

async fn statuses(programs: Programs, of: Service) -> Result<Statuses, Failure> {
    let program = programs.get(&of.name).map_err(|error| failed(&error))?;
    Ok(Statuses {
        status: all_statuses(&program),
    })
}

/// That of the last process, as RoadRunner has it.
async fn status(programs: Programs, of: Service) -> Result<Status, Failure> {
    let program = programs.get(&of.name).map_err(|error| failed(&error))?;
    Ok(all_statuses(&program).pop().unwrap_or_default())
}

fn all_statuses(program: &Program) -> Vec<Status> {
    let spec = program.spec();
    let command = spec.command().map(ToString::to_string).unwrap_or_default();
    let facts = program.facts().into_iter();
    facts
        .map(|(_, facts)| status_of(&facts, &command))
        .collect()
}

fn status_of(facts: &Facts, command: &str) -> Status {
    let usage = facts.pid.and_then(Usage::of);
    let wrong = usage.is_none().then(|| {
        let last = facts.last.as_ref().map(|last| format!(": {last}"));
        Wrong {
            code: 0,
            message: format!("{}{}", facts.state.name(), last.unwrap_or_default()),
        }
    });
    #[expect(clippy::cast_possible_truncation, reason = "a percentage")]
    let cpu_percent = usage.map_or(0.0, |usage| cpu_percent(usage, facts.started) as f32);
    Status {
        cpu_percent,
        pid: facts
            .pid
            .and_then(|pid| i32::try_from(pid).ok())
            .unwrap_or(0),
        memory_usage: usage.map_or(0, |usage| usage.memory),
        command: command.to_owned(),
        status: wrong,
    }
}

async fn signal(programs: AllPrograms, asked: Signalling) -> Result<Response, Failure> {
    let Some(signal) = NamedSignal::find(&asked.signal) else {
        let text = &asked.signal;
        return Err(Failure::new(format!(
            "there is no signal `{text}`\nhint: for example `SIGHUP` or `USR1`; `kill -l` lists them"
        )));
    };
    let program = programs.get(&asked.name).map_err(|error| failed(&error))?;
    if program.signal(signal, asked.index).await == 0 {
        return Err(Failure::new(format!(
            "{}: there is no process to signal",
            asked.name
        )));
    }
    Ok(Response::ok())
}

async fn lines(programs: AllPrograms, asked: Looking) -> Result<Lines, Failure> {
    let program = programs.get(&asked.name).map_err(|error| failed(&error))?;
    let most = asked.most.unwrap_or(LINES);
    let (lines, last) = program.hearing.lines(asked.after, most);
    Ok(Lines { lines, last })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Pause;

    #[test]
    fn a_command_of_php_is_cut_as_roadrunner_cuts_it() {
        let argv = |text: &str| command(text).map(|command| command.to_string());
        assert_eq!(argv("php a.php x"), Ok("php a.php x".into()));
        assert_eq!(argv("php it's"), Ok("php \"it's\"".into()));
        assert!(argv("").is_err() && argv("  ").is_err());
    }

    #[test]
    fn numbers_have_bounds() {
        for number in [0, -1, i64::MIN] {
            let said = process_num("a", number).unwrap_err().to_string();
            assert_eq!(
                said,
                "the service with a name should have at least 1 process"
            );
        }
        assert_eq!(process_num("a", 1), Ok(1));
        assert!(process_num("a", i64::MAX).is_err());
        assert_eq!(exec_timeout(0), None);
        assert_eq!(exec_timeout(-5), None);
        assert_eq!(exec_timeout(2), Some(Duration::from_secs(2)));
        let largest = [
            exec_timeout(i64::MAX).unwrap(),
            ProgramSettings::stop_time(u64::MAX),
        ];
        for time in largest {
            assert!(tokio::time::Instant::now().checked_add(time).is_some());
        }
        assert_eq!(
            ProgramSettings::restart_pause(0),
            Pause::Fixed(Duration::from_secs(30))
        );
        assert!(check_env(&[("A=".to_owned(), String::new())].into()).is_err());
    }
}
