//! Random histories of pipelines, and what they break: real servers and workers, producers that
//! push whatever can be pushed, an operator, and faults.
//!
//! - `promises`: what a pipeline promises, for any history.

pub mod promises;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use pronghorn_testkit::{Engine, Server, Site, free_address, wait_for};
use pronghorn_wire::frame::{Flags, Header, Options, Stream};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use self::promises::{
    Broken, Cancel, Event, Fault, Job, LONGEST_JUMP, ON_ITS_WAY, Outcome, Pushed, Rules, Span,
    Time, broken,
};

/// A job that fails has so many attempts.
const ATTEMPTS: u32 = 3;
const PRODUCERS: usize = 2;
/// For the jobs that are left at the end.
const PATIENCE: Duration = Duration::from_mins(2);
/// For the last jobs of batches. A batch whose push was broken off by a kill may stay: the server
/// can't know that nobody pushes the rest.
const FOR_LAST_JOBS: Duration = Duration::from_secs(20);
/// For an answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Most jobs are in `p`; few may begin in `slow`; `passing` is declared and destroyed.
const PIPELINES: [&str; 3] = ["p", "slow", "passing"];
/// The rate of `slow`.
const RATE: (usize, Duration) = (6, Duration::from_secs(3));
/// Its jobs have IDs of jobs in `p`, as whoever may push chooses them. They are not in the history.
const TWIN: &str = "twin";
/// The age at which some jobs expire.
const EXPIRES: Duration = Duration::from_secs(1);
/// Runs every other second.
const SCHEDULE: &str = "tick";
/// The errors of a disk that is full, or broken.
const ERRORS_OF_DISKS: [Errno; 2] = [Errno::NOSPC, Errno::IO];
/// The file that says which error the disk has, and the one that says how far the clock is off.
pub const DISK: &str = "disk";
const CLOCK: &str = "clock";

/// Where the jobs of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueDriver {
    Memory,
    Embedded,
    Redis,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub place: QueueDriver,
    pub workers: usize,
    pub lasts: Duration,
    /// Gives the same pushes, calls and faults, if not at the same moments.
    pub seed: u64,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    pub pushed: usize,
    pub runs: usize,
    pub faults: BTreeMap<String, usize>,
    pub broken: Vec<Broken>,
    /// All that is known of the first job that something is broken for, and all faults.
    pub about: Vec<Event>,
}

impl Plan {
    /// At the seed of the environment, or another one each time.
    pub fn new(place: QueueDriver, workers: usize, lasts: Duration) -> Self {
        let seed = std::env::var("PRONGHORN_QUEUE_SEED");
        let seed = seed.ok().and_then(|seed| seed.parse().ok());
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let any = since.unwrap_or_default().subsec_nanos();
        Self {
            place,
            workers,
            lasts,
            seed: seed.unwrap_or_else(|| u64::from(any)),
        }
    }

    fn rules(&self, pipeline: &str) -> Rules {
        Rules {
            rate: (pipeline == "slow").then_some(RATE),
            attempts: ATTEMPTS,
            is_kept: self.place != QueueDriver::Memory,
            is_ours: self.place != QueueDriver::Redis,
            at_a_time: self.workers,
        }
    }

    /// Makes a history and looks for what it breaks.
    ///
    /// # Panics
    ///
    /// When the server does not start or stop.
    pub fn run(self) -> Report {
        let broker = (self.place == QueueDriver::Redis)
            .then(|| Engine::redis(&["--appendonly", "yes", "--appendfsync", "always"]));
        let address = free_address().to_string();
        let server = start(self.site(broker.as_ref().map(Engine::port), &address));
        let run = Arc::new(Run {
            address,
            history: Mutex::default(),
            ids: Mutex::default(),
            is_over: AtomicBool::new(false),
            begin: SystemTime::now(),
        });
        let mut random = Random(self.seed);
        let mut others = Vec::new();
        for number in 0..PRODUCERS {
            let (run, random) = (run.clone(), Random(random.next()));
            others.push(thread::spawn(move || produce(&run, number, random)));
        }
        let (operated, operators) = (run.clone(), Random(random.next()));
        others.push(thread::spawn(move || operate(&operated, self, operators)));
        let (server, broker) = self.break_things(&run, server, broker, &mut random);
        run.is_over.store(true, Ordering::SeqCst);
        for other in others {
            other.join().expect("no panic");
        }
        run.come_to_rest(self.declares());
        let ran = fs::read_to_string(server.site().path("ran")).unwrap_or_default();
        server.stop();
        drop(broker);
        self.report(&run, &ran)
    }

    fn report(self, run: &Run, ran: &str) -> Report {
        let mut history = std::mem::take(&mut *lock(&run.history));
        let ran: Vec<Event> = ran.lines().filter_map(|line| run.event(line)).collect();
        history.extend(run.scheduled(&ran));
        history.extend(ran);
        let mut report = Report {
            broken: broken(&history, &|pipeline| self.rules(pipeline)),
            ..Report::default()
        };
        for event in &history {
            match event {
                Event::Push(..) => report.pushed += 1,
                Event::Began { .. } => report.runs += 1,
                Event::Fault(fault, _) => {
                    *report.faults.entry(format!("{fault:?}")).or_default() += 1;
                }
                _ => {}
            }
        }
        if let Some(first) = report.broken.first() {
            let id = first
                .how
                .split([' ', ':', ',', ';'])
                .next()
                .unwrap_or_default()
                .to_owned();
            // With the parts of its batch, if it is the last one.
            let is_of_it = |of: &str| {
                let rest = of.strip_prefix(&*id);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            history.retain(|event| match event {
                Event::Push(job, ..) => is_of_it(&job.id),
                Event::Began { id, .. } | Event::Ended { id, .. } | Event::Cancelled(id, ..) => {
                    is_of_it(id)
                }
                _ => true,
            });
            report.about = history;
        }
        report
    }

    /// Pipelines come and go while it runs. Those in memory would take their jobs with them.
    fn declares(self) -> bool {
        self.place == QueueDriver::Embedded
    }

    fn site(self, broker: Option<u16>, address: &str) -> Site {
        let site = Site::new();
        let ran = site.path("ran");
        let driver = match (self.place, broker) {
            (QueueDriver::Memory, _) => "driver: memory".to_owned(),
            (QueueDriver::Redis, Some(port)) => format!(
                "driver: redis, config: {{addr: 'redis://127.0.0.1:{port}', claim_after: 10s}}"
            ),
            _ => "driver: embedded".to_owned(),
        };
        let (jobs, per) = RATE;
        let site = site.file(CLOCK, "0").file(DISK, "0");
        site.config(&format!(
            "version: '3'\n\
             server: {{command: php {}, env: {{RAN: '{}', LD_PRELOAD: ''}}}}\n\
             http: {{address: 127.0.0.1:0, pool: {{num_workers: 1, command: php {}}}}}\n\
             rpc: {{listen: 'tcp://{address}'}}\n\
             state_dir: state\n\
             logs: {{level: debug}}\n\
             jobs:\n  \
               pool: {{num_workers: {}}}\n  \
               consume: [p, slow, {TWIN}]\n  \
               schedules:\n    \
                 {SCHEDULE}: {{every: 2s, job: work, pipeline: p, payload: '1'}}\n  \
               pipelines:\n    \
                 p: {{{driver}, retry: {{max: {ATTEMPTS}, backoff: [0s, 200ms]}}}}\n    \
                 {TWIN}: {{driver: embedded, retry: {{max: 1}}}}\n    \
                 slow: {{{driver}, rate: {{jobs: {jobs}, per: {}s}}, \
                   retry: {{max: {ATTEMPTS}, backoff: [0s, 200ms]}}}}\n",
            Site::fixture("model.php").display(),
            ran.display(),
            Site::fixture("foreign/worker.php").display(),
            self.workers,
            per.as_secs(),
        ))
    }

    /// Until the time of the run is over.
    fn break_things(
        self,
        run: &Run,
        mut server: Server,
        mut broker: Option<Engine>,
        random: &mut Random,
    ) -> (Server, Option<Engine>) {
        let until = Instant::now() + self.lasts;
        while Instant::now() < until {
            thread::sleep(Duration::from_millis(random.below(700)));
            let sent = run.now();
            let fault = match random.below(15) {
                0 => {
                    server = start(server.killed());
                    Fault::ServerKilled
                }
                1 | 2 => {
                    server.upgrade();
                    Fault::Handover
                }
                3 => {
                    server.signal(Signal::HUP);
                    Fault::Handover
                }
                4 => {
                    server.signal(Signal::STOP);
                    thread::sleep(Duration::from_millis(300));
                    server.signal(Signal::CONT);
                    Fault::Stopped
                }
                5 | 6 if broker.is_some() => {
                    if let Some(broker) = &mut broker {
                        broker.stop();
                        broker.restart();
                    }
                    Fault::BrokerKilled
                }
                7 | 8 if self.place == QueueDriver::Embedded => {
                    run.break_disk(server.site(), random);
                    Fault::Disk
                }
                9 => {
                    let most = 2 * LONGEST_JUMP.as_secs() + 1;
                    let off = i128::from(random.below(most)) - i128::from(LONGEST_JUMP.as_secs());
                    server.site().replace(CLOCK, &off.to_string());
                    Fault::ClockSet
                }
                kind => {
                    let Some(victim) = run.worker(random.next()) else {
                        continue;
                    };
                    if kind < 12 {
                        // It may be gone by now.
                        _ = kill_process(victim, Signal::KILL);
                        Fault::WorkerKilled
                    } else {
                        _ = kill_process(victim, Signal::STOP);
                        thread::sleep(Duration::from_millis(200));
                        _ = kill_process(victim, Signal::CONT);
                        Fault::Stopped
                    }
                }
            };
            run.note(Event::Fault(fault, run.since(sent)));
        }
        (server, broker)
    }
}

/// With a clock that can be set, and a disk that can fail. Its workers have neither.
///
/// # Panics
///
/// When it does not come up.
pub fn start(site: Site) -> Server {
    let library = site.path("faults.so");
    if !library.exists() {
        let compiler = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(Site::fixture("faults.c"))
            .status();
        assert!(compiler.expect("there is a compiler").success());
    }
    let files = [library, site.path(CLOCK), site.path(DISK)];
    let files = files.map(|file| file.to_str().expect("a text").to_owned());
    let names = ["LD_PRELOAD", "CLOCK_OFF", "STORE_FAULT"];
    let environment: Vec<_> = names
        .into_iter()
        .zip(files.iter().map(|it| &**it))
        .collect();
    Server::start_with_environment(site, &["serve"], &environment)
}

/// The state that the threads of a run share.
struct Run {
    address: String,
    history: Mutex<Vec<Event>>,
    /// The jobs that were pushed lately.
    ids: Mutex<Vec<String>>,
    is_over: AtomicBool,
    /// By the clock that PHP has as well. Nobody sets it while tests run.
    begin: SystemTime,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    fn now(&self) -> Time {
        self.begin.elapsed().unwrap_or_default()
    }

    fn since(&self, sent: Time) -> Span {
        let answered = self.now();
        Span { sent, answered }
    }

    fn note(&self, event: Event) {
        lock(&self.history).push(event);
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::SeqCst)
    }

    /// The note of a worker. None for a line that was cut by its end.
    fn event(&self, line: &str) -> Option<Event> {
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| line.get(key)?.as_str().map(ToOwned::to_owned);
        let at: f64 = text("at")?.parse().ok()?;
        let begin = self.begin.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let at = Duration::from_secs_f64(at).saturating_sub(begin);
        let id = text("id")?;
        let attempt = u32::try_from(line.get("attempt")?.as_u64()?).ok()?;
        Some(match &*text("event")? {
            "began" => Event::Began {
                id,
                pipeline: text("pipeline")?,
                payload: text("payload")?,
                attempt,
                at,
            },
            _ => Event::Ended {
                id,
                attempt,
                at,
                outcome: match &*text("outcome")? {
                    "failed" => Outcome::Failed,
                    _ => Outcome::Done,
                },
            },
        })
    }

    fn worker(&self, random: u64) -> Option<Pid> {
        let list = Client::new(&self.address).call("informer.Workers", &json!("jobs"));
        let list = list.ok()?.ok()?;
        let workers = list.get("workers")?.as_array()?;
        let at = usize::try_from(random).unwrap_or(0) % workers.len().max(1);
        let pid = workers.get(at)?.get("pid")?.as_i64()?;
        Pid::from_raw(i32::try_from(pid).ok()?)
    }

    /// The pushes of a schedule: its IDs say when each run was due.
    fn scheduled(&self, ran: &[Event]) -> Vec<Event> {
        let begin = self.begin.duration_since(SystemTime::UNIX_EPOCH);
        let begin = begin.unwrap_or_default();
        let mut due = BTreeMap::new();
        for event in ran {
            if let Event::Began { id, payload, .. } = event
                && let Some(at) = id
                    .strip_prefix(SCHEDULE)
                    .and_then(|at| at.strip_prefix('-'))
                && let Ok(at) = at.parse()
            {
                due.insert(id, (Duration::from_millis(at), payload));
            }
        }
        let push = |(id, (at, payload)): (&String, (Duration, &String))| {
            let job = Job {
                id: id.clone(),
                pipeline: "p".to_owned(),
                payload: payload.clone(),
                ..Job::default()
            };
            let sent = at.saturating_sub(begin + LONGEST_JUMP);
            let answered = at.saturating_sub(begin) + LONGEST_JUMP;
            Event::Push(job, Span { sent, answered }, Pushed::Unknown)
        };
        due.into_iter().map(push).collect()
    }

    /// Until the store works again, as a push shows.
    fn break_disk(&self, site: &Site, random: &mut Random) {
        let error = ERRORS_OF_DISKS[usize::from(random.below(2) == 0)];
        let only_syncs = if random.below(2) == 0 { "-" } else { "" };
        site.replace(DISK, &format!("{only_syncs}{}", error.raw_os_error()));
        thread::sleep(Duration::from_millis(100 + random.below(900)));
        site.replace(DISK, "0");
        let mut client = Client::new(&self.address);
        let (mark, mut number) = (random.next(), 0);
        wait_for("the store to work again", || {
            number += 1;
            let id = format!("disk-{mark}-{number}");
            let message = json!({
                "job": "work", "id": id, "payload": base64(b"0"), "options": {"pipeline": "p"},
            });
            let job = Job {
                id: id.clone(),
                pipeline: "p".to_owned(),
                payload: "0".to_owned(),
                ..Job::default()
            };
            let sent = self.now();
            let said = client.call("jobs.Push", &json!({"job": message}));
            let pushed = outcome_alone(&said, &id);
            let is_kept = pushed == Pushed::Kept;
            self.note(Event::Push(job, self.since(sent), pushed));
            is_kept.then_some(())
        });
    }

    fn declare(&self, client: &mut Client) {
        let sent = self.now();
        let pipeline = json!({"name": "passing", "driver": "embedded"});
        // It may be there.
        _ = client.call("jobs.Declare", &json!({"pipeline": pipeline}));
        _ = client.call("jobs.Resume", &json!({"pipelines": ["passing"]}));
        self.note(Event::Declared("passing".to_owned(), self.since(sent)));
    }

    /// Waits for all jobs, and notes what there is then.
    fn come_to_rest(&self, declares: bool) {
        let mut client = Client::new(&self.address);
        let resumed = client.call("jobs.Resume", &json!({"pipelines": ["p"]}));
        resumed.expect("the server is there").expect("there is `p`");
        if declares {
            self.declare(&mut client);
        }
        let (since, mut none_since) = (Instant::now(), Instant::now());
        // Jobs in memory are in no pipeline while they move to another process.
        let (left, batches) = loop {
            let rows = client.call("jobs.Overview", &json!({}));
            let rows = rows.expect("the server is there").expect("it says");
            let rows = rows["pipelines"].as_array().cloned().unwrap_or_default();
            let count = |row: &Value, key: &str| row[key].as_u64().unwrap_or(0);
            let batches = client.call("jobs.Batches", &json!({}));
            let batches = batches.expect("the server is there").expect("it says");
            let batches = batches["batches"].as_array().cloned().unwrap_or_default();
            let batches = batches.iter().filter_map(|it| it["id"].as_str());
            let batches: BTreeSet<String> = batches.map(ToOwned::to_owned).collect();
            let left: BTreeMap<String, u64> = rows
                .iter()
                .map(|row| {
                    let name = row["pipeline"].as_str().unwrap_or_default().to_owned();
                    let keys = ["ready", "delayed", "reserved"];
                    (name, keys.iter().map(|key| count(row, key)).sum())
                })
                .collect();
            let is_left = left.values().any(|count| *count > 0);
            if is_left || !batches.is_empty() && since.elapsed() < FOR_LAST_JOBS {
                none_since = Instant::now();
            }
            if none_since.elapsed() > ON_ITS_WAY || since.elapsed() > PATIENCE {
                break (left, batches);
            }
            thread::sleep(Duration::from_millis(50));
        };
        // The last handler's line is there before its end is noted.
        let mut dead = BTreeSet::new();
        for pipeline in PIPELINES {
            let letters = client.call("jobs.DeadLetters", &json!({"pipeline": pipeline}));
            let letters = letters.expect("the server is there").unwrap_or_default();
            assert!(
                letters["more"].as_u64().unwrap_or(0) == 0,
                "too many dead letters are listed"
            );
            let letters = letters["letters"].as_array().cloned().unwrap_or_default();
            let ids = letters.iter().filter_map(|letter| letter["id"].as_str());
            dead.extend(ids.map(ToOwned::to_owned));
        }
        self.note(Event::Rest {
            left,
            dead,
            batches,
        });
    }
}

fn produce(run: &Run, producer: usize, mut random: Random) {
    let mut client = Client::new(&run.address);
    let mut number = 0;
    while run.goes_on() {
        number += 1;
        let id = format!("{producer}-{number}");
        match random.below(100) {
            0..4 => push_batch(run, &mut client, &id, &mut random),
            4 => push(run, &mut client, &id, "slow", &mut random),
            5..8 => push(run, &mut client, &id, "passing", &mut random),
            _ => push(run, &mut client, &id, "p", &mut random),
        }
        thread::sleep(Duration::from_millis(random.below(15)));
    }
}

fn any_job(id: &str, pipeline: &str, random: &mut Random) -> (Job, Value) {
    let mut job = Job {
        id: id.to_owned(),
        pipeline: pipeline.to_owned(),
        payload: random.below(12).to_string(),
        priority: i64::try_from(random.below(3)).unwrap_or(0) + 1,
        delay: Duration::from_secs(u64::from(random.below(10) == 0)),
        ..Job::default()
    };
    let mut headers = json!({});
    if random.below(20) == 0 {
        headers["pronghorn-expires"] = json!({"value": [EXPIRES.as_secs().to_string()]});
        job.expires = Some(EXPIRES);
    }
    if pipeline == "p" && random.below(6) == 0 {
        let key = format!("key-{}", random.below(5));
        headers["pronghorn-unique"] = json!({"value": [key]});
        job.key = Some(key);
    }
    job.auto_ack = random.below(if id.contains("--") { 3 } else { 12 }) == 0;
    let name = match random.below(20) {
        0 => "fail",
        1 | 2 => "fail once",
        _ => "work",
    };
    let message = json!({
        "job": name,
        "id": id,
        "payload": base64(job.payload.as_bytes()),
        "headers": headers,
        "options": {
            "pipeline": pipeline,
            "priority": job.priority,
            "delay": job.delay.as_secs(),
            "auto_ack": job.auto_ack,
        },
    });
    (job, message)
}

fn push(run: &Run, client: &mut Client, id: &str, pipeline: &str, random: &mut Random) {
    let (job, message) = any_job(id, pipeline, random);
    let sent = run.now();
    let said = client.call("jobs.Push", &json!({"job": message}));
    let span = run.since(sent);
    let pushed = outcome_alone(&said, id);
    let mut ids = lock(&run.ids);
    ids.push(id.to_owned());
    if ids.len() > 20 {
        ids.remove(0);
    }
    drop(ids);
    run.note(Event::Push(job, span, pushed));
}

fn push_batch(run: &Run, client: &mut Client, id: &str, random: &mut Random) {
    let mut jobs = Vec::new();
    for part in 0..=random.below(4) {
        let (mut job, message) = any_job(&format!("{id}--{part}"), "p", random);
        job.batch = Some(id.to_owned());
        jobs.push((job, message));
    }
    let last = Job {
        id: id.to_owned(),
        pipeline: "p".to_owned(),
        payload: "0".to_owned(),
        last_of: Some(id.to_owned()),
        ..Job::default()
    };
    let then = json!({
        "job": "work", "id": id, "payload": base64(b"0"), "options": {"pipeline": "p"},
    });
    let messages: Vec<_> = jobs.iter().map(|(_, message)| message).collect();
    let sent = run.now();
    let said = client.call("jobs.Batch", &json!({"jobs": messages, "then": then}));
    let span = run.since(sent);
    for (job, _) in jobs {
        let pushed = outcome(&said, &job.id);
        run.note(Event::Push(job, span, pushed));
    }
    run.note(Event::Push(last, span, outcome(&said, id)));
}

fn outcome(said: &Answered, id: &str) -> Pushed {
    match said {
        Ok(Ok(answer)) => match answer["duplicates"][id].as_str() {
            Some(of) => Pushed::Duplicate(of.to_owned()),
            None => Pushed::Kept,
        },
        // An error of a broker's pipeline, or of a disk, does not say whether the job is kept.
        Ok(Err(why)) if why.contains("takes pipelines of the drivers") => Pushed::Refused,
        Ok(Err(why)) if why.contains("no such pipeline") => Pushed::Refused,
        Ok(Err(_)) | Err(_) => Pushed::Unknown,
    }
}

/// A job that is pushed alone is not kept where the store says that it can't be written. Of a
/// batch, some jobs may be.
fn outcome_alone(said: &Answered, id: &str) -> Pushed {
    match said {
        Ok(Err(why)) if why.contains("the store can't be written") => Pushed::Refused,
        _ => outcome(said, id),
    }
}

/// The answer to a call.
type Answered = io::Result<Result<Value, String>>;

fn operate(run: &Run, plan: Plan, mut random: Random) {
    let mut client = Client::new(&run.address);
    let of_pipeline = json!({"pipelines": ["p"]});
    while run.goes_on() {
        thread::sleep(Duration::from_millis(random.below(1500)));
        let sent = run.now();
        match random.below(16) {
            13.. => meddle(run, &mut client, &mut random),
            0..3 => {
                let paused = client.call("jobs.Pause", &of_pipeline);
                if matches!(paused, Ok(Ok(_))) {
                    run.note(Event::Paused("p".to_owned(), run.since(sent)));
                }
                thread::sleep(Duration::from_millis(random.below(2500)));
                let sent = run.now();
                // Also one that fails may have been heard.
                _ = client.call("jobs.Resume", &of_pipeline);
                run.note(Event::Resumed("p".to_owned(), run.since(sent)));
            }
            10 if plan.declares() => run.declare(&mut client),
            11 | 12 if plan.declares() => {
                let passing = json!({"pipelines": ["passing"]});
                if matches!(client.call("jobs.Destroy", &passing), Ok(Ok(_))) {
                    run.note(Event::Destroyed("passing".to_owned(), run.since(sent)));
                }
            }
            3 if plan.place != QueueDriver::Redis => {
                let cleared = client.call("jobs.Clear", &json!({"pipeline": "p"}));
                let span = run.since(sent);
                let removed = cleared.ok().and_then(Result::ok);
                let removed = removed.map(|it| it["removed"].as_u64().unwrap_or(0));
                run.note(Event::Cleared("p".to_owned(), span, removed));
            }
            _ => {
                let ids = lock(&run.ids);
                let at = usize::try_from(random.next()).unwrap_or(0) % ids.len().max(1);
                let Some(id) = ids.get(at).cloned() else {
                    continue;
                };
                drop(ids);
                let said = client.call("jobs.Cancel", &json!({"ids": [id]}));
                let when = match &said {
                    Ok(Ok(said)) if said["removed"].as_u64() == Some(1) => Cancel::BeforeItBegan,
                    Ok(Ok(said)) if said["not_done"].is_array() => continue,
                    _ => Cancel::Sometime,
                };
                run.note(Event::Cancelled(id, run.since(sent), when));
            }
        }
    }
}

/// Pushes a job of another pipeline that has the ID of a recent one, and does something with it:
/// the other one goes on as if there was none.
fn meddle(run: &Run, client: &mut Client, random: &mut Random) {
    let ids = lock(&run.ids);
    let at = usize::try_from(random.next()).unwrap_or(0) % ids.len().max(1);
    let Some(id) = ids.get(at).cloned() else {
        return;
    };
    drop(ids);
    let name = if random.below(2) == 0 { "fail" } else { "work" };
    let options = json!({"pipeline": TWIN, "auto_ack": random.below(4) == 0});
    let job = json!({"job": name, "id": id, "payload": base64(b"1"), "options": options});
    let pushed = client.call("jobs.Push", &json!({"job": job}));
    if !matches!(pushed, Ok(Ok(_))) {
        return; // the server is on its way
    }
    thread::sleep(Duration::from_millis(random.below(300)));
    let method = match random.below(3) {
        0 => "jobs.Retry",
        1 => "jobs.Discard",
        _ => "jobs.Show",
    };
    let named = if method == "jobs.Show" {
        json!({"id": id, "pipeline": TWIN})
    } else {
        json!({"ids": [id], "pipeline": TWIN})
    };
    let done = client.call(method, &named);
    if method == "jobs.Show"
        && let Ok(Ok(shown)) = done
    {
        assert_eq!(shown["pipeline"], TWIN, "{shown}");
    }
}

/// RPC that survives the server: a call that fails says so, and the next one connects anew.
struct Client {
    address: String,
    stream: Option<TcpStream>,
}

impl Client {
    fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            stream: None,
        }
    }

    /// The inner error is the server's.
    fn call(&mut self, method: &str, argument: &Value) -> io::Result<Result<Value, String>> {
        let answered = self.try_call(method, &argument.to_string());
        if answered.is_err() {
            self.stream = None;
        }
        answered
    }

    fn try_call(&mut self, method: &str, argument: &str) -> io::Result<Result<Value, String>> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let stream = self.connect()?;
                self.stream.insert(stream)
            }
        };
        let length = |bytes: usize| u32::try_from(bytes).expect("short");
        let mut frame = Vec::new();
        Header {
            flags: Flags::JSON,
            stream: Stream::END,
            options: Options::new(&[7, length(method.len())]),
            payload: length(method.len() + argument.len()),
        }
        .encode(&mut frame);
        frame.extend_from_slice(method.as_bytes());
        frame.extend_from_slice(argument.as_bytes());
        stream.write_all(&frame)?;
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let header = Header::decode(&head, 16 << 20).map_err(io::Error::other)?;
        let header = header.ok_or_else(|| io::Error::other("a head that is cut"))?;
        let mut payload = vec![0; header.payload as usize];
        stream.read_exact(&mut payload)?;
        let answer = payload.split_off(method.len());
        if header.flags.has(Flags::ERROR) {
            return Ok(Err(String::from_utf8_lossy(&answer).into_owned()));
        }
        Ok(Ok(
            serde_json::from_slice(&answer).map_err(io::Error::other)?
        ))
    }

    /// A server that starts is waited for.
    fn connect(&self) -> io::Result<TcpStream> {
        let stream = wait_for("the server to listen", || {
            TcpStream::connect(&self.address).ok()
        });
        stream.set_read_timeout(Some(ANSWER))?;
        Ok(stream)
    }
}

/// Numbers by a seed.
#[derive(Clone, Copy, Debug)]
struct Random(u64);

impl Random {
    /// By `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// For payloads.
pub fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for sign in 0..4 {
            let index = (bits >> (18 - 6 * sign)) & 63;
            let is_there = sign <= part.len();
            text.push(if is_there {
                SIGNS[index as usize].into()
            } else {
                '='
            });
        }
    }
    text
}
