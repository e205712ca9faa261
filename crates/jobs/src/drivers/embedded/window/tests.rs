//! The window beside a store that is a map: whatever happens in whatever order, each job comes
//! once.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::drivers::Ticket;

#[derive(Clone, Copy, Debug)]
enum Step {
    Push {
        priority: i64,
        count: usize,
    },
    PushLater {
        due: u64,
        count: usize,
    },
    Take,
    Ack,
    Release,
    /// One of those in the store, wherever it is.
    TakeThis {
        place: usize,
    },
    /// Behind the others.
    Requeue,
    /// The loader's next read.
    Load,
    /// A commit of which nobody knows what it did; it did it.
    FailedPush {
        priority: i64,
    },
    Time {
        to: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..5i64, 1..12usize).prop_map(|(priority, count)| Step::Push { priority, count }),
        2 => (0..100u64, 1..12usize).prop_map(|(due, count)| Step::PushLater { due, count }),
        8 => Just(Step::Take),
        5 => Just(Step::Ack),
        2 => Just(Step::Release),
        2 => (0..40usize).prop_map(|place| Step::TakeThis { place }),
        2 => Just(Step::Requeue),
        6 => Just(Step::Load),
        1 => (0..5i64).prop_map(|priority| Step::FailedPush { priority }),
        1 => (0..100u64).prop_map(|to| Step::Time { to }),
    ];
    prop::collection::vec(step, 1..120)
}

struct Model {
    window: Window,
    record: Record,
    store: BTreeMap<Vec<u8>, Entry>,
    taken: Vec<Ticket>,
    now: u64,
}

const PIPELINE: &str = "p";

impl Model {
    fn new() -> Self {
        let mut window = Window::new();
        let record = Record::default();
        window.begin(record, Vec::new());
        window.pause(false);
        Self {
            window,
            record,
            store: BTreeMap::new(),
            taken: Vec::new(),
            now: 0,
        }
    }

    fn store(&mut self, priority: i64, due: Option<u64>) -> Entry {
        let delay = due.map_or(0, |due| (due + 1).saturating_sub(self.now).max(1));
        let job = Job {
            priority,
            delay: Duration::from_millis(delay),
            ..Job::default()
        };
        let key = self.record.add(PIPELINE, &job, self.now);
        let entry = Entry {
            key,
            job: Arc::new(job),
            since: self.now,
        };
        self.store.insert(entry.key.bytes().to_vec(), entry.clone());
        entry
    }

    fn push(&mut self, count: usize, priority: i64, due: Option<u64>) {
        let entries = (0..count).map(|_| self.store(priority, due)).collect();
        self.window.pushed(self.record, entries);
    }

    fn take(&mut self) -> bool {
        let Some(delivery) = self.window.take(self.now) else {
            return false;
        };
        self.taken.push(delivery.ticket);
        self.check();
        true
    }

    fn take_this(&mut self, place: usize) {
        let Some(entry) = self.store.values().nth(place).cloned() else {
            return;
        };
        if let Some(delivery) = self.window.take_this(entry) {
            self.taken.push(delivery.ticket);
        }
        self.check();
    }

    fn check(&self) {
        let keys = self
            .window
            .reserved
            .values()
            .map(|entry| entry.key.bytes().to_vec());
        let distinct: BTreeSet<_> = keys.collect();
        assert_eq!(
            distinct.len(),
            self.taken.len(),
            "one job is with two workers"
        );
        for key in &distinct {
            assert!(self.store.contains_key(key), "it came after its end");
        }
    }

    fn settle(&mut self, again: bool) {
        let Some(ticket) = self.taken.pop() else {
            return;
        };
        let entry = self.window.reserved(ticket).unwrap();
        self.store.remove(entry.key.bytes());
        self.record.remove(&entry.key.kind);
        let next = again.then(|| self.store(entry.job.priority, None));
        self.window.settled(ticket);
        self.window.pushed(self.record, next.into_iter().collect());
    }

    fn load(&mut self) -> bool {
        let Some(load) = self.window.next_load() else {
            return false;
        };
        match load {
            Load::All => {
                let kinds = self.store.values().map(|entry| entry.key.kind);
                let priorities = kinds.filter_map(|kind| match kind {
                    Kind::Ready { priority } => Some(priority),
                    Kind::Delayed { .. } => None,
                });
                let priorities: BTreeSet<i64> = priorities.collect();
                self.window
                    .begin(self.record, priorities.into_iter().collect());
            }
            Load::Ready { priority, behind } => {
                let (entries, more) = self.chunk(&Key::ready(PIPELINE, priority, behind));
                self.window.loaded_ready(priority, entries, more);
            }
            Load::Delayed { behind } => {
                let (entries, more) = self.chunk(&Key::delayed(PIPELINE, behind.0, behind.1));
                self.window.loaded_delayed(entries, more);
            }
        }
        true
    }

    fn chunk(&self, from: &Key) -> (Vec<Entry>, bool) {
        let behind = (Bound::Excluded(from.bytes().to_vec()), Bound::Unbounded);
        let same = |entry: &&Entry| match (entry.key.kind, from.kind) {
            (Kind::Ready { priority: a }, Kind::Ready { priority: b }) => a == b,
            (a, b) => matches!((a, b), (Kind::Delayed { .. }, Kind::Delayed { .. })),
        };
        let found = self.store.range(behind).map(|(_, entry)| entry);
        let mut found: Vec<Entry> = found.filter(same).take(CHUNK + 1).cloned().collect();
        let more = found.len() > CHUNK;
        found.truncate(CHUNK);
        (found, more)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Push { priority, count } => self.push(count, priority, None),
            Step::PushLater { due, count } => self.push(count, 1, Some(due)),
            Step::Take => _ = self.take(),
            Step::Ack => self.settle(false),
            Step::TakeThis { place } => self.take_this(place),
            Step::Requeue => self.settle(true),
            Step::Load => _ = self.load(),
            Step::Release => {
                if let Some(ticket) = self.taken.pop() {
                    self.window.put_back(ticket);
                }
            }
            Step::FailedPush { priority } => {
                self.store(priority, None);
                self.window.forget();
            }
            Step::Time { to } => self.now = self.now.max(to),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn each_job_of_the_store_comes_once(steps in steps()) {
        let mut model = Model::new();
        for step in steps {
            model.step(step);
            prop_assert!(model.window.delayed.len() <= HIGH + 1);
            prop_assert!(model.window.ready.len() <= MOST + HIGH + CHUNK);
        }
        model.now = 1000;
        while model.load() || model.take() {}
        prop_assert_eq!(model.taken.len(), model.store.len());
        let stat = model.window.stat(model.now);
        let all = Stat { reserved: model.store.len() as u64, ..Stat::default() };
        prop_assert_eq!(stat, all);
        while !model.taken.is_empty() {
            model.settle(false);
        }
        prop_assert_eq!(model.window.stat(model.now), Stat::default());
        prop_assert!(model.window.reach.is_empty() && model.window.bytes == 0);
    }
}
