//! `redis`: entries are Redis' own, under their keys: RoadRunner and other programs find them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::PeerHealth;
use pronghorn_redis::{Cmd, FromRedisValue, RedisFailure, RedisSettings, Value, cmd};

use crate::driver::{
    Answer, Claim, Driver, DriverError, Entry, Item, LONGEST_ANSWER, Opened, SessionDriver,
};
use crate::moment::Moment;

/// A reply of Redis has room for the longest answer of ours, and for what is around its values.
pub(crate) const LONGEST_REPLY: usize = LONGEST_ANSWER + (1 << 20);

/// What Redis answers to `PTTL` for an entry without an end.
const NO_END: i64 = -1;

const CLAIM_MS: u64 = 1000 * Claim::LASTS.as_secs();

// In each script the first key is that of the claim, the second one that of the session.
/// Where nobody has it, or this server has.
const CLAIM: &str = "local of = redis.call('GET', KEYS[1]) \
    if of and of ~= ARGV[1] then return false end \
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) ";
const OPEN: &str = "local value = redis.call('GETRANGE', KEYS[2], 0, ARGV[3]) \
    if value == '' then value = redis.call('GET', KEYS[2]) end \
    return {value, redis.call('PTTL', KEYS[2])}";
const WRITE: &str = "redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) ";
const CLOSE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end \
    return 1";

/// One storage in Redis.
#[derive(Debug)]
pub(crate) struct Redis {
    redis: pronghorn_redis::Redis,
    prefix: String,
    /// As the last answer told.
    health: PeerHealth,
}

impl Redis {
    pub(crate) fn new(settings: RedisSettings, prefix: String) -> Self {
        Self {
            redis: pronghorn_redis::Redis::new(settings, LONGEST_REPLY),
            prefix,
            health: PeerHealth::supposed(),
        }
    }

    fn named(&self, key: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), key].concat()
    }

    fn command(&self, name: &str, key: &[u8]) -> Cmd {
        let mut command = cmd(name);
        command.arg(self.named(key));
        command
    }

    fn script(&self, script: &[&str], claim: &Claim) -> Cmd {
        let data = self.named(&claim.data_key());
        let mut command = cmd("EVAL");
        command.arg(script.concat()).arg(2);
        command.arg(self.lock_beside(&data, claim)).arg(data);
        command.arg(&claim.server[..]);
        command
    }

    /// The key of a claim: in a cluster in the slot of the session's own, which is that of what
    /// stands in the first braces. A cluster refuses both with half a pair of braces in the prefix.
    fn lock_beside(&self, data: &[u8], claim: &Claim) -> Vec<u8> {
        let lock = self.named(&claim.lock_key());
        if self.prefix.contains('{') {
            return lock;
        }
        [&lock[..], b"{", data, b"}"].concat()
    }

    async fn each<T: FromRedisValue>(&self, commands: Vec<Cmd>) -> Result<Vec<T>, DriverError> {
        self.each_within(commands, LONGEST_REPLY).await
    }

    async fn each_within<T: FromRedisValue>(
        &self,
        commands: Vec<Cmd>,
        most: usize,
    ) -> Result<Vec<T>, DriverError> {
        let answers = self.redis.ask_each(commands, most).await;
        self.told(answers)
    }

    fn told<T>(&self, answer: Result<T, RedisFailure>) -> Result<T, DriverError> {
        // What it refuses says nothing of the next command: it does answer.
        let health = match &answer {
            Err(RedisFailure::Refused { .. } | RedisFailure::LongAnswers { .. }) | Ok(_) => Ok(()),
            Err(failure) => Err(failure.to_string()),
        };
        _ = self.health.set(health); // the watch tells the log
        answer.map_err(|failure| match failure {
            RedisFailure::LongAnswers { most, .. } => DriverError::LongAnswer { most },
            other => DriverError::Unavailable(other.to_string()),
        })
    }

    fn set_one(&self, item: &Item, now: Moment) -> Cmd {
        let Some(end) = item.entry.ends else {
            let mut command = self.command("SET", &item.key);
            command.arg(&item.entry.value[..]);
            return command;
        };
        match milliseconds(end, now) {
            0 => self.command("DEL", &item.key),
            left => {
                let mut command = self.command("SET", &item.key);
                command.arg(&item.entry.value[..]).arg("PX").arg(left);
                command
            }
        }
    }

    fn expire_one(&self, key: &[u8], end: Moment, now: Moment) -> Cmd {
        match milliseconds(end, now) {
            0 => self.command("DEL", key),
            left => {
                let mut command = self.command("PEXPIRE", key);
                command.arg(left);
                command
            }
        }
    }
}

/// How long it is until an end; as much as Redis takes at most.
fn milliseconds(end: Moment, now: Moment) -> i64 {
    const MOST: i64 = i64::MAX / 4;
    i64::try_from(end.since(now).as_millis()).map_or(MOST, |left| left.min(MOST))
}

/// Reads an answer to `PTTL` for a key that is there.
fn end_after(left: i64, now: Moment) -> Option<Moment> {
    let left = u64::try_from(left).ok()?;
    Some(now.after(Duration::from_millis(left)))
}

impl Driver for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    /// `GET` brings all of a value before it is known how long it is. `GETRANGE` does not, but what
    /// is not there is empty for it: then `GET` tells.
    fn get(&self, keys: Vec<Bytes>, _: Moment, most: usize) -> Answer<'_, Vec<Option<Bytes>>> {
        Box::pin(async move {
            let start = |key: &Bytes| {
                let mut command = self.command("GETRANGE", key);
                command.arg(0).arg(most); // a byte more than may be there
                command
            };
            let commands = keys.iter().map(start).collect();
            let values: Vec<Vec<u8>> = self.each_within(commands, most).await?;
            let empty = keys.iter().zip(&values).filter(|(_, it)| it.is_empty());
            let commands = empty.map(|(key, _)| self.command("GET", key)).collect();
            let told: Vec<Option<Vec<u8>>> = self.each_within(commands, most).await?;
            let mut told = told.into_iter();
            let found = values.into_iter().map(|value| {
                if value.is_empty() {
                    told.next().flatten()
                } else {
                    Some(value)
                }
            });
            Ok(found.map(|it| it.map(Bytes::from)).collect())
        })
    }

    fn has(&self, keys: Vec<Bytes>, _: Moment) -> Answer<'_, Vec<bool>> {
        Box::pin(async move {
            let commands = keys.iter().map(|key| self.command("EXISTS", key));
            self.each(commands.collect()).await
        })
    }

    fn ends(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<Option<Option<Moment>>>> {
        Box::pin(async move {
            let commands = keys.iter().map(|key| self.command("PTTL", key)).collect();
            let left: Vec<i64> = self.each(commands).await?;
            let end = |left: i64| (left >= NO_END).then(|| end_after(left, now));
            Ok(left.into_iter().map(end).collect())
        })
    }

    fn set(&self, items: Vec<Item>, now: Moment) -> Answer<'_, ()> {
        Box::pin(async move {
            let commands = items.iter().map(|item| self.set_one(item, now)).collect();
            self.each::<Value>(commands).await?;
            Ok(())
        })
    }

    fn expire(&self, ends: Vec<(Bytes, Moment)>, now: Moment) -> Answer<'_, ()> {
        Box::pin(async move {
            let commands = ends
                .iter()
                .map(|(key, end)| self.expire_one(key, *end, now));
            self.each::<i64>(commands.collect()).await?;
            Ok(())
        })
    }

    fn delete(&self, keys: Vec<Bytes>) -> Answer<'_, ()> {
        Box::pin(async move {
            let commands = keys.iter().map(|key| self.command("DEL", key)).collect();
            self.each::<i64>(commands).await?;
            Ok(())
        })
    }

    fn clear(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let cleared = self.redis.clear(self.prefix.as_bytes()).await;
            self.told(cleared)
        })
    }

    fn sessions(self: Arc<Self>) -> Option<Arc<dyn SessionDriver>> {
        Some(self)
    }

    fn probe(&self) -> Option<Answer<'_, ()>> {
        Some(Box::pin(async move {
            let answer = self.redis.ping().await;
            self.told(answer)
        }))
    }

    fn health(&self) -> Result<(), String> {
        self.health.check()
    }
}

impl SessionDriver for Redis {
    fn open(&self, claim: Claim, now: Moment, most: usize) -> Answer<'_, Opened> {
        Box::pin(async move {
            let mut command = self.script(&[CLAIM, OPEN], &claim);
            command.arg(CLAIM_MS).arg(most);
            let answer = self.redis.ask(&command).await;
            let found: Option<(Option<Vec<u8>>, i64)> = self.told(answer)?;
            let Some((value, left)) = found else {
                return Ok(Opened::Elsewhere);
            };
            let ends = end_after(left, now);
            let found = value.map(|value| Entry {
                value: value.into(),
                ends,
            });
            Opened::Here(found).within(most)
        })
    }

    fn write_and_close(&self, claim: Claim, entry: Entry, now: Moment) -> Answer<'_, ()> {
        Box::pin(async move {
            let left = entry
                .ends
                .map_or(i64::MAX / 4, |end| milliseconds(end, now));
            let mut command = self.script(&[WRITE, CLOSE], &claim);
            command.arg(&entry.value[..]).arg(left.max(1));
            let done: Result<i64, _> = self.redis.ask(&command).await;
            self.told(done).map(drop)
        })
    }

    fn close(&self, claim: Claim) -> Answer<'_, ()> {
        Box::pin(async move {
            let command = self.script(&[CLOSE], &claim);
            let gone: Result<i64, _> = self.redis.ask(&command).await;
            self.told(gone).map(drop)
        })
    }

    fn renew(&self, claim: Claim) -> Answer<'_, bool> {
        Box::pin(async move {
            let mut command = self.script(&[CLAIM, "return 1"], &claim);
            command.arg(CLAIM_MS);
            let claimed: Result<Option<i64>, _> = self.redis.ask(&command).await;
            Ok(self.told(claimed)?.is_some())
        })
    }
}
