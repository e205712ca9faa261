//! `programs`: what the server keeps running beside its workers.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use pronghorn_base::since_1970;
use pronghorn_plugin_api::PROGRAMS_AT_ONCE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::over_rpc::{self, Methods};
use super::text::{bytes, columns, has_waited, line, one_line, time};
use crate::arguments::{Programs, ProgramsCommand};
use crate::exit::{Exit, failed, mention, misused, say, say_json, write_out};

/// Stands for all programs where names are, as in supervisorctl.
const ALL: &str = "all";
/// The pause between two requests for new lines.
const EVERY: Duration = Duration::from_millis(500);

#[derive(Serialize, Deserialize)]
struct List {
    programs: Vec<Program>,
}

#[derive(Serialize, Deserialize)]
struct Program {
    name: String,
    command: String,
    #[serde(default)]
    created: bool,
    /// Older servers do not say it.
    #[serde(default)]
    order: i64,
    processes: Vec<Process>,
}

/// Times are milliseconds since 1970.
#[derive(Serialize, Deserialize)]
struct Process {
    index: u64,
    state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu_percent: Option<f64>,
    #[serde(default)]
    starts: u64,
    #[serde(default)]
    failures: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits_since: Option<u64>,
}

#[derive(Deserialize)]
struct Lines {
    lines: Vec<Line>,
    /// The number of the program's newest line. Older servers do not say it.
    #[serde(default)]
    last: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    number: u64,
    time: u64,
    index: u64,
    pid: u64,
    stream: String,
    line: String,
}

/// `connect` finds the server.
pub(super) async fn run(
    connect: impl AsyncFn() -> Result<Methods, String>,
    programs: &Programs,
) -> Result<Exit, String> {
    let connect = &connect;
    match &programs.command {
        None => list(connect, programs.json, &[]).await,
        Some(ProgramsCommand::List { names, json }) => {
            list(connect, programs.json || *json, names).await
        }
        Some(ProgramsCommand::Logs {
            name,
            follow,
            lines,
            json,
        }) => logs(connect, programs.json || *json, name, *follow, *lines).await,
        Some(ProgramsCommand::Signal {
            signal,
            name,
            index,
        }) => send(connect, signal, name, *index).await,
        Some(ProgramsCommand::Start { names }) => each(connect, Step::Start, names).await,
        Some(ProgramsCommand::Stop { names }) => each(connect, Step::Stop, names).await,
        Some(ProgramsCommand::Restart { names }) => each(connect, Step::Restart, names).await,
    }
}

/// Something to do with all processes of a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Start,
    Stop,
    Restart,
}

impl Step {
    const fn method(self) -> &'static str {
        match self {
            Self::Start => "programs.Start",
            Self::Stop => "programs.Stop",
            Self::Restart => "programs.Restart",
        }
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }

    const fn done(self) -> &'static str {
        match self {
            Self::Start => "started",
            Self::Stop => "stopped",
            Self::Restart => "restarted",
        }
    }

    /// Whether there is nothing to do.
    fn was_done(self, program: &Program) -> bool {
        let mut processes = program.processes.iter();
        match self {
            Self::Start => processes.all(|it| it.state == "running"),
            Self::Stop => processes.all(|it| it.state == "stopped"),
            Self::Restart => false,
        }
    }
}

/// One program that can't be started or restarted does not keep the others from it: each has a line
/// of its own.
async fn each(
    connect: &impl AsyncFn() -> Result<Methods, String>,
    step: Step,
    names: &[String],
) -> Result<Exit, String> {
    if names.is_empty() {
        let verb = step.verb();
        return Ok(misused(&format!(
            "no program is named\n\
             hint: `pronghorn programs {verb} NAME` for a program, `pronghorn programs {verb} {ALL}` \
             for all"
        )));
    }
    let known = known(connect).await?;
    let (meant, is_all) = meant(names, &known)?;
    if meant.is_empty() {
        mention("there are no programs\n");
        return Ok(Exit::Done);
    }
    if is_all && step == Step::Stop {
        act(connect, step.method(), &json!({"names": []})).await?;
        mention(&format!("all programs are {}\n", step.done()));
        return Ok(Exit::Done);
    }
    let mut exit = Exit::Done;
    let mut acting = JoinSet::new();
    let mut tell = |(name, acted): (String, Result<(), String>)| {
        let name = one_line(&name);
        match acted {
            Ok(()) => mention(&format!("{name} is {}\n", step.done())),
            Err(why) => {
                exit = failed(&format!(
                    "{why}\nhint: `pronghorn programs logs {name}` shows what it has printed"
                ));
            }
        }
    };
    for group in in_order(meant, is_all) {
        for program in group {
            let (name, done) = (program.name.clone(), step.done());
            if step.was_done(program) {
                mention(&format!("{} is {done} already\n", one_line(&name)));
                continue;
            }
            let mut methods = connect().await?;
            acting.spawn(async move {
                let argument = json!({"names": [name]});
                let acted: Result<Value, String> =
                    over_rpc::act(&mut methods, step.method(), &argument).await;
                (name, acted.map(|_| ()))
            });
            while acting.len() >= PROGRAMS_AT_ONCE
                && let Some(Ok(ended)) = acting.join_next().await
            {
                tell(ended);
            }
        }
        while let Some(Ok(ended)) = acting.join_next().await {
            tell(ended);
        }
    }
    Ok(exit)
}

/// Programs that may be started or restarted at the same time are in one group. Those that somebody
/// has named are asked for in that order, one at a time.
fn in_order(meant: Vec<&Program>, is_all: bool) -> Vec<Vec<&Program>> {
    if !is_all {
        return meant.into_iter().map(|program| vec![program]).collect();
    }
    let mut groups: BTreeMap<i64, Vec<&Program>> = BTreeMap::new();
    for program in meant {
        groups.entry(program.order).or_default().push(program);
    }
    groups.into_values().collect()
}

/// The programs of these names, and whether that is all of them.
fn meant<'a>(names: &[String], known: &'a List) -> Result<(Vec<&'a Program>, bool), String> {
    let named = names.iter().filter(|name| *name != ALL);
    let named: Vec<&Program> = named
        .map(|name| find(name, known))
        .collect::<Result<_, _>>()?;
    if names.iter().any(|name| name == ALL) {
        return Ok((known.programs.iter().collect(), true));
    }
    Ok((named, false))
}

async fn send(
    connect: &impl AsyncFn() -> Result<Methods, String>,
    signal: &str,
    name: &str,
    index: Option<u64>,
) -> Result<Exit, String> {
    let known = known(connect).await?;
    if known.programs.iter().any(|it| it.name == *signal) && !known.has(name) {
        let (signal, name) = (one_line(signal), one_line(name));
        return Err(format!(
            "`{signal}` is a program, not a signal\n\
             hint: the signal comes first: `pronghorn programs signal {name} {signal}`"
        ));
    }
    let program = find(name, &known)?;
    if let Some(why) = program.lacks_process(index) {
        return Err(why);
    }
    let argument = json!({"name": name, "signal": signal, "index": index});
    act(connect, "programs.Signal", &argument).await?;
    mention(&format!("{} got {}\n", one_line(name), one_line(signal)));
    Ok(Exit::Done)
}

async fn act(
    connect: &impl AsyncFn() -> Result<Methods, String>,
    method: &str,
    argument: &Value,
) -> Result<(), String> {
    let mut methods = connect().await?;
    let done: Result<Value, String> = over_rpc::act(&mut methods, method, argument).await;
    done.map(|_| ()).map_err(without_section)
}

async fn known(connect: &impl AsyncFn() -> Result<Methods, String>) -> Result<List, String> {
    let mut methods = connect().await?;
    let list: Result<List, String> = over_rpc::ask(&mut methods, "programs.List", &json!({})).await;
    list.map_err(without_section)
}

async fn list(
    connect: &impl AsyncFn() -> Result<Methods, String>,
    json: bool,
    names: &[String],
) -> Result<Exit, String> {
    let mut list = known(connect).await?;
    let (_, is_all) = meant(names, &list)?;
    if !is_all && !names.is_empty() {
        list.programs.retain(|it| names.contains(&it.name));
    }
    if json {
        return say_json(&list);
    }
    if list.programs.is_empty() {
        mention("there are no programs\n");
        return Ok(Exit::Done);
    }
    say(&table(&list));
    Ok(Exit::Done)
}

impl List {
    fn has(&self, name: &str) -> bool {
        self.programs.iter().any(|it| it.name == name)
    }
}

impl Program {
    /// Why there is no process of this index, or of any.
    fn lacks_process(&self, index: Option<u64>) -> Option<String> {
        let name = one_line(&self.name);
        let mut processes = self.processes.iter();
        let Some(index) = index else {
            if processes.any(|it| it.pid.is_some()) {
                return None;
            }
            let state = self.processes.first().map_or("stopped", |it| &*it.state);
            return Some(format!(
                "{name} has no process: it is {}\n\
                 hint: `pronghorn programs start {name}` starts it",
                one_line(state)
            ));
        };
        match processes.find(|it| it.index == index) {
            Some(process) if process.pid.is_some() => None,
            Some(process) => Some(format!(
                "{name}:{index} has no process: it is {}\n\
                 hint: `pronghorn programs start {name}` starts it",
                one_line(&process.state)
            )),
            None => {
                let known = match self.processes.len() {
                    0 | 1 => "its only process is 0".to_owned(),
                    several => format!("its processes are 0 to {}", several - 1),
                };
                Some(format!("{name} has no process {index}\nhint: {known}"))
            }
        }
    }
}

/// The program of a name that a person has written.
fn find<'a>(name: &str, list: &'a List) -> Result<&'a Program, String> {
    if let Some(found) = list.programs.iter().find(|it| it.name == name) {
        return Ok(found);
    }
    // As the table shows a process.
    if let Some((program, index)) = name.rsplit_once(':')
        && list.has(program)
    {
        let (program, index) = (one_line(program), one_line(index));
        return Err(format!(
            "`{program}:{index}` is a process, not a program\n\
             hint: write `{program}`; `programs signal` takes `--index {index}` for the process"
        ));
    }
    Err(unknown(name, list))
}

/// With the names that there are, those like the one that was written first.
fn unknown(name: &str, list: &List) -> String {
    /// A line of a terminal or two.
    const MOST: usize = 10;
    let known = || list.programs.iter().map(|it| it.name.as_str());
    let meant = pronghorn_config::nearest(name, known());
    let shown = one_line(name);
    let question = meant.map(|it| format!("; did you mean `{}`?", one_line(it)));
    let (lower, total) = (name.to_lowercase(), list.programs.len());
    let is_alike = |it: &str| {
        let it = it.to_lowercase();
        !lower.is_empty() && (it.contains(&lower) || lower.contains(&it))
    };
    let mut names: Vec<&str> = known().collect();
    names.sort_by_key(|it| (Some(*it) != meant, !is_alike(it)));
    names.truncate(MOST);
    let names: Vec<String> = names
        .into_iter()
        .map(|it| format!("`{}`", one_line(it)))
        .collect();
    let hint = match total {
        0 => "there are no programs".to_owned(),
        1..=MOST => format!("there are {}", names.join(", ")),
        _ => format!(
            "there are {} and {} more; `pronghorn programs` shows all",
            names.join(", "),
            total - MOST
        ),
    };
    let question = question.unwrap_or_default();
    format!("there is no program `{shown}`{question}\nhint: {hint}")
}

fn without_section(error: String) -> String {
    if error.contains("can't find service") {
        return "this server has no programs: its configuration has no section `service`\n\
                hint: for example `service: {queue: {command: php artisan queue:work}}`, and a \
                restart of the server"
            .to_owned();
    }
    error
}

async fn logs(
    connect: &impl AsyncFn() -> Result<Methods, String>,
    json: bool,
    name: &str,
    follow: bool,
    most: u64,
) -> Result<Exit, String> {
    find(name, &known(connect).await?)?;
    let mut after = 0;
    let mut most = most;
    loop {
        // Each question has a connection of its own: the server may have been renewed meanwhile.
        let mut methods = connect().await?;
        let argument = json!({"name": name, "after": after, "most": most});
        let told: Result<Lines, String> =
            over_rpc::ask(&mut methods, "programs.Logs", &argument).await;
        let told = told.map_err(without_section)?;
        let mut text = String::new();
        for said in &told.lines {
            text.push_str(&shown(said, json)?);
        }
        let newest = told.lines.last().map(|line| line.number);
        let last = told.last.or(newest).unwrap_or(after);
        if last < after {
            // Another process of the server counts anew.
            after = 0;
            continue;
        }
        after = last;
        match write_out(text.as_bytes()) {
            // `| head` has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(Exit::Done),
            written => written.map_err(|error| format!("the lines can't be written: {error}"))?,
        }
        if !follow {
            return Ok(Exit::Done);
        }
        most = 1_000;
        tokio::time::sleep(EVERY).await;
    }
}

fn shown(said: &Line, json: bool) -> Result<String, String> {
    if json {
        let object = serde_json::to_string(said);
        return object
            .map(|it| it + "\n")
            .map_err(|error| error.to_string());
    }
    let mark = if said.stream == "stderr" { "!" } else { "|" };
    let (index, pid) = (said.index, said.pid);
    Ok(format!("{index} {pid} {mark} {}\n", one_line(&said.line)))
}

fn table(list: &List) -> String {
    let now = since_1970(SystemTime::now());
    let mut cells = Vec::new();
    for program in &list.programs {
        for process in &program.processes {
            cells.push(process.cells(program, now));
        }
    }
    columns(
        [
            "PROGRAM", "STATE", "PID", "AGE", "MEMORY", "CPU", "STARTS", "LAST",
        ],
        &cells,
    )
}

impl Process {
    fn cells(&self, program: &Program, now: Duration) -> [String; 8] {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let name = match program.processes.len() {
            1 => one_line(&program.name),
            _ => format!("{}:{}", one_line(&program.name), self.index),
        };
        let age = self.started.map(Duration::from_millis);
        let next = self.next.map(Duration::from_millis);
        let waits = self.waits_for.as_ref().map(|what| {
            let since = self.waits_since.map_or(now, Duration::from_millis);
            has_waited(&self.state, what, now.saturating_sub(since))
        });
        let last = match (&self.status, &self.last, next) {
            (Some(status), ..) => Some(one_line(status)),
            (None, Some(last), Some(next)) => {
                let next = time(next.saturating_sub(now));
                Some(format!("{}; next start in {next}", one_line(last)))
            }
            (None, Some(last), None) => Some(one_line(last)),
            (None, None, _) => None,
        };
        let last: Vec<String> = waits.into_iter().chain(last).collect();
        let last = Some(last.join("; ")).filter(|last| !last.is_empty());
        [
            name,
            line(&self.state),
            or_none(self.pid.map(|pid| pid.to_string())),
            or_none(age.map(|age| time(now.saturating_sub(age)))),
            or_none(self.memory.map(bytes)),
            or_none(self.cpu_percent.map(|cpu| format!("{cpu:.1} %"))),
            self.starts.to_string(),
            or_none(last),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_those_that_there_are() {
        let list = |names: &[&str]| List {
            programs: names
                .iter()
                .map(|name| Program {
                    name: (*name).to_owned(),
                    command: String::new(),
                    created: false,
                    order: 0,
                    processes: Vec::new(),
                })
                .collect(),
        };
        assert_eq!(
            unknown("mail", &list(&["horizon", "mails", "queue"])),
            "there is no program `mail`; did you mean `mails`?\n\
             hint: there are `mails`, `horizon`, `queue`"
        );
        assert_eq!(
            unknown("x", &list(&[])),
            "there is no program `x`\nhint: there are no programs"
        );
        let many: Vec<String> = (0..20)
            .map(|number| format!("worker-{number:02}"))
            .collect();
        let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
        many.push("mail-queue");
        let told = unknown("queue", &list(&many));
        let hint = "there is no program `queue`\nhint: there are `mail-queue`, `worker-00`, ";
        assert!(told.starts_with(hint), "{told}");
        let end = "`worker-08` and 11 more; `pronghorn programs` shows all";
        assert!(told.ends_with(end), "{told}");
    }
}
