//! An event of a connection as a worker gets it.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use pronghorn_base::{micros, since_1970};
use pronghorn_pool::{Body, Dispatch, Encoding, Observer, Payload, Unencodable};
use pronghorn_wire::native::{self, Envelope, Tcp, TcpEvent, TcpReply};
use pronghorn_wire::{Codec, DecodeError, Head};
use serde::Serialize;

use crate::registry::ConnectionEntry;

/// An event on its way to a worker.
pub(crate) struct TcpCall {
    pub(crate) event: TcpEvent,
    pub(crate) connection: Arc<ConnectionEntry>,
    /// The client's message.
    pub(crate) body: Bytes,
    /// The state that workers keep with the connection.
    pub(crate) state: Bytes,
}

/// The context of a frame as RoadRunner's package reads it; keys in its order.
#[derive(Serialize)]
struct Context<'a> {
    remote_addr: &'a str,
    server: &'a str,
    uuid: &'a str,
    event: &'static str,
    /// Ours, and only of clients that have one: the package reads no more than it knows.
    #[serde(skip_serializing_if = "str::is_empty")]
    certificate: &'a str,
}

const fn name(event: TcpEvent) -> &'static str {
    match event {
        TcpEvent::Connected => "CONNECTED",
        TcpEvent::Data => "DATA",
        TcpEvent::Closed => "CLOSE",
    }
}

impl Payload for TcpCall {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        match encoding {
            Encoding::Frame(Codec::Json | Codec::Proto, _) => self.encode_json(out)?,
            Encoding::Frame(Codec::Native, dispatch) => self.encode_native(dispatch, out),
            Encoding::Variables => return Err(Unencodable::for_no_script()),
        }
        if self.body.is_empty() {
            return Ok(Body::Empty);
        }
        Ok(Body::Bytes(self.body.clone()))
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_tcp(codec, context)
    }

    /// Its message may have been acted on.
    fn repeatable(&self) -> bool {
        false
    }

    /// RoadRunner's documentation says that the end of a connection needs no answer, and waits for
    /// one.
    fn unanswered(&self) -> Option<Head> {
        let is_end = self.event == TcpEvent::Closed;
        is_end.then(|| Head::Tcp(TcpReply::default(), false))
    }

    fn describe(&self) -> String {
        let ConnectionEntry { server, remote, .. } = &*self.connection;
        format!("{} of {remote} at `{server}`", name(self.event))
    }
}

impl Observer for TcpCall {
    /// The connection that ends with it does.
    fn tells_failures(&self) -> bool {
        true
    }

    fn late_answer(&self) -> &'static str {
        "was disconnected"
    }
}

impl TcpCall {
    fn encode_json(&self, out: &mut Vec<u8>) -> Result<(), Unencodable> {
        let context = Context {
            remote_addr: &self.connection.remote,
            server: &self.connection.server,
            uuid: &self.connection.uuid,
            event: name(self.event),
            certificate: &self.connection.certificate,
        };
        let written = serde_json::to_writer(out, &context);
        written.map_err(|error| Unencodable::Request(error.to_string()))
    }

    fn encode_native(&self, dispatch: Dispatch, out: &mut Vec<u8>) {
        let tcp = Tcp {
            event: self.event,
            server: &self.connection.server,
            connection: &self.connection.uuid,
            remote: &self.connection.remote,
            tls: self.connection.tls,
            state: &self.state,
            certificate: &self.connection.certificate,
        };
        let envelope = Envelope {
            call: dispatch.number,
            time_left_ms: dispatch.time_left_ms,
            ..Envelope::default()
        };
        native::encode_tcp(out, &tcp, micros(since_1970(SystemTime::now())), envelope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_as_the_official_package_reads_it() {
        let call = TcpCall {
            event: TcpEvent::Data,
            connection: Arc::new(ConnectionEntry::new(
                "s1".into(),
                "127.0.0.1:1".into(),
                false,
                "".into(),
            )),
            body: Bytes::from_static(b"a\r\n"),
            state: Bytes::new(),
        };
        let dispatch = Dispatch {
            number: 1,
            time_left_ms: None,
        };
        let mut out = Vec::new();
        let body = call.encode(Encoding::Frame(Codec::Json, dispatch), &mut out);
        let id = call.connection.id;
        let context = format!(
            r#"{{"remote_addr":"127.0.0.1:1","server":"s1","uuid":"{id}","event":"DATA"}}"#
        );
        assert_eq!(str::from_utf8(&out).unwrap(), context);
        assert!(matches!(body, Ok(Body::Bytes(bytes)) if bytes[..] == *b"a\r\n"));
        assert_eq!(call.describe(), "DATA of 127.0.0.1:1 at `s1`");
        assert!(call.unanswered().is_none());
    }
}
