//! A call of Centrifugo as a worker gets it.

use std::collections::BTreeMap;

use bytes::Bytes;
use pronghorn_grpc_wire::{Call, is_for_the_transport};
use pronghorn_pool::{Body, Encoding, Observer, Payload, Unencodable};
use pronghorn_wire::{Codec, DecodeError, Head};

/// The key of the context that tells packages which call it is.
const TYPE: &str = "type";

/// A call on its way to a worker.
#[derive(Debug)]
pub(crate) struct CentrifugoCall {
    /// The method, for records.
    pub(crate) method: String,
    /// JSON.
    pub(crate) context: Vec<u8>,
    /// The request, as it came.
    pub(crate) message: Bytes,
}

/// Metadata by name as the packages read it, and the type of the call. A client of Centrifugo may
/// choose fields that Centrifugo passes on: none of them may be `type`. `secret` names the one that
/// is for the server alone.
pub(crate) fn context_of(call: &Call, secret: Option<&str>) -> Vec<u8> {
    let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let authority = vec![call.authority.clone()];
    names.insert(":authority", authority);
    for (name, value) in call.metadata.iter() {
        let is_known = matches!(name, "content-type" | "grpc-accept-encoding");
        if name == TYPE || Some(name) == secret || is_for_the_transport(name) && !is_known {
            continue;
        }
        let text = String::from_utf8_lossy(value.bytes()).into_owned();
        names.entry(name).or_default().push(text);
    }
    names.insert(TYPE, vec![call.method.method.to_ascii_lowercase()]);
    serde_json::to_vec(&names).unwrap_or_default() // texts are always written
}

impl Payload for CentrifugoCall {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        match encoding {
            Encoding::Frame(Codec::Json | Codec::Proto, _) => out.extend_from_slice(&self.context),
            Encoding::Frame(Codec::Native, _) => {
                let what = "calls of Centrifugo need workers with `roadrunner-php/centrifugo`";
                return Err(Unencodable::Pool(what.to_owned()));
            }
            Encoding::Variables => return Err(Unencodable::for_no_script()),
        }
        Ok(Body::Bytes(self.message.clone()))
    }

    /// The package may write anything there.
    fn decode_head(&self, _: Codec, _: &Bytes) -> Result<Head, DecodeError> {
        Ok(Head::Raw)
    }

    /// The package gives no answer to a request that it can't read.
    fn unanswered(&self) -> Option<Head> {
        Some(Head::NoAnswer)
    }

    /// It may have been acted on.
    fn repeatable(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!("Centrifugo's {}", self.method)
    }
}

impl Observer for CentrifugoCall {}
