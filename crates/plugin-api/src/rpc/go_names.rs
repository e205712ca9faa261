//! MessagePack as Go writes it: structs as maps with the names of Go's fields, `num_execs` as
//! `NumExecs`.
//!
//! The wrapper passes everything on and only looks for structs. Enums with content are no results
//! of methods.

use bytes::Bytes;
use serde::ser::{
    Error, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple,
    Serializer,
};

use super::Failure;

/// Writes a method's result.
pub(super) fn to_message_pack<T: Serialize>(outcome: &T) -> Result<Bytes, Failure> {
    let mut out = Vec::new();
    let mut serializer = rmp_serde::Serializer::new(&mut out);
    match outcome.serialize(Go(&mut serializer)) {
        Ok(()) => Ok(out.into()),
        Err(error) => Err(Failure::new(format!("msgpack: {error}"))),
    }
}

/// `CPUPercent` stays as it is.
fn go_name(name: &str) -> String {
    let mut go = String::with_capacity(name.len());
    let mut begins = true;
    for letter in name.chars() {
        if letter == '_' {
            begins = true;
        } else if std::mem::take(&mut begins) {
            go.push(letter.to_ascii_uppercase());
        } else {
            go.push(letter);
        }
    }
    go
}

/// A serializer, or a part of one, that names fields as Go does.
struct Go<S>(S);

/// A value to be written by such.
struct Inside<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Serialize for Inside<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Go(serializer))
    }
}

macro_rules! pass_on {
    ($($method:ident: $type:ty,)*) => {$(
        fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.0.$method(value)
        }
    )*};
}

impl<S: Serializer> Serializer for Go<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Go<S::SerializeSeq>;
    type SerializeTuple = Go<S::SerializeTuple>;
    type SerializeTupleStruct = Impossible<S::Ok, S::Error>;
    type SerializeTupleVariant = Impossible<S::Ok, S::Error>;
    type SerializeMap = Go<S::SerializeMap>;
    type SerializeStruct = Go<S::SerializeMap>;
    type SerializeStructVariant = Impossible<S::Ok, S::Error>;

    pass_on! {
        serialize_bool: bool,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_f32: f32, serialize_f64: f64,
        serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.0.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Inside(value))
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.0.serialize_unit()
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        self.0.serialize_unit_struct(name)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<S::Ok, S::Error> {
        Err(unknown_to_go(name))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.0.serialize_seq(len).map(Go)
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.0.serialize_tuple(len).map(Go)
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        Err(unknown_to_go(name))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        Err(unknown_to_go(name))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.0.serialize_map(len).map(Go)
    }

    fn serialize_struct(
        self,
        _: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        self.0.serialize_map(Some(len)).map(Go)
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        Err(unknown_to_go(name))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

fn unknown_to_go<E: Error>(name: &str) -> E {
    E::custom(format_args!("Go has no types like {name}"))
}

impl<S: SerializeSeq> SerializeSeq for Go<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_element(&Inside(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

impl<S: SerializeTuple> SerializeTuple for Go<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_element(&Inside(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

/// The names in a map are the application's.
impl<S: SerializeMap> SerializeMap for Go<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.0.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        self.0.serialize_value(&Inside(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}

impl<S: SerializeMap> SerializeStruct for Go<S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), S::Error> {
        self.0.serialize_entry(&go_name(key), &Inside(value))
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.0.end()
    }
}
