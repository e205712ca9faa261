//! Exit codes and the last words of a command.
//!
//! What strangers have sent is in much of it, so nothing is printed here that a terminal obeys.

#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "this is where a command speaks"
)]

use std::process::ExitCode;

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
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Done => Self::SUCCESS,
            Exit::Failed => Self::from(1),
            Exit::Misused => Self::from(2),
        }
    }
}

/// Says what is wrong, on stderr, and is the exit for it.
pub(crate) fn failed(message: &str) -> Exit {
    eprintln!("error: {}", printable(message));
    Exit::Failed
}

/// The same for a command that was asked wrongly.
pub(crate) fn misused(message: &str) -> Exit {
    eprintln!("error: {}", printable(message));
    Exit::Misused
}

/// Data, on stdout.
pub(crate) fn say(text: &str) {
    print!("{}", printable(text));
}

/// The same where it has our own colours, and foreign texts in it are [`printable`].
pub(crate) fn say_coloured(text: &str) {
    print!("{text}");
}

/// The same as JSON, for programs.
pub(crate) fn say_json(value: &impl Serialize) -> Result<Exit, String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    say(&format!("{text}\n"));
    Ok(Exit::Done)
}

/// What is not data, on stderr.
pub(crate) fn mention(text: &str) {
    eprint!("{}", printable(text));
}
