//! Processes that overtake others while they boot.
//!
//! A raised process would hand its nice value on to all that it starts, for good. The kernel
//! prevents that: with `SCHED_RESET_ON_FORK` neither children nor threads get a better one than 0,
//! whether this process is there or not.

use std::sync::OnceLock;

use nix::libc;
use rustix::process::{Pid, Resource, getpriority_process, getrlimit, setpriority_process};

use crate::Credentials;

/// The nice value of a process that overtakes: of a processor for which it and three others compete
/// that don't, it gets half.
const RAISED: i32 = -5;

/// Whether processes of this user may be raised, and, which is more, whether they will be lowered
/// again in any case.
///
/// Not where somebody has given the server a priority of its own: that one is meant.
pub fn may_overtake(user: Option<&Credentials>) -> bool {
    static OF_SERVER: OnceLock<bool> = OnceLock::new();
    let of_server = || getpriority_process(None) == Ok(0);
    if !*OF_SERVER.get_or_init(of_server) {
        return false;
    }
    has_capability() || user.is_none() && may_by_limit()
}

/// With it, every process may be raised and lowered.
fn has_capability() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

/// By `LimitNICE=`, processes of the same user may be raised and lowered, and without new
/// privileges none of them becomes another one's.
fn may_by_limit() -> bool {
    // The limit counts from the other end.
    let needed = u64::from((20 - RAISED).unsigned_abs());
    let allowed = getrlimit(Resource::Nice).current;
    allowed.is_none_or(|allowed| allowed >= needed) && rustix::thread::no_new_privs() == Ok(true)
}

/// A process that is raised as long as this value lives. To be dropped before the process is.
#[derive(Debug)]
pub struct Overtaking(Pid);

impl Overtaking {
    /// Raises a process, but not what it starts.
    pub(crate) fn begin(process: Pid) -> Self {
        reset_on_fork(Some(process), true);
        raise(Some(process));
        Self(process)
    }

    /// Raises a process and what it forks meanwhile.
    pub(crate) fn with_forks(process: Pid) -> Self {
        raise(Some(process));
        Self(process)
    }
}

impl Drop for Overtaking {
    fn drop(&mut self) {
        // One that has chosen another value itself keeps it.
        if getpriority_process(Some(self.0)) == Ok(RAISED) {
            _ = setpriority_process(Some(self.0), 0);
        }
        // Refused without the capability. Then it stays, and does nothing to a process that is not
        // raised.
        reset_on_fork(Some(self.0), false);
    }
}

/// Raises this process, which is about to be another program. Makes system calls only.
pub(crate) fn begin_own() {
    reset_on_fork(None, true);
    raise(None);
}

/// Refused where a sandbox forbids it: then nothing has changed.
fn raise(process: Option<Pid>) {
    _ = setpriority_process(process, RAISED);
}

fn reset_on_fork(process: Option<Pid>, is_wanted: bool) {
    let flag = if is_wanted {
        libc::SCHED_RESET_ON_FORK
    } else {
        0
    };
    let process = process.map_or(0, |pid| pid.as_raw_nonzero().get());
    let no_realtime = libc::c_int::default();
    #[expect(unsafe_code, reason = "no library wraps it; musl's own does nothing")]
    // SAFETY: reads one number, which is all that the kernel knows of `sched_param`.
    unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            process,
            libc::SCHED_OTHER | flag,
            &raw const no_realtime,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn started() -> (Child, Pid) {
        // Waits for its input, then tells its own value and a child's.
        let script = "read line; cut -d' ' -f19 /proc/$$/stat; cut -d' ' -f19 /proc/self/stat";
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", script]).stdin(Stdio::piped());
        let child = shell.stdout(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        (child, pid)
    }

    fn said(mut child: Child, overtaking: Option<Overtaking>) -> String {
        drop(child.stdin.take());
        let mut said = String::new();
        let mut output = child.stdout.take().unwrap();
        output.read_to_string(&mut said).unwrap();
        drop(overtaking);
        child.wait().unwrap();
        said
    }

    #[test]
    fn a_process_is_raised_while_it_overtakes_and_what_it_starts_is_not() {
        if !may_overtake(None) {
            eprintln!("skipped: this process may not");
            return;
        }
        let (child, pid) = started();
        assert_eq!(said(child, Some(Overtaking::begin(pid))), "-5\n0\n");
        let (child, pid) = started();
        assert_eq!(said(child, Some(Overtaking::with_forks(pid))), "-5\n-5\n");
        let (child, pid) = started();
        drop(Overtaking::begin(pid));
        assert_eq!(said(child, None), "0\n0\n");
    }

    #[test]
    fn a_value_that_a_process_has_chosen_meanwhile_stays() {
        let (child, pid) = started();
        let overtaking = Overtaking(pid);
        setpriority_process(Some(pid), 5).unwrap();
        drop(overtaking);
        assert_eq!(said(child, None), "5\n5\n");
    }
}
