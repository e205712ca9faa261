//! `http.trusted_subnets` and `http.trusted_headers`.

use std::net::IpAddr;

use pronghorn_config::{Node, Setting, Shown, Subnet, Table, Wrong};

use crate::routes::is_token;

/// Whose word about clients is taken, and on what.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    pub trusted: Vec<Trusted>,
    /// The first that says something counts.
    pub headers: Vec<Believed>,
}

/// Proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trusted {
    Net(Subnet),
    /// Whoever may connect to a unix socket.
    Unix,
}

/// A field that proxies write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Believed {
    Forwarded,
    XForwardedFor,
    XForwardedProto,
    /// Allows the host in `Forwarded`, too.
    XForwardedHost,
    XForwardedPort,
    /// One address and nothing else; its name in lower case.
    Address(String),
}

const NAMES: [(&str, Believed); 5] = [
    ("Forwarded", Believed::Forwarded),
    ("X-Forwarded-For", Believed::XForwardedFor),
    ("X-Forwarded-Proto", Believed::XForwardedProto),
    ("X-Forwarded-Host", Believed::XForwardedHost),
    ("X-Forwarded-Port", Believed::XForwardedPort),
];

/// RoadRunner's for addresses, in its order, and the scheme. Host and port are left out: most proxies pass on what clients
/// send there, and then any client could choose what links in mails of the application begin with.
fn default_headers() -> Vec<Believed> {
    let address = |name: &str| Believed::Address(name.to_owned());
    vec![
        Believed::Forwarded,
        Believed::XForwardedFor,
        Believed::XForwardedProto,
        address("x-real-ip"),
        address("true-client-ip"),
        address("cf-connecting-ip"),
    ]
}

/// More would be names made up by somebody.
const MOST_HEADERS: usize = 16;

impl ClientSettings {
    pub(crate) fn read(t: &mut Table<'_>) -> Self {
        let headers: Vec<Believed> = t
            .key(
                "trusted_headers",
                "What is taken from them, the first that names an address; a field that is not listed is not looked at.",
            )
            .default(default_headers());
        if headers.len() > MOST_HEADERS {
            let message = format!(
                "has {} names; accepted: at most {MOST_HEADERS}",
                headers.len()
            );
            t.error(
                "trusted_headers",
                &message,
                "name those that your proxy sets",
            );
        }
        Self {
            trusted: t
                .key(
                    "trusted_subnets",
                    "Proxies whose word about the client is taken: its address, scheme and host.",
                )
                .differs(
                    "the first address in `Forwarded`, then in `X-Forwarded-For`, for `proxy_ip_parser`",
                    "a client can put any address before the one that the proxy adds",
                )
                .default(Vec::new()),
            headers,
        }
    }

    pub(super) fn check(&self, t: &mut Table<'_>, middleware: &[String]) {
        const PARSER: &str = "proxy_ip_parser";
        let is_listed = middleware
            .iter()
            .any(|name| name.eq_ignore_ascii_case(PARSER));
        if is_listed && self.trusted.is_empty() {
            t.warn(
                "middleware",
                "names `proxy_ip_parser`, which does nothing without `http.trusted_subnets`",
                "for example `trusted_subnets: [10.0.0.0/8]`",
            );
        }
        if !self.trusted.is_empty() && !is_listed {
            t.differs(
                "middleware",
                "`http.trusted_subnets` is enough",
                "`proxy_ip_parser` must be listed",
                "who writes it wants it",
            );
        }
        if t.is_written("trusted_headers") && self.trusted.is_empty() {
            t.warn(
                "trusted_headers",
                "is not used: nobody is trusted",
                "for example `trusted_subnets: [10.0.0.0/8]`",
            );
        }
    }

    /// Whether this one is a proxy of ours; None is the client of a unix socket.
    pub(crate) fn trusts(&self, ip: Option<IpAddr>) -> bool {
        self.trusted.iter().any(|trusted| match (trusted, ip) {
            (Trusted::Net(net), Some(ip)) => net.contains(ip),
            (Trusted::Unix, None) => true,
            (Trusted::Net(_), None) | (Trusted::Unix, Some(_)) => false,
        })
    }
}

impl Setting for Trusted {
    fn example() -> String {
        Subnet::example()
    }

    fn accepts() -> String {
        format!(
            "{}, or `unix` for clients of a unix socket",
            Subnet::accepts()
        )
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        match node.text().map(str::trim) {
            Some("unix") => Ok(Self::Unix),
            _ => Subnet::read(node).map(Self::Net),
        }
    }

    fn show(&self) -> Shown {
        match self {
            Self::Net(net) => net.show(),
            Self::Unix => Shown::One("unix".to_owned()),
        }
    }
}

impl Setting for Believed {
    fn example() -> String {
        "X-Forwarded-For".to_owned()
    }

    fn accepts() -> String {
        "`Forwarded`, `X-Forwarded-For`, `-Proto`, `-Host`, `-Port`, or a field with one address, `X-Real-Ip`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().map(str::trim).unwrap_or_default();
        if text.is_empty() || !text.bytes().all(is_token) {
            return Err(Wrong::value(node));
        }
        let mut names = NAMES.iter();
        let known = names.find(|(name, _)| name.eq_ignore_ascii_case(text));
        Ok(known.map_or_else(
            || Self::Address(text.to_ascii_lowercase()),
            |(_, believed)| believed.clone(),
        ))
    }

    fn show(&self) -> Shown {
        let known = NAMES.iter().find(|(_, believed)| believed == self);
        Shown::One(match (known, self) {
            (None, Self::Address(name)) => name.clone(),
            (known, _) => known.map_or("", |(name, _)| name).to_owned(),
        })
    }
}
