//! The task that delivers: batches of traces, and from time to time what the server counts.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use pronghorn_base::{Backoff, LogThrottle, PeerChange, PeerHealth};
use pronghorn_metrics::{Counter, ReadFamily, Registry};
use pronghorn_plugin_api::{Queues, queue_families};
use pronghorn_trace::{Trace, Traces};
use pronghorn_workers::{Pools, server_families, worker_families};
use prost::Message;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::collector::{Accepted, Collector, Failure, Signal};
use crate::encode::{self, Period};
use crate::lines;
use crate::messages::Resource;
use crate::settings::Batch;

/// Between tries: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After that, a batch is lost: what has come since is worth more.
const RETRIED_FOR: Duration = Duration::from_secs(60);

/// The place that messages go to.
pub(crate) trait Sink {
    /// Sends one. Ends within a time of its own.
    fn send(
        &mut self,
        signal: Signal,
        message: &[u8],
    ) -> impl Future<Output = Result<Accepted, Failure>> + Send;
}

impl Sink for Collector {
    fn send(
        &mut self,
        signal: Signal,
        message: &[u8],
    ) -> impl Future<Output = Result<Accepted, Failure>> + Send {
        Self::send(self, signal, message)
    }
}

/// Where batches go.
pub(crate) enum Output<S> {
    Sink(S),
    /// Into the log's channel of spans, each batch a line.
    Lines,
}

/// Spans by what became of them, and failed requests.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    exported: Counter,
    lost: Counter,
    rejected: Counter,
    failures: Counter,
}

impl Counters {
    pub(crate) fn new(metrics: &Registry) -> Self {
        Self {
            exported: metrics.counter("spans_exported_total", "Spans that a collector has taken."),
            lost: metrics.counter(
                "spans_lost_total",
                "Spans that could not be delivered, also after several tries.",
            ),
            rejected: metrics.counter(
                "spans_rejected_total",
                "Spans that a collector did not take out of a batch that it took.",
            ),
            failures: metrics.counter(
                "export_failures_total",
                "Requests to a collector that failed or got no answer in time.",
            ),
        }
    }
}

pub(crate) struct Exporter<S> {
    pub(crate) output: Output<S>,
    pub(crate) resource: Resource,
    pub(crate) traces: Traces,
    pub(crate) batch: Batch,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) counters: Counters,
    /// No more tries, and no more waiting for further traces.
    pub(crate) end: CancellationToken,
}

/// Metrics, which are exported from time to time.
pub(crate) struct Metrics {
    pub(crate) every: Duration,
    /// The server's own metrics, and those of applications.
    pub(crate) registry: Registry,
    /// Whose workers are looked at; there once the services that have some start.
    pub(crate) pools: Arc<OnceLock<Pools>>,
    pub(crate) queues: Queues,
}

impl Metrics {
    /// All that Prometheus gets under names of our own.
    async fn families(&self) -> Vec<ReadFamily> {
        let mut families = self.registry.families();
        if let Some(pools) = self.pools.get() {
            families.extend(worker_families(&pools.facts().await));
        }
        if let Some(queues) = self.queues.ask().await {
            families.extend(queue_families(&queues));
        }
        families.extend(server_families());
        families.extend(self.registry.application_families());
        families
    }
}

/// Traces that are sent together.
#[derive(Default)]
struct Waiting {
    traces: Vec<Trace>,
    spans: usize,
    /// When they are sent at the latest.
    due: Option<Instant>,
}

impl<S: Sink + Send> Exporter<S> {
    /// Works until the end is asked for, and then sends what is left, each batch once.
    pub(crate) async fn run(mut self) {
        let since = SystemTime::now();
        let period = self.metrics.as_ref().map(|metrics| metrics.every);
        let every = period.unwrap_or(Duration::from_secs(3600));
        let mut readings = interval_at(Instant::now() + every, every);
        readings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut waiting = Waiting::default();
        let health = PeerHealth::supposed();
        let end = self.end.clone();
        loop {
            let due = waiting.due;
            let until_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = end.cancelled() => break,
                Some(trace) = self.traces.next() => {
                    waiting.add(trace, self.batch.wait);
                    if waiting.spans >= self.batch.spans {
                        self.deliver(&mut waiting, &health).await;
                    }
                }
                () = until_due => self.deliver(&mut waiting, &health).await,
                _ = readings.tick(), if period.is_some() => {
                    self.send_metrics(since, &health).await;
                }
            }
        }
        while let Some(trace) = self.traces.waiting() {
            waiting.add(trace, self.batch.wait);
            if waiting.spans >= self.batch.spans {
                self.deliver(&mut waiting, &health).await;
            }
        }
        self.deliver(&mut waiting, &health).await;
        if let Some(metrics) = &mut self.metrics {
            metrics.pools = Arc::default(); // services with workers have ended before
            self.send_metrics(since, &health).await;
        }
    }

    /// Sends them until they are taken, or it is no use.
    async fn deliver(&mut self, waiting: &mut Waiting, health: &PeerHealth) {
        let Waiting { traces, spans, .. } = std::mem::take(waiting);
        if traces.is_empty() {
            return;
        }
        let spans = spans as u64;
        let request = encode::traces(&self.resource, traces);
        let Output::Sink(sink) = &mut self.output else {
            let line = lines::traces(&request);
            tracing::info!(target: "spans", "{line}");
            self.counters.exported.add(spans);
            return;
        };
        let message = request.encode_to_vec();
        let give_up = Instant::now() + RETRIED_FOR;
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let failure = match sink.send(Signal::Traces, &message).await {
                Ok(accepted) => {
                    tell(health, Ok(()));
                    let rejected = accepted.rejected.min(spans);
                    tell_of_rejected(rejected, &accepted.why);
                    self.counters.rejected.add(rejected);
                    self.counters.exported.add(spans - rejected);
                    return;
                }
                Err(failure) => failure,
            };
            self.counters.failures.increment();
            tell(health, Err(&failure.why));
            let wait = backoff.next_wait();
            let next = failure.after.unwrap_or(wait);
            let is_over = Instant::now() + next > give_up || self.end.is_cancelled();
            if !failure.is_passing || is_over {
                self.counters.lost.add(spans);
                return;
            }
            tokio::select! {
                () = sleep(next) => {}
                () = self.end.cancelled() => {} // one more try, at once
            }
        }
    }

    /// Sends what the server counts, once: the next reading has all of it again.
    async fn send_metrics(&mut self, since: SystemTime, health: &PeerHealth) {
        let (Some(metrics), Output::Sink(sink)) = (&self.metrics, &mut self.output) else {
            return; // lines are for people who look for a trace
        };
        let families = metrics.families().await;
        let request = encode::metrics(&self.resource, &families, Period::since(since));
        match sink.send(Signal::Metrics, &request.encode_to_vec()).await {
            Ok(_) => tell(health, Ok(())),
            Err(failure) => {
                self.counters.failures.increment();
                tell(health, Err(&failure.why));
            }
        }
    }
}

impl Waiting {
    fn add(&mut self, trace: Trace, at_most: Duration) {
        self.spans += trace.spans.len();
        self.traces.push(trace);
        self.due.get_or_insert_with(|| Instant::now() + at_most);
    }
}

fn tell_of_rejected(spans: u64, why: &str) {
    static REJECTED: LogThrottle = LogThrottle::new();
    if spans > 0
        && let Some(batches) = REJECTED.should_log()
    {
        tracing::warn!(target: "otel", batches, spans, "the collector has refused spans: {why}");
    }
}

/// Writes a record for each change, and none in between.
fn tell(health: &PeerHealth, now: Result<(), &str>) {
    let why = now.err().unwrap_or_default();
    match health.set(now.map_err(ToOwned::to_owned)) {
        None => {}
        Some(PeerChange::Found | PeerChange::Back) => {
            tracing::info!(target: "otel", "the collector takes traces again");
        }
        Some(PeerChange::Lost) => tracing::warn!(
            target: "otel",
            "the collector does not take what it gets: {why} (said once; traces are tried again, \
             then lost and counted as `pronghorn_otel_spans_lost_total`)"
        ),
    }
}

#[cfg(test)]
mod tests;
