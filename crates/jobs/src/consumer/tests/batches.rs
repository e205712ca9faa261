//! Jobs of batches, and what comes last. The store is real, and so is time.

use super::*;
use crate::batches::Last;
use crate::messages::Pushed;

const LONG: Duration = Duration::from_mins(1);

struct Batch {
    scene: Scene,
    _tending: JoinSet<()>,
}

impl Batch {
    /// With the pipelines `p` and `q`, and two workers.
    async fn new() -> Self {
        let scene = Scene::new(2, &["p", "q"]).await;
        let mut tending = JoinSet::new();
        tending.spawn(
            scene
                .pipelines
                .clone()
                .tend_batches(CancellationToken::new()),
        );
        Self {
            scene,
            _tending: tending,
        }
    }

    /// The last one is for `q`, the others are for `p`.
    async fn push(&self, jobs: Vec<Job>, last: Job) -> BTreeMap<String, String> {
        let jobs: Pushed = jobs.into_iter().map(|job| ("p".to_owned(), job)).collect();
        let last = Last {
            pipeline: "q".to_owned(),
            job: last,
        };
        self.scene.pipelines.push_batch(jobs, last).await.unwrap()
    }

    async fn ends(&self, id: &str, reply: JobReply) {
        self.scene.until_running(&[id]).await;
        self.scene
            .answer(Outcome::Replied(reply, Bytes::new()))
            .await;
    }

    /// Why a job was given up for those who wait for it.
    async fn why(&self, id: &str) -> String {
        match self
            .scene
            .pipelines
            .results()
            .wait(&EVERY_PIPELINE, id, LONG)
            .await
        {
            Waited::Ended(Ended::Failed(why)) => why.full().to_owned(),
            other => panic!("{other:?}"),
        }
    }
}

fn with(id: &str, headers: &[(&str, &str)]) -> Job {
    let header =
        |(name, value): &(&str, &str)| (format!("pronghorn-{name}"), vec![(*value).to_owned()]);
    Job {
        headers: headers.iter().map(header).collect(),
        ..job(id)
    }
}

#[tokio::test]
async fn the_last_job_waits_for_its_delay_when_the_others_have_ended() {
    let batch = Batch::new().await;
    let last = Job {
        delay: LONG,
        ..job("last")
    };
    batch.push(vec![job("a")], last).await;
    batch.ends("a", JobReply::Done).await;
    batch.scene.until_counts("q", (0, 1, 0)).await;
}

/// It can't come again, whatever became of it.
#[tokio::test]
async fn a_job_that_counts_as_done_when_it_begins_ends_for_its_batch_when_it_has_run() {
    let delay = Duration::ZERO;
    let again = Outcome::Replied(JobReply::Retry { delay }, Bytes::new());
    for (outcome, failed) in [
        (Outcome::Replied(JobReply::Done, Bytes::new()), "0"),
        (Outcome::Lost("the worker ended".into()), "1"),
        (Outcome::NotTaken("the server ended it".to_owned()), "1"),
        (again, "1"),
    ] {
        let batch = Batch::new().await;
        let once = Job {
            auto_ack: true,
            ..with("once", &[("result", "keep")])
        };
        batch.push(vec![once], job("last")).await;
        batch.scene.until_running(&["once"]).await;
        batch.scene.until_counts("p", (0, 0, 0)).await;
        assert_eq!(batch.scene.running(), ["once"], "the last one waits");
        batch.scene.answer(outcome).await;
        batch.scene.until_running(&["last"]).await;
        let headers = lock(&batch.scene.fakes.0).running[0].0.job.headers.clone();
        assert_eq!(headers["batch-failed"], [failed]);
        if failed == "1" {
            assert!(!batch.why("once").await.is_empty());
        }
        let letters = batch.scene.pipelines.dead().list(None, 9).await.unwrap();
        assert_eq!(letters.0, []);
    }
}

#[tokio::test]
async fn the_last_job_expires_as_from_the_push_of_its_batch() {
    let batch = Batch::new().await;
    let last = with("last", &[("expires", "0.1"), ("result", "keep")]);
    batch.push(vec![job("a")], last).await;
    sleep(Duration::from_millis(150)).await;
    batch.ends("a", JobReply::Done).await;
    assert_eq!(batch.why("last").await, Dropped::Expired.text());
    let wrong = Last {
        pipeline: "q".to_owned(),
        job: with("last", &[("expires", "soon")]),
    };
    let jobs = vec![("p".to_owned(), job("b"))];
    let refused = batch.scene.pipelines.push_batch(jobs, wrong).await;
    assert!(refused.is_err(), "it is told at once");
}

#[tokio::test]
async fn a_job_is_done_though_the_last_one_has_nowhere_to_go() {
    let batch = Batch::new().await;
    let last = with("last", &[("result", "keep")]);
    batch.push(vec![job("a"), job("b")], last).await;
    let pipelines = &batch.scene.pipelines;
    pipelines.destroy("q").await.unwrap();
    batch.scene.until_running(&["a", "b"]).await;
    for _ in 0..2 {
        let done = Outcome::Replied(JobReply::Done, Bytes::new());
        batch.scene.answer(done).await;
    }
    batch.scene.until_counts("p", (0, 0, 0)).await;
    let why =
        "all 2 jobs of the batch have ended, and this one could not be pushed: no such pipeline";
    let reason = batch.why("last").await;
    assert!(reason.starts_with(why), "{reason}");
    assert!(batch.scene.running().is_empty(), "nothing runs again");
    let letters = pipelines.dead().list(Some("q"), 9).await.unwrap().0;
    assert_eq!((&*letters[0].id, letters.len()), ("last", 1));
    assert!(letters[0].reason.starts_with(why));
    let (left, _) = pipelines.list_batches(10).await.unwrap();
    assert_eq!(left, []);
}

#[tokio::test]
async fn the_last_job_runs_when_its_pipeline_is_declared_again_soon() {
    let batch = Batch::new().await;
    batch.push(vec![job("a")], job("last")).await;
    batch.scene.pipelines.destroy("q").await.unwrap();
    batch.ends("a", JobReply::Done).await;
    batch.scene.until_counts("p", (0, 0, 0)).await;
    batch.scene.declare("q", IN_MEMORY).await;
    batch.ends("last", JobReply::Done).await;
    let letters = batch.scene.pipelines.dead().list(None, 9).await.unwrap();
    assert_eq!(letters.0, []);
}

#[tokio::test]
async fn a_job_that_was_not_kept_has_the_end_of_the_one_with_its_key() {
    let batch = Batch::new().await;
    let unique = |id| with(id, &[("unique", "k")]);
    batch.scene.push("p", unique("other")).await;
    batch.scene.until_running(&["other"]).await;
    let duplicates = batch.push(vec![unique("a"), job("b")], job("last")).await;
    assert_eq!(duplicates["a"], "other");
    batch.scene.until_running(&["other", "b"]).await;
    let (_, answer) = lock(&batch.scene.fakes.0).running.pop_back().unwrap();
    let done = Outcome::Replied(JobReply::Done, Bytes::new());
    answer.send(done).unwrap();
    batch.scene.until_counts("p", (0, 0, 1)).await;
    assert_eq!(
        batch.scene.running(),
        ["other"],
        "the last one waits for it"
    );
    batch.ends("other", JobReply::Failed).await;
    batch.scene.until_running(&["last"]).await;
    let headers = lock(&batch.scene.fakes.0).running[0].0.job.headers.clone();
    assert_eq!(
        (&*headers["batch-jobs"][0], &*headers["batch-failed"][0]),
        ("2", "1")
    );
}

#[tokio::test]
async fn a_job_whose_key_is_of_one_that_is_done_has_ended() {
    let batch = Batch::new().await;
    let unique = |id| with(id, &[("unique", "k"), ("unique-for", "60")]);
    batch.scene.push("p", unique("other")).await;
    batch.ends("other", JobReply::Done).await;
    batch.scene.until_counts("p", (0, 0, 0)).await;
    batch.push(vec![unique("a")], job("last")).await;
    batch.scene.until_running(&["last"]).await;
    let headers = lock(&batch.scene.fakes.0).running[0].0.job.headers.clone();
    assert_eq!(headers["batch-failed"], ["0"]);
}

#[tokio::test]
async fn who_waits_for_a_last_job_whose_key_another_one_has_is_told() {
    let batch = Batch::new().await;
    let unique = with("other", &[("unique", "k")]);
    batch
        .scene
        .push(
            "q",
            Job {
                delay: LONG,
                ..unique
            },
        )
        .await;
    let last = with("last", &[("unique", "k"), ("result", "keep")]);
    batch.push(vec![job("a")], last).await;
    batch.ends("a", JobReply::Done).await;
    let why = "the job other has its key, and waits or runs";
    assert_eq!(batch.why("last").await, why);
}

#[tokio::test]
async fn a_batch_is_seen_and_cancelled_by_the_id_of_its_last_job() {
    let batch = Batch::new().await;
    let last = Job {
        name: "report".to_owned(),
        ..with("last", &[("result", "keep")])
    };
    batch.push(vec![job("a"), job("b")], last).await;
    let pipelines = &batch.scene.pipelines;
    batch.scene.until_running(&["a", "b"]).await;
    let failed = Outcome::Replied(JobReply::Failed, Bytes::new());
    batch.scene.answer(failed).await;
    batch.scene.until_counts("p", (0, 0, 1)).await;
    let (seen, has_more) = pipelines.list_batches(10).await.unwrap();
    let it = &seen[0];
    assert_eq!((&*it.id, &*it.job, &*it.pipeline), ("last", "report", "q"));
    assert_eq!((it.jobs, it.ended, it.failed, has_more), (2, 1, 1, false));
    let cancelled = pipelines.cancel(None, "last", "").await.unwrap();
    assert_eq!(cancelled.removed, 1);
    assert_eq!(batch.why("last").await, Dropped::Cancelled.text());
    batch.ends("b", JobReply::Done).await;
    batch.scene.until_counts("p", (0, 0, 0)).await;
    assert!(batch.scene.running().is_empty());
}
