//! Counts of the workers themselves: sums of many changes, a message for each call at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use pronghorn_base::LogThrottle;
use pronghorn_metrics::Registry;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;

use crate::counted::Counted;
use crate::declared::{Collectors, Refused};

/// Messages that wait until they are added up, and their bytes.
const MOST_WAITING: usize = 4096;
const MOST_BYTES: usize = 8 << 20;
/// Bytes of one, twice of what the package sends.
const LONGEST: usize = 64 << 10;

/// One message of a worker.
struct Batch {
    pool: String,
    changes: Vec<u8>,
}

impl Collectors {
    /// Adds what workers count from now on, on this runtime, while the task is there. Only the
    /// first one for a registry counts.
    pub fn count_for(&self, metrics: &Registry) -> JoinSet<()> {
        let (queue, batches) = channel::<Batch>(MOST_WAITING);
        let throttle = LogThrottle::default();
        let dropped = metrics.counter(
            "application_metrics_dropped_total",
            "Messages of workers about metrics that found the queue full.",
        );
        let waiting = Arc::new(AtomicUsize::new(0));
        let added_up = waiting.clone();
        let take = move |pool: &str, changes: &[u8]| {
            let bytes = changes.len();
            let fits = waiting.fetch_add(bytes, Relaxed) + bytes <= MOST_BYTES;
            let batch = || Batch {
                pool: pool.to_owned(),
                changes: changes.to_vec(),
            };
            if fits && queue.try_send(batch()).is_ok() {
                return;
            }
            waiting.fetch_sub(bytes, Relaxed);
            dropped.increment();
            if let Some(messages) = throttle.should_log() {
                tracing::warn!(
                    target: "metrics", messages, pool,
                    "metrics of the application are lost: they come faster than they are added up"
                );
            }
        };
        let counted = self.clone();
        metrics.count_by(take, move || counted.families());
        let mut task = JoinSet::new();
        task.spawn(add_up(self.clone(), batches, added_up));
        task
    }

    /// Adds one message. What is wrong with a series keeps no other from being counted.
    fn add_batch(&self, changes: &[u8], mut refused: impl FnMut(Refused)) -> Result<(), String> {
        if changes.len() > LONGEST {
            return Err(format!("{} bytes, at most {LONGEST}", changes.len()));
        }
        let changes: Vec<Counted> =
            serde_json::from_slice(changes).map_err(|error| error.to_string())?;
        for counted in changes {
            if let Err(why) = self.count(counted) {
                refused(why);
            }
        }
        Ok(())
    }
}

async fn add_up(collectors: Collectors, mut batches: Receiver<Batch>, waiting: Arc<AtomicUsize>) {
    let throttle = LogThrottle::default();
    while let Some(Batch { pool, changes }) = batches.recv().await {
        let tell = |why: &dyn std::fmt::Display| {
            if let Some(times) = throttle.should_log() {
                tracing::warn!(target: "metrics", pool, times, "a metric of the application is not counted: {why}");
            }
        };
        if let Err(why) = collectors.add_batch(&changes, |why| tell(&why)) {
            tell(&why);
        }
        waiting.fetch_sub(changes.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Format;

    fn counted(batches: &[&str]) -> (String, Vec<String>) {
        let collectors = Collectors::default();
        let mut refused = Vec::new();
        for batch in batches {
            let all = collectors.add_batch(batch.as_bytes(), |why| refused.push(why.to_string()));
            if let Err(why) = all {
                refused.push(why);
            }
        }
        let text = Format::Prometheus.write(&collectors.families());
        let lines = text.lines().filter(|line| !line.starts_with("# TYPE"));
        (lines.collect::<Vec<_>>().join("\n"), refused)
    }

    #[tokio::test]
    async fn what_waits_is_bounded() {
        let (collectors, metrics) = (Collectors::default(), Registry::default());
        let _task = collectors.count_for(&metrics);
        let dropped = metrics.counter("application_metrics_dropped_total", "");
        let batch = vec![b' '; MOST_BYTES / 4];
        (0..6).for_each(|_| metrics.count("default", &batch));
        assert_eq!(dropped.get(), 2);
        let counted = br#"[{"name":"a","help":"","labels":{},"type":"counter","add":1}]"#;
        // It goes on when there is room again.
        while collectors.families().is_empty() {
            metrics.count("default", counted);
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn sums_of_workers_are_added() {
        let (text, refused) = counted(&[
            r#"[{"name":"orders_total","help":"Orders.","labels":{"shop":"eu","a":"b"},"type":"counter","add":2},
                {"name":"open","help":"","labels":{},"type":"gauge","set":5,"add":-1.5}]"#,
            r#"[{"name":"orders_total","help":"Other.","labels":{"a":"b","shop":"eu"},"type":"counter","add":0.5},
                {"name":"open","help":"","labels":{},"type":"gauge","set":null,"add":1},
                {"name":"took","help":"","labels":{},"type":"histogram","buckets":[1,2],"counts":[1,0,2],"sum":9}]"#,
        ]);
        assert_eq!(refused, [""; 0]);
        assert_eq!(
            text,
            "# HELP open \nopen 4.5\n# HELP orders_total Orders.\n\
             orders_total{a=\"b\",shop=\"eu\"} 2.5\n# HELP took \n\
             took_bucket{le=\"1\"} 1\ntook_bucket{le=\"2\"} 1\ntook_bucket{le=\"+Inf\"} 3\n\
             took_sum 9\ntook_count 3"
        );
    }

    #[test]
    fn what_is_wrong_with_one_keeps_no_other_from_being_counted() {
        let (text, refused) = counted(&[
            r#"[{"name":"a","help":"","labels":{"x":"1"},"type":"counter","add":1},
                {"name":"a","help":"","labels":{"y":"1"},"type":"counter","add":1},
                {"name":"a","help":"","labels":{},"type":"gauge","set":null,"add":1},
                {"name":"h","help":"","labels":{},"type":"histogram","buckets":[1],"counts":[1,1],"sum":3},
                {"name":"h","help":"","labels":{},"type":"histogram","buckets":[2],"counts":[1,1],"sum":3},
                {"name":"h","help":"","labels":{},"type":"histogram","buckets":[1],"counts":[1,1,1],"sum":3},
                {"name":"pronghorn_x","help":"","labels":{},"type":"counter","add":1},
                {"name":"a","help":"","labels":{"x":"1"},"type":"counter","add":-7},
                {"name":"a","help":"","labels":{"x":"1"},"type":"counter","add":1}]"#,
            "[{",
            &" ".repeat(LONGEST + 1),
        ]);
        assert!(text.contains("a{x=\"1\"} 2"), "{text}");
        let starts = [
            "`a` has the labels `x` elsewhere",
            "`a` is another kind",
            "`h` has other buckets",
            "`h` has other buckets",
            "names that begin with `pronghorn_`",
            "EOF while",
            "65537 bytes",
        ];
        assert_eq!(refused.len(), starts.len(), "{refused:?}");
        for (refused, start) in refused.iter().zip(starts) {
            assert!(refused.starts_with(start), "{refused}");
        }
    }
}
