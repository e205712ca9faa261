//! HTTP with its pool of workers, as a service.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pronghorn_config::Address;
use pronghorn_http::settings::HttpSettings;
use pronghorn_http::{
    Accepting, BodySettings, Handler, IoThreads, Limits, Listener, PoolHandler, Service,
};
use pronghorn_plugin_api::{self as api, BoxFuture, Context, NotReady, Running, Stopped};
use pronghorn_pool::{Pool, Spool};
use pronghorn_process::{Credentials, Spawner};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::development::{Gate, Watch};
use crate::error::StartError;
use crate::settings::ServerSettings;
use crate::workers::{Crew, Pools, Start, Workers};

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
    /// Workers of the pool, and what they run.
    pub(crate) size: usize,
    pub(crate) command: String,
    pub(crate) pools: Pools,
}

/// HTTP at work.
struct Http {
    service: Arc<Service>,
    accepting: Option<Accepting>,
    workers: Workers,
    workers_task: JoinHandle<()>,
    pool: Pool,
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
        let owner = self
            .user
            .as_ref()
            .map(|(_, credentials)| credentials.clone());
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
        let start = Start {
            server: &self.server,
            http: settings,
            user: self.user.clone(),
            folder: self.folder.clone(),
            environment: self.environment.clone(),
            rpc: self.rpc.clone(),
            spawner: self.spawner.clone(),
            spool: spool.clone(),
            homes: io.runtimes(),
            development: self.development,
        };
        let pool = start.pool();
        let launcher = start.launcher()?;
        let command = launcher.command.clone();
        let crew = Crew {
            pool: pool.clone(),
            launcher,
            size: start.size(),
            reset_timeout: settings.pool.reset_timeout,
        };
        let (started, ()) = tokio::join!(
            Workers::start(crew, self.development),
            warn_of_unlimited_memory(&start)
        );
        let (workers, workers_task) = started.map_err(StartError::Boot)?;
        let watch = if self.development {
            self.watch(&workers)
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
        let handler = PoolHandler {
            pool: pool.clone(),
            bodies,
            internal_error_code: settings.internal_error_code,
            development: self.development || settings.pool.debug,
            access_logs: settings.access_logs,
            retry: settings.pool.retry,
            worker_user: owner,
        };
        let mut handler: Arc<dyn Handler> = Arc::new(Arc::new(handler));
        if self.development {
            handler = Arc::new(Gate {
                next: handler,
                standing: workers.standing(),
            });
        }
        let size = start.size();
        let limits = Limits {
            connections: connections(self.open_files, size),
            ..Limits::default()
        };
        let service = Service::new(handler, limits);
        let accepting = match listener {
            Some(listener) => Some(listener.serve(io.threads(), &service)?),
            None => None,
        };
        let pools = Pools::new(vec![workers.clone()]);
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
            size,
            command,
            pools,
        };
        _ = self.site.set(site); // a service starts once
        Ok(Http {
            service,
            accepting,
            workers,
            workers_task,
            pool,
            destroy_timeout: settings.pool.destroy_timeout,
            _watch: watch,
            _io: io,
        })
    }

    fn watch(&self, workers: &Workers) -> Option<Watch> {
        let watch = Watch::start(&self.folder, self.configuration.clone(), workers.clone());
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
    /// No new connections, requests under way finish within the pool's `destroy_timeout`, then the workers end.
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
                        waiting = self.pool.stats().waiting(),
                        "stopping: requests under way have {} s left", left(cut_at).as_secs(),
                    ),
                }
            }
        };
        _ = tokio::time::timeout_at(cut_at, drained).await;
        drop(self.accepting);
        let cut = self.service.open();
        let killed = self.workers.stop(left(deadline)).await;
        _ = self.workers_task.await; // it has done its last order
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
async fn warn_of_unlimited_memory(start: &Start<'_>) {
    if start.http.pool.supervisor.max_worker_memory.is_none()
        && start.memory_limit().await.as_deref() == Some("-1")
    {
        tracing::info!(
            target: "server",
            "workers have no memory limit: `memory_limit` is -1 for PHP on the command line, and `http.pool.supervisor.max_worker_memory` is not set"
        );
    }
}
