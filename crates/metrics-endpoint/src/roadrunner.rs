//! The metrics of RoadRunner, under its names and labels: boards that were made for it go on.

use std::time::Duration;

use pronghorn_metrics::{Kind, ReadFamily, Reading, Series};

/// From what the server counts, and how long it has been there.
pub(crate) fn families(own: &[ReadFamily], uptime: Duration) -> Vec<ReadFamily> {
    let of = |name: &str| {
        let family = own.iter().find(|family| family.name == name);
        family.map_or(&[][..], |family| &family.series)
    };
    let responses = of("pronghorn_http_response_duration_seconds");
    let counted = responses.iter().filter_map(|series| match &series.reading {
        Reading::Histogram { counts, .. } => Some(Series {
            labels: series.labels.clone(),
            reading: Reading::Count(counts.iter().sum()),
        }),
        Reading::Count(_) | Reading::Value(_) | Reading::Summary { .. } => None,
    });
    let refused = of("pronghorn_pool_calls_refused_total").iter();
    let refused = refused.filter(|series| {
        let mut labels = series.labels.iter();
        labels.any(|(name, value)| name == "reason" && value == "waited_too_long")
    });
    let one = |reading| {
        vec![Series {
            labels: Vec::new(),
            reading,
        }]
    };
    vec![
        ReadFamily {
            name: "rr_http_request_total".into(),
            help: "Requests by status, as RoadRunner counts them.".into(),
            kind: Kind::Counter,
            series: counted.collect(),
        },
        ReadFamily {
            name: "rr_http_request_duration_seconds".into(),
            help: "Time of requests by status, as RoadRunner counts it.".into(),
            kind: Kind::Histogram,
            series: responses.to_vec(),
        },
        ReadFamily {
            name: "rr_http_requests_queue".into(),
            help: "Requests that wait for a worker.".into(),
            kind: Kind::Gauge,
            series: one(Reading::Value(total(
                of("pronghorn_pool_queue_calls").iter(),
            ))),
        },
        ReadFamily {
            name: "rr_http_no_free_workers_total".into(),
            help: "Requests for which no worker became free in time.".into(),
            kind: Kind::Counter,
            series: one(Reading::Value(total(refused))),
        },
        ReadFamily {
            name: "rr_http_uptime_seconds".into(),
            help: "Seconds since the start of the server.".into(),
            kind: Kind::Gauge,
            series: one(Reading::Count(uptime.as_secs())),
        },
    ]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the formats have no other numbers than these"
)]
fn total<'a>(series: impl Iterator<Item = &'a Series>) -> f64 {
    let values = series.map(|series| match series.reading {
        Reading::Count(count) => count as f64,
        Reading::Value(value) => value,
        Reading::Histogram { .. } | Reading::Summary { .. } => 0.0,
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use pronghorn_metrics::Registry;

    use super::*;
    use crate::text::Format;

    #[test]
    fn what_the_server_counts_stands_under_roadrunners_names() {
        let metrics = Registry::default().named("pronghorn");
        let responses = metrics.named("http");
        let responses = responses.labelled("status", "200");
        let responses = responses.histogram("response_duration_seconds", "Responses.");
        responses.observe(Duration::from_millis(20));
        responses.observe(Duration::from_millis(2));
        for pool in ["a", "b"] {
            let pool = metrics.named("pool").labelled("pool", pool);
            pool.present("queue_calls", "Waiting.", || 2.0);
            for reason in ["waited_too_long", "queue_full"] {
                let refused = pool.labelled("reason", reason);
                refused.counter("calls_refused_total", "Refused.").add(3);
            }
        }
        let own = metrics.families();
        let text = Format::Prometheus.write(&families(&own, Duration::from_millis(7_900)));
        for line in [
            "rr_http_request_total{status=\"200\"} 2\n",
            "rr_http_request_duration_seconds_bucket{status=\"200\",le=\"0.01\"} 1\n",
            "rr_http_request_duration_seconds_count{status=\"200\"} 2\n",
            "rr_http_requests_queue 4\n",
            "rr_http_no_free_workers_total 6\n",
            "rr_http_uptime_seconds 7\n",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
    }
}
