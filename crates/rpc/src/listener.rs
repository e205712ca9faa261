//! The socket of `rpc.listen`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use pronghorn_config::{Address, Endpoint};
use pronghorn_process::Credentials;
use pronghorn_process::socket::{Access, Admitted, BindError, SocketFile, bound_to, open_unix};
use thiserror::Error;

/// A bound socket. A unix socket's file is removed with it.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: Socket,
    endpoint: Endpoint,
    was_inherited: bool,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile, Admitted),
}

/// Why a [`Listener`] can't be bound. The operator's to mend.
#[derive(Debug, Error)]
pub enum ListenError {
    /// A name that the system doesn't know.
    #[error("`{host}` has no address: {source}\nhint: write `tcp://127.0.0.1:{port}`")]
    NoAddress {
        host: String,
        port: u16,
        source: io::Error,
    },
    /// What is in the way, and what to do.
    #[error(transparent)]
    Bind(#[from] BindError),
}

impl Listener {
    /// Binds. Port 0 takes any free port. These users may connect to a unix socket; `None` is this
    /// process's.
    ///
    /// Looks a name up, which blocks.
    pub fn bind(endpoint: &Endpoint, users: &[Option<Credentials>]) -> Result<Self, ListenError> {
        Self::open(endpoint, users, |_| false, Vec::new())
    }

    /// The same, but takes one of these sockets if it listens there already.
    pub fn open(
        endpoint: &Endpoint,
        users: &[Option<Credentials>],
        is_systemds: impl FnOnce(&Path) -> bool,
        mut inherited: Vec<OwnedFd>,
    ) -> Result<Self, ListenError> {
        match endpoint {
            Endpoint::Unix(path) => {
                let (access, is_systemds) = (Access::only(users), is_systemds(path));
                let (socket, file) = open_unix(path, access, is_systemds, &mut inherited)?;
                Ok(Self {
                    was_inherited: !file.is_ours(),
                    socket: Socket::Unix(socket, file, Admitted::only(users)),
                    endpoint: endpoint.clone(),
                })
            }
            Endpoint::Tcp(address) => {
                let addresses = resolve(address)?;
                let (socket, was_inherited) = match bound_to(&addresses, &mut inherited).pop() {
                    Some(socket) => (socket, true),
                    None => (bind_tcp(&addresses)?, false),
                };
                let bound = socket.local_addr().map_err(BindError::Runtime)?;
                Ok(Self {
                    socket: Socket::Tcp(socket),
                    endpoint: Endpoint::Tcp(Address {
                        host: address.host.clone(),
                        port: bound.port(),
                    }),
                    was_inherited,
                })
            }
        }
    }

    /// Where it listens: as it was asked for, with the port that was given.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether another process still serves it.
    pub fn was_inherited(&self) -> bool {
        self.was_inherited
    }

    /// The same for workers, `RR_RPC`.
    pub fn endpoint_for_workers(&self) -> Endpoint {
        for_workers(&self.endpoint)
    }

    /// For the next process.
    pub fn socket(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket, ..) => socket.as_fd(),
        }
    }

    /// Whether other machines may reach it.
    pub fn is_exposed(&self) -> bool {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().map_or(true, is_exposed),
            Socket::Unix(..) => false,
        }
    }
}

/// Every address of the machine is none that PHP could connect to.
fn for_workers(endpoint: &Endpoint) -> Endpoint {
    match endpoint {
        Endpoint::Tcp(Address { host: None, port }) => Endpoint::Tcp(Address {
            host: Some(Ipv4Addr::LOCALHOST.to_string()),
            port: *port,
        }),
        other => other.clone(),
    }
}

fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// What to listen on, the best first. Of a name's addresses an IPv4 one if there is any: that is
/// the only kind that PHP packages connect to. Without a host every address of the machine; not
/// each has IPv6.
fn resolve(address: &Address) -> Result<Vec<SocketAddr>, ListenError> {
    let Some(host) = &address.host else {
        let any: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        return Ok(any.map(|ip| (ip, address.port).into()).into());
    };
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![(ip, address.port).into()]);
    }
    let found = (host.as_str(), address.port)
        .to_socket_addrs()
        .and_then(|found| {
            let found = found.min_by_key(SocketAddr::is_ipv6);
            found.ok_or_else(|| io::ErrorKind::NotFound.into())
        });
    let found = found.map_err(|source| ListenError::NoAddress {
        host: host.clone(),
        port: address.port,
        source,
    })?;
    Ok(vec![found])
}

/// Binds the first of these that can be bound.
fn bind_tcp(addresses: &[SocketAddr]) -> Result<TcpListener, BindError> {
    let bind = |address: &SocketAddr| {
        TcpListener::bind(address)
            .and_then(|socket| {
                socket.set_nonblocking(true)?;
                Ok(socket)
            })
            .map_err(|source| BindError::tcp(*address, source))
    };
    let (last, others) = addresses.split_last().expect("a host has an address");
    let bound = others.iter().find_map(|address| bind(address).ok());
    bound.map_or_else(|| bind(last), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_out_of_reach() {
        for (address, exposed) in [
            ("127.0.0.1:1", false),
            ("127.3.2.1:1", false),
            ("[::1]:1", false),
            ("[::ffff:127.0.0.1]:1", false),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
            ("10.0.0.1:1", true),
        ] {
            assert_eq!(is_exposed(address.parse().unwrap()), exposed, "{address}");
        }
    }

    #[test]
    fn workers_are_told_an_address_that_they_can_connect_to() {
        let tcp = |host: Option<&str>| {
            let host = host.map(ToOwned::to_owned);
            for_workers(&Endpoint::Tcp(Address { host, port: 6001 })).to_string()
        };
        assert_eq!(tcp(None), "tcp://127.0.0.1:6001");
        assert_eq!(tcp(Some("localhost")), "tcp://localhost:6001");
        assert_eq!(
            for_workers(&Endpoint::Unix("a".into())).to_string(),
            "unix://a"
        );
    }
}
