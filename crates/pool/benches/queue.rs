//! The queue of calls, short and as long as it can be by default.

use divan::{AllocProfiler, Bencher};
use pronghorn_pool::benchmark::WaitingNumbers;
use tokio::time::Instant;

/// Allocations are counted beside the time: under the pool's lock there should be none.
#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// How many wait already.
const WAITING: [u64; 3] = [0, 16, 1_023];

/// A call waits, another gets a worker.
#[divan::bench(args = WAITING)]
fn push_and_pop(bencher: Bencher<'_, '_>, waiting: u64) {
    let mut queue = WaitingNumbers::new(waiting);
    bencher.bench_local(|| {
        queue.push();
        queue.pop()
    });
}

/// A call waits, and its client leaves.
#[divan::bench(args = WAITING)]
fn push_and_forget(bencher: Bencher<'_, '_>, waiting: u64) {
    let mut queue = WaitingNumbers::new(waiting);
    bencher.bench_local(|| {
        let number = queue.push();
        queue.forget(number)
    });
}

/// The timer looks whether anybody waited too long.
#[divan::bench(args = WAITING)]
fn look_for_late_ones(bencher: Bencher<'_, '_>, waiting: u64) {
    let mut queue = WaitingNumbers::new(waiting);
    let now = Instant::now();
    bencher.bench_local(|| queue.expire(now));
}
