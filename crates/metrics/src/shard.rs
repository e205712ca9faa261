//! Which part of a metric a thread counts in. Threads that count in the same words of memory would
//! wait for each other.

use std::cell::Cell;
use std::num::NonZero;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::available_parallelism;

/// So many words of memory a processor takes for itself to change one of them. A power of two.
pub(crate) const CACHE_LINE: usize = 8;

/// More parts cost memory; with so many, two threads seldom meet.
const MOST: usize = 32;

/// How many parts there are: a power of two.
static PARTS: LazyLock<usize> = LazyLock::new(|| {
    let processors = available_parallelism().map_or(1, NonZero::get);
    processors.next_power_of_two().min(MOST)
});

thread_local! {
    static OWN: Cell<Option<usize>> = const { Cell::new(None) };
}

pub(crate) fn parts() -> usize {
    *PARTS
}

/// The number of this thread. Threads get theirs in turn, so that those of a server are spread over
/// all parts.
pub(crate) fn own() -> usize {
    OWN.get().unwrap_or_else(draw)
}

#[cold]
fn draw() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    OWN.set(Some(number));
    number
}
