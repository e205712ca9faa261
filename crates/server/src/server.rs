//! From a configuration to a running server, and to its orderly end.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_config::Address;
use pronghorn_http::settings::HttpSettings;
use pronghorn_http::{
    Accepting, BodySettings, Handler, IoThreads, Limits, Listener, PoolHandler, Service,
};
use pronghorn_pool::{Pool, Spool};
use pronghorn_process::{Credentials, Spawner, open_files};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::development::{Gate, Watch};
use crate::error::StartError;
use crate::settings::Settings;
use crate::workers::{Crew, Reloaded, Start, Workers};

/// Descriptors that are kept back from connections: listeners, pipes of workers (seven each), log files, spool files.
const KEPT_DESCRIPTORS: u64 = 256;
const DESCRIPTORS_PER_WORKER: u64 = 8;
/// Of what is left, in case the rest needs some for a moment.
const FEWEST_CONNECTIONS: u64 = 64;
/// How often a stop says what it waits for.
const STILL_WAITING: Duration = Duration::from_secs(5);

/// What to start.
#[derive(Debug)]
pub struct Plan {
    pub settings: Settings,
    /// Where workers run and relative paths begin, as the operator wrote it.
    pub folder: PathBuf,
    /// What workers inherit.
    pub environment: Vec<(OsString, OsString)>,
    pub development: bool,
    /// The files that the settings came from, to watch in development.
    pub configuration: Vec<PathBuf>,
}

/// A server that serves.
#[derive(Debug)]
pub struct Server {
    http: Option<Http>,
    grace: Duration,
    _spawner: Spawner,
    _io: IoThreads,
}

/// Its HTTP side with the pool behind it.
#[derive(Debug)]
struct Http {
    service: Arc<Service>,
    accepting: Option<Accepting>,
    workers: Workers,
    workers_task: JoinHandle<()>,
    pool: Pool,
    destroy_timeout: Duration,
    size: usize,
    command: String,
    _watch: Option<Watch>,
}

/// How a stop went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Connections that were cut because their time was over.
    pub cut: usize,
    /// Workers that were killed for that reason.
    pub killed: usize,
}

impl Server {
    /// Brings everything up: listening sockets first, so that a taken port is known at once; connections are accepted when
    /// all workers are up.
    ///
    /// Must be called on the control runtime, which needs I/O and time, and lives as long as the server.
    ///
    /// # Errors
    ///
    /// What is in the way. Nothing is left running then.
    pub async fn start(plan: Plan) -> Result<Self, StartError> {
        let spawner = Spawner::start()?;
        let open_files = open_files::raise();
        let threads = plan.settings.http.as_ref().map_or(1, |http| http.threads);
        let io = IoThreads::start(threads)?;
        let http = match &plan.settings.http {
            Some(settings) => Some(Http::start(&plan, settings, &io, &spawner, open_files).await?),
            None => {
                tracing::warn!(target: "server", "there is no section `http`: nothing is served");
                None
            }
        };
        Ok(Self {
            http,
            grace: plan.settings.endure.grace_period,
            _spawner: spawner,
            _io: io,
        })
    }

    /// Where HTTP is served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.http
            .as_ref()?
            .accepting
            .as_ref()
            .map(Accepting::address)
    }

    /// Workers of the pool, and what they run, for the one line that greets a person.
    pub fn workers(&self) -> Option<(usize, &str)> {
        self.http
            .as_ref()
            .map(|http| (http.size, http.command.as_str()))
    }

    /// Replaces all workers by new ones.
    ///
    /// # Errors
    ///
    /// Why the new ones don't boot; the old ones go on.
    pub async fn reload(&self) -> Reloaded {
        match &self.http {
            Some(http) => http.workers.reload().await,
            None => Ok(()),
        }
    }

    /// Stops in order: no new connections, requests under way finish within the pool's `destroy_timeout`, then the workers
    /// end. All of it within the grace period; what still runs then is ended.
    pub async fn stop(mut self) -> Stopped {
        let deadline = Instant::now() + self.grace;
        match self.http.take() {
            Some(http) => http.stop(deadline).await,
            None => Stopped { cut: 0, killed: 0 },
        }
    }
}

impl Http {
    async fn start(
        plan: &Plan,
        settings: &HttpSettings,
        io: &IoThreads,
        spawner: &Spawner,
        open_files: u64,
    ) -> Result<Self, StartError> {
        let server = &plan.settings.server;
        let user = worker_user(server.user.as_deref(), server.group.as_deref())?;
        let owner = user.as_ref().map(|(_, credentials)| credentials.clone());
        let open = |folder: &PathBuf| {
            Spool::open(plan.folder.join(folder), owner.clone())
                .map(Arc::new)
                .map_err(StartError::Spool)
        };
        let (spool, uploads) = (open(&settings.spool_dir)?, open(&settings.uploads.dir)?);
        let listener = match &settings.address {
            Some(address) => Some(Listener::bind(resolve(address)?, io.threads().len())?),
            None => None,
        };
        let start = Start {
            server,
            http: settings,
            user,
            folder: plan.folder.clone(),
            environment: plan.environment.clone(),
            rpc: plan.settings.rpc.as_ref().map(|rpc| rpc.listen.to_string()),
            spawner: spawner.clone(),
            spool: spool.clone(),
            homes: io.runtimes(),
            development: plan.development,
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
            Workers::start(crew, plan.development),
            warn_of_unlimited_memory(&start)
        );
        let (workers, workers_task) = started.map_err(StartError::Boot)?;
        let watch = if plan.development {
            watch(plan, &workers)
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
            development: plan.development || settings.pool.debug,
            access_logs: settings.access_logs,
            retry: settings.pool.retry,
            worker_user: owner,
        };
        let mut handler: Arc<dyn Handler> = Arc::new(Arc::new(handler));
        if plan.development {
            handler = Arc::new(Gate {
                next: handler,
                standing: workers.standing(),
            });
        }
        let size = start.size();
        let limits = Limits {
            connections: connections(open_files, size),
            ..Limits::default()
        };
        let service = Service::new(handler, limits);
        let accepting = match listener {
            Some(listener) => Some(listener.serve(io.threads(), &service)?),
            None => None,
        };
        Ok(Self {
            service,
            accepting,
            workers,
            workers_task,
            pool,
            destroy_timeout: settings.pool.destroy_timeout,
            size,
            command,
            _watch: watch,
        })
    }

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
        if cut > 0 || killed > 0 {
            tracing::warn!(target: "server", connections = cut, workers = killed, "their time to stop is over: they were ended");
        }
        Stopped { cut, killed }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn worker_user(
    user: Option<&str>,
    group: Option<&str>,
) -> Result<Option<(String, Credentials)>, StartError> {
    let Some(user) = user else { return Ok(None) };
    let credentials = Credentials::look_up(user, group).map_err(StartError::User)?;
    if credentials.is_current() {
        return Ok(None);
    }
    if !Credentials::may_change() {
        return Err(StartError::NotRoot(user.to_owned()));
    }
    Ok(Some((user.to_owned(), credentials)))
}

/// The first address of a name; IPv4 before IPv6, because that is what `localhost` means to most clients.
fn resolve(address: &Address) -> Result<SocketAddr, StartError> {
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

fn watch(plan: &Plan, workers: &Workers) -> Option<Watch> {
    let watch = Watch::start(&plan.folder, plan.configuration.clone(), workers.clone());
    watch
        .inspect_err(|error| tracing::warn!(target: "server", "files can't be watched: {error}"))
        .ok()
}
