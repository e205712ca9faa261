//! What is counted; by RoadRunner's names what it counts as well.

use std::time::Duration;

use pronghorn_metrics::{Counter, Histogram, Registry};

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    push_ok: Counter,
    push_err: Counter,
    push_latency: Histogram,
    jobs_ok: Counter,
    jobs_err: Counter,
    requeued: Counter,
    dead: Counter,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let dead = registry.counter(
            "jobs_dead_letters_total",
            "Jobs that were given up and are kept as dead letters.",
        );
        let registry = registry.named_anew("rr_jobs");
        Self {
            push_ok: registry.counter("push_ok", "Jobs that were kept."),
            push_err: registry.counter("push_err", "Jobs that were refused."),
            push_latency: registry.histogram("push_latency", "How long pushes took."),
            jobs_ok: registry.counter("jobs_ok", "Jobs that were done."),
            jobs_err: registry.counter("jobs_err", "Jobs that failed."),
            requeued: registry.counter("jobs_requeue", "Jobs that handlers wanted again."),
            dead,
        }
    }

    pub(crate) fn pushed(&self, jobs: u64, took: Duration, ok: bool) {
        let counter = if ok { &self.push_ok } else { &self.push_err };
        counter.add(jobs);
        self.push_latency.observe(took);
    }

    /// A job became a dead letter.
    pub(crate) fn died(&self) {
        self.dead.increment();
    }

    pub(crate) fn ran(&self, verdict: Verdict) {
        match verdict {
            Verdict::Done => self.jobs_ok.increment(),
            Verdict::Failed => self.jobs_err.increment(),
            Verdict::Again => self.requeued.increment(),
        }
    }
}

/// How a job came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Failed,
    Again,
}
