//! Metadata: names and values beside messages.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

use crate::status::{Code, Status};

/// Senders may pad or not, and fill the last character as they like.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A value of metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Printable ASCII; what else came is kept as it is.
    Text(Bytes),
    /// The bytes of a name that ends in `-bin`, without their base64.
    Binary(Bytes),
}

impl Value {
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Text(bytes) | Self::Binary(bytes) => bytes,
        }
    }
}

/// Names in lower case with their values, in their order. A name may come more than once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata(Vec<(String, Value)>);

/// Whether a name's values are bytes in base64.
fn is_binary(name: &str) -> bool {
    name.ends_with("-bin")
}

/// Whether a field belongs to HTTP or to gRPC itself: applications neither see nor set it.
pub fn is_for_the_transport(name: &str) -> bool {
    name.starts_with(':')
        || name.starts_with("grpc-")
        || matches!(
            name,
            "connection"
                | "content-length"
                | "content-type"
                | "date"
                | "host"
                | "keep-alive"
                | "proxy-connection"
                | "te"
                | "trailer"
                | "transfer-encoding"
                | "upgrade"
        )
}

/// Bytes as a value of a name that ends in `-bin`.
pub fn encode_binary(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The bytes of such a value, padded or not.
pub fn decode_binary(value: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(value).ok()
}

/// Values of a request's binary metadata: one field may have as many as it has commas, and each
/// takes some seventy bytes.
const MOST_BINARY: usize = 1000;

impl Metadata {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The fields of a request, those of the transport too. Values of names that end in `-bin` may
    /// be several behind commas.
    ///
    /// # Errors
    ///
    /// The status that ends the call, that of grpc-go: such a value is no base64. And one for more
    /// than a thousand of them.
    pub fn of_request<'a>(
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, Status> {
        let mut metadata = Self::new();
        let mut binary = 0;
        for (name, value) in fields {
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            if !is_binary(name) {
                metadata.push_text(name, value);
                continue;
            }
            for part in value.split(|byte| *byte == b',') {
                let Some(bytes) = decode_binary(part.trim_ascii()) else {
                    let text = format!("malformed binary metadata in header \"{name}\"");
                    return Err(Status::new(Code::Internal, text));
                };
                binary += 1;
                if binary > MOST_BINARY {
                    let text = format!("more than {MOST_BINARY} values of binary metadata");
                    return Err(Status::new(Code::ResourceExhausted, text));
                }
                metadata.push_binary(name, bytes);
            }
        }
        Ok(metadata)
    }

    /// The memory that it takes.
    pub fn memory(&self) -> usize {
        let entries = self.0.iter();
        let texts = entries.map(|(name, value)| name.len() + value.bytes().len());
        texts.sum::<usize>() + self.0.capacity() * size_of::<(String, Value)>()
    }

    pub fn push_text(&mut self, name: &str, value: &[u8]) {
        let value = Value::Text(Bytes::copy_from_slice(value));
        self.0.push((name.to_ascii_lowercase(), value));
    }

    pub fn push_binary(&mut self, name: &str, value: impl Into<Bytes>) {
        self.0
            .push((name.to_ascii_lowercase(), Value::Binary(value.into())));
    }

    /// A value as it came elsewhere.
    pub fn push_value(&mut self, name: &str, value: Value) {
        self.0.push((name.to_ascii_lowercase(), value));
    }

    /// A value that an application gives: bytes where the name ends in `-bin`, else text.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        if is_binary(&name.to_ascii_lowercase()) {
            self.push_binary(name, Bytes::copy_from_slice(value));
        } else {
            self.push_text(name, value);
        }
    }

    /// A text as the only value of its name.
    pub fn set_text(&mut self, name: &str, value: &[u8]) {
        self.remove(name);
        self.push_text(name, value);
    }

    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.iter().find(|(known, _)| *known == name).map(|it| it.1)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all names and values.
    pub fn size(&self) -> usize {
        let sizes = self
            .0
            .iter()
            .map(|(name, value)| name.len() + value.bytes().len());
        sizes.sum()
    }

    /// Each as a field of HTTP, in base64 where it is binary. Names that belong to the transport,
    /// and what no field can hold, are left out.
    pub fn write(&self, mut add: impl FnMut(&str, &[u8])) {
        for (name, value) in self.iter() {
            if is_for_the_transport(name) || !is_name(name) {
                continue;
            }
            match value {
                Value::Binary(bytes) => add(name, encode_binary(bytes).as_bytes()),
                Value::Text(text) if is_text(text) => add(name, text),
                Value::Text(_) => {}
            }
        }
    }
}

/// Names of metadata are these characters, without capitals.
fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.')
    };
    !name.is_empty() && name.bytes().all(is_good)
}

/// A field's value has no control characters.
fn is_text(value: &[u8]) -> bool {
    value.iter().all(|byte| *byte >= b' ' && *byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use pronghorn_wire::Fields;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn binary_values_may_be_padded_and_several() {
        let fields: Fields = [("a-bin", "q6ur,qw==,"), ("b", "x,y")]
            .into_iter()
            .collect();
        let metadata = Metadata::of_request(fields.iter()).unwrap();
        let all: Vec<_> = metadata.iter().collect();
        let bytes = |bytes: &'static [u8]| Value::Binary(Bytes::from_static(bytes));
        let text = |text: &'static [u8]| Value::Text(Bytes::from_static(text));
        assert_eq!(
            all,
            [
                ("a-bin", &bytes(b"\xab\xab\xab")),
                ("a-bin", &bytes(b"\xab")),
                ("a-bin", &bytes(b"")),
                ("b", &text(b"x,y")),
            ]
        );
        for broken in ["!", "q6ur,!", "q6u=r", "a"] {
            let fields: Fields = [("c-bin", broken)].into_iter().collect();
            let refused = Metadata::of_request(fields.iter()).unwrap_err();
            assert_eq!(refused.code, Code::Internal, "{broken}");
            assert!(refused.message.contains("c-bin"), "{refused:?}");
        }
    }

    #[test]
    fn what_no_field_can_hold_is_left_out() {
        let mut metadata = Metadata::new();
        metadata.push("grpc-status", b"0");
        metadata.push("Content-Length", b"5");
        metadata.push("x y", b"1");
        metadata.push("x-a", b"b\r\nx: y");
        metadata.push("X-Good", b"1");
        metadata.push("x-good-bin", b"\r\n");
        let mut written = Vec::new();
        metadata.write(|name, value| written.push((name.to_owned(), value.to_vec())));
        let expected = [
            ("x-good".to_owned(), b"1".to_vec()),
            ("x-good-bin".to_owned(), b"DQo".to_vec()),
        ];
        assert_eq!(written, expected);
    }

    proptest! {
        #[test]
        fn binary_values_survive(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut metadata = Metadata::new();
            metadata.push("a-bin", &bytes);
            let mut fields = Fields::new();
            metadata.write(|name, value| fields.push(name, value));
            prop_assert_eq!(Metadata::of_request(fields.iter()), Ok(metadata));
        }
    }
}
