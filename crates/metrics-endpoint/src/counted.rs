//! One series as a worker has counted it: the sum of many changes.

use std::collections::BTreeMap;

use serde::Deserialize;

use pronghorn_metrics::{Kind, Reading};

/// A series, and what was counted of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Counted {
    pub(crate) name: String,
    pub(crate) help: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(crate) sum: Sum,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Sum {
    Counter {
        add: f64,
    },
    /// The value that was set last, and the sum that was added since then.
    Gauge {
        set: Option<f64>,
        add: f64,
    },
    Histogram {
        buckets: Vec<f64>,
        /// One for each bucket, and one above all, not cumulated.
        counts: Vec<u64>,
        sum: f64,
    },
}

impl Sum {
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Counter { .. } => Kind::Counter,
            Self::Gauge { .. } => Kind::Gauge,
            Self::Histogram { .. } => Kind::Histogram,
        }
    }

    pub(crate) fn buckets(&self) -> &[f64] {
        match self {
            Self::Histogram { buckets, .. } => buckets,
            Self::Counter { .. } | Self::Gauge { .. } => &[],
        }
    }

    /// None if this has other buckets.
    pub(crate) fn add_to(self, value: &mut Reading) -> Option<()> {
        match (self, value) {
            // A worker that makes a counter fall lies.
            (Self::Counter { add }, Reading::Value(value)) => *value += add.max(0.0),
            (Self::Gauge { set, add }, Reading::Value(value)) => {
                *value = set.unwrap_or(*value) + add;
            }
            (
                Self::Histogram {
                    buckets,
                    counts,
                    sum,
                },
                Reading::Histogram {
                    bounds,
                    counts: all,
                    sum: whole,
                    ..
                },
            ) if buckets == *bounds && counts.len() == all.len() => {
                for (all, more) in all.iter_mut().zip(counts) {
                    *all = all.saturating_add(more);
                }
                *whole += sum;
            }
            _ => return None,
        }
        Some(())
    }
}
