//! Traces: what PHP is told of them, what a collector gets, and what a collector can't do to
//! requests.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_testkit::{Connection, Server, Site, free_address, time, wait_for};
use rustix::process::Signal;
use serde_json::Value;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const WORKER: &str = r"
    switch ($request->path) {
        case '/fail':
            throw new \RuntimeException('no');
        case '/slow':
            require_once 'Psr/Log/autoload.php';
            (new Pronghorn\Log())->info('It takes long.');
            \usleep(1_200_000);
    }
    return $request->header('traceparent') . ' ' . $request->header('uber-trace-id');
";
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
            self.heads.lock().expect("no panic").push(head);
            let status = self.status.load(Relaxed);
            if status == HANG {
                _ = reader.read(&mut [0]); // until the client has gone
                return;
            }
            if status == 200 {
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
    let config = format!(
        "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: info}}\n\
         http:\n  address: 127.0.0.1:0\n  middleware: [otel]\n  pool: {{num_workers: 1, slow: 1s}}\n\
         otel:\n{otel}"
    );
    let site = Site::new().file("worker.php", &Site::sdk_worker(WORKER));
    Server::start(site.config(&config))
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
    let headers = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n");
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
