use tokio::task::JoinSet;
use tokio::time::advance;

use super::*;
use crate::messages::{LONGEST_TTL, LONGEST_WAIT, SHORTEST_WAIT};

const SECOND: Duration = Duration::from_secs(1);

fn locks() -> (Locks, JoinSet<()>) {
    let locks = Locks::new(Limits::default());
    let mut time = JoinSet::new();
    time.spawn(locks.keep_time());
    (locks, time)
}

async fn write(locks: &Locks, id: &str, ttl: Duration, wait: Duration) -> bool {
    let acquired = locks.acquire("r", id, Mode::Write, ttl, wait).await;
    acquired.expect("not full")
}

/// A writer that waits for an hour, as a task of its own.
fn writer(tasks: &mut JoinSet<bool>, locks: &Locks, id: &'static str) {
    let locks = locks.clone();
    tasks.spawn(async move { write(&locks, id, LONGEST_TTL, 3600 * SECOND).await });
}

async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_ends_with_its_time_and_the_next_has_its_turn() {
    let (locks, _time) = locks();
    assert!(write(&locks, "a", 2 * SECOND, SHORTEST_WAIT).await);
    let mut tasks = JoinSet::new();
    writer(&mut tasks, &locks, "b");
    until(|| locks.count() == (1, 1)).await;
    let begun = Instant::now();
    assert_eq!(tasks.join_next().await.unwrap().ok(), Some(true));
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert!(locks.is_held("r", Some("b")) && !locks.is_held("r", Some("a")));
    assert!(!locks.release("r", "a"));
}

#[tokio::test(start_paused = true)]
async fn a_time_that_is_changed_counts_from_then() {
    let (locks, _time) = locks();
    assert!(write(&locks, "a", 60 * SECOND, SHORTEST_WAIT).await);
    advance(SECOND).await;
    assert!(locks.prolong("r", "a", 2 * SECOND));
    assert!(!locks.prolong("r", "b", SECOND));
    let begun = Instant::now();
    assert!(write(&locks, "b", SECOND, LONGEST_WAIT).await);
    assert_eq!(begun.elapsed().as_secs(), 2);
    advance(SECOND).await;
    assert!(
        !locks.is_held("r", None),
        "nobody has to look for a lock to end"
    );
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_leaves_the_line() {
    let (locks, _time) = locks();
    assert!(write(&locks, "a", LONGEST_TTL, SHORTEST_WAIT).await);
    let begun = Instant::now();
    assert!(!write(&locks, "b", SECOND, 3 * SECOND).await);
    assert_eq!(begun.elapsed().as_secs(), 3);
    assert!(!write(&locks, "b", SECOND, SHORTEST_WAIT).await);
    assert_eq!(locks.count(), (1, 0));
    assert!(locks.release("r", "a"));
    assert!(write(&locks, "b", SECOND, SHORTEST_WAIT).await);
}

#[tokio::test(start_paused = true)]
async fn it_is_first_come_first_served() {
    let (locks, _time) = locks();
    assert!(write(&locks, "a", LONGEST_TTL, SHORTEST_WAIT).await);
    let mut tasks = JoinSet::new();
    for (waiting, id) in [(1, "b"), (2, "c"), (3, "d")] {
        writer(&mut tasks, &locks, id);
        until(|| locks.count() == (1, waiting)).await;
    }
    for (id, next) in [("a", "b"), ("b", "c"), ("c", "d")] {
        assert!(locks.release("r", id));
        assert_eq!(tasks.join_next().await.unwrap().ok(), Some(true));
        assert!(locks.is_held("r", Some(next)));
    }
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_leaves_the_line_and_keeps_nothing() {
    let (locks, _time) = locks();
    assert!(write(&locks, "a", LONGEST_TTL, SHORTEST_WAIT).await);
    let mut tasks = JoinSet::new();
    writer(&mut tasks, &locks, "gone");
    until(|| locks.count() == (1, 1)).await;
    tasks.shutdown().await;
    assert_eq!(locks.count(), (1, 0));

    // Granted, and gone before it was told.
    writer(&mut tasks, &locks, "gone");
    until(|| locks.count() == (1, 1)).await;
    assert!(locks.release("r", "a"));
    assert!(locks.is_held("r", Some("gone")));
    tasks.shutdown().await;
    assert_eq!(locks.count(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_when_the_server_stops() {
    let (locks, _time) = locks();
    assert!(write(&locks, "a", LONGEST_TTL, SHORTEST_WAIT).await);
    let mut tasks = JoinSet::new();
    writer(&mut tasks, &locks, "b");
    until(|| locks.count() == (1, 1)).await;
    let begun = Instant::now();
    locks.stop();
    assert_eq!(tasks.join_next().await.unwrap().ok(), Some(false));
    assert!(!write(&locks, "c", SECOND, LONGEST_WAIT).await);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(locks.count(), (1, 0));
    assert!(locks.release("r", "a"));
    assert!(write(&locks, "c", SECOND, LONGEST_WAIT).await);
}
