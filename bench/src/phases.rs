//! Where a request's time went, as our server counts it: see `docs/operations/metrics.md`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::client::Connection;
use crate::error::BenchError;
use crate::scenario::Protocol;

const METRIC: &str = "pronghorn_http_request_phase_seconds";

/// Sums since the start: of each phase the seconds, and how many requests.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Phases(BTreeMap<String, (f64, f64)>);

impl Phases {
    /// Nothing of a server that is not ours.
    pub(crate) async fn ask(address: Option<SocketAddr>) -> Result<Self, BenchError> {
        let Some(address) = address else {
            return Ok(Self::default());
        };
        let mut connection = Connection::open(address, Protocol::Http1)
            .await
            .map_err(BenchError::Check)?;
        let request = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let answer = connection.ask(request).await.map_err(BenchError::Check)?;
        Ok(Self::parse(&String::from_utf8_lossy(&answer.body)))
    }

    fn parse(text: &str) -> Self {
        let mut phases = BTreeMap::new();
        for line in text.lines() {
            let Some((name, labels, value)) = parts(line) else {
                continue;
            };
            let mark = "phase=\"";
            let phase = labels
                .split(mark)
                .nth(1)
                .and_then(|rest| rest.split('"').next());
            let (Some(phase), Ok(value)) = (phase, value.parse::<f64>()) else {
                continue;
            };
            let sums: &mut (f64, f64) = phases.entry(phase.to_owned()).or_default();
            match name.strip_prefix(METRIC) {
                Some("_sum") => sums.0 += value,
                Some("_count") => sums.1 += value,
                _ => {}
            }
        }
        phases.retain(|_, (_, count)| *count > 0.0);
        Self(phases)
    }

    /// The mean of each phase since `before`, in microseconds per request.
    pub(crate) fn since(&self, before: &Self) -> BTreeMap<String, f64> {
        let mean = |(phase, now): (&String, &(f64, f64))| {
            let then = before.0.get(phase).copied().unwrap_or_default();
            let requests = now.1 - then.1;
            (requests > 0.0).then(|| (phase.clone(), (now.0 - then.0) / requests * 1e6))
        };
        self.0.iter().filter_map(mean).collect()
    }
}

/// `name{labels} value`
fn parts(line: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = line.split_once('{')?;
    let (labels, value) = rest.rsplit_once("} ")?;
    Some((name, labels, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_the_requests_between() {
        let text = |sum: f64, count: f64| {
            format!(
                "# TYPE {METRIC} histogram\n{METRIC}_bucket{{pool=\"default\",phase=\"queue\",le=\"0.1\"}} 9\n\
                 {METRIC}_sum{{pool=\"default\",phase=\"queue\"}} {sum}\n\
                 {METRIC}_count{{pool=\"default\",phase=\"queue\"}} {count}\n\
                 {METRIC}_sum{{pool=\"default\",phase=\"read\"}} 0\nother 1\n"
            )
        };
        let (before, after) = (
            Phases::parse(&text(1.0, 10.0)),
            Phases::parse(&text(1.5, 20.0)),
        );
        let means = after.since(&before);
        assert_eq!(means.len(), 1);
        assert!((means["queue"] - 50_000.0).abs() < 1e-6, "{means:?}");
        assert!(
            after.since(&after).is_empty(),
            "nothing was asked meanwhile"
        );
    }
}
