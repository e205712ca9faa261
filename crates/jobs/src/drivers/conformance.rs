//! What every driver does. Each one runs all of it by [`conforms`], and says in [`Ability`] what
//! its engine does in another way.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_store::{LazyStore, Store};
use pronghorn_testkit::Engine;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::drivers::broker::Later;
use crate::drivers::*;
use crate::extras::{self, visible};
use crate::{Headers, Job};

/// For what has to happen; a machine under load may be slow.
const PATIENCE: Duration = Duration::from_secs(120);
/// For what must not happen.
const NEVER: Duration = Duration::from_millis(300);
/// As if so many workers were free.
const FREE: usize = 8;

/// What engines do in different ways.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ability {
    /// All jobs that wait are in the order of their priorities, and not only those it has brought.
    pub(super) sorts: bool,
    /// Several servers can have the pipeline at a time.
    pub(super) is_shared: bool,
    /// How many jobs can be out at a time.
    pub(super) most_reserved: usize,
    /// How many jobs there should be at a time: some engines look at each of them at each call.
    pub(super) most_jobs: usize,
    /// The shortest delay that is not none.
    pub(super) shortest_delay: Duration,
    pub(super) longest_delay: Duration,
    /// How late a delayed job may come.
    pub(super) lateness: Duration,
    /// How many delays of different length there should be at a time.
    pub(super) most_delays: u64,
    /// It can say how many jobs are delayed.
    pub(super) counts_delayed: bool,
    /// It can say how many jobs wait for a worker.
    pub(super) counts_waiting: bool,
    /// It can say how long the first of them has waited.
    pub(super) tells_oldest: bool,
    /// Bytes of the largest payload.
    pub(super) largest: usize,
}

impl Ability {
    /// Of what this server keeps itself.
    pub(super) const OURS: Self = Self {
        sorts: true,
        is_shared: false,
        most_reserved: usize::MAX,
        most_jobs: 3000,
        shortest_delay: Duration::from_secs(1),
        longest_delay: Duration::MAX,
        lateness: Duration::from_secs(2),
        most_delays: 3000,
        counts_delayed: true,
        counts_waiting: true,
        tells_oldest: true,
        largest: 5_000_000,
    };
}

/// A driver under test, resumed, and what it leaves.
pub(super) struct Subject {
    pub(super) driver: Arc<dyn Driver>,
    pub(super) wake: Wake,
    pub(super) ability: Ability,
    /// Makes a driver on what this one has left, as a new process would.
    pub(super) again: Option<Again>,
    /// Where its store is.
    folder: Option<(PathBuf, Store)>,
}

pub(super) type Again = Box<dyn Fn(Wake) -> BoxFuture<'static, Arc<dyn Driver>> + Send + Sync>;

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some((folder, _)) = &self.folder {
            _ = std::fs::remove_dir_all(folder);
        }
    }
}

const PLENTY: u64 = 64 << 20;

fn memory(limit: u64) -> Subject {
    let wake = Wake::default();
    Subject {
        driver: Arc::new(Memory::new(limit, wake.clone())),
        wake,
        ability: Ability::OURS,
        again: None,
        folder: None,
    }
}

fn new_folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("pronghorn-jobs-{}-{number}", std::process::id());
    std::env::temp_dir().join(name)
}

pub(super) fn new_store(limit: u64) -> (PathBuf, Store) {
    let folder = new_folder();
    let store = Store::open(&folder, limit).unwrap();
    (folder, store)
}

async fn embedded(limit: u64) -> Subject {
    embedded_in(new_folder(), limit).await
}

async fn embedded_in(folder: PathBuf, limit: u64) -> Subject {
    let store = Store::open(&folder, limit).unwrap();
    let wake = Wake::default();
    let left = store.clone();
    let open = move |wake| {
        let store = store.clone();
        let driver = async move {
            let driver = Embedded::open("mail", store, wake).await.unwrap();
            Arc::new(driver) as Arc<dyn Driver>
        };
        Box::pin(driver) as BoxFuture<'static, _>
    };
    Subject {
        driver: open(wake.clone()).await,
        wake,
        ability: Ability::OURS,
        again: Some(Box::new(open)),
        folder: Some((folder, left)),
    }
}

/// Of a broker that several servers can share. `open` makes a driver, paused.
pub(super) fn subject<D: Driver>(
    ability: Ability,
    open: impl Fn(Wake) -> D + Send + Sync + 'static,
) -> Subject {
    let wake = Wake::default();
    Subject {
        driver: Arc::new(open(wake.clone())),
        wake,
        ability,
        again: Some(Box::new(move |wake| {
            let driver: Arc<dyn Driver> = Arc::new(open(wake));
            Box::pin(std::future::ready(driver))
        })),
        folder: None,
    }
}

/// As [`subject`], of a broker that does not keep all delays. `open` has a place for those.
pub(super) fn subject_with_later<D: Driver>(
    ability: Ability,
    open: impl Fn(Wake, Later) -> D + Clone + Send + Sync + 'static,
) -> BoxFuture<'static, Subject> {
    Box::pin(async move {
        let (folder, store) = new_store(PLENTY);
        let left = store.clone();
        let open = move |wake| -> BoxFuture<'static, Arc<dyn Driver>> {
            let (store, open) = (store.clone(), open.clone());
            Box::pin(async move {
                let stored = OpenPipelines::default();
                let later = Later::open("p", &stored, store).await.unwrap();
                Arc::new(open(wake, later)) as Arc<dyn Driver>
            })
        };
        let wake = Wake::default();
        Subject {
            driver: open(wake.clone()).await,
            wake,
            ability,
            again: Some(Box::new(open)),
            folder: Some((folder, left)),
        }
    })
}

/// Waits until a driver says so of its broker.
pub(super) async fn unhealthy(driver: &dyn Driver, part: &str) -> String {
    let said = async {
        loop {
            match driver.health() {
                Err(said) if said.contains(part) => return said,
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let said = timeout(PATIENCE, said).await;
    said.unwrap_or_else(|_| panic!("{:?} does not say {part}", driver.health()))
}

/// A broker, or the way to it.
pub(super) trait Restart {
    fn stop(&mut self);

    fn restart(&mut self);
}

impl Restart for Engine {
    fn stop(&mut self) {
        self.stop();
    }

    fn restart(&mut self) {
        self.restart();
    }
}

/// A broker goes away while jobs wait and one is out, and comes back.
pub(super) async fn survives_a_restart(engine: &mut impl Restart, subject: Subject) {
    subject.driver.resume();
    subject.push([job("out"), job("a"), job("b")]).await;
    let out = subject.next().await;
    assert_eq!(out.job.id, "out");
    engine.stop();
    unhealthy(&*subject.driver, " is away: ").await;
    let refused = timeout(NEVER, subject.driver.push(vec![job("never")])).await;
    assert!(!matches!(refused, Ok(Ok(()))), "there is nobody to keep it");
    engine.restart();
    let ack = subject.driver.settle(out.ticket, Settlement::Ack);
    let acked = timeout(PATIENCE, ack).await.expect("it is settled at last");
    subject.push([job("c")]).await;
    let mut left = BTreeSet::from(["a", "b", "c"].map(ToOwned::to_owned));
    if acked.is_err() {
        left.insert("out".to_owned());
    }
    while !left.is_empty() {
        let id = subject.ack_next().await;
        assert!(left.remove(&id), "{id} is not expected");
    }
    subject.nothing_comes().await;
    subject.stat(0, 0, 0).await;
    assert_eq!(subject.driver.health(), Ok(()));
}

#[tokio::test]
async fn a_job_that_is_always_given_back_does_not_keep_a_worker_busy() {
    let memory = Memory::new(1 << 20, Wake::default());
    memory.resume();
    memory.push(vec![job("a")]).await.unwrap();
    for at_once in [true, true, true, false] {
        let delivery = memory.take(Instant::now()).expect("it is there");
        let nack = Settlement::Nack {
            delay: Duration::ZERO,
        };
        memory.settle(delivery.ticket, nack).await.unwrap();
        let stat = memory.stat().await.unwrap();
        let (active, delayed) = if at_once { (1, 0) } else { (0, 1) };
        assert_eq!((stat.active, stat.delayed), (active, delayed));
    }
}

#[tokio::test]
async fn memory_conforms() {
    conforms(|_| Box::pin(async { memory(PLENTY) })).await;
}

#[tokio::test]
async fn embedded_conforms() {
    conforms(|_| Box::pin(embedded(PLENTY))).await;
}

type Test = fn(Subject) -> BoxFuture<'static, ()>;

macro_rules! tests {
    ($($name:ident,)*) => {
        &[$((stringify!($name), |subject| Box::pin($name(subject)))),*]
    };
}

const TESTS: &[(&str, Test)] = tests! {
    jobs_come_out_as_they_went_in,
    equal_priorities_keep_their_order_and_lower_numbers_go_first,
    low_priorities_do_not_starve,
    a_delayed_job_comes_at_its_time_and_not_before,
    a_delayed_job_gets_past_many_others,
    the_age_of_the_first_that_waits_is_told,
    what_is_acknowledged_is_gone,
    a_ticket_is_good_for_one_settlement,
    what_is_released_comes_again_as_it_was,
    a_job_that_fails_is_tried_again_and_its_attempts_are_counted,
    a_nack_that_asks_for_it_brings_the_job_again,
    a_requeued_job_has_the_new_headers,
    a_paused_pipeline_takes_pushes_and_gives_nothing,
    a_large_payload_passes,
    thousands_of_jobs_each_come_once,
    pushes_and_settlements_at_the_same_time_lose_nothing,
    what_is_not_settled_outlives_the_driver,
    what_is_taken_at_the_end_goes_back_at_once,
    what_is_brought_for_a_worker_that_is_not_free_any_more_goes_back,
};

/// Runs all tests, some at a time. `make` makes a driver, resumed, for a pipeline without jobs that
/// has the name of the test.
pub(super) async fn conforms(make: impl Fn(&'static str) -> BoxFuture<'static, Subject>) {
    const AT_A_TIME: usize = 4;
    let (mut running, mut names) = (JoinSet::new(), HashMap::new());
    let mut left = TESTS.iter();
    loop {
        while running.len() < AT_A_TIME
            && let Some((name, test)) = left.next()
        {
            let subject = make(name).await;
            subject.driver.resume();
            names.insert(running.spawn(test(subject)).id(), name);
        }
        match running.join_next_with_id().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => panic!("{} fails: {error}", names[&error.id()]),
            None => break,
        }
    }
}

fn job(id: impl std::fmt::Display) -> Job {
    Job {
        id: id.to_string(),
        name: "App\\Job".to_owned(),
        priority: 10,
        ..Job::default()
    }
}

impl Delivery {
    /// Without what travels in headers and is not for a handler.
    fn as_seen(&self) -> Job {
        Job {
            headers: visible(&self.job.headers).into_owned(),
            ..Job::clone(&self.job)
        }
    }
}

impl Subject {
    async fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        let jobs = jobs.into_iter().collect();
        self.driver.push(jobs).await.unwrap();
    }

    /// As a consumer does it.
    pub(super) async fn next(&self) -> Delivery {
        timeout(PATIENCE, self.next_at_some_time())
            .await
            .expect("a job comes")
    }

    async fn next_at_some_time(&self) -> Delivery {
        loop {
            let now = Instant::now();
            if let Some(delivery) = self.driver.take(now) {
                return delivery;
            }
            self.driver.want(FREE);
            let due = self.driver.next_due();
            let due = due.unwrap_or_else(|| now + Duration::from_hours(1));
            tokio::select! {
                () = self.wake.woken() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    pub(super) async fn nothing_comes(&self) {
        let come = timeout(NEVER, self.next_at_some_time()).await;
        if let Ok(delivery) = come {
            panic!("nothing should come, not {:?}", delivery.job);
        }
    }

    async fn settle(&self, delivery: &Delivery, settlement: Settlement) {
        let settled = self.driver.settle(delivery.ticket, settlement);
        settled.await.unwrap();
    }

    /// The next job of this ID; others are acknowledged.
    async fn next_of(&self, id: &str) -> Delivery {
        loop {
            let delivery = self.next().await;
            if delivery.job.id == id {
                return delivery;
            }
            self.settle(&delivery, Settlement::Ack).await;
        }
    }

    pub(super) async fn ack_next(&self) -> String {
        let delivery = self.next().await;
        self.settle(&delivery, Settlement::Ack).await;
        delivery.job.id.clone()
    }

    /// Waits for it: some engines count at intervals.
    async fn stat(&self, active: u64, delayed: u64, reserved: u64) {
        let expected = Stat {
            active,
            delayed,
            reserved,
            oldest: None,
        };
        let started = Instant::now();
        loop {
            let stat = self.driver.stat().await.unwrap();
            let stat = Stat {
                delayed: if self.ability.counts_delayed {
                    stat.delayed
                } else {
                    delayed
                },
                active: if self.ability.counts_waiting {
                    stat.active
                } else {
                    active
                },
                oldest: None,
                ..stat
            };
            if stat == expected {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{stat:?}, not {expected:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// A driver on the same engine beside this one, resumed. None where there can't be two.
    async fn beside(&self) -> Option<Self> {
        let again = self.again.as_ref().filter(|_| self.ability.is_shared)?;
        let wake = Wake::default();
        let driver = again(wake.clone()).await;
        driver.resume();
        Some(Self {
            driver,
            wake,
            ability: self.ability,
            again: None,
            folder: None,
        })
    }
}

async fn jobs_come_out_as_they_went_in(subject: Subject) {
    let mut full = Job {
        id: "ä 1".to_owned(),
        name: "App\\Jobs\\Ping".to_owned(),
        payload: (0..=255).collect(),
        priority: -3,
        auto_ack: true,
        ..Job::default()
    };
    let values = vec!["1".to_owned(), "2".to_owned()];
    full.headers.insert("x-retries".to_owned(), values);
    full.headers.insert("empty".to_owned(), Vec::new());
    subject.push([full.clone(), job("")]).await;
    let seen = subject.next().await.as_seen();
    assert_eq!(seen, full);
    assert_eq!(subject.next().await.as_seen(), job(""));
    subject.nothing_comes().await;
    subject.stat(0, 0, 2).await;
}

async fn equal_priorities_keep_their_order_and_lower_numbers_go_first(subject: Subject) {
    if !subject.ability.sorts {
        return;
    }
    let of = |id, priority| Job {
        priority,
        ..job(id)
    };
    subject.push([of("a", 10), of("b", 5)]).await;
    subject.push([of("c", 10), of("d", i64::MIN)]).await;
    subject.push([of("e", 5), of("f", i64::MAX)]).await;
    assert_eq!(subject.driver.head(Instant::now()), Some(i64::MIN));
    let mut order = String::new();
    for _ in 0..6 {
        order += &subject.ack_next().await;
    }
    assert_eq!(order, "dbeacf");
    assert_eq!(subject.driver.head(Instant::now()), None);
}

async fn low_priorities_do_not_starve(subject: Subject) {
    if !subject.ability.sorts {
        return;
    }
    let of = |priority| {
        move |number| Job {
            priority,
            ..job(format!("{priority} {number}"))
        }
    };
    subject.push((0..1000).map(of(1))).await;
    subject.push((0..10).map(of(20))).await;
    let mut low = 0;
    for _ in 0..100 {
        if subject.ack_next().await.starts_with("20 ") {
            low += 1;
        }
    }
    assert!((5..=10).contains(&low), "{low} of 100");
}

async fn a_delayed_job_comes_at_its_time_and_not_before(subject: Subject) {
    let soon = subject.ability.shortest_delay;
    let delayed = Job {
        delay: soon,
        ..job("later")
    };
    let started = Instant::now();
    subject.push([delayed, job("now")]).await;
    subject.stat(1, 1, 0).await;
    assert_eq!(subject.ack_next().await, "now");
    assert_eq!(subject.ack_next().await, "later");
    let took = started.elapsed();
    assert!(took >= soon, "{took:?}");
    subject.stat(0, 0, 0).await;
}

async fn a_delayed_job_gets_past_many_others(subject: Subject) {
    let far = |number: u64| Job {
        delay: Duration::from_secs(3600 + number),
        ..job(number)
    };
    let count = subject.ability.most_delays;
    for first in (0..count).step_by(1000) {
        let all = first..count.min(first + 1000);
        subject.push(all.rev().map(far)).await;
    }
    let years = Job {
        delay: subject.ability.longest_delay,
        ..job("never")
    };
    let delay = subject.ability.shortest_delay;
    let soon = Job {
        delay,
        ..job("soon")
    };
    subject.push([years, soon]).await;
    let pushed = Instant::now();
    assert_eq!(subject.ack_next().await, "soon");
    let took = pushed.elapsed();
    assert!(took < delay + subject.ability.lateness, "{took:?}");
    subject.stat(0, count + 1, 0).await;
    subject.nothing_comes().await;
}

async fn the_age_of_the_first_that_waits_is_told(subject: Subject) {
    if !subject.ability.tells_oldest {
        return;
    }
    let pushed = Instant::now();
    subject.push([job("a"), job("b")]).await;
    sleep(Duration::from_millis(50)).await;
    let oldest = subject.driver.stat().await.unwrap().oldest;
    let oldest = oldest.expect("one waits");
    // Engines count in milliseconds.
    let (least, most) = (Duration::from_millis(45), pushed.elapsed());
    let most = most + Duration::from_millis(5);
    assert!((least..=most).contains(&oldest), "{oldest:?}, not {most:?}");
    subject.ack_next().await;
    subject.ack_next().await;
    subject.stat(0, 0, 0).await;
    assert_eq!(subject.driver.stat().await.unwrap().oldest, None);
}

async fn what_is_acknowledged_is_gone(subject: Subject) {
    subject.push([job("a")]).await;
    let delivery = subject.next().await;
    subject.stat(0, 0, 1).await;
    subject.settle(&delivery, Settlement::Ack).await;
    subject.stat(0, 0, 0).await;
    subject.nothing_comes().await;
}

async fn a_ticket_is_good_for_one_settlement(subject: Subject) {
    subject.push([job("a")]).await;
    let delivery = subject.next().await;
    subject.settle(&delivery, Settlement::Ack).await;
    let again = subject.driver.settle(delivery.ticket, Settlement::Ack);
    let error = again.await.unwrap_err();
    assert_eq!(error, DriverError::NotReserved);
    let released = subject.driver.settle(delivery.ticket, Settlement::Release);
    assert_eq!(released.await, Err(DriverError::NotReserved));
}

async fn what_is_released_comes_again_as_it_was(subject: Subject) {
    subject.push([job("a"), job("b")]).await;
    let first = subject.next().await;
    subject.settle(&first, Settlement::Release).await;
    let again = subject.next().await;
    assert_eq!(again.job, first.job);
    subject.settle(&again, Settlement::Ack).await;
    assert_eq!(subject.ack_next().await, "b");
    subject.stat(0, 0, 0).await;
}

async fn a_job_that_fails_is_tried_again_and_its_attempts_are_counted(subject: Subject) {
    subject.push([job("bad"), job("good")]).await;
    let soon = subject.ability.shortest_delay;
    for (attempts, delay) in [(0, Duration::ZERO), (1, soon)] {
        let delivery = subject.next_of("bad").await;
        assert_eq!(delivery.job.attempts, attempts);
        let failed = Instant::now();
        subject
            .settle(&delivery, Settlement::Failed { delay })
            .await;
        if !delay.is_zero() {
            let again = subject.next_of("bad").await;
            assert!(failed.elapsed() >= delay, "{:?}", failed.elapsed());
            assert_eq!(again.job.attempts, 2);
            subject.settle(&again, Settlement::Reject).await;
        }
    }
    subject.nothing_comes().await;
    subject.stat(0, 0, 0).await;
}

async fn a_nack_that_asks_for_it_brings_the_job_again(subject: Subject) {
    subject.push([job("a")]).await;
    let delivery = subject.next().await;
    let nacked = Instant::now();
    let nack = Settlement::Nack {
        delay: subject.ability.shortest_delay,
    };
    subject.settle(&delivery, nack).await;
    subject.stat(0, 1, 0).await;
    assert_eq!(subject.ack_next().await, "a");
    assert!(nacked.elapsed() >= subject.ability.shortest_delay);
}

async fn a_requeued_job_has_the_new_headers(subject: Subject) {
    let one = |value: &str| vec![value.to_owned()];
    let mut first = job("a");
    first.headers = Headers::from([("kept".into(), one("1")), ("new".into(), one("old"))]);
    subject.push([first, job("b")]).await;
    let delivery = subject.next().await;
    let requeue = Settlement::Requeue {
        headers: Headers::from([("new".into(), one("2"))]),
        delay: Duration::ZERO,
    };
    subject.settle(&delivery, requeue).await;
    assert_eq!(subject.ack_next().await, "b", "it is behind the others");
    let again = subject.next().await;
    let expected = Headers::from([("kept".into(), one("1")), ("new".into(), one("2"))]);
    assert_eq!(again.as_seen().headers, expected);
    assert_eq!(again.job.attempts, 0);
}

async fn a_paused_pipeline_takes_pushes_and_gives_nothing(subject: Subject) {
    subject.push([job("a"), job("b")]).await;
    let taken = subject.next().await;
    subject.driver.pause();
    subject.push([job("c")]).await;
    let soon = Job {
        delay: Duration::from_millis(1),
        ..job("d")
    };
    subject.push([soon]).await;
    assert_eq!(subject.driver.head(Instant::now()), None);
    subject.nothing_comes().await;
    subject.settle(&taken, Settlement::Ack).await;
    subject.driver.resume();
    let mut rest = BTreeSet::new();
    for _ in 0..3 {
        rest.insert(subject.ack_next().await);
    }
    assert_eq!(rest, BTreeSet::from(["b".into(), "c".into(), "d".into()]));
}

async fn a_large_payload_passes(subject: Subject) {
    let largest = u32::try_from(subject.ability.largest).unwrap();
    let payload: Vec<u8> = (0..largest).map(|n| n.to_le_bytes()[0]).collect();
    let large = |id: &str| Job {
        payload: payload.clone().into(),
        ..job(id)
    };
    subject.push([large("a"), large("b")]).await;
    for id in ["a", "b"] {
        let delivery = subject.next().await;
        assert_eq!(
            (&*delivery.job.id, &delivery.job.payload[..]),
            (id, &payload[..])
        );
        subject.settle(&delivery, Settlement::Ack).await;
    }
}

async fn thousands_of_jobs_each_come_once(subject: Subject) {
    let count = subject.ability.most_jobs;
    for first in (0..count).step_by(100) {
        subject.push((first..first + 100).map(job)).await;
    }
    subject.stat(count as u64, 0, 0).await;
    let mut reserved = 0;
    for expected in 0..count {
        let delivery = subject.next().await;
        assert_eq!(delivery.job.id, expected.to_string());
        if expected % 100 == 0 || reserved == subject.ability.most_reserved {
            subject.settle(&delivery, Settlement::Ack).await;
        } else {
            reserved += 1;
        }
    }
    subject.nothing_comes().await;
    subject.stat(0, 0, reserved as u64).await;
}

async fn pushes_and_settlements_at_the_same_time_lose_nothing(subject: Subject) {
    let count = subject.ability.most_jobs.min(600);
    let pushing = async {
        for number in 0..count / 4 {
            let jobs = (0..4).map(|part| Job {
                priority: i64::from(fastrand::u8(0..5)),
                delay: Duration::from_millis(fastrand::u64(0..4) / 3 * 30),
                ..job(number * 4 + part)
            });
            subject.push(jobs).await;
            if number % 50 == 0 {
                sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let consuming = async {
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut done = 0;
        while done < count {
            let mut taken = vec![subject.next().await];
            while taken.len() < 50
                && let Some(delivery) = subject.driver.take(Instant::now())
            {
                taken.push(delivery);
            }
            for delivery in taken {
                let times = seen.entry(delivery.job.id.clone()).or_default();
                *times += 1;
                if *times == 1 && fastrand::u8(0..4) == 0 {
                    let again = match fastrand::u8(0..4) {
                        0 => Settlement::Release,
                        1 => Settlement::Failed {
                            delay: Duration::ZERO,
                        },
                        2 => Settlement::Nack {
                            delay: Duration::ZERO,
                        },
                        _ => Settlement::Requeue {
                            headers: Headers::new(),
                            delay: Duration::from_millis(5),
                        },
                    };
                    subject.settle(&delivery, again).await;
                } else {
                    assert!(*times <= 2, "{} comes once more", delivery.job.id);
                    subject.settle(&delivery, Settlement::Ack).await;
                    done += 1;
                }
            }
        }
        assert_eq!(seen.len(), count);
    };
    timeout(Duration::from_secs(120), async {
        tokio::join!(pushing, consuming)
    })
    .await
    .expect("all jobs are done");
    subject.nothing_comes().await;
    subject.stat(0, 0, 0).await;
}

async fn what_is_not_settled_outlives_the_driver(mut subject: Subject) {
    let Some(again) = subject.again.take() else {
        return;
    };
    let later = Job {
        delay: Duration::from_hours(1),
        ..job("later")
    };
    subject
        .push([job("done"), job("taken"), job("waiting"), later])
        .await;
    subject.ack_next().await;
    assert_eq!(subject.next().await.job.id, "taken");
    subject.wake = Wake::default();
    subject.driver = again(subject.wake.clone()).await;
    subject.nothing_comes().await;
    subject.driver.resume();
    let order = [subject.ack_next().await, subject.ack_next().await];
    if subject.ability.sorts {
        assert_eq!(order, ["taken", "waiting"]);
    }
    assert_eq!(BTreeSet::from(order).len(), 2);
    subject.stat(0, 1, 0).await;
}

async fn what_is_taken_at_the_end_goes_back_at_once(subject: Subject) {
    let Some(other) = subject.beside().await else {
        return;
    };
    subject.push([job("a")]).await;
    let taken = tokio::select! {
        taken = subject.next() => Ok(taken),
        taken = other.next() => Err(taken),
    };
    let (one, two) = if taken.is_ok() {
        (subject, other)
    } else {
        (other, subject)
    };
    one.driver.close().await;
    let closed = Instant::now();
    assert_eq!(two.ack_next().await, "a");
    assert!(closed.elapsed() < Duration::from_secs(5));
}

async fn what_is_brought_for_a_worker_that_is_not_free_any_more_goes_back(subject: Subject) {
    let Some(other) = subject.beside().await else {
        return;
    };
    other.driver.want(1);
    subject.push([job("a")]).await;
    timeout(PATIENCE, other.wake.woken()).await.unwrap();
    other.driver.want(0);
    assert_eq!(subject.ack_next().await, "a");
}

/// Starts this test again as a process of its own, which is killed while it pushes and consumes.
#[tokio::test]
async fn a_kill_loses_no_job_that_was_pushed_and_none_comes_after_its_ack() {
    const FOLDER: &str = "PRONGHORN_JOBS_TEST_FOLDER";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let store = Store::open(folder.as_ref(), PLENTY).unwrap();
        let wake = Wake::default();
        let driver = Embedded::open("mail", store, wake).await.unwrap();
        driver.resume();
        for number in 0.. {
            let id = format!("{}-{number}", std::process::id());
            let pushed = Job {
                delay: Duration::from_millis(fastrand::u64(0..2) * 20),
                ..job(&id)
            };
            driver.push(vec![pushed]).await.unwrap();
            println!("pushed {id}");
            if let Some(delivery) = driver.take(Instant::now()).filter(|_| fastrand::bool()) {
                println!("acking {}", delivery.job.id);
                driver
                    .settle(delivery.ticket, Settlement::Ack)
                    .await
                    .unwrap();
                println!("acked {}", delivery.job.id);
            }
        }
    }
    let subject = embedded(PLENTY).await;
    let (folder, store) = subject.folder.clone().unwrap();
    store.close().await;
    drop(subject);
    // Of one whose ack is under way at the kill nobody knows.
    let (mut pushed, mut acking, mut acked) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for _ in 0..5 {
        let test = "a_kill_loses_no_job_that_was_pushed_and_none_comes_after_its_ack";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([test, "--nocapture"])
            .env(FOLDER, &folder)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(output));
        let enough = pushed.len() + fastrand::usize(10..40);
        for line in lines {
            let line = line.unwrap();
            if let Some(id) = line.strip_prefix("pushed ") {
                pushed.insert(id.to_owned());
            } else if let Some(id) = line.strip_prefix("acking ") {
                acking.insert(id.to_owned());
            } else if let Some(id) = line.strip_prefix("acked ") {
                acked.insert(id.to_owned());
            }
            if pushed.len() == enough {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
    }
    let subject = embedded_in(folder, PLENTY).await;
    subject.driver.resume();
    let mut left = BTreeSet::new();
    loop {
        let stat = subject.driver.stat().await.unwrap();
        if stat.active + stat.delayed == 0 {
            break;
        }
        let delivery = subject.next().await;
        let id = delivery.job.id.clone();
        assert!(!acked.contains(&id), "{id} comes after its ack");
        assert!(left.insert(id), "{} comes twice", delivery.job.id);
    }
    let lost: Vec<_> = pushed
        .iter()
        .filter(|id| !acking.contains(*id) && !left.contains(*id))
        .collect();
    assert!(lost.is_empty(), "lost: {lost:?}");
    assert!(pushed.len() >= 50 && acked.len() >= 5);
}

#[tokio::test]
async fn a_full_driver_refuses_all_of_a_push_and_has_room_after_an_ack() {
    let small = Job {
        payload: vec![1; 900].into(),
        ..job("a")
    };
    for subject in [memory(4000), embedded(4000).await] {
        let driver = subject.driver.clone();
        driver.resume();
        subject.push([small.clone(), small.clone()]).await;
        let refused = driver.push(vec![small.clone(); 3]).await.unwrap_err();
        let said = "the pipeline is full: 4000 bytes are allowed";
        assert_eq!(refused.to_string(), said);
        subject.stat(2, 0, 0).await;
        subject.ack_next().await;
        subject.push([small.clone()]).await;
        let delivery = subject.next().await;
        let requeue = Settlement::Requeue {
            headers: Headers::new(),
            delay: Duration::ZERO,
        };
        subject.settle(&delivery, requeue).await;
        subject.stat(2, 0, 0).await;
    }
}

#[tokio::test]
async fn all_jobs_of_a_driver_of_ours_are_listed() {
    for subject in [memory(PLENTY), embedded(PLENTY).await] {
        lists_all(subject).await;
    }
}

/// In parts that are not too large, and what does not go on from one of them is told.
pub(super) async fn lists_all(subject: Subject) {
    subject.push((0..30).map(job)).await;
    let later = |number: u64| Job {
        delay: Duration::from_secs(3600 + number),
        ..job(format!("later {number}"))
    };
    subject.push((0..10).map(later)).await;
    subject.driver.resume();
    let taken = subject.next().await;
    let (mut seen, mut after) = (BTreeSet::new(), None);
    loop {
        let part = subject.driver.list(after).await.unwrap();
        assert!(part.jobs.len() <= MOST_IN_PART);
        for Listed { job, .. } in part.jobs {
            let is_later = job.id.starts_with("later ");
            assert_eq!(job.delay > Duration::from_mins(59), is_later, "{job:?}");
            assert!(seen.insert(job.id));
        }
        after = part.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 40);
    assert!(seen.contains(&taken.job.id));
}

#[tokio::test]
async fn what_is_removed_is_gone_for_good() {
    for subject in [memory(PLENTY), embedded(PLENTY).await] {
        removes(subject).await;
    }
}

/// More jobs than the driver has in memory, of two priorities, and delayed ones.
async fn removes(mut subject: Subject) {
    subject.driver.resume();
    subject.push([job("taken")]).await;
    let taken = subject.next().await;
    let urgent = |id: String| Job {
        priority: 1,
        ..job(id)
    };
    let later = |id: String| Job {
        delay: Duration::from_secs(3600),
        ..job(id)
    };
    subject.push((0..40).map(job)).await;
    let pairs = (0..20).flat_map(|n| [urgent(format!("u{n}")), later(format!("l{n}"))]);
    subject.push(pairs).await;
    for id in ["0", "39", "u19", "l19", "taken", "none"] {
        let (jobs, reserved) = remove_all(&*subject.driver, Some(id)).await;
        let is_taken = id == "taken";
        let expected = if is_taken || id == "none" {
            vec![]
        } else {
            vec![id.to_owned()]
        };
        assert_eq!((jobs, reserved), (expected, usize::from(is_taken)));
    }
    subject.stat(57, 19, 1).await;
    subject.settle(&taken, Settlement::Ack).await;
    assert_eq!(subject.ack_next().await, "u0");
    if let Some(again) = subject.again.take() {
        subject.driver = again(subject.wake.clone()).await;
        subject.driver.resume();
        subject.stat(56, 19, 0).await;
    }
    let taken = subject.next().await;
    let (jobs, reserved) = remove_all(&*subject.driver, None).await;
    assert_eq!((jobs.len(), reserved), (74, 1));
    subject.settle(&taken, Settlement::Release).await;
    subject.push([job("new")]).await;
    let mut left = [subject.ack_next().await, subject.ack_next().await];
    left.sort();
    assert_eq!(left, ["new".to_owned(), taken.job.id.clone()]);
    subject.stat(0, 0, 0).await;
}

#[tokio::test]
async fn what_has_expired_is_taken_from_a_paused_pipeline() {
    for subject in [memory(PLENTY), embedded(PLENTY).await] {
        expires(subject).await;
    }
}

/// More jobs than the driver has in memory.
async fn expires(mut subject: Subject) {
    let at = |at: u64, id: String| Job {
        headers: Headers::from([("pronghorn-expires-at".to_owned(), vec![at.to_string()])]),
        ..job(id)
    };
    let later = |n: u64| Job {
        delay: Duration::from_hours(1),
        ..at(500 + n, format!("late {n}"))
    };
    subject.push([at(100, "out".to_owned())]).await;
    subject.driver.resume();
    let out = subject.next().await;
    subject.driver.pause();
    subject
        .push((0..40).map(|n| at(1000 + n, n.to_string())))
        .await;
    subject.push((0..40).map(later)).await;
    subject
        .push((0..5).map(|n| job(format!("stays {n}"))))
        .await;
    assert!(take_expired(&subject, 499).await.is_empty());
    assert_eq!(subject.driver.next_expiry(), Some(500));
    let taken = take_expired(&subject, 1019).await;
    assert_eq!(taken.len(), 60);
    assert_eq!(subject.driver.next_expiry(), Some(1020));
    subject.stat(25, 0, 61).await;
    for delivery in &taken {
        assert!(delivery.job.id != "out", "a worker has it");
        let settlement = match &*delivery.job.id {
            "7" => Settlement::Release,
            _ => Settlement::Ack,
        };
        subject.settle(delivery, settlement).await;
    }
    assert_eq!(subject.driver.next_expiry(), Some(1007));
    subject.settle(&out, Settlement::Release).await;
    subject.stat(27, 0, 0).await;
    if let Some(again) = subject.again.take() {
        subject.driver = again(subject.wake.clone()).await;
        assert_eq!(subject.driver.next_expiry(), Some(100));
        subject.stat(27, 0, 0).await;
    }
    let mut ids = BTreeSet::new();
    for delivery in take_expired(&subject, u64::MAX).await {
        subject.settle(&delivery, Settlement::Ack).await;
        assert!(ids.insert(delivery.job.id.clone()), "each comes once");
    }
    assert!(ids.contains("out") && ids.len() == 22, "{ids:?}");
    assert_eq!(subject.driver.next_expiry(), None);
    subject.driver.resume();
    for n in 0..5 {
        assert_eq!(subject.ack_next().await, format!("stays {n}"));
    }
    subject.stat(0, 0, 0).await;
}

async fn take_expired(subject: &Subject, now_ms: u64) -> Vec<Delivery> {
    let mut all = Vec::new();
    loop {
        let some = subject.driver.take_expired(now_ms).await.unwrap();
        if some.is_empty() {
            return all;
        }
        all.extend(some);
    }
}

#[tokio::test]
async fn a_pipeline_that_is_open_twice_gives_out_each_job_once() {
    let (folder, store) = new_store(PLENTY);
    let open = OpenPipelines::default();
    let [one, other] = [(); 2].map(|()| open.open("mail", store.clone()));
    let (one, other) = (one.await.unwrap(), other.await.unwrap());
    one.resume();
    one.push(vec![job("a"), job("b")]).await.unwrap();
    let a = one.take(Instant::now()).expect("it is there");
    let b = other.take(Instant::now()).expect("it is there");
    assert_eq!([&*a.job.id, &*b.job.id], ["a", "b"]);
    drop(one);
    other.settle(a.ticket, Settlement::Ack).await.unwrap();
    let third = open.open("mail", store.clone()).await.unwrap();
    assert_eq!(third.take(Instant::now()).map(|it| it.ticket), None);
    third.settle(b.ticket, Settlement::Release).await.unwrap();
    drop((other, third));
    let anew = open.open("mail", store).await.unwrap();
    assert!(anew.take(Instant::now()).is_none(), "a new one is paused");
    assert_eq!(anew.stat().await.unwrap().active, 1);
    _ = std::fs::remove_dir_all(folder);
}

/// Two servers of one machine, the second of which takes over with the store.
#[tokio::test]
async fn jobs_that_are_with_workers_of_the_process_before_are_its_own_until_they_end() {
    let folder = new_folder();
    let [old, new] = [(); 2].map(|()| LazyStore::new(folder.clone(), PLENTY));
    let before = Embedded::open("mail", old.get().await.unwrap(), Wake::default());
    let before = before.await.unwrap();
    before.resume();
    let later = Job {
        delay: Duration::from_millis(1),
        ..job("later")
    };
    let with_key = |id: &str| {
        let mut job = job(id);
        extras::hold_key(&mut job, format!("key of {id}"));
        job
    };
    let jobs = ["done", "fails", "returned", "left"].map(with_key);
    before
        .push(jobs.into_iter().chain([later]).collect())
        .await
        .unwrap();
    let mut out = Vec::new();
    while out.len() < 5 {
        match before.take(Instant::now()) {
            Some(delivery) => out.push(delivery),
            None => sleep(Duration::from_millis(1)).await,
        }
    }
    before.push(vec![job("waits")]).await.unwrap();
    let ticket = |id: &str| {
        let delivery = out.iter().find(|delivery| delivery.job.id == id);
        delivery.expect("it is out").ticket
    };
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(new.take_over(theirs).unwrap());
    assert!(old.hand_over(ours).await);
    assert!(before.take(Instant::now()).is_none(), "it has left");

    let wake = Wake::default();
    let driver = Embedded::open("mail", new.get().await.unwrap(), wake.clone());
    let subject = Subject {
        driver: Arc::new(driver.await.unwrap()),
        wake,
        ability: Ability::OURS,
        again: None,
        folder: None,
    };
    subject.driver.resume();
    assert_eq!(subject.ack_next().await, "waits");
    subject.nothing_comes().await;
    subject.stat(0, 0, 5).await;
    assert_eq!(remove_all(&*subject.driver, None).await, (Vec::new(), 5));
    let store = new.get().await.unwrap();
    let again = OpenPipelines::default();
    let again = again.open("mail", store).await.unwrap();
    let all = ["done", "fails", "left", "returned"];
    assert_eq!(lent_keys(&again).await, all);
    before
        .settle(ticket("done"), Settlement::Ack)
        .await
        .unwrap();
    let failed = Settlement::Failed {
        delay: Duration::ZERO,
    };
    before.settle(ticket("fails"), failed).await.unwrap();
    let failed = subject.next().await;
    assert_eq!((&*failed.job.id, failed.job.attempts), ("fails", 1));
    assert_eq!(lent_keys(&again).await, ["left", "returned"]);
    assert_eq!(again.unique_jobs().await.unwrap().len(), 3);
    subject.settle(&failed, Settlement::Ack).await;
    before
        .settle(ticket("returned"), Settlement::Release)
        .await
        .unwrap();
    assert_eq!(subject.ack_next().await, "returned");
    subject.nothing_comes().await;
    // A job that the process before pushes itself, as the last of a batch, comes as well.
    before.push(vec![job("last")]).await.unwrap();
    assert_eq!(subject.ack_next().await, "last");
    before
        .settle(ticket("later"), Settlement::Ack)
        .await
        .unwrap();
    subject.stat(0, 0, 1).await;

    // It ends with one that is not at its end.
    old.close().await;
    serving.join_next().await.unwrap().unwrap();
    assert_eq!(subject.ack_next().await, "left");
    subject.stat(0, 0, 0).await;
    new.close().await;
    _ = std::fs::remove_dir_all(folder);
}

async fn lent_keys(pipeline: &Embedded) -> Vec<String> {
    let jobs = pipeline.unique_jobs().await.unwrap().into_iter();
    let mut ids: Vec<_> = jobs.filter(|job| job.is_lent).map(|job| job.id).collect();
    ids.sort();
    ids
}

/// Among a backlog of several priorities that is larger than what is in memory.
#[tokio::test]
async fn what_is_due_does_not_wait_for_a_backlog() {
    for subject in [memory(PLENTY), embedded(PLENTY).await] {
        for priority in 5..8 {
            let of_priority = |number| Job {
                priority,
                ..job(format!("{priority}-{number}"))
            };
            subject.push((0..500).map(of_priority)).await;
        }
        let urgent = Job {
            priority: 1,
            delay: Duration::from_millis(20),
            ..job("urgent")
        };
        let same = Job {
            priority: 7,
            delay: Duration::from_millis(20),
            ..job("same")
        };
        subject.push([urgent, same]).await;
        sleep(Duration::from_millis(30)).await;
        subject.driver.resume();
        let mut came = Vec::new();
        for _ in 0..40 {
            came.push(subject.ack_next().await);
        }
        assert!(came[..3].contains(&"urgent".to_owned()), "{came:?}");
        assert!(came.contains(&"same".to_owned()), "{came:?}");
    }
}

async fn remove_all(driver: &dyn Driver, id: Option<&str>) -> (Vec<String>, usize) {
    let (mut ids, mut reserved, mut after) = (Vec::new(), 0, None);
    loop {
        let removed = driver.remove(id, after).await.unwrap();
        ids.extend(removed.jobs.into_iter().map(|job| job.id));
        reserved += removed.reserved;
        after = removed.next;
        if after.is_none() {
            return (ids, reserved);
        }
    }
}
