//! The service `kv`.

use std::sync::Arc;

use pronghorn_config::Table;
use pronghorn_plugin_api::{
    BoxFuture, Context, NotReady, Reload, Running, Service, StartError, Stopped,
};
use pronghorn_store::{LazyStore, OpenError};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::driver::Driver;
use crate::embedded::{self, Embedded};
use crate::memory::Memory;
use crate::methods;
use crate::settings::{DriverSettings, KvSettings};
use crate::storages::Storages;

/// Storages before their start. They stop behind the services that have workers.
#[derive(Debug, Default)]
pub struct KvService {
    pub settings: KvSettings,
}

struct AtWork {
    settings: KvSettings,
    /// Where entries are kept that outlive the server, if a storage needs it.
    store: Option<LazyStore>,
    _sweeper: JoinSet<()>,
}

impl KvService {
    pub fn read(t: &mut Table<'_>) -> Self {
        Self {
            settings: KvSettings::read(t),
        }
    }
}

impl Service for KvService {
    fn serves(&self) -> bool {
        false
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            let running = start(self.settings, &context).await?;
            Ok(Box::new(running) as Box<dyn Running>)
        })
    }
}

async fn start(settings: KvSettings, context: &Context) -> Result<AtWork, StartError> {
    let stored = |(_, driver): &(_, _)| *driver == DriverSettings::Embedded;
    let store = settings
        .storages
        .iter()
        .any(stored)
        .then(|| context.store.share());
    if let Some(store) = &store {
        match store.get().await {
            // That of the process before, which is about to leave it.
            Ok(_) | Err(OpenError::InUse { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let sweeper = store.clone().map(embedded::sweeper);
    let storages = settings.storages.iter().map(|(name, driver)| {
        let driver: Arc<dyn Driver> = match driver {
            DriverSettings::Memory { max_size } => Arc::new(Memory::new(*max_size)),
            DriverSettings::Embedded => Arc::new(Embedded::new(name, context.store.clone())),
        };
        (name.clone(), driver)
    });
    let storages = Storages::new(storages);
    if !settings.storages.is_empty() {
        methods::add(&context.rpc, &storages);
    }
    context
        .readiness
        .answer_with(move || storages.health().map_err(|why| NotReady(why.into())));
    Ok(AtWork {
        settings,
        store,
        _sweeper: sweeper.unwrap_or_default(),
    })
}

impl Running for AtWork {
    fn reload(&mut self, to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        let same = to
            .downcast::<KvService>()
            .is_some_and(|to| to.settings.storages == self.settings.storages);
        let reload = if same {
            Reload::Applied
        } else {
            Reload::NeedsRestart
        };
        Box::pin(std::future::ready(reload))
    }

    fn stop(self: Box<Self>, _: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            if let Some(store) = self.store {
                store.close().await;
            }
            Stopped::Clean
        })
    }
}
