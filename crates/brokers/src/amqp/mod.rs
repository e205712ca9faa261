//! `amqp`: jobs in queues of RabbitMQ, or of what speaks as it does.

#[cfg(feature = "amqp")]
mod driver;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_config::Table;

use self::settings::{AmqpPipeline, AmqpServers};
#[cfg(feature = "amqp")]
use crate::kind::Opener;
use crate::kind::{BrokerPlace, Kind, Servers, SharedKey};

pub(crate) const KIND: Kind = Kind {
    name: "amqp",
    is_built: cfg!(feature = "amqp"),
    shared_key: Some(SharedKey::Queue),
    servers: |t| Arc::new(settings::server(t)),
};

impl Servers for AmqpServers {
    fn reads_shared_key(&self, t: &mut Table<'_>) -> bool {
        settings::has_queue_section(t)
    }

    fn read(
        &self,
        t: &mut Table<'_>,
        pipeline: &str,
        queue: Option<String>,
    ) -> Arc<dyn BrokerPlace> {
        Arc::new(settings::read(t, self, pipeline, queue))
    }

    fn declared(
        &self,
        map: &BTreeMap<String, String>,
        pipeline: &str,
    ) -> Result<Arc<dyn BrokerPlace>, String> {
        Ok(Arc::new(AmqpPipeline::declared(map, pipeline, self)?))
    }
}

impl BrokerPlace for AmqpPipeline {
    #[cfg(feature = "amqp")]
    fn opener(&self) -> Option<Opener<'_>> {
        Some(Opener::plain(|pipeline, wake| {
            driver::open(pipeline, self, wake)
        }))
    }
}
