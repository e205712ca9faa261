//! What each side does to the words, step by step: the protocol itself, without memory, threads or
//! system calls. The model checker runs these functions, and so does the server.
//!
//! One rule for both directions: *publish, full barrier, look*. Who has put or taken something
//! passes a full barrier, then looks whether the other side sleeps. Who goes to sleep announces it,
//! passes a full barrier, then looks once more. Without the barriers each side may miss the other's
//! store, which is still in a store buffer, and both wait for ever.

use crate::layout::{AWAKE, FOR_BYTES, FOR_ROOM, Parking, Words};
use crate::sync::{AtomicU32, Ordering, Step, barrier, look, take_away};

/// A count that the other side wrote and that can't be: more was taken than put, or more put than
/// there is room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nonsense;

/// How many bytes lie in a stream. `size` is its room; both counts are of one side's trust, so the
/// difference is checked.
pub(crate) fn there(put: u64, taken: u64, size: usize) -> Result<usize, Nonsense> {
    let there = usize::try_from(put.wrapping_sub(taken)).map_err(|_| Nonsense)?;
    if there > size {
        return Err(Nonsense);
    }
    Ok(there)
}

/// A call's place among those that are offered.
const fn bit_of(call: u32) -> u32 {
    1 << (call % u32::BITS)
}

/// True for the one side that clears it.
fn clears(offered: &AtomicU32, call: u32, step: Step) -> bool {
    let bit = bit_of(call);
    take_away(offered, bit, step) & bit != 0
}

/// The server's side of one box.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Server<'a>(pub(crate) &'a Words);

impl Server<'_> {
    /// Publishes bytes that were written behind `put`. A worker that is awake finds them;
    /// [`wakes`](Self::wakes) says whether one has to be woken, and must be asked before this
    /// thread sleeps.
    pub(crate) fn put(self, put: u64) {
        self.0.down_put.store(put, Ordering::Release);
    }

    /// Whether the worker sleeps for want of bytes and has to be woken.
    pub(crate) fn wakes(self) -> bool {
        self.wakes_from(FOR_BYTES)
    }

    /// A call is about to be put. Before its bytes are published, so that no worker finds it
    /// unoffered.
    pub(crate) fn offer(self, call: u32) {
        self.0.offered.fetch_or(bit_of(call), Ordering::Relaxed);
    }

    /// Takes a call back. False: the worker has it.
    pub(crate) fn take_back(self, call: u32) -> bool {
        clears(&self.0.offered, call, Step::ServerTakesBack)
    }

    /// Says with how many calls that nobody has begun the worker need not ring for a reply; 0: it
    /// rings for each.
    pub(crate) fn set_wakeup_threshold(self, calls: u32) {
        self.0.enough_calls.store(calls, Ordering::Relaxed);
    }

    /// Says whether the worker's calls are quick.
    pub(crate) fn set_fast_calls(self, quick: bool) {
        self.0.quick.store(u32::from(quick), Ordering::Relaxed);
    }

    /// Whether nobody has begun it.
    pub(crate) fn is_offered(self, call: u32) -> bool {
        self.0.offered.load(Ordering::Relaxed) & bit_of(call) != 0
    }

    /// Whether the worker is awake and has calls that it has not begun.
    pub(crate) fn worker_has_calls(self) -> bool {
        self.0.sleep.load(Ordering::Relaxed) == AWAKE && self.0.offered.load(Ordering::Relaxed) != 0
    }

    /// Gives room back. True as above.
    pub(crate) fn taken(self, taken: u64) -> bool {
        self.0.up_taken.store(taken, Ordering::Release);
        self.wakes_from(FOR_ROOM)
    }

    fn wakes_from(self, sleeper: u32) -> bool {
        barrier(Step::ServerBarrier);
        let exchange = |sleep: &AtomicU32| {
            sleep.compare_exchange(sleeper, AWAKE, Ordering::AcqRel, Ordering::Relaxed)
        };
        self.0.sleep.load(Ordering::Relaxed) == sleeper && exchange(&self.0.sleep).is_ok()
    }

    pub(crate) fn worker_has_put(self) -> u64 {
        self.0.up_put.load(Ordering::Acquire)
    }

    pub(crate) fn worker_has_taken(self) -> u64 {
        self.0.down_taken.load(Ordering::Acquire)
    }

    /// Says that it waits for room, or no longer does. Passes no barrier: its thread does, before
    /// it sleeps, and looks then.
    pub(crate) fn want_room(self, wanted: bool) {
        self.0
            .room_wanted
            .store(u32::from(wanted), Ordering::Relaxed);
    }
}

/// The server's thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sleeper<'a>(pub(crate) &'a Parking);

impl Sleeper<'_> {
    /// Goes to sleep, unless `finds` finds something in one of its boxes: true, it sleeps from now
    /// on.
    pub(crate) fn sleeps(self, finds: impl FnOnce() -> bool) -> bool {
        self.step(1);
        barrier(Step::ThreadBarrier);
        let sleeps = !look(Step::ThreadLook, finds);
        if !sleeps {
            self.awake();
        }
        sleeps
    }

    pub(crate) fn awake(self) {
        self.step(0);
    }

    /// Says on which processor it goes to sleep.
    pub(crate) fn is_on(self, processor: u32) {
        self.0.processor.store(processor, Ordering::Relaxed);
    }

    /// To the next number that is odd, or even, unless it is that already.
    fn step(self, odd: u32) {
        let parked = self.0.parked.load(Ordering::Relaxed);
        if parked % 2 != odd {
            self.0
                .parked
                .store(parked.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

/// The worker's side. C has the same steps in `ext/pronghorn/ring.c`.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    pub(crate) words: &'a Words,
    pub(crate) parking: &'a Parking,
    pub(crate) bell: Bell,
}

/// What a worker remembers of the bell of its server's thread.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bell {
    /// The sleep of the thread for which it was rung last.
    rung: u32,
    /// Whether bytes were put for which it was not rung yet.
    owed: bool,
}

impl Worker<'_> {
    /// Begins a call that was found. False: the server has taken it back.
    pub(crate) fn claims(&self, call: u32) -> bool {
        clears(&self.words.offered, call, Step::WorkerClaims)
    }

    /// Publishes bytes. True: ring the bell.
    pub(crate) fn put(&mut self, put: u64) -> bool {
        self.publish(put);
        self.rings()
    }

    /// Publishes bytes that the server need not know before the answer to the call that lies there,
    /// if one does. [`settles`](Self::settles) has to come before a sleep. True: ring the bell.
    pub(crate) fn put_with_next(&mut self, put: u64, lies_there: bool) -> bool {
        self.publish(put);
        self.bell.owed = lies_there;
        !lies_there && self.rings()
    }

    /// Publishes a reply: the server need not know of it yet while enough calls lie there.
    pub(crate) fn put_reply(&mut self, put: u64, lies_there: bool) -> bool {
        let enough = self.words.enough_calls.load(Ordering::Relaxed);
        let not_begun = self.words.offered.load(Ordering::Relaxed).count_ones();
        self.put_with_next(put, lies_there && enough != 0 && not_begun >= enough)
    }

    /// Before each sleep. True: ring the bell.
    pub(crate) fn settles(&mut self) -> bool {
        look(Step::WorkerSettles, || self.bell.owed) && self.rings()
    }

    fn publish(&self, put: u64) {
        self.words.up_put.store(put, Ordering::Release);
        barrier(Step::WorkerPutBarrier);
    }

    /// Gives room back. True: ring the bell.
    pub(crate) fn taken(&mut self, taken: u64) -> bool {
        self.words.down_taken.store(taken, Ordering::Release);
        barrier(Step::WorkerTakenBarrier);
        self.words.room_wanted.load(Ordering::Relaxed) == 1 && self.rings()
    }

    fn rings(&mut self) -> bool {
        self.bell.owed = false;
        let parked = self.parking.parked.load(Ordering::Relaxed);
        let rings = parked % 2 == 1 && parked != self.bell.rung;
        if rings {
            self.bell.rung = parked;
        }
        rings
    }

    /// Goes to sleep until there is something `until` waits for, unless `finds` finds it: true, it
    /// has to sleep on the word.
    pub(crate) fn sleeps(&self, until: u32, finds: impl FnOnce() -> bool) -> bool {
        self.words.sleep.store(until, Ordering::Relaxed);
        barrier(Step::WorkerBarrier);
        !look(Step::WorkerLook, finds)
    }

    pub(crate) fn awake(&self) {
        self.words.sleep.store(AWAKE, Ordering::Relaxed);
    }

    pub(crate) fn sleep_word(&self) -> &AtomicU32 {
        &self.words.sleep
    }

    pub(crate) fn server_has_put(&self) -> u64 {
        self.words.down_put.load(Ordering::Acquire)
    }

    pub(crate) fn server_has_taken(&self) -> u64 {
        self.words.up_taken.load(Ordering::Acquire)
    }
}
