//! Where a memcached listens.

use std::fmt;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemcachedAddress {
    /// A host with its port.
    Tcp(String),
    Unix(PathBuf),
}

impl MemcachedAddress {
    /// `host:port`, or the path of a socket, which begins with `/`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return Some(Self::Unix(text.into()));
        }
        let (host, port) = text.rsplit_once(':')?;
        let is_host = !host.is_empty() && !host.contains(['/', '@', ' ']);
        let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
        (is_host && is_port).then(|| Self::Tcp(text.to_owned()))
    }
}

impl fmt::Display for MemcachedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => f.write_str(place),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
