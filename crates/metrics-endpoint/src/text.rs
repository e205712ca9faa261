//! Metrics as text: the format of Prometheus, and OpenMetrics for those who ask for it.

use std::collections::HashSet;
use std::fmt::Write;
use std::iter::repeat;

use pronghorn_base::LogThrottle;
use pronghorn_metrics::{Exemplar, Kind, ReadFamily, Reading};
use pronghorn_serve::wanted;
use pronghorn_wire::Fields;

/// Bytes of a text. What the server counts takes less than a hundredth of it; an application may
/// declare series whose text would take all memory there is.
const LONGEST: usize = 16 << 20;

/// The label of a sample beside those of its series, if it has one: `le`, or `quantile`.
type Label = Option<(&'static str, f64)>;

/// The value of a sample.
#[derive(Clone, Copy)]
enum Figure {
    Count(u64),
    Value(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// Version 0.0.4, which everybody reads.
    Prometheus,
    /// Version 1.0.
    OpenMetrics,
}

impl Format {
    /// The one that a client takes, by its field `Accept`. Prometheus names OpenMetrics where it
    /// reads it; who wants plain text more gets that.
    pub(crate) fn wanted(request: &Fields) -> Self {
        let open = wanted(request, "application/openmetrics-text");
        if open > 0 && open >= wanted(request, "text/plain") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Writes all families for which there is room. Of those with the same name the first counts:
    /// twice the same name is no text that anybody reads.
    pub(crate) fn write(self, families: &[ReadFamily]) -> String {
        let mut out = String::with_capacity(16 << 10);
        let mut seen = HashSet::new();
        for family in families {
            if !family.series.is_empty() && seen.insert(self.name_of(family)) {
                let start = out.len();
                self.family(&mut out, family);
                if out.len() > LONGEST {
                    out.truncate(start);
                    tell_of_left_out(&family.name);
                }
            }
        }
        if self == Self::OpenMetrics {
            out.push_str("# EOF\n");
        }
        out
    }

    /// In OpenMetrics, `_total` belongs to the sample of a counter.
    fn name_of(self, family: &ReadFamily) -> &str {
        let name = family.name.as_str();
        match (self, family.kind) {
            (Self::OpenMetrics, Kind::Counter) => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        }
    }

    fn family(self, out: &mut String, family: &ReadFamily) {
        let name = self.name_of(family);
        out.push_str("# HELP ");
        out.push_str(name);
        out.push(' ');
        escape(out, &family.help, self == Self::OpenMetrics);
        // A String takes all.
        _ = writeln!(out, "\n# TYPE {name} {}", type_name(family.kind));
        let total = match (self, family.kind) {
            (Self::OpenMetrics, Kind::Counter) => "_total",
            _ => "",
        };
        for series in &family.series {
            if out.len() > LONGEST {
                return; // it is left out
            }
            let mut labels = String::new();
            for (label, value) in &series.labels {
                if !labels.is_empty() {
                    labels.push(',');
                }
                labels.push_str(label);
                labels.push_str("=\"");
                escape(&mut labels, value, true);
                labels.push('"');
            }
            let mut sample = |suffix: &str, own: Label, figure: Figure, of: Option<&Exemplar>| {
                out.push_str(name);
                out.push_str(suffix);
                if !labels.is_empty() || own.is_some() {
                    out.push('{');
                    out.push_str(&labels);
                    if let Some((label, value)) = own {
                        let comma = if labels.is_empty() { "" } else { "," };
                        _ = write!(out, "{comma}{label}=\"");
                        self.number(out, value, true);
                        out.push('"');
                    }
                    out.push('}');
                }
                out.push(' ');
                match figure {
                    Figure::Count(count) => _ = write!(out, "{count}"),
                    Figure::Value(value) => self.number(out, value, false),
                }
                if let Some(exemplar) = of.filter(|_| self == Self::OpenMetrics) {
                    write_exemplar(out, exemplar);
                }
                out.push('\n');
            };
            match &series.reading {
                Reading::Count(count) => sample(total, None, Figure::Count(*count), None),
                Reading::Value(value) => sample(total, None, Figure::Value(*value), None),
                Reading::Histogram {
                    bounds,
                    counts,
                    sum,
                    exemplars,
                } => {
                    let mut below = 0;
                    let bounds = bounds.iter().copied().chain([f64::INFINITY]);
                    let exemplars = exemplars.iter().map(Option::as_ref).chain(repeat(None));
                    for ((bound, count), exemplar) in bounds.zip(counts).zip(exemplars) {
                        below += count;
                        let le = Some(("le", bound));
                        sample("_bucket", le, Figure::Count(below), exemplar);
                    }
                    sample("_sum", None, Figure::Value(*sum), None);
                    sample("_count", None, Figure::Count(below), None);
                }
                Reading::Summary {
                    count,
                    sum,
                    quantiles,
                } => {
                    for (quantile, value) in quantiles {
                        let quantile = Some(("quantile", *quantile));
                        sample("", quantile, Figure::Value(*value), None);
                    }
                    sample("_sum", None, Figure::Value(*sum), None);
                    sample("_count", None, Figure::Count(*count), None);
                }
            }
        }
    }

    fn number(self, out: &mut String, value: f64, is_bound: bool) {
        // OpenMetrics wants bounds that look the same everywhere.
        let point = is_bound && self == Self::OpenMetrics && value.fract() == 0.0;
        let size = value.abs();
        _ = if value.is_nan() {
            out.write_str("NaN")
        } else if value.is_infinite() {
            out.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
        } else if size != 0.0 && !(1e-6..1e17).contains(&size) {
            write!(out, "{value:e}")
        } else if point {
            write!(out, "{value}.0")
        } else {
            write!(out, "{value}")
        };
    }
}

fn tell_of_left_out(name: &str) {
    static LEFT_OUT: LogThrottle = LogThrottle::new();
    if let Some(times) = LEFT_OUT.should_log() {
        tracing::warn!(
            target: "metrics", name, times, most_bytes = LONGEST,
            "a metric is left out of what is told: with it, the text would be too long; it has too \
             many series, buckets or long labels"
        );
    }
}

const fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge | Kind::UpDownCounter => "gauge",
        Kind::Histogram => "histogram",
        Kind::Summary => "summary",
    }
}

/// By the trace's number the display of traces is found.
fn write_exemplar(out: &mut String, exemplar: &Exemplar) {
    let Exemplar {
        trace_id,
        duration,
        at_us,
    } = exemplar;
    let (seconds, micros) = (at_us / 1_000_000, at_us % 1_000_000);
    // A String takes all.
    _ = write!(
        out,
        " # {{trace_id=\"{trace_id:032x}\"}} {} {seconds}.{micros:06}",
        duration.as_secs_f64()
    );
}

fn escape(out: &mut String, text: &str, quotes: bool) {
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            _ => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use pronghorn_metrics::Series;

    fn families() -> Vec<ReadFamily> {
        let labels = vec![("path".into(), "a\\b\n\"c\" é".to_owned())];
        let of = |name: &str, kind, labels, reading| ReadFamily {
            name: name.to_owned(),
            help: "Text with \\, \"quotes\" and\nlines.".into(),
            kind,
            series: vec![Series { labels, reading }],
        };
        let histogram = Reading::Histogram {
            bounds: vec![0.005, 1.0],
            counts: vec![2, 1, 4],
            sum: 1e20,
            exemplars: Vec::new(),
        };
        vec![
            of(
                "jobs_total",
                Kind::Counter,
                labels.clone(),
                Reading::Value(3.0),
            ),
            of("size", Kind::Gauge, Vec::new(), Reading::Value(-0.5)),
            of("took", Kind::Histogram, labels, histogram),
            of(
                "seen",
                Kind::Summary,
                Vec::new(),
                Reading::Summary {
                    count: 2,
                    sum: 0.25,
                    quantiles: vec![(0.5, 0.125), (1.0, f64::NAN)],
                },
            ),
            of("size", Kind::Gauge, Vec::new(), Reading::Value(7.0)), // the same name again
        ]
    }

    #[test]
    fn openmetrics_names_the_trace_of_a_bucket() {
        let exemplar = Exemplar {
            trace_id: 0xab,
            duration: std::time::Duration::from_millis(7),
            at_us: 1_500_000_000_000_003,
        };
        let family = ReadFamily {
            name: "took".to_owned(),
            help: "Text.".into(),
            kind: Kind::Histogram,
            series: vec![Series {
                labels: Vec::new(),
                reading: Reading::Histogram {
                    bounds: vec![1.0],
                    counts: vec![2, 0],
                    sum: 0.014,
                    exemplars: vec![Some(exemplar), None],
                },
            }],
        };
        let text = Format::OpenMetrics.write(std::slice::from_ref(&family));
        let line = "took_bucket{le=\"1.0\"} 2 # {trace_id=\"000000000000000000000000000000ab\"} 0.007 1500000000.000003\n\
                    took_bucket{le=\"+Inf\"} 2\n";
        assert!(text.contains(line), "{text}");
        assert!(!Format::Prometheus.write(&[family]).contains("trace_id"));
    }

    #[test]
    fn the_text_of_prometheus() {
        let help = "Text with \\\\, \"quotes\" and\\nlines.";
        let label = "path=\"a\\\\b\\n\\\"c\\\" é\"";
        let expected = format!(
            "# HELP jobs_total {help}\n# TYPE jobs_total counter\njobs_total{{{label}}} 3\n\
             # HELP size {help}\n# TYPE size gauge\nsize -0.5\n\
             # HELP took {help}\n# TYPE took histogram\ntook_bucket{{{label},le=\"0.005\"}} 2\n\
             took_bucket{{{label},le=\"1\"}} 3\ntook_bucket{{{label},le=\"+Inf\"}} 7\n\
             took_sum{{{label}}} 1e20\ntook_count{{{label}}} 7\n\
             # HELP seen {help}\n# TYPE seen summary\nseen{{quantile=\"0.5\"}} 0.125\n\
             seen{{quantile=\"1\"}} NaN\nseen_sum 0.25\nseen_count 2\n"
        );
        assert_eq!(Format::Prometheus.write(&families()), expected);
    }

    #[test]
    fn the_text_of_openmetrics() {
        let text = Format::OpenMetrics.write(&families());
        for part in [
            "# TYPE jobs counter\njobs_total{path=",
            "# HELP size Text with \\\\, \\\"quotes\\\" and\\nlines.\n",
            "le=\"1.0\"} 3\n",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(text.ends_with("seen_count 2\n# EOF\n"), "{text}");
    }

    /// 500 series, among them 20 histograms with as many buckets as ours have.
    #[test]
    fn a_scrape_of_500_series_is_short() {
        let labels = |at: usize| {
            vec![
                ("pool".into(), "default".to_owned()),
                ("route".into(), format!("/user/{{id}}/orders/number-{at}")),
            ]
        };
        let histogram = |at| Series {
            labels: labels(at),
            reading: Reading::Histogram {
                bounds: (1_u32..20).map(f64::from).collect(),
                counts: vec![123_456_789; 20],
                sum: 1e9 / 7.0,
                exemplars: Vec::new(),
            },
        };
        let number = |at| Series {
            labels: labels(at),
            reading: Reading::Value(1e9 / 7.0),
        };
        let family = |name: &str, kind, series| ReadFamily {
            name: name.to_owned(),
            help: "What is counted.".into(),
            kind,
            series,
        };
        let families = [
            family(
                "pronghorn_took_seconds",
                Kind::Histogram,
                (0..20).map(histogram).collect(),
            ),
            family(
                "pronghorn_calls_total",
                Kind::Counter,
                (0..480).map(number).collect(),
            ),
        ];
        let text = Format::Prometheus.write(&families);
        assert!(text.len() <= 256 << 10, "{} bytes", text.len());
        // 2 ms is the goal; a build for tests on a busy machine takes longer.
        let began = tokio::time::Instant::now();
        let text = Format::Prometheus.write(&families);
        let took = began.elapsed();
        assert!(took.as_millis() < 50, "{} bytes in {took:?}", text.len());
    }

    /// With 20,000 series, each with 200 buckets and a label of a kilobyte, each text would have
    /// gigabytes.
    #[test]
    fn what_would_be_too_long_is_left_out_and_the_rest_is_there() {
        let label = vec![("of".into(), "x".repeat(1000))];
        let series = Series {
            labels: label,
            reading: Reading::Histogram {
                bounds: (0_u32..200).map(f64::from).collect(),
                counts: vec![1; 201],
                sum: 1.0,
                exemplars: Vec::new(),
            },
        };
        let long = ReadFamily {
            name: "long".to_owned(),
            help: "Text.".into(),
            kind: Kind::Histogram,
            series: vec![series; 100],
        };
        let [first, second, ..] = <[ReadFamily; 5]>::try_from(families()).expect("so many");
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let with = format.write(&[first.clone(), long.clone(), second.clone()]);
            assert_eq!(with, format.write(&[first.clone(), second.clone()]));
        }
    }

    #[test]
    fn who_asks_for_openmetrics_gets_it() {
        let wanted = |accept| Format::wanted(&[("accept", accept)].into_iter().collect());
        for open in [
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.4",
            "text/plain, application/openmetrics-text",
        ] {
            assert_eq!(wanted(open), Format::OpenMetrics, "{open}");
        }
        for plain in [
            "",
            "*/*",
            "text/plain",
            "application/json",
            "application/openmetrics-text;q=0, */*",
            "text/plain;version=0.0.4,application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0.3,text/plain;version=0.0.4;q=0.9",
        ] {
            assert_eq!(wanted(plain), Format::Prometheus, "{plain}");
        }
    }

    proptest! {
        /// Whatever a label says, it neither ends its line nor its quotes.
        #[test]
        fn a_sample_is_one_line(label in any::<String>(), value in any::<f64>()) {
            let family = ReadFamily {
                name: "x".into(),
                help: label.clone().into(),
                kind: Kind::Gauge,
                series: vec![Series { labels: vec![("l".into(), label)], reading: Reading::Value(value) }],
            };
            let text = Format::Prometheus.write(&[family]);
            let lines: Vec<&str> = text.split('\n').collect();
            prop_assert_eq!(lines.len(), 4, "{:?}", text);
            let (start, number) = lines[2].rsplit_once("\"} ").expect("a label before the value");
            let inside = start.strip_prefix("x{l=\"").expect("it begins so");
            let mut escaped = false;
            for letter in inside.chars() {
                prop_assert!(escaped || letter != '"', "{:?}", text);
                escaped = letter == '\\' && !escaped;
            }
            prop_assert!(!escaped);
            let read: f64 = number.replace("Inf", "inf").parse().expect("a number");
            prop_assert!(read.to_bits() == value.to_bits() || read.is_nan() && value.is_nan());
        }
    }
}
