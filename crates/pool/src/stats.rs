//! What a pool counts. Written on the data path and by the supervisor, read by anyone, never
//! locked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use pronghorn_base::micros;
use pronghorn_metrics::{Histogram, Registry};
use tokio::time::Instant;

use crate::call::Refused;

/// The queue as it is now, and counters since the start.
#[derive(Debug)]
pub struct Stats {
    queue: Arc<QueueStats>,
    replaced_text: AtomicU64,
    boots: Histogram,
    /// Nanoseconds of a processor that workers have taken which have ended.
    ended_cpu: AtomicU64,
    /// In the order of [`Counter::ALL`].
    counters: Vec<pronghorn_metrics::Counter>,
}

/// Shared with the registry, which reads it.
#[derive(Debug)]
struct QueueStats {
    waiting: AtomicUsize,
    /// Since when the oldest call waits: microseconds after `start`, and one; 0 when none does.
    oldest: AtomicU64,
    /// Since when calls wait and no worker takes one, in the same way.
    stalled: AtomicU64,
    start: Instant,
}

/// Declares what is counted: its name in `status`, then the metric, and the `reason` where several
/// share one.
macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident $name:literal => $metric:literal $($reason:literal)?, $help:expr;)*) => {
        /// What is counted; none of it happens on the way of a call that goes well.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        impl Counter {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// As `status` calls it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            fn register(self, metrics: &Registry) -> pronghorn_metrics::Counter {
                match self {
                    $(Self::$variant => {
                        $(let metrics = &metrics.labelled("reason", $reason);)?
                        metrics.counter($metric, $help)
                    })*
                }
            }
        }
    };
}

const REFUSED: &str = "Calls that no worker got.";
const RECYCLED: &str = "Workers that were replaced at a limit.";

counters! {
    /// Calls refused: the queue was full.
    QueueFull "queue_full" => "calls_refused_total" "queue_full", REFUSED;
    /// Calls refused: no worker became free in time.
    WaitedTooLong "waited_too_long" => "calls_refused_total" "waited_too_long", REFUSED;
    /// Calls refused: no worker could be started.
    NoWorker "no_worker" => "calls_refused_total" "no_worker", REFUSED;
    /// Calls refused: the pool was stopping.
    Stopping "stopping" => "calls_refused_total" "stopping", REFUSED;
    /// Calls refused: workers had died of the same request.
    Poisoned "poisoned" => "calls_refused_total" "poisoned", REFUSED;
    /// Calls dropped from the queue because their client had left.
    ClientGone "client_gone" => "calls_refused_total" "client_gone", REFUSED;
    /// Calls that passed their deadline.
    Overdue "overdue" => "calls_overdue_total", "Calls that passed their deadline.";
    /// Calls given to a second worker because the first one died.
    Retried "retried" => "calls_retried_total", "Calls that a second worker got because the first one died.";
    /// Workers that ended without being asked to.
    Crashed "crashed" => "workers_crashed_total", "Workers that ended without being asked to.";
    /// Workers replaced after `max_jobs` calls.
    WornByCalls "worn_by_calls" => "workers_recycled_total" "max_jobs", RECYCLED;
    /// Workers replaced for their age, `ttl`.
    WornByAge "worn_by_age" => "workers_recycled_total" "ttl", RECYCLED;
    /// Workers replaced because they had nothing to do, `idle_ttl`.
    WornByIdling "worn_by_idling" => "workers_recycled_total" "idle_ttl", RECYCLED;
    /// Workers replaced for their memory, `max_worker_memory`.
    WornByMemory "worn_by_memory" => "workers_recycled_total" "max_worker_memory", RECYCLED;
    /// Workers that did not come up.
    BootFailed "boot_failed" => "boots_failed_total", "Workers that did not come up.";
    /// Calls that waited while a worker was free, which is a bug; the watchdog brought them
    /// together.
    Healed "healed" => "queue_healed_total", "Calls that waited while a worker was free, which is a bug.";
}

impl From<Refused> for Counter {
    fn from(reason: Refused) -> Self {
        match reason {
            Refused::QueueFull => Self::QueueFull,
            Refused::WaitedTooLong => Self::WaitedTooLong,
            Refused::NoWorker => Self::NoWorker,
            Refused::Stopping => Self::Stopping,
        }
    }
}

impl Stats {
    /// Registered as a pool's own.
    pub(crate) fn new(metrics: &Registry, pool: &str) -> Self {
        let metrics = metrics.named("pool").labelled("pool", pool);
        let queue = Arc::new(QueueStats {
            waiting: AtomicUsize::new(0),
            oldest: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            start: Instant::now(),
        });
        let (waiting, oldest) = (queue.clone(), queue.clone());
        metrics.present("queue_calls", "Calls that wait for a worker.", move || {
            // `max_queue_size` is far below.
            u32::try_from(waiting.waiting()).map_or(f64::INFINITY, f64::from)
        });
        let help = "How long the oldest waiting call has waited; 0 when none waits.";
        metrics.computed("queue_oldest_wait_seconds", help, move || {
            oldest.oldest_wait().unwrap_or_default().as_secs_f64()
        });
        let counters = Counter::ALL.iter();
        Self {
            queue,
            replaced_text: AtomicU64::new(0),
            ended_cpu: AtomicU64::new(0),
            boots: metrics.histogram(
                "boot_duration_seconds",
                "From the start of a worker, or its fork, until it was up.",
            ),
            counters: counters.map(|counter| counter.register(&metrics)).collect(),
        }
    }

    /// Calls that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// How long the oldest of them has waited by now.
    pub fn oldest_wait(&self) -> Option<Duration> {
        self.queue.oldest_wait()
    }

    /// For how long calls have waited while no worker took one.
    pub fn stalled(&self) -> Option<Duration> {
        self.queue.since(&self.queue.stalled)
    }

    pub(crate) fn set_waiting(
        &self,
        waiting: usize,
        oldest: Option<Instant>,
        stalled: Option<Instant>,
    ) {
        self.queue.set(waiting, oldest, stalled);
    }

    /// How often it happened.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].get()
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.counters[counter as usize].increment();
    }

    /// A worker has come up.
    pub(crate) fn booted(&self, took: Duration) {
        self.boots.observe(took);
    }

    /// A worker has ended that had taken so much of a processor, if anybody could tell.
    pub(crate) fn ended_after(&self, cpu: Option<Duration>) {
        let nanos = cpu.map_or(0, |cpu| u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX));
        self.ended_cpu.fetch_add(nanos, Relaxed);
    }

    /// What those have taken together.
    pub(crate) fn ended_cpu(&self) -> Duration {
        Duration::from_nanos(self.ended_cpu.load(Relaxed))
    }

    /// Text that the json codec couldn't carry. True the first time.
    pub fn replaced_text(&self) -> bool {
        self.replaced_text.fetch_add(1, Relaxed) == 0
    }
}

impl QueueStats {
    fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    fn oldest_wait(&self) -> Option<Duration> {
        self.since(&self.oldest)
    }

    /// How long ago a moment was that is kept as a number.
    fn since(&self, moment: &AtomicU64) -> Option<Duration> {
        let since = moment.load(Relaxed).checked_sub(1)?;
        let since = self.start + Duration::from_micros(since);
        Some(since.elapsed())
    }

    fn set(&self, waiting: usize, oldest: Option<Instant>, stalled: Option<Instant>) {
        let number = |moment: Option<Instant>| {
            moment.map_or(0, |moment| {
                micros(moment.saturating_duration_since(self.start)).saturating_add(1)
            })
        };
        self.waiting.store(waiting, Relaxed);
        self.oldest.store(number(oldest), Relaxed);
        self.stalled.store(number(stalled), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_metrics::Reading;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_pool_counts_is_read_from_the_registry() {
        let metrics = Registry::default();
        let stats = Stats::new(&metrics, "api");
        for &counter in Counter::ALL {
            stats.count(counter);
        }
        stats.count(Counter::Poisoned);
        stats.set_waiting(3, Some(Instant::now()), Some(Instant::now()));
        tokio::time::advance(Duration::from_millis(1500)).await;

        assert_eq!(stats.stalled(), Some(Duration::from_millis(1500)));
        assert!(Counter::ALL.iter().all(|counter| stats.get(*counter) >= 1));
        let families = metrics.families();
        let of = |name: &str| {
            let family = families.iter().find(|family| family.name == name);
            &family.expect(name).series
        };
        let refused = of("pool_calls_refused_total");
        let poisoned = [
            ("pool".into(), "api".to_owned()),
            ("reason".into(), "poisoned".to_owned()),
        ];
        let poisoned = refused.iter().find(|series| series.labels == poisoned);
        assert_eq!(
            poisoned.map(|series| &series.reading),
            Some(&Reading::Count(2))
        );
        assert_eq!(refused.len(), 6);
        assert_eq!(of("pool_workers_recycled_total").len(), 4);
        assert_eq!(
            of("pool_workers_crashed_total")[0].reading,
            Reading::Count(1)
        );
        assert_eq!(of("pool_queue_calls")[0].reading, Reading::Value(3.0));
        assert_eq!(
            of("pool_queue_oldest_wait_seconds")[0].reading,
            Reading::Value(1.5)
        );
    }
}
