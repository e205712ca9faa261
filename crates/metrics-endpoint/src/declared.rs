//! Metrics of the application: declared, changed and removed by name.
//!
//! Everything comes from PHP and is bounded: how many collectors and series there are, and how long
//! their texts.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use pronghorn_metrics::{Kind, ReadFamily, Reading, Series};
use thiserror::Error;
use tokio::time::Instant;

use crate::counted::Counted;
use crate::recent::Recent;

/// Collectors that there can be.
const MOST_COLLECTORS: usize = 1_000;
/// Series of all collectors together. Each costs some hundred bytes, and as much of each scrape.
const MOST_SERIES: usize = 20_000;
const MOST_LABELS: usize = 32;
const MOST_BUCKETS: usize = 200;
const MOST_QUANTILES: usize = 32;
/// A series with quantiles takes up to 50 KB, as much as so many others.
const QUANTILES_COUNT_AS: usize = 32;
/// The length of a name, and of the value of a label, in bytes.
const LONGEST: usize = 1 << 10;
const LONGEST_HELP: usize = 4 << 10;
/// The beginnings of the server's own names.
const RESERVED: [&str; 2] = ["pronghorn_", "rr_http_"];
/// RoadRunner's, for histograms that name none: seconds of something that a person waits for.
const BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// A collector as the application wants it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Declaration {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) subsystem: String,
    pub(crate) help: String,
    pub(crate) labels: Vec<String>,
    pub(crate) buckets: Vec<f64>,
    /// The quantiles of a summary.
    pub(crate) quantiles: Vec<f64>,
}

/// A change of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Add,
    Sub,
    Set,
    Observe,
}

/// Why something is refused. The texts are RoadRunner's, where it has them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Refused {
    #[error("undefined collector {0}, try first Declare the desired collector")]
    Undefined(String),
    #[error("required labels for collector `{0}`")]
    LabelsRequired(String),
    #[error("collector `{0}` does not support method `{1}`")]
    Unsupported(String, &'static str),
    #[error(
        "inconsistent label cardinality: collector `{0}` has {1} labels, and {2} values were given"
    )]
    Cardinality(String, usize, usize),
    #[error("counter `{0}` cannot decrease in value")]
    Decrease(String),
    #[error("`{0}` cannot name a metric: use letters, digits and `_`, and no digit first")]
    BadName(String),
    #[error(
        "`{0}` cannot name a label: use letters, digits and `_`, and neither a digit nor `__` first"
    )]
    BadLabel(String),
    #[error("the label `{0}` is named twice, or belongs to the type of the metric")]
    TakenLabel(String),
    #[error("the buckets of `{0}` are not in ascending order, or no numbers")]
    BadBuckets(String),
    #[error("the quantiles of `{0}` are not all from 0 to 1, for example 0.5 and 0.99")]
    BadQuantiles(String),
    #[error("`{0}` is the name of another metric, or of a part of one")]
    Taken(String),
    #[error("names that begin with `{0}` are the server's own")]
    Reserved(&'static str),
    #[error("`{0}` is another kind of metric elsewhere")]
    AnotherKind(String),
    #[error("`{0}` has the labels `{1}` elsewhere: a metric has the same ones everywhere")]
    OtherLabels(String, String),
    #[error("`{0}` has other buckets elsewhere")]
    OtherBuckets(String),
    #[error("{0}: there are as many as there may be: {1}")]
    TooMany(&'static str, usize),
    #[error("{0}: at most {1} bytes")]
    TooLong(&'static str, usize),
}

/// The result of a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared {
    New,
    /// There was a collector of that name and kind. It stays as it is.
    Known,
    /// There was one that is something else. It stays as it is.
    Differs,
}

/// All that the application has declared. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Collectors(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    by_name: BTreeMap<String, Collector>,
    series: usize,
}

#[derive(Debug)]
struct Collector {
    name: String,
    declaration: Declaration,
    series: HashMap<Vec<String>, Counting>,
}

/// A series as it is counted.
#[derive(Debug)]
struct Counting {
    reading: Reading,
    /// Where quantiles are wanted.
    recent: Option<Box<Recent>>,
}

impl Collectors {
    pub(crate) fn declare(
        &self,
        name: &str,
        mut declaration: Declaration,
    ) -> Result<Declared, Refused> {
        let mut table = lock(&self.0);
        if declaration.kind == Kind::Histogram && declaration.buckets.is_empty() {
            declaration.buckets = BUCKETS.to_vec();
        }
        // The one without an end is there in any case.
        declaration.buckets.retain(|bound| *bound != f64::INFINITY);
        declaration.quantiles.sort_by(f64::total_cmp);
        declaration.quantiles.dedup();
        if let Some(known) = table.by_name.get(name) {
            return Ok(if known.declaration == declaration {
                Declared::Known
            } else {
                Declared::Differs
            });
        }
        let full_name = declaration.check(name)?;
        if table.by_name.len() >= MOST_COLLECTORS {
            return Err(Refused::TooMany("collectors", MOST_COLLECTORS));
        }
        let names = |name: &str, kind: Kind| {
            let suffixes = suffixes(kind).iter();
            suffixes
                .map(|suffix| format!("{name}{suffix}"))
                .collect::<Vec<_>>()
        };
        let wanted = names(&full_name, declaration.kind);
        let mut others = table.by_name.values();
        if others.any(|other| {
            let taken = names(&other.name, other.declaration.kind);
            taken.iter().any(|taken| wanted.contains(taken))
        }) {
            return Err(Refused::Taken(full_name));
        }
        let mut collector = Collector {
            name: full_name,
            declaration,
            series: HashMap::new(),
        };
        // Without labels there is one series, and it is there from the start.
        if collector.declaration.labels.is_empty() {
            room_for_series(&mut table.series, &collector.declaration)?;
            let zero = collector.declaration.zero();
            collector.series.insert(Vec::new(), zero);
        }
        table.by_name.insert(name.to_owned(), collector);
        Ok(Declared::New)
    }

    pub(crate) fn change(
        &self,
        name: &str,
        change: Change,
        value: f64,
        labels: Vec<String>,
    ) -> Result<(), Refused> {
        let mut table = lock(&self.0);
        let table = &mut *table;
        let Some(collector) = table.by_name.get_mut(name) else {
            return Err(Refused::Undefined(name.to_owned()));
        };
        let Declaration {
            kind,
            labels: declared,
            ..
        } = &collector.declaration;
        if !change.fits(*kind) {
            return Err(Refused::Unsupported(name.to_owned(), change.method()));
        }
        if *kind == Kind::Counter && (value < 0.0 || value.is_nan()) {
            return Err(Refused::Decrease(name.to_owned()));
        }
        // RoadRunner leaves out labels where none are declared.
        let labels = if declared.is_empty() {
            Vec::new()
        } else {
            labels
        };
        if labels.is_empty() && !declared.is_empty() {
            return Err(Refused::LabelsRequired(name.to_owned()));
        }
        if labels.len() != declared.len() {
            let (expected, given) = (declared.len(), labels.len());
            return Err(Refused::Cardinality(name.to_owned(), expected, given));
        }
        change.apply(table.series(name, labels)?, value, Instant::now());
        Ok(())
    }

    /// Adds what a worker has counted. What nobody has declared is declared by this.
    pub(crate) fn count(&self, counted: Counted) -> Result<(), Refused> {
        let Counted {
            name,
            help,
            labels,
            sum,
        } = counted;
        if !lock(&self.0).by_name.contains_key(&name) {
            let declaration = Declaration {
                kind: sum.kind(),
                namespace: String::new(),
                subsystem: String::new(),
                help: help.unwrap_or_default(),
                labels: labels.keys().cloned().collect(),
                buckets: sum.buckets().to_vec(),
                quantiles: Vec::new(),
            };
            self.declare(&name, declaration)?;
        }
        let mut table = lock(&self.0);
        let table = &mut *table;
        let Some(collector) = table.by_name.get_mut(&name) else {
            return Err(Refused::Undefined(name)); // it was removed meanwhile
        };
        let Declaration {
            kind,
            labels: declared,
            ..
        } = &collector.declaration;
        if *kind != sum.kind() {
            return Err(Refused::AnotherKind(name));
        }
        let values = declared.iter().map(|label| labels.get(label).cloned());
        let values = values.collect::<Option<Vec<_>>>();
        let Some(values) = values.filter(|values| values.len() == labels.len()) else {
            return Err(Refused::OtherLabels(name, declared.join("`, `")));
        };
        let series = table.series(&name, values)?;
        sum.add_to(&mut series.reading)
            .ok_or(Refused::OtherBuckets(name))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), Refused> {
        let mut table = lock(&self.0);
        let removed = table.by_name.remove(name);
        let removed = removed.ok_or_else(|| Refused::Undefined(name.to_owned()))?;
        table.series -= removed.series.len() * removed.declaration.weight();
        Ok(())
    }

    /// All of them, in the order of names, and their series in the order of labels.
    pub(crate) fn families(&self) -> Vec<ReadFamily> {
        let now = Instant::now();
        let mut table = lock(&self.0);
        let families = table.by_name.values_mut().map(|collector| {
            let Declaration {
                kind,
                help,
                labels,
                quantiles,
                ..
            } = &collector.declaration;
            let mut series: Vec<_> = collector.series.iter_mut().collect();
            series.sort_by_key(|(values, _)| *values);
            let series = series.into_iter().map(|(values, counting)| Series {
                labels: labels
                    .iter()
                    .map(|name| name.clone().into())
                    .zip(values.iter().cloned())
                    .collect(),
                reading: counting.read(quantiles, now),
            });
            ReadFamily {
                name: collector.name.clone(),
                help: help.clone().into(),
                kind: *kind,
                series: series.collect(),
            }
        });
        families.collect()
    }
}

impl Table {
    /// One of a collector that is there; a new one, if there is room.
    fn series(&mut self, name: &str, labels: Vec<String>) -> Result<&mut Counting, Refused> {
        let Some(collector) = self.by_name.get_mut(name) else {
            return Err(Refused::Undefined(name.to_owned()));
        };
        if !collector.series.contains_key(&labels) {
            if labels.iter().any(|value| value.len() > LONGEST) {
                return Err(Refused::TooLong("the value of a label", LONGEST));
            }
            room_for_series(&mut self.series, &collector.declaration)?;
        }
        let zero = || collector.declaration.zero();
        Ok(collector.series.entry(labels).or_insert_with(zero))
    }
}

/// Counts one more.
fn room_for_series(series: &mut usize, declaration: &Declaration) -> Result<(), Refused> {
    let with_it = *series + declaration.weight();
    if with_it > MOST_SERIES {
        return Err(Refused::TooMany("series", MOST_SERIES));
    }
    *series = with_it;
    Ok(())
}

impl Counting {
    fn read(&mut self, wanted: &[f64], now: Instant) -> Reading {
        let mut reading = self.reading.clone();
        if let (Reading::Summary { quantiles, .. }, Some(recent)) = (&mut reading, &mut self.recent)
        {
            *quantiles = recent.quantiles(wanted, now);
        }
        reading
    }
}

impl Declaration {
    /// The name under which it is written.
    pub(crate) fn check(&self, name: &str) -> Result<String, Refused> {
        let parts = [&*self.namespace, &*self.subsystem, name];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let full = parts.join("_");
        if full.len() > LONGEST || name.len() > LONGEST {
            return Err(Refused::TooLong("the name of a metric", LONGEST));
        }
        if name.is_empty() || !is_name(&full, ":") {
            return Err(Refused::BadName(full));
        }
        if let Some(reserved) = RESERVED.iter().find(|start| full.starts_with(*start)) {
            return Err(Refused::Reserved(reserved));
        }
        if self.help.len() > LONGEST_HELP {
            return Err(Refused::TooLong("the help of a metric", LONGEST_HELP));
        }
        if self.labels.len() > MOST_LABELS {
            return Err(Refused::TooMany("labels", MOST_LABELS));
        }
        for (at, label) in self.labels.iter().enumerate() {
            if label.len() > LONGEST {
                return Err(Refused::TooLong("the name of a label", LONGEST));
            }
            if !is_name(label, "") || label.starts_with("__") {
                return Err(Refused::BadLabel(label.clone()));
            }
            let of_kind = match self.kind {
                Kind::Histogram => label == "le",
                Kind::Summary => label == "quantile",
                Kind::Counter | Kind::Gauge | Kind::UpDownCounter => false,
            };
            if of_kind || self.labels[..at].contains(label) {
                return Err(Refused::TakenLabel(label.clone()));
            }
        }
        if self.buckets.len() > MOST_BUCKETS {
            return Err(Refused::TooMany("buckets", MOST_BUCKETS));
        }
        let ascend = self.buckets.is_sorted_by(|one, next| one < next);
        if !ascend || self.buckets.iter().any(|bound| !bound.is_finite()) {
            return Err(Refused::BadBuckets(full));
        }
        if self.quantiles.len() > MOST_QUANTILES {
            return Err(Refused::TooMany("objectives", MOST_QUANTILES));
        }
        if !self.quantiles.iter().all(|of| (0.0..=1.0).contains(of)) {
            return Err(Refused::BadQuantiles(full));
        }
        Ok(full)
    }

    fn has_quantiles(&self) -> bool {
        self.kind == Kind::Summary && !self.quantiles.is_empty()
    }

    /// As how many series one counts.
    fn weight(&self) -> usize {
        if self.has_quantiles() {
            QUANTILES_COUNT_AS
        } else {
            1
        }
    }

    fn zero(&self) -> Counting {
        let reading = match self.kind {
            Kind::Counter | Kind::Gauge | Kind::UpDownCounter => Reading::Value(0.0),
            Kind::Histogram => Reading::Histogram {
                bounds: self.buckets.clone(),
                counts: vec![0; self.buckets.len() + 1],
                sum: 0.0,
                exemplars: Vec::new(),
            },
            Kind::Summary => Reading::Summary {
                count: 0,
                sum: 0.0,
                quantiles: Vec::new(),
            },
        };
        Counting {
            reading,
            recent: self.has_quantiles().then(Box::default),
        }
    }
}

/// Letters, digits and `_`, and what `others` lists, beginning with no digit.
fn is_name(text: &str, others: &str) -> bool {
    let fits =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || others.contains(letter);
    text.chars().all(fits) && text.starts_with(|first: char| !first.is_ascii_digit())
}

impl Change {
    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Add => "Add",
            Self::Sub => "Sub",
            Self::Set => "Set",
            Self::Observe => "Observe",
        }
    }

    const fn fits(self, kind: Kind) -> bool {
        match self {
            Self::Add => matches!(kind, Kind::Counter | Kind::Gauge),
            Self::Sub | Self::Set => matches!(kind, Kind::Gauge),
            Self::Observe => matches!(kind, Kind::Histogram | Kind::Summary),
        }
    }

    fn apply(self, series: &mut Counting, by: f64, now: Instant) {
        if let Some(recent) = &mut series.recent {
            recent.add(by, now);
        }
        match &mut series.reading {
            Reading::Value(value) => match self {
                Self::Add => *value += by,
                Self::Sub => *value -= by,
                Self::Set | Self::Observe => *value = by,
            },
            Reading::Histogram {
                bounds,
                counts,
                sum,
                ..
            } => {
                // A value that is no number is above all bounds.
                let bucket = bounds.partition_point(|bound| *bound < by || by.is_nan());
                counts[bucket] += 1;
                *sum += by;
            }
            Reading::Summary { count, sum, .. } => {
                *count += 1;
                *sum += by;
            }
            Reading::Count(_) => {} // of the server alone
        }
    }
}

/// The endings of its samples' names after that of the family.
const fn suffixes(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Counter | Kind::Gauge | Kind::UpDownCounter => &[""],
        Kind::Histogram => &["", "_bucket", "_count", "_sum"],
        Kind::Summary => &["", "_count", "_sum"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Format;

    fn declaration(kind: Kind, labels: &[&str]) -> Declaration {
        Declaration {
            kind,
            namespace: String::new(),
            subsystem: String::new(),
            help: "Help.".into(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            buckets: Vec::new(),
            quantiles: Vec::new(),
        }
    }

    fn values(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    fn text(collectors: &Collectors) -> String {
        let text = Format::Prometheus.write(&collectors.families());
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_is_declared_can_be_changed_by_its_name() {
        let collectors = Collectors::default();
        let named = Declaration {
            namespace: "app".into(),
            subsystem: "shop".into(),
            ..declaration(Kind::Counter, &["shop", "kind"])
        };
        let histogram = Declaration {
            buckets: vec![1.0, 2.0, f64::INFINITY],
            ..declaration(Kind::Histogram, &[])
        };
        for (name, declaration) in [
            ("orders", named),
            ("open", declaration(Kind::Gauge, &[])),
            ("took", histogram),
            ("seen", declaration(Kind::Summary, &[])),
        ] {
            assert_eq!(collectors.declare(name, declaration), Ok(Declared::New));
        }
        let change = |name, change, value, labels: &[&str]| {
            collectors
                .change(name, change, value, values(labels))
                .unwrap();
        };
        change("orders", Change::Add, 2.0, &["b", "new"]);
        change("orders", Change::Add, 1.5, &["a", "new"]);
        change("orders", Change::Add, 1.0, &["b", "new"]);
        change("open", Change::Set, 10.0, &[]);
        change("open", Change::Sub, 3.0, &[]);
        change("open", Change::Add, 0.5, &["left out"]);
        for value in [0.5, 1.0, 1.5, 9.0] {
            change("took", Change::Observe, value, &[]);
            change("seen", Change::Observe, value, &[]);
        }
        assert_eq!(
            text(&collectors),
            "open 7.5\n\
             app_shop_orders{shop=\"a\",kind=\"new\"} 1.5\n\
             app_shop_orders{shop=\"b\",kind=\"new\"} 3\n\
             seen_sum 12\nseen_count 4\n\
             took_bucket{le=\"1\"} 2\ntook_bucket{le=\"2\"} 3\ntook_bucket{le=\"+Inf\"} 4\n\
             took_sum 12\ntook_count 4"
        );
        collectors.remove("orders").unwrap();
        assert!(!text(&collectors).contains("orders"));
        assert!(collectors.remove("orders").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let collectors = Collectors::default();
        let counter = || declaration(Kind::Counter, &["shop"]);
        collectors.declare("c1", counter()).unwrap();
        collectors
            .declare("h1", declaration(Kind::Histogram, &[]))
            .unwrap();
        assert_eq!(collectors.declare("c1", counter()), Ok(Declared::Known));
        let others = declaration(Kind::Counter, &["city"]);
        assert_eq!(collectors.declare("c1", others), Ok(Declared::Differs));

        let why = |name: &str, change, value, labels: &[&str]| {
            let changed = collectors.change(name, change, value, values(labels));
            changed.unwrap_err().to_string()
        };
        for (refused, start) in [
            (
                why("c1", Change::Add, 1.0, &[]),
                "required labels for collector `c1`",
            ),
            (
                why("nope", Change::Add, 1.0, &[]),
                "undefined collector nope, try first Declare",
            ),
            (
                why("c1", Change::Set, 1.0, &["a"]),
                "collector `c1` does not support method `Set`",
            ),
            (
                why("c1", Change::Add, 1.0, &["a", "b"]),
                "inconsistent label cardinality",
            ),
            (
                why("c1", Change::Add, -1.0, &["a"]),
                "counter `c1` cannot decrease",
            ),
            (
                why("c1", Change::Add, f64::NAN, &["a"]),
                "counter `c1` cannot decrease",
            ),
            (
                why("c1", Change::Add, 1.0, &["x".repeat(2000).as_str()]),
                "the value of a label",
            ),
        ] {
            assert!(refused.starts_with(start), "{refused}");
        }
        let why = |name: &str, declaration| collectors.declare(name, declaration).unwrap_err();
        let of = |labels: &[&str]| declaration(Kind::Gauge, labels);
        assert_eq!(why("9", of(&[])), Refused::BadName("9".into()));
        assert_eq!(why("a b", of(&[])), Refused::BadName("a b".into()));
        assert_eq!(why("a\n", of(&[])), Refused::BadName("a\n".into()));
        assert_eq!(why("", of(&[])), Refused::BadName(String::new()));
        assert_eq!(why("g", of(&["__x"])), Refused::BadLabel("__x".into()));
        assert_eq!(why("g", of(&["é"])), Refused::BadLabel("é".into()));
        assert_eq!(why("g", of(&["a", "a"])), Refused::TakenLabel("a".into()));
        assert_eq!(why("h1_sum", of(&[])), Refused::Taken("h1_sum".into()));
        assert_eq!(why("pronghorn_x", of(&[])), Refused::Reserved("pronghorn_"));
        let unsorted = Declaration {
            buckets: vec![2.0, 1.0],
            ..declaration(Kind::Histogram, &[])
        };
        assert_eq!(why("h2", unsorted), Refused::BadBuckets("h2".into()));
        let of_kind = declaration(Kind::Histogram, &["le"]);
        assert_eq!(why("h2", of_kind), Refused::TakenLabel("le".into()));
    }

    #[test]
    fn series_have_an_end() {
        let collectors = Collectors::default();
        collectors
            .declare("g", declaration(Kind::Gauge, &["user"]))
            .unwrap();
        let set = |user: usize| collectors.change("g", Change::Set, 1.0, vec![user.to_string()]);
        for user in 0..MOST_SERIES {
            set(user).unwrap();
        }
        assert_eq!(
            set(MOST_SERIES),
            Err(Refused::TooMany("series", MOST_SERIES))
        );
        assert_eq!(set(0), Ok(()), "those that are there go on");
        collectors.remove("g").unwrap();
        collectors
            .declare("g", declaration(Kind::Gauge, &["user"]))
            .unwrap();
        assert_eq!(set(MOST_SERIES), Ok(()));
    }
}
