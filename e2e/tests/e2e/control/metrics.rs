//! Metrics: what the server counts, and what applications declare over RPC.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use pronghorn_testkit::{Connection, Server, Site, time, wait_for};
use pronghorn_wire::frame::Flags;
use rustix::process::Signal;

use super::{Rpc, TCP, listening, started};

const METRICS: &str = "metrics:\n  address: 127.0.0.1:0\n  collect:\n    \
                       app_seen: {type: gauge, help: Seen., labels: [where]}\n";

fn serving() -> Server {
    started(Site::with_worker("app.php"), &format!("{TCP}{METRICS}"))
}

fn address(server: &Server) -> SocketAddr {
    listening(server, "metrics").parse().expect("an address")
}

fn scrape(server: &Server) -> String {
    let response = Connection::open(address(server)).get("/metrics");
    let content_type = response.header("content-type");
    assert_eq!(
        content_type,
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    response.text()
}

/// The value of a series, by all that stands before it.
fn value<'a>(text: &'a str, series: &str) -> Option<&'a str> {
    let mut values = text.lines().filter_map(|line| line.strip_prefix(series));
    values.find_map(|rest| rest.strip_prefix(' '))
}

/// What Prometheus' own tool finds wrong.
fn checked(text: &str) -> String {
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut tool = tool.expect("promtool: `scripts/need tests` installs it");
    let mut input = tool.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    let output = tool.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    said
}

#[test]
fn requests_are_counted_with_the_parts_of_their_time() {
    let server = serving();
    for _ in 0..3 {
        assert_eq!(server.get("/").text(), "Hello");
    }
    server.get("/sleep?ms=200");
    assert_eq!(server.get("/rpc").text(), "2025.1.15");
    let pool = "pool=\"default\"";
    let text = wait_for("all responses to be counted", || {
        let text = scrape(&server);
        let all = value(&text, "rr_http_request_total{status=\"200\"}");
        (all == Some("5")).then_some(text)
    });
    let of = |series: &str| value(&text, series).unwrap_or_else(|| panic!("{series} in {text}"));
    assert_eq!(
        of(&format!(
            "pronghorn_http_requests_total{{{pool},class=\"2xx\"}}"
        )),
        "5"
    );
    assert_eq!(
        of(&format!(
            "pronghorn_http_requests_total{{{pool},class=\"5xx\"}}"
        )),
        "0"
    );
    let phase = |phase: &str, part: &str| {
        of(&format!(
            "pronghorn_http_request_phase_seconds_{part}{{{pool},phase=\"{phase}\"}}"
        ))
    };
    let total = of(&format!(
        "pronghorn_http_request_duration_seconds_sum{{{pool}}}"
    ));
    let phases = ["read", "queue", "worker", "write"];
    let counts = phases.map(|name| phase(name, "count"));
    assert_eq!(counts, ["0", "5", "5", "5"], "there was nothing to read");
    let seconds = |value: &str| value.parse::<f64>().expect("a number");
    let total = seconds(total);
    let sum: f64 = phases.iter().map(|name| seconds(phase(name, "sum"))).sum();
    assert!(
        (total - sum).abs() < 5.0 * 5e-6,
        "{total} s, and {sum} s in parts"
    );
    assert!(seconds(phase("worker", "sum")) >= 0.2, "{text}");
    let duration = "rr_http_request_duration_seconds_bucket{status=\"200\",le=\"+Inf\"}";
    assert_eq!(of(duration), "5");
    assert_eq!(of("rr_http_requests_queue"), "0");
    assert_eq!(
        of(&format!("pronghorn_pool_workers{{{pool},state=\"ready\"}}")),
        "2"
    );
    assert_eq!(of("rr_http_total_workers"), "2");
    assert_eq!(of("rr_http_workers_ready"), "2");
    for pid in server.workers() {
        assert_eq!(
            of(&format!(
                "rr_http_worker_state{{pid=\"{pid}\",state=\"ready\"}}"
            )),
            "0"
        );
        let memory = of(&format!("rr_http_worker_memory_bytes{{pid=\"{pid}\"}}"));
        assert!(seconds(memory) > 1e6, "{text}");
    }
    assert_eq!(checked(&text), "");
    server.stop();
}

#[test]
fn connections_bytes_boots_methods_and_the_configuration_are_told() {
    let server = serving();
    let mut connection = server.connect();
    assert_eq!(connection.get("/").text(), "Hello");
    connection.send("POST /body HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\n12345");
    assert_eq!(connection.response().status, 200);
    assert_eq!(server.get("/rpc").text(), "2025.1.15");
    let text = wait_for("the last response to be counted", || {
        let text = scrape(&server);
        let all = value(&text, "rr_http_request_total{status=\"200\"}");
        (all == Some("3")).then_some(text)
    });
    let of = |series: &str| -> f64 {
        let found = value(&text, series).unwrap_or_else(|| panic!("{series} in {text}"));
        found.parse().expect("a number")
    };
    let pool = "pool=\"default\"";
    for (series, least) in [
        ("pronghorn_http_connections".to_owned(), 1.0),
        ("pronghorn_http_connections_total".to_owned(), 2.0),
        ("pronghorn_http_response_body_bytes_total".to_owned(), 10.0),
        (
            format!("pronghorn_http_request_body_bytes_total{{{pool}}}"),
            5.0,
        ),
        (
            format!("pronghorn_pool_boot_duration_seconds_count{{{pool}}}"),
            2.0,
        ),
        (
            "pronghorn_rpc_calls_total{method=\"rpc.Version\"}".to_owned(),
            1.0,
        ),
        ("pronghorn_config_last_reload_successful".to_owned(), 1.0),
        (
            "pronghorn_config_last_reload_success_timestamp_seconds".to_owned(),
            1.7e9,
        ),
        (
            "pronghorn_config_info{compat=\"2025.1.15\",mode=\"production\"}".to_owned(),
            1.0,
        ),
    ] {
        assert!(of(&series) >= least, "{series} {} in {text}", of(&series));
    }
    for name in [
        "pronghorn_http_connections_refused_total{reason=\"max_connections\"}",
        "pronghorn_http_connections_evicted_total",
        "pronghorn_rpc_failures_total{method=\"rpc.Version\"}",
    ] {
        assert!(of(name) < 0.5, "{name} in {text}");
    }
    for name in [
        "pronghorn_http_spool_bytes{",
        "pronghorn_http_spool_max_bytes{",
    ] {
        assert!(text.contains(name), "{name} in {text}");
    }
    assert_eq!(checked(&text), "");

    // A mistake in the file: the server goes on with what it has, and an alert can tell.
    server
        .site()
        .change_config("num_workers: 2", "num_workers: none");
    server.signal(Signal::HUP);
    let failed = "\npronghorn_config_last_reload_successful 0\n";
    wait_for(failed, || scrape(&server).contains(failed).then_some(()));
    server
        .site()
        .change_config("num_workers: none", "num_workers: 2");
    server.signal(Signal::HUP);
    let done = "\npronghorn_config_last_reload_successful 1\n";
    wait_for(done, || scrape(&server).contains(done).then_some(()));
    server.stop();
}

#[test]
fn applications_declare_and_change_metrics_over_rpc() {
    let server = serving();
    let mut rpc = Rpc::connect(&server);
    let mut call = |method: &str, argument: &str| rpc.call(&format!("metrics.{method}"), argument);
    let orders = r#"{"name":"orders_total","collector":{"namespace":"app","subsystem":"",
        "type":"counter","help":"Orders.","labels":["shop"],"buckets":[],"objectives":{}}}"#;
    assert_eq!(call("Declare", orders), "true");
    assert_eq!(call("Declare", orders), "true", "each worker does");
    let took = r#"{"name":"app_took_seconds","collector":{"type":"histogram","help":"Took.","buckets":[0.5,1]}}"#;
    assert_eq!(call("Declare", took), "true");
    let added = r#"{"name":"orders_total","value":2.5,"labels":["a \"b\"\nc\\d"]}"#;
    assert_eq!(call("Add", added), "true");
    assert_eq!(
        call(
            "Observe",
            r#"{"name":"app_took_seconds","value":0.7,"labels":[]}"#
        ),
        "true"
    );
    let seen = |value: i32| format!(r#"{{"name":"app_seen","value":{value},"labels":["é"]}}"#);
    assert_eq!(call("Set", &seen(10)), "true");
    assert_eq!(call("Sub", &seen(3)), "true");

    let waited = r#"{"name":"waited","collector":{"type":"summary","help":"Waited.",
        "objectives":{"0.5":0.05,"0.99":0.001}}}"#;
    assert_eq!(call("Declare", waited), "true");
    for value in 1..=1000 {
        let observed = format!(r#"{{"name":"waited","value":{value}}}"#);
        assert_eq!(call("Observe", &observed), "true");
    }

    let refused = |answer: String, why: &str| assert!(answer.starts_with(why), "{answer}");
    let other = orders.replace("shop", "city");
    assert_eq!(call("Declare", &other), "true", "the first one counts");
    server.logged(&["declared once more with another type", "orders_total"]);
    refused(
        call("Add", r#"{"name":"orders_total","value":1}"#),
        "error: metrics_plugin_add: required labels for collector `orders_total`",
    );
    refused(
        call("Add", r#"{"name":"nope","value":1}"#),
        "error: metrics_plugin_add: undefined collector nope, try first Declare",
    );
    refused(
        call("Declare", r#"{"name":"x","collector":{"type":"sum"}}"#),
        "error: metrics_plugin_declare: unknown collector type sum",
    );
    refused(
        call(
            "Declare",
            &waited.replace("waited", "x").replace("0.99", "99"),
        ),
        "error: metrics_plugin_declare: the quantiles of `x` are not all from 0 to 1",
    );
    // Bytes that are no text reach no series, whatever becomes of the call.
    let bytes = [
        &br#"{"name":"orders_total","value":1,"labels":["bad "#[..],
        b"\xff\"]}",
    ]
    .concat();
    rpc.ask(Flags::JSON, "metrics.Add", &bytes);

    let text = scrape(&server);
    let series = "app_orders_total{shop=\"a \\\"b\\\"\\nc\\\\d\"}";
    assert_eq!(value(&text, series), Some("2.5"), "{text}");
    assert_eq!(value(&text, "app_seen{where=\"é\"}"), Some("7"));
    assert_eq!(
        value(&text, "app_took_seconds_bucket{le=\"0.5\"}"),
        Some("0")
    );
    assert_eq!(value(&text, "app_took_seconds_bucket{le=\"1\"}"), Some("1"));
    for (quantile, exact) in [("0.5", 500.0), ("0.99", 990.0)] {
        let series = format!("waited{{quantile=\"{quantile}\"}}");
        let found: f64 = value(&text, &series)
            .expect("it is there")
            .parse()
            .expect("a number");
        assert!((found / exact - 1.0).abs() <= 0.01, "{quantile}: {found}");
    }
    assert_eq!(value(&text, "waited_count"), Some("1000"));
    assert_eq!(checked(&text), "");

    let mut connection = Connection::open(address(&server));
    let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";
    connection.request("GET", "/anything", accept);
    let open = connection.response();
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(content_type));
    assert!(
        open.text()
            .contains("# TYPE app_orders counter\napp_orders_total{shop=")
    );
    assert!(open.text().ends_with("\n# EOF\n"));

    assert_eq!(rpc.call("metrics.Unregister", "\"orders_total\""), "true");
    assert!(!scrape(&server).contains("app_orders_total"));
    server.stop();
}

#[test]
fn a_slow_client_keeps_nobody_from_the_metrics() {
    let server = serving();
    let slow: Vec<Connection> = (0..40)
        .map(|_| {
            let mut connection = Connection::open(address(&server));
            connection.send("GET /metrics HTTP/1.1\r\nHost: a\r\n");
            connection
        })
        .collect();
    assert!(scrape(&server).contains("pronghorn_build_info{version="));
    assert_eq!(server.get("/").text(), "Hello");
    drop(slow);
    server.stop();
}

/// Has the application count so much that no socket takes the text for a client that does not read:
/// about 10 MB. Says how long the text is.
fn fill(server: &Server) -> usize {
    let mut rpc = Rpc::connect(server);
    let buckets: Vec<String> = (1..=200).map(|bound| bound.to_string()).collect();
    let declared = format!(
        r#"{{"name":"long","collector":{{"type":"histogram","help":"Long.","labels":["of"],"buckets":[{}]}}}}"#,
        buckets.join(",")
    );
    assert_eq!(rpc.call("metrics.Declare", &declared), "true");
    for number in 0..50 {
        let label = format!("{number}{}", "x".repeat(1000));
        let observed = format!(r#"{{"name":"long","value":1,"labels":["{label}"]}}"#);
        assert_eq!(rpc.call("metrics.Observe", &observed), "true");
    }
    let len = scrape(server).len();
    assert!(len > 9 << 20, "{len} bytes");
    len
}

#[test]
fn clients_that_do_not_take_their_metrics_hold_nobody_up_and_little_memory() {
    const MANY: usize = 40; // more than there may be connections
    let server = serving();
    let text_kb = fill(&server) as u64 >> 10;
    let before = server.resident_memory();
    let ask = |_| {
        let mut connection = Connection::open(address(&server));
        connection.request("GET", "/metrics", "");
        connection
    };
    let silent: Vec<Connection> = (0..MANY).map(ask).collect();
    // For a moment, all have a request that is not answered yet, and nobody can make room.
    let (text, took) = time(|| {
        wait_for("a scrape", || {
            let mut connection = Connection::open(address(&server));
            connection.request("GET", "/metrics", "");
            let answer = connection.answer()?;
            answer.complete.then(|| answer.text())
        })
    });
    assert!(text.contains("pronghorn_build_info{version="));
    assert!(took < Duration::from_secs(8), "a scrape in {took:?}");
    let (page, took) = time(|| server.get("/").text());
    assert_eq!(page, "Hello");
    assert!(took < Duration::from_secs(1), "a page in {took:?}");
    let grown = server.peak_memory().saturating_sub(before);
    assert!(
        grown < 8 * text_kb,
        "{grown} KB for {MANY} clients that do not read {text_kb} KB"
    );
    // All are closed by then: those that made room, and those whose time was over.
    dawdle(12_000);
    for mut connection in silent {
        let got = connection.rest().len() as u64 >> 10;
        assert!(got < text_kb, "a client has {got} KB of {text_kb}");
    }
    server.stop();
}

#[test]
fn a_client_that_takes_its_metrics_slowly_is_cut_off_in_the_end() {
    let server = serving();
    let len = fill(&server);
    let mut slow = Connection::open(address(&server));
    slow.request("GET", "/metrics", "");
    let (status, _) = slow.head();
    assert_eq!(status, 200);
    // It never pauses for long, and would be at it for half a minute.
    let mut got = 0;
    for _ in 0..60 {
        dawdle(200);
        got += slow.take(32 << 10).len();
        let others = scrape(&server).len();
        assert!(others > len - 1000, "others get theirs: {others} bytes");
    }
    got += slow.rest().len();
    assert!(got < len - 1000, "it was not cut off: {got} bytes");
    assert!(got > 60 * (32 << 10), "what was sent before is there");
    server.stop();
}

#[expect(
    clippy::disallowed_methods,
    reason = "a client that is slow, which is what is looked at"
)]
fn dawdle(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

#[test]
fn two_metrics_of_one_name_are_refused_at_the_start() {
    let site = Site::with_worker("app.php");
    let config = std::fs::read_to_string(site.path(".rr.yaml")).expect("it is there");
    let twice = "metrics:\n  address: 127.0.0.1:0\n  collect:\n    \
                 a_b: {type: gauge}\n    b: {type: gauge, namespace: a}\n";
    let site = site.config(&format!("{config}{twice}"));
    let ended = Server::run(&site, &["serve"]);
    ended.assert_refused(&["metrics.collect.b", "`a_b` is the name of another metric"]);
}

/// What RoadRunner's board for HTTP asks for.
const OF_ROADRUNNERS_BOARD: [&str; 12] = [
    "go_goroutines",
    "go_memstats_heap_inuse_bytes",
    "rr_http_request_duration_seconds_bucket",
    "rr_http_request_total",
    "rr_http_requests_queue",
    "rr_http_total_workers",
    "rr_http_uptime_seconds",
    "rr_http_worker_memory_bytes",
    "rr_http_workers_invalid",
    "rr_http_workers_memory_bytes",
    "rr_http_workers_ready",
    "rr_http_workers_working",
];

/// The names of metrics in a text of expressions.
fn named(text: &str) -> Vec<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    let starts = ["pronghorn_", "process_"];
    words
        // There with jobs, whose tests look for them.
        .filter(|word| !word.starts_with("pronghorn_jobs_"))
        .filter(|word| starts.iter().any(|start| word.starts_with(start)))
        .collect()
}

#[test]
fn boards_and_rules_find_every_metric_that_they_ask_for() {
    let server = serving();
    server.get("/");
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations/boards");
    let read = |name: &str| std::fs::read_to_string(docs.join(name)).expect("it is there");
    let (requests, workers) = (read("requests.json"), read("workers.json"));
    for board in [&requests, &workers] {
        let board: serde_json::Value = serde_json::from_str(board).expect("JSON");
        assert!(
            board["panels"]
                .as_array()
                .is_some_and(|panels| panels.len() > 5)
        );
    }
    let rules = read("rules.yml");
    let mut wanted: Vec<&str> = OF_ROADRUNNERS_BOARD.to_vec();
    for text in [&requests, &workers, &rules] {
        let found = named(text);
        assert!(found.len() > 5, "{found:?}");
        wanted.extend(found);
    }
    wait_for("the request to be counted", || {
        scrape(&server)
            .contains("rr_http_request_total{")
            .then_some(())
    });
    let text = scrape(&server);
    for name in wanted {
        let is_there = text.lines().any(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        assert!(is_there, "{name} is missing in {text}");
    }
    let checked = Command::new("promtool")
        .args(["check", "rules"])
        .arg(docs.join("rules.yml"))
        .output()
        .expect("promtool");
    assert!(checked.status.success(), "{checked:?}");
    server.stop();
}
