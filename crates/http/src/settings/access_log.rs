//! `http.access_log`.

use std::time::Duration;

use pronghorn_config::{Node, Section, Setting, Shown, Table, Wrong};
use pronghorn_serve::Split;

use crate::routes::is_token;

/// A line for each request.
#[derive(Clone, Debug)]
pub struct AccessLogSettings {
    pub format: LogFormat,
    /// `stdout`, `stderr` or files; of the log channel `access`.
    pub output: Vec<String>,
    /// One of so many requests is logged; 0 is none.
    pub sample: u32,
    /// What took longer is logged whatever the sample is.
    pub slow: Option<Duration>,
}

/// The format of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// As the web servers of the nineties wrote it and all programs read it.
    Combined,
    Json,
    Own(Vec<LogPiece>),
}

/// A part of an own pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPiece {
    Text(String),
    Value(Placeholder),
}

/// What can stand in braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placeholder {
    Ip,
    /// As `combined` has it.
    Time,
    /// As RFC 3339 has it, with milliseconds.
    TimeIso,
    Method,
    /// Path and query as received.
    Target,
    Path,
    Query,
    Host,
    Scheme,
    Protocol,
    Status,
    /// Of the body that the client took.
    Bytes,
    /// Seconds, to the millisecond.
    Elapsed,
    ElapsedMs,
    ElapsedUs,
    /// A part of it, in microseconds.
    Part(Part),
    RequestId,
    TraceId,
    Pool,
    /// As the application calls it, or a pattern that its path was found to have.
    Route,
    /// Of the worker.
    Pid,
    /// Of the request, in lower case.
    Header(String),
    ResponseHeader(String),
}

/// What the time of a request that reached PHP was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Read,
    Queue,
    Php,
    PhpCpu,
    PhpBlocked,
    Write,
}

/// Names in braces, of those that need no more than that.
const NAMES: [(&str, Placeholder); 26] = [
    ("ip", Placeholder::Ip),
    ("time", Placeholder::Time),
    ("time_iso", Placeholder::TimeIso),
    ("method", Placeholder::Method),
    ("target", Placeholder::Target),
    ("path", Placeholder::Path),
    ("query", Placeholder::Query),
    ("host", Placeholder::Host),
    ("scheme", Placeholder::Scheme),
    ("protocol", Placeholder::Protocol),
    ("status", Placeholder::Status),
    ("bytes", Placeholder::Bytes),
    ("elapsed", Placeholder::Elapsed),
    ("elapsed_ms", Placeholder::ElapsedMs),
    ("elapsed_us", Placeholder::ElapsedUs),
    ("read_us", Placeholder::Part(Part::Read)),
    ("queue_us", Placeholder::Part(Part::Queue)),
    ("php_us", Placeholder::Part(Part::Php)),
    ("php_cpu_us", Placeholder::Part(Part::PhpCpu)),
    ("php_blocked_us", Placeholder::Part(Part::PhpBlocked)),
    ("write_us", Placeholder::Part(Part::Write)),
    ("request_id", Placeholder::RequestId),
    ("trace_id", Placeholder::TraceId),
    ("pool", Placeholder::Pool),
    ("route", Placeholder::Route),
    ("pid", Placeholder::Pid),
];

/// A line that needs more wants to be JSON.
const MOST_PIECES: usize = 100;

impl Section for AccessLogSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        t.live();
        Self {
            format: t
                .key(
                    "format",
                    "The format of a line. The guide lists [the \
                     placeholders](../guide/middleware.md#access_log).",
                )
                .default(LogFormat::Combined),
            output: t
                .key(
                    "output",
                    "Where lines go: `stdout`, `stderr` or files. A channel `access` in \
                     `logs.channels` replaces it.",
                )
                .default(vec!["stdout".to_owned()]),
            sample: t
                .key(
                    "sample",
                    "Logs one request of this many: with 100, one of 100. With 0, none. Requests \
                     with a status of 500 or more are always logged.",
                )
                .range(0..=1_000_000)
                .default(1),
            slow: t
                .key(
                    "slow",
                    "Requests that take longer than this are always logged.",
                )
                .limit(),
        }
    }
}

impl AccessLogSettings {
    /// Whether a line shows what a request's time was spent on.
    pub fn shows_split(&self) -> bool {
        self.shows(|placeholder| matches!(placeholder, Placeholder::Part(_)))
    }

    /// Whether a line names the route of a request.
    pub fn shows_route(&self) -> bool {
        self.shows(|placeholder| matches!(placeholder, Placeholder::Route))
    }

    fn shows(&self, is_it: impl Fn(&Placeholder) -> bool) -> bool {
        match &self.format {
            LogFormat::Combined => false,
            LogFormat::Json => true,
            LogFormat::Own(pieces) => pieces
                .iter()
                .any(|piece| matches!(piece, LogPiece::Value(placeholder) if is_it(placeholder))),
        }
    }
}

impl Part {
    /// `None` where it is not known.
    pub fn of(self, split: &Split) -> Option<Duration> {
        match self {
            Self::Read => Some(split.read),
            Self::Queue => Some(split.queue),
            Self::Php => split.worker,
            Self::PhpCpu => split.spent.map(|spent| spent.cpu),
            Self::PhpBlocked => split.spent.map(|spent| spent.blocked),
            Self::Write => Some(split.write),
        }
    }
}

impl Placeholder {
    fn of(name: &str) -> Option<Self> {
        let field = |field: &str| {
            let is_name = !field.is_empty() && field.bytes().all(is_token);
            is_name.then(|| field.to_ascii_lowercase())
        };
        if let Some(name) = name.strip_prefix("header:") {
            return field(name).map(Self::Header);
        }
        if let Some(name) = name.strip_prefix("response_header:") {
            return field(name).map(Self::ResponseHeader);
        }
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, placeholder)| placeholder.clone())
    }

    fn name(&self) -> String {
        match self {
            Self::Header(name) => format!("header:{name}"),
            Self::ResponseHeader(name) => format!("response_header:{name}"),
            other => {
                let known = NAMES.iter().find(|(_, known)| known == other);
                known.map_or_else(String::new, |(name, _)| (*name).to_owned())
            }
        }
    }
}

/// Splits a pattern; Err says what is wrong.
fn pieces(pattern: &str) -> Result<Vec<LogPiece>, String> {
    let mut pieces = Vec::new();
    let mut rest = pattern;
    while !rest.is_empty() {
        if pieces.len() > MOST_PIECES {
            return Err(format!("a pattern has at most {MOST_PIECES} parts"));
        }
        let (text, from) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
        if !text.is_empty() {
            pieces.push(LogPiece::Text(text.to_owned()));
        }
        let Some(inside) = from.strip_prefix('{') else {
            break;
        };
        let Some((name, after)) = inside.split_once('}') else {
            return Err("a `{` has no `}`".to_owned());
        };
        let known = Placeholder::of(name).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            format!(
                "there is no `{{{name}}}`; known: {}, header:NAME, response_header:NAME",
                names.join(", ")
            )
        })?;
        pieces.push(LogPiece::Value(known));
        rest = after;
    }
    if pieces
        .iter()
        .any(|piece| matches!(piece, LogPiece::Value(_)))
    {
        Ok(pieces)
    } else {
        Err("a pattern has names in braces, such as `{ip} {status} {target}`".to_owned())
    }
}

impl Setting for LogFormat {
    fn example() -> String {
        "combined".to_owned()
    }

    fn accepts() -> String {
        "`combined`, `json`, or a pattern such as `{ip} {status} {method} {target}`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?;
        match text.trim() {
            "combined" => Ok(Self::Combined),
            "json" => Ok(Self::Json),
            _ if text.chars().any(char::is_control) => Err(Wrong::hinted(
                node,
                "a pattern is one line without control characters",
            )),
            _ => pieces(text)
                .map(Self::Own)
                .map_err(|hint| Wrong::hinted(node, hint)),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(match self {
            Self::Combined => "combined".to_owned(),
            Self::Json => "json".to_owned(),
            Self::Own(pieces) => {
                let shown = pieces.iter().map(|piece| match piece {
                    LogPiece::Text(text) => text.clone(),
                    LogPiece::Value(placeholder) => format!("{{{}}}", placeholder.name()),
                });
                shown.collect()
            }
        })
    }
}
