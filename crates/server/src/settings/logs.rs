//! The section `logs`.

use std::path::PathBuf;

use pronghorn_config::{Choice, Era, Node, Section, Setting, Shown, Size, Table, Wrong};

/// As RoadRunner's.
const FILE_MAX_SIZE: Size = Size::megabytes(100);

/// Days, as RoadRunner's.
const FILE_MAX_AGE: u32 = 24;

/// As RoadRunner's.
const FILE_MAX_BACKUPS: u32 = 10;

/// As RoadRunner 3 has it: RFC 3339.
const TIME_FORMAT: &str = "2006-01-02T15:04:05Z07:00";

/// Where records go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// For every channel that has no settings of its own.
    pub target: LogTarget,
    /// By the channel's name, as written; match it without regard to case.
    pub channels: Vec<(String, LogTarget)>,
    /// Each service has a channel of its own.
    pub services: Vec<&'static str>,
}

/// How the records of a channel are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTarget {
    /// What they look like by default.
    pub mode: LogMode,
    /// The lowest level that is written.
    pub level: Level,
    /// Text or JSON.
    pub encoding: Encoding,
    /// Each record goes to all of them.
    pub output: Vec<LogOutput>,
    /// After each record.
    pub line_ending: String,
    /// When set, records go to this file instead of to `output`.
    pub file: Option<FileLog>,
    /// What a record looks like, whatever `mode` and `encoding` say.
    pub format: Option<String>,
    /// Of the times in it: a layout of Go.
    pub time_format: String,
    /// Whose JSON it is.
    pub era: Era,
}

/// What records look like by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// JSON.
    Production,
    /// Readable.
    Development,
    /// The message alone.
    Raw,
    /// No records.
    Off,
}

impl Choice for LogMode {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("production", Self::Production),
        ("development", Self::Development),
        ("raw", Self::Raw),
        ("off", Self::Off),
        ("none", Self::Off),
    ];
}

/// How much a record matters, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For whoever looks for a mistake.
    Debug,
    /// What happens.
    Info,
    /// Somebody should look at it.
    Warn,
    /// Something failed.
    Error,
}

impl Choice for Level {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("debug", Self::Debug),
        ("info", Self::Info),
        ("warn", Self::Warn),
        ("warning", Self::Warn),
        ("error", Self::Error),
        // RoadRunner's levels above: nothing here is worse than an error and still logged.
        ("dpanic", Self::Error),
        ("panic", Self::Error),
        ("fatal", Self::Error),
    ];
}

/// Text or JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A line to read.
    Console,
    /// An object on one line.
    Json,
}

impl Choice for Encoding {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("console", Self::Console), ("json", Self::Json)];
}

/// Where a record goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOutput {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The end of this file.
    File(PathBuf),
}

/// A file that is replaced when it grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLog {
    /// The file.
    pub path: PathBuf,
    /// When it is larger, a new one begins.
    pub max_size: Size,
    /// Days after which an old one is removed.
    pub max_age: u32,
    /// How many old ones are kept.
    pub max_backups: u32,
    /// Old ones are compressed.
    pub compress: bool,
}

impl Section for LogSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.live();
        let target = LogTarget::read(t, None);
        Self {
            channels: t.sections_with(
                "channels",
                "Settings for the records of single parts of the server, by the name of the part.",
                "One part of the server. Keys that are not set have the values of `logs`.",
                |t| LogTarget::read(t, Some(&target)),
            ),
            target,
            services: Vec::new(),
        }
    }
}

impl LogSettings {
    /// A channel of a service, unless it is written: lines alone, whatever other records look like.
    pub(super) fn add_channel(&mut self, channel: &str, outputs: &[String]) {
        let is_written = |(name, _): &(String, LogTarget)| name.eq_ignore_ascii_case(channel);
        if self.channels.iter().any(is_written) {
            return;
        }
        let output = |text: &String| match text.to_ascii_lowercase().as_str() {
            "stdout" => LogOutput::Stdout,
            "stderr" => LogOutput::Stderr,
            _ => LogOutput::File(text.into()),
        };
        let target = LogTarget {
            mode: LogMode::Raw,
            level: Level::Info,
            encoding: Encoding::Console,
            output: outputs.iter().map(output).collect(),
            line_ending: "\n".to_owned(),
            file: None,
            format: None,
            time_format: TIME_FORMAT.to_owned(),
            era: Era::V2025,
        };
        self.channels.push((channel.to_owned(), target));
    }
}

impl LogTarget {
    /// A channel has what is written for it, and all else from `logs`.
    fn read(t: &mut Table<'_>, logs: Option<&Self>) -> Self {
        let mode = t.key(
            "mode",
            "The format of records. `production`: JSON. `development`: readable text. `raw`: only \
             the message. `off`: no records. `encoding` and `format` can change it.",
        );
        let mode = match logs {
            Some(logs) => mode.default_as(logs.mode, "as `logs.mode`"),
            None => mode.default(LogMode::Development),
        };
        let level = t.key("level", "The lowest level of records that are written.");
        let level = match logs {
            Some(logs) => level.default_as(logs.level, "as `logs.level`"),
            None => level
                .roadrunner("debug", "debug records would flood the log")
                .default(Level::Info),
        };
        let output_written = t.is_written("output");
        let output = t.key("output", "Where records go: `stdout`, `stderr` or files.");
        let output = match logs {
            Some(logs) => output.default_as(logs.output.clone(), "as `logs.output`"),
            None => output.default(vec![LogOutput::Stderr]),
        };
        let line_ending = t.key("line_ending", "The text after each record.");
        let line_ending = match logs {
            Some(logs) => line_ending.default_as(logs.line_ending.clone(), "as `logs.line_ending`"),
            None => line_ending.default("\n".to_owned()),
        };
        let is_skipped = t
            .key(
                "skip_line_ending",
                "Whether `line_ending` is left out, as in RoadRunner 3.",
            )
            .default(false);
        let line_ending = if is_skipped {
            String::new()
        } else {
            line_ending
        };
        let file = match logs.and_then(|logs| logs.file.as_ref()) {
            Some(file) if !output_written => {
                t.section_with(FILE, FILE_SENTENCE, |t| FileLog::read(t, Some(file)))
            }
            _ => t
                .optional_section_with(FILE, FILE_SENTENCE, |t| FileLog::read(t, None))
                .flatten(),
        };
        let encoding = t.key("encoding", "The encoding of records: text or JSON.");
        let encoding = match logs {
            Some(logs) if logs.mode == mode && logs.file.is_some() == file.is_some() => {
                encoding.default_as(logs.encoding, "as `logs.encoding`")
            }
            // As RoadRunner's: programs read these files.
            _ if file.is_some() => {
                encoding.default_as(Encoding::Json, "`json` with `file_logger_options`")
            }
            _ => encoding.default_as(
                mode.encoding(),
                "by `mode`: `json` in production, else `console`",
            ),
        };
        let (format, time_format) = read_format(t, logs);
        let target = Self {
            mode,
            level,
            encoding,
            output,
            line_ending,
            file,
            format,
            time_format,
            era: t.era(),
        };
        t.no_effect("use_local_time", "times are UTC");
        t.no_effect(
            "show_caller",
            "records name the part of the server that they come from",
        );
        t.no_effect("err_output", "the logger's own errors go to standard error");
        target
    }
}

/// `format` and `time_format`. A channel with a mode or an encoding of its own wants that one.
fn read_format(t: &mut Table<'_>, logs: Option<&LogTarget>) -> (Option<String>, String) {
    let logs = logs.filter(|_| !t.is_written("mode") && !t.is_written("encoding"));
    let format: Option<String> = t
        .key(
            "format",
            "The format of a record, instead of `mode` and `encoding`. These placeholders stand \
             for its parts: `%time%`, `%level%`, `%message%`, `%logger%`, `%attrs%`, \
             `%source_file%`, `%source_line%` and `%source_func%`.",
        )
        .optional();
    let time = t.key(
        "time_format",
        "The format of `%time%`, which is always in UTC. It is a Go layout: write January 2, 2006, \
         15:04:05 in the form that you want.",
    );
    let time = match logs {
        Some(logs) => time.default_as(logs.time_format.clone(), "as `logs.time_format`"),
        None => time.default(TIME_FORMAT.to_owned()),
    };
    (format.or_else(|| logs?.format.clone()), time)
}

impl LogMode {
    fn encoding(self) -> Encoding {
        match self {
            Self::Production => Encoding::Json,
            Self::Development | Self::Raw | Self::Off => Encoding::Console,
        }
    }
}

const FILE: &str = "file_logger_options";
const FILE_SENTENCE: &str = "A log file that is rotated by size, instead of `output`. It has JSON \
                             records, unless `encoding` is set.";

impl FileLog {
    /// None, and an error, without a path. A channel has what is written for it, and all else from
    /// `logs`.
    fn read(t: &mut Table<'_>, logs: Option<&Self>) -> Option<Self> {
        let path = t.key("log_output", "The path of the log file.");
        let path: Option<PathBuf> = match logs {
            Some(logs) => Some(path.default_as(logs.path.clone(), "as in `logs`")),
            None => path.optional(),
        };
        if path.is_none() {
            let hint = "RoadRunner would write to the folder for temporary files; name a file";
            t.error("log_output", "is missing", hint);
        }
        let max_size = t
            .key("max_size", "The size at which a new file begins.")
            .zero_is_default()
            .default(logs.map_or(FILE_MAX_SIZE, |logs| logs.max_size));
        let max_age = t
            .key(
                "max_age",
                "The number of days after which an old file is deleted.",
            )
            .zero_is_default()
            .default(logs.map_or(FILE_MAX_AGE, |logs| logs.max_age));
        let max_backups = t
            .key("max_backups", "How many old files are kept.")
            .zero_is_default()
            .default(logs.map_or(FILE_MAX_BACKUPS, |logs| logs.max_backups));
        let compress = t
            .key("compress", "Whether old files are compressed.")
            .default(logs.is_some_and(|logs| logs.compress));
        Some(Self {
            path: path?,
            max_size,
            max_age,
            max_backups,
            compress,
        })
    }
}

impl Setting for LogOutput {
    fn example() -> String {
        "stderr".to_owned()
    }

    fn accepts() -> String {
        "`stdout`, `stderr` or a path".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node
            .text()
            .map(str::trim)
            .ok_or_else(|| Wrong::value(node))?;
        let lower = text.to_ascii_lowercase();
        match lower.as_str() {
            "stdout" => return Ok(Self::Stdout),
            "stderr" => return Ok(Self::Stderr),
            "" => return Err(Wrong::value(node)),
            _ => {}
        }
        match text.split_once("://") {
            None => Ok(Self::File(text.into())),
            Some(("file", path)) if path.starts_with('/') => Ok(Self::File(path.into())),
            Some(("file", _)) => Err(Wrong::hinted(
                node,
                "write `file:///path`, or the path alone",
            )),
            Some(_) => Err(Wrong::hinted(
                node,
                "records go to files, not to other addresses",
            )),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(match self {
            Self::Stdout => "stdout".to_owned(),
            Self::Stderr => "stderr".to_owned(),
            Self::File(path) => path.display().to_string(),
        })
    }
}
