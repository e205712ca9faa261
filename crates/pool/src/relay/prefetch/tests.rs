use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::tuning::{LONGEST, MANY, SHORT};
use super::*;

/// An event in the life of a worker and its calls.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The pool gives a call for later.
    Given,
    /// There is room for this many more calls.
    Send(usize),
    /// The worker goes on to the next call that it finds.
    WorkerBegins,
    /// It answers the call at hand, after so many microseconds; the next one is at hand.
    Answered(u64),
    /// The client of the call at hand leaves; the worker is to pass it over.
    PassedOver,
    /// Something of its body is still to come.
    Streams,
    Reclaim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Given),
        3 => (0..=MANY).prop_map(Step::Send),
        3 => Just(Step::WorkerBegins),
        3 => (0_u64..3000).prop_map(Step::Answered),
        1 => Just(Step::PassedOver),
        1 => Just(Step::Streams),
        1 => Just(Step::Reclaim),
    ]
}

/// The relay and its worker, with numbers for calls.
struct World {
    prefetch: Prefetch<u32>,
    now: Instant,
    given: u32,
    /// Calls for later, in the order in which they were given.
    waiting: VecDeque<u32>,
    at_hand: Option<u32>,
    /// Calls that the worker finds in its memory, and whether each was taken back.
    memory: VecDeque<(u32, bool)>,
    /// The number that the worker has begun last.
    works_at: Option<u32>,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            prefetch: Prefetch::new(true, now),
            now,
            given: 0,
            waiting: VecDeque::new(),
            at_hand: None,
            memory: VecDeque::new(),
            works_at: None,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Given if self.at_hand.is_none() => {
                self.given += 1;
                self.begins(&self.given.into());
            }
            Step::Given => {
                self.given += 1;
                self.waiting.push_back(self.given);
                if !self.prefetch.add(self.given) {
                    self.reclaim();
                }
            }
            Step::Send(room) => self.send(room),
            Step::WorkerBegins => self.worker_begins(),
            Step::Answered(after) => {
                if self.at_hand.is_none() {
                    return;
                }
                self.now += Duration::from_micros(after);
                // It may be at a later one by now.
                let number = self.prefetch.number();
                while self.memory.contains(&(number, false)) {
                    self.worker_begins();
                }
                self.prefetch.heard();
                self.goes_on();
            }
            Step::PassedOver => {
                let number = self.prefetch.number();
                if self.at_hand.is_some()
                    && self.prefetch.may_pass_over()
                    && take_back(&mut self.memory, number)
                {
                    self.goes_on();
                }
            }
            Step::Streams => {
                self.prefetch.may_send(false);
                assert_eq!(self.prefetch.unsent(), None);
            }
            Step::Reclaim => self.reclaim(),
        }
    }

    /// The call at hand has ended: the next one is, if there is one.
    fn goes_on(&mut self) {
        self.prefetch.end(self.now);
        let next = self.prefetch.next();
        assert_eq!(
            next.as_ref().map(|next| next.call),
            self.waiting.pop_front()
        );
        self.at_hand = None;
        if let Some(next) = next {
            self.begins(&next);
        }
    }

    fn begins(&mut self, next: &Prefetched<u32>) {
        self.at_hand = Some(next.call);
        let before = self.prefetch.last_number;
        self.prefetch.begin(self.now, next.sent);
        let number = self.prefetch.number();
        match next.sent {
            Some(sent) => assert_eq!(sent.number, number),
            None => {
                assert_eq!(number, number_after(before));
                self.memory.push_back((number, false));
                self.prefetch.wrote(10);
                assert_eq!(self.prefetch.at_hand(), (number, 10));
            }
        }
        self.prefetch.may_send(true);
    }

    fn send(&mut self, room: usize) {
        for _ in 0..room {
            let Some((number, call)) = self.prefetch.unsent() else {
                return;
            };
            assert!(self.waiting.contains(call));
            self.memory.push_back((number, false));
            self.prefetch.sent(10);
        }
    }

    fn worker_begins(&mut self) {
        while let Some((number, was_taken_back)) = self.memory.pop_front() {
            if !was_taken_back {
                self.works_at = Some(number);
                return;
            }
        }
    }

    fn reclaim(&mut self) {
        let memory = &mut self.memory;
        let back = self.prefetch.take_back(|number| take_back(memory, number));
        for call in back {
            assert_eq!(self.waiting.pop_back(), Some(call), "not from the end");
        }
        assert_eq!(self.prefetch.unsent(), None, "nothing is left to be sent");
    }

    fn check(&self) {
        let calls: Vec<u32> = self.prefetch.waiting.iter().map(|it| it.call).collect();
        assert_eq!(self.waiting, calls, "a call is lost, or is there twice");
        let sent = self.prefetch.waiting.iter().map(|it| it.sent.is_some());
        let sent: Vec<bool> = sent.collect();
        assert!(sent.is_sorted_by(|a, b| a >= b), "out of order: {sent:?}");
        assert_eq!(
            sent.iter().filter(|sent| **sent).count(),
            self.prefetch.sent
        );
        assert_eq!(self.prefetch.patient_until().is_some(), !calls.is_empty());
        // As the extension tells them apart.
        let in_use = self.memory.iter().map(|(number, _)| *number);
        let in_use: Vec<u32> = in_use.chain(self.works_at).collect();
        let told_apart: BTreeSet<u32> = in_use.iter().map(|it| it % MOST_NUMBERS).collect();
        assert_eq!(told_apart.len(), in_use.len(), "{in_use:?}");
        assert!(!in_use.contains(&0));
        let limits = self.prefetch.limits(None);
        assert!(limits.most <= MANY && limits.when_cpus_busy <= limits.most);
        assert!(limits.before_waking_idle <= limits.most);
        assert_eq!(self.prefetch.limits(Some(1)), PrefetchLimits::default());
        assert!(self.prefetch.limits(Some(3)).most <= 2);
    }
}

fn take_back(memory: &mut VecDeque<(u32, bool)>, number: u32) -> bool {
    let found = memory.iter_mut().find(|(there, _)| *there == number);
    found.is_some_and(|(_, was_taken_back)| !std::mem::replace(was_taken_back, true))
}

proptest! {
    #[test]
    fn each_call_is_in_one_place_and_its_number_tells_it_apart(
        steps in prop::collection::vec(step(), 1..200),
        near_the_end: bool,
    ) {
        let mut world = World::new();
        if near_the_end {
            world.prefetch.last_number = u32::MAX - 40;
            world.prefetch.begun = u32::MAX - 40;
        }
        for step in steps {
            world.step(step);
            world.check();
        }
        let left: Vec<u32> = world.prefetch.take_all().into_iter().map(|it| it.call).collect();
        prop_assert_eq!(world.waiting, left);
        prop_assert_eq!(world.prefetch.patient_until(), None);
    }
}

#[test]
fn no_call_is_given_ahead_where_none_can_be_taken_back() {
    let now = Instant::now();
    let mut prefetch = Prefetch::<u32>::new(false, now);
    for _ in 0..100 {
        prefetch.begin(now, None);
        prefetch.end(now);
    }
    assert_eq!(prefetch.limits(None), PrefetchLimits::default());
    assert_eq!(prefetch.wind_down(now, None), None);
}

#[test]
fn what_a_long_call_leaves_is_waited_for_longer() {
    let now = Instant::now();
    for (took, long) in [(Duration::ZERO, false), (LONGEST, true)] {
        let mut prefetch = Prefetch::<u32>::new(true, now);
        let mut end = now;
        for _ in 0..100 {
            prefetch.begin(end, None);
            prefetch.heard();
            end += took;
            prefetch.end(end);
            prefetch.note_rest(SHORT / 10);
        }
        prefetch.begin(end, None);
        let limits = prefetch.wind_down(end, None);
        assert!(
            limits.is_some_and(|limits| limits.before_waking_idle == 1),
            "{limits:?}"
        );
        prefetch.extend([1]);
        let patience = prefetch.patient_until().unwrap() - end;
        let expected = if long { PATIENCE_WITH_REST } else { PATIENCE };
        assert_eq!(patience, expected, "after calls of {took:?}");
        assert!(prefetch.unsent().is_some());
    }
}

#[test]
fn numbers_run_out_until_the_worker_is_heard() {
    let mut world = World::new();
    world.step(Step::Given);
    for _ in 0..MOST_NUMBERS {
        world.prefetch.may_send(true);
        world.step(Step::Given);
        world.step(Step::Send(1));
        world.check();
        world.step(Step::Reclaim);
    }
    assert_eq!(world.memory.len(), MOST_NUMBERS as usize - 1);
    assert!(!world.prefetch.may_pass_over());
    for step in [
        Step::Answered(0),
        Step::Given,
        Step::Answered(0),
        Step::Given,
        Step::Given,
    ] {
        world.step(step);
    }
    world.step(Step::Send(1));
    assert!(world.prefetch.next().unwrap().sent.is_some());
}
