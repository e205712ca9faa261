//! Why the workers of a pool can't be given what they need.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_base::with_causes;
use pronghorn_process::SpawnError;
use thiserror::Error;

/// The pool needs something of its PHP, and it is not certain that its workers would get it. The
/// operator's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PhpError {
    /// The command is a shell's, or something else that does not tell.
    #[error(
        "the pool has settings of PHP (`ini`), and `{command}` does not tell which PHP it runs"
    )]
    Unknown { command: String },
    /// A slow disk, a machine that is too busy, or a program that is no PHP.
    #[error("`{}` did not report its version within `boot_timeout`, {limit:?}", php.display())]
    TimedOut { php: PathBuf, limit: Duration },
    /// It ended and said something else, or nothing.
    #[error("`{}` does not report its version", php.display())]
    NoAnswer { php: PathBuf, said: String },
    /// It can't be executed, with this environment for instance.
    #[error("PHP can't be asked for its version: {why}")]
    NotStarted { why: String, is_too_long: bool },
    /// A script in its place does not pass them on.
    #[error("`{}` does not take PHP's option `-d`, by which workers get their settings", php.display())]
    NoOptions { php: PathBuf },
}

/// The hint about an environment that is too long.
pub const SHORTER: &str = "put what is long into a file, and its path into the variable: workers \
                           get those of `server.env` and of the server's own environment";

impl PhpError {
    /// A PHP that the system does not start.
    pub(crate) fn not_started(error: &SpawnError) -> Self {
        let is_too_long = matches!(error, SpawnError::Failed { source, .. }
            if source.kind() == ErrorKind::ArgumentListTooLong);
        let why = with_causes(error);
        Self::NotStarted { why, is_too_long }
    }

    /// What to do.
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown { .. } => {
                "begin the command with `php`, or write these settings into the php.ini of that \
                 PHP and remove `ini` from the pool"
                    .to_owned()
            }
            Self::TimedOut { php, .. } => format!(
                "`{} -v` shows how long PHP takes; a larger `boot_timeout` of the pool waits longer",
                php.display()
            ),
            Self::NoAnswer { php, .. } => format!("`{} -v` shows what it says", php.display()),
            Self::NotStarted {
                is_too_long: true, ..
            } => SHORTER.to_owned(),
            Self::NotStarted { .. } => {
                "where permission is denied, `namei -l` with its path shows who may enter its \
                 directories"
                    .to_owned()
            }
            Self::NoOptions { php } => format!(
                "if `{}` is a script, let it pass all its arguments to PHP: `exec php \"$@\"`",
                php.display()
            ),
        }
    }

    /// What PHP said in place of an answer.
    pub(crate) fn said(&self) -> &str {
        match self {
            Self::NoAnswer { said, .. } => said,
            Self::Unknown { .. }
            | Self::TimedOut { .. }
            | Self::NotStarted { .. }
            | Self::NoOptions { .. } => "",
        }
    }
}
