//! The service `kv`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;
use pronghorn_cache::Cache;
use pronghorn_config::{Severity, Size, Table};
use pronghorn_plugin_api::{
    BoxFuture, Context, Finding, Handover, Machine, NotReady, Reload, Running, Service, StartError,
    Stopped,
};
use pronghorn_process::memory;
use pronghorn_store::{Claim, LazyStore, OpenError};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::driver::Driver;
use crate::embedded::{self, Embedded};
use crate::memcached::Memcached;
use crate::memory::Memory;
use crate::methods;
use crate::metrics;
use crate::moment::Moment;
use crate::persist::{Found, Kept, remove_begun};
use crate::redis::Redis;
use crate::sessions;
use crate::settings::{DriverSettings, KvSettings, RedisStorage};
use crate::shared;
use crate::storages::Storages;
use crate::watch::watch;

const LOG: &str = "kv";

/// Storages before their start. They stop behind the services that have workers.
#[derive(Debug, Default)]
pub struct KvService {
    pub settings: KvSettings,
}

struct AtWork {
    settings: KvSettings,
    /// What workers map.
    shared: Vec<(String, Arc<OwnedFd>)>,
    /// Storages in memory that outlive a stop.
    kept: Vec<(Kept, Arc<dyn Driver>)>,
    /// For their files, and for the store.
    claim: Option<Claiming>,
    /// Another process has their memory.
    is_handed_over: bool,
    /// Where entries are kept that outlive the server, if a storage needs it.
    store: Option<LazyStore>,
    _sweeper: JoinSet<()>,
    _watch: JoinSet<()>,
    _sessions: JoinSet<()>,
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

    /// Storages in memory are always there.
    fn is_watched(&self) -> bool {
        let mut storages = self.settings.storages.iter();
        storages.any(|(_, driver)| !matches!(driver, DriverSettings::Memory { .. }))
    }

    fn look(&self, _: &Machine<'_>) -> Vec<Finding> {
        let Some(allowed) = memory::allowed() else {
            return Vec::new();
        };
        let sizes = self
            .settings
            .storages
            .iter()
            .map(|(_, driver)| match driver {
                DriverSettings::Memory { max_size, .. } => *max_size,
                _ => 0,
            });
        let wanted: u64 = sizes.fold(0, u64::saturating_add);
        let too_much = (wanted > allowed).then(|| Finding {
            severity: Severity::Warning,
            key: "kv".to_owned(),
            message: format!(
                "has storages in memory of {} together, and this machine or its container allows {}",
                Size::megabytes(wanted >> 20),
                Size::megabytes(allowed >> 20)
            ),
            hint: "make `max_size` smaller: a process that takes more than is there is killed"
                .to_owned(),
        });
        too_much.into_iter().collect()
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

/// The kernel refused the memory of a storage.
#[derive(Debug, Error)]
#[error("storage `{name}`: there is no memory for it; make `kv.{name}.config.max_size` smaller")]
struct NoMemory {
    name: String,
    source: io::Error,
}

/// That of the process before, if it has the same size, or a new one, with what `kept` has for it.
/// The next process gets it.
fn open_memory(
    context: &Context,
    name: &str,
    size: u64,
    kept: Option<&Kept>,
) -> io::Result<(Cache, OwnedFd)> {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let offer: String = format!("kv.memory.{size}.{name}")
        .split_whitespace()
        .collect();
    let inherited = context.sockets.take(&offer).pop();
    let inherited = inherited.map(Cache::map).transpose()?.flatten();
    let cache = match inherited {
        Some(cache) => cache,
        None => {
            let cache = Cache::new(size, fastrand::u64(..))?;
            if let Some(kept) = kept {
                fill(&cache, name, kept);
            }
            cache
        }
    };
    context.sockets.offer(&offer, cache.file())?;
    let file = cache.file().try_clone_to_owned()?;
    Ok((cache, file))
}

/// A cache that begins empty is no reason not to start.
fn fill(cache: &Cache, storage: &str, kept: &Kept) {
    let path = kept.path().display();
    match kept.read(cache, Moment::now()) {
        Ok(Found {
            entries: 0,
            is_broken: false,
        }) => {}
        Ok(Found {
            entries,
            is_broken: false,
        }) => {
            info!(target: LOG, storage, entries, "the entries of before are there again");
        }
        Ok(Found { entries, .. }) => {
            warn!(target: LOG, storage, entries, "`{path}` is broken: what stands behind so many entries is lost");
        }
        Err(error) => {
            warn!(target: LOG, storage, "the storage begins empty: `{path}` can't be read: {error}");
        }
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
        match store.get_now().await {
            Ok(_) => {}
            Err(error) if error.is_of_predecessor() => {}
            // Calls would wait for a server that goes on, and take its store once that starts anew.
            Err(error) => return Err(error.into()),
        }
    }
    // Before the files are read, which another server may be about to write.
    let mut storages = settings.storages.iter();
    let claim = if store.is_some() || storages.any(|(_, driver)| driver.persists()) {
        Some(Claiming::begin(context.store.clone()).await?)
    } else {
        None
    };
    remove_begun(&context.state);
    let sweeper = store.clone().map(embedded::sweeper);
    let (mut drivers, mut files, mut persistent) = (Vec::new(), Vec::new(), Vec::new());
    for (name, driver) in &settings.storages {
        let driver: Arc<dyn Driver> = match driver {
            DriverSettings::Memory { max_size, persist } => {
                let kept = persist.then(|| Kept::new(&context.state, name));
                let opened = open_memory(context, name, *max_size, kept.as_ref());
                let (cache, file) = opened.map_err(|source| NoMemory {
                    name: name.clone(),
                    source,
                })?;
                files.push((name.clone(), Arc::new(file)));
                let memory: Arc<dyn Driver> = Arc::new(Memory::new(cache));
                persistent.extend(kept.map(|kept| (kept, memory.clone())));
                memory
            }
            DriverSettings::Embedded => Arc::new(Embedded::new(name, context.store.clone())),
            DriverSettings::Redis(storage) => {
                let RedisStorage { server, prefix } = &**storage;
                Arc::new(Redis::new(server.clone(), prefix.clone()))
            }
            DriverSettings::Memcached { addresses, timeout } => {
                Arc::new(Memcached::new(addresses.clone(), *timeout))
            }
        };
        drivers.push((name.clone(), driver));
    }
    let storages = Storages::new(drivers);
    let mut sessions = JoinSet::new();
    if !settings.storages.is_empty() {
        methods::add(&context.rpc, &storages);
        shared::add(&context.rpc, &storages);
        sessions = sessions::add(&context.rpc, &storages, &context.store);
    }
    metrics::add(&context.metrics, &storages);
    let watch = watch(&storages);
    // A server whose cache is away is not to be restarted for it.
    let ready = move || storages.health().map_err(|why| NotReady(why.into()));
    context.readiness.answer_apart(ready, || Ok(()));
    Ok(AtWork {
        settings,
        shared: files,
        kept: persistent,
        claim,
        is_handed_over: false,
        store,
        _sweeper: sweeper.unwrap_or_default(),
        _watch: watch,
        _sessions: sessions,
    })
}

/// The claim to the state directory. At an upgrade it comes once the process before has left that.
struct Claiming {
    store: LazyStore,
    _claim: Arc<Mutex<Option<Claim>>>,
    _waiting: JoinSet<()>,
}

impl Claiming {
    async fn begin(store: LazyStore) -> Result<Self, OpenError> {
        let (claim, mut waiting) = (Arc::default(), JoinSet::new());
        match store.claim_now().await {
            Ok(now) => *lock(&claim) = Some(now),
            Err(error) if error.is_of_predecessor() => {
                waiting.spawn(when_left(store.clone(), Arc::clone(&claim)));
            }
            Err(error) => return Err(error),
        }
        Ok(Self {
            store,
            _claim: claim,
            _waiting: waiting,
        })
    }

    /// Whether no other server has the directory; the process before has no use for it any more.
    async fn is_mine(&self) -> Result<(), OpenError> {
        match self.store.claim_now().await {
            Err(error) if !error.is_of_predecessor() => Err(error),
            _ => Ok(()),
        }
    }
}

async fn when_left(store: LazyStore, claim: Arc<Mutex<Option<Claim>>>) {
    let failed = |why: &str| {
        warn!(target: LOG, "the state directory can't be claimed, and is tried again: {why}");
    };
    let now = store.until_done(|| store.claim_at_last(), failed).await;
    *lock(&claim) = Some(now);
}

impl Running for AtWork {
    /// Those in which PHP keeps sessions by asking the server, a line for each.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let storages = self.settings.storages.iter();
        let asked = storages.filter(|(_, driver)| {
            matches!(driver, DriverSettings::Embedded | DriverSettings::Redis(_))
        });
        let names: Vec<&str> = asked.map(|(name, _)| &**name).collect();
        if names.is_empty() {
            return Vec::new();
        }
        vec![("PRONGHORN_SESSIONS", names.join("\n"))]
    }

    fn storages(&self) -> Vec<(String, Arc<OwnedFd>)> {
        self.shared.clone()
    }

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

    /// All is up: what was read is not to come back after a kill.
    fn open(&mut self) -> Result<(), StartError> {
        for (kept, _) in &self.kept {
            if let Err(error) = kept.remove() {
                let path = kept.path().display();
                warn!(target: LOG, "`{path}` can't be removed, and is read again after a kill: {error}");
            }
        }
        Ok(())
    }

    fn hand_over(&mut self, step: Handover) {
        self.is_handed_over = step == Handover::Done;
        if self.is_handed_over {
            self.claim = None;
        }
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            let mine = match &self.claim {
                Some(claim) if !self.kept.is_empty() => claim.is_mine().await,
                _ => Ok(()),
            };
            match mine {
                _ if self.is_handed_over => {}
                Ok(()) => {
                    for (kept, driver) in self.kept {
                        keep(kept, driver, deadline).await;
                    }
                }
                Err(error) => warn!(target: LOG, "entries are lost: {error}"),
            }
            if let Some(store) = self.store {
                store.close().await;
            }
            Stopped::Clean
        })
    }
}

/// Writes what the next start reads.
async fn keep(kept: Kept, driver: Arc<dyn Driver>, deadline: Instant) {
    let written = tokio::task::spawn_blocking(move || {
        let cache = driver.shared()?;
        let written = kept.write(cache, Moment::now(), deadline);
        Some(written.map_err(|error| (kept, error)))
    });
    if let Ok(Some(Err((kept, error)))) = written.await {
        let path = kept.path().display();
        warn!(target: LOG, "entries are lost: `{path}` can't be written: {error}");
    }
}
