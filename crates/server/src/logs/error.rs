//! Why logs cannot be written. All are the operator's to mend, but the last.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum LogError {
    #[error(
        "cannot open the log file `{}`: {source}\nhint: the server's user must be able to write it; `logs` in the \
         configuration names another one",
        .path.display()
    )]
    Open { path: PathBuf, source: io::Error },
    #[error(
        "the folder `{0}` for the log file `{1}` cannot be created: {source}\nhint: `mkdir -p {0}`, as a user who may, \
         and give it to the server's user",
        .folder.display(), .path.display()
    )]
    Folder {
        path: PathBuf,
        folder: PathBuf,
        source: io::Error,
    },
    #[error(
        "the log file `{0}` is a named pipe that nobody reads\nhint: start its reader first, for instance `cat {0}`",
        .path.display()
    )]
    NoReader { path: PathBuf },
    #[error(
        "the log file `{}` has different limits in two `file_logger_options`\nhint: one file has one size, age and \
         number of old files; write the same, or name another file",
        .0.display()
    )]
    TwoLimits(PathBuf),
    /// The machine's: no more threads or descriptors.
    #[error("cannot start the logs: {0}")]
    Machine(#[from] io::Error),
    /// Ours: [`super::init`] ran twice, or something else set a subscriber.
    #[error("the process has a tracing subscriber already")]
    Taken,
}
