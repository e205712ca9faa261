//! Where to listen, and who is trusted.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use super::{Setting, Shown, Wrong, text};
use crate::node::Node;

/// A host and a port: `127.0.0.1:8080`, `localhost:8080`, `[::1]:8080`, or `:8080` for all of the
/// machine's addresses. Port 0 takes any free port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// A name or an IP address without brackets; None for all of the machine's addresses.
    pub host: Option<String>,
    /// The port.
    pub port: u16,
}

impl Setting for Address {
    fn example() -> String {
        "127.0.0.1:8080".to_owned()
    }

    fn accepts() -> String {
        "`host:port`, or `:port` for all addresses".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        parse_address(text(node)?).map_err(|hint| Wrong::hinted(node, hint))
    }

    fn show(&self) -> Shown {
        Shown::One(self.to_string())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) if host.contains(':') => write!(f, "[{host}]:{}", self.port),
            Some(host) => write!(f, "{host}:{}", self.port),
            None => write!(f, ":{}", self.port),
        }
    }
}

/// RoadRunner takes addresses with this in front.
const TCP: &str = "tcp://";
const UNIX: &str = "unix://";

/// Err is a hint, empty when there is nothing to guess.
fn parse_address(text: &str) -> Result<Address, String> {
    let text = text.strip_prefix(TCP).unwrap_or(text);
    if text.starts_with(UNIX) {
        return Err(
            "a unix socket can't be used here: write an address, `127.0.0.1:8080`".to_owned(),
        );
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        if scheme.eq_ignore_ascii_case("udp") {
            return Err(format!(
                "this is an address for TCP, and UDP is not supported: `{rest}`"
            ));
        }
        return Err(format!(
            "write it without a scheme: `{}`",
            rest.trim_end_matches('/')
        ));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(match text.parse::<u16>() {
            Ok(port) => format!(
                "write `:{port}` for all addresses or `127.0.0.1:{port}` for this machine only"
            ),
            Err(_) if text.bytes().all(|b| b.is_ascii_digit()) => {
                "a port is a number from 0 to 65535, written `:8080`".to_owned()
            }
            Err(_) => format!("the port is missing: `{text}:8080`"),
        });
    };
    if text.parse::<Ipv6Addr>().is_ok() || host.matches(':').count() > 1 && !host.starts_with('[') {
        return Err("an IPv6 address stands in brackets: `[::1]:8080`".to_owned());
    }
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port: u16 = match port.parse() {
        Ok(port) if digits => port,
        _ => return Err("a port is a number from 0 to 65535".to_owned()),
    };
    let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(inside) if inside.parse::<Ipv6Addr>().is_ok() => Some(inside),
        Some(_) => return Err("what stands in brackets is no IPv6 address".to_owned()),
        None if host.is_empty() => None,
        None if host == "*" => return Err(format!("write `:{port}` for all addresses")),
        None if is_host(host) => Some(host),
        None => return Err(String::new()),
    };
    Ok(Address {
        host: host.map(ToOwned::to_owned),
        port,
    })
}

fn is_host(host: &str) -> bool {
    // 253 is the longest name that DNS can carry.
    host.len() <= 253
        && host
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
}

/// What RoadRunner writes as `tcp://host:port` or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `tcp://`
    Tcp(Address),
    /// `unix://`
    Unix(PathBuf),
}

/// What the kernel's socket address holds, less the closing NUL.
const LONGEST_SOCKET_PATH: usize = 107;

impl Setting for Endpoint {
    fn example() -> String {
        "tcp://127.0.0.1:6001".to_owned()
    }

    fn accepts() -> String {
        "`tcp://host:port` or `unix:///path`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let wrong = |hint: String| Wrong::hinted(node, hint);
        let text = text(node)?;
        match text.split_once("://") {
            Some(("unix", "")) => Err(wrong("the socket's path is missing".to_owned())),
            Some(("unix", path)) if path.len() > LONGEST_SOCKET_PATH => Err(wrong(format!(
                "a socket's path has at most {LONGEST_SOCKET_PATH} bytes"
            ))),
            Some(("unix", path)) => Ok(Self::Unix(PathBuf::from(path))),
            None if text.starts_with(['/', '.']) => Err(wrong(format!("write `{UNIX}{text}`"))),
            _ => parse_address(text).map(Self::Tcp).map_err(wrong),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(self.to_string())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", Path::display(path)),
        }
    }
}

/// A host and a port, or the path of a unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listen {
    /// `host:port`, or `:port` for all addresses.
    Tcp(Address),
    /// `unix://`
    Unix(PathBuf),
}

impl Listen {
    /// Whether more than this machine can connect. A name may stand for any address.
    #[must_use]
    pub fn is_public(&self) -> bool {
        let Self::Tcp(address) = self else {
            return false;
        };
        match address.host.as_deref() {
            None => true,
            Some("localhost") => false,
            Some(host) => !host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
        }
    }

    /// Whether one process can't listen on both. Names are compared as they are written.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (one, other) = match (self, other) {
            (Self::Unix(one), Self::Unix(other)) => return one == other,
            (Self::Tcp(one), Self::Tcp(other)) => (one, other),
            _ => return false,
        };
        let host = |address: &'_ Address| match address.host.as_deref() {
            None | Some("0.0.0.0" | "::") => None,
            Some("localhost") => Some("127.0.0.1".to_owned()),
            Some(host) => Some(host.to_owned()),
        };
        let is_same = match (host(one), host(other)) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        one.port == other.port && one.port != 0 && is_same
    }
}

impl From<Endpoint> for Listen {
    fn from(endpoint: Endpoint) -> Self {
        match endpoint {
            Endpoint::Tcp(address) => Self::Tcp(address),
            Endpoint::Unix(path) => Self::Unix(path),
        }
    }
}

impl Setting for Listen {
    fn example() -> String {
        "127.0.0.1:8080".to_owned()
    }

    fn accepts() -> String {
        "`host:port`, `:port` for all addresses, or `unix:///path`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        Ok(match Endpoint::read(node)? {
            Endpoint::Unix(path) => Self::Unix(path),
            Endpoint::Tcp(address) => Self::Tcp(address),
        })
    }

    fn show(&self) -> Shown {
        Shown::One(self.to_string())
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix://{}", Path::display(path)),
        }
    }
}

/// IP addresses with a common beginning: `10.0.0.0/8`, `fd00::/8`, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subnet {
    address: IpAddr,
    prefix: u8,
}

impl Subnet {
    /// A net of IPv4 that is written as IPv6 is that net.
    fn canonical(self) -> Self {
        match (self.address.to_canonical(), self.prefix.checked_sub(96)) {
            (address @ IpAddr::V4(_), Some(prefix)) if self.address.is_ipv6() => {
                Self { address, prefix }
            }
            _ => self,
        }
    }

    /// An address of this net.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// True for an address of this net. An IPv4 address written as IPv6 (`::ffff:10.0.0.1`) counts
    /// as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |ours: &[u8], theirs: &[u8]| {
            let whole = usize::from(self.prefix / 8);
            let rest = self.prefix % 8;
            let bits = |byte: u8| u16::from(byte) >> (8 - rest);
            ours.get(..whole) == theirs.get(..whole)
                && (rest == 0
                    || ours.get(whole).map(|b| bits(*b)) == theirs.get(whole).map(|b| bits(*b)))
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => same(&ours.octets(), &theirs.octets()),
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => same(&ours.octets(), &theirs.octets()),
            _ => false,
        }
    }
}

impl Setting for Subnet {
    fn example() -> String {
        "10.0.0.0/8".to_owned()
    }

    fn accepts() -> String {
        "an address with a prefix length, `10.0.0.0/8`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = text(node)?;
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| Wrong::value(node))?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        match prefix.map_or(Ok(bits), str::parse) {
            Ok(prefix) if prefix <= bits => Ok(Self { address, prefix }.canonical()),
            _ => Err(Wrong::hinted(
                node,
                format!("a prefix is a number from 0 to {bits}"),
            )),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(format!("{}/{}", self.address, self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::testing::read;

    #[test]
    fn addresses_are_read_and_shown_alike() {
        for text in [
            "127.0.0.1:8080",
            ":8080",
            "localhost:80",
            "[::1]:443",
            "[::]:0",
            "my-host_1.local:1",
        ] {
            let quoted = format!("\"{text}\"");
            assert_eq!(read::<Address>(&quoted).expect(text).to_string(), text);
        }
        assert_eq!(read::<Address>(":8080").map(|a| a.host), Ok(None));
        for text in ["127.0.0.1:8080", ":8080", "[::1]:443"] {
            let with_scheme = format!("\"tcp://{text}\"");
            assert_eq!(read::<Address>(&with_scheme).expect(text).to_string(), text);
            assert_eq!(read::<Listen>(&with_scheme).expect(text).to_string(), text);
            let without = format!("\"{text}\"");
            let endpoint = read::<Endpoint>(&without).expect(text);
            assert_eq!(endpoint.to_string(), format!("tcp://{text}"));
        }
        for text in ["unix:///run/a.sock", "unix://a.sock"] {
            assert_eq!(read::<Listen>(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn a_place_is_public_that_other_machines_may_reach() {
        for (text, is_public) in [
            (":80", true),
            ("0.0.0.0:80", true),
            ("name:80", true),
            ("localhost:80", false),
            ("127.0.0.2:80", false),
            ("[::1]:80", false),
            ("unix:///run/a.sock", false),
        ] {
            let listen = read::<Listen>(&format!("\"{text}\"")).expect(text);
            assert_eq!(listen.is_public(), is_public, "{text}");
        }
    }

    #[test]
    fn a_wrong_address_is_told_what_was_meant() {
        for (text, hint) in [
            ("8080", "write `:8080`"),
            ("99999", "0 to 65535"),
            ("localhost", "the port is missing"),
            ("::1", "in brackets"),
            ("::1:8080", "in brackets"),
            ("[::x]:80", "no IPv6 address"),
            ("[]:80", "no IPv6 address"),
            ("host:port", "0 to 65535"),
            ("host:65536", "0 to 65535"),
            ("host:+80", "0 to 65535"),
            ("host:", "0 to 65535"),
            ("*:80", "write `:80`"),
            ("http://localhost:80/", "without a scheme: `localhost:80`"),
            ("a b:80", "`a b:80`; "),
            ("unix:///run/a.sock", "can't be used here"),
            ("tcp://localhost", "the port is missing: `localhost:8080`"),
            ("tcp://tcp://a:1", "without a scheme"),
            ("udp://127.0.0.1:9", "UDP is not supported: `127.0.0.1:9`"),
        ] {
            let said = read::<Address>(&format!("\"{text}\"")).expect_err(text);
            assert!(said.contains(hint), "{text}: {said}");
        }
        let said = read::<Listen>("\"99999\"").expect_err("no port");
        assert!(
            said.contains("a port is a number from 0 to 65535, written `:8080`"),
            "{said}"
        );
    }

    #[test]
    fn endpoints_say_their_kind() {
        for text in [
            "tcp://127.0.0.1:6001",
            "unix:///run/rr.sock",
            "unix://rr.sock",
            "tcp://:1",
        ] {
            assert_eq!(read::<Endpoint>(text).expect(text).to_string(), text);
        }
        let long = format!("unix:///{}", "x".repeat(107));
        for text in [
            "pipes",
            "/run/rr.sock",
            "unix://",
            "tcp://host",
            "udp://a:1",
            &long,
        ] {
            assert!(read::<Endpoint>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_subnet_holds_what_begins_alike() {
        for (net, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::1"),
            ("192.168.1.128/25", "192.168.1.200", "192.168.1.1"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("fd00::/9", "fd7f::1", "fd80::1"),
            ("::/0", "::1", "1.2.3.4"),
            ("::ffff:10.0.0.0/104", "10.255.0.1", "11.0.0.1"),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1", "127.0.0.2"),
        ] {
            let net = read::<Subnet>(&format!("\"{net}\"")).expect(net);
            let address = |text: &str| text.parse::<IpAddr>().expect(text);
            assert!(net.contains(address(inside)), "{inside}");
            assert!(!net.contains(address(outside)), "{outside}");
        }
        for text in [
            "10.0.0.0/33",
            "::/129",
            "10.0/8",
            "host/8",
            "10.0.0.0/",
            "10.0.0.0/-1",
        ] {
            assert!(read::<Subnet>(&format!("\"{text}\"")).is_err(), "{text}");
        }
    }
}
