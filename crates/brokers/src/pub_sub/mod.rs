//! `google_pub_sub`: jobs in subscriptions of Google Cloud.

#[cfg(feature = "google_pub_sub")]
mod driver;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_config::Table;

use self::settings::{PubSubPipeline, PubSubServer};
#[cfg(feature = "google_pub_sub")]
use crate::kind::Opener;
use crate::kind::{BrokerPlace, Kind, Servers, SharedKey};

pub(crate) const KIND: Kind = Kind {
    name: "google_pub_sub",
    is_built: cfg!(feature = "google_pub_sub"),
    shared_key: Some(SharedKey::Topic),
    servers: |t| Arc::new(settings::server(t)),
};

impl Servers for PubSubServer {
    fn read(
        &self,
        t: &mut Table<'_>,
        pipeline: &str,
        topic: Option<String>,
    ) -> Arc<dyn BrokerPlace> {
        Arc::new(settings::read(t, self, pipeline, topic))
    }

    fn declared(
        &self,
        map: &BTreeMap<String, String>,
        _: &str,
    ) -> Result<Arc<dyn BrokerPlace>, String> {
        Ok(Arc::new(PubSubPipeline::declared(map, self)?))
    }
}

impl BrokerPlace for PubSubPipeline {
    #[cfg(feature = "google_pub_sub")]
    fn opener(&self) -> Option<Opener<'_>> {
        Some(Opener::with_later(|pipeline, wake, later| {
            driver::open(pipeline, self, wake, later)
        }))
    }
}
