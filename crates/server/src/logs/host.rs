//! What the logs need of their process. Tests bring their own.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::event::{PollFd, PollFlags, poll};

use super::format::Terminal;

pub(super) type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

pub(super) struct Host {
    pub(super) clock: Clock,
    pub(super) stdout: Standard,
    pub(super) stderr: Standard,
    /// Where names of files begin.
    pub(super) folder: PathBuf,
    /// Whether a terminal is given colours.
    pub(super) colours: bool,
    /// Whether Laravel Octane has started this process, and reads its records.
    pub(super) octane: bool,
    /// Writes a line where the operator may see it when an output fails.
    pub(super) complain: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Standard output or standard error.
pub(super) struct Standard {
    pub(super) out: Box<dyn Write + Send>,
    pub(super) identity: Identity,
    pub(super) is_terminal: bool,
    /// It leads to systemd's journal.
    pub(super) is_journal: bool,
}

/// Device and inode: one file, whatever its name.
pub(super) type Identity = (u64, u64);

impl Host {
    /// The process this code runs in.
    pub(super) fn here(folder: &Path) -> io::Result<Self> {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        Ok(Self {
            clock: Arc::new(SystemTime::now),
            stdout: Standard::of(io::stdout())?,
            stderr: Standard::of(io::stderr())?,
            folder: std::path::absolute(folder)?,
            colours: !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb"),
            octane: is_set("LARAVEL_OCTANE"),
            complain: Arc::new(|what| _ = writeln!(io::stderr(), "{what}")), // nobody left to tell
        })
    }

    pub(super) fn terminal(&self, is_terminal: bool) -> Option<Terminal> {
        is_terminal.then_some(Terminal {
            colours: self.colours,
        })
    }
}

impl Standard {
    pub(super) fn of(descriptor: impl AsFd) -> io::Result<Self> {
        let file = File::from(descriptor.as_fd().try_clone_to_owned()?);
        let identity = identity(&file)?;
        Ok(Self {
            is_journal: journal() == Some(identity),
            identity,
            is_terminal: file.is_terminal(),
            out: Box::new(Patient(file)),
        })
    }
}

/// The stream to the journal that systemd has opened for this process, `JOURNAL_STREAM`. What a
/// parent has opened for itself is another file.
fn journal() -> Option<Identity> {
    let stream = env::var("JOURNAL_STREAM").ok()?;
    let (device, inode) = stream.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

pub(super) fn identity(file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Waits where the descriptor would not: it is shared with whoever started the server, and they may
/// have set it so.
struct Patient(File);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)?;
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
