//! Jobs in the store and in Redis, while workers, the server and Redis are killed at random.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use pronghorn_testkit::{Engine, Server, Site};
use pronghorn_wire::frame::Flags;
use rustix::process::{Pid, Signal, kill_process};

use crate::rpc::Rpc;

const WORKERS: usize = 4;
/// One kill in so many is the server's, and one the broker's.
const OTHERS: u64 = 10;
const PIPELINES: [&str; 2] = ["kept", "shared"];
/// For the jobs that are left at the end.
const PATIENCE: Duration = Duration::from_mins(10);

/// What came of a run.
#[derive(Debug, Default)]
pub struct Counts {
    /// Jobs whose push was answered.
    pub pushed: usize,
    /// Jobs that were pushed when the server or the broker was killed: they are there or not.
    pub unanswered: usize,
    pub worker_kills: usize,
    pub server_kills: usize,
    pub broker_kills: usize,
    /// Times that a job ran again, because its end was not noted.
    pub again: usize,
    /// Pushed and answered, and never run.
    pub lost: Vec<String>,
}

/// Pushes so many jobs, and kills in between.
///
/// # Panics
///
/// When the server does not start, or jobs are left for long.
pub fn kill_at_random(jobs: usize, kills: usize) -> Counts {
    let mut counts = Counts::default();
    let mut random = u64::from(std::process::id());
    let mut broker = broker();
    let mut server = Server::start(site(broker.port()));
    let mut rpc = Rpc::connect(&server);
    let batch = jobs.div_ceil(kills.max(1));
    let mut pushed = BTreeSet::new();
    for number in 0..kills {
        let ids: Vec<_> = (0..batch).map(|job| format!("{number}-{job}")).collect();
        let request = push_request(&ids, PIPELINES[number % PIPELINES.len()]);
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let which = (random >> 33) % OTHERS;
        if which == 0 && number != kills / 2 {
            rpc.send(Flags::JSON, "jobs.PushBatch", request.as_bytes());
            server = Server::start(server.killed());
            rpc = Rpc::connect(&server);
            counts.server_kills += 1;
            counts.unanswered += ids.len();
            continue;
        }
        // Once at least, in a short run as well.
        if which == 1 || number == kills / 2 {
            broker.stop();
            broker.restart();
            counts.broker_kills += 1;
        }
        match &*rpc.call("jobs.PushBatch", &request) {
            "{}" => pushed.extend(ids),
            refused => {
                // The broker may have kept them, or was about to come back.
                assert!(refused.contains("the Redis at "), "{refused}");
                counts.unanswered += ids.len();
            }
        }
        if which > 1 && kill_a_worker(&mut rpc, random >> 40) {
            counts.worker_kills += 1;
        }
    }
    wait_until_empty(&mut rpc);
    let ran = runs(&server);
    server.stop();
    counts.pushed = pushed.len();
    counts.again = ran.values().map(|times| times - 1).sum();
    let lost = pushed.into_iter().filter(|id| !ran.contains_key(id));
    counts.lost = lost.collect();
    counts
}

/// One that has on its disk what it has answered.
fn broker() -> Engine {
    Engine::redis(&["--appendonly", "yes", "--appendfsync", "always"])
}

/// Whether there was one.
fn kill_a_worker(rpc: &mut Rpc, random: u64) -> bool {
    let mut workers = rpc.pids("jobs");
    // One that boots has no number yet.
    workers.retain(|pid| *pid > 0);
    let at = usize::try_from(random).unwrap_or_default();
    let victim = workers.get(at % workers.len().max(1));
    let pid = victim.and_then(|pid| Pid::from_raw(i32::try_from(*pid).ok()?));
    if let Some(pid) = pid {
        // It may have been replaced at this moment.
        _ = kill_process(pid, Signal::KILL);
    }
    pid.is_some()
}

/// How often each job has run.
fn runs(server: &Server) -> BTreeMap<String, usize> {
    let mut ran = BTreeMap::<String, usize>::new();
    let text = fs::read_to_string(server.site().path("ran")).unwrap_or_default();
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once(r#"{"id":""#)
            && let Some((id, _)) = rest.split_once('"')
        {
            *ran.entry(id.to_owned()).or_default() += 1;
        }
    }
    ran
}

fn site(broker: u16) -> Site {
    let site = Site::new();
    let ran = site.path("ran");
    site.config(&format!(
        "version: '3'\n\
         server: {{command: php {}, env: {{RAN: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, command: php {}}}}}\n\
         rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         state_dir: state\n\
         logs: {{level: debug}}\n\
         jobs:\n  \
           pool: {{num_workers: {WORKERS}}}\n  \
           consume: [kept, shared]\n  \
           pipelines:\n    \
             kept: {{driver: embedded, retry: {{max: 1000, backoff: [0s]}}}}\n    \
             shared: {{driver: redis, retry: {{max: 1000, backoff: [0s]}}, config: \
             {{addr: 'redis://127.0.0.1:{broker}', claim_after: 10s}}}}\n",
        Site::fixture("jobs.php").display(),
        ran.display(),
        Site::fixture("foreign/worker.php").display(),
    ))
}

fn push_request(ids: &[String], pipeline: &str) -> String {
    let mut jobs = String::new();
    for id in ids {
        let separator = if jobs.is_empty() { "" } else { "," };
        // A string takes all.
        _ = write!(
            jobs,
            r#"{separator}{{"job":"ping","id":"{id}","options":{{"pipeline":"{pipeline}"}}}}"#
        );
    }
    format!(r#"{{"jobs":[{jobs}]}}"#)
}

fn wait_until_empty(rpc: &mut Rpc) {
    let since = Instant::now();
    let empty = PIPELINES.map(|name| format!(r#""queue":"{name}","ready":true"#));
    let is_empty = |stats: &str| empty.iter().all(|empty| stats.contains(empty));
    while !is_empty(&rpc.call("jobs.Stat", "{}")) {
        assert!(
            since.elapsed() < PATIENCE,
            "jobs are left: {}",
            rpc.call("jobs.Stat", "{}")
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
