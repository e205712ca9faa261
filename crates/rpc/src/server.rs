//! Accepts connections and ends them.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pronghorn_base::{Admission, LogThrottle, Place, Standings};
use pronghorn_metrics::Registry;
use pronghorn_plugin_api::Stopped;
use pronghorn_plugin_api::rpc::Methods;
use pronghorn_process::open_files::{self, Share};
use pronghorn_process::socket::{
    AFTER_FAILED_ACCEPT, Admitted, BindError, SocketFile, is_about_the_connection,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::connection::serve;
use crate::listener::{Listener, Socket};
use crate::room::{REPLIES_UNREAD, Room};

/// Calls of one connection that are not answered yet; while there are as many, nothing is read from
/// it.
pub const CALLS_PER_CONNECTION: usize = 64;
/// Payloads of all calls under way, small ones aside; a call that finds no room waits, with its
/// connection. Four of the longest.
pub const BYTES_UNDER_WAY: usize = 256 << 20;

/// A caller on another machine that is switched off says nothing; the kernel asks after such a
/// pause.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A server at work. Dropped, it ends at once.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    accepting: JoinSet<()>,
    /// The accepting task has it, and removes it first of all.
    file: Weak<SocketFile>,
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) methods: Methods,
    pub(crate) stopping: CancellationToken,
    /// Until then another process accepts from the socket, and from `handed_over` on.
    opened: CancellationToken,
    handed_over: CancellationToken,
    pub(crate) budget: Arc<Semaphore>,
    pub(crate) replies: Arc<Room>,
    pub(crate) calls: Count,
    connections: Count,
    standings: Arc<Standings>,
    most_connections: usize,
    pub(crate) throttles: Throttles,
}

/// Of records about what callers do, who choose how often.
#[derive(Debug, Default)]
pub(crate) struct Throttles {
    refused: LogThrottle,
    evicted: LogThrottle,
    /// Failures to accept: without a descriptor left, ten in a second.
    failed: LogThrottle,
    pub(crate) broken: LogThrottle,
}

/// How many there are of something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Counted(Count);

impl Server {
    /// Accepts and answers on the runtime it is called on; from an inherited socket once it is
    /// [opened](Self::open). Methods may be added later, too.
    pub fn start(listener: Listener, methods: Methods) -> Result<Self, BindError> {
        let was_inherited = listener.was_inherited();
        let (door, file) = Door::new(listener.socket).map_err(BindError::Runtime)?;
        let shared = Arc::new(Shared::new(
            methods,
            // For one more the one that has called nothing for the longest time is closed.
            Share::RPC.connections(),
            BYTES_UNDER_WAY,
            REPLIES_UNREAD,
        ));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(door, shared.clone()));
        let server = Self {
            shared,
            accepting,
            file,
        };
        if !was_inherited {
            server.open();
        }
        Ok(server)
    }

    /// The process before has left the socket to this one.
    pub fn open(&self) {
        if let Some(file) = self.file.upgrade() {
            file.set_ours(true);
        }
        self.shared.opened.cancel();
    }

    /// The next process accepts from the socket: connections that are open are still served.
    pub fn hand_over(&self) {
        if let Some(file) = self.file.upgrade() {
            file.set_ours(false);
        }
        self.shared.handed_over.cancel();
    }

    /// Open connections, idle ones included.
    pub fn connections(&self) -> usize {
        self.shared.connections.now()
    }

    /// Says there how many connections are open.
    pub fn tell_connections(&self, metrics: &Registry) {
        let connections = self.shared.connections.clone();
        metrics.present("connections", "Open connections of callers.", move || {
            // Far fewer are taken.
            u32::try_from(connections.now()).map_or(f64::INFINITY, f64::from)
        });
    }

    /// Calls under way.
    pub fn calls(&self) -> usize {
        self.shared.calls.now()
    }

    /// Closes the socket and idle connections, and takes no further calls but those that are on
    /// their way. Those under way are answered if they are done by `deadline`, and cut off then;
    /// each of these is named in a record.
    pub async fn stop(mut self, deadline: Instant) -> Stopped {
        self.shared.stopping.cancel();
        if timeout_at(deadline, self.accepting.join_next())
            .await
            .is_ok()
        {
            return Stopped::Clean;
        }
        let cut_off = match (self.calls(), self.connections()) {
            // Their callers don't read.
            (0, connections) => format!("replies on {connections} connections"),
            (calls, _) => format!("{calls} calls"),
        };
        self.accepting.shutdown().await;
        Stopped::CutOff(cut_off)
    }
}

enum Door {
    Tcp(TcpListener),
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "removes the file when dropped")] Arc<SocketFile>,
        Admitted,
    ),
}

enum Guest {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Door {
    fn new(socket: Socket) -> io::Result<(Self, Weak<SocketFile>)> {
        Ok(match socket {
            Socket::Tcp(socket) => (Self::Tcp(TcpListener::from_std(socket)?), Weak::new()),
            Socket::Unix(socket, file, admitted) => {
                let file = Arc::new(file);
                let weak = Arc::downgrade(&file);
                let listener = UnixListener::from_std(socket)?;
                (Self::Unix(listener, file, admitted), weak)
            }
        })
    }

    /// A connection, and who is at its other end.
    async fn open(&self) -> io::Result<(Guest, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                _ = stream.set_nodelay(true); // without it replies are slower, not wrong
                let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
                _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive); // a dead caller is only noticed later
                Ok((Guest::Tcp(stream), peer.to_string()))
            }
            Self::Unix(listener, _, admitted) => {
                let stream = loop {
                    let (stream, _) = listener.accept().await?;
                    if admitted.has(&stream) {
                        break stream;
                    }
                    refuse(&stream);
                };
                let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
                let peer = pid.map_or_else(|| "a process".to_owned(), |pid| format!("pid {pid}"));
                Ok((Guest::Unix(stream), peer))
            }
        }
    }
}

/// Somebody else's process: its connection is closed.
fn refuse(stream: &UnixStream) {
    static REFUSED: LogThrottle = LogThrottle::new();
    if let Some(connections) = REFUSED.should_log() {
        let uid = stream.peer_cred().ok().map(|peer| peer.uid());
        tracing::warn!(target: "rpc", connections, uid, "refused: the user is none of the workers'");
    }
}

async fn accept(door: Door, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let opened = tokio::select! {
            () = shared.stopping.cancelled() => break,
            () = shared.handed_over.cancelled() => break,
            opened = door.open(), if shared.opened.is_cancelled() => opened,
            () = shared.opened.cancelled(), if !shared.opened.is_cancelled() => continue,
            Some(_) = connections.join_next() => continue,
        };
        match opened {
            Ok((guest, peer)) => {
                let Some((counted, place)) = shared.admit() else {
                    continue;
                };
                connections.spawn(host(guest, peer, place, counted, shared.clone()));
                // Who is to make room for the next one gets the time for it.
                yield_now().await;
            }
            Err(error) if is_about_the_connection(&error) => {}
            Err(error) => {
                if let Some(times) = shared.throttles.failed.should_log() {
                    tracing::error!(target: "rpc", times, "cannot accept connections: {error}");
                }
                open_files::made_room(&error);
                tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
            }
        }
    }
    drop(door);
    while connections.join_next().await.is_some() {}
}

async fn host(guest: Guest, peer: String, place: Place, counted: Counted, shared: Arc<Shared>) {
    match guest {
        Guest::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            serve(reader, writer, &peer, place, shared).await;
        }
        Guest::Unix(stream) => {
            let (reader, writer) = stream.into_split();
            serve(reader, writer, &peer, place, shared).await;
        }
    }
    drop(counted);
}

impl Shared {
    pub(crate) fn new(
        methods: Methods,
        most_connections: usize,
        bytes_under_way: usize,
        replies_unread: usize,
    ) -> Self {
        Self {
            methods,
            stopping: CancellationToken::new(),
            opened: CancellationToken::new(),
            handed_over: CancellationToken::new(),
            budget: Arc::new(Semaphore::new(bytes_under_way)),
            replies: Arc::new(Room::new(replies_unread)),
            calls: Count::default(),
            connections: Count::default(),
            standings: Arc::default(),
            most_connections,
            throttles: Throttles::default(),
        }
    }
}

impl Shared {
    /// A place for a new connection; none where all have calls under way.
    fn admit(&self) -> Option<(Counted, Place)> {
        let limit = self.most_connections;
        match self.standings.make_room(self.connections.now(), limit) {
            Admission::Free => {}
            Admission::Freed => {
                if let Some(connections) = self.throttles.evicted.should_log() {
                    tracing::warn!(
                        target: "rpc", connections, limit,
                        "idle connections closed for new ones: the limit of connections is reached"
                    );
                }
            }
            Admission::Full => {
                if let Some(connections) = self.throttles.refused.should_log() {
                    tracing::warn!(
                        target: "rpc", connections, limit,
                        "connections refused: there are too many, and all have calls under way"
                    );
                }
                return None;
            }
        }
        Some((self.connections.count(), self.standings.enter()))
    }
}

impl Count {
    pub(crate) fn count(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    pub(crate) fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Address, Endpoint};
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn for_one_connection_too_many_the_longest_idle_one_is_closed() {
        let host = Some("127.0.0.1".to_owned());
        let listener = Listener::bind(&Endpoint::Tcp(Address { host, port: 0 }), &[]).unwrap();
        let Endpoint::Tcp(Address { port, .. }) = *listener.endpoint() else {
            panic!("bound to TCP");
        };
        let (door, _) = Door::new(listener.socket).unwrap();
        let shared = Arc::new(Shared::new(Methods::default(), 2, 0, 0));
        shared.opened.cancel();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(door, shared.clone()));
        let connect = || TcpStream::connect(("127.0.0.1", port));

        let mut longest = connect().await.unwrap();
        while shared.connections.now() < 1 {
            yield_now().await;
        }
        let other = connect().await.unwrap();
        while shared.connections.now() < 2 {
            yield_now().await;
        }
        let mut admitted = connect().await.unwrap();
        let closed = timeout(Duration::from_secs(10), longest.read(&mut [0])).await;
        assert_eq!(closed.expect("closed at once").unwrap(), 0);
        while shared.connections.now() > 2 {
            yield_now().await;
        }
        shared.stopping.cancel();
        assert_eq!(
            admitted.read(&mut [0]).await.unwrap(),
            0,
            "open until the stop"
        );
        drop(other);
    }
}
