//! A running child: its number, its end, its signals.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, WaitIdStatus};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::reap;

/// Signals that the server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Kill,
}

impl Signal {
    const fn number(self) -> rustix::process::Signal {
        match self {
            Self::Terminate => rustix::process::Signal::TERM,
            Self::Kill => rustix::process::Signal::KILL,
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => match signal_name(number) {
                Some(name) => write!(f, "signal {number} ({name})"),
                None => write!(f, "signal {number}"),
            },
        }
    }
}

/// Names of the signals that end PHP in practice; the numbers are those of x86-64 and arm64.
fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// A child that was spawned and not yet waited for.
///
/// Dropped while it runs, it is killed with its process group, unless it was [released](Self::release).
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    /// Becomes readable at the end, and stays so.
    end: AsyncFd<OwnedFd>,
    exit: Option<Exit>,
    /// Lives on when this value is dropped.
    released: bool,
}

impl Process {
    /// Takes over a child of this process. Must be called within a tokio runtime with I/O, which then watches it.
    pub(crate) fn adopt(pid: Pid, end: OwnedFd) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "the only way that tokio offers")]
        // SAFETY: an `OwnedFd` is open and stays the same file as long as it lives, and it lives as long as the AsyncFd.
        let end = unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) }?;
        Ok(Self {
            pid,
            end,
            exit: None,
            released: false,
        })
    }

    /// Something that becomes readable when this child ends: its pidfd; or, where the kernel has none or a sandbox forbids
    /// them, a pipe that a thread of its own closes.
    pub(crate) fn watch(pid: Pid) -> io::Result<OwnedFd> {
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(pidfd),
            Err(Errno::NOSYS | Errno::PERM) => {
                let (reader, writer) = io::pipe()?;
                std::thread::Builder::new()
                    .name(format!("watch-{pid:?}"))
                    .spawn(move || {
                        // Without reaping: that is the owner's. Fails only when there is no such child, which is an end too.
                        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                        _ = rustix::process::waitid(WaitId::Pid(pid), ended);
                        drop(writer);
                    })?;
                Ok(reader.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The process's number; its own as long as this value lives.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits for the end and reaps. Cancel safe; after the end it answers at once.
    pub async fn wait(&mut self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.try_wait()? {
                return Ok(exit);
            }
            self.end.readable().await?.retain_ready();
        }
    }

    /// The end, if it has come.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none() {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            if let Some(status) = rustix::process::waitid(WaitId::Pid(self.pid), options)? {
                self.exit = Some(exit_of(&status));
                reap::forget(self.pid);
            }
        }
        Ok(self.exit)
    }

    /// Signals the process alone. A process that has ended is no error.
    pub fn signal(&self, signal: Signal) {
        if self.exit.is_none() {
            // Not yet reaped, so the number is still its own, and the only failure is "has ended".
            _ = rustix::process::kill_process(self.pid, signal.number());
        }
    }

    /// Lets it live on without an owner; whoever is its parent reaps it.
    pub fn release(mut self) {
        self.released = true;
    }

    /// Kills the process and what it started in its process group.
    pub fn kill_group(&self) {
        if self.exit.is_none() {
            // As above, for the group's number.
            _ = rustix::process::kill_process_group(self.pid, rustix::process::Signal::KILL);
        }
        self.signal(Signal::Kill);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.released {
            self.kill_group();
        }
        if self.exit.is_none() {
            // From now on it is an orphan like any other, for `reap_orphans`.
            reap::forget(self.pid);
        }
    }
}

fn exit_of(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => unreachable!("only ended processes are waited for"),
    }
}
