//! Old log files: their names, which are kept, and their compression.
//!
//! `app.log` becomes `app-2026-11-21T19-26-15.123.log`, then `app-2026-11-21T19-26-15.123.log.gz`:
//! RoadRunner's names, so that its files are counted too. Nothing with another name is ever
//! touched.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::OFlags;

use super::complaints::Complaints;
use super::file::FILE_MODE;
use super::time::Moment;
use crate::settings::FileLog;

const DAY: u64 = 24 * 60 * 60;

/// A time stamp, each digit as `0`.
const STAMP: &str = "0000-00-00T00-00-00.000";

/// Ends the name of a compressed file.
const COMPRESSED: &str = ".gz";
/// Ends the name of one that is being written. Left over when the server ended meanwhile.
const UNFINISHED: &str = ".gz.part";

/// The old files of one log file.
pub(super) struct Backups {
    folder: PathBuf,
    path: PathBuf,
    /// The file's name without and with its ending.
    stem: String,
    ending: String,
    max_age: Duration,
    max_backups: usize,
    compress: bool,
    complaints: Arc<Complaints>,
}

impl Backups {
    pub(super) fn new(path: PathBuf, log: &FileLog, complaints: Arc<Complaints>) -> Self {
        let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        Self {
            folder: path.parent().map_or_else(|| "/".into(), Path::to_owned),
            stem: text(path.file_stem()),
            ending: path.extension().map_or_else(String::new, |ending| {
                format!(".{}", ending.to_string_lossy())
            }),
            path,
            max_age: Duration::from_secs(DAY * u64::from(log.max_age)),
            max_backups: log.max_backups as usize,
            compress: log.compress,
            complaints,
        }
    }

    /// Gives the file the name of an old one.
    pub(super) fn set_aside(&self, now: SystemTime) -> Result<PathBuf, String> {
        // Another one has the name only if the clock was set back, or two were filled in one
        // millisecond.
        let backup = (0..1000)
            .map(|later| self.backup(now + Duration::from_millis(later)))
            .find(|backup| fs::symlink_metadata(backup).is_err())
            .ok_or_else(|| "all names for the old one are taken".to_owned())?;
        match fs::rename(&self.path, &backup) {
            Ok(()) => Ok(backup),
            Err(error) => Err(format!(
                "cannot rename it to `{}`: {error}",
                backup.display()
            )),
        }
    }

    fn backup(&self, time: SystemTime) -> PathBuf {
        let stamp = Moment::of(time).stamp();
        self.folder
            .join(format!("{}-{stamp}{}", self.stem, self.ending))
    }

    /// Removes what is too old or too much, and compresses the rest if that is wanted.
    pub(super) fn tidy(&self, now: SystemTime) {
        let oldest = Moment::of(now.checked_sub(self.max_age).unwrap_or(now)).stamp();
        let mut stamps = match self.stamps() {
            Ok(stamps) => stamps,
            Err(error) => return self.failed("list the folder", &self.folder, &error),
        };
        stamps.sort_unstable();
        stamps.dedup(); // both forms are there when a server ended in between
        for (newer, stamp) in stamps.iter().rev().enumerate() {
            let plain = self
                .folder
                .join(format!("{}-{stamp}{}", self.stem, self.ending));
            let compressed = with(&plain, COMPRESSED);
            self.remove(&with(&plain, UNFINISHED));
            if newer >= self.max_backups || *stamp < oldest {
                self.remove(&plain);
                self.remove(&compressed);
            } else if self.compress && plain.exists() {
                self.compress(&plain, &compressed);
            }
        }
    }

    /// Of all old files, compressed or not.
    fn stamps(&self) -> io::Result<Vec<String>> {
        let mut stamps = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let stamp = name.to_str().and_then(|name| {
                let stamp = name.strip_prefix(&self.stem)?.strip_prefix('-')?;
                let (stamp, ending) = stamp.split_at_checked(STAMP.len())?;
                let ending = ending.strip_prefix(&self.ending)?;
                let ours = is_stamp(stamp) && ["", COMPRESSED, UNFINISHED].contains(&ending);
                ours.then(|| stamp.to_owned())
            });
            stamps.extend(stamp);
        }
        Ok(stamps)
    }

    /// The old one is removed when the new one is complete and on the disk.
    fn compress(&self, plain: &Path, compressed: &Path) {
        let unfinished = with(plain, UNFINISHED);
        let attempt = || {
            let target = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(FILE_MODE)
                .open(&unfinished)?;
            let mut encoder = GzEncoder::new(target, Compression::default());
            io::copy(&mut plain_file(plain)?, &mut encoder)?;
            encoder.finish()?.sync_all()?;
            fs::rename(&unfinished, compressed)
        };
        match attempt() {
            Ok(()) => self.remove(plain),
            Err(error) => {
                self.failed("compress", plain, &error);
                self.remove(&unfinished);
            }
        }
    }

    fn remove(&self, path: &Path) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.failed("remove", path, &error);
            }
            _ => {}
        }
    }

    fn failed(&self, what: &str, path: &Path, error: &io::Error) {
        self.complaints.trouble(&format!(
            "warning: old log files: cannot {what} `{}`: {error}",
            path.display()
        ));
    }
}

/// Whoever may write in the folder can give such a name to a link, whose target would be copied, or
/// to a pipe.
fn plain_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags.bits().cast_signed());
    let file = file.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(file)
}

fn is_stamp(text: &str) -> bool {
    text.len() == STAMP.len()
        && text.chars().zip(STAMP.chars()).all(|(c, form)| match form {
            '0' => c.is_ascii_digit(),
            form => c == form,
        })
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}
