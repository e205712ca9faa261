//! Locks in Redis, which several servers share. All of a lock is decided there, by one script, and
//! by the clock of Redis; a server has nothing of it but who waits here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use pronghorn_base::{PeerChange, PeerHealth, watch_peer};
use pronghorn_redis::{Cmd, FromRedisValue, Redis, RedisFailure, RedisSettings, cmd};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::table::{Full, Mode, WAITING};
use crate::wanted::{LockError, Wanted};

const SCRIPT: &str = include_str!("lock.lua");
const PREFIX: &str = "pronghorn:lock:";

/// How often whoever waits looks again; who is the third in line, a third as often.
const LOOK: Duration = Duration::from_millis(5);
const LONGEST_LOOK: Duration = Duration::from_millis(50);
/// Who has not looked for so long is not there any more: its server was killed, say. A place that
/// was lost only because Redis was slow is the last one of the line then.
const STAYS: Duration = Duration::from_secs(2);
/// Holders and waiters of one resource: each step looks at all.
const MOST: usize = 1000;

/// A reply of Redis is short: the script answers with numbers, a cluster with the map of its nodes.
const LONGEST_REPLY: usize = 1 << 20;

/// How often it is tried to leave a line. After that the place ends by itself, and a lock that was
/// granted to one who is gone by its time.
const LEAVE_TRIES: u32 = 5;
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(500);

/// Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct RedisLocks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    redis: Redis,
    /// Who goes without an answer; a task of `new` has the other end.
    gone: mpsc::Sender<Gone>,
    waiting: tokio::sync::Semaphore,
    stopped: AtomicBool,
    stop: Notify,
    health: PeerHealth,
}

#[derive(Debug)]
struct Gone {
    resource: String,
    ticket: String,
}

impl RedisLocks {
    /// With the tasks that it needs; it connects to nobody yet.
    pub(crate) fn new(settings: RedisSettings) -> (Self, JoinSet<()>) {
        let (gone, left) = mpsc::channel(WAITING);
        let locks = Self(Arc::new(Shared {
            redis: Redis::new(settings, LONGEST_REPLY),
            gone,
            waiting: tokio::sync::Semaphore::new(WAITING),
            stopped: AtomicBool::new(false),
            stop: Notify::new(),
            health: PeerHealth::supposed(),
        }));
        let mut tasks = JoinSet::new();
        tasks.spawn(locks.clone().leave_for(left));
        tasks.spawn(locks.clone().watch());
        (locks, tasks)
    }

    /// Whoever drops the future leaves the line, and gives back what it was never told of.
    pub(crate) async fn acquire(&self, wanted: Wanted<'_>) -> Result<bool, LockError> {
        let Ok(_permit) = self.0.waiting.try_acquire() else {
            return Err(Full::Waiting(WAITING).into());
        };
        let until = Instant::now() + wanted.wait;
        let mut ticket = Ticket {
            locks: self,
            resource: wanted.resource,
            name: format!("{:032x}", fastrand::u128(..)),
            is_settled: false,
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_last = left < LOOK || self.0.stopped.load(Relaxed);
            let stays = if is_last { Duration::ZERO } else { STAYS };
            let outcome = self.look(&wanted, &ticket.name, stays).await?;
            let place = match outcome {
                (1, _) => {
                    ticket.is_settled = true;
                    return Ok(true);
                }
                (2, _) => {
                    ticket.is_settled = true;
                    return Err(Full::Resource(MOST).into());
                }
                _ if is_last => {
                    ticket.is_settled = true;
                    return Ok(false);
                }
                (_, place) => place,
            };
            let pause = LONGEST_LOOK.min(LOOK * place.max(1)).min(left);
            let stopped = self.0.stop.notified();
            if !self.0.stopped.load(Relaxed) {
                // Told that nobody waits any more, or not: it looks again.
                _ = timeout(pause, stopped).await;
            }
        }
    }

    /// What came of it, and the place in line.
    async fn look(
        &self,
        wanted: &Wanted<'_>,
        ticket: &str,
        stays: Duration,
    ) -> Result<(u32, u32), RedisFailure> {
        let mode = match wanted.mode {
            Mode::Read => "r",
            Mode::Write => "w",
        };
        let mut command = step("acquire", wanted.resource);
        command.arg(wanted.id).arg(mode);
        command.arg(microseconds(wanted.ttl)).arg(ticket);
        command.arg(microseconds(stays)).arg(MOST);
        self.ask(&command).await
    }

    pub(crate) async fn release(&self, resource: &str, id: &str) -> Result<bool, RedisFailure> {
        self.ask(step("release", resource).arg(id)).await
    }

    pub(crate) async fn release_all(&self, resource: &str) -> Result<bool, RedisFailure> {
        self.ask(&step("release_all", resource)).await
    }

    pub(crate) async fn is_held(
        &self,
        resource: &str,
        id: Option<&str>,
    ) -> Result<bool, RedisFailure> {
        let token: u64 = self
            .ask(step("token", resource).arg(id.unwrap_or("")))
            .await?;
        Ok(token != 0)
    }

    pub(crate) async fn prolong(
        &self,
        resource: &str,
        id: &str,
        ttl: Duration,
    ) -> Result<bool, RedisFailure> {
        let mut command = step("prolong", resource);
        self.ask(command.arg(id).arg(microseconds(ttl))).await
    }

    pub(crate) async fn token(
        &self,
        resource: &str,
        id: &str,
    ) -> Result<Option<u64>, RedisFailure> {
        let token: u64 = self.ask(step("token", resource).arg(id)).await?;
        Ok((token != 0).then_some(token))
    }

    pub(crate) fn stop(&self) {
        self.0.stopped.store(true, Relaxed);
        self.0.stop.notify_waiters();
    }

    /// Whether it would answer now, as far as is known.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.0.health.check()
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisFailure> {
        self.note(self.0.redis.ask(command).await)
    }

    fn note<T>(&self, answer: Result<T, RedisFailure>) -> Result<T, RedisFailure> {
        // What it refuses says nothing of the next command: it does answer.
        _ = self.0.health.set(match &answer {
            Err(RedisFailure::Refused { .. }) | Ok(_) => Ok(()),
            Err(failure) => Err(failure.to_string()),
        }); // the watch tells the log
        answer
    }

    /// Leaves lines for those who went without an answer. Without end.
    async fn leave_for(self, mut left: mpsc::Receiver<Gone>) {
        while let Some(Gone { resource, ticket }) = left.recv().await {
            for _ in 0..LEAVE_TRIES {
                let left: Result<u32, _> = self.ask(step("leave", &resource).arg(&ticket)).await;
                if !matches!(left, Err(RedisFailure::Away { .. })) {
                    break;
                }
                sleep(UNTIL_NEXT_TRY).await;
            }
        }
    }

    /// Asks from time to time, so that readiness knows it without a call.
    async fn watch(self) {
        let ask = || async {
            let answer = self.note(self.0.redis.ping().await);
            answer.map_err(|wrong| wrong.to_string())
        };
        let tell = |change, wrong: &str| match change {
            PeerChange::Lost => warn!(target: "lock", "locks are away: {wrong}"),
            PeerChange::Found | PeerChange::Back => info!(target: "lock", "locks are back"),
        };
        watch_peer(ask, tell).await;
    }
}

/// Of one who waits; given back where it goes without an answer.
struct Ticket<'a> {
    locks: &'a RedisLocks,
    resource: &'a str,
    name: String,
    is_settled: bool,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            let gone = Gone {
                resource: self.resource.to_owned(),
                ticket: std::mem::take(&mut self.name),
            };
            // Where so many go at once, the rest ends by itself.
            _ = self.locks.0.gone.try_send(gone);
        }
    }
}

/// A call of the script; what the step needs follows.
fn step(name: &str, resource: &str) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(SCRIPT).arg(1);
    command.arg(format!("{PREFIX}{resource}")).arg(name);
    command
}

/// Redis takes no time of 0; a year is the longest here.
fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
