//! The processes of a server: which there are, the CPU time they took, the memory they hold.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::ClockId;
use nix::unistd::Pid;
use serde::Serialize;

/// The processes of one server, PHP's apart from the others.
#[derive(Debug, PartialEq)]
pub(crate) struct Processes {
    pub(crate) server: Vec<u32>,
    pub(crate) php: Vec<u32>,
}

/// Two figures, that of the server and that of PHP behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split<T> {
    pub(crate) server: T,
    pub(crate) php: T,
}

impl Split<Duration> {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            server: self.server.saturating_sub(before.server),
            php: self.php.saturating_sub(before.php),
        }
    }
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Memory {
    /// Resident. What processes share counts in each.
    #[serde(rename = "rss_bytes")]
    pub(crate) rss: f64,
    /// Resident, but what n processes share counts an nth in each.
    #[serde(rename = "pss_bytes")]
    pub(crate) pss: f64,
}

impl Processes {
    /// These and all that descend from them.
    pub(crate) fn below(roots: &[u32]) -> Self {
        let mut all: Vec<Entry> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok())
            .filter_map(|stat| Entry::parse(&stat))
            .collect();
        all.sort_by_key(|entry| entry.pid);
        Self::pick(&all, roots)
    }

    fn pick(all: &[Entry], roots: &[u32]) -> Self {
        let mut pids = roots.to_vec();
        let mut done = 0;
        while let Some(&parent) = pids.get(done) {
            let children = all.iter().filter(|entry| entry.parent == parent);
            pids.extend(children.map(|entry| entry.pid));
            done += 1;
        }
        let (mut server, mut php) = (Vec::new(), Vec::new());
        for entry in all.iter().filter(|entry| pids.contains(&entry.pid)) {
            let side = if entry.name.starts_with("php") {
                &mut php
            } else {
                &mut server
            };
            side.push(entry.pid);
        }
        Self { server, php }
    }

    /// CPU time since their starts. `None` when one of them has ended: what it took is lost.
    pub(crate) fn cpu(&self) -> Option<Split<Duration>> {
        Some(Split {
            server: self.server.iter().map(|pid| cpu(*pid)).sum::<Option<_>>()?,
            php: self.php.iter().map(|pid| cpu(*pid)).sum::<Option<_>>()?,
        })
    }

    /// `None` when one of them has ended.
    pub(crate) fn memory(&self) -> Option<Split<Memory>> {
        Some(Split {
            server: Memory::of(&self.server)?,
            php: Memory::of(&self.php)?,
        })
    }
}

/// CPU time of this process and of those it started that have ended, such as wrk.
pub(crate) fn own_cpu() -> Duration {
    [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN]
        .into_iter()
        .filter_map(|who| getrusage(who).ok())
        .flat_map(|usage| [usage.user_time(), usage.system_time()])
        .map(|time| {
            Duration::from_micros(
                u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0),
            )
        })
        .sum()
}

/// From the process's clock, which is exact to the nanosecond and counts threads that have ended.
fn cpu(pid: u32) -> Option<Duration> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.try_into().ok()?)).ok()?;
    clock.now().ok().map(Duration::from)
}

impl Memory {
    fn of(pids: &[u32]) -> Option<Self> {
        let mut sum = Self { rss: 0.0, pss: 0.0 };
        for pid in pids {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            sum.rss += kilobytes(&rollup, "Rss:")?;
            sum.pss += kilobytes(&rollup, "Pss:")?;
        }
        Some(sum)
    }
}

/// The bytes of a line such as `Rss:    1234 kB`.
fn kilobytes(rollup: &str, name: &str) -> Option<f64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
    let number = line.trim().strip_suffix(" kB")?;
    Some(number.parse::<f64>().ok()? * 1024.0)
}

/// A line of `/proc/<pid>/stat`.
#[derive(Debug, PartialEq)]
struct Entry {
    pid: u32,
    name: String,
    parent: u32,
}

impl Entry {
    /// The name may hold anything, spaces and brackets too: it ends at the last bracket.
    fn parse(stat: &str) -> Option<Self> {
        let (start, rest) = stat.rsplit_once(')')?;
        let (pid, name) = start.split_once(" (")?;
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            parent: rest.split_whitespace().nth(1)?.parse().ok()?,
        })
    }
}

/// What the whole machine's CPUs did, in the kernel's ticks since its start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Machine {
    busy: f64,
    all: f64,
    cpus: f64,
}

impl Machine {
    pub(crate) fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string(Path::new("/proc/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let cpus = stat.lines().filter(|line| line.starts_with("cpu")).count() - 1;
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<f64> = line
            .split_whitespace()
            .map_while(|tick| tick.parse().ok())
            .collect();
        // The last two, time of guests, are in the first two already.
        let [user, nice, system, idle, io_wait, irq, soft_irq, stolen, ..] = ticks[..] else {
            return None;
        };
        let busy = user + nice + system + irq + soft_irq + stolen;
        Some(Self {
            busy,
            all: busy + idle + io_wait,
            cpus: f64::from(u32::try_from(cpus).ok()?),
        })
    }

    /// The percentage of the machine's CPU since `before` that was not `ours`.
    pub(crate) fn others(&self, before: &Self, ours: Duration, elapsed: Duration) -> f64 {
        let busy = (self.busy - before.busy) / (self.all - before.all).max(1.0);
        let ours = ours.as_secs_f64() / (elapsed.as_secs_f64() * self.cpus);
        // Ticks are coarse: a little less than nothing means nothing.
        ((busy - ours) * 100.0).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: u32, name: &str, parent: u32) -> Entry {
        Entry {
            pid,
            name: name.to_owned(),
            parent,
        }
    }

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        assert_eq!(
            Entry::parse("42 (a) S 1 (b) R 7 42 42 0 -1\n"),
            Some(entry(42, "a) S 1 (b", 7))
        );
        assert_eq!(Entry::parse("42 (cut"), None);
    }

    #[test]
    fn descendants_count_whatever_their_numbers() {
        let all = [
            entry(1, "init", 0),
            entry(5, "php8.2", 90),
            entry(7, "pronghorn", 1),
            entry(8, "php", 1),
            entry(90, "pronghorn", 7),
        ];
        let expected = Processes {
            server: vec![7, 90],
            php: vec![5],
        };
        assert_eq!(Processes::pick(&all, &[7]), expected);
    }

    #[test]
    #[expect(
        clippy::disallowed_types,
        reason = "CPU time passes with real time alone"
    )]
    fn threads_that_ended_count() {
        let myself = Processes::below(&[std::process::id()]);
        let before = myself.cpu().unwrap();
        let busy = || {
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(30) {}
            cpu_of_this_thread()
        };
        let took = std::thread::spawn(busy).join().unwrap();
        assert!(took > Duration::ZERO);
        assert!(myself.cpu().unwrap().since(before).server >= took);
    }

    fn cpu_of_this_thread() -> Duration {
        ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().into()
    }

    #[test]
    fn memory_of_a_process_is_found() {
        let rollup =
            "55d0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:    1234 kB\nPss:     600 kB\n";
        assert_eq!(kilobytes(rollup, "Rss:"), Some(1234.0 * 1024.0));
        assert_eq!(kilobytes(rollup, "Pss:"), Some(600.0 * 1024.0));
        assert_eq!(kilobytes(rollup, "Swap:"), None);
    }

    #[test]
    fn what_others_took_is_what_is_left() {
        let before =
            Machine::parse("cpu  100 0 50 1000 0 0 0 0 0 0\ncpu0 1\ncpu1 1\nintr 1\n").unwrap();
        // 800 ticks of two CPUs in 4 s, half of them busy.
        let after =
            Machine::parse("cpu  300 50 100 1350 50 20 30 50 9 9\ncpu0 1\ncpu1 1\n").unwrap();
        let elapsed = Duration::from_secs(4);
        let others = after.others(&before, Duration::from_secs(3), elapsed);
        assert!((others - 12.5).abs() < 1e-9, "{others}");
        let others = after.others(&before, Duration::from_secs(5), elapsed);
        assert!(others.abs() < 1e-9, "{others}");
    }
}
