//! The keys of an upstream.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_config::{Choice, Table};

use crate::address::{Destination, ServerAddress};

/// More than this is the work of a load balancer of its own.
const MOST_SERVERS: usize = 100;

/// A server on the same network answers in a millisecond. One that is restarting may take seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// As nginx's `proxy_read_timeout`.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const TIMES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_hours(24);

const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
const HEALTH_INTERVALS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_hours(1);

/// Which server gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The one with the fewest requests at the moment.
    #[default]
    LeastLoaded,
    /// The same one for all requests of an address.
    ClientAddress,
}

impl Choice for Balance {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("least_loaded", Self::LeastLoaded),
        ("client_address", Self::ClientAddress),
    ];
    const ELSEWHERE: &'static [(&'static str, Self)] = &[
        ("least_conn", Self::LeastLoaded),
        ("round_robin", Self::LeastLoaded),
        ("ip_hash", Self::ClientAddress),
    ];
}

/// Other HTTP servers that answer requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSettings {
    pub servers: Vec<ServerAddress>,
    pub balance: Balance,
    /// The `Host` that servers get; None is the client's.
    pub host: Option<String>,
    /// Authorities of servers with TLS; None is the system's.
    pub root_ca: Option<PathBuf>,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub idle_timeout: Duration,
    /// Each connection begins with a header that names the client.
    pub proxy_protocol: bool,
    pub health: Option<HealthSettings>,
}

/// Requests that find out which servers work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    pub path: String,
    pub interval: Duration,
}

impl UpstreamSettings {
    /// The section of one upstream.
    pub fn read(t: &mut Table<'_>) -> Self {
        let servers: Vec<ServerAddress> = t
            .key(
                "servers",
                "The servers: `http://host:port`, `https://host` with TLS, `h2c://host:port` for \
                 HTTP/2 without TLS, or `unix:///path`.",
            )
            .default(Vec::new());
        check_servers(t, &servers);
        let has_tls = servers
            .iter()
            .any(|it| matches!(&it.place, Destination::Host(origin) if origin.is_tls()));
        let host: Option<String> = t
            .key(
                "host",
                "The `Host` header that the servers get. By default, it is the client's own.",
            )
            .optional();
        if host.as_deref().is_some_and(|host| !is_authority(host)) {
            t.error("host", "is no host", "for example `host: api.example.com`");
        }
        let root_ca: Option<PathBuf> = t
            .key(
                "root_ca",
                "A PEM file with the authorities that certificates of `https` servers must come \
                 from. By default, these are the authorities that the system trusts.",
            )
            .is_path()
            .optional();
        if root_ca.is_some() && !has_tls {
            t.warn(
                "root_ca",
                "has no effect: no server has `https`",
                "remove it",
            );
        }
        let proxy_protocol = t
            .key(
                "proxy_protocol",
                "Whether each connection begins with a PROXY header (version 1) that names the \
                 client. A connection then carries one request only.",
            )
            .default(false);
        if proxy_protocol && servers.iter().any(|it| it.is_http2) {
            t.error(
                "proxy_protocol",
                "can't be used with `h2c` servers, whose connections requests of several clients \
                 share",
                "write `http` for the scheme, or remove `proxy_protocol`",
            );
        }
        Self {
            servers,
            balance: t
                .key(
                    "balance",
                    "Which server gets a request. `least_loaded`: the one with the fewest requests \
                     at the moment. `client_address`: the same server for all requests of an \
                     address, while that server works.",
                )
                .default(Balance::LeastLoaded),
            host,
            root_ca,
            connect_timeout: t
                .key(
                    "connect_timeout",
                    "Time limit for a connection to a server.",
                )
                .range(TIMES)
                .default(CONNECT_TIMEOUT),
            response_timeout: t
                .key(
                    "response_timeout",
                    "Time limit from the end of a request to the beginning of its response.",
                )
                .range(TIMES)
                .default(RESPONSE_TIMEOUT),
            idle_timeout: t
                .key(
                    "idle_timeout",
                    "How long a server may pause while it reads a request or sends a response. \
                     WebSockets have no such limit.",
                )
                .range(TIMES)
                .default(IDLE_TIMEOUT),
            proxy_protocol,
            health: t.optional_section_with(
                "health",
                "Health checks. A server that fails two checks in a row gets no requests until it \
                 passes one.",
                read_health,
            ),
        }
    }
}

fn check_servers(t: &mut Table<'_>, servers: &[ServerAddress]) {
    const EXAMPLE: &str = "for example `servers: [\"http://127.0.0.1:3000\"]`";
    if servers.is_empty() && (!t.is_written("servers") || t.is_empty("servers")) {
        t.error("servers", "is missing: there is nobody to answer", EXAMPLE);
    }
    if servers.len() > MOST_SERVERS {
        let message = format!(
            "has {} servers, and {MOST_SERVERS} are the most",
            servers.len()
        );
        t.error("servers", &message, "put a load balancer in between");
    }
    let mut seen = servers.iter().enumerate();
    if let Some((_, twice)) = seen.find(|(at, it)| servers[..*at].contains(it)) {
        t.error(
            "servers",
            &format!("has `{twice}` twice"),
            "remove one of the two",
        );
    }
}

fn read_health(t: &mut Table<'_>) -> HealthSettings {
    let path = t
        .key(
            "path",
            "The path that is requested, by GET. A status from 200 to 399 passes the check.",
        )
        .default("/".to_owned());
    if !path.starts_with('/') || path.bytes().any(|byte| !byte.is_ascii_graphic()) {
        t.error("path", "is no path", "for example `path: /health`");
    }
    HealthSettings {
        path,
        interval: t
            .key(
                "interval",
                "The time between two checks of a server. It is also the time limit of a check.",
            )
            .range(HEALTH_INTERVALS)
            .default(HEALTH_INTERVAL),
    }
}

fn is_authority(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    (1..=255).contains(&host.len()) && host.bytes().all(is_plain)
}
