//! `redis`: entries are Redis' own, under their keys: RoadRunner and other programs find them.

use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::PeerHealth;
use pronghorn_redis::{Cmd, FromRedisValue, RedisFailure, RedisSettings, cmd};

use crate::driver::{Answer, Driver, DriverError, Item};
use crate::methods::LONGEST_ANSWER;
use crate::moment::Moment;

/// A reply of Redis has room for the longest answer of ours, and for what is around its values.
pub(crate) const LONGEST_REPLY: usize = LONGEST_ANSWER + (1 << 20);

/// What Redis answers to `PTTL` for an entry without an end.
const NO_END: i64 = -1;

/// Where nobody has it, or this server has.
const CLAIM: &str = "local of = redis.call('GET', KEYS[1]) \
    if of and of ~= ARGV[1] then return 0 end \
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1";
const UNCLAIM: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end \
    return redis.call('DEL', KEYS[1])";

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

    fn script(&self, script: &str, key: &[u8]) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(script).arg(1).arg(self.named(key));
        command
    }

    async fn each<T: FromRedisValue>(&self, commands: Vec<Cmd>) -> Result<Vec<T>, DriverError> {
        let answers = self.redis.ask_each(commands).await;
        self.told(answers)
    }

    fn told<T>(&self, answer: Result<T, RedisFailure>) -> Result<T, DriverError> {
        // What it refuses says nothing of the next command: it does answer.
        let health = match &answer {
            Err(RedisFailure::Refused { .. }) | Ok(_) => Ok(()),
            Err(failure) => Err(failure.to_string()),
        };
        _ = self.health.set(health); // the watch tells the log
        answer.map_err(|failure| DriverError::Unavailable(failure.to_string()))
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

impl Driver for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn get(&self, keys: Vec<Bytes>, _: Moment) -> Answer<'_, Vec<Option<Bytes>>> {
        Box::pin(async move {
            let commands = keys.iter().map(|key| self.command("GET", key)).collect();
            let found: Vec<Option<Vec<u8>>> = self.each(commands).await?;
            Ok(found.into_iter().map(|it| it.map(Bytes::from)).collect())
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
            let end = |left: i64| match u64::try_from(left) {
                Ok(left) => Some(Some(now.after(Duration::from_millis(left)))),
                Err(_) if left == NO_END => Some(None),
                Err(_) => None,
            };
            Ok(left.into_iter().map(end).collect())
        })
    }

    fn set(&self, items: Vec<Item>, now: Moment) -> Answer<'_, ()> {
        Box::pin(async move {
            let commands = items.iter().map(|item| self.set_one(item, now)).collect();
            self.each::<pronghorn_redis::Value>(commands).await?;
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

    fn has_sessions(&self) -> bool {
        true
    }

    fn claim(&self, key: Bytes, server: Bytes, lasts: Duration) -> Option<Answer<'_, bool>> {
        Some(Box::pin(async move {
            let mut command = self.script(CLAIM, &key);
            let lasts = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
            command.arg(&server[..]).arg(lasts);
            let claimed = self.redis.ask(&command).await;
            self.told(claimed)
        }))
    }

    fn unclaim(&self, key: Bytes, server: Bytes) -> Option<Answer<'_, ()>> {
        Some(Box::pin(async move {
            let mut command = self.script(UNCLAIM, &key);
            command.arg(&server[..]);
            let gone: Result<i64, _> = self.redis.ask(&command).await;
            self.told(gone).map(|_| ())
        }))
    }

    fn probe(&self) -> Option<Answer<'_, ()>> {
        Some(Box::pin(async move {
            let answer = self.redis.ask::<pronghorn_redis::Value>(&cmd("PING")).await;
            self.told(answer).map(|_| ())
        }))
    }

    fn health(&self) -> Result<(), String> {
        self.health.check()
    }
}
