//! The owner of a pool's members: who is there, who comes, who goes.
//!
//! Everything that ends a worker in good order goes the same way: another one is up first, then
//! this one is drained. What that costs is bounded by one budget for the pool, whatever the reason:
//! [`Plan::at_once`](super::Plan::at_once) boots at a time, and a quarter of the workers more than
//! there should be (a reload, which replaces all, has twice as many).
//!
//! - `members`: the members, and how far their workers are.
//! - `reload`: a new generation on its way, and those to come.
//! - `additions`: people who wait for the workers that they have added.
//! - `outage`: a time without workers, and who hears of it.
//! - `renewals`: workers that ask for a new generation.
//! - `pacing`: waits after what has failed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::error::LaunchError;
use super::launcher::Pace;
use super::scaling;
use super::slot_supervisor::{MemberId, News, Phase};
use super::wear::{Life, Wear};
use crate::pool::Pool;

mod additions;
mod members;
mod outage;
mod pacing;
mod reload;
mod renewals;

pub(super) use self::reload::Change;

use self::additions::{Additions, Resized};
use self::members::{Departed, Event, Member, Members, Newcomer, Overdue, Stage};
use self::outage::Outage;
use self::pacing::Pacing;
use self::reload::{Progress, Reload, ReloadToCome, Reloads};
use self::renewals::Renewals;

/// How often the watchdog looks at a queue that is not empty.
const WATCHDOG: Duration = Duration::from_secs(1);
/// Of the workers, those that may be replaced at a time.
const REPLACED_AT_ONCE: usize = 4;

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
        done: Resized,
    },
    Remove {
        count: usize,
        done: Resized,
    },
    Stop {
        grace: Duration,
        done: oneshot::Sender<usize>,
    },
}

pub(super) struct PoolSupervisor {
    pool: Pool,
    /// The launcher of workers, and how many there were at the start.
    setup: Change,
    /// The one that works; 0 before the first.
    generation: u64,
    /// How many members of it there should be.
    size: usize,
    members: Members,
    reloads: Reloads,
    additions: Additions,
    replacing: Pacing,
    growing: Pacing,
    looked_at_wear: Instant,
    outage: Outage,
    renewals: Renewals,
    stop: Option<Stop>,
}

struct Stop {
    killed: usize,
    done: oneshot::Sender<usize>,
}

impl PoolSupervisor {
    pub(super) fn new(
        pool: Pool,
        setup: Change,
        renewals: Arc<Notify>,
    ) -> (Self, watch::Receiver<Option<Arc<str>>>) {
        let (outage, troubles) = Outage::none();
        let supervisor = Self {
            pool,
            generation: 0,
            size: setup.plan.workers.max(1),
            members: Members::new(setup.plan.at_once),
            setup,
            reloads: Reloads::default(),
            additions: Additions::default(),
            replacing: Pacing::default(),
            growing: Pacing::default(),
            looked_at_wear: Instant::now(),
            outage,
            renewals: Renewals::new(renewals),
            stop: None,
        };
        (supervisor, troubles)
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
                // Members first. There is only so much that they have to say.
                biased;
                event = self.members.next() => match event {
                    Event::News(id, news) => self.hear(id, news),
                    Event::Gone(Some(member)) => self.gone(member).await,
                    Event::Gone(None) => {}
                },
                Some(order) = orders.recv() => self.obey(order).await,
                () = sleep_until(due) => {}
                _ = looks.tick() => self.look().await,
            }
        }
    }

    fn looks_every(&self) -> Duration {
        let every = match self.setup.plan.scaling {
            Some(_) => scaling::LOOK,
            None => WATCHDOG,
        };
        every.min(self.setup.plan.limits.watch_tick)
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
            } => self.reloads.to_come.push_back(ReloadToCome {
                change,
                grace,
                done,
            }),
            Order::Add { count, done } => self.resize(self.size.saturating_add(count), done),
            Order::Remove { count, done } => self.resize(self.size.saturating_sub(count), done),
            Order::Stop { grace, done } => self.begin_stop(grace, done).await,
        }
    }

    async fn begin_stop(&mut self, grace: Duration, done: oneshot::Sender<usize>) {
        let by = Instant::now() + grace;
        self.pool.close().await;
        for (_, member) in self.members.iter_mut() {
            member.retire(Some(by));
        }
        self.reloads.clear();
        self.additions.clear();
        self.stop = Some(Stop { killed: 0, done });
    }

    /// How many there should be from now on, also for the scaling.
    fn resize(&mut self, size: usize, done: Resized) {
        let resized = self.setup.plan.resize(self.pool.name(), self.size, size);
        if let Err(refused) = resized {
            _ = done.send(Err(refused)); // whoever asked may have left, here and below
            return;
        }
        match size.checked_sub(self.size) {
            Some(more @ 1..) => self.additions.add(more, done),
            Some(0) | None => _ = done.send(Ok(size)),
        }
        self.size = size;
    }

    fn hear(&mut self, id: MemberId, news: News) {
        let now = Instant::now();
        let Some(member) = self.members.get_mut(id) else {
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
                if member.generation == self.generation {
                    self.renewals.ask(self.pool.name(), self.generation, why);
                }
            }
            News::Drained => member.stage = Stage::Drained,
            News::Ended => {
                member.stage = Stage::Down;
                member.worn = None;
            }
            News::Failed(error) => self.did_not_boot(id, error, now),
        }
        if self.members.any(Member::is_in) {
            self.outage.is_over(self.pool.name(), now);
        } else if self.generation > 0 {
            self.outage.goes_on(now);
        }
    }

    fn did_not_boot(&mut self, id: MemberId, error: LaunchError, now: Instant) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let was_up = matches!(member.stage, Stage::Down);
        member.stage = Stage::Down;
        let (generation, instead_of) = (member.generation, member.instead_of);
        let why: Arc<str> = error.report().into();
        if self.generation > 0 && !self.members.any(Member::is_in) {
            self.outage.is_because(why.clone());
        }
        if was_up {
            return; // its slot supervisor goes on
        }
        let failed = if generation == self.generation {
            Err(error)
        } else {
            self.reloads
                .failed(generation, error, &mut self.members, now)
        };
        let Err(error) = failed else {
            return;
        };
        tracing::error!(target: "server", pool = self.pool.name(), "{why}");
        if instead_of.is_some() {
            self.replacing.failed(now);
        } else {
            self.growing.failed(now);
            self.go_without(id, &error);
        }
    }

    /// There is one fewer, where somebody had asked for more, or the scaling had.
    fn go_without(&mut self, id: MemberId, error: &LaunchError) {
        let scaling = self.setup.plan.scaling.as_mut();
        if self.additions.failed(id, || error.to_string().into()) {
            self.size = self.size.saturating_sub(1).max(1);
            if let Some(scaling) = scaling {
                scaling.min = scaling.min.saturating_sub(1).max(1);
            }
        } else if scaling.is_some_and(|scaling| self.size > scaling.min) {
            self.size -= 1;
        }
    }

    async fn gone(&self, member: Departed) {
        // The place of a slot supervisor that was given up may still be in use.
        if !member.is_broken {
            self.pool.remove_slot(member.slot).await;
        }
    }

    /// Does what can be done now. Each step is taken once, whatever the news it follows from.
    async fn settle(&mut self) {
        self.end_overdue();
        if self.stop.is_some() {
            return;
        }
        self.settle_reload().await;
        if self.reloads.under_way.is_some() || self.generation == 0 {
            return;
        }
        self.settle_replacements().await;
        self.settle_size().await;
        self.additions.settle(&self.members, self.size);
    }

    fn end_overdue(&mut self) {
        let Overdue { killed, stuck } = self.members.end_overdue(Instant::now());
        let pool = self.pool.name();
        if let Some(stop) = &mut self.stop {
            stop.killed += killed;
        } else if killed > 0 {
            tracing::warn!(target: "server", pool, killed, "workers of the old generation took too long and were killed");
        }
        if stuck > 0 {
            tracing::error!(target: "server", pool, workers = stuck, "workers do not end although they were killed");
        }
    }

    async fn settle_reload(&mut self) {
        let mut reload = match self.reloads.under_way.take() {
            Some(reload) => reload,
            None => match self.reloads.to_come.pop_front() {
                Some(next) => self.begin_reload(next).await,
                None => return,
            },
        };
        if reload.generation != self.generation {
            match reload.advance(&self.members) {
                Progress::IsIn => self.switch_to(&reload),
                Progress::Failed(error) => return self.give_up(reload, error),
                Progress::UnderWay => {
                    self.reloads.under_way = Some(reload);
                    return;
                }
            }
        }
        // Who asked for new code asks it next, so the old one must answer nothing more.
        if self.members.any(|it| it.is_leaving() && it.is_in()) {
            self.reloads.under_way = Some(reload);
        } else {
            _ = reload.done.send(Ok(())); // whoever asked may have left
        }
    }

    /// Starts a generation beside the one that works.
    async fn begin_reload(&mut self, next: ReloadToCome) -> Reload {
        let before = next.change.map(|change| {
            let size = std::mem::replace(&mut self.size, change.plan.workers.max(1));
            (std::mem::replace(&mut self.setup, change), size)
        });
        let generation = self.pool.next_generation();
        self.setup.launcher.begin_generation();
        for _ in 0..self.size {
            self.admit(generation, Phase::Held, None).await;
        }
        Reload {
            generation,
            before,
            grace: next.grace,
            let_in: false,
            failed: None,
            done: next.done,
        }
    }

    /// The setup from before a reload holds again.
    fn give_up(&mut self, reload: Reload, error: LaunchError) {
        if let Some((before, size)) = reload.before {
            self.setup = before;
            self.size = size;
        }
        _ = reload.done.send(Err(error)); // whoever asked may have left
    }

    /// The new generation has taken over: all others end.
    fn switch_to(&mut self, reload: &Reload) {
        let by = Instant::now() + reload.grace;
        self.members.retire_others(reload.generation, by);
        self.generation = reload.generation;
        self.replacing.went_well();
    }

    /// Starts successors of worn workers, and drains those whose successor is in.
    async fn settle_replacements(&mut self) {
        let successors = self.settle_successors();
        if !self.replacing.may(Instant::now()) {
            return;
        }
        let under_way = self
            .members
            .iter()
            .filter(|(_, it)| it.instead_of.is_some());
        let budget = (self.size / REPLACED_AT_ONCE)
            .max(1)
            .saturating_sub(under_way.count());
        let replaced = |id: MemberId| successors.iter().any(|(_, old)| *old == id);
        let worn: Vec<(MemberId, Wear)> = self
            .members
            .iter()
            .filter(|(id, member)| !member.is_leaving() && !replaced(*id))
            .filter_map(|(id, member)| Some((id, member.worn?)))
            .take(budget)
            .collect();
        for (id, wear) in worn {
            let pid = self.members.get(id).and_then(Member::pid);
            tracing::debug!(target: "server", pool = self.pool.name(), pid, "worker replaced: {wear}");
            self.pool.count(wear.counter());
            self.admit(self.generation, Phase::Kept, Some(id)).await;
        }
    }

    /// Drains those whose successor is in. Each successor with its predecessor, as it was before.
    fn settle_successors(&mut self) -> Vec<(MemberId, MemberId)> {
        let mut successors = Vec::new();
        for (id, member) in self.members.iter() {
            successors.extend(member.instead_of.map(|old| (id, old)));
        }
        for (id, old) in &successors {
            let is_in = self.members.get(*id).is_some_and(Member::is_in);
            match self.members.get_mut(*old) {
                Some(old) if is_in => {
                    if !old.is_leaving() {
                        old.retire(None);
                        self.replacing.went_well();
                    }
                }
                Some(_) => {}
                // It takes the place, now or when it is up.
                None => {
                    if let Some(successor) = self.members.get_mut(*id) {
                        successor.instead_of = None;
                    }
                }
            }
        }
        successors
    }

    /// Starts what is missing and lets go what is too much.
    async fn settle_size(&mut self) {
        let mut there: Vec<(bool, MemberId)> = self
            .members
            .iter()
            .filter(|(_, member)| self.members.counts(member))
            .map(|(id, member)| (member.is_in(), id))
            .collect();
        // Those that do not work go first, then the youngest.
        there.sort_by_key(|(is_in, id)| (*is_in, std::cmp::Reverse(*id)));
        let surplus = there.len().saturating_sub(self.size);
        for (_, id) in there.iter().take(surplus) {
            self.members.let_go(*id);
        }
        if !self.growing.may(Instant::now()) {
            return;
        }
        for _ in there.len()..self.size {
            let id = self.admit(self.generation, Phase::Kept, None).await;
            self.additions.begun(id);
        }
        self.additions.all_begun();
    }

    async fn admit(
        &mut self,
        generation: u64,
        phase: Phase,
        instead_of: Option<MemberId>,
    ) -> MemberId {
        // Only a boot that somebody waits for, and only beside a generation that works: a start
        // takes no other program's time, and a storm of deaths doesn't either.
        let pace = if phase == Phase::Held && self.generation > 0 {
            Pace::Overtaking
        } else {
            Pace::Usual
        };
        let newcomer = Newcomer {
            generation,
            pace,
            phase,
            instead_of,
        };
        let launcher = &self.setup.launcher;
        self.members.admit(&self.pool, launcher, newcomer).await
    }

    /// What is looked at from time to time: the queue, the wear of workers, whether there are
    /// enough.
    async fn look(&mut self) {
        if self.stop.is_some() {
            return;
        }
        if self.pool.stats().waiting() > 0 {
            self.pool.heal().await;
            self.grow();
        }
        let now = Instant::now();
        self.outage.tell(self.pool.name(), now);
        if now >= self.looked_at_wear + self.setup.plan.limits.watch_tick {
            self.looked_at_wear = now;
            self.look_at_wear(now).await;
        }
    }

    fn grow(&mut self) {
        let Some(scaling) = self.setup.plan.scaling else {
            return;
        };
        let now = Instant::now();
        let booting = |member: &Member| !member.is_in() && !member.is_leaving();
        if !self.growing.may(now) || self.members.any(booting) {
            return;
        }
        let (waiting, oldest) = self.pool.wanting(now);
        let more = scaling.grow(self.size, waiting, oldest);
        if more > 0 {
            self.size += more;
            tracing::info!(target: "server", pool = self.pool.name(), waiting, workers = self.size, "{more} workers added: calls wait");
        }
    }

    async fn look_at_wear(&mut self, now: Instant) {
        if !self.setup.plan.limits.any() && self.setup.plan.scaling.is_none() {
            return;
        }
        let limits = self.setup.plan.limits;
        let looks = self.pool.roster().look().await;
        let mut idle = Vec::new();
        for (id, member) in self.members.iter_mut() {
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
            let memory = |at_least| self.setup.launcher.own_memory(life.pid, at_least);
            member.worn = member.worn.or_else(|| life.worn(&limits, now, memory));
            idle.push((life.idle(now), id));
        }
        if let Some(scaling) = self.setup.plan.scaling {
            idle.sort_by(|one, other| other.cmp(one));
            let fewer = scaling.shrink(
                self.size.min(idle.len()),
                idle.iter().map(|(idle, _)| *idle),
            );
            if fewer > 0 && self.reloads.under_way.is_none() {
                for (_, id) in idle.iter().take(fewer) {
                    self.members.let_go(*id);
                }
                self.size -= fewer;
                tracing::info!(target: "server", pool = self.pool.name(), workers = self.size, "{fewer} workers removed: they had nothing to do");
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        let worn = self.members.any(|member| member.worn.is_some());
        let pause = self.replacing.next_try().filter(|_| worn);
        let pause = pause.into_iter().chain(self.growing.next_try());
        // One that is over was no obstacle: what is missing comes as news.
        let pause = pause.filter(|until| *until > Instant::now());
        pause.chain(self.members.next_overdue()).min()
    }

    /// True once there is nothing left to do: all have ended after a stop, or the start has failed.
    async fn is_over(&mut self) -> bool {
        if !self.members.is_empty() {
            return false;
        }
        if let Some(stop) = self.stop.take() {
            self.setup.launcher.finish().await;
            _ = stop.done.send(stop.killed);
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
