//! `lock.v1beta1`, as PHP and JSON have it.

use std::time::Duration;

use pronghorn_plugin_api::rpc::{
    Argument, Failure, Outcome, Reader, Writer, read_message, write_message,
};
use serde::{Deserialize, Serialize};

/// A resource's name and an id are a path, a URL, a UUID; nobody needs more.
pub(crate) const LONGEST_NAME: usize = 1024;
/// Of a lock without a time to live, and of one that asks for more: as long as the server, in
/// practice.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(365 * 24 * 3600);
/// Whoever waits for longer has forgotten it.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Who does not say how long it would wait, as RoadRunner has it: a lock that is just being
/// released is still worth it.
pub(crate) const SHORTEST_WAIT: Duration = Duration::from_millis(1);

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) resource: String,
    #[prost(string, tag = "2")]
    pub(crate) id: String,
    /// Microseconds.
    #[prost(int64, optional, tag = "3")]
    ttl: Option<i64>,
    /// Microseconds.
    #[prost(int64, optional, tag = "4")]
    wait: Option<i64>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct Response {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ok: bool,
}

/// Of `lock.Token`, which is ours.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct Token {
    #[prost(bool, tag = "1")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ok: bool,
    #[prost(uint64, tag = "2")]
    pub(crate) token: u64,
}

impl Outcome for Token {
    const PROTOBUF: Option<Writer<Self>> = Some(write_message);
}

impl Argument for Request {
    const PROTOBUF: Option<Reader<Self>> = Some(read_message);
}

impl Outcome for Response {
    const PROTOBUF: Option<Writer<Self>> = Some(write_message);
}

impl Request {
    /// Whether the id is there where it has to be, and both names are short enough.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.id.is_empty() {
            return Err(Failure::new("empty ID is not allowed"));
        }
        self.check_lengths()
    }

    pub(crate) fn check_lengths(&self) -> Result<(), Failure> {
        for (what, name) in [("resource", &self.resource), ("id", &self.id)] {
            if name.len() > LONGEST_NAME {
                let length = name.len();
                return Err(Failure::new(format!(
                    "the {what} is {length} bytes long; {LONGEST_NAME} are allowed"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn lifetime(&self) -> Result<Duration, Failure> {
        let ttl = microseconds("ttl", self.ttl)?;
        Ok(ttl.unwrap_or(LONGEST_TTL).min(LONGEST_TTL))
    }

    pub(crate) fn patience(&self) -> Result<Duration, Failure> {
        let wait = microseconds("wait", self.wait)?;
        Ok(wait.unwrap_or(SHORTEST_WAIT).min(LONGEST_WAIT))
    }
}

/// 0 is as good as nothing.
fn microseconds(name: &str, written: Option<i64>) -> Result<Option<Duration>, Failure> {
    let written = written.unwrap_or(0);
    match u64::try_from(written) {
        Ok(0) => Ok(None),
        Ok(written) => Ok(Some(Duration::from_micros(written))),
        Err(_) => Err(Failure::new(format!(
            "{name} is {written} µs; a time can't be negative"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(ttl: Option<i64>, wait: Option<i64>) -> Request {
        Request {
            ttl,
            wait,
            ..Request::default()
        }
    }

    #[test]
    fn times_have_bounds() {
        for nothing in [None, Some(0)] {
            let request = times(nothing, nothing);
            assert_eq!(request.lifetime(), Ok(LONGEST_TTL));
            assert_eq!(request.patience(), Ok(SHORTEST_WAIT));
        }
        let request = times(Some(1), Some(1));
        assert_eq!(request.lifetime(), Ok(Duration::from_micros(1)));
        assert_eq!(request.patience(), Ok(Duration::from_micros(1)));
        let request = times(Some(i64::MAX), Some(i64::MAX));
        assert_eq!(request.lifetime(), Ok(LONGEST_TTL));
        assert_eq!(request.patience(), Ok(LONGEST_WAIT));
        let request = times(Some(-5), Some(i64::MIN));
        let said = request.lifetime().unwrap_err().to_string();
        assert_eq!(said, "ttl is -5 µs; a time can't be negative");
        assert!(request.patience().is_err());
    }

    #[test]
    fn names_have_bounds() {
        let mut request = Request::default();
        let said = |request: &Request| request.check().unwrap_err().to_string();
        assert_eq!(said(&request), "empty ID is not allowed");
        request.id = "i".repeat(LONGEST_NAME);
        assert_eq!(request.check(), Ok(()));
        request.resource = "r".repeat(LONGEST_NAME + 1);
        assert_eq!(
            said(&request),
            "the resource is 1025 bytes long; 1024 are allowed"
        );
    }

    #[test]
    fn the_messages_are_those_of_the_php_package() {
        let read = |bytes: &'static [u8]| read_message::<Request>(bytes.into());
        let request = read(b"\x0a\x01r\x12\x01i\x18\xc0\x84\x3d\x20\x00").unwrap();
        assert_eq!((request.resource.as_str(), request.id.as_str()), ("r", "i"));
        assert_eq!(request.lifetime(), Ok(Duration::from_secs(1)));
        assert_eq!(request.patience(), Ok(SHORTEST_WAIT));
        assert_eq!(read(b""), Ok(Request::default()));
        assert!(read(b"\x0a\x09r").is_err());
        assert_eq!(
            write_message(&Response { ok: true }).unwrap().as_ref(),
            b"\x08\x01"
        );
        assert_eq!(
            write_message(&Response { ok: false }).unwrap().as_ref(),
            b""
        );
    }
}
