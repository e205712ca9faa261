//! What a process takes: memory and processor time, as `/proc` and its clock tell.

use std::fs;
use std::time::Duration;

use nix::time::ClockId;
use nix::unistd::Pid;

use crate::peer::after_name;

/// One process, without its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident bytes, shared pages included.
    pub memory: u64,
    /// Of these, pages of files and of shared memory. What a forked process has in common with its
    /// parent, and neither has written, is not among them.
    pub shared: u64,
    /// Processor time since its start, in the kernel and outside.
    pub cpu: Duration,
}

impl Usage {
    /// None when there is no such process, or `/proc` can't be read.
    pub fn of(pid: u32) -> Option<Self> {
        let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        let ticks = cpu_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let bytes = |pages: u64| pages.saturating_mul(rustix::param::page_size() as u64);
        Some(Self {
            memory: bytes(resident_pages(&statm)?),
            shared: bytes(shared_pages(&statm)?),
            cpu: Duration::from_micros(ticks.saturating_mul(1_000_000) / per_second),
        })
    }
}

/// The clock of a process, which goes on while one of its threads has a processor: what `/proc`
/// tells in hundredths of a second, by one system call and to the nanosecond. Children do not
/// count.
#[derive(Debug, Clone, Copy)]
pub struct CpuClock(ClockId);

impl CpuClock {
    /// None when there is no such process, or a sandbox keeps its clock back.
    pub fn of(pid: u32) -> Option<Self> {
        // 0 would be this process itself.
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).ok()?;
        Some(Self(clock))
    }

    /// What the process has taken since its start. None when it has ended.
    pub fn read(self) -> Option<Duration> {
        self.0.now().ok().map(Duration::from)
    }
}

/// Resident bytes of a process and of all that have descended from it, shared pages for each of
/// them. None when there is no such process.
pub fn family_memory(pid: u32) -> Option<u64> {
    /// Nobody has as many; numbers are used again, and a circle has no end.
    const MOST: usize = 1_000;
    let mut bytes = Usage::of(pid)?.memory;
    let mut family = vec![pid];
    let mut at = 0;
    while let Some(member) = family.get(at).copied()
        && family.len() < MOST
    {
        at += 1;
        let Ok(threads) = fs::read_dir(format!("/proc/{member}/task")) else {
            continue; // it has ended
        };
        for thread in threads.flatten() {
            let children = fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            let children = children.split_ascii_whitespace();
            for child in children.filter_map(|child| child.parse().ok()) {
                bytes = bytes.saturating_add(Usage::of(child).map_or(0, |usage| usage.memory));
                family.push(child);
            }
        }
    }
    Some(bytes)
}

/// Bytes that no other process shares, if they are `at_least` so many: what would be free without
/// this process.
///
/// Cheap as long as all that is resident is less. None also when there is no such process, or
/// `/proc` can't be read.
pub fn own_memory(pid: u32, at_least: u64) -> Option<u64> {
    let pages = resident_pages(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?)?;
    let resident = pages.saturating_mul(rustix::param::page_size() as u64);
    if resident < at_least {
        return None;
    }
    let own = private_bytes(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)?;
    (own >= at_least).then_some(own)
}

/// The same of a process that is forked from another one, without memory that may be written by all
/// of them: where one alone has looked at a page of it, the kernel takes that for its own.
pub fn own_memory_of_forked(pid: u32, at_least: u64) -> Option<u64> {
    // The quick answer first: it is never less.
    own_memory(pid, at_least)?;
    let own = unshared_bytes(&fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?)?;
    (own >= at_least).then_some(own)
}

/// Of a table of mappings, what is private in those that are no shared ones.
fn unshared_bytes(mappings: &str) -> Option<u64> {
    let mut counts = false;
    let mut bytes: u64 = 0;
    for line in mappings.lines() {
        let (name, rest) = line.split_once(' ')?;
        match name {
            "Private_Clean:" | "Private_Dirty:" if counts => {
                bytes = bytes.checked_add(kilobytes(rest)?.checked_mul(1024)?)?;
            }
            name if name.ends_with(':') => {}
            // Addresses; then `rw-s`, `r--p`.
            _ => counts = rest.split_once(' ')?.0.ends_with('p'),
        }
    }
    Some(bytes)
}

/// As the kernel writes them: `   12 kB`.
fn kilobytes(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim_end().parse().ok()
}

fn private_bytes(rollup: &str) -> Option<u64> {
    let own = ["Private_Clean:", "Private_Dirty:"].map(|name| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        kilobytes(line)
    });
    let [clean, dirty]: [Option<u64>; 2] = own;
    clean?.checked_add(dirty?)?.checked_mul(1024)
}

/// The second field of statm.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The third one.
fn shared_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// utime and stime, fields 14 and 15 of stat.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = after_name(stat)?.skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_something() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.memory > 100_000, "{usage:?}");
        let is_part = (1..usage.memory).contains(&usage.shared);
        assert!(is_part, "its program and libraries are files: {usage:?}");
    }

    #[test]
    fn there_is_none_of_a_process_that_is_not_there() {
        assert_eq!(Usage::of(u32::MAX), None);
        assert!(CpuClock::of(u32::MAX).is_none() && CpuClock::of(0).is_none());
    }

    #[test]
    fn a_family_takes_what_its_members_take() {
        let child = std::process::Command::new("sleep").arg("1000").spawn();
        let mut child = child.unwrap();
        let alone = Usage::of(std::process::id()).unwrap().memory;
        let of_child = || family_memory(child.id()).unwrap_or_default();
        assert!(of_child() > 0);
        // The tests beside this one take and give back some.
        let family = family_memory(std::process::id()).unwrap();
        assert!(family > alone / 2 + of_child(), "{family}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(family_memory(u32::MAX), None);
    }

    #[test]
    fn a_clock_goes_on_while_its_process_computes() {
        let clock = CpuClock::of(std::process::id()).unwrap();
        let before = clock.read().unwrap();
        let mut number = 1_u64;
        while clock.read().unwrap() < before + Duration::from_millis(5) {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        let told = Usage::of(std::process::id()).unwrap().cpu;
        assert!(told + Duration::from_millis(20) > before, "{told:?}");
    }

    #[test]
    fn what_is_its_own_is_less_than_all() {
        let pid = std::process::id();
        let own = own_memory(pid, 1).unwrap();
        assert!(own > 100_000 && own < Usage::of(pid).unwrap().memory + 10_000_000);
        assert_eq!(own_memory(pid, 1 << 50), None);
        assert_eq!(own_memory(u32::MAX, 1), None);
    }

    #[test]
    fn private_pages_are_clean_and_dirty_ones() {
        let rollup =
            "Rss:  90 kB\nShared_Clean: 7 kB\nPrivate_Clean:     12 kB\nPrivate_Dirty:  30 kB\n";
        assert_eq!(private_bytes(rollup), Some(42 * 1024));
        assert_eq!(private_bytes("Private_Clean: 1 kB\n"), None);
    }

    #[test]
    fn shared_mappings_are_nobodys_own() {
        let mappings = "7f00-7f10 rw-s 00000000 00:01 5   /dev/zero (deleted)\nSize: 64 kB\nPrivate_Dirty:  30 kB\n\
            VmFlags: rd wr sh\n7f20-7f30 rw-p 00000000 00:00 0 \nPrivate_Clean:     12 kB\nPrivate_Dirty:  4 kB\n";
        assert_eq!(unshared_bytes(mappings), Some(16 * 1024));
        assert_eq!(unshared_bytes("nonsense"), None);
        let pid = std::process::id();
        let own = own_memory_of_forked(pid, 1).unwrap();
        assert!(own > 100_000 && own <= own_memory(pid, 1).unwrap() + 10_000_000);
        assert_eq!(own_memory_of_forked(pid, 1 << 50), None);
    }

    #[test]
    fn a_name_may_hold_brackets_and_spaces() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 9 1 1";
        assert_eq!(cpu_ticks(stat), Some(300));
    }

    #[test]
    fn what_is_cut_short_is_nothing() {
        assert_eq!(cpu_ticks("7 (php) S 1 7"), None);
        assert_eq!(resident_pages("12"), None);
    }
}
