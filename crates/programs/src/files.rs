//! Files for what programs say. A thread writes them: a slow disk holds up nobody.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;

use pronghorn_base::LogThrottle;
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
    pub(crate) fn open(&self, place: FilePlace) -> io::Result<LogFile> {
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
}

fn write_all(entries: &Receiver<LogEntry>) {
    let mut opened: HashMap<PathBuf, Opened> = HashMap::new();
    while let Ok(LogEntry { file, line, _room }) = entries.recv() {
        let written = write(&mut opened, &file, &line);
        if let Err(error) = written {
            static TROUBLE: LogThrottle = LogThrottle::new();
            if let Some(lines) = TROUBLE.should_log() {
                let (program, path) = (&*file.program, file.path.display());
                tracing::error!(target: LOG, program, lines, "`{path}` can't be written: {error}");
            }
            opened.remove(&file.path);
        }
    }
}

fn write(opened: &mut HashMap<PathBuf, Opened>, place: &FilePlace, line: &[u8]) -> io::Result<()> {
    let FilePlace { path, .. } = place;
    // Somebody may have moved it away, as logrotate does.
    if let Some(known) = opened.get(path)
        && !is_there(path, &known.file)
    {
        opened.remove(path);
    }
    let is_full =
        |known: &Opened| known.size > 0 && known.size + line.len() as u64 > place.max_size;
    if opened.get(path).is_some_and(is_full) {
        opened.remove(path);
        rotate(path, place.backups)?;
    }
    if !opened.contains_key(path) {
        let file = open(path)?;
        let size = file.metadata()?.len();
        opened.insert(path.clone(), Opened { file, size });
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

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // A link in place of the file would have the server append to any file that it may write.
    let no_links = i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let options = options.append(true).create(true).mode(MODE);
    options.custom_flags(no_links).open(path)
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
