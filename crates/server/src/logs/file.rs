//! A log file: opened, appended to, and replaced by a new one when it has grown.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, readlinkat};
use rustix::io::Errno;

use super::LogError;
use super::backups::Backups;
use super::complaints::Complaints;
use super::host::Clock;
use super::output::{Failed, Stream};
use super::queue::Batch;
use crate::settings::FileLog;

/// The server's user writes, its group reads.
pub(super) const FILE_MODE: u32 = 0o640;
const FOLDER_MODE: u32 = 0o750;

/// Opens a file at its end. Creates it, and its folder, if that alone is missing.
pub(super) fn open(path: &Path) -> Result<File, LogError> {
    let attempt = || -> io::Result<File> {
        let file = match to_append(path, !is_of_system(path)) {
            // What a trusted link points to is trusted, `/dev/stdout` for instance.
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                to_append(&target(path)?, false)?
            }
            opened => opened?,
        };
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(file)
    };
    let opened = match (attempt(), path.parent()) {
        (Err(error), Some(folder))
            if error.kind() == io::ErrorKind::NotFound && !folder.exists() =>
        {
            DirBuilder::new()
                .mode(FOLDER_MODE)
                .create(folder)
                .map_err(|source| LogError::Folder {
                    path: path.to_owned(),
                    folder: folder.to_owned(),
                    source,
                })?;
            attempt()
        }
        (other, _) => other,
    };
    opened.map_err(|source| {
        let path = path.to_owned();
        let is_pipe = fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_fifo());
        match source.raw_os_error() {
            Some(error) if is_pipe && error == Errno::NXIO.raw_os_error() => {
                LogError::NoReader { path }
            }
            _ => LogError::Open { path, source },
        }
    })
}

fn to_append(path: &Path, unless_link: bool) -> io::Result<File> {
    // The start must not wait for a named pipe's reader, nor take a terminal as the server's own.
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    flags.set(OFlags::NOFOLLOW, unless_link);
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(FILE_MODE)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Links there are the kernel's, and some of them lead to what has no name.
fn is_of_system(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}

/// Where a link points. Who may write in the folder of a log could let the server append to any
/// file that it may write: a link counts if it is root's or the server's.
fn target(link: &Path) -> io::Result<PathBuf> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let itself = rustix::fs::open(link, flags, Mode::empty())?;
    let owner = fstat(&itself)?.st_uid;
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        let text = format!(
            "it is a symbolic link of user {owner}, and links count that are root's or the server's: `chown -h root {}` \
             if it is meant",
            link.display()
        );
        return Err(io::Error::other(text));
    }
    let target = readlinkat(&itself, "", Vec::new())?;
    let target = Path::new(OsStr::from_bytes(target.as_bytes()));
    Ok(link
        .parent()
        .map_or_else(|| target.to_owned(), |folder| folder.join(target)))
}

/// A file that is replaced when it grows.
pub(super) struct Rotating {
    path: PathBuf,
    stream: Stream,
    size: u64,
    max_size: u64,
    /// When it is larger, a new one begins.
    limit: u64,
    backups: Arc<Backups>,
    complaints: Arc<Complaints>,
    /// Compresses and removes old ones: 100 MB take seconds, in which records would pile up.
    tidying: Option<JoinHandle<()>>,
    /// There is more to tidy than the thread saw.
    untidy: bool,
    clock: Clock,
}

impl Rotating {
    pub(super) fn new(
        path: &Path,
        file: File,
        log: &FileLog,
        clock: Clock,
        complaints: Arc<Complaints>,
    ) -> Self {
        // A link stays where it is, what it points to is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let max_size = log.max_size.bytes();
        Self {
            size: size(&file),
            stream: Stream::new(Box::new(file)),
            max_size,
            limit: max_size,
            backups: Arc::new(Backups::new(path.clone(), log, complaints.clone())),
            complaints,
            path,
            tidying: None,
            untidy: true,
            clock,
        }
    }

    pub(super) fn reopened(&mut self, file: File) {
        self.size = size(&file);
        self.limit = self.max_size;
        self.stream = Stream::new(Box::new(file));
    }

    /// A failed rotation is told and costs no record: the file grows on.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), Failed> {
        let mut first = 0;
        while first < batch.len() {
            let mut fitting = batch.fitting(first, self.limit.saturating_sub(self.size));
            if fitting == 0 && self.size > 0 {
                self.rotate();
                fitting = batch.fitting(first, self.limit.saturating_sub(self.size));
            }
            let records = first..first + fitting.max(1); // one that is larger than a file has one of its own
            let bytes = batch.bytes(records.clone()).len();
            first = records.end;
            if let Err(failed) = self.stream.write(batch, records) {
                // A full disk must not fill files, or the old ones would go to make room for
                // nothing.
                self.size += failed.written as u64;
                let lost = failed.lost + batch.len() - first;
                return Err(Failed { lost, ..failed });
            }
            self.size += bytes as u64;
        }
        self.tidy();
        Ok(())
    }

    fn rotate(&mut self) {
        let now = (self.clock)();
        match self.backups.set_aside(now).and_then(|backup| {
            open(&self.path).map_err(|error| {
                _ = fs::rename(&backup, &self.path); // else it goes on under the other name
                error.to_string()
            })
        }) {
            Ok(file) => {
                self.reopened(file);
                self.untidy = true;
            }
            Err(why) => {
                self.limit = self.size.saturating_add(self.max_size);
                self.complaints.trouble(&format!(
                    "warning: the log file `{}` is not replaced and grows on: {why}",
                    self.path.display()
                ));
            }
        }
    }

    /// Starts the tidying thread when there is something to do, one at a time.
    fn tidy(&mut self) {
        if !self.untidy || self.tidying.as_ref().is_some_and(|t| !t.is_finished()) {
            return;
        }
        self.untidy = false;
        let (backups, now) = (self.backups.clone(), (self.clock)());
        self.tidying = thread::Builder::new()
            .name("log-files".to_owned())
            .spawn(move || backups.tidy(now))
            .ok(); // no thread to be had: the next rotation tries again
    }

    #[cfg(test)]
    pub(super) fn wait_until_tidy(mut self) {
        while self.untidy || self.tidying.is_some() {
            if let Some(thread) = self.tidying.take() {
                thread.join().expect("tidying does not panic");
            }
            self.tidy();
        }
    }
}

/// 0 for what has none.
fn size(file: &File) -> u64 {
    file.metadata().map_or(0, |metadata| metadata.len())
}
