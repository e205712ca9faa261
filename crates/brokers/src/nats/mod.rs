//! `nats`: jobs in streams of JetStream.

#[cfg(feature = "nats")]
mod driver;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_config::Table;

use self::settings::{NatsPipeline, NatsServer};
#[cfg(feature = "nats")]
use crate::kind::Opener;
use crate::kind::{BrokerPlace, Kind, Servers};

pub(crate) const KIND: Kind = Kind {
    name: "nats",
    is_built: cfg!(feature = "nats"),
    shared_key: None,
    servers: |t| Arc::new(settings::server(t)),
};

impl Servers for NatsServer {
    fn read(&self, t: &mut Table<'_>, _: &str, _: Option<String>) -> Arc<dyn BrokerPlace> {
        Arc::new(settings::read(t, self))
    }

    fn declared(
        &self,
        map: &BTreeMap<String, String>,
        _: &str,
    ) -> Result<Arc<dyn BrokerPlace>, String> {
        Ok(Arc::new(NatsPipeline::declared(map, self)?))
    }
}

impl BrokerPlace for NatsPipeline {
    #[cfg(feature = "nats")]
    fn opener(&self) -> Option<Opener<'_>> {
        Some(Opener::plain(|pipeline, wake| {
            driver::open(pipeline, self, wake)
        }))
    }
}
