//! Jobs in memory, on their way to the process that has taken over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_plugin_api::rpc::{Encoding, Failure, Forward};
use pronghorn_queue::{Job, MOST_BYTES_IN_PART, MOST_IN_PART, options};
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::ours::ExportedJob;
use crate::pipelines::{Pipeline, Pipelines};

/// A process that lives has answered a push by then. Its answer is not given up before: what it has
/// taken would run in both processes.
const ANSWER: Duration = Duration::from_mins(1);

/// Pushes the jobs in memory that no worker has to the process that has taken over: they do not
/// wait for those that run here. No push begins after `until`. What is not taken stays.
pub(crate) async fn hand_on_waiting(pipelines: &Pipelines, to: &Forward, until: Instant) {
    for pipeline in in_memory(pipelines) {
        let name = &pipeline.name;
        let waiting = pipeline.driver.withdraw(None, None).await;
        let waiting = waiting.map(|it| it.jobs).unwrap_or_default(); // memory answers
        let all = waiting.len();
        let Left { jobs: left, why } = move_jobs(name, waiting, to, until).await;
        tell_moved(name, all - left.len());
        if let Some(why) = why {
            // They are tried once more at the end.
            let jobs = left.len();
            tracing::warn!(target: "jobs", pipeline = name, jobs, "jobs in memory stay in this process for now: {why}");
            if let Err(error) = pipeline.driver.push(left).await {
                tracing::error!(target: "jobs", pipeline = name, jobs, "jobs in memory are lost: {error}");
            }
        }
    }
}

/// Pushes the jobs that are in memory to the process that has taken over.
pub(crate) async fn hand_on(pipelines: &Pipelines, to: &Forward, until: Instant) {
    for pipeline in in_memory(pipelines) {
        let name = &pipeline.name;
        let (mut all, mut jobs, mut first, mut after) = (0, 0, None, None);
        // Nothing runs any more, so each part is where the one before ends.
        while let Ok(part) = pipeline.driver.list(after).await {
            all += part.jobs.len();
            let part_of = part.jobs.into_iter().map(|listed| listed.job).collect();
            let left = move_jobs(name, part_of, to, until).await;
            jobs += left.jobs.len();
            first = first.or(left.why);
            after = part.next;
            if after.is_none() {
                break;
            }
        }
        tell_moved(name, all - jobs);
        if let Some(why) = first {
            tracing::warn!(target: "jobs", pipeline = name, jobs, "jobs in memory end with the server: {why}");
        }
    }
}

fn in_memory(pipelines: &Pipelines) -> impl Iterator<Item = Arc<Pipeline>> {
    let all = pipelines.registry().all().into_iter();
    all.filter(|pipeline| pipeline.is_in_memory())
}

fn tell_moved(pipeline: &str, jobs: usize) {
    if jobs > 0 {
        tracing::info!(target: "jobs", pipeline, jobs, "jobs in memory go on in the next process");
    }
}

/// Jobs that the other process has not taken, and why it has not the first of them.
#[derive(Default)]
struct Left {
    jobs: Vec<Job>,
    why: Option<Failure>,
}

enum NotPushed {
    /// The other process does not take all of them, and has taken none.
    Refused(Failure),
    /// There is no time, or no other process. Where it has not answered, it may have taken them:
    /// such a job may run twice, and is not lost.
    Over(Failure),
}

/// A part that is refused goes in halves: one job in it must not keep the others back.
async fn move_jobs(pipeline: &str, jobs: Vec<Job>, to: &Forward, until: Instant) -> Left {
    let mut left = Left::default();
    let mut parts = parts(jobs);
    parts.reverse();
    while let Some(mut part) = parts.pop() {
        match push_batch(pipeline, &mut part, to, until).await {
            Ok(()) => {}
            Err(NotPushed::Refused(_)) if part.len() > 1 => {
                let second = part.split_off(part.len() / 2);
                parts.extend([second, part]);
            }
            Err(NotPushed::Refused(why)) => {
                left.jobs.extend(part);
                left.why.get_or_insert(why);
            }
            Err(NotPushed::Over(why)) => {
                left.jobs.extend(part);
                left.jobs.extend(parts.into_iter().rev().flatten());
                left.why.get_or_insert(why);
                break;
            }
        }
    }
    left
}

fn parts(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let (mut parts, mut bytes) = (Vec::<Vec<Job>>::new(), 0);
    for job in jobs {
        let length = job.payload.len();
        match parts.last_mut() {
            Some(part) if part.len() < MOST_IN_PART && bytes < MOST_BYTES_IN_PART => {
                part.push(job);
                bytes += length;
            }
            _ => {
                parts.push(vec![job]);
                bytes = length;
            }
        }
    }
    parts
}

/// Leaves those in `jobs` that are not taken. A job whose key another one has got there meanwhile
/// goes without it: its push was answered. One that has its key itself is there already.
async fn push_batch(
    pipeline: &str,
    jobs: &mut Vec<Job>,
    to: &Forward,
    until: Instant,
) -> Result<(), NotPushed> {
    while !jobs.is_empty() {
        if Instant::now() >= until {
            let why = Failure::new("the next process did not take all in time");
            return Err(NotPushed::Over(why));
        }
        let exported = jobs
            .iter()
            .map(|job| ExportedJob::of(job.clone(), pipeline));
        let exported: Vec<_> = exported.collect();
        let batch = serde_json::json!({"jobs": exported}).to_string();
        let push = timeout(ANSWER, to("jobs.PushBatch", Encoding::Json, batch.into()));
        let answer = match push.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) if is_there(to).await => return Err(NotPushed::Refused(why)),
            Ok(Err(why)) => return Err(NotPushed::Over(why)),
            Err(_) => {
                let why = Failure::new("the next process does not answer");
                return Err(NotPushed::Over(why));
            }
        };
        let Pushed { duplicates } = serde_json::from_slice(&answer).unwrap_or_default();
        jobs.retain_mut(|job| {
            let other = duplicates.get(&job.id).filter(|other| **other != job.id);
            other.is_some() && options::forget_key(&mut job.headers)
        });
    }
    Ok(())
}

/// Whether the other process takes calls.
async fn is_there(to: &Forward) -> bool {
    let list = to("jobs.List", Encoding::Json, Bytes::from_static(b"{}"));
    matches!(timeout(ANSWER, list).await, Ok(Ok(_)))
}

/// The part of an answer to a push that is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Pushed {
    duplicates: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use pronghorn_base::lock;
    use pronghorn_metrics::Registry;
    use pronghorn_plugin_api::rpc::Calling;
    use pronghorn_store::LazyStore;
    use serde_json::Value;
    use tokio::time::sleep;

    use super::*;
    use crate::metrics::Metrics;
    use crate::settings::PipelineSettings;
    use crate::settings::tests::brokers;

    const MOVING: Duration = Duration::from_secs(30);

    /// The jobs of a call, each with its key.
    type Call = Vec<(String, Option<String>)>;

    async fn pipelines(jobs: Vec<Job>) -> Pipelines {
        let (patience, metrics) = (MOVING, Metrics::new(&Registry::default()));
        let (store, pools) = (LazyStore::default(), ["default"].into_iter());
        let pipelines = Pipelines::new(store, patience, metrics, pools, brokers());
        let map = [("name", "p"), ("driver", "memory")];
        let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let map = map.into();
        let (name, settings) = PipelineSettings::declared(&map, &brokers()).unwrap();
        pipelines.declare(name, &settings).await.unwrap();
        let jobs = jobs.into_iter().map(|job| ("p".to_owned(), job)).collect();
        pipelines.admission().push(jobs).await.unwrap();
        pipelines
    }

    fn job(id: impl Into<String>) -> Job {
        Job {
            id: id.into(),
            ..Job::default()
        }
    }

    fn with_key(id: &str) -> Job {
        let headers = [("pronghorn-unique".to_owned(), vec![format!("of {id}")])];
        Job {
            headers: headers.into(),
            ..job(id)
        }
    }

    async fn left(pipelines: &Pipelines) -> Vec<String> {
        let pipeline = in_memory(pipelines).next().unwrap();
        let left = pipeline.driver.list(None).await.unwrap().jobs;
        left.into_iter().map(|it| it.job.id).collect()
    }

    /// Another process, which answers a push by its jobs and how many pushes came before, after a
    /// while. It is gone once it has no answer.
    fn next_process(
        calls: &Arc<Mutex<Vec<Call>>>,
        after: Duration,
        answer: impl Fn(&Call, usize) -> Option<Result<&'static str, &'static str>>
        + Send
        + Sync
        + 'static,
    ) -> Forward {
        let (calls, gone) = (calls.clone(), Mutex::new(false));
        Arc::new(move |method: &str, _, argument: Bytes| -> Calling {
            let mut gone = lock(&gone);
            let said = if method == "jobs.List" {
                Some(Ok("{}"))
            } else {
                let batch: Value = serde_json::from_slice(&argument).unwrap();
                let jobs = batch["jobs"].as_array().unwrap().iter();
                let key = |job: &Value| {
                    let key = &job["headers"]["pronghorn-unique"]["value"][0];
                    key.as_str().map(ToOwned::to_owned)
                };
                let call: Call = jobs
                    .map(|job| (job["id"].as_str().unwrap().to_owned(), key(job)))
                    .collect();
                let mut calls = lock(&calls);
                let said = answer(&call, calls.len());
                calls.push(call);
                said
            };
            *gone |= said.is_none();
            let said = said.filter(|_| !*gone).unwrap_or(Err("gone"));
            let said = said.map(|it| Bytes::from_static(it.as_bytes()));
            let said = said.map_err(Failure::new);
            Box::pin(async move {
                sleep(after).await;
                said
            })
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_is_refused_keeps_no_other_one_back() {
        let names = |range: std::ops::Range<usize>| range.map(|at| format!("job-{at}"));
        let pipelines = pipelines(names(0..1200).map(job).collect()).await;
        let calls = Arc::default();
        let is_bad = |id: &str| ["job-3", "job-700"].contains(&id);
        let next = next_process(&calls, Duration::ZERO, move |call, _| {
            let is_refused = call.iter().any(|(id, _)| is_bad(id));
            Some(if is_refused { Err("no") } else { Ok("{}") })
        });
        hand_on_waiting(&pipelines, &next, Instant::now() + MOVING).await;
        assert_eq!(left(&pipelines).await, ["job-3", "job-700"]);
        let calls = std::mem::take(&mut *lock(&calls));
        let taken = calls
            .iter()
            .filter(|call| !call.iter().any(|(id, _)| is_bad(id)));
        let taken: Vec<_> = taken.flatten().map(|(id, _)| id.clone()).collect();
        let others = names(0..1200).filter(|id| !is_bad(id));
        assert_eq!(
            taken,
            others.collect::<Vec<_>>(),
            "in their order, each once"
        );
        assert!(calls.len() < 50, "{}", calls.len());

        let calls = Arc::default();
        let next = next_process(&calls, Duration::ZERO, |call, _| {
            Some(if call.iter().any(|(id, _)| id == "job-3") {
                Err("no")
            } else {
                Ok("{}")
            })
        });
        hand_on(&pipelines, &next, Instant::now() + MOVING).await;
        assert_eq!(
            lock(&calls).last().unwrap()[0].0,
            "job-700",
            "behind one that is refused"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_late_is_not_pushed_again() {
        let pipelines = pipelines(vec![job("a")]).await;
        let calls = Arc::default();
        let late = MOVING + Duration::from_secs(10);
        let next = next_process(&calls, late, |_, _| Some(Ok("{}")));
        hand_on_waiting(&pipelines, &next, Instant::now() + MOVING).await;
        assert!(left(&pipelines).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_stay_when_the_next_process_is_gone() {
        let pipelines = pipelines((0..1200).map(|at| job(at.to_string())).collect()).await;
        let calls = Arc::default();
        let next = next_process(&calls, Duration::ZERO, |_, before| {
            (before == 0).then_some(Ok("{}"))
        });
        hand_on_waiting(&pipelines, &next, Instant::now() + MOVING).await;
        let pipeline = in_memory(&pipelines).next().unwrap();
        assert_eq!(pipeline.driver.stat().await.unwrap().active, 700);
        assert_eq!(lock(&calls).len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_has_its_key_there_itself_is_there() {
        let pipelines = pipelines(vec![with_key("a"), with_key("b")]).await;
        let calls = Arc::default();
        let next = next_process(&calls, Duration::ZERO, |_, before| {
            let own = r#"{"duplicates": {"a": "a", "b": "other"}}"#;
            Some(Ok(if before == 0 { own } else { "{}" }))
        });
        hand_on_waiting(&pipelines, &next, Instant::now() + MOVING).await;
        let first = ["a", "b"].map(|id| (id.to_owned(), Some(format!("of {id}"))));
        let second = vec![("b".to_owned(), None)];
        assert_eq!(*lock(&calls), [first.to_vec(), second]);
    }
}
