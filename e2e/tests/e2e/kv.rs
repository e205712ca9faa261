//! Storages of keys and values, as RoadRunner's package calls them.

use std::fmt::Write;
use std::time::Duration;

use pronghorn_testkit::{Engine, Server, Site, binary, php_command, wait_for};
use pronghorn_wire::frame::Flags;

use crate::control::{Rpc, probe};
use crate::ring::extension;

fn start(storages: &str) -> (Server, Rpc) {
    start_at("tcp://127.0.0.1:0", storages)
}

fn start_at(rpc: &str, storages: &str) -> (Server, Rpc) {
    let site = Site::with_worker("app.php");
    let config = std::fs::read_to_string(site.path(".rr.yaml")).expect("it is there");
    let server = Server::start(site.config(&format!(
        "{config}rpc: {{listen: '{rpc}'}}\nstate_dir: state\nkv: {{{storages}}}\n"
    )));
    let rpc = Rpc::connect(&server);
    (server, rpc)
}

/// A request of the package: storage, and items of key, value and timeout, as protobuf.
fn request(storage: &str, items: &[(&[u8], &[u8], &str)]) -> Vec<u8> {
    fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        out.push(number << 3 | 2);
        out.push(u8::try_from(bytes.len()).expect("short"));
        out.extend_from_slice(bytes);
    }
    let mut out = Vec::new();
    field(&mut out, 1, storage.as_bytes());
    for (key, value, timeout) in items {
        let mut item = Vec::new();
        field(&mut item, 1, key);
        field(&mut item, 2, value);
        field(&mut item, 3, timeout.as_bytes());
        out.push(2 << 3 | 2);
        out.push(u8::try_from(item.len()).expect("short"));
        out.extend_from_slice(&item);
    }
    out
}

/// The answer's bytes; an error begins with `error: `.
fn call(rpc: &mut Rpc, method: &str, request: &[u8]) -> String {
    let (flags, answer) = rpc.ask(Flags::PROTO, method, request);
    let text = answer.escape_ascii().to_string();
    if flags.has(Flags::ERROR) {
        return format!("error: {text}");
    }
    assert!(flags.has(Flags::PROTO), "{flags:?}");
    text
}

const ALL: [&str; 2] = ["fast", "Kept"];

#[test]
fn the_package_keeps_reads_and_deletes() {
    let (server, mut rpc) =
        start("fast: {driver: memory, config: {interval: 60}}, Kept: {driver: boltdb}");
    for storage in ALL {
        let a: &[u8] = b"a\xff";
        let set = request(
            storage,
            &[(a, b"\x00v", ""), (b"b", b"w", "2030-01-02T03:04:05+01:00")],
        );
        assert_eq!(call(&mut rpc, "kv.Set", &set), "");
        let both = request(
            &storage.to_lowercase(),
            &[(a, b"", ""), (b"no", b"", ""), (b"b", b"", "")],
        );
        assert_eq!(
            call(&mut rpc, "kv.MGet", &both),
            r"\n\x08\n\x02a\xff\x12\x02\x00v\n\x06\n\x01b\x12\x01w"
        );
        assert_eq!(
            call(&mut rpc, "kv.Has", &both),
            r"\n\x04\n\x02a\xff\n\x03\n\x01b"
        );
        // In memory it is found by another clock than the calendar's, to a millisecond.
        let ends = call(&mut rpc, "kv.TTL", &both);
        assert!(
            ends.starts_with(r"\n\x04\n\x02a\xff\n") && ends.contains(r"\n\x01b\x1a"),
            "{ends}"
        );
        assert!(ends.contains("2030-01-02T02:04:0"), "{ends}");
        let expire = request(storage, &[(b"b", b"", "2020-01-01T00:00:00Z")]);
        assert_eq!(call(&mut rpc, "kv.MExpire", &expire), "");
        assert_eq!(call(&mut rpc, "kv.Has", &both), r"\n\x04\n\x02a\xff");
        assert_eq!(call(&mut rpc, "kv.Delete", &both), "");
        assert_eq!(call(&mut rpc, "kv.MGet", &both), "");
        assert_eq!(call(&mut rpc, "kv.Set", &set), "");
        assert_eq!(call(&mut rpc, "kv.Clear", &request(storage, &[])), "");
        assert_eq!(call(&mut rpc, "kv.Has", &both), "");
        assert_eq!(call(&mut rpc, "kv.MGet", &request(storage, &[])), "");
    }
    drop(rpc);
    server.stop();
}

#[test]
fn mistakes_are_answered_as_roadrunner_does() {
    let (server, mut rpc) = start("fast: {driver: memory}, kept: {driver: embedded}");
    let key: (&[u8], &[u8], &str) = (b"k", b"v", "");
    for (method, request, said) in [
        (
            "kv.MGet",
            request("nope", &[key]),
            "rpc_mget: no such storage: nope",
        ),
        (
            "kv.Set",
            request("fast", &[(b"", b"v", "")]),
            "rpc_set: key can't be empty string",
        ),
        (
            "kv.Has",
            request("kept", &[(b"", b"", "")]),
            "rpc_has: key can't be empty string",
        ),
        (
            "kv.MExpire",
            request("fast", &[key]),
            "rpc_mexpire: timeout for MExpire is empty or key is empty",
        ),
        (
            "kv.Get",
            request("fast", &[key]),
            "rpc: can\\'t find method kv.Get",
        ),
    ] {
        let said = said.replace("can't", "can\\'t").replace("\\\\'", "\\'");
        assert_eq!(call(&mut rpc, method, &request), format!("error: {said}"));
    }
    let wrong = request("kept", &[(b"k", b"v", "60")]);
    let said = call(&mut rpc, "kv.Set", &wrong);
    assert!(
        said.starts_with("error: rpc_set: the timeout is `60`; accepted: "),
        "{said}"
    );
    drop(rpc);
    server.stop();
}

#[test]
fn entries_end_in_time_and_embedded_ones_outlive_the_server() {
    let (server, mut rpc) = start("fast: {driver: memory}, kept: {driver: embedded}");
    for storage in ["fast", "kept"] {
        let soon = |rpc: &mut Rpc| {
            let end = std::time::SystemTime::now() + Duration::from_millis(300);
            let end = end.duration_since(std::time::UNIX_EPOCH).expect("a clock");
            // RFC 3339 by PHP, to which the server's own reader is compared.
            let code = format!(
                "echo (new DateTime('@{}'))->modify('+{} ms')->format(DATE_RFC3339_EXTENDED);",
                end.as_secs(),
                end.subsec_millis()
            );
            let php = php_command("php").args(["-r", &code]).output();
            let end = String::from_utf8(php.expect("php runs").stdout).expect("text");
            let set = request(storage, &[(b"s", b"v", &end), (b"l", b"v", "")]);
            assert_eq!(call(rpc, "kv.Set", &set), "");
        };
        soon(&mut rpc);
        let there = request(storage, &[(b"s", b"", "")]);
        wait_for("an entry to end", || {
            call(&mut rpc, "kv.Has", &there).is_empty().then_some(())
        });
    }
    drop(rpc);
    let server = Server::start(server.killed());
    let mut rpc = Rpc::connect(&server);
    let there = |storage| request(storage, &[(b"l", b"", "")]);
    assert_eq!(call(&mut rpc, "kv.Has", &there("kept")), r"\n\x03\n\x01l");
    assert_eq!(call(&mut rpc, "kv.Has", &there("fast")), "");
    drop(rpc);
    server.stop();
}

#[test]
fn a_redis_that_goes_is_told_and_found_again() {
    let mut redis = Engine::redis(&[]);
    let address = format!("127.0.0.1:{}", redis.port());
    let (server, mut rpc) = start(&format!(
        "far: {{driver: redis, config: {{addrs: ['{address}']}}}}}}\nstatus: {{address: '127.0.0.1:0'"
    ));
    wait_for("the server to be ready", || {
        (probe(&server, "/ready").status == 200).then_some(())
    });
    let entry = request("far", &[(b"k", b"v", "")]);
    assert_eq!(call(&mut rpc, "kv.Set", &entry), "");
    let asked = request("far", &[(b"k", b"", "")]);
    assert_eq!(call(&mut rpc, "kv.MGet", &asked), r"\n\x06\n\x01k\x12\x01v");

    redis.stop();
    let said = call(&mut rpc, "kv.MGet", &asked);
    let expected = format!("error: rpc_mget: the Redis at {address} does not answer: ");
    assert!(said.starts_with(&expected), "{said}");
    server.logged(&["the storage is away"]);
    assert_eq!(probe(&server, "/ready").status, 503);

    redis.restart();
    server.logged(&["the storage is back"]);
    assert_eq!(probe(&server, "/ready").status, 200);
    assert_eq!(call(&mut rpc, "kv.Set", &entry), "");
    drop(rpc);
    server.stop();
}

#[test]
fn the_command_line_shows_storages_and_acts_on_entries() {
    let (server, mut rpc) = start_at(
        "unix://rpc.sock",
        "fast: {driver: memory, config: {max_size: 8MB}}, kept: {driver: embedded}}\nmetrics: {address: '127.0.0.1:0'",
    );
    for storage in ["fast", "kept"] {
        let set = request(
            storage,
            &[(b"a:1", b"one", ""), (b"a:2", b"two", ""), (b"b", b"", "")],
        );
        assert_eq!(call(&mut rpc, "kv.Set", &set), "");
        server
            .steer(&["cache", "get", storage, "a:1"])
            .assert_said(&["one"]);
        server
            .steer(&["cache", "get", storage, "no"])
            .assert_refused(&[&format!("the storage `{storage}` has no key `no`")]);
    }
    let serialised = r#"O:1:"A":1:{s:1:"b";i:7;}"#;
    let set = request("kept", &[(b"object", serialised.as_bytes(), "")]);
    assert_eq!(call(&mut rpc, "kv.Set", &set), "");
    let shown = server.steer(&["cache", "get", "kept", "object"]);
    assert_eq!(shown.stdout, "A {\n    \"b\" => 7\n}\n");
    let raw = server.steer(&["cache", "get", "--raw", "kept", "object"]);
    assert_eq!(raw.stdout, serialised);
    let shown = server.steer(&["cache"]);
    shown.assert_said(&[
        "STORAGE",
        "fast",
        "memory",
        "3",
        "kept",
        "embedded",
        "ready",
        "OLDEST",
        "HOTTEST PREFIX",
        "a:",
        "100 %",
    ]);
    let json = server.steer(&["cache", "--json"]);
    json.assert_said(&[
        "\"entries\": 3",
        "\"hits\": 1",
        "\"misses\": 1",
        "\"writes\": 3",
        "\"oldest\": ",
        "\"sampled\": 1",
        "\"prefix\": \"a:\"",
        "\"percent\": 100",
    ]);

    server.steer(&["cache", "clear", "fast", "--prefix", "a:"]);
    let all = request("fast", &[(b"a:1", b"", ""), (b"b", b"", "")]);
    assert_eq!(call(&mut rpc, "kv.Has", &all), r"\n\x03\n\x01b");
    server
        .steer(&["cache", "clear", "kept", "--prefix", "a:"])
        .assert_refused(&["the storage kept is not in memory"]);
    server.steer(&["cache", "delete", "kept", "a:1", "b"]);
    let all = request("kept", &[(b"a:1", b"", ""), (b"a:2", b"", "")]);
    assert_eq!(call(&mut rpc, "kv.Has", &all), r"\n\x05\n\x03a:2");
    server.steer(&["cache", "clear", "kept"]);
    assert_eq!(call(&mut rpc, "kv.Has", &all), "");
    server
        .steer(&["cache", "get", "nope", "a"])
        .assert_refused(&["no such storage: nope"]);
    drop(rpc);
    server.stop();
}

#[test]
fn a_server_that_gets_no_memory_says_for_which_storage() {
    let site = Site::new().config(
        "version: '3'\nrpc: {listen: 'tcp://127.0.0.1:0'}\n\
         kv: {small: {driver: memory}, large: {driver: memory, config: {max_size: 30000MB}}}\n",
    );
    let script = format!(
        "ulimit -v 16000000; exec {} serve -c .rr.yaml",
        binary().display()
    );
    let ended = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(site.folder())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    let expected =
        "storage `large`: there is no memory for it; make `kv.large.config.max_size` smaller";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn check_warns_of_storages_that_are_larger_than_the_machine() {
    let mut config = String::from("version: '3'\nrpc: {listen: 'tcp://127.0.0.1:0'}\nkv:\n");
    for number in 0..16 {
        let storage = "{driver: memory, config: {max_size: 30000MB}}";
        _ = writeln!(config, "  s{number}: {storage}"); // a string takes everything
    }
    let said = Server::run(&Site::new().config(&config), &["check"]).stdout;
    let expected =
        "has storages in memory of 480000MB together, and this machine or its container allows ";
    assert!(said.contains(expected), "{said}");
    let few = "version: '3'\nrpc: {listen: 'tcp://127.0.0.1:0'}\nkv: {s: {driver: memory}}\n";
    let said = Server::run(&Site::new().config(few), &["check"]).stdout;
    assert!(!said.contains("storages in memory of"), "{said}");
}

#[test]
fn a_million_storages_are_refused_in_a_sentence() {
    let mut config = String::from("version: '3'\nrpc: {listen: 'tcp://127.0.0.1:0'}\nkv:\n");
    for number in 0..1_000_000 {
        _ = writeln!(config, "  s{number}: {{}}"); // a string takes everything
    }
    let site = Site::new().config(&config);
    let ended = std::process::Command::new(binary())
        .args(["check", "-c", ".rr.yaml"])
        .current_dir(site.folder())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.len() < 10_000, "{said}");
}

/// The entries of one of them would be lost, and nobody would know.
#[test]
fn a_second_server_is_told_who_keeps_entries_in_the_state_directory() {
    for kv in [
        "fast: {driver: memory, config: {persist: true}}",
        "fast: {driver: embedded}",
    ] {
        let (mut server, mut rpc) = start(kv);
        let set = request("fast", &[(b"a", b"1", "")]);
        assert_eq!(call(&mut rpc, "kv.Set", &set), "");
        let refused = |server: &Server| {
            let ended = Server::run_beside(server.site(), &["serve"]);
            let pid = server.pid();
            ended.assert_refused(&[&format!("is used by process {pid}"), "`state_dir`"]);
        };
        refused(&server);
        drop(rpc);
        server.upgrade();
        refused(&server);
        let server = Server::start(server.into_site());
        let mut rpc = Rpc::connect(&server);
        let get = request("fast", &[(b"a", b"", "")]);
        assert!(call(&mut rpc, "kv.MGet", &get).ends_with(r"\x12\x011"));
        drop(rpc);
        server.stop();
    }
}

#[test]
fn what_is_too_long_to_be_remembered_is_told_once() {
    extension();
    let worker = Site::sdk_worker(
        "require_once 'ALL'; require_once 'Psr/SimpleCache/autoload.php';
         $it = $request->path === '/rpc' ? new Pronghorn\\Cache\\Rpc(Pronghorn\\Rpc::connect(), 'it') : Pronghorn\\Cache\\Cache::open('it')->store;
         $cache = new Pronghorn\\Cache\\Cache($it, ltrim($request->path, '/') . ':');
         return (string) strlen($cache->remember('long:secret', 60, fn () => str_repeat('x', 100_000)));",
    );
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../php/autoload.php");
    let worker = worker.replace("ALL", packages);
    let site = Site::new().file("worker.php", &worker).config(
        "version: '3'\nserver: {command: php worker.php}\nrpc: {listen: 'tcp://127.0.0.1:0'}\n\
         kv: {it: {driver: memory, config: {max_size: 8MB}}}\n\
         http: {address: '127.0.0.1:0', pool: {num_workers: 1}}\n",
    );
    let server = Server::start(site);
    for way in ["rpc", "mapped"] {
        for _ in 0..2 {
            assert_eq!(server.get(&format!("/{way}")).text(), "100000");
        }
    }
    let log = server.stop().stderr;
    for way in ["rpc", "mapped"] {
        let told = format!("a key with the prefix `{way}:long:` has: it has 100");
        assert_eq!(log.matches(&told).count(), 1, "{log}");
    }
    let limit = "at most 65504, with its key";
    assert_eq!(log.matches(limit).count(), 2, "{log}");
    assert!(!log.contains("secret"), "{log}");
}

/// Each process writes an entry and ends; others go on where it has stopped, and no entries go for
/// that.
#[test]
fn entries_of_processes_that_live_for_one_request_are_all_there() {
    extension();
    let index = "<?php
        $it = Pronghorn\\Cache\\SharedMemory::open('it');
        parse_str($_SERVER['QUERY_STRING'] ?? '', $asked);
        $there = fn ($number) => $it->get(\"visitor $number\") === str_repeat('x', 200);
        echo isset($asked['key'])
            ? ($it->set('visitor ' . $asked['key'], str_repeat('x', 200)) ? 'kept by ' : 'refused ')
            : count(array_filter(range(1, $asked['all']), $there)) . ' there for ';
        echo getmypid();";
    let handler =
        Site::sdk_worker("ob_start(); require 'public/index.php'; return ob_get_clean();");
    let front = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        "function () { require 'public/index.php'; }",
    );
    let classic = "mode: classic, root: public, max_jobs: 1";
    for (worker, pool, visitors) in [
        (&handler, "spawn: exec, max_jobs: 1", 150),
        (&handler, "spawn: fork, max_jobs: 1", 400),
        (&front, "spawn: exec, max_jobs: 1", 150),
        (&front, "spawn: fork, max_jobs: 1", 400),
        (&front, classic, 400),
        (&front, &format!("{classic}, spawn: exec"), 150),
    ] {
        let site = Site::new()
            .file("worker.php", worker)
            .file("public/index.php", index)
            // Twenty times what the entries need, and far less than a block of 64 KB for each
            // process.
            .config(&format!(
                "version: '3'\nserver: {{command: php worker.php}}\n\
                 kv: {{it: {{driver: memory, config: {{max_size: 2MB}}}}}}\n\
                 http: {{address: '127.0.0.1:0', pool: {{num_workers: 4, {pool}}}}}\n"
            ));
        let server = Server::start(site);
        let mut processes = std::collections::BTreeSet::new();
        for visitor in 1..=visitors {
            let said = server.get(&format!("/?key={visitor}")).text();
            let process = said.strip_prefix("kept by ");
            processes.insert(
                process
                    .unwrap_or_else(|| panic!("{pool}: {said}"))
                    .to_owned(),
            );
        }
        assert_eq!(processes.len(), visitors, "{pool}: a process for each");
        let said = server.get(&format!("/?all={visitors}")).text();
        let there = format!("{visitors} there for ");
        assert!(said.starts_with(&there), "{pool}: {said}");
        server.stop();
    }
}

/// An `exit` skips even `finally`, and the worker goes on.
#[test]
#[expect(clippy::disallowed_types, reason = "the others wait in real time")]
fn a_value_whose_computation_has_exited_is_computed_by_the_next_one() {
    extension();
    let script = format!(
        "<?php require_once '{}/../php/autoload.php'; require_once 'Psr/SimpleCache/autoload.php';
        function value(string $how): string {{
            return Pronghorn\\Cache\\Cache::open('it')->remember($how, 60, fn () => match ($how) {{
                'exits' => exit('by an exit'),
                'fails' => str_repeat('x', PHP_INT_MAX),
                default => throw new Exception('on purpose'),
            }});
        }}
        function next_value(string $how): string {{
            return Pronghorn\\Cache\\Cache::open('it')->remember($how, 60, fn () => 'computed');
        }}",
        env!("CARGO_MANIFEST_DIR"),
    );
    let call = "require_once __DIR__ . '/FOLDERvalue.php'; echo isset($_GET['next']) ? next_value($_GET['how']) : value($_GET['how']);";
    let worker = format!(
        "<?php require '{}/../php/autoload.php'; Pronghorn\\serve(function (Pronghorn\\Request $request) {{ \
         $_GET = $request->query(); {} return ''; }});",
        env!("CARGO_MANIFEST_DIR"),
        call.replace("FOLDER", ""),
    );
    for pool in [
        "",
        "globals: false",
        "transport: relay",
        "mode: classic, root: public",
    ] {
        let site = Site::new()
            .file("value.php", &script)
            .file("worker.php", &worker)
            .file(
                "public/index.php",
                &format!("<?php {}", call.replace("FOLDER", "../")),
            );
        let server = Server::start(site.config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nrpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
             http: {{address: '127.0.0.1:0', pool: {{num_workers: 2, {pool}}}}}\n\
             kv: {{it: {{driver: memory, config: {{max_size: 4MB}}}}}}\n"
        )));
        for how in ["exits", "fails", "throws"] {
            server.get(&format!("/?how={how}"));
            let since = std::time::Instant::now();
            for _ in 0..4 {
                let next = server.get(&format!("/?how={how}&next=1")).text();
                assert_eq!(next, "computed", "{pool} {how}");
            }
            assert!(since.elapsed() < Duration::from_secs(10), "{pool} {how}");
        }
        server.stop();
    }
}
