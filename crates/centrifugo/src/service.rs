//! The service `centrifuge`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use pronghorn_base::{BoxFuture, with_causes};
use pronghorn_client::ClientError;
use pronghorn_config::{Address, Listen};
use pronghorn_grpc_wire::{MessageLimits, Server};
use pronghorn_plugin_api::{
    ConfiguredPool, Context, Finding, Handover, NotReady, Reload, Running, Service, StartError,
    Stopped,
};
use pronghorn_pool::{Spool, Warmup};
use pronghorn_process::open_files;
use pronghorn_process::socket::Access;
use pronghorn_serve::{
    Accepting, Addresses, Handler, Http2Limits, Limits, Listener, Service as HttpService, resolve,
};
use pronghorn_wire::Kind;
use pronghorn_workers::{Io, PoolHandle, PoolSet, PoolSpec, Pools, StartedPools};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::api::Api;
use crate::methods;
use crate::metrics::Metrics;
use crate::proxy::Proxy;
use crate::settings::{ApiSettings, CentrifugoSettings};

/// The name of the service, of its pool, and of its sockets for the next process.
const CENTRIFUGE: &str = "centrifuge";
/// The permissions of a unix socket: owner and group.
const SOCKET_MODE: u32 = 0o660;
/// How long a connection without a call is kept at the end: one may be on its way.
const IDLE: Duration = Duration::from_millis(100);
/// Workers that have a call when its time at the end is over get so long.
const WORKERS_AFTER_CUT: Duration = Duration::from_secs(2);
/// Centrifugo keeps its connection for as long as it runs.
const CLIENT_PAUSE: Duration = Duration::from_hours(24 * 365);
/// Each Centrifugo has one connection for each kind of call.
const MOST_CONNECTIONS: usize = 1000;
/// Its clients' calls come over that one connection: the pool's queue is the limit that counts.
const STREAMS: u32 = 1000;

/// The service before its start.
#[derive(Debug)]
pub struct CentrifugoService {
    pub settings: CentrifugoSettings,
}

/// The operator's: the API can't be asked so.
#[derive(Debug, Error)]
#[error("`centrifuge.tls` can't be used: {}", with_causes(.0))]
struct ApiTlsError(ClientError);

/// The service at work.
struct Centrifugo {
    settings: CentrifugoSettings,
    directory: PathBuf,
    service: Arc<HttpService>,
    /// Until Centrifugo is taken from it.
    listener: Option<Listener>,
    accepting: Option<Accepting>,
    url: String,
    api: Arc<ArcSwap<Api>>,
    metrics: Metrics,
    spool: Arc<Spool>,
    all_pools: Pools,
    pools: PoolSet,
    tasks: JoinSet<()>,
    io: Io,
}

impl Service for CentrifugoService {
    fn pools(&self) -> Vec<ConfiguredPool<'_>> {
        vec![ConfiguredPool {
            section: "centrifuge.pool".to_owned(),
            name: CENTRIFUGE,
            settings: &self.settings.pool,
        }]
    }

    fn listens(&self) -> Vec<Listen> {
        vec![self.settings.listen.clone()]
    }

    fn look(&self, directory: &Path, _: &[(OsString, OsString)]) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Err(error) = api(self.settings.api.clone(), directory) {
            let hint = "correct the files";
            findings.push(Finding::missing("centrifuge.tls", error.to_string(), hint));
        }
        if self.settings.proxy_key.is_none() && !is_local(&self.settings.listen) {
            findings.push(Finding::doubtful(
                "centrifuge.proxy_address",
                "is open to other machines, and whoever reaches it may call the workers in \
                 Centrifugo's name"
                    .to_owned(),
                "write `centrifuge.proxy_key`, and `grpc.credentials_value` in Centrifugo",
            ));
        }
        findings
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

fn is_local(listen: &Listen) -> bool {
    match listen {
        Listen::Unix(_) => true,
        Listen::Tcp(Address { host, .. }) => host.as_deref().is_some_and(|host| {
            let is_loopback = |address: IpAddr| address.is_loopback();
            host == "localhost" || host.parse().is_ok_and(is_loopback)
        }),
    }
}

fn api(settings: ApiSettings, directory: &Path) -> Result<Api, ApiTlsError> {
    Api::new(settings, directory).map_err(ApiTlsError)
}

/// The socket comes first, so that a taken port is known at once; calls are taken when all workers
/// are up, which may call the API from their first line on.
async fn start(settings: CentrifugoSettings, context: &Context) -> Result<Centrifugo, StartError> {
    let workers = context.workers.clone().expect("a service with workers");
    let directory = context.directory().to_owned();
    let api = api(settings.api.clone(), &directory)?;
    let api = Arc::new(ArcSwap::from_pointee(api));
    let listener = listen(&settings.listen, &directory, &workers.io, context)?;
    methods::add(&context.rpc, &api);
    open_files::raise();
    let owner = context.users.of_server().map(|(_, user)| user.clone());
    let spool = Arc::new(Spool::open(&std::env::temp_dir(), owner)?);
    let metrics = Metrics::new(&context.metrics);
    let specs = specs(&settings, &spool);
    let StartedPools { pools, tasks } = workers.pools.start(CENTRIFUGE, &specs).await?;
    let (ready, alive, stopping) = (pools.clone(), pools.clone(), context.shutdown.clone());
    let not_ready = |why: String| NotReady(why.into());
    context.readiness.answer_apart(
        move || {
            if stopping.is_cancelled() {
                return Err(NotReady("stopping".into()));
            }
            let standing = ready.iter().try_for_each(PoolHandle::ready);
            standing.map_err(not_ready)
        },
        move || {
            let standing = alive.iter().try_for_each(PoolHandle::alive);
            standing.map_err(not_ready)
        },
    );
    let service = HttpService::new(
        handler(&settings, &pools, &metrics),
        limits(),
        Arc::<Addresses>::default(),
        None,
        Some(spool.clone()),
    );
    Ok(Centrifugo {
        url: listener.url(),
        settings,
        directory,
        service,
        listener: Some(listener),
        accepting: None,
        api,
        metrics,
        spool,
        all_pools: workers.pools,
        pools,
        tasks,
        io: workers.io,
    })
}

fn listen(
    at: &Listen,
    directory: &Path,
    io: &Io,
    context: &Context,
) -> Result<Listener, StartError> {
    let mut inherited = context.sockets.take(CENTRIFUGE);
    let listener = match at {
        Listen::Tcp(address) => {
            Listener::open(resolve(address)?, io.threads().len(), &mut inherited)?
        }
        Listen::Unix(path) => {
            let path = directory.join(path);
            let access = Access {
                mode: SOCKET_MODE,
                uid: None,
                gid: None,
            };
            let mut listener = Listener::open_unix(&path, access, &mut inherited)?;
            if context.sockets.is_systemds(&path) {
                listener.keep_file();
            }
            listener
        }
    };
    for socket in listener.sockets() {
        context.sockets.offer(CENTRIFUGE, socket)?;
    }
    Ok(listener)
}

fn limits() -> Limits {
    let mut limits = Limits {
        http2: Http2Limits {
            clear: true,
            streams: STREAMS,
            ..Http2Limits::default()
        },
        connections: MOST_CONNECTIONS,
        ..Limits::default()
    };
    limits.receive.idle = CLIENT_PAUSE;
    limits
}

fn specs<'a>(settings: &'a CentrifugoSettings, spool: &Arc<Spool>) -> [PoolSpec<'a>; 1] {
    [PoolSpec {
        name: CENTRIFUGE,
        settings: &settings.pool,
        kind: Kind::Centrifugo,
        warmup: Warmup::default(),
        spool: spool.clone(),
    }]
}

fn handler(settings: &CentrifugoSettings, pools: &PoolSet, metrics: &Metrics) -> Arc<dyn Handler> {
    let pool = pools.get(CENTRIFUGE).expect("it was started");
    let proxy = Proxy {
        pool: pool.pool().clone(),
        key: settings.proxy_key.clone(),
        metrics: metrics.clone(),
    };
    Arc::new(Server::new(proxy, MessageLimits::default(), None))
}

impl Running for Centrifugo {
    fn open(&mut self) -> Result<(), StartError> {
        if let Some(listener) = self.listener.take() {
            let accepting = listener.serve(self.io.threads(), &self.service)?;
            accepting.set_ours(true);
            self.accepting = Some(accepting);
            tracing::info!(
                target: "centrifuge", address = self.url, "listening for Centrifugo"
            );
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<String> {
        vec![self.url.replacen("http", "grpc", 1)]
    }

    fn reload(&mut self, to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        Box::pin(async move {
            match to.downcast::<CentrifugoService>() {
                Some(to) => self.go_over_to(to.settings).await,
                None => Reload::NeedsRestart,
            }
        })
    }

    fn hand_over(&mut self, step: Handover) {
        if let Some(accepting) = &self.accepting {
            accepting.set_ours(step != Handover::Done);
        }
        if step == Handover::Done {
            self.accepting = None;
        }
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(Self::stop(*self, deadline))
    }
}

impl Centrifugo {
    /// Replaces the workers, and then answers and asks by the new settings.
    async fn go_over_to(&mut self, to: CentrifugoSettings) -> Reload {
        let mut changed = None;
        if to.api != *self.api.load().settings() {
            match api(to.api.clone(), &self.directory) {
                Ok(api) => changed = Some(api),
                Err(error) => {
                    tracing::error!(
                        target: "centrifuge", "reload failed, nothing has changed: {error}"
                    );
                    return Reload::Failed;
                }
            }
        }
        let specs = specs(&to, &self.spool);
        if !self.all_pools.change(CENTRIFUGE, &self.pools, &specs).await {
            return Reload::Failed;
        }
        if let Some(api) = changed {
            self.api.store(Arc::new(api));
        }
        let handler = handler(&to, &self.pools, &self.metrics);
        self.service.set_handler(handler);
        self.settings = to;
        Reload::Applied
    }

    /// No new calls, those under way finish within the pool's `destroy_timeout`, then the workers
    /// end.
    async fn stop(self, deadline: Instant) -> Stopped {
        let destroy = self.settings.pool.common.destroy_timeout;
        let cut_at = deadline.min(Instant::now() + destroy);
        let in_time = timeout_at(cut_at, self.service.drain(IDLE)).await.is_ok();
        drop(self.accepting);
        let cut = self.service.open();
        let most = if in_time {
            Duration::MAX
        } else {
            WORKERS_AFTER_CUT
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let killed = self.pools.stop(left.min(most)).await;
        self.tasks.join_all().await; // each has done its last order
        // A file that is left there is removed at the next start.
        _ = timeout_at(deadline, self.spool.settle()).await;
        if cut == 0 && killed == 0 {
            return Stopped::Clean;
        }
        Stopped::CutOff(format!("{cut} connections, {killed} workers"))
    }
}
