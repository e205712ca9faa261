//! Which pipeline has its turn, and how many are looked at for it.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use super::*;

/// Pipelines with the priorities of their jobs, and what was looked at.
#[derive(Default)]
struct Fakes {
    turns: RefCell<Turns>,
    jobs: RefCell<BTreeMap<String, Vec<i64>>>,
    /// When one has a job of the best priority.
    due: RefCell<BTreeMap<String, Instant>>,
    shared: BTreeSet<String>,
    told: RefCell<BTreeSet<Arc<str>>>,
    looks: Cell<usize>,
}

impl Fakes {
    fn push(&self, pipeline: &str, priorities: &[i64]) {
        let mut jobs = self.jobs.borrow_mut();
        let queue = jobs.entry(pipeline.to_owned()).or_default();
        queue.extend(priorities);
        queue.sort_unstable();
        self.told.borrow_mut().insert(pipeline.into());
    }

    fn idle(&self, count: usize) {
        for number in 0..count {
            self.push(&format!("idle {number:03}"), &[]);
        }
    }

    fn look(&self, name: &str, now: Instant) -> Option<Glance> {
        self.looks.set(self.looks.get() + 1);
        let mut jobs = self.jobs.borrow_mut();
        let queue = jobs.get_mut(name)?;
        let mut due = self.due.borrow_mut();
        if due.get(name).is_some_and(|due| *due <= now) {
            due.remove(name);
            queue.insert(0, i64::MIN);
        }
        Some(Glance {
            head: queue.first().copied(),
            again: due.get(name).copied(),
            is_ours: !self.shared.contains(name),
        })
    }

    fn take_with(&self, ours_alone: bool) -> Option<(String, i64)> {
        let (now, told) = (Instant::now(), self.told.take());
        let take = |name: &str| {
            let mut jobs = self.jobs.borrow_mut();
            let queue = jobs.get_mut(name)?;
            (!queue.is_empty()).then(|| (name.to_owned(), queue.remove(0)))
        };
        let look = |name: &str| self.look(name, now);
        let mut turns = self.turns.borrow_mut();
        turns.take(told, ours_alone, now, look, take)
    }

    fn take(&self) -> Option<(String, i64)> {
        self.take_with(false)
    }

    fn takes(&self, count: usize) -> String {
        let taken = std::iter::from_fn(|| self.take()).take(count);
        taken.map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    }

    /// How often pipelines are looked at for so many jobs, each of which tells of its end.
    fn looks_for(&self, jobs: usize) -> usize {
        let before = self.looks.get();
        for _ in 0..jobs {
            let (pipeline, _) = self.take().expect("there are enough");
            self.push(&pipeline, &[]);
        }
        self.looks.get() - before
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_takes_the_same_looks_beside_any_number_of_idle_pipelines() {
    let looks = [0, 900].map(|idle| {
        let fakes = Fakes::default();
        fakes.idle(idle);
        fakes.push("busy", &[10; 101]);
        fakes
            .take()
            .expect("the first one, for which all are looked at");
        fakes.looks_for(100)
    });
    assert_eq!(looks[0], looks[1]);
    assert!(looks[1] <= 200, "{looks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_takes_as_many_looks_where_all_pipelines_have_some() {
    let fakes = Fakes::default();
    for number in 0..900 {
        fakes.push(&format!("busy {number:03}"), &[10, 10]);
    }
    fakes
        .take()
        .expect("the first one, for which all are looked at");
    let looks = fakes.looks_for(1000);
    // One that has had its last job is looked at when its turn comes again.
    assert!(looks <= 3000, "{looks}");
}

#[tokio::test(start_paused = true)]
async fn equal_ones_take_turns_and_the_best_one_has_nearly_all() {
    let fakes = Fakes::default();
    for name in ["a", "b", "c"] {
        fakes.push(name, &[10; 20]);
    }
    assert_eq!(fakes.takes(7), "a b c a b c a");
    assert_eq!(fakes.takes(1), "b");
    fakes.push("urgent", &[1; 20]);
    let taken = fakes.takes(16);
    assert_eq!(
        taken,
        "urgent urgent urgent urgent urgent urgent urgent a \
         urgent urgent urgent urgent urgent urgent urgent a"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_its_time_is_looked_at_then() {
    let fakes = Fakes::default();
    let due = Instant::now() + Duration::from_secs(5);
    fakes.due.borrow_mut().insert("later".to_owned(), due);
    fakes.push("later", &[]);
    fakes.push("now", &[5, 5]);
    assert_eq!(fakes.take(), Some(("now".to_owned(), 5)));
    assert_eq!(fakes.turns.borrow().next_due(), Some(due));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(fakes.take(), Some(("later".to_owned(), i64::MIN)));
    assert_eq!(fakes.turns.borrow().next_due(), None);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_lost_its_job_unnoticed_is_passed_over() {
    let fakes = Fakes::default();
    for name in ["cleared", "destroyed", "other"] {
        fakes.push(name, &[1, 1, 1]);
    }
    assert_eq!(fakes.takes(1), "cleared");
    fakes.jobs.borrow_mut().remove("destroyed");
    fakes
        .jobs
        .borrow_mut()
        .insert("cleared".to_owned(), vec![7]);
    // It has only a worse one now.
    assert_eq!(fakes.takes(4), "other other other cleared");
    assert_eq!(fakes.take(), None);
}

#[tokio::test(start_paused = true)]
async fn jobs_that_others_may_have_wait_for_a_free_worker() {
    let fakes = Fakes {
        shared: ["engine".to_owned()].into(),
        ..Fakes::default()
    };
    fakes.push("engine", &[1]);
    fakes.push("ours", &[10]);
    assert_eq!(fakes.take_with(true), Some(("ours".to_owned(), 10)));
    assert_eq!(fakes.take_with(true), None);
    assert_eq!(fakes.turns.borrow().shared().len(), 1);
    assert_eq!(fakes.take(), Some(("engine".to_owned(), 1)));
}
