//! What is counted of connections, of requests and of their responses.
//!
//! Of requests, counted when a response is out, whatever the log says: a few additions, with no
//! lock and no memory taken. The handles for a status are made when it is first sent.

use std::sync::OnceLock;

use pronghorn_base::micros;
use pronghorn_metrics::{Counter, Exemplar, Family, Histogram, Registry};
use pronghorn_pool::Stamps;

use crate::phases::Phases;
use crate::sent::Sent;

/// Statuses that are counted apart; an application may make up others.
const MOST_STATUSES: usize = 40;
/// Of statuses: from 100 to 599, and one for what is beyond.
const SLOTS: usize = 501;

/// Connections of clients, from when they are accepted.
#[derive(Debug)]
pub(crate) struct ConnectionMetrics {
    pub(crate) accepted: Counter,
    pub(crate) evicted: Counter,
    pub(crate) refused: RefusedConnections,
    pub(crate) handshakes: Handshakes,
}

/// Those that were closed at once, by why.
#[derive(Debug)]
pub(crate) struct RefusedConnections {
    pub(crate) full: Counter,
    pub(crate) address: Counter,
}

/// On ports for TLS, by what came of them.
#[derive(Debug)]
pub(crate) struct Handshakes {
    pub(crate) done: Counter,
    pub(crate) failed: Counter,
    /// The client does not speak TLS.
    pub(crate) text: Counter,
}

impl ConnectionMetrics {
    /// `open` says how many there are.
    pub(crate) fn new(
        metrics: &Registry,
        open: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Self {
        metrics.present("connections", "Open connections of clients.", move || {
            // Descriptors are far fewer.
            u32::try_from(open()).map_or(f64::INFINITY, f64::from)
        });
        let refused = |reason| {
            let help = "Connections that were closed at once, because there were too many.";
            let metrics = metrics.labelled("reason", reason);
            metrics.counter("connections_refused_total", help)
        };
        let handshakes = |result| {
            let help = "Handshakes on ports for TLS, by what came of them.";
            let metrics = metrics.labelled("result", result);
            metrics.counter("tls_handshakes_total", help)
        };
        Self {
            accepted: metrics.counter("connections_total", "Connections that were accepted."),
            evicted: metrics.counter(
                "connections_evicted_total",
                "Idle connections that were closed to make room for new ones.",
            ),
            refused: RefusedConnections {
                full: refused("max_connections"),
                address: refused("max_per_address"),
            },
            handshakes: Handshakes {
                done: handshakes("done"),
                failed: handshakes("failed"),
                text: handshakes("no_tls"),
            },
        }
    }
}

/// Responses by status, also those that no pool has made.
#[derive(Debug)]
pub(crate) struct ResponseMetrics {
    by_status: Family<Histogram, 1>,
    known: Box<[OnceLock<Histogram>]>,
    bytes: Counter,
}

impl ResponseMetrics {
    pub(crate) fn new(metrics: &Registry) -> Self {
        Self {
            by_status: metrics.family(
                "response_duration_seconds",
                "From the end of a request's head to the end of its response, by status.",
                ["status"],
                MOST_STATUSES,
            ),
            known: (0..SLOTS).map(|_| OnceLock::new()).collect(),
            bytes: metrics.counter(
                "response_body_bytes_total",
                "Bytes of bodies of responses, as many as clients took.",
            ),
        }
    }

    pub(crate) fn observe(&self, sent: &Sent) {
        let slot = usize::from(sent.status).wrapping_sub(100).min(SLOTS - 1);
        let of_status = self.known[slot].get_or_init(|| {
            let is_other = slot == SLOTS - 1;
            let name = if is_other {
                "other".to_owned()
            } else {
                sent.status.to_string()
            };
            self.by_status.with([&name])
        });
        of_status.observe_micros(micros(sent.elapsed));
        self.bytes.add(sent.bytes);
    }
}

/// Requests that one pool was asked for.
#[derive(Debug)]
pub struct PoolMetrics {
    /// 1xx to 5xx.
    classes: [Counter; 5],
    total: Histogram,
    read: Histogram,
    queue: Histogram,
    worker: Histogram,
    write: Histogram,
    received: Counter,
}

impl PoolMetrics {
    /// `metrics` are those of HTTP.
    pub fn new(metrics: &Registry, pool: &str) -> Self {
        let metrics = metrics.labelled("pool", pool);
        let class = |class| {
            let metrics = metrics.labelled("class", class);
            metrics.counter(
                "requests_total",
                "Requests to a pool, by the class of the status.",
            )
        };
        let phase = |phase| {
            let help = "The time of a request to a pool, by what it was spent on: reading the body, waiting for a worker, \
                        the worker, writing the response.";
            metrics
                .labelled("phase", phase)
                .histogram("request_phase_seconds", help)
        };
        Self {
            classes: ["1xx", "2xx", "3xx", "4xx", "5xx"].map(class),
            total: metrics.histogram(
                "request_duration_seconds",
                "From the end of a request's head to the end of its response, by pool.",
            ),
            read: phase("read"),
            queue: phase("queue"),
            worker: phase("worker"),
            write: phase("write"),
            received: metrics.counter(
                "request_body_bytes_total",
                "Bytes of bodies of requests to a pool.",
            ),
        }
    }

    /// So much of a request's body was read.
    pub(crate) fn received(&self, bytes: u64) {
        self.received.add(bytes);
    }

    /// The request has a trace that is kept.
    pub(crate) fn exemplify(&self, exemplar: Exemplar) {
        self.total.exemplify(exemplar);
    }

    /// `stamps` are there for a call that got a reply, or none, before its client left.
    pub(crate) fn observe(&self, sent: &Sent, stamps: Option<&Stamps>) {
        let class = usize::from(sent.status / 100).clamp(1, self.classes.len());
        self.classes[class - 1].increment();
        let elapsed = micros(sent.elapsed);
        self.total.observe_micros(elapsed);
        if let Some(stamps) = stamps {
            let phases = Phases::of(stamps, elapsed);
            if phases.read > 0 {
                self.read.observe_micros(phases.read);
            }
            self.queue.observe_micros(phases.queue);
            if let Some(worker) = phases.worker {
                self.worker.observe_micros(worker);
            }
            self.write.observe_micros(phases.write);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pronghorn_metrics::Reading;
    use tokio::time::Instant;

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The number of durations of each series, and their sum in milliseconds, by the value of the
    /// label.
    fn durations(metrics: &Registry, name: &str, label: &str) -> Vec<(String, u64, u128)> {
        let families = metrics.families();
        let family = families.iter().find(|family| family.name == name);
        let series = family.expect(name).series.iter();
        let read = series.map(|series| {
            let value = series.labels.iter().find(|(name, _)| *name == label);
            match &series.reading {
                Reading::Histogram { counts, sum, .. } => {
                    let value = value.expect(label).1.clone();
                    let took = Duration::from_secs_f64(*sum);
                    (value, counts.iter().sum(), took.as_millis())
                }
                other => panic!("{other:?}"),
            }
        });
        read.filter(|(_, count, _)| *count > 0).collect()
    }

    fn sent(status: u16, millis: u64) -> Sent {
        Sent {
            status,
            bytes: 0,
            elapsed: Duration::from_millis(millis),
            split: None,
        }
    }

    #[test]
    fn requests_are_counted_by_class_and_what_their_time_was_spent_on() {
        let metrics = Registry::default();
        let pool = PoolMetrics::new(&metrics, "api");
        let now = Instant::now();
        let answered = Stamps {
            accepted: now,
            queued: now + millis(1),
            dispatched: Some(now + millis(3)),
            claimed: Some(now + millis(7)),
            first_byte: Some(now + millis(15)),
            complete: Some(now + millis(15)),
        };
        let refused = Stamps {
            dispatched: None,
            claimed: None,
            first_byte: None,
            ..answered
        };
        pool.observe(&sent(200, 31), Some(&answered));
        pool.observe(&sent(503, 15), Some(&refused));
        pool.observe(&sent(499, 100), None); // its client has left
        pool.observe(&sent(777, 0), None);

        let phases = durations(&metrics, "request_phase_seconds", "phase");
        let expected = [
            ("read", 2, 2),
            ("queue", 2, 6 + 14),
            ("worker", 1, 8),
            ("write", 2, 16),
        ];
        let expected = expected.map(|(phase, count, sum)| (phase.to_owned(), count, sum));
        assert_eq!(phases, expected);
        let total = durations(&metrics, "request_duration_seconds", "pool");
        assert_eq!(total, [("api".to_owned(), 4, 146)]);
        let families = metrics.families();
        let requests = families
            .iter()
            .find(|family| family.name == "requests_total");
        let classes =
            requests
                .expect("requests")
                .series
                .iter()
                .map(|series| match &series.reading {
                    Reading::Count(count) => *count,
                    other => panic!("{other:?}"),
                });
        assert_eq!(classes.collect::<Vec<_>>(), [0, 1, 0, 1, 2]);
    }

    #[test]
    fn responses_are_counted_by_status_and_their_number_has_an_end() {
        let metrics = Registry::default();
        let responses = ResponseMetrics::new(&metrics);
        for status in (0..100).chain(200..300).chain(600..=u16::MAX) {
            responses.observe(&sent(status, 2));
        }
        let by_status = durations(&metrics, "response_duration_seconds", "status");
        assert!(by_status.len() <= MOST_STATUSES + 1);
        let of = |name: &str| by_status.iter().find(|(status, ..)| status == name);
        assert_eq!(of("200"), Some(&("200".to_owned(), 1, 2)));
        let all: u64 = by_status.iter().map(|(_, count, _)| count).sum();
        assert_eq!(all, 200 + 65536 - 600);
    }
}
