//! From a configuration to a running server, and to its orderly end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_config::Endpoint;
use pronghorn_http::Handler;
use pronghorn_http::settings::HttpSettings;
use pronghorn_lock::Lock;
use pronghorn_metrics::Registry;
use pronghorn_plugin_api::rpc::Methods;
use pronghorn_plugin_api::{
    Context, Handover, Readiness, Running, Service, Sockets, Stopped, WorkerContext,
};
use pronghorn_pool::{RelayAddress as RelaySocket, RelayListener};
use pronghorn_process::{Spawner, open_files};
use pronghorn_rpc::{Listener, Rpc};
use pronghorn_workers::{
    IoThreads, PoolHandle, PoolResources, Pools, RelayAddress, ServerSettings, Versions,
    WorkerUser, look_up_user, run_on_init,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::control::{Control, Serving};
use crate::development;
use crate::error::StartError;
use crate::fileserver::FileService;
use crate::health::Health;
use crate::http::{HttpHandle, HttpService, resolve};
use crate::renewal::Source;
use crate::rpc;
use crate::settings::{EndureSettings, Settings, StatusSettings, UNAVAILABLE};
use crate::status::{STATUS, StatusService};
use crate::upgrade::{Predecessor, Word};
use crate::{ROADRUNNER_VERSION, VERSION};

/// The socket of `server.relay`, for the next process.
const RELAY: &str = "relay";

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
    /// What was written in them, as JSON without secrets, for `rpc.Config`.
    pub written: String,
    /// From where a reload reads them again. Without it, a reload replaces the workers and no more.
    pub source: Option<Source>,
    /// What the command line will steer it by.
    pub control: Control,
    /// What stands before PHP in a server of one's own.
    pub around: Around,
}

/// A handler of one's own around that of the routes: it answers itself, or hands a request on. Called at the start and for
/// each reload. Middleware is around both.
#[derive(Clone, Default)]
pub struct Around(Option<Arc<Wrap>>);

type Wrap = dyn Fn(Arc<dyn Handler>) -> Arc<dyn Handler> + Send + Sync;

impl Around {
    pub fn new(
        wrap: impl Fn(Arc<dyn Handler>) -> Arc<dyn Handler> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(wrap)))
    }

    pub(crate) fn put(&self, handler: Arc<dyn Handler>) -> Arc<dyn Handler> {
        match &self.0 {
            Some(wrap) => wrap(handler),
            None => handler,
        }
    }
}

impl std::fmt::Debug for Around {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.0.is_some() { "own" } else { "none" };
        write!(f, "Around({what})")
    }
}

/// A server that serves.
pub struct Server {
    /// In the order in which they were started.
    services: Vec<(&'static str, Box<dyn Running>)>,
    shutdown: CancellationToken,
    site: Arc<OnceLock<HttpHandle>>,
    workers: Option<Workers>,
    endure: EndureSettings,
    /// Between the moment at which nothing is ready any more and the one at which nothing new is taken.
    drain_delay: Duration,
    health: Health,
    spawner: Spawner,
    sockets: Sockets,
    handed_over: bool,
    control: Control,
    pub(crate) source: Option<Source>,
    pub(crate) written: Written,
}

/// What the settings ask for, not started yet.
struct Configured {
    services: Vec<Box<dyn Service>>,
    /// What workers find in `RR_RPC`.
    rpc: Option<String>,
}

/// What the services with workers share.
#[derive(Debug)]
struct Workers {
    pools: Pools,
    /// Of workers that are no children of ours by descriptor.
    relay: Option<Arc<RelayListener>>,
    /// Last, for what is above it lives on these threads.
    io: IoThreads,
}

/// What `rpc.Config` answers.
#[derive(Debug, Clone)]
pub(crate) struct Written(Arc<Mutex<String>>);

impl Written {
    pub(crate) fn set(&self, written: String) {
        *lock(&self.0) = written;
    }

    fn get(&self) -> String {
        lock(&self.0).clone()
    }
}

impl Server {
    /// Brings everything up: what workers call comes before them. With a predecessor, clients are left to it until all is
    /// up.
    ///
    /// Must be called on the control runtime, which needs I/O and time, and lives as long as the server.
    ///
    /// # Errors
    ///
    /// What is in the way. Nothing is left running then, and the predecessor knows why.
    pub async fn start(
        mut plan: Plan,
        mut predecessor: Option<Predecessor>,
    ) -> Result<Self, StartError> {
        if run_as_root(&plan.settings) {
            let (message, hint) = WORKERS_OF_ROOT;
            tracing::warn!(target: "server", hint, "`server.user` {message}");
        }
        let source = plan.source.take();
        let written = std::mem::take(&mut plan.written);
        let status = plan.settings.status.as_ref();
        let mut server = Self {
            services: Vec::new(),
            shutdown: CancellationToken::new(),
            site: Arc::default(),
            workers: None,
            endure: plan.settings.endure.clone(),
            drain_delay: status.map_or(Duration::ZERO, |status| status.drain_delay),
            health: Health::default(),
            spawner: Spawner::start()?,
            sockets: predecessor
                .as_mut()
                .map_or_else(Sockets::default, Predecessor::sockets),
            handed_over: false,
            control: plan.control.clone(),
            source,
            written: Written(Arc::new(Mutex::new(written))),
        };
        if let Err(error) = server.start_services(plan).await {
            if let Some(predecessor) = predecessor {
                predecessor.tell_failure(&error.report());
            }
            return Err(error);
        }
        if let Some(predecessor) = predecessor
            && predecessor.ready().await.map_err(StartError::Predecessor)? == Word::End
        {
            return Err(StartError::Rehearsal);
        }
        for (name, service) in &mut server.services {
            let opened = service.open();
            opened.map_err(|error| StartError::of_service(name, error))?;
        }
        if let Some(relay) = server.relay() {
            relay.set_ours(true);
        }
        Ok(server)
    }

    async fn start_services(&mut self, plan: Plan) -> Result<(), StartError> {
        let mut serving = Serving {
            site: self.site.clone(),
            pools: None,
            health: self.health.clone(),
            rpc: None,
        };
        let status = plan.settings.status.as_ref();
        let unavailable = status.map_or(UNAVAILABLE, |status| status.unavailable_status_code);
        let methods = Methods::default();
        let metrics = Registry::default().named("pronghorn");
        let server = plan.settings.server.clone();
        let mut on_init = server.on_init.clone();
        let (folder, environment) = (plan.folder.clone(), plan.environment.clone());
        let (development, threads) = (
            plan.development,
            plan.settings.http.as_ref().map(|http| http.threads),
        );
        let user = look_up_user(server.user.as_deref(), server.group.as_deref())?;
        let Configured { services, rpc } = self.services_of(plan, user.as_ref(), &mut serving)?;
        if services.iter().any(|service| service.has_workers()) {
            let io = IoThreads::start(threads.unwrap_or(1))?;
            let listener = self.relay_listener(&server, &folder, user.as_ref())?;
            let resources = PoolResources {
                user: user.clone(),
                folder: folder.clone(),
                rpc,
                spawner: self.spawner.clone(),
                homes: io.io().homes(),
                metrics: metrics.clone(),
                relay: server.relay.clone(),
                listener: listener.clone(),
                versions: Versions {
                    roadrunner: ROADRUNNER_VERSION,
                    pronghorn: VERSION,
                },
                development,
            };
            self.workers = Some(Workers {
                pools: Pools::new(resources, server, environment.clone()),
                relay: listener,
                io,
            });
        }
        serving.pools = self.pools();
        rpc::add(&methods, &self.health, serving.pools.as_ref(), unavailable);
        let services: Vec<_> = services
            .into_iter()
            .map(|service| (service, Readiness::default()))
            .collect();
        let with_workers = services.iter().filter(|(service, _)| service.has_workers());
        let watched = with_workers.map(|(service, readiness)| (service.name(), readiness.clone()));
        self.health.watch(watched.collect());
        for (service, readiness) in services {
            if service.has_workers()
                && let Some(on_init) = on_init.take()
            {
                let user = user.as_ref().map(|(_, user)| user);
                run_on_init(&on_init, &self.spawner, &folder, &environment, user).await?;
            }
            let name = service.name();
            let workers = self.workers.as_ref().filter(|_| service.has_workers());
            let context = Context {
                shutdown: self.shutdown.clone(),
                rpc: methods.clone(),
                workers: workers.map(|workers| WorkerContext {
                    pools: workers.pools.clone(),
                    io: workers.io.io().clone(),
                }),
                metrics: metrics.clone(),
                readiness,
                sockets: self.sockets.clone(),
            };
            match service.start(context).await {
                Ok(running) => self.services.push((name, running)),
                Err(error) => return Err(StartError::of_service(name, error)),
            }
        }
        self.control.serves(serving);
        Ok(())
    }

    pub(crate) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    pub(crate) fn upgrade_timeout(&self) -> Duration {
        self.endure.upgrade_timeout
    }

    pub(crate) fn hand_over(&mut self, step: Handover) {
        self.handed_over = step == Handover::Done;
        if let Some(relay) = self.relay() {
            relay.lend(step != Handover::Failed);
            relay.set_ours(step != Handover::Done);
        }
        for (_, service) in &mut self.services {
            service.hand_over(step);
        }
    }

    fn services_of(
        &self,
        plan: Plan,
        user: Option<&WorkerUser>,
        serving: &mut Serving,
    ) -> Result<Configured, StartError> {
        let Settings {
            http,
            rpc,
            status,
            fileserver,
            reload,
            ..
        } = plan.settings;
        let mut services: Vec<Box<dyn Service>> = Vec::new();
        let mut rpc_for_workers = None;
        if let Some(rpc) = rpc {
            let owner = user.map(|(_, credentials)| credentials);
            let endpoint = match rpc.listen {
                Endpoint::Unix(path) => Endpoint::Unix(plan.folder.join(path)),
                tcp @ Endpoint::Tcp(_) => tcp,
            };
            let listener = Listener::open(&endpoint, owner, self.sockets.take("rpc"))
                .map_err(|error| StartError::of_service("rpc", error.into()))?;
            rpc_for_workers = Some(listener.endpoint_for_workers().to_string());
            serving.rpc = Some(listener.endpoint().to_string());
            let written = self.written.clone();
            services.push(Box::new(Rpc::new(listener, move || written.get())));
        }
        let serves = !services.is_empty() || http.is_some() || fileserver.is_some();
        services.push(Box::new(Lock));
        if let Some(status) = status {
            services.push(Box::new(self.status(&status)?));
        }
        if let Some(settings) = fileserver {
            services.push(Box::new(FileService {
                settings,
                folder: plan.folder.clone(),
                open_files: open_files::raise(),
            }));
        }
        match http {
            Some(settings) => services.push(Box::new(HttpService {
                settings,
                watching: reload.or_else(|| plan.development.then(development::watching)),
                configuration: plan.configuration,
                around: plan.around,
                open_files: open_files::raise(),
                site: self.site.clone(),
            })),
            None if !serves => return Err(StartError::Nothing),
            None => {
                tracing::warn!(target: "server", "there is no section `http`: no worker is started");
            }
        }
        Ok(Configured {
            services,
            rpc: rpc_for_workers,
        })
    }

    /// The socket that `server.relay` names. There is one for the workers of all pools: each tells its process.
    fn relay_listener(
        &self,
        server: &ServerSettings,
        folder: &Path,
        user: Option<&WorkerUser>,
    ) -> Result<Option<Arc<RelayListener>>, StartError> {
        let address = match &server.relay {
            RelayAddress::Pipes => return Ok(None),
            RelayAddress::Unix(path) => RelaySocket::Unix(folder.join(path)),
            RelayAddress::Tcp(address) => RelaySocket::Tcp(*address),
        };
        let owner = user.map(|(_, credentials)| credentials);
        let listener = RelayListener::open(&address, owner, self.sockets.take(RELAY))?;
        self.sockets.offer(RELAY, listener.socket())?;
        Ok(Some(Arc::new(listener)))
    }

    fn relay(&self) -> Option<&RelayListener> {
        self.workers.as_ref()?.relay.as_deref()
    }

    fn status(&self, settings: &StatusSettings) -> Result<StatusService, StartError> {
        let mut inherited = self.sockets.take(STATUS);
        let listener = resolve(&settings.address)
            .and_then(|address| Ok(pronghorn_http::Listener::open(address, 1, &mut inherited)?));
        Ok(StatusService {
            listener: listener.map_err(|error| StartError::of_service(STATUS, error.into()))?,
            health: self.health.clone(),
            unavailable: settings.unavailable_status_code,
            check_timeout: settings.check_timeout,
        })
    }

    /// Where HTTP is served, as URLs, and paths of unix sockets.
    pub fn places(&self) -> Vec<String> {
        self.site.get().map(HttpHandle::urls).unwrap_or_default()
    }

    /// The pools of all services; none where no service has workers.
    pub fn pools(&self) -> Option<Pools> {
        Some(self.workers.as_ref()?.pools.clone())
    }

    /// The same one by one, for the line that greets a person.
    pub fn running_pools(&self) -> Vec<PoolHandle> {
        self.pools().map(|pools| pools.all()).unwrap_or_default()
    }

    pub(crate) fn site(&self) -> Option<&HttpHandle> {
        self.site.get()
    }

    pub(crate) async fn reload_workers(&self) {
        match self.pools() {
            Some(pools) => pools.reload().await,
            None => tracing::warn!(target: "server", "there is no pool to reload"),
        }
    }

    pub(crate) fn set_endure(&mut self, endure: &EndureSettings) {
        self.endure = endure.clone();
    }

    /// How the server's own life is set up now.
    pub fn endure(&self) -> &EndureSettings {
        &self.endure
    }

    /// Stops the services in the reverse order of their start. All of it within the grace period, or after a handover the
    /// longer `reset_timeout`; what still runs then is ended, and a record says what that was. Before, unless another process
    /// has taken over, health checks say that nothing is ready, for as long as `drain_delay`.
    pub async fn stop(mut self) {
        let grace = if self.handed_over {
            let patience = self.site().map(HttpHandle::handover_patience);
            self.endure.grace_period.max(patience.unwrap_or_default())
        } else {
            self.sockets.close();
            self.endure.grace_period
        };
        self.control.stops();
        self.health.leave();
        // After a handover, the next process answers health checks.
        if !self.handed_over && !self.drain_delay.is_zero() {
            let seconds = self.drain_delay.as_secs_f32();
            tracing::info!(target: "server", "serving for {seconds} s more, until health checks were heard");
            tokio::time::sleep(self.drain_delay).await;
        }
        let deadline = Instant::now() + grace;
        self.shutdown.cancel();
        while let Some((name, service)) = self.services.pop() {
            if let Stopped::CutOff(what) = service.stop(deadline).await {
                tracing::warn!(target: "server", service = name, "their time to stop is over, they were ended: {what}");
            }
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.services.iter().map(|(name, _)| name).collect();
        f.debug_struct("Server")
            .field("services", &names)
            .finish_non_exhaustive()
    }
}

/// What is said where [`run_as_root`] holds; the message goes on after `server.user`.
pub(crate) const WORKERS_OF_ROOT: (&str, &str) = (
    "is not set, and the server runs as root: so do its workers, and whoever finds a hole in the application is root",
    "`server: {user: www-data}`, or another user without rights who can read the application; or start the server as one. \
     `user: root` says that this is meant",
);

/// Whether workers run as root and nobody has asked for that.
pub(crate) fn run_as_root(settings: &Settings) -> bool {
    let mut pools = settings.http.iter().flat_map(HttpSettings::running_pools);
    settings.server.user.is_none()
        && rustix::process::geteuid().is_root()
        // Those at addresses are somebody else's.
        && pools.any(|(_, pool)| pool.fastcgi.addresses.is_empty())
}
