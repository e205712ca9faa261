//! `redis`: which Redis a pipeline is in, and where there. No section stands beside `jobs`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use pronghorn_config::Table;
use pronghorn_redis::RedisSettings;

use crate::kind::text_of;

const REDIS: &str = "redis://127.0.0.1:6379";

/// Redis answers in less than a millisecond, but a push may have many megabytes.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// A server may be silent for so long before others have its jobs. It says every few seconds that
/// it lives, so this is only for one that was killed or is cut off.
const CLAIM_AFTER: Duration = Duration::from_secs(60);
const CLAIM_AFTER_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_hours(24);

/// Each pipeline says itself which Redis it is in.
#[derive(Debug)]
pub(super) struct RedisServers;

/// The Redis that a pipeline is in, and its place there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisPipeline {
    pub(crate) redis: RedisSettings,
    pub(crate) queue: String,
    pub(crate) claim_after: Duration,
}

pub(super) const fn server(_: &mut Table<'_>) -> RedisServers {
    RedisServers
}

/// The keys of a pipeline's `config`.
pub(super) fn read(t: &mut Table<'_>, pipeline: &str, queue: Option<String>) -> RedisPipeline {
    RedisPipeline {
        redis: RedisSettings::read_or_url(t, READ_TIMEOUT),
        queue: queue.unwrap_or_else(|| pipeline.to_owned()),
        claim_after: t
            .key(
                "claim_after",
                "How long a server may be silent before other servers get its jobs.",
            )
            .ours()
            .range(CLAIM_AFTER_RANGE)
            .default(CLAIM_AFTER),
    }
}

impl RedisPipeline {
    /// Reads a pipeline that PHP declares: it is in one Redis.
    pub(super) fn declared(map: &BTreeMap<String, String>, pipeline: &str) -> Result<Self, String> {
        for key in ["addrs", "master_name"] {
            if text_of(map, key).is_some() {
                return Err(format!(
                    "`{key}` is of pipelines in the configuration; declare one Redis by its URL in \
                     `addr`, or write the pipeline there"
                ));
            }
        }
        let url = text_of(map, "addr").unwrap_or_else(|| REDIS.to_owned());
        let redis = RedisSettings::from_url(&url);
        let redis = redis.map_err(|why| format!("`addr` is no address of a Redis: {why}"))?;
        Ok(Self {
            redis: RedisSettings {
                read_timeout: READ_TIMEOUT,
                ..redis
            },
            queue: text_of(map, "queue").unwrap_or_else(|| pipeline.to_owned()),
            claim_after: CLAIM_AFTER,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(pairs: &[(&str, &str)]) -> Result<RedisPipeline, String> {
        let pairs = pairs.iter();
        let map = pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        RedisPipeline::declared(&map.collect(), "p")
    }

    #[test]
    fn php_declares_a_pipeline_in_one_redis() {
        let near = declared(&[]).unwrap();
        assert_eq!(near.redis.title(), "the Redis at 127.0.0.1:6379");
        assert_eq!(near.queue, "p");
        let far = declared(&[("addr", "rediss://:secret@h:1/2"), ("queue", "q")]).unwrap();
        assert_eq!((far.redis.database, &*far.queue), (2, "q"));
        assert!(far.redis.tls.is_some());
        let wrong = declared(&[("addr", "h:1")]).unwrap_err();
        assert!(wrong.contains("`addr` is no address of a Redis"), "{wrong}");
        let several = declared(&[("addrs", "[\"h:1\",\"h:2\"]")]).unwrap_err();
        assert!(
            several.contains("`addrs` is of pipelines in the configuration"),
            "{several}"
        );
    }
}
