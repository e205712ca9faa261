//! What can go wrong with a store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_base::Untrusted;
use thiserror::Error;

/// Why a store was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The server was made without a place for it.
    #[error("there is no state directory")]
    NoFolder,
    /// The operator's: two servers would share it.
    #[error(
        "the state directory {} is used by {}: stop that server, or set a `state_dir` of its own for each",
        folder.display(), process_name(*process)
    )]
    InUse {
        folder: PathBuf,
        process: Option<u32>,
    },
    /// The operator's: an older server was started on it.
    #[error(
        "{} has format {found}, and this version of Pronghorn reads {known}: start the newer version again",
        path.display()
    )]
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    /// The disk's, or that of somebody who wrote to the file.
    #[error(
        "{path} is broken: {why}; put a copy back, or begin with an empty store: `mv {path} {path}.broken`",
        path = path.display()
    )]
    Broken { path: PathBuf, why: String },
    /// The operator's: the file is another user's.
    #[error(
        "the server's user may not open {path}: make it the owner by `chown USER {path}`, or set another `state_dir`",
        path = path.display()
    )]
    Denied { path: PathBuf },
    /// The operator's: others could put other jobs in the place of these.
    #[error("the store is not opened: {0}")]
    Untrusted(io::Error),
    /// The system's: no space, no such disk.
    #[error("{} can't be opened", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl OpenError {
    /// Whether the process that has started this one has it: it is handing over.
    pub fn is_of_predecessor(&self) -> bool {
        let parent = std::os::unix::process::parent_id();
        matches!(self, Self::InUse { process, .. } if *process == Some(parent))
    }

    /// An error of a file, or of the directory around it.
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        if Untrusted::is(&source) {
            return Self::Untrusted(source);
        }
        let path = path.to_owned();
        let why = match source.kind() {
            io::ErrorKind::PermissionDenied => return Self::Denied { path },
            io::ErrorKind::IsADirectory => "it is a directory",
            io::ErrorKind::InvalidData => "its beginning is not that of a store",
            io::ErrorKind::UnexpectedEof => "its end is missing",
            _ => return Self::Io { path, source },
        };
        let why = why.to_owned();
        Self::Broken { path, why }
    }

    pub(crate) fn of_engine(path: &Path, error: redb::Error) -> Self {
        let why = match error {
            // Somebody has removed the file of our own lock.
            redb::Error::DatabaseAlreadyOpen => {
                let folder = path.parent().unwrap_or(path).to_owned();
                return Self::InUse {
                    folder,
                    process: None,
                };
            }
            redb::Error::Io(source) => return Self::io(path, source),
            redb::Error::UpgradeRequired(found) => format!("its engine's format is {found}"),
            redb::Error::Corrupted(why) => why,
            other => other.to_string(),
        };
        let path = path.to_owned();
        Self::Broken { path, why }
    }

    /// With what the system says.
    fn in_full(&self) -> String {
        match self {
            Self::Io { source, .. } => format!("{self}: {source}"),
            other => other.to_string(),
        }
    }
}

fn process_name(process: Option<u32>) -> String {
    process.map_or_else(
        || "another process".to_owned(),
        |process| format!("process {process}"),
    )
}

/// Why an operation was not carried out, or may not have been.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// Nothing was done.
    #[error("the store is full: {limit} bytes are allowed")]
    Full { limit: u64 },
    /// Nothing was done. Room is kept for what ends something.
    #[error(
        "the volume of the store is full: make room on it, or remove jobs or entries; what is there can be run, read and removed"
    )]
    NoRoom,
    /// It may have been done: the disk did not say. The store opens its file anew.
    #[error("the store can't be written: {0}")]
    Failed(Arc<redb::Error>),
    /// Nothing was done: the file could not be opened again after a failure.
    #[error("the store is out of order: {}", .0.in_full())]
    OutOfOrder(Arc<OpenError>),
    /// Nothing was done.
    #[error("the store is closed, because this server process ends: try again")]
    Closed,
    /// It may have been done: the process that has taken over with the store does not say.
    #[error("the process that has taken over with the store does not answer")]
    Gone,
    /// It may have been done. What that process says.
    #[error("{0}")]
    Elsewhere(Arc<str>),
}
