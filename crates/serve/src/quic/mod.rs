//! QUIC below HTTP/3: a socket for each listener, handshakes, and who may come in.
//!
//! One task reads the socket and hands packets to connections, which encrypt and send on the
//! threads that they live on. So a client that comes from another address reaches its connection,
//! which a socket per thread would not see to.

mod passage;

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use pronghorn_base::lock;
use pronghorn_process::socket::{BindError, bound_datagrams, receive_singly};
use pronghorn_workers::IoThread;
use quinn::{
    Connection, Endpoint, EndpointConfig, Incoming, Runtime, ServerConfig, TokenLog,
    TokenReuseError, TokioRuntime, TransportConfig, ValidationTokenConfig,
};
use socket2::{Domain, Protocol, Socket as RawSocket, Type};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use self::passage::{Passage, SharedSocket};
use crate::http3::{self, FIRST_WINDOW, SEND_WINDOW, STREAM_WINDOW, UNI_STREAMS};
use crate::limits::Limits;
use crate::message::Peer;
use crate::peer_address::PeerAddress;
use crate::service::Service;
use crate::threads::{Loaded, emptier};
use crate::tls::{HANDSHAKE, Tls};

/// Packets of clients whose handshake has not begun: for one client, and for all.
const WAITING: u64 = 16 << 10;
const ALL_WAITING: u64 = 4 << 20;
/// Clients whose handshake has not begun.
const INCOMING: usize = 1024;
/// With so many handshakes under way, clients have to prove their addresses first, which takes them
/// another round trip (RFC 9000, section 8.1).
const UNPROVEN: usize = 128;
/// Bytes that the kernel keeps for the socket in each direction, as far as it allows. Its default
/// is for a few connections.
const BUFFER: usize = 2 << 20;

/// A socket of UDP, for all connections of a listener.
#[derive(Debug)]
pub(crate) struct QuicSocket {
    socket: UdpSocket,
    passage: Passage,
}

/// The task that lets clients in, until this is dropped.
#[derive(Debug)]
pub(crate) struct QuicAccepting {
    task: JoinHandle<()>,
    socket: Arc<SharedSocket>,
}

impl QuicAccepting {
    /// The next process lets clients in from now on. Connections that are open stay here.
    pub(crate) fn hand_over(&self) {
        self.socket.hand_over();
    }
}

impl Drop for QuicAccepting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl QuicSocket {
    /// Takes the inherited socket of this address, or binds it.
    pub(crate) fn open(
        address: SocketAddr,
        inherited: &mut Vec<OwnedFd>,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError::udp(address, source);
        let socket = match bound_datagrams(address, inherited) {
            Some(socket) => socket,
            None => bind(address).map_err(failed)?,
        };
        let bound = socket.local_addr().map_err(failed)?;
        let passage = Passage::new(bound, inherited).map_err(failed)?;
        Ok(Self { socket, passage })
    }

    /// For the next process.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.passage.sockets().chain([self.socket.as_fd()])
    }

    pub(crate) fn port(&self) -> u16 {
        self.socket.local_addr().map_or(0, |local| local.port())
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = RawSocket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    socket.set_nonblocking(true)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    // Less than that is slower, not wrong.
    _ = socket.set_recv_buffer_size(BUFFER);
    _ = socket.set_send_buffer_size(BUFFER);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Accepts connections until the service drains.
pub(crate) fn accept(
    socket: QuicSocket,
    tls: Tls,
    threads: Vec<IoThread>,
    service: Arc<Service>,
) -> io::Result<Option<QuicAccepting>> {
    let (Some(own), Some(config)) = (threads.first().cloned(), config(&tls, &service.limits))
    else {
        return Ok(None);
    };
    let _context = own.runtime.enter();
    let runtime = Arc::new(TokioRuntime);
    let QuicSocket { socket, passage } = socket;
    let mut ids = EndpointConfig::default();
    ids.cid_generator(passage.ids());
    let single = socket.try_clone()?;
    let shared = passage.watch(runtime.wrap_udp_socket(socket)?)?;
    receive_singly(&single)?; // see SharedSocket::max_receive_segments
    let endpoint = Endpoint::new_with_abstract_socket(ids, Some(config), shared.clone(), runtime)?;
    let door = Door {
        endpoint,
        tls,
        threads,
        own,
        service,
        shaking: Arc::default(),
    };
    let task = door.own.runtime.clone().spawn(door.accept());
    Ok(Some(QuicAccepting {
        task,
        socket: shared,
    }))
}

fn config(tls: &Tls, limits: &Limits) -> Option<ServerConfig> {
    let mut config = ServerConfig::with_crypto(Arc::new(tls.for_quic()?));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(limits.http2.streams.into())
        .max_concurrent_uni_streams(UNI_STREAMS.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window(FIRST_WINDOW.into())
        .send_window(SEND_WINDOW.into())
        .datagram_receive_buffer_size(None)
        // Beyond the time that a connection may be idle, nobody is there.
        .max_idle_timeout(
            (limits.receive.idle + Duration::from_secs(15))
                .try_into()
                .ok(),
        );
    let mut tokens = ValidationTokenConfig::default();
    tokens.sent(TOKENS).log(Arc::new(UsedTokens::default()));
    config
        .validation_token_config(tokens)
        .transport_config(Arc::new(transport))
        .max_incoming(INCOMING)
        .incoming_buffer_size(WAITING)
        .incoming_buffer_size_total(ALL_WAITING);
    Some(config)
}

/// Tokens that prove an address when their client comes back, for each connection.
const TOKENS: u32 = 2;
/// Used tokens that are remembered. Beyond as many, the older half is forgotten, and all tokens
/// that are as old are refused.
const MOST_TOKENS: usize = 64 << 10;

/// Tokens that were used: each is good for one connection.
#[derive(Debug, Default)]
struct UsedTokens(Mutex<RememberedTokens>);

#[derive(Debug, Default)]
struct RememberedTokens {
    by_age: BTreeSet<(SystemTime, u128)>,
    /// Tokens that were issued until then are refused.
    forgotten: Option<SystemTime>,
}

impl TokenLog for UsedTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        issued: SystemTime,
        _: Duration,
    ) -> Result<(), TokenReuseError> {
        let mut tokens = lock(&self.0);
        if tokens
            .forgotten
            .is_some_and(|forgotten| issued <= forgotten)
            || !tokens.by_age.insert((issued, nonce))
        {
            return Err(TokenReuseError);
        }
        if tokens.by_age.len() > MOST_TOKENS {
            let middle = tokens.by_age.iter().nth(MOST_TOKENS / 2).copied();
            if let Some(middle) = middle {
                tokens.by_age = tokens.by_age.split_off(&middle);
                tokens.forgotten = Some(middle.0);
            }
        }
        Ok(())
    }
}

/// Lets clients in.
struct Door {
    endpoint: Endpoint,
    tls: Tls,
    threads: Vec<IoThread>,
    own: IoThread,
    service: Arc<Service>,
    /// Handshakes under way.
    shaking: Arc<AtomicUsize>,
}

/// A handshake under way.
struct Shaking(Arc<AtomicUsize>);

impl Drop for Shaking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the end of the handshake; where nothing depends on it, no longer than until requests
/// can be answered.
async fn shake(incoming: Incoming, is_whole: bool, shaking: Shaking) -> Option<Connection> {
    let connecting = incoming.accept().ok()?;
    if is_whole {
        let connection = tokio::time::timeout(HANDSHAKE, connecting).await;
        return connection.ok()?.ok();
    }
    // A server can always send before the end of it.
    let (connection, ended) = connecting.into_0rtt().ok()?;
    let handshake = connection.clone();
    // It ends in time by itself.
    Handle::current().spawn(async move {
        let in_time = tokio::time::timeout(HANDSHAKE, ended).await;
        if in_time.is_err() {
            http3::give_up(&handshake);
        }
        drop(shaking);
    });
    Some(connection)
}

impl Door {
    async fn accept(self) {
        let draining = self.service.draining.clone();
        loop {
            let incoming = tokio::select! {
                incoming = self.endpoint.accept() => incoming,
                () = draining.cancelled() => None,
            };
            match incoming {
                Some(incoming) => self.admit(incoming),
                None => break,
            }
        }
        self.endpoint.set_server_config(None); // others are refused
        self.endpoint.wait_idle().await;
    }

    fn admit(&self, incoming: Incoming) {
        let under_way = self.shaking.load(Ordering::Relaxed);
        if under_way >= UNPROVEN && incoming.may_retry() {
            _ = incoming.retry(); // it may
            return;
        }
        let is_proven = incoming.remote_address_validated();
        let address = PeerAddress::Ip(incoming.remote_address());
        let entered = match self.service.enter(address.ip()) {
            Ok(entered) => entered,
            Err(full) => {
                self.service.refuse(full, address);
                return incoming.refuse();
            }
        };
        self.shaking.fetch_add(1, Ordering::Relaxed);
        let shaking = Shaking(self.shaking.clone());
        let thread = emptier(&self.threads, &self.own).unwrap_or(&self.own);
        let (load, tls) = (Loaded::on(thread), self.tls.clone());
        let port = self.endpoint.local_addr().map_or(0, |local| local.port());
        let spawned = thread.runtime.spawn(async move {
            // PHP and the limits of addresses are told an address that the client is known to have.
            let is_whole = tls.asks() || !is_proven;
            let shaken = shake(incoming, is_whole, shaking);
            let connection = tokio::select! {
                connection = shaken => connection,
                () = entered.ended() => None,
            };
            if let Some(counted) = &entered.service().counted {
                match connection {
                    Some(_) => counted.handshakes.done.increment(),
                    None => counted.handshakes.failed.increment(),
                }
            }
            if let Some(connection) = connection {
                let server = connection.local_ip().map(|ip| SocketAddr::new(ip, port));
                let peer = Peer::new(address, true, server);
                let peer = match tls.quic_certificate(connection.peer_identity()) {
                    Some(certificate) => peer.certified(certificate),
                    None => peer,
                };
                http3::serve(connection, Arc::new(peer), entered).await;
            }
            drop(load);
        });
        drop(spawned);
    }
}
