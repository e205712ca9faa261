//! Why nothing could be counted.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum Error {
    #[error(
        "which binary? Rows may follow, all by default\nhint: `make instructions` builds it and names it"
    )]
    Usage,
    #[error("there is no binary `{}`\nhint: `make instructions` builds it", .0.display())]
    NoBinary(PathBuf),
    #[error("cannot run a program: {0}\nhint: `scripts/need instructions` installs valgrind")]
    NoProgram(io::Error),
    #[error("the applications cannot be copied to `{}`", .0.display())]
    NoCopy(PathBuf),
    #[error("`{}`: {source}", .file.display())]
    File { file: PathBuf, source: io::Error },
    #[error("`{}`, line {line}: `name = number` is expected", .file.display())]
    Figure { file: PathBuf, line: usize },
    #[error("row `{row}`: waited {seconds} s for {what}{said}")]
    Late {
        row: &'static str,
        what: &'static str,
        seconds: u64,
        said: String,
    },
    #[error("row `{row}`: {what}{said}")]
    Wrong {
        row: &'static str,
        what: String,
        said: String,
    },
}
