//! Dead letters: the list, and one in full; also a job that runs or waits.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::over_rpc::{self, Methods};
use crate::exit::{Exit, mention, say, say_json};
use crate::steer::boxes::{ago, size};
use crate::steer::text::{columns, line, lines, time};

#[derive(Serialize, Deserialize)]
struct Listed {
    letters: Vec<Headline>,
    more: u64,
}

#[derive(Serialize, Deserialize)]
struct Headline {
    pipeline: String,
    id: String,
    job: String,
    attempts: u32,
    reason: String,
    died_at: u64,
    size: u64,
}

#[derive(Serialize, Deserialize)]
struct Letter {
    #[serde(default)]
    state: String,
    pipeline: String,
    id: String,
    job: String,
    attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    died_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    began_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queued_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_in: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress_text: Option<String>,
    priority: i64,
    headers: BTreeMap<String, Vec<String>>,
    payload: String,
    size: u64,
}

pub(super) async fn list(
    methods: &mut Methods,
    pipeline: Option<&str>,
    json: bool,
) -> Result<Exit, String> {
    let argument = serde_json::json!({"pipeline": pipeline.unwrap_or_default()});
    let listed: Listed = over_rpc::ask(methods, "jobs.DeadLetters", &argument).await?;
    if json {
        return say_json(&listed);
    }
    if listed.letters.is_empty() {
        mention("there are no dead letters\n");
        return Ok(Exit::Done);
    }
    let cells: Vec<_> = listed.letters.iter().map(Headline::cells).collect();
    say(&columns(
        ["ID", "PIPELINE", "JOB", "ATTEMPTS", "DIED", "REASON"],
        &cells,
    ));
    if listed.more > 0 {
        say(&format!("and {} older ones\n", listed.more));
    }
    Ok(Exit::Done)
}

impl Headline {
    fn cells(&self) -> [String; 6] {
        [
            line(&self.id),
            line(&self.pipeline),
            line(&self.job),
            self.attempts.to_string(),
            ago(since(self.died_at)),
            line(&self.reason),
        ]
    }
}

pub(super) async fn show(
    methods: &mut Methods,
    id: &str,
    pipeline: Option<&str>,
    json: bool,
) -> Result<Exit, String> {
    let argument = serde_json::json!({"id": id, "pipeline": pipeline});
    let letter: Letter = over_rpc::ask(methods, "jobs.Show", &argument).await?;
    if json {
        return say_json(&letter);
    }
    let mut out = String::new();
    let mut entry = |name: &str, value: &str| {
        _ = writeln!(out, "{name:<9} {value}"); // a String takes it
    };
    entry("id", &line(&letter.id));
    if !letter.state.is_empty() {
        entry("state", &line(&letter.state));
    }
    entry("pipeline", &line(&letter.pipeline));
    entry("job", &line(&letter.job));
    if letter.state == "running" {
        entry("attempt", &letter.attempts.saturating_add(1).to_string());
    } else {
        entry("attempts", &letter.attempts.to_string());
    }
    if let Some(died_at) = letter.died_at {
        entry("died", &ago(since(died_at)));
    }
    if let Some(began_at) = letter.began_at {
        entry("began", &ago(since(began_at)));
    }
    if let Some(queued_at) = letter.queued_at {
        entry("queued", &ago(since(queued_at)));
    }
    if let Some(seconds) = letter.due_in {
        entry("due", &due(seconds));
    }
    if let Some(done) = letter.progress {
        let text = line(letter.progress_text.as_deref().unwrap_or_default());
        let percent = format!("{:.0} % {text}", done * 100.0);
        entry("progress", percent.trim_end());
    }
    entry("priority", &letter.priority.to_string());
    for (name, values) in &letter.headers {
        entry(
            "header",
            &format!("{}: {}", line(name), line(&values.join(", "))),
        );
    }
    if let Some(reason) = &letter.reason {
        // Below each other, in the column of values.
        let reason = lines(reason.trim_end()).replace('\n', "\n          ");
        entry("reason", &reason);
    }
    entry(
        "payload",
        &format!("{}\n{}", size(letter.size), lines(&letter.payload)),
    );
    say(&out);
    Ok(Exit::Done)
}

pub(super) fn due(seconds: f64) -> String {
    let left = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    format!("in {}", time(left))
}

pub(super) fn since(milliseconds: u64) -> Duration {
    let then = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
    then.elapsed().unwrap_or_default()
}
