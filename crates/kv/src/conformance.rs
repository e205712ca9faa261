//! One suite of tests for all drivers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_cache::Cache;
use pronghorn_store::LazyStore;
use pronghorn_testkit::{Certificates, Directory, Engine};
use tokio::time::{Instant, sleep};

use crate::driver::{
    Claim, Driver, DriverError, Entry, Item, LONGEST_ANSWER, Opened, SessionDriver,
};
use crate::embedded::{self, Embedded};
use crate::memcached::{Memcached, MemcachedAddress};
use crate::memory::Memory;
use crate::moment::Moment;
use crate::redis::Redis;

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
    let found = driver
        .get(keys(all), now, LONGEST_ANSWER)
        .await
        .expect("it answers");
    let text = |value: Option<Bytes>| {
        value.map_or_else(
            || "-".to_owned(),
            |value| String::from_utf8(value.to_vec()).expect("text"),
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
    let empty = driver.set(vec![item("empty", "", None)], NOW).await;
    empty.expect("kept");
    assert_eq!(
        values(driver, &["no", "empty", "a"], NOW).await,
        ["-", "", "new"]
    );
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

async fn takes_any_bytes(driver: &dyn Driver, longest_key: usize) {
    let low: Bytes = (0..=127_u8).collect();
    let high: Bytes = (128..=255_u8).collect();
    let long = Bytes::from(vec![b'k'; longest_key]);
    let large = Bytes::from(vec![7; 512 << 10]);
    let items = vec![
        (low.clone(), Bytes::new()),
        (long.clone(), large.clone()),
        (high.clone(), low.clone()),
    ];
    let item = |(key, value)| Item {
        key,
        entry: Entry { value, ends: None },
    };
    let kept = driver.set(items.into_iter().map(item).collect(), NOW).await;
    kept.expect("kept");
    let asked = vec![low.clone(), long, high.clone()];
    let found = driver
        .get(asked, NOW, LONGEST_ANSWER)
        .await
        .expect("it answers");
    let found: Vec<Bytes> = found.into_iter().flatten().collect();
    assert!(
        found == [Bytes::new(), large, low.clone()],
        "not all is as it was"
    );
    driver.delete(vec![low.clone()]).await.expect("gone");
    let has = driver.has(vec![low, high], NOW).await;
    assert_eq!(has, Ok(vec![false, true]));
    driver.clear().await.expect("empty");
}

/// More than are on their way at a time.
async fn takes_many_at_once(driver: &dyn Driver) {
    let names: Vec<String> = (0..1000).map(|number| format!("many:{number}")).collect();
    let items = names.iter().map(|name| item(name, name, None)).collect();
    driver.set(items, NOW).await.expect("kept");
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    assert_eq!(values(driver, &names, NOW).await, names);
    driver.delete(keys(&names)).await.expect("gone");
    let has = driver.has(keys(&names), NOW).await;
    assert_eq!(has, Ok(vec![false; 1000]));
}

/// Two servers open sessions; the second one is kept out where they share the storage.
async fn keeps_sessions(driver: Arc<dyn SessionDriver>, are_told_apart: bool) {
    let claim = |server: &str| Claim {
        id: "abc".to_owned(),
        server: key(server),
    };
    // It ends by the time that the driver gets: a later one would keep it for longer.
    let session = |value: &str, now: Moment| item("", value, Some(now.after(SESSION))).entry;
    let open = async |server: &str| {
        let now = Moment::now();
        let opened = driver.open(claim(server), now, 10).await;
        let Opened::Here(found) = opened.expect("it answers") else {
            return "elsewhere".into();
        };
        found.map_or_else(Bytes::new, |entry| {
            let left = entry.ends.expect("it ends").since(now);
            assert!(left <= SESSION && left > SESSION / 2);
            entry.value
        })
    };
    assert_eq!(open("one").await, "");
    assert_eq!(open("one").await, "", "its own");
    if are_told_apart {
        assert_eq!(open("two").await, "elsewhere");
        assert_eq!(driver.renew(claim("two")).await, Ok(false));
        driver.close(claim("two")).await.expect("not its own");
        assert_eq!(open("two").await, "elsewhere");
    }
    assert_eq!(driver.renew(claim("one")).await, Ok(true));
    let now = Moment::now();
    let kept = driver.write_and_close(claim("one"), session("1", now), now);
    kept.await.expect("kept");
    assert_eq!(open("two").await, "1");
    driver.close(claim("two")).await.expect("closed");
    driver.close(claim("two")).await.expect("closed already");
    assert_eq!(open("one").await, "1");
    driver.close(claim("one")).await.expect("closed");
    let kept = driver
        .get(vec![claim("one").data_key()], now, LONGEST_ANSWER)
        .await;
    assert_eq!(kept, Ok(vec![Some(key("1"))]));
    for (value, most, expected) in [
        ("", 3, Ok(Some(0))),
        ("abc", 3, Ok(Some(3))),
        ("abcd", 3, Err(DriverError::LongAnswer { most: 3 })),
    ] {
        let kept = driver.write_and_close(claim("one"), session(value, now), now);
        kept.await.expect("kept");
        let opened = driver.open(claim("one"), now, most).await;
        let length = opened.map(|opened| match opened {
            Opened::Here(found) => found.map(|entry| entry.value.len()),
            Opened::Elsewhere => panic!("nobody else has it"),
        });
        assert_eq!(length, expected);
    }
    driver.close(claim("one")).await.expect("closed");
    driver.clear().await.expect("empty");
    assert_eq!(open("one").await, "");
    driver.close(claim("one")).await.expect("closed");
}

const SESSION: Duration = Duration::from_secs(600);

async fn conforms(driver: &dyn Driver) {
    conforms_with(driver, crate::messages::LONGEST_KEY).await;
}

async fn conforms_with(driver: &dyn Driver, longest_key: usize) {
    keeps_and_forgets(driver).await;
    gives_ends(driver).await;
    takes_any_bytes(driver, longest_key).await;
    takes_many_at_once(driver).await;
    assert_eq!(driver.health(), Ok(()));
}

fn memory(size: usize) -> Memory {
    Memory::new(Cache::new(size, 1).expect("there is memory"))
}

fn store_in(directory: &Directory, limit: u64) -> LazyStore {
    LazyStore::new(directory.to_path_buf(), limit)
}

#[tokio::test]
async fn memory_conforms() {
    conforms(&memory(128 << 20)).await;
}

#[tokio::test]
async fn of_several_none_is_kept_where_one_is_too_long() {
    let driver = memory(4 << 20);
    let now = Moment::now();
    driver
        .set(vec![item("b", "before", None)], now)
        .await
        .unwrap();
    let long = "x".repeat(1 << 20);
    let items = vec![
        item("a", "new", None),
        item("b", "gone", Some(now)),
        item("c", &long, None),
    ];
    let refused = driver.set(items, now).await.unwrap_err();
    assert!(matches!(refused, DriverError::TooLong { .. }), "{refused}");
    assert_eq!(
        values(&driver, &["a", "b", "c"], now).await,
        ["-", "before", "-"]
    );
    // An entry that is over takes no room.
    let over = vec![item("a", "new", None), item("c", &long, Some(now))];
    driver.set(over, now).await.unwrap();
    assert_eq!(values(&driver, &["a"], now).await, ["new"]);
}

#[tokio::test]
async fn an_entry_in_memory_ends_by_a_clock_that_nobody_sets() {
    let driver = memory(16 << 20);
    let soon = NOW.after(Duration::from_millis(20));
    driver
        .set(vec![item("a", "1", Some(soon))], NOW)
        .await
        .expect("kept");
    let until = Instant::now() + Duration::from_secs(5);
    while values(&driver, &["a"], NOW).await != ["-"] {
        assert!(Instant::now() < until, "it never ends");
    }
}

#[tokio::test]
async fn embedded_conforms() {
    let directory = Directory::new();
    let store = store_in(&directory, 16 << 20);
    let driver = Embedded::new("a", store.clone());
    let other = Embedded::new("ab", store.clone());
    other
        .set(vec![item("a", "other", None)], NOW)
        .await
        .expect("kept");
    conforms(&driver).await;
    ends_in_time(&driver).await;
    gives_other_ends(&driver).await;
    keeps_sessions(Arc::new(driver), false).await;
    assert_eq!(
        values(&other, &["a"], NOW).await,
        ["other"],
        "nobody else's"
    );
    store.close().await;
}

/// The others have tests of their own.
#[tokio::test]
async fn values_that_are_longer_than_an_answer_are_refused() {
    let directory = Directory::new();
    let store = store_in(&directory, 16 << 20);
    let drivers: [&dyn Driver; 2] = [&memory(128 << 20), &Embedded::new("a", store.clone())];
    for driver in drivers {
        let half = "x".repeat(512 << 10);
        let kept = driver.set(vec![item("half", &half, None)], NOW).await;
        kept.expect("kept");
        for (most, fit) in [(LONGEST_ANSWER, 128), (1 << 20, 2)] {
            let found = driver.get(keys(&vec!["half"; fit]), NOW, most).await;
            assert_eq!(found.expect("as much as there may be").len(), fit);
            let refused = driver.get(keys(&vec!["half"; fit + 1]), NOW, most).await;
            let expected = Err(DriverError::LongAnswer { most });
            assert_eq!(refused, expected, "{}", driver.name());
        }
    }
    store.close().await;
}

#[tokio::test]
async fn embedded_outlives_the_server_and_is_swept() {
    let directory = Directory::new();
    let store = store_in(&directory, 16 << 20);
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

    let store = store_in(&directory, 16 << 20);
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
    let directory = Directory::new();
    let store = store_in(&directory, 200_000);
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

/// Until a server of a test has started.
async fn until_up(driver: &dyn Driver) {
    let until = Instant::now() + Duration::from_secs(20);
    while let Err(wrong) = driver.probe().expect("it is a server").await {
        assert!(Instant::now() < until, "{wrong}");
        sleep(Duration::from_millis(20)).await;
    }
    driver.clear().await.expect("it is up");
}

/// Away it says so within its deadline; back it answers again.
async fn goes_and_comes(driver: &dyn Driver, engine: &mut Engine, title: &str) {
    driver
        .set(vec![item("a", "1", None)], NOW)
        .await
        .expect("kept");
    engine.stop();
    let began = Instant::now();
    let refused = driver.get(keys(&["a"]), NOW, LONGEST_ANSWER).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    let Err(DriverError::Unavailable(said)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        said.starts_with(&format!("{title} does not answer: ")),
        "{said}"
    );
    // A connection that was open before it went is no health either.
    _ = driver.probe().expect("it is a server").await;
    assert!(driver.health().is_err_and(|it| it.starts_with(title)));
    engine.restart();
    until_up(driver).await;
    driver
        .set(vec![item("a", "2", None)], NOW)
        .await
        .expect("kept");
    assert_eq!(values(driver, &["a"], NOW).await, ["2"]);
    assert_eq!(driver.health(), Ok(()));
}

mod in_memcached {
    use super::*;

    /// What is sent in base64.
    const LONGEST_KEY: usize = 250;

    fn start() -> Engine {
        Engine::start("memcached", |port| {
            let port = port.to_string();
            let fixed = ["-l", "127.0.0.1", "-U", "0", "-u", "nobody", "-p", &port];
            fixed.iter().map(|text| (*text).to_owned()).collect()
        })
    }

    fn driver(engines: &[&Engine]) -> Memcached {
        let address = |engine: &&Engine| {
            let text = format!("127.0.0.1:{}", engine.port());
            MemcachedAddress::parse(&text).expect("it is one")
        };
        let addresses = engines.iter().map(address).collect();
        Memcached::new(addresses, Duration::from_secs(1))
    }

    #[tokio::test]
    async fn memcached_conforms() {
        let engine = start();
        let driver = driver(&[&engine]);
        until_up(&driver).await;
        conforms_with(&driver, LONGEST_KEY).await;
        let long = driver
            .get(vec![Bytes::from(vec![b'k'; 251])], NOW, LONGEST_ANSWER)
            .await;
        assert_eq!(long, Err(DriverError::LongKey { length: 251 }));
    }

    #[tokio::test]
    async fn several_memcacheds_are_one_storage() {
        let (one, other) = (start(), start());
        let driver = driver(&[&one, &other]);
        until_up(&driver).await;
        conforms_with(&driver, LONGEST_KEY).await;
        // What RoadRunner's client makes of these names.
        let items = vec![item("d", "1", None), item("price", "2", None)];
        driver.set(items, NOW).await.expect("kept");
        let first = self::driver(&[&one]);
        let second = self::driver(&[&other]);
        assert_eq!(values(&first, &["d", "price"], NOW).await, ["1", "-"]);
        assert_eq!(values(&second, &["d", "price"], NOW).await, ["-", "2"]);
    }

    #[tokio::test]
    async fn a_memcached_that_goes_and_comes_is_found_again() {
        let mut engine = start();
        let driver = driver(&[&engine]);
        until_up(&driver).await;
        let title = format!("the memcached at 127.0.0.1:{}", engine.port());
        goes_and_comes(&driver, &mut engine, &title).await;
    }

    #[tokio::test]
    async fn a_value_that_it_does_not_take_is_refused_and_the_next_one_kept() {
        let engine = start();
        let driver = driver(&[&engine]);
        until_up(&driver).await;
        let large = "x".repeat(2 << 20);
        let refused = driver.set(vec![item("a", &large, None)], NOW).await;
        let Err(DriverError::Unavailable(said)) = refused else {
            panic!("{refused:?}");
        };
        assert!(said.contains("object too large for cache"), "{said}");
        driver
            .set(vec![item("a", "1", None)], NOW)
            .await
            .expect("kept");
        assert_eq!(values(&driver, &["a"], NOW).await, ["1"]);
        assert_eq!(driver.health(), Ok(()), "it does answer");
    }
}

mod in_redis {
    use std::process::Command;

    use pronghorn_redis::{RedisAddress, RedisSettings, Tls};

    use super::*;

    fn settings(engines: &[&Engine]) -> RedisSettings {
        let address = |engine: &&Engine| RedisAddress::Tcp("127.0.0.1".to_owned(), engine.port());
        RedisSettings {
            dial_timeout: Duration::from_secs(2),
            read_timeout: Duration::from_secs(2),
            ..RedisSettings::at(engines.iter().map(address).collect())
        }
    }

    const PREFIXES: [&str; 3] = ["", "shop:", "{shop}:"];

    fn driver(settings: RedisSettings) -> Redis {
        Redis::new(settings, String::new())
    }

    #[tokio::test]
    async fn redis_conforms() {
        let engine = Engine::redis(&[]);
        let driver = driver(settings(&[&engine]));
        until_up(&driver).await;
        conforms(&driver).await;
        driver
            .set(vec![item("user:1", "x", None)], NOW)
            .await
            .expect("kept");
        assert_eq!(
            engine.redis_cli(&["get", "user:1"]),
            "x",
            "RoadRunner finds it"
        );
    }

    #[tokio::test]
    async fn redis_sends_no_more_of_values_than_there_is_room_for() {
        const MOST: usize = 100_000;
        let engine = Engine::redis(&[]);
        let driver = driver(settings(&[&engine]));
        until_up(&driver).await;
        let sent = || {
            let stats = engine.redis_cli(&["info", "stats"]);
            let mut lines = stats.lines();
            let bytes = lines.find_map(|line| line.strip_prefix("total_net_output_bytes:"));
            let bytes = bytes.expect("it says so").trim().parse::<usize>();
            bytes.expect("a number")
        };
        let items = vec![
            item("long", &"x".repeat(20 << 20), None),
            item("fits", &"x".repeat(MOST), None),
        ];
        driver.set(items, NOW).await.expect("kept");
        let before = sent();
        for name in ["long", "fits"] {
            let refused = driver.get(keys(&[name]), NOW, MOST - 1).await;
            assert_eq!(refused, Err(DriverError::LongAnswer { most: MOST - 1 }));
        }
        let told = driver.get(keys(&["fits"]), NOW, MOST).await.expect("read");
        assert_eq!(told[0].as_ref().map(Bytes::len), Some(MOST));
        let more = sent() - before;
        assert!(more < 4 * MOST, "{more} bytes");
    }

    #[tokio::test]
    async fn a_prefix_keeps_storages_apart() {
        let engine = Engine::redis(&[]);
        let one = Redis::new(settings(&[&engine]), "a*:".to_owned());
        let other = Redis::new(settings(&[&engine]), "ab:".to_owned());
        until_up(&one).await;
        for prefix in PREFIXES {
            let part = Redis::new(settings(&[&engine]), prefix.to_owned());
            keeps_sessions(Arc::new(part), true).await;
        }
        other
            .set(vec![item("x", "other", None)], NOW)
            .await
            .expect("kept");
        conforms(&one).await;
        assert_eq!(values(&other, &["x"], NOW).await, ["other"]);
        assert_eq!(engine.redis_cli(&["keys", "*"]), "ab:x");
    }

    #[tokio::test]
    async fn a_redis_that_goes_and_comes_is_found_again() {
        let mut engine = Engine::redis(&[]);
        let driver = driver(settings(&[&engine]));
        until_up(&driver).await;
        let title = format!("the Redis at 127.0.0.1:{}", engine.port());
        goes_and_comes(&driver, &mut engine, &title).await;
    }

    #[tokio::test]
    async fn a_redis_that_was_started_anew_answers_the_first_call() {
        let mut engine = Engine::redis(&[]);
        let driver = driver(settings(&[&engine]));
        until_up(&driver).await;
        engine.stop();
        engine.restart();
        until_up(&self::driver(settings(&[&engine]))).await;
        let got = driver.get(keys(&["a"]), NOW, LONGEST_ANSWER).await;
        assert_eq!(got, Ok(vec![None]));
    }

    #[tokio::test]
    async fn a_redis_that_is_stopped_is_given_up_in_time() {
        let engine = Engine::redis(&[]);
        let driver = driver(settings(&[&engine]));
        until_up(&driver).await;
        let pid = engine.redis_cli(&["info", "server"]);
        let pid = pid
            .lines()
            .find_map(|line| line.strip_prefix("process_id:"));
        let pid = pid.expect("it says so").trim().to_owned();
        let signal = |name: &str| {
            let sent = Command::new("kill").args([name, &pid]).status();
            assert!(sent.is_ok_and(|it| it.success()));
        };
        signal("-STOP");
        let began = Instant::now();
        let refused = driver.get(keys(&["a"]), NOW, LONGEST_ANSWER).await;
        signal("-CONT");
        assert!(began.elapsed() < Duration::from_secs(10));
        let Err(DriverError::Unavailable(said)) = refused else {
            panic!("{refused:?}");
        };
        assert!(
            said.ends_with("does not answer: no answer within 2s"),
            "{said}"
        );
        until_up(&driver).await;
    }

    #[tokio::test]
    async fn a_password_that_is_wrong_is_refused_and_not_shown() {
        let engine = Engine::redis(&["--requirepass", "right"]);
        let with = |password: &str| {
            driver(RedisSettings {
                password: Some(password.to_owned()),
                ..settings(&[&engine])
            })
        };
        until_up(&with("right")).await;
        let wrong = with("wrong-one");
        let refused = wrong.get(keys(&["a"]), NOW, LONGEST_ANSWER).await;
        let Err(DriverError::Unavailable(said)) = refused else {
            panic!("{refused:?}");
        };
        assert!(said.contains("Password authentication failed"), "{said}");
        assert!(!format!("{said} {wrong:?}").contains("wrong-one"), "{said}");
    }

    #[tokio::test]
    async fn a_cluster_is_one_storage() {
        let nodes = Engine::redis_cluster(&[]);
        let all: Vec<&Engine> = nodes.iter().collect();
        let cluster = Redis::new(settings(&all), String::new());
        until_up(&cluster).await;
        conforms(&cluster).await;
        for prefix in PREFIXES {
            let part = Redis::new(settings(&all), prefix.to_owned());
            keeps_sessions(Arc::new(part), true).await;
        }
        let part = Redis::new(settings(&all), "part:".to_owned());
        let names: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        let items = || names.iter().map(|name| item(name, "1", None)).collect();
        part.set(items(), NOW).await.expect("kept");
        cluster.set(items(), NOW).await.expect("kept");
        part.clear().await.expect("empty");
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        assert_eq!(part.has(keys(&names), NOW).await, Ok(vec![false; 30]));
        assert_eq!(cluster.has(keys(&names), NOW).await, Ok(vec![true; 30]));
        cluster.clear().await.expect("empty");
        assert_eq!(cluster.has(keys(&names), NOW).await, Ok(vec![false; 30]));
    }

    #[tokio::test]
    async fn sentinels_name_the_master() {
        let master = Engine::redis(&[]);
        let sentinel = Engine::redis_sentinel(&master);
        let driver = driver(RedisSettings {
            master_name: Some("main".to_owned()),
            ..settings(&[&sentinel])
        });
        until_up(&driver).await;
        conforms(&driver).await;
        driver
            .set(vec![item("a", "1", None)], NOW)
            .await
            .expect("kept");
        assert_eq!(master.redis_cli(&["get", "a"]), "1");
    }

    #[tokio::test]
    async fn tls_is_spoken_with_who_is_trusted() {
        let certificates = Certificates::new();
        let file = |name: &str| certificates.path(name).to_string_lossy().into_owned();
        let (cert, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
        let engine = Engine::start("redis-server", |port| {
            let port = port.to_string();
            let all = [
                "--port",
                "0",
                "--tls-port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--tls-cert-file",
                &cert,
                "--tls-key-file",
                &key,
                "--tls-ca-cert-file",
                &ca,
            ];
            all.iter().map(|text| (*text).to_owned()).collect()
        });
        let with = |tls: Tls| {
            driver(RedisSettings {
                tls: Some(tls),
                ..settings(&[&engine])
            })
        };
        let root_ca = Some(certificates.path("ca.pem"));
        let identity = Some((
            certificates.path("client.pem"),
            certificates.path("client.key"),
        ));
        let right = with(Tls {
            root_ca: root_ca.clone(),
            identity,
        });
        until_up(&right).await;
        conforms(&right).await;
        let nobody = with(Tls {
            root_ca,
            identity: None,
        });
        assert!(
            nobody.has(keys(&["a"]), NOW).await.is_err(),
            "it asks for a certificate"
        );
        let untrusted = with(Tls::default());
        assert!(untrusted.has(keys(&["a"]), NOW).await.is_err());
    }
}
