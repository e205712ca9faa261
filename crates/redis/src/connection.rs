//! Commands and their answers, whatever kind of Redis it is.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::{StreamExt, TryStreamExt, stream};
use redis::{Cmd, FromRedisValue, Value};
use tokio::time::timeout;

use crate::cluster::Cluster;
use crate::failure::RedisFailure;
use crate::node::{Dialer, Node, NodeAddress};
use crate::settings::RedisSettings;

/// How many commands of one call are on their way at a time.
const AT_A_TIME: usize = 256;

/// How many keys `SCAN` looks at before it answers.
const SCANNED: usize = 1000;

/// A Redis. Clones are the same one.
#[derive(Clone)]
pub struct Redis(Arc<SharedRedis>);

struct SharedRedis {
    dialer: Arc<Dialer>,
    kind: Kind,
}

enum Kind {
    One(Arc<Node>),
    Cluster(Cluster),
}

impl Redis {
    /// Connects to nobody yet. One reply takes at most `longest` bytes; a Redis that sends more is
    /// given up, and asked anew over another connection.
    pub fn new(settings: RedisSettings, longest: usize) -> Self {
        let dialer = Arc::new(Dialer {
            title: settings.title(),
            settings,
            longest,
        });
        let one = |place| Kind::One(Arc::new(Node::new(dialer.clone(), place)));
        let settings = &dialer.settings;
        let kind = match (&settings.master_name, settings.addresses.first()) {
            (Some(name), _) => one(NodeAddress::Master(name.clone())),
            (None, Some(address)) if !settings.is_cluster() => {
                one(NodeAddress::At(address.clone()))
            }
            _ => Kind::Cluster(Cluster::new(dialer.clone())),
        };
        Self(Arc::new(SharedRedis { dialer, kind }))
    }

    /// # Errors
    ///
    /// When Redis is away, or refuses.
    pub async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, RedisFailure> {
        let answer = self.answer(command).await?;
        self.read(answer)
    }

    /// Asks whether it answers: twice, because a Redis with a `timeout` closes idle connections and
    /// is not away. While it is, the second answer comes at once.
    ///
    /// # Errors
    ///
    /// When Redis is away, or refuses.
    pub async fn ping(&self) -> Result<(), RedisFailure> {
        let ping = redis::cmd("PING");
        let answer = match self.answer(&ping).await {
            Err(RedisFailure::Away { .. }) => self.answer(&ping).await,
            answer => answer,
        };
        answer.map(drop)
    }

    /// The answers, in the order of their commands, of which several are on their way at a time.
    /// Together they may have `most` bytes.
    ///
    /// # Errors
    ///
    /// The first failure.
    pub async fn ask_each<T: FromRedisValue>(
        &self,
        commands: Vec<Cmd>,
        most: usize,
    ) -> Result<Vec<T>, RedisFailure> {
        let left = &AtomicUsize::new(most);
        // Each is counted when it comes: in a cluster that may be long before its turn.
        let answer = async |command: Cmd| {
            let answer = self.answer(&command).await?;
            let less = |left: usize| left.checked_sub(length(&answer));
            if left.fetch_update(Relaxed, Relaxed, less).is_err() {
                let title = self.0.dialer.title.clone();
                return Err(RedisFailure::LongAnswers { title, most });
            }
            self.read(answer)
        };
        stream::iter(commands.into_iter().map(answer))
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
        for node in self.masters().await? {
            if prefix.is_empty() {
                self.answer_of(&node, &redis::cmd("FLUSHDB")).await?;
                continue;
            }
            let mut cursor = 0;
            loop {
                let (next, keys) = self.scan(&node, cursor, prefix).await?;
                let unlink = |key: Vec<u8>| {
                    let mut command = redis::cmd("UNLINK");
                    command.arg(key);
                    command
                };
                let gone: Vec<u64> = self
                    .ask_each(
                        keys.into_iter().map(unlink).collect(),
                        self.0.dialer.longest,
                    )
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

    async fn masters(&self) -> Result<Vec<Arc<Node>>, RedisFailure> {
        match &self.0.kind {
            Kind::One(node) => Ok(vec![node.clone()]),
            Kind::Cluster(cluster) => cluster.masters().await,
        }
    }

    async fn scan(
        &self,
        node: &Node,
        cursor: u64,
        prefix: &[u8],
    ) -> Result<(u64, Vec<Vec<u8>>), RedisFailure> {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(pattern(prefix));
        command.arg("COUNT").arg(SCANNED);
        let answer = self.answer_of(node, &command).await?;
        self.read(answer)
    }

    async fn answer(&self, command: &Cmd) -> Result<Value, RedisFailure> {
        match &self.0.kind {
            Kind::One(node) => self.answer_of(node, command).await,
            Kind::Cluster(cluster) => {
                let settings = &self.0.dialer.settings;
                let limit = settings.dial_timeout + settings.read_timeout;
                let answer = timeout(limit, cluster.ask(command)).await;
                let late = |_| self.0.dialer.away(&format!("no answer within {limit:?}"));
                answer.map_err(late)?
            }
        }
    }

    async fn answer_of(&self, node: &Node, command: &Cmd) -> Result<Value, RedisFailure> {
        let mut link = node.link().await?;
        match link.ask(command).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                node.failed(&error, &link).await;
                Err(self.0.dialer.failure(&error))
            }
        }
    }

    fn read<T: FromRedisValue>(&self, answer: Value) -> Result<T, RedisFailure> {
        let read = redis::from_redis_value(answer);
        read.map_err(|error| self.0.dialer.refused(&error.to_string()))
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.dialer.title)
    }
}

/// The bytes of an answer. It is no deeper than a reply may be.
fn length(answer: &Value) -> usize {
    match answer {
        Value::BulkString(bytes) => bytes.len(),
        Value::SimpleString(text) => text.len(),
        Value::Array(values) => values.iter().map(length).sum(),
        _ => 0,
    }
}

/// The pattern that `MATCH` takes for this prefix and nothing else.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_matches_nothing_else() {
        assert_eq!(pattern(b"a*[b]\\?"), b"a\\*\\[b\\]\\\\\\?*");
    }
}
