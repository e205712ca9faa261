//! HTTP with its pool of workers, as a service.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_config::Address;
use pronghorn_http::files::MOST_OPEN;
use pronghorn_http::middleware::{self, Parts, Unusable};
use pronghorn_http::settings::{HttpSettings, RouteSettings};
use pronghorn_http::{
    Accepting, Addresses, BodySettings, Handler, Limits, Listener, LocalRedirects, Place,
    PoolHandler, Router, Scripts, Service,
};
use pronghorn_plugin_api::{
    self as api, BoxFuture, Context, Handover, NotReady, Running, Stopped, WorkerContext,
};
use pronghorn_pool::settings::{PoolSettings, RequestBody};
use pronghorn_pool::{Spool, Terms, Warmup};
use pronghorn_workers::{
    Io, PoolHandle, PoolSet, PoolSpec, Pools, StartedPools, Watch, Watching, WorkerUser,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::development::Gate;
use crate::error::StartError;
use crate::listening::{self, Certificates};
use crate::server::Around;
use crate::settings::ServerSettings;

/// The name of the service.
pub(crate) const HTTP: &str = "http";
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
    pub(crate) watching: Option<Watching>,
    pub(crate) configuration: Vec<PathBuf>,
    /// What stands before the routes.
    pub(crate) around: Around,
    pub(crate) open_files: u64,
    /// Filled when it has started.
    pub(crate) site: Arc<OnceLock<HttpHandle>>,
}

/// What others may know of HTTP.
#[derive(Debug)]
pub(crate) struct HttpHandle {
    /// Where clients are taken, and whether with TLS, in the order of the configuration.
    pub(crate) places: Vec<(Place, bool)>,
    pub(crate) pools: PoolSet,
    all_pools: Pools,
    ground: HttpResources,
    service: Arc<Service>,
    tls: Option<Certificates>,
}

/// What stays when a reload brings other settings.
#[derive(Debug)]
struct HttpResources {
    user: Option<WorkerUser>,
    folder: PathBuf,
    development: bool,
    around: Around,
    spool: Arc<Spool>,
    uploads: Arc<Spool>,
    /// Where requests without TLS are sent, if they are.
    https_port: Option<u16>,
    addresses: Arc<Addresses>,
    patience: Arc<Mutex<Patience>>,
}

/// What requests under way get. Which of them belong to which pool is not known from outside: the slowest one counts.
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
        let stop = pools().map(|pool| pool.destroy_timeout).max();
        let handover = pools().map(|pool| pool.reset_timeout).max();
        Self {
            stop: stop.unwrap_or_default(),
            handover: handover.unwrap_or_default(),
        }
    }
}

/// Roots by the names of their pools, and the paths below which they lie.
type Sites = HashMap<(String, String), Arc<Scripts>>;

/// What the handlers of all routes share.
struct RouteContext {
    bodies: BodySettings,
    sites: Sites,
    local_redirects: Arc<LocalRedirects>,
}

/// HTTP at work.
struct Http {
    service: Arc<Service>,
    /// Until clients are taken from them.
    listeners: Vec<Listener>,
    accepting: Vec<Accepting>,
    pools: PoolSet,
    tasks: JoinSet<()>,
    patience: Arc<Mutex<Patience>>,
    /// Clients are another process's.
    handed_over: bool,
    _watch: Option<Watch>,
    _certificates: JoinSet<()>,
    /// For bodies, and for uploads.
    spools: [Arc<Spool>; 2],
    io: Io,
}

/// What is left at the end to connections without a request, for one that may be on its way. So short that Ctrl-C feels immediate.
const IDLE_AT_STOP: Duration = Duration::from_millis(100);
/// What workers get that have a call when its time at the end is over. Those without one need no more to end in order.
const WORKERS_AFTER_CUT: Duration = Duration::from_secs(2);
/// A client that asks every few seconds hears of the end in a reply, and not by a connection that is gone.
const IDLE_AT_HANDOVER: Duration = Duration::from_secs(5);

impl api::Service for HttpService {
    fn name(&self) -> &'static str {
        HTTP
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
        let workers = context.workers.as_ref();
        let WorkerContext {
            pools: all_pools,
            io,
        } = workers.expect("a service with workers").clone();
        let resources = all_pools.resources();
        let folder = resources.folder.clone();
        let owner = resources.user.as_ref().map(|(_, user)| user.clone());
        let open = |others: &[&Spool], folder: &PathBuf| {
            Spool::beside(others, resources.folder.join(folder), owner.clone())
                .map(Arc::new)
                .map_err(StartError::Spool)
        };
        let spool = open(&[], &settings.spool_dir)?;
        let uploads = open(&[&spool], &settings.uploads.dir)?;
        let tls = Certificates::load(settings, &folder)?;
        let listeners =
            listening::open(settings, &folder, io.threads().len(), tls.as_ref(), context)?;
        let ground = HttpResources {
            user: resources.user.clone(),
            folder,
            development: resources.development,
            around: self.around.clone(),
            spool,
            uploads,
            https_port: listening::https_port(&listeners),
            addresses: Arc::default(),
            patience: Arc::new(Mutex::new(Patience::of(settings))),
        };
        let patience = ground.patience.clone();
        ground.addresses.set(settings);
        let specs = ground.specs(settings);
        let StartedPools { pools, tasks } = all_pools
            .start(HTTP, &specs)
            .await
            .map_err(StartError::Boot)?;
        let watch = self.watch(&ground.folder, &all_pools);

        let handler = ground.handler(settings, &pools)?;
        let workers = pools.iter().map(|pool| pool.info().size).sum();
        let mut limits = Limits {
            http2: settings.http2,
            ..settings.timeouts.limits(self.connections(workers))
        };
        limits.receive.fields = settings.max_header_fields;
        let service = Service::new(handler, limits, ground.addresses.clone());
        let (asked, draining) = (pools.clone(), context.shutdown.clone());
        let alive = pools.clone();
        context.readiness.answer_apart(
            move || {
                if draining.is_cancelled() {
                    return Err(NotReady("stopping".into()));
                }
                asked
                    .iter()
                    .try_for_each(PoolHandle::ready)
                    .map_err(not_ready)
            },
            move || {
                alive
                    .iter()
                    .try_for_each(PoolHandle::alive)
                    .map_err(not_ready)
            },
        );
        let watched = Certificates::watch(tls.as_ref());
        let places = listeners.iter();
        let spools = [ground.spool.clone(), ground.uploads.clone()];
        let site = HttpHandle {
            places: places
                .map(|listener| (listener.place().clone(), listener.has_tls()))
                .collect(),
            tls,
            pools: pools.clone(),
            all_pools,
            ground,
            service: service.clone(),
        };
        _ = self.site.set(site); // a service starts once
        Ok(Http {
            service,
            listeners,
            accepting: Vec::new(),
            pools,
            tasks,
            patience,
            handed_over: false,
            _watch: watch,
            _certificates: watched,
            spools,
            io,
        })
    }

    /// Connections in all: what was asked for, as far as there are descriptors for them.
    fn connections(&self, workers: usize) -> usize {
        let open_files = self.open_files.saturating_sub(cached_files(&self.settings));
        let possible = connections(open_files, workers);
        match self.settings.max_connections {
            Some(wanted) if wanted > possible => {
                tracing::warn!(
                    target: "server", wanted, possible,
                    "`http.max_connections` is more than the process may have: raise its limit of open files"
                );
                possible
            }
            wanted => wanted.unwrap_or(possible),
        }
    }

    fn watch(&self, folder: &Path, pools: &Pools) -> Option<Watch> {
        let (watching, configuration) = (self.watching.clone()?, self.configuration.clone());
        Watch::start(watching, folder, configuration, pools.clone())
            .inspect_err(
                |error| tracing::warn!(target: "server", "files can't be watched: {error}"),
            )
            .ok()
    }
}

impl HttpResources {
    fn specs<'a>(&self, settings: &'a HttpSettings) -> Vec<PoolSpec<'a>> {
        let spec = |(name, pool)| PoolSpec {
            name,
            settings: pool,
            warmup: self.warmup(pool),
            spool: self.spool.clone(),
        };
        settings.running_pools().map(spec).collect()
    }

    fn warmup(&self, pool: &PoolSettings) -> Warmup {
        let targets = &pool.warmup;
        match &pool.site {
            Some(site) => {
                let root = self.folder.join(&site.root).components().collect();
                pronghorn_http::warmup_of_scripts(targets, site, pool.mode, root)
            }
            None => pronghorn_http::warmup(targets),
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
            spool: self.spool.clone(),
            uploads: self.uploads.clone(),
            forbid: settings.uploads.forbid.clone(),
            allow: settings.uploads.allow.clone(),
        };
        let behind = RouteContext {
            bodies,
            sites: self.sites(settings)?,
            local_redirects: Arc::default(),
        };
        let routes = settings.compile(|route| self.behind(route, settings, pools, &behind));
        let innermost = match routes.only() {
            Some(only) => only.clone(),
            None => Arc::new(Router(routes)) as Arc<dyn Handler>,
        };
        behind.local_redirects.set(&innermost);
        let folder = &self.folder;
        let worker_user = self.user.as_ref().map(|(_, user)| user);
        let addresses = &self.addresses;
        let parts = Parts {
            settings,
            folder,
            worker_user,
            https_port: self.https_port,
            addresses,
        };
        middleware::chain(self.around.put(innermost), parts)
    }

    /// The roots of pools that run scripts, below each path at which routes have them.
    fn sites(&self, settings: &HttpSettings) -> Result<Sites, Unusable> {
        let mut sites = Sites::new();
        for (name, pool) in settings.running_pools() {
            let Some(site) = &pool.site else { continue };
            // Without doubled slashes and one at its end: it is what scripts see.
            let root: PathBuf = self.folder.join(&site.root).components().collect();
            let routes = settings.routes.iter().filter(|route| route.pool == name);
            let prefixes = routes.map(|route| route.strip_prefix.as_deref().unwrap_or_default());
            for prefix in prefixes.chain([""]) {
                let opened = Scripts::open(site, pool.mode, root.clone(), prefix);
                let scripts = opened.map_err(|source| Unusable {
                    key: "root",
                    path: root.clone(),
                    source,
                })?;
                let place = (name.to_owned(), prefix.to_owned());
                sites.insert(place, Arc::new(scripts));
            }
        }
        Ok(sites)
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
        } = behind;
        let mut running = settings.running_pools();
        let (name, pool) = running
            .find(|(name, _)| *name == route.pool)
            .expect("routes lead to pools that run");
        let workers = pools.get(name).expect("it was started");
        let max_size = route.max_request_size.unwrap_or(settings.max_request_size);
        let prefix = route.strip_prefix.clone().unwrap_or_default();
        let scripts = sites.get(&(name.to_owned(), prefix)).cloned();
        let handler = PoolHandler {
            pool: workers.pool().clone(),
            terms: Terms {
                // In development somebody may sit in a debugger.
                deadline: route.terms.deadline.filter(|_| !self.development),
                ..route.terms
            },
            bodies: BodySettings {
                max_size: max_size.bytes(),
                // PHP takes the bodies of scripts apart itself.
                raw: bodies.raw || scripts.is_some(),
                stream: scripts.is_none()
                    && route.request_body.unwrap_or(pool.request_body) == RequestBody::Stream,
                ..bodies.clone()
            },
            internal_error_code: settings.internal_error_code,
            development: self.development || pool.debug,
            access_logs: settings.access_logs,
            retry: pool.retry,
            worker_user: self.user.as_ref().map(|(_, user)| user.clone()),
            scripts,
            local_redirects: local_redirects.clone(),
        };
        let next = Arc::new(Arc::new(handler));
        let next = middleware::limited(next, route.rate_limit.as_ref());
        if self.development {
            let standing = workers.standing();
            return Arc::new(Gate { next, standing });
        }
        next
    }
}

impl HttpHandle {
    /// What a person can open in a browser: 0.0.0.0 and :: are no addresses for one.
    pub(crate) fn urls(&self) -> Vec<String> {
        let url = |(place, tls): &(Place, bool)| match place {
            Place::Unix(_) => place.to_string(),
            Place::Tcp(address) => {
                let mut shown = *address;
                if address.ip().is_unspecified() {
                    shown.set_ip(Ipv4Addr::LOCALHOST.into());
                }
                format!("{}://{shown}", if *tls { "https" } else { "http" })
            }
        };
        self.places.iter().map(url).collect()
    }

    /// What requests under way get when another process has taken over.
    pub(crate) fn handover_patience(&self) -> Duration {
        lock(&self.ground.patience).handover
    }

    /// Replaces all workers by those of other settings, and then handles requests by these. False when something that they
    /// name can't be used, or when a pool kept what it had: then requests are handled as before.
    pub(crate) async fn renew(
        &self,
        settings: &HttpSettings,
        server: ServerSettings,
        environment: Vec<(OsString, OsString)>,
    ) -> bool {
        let handler = match self.ground.handler(settings, &self.pools) {
            Ok(handler) => handler,
            Err(error) => {
                let why = &error.source;
                tracing::error!(target: "server", "not reloaded, everything is as it was: {error}: {why}");
                return false;
            }
        };
        self.all_pools.configure(server, environment);
        let specs = self.ground.specs(settings);
        if !self.all_pools.change(HTTP, &self.pools, &specs).await {
            return false;
        }
        self.ground.addresses.set(settings);
        *lock(&self.ground.patience) = Patience::of(settings);
        self.service.set_handler(handler);
        if let Some(tls) = &self.tls {
            tls.renew(settings, &self.ground.folder).await;
        }
        true
    }
}

impl Running for Http {
    fn open(&mut self) -> Result<(), api::StartError> {
        for listener in self.listeners.drain(..) {
            let accepting = listener.serve(self.io.threads(), &self.service)?;
            accepting.set_ours(true);
            self.accepting.push(accepting);
        }
        Ok(())
    }

    fn hand_over(&mut self, step: Handover) {
        for accepting in &self.accepting {
            accepting.set_ours(step != Handover::Done);
        }
        if step == Handover::Done {
            // Clients that wait in the kernel are the next process's.
            self.accepting.clear();
            self.handed_over = true;
        }
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(Self::stop(*self, deadline))
    }
}

impl Http {
    /// No new connections, requests under way finish within the pools' `destroy_timeout`, then the workers end. After a
    /// handover it is `reset_timeout`: to the client, all that happens is a reload.
    async fn stop(self, deadline: Instant) -> Stopped {
        let Patience { stop, handover } = *lock(&self.patience);
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
                        "stopping: requests under way have {} s left", left(cut_at).as_secs(),
                    ),
                }
            }
        };
        let in_time = tokio::time::timeout_at(cut_at, drained).await.is_ok();
        drop(self.accepting);
        let cut = self.service.open();
        // The time of the calls that still run is over.
        let most = if in_time {
            Duration::MAX
        } else {
            WORKERS_AFTER_CUT
        };
        let killed = self.pools.stop(left(deadline).min(most)).await;
        self.tasks.join_all().await; // each has done its last order
        for spool in self.spools {
            _ = tokio::time::timeout_at(deadline, spool.settle()).await;
        }
        if cut == 0 && killed == 0 {
            return Stopped::Clean;
        }
        Stopped::CutOff(format!("{cut} connections, {killed} workers"))
    }
}

fn not_ready(why: String) -> NotReady {
    NotReady(why.into())
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

/// What the caches of `static` may keep open.
fn cached_files(settings: &HttpSettings) -> u64 {
    let roots = settings.files.as_ref().map_or(0, |files| files.roots.len());
    (MOST_OPEN * roots) as u64
}

pub(crate) fn connections(open_files: u64, workers: usize) -> usize {
    let kept = KEPT_DESCRIPTORS + workers as u64 * DESCRIPTORS_PER_WORKER;
    usize::try_from(open_files.saturating_sub(kept).max(FEWEST_CONNECTIONS)).unwrap_or(usize::MAX)
}
