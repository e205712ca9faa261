//! The facts of pools, as commands and the admin listener are told them.

use pronghorn_base::{millis, since_1970};
use pronghorn_control::{Counter, PoolStatus, ProgramWait, UnderWay, Worker, WorkersOf};
use pronghorn_plugin_api::{ProcessReport, Processes};
use pronghorn_workers::{PoolFacts, WorkerFacts, newest_generation};

/// What of a request's line is shown.
const LONGEST_REQUEST: usize = 500;

pub(crate) fn pool_status(facts: &PoolFacts) -> PoolStatus {
    let counters = facts.counters.iter().map(|&(name, count)| Counter {
        name: name.to_owned(),
        count,
    });
    PoolStatus {
        name: facts.name.clone(),
        down: facts.down.as_ref().map(ToString::to_string),
        generation: newest_generation(facts.staying()),
        workers: facts.staying().count() as u64,
        busy: facts.busy() as u64,
        waiting: facts.waiting as u64,
        oldest: facts.oldest.map(millis),
        counters: counters.collect(),
    }
}

pub(crate) fn workers_of(facts: &PoolFacts) -> WorkersOf {
    WorkersOf {
        pool: facts.name.clone(),
        plugin: facts.owner.to_owned(),
        waiting: facts.waiting as u64,
        workers: facts.workers.iter().map(worker).collect(),
    }
}

/// Processes of services that are no workers, as if each group of them was a pool.
pub(crate) fn processes_of(processes: &Processes) -> Vec<WorkersOf> {
    let mut groups: Vec<WorkersOf> = Vec::new();
    for service in processes.services() {
        for report in processes.of(service).unwrap_or_default() {
            let is_of =
                |group: &&mut WorkersOf| group.plugin == service && group.pool == report.group;
            let worker = process(&report);
            match groups.iter_mut().find(is_of) {
                Some(group) => group.workers.push(worker),
                None => groups.push(WorkersOf {
                    pool: report.group,
                    plugin: service.to_owned(),
                    waiting: 0,
                    workers: vec![worker],
                }),
            }
        }
    }
    groups
}

/// The number of processes in each state.
pub(crate) fn program_status(processes: &Processes) -> Vec<Counter> {
    let mut counters: Vec<Counter> = Vec::new();
    for report in reports(processes) {
        match counters.iter_mut().find(|known| known.name == report.state) {
            Some(known) => known.count += 1,
            None => counters.push(Counter {
                name: report.state,
                count: 1,
            }),
        }
    }
    counters.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    counters
}

/// All processes of all services.
fn reports(processes: &Processes) -> impl Iterator<Item = ProcessReport> {
    let services = processes.services().into_iter();
    services.flat_map(|service| processes.of(service).unwrap_or_default())
}

/// Waits of processes that are shown: a line each.
const MOST_WAITS: usize = 10;

/// The processes that are not up yet; those first that run, for which the others wait.
pub(crate) fn program_waits(processes: &Processes) -> Vec<ProgramWait> {
    let waiting = reports(processes).filter(|report| report.waits.is_some());
    let mut reports: Vec<ProcessReport> = waiting.collect();
    reports.sort_by_key(|report| report.pid == 0);
    reports.truncate(MOST_WAITS);
    let wait = |report: ProcessReport| {
        let wait = report.waits?;
        Some(ProgramWait {
            program: report.group,
            index: report.index.into(),
            state: report.state,
            waits_for: wait.what,
            since: millis(wait.since),
        })
    };
    reports.into_iter().filter_map(wait).collect()
}

fn process(report: &ProcessReport) -> Worker {
    Worker {
        pid: report.pid,
        slot: report.index.into(),
        generation: report.starts,
        state: report.state.clone(),
        started: millis(report.started),
        memory: report.memory,
        cpu: millis(report.cpu),
        command: Some(report.command.clone()),
        ..Worker::default()
    }
}

fn worker(facts: &WorkerFacts) -> Worker {
    let info = &facts.info;
    Worker {
        pid: info.pid,
        slot: info.slot as u64,
        generation: info.generation,
        state: facts.state().to_owned(),
        transport: Some(info.via.name().to_owned()),
        forked_by: info.forked_by,
        started: millis(since_1970(info.started)),
        executions: info.executions,
        memory: facts.memory(),
        cpu: millis(facts.cpu()),
        command: None,
        request: info.request.as_ref().map(|request| UnderWay {
            what: request.what.chars().take(LONGEST_REQUEST).collect(),
            age: millis(request.age),
        }),
    }
}
