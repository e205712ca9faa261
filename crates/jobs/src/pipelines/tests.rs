//! Pipelines of every driver in this build, whose brokers are nowhere.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::Poll;

use pronghorn_metrics::Registry;
use pronghorn_queue::options::{self, Unique};
use pronghorn_store::Transaction;
use pronghorn_testkit::Directory;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::batches::{Batches, Last, Part};
use crate::consumer::leaves;
use crate::keys::scoped;
use crate::messages::Pushed;
use crate::results::{EVERY_PIPELINE, Waited};
use crate::settings::tests::brokers_of;

const LIMIT: u64 = 1 << 20;

/// At an upgrade the old process keeps the store for as long as the new one gets ready. So a
/// pipeline that asks for it without saying so makes the upgrade fail.
#[tokio::test]
async fn a_pipeline_that_asks_for_the_store_says_so() {
    let mut seen = Vec::new();
    for driver in crate::settings::built_drivers() {
        let map = [
            ("name", "p"),
            ("driver", driver),
            ("project_id", "project"),
            ("topic", "topic"),
        ];
        let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let brokers = brokers_of("{version: '3', kafka: {brokers: ['127.0.0.1:1']}}");
        let map = map.into();
        let (name, settings) = PipelineSettings::declared(&map, &brokers).expect(driver);
        let directory = Directory::new();
        let state = directory.join("state");
        let store = LazyStore::new(state.clone(), LIMIT);
        let metrics = Metrics::new(&Registry::default());
        let patience = Duration::from_secs(60);
        let pools = ["default"].into_iter();
        let pipelines = Pipelines::new(store, patience, metrics, pools, brokers);
        pipelines.declare(name, &settings).await.expect(driver);
        assert_eq!(state.exists(), settings.is_stored(), "{driver}");
        seen.push(settings.is_stored());
    }
    assert!(seen.contains(&true) && seen.contains(&false), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_that_could_not_be_opened_says_why_and_can_be_tried_again() {
    let (directory, brokers) = (Directory::new(), brokers_of("{version: '3'}"));
    let state = directory.join("state");
    std::fs::write(&state, "in the way").unwrap();
    let metrics = Metrics::new(&Registry::default());
    let store = LazyStore::new(state.clone(), LIMIT);
    let (patience, pools) = (Duration::from_secs(60), ["default"].into_iter());
    let pipelines = Pipelines::new(store, patience, metrics, pools, brokers.clone());
    let map = [("name", "mail"), ("driver", "embedded")];
    let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let map = map.into();
    let (name, settings) = PipelineSettings::declared(&map, &brokers).unwrap();
    let registry = pipelines.registry();
    assert!(pipelines.declare(name, &settings).await.is_err());
    let said = registry.get_open("mail").await.map(drop).unwrap_err();
    assert_eq!(said.to_string(), "no such pipeline, requested: mail");

    registry.announce(name);
    assert_eq!(registry.ready(), Ok(()), "it is to come");
    let said = registry.get("mail").map(drop).unwrap_err();
    let before = "pipeline mail is not ready: it is not open yet: ";
    assert!(said.to_string().starts_with(before), "{said}");
    let said = registry.get_open("mail").await.map(drop).unwrap_err();
    assert!(matches!(said, PipelineError::Late(_)), "{said}");

    assert!(pipelines.open_announced(name, &settings).await.is_err());
    let said = registry.get_open("MAIL").await.map(drop).unwrap_err();
    let said = said.to_string();
    let why = said.strip_prefix(before).expect(&said);
    assert!(why.contains(&*state.to_string_lossy()), "{said}");
    assert_eq!(
        registry.ready(),
        Err(format!("pipeline `mail`: it is not open yet: {why}"))
    );
    registry.expect("mail").unwrap();
    assert!(!pipelines.has_no_job("mail", "job").await, "it may");
    let said = registry.get("mall").map(drop).unwrap_err();
    let meant = "no such pipeline, requested: mall; did you mean `mail`? There are: `mail`";
    assert_eq!(said.to_string(), meant);

    std::fs::remove_file(&state).unwrap();
    pipelines.open_announced(name, &settings).await.unwrap();
    assert_eq!(registry.ready(), Ok(()));
    registry.get_open("mail").await.map(drop).unwrap();
}

/// With a pipeline that gives out nothing, and a store.
struct Scene {
    pipelines: Pipelines,
    store: LazyStore,
    _directory: Directory,
}

fn job(id: &str, has_key: bool) -> Job {
    let key = || ("pronghorn-unique".to_owned(), vec!["k".to_owned()]);
    Job {
        id: id.to_owned(),
        headers: has_key.then(key).into_iter().collect(),
        ..Job::default()
    }
}

impl Scene {
    async fn new() -> Self {
        Self::with("memory").await
    }

    async fn with(driver: &str) -> Self {
        let directory = Directory::new();
        let store = LazyStore::new(directory.join("state"), LIMIT);
        Self {
            _directory: directory,
            ..Self::over(store, driver).await
        }
    }

    async fn over(store: LazyStore, driver: &str) -> Self {
        let directory = Directory::new();
        let (patience, metrics) = (Duration::from_secs(60), Metrics::new(&Registry::default()));
        let (brokers, pools) = (brokers_of("{version: '3'}"), ["default"].into_iter());
        let pipelines = Pipelines::new(store.clone(), patience, metrics, pools, brokers.clone());
        let map = [("name", "p"), ("driver", driver)];
        let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let map = map.into();
        let (name, settings) = PipelineSettings::declared(&map, &brokers).unwrap();
        pipelines.declare(name, &settings).await.unwrap();
        Self {
            pipelines,
            store,
            _directory: directory,
        }
    }

    async fn push_batch(&self, last: &str, part: Job) -> Duplicates {
        let last = Last {
            pipeline: "p".to_owned(),
            job: job(last, false),
        };
        let jobs = vec![("p".to_owned(), part)];
        self.pipelines.push_batch(jobs, last).await.unwrap()
    }

    /// A batch with a part that has the end of another job.
    async fn push_follower(&self, last: &str, other: &str) {
        let duplicates = self.push_batch(last, job("part", true)).await;
        assert_eq!(duplicates["part"], other);
    }

    async fn ids(&self) -> Vec<String> {
        let pipeline = self.pipelines.registry().get("p").unwrap();
        let jobs = pipeline.driver.list(None).await.unwrap().jobs;
        jobs.into_iter().map(|it| it.job.id).collect()
    }
}

/// The outcome, unless it has not come by so many steps: then the work is cut off.
async fn cut_off_after<F: Future>(steps: usize, work: F) -> Option<F::Output> {
    let (mut work, mut taken) = (std::pin::pin!(work), 0);
    let step = std::future::poll_fn(|context| {
        taken += 1;
        if taken > steps {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    });
    step.await
}

#[tokio::test]
async fn a_batch_does_not_wait_for_a_job_that_was_removed_when_the_server_was_killed() {
    for by_id in [false, true] {
        for steps in 1.. {
            let scene = Scene::with("embedded").await;
            scene.push_batch("last", job("part", false)).await;
            let removing = async {
                if by_id {
                    scene.pipelines.cancel(None, "part", "").await.map(drop)
                } else {
                    scene.pipelines.clear("p").await.map(drop)
                }
            };
            let removed = cut_off_after(steps, removing).await;
            let ids = scene.ids().await;
            let (batches, _) = scene.pipelines.list_batches(10).await.unwrap();
            let waits = batches.iter().any(|batch| batch.ended == 0);
            let is_here = ids.contains(&"part".to_owned());
            assert!(is_here || !waits, "after {steps} steps, by its ID: {by_id}");
            if let Some(removed) = removed {
                removed.unwrap();
                assert_eq!(ids, ["last"]);
                break;
            }
        }
    }
}

/// A job of a batch that counts as done when it begins, and when it ends with its process.
#[tokio::test]
async fn a_batch_ends_whose_job_was_with_a_process_that_was_killed() {
    for steps in 1.. {
        let scene = Scene::with("embedded").await;
        let part = Job {
            auto_ack: true,
            ..job("part", false)
        };
        scene.push_batch("last", part).await;
        let pipeline = scene.pipelines.registry().get("p").unwrap();
        pipeline.driver.resume();
        let taken = pipeline.driver.take(Instant::now()).unwrap();
        let extras = JobOptions::of(&taken.job.headers);
        let leaving = leaves(&scene.pipelines, &pipeline, "part", &extras, taken.ticket);
        let left = cut_off_after(steps, leaving).await;
        // Its process looks on, for it runs.
        assert!(scene.pipelines.look_at_batches().await.unwrap());
        let next = Scene::over(scene.store.clone(), "embedded").await;
        let is_here = next.ids().await == ["part"];
        for _ in 0..2 {
            assert!(next.pipelines.look_at_batches().await.unwrap());
        }
        let expected = if is_here { ["part"] } else { ["last"] };
        assert_eq!(next.ids().await, expected, "after {steps} steps");
        let (batches, _) = next.pipelines.list_batches(10).await.unwrap();
        assert_eq!(batches.len(), usize::from(is_here));
        if let Some(left) = left {
            assert!(left && !is_here);
            break;
        }
    }
}

/// It is lost with a process, unless that has handed it over.
#[tokio::test]
async fn a_batch_ends_whose_job_in_memory_is_lost() {
    let scene = Scene::new().await;
    scene.push_batch("last", job("part", false)).await;
    scene.push_batch("other", job("part", false)).await;
    assert!(scene.pipelines.look_at_batches().await.unwrap());
    let pipeline = scene.pipelines.registry().get("p").unwrap();
    let jobs = pipeline.driver.list(None).await.unwrap().jobs;
    let next = Scene::over(scene.store.clone(), "memory").await;
    let moved: Pushed = vec![("p".to_owned(), jobs[0].job.clone())];
    next.pipelines
        .admission()
        .push(moved.clone())
        .await
        .unwrap();
    for _ in 0..2 {
        assert!(next.pipelines.look_at_batches().await.unwrap());
        assert_eq!(next.ids().await, ["part", "other"]);
    }
    // A job on its way is nowhere for a while.
    next.pipelines.give_away_parts().await;
    let third = Scene::over(scene.store.clone(), "memory").await;
    assert!(!third.pipelines.look_at_batches().await.unwrap());
    assert!(third.ids().await.is_empty());
    let parts = third.pipelines.parts_in_memory(&moved);
    third.pipelines.hold_pushed(parts).await;
    assert!(third.pipelines.look_at_batches().await.unwrap());
    assert!(third.ids().await.is_empty(), "it ends with this one");
    let last = Scene::over(scene.store.clone(), "memory").await;
    assert!(last.pipelines.look_at_batches().await.unwrap());
    assert_eq!(last.ids().await, ["last"]);
}

/// A store that is away for long.
#[tokio::test]
async fn a_batch_is_told_later_of_an_end_that_the_store_has_not_taken() {
    let scene = Scene::new().await;
    scene.push_batch("last", job("part", false)).await;
    let pipeline = scene.pipelines.registry().get("p").unwrap();
    let part = forget(&pipeline, "part").await.remove(0);
    let extras = JobOptions::of(&part.headers);
    scene.store.close().await;
    let pipelines = &scene.pipelines;
    let telling = pipelines.tell_batches_at_last(Instant::now(), &pipeline, &part, &extras, false);
    telling.await;
    assert!(!pipelines.tell_owed().await);
    assert!(pipelines.0.batches.has_waiting());
}

/// Another pipeline's job does not answer for a job of its ID that waits in the store, the last one
/// of a batch, or a dead letter.
#[tokio::test]
async fn a_job_does_not_answer_for_one_that_was_pushed_before_a_restart() {
    let scene = Scene::with("embedded").await;
    let with_result = |id: &str| {
        let mut job = job(id, false);
        options::ask_for_result(&mut job);
        ("p".to_owned(), job)
    };
    let jobs = vec![with_result("waits"), with_result("gone")];
    scene.pipelines.admission().push(jobs).await.unwrap();
    scene.push_batch("last", job("part", false)).await;
    let (_, dead) = with_result("dead");
    let keeping = scene.pipelines.dead().keep("p", &dead, 3, "no");
    keeping.await.unwrap();
    scene.pipelines.cancel(None, "gone", "").await.unwrap();
    let next = Scene::over(scene.store.clone(), "embedded").await;
    for (id, is_known) in [
        ("waits", true),
        ("last", true),
        ("dead", true),
        ("gone", false),
    ] {
        let done = Ended::Done(bytes::Bytes::from_static(b"forged"));
        next.pipelines.results().keep("evil", id, done);
        let all = next.pipelines.with_result(&EVERY_PIPELINE, id).await;
        let names: Vec<_> = all.iter().map(|name| &**name).collect();
        let expected: &[&str] = if is_known { &["evil", "p"] } else { &["evil"] };
        assert_eq!(names, expected, "{id}");
    }
    let waited = next.pipelines.results();
    let waited = waited.wait(&EVERY_PIPELINE, "waits", Duration::ZERO).await;
    assert!(matches!(waited, Waited::Ambiguous(_)), "{waited:?}");
}

/// Jobs go whose end nobody is told.
async fn forget(pipeline: &Pipeline, id: &str) -> Vec<Job> {
    let withdrawn = pipeline.driver.withdraw(Some(id), None).await.unwrap();
    withdrawn.remove().await.unwrap().jobs
}

#[tokio::test]
async fn a_batch_that_comes_while_a_job_is_cancelled_has_its_end() {
    let scene = Scene::new().await;
    let pipelines = &scene.pipelines;
    let other = vec![("p".to_owned(), job("other", true))];
    pipelines.admission().push(other).await.unwrap();
    let pipeline = pipelines.registry().get("p").unwrap();
    let removed = forget(&pipeline, "other").await;
    let other = &removed[0];
    let extras = JobOptions::of(&other.headers);
    pipelines
        .tell_batches("p", &other.id, &extras, true)
        .await
        .unwrap();
    scene.push_follower("last", "other").await;
    let (until, why) = (Instant::now(), Dropped::Cancelled);
    let dropped = pipelines.dropped(until, &pipeline, other, &extras, why);
    dropped.await;
    assert_eq!(scene.ids().await, ["last"]);
}

#[tokio::test]
async fn a_batch_has_the_end_of_a_job_that_ended_in_the_process_before() {
    let scene = Scene::new().await;
    let lent = HashMap::from([(scoped("p", "k"), "other".to_owned())]);
    scene.pipelines.lend_keys(lent).await;
    scene.push_follower("last", "other").await;
    assert!(scene.ids().await.is_empty());
    scene.pipelines.lend_keys(HashMap::new()).await;
    assert_eq!(scene.ids().await, ["last"]);
}

#[tokio::test]
async fn a_key_of_a_job_that_the_process_before_runs_counts_as_soon_as_its_pipeline_is_open() {
    let directory = Directory::new();
    let [old, new] = [(); 2].map(|()| LazyStore::new(directory.join("state"), LIMIT));
    let before = Scene::over(old, "embedded").await;
    let push = async |scene: &Scene, id: &str| {
        let jobs = vec![("p".to_owned(), job(id, true))];
        scene.pipelines.admission().push(jobs).await.unwrap()
    };
    push(&before, "other").await;
    let pipeline = before.pipelines.registry().get("p").unwrap();
    pipeline.driver.resume();
    let taken = timeout(Duration::from_secs(20), async {
        loop {
            match pipeline.driver.take(Instant::now()) {
                Some(taken) => break taken,
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    });
    assert_eq!(taken.await.unwrap().job.id, "other");
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(new.take_over(theirs).unwrap());
    assert!(before.store.hand_over(ours).await);
    let after = Scene::over(new, "embedded").await;
    let duplicates = push(&after, "another").await;
    assert_eq!(duplicates.get("another").map(String::as_str), Some("other"));
}

/// Asks once: with a paused clock, whoever waits has soon waited for too long.
async fn is_pending(work: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *work).poll(context).is_pending()))
        .await
}

/// A store that is slow keeps in the end what was answered late.
#[tokio::test(start_paused = true)]
async fn a_key_is_given_back_only_if_no_job_has_it() {
    let scene = Scene::with("embedded").await;
    let (admission, keys) = (scene.pipelines.admission(), &scene.pipelines.0.keys);
    let push = |id: &str| Box::pin(admission.push(vec![("p".to_owned(), job(id, true))]));
    let store = scene.store.get().await.unwrap();
    let (go, waits) = std::sync::mpsc::channel::<()>();
    let slow = move |_: &mut Transaction<'_>| {
        waits.recv().expect("it goes on");
        Ok(())
    };
    let mut slow = Box::pin(store.carry_out(0, slow, |outcome| outcome));
    assert!(is_pending(&mut slow).await);
    let said = push("late").await.unwrap_err();
    assert!(matches!(said, PipelineError::Late(_)), "{said}");
    go.send(()).unwrap();
    slow.await.unwrap().unwrap();
    assert_eq!(push("second").await.unwrap()["second"], "late");
    assert_eq!(scene.ids().await, ["late"]);

    keys.ended(&scoped("p", "k"), "late");
    scene.store.close().await;
    push("refused").await.unwrap_err();
    assert_eq!(keys.holder(&scoped("p", "k")), None);
}

#[tokio::test(start_paused = true)]
async fn a_job_is_no_duplicate_of_one_that_is_not_kept_in_the_end() {
    let scene = Scene::new().await;
    let (admission, keys) = (scene.pipelines.admission(), &scene.pipelines.0.keys);
    let key = scoped("p", "k");
    let unique = Unique {
        key: key.clone(),
        period: None,
        while_queued: false,
        expires_at: None,
    };
    let push = |id: &str| Box::pin(admission.push(vec![("p".to_owned(), job(id, true))]));
    keys.take(&unique, "refused", 0).unwrap();
    let mut waits = push("kept");
    assert!(is_pending(&mut waits).await);
    keys.give_back(&key, "refused");
    assert_eq!(waits.await.unwrap(), Duplicates::new());
    assert_eq!(scene.ids().await, ["kept"]);

    forget(&scene.pipelines.registry().get("p").unwrap(), "kept").await;
    keys.give_back(&key, "kept");
    keys.take(&unique, "there", 0).unwrap();
    let mut waits = push("another");
    assert!(is_pending(&mut waits).await);
    keys.answered(&key, "there");
    assert_eq!(waits.await.unwrap()["another"], "there");

    // Two of a push do not wait for each other, and nobody waits for ever.
    keys.give_back(&key, "there");
    let both = ["one", "two"].map(|id| ("p".to_owned(), job(id, true)));
    assert_eq!(admission.push(both.into()).await.unwrap()["two"], "one");
    keys.give_back(&key, "one");
    keys.take(&unique, "late", 0).unwrap();
    push("another").await.unwrap_err();
}

/// It is written after the job has ended, by a process that does not know of that.
#[tokio::test]
async fn a_batch_of_the_process_before_has_the_end_of_a_job_that_is_gone() {
    for is_gone in [true, false] {
        let scene = Scene::new().await;
        let batches = &scene.pipelines.0.batches;
        scene.push_batch("last", job("part", false)).await;
        let pipeline = scene.pipelines.registry().get("p").unwrap();
        forget(&pipeline, "part").await;
        let (batch, part) = ("last".to_owned(), "part".to_owned());
        let part = Part {
            batch,
            push: 0,
            job: part,
        };
        batches.follow(&part, "other", "p").await.unwrap();
        batches.forget_followers("other", &[part]);
        if !is_gone {
            pipeline
                .driver
                .push(vec![job("other", true)])
                .await
                .unwrap();
        }
        scene.pipelines.look_at_batches().await.unwrap();
        let expected = if is_gone { "last" } else { "other" };
        assert_eq!(scene.ids().await, [expected]);
    }
}

#[tokio::test]
async fn it_is_tried_for_seconds_to_forget_a_batch() {
    let scene = Scene::new().await;
    scene.push_batch("last", job("part", false)).await;
    scene.store.close().await;
    tokio::time::pause();
    let since = Instant::now();
    scene.pipelines.forget_batch("last").await;
    assert!(since.elapsed() >= Duration::from_secs(5));
}

#[tokio::test]
async fn a_batch_that_somebody_is_at_is_not_adopted() {
    let scene = Scene::new().await;
    let batches = &scene.pipelines.0.batches;
    scene.push_batch("last", job("part", false)).await;
    let (batch, part) = ("last".to_owned(), "part".to_owned());
    let part = Part {
        batch,
        push: 0,
        job: part,
    };
    assert!(batches.ended(&part, false).await.unwrap().is_some());
    batches.adopt("last");
    assert!(!batches.has_waiting());
    batches.forget("last").await.unwrap();
    batches.adopt("last");
    assert!(batches.has_waiting());
}

/// The next process would push it once more.
#[tokio::test]
async fn a_stop_waits_until_a_batch_is_forgotten_whose_last_job_is_pushed() {
    let scene = Scene::with("embedded").await;
    let batches = &scene.pipelines.0.batches;
    scene.push_batch("last", job("part", false)).await;
    let (batch, part) = ("last".to_owned(), "part".to_owned());
    let part = Part {
        batch,
        push: 0,
        job: part,
    };
    assert!(batches.ended(&part, false).await.unwrap().is_some());
    batches.put_off("last", Instant::now());
    let end = CancellationToken::new();
    let tending = scene.pipelines.clone().tend_batches(end.clone());
    tokio::pin!(tending);
    while !scene.ids().await.contains(&"last".to_owned()) {
        // Step by step, as far as it comes each time.
        _ = timeout(Duration::ZERO, &mut tending).await;
    }
    end.cancel();
    tending.await;
    let (left, _) = scene.pipelines.list_batches(1).await.unwrap();
    assert_eq!(left, []);
}

/// The server may end between the two: nobody was told that the batch is kept.
#[tokio::test]
async fn a_batch_that_a_process_before_has_not_pushed_is_forgotten() {
    let scene = Scene::new().await;
    let last = Last {
        pipeline: "p".to_owned(),
        job: job("cut off", false),
    };
    let pipelines = &scene.pipelines;
    let before = Batches::new(scene.store.clone());
    for id in ["cut off", "whole"] {
        let parts = vec![("part".to_owned(), None)];
        let kept = before.keep(id, &last, parts, (1, 1), Duration::ZERO);
        kept.await.unwrap();
    }
    before.is_pushed("whole").await.unwrap();
    scene.push_batch("own", job("of own", false)).await;
    let ids = async || {
        let (batches, _) = pipelines.list_batches(10).await.unwrap();
        batches.into_iter().map(|it| it.id).collect::<Vec<_>>()
    };
    pipelines.look_at_batches().await.unwrap();
    assert_eq!(
        ids().await,
        ["cut off", "own", "whole"],
        "it may be under way"
    );
    let next = Scene::over(scene.store.clone(), "memory").await;
    next.pipelines.look_at_batches().await.unwrap();
    assert_eq!(ids().await, ["whole"], "the job of its own was in memory");
}

/// Whoever has not heard that a batch is kept may push it again, and changes nothing of it. Another
/// one of its ID is refused.
#[tokio::test]
async fn a_batch_that_is_there_stays_as_it_is() {
    let scene = Scene::new().await;
    scene.push_batch("last", job("part", false)).await;
    let again = scene.push_batch("last", job("part", false)).await;
    assert_eq!(
        (again.len(), scene.ids().await),
        (0, vec!["part".to_owned()])
    );
    // Also where a time is counted from the push.
    for _ in 0..2 {
        let mut late = job("late", false);
        let seconds = vec!["60".to_owned()];
        late.headers.insert("pronghorn-expires".to_owned(), seconds);
        let last = Last {
            pipeline: "p".to_owned(),
            job: late,
        };
        let jobs = vec![("p".to_owned(), job("of late", false))];
        tokio::time::sleep(Duration::from_millis(2)).await;
        scene.pipelines.push_batch(jobs, last).await.unwrap();
    }
    scene.pipelines.cancel(None, "late", "").await.unwrap();
    let pipeline = scene.pipelines.registry().get("p").unwrap();
    forget(&pipeline, "of late").await;
    let last = |name: &str| Last {
        pipeline: "p".to_owned(),
        job: Job {
            name: name.to_owned(),
            ..job("last", false)
        },
    };
    let part = |id: &str| ("p".to_owned(), job(id, false));
    let pipelines = &scene.pipelines;
    let other = pipelines
        .push_batch(vec![part("other")], last("another"))
        .await;
    let why = other.expect_err("there is one").to_string();
    assert!(
        why.contains("another batch `last` is there already"),
        "{why}"
    );
    let twice = pipelines
        .push_batch(vec![part("a"), part("a")], last("twice"))
        .await;
    let why = twice.expect_err("one of them would not count").to_string();
    assert!(
        why.contains("two jobs of the batch have the ID `a`"),
        "{why}"
    );
    let (batches, _) = pipelines.list_batches(10).await.unwrap();
    let [batch] = &batches[..] else {
        panic!("{batches:?}")
    };
    assert_eq!((&*batch.id, batch.jobs, batch.ended), ("last", 1, 0));
    assert_eq!(scene.ids().await, ["part"]);
}

/// The jobs of a batch that was cancelled run on, and are none of the batch that has its ID since.
#[tokio::test]
async fn a_job_of_a_cancelled_batch_does_not_end_the_next_one_of_its_id() {
    let scene = Scene::new().await;
    let pipelines = &scene.pipelines;
    let take = async || {
        let pipeline = pipelines.registry().get("p").unwrap();
        let removed = forget(&pipeline, "part").await;
        removed.into_iter().next().unwrap()
    };
    let end = async |part: &Job| {
        let extras = JobOptions::of(&part.headers);
        let told = pipelines.tell_batches("p", &part.id, &extras, false);
        told.await.unwrap();
    };
    scene.push_batch("last", job("part", false)).await;
    let before = take().await;
    pipelines.cancel(None, "last", "").await.unwrap();
    scene.push_batch("last", job("part", false)).await;
    let since = take().await;
    end(&before).await;
    assert_eq!(scene.ids().await, [""; 0]);
    end(&since).await;
    assert_eq!(scene.ids().await, ["last"]);
}

/// A job of another pipeline has its own end, whatever its ID.
#[tokio::test]
async fn a_batch_follows_a_job_of_its_own_pipeline() {
    let scene = Scene::new().await;
    let other = vec![("p".to_owned(), job("other", true))];
    scene.pipelines.admission().push(other).await.unwrap();
    scene.push_follower("last", "other").await;
    scene
        .pipelines
        .tell_followers("q", "other", false)
        .await
        .unwrap();
    assert_eq!(scene.ids().await, ["other"]);
    scene
        .pipelines
        .tell_followers("p", "other", false)
        .await
        .unwrap();
    assert_eq!(scene.ids().await, ["other", "last"]);
}
