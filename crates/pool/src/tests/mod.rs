//! The pool against workers that the test plays.

mod ahead;
mod core_model;
mod incoming;
mod lent;
mod model;
mod relay;
mod supervision;

use std::sync::Arc;

use bytes::Bytes;
use pronghorn_wire::native::{self, Envelope};
use pronghorn_wire::{Codec, DecodeError, Fields, Head, ReplyHead};

use crate::call::{Body, Encoding, Payload, Unencodable};
use crate::observer::Observer;
use crate::supervisor::LaunchError;
use crate::warmup::WarmupCall;

/// The head of an answer to a request.
pub(super) fn http(head: &Head) -> &ReplyHead {
    match head {
        Head::Http(head) => head,
        other => panic!("{other:?}"),
    }
}

/// One without fields.
pub(super) fn status(status: u16) -> Head {
    let headers = Fields::new();
    Head::Http(ReplyHead { status, headers })
}

/// As a launcher tells it.
fn not_launched(pool: &str) -> LaunchError {
    let summary = format!("pool `{pool}`: worker ended before it was ready (exit code 255)");
    let report = format!("{summary}\n  it said  PHP Parse error: oops");
    LaunchError::new(summary, report)
}

/// A call that carries a text. Its context is a native request for a path of that name.
pub(super) struct TestPayload {
    pub(super) name: &'static str,
    pub(super) repeatable: bool,
    pub(super) body: Bytes,
}

impl TestPayload {
    pub(super) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            repeatable: true,
            body: Bytes::new(),
        })
    }

    pub(super) fn unrepeatable(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            repeatable: false,
            body: Bytes::new(),
        })
    }
}

impl Payload for TestPayload {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        let Encoding::Frame(codec, terms) = encoding else {
            return Err(Unencodable::for_no_script());
        };
        if self.name == "unencodable" {
            return Err(Unencodable::Request("it has a bad escape".into()));
        }
        let none = Fields::new();
        let request = pronghorn_wire::Request {
            method: "GET",
            tls: false,
            authority: "h",
            path: self.name.as_bytes(),
            query: None,
            protocol: pronghorn_wire::Protocol::Http11,
            remote: "127.0.0.1",
            headers: &none,
            attributes: &none,
            accepted_us: 0,
        };
        match codec {
            Codec::Native => {
                let envelope = Envelope {
                    call: terms.number,
                    time_left_ms: terms.time_left_ms,
                    ..Envelope::default()
                };
                native::encode_request(out, &request, envelope);
            }
            Codec::Json | Codec::Proto => {
                pronghorn_wire::json::encode_request(
                    out,
                    &request,
                    pronghorn_wire::Form::default(),
                );
            }
        }
        Ok(Body::Bytes(self.body.clone()))
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_http(codec, context)
    }

    fn repeatable(&self) -> bool {
        self.repeatable
    }

    fn unanswered(&self) -> Option<Head> {
        self.name.starts_with("/unanswered").then(|| status(204))
    }

    fn describe(&self) -> String {
        self.name.to_owned()
    }
}

impl Observer for TestPayload {
    fn waits_elsewhere(&self) -> bool {
        self.name.starts_with("/elsewhere")
    }
}

impl WarmupCall for TestPayload {
    fn failure(&self, head: &Head) -> Option<String> {
        let status = http(head).status;
        (status >= 500).then(|| format!("it answered {status}"))
    }
}
