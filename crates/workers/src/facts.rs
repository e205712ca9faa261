//! Pools and their workers as they are now. Commands, the admin listener, RPC and metrics show the
//! same facts, each in a form of its own. They are read when somebody asks: nothing is counted for
//! them.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_pool::{Counter, SlotState, WorkerInfo};
use pronghorn_process::Usage;

use crate::pools::{PoolHandle, Pools, Standing};

/// One pool with its workers.
#[derive(Clone, Debug)]
pub struct PoolFacts {
    pub name: String,
    /// The service that it is for.
    pub owner: &'static str,
    /// Why it has no workers; None while it has.
    pub down: Option<Arc<str>>,
    /// Calls that wait for a worker.
    pub waiting: usize,
    /// How long the oldest of them has waited.
    pub oldest: Option<Duration>,
    /// Each event that was counted, with its name.
    pub counters: Vec<(&'static str, u64)>,
    pub workers: Vec<WorkerFacts>,
}

/// One worker, and what its process takes.
#[derive(Clone, Debug)]
pub struct WorkerFacts {
    pub info: WorkerInfo,
    /// None where the process has ended meanwhile, or there is none.
    pub usage: Option<Usage>,
}

/// The states of workers that RoadRunner has names for, which are fewer than ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoadRunnerState {
    Inactive,
    Ready,
    Working,
    Stopping,
    Errored,
}

impl PoolHandle {
    /// Answers within a second, however busy the workers are.
    pub async fn facts(&self) -> PoolFacts {
        let down = match &*self.standing().borrow() {
            Standing::Up => None,
            Standing::Down(why) => Some(why.clone()),
        };
        let workers = self.inspect().await;
        let stats = self.stats();
        let counters = Counter::ALL.iter();
        let counters = counters.map(|&counter| (counter.name(), stats.get(counter)));
        PoolFacts {
            name: self.name().to_owned(),
            owner: self.owner(),
            down,
            waiting: stats.waiting(),
            oldest: stats.oldest_wait(),
            counters: counters.filter(|(_, count)| *count > 0).collect(),
            workers: workers.into_iter().map(WorkerFacts::of).collect(),
        }
    }
}

impl Pools {
    /// Those of all pools. Answers within a second for each pool.
    pub async fn facts(&self) -> Vec<PoolFacts> {
        let mut facts = Vec::new();
        for pool in self.all() {
            facts.push(pool.facts().await);
        }
        facts
    }
}

impl PoolFacts {
    /// Workers without those that leave: these finish what they have, beside as many new ones.
    pub fn staying(&self) -> impl Iterator<Item = &WorkerFacts> {
        let is_leaving = |state| matches!(state, SlotState::Draining | SlotState::Stopping);
        let workers = self.workers.iter();
        workers.filter(move |worker| !is_leaving(worker.info.state))
    }

    /// Workers that have a call and stay.
    pub fn busy(&self) -> usize {
        let staying = self.staying();
        staying
            .filter(|worker| worker.info.state == SlotState::Busy)
            .count()
    }
}

/// The newest generation among workers; 0 without any.
pub fn newest_generation<'a>(workers: impl IntoIterator<Item = &'a WorkerFacts>) -> u64 {
    let generations = workers.into_iter().map(|worker| worker.info.generation);
    generations.max().unwrap_or_default()
}

impl WorkerFacts {
    fn of(info: WorkerInfo) -> Self {
        let usage = Usage::of(info.pid);
        Self { info, usage }
    }

    /// Resident bytes; 0 when it is gone.
    pub fn memory(&self) -> u64 {
        self.usage.map_or(0, |usage| usage.memory)
    }

    /// Resident bytes that are there once for all who have them; 0 when it is gone.
    pub fn shared(&self) -> u64 {
        self.usage.map_or(0, |usage| usage.shared)
    }

    /// Processor time since its start; none when it is gone.
    pub fn cpu(&self) -> Duration {
        self.usage.map_or(Duration::ZERO, |usage| usage.cpu)
    }

    /// Its state by our name.
    pub const fn state(&self) -> &'static str {
        match self.info.state {
            SlotState::Empty => "empty",
            SlotState::Booting => "booting",
            SlotState::Ready => "ready",
            SlotState::Busy => "busy",
            SlotState::Draining => "draining",
            SlotState::Stopping => "stopping",
            SlotState::Failed => "failed",
        }
    }

    pub const fn roadrunner_state(&self) -> RoadRunnerState {
        match self.info.state {
            SlotState::Empty | SlotState::Booting => RoadRunnerState::Inactive,
            SlotState::Ready => RoadRunnerState::Ready,
            SlotState::Busy => RoadRunnerState::Working,
            SlotState::Draining | SlotState::Stopping => RoadRunnerState::Stopping,
            SlotState::Failed => RoadRunnerState::Errored,
        }
    }
}

impl RoadRunnerState {
    pub const ALL: [Self; 5] = [
        Self::Inactive,
        Self::Ready,
        Self::Working,
        Self::Stopping,
        Self::Errored,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Ready => "ready",
            Self::Working => "working",
            Self::Stopping => "stopping",
            Self::Errored => "errored",
        }
    }

    /// Its number in `informer.Workers`.
    pub const fn number(self) -> u8 {
        match self {
            Self::Inactive => 0,
            Self::Ready => 1,
            Self::Working => 2,
            Self::Stopping => 4,
            Self::Errored => 8,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::SystemTime;

    use pronghorn_pool::Via;

    use super::*;

    /// A pool with a worker in each of these states, of generations 1, 2, 3, …
    pub(crate) fn pool(name: &str, states: &[SlotState]) -> PoolFacts {
        let worker = |(at, state): (usize, &SlotState)| WorkerFacts {
            info: WorkerInfo {
                pid: 7,
                slot: at,
                generation: at as u64 + 1,
                state: *state,
                via: Via::Ring,
                forked_by: None,
                started: SystemTime::UNIX_EPOCH,
                executions: 0,
                request: None,
                ping: None,
            },
            usage: None,
        };
        PoolFacts {
            name: name.to_owned(),
            owner: "http",
            down: None,
            waiting: 0,
            oldest: None,
            counters: Vec::new(),
            workers: states.iter().enumerate().map(worker).collect(),
        }
    }

    #[test]
    fn workers_that_leave_are_not_counted_among_those_of_a_pool() {
        use SlotState::{Booting, Busy, Draining, Ready, Stopping};
        let facts = pool("a", &[Stopping, Busy, Ready, Busy, Booting, Draining]);
        assert_eq!(facts.staying().count(), 4);
        assert_eq!(facts.busy(), 2);
        assert_eq!(newest_generation(facts.staying()), 5);
        assert_eq!(newest_generation(&facts.workers), 6);
        assert_eq!(newest_generation(&[]), 0);
    }

    #[test]
    fn a_worker_that_is_gone_takes_nothing() {
        let facts = pool("a", &[SlotState::Ready]);
        let worker = &facts.workers[0];
        let takes = (worker.memory(), worker.shared(), worker.cpu());
        assert_eq!(takes, (0, 0, Duration::ZERO));
        let own = WorkerInfo {
            pid: std::process::id(),
            ..worker.info.clone()
        };
        assert!(WorkerFacts::of(own).memory() > 100_000);
    }

    /// RoadRunner's table: 3 and from 5 on are states that our workers are not in.
    #[test]
    fn states_have_the_numbers_of_roadrunner() {
        use SlotState::{Booting, Busy, Draining, Empty, Failed, Ready, Stopping};
        let all = [Empty, Booting, Ready, Busy, Draining, Stopping, Failed];
        let facts = pool("a", &all);
        let shown = facts.workers.iter().map(|worker| {
            let theirs = worker.roadrunner_state();
            (worker.state(), theirs.number(), theirs.name())
        });
        let expected = [
            ("empty", 0, "inactive"),
            ("booting", 0, "inactive"),
            ("ready", 1, "ready"),
            ("busy", 2, "working"),
            ("draining", 4, "stopping"),
            ("stopping", 4, "stopping"),
            ("failed", 8, "errored"),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }
}
