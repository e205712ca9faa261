//! What pipelines promise, for histories with faults: at fixed seeds, and at random ones in
//! `make weekly`; `make soak` has the long form.

use std::time::Duration;

use pronghorn_e2e::queue::{Plan, QueueDriver};

fn keeps_its_promises(place: QueueDriver, workers: usize) {
    keep(Plan::new(place, workers, Duration::from_secs(8)));
}

/// The same pushes, calls and faults each time, if not at the same moments.
fn keeps_its_promises_at(seed: u64, place: QueueDriver, workers: usize) {
    keep(Plan {
        place,
        workers,
        lasts: Duration::from_secs(5),
        seed,
    });
}

#[expect(clippy::print_stdout, reason = "what a history is made again by")]
fn keep(plan: Plan) {
    println!("PRONGHORN_QUEUE_SEED={}", plan.seed);
    let report = plan.run();
    println!(
        "{} pushes, {} runs, {:?}",
        report.pushed, report.runs, report.faults
    );
    assert_eq!(report.broken, [], "seed {}: {:#?}", plan.seed, report.about);
    assert!(
        report.pushed > 100 && report.runs > 50,
        "it was hardly tried"
    );
}

#[test]
fn a_pipeline_in_redis_keeps_its_promises() {
    keeps_its_promises_at(35, QueueDriver::Redis, 3);
}

#[test]
#[ignore = "a history is another one each time: make weekly"]
fn a_pipeline_in_memory_keeps_its_promises_whatever_happens() {
    keeps_its_promises(QueueDriver::Memory, 3);
}

#[test]
#[ignore = "a history is another one each time: make weekly"]
fn a_pipeline_in_the_store_keeps_its_promises_whatever_happens() {
    keeps_its_promises(QueueDriver::Embedded, 3);
}

#[test]
#[ignore = "a history is another one each time: make weekly"]
fn a_pipeline_with_one_worker_keeps_its_order_whatever_happens() {
    keeps_its_promises(QueueDriver::Embedded, 1);
}

#[test]
#[ignore = "a history is another one each time: make weekly"]
fn a_pipeline_in_redis_keeps_its_promises_whatever_happens() {
    keeps_its_promises(QueueDriver::Redis, 3);
}
