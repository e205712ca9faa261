//! The processes of a server: which there are, the CPU time they took, the memory they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::ClockId;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// The processes of one server, PHP's apart from the others.
#[derive(Debug, PartialEq)]
pub(crate) struct Processes {
    pub(crate) server: Vec<u32>,
    pub(crate) php: Vec<u32>,
}

/// Two figures, that of the server and that of PHP behind it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Split<T> {
    pub(crate) server: T,
    pub(crate) php: T,
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Resident. What processes share counts in each.
    #[serde(rename = "rss_bytes")]
    pub(crate) rss: f64,
    /// Resident, but what n processes share counts an nth in each.
    #[serde(rename = "pss_bytes")]
    pub(crate) pss: f64,
    /// Resident, written by it and of no other process. Clean pages of files, the program's own
    /// among them, are the kernel's to drop and are those of all processes that run it.
    #[serde(rename = "private_bytes", default)]
    pub(crate) private: f64,
    /// The most that was resident at any time.
    #[serde(rename = "peak_bytes", default)]
    pub(crate) peak: f64,
}

impl Processes {
    /// These and all that descend from them.
    pub(crate) fn below(roots: &[u32]) -> Self {
        let mut all: Vec<Entry> = all_pids()
            .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok())
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

    /// The CPU time that each took so far.
    pub(crate) fn cpu(&self) -> Cpu {
        let side = |pids: &[u32], php| {
            let taken = |pid: &u32| Some((*pid, Taken::by(*pid, php)?));
            pids.iter().filter_map(taken).collect::<Vec<_>>()
        };
        let all = side(&self.server, false)
            .into_iter()
            .chain(side(&self.php, true));
        Cpu(all.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.server.is_empty() && self.php.is_empty()
    }

    /// `None` when one of them has ended.
    pub(crate) fn memory(&self) -> Option<Split<Memory>> {
        Some(Split {
            server: Memory::of(&self.server)?,
            php: Memory::of(&self.php)?,
        })
    }
}

/// The CPU time of a server's processes since their starts.
#[derive(Debug, PartialEq)]
pub(crate) struct Cpu(BTreeMap<u32, Taken>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Taken {
    php: bool,
    own: Duration,
    /// By its children that have ended, and theirs. In ticks of the kernel, hundredths of a second.
    children: Duration,
}

impl Cpu {
    /// Of those that run.
    pub(crate) fn sum(&self) -> Duration {
        self.0.values().map(|taken| taken.own).sum()
    }

    /// What was taken since `before`. Processes may come and go meanwhile (CGI, recycled workers):
    /// the time of one that ended is with its parent then, and counts as PHP's. `None` when it
    /// isn't, so that the sum would be wrong.
    pub(crate) fn since(&self, before: &Self) -> Option<Split<Duration>> {
        /// Of hundredths, rounded down.
        const TOLERANCE: Duration = Duration::from_millis(20);
        let mut took = Split {
            server: Duration::ZERO,
            php: Duration::ZERO,
        };
        let mut ended = Duration::ZERO;
        for (pid, now) in &self.0 {
            let then = before.0.get(pid);
            let own = now
                .own
                .saturating_sub(then.map_or(Duration::ZERO, |then| then.own));
            if now.php {
                took.php += own;
            } else {
                took.server += own;
            }
            ended += now
                .children
                .saturating_sub(then.map_or(Duration::ZERO, |then| then.children));
        }
        // What these had taken before is in the time of ended ones as well.
        let gone = before.0.iter().filter(|(pid, _)| !self.0.contains_key(pid));
        let (number, known) = gone.fold((0, Duration::ZERO), |(number, sum), (_, taken)| {
            (number + 1, sum + taken.own + taken.children)
        });
        if ended + TOLERANCE * (number + 1) < known {
            return None;
        }
        took.php += ended.saturating_sub(known);
        Some(took)
    }
}

impl Taken {
    /// `None` when it has ended.
    fn by(pid: u32, php: bool) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self {
            php,
            own: cpu(pid)?,
            children: children(&stat)?,
        })
    }
}

/// Fields 16 and 17 of the line, counted from behind the name as the first two may hold anything.
fn children(stat: &str) -> Option<Duration> {
    const TICK: Duration = Duration::from_millis(10); // on all of Linux's machines that we run on
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = rest.split_whitespace().skip(13).take(2);
    let ticks: Vec<u32> = ticks.map_while(|ticks| ticks.parse().ok()).collect();
    let [user, system] = ticks[..] else {
        return None;
    };
    Some(TICK * (user + system))
}

/// The processes that listen on a port of this machine, whoever started them.
pub(crate) fn listeners(port: u16) -> Vec<u32> {
    let sockets = listening_sockets(port);
    if sockets.is_empty() {
        return Vec::new();
    }
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let mut links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        links.any(|link| {
            sockets
                .iter()
                .any(|socket| link.as_os_str() == socket.as_str())
        })
    };
    all_pids().filter(holds).collect()
}

/// As `/proc/<pid>/fd` links to them: `socket:[4711]`.
pub(crate) fn listening_sockets(port: u16) -> Vec<String> {
    let of_it = |(local, socket)| (local == port).then_some(socket);
    listening().into_iter().filter_map(of_it).collect()
}

pub(crate) fn listening_ports() -> BTreeSet<u16> {
    listening().into_iter().map(|(port, _)| port).collect()
}

/// All ports of this machine that somebody listens on, with their sockets.
fn listening() -> Vec<(u16, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok());
    let mut all = Vec::new();
    for table in tables {
        all.extend(table.lines().filter_map(listening_socket));
    }
    all
}

/// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …`
fn listening_socket(line: &str) -> Option<(u16, String)> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace();
    let (_, port) = fields.nth(1)?.rsplit_once(':')?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let socket = format!("socket:[{}]", fields.nth(5)?);
    Some((u16::from_str_radix(port, 16).ok()?, socket))
}

pub(crate) fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
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
    pub(crate) fn of(pids: &[u32]) -> Option<Self> {
        let mut sum = Self {
            rss: 0.0,
            pss: 0.0,
            private: 0.0,
            peak: 0.0,
        };
        for pid in pids {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            sum.rss += kilobytes(&rollup, "Rss:")?;
            sum.pss += kilobytes(&rollup, "Pss:")?;
            sum.private += kilobytes(&rollup, "Private_Dirty:")?;
            sum.peak += kilobytes(&status, "VmHWM:")?;
        }
        Some(sum)
    }
}

/// The memory that a worker shares with the server: files with this in their names, whose pages are
/// there from the start. What is mapped twice counts once.
pub(crate) fn shared(pid: u32, name: &str) -> Option<f64> {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).ok()?;
    Some(shared_in(&maps, name))
}

fn shared_in(maps: &str, name: &str) -> f64 {
    let mut parts = BTreeSet::new();
    let mut part = None;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if !first.ends_with(':') {
            // Addresses, rights, offset, device, inode, name.
            let offset = words.nth(1).unwrap_or_default();
            let offset = u32::from_str_radix(offset, 16).unwrap_or_default() / 1024;
            let inode = words.nth(1).unwrap_or_default();
            part = line.contains(name).then_some((inode, offset));
        } else if let Some((inode, offset)) = part
            && first == "Size:"
            && let Some(Ok(kb)) = words.next().map(str::parse::<u32>)
        {
            parts.insert((inode, offset, offset + kb));
        }
    }
    // In the order of their beginnings: what of each was not counted yet.
    let (mut kb, mut counted) = (0, ("", 0));
    for (inode, start, end) in parts {
        let from = if counted.0 == inode {
            start.max(counted.1)
        } else {
            start
        };
        kb += end.saturating_sub(from);
        counted = (inode, end.max(from));
    }
    f64::from(kb) * 1024.0
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

    /// What went to others than `ours` since `before`, in percent of one CPU.
    pub(crate) fn others(&self, before: &Self, ours: Duration, elapsed: Duration) -> f64 {
        let busy = (self.busy - before.busy) / (self.all - before.all).max(1.0) * self.cpus;
        let ours = ours.as_secs_f64() / elapsed.as_secs_f64();
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
        let before = myself.cpu();
        let busy = || {
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(30) {}
            cpu_of_this_thread()
        };
        let took = std::thread::spawn(busy).join().unwrap();
        assert!(took > Duration::ZERO);
        assert!(myself.cpu().since(&before).unwrap().server >= took);
    }

    fn cpu_of_this_thread() -> Duration {
        ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap().into()
    }

    fn taken(php: bool, own: u64, children: u64) -> Taken {
        Taken {
            php,
            own: Duration::from_millis(own),
            children: Duration::from_millis(children),
        }
    }

    #[test]
    fn the_time_of_processes_that_came_and_went_is_with_their_parents() {
        let before = Cpu([(1, taken(false, 100, 0)), (2, taken(true, 50, 0))].into());
        // 2 was replaced by 3 after 20 ms more; 70 of them all are with the parent.
        let after = Cpu([(1, taken(false, 130, 70)), (3, taken(true, 7, 0))].into());
        let took = after.since(&before).unwrap();
        let expected = [30, 27].map(Duration::from_millis);
        assert_eq!([took.server, took.php], expected);
    }

    #[test]
    fn a_sum_that_lacks_the_time_of_a_process_that_ended_is_none() {
        let before = Cpu([(1, taken(false, 100, 0)), (2, taken(true, 500, 0))].into());
        let after = Cpu([(1, taken(false, 130, 0)), (3, taken(true, 7, 0))].into());
        assert_eq!(after.since(&before), None);
    }

    #[test]
    fn the_time_of_ended_children_is_found_behind_any_name() {
        let stat = "42 (a) 1 (b) S 1 42 42 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 5";
        assert_eq!(children(stat), Some(Duration::from_millis(270)));
        assert_eq!(children("42 (cut) S 1"), None);
    }

    #[test]
    fn who_listens_on_a_port_is_found() {
        let line = "   3: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100";
        let socket = "socket:[4711]".to_owned();
        assert_eq!(listening_socket(line), Some((8080, socket)));
        assert_eq!(listening_socket(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!(
            listening_socket("  sl  local_address rem_address   st"),
            None
        );
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listeners(port).contains(&std::process::id()));
        drop(listener);
        // A process that another test is starting has a copy until it executes its program.
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        while !listening_sockets(port).is_empty() {
            assert!(tokio::time::Instant::now() < end, "somebody still listens");
            std::thread::yield_now();
        }
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
    fn what_is_mapped_twice_counts_once() {
        let maps = "7f00-7f01 rw-s 00001000 00:01 42 /memfd:pronghorn-box (deleted)\nSize: 200 kB\nRss:  20 kB\nPss: 1 kB\n\
            7f01-7f02 rw-s 00001000 00:01 42 /memfd:pronghorn-box (deleted)\nSize:  200 kB\n\
            7f02-7f03 rw-s 00033000 00:01 42 /memfd:pronghorn-box (deleted)\nSize:  12 kB\n\
            7f04-7f05 rw-s 00000000 00:01 42 /memfd:pronghorn-box (deleted)\nSize:  104 kB\n\
            7f05-7f06 rw-s 00001000 00:01 43 /memfd:pronghorn-box (deleted)\nSize:  8 kB\n\
            7f03-7f04 rw-p 00000000 00:00 0\nSize:  999 kB\n";
        assert!((shared_in(maps, "pronghorn-box") - 224.0 * 1024.0).abs() < 1.0);
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
        assert!((others - 25.0).abs() < 1e-9, "{others}");
        let others = after.others(&before, Duration::from_secs(5), elapsed);
        assert!(others.abs() < 1e-9, "{others}");
    }
}
