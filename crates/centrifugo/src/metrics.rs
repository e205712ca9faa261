//! Counters of the proxy's calls. Those of the API are methods of RPC, and counted as such.

use std::time::Duration;

use pronghorn_grpc_wire::Code;
use pronghorn_metrics::{Counter, Family, Gauge, Histogram, Registry};

/// The methods that Centrifugo 6.9 calls. Later ones are answered as well.
pub(crate) const METHODS: [&str; 11] = [
    "Connect",
    "Refresh",
    "Subscribe",
    "Publish",
    "RPC",
    "SubRefresh",
    "NotifyCacheEmpty",
    "NotifyChannelState",
    "MapPublish",
    "MapRemove",
    "SharedPollRefresh",
];
/// The names of two metrics, which the admin page shows as well.
pub(crate) const CALLS: &str = "calls_total";
pub(crate) const IN_PROGRESS: &str = "calls_in_progress";
/// Stands for methods of later releases: a caller could make up any number of them.
const OTHER: &str = "other";

/// Counts calls.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    calls: Family<Counter, 2>,
    durations: Family<Histogram, 1>,
    under_way: Gauge,
}

impl Metrics {
    /// `registry` is the service's own.
    pub(crate) fn new(registry: &Registry) -> Self {
        let registry = registry.named("centrifugo");
        Self {
            calls: registry.family(
                CALLS,
                "Calls of Centrifugo by method and status.",
                ["method", "status"],
                (METHODS.len() + 1) * Code::ALL.len(),
            ),
            durations: registry.family(
                "call_duration_seconds",
                "From the head of a call to its end.",
                ["method"],
                METHODS.len() + 1,
            ),
            under_way: registry.gauge(IN_PROGRESS, "Calls that have not ended."),
        }
    }

    pub(crate) fn begun(&self) {
        self.under_way.add(1);
    }

    pub(crate) fn ended(&self, method: &str, code: Code, took: Duration) {
        let known = METHODS.iter().copied().find(|known| *known == method);
        let method = known.unwrap_or(OTHER);
        self.under_way.add(-1);
        self.calls.with([method, code.word()]).increment();
        self.durations.with([method]).observe(took);
    }
}
