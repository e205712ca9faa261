//! `session.save_handler = pronghorn`: sessions in a storage that workers have mapped, and in those
//! that the server is asked for.

use std::time::Duration;

use pronghorn_testkit::{Connection, Engine, Response, Server, Site, time, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::control::Rpc;
use crate::ring::extension;

/// Counts in the session of the client's cookie. `/slow` has it open until the file `go` is there.
const INDEX: &str = r#"<?php
    chdir(dirname(__DIR__));
    set_error_handler(function (int $level, string $text): bool { echo "[$text]"; return true; });
    $path = strtok($_SERVER['REQUEST_URI'], '?');
    if (!session_start($path === '/read' ? ['read_and_close' => true] : [])) {
        echo 'no session';
        return;
    }
    if ($path === '/empty') {
        session_unset();
        exit(session_id());
    }
    $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
    if ($path === '/bad') {
        $_SESSION['what'] = function () {};
    }
    if ($path === '/slow') {
        file_put_contents('held', getmypid());
        while (!file_exists('go')) { usleep(1000); clearstatcache(); }
    }
    echo $_SESSION['n'];
"#;

/// What scripts do with sessions, several in one request. Prints what they find.
const STEPS: &str = r#"<?php
    ini_set('session.save_handler', $_SERVER['QUERY_STRING']);
    ini_set('session.save_path', $_SERVER['QUERY_STRING'] === 'files' ? dirname(__DIR__) . '/files' : '');
    $open = function (?string $id, array $options = []): string {
        session_id($id ?? session_create_id());
        $text = fn (mixed $value): mixed => is_string($value) ? strlen($value) . md5($value) : $value;
        return session_start($options) ? 'opened ' . json_encode(array_map($text, $_SESSION)) . "\n" : "refused\n";
    };
    $open('one');
    session_destroy();
    echo $open('one');
    $_SESSION['a'] = 1;
    session_write_close();
    echo $open('one'); // twice in a request, and not changed
    session_write_close();
    echo $open('one', ['read_and_close' => true]);
    echo $open('one');
    $_SESSION['a'] = 2;
    session_abort();
    echo $open('one');
    $_SESSION['a'] = 3;
    session_reset();
    echo json_encode($_SESSION), "\n";
    $_SESSION['b'] = str_repeat("\0\xFF", 10000);
    session_regenerate_id();
    $second = session_id();
    $_SESSION['b'] = strlen($_SESSION['b']);
    session_write_close();
    echo $open('one') , $second === 'one' ? 'the same' : 'another', "\n";
    session_write_close();
    echo $open($second);
    session_regenerate_id(true);
    $third = session_id();
    session_write_close();
    echo $open($second);
    session_destroy();
    echo $open($third);
    session_unset();
    session_write_close();
    echo $open($third);
    session_destroy();
    echo $open($third);
    session_destroy();
    echo $open('one', ['lazy_write' => '0']);
    session_write_close();
    session_set_save_handler(new class extends SessionHandler {
        public function write(string $id, string $data): bool
        {
            return parent::write($id, $data) && parent::write($id, $data . 'c|i:9;');
        }
    });
    echo $open('one');
    $_SESSION['d'] = 4;
    session_write_close();
    echo $open('one');
    session_write_close();
    echo $open(null);
    session_destroy();
    echo @$open('no such_id/'), session_status() === PHP_SESSION_ACTIVE ? 'active' : 'none', "\n";
"#;

/// The settings of a pool for each way to run PHP.
fn pools() -> [String; 3] {
    extension();
    let classic = "mode: classic, root: public";
    [
        "transport: ring".to_owned(),
        classic.to_owned(),
        format!("{classic}, spawn: exec"),
    ]
}

fn site(pool: &str, ini: &str, kv: &str) -> Site {
    let worker = Site::sdk_worker("").replace(
        "function (Pronghorn\\Request $request): mixed {\n\n}",
        "fn () => require 'public/index.php'",
    );
    let ini = format!(
        "session.save_handler: pronghorn, session.save_path: files/, session.use_strict_mode: '0', {ini}"
    );
    Site::new()
        .file("worker.php", &worker)
        .file("public/index.php", INDEX)
        .file("files/.keep", "")
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 2, {pool}, ini: {{{ini}}}}}}}\n\
             rpc: {{listen: 'tcp://127.0.0.1:0'}}\nlogs: {{level: debug}}\nstate_dir: state\nkv: {{{kv}}}\n"
        ))
}

const STORAGES: &str =
    "sessions: {driver: memory, config: {max_size: 8MB}}, other: {driver: memory}";

fn start(pool: &str, ini: &str) -> Server {
    Server::start(site(pool, ini, STORAGES))
}

fn ask(server: &Server, method: &str, target: &str) -> Connection {
    let mut connection = server.connect();
    connection.request(method, target, "Cookie: PHPSESSID=abc\r\n");
    connection
}

fn get(server: &Server, target: &str) -> Response {
    ask(server, "GET", target).response()
}

/// A request that has the session open, and its worker. It is not tried on another one.
fn hold(server: &Server) -> (Connection, u32) {
    let connection = ask(server, "POST", "/slow?secret");
    let held = server.site().path("held");
    let worker = wait_for("the session to be held", || {
        std::fs::read_to_string(&held).ok()?.parse().ok()
    });
    (connection, worker)
}

fn let_go(server: &Server) {
    std::fs::write(server.site().path("go"), "").expect("a file");
}

#[test]
fn workers_of_all_kinds_have_one_session_that_outlives_them() {
    for pool in pools() {
        let mut server = start(&pool, "");
        let first = server.get("/");
        let cookie = first.header("set-cookie").expect("PHP sets it").to_owned();
        assert!(cookie.starts_with("PHPSESSID="), "{cookie}");
        let cookie = cookie.split(';').next().expect("its value").to_owned();
        let again = |server: &Server| {
            let mut connection = server.connect();
            connection.request("GET", "/", &format!("Cookie: {cookie}\r\n"));
            connection.response().text()
        };
        for number in 2..=5 {
            assert_eq!(again(&server), number.to_string(), "{pool}");
        }
        assert_eq!(get(&server, "/").text(), "1", "{pool}: another client");
        let mut rpc = Rpc::connect(&server);
        assert_eq!(rpc.call("resetter.Reset", "\"http\""), "true");
        drop(rpc);
        assert_eq!(again(&server), "6", "{pool}: after a reset");
        server.upgrade();
        assert_eq!(again(&server), "7", "{pool}: after an upgrade");
        let files = std::fs::read_dir(server.site().path("files")).expect("a folder");
        assert_eq!(files.count(), 1, "{pool}: no file is made");
        server.stop();
    }
}

#[test]
fn scripts_find_in_each_storage_what_they_find_in_files() {
    let (_engine, redis) = redis();
    for pool in pools() {
        let found = |handler: &str, kv: &str| {
            let server = Server::start(site(&pool, "", kv).file("public/index.php", STEPS));
            let found = get(&server, &format!("/?{handler}")).text();
            server.stop();
            found
        };
        let expected = found("files", STORAGES);
        assert_eq!(expected.matches("opened").count(), 16, "{expected}");
        for kv in [STORAGES, EMBEDDED, &redis] {
            assert_eq!(found("pronghorn", kv), expected, "{pool}, {kv}");
        }
    }
}

/// A value that can't be serialised is no reason to lose the others.
#[test]
fn a_session_that_cannot_be_written_stays_as_it_was() {
    for pool in pools() {
        for handler in ["pronghorn", "files"] {
            let site = site(&pool, "", STORAGES);
            let asked = format!("session.save_handler: {handler}");
            site.change_config("session.save_handler: pronghorn", &asked);
            let server = Server::start(site);
            assert_eq!(get(&server, "/").text(), "1");
            assert_eq!(get(&server, "/").text(), "2");
            assert!(get(&server, "/bad").text().starts_with('3'), "{pool}");
            assert_eq!(get(&server, "/").text(), "3", "{pool} {handler}");
            server.logged(&["Serialization of 'Closure' is not allowed"]);
            server.stop();
        }
    }
}

/// Its number was given, so that it is none that a client has made up.
#[test]
fn a_session_without_values_keeps_its_number_in_strict_mode() {
    for pool in pools() {
        for kv in [STORAGES, EMBEDDED] {
            let site = site(&pool, "", kv);
            site.change_config(
                "session.use_strict_mode: '0'",
                "session.use_strict_mode: '1'",
            );
            let server = Server::start(site);
            let given = server.get("/empty");
            let cookie = given.header("set-cookie").expect("a number").to_owned();
            let cookie = cookie.split(';').next().expect("a cookie").to_owned();
            for _ in 0..2 {
                let mut client = server.connect();
                client.request("GET", "/empty", &format!("Cookie: {cookie}\r\n"));
                let reply = client.response();
                assert!(cookie.ends_with(&reply.text()), "{pool}: {}", reply.text());
                assert_eq!(reply.header("set-cookie"), None, "{pool}");
            }
            server.stop();
        }
    }
}

/// A script that uses its session in the way the query names, in each of two visits of a client.
const STRICT: &str = r#"<?php
    parse_str($_SERVER['QUERY_STRING'], $asked);
    ini_set('session.save_handler', $asked['handler']);
    $asked['handler'] === 'files' && ini_set('session.save_path', dirname(__DIR__) . '/files');
    ini_set('session.lazy_write', $asked['lazy']);
    $seen = [];
    $say = function (string $step, mixed $done) use (&$seen, &$ids): void {
        $ids[session_id()] ??= 'id ' . (count($ids ?? []) + 1);
        $seen[] = "$step " . json_encode($done) . ' ' . (session_id() === '' ? 'none' : $ids[session_id()])
            . ' ' . json_encode($_SESSION ?? null) . ' ' . session_status();
    };
    $told = [];
    set_error_handler(function (int $type, string $message) use (&$told) { $told[] = $message; return true; });
    if (isset($asked['id'])) {
        session_id($asked['id']);
        $ids[$asked['id']] = 'given';
    }
    foreach (explode('-', $asked['steps']) as $step) {
        $say($step, match ($step) {
            'start' => session_start(),
            'peek' => session_start(['read_and_close' => true]),
            'set' => $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1,
            'reset' => session_reset(),
            'abort' => session_abort(),
            'close' => session_write_close(),
            'destroy' => session_destroy(),
            'renew' => session_regenerate_id(),
            'renewdelete' => session_regenerate_id(true),
            'unset' => session_unset(),
            'make' => strlen(session_create_id()) > 20,
        });
    }
    $id = session_id();
    session_status() === PHP_SESSION_ACTIVE && session_write_close();
    echo json_encode(['id' => $id, 'seen' => $seen, 'told' => $told]);
"#;

/// In strict mode it matters whether a number is known, also that of a session nobody has written.
#[test]
fn numbers_are_known_in_strict_mode_when_they_are_with_files() {
    let steps = [
        "peek-peek",
        "peek-start-set",
        "start-reset-set",
        "start-set-reset",
        "start-abort-start",
        "start-destroy-start",
        "start-renew-reset",
        "start-renewdelete-reset-set",
        "start-close-peek",
        "start-set-close-peek-reset",
        "start-abort-peek",
        "make-peek-start-reset",
        "start-unset-close",
        "start-set-abort-start",
        "peek-start-renew-close-peek",
    ];
    let (_engine, redis) = redis();
    for pool in pools() {
        for kv in [STORAGES, EMBEDDED, &redis] {
            let site = site(&pool, "", kv).file("public/index.php", STRICT);
            site.change_config(
                "session.use_strict_mode: '0'",
                "session.use_strict_mode: '1', session.use_cookies: '0'",
            );
            let server = Server::start(site);
            for lazy in [0, 1] {
                for steps in steps {
                    let visits = |handler: &str| {
                        let target = format!("/?handler={handler}&lazy={lazy}&steps={steps}");
                        let first = server.get(&target).text();
                        let told: serde_json::Value = serde_json::from_str(&first).expect(&first);
                        let id = told["id"].as_str().expect("a text").to_owned();
                        let named = |text: &str| match id.as_str() {
                            "" => text.to_owned(),
                            id => text.replace(id, "ID"),
                        };
                        let next = |id: &str| match id {
                            "" => server.get(&target).text(),
                            id => server.get(&format!("{target}&id={id}")).text(),
                        };
                        [named(&first), named(&next(&id)), next("madeup")].map(|text| {
                            let mut told: serde_json::Value =
                                serde_json::from_str(&text).expect(&text);
                            told["id"] = (told["id"] == "ID").into();
                            told
                        })
                    };
                    let (found, expected) = (visits("pronghorn"), visits("files"));
                    assert_eq!(found, expected, "{pool}, {kv}, lazy {lazy}: {steps}");
                }
            }
            server.stop();
        }
    }
}

#[test]
fn a_second_request_of_a_session_waits_and_the_log_says_for_whom() {
    for pool in pools() {
        let server = start(&pool, "");
        let (mut first, worker) = hold(&server);
        let mut second = ask(&server, "GET", "/second");
        let waits = format!(
            "GET /second waits for the lock of its session, which process {worker} has for "
        );
        let line = server.logged(&[&waits]);
        assert!(line.contains(" s: POST /slow"), "{line}");
        assert!(!line.contains("secret") && !line.contains("abc"), "{line}");
        let_go(&server);
        assert_eq!(first.response().text(), "1", "{pool}");
        assert_eq!(second.response().text(), "2", "{pool}");
        server.stop();
    }
}

#[test]
fn who_only_reads_waits_for_nobody_and_who_waits_too_long_is_told() {
    for pool in pools() {
        let server = start(&pool, "pronghorn.session_lock_timeout: '0.3'");
        assert_eq!(get(&server, "/").text(), "1", "{pool}");
        let (mut first, worker) = hold(&server);
        assert_eq!(
            get(&server, "/read").text(),
            "2",
            "{pool}: it is 1 and not kept"
        );
        let refused = get(&server, "/second").text();
        let expected = format!(
            "[session_start(): The session is locked by process {worker} (POST /slow) for "
        );
        assert!(refused.starts_with(&expected), "{pool}: {refused}");
        assert!(refused.ends_with("no session"), "{pool}: {refused}");
        let_go(&server);
        assert_eq!(first.response().text(), "2", "{pool}");
        server.stop();
    }
}

#[test]
fn the_session_of_a_killed_worker_is_free_at_once() {
    for pool in pools() {
        let server = start(&pool, "");
        let (_first, worker) = hold(&server);
        let mut second = ask(&server, "GET", "/second");
        let worker = Pid::from_raw(i32::try_from(worker).expect("a pid")).expect("a pid");
        kill_process(worker, Signal::KILL).expect("it runs");
        let (response, took) = time(|| second.response());
        assert_eq!(response.text(), "1", "{pool}: it had kept nothing");
        assert!(took < Duration::from_secs(10), "{pool}");
        server.stop();
    }
}

#[test]
fn a_pool_that_sees_no_storage_says_so() {
    let others = "one: {driver: memory}, other: {driver: memory}";
    let server = Server::start(site("transport: ring", "", others));
    let said = get(&server, "/").text();
    let expected = "[session_start(): This process has mapped no storage named sessions and not exactly one other: ";
    assert!(said.starts_with(expected), "{said}");
    server.stop();
    // PHP's own words where the extension is not.
    let body = "@session_start(); return error_get_last()['message'] ?? 'it has started';";
    let site = site("transport: relay", "", STORAGES).file("worker.php", &Site::sdk_worker(body));
    let server = Server::start(site);
    let said = get(&server, "/").text();
    let expected = "session_start(): Cannot find session save handler \"pronghorn\"";
    assert!(said.starts_with(expected), "{said}");
    server.stop();
}

const EMBEDDED: &str = "sessions: {driver: embedded}, other: {driver: memory}";

fn redis() -> (Engine, String) {
    let engine = Engine::redis(&[]);
    let port = engine.port();
    let kv = format!(
        "sessions: {{driver: redis, config: {{addrs: ['127.0.0.1:{port}'], prefix: 'shop:'}}}}"
    );
    (engine, kv)
}

/// The whole of it, in a storage that is not mapped.
fn asks_the_server(pool: &str, kv: &str) {
    let server = Server::start(site(pool, "", kv));
    let first = server.get("/");
    let cookie = first.header("set-cookie").expect("PHP sets it").to_owned();
    assert!(cookie.starts_with("PHPSESSID="), "{cookie}");
    assert_eq!(get(&server, "/").text(), "1", "{pool}: another client");
    assert_eq!(get(&server, "/").text(), "2", "{pool}");
    let (mut first, worker) = hold(&server);
    assert_eq!(
        get(&server, "/read").text(),
        "3",
        "{pool}: it waits for nobody"
    );
    let mut second = ask(&server, "GET", "/second");
    let waits = format!("waits for the lock of its session, which process {worker} has for ");
    let line = server.logged(&[&waits]);
    assert!(line.contains(" s: POST /slow"), "{line}");
    assert!(!line.contains("secret") && !line.contains("abc"), "{line}");
    let_go(&server);
    assert_eq!(first.response().text(), "3", "{pool}");
    assert_eq!(second.response().text(), "4", "{pool}");

    // Killed, it holds nobody up.
    std::fs::remove_file(server.site().path("go")).expect("it is there");
    std::fs::remove_file(server.site().path("held")).expect("it is there");
    let (_first, worker) = hold(&server);
    let mut second = ask(&server, "GET", "/second");
    let worker = Pid::from_raw(i32::try_from(worker).expect("a pid")).expect("a pid");
    kill_process(worker, Signal::KILL).expect("it runs");
    let (response, took) = time(|| second.response());
    assert_eq!(response.text(), "5", "{pool}: it had kept nothing");
    assert!(took < Duration::from_secs(10), "{pool}");
    server.stop();
}

#[test]
fn the_servers_store_keeps_sessions_for_workers_of_all_kinds() {
    for pool in pools() {
        asks_the_server(&pool, EMBEDDED);
    }
}

#[test]
fn redis_keeps_sessions_for_workers_of_all_kinds() {
    let (engine, kv) = redis();
    for pool in pools() {
        let emptied = std::process::Command::new("redis-cli")
            .args(["-p", &engine.port().to_string(), "flushall"])
            .output();
        assert!(emptied.is_ok_and(|it| it.status.success()));
        asks_the_server(&pool, &kv);
    }
}

#[test]
fn who_waits_too_long_for_a_session_of_the_server_is_told() {
    let ini = "pronghorn.session_lock_timeout: '0.3'";
    let server = Server::start(site("transport: ring", ini, EMBEDDED));
    let (mut first, worker) = hold(&server);
    let refused = get(&server, "/second").text();
    let expected =
        format!("[session_start(): The session is locked by process {worker} (POST /slow) for ");
    assert!(refused.starts_with(&expected), "{refused}");
    assert!(refused.ends_with("no session"), "{refused}");
    let_go(&server);
    assert_eq!(first.response().text(), "1");
    server.stop();
}

/// Two servers, one Redis: the lock is one, and a server that ends leaves it.
#[test]
fn servers_share_sessions_in_redis() {
    let (_engine, kv) = redis();
    let one = Server::start(site("transport: ring", "", &kv));
    let other = Server::start(site(
        "transport: ring",
        "pronghorn.session_lock_timeout: '0.3'",
        &kv,
    ));
    assert_eq!(get(&one, "/").text(), "1");
    assert_eq!(get(&other, "/").text(), "2");
    let (mut first, _) = hold(&one);
    let refused = get(&other, "/").text();
    let expected =
        "[session_start(): The session is locked by process 0 (a request of another server) for ";
    assert!(refused.starts_with(expected), "{refused}");
    let_go(&one);
    assert_eq!(first.response().text(), "3");
    assert_eq!(get(&other, "/").text(), "4");
    one.stop();
    other.stop();
}

#[test]
fn a_storage_that_is_away_is_told_by_session_start() {
    let (mut engine, kv) = redis();
    let server = Server::start(site("transport: ring", "", &kv));
    assert_eq!(get(&server, "/").text(), "1");
    engine.stop();
    let said = get(&server, "/").text();
    let title = format!("the Redis at 127.0.0.1:{} does not answer", engine.port());
    assert!(
        said.contains(&title) && said.ends_with("no session"),
        "{said}"
    );
    engine.restart();
    wait_for("Redis to be found again", || {
        (get(&server, "/").text() == "1").then_some(())
    });
    server.stop();
}

/// What each kind of storage keeps over a stop, and over a kill.
#[test]
fn sessions_outlive_a_restart_where_they_are_to() {
    for (kv, stopped, killed) in [
        ("sessions: {driver: memory}", "1", "1"),
        (
            "sessions: {driver: memory, config: {persist: true}}",
            "3",
            "1",
        ),
        ("sessions: {driver: embedded}", "3", "4"),
    ] {
        let server = Server::start(site("transport: ring", "", kv));
        assert_eq!(get(&server, "/").text(), "1");
        assert_eq!(get(&server, "/").text(), "2");
        let server = Server::start(server.into_site());
        assert_eq!(get(&server, "/").text(), stopped, "{kv}: after a stop");
        let server = Server::start(server.killed());
        assert_eq!(get(&server, "/").text(), killed, "{kv}: after a kill");
        server.stop();
    }
}
