//! A cache in memory that the test, in Rust, and PHP processes share: both ends agree, and a
//! process that is killed at any mark of `ext/pronghorn/cache_segment.h`, or stopped, is in
//! nobody's way.

use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use pronghorn_cache::layout::{BYTES, FLOAT, INTEGER, NULL, SERIALIZED, TRUE};
use pronghorn_cache::{Cache, NewEntry, Outcome};
use pronghorn_testkit::{Server, Site, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::killed::build_with_marks;
use crate::ring::extension;

fn php(cache: &Cache, extension: &Path, code: &str, kill_at: &str) -> Child {
    let memory = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        cache.file().as_raw_fd()
    );
    let script = format!(
        "exec php -d extension={} -r \"$CODE\" 9<>{memory}",
        extension.display()
    );
    let code = format!("$c = Pronghorn\\Cache\\SharedMemory::open('it'); {code}");
    Command::new("sh")
        .args(["-c", &script])
        .env("CODE", code)
        .env("PRONGHORN_CACHE", "9=it")
        .env("PRONGHORN_KILL_AT", kill_at)
        .stdout(Stdio::piped())
        .spawn()
        .expect("php runs")
}

fn said(cache: &Cache, code: &str) -> String {
    let php = php(cache, &extension(), code, "").wait_with_output();
    let php = php.expect("it ends");
    assert!(php.status.success(), "{php:?}");
    String::from_utf8(php.stdout).expect("text")
}

fn entry<'a>(key: &'a [u8], value: &'a [u8]) -> NewEntry<'a> {
    NewEntry {
        key,
        value,
        kind: BYTES,
        ends: 0,
    }
}

#[test]
fn both_ends_read_what_the_other_one_writes() {
    let cache = Cache::new(16 << 20, 5).expect("there is memory");
    said(
        &cache,
        "for ($i = 0; $i < 300; $i++) { $c->set(str_repeat('k', $i + 1), str_repeat(chr($i % 256), $i * 7)); }
         $c->set('int', -5); $c->set('float', 1.5); $c->set('null', null); $c->set('true', true);
         $c->set('array', ['a' => [1]]); $c->set('ends', 1, 60.0);",
    );
    for i in 0..300_usize {
        let found = cache.get(&vec![b'k'; i + 1]).expect("it was set");
        let byte = u8::try_from(i % 256).expect("a byte");
        assert_eq!(found.value(), vec![byte; i * 7], "{i}");
    }
    let kind = |key: &str| cache.get(key.as_bytes()).map(|it| it.kind());
    for (key, of) in [
        ("int", INTEGER),
        ("float", FLOAT),
        ("null", NULL),
        ("true", TRUE),
    ] {
        assert_eq!(kind(key), Some(of), "{key}");
    }
    assert!(kind("array").is_some_and(|kind| kind >= SERIALIZED));
    let left = Cache::until(cache.get(b"ends").expect("it was set").ends());
    assert!(
        left > Duration::from_secs(50) && left <= Duration::from_secs(60),
        "{left:?}"
    );

    for length in 0..200 {
        cache
            .set(&entry(format!("r{length}").as_bytes(), &vec![7; length]))
            .expect("kept");
    }
    cache.increment(b"n", 41, 0).expect("kept");
    let code = "for ($i = 0; $i < 200; $i++) { if ($c->get(\"r$i\") !== str_repeat(chr(7), $i)) { echo \"$i \"; } }
         echo $c->increment('n'), json_encode([$c->get('array'), $c->get('int'), $c->get('float'), $c->get('null', 7), $c->get('true')]);";
    assert_eq!(said(&cache, code), r#"42[{"a":[1]},-5,1.5,null,true]"#);
    assert_eq!(
        said(
            &cache,
            "echo $c->clear('r'), ' ', $c->delete('int') ? 'gone' : '';"
        ),
        "200 gone"
    );
    assert_eq!(cache.get(b"r5"), None);
    said(
        &cache,
        "$c->set('over', 1, 0.001); usleep(3000); $c->set('over', 2);",
    );
    assert_eq!(cache.figures().evictions, 0, "what is over need not go");
}

#[test]
fn counters_of_several_processes_lose_nothing() {
    let cache = Cache::new(8 << 20, 6).expect("there is memory");
    let code = "for ($i = 0; $i < 20000; $i++) { $c->increment('n'); $c->set('k' . $i % 50, str_repeat('v', $i % 500)); $c->add(\"once$i\", 1) && $c->increment('added'); }";
    let others: Vec<Child> = (0..3)
        .map(|_| php(&cache, &extension(), code, ""))
        .collect();
    for _ in 0..20_000 {
        cache.increment(b"n", 1, 0).expect("kept");
    }
    for other in others {
        assert!(other.wait_with_output().expect("it ends").status.success());
    }
    assert_eq!(cache.increment(b"n", 0, 0), Ok(Some(80_000)));
    assert!(
        cache
            .increment(b"added", 0, 0)
            .is_ok_and(|it| it >= Some(20_000))
    );
}

/// Sets and deletes many keys, in a small cache, for longer than a test takes.
const BUSY: &str = "for ($i = 0; $i < 5_000_000; $i++) { $k = 'key' . $i % 700; $c->set($k, str_repeat($k, $i % 97 + 1)); $i % 5 || $c->delete('key' . ($i * 7 % 700)); }";

/// Whatever is there is right, and there is room for more than the cache holds.
fn is_sound(cache: &Cache, what: &str) {
    for number in 0..700 {
        let key = format!("key{number}");
        if let Some(found) = cache.get(key.as_bytes()) {
            let value = found.value();
            let is_right = value.chunks(key.len()).all(|part| part == key.as_bytes());
            assert!(is_right && !value.is_empty(), "{what}: {key}");
        }
    }
    for number in 0..10_000_u32 {
        let key = number.to_le_bytes();
        cache.set(&entry(&key, &[1; 300])).expect(what);
        assert!(
            cache.get(&key).is_some_and(|it| it.value() == [1; 300]),
            "{what}: {number}"
        );
    }
    assert_eq!(cache.add(&entry(b"free", b"")), Ok(Outcome::Done), "{what}");
}

#[test]
fn a_process_that_is_killed_at_any_mark_is_in_nobodys_way() {
    let header = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext/pronghorn/cache_segment.h"),
    )
    .expect("it is there");
    let marks: Vec<&str> = header
        .lines()
        .filter_map(|line| line.strip_prefix("\tmark(")?.split_once(')'))
        .map(|(mark, _)| mark)
        .collect();
    assert!(marks.len() > 5, "{marks:?}");
    for mark in marks {
        let cache = Cache::new(2 << 20, 7).expect("there is memory");
        for round in 0..3 {
            let what = format!("{mark}, {round}");
            let killed = php(&cache, &build_with_marks(), BUSY, mark).wait_with_output();
            let status = killed.expect("it ends").status;
            assert_eq!(status.signal(), Some(9), "{what}: {status}");
            is_sound(&cache, &what);
            cache.delete(b"free");
        }
    }
}

#[test]
fn stopped_processes_are_in_nobodys_way() {
    let cache = Cache::new(4 << 20, 8).expect("there is memory");
    for round in 0..10_u64 {
        let mut busy = php(&cache, &extension(), BUSY, "");
        let pid = Pid::from_raw(i32::try_from(busy.id()).expect("a pid")).expect("a pid");
        let before = cache.figures().writes;
        wait_for("it to write", || {
            (cache.figures().writes > before + 1000 + round * 17).then_some(())
        });
        kill_process(pid, Signal::STOP).expect("it runs");
        let began = SystemTime::now();
        is_sound(&cache, "stopped");
        assert!(began.elapsed().expect("time goes on") < Duration::from_secs(20));
        cache.delete(b"free");
        kill_process(pid, Signal::CONT).expect("it is there");
        busy.kill().expect("it runs");
        busy.wait().expect("it ends");
        is_sound(&cache, "gone on");
        cache.delete(b"free");
    }
}

/// A worker of each kind answers with what its storages have.
fn site(pool: &str, kv: &str) -> Site {
    let body = "$c = Pronghorn\\Cache\\SharedMemory::open('fast');
        return $c === null ? 'none' : (string) $c->increment('hits');";
    let script = "<?php $c = Pronghorn\\Cache\\SharedMemory::open('fast'); echo $c === null ? 'none' : $c->increment('hits');";
    let extension = extension().display().to_string();
    Site::new()
        .file("worker.php", &Site::sdk_worker(body))
        .file("public/index.php", script)
        .config(&format!(
            "version: '3'\nserver: {{command: php -d extension={extension} worker.php}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 2, {pool}}}}}\n\
             rpc: {{listen: 'tcp://127.0.0.1:0'}}\nlogs: {{level: debug}}\nkv: {kv}\n"
        ))
}

#[test]
fn workers_of_all_kinds_share_a_storage_with_rpc() {
    let php = format!("php: 'php -d extension={}'", extension().display());
    let classic = format!("mode: classic, root: public, {php}");
    let by_exec = format!("{classic}, spawn: exec");
    for pool in ["transport: ring", "transport: relay", &classic, &by_exec] {
        let server = Server::start(site(
            pool,
            "{fast: {driver: memory}, other: {driver: memory}}",
        ));
        for hits in 1..=6 {
            assert_eq!(server.get("/").text(), hits.to_string(), "{pool}");
        }
        let mut rpc = crate::control::Rpc::connect(&server);
        let asked = rpc.call("kv.MGet", r#"{"storage":"Fast","items":[{"key":"hits"}]}"#);
        assert_eq!(
            asked, r#"{"items":[{"key":"hits","value":"aTo2Ow=="}]}"#,
            "i:6;"
        );
        assert_eq!(rpc.call("resetter.Reset", "\"http\""), "true");
        assert_eq!(server.get("/").text(), "7", "{pool}");
        drop(rpc);
        server.stop();
    }
}

#[test]
fn a_pool_sees_the_storages_that_it_is_given() {
    for (storages, answer) in [("[]", "none"), ("[other]", "none"), ("[Fast]", "1")] {
        let pool = format!("storages: {storages}");
        let server = Server::start(site(
            &pool,
            "{fast: {driver: memory}, other: {driver: memory}}",
        ));
        assert_eq!(server.get("/").text(), answer, "{storages}");
        server.stop();
    }
}

#[test]
fn a_worker_without_the_extension_goes_over_rpc() {
    let body = "$store = new Pronghorn\\Cache\\Rpc(Pronghorn\\Rpc::connect(), 'fast');
        $lock = new Pronghorn\\Cache\\Lock($store, 'l', 5.0);
        $sum = [$store->increment('n', 2), $store->add('a', [1]), $store->get('a'), $store->compareAndSwap('a', [1], null),
            $store->get('a', 7), $lock->acquire(), $lock->token(), $lock->release(), $store->clear('n'), $store->get('n', 'gone')];
        return json_encode([class_exists('Pronghorn\\Cache\\SharedMemory', false), ...$sum]);";
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/autoload.php");
    let worker =
        Site::sdk_worker(body).replacen("<?php", &format!("<?php require '{packages}';"), 1);
    let site = site(
        "transport: relay, num_workers: 1",
        "{fast: {driver: memory}}",
    )
    .file("worker.php", &worker);
    let config = std::fs::read_to_string(site.path(".rr.yaml")).expect("it is there");
    let config = config.replace(&format!("-d extension={} ", extension().display()), "");
    let server = Server::start(site.config(&config.replace("num_workers: 2, ", "")));
    let answer = server.get("/").text();
    assert_eq!(
        answer,
        r#"[false,2,true,[1],true,null,true,1,true,1,"gone"]"#
    );
    server.stop();
}
