//! One server: its connections, and whether it answers.

use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_metrics::{Counter, Registry};
use tokio::time::Instant;

use crate::address::ServerAddress;
use crate::connection::Connection;

/// Connections without a request that are kept.
const MOST_KEPT: usize = 64;

/// How long one is kept. A server that closes it earlier is noticed.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// How long a server that failed gets no requests, while others work: twice as long at each further
/// failure.
const AWAY: Duration = Duration::from_secs(1);
const LONGEST_AWAY: Duration = Duration::from_secs(30);

/// Failed health checks in a row after which a server counts as ill.
const FAILURES: u32 = 2;

/// A server of an upstream.
pub(crate) struct Server {
    pub(crate) address: ServerAddress,
    /// The last one was used last.
    kept: Mutex<Vec<Connection>>,
    /// Requests without a whole response.
    requests: AtomicUsize,
    fault: Mutex<Fault>,
    /// Health checks in a row that failed.
    failed_checks: AtomicU32,
    /// It was told that it is away.
    told: AtomicBool,
    pub(crate) counters: Option<Counters>,
}

/// Failures of requests since the last one that worked.
#[derive(Default)]
struct Fault {
    in_a_row: u32,
    away_until: Option<Instant>,
}

/// Numbers of one server.
pub(crate) struct Counters {
    pub(crate) requests: Counter,
    pub(crate) failures: Counter,
}

/// A request that a server has. Dropped when its response is whole, or given up.
pub(crate) struct Busy(pub(crate) Arc<Server>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

impl Server {
    pub(crate) fn new(address: ServerAddress, metrics: Option<&Registry>) -> Arc<Self> {
        let metrics = metrics.map(|it| it.labelled("server", &address.to_string()));
        let server = Arc::new(Self {
            address,
            kept: Mutex::default(),
            requests: AtomicUsize::new(0),
            fault: Mutex::default(),
            failed_checks: AtomicU32::new(0),
            told: AtomicBool::new(false),
            counters: metrics.as_ref().map(Counters::new),
        });
        if let Some(metrics) = metrics {
            server.register(&metrics);
        }
        server
    }

    fn register(self: &Arc<Self>, metrics: &Registry) {
        let (up, busy) = (Arc::downgrade(self), Arc::downgrade(self));
        metrics.computed(
            "upstream_up",
            "Whether the server gets requests: 1 or 0.",
            move || {
                let is_up = up
                    .upgrade()
                    .is_some_and(|it| it.is_healthy() && !it.is_away());
                f64::from(u8::from(is_up))
            },
        );
        metrics.computed(
            "upstream_requests",
            "Requests to the server whose responses are not complete.",
            move || {
                let busy = busy.upgrade().map_or(0, |it| it.load());
                f64::from(u32::try_from(busy).unwrap_or(u32::MAX))
            },
        );
    }

    /// Counts a request that it is asked.
    pub(crate) fn count(&self) {
        if let Some(counters) = &self.counters {
            counters.requests.increment();
        }
    }

    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.requests.fetch_add(1, Relaxed);
        Busy(self.clone())
    }

    pub(crate) fn load(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// An open connection that was kept.
    pub(crate) fn take(&self) -> Option<Connection> {
        let mut kept = lock(&self.kept);
        kept.retain(|it| it.is_open() && it.used.elapsed() < KEPT_FOR);
        kept.pop()
    }

    /// Keeps a connection whose response is whole.
    pub(crate) fn keep(&self, mut connection: Connection) {
        connection.used = Instant::now();
        let mut kept = lock(&self.kept);
        if kept.len() < MOST_KEPT && connection.is_open() {
            kept.push(connection);
        }
    }

    /// A request did not reach it, or got no response for its fault. True where that is worth a
    /// record: the first time since it worked.
    pub(crate) fn failed(&self) -> bool {
        if let Some(counters) = &self.counters {
            counters.failures.increment();
        }
        let mut fault = lock(&self.fault);
        let away = AWAY
            .saturating_mul(1 << fault.in_a_row.min(10))
            .min(LONGEST_AWAY);
        fault.in_a_row = fault.in_a_row.saturating_add(1);
        fault.away_until = Some(Instant::now() + away);
        // Others may be to the same machine.
        lock(&self.kept).clear();
        !self.told.swap(true, Relaxed)
    }

    /// It answered a request. True where it had failed before, which was told.
    pub(crate) fn worked(&self) -> bool {
        if !self.told.load(Relaxed) {
            return false;
        }
        *lock(&self.fault) = Fault::default();
        self.told.swap(false, Relaxed)
    }

    pub(crate) fn is_away(&self) -> bool {
        self.away_until()
            .is_some_and(|until| Instant::now() < until)
    }

    /// Until when it gets no requests, after the last failure.
    pub(crate) fn away_until(&self) -> Option<Instant> {
        lock(&self.fault).away_until
    }

    /// Whether its health checks say so, or there are none.
    pub(crate) fn is_healthy(&self) -> bool {
        self.failed_checks.load(Relaxed) < FAILURES
    }

    /// Notes a health check. Returns the new state, where it changed.
    pub(crate) fn checked(&self, passed: bool) -> Option<bool> {
        let before = self.is_healthy();
        if passed {
            self.failed_checks.store(0, Relaxed);
            *lock(&self.fault) = Fault::default();
        } else {
            let failed = self.failed_checks.load(Relaxed).saturating_add(1);
            self.failed_checks.store(failed, Relaxed);
        }
        Some(self.is_healthy()).filter(|now| *now != before)
    }
}

impl Counters {
    fn new(metrics: &Registry) -> Self {
        Self {
            requests: metrics.counter("upstream_requests_total", "Requests to the server."),
            failures: metrics.counter(
                "upstream_failures_total",
                "Requests that the server did not answer.",
            ),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
