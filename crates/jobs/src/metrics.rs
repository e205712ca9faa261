//! What is counted; by RoadRunner's names what it counts as well.

use std::sync::OnceLock;
use std::time::Duration;

use pronghorn_metrics::{Counter, Family, Histogram, Registry};

/// Names of pipelines may come from PHP: series beyond these are counted together.
const MOST_COUNTERS: usize = 1000;
/// Each has two dozen numbers.
const MOST_HISTOGRAMS: usize = 100;

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    push_ok: Counter,
    push_err: Counter,
    push_latency: Histogram,
    jobs_ok: Counter,
    jobs_err: Counter,
    requeued: Counter,
    dead: Counter,
    outcomes: Family<Counter, 2>,
    durations: Family<Histogram, 1>,
    runs: Family<Counter, 2>,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let dead = registry.counter(
            "jobs_dead_letters_total",
            "Jobs that were given up and are kept as dead letters.",
        );
        let outcomes = registry.family(
            "jobs_outcomes_total",
            "What attempts came to, and jobs that were removed before one.",
            ["pipeline", "outcome"],
            MOST_COUNTERS,
        );
        let durations = registry.family(
            "jobs_attempt_duration_seconds",
            "How long workers took for attempts.",
            ["pipeline"],
            MOST_HISTOGRAMS,
        );
        let runs = registry.family(
            "jobs_schedule_runs_total",
            "Runs of schedules.",
            ["schedule", "outcome"],
            MOST_COUNTERS,
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
            outcomes,
            durations,
            runs,
        }
    }

    pub(crate) fn of_pipeline(&self, name: &str) -> PipelineMetrics {
        PipelineMetrics {
            name: name.to_owned(),
            outcomes: self.outcomes.clone(),
            counters: std::array::from_fn(|_| OnceLock::new()),
            durations: self.durations.clone(),
            duration: OnceLock::new(),
        }
    }

    /// A run of a schedule has ended, or did not begin.
    pub(crate) fn scheduled(&self, schedule: &str, outcome: &str) {
        self.runs.with([schedule, outcome]).increment();
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

/// Of one pipeline. A series is there from its first event on.
#[derive(Debug)]
pub(crate) struct PipelineMetrics {
    name: String,
    outcomes: Family<Counter, 2>,
    counters: [OnceLock<Counter>; OUTCOMES.len()],
    durations: Family<Histogram, 1>,
    duration: OnceLock<Histogram>,
}

/// What an attempt can come to, as the label `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeLabel {
    Done,
    /// It is tried again.
    Failed,
    GivenUp,
    /// Its handler wants it again.
    Again,
    /// Also of jobs that end with their pipeline.
    Cancelled,
    Expired,
    /// No worker has had it.
    NotTaken,
}

/// In the order of their places in an array.
const OUTCOMES: [&str; 7] = [
    "done",
    "failed",
    "given_up",
    "again",
    "cancelled",
    "expired",
    "not_taken",
];

impl OutcomeLabel {
    /// As metrics have it.
    pub(crate) fn name(self) -> &'static str {
        OUTCOMES[self as usize]
    }

    /// As people read it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::GivenUp => "given up",
            Self::NotTaken => "not taken",
            other => other.name(),
        }
    }
}

impl PipelineMetrics {
    pub(crate) fn came_to(&self, label: OutcomeLabel) {
        let counter = self.counters[label as usize]
            .get_or_init(|| self.outcomes.with([&self.name, label.name()]));
        counter.increment();
    }

    pub(crate) fn took(&self, duration: Duration) {
        let histogram = self
            .duration
            .get_or_init(|| self.durations.with([&self.name]));
        histogram.observe(duration);
    }
}

/// How a job came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Failed,
    Again,
}
