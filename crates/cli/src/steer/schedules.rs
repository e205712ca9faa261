//! `schedules`: jobs by the clock.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::boxes::ago;
use super::text::{columns, line, time};
use super::{Task, over_rpc};
use crate::arguments::{Schedules, SchedulesCommand};
use crate::exit::{Exit, mention, say, say_json};

#[derive(Serialize, Deserialize)]
struct List {
    schedules: Vec<Schedule>,
}

#[derive(Serialize, Deserialize)]
struct Schedule {
    name: String,
    when: String,
    paused: bool,
    next: Option<u64>,
    running: u64,
    runs: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
struct Run {
    id: String,
    due: u64,
    began: u64,
    ended: Option<u64>,
    /// A text, or a map from a text to why.
    outcome: Option<Value>,
    /// The last lines of a command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lines: Vec<String>,
}

pub(super) async fn run(task: &Task<'_>, schedules: &Schedules) -> Result<Exit, String> {
    let mut methods = task.methods().await?;
    let (method, name) = match &schedules.command {
        None => {
            let list: List = over_rpc::ask(&mut methods, "schedules.List", &json!({})).await?;
            if schedules.json {
                return say_json(&list);
            }
            if list.schedules.is_empty() {
                mention("there are no schedules\n");
                return Ok(Exit::Done);
            }
            say(&table(&list));
            return Ok(Exit::Done);
        }
        Some(SchedulesCommand::Show { name, json }) => {
            let list: List = over_rpc::ask(&mut methods, "schedules.List", &json!({})).await?;
            let names: Vec<String> = list.schedules.iter().map(|it| it.name.clone()).collect();
            let found = list.schedules.into_iter().find(|it| it.name == *name);
            let schedule = found.ok_or_else(|| {
                let meant = pronghorn_config::nearest(name, names.iter().map(String::as_str));
                let meant = meant.map(|it| format!("; did you mean `{}`?", line(it)));
                format!(
                    "there is no schedule `{}`{}\nhint: `pronghorn schedules` shows all",
                    line(name),
                    meant.unwrap_or_default()
                )
            })?;
            if schedules.json || *json {
                return say_json(&schedule);
            }
            say(&runs(&schedule));
            return Ok(Exit::Done);
        }
        Some(SchedulesCommand::Run { name }) => ("schedules.Run", name),
        Some(SchedulesCommand::Pause { name }) => ("schedules.Pause", name),
        Some(SchedulesCommand::Resume { name }) => ("schedules.Resume", name),
    };
    let argument = json!({"name": name});
    let done: Value = over_rpc::ask(&mut methods, method, &argument).await?;
    // Of a run; an older server does not tell it.
    let id = done["id"].as_str();
    if schedules.json {
        return say_json(&match id {
            Some(id) => json!({"name": name, "id": id}),
            None => argument,
        });
    }
    let name = line(name);
    let told = match (method, id) {
        ("schedules.Pause", _) => format!("{name} is paused, also after a restart"),
        ("schedules.Resume", _) => format!("{name} is resumed"),
        (_, Some(id)) => {
            let id = line(id);
            format!("{name} runs as {id}; `pronghorn schedules show {name}` shows how it ends")
        }
        _ => format!("{name} runs; `pronghorn schedules show {name}` shows how it ends"),
    };
    mention(&format!("{told}\n"));
    Ok(Exit::Done)
}

fn table(list: &List) -> String {
    let cells: Vec<_> = list.schedules.iter().map(Schedule::cells).collect();
    columns(
        ["SCHEDULE", "WHEN", "NEXT", "LAST", "TOOK", "OUTCOME"],
        &cells,
    )
}

/// Its runs, the newest first, each with the last lines of its command.
fn runs(schedule: &Schedule) -> String {
    if schedule.runs.is_empty() {
        return "it has not run yet\n".to_owned();
    }
    let lines = schedule.runs.iter().rev().flat_map(|run| {
        let began = ago(moment(run.began).elapsed().unwrap_or_default());
        let took = run.ended.map(|ended| {
            let took = Duration::from_millis(ended.saturating_sub(run.began));
            format!(", took {}", time(took))
        });
        let (id, outcome) = (line(&run.id), run.outcome());
        let first = format!("{id}  {began}{}: {outcome}\n", took.unwrap_or_default());
        let said = run.lines.iter().map(|said| format!("    {}\n", line(said)));
        std::iter::once(first).chain(said)
    });
    lines.collect()
}

impl Schedule {
    fn cells(&self) -> [String; 6] {
        let next = match (self.paused, self.next) {
            (true, _) => "paused".to_owned(),
            (false, None) => "never".to_owned(),
            (false, Some(next)) => {
                let left = moment(next).duration_since(SystemTime::now());
                format!("in {}", time(left.unwrap_or_default()))
            }
        };
        let last = self.runs.last();
        let began = last.map(|run| ago(moment(run.began).elapsed().unwrap_or_default()));
        let took = last.and_then(|run| {
            let took = run.ended?.saturating_sub(run.began);
            Some(time(Duration::from_millis(took)))
        });
        let outcome = last.map(Run::outcome);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            line(&self.name),
            line(&self.when),
            next,
            or_none(began),
            or_none(took),
            or_none(outcome),
        ]
    }
}

impl Run {
    fn outcome(&self) -> String {
        match &self.outcome {
            None => "runs".to_owned(),
            Some(Value::String(outcome)) => line(&outcome.replace('_', " ")),
            Some(other) => {
                let why = other.get("failed").and_then(Value::as_str);
                let first = why.unwrap_or_default().lines().next().unwrap_or_default();
                format!("failed: {}", line(first))
            }
        }
    }
}

fn moment(milliseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds)
}
