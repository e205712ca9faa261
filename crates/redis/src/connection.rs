//! The connection: opened when it is needed, given up when it is lost.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use pronghorn_base::read_linked;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, FromRedisValue,
    IntoConnectionInfo, RedisConnectionInfo, RedisError, TlsCertificates, TlsMode, Value,
};
use thiserror::Error;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::settings::{RedisAddress, RedisSettings};

/// How many commands of one call are on their way at a time.
const AT_A_TIME: usize = 256;

/// While it is away, calls are told so without a try of their own. A Redis that starts anew is
/// found soon all the same.
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(500);

/// How many keys `SCAN` looks at before it answers.
const SCANNED: usize = 1000;

/// Of a file with certificates, or a key.
const LONGEST_CERTIFICATE: u64 = 1 << 20;

/// How often a command of a cluster is sent again that met a node at a bad moment.
const RETRIES: u32 = 3;

/// A Redis. Clones are the same one.
#[derive(Clone)]
pub struct Redis(Arc<Shared>);

struct Shared {
    settings: RedisSettings,
    title: String,
    link: Mutex<Link>,
}

#[derive(Default)]
struct Link {
    open: Option<Open>,
    /// Counts up, so that a late failure of one connection does not end the next one.
    number: u64,
    failed: Option<(Instant, RedisFailure)>,
}

#[derive(Clone)]
enum Open {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Why a command has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RedisFailure {
    /// Nobody answers there, or not in time. The command may have been carried out.
    #[error("{title} does not answer: {why}")]
    Away { title: String, why: String },
    /// It says no: to who asks, or to the command.
    #[error("{title} refuses: {why}")]
    Refused { title: String, why: String },
    /// What the settings name can't be used.
    #[error("{0}")]
    Unusable(String),
}

impl Redis {
    /// Connects to nobody yet.
    pub fn new(settings: RedisSettings) -> Self {
        let title = settings.title();
        Self(Arc::new(Shared {
            settings,
            title,
            link: Mutex::default(),
        }))
    }

    /// # Errors
    ///
    /// When Redis is away, or refuses.
    pub async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisFailure> {
        let (mut open, number) = self.connection().await?;
        let answer = command.query_async(&mut open).await;
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(&error, number).await),
        }
    }

    /// The answers, in the order of their commands, of which several are on their way at a time.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub async fn ask_each<T: FromRedisValue>(
        &self,
        commands: Vec<Cmd>,
    ) -> Result<Vec<T>, RedisFailure> {
        let ask = async |command: Cmd| self.ask(&command).await;
        stream::iter(commands.into_iter().map(ask))
            .buffered(AT_A_TIME)
            .try_collect()
            .await
    }

    /// Removes all keys that begin so, on all masters; with an empty prefix all of the database.
    ///
    /// # Errors
    ///
    /// When Redis is away, or refuses. Some keys may be gone then.
    pub async fn clear(&self, prefix: &[u8]) -> Result<(), RedisFailure> {
        if prefix.is_empty() {
            // A cluster's client sends it to all masters.
            return self.ask(&redis::cmd("FLUSHDB")).await;
        }
        for node in self.masters().await? {
            let mut cursor = 0;
            loop {
                let (next, keys) = self.scan(node.as_ref(), cursor, prefix).await?;
                let unlink = |key: Vec<u8>| {
                    let mut command = redis::cmd("UNLINK");
                    command.arg(key);
                    command
                };
                let gone: Vec<u64> = self
                    .ask_each(keys.into_iter().map(unlink).collect())
                    .await?;
                drop(gone);
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// None for the only one.
    async fn masters(&self) -> Result<Vec<Option<(String, u16)>>, RedisFailure> {
        let (open, number) = self.connection().await?;
        let Open::Cluster(mut cluster) = open else {
            return Ok(vec![None]);
        };
        let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let sizes = cluster
            .route_command(redis::cmd("DBSIZE"), everywhere)
            .await;
        let Value::Map(nodes) = self.answered(sizes, number).await? else {
            return Ok(Vec::new());
        };
        let address = |(node, _)| {
            let node: String = redis::from_redis_value(node).ok()?;
            let (host, port) = node.rsplit_once(':')?;
            Some(Some((host.to_owned(), port.parse().ok()?)))
        };
        Ok(nodes.into_iter().filter_map(address).collect())
    }

    async fn scan(
        &self,
        node: Option<&(String, u16)>,
        cursor: u64,
        prefix: &[u8],
    ) -> Result<(u64, Vec<Vec<u8>>), RedisFailure> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(pattern(prefix));
        command.arg("COUNT").arg(SCANNED);
        let Some((host, port)) = node else {
            return self.ask(&command).await;
        };
        let (open, number) = self.connection().await?;
        let Open::Cluster(mut cluster) = open else {
            return Ok((0, Vec::new()));
        };
        let there = SingleNodeRoutingInfo::ByAddress {
            host: host.clone(),
            port: *port,
        };
        let routing = RoutingInfo::SingleNode(there);
        let answer = cluster.route_command(command, routing).await;
        let answer = self.answered(answer, number).await?;
        redis::from_redis_value(answer).map_err(|error| self.refused(&error.to_string()))
    }

    async fn answered<T>(
        &self,
        answer: Result<T, RedisError>,
        number: u64,
    ) -> Result<T, RedisFailure> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(&error, number).await),
        }
    }

    /// That which is open, or a new one: opened by one call, while the others wait for it.
    async fn connection(&self) -> Result<(Open, u64), RedisFailure> {
        let mut link = self.0.link.lock().await;
        if let Some(open) = &link.open {
            return Ok((open.clone(), link.number));
        }
        if let Some((at, failure)) = &link.failed
            && at.elapsed() < UNTIL_NEXT_TRY
        {
            return Err(failure.clone());
        }
        let limit = self.0.settings.dial_timeout;
        let opened = timeout(limit, open(&self.0.settings)).await;
        let opened = match opened {
            Ok(Ok(open)) => Ok(open),
            Ok(Err(OpenFailure::Redis(error))) => Err(self.named(&error)),
            Ok(Err(OpenFailure::File(wrong))) => Err(RedisFailure::Unusable(wrong)),
            Err(_) => Err(self.away(&format!("no connection within {limit:?}"))),
        };
        match opened {
            Ok(open) => {
                link.number += 1;
                link.failed = None;
                link.open = Some(open.clone());
                Ok((open, link.number))
            }
            Err(failure) => {
                link.failed = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }

    /// Gives up the connection that a failure says is of no use any more.
    async fn failed(&self, error: &RedisError, number: u64) -> RedisFailure {
        if is_lost(error) {
            let mut link = self.0.link.lock().await;
            if link.number == number {
                link.open = None;
            }
        }
        self.named(error)
    }

    fn named(&self, error: &RedisError) -> RedisFailure {
        if error.is_timeout() {
            return self.away(&format!(
                "no answer within {:?}",
                self.0.settings.read_timeout
            ));
        }
        let why = error.to_string();
        if error.is_io_error() || error.is_connection_dropped() {
            self.away(&why)
        } else {
            self.refused(&why)
        }
    }

    fn away(&self, why: &str) -> RedisFailure {
        RedisFailure::Away {
            title: self.0.title.clone(),
            why: why.to_owned(),
        }
    }

    fn refused(&self, why: &str) -> RedisFailure {
        RedisFailure::Refused {
            title: self.0.title.clone(),
            why: why.to_owned(),
        }
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.title)
    }
}

/// A master that became a replica refuses to write: who is asked anew says who is master now.
fn is_lost(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || error.code() == Some("READONLY")
}

/// What `MATCH` takes for this prefix and nothing else.
fn pattern(prefix: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for byte in prefix {
        if b"*?[]\\^-".contains(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern.push(b'*');
    pattern
}

enum OpenFailure {
    Redis(RedisError),
    File(String),
}

impl From<RedisError> for OpenFailure {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

async fn open(settings: &RedisSettings) -> Result<Open, OpenFailure> {
    let certificates = certificates(settings)?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(settings.dial_timeout))
        .set_response_timeout(Some(settings.read_timeout));
    if let Some(master) = &settings.master_name {
        let mut client = sentinel(settings, master, certificates)?.build()?;
        let open = client.get_async_connection_with_config(&config).await?;
        return Ok(Open::One(open));
    }
    if settings.is_cluster() {
        return cluster(settings, certificates).await;
    }
    let address = settings.addresses.first();
    let address = address.expect("the settings have one, or the start has failed");
    let info = place(address, settings.tls.is_some()).into_connection_info()?;
    let info = info.set_redis_settings(who(settings));
    let client = match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates)?,
        None => Client::open(info)?,
    };
    let open = client.get_multiplexed_async_connection_with_config(&config);
    Ok(Open::One(open.await?))
}

async fn cluster(
    settings: &RedisSettings,
    certificates: Option<TlsCertificates>,
) -> Result<Open, OpenFailure> {
    let nodes = settings.addresses.iter();
    let nodes = nodes.map(|address| place(address, settings.tls.is_some()));
    let mut builder = ClusterClient::builder(nodes)
        .retries(RETRIES)
        .connection_timeout(settings.dial_timeout)
        .response_timeout(settings.read_timeout)
        .overall_response_timeout(Some(settings.read_timeout));
    if let Some(user) = &settings.user {
        builder = builder.username(user);
    }
    if let Some(password) = &settings.password {
        builder = builder.password(password);
    }
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    Ok(Open::Cluster(
        builder.build()?.get_async_connection().await?,
    ))
}

fn sentinel(
    settings: &RedisSettings,
    master: &str,
    certificates: Option<TlsCertificates>,
) -> Result<SentinelClientBuilder, RedisError> {
    let sentinels = settings.addresses.iter();
    let sentinels = sentinels.map(|address| place(address, settings.tls.is_some()));
    let mut builder = SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?
        .set_client_to_redis_db(i64::from(settings.database));
    if let Some(user) = &settings.user {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = &settings.password {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(user) = &settings.sentinel_user {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = &settings.sentinel_password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    if let Some(certificates) = certificates {
        builder = builder
            .set_client_to_redis_tls_mode(TlsMode::Secure)
            .set_client_to_redis_certificates(certificates.clone())
            .set_client_to_sentinel_tls_mode(TlsMode::Secure)
            .set_client_to_sentinel_certificates(certificates);
    }
    Ok(builder)
}

fn place(address: &RedisAddress, is_encrypted: bool) -> ConnectionAddr {
    match address {
        RedisAddress::Unix(path) => ConnectionAddr::Unix(path.clone()),
        RedisAddress::Tcp(host, port) if is_encrypted => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
        RedisAddress::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
    }
}

fn who(settings: &RedisSettings) -> RedisConnectionInfo {
    let mut who = RedisConnectionInfo::default().set_db(i64::from(settings.database));
    if let Some(user) = &settings.user {
        who = who.set_username(user);
    }
    if let Some(password) = &settings.password {
        who = who.set_password(password);
    }
    who
}

fn certificates(settings: &RedisSettings) -> Result<Option<TlsCertificates>, OpenFailure> {
    let read = |path: &std::path::Path| {
        read_linked(path, LONGEST_CERTIFICATE).map_err(|error| {
            OpenFailure::File(format!("`{}` can't be read: {error}", path.display()))
        })
    };
    let Some(tls) = &settings.tls else {
        return Ok(None);
    };
    let root_cert = tls.root_ca.as_deref().map(read).transpose()?;
    let client_tls = match &tls.identity {
        Some((cert, key)) => Some(ClientTlsConfig {
            client_cert: read(cert)?,
            client_key: read(key)?,
        }),
        None => None,
    };
    Ok(Some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}

impl ConnectionLike for Open {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> redis::RedisFuture<'a, Value> {
        match self {
            Self::One(it) => it.req_packed_command(command),
            Self::Cluster(it) => it.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> redis::RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(it) => it.req_packed_commands(commands, offset, count),
            Self::Cluster(it) => it.req_packed_commands(commands, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(it) => it.get_db(),
            Self::Cluster(it) => it.get_db(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_matches_nothing_else() {
        assert_eq!(pattern(b"a*[b]\\?"), b"a\\*\\[b\\]\\\\\\?*");
    }
}
