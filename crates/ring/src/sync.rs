//! Atomics and barriers, or what the model checker has in their place.

#[cfg(all(test, feature = "model"))]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(all(test, feature = "model")))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The steps that look superfluous and are not: the model runs without each of them, and has to
/// fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The server has put or taken something, and then looks whether the worker sleeps.
    ServerBarrier,
    /// The server's thread has announced that it sleeps, and then looks once more.
    ThreadBarrier,
    ThreadLook,
    /// The worker has put something, and then looks whether the thread sleeps.
    WorkerPutBarrier,
    /// The worker has taken something, and then looks whether the server waits for room.
    WorkerTakenBarrier,
    /// The worker has announced that it sleeps, and then looks once more.
    WorkerBarrier,
    WorkerLook,
    /// The worker has put something without a look whether the thread sleeps, and makes up for it.
    WorkerSettles,
    /// That clearing a call's bit and seeing whether it was set are one step.
    ServerTakesBack,
    WorkerClaims,
}

/// A full barrier.
pub(crate) fn barrier(step: Step) {
    if !is_left_out(step) {
        #[cfg(all(test, feature = "model"))]
        loom::sync::atomic::fence(Ordering::SeqCst);
        #[cfg(not(all(test, feature = "model")))]
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Clears bits in one step, and says what was there.
pub(crate) fn take_away(word: &AtomicU32, bits: u32, step: Step) -> u32 {
    if is_left_out(step) {
        let before = word.load(Ordering::Acquire);
        word.store(before & !bits, Ordering::Release);
        return before;
    }
    word.fetch_and(!bits, Ordering::AcqRel)
}

/// The second look.
pub(crate) fn look(step: Step, finds: impl FnOnce() -> bool) -> bool {
    !is_left_out(step) && finds()
}

#[cfg(not(all(test, feature = "model")))]
const fn is_left_out(_: Step) -> bool {
    false
}

#[cfg(all(test, feature = "model"))]
fn is_left_out(step: Step) -> bool {
    crate::model::LEFT_OUT.get() == Some(step)
}
