//! The members of a pool: each has a slot and a slot supervisor, and this side's view of how far
//! its worker is.
//!
//! Knows no reason for which a member comes or goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::super::launcher::{Launcher, Pace};
use super::super::replacements::Replacements;
use super::super::slot_supervisor::{MemberId, News, Phase, SlotSupervisor};
use super::super::wear::{Life, Wear};
use crate::core::SlotId;
use crate::pool::Pool;

/// News that the pool supervisor has not read yet; slot supervisors wait meanwhile.
const NEWS: usize = 64;
/// How long killed workers are waited for. The kernel ends them at once, unless one hangs in it or
/// has gigabytes of memory to give back. Nothing of a server outlives it, and service managers wait
/// for 10 s beyond its grace period.
const AFTER_KILL: Duration = Duration::from_secs(8);

pub(super) struct Members {
    by_id: BTreeMap<MemberId, Member>,
    next_id: MemberId,
    slot_supervisors: JoinSet<()>,
    news: mpsc::Receiver<(MemberId, News)>,
    news_sender: mpsc::Sender<(MemberId, News)>,
    boots: Arc<Semaphore>,
    replacements: Arc<Replacements>,
}

/// One place in the pool supervisor, with its slot supervisor.
pub(super) struct Member {
    pub(super) slot: SlotId,
    pub(super) generation: u64,
    phase: watch::Sender<Phase>,
    slot_supervisor: AbortHandle,
    pub(super) stage: Stage,
    /// Whose place it takes.
    pub(super) instead_of: Option<MemberId>,
    /// Its worker should be replaced.
    pub(super) worn: Option<Wear>,
    /// When it has to be gone.
    leave_by: Option<Instant>,
}

/// How far a member's worker is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    Booting,
    /// It has announced itself.
    Up,
    /// It takes calls.
    In(Life),
    /// It gets no more.
    Drained,
    /// Its process has ended, or did not come up; the slot supervisor tries again.
    Down,
}

/// A new member, before it has a slot.
pub(super) struct Newcomer {
    pub(super) generation: u64,
    pub(super) pace: Pace,
    pub(super) phase: Phase,
    pub(super) instead_of: Option<MemberId>,
}

/// An event in the life of a member.
pub(super) enum Event {
    News(MemberId, News),
    /// Its slot supervisor has ended.
    Gone(Option<Departed>),
}

/// A member that is none any more.
pub(super) struct Departed {
    pub(super) slot: SlotId,
    /// Its slot supervisor has panicked, or was given up: its slot may still be in use.
    pub(super) is_broken: bool,
}

/// Members whose time was over.
#[derive(Default)]
pub(super) struct Overdue {
    pub(super) killed: usize,
    /// A kill did not end them, so they were given up.
    pub(super) stuck: usize,
}

impl Member {
    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.phase() >= Phase::Stopped
    }

    pub(super) const fn is_in(&self) -> bool {
        matches!(self.stage, Stage::In(_))
    }

    /// The process that takes its calls.
    pub(super) const fn pid(&self) -> Option<u32> {
        match self.stage {
            Stage::In(life) => Some(life.pid),
            Stage::Booting | Stage::Up | Stage::Drained | Stage::Down => None,
        }
    }

    /// One that was held may take calls.
    pub(super) fn let_in(&self) {
        self.phase.send_replace(Phase::Kept);
    }

    pub(super) fn retire(&mut self, by: Option<Instant>) {
        if !self.is_leaving() {
            self.phase.send_replace(Phase::Stopped);
        }
        self.leave_by = match (self.leave_by, by) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    pub(super) fn kill(&mut self, now: Instant) {
        self.phase.send_replace(Phase::Killed);
        self.leave_by = Some(now + AFTER_KILL);
    }
}

impl Members {
    /// At most so many boot at once.
    pub(super) fn new(at_once: usize) -> Self {
        let (news_sender, news) = mpsc::channel(NEWS);
        Self {
            by_id: BTreeMap::new(),
            next_id: 0,
            slot_supervisors: JoinSet::new(),
            news,
            news_sender,
            boots: Arc::new(Semaphore::new(at_once.max(1))),
            replacements: Arc::new(Replacements::new(Instant::now())),
        }
    }

    /// The next thing that happens. Cancel safe. What a slot supervisor said last comes before its
    /// end.
    pub(super) async fn next(&mut self) -> Event {
        tokio::select! {
            biased;
            Some((id, news)) = self.news.recv() => Event::News(id, news),
            Some(ended) = self.slot_supervisors.join_next_with_id() => {
                let (slot_supervisor, is_broken) = match ended {
                    Ok((slot_supervisor, ())) => (slot_supervisor, false),
                    Err(error) => (error.id(), true),
                };
                let mut all = self.by_id.iter();
                let found = all.find(|(_, member)| member.slot_supervisor.id() == slot_supervisor);
                let member = found.map(|(id, _)| *id).and_then(|id| self.by_id.remove(&id));
                Event::Gone(member.map(|member| Departed { slot: member.slot, is_broken }))
            }
        }
    }

    /// A new member, in a slot of its own.
    pub(super) async fn admit(
        &mut self,
        pool: &Pool,
        launcher: &Arc<dyn Launcher>,
        newcomer: Newcomer,
    ) -> MemberId {
        let Newcomer {
            generation,
            pace,
            phase,
            instead_of,
        } = newcomer;
        let id = self.next_id;
        self.next_id += 1;
        let slot = pool.add_slot().await;
        let (phase, phases) = watch::channel(phase);
        let slot_supervisor = SlotSupervisor {
            id,
            slot,
            generation,
            pace,
            pool: pool.clone(),
            launcher: launcher.clone(),
            boots: self.boots.clone(),
            replacements: self.replacements.clone(),
            phases,
            news: self.news_sender.clone(),
        };
        let member = Member {
            slot,
            generation,
            phase,
            slot_supervisor: self.slot_supervisors.spawn(slot_supervisor.keep()),
            stage: Stage::Booting,
            instead_of,
            worn: None,
            leave_by: None,
        };
        self.by_id.insert(id, member);
        id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.by_id.iter().map(|(id, member)| (*id, member))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (MemberId, &mut Member)> {
        self.by_id.iter_mut().map(|(id, member)| (*id, member))
    }

    pub(super) fn of_generation(&self, generation: u64) -> impl Iterator<Item = &Member> {
        let all = self.by_id.values();
        all.filter(move |member| member.generation == generation)
    }

    pub(super) fn get(&self, id: MemberId) -> Option<&Member> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: MemberId) -> Option<&mut Member> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn any(&self, fits: impl Fn(&Member) -> bool) -> bool {
        self.by_id.values().any(fits)
    }

    /// Whether a member is one of those that should be there: not before its predecessor leaves.
    pub(super) fn counts(&self, member: &Member) -> bool {
        let successor_of = member.instead_of.and_then(|old| self.get(old));
        !member.is_leaving() && successor_of.is_none_or(Member::is_leaving)
    }

    /// Ends a member without a successor; one that is on its way has nobody to wait for any more.
    pub(super) fn let_go(&mut self, id: MemberId) {
        for (other, member) in self.iter_mut() {
            if other == id || member.instead_of == Some(id) {
                member.retire(None);
            }
        }
    }

    /// Ends all that do not belong to this generation.
    pub(super) fn retire_others(&mut self, generation: u64, by: Instant) {
        for (_, member) in self.iter_mut() {
            if member.generation != generation {
                member.retire(Some(by));
            }
        }
    }

    /// Kills those whose time is over, and gives up those that a kill does not end.
    pub(super) fn end_overdue(&mut self, now: Instant) -> Overdue {
        let mut overdue = Overdue::default();
        for (_, member) in self.iter_mut() {
            if member.leave_by.is_none_or(|by| by > now) {
                continue;
            }
            if member.phase() < Phase::Killed {
                member.kill(now);
                overdue.killed += 1;
            } else {
                member.leave_by = None;
                member.slot_supervisor.abort();
                overdue.stuck += 1;
            }
        }
        overdue
    }

    /// When the time of the next one is over.
    pub(super) fn next_overdue(&self) -> Option<Instant> {
        let leaving = self.by_id.values().filter_map(|member| member.leave_by);
        leaving.min()
    }
}
