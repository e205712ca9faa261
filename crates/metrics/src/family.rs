//! Series of one name that labels tell apart, where the values of the labels become known at run
//! time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;

use crate::registry::{Metric, Registry};

/// What the labels of further series say once a family is full.
const OTHER: &str = "other";

/// One metric for each set of label values, up to a limit. Values can come from a peer, so their
/// number has to end: beyond the limit they are counted together, as `other`.
///
/// [`with`](Self::with) locks and may allocate: a caller keeps the handle that it got.
#[derive(Debug)]
pub struct Family<M, const N: usize>(Arc<Inner<M, N>>);

#[derive(Debug)]
struct Inner<M, const N: usize> {
    registry: Registry,
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    limit: usize,
    known: Mutex<HashMap<[String; N], M>>,
}

impl<M, const N: usize> Inner<M, N> {
    /// For the series with these values.
    fn labelled(&self, values: &[String; N]) -> Registry {
        let mut registry = self.registry.clone();
        for (label, value) in self.labels.iter().zip(values) {
            registry = registry.labelled(label, value);
        }
        registry
    }
}

impl<M, const N: usize> Clone for Family<M, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Metric, const N: usize> Family<M, N> {
    pub(crate) fn new(
        registry: Registry,
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        limit: usize,
    ) -> Self {
        Self(Arc::new(Inner {
            registry,
            name,
            help,
            labels,
            limit,
            known: Mutex::default(),
        }))
    }

    /// The handle of the series with these values of the labels, in the order in which the labels
    /// were named.
    pub fn with(&self, values: [&str; N]) -> M {
        let inner = &*self.0;
        let mut known = lock(&inner.known);
        let mut key = values.map(ToOwned::to_owned);
        if !known.contains_key(&key) && known.len() >= inner.limit {
            key = [OTHER; N].map(ToOwned::to_owned);
        }
        if let Some(metric) = known.get(&key) {
            return metric.clone();
        }
        let metric: M = inner.labelled(&key).register(inner.name, inner.help);
        known.insert(key, metric.clone());
        metric
    }

    /// Forgets the series whose values are not to be kept, but for `other`: there is room for as
    /// many new ones. What is counted by a handle of one is not seen any more.
    pub fn retain(&self, keep: impl Fn([&str; N]) -> bool) {
        let inner = &*self.0;
        lock(&inner.known).retain(|key, _| {
            let values = key.each_ref().map(String::as_str);
            let is_kept = values == [OTHER; N] || keep(values);
            if !is_kept {
                inner.labelled(key).forget(inner.name);
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counter, Reading};

    fn family(registry: &Registry, limit: usize) -> Family<Counter, 2> {
        registry.family("requests", "Requests.", ["method", "status"], limit)
    }

    #[test]
    fn the_same_values_are_the_same_series() {
        let family = family(&Registry::default(), 10);
        family.with(["GET", "200"]).increment();
        family.with(["GET", "200"]).increment();
        family.with(["GET", "404"]).increment();
        assert_eq!(family.with(["GET", "200"]).get(), 2);
    }

    #[test]
    fn what_is_not_kept_makes_room() {
        let registry = Registry::default();
        let family = family(&registry, 2);
        for status in ["200", "404", "500"] {
            family.with(["GET", status]).increment();
        }
        family.retain(|[_, status]| status == "404");
        family.with(["GET", "201"]).increment();
        let families = registry.families();
        let labels = families[0].series.iter().map(|series| &*series.labels[1].1);
        assert_eq!(
            labels.collect::<Vec<_>>(),
            ["404", "other"],
            "as many as there may be"
        );
        let family = self::family(&registry, 9);
        family.retain(|_| false);
        family.with(["GET", "201"]).increment();
        assert_eq!(family.with(["GET", "201"]).get(), 1);
    }

    #[test]
    fn beyond_the_limit_all_count_together() {
        let registry = Registry::default();
        let family = family(&registry, 3);
        for status in 0..1000 {
            family.with(["GET", &status.to_string()]).increment();
        }
        assert_eq!(
            family.with(["GET", "0"]).get(),
            1,
            "those known before keep their own"
        );
        assert_eq!(family.with(["PUT", "200"]).get(), 997);
        let families = registry.families();
        assert_eq!(families[0].series.len(), 4);
        let sum = families[0]
            .series
            .iter()
            .map(|series| match series.reading {
                Reading::Count(count) => count,
                _ => 0,
            });
        assert_eq!(sum.sum::<u64>(), 1000, "nothing is lost");
    }
}
