//! The service `centrifuge`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use pronghorn_base::{BoxFuture, with_causes};
use pronghorn_client::ClientError;
use pronghorn_config::Listen;
use pronghorn_grpc_wire::{MessageLimits, Server};
use pronghorn_plugin_api::{
    ConfiguredPool, Context, Finding, Handover, Machine, Reload, Running, Service, StartError,
    Stopped,
};
use pronghorn_pool::{Spool, Warmup};
use pronghorn_process::open_files::Share;
use pronghorn_process::socket::Access;
use pronghorn_serve::{
    Accepting, Addresses, Handler, Http2Limits, Limits, Listener, Service as HttpService,
};
use pronghorn_wire::Kind;
use pronghorn_workers::{Io, PoolSet, PoolSpec, Pools, StartedPools};
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::api::Api;
use crate::methods;
use crate::metrics::Metrics;
use crate::proxy::Proxy;
use crate::settings::{ApiSettings, CentrifugoSettings};
use crate::shown::{ApiCalls, Status};

/// The name of the service, of its pool, and of its sockets for the next process.
const CENTRIFUGE: &str = "centrifuge";
/// A connection without a call is kept for so long at the end: a call may be on its way.
const IDLE: Duration = Duration::from_millis(100);
/// Centrifugo keeps its connection for as long as it runs.
const CLIENT_PAUSE: Duration = Duration::from_hours(24 * 365);
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

    fn share(&self) -> Option<Share> {
        Some(Share::CENTRIFUGO)
    }

    fn look(&self, machine: &Machine<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Err(error) = api(self.settings.api.clone(), machine.directory) {
            let hint = "correct the files";
            findings.push(Finding::missing("centrifuge.tls", error.to_string(), hint));
        }
        if self.settings.proxy_key.is_none() && self.settings.listen.is_public() {
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
    let mut inherited = context.sockets.take(CENTRIFUGE);
    let (at, access) = (&settings.listen, Access::OWNER_AND_GROUP);
    let listener = Listener::configured(CENTRIFUGE, at, access, &mut inherited, context)?;
    let calls = ApiCalls::default();
    methods::add(&context.rpc, &api, &calls);
    let status = Status {
        proxy: listener.url().replacen("http", "grpc", 1),
        api: api.clone(),
        calls,
        registry: context.metrics.clone(),
    };
    let schema = include_str!("page.json");
    context.pages.add("centrifugo", schema, move || {
        std::future::ready(status.page())
    });
    let owner = context.users.of_server().map(|(_, user)| user.clone());
    let spool = Arc::new(Spool::open(&std::env::temp_dir(), owner)?);
    let metrics = Metrics::new(&context.metrics);
    let specs = specs(&settings, &spool);
    let StartedPools { pools, tasks } = workers.pools.start(CENTRIFUGE, &specs).await?;
    let stopping = context.shutdown.clone();
    context
        .readiness
        .answer_by_pools(&pools, stopping, || Ok(()));
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

fn limits() -> Limits {
    let mut limits = Limits {
        http2: Http2Limits {
            clear: true,
            streams: STREAMS,
            ..Http2Limits::default()
        },
        connections: Share::CENTRIFUGO.connections(),
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
        let (pools, tasks) = (self.pools, self.tasks);
        let killed = StartedPools { pools, tasks }.end(in_time, deadline).await;
        // A file that is left there is removed at the next start.
        _ = timeout_at(deadline, self.spool.settle()).await;
        Stopped::by(cut, killed)
    }
}
