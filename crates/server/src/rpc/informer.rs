//! `informer`: who works.

use std::time::{Duration, SystemTime};

use pronghorn_base::{micros, since_1970};
use pronghorn_plugin_api::rpc::{Failure, Methods, Outcome};
use pronghorn_plugin_api::{ProcessReport, QueueReport};
use pronghorn_pool::SlotState;
use pronghorn_workers::{RoadRunnerState, WorkerFacts};
use serde::Serialize;

use super::Operated;

/// Of a name that is no service with workers, the list is null.
#[derive(Serialize)]
struct WorkerList {
    workers: Option<Vec<WorkerState>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WorkerState {
    pid: u32,
    status: u8,
    num_execs: u64,
    /// Nanoseconds since the Unix epoch.
    created: u64,
    /// Resident bytes.
    memory_usage: u64,
    #[serde(rename = "CPUPercent")]
    cpu_percent: f64,
    /// Of programs that are no PHP workers.
    command: String,
    status_str: &'static str,
    /// Ours, as [`Via::name`](pronghorn_pool::Via::name). Nothing for a program.
    #[serde(skip_serializing_if = "str::is_empty")]
    transport: &'static str,
    /// Ours. Microseconds, as [`ping`](pronghorn_pool::WorkerInfo::ping).
    #[serde(skip_serializing_if = "Option::is_none")]
    ping: Option<u64>,
}

/// Null for services without jobs, as RoadRunner has it.
#[derive(Serialize)]
struct JobList(Option<Vec<Pipeline>>);

/// Of a pipeline, with RoadRunner's names.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Pipeline {
    pipeline: String,
    driver: String,
    queue: String,
    active: u64,
    delayed: u64,
    reserved: u64,
    ready: bool,
    priority: i64,
    error_message: String,
}

impl Outcome for WorkerList {}

impl Outcome for JobList {}

pub(super) fn add(methods: &Methods, operated: &Operated) {
    let informer = methods.service("informer", operated.clone());
    informer.add("List", async |operated: Operated, _: bool| {
        Ok(operated.with_processes())
    });
    informer.add("Workers", workers);
    informer.add("AddWorker", async |operated: Operated, name: String| {
        resize(operated, name, Size::More).await
    });
    informer.add("RemoveWorker", async |operated: Operated, name: String| {
        resize(operated, name, Size::Fewer).await
    });
    informer.add("Jobs", jobs);
}

async fn jobs(operated: Operated, name: String) -> Result<JobList, Failure> {
    if name != "jobs" {
        return Ok(JobList(None));
    }
    let reports = operated.health.queues().ask().await;
    let pipeline = |report: QueueReport| Pipeline {
        pipeline: report.pipeline,
        driver: report.driver,
        queue: report.queue,
        active: report.active,
        delayed: report.delayed,
        reserved: report.reserved,
        ready: report.ready,
        priority: report.priority,
        error_message: report.error,
    };
    let list = reports.map(|reports| reports.into_iter().map(pipeline).collect());
    Ok(JobList(list))
}

#[derive(Clone, Copy)]
enum Size {
    More,
    Fewer,
}

/// By one worker, of a pool by its name or of HTTP's default pool. RoadRunner's answer is always
/// false.
async fn resize(operated: Operated, name: String, size: Size) -> Result<bool, Failure> {
    let pools = operated.pools(&name).unwrap_or_default();
    let Some(pool) = pools.first() else {
        return Err(Failure::new(format!(
            "plugin {name} does not support workers management"
        )));
    };
    let resized = match size {
        Size::More => pool.add(1).await,
        Size::Fewer => pool.remove(1).await,
    };
    match resized {
        Ok(_) => Ok(false),
        Err(why) => Err(Failure::new(why.to_string())),
    }
}

async fn workers(operated: Operated, name: String) -> Result<WorkerList, Failure> {
    let Some(pools) = operated.pools(&name) else {
        let reports = operated.health.processes().of(&name);
        let workers = reports.map(|reports| {
            let running = reports.iter().filter(|report| report.pid > 0);
            running.map(WorkerState::of_process).collect()
        });
        return Ok(WorkerList { workers });
    };
    let mut workers = Vec::new();
    for pool in pools {
        let now = SystemTime::now();
        let facts = pool.facts().await;
        // One that was asked to end is none that PHP could count on.
        let staying = facts.workers.iter();
        let staying = staying.filter(|worker| worker.info.state != SlotState::Stopping);
        workers.extend(staying.map(|worker| WorkerState::of(worker, now)));
    }
    Ok(WorkerList {
        workers: Some(workers),
    })
}

impl WorkerState {
    /// RoadRunner has one state for all of them.
    fn of_process(report: &ProcessReport) -> Self {
        let age = since_1970(SystemTime::now()).saturating_sub(report.started);
        Self {
            pid: report.pid,
            status: RoadRunnerState::Ready.number(),
            num_execs: 0,
            created: u64::try_from(report.started.as_nanos()).unwrap_or(u64::MAX),
            memory_usage: report.memory,
            cpu_percent: percent(report.cpu, age),
            command: report.command.clone(),
            status_str: RoadRunnerState::Ready.name(),
            transport: "",
            ping: None,
        }
    }

    fn of(worker: &WorkerFacts, now: SystemTime) -> Self {
        let info = &worker.info;
        let created = since_1970(info.started).as_nanos();
        let age = now.duration_since(info.started).unwrap_or_default();
        let state = worker.roadrunner_state();
        Self {
            pid: info.pid,
            status: state.number(),
            num_execs: info.executions,
            created: u64::try_from(created).unwrap_or(u64::MAX),
            memory_usage: worker.memory(),
            cpu_percent: percent(worker.cpu(), age),
            command: String::new(),
            status_str: state.name(),
            transport: info.via.name(),
            ping: info.ping.map(micros),
        }
    }
}

/// Of one processor, over the worker's life. A worker's boot is not part of its age, hence the
/// limit.
fn percent(cpu: Duration, age: Duration) -> f64 {
    let share = cpu.as_secs_f64() / age.as_secs_f64().max(0.001);
    (share * 100.0).min(100.0)
}
