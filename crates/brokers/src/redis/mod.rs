//! `redis`: jobs in streams of Redis.

#[cfg(feature = "redis")]
mod driver;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_config::Table;

use self::settings::{RedisPipeline, RedisServers};
#[cfg(feature = "redis")]
use crate::kind::Opener;
use crate::kind::{BrokerPlace, Kind, Servers, SharedKey};

pub(crate) const KIND: Kind = Kind {
    name: "redis",
    is_built: cfg!(feature = "redis"),
    shared_key: Some(SharedKey::Queue),
    servers: |t| Arc::new(settings::server(t)),
};

impl Servers for RedisServers {
    fn read(
        &self,
        t: &mut Table<'_>,
        pipeline: &str,
        queue: Option<String>,
    ) -> Arc<dyn BrokerPlace> {
        Arc::new(settings::read(t, pipeline, queue))
    }

    fn declared(
        &self,
        map: &BTreeMap<String, String>,
        pipeline: &str,
    ) -> Result<Arc<dyn BrokerPlace>, String> {
        Ok(Arc::new(RedisPipeline::declared(map, pipeline)?))
    }
}

impl BrokerPlace for RedisPipeline {
    #[cfg(feature = "redis")]
    fn opener(&self) -> Option<Opener<'_>> {
        Some(Opener::plain(|pipeline, wake| {
            driver::open(pipeline, self, wake)
        }))
    }
}
