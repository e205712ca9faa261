//! The trace of each request, while traces are wanted: where the client says to which one it
//! belongs, it is that one.

use std::sync::Arc;

use pronghorn_serve::{Body, Exchange, Handled, Handler, OnSent, Request, Response, Unhandled};
use pronghorn_trace::{Incoming, Recorder, names_trace};
use pronghorn_wire::Fields;

use crate::trace::{Asked, RequestTrace};

struct Tracing {
    next: Arc<dyn Handler>,
    recorder: Arc<Recorder>,
}

/// Nothing is put around while nobody wants traces.
pub(super) fn around(next: Arc<dyn Handler>, recorder: Option<&Arc<Recorder>>) -> Arc<dyn Handler> {
    match recorder {
        Some(recorder) => Arc::new(Tracing {
            next,
            recorder: recorder.clone(),
        }),
        None => next,
    }
}

impl Handler for Tracing {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let trace = begin(&self.recorder, &mut request);
        let accepted = request.accepted;
        Box::pin(async move {
            let mut response = self.next.handle(request, exchange).await;
            if matches!(response.body, Body::File(_) | Body::Parts(_)) {
                trace.sends_file(accepted.elapsed());
            }
            // A response of PHP mostly does it beside the rest that is done then.
            if !response
                .on_sent
                .as_ref()
                .is_some_and(|done| done.ends_trace())
            {
                response.when_sent(trace);
            }
            response
        })
    }

    fn unhandled(&self, request: &Unhandled<'_>) -> Option<Arc<dyn OnSent>> {
        self.next.unhandled(request)
    }

    fn without_tls(&self, request: &Request) -> Option<Response> {
        self.next.without_tls(request)
    }
}

/// Begins the trace of a request, or this server's part of it.
fn begin(recorder: &Arc<Recorder>, request: &mut Request) -> Arc<RequestTrace> {
    let head = &request.head;
    let (mut agent, mut speaks) = (&b""[..], false);
    for (name, value) in head.fields().iter() {
        match name {
            b"user-agent" if agent.is_empty() => agent = value,
            _ => speaks |= names_trace(name),
        }
    }
    let incoming = if speaks {
        Incoming::read(|name| head.fields().get(name))
    } else {
        Incoming::default()
    };
    let asked = Asked {
        method: head.method(),
        path: head.path(),
        host: head.authority(),
        agent,
        protocol: request.protocol(),
        scheme: request.peer.scheme(),
        ip: request.peer.address.ip(),
        accepted: request.accepted,
        accepted_us: request.accepted_us,
    };
    let trace = Arc::new(RequestTrace::begin(recorder, incoming, &asked));
    let fields = request.head.fields_mut();
    if speaks {
        replace_fields(&trace, fields);
    } else {
        fields.push("traceparent", trace.outgoing().w3c());
    }
    request.trace = Some(trace.clone());
    trace
}

/// The application is told in each way that the client speaks: as it sent the fields, they would
/// name the wrong parent.
fn replace_fields(trace: &RequestTrace, fields: &mut Fields) {
    let outgoing = trace.outgoing();
    fields.set("traceparent", outgoing.w3c());
    if fields.get("uber-trace-id").is_some() {
        fields.set("uber-trace-id", outgoing.jaeger());
    }
    if !trace.has_state() {
        fields.remove("tracestate"); // without the client's parent it means nothing
    }
    if fields.get("b3").is_some() {
        fields.set("b3", outgoing.b3());
    }
    if fields.get("x-b3-traceid").is_some() {
        fields.set("x-b3-traceid", outgoing.trace.to_string());
        fields.set("x-b3-spanid", outgoing.span.to_string());
        fields.set("x-b3-sampled", if outgoing.sampled { "1" } else { "0" });
        fields.remove("x-b3-parentspanid");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pronghorn_metrics::Registry;
    use pronghorn_serve::{AnsweredBy, Sent, Split};
    use pronghorn_trace::{Kind, Sampling, Span, Trace, Tracer, Value};

    use super::*;
    use crate::middleware::testing::request;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const CALLER: &str = "00f067aa0ba902b7";

    /// What the application sees of a request with these fields, and its trace if it is kept. It
    /// reached PHP if there is a split.
    fn traced(
        ratio: f64,
        fields: &str,
        (status, millis): (u16, u64),
        split: Option<Split>,
    ) -> (Fields, Option<Trace>) {
        let tracer = Tracer::default();
        let sampling = Sampling {
            parent: true,
            ratio,
            errors: true,
            slow: Some(Duration::from_secs(1)),
        };
        let traces = tracer.turn_on(&sampling, 8, &Registry::default());
        let recorder = tracer.recorder().expect("it is on");
        let head = format!(
            "GET /a?secret=1 HTTP/1.1\r\nHost: a.test:8080\r\nUser-Agent: curl\r\n{fields}\r\n"
        );
        let mut request = request(&head);
        let trace = begin(recorder, &mut request);
        let elapsed = Duration::from_millis(millis);
        if split.is_some() {
            trace.answered_by("api", Some("/{id}"));
        }
        trace.on_sent(&mut Sent {
            status,
            bytes: 3,
            is_too_long: false,
            elapsed,
            split,
        });
        let kept = traces.expect("it was off").waiting();
        (request.head.fields().clone(), kept)
    }

    fn field(fields: &Fields, name: &str) -> String {
        let value = fields.get(name).unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    }

    fn attribute(span: &Span, name: &str) -> Option<Value> {
        let mut attributes = span.attributes.iter();
        let found = attributes.find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    }

    #[test]
    fn a_trace_goes_on_from_the_client_to_the_application() {
        let millis = Duration::from_millis;
        let split = Split {
            read: millis(1),
            queue: millis(2),
            worker: Some(millis(7)),
            write: millis(2),
            spent: None,
            answered_by: Some(AnsweredBy {
                pid: 12,
                nth: 3,
                is_retry: false,
            }),
        };
        let fields = format!("Traceparent: 00-{TRACE}-{CALLER}-01\r\nTracestate: a=b\r\n");
        let (seen, trace) = traced(0.0, &fields, (200, 12), Some(split));
        let trace = trace.expect("the client keeps it");
        assert_eq!((trace.id.to_string(), &*trace.state), (TRACE.into(), "a=b"));
        let [server, read, queue, php] = &trace.spans[..] else {
            panic!("{trace:?}");
        };
        assert_eq!(server.parent.map(|id| id.to_string()), Some(CALLER.into()));
        assert_eq!((&*server.name, server.kind), ("GET /{id}", Kind::Server));
        assert_eq!(attribute(server, "http.route"), Some("/{id}".into()));
        for part in [read, queue, php] {
            assert_eq!(part.parent, Some(server.id), "{part:?}");
        }
        let start = server.start;
        let times = |span: &Span| {
            let millis = |moment| (moment - start) / 1_000_000;
            (
                &*span.name.clone() == "php",
                millis(span.start),
                millis(span.end),
            )
        };
        assert_eq!(times(server), (false, 0, 12));
        assert_eq!(times(read), (false, 0, 1));
        assert_eq!(times(queue), (false, 1, 3));
        assert_eq!(times(php), (true, 3, 10));
        let parent = format!("00-{TRACE}-{}-01", php.id);
        assert_eq!(field(&seen, "traceparent"), parent);
        assert_eq!(field(&seen, "tracestate"), "a=b");
        assert_eq!(field(&seen, "uber-trace-id"), "", "nobody speaks it");
        let path = attribute(server, "url.path");
        assert_eq!(path, Some(Value::from("/a")), "and no query");
        let status = attribute(server, "http.response.status_code");
        assert_eq!(status, Some(Value::Int(200)));
        assert_eq!(attribute(server, "server.address"), Some("a.test".into()));
        assert_eq!(attribute(server, "server.port"), Some(Value::Int(8080)));
        assert_eq!(attribute(php, "pronghorn.pool"), Some("api".into()));
        assert_eq!(attribute(php, "process.pid"), Some(Value::Int(12)));
    }

    #[test]
    fn what_never_reached_php_has_one_span() {
        let (seen, trace) = traced(1.0, "tracestate: a=b\r\n", (404, 1), None);
        let trace = trace.expect("all are kept");
        assert_eq!(trace.spans.len(), 1);
        assert_eq!(trace.spans[0].parent, None);
        assert_eq!(trace.spans[0].error, None);
        assert_eq!(field(&seen, "tracestate"), "", "it has no parent");
        assert!(field(&seen, "traceparent").starts_with(&format!("00-{}-", trace.id)));
    }

    #[test]
    fn errors_and_slow_ones_are_kept_where_nothing_else_is() {
        let not_kept = format!("traceparent: 00-{TRACE}-{CALLER}-00\r\n");
        for fields in ["", &not_kept] {
            assert_eq!(traced(0.0, fields, (499, 900), None).1, None);
            let (seen, slow) = traced(0.0, fields, (200, 1001), None);
            assert!(slow.is_some(), "{fields}");
            assert!(field(&seen, "traceparent").ends_with("-00"));
            let error = traced(0.0, fields, (500, 1), None).1.expect("an error");
            assert!(error.spans[0].error.is_some());
            let kind = attribute(&error.spans[0], "error.type");
            assert_eq!(kind, Some(Value::from("500")));
        }
    }

    #[test]
    fn a_client_that_speaks_b3_finds_its_own_fields() {
        let fields = format!(
            "X-B3-TraceId: {TRACE}\r\nX-B3-SpanId: {CALLER}\r\nX-B3-Sampled: 1\r\nX-B3-ParentSpanId: {CALLER}\r\nb3: 0\r\nx: y\r\n"
        );
        let fields = fields.replace("b3: 0\r\n", "");
        let (seen, trace) = traced(0.0, &fields, (200, 1), None);
        assert_eq!(trace.expect("it is sampled").id.to_string(), TRACE);
        assert_eq!(field(&seen, "x-b3-traceid"), TRACE);
        assert_ne!(field(&seen, "x-b3-spanid"), CALLER);
        assert_eq!(field(&seen, "x-b3-parentspanid"), "");
        let single = format!("b3: {TRACE}-{CALLER}-1\r\n");
        let (seen, _) = traced(0.0, &single, (200, 1), None);
        let b3 = field(&seen, "b3");
        assert!(b3.starts_with(TRACE) && b3.ends_with("-1") && !b3.contains(CALLER));
    }

    #[test]
    fn a_client_that_speaks_jaeger_finds_its_own_field() {
        let fields = format!("uber-trace-id: {TRACE}:{CALLER}:0:1\r\n");
        let (seen, trace) = traced(0.0, &fields, (200, 1), None);
        assert_eq!(trace.expect("it is sampled").id.to_string(), TRACE);
        let jaeger = field(&seen, "uber-trace-id");
        assert!(jaeger.starts_with(TRACE) && jaeger.ends_with(":0:1") && !jaeger.contains(CALLER));
        let w3c = field(&seen, "traceparent");
        assert!(w3c.starts_with(&format!("00-{TRACE}-")), "{w3c}");
    }

    #[test]
    fn what_a_client_sends_is_cut() {
        let fields = format!("Traceparent: x\r\nB3: {}\r\n", "0".repeat(4000));
        let (_, trace) = traced(1.0, &fields, (200, 1), None);
        let server = &trace.expect("all are kept").spans[0];
        assert_eq!(server.parent, None);
    }
}
