//! What goes wrong, and what operators do, while requests come: kills, reloads, upgrades, clients
//! that leave.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use pronghorn_testkit::{PATIENCE, Server, Site, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::load::{Load, worker};

/// A worker that dies younger is started anew after a pause, which grows; one that lived as long,
/// at once.
const GROWN_UP: Duration = Duration::from_millis(1_050);

/// The application that all of this runs on. `more` are keys of its pool.
pub fn site(workers: usize, more: &str) -> Site {
    Site::new().file("worker.php", &worker()).config(&format!(
        "version: '3'\n\
         server: {{command: php worker.php}}\n\
         http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: {workers}{more}}}\n\
         logs: {{channels: {{http: {{level: error}}}}}}\n"
    ))
}

/// The same as a script below a root, in a pool with these keys.
pub fn site_of_scripts(workers: usize, pool: &str) -> Site {
    let script = "<?php usleep(random_int(200, 4000)); echo $_GET['n'], ' ', file_get_contents('php://input');";
    Site::new()
        .file("public/index.php", script)
        .config(&format!(
            "version: '3'\n\
         http:\n  address: 127.0.0.1:0\n  pool: {{num_workers: {workers}, root: public, {pool}}}\n\
         logs: {{channels: {{http: {{level: error}}}}}}\n"
        ))
}

/// So many clients that each worker has a call and some wait: all that the pool can do is asked of
/// it.
pub fn clients_for(workers: usize) -> usize {
    workers + workers.div_ceil(2)
}

/// Does something as often as it gets done in a short while, and some times at least.
pub fn for_a_while(mut round: impl FnMut()) -> usize {
    const WHILE: Duration = Duration::from_secs(3);
    const AT_LEAST: usize = 3;
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < AT_LEAST || start.elapsed() < WHILE {
        round();
        rounds += 1;
    }
    rounds
}

/// Kills workers one at a time.
///
/// The next one dies when all calls that were under way have been answered: a call is tried twice,
/// and two kills of one call would be a failure of the test.
#[derive(Debug)]
pub struct Killer {
    workers: usize,
    /// When each was seen first.
    seen: HashMap<u32, Instant>,
    random: u64,
}

impl Killer {
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            seen: HashMap::new(),
            random: u64::from(std::process::id()),
        }
    }

    /// Kills one, and waits until it is replaced.
    ///
    /// # Panics
    ///
    /// When it isn't.
    pub fn kill_one(&mut self, server: &Server, load: &Load) {
        let victim = self.strike(server);
        load.let_all_be_answered();
        wait_for("the worker to be replaced", || {
            let now = server.workers();
            (now.len() >= self.workers && !now.contains(&victim)).then_some(())
        });
    }

    /// Waits until there is somebody to kill.
    ///
    /// # Panics
    ///
    /// When no worker lives for a second.
    pub fn wait_for_victims(&mut self, server: &Server) {
        wait_for("a worker that lived for a second", || self.choose(server));
    }

    /// Only kills one, and returns which.
    ///
    /// # Panics
    ///
    /// When none lives for a second.
    pub fn strike(&mut self, server: &Server) -> u32 {
        let victim = wait_for("a worker that lived for a second", || self.choose(server));
        // It may have been recycled at this moment.
        _ = kill_process(pid(victim), Signal::KILL);
        victim
    }

    /// Kills one while its generation is replaced, and one while its server is.
    ///
    /// # Panics
    ///
    /// When something of it does not happen.
    pub fn strike_while_replaced(&mut self, server: &mut Server, load: &Load) {
        self.wait_for_victims(server);
        reload_while(server, self.workers, || _ = self.strike(server));
        load.let_all_be_answered();
        self.wait_for_victims(server);
        self.strike(server);
        server.upgrade();
        load.let_all_be_answered();
    }

    fn choose(&mut self, server: &Server) -> Option<u32> {
        let alive = server.workers();
        self.seen.retain(|pid, _| alive.contains(pid));
        for pid in &alive {
            self.seen.entry(*pid).or_insert_with(Instant::now);
        }
        let old = self
            .seen
            .iter()
            .filter(|(_, seen)| seen.elapsed() > GROWN_UP);
        let mut old: Vec<u32> = old.map(|(pid, _)| *pid).collect();
        if !old.is_empty() {
            // On a busy machine a boot takes longer than that, and the end of a boot is no death of
            // a worker.
            let up = server.steer(&["workers"]).stdout;
            old.retain(|pid| up.lines().any(|line| begins_with(line, *pid)));
        }
        old.sort_unstable();
        (!old.is_empty()).then(|| old[self.next_random() % old.len()])
    }

    /// A linear congruential generator: which worker dies has to be spread, not secret.
    fn next_random(&mut self) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.random >> 33).expect("31 bits")
    }
}

fn begins_with(line: &str, pid: u32) -> bool {
    line.split_whitespace().next() == Some(pid.to_string().as_str())
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).expect("a process number")
}

/// Reports of killed workers in a log: with a call, and without.
pub fn deaths(log: &str) -> (usize, usize) {
    let deaths = || log.lines().filter(|line| line.contains("SIGKILL"));
    let busy = deaths().filter(|line| line.contains("during a request"));
    let idle = deaths().filter(|line| line.contains("while it was idle"));
    (busy.count(), idle.count())
}

/// Replaces all workers, and waits until the old ones have ended. Returns how many clients waited
/// for a reply when it began.
///
/// # Panics
///
/// When they aren't replaced.
pub fn reload(server: &Server, load: &Load, workers: usize) -> usize {
    let waiting = load.waiting();
    reload_while(server, workers, || {});
    waiting
}

/// The same while something else happens.
///
/// # Panics
///
/// As [`reload`].
pub fn reload_while(server: &Server, workers: usize, meanwhile: impl FnOnce()) {
    let before = server.workers();
    server.signal(Signal::HUP);
    meanwhile();
    wait_for("all workers to be replaced", || {
        let now = server.workers();
        (now.len() == workers && before.iter().all(|pid| !now.contains(pid))).then_some(())
    });
}

/// Reloads to code that does not boot; then the code is mended.
///
/// # Panics
///
/// When a worker is touched.
pub fn reload_to_broken_code(server: &Server, load: &Load) {
    const OLD_STAY: &str = "the old workers stay";
    let before = server.workers();
    let said = server.log().matches(OLD_STAY).count();
    server
        .site()
        .write("worker.php", "<?php exit('no database');");
    server.signal(Signal::HUP);
    wait_for("the failed reload", || {
        (server.log().matches(OLD_STAY).count() > said).then_some(())
    });
    load.let_all_be_answered();
    wait_for("only the old workers to be left", || {
        (sorted(server.workers()) == sorted(before.clone())).then_some(())
    });
    server.site().write("worker.php", &worker());
}

fn sorted(mut pids: Vec<u32>) -> Vec<u32> {
    pids.sort_unstable();
    pids
}

/// How far a client goes before it leaves.
#[derive(Debug, Clone, Copy)]
enum Step {
    Connected,
    InTheRequestLine,
    InTheHead,
    BehindTheHead,
    InTheBody,
    /// The body is so long that it goes to a file.
    InALongBody,
    /// All is sent, all workers are busy.
    Queued,
    /// All is sent, a worker has it.
    WithTheWorker,
    /// The head of a streamed reply was read.
    InTheStream,
    /// Some of a reply was read that is longer than all buffers on its way.
    InALongReply,
    Answered,
}

const STEPS: [Step; 11] = [
    Step::Connected,
    Step::InTheRequestLine,
    Step::InTheHead,
    Step::BehindTheHead,
    Step::InTheBody,
    Step::InALongBody,
    Step::Queued,
    Step::WithTheWorker,
    Step::InTheStream,
    Step::InALongReply,
    Step::Answered,
];

/// How a client leaves.
#[derive(Debug, Clone, Copy)]
enum Leave {
    /// FIN.
    Closes,
    /// RST, as a crashed client or a proxy that lost patience does.
    Resets,
    /// FIN, but the connection stays open for reading, as of `nc`; closed soon after.
    HalfCloses,
}

/// An application for clients that leave.
pub fn leaving_site(workers: usize) -> Site {
    let handler = r"
    switch ($request->path) {
        case '/hold':
            \usleep(50_000);
            return (string) \getmypid();
        case '/stream':
            return new Pronghorn\Response((function () {
                // Far longer than anybody waits: only a client that left ends it.
                for ($piece = 0; $piece < 200_000; $piece++) {
                    yield \str_repeat('x', 1000);
                    \usleep(500);
                }
            })());
        case '/long':
            return \str_repeat('x', 30_000_000);
        default:
            return 'Hello ' . \strlen($request->body());
    }";
    Site::new()
        .file("worker.php", &Site::sdk_worker(handler))
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nhttp: {{address: 127.0.0.1:0, pool: {{num_workers: {workers}}}}}\nlogs: {{channels: {{http: {{level: error}}}}}}\n"
        ))
}

/// Clients that leave at every step, in every way. Returns how many.
///
/// # Panics
///
/// When a client does not get as far, or a worker stays busy.
pub fn leave_at_every_step(server: &Server, workers: usize) -> usize {
    let ways = [Leave::Closes, Leave::Resets, Leave::HalfCloses];
    for step in STEPS {
        for leave in ways {
            leave_at(server, step, leave, workers);
        }
        all_workers_are_free(server, workers);
    }
    STEPS.len() * ways.len()
}

fn leave_at(server: &Server, step: Step, leave: Leave, workers: usize) {
    let mut others = Vec::new();
    if let Step::Queued = step {
        for _ in 0..workers {
            let mut other = open(server);
            send(&mut other, "GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
            others.push(other);
        }
    }
    let mut client = open(server);
    let (sent, read) = match step {
        Step::Connected => ("", 0),
        Step::InTheRequestLine => ("GET /hold HT", 0),
        Step::InTheHead => ("GET /hold HTTP/1.1\r\nHost: t\r\nX-Lo", 0),
        Step::BehindTheHead => (
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n",
            0,
        ),
        Step::InTheBody => (
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n01234",
            0,
        ),
        Step::InALongBody => (
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 900000\r\n\r\n",
            0,
        ),
        Step::Queued | Step::WithTheWorker => ("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n", 0),
        Step::InTheStream => ("GET /stream HTTP/1.1\r\nHost: t\r\n\r\n", 200),
        Step::InALongReply => ("GET /long HTTP/1.1\r\nHost: t\r\n\r\n", 100_000),
        Step::Answered => ("GET / HTTP/1.1\r\nHost: t\r\n\r\n", 20),
    };
    send(&mut client, sent);
    if let Step::InALongBody = step {
        send(&mut client, &"x".repeat(600_000));
    }
    let mut left = read;
    while left > 0 {
        let mut buffer = vec![0; left];
        let read = client.read(&mut buffer).expect("the reply comes");
        assert!(read > 0, "{step:?}: the server ended the reply");
        left -= read;
    }
    match leave {
        Leave::Closes => {}
        Leave::Resets => {
            // Closed with a linger time of nothing, a connection ends by RST.
            rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO))
                .expect("it can be set");
        }
        Leave::HalfCloses => {
            _ = client.shutdown(Shutdown::Write); // a server that refused has closed it
        }
    }
}

fn open(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("the server accepts");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("it can be set");
    stream
}

fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).expect("the server reads");
}

/// Waits until every worker takes a call at the same time as all others: none is held by a client
/// that left.
fn all_workers_are_free(server: &Server, workers: usize) {
    wait_for("all workers to be free", || {
        let mut clients: Vec<_> = (0..workers).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.request("GET", "/hold", "");
        }
        let mut pids: Vec<String> = clients
            .iter_mut()
            .map(|client| client.response().text())
            .collect();
        pids.sort();
        pids.dedup();
        (pids.len() == workers).then_some(())
    });
}
