//! `redis`: jobs in streams of Redis.

mod driver;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_config::Table;

use self::settings::{RedisPipeline, RedisServers};
use crate::kind::{BrokerPlace, Kind, Opener, Servers, SharedKey};

pub(crate) const KIND: Kind = Kind {
    name: "redis",
    is_built: true,
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
    fn opener(&self) -> Option<Opener<'_>> {
        Some(Opener::plain(|pipeline, wake| {
            driver::open(pipeline, self, wake)
        }))
    }
}
