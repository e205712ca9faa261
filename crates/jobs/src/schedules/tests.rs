//! Schedules with a clock of the calendar, so with short times and no pause.

use chrono_tz::Tz;
use pronghorn_base::now_ms;
use pronghorn_metrics::Registry;
use pronghorn_queue::Settlement;
use pronghorn_testkit::{Directory, Engine, Records};
use tokio::time::{Instant, timeout};

use super::*;
use crate::clock::{Moments, When};
use crate::metrics::Metrics;
use crate::pipelines::Work;
use crate::results::Ended;
use crate::rules::Rules;
use crate::settings::tests::brokers;
use crate::settings::{DriverSettings, PipelineSettings};

struct Scene {
    pipelines: Pipelines,
    schedules: Schedules,
    store: LazyStore,
    directory: Directory,
    tasks: JoinSet<()>,
    end: CancellationToken,
}

fn settings(every: Duration, overlap: Overlap, catch_up: CatchUp) -> ScheduleSettings {
    ScheduleSettings {
        moments: Moments::new(When::Every(every), Tz::UTC),
        what: What::Job {
            name: "tick".to_owned(),
            pipeline: "p".to_owned(),
            payload: "x".to_owned(),
        },
        overlap,
        catch_up,
        jitter: Duration::ZERO,
    }
}

impl Scene {
    async fn new(directory: Directory, of: ScheduleSettings) -> Self {
        let memory = DriverSettings::Memory { max_size: 1 << 20 };
        Self::with(directory, of, memory).await
    }

    async fn with(directory: Directory, of: ScheduleSettings, driver: DriverSettings) -> Self {
        Self::open(directory, of, driver, false).await
    }

    /// As a process that follows another one at an upgrade.
    async fn following(directory: Directory, of: ScheduleSettings) -> Self {
        Self::open(directory, of, IN_STORE, true).await
    }

    async fn open(
        directory: Directory,
        of: ScheduleSettings,
        driver: DriverSettings,
        follows: bool,
    ) -> Self {
        let store = LazyStore::new(directory.to_path_buf(), 1 << 20);
        Self::over(directory, store, of, driver, follows).await
    }

    async fn over(
        directory: Directory,
        store: LazyStore,
        of: ScheduleSettings,
        driver: DriverSettings,
        follows: bool,
    ) -> Self {
        let metrics = Metrics::new(&Registry::default());
        let patience = Duration::from_secs(10);
        let pools = ["default"].into_iter();
        let pipelines = Pipelines::new(store.clone(), patience, metrics, pools, brokers());
        let settings = PipelineSettings {
            driver,
            priority: 10,
            pool: "default".to_owned(),
            rules: Rules::default(),
        };
        pipelines.declare("p", &settings).await.unwrap();
        pipelines.dispatch().resume("p").unwrap();
        let schedules = [("s".to_owned(), of)];
        let schedules = Schedules::new(schedules, pipelines.clone(), store.clone(), surroundings());
        let mut tasks = JoinSet::new();
        let end = CancellationToken::new();
        tasks.spawn(schedules.clone().work(follows, end.clone()));
        Self {
            pipelines,
            schedules,
            store,
            directory,
            tasks,
            end,
        }
    }

    async fn next(&self) -> Work {
        let next = timeout(
            Duration::from_secs(20),
            self.pipelines.dispatch().next("default", 1),
        );
        next.await.expect("a job comes")
    }

    async fn nothing_comes(&self) {
        let next = self.pipelines.dispatch().next("default", 1);
        assert!(timeout(Duration::from_millis(300), next).await.is_err());
    }

    /// As a consumer does: who waits is told, and the key is free.
    fn end(&self, work: &Work) {
        let job = &work.delivery.job;
        let ended = Ended::Done(bytes::Bytes::new());
        let extras = options::JobOptions::of(&job.headers);
        self.pipelines.ended(&work.pipeline, job, &extras, ended);
    }

    async fn runs(&self, count: usize) -> Vec<Run> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let runs = self.schedules.views().remove(0).runs;
            let ended = runs.iter().filter(|run| run.outcome.is_some()).count();
            if ended >= count {
                return runs;
            }
            assert!(Instant::now() < until, "{runs:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The record in the store.
    async fn kept(&self) -> Record {
        let read = |transaction: &mut Transaction<'_>| transaction.get(TREE, b"s");
        let store = self.store.get().await.unwrap();
        let kept = store.carry_out(0, read, |outcome| outcome).await;
        Record::decode(&kept.unwrap().unwrap().unwrap())
    }

    async fn close(mut self) -> Directory {
        self.end.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.store.close().await;
        self.directory
    }
}

fn surroundings() -> Surroundings {
    Surroundings {
        spawner: pronghorn_process::Spawner::start().unwrap(),
        folder: std::env::temp_dir(),
        variables: vec![("WORD".into(), "said".into())],
        user: None,
    }
}

/// One whose run is at once, and by hand.
fn command(script: &str, limit: Duration) -> ScheduleSettings {
    let argv = ["/bin/sh", "-c", script].map(ToOwned::to_owned);
    ScheduleSettings {
        what: What::Command {
            command: pronghorn_config::Command::new(argv).unwrap(),
            limit,
        },
        ..settings(NEVER, Overlap::Skip, CatchUp::None)
    }
}

#[tokio::test]
async fn a_clock_that_is_set_neither_floods_nor_silences_a_schedule() {
    const HOUR: u64 = 3_600_000;
    let scene = Scene::new(Directory::new(), hourly()).await;
    let due = |now| scene.schedules.due(now);
    let start = now_ms() / HOUR * HOUR + 24 * HOUR;
    let next = || {
        lock(&scene.schedules.0.state)
            .get("s")
            .and_then(|it| it.next)
    };
    while next().is_none() {
        sleep(Duration::from_millis(5)).await;
    }
    due(start - 1);
    assert_eq!(due(start + 1).len(), 1);
    // A day ahead: one run, and then the hours as they come.
    let later = start + 24 * HOUR;
    assert_eq!(due(later + 1).len(), 1);
    assert!(due(later + HOUR - 1).is_empty());
    // A few seconds back: no run comes twice.
    assert_eq!(due(later + HOUR).len(), 1);
    assert!(due(later + HOUR - 5000).is_empty());
    assert!(due(later + HOUR).is_empty());
    // A year back: it does not wait for that year.
    let earlier = start - 365 * 24 * HOUR;
    assert!(due(earlier + 1).is_empty());
    assert_eq!(due(earlier + HOUR), [("s".to_owned(), earlier + HOUR)]);
}

#[tokio::test]
async fn a_clock_that_is_set_back_is_told_once_if_it_holds_runs_up() {
    let scene = Scene::new(Directory::new(), hourly()).await;
    let records = Records::new();
    let told = |now| {
        let before = records.text().len();
        scene.schedules.due(now);
        records.text().split_off(before)
    };
    let now = now_ms();
    assert_eq!(told(now), "");
    assert_eq!(told(now - 5000), "", "it is soon where it was");
    let late = now - 11_000;
    assert_eq!(
        told(late),
        " WARN jobs: the clock was set back: schedules begin no runs until it is where it was seconds=6\n"
    );
    assert_eq!(told(late), "");
    assert_eq!(
        told(late - 601_000),
        " WARN jobs: the clock was set back: schedules begin anew seconds=601\n"
    );
}

fn hourly() -> ScheduleSettings {
    settings(Duration::from_hours(1), Overlap::Allow, CatchUp::None)
}

#[tokio::test]
async fn a_command_is_run_and_its_end_and_its_last_lines_are_kept() {
    let noisy = "for i in $(seq 30); do echo line $i; done; echo $WORD >&2; pwd; exit 3";
    let scene = Scene::new(Directory::new(), command(noisy, NEVER)).await;
    scene.schedules.run_now("s").await.unwrap();
    let run = scene.runs(1).await.remove(0);
    let failed = Outcome::Failed("it ended with exit code 3".to_owned());
    assert_eq!(run.outcome, Some(failed));
    assert_eq!(run.lines.len(), 10, "{:?}", run.lines);
    assert!(
        run.lines.iter().any(|line| line == "said"),
        "{:?}",
        run.lines
    );
    let directory = scene.close().await;
    let scene = Scene::new(directory, command("echo fine", NEVER)).await;
    assert_eq!(scene.runs(1).await[0].lines, run.lines, "kept");
    scene.schedules.run_now("s").await.unwrap();
    let runs = scene.runs(2).await;
    assert_eq!(runs[1].outcome, Some(Outcome::Done));
    assert_eq!(runs[1].lines, ["fine"]);
}

#[tokio::test]
async fn a_command_that_hangs_is_killed_and_one_that_is_not_there_is_said() {
    let scene = Scene::new(Directory::new(), command("echo begun; sleep 1000", SECOND)).await;
    scene.schedules.run_now("s").await.unwrap();
    let run = scene.runs(1).await.remove(0);
    let late = "it ran for longer than 1s, and was killed".to_owned();
    assert_eq!(run.outcome, Some(Outcome::Failed(late)));
    assert_eq!(run.lines, ["begun"]);
    let mut none = command("", SECOND);
    let argv = ["/nonexistent/program".to_owned()];
    none.what = What::Command {
        command: pronghorn_config::Command::new(argv).unwrap(),
        limit: SECOND,
    };
    let scene = Scene::new(Directory::new(), none).await;
    scene.schedules.run_now("s").await.unwrap();
    let Some(Outcome::Failed(why)) = scene.runs(1).await.remove(0).outcome else {
        panic!("it is not there");
    };
    assert!(why.starts_with("it can't be started: "), "{why}");
}

/// It leaves a process in a session of its own, and prints its number.
const LEAVES: &str = "pid=$(mktemp); \
    setsid sh -c \"echo \\$\\$ >$pid; exec sleep 1000 >/dev/null 2>&1\" & \
    until [ -s $pid ]; do sleep 0.01; done; cat $pid; rm $pid";

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let hangs = format!("{LEAVES}; sleep 1000");
    for (script, limit) in [(LEAVES, NEVER), (&hangs, SECOND)] {
        let scene = Scene::new(Directory::new(), command(script, limit)).await;
        scene.schedules.run_now("s").await.unwrap();
        let run = scene.runs(1).await.remove(0);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", run.lines[0]));
        assert!(stat.is_err() || stat.unwrap().contains(") Z "), "{run:?}");
    }
}

const SECOND: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_hours(8000);

#[tokio::test]
async fn a_job_is_pushed_at_each_moment_and_its_end_is_noted() {
    let scene = Scene::new(
        Directory::new(),
        settings(SECOND, Overlap::Skip, CatchUp::One),
    )
    .await;
    let first = scene.next().await;
    let job = &first.delivery.job;
    assert_eq!((&*job.name, &job.payload[..]), ("tick", &b"x"[..]));
    scene.end(&first);
    let runs = scene.runs(1).await;
    assert_eq!(runs[0].outcome, Some(Outcome::Done));
    assert_eq!(runs[0].due % 1000, 0);
    assert!(runs[0].began - runs[0].due < 5000);
    assert_ne!(scene.next().await.delivery.job.id, job.id);
}

/// Two servers with the same schedule, and a pipeline in the same Redis.
#[tokio::test]
async fn of_servers_that_share_redis_one_has_each_run() {
    let engine = Engine::redis(&[]);
    let redis = || {
        let address = format!("redis://127.0.0.1:{}", engine.port());
        let map = [("name", "p"), ("driver", "redis"), ("addr", &address)];
        let map = map.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let map = map.into();
        let (_, settings) = PipelineSettings::declared(&map, &brokers()).unwrap();
        settings.driver
    };
    let of = settings(SECOND, Overlap::Skip, CatchUp::One);
    let first = Scene::with(Directory::new(), of.clone(), redis()).await;
    let second = Scene::with(Directory::new(), of, redis()).await;
    let mut ids = Vec::new();
    while ids.len() < 4 {
        let work = tokio::select! {
            work = first.next() => work,
            work = second.next() => work,
        };
        ids.push(work.delivery.job.id.clone());
        let settled = work
            .pipeline
            .driver
            .settle(work.delivery.ticket, Settlement::Ack);
        settled.await.unwrap();
    }
    assert!(ids.is_sorted_by_key(|id| due(id)), "{ids:?}");
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
}

#[tokio::test]
async fn overlapping_runs_are_skipped_or_wait() {
    for overlap in [Overlap::Skip, Overlap::Queue] {
        let scene = Scene::new(Directory::new(), settings(NEVER, overlap, CatchUp::None)).await;
        scene.schedules.run_now("s").await.unwrap();
        let first = scene.next().await;
        scene.schedules.run_now("s").await.unwrap();
        scene.nothing_comes().await;
        scene.end(&first);
        scene.runs(1).await;
        match overlap {
            Overlap::Queue => scene.end(&scene.next().await),
            _ => scene.nothing_comes().await,
        }
    }
}

#[tokio::test]
async fn a_pause_outlives_the_server_and_a_run_by_hand_does_not_mind() {
    let of = settings(SECOND, Overlap::Allow, CatchUp::All);
    let scene = Scene::new(Directory::new(), of.clone()).await;
    scene.end(&scene.next().await);
    scene.runs(1).await;
    scene.schedules.pause("s", true).await.unwrap();
    let directory = scene.close().await;
    sleep(2 * SECOND).await;
    let scene = Scene::new(directory, of).await;
    scene.runs(1).await;
    assert!(scene.schedules.views()[0].paused);
    scene.nothing_comes().await;
    scene.schedules.run_now("s").await.unwrap();
    scene.next().await;
    let unknown = scene.schedules.run_now("t").await.unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "there is no schedule `t`; there are: `s`"
    );
}

#[tokio::test]
async fn a_pause_that_the_store_refuses_is_an_error_and_changes_nothing() {
    let of = settings(NEVER, Overlap::Allow, CatchUp::None);
    let scene = Scene::new(Directory::new(), of.clone()).await;
    scene.schedules.pause("s", true).await.unwrap();
    scene.store.close().await;
    let refused = scene.schedules.pause("s", false).await;
    assert!(
        matches!(refused, Err(ScheduleError::Store(_))),
        "{refused:?}"
    );
    assert!(scene.schedules.views()[0].paused, "as in the store");
    let scene = Scene::new(scene.close().await, of).await;
    scene.runs(0).await;
    scene.schedules.loaded().await.unwrap();
    assert!(scene.schedules.views()[0].paused);
}

/// Ends of runs are noted at the same time.
#[tokio::test]
async fn a_pause_is_not_undone_by_what_is_noted_meanwhile() {
    let of = settings(NEVER, Overlap::Allow, CatchUp::None);
    let scene = Scene::new(Directory::new(), of.clone()).await;
    scene.schedules.loaded().await.unwrap();
    for (at, due) in (0..50).enumerate() {
        let paused = at % 2 == 0;
        let id = due.to_string();
        let (paused_now, (), ()) = tokio::join!(
            scene.schedules.pause("s", paused),
            scene.schedules.note("s", |record| record.begin(due, &id)),
            scene.schedules.note("s", |record| record.has_seen(due)),
        );
        paused_now.unwrap();
        let kept = scene.kept().await;
        assert_eq!((kept.paused, kept.runs.len()), (paused, 20.min(at + 1)));
        assert_eq!(scene.schedules.views()[0].paused, paused);
    }
}

#[tokio::test]
async fn a_run_by_hand_is_refused_where_schedules_cannot_be_read() {
    let of = settings(NEVER, Overlap::Allow, CatchUp::None);
    let directory = Directory::new();
    std::fs::write(directory.join("file"), "").unwrap();
    let store = LazyStore::new(directory.join("file"), 1 << 20);
    let pipelines = Scene::new(Directory::new(), of.clone()).await.pipelines;
    let schedules = Schedules::new([("s".to_owned(), of)], pipelines, store, surroundings());
    schedules.run_now("s").await.unwrap_err();
}

/// As of an operator who is quicker than the process that has just taken over.
#[tokio::test]
async fn a_pause_right_at_the_start_stays_and_what_ran_before_is_known() {
    let of = settings(SECOND, Overlap::Allow, CatchUp::None);
    let scene = Scene::new(Directory::new(), of.clone()).await;
    scene.end(&scene.next().await);
    scene.runs(1).await;
    let directory = scene.close().await;
    let scene = Scene::new(directory, of).await;
    scene.schedules.pause("s", true).await.unwrap();
    scene.runs(1).await;
    sleep(SECOND).await;
    assert!(scene.schedules.views()[0].paused);
    scene.nothing_comes().await;
}

/// A store with the record of the schedule.
async fn kept(record: &Record) -> Directory {
    let directory = Directory::new();
    let store = LazyStore::new(directory.to_path_buf(), 1 << 20);
    let value = record.encode();
    let open = store.get().await.unwrap();
    let write = move |transaction: &mut Transaction<'_>| transaction.put(TREE, b"s", &value);
    open.carry_out(0, write, |outcome| outcome)
        .await
        .unwrap()
        .unwrap();
    store.close().await;
    directory
}

#[tokio::test]
async fn a_process_whose_clock_was_set_back_does_not_repeat_what_the_one_before_began() {
    const MINUTE: u64 = 60_000;
    let now = now_ms() / MINUTE * MINUTE;
    for (ahead, next) in [(0, 1), (5, 6), (60, 1)] {
        let record = Record {
            last_due: Some(now + ahead * MINUTE),
            pattern: "every 1m".to_owned(),
            ..Record::default()
        };
        let of = settings(Duration::from_mins(1), Overlap::Allow, CatchUp::One);
        let scene = Scene::new(kept(&record).await, of).await;
        let found = loop {
            let next = lock(&scene.schedules.0.state)
                .get("s")
                .and_then(|it| it.next);
            if let Some(next) = next {
                break next;
            }
            sleep(Duration::from_millis(5)).await;
        };
        // The minute may end meanwhile.
        let late = found - (now + next * MINUTE);
        assert!(late == 0 || late == MINUTE && ahead != 5, "{ahead}: {late}");
        scene.close().await;
    }
}

#[tokio::test]
async fn what_was_missed_is_made_up_for_as_the_settings_say() {
    let (same, other) = ("every 1h", "every 2h");
    for (pattern, catch_up, made_up) in [
        (same, CatchUp::None, 0),
        (same, CatchUp::One, 1),
        (same, CatchUp::All, 3),
        ("", CatchUp::All, 3),
        // It was never due as it is now.
        (other, CatchUp::All, 0),
    ] {
        let of = settings(Duration::from_hours(1), Overlap::Allow, catch_up);
        let hour = 3_600_000;
        let last = now_ms() / hour * hour - 3 * hour;
        let record = Record {
            last_due: Some(last),
            pattern: pattern.to_owned(),
            ..Record::default()
        };
        let scene = Scene::new(kept(&record).await, of).await;
        for number in 0..made_up {
            let work = scene.next().await;
            let due = last + (4 - made_up + number) * hour;
            assert_eq!(work.delivery.job.id, format!("s-{due}"));
            scene.end(&work);
        }
        scene.nothing_comes().await;
    }
}

const IN_STORE: DriverSettings = DriverSettings::Embedded { is_boltdb: false };

/// The server ends at once when the job is there.
#[tokio::test]
async fn a_run_that_begins_as_the_server_ends_is_not_begun_again() {
    for _ in 0..20 {
        let of = settings(Duration::from_millis(100), Overlap::Allow, CatchUp::All);
        let scene = Scene::with(Directory::new(), of.clone(), IN_STORE).await;
        let last = scene.next().await.delivery.job.id.clone();
        let scene = Scene::following(scene.close().await, of).await;
        // It comes again, since nobody has settled it.
        let mut again = 0;
        loop {
            let id = scene.next().await.delivery.job.id.clone();
            again += usize::from(id == last);
            if due(&id) > due(&last) {
                break;
            }
        }
        assert_eq!(again, 1, "{last}");
    }
}

fn due(id: &str) -> u64 {
    id.trim_start_matches("s-").parse().unwrap()
}

#[tokio::test]
async fn a_run_that_is_due_between_two_processes_of_an_upgrade_is_not_missed() {
    const PERIOD: u64 = 50_000;
    let of = settings(Duration::from_secs(50), Overlap::Allow, CatchUp::None);
    // Until the next moment there is time for the test.
    while now_ms() % PERIOD > PERIOD - 5_000 {
        sleep(SECOND).await;
    }
    let due = now_ms() / PERIOD * PERIOD;
    for (last_due, follows, begins) in [
        (due - PERIOD, true, true),
        (due - 1, true, true),
        (due, true, false),
        (due - 1, false, false),
    ] {
        let record = Record {
            last_due: Some(last_due),
            pattern: "every 50s".to_owned(),
            ..Record::default()
        };
        let directory = kept(&record).await;
        let scene = if follows {
            Scene::following(directory, of.clone()).await
        } else {
            Scene::new(directory, of.clone()).await
        };
        if begins {
            assert_eq!(scene.next().await.delivery.job.id, format!("s-{due}"));
        }
        scene.nothing_comes().await;
    }
}

/// One that skips it has looked at it: the next process does not begin it.
#[tokio::test]
async fn a_run_that_was_left_out_is_not_begun_by_the_next_process() {
    let of = settings(Duration::from_millis(300), Overlap::Skip, CatchUp::All);
    let scene = Scene::new(Directory::new(), of.clone()).await;
    let first = scene.next().await;
    sleep(SECOND).await;
    scene.end(&first);
    let left = now_ms();
    let directory = scene.close().await;
    let scene = Scene::following(directory, of).await;
    let next = scene.next().await.delivery.job.id.clone();
    assert!(due(&next) > left - 300, "{next} {left}");
}

/// Its job goes on in the process before, of which the next one reads how it has ended.
#[tokio::test]
async fn a_run_of_the_process_before_has_its_end_and_none_begins_beside_it() {
    for driver in [IN_STORE, DriverSettings::Memory { max_size: 1 << 20 }] {
        let of = settings(Duration::from_millis(50), Overlap::Skip, CatchUp::None);
        let mut before = Scene::with(Directory::new(), of.clone(), driver.clone()).await;
        let work = before.next().await;
        before.end.cancel();
        while before.tasks.join_next().await.is_some() {}
        let store = LazyStore::new(before.directory.to_path_buf(), 1 << 20);
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(store.take_over(theirs).unwrap());
        assert!(before.store.hand_over(ours).await);
        let see_off = before.schedules.clone().see_off(before.end.clone());
        let mut seen_off = JoinSet::new();
        seen_off.spawn(see_off);
        let next = Scene::over(Directory::new(), store, of, driver, true).await;
        let (pipelines, store) = (next.pipelines.clone(), next.store.get().await.unwrap());
        tasks.spawn(async move { pipelines.follow_lent_keys(&store).await });
        next.nothing_comes().await;
        let ticket = work.delivery.ticket;
        let settled = work.pipeline.driver.settle(ticket, Settlement::Ack);
        settled.await.unwrap();
        before.end(&work);
        seen_off.join_next().await.unwrap().unwrap();
        let second = next.next().await;
        assert_ne!(second.delivery.job.id, work.delivery.job.id);
        let [schedule] = &next.schedules.views()[..] else {
            panic!("there is one");
        };
        let runs = schedule.runs.iter();
        let of_first = runs.filter(|run| run.id == work.delivery.job.id);
        let outcomes: Vec<_> = of_first.map(|run| run.outcome.clone()).collect();
        assert_eq!(outcomes, [Some(Outcome::Done)]);
    }
}
