//! The service: a listener on the control thread, and methods for RPC.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::LogThrottle;
use pronghorn_config::Listen;
use pronghorn_metrics::{Kind, ReadFamily, Registry};
use pronghorn_plugin_api::rpc::{Argument, Failure, ServiceMethods};
use pronghorn_plugin_api::{self as api, BoxFuture, Context, Health, Running, queue_families};
use pronghorn_process::open_files::Share;
use pronghorn_serve::{
    Body, ControlEndpoint, Exchange, Handled, Handler, Limits, ListenAddress, Listener, Request,
    Response, resolve,
};
use pronghorn_workers::{Pools, server_families, worker_families};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::declared::{Change, Collectors, Declaration, Declared};
use crate::go;
use crate::roadrunner;
use crate::settings::MetricsSettings;
use crate::text::Format;
use crate::workers;

/// The name of the service, and of its listening socket for the next process.
const METRICS: &str = "metrics";
/// Prometheus gives up after 10 s: nobody waits longer for a text.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);
/// A text that a client has not taken yet is given to others as well for so long: many slow clients
/// hold a few texts together, and not one each.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The endpoint before its start.
#[derive(Debug)]
pub struct MetricsService {
    pub settings: MetricsSettings,
    /// The metrics that the application declares.
    pub collectors: Collectors,
}

/// Answers each request with all metrics.
#[derive(Debug)]
pub struct Exposition {
    own: Registry,
    /// Adds what workers count.
    _counting: JoinSet<()>,
    pools: Arc<OnceLock<Pools>>,
    health: Health,
    started: Instant,
    /// The last text in each format: when it was made, and the text as long as a client has it. One
    /// is made at a time.
    untaken: Mutex<HashMap<Format, (Instant, Weak<Text>)>>,
}

/// All metrics, in one format.
#[derive(Debug)]
struct Text(String);

/// The same for one of the clients that are sent it.
struct Shared(Arc<Text>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.0.0.as_bytes()
    }
}

impl api::Service for MetricsService {
    fn listens(&self) -> Vec<Listen> {
        vec![Listen::Tcp(self.settings.address.clone())]
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, api::StartError>> {
        Box::pin(async move { Ok(Box::new(self.serve(&context)?) as _) })
    }
}

impl MetricsService {
    fn serve(self, context: &Context) -> Result<ControlEndpoint, api::StartError> {
        let Self {
            settings,
            collectors,
        } = self;
        let mut inherited = context.sockets.take(METRICS);
        let listener = Listener::open(resolve(&settings.address)?, 1, &mut inherited)?;
        for (name, declaration) in settings.collectors {
            let declared = collectors.declare(&name, declaration);
            declared.map_err(|why| format!("`metrics.collect.{name}`: {why}"))?;
        }
        context.metrics.announce_reader();
        add_methods(&context.rpc.service(METRICS, collectors.clone()));
        let metrics = Exposition::new(context, &collectors);
        let limits = Limits {
            connections: Share::METRICS.connections(),
            whole_response: Some(TAKEN_WITHIN),
            ..Limits::default()
        };
        context.readiness.answer_with(|| Ok(()));
        let opened =
            |address: &ListenAddress| tracing::debug!(target: "metrics", %address, "listening");
        let metrics = Arc::new(metrics);
        let endpoint = ControlEndpoint::new(METRICS, context, listener, metrics, limits, opened)?;
        Ok(endpoint)
    }
}

impl Handler for Exposition {
    fn handle<'a>(&'a self, request: Request, _: &'a mut dyn Exchange) -> Handled<'a> {
        let format = Format::wanted(request.head.fields());
        Box::pin(async move {
            let text = Bytes::from_owner(Shared(self.text(format).await));
            let mut response = Response::new(200, Body::Whole(text));
            response.fields.push("Content-Type", format.content_type());
            response
        })
    }
}

impl Exposition {
    /// The metrics of a server, with those that its application has declared.
    pub fn new(context: &Context, collectors: &Collectors) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let version = context.metrics.labelled("version", version);
        version
            .gauge("build_info", "Always 1; the label says what runs.")
            .set(1);
        Self {
            own: context.metrics.clone(),
            _counting: collectors.count_for(&context.metrics),
            pools: context.pools.clone(),
            health: context.health.clone(),
            started: Instant::now(),
            untaken: Mutex::default(),
        }
    }

    /// All metrics at this moment.
    async fn text(&self, format: Format) -> Arc<Text> {
        let mut untaken = self.untaken.lock().await;
        if let Some((made, text)) = untaken.get(&format)
            && made.elapsed() < SHARED_FOR
            && let Some(text) = text.upgrade()
        {
            return text;
        }
        let made = Instant::now();
        let text = Arc::new(Text(format.write(&self.families().await)));
        untaken.insert(format, (made, Arc::downgrade(&text)));
        text
    }

    async fn families(&self) -> Vec<ReadFamily> {
        let mut families = self.own.families();
        families.extend(roadrunner::families(&families, self.started.elapsed()));
        if let Some(pools) = self.pools.get() {
            let facts = pools.facts().await;
            families.extend(worker_families(&facts));
            for service in self.health.names() {
                families.extend(workers::families(service, &facts));
            }
        }
        if let Some(queues) = self.health.queues().ask().await {
            families.extend(queue_families(&queues));
        }
        families.extend(server_families());
        families.extend(go::families());
        families.extend(self.own.application_families());
        families
    }
}

/// A change of one series.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metric {
    name: String,
    value: f64,
    /// Values, in the order in which the labels were declared.
    labels: Vec<String>,
}

impl Argument for Metric {}

/// A collector and its name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamedCollector {
    name: String,
    collector: CollectorArgument,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CollectorArgument {
    namespace: String,
    subsystem: String,
    r#type: String,
    help: String,
    labels: Vec<String>,
    buckets: Vec<f64>,
    objectives: Option<Objectives>,
}

impl Argument for NamedCollector {}

/// The quantiles of a summary, each with the error that RoadRunner may make. Ours is the same for
/// all.
#[derive(Debug)]
struct Objectives(Vec<f64>);

impl<'de> Deserialize<'de> for Objectives {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // PHP writes a list where there are none, or where the names are 0 and 1.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Errors(BTreeMap<String, f64>),
            List(Vec<f64>),
        }
        let names: Vec<String> = match Written::deserialize(deserializer)? {
            Written::Errors(errors) => errors.into_keys().collect(),
            Written::List(errors) => (0..errors.len()).map(|at| at.to_string()).collect(),
        };
        let quantile = |name: String| {
            let number = name.parse();
            number.map_err(|_| D::Error::custom(format!("`{name}` is no quantile: write 0.5")))
        };
        let quantiles: Result<Vec<f64>, _> = names.into_iter().map(quantile).collect();
        Ok(Self(quantiles?))
    }
}

fn add_methods(methods: &ServiceMethods<Collectors>) {
    methods.add("Declare", declare);
    methods.add("Add", async |all, metric| {
        change(&all, "add", Change::Add, metric)
    });
    methods.add("Sub", async |all, metric| {
        change(&all, "sub", Change::Sub, metric)
    });
    methods.add("Set", async |all, metric| {
        change(&all, "set", Change::Set, metric)
    });
    methods.add("Observe", async |all, metric| {
        change(&all, "observe", Change::Observe, metric)
    });
    methods.add(
        "Unregister",
        async |all: Collectors, name: String| match all.remove(&name) {
            Ok(()) => Ok(true),
            Err(why) => Err(Failure::new(format!("metrics_plugin_unregister: {why}"))),
        },
    );
}

async fn declare(all: Collectors, named: NamedCollector) -> Result<bool, Failure> {
    let NamedCollector { name, collector } = named;
    let failure =
        |why: &dyn std::fmt::Display| Failure::new(format!("metrics_plugin_declare: {why}"));
    let kind = match collector.r#type.as_str() {
        "counter" => Kind::Counter,
        "gauge" => Kind::Gauge,
        "histogram" => Kind::Histogram,
        "summary" => Kind::Summary,
        other => return Err(failure(&format_args!("unknown collector type {other}"))),
    };
    let declaration = Declaration {
        kind,
        namespace: collector.namespace,
        subsystem: collector.subsystem,
        help: collector.help,
        labels: collector.labels,
        buckets: collector.buckets,
        quantiles: (collector.objectives).map_or_else(Vec::new, |Objectives(quantiles)| quantiles),
    };
    match all.declare(&name, declaration) {
        // Each worker declares what it needs, so all but the first find it there.
        Ok(Declared::New | Declared::Known) => Ok(true),
        Ok(Declared::Differs) => {
            static DIFFERS: LogThrottle = LogThrottle::new();
            if let Some(times) = DIFFERS.should_log() {
                tracing::warn!(
                    target: "metrics", name, times,
                    "a metric is declared once more with another type, labels, help, buckets or objectives: the first declaration counts"
                );
            }
            Ok(true)
        }
        Err(why) => Err(failure(&why)),
    }
}

fn change(all: &Collectors, method: &str, change: Change, metric: Metric) -> Result<bool, Failure> {
    let Metric {
        name,
        value,
        labels,
    } = metric;
    match all.change(&name, change, value, labels) {
        Ok(()) => Ok(true),
        Err(why) => Err(Failure::new(format!("metrics_plugin_{method}: {why}"))),
    }
}
