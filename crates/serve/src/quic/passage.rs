//! The socket of UDP at an upgrade of the server: two processes have it, and the kernel gives a
//! packet to whichever reads first.
//!
//! Each process marks the IDs of its connections. From when the next process takes clients, it
//! alone is to read the socket; what belongs to the process before it passes on through a pair of
//! unix sockets, which that one has left for it. Answers go out by the socket that both have.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use pronghorn_process::socket::take_unix_datagrams;
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, ConnectionId, ConnectionIdGenerator, UdpPoller};
use rustix::net::{RecvFlags, recv};
use rustls::crypto::aws_lc_rs;
use tokio::io::ReadBuf;
use tokio::net::UnixDatagram;

/// The mark of a process in the IDs of its connections.
type Mark = [u8; MARK];
const MARK: usize = 4;
/// Octets of an ID.
const ID: usize = 12;
/// The longest packet of QUIC that is passed on: paths that carry more are no paths of the
/// internet.
const LONGEST: usize = 2 << 10;
/// The address of a client and where it sent to, before a packet that is passed on.
const HEAD: usize = 16 + 2 + 1 + 16 + 1;
/// Processes before this one that may still have connections.
const MOST_EARLIER: usize = 16;
/// Octets of an address as text, with a scope and a port.
const LONGEST_ADDRESS: usize = 64;
/// A mark that nobody has, where the system gives no random numbers.
const NO_MARK: Mark = [0; MARK];

/// The two ends of the way from the next process to this one, and from this one to the one before.
#[derive(Debug)]
pub(super) struct Passage {
    mark: Mark,
    /// Where the next process's packets come in.
    inlet: StdDatagram,
    /// For the next process.
    left: StdDatagram,
    /// Earlier processes that may still have connections.
    before: Vec<Earlier>,
}

/// A process before this one, and the way to it.
#[derive(Debug)]
struct Earlier {
    mark: Mark,
    way: StdDatagram,
}

impl Passage {
    /// Takes what the processes before have left for this address, and leaves the same for the next
    /// one.
    pub(super) fn new(address: SocketAddr, inherited: &mut Vec<OwnedFd>) -> io::Result<Self> {
        let mut before = Vec::new();
        for socket in take_unix_datagrams(inherited) {
            match Greeting::peek(&socket) {
                Some(greeting) if greeting.address == address => before.push(Earlier {
                    mark: greeting.mark,
                    way: StdDatagram::from(socket),
                }),
                // Another listener's: for whoever asks for that.
                _ => inherited.push(socket),
            }
        }
        let ended = before.len().saturating_sub(MOST_EARLIER);
        before.drain(..ended);
        let (inlet, left) = StdDatagram::pair()?;
        let mut mark = NO_MARK;
        random(&mut mark);
        inlet.send(&Greeting { address, mark }.bytes())?;
        let ways = before.iter().map(|earlier| &earlier.way);
        for socket in ways.chain([&inlet, &left]) {
            socket.set_nonblocking(true)?;
        }
        Ok(Self {
            mark,
            inlet,
            left,
            before,
        })
    }

    /// For the next process: it passes packets on to each process by itself, because this one may
    /// end before those that were there before it.
    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let before = self.before.iter().map(|earlier| &earlier.way);
        before.chain([&self.left]).map(AsFd::as_fd)
    }

    /// Makes IDs of connections that are known to be this process's.
    pub(super) fn ids(&self) -> impl Fn() -> Box<dyn ConnectionIdGenerator> + Send + Sync + use<> {
        let mark = self.mark;
        move || Box::new(Ids(mark))
    }

    /// Must be called on the runtime that is to watch the sockets.
    pub(super) fn watch(self, socket: Arc<dyn AsyncUdpSocket>) -> io::Result<Arc<SharedSocket>> {
        Ok(Arc::new(SharedSocket {
            socket,
            inlet: UnixDatagram::from_std(self.inlet)?,
            before: self.before,
            handed_over: AtomicBool::new(false),
        }))
    }
}

fn random(bytes: &mut [u8]) {
    _ = aws_lc_rs::default_provider().secure_random.fill(bytes); // IDs are then guessed more easily
}

/// The first thing that the next process finds.
struct Greeting {
    /// The listener's.
    address: SocketAddr,
    mark: Mark,
}

impl Greeting {
    fn bytes(&self) -> Vec<u8> {
        [&self.mark[..], self.address.to_string().as_bytes()].concat()
    }

    /// Looks at it, and leaves it: the process may fail, and another one comes.
    fn peek(socket: &OwnedFd) -> Option<Self> {
        let mut bytes = [0; MARK + LONGEST_ADDRESS];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (_, length) = recv(socket, &mut bytes[..], flags).ok()?;
        let (mark, address) = bytes.get(..length)?.split_first_chunk()?;
        Some(Self {
            address: std::str::from_utf8(address).ok()?.parse().ok()?,
            mark: *mark,
        })
    }
}

/// IDs that begin with the mark; the rest is random.
struct Ids(Mark);

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID];
        random(&mut id);
        id[..MARK].copy_from_slice(&self.0);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// The ID of the connection that a packet is for, if it is one that a server like this has given
/// (RFC 8999, section 5).
fn id(packet: &[u8]) -> Option<&[u8]> {
    const LONG: u8 = 0x80;
    match packet.first()? & LONG {
        0 => packet.get(1..=ID),
        _ if usize::from(*packet.get(5)?) == ID => packet.get(6..6 + ID),
        _ => None,
    }
}

/// The socket, as `quinn` reads it.
#[derive(Debug)]
pub(super) struct SharedSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    inlet: UnixDatagram,
    before: Vec<Earlier>,
    handed_over: AtomicBool,
}

impl SharedSocket {
    /// The next process reads the socket from now on.
    pub(super) fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Release);
    }

    /// Passes on what belongs to earlier processes. The rest stays in `bytes`, of which the meaning
    /// is `meta`.
    fn sort(&self, bytes: &mut [u8], meta: &mut RecvMeta) {
        if self.before.is_empty() {
            return;
        }
        let stride = meta.stride.max(1);
        let (mut at, mut kept) = (0, 0);
        while at < meta.len {
            let end = (at + stride).min(meta.len);
            let id = id(&bytes[at..end]).unwrap_or_default();
            let mut before = self.before.iter();
            if let Some(earlier) = before.find(|earlier| id.starts_with(&earlier.mark)) {
                // One that does not fit is lost, as on any network.
                _ = earlier.way.send(&passed(&bytes[at..end], meta));
            } else {
                bytes.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
        }
        meta.len = kept;
    }
}

fn passed(packet: &[u8], meta: &RecvMeta) -> Vec<u8> {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let mut bytes = Vec::with_capacity(HEAD + packet.len());
    bytes.extend(octets(meta.addr.ip()));
    bytes.extend(meta.addr.port().to_be_bytes());
    // Which of the two families it is, is lost in the octets.
    bytes.push(u8::from(meta.addr.is_ipv4()) | u8::from(meta.dst_ip.is_some()) << 1);
    let server = meta.dst_ip.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    bytes.extend(octets(server));
    bytes.push(meta.ecn.map_or(0, |ecn| ecn as u8));
    bytes.extend_from_slice(packet);
    bytes
}

/// Writes the packet to `into`. None where it is none that was passed on.
fn unpassed(bytes: &[u8], into: &mut [u8]) -> Option<RecvMeta> {
    let (head, packet) = bytes.split_first_chunk::<HEAD>()?;
    let (client, rest) = head.split_first_chunk::<16>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let (&flags, rest) = rest.split_first()?;
    let (server, rest) = rest.split_first_chunk::<16>()?;
    let ip = |octets: [u8; 16]| {
        let ip = Ipv6Addr::from(octets);
        match ip.to_ipv4_mapped() {
            Some(ip) if flags & 1 != 0 => IpAddr::V4(ip),
            _ => IpAddr::V6(ip),
        }
    };
    into.get_mut(..packet.len())?.copy_from_slice(packet);
    Some(RecvMeta {
        addr: SocketAddr::new(ip(*client), u16::from_be_bytes(*port)),
        len: packet.len(),
        stride: packet.len(),
        ecn: EcnCodepoint::from_bits(*rest.first()?),
        dst_ip: (flags & 2 != 0).then(|| ip(*server)),
    })
}

impl AsyncUdpSocket for SharedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.socket.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut bytes = [0; HEAD + LONGEST];
        let mut read = ReadBuf::new(&mut bytes);
        while let Poll::Ready(Ok(())) = self.inlet.poll_recv(cx, &mut read) {
            if let (Some(buffer), Some(meta)) = (buffers.first_mut(), metas.first_mut())
                && let Some(passed) = unpassed(read.filled(), buffer)
            {
                *meta = passed;
                return Poll::Ready(Ok(1));
            }
            read.clear();
        }
        if self.handed_over.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        let received = self.socket.poll_recv(cx, buffers, metas);
        if let Poll::Ready(Ok(count)) = received {
            for (buffer, meta) in buffers.iter_mut().zip(metas).take(count) {
                self.sort(buffer, meta);
            }
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    /// `quinn` keeps all packets of a batch in one buffer, as long as one byte of it is kept.
    fn max_receive_segments(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_arrives_as_it_came() {
        for (client, server) in [
            ("192.0.2.1:4433", Some("198.51.100.7")),
            ("[2001:db8::1]:1", Some("2001:db8::2")),
            ("[::ffff:192.0.2.1]:9", None),
        ] {
            let meta = RecvMeta {
                addr: client.parse().unwrap(),
                len: 5,
                stride: 5,
                ecn: Some(EcnCodepoint::Ect0),
                dst_ip: server.map(|server| server.parse().unwrap()),
            };
            let mut into = [0; 16];
            let arrived = unpassed(&passed(b"bytes", &meta), &mut into).unwrap();
            assert_eq!(format!("{arrived:?}"), format!("{meta:?}"));
            assert_eq!(&into[..arrived.len], b"bytes");
        }
        assert!(unpassed(b"a greeting", &mut [0; 16]).is_none());
    }

    #[test]
    fn the_next_process_knows_whose_packets_are_whose() {
        let address = "192.0.2.1:443".parse().unwrap();
        let first = Passage::new(address, &mut Vec::new()).unwrap();
        let left = |passage: &Passage| -> Vec<OwnedFd> {
            let sockets = passage.sockets();
            sockets
                .map(|socket| socket.try_clone_to_owned().unwrap())
                .collect()
        };
        // One that fails takes nothing away.
        drop(Passage::new(address, &mut left(&first)).unwrap());
        let second = Passage::new(address, &mut left(&first)).unwrap();
        let third = Passage::new(address, &mut left(&second)).unwrap();
        let marks: Vec<Mark> = third.before.iter().map(|earlier| earlier.mark).collect();
        assert_eq!(marks, [first.mark, second.mark]);
        let mut of_another = left(&first);
        let other = "192.0.2.2:443".parse().unwrap();
        assert!(
            Passage::new(other, &mut of_another)
                .unwrap()
                .before
                .is_empty()
        );
        assert_eq!(of_another.len(), 1);
    }

    #[test]
    fn the_id_is_found_in_both_kinds_of_packets() {
        let known = [7; ID];
        let short = [&[0x40][..], &known, b"rest"].concat();
        let long = [&[0xe0, 0, 0, 0, 1, 12][..], &known, b"rest"].concat();
        let others = [&[0xc0, 0, 0, 0, 1, 8][..], &known, b"rest"].concat();
        assert_eq!(id(&short), Some(&known[..]));
        assert_eq!(id(&long), Some(&known[..]));
        assert_eq!(id(&others), None);
        for short in [&short, &long] {
            for end in 0..ID {
                assert_eq!(id(&short[..end]), None);
            }
        }
    }
}
