//! What a running server tells of itself: metrics by route, records of the application, reports
//! that stay.

use std::process::Command;

use pronghorn_testkit::{
    Connection, Ended, Server, Site, binary, free_address, php_command, wait_for,
};
use serde_json::Value;

use crate::first_minute::Disk;
use crate::ring::extension;

const WORKER: &str = r"
    $call = Pronghorn\Call::current();
    switch ($request->path) {
        case '/named':
            $call->route('users.show');
            break;
        case '/missing':
            return new Pronghorn\Response('none', 404);
        case '/logs':
            $call->route('logs.write');
            require_once 'Psr/Log/autoload.php';
            (new Pronghorn\Log())->warning('Cart {id} is lost.', ['id' => 7, 'list' => [1]]);
            break;
        case '/counts':
            Pronghorn\Metrics::counter('orders_total', ['shop' => $request->query()['shop'] ?? 'eu'], 'Orders.')->add(2);
            Pronghorn\Metrics::histogram('size', buckets: [1, 10])->observe(3);
            Pronghorn\Metrics::gauge('open')->add();
            break;
        case '/counts-wrong':
            Pronghorn\Metrics::gauge('orders_total')->set(1);
            break;
        case '/dies':
            \posix_kill(\getmypid(), 11);
            // no break: it is gone
        case '/fatal':
            \ini_set('memory_limit', '40M');
            \str_repeat('a', 1 << 30);
            // no break: nor does this return
        case '/late':
            \sleep(60);
            break;
        case '/computes':
            $used = static fn (array $usage): int => 1_000_000 * ($usage['ru_utime.tv_sec'] + $usage['ru_stime.tv_sec'])
                + $usage['ru_utime.tv_usec'] + $usage['ru_stime.tv_usec'];
            for ($until = $used(\getrusage()) + 200_000; $used(\getrusage()) < $until;) {
            }
            \usleep(200_000);
            isset($request->query()['dies']) ? \posix_kill(\getmypid(), 9) : \sleep(60);
    }
    return 'done';
";

fn site(more: &str, config: &str) -> Site {
    let config = format!(
        "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: info}}\n{more}\
         http:\n  address: 127.0.0.1:0\n  request_id: {{}}\n  pool: {{num_workers: 1, retry: never{config}}}\n"
    );
    Site::new()
        .file("worker.php", &Site::sdk_worker(WORKER))
        .config(&config)
}

fn scrape(address: std::net::SocketAddr) -> String {
    let mut connection = Connection::open(address);
    connection.get("/metrics").text()
}

#[test]
fn requests_count_by_route_and_their_records_name_it() {
    let metrics = free_address();
    let server = Server::start(site(&format!("metrics: {{address: '{metrics}'}}\n"), ""));
    for path in ["/user/7", "/user/8?a=b", "/named", "/missing"] {
        server.get(path);
    }
    for (route, requests) in [("/user/{id}", 2), ("users.show", 1), ("other", 1)] {
        let line = format!(
            "pronghorn_http_route_duration_seconds_count{{pool=\"default\",route=\"{route}\"}} {requests}\n"
        );
        // Counted when the response is out, which the client may know sooner.
        wait_for(&line, || scrape(metrics).contains(&line).then_some(()));
    }
    server.logged(&["http log", "/user/8?a=b", r#""route":"/user/{id}""#]);
    server.logged(&["http log", "/named", r#""route":"users.show""#]);
    // What was learned outlives a reload.
    assert_eq!(server.steer(&["reset"]).code, Some(0));
    server.get("/user/9");
    let line = "route=\"/user/{id}\"} 3\n";
    wait_for(line, || scrape(metrics).contains(line).then_some(()));
    server.stop();
}

#[test]
fn records_of_the_application_know_their_request() {
    for transport in ["ring", "relay"] {
        if transport == "ring" {
            extension();
        }
        let server = Server::start(site("", &format!(", transport: {transport}")));
        server.get("/logs");
        let line = server.logged(&["Cart 7 is lost."]);
        let record: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(record["logger"], "app");
        assert_eq!(record["level"], "warn");
        assert_eq!(record["context"], serde_json::json!({"id": 7, "list": [1]}));
        assert_eq!(record["route"], "logs.write");
        assert_eq!(record["pool"], "default");
        assert_eq!(record["pid"], server.workers()[0]);
        let request = server.logged(&["http log", "/logs"]);
        let request: Value = serde_json::from_str(&request).expect("JSON");
        assert_eq!(record["request_id"], request["request_id"]);
        assert!(record["request_id"].is_string(), "{record}");
        server.stop();
    }
}

#[test]
fn what_workers_count_is_added_up() {
    for transport in ["ring", "relay"] {
        if transport == "ring" {
            extension();
        }
        let metrics = free_address();
        let config = format!(", transport: {transport}");
        let server = Server::start(site(
            &format!("metrics: {{address: '{metrics}'}}\n"),
            &config,
        ));
        for _ in 0..5 {
            assert_eq!(server.get("/counts").text(), "done");
        }
        server.get("/counts-wrong");
        server.logged(&["`orders_total` is another kind of metric elsewhere"]);
        // A worker's end loses nothing.
        assert_eq!(server.steer(&["reset"]).code, Some(0));
        server.get("/counts");
        for line in [
            "# HELP orders_total Orders.\n",
            "# TYPE orders_total counter\n",
            "\norders_total{shop=\"eu\"} 12\n",
            "\nsize_bucket{le=\"10\"} 6\n",
            "\nopen 6\n",
        ] {
            wait_for(line, || scrape(metrics).contains(line).then_some(()));
        }
        server.stop();
    }
}

/// Calls a method over RPC, in PHP: with a text, or with `applogger.v1.LogEntry`.
const CALLS: &str = r#"
    $rpc = Pronghorn\Rpc::connect("tcp://$argv[1]");
    foreach (['Error', 'Warning', 'Info', 'Debug', 'Log'] as $level) {
        var_dump($rpc->call("app.$level", "plain $level"));
    }
"#;

#[test]
fn the_app_logger_of_roadrunner_writes_records() {
    let rpc = free_address();
    let server = Server::start(site(&format!("rpc: {{listen: tcp://{rpc}}}\n"), ""));
    let autoload = repository().join("php/goridge/autoload.php");
    let code = format!("require '{}';{CALLS}", autoload.display());
    let ran = php_command("php")
        .args(["-r", &code, &rpc.to_string()])
        .output()
        .expect("php runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(
        said,
        "bool(false)\n".repeat(5),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    for (level, text) in [
        ("error", "plain Error"),
        ("warn", "plain Warning"),
        ("info", "plain Info"),
        ("info", "plain Log"),
    ] {
        let line = server.logged(&[text]);
        let record: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(
            (&record["logger"], &record["level"]),
            (&"app".into(), &level.into())
        );
    }
    // A message of protobuf: field 1 is the text, field 2 an attribute.
    let entry = b"\x0a\x04lost\x12\x07\x0a\x02id\x12\x01\x37";
    let answer = call(rpc, "app.WarningWithContext", 0x80, entry);
    assert_eq!(answer, b"app.WarningWithContext");
    let record = server.logged(&["\"msg\":\"lost\""]);
    assert!(record.contains(r#""context":{"id":"7"}"#), "{record}");
    server.stop();
}

/// What is answered to a call with these bytes: the payload of the frame.
fn call(address: std::net::SocketAddr, method: &str, flags: u8, argument: &[u8]) -> Vec<u8> {
    use pronghorn_wire::frame::{Flags, Header, MAX_PAYLOAD, Options, Stream};
    let payload = [method.as_bytes(), argument].concat();
    let options = Options::new(&[1, u32::try_from(method.len()).expect("it is short")]);
    let mut frame = Vec::new();
    let header = Header {
        flags: Flags(flags),
        stream: Stream::END,
        options,
        payload: u32::try_from(payload.len()).expect("it is short"),
    };
    header.encode(&mut frame);
    frame.extend_from_slice(&payload);
    let mut connection = Connection::open(address);
    connection.send(frame);
    let start = connection.take(20);
    let header = Header::decode(&start, MAX_PAYLOAD)
        .expect("a frame")
        .expect("all of it");
    connection.take(header.payload as usize)
}

fn repository() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn crashes(server: &Server, arguments: &[&str]) -> Ended {
    server.steer(&[&["crashes"], arguments].concat())
}

#[test]
fn what_went_wrong_is_kept_and_shown_without_its_secrets() {
    extension();
    let server = Server::start(site(
        "state_dir: state\n",
        ", transport: ring, supervisor: {exec_ttl: 1s}",
    ));
    let nothing = crashes(&server, &[]);
    assert!(
        nothing.stdout.starts_with("No reports in "),
        "{}",
        nothing.stdout
    );
    let mut connection = server.connect();
    connection.request(
        "GET",
        "/dies?token=hunter2&page=2",
        "Authorization: Bearer hunter2\r\n",
    );
    connection.response();
    server.get("/fatal");
    assert_eq!(server.get("/late").status, 504);
    let reports = wait_for("three reports", || {
        let reports: Vec<Value> =
            serde_json::from_str(&crashes(&server, &["--json"]).stdout).ok()?;
        (reports.len() >= 3).then_some(reports)
    });
    let of = |kind: &str| {
        let mut found = reports.iter().filter(|report| report["kind"] == kind);
        found
            .next()
            .unwrap_or_else(|| panic!("a {kind} in {reports:?}"))
    };
    let crash = of("crash");
    assert_eq!(crash["request"]["what"], "GET /dies?token=***&page=2");
    assert!(
        crash["cause"].as_str().expect("a cause").contains("signal"),
        "{crash}"
    );
    assert!(!crash.to_string().contains("hunter2"), "{crash}");
    let fatal = of("fatal");
    assert!(
        fatal["cause"].as_str().expect("a cause").contains("memory"),
        "{fatal}"
    );
    let late = of("timeout");
    assert_eq!(late["stack"][0], "sleep()", "{late}");

    let id = late["id"].as_str().expect("an ID");
    let shown = crashes(&server, &[id]).stdout;
    assert!(shown.contains("stack        sleep()"), "{shown}");
    let groups = crashes(&server, &["--group"]).stdout;
    assert!(
        groups.contains("    1 × timeout  default  deadline passed: GET /late"),
        "{groups}"
    );
    let group = late["group"].as_str().expect("a name");
    assert!(
        groups.contains(&format!("\n    group {group}, last ")),
        "{groups}"
    );
    assert!(
        shown.contains(&format!("group        {group}\n")),
        "{shown}"
    );
    let last = crashes(&server, &["--last", "1"]).stdout;
    assert!(last.contains(" older ones: `--last "), "{last}");
    let wrong = crashes(&server, &["none"]);
    assert_eq!(wrong.code, Some(1));
    assert!(
        wrong.stderr.contains("begins with `none`"),
        "{}",
        wrong.stderr
    );

    let folder = server.site().path("state/reports");
    let site = server.into_site();
    assert!(folder.exists());
    // They outlive the server, and need none.
    let after = Server::run(&site, &["crashes", "--json"]);
    assert!(
        after.stdout.contains("\"timeout\""),
        "{}{}",
        after.stdout,
        after.stderr
    );
}

/// One that computes and waits passes its deadline; meanwhile one waits for its worker, and dies.
#[test]
fn reports_say_what_the_time_went_to() {
    for transport in ["ring", "relay"] {
        if transport == "ring" {
            extension();
        }
        let config = format!(", transport: {transport}, supervisor: {{exec_ttl: 2s}}");
        let server = Server::start(site("state_dir: state\n", &config));
        server.get("/");
        let mut late = server.connect();
        late.request("GET", "/computes", "");
        wait_for("the worker to be busy", || {
            let shown = server.steer(&["workers"]).stdout;
            shown.contains("GET /computes").then_some(())
        });
        let mut dies = server.connect();
        dies.request("GET", "/computes?dies=1", "");
        assert_eq!(late.response().status, 504);
        assert_eq!(dies.response().status, 502);
        let reports = wait_for("both reports", || {
            let said = crashes(&server, &["--json"]).stdout;
            let reports: Vec<Value> = serde_json::from_str(&said).ok()?;
            (reports.len() == 2).then_some(reports)
        });
        let split = |kind: &str, part: &str| {
            let of_kind = reports.iter().find(|report| report["kind"] == kind);
            let split = &of_kind.unwrap_or_else(|| panic!("a {kind} in {reports:?}"))["split"];
            let micros = split[part].as_f64();
            micros.unwrap_or_else(|| panic!("{part} in {split}")) / 1e3
        };
        for (kind, php, blocked) in [("timeout", 2000.0, 1000.0), ("crash", 390.0, 190.0)] {
            let took = split(kind, "php_us");
            assert!(took >= php, "{transport} {kind}: {reports:?}");
            let (cpu, waited) = (split(kind, "php_cpu_us"), split(kind, "php_blocked_us"));
            assert!(
                (cpu + waited - took).abs() < 1.0,
                "{transport} {kind}: {reports:?}"
            );
            assert!(
                (190.0..400.0).contains(&cpu),
                "{transport} {kind}: {reports:?}"
            );
            assert!(waited >= blocked, "{transport} {kind}: {reports:?}");
        }
        // As long as the other one had the worker, and it was not looked at yet.
        assert!(
            split("crash", "queue_us") > 1000.0,
            "{transport}: {reports:?}"
        );
        assert!(
            split("timeout", "queue_us") < 300.0,
            "{transport}: {reports:?}"
        );

        let id = reports[0]["id"].as_str().expect("an ID");
        let shown = crashes(&server, &[id]).stdout;
        assert!(
            shown.contains("\ntime went to waiting in the queue "),
            "{shown}"
        );
        assert!(shown.contains("\n             PHP computed "), "{shown}");
        server.stop();
    }
}

#[test]
fn workers_add_up_their_processor_time_also_that_of_those_that_have_ended() {
    let metrics = free_address();
    let more = format!("metrics: {{address: '{metrics}'}}\n");
    let server = Server::start(site(&more, ", supervisor: {exec_ttl: 1s}"));
    let taken = || {
        let text = scrape(metrics);
        let series = "pronghorn_pool_workers_cpu_seconds_total{pool=\"default\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        let seconds = line.and_then(|value| value.parse::<f64>().ok());
        seconds.unwrap_or_else(|| panic!("{series} in {text}"))
    };
    let before = taken();
    server.get("/computes?dies=1");
    wait_for("its successor", || {
        (server.get("/").text() == "done").then_some(())
    });
    let after = taken();
    assert!(
        (before + 0.19..before + 5.0).contains(&after),
        "{before} {after}"
    );
    server.stop();
}

#[test]
fn a_boot_that_failed_is_kept() {
    let site = site("state_dir: state\n", "").file("worker.php", "<?php exit(3);");
    let ended = Server::run(&site, &["serve"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let reports = Server::run(&site, &["crashes"]).stdout;
    assert!(reports.contains("  boot     default  "), "{reports}");
}

/// Somebody may put a pipe, a link or a folder where files are expected: nothing waits for it.
#[test]
fn what_is_no_file_holds_no_command_up() {
    let site = site("state_dir: state\n", "").file("worker.php", "<?php exit(3);");
    Server::run(&site, &["serve"]);
    for pipe in ["state/reports/0.json", ".pid"] {
        let made = Command::new("mkfifo").arg(site.path(pipe)).status();
        assert!(made.expect("mkfifo is of coreutils").success());
    }
    std::os::unix::fs::symlink("/dev/zero", site.path("state/reports/1.json")).expect("a link");
    std::fs::create_dir(site.path("state/reports/2.json")).expect("a folder");
    let large = std::fs::File::create(site.path("state/reports/3.json")).expect("a file");
    large.set_len(2 << 30).expect("it takes no room");
    let listed = Server::run(&site, &["crashes"]);
    assert!(
        listed.stdout.contains("  boot     default  "),
        "{}",
        listed.stdout
    );
    assert_eq!(
        listed.stderr,
        "warning: these are not reports, and were skipped: `0.json` is a named pipe, `1.json` is a \
         symbolic link, `2.json` is a folder, and 1 more\n"
    );
    let stopped = Server::run(&site, &["stop"]);
    assert!(stopped.stderr.contains("no server"), "{}", stopped.stderr);
    // And the server writes and removes reports as if it were not there.
    Server::run(&site, &["serve", "-o", "reports.keep=1"]);
    let reports: Value =
        serde_json::from_str(&Server::run(&site, &["crashes", "--json"]).stdout).expect("JSON");
    assert_eq!(reports.as_array().map(Vec::len), Some(1), "{reports}");
}

#[test]
fn a_full_disk_for_reports_is_told_and_holds_no_request_up() {
    let site = site("state_dir: state\n", "");
    let Some(disk) = Disk::mounted(site.path("state/reports")) else {
        return;
    };
    let filler = site.path("state/reports/filler");
    std::fs::write(&filler, vec![0; 4096]).expect("it has this much room");
    let server = Server::start(site);
    server.get("/dies");
    server.logged(&["a report can't be written", "No space left on device"]);
    assert_eq!(server.get("/").text(), "done");
    let files = std::fs::read_dir(server.site().path("state/reports")).expect("it is there");
    assert_eq!(files.count(), 1, "half a report is none");
    std::fs::remove_file(&filler).expect("it is there");
    server.get("/dies");
    wait_for("a report, as there is room again", || {
        let reports: Vec<Value> =
            serde_json::from_str(&crashes(&server, &["--json"]).stdout).ok()?;
        (reports.len() == 1).then_some(())
    });
    let site = server.into_site();
    drop(disk);
    drop(site);
}

/// Clients choose paths: their number has no end, and that of routes has one.
#[test]
fn ten_thousand_distinct_paths_leave_few_routes() {
    const PATHS: usize = 10_000;
    const CLIENTS: usize = 4;
    let metrics = free_address();
    let server = Server::start(site(&format!("metrics: {{address: '{metrics}'}}\n"), ""));
    let before = server.resident_memory();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut connection = server.connect();
            scope.spawn(move || {
                for number in (client..PATHS).step_by(CLIENTS) {
                    // Words, each another one: what has digits is a parameter from the start.
                    let digits = format!("{number:05}");
                    let letters = digits.bytes().map(|digit| char::from(digit - b'0' + b'k'));
                    let word: String = letters.collect();
                    let (first, second) = word.split_at(2);
                    let path = format!("/{first}/{second}/{word}");
                    assert_eq!(connection.get(&path).status, 200, "{path}");
                }
            });
        }
    });
    let counted = |text: &str| {
        let counts = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("pronghorn_http_route_duration_seconds_count{")?;
            rest.rsplit(' ').next()?.parse::<usize>().ok()
        });
        counts.collect::<Vec<usize>>()
    };
    let routes = wait_for("all requests to be counted", || {
        let routes = counted(&scrape(metrics));
        (routes.iter().sum::<usize>() == PATHS).then_some(routes)
    });
    assert!(routes.len() <= 200, "{} routes", routes.len());
    let grown = server.resident_memory().saturating_sub(before);
    assert!(grown < 20 << 10, "{grown} KB");
    server.stop();
}

fn ask(address: std::net::SocketAddr, path: &str, headers: &str) -> (u16, Value) {
    let mut connection = Connection::open(address);
    connection.request("GET", path, headers);
    let response = connection.response();
    let value = serde_json::from_str(&response.text()).unwrap_or(Value::Null);
    (response.status, value)
}

#[test]
fn the_admin_listener_shows_what_the_server_knows() {
    extension();
    let admin = free_address();
    let token = "an-admins-token-0";
    let more = format!("state_dir: state\nadmin: {{listen: '{admin}', token: {token}}}\n");
    let server = Server::start(site(&more, ", transport: ring"));
    let own = format!("Authorization: Bearer {token}\r\n");
    for path in ["/metrics", "/api/v1/status", "/", "/nowhere"] {
        assert_eq!(ask(admin, path, "").0, 401, "{path}");
        assert_eq!(
            ask(admin, path, "Authorization: Bearer other\r\n").0,
            401,
            "{path}"
        );
    }
    let lower = format!("Authorization: bearer {token}\r\n");
    assert_eq!(ask(admin, "/api/v1/status", &lower).0, 200);
    for path in ["/livez", "/readyz", "/health", "/ready"] {
        assert_eq!(ask(admin, path, "").0, 200, "{path}");
    }
    server.get("/user/7");
    server.get("/dies");
    let api = |path: &str| ask(admin, path, &own).1;
    wait_for("the route", || {
        let routes = api("/api/v1/routes");
        let mut routes = routes.as_array()?.iter();
        let found = routes.find(|route| route["route"] == "/user/{id}")?;
        (found["requests"] == 1).then_some(())
    });
    let reports = wait_for("the report", || {
        let reports = api("/api/v1/reports");
        (reports["total"] == 1).then_some(reports)
    });
    assert_eq!(reports["reports"][0]["request"], "GET /dies");
    let id = reports["groups"][0]["last"]["id"].as_str().expect("an ID");
    assert_eq!(api(&format!("/api/v1/reports/{id}"))["kind"], "crash");
    assert_eq!(ask(admin, "/api/v1/reports/none", &own).0, 404);
    let status = api("/api/v1/status");
    assert_eq!(status["pools"][0]["name"], "default", "{status}");
    // The one that died has a successor.
    wait_for("a worker", || {
        let workers = api("/api/v1/workers");
        let worker = &workers[0]["workers"][0];
        let is_told = |field: &str| worker[field].as_u64().is_some_and(|number| number > 0);
        assert_eq!(workers[0]["service"], "http", "{workers}");
        let told = is_told("memory_bytes") && is_told("cpu_ms") && is_told("age_ms");
        (worker["transport"] == "ring" && told).then_some(())
    });
    assert_eq!(api("/api/v1/queue")[0]["waiting"], 0);
    let config = api("/api/v1/config");
    let keys = config["keys"].as_array().expect("a list");
    let size = keys
        .iter()
        .find(|key| key["key"] == "http.pool.num_workers");
    let size = size.expect("it is one of them");
    assert_eq!(size["value"], "1", "{size}");
    assert!(
        size["source"]
            .as_str()
            .is_some_and(|at| at.contains(".rr.yaml:")),
        "{size}"
    );
    let config = config.to_string();
    assert!(
        config.contains(".rr.yaml:") && !config.contains(token),
        "{config}"
    );
    let mut connection = Connection::open(admin);
    connection.request("GET", "/metrics", &own);
    assert!(
        connection
            .response()
            .text()
            .contains("pronghorn_build_info")
    );
    connection.request("POST", "/api/v1/status", &own);
    assert_eq!(connection.response().status, 405);
    server.stop();
}

/// As a package lays them out, without a token, as a browser asks.
#[test]
fn the_admin_listener_shows_the_documentation_that_a_package_has() {
    let admin = free_address();
    let more = format!("admin: {{listen: '{admin}', token: an-admins-token-0}}\n");
    let server = Server::start(site(&more, ""));
    let missing = Connection::open(admin).get("/docs/");
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("not installed"));
    server.stop();

    let site = site(&more, "");
    site.write("usr/share/pronghorn/site/index.html", "<h1>All pages</h1>");
    site.write("usr/share/pronghorn/site/guide/tls.html", "<h1>TLS</h1>");
    site.write("usr/share/pronghorn/other.html", "no page");
    let program = site.path("usr/bin/pronghorn");
    std::fs::create_dir(site.path("usr/bin")).expect("a folder can be made");
    std::fs::copy(binary(), &program).expect("a program can be copied");
    let server = Server::start_by(Command::new(program), site, &["serve"]);
    let page = |path: &str| {
        let response = Connection::open(admin).get(path);
        (response.status, response.text())
    };
    assert_eq!(page("/docs/"), (200, "<h1>All pages</h1>".to_owned()));
    assert_eq!(
        page("/docs/guide/tls.html"),
        (200, "<h1>TLS</h1>".to_owned())
    );
    let moved = Connection::open(admin).get("/docs");
    assert_eq!(moved.header("location"), Some("/docs/"));
    for other in [
        "/docs/none.html",
        "/docs/../other.html",
        "/docs/%2e%2e/other.html",
    ] {
        let (status, text) = page(other);
        assert!(
            matches!(status, 400 | 401 | 403 | 404),
            "{other}: {status} {text}"
        );
    }
    assert_eq!(page("/docsearch").0, 401);
    server.stop();
}

#[test]
fn an_admin_listener_without_a_token_is_for_this_machine() {
    let admin = free_address();
    let server = Server::start(site(&format!("admin: {{listen: '{admin}'}}\n"), ""));
    let mut connection = Connection::open(admin);
    connection.send("GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1:2115\r\n\r\n");
    assert_eq!(connection.response().status, 200);
    // A page whose name somebody has pointed here.
    connection.send("GET /api/v1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(connection.response().status, 403);
    server.stop();
    let public = site("admin: {listen: ':2115'}\n", "");
    let ended = Server::run(&public, &["serve"]);
    assert_eq!(ended.code, Some(2));
    for part in ["`admin.listen`", "there is no `token`", "admin.token"] {
        assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
    }
}
