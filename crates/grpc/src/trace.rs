//! The trace of one call: what is noted on its way, and the spans that are made of it at its end.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pronghorn_grpc_wire::{Call, Code, Metadata, Status};
use pronghorn_pool::{Stamps, Taker};
use pronghorn_trace::{
    Begun, Calls, Incoming, Kind, Outgoing, Recorder, Span, SpanId, Trace, Value, add_server,
    names_trace, nanos, text,
};
use tokio::time::Instant;

/// A call, from its head to its end.
#[derive(Debug)]
pub(crate) struct CallTrace {
    recorder: Arc<Recorder>,
    begun: Begun,
    /// The span of the application, which is told its number before it is known whether there will
    /// be one.
    php: SpanId,
    service: Box<str>,
    method: Box<str>,
    /// Whether a `.proto` file has it. Others are a client's invention, of which there may be any
    /// number.
    is_known: bool,
    authority: Box<str>,
    ip: Option<IpAddr>,
    accepted: Instant,
    /// The same in microseconds since the Unix epoch.
    accepted_us: u64,
    /// Methods of the server that the application has called.
    calls: Calls,
    pool: OnceLock<Box<str>>,
    taker: OnceLock<Taker>,
    stamps: OnceLock<Stamps>,
}

impl CallTrace {
    /// Begins the trace of a call, or this server's part of it. PHP is told which span it works on,
    /// in each way that the client speaks.
    pub(crate) fn begin(recorder: &Arc<Recorder>, call: &mut Call, is_known: bool) -> Self {
        let metadata = &call.metadata;
        let speaks = metadata
            .iter()
            .any(|(name, _)| names_trace(name.as_bytes()));
        let incoming = if speaks {
            Incoming::read(|name| metadata.get(name).map(|value| &value.bytes()[..]))
        } else {
            Incoming::default()
        };
        let trace = Self {
            begun: recorder.begin(incoming),
            recorder: recorder.clone(),
            php: SpanId::random(),
            service: call.method.service.as_str().into(),
            method: call.method.method.as_str().into(),
            is_known,
            authority: call.authority.as_str().into(),
            ip: call.peer.address.ip(),
            accepted: call.accepted,
            accepted_us: call.accepted_us,
            calls: Calls::since(call.accepted),
            pool: OnceLock::new(),
            taker: OnceLock::new(),
            stamps: OnceLock::new(),
        };
        trace.tell(&mut call.metadata);
        trace
    }

    fn tell(&self, metadata: &mut Metadata) {
        let outgoing = self.outgoing();
        metadata.set_text("traceparent", &outgoing.w3c());
        if metadata.get("uber-trace-id").is_some() {
            metadata.set_text("uber-trace-id", outgoing.jaeger().as_bytes());
        }
        if self.begun.state.is_empty() {
            metadata.remove("tracestate"); // without the client's parent it means nothing
        }
        if metadata.get("b3").is_some() {
            metadata.set_text("b3", outgoing.b3().as_bytes());
        }
        if metadata.get("x-b3-traceid").is_some() {
            metadata.set_text("x-b3-traceid", outgoing.trace.to_string().as_bytes());
            metadata.set_text("x-b3-spanid", outgoing.span.to_string().as_bytes());
            let sampled: &[u8] = if outgoing.sampled { b"1" } else { b"0" };
            metadata.set_text("x-b3-sampled", sampled);
            metadata.remove("x-b3-parentspanid");
        }
    }

    /// The context that PHP is told.
    pub(crate) fn outgoing(&self) -> Outgoing {
        self.begun.outgoing(self.php)
    }

    /// The number of the trace, as it is written.
    pub(crate) fn id(&self) -> String {
        self.begun.trace.to_string()
    }

    /// Takes methods of the server that the application calls.
    pub(crate) const fn calls(&self) -> &Calls {
        &self.calls
    }

    pub(crate) fn asks(&self, pool: &str) {
        _ = self.pool.set(pool.into()); // a call has one pool
    }

    pub(crate) fn taken(&self, by: Taker) {
        _ = self.taker.set(by); // the first one counts: calls are not repeated
    }

    pub(crate) fn answered(&self, stamps: &Stamps) {
        _ = self.stamps.set(*stamps); // a call is answered once
    }

    /// Makes the spans, if they are wanted.
    pub(crate) fn end(&self, status: &Status, took: Duration) {
        let failed = is_failure(status.code);
        if !self.recorder.keeps(&self.begun, failed, took) {
            return;
        }
        let mut spans = Vec::with_capacity(3);
        spans.push(self.server(status, failed, took));
        if let Some(stamps) = self.stamps.get() {
            self.parts(stamps, took, &mut spans);
        }
        self.recorder.take(Trace {
            id: self.begun.trace,
            state: self.begun.state.clone(),
            spans,
        });
    }

    /// The span that is all of the call.
    fn server(&self, status: &Status, failed: bool, took: Duration) -> Span {
        let mut attributes = vec![
            ("rpc.system", Value::from("grpc")),
            ("rpc.service", text(self.service.as_bytes())),
            ("rpc.method", text(self.method.as_bytes())),
            (
                "rpc.grpc.status_code",
                Value::Int(status.code.number().into()),
            ),
        ];
        if let Some(ip) = self.ip {
            attributes.push(("client.address", ip.to_string().as_str().into()));
        }
        add_server(&mut attributes, &self.authority);
        if failed {
            attributes.push(("error.type", status.code.word().into()));
        }
        let name = if self.is_known {
            format!("{}/{}", self.service, self.method)
        } else {
            "gRPC".to_owned()
        };
        Span {
            id: self.begun.span,
            parent: self.begun.parent,
            name: name.into(),
            kind: Kind::Server,
            start: self.at(Duration::ZERO),
            end: self.at(took),
            attributes,
            error: failed.then(|| pronghorn_base::shown(&status.message).into()),
        }
    }

    /// The parts of its time, one after the other.
    fn parts(&self, stamps: &Stamps, took: Duration, spans: &mut Vec<Span>) {
        let since = |moment: Instant| moment.saturating_duration_since(self.accepted).min(took);
        let pool = self.pool.get();
        let pool = pool.map(|pool| ("pronghorn.pool", Value::from(&**pool)));
        let part = |name: &str, id, from, to, attributes| Span {
            id,
            parent: Some(self.begun.span),
            name: name.into(),
            kind: Kind::Internal,
            start: self.at(from),
            end: self.at(to),
            attributes,
            error: None,
        };
        let queued = since(stamps.queued);
        let claimed = stamps.claimed.or(stamps.dispatched).map(since);
        let until = claimed.unwrap_or(took);
        let attributes = pool.iter().cloned().collect();
        spans.push(part("queue", SpanId::random(), queued, until, attributes));
        let Some(claimed) = claimed else { return };
        // A stream is answered with its first message, and holds its worker until its end.
        let complete = stamps.complete.map_or(took, since);
        let mut attributes: Vec<_> = pool.into_iter().collect();
        if let Some(taker) = self.taker.get().filter(|taker| taker.pid != 0) {
            attributes.push(("process.pid", u64::from(taker.pid).into()));
            attributes.push(("pronghorn.worker_call", taker.nth.into()));
        }
        let calls = self.calls.count();
        if calls > 0 {
            attributes.push(("pronghorn.rpc_calls", calls.into()));
        }
        spans.push(part("php", self.php, claimed, complete, attributes));
        spans.extend(self.calls.spans(self.php, self.at(Duration::ZERO)));
    }

    /// In nanoseconds since the Unix epoch.
    fn at(&self, after: Duration) -> u64 {
        let accepted = self.accepted_us.saturating_mul(1000);
        accepted.saturating_add(nanos(after))
    }
}

/// Statuses that are failures of a server, by the conventions of OpenTelemetry.
const fn is_failure(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

#[cfg(test)]
mod tests {
    use pronghorn_grpc_wire::{Content, Flavour, MethodPath};
    use pronghorn_metrics::Registry;
    use pronghorn_serve::{Peer, PeerAddress};
    use pronghorn_trace::{Sampling, Tracer};

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const CALLER: &str = "00f067aa0ba902b7";

    fn call(fields: &[(&str, String)]) -> Call {
        let mut metadata = Metadata::new();
        for (name, value) in fields {
            metadata.push_text(name, value.as_bytes());
        }
        Call {
            method: MethodPath::parse(b"/a.B/Do").unwrap(),
            content: Content {
                flavour: Flavour::Grpc,
            },
            metadata,
            authority: "a.test:9001".to_owned(),
            deadline: None,
            peer: Arc::new(Peer {
                address: PeerAddress::Ip("192.0.2.1:5".parse().unwrap()),
                ip: "192.0.2.1".to_owned(),
                tls: false,
                server: None,
                certificate: None,
            }),
            accepted: Instant::now(),
            accepted_us: 1,
        }
    }

    /// The metadata for PHP, and the spans that are kept.
    fn traced(ratio: f64, fields: &[(&str, String)], code: Code) -> (Metadata, Option<Trace>) {
        let tracer = Tracer::default();
        let sampling = Sampling {
            parent: true,
            ratio,
            errors: true,
            slow: None,
        };
        let mut traces = tracer.turn_on(&sampling, 8, &Registry::default()).unwrap();
        let mut call = call(fields);
        let trace = CallTrace::begin(tracer.recorder().unwrap(), &mut call, true);
        trace.end(&Status::new(code, "why"), Duration::from_millis(2));
        (call.metadata, traces.waiting())
    }

    #[test]
    fn a_call_goes_on_in_the_trace_of_its_client() {
        let fields = [
            ("traceparent", format!("00-{TRACE}-{CALLER}-01")),
            ("uber-trace-id", format!("{TRACE}:{CALLER}:0:1")),
            ("b3", format!("{TRACE}-{CALLER}-1")),
        ];
        let (metadata, trace) = traced(0.0, &fields, Code::NotFound);
        let trace = trace.expect("the client keeps it");
        let span = &trace.spans[0];
        assert_eq!(trace.id.to_string(), TRACE);
        assert_eq!(span.parent.map(|id| id.to_string()), Some(CALLER.into()));
        assert_eq!((&*span.name, span.kind), ("a.B/Do", Kind::Server));
        assert_eq!((span.end - span.start, &span.error), (2_000_000, &None));
        for attribute in [
            ("rpc.system", "grpc".into()),
            ("rpc.service", "a.B".into()),
            ("rpc.method", "Do".into()),
            ("rpc.grpc.status_code", Value::Int(5)),
            ("client.address", "192.0.2.1".into()),
            ("server.address", "a.test".into()),
            ("server.port", Value::Int(9001)),
        ] {
            assert!(span.attributes.contains(&attribute), "{attribute:?}");
        }
        for name in ["traceparent", "uber-trace-id", "b3"] {
            let told = metadata.get(name).unwrap().bytes();
            let told = String::from_utf8_lossy(told);
            assert!(told.contains(TRACE) && !told.contains(CALLER), "{told}");
        }
    }

    #[test]
    fn failures_of_the_server_are_kept_where_nothing_else_is() {
        assert_eq!(traced(0.0, &[], Code::NotFound).1, None);
        assert_eq!(traced(0.0, &[], Code::Cancelled).1, None);
        let (metadata, trace) = traced(0.0, &[("tracestate", "a=b".into())], Code::Internal);
        let span = &trace.expect("a failure").spans[0];
        assert_eq!(span.error.as_deref(), Some("why"));
        let kind = ("error.type", Value::from("Internal"));
        assert!(span.attributes.contains(&kind));
        assert_eq!(metadata.get("tracestate"), None, "it has no parent");
        assert!(metadata.get("traceparent").is_some());
    }
}
