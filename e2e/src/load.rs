//! More clients than the pool has workers, each asking without a pause, every reply compared with
//! its request.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pronghorn_testkit::{Site, wait_for};

/// Longer than any reply of these workers takes, through two deaths and a reload: who waits longer
/// is stuck.
const STUCK: Duration = Duration::from_secs(20);

/// Every so many clients one sends POSTs, which are not safe to repeat.
const POSTS: usize = 4;

/// The worker that answers: a few milliseconds of work, the number of the request.
pub fn worker() -> String {
    Site::sdk_worker(
        "\\usleep(\\random_int(200, 4000)); return $request->query()['n'] . ' ' . $request->body();",
    )
}

/// Clients at work.
#[derive(Debug)]
pub struct Load {
    clients: Vec<(Arc<Client>, JoinHandle<()>)>,
    shared: Arc<Shared>,
    started: Instant,
}

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    /// The number of the next request.
    next: AtomicU64,
    /// POSTs that were answered 502: their worker died with them.
    lost: AtomicU64,
    /// What must not happen; the first few in words.
    failures: Mutex<Vec<String>>,
    failed: AtomicU64,
}

#[derive(Debug, Default)]
struct Client {
    answered: AtomicU64,
    waits: AtomicBool,
}

/// What became of all requests so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub answered: u64,
    /// POSTs whose worker died with them.
    pub lost: u64,
    pub failed: u64,
}

impl Load {
    pub fn start(address: SocketAddr, clients: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let client = |index| {
            let (client, shared) = (Arc::new(Client::default()), shared.clone());
            let posts = index % POSTS == POSTS - 1;
            let runs = client.clone();
            let thread = std::thread::spawn(move || run(address, posts, &runs, &shared));
            (client, thread)
        };
        Self {
            clients: (0..clients).map(client).collect(),
            shared,
            started: Instant::now(),
        }
    }

    pub fn tally(&self) -> Tally {
        let answered = self
            .clients
            .iter()
            .map(|(client, _)| client.answered.load(Ordering::Relaxed));
        self.shared.tally(answered.sum())
    }

    /// How many clients wait for a reply.
    pub fn waiting(&self) -> usize {
        let waits = |client: &Client| client.waits.load(Ordering::Relaxed);
        self.clients
            .iter()
            .filter(|(client, _)| waits(client))
            .count()
    }

    /// Waits until every client has sent a request from now on and got its reply: no call that is
    /// under way now is left.
    ///
    /// # Panics
    ///
    /// When one of them is stuck.
    pub fn let_all_be_answered(&self) {
        let counts = || -> Vec<u64> {
            let clients = self.clients.iter();
            clients
                .map(|(client, _)| client.answered.load(Ordering::Relaxed))
                .collect()
        };
        let before = counts();
        wait_for("a reply to every client", || {
            let now = counts();
            now.iter()
                .zip(&before)
                .all(|(now, before)| now >= &(before + 2))
                .then_some(())
        });
    }

    /// Replies per second since the start.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn rate(&self) -> f64 {
        self.tally().answered as f64 / self.started.elapsed().as_secs_f64()
    }

    /// Ends the load. Returns what became of its requests, and the failures in words.
    ///
    /// # Panics
    ///
    /// When a client does, which is a mistake in here.
    pub fn finish(self) -> (Tally, Vec<String>) {
        self.shared.ends.store(true, Ordering::Relaxed);
        let mut answered = 0;
        for (client, thread) in self.clients {
            thread.join().expect("a client does not panic");
            answered += client.answered.load(Ordering::Relaxed);
        }
        let failures = self.shared.failures.lock().expect("nobody panics with it");
        (self.shared.tally(answered), failures.clone())
    }
}

fn run(address: SocketAddr, posts: bool, client: &Client, shared: &Shared) {
    let mut kept = None;
    while !shared.ends.load(Ordering::Relaxed) {
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        client.waits.store(true, Ordering::Relaxed);
        let outcome = ask(address, posts, number, &mut kept);
        client.waits.store(false, Ordering::Relaxed);
        match outcome {
            Ok(Outcome::Right) => {}
            Ok(Outcome::Lost) => {
                shared.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(failure) => {
                shared.fail(&format!("request {number}: {failure}"));
                kept = None;
            }
        }
        client.answered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn tally(&self, answered: u64) -> Tally {
        Tally {
            answered,
            lost: self.lost.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    fn fail(&self, failure: &str) {
        const TOLD: u64 = 20;
        if self.failed.fetch_add(1, Ordering::Relaxed) < TOLD {
            let mut failures = self.failures.lock().expect("nobody panics with it");
            failures.push(failure.to_owned());
        }
    }
}

enum Outcome {
    Right,
    Lost,
}

#[derive(Debug)]
enum Failure {
    Connect(io::Error),
    /// Whether anything of the reply was there, and whether the connection had served before.
    Cut {
        after: usize,
        kept: bool,
        error: Option<io::Error>,
    },
    Stuck,
    Reply(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "no connection: {error}"),
            Self::Cut { after, kept, error } => write!(
                f,
                "the {} connection ended {after} bytes into the reply: {error:?}",
                if *kept { "kept" } else { "new" }
            ),
            Self::Stuck => write!(f, "no reply within {STUCK:?}"),
            Self::Reply(reply) => write!(f, "a wrong reply: {reply}"),
        }
    }
}

fn ask(
    address: SocketAddr,
    posts: bool,
    number: u64,
    kept: &mut Option<TcpStream>,
) -> Result<Outcome, Failure> {
    let reused = kept.is_some();
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => connect(address).map_err(Failure::Connect)?,
    };
    let request = if posts {
        format!("POST /?n={number} HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody")
    } else {
        format!("GET /?n={number} HTTP/1.1\r\nHost: t\r\n\r\n")
    };
    // A server that closed the connection meanwhile shows below, where the reply is missing.
    _ = stream.write_all(request.as_bytes());
    let mut reply = Vec::new();
    let (head, body) = loop {
        if let Some(parts) = whole(&reply) {
            break parts;
        }
        let mut buffer = [0; 4096];
        let cut = |error| Failure::Cut {
            after: reply.len(),
            kept: reused,
            error,
        };
        match stream.read(&mut buffer) {
            Ok(0) => return Err(cut(None)),
            Ok(read) => reply.extend_from_slice(&buffer[..read]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                return Err(Failure::Stuck);
            }
            Err(error) => return Err(cut(Some(error))),
        }
    };
    if !head.to_ascii_lowercase().contains("\r\nconnection: close") {
        *kept = Some(stream);
    }
    let wanted = format!("{number} {}", if posts { "body" } else { "" });
    match head.get(..12) {
        Some("HTTP/1.1 200") if body == wanted => Ok(Outcome::Right),
        Some("HTTP/1.1 502") if posts => Ok(Outcome::Lost),
        _ => Err(Failure::Reply(format!("{head} {body}"))),
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STUCK))?;
    stream.set_write_timeout(Some(STUCK))?;
    Ok(stream)
}

/// Head and body, once both are there.
fn whole(reply: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(reply).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("Content-Length: "))?;
    let length: usize = length.parse().ok()?;
    (body.len() >= length).then(|| (head.to_owned(), body.to_owned()))
}
