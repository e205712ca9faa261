//! The PROXY protocol: what a load balancer writes before the first byte of its client, so that the
//! server knows who that is.
//!
//! On a listener with `proxy_protocol` each connection has to begin with it, and only trusted
//! addresses may connect: a client that could leave it out, or write it itself, could be anybody.

mod header;

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::LogThrottle;
use pronghorn_config::Subnet;
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::time::timeout;

use crate::message::Peer;
use crate::owner::{Owner, tell};
use crate::peer_address::PeerAddress;
use crate::protocol::{self, Socket};
use crate::service::Entered;
use crate::tls::Tls;
pub use header::fuzz_proxy_header;
use header::{LONGEST, Malformed, Parsed, ProxyHeader, parse};

/// How much is shown of what is no header: enough to recognize a protocol.
const SHOWN: usize = 8;

/// Who may connect to a listener, and for how long a header may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// The load balancers; of no importance for a unix socket.
    pub trusted: Vec<Subnet>,
    /// How long a header may take, from the moment when its connection is accepted.
    pub timeout: Duration,
}

/// The same at work.
#[derive(Debug)]
pub(crate) struct Proxies {
    settings: ProxyProtocol,
    strangers: LogThrottle,
    unreadable: LogThrottle,
}

/// A connection that is over: it has no header.
#[derive(Debug, PartialEq, Eq)]
enum NoHeader {
    /// It was closed before its header was whole, as by somebody who asks whether the port is open.
    Left,
    /// A record tells of it.
    Refused,
}

/// The beginning of a connection that has no header.
#[derive(Debug)]
struct Unreadable {
    why: Malformed,
    begins: Vec<u8>,
}

impl Proxies {
    pub(crate) fn new(settings: ProxyProtocol) -> Self {
        Self {
            settings,
            strangers: LogThrottle::default(),
            unreadable: LogThrottle::default(),
        }
    }

    /// Whether an address may connect. Those of a unix socket have none: its permissions say who
    /// may.
    pub(crate) fn admit(&self, peer: &Peer, owner: Owner) -> bool {
        let is_trusted = |ip: IpAddr| self.settings.trusted.iter().any(|net| net.contains(ip));
        if peer.address.ip().is_none_or(is_trusted) {
            return true;
        }
        if let Some(connections) = self.strangers.should_log() {
            tell!(
                owner, warn, connections, remote_address = %peer.address,
                "connections refused: the address is none of `proxy_protocol.trusted_proxies`"
            );
        }
        false
    }

    /// Reads the header and nothing behind it.
    async fn read(
        &self,
        socket: &Socket,
        peer: &Peer,
        first_byte: Option<Duration>,
        owner: Owner,
    ) -> Result<ProxyHeader, NoHeader> {
        let limit = self.settings.timeout;
        let limit = first_byte.map_or(limit, |first_byte| limit.min(first_byte));
        match timeout(limit, read(socket)).await {
            Ok(Ok(Ok(told))) => return Ok(told),
            Ok(Ok(Err(unreadable))) => self.tell(peer, &unreadable, owner),
            Ok(Err(error)) => {
                tell!(owner, debug, proxy = %peer.address, "no PROXY header: {error}");
                return Err(NoHeader::Left);
            }
            Err(_) => self.tell_of_silence(peer, limit, owner),
        }
        Err(NoHeader::Refused)
    }

    fn tell(&self, peer: &Peer, unreadable: &Unreadable, owner: Owner) {
        if let Some(connections) = self.unreadable.should_log() {
            tell!(
                owner, warn, connections, proxy = %peer.address,
                begins_with = %unreadable.begins.escape_ascii(),
                "connections refused: they do not begin with a PROXY header: {} (hint: switch the \
                 PROXY protocol on in the load balancer, or remove `proxy_protocol`)",
                unreadable.why
            );
        }
    }

    fn tell_of_silence(&self, peer: &Peer, limit: Duration, owner: Owner) {
        if let Some(connections) = self.unreadable.should_log() {
            tell!(
                owner, warn, connections, proxy = %peer.address, ?limit,
                "connections refused: no whole PROXY header came in time"
            );
        }
    }
}

/// Serves a connection that begins with what a proxy tells of its client.
pub(crate) async fn serve(
    proxies: Arc<Proxies>,
    socket: Socket,
    tls: Option<Tls>,
    peer: Arc<Peer>,
    mut entered: Entered,
) {
    let service = entered.service();
    let (owner, streams) = (service.owner, service.streams.as_ref());
    let first_byte = streams.and_then(|it| it.first_byte_timeout());
    let told = tokio::select! {
        told = proxies.read(&socket, &peer, first_byte, owner) => told,
        () = entered.ended() => Err(NoHeader::Left),
    };
    let peer = match told {
        Err(NoHeader::Left) => return,
        Err(NoHeader::Refused) => {
            if let Some(refused) = entered.service().refused() {
                refused.no_proxy_header.increment();
            }
            return;
        }
        Ok(ProxyHeader::Nothing) => peer,
        Ok(ProxyHeader::Client { client, server }) => {
            let client = PeerAddress::Ip(client);
            if let Some(full) = client.ip().and_then(|ip| entered.count(ip).err()) {
                return entered.service().refuse(full, client);
            }
            Arc::new(Peer::new(client, peer.tls, Some(server)))
        }
    };
    protocol::serve(socket, tls, peer, entered).await;
}

/// Looks before it takes: what stands behind the header is for somebody else. What was looked at is
/// taken at once, so that the next look waits for more.
async fn read(socket: &Socket) -> io::Result<Result<ProxyHeader, Unreadable>> {
    let mut bytes = vec![0; LONGEST];
    let mut taken = 0;
    loop {
        let seen = look(socket, &mut bytes[taken..]).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (until, told) = match parse(&bytes[..taken + seen]) {
            Ok(Parsed::Partial) => (taken + seen, None),
            Ok(Parsed::Whole(len, told)) => (len, Some(told)),
            Err(why) => {
                bytes.truncate(SHOWN.min(taken + seen));
                return Ok(Err(Unreadable { why, begins: bytes }));
            }
        };
        while taken < until {
            let got = with_fd(socket, &mut bytes[taken..until], RecvFlags::DONTWAIT).await?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            taken += got;
        }
        if let Some(told) = told {
            return Ok(Ok(told));
        }
    }
}

async fn look(socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
    with_fd(socket, bytes, RecvFlags::DONTWAIT | RecvFlags::PEEK).await
}

async fn with_fd(socket: &Socket, bytes: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    match socket {
        Socket::Tcp(stream) => {
            let receive = || Ok(recv(stream.as_fd(), &mut *bytes, flags)?.0);
            stream.async_io(Interest::READABLE, receive).await
        }
        Socket::Unix(stream) => {
            let receive = || Ok(recv(stream.as_fd(), &mut *bytes, flags)?.0);
            stream.async_io(Interest::READABLE, receive).await
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Trusts no address.
    fn proxies() -> Proxies {
        Proxies::new(ProxyProtocol {
            trusted: Vec::new(),
            timeout: LIMIT,
        })
    }

    fn peer(address: &str) -> Peer {
        Peer::new(PeerAddress::Ip(address.parse().unwrap()), false, None)
    }

    #[test]
    fn who_has_no_address_may_connect_and_who_has_one_must_be_trusted() {
        assert!(!proxies().admit(&peer("127.0.0.1:1"), Owner::Http));
        assert!(proxies().admit(&Peer::new(PeerAddress::Unix, false, None), Owner::Http));
    }

    #[tokio::test]
    async fn nothing_behind_the_header_is_taken() {
        let (mut proxy, ours) = UnixStream::pair().unwrap();
        let socket = Socket::Unix(ours);
        let proxies = proxies();
        let header = b"PROXY TCP4 192.0.2.1 198.51.100.2 12345 443\r\n";
        let write = async {
            for byte in header {
                proxy.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
            proxy.write_all(b"PROXY UNKNOWN\r\nGET /").await.unwrap();
            drop(proxy);
        };
        let peer = peer("127.0.0.1:1");
        let (told, ()) = tokio::join!(proxies.read(&socket, &peer, None, Owner::Http), write);
        let client = "192.0.2.1:12345".parse().unwrap();
        let server = "198.51.100.2:443".parse().unwrap();
        assert_eq!(told, Ok(ProxyHeader::Client { client, server }));
        let Socket::Unix(mut stream) = socket else {
            unreachable!("it was one")
        };
        let mut left = String::new();
        stream.read_to_string(&mut left).await.unwrap();
        assert_eq!(left, "PROXY UNKNOWN\r\nGET /");
    }

    async fn told(ours: UnixStream) -> Result<ProxyHeader, NoHeader> {
        let (proxies, peer) = (proxies(), peer("127.0.0.1:1"));
        proxies
            .read(&Socket::Unix(ours), &peer, None, Owner::Http)
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_slow_or_says_something_else_is_let_go() {
        for (sent, waits) in [
            (&b""[..], true),
            (b"PROXY TCP4 192.0.2.1 ", true),
            (b"\r\n\r\n\0\r\nQUIT\n\x21", true),
            (b"GET / HTTP/1.1\r\n\r\n", false),
        ] {
            let (mut proxy, ours) = UnixStream::pair().unwrap();
            proxy.write_all(sent).await.unwrap();
            let start = Instant::now();
            assert_eq!(told(ours).await, Err(NoHeader::Refused));
            let waited = if waits { LIMIT } else { Duration::ZERO };
            assert_eq!(start.elapsed(), waited, "{}", sent.escape_ascii());
        }
        let (proxy, ours) = UnixStream::pair().unwrap();
        drop(proxy);
        assert_eq!(told(ours).await, Err(NoHeader::Left));
    }
}
