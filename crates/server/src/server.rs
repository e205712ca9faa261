//! From a configuration to a running server, and to its orderly end.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_config::{Era, Loaded};
use pronghorn_launch::{RelayAddress as RelaySocket, RelayListener};
use pronghorn_metrics::Registry;
use pronghorn_plugin_api::rpc::{Forward, Methods};
use pronghorn_plugin_api::{
    AtEnd, BoxFuture, Caches, Configuration, Context, Handover, Health, Pages, Readiness, Running,
    Service, Sockets, Stopped, WorkerContext, reserved_by,
};
use pronghorn_pool::Incidents;
use pronghorn_process::activation::Activated;
use pronghorn_process::open_files::Reserved;
use pronghorn_process::{Spawner, own_files};
use pronghorn_rpc::{RpcThread, WorkerMethods, answer_predecessor};
use pronghorn_store::{LazyStore, judge_state_directory};
use pronghorn_trace::Tracer;
use pronghorn_workers::{
    IoThreads, PoolHandle, PoolResources, Pools, RelayAddress, ServerSettings, UserError, Versions,
    Watch, Watching, WorkerUsers, default_io_threads, run_on_init,
};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::VERSION;
use crate::control::{Control, Serving, Starting};
use crate::error::StartError;
use crate::renewal::{ConfigurationMetrics, Source};
use crate::settings::{EndureSettings, Settings};
use crate::upgrade::{CALLS, OtherProcess, Predecessor, STATE, STORE, Word};
use crate::{activation, incidents, reports, rpc, state};

/// The socket of `server.relay`, for the next process.
const RELAY: &str = "relay";

/// How files in the state directory are called, up to a dot or hyphen.
const KEPT: [&str; 3] = ["store", "kv", "php-answers"];
/// Folders in it: reports of crashes, and the local authority.
const KEPT_FOLDERS: [&str; 2] = ["reports", "tls"];

/// What to start.
#[derive(Debug)]
pub struct Plan {
    pub settings: Settings,
    /// Where workers run and relative paths begin, as the operator wrote it.
    pub folder: PathBuf,
    /// The files that the settings came from, with the places of all keys.
    pub loaded: Arc<Loaded>,
    /// What workers inherit.
    pub environment: Vec<(OsString, OsString)>,
    pub development: bool,
    /// The files that the settings came from, to watch in development.
    pub configuration: Vec<PathBuf>,
    /// Files that no client gets, by [`own_files`](crate::own_files).
    pub own_files: Vec<PathBuf>,
    /// What was written in them, as JSON without secrets, for `rpc.Config`.
    pub written: String,
    /// Every value that holds with where it is from, by
    /// [`effective_json`](crate::settings::effective_json), for the admin listener.
    pub effective: String,
    /// From where a reload reads them again. Without it, a reload replaces the workers and no more.
    pub source: Option<Source>,
    /// What the command line will steer it by.
    pub control: Control,
    /// Sockets that systemd has opened for this process.
    pub activated: Vec<Activated>,
}

/// A server that serves.
pub struct Server {
    /// In the order in which they were started.
    pub(crate) services: Vec<(&'static str, Box<dyn Running>)>,
    shutdown: CancellationToken,
    workers: Option<Workers>,
    pub(crate) endure: EndureSettings,
    /// Between the moment at which nothing is ready any more and the one at which nothing new is
    /// taken.
    drain_delay: Duration,
    health: Health,
    spawner: Spawner,
    sockets: Sockets,
    at_end: AtEnd,
    /// The process that has taken over from this one.
    pub(crate) successor: Option<Forward>,
    /// Ready when that one has ended.
    pub(crate) lost: Option<BoxFuture<'static, ()>>,
    /// None where no process was before this one, or somebody listens to it.
    before: Option<OtherProcess>,
    /// The store, for as long as the process before needs it.
    for_before: Option<LazyStore>,
    /// Calls of the process before.
    answering: JoinSet<io::Result<()>>,
    /// Ends the answers to the process before.
    answers: CancellationToken,
    handed_over: bool,
    control: Control,
    pub(crate) source: Option<Source>,
    /// None until services start.
    pub(crate) places: Option<Places>,
    /// Files that no client gets.
    pub(crate) own_files: Vec<PathBuf>,
    pub(crate) configuration: Configuration,
    /// None until services start.
    pub(crate) configuration_metrics: Option<ConfigurationMetrics>,
    /// Nearly last: what the others have to tell is written.
    reports: Option<incidents::Writer>,
    /// Last: what services have started on it ends with them.
    rpc: RpcThread,
}

/// Where the server lives.
#[derive(Debug)]
pub(crate) struct Places {
    /// Where relative paths begin.
    pub(crate) folder: PathBuf,
    /// Where it keeps what outlives it.
    pub(crate) state: PathBuf,
    /// In the same place.
    pub(crate) store: LazyStore,
}

/// How workers are started.
struct Setting {
    compat: Era,
    server: ServerSettings,
    environment: Vec<(OsString, OsString)>,
    development: bool,
    incidents: Incidents,
}

/// What the services with workers share.
#[derive(Debug)]
struct Workers {
    pools: Pools,
    /// Of workers that are no children of ours by descriptor.
    relay: Option<Arc<RelayListener>>,
    /// None where nobody asked for it.
    watches: Vec<Watch>,
    /// Methods that workers call.
    _methods: Methods,
    /// Last, for what is above it lives on these threads.
    io: IoThreads,
}

impl Server {
    /// Brings everything up: what workers call comes before them. With a predecessor, clients are
    /// left to it until all is up.
    ///
    /// Must be called on the control runtime, which needs I/O and time, and lives as long as the
    /// server.
    ///
    /// # Errors
    ///
    /// What is in the way. Nothing is left running then, and the predecessor knows why.
    pub async fn start(
        mut plan: Plan,
        mut predecessor: Option<Predecessor>,
    ) -> Result<Self, StartError> {
        if run_as_root(&plan.settings) {
            if plan.development || is_roadrunners(&plan.configuration) || !is_service() {
                let (message, hint) = WORKERS_OF_ROOT;
                tracing::warn!(target: "server", hint, "`server.user` {message}");
            } else {
                return Err(StartError::Root);
            }
        }
        let source = plan.source.take();
        let configuration = Configuration::default();
        configuration.set(
            std::mem::take(&mut plan.written),
            std::mem::take(&mut plan.effective),
        );
        let mut server = Self {
            services: Vec::new(),
            shutdown: CancellationToken::new(),
            workers: None,
            endure: plan.settings.endure.clone(),
            drain_delay: plan.settings.drain_delay(),
            health: Health::default(),
            spawner: Spawner::start()?,
            sockets: predecessor
                .as_mut()
                .map_or_else(Sockets::default, Predecessor::sockets),
            at_end: AtEnd::default(),
            successor: None,
            lost: None,
            before: None,
            for_before: None,
            answering: JoinSet::new(),
            answers: CancellationToken::new(),
            handed_over: false,
            control: plan.control.clone(),
            source,
            places: None,
            own_files: Vec::new(),
            configuration,
            configuration_metrics: None,
            reports: None,
            rpc: RpcThread::start()?,
        };
        let loaded = plan.loaded.clone();
        if let Err(error) = server.start_services(plan).await {
            let error = error.placed(&loaded);
            if let Some(predecessor) = predecessor {
                predecessor.tell_failure(&error.report());
            }
            return Err(error);
        }
        if let Some(predecessor) = predecessor {
            let (word, before) = predecessor.ready().await.map_err(StartError::Predecessor)?;
            if word == Word::End {
                return Err(StartError::Rehearsal);
            }
            server.before = Some(before);
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

    /// Starts services without workers, then what they share that have some, then those.
    async fn start_services(&mut self, plan: Plan) -> Result<(), StartError> {
        let Plan {
            settings,
            folder,
            environment,
            development,
            configuration,
            own_files,
            activated,
            ..
        } = plan;
        if !settings
            .services
            .iter()
            .any(|(_, service)| service.serves())
        {
            return Err(StartError::Nothing);
        }
        let users = worker_users(&settings)?;
        activation::share(activated, &settings, &folder, &self.sockets)?;
        let watching = watching(settings.reload, development);
        let services = settings.services.into_iter();
        let services = services.map(|(name, service)| (name, service, Readiness::default()));
        let services: Vec<_> = services.collect();
        let watched = services
            .iter()
            .filter(|(_, service, _)| service.is_watched());
        let watched = watched.map(|(name, _, readiness)| (*name, readiness.clone()));
        self.health.watch(watched.collect());
        let reserved = reserved_by(services.iter().map(|(_, service, _)| &**service));
        let (with_workers, others): (Vec<_>, Vec<_>) = services
            .into_iter()
            .partition(|(_, service, _)| service.starts_processes());
        let state = state::folder(settings.state_dir, &folder, &environment);
        judge_state_directory(&state).map_err(StartError::State)?;
        self.judge_move_to(&state)?;
        let store = state::store(state.clone());
        self.places = Some(Places {
            folder: folder.clone(),
            state: state.clone(),
            store: store.clone(),
        });
        self.keep_to_itself(own_files);
        let reports = incidents::Writer::new(reports::folder_in(&state), settings.reports);
        let tell = reports.incidents();
        self.reports = Some(reports);
        let mut context = self.context(folder, users, store, state, reserved);
        self.follow_predecessor(&context)?;
        context.rpc.expect_more();
        context.rpc.count_in(&context.metrics);
        context.rpc.lack(settings.unconfigured);
        let about = ConfigurationMetrics::new(&context.metrics, settings.compat, development);
        self.configuration_metrics = Some(about);
        for (name, service, readiness) in others {
            self.start_service(name, service, readiness, &context)
                .await?;
        }
        if with_workers.is_empty() {
            tracing::warn!(
                target: "server",
                "no service in the configuration has workers: no workers are started"
            );
        } else {
            let threads = with_workers
                .iter()
                .filter_map(|(_, service, _)| service.io_threads());
            let io = IoThreads::start(threads.max().unwrap_or_else(default_io_threads))?;
            let setting = Setting {
                compat: settings.compat,
                server: settings.server,
                environment,
                development,
                incidents: tell,
            };
            let workers = self.prepare_workers(io, setting, &context).await?;
            context.workers = Some(WorkerContext {
                pools: workers.pools.clone(),
                io: workers.io.io().clone(),
            });
            _ = context.pools.set(workers.pools.clone()); // the server starts once
            self.workers = Some(workers);
        }
        let config = self.control.config();
        rpc::add(&context, &self.health, self.pools().as_ref(), config);
        self.control.starts(Starting {
            health: self.health.clone(),
            methods: context.rpc.clone(),
        });
        for (name, service, readiness) in with_workers {
            self.start_service(name, service, readiness, &context)
                .await?;
        }
        context.rpc.are_complete();
        self.watch_files(watching, &configuration, &context.folder);
        self.control.serves(Serving {
            addresses: self.addresses(),
            pools: self.pools(),
            health: self.health.clone(),
            caches: context.caches.clone(),
            methods: context.rpc.clone(),
            configuration: self.configuration.clone(),
            state: context.state.clone(),
        });
        Ok(())
    }

    /// The context of services without workers. Those with some get more.
    fn context(
        &self,
        folder: PathBuf,
        users: WorkerUsers,
        store: LazyStore,
        state: PathBuf,
        reserved: Reserved,
    ) -> Context {
        Context {
            shutdown: self.shutdown.clone(),
            reserved,
            rpc: Methods::default(),
            rpc_runtime: Some(self.rpc.runtime().clone()),
            folder,
            users,
            health: self.health.clone(),
            configuration: self.configuration.clone(),
            caches: Caches::default(),
            pages: Pages::default(),
            workers: None,
            pools: Arc::default(),
            metrics: Registry::default().named("pronghorn"),
            tracer: Tracer::default(),
            readiness: Readiness::default(),
            sockets: self.sockets.clone(),
            store,
            at_end: self.at_end.clone(),
            state,
        }
    }

    /// # Errors
    ///
    /// When the process before has its store elsewhere: nobody would run the jobs that are there.
    fn judge_move_to(&self, state: &Path) -> Result<(), StartError> {
        for directory in self.sockets.take(STATE) {
            let directory = File::from(directory);
            let place = |it: io::Result<Metadata>| it.ok().map(|it| (it.dev(), it.ino()));
            let before = place(directory.metadata());
            if before != place(fs::metadata(state)) {
                let name = format!("/proc/self/fd/{}", directory.as_raw_fd());
                return Err(StartError::Moved {
                    from: fs::read_link(name).unwrap_or_default(),
                    to: state.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Takes over the store of the process before, and answers what that one still asks.
    fn follow_predecessor(&mut self, context: &Context) -> Result<(), StartError> {
        // Before anybody opens the store.
        for socket in self.sockets.take(STORE) {
            self.for_before = Some(context.store.share());
            let taking_over = context.store.take_over(socket.into());
            let taking_over = taking_over.map_err(StartError::Predecessor)?;
            self.answering.spawn(async move {
                taking_over.await;
                Ok(())
            });
        }
        // Answered when it has something to ask, which is after this one has taken over.
        for calls in self.sockets.take(CALLS) {
            let stopping = self.answers.clone();
            let answer = answer_predecessor(calls.into(), context.rpc.clone(), stopping);
            self.answering.spawn_on(answer, self.rpc.runtime());
        }
        Ok(())
    }

    /// Watches files for the pools of a service each, or of all.
    fn watch_files(
        &mut self,
        watching: Vec<(Option<&'static str>, Watching)>,
        configuration: &[PathBuf],
        folder: &Path,
    ) {
        let Some(workers) = &mut self.workers else {
            return;
        };
        for (owner, watching) in watching {
            let (files, pools) = (configuration.to_vec(), workers.pools.clone());
            match Watch::start(watching, folder, files, pools, owner) {
                Ok(watch) => workers.watches.push(watch),
                Err(error) => {
                    tracing::warn!(target: "server", "files can't be watched: {error}");
                }
            }
        }
    }

    /// These files, and those that the server keeps in its state directory, are sent to no client.
    /// Something else may lie beside those.
    pub(crate) fn keep_to_itself(&mut self, mut files: Vec<PathBuf>) {
        self.own_files.clone_from(&files);
        let mut folders = Vec::new();
        if let Some(Places { state, .. }) = &self.places {
            files.extend(KEPT.map(|name| state.join(name)));
            folders.extend(KEPT_FOLDERS.map(|name| state.join(name)));
        }
        own_files::set(&files, &folders);
    }

    /// What all services with workers share; none is started yet.
    async fn prepare_workers(
        &self,
        io: IoThreads,
        setting: Setting,
        context: &Context,
    ) -> Result<Workers, StartError> {
        let Setting {
            compat,
            server,
            environment,
            development,
            incidents,
        } = setting;
        let (folder, users) = (&context.folder, &context.users);
        let relay = self.relay_listener(&server, folder, users)?;
        if let Some(on_init) = &server.on_init {
            let user = users.of_server().map(|(_, user)| user);
            run_on_init(on_init, &self.spawner, folder, &environment, user).await?;
        }
        let methods = WorkerMethods::new(&context.rpc, self.rpc.runtime().clone());
        let services = self.services.iter();
        let resources = PoolResources {
            users: users.clone(),
            folder: folder.clone(),
            variables: services
                .flat_map(|(_, service)| service.variables())
                .collect(),
            spawner: self.spawner.clone(),
            homes: io.io().homes(),
            metrics: context.metrics.clone(),
            relay: server.relay.clone(),
            listener: relay.clone(),
            answers: state::answers(&context.state, &environment),
            versions: Versions {
                roadrunner: compat.version(),
                pronghorn: VERSION,
            },
            development,
            incidents,
            methods: Some(Arc::new(methods)),
            storages: self
                .services
                .iter()
                .flat_map(|(_, service)| service.storages())
                .collect(),
        };
        Ok(Workers {
            pools: Pools::new(resources, server, environment),
            relay,
            watches: Vec::new(),
            _methods: context.rpc.clone(),
            io,
        })
    }

    async fn start_service(
        &mut self,
        name: &'static str,
        service: Box<dyn Service>,
        readiness: Readiness,
        context: &Context,
    ) -> Result<(), StartError> {
        let context = Context {
            readiness,
            ..context.clone()
        };
        let running = service.start(context).await;
        let running = running.map_err(|error| StartError::of_service(name, error))?;
        self.services.push((name, running));
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

    /// The process before, to be heeded by whoever heeds the signals of this one.
    pub const fn take_before(&mut self) -> Option<OtherProcess> {
        self.before.take()
    }

    /// The most that a stop takes, without the end of what another process does.
    pub fn longest_stop(&self) -> Duration {
        self.drain_delay.saturating_add(self.endure.grace_period)
    }

    /// Each service notes in the store what it has begun.
    pub(crate) async fn handed_over(&mut self) {
        for (_, service) in &mut self.services {
            service.handed_over().await;
        }
    }

    /// The socket that `server.relay` names. There is one for the workers of all pools: each tells
    /// its process.
    fn relay_listener(
        &self,
        server: &ServerSettings,
        folder: &Path,
        users: &WorkerUsers,
    ) -> Result<Option<Arc<RelayListener>>, StartError> {
        let address = match &server.relay {
            RelayAddress::Pipes => return Ok(None),
            RelayAddress::Unix(path) => RelaySocket::Unix(folder.join(path)),
            RelayAddress::Tcp(address) => RelaySocket::Tcp(*address),
        };
        let listener = RelayListener::open(&address, &users.all(), self.sockets.take(RELAY))?;
        self.sockets.offer(RELAY, listener.socket())?;
        Ok(Some(Arc::new(listener)))
    }

    fn relay(&self) -> Option<&RelayListener> {
        self.workers.as_ref()?.relay.as_deref()
    }

    /// By name, where clients reach each service.
    fn addresses(&self) -> Vec<(&'static str, Vec<String>)> {
        let services = self.services.iter();
        services
            .map(|(name, service)| (*name, service.addresses()))
            .collect()
    }

    /// Where clients reach the services that have workers, for the line that greets a person.
    pub fn places(&self) -> Vec<String> {
        let with_workers: Vec<_> = self.health.names().collect();
        let addresses = self.addresses().into_iter();
        let of_those = addresses.filter(|(name, _)| with_workers.contains(name));
        of_those.flat_map(|(_, at)| at).collect()
    }

    /// The pools of all services; none where no service has workers.
    pub fn pools(&self) -> Option<Pools> {
        Some(self.workers.as_ref()?.pools.clone())
    }

    /// The same one by one, for the line that greets a person.
    pub fn running_pools(&self) -> Vec<PoolHandle> {
        self.pools().map(|pools| pools.all()).unwrap_or_default()
    }

    pub(crate) async fn reload_workers(&self) {
        match self.pools() {
            Some(pools) => pools.reload(|_| true).await,
            None => tracing::warn!(target: "server", "there is no pool to reload"),
        }
    }

    /// How the server's own life is set up now.
    pub fn endure(&self) -> &EndureSettings {
        &self.endure
    }

    /// Stops the services in the reverse order of their start. All of it within the grace period,
    /// or after a handover the longer `reset_timeout`; what still runs then is ended, and a record
    /// says what that was. Before, unless another process has taken over, health checks say that
    /// nothing is ready, for as long as `drain_delay`.
    pub async fn stop(mut self) {
        let grace = if self.handed_over {
            let services = self.services.iter();
            let longest = services.map(|(_, service)| service.handover_time()).max();
            self.endure.grace_period.max(longest.unwrap_or_default())
        } else {
            self.sockets.close();
            self.endure.grace_period
        };
        self.control.stops();
        self.health.leave();
        if let Some(workers) = &mut self.workers {
            workers.watches.clear();
        }
        // After a handover, the next process answers health checks.
        if !self.handed_over && !self.drain_delay.is_zero() {
            let seconds = self.drain_delay.as_secs_f32();
            tracing::info!(
                target: "server",
                "draining: serving {seconds} s longer so that load balancers notice"
            );
            tokio::time::sleep(self.drain_delay).await;
        }
        let deadline = Instant::now() + grace;
        self.shutdown.cancel();
        let at_end = self.at_end.clone();
        if let Some(successor) = self.successor.take() {
            let at_end = at_end.carry_out(Some(successor));
            let store = self.places.as_ref().map(|places| places.store.clone());
            let lost = self.lost.take();
            let is_lost = CancellationToken::new();
            let lose = async {
                if let (Some(lost), Some(store)) = (lost, store) {
                    lost.await;
                    store.lose();
                    is_lost.cancel();
                }
                std::future::pending::<()>().await;
            };
            let stopped = async {
                tokio::join!(self.stop_services(deadline), at_end);
                // The process before may still have work, in a time of its own. It is done through
                // here, and so is what that one hands on in the end.
                let before = async { while self.answering.join_next().await.is_some() {} };
                _ = is_lost.run_until_cancelled(before).await; // then it is cut off, too
            };
            tokio::select! {
                () = stopped => {}
                () = lose => {}
            }
        } else {
            self.stop_services(deadline).await;
            self.answers.cancel();
            at_end.carry_out(None).await;
        }
        if let Some(store) = self.for_before.take() {
            store.close().await;
        }
        self.answering.shutdown().await;
    }

    async fn stop_services(&mut self, deadline: Instant) {
        while let Some((name, service)) = self.services.pop() {
            if let Stopped::CutOff(what) = service.stop(deadline).await {
                tracing::warn!(
                    target: "server", service = name,
                    "stopped at the end of the grace period: {what}"
                );
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
    "is not set, and the server runs as root: its workers and programs run as root, too, and \
     whoever breaks into the application becomes root",
    "write `server: {user: www-data}`, or another unprivileged user who can read the application, \
     or start the server as such a user; `server: {allow_root: true}` turns this warning off. Where \
     systemd starts it, the server does not start so",
);

/// Whether workers or programs run as root and nobody has asked for that.
pub(crate) fn run_as_root(settings: &Settings) -> bool {
    let mut services = settings.services.iter();
    settings.server.user.is_none()
        && !settings.server.allow_root
        && rustix::process::geteuid().is_root()
        && (services.any(|(_, service)| service.has_unnamed_user())
            || settings.pools().any(|(_, pool)| {
                // Those at addresses are somebody else's.
                pool.settings.common.user.is_none() && pool.settings.addresses().is_empty()
            }))
}

/// Whether this is a service of the machine: a unit of systemd's, which has `User=`. A container
/// and a terminal are none.
fn is_service() -> bool {
    let started = std::env::var("SYSTEMD_EXEC_PID");
    started.is_ok_and(|pid| pid == std::process::id().to_string())
}

/// The files to watch, and whose pools they are for; None: for all.
fn watching(
    written: Option<Vec<(&'static str, Watching)>>,
    development: bool,
) -> Vec<(Option<&'static str>, Watching)> {
    match written {
        Some(services) => {
            let services = services.into_iter();
            services
                .map(|(name, watching)| (Some(name), watching))
                .collect()
        }
        None if development => vec![(None, Watching::for_development())],
        None => Vec::new(),
    }
}

/// Whether the configuration is RoadRunner's, which is to serve as it is.
fn is_roadrunners(configuration: &[PathBuf]) -> bool {
    let main = configuration.first();
    main.is_some_and(|file| pronghorn_config::is_roadrunners(file))
}

/// # Errors
///
/// When one of the users that workers are to have is none, or may not be had.
pub(crate) fn worker_users(settings: &Settings) -> Result<WorkerUsers, UserError> {
    let pools = settings.pools();
    let pools = pools.map(|(_, pool)| (pool.section, pool.name, pool.settings));
    WorkerUsers::look_up(&settings.server, pools)
}
