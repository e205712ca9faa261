//! A running child: its number, its end, its signals.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::{NamedSignal, Overtaking, reap, signals};

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
            Self::Signal(number) => match signals::name(number) {
                Some(name) => write!(f, "signal {number} (SIG{name})"),
                None => write!(f, "signal {number}"),
            },
        }
    }
}

/// A child that was spawned and not yet waited for.
///
/// Dropped while it runs, it is killed with its process group, unless it was
/// [released](Self::release).
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    /// Becomes readable at the end, and stays so.
    end: AsyncFd<OwnedFd>,
    exit: Option<Exit>,
    peak_memory: Option<u64>,
    cpu: Option<Duration>,
    /// Lives on when this value is dropped.
    released: bool,
}

impl Process {
    /// Takes over a child of this process. Must be called within a tokio runtime with I/O, which
    /// then watches it.
    pub(crate) fn adopt(pid: Pid, end: OwnedFd) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "the only way that tokio offers")]
        // SAFETY: an `OwnedFd` is open and stays the same file as long as it lives, and it lives as
        // long as the AsyncFd.
        let end = unsafe { AsyncFd::register_with_interest(end, Interest::READABLE) }?;
        Ok(Self {
            pid,
            end,
            exit: None,
            peak_memory: None,
            cpu: None,
            released: false,
        })
    }

    /// Something that becomes readable when this child ends: its pidfd; or, where the kernel has
    /// none or a sandbox forbids them, a pipe that a thread of its own closes.
    pub(crate) fn watch(pid: Pid) -> io::Result<OwnedFd> {
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(pidfd),
            Err(Errno::NOSYS | Errno::PERM) => {
                let (reader, writer) = io::pipe()?;
                std::thread::Builder::new()
                    .name(format!("watch-{pid:?}"))
                    .spawn(move || {
                        // Without reaping: that is the owner's. Fails only when there is no such
                        // child, which is an end too.
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
            // A debugger sees the end first and holds it back. When it lets go, there is another
            // event: as long, this is no reason to look again and again.
            self.end.readable().await?.clear_ready();
        }
    }

    /// Waits for the end without reaping: until that is done, the process's number, and its
    /// group's, stay its own.
    pub fn poll_exit(&self, cx: &mut Context<'_>) -> Poll<io::Result<Exit>> {
        loop {
            if let Some(exit) = self.exit {
                return Poll::Ready(Ok(exit));
            }
            let mut ended = std::task::ready!(self.end.poll_read_ready(cx))?;
            if let Some(exit) = look(self.pid)? {
                return Poll::Ready(Ok(exit));
            }
            ended.clear_ready();
        }
    }

    /// As [`wait`](Self::wait); what it started in its process group is killed with it.
    pub async fn wait_with_group(&mut self) -> io::Result<Exit> {
        // As long as it is not reaped, the group's number can't be anybody else's.
        std::future::poll_fn(|cx| self.poll_exit(cx)).await?;
        self.signal_group(Signal::Kill);
        self.wait().await
    }

    /// The end, if it has come.
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        if self.exit.is_none()
            && let Some(Reaped {
                exit,
                peak_memory,
                cpu,
            }) = reap(self.pid)?
        {
            self.exit = Some(exit);
            (self.peak_memory, self.cpu) = (Some(peak_memory), Some(cpu));
            reap::forget(self.pid);
        }
        Ok(self.exit)
    }

    /// After the end: the most resident memory that it, or a child it waited for, ever had, in
    /// bytes. What this process had when it spawned the child is a lower bound: the kernel counts
    /// from the fork on.
    pub const fn peak_memory(&self) -> Option<u64> {
        self.peak_memory
    }

    /// After the end: the processor time that it, and the children it waited for, have taken.
    pub const fn cpu(&self) -> Option<Duration> {
        self.cpu
    }

    /// Signals the process alone. A process that has ended is no error.
    pub fn signal(&self, signal: Signal) {
        if self.exit.is_none() {
            // Not yet reaped, so the number is still its own, and the only failure is "has ended".
            _ = rustix::process::kill_process(self.pid, signal.number());
        }
    }

    /// The same with any signal.
    pub fn send(&self, signal: NamedSignal) {
        if self.exit.is_none() {
            // As above.
            _ = rustix::process::kill_process(self.pid, signal.0);
        }
    }

    /// Sends any signal to the process and to what it started in its process group.
    pub fn send_to_group(&self, signal: NamedSignal) {
        if self.exit.is_none() {
            // As above, for the group's number.
            _ = rustix::process::kill_process_group(self.pid, signal.0);
        }
    }

    /// Sends a signal with a number, which its handler gets. A process that has ended is no error.
    pub fn signal_with(&self, signal: i32, number: u32) {
        if self.exit.is_none() {
            let pid = self.pid.as_raw_nonzero().get();
            let value = libc::sigval {
                sival_ptr: std::ptr::without_provenance_mut(number as usize),
            };
            #[expect(unsafe_code, reason = "neither rustix nor nix has sigqueue")]
            // SAFETY: takes numbers; the value is not looked at on the way, and the handler takes
            // it for a number. Not yet reaped, so the process's number is still its own.
            let _ended = unsafe { libc::sigqueue(pid, signal, value) };
        }
    }

    /// Raises its priority as long as what is returned lives, and not that of what it starts. Only
    /// where it [may](crate::may_overtake).
    pub fn overtake(&self) -> Overtaking {
        Overtaking::begin(self.pid)
    }

    /// The same, with what it forks meanwhile.
    pub fn overtake_with_forks(&self) -> Overtaking {
        Overtaking::with_forks(self.pid)
    }

    /// Lets it live on without an owner; whoever is its parent reaps it. What is returned is ready
    /// when it has ended, for who waits for that.
    pub fn release(mut self) -> impl Future<Output = ()> + Send {
        self.released = true;
        async move {
            _ = self.wait().await; // an error says that it can't be waited for: it is gone
        }
    }

    /// Signals the process and what it started in its process group.
    pub fn signal_group(&self, signal: Signal) {
        if self.exit.is_none() {
            // As above, for the group's number.
            _ = rustix::process::kill_process_group(self.pid, signal.number());
        }
    }

    /// Kills the process and what it started in its process group.
    pub fn kill_group(&self) {
        self.signal_group(Signal::Kill);
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

/// How a child has ended, which is not reaped by that. None while it runs.
fn look(pid: Pid) -> io::Result<Option<Exit>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let Some(status) = rustix::process::waitid(WaitId::Pid(pid), options)? else {
        return Ok(None);
    };
    Ok(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(Exit::Code(code)),
        (None, Some(signal)) => Some(Exit::Signal(signal)),
        (None, None) => None,
    })
}

/// A child after its end.
struct Reaped {
    exit: Exit,
    /// In bytes.
    peak_memory: u64,
    cpu: Duration,
}

/// Reaps a child that has ended. None while it runs.
fn reap(pid: Pid) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    let mut usage = MaybeUninit::zeroed();
    #[expect(unsafe_code, reason = "neither rustix nor nix has wait4")]
    // SAFETY: both pointers are valid for writes of their types for as long as the call takes.
    let reaped = unsafe {
        let pid = pid.as_raw_nonzero().get();
        libc::wait4(pid, &raw mut status, libc::WNOHANG, usage.as_mut_ptr())
    };
    match reaped {
        0 => return Ok(None),
        ..0 => return Err(io::Error::last_os_error()),
        1.. => {}
    }
    #[expect(unsafe_code, reason = "as above")]
    // SAFETY: a struct of numbers, for which all zeros is a value, too.
    let usage: libc::rusage = unsafe { usage.assume_init() };
    let status = ExitStatus::from_raw(status);
    let exit = match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => unreachable!("only ended processes are waited for"),
    };
    let kilobytes = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Ok(Some(Reaped {
        exit,
        peak_memory: kilobytes * 1024,
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
    }))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}
