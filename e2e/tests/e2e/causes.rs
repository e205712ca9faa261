//! Why a request was slow, told by its record alone: each cause is planted, and found.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use pronghorn_testkit::{Server, Site, wait_for};
use serde_json::Value;

use crate::ring::extension;

const WORKER: &str = r"
    $long = 300;
    switch ($request->path) {
        case '/sleep':
            \usleep(1000 * $long);
            break;
        case '/compute':
            $used = static fn (): float => (static fn (array $usage): float => $usage['ru_utime.tv_sec']
                + $usage['ru_stime.tv_sec'] + ($usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec']) / 1e6)(\getrusage());
            for ($since = $used(), $until = $since + $long / 1000; $used() < $until;) { }
            return (string) (1e6 * ($used() - $since));
        case '/large':
            return \str_repeat('large', 4_000_000);
        case '/streamed':
            return new Pronghorn\Response((function () use ($long) {
                yield 'begun';
                \usleep(1000 * $long);
                yield 'ended';
            })());
        case '/upstream':
            $upstream = \stream_socket_client('tcp://' . $request->query()['at']);
            \stream_set_timeout($upstream, 0, 600_000);
            return (string) \fread($upstream, 1) === '' ? 'nothing came' : 'something came';
        case '/measured':
            $query = $request->query();
            $wait = match ($query['what']) {
                'sleep' => static fn () => \usleep(1000 * $long),
                'lock' => static fn () => \flock(\fopen('lock', 'c'), \LOCK_EX),
                'socket' => static function () use ($query): void {
                    $upstream = \stream_socket_client('tcp://' . $query['at']);
                    \stream_set_timeout($upstream, 0, 400_000);
                    \fread($upstream, 1);
                },
            };
            $since = \hrtime(true);
            $wait();
            return (string) ((\hrtime(true) - $since) / 1000);
        case '/dies-once':
            if (!\file_exists('died')) {
                \touch('died');
                \posix_kill(\getmypid(), 9);
            }
    }
    return 'done';
";

fn server_with(workers: u32, more: &str) -> Server {
    extension(); // else the worker has no clocks
    server_by("ring", workers, more)
}

fn server_by(transport: &str, workers: u32, more: &str) -> Server {
    let config = format!(
        "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: info}}\n\
         http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: {workers}, transport: {transport}}}\n{more}"
    );
    let site = Site::new().file("worker.php", &Site::sdk_worker(WORKER));
    Server::start(site.config(&config))
}

fn server() -> Server {
    server_with(1, "")
}

/// One that tells of slow requests.
fn server_with_slow(limit: &str) -> Server {
    extension(); // else the stack can't be read
    let config = format!(
        "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: info}}\n\
         http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1, transport: ring, slow: {limit}}}\n"
    );
    let site = Site::new().file("worker.php", &Site::sdk_worker(WORKER));
    Server::start(site.config(&config))
}

/// The record of the last request with this path.
fn record(server: &Server, path: &str) -> Value {
    wait_for(&format!("the record of {path}"), || {
        let log = server.log();
        let mut records = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.rfind(|record| record["msg"] == "http log" && record["URI"] == path)
    })
}

/// A time in milliseconds; no number, where it is not told.
fn millis(record: &Value, field: &str) -> f64 {
    let micros = record[field].as_f64();
    micros.unwrap_or(f64::NAN) / 1e3
}

/// That one part is most of the time, and that all together are the time.
fn assert_mostly(record: &Value, part: &str) {
    const PARTS: [&str; 4] = ["read_us", "queue_us", "php_us", "write_us"];
    let all = millis(record, "elapsed_us");
    assert!(millis(record, part) > 0.6 * all, "{part} in {record}");
    let sum: f64 = PARTS.iter().map(|part| millis(record, part)).sum();
    assert!((sum - all).abs() < 0.05, "the parts are all of {record}");
}

#[test]
fn a_long_queue() {
    let server = server();
    let mut first = server.connect();
    first.request("GET", "/sleep", "");
    wait_for("the worker to be busy", || {
        let shown = server.steer(&["workers"]).stdout;
        shown.contains("GET /sleep").then_some(())
    });
    assert_eq!(server.get("/waits").text(), "done");
    first.response();
    assert_mostly(&record(&server, "/waits"), "queue_us");
    server.stop();
}

#[test]
fn a_handler_that_waits_and_one_that_computes() {
    let server = server();
    server.get("/");
    for (path, most) in [
        ("/sleep", "php_blocked_us"),
        ("/compute", "php_cpu_us"),
        ("/streamed", "php_blocked_us"),
    ] {
        server.get(path);
        let record = record(&server, path);
        // The rest of a reply that has begun is on its way to the client.
        let whole = if path == "/streamed" {
            "write_us"
        } else {
            "php_us"
        };
        assert_mostly(&record, whole);
        // Who computes waits for a processor, where others compute as well.
        assert!(millis(&record, most) > 295.0, "{record}");
        if most == "php_blocked_us" {
            assert!(millis(&record, "php_cpu_us") < 100.0, "{record}");
        }
        assert_eq!(record["pid"], server.workers()[0]);
        assert_eq!(record["retried"], Value::Null);
    }
    server.stop();
}

/// Over pipes, a worker has no clocks to tell by: its process's is looked at.
#[test]
fn a_worker_over_pipes_that_waits_and_one_that_computes() {
    let server = server_by("relay", 1, "");
    for path in ["/sleep", "/compute", "/streamed"] {
        let text = server.get(path).text();
        let record = record(&server, path);
        let (cpu, blocked) = (
            millis(&record, "php_cpu_us"),
            millis(&record, "php_blocked_us"),
        );
        if path == "/compute" {
            let measured = text.parse::<f64>().expect("its time") / 1e3;
            assert!((0.9 * measured..measured + 30.0).contains(&cpu), "{record}");
        } else {
            assert!(blocked > 280.0 && cpu < 100.0, "{record}");
        }
    }
    server.get("/short");
    let short = record(&server, "/short");
    if millis(&short, "php_us") < 10.0 {
        assert_eq!(short["php_cpu_us"], Value::Null, "{short}");
    }
    server.stop();
}

/// What the record says of PHP's time, beside what PHP has measured itself: microseconds.
fn told_and_measured(server: &Server, target: &str, meanwhile: impl FnOnce()) -> (f64, f64) {
    let mut connection = server.connect();
    connection.request("GET", target, "");
    meanwhile();
    let measured = connection.response().text();
    let measured = measured.parse().expect("PHP says how long it took");
    (
        1e3 * millis(&record(server, target), "php_blocked_us"),
        measured,
    )
}

#[test]
fn what_php_was_blocked_for_is_right_within_five_percent() {
    let server = server();
    server.get("/");
    let upstream = silent_upstream();
    let at = upstream.local_addr().expect("it listens");
    let lock = std::fs::File::create(server.site().path("lock")).expect("the site is ours");
    for what in [
        "sleep".to_owned(),
        format!("socket&at={at}"),
        "lock".to_owned(),
    ] {
        // A busy machine may take the processor away from PHP between the two looks at the clock:
        // that is no reason to be wrong each time.
        let is_right = (1..=3).any(|time| {
            let target = format!("/measured?what={what}&time={time}");
            let is_lock = what == "lock";
            if is_lock {
                lock.lock().expect("nobody has it");
            }
            let (told, measured) = told_and_measured(&server, &target, || {
                if is_lock {
                    dawdle(400);
                    lock.unlock().expect("it is ours");
                }
            });
            assert!(measured > 250e3, "{what}: {measured}");
            (told / measured - 1.0).abs() < 0.05
        });
        assert!(is_right, "{what}: {}", server.log());
    }
    let is_right = (1..=3).any(|time| {
        let target = format!("/compute?time={time}");
        let measured: f64 = server.get(&target).text().parse().expect("its time");
        let told = 1e3 * millis(&record(&server, &target), "php_cpu_us");
        (told / measured - 1.0).abs() < 0.05
    });
    assert!(is_right, "{}", server.log());
    server.stop();
}

#[expect(
    clippy::disallowed_methods,
    reason = "a client that is slow, which is the cause that is planted"
)]
fn dawdle(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

#[test]
fn a_slow_client() {
    let server = server();
    let mut client = server.connect();
    client.request("GET", "/large", "");
    client.head_response();
    // More than the buffers of the connection hold is still to come.
    dawdle(400);
    client.take(20_000_000);
    assert_mostly(&record(&server, "/large"), "write_us");
    server.stop();
}

#[test]
fn a_slow_client_that_sends() {
    let server = server();
    let mut client = server.connect();
    client.send("POST /slowly HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na");
    dawdle(300);
    client.send("b");
    assert_eq!(client.response().text(), "done");
    assert_mostly(&record(&server, "/slowly"), "read_us");
    server.stop();
}

#[test]
fn a_cold_worker() {
    let server = server();
    for (path, nth) in [("/first", 1), ("/second", 2)] {
        server.get(path);
        assert_eq!(record(&server, path)["worker_call"], nth);
    }
    server.stop();
}

#[test]
fn a_retry() {
    let server = server_with(2, "");
    assert_eq!(server.get("/dies-once").text(), "done");
    let record = record(&server, "/dies-once");
    assert_eq!(record["retried"], true);
    server.stop();
}

#[test]
fn a_client_is_told_where_the_time_went() {
    let server = server_with(1, "  server_timing: true\n");
    let told = server.get("/sleep");
    let told = told.header("server-timing").expect("it is on");
    let parts: Vec<&str> = told
        .split(", ")
        .filter_map(|part| part.split(";dur=").next())
        .collect();
    assert_eq!(parts, ["queue", "php", "php-cpu", "php-blocked"]);
    server.stop();
}

#[test]
fn lines_of_the_access_log_have_the_parts() {
    let log = "  access_log: {format: '{path} {queue_us} {php_us} {php_cpu_us} {php_blocked_us} {write_us} {read_us}', \
               output: [access.log]}\n";
    let server = server_with(1, log);
    server.get("/sleep");
    let mut nonsense = server.connect();
    nonsense.send("nonsense\r\n\r\n");
    nonsense.rest();
    let lines = wait_for("both lines", || {
        let text = std::fs::read_to_string(server.site().path("access.log")).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() == 2).then_some(lines)
    });
    let numbers: Vec<u64> = lines[0]
        .split(' ')
        .skip(1)
        .map(|number| number.parse().expect("a number"))
        .collect();
    assert_eq!(numbers.len(), 6, "{lines:?}");
    assert!(numbers[1] > 295_000 && numbers[3] > 295_000, "{lines:?}");
    assert!(lines[1].ends_with(" - - - - - -"), "{lines:?}");
    server.stop();
}

#[test]
fn lines_of_the_access_log_say_where_a_request_went() {
    extension(); // of the pools over the ring, and of scripts
    let pool = "num_workers: 1, command: php worker.php";
    let config = format!(
        "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: info}}\n\
         otel: {{endpoint: '127.0.0.1:9', insecure: true}}\n\
         http:\n  address: 127.0.0.1:0\n  http2: {{h2c: true}}\n  middleware: [static]\n\
         \x20 static: {{dir: public, forbid: [.php]}}\n\
         \x20 access_log: {{format: '{{protocol}} {{path}} {{pool}} {{route}} {{pid}} {{trace_id}}', output: access.log}}\n\
         \x20 pools:\n    ring: {{{pool}, transport: ring}}\n    pipes: {{{pool}, transport: relay}}\n\
         \x20   classic: {{mode: classic, root: scripts, num_workers: 1}}\n\
         \x20   fastcgi: {{mode: fastcgi, root: scripts, num_workers: 1}}\n\
         \x20   cgi: {{mode: cgi, root: scripts, num_workers: 1}}\n\
         \x20 routes:\n{}\n    - {{pool: ring}}\n",
        ["ring", "pipes", "classic", "fastcgi", "cgi"]
            .map(|name| {
                let of_script = match name {
                    "ring" | "pipes" => String::new(),
                    _ => format!(", strip_prefix: /{name}"),
                };
                format!("    - {{path: /{name}/*, pool: {name}{of_script}}}")
            })
            .join("\n")
    );
    let worker = "Pronghorn\\Call::current()->route('named'); return (string) getmypid();";
    let script = "<?php echo getmypid();";
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(worker))
        .file("public/style.css", "p { color: red }")
        .file("scripts/item/index.php", script)
        .file(
            "scripts/pid",
            "#!/bin/sh\necho 'Content-Type: text/plain'\necho\nprintf $$\n",
        )
        .config(&config);
    let program = site.path("scripts/pid");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .expect("it is there");
    let server = Server::start(site);

    let asked = [
        ("/ring/item/7", "ring named"),
        ("/pipes/item/7", "pipes named"),
        ("/classic/item/index.php", "classic /classic/item/index.php"),
        ("/fastcgi/item/index.php", "fastcgi /fastcgi/item/index.php"),
        ("/cgi/pid", "cgi /cgi/pid"),
        ("/style.css", "- -"),
    ];
    for (path, went_to) in asked {
        for (argument, protocol) in [
            ("--http1.1", "HTTP/1.1"),
            ("--http2-prior-knowledge", "HTTP/2.0"),
        ] {
            let url = format!("http://{}{path}", server.address());
            let said = Command::new("curl").args(["-s", argument, &url]).output();
            let said = String::from_utf8(said.expect("curl is installed").stdout).expect("text");
            let pid = if path == "/style.css" { "-" } else { &said };
            let line = format!("{protocol} {path} {went_to} {pid} ");
            let found = wait_for(&line, || {
                let log = std::fs::read_to_string(server.site().path("access.log")).ok()?;
                log.lines()
                    .last()
                    .and_then(|last| Some(last.strip_prefix(&line)?.to_owned()))
            });
            let is_trace = found.len() == 32 && found.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(is_trace, "{line}{found}");
        }
    }
    server.stop();
}

/// A server at which nothing ever answers: PHP waits for its first byte.
fn silent_upstream() -> std::net::TcpListener {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free")
}

/// The record of a slow request.
fn slow_record(server: &Server, path: &str) -> Value {
    wait_for(&format!("the slow record of {path}"), || {
        let log = server.log();
        let mut records = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        records.rfind(|record| {
            let target = record["URI"].as_str().unwrap_or_default();
            record["msg"] == "slow request" && target.starts_with(path)
        })
    })
}

fn stack(record: &Value) -> Vec<&str> {
    let stack = record["stack"].as_str();
    stack.unwrap_or_default().lines().collect()
}

#[test]
fn a_slow_upstream() {
    let server = server_with_slow("200ms");
    let upstream = silent_upstream();
    let path = format!(
        "/upstream?at={}",
        upstream.local_addr().expect("it listens")
    );
    assert_eq!(server.get(&path).text(), "nothing came");
    let record = slow_record(&server, "/upstream");
    assert_mostly(&record, "php_us");
    assert!(millis(&record, "php_blocked_us") > 500.0, "{record}");
    let stack = stack(&record);
    assert_eq!(stack[0], "fread()", "{stack:?}");
    assert!(stack[1].contains("worker.php:"), "{stack:?}");
    assert!(
        stack
            .iter()
            .any(|frame| frame.starts_with("Pronghorn\\serve() ")),
        "{stack:?}"
    );
    assert!(
        record["memory_mb"].as_u64().is_some_and(|mb| mb > 0),
        "{record}"
    );
    // What is not slow has no record.
    server.get("/");
    assert_eq!(server.log().matches("slow request").count(), 1);
    server.stop();
}

#[test]
fn a_handler_that_computes_for_long_is_seen_at_it() {
    let server = server_with_slow("100ms");
    server.get("/compute");
    let record = slow_record(&server, "/compute");
    let stack = stack(&record);
    // Its clock is the loop's condition.
    assert!(
        stack.iter().any(|frame| frame.contains("worker.php:")),
        "{stack:?}"
    );
    assert!(millis(&record, "php_cpu_us") > 295.0, "{record}");
    server.stop();
}

#[test]
fn a_route_has_a_limit_of_its_own() {
    extension(); // else the stack can't be read
    let config = "version: '3'\nserver: {command: php worker.php}\n\
                  logs: {mode: production, level: info}\n\
                  http:\n  address: 127.0.0.1:0\n  pool: {num_workers: 1, transport: ring, slow: 50ms}\n  \
                  routes:\n    - {path: /sleep, slow: 1m}\n    - {path: /compute, slow: 100ms}\n";
    let site = Site::new().file("worker.php", &Site::sdk_worker(WORKER));
    let server = Server::start(site.config(config));
    for path in ["/sleep", "/compute"] {
        server.get(path);
    }
    let record = slow_record(&server, "/compute");
    assert!(!stack(&record).is_empty());
    assert_eq!(server.log().matches("slow request").count(), 1);
    server.stop();
}

#[test]
fn a_session_lock() {
    extension();
    let script = "<?php session_save_path(__DIR__); session_id('shared'); session_start();\n\
        if (isset($_GET['holds'])) { touch(__DIR__ . '/held'); usleep(700_000); }\necho 'done';";
    let config = "version: '3'\nlogs: {mode: production, level: info}\nhttp:\n  address: 127.0.0.1:0\n  \
        pool: {mode: classic, root: public, num_workers: 2, slow: 200ms}\n";
    let site = Site::new().file("public/index.php", script).config(config);
    let server = Server::start(site);
    let mut first = server.connect();
    first.request("GET", "/index.php?holds=1", "");
    wait_for("the session to be held", || {
        server.site().path("public/held").exists().then_some(())
    });
    assert_eq!(server.get("/index.php?waits=1").text(), "done");
    first.response();
    let record = slow_record(&server, "/index.php?waits");
    assert!(millis(&record, "php_blocked_us") > 200.0, "{record}");
    let stack = stack(&record);
    assert_eq!(stack[0], "session_start()", "{stack:?}");
    assert!(stack[1].ends_with("public/index.php:1"), "{stack:?}");
    let holder = slow_record(&server, "/index.php?holds");
    assert_eq!(self::stack(&holder)[0], "usleep()");
    server.stop();
}
