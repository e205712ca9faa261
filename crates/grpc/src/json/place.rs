//! Reads a message from JSON, and tells which of its fields can't be read and what it takes.

use std::cell::RefCell;
use std::fmt::Write as _;

use pronghorn_grpc_wire::Wanted;
use prost_reflect::{DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde::de::value::StringDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

/// Values of an enum that are named in an error.
const MOST_NAMES: usize = 10;

/// Reads a message, as long as somebody waits for it. An error names the field.
pub(super) fn read(
    input: &MessageDescriptor,
    root: Value,
    wanted: &Wanted,
) -> Result<DynamicMessage, String> {
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let reading = Reading {
        failed: RefCell::new(None),
        wanted,
    };
    let tracked = Tracked {
        value: root,
        at: &ValuePath::Root,
        reading: &reading,
    };
    let read = DynamicMessage::deserialize_with_options(input.clone(), tracked, &options);
    read.map_err(|error| {
        let error = error.to_string();
        let error = pronghorn_base::shown(&error);
        let steps = reading.failed.take().unwrap_or_default();
        let (name, wanted) = (shown(&steps), wanted_by(input, &steps));
        match (name.is_empty(), wanted) {
            (true, _) => format!("the message `{}`: {error}", input.full_name()),
            (false, Some(wanted)) => format!("the field `{name}` takes {wanted}: {error}"),
            (false, None) => format!("the field `{name}`: {error}"),
        }
    })
}

/// A step from a value into one within it.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// The steps to a value, the last one first.
#[derive(Debug)]
enum ValuePath<'a> {
    Root,
    Within(&'a Self, Step),
}

impl ValuePath<'_> {
    fn steps(&self) -> Vec<Step> {
        let (mut steps, mut at) = (Vec::new(), self);
        while let ValuePath::Within(outer, step) = at {
            steps.push(step.clone());
            at = outer;
        }
        steps.reverse();
        steps
    }
}

/// `order.lines[2].id`.
fn shown(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        _ = match step {
            Step::Key(name) if text.is_empty() => write!(text, "{name}"),
            Step::Key(name) => write!(text, ".{name}"),
            Step::Index(at) => write!(text, "[{at}]"),
        };
    }
    pronghorn_base::shown(&text).into_owned()
}

/// The values that a field takes, if the place is one of a field.
fn wanted_by(input: &MessageDescriptor, steps: &[Step]) -> Option<String> {
    let mut within = Some(input.clone());
    // The field, and whether the place is all of it.
    let mut found: Option<(FieldDescriptor, bool)> = None;
    for step in steps {
        match (&found, step) {
            // An element of a list or a map.
            (Some((field, true)), _) if field.is_list() || field.is_map() => {
                found = Some((field.clone(), false));
            }
            (_, Step::Key(name)) => {
                let message = within.take()?;
                let field = message.get_field_by_json_name(name);
                let field = field.or_else(|| message.get_field_by_name(name))?;
                found = Some((field, true));
            }
            (_, Step::Index(_)) => return None,
        }
        if let Some((field, is_all)) = &found {
            within = match kind(field, *is_all) {
                Kind::Message(message) if !field.is_list() || !is_all => Some(message),
                _ => None,
            };
        }
    }
    let (field, is_all) = found?;
    if is_all && field.is_map() {
        return Some("an object".to_owned());
    }
    let one = of_kind(&kind(&field, is_all));
    Some(if is_all && field.is_list() {
        format!("a list of {one}")
    } else {
        one
    })
}

/// The kind of a field, or of what it has many of.
fn kind(field: &FieldDescriptor, is_all: bool) -> Kind {
    match field.kind() {
        Kind::Message(entry) if field.is_map() && !is_all => entry.map_entry_value_field().kind(),
        kind => kind,
    }
}

fn of_kind(kind: &Kind) -> String {
    match kind {
        Kind::Enum(of) => {
            let mut names: Vec<_> = of.values().map(|it| it.name().to_owned()).collect();
            if names.len() > MOST_NAMES {
                names.truncate(MOST_NAMES);
                names.push("…".to_owned());
            }
            format!("a value of `{}` ({})", of.full_name(), names.join(", "))
        }
        Kind::Message(of) => format!("`{}`", of.full_name()),
        Kind::Bytes => "`bytes` in base64".to_owned(),
        other => format!("`{other:?}`"),
    }
}

struct Reading<'a> {
    /// The innermost place that could not be read.
    failed: RefCell<Option<Vec<Step>>>,
    wanted: &'a Wanted,
}

/// A value that knows its place.
struct Tracked<'a> {
    value: Value,
    at: &'a ValuePath<'a>,
    reading: &'a Reading<'a>,
}

impl Tracked<'_> {
    fn read<T>(self, read: impl FnOnce(Self) -> Result<T, Error>) -> Result<T, Error> {
        let (at, reading) = (self.at, self.reading);
        if reading.wanted.is_over() {
            return Err(Error::custom("nobody waits for it"));
        }
        read(self).inspect_err(|_| {
            reading
                .failed
                .borrow_mut()
                .get_or_insert_with(|| at.steps());
        })
    }
}

impl<'de> Deserializer<'de> for Tracked<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.read(|Self { value, at, reading }| match value {
            Value::Array(values) => visitor.visit_seq(Elements {
                values: values.into_iter().enumerate(),
                at,
                reading,
            }),
            Value::Object(values) => visitor.visit_map(Entries {
                values: values.into_iter(),
                next: None,
                at,
                reading,
            }),
            value => value.deserialize_any(visitor),
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Reads a value that is a step within another one.
fn read_within<'de, T: DeserializeSeed<'de>>(
    seed: T,
    value: Value,
    outer: &ValuePath<'_>,
    step: Step,
    reading: &Reading<'_>,
) -> Result<T::Value, Error> {
    seed.deserialize(Tracked {
        value,
        at: &ValuePath::Within(outer, step),
        reading,
    })
}

struct Elements<'a> {
    values: std::iter::Enumerate<std::vec::IntoIter<Value>>,
    at: &'a ValuePath<'a>,
    reading: &'a Reading<'a>,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some((index, value)) = self.values.next() else {
            return Ok(None);
        };
        read_within(seed, value, self.at, Step::Index(index), self.reading).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.values.len())
    }
}

struct Entries<'a> {
    values: <Map<String, Value> as IntoIterator>::IntoIter,
    next: Option<(String, Value)>,
    at: &'a ValuePath<'a>,
    reading: &'a Reading<'a>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.next = self.values.next();
        let Some((name, _)) = &self.next else {
            return Ok(None);
        };
        let name: StringDeserializer<Error> = StringDeserializer::new(name.clone());
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        // It was made by the call before.
        let (name, value) = self.next.take().unwrap_or_default();
        read_within(seed, value, self.at, Step::Key(name), self.reading)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.values.len())
    }
}
