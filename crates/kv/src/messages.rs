//! `kv.v1`, as PHP and JSON have it.

use bytes::Bytes;
use pronghorn_plugin_api::rpc::{
    Argument, Binary, Failure, Outcome, Reader, Writer, read_message, write_message,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::driver::{Entry, Item};
use crate::moment::Moment;

/// A key names a thing; who needs more makes a hash of it.
pub(crate) const LONGEST_KEY: usize = 64 << 10;
/// More are asked for in several calls: all of an answer is in memory at once.
const MOST_ITEMS: usize = 65_536;

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) storage: String,
    #[prost(message, repeated, tag = "2")]
    items: Vec<WireItem>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WireItem {
    /// A string of protobuf, in which PHP has any bytes.
    #[prost(bytes = "bytes", tag = "1")]
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    #[serde(
        serialize_with = "write_binary",
        deserialize_with = "read_binary",
        skip_serializing_if = "Bytes::is_empty"
    )]
    value: Bytes,
    /// A time as RFC 3339 has it; empty for none.
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    timeout: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct Response {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) items: Vec<WireItem>,
}

impl Argument for Request {
    const PROTOBUF: Option<Reader<Self>> = Some(read_message);
}

impl Outcome for Response {
    const PROTOBUF: Option<Writer<Self>> = Some(write_message);
}

impl Request {
    /// The keys of the items, each checked.
    pub(crate) fn keys(self) -> Result<Vec<Bytes>, Failure> {
        self.check()?;
        Ok(self.items.into_iter().map(|item| item.key).collect())
    }

    pub(crate) fn items(self) -> Result<Vec<Item>, Failure> {
        self.check()?;
        let items = self.items.into_iter().map(|item| {
            let ends = item.ends()?;
            let (key, value) = (item.key, item.value);
            Ok(Item {
                key,
                entry: Entry { value, ends },
            })
        });
        items.collect()
    }

    /// Keys with the ends that they are to have.
    pub(crate) fn ends(self) -> Result<Vec<(Bytes, Moment)>, Failure> {
        const MISSING: &str = "timeout for MExpire is empty or key is empty";
        if self.items.iter().any(|item| item.key.is_empty()) {
            return Err(Failure::new(MISSING));
        }
        self.check()?;
        let ends = self.items.into_iter().map(|item| {
            let end = item.ends()?.ok_or_else(|| Failure::new(MISSING))?;
            Ok((item.key, end))
        });
        ends.collect()
    }

    fn check(&self) -> Result<(), Failure> {
        let count = self.items.len();
        if count > MOST_ITEMS {
            return Err(Failure::new(format!(
                "{count} keys; at most {MOST_ITEMS} are taken at a time"
            )));
        }
        for key in self.items.iter().map(|item| &item.key) {
            if key.is_empty() {
                return Err(Failure::new("key can't be empty string"));
            }
            if key.len() > LONGEST_KEY {
                let length = key.len();
                return Err(Failure::new(format!(
                    "a key is {length} bytes long; {LONGEST_KEY} are allowed"
                )));
            }
        }
        Ok(())
    }
}

impl WireItem {
    pub(crate) fn new(key: Bytes) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    pub(crate) fn with_value(key: Bytes, value: Bytes) -> Self {
        Self {
            value,
            ..Self::new(key)
        }
    }

    pub(crate) fn with_end(key: Bytes, end: Option<Moment>) -> Self {
        Self {
            // RoadRunner's package reads no fraction of a second, and writes none.
            timeout: end
                .map(|end| end.to_second().to_string())
                .unwrap_or_default(),
            ..Self::new(key)
        }
    }

    fn ends(&self) -> Result<Option<Moment>, Failure> {
        if self.timeout.is_empty() {
            return Ok(None);
        }
        let end = Moment::parse(&self.timeout).ok_or_else(|| {
            let written = &self.timeout;
            Failure::new(format!(
                "the timeout is `{written}`; accepted: a time as in RFC 3339, for example `2026-01-02T15:04:05Z`"
            ))
        })?;
        Ok(Some(end))
    }
}

fn write_text<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes))
}

fn read_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    String::deserialize(deserializer).map(Bytes::from)
}

fn write_binary<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    Binary(bytes.clone()).serialize(serializer)
}

fn read_binary<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    Binary::deserialize(deserializer).map(|binary| binary.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(items: Vec<WireItem>) -> Request {
        let storage = "s".to_owned();
        Request { storage, items }
    }

    #[test]
    fn a_request_is_read_as_the_php_package_writes_it() {
        let wire = b"\x0a\x01s\x12\x21\x0a\x02k\xff\x12\x03\x00\x01\x02\
            \x1a\x162026-11-26T04:30:00.5Z\x12\x03\x0a\x01l";
        let request: Request = read_message(wire[..].into()).unwrap();
        assert_eq!(request.storage, "s");
        let items = request.items().unwrap();
        let end = Some(Moment::from_millis(1_795_667_400_500));
        assert_eq!(items[0].key, &b"k\xff"[..]);
        let value = Bytes::from_static(b"\x00\x01\x02");
        assert_eq!(items[0].entry, Entry { value, ends: end });
        assert_eq!(items[1].entry.ends, None);
        assert_eq!(
            read_message::<Request>(Bytes::new()),
            Ok(Request::default())
        );
    }

    #[test]
    fn json_has_bytes_in_base64() {
        let json = br#"{"storage":"s","items":[{"key":"k","value":"aGk="}]}"#;
        let items = Request::from_json(json).unwrap().items().unwrap();
        assert_eq!(items[0].entry.value, &b"hi"[..]);
        let items = vec![WireItem::with_value("k".into(), "hi".into())];
        let json = serde_json::to_string(&Response { items }).unwrap();
        assert_eq!(json, r#"{"items":[{"key":"k","value":"aGk="}]}"#);
    }

    #[test]
    fn what_is_wrong_with_an_item_is_said() {
        let item = |key: &str, timeout: &str| WireItem {
            timeout: timeout.to_owned(),
            ..WireItem::new(key.to_owned().into())
        };
        let said = |item: &WireItem| with(vec![item.clone()]).items().unwrap_err().to_string();
        assert_eq!(said(&item("", "")), "key can't be empty string");
        assert!(said(&item("k", "60")).starts_with("the timeout is `60`; accepted: "));
        let long = item(&"k".repeat(LONGEST_KEY + 1), "");
        assert_eq!(said(&long), "a key is 65537 bytes long; 65536 are allowed");
        assert!(with(vec![item("k", ""); MOST_ITEMS + 1]).keys().is_err());
        for (key, timeout) in [("", "2026-11-26T04:30:00Z"), ("k", "")] {
            let said = with(vec![item(key, timeout)]).ends().unwrap_err();
            let expected = "timeout for MExpire is empty or key is empty";
            assert_eq!(said.to_string(), expected);
        }
    }
}
