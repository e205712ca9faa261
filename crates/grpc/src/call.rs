//! A call as a worker gets it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pronghorn_base::lock;
use pronghorn_grpc_wire::{Metadata, Value, frame};
use pronghorn_pool::{
    Body, BodyStream, CallDetails, Dispatch, Encoding, Observer, Origin, Payload, Stamps, Taker,
    Unencodable,
};
use pronghorn_wire::native::{self, BodyKind, Envelope};
use pronghorn_wire::{Codec, DecodeError, Head};
use serde::Serialize;
use tokio::time::Instant;

use crate::trace::CallTrace;

/// Names whose values are in base64 in the context, because they are no text. Ours.
pub(crate) const BINARY: &str = ":binary";

/// As RoadRunner writes them.
const TRACEPARENT: &str = "Traceparent";
const UBER_TRACE_ID: &str = "Uber-Trace-Id";

/// A call on its way to a worker.
#[derive(Debug)]
pub(crate) struct GrpcCall {
    pub(crate) service: String,
    pub(crate) method: String,
    pub(crate) client_streams: bool,
    pub(crate) server_streams: bool,
    /// Everything that PHP finds beside the message.
    pub(crate) context: Metadata,
    /// The one message of a client that does not stream.
    pub(crate) message: Bytes,
    /// Messages of one that does.
    pub(crate) messages: Mutex<Option<BodyStream>>,
    pub(crate) accepted_us: u64,
    /// A worker that dies with it is no reason to give it up: nothing is known of its method.
    pub(crate) is_repeatable: bool,
    /// `/package.Service/Method`.
    pub(crate) path: Arc<str>,
    /// The number that the client gave it.
    pub(crate) request_id: Option<Box<str>>,
    pub(crate) remote_address: String,
    /// None while nobody wants traces.
    pub(crate) trace: Option<Arc<CallTrace>>,
}

/// As RoadRunner's packages read it; keys in its order.
#[derive(Serialize)]
struct Context<'a> {
    service: &'a str,
    method: &'a str,
    context: BTreeMap<&'a str, Vec<String>>,
}

impl GrpcCall {
    fn encode_json(&self, out: &mut Vec<u8>) -> Result<(), Unencodable> {
        if self.client_streams {
            let what = "a client that streams needs workers with `pronghorn/grpc`";
            return Err(Unencodable::Request(what.to_owned()));
        }
        let mut context = texts(&self.context);
        if let Some(trace) = &self.trace {
            let outgoing = trace.outgoing();
            let w3c = String::from_utf8_lossy(&outgoing.w3c()).into_owned();
            context.insert(TRACEPARENT, vec![w3c]);
            context.insert(UBER_TRACE_ID, vec![outgoing.jaeger()]);
        }
        let context = Context {
            service: &self.service,
            method: &self.method,
            context,
        };
        let written = serde_json::to_writer(out, &context);
        written.map_err(|error| Unencodable::Request(error.to_string()))
    }

    fn encode_native(&self, dispatch: Dispatch, out: &mut Vec<u8>) {
        let envelope = Envelope {
            call: dispatch.number,
            time_left_ms: dispatch.time_left_ms,
            body: if self.client_streams {
                BodyKind::Stream
            } else {
                BodyKind::Bytes
            },
            ..Envelope::default()
        };
        let head = native::Grpc {
            service: &self.service,
            method: &self.method,
            server_streams: self.server_streams,
        };
        let metadata = self.context.iter();
        let metadata: Vec<_> = metadata
            .map(|(name, value)| (name.as_bytes(), &value.bytes()[..]))
            .collect();
        native::encode_grpc(out, &head, metadata.into_iter(), self.accepted_us, envelope);
    }
}

/// Metadata as text, by name. Bytes that are text are one, as in RoadRunner; where a name has
/// others, all its values are in base64 and the name stands in `:binary`.
fn texts(metadata: &Metadata) -> BTreeMap<&str, Vec<String>> {
    let mut binary: Vec<&str> = Vec::new();
    for (name, value) in metadata.iter() {
        if let Value::Binary(bytes) = value
            && std::str::from_utf8(bytes).is_err()
            && !binary.contains(&name)
        {
            binary.push(name);
        }
    }
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, value) in metadata.iter() {
        let text = if binary.contains(&name) {
            STANDARD.encode(value.bytes())
        } else {
            String::from_utf8_lossy(value.bytes()).into_owned()
        };
        texts.entry(name).or_default().push(text);
    }
    if !binary.is_empty() {
        let names = binary.iter().map(|name| (*name).to_owned());
        texts.insert(BINARY, names.collect());
    }
    texts
}

impl Payload for GrpcCall {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        match encoding {
            Encoding::Frame(Codec::Json | Codec::Proto, _) => {
                self.encode_json(out)?;
                Ok(Body::Bytes(self.message.clone()))
            }
            Encoding::Frame(Codec::Native, dispatch) => {
                self.encode_native(dispatch, out);
                Ok(match lock(&self.messages).clone() {
                    Some(messages) => Body::Stream(messages),
                    None => Body::Bytes(frame(false, &self.message)),
                })
            }
            Encoding::Variables => Err(Unencodable::for_no_script()),
        }
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_grpc(codec, context)
    }

    fn repeatable(&self) -> bool {
        self.is_repeatable
    }

    fn describe(&self) -> String {
        format!("gRPC {}", self.path)
    }
}

impl Observer for GrpcCall {
    fn begun(&self, by: Taker) {
        if let Some(trace) = &self.trace {
            trace.taken(by);
        }
    }

    fn notes_methods(&self) -> bool {
        self.trace.is_some()
    }

    fn called(&self, method: &str, since: Instant, error: Option<&str>) {
        if let Some(trace) = &self.trace {
            trace.calls().add(method, since, error);
        }
    }

    fn ended(&self, stamps: &Stamps) {
        if let Some(trace) = &self.trace {
            trace.answered(stamps);
        }
    }

    fn origin(&self) -> Origin<'_> {
        Origin {
            request_id: self.request_id.as_deref(),
            route: Some(&self.path),
            trace_id: self.trace.as_ref().map(|trace| trace.id()),
        }
    }

    fn details(&self) -> Option<Box<CallDetails>> {
        let metadata = self.context.iter();
        let metadata = metadata.filter(|(name, _)| !name.starts_with(':'));
        let headers = metadata.map(|(name, value)| {
            let value = String::from_utf8_lossy(value.bytes()).into_owned();
            (name.to_owned(), value)
        });
        Some(Box::new(CallDetails {
            method: "POST".to_owned(),
            target: self.path.to_string(),
            shown_target: self.path.to_string(),
            protocol: "gRPC".to_owned(),
            remote_address: self.remote_address.clone(),
            request_id: self.request_id.as_deref().map(Into::into),
            route: Some(self.path.to_string()),
            headers: headers.collect(),
        }))
    }

    /// A client that streams is read beside the reply.
    fn reads_on(&self) -> bool {
        self.client_streams
    }

    fn is_complete(&self) -> bool {
        !self.client_streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(context: Metadata) -> GrpcCall {
        GrpcCall {
            service: "a.B".to_owned(),
            method: "Do".to_owned(),
            client_streams: false,
            server_streams: false,
            context,
            message: Bytes::from_static(b"\x0a\x01x"),
            messages: Mutex::default(),
            accepted_us: 0,
            is_repeatable: false,
            path: "/a.B/Do".into(),
            request_id: None,
            remote_address: String::new(),
            trace: None,
        }
    }

    const FOREIGN: Encoding = Encoding::Frame(
        Codec::Json,
        Dispatch {
            number: 1,
            time_left_ms: None,
        },
    );

    #[test]
    fn a_call_is_written_as_the_official_package_reads_it() {
        let mut context = Metadata::new();
        context.push("x-b", b"2");
        context.push(":authority", b"example.org");
        context.push("x-b", b"1");
        context.push("x-text-bin", b"text");
        context.push("x-raw-bin", b"\xab\xab\xab");
        context.push("x-raw-bin", b"ok");
        let mut out = Vec::new();
        let body = call(context).encode(FOREIGN, &mut out).unwrap();
        let text = r#"{"service":"a.B","method":"Do","context":{":authority":["example.org"],":binary":["x-raw-bin"],"x-b":["2","1"],"x-raw-bin":["q6ur","b2s="],"x-text-bin":["text"]}}"#;
        assert_eq!(std::str::from_utf8(&out).unwrap(), text);
        assert!(matches!(body, Body::Bytes(bytes) if bytes[..] == *b"\x0a\x01x"));
    }

    #[test]
    fn a_client_that_streams_needs_our_package() {
        let mut call = call(Metadata::new());
        call.client_streams = true;
        assert!(call.encode(FOREIGN, &mut Vec::new()).is_err());
    }
}
