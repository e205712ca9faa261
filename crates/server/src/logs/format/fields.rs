//! The fields of a record, as members of a JSON object.

use std::error::Error;
use std::fmt::{self, Write};

use serde_json::Value;
use tracing::field::{Field, Visit};

use super::escape::{Escaped, INDENT, Place};

/// Appends `"name":value`, with commas between, for each field but the message.
pub(super) struct Fields<'a> {
    pub(super) out: &'a mut String,
    pub(super) left: &'a mut usize,
    /// Nothing stands before the first one that would need a comma.
    pub(super) first: bool,
    /// Where texts of several lines go instead, when people read: each with its name above.
    pub(super) blocks: Option<&'a mut String>,
}

impl Fields<'_> {
    pub(super) fn text(&mut self, name: &str, value: &str) {
        match &mut self.blocks {
            Some(blocks) if value.contains('\n') => {
                _ = write!(blocks, "\n{INDENT}{name}:\n{INDENT}"); // a String takes all, here and below
                let mut block = Escaped::of_field(name, blocks, Place::Screen, self.left);
                _ = block.write_str(value.trim_end());
            }
            _ => self.quoted(name, |text| text.write_str(value)),
        }
    }

    /// An object of the application: its members stay what they are, where it is one.
    fn context(&mut self, json: &str) {
        match serde_json::from_str(json) {
            Ok(value @ Value::Object(_)) => {
                self.key(CONTEXT);
                self.json(&value);
            }
            _ => self.text(CONTEXT, json),
        }
    }

    /// A field of a record that was JSON before.
    pub(super) fn member(&mut self, name: &str, value: &Value) {
        if let Value::String(text) = value {
            return self.text(name, text);
        }
        self.key(name);
        self.json(value);
    }

    /// Within limits: what was read is no deeper than the reader goes.
    fn json(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.string(text),
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.out.push(if at == 0 { '[' } else { ',' });
                    self.json(item);
                }
                self.out.push_str(if items.is_empty() { "[]" } else { "]" });
            }
            Value::Object(members) => {
                for (at, (name, member)) in members.iter().enumerate() {
                    self.out.push(if at == 0 { '{' } else { ',' });
                    self.string(name);
                    self.out.push(':');
                    self.json(member);
                }
                self.out
                    .push_str(if members.is_empty() { "{}" } else { "}" });
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => _ = write!(self.out, "{value}"), // a String takes all
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        _ = Escaped::new(self.out, Place::Json, self.left).write_str(text); // a String takes all
        self.out.push('"');
    }

    fn quoted(&mut self, name: &str, write: impl FnOnce(&mut Escaped<'_>) -> fmt::Result) {
        self.key(name);
        self.out.push('"');
        _ = write(&mut Escaped::of_field(
            name,
            self.out,
            Place::Json,
            self.left,
        ));
        self.out.push('"');
    }

    fn number(&mut self, field: &Field, value: impl itoa::Integer) {
        self.key(field.name());
        self.out.push_str(itoa::Buffer::new().format(value));
    }

    fn key(&mut self, name: &str) {
        self.out.push_str(if self.first { "\"" } else { ",\"" });
        self.first = false;
        self.out.push_str(name);
        self.out.push_str("\":");
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match (field.name(), &self.blocks) {
            (MESSAGE, _) => {}
            (name, Some(_)) => self.text(name, &format!("{value:?}")),
            (name, None) => self.quoted(name, |text| write!(text, "{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            MESSAGE => {}
            CONTEXT => self.context(value),
            name => self.text(name, value),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.text(field.name(), &value.to_string());
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.text(field.name(), &String::from_utf8_lossy(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.number(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.number(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.number(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.key(field.name());
        self.out.push_str(if value { "true" } else { "false" });
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.key(field.name());
            _ = write!(self.out, "{value}");
        } else {
            self.text(field.name(), &value.to_string()); // JSON has no number for it
        }
    }
}

/// The field that holds what an application says besides, as JSON.
const CONTEXT: &str = "context";

/// The field that holds a record's message.
pub(super) const MESSAGE: &str = "message";

/// Writes the message and nothing else.
pub(super) struct Message<W>(pub(super) W);

impl<W: Write> Visit for Message<W> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == MESSAGE {
            _ = write!(self.0, "{value:?}");
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            _ = self.0.write_str(value);
        }
    }

    // Numbers are none: what would look at their names costs as much as the message.
    fn record_u64(&mut self, _: &Field, _: u64) {}
    fn record_i64(&mut self, _: &Field, _: i64) {}
    fn record_bool(&mut self, _: &Field, _: bool) {}
}
