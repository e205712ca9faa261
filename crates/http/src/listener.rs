//! Listening sockets and the tasks that accept from them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pronghorn_process::socket::{
    AFTER_FAILED_ACCEPT, BindError, bound_to, is_about_the_connection,
};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::connection::Http1;
use crate::message::{Peer, PeerAddress};
use crate::service::{Full, Service};
use crate::stream::Stream;
use crate::threads::{IoThread, emptier};

/// Connections that wait in the kernel; it takes the smaller of this and `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// One address, listened on by a socket per I/O thread.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    was_inherited: bool,
    sockets: Vec<std::net::TcpListener>,
}

/// The accepting tasks of a listener; they end when it is dropped.
#[derive(Debug)]
pub struct Accepting {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

impl Listener {
    /// Takes the sockets that listen on this address already; if there is none, binds once for each of `threads` threads.
    /// With port 0, all get the port that the first one was given.
    ///
    /// # Errors
    ///
    /// What is in the way, and what to do.
    pub fn open(
        address: SocketAddr,
        threads: usize,
        inherited: Vec<OwnedFd>,
    ) -> Result<Self, BindError> {
        let sockets = bound_to(&[address], inherited);
        match sockets.first().map(std::net::TcpListener::local_addr) {
            Some(bound) => Ok(Self {
                address: bound.map_err(|source| BindError::tcp(address, source))?,
                was_inherited: true,
                sockets,
            }),
            None => Self::bind(address, threads),
        }
    }

    /// Binds once for each of `threads` threads.
    pub fn bind(address: SocketAddr, threads: usize) -> Result<Self, BindError> {
        let failed = |source| BindError::tcp(address, source);
        // A socket of another process with the same user could share a port by SO_REUSEPORT without either noticing: the
        // first one is bound without it, as a question, and again with it.
        drop(bind_socket(address, false).map_err(failed)?);
        let first = bind_socket(address, true).map_err(failed)?;
        let address = first.local_addr().map_err(failed)?;
        let mut sockets = vec![first];
        for _ in 1..threads {
            sockets.push(bind_socket(address, true).map_err(failed)?);
        }
        Ok(Self {
            address,
            was_inherited: false,
            sockets,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether another process still accepts from it.
    pub fn was_inherited(&self) -> bool {
        self.was_inherited
    }

    /// One for each thread when they were bound here; as many as the process before had when they are inherited.
    pub fn sockets(&self) -> &[std::net::TcpListener] {
        &self.sockets
    }

    /// Starts to accept on every thread and from every socket: a socket that nobody accepts from would keep its share of the
    /// connections waiting.
    ///
    /// # Errors
    ///
    /// When a runtime can't watch a socket.
    pub fn serve(
        self,
        threads: &[IoThread],
        service: &Arc<Service>,
    ) -> Result<Accepting, BindError> {
        let mut accepting = Accepting {
            address: self.address,
            tasks: Vec::new(),
        };
        let mut sockets = self.sockets;
        for shared in 0..threads.len().saturating_sub(sockets.len()) {
            let another = sockets[shared].try_clone().map_err(BindError::Runtime)?;
            sockets.push(another);
        }
        for (socket, thread) in sockets.into_iter().zip(threads.iter().cycle()) {
            let _context = thread.runtime.enter();
            let listener = TcpListener::from_std(socket).map_err(BindError::Runtime)?;
            let door = Door {
                threads: threads.to_vec(),
                own: thread.clone(),
                service: service.clone(),
            };
            accepting
                .tasks
                .push(thread.runtime.spawn(door.accept(listener)));
        }
        Ok(accepting)
    }
}

/// All addresses of the machine: those of both families where there is IPv6, else those of IPv4.
pub fn any_address() -> IpAddr {
    let v6 = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP));
    match v6.and_then(|socket| socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).into())) {
        Ok(()) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn bind_socket(address: SocketAddr, shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    if shared {
        socket.listen(BACKLOG)?;
    }
    Ok(socket.into())
}

impl Accepting {
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Accepts on one thread and hands a connection to another when that has clearly less to do.
struct Door {
    threads: Vec<IoThread>,
    own: IoThread,
    service: Arc<Service>,
}

impl Door {
    /// Accepts until the service drains, and then what is waiting already: closing the socket would reset it.
    async fn accept(self, listener: TcpListener) {
        let mut last = BACKLOG;
        while last > 0 {
            if self.service.draining.is_cancelled() {
                last -= 1; // more than that were not waiting
            }
            let accepted = tokio::select! {
                biased;
                accepted = listener.accept() => accepted,
                () = self.service.draining.cancelled() => return,
            };
            match accepted {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) if is_about_the_connection(&error) => {}
                Err(error) => {
                    tracing::error!(target: "http", "cannot accept connections: {error}");
                    tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
                }
            }
        }
    }

    /// It is closed without a word: an answer would cost more than the connection.
    fn refuse(&self, full: Full, address: PeerAddress) {
        let Some(connections) = self.service.refusals.event() else {
            return;
        };
        match full {
            Full::All => {
                let limit = self.service.limits.connections;
                tracing::warn!(target: "http", connections, limit, "connections refused: there are too many");
            }
            Full::Address => tracing::warn!(
                target: "http", connections, remote_address = %address,
                "connections refused: an address has as many as `http.max_per_address` allows"
            ),
        }
    }

    fn admit(&self, stream: TcpStream, address: SocketAddr) {
        let entered = match self.service.enter(PeerAddress::Ip(address)) {
            Ok(entered) => entered,
            Err(full) => return self.refuse(full, PeerAddress::Ip(address)),
        };
        _ = stream.set_nodelay(true); // without it replies in pieces are slower, not wrong
        let peer = Arc::new(Peer::new(PeerAddress::Ip(address), false));
        let thread = emptier(&self.threads, &self.own).unwrap_or(&self.own);
        let load = Loaded::on(thread);
        if std::ptr::eq(thread, &raw const self.own) {
            thread.runtime.spawn(async move {
                Http1::new(Stream::Tcp(stream), peer, entered).run().await;
                drop(load);
            });
            return;
        }
        // A socket belongs to the runtime it was registered with.
        if let Ok(stream) = stream.into_std() {
            thread.runtime.spawn(async move {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    Http1::new(Stream::Tcp(stream), peer, entered).run().await;
                }
                drop(load);
            });
        }
    }
}

/// Counts a connection on its thread.
struct Loaded(IoThread);

impl Loaded {
    fn on(thread: &IoThread) -> Self {
        thread.load.fetch_add(1, Ordering::Relaxed);
        Self(thread.clone())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}
