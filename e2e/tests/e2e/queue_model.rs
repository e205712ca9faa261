//! What pipelines promise, for random histories with faults: the short form of a part of
//! `make soak`, and a part of `make weekly`.

use std::time::Duration;

use pronghorn_e2e::queue::{Plan, QueueDriver};

#[expect(clippy::print_stdout, reason = "what a history is made again by")]
fn keeps_its_promises(place: QueueDriver, workers: usize) {
    let plan = Plan::new(place, workers, Duration::from_secs(8));
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
