//! The table of pipelines.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::over_rpc::{self, Methods};
use crate::exit::{Exit, say, say_json};
use crate::steer::text::{columns, line, time};

#[derive(Serialize, Deserialize)]
struct Rows {
    pipelines: Vec<Row>,
}

/// Ours; fields of a newer server are passed over.
#[derive(Serialize, Deserialize)]
struct Row {
    pipeline: String,
    driver: String,
    pool: String,
    /// An older server does not say.
    #[serde(default = "configured")]
    configured: bool,
    consumes: bool,
    ready: u64,
    delayed: u64,
    reserved: u64,
    dead: u64,
    per_minute: u64,
    #[serde(default)]
    consumers: u64,
    priority: i64,
    /// Seconds; not of every driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oldest: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn configured() -> bool {
    true
}

const HEADS: [&str; 11] = [
    "PIPELINE",
    "DRIVER",
    "POOL",
    "STATE",
    "READY",
    "OLDEST",
    "DELAYED",
    "RESERVED",
    "DEAD",
    "PER MINUTE",
    "CONSUMERS",
];

pub(super) async fn show(methods: &mut Methods, json: bool) -> Result<Exit, String> {
    let rows: Rows = over_rpc::ask(methods, "jobs.Overview", &serde_json::json!({})).await?;
    if json {
        return say_json(&rows);
    }
    let cells: Vec<_> = rows.pipelines.iter().map(Row::cells).collect();
    say(&columns(HEADS, &cells));
    for row in &rows.pipelines {
        if let Some(error) = &row.error {
            say(&format!("{}: {}\n", line(&row.pipeline), line(error)));
        }
    }
    Ok(Exit::Done)
}

impl Row {
    fn cells(&self) -> [String; 11] {
        let state = match (&self.error, self.consumes) {
            _ if !self.configured => "not configured",
            (Some(_), _) => "not ready",
            (None, true) => "consumes",
            (None, false) => "paused",
        };
        let oldest = self
            .oldest
            .and_then(|it| Duration::try_from_secs_f64(it).ok());
        [
            line(&self.pipeline),
            line(&self.driver),
            line(&self.pool),
            state.to_owned(),
            self.ready.to_string(),
            oldest.map_or_else(|| "-".to_owned(), time),
            self.delayed.to_string(),
            self.reserved.to_string(),
            self.dead.to_string(),
            self.per_minute.to_string(),
            self.consumers.to_string(),
        ]
    }
}
