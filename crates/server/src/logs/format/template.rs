//! Records as `logs.format` says: a text with names between percent signs.

use std::fmt::{self, Write};

use tracing::Metadata;
use tracing::field::{Field, Visit};

use super::escape::{Escaped, Place};
use super::fields::MESSAGE;
use super::{Content, Record};
use crate::logs::layout::TimeLayout;
use crate::logs::time::Moment;

/// A format, taken apart. A name that nobody knows stands for itself, as in RoadRunner 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    time: TimeLayout,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Time,
    Level,
    Message,
    Logger,
    Attrs,
    SourceFile,
    SourceLine,
    SourceFunction,
}

const NAMES: [(&str, Piece); 8] = [
    ("%time%", Piece::Time),
    ("%level%", Piece::Level),
    ("%message%", Piece::Message),
    ("%logger%", Piece::Logger),
    ("%attrs%", Piece::Attrs),
    ("%source_file%", Piece::SourceFile),
    ("%source_line%", Piece::SourceLine),
    ("%source_func%", Piece::SourceFunction),
];

impl Template {
    pub(super) fn new(format: &str, time: &str) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = format;
        while let Some(first) = rest.chars().next() {
            let known = NAMES.iter().find(|(name, _)| rest.starts_with(name));
            let len = match (known, pieces.last_mut()) {
                (Some((name, piece)), _) => {
                    pieces.push(piece.clone());
                    name.len()
                }
                (None, Some(Piece::Text(text))) => {
                    text.push(first);
                    first.len_utf8()
                }
                (None, _) => {
                    pieces.push(Piece::Text(first.to_string()));
                    first.len_utf8()
                }
            };
            rest = rest.get(len..).unwrap_or_default();
        }
        Self {
            pieces,
            time: TimeLayout::new(time),
        }
    }

    pub(super) fn write(&self, out: &mut String, record: &Record<'_>, left: &mut usize) {
        let metadata = match record.content {
            Content::Event { event, .. } => Some(event.metadata()),
            Content::Text(_) | Content::Kept { .. } => None,
        };
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Time => self.time.write(out, Moment::of(record.time)),
                Piece::Level => out.push_str(record.level.label()),
                Piece::Message => record.message(out, Place::Column, left),
                Piece::Logger => out.push_str(record.logger),
                Piece::Attrs => self.attrs(out, record, left),
                Piece::SourceFile => {
                    out.push_str(metadata.and_then(Metadata::file).unwrap_or_default());
                }
                Piece::SourceLine => {
                    if let Some(line) = metadata.and_then(Metadata::line) {
                        out.push_str(itoa::Buffer::new().format(line));
                    }
                }
                Piece::SourceFunction => {
                    out.push_str(metadata.and_then(Metadata::module_path).unwrap_or_default());
                }
            }
        }
    }

    /// `name=value`, with blanks between, and values that are no single word in quotes. The logger
    /// is one of them, unless it has a place of its own.
    fn attrs(&self, out: &mut String, record: &Record<'_>, left: &mut usize) {
        let mut attrs = Attrs {
            out,
            left,
            is_first: true,
        };
        if !self.pieces.contains(&Piece::Logger) {
            attrs.attr("logger", format_args!("{}", record.logger));
        }
        if let Content::Event { event, stranger } = record.content {
            event.record(&mut attrs);
            if let Some(target) = stranger {
                attrs.attr("target", format_args!("{target}"));
            }
        }
    }
}

struct Attrs<'a> {
    out: &'a mut String,
    left: &'a mut usize,
    is_first: bool,
}

impl Attrs<'_> {
    fn attr(&mut self, name: &str, value: fmt::Arguments<'_>) {
        if name == MESSAGE {
            return;
        }
        if !self.is_first {
            self.out.push(' ');
        }
        self.is_first = false;
        self.out.push_str(name);
        self.out.push('=');
        let (start, left) = (self.out.len(), *self.left);
        // A String takes all.
        _ = Escaped::of_field(name, self.out, Place::Column, self.left).write_fmt(value);
        if !is_one_word(self.out.get(start..).unwrap_or_default()) {
            self.out.truncate(start);
            *self.left = left;
            self.out.push('"');
            _ = Escaped::of_field(name, self.out, Place::Json, self.left).write_fmt(value);
            self.out.push('"');
        }
    }
}

/// Whether nothing in a value could be taken for its end, or for another field.
fn is_one_word(value: &str) -> bool {
    let separates = |c: char| c.is_whitespace() || matches!(c, '"' | '=');
    !value.is_empty() && !value.contains(separates)
}

impl Visit for Attrs<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.attr(field.name(), format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.attr(field.name(), format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.attr(field.name(), format_args!("{value}"));
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.attr(
            field.name(),
            format_args!("{}", String::from_utf8_lossy(value)),
        );
    }
}
