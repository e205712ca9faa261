//! What a record looks like: `docs/reference/logging.md` shows each format.
//!
//! Knows no output, but for whether people look at it.

mod escape;
mod fields;
mod kept;
mod request;
mod template;

use std::fmt::Write;
use std::sync::Arc;
use std::time::SystemTime;

use pronghorn_base::since_1970;
use pronghorn_config::Era;
use pronghorn_pool::WORKER_OUTPUT;
use serde_json::Value;
use tracing::Event;

use super::time::Moment;
use crate::settings::{Encoding, Level, LogMode, LogTarget};
pub use escape::printable;
use escape::{Escaped, Place};
use fields::{Fields, Message};
use template::Template;

pub use kept::readable;

/// The texts of a record together; what is beyond is cut. A crash report with a worker's last words
/// fits, and the queue holds several.
const LONGEST: usize = 256 << 10;

/// Bytes of a priority.
const PRIORITY: usize = "<4>".len();

/// A record that goes to somebody.
pub(super) struct Record<'a> {
    pub(super) time: SystemTime,
    pub(super) level: Level,
    pub(super) logger: &'a str,
    pub(super) content: Content<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    Event {
        event: &'a Event<'a>,
        /// The target of a record that belongs to no channel.
        stranger: Option<&'a str>,
    },
    /// The logs' own.
    Text(&'a str),
    /// Of a record that was JSON before.
    Kept {
        message: &'a str,
        fields: &'a [(String, Value)],
    },
}

/// How records are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Format {
    layout: Layout,
    /// Records begin with `<4>`, or another priority of syslog: the journal takes it for its own.
    has_priority: bool,
    line_ending: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Layout {
    /// Of RoadRunner 2025.1.
    Json {
        octane: bool,
    },
    /// Of RoadRunner 3.
    Json3,
    Columns,
    /// With the fields, but for RoadRunner 3.
    Raw {
        is_bare: bool,
    },
    /// For people.
    Screen(Paint),
    /// As the operator wants it.
    Own(Arc<Template>),
}

/// Whether colours may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Paint(bool);

/// What is looked at by people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terminal {
    pub(super) colours: bool,
}

/// Who reads an output.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readers {
    pub(super) terminal: Option<Terminal>,
    pub(super) octane: bool,
    pub(super) journal: bool,
}

impl Format {
    /// Laravel Octane looks for levels in lower case: its records are of one shape whatever the
    /// file is written for.
    pub(super) fn new(target: &LogTarget, readers: Readers) -> Self {
        let Readers {
            terminal,
            octane,
            journal,
        } = readers;
        let own = target.format.as_deref();
        let layout = match (target.encoding, target.mode, terminal) {
            _ if own.is_some_and(|own| !own.is_empty()) => {
                let template = Template::new(own.unwrap_or_default(), &target.time_format);
                Layout::Own(Arc::new(template))
            }
            (Encoding::Json, _, _) if target.era == Era::V3 && !octane => Layout::Json3,
            (Encoding::Json, _, _) => Layout::Json { octane },
            (Encoding::Console, LogMode::Raw, _) => Layout::Raw {
                is_bare: target.era == Era::V3,
            },
            (Encoding::Console, LogMode::Development, Some(terminal)) => {
                Layout::Screen(Paint(terminal.colours))
            }
            (Encoding::Console, _, _) => Layout::Columns,
        };
        Self {
            layout,
            has_priority: journal,
            line_ending: target.line_ending.clone(),
        }
    }

    /// As the newest records are kept.
    pub(super) fn to_be_kept() -> Self {
        Self {
            layout: Layout::Json { octane: false },
            has_priority: false,
            line_ending: String::new(),
        }
    }

    /// Of a record that was written so, the text to be kept, if it is the same.
    pub(super) fn kept<'a>(&self, line: &'a str) -> Option<&'a str> {
        if self.layout != (Layout::Json { octane: false }) {
            return None;
        }
        let start = if self.has_priority { PRIORITY } else { 0 };
        line.get(start..)?.strip_suffix(&self.line_ending)
    }

    /// Appends the record, its end included.
    pub(super) fn write(&self, out: &mut String, record: &Record<'_>) {
        let mut left = LONGEST;
        if self.has_priority {
            out.push_str(record.level.priority());
        }
        match &self.layout {
            Layout::Json { octane } => record.json(out, *octane, &mut left),
            Layout::Json3 => record.json_3(out, &mut left),
            Layout::Columns => record.columns(out, &mut left),
            Layout::Raw { is_bare } => record.raw(out, *is_bare, &mut left),
            Layout::Screen(paint) => {
                if !request::write(out, record, *paint, &mut left) {
                    record.screen(out, *paint, &mut left);
                }
            }
            Layout::Own(template) => template.write(out, record, &mut left),
        }
        out.push_str(&self.line_ending);
    }
}

impl Record<'_> {
    fn json(&self, out: &mut String, octane: bool, left: &mut usize) {
        out.push_str("{\"level\":\"");
        let level = match self.level {
            // It shows a request, whatever became of it, if the record says `info`.
            Level::Warn if octane && request::is_one(self) => Level::Info,
            level => level,
        };
        out.push_str(level.word());
        out.push_str("\",\"ts\":");
        out.push_str(itoa::Buffer::new().format(since_1970(self.time).as_nanos()));
        out.push_str(",\"logger\":\"");
        out.push_str(self.logger);
        out.push_str("\",\"msg\":\"");
        self.message(out, Place::Json, left);
        self.rest(out, left);
    }

    fn json_3(&self, out: &mut String, left: &mut usize) {
        out.push_str("{\"time\":\"");
        Moment::of(self.time).write_exact(out);
        out.push_str("\",\"level\":\"");
        out.push_str(self.level.label());
        out.push_str("\",\"msg\":\"");
        self.message(out, Place::Json, left);
        out.push_str("\",\"logger\":\"");
        out.push_str(self.logger);
        self.rest(out, left);
    }

    /// The end of a text, and the fields.
    fn rest(&self, out: &mut String, left: &mut usize) {
        out.push('"');
        self.content.visit(Fields {
            out,
            left,
            first: false,
            blocks: None,
        });
        out.push('}');
    }

    fn columns(&self, out: &mut String, left: &mut usize) {
        Moment::of(self.time).write_long(out);
        _ = write!(out, "\t{}\t{:12}\t", self.level.label(), self.logger); // a String takes all
        self.message(out, Place::Column, left);
        self.object(out, None, left);
    }

    fn raw(&self, out: &mut String, is_bare: bool, left: &mut usize) {
        self.message(out, Place::Raw, left);
        // An application that writes records of its own, in JSON for instance, gets them out as
        // they are.
        if !is_bare && !self.content.is_worker_output() {
            self.object(out, None, left);
        }
    }

    fn screen(&self, out: &mut String, paint: Paint, left: &mut usize) {
        let colour = match self.level {
            Level::Debug => Paint::DIM,
            Level::Info => Paint::CYAN,
            Level::Warn => Paint::YELLOW,
            Level::Error => Paint::RED,
        };
        paint.on(out, Paint::DIM);
        Moment::of(self.time).write_long(out);
        paint.off(out);
        out.push('\t');
        paint.on(out, colour);
        out.push_str(self.level.label());
        paint.off(out);
        _ = write!(out, "\t{:12}\t", self.logger);
        self.message(out, Place::Screen, left);
        let mut blocks = String::new();
        paint.on(out, Paint::DIM);
        self.object(out, Some(&mut blocks), left);
        paint.off(out);
        out.push_str(&blocks);
    }

    fn message(&self, out: &mut String, place: Place, left: &mut usize) {
        let mut text = Escaped::new(out, place, left);
        match self.content {
            Content::Event { event, .. } => event.record(&mut Message(text)),
            Content::Text(message) | Content::Kept { message, .. } => _ = text.write_str(message),
        }
    }

    /// A tab and the fields as an object; nothing when there are none.
    fn object(&self, out: &mut String, blocks: Option<&mut String>, left: &mut usize) {
        let before = out.len();
        out.push_str("\t{");
        let none = out.len();
        self.content.visit(Fields {
            out,
            left,
            first: true,
            blocks,
        });
        if out.len() == none {
            out.truncate(before);
        } else {
            out.push('}');
        }
    }
}

impl Content<'_> {
    fn visit(&self, mut fields: Fields<'_>) {
        match self {
            Content::Event { event, stranger } => {
                event.record(&mut fields);
                if let Some(target) = stranger {
                    fields.text("target", target);
                }
            }
            Content::Text(_) => {}
            Content::Kept { fields: kept, .. } => {
                for (name, value) in *kept {
                    fields.member(name, value);
                }
            }
        }
    }

    fn is_worker_output(&self) -> bool {
        matches!(self, Content::Event { event, .. } if event.metadata().name() == WORKER_OUTPUT)
    }
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// As syslog counts.
    fn priority(self) -> &'static str {
        match self {
            Self::Debug => "<7>",
            Self::Info => "<6>",
            Self::Warn => "<4>",
            Self::Error => "<3>",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

impl Paint {
    const DIM: u8 = 2;
    const RED: u8 = 31;
    const GREEN: u8 = 32;
    const YELLOW: u8 = 33;
    const CYAN: u8 = 36;

    fn on(self, out: &mut String, colour: u8) {
        if self.0 {
            _ = write!(out, "\x1b[{colour}m");
        }
    }

    fn off(self, out: &mut String) {
        if self.0 {
            out.push_str("\x1b[0m");
        }
    }
}
