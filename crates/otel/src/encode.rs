//! Traces and metrics of the server as messages of OTLP.

use std::time::SystemTime;

use pronghorn_base::since_1970;
use pronghorn_metrics::{Kind as MetricKind, ReadFamily, Reading, Series};
use pronghorn_trace::{Kind, Span, Trace, Value};

use crate::messages::{
    self as otlp, AnyValue, Data, HistogramPoint, KeyValue, Metric, MetricsRequest, Number,
    NumberPoint, OneValue, Quantile, Resource, ResourceMetrics, ResourceSpans, Scope, ScopeMetrics,
    ScopeSpans, SpanKind, Status, StatusCode, SummaryPoint, Temporality, TracesRequest,
};

/// The maker of the spans, for whoever looks at them.
const SCOPE: &str = "pronghorn";

/// The facts about this server that all messages carry.
pub(crate) fn resource<'a>(attributes: impl Iterator<Item = (&'a str, &'a str)>) -> Resource {
    let attributes = attributes.map(|(name, value)| text(name, value)).collect();
    Resource { attributes }
}

pub(crate) fn traces(resource: &Resource, traces: Vec<Trace>) -> TracesRequest {
    let spans = traces.into_iter().flat_map(|trace| {
        let Trace { id, state, spans } = trace;
        spans.into_iter().map(move |each| otlp::Span {
            trace_id: id.to_bytes().to_vec(),
            trace_state: state.to_string(),
            ..span(each)
        })
    });
    TracesRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope()),
                spans: spans.collect(),
            }],
        }],
    }
}

fn scope() -> Scope {
    Scope {
        name: SCOPE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn span(span: Span) -> otlp::Span {
    let kind = match span.kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Server => SpanKind::Server,
        Kind::Consumer => SpanKind::Consumer,
    };
    let status = span.error.map(|message| Status {
        message: message.to_string(),
        code: StatusCode::Error.into(),
    });
    let parent = span.parent.map(|id| id.to_bytes().to_vec());
    otlp::Span {
        span_id: span.id.to_bytes().to_vec(),
        parent_span_id: parent.unwrap_or_default(),
        name: span.name.to_string(),
        kind: kind.into(),
        start: span.start,
        end: span.end,
        attributes: span.attributes.into_iter().map(attribute).collect(),
        status,
        ..otlp::Span::default()
    }
}

fn attribute((name, value): (&'static str, Value)) -> KeyValue {
    let value = match value {
        Value::Text(text) => OneValue::Text(text.to_string()),
        Value::Int(number) => OneValue::Int(number),
        Value::Bool(truth) => OneValue::Bool(truth),
    };
    key_value(name, value)
}

fn text(name: &str, value: &str) -> KeyValue {
    key_value(name, OneValue::Text(value.to_owned()))
}

fn key_value(key: &str, value: OneValue) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
    }
}

/// Since when numbers count, and when they were read: nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    pub(crate) start: u64,
    pub(crate) now: u64,
}

impl Period {
    /// Metrics whose numbers count since this moment.
    pub(crate) fn since(start: SystemTime) -> Self {
        let nanos =
            |time: SystemTime| u64::try_from(since_1970(time).as_nanos()).unwrap_or(u64::MAX);
        let start = nanos(start);
        let now = nanos(SystemTime::now()).max(start); // a clock may have been set back
        Self { start, now }
    }
}

pub(crate) fn metrics(
    resource: &Resource,
    families: &[ReadFamily],
    period: Period,
) -> MetricsRequest {
    let metrics = families.iter().map(|family| metric(family, period));
    MetricsRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope()),
                metrics: metrics.collect(),
            }],
        }],
    }
}

fn metric(family: &ReadFamily, period: Period) -> Metric {
    let cumulative = Temporality::Cumulative.into();
    let numbers = || {
        let points = family.series.iter();
        points.filter_map(|series| number(series, period)).collect()
    };
    let data = match family.kind {
        MetricKind::Counter | MetricKind::UpDownCounter => Data::Sum(otlp::Sum {
            points: numbers(),
            temporality: cumulative,
            is_monotonic: family.kind == MetricKind::Counter,
        }),
        MetricKind::Gauge => Data::Gauge(otlp::Gauge { points: numbers() }),
        MetricKind::Histogram => {
            let points = family.series.iter();
            let points = points.filter_map(|series| histogram(series, period));
            Data::Histogram(otlp::Histogram {
                points: points.collect(),
                temporality: cumulative,
            })
        }
        MetricKind::Summary => {
            let points = family.series.iter();
            let points = points.filter_map(|series| summary(series, period));
            Data::Summary(otlp::Summary {
                points: points.collect(),
            })
        }
    };
    Metric {
        name: family.name.clone(),
        description: family.help.to_string(),
        unit: unit(&family.name).to_owned(),
        data: Some(data),
    }
}

/// By the end of the name, in the codes of UCUM.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "",
    }
}

fn labels(series: &Series) -> Vec<KeyValue> {
    let labels = series.labels.iter();
    labels.map(|(name, value)| text(name, value)).collect()
}

fn number(series: &Series, Period { start, now }: Period) -> Option<NumberPoint> {
    let value = match series.reading {
        Reading::Count(count) => Number::Int(i64::try_from(count).unwrap_or(i64::MAX)),
        Reading::Value(value) => Number::Double(value),
        Reading::Histogram { .. } | Reading::Summary { .. } => return None,
    };
    Some(NumberPoint {
        attributes: labels(series),
        start,
        time: now,
        value: Some(value),
    })
}

fn histogram(series: &Series, Period { start, now }: Period) -> Option<HistogramPoint> {
    let Reading::Histogram {
        bounds,
        counts,
        sum,
        ..
    } = &series.reading
    else {
        return None;
    };
    Some(HistogramPoint {
        attributes: labels(series),
        start,
        time: now,
        count: counts.iter().sum(),
        sum: Some(*sum),
        bucket_counts: counts.clone(),
        bounds: bounds.clone(),
    })
}

fn summary(series: &Series, Period { start, now }: Period) -> Option<SummaryPoint> {
    let Reading::Summary {
        count,
        sum,
        quantiles,
    } = &series.reading
    else {
        return None;
    };
    let quantiles = quantiles.iter();
    Some(SummaryPoint {
        attributes: labels(series),
        start,
        time: now,
        count: *count,
        sum: *sum,
        quantiles: quantiles
            .map(|(quantile, value)| Quantile {
                quantile: *quantile,
                value: *value,
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pronghorn_metrics::Registry;
    use pronghorn_trace::{SpanId, TraceId};
    use prost::Message;

    use super::*;

    #[test]
    fn a_span_has_the_bytes_of_the_protocol() {
        let span = Span {
            id: SpanId::new(1).expect("not zero"),
            parent: SpanId::new(2),
            name: "GET".into(),
            kind: Kind::Server,
            start: 3,
            end: 4,
            attributes: vec![("a", Value::Int(5))],
            error: Some("no".into()),
        };
        let trace = Trace {
            id: TraceId::new(6).expect("not zero"),
            state: "s=t".into(),
            spans: vec![span],
        };
        let message = traces(&Resource::default(), vec![trace]);
        let span = &message.resource_spans[0].scope_spans[0].spans[0];
        let mut expected = vec![0x0a, 16];
        expected.extend(6_u128.to_be_bytes());
        expected.extend([0x12, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        expected.extend(b"\x1a\x03s=t");
        expected.extend([0x22, 8, 0, 0, 0, 0, 0, 0, 0, 2]);
        expected.extend(b"\x2a\x03GET");
        expected.extend([0x30, 2]);
        expected.extend([0x39, 3, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0x41, 4, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend(b"\x4a\x07\x0a\x01a\x12\x02\x18\x05");
        expected.extend(b"\x7a\x06\x12\x02no\x18\x02");
        assert_eq!(span.encode_to_vec(), expected);
    }

    #[test]
    fn counters_are_sums_and_durations_are_seconds() {
        let registry = Registry::default().labelled("pool", "api");
        registry.counter("calls_total", "Calls.").add(3);
        registry.present("queue_calls", "Waiting calls.", || 4.0);
        registry.gauge("temperature", "Degrees.").set(-2);
        let waits = registry.histogram("wait_seconds", "Waits.");
        waits.observe(Duration::from_micros(200));
        waits.observe(Duration::from_secs(1000));
        let period = Period { start: 1, now: 9 };
        let message = metrics(&Resource::default(), &registry.families(), period);
        let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
        let [calls, queue, temperature, wait] = &metrics[..] else {
            panic!("{metrics:?}");
        };
        match &calls.data {
            Some(Data::Sum(sum)) => {
                assert!(sum.is_monotonic);
                assert_eq!(sum.points[0].value, Some(Number::Int(3)));
                assert_eq!(sum.points[0].attributes, [text("pool", "api")]);
                assert_eq!((sum.points[0].start, sum.points[0].time), (1, 9));
            }
            other => panic!("{other:?}"),
        }
        match &queue.data {
            Some(Data::Sum(sum)) => {
                assert!(!sum.is_monotonic, "an UpDownCounter");
                assert_eq!(sum.temporality(), Temporality::Cumulative);
                assert_eq!(sum.points[0].value, Some(Number::Double(4.0)));
            }
            other => panic!("{other:?}"),
        }
        match &temperature.data {
            Some(Data::Gauge(gauge)) => {
                assert_eq!(gauge.points[0].value, Some(Number::Double(-2.0)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!((&*calls.unit, &*wait.unit), ("", "s"));
        match &wait.data {
            Some(Data::Histogram(histogram)) => {
                let point = &histogram.points[0];
                assert_eq!((point.count, point.sum), (2, Some(1000.0002)));
                assert_eq!(point.bucket_counts.len(), point.bounds.len() + 1);
                assert_eq!(point.bounds[..2], [0.0001, 0.000_25]);
                assert_eq!(point.bucket_counts[..2], [0, 1]);
                assert_eq!(point.bucket_counts.last(), Some(&1));
            }
            other => panic!("{other:?}"),
        }
    }
}
