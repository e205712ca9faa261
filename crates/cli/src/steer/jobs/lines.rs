//! Jobs as lines of JSON, out of a pipeline and into one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, stdin};

use serde::Deserialize;
use serde_json::{Value, json};

use super::over_rpc::{self, Methods};
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

pub(super) async fn export(methods: &mut Methods, pipeline: &str) -> Result<Exit, String> {
    let mut after = Value::Null;
    loop {
        let argument = json!({"pipeline": pipeline, "after": after});
        let part: Exported = over_rpc::ask(methods, "jobs.Export", &argument).await?;
        for job in part.jobs {
            say(&format!("{job}\n"));
        }
        match part.next {
            Some(next) => after = next,
            None => return Ok(Exit::Done),
        }
    }
}

/// Each call is kept as a whole, or not at all: after a failure, what was counted is there. A job
/// whose ID its pipeline has already is not pushed again, so a second try does no harm.
pub(super) async fn import(methods: &mut Methods, as_json: bool) -> Result<Exit, String> {
    let mut import = Import::default();
    for (number, line) in stdin().lock().lines().enumerate() {
        let line = line.map_err(|error| format!("standard input can't be read: {error}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let job: Value = serde_json::from_str(&line)
            .map_err(|error| format!("line {} is no JSON: {error}", number + 1))?;
        let text = |value: &Value| {
            value
                .as_str()
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
        };
        let (id, pipeline) = (text(&job["id"]), text(&job["options"]["pipeline"]));
        let (Some(id), Some(pipeline)) = (id, pipeline) else {
            let (number, pushed) = (number + 1, import.pushed);
            return Err(format!(
                "line {number} is no job: it needs an `id` and, in `options`, a `pipeline`\n\
                 hint: {} pushed; the others are not",
                counted(pushed, "job")
            ));
        };
        if import.is_new(methods, pipeline, id).await {
            import.bytes += line.len();
            import.jobs.push(job);
        }
        if import.jobs.len() == MOST || import.bytes >= MOST_BYTES {
            import.push(methods).await?;
        }
    }
    if !import.jobs.is_empty() {
        import.push(methods).await?;
    }
    let (pushed, known) = (import.pushed, import.known);
    if as_json {
        return say_json(&json!({"pushed": pushed, "already_there": known}));
    }
    if known > 0 {
        let jobs = counted(known, "job");
        mention(&format!(
            "{jobs} not pushed: the pipeline has jobs with these IDs already\n"
        ));
    }
    mention(&format!("{} pushed\n", counted(pushed, "job")));
    Ok(Exit::Done)
}

#[derive(Default)]
struct Import {
    jobs: Vec<Value>,
    bytes: usize,
    pushed: u64,
    /// Jobs that were there already.
    known: u64,
    /// Of each pipeline, the IDs that it has.
    ids: HashMap<String, HashSet<String>>,
}

impl Import {
    async fn is_new(&mut self, methods: &mut Methods, pipeline: String, id: String) -> bool {
        let ids = match self.ids.entry(pipeline) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                // A broker that does not show its jobs takes all; the push tells what is wrong.
                let ids = ids_of(methods, entry.key()).await.unwrap_or_default();
                entry.insert(ids)
            }
        };
        let is_new = ids.insert(id);
        self.known += u64::from(!is_new);
        is_new
    }

    async fn push(&mut self, methods: &mut Methods) -> Result<(), String> {
        let jobs = std::mem::take(&mut self.jobs);
        let (count, before) = (jobs.len() as u64, self.pushed);
        let argument = json!({ "jobs": jobs });
        let pushed: Result<Value, String> =
            over_rpc::ask(methods, "jobs.PushBatch", &argument).await;
        pushed.map_err(|why| {
            format!("{why}\nhint: the first {before} jobs are pushed; the others are not")
        })?;
        self.pushed += count;
        self.bytes = 0;
        Ok(())
    }
}

async fn ids_of(methods: &mut Methods, pipeline: &str) -> Result<HashSet<String>, String> {
    let (mut ids, mut after) = (HashSet::new(), Value::Null);
    loop {
        let argument = json!({"pipeline": pipeline, "after": after});
        let part: Exported = over_rpc::ask(methods, "jobs.Export", &argument).await?;
        let known = part.jobs.iter().filter_map(|job| job["id"].as_str());
        ids.extend(known.map(ToOwned::to_owned));
        match part.next {
            Some(next) => after = next,
            None => return Ok(ids),
        }
    }
}
