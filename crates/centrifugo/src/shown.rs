//! The page of the admin listener: where Centrifugo is, and how calls in both directions fare.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use pronghorn_base::{lock, now_ms};
use pronghorn_metrics::{Reading, Registry};
use pronghorn_plugin_api::{NotShown, Shown};
use serde::Serialize;

use crate::api::Api;
use crate::metrics::{CALLS, IN_PROGRESS};

/// The outcome of calls of the API. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiCalls(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    calls: AtomicU64,
    failures: AtomicU64,
    last_failure: Mutex<Option<Failed>>,
}

#[derive(Clone, Debug, Serialize)]
struct Failed {
    /// Milliseconds since 1970.
    time: u64,
    why: String,
}

impl ApiCalls {
    pub(crate) fn ended(&self, failure: Option<&str>) {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        if let Some(why) = failure {
            self.0.failures.fetch_add(1, Ordering::Relaxed);
            *lock(&self.0.last_failure) = Some(Failed {
                time: now_ms(),
                why: why.to_owned(),
            });
        }
    }
}

/// The sources of the page.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    /// The address that Centrifugo calls.
    pub(crate) proxy: String,
    pub(crate) api: Arc<ArcSwap<Api>>,
    pub(crate) calls: ApiCalls,
    pub(crate) registry: Registry,
}

#[derive(Debug, Serialize)]
struct Page {
    proxy: ProxyShown,
    api: ApiShown,
}

#[derive(Debug, Serialize)]
struct ProxyShown {
    address: String,
    in_progress: u64,
    calls: Vec<Call>,
}

#[derive(Debug, Serialize)]
struct Call {
    method: String,
    status: String,
    count: u64,
}

#[derive(Debug, Serialize)]
struct ApiShown {
    address: String,
    tls: bool,
    calls: u64,
    failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<Failed>,
}

impl Status {
    pub(crate) fn page(&self) -> Shown {
        let (mut calls, mut in_progress) = (Vec::new(), 0);
        for family in self.registry.families() {
            let name = family.name.trim_start_matches("pronghorn_centrifugo_");
            for series in family.series {
                match (name, series.reading) {
                    (CALLS, Reading::Count(count)) => {
                        let mut labels = series.labels.into_iter().map(|(_, value)| value);
                        calls.push(Call {
                            method: labels.next().unwrap_or_default(),
                            status: labels.next().unwrap_or_default(),
                            count,
                        });
                    }
                    (IN_PROGRESS, Reading::Value(value)) => in_progress = whole(value),
                    _ => {}
                }
            }
        }
        let api = self.api.load();
        let settings = api.settings();
        let counted = &self.calls.0;
        let page = Page {
            proxy: ProxyShown {
                address: self.proxy.clone(),
                in_progress,
                calls,
            },
            api: ApiShown {
                address: format!("{}:{}", settings.host, settings.port),
                tls: settings.tls.is_some(),
                calls: counted.calls.load(Ordering::Relaxed),
                failures: counted.failures.load(Ordering::Relaxed),
                last_failure: lock(&counted.last_failure).clone(),
            },
        };
        serde_json::to_string(&page).map_err(|error| NotShown::Failed(error.to_string()))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of calls"
)]
const fn whole(value: f64) -> u64 {
    value as u64
}
