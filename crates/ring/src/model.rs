//! The protocol under every order of its steps, store buffers included:
//! `cargo test -p pronghorn-ring --features model`.
//!
//! These are the functions that the server runs. Each scenario is also run with one of the steps
//! left out that look superfluous, and then has to fail.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::half::{Bell, Server, Sleeper, Worker};
use crate::layout::{FOR_BYTES, FOR_ROOM, Parking, Words};
use crate::sync::Step;

thread_local! {
    /// The step that is left out. Loom's threads all run on one of the system's.
    pub(crate) static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
}

struct Stage {
    words: Words,
    parking: Parking,
    /// What the kernel would hold: whether somebody woke the sleeper.
    futex: AtomicBool,
    bell: AtomicBool,
}

impl Stage {
    fn worker(&self) -> Worker<'_> {
        Worker {
            words: &self.words,
            parking: &self.parking,
            bell: Bell::default(),
        }
    }
}

fn stage() -> Arc<Stage> {
    Arc::new(Stage {
        words: Words::new(),
        parking: Parking::new(),
        futex: AtomicBool::new(false),
        bell: AtomicBool::new(false),
    })
}

/// Under every order, one side may only sleep if it is woken.
fn check(scenario: fn(&Arc<Stage>)) {
    loom::model(move || scenario(&stage()));
}

/// As [`check`], and not without any one of the steps.
#[track_caller]
fn check_and_need(steps: &[Step], scenario: fn(&Arc<Stage>)) {
    check(scenario);
    for step in steps {
        LEFT_OUT.set(Some(*step));
        let result = catch_unwind(AssertUnwindSafe(|| check(scenario)));
        LEFT_OUT.set(None);
        assert!(result.is_err(), "{step:?} can be left out");
    }
}

#[test]
fn what_the_server_puts_reaches_a_worker_that_goes_to_sleep() {
    check_and_need(
        &[Step::ServerBarrier, Step::WorkerBarrier, Step::WorkerLook],
        server_puts,
    );
}

fn server_puts(stage: &Arc<Stage>) {
    let server = stage.clone();
    let putting = thread::spawn(move || {
        let half = Server(&server.words);
        half.put(5);
        if half.wakes() {
            server.futex.store(true, Ordering::SeqCst);
        }
    });
    let worker = stage.worker();
    let found = || worker.server_has_put() == 5;
    let sleeps = !found() && worker.sleeps(FOR_BYTES, found);
    putting.join().unwrap();
    assert!(!sleeps || stage.futex.load(Ordering::SeqCst), "for ever");
}

#[test]
fn room_that_the_server_makes_reaches_a_worker_that_waits_for_it() {
    check_and_need(
        &[Step::ServerBarrier, Step::WorkerBarrier, Step::WorkerLook],
        server_takes,
    );
}

fn server_takes(stage: &Arc<Stage>) {
    let server = stage.clone();
    let taking = thread::spawn(move || {
        let half = Server(&server.words);
        if half.taken(5) {
            server.futex.store(true, Ordering::SeqCst);
        }
        // A worker that waits for room is left alone by bytes.
        half.put(5);
        assert!(!half.wakes(), "woken for nothing");
    });
    let worker = stage.worker();
    let found = || worker.server_has_taken() == 5;
    let sleeps = !found() && worker.sleeps(FOR_ROOM, found);
    taking.join().unwrap();
    assert!(!sleeps || stage.futex.load(Ordering::SeqCst), "for ever");
}

/// A call that the worker finds while the server takes it back: one of them has it, and a worker
/// that has it sees it whole.
#[test]
fn a_call_is_begun_or_taken_back_and_never_both() {
    check_and_need(&[Step::ServerTakesBack, Step::WorkerClaims], offered);
}

fn offered(stage: &Arc<Stage>) {
    const CALL: u32 = 37;
    let server = stage.clone();
    let taking_back = thread::spawn(move || {
        let half = Server(&server.words);
        half.offer(CALL);
        half.put(5);
        half.take_back(CALL)
    });
    let worker = stage.worker();
    let found = worker.server_has_put() == 5;
    let begun = found && worker.claims(CALL);
    let taken_back = taking_back.join().unwrap();
    let later = !found && worker.claims(CALL);
    assert!(begun || later || taken_back, "nobody has it");
    assert!(!(taken_back && (begun || later)), "both have it");
}

/// One that is found is offered, or the worker would pass it over.
#[test]
fn a_call_that_is_found_can_be_begun() {
    check(|stage| found(stage, false));
    let late = || check(|stage| found(stage, true));
    assert!(
        catch_unwind(late).is_err(),
        "it can be offered after it was put"
    );
}

fn found(stage: &Arc<Stage>, late: bool) {
    let server = stage.clone();
    let putting = thread::spawn(move || {
        let half = Server(&server.words);
        if late {
            half.put(5);
            half.offer(1);
        } else {
            half.offer(1);
            half.put(5);
        }
    });
    let worker = stage.worker();
    assert!(worker.server_has_put() != 5 || worker.claims(1), "lost");
    putting.join().unwrap();
}

#[test]
fn what_the_worker_puts_reaches_a_thread_that_goes_to_sleep() {
    check_and_need(
        &[
            Step::WorkerPutBarrier,
            Step::ThreadBarrier,
            Step::ThreadLook,
        ],
        worker_puts,
    );
}

fn worker_puts(stage: &Arc<Stage>) {
    let theirs = stage.clone();
    let putting = thread::spawn(move || {
        if theirs.worker().put(5) {
            theirs.bell.store(true, Ordering::SeqCst);
        }
    });
    let server = Server(&stage.words);
    let sleeps = Sleeper(&stage.parking).sleeps(|| server.worker_has_put() == 5);
    putting.join().unwrap();
    assert!(!sleeps || stage.bell.load(Ordering::SeqCst), "for ever");
}

/// What was to be told with the answer to a call, which the server has taken back meanwhile.
#[test]
fn what_the_worker_put_without_a_bell_reaches_the_thread_before_the_worker_sleeps() {
    check_and_need(
        &[
            Step::WorkerPutBarrier,
            Step::WorkerSettles,
            Step::ThreadBarrier,
            Step::ThreadLook,
        ],
        worker_owes,
    );
}

fn worker_owes(stage: &Arc<Stage>) {
    owes(stage, |worker| worker.put_with_next(5, true));
}

/// The same of a reply that may wait for the next.
#[test]
fn a_reply_that_was_put_without_a_bell_reaches_the_thread_before_the_worker_sleeps() {
    check_and_need(
        &[Step::WorkerPutBarrier, Step::WorkerSettles],
        worker_owes_for_a_reply,
    );
}

fn worker_owes_for_a_reply(stage: &Arc<Stage>) {
    Server(&stage.words).set_wakeup_threshold(1);
    owes(stage, |worker| worker.put_reply(5, true));
}

fn owes(stage: &Arc<Stage>, put: fn(&mut Worker<'_>) -> bool) {
    const CALL: u32 = 1;
    Server(&stage.words).offer(CALL);
    let theirs = stage.clone();
    let putting = thread::spawn(move || {
        let mut worker = theirs.worker();
        let mut rings = put(&mut worker);
        let begins = worker.claims(CALL);
        if !begins {
            rings |= worker.settles();
        }
        if rings {
            theirs.bell.store(true, Ordering::SeqCst);
        }
        begins
    });
    let server = Server(&stage.words);
    server.take_back(CALL);
    let sleeps = Sleeper(&stage.parking).sleeps(|| server.worker_has_put() == 5);
    let begins = putting.join().unwrap();
    assert!(
        !sleeps || begins || stage.bell.load(Ordering::SeqCst),
        "for ever"
    );
}

#[test]
fn room_that_the_worker_makes_reaches_a_thread_that_goes_to_sleep() {
    check_and_need(
        &[
            Step::WorkerTakenBarrier,
            Step::ThreadBarrier,
            Step::ThreadLook,
        ],
        worker_takes,
    );
}

fn worker_takes(stage: &Arc<Stage>) {
    let theirs = stage.clone();
    let taking = thread::spawn(move || {
        if theirs.worker().taken(5) {
            theirs.bell.store(true, Ordering::SeqCst);
        }
    });
    let server = Server(&stage.words);
    server.want_room(true);
    let found = || server.worker_has_taken() == 5;
    let sleeps = !found() && Sleeper(&stage.parking).sleeps(found);
    taking.join().unwrap();
    assert!(!sleeps || stage.bell.load(Ordering::SeqCst), "for ever");
}

/// Two sleeps of one thread: the bell that was rung for the first must not stand for the second.
#[test]
fn a_worker_rings_for_each_sleep() {
    check(|stage| {
        let theirs = stage.clone();
        let putting = thread::spawn(move || {
            let mut worker = theirs.worker();
            for put in [5, 6] {
                if worker.put(put) {
                    theirs.bell.store(true, Ordering::SeqCst);
                }
            }
        });
        let server = Server(&stage.words);
        let sleeper = Sleeper(&stage.parking);
        let mut seen = server.worker_has_put();
        if sleeper.sleeps(|| server.worker_has_put() != seen)
            && stage.bell.swap(false, Ordering::SeqCst)
        {
            sleeper.awake();
            seen = server.worker_has_put();
            let sleeps = seen != 6 && sleeper.sleeps(|| server.worker_has_put() != seen);
            putting.join().unwrap();
            assert!(!sleeps || stage.bell.load(Ordering::SeqCst), "for ever");
        } else {
            putting.join().unwrap();
        }
    });
}
