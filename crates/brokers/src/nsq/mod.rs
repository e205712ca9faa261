//! `nsq`: jobs in channels of nsqd.

#[cfg(feature = "nsq")]
mod driver;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_config::Table;

use self::settings::{NsqPipeline, NsqServer};
#[cfg(feature = "nsq")]
use crate::kind::Opener;
use crate::kind::{BrokerPlace, Kind, Servers, SharedKey};

pub(crate) const KIND: Kind = Kind {
    name: "nsq",
    is_built: cfg!(feature = "nsq"),
    shared_key: Some(SharedKey::Topic),
    servers: |t| Arc::new(settings::server(t)),
};

impl Servers for NsqServer {
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
        pipeline: &str,
    ) -> Result<Arc<dyn BrokerPlace>, String> {
        Ok(Arc::new(NsqPipeline::declared(map, self, pipeline)?))
    }
}

impl BrokerPlace for NsqPipeline {
    #[cfg(feature = "nsq")]
    fn opener(&self) -> Option<Opener<'_>> {
        Some(Opener::plain(|pipeline, wake| {
            driver::open(pipeline, self, wake)
        }))
    }
}
