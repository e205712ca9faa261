//! Orphans: processes that were not spawned here but are this process's to reap.
//!
//! As PID 1, or as a child subreaper, the server inherits what its workers leave behind. Its own children must not be
//! taken from their owners, so their numbers are remembered; that registry is the one state of the whole process here.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::wait::{Id, WaitPidFlag};
use rustix::process::{Pid, WaitId, WaitIdOptions};

static OWNED: Mutex<Option<HashSet<Pid>>> = Mutex::new(None);

fn owned() -> MutexGuard<'static, Option<HashSet<Pid>>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a child is spawned, so that it can't be taken for an orphan before its number is remembered.
pub(crate) struct Spawning(MutexGuard<'static, Option<HashSet<Pid>>>);

pub(crate) fn spawning() -> Spawning {
    Spawning(owned())
}

impl Spawning {
    pub(crate) fn remember(mut self, pid: Pid) {
        self.0.get_or_insert_default().insert(pid);
    }
}

pub(crate) fn forget(pid: Pid) {
    if let Some(owned) = owned().as_mut() {
        owned.remove(&pid);
    }
}

/// Makes this process the one that inherits what its workers leave behind. As PID 1 it is anyway.
pub fn adopt_orphans() {
    // Without it, orphans go to PID 1: no reason not to start.
    _ = rustix::process::set_child_subreaper(Pid::from_raw(1));
}

/// Reaps processes that have ended and belong to nobody. To be called on SIGCHLD.
///
/// Stops at an ended child that has an owner: the kernel shows no other before that one is reaped, and the owner, who
/// watches the pidfd, is about to. Its SIGCHLD may have been the last, so call this again after a wait, too.
pub fn reap_orphans() -> usize {
    /// An end of the loop for a machine on which processes end faster than they are reaped.
    const MOST: usize = 10_000;
    for reaped in 0..MOST {
        let owned = owned();
        let Some(pid) = ended_child() else {
            return reaped;
        };
        if owned.as_ref().is_some_and(|owned| owned.contains(&pid)) {
            return reaped;
        }
        _ = rustix::process::waitid(
            WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
    }
    MOST
}

/// A child that has ended, left unreaped.
fn ended_child() -> Option<Pid> {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let status = nix::sys::wait::waitid(Id::All, look).ok()?;
    Pid::from_raw(status.pid()?.as_raw())
}
