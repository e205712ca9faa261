//! Requests that the server makes itself, for new workers.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pronghorn_pool::{Body, Dispatch, Payload, Unencodable, Warmup};
use pronghorn_wire::native::{self, Envelope};
use pronghorn_wire::{Codec, Fields, Form, Protocol, Request, json, proto};

/// `GET` requests for these targets, as a client on this machine would send them.
pub fn warmup(targets: &[String]) -> Warmup {
    let call = |target: &String| -> Arc<dyn Payload> { Arc::new(Get(target.clone())) };
    Warmup(targets.iter().map(call).collect())
}

/// Of a target.
struct Get(String);

impl Payload for Get {
    fn encode(
        &self,
        codec: Codec,
        terms: Dispatch,
        out: &mut Vec<u8>,
    ) -> Result<Body, Unencodable> {
        let (path, query) = match self.0.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (self.0.as_str(), None),
        };
        let none = Fields::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let request = Request {
            method: "GET",
            tls: false,
            authority: "localhost",
            path: path.as_bytes(),
            query,
            protocol: Protocol::Http11,
            remote: "127.0.0.1",
            headers: &none,
            attributes: &none,
            accepted_us: now.map_or(0, |now| now.as_micros().try_into().unwrap_or(u64::MAX)),
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
            Codec::Json => _ = json::encode_request(out, &request, Form::default()), // ASCII loses nothing
            Codec::Proto => proto::encode_request(out, &request, Form::default()),
        }
        Ok(Body::Empty)
    }

    fn repeatable(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!("GET {}", self.0)
    }
}
