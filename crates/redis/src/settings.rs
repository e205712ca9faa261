//! The keys of a Redis, typed. They are RoadRunner's.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pronghorn_client::Tls;
use pronghorn_config::Table;
use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

const ADDRESS: &str = "127.0.0.1:6379";

/// As RoadRunner's.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// As RoadRunner's. A Redis answers in less than a millisecond; one that takes longer is as good as
/// away.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);

/// More nodes than a cluster needs to be found.
const MOST_ADDRESSES: usize = 64;

/// Redis itself has 16 unless it is told otherwise.
const LAST_DATABASE: u32 = 65_535;

const POOLED: &str = "one connection carries all commands";
const RETRIED: &str = "the next command reopens a lost connection";
const ON_MASTERS: &str = "only masters are asked, because they have the latest data";

/// Where a Redis is.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// One server; those of a cluster where there are several; sentinels where there is a
    /// `master_name`.
    pub addresses: Vec<RedisAddress>,
    pub master_name: Option<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub sentinel_user: Option<String>,
    pub sentinel_password: Option<String>,
    pub database: u32,
    pub tls: Option<Tls>,
    pub dial_timeout: Duration,
    pub read_timeout: Duration,
}

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RedisAddress {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl RedisSettings {
    /// Reads a section.
    pub fn read(t: &mut Table<'_>) -> Self {
        let encryption = "TLS. Without this section, connections are not encrypted.";
        Self::read_named(t).read_rest(t, encryption)
    }

    /// As [`read`](Self::read), for a section that may have a URL in `addr` in place of `addrs` and
    /// of what says who asks.
    pub fn read_or_url(t: &mut Table<'_>, read_timeout: Duration) -> Self {
        let url: Option<String> = t
            .key(
                "addr",
                "One Redis server as a URL, with the user name, the password and the number of the \
                 database, instead of `addrs`.",
            )
            .optional();
        let settings = match url {
            None => Self::read_named(t),
            Some(url) => {
                let message = "stands beside `addr`, and a URL says all of it";
                let hint = "write `addr` alone, or `addrs` with the other keys";
                t.refuse_keys(message, hint, Self::read_named);
                Self::from_url(&url).unwrap_or_else(|why| {
                    let message = format!("is no address of a Redis: {why}");
                    t.error(
                        "addr",
                        &message,
                        &format!("for example `redis://{ADDRESS}`"),
                    );
                    Self::at(Vec::new())
                })
            }
        };
        let encryption =
            "TLS. Without this section, it is used only if `addr` begins with `rediss://`.";
        Self {
            read_timeout,
            ..settings
        }
        .read_rest(t, encryption)
    }

    /// One Redis by its URL: `redis://user:password@host:6379/0`, `rediss://` with TLS,
    /// `unix:///run/redis.sock?db=0&user=…&pass=…`.
    ///
    /// # Errors
    ///
    /// A text for a person says what is wrong. It has nothing of the URL, which may hold a
    /// password.
    pub fn from_url(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (plain, tls) = match scheme {
            "rediss" => ("redis", Some(Tls::default())),
            "redis" | "unix" | "redis+unix" => (scheme, None),
            _ => {
                let accepted = "what begins with `redis://`, `rediss://`, `unix://`";
                return Err(format!("accepted: {accepted}"));
            }
        };
        // The parser takes these and passes over them.
        let ignored: &[char] = if plain == "redis" {
            &['#', '?']
        } else {
            &['#']
        };
        if let Some(found) = rest.chars().find(|it| ignored.contains(it)) {
            let code = u32::from(found);
            return Err(format!(
                "it has a `{found}`; in a name or a password write `%{code:X}` for it"
            ));
        }
        let parsed = format!("{plain}://{rest}").into_connection_info();
        // The name of the kind of mistake comes behind it.
        let parsed = parsed.map_err(|error| {
            let why = error.to_string();
            why.split(" - ").next().unwrap_or_default().to_owned()
        })?;
        let address = match parsed.addr() {
            ConnectionAddr::Tcp(host, port) => RedisAddress::Tcp(host.clone(), *port),
            ConnectionAddr::Unix(path) => RedisAddress::Unix(path.clone()),
            _ => return Err("it is no host and no socket".to_owned()),
        };
        let client = parsed.redis_settings();
        let database = u32::try_from(client.db()).ok();
        let database = database.filter(|number| *number <= LAST_DATABASE);
        Ok(Self {
            user: client.username().map(ToOwned::to_owned),
            password: client.password().map(ToOwned::to_owned),
            database: database
                .ok_or_else(|| format!("its database is none of 0 to {LAST_DATABASE}"))?,
            tls,
            ..Self::at(vec![address])
        })
    }

    /// With the defaults of all else.
    pub fn at(addresses: Vec<RedisAddress>) -> Self {
        Self {
            addresses,
            master_name: None,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            database: 0,
            tls: None,
            dial_timeout: DIAL_TIMEOUT,
            read_timeout: READ_TIMEOUT,
        }
    }

    /// The keys in whose place a URL may stand.
    fn read_named(t: &mut Table<'_>) -> Self {
        let written: Vec<String> = t
            .key(
                "addrs",
                "The address of the Redis server. For a cluster, the addresses of several nodes; \
                 with `master_name`, those of the sentinels.",
            )
            .default(vec![ADDRESS.to_owned()]);
        let mut addresses = Vec::with_capacity(written.len());
        for text in &written {
            match RedisAddress::parse(text) {
                Some(address) => addresses.push(address),
                None => {
                    let message = format!(
                        "is `{text}`; accepted: a host with its port, or the path of a socket"
                    );
                    t.error("addrs", &message, &format!("for example `{ADDRESS}`"));
                }
            }
        }
        if written.is_empty() || written.len() > MOST_ADDRESSES {
            let message = format!(
                "has {} addresses; accepted: 1 to {MOST_ADDRESSES}",
                written.len()
            );
            t.error("addrs", &message, "write some nodes; they name the others");
        }
        let settings = Self {
            master_name: t
                .key(
                    "master_name",
                    "The name of the master for the sentinels. With this key, `addrs` are the \
                     sentinels' addresses.",
                )
                .optional(),
            user: t
                .key("username", "The user name, if Redis has users.")
                .optional(),
            password: t.key("password", "The password.").secret().optional(),
            sentinel_user: t
                .key("sentinel_username", "The user name for the sentinels.")
                .optional(),
            sentinel_password: t
                .key("sentinel_password", "The password for the sentinels.")
                .secret()
                .optional(),
            database: t
                .key("db", "The number of the database. A cluster has only 0.")
                .range(0..=LAST_DATABASE)
                .default(0),
            ..Self::at(addresses)
        };
        settings.check(t);
        settings
    }

    /// The keys that are there with a URL as well. Those that are not written leave what is known.
    fn read_rest(self, t: &mut Table<'_>, encryption: &'static str) -> Self {
        let tls = t.optional_section_with("tls", encryption, read_tls);
        let settings = Self {
            tls: tls.or(self.tls),
            dial_timeout: t
                .key("dial_timeout", "Time limit for connecting.")
                .zero_is_default()
                .range(TIMEOUTS)
                .default(self.dial_timeout),
            read_timeout: t
                .key("read_timeout", "Time limit for a command and its answer.")
                .zero_is_default()
                .range(TIMEOUTS)
                .default(self.read_timeout),
            ..self
        };
        t.no_effect("write_timeout", "`read_timeout` covers the whole command");
        for key in [
            "pool_size",
            "min_idle_conns",
            "max_conn_age",
            "pool_timeout",
            "idle_timeout",
            "idle_check_freq",
        ] {
            t.no_effect(key, POOLED);
        }
        for key in ["max_retries", "min_retry_backoff", "max_retry_backoff"] {
            t.no_effect(key, RETRIED);
        }
        for key in ["route_by_latency", "route_randomly", "read_only"] {
            t.no_effect(key, ON_MASTERS);
        }
        settings
    }

    fn check(&self, t: &mut Table<'_>) {
        if self.is_cluster() && self.database != 0 {
            let message = "is of one Redis, and `addrs` has those of a cluster";
            t.error("db", message, "remove it, or write one address");
        }
        let is_socket = |address: &RedisAddress| matches!(address, RedisAddress::Unix(_));
        let has_sockets = self.addresses.iter().any(is_socket);
        if has_sockets && (self.addresses.len() > 1 || self.master_name.is_some()) {
            let message = "has the path of a socket among several, or of a sentinel";
            t.error("addrs", message, "write hosts with their ports");
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.master_name.is_none() && self.addresses.len() > 1
    }

    /// As whom nodes are asked.
    pub(crate) fn client(&self) -> RedisConnectionInfo {
        let client = RedisConnectionInfo::default().set_db(i64::from(self.database));
        known_as(client, self.user.as_deref(), self.password.as_deref())
    }

    /// As whom sentinels are asked.
    pub(crate) fn sentinel_client(&self) -> RedisConnectionInfo {
        let (user, password) = (&self.sentinel_user, &self.sentinel_password);
        known_as(
            RedisConnectionInfo::default(),
            user.as_deref(),
            password.as_deref(),
        )
    }

    /// As people call it in records and errors, without what says who asks.
    pub fn title(&self) -> String {
        let all: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let all = all.join(", ");
        match &self.master_name {
            Some(master) => format!("the Redis `{master}` of the sentinels at {all}"),
            None if self.is_cluster() => format!("the Redis cluster at {all}"),
            None => format!("the Redis at {all}"),
        }
    }
}

fn known_as(
    mut client: RedisConnectionInfo,
    user: Option<&str>,
    password: Option<&str>,
) -> RedisConnectionInfo {
    if let Some(user) = user {
        client = client.set_username(user);
    }
    if let Some(password) = password {
        client = client.set_password(password);
    }
    client
}

fn read_tls(t: &mut Table<'_>) -> Tls {
    let root_ca = t
        .key(
            "root_ca",
            "A PEM file with the certificates to trust. By default, those of the system.",
        )
        .is_path()
        .optional();
    let identity = Tls::read_identity(t);
    Tls { root_ca, identity }
}

impl RedisAddress {
    /// `host:port`, `[::1]:6379`, `/run/redis.sock`, the same behind `unix://`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix("unix://").unwrap_or(text);
        if text.starts_with('/') {
            return Some(Self::Unix(text.into()));
        }
        let (host, port) = text.rsplit_once(':')?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let is_host = !host.is_empty() && !host.contains(['/', '@', ' ']);
        let port = port.parse().ok().filter(|port| *port != 0)?;
        is_host.then(|| Self::Tcp(host.to_owned(), port))
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Without what says who asks.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_its_port_or_a_socket() {
        for (text, shown) in [
            ("127.0.0.1:6379", "127.0.0.1:6379"),
            ("[::1]:6380", "[::1]:6380"),
            ("cache:1", "cache:1"),
            ("/run/redis.sock", "/run/redis.sock"),
            ("unix:///run/redis.sock", "/run/redis.sock"),
        ] {
            let address = RedisAddress::parse(text).map(|it| it.to_string());
            assert_eq!(address.as_deref(), Some(shown), "{text}");
        }
        for text in [
            "",
            "cache",
            "cache:",
            ":6379",
            "cache:0",
            "cache:70000",
            "redis://h:1",
            "u@h:1",
        ] {
            assert_eq!(RedisAddress::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_url_says_where_a_redis_is_and_who_asks() {
        let one =
            |host: &str, port| RedisSettings::at(vec![RedisAddress::Tcp(host.to_owned(), port)]);
        let text = |text: &str| Some(text.to_owned());
        let socket = RedisAddress::Unix("/run/redis.sock".into());
        for (url, expected) in [
            ("redis://h", one("h", 6379)),
            (
                "redis://[::1]:1/2",
                RedisSettings {
                    database: 2,
                    ..one("::1", 1)
                },
            ),
            (
                "rediss://h:1",
                RedisSettings {
                    tls: Some(Tls::default()),
                    ..one("h", 1)
                },
            ),
            (
                "redis://me:p%40ss%23@h:1",
                RedisSettings {
                    user: text("me"),
                    password: text("p@ss#"),
                    ..one("h", 1)
                },
            ),
            (
                "unix:///run/redis.sock?db=3&pass=x",
                RedisSettings {
                    database: 3,
                    password: text("x"),
                    ..RedisSettings::at(vec![socket])
                },
            ),
        ] {
            let parsed = RedisSettings::from_url(url).unwrap();
            assert!(parsed == expected, "{url}: {parsed:?}");
        }
        for (url, said) in [
            ("h:6379", "accepted: what begins with `redis://`"),
            ("http://h", "accepted: what begins with `redis://`"),
            ("redis://", "Missing hostname"),
            ("redis://h:1/x", "Invalid database number"),
            ("redis://h:1/-1", "its database is none of 0 to 65535"),
            ("redis://:pass#word@h", "write `%23` for it"),
            ("redis://h/?protocol=resp3", "write `%3F` for it"),
        ] {
            let refused = RedisSettings::from_url(url).unwrap_err();
            assert!(refused.contains(said), "{url}: {refused}");
        }
    }
}
