//! `kafka`: jobs in topics of Kafka.

#[cfg(feature = "kafka")]
mod driver;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_config::Table;

use self::settings::{KafkaPipeline, KafkaServer};
#[cfg(feature = "kafka")]
use crate::kind::Opener;
use crate::kind::{BrokerPlace, Kind, Servers};

pub(crate) const KIND: Kind = Kind {
    name: "kafka",
    is_built: cfg!(feature = "kafka"),
    shared_key: None,
    servers: |t| Arc::new(settings::server(t)),
};

impl Servers for KafkaServer {
    fn read(&self, t: &mut Table<'_>, pipeline: &str, _: Option<String>) -> Arc<dyn BrokerPlace> {
        Arc::new(settings::read(t, self, pipeline))
    }

    fn declared(
        &self,
        map: &BTreeMap<String, String>,
        pipeline: &str,
    ) -> Result<Arc<dyn BrokerPlace>, String> {
        Ok(Arc::new(KafkaPipeline::declared(map, self, pipeline)?))
    }
}

impl BrokerPlace for KafkaPipeline {
    #[cfg(feature = "kafka")]
    fn opener(&self) -> Option<Opener<'_>> {
        Some(Opener::with_later(|pipeline, wake, later| {
            driver::open(pipeline, self, wake, later)
        }))
    }
}
