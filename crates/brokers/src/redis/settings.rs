//! `redis`: which Redis a pipeline is in, and where there. No section stands beside `jobs`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use pronghorn_config::Table;

use crate::address::{BrokerAddress, address};
use crate::kind::text_of;
use crate::tls::{self, BrokerTls};

const REDIS: &str = "redis://127.0.0.1:6379";

/// So long a server may be silent before others have its jobs. It says every few seconds that it
/// lives, so this is only for one that was killed or is cut off.
const CLAIM_AFTER: Duration = Duration::from_secs(60);
const CLAIM_AFTER_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_hours(24);

/// Each pipeline says itself which Redis it is in.
#[derive(Debug)]
pub(super) struct RedisServers;

/// Which Redis a pipeline is in, and where there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedisPipeline {
    pub(crate) address: BrokerAddress,
    pub(crate) tls: BrokerTls,
    pub(crate) queue: String,
    pub(crate) claim_after: Duration,
}

pub(super) const fn server(_: &mut Table<'_>) -> RedisServers {
    RedisServers
}

/// The keys of a pipeline's `config`.
pub(super) fn read(t: &mut Table<'_>, pipeline: &str, queue: Option<String>) -> RedisPipeline {
    let schemes = &["redis", "rediss", "unix", "redis+unix"];
    RedisPipeline {
        address: address(t, REDIS, schemes),
        tls: tls::read(t),
        queue: queue.unwrap_or_else(|| pipeline.to_owned()),
        claim_after: t
            .key(
                "claim_after",
                "How long a server may be silent before its jobs go to the others.",
            )
            .ours()
            .range(CLAIM_AFTER_RANGE)
            .default(CLAIM_AFTER),
    }
}

impl RedisPipeline {
    /// As PHP declares it.
    pub(super) fn declared(map: &BTreeMap<String, String>, pipeline: &str) -> Self {
        let address = text_of(map, "addr").unwrap_or_else(|| REDIS.to_owned());
        Self {
            address: BrokerAddress::new(address),
            tls: BrokerTls::default(),
            queue: text_of(map, "queue").unwrap_or_else(|| pipeline.to_owned()),
            claim_after: CLAIM_AFTER,
        }
    }
}
