//! What can go wrong with a store.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Why a store was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The server was made without a place for it.
    #[error("there is no state directory")]
    NoFolder,
    /// The operator's: two servers would share it.
    #[error(
        "the store in {} is used by {}: stop that server, or set a `state_dir` of its own for each",
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
        "{} is broken: {why}; put a copy back, or move the file away to begin with an empty one",
        path.display()
    )]
    Broken { path: PathBuf, why: String },
    /// The system's: no right, no space, no such disk.
    #[error("{} can't be opened", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl OpenError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn of_engine(path: &Path, error: redb::Error) -> Self {
        let path = path.to_owned();
        match error {
            redb::Error::Io(source) if source.kind() != io::ErrorKind::InvalidData => {
                Self::Io { path, source }
            }
            redb::Error::UpgradeRequired(found) => Self::Broken {
                path,
                why: format!("its engine's format is {found}"),
            },
            other => Self::Broken {
                path,
                why: other.to_string(),
            },
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
    /// It may have been done: the disk did not say. The store opens its file anew.
    #[error("the store can't be written: {0}")]
    Failed(Arc<redb::Error>),
    /// Nothing was done: the file could not be opened again after a failure.
    #[error("the store is out of order: {0}")]
    OutOfOrder(Arc<OpenError>),
    /// Nothing was done.
    #[error("the store is closed")]
    Closed,
}
