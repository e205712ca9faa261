//! The service: it switches traces on, and owns the task that delivers them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_metrics::Registry;
use pronghorn_plugin_api::{BoxFuture, Context, Reload, Running, Service, StartError, Stopped};
use pronghorn_trace::{Recorder, Tracer};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::collector::Collector;
use crate::encode;
use crate::exporter::{Counters, Exporter, Metrics, Output};
use crate::settings::{OtelSettings, Target};

/// The name of the service, in metrics.
const OTEL: &str = "otel";
/// The channel of the log with lines of spans.
const SPANS: &str = "spans";
/// The time that a stop waits for the last traces: nobody waits for a collector that hangs.
const LAST_FLUSH: Duration = Duration::from_secs(5);

/// Traces before their start.
#[derive(Debug)]
pub struct OtelService {
    pub settings: OtelSettings,
    /// Who counts for applications.
    pub counting: Counting,
}

/// Begins to count what applications count, as long as the tasks are there; where somebody has
/// begun it already, that goes on.
#[derive(Clone)]
pub struct Counting(pub Arc<CountFor>);

type CountFor = dyn Fn(&Registry) -> JoinSet<()> + Send + Sync;

struct Exporting {
    recorder: Arc<Recorder>,
    task: JoinSet<()>,
    end: CancellationToken,
    /// Where metrics are exported.
    _counting: Option<JoinSet<()>>,
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counting")
    }
}

impl Service for OtelService {
    fn serves(&self) -> bool {
        false
    }

    fn log_channels(&self) -> Vec<(&'static str, &[String])> {
        match &self.settings.target {
            Target::Lines(outputs) => vec![(SPANS, outputs)],
            Target::Collector(_) => Vec::new(),
        }
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            let Self { settings, counting } = *self;
            Ok(Box::new(Exporting::start(settings, &counting, &context)?) as _)
        })
    }
}

impl Exporting {
    fn start(
        settings: OtelSettings,
        counting: &Counting,
        context: &Context,
    ) -> Result<Self, StartError> {
        let output = match settings.target {
            Target::Collector(settings) => Output::Sink(Collector::new(settings)?),
            Target::Lines(_) => Output::Lines,
        };
        let counting = settings.metrics.map(|_| {
            context.metrics.announce_reader();
            (counting.0)(&context.metrics)
        });
        let metrics = context.metrics.named(OTEL);
        let tracer: &Tracer = &context.tracer;
        let traces = tracer.turn_on(&settings.sampling, settings.queue, &metrics);
        let traces = traces.ok_or("traces are exported by another service already")?;
        let recorder = tracer.recorder().ok_or("traces can't be recorded")?.clone();
        let attributes = settings.resource.iter();
        let attributes = attributes.map(|(name, value)| (*name, value.as_str()));
        let end = CancellationToken::new();
        let exporter = Exporter {
            output,
            resource: encode::resource(attributes),
            traces,
            batch: settings.batch,
            metrics: settings.metrics.map(|every| Metrics {
                every,
                registry: context.metrics.clone(),
                pools: context.pools.clone(),
                queues: context.health.queues().clone(),
            }),
            counters: Counters::new(&metrics),
            end: end.clone(),
        };
        let mut task = JoinSet::new();
        task.spawn(exporter.run());
        context.readiness.answer_with(|| Ok(()));
        Ok(Self {
            recorder,
            task,
            end,
            _counting: counting,
        })
    }
}

impl Running for Exporting {
    fn reload(&mut self, to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        Box::pin(async move {
            let Some(to) = to.downcast::<OtelService>() else {
                return Reload::NeedsRestart;
            };
            self.recorder.set_sampling(&to.settings.sampling);
            Reload::Applied
        })
    }

    fn stop(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            self.end.cancel();
            let until = deadline.min(Instant::now() + LAST_FLUSH);
            match timeout_at(until, self.task.join_next()).await {
                Ok(_) => Stopped::Clean,
                Err(_) => Stopped::CutOff("the last traces".to_owned()),
            }
        })
    }
}
