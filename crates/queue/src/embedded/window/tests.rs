//! The window beside a store that is a map: whatever happens in whatever order, each job comes
//! once.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::driver::Ticket;

#[derive(Clone, Copy, Debug)]
enum Step {
    Push {
        priority: i64,
        count: usize,
    },
    PushLater {
        /// None: by an older version.
        lane: Lane,
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
    /// A commit that was to remove one of those in the store; it did not.
    FailedRemoval {
        place: usize,
    },
    GivenUpRemoval {
        place: usize,
    },
    Time {
        to: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..5i64, 1..12usize).prop_map(|(priority, count)| Step::Push { priority, count }),
        2 => (0..3i64, any::<bool>(), 0..100u64, 1..12usize).prop_map(|(priority, old, due, count)| {
            Step::PushLater { lane: (!old).then_some(priority), due, count }
        }),
        8 => Just(Step::Take),
        5 => Just(Step::Ack),
        2 => Just(Step::Release),
        2 => (0..40usize).prop_map(|place| Step::TakeThis { place }),
        2 => Just(Step::Requeue),
        6 => Just(Step::Load),
        1 => (0..5i64).prop_map(|priority| Step::FailedPush { priority }),
        1 => (0..40usize).prop_map(|place| Step::FailedRemoval { place }),
        1 => (0..40usize).prop_map(|place| Step::GivenUpRemoval { place }),
        1 => (0..100u64).prop_map(|to| Step::Time { to }),
    ];
    prop::collection::vec(step, 1..120)
}

struct Model {
    window: Window,
    record: Record,
    store: BTreeMap<Vec<u8>, LoadedJob>,
    taken: Vec<Ticket>,
    now: u64,
}

const PIPELINE: &str = "p";

impl Model {
    fn new() -> Self {
        let mut window = Window::new();
        let record = Record::default();
        window.begin(Survey::default());
        window.pause(false);
        Self {
            window,
            record,
            store: BTreeMap::new(),
            taken: Vec::new(),
            now: 0,
        }
    }

    fn store(&mut self, priority: i64, due: Option<(Lane, u64)>) -> LoadedJob {
        let delay = due.map_or(0, |(_, due)| (due + 1).saturating_sub(self.now).max(1));
        let job = Job {
            priority,
            delay: Duration::from_millis(delay),
            ..Job::default()
        };
        let mut key = self.record.add(PIPELINE, &job, self.now);
        if let (Some((None, _)), Kind::Delayed { due, .. }) = (due, key.kind) {
            key = Key::delayed(PIPELINE, None, due, key.number);
        }
        let entry = LoadedJob {
            key,
            job: Arc::new(job),
            since: self.now,
        };
        self.store.insert(entry.key.bytes().to_vec(), entry.clone());
        entry
    }

    fn push(&mut self, count: usize, priority: i64, due: Option<(Lane, u64)>) {
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
        self.record.remove(&entry.key.kind, &entry.job);
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
                let (mut priorities, mut lanes) = (BTreeSet::new(), BTreeSet::new());
                for entry in self.store.values() {
                    match entry.key.kind {
                        Kind::Ready { priority } => _ = priorities.insert(priority),
                        Kind::Delayed { lane, .. } => _ = lanes.insert(lane),
                    }
                }
                let priorities = priorities.into_iter().collect();
                let lanes = lanes.into_iter().collect();
                self.window.begin(Survey {
                    record: self.record,
                    priorities,
                    lanes,
                    lent: Vec::new(),
                });
            }
            Load::Ready { priority, behind } => {
                let (entries, more) = self.chunk(&Key::ready(PIPELINE, priority, behind), CHUNK);
                self.window.loaded_ready(priority, entries, more);
            }
            Load::Delayed { lane, behind, most } => {
                let from = Key::delayed(PIPELINE, lane, behind.0, behind.1);
                let (entries, more) = self.chunk(&from, most);
                self.window.loaded_delayed(lane, entries, more);
            }
        }
        true
    }

    fn chunk(&self, from: &Key, most: usize) -> (Vec<LoadedJob>, bool) {
        let behind = (Bound::Excluded(from.bytes().to_vec()), Bound::Unbounded);
        let same = |entry: &&LoadedJob| match (entry.key.kind, from.kind) {
            (Kind::Ready { priority: a }, Kind::Ready { priority: b }) => a == b,
            (Kind::Delayed { lane: a, .. }, Kind::Delayed { lane: b, .. }) => a == b,
            _ => false,
        };
        let found = self.store.range(behind).map(|(_, entry)| entry);
        let mut found: Vec<LoadedJob> = found.filter(same).take(most + 1).cloned().collect();
        let more = found.len() > most;
        found.truncate(most);
        (found, more)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Push { priority, count } => self.push(count, priority, None),
            Step::PushLater { lane, due, count } => {
                self.push(count, lane.unwrap_or(1), Some((lane, due)));
            }
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
            Step::FailedRemoval { place } => {
                if let Some(entry) = self.store.values().nth(place) {
                    self.window.withdraw(&entry.key, entry.job.priority);
                    self.window.forget();
                }
            }
            Step::GivenUpRemoval { place } => {
                if let Some(LoadedJob { key, job, .. }) = self.store.values().nth(place)
                    && self.window.withdraw(key, job.priority)
                {
                    self.window.restore(std::slice::from_ref(key));
                }
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
            for waits in model.window.delayed.values() {
                prop_assert!(waits.entries.len() <= HIGH + 1);
            }
            let promoted = 5 * (HIGH + 1);
            prop_assert!(model.window.ready.len() <= MOST + CHUNK + promoted);
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
        prop_assert!(model.window.delayed.is_empty());
    }
}

/// Whatever else waits: low priorities that are due in thousands, and backlogs of several.
#[test]
fn what_is_due_and_urgent_does_not_wait_behind_others_that_are_due() {
    let mut model = Model::new();
    for priority in 5..9 {
        model.push(2 * MOST, priority, None);
        model.push(4 * HIGH, priority, Some((Some(priority), 10)));
        model.push(4 * HIGH, priority, Some((None, 10)));
    }
    model.push(1, 1, Some((Some(1), 20)));
    model.push(1, 6, Some((Some(6), 15)));
    model.now = 100;
    while model.load() {}
    assert!(model.window.next_due().is_some_and(|due| due <= model.now));
    let taken = model.window.take(model.now).expect("there are many");
    assert_eq!(taken.job.priority, 1);
    // One that is due does not wait for a backlog of its own priority either.
    let mut model = Model::new();
    model.push(2 * MOST, 1, None);
    model.push(1, 1, Some((Some(1), 10)));
    model.now = 100;
    let mut came = false;
    for _ in 0..3 {
        let delivery = model.window.take(model.now).expect("there are many");
        let entry = model.window.reserved(delivery.ticket).expect("it is out");
        came |= matches!(entry.key.kind, Kind::Delayed { .. });
    }
    assert!(came);
}

/// The window of a lane goes back when too many jobs wait there. A job that was put back may then
/// be read from the store once more.
#[test]
fn one_that_was_put_back_before_its_time_comes_once() {
    let mut model = Model::new();
    model.push(HIGH, 1, Some((Some(1), 10)));
    model.take_this(HIGH - 1);
    model.step(Step::Release);
    model.push(2, 1, Some((Some(1), 10)));
    model.push(1, 0, None); // goes first
    model.now = 100;
    while model.load() || model.take() {}
    assert_eq!(model.taken.len(), HIGH + 3);
}
