//! The record of a request as people at a terminal want it: one short line.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};

use super::escape::{Escaped, Place};
use super::fields::Message;
use super::{Content, Paint, Record};
use crate::logs::time::Moment;

/// Messages of the records of requests, by `http.access_logs`.
const MESSAGES: [&str; 2] = ["http log", "http access log"];

/// What the line shows.
#[derive(Default)]
struct Shown {
    status: u64,
    method: String,
    target: String,
    elapsed_us: u64,
    queue_us: u64,
    php_us: Option<u64>,
    bytes: u64,
}

pub(super) fn is_one(record: &Record<'_>) -> bool {
    if record.logger != "http" {
        return false;
    }
    match record.content {
        Content::Event { event, .. } if event.metadata().fields().field("status").is_some() => {
            let mut message = Message(String::new());
            event.record(&mut message);
            MESSAGES.contains(&message.0.as_str())
        }
        Content::Kept { message, fields } => {
            MESSAGES.contains(&message) && fields.iter().any(|(name, _)| name == "status")
        }
        Content::Event { .. } | Content::Text(_) => false,
    }
}

/// False, and nothing written, when the record is of another kind.
pub(super) fn write(out: &mut String, record: &Record<'_>, paint: Paint, left: &mut usize) -> bool {
    if !is_one(record) {
        return false;
    }
    let mut shown = Shown::default();
    match record.content {
        Content::Event { event, .. } => event.record(&mut shown),
        Content::Text(_) => {}
        Content::Kept { fields, .. } => {
            for (name, value) in fields {
                if let Some(text) = value.as_str() {
                    shown.text(name, text);
                } else if let Some(number) = value.as_u64() {
                    shown.number(name, number);
                }
            }
        }
    }
    shown.write(out, record, paint, left);
    true
}

impl Shown {
    /// `19:26:15 200 GET /path 12.3 ms (PHP 11.9 ms, waited 10 µs) 448 B`; of a request that no
    /// worker had, without what stands in brackets.
    fn write(&self, out: &mut String, record: &Record<'_>, paint: Paint, left: &mut usize) {
        let colour = match self.status {
            200..300 => Paint::GREEN,
            300..400 => Paint::CYAN,
            400..500 => Paint::YELLOW,
            500.. => Paint::RED,
            _ => Paint::DIM,
        };
        paint.on(out, Paint::DIM);
        Moment::of(record.time).write_short(out);
        paint.off(out);
        paint.on(out, colour);
        _ = write!(out, " {} ", self.status); // a String takes all, here and below
        paint.off(out);
        for (name, text, after) in [("method", &self.method, " "), ("URI", &self.target, "")] {
            _ = Escaped::of_field(name, out, Place::Column, left).write_str(text);
            out.push_str(after);
        }
        paint.on(out, Paint::DIM);
        _ = write!(out, " {}", Elapsed(self.elapsed_us));
        if let Some(php) = self.php_us {
            let (php, waited) = (Elapsed(php), Elapsed(self.queue_us));
            _ = write!(out, " (PHP {php}, waited {waited})");
        }
        _ = write!(out, " {}", Bytes(self.bytes));
        paint.off(out);
    }

    fn text(&mut self, name: &str, value: &str) {
        match name {
            "method" => value.clone_into(&mut self.method),
            "URI" => value.clone_into(&mut self.target),
            _ => {}
        }
    }

    fn number(&mut self, name: &str, value: u64) {
        match name {
            "status" => self.status = value,
            "elapsed_us" => self.elapsed_us = value,
            "queue_us" => self.queue_us = value,
            "php_us" => self.php_us = Some(value),
            "write_bytes" => self.bytes = value,
            _ => {}
        }
    }
}

impl Visit for Shown {
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field.name(), value);
    }
}

/// Microseconds in the unit that suits them: three digits that matter.
struct Elapsed(u64);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us @ 0..1_000 => write!(f, "{us} µs"),
            us @ 1_000..1_000_000 => write!(f, "{}.{} ms", us / 1_000, us / 100 % 10),
            us => write!(f, "{}.{:02} s", us / 1_000_000, us / 10_000 % 100),
        }
    }
}

/// Bytes in the unit that suits them, in powers of 1024 as in the configuration.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..0x400 => return write!(f, "{} B", self.0),
            0x400..0x10_0000 => (0x400, "KB"),
            0x10_0000..0x4000_0000 => (0x10_0000, "MB"),
            0x4000_0000.. => (0x4000_0000, "GB"),
        };
        write!(f, "{}.{} {name}", self.0 / unit, self.0 % unit * 10 / unit)
    }
}
