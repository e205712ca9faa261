//! A log file: opened, appended to, and replaced by a new one when it has grown.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use pronghorn_base::{Trusted, TrustedPlace, begin_in};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, mkdirat};
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

/// Opens a file at its end; a relative path begins in `working`. Creates it, and its directory, if
/// that alone is missing.
///
/// Who may write in a directory on the way could let the server append to any file that it may
/// write: the walk goes over no stranger's link that leads elsewhere.
pub(super) fn open(working: &Path, path: &Path) -> Result<File, LogError> {
    let path = &*begin_in(working, path);
    let attempt = || -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let file = place(path)?.open(flags, FILE_MODE)?;
        // The start must not have waited for a named pipe's reader.
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
        Ok(file)
    };
    let opened = match (attempt(), path.parent()) {
        (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
            let made = place(above).and_then(|place| {
                let mode = Mode::from_raw_mode(FOLDER_MODE);
                Ok(mkdirat(&place.directory, &place.name, mode)?)
            });
            match made {
                Err(source) if source.kind() != io::ErrorKind::IsADirectory => {
                    return Err(LogError::Folder {
                        path: path.to_owned(),
                        folder: above.to_owned(),
                        source,
                    });
                }
                _ => attempt(),
            }
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

/// Where a log file is, or will be.
pub(super) fn place(path: &Path) -> io::Result<TrustedPlace> {
    Trusted::last_link_of_server().place(path)
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
        let path = place(path).map_or_else(|_| path.to_owned(), |place| place.path);
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
        match self.backups.set_aside(now).and_then(|aside| {
            open(Path::new("/"), &self.path).map_err(|error| {
                aside.take_back(); // else it goes on under the other name
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
