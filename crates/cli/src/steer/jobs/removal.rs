//! Jobs that are not to run.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::over_rpc::{self, Methods};
use super::{MOST_NAMED, NotDone, all_done};
use crate::exit::{Exit, mention, say, say_json};
use crate::steer::text::{counted, line};

#[derive(Default, Serialize, Deserialize)]
struct Cancelled {
    done: Vec<String>,
    /// Jobs that waited.
    removed: u64,
    running: u64,
    /// IDs that a broker may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    noted: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    not_done: Vec<NotDone>,
}

pub(super) async fn cancel(
    methods: &mut Methods,
    ids: &[String],
    pipeline: Option<&str>,
    json: bool,
) -> Result<Exit, String> {
    let mut cancelled = Cancelled::default();
    for ids in ids.chunks(MOST_NAMED) {
        let named = json!({ "ids": ids, "pipeline": pipeline });
        cancelled.add(over_rpc::ask(methods, "jobs.Cancel", &named).await?);
    }
    if json {
        say_json(&cancelled)?;
    } else {
        say(&cancelled.text());
    }
    all_done(&cancelled.not_done)
}

impl Cancelled {
    /// Adds the outcome of one more call.
    fn add(&mut self, next: Self) {
        self.done.extend(next.done);
        self.removed += next.removed;
        self.running += next.running;
        self.noted.extend(next.noted);
        self.not_done.extend(next.not_done);
    }

    fn text(&self) -> String {
        let mut found = Vec::new();
        if self.removed > 0 {
            found.push(format!("{} that waited", self.removed));
        }
        if self.running > 0 {
            found.push(format!("{} that ran", self.running));
        }
        let count = counted(self.removed + self.running, "job");
        let found = found.join(", ");
        let mut text = match &*found {
            "" => format!("{count} cancelled\n"),
            found => format!("{count} cancelled: {found}\n"),
        };
        for id in &self.noted {
            // A String takes it.
            _ = writeln!(
                text,
                "{}: no job was found here; if a broker has it, it does not run when it comes, \
                 until this server ends",
                line(id)
            );
        }
        text
    }
}

#[derive(Serialize, Deserialize)]
struct Cleared {
    removed: u64,
}

pub(super) async fn clear(
    methods: &mut Methods,
    pipeline: &str,
    json: bool,
) -> Result<Exit, String> {
    let cleared: Cleared =
        over_rpc::ask(methods, "jobs.Clear", &json!({ "pipeline": pipeline })).await?;
    if json {
        return say_json(&cleared);
    }
    mention(&format!("{} removed\n", counted(cleared.removed, "job")));
    Ok(Exit::Done)
}
