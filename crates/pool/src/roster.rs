//! Who works in a pool right now, for people: `workers`, `status`, RPC.
//!
//! Written and read by the control side alone. What a worker is at is asked of its relay by a
//! message, so looking never takes the pool's lock and costs calls nothing.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use pronghorn_base::lock;
use pronghorn_process::CpuClock;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::contract::Transport;
pub(crate) use crate::contract::UnderWay;
use crate::core::{SlotId, SlotState};

/// How long an I/O thread is waited for. One that takes longer is stuck, and the table must still
/// appear.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// One worker, as it stands.
#[derive(Debug, Clone)]
pub struct WorkerInfo {
    /// 0 where no process of this server is behind the slot: between two programs, and for servers
    /// at addresses.
    pub pid: u32,
    pub slot: SlotId,
    /// Counts from 1: which start or reload brought it up.
    pub generation: u64,
    pub state: SlotState,
    pub via: Via,
    /// The number of the zygote that it came from; None: it was started by itself.
    pub forked_by: Option<u32>,
    /// When it had announced itself.
    pub started: SystemTime,
    /// Calls that it was given.
    pub executions: u64,
    /// What it is at.
    pub request: Option<Request>,
    /// How long it took to answer the last ping, or has not answered it by now. None before the
    /// first, and for workers that can't be asked.
    pub ping: Option<Duration>,
}

/// How calls reach a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Shared memory.
    Ring,
    /// Goridge frames over pipes or a socket.
    Relay,
    FastCgi,
    /// A process for each call.
    Cgi,
}

impl Via {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Relay => "relay",
            Self::FastCgi => "fastcgi",
            Self::Cgi => "cgi",
        }
    }
}

/// A request that a worker is at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET /path`.
    pub what: String,
    pub age: Duration,
}

/// Whether a worker is at a call. One that does not say so in time is.
pub(crate) async fn is_busy(worker: &dyn Transport) -> bool {
    let (asked, answer) = oneshot::channel();
    worker.ask(asked);
    !matches!(timeout(LONGEST_LOOK, answer).await, Ok(Ok(None)))
}

/// What the supervisor looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) pid: u32,
    pub(crate) executions: u64,
    pub(crate) busy: bool,
}

/// All workers of a pool that are up.
#[derive(Default)]
pub(crate) struct Roster(Mutex<Vec<Entry>>);

/// A worker from its handshake to the end of its process.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) slot: SlotId,
    pub(crate) generation: u64,
    pub(crate) pid: u32,
    pub(crate) forked_by: Option<u32>,
    pub(crate) started: SystemTime,
    pub(crate) via: Via,
    pub(crate) worker: Arc<dyn Transport>,
}

impl Roster {
    pub(crate) fn add(&self, entry: Entry) {
        self.lock().push(entry);
    }

    pub(crate) fn remove(&self, slot: SlotId) {
        self.lock().retain(|entry| entry.slot != slot);
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// What the workers that are up have taken of a processor. Reads a clock of each.
    pub(crate) fn cpu(&self) -> Duration {
        // Connections to one php-fpm share its process.
        let pids: BTreeSet<u32> = self.lock().iter().map(|entry| entry.pid).collect();
        let clocks = pids.into_iter().filter_map(CpuClock::of);
        clocks.filter_map(CpuClock::read).sum()
    }

    pub(crate) fn worker(&self, pid: u32) -> Option<Arc<dyn Transport>> {
        let entries = self.lock();
        let entry = entries.iter().find(|entry| entry.pid == pid)?;
        Some(entry.worker.clone())
    }

    pub(crate) fn ping(&self) {
        for entry in self.lock().iter() {
            entry.worker.ping();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        lock(&self.0)
    }

    /// Who has a call, and how many they had.
    pub(crate) async fn look(&self) -> Vec<Look> {
        let mut looks = Vec::new();
        self.ask(|entry, under_way| {
            looks.push(Look {
                pid: entry.pid,
                executions: entry.worker.executions(),
                // Too busy to say so is busy.
                busy: !matches!(under_way, Some(None)),
            });
        })
        .await;
        looks
    }

    /// Asks all at once. `state` says where a slot stands.
    pub(crate) async fn inspect(&self, state: impl Fn(SlotId) -> SlotState) -> Vec<WorkerInfo> {
        let mut workers = Vec::new();
        self.ask(|entry, under_way| {
            let under_way = under_way.flatten();
            let of_call = under_way.as_ref().and_then(|under_way| under_way.pid);
            let request = under_way.map(|under_way| Request {
                what: under_way.payload.describe(),
                age: under_way.since.elapsed(),
            });
            workers.push(WorkerInfo {
                pid: of_call.unwrap_or(entry.pid),
                slot: entry.slot,
                generation: entry.generation,
                state: state(entry.slot),
                via: entry.via,
                forked_by: entry.forked_by,
                started: entry.started,
                executions: entry.worker.executions(),
                request,
                ping: entry.worker.ping_time(),
            });
        })
        .await;
        workers.sort_by_key(|worker| (worker.generation, worker.slot));
        workers
    }

    /// Asks all at once what they are at; None is no answer: one may end meanwhile, or be too busy.
    async fn ask(&self, mut take: impl FnMut(Entry, Option<Option<UnderWay>>)) {
        let entries = self.lock().clone();
        let asked: Vec<_> = entries
            .into_iter()
            .map(|entry| {
                let (asked, answer) = oneshot::channel();
                entry.worker.ask(asked);
                (entry, answer)
            })
            .collect();
        let deadline = Instant::now() + LONGEST_LOOK;
        for (entry, answer) in asked {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = timeout(left, answer).await.ok().and_then(Result::ok);
            take(entry, answer);
        }
    }
}
