//! Bytes that the values of a message take while it is made of JSON or becomes it, from above: a
//! few bytes of a message may take a kilobyte.

use std::collections::HashSet;

use prost::encoding::{WireType, decode_key, decode_varint};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor, Value};
use serde_json::Value as Json;

/// Messages within one another: protobuf's own limit, which its runtimes for PHP have as well.
pub(super) const MOST_MESSAGES: usize = 100;
/// Entries of a node of a `BTreeMap`, and those that it has at least beside others.
const ENTRIES: usize = 11;
const LEAST_ENTRIES: usize = 5;
/// An allocation: its own bytes, and what rounding adds.
const ALLOCATION: usize = 32;
/// A list grows by doubling, and is copied then.
const GROWTH: usize = 3;

/// Fields of a message are nodes of a map, for one field as for eleven.
const MESSAGE: usize = ENTRIES * (size_of::<Value>() + 8) + ALLOCATION;
const OBJECT: usize = ENTRIES * (size_of::<Json>() + size_of::<String>()) + ALLOCATION;
/// The smallest hash table.
const TABLE: usize = 4 * ENTRY_OF_TABLE + ALLOCATION;
const ENTRY_OF_TABLE: usize = size_of::<Value>() + size_of::<String>() + 1;
/// A value in lists of both kinds.
const VALUE: usize = GROWTH * size_of::<Json>() + size_of::<Value>();
/// The name of a value, in maps of both kinds.
const KEY: usize = 2 * ALLOCATION + (MESSAGE + OBJECT) / LEAST_ENTRIES + 2 * ENTRY_OF_TABLE;
/// The shortest list.
const LIST: usize = 4 * size_of::<Json>() + ALLOCATION;
/// Characters of a number or a name of a value as text.
const TEXT: usize = 32;

/// Whether a value of JSON that is no object may become a message in one of these, as those of
/// `google.protobuf` do.
pub(super) fn is_dear(input: &MessageDescriptor) -> bool {
    let (mut known, mut left) = (HashSet::new(), vec![input.clone()]);
    while let Some(message) = left.pop() {
        if message.full_name().starts_with("google.protobuf.") {
            return true;
        }
        if !known.insert(message.full_name().to_owned()) {
            continue;
        }
        left.extend(message.fields().filter_map(|field| match field.kind() {
            Kind::Message(of) => Some(of),
            _ => None,
        }));
    }
    false
}

/// Bytes for the message that this JSON is.
pub(super) fn of_json(is_dear: bool, body: &[u8]) -> usize {
    let value = if is_dear { VALUE + MESSAGE } else { VALUE };
    // A `Value` has a `Struct` or a `ListValue`, which is read as a message of `prost` first.
    let more = if is_dear { MESSAGE + OBJECT } else { 0 };
    // Texts are in the JSON, in the message and in its bytes.
    let (mut all, mut at) = (2 * body.len() + value, 0);
    while let Some(byte) = body.get(at) {
        at += 1;
        all += match byte {
            b'"' => {
                at = end_of_text(body, at);
                0
            }
            b',' => value,
            b':' => value + KEY,
            b'[' => value + LIST + more,
            b'{' => value + OBJECT + MESSAGE + TABLE + more,
            _ => 0,
        };
    }
    all
}

/// Behind the quote that ends a text.
fn end_of_text(body: &[u8], mut at: usize) -> usize {
    while let Some(byte) = body.get(at) {
        at += 1;
        match byte {
            b'"' => break,
            b'\\' => at += 1,
            _ => {}
        }
    }
    at
}

/// Bytes for the JSON that this message is. `is_tree`: it is written as values first.
pub(super) fn of_message(output: &MessageDescriptor, message: &[u8], is_tree: bool) -> usize {
    let mut all = 0;
    count(output, message, is_tree, MOST_MESSAGES, &mut all);
    all
}

/// Counts up to what can't be read.
fn count(
    of: &MessageDescriptor,
    mut bytes: &[u8],
    is_tree: bool,
    deep: usize,
    all: &mut usize,
) -> Option<()> {
    let deep = deep.checked_sub(1)?;
    let tree = if is_tree { OBJECT } else { 0 };
    *all += MESSAGE + tree;
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).ok()?;
        let field = of.get_field(number);
        let name = field.as_ref().map_or(0, |field| field.json_name().len());
        *all += GROWTH * (name + TEXT);
        if field.as_ref().is_none_or(FieldDescriptor::is_list) {
            *all += GROWTH * size_of::<Value>();
        }
        if of.fields().len() > ENTRIES {
            *all += MESSAGE / LEAST_ENTRIES;
        }
        if is_tree {
            *all += VALUE + KEY + name;
        }
        match wire {
            WireType::Varint => _ = decode_varint(&mut bytes).ok()?,
            WireType::SixtyFourBit => _ = bytes.split_off(..8)?,
            WireType::ThirtyTwoBit => _ = bytes.split_off(..4)?,
            WireType::LengthDelimited => {
                let length = decode_varint(&mut bytes).ok()?;
                let within = bytes.split_off(..usize::try_from(length).ok()?)?;
                match field.as_ref().map(FieldDescriptor::kind) {
                    Some(Kind::Message(message)) => {
                        count(&message, within, is_tree, deep, all)?;
                    }
                    Some(Kind::String) => *all += text(within),
                    Some(Kind::Bytes) => *all += (GROWTH + 1) * within.len(),
                    // Each byte may be a number.
                    Some(_) => {
                        let json = if is_tree { VALUE } else { 0 };
                        *all += within.len() * (GROWTH * (size_of::<Value>() + TEXT) + json);
                    }
                    None => *all += within.len(),
                }
            }
            // Nobody has groups in JSON.
            WireType::StartGroup | WireType::EndGroup => return None,
        }
    }
    Some(())
}

/// A text, and how it is written: control characters take six bytes.
fn text(text: &[u8]) -> usize {
    let escaped = text.iter().filter(|byte| **byte < b' ').count();
    (GROWTH + 1) * text.len() + 6 * GROWTH * escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As they were measured, in bytes for each value.
    #[test]
    fn no_value_takes_more_than_is_counted() {
        let many = |open: &str, one: &str, close: &str| {
            let values = vec![one; 1000].join(",");
            format!("{open}{values}{close}").into_bytes()
        };
        let list = many(r#"{"list":["#, "1", "]}");
        let objects = many(r#"{"inners":["#, r#"{"name":"a"}"#, "]}");
        for (is_dear, body, least) in [
            (true, &list, 840),
            (false, &list, 120),
            (false, &objects, 1400),
        ] {
            let counted = of_json(is_dear, body);
            assert!(counted >= 1000 * least, "{counted}");
            assert!(counted < 3000 * least, "{counted}");
        }
        let text = many(r#"{"text":""#, r#"{[:\\\""#, r#""}"#);
        assert!(
            of_json(true, &text) < 2 * text.len() + 8192,
            "a text is one value"
        );
    }

    #[test]
    fn what_is_no_json_is_counted() {
        for body in ["", "\"", "\"\\", "{", "[[[["] {
            assert!(of_json(true, body.as_bytes()) > 0, "{body}");
        }
    }
}
