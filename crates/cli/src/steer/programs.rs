//! `programs`: what the server keeps running beside its workers.

use std::time::{Duration, SystemTime};

use pronghorn_base::since_1970;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::over_rpc::{self, Methods};
use super::text::{bytes, columns, line, time};
use crate::arguments::{Programs, ProgramsCommand};
use crate::exit::{Exit, mention, say, say_json, write_out};

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
}

#[derive(Deserialize)]
struct Lines {
    lines: Vec<Line>,
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
    let (method, done, names) = match &programs.command {
        None => return list(connect, programs.json, &[]).await,
        Some(ProgramsCommand::List { names, json }) => {
            return list(connect, programs.json || *json, names).await;
        }
        Some(ProgramsCommand::Logs {
            name,
            follow,
            lines,
            json,
        }) => return logs(connect, programs.json || *json, name, *follow, *lines).await,
        Some(ProgramsCommand::Signal {
            signal,
            name,
            index,
        }) => {
            let argument = json!({"name": name, "signal": signal, "index": index});
            act(connect, "programs.Signal", &argument).await?;
            mention(&format!("{} got {}\n", line(name), line(signal)));
            return Ok(Exit::Done);
        }
        Some(ProgramsCommand::Start { names }) => ("programs.Start", "started", names),
        Some(ProgramsCommand::Stop { names }) => ("programs.Stop", "stopped", names),
        Some(ProgramsCommand::Restart { names }) => ("programs.Restart", "restarted", names),
    };
    act(connect, method, &json!({"names": names})).await?;
    for name in names {
        mention(&format!("{} is {done}\n", line(name)));
    }
    if names.is_empty() {
        mention(&format!("all programs are {done}\n"));
    }
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

async fn list(
    connect: &impl AsyncFn() -> Result<Methods, String>,
    json: bool,
    names: &[String],
) -> Result<Exit, String> {
    let mut methods = connect().await?;
    let list: Result<List, String> = over_rpc::ask(&mut methods, "programs.List", &json!({})).await;
    let mut list = list.map_err(without_section)?;
    if let Some(unknown) = names
        .iter()
        .find(|name| !list.programs.iter().any(|it| it.name == **name))
    {
        return Err(missing(unknown, &list));
    }
    if !names.is_empty() {
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

fn missing(name: &str, list: &List) -> String {
    let known = list.programs.iter().map(|it| it.name.as_str());
    let meant = pronghorn_config::nearest(name, known);
    let meant = meant.map(|it| format!("; did you mean `{}`?", line(it)));
    format!(
        "there is no program `{}`{}\nhint: `pronghorn programs` shows all",
        line(name),
        meant.unwrap_or_default()
    )
}

fn without_section(error: String) -> String {
    if error.contains("can't find service") {
        return "this server has no programs: its configuration has no section `service`"
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
            after = said.number;
            text.push_str(&shown(said, json)?);
        }
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
    Ok(format!("{index} {pid} {mark} {}\n", line(&said.line)))
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
            1 => line(&program.name),
            _ => format!("{}:{}", line(&program.name), self.index),
        };
        let age = self.started.map(Duration::from_millis);
        let next = self.next.map(Duration::from_millis);
        let last = match (&self.status, &self.last, next) {
            (Some(status), ..) => line(status),
            (None, Some(last), Some(next)) => {
                let next = time(next.saturating_sub(now));
                format!("{}; next start in {next}", line(last))
            }
            (None, Some(last), None) => line(last),
            (None, None, _) => "-".to_owned(),
        };
        [
            name,
            line(&self.state),
            or_none(self.pid.map(|pid| pid.to_string())),
            or_none(age.map(|age| time(now.saturating_sub(age)))),
            or_none(self.memory.map(bytes)),
            or_none(self.cpu_percent.map(|cpu| format!("{cpu:.1} %"))),
            self.starts.to_string(),
            last,
        ]
    }
}
