//! Old log files: their names, which are kept, and their compression.
//!
//! `app.log` becomes `app-2026-11-21T19-26-15.123.log`, then `app-2026-11-21T19-26-15.123.log.gz`:
//! RoadRunner's names, so that its files are counted too. Nothing with another name is ever
//! touched. Each is known by a name in a directory that is open: the directory's own name may lead
//! elsewhere meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use pronghorn_base::TrustedPlace;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::complaints::Complaints;
use super::file::{FILE_MODE, place};
use super::time::Moment;
use crate::settings::FileLog;

const DAY: u64 = 24 * 60 * 60;

/// How many milliseconds the name of an old file may be ahead of the clock.
const MOST_AHEAD: u64 = 1000;

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
    pub(super) fn set_aside(&self, now: SystemTime) -> Result<Aside, String> {
        let place = place(&self.path).map_err(|error| error.to_string())?;
        let is_free = |name: &String| {
            let found = statat(&place.directory, name, AtFlags::SYMLINK_NOFOLLOW);
            found.is_err()
        };
        // Another one has the name only if the clock was set back, or two were filled in one
        // millisecond.
        let backup = (0..MOST_AHEAD)
            .map(|later| self.backup(now + Duration::from_millis(later)))
            .find(is_free)
            .ok_or_else(|| "all names for the old one are taken".to_owned())?;
        let at = &place.directory;
        match renameat(at, &place.name, at, &backup) {
            Ok(()) => Ok(Aside { place, backup }),
            Err(error) => Err(format!(
                "cannot rename it to `{}`: {}",
                self.folder.join(backup).display(),
                io::Error::from(error)
            )),
        }
    }

    fn backup(&self, time: SystemTime) -> String {
        self.name(&Moment::of(time).stamp())
    }

    fn name(&self, stamp: &str) -> String {
        format!("{}-{stamp}{}", self.stem, self.ending)
    }

    /// Removes what is too old or too much, and compresses the rest if that is wanted.
    ///
    /// A name that lies in the future is of a clock that was wrong. Its file is older than one that
    /// was set aside just now, so such files are the first to go where there are too many. Else
    /// they would take the places of all that come until then.
    pub(super) fn tidy(&self, now: SystemTime) {
        let oldest = Moment::of(now.checked_sub(self.max_age).unwrap_or(now)).stamp();
        let newest = Moment::of(now + Duration::from_millis(MOST_AHEAD)).stamp();
        let found = place(&self.path).and_then(|place| {
            let stamps = self.stamps(&place.directory)?;
            Ok((place.directory, stamps))
        });
        let (at, mut stamps) = match found {
            Ok(found) => found,
            Err(error) => return self.failed("list the folder", &self.folder, &error),
        };
        stamps.sort_unstable_by(|one, other| {
            let is_past = |stamp: &String| *stamp <= newest;
            (is_past(one), one).cmp(&(is_past(other), other))
        });
        stamps.dedup(); // both forms are there when a server ended in between
        for (newer, stamp) in stamps.iter().rev().enumerate() {
            let plain = self.name(stamp);
            let compressed = format!("{plain}{COMPRESSED}");
            self.remove(&at, &format!("{plain}{UNFINISHED}"));
            if newer >= self.max_backups || *stamp < oldest {
                self.remove(&at, &plain);
                self.remove(&at, &compressed);
            } else if self.compress && statat(&at, &plain, AtFlags::empty()).is_ok() {
                self.compress(&at, &plain, &compressed);
            }
        }
    }

    /// Of all old files, compressed or not.
    fn stamps(&self, at: &OwnedFd) -> io::Result<Vec<String>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut stamps = Vec::new();
        for entry in Dir::new(openat(at, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let stamp = entry.file_name().to_str().ok().and_then(|name| {
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
    fn compress(&self, at: &OwnedFd, plain: &str, compressed: &str) {
        let unfinished = format!("{plain}{UNFINISHED}");
        let attempt = || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let target = openat(at, &unfinished, flags, Mode::from_raw_mode(FILE_MODE))?;
            let mut encoder = GzEncoder::new(File::from(target), Compression::default());
            io::copy(&mut plain_file(at, plain)?, &mut encoder)?;
            encoder.finish()?.sync_all()?;
            Ok(renameat(at, &unfinished, at, compressed)?)
        };
        match attempt() {
            Ok(()) => self.remove(at, plain),
            Err(error) => {
                self.failed("compress", &self.folder.join(plain), &error);
                self.remove(at, &unfinished);
            }
        }
    }

    fn remove(&self, at: &OwnedFd, name: &str) {
        match unlinkat(at, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => self.failed("remove", &self.folder.join(name), &error.into()),
        }
    }

    fn failed(&self, what: &str, path: &Path, error: &io::Error) {
        self.complaints.trouble(&format!(
            "warning: old log files: cannot {what} `{}`: {error}",
            path.display()
        ));
    }
}

/// A file that has the name of an old one.
pub(super) struct Aside {
    place: TrustedPlace,
    backup: String,
}

impl Aside {
    /// Gives it its own name again.
    pub(super) fn take_back(&self) {
        let at = &self.place.directory;
        _ = renameat(at, &self.backup, at, &self.place.name); // the error before matters more
    }
}

/// Whoever may write in the folder can give such a name to a link, whose target would be copied, or
/// to a pipe.
fn plain_file(at: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(at, name, flags, Mode::empty())?);
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
