//! One application under `compat: 2025` and under `compat: 3`: each row of the tables in
//! `docs/migration/from-roadrunner.md`, which are made of the table that `check` goes by.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use pronghorn_testkit::{Connection, Server, Site, free_address, wait_for};
use serde_json::Value;

/// Answers with the path that it gets, names a file, or says something.
const WORKER: &str = "$path = $request->target();
if ($path === '/said') {
    fwrite(STDERR, \"said\\n\");
}
if ($path === '/long') {
    return str_repeat('long ', 1000);
}
return str_starts_with($path, '/sent')
    ? new Pronghorn\\Response('', 200, ['X-Sendfile' => 'kept.txt'])
    : new Pronghorn\\Response($path . ' ' . getenv('RR_VERSION') . ' ' . getenv('FROM_FILE'));";

/// What a row is like, by its topic.
type Seen = BTreeMap<&'static str, String>;

/// Each row: its topic, and what is seen of it under 2025 and under 3.
const EXPECTED: &[(&str, &str, &str)] = &[
    (
        "the order of `http.middleware`",
        "a file",
        "/new.txt 3.0.0 read",
    ),
    (
        "the type of a file that PHP names by `X-Sendfile`",
        "text/plain",
        "application/octet-stream",
    ),
    (
        "log records in JSON",
        "ts, time: [true, false], \"info\"",
        "ts, time: [false, true], \"INFO\"",
    ),
    ("`logs.file_logger_options`", "a file", "a file"),
    (
        "`logs.format`, `logs.time_format`",
        "<INFO said>",
        "<INFO said>",
    ),
    ("log records in development mode", "columns", "columns"),
    (
        "log records with `mode: raw`",
        "fields: true",
        "fields: false",
    ),
    (
        "`logs.level: panic`, `dpanic`, `fatal`",
        "level: error",
        "level: error",
    ),
    ("`http.trusted_headers`", "192.0.2.7", "192.0.2.7"),
    (
        "`http.proxy_protocol`, `http.ssl.proxy_protocol`",
        "192.0.2.1",
        "192.0.2.1",
    ),
    ("`http.unix_socket`", "600", "600"),
    (
        "`http.static.prefixes`, `cache_ttl`; `rr reset static`",
        "PHP's, then the cache is emptied",
        "PHP's, then the cache is emptied",
    ),
    ("`http.rate_limiter`, the middleware `zstd`", "zstd", "zstd"),
    ("`http.http2.h2c`", "ignored", "ignored"),
    (
        "the most workers: `pool.num_workers`, `dynamic_allocator.max_workers`",
        "600, 500: [false, true]",
        "600, 500: [true, true]",
    ),
    ("`envfile`", "read", "read"),
    ("paths of `status`", "200", "200"),
    (
        "`rpc.Version`, `RR_VERSION`, the greeting",
        "2025.1.15",
        "3.0.0",
    ),
    ("`amqp`", OLD, NEW),
    ("a pipeline of `amqp`", OLD, NEW),
    (
        "`jobs.pools`, `jobs.pipelines.<name>.pool`, `nsq`, `lock.driver`, `protoreg`",
        "[false]",
        "[true]",
    ),
    ("`tcp`", "[true]", "[false]"),
    ("`otel.exporter: zipkin`", "[true]", "[false]"),
];

/// Whether `check` says that the other one reads the old shape in another way, and the new one.
const OLD: &str = "[true, false]";
const NEW: &str = "[false, true]";

/// Keys of what is not there yet: `check` names those that the other one reads in another way. By
/// the topic, files and the key that is named.
const CHECKED: &[(&str, &[(&str, &str)])] = &[
    (
        "`amqp`",
        &[
            ("amqp: {addr: 'amqp://h'}", "amqp.addr"),
            ("amqp: {main: {addr: 'amqp://h'}}", "amqp.main.addr"),
        ],
    ),
    (
        "a pipeline of `amqp`",
        &[
            (
                "jobs: {pipelines: {a: {driver: amqp, config: {routing_key: r}}}}",
                "jobs.pipelines.a.config.routing_key",
            ),
            (
                "jobs: {pipelines: {a: {driver: amqp, config: {queue: {name: r}}}}}",
                "jobs.pipelines.a.config.queue.name",
            ),
        ],
    ),
    (
        "`jobs.pools`, `jobs.pipelines.<name>.pool`, `nsq`, `lock.driver`, `protoreg`",
        &[("nsq: {addr: 'h:1'}", "nsq")],
    ),
    ("`tcp`", &[("tcp: {servers: {a: {addr: 'h:1'}}}", "tcp")]),
    (
        "`otel.exporter: zipkin`",
        &[("otel: {exporter: zipkin}", "otel.exporter")],
    ),
];

#[test]
fn one_application_under_both() {
    let expected: Vec<&str> = EXPECTED.iter().map(|(topic, ..)| *topic).collect();
    let on_page = topics();
    for topic in &on_page {
        assert!(
            expected.contains(&topic.as_str()),
            "{topic} has no case here"
        );
    }
    let (old, new) = (seen("2025"), seen("3"));
    for (topic, in_2025, in_3) in EXPECTED {
        assert!(on_page.iter().any(|it| it == topic), "{topic} is no row");
        assert_eq!(old[topic], *in_2025, "{topic} under 2025");
        assert_eq!(new[topic], *in_3, "{topic} under 3");
    }
    assert_eq!((old.len(), new.len()), (EXPECTED.len(), EXPECTED.len()));
}

/// The first column of both tables on the page.
fn topics() -> Vec<String> {
    let page = Site::fixture("../../docs/migration/from-roadrunner.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let mut topics = Vec::new();
    for table in page.split("\n| what | RoadRunner ").skip(1) {
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with("| "));
        let cells = rows.filter_map(|row| Some(row.strip_prefix("| ")?.split_once(" | ")?.0));
        topics.extend(cells.map(ToOwned::to_owned));
    }
    assert!(topics.len() > 20, "{topics:?}");
    topics
}

fn seen(compat: &str) -> Seen {
    let mut seen = Seen::new();
    first_server(compat, &mut seen);
    second_server(compat, &mut seen);
    for (topic, files) in CHECKED {
        let is_told = files.iter().map(|(yaml, key)| {
            let file = format!("version: '3'\ncompat: {compat}\n{yaml}\n");
            let said = Server::run(&Site::new().file(".rr.yaml", &file), &["check"]);
            let line = format!("\n  {key}: ");
            said.stdout.contains(&line) || said.stderr.contains(&line)
        });
        seen.insert(topic, format!("{:?}", is_told.collect::<Vec<_>>()));
    }
    seen
}

fn site(compat: &str, more: &str) -> Site {
    Site::new()
        .file("worker.php", &Site::sdk_worker(WORKER))
        .file("kept.txt", "kept")
        .file("public/new.txt", "a file")
        .file("variables", "FROM_FILE=read")
        .file(
            ".rr.yaml",
            &format!(
                "version: '3'\ncompat: {compat}\nenvfile: variables\nserver: {{command: php worker.php}}\n\
                 http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: 1}}\n\
                 \x20 middleware: [static, rewrite, sendfile]\n  static: {{dir: public}}\n\
                 \x20 rewrite: [{{path: '^/old$', to: /new.txt}}]\n  http2: {{h2c: true}}\n\
                 \x20 trusted_subnets: [127.0.0.0/8]\n  trusted_headers: [X-Real-Ip]\n\
                 logs:\n  mode: production\n  channels:\n\
                 \x20   server: {{format: '<%level% %message%>'}}\n\
                 \x20   config: {{file_logger_options: {{log_output: config.log}}}}\n{more}"
            ),
        )
}

/// What a file has that uses what both have.
fn first_server(compat: &str, seen: &mut Seen) {
    let status = free_address();
    let site = site(compat, &format!("status: {{address: '{status}'}}\n"));
    let server = Server::start_with(site, &["serve", "-c", ".rr.yaml"]);
    let sent = server.get("/sent");
    assert_eq!(sent.text(), "kept");
    let app = server.get("/app").text();
    let mut words = app.split(' ').skip(1);
    let mut word = || words.next().expect("three words");
    let (version, variable) = (word(), word());
    let checks = ["/health", "/livez", "/ready", "/readyz"].map(|path| {
        let answer = Connection::open(status).get(path);
        (answer.status, answer.text())
    });
    assert!(checks.iter().all(|check| *check == checks[0]), "{checks:?}");
    let record = wait_for("the record of a request", || {
        let log = server.log();
        let found = log.lines().find(|line| line.contains("\"http log\""))?;
        serde_json::from_str::<Value>(found).ok()
    });
    let kinds = ["ts", "time"].map(|name| record[name].is_number() || record[name].is_string());
    let told = {
        let mut connection = server.connect();
        connection.request("GET", "/said", "X-Real-Ip: 192.0.2.7\r\n");
        assert_eq!(connection.response().status, 200);
        wait_for("its record", || {
            server.log().contains("192.0.2.7").then_some("192.0.2.7")
        })
    };
    let upgraded = {
        let mut connection = server.connect();
        let asks = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: \r\n";
        connection.request("GET", "/app", asks);
        connection.response().status
    };
    let said = wait_for("what the worker said", || {
        let log = server.log();
        log.lines()
            .find(|line| line.contains("said>"))
            .map(ToOwned::to_owned)
    });
    let of_config = wait_for("the records of a channel", || {
        std::fs::read_to_string(server.site().path("config.log")).ok()
    });
    assert!(
        of_config.contains(&format!("`compat` is {compat}")),
        "{of_config}"
    );
    let run = |command: &[&str], change: &str| {
        let arguments = [command, &["-c", ".rr.yaml", "-o", change]].concat();
        Server::run_beside(server.site(), &arguments)
    };
    let most = ["600", "500"].map(|workers| {
        let change = format!("http.pool.num_workers={workers}");
        run(&["check"], &change).code == Some(0)
    });
    let shown = run(&["config", "show"], "logs.level=panic").stdout;
    let level = shown.lines().find(|line| line.contains("level: error"));
    seen.extend([
        ("the order of `http.middleware`", server.get("/old").text()),
        (
            "the type of a file that PHP names by `X-Sendfile`",
            sent.header("content-type").unwrap_or_default().to_owned(),
        ),
        (
            "log records in JSON",
            format!("ts, time: {kinds:?}, {}", record["level"]),
        ),
        ("`logs.file_logger_options`", "a file".to_owned()),
        ("`logs.format`, `logs.time_format`", said),
        (
            "`logs.level: panic`, `dpanic`, `fatal`",
            level.map_or_else(|| shown.clone(), |_| "level: error".to_owned()),
        ),
        ("`http.trusted_headers`", told.to_owned()),
        (
            "`http.http2.h2c`",
            if upgraded == 200 {
                "ignored"
            } else {
                "upgraded"
            }
            .to_owned(),
        ),
        (
            "the most workers: `pool.num_workers`, `dynamic_allocator.max_workers`",
            format!("600, 500: {most:?}"),
        ),
        ("`envfile`", variable.to_owned()),
        ("paths of `status`", checks[0].0.to_string()),
        (
            "`rpc.Version`, `RR_VERSION`, the greeting",
            version.to_owned(),
        ),
    ]);
    server.stop();
}

/// What RoadRunner 3 alone has, and records for people.
fn second_server(compat: &str, seen: &mut Seen) {
    let config = format!(
        "version: '3'\ncompat: {compat}\nserver: {{command: php worker.php}}\n\
         http:\n  address: unix://web.sock\n  unix_socket: {{mode: '0600'}}\n\
         \x20 proxy_protocol: {{}}\n  listen: [{{address: '127.0.0.1:0'}}]\n\
         \x20 access_log: {{format: '{{ip}}', output: access.log}}\n\
         \x20 middleware: [static, zstd, rate_limiter]\n  pool: {{num_workers: 1}}\n\
         \x20 static: {{dir: public, prefixes: [/assets/], cache_ttl: 1h}}\n\
         \x20 rate_limiter: {{key: global, rate: 1000, burst: 1000}}\n\
         logs: {{mode: development, channels: {{http: {{mode: raw}}}}}}\n"
    );
    let site = Site::new()
        .file("worker.php", &Site::sdk_worker(WORKER))
        .file("public/new.txt", "a file")
        .file(".rr.yaml", &config);
    let server = Server::start_with(site, &["serve", "-c", ".rr.yaml"]);
    let socket = server.site().path("web.sock");
    let mode = std::fs::metadata(&socket)
        .expect("it is there")
        .permissions()
        .mode();

    let mut balancer = UnixStream::connect(&socket).expect("it listens");
    let asks = "PROXY TCP4 192.0.2.1 198.51.100.2 1 2\r\nGET /said HTTP/1.1\r\n\
                Host: test\r\nConnection: close\r\n\r\n";
    balancer.write_all(asks.as_bytes()).expect("it takes it");
    let mut answer = String::new();
    balancer.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let client = wait_for("a line of the access log", || {
        let log = std::fs::read_to_string(server.site().path("access.log")).ok()?;
        log.lines().next().map(ToOwned::to_owned)
    });
    let file = server.get("/new.txt").text();
    let owner = if file.starts_with("/new.txt") {
        "PHP's"
    } else {
        "a file"
    };
    let reset = Server::run_beside(server.site(), &["reset", "static", "-c", ".rr.yaml"]);
    let emptied = reset
        .stdout
        .trim()
        .trim_start_matches("static: ")
        .to_owned();
    let mut connection = server.connect();
    connection.request("GET", "/long", "Accept-Encoding: zstd\r\n");
    let long = connection.response();
    let in_log = |what: &'static str| {
        wait_for(what, || {
            let log = server.log();
            log.lines()
                .find(|line| line.contains(what))
                .map(ToOwned::to_owned)
        })
    };
    let (said, raw) = (in_log("\tsaid"), in_log("http log"));
    let is_column = said.contains("\tINFO\tserver      \tsaid\t{");
    seen.extend([
        (
            "log records in development mode",
            if is_column {
                "columns".to_owned()
            } else {
                said
            },
        ),
        (
            "log records with `mode: raw`",
            format!("fields: {}", raw.starts_with("http log\t{")),
        ),
        ("`http.proxy_protocol`, `http.ssl.proxy_protocol`", client),
        ("`http.unix_socket`", format!("{:o}", mode & 0o777)),
        (
            "`http.static.prefixes`, `cache_ttl`; `rr reset static`",
            format!("{owner}, then {emptied}"),
        ),
        (
            "`http.rate_limiter`, the middleware `zstd`",
            long.header("content-encoding")
                .unwrap_or_default()
                .to_owned(),
        ),
    ]);
    server.stop();
}

/// Octane takes 3.0.0 for older than 2023.3.0, and knows levels in lower case.
#[test]
fn octane_works_under_both() {
    for (compat, greeted) in [("2025", "2025.1.15"), ("3", "3.0.0")] {
        let site = site(compat, "");
        let probed = Server::run_as_rr(&site, &["--version"]).stdout;
        assert_eq!(probed.split(' ').nth(2), Some("2025.1.15"), "{probed}");
        let asked = Server::run_as_rr(&site, &["--version", "-o", &format!("compat={compat}")]);
        let arch = if cfg!(target_arch = "x86_64") {
            "amd64"
        } else {
            "arm64"
        };
        assert_eq!(
            asked.stdout,
            format!(
                "rr version {greeted} (build time: development, pronghorn {}), OS: linux, arch: {arch}\n",
                env!("CARGO_PKG_VERSION")
            )
        );

        let http = free_address();
        let address = format!("http.address={http}");
        let config = site.path(".rr.yaml").display().to_string();
        let arguments = [
            "-c",
            &config,
            "-o",
            &address,
            "-o",
            "logs.output=stdout",
            "serve",
        ];
        let server = Server::start_as_rr(site, &arguments, &[("LARAVEL_OCTANE", "1")], http);
        server.get("/app");
        let record = wait_for("the record of a request", || {
            let out = server.stdout();
            let found = out.lines().find(|line| line.contains("\"http log\""))?;
            serde_json::from_str::<Value>(found).ok()
        });
        assert_eq!(
            (&record["level"], &record["logger"], record["ts"].is_u64()),
            (&"info".into(), &"http".into(), true)
        );
        let greeting = format!(
            "[INFO] RoadRunner server started; version: {greeted}, buildtime: development\n"
        );
        assert!(server.stdout().contains(&greeting), "{}", server.stdout());
        server.stop();
    }
}
