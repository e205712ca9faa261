//! Batches whose jobs have not all ended, in a table.

use serde::{Deserialize, Serialize};

use super::letters::since;
use super::over_rpc::{self, Methods};
use crate::exit::{Exit, mention, say, say_json};
use crate::steer::boxes::ago;
use crate::steer::text::{columns, line};

#[derive(Serialize, Deserialize)]
struct List {
    batches: Vec<Batch>,
    more: bool,
}

#[derive(Serialize, Deserialize)]
struct Batch {
    id: String,
    job: String,
    pipeline: String,
    jobs: u64,
    ended: u64,
    failed: u64,
    since: u64,
    until: u64,
}

const HEADS: [&str; 7] = [
    "ID", "LAST JOB", "PIPELINE", "JOBS", "ENDED", "FAILED", "PUSHED",
];

pub(super) async fn list(methods: &mut Methods, json: bool) -> Result<Exit, String> {
    let list: List = over_rpc::ask(methods, "jobs.Batches", &serde_json::json!({})).await?;
    if json {
        return say_json(&list);
    }
    if list.batches.is_empty() {
        mention("no batch waits for its jobs\n");
        return Ok(Exit::Done);
    }
    let cells: Vec<_> = list.batches.iter().map(Batch::cells).collect();
    say(&columns(HEADS, &cells));
    if list.more {
        say("and further ones\n");
    }
    Ok(Exit::Done)
}

impl Batch {
    fn cells(&self) -> [String; 7] {
        [
            line(&self.id),
            line(&self.job),
            line(&self.pipeline),
            self.jobs.to_string(),
            self.ended.to_string(),
            self.failed.to_string(),
            ago(since(self.since)),
        ]
    }
}
