//! Histories in which each promise is broken, and none.

use super::*;

const KEPT: Rules = Rules {
    attempts: 3,
    is_kept: true,
    is_ours: true,
    at_a_time: 1,
    rate: None,
};

fn at(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

fn span(seconds: u64) -> Span {
    Span {
        sent: at(seconds),
        answered: at(seconds) + Duration::from_millis(10),
    }
}

fn job(id: &str) -> Job {
    Job {
        id: id.to_owned(),
        pipeline: "p".to_owned(),
        ..Job::default()
    }
}

fn push(job: Job, seconds: u64) -> Event {
    Event::Push(job, span(seconds), Pushed::Kept)
}

fn began(id: &str, attempt: u32, seconds: u64) -> Event {
    Event::Began {
        id: id.to_owned(),
        pipeline: "p".to_owned(),
        payload: String::new(),
        attempt,
        at: at(seconds),
    }
}

fn ended(id: &str, attempt: u32, seconds: u64, outcome: Outcome) -> Event {
    Event::Ended {
        id: id.to_owned(),
        attempt,
        at: at(seconds),
        outcome,
    }
}

/// From its push on, which takes four seconds.
fn done(id: &str, seconds: u64) -> Vec<Event> {
    vec![
        push(job(id), seconds),
        began(id, 1, seconds + 2),
        ended(id, 1, seconds + 4, Outcome::Done),
    ]
}

fn rest(left: u64, dead: &[&str]) -> Event {
    Event::Rest {
        left: BTreeMap::from([("p".to_owned(), left)]),
        dead: dead.iter().map(|id| (*id).to_owned()).collect(),
        batches: BTreeSet::new(),
    }
}

fn fault(fault: Fault, seconds: u64) -> Event {
    Event::Fault(fault, span(seconds))
}

fn promises(history: &[Event]) -> Vec<Promise> {
    let broken = broken(history, &|_| KEPT);
    let mut promises: Vec<_> = broken.into_iter().map(|it| it.promise).collect();
    promises.dedup();
    promises
}

/// The first is broken in this history, and nothing else is.
fn breaks(promise: Promise, history: &[&[Event]]) {
    let history = history.concat();
    assert_eq!(
        promises(&history),
        [promise],
        "{:?}",
        broken(&history, &|_| KEPT)
    );
}

fn breaks_nothing(history: &[&[Event]]) {
    let history = history.concat();
    assert_eq!(broken(&history, &|_| KEPT), []);
}

#[test]
fn a_job_that_comes_to_its_end_breaks_nothing() {
    breaks_nothing(&[&done("a", 1), &done("b", 6), &[rest(0, &[])]]);
    let tried_again = [
        push(job("a"), 1),
        began("a", 1, 2),
        ended("a", 1, 3, Outcome::Failed),
        began("a", 2, 4),
        ended("a", 2, 5, Outcome::Again),
        began("a", 2, 6),
        ended("a", 2, 7, Outcome::Failed),
        began("a", 3, 8),
        ended("a", 3, 9, Outcome::Failed),
    ];
    breaks_nothing(&[&tried_again, &[rest(0, &["a"])]]);
}

#[test]
fn what_is_lost_or_left_is_found() {
    breaks(Promise::NoLoss, &[&[push(job("a"), 1), rest(0, &[])]]);
    breaks(Promise::Rest, &[&done("a", 1), &[rest(1, &[])]]);
    let cleared = Event::Cleared("p".to_owned(), span(3), Some(1));
    breaks_nothing(&[&[push(job("a"), 1), cleared.clone(), rest(0, &[])]]);
    let two = [push(job("a"), 1), push(job("b"), 2), cleared, rest(0, &[])];
    breaks(Promise::NoLoss, &[&two]);
    let before = Event::Cleared("p".to_owned(), span(3), Some(9));
    breaks(
        Promise::NoLoss,
        &[&[before, push(job("a"), 5), rest(0, &[])]],
    );
    let perhaps = Event::Cleared("p".to_owned(), span(3), None);
    breaks_nothing(&[&[push(job("a"), 1), perhaps.clone(), rest(0, &[])]]);
    breaks(
        Promise::NoLoss,
        &[&[perhaps, push(job("a"), 5), rest(0, &[])]],
    );
    let unanswered = Event::Push(job("a"), span(1), Pushed::Unknown);
    breaks_nothing(&[&[unanswered, rest(0, &[])]]);
    let of_memory = [
        push(job("a"), 1),
        fault(Fault::ServerKilled, 2),
        rest(0, &[]),
    ];
    let memory = Rules {
        is_kept: false,
        ..KEPT
    };
    assert_eq!(broken(&of_memory, &|_| memory), []);
    breaks(Promise::NoLoss, &[&of_memory]);
}

#[test]
fn what_nobody_has_pushed_is_found() {
    breaks(
        Promise::NoGhost,
        &[&[began("a", 1, 2), ended("a", 1, 3, Outcome::Done)]],
    );
    let refused = Event::Push(job("a"), span(1), Pushed::Refused);
    let ran = [began("a", 1, 2), ended("a", 1, 3, Outcome::Done)];
    breaks(Promise::NoGhost, &[&[refused], &ran]);
    let other = Job {
        payload: "other".to_owned(),
        ..job("a")
    };
    breaks(Promise::AsPushed, &[&[push(other, 1)], &ran]);
}

#[test]
fn a_job_that_runs_twice_is_found_unless_something_broke_it_off() {
    let twice = [push(job("a"), 1), began("a", 1, 10), began("a", 1, 20)];
    let end = [ended("a", 1, 25, Outcome::Done)];
    breaks(Promise::Once, &[&twice, &end]);
    breaks_nothing(&[&twice, &end, &[fault(Fault::WorkerKilled, 15)]]);
    breaks(
        Promise::Once,
        &[&twice, &end, &[fault(Fault::Handover, 15)]],
    );
    let again = [began("a", 1, 30), ended("a", 1, 31, Outcome::Done)];
    breaks(Promise::NoneAfterItsEnd, &[&done("a", 1), &again]);
    breaks_nothing(&[&done("a", 1), &again, &[fault(Fault::ServerKilled, 5)]]);
}

#[test]
fn attempts_that_begin_anew_are_found() {
    let first = [
        push(job("a"), 1),
        began("a", 1, 2),
        ended("a", 1, 3, Outcome::Failed),
    ];
    breaks(
        Promise::Attempts,
        &[&first, &[began("a", 1, 4), ended("a", 1, 5, Outcome::Done)]],
    );
    breaks(
        Promise::Attempts,
        &[&first, &[began("a", 3, 4), ended("a", 3, 5, Outcome::Done)]],
    );
    breaks(Promise::Attempts, &[&[push(job("a"), 1), began("a", 4, 2)]]);
    breaks(Promise::DeadLetters, &[&first, &[rest(0, &["a"])]]);
    let all = [
        began("a", 2, 4),
        ended("a", 2, 5, Outcome::Failed),
        began("a", 3, 6),
        ended("a", 3, 7, Outcome::Failed),
    ];
    breaks(Promise::DeadLetters, &[&first, &all, &[rest(0, &[])]]);
    breaks_nothing(&[&first, &all, &[rest(0, &["a"])]]);
    // It waits until the disk takes dead letters, and is cleared.
    let cleared = Event::Cleared("p".to_owned(), span(8), Some(1));
    let no_letter = [fault(Fault::Disk, 7), cleared, rest(0, &[])];
    breaks_nothing(&[&first, &all, &no_letter]);
    let lost = [fault(Fault::Disk, 7), rest(0, &[])];
    breaks(Promise::NoLoss, &[&first, &all, &lost]);
}

#[test]
fn what_comes_too_early_or_out_of_order_is_found() {
    let later = Job {
        delay: at(10),
        ..job("a")
    };
    let ran = [began("a", 1, 5), ended("a", 1, 6, Outcome::Done)];
    breaks(Promise::NotEarly, &[&[push(later, 1)], &ran]);
    let reversed = [
        push(job("a"), 1),
        push(job("b"), 2),
        began("b", 1, 3),
        ended("b", 1, 4, Outcome::Done),
        began("a", 1, 5),
        ended("a", 1, 6, Outcome::Done),
    ];
    breaks(Promise::Order, &[&reversed]);
    let side_by_side = Rules {
        at_a_time: 4,
        ..KEPT
    };
    assert_eq!(broken(&reversed, &|_| side_by_side), []);
    let urgent = Job {
        priority: -1,
        ..job("b")
    };
    let mut by_priority = reversed.to_vec();
    by_priority[1] = push(urgent, 2);
    breaks_nothing(&[&by_priority]);
}

#[test]
fn what_a_clock_that_was_set_explains_is_no_fault() {
    let later = Job {
        delay: at(5),
        ..job("a")
    };
    let early = [
        push(later, 1),
        began("a", 1, 5),
        ended("a", 1, 6, Outcome::Done),
    ];
    let set = [fault(Fault::ClockSet, 2)];
    breaks(Promise::NotEarly, &[&early, &set]);
    breaks_nothing(&[&early, &set, &[fault(Fault::Handover, 3)]]);
    let short = Job {
        expires: Some(at(2)),
        ..job("a")
    };
    let late = [
        push(short, 1),
        began("a", 1, 6),
        ended("a", 1, 7, Outcome::Done),
    ];
    breaks(Promise::Expires, &[&late]);
    breaks_nothing(&[&late, &set]);
    breaks(
        Promise::Once,
        &[
            &[push(job("a"), 1), began("a", 1, 2), began("a", 1, 3)],
            &set,
        ],
    );
}

#[test]
fn more_than_a_rate_allows_is_found() {
    let history = [1, 2, 3, 4].map(|seconds| {
        let id = seconds.to_string();
        let end = ended(&id, 1, seconds, Outcome::Done);
        [push(job(&id), 0), began(&id, 1, seconds), end]
    });
    let of = |jobs, seconds| {
        let rules = Rules {
            at_a_time: 9,
            rate: Some((jobs, at(seconds))),
            ..KEPT
        };
        broken(&history.concat(), &|_| rules)
    };
    assert_eq!(of(3, 4), []);
    let found = of(3, 5);
    assert_eq!(found[0].promise, Promise::Rate, "{found:?}");
}

#[test]
fn what_runs_although_it_was_told_not_to_is_found() {
    let paused = Event::Paused("p".to_owned(), span(2));
    let resumed = Event::Resumed("p".to_owned(), span(4));
    let ran = [
        push(job("a"), 1),
        began("a", 1, 5),
        ended("a", 1, 6, Outcome::Done),
    ];
    breaks(Promise::Pause, &[&ran, std::slice::from_ref(&paused)]);
    breaks_nothing(&[&ran, &[paused, resumed]]);
    let destroyed = Event::Destroyed("p".to_owned(), span(2));
    let declared = Event::Declared("p".to_owned(), span(4));
    breaks(Promise::Destroy, &[&ran, std::slice::from_ref(&destroyed)]);
    breaks_nothing(&[&ran, &[destroyed, declared]]);
    let cleared = Event::Cleared("p".to_owned(), span(2), Some(1));
    let end = [fault(Fault::Handover, 2), cleared, rest(0, &[])];
    breaks(Promise::Clear, &[&ran, &end]);
    let in_memory = Rules {
        is_kept: false,
        ..KEPT
    };
    let moved = [&ran[..], &end].concat();
    assert_eq!(broken(&moved, &|_| in_memory), []);
    let without = [&ran[..], &end[1..]].concat();
    assert_eq!(broken(&without, &|_| in_memory).len(), 1);
    let cancelled = |when| [Event::Cancelled("a".to_owned(), span(2), when)];
    breaks(Promise::Cancel, &[&ran, &cancelled(Cancel::BeforeItBegan)]);
    breaks_nothing(&[&ran, &cancelled(Cancel::Sometime)]);
}

#[test]
fn keys_that_are_void_or_held_by_nobody_are_found() {
    let with_key = |id: &str| Job {
        key: Some("k".to_owned()),
        ..job(id)
    };
    let runs = |id: &str, seconds| {
        [
            began(id, 1, seconds),
            ended(id, 1, seconds + 1, Outcome::Done),
        ]
    };
    let (a, b) = (push(with_key("a"), 1), push(with_key("b"), 2));
    breaks(
        Promise::Unique,
        &[&[a.clone(), b], &runs("a", 10), &runs("b", 12)],
    );
    breaks_nothing(&[
        &[a.clone(), push(with_key("b"), 12)],
        &runs("a", 10),
        &runs("b", 13),
    ]);
    let duplicate = |seconds| {
        Event::Push(
            with_key("b"),
            span(seconds),
            Pushed::Duplicate("a".to_owned()),
        )
    };
    breaks_nothing(&[&[a.clone(), duplicate(2)], &runs("a", 10)]);
    breaks(Promise::Duplicates, &[&[a, duplicate(20)], &runs("a", 10)]);
}

#[test]
fn the_last_of_a_batch_that_does_not_wait_is_found() {
    let part = Job {
        batch: Some("b".to_owned()),
        ..job("a")
    };
    let last = Job {
        last_of: Some("b".to_owned()),
        ..job("b")
    };
    let pushed = [push(part, 1), push(last, 1)];
    let run = |id: &str, seconds| {
        [
            began(id, 1, seconds),
            ended(id, 1, seconds + 1, Outcome::Done),
        ]
    };
    breaks(Promise::Batch, &[&pushed, &run("b", 2), &run("a", 5)]);
    breaks_nothing(&[&pushed, &run("a", 2), &run("b", 5)]);
}

#[test]
fn the_page_says_each_promise() {
    let page = include_str!("../../../../docs/internals/queue-model.md");
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let named: Vec<&str> = rows.collect();
    let all: Vec<_> = Promise::ALL.iter().map(|promise| promise.name()).collect();
    assert_eq!(named, all);
}

#[test]
fn a_job_that_counts_as_done_when_it_begins_runs_once_and_its_batch_ends() {
    let once = |id: &str| Job {
        auto_ack: true,
        ..job(id)
    };
    let rules = |_: &str| KEPT;
    let promises = |history: &[Event]| {
        let all = broken(history, &rules);
        all.into_iter().map(|it| it.promise).collect::<Vec<_>>()
    };
    let lost = [push(once("a"), 1), began("a", 1, 2), rest(0, &[])];
    assert_eq!(promises(&lost), []);
    let killed = |seconds| Event::Fault(Fault::WorkerKilled, span(seconds));
    let again = [
        push(once("a"), 1),
        began("a", 1, 2),
        killed(3),
        began("a", 1, 4),
    ];
    assert_eq!(promises(&again), [Promise::AutoAck]);
    let dead = [
        push(once("a"), 1),
        began("a", 1, 2),
        killed(3),
        rest(0, &["a"]),
    ];
    assert_eq!(promises(&dead)[..], [Promise::AutoAck]);
    let last = Job {
        last_of: Some("b".to_owned()),
        ..job("b")
    };
    let open = Event::Rest {
        left: BTreeMap::new(),
        dead: BTreeSet::new(),
        batches: BTreeSet::from(["b".to_owned()]),
    };
    assert!(promises(&[push(last, 1), open]).contains(&Promise::Batch));
}
