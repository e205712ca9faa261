//! The socket to which foreign workers connect when `server.relay` names one.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{Admission, LogThrottle, Standings, lock};
use pronghorn_process::Credentials;
use pronghorn_process::socket::{
    AFTER_FAILED_ACCEPT, Access, Admitted, BindError, SocketFile, bound_to, open_unix,
};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, yield_now};

use crate::boot::handshake::{Refusal, shake_hands};
use pronghorn_pool::transport::Channel;

/// Connections that have not said who they are; each worker needs one, once.
const STRANGERS: usize = 128;
/// A worker answers at once; whoever doesn't is none.
const SHAKE_HANDS: Duration = Duration::from_secs(10);

/// Where `server.relay` says that workers connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Accepts workers and hands each connection to the boot that waits for its process.
#[derive(Debug)]
pub struct RelayListener {
    guests: Arc<Mutex<Guests>>,
    accepting: JoinHandle<()>,
    /// Where it really listens: port 0 has become one that was free.
    address: RelayAddress,
    socket: OwnedFd,
    file: Option<SocketFile>,
    /// Whether the workers of another process announce themselves on this socket for the time
    /// being.
    lent: watch::Sender<bool>,
}

type Guest = (Channel, Vec<u8>);

#[derive(Debug, Default)]
struct Guests {
    /// Boots that wait, by process.
    awaited: HashMap<u32, oneshot::Sender<Guest>>,
    /// Workers that were quicker than the boot that started them.
    early: HashMap<u32, Guest>,
}

enum Listener {
    Unix(UnixListener, Admitted),
    Tcp(TcpListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Channel> {
        match self {
            Self::Unix(listener, admitted) => loop {
                let (stream, _) = listener.accept().await?;
                if admitted.has(&stream) {
                    return Ok(Channel::Unix(stream));
                }
            },
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Channel::Tcp(stream))
            }
        }
    }
}

impl RelayListener {
    /// Takes the inherited socket of this address, else binds, and accepts on the runtime it is
    /// called on until it is dropped.
    pub fn open(
        address: &RelayAddress,
        users: &[Option<Credentials>],
        mut inherited: Vec<OwnedFd>,
    ) -> Result<Self, BindError> {
        let (listener, socket, address, file) = match address {
            RelayAddress::Unix(path) => {
                let (listener, file) = open_unix(path, Access::only(users), &mut inherited)?;
                let socket = listener.as_fd().try_clone_to_owned();
                let admitted = Admitted::only(users);
                let listener = UnixListener::from_std(listener)
                    .map(|listener| Listener::Unix(listener, admitted));
                let address = RelayAddress::Unix(path.clone());
                (listener, socket, address, Some(file))
            }
            RelayAddress::Tcp(wanted) => {
                let listener = match bound_to(&[*wanted], &mut inherited).pop() {
                    Some(listener) => Ok(listener),
                    None => std::net::TcpListener::bind(wanted),
                };
                let (listener, bound) = listener
                    .and_then(|listener| {
                        listener.set_nonblocking(true)?;
                        let bound = listener.local_addr()?;
                        Ok((listener, bound))
                    })
                    .map_err(|source| BindError::tcp(*wanted, source))?;
                let socket = listener.as_fd().try_clone_to_owned();
                let listener = TcpListener::from_std(listener).map(Listener::Tcp);
                (listener, socket, RelayAddress::Tcp(bound), None)
            }
        };
        let listener = listener.map_err(BindError::Runtime)?;
        let socket = socket.map_err(BindError::Runtime)?;
        let guests = Arc::new(Mutex::new(Guests::default()));
        let lent = watch::Sender::new(false);
        let accepting = tokio::runtime::Handle::current().spawn(accept(
            listener,
            guests.clone(),
            lent.subscribe(),
        ));
        Ok(Self {
            guests,
            accepting,
            address,
            socket,
            file,
            lent,
        })
    }

    /// For the next process.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Leaves the workers that announce themselves to another process, or takes them again.
    pub fn lend(&self, lent: bool) {
        self.lent.send_replace(lent);
    }

    /// Whether it is this process that removes the socket's file.
    pub fn set_ours(&self, ours: bool) {
        if let Some(file) = &self.file {
            file.set_ours(ours);
        }
    }

    pub fn address(&self) -> &RelayAddress {
        &self.address
    }

    /// The connection of a process that was just started. Cancel safe.
    pub(crate) async fn wait_for(&self, pid: u32) -> Guest {
        let receiver = {
            let mut guests = lock(&self.guests);
            if let Some(guest) = guests.early.remove(&pid) {
                return guest;
            }
            let (sender, receiver) = oneshot::channel();
            guests.awaited.retain(|_, sender| !sender.is_closed());
            guests.awaited.insert(pid, sender);
            receiver
        };
        match receiver.await {
            Ok(guest) => guest,
            // Only when the listener is dropped, and then the boot is too.
            Err(_) => std::future::pending().await,
        }
    }
}

impl RelayListener {
    /// Processes that announced themselves and were not started as workers; their connections are
    /// closed.
    pub(crate) fn turn_away(&self) -> Vec<u32> {
        lock(&self.guests)
            .early
            .drain()
            .map(|(pid, _)| pid)
            .collect()
    }
}

impl Drop for RelayListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: Listener, guests: Arc<Mutex<Guests>>, mut lent: watch::Receiver<bool>) {
    let strangers = Arc::<Standings>::default();
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        _ = lent.wait_for(|lent| !lent).await; // its owner outlives this task
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = lent.wait_for(|lent| *lent) => continue,
        };
        match accepted {
            Ok(channel) => {
                while tasks.try_join_next().is_some() {}
                if strangers.make_room(tasks.len(), STRANGERS) != Admission::Full {
                    let (guests, place) = (guests.clone(), strangers.enter());
                    tasks.spawn(async move {
                        tokio::select! {
                            biased;
                            () = receive(channel, &guests) => {}
                            () = place.evicted() => {}
                        }
                    });
                    // Who is to make room for the next one gets the time for it.
                    yield_now().await;
                }
            }
            Err(error) => {
                static FAILED: LogThrottle = LogThrottle::new();
                if let Some(times) = FAILED.should_log() {
                    tracing::error!(target: "server", times, "relay socket: {error}");
                }
                tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
            }
        }
    }
}

/// Whoever reaches the socket may connect as often as it likes.
fn tell_of_stranger(what: &str) {
    static STRANGERS: LogThrottle = LogThrottle::new();
    if let Some(connections) = STRANGERS.should_log() {
        tracing::warn!(target: "server", connections, "relay socket: {what}");
    }
}

async fn receive(mut channel: Channel, guests: &Mutex<Guests>) {
    let answer = match tokio::time::timeout(SHAKE_HANDS, shake_hands(&mut channel, None)).await {
        Ok(Ok(answer)) if !answer.native => answer,
        Ok(Ok(_)) => {
            tell_of_stranger(
                "a worker speaks the native codec here, it belongs on descriptors 3 and 4",
            );
            return;
        }
        Ok(Err(Refusal::Protocol(what))) => {
            tell_of_stranger(&format!("not a worker: {what}"));
            return;
        }
        Ok(Err(Refusal::Io(error))) => {
            tracing::debug!(target: "server", "relay socket: {error}");
            return;
        }
        Err(_) => return,
    };
    // Where the kernel says who it is, nobody can pass for a worker.
    let pid = started_process(channel.peer().unwrap_or(answer.pid));
    let guest = (channel, answer.leftover);
    let mut all = lock(guests);
    let guest = match all.awaited.remove(&pid) {
        Some(boot) => match boot.send(guest) {
            Ok(()) => return,
            Err(guest) => guest,
        },
        None => guest,
    };
    if all.early.len() < STRANGERS {
        all.early.insert(pid, guest);
    }
}

/// The process that was started so that this one runs: itself, or a shell or script before it,
/// which leads the group that the spawner made for them.
fn started_process(pid: u32) -> u32 {
    let group = || -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name before the fields may itself have brackets and spaces.
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(2)?.parse().ok()
    };
    group().filter(|group| *group > 0).unwrap_or(pid)
}

/// For messages: what the operator wrote.
impl std::fmt::Display for RelayAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// `AddrInUse` is the commonest of these.
impl From<io::Error> for crate::boot::BootCause {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_wire::frame::{Flags, Stream, encode_plain};
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_over_a_unix_socket_is_its_makers_whatever_it_says() {
        let name = format!("relay-listener-test-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let listener =
            RelayListener::open(&RelayAddress::Unix(path.clone()), &[], Vec::new()).unwrap();
        let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
        let mut announcement = Vec::new();
        encode_plain(
            &mut announcement,
            Flags::CONTROL,
            Stream::END,
            br#"{"pid":4711}"#,
        );
        stream.write_all(&announcement).await.unwrap();
        let me = started_process(std::process::id());
        tokio::select! {
            _ = listener.wait_for(4711) => panic!("it passed for another process"),
            _ = listener.wait_for(me) => {}
        }
    }
}
