//! JSON and MessagePack read as Go reads them into a struct, because that is what callers of
//! RoadRunner were written against: names of fields match without regard to case, a name that no
//! field has is passed over, and `null` is the zero value of any type. Unlike in Go, `[]` is a
//! struct without fields, as PHP writes it.
//!
//! The third needs help from the type: a struct read from `null`, or one whose fields are missing,
//! wants `#[serde(default)]`. Unlike in Go, a field that is there twice is an error.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny,
    IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};

use super::Failure;
use super::parts::Parts;

/// Reads all of `json`. It may nest 128 deep, `serde_json`'s limit.
pub(super) fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, Failure> {
    let mut input = serde_json::Deserializer::from_slice(json);
    let parts = Parts::default();
    let read = T::deserialize(Lenient(&mut input, &parts));
    let ended = parts.end();
    ended.map_err(|too_many| Failure::new(too_many.to_string()))?;
    let read = read.and_then(|value| input.end().map(|()| value));
    read.map_err(|error| {
        if error.is_eof() {
            // Go's text, which callers may look for.
            return Failure::new("unexpected end of JSON input");
        }
        Failure::new(format!("json: {error}"))
    })
}

/// The same for MessagePack, where Go has the names of its fields, `NumExecs`, beside those of
/// JSON.
pub(super) fn read_message_pack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let mut input = rmp_serde::Deserializer::from_read_ref(bytes);
    input.set_max_depth(DEPTH);
    let parts = Parts::default();
    let read = T::deserialize(Lenient(&mut input, &parts));
    let ended = parts.end();
    ended.map_err(|too_many| Failure::new(too_many.to_string()))?;
    read.map_err(|error| Failure::new(format!("msgpack: {error}")))
}

/// As JSON may nest.
const DEPTH: usize = 128;

/// Passes all on, but for what null means and how the names of fields match, and counts the parts.
struct Lenient<'p, D>(D, &'p Parts);

/// What null is read as.
#[derive(Clone, Copy)]
enum Zero {
    Bool,
    Number,
    Text,
    Bytes,
    List,
    Map,
    Unit,
}

impl Zero {
    fn visit<'de, V: Visitor<'de>, E: Error>(self, visitor: V) -> Result<V::Value, E> {
        let nothing = std::iter::empty::<()>();
        match self {
            Self::Bool => visitor.visit_bool(false),
            Self::Number => visitor.visit_u64(0),
            Self::Text => visitor.visit_str(""),
            Self::Bytes => visitor.visit_bytes(&[]),
            Self::List => visitor.visit_seq(SeqDeserializer::new(nothing)),
            Self::Map => visitor.visit_map(MapDeserializer::new(nothing.map(|()| ((), ())))),
            Self::Unit => visitor.visit_unit(),
        }
    }
}

/// JSON says itself what a value is, so all these differ only in what stands in for null.
macro_rules! by_zero {
    ($($method:ident: $zero:ident,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.or_zero(Zero::$zero, &[], visitor)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Lenient<'_, D> {
    fn or_zero<V: Visitor<'de>>(
        self,
        zero: Zero,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(OrZero {
            zero,
            inside: Inside {
                visitor,
                fields,
                parts: self.1,
            },
        })
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Lenient<'_, D> {
    type Error = D::Error;

    by_zero! {
        deserialize_bool: Bool,
        deserialize_i8: Number, deserialize_i16: Number, deserialize_i32: Number, deserialize_i64: Number,
        deserialize_u8: Number, deserialize_u16: Number, deserialize_u32: Number, deserialize_u64: Number,
        deserialize_f32: Number, deserialize_f64: Number,
        deserialize_char: Text, deserialize_str: Text, deserialize_string: Text,
        deserialize_bytes: Bytes, deserialize_byte_buf: Bytes,
        deserialize_seq: List, deserialize_map: Map,
        deserialize_unit: Unit, deserialize_any: Unit,
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.or_zero(Zero::Map, fields, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Inside {
            visitor,
            fields: &[],
            parts: self.1,
        })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_identifier(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_ignored_any(visitor)
    }
}

struct OrZero<'p, V> {
    zero: Zero,
    inside: Inside<'p, V>,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for OrZero<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inside.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.zero.visit(self.inside.visitor)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.zero.visit(self.inside.visitor)
    }

    fn visit_some<D: Deserializer<'de>>(self, some: D) -> Result<V::Value, D::Error> {
        some.deserialize_any(self.inside)
    }
}

/// Hands what it is given to `visitor`, and makes what is inside of it lenient.
struct Inside<'p, V> {
    visitor: V,
    /// Names of a struct's fields.
    fields: &'static [&'static str],
    parts: &'p Parts,
}

macro_rules! pass_on {
    ($($method:ident: $type:ty,)*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.visitor.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Inside<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.visitor.expecting(f)
    }

    pass_on! {
        visit_bool: bool,
        visit_i64: i64,
        visit_u64: u64,
        visit_f64: f64,
        visit_str: &str,
        visit_borrowed_str: &'de str,
        visit_string: String,
        visit_bytes: &[u8],
        visit_borrowed_bytes: &'de [u8],
        visit_byte_buf: Vec<u8>,
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, some: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Lenient(some, self.parts))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<V::Value, A::Error> {
        if !self.fields.is_empty() {
            // PHP writes `[]` for an array without entries, whatever it stands for.
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Zero::Map.visit(self.visitor);
            }
            // Serde would take a list for a struct, field by field.
            return Err(Error::invalid_type(Unexpected::Seq, &self));
        }
        self.visitor.visit_seq(Elements {
            access: list,
            fields: &[],
            parts: self.parts,
            read: 0,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Elements {
            access: map,
            fields: self.fields,
            parts: self.parts,
            read: 0,
        })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(data)
    }
}

/// A list's or map's elements, each of them lenient.
struct Elements<'p, A> {
    access: A,
    fields: &'static [&'static str],
    parts: &'p Parts,
    read: usize,
}

impl<A> Elements<'_, A> {
    /// Counts one more that is there.
    fn count<T, E: Error>(&mut self, part: Option<T>) -> Result<Option<T>, E> {
        if part.is_some() {
            self.read += 1;
            let added = self.parts.add(self.read);
            added.map_err(E::custom)?;
        }
        Ok(part)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, A::Error> {
        let element = self.access.next_element_seed(Seed(seed, self.parts))?;
        self.count(element)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Elements<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        if self.fields.is_empty() {
            let key = self.access.next_key_seed(seed)?;
            return self.count(key);
        }
        let name = self.access.next_key::<String>()?;
        let Some(name) = self.count(name)? else {
            return Ok(None);
        };
        let exact = self.fields.iter().find(|field| **field == name);
        let same = || {
            let alike = |field: &&&str| letters(field).eq(letters(&name));
            self.fields.iter().find(alike)
        };
        let name = exact.or_else(same).map_or(name.as_str(), |field| field);
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.access.next_value_seed(Seed(seed, self.parts))
    }
}

/// `num_execs` and `NumExecs` are one name.
fn letters(name: &str) -> impl Iterator<Item = u8> {
    let letters = name.bytes().filter(|byte| *byte != b'_');
    letters.map(|byte| byte.to_ascii_lowercase())
}

struct Seed<'p, T>(T, &'p Parts);

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Seed<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Value, D::Error> {
        self.0.deserialize(Lenient(deserializer, self.1))
    }
}
