//! What a process takes: memory and processor time, as `/proc` tells.

use std::fs;
use std::time::Duration;

/// Of one process, without its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident bytes, shared pages included.
    pub memory: u64,
    /// Processor time since its start, in the kernel and outside.
    pub cpu: Duration,
}

impl Usage {
    /// None when there is no such process, or `/proc` can't be read.
    pub fn of(pid: u32) -> Option<Self> {
        let pages = resident_pages(&fs::read_to_string(format!("/proc/{pid}/statm")).ok()?)?;
        let ticks = cpu_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        Some(Self {
            memory: pages.saturating_mul(rustix::param::page_size() as u64),
            cpu: Duration::from_micros(ticks.saturating_mul(1_000_000) / per_second),
        })
    }
}

/// The second field of statm.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// utime and stime, fields 14 and 15 of stat; the name before them is in brackets and may hold anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace().skip(11);
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
    }

    #[test]
    fn there_is_none_of_a_process_that_is_not_there() {
        assert_eq!(Usage::of(u32::MAX), None);
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
