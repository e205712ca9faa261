//! The trace of one request: what is noted on its way, and the spans that are made of it when the
//! response is out.

use std::net::IpAddr;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use pronghorn_base::{micros, shown};
use pronghorn_metrics::Exemplar;
use pronghorn_serve::{OnSent, Request, Sent, Split};
use pronghorn_trace::{
    Begun, Calls, Incoming, Kind, Outgoing, Recorder, Span, SpanId, Trace, Value, add_server,
    nanos, text,
};
use pronghorn_wire::Protocol;
use tokio::time::Instant;

/// Names of the methods of RFC 9110 and PATCH. Others are a client's invention, of which there may
/// be any number.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

/// A request, as far as a trace tells of it. Without its query, which may hold what is secret.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a [u8],
    pub(crate) host: &'a str,
    pub(crate) agent: &'a [u8],
    pub(crate) protocol: Protocol,
    pub(crate) scheme: &'static str,
    /// None of a client that has no address.
    pub(crate) ip: Option<IpAddr>,
    /// When its head was complete.
    pub(crate) accepted: Instant,
    /// The same in microseconds since the Unix epoch.
    pub(crate) accepted_us: u64,
}

/// What is noted of a request until its response is out.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    recorder: Arc<Recorder>,
    begun: Begun,
    /// The span of the application, which is told its number before it is known whether there will
    /// be one.
    php: SpanId,
    /// Method, path, host and agent one after the other: a request takes memory once.
    text: Box<[u8]>,
    /// Where the first three end.
    ends: [usize; 3],
    protocol: Protocol,
    scheme: &'static str,
    ip: Option<IpAddr>,
    /// In microseconds since the Unix epoch.
    accepted_us: u64,
    reached: OnceLock<Reached>,
    /// Methods of the server that the application has called.
    calls: Calls,
    /// When a file began to be sent.
    file: OnceLock<Duration>,
}

/// Where it was answered.
#[derive(Debug)]
struct Reached {
    pool: Box<str>,
    /// The pattern of its path, where that is known.
    route: Option<Box<str>>,
}

impl RequestTrace {
    pub(crate) fn begin(recorder: &Arc<Recorder>, incoming: Incoming, asked: &Asked<'_>) -> Self {
        let (path, agent) = [asked.path, asked.agent]
            .map(String::from_utf8_lossy)
            .into();
        let parts = [asked.method, &path, asked.host, &agent].map(shown);
        let mut text = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        let mut ends = [0; 3];
        for (at, part) in parts.iter().enumerate() {
            text.extend_from_slice(part.as_bytes());
            if let Some(end) = ends.get_mut(at) {
                *end = text.len();
            }
        }
        Self {
            begun: recorder.begin(incoming),
            recorder: recorder.clone(),
            php: SpanId::random(),
            text: text.into(),
            ends,
            protocol: asked.protocol,
            scheme: asked.scheme,
            ip: asked.ip,
            accepted_us: asked.accepted_us,
            reached: OnceLock::new(),
            calls: Calls::since(asked.accepted),
            file: OnceLock::new(),
        }
    }

    /// The trace of a request, if it has one.
    pub(crate) fn of(request: &Request) -> Option<&Self> {
        request.trace.as_deref()?.downcast_ref()
    }

    /// The number of the trace, as it is written.
    pub(crate) fn id(&self) -> String {
        self.begun.trace.to_string()
    }

    /// What the application is told.
    pub(crate) fn outgoing(&self) -> Outgoing {
        self.begun.outgoing(self.php)
    }

    /// Whether the client has sent a state that belongs to its trace.
    pub(crate) fn has_state(&self) -> bool {
        !self.begun.state.is_empty()
    }

    /// The request was in this pool. Told of traces that are kept.
    pub(crate) fn answered_by(&self, pool: &str, route: Option<&str>) {
        // After a local redirect there are several; the one that has answered is the first to tell.
        _ = self.reached.set(Reached {
            pool: pool.into(),
            route: route.map(Into::into),
        });
    }

    /// Takes methods of the server that the application calls.
    pub(crate) const fn calls(&self) -> &Calls {
        &self.calls
    }

    /// A file is sent, which began so long after the request was accepted.
    pub(crate) fn sends_file(&self, after: Duration) {
        _ = self.file.set(after); // there is one response
    }

    pub(crate) fn is_kept(&self, sent: &Sent) -> bool {
        let failed = sent.status >= 500;
        self.recorder.keeps(&self.begun, failed, sent.elapsed)
    }

    /// For histograms of which the request is one, if the trace is kept.
    pub(crate) fn exemplar(&self, sent: &Sent) -> Exemplar {
        Exemplar {
            trace_id: self.begun.trace.number(),
            duration: sent.elapsed,
            at_us: self.accepted_us.saturating_add(micros(sent.elapsed)),
        }
    }

    fn part(&self, from: usize, to: usize) -> &[u8] {
        self.text.get(from..to).unwrap_or_default()
    }

    /// The span that is all of the request.
    fn server(&self, sent: &Sent) -> Span {
        let [method_end, path_end, host_end] = self.ends;
        let method = std::str::from_utf8(self.part(0, method_end)).unwrap_or_default();
        let known = METHODS.iter().find(|known| **known == method);
        let mut attributes = vec![
            (
                "http.request.method",
                known.copied().unwrap_or("_OTHER").into(),
            ),
            ("url.path", text(self.part(method_end, path_end))),
            ("url.scheme", self.scheme.into()),
            ("http.response.status_code", sent.status.into()),
            ("http.response.body.size", sent.bytes.into()),
            ("network.protocol.version", version(self.protocol).into()),
        ];
        if known.is_none() {
            attributes.push(("http.request.method_original", method.into()));
        }
        if let Some(ip) = self.ip {
            attributes.push(("client.address", ip.to_string().as_str().into()));
        }
        let agent = self.part(host_end, self.text.len());
        if !agent.is_empty() {
            attributes.push(("user_agent.original", text(agent)));
        }
        add_server(
            &mut attributes,
            &String::from_utf8_lossy(self.part(path_end, host_end)),
        );
        let error = (sent.status >= 500).then(|| Arc::from(""));
        if error.is_some() {
            attributes.push(("error.type", sent.status.to_string().as_str().into()));
        }
        let mut name = known.map_or("HTTP", |known| *known).to_owned();
        let reached = self.reached.get();
        if let Some(route) = reached.and_then(|reached| reached.route.as_deref()) {
            attributes.push(("http.route", route.into()));
            name = format!("{name} {route}");
        }
        Span {
            id: self.begun.span,
            parent: self.begun.parent,
            name: name.into(),
            kind: Kind::Server,
            start: self.at(Duration::ZERO),
            end: self.at(sent.elapsed),
            attributes,
            error,
        }
    }

    /// What the time was spent on, one after the other.
    fn parts(&self, split: &Split, spans: &mut Vec<Span>) {
        static NAMES: LazyLock<[Arc<str>; 3]> =
            LazyLock::new(|| ["read body", "queue", "php"].map(Arc::from));
        let [read, queue, php] = &*NAMES;
        let part = |name: &Arc<str>, id, from, took, attributes| Span {
            id,
            parent: Some(self.begun.span),
            name: name.clone(),
            kind: Kind::Internal,
            start: self.at(from),
            end: self.at(from + took),
            attributes,
            error: None,
        };
        if !split.read.is_zero() {
            let id = SpanId::random();
            spans.push(part(read, id, Duration::ZERO, split.read, Vec::new()));
        }
        let reached = self.reached.get();
        let pool = reached.map(|reached| ("pronghorn.pool", (*reached.pool).into()));
        let pool = || pool.iter().cloned();
        let id = SpanId::random();
        spans.push(part(queue, id, split.read, split.queue, pool().collect()));
        if let Some(took) = split.worker {
            let mut attributes: Vec<_> = pool().chain(of_worker(split)).collect();
            let calls = self.calls.count();
            if calls > 0 {
                attributes.push(("pronghorn.rpc_calls", calls.into()));
            }
            let from = split.read + split.queue;
            spans.push(part(php, self.php, from, took, attributes));
            spans.extend(self.calls.spans(self.php, self.at(Duration::ZERO)));
        }
    }

    fn file(&self, from: Duration, sent: &Sent) -> Span {
        static NAME: LazyLock<Arc<str>> = LazyLock::new(|| "file".into());
        Span {
            id: SpanId::random(),
            parent: Some(self.begun.span),
            name: NAME.clone(),
            kind: Kind::Internal,
            start: self.at(from),
            end: self.at(sent.elapsed),
            attributes: vec![("pronghorn.file_bytes", sent.bytes.into())],
            error: None,
        }
    }

    /// In nanoseconds since the Unix epoch.
    fn at(&self, after: Duration) -> u64 {
        let accepted = self.accepted_us.saturating_mul(1000);
        accepted.saturating_add(nanos(after))
    }
}

impl OnSent for RequestTrace {
    fn on_sent(&self, sent: &mut Sent) {
        if self.is_kept(sent) {
            self.keep(sent);
        }
    }

    fn ends_trace(&self) -> bool {
        true
    }
}

impl RequestTrace {
    /// Makes the spans.
    pub(crate) fn keep(&self, sent: &Sent) {
        let mut spans = Vec::with_capacity(4);
        spans.push(self.server(sent));
        if let Some(split) = &sent.split {
            self.parts(split, &mut spans);
        }
        if let Some(from) = self.file.get() {
            spans.push(self.file(*from, sent));
        }
        self.recorder.take(Trace {
            id: self.begun.trace,
            state: self.begun.state.clone(),
            spans,
        });
    }
}

/// The worker that had the request, and what it says of its time.
fn of_worker(split: &Split) -> impl Iterator<Item = (&'static str, Value)> {
    let worker = split.answered_by.map(|worker| {
        [
            ("process.pid", u64::from(worker.pid).into()),
            ("pronghorn.worker_call", worker.nth.into()),
            ("pronghorn.retried", Value::Bool(worker.is_retry)),
        ]
    });
    let spent = split.spent.map(|spent| {
        [
            ("pronghorn.php_cpu_us", micros(spent.cpu).into()),
            ("pronghorn.php_blocked_us", micros(spent.blocked).into()),
        ]
    });
    worker
        .into_iter()
        .flatten()
        .chain(spent.into_iter().flatten())
}

fn version(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http10 => "1.0",
        Protocol::Http11 => "1.1",
        Protocol::Http2 => "2",
        Protocol::Http3 => "3",
    }
}
