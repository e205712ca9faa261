//! All that is counted, by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use pronghorn_base::lock;

use crate::family::Family;
use crate::handle::{Counter, Gauge};
use crate::histogram::{Exemplar, Histogram, LATENCY};

/// Where metrics are registered, and read. A clone is the same registry; one made by
/// [`named`](Self::named) or [`labelled`](Self::labelled) registers in the same one, under names
/// and labels of its own.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    families: Arc<Mutex<BTreeMap<String, Registered>>>,
    has_reader: Arc<AtomicBool>,
    application: Arc<OnceLock<Application>>,
    prefix: String,
    labels: Labels,
}

/// The metrics that an application counts: what takes them, and what reads them.
struct Application {
    take: Box<Take>,
    read: Box<Read>,
}

type Take = dyn Fn(&str, &[u8]) + Send + Sync;
type Read = dyn Fn() -> Vec<ReadFamily> + Send + Sync;

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct Registered {
    kind: Kind,
    help: &'static str,
    series: Vec<(Labels, Source)>,
}

/// What the numbers of a family mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Says something of this moment alone: two of them add up to nothing.
    Gauge,
    /// Rises and falls, and the series of a family add up to what there is in all. To Prometheus it
    /// is a gauge.
    UpDownCounter,
    Histogram,
    /// Quantiles, which whoever counts has computed.
    Summary,
}

/// Where a series gets its value from.
#[derive(Clone)]
pub enum Source {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
    /// Computed when it is read.
    Computed(Arc<dyn Fn() -> f64 + Send + Sync>),
}

/// All series of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadFamily {
    pub name: String,
    pub help: Cow<'static, str>,
    pub kind: Kind,
    /// In the order in which they were registered.
    pub series: Vec<Series>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub labels: Vec<(Cow<'static, str>, String)>,
    pub reading: Reading,
}

/// Its value at the moment of reading.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    Count(u64),
    Value(f64),
    Histogram {
        /// Upper bounds of the buckets, of durations in seconds; the last bucket has none.
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
        /// Quantiles, from 0 to 1, and their values; NaN where there was nothing to compute one of.
        quantiles: Vec<(f64, f64)>,
    },
}

/// A handle that a registry makes: [`Counter`], [`Gauge`] or [`Histogram`].
pub trait Metric: Clone {
    #[doc(hidden)]
    const KIND: Kind;
    #[doc(hidden)]
    fn create() -> Self;
    #[doc(hidden)]
    fn source(&self) -> Source;
    #[doc(hidden)]
    fn of(source: &Source) -> Option<Self>;
}

macro_rules! metric {
    ($kind:ident, $create:expr) => {
        impl Metric for $kind {
            const KIND: Kind = Kind::$kind;

            fn create() -> Self {
                $create
            }

            fn source(&self) -> Source {
                Source::$kind(self.clone())
            }

            fn of(source: &Source) -> Option<Self> {
                match source {
                    Source::$kind(metric) => Some(metric.clone()),
                    _ => None,
                }
            }
        }
    };
}

metric!(Counter, Self::default());
metric!(Gauge, Self::default());
metric!(Histogram, Self::new(LATENCY));

impl Registry {
    /// One whose names begin with this, and an underscore.
    #[must_use]
    pub fn named(&self, prefix: &str) -> Self {
        Self {
            prefix: format!("{}{prefix}_", self.prefix),
            ..self.clone()
        }
    }

    /// One whose names begin with this and an underscore, whatever they began with before: for
    /// names that other programs' dashboards know.
    #[must_use]
    pub fn named_anew(&self, prefix: &str) -> Self {
        Self {
            prefix: format!("{prefix}_"),
            ..self.clone()
        }
    }

    /// One whose series carry this label.
    #[must_use]
    pub fn labelled(&self, name: &'static str, value: &str) -> Self {
        let mut labels = self.labels.clone();
        labels.push((name, value.to_owned()));
        Self {
            labels,
            ..self.clone()
        }
    }

    /// The name of a counter ends in `_total`.
    pub fn counter(&self, name: &str, help: &'static str) -> Counter {
        self.register(name, help)
    }

    pub fn gauge(&self, name: &str, help: &'static str) -> Gauge {
        self.register(name, help)
    }

    /// A histogram of durations, with the bounds of [`LATENCY`]. Its name ends in `_seconds`.
    pub fn histogram(&self, name: &str, help: &'static str) -> Histogram {
        self.register(name, help)
    }

    /// A gauge that is computed when it is read.
    pub fn computed(
        &self,
        name: &str,
        help: &'static str,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.insert(name, help, Kind::Gauge, Source::Computed(Arc::new(value)));
    }

    /// A number of things that are there now, which is computed when it is read: of a family, the
    /// series add up to something.
    pub fn present(
        &self,
        name: &str,
        help: &'static str,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let source = Source::Computed(Arc::new(value));
        self.insert(name, help, Kind::UpDownCounter, source);
    }

    /// A counter that somebody else keeps, and that is looked up when it is read. Its name ends in
    /// `_total`.
    pub fn counted(
        &self,
        name: &str,
        help: &'static str,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let source = Source::Computed(Arc::new(value));
        self.insert(name, help, Kind::Counter, source);
    }

    /// Series that these labels tell apart, `limit` at most; see [`Family`].
    pub fn family<M: Metric, const N: usize>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        limit: usize,
    ) -> Family<M, N> {
        Family::new(self.clone(), name, help, labels, limit)
    }

    /// Says that what is registered will be read: what is only counted for readers is, from now on.
    pub fn announce_reader(&self) {
        self.has_reader.store(true, Relaxed);
    }

    /// Whether somebody has announced to read.
    pub fn has_reader(&self) -> bool {
        self.has_reader.load(Relaxed)
    }

    /// From now on `take` takes what applications count: the name of their pool, and changes as
    /// their workers send them; and `read` reads all of it. Neither waits. Only the first ones are
    /// asked.
    pub fn count_by(
        &self,
        take: impl Fn(&str, &[u8]) + Send + Sync + 'static,
        read: impl Fn() -> Vec<ReadFamily> + Send + Sync + 'static,
    ) {
        _ = self.application.set(Application {
            take: Box::new(take),
            read: Box::new(read),
        });
    }

    /// Hands on what an application has counted, if somebody is there who wants to know.
    pub fn count(&self, pool: &str, changes: &[u8]) {
        if let Some(application) = self.application.get() {
            (application.take)(pool, changes);
        }
    }

    /// What applications count.
    pub fn application_families(&self) -> Vec<ReadFamily> {
        let application = self.application.get();
        application.map_or_else(Vec::new, |application| (application.read)())
    }

    /// Everything that is registered, in the order of names.
    pub fn families(&self) -> Vec<ReadFamily> {
        let read = |(name, family): (&String, &Registered)| ReadFamily {
            name: name.clone(),
            help: family.help.into(),
            kind: family.kind,
            series: family.series.iter().map(Series::read).collect(),
        };
        lock(&self.families).iter().map(read).collect()
    }

    /// A handle by name and labels. What was registered before, by a service that was started anew
    /// for instance, goes on.
    pub(crate) fn register<M: Metric>(&self, name: &str, help: &'static str) -> M {
        let metric = M::create();
        let registered = self.insert(name, help, M::KIND, metric.source());
        M::of(&registered).unwrap_or(metric)
    }

    /// Removes the series of this name and these labels. Whoever has its handle counts unseen.
    pub(crate) fn forget(&self, name: &str) {
        let mut families = lock(&self.families);
        if let Some(family) = families.get_mut(&format!("{}{name}", self.prefix)) {
            family.series.retain(|(labels, _)| *labels != self.labels);
        }
    }

    fn insert(&self, name: &str, help: &'static str, kind: Kind, source: Source) -> Source {
        let mut families = lock(&self.families);
        let family = families
            .entry(format!("{}{name}", self.prefix))
            .or_insert_with(|| Registered {
                kind,
                help,
                series: Vec::new(),
            });
        // Names are constants of the program: two meanings for one are a bug that the first start
        // shows.
        debug_assert!(
            family.kind == kind,
            "`{name}` is registered as another kind"
        );
        let known = family
            .series
            .iter_mut()
            .find(|(labels, _)| *labels == self.labels);
        match known {
            // The function of the service that runs now is the one to call.
            Some((_, old)) if matches!(source, Source::Computed(_)) => {
                *old = source.clone();
                source
            }
            Some((_, old)) => old.clone(),
            None => {
                family.series.push((self.labels.clone(), source.clone()));
                source
            }
        }
    }
}

impl fmt::Debug for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Application")
    }
}

impl Series {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a gauge beyond 2^53, and a bound of as many microseconds, may be rounded"
    )]
    fn read((labels, source): &(Labels, Source)) -> Self {
        let reading = match source {
            Source::Counter(counter) => Reading::Count(counter.get()),
            Source::Gauge(gauge) => Reading::Value(gauge.get() as f64),
            Source::Computed(value) => Reading::Value(value()),
            Source::Histogram(histogram) => Reading::Histogram {
                bounds: (histogram.bounds().iter().map(|bound| *bound as f64 / 1e6)).collect(),
                counts: histogram.counts(),
                sum: histogram.sum().as_secs_f64(),
                exemplars: histogram.exemplars(),
            },
        };
        let labels = labels.iter();
        Self {
            labels: labels
                .map(|(name, value)| ((*name).into(), value.clone()))
                .collect(),
            reading,
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counter(counter) => counter.fmt(f),
            Self::Gauge(gauge) => gauge.fmt(f),
            Self::Histogram(histogram) => histogram.fmt(f),
            Self::Computed(_) => f.write_str("Computed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_prefixes_and_a_series_its_labels() {
        let registry = Registry::default();
        let pool = registry.named("pronghorn").named("pool");
        let (api, admin) = (pool.labelled("pool", "api"), pool.labelled("pool", "admin"));
        api.counter("calls_total", "Calls.").add(2);
        admin.counter("calls_total", "Calls.").add(3);
        api.gauge("workers", "Workers.").set(4);
        api.computed("queue_wait_seconds", "Oldest wait.", || 0.5);

        let families = registry.families();
        let names: Vec<&str> = families.iter().map(|family| &*family.name).collect();
        let expected = [
            "pronghorn_pool_calls_total",
            "pronghorn_pool_queue_wait_seconds",
            "pronghorn_pool_workers",
        ];
        assert_eq!(names, expected);
        let calls: Vec<_> = families[0]
            .series
            .iter()
            .map(|each| (&*each.labels[0].1, &each.reading))
            .collect();
        assert_eq!(
            calls,
            [("api", &Reading::Count(2)), ("admin", &Reading::Count(3))]
        );
        assert_eq!(families[1].series[0].reading, Reading::Value(0.5));
        assert_eq!(families[2].series[0].reading, Reading::Value(4.0));
    }

    #[test]
    fn a_name_anew_has_no_prefix_of_before() {
        let registry = Registry::default();
        let jobs = registry.named("pronghorn").named_anew("rr_jobs");
        jobs.counter("push_ok", "Pushes.").increment();
        assert_eq!(registry.families()[0].name, "rr_jobs_push_ok");
    }

    #[test]
    fn a_series_that_is_registered_again_goes_on() {
        let registry = Registry::default();
        registry.counter("starts_total", "Starts.").increment();
        registry.counter("starts_total", "Starts.").increment();
        assert_eq!(registry.families()[0].series.len(), 1);
        assert_eq!(registry.families()[0].series[0].reading, Reading::Count(2));
        registry.computed("size", "Size.", || 1.0);
        registry.computed("size", "Size.", || 2.0);
        assert_eq!(
            registry.families()[0].series[0].reading,
            Reading::Value(2.0)
        );
    }
}
