//! A metric as it is written: whoever counts it brings it into this form.

use std::borrow::Cow;

use pronghorn_metrics::{Exemplar, Kind as OwnKind, ReadFamily, Reading};

/// All series of one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) help: Cow<'static, str>,
    pub(crate) kind: Kind,
    pub(crate) series: Vec<Series>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) labels: Vec<(Cow<'static, str>, String)>,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Histogram {
        /// Upper bounds; the last bucket has none.
        bounds: Vec<f64>,
        /// One for each bucket, not cumulated.
        counts: Vec<u64>,
        sum: f64,
        /// One for each bucket, or none at all.
        exemplars: Vec<Option<Exemplar>>,
    },
    Summary {
        count: u64,
        sum: f64,
    },
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }

    /// What the names of its samples have behind that of the family.
    pub(crate) const fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Counter | Self::Gauge => &[""],
            Self::Histogram => &["", "_bucket", "_count", "_sum"],
            Self::Summary => &["", "_count", "_sum"],
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the formats have no other numbers than these"
)]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

impl From<ReadFamily> for Family {
    fn from(read: ReadFamily) -> Self {
        let kind = match read.kind {
            OwnKind::Counter => Kind::Counter,
            OwnKind::Gauge => Kind::Gauge,
            OwnKind::Histogram => Kind::Histogram,
        };
        let series = read.series.into_iter().map(|series| Series {
            labels: series
                .labels
                .into_iter()
                .map(|(name, value)| (name.into(), value))
                .collect(),
            value: match series.reading {
                Reading::Count(count) => Value::Number(number(count)),
                Reading::Value(value) => Value::Number(value),
                Reading::Histogram {
                    bounds,
                    counts,
                    sum,
                    exemplars,
                } => Value::Histogram {
                    bounds: bounds.iter().map(|bound| number(*bound) / 1e6).collect(),
                    counts,
                    sum: sum.as_secs_f64(),
                    exemplars,
                },
            },
        });
        Self {
            name: read.name,
            help: read.help.into(),
            kind,
            series: series.collect(),
        }
    }
}
