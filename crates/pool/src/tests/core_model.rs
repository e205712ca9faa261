//! Random steps through the data path's state, compared with what must always hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use crate::affinity::AffinityId;
use crate::call::Refused;
use crate::core::{Admitted, Core, Freed, Next, PrefetchLimits, SlotId, SlotState};
use crate::queue::Ticket;

const SLOTS: usize = 4;
const LIMIT: usize = 5;
const WAIT: u64 = 10;
const MOST_AHEAD: usize = 2;
const PROCESSORS: usize = 2;
/// Origins of calls that belong to one worker.
const ORIGINS: usize = 6;

#[derive(Debug, Clone, Copy)]
enum Step {
    Call,
    /// A call of an origin that has a worker of its own, and no call yet.
    CallOf(usize),
    /// An origin ends, and another one begins.
    Leave(usize),
    /// With what the worker may have ahead from then on.
    Finish(usize, PrefetchLimits),
    /// It has answered, and may have so many until it is done.
    WindDown(usize, PrefetchLimits),
    TakeBack(usize),
    Die(usize),
    Boot(usize),
    BootFails(usize),
    Drain(usize),
    Withdraw(usize),
    Pass(u64),
    Stop,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = any::<usize>();
    let calls = 0..=MOST_AHEAD;
    let prefetch = (calls.clone(), calls.clone(), calls).prop_map(
        |(most, before_waking_idle, when_cpus_busy)| PrefetchLimits {
            most,
            before_waking_idle: before_waking_idle.min(most),
            when_cpus_busy: when_cpus_busy.min(most),
        },
    );
    let which_may_have = (any, prefetch);
    let step = prop_oneof![
        5 => Just(Step::Call),
        5 => any.prop_map(Step::CallOf),
        1 => any.prop_map(Step::Leave),
        6 => which_may_have.clone().prop_map(|(which, prefetch)| Step::Finish(which, prefetch)),
        2 => which_may_have.prop_map(|(which, prefetch)| Step::WindDown(which, prefetch)),
        1 => any.prop_map(Step::TakeBack),
        2 => any.prop_map(Step::Die),
        4 => any.prop_map(Step::Boot),
        1 => any.prop_map(Step::BootFails),
        1 => any.prop_map(Step::Drain),
        2 => any.prop_map(Step::Withdraw),
        2 => (0..12_u64).prop_map(Step::Pass),
        1 => Just(Step::Stop),
    ];
    prop::collection::vec(step, 0..400)
}

type Call = u64;

/// An origin of calls.
#[derive(Debug)]
struct Origin {
    id: AffinityId,
    call: Option<Call>,
    /// The slot of its worker, which has taken calls ever since.
    worker: Option<SlotId>,
}

/// The pool's outside: which worker has which call, who waits, what became of the others.
struct World {
    core: Core<Call, SlotId>,
    now: Instant,
    working: BTreeMap<SlotId, Call>,
    /// Calls that a busy worker has beyond that one.
    ahead: BTreeMap<SlotId, VecDeque<Call>>,
    /// What they may have.
    prefetch: BTreeMap<SlotId, PrefetchLimits>,
    waiting: BTreeSet<Call>,
    origins: Vec<Origin>,
    ended: BTreeSet<Call>,
    next: Call,
    stopped: bool,
}

impl World {
    fn new() -> Self {
        let mut core = Core::new(LIMIT, Duration::from_secs(WAIT), PROCESSORS);
        assert_eq!([(); SLOTS].map(|()| core.add_slot()), [0, 1, 2, 3]);
        let origin = |_| Origin {
            id: core.add_affinity(),
            call: None,
            worker: None,
        };
        Self {
            origins: (0..ORIGINS).map(origin).collect(),
            core,
            now: Instant::now(),
            working: BTreeMap::new(),
            ahead: BTreeMap::new(),
            prefetch: BTreeMap::new(),
            waiting: BTreeSet::new(),
            ended: BTreeSet::new(),
            next: 1,
            stopped: false,
        }
    }

    fn end(&mut self, call: Call) {
        assert!(self.ended.insert(call), "call {call} ended twice");
        if let Some(origin) = self.origin(call) {
            self.origins[origin].call = None;
        }
    }

    /// The origin of the call, if it is for one worker.
    fn origin(&self, call: Call) -> Option<usize> {
        self.origins.iter().position(|it| it.call == Some(call))
    }

    /// The worker that the call of an origin is to have: its own, or the one with the fewest.
    fn worker_of(&self, origin: usize) -> Option<SlotId> {
        let has = self.origins[origin].worker;
        has.or_else(|| {
            let at_work = (0..SLOTS).filter(|slot| self.takes_calls(*slot));
            at_work.min_by_key(|slot| {
                let of = self.origins.iter().filter(|it| it.worker == Some(*slot));
                (of.count(), self.core.state(*slot) == SlotState::Busy)
            })
        })
    }

    fn takes_calls(&self, slot: SlotId) -> bool {
        matches!(self.core.state(slot), SlotState::Ready | SlotState::Busy)
    }

    /// A worker has taken a call, which is for it or for any.
    fn taken(&mut self, slot: SlotId, call: Call) {
        if let Some(origin) = self.origin(call) {
            let worker = self.origins[origin].worker.get_or_insert(slot);
            assert_eq!(*worker, slot, "call {call} is another worker's");
        }
    }

    /// A worker takes no more calls: those that waited for it alone have moved.
    fn moved(&mut self, slot: SlotId, moved: Vec<(SlotId, Call)>) {
        let mut running: BTreeMap<_, _> = moved.into_iter().map(|(to, call)| (call, to)).collect();
        for origin in &mut self.origins {
            if origin.worker != Some(slot) {
                continue;
            }
            origin.worker = None;
            let Some(call) = origin.call.filter(|call| self.waiting.contains(call)) else {
                continue;
            };
            // It has a place in the line of another one, or is with that already.
            origin.worker = self.core.worker_at_work(origin.id);
            assert_ne!(origin.worker, Some(slot), "it takes no more calls");
            if let Some(to) = running.remove(&call) {
                assert_eq!(origin.worker, Some(to));
                self.waiting.remove(&call);
                assert!(self.working.insert(to, call).is_none());
            }
        }
        assert!(running.is_empty(), "{running:?} did not wait for {slot}");
    }

    /// How many workers are busy with quick calls.
    fn quick(&self) -> usize {
        let busy = self
            .working
            .keys()
            .filter(|slot| self.core.state(**slot) == SlotState::Busy);
        busy.filter(|slot| {
            self.prefetch
                .get(slot)
                .is_some_and(|it| it.when_cpus_busy > 0)
        })
        .count()
    }

    fn ticket(&self, seq: u64) -> Ticket {
        Ticket {
            priority: 10,
            seq,
            since: self.now,
            until: self.now + Duration::from_secs(WAIT),
            has_left: false,
            affinity: self.origin(seq).map(|origin| self.origins[origin].id),
        }
    }

    fn admit(&mut self, call: Call, may_be_ahead: bool) {
        let idle = self.states().any(|state| state == SlotState::Ready);
        let origin = self.origin(call);
        let worker = origin.and_then(|origin| self.worker_of(origin));
        let is_ready = worker.is_some_and(|it| self.core.state(it) == SlotState::Ready);
        let admitted = self.core.admit(call, self.ticket(call), may_be_ahead);
        if let Some(origin) = origin
            && !self.stopped
        {
            self.origins[origin].worker = worker;
        }
        match admitted {
            Admitted::Run(worker, given) => {
                assert_eq!(given, call);
                self.taken(worker, call);
                if let Some(before) = self.working.insert(worker, call) {
                    assert!(may_be_ahead, "worker {worker} got a second call");
                    let has = self.ahead.get(&worker).map_or(0, VecDeque::len);
                    let prefetch = self.prefetch.get(&worker).copied().unwrap_or_default();
                    let before_waking_idle = has < prefetch.before_waking_idle;
                    let when_cpus_busy =
                        has < prefetch.when_cpus_busy && self.quick() >= PROCESSORS;
                    assert!(
                        origin.is_some() || before_waking_idle || when_cpus_busy || !idle,
                        "a worker was free"
                    );
                    let others = self.waiting.iter();
                    let mut others = others
                        .filter(|it| origin.is_none() || self.waits_for(**it) == Some(worker));
                    assert_eq!(others.next(), None, "others have waited for longer");
                    self.working.insert(worker, before);
                    self.goes_ahead(worker, call);
                }
            }
            Admitted::Waits(displaced) => {
                assert!(!is_ready, "its worker was free");
                assert!(self.waiting.insert(call));
                if let Some((other, why)) = displaced {
                    assert_eq!(why, Refused::WaitedTooLong, "all have one priority");
                    assert!(origin.is_none() && self.origin(other).is_none());
                    assert!(self.waiting.remove(&other));
                    self.end(other);
                }
            }
            Admitted::Refused(given, why) => {
                assert_eq!(given, call);
                match why {
                    Refused::QueueFull => {
                        assert!(origin.is_none(), "it has a line of its own");
                        assert_eq!(self.waiting_for_any(), LIMIT);
                    }
                    Refused::Stopping => assert!(self.stopped),
                    Refused::NoWorker => {
                        assert!(self.states().all(|state| state == SlotState::Failed));
                    }
                    Refused::WaitedTooLong => panic!("it has not waited"),
                }
                self.end(call);
            }
        }
    }

    /// The worker that alone may have a call.
    fn waits_for(&self, call: Call) -> Option<SlotId> {
        self.origins[self.origin(call)?].worker
    }

    /// Whether another worker would help a call that waits, or the next ones like it.
    fn is_helped(&self, call: Call) -> bool {
        self.waits_for(call).is_none_or(|worker| {
            let of = self.origins.iter().filter(|it| it.worker == Some(worker));
            of.count() > 1
        })
    }

    fn waiting_for_any(&self) -> usize {
        let waiting = self.waiting.iter();
        waiting.filter(|call| self.origin(**call).is_none()).count()
    }

    fn states(&self) -> impl Iterator<Item = SlotState> {
        (0..SLOTS).map(|slot| self.core.state(slot))
    }

    fn goes_ahead(&mut self, worker: SlotId, call: Call) {
        let ahead = self.ahead.entry(worker).or_default();
        ahead.push_back(call);
        let most = self.prefetch.get(&worker).map_or(0, |may| may.most);
        assert!(ahead.len() <= most, "worker {worker} has {ahead:?}");
    }

    fn freed(&mut self, slot: SlotId, freed: Freed<Call>) {
        self.overdue(freed.late);
        match freed.next {
            Next::Run(call) => {
                assert!(self.waiting.remove(&call), "call {call} did not wait");
                self.taken(slot, call);
                assert!(self.working.insert(slot, call).is_none());
            }
            Next::Wait
                if let Some(call) = self.ahead.get_mut(&slot).and_then(VecDeque::pop_front) =>
            {
                assert!(self.working.insert(slot, call).is_none());
            }
            Next::Wait => assert_eq!(self.core.state(slot), SlotState::Ready),
            Next::Stop => assert_eq!(self.core.state(slot), SlotState::Stopping),
        }
        self.go_ahead(slot, freed.prefetched);
    }

    fn overdue(&mut self, late: Vec<Call>) {
        for late in late {
            assert!(self.waiting.remove(&late));
            self.end(late);
        }
    }

    fn go_ahead(&mut self, slot: SlotId, calls: Vec<Call>) {
        for call in calls {
            assert!(self.waiting.remove(&call), "call {call} did not wait");
            self.taken(slot, call);
            self.goes_ahead(slot, call);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Call => {
                let call = self.next;
                self.next += 1;
                self.admit(call, true);
            }
            Step::CallOf(which) => {
                let origin = which % ORIGINS;
                if self.origins[origin].call.is_none() {
                    self.origins[origin].call = Some(self.next);
                    self.step(Step::Call);
                }
            }
            Step::Leave(which) => {
                let origin = which % ORIGINS;
                if self.origins[origin].call.is_none() {
                    self.core.remove_affinity(self.origins[origin].id);
                    let id = self.core.add_affinity();
                    let (call, worker) = (None, None);
                    self.origins[origin] = Origin { id, call, worker };
                }
            }
            Step::Finish(which, prefetch) => {
                if let Some((&slot, &call)) = self.working.iter().nth(which % SLOTS) {
                    self.working.remove(&slot);
                    self.end(call);
                    self.prefetch.insert(slot, prefetch);
                    let freed = self.core.freed(slot, self.now, prefetch);
                    self.freed(slot, freed);
                }
            }
            Step::WindDown(which, prefetch) => {
                if let Some(&slot) = self.working.keys().nth(which % SLOTS) {
                    self.prefetch.insert(slot, prefetch);
                    let freed = self.core.winds_down(slot, self.now, prefetch);
                    assert_eq!(freed.next, Next::Wait);
                    self.overdue(freed.late);
                    self.go_ahead(slot, freed.prefetched);
                }
            }
            Step::TakeBack(which) => {
                if let Some(&slot) = self.working.keys().nth(which % SLOTS) {
                    // The worker may have begun the first of them.
                    let ahead = self.ahead.entry(slot).or_default();
                    let back = ahead.split_off(ahead.len().min(which % 2));
                    self.core.took_back(slot, back.len());
                    self.prefetch.remove(&slot);
                    for call in back {
                        self.admit(call, false);
                    }
                }
            }
            Step::Die(which) => {
                let slot = which % SLOTS;
                let alive = [
                    SlotState::Ready,
                    SlotState::Busy,
                    SlotState::Draining,
                    SlotState::Stopping,
                ];
                if alive.contains(&self.core.state(slot)) {
                    let lost = self.working.remove(&slot);
                    let moved = self.core.vacate(slot);
                    self.moved(slot, moved);
                    self.prefetch.remove(&slot);
                    let ahead = self.ahead.remove(&slot).unwrap_or_default();
                    // As calls that may be repeated: they go to another worker, or are refused.
                    for call in lost.into_iter().chain(ahead) {
                        self.admit(call, false);
                    }
                }
            }
            Step::Boot(which) => {
                let slot = which % SLOTS;
                if matches!(self.core.state(slot), SlotState::Empty | SlotState::Failed) {
                    self.core.booting(slot);
                    let freed = self.core.enter(slot, slot, self.now);
                    self.freed(slot, freed);
                }
            }
            Step::BootFails(which) => {
                let slot = which % SLOTS;
                if matches!(self.core.state(slot), SlotState::Empty | SlotState::Failed) {
                    self.core.booting(slot);
                    for call in self.core.failed(slot) {
                        assert!(self.waiting.remove(&call));
                        self.end(call);
                    }
                }
            }
            Step::Drain(which) => {
                let slot = which % SLOTS;
                let before = self.core.state(slot);
                let drained = self.core.drain(slot);
                if matches!(before, SlotState::Ready | SlotState::Busy) {
                    self.moved(slot, drained.moved);
                }
                assert_eq!(
                    drained.idle.is_some(),
                    before == SlotState::Ready,
                    "only an idle worker is asked at once"
                );
            }
            Step::Withdraw(which) => {
                if let Some(&call) = self.waiting.iter().nth(which % (LIMIT + ORIGINS)) {
                    assert_eq!(self.core.withdraw(10, call, false), Some(call));
                    self.waiting.remove(&call);
                    self.end(call);
                }
            }
            Step::Pass(seconds) => {
                self.now += Duration::from_secs(seconds);
                let (late, _) = self.core.expire(self.now);
                for call in late {
                    assert!(self.waiting.remove(&call));
                    self.end(call);
                }
            }
            Step::Stop => {
                self.stopped = true;
                for call in self.core.stop() {
                    assert!(self.waiting.remove(&call));
                    self.end(call);
                }
            }
        }
    }

    fn check(&self) {
        assert_eq!(
            self.core.waiting(),
            self.waiting.len(),
            "the queue's length"
        );
        let ready = self
            .states()
            .filter(|state| *state == SlotState::Ready)
            .count();
        let free = |slot: SlotId| self.core.state(slot) == SlotState::Ready;
        for call in &self.waiting {
            let may_run = self.waits_for(*call).map_or(ready > 0, free);
            assert!(!may_run, "call {call} waits while its worker is free");
        }
        assert!(self.waiting_for_any() <= LIMIT);
        let helped = self.waiting.iter().filter(|call| self.is_helped(**call));
        let helped = if ready > 0 { 0 } else { helped.count() };
        let (wanting, oldest) = self.core.wanting();
        assert_eq!(wanting, helped, "calls that another worker would help");
        assert_eq!(oldest.is_some(), helped > 0);
        for origin in &self.origins {
            assert_eq!(self.core.worker_at_work(origin.id), origin.worker);
        }
        for slot in 0..SLOTS {
            let busy = matches!(self.core.state(slot), SlotState::Busy | SlotState::Draining);
            assert_eq!(self.working.contains_key(&slot), busy, "slot {slot}");
        }
        let ahead: usize = self.ahead.values().map(VecDeque::len).sum();
        let known = self.working.len() + ahead + self.waiting.len() + self.ended.len();
        assert_eq!(known as u64, self.next - 1, "a call was lost");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_call_is_lost_or_ended_twice_and_none_waits_while_a_worker_is_free(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
    }
}

#[test]
fn the_most_recently_used_worker_is_chosen() {
    let mut world = World::new();
    for slot in 0..3 {
        world.step(Step::Boot(slot));
    }
    world.step(Step::Call);
    let (&slot, _) = world.working.first_key_value().unwrap();
    for _ in 0..5 {
        world.step(Step::Finish(0, PrefetchLimits::default()));
        world.step(Step::Call);
        assert_eq!(world.working.keys().collect::<Vec<_>>(), [&slot]);
    }
}

#[test]
#[should_panic(expected = "slot 0 went from Empty to Ready")]
fn an_illegal_step_is_noticed() {
    let mut world = World::new();
    world.core.enter(0, 0, world.now);
}

#[test]
fn places_are_used_again() {
    let mut core: Core<Call, SlotId> = Core::new(LIMIT, Duration::from_secs(WAIT), PROCESSORS);
    assert_eq!([(); 4].map(|()| core.add_slot()), [0, 1, 2, 3]);
    core.remove_slot(0);
    core.remove_slot(1);
    assert_eq!(core.states().len(), 2);
    assert_eq!([(); 3].map(|()| core.add_slot()), [0, 1, 4]);
}

#[test]
fn a_worker_of_quick_calls_is_given_some_before_another_one_is_woken() {
    let mut world = World::new();
    for slot in 0..2 {
        world.step(Step::Boot(slot));
    }
    world.step(Step::Call);
    let (&slot, _) = world.working.first_key_value().unwrap();
    world.step(Step::Call); // the other one's
    let prefetch = PrefetchLimits {
        most: 3,
        before_waking_idle: 2,
        when_cpus_busy: 0,
    };
    world.step(Step::Finish(slot, prefetch));
    let other = 1 - slot;
    world.step(Step::Finish(other, prefetch));
    let ahead = |world: &World| world.ahead.values().map(VecDeque::len).sum::<usize>();
    world.step(Step::Call);
    assert_eq!((world.working.len(), ahead(&world)), (1, 0));
    for (working, has) in [(1, 1), (1, 2), (2, 2), (2, 3), (2, 4), (2, 5), (2, 6)] {
        world.step(Step::Call);
        assert_eq!((world.working.len(), ahead(&world)), (working, has));
    }
}

#[test]
fn no_worker_is_woken_for_a_quick_call_while_each_processor_has_one_that_runs_such() {
    let mut world = World::new();
    for slot in 0..=PROCESSORS {
        world.step(Step::Boot(slot));
    }
    let prefetch = PrefetchLimits {
        most: 3,
        before_waking_idle: 0,
        when_cpus_busy: 2,
    };
    for _ in 0..=PROCESSORS {
        world.step(Step::Call);
    }
    for _ in 0..=PROCESSORS {
        world.step(Step::Finish(0, prefetch));
    }
    let has = |world: &World| {
        let ahead: usize = world.ahead.values().map(VecDeque::len).sum();
        (world.working.len(), ahead)
    };
    for expected in [
        (1, 0),
        (2, 0),
        (2, 1),
        (2, 2),
        (2, 3),
        (2, 4),
        (3, 4),
        (3, 5),
    ] {
        world.step(Step::Call);
        assert_eq!(has(&world), expected);
    }
}
