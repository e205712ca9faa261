//! The suite of tests that every driver passes. Each one runs all of it by [`conforms`], and says
//! in [`Ability`] what its engine does in another way.
//!
//! A part of the crate for the tests of other crates, by the feature `conformance`.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_store::Store;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::driver::{Delivery, Driver, DriverError, Listed, Settlement, Stat};
use crate::job::{Headers, Job};
use crate::options::visible;
use crate::wake::Wake;

#[cfg(test)]
mod ours;

/// For what has to happen; a machine under load may be slow.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// For what must not happen.
pub const NEVER: Duration = Duration::from_millis(300);
/// As if so many workers were free.
const FREE: usize = 8;

/// The ways in which engines differ.
#[derive(Clone, Copy, Debug)]
pub struct Ability {
    /// All jobs that wait are in the order of their priorities, and not only those it has brought.
    pub sorts: bool,
    /// Several servers can have the pipeline at a time.
    pub is_shared: bool,
    /// How many jobs can be out at a time.
    pub most_reserved: usize,
    /// How many jobs there should be at a time: some engines look at each of them at each call.
    pub most_jobs: usize,
    /// The shortest delay that is not none.
    pub shortest_delay: Duration,
    /// The longest one that it keeps to.
    pub longest_delay: Duration,
    /// How late a delayed job may come.
    pub lateness: Duration,
    /// How many delays of different length there should be at a time.
    pub most_delays: u64,
    /// It can say how many jobs are delayed.
    pub counts_delayed: bool,
    /// It can say how many jobs wait for a worker.
    pub counts_waiting: bool,
    /// It can say how long the first of them has waited.
    pub tells_oldest: bool,
    /// Bytes of the largest payload.
    pub largest: usize,
}

impl Ability {
    /// The abilities of an engine that is this server itself.
    pub const OURS: Self = Self {
        sorts: true,
        is_shared: false,
        most_reserved: usize::MAX,
        most_jobs: 3000,
        shortest_delay: Duration::from_secs(1),
        longest_delay: Duration::MAX,
        lateness: Duration::from_secs(5),
        most_delays: 3000,
        counts_delayed: true,
        counts_waiting: true,
        tells_oldest: true,
        largest: 5_000_000,
    };
}

/// A driver under test, resumed, and what it leaves.
pub struct Subject {
    /// The driver.
    pub driver: Arc<dyn Driver>,
    /// It is told when there may be a job.
    pub wake: Wake,
    /// How its engine differs.
    pub ability: Ability,
    /// Makes a driver on what this one has left, as a new process would.
    pub again: Option<Again>,
    /// Where its store is; removed at the end.
    pub directory: Option<(PathBuf, Store)>,
}

/// Opens a driver on what another one has left.
pub type Again = Box<dyn Fn(Wake) -> BoxFuture<'static, Arc<dyn Driver>> + Send + Sync>;

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut subject = f.debug_struct("Subject");
        subject
            .field("ability", &self.ability)
            .finish_non_exhaustive()
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Some((directory, _)) = &self.directory {
            _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// Bytes that are enough for all jobs of a test.
pub const PLENTY: u64 = 64 << 20;

/// Where there is nothing yet.
pub fn new_directory() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let name = format!("pronghorn-jobs-{}-{number}", std::process::id());
    std::env::temp_dir().join(name)
}

/// A store in a directory of its own, and that.
pub fn new_store(limit: u64) -> (PathBuf, Store) {
    let directory = new_directory();
    let store = Store::open(&directory, limit).unwrap();
    (directory, store)
}

/// A subject in a broker that several servers can share. `open` makes a driver, paused.
pub fn subject<D: Driver>(
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
        directory: None,
    }
}

/// Waits until a driver says so of its broker.
pub async fn unhealthy(driver: &dyn Driver, part: &str) -> String {
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
pub async fn conforms(make: impl Fn(&'static str) -> BoxFuture<'static, Subject>) {
    const AT_A_TIME: usize = 4;
    let (mut running, mut names) = (JoinSet::new(), HashMap::new());
    let mut left = TESTS.iter();
    loop {
        while running.len() < AT_A_TIME
            && let Some((name, test)) = left.next()
        {
            let subject = make(name).await;
            subject.driver.resume();
            healthy(&*subject.driver).await;
            names.insert(running.spawn(test(subject)).id(), name);
        }
        match running.join_next_with_id().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => panic!("{} fails: {error}", names[&error.id()]),
            None => break,
        }
    }
}

/// Waits until the driver has a connection: an engine may need longer to start than a push waits
/// for it.
pub async fn healthy(driver: &dyn Driver) {
    let healthy = async {
        while driver.health().is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let healthy = timeout(PATIENCE, healthy).await;
    healthy.unwrap_or_else(|_| panic!("{:?}", driver.health()));
}

/// A job of this ID.
pub fn job(id: impl std::fmt::Display) -> Job {
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
    /// Pushes jobs, which are kept.
    pub async fn push(&self, jobs: impl IntoIterator<Item = Job>) {
        let jobs = jobs.into_iter().collect();
        self.driver.push(jobs).await.unwrap();
    }

    /// As a consumer does it.
    pub async fn next(&self) -> Delivery {
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

    /// No job comes for some time.
    pub async fn nothing_comes(&self) {
        let come = timeout(NEVER, self.next_at_some_time()).await;
        if let Ok(delivery) = come {
            panic!("nothing should come, not {:?}", delivery.job);
        }
    }

    /// Says what became of a job.
    pub async fn settle(&self, delivery: &Delivery, settlement: Settlement) {
        let settled = self.driver.settle(delivery.ticket, settlement);
        settled.await.unwrap();
    }

    /// The next job of this ID; others are acknowledged.
    pub async fn next_of(&self, id: &str) -> Delivery {
        loop {
            let delivery = self.next().await;
            if delivery.job.id == id {
                return delivery;
            }
            self.settle(&delivery, Settlement::Ack).await;
        }
    }

    /// Acknowledges the next job: its ID.
    pub async fn ack_next(&self) -> String {
        let delivery = self.next().await;
        self.settle(&delivery, Settlement::Ack).await;
        delivery.job.id.clone()
    }

    /// Waits for it: some engines count at intervals.
    pub async fn stat(&self, active: u64, delayed: u64, reserved: u64) {
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
            directory: None,
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

/// In parts of `most` jobs at most, and what does not go on from one of them is told.
pub async fn lists_all(subject: Subject, most: usize) {
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
        assert!(part.jobs.len() <= most);
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
