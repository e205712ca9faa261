//! A process that forks others on request, and what the two say to each other.
//!
//! A worker that it has forked is no child of it but of this process, which has to be told of
//! orphans ([`adopt_orphans`](crate::adopt_orphans)): so its end, its signals and its exit code are
//! those of any child. The other half is `ext/pronghorn/zygote.c`; what it says is looked at as
//! bytes of a stranger.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::process::Pid;
use thiserror::Error;

use crate::link::{Link, WatchedLink};
use crate::peer::users_of;
use crate::process::Process;
use crate::reap;

/// What is shown of an answer that makes no sense.
const SHOWN: usize = 100;
/// What is kept of the reason of one that refuses: it names files and addresses.
const REFUSAL: usize = 1200;

/// This process's end of the socket to a zygote. Closed, the zygote ends.
#[derive(Debug)]
pub struct Zygote(WatchedLink);

/// What a zygote says of itself before its first fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// A process that is forked has one, whatever the others were at.
    pub threads: usize,
    /// The name of one of the others; empty where there is none.
    pub thread: String,
    /// OPcache's JIT is on.
    pub has_jit: bool,
    /// It has answered what new workers would be asked, so they need not.
    pub is_warm: bool,
    /// The call by which the application got what belongs to one process and all forks would have:
    /// its number, or random numbers.
    pub own: Option<String>,
}

/// The first thing that a zygote says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Introduction {
    Ready(Facts),
    /// It must not be forked, and why: the application's words.
    Refuses(String),
}

/// Why there is no new process.
#[derive(Debug, Error)]
pub enum ForkError {
    /// It has ended, or is about to.
    #[error("it has closed its connection")]
    Closed,
    /// It is none, or one of another release.
    #[error("it sent `{0}`, which is not a valid answer")]
    Nonsense(String),
    /// Out of memory or of processes, in words of the system.
    #[error("it could not fork: {0}")]
    Refused(String),
    #[error("process {0}, which it has forked, is no child of this server and of its own user")]
    NotOurs(u32),
    #[error("its connection failed")]
    Io(#[from] io::Error),
}

impl Introduction {
    /// See [`Facts`].
    pub const fn is_warm(&self) -> bool {
        matches!(self, Self::Ready(facts) if facts.is_warm)
    }
}

impl ForkError {
    fn nonsense(said: &str) -> Self {
        let start: String = said.chars().take(SHOWN).collect();
        Self::Nonsense(start.escape_debug().to_string())
    }
}

impl Zygote {
    /// Both ends; the second one is for the zygote. To be called on a tokio runtime with I/O.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = Link::pair()?;
        let theirs = theirs.into_descriptor();
        // It has nothing else to do than to wait there.
        rustix::io::ioctl_fionbio(&theirs, false)?;
        Ok((Self(ours.watch()?), theirs))
    }

    /// The first thing that it says. Cancel safe.
    pub async fn introduction(&self) -> Result<Introduction, ForkError> {
        let said = self.receive().await?;
        if let Some(why) = said.strip_prefix("refuses ") {
            return Ok(Introduction::Refuses(words(why)));
        }
        let facts = Facts::parse(&said).ok_or_else(|| ForkError::nonsense(&said))?;
        Ok(Introduction::Ready(facts))
    }

    /// Has it fork a process which gets these descriptors, in an order that it knows, and calls
    /// itself by this number. Whoever gives this up can't ask again. `zygote` is its own process:
    /// what it names as forked is believed only of one of the same user, since daemons that other
    /// users' workers have left are children of this process, too.
    pub async fn fork(
        &self,
        zygote: u32,
        worker: usize,
        passed: &[BorrowedFd<'_>],
    ) -> Result<Process, ForkError> {
        let adoption = reap::adopting();
        let order = format!("fork {} {worker}", std::process::id());
        self.0.send_with(&order, passed)?;
        let said = self.receive().await?;
        if let Some(why) = said.strip_prefix("failed ") {
            return Err(ForkError::Refused(why.to_owned()));
        }
        let number = said.strip_prefix("forked ");
        let number = number.and_then(|number| number.parse().ok());
        let pid = number.filter(|number| *number > 1).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| ForkError::nonsense(&said))?;
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        let not_ours = |_| ForkError::NotOurs(number);
        adoption.adopt(pid).map_err(not_ours)?;
        let of_one_user = users_of(zygote).and_then(|of| Ok(users_of(number)? == of));
        if !of_one_user.unwrap_or_default() {
            reap::forget(pid);
            return Err(ForkError::NotOurs(number));
        }
        let end = Process::watch(pid).inspect_err(|_| {
            // Nobody would learn of its end.
            _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            reap::forget(pid);
        })?;
        Ok(Process::adopt(pid, end)?)
    }

    /// Asks whether a lock in memory that its forks share is stuck, because one was killed with it.
    /// Takes seconds if it is. Whoever gives this up can't ask again.
    pub async fn is_stuck(&self) -> Result<bool, ForkError> {
        self.0.send("stuck?")?;
        let said = self.receive().await?;
        match &*said {
            "stuck" => Ok(true),
            "free" => Ok(false),
            _ => Err(ForkError::nonsense(&said)),
        }
    }

    /// Has it be a worker itself, with what it was started with, instead of a zygote.
    pub fn serve(self) -> io::Result<()> {
        self.0.send_with("serve", &[])
    }

    async fn receive(&self) -> Result<String, ForkError> {
        self.0.receive().await?.ok_or(ForkError::Closed)
    }
}

/// Its words about the application, for people.
fn words(said: &str) -> String {
    let shown = said.chars().filter(|c| !c.is_control());
    shown.take(REFUSAL).collect()
}

impl Facts {
    fn parse(said: &str) -> Option<Self> {
        let (said, own) = match said.split_once('\n') {
            Some((said, own)) => (said, Some(words(own))),
            None => (said, None),
        };
        let rest = said.strip_prefix("zygote 1 threads ")?;
        let (threads, rest) = rest.split_once(" jit ")?;
        let (jit, rest) = rest.split_once(" warm ")?;
        let (warm, thread) = rest.split_once(' ')?;
        let flag = |text| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        Some(Self {
            threads: threads.parse().ok()?,
            thread: thread.chars().filter(|c| !c.is_control()).collect(),
            has_jit: flag(jit)?,
            is_warm: flag(warm)?,
            own,
        })
    }
}

#[cfg(test)]
mod tests;
