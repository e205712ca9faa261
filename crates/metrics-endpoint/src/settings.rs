//! `metrics`.

use pronghorn_config::{Address, Choice, Node, Pairs, Section, Setting, Shown, Table, Wrong};
use pronghorn_metrics::Kind;

use crate::declared::{Declaration, Refused};

/// RoadRunner's.
const ADDRESS: (&str, u16) = ("127.0.0.1", 2112);

/// The section `metrics`.
#[derive(Clone, Debug)]
pub struct MetricsSettings {
    /// Where to listen.
    pub address: Address,
    /// Collectors of the application that are there from the start.
    pub(crate) collectors: Vec<(String, Declaration)>,
}

impl Section for MetricsSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let (host, port) = ADDRESS;
        Self {
            address: t
                .key(
                    "address",
                    "The address for Prometheus. Every path returns the metrics.",
                )
                .default(Address {
                    host: Some(host.to_owned()),
                    port,
                }),
            collectors: t.sections_with(
                "collect",
                "Metrics of the application, as if the application had declared them over RPC.",
                "One metric, with the name that the application uses to change it.",
                read_collector,
            ),
        }
    }
}

fn read_collector(t: &mut Table<'_>) -> Declaration {
    let kind: Option<CollectorKind> = t.key("type", "The type of the metric.").optional();
    let kind = kind.map(|CollectorKind(kind)| kind);
    if kind.is_none() && !t.is_written("type") {
        let hint = "for example `type: counter`";
        t.error("type", "is not set: it says what the metric counts", hint);
    }
    let mut text = |name, sentence| t.key::<String>(name, sentence).optional();
    let namespace = text(
        "namespace",
        "The first part of the metric's name, before a `_`.",
    );
    let subsystem = text(
        "subsystem",
        "The second part of the metric's name, before a `_`.",
    );
    let help = text("help", "The description of the metric.");
    let buckets: Option<Vec<Bound>> = t
        .key(
            "buckets",
            "The upper bounds of a histogram's buckets, in ascending order.",
        )
        .optional();
    let buckets = buckets.unwrap_or_default();
    let declaration = Declaration {
        kind: kind.unwrap_or(Kind::Gauge),
        namespace: namespace.unwrap_or_default(),
        subsystem: subsystem.unwrap_or_default(),
        help: help.unwrap_or_default(),
        labels: t
            .key("labels", "The names of the metric's labels.")
            .optional()
            .unwrap_or_default(),
        buckets: buckets.into_iter().map(|Bound(bound)| bound).collect(),
        quantiles: read_quantiles(t, kind),
    };
    if kind.is_some()
        && let Err(why) = declaration.check(t.name())
    {
        let key = match why {
            Refused::BadLabel(_) | Refused::TakenLabel(_) | Refused::TooMany("labels", _) => {
                "labels"
            }
            Refused::BadQuantiles(_) | Refused::TooMany("objectives", _) => "objectives",
            Refused::BadBuckets(_) | Refused::TooMany(..) => "buckets",
            _ => "namespace",
        };
        t.error(
            key,
            &format!("can't be used: {why}"),
            "the metric is written under its namespace, subsystem and name, joined by `_`",
        );
    }
    declaration
}

/// The names are what counts: how far a quantile may be off is the same for all.
fn read_quantiles(t: &mut Table<'_>, kind: Option<Kind>) -> Vec<f64> {
    if kind.is_some_and(|kind| kind != Kind::Summary) {
        t.no_effect("objectives", "only a summary has quantiles");
        return Vec::new();
    }
    let objectives: Pairs = t
        .key(
            "objectives",
            "The quantiles of a summary, from 0 to 1, each with the error that RoadRunner may \
             make. Here, the error is always at most 1 %.",
        )
        .default(Pairs::default());
    let quantiles = objectives.iter().map(|(quantile, _)| {
        // A text that is none is refused as one that is out of range.
        quantile.trim().parse().unwrap_or(f64::NAN)
    });
    quantiles.collect()
}

/// As the application declares it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CollectorKind(Kind);

impl Choice for CollectorKind {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("counter", Self(Kind::Counter)),
        ("gauge", Self(Kind::Gauge)),
        ("histogram", Self(Kind::Histogram)),
        ("summary", Self(Kind::Summary)),
    ];
}

/// The bound of a bucket.
struct Bound(f64);

impl Setting for Bound {
    fn example() -> String {
        "0.5".to_owned()
    }

    fn accepts() -> String {
        "a number such as 0.5".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?;
        let number = text.parse().map_err(|_| Wrong::value(node))?;
        if f64::is_nan(number) {
            return Err(Wrong::value(node));
        }
        Ok(Self(number))
    }

    fn show(&self) -> Shown {
        Shown::One(self.0.to_string())
    }
}
