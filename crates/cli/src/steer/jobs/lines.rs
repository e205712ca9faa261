//! Jobs as lines of JSON, out of a pipeline and into one.

use std::io::{BufRead, stdin};

use pronghorn_rpc::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use super::over_rpc;
use crate::exit::{Exit, mention, say, say_json};
use crate::steer::text::counted;

/// Of one call, and about how many bytes.
const MOST: usize = 500;
const MOST_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
struct Exported {
    jobs: Vec<Value>,
    next: Option<Value>,
}

pub(super) async fn export(client: &mut Client, pipeline: &str) -> Result<Exit, String> {
    let mut after = Value::Null;
    loop {
        let argument = json!({"pipeline": pipeline, "after": after});
        let part: Exported = over_rpc::ask(client, "jobs.Export", &argument).await?;
        for job in part.jobs {
            say(&format!("{job}\n"));
        }
        match part.next {
            Some(next) => after = next,
            None => return Ok(Exit::Done),
        }
    }
}

/// Each call is kept as a whole, or not at all: after a failure, what was counted is there.
pub(super) async fn import(client: &mut Client, as_json: bool) -> Result<Exit, String> {
    let (mut jobs, mut bytes, mut pushed) = (Vec::new(), 0, 0_u64);
    for (number, line) in stdin().lock().lines().enumerate() {
        let line = line.map_err(|error| format!("standard input can't be read: {error}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let job: Value = serde_json::from_str(&line)
            .map_err(|error| format!("line {} is no JSON: {error}", number + 1))?;
        bytes += line.len();
        jobs.push(job);
        if jobs.len() == MOST || bytes >= MOST_BYTES {
            pushed += push(client, &mut jobs, pushed).await?;
            bytes = 0;
        }
    }
    if !jobs.is_empty() {
        pushed += push(client, &mut jobs, pushed).await?;
    }
    if as_json {
        return say_json(&json!({"pushed": pushed}));
    }
    mention(&format!("{} pushed\n", counted(pushed, "job")));
    Ok(Exit::Done)
}

async fn push(client: &mut Client, jobs: &mut Vec<Value>, before: u64) -> Result<u64, String> {
    let argument = json!({"jobs": std::mem::take(jobs)});
    let count = argument["jobs"].as_array().map_or(0, Vec::len) as u64;
    let pushed: Result<Value, String> = over_rpc::ask(client, "jobs.PushBatch", &argument).await;
    match pushed {
        Ok(_) => Ok(count),
        Err(why) => Err(format!(
            "{why}\nhint: the first {before} jobs are pushed; the others are not"
        )),
    }
}
