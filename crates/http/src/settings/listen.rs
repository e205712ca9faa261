//! The addresses of listeners, their certificates and protocols: `http.address`, `http.listen`,
//! `http.ssl`, `http.http2`, `http.http3`.

use std::path::PathBuf;
use std::time::Duration;

use pronghorn_acme::AcmeSettings;
use pronghorn_config::{Address, Listen, Node, Section, Setting, Shown, Table, Wrong};
use pronghorn_serve::{
    CertifiedClients, Http2Limits, Pair, ProxyProtocol, read_pair, read_proxies,
};

use super::HttpSettings;

/// Where RoadRunner listens for TLS, this machine only.
const SSL_HOST: &str = "127.0.0.1";
const SSL_PORT: u16 = 443;

/// Each is a socket per I/O thread; nobody has so many addresses.
const MOST_LISTENERS: usize = 100;

/// Each is read at the start and looked at every few seconds.
const MOST_CERTIFICATES: usize = 1000;

/// Each open request may keep 256 KB of its body in memory.
const MOST_STREAMS: u32 = 1000;

/// Owner and group; others see no socket that is meant for a proxy on the same machine.
pub const SOCKET_MODE: Mode = Mode(0o660);

/// A year, which is what lists of such sites ask for at least.
pub const HSTS_AGE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The permissions of a file, in octal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl Setting for Mode {
    fn example() -> String {
        "\"0660\"".to_owned()
    }

    fn accepts() -> String {
        "three octal digits, with or without a 0 before them".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = String::read(node)?;
        let digits = text.strip_prefix("0o").unwrap_or(&text);
        let digits = digits.strip_prefix('0').unwrap_or(digits);
        match u32::from_str_radix(digits, 8) {
            Ok(mode) if digits.len() == 3 => Ok(Self(mode)),
            _ => Err(Wrong::value(node)),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(format!("0{:03o}", self.0))
    }
}

/// One of `http.listen`.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// None was wrong.
    pub at: Option<Listen>,
    /// Whether its clients speak TLS.
    pub tls: bool,
    /// Of a unix socket.
    pub mode: Mode,
    /// Whose a unix socket is; None is the server's own.
    pub user: Option<String>,
    pub group: Option<String>,
    /// Its clients come by load balancers that tell who they are.
    pub proxies: Option<ProxyProtocol>,
}

/// `http.unix_socket`, as RoadRunner 3 has it.
#[derive(Clone, Debug, Default)]
pub struct UnixSocketSettings {
    pub mode: Option<Mode>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// `http.ssl`.
#[derive(Clone, Debug)]
pub struct SslSettings {
    pub address: Address,
    /// That of `cert` and `key` first: for clients that ask for no name that another one has.
    pub pairs: Vec<Pair>,
    /// Certificates that the server fetches itself.
    pub acme: Option<AcmeSettings>,
    /// Whether requests without TLS are sent to the same place with it.
    pub redirect: bool,
    /// What browsers are to remember.
    pub hsts: Option<HstsSettings>,
    /// As [`ListenSettings::proxies`].
    pub proxies: Option<ProxyProtocol>,
    /// Which certificates clients show.
    pub clients: CertifiedClients,
}

/// `http.http3`.
#[derive(Clone, Debug, Default)]
pub struct Http3Settings {
    /// RoadRunner's: the only address. By default, all that have TLS.
    pub address: Option<Address>,
    /// One more certificate, for all.
    pub pair: Option<Pair>,
}

/// `http.ssl.hsts` (RFC 6797).
#[derive(Clone, Copy, Debug)]
pub struct HstsSettings {
    pub max_age: Duration,
    pub include_subdomains: bool,
    pub preload: bool,
}

impl HstsSettings {
    /// The field's value.
    pub fn value(&self) -> String {
        let mut value = format!("max-age={}", self.max_age.as_secs());
        if self.include_subdomains {
            value.push_str("; includeSubDomains");
        }
        if self.preload {
            value.push_str("; preload");
        }
        value
    }
}

impl HttpSettings {
    /// All places to listen, in the order of the file's keys.
    pub fn listeners(&self) -> Vec<ListenSettings> {
        let socket = &self.unix_socket;
        let clear = self.address.iter().map(|at| ListenSettings {
            at: Some(at.clone()),
            tls: false,
            mode: socket.mode.unwrap_or(SOCKET_MODE),
            user: socket.uid.map(|id| id.to_string()),
            group: socket.gid.map(|id| id.to_string()),
            proxies: self.proxies.clone(),
        });
        let ssl = self.ssl.iter().map(|ssl| ListenSettings {
            at: Some(Listen::Tcp(ssl.address.clone())),
            tls: true,
            mode: SOCKET_MODE,
            user: None,
            group: None,
            proxies: ssl.proxies.clone(),
        });
        clear
            .chain(ssl)
            .chain(self.listen.iter().cloned())
            .collect()
    }
}

pub(super) fn read_list(t: &mut Table<'_>) -> Vec<ListenSettings> {
    t.section_list_with(
        "listen",
        "More addresses to listen on.",
        "One address to listen on.",
        MOST_LISTENERS,
        |t| {
            t.ours();
            ListenSettings::read(t)
        },
    )
}

impl Section for ListenSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let at: Option<Listen> = t
            .key("address", "An address and port, or a unix socket.")
            .optional();
        let settings = Self {
            tls: t
                .key(
                    "tls",
                    "Whether clients use TLS here, with the certificates of `http.ssl`.",
                )
                .default(false),
            mode: t
                .key("mode", "The permissions of a unix socket.")
                .default(SOCKET_MODE),
            user: t
                .key(
                    "user",
                    "The owner of a unix socket; by default the server's own user.",
                )
                .optional(),
            group: t
                .key(
                    "group",
                    "The group of a unix socket; by default the server's own.",
                )
                .optional(),
            proxies: read_proxies(t, matches!(at, Some(Listen::Unix(_)))),
            at,
        };
        if !t.is_written("address") {
            t.error(
                "",
                "has no `address`",
                "for example `address: 127.0.0.1:8080`",
            );
        }
        match &settings.at {
            Some(Listen::Unix(_)) if settings.tls => {
                t.error("tls", "is for addresses, not for unix sockets", "remove it");
            }
            Some(Listen::Tcp(_)) => {
                for name in ["mode", "user", "group"] {
                    if t.is_written(name) {
                        t.warn(name, "has no effect", "it is for unix sockets");
                    }
                }
            }
            _ => {}
        }
        settings
    }
}

/// The section `unix_socket`, for a unix socket in `address`.
pub(super) fn read_unix_socket(t: &mut Table<'_>, address: Option<&Listen>) -> UnixSocketSettings {
    let is_unix = matches!(address, Some(Listen::Unix(_)));
    let read = t.optional_section_with(
        "unix_socket",
        "Owner and permissions of the unix socket in `address`, with RoadRunner's keys. `listen` \
         also accepts names of users and groups.",
        |t| {
            if !is_unix {
                t.warn("", "has no effect", "it is for `address: unix:///path`");
            }
            let mode: Option<Mode> = t
                .key("mode", "The permissions of the unix socket.")
                .optional();
            let uid: Option<u32> = t
                .key("uid", "The user ID of the socket's owner.")
                .optional();
            let gid: Option<u32> = t.key("gid", "The group ID of the socket.").optional();
            UnixSocketSettings { mode, uid, gid }
        },
    );
    read.unwrap_or_default()
}

impl Section for SslSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let address = t.key("address", "The address for TLS.").default(Address {
            host: Some(SSL_HOST.to_owned()),
            port: SSL_PORT,
        });
        let certificate: Option<PathBuf> = t
            .key(
                "cert",
                "A PEM file with the certificate and, after it, the intermediate certificates.",
            )
            .live()
            .optional();
        let key: Option<PathBuf> = t
            .key("key", "A PEM file with the certificate's private key.")
            .is_path()
            .live()
            .optional();
        let more = read_certificates(t);
        let settings = Self {
            address,
            redirect: t
                .key(
                    "redirect",
                    "Whether requests without TLS are redirected to `address`, with status 308.",
                )
                .live()
                .default(false),
            proxies: read_proxies(t, false),
            clients: CertifiedClients::read(t, true),
            hsts: t.optional_section(
                "hsts",
                "HSTS (`Strict-Transport-Security`). It tells browsers to use only TLS for this \
                 site.",
            ),
            pairs: read_pair(t, certificate, key)
                .into_iter()
                .chain(more)
                .collect(),
            acme: t.optional_section(
                "acme",
                "Certificates that the server fetches and renews itself (ACME), by default from \
                 Let's Encrypt. `domains` is enough. [TLS](../guide/tls.md) has an example.",
            ),
        };
        let names_none = ["cert", "key", "acme"].iter().all(|key| !t.is_written(key));
        if settings.pairs.is_empty() && names_none {
            let hint = "for example `cert: fullchain.pem` and `key: privkey.pem`, or \
                        `acme: {domains: [example.com]}`";
            t.error("", "has no certificate", hint);
        }
        settings
    }
}

fn read_certificates(t: &mut Table<'_>) -> Vec<Pair> {
    let pairs = t.section_list_with(
        "certificates",
        "More certificates. A client gets the certificate for the host name that it requests.",
        "A certificate.",
        MOST_CERTIFICATES,
        |t| {
            t.live();
            t.ours();
            let certificate: Option<PathBuf> = t.key("cert", "As `http.ssl.cert`.").optional();
            let key: Option<PathBuf> = t.key("key", "As `http.ssl.key`.").is_path().optional();
            if certificate.is_none() && key.is_none() {
                t.error("", "is empty", "for example `{cert: a.pem, key: a.key}`");
            }
            read_pair(t, certificate, key)
        },
    );
    pairs.into_iter().flatten().collect()
}

impl Section for HstsSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        t.live();
        let settings = Self {
            max_age: t
                .key(
                    "max_age",
                    "How long browsers use only TLS after a response.",
                )
                .default(HSTS_AGE),
            include_subdomains: t
                .key(
                    "include_subdomains",
                    "Whether HSTS also applies to all subdomains.",
                )
                .default(false),
            preload: t
                .key(
                    "preload",
                    "Whether the site may be added to the preload list of browsers.",
                )
                .default(false),
        };
        if settings.preload && (!settings.include_subdomains || settings.max_age < HSTS_AGE) {
            t.error(
                "preload",
                "needs `include_subdomains` and a `max_age` of at least a year",
                "the list takes no other sites",
            );
        }
        settings
    }
}

/// The section `http2`.
pub(super) fn read_http2(t: &mut Table<'_>) -> Http2Limits {
    let default = Http2Limits::default();
    Http2Limits {
        clear: t
            .key(
                "h2c",
                "Whether HTTP/2 also works without TLS (h2c), for clients that begin with HTTP/2.",
            )
            .default(default.clear),
        streams: t
            .key(
                "max_concurrent_streams",
                "How many requests a client may have open on one connection.",
            )
            .zero_is_default()
            .range(1..=MOST_STREAMS)
            .default(default.streams),
        ..default
    }
}

/// True, or a section with RoadRunner's keys. None is off.
pub(super) fn read_http3(t: &mut Table<'_>) -> Option<Http3Settings> {
    const HTTP3: &str = "HTTP/3. `http3: true` is enough: the server then offers HTTP/3 on UDP at \
                         each address that has TLS, and tells browsers so in `Alt-Svc`. The keys \
                         below are RoadRunner's.";
    if t.has_value("http3") && !t.is_section("http3") {
        let is_on = t.key("http3", HTTP3).default(false);
        return is_on.then(Http3Settings::default);
    }
    t.optional_section_with("http3", HTTP3, |t| {
        let address = t.key(
            "address",
            "The only address for HTTP/3. By default, each address that has TLS.",
        );
        let address = address.optional();
        let certificate = t.key(
            "cert",
            "One more certificate, as in `http.ssl.certificates`.",
        );
        let certificate: Option<PathBuf> = certificate.optional();
        let key = t
            .key("key", "The private key of that certificate.")
            .is_path();
        let key: Option<PathBuf> = key.optional();
        Http3Settings {
            address,
            pair: read_pair(t, certificate, key),
        }
    })
}

fn check_http3(t: &mut Table<'_>, settings: &HttpSettings) {
    let Some(http3) = &settings.http3 else { return };
    let listeners = settings.listeners();
    let with_tls = || listeners.iter().filter(|listener| listener.tls);
    let message = if settings.ssl.is_none() && http3.pair.is_none() {
        "has no certificate"
    } else if http3.address.is_none() && with_tls().next().is_none() {
        "has no address: nothing listens with TLS"
    } else {
        if with_tls().any(|listener| listener.proxies.is_some()) {
            let hint = "a load balancer that tells of its clients passes on TCP alone; remove \
                        `http3`, or let clients reach this server";
            t.warn("http3", "has no PROXY protocol", hint);
        }
        return;
    };
    let hint = "a section `ssl` with `cert` and `key` is for both";
    t.error("http3", message, hint);
}

/// What can be said only when all is known.
pub(super) fn check(t: &mut Table<'_>, settings: &HttpSettings) {
    let listeners = settings.listeners();
    if listeners.is_empty() {
        t.warn(
            "address",
            "is not set: nothing listens for HTTP",
            "for example `address: 127.0.0.1:8080`",
        );
    }
    if settings.proxies.is_some() && settings.address.is_none() {
        t.warn(
            "proxy_protocol",
            "has no effect: it is for `http.address`, which is not set",
            "`ssl` and the places of `listen` have a section of that name, too",
        );
    }
    check_http3(t, settings);
    let mut seen: Vec<&Listen> = Vec::new();
    for at in listeners.iter().filter_map(|listener| listener.at.as_ref()) {
        let any_port = matches!(at, Listen::Tcp(Address { port: 0, .. }));
        if !any_port && seen.contains(&at) {
            let message = format!("has `{at}` twice");
            t.error("", &message, "each place is listened on once");
        }
        seen.push(at);
    }
    if settings.ssl.is_none() && settings.listen.iter().any(|listener| listener.tls) {
        t.error(
            "listen",
            "has a place with `tls`, and there is no certificate",
            "a section `ssl` with `cert` and `key` names one",
        );
    }
    let clear = listeners.iter().any(|listener| !listener.tls);
    if settings.ssl.as_ref().is_some_and(|ssl| ssl.redirect) && !clear {
        let hint = "`http.address` is where requests without TLS come in";
        t.warn("ssl", "redirects nothing: all that listens has TLS", hint);
    }
}
