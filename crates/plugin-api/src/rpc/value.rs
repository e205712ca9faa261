//! Arguments and results: types in the middle, bytes at both ends.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::Visitor;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Encoding, Failure, go_json, go_names, parts};

/// Reads a value from all of some bytes.
pub type Reader<T> = fn(Bytes) -> Result<T, Failure>;
/// Writes a value.
pub type Writer<T> = fn(&T) -> Result<Bytes, Failure>;

/// What a method takes.
///
/// A struct derives `Deserialize` and `Default` with `#[serde(default)]`; JSON is then read as Go
/// reads it. A protobuf message (`prost::Message`) sets [`PROTOBUF`](Self::PROTOBUF) to
/// [`read_message`] as well:
///
/// ```
/// use pronghorn_plugin_api::rpc::Argument;
///
/// #[derive(serde::Deserialize, Default)]
/// #[serde(default)]
/// struct Request {
///     plugin: String,
/// }
///
/// impl Argument for Request {}
/// ```
pub trait Argument: DeserializeOwned + Default + Send + 'static {
    /// Reads the protobuf form, if there is one. No bytes at all are a message too.
    const PROTOBUF: Option<Reader<Self>> = None;
    /// Takes raw bytes. Without it, a raw call has the default for its argument, whatever was sent.
    const RAW: Option<Reader<Self>> = None;

    /// Reads the JSON form.
    ///
    /// # Errors
    ///
    /// When it is none, or of another shape: the text says where.
    fn from_json(json: &[u8]) -> Result<Self, Failure> {
        go_json::read(json)
    }
}

/// What a method returns. JSON is what serde writes; MessagePack is the same with Go's names of
/// fields, `NumExecs`.
pub trait Outcome: Serialize + Send + 'static {
    /// Writes the protobuf form, if there is one.
    const PROTOBUF: Option<Writer<Self>> = None;
    /// Gives raw bytes, if it is bytes.
    const RAW: Option<Writer<Self>> = None;
}

/// Reads a protobuf message: for [`Argument::PROTOBUF`].
///
/// # Errors
///
/// When the bytes are no such message, or it has too many parts.
pub fn read_message<M: prost::Message + Default>(bytes: Bytes) -> Result<M, Failure> {
    parts::decode(bytes).map_err(|why| Failure::new(why.to_string()))
}

/// Writes a protobuf message: for [`Outcome::PROTOBUF`].
///
/// # Errors
///
/// None; the type is that of a [`Writer`].
pub fn write_message<M: prost::Message>(message: &M) -> Result<Bytes, Failure> {
    Ok(message.encode_to_vec().into())
}

/// Bytes: themselves in raw form, base64 with padding in JSON, as Go has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binary(pub Bytes);

impl Argument for Binary {
    const RAW: Option<Reader<Self>> = Some(|bytes| Ok(Self(bytes)));
}

impl Outcome for Binary {
    const RAW: Option<Writer<Self>> = Some(|binary| Ok(binary.0.clone()));
}

impl Serialize for Binary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.serialize_str(&STANDARD.encode(&self.0));
        }
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Binary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return deserializer.deserialize_bytes(Plain);
        }
        let text = Cow::<str>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text.as_ref()).map_err(|wrong| {
            D::Error::custom(format_args!("bytes are written in base64: {wrong}"))
        })?;
        Ok(Self(bytes.into()))
    }
}

/// Bytes as they are; PHP has one type for them and for text.
struct Plain;

impl Visitor<'_> for Plain {
    type Value = Binary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Binary, E> {
        self.visit_bytes(text.as_bytes())
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Binary, E> {
        Ok(Binary(Bytes::copy_from_slice(bytes)))
    }
}

/// Often a dummy, for methods that take nothing.
impl Argument for bool {
    /// Go has this one text for whatever is no bool.
    fn from_json(json: &[u8]) -> Result<Self, Failure> {
        go_json::read(json).map_err(|_| Failure::new("json: bool unexpected end of JSON input"))
    }
}

impl Argument for String {}

impl Outcome for bool {}

impl Outcome for String {}

impl Outcome for Vec<String> {}

/// How one call's argument is read and its result written.
pub(super) struct Form<A, O> {
    pub(super) read: Reader<A>,
    pub(super) write: Writer<O>,
}

impl<A: Argument, O: Outcome> Form<A, O> {
    /// Both ways or none: a method whose result could not be written is not even begun. RoadRunner
    /// crashes when it is called with protobuf and has no such form.
    pub(super) fn of(method: &str, encoding: Encoding) -> Result<Self, Failure> {
        let forms = match encoding {
            Encoding::Json => (
                Some((|json| A::from_json(&json)) as Reader<A>),
                Some(to_json as Writer<O>),
            ),
            Encoding::MessagePack => (
                Some((|bytes| go_json::read_message_pack(&bytes)) as Reader<A>),
                Some(go_names::to_message_pack as Writer<O>),
            ),
            Encoding::Protobuf => (A::PROTOBUF, O::PROTOBUF),
            Encoding::Raw => (A::RAW.or(Some(|_| Ok(A::default()))), O::RAW),
        };
        match (forms, encoding) {
            ((Some(read), Some(write)), _) => Ok(Self { read, write }),
            (_, Encoding::Raw) => Err(Failure::new("unknown Raw payload type")),
            _ => Err(Failure::new(format!(
                "{method} has no protobuf form; call it with JSON"
            ))),
        }
    }
}

fn to_json<O: Outcome>(outcome: &O) -> Result<Bytes, Failure> {
    match serde_json::to_vec(outcome) {
        Ok(json) => Ok(json.into()),
        Err(error) => Err(Failure::new(format!("json: {error}"))),
    }
}
