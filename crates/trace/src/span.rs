//! A request or a job as plain data, when it has ended.

use std::sync::Arc;

use pronghorn_base::shown;

use crate::id::{SpanId, TraceId};

/// The part of a trace that one server does. It ends as a whole, so it is decided as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The caller's, or one of our own.
    pub id: TraceId,
    /// The caller's `tracestate`, as it was sent.
    pub state: Box<str>,
    /// The one that all others are below of is the first.
    pub spans: Vec<Span>,
}

/// A stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its own.
    pub id: SpanId,
    /// The span that it is part of, here or in the caller.
    pub parent: Option<SpanId>,
    /// Few different ones: traces are grouped by it.
    pub name: Arc<str>,
    /// Its part in a trace.
    pub kind: Kind,
    /// Nanoseconds since the Unix epoch.
    pub start: u64,
    /// The same.
    pub end: u64,
    /// By the names of the semantic conventions.
    pub attributes: Vec<(&'static str, Value)>,
    /// The failure, if there was one. Empty where the attributes say it all.
    pub error: Option<Arc<str>>,
}

/// The part that a span has in its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of another one.
    Internal,
    /// Answers a request that came from outside.
    Server,
    /// Works off a message.
    Consumer,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the types say it")]
pub enum Value {
    Text(Arc<str>),
    Int(i64),
    Bool(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Int(number.into())
    }
}

/// Bytes of a peer as a text, as far as records show it.
#[must_use]
pub fn text(bytes: &[u8]) -> Value {
    Value::Text(shown(&String::from_utf8_lossy(bytes)).into())
}

/// Adds the server as its client named it, without and with its port.
pub fn add_server(attributes: &mut Vec<(&'static str, Value)>, host: &str) {
    if host.is_empty() {
        return;
    }
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, port.parse::<u16>().ok()),
        None => (host, None),
    };
    match port {
        Some(port) => {
            attributes.push(("server.address", text(name.as_bytes())));
            attributes.push(("server.port", port.into()));
        }
        None => attributes.push(("server.address", text(host.as_bytes()))),
    }
}
