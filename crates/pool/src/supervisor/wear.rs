//! The soft limits of a worker: what is looked at between calls, and when it is enough.

use std::time::Duration;

use tokio::time::Instant;

use crate::stats::Counter;

/// The most that chance adds to a limit, so that workers which started together are not replaced
/// together. Its size is RoadRunner's.
const JITTER: f64 = 0.14;

/// When a worker is replaced, beside `max_jobs`. Its successor is up before it is drained, and no
/// call is cut short.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How often they are looked at.
    pub watch_tick: Duration,
    /// Since its handshake.
    pub ttl: Option<Duration>,
    /// Since its last call; a worker that had none is not concerned.
    pub idle_ttl: Option<Duration>,
    /// Bytes that it shares with no other process.
    pub max_memory: Option<u64>,
}

impl Limits {
    pub(crate) const fn any(&self) -> bool {
        self.ttl.is_some() || self.idle_ttl.is_some() || self.max_memory.is_some()
    }
}

/// Why a worker is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wear {
    Calls,
    Age(Duration),
    Idling(Duration),
    Memory(u64),
}

impl Wear {
    pub(super) const fn counter(self) -> Counter {
        match self {
            Self::Calls => Counter::WornByCalls,
            Self::Age(_) => Counter::WornByAge,
            Self::Idling(_) => Counter::WornByIdling,
            Self::Memory(_) => Counter::WornByMemory,
        }
    }
}

impl std::fmt::Display for Wear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Calls => f.write_str("it had its `max_jobs` calls"),
            Self::Age(age) => write!(f, "it is {} s old (`ttl`)", age.as_secs()),
            Self::Idling(time) => write!(f, "it was idle for {} s (`idle_ttl`)", time.as_secs()),
            Self::Memory(bytes) => write!(f, "it holds {} MB (`max_worker_memory`)", bytes >> 20),
        }
    }
}

/// One process of a worker, as the pool supervisor has seen it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) pid: u32,
    since: Instant,
    /// How much longer than others it may do everything.
    longer: f64,
    executions: u64,
    /// Since when it was seen to do nothing.
    idle_since: Option<Instant>,
}

impl Life {
    pub(super) fn new(pid: u32, now: Instant) -> Self {
        Self {
            pid,
            since: now,
            longer: fastrand::f64().mul_add(JITTER, 1.0),
            executions: 0,
            idle_since: Some(now),
        }
    }

    /// Notes what it is at.
    pub(super) fn saw(&mut self, executions: u64, busy: bool, now: Instant) {
        if busy {
            self.idle_since = None;
        } else if self.executions != executions || self.idle_since.is_none() {
            self.idle_since = Some(now);
        }
        self.executions = executions;
    }

    /// For how long it was idle, at least.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        self.idle_since
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// What it has too much of. `memory` is asked only when it matters.
    pub(super) fn worn(
        &self,
        limits: &Limits,
        now: Instant,
        memory: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<Wear> {
        let over = |time: Duration, limit: Option<Duration>| {
            limit.is_some_and(|limit| time >= limit.mul_f64(self.longer))
        };
        let (age, idle) = (now.saturating_duration_since(self.since), self.idle(now));
        if over(age, limits.ttl) {
            return Some(Wear::Age(age));
        }
        if let Some(limit) = limits.max_memory {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a limit with a random part needs no exact byte"
            )]
            let limit = (limit as f64 * self.longer) as u64;
            if let Some(held) = memory(limit).filter(|held| *held >= limit) {
                return Some(Wear::Memory(held));
            }
        }
        (self.executions > 0 && over(idle, limits.idle_ttl)).then_some(Wear::Idling(idle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn limits() -> Limits {
        Limits {
            watch_tick: seconds(5),
            ttl: Some(seconds(100)),
            idle_ttl: Some(seconds(10)),
            max_memory: Some(100 * MB),
        }
    }

    #[test]
    fn each_limit_has_its_reason_and_its_jitter() {
        let start = Instant::now();
        let mut earliest = seconds(1000);
        let mut latest = Duration::ZERO;
        for _ in 0..500 {
            let life = Life::new(1, start);
            let lasts = (0..1000)
                .map(|at| seconds(100) + Duration::from_millis(at * 20))
                .find(|at| life.worn(&limits(), start + *at, |_| None).is_some())
                .unwrap();
            (earliest, latest) = (earliest.min(lasts), latest.max(lasts));
        }
        assert!(earliest < seconds(102), "{earliest:?}");
        assert!(
            latest > seconds(112) && latest <= seconds(115),
            "{latest:?}"
        );
        let life = Life::new(1, start);
        let now = start + seconds(50);
        assert_eq!(life.worn(&limits(), now, |_| Some(99 * MB)), None);
        let much = Some(115 * MB);
        assert_eq!(life.worn(&limits(), now, |_| much), much.map(Wear::Memory));
    }

    #[test]
    fn only_a_worker_that_had_calls_is_idle_for_too_long() {
        let start = Instant::now();
        let mut life = Life::new(1, start);
        let worn = |life: &Life, at| life.worn(&limits(), start + seconds(at), |_| None);
        assert_eq!(worn(&life, 50), None, "it had none");
        life.saw(1, true, start + seconds(50));
        assert_eq!(worn(&life, 70), None, "it is busy");
        life.saw(1, false, start + seconds(70));
        assert_eq!(worn(&life, 79), None);
        life.saw(2, false, start + seconds(75));
        assert_eq!(worn(&life, 84), None, "it had one in between");
        assert_eq!(worn(&life, 87), Some(Wear::Idling(seconds(12))));
    }
}
