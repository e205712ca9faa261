//! The data path's state: who works, who is free, who waits. Pure: no task, no clock, no process.
//!
//! One [`Core`] lives behind the one short lock of a pool. Each method is one step; what has to be
//! done outside of the lock comes back as a value.

use std::time::Duration;

use tokio::time::Instant;

use crate::affinity::{Affinities, AffinityId, Tenure};
use crate::call::Refused;
use crate::queue::{Pushed, Queue, Ticket};
pub use crate::slot::SlotId;

/// Where a slot stands, in the order of a normal life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    Empty,
    /// A process was started and has not announced itself.
    Booting,
    Ready,
    Busy,
    /// Gets no new call; the one under way may finish.
    Draining,
    /// Was asked to end.
    Stopping,
    /// Could not boot; a back-off runs.
    Failed,
}

impl SlotState {
    /// Every step a slot may take. Any other is a bug.
    const fn may_become(self, next: Self) -> bool {
        use SlotState::{Booting, Busy, Draining, Empty, Failed, Ready, Stopping};
        match self {
            Empty => matches!(next, Booting | Failed),
            Booting => matches!(next, Ready | Busy | Failed | Empty),
            // A worker can die at any time, hence Empty.
            Ready => matches!(next, Busy | Stopping | Empty),
            Busy => matches!(next, Ready | Busy | Draining | Stopping | Empty),
            Draining => matches!(next, Stopping | Empty),
            Stopping => matches!(next, Empty),
            Failed => matches!(next, Booting | Empty),
        }
    }
}

/// Slots, queue and the order in which workers are chosen. `C` is a call, `T` is how a worker is
/// reached.
#[derive(Debug)]
pub(crate) struct Core<C, T> {
    slots: Vec<Slot<T>>,
    /// Ready slots, the most recently used last: it is chosen first, its caches are warm.
    idle: Vec<SlotId>,
    queue: Queue<C>,
    affinities: Affinities,
    /// Calls that busy workers could be given ahead, in all.
    room: usize,
    /// Of them, those that they are given while others are free.
    before_waking_idle: usize,
    /// Busy workers of quick calls.
    quick: usize,
    /// Processors that there are for workers.
    processors: usize,
    stopping: bool,
}

#[derive(Debug)]
struct Slot<T> {
    state: SlotState,
    worker: Option<T>,
    /// Calls that its worker has beyond the one at hand.
    prefetched: usize,
    prefetch: PrefetchLimits,
    /// Whether a member of the pool supervisor uses it.
    taken: bool,
    /// The number of its workers that have stopped taking calls.
    tenures: u64,
    /// Origins whose calls its worker has.
    origins: usize,
}

/// How many calls a worker may have beyond the one at hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PrefetchLimits {
    pub(crate) most: usize,
    /// So many of them while another worker is free: to wake that one would take longer.
    pub(crate) before_waking_idle: usize,
    /// And so many while every processor has a worker of quick calls: another one would only take
    /// turns with those.
    pub(crate) when_cpus_busy: usize,
}

/// What becomes of a new call.
#[derive(Debug)]
pub(crate) enum Admitted<C, T> {
    Run(T, C),
    /// Perhaps in place of another one, which is refused.
    Waits(Option<(C, Refused)>),
    Refused(C, Refused),
}

/// A worker takes no more calls.
#[derive(Debug)]
pub(crate) struct Drained<C, T> {
    /// It is idle, and can be asked to end at once.
    pub(crate) idle: Option<T>,
    /// Calls that waited for it alone, and that other workers run now.
    pub(crate) moved: Vec<(T, C)>,
}

/// What a worker does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<C> {
    Run(C),
    /// What it was given ahead, if it has some; else wait for a call.
    Wait,
    /// Nothing more: ask the process to end.
    Stop,
}

impl<C, T: Clone> Core<C, T> {
    /// At most `queue_limit` calls wait, each at most `queue_timeout`. There are so many
    /// `processors` for the workers.
    pub(crate) fn new(queue_limit: usize, queue_timeout: Duration, processors: usize) -> Self {
        Self {
            slots: Vec::new(),
            idle: Vec::new(),
            queue: Queue::new(queue_limit, queue_timeout),
            affinities: Affinities::default(),
            room: 0,
            before_waking_idle: 0,
            quick: 0,
            processors,
            stopping: false,
        }
    }

    pub(crate) fn limit_queue(&mut self, limit: usize, timeout: Duration) {
        self.queue.set_limits(limit, timeout);
    }

    /// A place for another worker.
    pub(crate) fn add_slot(&mut self) -> SlotId {
        let free = self.slots.iter().position(|slot| !slot.taken);
        let id = free.unwrap_or_else(|| {
            self.slots.push(Slot {
                state: SlotState::Empty,
                worker: None,
                prefetched: 0,
                prefetch: PrefetchLimits::default(),
                taken: false,
                tenures: 0,
                origins: 0,
            });
            self.slots.len() - 1
        });
        if let Some(slot) = self.slots.get_mut(id) {
            slot.taken = true;
        }
        // So that the data path never grows it.
        self.idle.reserve(self.slots.len());
        id
    }

    /// Gives a place back; whatever was in it is gone.
    pub(crate) fn remove_slot(&mut self, id: SlotId) {
        let moved = self.vacate(id);
        debug_assert!(moved.is_empty(), "a worker was in it");
        if let Some(slot) = self.slots.get_mut(id) {
            slot.taken = false;
        }
    }

    /// A new call: to a worker that is awake and quick, also if that has some already where there
    /// is no processor for another one; else to a free one, else to one that may have it `ahead`,
    /// else into the queue.
    pub(crate) fn admit(&mut self, call: C, ticket: Ticket, ahead: bool) -> Admitted<C, T> {
        if self.stopping {
            return Admitted::Refused(call, Refused::Stopping);
        }
        if let Some(affinity) = ticket.affinity {
            return self.admit_to_its_worker(call, ticket, affinity, ahead);
        }
        let ahead = ahead && self.queue.len() == 0;
        let before_waking_idle = ahead && self.before_waking_idle > 0;
        let when_cpus_busy = ahead && self.quick >= self.processors;
        let worker = before_waking_idle
            .then(|| self.take_room(Slot::before_waking_idle))
            .flatten();
        let worker = worker.or_else(|| {
            when_cpus_busy
                .then(|| self.take_room(Slot::when_cpus_busy))
                .flatten()
        });
        let worker = worker.or_else(|| self.take_idle());
        let worker = worker.or_else(|| ahead.then(|| self.take_room(Slot::room)).flatten());
        if let Some(worker) = worker {
            return Admitted::Run(worker, call);
        }
        if self.all_failed() {
            return Admitted::Refused(call, Refused::NoWorker);
        }
        match self.queue.push(ticket, call) {
            Pushed::Waits => Admitted::Waits(None),
            Pushed::Displaced(other) => Admitted::Waits(Some((other, Refused::QueueFull))),
            Pushed::Outlived(other) => Admitted::Waits(Some((other, Refused::WaitedTooLong))),
            Pushed::Full(call) => Admitted::Refused(call, Refused::QueueFull),
        }
    }

    /// A new call of an origin: to its worker, or into the line for that.
    fn admit_to_its_worker(
        &mut self,
        call: C,
        ticket: Ticket,
        affinity: AffinityId,
        ahead: bool,
    ) -> Admitted<C, T> {
        let id = self.worker_of(affinity);
        if let Some(id) = id {
            if let Some(worker) = self.take_this_idle(id) {
                return Admitted::Run(worker, call);
            }
            let has_room = self.slots.get(id).is_some_and(|slot| slot.room() > 0);
            if ahead && has_room && !self.queue.has_line(id) {
                self.change(id, |slot| slot.prefetched += 1);
                if let Some(worker) = self.worker(id) {
                    return Admitted::Run(worker, call);
                }
            }
        } else if self.all_failed() {
            return Admitted::Refused(call, Refused::NoWorker);
        }
        self.queue.push_in_line(id, ticket, call);
        Admitted::Waits(None)
    }

    /// The worker of an origin, or from now on the one that has the fewest origins. None: nobody
    /// takes calls.
    fn worker_of(&mut self, affinity: AffinityId) -> Option<SlotId> {
        if let Some(id) = self.worker_at_work(affinity) {
            return Some(id);
        }
        let slots = self.slots.iter().enumerate();
        let at_work = slots.filter(|(_, slot)| slot.takes_calls());
        let (id, _) =
            at_work.min_by_key(|(_, slot)| (slot.origins, slot.state == SlotState::Busy))?;
        self.belongs(affinity, id);
        Some(id)
    }

    /// The worker that an origin has, if that still takes calls.
    pub(crate) fn worker_at_work(&self, affinity: AffinityId) -> Option<SlotId> {
        let has = self.affinities.worker(affinity)?;
        let slot = self.slots.get(has.slot)?;
        (slot.tenures == has.nth && slot.takes_calls()).then_some(has.slot)
    }

    /// The calls of an origin are this worker's from now on, if they have none.
    fn belongs(&mut self, affinity: AffinityId, id: SlotId) {
        if self.worker_at_work(affinity).is_some() {
            return;
        }
        if let Some(slot) = self.slots.get_mut(id) {
            slot.origins += 1;
            let nth = slot.tenures;
            self.affinities
                .set_worker(affinity, Tenure { slot: id, nth });
        }
    }

    /// A new origin of calls.
    pub(crate) fn add_affinity(&mut self) -> AffinityId {
        self.affinities.add()
    }

    /// It has no more calls.
    pub(crate) fn remove_affinity(&mut self, affinity: AffinityId) {
        if let Some(id) = self.worker_at_work(affinity)
            && let Some(slot) = self.slots.get_mut(id)
        {
            slot.origins -= 1;
        }
        self.affinities.remove(affinity);
    }

    /// A worker takes no more calls, and its origins choose others with their next ones. Those that
    /// wait already move; what other workers run now comes back.
    fn end_tenure(&mut self, id: SlotId) -> Vec<(T, C)> {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.tenures += 1;
            slot.origins = 0;
        }
        let mut moved = Vec::new();
        for (ticket, call) in self.queue.take_line(id) {
            let to = ticket.affinity.and_then(|it| self.worker_of(it));
            match to.and_then(|to| self.take_this_idle(to)) {
                Some(worker) => moved.push((worker, call)),
                None => self.queue.push_in_line(to, ticket, call),
            }
        }
        moved
    }

    fn take_this_idle(&mut self, id: SlotId) -> Option<T> {
        if self.state(id) != SlotState::Ready {
            return None;
        }
        self.idle.retain(|idle| *idle != id);
        self.go(id, SlotState::Busy);
        self.worker(id)
    }

    fn worker(&self, id: SlotId) -> Option<T> {
        self.slots.get(id)?.worker.clone()
    }

    fn take_idle(&mut self) -> Option<T> {
        let id = self.idle.pop()?;
        self.go(id, SlotState::Busy);
        self.slots.get(id)?.worker.clone()
    }

    /// The busy worker with the fewest calls, of those that have this `room`.
    fn take_room(&mut self, room: fn(&Slot<T>) -> usize) -> Option<T> {
        if self.room == 0 {
            return None;
        }
        let roomy = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| room(slot) > 0);
        let (id, _) = roomy.min_by_key(|(_, slot)| slot.prefetched)?;
        self.change(id, |slot| slot.prefetched += 1);
        self.slots.get(id)?.worker.clone()
    }

    /// A worker has announced itself.
    pub(crate) fn enter(&mut self, id: SlotId, worker: T, now: Instant) -> Freed<C> {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.worker = Some(worker);
        }
        if self.stopping {
            self.go(id, SlotState::Ready);
            self.go(id, SlotState::Stopping);
            return Next::Stop.into();
        }
        self.next(id, now)
    }

    /// A worker has finished its call and asks what to do next; of calls ahead it may have so many
    /// from now on.
    pub(crate) fn freed(&mut self, id: SlotId, now: Instant, prefetch: PrefetchLimits) -> Freed<C> {
        let has_ahead = self.slots.get(id).is_some_and(|slot| slot.prefetched > 0);
        self.change(id, |slot| {
            slot.prefetched = slot.prefetched.saturating_sub(1);
            slot.prefetch = prefetch;
        });
        match self.state(id) {
            // It goes on with those: they are as good as begun.
            SlotState::Draining if has_ahead => Next::Wait.into(),
            SlotState::Draining => {
                self.go(id, SlotState::Stopping);
                Next::Stop.into()
            }
            SlotState::Busy if has_ahead => self.only_ahead(id, now),
            SlotState::Empty
            | SlotState::Booting
            | SlotState::Ready
            | SlotState::Busy
            | SlotState::Stopping
            | SlotState::Failed => self.next(id, now),
        }
    }

    /// A worker has answered and has little left to do: until it is [freed](Self::freed) it may
    /// have so many calls ahead.
    pub(crate) fn winds_down(
        &mut self,
        id: SlotId,
        now: Instant,
        prefetch: PrefetchLimits,
    ) -> Freed<C> {
        self.change(id, |slot| slot.prefetch = prefetch);
        self.only_ahead(id, now)
    }

    /// Calls for after those that this worker has.
    fn only_ahead(&mut self, id: SlotId, now: Instant) -> Freed<C> {
        let mut freed = Freed::from(Next::Wait);
        freed.prefetched = self.next_ahead(id, now, &mut freed.late);
        freed
    }

    /// The next waiting call for this worker, and more if it may have them; those whose wait is
    /// over are passed over and come back.
    fn next(&mut self, id: SlotId, now: Instant) -> Freed<C> {
        let mut late = Vec::new();
        if let Some(call) = self.pop(id, now, &mut late) {
            self.go(id, SlotState::Busy);
            let ahead = self.next_ahead(id, now, &mut late);
            return Freed {
                late,
                next: Next::Run(call),
                prefetched: ahead,
            };
        }
        self.go(id, SlotState::Ready);
        self.idle.push(id);
        Freed {
            late,
            ..Next::Wait.into()
        }
    }

    /// Its share of those that wait, at least one: a worker with room comes back soon, and until
    /// then others take theirs.
    fn next_ahead(&mut self, id: SlotId, now: Instant, late: &mut Vec<C>) -> Vec<C> {
        let room = self.slots.get(id).map_or(0, Slot::room);
        let share = self.queue.len().div_ceil(self.slots.len().max(1));
        let mut ahead = Vec::new();
        while ahead.len() < room.min(share)
            && let Some(call) = self.pop(id, now, late)
        {
            ahead.push(call);
        }
        self.change(id, |slot| slot.prefetched += ahead.len());
        ahead
    }

    fn pop(&mut self, id: SlotId, now: Instant, late: &mut Vec<C>) -> Option<C> {
        while let Some((ticket, call)) = self.queue.pop_for(id, now) {
            if ticket.until <= now {
                late.push(call);
                continue;
            }
            if let Some(affinity) = ticket.affinity {
                self.belongs(affinity, id);
            }
            return Some(call);
        }
        None
    }

    /// How many calls busy workers would take for when they are done with those they have.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    /// A worker has so many calls less ahead, and gets no other one before it is
    /// [freed](Self::freed).
    pub(crate) fn took_back(&mut self, id: SlotId, calls: usize) {
        self.change(id, |slot| {
            slot.prefetched = slot.prefetched.saturating_sub(calls);
            slot.prefetch = PrefetchLimits::default();
        });
    }

    /// Gives a slot no further call.
    pub(crate) fn drain(&mut self, id: SlotId) -> Drained<C, T> {
        let mut drained = Drained {
            idle: None,
            moved: Vec::new(),
        };
        match self.state(id) {
            SlotState::Ready => {
                self.idle.retain(|idle| *idle != id);
                self.go(id, SlotState::Stopping);
                drained.idle = self.worker(id);
                drained.moved = self.end_tenure(id);
            }
            SlotState::Busy => {
                self.go(id, SlotState::Draining);
                drained.moved = self.end_tenure(id);
            }
            SlotState::Empty
            | SlotState::Booting
            | SlotState::Draining
            | SlotState::Stopping
            | SlotState::Failed => {}
        }
        drained
    }

    /// The process of a slot is gone. Calls that waited for it alone, and that other workers run
    /// now.
    pub(crate) fn vacate(&mut self, id: SlotId) -> Vec<(T, C)> {
        self.idle.retain(|idle| *idle != id);
        self.change(id, |slot| {
            slot.worker = None;
            slot.prefetched = 0;
            slot.prefetch = PrefetchLimits::default();
        });
        if self.state(id) != SlotState::Empty {
            self.go(id, SlotState::Empty);
        }
        self.end_tenure(id)
    }

    /// A process is being started for an empty or failed slot.
    pub(crate) fn booting(&mut self, id: SlotId) {
        self.go(id, SlotState::Booting);
    }

    /// It did not come up. When no slot is left that could take a call, those that wait come back.
    pub(crate) fn failed(&mut self, id: SlotId) -> Vec<C> {
        self.go(id, SlotState::Failed);
        if self.all_failed() {
            return self.queue.drain();
        }
        Vec::new()
    }

    /// The caller of a waiting call has left. One that is to run all the same stays, if there is
    /// room for such calls.
    pub(crate) fn withdraw(&mut self, priority: u8, seq: u64, runs_alone: bool) -> Option<C> {
        if runs_alone && self.queue.leave(priority, seq) {
            return None;
        }
        self.queue.forget(priority, seq)
    }

    /// Calls whose wait is over, and when to look again.
    pub(crate) fn expire(&mut self, now: Instant) -> (Vec<C>, Option<Instant>) {
        (self.queue.expire(now), self.queue.next_expiry())
    }

    /// No further call. Those that wait come back; workers are drained one by one with
    /// [`drain`](Self::drain).
    pub(crate) fn stop(&mut self) -> Vec<C> {
        self.stopping = true;
        self.queue.drain()
    }

    /// Pairs calls that wait with workers that are free. There are none, unless a step above has a
    /// bug: this is the watchdog's, which heals it.
    pub(crate) fn heal(&mut self, now: Instant) -> Vec<(T, C)> {
        let mut healed = Vec::new();
        // By the slots' states, not by the list that may be what is wrong.
        for id in 0..self.slots.len() {
            if self.state(id) != SlotState::Ready {
                continue;
            }
            let Some((_, call)) = self.queue.pop_for(id, now) else {
                continue;
            };
            let worker = self.take_this_idle(id);
            healed.push((worker.expect("a ready slot has a worker"), call));
        }
        healed
    }

    /// Since when the oldest call waits.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.queue.oldest()
    }

    /// Since when calls wait and no worker takes one.
    pub(crate) fn stalled(&self) -> Option<Instant> {
        self.queue.stalled()
    }

    fn all_failed(&self) -> bool {
        self.slots
            .iter()
            .filter(|slot| slot.taken)
            .all(|slot| slot.state == SlotState::Failed)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The number of waiting calls that another worker would help, and the time since which the
    /// oldest of them waits. A call in the line for a worker stays there. Where that worker has
    /// several origins, the next origins would at least choose the other one; but not if they have
    /// a free one to choose.
    pub(crate) fn wanting(&self) -> (usize, Option<Instant>) {
        if !self.idle.is_empty() {
            return (0, None);
        }
        let slots = &self.slots;
        self.queue
            .wanting(|id| slots.get(id).is_some_and(|slot| slot.origins > 1))
    }

    /// Where every place stands, by its number.
    pub(crate) fn all_states(&self) -> Vec<SlotState> {
        self.slots.iter().map(|slot| slot.state).collect()
    }

    /// Where every place that is in use stands.
    pub(crate) fn states(&self) -> Vec<SlotState> {
        self.slots
            .iter()
            .filter(|slot| slot.taken)
            .map(|slot| slot.state)
            .collect()
    }

    pub(crate) fn state(&self, id: SlotId) -> SlotState {
        self.slots
            .get(id)
            .map_or(SlotState::Empty, |slot| slot.state)
    }

    fn go(&mut self, id: SlotId, next: SlotState) {
        let Some(slot) = self.slots.get_mut(id) else {
            return;
        };
        debug_assert!(
            slot.state.may_become(next),
            "slot {id} went from {:?} to {next:?}",
            slot.state
        );
        if !slot.state.may_become(next) {
            tracing::error!(target: "pool", slot = id, from = ?slot.state, to = ?next, "illegal step of a slot");
        }
        self.change(id, |slot| slot.state = next);
    }

    /// Every change that could be one of its room.
    fn change(&mut self, id: SlotId, change: impl FnOnce(&mut Slot<T>)) {
        if let Some(slot) = self.slots.get_mut(id) {
            let (room, before_waking_idle, quick) =
                (slot.room(), slot.before_waking_idle(), slot.is_quick());
            change(slot);
            self.room = self.room - room + slot.room();
            self.before_waking_idle =
                self.before_waking_idle - before_waking_idle + slot.before_waking_idle();
            self.quick = self.quick - usize::from(quick) + usize::from(slot.is_quick());
        }
    }
}

impl<T> Slot<T> {
    /// Calls that it could be given ahead.
    fn room(&self) -> usize {
        self.room_of(self.prefetch.most)
    }

    /// Calls that it is rather given than a worker that is free.
    fn before_waking_idle(&self) -> usize {
        self.room_of(self.prefetch.before_waking_idle)
    }

    /// Calls that it is rather given while there is no processor for a worker that is free.
    fn when_cpus_busy(&self) -> usize {
        self.room_of(self.prefetch.when_cpus_busy)
    }

    /// Whether its worker is up and gets new calls.
    const fn takes_calls(&self) -> bool {
        matches!(self.state, SlotState::Ready | SlotState::Busy)
    }

    fn is_quick(&self) -> bool {
        self.state == SlotState::Busy && self.prefetch.when_cpus_busy > 0
    }

    fn room_of(&self, most: usize) -> usize {
        if self.state == SlotState::Busy {
            most.saturating_sub(self.prefetched)
        } else {
            0
        }
    }
}

/// A worker is free: what it does next, and the calls that were passed over because their wait is
/// over.
#[derive(Debug)]
pub(crate) struct Freed<C> {
    pub(crate) late: Vec<C>,
    pub(crate) next: Next<C>,
    /// Those for later.
    pub(crate) prefetched: Vec<C>,
}

impl<C> From<Next<C>> for Freed<C> {
    fn from(next: Next<C>) -> Self {
        Self {
            late: Vec::new(),
            next,
            prefetched: Vec::new(),
        }
    }
}
