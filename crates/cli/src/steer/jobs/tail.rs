//! `jobs tail`: how attempts end, as they do.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::over_rpc::{self, Methods};
use crate::exit::{Exit, say};
use crate::steer::text::line;

/// How often it is asked.
const ASK_AGAIN: Duration = Duration::from_millis(300);

#[derive(Deserialize)]
struct Endings {
    endings: Vec<Ending>,
    number: u64,
}

#[derive(Serialize, Deserialize)]
struct Ending {
    at: u64,
    pipeline: String,
    id: String,
    job: String,
    attempt: u32,
    outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Until a signal ends it, or the server does.
pub(super) async fn run(
    methods: &mut Methods,
    pipeline: Option<&str>,
    json: bool,
) -> Result<Exit, String> {
    let mut number = 0;
    loop {
        let asked = json!({"number": number, "pipeline": pipeline.unwrap_or_default()});
        let new: Endings = over_rpc::ask(methods, "jobs.Recent", &asked).await?;
        // A server that has started anew counts anew.
        number = new.number;
        let mut text = String::new();
        for ending in &new.endings {
            text += &ending.text(json)?;
        }
        if !text.is_empty() {
            say(&text);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

impl Ending {
    fn text(&self, json: bool) -> Result<String, String> {
        if json {
            let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
            return Ok(text + "\n");
        }
        let (pipeline, job, id) = (line(&self.pipeline), line(&self.job), line(&self.id));
        let (outcome, attempt) = (line(&self.outcome), self.attempt);
        let why = self.why.as_deref().map(|why| format!(": {}", line(why)));
        let why = why.unwrap_or_default();
        let seconds = self.at / 1000 % 86_400;
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let at = format!("{hour:02}:{minute:02}:{second:02}Z");
        Ok(format!(
            "{at}  {pipeline}  {job}  {id}  attempt {attempt}  {outcome}{why}\n"
        ))
    }
}
