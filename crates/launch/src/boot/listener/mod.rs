//! The socket to which foreign workers connect when `server.relay` names one.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::{Admission, LogThrottle, Standings, lock};
use pronghorn_process::peer::{TcpPeer, lineage};
use pronghorn_process::socket::{
    AFTER_FAILED_ACCEPT, Access, Admitted, BindError, SocketFile, bound_to, open_unix,
};
use pronghorn_process::{Credentials, open_files};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinHandle, spawn_blocking, yield_now};
use tokio::time::Instant;

use crate::boot::handshake::{Refusal, shake_hands};
use pronghorn_pool::transport::Channel;

/// Connections that have not said who they are; each worker needs one, once.
const STRANGERS: usize = 128;
/// A worker answers at once; whoever doesn't is none.
const SHAKE_HANDS: Duration = Duration::from_secs(10);
/// A worker may connect so long before its boot waits for it. Moments would do: its number is on
/// its way from the thread that starts processes.
const EARLY: Duration = Duration::from_secs(5);
/// Numbers of refused processes that are kept, for who waits for a worker in vain.
const MOST_REFUSED: usize = 16;

/// Where `server.relay` says that workers connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Accepts workers and hands each connection to the boot that waits for its process.
#[derive(Debug)]
pub struct RelayListener {
    entrance: Arc<Entrance>,
    accepting: JoinHandle<()>,
    /// The address in use: port 0 has become a free one.
    address: RelayAddress,
    socket: OwnedFd,
    file: Option<SocketFile>,
    /// Whether the workers of another process announce themselves on this socket for the time
    /// being.
    lent: watch::Sender<bool>,
}

type Guest = (Channel, Vec<u8>);

/// Who is let in, and who was not.
#[derive(Debug)]
struct Entrance {
    waiting: Mutex<Waiting>,
    /// Told of each boot that begins to wait.
    begins: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Boots that wait, by the process that each has started.
    boots: HashMap<u32, Boot>,
    refused: VecDeque<(Instant, u32)>,
}

#[derive(Debug)]
struct Boot {
    /// The user of its pool.
    uid: u32,
    place: oneshot::Sender<Guest>,
}

/// How a guest has come, and what the kernel tells of it.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Unix { pid: u32, uid: u32 },
    Tcp { there: SocketAddr, here: SocketAddr },
}

/// Why a guest is no worker.
#[derive(Debug)]
enum Refused {
    /// Its user is none of the pools'.
    Foreign,
    /// No process of this server has started it.
    Stranger,
    /// It descends from this server, which waits for no such worker.
    NotAwaited,
    OtherUser {
        its: u32,
        of_pool: u32,
    },
    /// The process that it says to be has not made this connection.
    OtherProcess,
    NotHere,
    Unknown(io::Error),
}

enum Listener {
    Unix(UnixListener, Admitted),
    Tcp(TcpListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<(Channel, Origin)> {
        match self {
            Self::Unix(listener, admitted) => loop {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred()?;
                let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
                // 0 is a process that can't be seen from here.
                let pid = pid.unwrap_or_default();
                let origin = Origin::Unix {
                    pid,
                    uid: peer.uid(),
                };
                if admitted.has(&stream) {
                    return Ok((Channel::Unix(stream), origin));
                }
                tell_of_refused(pid, origin, &Refused::Foreign);
            },
            Self::Tcp(listener) => {
                let (stream, there) = listener.accept().await?;
                let here = stream.local_addr()?;
                stream.set_nodelay(true)?;
                Ok((Channel::Tcp(stream), Origin::Tcp { there, here }))
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
                let (listener, file) = open_unix(path, Access::only(users), false, &mut inherited)?;
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
        let entrance = Arc::new(Entrance::default());
        let lent = watch::Sender::new(false);
        let accepting = tokio::runtime::Handle::current().spawn(accept(
            listener,
            entrance.clone(),
            lent.subscribe(),
        ));
        Ok(Self {
            entrance,
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

    /// The connection of a process that was just started as this user, or of one that descends from
    /// it. Cancel safe.
    pub(crate) async fn wait_for(&self, pid: u32, uid: u32) -> Guest {
        match self.entrance.wait_for(pid, uid).await {
            Ok(guest) => guest,
            // Only when the listener is dropped, and then the boot is too.
            Err(_) => std::future::pending().await,
        }
    }

    /// Processes that were refused in this last time.
    pub(crate) fn strangers(&self, within: Duration) -> Vec<u32> {
        let waiting = lock(&self.entrance.waiting);
        let refused = waiting.refused.iter();
        let lately = refused.filter(|(when, _)| when.elapsed() <= within);
        lately.map(|(_, pid)| *pid).collect()
    }
}

impl Drop for RelayListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: Listener, entrance: Arc<Entrance>, mut lent: watch::Receiver<bool>) {
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
            Ok((channel, origin)) => {
                while tasks.try_join_next().is_some() {}
                if strangers.make_room(tasks.len(), STRANGERS) != Admission::Full {
                    let (entrance, place) = (entrance.clone(), strangers.enter());
                    tasks.spawn(async move {
                        tokio::select! {
                            biased;
                            () = receive(channel, origin, &entrance) => {}
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
                open_files::made_room(&error);
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

fn tell_of_refused(pid: u32, origin: Origin, why: &Refused) {
    tell_of_stranger(&match origin {
        Origin::Unix { uid, .. } => {
            format!("process {pid} of user {uid} is not taken for a worker: {why}")
        }
        Origin::Tcp { there, .. } => {
            format!("process {pid}, as it says, from {there} is not taken for a worker: {why}")
        }
    });
}

async fn receive(mut channel: Channel, origin: Origin, entrance: &Entrance) {
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
    let pid = match origin {
        Origin::Unix { pid, .. } => pid,
        Origin::Tcp { .. } => answer.pid,
    };
    let guest = (channel, answer.leftover);
    if let Err(why) = entrance.let_in(pid, origin, guest).await {
        entrance.remember(pid);
        tell_of_refused(pid, origin, &why);
    }
}

impl Default for Entrance {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            begins: watch::Sender::new(()),
        }
    }
}

impl Entrance {
    fn wait_for(&self, pid: u32, uid: u32) -> oneshot::Receiver<Guest> {
        let (place, guest) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        waiting.boots.retain(|_, boot| !boot.place.is_closed());
        waiting.boots.insert(pid, Boot { uid, place });
        drop(waiting);
        self.begins.send_replace(());
        guest
    }

    async fn let_in(&self, pid: u32, origin: Origin, guest: Guest) -> Result<(), Refused> {
        let started = tokio::time::timeout(EARLY, self.started(pid)).await;
        let (started, uid) = started.unwrap_or(Err(Refused::NotAwaited))?;
        origin.prove(pid, uid).await?;
        let boot = lock(&self.waiting).boots.remove(&started);
        let handed = boot.map(|boot| boot.place.send(guest));
        match handed {
            Some(Ok(())) => Ok(()),
            // It has just been given up, or another process below it was quicker.
            Some(Err(_)) | None => Err(Refused::NotAwaited),
        }
    }

    /// The process that was started so that this one runs, and its pool's user: itself, or a shell
    /// or script that has started it. Waits where this server may yet tell that it has started one.
    async fn started(&self, pid: u32) -> Result<(u32, u32), Refused> {
        let mut begins = self.begins.subscribe();
        let own = std::process::id();
        loop {
            let ancestors: Vec<u32> = lineage(pid).collect();
            let awaited = |waiting: &Waiting| {
                let mut ancestors = ancestors.iter();
                ancestors.find_map(|pid| Some((*pid, waiting.boots.get(pid)?.uid)))
            };
            if let Some(started) = awaited(&lock(&self.waiting)) {
                return Ok(started);
            }
            if !ancestors.contains(&own) {
                return Err(Refused::Stranger);
            }
            _ = begins.changed().await; // its sender lives as long as this
        }
    }

    fn remember(&self, pid: u32) {
        let refused = &mut lock(&self.waiting).refused;
        refused.truncate(MOST_REFUSED - 1);
        refused.push_front((Instant::now(), pid));
    }
}

impl Origin {
    /// Looks whether it is this process of this user that has connected.
    ///
    /// A process that has ended may have left its connection to others, and its number to a new
    /// one; the user of a connection stays who it was.
    async fn prove(self, pid: u32, of_pool: u32) -> Result<(), Refused> {
        let is_of = |its: u32| {
            if its == of_pool {
                return Ok(());
            }
            Err(Refused::OtherUser { its, of_pool })
        };
        let (there, here) = match self {
            Self::Unix { uid, .. } => return is_of(uid),
            Self::Tcp { there, here } => (there, here),
        };
        // The table may be long, and a stranger can have it read.
        static READING: Semaphore = Semaphore::const_new(1);
        let _alone = READING.acquire().await;
        let look = move || {
            let Some(peer) = TcpPeer::find(there, here)? else {
                return Ok(None);
            };
            let is_its = match peer.is_of(pid) {
                // Its user has to do, which is the border between pools.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                looked => looked?,
            };
            Ok(Some((peer.uid, is_its)))
        };
        let looked = spawn_blocking(look)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        let (uid, is_its) = looked.map_err(Refused::Unknown)?.ok_or(Refused::NotHere)?;
        is_of(uid)?;
        if is_its {
            Ok(())
        } else {
            Err(Refused::OtherProcess)
        }
    }
}

/// For the log.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("no pool has this user"),
            Self::Stranger => f.write_str(
                "this server has not started it; hint: a command that starts PHP elsewhere, in a container for \
                 instance, needs `relay: pipes`",
            ),
            Self::NotAwaited => {
                f.write_str("a worker has started it, and there is no start that waits for it")
            }
            Self::OtherUser { its, of_pool } => write!(
                f,
                "it is user {its}'s, and its pool's is {of_pool}; hint: a command that changes the user, as `sudo` does, \
                 is to leave that to the pool's `user`"
            ),
            Self::OtherProcess => f.write_str("that process has not made this connection"),
            Self::NotHere => f.write_str(
                "no socket of this machine is at the other end; hint: `relay: tcp://127.0.0.1:7000`, or `unix://…`",
            ),
            Self::Unknown(error) => {
                write!(f, "the kernel does not say who has connected: {error}; hint: `relay: unix://…`")
            }
        }
    }
}

/// For messages: what the operator wrote.
impl fmt::Display for RelayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
mod tests;
