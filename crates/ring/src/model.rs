//! The protocol under every order of its steps, store buffers included. Run by
//! `RUSTFLAGS="--cfg ring_model" cargo test -p pronghorn-ring --release`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use crate::half::{Server, Sleeper, Worker};
use crate::layout::{Parking, Words};

struct Stage {
    words: Words,
    parking: Parking,
    /// What the kernel would hold: whether somebody woke the sleeper.
    futex: AtomicBool,
    bell: AtomicBool,
}

fn stage() -> Arc<Stage> {
    Arc::new(Stage {
        words: Words::new(),
        parking: Parking::new(),
        futex: AtomicBool::new(false),
        bell: AtomicBool::new(false),
    })
}

/// The worker goes to sleep while the server puts something: either it sees that, or it is woken.
#[test]
fn what_the_server_puts_reaches_a_worker_that_goes_to_sleep() {
    loom::model(|| {
        let stage = stage();
        let server = stage.clone();
        let putting = thread::spawn(move || {
            if Server(&server.words).put(5) {
                server.futex.store(true, Ordering::SeqCst);
            }
        });
        let worker = Worker {
            words: &stage.words,
            parking: &stage.parking,
            rung: 0,
        };
        let mut sleeps = false;
        if worker.server_has_put() == 0 {
            worker.announce();
            sleeps = worker.server_has_put() == 0;
        }
        putting.join().unwrap();
        assert!(
            !sleeps || stage.futex.load(Ordering::SeqCst),
            "it sleeps for ever"
        );
    });
}

/// The server's thread goes to sleep while the worker puts something.
#[test]
fn what_the_worker_puts_reaches_a_thread_that_goes_to_sleep() {
    loom::model(|| {
        let stage = stage();
        let theirs = stage.clone();
        let putting = thread::spawn(move || {
            let mut worker = Worker {
                words: &theirs.words,
                parking: &theirs.parking,
                rung: 0,
            };
            if worker.put(5) {
                theirs.bell.store(true, Ordering::SeqCst);
            }
        });
        let sleeper = Sleeper(&stage.parking);
        sleeper.announce();
        let sleeps = Server(&stage.words).worker_has_put() == 0;
        putting.join().unwrap();
        assert!(
            !sleeps || stage.bell.load(Ordering::SeqCst),
            "it sleeps for ever"
        );
    });
}

/// The worker takes something while the server, which waits for room, goes to sleep.
#[test]
fn room_that_the_worker_makes_reaches_a_thread_that_goes_to_sleep() {
    loom::model(|| {
        let stage = stage();
        let theirs = stage.clone();
        let taking = thread::spawn(move || {
            let mut worker = Worker {
                words: &theirs.words,
                parking: &theirs.parking,
                rung: 0,
            };
            if worker.taken(5) {
                theirs.bell.store(true, Ordering::SeqCst);
            }
        });
        let server = Server(&stage.words);
        server.want_room(true);
        let mut sleeps = false;
        if server.worker_has_taken() == 0 {
            Sleeper(&stage.parking).announce();
            sleeps = server.worker_has_taken() == 0;
        }
        taking.join().unwrap();
        assert!(
            !sleeps || stage.bell.load(Ordering::SeqCst),
            "it sleeps for ever"
        );
    });
}
