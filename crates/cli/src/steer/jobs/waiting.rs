//! The jobs of a pipeline, in a table.

use serde::{Deserialize, Serialize};

use super::letters::{due, since};
use super::over_rpc::{self, Methods};
use crate::exit::{Exit, mention, say, say_json};
use crate::steer::boxes::{ago, size};
use crate::steer::text::{columns, line};

#[derive(Serialize, Deserialize)]
struct List {
    jobs: Vec<Job>,
    more: bool,
}

#[derive(Serialize, Deserialize)]
struct Job {
    id: String,
    job: String,
    state: String,
    attempts: u32,
    priority: i64,
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queued_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_in: Option<f64>,
}

const HEADS: [&str; 8] = [
    "ID", "JOB", "STATE", "ATTEMPTS", "PRIORITY", "SIZE", "QUEUED", "DUE",
];

pub(super) async fn list(
    methods: &mut Methods,
    pipeline: &str,
    json: bool,
) -> Result<Exit, String> {
    let argument = serde_json::json!({ "pipeline": pipeline });
    let list: List = over_rpc::ask(methods, "jobs.Waiting", &argument).await?;
    if json {
        return say_json(&list);
    }
    if list.jobs.is_empty() {
        mention(&format!("{} has no jobs\n", line(pipeline)));
        return Ok(Exit::Done);
    }
    let cells: Vec<_> = list.jobs.iter().map(Job::cells).collect();
    say(&columns(HEADS, &cells));
    if list.more {
        say("and further ones\n");
    }
    Ok(Exit::Done)
}

impl Job {
    fn cells(&self) -> [String; 8] {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            line(&self.id),
            line(&self.job),
            line(&self.state),
            self.attempts.to_string(),
            self.priority.to_string(),
            size(self.size),
            or_none(self.queued_at.map(|at| ago(since(at)))),
            or_none(self.due_in.map(due)),
        ]
    }
}
