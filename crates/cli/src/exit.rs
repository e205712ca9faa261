//! Exit codes and the last words of a command.
//!
//! What strangers have sent is in much of it, so nothing is printed here that a terminal obeys.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use pronghorn_server::logs::printable;
use serde::Serialize;

/// How the command ends. The numbers are documented in `docs/reference/command-line.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Done,
    /// It tried and failed: a worker that doesn't boot, a port in use.
    Failed,
    /// It was asked wrongly: bad arguments, a bad configuration. Nothing was started.
    Misused,
    /// It did what was asked, and a person has to look at what it made before that is used.
    Unsure,
}

/// Why data could not be written: the first reason.
static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

impl Exit {
    /// The code for the shell. A command whose data did not get out has failed, unless its reader
    /// has seen enough, as `| head` has.
    pub(crate) fn code(self) -> ExitCode {
        let unwritten = UNWRITTEN.get();
        let unwritten = unwritten.filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        let exit = match (self, unwritten) {
            (Self::Done | Self::Unsure, Some(error)) => {
                failed(&format!("standard output can't be written: {error}"))
            }
            (exit, _) => exit,
        };
        match exit {
            Self::Done => ExitCode::SUCCESS,
            Self::Failed => ExitCode::from(1),
            Self::Misused => ExitCode::from(2),
            Self::Unsure => ExitCode::from(3),
        }
    }
}

/// Says what is wrong, on stderr, and is the exit for it.
pub(crate) fn failed(message: &str) -> Exit {
    mention(&format!("error: {message}\n"));
    Exit::Failed
}

/// The same for a command that was asked wrongly.
pub(crate) fn misused(message: &str) -> Exit {
    mention(&format!("error: {message}\n"));
    Exit::Misused
}

/// Data, on stdout.
pub(crate) fn say(text: &str) {
    say_coloured(&printable(text));
}

/// The same where it has our own colours, and foreign texts in it are [`printable`].
pub(crate) fn say_coloured(text: &str) {
    note(write_out(text.as_bytes()));
}

/// Remembers, for the end of the command, that data could not be written.
pub(crate) fn note(written: io::Result<()>) {
    if let Err(error) = written {
        _ = UNWRITTEN.set(error); // the first one is told
    }
}

/// Bytes on stdout, out at once: what waited for the end of the process could fail unseen.
pub(crate) fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// The same as JSON, for programs.
pub(crate) fn say_json(value: &impl Serialize) -> Result<Exit, String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    say(&format!("{text}\n"));
    Ok(Exit::Done)
}

/// What is not data, on stderr.
pub(crate) fn mention(text: &str) {
    // There is nobody left to tell that it can't be written.
    _ = io::stderr().write_all(printable(text).as_bytes());
}
