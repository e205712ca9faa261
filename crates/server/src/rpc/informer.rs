//! `informer`: who works.

use std::time::{Duration, SystemTime};

use pronghorn_base::{micros, since_1970};
use pronghorn_plugin_api::QueueReport;
use pronghorn_plugin_api::rpc::{Failure, Methods, Outcome};
use pronghorn_pool::{SlotState, WorkerInfo};
use pronghorn_process::Usage;
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
    command: &'static str,
    status_str: &'static str,
    /// Ours, as [`Via::name`](pronghorn_pool::Via::name).
    transport: &'static str,
    /// Ours. Microseconds, as [`WorkerInfo::ping`].
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
        Ok(operated.names())
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
        return Ok(WorkerList { workers: None });
    };
    let mut workers = Vec::new();
    for pool in pools {
        let now = SystemTime::now();
        let inspected = pool.inspect().await;
        // One that was asked to end is none that PHP could count on.
        let staying = inspected
            .iter()
            .filter(|worker| worker.state != SlotState::Stopping);
        workers.extend(staying.map(|worker| WorkerState::of(worker, now)));
    }
    Ok(WorkerList {
        workers: Some(workers),
    })
}

impl WorkerState {
    fn of(worker: &WorkerInfo, now: SystemTime) -> Self {
        let created = since_1970(worker.started).as_nanos();
        let usage = Usage::of(worker.pid); // it may have ended meanwhile
        let age = now.duration_since(worker.started).unwrap_or_default();
        let (status, status_str) = state(worker.state);
        Self {
            pid: worker.pid,
            status,
            num_execs: worker.executions,
            created: u64::try_from(created).unwrap_or(u64::MAX),
            memory_usage: usage.map_or(0, |usage| usage.memory),
            cpu_percent: usage.map_or(0.0, |usage| percent(usage.cpu, age)),
            command: "",
            status_str,
            transport: worker.via.name(),
            ping: worker.ping.map(micros),
        }
    }
}

/// Of one processor, over the worker's life. A worker's boot is not part of its age, hence the
/// limit.
fn percent(cpu: Duration, age: Duration) -> f64 {
    let share = cpu.as_secs_f64() / age.as_secs_f64().max(0.001);
    (share * 100.0).min(100.0)
}

/// RoadRunner's number and name.
fn state(state: SlotState) -> (u8, &'static str) {
    match state {
        SlotState::Empty | SlotState::Booting => (0, "inactive"),
        SlotState::Ready => (1, "ready"),
        SlotState::Busy => (2, "working"),
        SlotState::Draining | SlotState::Stopping => (4, "stopping"),
        SlotState::Failed => (8, "errored"),
    }
}
