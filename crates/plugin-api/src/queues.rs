//! Queues of jobs, for whoever shows them: health checks, RPC.

use std::fmt;
use std::sync::{Arc, OnceLock};

use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_metrics::{Kind, ReadFamily, Reading, Series};

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Its name here.
    pub pipeline: String,
    /// As the configuration names it.
    pub driver: String,
    /// What the engine calls it.
    pub queue: String,
    /// Of jobs that have none.
    pub priority: i64,
    /// They wait for a worker.
    pub active: u64,
    /// They wait for their time.
    pub delayed: u64,
    /// Workers have them.
    pub reserved: u64,
    /// How long the oldest of those that wait for a worker has waited. None where the engine does
    /// not tell.
    pub oldest: Option<Duration>,
    /// Dead letters that are kept of it.
    pub dead: u64,
    /// Whether workers get its jobs.
    pub ready: bool,
    /// What is wrong with it; empty when nothing is.
    pub error: String,
}

/// The queues of a server. Clones are the same ones.
#[derive(Clone, Default)]
pub struct Queues(Arc<OnceLock<Source>>);

type Source = Box<dyn Fn() -> BoxFuture<'static, Vec<QueueReport>> + Send + Sync>;

impl Queues {
    /// The service that has them says how they are asked.
    pub fn answer_with(
        &self,
        source: impl Fn() -> BoxFuture<'static, Vec<QueueReport>> + Send + Sync + 'static,
    ) {
        _ = self.0.set(Box::new(source)); // a service starts once
    }

    /// None where no service has any.
    pub async fn ask(&self) -> Option<Vec<QueueReport>> {
        let source = self.0.get()?;
        Some(source().await)
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queues").finish_non_exhaustive()
    }
}

/// What metrics say of queues at this moment. Of one that can't be asked they say nothing.
#[must_use]
pub fn queue_families(reports: &[QueueReport]) -> Vec<ReadFamily> {
    type Value = fn(&QueueReport) -> Option<f64>;
    let family = |name: &str, help: &'static str, kind, value: Value| {
        let answering = reports.iter().filter(|report| report.error.is_empty());
        let series = answering.filter_map(|report| {
            Some(Series {
                labels: vec![("pipeline".into(), report.pipeline.clone())],
                reading: Reading::Value(value(report)?),
            })
        });
        ReadFamily {
            name: format!("pronghorn_jobs_{name}"),
            help: help.into(),
            kind,
            series: series.collect(),
        }
    };
    let present = Kind::UpDownCounter;
    vec![
        family("ready", "Jobs that wait for a worker.", present, |it| {
            Some(float(it.active))
        }),
        family("delayed", "Jobs that wait for their time.", present, |it| {
            Some(float(it.delayed))
        }),
        family("reserved", "Jobs that workers have.", present, |it| {
            Some(float(it.reserved))
        }),
        family(
            "dead_letters_kept",
            "Dead letters that nobody has retried or discarded.",
            present,
            |it| Some(float(it.dead)),
        ),
        family(
            "oldest_wait_seconds",
            "How long the oldest of the jobs has waited that wait for a worker.",
            Kind::Gauge,
            |it| match it.oldest {
                None if it.active > 0 => None,
                oldest => Some(oldest.unwrap_or_default().as_secs_f64()),
            },
        ),
    ]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact up to nine million billion jobs"
)]
fn float(jobs: u64) -> f64 {
    jobs as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_can_not_be_asked_has_no_figures() {
        let report = |pipeline: &str, active, oldest, error: &str| QueueReport {
            pipeline: pipeline.to_owned(),
            active,
            oldest,
            error: error.to_owned(),
            ..QueueReport::default()
        };
        let families = queue_families(&[
            report("a", 3, Some(Duration::from_millis(1500)), ""),
            report("empty", 0, None, ""),
            report("untold", 2, None, ""),
            report("away", 0, None, "no answer"),
        ]);
        let of = |name: &str| {
            let family = families.iter().find(|it| it.name == name).unwrap();
            let series = family.series.iter().map(|series| {
                let Reading::Value(value) = series.reading else {
                    panic!("it is a number");
                };
                (series.labels[0].1.as_str(), value)
            });
            series.collect::<Vec<_>>()
        };
        assert_eq!(
            of("pronghorn_jobs_ready"),
            [("a", 3.0), ("empty", 0.0), ("untold", 2.0)]
        );
        assert_eq!(
            of("pronghorn_jobs_oldest_wait_seconds"),
            [("a", 1.5), ("empty", 0.0)]
        );
    }
}
