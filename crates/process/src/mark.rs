//! A mark by which a program and all that it has started are found, wherever they have gone: out of
//! their process group, out of their session, to another parent.
//!
//! It is a limit of theirs, which is inherited by fork and exec and which anybody may read in
//! `/proc`; an environment is neither kept by all programs nor shown to all users. The limit is
//! that of real-time threads (`RLIMIT_RTTIME`), set to a number of microseconds that nobody else
//! has, of 146,000 years at least: it ends nobody.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process, pidfd_open,
    pidfd_send_signal, setrlimit,
};

/// In microseconds; the kernel counts with some more, so the highest bit stays free.
const LEAST: u64 = 1 << 62;

/// A number that the processes of one program have. Copies are the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mark(u64);

impl Mark {
    /// One that nobody has.
    pub fn new() -> Self {
        // As random as the keys of a hash map.
        let random = RandomState::new().build_hasher().finish();
        Self(LEAST | (random >> 2))
    }

    /// Gives it to this process, and to what it will start. Between fork and exec: only system
    /// calls.
    ///
    /// # Errors
    ///
    /// When somebody has set a harder limit before.
    pub(crate) fn put_on(self) -> io::Result<()> {
        let limit = Rlimit {
            current: Some(self.0),
            maximum: getrlimit(Resource::Rttime).maximum,
        };
        Ok(setrlimit(Resource::Rttime, limit)?)
    }

    /// Whether a process has it.
    pub fn is_on(self, pid: u32) -> bool {
        let pid = i32::try_from(pid).ok();
        pid.is_some_and(|pid| matches!(Self::of(pid), Ok(Some(mark)) if mark == self))
    }

    /// Kills all processes that have one of these, and those that they start meanwhile, and says
    /// how many there were of each. Blocks for some milliseconds: it looks at each process of the
    /// machine.
    pub fn kill_all(marks: &HashSet<Self>) -> HashMap<Self, usize> {
        /// Who starts others faster than they are killed, is not held by this.
        const LOOKS: usize = 100;
        let mut most = HashMap::new();
        let mut looks = Looks {
            marks,
            dead: HashSet::new(),
            others: HashSet::new(),
        };
        for _ in 0..LOOKS {
            let (found, is_certain) = looks.look();
            if found.is_empty() && is_certain {
                break;
            }
            // Processes of the look before are among them until they have ended.
            for (mark, found) in found {
                let most = most.entry(mark).or_default();
                *most = found.max(*most);
            }
            std::thread::yield_now(); // so that they end
        }
        most
    }

    /// That of a process that runs, or has ended and is not reaped.
    fn of(pid: i32) -> io::Result<Option<Self>> {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let mut limits = limits.lines();
        let limit = limits.find_map(|line| line.strip_prefix("Max realtime timeout"));
        let soft = limit.and_then(|line| line.split_ascii_whitespace().next());
        Ok(soft.and_then(|soft| soft.parse().ok()).map(Self))
    }
}

/// Several looks at all processes of the machine.
struct Looks<'a> {
    marks: &'a HashSet<Mark>,
    /// They had ended in an earlier look.
    dead: HashSet<i32>,
    /// They had none of the marks in an earlier look.
    others: HashSet<i32>,
}

impl Looks<'_> {
    /// The processes that were killed, and whether they were all. One that ended during the look
    /// may have started another one, which is not in the list.
    fn look(&mut self) -> (HashMap<Mark, usize>, bool) {
        let (mut found, mut is_certain) = (HashMap::new(), true);
        let Ok(all) = fs::read_dir("/proc") else {
            return (found, is_certain);
        };
        for number in all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()) {
            match self.kill(number) {
                Seen::Killed(mark) => *found.entry(mark).or_default() += 1,
                // On a machine at work, some end during each look.
                Seen::Gone => is_certain &= self.others.contains(&number),
                Seen::Dead => is_certain &= !self.dead.insert(number),
                Seen::Other => _ = self.others.insert(number),
            }
        }
        (found, is_certain)
    }

    /// Kills this process if it has one of the marks.
    fn kill(&self, number: i32) -> Seen {
        let Some(pid) = Pid::from_raw(number) else {
            return Seen::Other;
        };
        match self.look_at(number) {
            Seen::Killed(_) => {}
            seen => return seen,
        }
        // Opened before the second look: the number can't become another process's in between.
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => Some(process),
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(_) => return Seen::Gone,
        };
        let seen = self.look_at(number);
        if !matches!(seen, Seen::Killed(_)) {
            return seen;
        }
        let killed = match process {
            Some(process) => pidfd_send_signal(&process, Signal::KILL),
            None => kill_process(pid, Signal::KILL),
        };
        if killed.is_ok() { seen } else { Seen::Gone }
    }

    fn look_at(&self, pid: i32) -> Seen {
        let mark = match Mark::of(pid) {
            Err(_) => return Seen::Gone,
            Ok(Some(mark)) if self.marks.contains(&mark) => mark,
            Ok(_) => return Seen::Other,
        };
        // One that has ended, and is not reaped, shows it as well.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        match stat.rsplit_once(") ") {
            None => Seen::Gone,
            Some((_, state)) if state.starts_with(['Z', 'X']) => Seen::Dead,
            Some(_) => Seen::Killed(mark),
        }
    }
}

/// A process that was looked at.
#[derive(Clone, Copy)]
enum Seen {
    /// It has this mark, and is to be killed.
    Killed(Mark),
    /// It has ended meanwhile.
    Gone,
    /// It had a mark, has ended, and is not reaped.
    Dead,
    Other,
}

impl Default for Mark {
    fn default() -> Self {
        Self::new()
    }
}
