//! FastCGI servers at addresses: which of them are there, and connecting to one.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use pronghorn_base::{Backoff, LogThrottle, lock};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout};

use pronghorn_pool::transport::Channel;

/// A server on this machine or beside it answers at once; one that takes longer is as good as gone.
const CONNECT: Duration = Duration::from_secs(2);
/// How long an address is left alone after it did not answer: twice as long each time, up to the
/// second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Where a FastCGI server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Unix(PathBuf),
    /// A name or an address, and a port.
    Tcp(String, u16),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// Servers that do the same. Each slot has its own among them, and goes to the next one when that
/// does not answer.
#[derive(Debug)]
pub struct Addresses {
    pool: String,
    places: Vec<(Place, Mutex<Down>)>,
    told: LogThrottle,
}

/// How an address has failed lately.
#[derive(Debug)]
struct Down {
    /// It is left alone until then.
    until: Option<Instant>,
    backoff: Backoff,
}

impl Default for Down {
    fn default() -> Self {
        Self {
            until: None,
            backoff: Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE),
        }
    }
}

impl Addresses {
    pub fn new(pool: String, places: Vec<Place>) -> Self {
        Self {
            pool,
            places: places
                .into_iter()
                .map(|place| (place, Mutex::default()))
                .collect(),
            told: LogThrottle::default(),
        }
    }

    /// A connection to the first one that answers, from this slot's own on.
    ///
    /// # Errors
    ///
    /// What the last one that was tried had against it.
    pub(super) async fn connect(&self, slot: usize) -> Result<Channel, String> {
        let mut why = String::new();
        for number in 0..self.places.len() {
            let (place, down) = &self.places[(slot + number) % self.places.len()];
            let until = lock(down).until;
            if let Some(until) = until.filter(|until| Instant::now() < *until) {
                let left = until.saturating_duration_since(Instant::now());
                why = format!("{place} did not answer, and is asked again in {left:?}");
                continue;
            }
            let connected = timeout(CONNECT, connect(place)).await;
            let error = match connected {
                Ok(Ok(channel)) => {
                    *lock(down) = Down::default();
                    return Ok(channel);
                }
                Ok(Err(error)) => error,
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
            {
                let mut down = lock(down);
                down.until = Some(Instant::now() + down.backoff.next_wait());
            }
            why = format!("{place} does not answer: {error}");
            if let Some(times) = self.told.should_log() {
                tracing::warn!(target: "server", pool = self.pool, times, "FastCGI server {why}");
            }
        }
        Err(why)
    }
}

async fn connect(place: &Place) -> io::Result<Channel> {
    Ok(match place {
        Place::Unix(path) => Channel::Unix(UnixStream::connect(path).await?),
        Place::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            Channel::Tcp(stream)
        }
    })
}
