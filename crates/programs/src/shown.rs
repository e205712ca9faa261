//! Programs as commands, the admin listener and RPC show them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pronghorn_base::{millis, since_1970};
use pronghorn_plugin_api::ProcessReport;
use pronghorn_plugin_api::rpc::Outcome;
use pronghorn_process::Usage;
use serde::Serialize;

use crate::instance::Facts;
use crate::program::Program;
use crate::programs::Programs;

#[derive(Debug, Serialize)]
pub(crate) struct AllShown {
    programs: Vec<ProgramShown>,
}

#[derive(Debug, Serialize)]
struct ProgramShown {
    name: String,
    command: String,
    /// Whether it came over RPC, and not from the configuration.
    created: bool,
    order: i32,
    processes: Vec<ProcessShown>,
}

/// Times are milliseconds since 1970.
#[derive(Debug, Serialize)]
struct ProcessShown {
    index: u32,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
    /// Resident bytes, of the process alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<u64>,
    /// Percent of one processor, over its life.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_percent: Option<f64>,
    starts: u64,
    failures: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_since: Option<u64>,
}

impl Outcome for AllShown {}

impl AllShown {
    pub(crate) fn of(programs: &[Arc<Program>]) -> Self {
        Self {
            programs: programs.iter().map(|it| ProgramShown::of(it)).collect(),
        }
    }
}

impl ProgramShown {
    fn of(program: &Program) -> Self {
        let spec = program.spec();
        let processes = program.facts().into_iter();
        Self {
            name: spec.name.clone(),
            command: spec.command().map(ToString::to_string).unwrap_or_default(),
            created: program.was_created,
            order: spec.settings.order,
            processes: processes
                .map(|(index, it)| ProcessShown::of(index, it))
                .collect(),
        }
    }
}

impl ProcessShown {
    fn of(index: u32, facts: Facts) -> Self {
        let usage = facts.pid.and_then(Usage::of);
        let (waits_for, since) = facts.waits.map(|wait| (wait.what, wait.since)).unzip();
        Self {
            index,
            state: facts.state.name(),
            pid: facts.pid,
            started: facts.started.map(millis),
            memory: usage.map(|usage| usage.memory),
            cpu_percent: usage.map(|usage| cpu_percent(usage, facts.started)),
            starts: facts.starts,
            failures: facts.failures,
            last: facts.last,
            status: facts.status,
            next: facts.next.map(millis),
            waits_for,
            waits_since: since.map(millis),
        }
    }
}

/// The same for who shows the processes of all services.
pub(crate) fn reports(programs: &Programs) -> Vec<ProcessReport> {
    let mut reports = Vec::new();
    for program in programs.all() {
        let spec = program.spec();
        let command = spec.command().map(ToString::to_string).unwrap_or_default();
        for (index, facts) in program.facts() {
            let usage = facts.pid.and_then(Usage::of);
            reports.push(ProcessReport {
                group: spec.name.clone(),
                order: spec.settings.order,
                index,
                pid: facts.pid.unwrap_or_default(),
                state: facts.state.name().to_owned(),
                command: command.clone(),
                started: facts.started.unwrap_or_default(),
                starts: facts.starts,
                memory: usage.map_or(0, |usage| usage.memory),
                cpu: usage.map_or(Duration::ZERO, |usage| usage.cpu),
                waits: facts.waits,
            });
        }
    }
    reports
}

/// Percent of one processor, since its start.
pub(crate) fn cpu_percent(usage: Usage, started: Option<Duration>) -> f64 {
    let now = since_1970(SystemTime::now());
    let age = now.saturating_sub(started.unwrap_or(now));
    usage.cpu.as_secs_f64() / age.as_secs_f64().max(0.001) * 100.0
}
