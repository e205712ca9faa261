//! Upgrades one after another while jobs run: processes that hand over before the one before them
//! has ended, and processes that are killed in between. At fixed seeds, and at others in `make
//! weekly`.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "processes run in real time"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use pronghorn_e2e::queue::{self, DISK, base64};
use pronghorn_e2e::rpc::Rpc;
use pronghorn_testkit::{Engine, Server, Site, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const STEPS: usize = 8;
/// In milliseconds: most outlive some upgrades.
const LONGEST_JOB: u32 = 6000;

const STORE: &str = "driver: embedded";

fn in_redis(redis: &Engine) -> String {
    let port = redis.port();
    format!("driver: redis, config: {{addr: 'redis://127.0.0.1:{port}', claim_after: 10s}}")
}

/// The driver of the pipeline that is there besides the one in memory.
fn site(kept: &str) -> Site {
    let site = Site::new();
    let ran = site.path("ran");
    site.config(&format!(
        "version: '3'\n\
         server: {{command: php {}, env: {{RAN: '{}'}}}}\n\
         http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, command: php {}}}}}\n\
         rpc: {{listen: 'tcp://127.0.0.1:0'}}\n\
         state_dir: state\n\
         logs: {{level: debug}}\n\
         kv: {{stored: {{driver: embedded}}}}\n\
         jobs:\n  \
           pool: {{num_workers: 6}}\n  \
           consume: [kept, mail]\n  \
           schedules:\n    \
             tick: {{every: 1s, job: tick, pipeline: kept, payload: '1500'}}\n  \
           pipelines:\n    \
             kept: {{{kept}}}\n    \
             mail: {{driver: memory}}\n",
        Site::fixture("chain.php").display(),
        ran.display(),
        Site::fixture("foreign/worker.php").display(),
    ))
}

struct Chain {
    /// None for a moment.
    server: Option<Server>,
    rpc: Rpc,
    random: fastrand::Rng,
    first: u32,
    newest: u32,
    killed: BTreeSet<u32>,
    pushed: Vec<String>,
    /// With keys for `unique`: of each only one may be there at a time.
    keys: usize,
    /// In the store; brokers take none.
    has_batches: bool,
}

/// What a worker noted of a job.
#[derive(Debug, Default)]
struct Runs {
    /// The server processes whose workers began it.
    began: Vec<u32>,
    ended: Vec<u32>,
    /// Those that found it running.
    beside: Vec<u32>,
}

impl Chain {
    fn start(seed: u64, kept: &str) -> Self {
        let server = Server::start(site(kept));
        Self {
            rpc: Rpc::connect(&server),
            first: server.pid(),
            newest: server.pid(),
            server: Some(server),
            random: fastrand::Rng::with_seed(seed),
            killed: BTreeSet::new(),
            pushed: Vec::new(),
            keys: 0,
            has_batches: kept == STORE,
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it is there")
    }

    fn job(&mut self, pipeline: &str, id: &str) -> Value {
        let takes = self.random.u32(0..LONGEST_JOB).to_string();
        let payload = base64(takes.as_bytes());
        let delay = u32::from(self.random.u32(0..5) == 0);
        self.pushed.push(id.to_owned());
        let mut headers = json!({});
        if self.random.u32(0..3) == 0 {
            self.keys += 1;
            headers["pronghorn-unique"] = json!({"value": [format!("key-{}", self.keys)]});
        }
        json!({
            "job": "work", "id": id, "payload": payload, "headers": headers,
            "options": {"pipeline": pipeline, "delay": delay},
        })
    }

    fn push(&mut self, step: usize) {
        for number in 0..self.random.usize(1..4) {
            let pipeline = ["kept", "kept", "mail"][self.random.usize(0..3)];
            let id = format!("{pipeline}-{step}-{number}");
            let job = self.job(pipeline, &id);
            let said = self.rpc.call("jobs.Push", &json!({"job": job}).to_string());
            assert_eq!(said, "{}", "{id}");
        }
        if self.random.u32(0..3) == 0 && self.has_batches {
            let parts: Vec<_> = (0..2)
                .map(|part| self.job("kept", &format!("kept-{step}-part-{part}")))
                .collect();
            let last = self.job("kept", &format!("kept-{step}-last"));
            let batch = json!({"jobs": parts, "then": last});
            let said = self.rpc.call("jobs.Batch", &batch.to_string());
            assert!(!said.starts_with("error"), "{said}");
        }
    }

    fn upgrade(&mut self) {
        let taken = |server: &Server| server.log().matches("this process has taken over").count();
        let (known, before) = (self.server().serving(), taken(self.server()));
        rustix::process::set_child_subreaper(Pid::from_raw(1)).expect("Linux has it");
        kill_process(pid_of(self.newest), Signal::USR2).expect("it lives");
        let new = wait_for("the next process", || {
            let mut serving = self.server().serving().into_iter();
            serving.find(|pid| !known.contains(pid))
        });
        self.newest = new;
        wait_for("it to take over", || {
            (taken(self.server()) > before).then_some(())
        });
        self.rpc = Rpc::connect(self.server());
    }

    /// Any of the processes that are there.
    fn kill(&mut self) {
        let serving = self.server().serving();
        let victim = serving[self.random.usize(0..serving.len())];
        // It may have ended.
        _ = kill_process(pid_of(victim), Signal::KILL);
        self.killed.insert(victim);
        if victim == self.newest {
            let server = self.server.take().expect("it is there");
            let server = server.started_again();
            self.rpc = Rpc::connect(&server);
            (self.first, self.newest) = (server.pid(), server.pid());
            self.server = Some(server);
        }
    }

    /// Waits until all that was pushed has ended, and all processes but one.
    fn come_to_rest(&mut self) {
        let left = |rpc: &mut Rpc| {
            let said = rpc.call("jobs.Overview", "{}");
            let said: Value = serde_json::from_str(&said).expect("JSON");
            let rows = said["pipelines"].as_array().cloned().unwrap_or_default();
            let keys = ["ready", "delayed", "reserved"];
            let counts = rows
                .iter()
                .flat_map(|row| keys.map(|key| row[key].as_u64()));
            counts.flatten().sum::<u64>()
        };
        let said = self.rpc.call("schedules.Pause", r#"{"name":"tick"}"#);
        assert!(!said.starts_with("error"), "{said}");
        let mut none_since = Instant::now();
        wait_for("all jobs to end", || {
            let batches = self.rpc.call("jobs.Batches", "{}");
            if left(&mut self.rpc) > 0 || batches.contains("\"id\"") {
                none_since = Instant::now();
            }
            let is_alone = self.server().serving().len() == 1;
            (is_alone && none_since.elapsed() > Duration::from_secs(1)).then_some(())
        });
        let (first, newest) = (self.first, self.newest);
        let own = format!("PPid:\t{}\n", std::process::id());
        wait_for("it to be a child of this one", || {
            let status = fs::read_to_string(format!("/proc/{newest}/status"));
            status.is_ok_and(|it| it.contains(&own)).then_some(())
        });
        let was_killed = self.killed.contains(&first);
        if let Some(server) = self.server.as_mut().filter(|_| first != newest) {
            if was_killed {
                server.follow_killed();
            } else {
                server.follow_upgrade();
            }
        }
    }

    fn runs(&self) -> BTreeMap<String, Runs> {
        let ran = fs::read_to_string(self.server().site().path("ran")).unwrap_or_default();
        let mut runs = BTreeMap::<String, Runs>::new();
        for line in ran.lines() {
            let event: Value = serde_json::from_str(line).expect("JSON");
            let id = event["id"].as_str().expect("it has one").to_owned();
            let server = event["server"].as_u64().expect("it has one");
            let server = u32::try_from(server).expect("a number of a process");
            let runs = runs.entry(id).or_default();
            match event["event"].as_str() {
                Some("began") => {
                    runs.began.push(server);
                    if event["alone"] == false {
                        runs.beside.push(server);
                    }
                }
                _ => runs.ended.push(server),
            }
        }
        runs
    }

    /// What was broken.
    fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let all = self.runs();
        for (id, runs) in &all {
            let was_killed = runs.began.iter().any(|of| self.killed.contains(of));
            if !runs.beside.is_empty() && !was_killed {
                broken.push(format!("{id} ran twice at once: {runs:?}"));
            }
            if runs.began.len() != 1 && self.killed.is_empty() {
                broken.push(format!("{id} began more than once: {runs:?}"));
            }
        }
        for id in &self.pushed {
            let ended = all.get(id).map_or(0, |runs| runs.ended.len());
            let may_be_lost = id.starts_with("mail") && !self.killed.is_empty();
            if ended == 0 && !may_be_lost {
                broken.push(format!("{id} did not come to its end"));
            }
        }
        broken
    }
}

#[expect(clippy::print_stdout, reason = "what a history is made again by")]
fn chain(seed: u64, kills: bool, kept: &str) {
    println!("PRONGHORN_QUEUE_SEED={seed}");
    let mut chain = Chain::start(seed, kept);
    for step in 0..STEPS {
        chain.push(step);
        let pause = chain.random.u64(0..1200);
        std::thread::sleep(Duration::from_millis(pause));
        if kills && chain.random.u32(0..3) == 0 {
            chain.kill();
        } else {
            chain.upgrade();
        }
    }
    chain.come_to_rest();
    let broken = chain.broken();
    let server = chain.server.take().expect("it is there");
    println!(
        "{} pushed, {} killed",
        chain.pushed.len(),
        chain.killed.len()
    );
    let log = if broken.is_empty() {
        String::new()
    } else {
        server.log()
    };
    server.stop();
    assert!(broken.is_empty(), "seed {seed}: {broken:#?}\n{log}");
}

fn any_seed() -> u64 {
    let seed = std::env::var("PRONGHORN_QUEUE_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| fastrand::u64(0..1_000_000))
}

fn pid_of(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).expect("it is not 0")
}

/// The disk fails from before the upgrade until after the process before has left the store.
#[test]
fn a_store_that_cannot_be_opened_after_an_upgrade_is_tried_again() {
    let mut server = queue::start(site(STORE));
    let mut rpc = Rpc::connect(&server);
    let push = |rpc: &mut Rpc, pipeline: &str, id: &str, delay: u8| {
        let job = json!({
            "job": "work", "id": id, "payload": base64(b"0"), "headers": {},
            "options": {"pipeline": pipeline, "delay": delay},
        });
        rpc.call("jobs.Push", &json!({"job": job}).to_string())
    };
    assert_eq!(push(&mut rpc, "kept", "before", 2), "{}");
    let error = rustix::io::Errno::IO.raw_os_error().to_string();
    server.site().replace(DISK, &error);
    server.ask_for_upgrade();
    server.logged(&["the pipeline can't be opened, and is tried again"]);
    server.logged(&["schedules can't be read, so none runs until they can"]);
    server.logged(&["the store can't be opened, and is tried again"]);
    let mut rpc = Rpc::connect(&server);
    let said = push(&mut rpc, "KEPT", "meanwhile", 0);
    let why = "pipeline kept is not ready: it is not open yet: ";
    assert!(said.contains(why) && said.contains("os error 5"), "{said}");
    let said = push(&mut rpc, "kepd", "meanwhile", 0);
    let meant = "no such pipeline, requested: kepd; did you mean `kept`? There are: `kept`, `mail`";
    assert!(said.contains(meant), "{said}");
    assert_eq!(push(&mut rpc, "mail", "mail", 0), "{}");
    let status = server.steer(&["status"]);
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(status.stdout.contains("not ready: "), "{status:?}");
    assert!(
        status.stdout.contains("store.redb can't be opened: "),
        "{status:?}"
    );

    server.site().replace(DISK, "0");
    wait_for("the pipeline to be open", || {
        (push(&mut rpc, "kept", "after", 0) == "{}").then_some(())
    });
    server.logged(&["the pipeline is open"]);
    server.logged(&["schedules are read"]);
    let ticks = || {
        let ran = server.site().read("ran");
        let ended = |id: &str| ran.contains(&format!(r#""ended","id":"{id}"#));
        ["before", "after", "mail", "tick"].into_iter().all(ended)
    };
    wait_for("all that was pushed to run", || ticks().then_some(()));
    assert_eq!(server.steer(&["status"]).code, Some(0));
    server.follow_upgrade();
    server.stop();
}

#[test]
fn jobs_run_once_over_a_chain_of_upgrades() {
    chain(1, false, STORE);
}

#[test]
fn jobs_of_a_chain_of_which_processes_are_killed_run_and_never_twice_at_once() {
    chain(2, true, STORE);
}

#[test]
fn jobs_in_redis_run_once_over_a_chain_of_upgrades() {
    let redis = Engine::redis(&[]);
    chain(3, false, &in_redis(&redis));
}

#[test]
#[ignore = "a history is another one each time: make weekly"]
fn jobs_run_once_over_any_chain_of_upgrades() {
    chain(any_seed(), false, STORE);
}

#[test]
#[ignore = "a history is another one each time: make weekly"]
fn jobs_of_any_chain_of_which_processes_are_killed_run_and_never_twice_at_once() {
    chain(any_seed(), true, STORE);
}

#[test]
#[ignore = "a history is another one each time: make weekly"]
fn jobs_in_redis_run_over_any_chain_of_which_processes_are_killed_and_never_twice_at_once() {
    let redis = Engine::redis(&[]);
    chain(any_seed(), true, &in_redis(&redis));
}
