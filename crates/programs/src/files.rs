//! Files for what programs say. A thread writes them: a slow disk holds up nobody.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use pronghorn_base::{LogThrottle, kind_of};
use rustix::fs::{Access, OFlags, access, major, minor};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::LOG;

/// Lines that wait for the disk; each is 8 KB at most. Who has more to write waits.
const WAITING: usize = 512;
/// Beyond them, room for a line of each process whose reader did not have to wait a moment before.
const MORE: usize = 2_048;
/// The server's user writes, its group reads.
const MODE: u32 = 0o640;

/// The thread. Ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    entries: SyncSender<LogEntry>,
    room: Arc<Semaphore>,
}

/// One file of it.
#[derive(Clone, Debug)]
pub(crate) struct LogFile {
    writer: Writer,
    file: Arc<FilePlace>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FilePlace {
    /// The name of the program that writes to it.
    pub(crate) program: String,
    pub(crate) path: PathBuf,
    /// In bytes, at which a new one begins.
    pub(crate) max_size: u64,
    /// Old ones that are kept.
    pub(crate) backups: u32,
}

/// Why lines can't be written to a file, for the operator. The texts follow its name and a comma.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    #[error("whose directory `{}` is not there", .0.display())]
    NoDirectory(PathBuf),
    #[error("which is the server's own output")]
    OwnOutput,
    #[error("which is {0}, not a file")]
    NoFile(&'static str),
    #[error("which can't be written: {0}")]
    Io(#[from] io::Error),
}

struct LogEntry {
    file: Arc<FilePlace>,
    line: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl Writer {
    pub(crate) fn start() -> io::Result<Self> {
        let (writer, entries) = sync_channel(WAITING + MORE);
        thread::Builder::new()
            .name("program-logs".into())
            .spawn(move || write_all(&entries))?;
        Ok(Self {
            entries: writer,
            room: Arc::new(Semaphore::new(WAITING)),
        })
    }

    /// # Errors
    ///
    /// When the file can't be opened.
    pub(crate) fn open(&self, place: FilePlace) -> Result<LogFile, FileError> {
        open(&place.path)?;
        Ok(LogFile {
            writer: self.clone(),
            file: Arc::new(place),
        })
    }
}

impl LogFile {
    /// Waits until the disk has caught up.
    pub(crate) async fn has_room(&self) {
        let room = self.writer.room.acquire().await;
        drop(room); // an error says that the thread has ended: nothing is written any more
    }

    /// Never waits: what goes beyond all room is left out, and a record says so.
    pub(crate) fn write(&self, line: &[u8]) {
        static LEFT_OUT: LogThrottle = LogThrottle::new();
        let entry = LogEntry {
            file: self.file.clone(),
            line: line.to_vec(),
            _room: self.writer.room.clone().try_acquire_owned().ok(),
        };
        if let Err(TrySendError::Full(entry)) = self.writer.entries.try_send(entry)
            && let Some(lines) = LEFT_OUT.should_log()
        {
            let (program, file) = (&*entry.file.program, entry.file.path.display());
            tracing::warn!(target: LOG, program, lines, "lines are left out of `{file}`: the disk is too slow for them");
        }
    }
}

struct Opened {
    file: File,
    size: u64,
    /// Whether it is rotated when it is full; `/dev/null` is not.
    is_file: bool,
}

fn write_all(entries: &Receiver<LogEntry>) {
    let mut opened: HashMap<PathBuf, Opened> = HashMap::new();
    while let Ok(LogEntry { file, line, _room }) = entries.recv() {
        let written = write(&mut opened, &file, &line);
        if let Err(error) = written {
            static TROUBLE: LogThrottle = LogThrottle::new();
            if let Some(lines) = TROUBLE.should_log() {
                let (program, path) = (&*file.program, file.path.display());
                tracing::error!(target: LOG, program, lines, "lines are lost: they go to `{path}`, {error}");
            }
            opened.remove(&file.path);
        }
    }
}

fn write(
    opened: &mut HashMap<PathBuf, Opened>,
    place: &FilePlace,
    line: &[u8],
) -> Result<(), FileError> {
    let FilePlace { path, .. } = place;
    // Somebody may have moved it away, as logrotate does.
    if let Some(known) = opened.get(path)
        && !is_there(path, &known.file)
    {
        opened.remove(path);
    }
    let is_full = |known: &Opened| {
        known.is_file && known.size > 0 && known.size + line.len() as u64 > place.max_size
    };
    if opened.get(path).is_some_and(is_full) {
        opened.remove(path);
        rotate(path, place.backups)?;
    }
    if !opened.contains_key(path) {
        let file = open(path)?;
        let metadata = file.metadata()?;
        let (size, is_file) = (metadata.len(), metadata.is_file());
        let new = Opened {
            file,
            size,
            is_file,
        };
        opened.insert(path.clone(), new);
    }
    let Some(known) = opened.get_mut(path) else {
        return Ok(()); // it was put there above
    };
    known.file.write_all(line)?;
    known.size += line.len() as u64;
    Ok(())
}

fn is_there(path: &Path, file: &File) -> bool {
    let place = |it: io::Result<std::fs::Metadata>| it.ok().map(|it| (it.dev(), it.ino()));
    place(path.metadata()) == place(file.metadata())
}

fn open(path: &Path) -> Result<File, FileError> {
    kind(path)?;
    // A link in place of the file would have the server append to any file that it may write, and a
    // pipe without a reader would hold it up.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE);
    let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
    opened.map_err(|source| FileError::of(path, source))
}

/// Whether lines can be written to a file. Does not create it.
///
/// # Errors
///
/// Why they can't.
pub(crate) fn judge(path: &Path) -> Result<(), FileError> {
    let refused = |source| FileError::of(path, source);
    if kind(path)? == Kind::Missing {
        let directory = path.parent().unwrap_or_else(|| Path::new("/"));
        let is_directory = directory.metadata().map_err(refused)?.is_dir();
        if !is_directory {
            return Err(refused(io::ErrorKind::NotADirectory.into()));
        }
        let allowed = access(directory, Access::WRITE_OK | Access::EXEC_OK);
        return allowed.map_err(|error| refused(error.into()));
    }
    access(path, Access::WRITE_OK).map_err(|error| refused(error.into()))
}

/// A thing in the place of a file that takes lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Missing,
    File,
    /// `/dev/null`.
    Null,
}

fn kind(path: &Path) -> Result<Kind, FileError> {
    const NULL: (u32, u32) = (1, 3);
    let Ok(found) = path.symlink_metadata() else {
        return Ok(Kind::Missing);
    };
    let device = (major(found.rdev()), minor(found.rdev()));
    match kind_of(found.file_type()) {
        None => Ok(Kind::File),
        Some(_) if found.file_type().is_char_device() && device == NULL => Ok(Kind::Null),
        Some(_) if is_own_output(path) => Err(FileError::OwnOutput),
        Some(other) => Err(FileError::NoFile(other)),
    }
}

/// Names of the server's own output: its log, that of a terminal or a pipe.
fn is_own_output(path: &Path) -> bool {
    let own = ["/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/console"];
    own.iter().any(|own| path == Path::new(own))
        || ["/dev/fd", "/proc/self/fd"]
            .iter()
            .any(|own| path.starts_with(own))
}

impl FileError {
    fn of(path: &Path, source: io::Error) -> Self {
        let directory = path.parent().unwrap_or_else(|| Path::new("/"));
        match source.kind() {
            io::ErrorKind::NotFound => Self::NoDirectory(directory.to_owned()),
            _ => Self::Io(source),
        }
    }

    /// The way out, for the operator.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::NoDirectory(_) => "create the directory, or name a file in another one",
            Self::OwnOutput | Self::NoFile(_) => {
                "name a file, or remove `output`: then the lines are records of the server's log"
            }
            Self::Io(_) => {
                "the server's user writes the file: give it the permission, or name another file"
            }
        }
    }

    /// Whether another user might write it.
    pub(crate) const fn is_about_user(&self) -> bool {
        matches!(self, Self::Io(_))
    }
}

/// `a.log` becomes `a.log.1`, that one `a.log.2`, and the last one goes.
fn rotate(path: &Path, backups: u32) -> io::Result<()> {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    if backups == 0 {
        return std::fs::remove_file(path);
    }
    for number in (1..backups).rev() {
        match std::fs::rename(name(number), name(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::rename(path, name(1))
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::{Directory, wait_for};

    use super::*;

    #[test]
    fn a_file_that_is_full_becomes_an_old_one() {
        let directory = Directory::new();
        let writer = Writer::start().unwrap();
        let place = |backups| FilePlace {
            program: "a".to_owned(),
            path: directory.join("a.log"),
            max_size: 10,
            backups,
        };
        let file = writer.open(place(2)).unwrap();
        for line in [
            "one\n",
            "two\n",
            "three\n",
            "four\n",
            "longer than a file\n",
            "last\n",
        ] {
            file.write(line.as_bytes());
        }
        wait_for("the last line", || {
            (directory.read("a.log") == "last\n").then_some(())
        });
        assert_eq!(directory.read("a.log.1"), "longer than a file\n");
        assert_eq!(directory.read("a.log.2"), "three\nfour\n".get(6..).unwrap());
        assert!(!directory.join("a.log.3").exists());
    }

    #[test]
    fn check_and_start_refuse_the_same_files() {
        let directory = Directory::with(&[("there", ""), ("place/x", "")]);
        std::os::unix::fs::symlink(directory.join("there"), directory.join("link")).unwrap();
        let fifo = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, directory.join("pipe"), fifo, mode, 0).unwrap();
        let no_directory = format!(
            "whose directory `{}` is not there",
            directory.join("no").display()
        );
        let kind = directory.metadata().unwrap().file_type();
        let of_directory = format!("which is {}, not a file", kind_of(kind).unwrap());
        for (path, expected) in [
            ("there", None),
            ("new", None),
            ("/dev/null", None),
            ("no/new", Some(&*no_directory)),
            ("place", Some(&*of_directory)),
            ("link", Some("which is a symbolic link, not a file")),
            ("pipe", Some("which is a named pipe, not a file")),
            ("/dev/zero", Some("which is a device, not a file")),
            ("/dev/stdout", Some("which is the server's own output")),
            ("/proc/self/fd/1", Some("which is the server's own output")),
        ] {
            let path = directory.join(path);
            let judged = judge(&path).err().map(|why| why.to_string());
            assert_eq!(judged.as_deref(), expected, "{}", path.display());
            let opened = open(&path).err().map(|why| why.to_string());
            assert_eq!(opened, judged, "{}", path.display());
        }
        let through_file = judge(&directory.join("there/new")).unwrap_err();
        assert!(
            through_file
                .to_string()
                .starts_with("which can't be written: ")
        );
    }

    /// As root, `/dev/null` would be moved away.
    #[test]
    fn a_device_is_never_full() {
        let place = FilePlace {
            program: "a".to_owned(),
            path: "/dev/null".into(),
            max_size: 1,
            backups: 0,
        };
        let mut opened = HashMap::new();
        for _ in 0..3 {
            write(&mut opened, &place, b"one\n").unwrap();
        }
        assert!(!opened[&place.path].is_file && Path::new("/dev/null").exists());
    }

    #[test]
    fn a_file_that_was_moved_away_begins_anew() {
        let directory = Directory::new();
        let place = FilePlace {
            program: "a".to_owned(),
            path: directory.join("a.log"),
            max_size: 1000,
            backups: 1,
        };
        let mut opened = HashMap::new();
        write(&mut opened, &place, b"one\n").unwrap();
        std::fs::rename(&place.path, directory.join("moved")).unwrap();
        write(&mut opened, &place, b"two\n").unwrap();
        assert_eq!(directory.read("moved"), "one\n");
        assert_eq!(directory.read("a.log"), "two\n");
        std::fs::remove_file(&place.path).unwrap();
        std::os::unix::fs::symlink(directory.join("moved"), &place.path).unwrap();
        write(&mut opened, &place, b"three\n").unwrap_err();
        assert_eq!(directory.read("moved"), "one\n");
    }
}
