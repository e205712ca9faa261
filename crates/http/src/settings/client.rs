//! `http.trusted_subnets` and `http.trusted_headers`.

use std::net::IpAddr;

use pronghorn_config::{Node, Setting, Shown, Subnet, Table, Wrong};

use crate::routes::is_token;

/// Whose word about clients is taken, and on what.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSettings {
    pub trusted: Vec<Trusted>,
    /// Those that name the client must not contradict each other.
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

/// What most proxies set. `X-Real-Ip` counts with nginx as many pages have it, which sets nothing
/// else: beside it, a forged `X-Forwarded-For` is found out. `Forwarded` is left out since hardly
/// any proxy sets it, and hardly any clears it. Host and port are, too: most proxies pass on what
/// clients send there, and then any client could choose what links in mails of the application
/// begin with.
fn default_headers() -> Vec<Believed> {
    vec![
        Believed::XForwardedFor,
        Believed::XForwardedProto,
        Believed::Address("x-real-ip".to_owned()),
    ]
}

/// More would be names made up by somebody.
const MOST_HEADERS: usize = 16;

impl ClientSettings {
    pub(crate) fn read(t: &mut Table<'_>) -> Self {
        let headers: Vec<Believed> = t
            .key(
                "trusted_headers",
                "Header fields that trusted proxies set; others are ignored. If two fields name \
                 different clients, the answer is 400.",
            )
            .differs(
                "uses the first one that is present",
                "a client could send a field that its proxy does not set",
            )
            .live()
            .default(default_headers());
        let headers = if headers.is_empty() {
            default_headers() // as in RoadRunner
        } else {
            headers
        };
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
                    "Proxies whose header fields the server trusts for the client's address, the \
                     scheme and the host.",
                )
                .differs(
                    "`proxy_ip_parser` uses the first address in `Forwarded`, else in \
                     `X-Forwarded-For`",
                    "a client could write any address before the one that its proxy adds",
                )
                .live()
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
        let clients: Vec<String> = self
            .headers
            .iter()
            .filter(|header| header.names_client())
            .map(|header| format!("`{}`", header.show()))
            .collect();
        if t.is_written("trusted_headers") && clients.len() > 1 && !self.trusted.is_empty() {
            let message = format!(
                "names {} headers that tell the client's address, {}: a request in which they \
                 differ is answered 400",
                clients.len(),
                clients.join(", ")
            );
            let hint = "name only the one that your proxy sets, for example `trusted_headers: \
                        [X-Forwarded-For, X-Forwarded-Proto]`";
            t.warn("trusted_headers", &message, hint);
        }
        if t.is_written("trusted_headers") && self.trusted.is_empty() {
            t.warn(
                "trusted_headers",
                "is not used: nobody is trusted",
                "for example `trusted_subnets: [10.0.0.0/8]`",
            );
        }
    }

    /// Whether any of them tells an address.
    pub(crate) fn names_clients(&self) -> bool {
        self.headers.iter().any(Believed::names_client)
    }

    /// The addresses of proxies. Clients of a unix socket have none.
    pub(crate) fn subnets(&self) -> Vec<Subnet> {
        let subnets = self.trusted.iter().filter_map(|trusted| match trusted {
            Trusted::Net(net) => Some(*net),
            Trusted::Unix => None,
        });
        subnets.collect()
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

impl Believed {
    const fn names_client(&self) -> bool {
        matches!(
            self,
            Self::Forwarded | Self::XForwardedFor | Self::Address(_)
        )
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
        "`Forwarded`, `X-Forwarded-For`, `-Proto`, `-Host`, `-Port`, or a field with one address, \
         `X-Real-Ip`"
            .to_owned()
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
