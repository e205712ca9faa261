//! Listening sockets and the tasks that accept from them.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_base::LogThrottle;
use pronghorn_config::{Address, Listen};
use pronghorn_plugin_api::Context;
use pronghorn_process::open_files;
use pronghorn_process::socket::{
    AFTER_FAILED_ACCEPT, Access, BindError, SocketFile, bound_to, is_about_the_connection,
    open_unix,
};
use socket2::{Domain, Protocol, SockRef, Socket as RawSocket, Type};
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{JoinHandle, yield_now};

use crate::message::Peer;
use crate::owner::tell;
use crate::peer_address::PeerAddress;
use crate::protocol::{self, Socket};
use crate::proxy_protocol::{self, Proxies, ProxyProtocol};
use crate::quic::{self, QuicAccepting, QuicSocket};
use crate::service::Service;
use crate::threads::{Loaded, emptier};
use crate::tls::Tls;
use pronghorn_workers::IoThread;

/// Connections that wait in the kernel; it takes the smaller of this and `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The operator's: a host name in an address that nobody knows.
#[derive(Debug, Error)]
#[error("`{host}` is no name of this machine")]
pub struct UnknownHost {
    host: String,
    source: io::Error,
}

/// Why nothing listens where it is configured.
#[derive(Debug, Error)]
pub enum ListenError {
    #[error(transparent)]
    Host(#[from] UnknownHost),
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system's: no descriptors.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Where a listener listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// One place, listened on by a socket per I/O thread, or by one that they share.
#[derive(Debug)]
pub struct Listener {
    place: ListenAddress,
    was_inherited: bool,
    sockets: Sockets,
    tls: Option<Tls>,
    proxies: Option<Arc<Proxies>>,
    /// For HTTP/3.
    quic: Option<QuicSocket>,
}

#[derive(Debug)]
enum Sockets {
    /// Its clients speak HTTP/3 alone.
    None,
    Tcp(Vec<std::net::TcpListener>),
    Unix(StdUnixListener, SocketFile),
}

/// The accepting tasks of a listener; they end when it is dropped.
#[derive(Debug)]
pub struct Accepting {
    tasks: Vec<JoinHandle<()>>,
    file: Option<SocketFile>,
    quic: Option<QuicAccepting>,
}

impl Listener {
    /// Takes the sockets that listen on this address already; if there is none, binds once for each
    /// of `threads` threads. With port 0, all get the port that the first one was given.
    ///
    /// # Errors
    ///
    /// What is in the way, and what to do.
    pub fn open(
        address: SocketAddr,
        threads: usize,
        inherited: &mut Vec<OwnedFd>,
    ) -> Result<Self, BindError> {
        let sockets = bound_to(&[address], inherited);
        match sockets.first().map(std::net::TcpListener::local_addr) {
            Some(bound) => Ok(Self {
                place: ListenAddress::Tcp(bound.map_err(|source| BindError::tcp(address, source))?),
                was_inherited: true,
                sockets: Sockets::Tcp(sockets),
                tls: None,
                proxies: None,
                quic: None,
            }),
            None => Self::bind(address, threads),
        }
    }

    /// Opens what a service with workers has in its configuration, for all I/O threads, and keeps
    /// the sockets under its name for the next process. `access` is for a unix socket.
    ///
    /// # Errors
    ///
    /// When the place is taken, or is no place of this machine.
    pub fn configured(
        name: &str,
        at: &Listen,
        access: Access,
        inherited: &mut Vec<OwnedFd>,
        context: &Context,
    ) -> Result<Self, ListenError> {
        let threads = context.workers.as_ref();
        let threads = threads.map_or(1, |workers| workers.io.threads().len());
        let listener = match at {
            Listen::Tcp(address) => Self::open(resolve(address)?, threads, inherited)?,
            Listen::Unix(path) => {
                let path = context.directory().join(path);
                let is_systemds = context.sockets.is_systemds(&path);
                Self::open_unix(&path, access, is_systemds, inherited)?
            }
        };
        for socket in listener.sockets() {
            context.sockets.offer(name, socket)?;
        }
        Ok(listener)
    }

    /// For HTTP/3 alone.
    pub fn of_http3(address: SocketAddr, tls: Tls) -> Self {
        Self {
            place: ListenAddress::Tcp(address),
            was_inherited: false,
            sockets: Sockets::None,
            tls: Some(tls),
            proxies: None,
            quic: None,
        }
    }

    /// Binds once for each of `threads` threads.
    pub(crate) fn bind(address: SocketAddr, threads: usize) -> Result<Self, BindError> {
        let failed = |source| BindError::tcp(address, source);
        // A socket of another process with the same user could share a port by SO_REUSEPORT without
        // either noticing: the first one listens without it, and lets its own share afterwards.
        let first = bind_socket(address, false).map_err(failed)?;
        SockRef::from(&first).set_reuse_port(true).map_err(failed)?;
        let address = first.local_addr().map_err(failed)?;
        let mut sockets = vec![first];
        for _ in 1..threads {
            sockets.push(bind_socket(address, true).map_err(failed)?);
        }
        Ok(Self {
            place: ListenAddress::Tcp(address),
            was_inherited: false,
            sockets: Sockets::Tcp(sockets),
            tls: None,
            proxies: None,
            quic: None,
        })
    }

    /// Takes the inherited socket of this path, or binds it; a unix socket has one queue for all
    /// threads.
    ///
    /// # Errors
    ///
    /// What is in the way, and what to do.
    pub fn open_unix(
        path: &Path,
        access: Access,
        is_systemds: bool,
        inherited: &mut Vec<OwnedFd>,
    ) -> Result<Self, BindError> {
        let (socket, file) = open_unix(path, access, is_systemds, inherited)?;
        Ok(Self {
            place: ListenAddress::Unix(path.to_owned()),
            was_inherited: !file.is_ours(),
            sockets: Sockets::Unix(socket, file),
            tls: None,
            proxies: None,
            quic: None,
        })
    }

    /// Its clients must speak TLS.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Its clients may speak HTTP/3 as well, on the same port of UDP. For addresses that have
    /// [TLS](Self::with_tls). The socket is kept under this name for the next process.
    ///
    /// # Errors
    ///
    /// When the port is taken, or there are too many open files.
    pub fn with_http3(
        mut self,
        name: &str,
        inherited: &mut Vec<OwnedFd>,
        context: &Context,
    ) -> Result<Self, ListenError> {
        if let ListenAddress::Tcp(address) = self.place {
            let socket = QuicSocket::open(address, inherited)?;
            for kept in socket.sockets() {
                context.sockets.offer(name, kept)?;
            }
            self.quic = Some(socket);
        }
        Ok(self)
    }

    /// Its clients come by proxies that tell who they are.
    #[must_use]
    pub fn with_proxies(mut self, proxies: ProxyProtocol) -> Self {
        self.proxies = Some(Arc::new(Proxies::new(proxies)));
        self
    }

    /// An address that a person can open in a browser, which 0.0.0.0 and :: are not. For a unix
    /// socket its path.
    pub fn url(&self) -> String {
        match &self.place {
            ListenAddress::Unix(_) => self.place.to_string(),
            ListenAddress::Tcp(address) => {
                let mut shown = *address;
                if address.ip().is_unspecified() {
                    shown.set_ip(Ipv4Addr::LOCALHOST.into());
                }
                let scheme = if self.has_tls() { "https" } else { "http" };
                format!("{scheme}://{shown}")
            }
        }
    }

    /// Where it listens, with the port that it was given.
    pub fn place(&self) -> &ListenAddress {
        &self.place
    }

    /// Whether its clients must speak TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The port of UDP where its clients may speak HTTP/3.
    pub fn http3_port(&self) -> Option<u16> {
        self.quic.as_ref().map(QuicSocket::port)
    }

    /// Whether another process still accepts from it.
    pub fn was_inherited(&self) -> bool {
        self.was_inherited
    }

    /// One for each thread when they were bound here; as many as the process before had when they
    /// are inherited; one of a unix socket.
    pub fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        match &self.sockets {
            Sockets::None => Vec::new(),
            Sockets::Tcp(sockets) => sockets.iter().map(AsFd::as_fd).collect(),
            Sockets::Unix(socket, _) => vec![socket.as_fd()],
        }
    }

    /// Starts to accept on every thread and from every socket: a socket that nobody accepts from
    /// would keep its share of the connections waiting.
    ///
    /// # Errors
    ///
    /// When a runtime can't watch a socket.
    pub fn serve(
        self,
        threads: &[IoThread],
        service: &Arc<Service>,
    ) -> Result<Accepting, BindError> {
        let server = match &self.place {
            ListenAddress::Tcp(address) if !address.ip().is_unspecified() => Some(*address),
            ListenAddress::Tcp(_) | ListenAddress::Unix(_) => None,
        };
        let (sockets, file) = self.sockets.for_threads(threads.len())?;
        let mut accepting = Accepting {
            tasks: Vec::new(),
            file,
            quic: None,
        };
        if let (Some(socket), Some(tls)) = (self.quic, &self.tls) {
            let entry = quic::accept(socket, tls.clone(), threads.to_vec(), service.clone());
            accepting.quic = entry.map_err(BindError::Runtime)?;
        }
        for (socket, thread) in sockets.into_iter().zip(threads.iter().cycle()) {
            let _context = thread.runtime.enter();
            let is_paced = socket.is_paced();
            let entrance = socket.enter().map_err(BindError::Runtime)?;
            let door = Door {
                threads: threads.to_vec(),
                own: thread.clone(),
                service: service.clone(),
                tls: self.tls.clone(),
                proxies: self.proxies.clone(),
                server,
                is_paced,
            };
            accepting
                .tasks
                .push(thread.runtime.spawn(door.accept(entrance)));
        }
        Ok(accepting)
    }
}

/// A listening socket that no runtime watches yet.
enum Bound {
    Tcp(std::net::TcpListener),
    Unix(StdUnixListener),
}

impl Sockets {
    /// At least one for each thread, where there is any; with the file of a unix socket.
    fn for_threads(self, threads: usize) -> Result<(Vec<Bound>, Option<SocketFile>), BindError> {
        let mut bound = Vec::new();
        match self {
            Self::None => Ok((bound, None)),
            Self::Tcp(sockets) => {
                for shared in 0..threads.saturating_sub(sockets.len()) {
                    let another = sockets[shared % sockets.len()].try_clone();
                    bound.push(Bound::Tcp(another.map_err(BindError::Runtime)?));
                }
                bound.extend(sockets.into_iter().map(Bound::Tcp));
                Ok((bound, None))
            }
            Self::Unix(socket, file) => {
                for _ in 1..threads {
                    let another = socket.try_clone().map_err(BindError::Runtime)?;
                    bound.push(Bound::Unix(another));
                }
                bound.push(Bound::Unix(socket));
                Ok((bound, Some(file)))
            }
        }
    }
}

impl Bound {
    /// Whether what its clients are sent is spaced by timers: by BBR, the congestion control of
    /// many hosts.
    fn is_paced(&self) -> bool {
        match self {
            Self::Tcp(socket) => SockRef::from(socket)
                .tcp_congestion()
                .is_ok_and(|name| name.starts_with(b"bbr")),
            Self::Unix(_) => false,
        }
    }

    /// Must be called on the runtime that is to watch it.
    fn enter(self) -> io::Result<Entrance> {
        Ok(match self {
            Self::Tcp(socket) => Entrance::Tcp(TcpListener::from_std(socket)?),
            Self::Unix(socket) => {
                socket.set_nonblocking(true)?;
                Entrance::Unix(UnixListener::from_std(socket)?)
            }
        })
    }
}

/// A listening socket on its thread.
enum Entrance {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Entrance {
    async fn accept(&self) -> io::Result<(Socket, PeerAddress)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                _ = stream.set_nodelay(true); // without it replies in pieces are slower, not wrong
                Ok((Socket::Tcp(stream), PeerAddress::Ip(address)))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Socket::Unix(stream), PeerAddress::Unix))
            }
        }
    }
}

/// The first address of a name; IPv4 before IPv6, because that is what `localhost` means to most
/// clients.
///
/// # Errors
///
/// When nobody knows the name.
pub fn resolve(address: &Address) -> Result<SocketAddr, UnknownHost> {
    let Some(host) = &address.host else {
        return Ok(SocketAddr::new(any_address(), address.port));
    };
    let failed = |source| UnknownHost {
        host: host.clone(),
        source,
    };
    let mut found: Vec<_> = (host.as_str(), address.port)
        .to_socket_addrs()
        .map_err(failed)?
        .collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found
        .into_iter()
        .next()
        .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
}

/// All addresses of the machine: those of both families where there is IPv6, else those of IPv4.
fn any_address() -> IpAddr {
    let v6 = RawSocket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP));
    match v6.and_then(|socket| socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).into())) {
        Ok(()) => Ipv6Addr::UNSPECIFIED.into(),
        Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn bind_socket(address: SocketAddr, shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = RawSocket::new(
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
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

impl Accepting {
    /// Another process takes clients from now on, and has the sockets.
    pub fn hand_over(self) {
        if let Some(quic) = &self.quic {
            quic.hand_over();
        }
    }

    /// Whether it is this process that removes a unix socket's file in the end.
    pub fn set_ours(&self, ours: bool) {
        if let Some(file) = &self.file {
            file.set_ours(ours);
        }
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
    tls: Option<Tls>,
    proxies: Option<Arc<Proxies>>,
    /// Where all of its clients connect to; none when the socket takes them at several addresses.
    server: Option<SocketAddr>,
    is_paced: bool,
}

impl Door {
    /// Accepts until the service drains, and then what is waiting already: closing the socket would
    /// reset it.
    async fn accept(self, entrance: Entrance) {
        let mut last = BACKLOG;
        while last > 0 {
            if self.service.draining.is_cancelled() {
                last -= 1; // more than that were not waiting
            }
            let accepted = tokio::select! {
                biased;
                accepted = entrance.accept() => accepted,
                () = self.service.draining.cancelled() => return,
            };
            match accepted {
                Ok((socket, address)) => {
                    if self.admit(socket, address) {
                        // Whoever is to make room gets the time for it: else a burst is refused.
                        yield_now().await;
                    }
                }
                Err(error) if is_about_the_connection(&error) => {}
                Err(error) => {
                    // Without a descriptor left, each thread fails ten times in a second.
                    static FAILED: LogThrottle = LogThrottle::new();
                    if let Some(times) = FAILED.should_log() {
                        tell!(
                            self.service.owner,
                            error,
                            times,
                            "cannot accept connections: {error}"
                        );
                    }
                    open_files::made_room(&error);
                    tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
                }
            }
        }
    }

    /// True when another connection is to make room for it.
    fn admit(&self, socket: Socket, address: PeerAddress) -> bool {
        let server = self.server.or_else(|| socket.server());
        let peer = Arc::new(Peer::new(address, self.tls.is_some(), server));
        // Who connects to a proxy is counted once the proxy has told who that is.
        let counted = match &self.proxies {
            None => address.ip(),
            Some(proxies) if proxies.admit(&peer, self.service.owner) => None,
            Some(_) => {
                if let Some(refused) = self.service.refused() {
                    refused.untrusted_proxy.increment();
                }
                return false;
            }
        };
        let entered = match self.service.enter(counted) {
            Ok(entered) => entered,
            Err(full) => {
                self.service.refuse(full, address);
                return false;
            }
        };
        let is_over = entered.is_over();
        if self.is_paced && is_of_this_machine(address, server) {
            // There is no network to be spared, and the timers take up to a third of the time of
            // large replies.
            socket.send_unpaced();
        }
        let thread = emptier(&self.threads, &self.own).unwrap_or(&self.own);
        let (load, tls) = (Loaded::on(thread), self.tls.clone());
        if let Some(proxies) = &self.proxies {
            let proxies = proxies.clone();
            if let Ok(detached) = socket.detach() {
                thread.runtime.spawn(async move {
                    if let Ok(socket) = detached.attach() {
                        proxy_protocol::serve(proxies, socket, tls, peer, entered).await;
                    }
                    drop(load);
                });
            }
            return is_over;
        }
        if std::ptr::eq(thread, &raw const self.own) {
            thread.runtime.spawn(async move {
                protocol::serve(socket, tls, peer, entered).await;
                drop(load);
            });
            return is_over;
        }
        if let Ok(detached) = socket.detach() {
            thread.runtime.spawn(async move {
                if let Ok(socket) = detached.attach() {
                    protocol::serve(socket, tls, peer, entered).await;
                }
                drop(load);
            });
        }
        is_over
    }
}

fn is_of_this_machine(client: PeerAddress, server: Option<SocketAddr>) -> bool {
    client.ip().is_some_and(|ip| {
        ip.is_loopback() || server.is_some_and(|server| server.ip().to_canonical() == ip)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::UNPACED;

    #[test]
    fn a_client_is_of_this_machine_by_either_address() {
        let of_this_machine = |client: &str, server: Option<&str>| {
            is_of_this_machine(
                PeerAddress::Ip(client.parse().unwrap()),
                server.map(|server| server.parse().unwrap()),
            )
        };
        assert!(of_this_machine("127.0.0.9:1", None));
        assert!(of_this_machine("[::1]:1", Some("[::1]:80")));
        assert!(of_this_machine("[::ffff:127.0.0.1]:1", None));
        assert!(of_this_machine("192.0.2.1:1", Some("192.0.2.1:80")));
        assert!(of_this_machine(
            "192.0.2.1:1",
            Some("[::ffff:192.0.2.1]:80")
        ));
        assert!(!of_this_machine("192.0.2.2:1", Some("192.0.2.1:80")));
        assert!(!of_this_machine("192.0.2.2:1", None));
        assert!(!is_of_this_machine(PeerAddress::Unix, None));
    }

    #[test]
    fn threads_share_a_port_with_each_other_and_nobody_else() {
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(any, 2).unwrap();
        let ListenAddress::Tcp(address) = listener.place else {
            unreachable!("it was bound to an address");
        };
        let refused = Listener::bind(address, 2).err().unwrap();
        assert!(refused.to_string().contains("in use"), "{refused}");
        let Sockets::Tcp(sockets) = &listener.sockets else {
            unreachable!("it was bound to an address");
        };
        let clients: Vec<_> = (0..64)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        let accepted =
            |socket: &std::net::TcpListener| std::iter::from_fn(|| socket.accept().ok()).count();
        let each: Vec<usize> = sockets.iter().map(accepted).collect();
        assert_eq!(each.iter().sum::<usize>(), clients.len());
        assert!(each.iter().all(|count| *count > 0), "{each:?}");
    }

    #[tokio::test]
    async fn a_connection_is_taken_off_its_timers() {
        let paced = bind_socket("127.0.0.1:0".parse().unwrap(), true).unwrap();
        if SockRef::from(&paced).set_tcp_congestion(b"bbr").is_err() {
            return; // a kernel without it spaces nothing
        }
        let address = paced.local_addr().unwrap();
        let bound = Bound::Tcp(paced);
        assert!(bound.is_paced());
        let entrance = bound.enter().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();

        let (socket, _) = entrance.accept().await.unwrap();
        let control = |socket: &Socket| match socket {
            Socket::Tcp(stream) => SockRef::from(stream).tcp_congestion().unwrap(),
            Socket::Unix(_) => unreachable!("it was accepted from a TCP socket"),
        };
        assert!(control(&socket).starts_with(b"bbr"));
        socket.send_unpaced();
        assert!(control(&socket).starts_with(UNPACED));
    }
}
