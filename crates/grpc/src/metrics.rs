//! Counters of calls, by RoadRunner's names as well.

use std::time::Duration;

use pronghorn_grpc_wire::Code;
use pronghorn_metrics::{Counter, Family, Gauge, Histogram, Registry};

/// Methods times statuses. Only methods of `.proto` files are counted by name.
const MOST_COUNTERS: usize = 2000;
/// Each has two dozen numbers.
const MOST_HISTOGRAMS: usize = 300;

/// Counts calls.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    calls: Family<Counter, 2>,
    durations: Family<Histogram, 1>,
    under_way: Gauge,
    rr_calls: Family<Counter, 2>,
    rr_durations: Family<Histogram, 1>,
    rr_queue: Gauge,
}

impl Metrics {
    /// `registry` is the service's own.
    pub(crate) fn new(registry: &Registry) -> Self {
        let calls = registry.family(
            "grpc_calls_total",
            "Calls by method and status.",
            ["method", "status"],
            MOST_COUNTERS,
        );
        let durations = registry.family(
            "grpc_call_duration_seconds",
            "From the head of a call to its end.",
            ["method"],
            MOST_HISTOGRAMS,
        );
        let under_way = registry.gauge("grpc_calls_in_progress", "Calls that have not ended.");
        let registry = registry.named_anew("rr_grpc");
        Self {
            calls,
            durations,
            under_way,
            rr_calls: registry.family(
                "request_total",
                "Total number of handled grpc requests after server restart.",
                ["grpc_method", "status_code"],
                MOST_COUNTERS,
            ),
            rr_durations: registry.family(
                "request_duration_seconds",
                "GRPC request duration.",
                ["grpc_method"],
                MOST_HISTOGRAMS,
            ),
            rr_queue: registry.gauge("requests_queue", "Total number of queued requests."),
        }
    }

    pub(crate) fn begun(&self) {
        self.under_way.add(1);
        self.rr_queue.add(1);
    }

    /// A call has ended. Its method is empty where no service has it.
    pub(crate) fn ended(&self, method: &str, code: Code, took: Duration) {
        self.under_way.add(-1);
        self.rr_queue.add(-1);
        self.calls.with([method, code.word()]).increment();
        self.durations.with([method]).observe(took);
        self.rr_calls.with([method, code.word()]).increment();
        self.rr_durations.with([method]).observe(took);
    }
}
