//! One suite of tests for all drivers.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_cache::Cache;
use pronghorn_store::LazyStore;

use crate::driver::{Driver, DriverError, Entry, Item};
use crate::embedded::{self, Embedded};
use crate::memory::Memory;
use crate::moment::Moment;

const NOW: Moment = Moment::from_millis(1_795_667_400_000);

fn later(seconds: u64) -> Moment {
    NOW.after(Duration::from_secs(seconds))
}

fn key(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn keys(all: &[&str]) -> Vec<Bytes> {
    all.iter().map(|text| key(text)).collect()
}

fn item(name: &str, value: &str, ends: Option<Moment>) -> Item {
    Item {
        key: key(name),
        entry: Entry {
            value: key(value),
            ends,
        },
    }
}

/// The values of these keys at `now`; `-` for one that is not there.
async fn values(driver: &dyn Driver, all: &[&str], now: Moment) -> Vec<String> {
    let found = driver.get(keys(all), now).await.expect("it answers");
    let text = |entry: Option<Entry>| {
        entry.map_or_else(
            || "-".to_owned(),
            |entry| String::from_utf8(entry.value.to_vec()).expect("text"),
        )
    };
    found.into_iter().map(text).collect()
}

async fn keeps_and_forgets(driver: &dyn Driver) {
    assert_eq!(values(driver, &["a", "b"], NOW).await, ["-", "-"]);
    let items = vec![item("a", "1", None), item("b", "2", Some(later(60)))];
    driver.set(items, NOW).await.expect("kept");
    driver.set(Vec::new(), NOW).await.expect("nothing to do");
    assert_eq!(
        values(driver, &["b", "no", "a", "a"], NOW).await,
        ["2", "-", "1", "1"]
    );
    let has = driver.has(keys(&["a", "no", "b"]), NOW).await;
    assert_eq!(has, Ok(vec![true, false, true]));
    driver
        .set(vec![item("a", "new", None)], NOW)
        .await
        .expect("kept");
    driver.delete(keys(&["b", "no"])).await.expect("gone");
    assert_eq!(values(driver, &["a", "b"], NOW).await, ["new", "-"]);
    driver.clear().await.expect("empty");
    assert_eq!(values(driver, &["a"], NOW).await, ["-"]);
}

async fn ends_in_time(driver: &dyn Driver) {
    let items = vec![
        item("past", "1", Some(NOW)),
        item("short", "2", Some(NOW.after(Duration::from_millis(1)))),
        item("long", "3", Some(later(60))),
        item("ever", "4", None),
    ];
    driver.set(items, NOW).await.expect("kept");
    let all = ["past", "short", "long", "ever"];
    assert_eq!(values(driver, &all, NOW).await, ["-", "2", "3", "4"]);
    let then = NOW.after(Duration::from_millis(1));
    assert_eq!(values(driver, &all, then).await, ["-", "-", "3", "4"]);
    assert_eq!(values(driver, &all, later(60)).await, ["-", "-", "-", "4"]);
    let has = driver
        .has(keys(&["short", "long", "ever"]), later(60))
        .await;
    assert_eq!(has, Ok(vec![false, false, true]));

    // An end in the past removes what was there before.
    driver
        .set(vec![item("ever", "5", Some(NOW))], NOW)
        .await
        .expect("gone");
    assert_eq!(values(driver, &["ever"], NOW).await, ["-"]);
    driver.clear().await.expect("empty");
}

async fn gives_other_ends(driver: &dyn Driver) {
    let items = vec![item("a", "1", None), item("b", "2", Some(later(60)))];
    driver.set(items, NOW).await.expect("kept");
    let ends = vec![
        (key("a"), later(10)),
        (key("b"), later(120)),
        (key("no"), later(10)),
    ];
    driver.expire(ends, NOW).await.expect("done");
    assert_eq!(
        values(driver, &["a", "b", "no"], NOW).await,
        ["1", "2", "-"]
    );
    assert_eq!(values(driver, &["a", "b"], later(60)).await, ["-", "2"]);
    driver
        .expire(vec![(key("b"), NOW)], NOW)
        .await
        .expect("done");
    assert_eq!(values(driver, &["b"], NOW).await, ["-"]);
    driver.clear().await.expect("empty");
}

/// As far as a clock is seen that nobody moves.
async fn gives_ends(driver: &dyn Driver) {
    let items = vec![
        item("past", "1", Some(NOW)),
        item("a", "2", None),
        item("b", "3", Some(later(60))),
    ];
    driver.set(items, NOW).await.expect("kept");
    assert_eq!(
        values(driver, &["past", "a", "b"], NOW).await,
        ["-", "2", "3"]
    );
    let ends = vec![
        (key("a"), later(10)),
        (key("b"), NOW),
        (key("no"), later(10)),
    ];
    driver.expire(ends, NOW).await.expect("done");
    assert_eq!(
        values(driver, &["a", "b", "no"], NOW).await,
        ["2", "-", "-"]
    );
    let ends = driver.ends(keys(&["a"]), NOW).await.expect("it answers");
    let left = ends[0].flatten().map(|end| end.since(NOW).as_millis());
    assert!(
        left.is_some_and(|left| (9_000..=10_000).contains(&left)),
        "{left:?}"
    );
    driver.clear().await.expect("empty");
}

async fn takes_any_bytes(driver: &dyn Driver) {
    let all: Bytes = (0..=255_u8).collect();
    let long = Bytes::from(vec![b'k'; crate::messages::LONGEST_KEY]);
    let large = Bytes::from(vec![7; 512 << 10]);
    let items = vec![(all.clone(), Bytes::new()), (long.clone(), large.clone())];
    let item = |(key, value)| Item {
        key,
        entry: Entry { value, ends: None },
    };
    let kept = driver.set(items.into_iter().map(item).collect(), NOW).await;
    kept.expect("kept");
    let found = driver.get(vec![all, long], NOW).await.expect("it answers");
    let found: Vec<Bytes> = found.into_iter().flatten().map(|it| it.value).collect();
    assert_eq!(found, [Bytes::new(), large]);
    driver.clear().await.expect("empty");
}

async fn conforms(driver: &dyn Driver) {
    keeps_and_forgets(driver).await;
    gives_ends(driver).await;
    takes_any_bytes(driver).await;
    assert_eq!(driver.health(), Ok(()));
}

fn memory(size: usize) -> Memory {
    Memory::new(Cache::new(size, 1).expect("there is memory"))
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("pronghorn-kv-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn store(&self, limit: u64) -> LazyStore {
        LazyStore::new(self.0.clone(), limit)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The tests that failed may have left nothing.
        _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn memory_conforms() {
    conforms(&memory(128 << 20)).await;
}

#[tokio::test]
async fn an_entry_in_memory_ends_by_a_clock_that_nobody_sets() {
    let driver = memory(16 << 20);
    let soon = NOW.after(Duration::from_millis(20));
    driver
        .set(vec![item("a", "1", Some(soon))], NOW)
        .await
        .expect("kept");
    let until = tokio::time::Instant::now() + Duration::from_secs(5);
    while values(&driver, &["a"], NOW).await != ["-"] {
        assert!(tokio::time::Instant::now() < until, "it never ends");
    }
}

#[tokio::test]
async fn embedded_conforms() {
    let folder = Folder::new("conforms");
    let store = folder.store(16 << 20);
    let driver = Embedded::new("a", store.clone());
    let other = Embedded::new("ab", store.clone());
    other
        .set(vec![item("a", "other", None)], NOW)
        .await
        .expect("kept");
    conforms(&driver).await;
    ends_in_time(&driver).await;
    gives_other_ends(&driver).await;
    assert_eq!(
        values(&other, &["a"], NOW).await,
        ["other"],
        "nobody else's"
    );
    store.close().await;
}

#[tokio::test]
async fn embedded_outlives_the_server_and_is_swept() {
    let folder = Folder::new("outlives");
    let store = folder.store(16 << 20);
    let driver = Embedded::new("a", store.clone());
    let items = vec![
        item("ever", "1", None),
        item("long", "2", Some(later(60))),
        item("short", "3", Some(later(1))),
        item("other", "4", Some(later(1))),
    ];
    driver.set(items, NOW).await.expect("kept");
    driver
        .expire(vec![(key("other"), later(60))], NOW)
        .await
        .expect("done");
    store.close().await;

    let store = folder.store(16 << 20);
    let driver = Embedded::new("a", store.clone());
    assert_eq!(embedded::swept(&store, later(1)).await, 1);
    let all = ["ever", "long", "short", "other"];
    assert_eq!(values(&driver, &all, NOW).await, ["1", "2", "-", "4"]);
    assert_eq!(embedded::swept(&store, later(60)).await, 2);
    assert_eq!(embedded::swept(&store, later(60)).await, 0);
    assert_eq!(values(&driver, &all, NOW).await, ["1", "-", "-", "-"]);
    store.close().await;
}

#[tokio::test]
async fn a_full_storage_refuses_and_still_deletes() {
    let folder = Folder::new("full");
    let store = folder.store(200_000);
    let driver = Embedded::new("a", store.clone());
    let kept = driver.set(vec![item("a", &"x".repeat(100_000), None)], NOW);
    kept.await.expect("there is room");
    let refused = driver.set(vec![item("b", &"x".repeat(150_000), None)], NOW);
    let full = DriverError::Full { limit: 200_000 };
    assert_eq!(refused.await, Err(full));
    assert_eq!(values(&driver, &["b"], NOW).await, ["-"]);
    driver.delete(keys(&["a"])).await.expect("gone");
    let kept = driver.set(vec![item("b", &"x".repeat(150_000), None)], NOW);
    kept.await.expect("there is room again");
    store.close().await;
}
