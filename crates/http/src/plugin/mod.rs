//! HTTP with its pool of workers, as a service.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_acme::Acme;
use pronghorn_base::lock;
use pronghorn_config::{Listen, Table};
use pronghorn_metrics::Registry;
use pronghorn_plugin_api::{
    self as api, BoxFuture, Caches, ConfiguredPool, Context, Finding, Handover, Machine, Reload,
    Running, Stopped, WorkerContext,
};
use pronghorn_pool::{Spool, Terms, Warmup};
use pronghorn_process::Credentials;
use pronghorn_process::open_files::{self, Reserved};
use pronghorn_proxy::{Terms as Forwarding, Upstream};
use pronghorn_serve::{Accepting, Addresses, Handler, Limits, Listener, Service};
use pronghorn_store::LazyStore;
use pronghorn_trace::Tracer;
use pronghorn_wire::Kind;
use pronghorn_workers::settings::{HttpPoolSettings, Mode, RequestBody};
use pronghorn_workers::{
    Io, PoolHandle, PoolSet, PoolSpec, Pools, ServerSettings, StartedPools, WorkerUsers,
};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

mod error;
mod fileserver;
mod gate;
mod listening;
mod look;
mod pages;

use crate::basic_auth::{Guards, UserFiles};
use crate::body::BodySettings;
use crate::bridge::PoolHandler;
use crate::development::{Changes, Development, Reloading};
use crate::files::FileCaches;
use crate::local_redirects::{LocalRedirects, Redirecting};
use crate::middleware::{self, Parts, Unusable};
use crate::pool_metrics::PoolMetrics;
use crate::rate_limit::RateLimit;
use crate::route_names::RouteNames;
use crate::router::{OwnRouter, Refusing, Routed, Router};
use crate::scripts::{Mount, Scripts};
use crate::settings::{AccessLogSettings, DEFAULT_POOL, HttpSettings, RouteSettings};
use crate::slow_log::SlowLog;
use crate::upstreams::{UpstreamHandler, Upstreams};
use crate::warmup::{warmup, warmup_of_scripts};

pub use fileserver::FileService;

use error::StartError;
use gate::Gate;
use listening::Certificates;

/// The name of the service.
const HTTP: &str = "http";
/// What `reset` empties the cache of files by, as in RoadRunner 3.
const STATIC: &str = "static";
/// The channel of the log with the lines of `http.access_log`.
const ACCESS: &str = "access";
/// Of what is left, in case the rest needs some for a moment.
const FEWEST_CONNECTIONS: u64 = 64;
/// Fewer are worth a word: a handful of browsers has as many.
const FEW_CONNECTIONS: usize = 256;
/// How often a stop says what it waits for.
const STILL_WAITING: Duration = Duration::from_secs(5);

/// HTTP before its start.
#[derive(Debug)]
pub struct HttpService {
    pub settings: HttpSettings,
    /// What stands before the routes.
    pub around: Around,
    /// A handler before the pools: behind what a route asks for.
    pub beside_pools: Around,
}

/// A handler of one's own around that of the routes: it answers itself, or hands a request on.
/// Called at the start and for each reload. Middleware is around both.
#[derive(Clone, Default)]
pub struct Around(Option<Arc<Wrap>>);

type Wrap = dyn Fn(Arc<dyn Handler>) -> Arc<dyn Handler> + Send + Sync;

impl Around {
    pub fn new(
        wrap: impl Fn(Arc<dyn Handler>) -> Arc<dyn Handler> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(wrap)))
    }

    /// The handler with this one around it.
    #[must_use]
    pub fn put(&self, handler: Arc<dyn Handler>) -> Arc<dyn Handler> {
        match &self.0 {
            Some(wrap) => wrap(handler),
            None => handler,
        }
    }
}

impl fmt::Debug for Around {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.0.is_some() { "own" } else { "none" };
        write!(f, "Around({what})")
    }
}

/// What stays when a reload brings other settings.
#[derive(Debug)]
struct HttpResources {
    users: WorkerUsers,
    folder: PathBuf,
    /// In development, the generations of workers.
    changes: Option<Changes>,
    stopping: CancellationToken,
    around: Around,
    beside_pools: Around,
    spools: Vec<Spools>,
    /// Where requests without TLS are sent, if they are.
    https_port: Option<u16>,
    http3_ports: Vec<u16>,
    /// Answers authorities that ask whose a name is.
    acme: Option<Arc<Acme>>,
    addresses: Arc<Addresses>,
    metrics: Registry,
    caches: Caches,
    file_caches: Arc<FileCaches>,
    user_files: UserFiles,
    /// By the names of pools; they stay over a reload, with what they have learned.
    route_names: Mutex<HashMap<String, Arc<RouteNames>>>,
    tracer: Tracer,
    upstreams: Upstreams,
}

/// Where the bodies of requests lie that workers of one user read.
#[derive(Debug)]
struct Spools {
    /// None is the server's own.
    user: Option<Credentials>,
    bodies: Arc<Spool>,
    uploads: Arc<Spool>,
}

impl Spools {
    /// For each user that workers have.
    fn open(
        users: &WorkerUsers,
        settings: &HttpSettings,
        folder: &Path,
    ) -> Result<Vec<Self>, StartError> {
        let mut all: Vec<Self> = Vec::new();
        for user in users.all() {
            let open = |at: &Path| {
                let opened = Spool::below(folder, at, user.clone());
                opened.map(Arc::new).map_err(StartError::Spool)
            };
            let bodies = open(&settings.spool_dir)?;
            let uploads = open(&settings.uploads.dir)?;
            all.push(Self {
                user,
                bodies,
                uploads,
            });
        }
        Ok(all)
    }
}

impl Spools {
    /// What their files take is read from here.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a disk may be rounded")]
    fn register(&self, metrics: &Registry) {
        for spool in [&self.bodies, &self.uploads] {
            let folder = spool.folder().to_string_lossy();
            let metrics = metrics.labelled("folder", &folder);
            let (used, limit) = (spool.clone(), spool.clone());
            metrics.present(
                "spool_bytes",
                "What files of long bodies take, together with those of other folders on the disk.",
                move || used.usage().0 as f64,
            );
            metrics.computed(
                "spool_max_bytes",
                "What they may take: half of what was free at the start.",
                move || limit.usage().1 as f64,
            );
        }
    }
}

/// What requests under way get. Which of them belong to which pool is not known from outside: the
/// slowest one counts.
#[derive(Debug, Clone, Copy, Default)]
struct Patience {
    /// When the server stops.
    stop: Duration,
    /// When another process has taken over: to clients it is a reload.
    handover: Duration,
}

impl Patience {
    fn of(settings: &HttpSettings) -> Self {
        let pools = || settings.running_pools().map(|(_, pool)| pool);
        let stop = pools()
            .map(|pool| pool.workers.common.destroy_timeout)
            .max();
        let handover = pools().map(|pool| pool.workers.common.reset_timeout).max();
        Self {
            stop: stop.unwrap_or_default(),
            handover: handover.unwrap_or_default(),
        }
    }
}

/// Roots by the names of their pools, and how routes show them.
type Sites = HashMap<(String, Mount), Arc<Scripts>>;

/// What the handlers of all routes share.
struct RouteContext {
    bodies: BodySettings,
    sites: Sites,
    local_redirects: Arc<LocalRedirects>,
    own_router: Arc<OwnRouter>,
    upstreams: HashMap<String, Arc<Upstream>>,
    /// By the names of pools; none where nobody reads metrics.
    metrics: HashMap<String, Arc<PoolMetrics>>,
}

/// HTTP at work.
struct Http {
    service: Arc<Service>,
    /// Until clients are taken from them.
    listeners: Vec<Listener>,
    accepting: Vec<Accepting>,
    urls: Vec<String>,
    resources: HttpResources,
    tls: Option<Certificates>,
    all_pools: Pools,
    pools: PoolSet,
    tasks: JoinSet<()>,
    patience: Patience,
    /// Clients are another process's.
    handed_over: bool,
    _certificates: JoinSet<()>,
    /// Fetches certificates while clients are this process's.
    fetching: JoinSet<()>,
    state: LazyStore,
    io: Io,
}

/// What is left at the end to connections without a request, for one that may be on its way. So
/// short that Ctrl-C feels immediate.
const IDLE_AT_STOP: Duration = Duration::from_millis(100);
/// A client that asks every few seconds hears of the end in a reply, and not by a connection that
/// is gone.
const IDLE_AT_HANDOVER: Duration = Duration::from_secs(5);

impl api::Service for HttpService {
    fn pools(&self) -> Vec<ConfiguredPool<'_>> {
        let pools = self.settings.running_pools();
        pools.map(|(name, pool)| configured(name, pool)).collect()
    }

    fn check(&self, t: &mut Table<'_>, server: &ServerSettings) {
        look::check_commands(t, &self.settings, server);
        look::check_otel(t, &self.settings);
        look::check_rewrites(t, &self.settings);
    }

    fn listens(&self) -> Vec<Listen> {
        let listeners = self.settings.listeners().into_iter();
        listeners.filter_map(|listener| listener.at).collect()
    }

    fn look(&self, machine: &Machine<'_>) -> Vec<Finding> {
        let mut found = look::look(&self.settings, machine.directory);
        if let Some(wanted) = self.settings.max_connections {
            let possible = connections(open_files::raise(), machine.reserved);
            let key = "http.max_connections".to_owned();
            found.extend(machine.lacks_open_files(key, wanted, possible));
        }
        found
    }

    fn log_channels(&self) -> Vec<(&'static str, &[String])> {
        let access = self.settings.access_log.iter();
        access.map(|log| (ACCESS, &log.output[..])).collect()
    }

    fn io_threads(&self) -> Option<usize> {
        Some(self.settings.threads)
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, api::StartError>> {
        Box::pin(async move { Ok(Box::new((*self).start(&context).await?) as Box<dyn Running>) })
    }
}

/// How a route shows the root of its pool.
fn mount(route: &RouteSettings) -> Mount {
    Mount {
        prefix: route.strip_prefix.clone().unwrap_or_default(),
        answering: route.scripts,
    }
}

fn configured<'a>(name: &'a str, pool: &'a HttpPoolSettings) -> ConfiguredPool<'a> {
    let section = match name {
        DEFAULT_POOL => "http.pool".to_owned(),
        name => format!("http.pools.{name}"),
    };
    let settings = &pool.workers;
    ConfiguredPool {
        section,
        name,
        settings,
    }
}

impl HttpService {
    /// Listening sockets come first, so that a taken port is known at once; connections are
    /// accepted when all workers are up.
    async fn start(self, context: &Context) -> Result<Http, api::StartError> {
        let settings = &self.settings;
        let workers = context.workers.as_ref();
        let WorkerContext {
            pools: all_pools,
            io,
        } = workers.expect("a service with workers").clone();
        let of_server = all_pools.resources();
        let folder = of_server.folder.clone();
        let spools = Spools::open(&of_server.users, settings, &folder)?;
        let tls = Certificates::load(settings, context)?;
        let listeners = listening::open(settings, tls.as_ref(), context)?;
        if let Some(acme) = tls.as_ref().and_then(Certificates::acme) {
            acme.register(&context.metrics.named(HTTP));
        }
        pages::add(&context.pages, context.metrics.clone());
        let resources = HttpResources {
            users: of_server.users.clone(),
            folder,
            changes: of_server.development.then(Changes::default),
            stopping: context.shutdown.clone(),
            around: self.around.clone(),
            beside_pools: self.beside_pools.clone(),
            spools,
            https_port: listening::https_port(&listeners),
            http3_ports: listening::http3_ports(&listeners),
            acme: tls.as_ref().and_then(Certificates::acme).cloned(),
            addresses: Arc::default(),
            metrics: context.metrics.named(HTTP),
            caches: context.caches.clone(),
            file_caches: Arc::default(),
            user_files: UserFiles::default(),
            route_names: Mutex::default(),
            tracer: context.tracer.clone(),
            upstreams: Upstreams::default(),
        };
        resources
            .addresses
            .set(settings.max_per_address, settings.client.subnets());
        if let Some(metrics) = resources.read_metrics() {
            resources
                .spools
                .iter()
                .for_each(|spools| spools.register(metrics));
        }
        let specs = resources.specs(settings);
        let StartedPools { pools, mut tasks } = all_pools.start(HTTP, &specs).await?;
        if let Some(changes) = &resources.changes {
            for pool in pools.iter() {
                tasks.spawn(changes.follow(pool.standing()));
            }
        }
        let handler = resources.handler(settings, &pools)?;
        let mut limits = Limits {
            http2: settings.http2,
            ..settings
                .timeouts
                .limits(self.connections(&context.reserved))
        };
        limits.receive.fields = settings.max_header_fields;
        limits.memory = usize::try_from(settings.client_memory.bytes()).unwrap_or(usize::MAX);
        let service = Service::new(
            handler,
            limits,
            resources.addresses.clone(),
            resources.read_metrics(),
            Some(resources.spools[0].bodies.clone()),
        );
        let stopping = context.shutdown.clone();
        context
            .readiness
            .answer_by_pools(&pools, stopping, || Ok(()));
        Ok(Http {
            service,
            urls: listeners.iter().map(Listener::url).collect(),
            listeners,
            accepting: Vec::new(),
            _certificates: Certificates::watch(tls.as_ref()),
            fetching: JoinSet::new(),
            state: context.store.clone(),
            tls,
            resources,
            all_pools,
            pools,
            tasks,
            patience: Patience::of(settings),
            handed_over: false,
            io,
        })
    }

    /// Connections in all: what was asked for, as far as there are descriptors for them.
    fn connections(&self, reserved: &Reserved) -> usize {
        let open_files = open_files::raise();
        let possible = connections(open_files, reserved);
        match self.settings.max_connections {
            Some(wanted) if wanted > possible => {
                tracing::warn!(
                    target: "server", wanted, possible,
                    "`http.max_connections` exceeds the limit of open files of this process: raise \
                     that limit"
                );
                possible
            }
            None if possible < FEW_CONNECTIONS => {
                tracing::warn!(
                    target: "server", open_files, connections = possible,
                    "the limit of open files leaves few connections to `http`: raise that limit \
                     (`ulimit -n`, `LimitNOFILE` of systemd)"
                );
                possible
            }
            wanted => wanted.unwrap_or(possible),
        }
    }
}

impl HttpResources {
    fn specs<'a>(&self, settings: &'a HttpSettings) -> Vec<PoolSpec<'a>> {
        let spec = |(name, pool): (_, &'a HttpPoolSettings)| PoolSpec {
            name,
            settings: &pool.workers,
            kind: Kind::Http,
            warmup: self.warmup(pool),
            spool: self.spools_of(name).bodies.clone(),
        };
        settings.running_pools().map(spec).collect()
    }

    /// Of a pool's user.
    fn spools_of(&self, pool: &str) -> &Spools {
        let user = self.users.of_pool(pool).map(|(_, user)| user);
        let mut spools = self.spools.iter();
        let of_user = spools.find(|spools| spools.user.as_ref() == user);
        of_user.expect("there are some for each user")
    }

    fn warmup(&self, pool: &HttpPoolSettings) -> Warmup {
        let targets = &pool.warmup;
        match pool.workers.site() {
            Some(site) => {
                let root = self.folder.join(&site.root).components().collect();
                warmup_of_scripts(targets, site, pool.workers.mode(), root)
            }
            None => warmup(targets),
        }
    }

    /// What all requests go to: middleware, then the routes, then a pool.
    fn handler(
        &self,
        settings: &HttpSettings,
        pools: &PoolSet,
    ) -> Result<Arc<dyn Handler>, Unusable> {
        let bodies = BodySettings {
            max_size: settings.max_request_size.bytes(),
            raw: settings.raw_body,
            stream: false,
            forms: settings.forms.0,
            spool: self.spools[0].bodies.clone(),
            uploads: self.spools[0].uploads.clone(),
            forbid: settings.uploads.forbid.clone(),
            allow: settings.uploads.allow.clone(),
        };
        let pool_metrics = |(name, _): (&str, _)| {
            let metrics = PoolMetrics::new(self.read_metrics()?, name);
            Some((name.to_owned(), Arc::new(metrics)))
        };
        let behind = RouteContext {
            metrics: settings.running_pools().filter_map(pool_metrics).collect(),
            bodies,
            sites: self.sites(settings)?,
            local_redirects: Arc::default(),
            own_router: Arc::default(),
            upstreams: self.upstreams.set(&settings.upstreams, self.read_metrics()),
        };
        let guards = Guards::open(settings, &self.folder, &self.user_files);
        let guards = guards.map_err(Unusable::users)?;
        let of_scripts = |(name, pool): (&str, &HttpPoolSettings)| {
            let is_script = pool.workers.site().is_none();
            is_script.then(|| pools.get(name)).flatten()
        };
        let workers: Vec<_> = settings.running_pools().filter_map(of_scripts).collect();
        let scripts = workers.iter().flat_map(|pool| &pool.info().scripts);
        let scripts: Vec<_> = scripts.map(String::as_str).collect();
        let routes = settings.compile(&scripts, |route| {
            let handler = self.behind(route, settings, pools, &behind);
            let limit = route.rate_limit.as_ref().map(RateLimit::new);
            Routed::new(handler, guards.of(route), limit.map(Arc::new))
        });
        let innermost = match routes.only() {
            Some(only) => only.handler.clone(),
            None => {
                let has_limits = settings.routes.iter().any(|it| it.rate_limit.is_some());
                let router = Arc::new(Router::new(routes, has_limits));
                behind.own_router.set(&router);
                router
            }
        };
        let folder = &self.folder;
        let addresses = &self.addresses;
        let parts = Parts {
            settings,
            folder,
            https_port: self.https_port,
            http3_ports: &self.http3_ports,
            addresses,
            file_caches: &self.file_caches,
            guards: &guards,
            recorder: self.tracer.recorder(),
        };
        if settings.files.is_some() {
            let files = self.file_caches.clone();
            self.caches.add(STATIC, move || files.forget());
        }
        let mut handler = self.around.put(innermost.clone());
        if let Some(changes) = self.changes.clone().filter(|_| settings.development.reload) {
            let stopping = self.stopping.clone();
            let next = handler;
            handler = Arc::new(Reloading {
                next,
                changes,
                stopping,
            });
        }
        let mut handler = middleware::chain(handler, parts)?;
        if let Some(acme) = &self.acme {
            handler = acme.answering(handler);
        }
        let has_programs = |(_, pool): (_, &HttpPoolSettings)| pool.workers.mode() == Mode::Cgi;
        if !settings.running_pools().any(has_programs) {
            return Ok(handler);
        }
        let found = middleware::by_path(innermost, parts)?;
        behind.local_redirects.set(&found);
        Ok(Arc::new(Redirecting {
            next: handler,
            _found: found,
        }))
    }

    /// The roots of pools that run scripts, in each way in which routes show them.
    fn sites(&self, settings: &HttpSettings) -> Result<Sites, Unusable> {
        let mut sites = Sites::new();
        for (name, pool) in settings.running_pools() {
            let Some(site) = pool.workers.site() else {
                continue;
            };
            // Without doubled slashes and one at its end: it is what scripts see.
            let root: PathBuf = self.folder.join(&site.root).components().collect();
            let routes = settings.routes.iter().filter(|it| it.leads_to(name));
            for mount in routes.map(mount).chain([Mount::default()]) {
                let place = (name.to_owned(), mount);
                if sites.contains_key(&place) {
                    continue;
                }
                let opened = Scripts::open(site, pool.workers.mode(), root.clone(), &place.1);
                let scripts = opened.map_err(|source| Unusable {
                    key: "root",
                    path: root.clone(),
                    source,
                })?;
                sites.insert(place, Arc::new(scripts));
            }
        }
        Ok(sites)
    }

    /// Where requests are counted, if somebody reads it: else that would be work for nothing.
    fn read_metrics(&self) -> Option<&Registry> {
        self.metrics.has_reader().then_some(&self.metrics)
    }

    /// Those of a pool, if somebody reads metrics, or the names themselves.
    fn route_names(&self, settings: &HttpSettings, pool: &str) -> Option<Arc<RouteNames>> {
        let log = settings.access_log.as_ref();
        if self.read_metrics().is_none() && !log.is_some_and(AccessLogSettings::shows_route) {
            return None;
        }
        let metrics = self.metrics.labelled("pool", pool);
        let mut known = lock(&self.route_names);
        let names = || Arc::new(RouteNames::new(&metrics));
        Some(known.entry(pool.to_owned()).or_insert_with(names).clone())
    }

    fn behind(
        &self,
        route: &RouteSettings,
        settings: &HttpSettings,
        pools: &PoolSet,
        behind: &RouteContext,
    ) -> Arc<dyn Handler> {
        let RouteContext {
            bodies,
            sites,
            local_redirects,
            own_router,
            upstreams,
            metrics,
        } = behind;
        if let Some(status) = route.refuse {
            return Arc::new(Refusing(status));
        }
        let max_size = route.max_request_size.unwrap_or(settings.max_request_size);
        if let Some(name) = &route.upstream {
            let upstream = upstreams
                .get(name)
                .expect("routes lead to upstreams that are there");
            let handler = UpstreamHandler {
                name: name.clone(),
                upstream: upstream.clone(),
                terms: Forwarding {
                    max_size: max_size.bytes(),
                    strip_prefix: route.strip_prefix.clone(),
                },
                access_logs: settings.access_logs,
            };
            return handler.into_handler();
        }
        let mut running = settings.running_pools();
        let (name, pool) = running
            .find(|(name, _)| *name == route.pool)
            .expect("routes lead to pools that run");
        let workers = pools.get(name).expect("it was started");
        let scripts = sites.get(&(name.to_owned(), mount(route))).cloned();
        let in_development = self.changes.is_some();
        let spools = self.spools_of(name);
        // A script at an address has a user whom this server does not know: it must not get root's
        // rights by naming a file.
        let is_foreign = !pool.workers.addresses().is_empty();
        let unknown = (is_foreign && Credentials::may_change()).then(Credentials::nobody);
        let worker_user = spools.user.clone().or(unknown).map(Arc::new);
        let development = Arc::new(Development {
            editor: settings.development.editor.clone(),
            worker_user: worker_user.clone(),
        });
        let shows_errors = in_development || pool.workers.is_debug();
        let handler = PoolHandler {
            pool: workers.pool().clone(),
            terms: Terms {
                // In development somebody may sit in a debugger.
                deadline: route.terms.deadline.filter(|_| !in_development),
                ..route.terms
            },
            bodies: BodySettings {
                max_size: max_size.bytes(),
                // PHP takes the bodies of scripts apart itself.
                raw: bodies.raw || scripts.is_some(),
                stream: scripts.is_none()
                    && route.request_body.unwrap_or(pool.request_body) == RequestBody::Stream,
                spool: spools.bodies.clone(),
                uploads: spools.uploads.clone(),
                ..bodies.clone()
            },
            internal_error_code: settings.internal_error_code,
            development: shows_errors.then(|| development.clone()),
            access_logs: settings.access_logs,
            server_timing: settings.server_timing || shows_errors,
            shows_split: settings
                .access_log
                .as_ref()
                .is_some_and(AccessLogSettings::shows_split),
            metrics: metrics.get(name).cloned(),
            routes: self.route_names(settings, name),
            slow: route
                .terms
                .slow
                .or(pool.workers.common.slow)
                .map(SlowLog::new)
                .map(Arc::new),
            retry: pool.retry,
            worker_user,
            scripts,
            local_redirects: local_redirects.clone(),
            own_router: own_router.clone(),
        };
        let mut handler: Arc<dyn Handler> = handler.into_handler();
        if in_development {
            handler = Arc::new(Gate {
                next: handler,
                standing: workers.standing(),
                development,
                reloads: settings.development.reload,
            });
        }
        self.beside_pools.put(handler)
    }
}

impl Running for Http {
    fn open(&mut self) -> Result<(), api::StartError> {
        for listener in self.listeners.drain(..) {
            let accepting = listener.serve(self.io.threads(), &self.service)?;
            accepting.set_ours(true);
            self.accepting.push(accepting);
        }
        self.fetching = Certificates::fetch(self.tls.as_ref(), &self.state);
        Ok(())
    }

    fn addresses(&self) -> Vec<String> {
        self.urls.clone()
    }

    fn handover_time(&self) -> Duration {
        self.patience.handover
    }

    fn reload(&mut self, to: Box<dyn api::Service>) -> BoxFuture<'_, Reload> {
        Box::pin(async move {
            match to.downcast::<HttpService>() {
                Some(to) => self.go_over_to(&to.settings).await,
                None => Reload::NeedsRestart,
            }
        })
    }

    fn hand_over(&mut self, step: Handover) {
        for accepting in &self.accepting {
            accepting.set_ours(step != Handover::Done);
        }
        if step == Handover::Done {
            // Clients that wait in the kernel are the next process's.
            self.accepting.drain(..).for_each(Accepting::hand_over);
            self.handed_over = true;
            self.fetching.abort_all();
        }
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(Self::stop(*self, deadline))
    }
}

impl Http {
    /// Replaces all workers by those of other settings, and then handles requests by these. Where
    /// something that they name can't be used, or a pool keeps what it had, requests are handled as
    /// before.
    async fn go_over_to(&mut self, settings: &HttpSettings) -> Reload {
        let wanted: Vec<&str> = settings.running_pools().map(|(name, _)| name).collect();
        let running: Vec<&str> = self.pools.iter().map(PoolHandle::name).collect();
        if wanted != running {
            tracing::warn!(
                target: "server", running = running.join(", "), wanted = wanted.join(", "),
                "pools were added or removed: `http` is applied by an upgrade (SIGUSR2) or a \
                 restart"
            );
            return Reload::NeedsRestart;
        }
        let handler = match self.resources.handler(settings, &self.pools) {
            Ok(handler) => handler,
            Err(error) => {
                let why = &error.source;
                tracing::error!(
                    target: "server",
                    "reload failed, nothing has changed: {error}: {why}"
                );
                return Reload::Failed;
            }
        };
        let read = match &self.tls {
            Some(tls) => tls.read(settings, &self.resources.folder).await,
            None => Ok(None),
        };
        let certificates = match read {
            Ok(certificates) => certificates,
            Err(error) => {
                tracing::error!(
                    target: "server",
                    "reload failed, nothing has changed; the old certificates stay in use: {error}"
                );
                return Reload::Failed;
            }
        };
        let specs = self.resources.specs(settings);
        if !self.all_pools.change(HTTP, &self.pools, &specs).await {
            return Reload::Failed;
        }
        self.resources
            .addresses
            .set(settings.max_per_address, settings.client.subnets());
        self.patience = Patience::of(settings);
        self.service.set_handler(handler);
        if let (Some(tls), Some(read)) = (&self.tls, certificates) {
            tls.renew(read);
        }
        if let Some(acme) = &self.resources.acme {
            acme.try_again();
        }
        Reload::Applied
    }

    /// No new connections, requests under way finish within the pools' `destroy_timeout`, then the
    /// workers end. After a handover it is `reset_timeout`: to the client, all that happens is a
    /// reload.
    async fn stop(self, deadline: Instant) -> Stopped {
        let Patience { stop, handover } = self.patience;
        let (requests, idle) = if self.handed_over {
            (handover, IDLE_AT_HANDOVER)
        } else {
            (stop, IDLE_AT_STOP)
        };
        let cut_at = deadline.min(Instant::now() + requests);
        let drained = async {
            let mut drained = std::pin::pin!(self.service.drain(idle));
            loop {
                tokio::select! {
                    () = &mut drained => return,
                    () = tokio::time::sleep(STILL_WAITING) => tracing::info!(
                        target: "server",
                        connections = self.service.open(),
                        waiting = self.pools.waiting(),
                        "stopping: requests in progress have {} s left", left(cut_at).as_secs(),
                    ),
                }
            }
        };
        let in_time = tokio::time::timeout_at(cut_at, drained).await.is_ok();
        drop(self.accepting);
        let cut = self.service.open();
        let (pools, tasks) = (self.pools, self.tasks);
        let killed = StartedPools { pools, tasks }.end(in_time, deadline).await;
        for spools in &self.resources.spools {
            for spool in [&spools.bodies, &spools.uploads] {
                _ = tokio::time::timeout_at(deadline, spool.settle()).await;
            }
        }
        Stopped::by(cut, killed)
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn connections(open_files: u64, reserved: &Reserved) -> usize {
    let left = open_files.saturating_sub(reserved.of(open_files));
    usize::try_from(left.max(FEWEST_CONNECTIONS)).unwrap_or(usize::MAX)
}
