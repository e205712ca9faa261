//! Pools and their workers, as commands and the admin listener show them.

use pronghorn_base::{millis, since_1970};
use pronghorn_control::{Counter, PoolStatus, UnderWay, Worker, WorkersOf};
use pronghorn_pool::{self as pool, SlotState, WorkerInfo};
use pronghorn_process::Usage;
use pronghorn_workers::{PoolHandle, Standing};

/// What of a request's line is shown.
const LONGEST_REQUEST: usize = 500;

pub(crate) async fn pool_status(workers: &PoolHandle) -> PoolStatus {
    let down = match &*workers.standing().borrow() {
        Standing::Up => None,
        Standing::Down(why) => Some(why.to_string()),
    };
    let stats = workers.stats();
    let counters = pool::Counter::ALL.iter().map(|&counter| Counter {
        name: counter.name().to_owned(),
        count: stats.get(counter),
    });
    let mut infos = workers.inspect().await;
    // Those that leave finish what they have, beside as many new ones.
    infos.retain(|worker| !matches!(worker.state, SlotState::Draining | SlotState::Stopping));
    let busy = infos
        .iter()
        .filter(|worker| worker.state == SlotState::Busy);
    PoolStatus {
        name: workers.name().to_owned(),
        down,
        generation: newest(&infos),
        workers: infos.len() as u64,
        busy: busy.count() as u64,
        waiting: stats.waiting() as u64,
        oldest: stats.oldest_wait().map(millis),
        counters: counters.filter(|counter| counter.count > 0).collect(),
    }
}

pub(crate) async fn look_at(workers: &PoolHandle) -> WorkersOf {
    let infos = workers.inspect().await;
    WorkersOf {
        pool: workers.name().to_owned(),
        plugin: workers.owner().to_owned(),
        waiting: workers.stats().waiting() as u64,
        workers: infos.into_iter().map(shown).collect(),
    }
}

fn shown(info: WorkerInfo) -> Worker {
    let usage = Usage::of(info.pid);
    Worker {
        pid: info.pid,
        slot: info.slot as u64,
        generation: info.generation,
        state: state_name(info.state).to_owned(),
        transport: Some(info.via.name().to_owned()),
        forked_by: info.forked_by,
        started: millis(since_1970(info.started)),
        executions: info.executions,
        memory: usage.map_or(0, |usage| usage.memory),
        cpu: usage.map_or(0, |usage| millis(usage.cpu)),
        request: info.request.map(|request| UnderWay {
            what: request.what.chars().take(LONGEST_REQUEST).collect(),
            age: millis(request.age),
        }),
    }
}

fn state_name(state: SlotState) -> &'static str {
    match state {
        SlotState::Empty => "empty",
        SlotState::Booting => "booting",
        SlotState::Ready => "ready",
        SlotState::Busy => "busy",
        SlotState::Draining => "draining",
        SlotState::Stopping => "stopping",
        SlotState::Failed => "failed",
    }
}

/// The newest generation among them.
pub(crate) fn newest(infos: &[WorkerInfo]) -> u64 {
    infos
        .iter()
        .map(|worker| worker.generation)
        .max()
        .unwrap_or_default()
}
