//! The long form of the fault run, `make soak`: prints its progress, and a table at the end.
//!
//! `SOAK_SCALE=0.05` does a twentieth of everything, to see whether it works at all. Arguments are
//! names of parts, if not all are wanted:
//! `cargo test -p pronghorn-e2e --test soak -- kills scribbles`.

#![expect(
    clippy::print_stdout,
    clippy::panic,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a test in real time that tells what it does"
)]

use std::collections::HashSet;
use std::fmt::Display;
use std::time::{Duration, Instant};

use pronghorn_e2e::faults::{
    Killer, clients_for, deaths, leave_at_every_step, leaving_site, reload, reload_to_broken_code,
    site,
};
use pronghorn_e2e::load::{Load, Tally};
use pronghorn_e2e::queue::{Plan, QueueDriver};
use pronghorn_e2e::ring::{Scribbles, scribble, under_valgrind};
use pronghorn_e2e::uploads::{GROWTH, send_form, send_raw};
use pronghorn_testkit::{Server, Site};

const WORKERS: usize = 8;
const KILLS: f64 = 1_000.0;
const BUSY_KILLS: f64 = 300.0;
const RELOADS: f64 = 200.0;
const BUSY_RELOADS: f64 = 50.0;
/// And kills in between.
const JOBS: [f64; 2] = [200_000.0, 1_000.0];
/// Steps of each of four processes that are compared with a model, kills, words of scribbles, and
/// kills of workers of each kind.
const CACHE: [f64; 4] = [1_000_000.0, 300.0, 200_000.0, 200.0];
/// Of random histories of pipelines, in all, and how long each is.
const HISTORIES: Duration = Duration::from_hours(1);
const HISTORY: Duration = Duration::from_mins(2);
const UPGRADES: f64 = 50.0;
const LEAVING_ROUNDS: f64 = 10.0;
/// Calls that scribble once, and those that do it so often.
const SCRIBBLES: [(f64, usize); 2] = [(600.0, 1), (600.0, 350)];
const VALGRIND_ROUNDS: f64 = 20.0;
/// Of each upload, in MB.
const UPLOAD: f64 = 2048.0;
const SOAK: Duration = Duration::from_secs(15 * 60);
/// What the server's memory may grow by from its first minute on.
const GROWTH: f64 = 2.0 * 1024.0;

/// No part may take longer than this: beyond it the run fails instead of going on for ever.
const MOST: Duration = Duration::from_secs(30 * 60);

/// What is done to a server, by name.
type Part = (&'static str, fn(f64, &mut Report));
const PARTS: [Part; 12] = [
    ("kills", kills),
    ("reloads", reloads),
    ("upgrades", upgrades),
    ("deaths", deaths_meanwhile),
    ("leaving", leaving),
    ("uploads", uploads),
    ("scribbles", scribbles),
    ("valgrind", valgrind),
    ("jobs", jobs),
    ("cache", cache),
    ("queue", queue),
    ("soak", soak),
];

fn main() {
    let scale = std::env::var("SOAK_SCALE").map_or(1.0, |scale| {
        scale.parse().expect("SOAK_SCALE is a number such as 0.1")
    });
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let unknown = wanted
        .iter()
        .find(|wanted| PARTS.iter().all(|(name, _)| name != wanted));
    assert_eq!(unknown, None, "there are {:?}", PARTS.map(|(name, _)| name));
    let mut report = Report::default();
    for (name, part) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part(scale, &mut report);
        }
    }
    report.print();
    assert!(report.failed.is_empty(), "it failed: {:?}", report.failed);
}

/// Lines of the table, and what is not as it must be.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    failed: Vec<String>,
}

impl Report {
    fn part(&mut self, what: &str) {
        println!("{what}");
        self.lines.push(what.to_owned());
    }

    fn figure(&mut self, what: &str, figure: impl Display) {
        let line = format!("  {what:<56} {figure:>14}");
        println!("{line}");
        self.lines.push(line);
    }

    /// How many clients waited for a reply when something happened: with one for each worker, the
    /// pool can do no more.
    #[expect(clippy::cast_precision_loss, reason = "an average for people")]
    fn waiting(&mut self, when: &str, sum: usize, count: usize) {
        self.figure(
            &format!("clients waiting at {when}, for {WORKERS} workers"),
            format!("{:.1}", sum as f64 / count.max(1) as f64),
        );
    }

    fn demand(&mut self, what: &str, holds: bool) {
        if !holds {
            println!("  FAILED: {what}");
            self.failed.push(what.to_owned());
        }
    }

    fn print(&self) {
        println!("\n{}", "-".repeat(73));
        for line in &self.lines {
            println!("{line}");
        }
        for what in &self.failed {
            println!("FAILED: {what}");
        }
    }

    /// The end of a part's load and of its server: what was asked, and that nothing failed. Returns
    /// the log.
    fn end(&mut self, server: Server, load: Load, may_lose: bool) -> (Tally, String) {
        let rate = load.rate();
        let (tally, failures) = load.finish();
        for failure in &failures {
            println!("  {failure}");
        }
        let log = server.stop().stderr;
        self.figure("requests, each reply compared", tally.answered);
        self.figure("requests per second", format!("{rate:.0}"));
        self.figure("failed or stuck", tally.failed);
        self.demand("no request fails", tally.failed == 0);
        if may_lose {
            self.figure("POSTs whose worker died with them (502)", tally.lost);
        } else {
            self.demand("no POST is lost", tally.lost == 0);
        }
        if tally.failed > 0 {
            println!("{log}");
        }
        (tally, log)
    }
}

/// Does something so many times and says from time to time how far it is.
fn rounds(what: &str, count: f64, scale: f64, mut round: impl FnMut()) -> usize {
    const TOLD: Duration = Duration::from_secs(10);
    let count = scaled(count, scale);
    let start = Instant::now();
    let mut told = start;
    for done in 0..count {
        if told.elapsed() > TOLD {
            println!("  {done} of {count} {what}, {:.0?}", start.elapsed());
            told = Instant::now();
        }
        assert!(start.elapsed() < MOST, "{what} take longer than {MOST:?}");
        round();
    }
    println!("  {count} {what}, {:.0?}", start.elapsed());
    count
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small count"
)]
fn scaled(count: f64, scale: f64) -> usize {
    (count * scale).ceil() as usize
}

/// A server under load, and what it does without faults.
fn start(report: &mut Report, more: &str) -> (Server, Load) {
    const CALM: Duration = Duration::from_secs(5);
    let server = Server::start(site(WORKERS, more));
    let load = Load::start(server.address(), clients_for(WORKERS));
    std::thread::sleep(CALM);
    report.figure("requests per second before", format!("{:.0}", load.rate()));
    load.finish();
    let load = Load::start(server.address(), clients_for(WORKERS));
    load.let_all_be_answered();
    (server, load)
}

fn kills(scale: f64, report: &mut Report) {
    report.part("kill -9 of workers, one after the other");
    let (server, load) = start(report, "");
    let mut killer = Killer::new(WORKERS);
    let mut waiting = 0;
    let kills = rounds("kills", KILLS, scale, || {
        waiting += load.waiting();
        killer.kill_one(&server, &load);
    });
    report.waiting("a kill", waiting, kills);
    let (_, log) = report.end(server, load, true);
    let (busy, idle) = deaths(&log);
    report.figure("killed with a call", busy);
    report.figure("killed without", idle);
    report.demand("every kill is reported", busy + idle == kills);
    report.demand(
        "enough kills of busy workers",
        busy >= scaled(BUSY_KILLS, scale),
    );
}

fn reloads(scale: f64, report: &mut Report) {
    report.part("reloads");
    let (server, load) = start(report, "");
    let (mut busy, mut waiting) = (0, 0);
    let reloads = rounds("reloads", RELOADS, scale, || {
        let under_way = reload(&server, &load, WORKERS);
        waiting += under_way;
        busy += usize::from(under_way > 0);
    });
    report.figure("reloads", reloads);
    report.waiting("a reload", waiting, reloads);
    report.figure("reloads with calls under way", busy);
    report.demand(
        "enough reloads with calls",
        busy >= scaled(BUSY_RELOADS, scale),
    );
    rounds("reloads to code that does not boot", 10.0, scale, || {
        reload_to_broken_code(&server, &load);
    });
    report.end(server, load, false);
}

fn upgrades(scale: f64, report: &mut Report) {
    report.part("upgrades");
    let (mut server, load) = start(report, "");
    let mut waiting = 0;
    let upgrades = rounds("upgrades", UPGRADES, scale, || {
        waiting += load.waiting();
        server.upgrade();
        load.let_all_be_answered();
    });
    report.figure("upgrades", upgrades);
    report.waiting("an upgrade", waiting, upgrades);
    report.end(server, load, false);
}

/// A worker dies while its generation is replaced, or its server.
fn deaths_meanwhile(scale: f64, report: &mut Report) {
    report.part("kill -9 of workers during reloads and upgrades");
    let (mut server, load) = start(report, "");
    let mut killer = Killer::new(WORKERS);
    let done = rounds("of each", UPGRADES, scale, || {
        killer.strike_while_replaced(&mut server, &load);
    });
    report.figure("of each", done);
    report.end(server, load, true);
}

fn leaving(scale: f64, report: &mut Report) {
    report.part("clients that leave");
    let server = Server::start(leaving_site(WORKERS));
    let mut left = 0;
    rounds(
        "rounds of clients that leave",
        LEAVING_ROUNDS,
        scale,
        || {
            left += leave_at_every_step(&server, WORKERS);
        },
    );
    report.figure("clients that left on the way", left);
    server.stop();
}

/// Bodies larger than what the server may hold.
fn uploads(scale: f64, report: &mut Report) {
    report.part("uploads");
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of megabytes"
    )]
    let bytes = ((UPLOAD * scale) as usize).max(1) << 20;
    for pool in ["", ", request_body: stream"] {
        let config = format!(
            "version: '3'\nserver:\n  command: php {}\nhttp:\n  address: 127.0.0.1:0\n  max_request_size: 3000\n  \
             pool: {{num_workers: 1{pool}}}\n",
            Site::fixture("bodies.php").display()
        );
        let server = Server::start(Site::new().config(&config));
        let before = server.resident_memory();
        send_raw(&server, bytes);
        if pool.is_empty() {
            send_form(&server, bytes);
        }
        let grown = server.peak_memory() - before;
        report.figure(
            &format!("more memory for {} MB{pool}, KB", bytes >> 20),
            grown,
        );
        report.demand("an upload passes through 8 MB", grown < GROWTH);
        server.stop();
    }
}

/// Recycling, kills and reloads, with an eye on the server's memory.
fn scribbles(scale: f64, report: &mut Report) {
    report.part("Workers that scribble over the memory they share with the server");
    let Scribbles { detected, harmless } =
        scribble(&SCRIBBLES.map(|(calls, each)| (scaled(calls, scale), each)));
    report.figure("scribbles in calls that failed", detected);
    report.figure("scribbles in calls that did not", harmless);
}

fn queue(scale: f64, report: &mut Report) {
    report.part("pipelines in memory, in the store and in Redis; random histories with faults");
    let until = Instant::now() + HISTORIES.mul_f64(scale);
    let (mut histories, mut pushed, mut runs, mut broken) = (0, 0, 0, Vec::new());
    let places = [
        QueueDriver::Memory,
        QueueDriver::Embedded,
        QueueDriver::Redis,
        QueueDriver::Embedded,
    ];
    for (place, workers) in places.into_iter().zip([3, 4, 3, 1]).cycle() {
        if Instant::now() >= until {
            break;
        }
        let plan = Plan::new(place, workers, HISTORY.min(HISTORIES.mul_f64(scale)));
        println!(
            "  {place:?}, {workers} workers: PRONGHORN_QUEUE_SEED={}",
            plan.seed
        );
        let told = plan.run();
        for how in &told.broken {
            println!("    {}: {}", how.promise.name(), how.how);
        }
        histories += 1;
        pushed += told.pushed;
        runs += told.runs;
        broken.extend(told.broken);
    }
    report.figure("histories", histories);
    report.figure("pushes", pushed);
    report.figure("runs of handlers", runs);
    report.figure("promises broken", broken.len());
    report.demand("no history breaks a promise", broken.is_empty());
}

fn jobs(scale: f64, report: &mut Report) {
    report.part("jobs in the store and in Redis; workers, the server and Redis killed at random");
    let [jobs, kills] = JOBS.map(|most| scaled(most, scale));
    let counts = pronghorn_e2e::jobs::kill_at_random(jobs, kills);
    report.figure("jobs whose push was answered", counts.pushed);
    report.figure("jobs that were being pushed at a kill", counts.unanswered);
    report.figure("workers killed", counts.worker_kills);
    report.figure("servers killed", counts.server_kills);
    report.figure("brokers killed", counts.broker_kills);
    report.figure("times that a job ran again", counts.again);
    report.figure("jobs lost", counts.lost.len());
    report.demand("no job is lost", counts.lost.is_empty());
}

fn cache(scale: f64, report: &mut Report) {
    report.part("Storages in shared memory: a model, kills, scribbles, killed workers");
    let [steps, kills, words, workers] = CACHE.map(|most| scaled(most, scale));
    let extension = pronghorn_e2e::ring::extension();
    pronghorn_e2e::cache::compare_with_models(&extension, 4, steps);
    report.figure("steps of each of four processes, as the model", steps);
    pronghorn_e2e::cache::kill_at_random(&extension, kills);
    report.figure("processes killed while they wrote", kills);
    let storages = 20;
    let words = pronghorn_e2e::cache::scribble(&extension, storages, words / storages);
    report.figure("words scribbled, and no process died", words);
    for pool in pronghorn_e2e::cache::POOLS {
        let survived = pronghorn_e2e::cache::kill_workers_at_random(pool, workers);
        report.figure(&format!("workers killed, {pool}"), workers);
        report.figure("requests meanwhile", survived.requests);
        report.figure("increments, none lost or counted twice", survived.sums);
        report.figure("visits of sessions, none lost", survived.visits);
    }
}

fn valgrind(scale: f64, report: &mut Report) {
    report.part("A worker in shared memory under valgrind");
    let rounds = scaled(VALGRIND_ROUNDS, scale);
    let mistakes = under_valgrind(rounds);
    println!("{mistakes}");
    report.figure("rounds of all that it can do", rounds);
    report.demand("valgrind finds no mistake", mistakes.is_empty());
}

fn soak(scale: f64, report: &mut Report) {
    const MINUTE: Duration = Duration::from_secs(60);
    const ROUNDS_PER_RELOAD: usize = 20;
    report.part("soak: recycling by max_jobs and ttl, kills, reloads");
    let (server, load) = start(report, ", max_jobs: 2000, supervisor: {ttl: 20s}");
    let mut killer = Killer::new(WORKERS);
    let start = Instant::now();
    let length = SOAK.mul_f64(scale);
    let minute = MINUTE.min(length / 4);
    // It comes and goes by a MB with the load: what counts is the most of the first minute, and the
    // least of the last.
    let (mut first, mut last) = (0.0_f64, f64::INFINITY);
    let mut told = Duration::ZERO;
    let (mut kills, mut seen) = (0, HashSet::new());
    while start.elapsed() < length {
        killer.kill_one(&server, &load);
        kills += 1;
        if kills % ROUNDS_PER_RELOAD == 0 {
            server.signal(rustix::process::Signal::HUP);
        }
        std::thread::sleep(Duration::from_secs(1));
        seen.extend(server.workers());
        let now = start.elapsed();
        let memory = memory(&server);
        if now <= minute {
            first = first.max(memory);
        }
        if now >= length - minute {
            last = last.min(memory);
        }
        if now >= told + MINUTE / 2 {
            told = now;
            println!(
                "  {now:.0?} of {length:.0?}: {:.1} MB, {kills} kills, {:.0} requests per second",
                memory / 1024.0,
                load.rate()
            );
        }
    }
    report.figure("kills during the soak", kills);
    report.figure(
        "most memory of the first minute, MB",
        format!("{:.2}", first / 1024.0),
    );
    report.figure(
        "least memory of the last, MB",
        format!("{:.2}", last / 1024.0),
    );
    report.demand("memory stays within 2 MB", last - first <= GROWTH);
    let (_, log) = report.end(server, load, true);
    // Who is just being recycled when it is killed is not reported as a death.
    let died = log.matches("worker died").count();
    report.demand("nobody dies but who is killed", died <= kills);
    report.figure("workers seen, one after the other", seen.len());
}

/// Resident, in KB.
fn memory(server: &Server) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
    let status = status.unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let figure = line.and_then(|line| line.trim().strip_suffix(" kB"));
    figure
        .and_then(|figure| figure.parse().ok())
        .unwrap_or_else(|| panic!("no memory in {status:?}"))
}
