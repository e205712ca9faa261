//! One suite of tests for both drivers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pronghorn_redis::{RedisAddress, RedisSettings};
use pronghorn_testkit::Engine;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::*;
use crate::messages::{LONGEST_TTL, SHORTEST_WAIT};
use crate::table::{Limits, Mode};

const LONG: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(5);

fn wanted<'a>(resource: &'a str, id: &'a str, mode: Mode, wait: Duration) -> Wanted<'a> {
    Wanted {
        resource,
        id,
        mode,
        ttl: LONGEST_TTL,
        wait,
    }
}

/// Without patience.
async fn takes(locks: &Driver, resource: &str, id: &str, mode: Mode) -> bool {
    let taken = locks.acquire(wanted(resource, id, mode, SHORTEST_WAIT));
    taken.await.expect("it answers")
}

async fn releases(locks: &Driver, resource: &str, id: &str) -> bool {
    locks.release(resource, id).await.expect("it answers")
}

async fn is_held(locks: &Driver, resource: &str, id: Option<&str>) -> bool {
    locks.is_held(resource, id).await.expect("it answers")
}

/// A writer that waits, as a task of its own.
fn writer(tasks: &mut JoinSet<bool>, locks: &Driver, resource: &'static str, id: &'static str) {
    let locks = locks.clone();
    tasks.spawn(async move {
        let acquired = locks.acquire(wanted(resource, id, Mode::Write, LONG));
        acquired.await.expect("it answers")
    });
}

async fn until(what: impl AsyncFn() -> bool) {
    let end = Instant::now() + LONG;
    while !what().await {
        assert!(Instant::now() < end, "it does not come");
        sleep(SOON).await;
    }
}

async fn conforms(locks: &Driver) {
    readers_share_and_a_writer_is_alone(locks).await;
    locks_end(locks).await;
    a_reader_that_is_alone_may_write(locks).await;
    it_is_first_come_first_served(locks).await;
    who_goes_keeps_nothing(locks).await;
    bugs_of_roadrunner_are_not_there(locks).await;
    tokens_grow(locks).await;
    nobody_is_let_in_twice(locks).await;
}

async fn readers_share_and_a_writer_is_alone(locks: &Driver) {
    let r = "share";
    assert!(!is_held(locks, r, None).await);
    assert!(takes(locks, r, "a", Mode::Read).await);
    assert!(takes(locks, r, "b", Mode::Read).await);
    assert!(!takes(locks, r, "w", Mode::Write).await);
    assert!(is_held(locks, r, Some("b")).await && !is_held(locks, r, Some("w")).await);
    assert!(releases(locks, r, "a").await && !releases(locks, r, "a").await);
    assert!(!takes(locks, r, "w", Mode::Write).await);
    assert_eq!(locks.release_all(r).await, Ok(true));
    assert_eq!(locks.release_all(r).await, Ok(false));
    assert!(takes(locks, r, "w", Mode::Write).await);
    assert!(
        !takes(locks, r, "w", Mode::Write).await,
        "it is not taken twice"
    );
    assert!(!takes(locks, r, "a", Mode::Read).await);
    assert!(takes(locks, "another", "a", Mode::Write).await);
    assert!(releases(locks, "another", "a").await && releases(locks, r, "w").await);
}

async fn locks_end(locks: &Driver) {
    let r = "end";
    let short = |id, ttl| Wanted {
        ttl: Duration::from_millis(ttl),
        ..wanted(r, id, Mode::Write, LONG)
    };
    let begun = Instant::now();
    assert_eq!(locks.acquire(short("a", 100)).await, Ok(true));
    assert_eq!(locks.acquire(short("b", 60_000)).await, Ok(true));
    assert!(begun.elapsed() >= Duration::from_millis(90));
    assert!(!releases(locks, r, "a").await, "it has ended");
    let brief = Duration::from_millis(50);
    assert_eq!(locks.prolong(r, "b", brief).await, Ok(true));
    assert_eq!(locks.prolong(r, "a", brief).await, Ok(false));
    until(async || !is_held(locks, r, None).await).await;
    assert_eq!(locks.prolong(r, "b", brief).await, Ok(false));
}

async fn a_reader_that_is_alone_may_write(locks: &Driver) {
    let r = "promote";
    assert!(takes(locks, r, "a", Mode::Read).await);
    assert!(takes(locks, r, "a", Mode::Write).await);
    assert!(!takes(locks, r, "b", Mode::Read).await);
    assert!(releases(locks, r, "a").await);
    assert!(takes(locks, r, "a", Mode::Read).await);
    assert!(takes(locks, r, "b", Mode::Read).await);
    let mut tasks = JoinSet::new();
    writer(&mut tasks, locks, r, "w");
    until(async || {
        !takes(locks, r, "probe", Mode::Read).await || !releases(locks, r, "probe").await
    })
    .await;
    assert!(
        takes(locks, r, "b", Mode::Read).await,
        "it goes past the line"
    );
    assert!(releases(locks, r, "b").await);
    assert!(
        takes(locks, r, "a", Mode::Write).await,
        "the first in line waits for it"
    );
    assert!(releases(locks, r, "a").await);
    assert_eq!(tasks.join_next().await.expect("one").ok(), Some(true));
    assert!(releases(locks, r, "w").await);
}

async fn it_is_first_come_first_served(locks: &Driver) {
    let r = "line";
    assert!(takes(locks, r, "a", Mode::Read).await);
    let mut tasks = JoinSet::new();
    writer(&mut tasks, locks, r, "w");
    // A reader behind a writer that waits is not let in.
    until(async || !takes(locks, r, "b", Mode::Read).await || !releases(locks, r, "b").await).await;
    let behind = locks.clone();
    tasks.spawn(async move {
        let acquired = behind.acquire(wanted(r, "c", Mode::Read, LONG));
        acquired.await.expect("it answers")
    });
    assert!(releases(locks, r, "a").await);
    assert_eq!(tasks.join_next().await.expect("one").ok(), Some(true));
    assert!(is_held(locks, r, Some("w")).await && !is_held(locks, r, Some("c")).await);
    assert!(releases(locks, r, "w").await);
    assert_eq!(tasks.join_next().await.expect("one").ok(), Some(true));
    assert!(is_held(locks, r, Some("c")).await);
    assert!(releases(locks, r, "c").await);
}

async fn who_goes_keeps_nothing(locks: &Driver) {
    let r = "gone";
    assert!(takes(locks, r, "a", Mode::Read).await);
    let mut tasks = JoinSet::new();
    writer(&mut tasks, locks, r, "gone");
    until(async || !takes(locks, r, "b", Mode::Read).await || !releases(locks, r, "b").await).await;
    tasks.shutdown().await;
    until(async || takes(locks, r, "b", Mode::Read).await).await;
    assert!(releases(locks, r, "a").await && releases(locks, r, "b").await);
    // Gone while it is being granted: before it is asked, on the way, and after it was told.
    for turns in 0..30 {
        let asked = locks.acquire(wanted(r, "gone", Mode::Write, LONG));
        let goes = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            taken = asked => {
                assert_eq!(taken, Ok(true));
                assert!(releases(locks, r, "gone").await);
            }
            () = goes => {}
        }
        sleep(SOON).await;
    }
    until(async || takes(locks, r, "next", Mode::Write).await).await;
    assert!(releases(locks, r, "next").await);
}

async fn bugs_of_roadrunner_are_not_there(locks: &Driver) {
    let r = "bugs";
    assert!(takes(locks, r, "before", Mode::Write).await && releases(locks, r, "before").await);
    for id in ["a", "b"] {
        assert!(takes(locks, r, id, Mode::Read).await);
    }
    let impatient = wanted(r, "w", Mode::Write, Duration::from_millis(50));
    assert_eq!(
        locks.acquire(impatient).await,
        Ok(false),
        "two readers hold it"
    );
    assert!(
        takes(locks, r, "c", Mode::Read).await,
        "the resource can be used"
    );
    for id in ["a", "b", "c"] {
        assert!(releases(locks, r, id).await, "a reader releases its own");
    }
    assert!(takes(locks, r, "w", Mode::Write).await && releases(locks, r, "w").await);
}

async fn token(locks: &Driver, resource: &str, id: &str) -> Option<u64> {
    locks.token(resource, id).await.expect("it answers")
}

async fn tokens_grow(locks: &Driver) {
    let r = "token";
    let mut last = 0;
    for id in ["a", "b", "a"] {
        assert_eq!(token(locks, r, id).await, None);
        assert!(takes(locks, r, id, Mode::Write).await);
        let new = token(locks, r, id).await.expect("it holds a lock");
        assert!(new > last, "{new} {last}");
        assert_eq!(locks.prolong(r, id, LONG).await, Ok(true));
        assert_eq!(token(locks, r, id).await, Some(new));
        last = new;
        assert!(releases(locks, r, id).await);
    }
}

async fn nobody_is_let_in_twice(locks: &Driver) {
    const TASKS: u32 = 4;
    const ROUNDS: u32 = 25;
    let inside = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..TASKS {
        let (locks, inside) = (locks.clone(), inside.clone());
        tasks.spawn(async move {
            let id = number.to_string();
            for _ in 0..ROUNDS {
                let taken = locks.acquire(wanted("alone", &id, Mode::Write, LONG)).await;
                assert_eq!(taken, Ok(true));
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(releases(&locks, "alone", &id).await);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("it was alone");
    }
}

fn memory() -> (Driver, JoinSet<()>) {
    let locks = Locks::new(Limits::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(locks.keep_time());
    (Driver::Memory(locks), tasks)
}

#[tokio::test]
async fn memory_conforms() {
    let (locks, _tasks) = memory();
    conforms(&locks).await;
}

#[test]
fn tokens_of_a_server_that_starts_anew_are_larger() {
    let now = || Locks::new(Limits::default());
    let (before, after) = (now(), now());
    let first = |locks: &Locks| {
        let taken = locks.acquire("r", "a", Mode::Write, LONG, SHORTEST_WAIT);
        assert_eq!(futures_now(taken), Some(Ok(true)));
        locks.token("r", "a").expect("it holds a lock")
    };
    let before = first(&before);
    assert!(before > 1_700_000_000_000_000, "microseconds since 1970");
    assert!(first(&after) >= before);
}

/// What a future has at once.
fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(it) => Some(it),
        std::task::Poll::Pending => None,
    }
}

fn in_redis(engine: &Engine) -> (Driver, JoinSet<()>) {
    let address = RedisAddress::Tcp("127.0.0.1".to_owned(), engine.port());
    let (locks, tasks) = RedisLocks::new(RedisSettings {
        dial_timeout: Duration::from_secs(2),
        read_timeout: Duration::from_secs(2),
        ..RedisSettings::at(vec![address])
    });
    (Driver::Redis(locks), tasks)
}

async fn until_up(locks: &Driver) {
    until(async || locks.is_held("r", None).await.is_ok()).await;
}

#[tokio::test]
async fn redis_conforms() {
    let engine = Engine::redis(&[]);
    let (locks, _tasks) = in_redis(&engine);
    until_up(&locks).await;
    conforms(&locks).await;
}

/// Steps that wait for nobody, in both; a seed that fails is printed.
#[tokio::test]
async fn both_drivers_do_the_same() {
    let engine = Engine::redis(&[]);
    let (there, _tasks) = in_redis(&engine);
    until_up(&there).await;
    let (here, _time) = memory();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 0..600 {
        let resource = ["x", "y"][random.usize(..2)];
        let id = ["1", "2", "3"][random.usize(..3)];
        let mode = [Mode::Read, Mode::Write][random.usize(..2)];
        let what = random.u8(..8);
        let mut done = Vec::new();
        for locks in [&here, &there] {
            done.push(match what {
                0..4 => takes(locks, resource, id, mode).await,
                4 | 5 => releases(locks, resource, id).await,
                6 => locks.prolong(resource, id, LONG).await.expect("it answers"),
                _ => {
                    is_held(
                        locks,
                        resource,
                        [None, Some(id)][usize::from(mode == Mode::Read)],
                    )
                    .await
                }
            });
        }
        assert_eq!(
            done[0], done[1],
            "seed {seed}, step {number}: {what} {resource} {id} {mode:?}"
        );
    }
}

#[tokio::test]
async fn servers_share_locks_and_one_that_is_killed_holds_up_nobody_in_line() {
    let engine = Engine::redis(&[]);
    let (one, _tasks) = in_redis(&engine);
    let (other, others) = in_redis(&engine);
    until_up(&one).await;
    assert!(takes(&one, "r", "a", Mode::Read).await);
    let mut waiting = JoinSet::new();
    writer(&mut waiting, &other, "r", "b");
    until(async || !takes(&one, "r", "c", Mode::Read).await || !releases(&one, "r", "c").await)
        .await;
    // With its task that would leave the line.
    drop(others);
    waiting.shutdown().await;
    assert!(
        !takes(&one, "r", "c", Mode::Read).await,
        "it is still in line"
    );
    let patient = wanted("r", "c", Mode::Read, LONG);
    assert_eq!(one.acquire(patient).await, Ok(true));
    assert!(is_held(&one, "r", Some("a")).await);
}

/// Whether a lock is still there depends on how Redis keeps what it has; tokens grow all the same.
#[tokio::test]
async fn a_redis_that_starts_anew_is_found_again() {
    for (more, keeps) in [
        (&[][..], false),
        (&["--appendonly", "yes", "--appendfsync", "always"], true),
    ] {
        let mut engine = Engine::redis(more);
        let (locks, _tasks) = in_redis(&engine);
        until_up(&locks).await;
        assert!(takes(&locks, "r", "a", Mode::Write).await);
        let before = token(&locks, "r", "a").await.expect("it holds a lock");
        engine.stop();
        let begun = Instant::now();
        let refused = locks.acquire(wanted("r", "b", Mode::Write, LONG)).await;
        let said = refused.expect_err("nobody is there").to_string();
        let title = format!("the Redis at 127.0.0.1:{} does not answer: ", engine.port());
        assert!(said.starts_with(&title), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(5));
        let Driver::Redis(in_redis) = &locks else {
            panic!("it is in Redis")
        };
        assert!(in_redis.health().is_err_and(|it| it.starts_with(&title)));
        engine.restart();
        until_up(&locks).await;
        assert_eq!(in_redis.health(), Ok(()));
        assert_eq!(is_held(&locks, "r", Some("a")).await, keeps);
        assert_eq!(takes(&locks, "r", "b", Mode::Write).await, !keeps);
        let owner = if keeps { "a" } else { "b" };
        let after = token(&locks, "r", owner).await.expect("it holds a lock");
        assert!(if keeps {
            after == before
        } else {
            after > before
        });
    }
}

#[tokio::test]
async fn what_is_no_lock_is_refused() {
    let engine = Engine::redis(&[]);
    let (locks, _tasks) = in_redis(&engine);
    until_up(&locks).await;
    let port = engine.port().to_string();
    let set = std::process::Command::new("redis-cli")
        .args(["-p", &port, "set", "pronghorn:lock:r", "something else"])
        .output();
    assert!(set.expect("redis-cli is there").status.success());
    let refused = locks.release("r", "a").await.expect_err("it is no lock");
    let said = refused.to_string();
    let expected = format!("the Redis at 127.0.0.1:{port} refuses: ");
    assert!(said.starts_with(&expected), "{said}");
    assert!(takes(&locks, "another", "a", Mode::Write).await);
}

#[tokio::test]
async fn nobody_waits_when_the_server_stops() {
    let engine = Engine::redis(&[]);
    let (locks, _tasks) = in_redis(&engine);
    until_up(&locks).await;
    assert!(takes(&locks, "r", "a", Mode::Write).await);
    let mut tasks = JoinSet::new();
    writer(&mut tasks, &locks, "r", "b");
    sleep(SOON).await;
    let begun = Instant::now();
    locks.stop();
    assert_eq!(tasks.join_next().await.expect("one").ok(), Some(false));
    assert!(begun.elapsed() < Duration::from_secs(2));
}
