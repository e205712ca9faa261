//! `sqs`: jobs in queues of AWS.

#[cfg(feature = "sqs")]
mod driver;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_config::Table;

use self::settings::{SqsPipeline, SqsServer};
#[cfg(feature = "sqs")]
use crate::kind::Opener;
use crate::kind::{BrokerPlace, Kind, Servers, SharedKey};

pub(crate) const KIND: Kind = Kind {
    name: "sqs",
    is_built: cfg!(feature = "sqs"),
    shared_key: Some(SharedKey::Queue),
    servers: |t| Arc::new(settings::server(t)),
};

impl Servers for SqsServer {
    fn read(&self, t: &mut Table<'_>, _: &str, queue: Option<String>) -> Arc<dyn BrokerPlace> {
        Arc::new(settings::read(t, self, queue))
    }

    fn declared(
        &self,
        map: &BTreeMap<String, String>,
        _: &str,
    ) -> Result<Arc<dyn BrokerPlace>, String> {
        Ok(Arc::new(SqsPipeline::declared(map, self)?))
    }
}

impl BrokerPlace for SqsPipeline {
    #[cfg(feature = "sqs")]
    fn opener(&self) -> Option<Opener<'_>> {
        Some(Opener::with_later(|pipeline, wake, later| {
            driver::open(pipeline, self, wake, later)
        }))
    }
}
