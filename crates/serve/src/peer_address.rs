//! The addresses of clients: where one connects from, and which of them count as one client.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Where a client connects from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAddress {
    Ip(SocketAddr),
    /// The client of a unix socket has no address. It is called `unix:`, as nginx does: empty would
    /// look like a mistake, and an address that it does not have, such as 127.0.0.1, could be
    /// trusted for being local.
    Unix,
    /// As a trusted proxy tells it.
    Told(IpAddr),
}

impl PeerAddress {
    /// An IPv4 client of an IPv6 listener is an IPv4 client.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address.ip().to_canonical()),
            Self::Told(ip) => Some(*ip),
            Self::Unix => None,
        }
    }

    /// The port that the client connects from, as far as that is known.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Ip(address) => Some(address.port()),
            Self::Told(_) | Self::Unix => None,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str("unix:"),
            Self::Told(ip) => ip.fmt(f),
        }
    }
}

/// Who counts as one: an IPv4 address, or what a provider gives to one customer of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Household(IpAddr);

impl Household {
    /// The one that has this address.
    pub fn of(ip: IpAddr) -> Self {
        /// A /64 is the least that anybody gets, and holds more addresses than anybody could count.
        const NETWORK: u128 = !0 << 64;
        Self(match ip.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & NETWORK).into(),
            IpAddr::V4(ip) => ip.into(),
        })
    }

    /// The address, or the first one of its network.
    pub(crate) fn network(self) -> IpAddr {
        self.0
    }
}
