//! `schedules.List` and its companions: jobs by the clock, with JSON.

use pronghorn_plugin_api::rpc::{Argument, Failure, Methods, Outcome};
use serde::{Deserialize, Serialize};

use crate::schedules::{Run, Schedules, View};

pub(super) fn add(methods: &Methods, schedules: &Schedules) {
    let methods = methods.service("schedules", schedules.clone());
    methods.add("List", list);
    methods.add("Run", async |schedules: Schedules, one: One| {
        let id = schedules.run_now(&one.name).await;
        id.map(|id| Asked { id })
            .map_err(|error| Failure::new(error.to_string()))
    });
    methods.add("Pause", async |schedules: Schedules, one: One| {
        done(schedules.pause(&one.name, true).await)
    });
    methods.add("Resume", async |schedules: Schedules, one: One| {
        done(schedules.pause(&one.name, false).await)
    });
}

#[derive(Default, Deserialize)]
struct Nothing {}

impl Argument for Nothing {}

#[derive(Default, Deserialize)]
#[serde(default)]
struct One {
    name: String,
}

impl Argument for One {}

/// A run that begins now, unless the one before goes on.
#[derive(Serialize)]
struct Asked {
    id: String,
}

impl Outcome for Asked {}

#[derive(Serialize)]
struct Empty {}

impl Outcome for Empty {}

#[derive(Serialize)]
struct List {
    schedules: Vec<Schedule>,
}

impl Outcome for List {}

/// All times are milliseconds since 1970.
#[derive(Serialize)]
struct Schedule {
    name: String,
    when: String,
    paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    running: usize,
    /// The newest last.
    runs: Vec<Run>,
}

async fn list(schedules: Schedules, _: Nothing) -> Result<List, Failure> {
    let schedule = |view: View| Schedule {
        name: view.name,
        when: view.when,
        paused: view.paused,
        next: view.next,
        running: view.running,
        runs: view.runs,
    };
    Ok(List {
        schedules: schedules.views().into_iter().map(schedule).collect(),
    })
}

fn done<E: std::error::Error>(outcome: Result<(), E>) -> Result<Empty, Failure> {
    match outcome {
        Ok(()) => Ok(Empty {}),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}
