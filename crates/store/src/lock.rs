//! Keeps a second server away from a state directory, and from what processes of the first one
//! still have in hand.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use pronghorn_base::{lock, open_plain};

use crate::error::OpenError;
use crate::folder;

/// Held for as long as the store is open or something else there is claimed; the kernel gives it up
/// when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    directory: PathBuf,
    _file: File,
}

impl Lock {
    /// The file stays where it is: to remove it would let two processes lock two files of one name.
    fn take(directory: &Path) -> Result<Self, OpenError> {
        let (path, opened) = open(directory, "lock", true);
        let mut file = opened.map_err(|source| OpenError::io(&path, source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse {
                    folder: directory.to_owned(),
                    process: holder(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(OpenError::io(&path, source)),
        }
        let written = write_number(&mut file);
        written.map_err(|source| OpenError::io(&path, source))?;
        Ok(Self {
            directory: directory.to_owned(),
            _file: file,
        })
    }

    /// To be taken before the lock is given up.
    pub(crate) fn lend(&self) -> io::Result<Lent> {
        let file = open(&self.directory, LENT, true).1?;
        // The others share it; who only looks has it for a moment.
        file.lock_shared()?;
        Ok(Lent { _file: file })
    }
}

/// Held by each process that has handed over its store, until none of its workers is at something
/// that it has given out. In any chain of processes, and after the end of any of them, it says
/// whether what was given out may be given out again: no connection does.
#[derive(Debug)]
pub(crate) struct Lent {
    _file: File,
}

const LENT: &str = "lent";

fn open(directory: &Path, suffix: &str, create: bool) -> (PathBuf, io::Result<File>) {
    let path = folder::file(directory, suffix);
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(create)
        .truncate(false);
    let opened = open_plain(&path, options.mode(0o600));
    (path, opened)
}

/// Whether a process still has in hand what it has given out before it handed over its store.
/// Certain only for who knows that none is about to hand over.
pub(crate) fn is_lent(directory: &Path) -> bool {
    let file = match open(directory, LENT, false).1 {
        Ok(file) => file,
        // No upgrade has needed it.
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    !matches!(file.try_lock(), Ok(()))
}

/// The lock for all of this process that need it: it is free once the last one has dropped it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedLock(Arc<Mutex<Weak<Lock>>>);

impl SharedLock {
    pub(crate) fn take(&self, directory: &Path) -> Result<Arc<Lock>, OpenError> {
        let mut known = lock(&self.0);
        if let Some(taken) = known.upgrade() {
            return Ok(taken);
        }
        let taken = Arc::new(Lock::take(directory)?);
        *known = Arc::downgrade(&taken);
        Ok(taken)
    }
}

fn write_number(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// The other process may be just about to write it, which takes as long as its disk.
#[expect(
    clippy::disallowed_methods,
    reason = "who opens a store waits for a disk, on a thread for that"
)]
fn holder(file: &mut File) -> Option<u32> {
    const TRIES: usize = 10;
    const NEXT_TRY: Duration = Duration::from_millis(20);
    for _ in 1..TRIES {
        if let Some(number) = number_in(file) {
            return Some(number);
        }
        thread::sleep(NEXT_TRY);
        file.rewind().ok()?;
    }
    number_in(file)
}

fn number_in(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    // Longer than any number; what somebody else wrote there is no number.
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
