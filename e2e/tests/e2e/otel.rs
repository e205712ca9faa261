//! Traces: what PHP is told of them, what a collector gets, and what a collector can't do to
//! requests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_testkit::{Connection, Server, Site, free_address, time, wait_for};
use rustix::process::Signal;
use serde_json::Value;

use crate::grpc;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const WORKER: &str = r#"
    switch ($request->path) {
        case '/fail':
            throw new \RuntimeException('no');
        case '/slow':
            require_once 'Psr/Log/autoload.php';
            (new Pronghorn\Log())->info('It takes long.');
            \usleep(1_200_000);
            break;
        case '/methods':
            Pronghorn\Rpc::connect()->call('informer.List', true);
            try {
                return Pronghorn\Rpc::connect()->call('rpc.Version', true);
            } catch (Pronghorn\RpcError $error) {
                return $error->getMessage();
            }
        case '/file':
            return Pronghorn\Response::file(__FILE__);
        case '/counts':
            Pronghorn\Metrics::counter('orders_total', ['shop' => "a\xff\"\n"], 'Orders.')->add(3);
    }
    return $request->header('traceparent') . ' ' . $request->header('uber-trace-id');
"#;
/// The collector does not answer at all.
const HANG: u16 = 0;

/// A span as a collector gets it.
#[derive(Clone, Debug, PartialEq)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    start: u64,
    end: u64,
}

/// A collector that a test plays: it answers with one status, and keeps what it got with 200.
#[derive(Clone)]
struct Collector {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    spans: Arc<Mutex<Vec<Span>>>,
    /// Messages with metrics, as they came.
    metrics: Arc<Mutex<Vec<Vec<u8>>>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    fn start(status: u16) -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), status)
    }

    fn at(address: SocketAddr, status: u16) -> Self {
        let listener = TcpListener::bind(address).expect("the port is free");
        let collector = Self {
            address: listener.local_addr().expect("it is bound"),
            status: Arc::new(AtomicU16::new(status)),
            spans: Arc::default(),
            metrics: Arc::default(),
            heads: Arc::default(),
        };
        let serving = collector.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        collector
    }

    fn serve(&self, stream: TcpStream) {
        let mut writer = stream.try_clone().expect("a second handle");
        let mut reader = BufReader::new(stream);
        loop {
            let (mut head, mut line) = (String::new(), String::new());
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                head.push_str(&std::mem::take(&mut line).to_lowercase());
            }
            let Some((_, rest)) = head.split_once("content-length: ") else {
                return;
            };
            let len = rest.split("\r\n").next().expect("a length");
            let mut body = vec![0; len.parse().expect("a length")];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            let has_metrics = head.starts_with("post /v1/metrics ");
            self.heads.lock().expect("no panic").push(head);
            let status = self.status.load(Relaxed);
            if status == HANG {
                _ = reader.read(&mut [0]); // until the client has gone
                return;
            }
            if status == 200 && has_metrics {
                self.metrics.lock().expect("no panic").push(body);
            } else if status == 200 {
                self.spans.lock().expect("no panic").extend(spans(&body));
            }
            let answer = format!("HTTP/1.1 {status} Whatever\r\nContent-Length: 0\r\n\r\n");
            if writer.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Those of the trace whose span that is all of it fits.
    fn trace(&self, fits: impl Fn(&Span) -> bool) -> Vec<Span> {
        wait_for("a trace at the collector", || {
            let spans = self.spans.lock().expect("no panic");
            let whole = spans.iter().find(|span| fits(span))?;
            let trace = spans.iter().filter(|span| span.trace == whole.trace);
            Some(trace.cloned().collect())
        })
    }
}

/// Fields of a protobuf message: numbers with numbers of 64 bits, or with bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut number = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a whole message");
            *bytes = rest;
            number |= u64::from(first & 127) << shift;
            if *first < 128 {
                break;
            }
        }
        number
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, content) = match key & 7 {
            0 => (varint(&mut bytes), &[][..]),
            1 => {
                let (number, rest) = bytes.split_first_chunk().expect("eight bytes");
                bytes = rest;
                (u64::from_le_bytes(*number), &[][..])
            }
            2 => {
                let len = usize::try_from(varint(&mut bytes)).expect("a length");
                let (content, rest) = bytes.split_at(len);
                bytes = rest;
                (0, content)
            }
            other => unreachable!("a field of kind {other}"),
        };
        fields.push((key >> 3, number, content));
    }
    fields
}

fn of(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    let fields = fields(bytes).into_iter();
    let fields = fields.filter(|(found, ..)| *found == number);
    fields.map(|(_, _, content)| content).collect()
}

fn spans(request: &[u8]) -> Vec<Span> {
    let resources = of(request, 1).into_iter();
    let scopes = resources.flat_map(|resource| of(resource, 2));
    let spans = scopes.flat_map(|scope| of(scope, 2));
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            _ = write!(text, "{byte:02x}"); // a string takes everything
            text
        })
    };
    let read = |span: &[u8]| {
        let bytes = |number| of(span, number).first().copied().unwrap_or_default();
        let number = |number| {
            let fields = fields(span);
            let field = fields.iter().find(|(found, ..)| *found == number);
            field.expect("a time").1
        };
        Span {
            trace: hex(bytes(1)),
            id: hex(bytes(2)),
            parent: hex(bytes(4)),
            name: String::from_utf8(bytes(5).to_vec()).expect("a name"),
            start: number(7),
            end: number(8),
        }
    };
    spans.map(read).collect()
}

fn server(otel: &str) -> Server {
    Server::start(site(otel))
}

fn site(otel: &str) -> Site {
    let config = format!(
        "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: info}}\n\
         http:\n  address: 127.0.0.1:0\n  middleware: [otel]\n  pool: {{num_workers: 1, slow: 1s}}\n\
         otel:\n{otel}"
    );
    let site = Site::new().file("worker.php", &Site::sdk_worker(WORKER));
    site.config(&config)
}

fn to(collector: &Collector) -> String {
    format!(
        "  insecure: true\n  batch: {{wait: 50ms}}\n  endpoint: {}\n",
        collector.address
    )
}

fn get(server: &Server, target: &str, headers: &str) -> String {
    let mut connection = server.connect();
    connection.request("GET", target, headers);
    connection.response().text()
}

#[test]
fn a_trace_goes_from_the_client_through_the_server_to_php() {
    let collector = Collector::start(200);
    let metrics = free_address();
    let more = format!(
        "  compress: false\n  headers: {{X-Key: hush}}\n  custom_url: /otlp/v1/traces\n\
         metrics: {{address: '{metrics}'}}\n"
    );
    let server = server(&format!("{}{more}", to(&collector)));
    let headers = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\nuber-trace-id: 1:2:0:0\r\n");
    let seen = get(&server, "/slow", &headers);

    let trace = collector.trace(|span| span.name.starts_with("GET"));
    assert!(trace.iter().all(|span| span.trace == TRACE), "{trace:?}");
    let named = |name: &str| {
        let span = trace.iter().find(|span| span.name.starts_with(name));
        span.unwrap_or_else(|| panic!("no `{name}` in {trace:?}"))
            .clone()
    };
    let (whole, queue, php) = (named("GET"), named("queue"), named("php"));
    assert_eq!(whole.parent, CALLER);
    assert_eq!((&queue.parent, &php.parent), (&whole.id, &whole.id));
    assert!(whole.start <= queue.start && queue.end <= php.start && php.end <= whole.end);
    assert!(php.end - php.start >= 1_200_000_000, "{php:?}");
    let (id, told) = (&php.id, seen.clone());
    assert_eq!(
        seen,
        format!("00-{TRACE}-{id}-01 {TRACE}:{id}:0:1"),
        "{told}"
    );
    let head = collector.heads.lock().expect("no panic")[0].clone();
    assert!(
        head.starts_with("post /otlp/v1/traces http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains("x-key: hush") && head.contains("application/x-protobuf"),
        "{head}"
    );
    for record in ["http log", "It takes long.", "slow request"] {
        server.logged(&[record, &format!("\"trace_id\":\"{TRACE}\"")]);
    }
    assert!(!server.log().contains("hush"));
    let mut prometheus = Connection::open(metrics);
    prometheus.request(
        "GET",
        "/metrics",
        "Accept: application/openmetrics-text\r\n",
    );
    let text = prometheus.response().text();
    let exemplar = format!("# {{trace_id=\"{TRACE}\"}} 1.2");
    for name in ["request_duration", "route_duration"] {
        let mut lines = text.lines().filter(|line| line.contains(name));
        assert!(lines.any(|line| line.contains(&exemplar)), "{text}");
    }
    server.stop();
}

#[test]
fn methods_that_php_calls_and_files_are_parts_of_a_trace() {
    let collector = Collector::start(200);
    let server = server(&to(&collector));
    let why = get(&server, "/methods", "");
    assert!(why.contains("can't find service rpc.Version"), "{why}");
    assert!(
        why.contains("no section `rpc`") && why.contains("write `rpc: {}`"),
        "{why}"
    );
    let file = get(&server, "/file", "");
    assert!(file.contains("case '/file'"), "{file}");
    let has = |name: &'static str| {
        let trace = collector.trace(|span| span.name == name);
        let of = |name: &str| {
            let span = trace.iter().find(|span| span.name.starts_with(name));
            span.unwrap_or_else(|| panic!("no `{name}` in {trace:?}"))
                .clone()
        };
        (of(name), of("php"), of("GET"))
    };
    for method in ["informer/List", "rpc/Version"] {
        let (method, php, _) = has(method);
        assert_eq!(method.parent, php.id);
        assert!(
            php.start <= method.start && method.end <= php.end,
            "{method:?} in {php:?}"
        );
    }
    let (file, php, whole) = has("file");
    assert_eq!(file.parent, whole.id);
    assert!(
        php.end <= file.start && file.end == whole.end,
        "{file:?} after {php:?}"
    );
    server.stop();
}

#[test]
fn a_call_of_grpc_has_a_trace_with_its_parts() {
    let collector = Collector::start(200);
    let more = format!("  pool: {{num_workers: 1}}\notel:\n{}", to(&collector));
    let (server, address) = grpc::start("grpc/foreign.php", &more);
    let client = grpc::connect(address);
    let parent = format!("00-{TRACE}-{CALLER}-01");
    let fields = [("traceparent", &*parent), ("x-request-id", "r-1")];
    let got = client.call("Say", &fields, grpc::text("context", 0));
    assert_eq!(got.code(), "0");
    let trace = collector.trace(|span| span.name == "test.v1.Talk/Say");
    assert!(trace.iter().all(|span| span.trace == TRACE), "{trace:?}");
    let named = |name: &str| {
        let span = trace.iter().find(|span| span.name == name);
        span.unwrap_or_else(|| panic!("no `{name}` in {trace:?}"))
    };
    let (whole, queue, php) = (named("test.v1.Talk/Say"), named("queue"), named("php"));
    assert_eq!(whole.parent, CALLER);
    assert_eq!((&queue.parent, &php.parent), (&whole.id, &whole.id));
    assert!(whole.start <= queue.start && queue.end <= php.start && php.end <= whole.end);
    let body = String::from_utf8_lossy(&got.body);
    for told in [
        format!("\"Traceparent\":[\"00-{TRACE}-{}-01\"]", php.id),
        format!("\"Uber-Trace-Id\":[\"{TRACE}:{}:0:1\"]", php.id),
        format!("\"traceparent\":[\"00-{TRACE}-{}-01\"]", php.id),
    ] {
        assert!(body.contains(&told), "{told}: {body}");
    }
    let fields = [
        "\"URI\":\"/test.v1.Talk/Say\"".to_owned(),
        "\"request_id\":\"r-1\"".to_owned(),
        format!("\"trace_id\":\"{TRACE}\""),
    ];
    let fields: Vec<_> = fields.iter().map(|field| &**field).collect();
    server.logged(&[&["method was called successfully"], &fields[..]].concat());
    // A stream's worker is busy until the end of the stream; here the client's package has none.
    let got = client.call("Join", &[], grpc::text("a", 0));
    assert_eq!(got.code(), "12");
    collector.trace(|span| span.name == "test.v1.Talk/Join");
    server.stop();
}

/// A metric as a collector gets it: its message, and the parts that a test looks at.
#[derive(Debug)]
struct Metric(Vec<u8>);

impl Metric {
    /// What its points lie in: 5 is a gauge, 7 a sum, 11 a summary.
    fn data(&self, kind: u64) -> &[u8] {
        of(&self.0, kind)
            .first()
            .copied()
            .expect("points of this kind")
    }

    /// The points of a gauge or a sum: what stands in their attributes, and their values.
    fn points(&self, kind: u64) -> Vec<(Vec<String>, f64)> {
        let point = |point: &[u8]| {
            let labels = of(point, 7).into_iter();
            let values = labels.map(|label| of(of(label, 2)[0], 1)[0]);
            let values = values.map(|value| String::from_utf8_lossy(value).into_owned());
            let numbers = fields(point).into_iter();
            let mut numbers = numbers.filter_map(|(number, bits, _)| match number {
                4 => Some(f64::from_bits(bits)),
                #[expect(clippy::cast_precision_loss, reason = "bytes and small counts")]
                6 => Some(bits as f64),
                _ => None,
            });
            (values.collect(), numbers.next().expect("a value"))
        };
        of(self.data(kind), 1).into_iter().map(point).collect()
    }

    /// The one point that there is.
    fn value(&self, kind: u64) -> f64 {
        let points = self.points(kind);
        assert_eq!(points.len(), 1, "{points:?}");
        points[0].1
    }

    /// Whether its points are those of an `UpDownCounter`: a sum of all that is there now, which
    /// may fall.
    fn is_up_down_counter(&self) -> bool {
        const CUMULATIVE: u64 = 2;
        let sum = fields(self.data(7));
        let number = |wanted| {
            let mut fields = sum.iter();
            let found = fields.find(|(number, ..)| *number == wanted);
            found.map(|(_, value, _)| *value)
        };
        number(2) == Some(CUMULATIVE) && number(3).is_none_or(|monotonic| monotonic == 0)
    }
}

impl Collector {
    /// Those of the last message.
    fn last_metrics(&self) -> Option<BTreeMap<String, Metric>> {
        let messages = self.metrics.lock().expect("no panic");
        let resources = of(messages.last()?, 1).into_iter();
        let scopes = resources.flat_map(|resource| of(resource, 2));
        let metrics = scopes.flat_map(|scope| of(scope, 2));
        let named = metrics.map(|metric| {
            let name = String::from_utf8_lossy(of(metric, 1)[0]).into_owned();
            (name, Metric(metric.to_vec()))
        });
        Some(named.collect())
    }

    /// One of them, as soon as it is what is waited for.
    fn metric(&self, name: &str, fits: impl Fn(&Metric) -> bool) -> Metric {
        wait_for(name, || self.last_metrics()?.remove(name).filter(&fits))
    }
}

#[test]
fn metrics_of_the_application_go_to_the_collector() {
    let collector = Collector::start(200);
    let address = free_address();
    let server = server(&format!(
        "{}  metrics: {{interval: 1s}}\nmetrics:\n  address: '{address}'\n  collect:\n    \
         waited: {{type: summary, objectives: {{0.5: 0.05}}}}\n",
        to(&collector)
    ));
    get(&server, "/counts", "");
    let orders = collector.metric("orders_total", |_| true);
    assert_eq!(of(&orders.0, 2), [b"Orders."]);
    let points = orders.points(7);
    assert_eq!(points, [(vec!["a\u{fffd}\"\n".to_owned()], 3.0)]);
    let waited = collector.metric("waited", |_| true);
    assert!(!waited.data(11).is_empty(), "it is a summary");
    let mut prometheus = Connection::open(address);
    let text = prometheus.get("/metrics").text();
    assert!(
        text.contains("orders_total{shop=\"a\u{fffd}\\\"\\n\"} 3"),
        "{text}"
    );
    server.stop();
}

/// Without a section `metrics`: the collector alone is told.
#[test]
fn a_collector_is_told_of_workers_queues_and_memory() {
    let collector = Collector::start(200);
    let server = server(&format!("{}  metrics: {{interval: 1s}}\n", to(&collector)));
    get(&server, "/counts", "");
    assert!((collector.metric("orders_total", |_| true).value(7) - 3.0).abs() < f64::EPSILON);

    // One after the other: for longer than two intervals.
    let mut busy = [server.connect(), server.connect()];
    for connection in &mut busy {
        connection.request("GET", "/slow", "");
    }
    let working = |metric: &Metric| {
        let mut points = metric.points(7).into_iter();
        points.any(|(labels, workers)| labels == ["default", "working"] && workers > 0.0)
    };
    let workers = collector.metric("pronghorn_pool_workers", working);
    assert!(workers.is_up_down_counter());
    let all: f64 = workers.points(7).iter().map(|(_, workers)| workers).sum();
    assert!((all - 1.0).abs() < f64::EPSILON, "{workers:?}");
    for connection in &mut busy {
        connection.response();
    }

    for name in [
        "pronghorn_pool_workers_memory_bytes",
        "pronghorn_pool_workers_memory_shared_bytes",
        "process_resident_memory_bytes",
    ] {
        let memory = collector.metric(name, |_| true);
        assert!(memory.is_up_down_counter(), "{name}");
        assert!(memory.value(7) > 1e6, "{name}: {memory:?}");
        assert_eq!(of(&memory.0, 3), [b"By"], "its unit");
    }
    let queue = collector.metric("pronghorn_pool_queue_calls", |_| true);
    assert!(queue.is_up_down_counter());
    let oldest = collector.metric("pronghorn_pool_queue_oldest_wait_seconds", |_| true);
    assert!(
        oldest.value(5) >= 0.0,
        "a gauge: two waits add up to nothing"
    );
    server.stop();
}

#[test]
fn a_collector_gets_all_that_prometheus_gets() {
    let collector = Collector::start(200);
    let address = free_address();
    let server = server(&format!(
        "{}  metrics: {{interval: 1s}}\nmetrics: {{address: '{address}'}}\n",
        to(&collector)
    ));
    get(&server, "/counts", "");
    collector.metric("orders_total", |_| true);
    let text = Connection::open(address).get("/metrics").text();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.filter_map(|line| line.split(' ').next());
    // What others call the same twice, for their boards, is there once.
    let own = names.filter(|name| !name.starts_with("rr_") && !name.starts_with("go_"));
    let own: Vec<_> = own.collect();
    assert!(own.len() > 20, "{own:?}");
    wait_for("a message with all of them", || {
        let told = collector.last_metrics()?;
        own.iter()
            .all(|name| told.contains_key(*name))
            .then_some(())
    });
    server.stop();
}

/// Where Debian has it, for any architecture.
fn fake_clock() -> String {
    let listed = Command::new("dpkg").args(["-L", "libfaketime"]).output();
    let listed = listed.expect("dpkg runs").stdout;
    let listed = String::from_utf8(listed).expect("names of files");
    let library = listed
        .lines()
        .find(|line| line.ends_with("/libfaketimeMT.so.1"));
    library
        .expect("`scripts/need tests` installs faketime")
        .to_owned()
}

#[test]
fn a_clock_that_jumps_moves_no_duration() {
    let collector = Collector::start(200);
    let metrics = free_address();
    let site = site(&format!(
        "{}metrics: {{address: '{metrics}'}}\nstate_dir: state\n",
        to(&collector)
    ))
    .file("clock", "+0");
    let clock = site.path("clock");
    let library = fake_clock();
    let environment = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", clock.to_str().expect("a text")),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let server = Server::start_with_environment(site, &["serve"], &environment);
    for (jump, requests) in [("-3h", 1.0), ("+20d", 2.0)] {
        let mut connection = server.connect();
        connection.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_for("the request to be with a worker", || {
            let workers = server.steer(&["workers"]).stdout;
            workers.contains(" 1 busy").then_some(())
        });
        std::fs::write(&clock, jump).expect("it can be written");
        assert_eq!(connection.response().status, 200);
        let long = |span: &Span| span.end.saturating_sub(span.start);
        let is_right = |took: u64| (1_200_000_000..3_000_000_000).contains(&took);
        wait_for("the spans of the request", || {
            let spans = collector.spans.lock().expect("no panic");
            let of = |name: &str| {
                let named = spans.iter().filter(|span| span.name.starts_with(name));
                named.filter(|span| is_right(long(span))).count()
            };
            let expected = if jump == "-3h" { 1 } else { 2 };
            (of("GET") == expected && of("php") == expected).then_some(())
        });
        let text = Connection::open(metrics).get("/metrics").text();
        let sum = |series: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(series));
            line.expect(series).trim().parse::<f64>().expect("a number")
        };
        let took = sum("pronghorn_http_request_duration_seconds_sum{pool=\"default\"}");
        assert!((1.2 * requests..3.0 * requests).contains(&took), "{text}");
    }
    assert_eq!(server.get("/").status, 200);
    server.stop();
}

#[test]
fn what_failed_or_was_slow_is_kept_where_nothing_else_is() {
    let collector = Collector::start(200);
    let sampling = "  sampling: {ratio: 0, slow: 1s}\n";
    let server = server(&format!("{}{sampling}", to(&collector)));
    for path in ["/", "/fail", "/", "/slow"] {
        let seen = get(&server, path, "");
        assert!(path == "/fail" || seen.contains("-00 "), "{seen}");
    }
    server.stop(); // which sends what is left
    let spans = collector.spans.lock().expect("no panic");
    let whole = spans.iter().filter(|span| span.name.starts_with("GET"));
    let took: Vec<_> = whole
        .map(|span| (span.end - span.start) / 1_000_000_000)
        .collect();
    assert_eq!(took.len(), 2, "{spans:?}");
    assert_eq!(
        took.iter().filter(|took| **took > 0).count(),
        1,
        "{spans:?}"
    );
}

#[test]
fn a_collector_that_hangs_slows_nothing_down_and_is_told_of_once() {
    let address = Collector::start(HANG).address;
    let server = server(&format!(
        "  insecure: true\n  endpoint: {address}\n  timeout: 200ms\n  queue: 8\n  batch: {{wait: 10ms, spans: 1}}\n"
    ));
    let (answered, took) = time(|| {
        let mut connection = server.connect();
        (0..200)
            .filter(|_| connection.get("/").status == 200)
            .count()
    });
    assert_eq!(answered, 200);
    assert!(took < Duration::from_secs(10), "{took:?}");
    server.logged(&["does not take what it gets", "no answer within 0.2 s"]);
    server.logged(&["traces are lost"]);
    let (ended, took) = time(|| server.stop());
    assert!(took < Duration::from_secs(8), "{took:?}");
    let told = ended.stderr.matches("does not take what it gets").count();
    assert_eq!(told, 1, "{}", ended.stderr);
}

#[test]
fn traces_wait_for_a_collector_that_is_away_or_busy() {
    let address = free_address();
    let server = server(&format!(
        "  insecure: true\n  batch: {{wait: 50ms}}\n  endpoint: {address}\n"
    ));
    get(&server, "/", "");
    server.logged(&["does not take what it gets", "refused"]);
    let collector = Collector::at(address, 503);
    wait_for("a try", || {
        collector.heads.lock().expect("no panic").first().cloned()
    });
    collector.status.store(200, Relaxed);
    assert_eq!(
        collector.trace(|span| span.name.starts_with("GET")).len(),
        3
    );
    server.logged(&["takes traces again"]);
    server.stop();
}

#[test]
fn spans_are_lines_of_json_on_standard_output() {
    let server =
        server("  exporter: stdout\n  batch: {wait: 50ms}\n  resource: {service_name: shop}\n");
    get(&server, "/", "");
    let line = wait_for("a line", || {
        let out = server.stdout();
        out.lines()
            .find(|line| line.contains("resourceSpans"))
            .map(ToOwned::to_owned)
    });
    let line: Value = serde_json::from_str(&line).expect("JSON");
    let of_server = &line["resourceSpans"][0];
    assert_eq!(
        of_server["resource"]["attributes"][0]["value"]["stringValue"],
        "shop"
    );
    let spans = &of_server["scopeSpans"][0]["spans"];
    let name = spans[0]["name"].as_str();
    assert!(name.is_some_and(|name| name.starts_with("GET")), "{line}");
    assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
    server.stop();
}

#[test]
fn a_reload_changes_what_is_kept() {
    let collector = Collector::start(200);
    let server = server(&format!(
        "{}  sampling: {{ratio: 0, errors: false}}\n",
        to(&collector)
    ));
    get(&server, "/fail", "");
    server.site().change_config("ratio: 0,", "ratio: 1,");
    server.signal(Signal::HUP);
    server.logged(&["reloaded"]);
    wait_for("a trace that is kept", || {
        get(&server, "/", "").contains("-01 ").then_some(())
    });
    collector.trace(|span| span.name.starts_with("GET"));
    server.stop();
}
