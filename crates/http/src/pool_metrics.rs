//! What is counted of requests to pools, when their responses are out.

use pronghorn_base::micros;
use pronghorn_metrics::{Counter, Exemplar, Histogram, Registry};
use pronghorn_pool::Stamps;
use pronghorn_serve::Sent;

use crate::phases::Phases;

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
            is_too_long: false,
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
}
