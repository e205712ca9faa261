//! What the methods of services give, and those of RoadRunner: by the control socket of a server of
//! ours, else by RPC.

use std::time::{Duration, SystemTime};

use pronghorn_control::{Ask, Client, Tell};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::table::{Row, View};

/// Lists are there at once.
const LOOKING: Duration = Duration::from_secs(10);
/// A reset boots all workers anew; the server has limits of its own for each step of it.
const RESETTING: Duration = Duration::from_secs(600);

/// The methods of a server that was found.
pub(super) enum Methods {
    Control(Client),
    Rpc(pronghorn_rpc::Client),
}

#[derive(Deserialize)]
struct Listed {
    /// `null` for a plugin that is not there.
    workers: Option<Vec<Process>>,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Process {
    pid: u32,
    num_execs: u64,
    /// Nanoseconds since 1970.
    created: u64,
    memory_usage: u64,
    #[serde(rename = "CPUPercent")]
    cpu_percent: f64,
    status_str: String,
    /// Empty for PHP workers.
    #[serde(default)]
    command: String,
    /// RoadRunner does not say.
    transport: Option<String>,
}

pub(super) async fn version(client: &mut Methods) -> Result<String, String> {
    call(client, "rpc.Version", Value::Bool(true), LOOKING).await
}

/// The plugins of these names that `list` knows; all for none.
async fn plugins(client: &mut Methods, list: &str, of: &[String]) -> Result<Vec<String>, String> {
    let known: Vec<String> = call(client, list, Value::Bool(true), LOOKING).await?;
    match of.iter().find(|name| !known.contains(name)) {
        Some(unknown) => Err(format!(
            "there is no plugin `{unknown}`\nhint: there are `{}`",
            known.join("`, `")
        )),
        None if of.is_empty() => Ok(known),
        None => Ok(of.to_vec()),
    }
}

pub(super) async fn workers(client: &mut Methods, of: &[String]) -> Result<Vec<View>, String> {
    let mut views = Vec::new();
    for plugin in plugins(client, "informer.List", of).await? {
        let argument = plugin.as_str().into();
        let listed: Listed = call(client, "informer.Workers", argument, LOOKING).await?;
        views.push(View {
            pool: plugin.clone(),
            plugin,
            waiting: None,
            takes_calls: true,
            rows: listed
                .workers
                .unwrap_or_default()
                .into_iter()
                .map(row)
                .collect(),
        });
    }
    Ok(views)
}

fn row(process: Process) -> Row {
    let created = SystemTime::UNIX_EPOCH + Duration::from_nanos(process.created);
    Row {
        pid: process.pid,
        state: process.status_str,
        transport: process.transport,
        forked_by: None,
        generation: None,
        executions: process.num_execs,
        memory: process.memory_usage,
        cpu: None,
        load: process.cpu_percent,
        age: created.elapsed().unwrap_or_default(),
        command: Some(process.command).filter(|command| !command.is_empty()),
        request: None,
    }
}

pub(super) async fn resettable(client: &mut Methods, of: &[String]) -> Result<Vec<String>, String> {
    plugins(client, "resetter.List", of).await
}

pub(super) async fn reset(client: &mut Methods, plugin: &str) -> Result<(), String> {
    let _done: bool = call(client, "resetter.Reset", plugin.into(), RESETTING).await?;
    Ok(())
}

pub(super) async fn resize(client: &mut Methods, plugin: &str, by: i32) -> Result<(), String> {
    plugins(client, "informer.List", &[plugin.to_owned()]).await?;
    let method = if by < 0 {
        "informer.RemoveWorker"
    } else {
        "informer.AddWorker"
    };
    for _ in 0..by.unsigned_abs() {
        // RoadRunner's result is false, whatever came of it.
        let _done: bool = call(client, method, plugin.into(), RESETTING).await?;
    }
    Ok(())
}

/// The plugin that has pipelines.
pub(super) const JOBS: &str = "jobs";

/// What a pipeline is like, by RoadRunner's names.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Pipeline {
    pub(super) pipeline: String,
    pub(super) driver: String,
    pub(super) queue: String,
    pub(super) active: i64,
    pub(super) delayed: i64,
    pub(super) reserved: i64,
    pub(super) ready: bool,
}

pub(super) async fn jobs(client: &mut Methods) -> Result<Vec<Pipeline>, String> {
    let told: Option<Vec<Pipeline>> = call(client, "informer.Jobs", JOBS.into(), LOOKING).await?;
    Ok(told.unwrap_or_default())
}

/// Those that the server names in its answer, if it names any.
pub(super) async fn pipelines(
    client: &mut Methods,
    method: &str,
    of: &[String],
) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Pipelines {
        pipelines: Vec<String>,
    }
    let argument = serde_json::json!({ "pipelines": of });
    let told: Pipelines = call(client, method, argument, LOOKING).await?;
    Ok(told.pipelines)
}

/// A method of ours.
pub(super) async fn ask<T: DeserializeOwned>(
    client: &mut Methods,
    method: &str,
    argument: &Value,
) -> Result<T, String> {
    call(client, method, argument.clone(), LOOKING).await
}

/// A method of ours that starts or stops processes.
pub(super) async fn act<T: DeserializeOwned>(
    client: &mut Methods,
    method: &str,
    argument: &Value,
) -> Result<T, String> {
    call(client, method, argument.clone(), RESETTING).await
}

async fn call<T: DeserializeOwned>(
    methods: &mut Methods,
    method: &str,
    argument: Value,
    within: Duration,
) -> Result<T, String> {
    let odd = |error: &dyn std::fmt::Display| format!("{method} answered oddly: {error}");
    match methods {
        Methods::Control(client) => {
            let method = method.to_owned();
            match client.ask_once(Ask::Call { method, argument }).await {
                Ok(Tell::Result(result)) => {
                    serde_json::from_value(result).map_err(|error| odd(&error))
                }
                Ok(other) => Err(odd(&format!("{other:?}"))),
                Err(error) => Err(error.to_string()),
            }
        }
        Methods::Rpc(client) => {
            let result = client.call(method, &argument.to_string(), within).await;
            let result = result.map_err(|error| error.to_string())?;
            serde_json::from_slice(&result).map_err(|error| odd(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roadrunners_answer_is_understood() {
        let answer = r#"{"workers":[{"pid":7,"status":2,"numExecs":41,"created":1000000000,"memoryUsage":5,
            "CPUPercent":1.5,"command":"","statusStr":"ready"}]}"#;
        let listed: Listed = serde_json::from_str(answer).unwrap();
        let row = row(listed.workers.unwrap().remove(0));
        assert_eq!((row.pid, row.executions, row.memory), (7, 41, 5));
        assert_eq!((row.load, row.state.as_str()), (1.5, "ready"));
        let none: Listed = serde_json::from_str(r#"{"workers":null}"#).unwrap();
        assert!(none.workers.is_none());
    }
}
