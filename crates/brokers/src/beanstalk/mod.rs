//! `beanstalk`: jobs in tubes of beanstalkd.

#[cfg(feature = "beanstalk")]
mod driver;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_config::Table;

use self::settings::{BeanstalkPipeline, BeanstalkServer};
#[cfg(feature = "beanstalk")]
use crate::kind::Opener;
use crate::kind::{BrokerPlace, Kind, Servers};

pub(crate) const KIND: Kind = Kind {
    name: "beanstalk",
    is_built: cfg!(feature = "beanstalk"),
    shared_key: None,
    servers: |t| Arc::new(settings::server(t)),
};

impl Servers for BeanstalkServer {
    fn read(&self, t: &mut Table<'_>, _: &str, _: Option<String>) -> Arc<dyn BrokerPlace> {
        Arc::new(settings::read(t, self))
    }

    fn declared(
        &self,
        map: &BTreeMap<String, String>,
        _: &str,
    ) -> Result<Arc<dyn BrokerPlace>, String> {
        Ok(Arc::new(BeanstalkPipeline::declared(map, self)?))
    }
}

impl BrokerPlace for BeanstalkPipeline {
    #[cfg(feature = "beanstalk")]
    fn opener(&self) -> Option<Opener<'_>> {
        Some(Opener::plain(|pipeline, wake| {
            driver::open(pipeline, self, wake)
        }))
    }
}
