//! Orphans: processes that were not spawned here but are this process's to reap.
//!
//! As PID 1, or as a child subreaper, the server inherits what its workers leave behind. Its own
//! children must not be taken from their owners, so their numbers are remembered; that registry is
//! the one state of the whole process here.

use std::collections::HashSet;
use std::io;
use std::sync::{Mutex, MutexGuard};

use nix::sys::wait::{Id, WaitPidFlag};
use pronghorn_base::lock;
use rustix::process::{Pid, WaitId, WaitIdOptions};

static CHILDREN: Mutex<Option<Children>> = Mutex::new(None);

#[derive(Default)]
struct Children {
    /// They are reaped by their owners.
    owned: HashSet<Pid>,
    /// Orphans to come that are to get an owner.
    adoptions: usize,
}

fn children() -> MutexGuard<'static, Option<Children>> {
    lock(&CHILDREN)
}

/// Held while a child is spawned, so that it can't be taken for an orphan before its number is
/// remembered.
pub(crate) struct Spawning(MutexGuard<'static, Option<Children>>);

pub(crate) fn spawning() -> Spawning {
    Spawning(children())
}

impl Spawning {
    pub(crate) fn remember(mut self, pid: Pid) {
        self.0.get_or_insert_default().owned.insert(pid);
    }
}

pub(crate) fn forget(pid: Pid) {
    if let Some(children) = children().as_mut() {
        children.owned.remove(&pid);
    }
}

/// While there is one, no orphan is reaped: the process that is to be adopted might be among them,
/// and its end be lost.
#[derive(Debug)]
pub(crate) struct Adoption(());

pub(crate) fn adopting() -> Adoption {
    children().get_or_insert_default().adoptions += 1;
    Adoption(())
}

impl Adoption {
    /// Remembers the number of a process that has become a child of this one and has no owner.
    ///
    /// # Errors
    ///
    /// When it is another process's child, or has an owner.
    pub(crate) fn adopt(self, pid: Pid) -> io::Result<()> {
        let mut children = children();
        let owned = &mut children.get_or_insert_default().owned;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        rustix::process::waitid(WaitId::Pid(pid), options)?;
        let is_new = owned.insert(pid);
        drop(children);
        drop(self);
        if is_new {
            Ok(())
        } else {
            Err(io::ErrorKind::AlreadyExists.into())
        }
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        if let Some(children) = children().as_mut() {
            children.adoptions -= 1;
        }
        // Those that ended meanwhile are told of no more.
        reap_orphans();
    }
}

/// Makes this process the one that inherits what its workers leave behind. As PID 1 it is anyway.
pub fn adopt_orphans() {
    // Without it, orphans go to PID 1: no reason not to start.
    _ = rustix::process::set_child_subreaper(Pid::from_raw(1));
}

/// Reaps processes that have ended and belong to nobody. To be called on SIGCHLD.
///
/// Stops at an ended child that has an owner: the kernel shows no other before that one is reaped,
/// and the owner, who watches the pidfd, is about to. Its SIGCHLD may have been the last, so call
/// this again after a wait, too.
pub fn reap_orphans() -> usize {
    /// An end of the loop for a machine on which processes end faster than they are reaped.
    const MOST: usize = 10_000;
    for reaped in 0..MOST {
        let children = children();
        let Some(pid) = ended_child() else {
            return reaped;
        };
        let is_spared =
            |children: &Children| children.adoptions > 0 || children.owned.contains(&pid);
        if children.as_ref().is_some_and(is_spared) {
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
