//! Consumers with runners that a test drives.

mod batches;

use std::collections::VecDeque;
use std::sync::Mutex;

use pronghorn_base::lock;
use pronghorn_metrics::Registry;
use pronghorn_queue::Headers;
use pronghorn_store::LazyStore;
use pronghorn_testkit::Directory;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::*;
use crate::metrics::Metrics;
use crate::results::{EVERY_PIPELINE, Ended, Waited};
use crate::rules::{Backoff, Rate, Retry, Rules};
use crate::settings::tests::brokers;
use crate::settings::{DriverSettings, PipelineSettings};

/// Workers that answer when they are told.
#[derive(Clone, Default)]
struct Fakes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    places: usize,
    /// For jobs at hand.
    room: usize,
    /// Jobs that run, in the order in which they began.
    running: VecDeque<(JobCall, oneshot::Sender<Outcome>)>,
    most: usize,
}

impl Runners for Fakes {
    fn places(&self) -> usize {
        lock(&self.0).places
    }

    fn room(&self) -> usize {
        let state = lock(&self.0);
        (state.places + state.room).saturating_sub(state.running.len())
    }

    fn run(&self, call: JobCall) -> BoxFuture<'static, Attempt> {
        let (answer, answered) = oneshot::channel();
        let mut state = lock(&self.0);
        state.running.push_back((call, answer));
        state.most = state.most.max(state.running.len());
        Box::pin(async move {
            let gone = |_| Outcome::Lost("the fake is gone".into());
            answered.await.unwrap_or_else(gone).into()
        })
    }
}

struct Scene {
    pipelines: Pipelines,
    fakes: Fakes,
    /// Of the other pool.
    others: Fakes,
    _directory: Directory,
    end: CancellationToken,
    consumer: JoinSet<()>,
    _other: JoinSet<()>,
    registry: Registry,
}

impl Scene {
    async fn new(places: usize, names: &[&str]) -> Self {
        Self::with_rules(places, names, Rules::default()).await
    }

    async fn with_rules(places: usize, names: &[&str], rules: Rules) -> Self {
        let registry = Registry::default();
        let directory = Directory::new();
        let store = LazyStore::new(directory.to_path_buf(), 1 << 20);
        let patience = Duration::from_secs(60);
        let metrics = Metrics::new(&registry);
        let pools = ["default", "other"].into_iter();
        let pipelines = Pipelines::new(store, patience, metrics, pools.clone(), brokers());
        for name in names {
            let settings = PipelineSettings {
                driver: IN_MEMORY,
                priority: 10,
                pool: "default".to_owned(),
                rules: rules.clone(),
            };
            pipelines.declare(name, &settings).await.unwrap();
            pipelines.dispatch().resume(name).unwrap();
        }
        let fakes = Fakes::default();
        lock(&fakes.0).places = places;
        let others = Fakes::default();
        lock(&others.0).places = 1;
        let end = CancellationToken::new();
        let (mut consumer, mut other) = (JoinSet::new(), JoinSet::new());
        let (handoffs, inboxes) = Handoffs::between(pools.clone());
        let fakes_of = [fakes.clone(), others.clone()];
        for ((pool, inbox), fakes) in pools.zip(inboxes).zip(fakes_of) {
            let seam = (handoffs.clone(), inbox);
            let of_pool = Consumer::new(pipelines.clone(), pool, seam, fakes, None);
            let tasks = if pool == "default" {
                &mut consumer
            } else {
                &mut other
            };
            tasks.spawn(of_pool.work(end.clone()));
        }
        Self {
            pipelines,
            fakes,
            others,
            _directory: directory,
            end,
            consumer,
            _other: other,
            registry,
        }
    }

    /// As if PHP had declared it; it consumes.
    async fn declare(&self, name: &str, driver: DriverSettings) {
        let settings = PipelineSettings {
            driver,
            priority: 10,
            pool: "default".to_owned(),
            rules: Rules::default(),
        };
        self.pipelines.declare(name, &settings).await.unwrap();
        self.pipelines.dispatch().resume(name).unwrap();
    }

    async fn until_running(&self, ids: &[&str]) {
        while self.running() != ids {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn until_counts(&self, pipeline: &str, counts: (u64, u64, u64)) {
        while self.counts(pipeline).await != counts {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn push(&self, pipeline: &str, job: Job) {
        let pushed = vec![(pipeline.to_owned(), job)];
        self.pipelines.admission().push(pushed).await.unwrap();
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

    async fn next_running(&self) -> String {
        loop {
            if let Some(id) = self.running().into_iter().next() {
                return id;
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn answer(&self, outcome: Outcome) {
        let (_, answer) = lock(&self.fakes.0).running.pop_front().expect("a job runs");
        answer.send(outcome).expect("somebody waits");
        settle_down().await;
    }

    async fn counts(&self, pipeline: &str) -> (u64, u64, u64) {
        let all = self.pipelines.registry().all();
        let pipeline = all.iter().find(|it| it.name == pipeline).unwrap();
        let stat = self.pipelines.registry().stat(pipeline).await.unwrap();
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
async fn quick_workers_have_the_next_jobs_at_hand() {
    let scene = Scene::new(1, &["p"]).await;
    lock(&scene.fakes.0).room = 2;
    scene.pipelines.recent().behind(0);
    for id in ["a", "b", "c", "d"] {
        scene.push("p", job(id)).await;
    }
    assert_eq!(scene.running(), ["a", "b", "c"]);
    // The job before them takes longer: they go back, the last one first, as a pool does it.
    {
        let mut state = lock(&scene.fakes.0);
        state.room = 0;
        for _ in ["c", "b"] {
            let (_, answer) = state.running.pop_back().unwrap();
            answer.send(Outcome::NotBegun).unwrap();
        }
    }
    settle_down().await;
    assert_eq!(scene.counts("p").await, (3, 0, 1));
    for id in ["a", "b", "c", "d"] {
        assert_eq!(scene.running(), [id], "in their order, as before");
        scene.answer(answered(r#"{"type":0}"#)).await;
    }
    let (endings, _) = scene.pipelines.recent().behind(0);
    assert_eq!(endings.len(), 4, "going back is no news");
}

#[tokio::test(start_paused = true)]
async fn jobs_that_lose_something_by_being_taken_do_not_go_back() {
    let scene = Scene::new(1, &["p"]).await;
    let automatic = Job {
        auto_ack: true,
        ..job("a")
    };
    for job in [automatic, job("b")] {
        scene.push("p", job).await;
        {
            let state = lock(&scene.fakes.0);
            let (call, _) = state.running.front().unwrap();
            assert_eq!(call.can_go_back, call.job.id == "b");
        }
        scene.answer(answered(r#"{"type":0}"#)).await;
    }
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
async fn a_busy_urgent_pipeline_leaves_a_share_to_others() {
    let scene = Scene::new(0, &["other", "urgent"]).await;
    for number in 0..20 {
        let urgent = Job {
            priority: 1,
            ..job(&format!("urgent{number}"))
        };
        scene.push("urgent", urgent).await;
    }
    scene.push("other", job("other")).await;
    lock(&scene.fakes.0).places = 8;
    sleep(2 * LOOK_AGAIN).await;
    let running = scene.running();
    assert_eq!(running.len(), 8);
    assert!(running.contains(&"other".to_owned()), "{running:?}");
}

#[tokio::test(start_paused = true)]
async fn a_paused_pipeline_holds_nothing_back_from_others() {
    let scene = Scene::new(1, &["a", "b"]).await;
    scene.pipelines.dispatch().pause("a").unwrap();
    scene.push("a", job("a1")).await;
    scene.push("b", job("b1")).await;
    assert_eq!(scene.running(), ["b1"]);
    scene.answer(answered(r#"{"type":0}"#)).await;
    assert!(scene.running().is_empty());
    scene.pipelines.dispatch().resume("a").unwrap();
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

#[tokio::test]
async fn a_job_that_kills_its_workers_is_a_dead_letter_and_others_go_on() {
    let retry = Retry {
        backoff: Backoff::Times(Vec::new()),
        ..Retry::default()
    };
    let rules = Rules {
        retry,
        ..Rules::default()
    };
    let scene = Scene::with_rules(1, &["p"], rules).await;
    scene.push("p", job("bad")).await;
    scene.push("p", job("good")).await;
    let mut order = Vec::new();
    while order.len() < 4 {
        let id = scene.next_running().await;
        let outcome = match &*id {
            "bad" => Outcome::Lost("the worker ended".into()),
            _ => answered(r#"{"type":0}"#),
        };
        order.push(id);
        scene.answer(outcome).await;
    }
    assert_eq!(order, ["bad", "good", "bad", "bad"]);
    let dead = || async { scene.pipelines.dead().list(None, 9).await.unwrap().0 };
    while dead().await.is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    let [letter] = &dead().await[..] else {
        panic!("there is one letter");
    };
    assert_eq!(
        (&*letter.id, letter.attempts, &*letter.reason),
        ("bad", 3, "the worker ended")
    );
    while scene.counts("p").await != (0, 0, 0) {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(scene.counted("rr_jobs_jobs_err"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_failed_waits_before_it_runs_again() {
    let scene = Scene::new(1, &["p"]).await;
    scene.push("p", job("a")).await;
    scene.answer(Outcome::Reported("no".into())).await;
    assert_eq!(scene.counts("p").await, (0, 1, 0));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.running(), ["a"]);
    let delay = Duration::from_secs(60);
    let again = Outcome::Replied(JobReply::Retry { delay }, Bytes::new());
    scene.answer(again).await;
    sleep(Duration::from_secs(59)).await;
    assert!(scene.running().is_empty());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(lock(&scene.fakes.0).running[0].0.job.attempts, 2);
}

#[test]
fn a_job_that_its_handler_wants_again_too_often_says_why_it_ends() {
    let mut wanted = job("a");
    let again = |job: &Job| {
        let delay = Duration::ZERO;
        let again = Outcome::Replied(JobReply::Retry { delay }, Bytes::new());
        judge(job, &Rules::default().retry, again, false)
    };
    let judged = again(&wanted);
    assert!(judged.remark.is_none() && judged.end.is_none());
    wanted.attempts = 1000;
    let judged = again(&wanted);
    let why = "its handler wants it again, and it has no attempt left";
    assert_eq!(judged.remark.as_deref(), Some(why));
    let Some(End::GivenUp(reason)) = judged.end else {
        panic!("it is given up")
    };
    assert_eq!(reason.brief(), why);
}

#[test]
fn a_requeue_gives_a_job_no_more_headers_than_a_push_may() {
    let mut wanted = job("a");
    let header = |bytes| vec!["x".repeat(bytes)];
    wanted.headers.insert("own".to_owned(), header(60_000));
    let again = |job: &Job, bytes: usize, delay: u64| {
        let body = format!(
            r#"{{"type":4,"data":{{"delay_seconds":{delay},"headers":{{"b":["{}"]}}}}}}"#,
            "y".repeat(bytes)
        );
        let outcome = Outcome::Answered(body.into());
        judge(job, &Rules::default().retry, outcome, false)
    };
    let few = again(&wanted, 5_000, 7);
    assert!(matches!(few.settlement, Settlement::Requeue { .. }));
    // None is longer than a push allows, and both together are.
    let many = again(&wanted, 6_000, 7);
    let delay = Duration::from_secs(7);
    assert_eq!(many.settlement, Settlement::Failed { delay });
    let why = "its handler wants it again with 66008 bytes of headers; at most 65536 are taken";
    assert_eq!(many.remark.as_deref(), Some(why));
    assert!(many.end.is_none() && many.label() == OutcomeLabel::Failed);
    wanted.attempts = 1000;
    let last = again(&wanted, 6_000, 0);
    assert_eq!(last.settlement, Settlement::Reject);
}

#[tokio::test(start_paused = true)]
async fn so_many_jobs_of_a_pipeline_run_at_a_time_and_begin_in_a_time() {
    let second = Duration::from_secs(1);
    let rate = Rate {
        jobs: 2,
        per: second,
    };
    let rules = Rules {
        concurrency: Some(3),
        rate: Some(rate),
        ..Rules::default()
    };
    let scene = Scene::with_rules(9, &["p"], rules).await;
    for id in ["a", "b", "c", "d", "e"] {
        scene.push("p", job(id)).await;
    }
    assert_eq!(scene.running(), ["a", "b"]);
    sleep(5 * second).await;
    assert_eq!(scene.running(), ["a", "b", "c"]);
    scene.answer(answered(r#"{"type":0}"#)).await;
    assert_eq!(scene.running(), ["b", "c", "d"]);
    scene.answer(answered(r#"{"type":0}"#)).await;
    assert_eq!(scene.running(), ["c", "d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_where_its_header_says() {
    let scene = Scene::new(1, &["p"]).await;
    for job in [to_other("x"), to_other("y"), job("a")] {
        scene.push("p", job).await;
    }
    let of_others = || {
        let state = lock(&scene.others.0);
        let ids = state.running.iter().map(|(call, _)| call.job.id.clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(
        (scene.running(), of_others()),
        (vec!["a".to_owned()], vec!["x".to_owned()])
    );
    let mut nowhere = to_other("z");
    nowhere
        .headers
        .insert("pool".to_owned(), vec!["none".to_owned()]);
    let pushed = vec![("p".to_owned(), nowhere)];
    let refused = scene.pipelines.admission().push(pushed).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("there is no pool `none`; there are: ")
    );
}

/// For the workers of the other pool.
fn to_other(id: &str) -> Job {
    Job {
        headers: Headers::from([("pool".to_owned(), vec!["other".to_owned()])]),
        ..job(id)
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_wait_for_another_pool_are_in_the_way_of_no_other_pipeline() {
    let scene = Scene::new(2, &["p", "q"]).await;
    lock(&scene.others.0).places = 0;
    let many = (0..400).map(|at| ("p".to_owned(), to_other(&at.to_string())));
    scene
        .pipelines
        .admission()
        .push(many.collect())
        .await
        .unwrap();
    settle_down().await;
    scene.push("p", job("last")).await;
    scene.push("q", job("a")).await;
    assert_eq!(scene.running(), ["a"]);
    let (waiting, _, taken) = scene.counts("p").await;
    assert_eq!(waiting + taken, 401);
    assert!(
        taken < 300,
        "{taken} jobs are out of a pipeline that can't run them"
    );
    // Once there is a worker for them, they go on.
    lock(&scene.others.0).places = 400;
    scene.until_running(&["a", "last"]).await;
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_pool_take_turns_with_those_that_come_from_others() {
    let scene = Scene::new(1, &["p"]).await;
    let settings = PipelineSettings {
        driver: IN_MEMORY,
        priority: 10,
        pool: "other".to_owned(),
        rules: Rules::default(),
    };
    scene.pipelines.declare("own", &settings).await.unwrap();
    scene.pipelines.dispatch().resume("own").unwrap();
    for id in ["x1", "x2", "x3", "x4"] {
        scene.push("p", to_other(id)).await;
    }
    for id in ["o1", "o2", "o3"] {
        scene.push("own", job(id)).await;
    }
    let mut ran = Vec::new();
    while ran.len() < 7 {
        let next = lock(&scene.others.0).running.pop_front();
        if let Some((call, answer)) = next {
            ran.push(call.job.id.clone());
            answer.send(answered("")).expect("somebody waits");
        }
        settle_down().await;
    }
    assert_eq!(ran, ["x1", "o1", "x2", "o2", "x3", "o3", "x4"]);
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_that_takes_no_note_is_in_the_way_of_no_other() {
    let scene = Scene::new(3, &["p", "q"]).await;
    let all = scene.pipelines.registry().all();
    let late = all.iter().find(|it| it.name == "p").unwrap();
    let mut held: Vec<_> = (0..1024).map(|_| late.hold(HeldFor::Note)).collect();
    scene.push("p", job("a")).await;
    scene.push("q", job("b")).await;
    assert_eq!(scene.running(), ["b"]);
    held.pop();
    settle_down().await;
    assert_eq!(scene.running(), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_job_ends_and_who_waits_for_it_is_told() {
    let scene = Scene::new(1, &["p"]).await;
    let waited = |id: &str| Job {
        headers: Headers::from([("pronghorn-result".to_owned(), vec!["keep".to_owned()])]),
        ..job(id)
    };
    for id in ["runs", "waits", "done"] {
        scene.push("p", waited(id)).await;
    }
    let later = Job {
        delay: Duration::from_secs(3),
        ..waited("later")
    };
    scene.push("p", later).await;
    // One that is not here is looked for in the store, meanwhile workers go on.
    for (id, removed) in [("none", 0), ("runs", 0), ("waits", 1), ("later", 1)] {
        let cancelled = scene.pipelines.cancel(None, id, "").await.unwrap();
        let running = id == "runs";
        let expected = (removed, running, false);
        let found = (cancelled.removed, cancelled.running, cancelled.noted);
        assert_eq!(found, expected, "{id}");
    }
    assert_eq!(scene.counts("p").await, (1, 0, 1), "they are gone at once");
    settle_down().await;
    assert_eq!(
        scene.running(),
        ["runs", "done"],
        "the fake does not hear of it"
    );
    lock(&scene.fakes.0).running.pop_front();
    let result = r#"{"sent":3}"#;
    scene
        .answer(Outcome::Replied(JobReply::Done, result.into()))
        .await;
    let results = scene.pipelines.results();
    for id in ["runs", "waits", "later"] {
        let ended = results.wait(&EVERY_PIPELINE, id, Duration::ZERO).await;
        assert_eq!(ended, Waited::Ended(Dropped::Cancelled.into()));
    }
    let done = results.wait(&EVERY_PIPELINE, "done", Duration::ZERO).await;
    assert_eq!(done, Waited::Ended(Ended::Done(result.into())));
    assert_eq!(scene.counts("p").await, (0, 0, 0));
    scene.push("p", job("none")).await;
    assert_eq!(scene.running(), ["none"], "an ID that was cancelled before");
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_is_cleared_and_keys_of_its_jobs_are_free() {
    let scene = Scene::new(1, &["p"]).await;
    let unique = |id: &str| Job {
        headers: Headers::from([("pronghorn-unique".to_owned(), vec!["k".to_owned()])]),
        ..job(id)
    };
    scene.push("p", job("runs")).await;
    scene.push("p", unique("a")).await;
    scene.push("p", job("b")).await;
    assert_eq!(scene.pipelines.clear("p").await.unwrap(), 2);
    assert_eq!(scene.counts("p").await, (0, 0, 1));
    scene.push("p", unique("c")).await;
    assert_eq!(scene.counts("p").await, (1, 0, 1));
}

const IN_MEMORY: DriverSettings = DriverSettings::Memory { max_size: 1 << 20 };
const IN_STORE: DriverSettings = DriverSettings::Embedded { is_boltdb: false };

#[tokio::test]
async fn a_job_that_runs_is_not_started_again_by_a_pipeline_of_the_same_name() {
    let scene = Scene::new(3, &[]).await;
    scene.declare("p", IN_STORE).await;
    scene.push("p", job("a")).await;
    scene.until_running(&["a"]).await;
    scene.pipelines.destroy("p").await.unwrap();
    assert_eq!(
        scene.pipelines.registry().reserved(),
        1,
        "its worker has it still"
    );
    scene.declare("p", IN_STORE).await;
    scene.push("p", job("b")).await;
    scene.until_running(&["a", "b"]).await;
    assert_eq!(scene.counts("p").await, (0, 0, 2));
    // It comes back into the pipeline that there is now, and once.
    scene
        .answer(answered(r#"{"type":4,"data":{"message":"later"}}"#))
        .await;
    scene.until_running(&["b", "a"]).await;
    for left in [1, 0] {
        scene.answer(answered(r#"{"type":0}"#)).await;
        scene.until_counts("p", (0, 0, left)).await;
    }
    scene.pipelines.destroy("p").await.unwrap();
    scene.declare("p", IN_STORE).await;
    assert_eq!(scene.counts("p").await, (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn jobs_in_memory_end_with_their_pipeline_and_one_that_runs_is_not_tried_again() {
    let scene = Scene::new(1, &[]).await;
    scene.declare("p", IN_MEMORY).await;
    let waited = |id: &str, key: &str| Job {
        headers: ["result", "unique"]
            .map(|name| (format!("pronghorn-{name}"), vec![key.to_owned()]))
            .into(),
        ..job(id)
    };
    scene.push("p", waited("runs", "k1")).await;
    scene.push("p", waited("waits", "k2")).await;
    scene.pipelines.destroy("p").await.unwrap();
    let ended = async |id| {
        scene
            .pipelines
            .results()
            .wait(&EVERY_PIPELINE, id, Duration::ZERO)
            .await
    };
    let destroyed = Waited::Ended(Dropped::Destroyed.into());
    assert_eq!(ended("waits").await, destroyed);
    assert_eq!(ended("runs").await, Waited::NotYet);
    scene.declare("p", IN_MEMORY).await;
    let again = scene.pipelines.admission().push(vec![
        ("p".to_owned(), waited("second", "k1")),
        ("p".to_owned(), waited("third", "k2")),
    ]);
    assert_eq!(again.await.unwrap()["second"], "runs");
    scene.answer(Outcome::Reported("no".into())).await;
    let results = scene.pipelines.results();
    assert_eq!(
        results
            .wait(&EVERY_PIPELINE, "runs", Duration::from_mins(1))
            .await,
        destroyed
    );
    scene.until_running(&["third"]).await;
    while scene.pipelines.registry().reserved() > 1 {
        sleep(Duration::from_millis(1)).await;
    }
    let again = vec![("p".to_owned(), waited("fourth", "k1"))];
    assert!(
        scene
            .pipelines
            .admission()
            .push(again)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_pushed_again_has_its_key_or_waits_for_it() {
    let scene = Scene::new(1, &["p"]).await;
    let unique = |id: &str| Job {
        headers: Headers::from([("pronghorn-unique".to_owned(), vec!["k".to_owned()])]),
        ..job(id)
    };
    scene.push("p", unique("b")).await;
    let refused = scene
        .pipelines
        .admission()
        .push_again("p", unique("a"))
        .await;
    let said = "the job b has its key, and waits or runs";
    assert_eq!(refused.unwrap_err().to_string(), said);
    scene.answer(answered(r#"{"type":0}"#)).await;
    scene.until_counts("p", (0, 0, 0)).await;
    let again = scene
        .pipelines
        .admission()
        .push_again("p", unique("a"))
        .await;
    assert!(again.is_ok());
    let other = vec![("p".to_owned(), unique("c"))];
    assert_eq!(
        scene.pipelines.admission().push(other).await.unwrap()["c"],
        "a"
    );
}

#[tokio::test]
async fn an_expired_job_ends_also_in_a_paused_pipeline() {
    for driver in [IN_MEMORY, IN_STORE] {
        let scene = Scene::new(1, &[]).await;
        scene.declare("p", driver).await;
        scene.pipelines.dispatch().pause("p").unwrap();
        let mut ending = JoinSet::new();
        ending.spawn(scene.pipelines.clone().end_expired(scene.end.clone()));
        let unique = |id: &str, expires: &str| Job {
            headers: [("expires", expires), ("unique", "k"), ("result", "keep")]
                .map(|(name, value)| (format!("pronghorn-{name}"), vec![value.to_owned()]))
                .into(),
            ..job(id)
        };
        scene.push("p", unique("old", "0.05")).await;
        let push = |id| {
            scene
                .pipelines
                .admission()
                .push(vec![("p".to_owned(), unique(id, "60"))])
        };
        assert_eq!(push("new").await.unwrap()["new"], "old");
        let ended = scene
            .pipelines
            .results()
            .wait(&EVERY_PIPELINE, "old", Duration::from_mins(1));
        assert_eq!(ended.await, Waited::Ended(Dropped::Expired.into()));
        assert!(push("new").await.unwrap().is_empty(), "the key is free");
        assert_eq!(scene.counts("p").await, (1, 0, 0), "and so is the place");
        assert!(scene.running().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_unique_job_is_kept_once() {
    let scene = Scene::new(1, &["p"]).await;
    let unique = |id: &str| Job {
        headers: Headers::from([("pronghorn-unique".to_owned(), vec!["k".to_owned()])]),
        ..job(id)
    };
    let push = |id: &str| {
        scene
            .pipelines
            .admission()
            .push(vec![("p".to_owned(), unique(id))])
    };
    assert!(push("a").await.unwrap().is_empty());
    settle_down().await;
    assert_eq!(push("b").await.unwrap()["b"], "a");
    scene.answer(answered(r#"{"type":0}"#)).await;
    scene.until_counts("p", (0, 0, 0)).await;
    assert!(push("c").await.unwrap().is_empty());
    settle_down().await;
    assert_eq!(scene.running(), ["c"]);
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
    scene.answer(Outcome::Lost("the worker ended".into())).await;
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
