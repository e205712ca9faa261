//! Counts of connections and responses.
//!
//! A response is counted when it is out, whatever the log says: a few additions, with no lock and
//! no memory taken. The handles for a status are made when it is first sent.

use std::sync::OnceLock;

use pronghorn_base::micros;
use pronghorn_metrics::{Counter, Family, Histogram, Registry};

use crate::sent::Sent;

/// Statuses that are counted apart; an application may make up others.
const MOST_STATUSES: usize = 40;
/// One for each status from 100 to 599, and one for what is beyond.
const SLOTS: usize = 501;

/// Connections of clients, from when they are accepted.
#[derive(Debug)]
pub(crate) struct ConnectionMetrics {
    pub(crate) accepted: Counter,
    pub(crate) evicted: Counter,
    pub(crate) refused: RefusedConnections,
    pub(crate) handshakes: Handshakes,
}

/// Connections that were closed before a request, by reason.
#[derive(Debug)]
pub(crate) struct RefusedConnections {
    pub(crate) full: Counter,
    pub(crate) address: Counter,
    /// It comes from no trusted proxy, and each connection must begin with a PROXY header.
    pub(crate) untrusted_proxy: Counter,
    /// It began with no such header in time.
    pub(crate) no_proxy_header: Counter,
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
            let help = "Connections that were closed before a request, by reason.";
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
                untrusted_proxy: refused("untrusted_proxy"),
                no_proxy_header: refused("no_proxy_header"),
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pronghorn_metrics::Reading;

    use super::*;

    /// The number of durations of each status.
    fn by_status(metrics: &Registry) -> Vec<(String, u64)> {
        let families = metrics.families();
        let mut families = families.iter();
        let family = families.find(|family| family.name == "response_duration_seconds");
        let series = family.expect("durations").series.iter();
        let counted = series.map(|series| match &series.reading {
            Reading::Histogram { counts, .. } => (series.labels[0].1.clone(), counts.iter().sum()),
            other => panic!("{other:?}"),
        });
        counted.filter(|(_, count)| *count > 0).collect()
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
    fn responses_are_counted_by_status_and_their_number_has_an_end() {
        let metrics = Registry::default();
        let responses = ResponseMetrics::new(&metrics);
        for status in (0..100).chain(200..300).chain(600..=u16::MAX) {
            responses.observe(&sent(status, 2));
        }
        let by_status = by_status(&metrics);
        assert!(by_status.len() <= MOST_STATUSES + 1);
        let of = |name: &str| by_status.iter().find(|(status, _)| status == name);
        assert_eq!(of("200"), Some(&("200".to_owned(), 1)));
        let all: u64 = by_status.iter().map(|(_, count)| count).sum();
        assert_eq!(all, 200 + 65536 - 600);
    }
}
