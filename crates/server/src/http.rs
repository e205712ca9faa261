//! HTTP with its pool of workers, as a service.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pronghorn_config::Address;
use pronghorn_http::settings::{HttpSettings, RouteSettings};
use pronghorn_http::{
    Accepting, BodySettings, Handler, IoThreads, Limits, Listener, PoolHandler, Router, Service,
};
use pronghorn_plugin_api::{self as api, BoxFuture, Context, NotReady, Running, Stopped};
use pronghorn_pool::{Spool, Terms};
use pronghorn_process::{Credentials, Spawner};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::development::{Gate, Watch};
use crate::error::StartError;
use crate::settings::ServerSettings;
use crate::workers::{Crew, Pools, Start, Workers, relay_listener, start_all};

/// Descriptors that are kept back from connections: listeners, pipes of workers (seven each), log files, spool files.
const KEPT_DESCRIPTORS: u64 = 256;
const DESCRIPTORS_PER_WORKER: u64 = 8;
/// Of what is left, in case the rest needs some for a moment.
const FEWEST_CONNECTIONS: u64 = 64;
/// How often a stop says what it waits for.
const STILL_WAITING: Duration = Duration::from_secs(5);

/// HTTP before its start.
pub(crate) struct HttpService {
    pub(crate) settings: HttpSettings,
    pub(crate) server: ServerSettings,
    pub(crate) user: Option<(String, Credentials)>,
    pub(crate) folder: PathBuf,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// What workers find in `RR_RPC`.
    pub(crate) rpc: Option<String>,
    pub(crate) development: bool,
    pub(crate) configuration: Vec<PathBuf>,
    pub(crate) spawner: Spawner,
    pub(crate) open_files: u64,
    /// Filled when it has started.
    pub(crate) site: Arc<OnceLock<Site>>,
}

/// What others may know of HTTP.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) crews: Vec<CrewInfo>,
    pub(crate) pools: Pools,
}

/// The workers of a pool as they are started.
#[derive(Debug)]
pub struct CrewInfo {
    pub size: usize,
    pub command: String,
}

/// HTTP at work.
struct Http {
    service: Arc<Service>,
    accepting: Option<Accepting>,
    pools: Pools,
    owners: JoinSet<()>,
    destroy_timeout: Duration,
    _watch: Option<Watch>,
    _io: IoThreads,
}

impl api::Service for HttpService {
    fn name(&self) -> &'static str {
        "http"
    }

    fn has_workers(&self) -> bool {
        true
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, api::StartError>> {
        Box::pin(async move { Ok(Box::new((*self).start(&context).await?) as Box<dyn Running>) })
    }
}

impl HttpService {
    /// Listening sockets come first, so that a taken port is known at once; connections are accepted when all workers
    /// are up.
    async fn start(self, context: &Context) -> Result<Http, StartError> {
        let settings = &self.settings;
        let owner = self.owner();
        let open = |others: &[&Spool], folder: &PathBuf| {
            Spool::beside(others, self.folder.join(folder), owner.clone())
                .map(Arc::new)
                .map_err(StartError::Spool)
        };
        let spool = open(&[], &settings.spool_dir)?;
        let uploads = open(&[&spool], &settings.uploads.dir)?;
        let io = IoThreads::start(settings.threads)?;
        let listener = match &settings.address {
            Some(address) => Some(Listener::bind(resolve(address)?, io.threads().len())?),
            None => None,
        };
        let relay = relay_listener(&self.server, &self.folder, owner.as_ref())?;
        let starts: Vec<Start<'_>> = settings
            .running_pools()
            .map(|(name, pool)| Start {
                name,
                settings: pool,
                server: &self.server,
                user: self.user.clone(),
                folder: self.folder.clone(),
                environment: self.environment.clone(),
                rpc: self.rpc.clone(),
                spawner: self.spawner.clone(),
                spool: spool.clone(),
                homes: io.runtimes(),
                listener: relay.clone(),
                development: self.development,
            })
            .collect();
        let crews: Vec<Crew> = starts.iter().map(Start::crew).collect();
        let infos: Vec<CrewInfo> = crews.iter().map(Crew::info).collect();
        let (started, ()) = tokio::join!(
            start_all(crews, self.development),
            warn_of_unlimited_memory(&starts)
        );
        let (pools, owners) = started.map_err(StartError::Boot)?;
        let watch = if self.development {
            self.watch(&pools)
        } else {
            None
        };

        let bodies = BodySettings {
            max_size: settings.max_request_size.bytes(),
            raw: settings.raw_body,
            forms: pronghorn_form::Limits::default(),
            spool,
            uploads,
            forbid: settings.uploads.forbid.clone(),
            allow: settings.uploads.allow.clone(),
        };
        let workers = infos.iter().map(|info| info.size).sum();
        let limits = Limits {
            connections: connections(self.open_files, workers),
            ..Limits::default()
        };
        let service = Service::new(self.handler(&pools, &bodies), limits);
        let accepting = match listener {
            Some(listener) => Some(listener.serve(io.threads(), &service)?),
            None => None,
        };
        let (asked, draining) = (pools.clone(), context.shutdown.clone());
        let alive = pools.clone();
        context.readiness.answer_apart(
            move || {
                if draining.is_cancelled() {
                    return Err(NotReady("stopping".into()));
                }
                asked.iter().try_for_each(Workers::ready)
            },
            move || alive.iter().try_for_each(Workers::alive),
        );
        let site = Site {
            address: accepting.as_ref().map(Accepting::address),
            crews: infos,
            pools: pools.clone(),
        };
        _ = self.site.set(site); // a service starts once
        // Which calls under way belong to which pool is not known from outside: the slowest one counts.
        let destroy_timeouts = starts.iter().map(|start| start.settings.destroy_timeout);
        Ok(Http {
            service,
            accepting,
            destroy_timeout: destroy_timeouts.max().unwrap_or_default(),
            pools,
            owners,
            _watch: watch,
            _io: io,
        })
    }

    /// Who answers requests.
    fn handler(&self, pools: &Pools, bodies: &BodySettings) -> Arc<dyn Handler> {
        let routes = self
            .settings
            .compile(|route| self.behind(route, pools, bodies));
        match routes.only() {
            Some(only) => only.clone(),
            None => Arc::new(Router(routes)),
        }
    }

    fn behind(
        &self,
        route: &RouteSettings,
        pools: &Pools,
        bodies: &BodySettings,
    ) -> Arc<dyn Handler> {
        let Self {
            settings,
            development,
            ..
        } = self;
        let mut running = settings
            .running_pools()
            .map(|(_, pool)| pool)
            .zip(pools.iter());
        let (pool, workers) = running
            .find(|(_, workers)| workers.name() == route.pool)
            .expect("routes lead to pools that run");
        let max_size = route.max_request_size.unwrap_or(settings.max_request_size);
        let handler = PoolHandler {
            pool: workers.pool().clone(),
            terms: Terms {
                // In development somebody may sit in a debugger.
                deadline: route.terms.deadline.filter(|_| !development),
                ..route.terms
            },
            bodies: BodySettings {
                max_size: max_size.bytes(),
                ..bodies.clone()
            },
            internal_error_code: settings.internal_error_code,
            development: *development || pool.debug,
            access_logs: settings.access_logs,
            retry: pool.retry,
            worker_user: self.owner(),
        };
        let handler = Arc::new(Arc::new(handler));
        if *development {
            let standing = workers.standing();
            return Arc::new(Gate {
                next: handler,
                standing,
            });
        }
        handler
    }

    /// Who workers are, when they are not the server's own user.
    fn owner(&self) -> Option<Credentials> {
        self.user
            .as_ref()
            .map(|(_, credentials)| credentials.clone())
    }

    fn watch(&self, pools: &Pools) -> Option<Watch> {
        let watch = Watch::start(&self.folder, self.configuration.clone(), pools.clone());
        watch
            .inspect_err(
                |error| tracing::warn!(target: "server", "files can't be watched: {error}"),
            )
            .ok()
    }
}

impl Running for Http {
    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(Self::stop(*self, deadline))
    }
}

impl Http {
    /// No new connections, requests under way finish within the pools' `destroy_timeout`, then the workers end.
    async fn stop(self, deadline: Instant) -> Stopped {
        let cut_at = deadline.min(Instant::now() + self.destroy_timeout);
        let drained = async {
            let mut drained = std::pin::pin!(self.service.drain());
            loop {
                tokio::select! {
                    () = &mut drained => return,
                    () = tokio::time::sleep(STILL_WAITING) => tracing::info!(
                        target: "server",
                        connections = self.service.open(),
                        waiting = self.pools.waiting(),
                        "stopping: requests under way have {} s left", left(cut_at).as_secs(),
                    ),
                }
            }
        };
        _ = tokio::time::timeout_at(cut_at, drained).await;
        drop(self.accepting);
        let cut = self.service.open();
        let killed = self.pools.stop(left(deadline)).await;
        self.owners.join_all().await; // each has done its last order
        if cut == 0 && killed == 0 {
            return Stopped::Clean;
        }
        Stopped::CutOff(format!("{cut} connections, {killed} workers"))
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// The first address of a name; IPv4 before IPv6, because that is what `localhost` means to most clients.
pub(crate) fn resolve(address: &Address) -> Result<SocketAddr, StartError> {
    let Some(host) = &address.host else {
        return Ok(SocketAddr::new(pronghorn_http::any_address(), address.port));
    };
    let failed = |source| StartError::Host {
        host: host.clone(),
        source,
    };
    let mut found: Vec<_> = (host.as_str(), address.port)
        .to_socket_addrs()
        .map_err(failed)?
        .collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found
        .into_iter()
        .next()
        .ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
}

fn connections(open_files: u64, workers: usize) -> usize {
    let kept = KEPT_DESCRIPTORS + workers as u64 * DESCRIPTORS_PER_WORKER;
    usize::try_from(open_files.saturating_sub(kept).max(FEWEST_CONNECTIONS)).unwrap_or(usize::MAX)
}

/// A leak in a worker without any limit ends with the machine's memory.
async fn warn_of_unlimited_memory(starts: &[Start<'_>]) {
    for start in starts {
        if start.settings.supervisor.max_worker_memory.is_none()
            && start.memory_limit().await.as_deref() == Some("-1")
        {
            tracing::info!(
                target: "server", pool = start.name,
                "workers have no memory limit: `memory_limit` is -1 for PHP on the command line, and the pool's `supervisor.max_worker_memory` is not set"
            );
        }
    }
}
