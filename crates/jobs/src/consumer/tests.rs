//! Consumers with runners that a test drives.

use std::collections::VecDeque;
use std::sync::Mutex;

use pronghorn_base::lock;
use pronghorn_metrics::Registry;
use pronghorn_store::LazyStore;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::metrics::Metrics;
use crate::settings::{DriverSettings, PipelineSettings};

/// Workers that answer when they are told.
#[derive(Clone, Default)]
struct Fakes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    places: usize,
    /// Jobs that run, in the order in which they began.
    running: VecDeque<(JobCall, oneshot::Sender<Outcome>)>,
    most: usize,
}

impl Runners for Fakes {
    fn places(&self) -> usize {
        lock(&self.0).places
    }

    fn run(&self, call: JobCall) -> BoxFuture<'static, Outcome> {
        let (answer, answered) = oneshot::channel();
        let mut state = lock(&self.0);
        state.running.push_back((call, answer));
        state.most = state.most.max(state.running.len());
        Box::pin(async move {
            let gone = |_| Outcome::Lost("the fake is gone".to_owned());
            answered.await.unwrap_or_else(gone)
        })
    }
}

struct Scene {
    pipelines: Pipelines,
    fakes: Fakes,
    end: CancellationToken,
    consumer: JoinSet<()>,
    registry: Registry,
}

impl Scene {
    async fn new(places: usize, names: &[&str]) -> Self {
        let registry = Registry::default();
        let store = LazyStore::new("/nonexistent".into(), 0);
        let patience = Duration::from_secs(60);
        let pipelines = Pipelines::new(store, patience, Metrics::new(&registry));
        for name in names {
            let settings = PipelineSettings {
                driver: DriverSettings::Memory { max_size: 1 << 20 },
                priority: 10,
            };
            pipelines.declare(name, &settings).await.unwrap();
            pipelines.resume(name).unwrap();
        }
        let fakes = Fakes::default();
        lock(&fakes.0).places = places;
        let end = CancellationToken::new();
        let mut consumer = JoinSet::new();
        consumer.spawn(Consumer::new(pipelines.clone(), fakes.clone(), None).work(end.clone()));
        Self {
            pipelines,
            fakes,
            end,
            consumer,
            registry,
        }
    }

    async fn push(&self, pipeline: &str, job: Job) {
        let pushed = vec![(pipeline.to_owned(), job)];
        self.pipelines.push(pushed).await.unwrap();
        settle_down().await;
    }

    fn running(&self) -> Vec<String> {
        let state = lock(&self.fakes.0);
        state
            .running
            .iter()
            .map(|(call, _)| call.job.id.clone())
            .collect()
    }

    async fn answer(&self, outcome: Outcome) {
        let (_, answer) = lock(&self.fakes.0).running.pop_front().expect("a job runs");
        answer.send(outcome).expect("somebody waits");
        settle_down().await;
    }

    async fn counts(&self, pipeline: &str) -> (u64, u64, u64) {
        let all = self.pipelines.all();
        let pipeline = all.iter().find(|it| it.name == pipeline).unwrap();
        let stat = self.pipelines.stat(pipeline).await.unwrap();
        (stat.active, stat.delayed, stat.reserved)
    }

    fn counted(&self, name: &str) -> u64 {
        let families = self.registry.families();
        let family = families.iter().find(|it| it.name == name).unwrap();
        match family.series[0].reading {
            pronghorn_metrics::Reading::Count(count) => count,
            _ => panic!("{name} is no counter"),
        }
    }
}

/// Lets tasks do what they can do without time.
async fn settle_down() {
    for _ in 0..50 {
        yield_now().await;
    }
}

fn job(id: &str) -> Job {
    Job {
        id: id.to_owned(),
        ..Job::default()
    }
}

fn answered(body: &'static str) -> Outcome {
    Outcome::Answered(Bytes::from_static(body.as_bytes()))
}

#[tokio::test(start_paused = true)]
async fn a_job_is_taken_when_a_worker_is_free_and_not_before() {
    let scene = Scene::new(2, &["p"]).await;
    for id in ["a", "b", "c"] {
        scene.push("p", job(id)).await;
    }
    assert_eq!(scene.running(), ["a", "b"]);
    assert_eq!(scene.counts("p").await, (1, 0, 2));
    let urgent = Job {
        priority: 1,
        ..job("urgent")
    };
    scene.push("p", urgent).await;
    scene.answer(answered(r#"{"type":0}"#)).await;
    assert_eq!(
        scene.running(),
        ["b", "urgent"],
        "what waits can be overtaken"
    );
    assert_eq!(scene.counted("rr_jobs_jobs_ok"), 1);
    assert_eq!(scene.counted("rr_jobs_push_ok"), 4);
}

#[tokio::test(start_paused = true)]
async fn without_workers_nothing_is_taken_and_later_ones_are_noticed() {
    let scene = Scene::new(0, &["p"]).await;
    scene.push("p", job("a")).await;
    assert_eq!(scene.counts("p").await, (1, 0, 0));
    lock(&scene.fakes.0).places = 1;
    sleep(2 * LOOK_AGAIN).await;
    assert_eq!(scene.running(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn pipelines_take_turns_and_the_better_priority_goes_first() {
    let scene = Scene::new(0, &["a", "b"]).await;
    for (pipeline, id) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")] {
        scene.push(pipeline, job(id)).await;
    }
    let urgent = Job {
        priority: 1,
        ..job("b0")
    };
    scene.push("b", urgent).await;
    lock(&scene.fakes.0).places = 5;
    sleep(2 * LOOK_AGAIN).await;
    assert_eq!(scene.running(), ["b0", "a1", "b1", "a2", "b2"]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_pipeline_holds_nothing_back_from_others() {
    let scene = Scene::new(1, &["a", "b"]).await;
    scene.pipelines.pause("a").unwrap();
    scene.push("a", job("a1")).await;
    scene.push("b", job("b1")).await;
    assert_eq!(scene.running(), ["b1"]);
    scene.answer(answered(r#"{"type":0}"#)).await;
    assert!(scene.running().is_empty());
    scene.pipelines.resume("a").unwrap();
    settle_down().await;
    assert_eq!(scene.running(), ["a1"]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_job_runs_when_its_time_comes() {
    let scene = Scene::new(1, &["p"]).await;
    let later = Job {
        delay: Duration::from_secs(5),
        ..job("later")
    };
    scene.push("p", later).await;
    sleep(Duration::from_millis(4990)).await;
    assert!(scene.running().is_empty());
    sleep(Duration::from_millis(20)).await;
    assert_eq!(scene.running(), ["later"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_kills_its_workers_is_given_up_and_others_go_on() {
    let scene = Scene::new(1, &["p"]).await;
    scene.push("p", job("bad")).await;
    scene.push("p", job("good")).await;
    let mut order = Vec::new();
    while let Some(id) = scene.running().pop() {
        let outcome = match &*id {
            "bad" => Outcome::Lost("the worker ended".to_owned()),
            _ => answered(r#"{"type":0}"#),
        };
        order.push(id);
        scene.answer(outcome).await;
    }
    assert_eq!(order, ["bad", "good", "bad", "bad"]);
    assert_eq!(scene.counts("p").await, (0, 0, 0));
    assert_eq!(scene.counted("rr_jobs_jobs_err"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_no_worker_had_is_no_attempt() {
    let scene = Scene::new(1, &["p"]).await;
    scene.push("p", job("a")).await;
    for _ in 0..10 {
        scene
            .answer(Outcome::NotTaken("no worker".to_owned()))
            .await;
        sleep(2 * LOOK_AGAIN).await;
        assert_eq!(scene.running(), ["a"]);
    }
    scene.answer(answered(r#"{"type":0}"#)).await;
    assert_eq!(scene.counts("p").await, (0, 0, 0));
    assert_eq!(scene.counted("rr_jobs_jobs_err"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_with_auto_ack_is_done_when_it_begins() {
    let scene = Scene::new(1, &["p"]).await;
    let once = Job {
        auto_ack: true,
        ..job("once")
    };
    scene.push("p", once).await;
    assert_eq!(
        (scene.running(), scene.counts("p").await),
        (vec!["once".to_owned()], (0, 0, 0))
    );
    scene
        .answer(Outcome::Lost("the worker ended".to_owned()))
        .await;
    assert!(scene.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_what_runs_and_takes_nothing_new() {
    let mut scene = Scene::new(1, &["p"]).await;
    scene.push("p", job("a")).await;
    scene.push("p", job("b")).await;
    scene.end.cancel();
    settle_down().await;
    let waited = timeout(Duration::from_secs(5), scene.consumer.join_next()).await;
    assert!(waited.is_err(), "a job runs");
    scene.answer(answered(r#"{"type":0}"#)).await;
    scene.consumer.join_next().await.unwrap().unwrap();
    assert_eq!(scene.counts("p").await, (1, 0, 0));
    assert_eq!(lock(&scene.fakes.0).most, 1);
}
