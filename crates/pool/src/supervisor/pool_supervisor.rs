//! The owner of a pool's members: who is there, who comes, who goes.
//!
//! Everything that ends a worker in good order goes the same way: another one is up first, then
//! this one is drained. What that costs is bounded by one budget for the pool, whatever the reason:
//! [`Plan::at_once`] boots at a time, and a quarter of the workers more than there should be (a
//! reload, which replaces all, has twice as many).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::Backoff;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::replacements::{Replacements, STARTS};
use super::slot_supervisor::{MemberId, News, Phase, Renewal, SlotSupervisor};
use super::wear::{Life, Wear};
use super::{LaunchError, Launcher, NotResized, Plan, scaling};
use crate::core::SlotId;
use crate::pool::Pool;

/// News that the pool supervisor has not read yet; slot supervisors wait meanwhile.
const NEWS: usize = 64;
/// How often the watchdog looks at a queue that is not empty.
const WATCHDOG: Duration = Duration::from_secs(1);
/// Of the workers, those that may be replaced at a time.
const REPLACED_AT_ONCE: usize = 4;
/// A pool without a worker for so long is a matter for its operator: a worker that dies of a call
/// is replaced sooner, as long as the application boots in such a time.
const BARE: Duration = Duration::from_secs(3);
/// How long killed workers are waited for. The kernel ends them at once, unless one hangs in it or
/// has gigabytes of memory to give back. Nothing of a server outlives it, and service managers wait
/// for 10 s beyond its grace period.
const AFTER_KILL: Duration = Duration::from_secs(8);

/// What a pool supervisor is asked for.
pub(super) enum Order {
    Reload {
        /// What the pool is to become, if that is not what it is.
        change: Option<Change>,
        grace: Duration,
        done: oneshot::Sender<Result<(), LaunchError>>,
    },
    Add {
        count: usize,
        done: oneshot::Sender<Result<usize, NotResized>>,
    },
    Remove {
        count: usize,
        done: oneshot::Sender<Result<usize, NotResized>>,
    },
    Stop {
        grace: Duration,
        done: oneshot::Sender<usize>,
    },
}

/// Another way to start workers, and how many.
pub(super) struct Change {
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) plan: Plan,
}

pub(super) struct PoolSupervisor {
    pool: Pool,
    launcher: Arc<dyn Launcher>,
    plan: Plan,
    boots: Arc<Semaphore>,
    replacements: Arc<Replacements>,
    /// The one that works.
    generation: u64,
    /// How many members of it there should be.
    size: usize,
    members: BTreeMap<MemberId, Member>,
    next_id: MemberId,
    slot_supervisors: JoinSet<()>,
    news: mpsc::Receiver<(MemberId, News)>,
    news_sender: mpsc::Sender<(MemberId, News)>,
    reload: Option<Reload>,
    reloads_to_come: VecDeque<ReloadToCome>,
    /// Those who wait for added members.
    additions: Vec<Addition>,
    replacing: Pacing,
    growing: Pacing,
    looked_at_wear: Instant,
    /// No worker takes calls.
    bare: Option<Bare>,
    stop: Option<Stop>,
    killed: usize,
    troubles: watch::Sender<Option<Arc<str>>>,
    renewals: Arc<Notify>,
    /// The last one of which a worker has asked for the next.
    renewal_asked_by: u64,
}

/// One place in the pool supervisor, with its slot supervisor.
struct Member {
    slot: SlotId,
    generation: u64,
    phase: watch::Sender<Phase>,
    slot_supervisor: AbortHandle,
    stage: Stage,
    /// Whose place it takes.
    instead_of: Option<MemberId>,
    /// Its worker should be replaced.
    worn: Option<Wear>,
    /// When it has to be gone.
    leave_by: Option<Instant>,
}

/// How far a member's worker is.
#[derive(Debug, Clone, Copy)]
enum Stage {
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

struct ReloadToCome {
    change: Option<Change>,
    grace: Duration,
    done: oneshot::Sender<Result<(), LaunchError>>,
}

/// A new generation on its way.
struct Reload {
    generation: u64,
    /// What holds again if it fails, and how many workers there were.
    before: Option<(Change, usize)>,
    grace: Duration,
    let_in: bool,
    failed: Option<LaunchError>,
    done: oneshot::Sender<Result<(), LaunchError>>,
}

struct Addition {
    /// Of these, so many have not begun.
    to_begin: usize,
    members: Vec<MemberId>,
    failed: Option<Arc<str>>,
    done: oneshot::Sender<Result<usize, NotResized>>,
}

struct Stop {
    done: oneshot::Sender<usize>,
}

/// A time without a worker that takes calls.
struct Bare {
    since: Instant,
    is_told: bool,
}

/// Keeps what fails from being tried again at once.
struct Pacing {
    backoff: Backoff,
    not_before: Option<Instant>,
}

impl Default for Pacing {
    fn default() -> Self {
        Self {
            backoff: STARTS,
            not_before: None,
        }
    }
}

impl Pacing {
    fn may(&self, now: Instant) -> bool {
        self.not_before.is_none_or(|start| start <= now)
    }

    fn failed(&mut self, now: Instant) {
        self.not_before = Some(now + self.backoff.next_wait());
    }

    fn went_well(&mut self) {
        *self = Self::default();
    }
}

impl Member {
    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    fn is_leaving(&self) -> bool {
        self.phase() >= Phase::Stopped
    }

    const fn is_in(&self) -> bool {
        matches!(self.stage, Stage::In(_))
    }

    fn retire(&mut self, by: Option<Instant>) {
        if !self.is_leaving() {
            self.phase.send_replace(Phase::Stopped);
        }
        self.leave_by = match (self.leave_by, by) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    fn kill(&mut self, now: Instant) {
        self.phase.send_replace(Phase::Killed);
        self.leave_by = Some(now + AFTER_KILL);
    }
}

impl PoolSupervisor {
    pub(super) fn new(
        pool: Pool,
        launcher: Arc<dyn Launcher>,
        plan: Plan,
        renewals: Arc<Notify>,
    ) -> (Self, watch::Receiver<Option<Arc<str>>>) {
        let (troubles, receiver) = watch::channel(None);
        let (news_sender, news) = mpsc::channel(NEWS);
        let supervisor = Self {
            pool,
            launcher,
            boots: Arc::new(Semaphore::new(plan.at_once.max(1))),
            replacements: Arc::new(Replacements::new(Instant::now())),
            generation: 0,
            size: plan.workers.max(1),
            plan,
            members: BTreeMap::new(),
            next_id: 0,
            slot_supervisors: JoinSet::new(),
            news,
            news_sender,
            reload: None,
            reloads_to_come: VecDeque::new(),
            additions: Vec::new(),
            replacing: Pacing::default(),
            growing: Pacing::default(),
            looked_at_wear: Instant::now(),
            bare: None,
            stop: None,
            killed: 0,
            troubles,
            renewals,
            renewal_asked_by: 0,
        };
        (supervisor, receiver)
    }

    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut looks = looks(self.looks_every());
        loop {
            self.settle().await;
            if looks.period() != self.looks_every() {
                looks = self::looks(self.looks_every());
            }
            if self.is_over().await {
                return;
            }
            let due = self.next_due();
            tokio::select! {
                // What a slot supervisor said last is heard before its end. There is only so much
                // of both.
                biased;
                Some((id, news)) = self.news.recv() => self.hear(id, news),
                Some(ended) = self.slot_supervisors.join_next_with_id() => {
                    let (slot_supervisor, broken) = match ended {
                        Ok((slot_supervisor, ())) => (slot_supervisor, false),
                        Err(error) => (error.id(), true),
                    };
                    self.gone(slot_supervisor, broken).await;
                }
                Some(order) = orders.recv() => self.obey(order).await,
                () = sleep_until(due) => {}
                _ = looks.tick() => self.look().await,
            }
        }
    }

    fn looks_every(&self) -> Duration {
        let every = match self.plan.scaling {
            Some(_) => scaling::LOOK,
            None => WATCHDOG,
        };
        every.min(self.plan.limits.watch_tick)
    }

    async fn obey(&mut self, order: Order) {
        let stopping = self.stop.is_some();
        match order {
            // The answer is that nobody answers.
            Order::Reload { .. } | Order::Add { .. } | Order::Remove { .. } if stopping => {}
            Order::Reload {
                change,
                grace,
                done,
            } => self.reloads_to_come.push_back(ReloadToCome {
                change,
                grace,
                done,
            }),
            Order::Add { count, done } => self.resize(self.size.saturating_add(count), done),
            Order::Remove { count, done } => self.resize(self.size.saturating_sub(count), done),
            Order::Stop { grace, done } => {
                let by = Instant::now() + grace;
                self.pool.close().await;
                for member in self.members.values_mut() {
                    member.retire(Some(by));
                }
                self.reload = None;
                self.reloads_to_come.clear();
                self.additions.clear();
                self.stop = Some(Stop { done });
            }
        }
    }

    /// How many there should be from now on, also for the scaling.
    fn resize(&mut self, size: usize, done: oneshot::Sender<Result<usize, NotResized>>) {
        if size == 0 || size > self.plan.most {
            let refused = NotResized::OutOfRange {
                pool: self.pool.name().to_owned(),
                would: size,
                most: self.plan.most,
            };
            _ = done.send(Err(refused)); // whoever asked may have left, here and below
            return;
        }
        if let Some(scaling) = &mut self.plan.scaling {
            scaling.min = (scaling.min + size).saturating_sub(self.size).max(1);
            scaling.max = scaling.max.max(size);
        }
        if size > self.size {
            // Its members are those that `settle` starts next.
            self.additions.push(Addition {
                to_begin: size - self.size,
                members: Vec::new(),
                failed: None,
                done,
            });
        } else {
            _ = done.send(Ok(size));
        }
        self.size = size;
    }

    fn hear(&mut self, id: MemberId, news: News) {
        let now = Instant::now();
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        match news {
            News::Up => member.stage = Stage::Up,
            // They come by two ways.
            News::Entered { .. } if matches!(member.stage, Stage::Drained) => {}
            News::Entered { pid } => {
                member.stage = Stage::In(Life::new(pid, now));
                member.worn = None;
                self.growing.went_well();
            }
            News::Worn => _ = member.worn.get_or_insert(Wear::Calls),
            News::AsksForRenewal(why) => {
                let generation = member.generation;
                self.renewal_asked_for(generation, why);
            }
            News::Drained => member.stage = Stage::Drained,
            News::Ended => {
                member.stage = Stage::Down;
                member.worn = None;
            }
            News::Failed(error) => self.did_not_boot(id, error, now),
        }
        if self.members.values().any(Member::is_in) {
            self.troubles.send_if_modified(|why| why.take().is_some());
            if let Some(Bare {
                since,
                is_told: true,
            }) = self.bare.take()
            {
                let seconds = (now - since).as_secs();
                tracing::info!(target: "server", pool = self.pool.name(), seconds, "the pool has workers again");
            }
        } else if self.generation > 0 {
            self.bare.get_or_insert(Bare {
                since: now,
                is_told: false,
            });
        }
    }

    /// Once for each time without workers.
    fn tell_of_bareness(&mut self, now: Instant) {
        let Some(bare) = &mut self.bare else {
            return;
        };
        if !bare.is_told && now - bare.since >= BARE {
            bare.is_told = true;
            let (pool, seconds) = (self.pool.name(), BARE.as_secs());
            tracing::error!(target: "server", pool, "the pool has had no worker for {seconds} s: each one has died or does not come up; the records before this one say of what");
        }
    }

    /// Once for each generation: its other workers would say the same.
    fn renewal_asked_for(&mut self, generation: u64, why: Renewal) {
        if generation != self.generation || generation == self.renewal_asked_by {
            return;
        }
        self.renewal_asked_by = generation;
        let why = match why {
            Renewal::Full => {
                "the OPcache of a worker is full (`opcache.memory_consumption`, `opcache.max_accelerated_files`)"
            }
            Renewal::Reset => "`opcache_reset()` was called",
            Renewal::Crashes => {
                "three have died by signals within a minute, and what is broken may be the OPcache that they share: the new ones come from a new zygote"
            }
        };
        tracing::info!(target: "server", pool = self.pool.name(), "new workers are wanted: {why}");
        self.renewals.notify_one();
    }

    fn did_not_boot(&mut self, id: MemberId, error: LaunchError, now: Instant) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let was_up = matches!(member.stage, Stage::Down);
        member.stage = Stage::Down;
        let (generation, instead_of) = (member.generation, member.instead_of);
        let why: Arc<str> = error.report().into();
        if self.generation > 0 && !self.members.values().any(Member::is_in) {
            self.troubles.send_replace(Some(why.clone()));
        }
        if was_up {
            return; // its slot supervisor goes on
        }
        match &mut self.reload {
            Some(reload) if reload.generation == generation && generation != self.generation => {
                reload.failed.get_or_insert(error);
                for member in self.members.values_mut() {
                    if member.generation == generation {
                        member.kill(now);
                    }
                }
                return;
            }
            Some(_) | None => {}
        }
        tracing::error!(target: "server", pool = self.pool.name(), "{why}");
        if instead_of.is_some() {
            self.replacing.failed(now);
            return;
        }
        self.growing.failed(now);
        let added = self
            .additions
            .iter_mut()
            .find(|addition| addition.members.contains(&id));
        let scaling = self.plan.scaling.as_mut();
        if let Some(addition) = added {
            addition
                .failed
                .get_or_insert_with(|| error.to_string().into());
            self.size = self.size.saturating_sub(1).max(1);
            if let Some(scaling) = scaling {
                scaling.min = scaling.min.saturating_sub(1).max(1);
            }
        } else if scaling.is_some_and(|scaling| self.size > scaling.min) {
            self.size -= 1;
        }
    }

    /// A slot supervisor has ended, or panicked, or was given up.
    async fn gone(&mut self, slot_supervisor: tokio::task::Id, broken: bool) {
        let found = self
            .members
            .iter()
            .find(|(_, member)| member.slot_supervisor.id() == slot_supervisor);
        let Some(id) = found.map(|(id, _)| *id) else {
            return;
        };
        if let Some(member) = self.members.remove(&id) {
            // The place of a slot supervisor that was given up may still be in use.
            if !broken {
                self.pool.remove_slot(member.slot).await;
            }
        }
    }

    /// Does what can be done now. Each step is taken once, whatever the news it follows from.
    async fn settle(&mut self) {
        self.end_overdue();
        if self.stop.is_some() {
            return;
        }
        self.settle_reload().await;
        if self.reload.is_some() || self.generation == 0 {
            return;
        }
        self.settle_replacements().await;
        self.settle_size().await;
        self.settle_additions();
    }

    /// Kills those whose time is over, and gives up those that a kill does not end.
    fn end_overdue(&mut self) {
        let now = Instant::now();
        let (mut killed, mut stuck) = (0, 0);
        for member in self.members.values_mut() {
            if member.leave_by.is_none_or(|by| by > now) {
                continue;
            }
            if member.phase() < Phase::Killed {
                member.kill(now);
                killed += 1;
            } else {
                member.leave_by = None;
                member.slot_supervisor.abort();
                stuck += 1;
            }
        }
        let pool = self.pool.name();
        if self.stop.is_some() {
            self.killed += killed;
        } else if killed > 0 {
            tracing::warn!(target: "server", pool, killed, "workers of the old generation took too long and were killed");
        }
        if stuck > 0 {
            tracing::error!(target: "server", pool, workers = stuck, "workers do not end although they were killed");
        }
    }

    async fn settle_reload(&mut self) {
        if self.reload.is_none()
            && let Some(ReloadToCome {
                change,
                grace,
                done,
            }) = self.reloads_to_come.pop_front()
        {
            let before = change.map(|change| {
                let size = std::mem::replace(&mut self.size, change.plan.workers.max(1));
                (self.become_of(change), size)
            });
            let generation = self.pool.next_generation();
            self.launcher.begin_generation();
            for _ in 0..self.size {
                self.admit(generation, Phase::Held, None).await;
            }
            self.reload = Some(Reload {
                generation,
                before,
                grace,
                let_in: false,
                failed: None,
                done,
            });
        }
        let Some(mut reload) = self.reload.take() else {
            return;
        };
        let generation = reload.generation;
        if generation == self.generation {
            self.settle_switch(reload);
            return;
        }
        let is_new = |member: &&mut Member| member.generation == generation;
        let all = |supervisor: &Self, stage: fn(Stage) -> bool| {
            let mut new = supervisor.members.values();
            new.all(|member| member.generation != generation || stage(member.stage))
        };
        if reload.failed.is_some() {
            if self.members.values_mut().any(|member| is_new(&member)) {
                self.reload = Some(reload);
            } else if let Some(error) = reload.failed {
                if let Some((before, size)) = reload.before {
                    _ = self.become_of(before); // what failed
                    self.size = size;
                }
                _ = reload.done.send(Err(error));
            }
            return;
        }
        if !reload.let_in && all(self, |stage| matches!(stage, Stage::Up)) {
            reload.let_in = true;
            for member in self.members.values_mut().filter(is_new) {
                member.phase.send_replace(Phase::Kept);
            }
        }
        // One that has died meanwhile is no reason to wait.
        if !reload.let_in || !all(self, |stage| matches!(stage, Stage::In(_) | Stage::Down)) {
            self.reload = Some(reload);
            return;
        }
        let by = Instant::now() + reload.grace;
        for member in self.members.values_mut() {
            if member.generation != generation {
                member.retire(Some(by));
            }
        }
        self.generation = generation;
        self.replacing.went_well();
        self.settle_switch(reload);
    }

    /// Ends a reload whose workers are in. Who asked for new code asks it next, so the old one must
    /// answer nothing more.
    fn settle_switch(&mut self, reload: Reload) {
        let is_left = |member: &Member| member.is_leaving() && member.is_in();
        if self.members.values().any(is_left) {
            self.reload = Some(reload);
        } else {
            _ = reload.done.send(Ok(()));
        }
    }

    /// From now on workers are started like this. What held before.
    fn become_of(&mut self, change: Change) -> Change {
        Change {
            launcher: std::mem::replace(&mut self.launcher, change.launcher),
            plan: std::mem::replace(&mut self.plan, change.plan),
        }
    }

    /// Starts successors of worn workers, and drains those whose successor is in.
    async fn settle_replacements(&mut self) {
        let successors: Vec<(MemberId, MemberId, bool)> = self
            .members
            .iter()
            .filter_map(|(id, member)| Some((*id, member.instead_of?, member.is_in())))
            .collect();
        for (successor, old, is_in) in &successors {
            match self.members.get_mut(old) {
                Some(old) if *is_in => {
                    if !old.is_leaving() {
                        old.retire(None);
                        self.replacing.went_well();
                    }
                }
                Some(_) => {}
                // It takes the place, now or when it is up.
                None => {
                    if let Some(successor) = self.members.get_mut(successor) {
                        successor.instead_of = None;
                    }
                }
            }
        }
        let now = Instant::now();
        if !self.replacing.may(now) {
            return;
        }
        let under_way = self.members.values().filter(|it| it.instead_of.is_some());
        let budget = (self.size / REPLACED_AT_ONCE)
            .max(1)
            .saturating_sub(under_way.count());
        let replaced = |id: &MemberId| successors.iter().any(|(_, old, _)| old == id);
        let worn: Vec<(MemberId, Wear)> = self
            .members
            .iter()
            .filter(|(id, member)| !member.is_leaving() && !replaced(id))
            .filter_map(|(id, member)| Some((*id, member.worn?)))
            .take(budget)
            .collect();
        for (id, wear) in worn {
            let pid = self.members.get(&id).and_then(|member| match member.stage {
                Stage::In(life) => Some(life.pid),
                Stage::Booting | Stage::Up | Stage::Drained | Stage::Down => None,
            });
            tracing::debug!(target: "server", pool = self.pool.name(), pid, "worker replaced: {wear}");
            self.pool.count(wear.counter());
            self.admit(self.generation, Phase::Kept, Some(id)).await;
        }
    }

    /// Starts what is missing and lets go what is too much.
    async fn settle_size(&mut self) {
        let mut there: Vec<(bool, MemberId)> = self
            .members
            .iter()
            .filter(|(_, member)| self.counts(member))
            .map(|(id, member)| (member.is_in(), *id))
            .collect();
        // Those that do not work go first, then the youngest.
        there.sort_by_key(|(is_in, id)| (*is_in, std::cmp::Reverse(*id)));
        let surplus = there.len().saturating_sub(self.size);
        for (_, id) in there.iter().take(surplus) {
            self.let_go(*id);
        }
        if !self.growing.may(Instant::now()) {
            return;
        }
        for _ in there.len()..self.size {
            let id = self.admit(self.generation, Phase::Kept, None).await;
            let waiting = self.additions.iter_mut().find(|it| it.to_begin > 0);
            if let Some(addition) = waiting {
                addition.to_begin -= 1;
                addition.members.push(id);
            }
        }
        for addition in &mut self.additions {
            // A reload that began after the order has brought them up already.
            addition.to_begin = 0;
        }
    }

    /// Whether a member is one of those that should be there: not before its predecessor leaves.
    fn counts(&self, member: &Member) -> bool {
        let successor_of = member.instead_of.and_then(|old| self.members.get(&old));
        !member.is_leaving() && successor_of.is_none_or(Member::is_leaving)
    }

    /// Ends a member without a successor; one that is on its way has nobody to wait for any more.
    fn let_go(&mut self, id: MemberId) {
        for (other, member) in &mut self.members {
            if *other == id || member.instead_of == Some(id) {
                member.retire(None);
            }
        }
    }

    fn settle_additions(&mut self) {
        let (members, size) = (&self.members, self.size);
        let under_way = |id: &MemberId| members.get(id).is_some_and(|member| !member.is_in());
        let done = self.additions.extract_if(.., |addition| {
            addition.to_begin == 0 && !addition.members.iter().any(under_way)
        });
        for addition in done {
            let answer = match addition.failed {
                Some(why) => Err(NotResized::Boot(why)),
                None => Ok(size),
            };
            _ = addition.done.send(answer);
        }
    }

    /// A new member, in a slot of its own.
    async fn admit(
        &mut self,
        generation: u64,
        phase: Phase,
        instead_of: Option<MemberId>,
    ) -> MemberId {
        let id = self.next_id;
        self.next_id += 1;
        let slot = self.pool.add_slot().await;
        let (phase, phases) = watch::channel(phase);
        let slot_supervisor = SlotSupervisor {
            id,
            slot,
            generation,
            pool: self.pool.clone(),
            launcher: self.launcher.clone(),
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
        self.members.insert(id, member);
        id
    }

    /// What is looked at from time to time: the queue, the wear of workers, whether there are
    /// enough.
    async fn look(&mut self) {
        if self.stop.is_some() {
            return;
        }
        let waiting = self.pool.stats().waiting();
        if waiting > 0 {
            self.pool.heal().await;
            self.grow(waiting);
        }
        let now = Instant::now();
        self.tell_of_bareness(now);
        if now >= self.looked_at_wear + self.plan.limits.watch_tick {
            self.looked_at_wear = now;
            self.look_at_wear(now).await;
        }
    }

    fn grow(&mut self, waiting: usize) {
        let Some(scaling) = self.plan.scaling else {
            return;
        };
        let now = Instant::now();
        let booting = |member: &Member| !member.is_in() && !member.is_leaving();
        if !self.growing.may(now) || self.members.values().any(booting) {
            return;
        }
        let oldest = self.pool.stats().oldest_wait();
        let more = scaling.grow(self.size, waiting, oldest);
        if more > 0 {
            self.size += more;
            tracing::info!(target: "server", pool = self.pool.name(), waiting, workers = self.size, "{more} workers added: calls wait");
        }
    }

    async fn look_at_wear(&mut self, now: Instant) {
        if !self.plan.limits.any() && self.plan.scaling.is_none() {
            return;
        }
        let limits = self.plan.limits;
        let looks = self.pool.roster().look().await;
        let mut idle = Vec::new();
        for (id, member) in &mut self.members {
            let leaving = member.is_leaving();
            let Stage::In(life) = &mut member.stage else {
                continue;
            };
            let Some(look) = looks.iter().find(|look| look.pid == life.pid) else {
                continue;
            };
            life.saw(look.executions, look.busy, now);
            if leaving {
                continue;
            }
            let memory = |at_least| self.launcher.own_memory(life.pid, at_least);
            member.worn = member.worn.or_else(|| life.worn(&limits, now, memory));
            idle.push((life.idle(now), *id));
        }
        if let Some(scaling) = self.plan.scaling {
            idle.sort_by(|one, other| other.cmp(one));
            let fewer = scaling.shrink(
                self.size.min(idle.len()),
                idle.iter().map(|(idle, _)| *idle),
            );
            if fewer > 0 && self.reload.is_none() {
                for (_, id) in idle.iter().take(fewer) {
                    self.let_go(*id);
                }
                self.size -= fewer;
                tracing::info!(target: "server", pool = self.pool.name(), workers = self.size, "{fewer} workers removed: they had nothing to do");
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let leaving = self.members.values().filter_map(|member| member.leave_by);
        let worn = self.members.values().any(|member| member.worn.is_some());
        let pause = self.replacing.not_before.filter(|_| worn);
        let pause = pause.into_iter().chain(self.growing.not_before);
        // One that is over was no obstacle: what is missing comes as news.
        let pause = pause.filter(|until| *until > Instant::now());
        leaving.chain(pause).min()
    }

    /// True once there is nothing left to do: all have ended after a stop, or the start has failed.
    async fn is_over(&mut self) -> bool {
        if !self.members.is_empty() {
            return false;
        }
        if let Some(stop) = self.stop.take() {
            self.launcher.finish().await;
            _ = stop.done.send(self.killed);
            return true;
        }
        false
    }
}

fn looks(every: Duration) -> Interval {
    let mut looks = interval(every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Never without an instant.
async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
