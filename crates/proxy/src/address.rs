//! Where a server of an upstream is.

use std::fmt;
use std::path::PathBuf;

use pronghorn_client::Origin;
use pronghorn_config::{Node, Setting, Shown, Wrong};

/// The kernel's socket address holds so many bytes, less the closing NUL.
const LONGEST_SOCKET_PATH: usize = 107;

/// A server, as a URL without a path names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    pub(crate) place: Destination,
    /// HTTP/2 without TLS, which the server must expect.
    pub(crate) is_http2: bool,
    written: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// By TCP, with TLS or without.
    Host(Origin),
    Unix(PathBuf),
}

impl ServerAddress {
    /// Err is a hint.
    fn parse(written: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = written.split_once("://") else {
            return Err(format!("write the scheme as well: `http://{written}`"));
        };
        let of = |place, is_http2| Self {
            place,
            is_http2,
            written: written.to_owned(),
        };
        if scheme == "unix" {
            return match rest.len() {
                0 => Err("the socket's path is missing: `unix:///run/app.sock`".to_owned()),
                1..=LONGEST_SOCKET_PATH => Ok(of(Destination::Unix(PathBuf::from(rest)), false)),
                _ => Err(format!(
                    "a socket's path has at most {LONGEST_SOCKET_PATH} bytes"
                )),
            };
        }
        if let Some((authority, _)) = rest.split_once(['/', '?', '#']) {
            return Err(format!(
                "a server has no path: write `{scheme}://{authority}`; the route's `strip_prefix` \
                 takes a prefix from paths"
            ));
        }
        if rest.contains('@') {
            return Err("names and passwords can't be part of an address".to_owned());
        }
        let (url, is_http2) = match scheme {
            "http" | "https" => (written.to_owned(), false),
            "h2c" => (format!("http://{rest}"), true),
            _ => {
                return Err("the scheme is `http`, `https`, `h2c` or `unix`".to_owned());
            }
        };
        match Origin::parse(&url) {
            Some(origin) if is_host(origin.host()) => Ok(of(Destination::Host(origin), is_http2)),
            _ => Err("a port is a number from 1 to 65535: `http://127.0.0.1:3000`".to_owned()),
        }
    }
}

fn is_host(host: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    host.len() <= 253 && host.chars().all(is_plain)
}

impl Setting for ServerAddress {
    fn example() -> String {
        "http://127.0.0.1:3000".to_owned()
    }

    fn accepts() -> String {
        "`http://host:port`, `https://host`, `h2c://host:port` or `unix:///path`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let Some(text) = node.text() else {
            return Err(Wrong::value(node));
        };
        Self::parse(text.trim()).map_err(|hint| Wrong::hinted(node, hint))
    }

    fn show(&self) -> Shown {
        Shown::One(self.written.clone())
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (written, host, port, tls, http2) in [
            ("http://127.0.0.1:3000", "127.0.0.1", 3000, false, false),
            ("http://node", "node", 80, false, false),
            (
                "https://api.example.com",
                "api.example.com",
                443,
                true,
                false,
            ),
            ("h2c://[::1]:50051", "::1", 50051, false, true),
        ] {
            let read = ServerAddress::parse(written).unwrap();
            let Destination::Host(origin) = &read.place else {
                panic!("{written} is no socket");
            };
            let found = (origin.host(), origin.port(), origin.is_tls(), read.is_http2);
            assert_eq!(found, (host, port, tls, http2), "{written}");
            assert_eq!(read.to_string(), written);
        }
        let socket = ServerAddress::parse("unix:///run/app.sock").unwrap();
        assert_eq!(socket.place, Destination::Unix("/run/app.sock".into()));
    }

    #[test]
    fn what_is_no_address_has_a_hint() {
        for (written, hint) in [
            ("127.0.0.1:3000", "`http://127.0.0.1:3000`"),
            ("node", "`http://node`"),
            ("http://a/b", "write `http://a`; the route's `strip_prefix`"),
            ("http://a?b", "write `http://a`"),
            ("http://u:p@a", "names and passwords"),
            ("ftp://a", "the scheme is"),
            ("http://", "a port is"),
            ("http://a:99999", "a port is"),
            ("http://a b", "a port is"),
            ("unix://", "the socket's path is missing"),
        ] {
            let told = ServerAddress::parse(written).unwrap_err();
            assert!(told.contains(hint), "{written}: {told}");
        }
    }
}
