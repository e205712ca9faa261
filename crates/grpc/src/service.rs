//! The service `grpc`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_config::{Listen, Section as _, Table};
use pronghorn_grpc_wire::Server;
use pronghorn_plugin_api::{
    BoxFuture, ConfiguredPool, Context, Finding, Handover, Machine, Reload, Running, Service,
    StartError, Stopped,
};
use pronghorn_pool::{Spool, Warmup};
use pronghorn_process::open_files::Share;
use pronghorn_process::socket::Access;
use pronghorn_serve::{
    Accepting, Addresses, Http2Limits, Limits, Listener, Service as HttpService,
};
use pronghorn_trace::Tracer;
use pronghorn_wire::Kind;
use pronghorn_workers::settings::PoolSettings;
use pronghorn_workers::{Io, PoolSet, PoolSpec, Pools, ServerSettings, StartedPools};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::calls::Calls;
use crate::descriptors::{Descriptors, NotCompiled};
use crate::door::Door;
use crate::files::{FileError, paths};
use crate::front::Front;
use crate::health::ServingState;
use crate::json::Json;
use crate::metrics::Metrics;
use crate::reflection::Catalogue;
use crate::settings::{GrpcSettings, POOL, ProtoRegistry, STREAM_POOL};
use crate::table::ServiceTable;
use crate::tls::Certificates;

/// The name of the service, and of its sockets for the next process.
const GRPC: &str = "grpc";
/// A connection without a call is kept for so long at the end: a call may be on its way.
const IDLE: Duration = Duration::from_millis(100);
/// Calls of a client that pauses longer than people wait for anything: a deadline is the client's
/// matter, and idle connections make room for others.
const CLIENT_PAUSE: Duration = Duration::from_hours(24 * 365);

/// Fields of a call. Other servers limit bytes alone; so many leave 64 bytes to each of a head's.
const FIELDS: usize = 1000;

/// Within this time, clients take the status of calls that a stop has ended.
const GOODBYE: Duration = Duration::from_secs(1);

/// gRPC before its start.
#[derive(Debug)]
pub struct GrpcService {
    pub settings: GrpcSettings,
    /// For calls that come to HTTP's listeners.
    pub door: Door,
}

/// gRPC at work.
struct Grpc {
    settings: GrpcSettings,
    door: Door,
    directory: PathBuf,
    service: Arc<HttpService>,
    /// Until clients are taken from it.
    listener: Option<Listener>,
    accepting: Option<Accepting>,
    url: Option<String>,
    state: ServingState,
    /// The services as the page of the admin listener shows them.
    shown: Arc<Mutex<Arc<ServiceTable>>>,
    metrics: Metrics,
    tracer: Tracer,
    spool: Arc<Spool>,
    all_pools: Pools,
    pools: PoolSet,
    tasks: JoinSet<()>,
    certificates: Option<Certificates>,
    _looks: JoinSet<()>,
    io: Io,
}

impl GrpcService {
    /// `t` is the whole configuration. None without the section `grpc`.
    pub fn read(t: &mut Table<'_>, door: Door) -> Option<Self> {
        let sentence = "gRPC services in PHP. Without this section, there are none.";
        let settings: Option<GrpcSettings> = t.optional_section(GRPC, sentence);
        let protoreg = t.optional_section_with(
            "protoreg",
            "More `.proto` files for gRPC's reflection, with RoadRunner's keys. The files of \
             `grpc.proto` need not be listed here.",
            ProtoRegistry::read,
        );
        let mut settings = settings?;
        if let Some(protoreg) = protoreg {
            settings.proto_path = protoreg.paths;
            settings.known = protoreg.files;
        }
        Some(Self { settings, door })
    }
}

impl Service for GrpcService {
    fn pools(&self) -> Vec<ConfiguredPool<'_>> {
        let pools = pools_of(&self.settings).map(|(name, section, settings)| ConfiguredPool {
            section: section.to_owned(),
            name,
            settings,
        });
        pools.collect()
    }

    fn check(&self, t: &mut Table<'_>, server: &ServerSettings) {
        for pool in self.pools() {
            pool.check_command(t, server);
        }
        if self.settings.on_http && !t.is_written("http") {
            t.error_below(
                &["grpc", "on_http"],
                "takes calls on the addresses of `http`, and there is no section `http`",
                "write the section `http`, or `listen: 127.0.0.1:9001` in place of `on_http`",
            );
        }
    }

    fn listens(&self) -> Vec<Listen> {
        self.settings.listen.iter().cloned().collect()
    }

    fn share(&self) -> Option<Share> {
        self.settings.listen.as_ref().map(|_| Share::GRPC)
    }

    fn look(&self, machine: &Machine<'_>) -> Vec<Finding> {
        let mut findings = Vec::new();
        match load(&self.settings, machine.directory) {
            Err(error) => findings.push(unusable(&error)),
            Ok(loaded) => {
                if loaded.table.streams() && self.settings.stream_pool.is_none() {
                    findings.push(Finding::doubtful(
                        "grpc.pool",
                        "also answers the methods that stream, each of which holds a worker until \
                         it ends"
                            .to_owned(),
                        "give streams workers of their own in `grpc.stream_pool`",
                    ));
                }
                findings.extend(loaded.doubts);
            }
        }
        if let Some(tls) = &self.settings.tls
            && let Err(error) = Certificates::load(tls, machine.directory)
        {
            findings.push(unusable_tls(&error));
        }
        findings
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move {
            let running = start(self.settings, self.door, &context).await?;
            Ok(Box::new(running) as Box<dyn Running>)
        })
    }
}

fn unusable(error: &FileError) -> Finding {
    Finding::missing(
        "grpc.proto",
        format!("can't be used: {error}"),
        error.hint(),
    )
}

fn unusable_tls(error: &dyn std::fmt::Display) -> Finding {
    let message = format!("can't be used: {error}");
    Finding::missing("grpc.tls", message, "correct the files")
}

/// Name, section and settings of each pool.
fn pools_of(
    settings: &GrpcSettings,
) -> impl Iterator<Item = (&'static str, &'static str, &PoolSettings)> {
    let streams = settings.stream_pool.as_ref();
    let streams = streams.map(|pool| (STREAM_POOL, "grpc.stream_pool", pool));
    std::iter::once((POOL, "grpc.pool", &settings.pool)).chain(streams)
}

fn specs<'a>(settings: &'a GrpcSettings, spool: &Arc<Spool>) -> Vec<PoolSpec<'a>> {
    let spec = |(name, _, settings)| PoolSpec {
        name,
        settings,
        kind: Kind::Grpc,
        warmup: Warmup::default(),
        spool: spool.clone(),
    };
    pools_of(settings).map(spec).collect()
}

/// The socket comes first, so that a taken port is known at once; calls are taken when all workers
/// are up.
async fn start(settings: GrpcSettings, door: Door, context: &Context) -> Result<Grpc, StartError> {
    let workers = context.workers.clone().expect("a service with workers");
    let directory = context.directory().to_owned();
    let loaded = load(&settings, &directory).map_err(|error| unusable(&error))?;
    tell(&loaded.doubts);
    let certificates = match &settings.tls {
        Some(tls) => {
            let loaded = Certificates::load(tls, &directory);
            Some(loaded.map_err(|error| unusable_tls(&error))?)
        }
        None => None,
    };
    let mut inherited = context.sockets.take(GRPC);
    let access = Access::OWNER_AND_GROUP;
    let listener = settings.listen.as_ref();
    let listener =
        listener.map(|at| Listener::configured(GRPC, at, access, &mut inherited, context));
    let listener = listener.transpose()?.map(|listener| match &certificates {
        Some(certificates) => listener.with_tls(certificates.tls.clone()),
        None => listener,
    });
    let owner = context.users.of_server().map(|(_, user)| user.clone());
    let spool = Arc::new(Spool::open(&std::env::temp_dir(), owner)?);
    let metrics = Metrics::new(&context.metrics);
    let StartedPools { pools, tasks } =
        workers.pools.start(GRPC, &specs(&settings, &spool)).await?;
    let state = ServingState::new(pools.clone(), context.shutdown.clone());
    let stopping = context.shutdown.clone();
    context
        .readiness
        .answer_by_pools(&pools, stopping, || Ok(()));
    let shown = Arc::new(Mutex::new(loaded.table.clone()));
    let table = shown.clone();
    context
        .pages
        .add(GRPC, include_str!("pages/grpc.json"), move || {
            std::future::ready(Ok(lock(&table).shown().to_string()))
        });
    let tracer = context.tracer.clone();
    let handler = handler(&settings, loaded, &pools, &metrics, &state, &tracer);
    door.set(settings.on_http.then(|| handler.clone()));
    let service = HttpService::new(
        handler,
        limits(&settings),
        Arc::<Addresses>::default(),
        None,
        Some(spool.clone()),
    );
    Ok(Grpc {
        url: listener.as_ref().map(Listener::url),
        settings,
        door,
        directory,
        service,
        listener,
        accepting: None,
        state,
        shown,
        metrics,
        tracer,
        spool,
        all_pools: workers.pools,
        pools,
        tasks,
        _looks: Certificates::watch(certificates.as_ref()),
        certificates,
        io: workers.io,
    })
}

fn limits(settings: &GrpcSettings) -> Limits {
    let connections = &settings.connections;
    let mut limits = Limits {
        http2: Http2Limits {
            clear: true,
            streams: connections.streams,
            age: connections.age,
            age_grace: connections.age_grace,
            ping: Some((connections.ping_time, connections.ping_timeout)),
            trims: true,
        },
        connections: Share::GRPC.connections(),
        memory: usize::try_from(connections.client_memory.bytes()).unwrap_or(usize::MAX),
        memory_key: "grpc.client_memory",
        ..Limits::default()
    };
    limits.receive.idle = connections.idle.unwrap_or(CLIENT_PAUSE);
    limits.receive.fields = FIELDS;
    limits
}

/// The services of the files, in each form that is asked for.
struct Loaded {
    table: Arc<ServiceTable>,
    catalogue: Arc<Catalogue>,
    json: Option<Json>,
    /// Mistakes with which it is served all the same.
    doubts: Vec<Finding>,
}

/// Reads the files, and compiles those that compile.
fn load(settings: &GrpcSettings, directory: &Path) -> Result<Loaded, FileError> {
    let table = ServiceTable::load(&settings.proto, directory)?;
    let paths: Vec<_> = settings
        .proto_path
        .iter()
        .map(|path| directory.join(path))
        .collect();
    let known = settings.known.iter();
    let known = known.filter_map(|file| {
        let places = paths.iter().map(|path| path.join(file));
        places
            .chain([directory.join(file)])
            .find(|path| path.is_file())
    });
    let files: Vec<_> = table.files().iter().cloned().chain(known).collect();
    let (descriptors, failed) = Descriptors::compile(&files, &paths);
    let json = settings.json.then(|| Json::new(&descriptors, &table));
    let json = json.transpose()?;
    let mut doubts = doubts_of_names(&settings.proto, &table, directory);
    doubts.extend(self::doubts(&failed, &table, json.as_ref()));
    let catalogue = Catalogue::new(&table, descriptors);
    Ok(Loaded {
        table: Arc::new(table),
        catalogue: Arc::new(catalogue),
        json,
        doubts,
    })
}

/// Patterns that match no file, and files without a service.
fn doubts_of_names(named: &[String], table: &ServiceTable, directory: &Path) -> Vec<Finding> {
    let unanswered = "every call is answered `UNIMPLEMENTED`";
    let hint = "name the `.proto` files of the services, for example `proto: [\"proto/*.proto\"]`";
    let matches_none = |name: &&String| paths(name, directory).is_ok_and(|found| found.is_empty());
    let mut doubts = Vec::new();
    for name in named.iter().filter(matches_none) {
        let is_relative = Path::new(name).is_relative();
        let place = is_relative.then(|| format!(" in {}", directory.display()));
        let outcome = table.is_empty().then(|| format!(": {unanswered}"));
        let (place, outcome) = (place.unwrap_or_default(), outcome.unwrap_or_default());
        let message = format!("has `{name}`, which matches no file{place}{outcome}");
        doubts.push(Finding::doubtful("grpc.proto", message, hint));
    }
    if table.is_empty() && doubts.is_empty() {
        let message = format!("names no service: {unanswered}");
        doubts.push(Finding::doubtful("grpc.proto", message, hint));
    }
    doubts
}

/// The same for `check` and for the start: files that do not compile, and methods that hide one
/// another.
fn doubts(failed: &[NotCompiled], table: &ServiceTable, json: Option<&Json>) -> Vec<Finding> {
    let failed = failed.iter().map(|NotCompiled { why, hint }| {
        let what = match json {
            Some(_) => "a file that has no JSON, and of which reflection knows only names",
            None => "a file of which reflection knows only names",
        };
        Finding::doubtful("grpc.proto", format!("names {what}: {why}"), *hint)
    });
    let methods = table.hidden().into_iter();
    let methods = methods.map(|what| {
        let hint = "give each method of a service a name of its own";
        Finding::doubtful("grpc.proto", what, hint)
    });
    let routes = json.map(Json::hidden).unwrap_or_default().into_iter();
    let routes = routes.map(|what| {
        let hint = "give each its own path in `google.api.http`, or take one out";
        Finding::doubtful("grpc.proto", what, hint)
    });
    failed.chain(methods).chain(routes).collect()
}

fn tell(doubts: &[Finding]) {
    for Finding {
        key, message, hint, ..
    } in doubts
    {
        tracing::warn!(target: "grpc", hint, "`{key}` {message}");
    }
}

fn handler(
    settings: &GrpcSettings,
    loaded: Loaded,
    pools: &PoolSet,
    metrics: &Metrics,
    state: &ServingState,
    tracer: &Tracer,
) -> Arc<Front> {
    let Loaded {
        table,
        catalogue,
        json,
        ..
    } = loaded;
    let pool = pools.get(POOL).expect("it was started").pool().clone();
    let stream_pool = pools.get(STREAM_POOL).map(|streams| streams.pool().clone());
    let calls = Calls {
        table,
        stream_pool: stream_pool.unwrap_or_else(|| pool.clone()),
        pool,
        metrics: metrics.clone(),
        state: state.clone(),
        catalogue,
        most: settings.messages.send,
        recorder: tracer.recorder().cloned(),
    };
    let server = Server::new(calls, settings.messages, settings.web.clone());
    Arc::new(Front { server, json })
}

impl Running for Grpc {
    fn open(&mut self) -> Result<(), StartError> {
        if let Some(listener) = self.listener.take() {
            let accepting = listener.serve(self.io.threads(), &self.service)?;
            accepting.set_ours(true);
            self.accepting = Some(accepting);
            let address = self.url.as_deref().unwrap_or_default();
            tracing::info!(target: "grpc", address, "listening for gRPC");
        }
        self.state.set(true);
        Ok(())
    }

    fn addresses(&self) -> Vec<String> {
        let url = self.url.iter();
        url.map(|url| url.replacen("http", "grpc", 1)).collect()
    }

    fn reload(&mut self, to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        Box::pin(async move {
            match to.downcast::<GrpcService>() {
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

impl Grpc {
    /// Replaces the workers, and then answers by the new settings.
    async fn go_over_to(&mut self, to: GrpcSettings) -> Reload {
        if to.stream_pool.is_some() != self.settings.stream_pool.is_some() {
            tracing::warn!(
                target: "grpc",
                "`grpc.stream_pool` was added or removed: a restart applies it"
            );
            return Reload::NeedsRestart;
        }
        let (wanted, directory) = (to.clone(), self.directory.clone());
        let loaded = tokio::task::spawn_blocking(move || load(&wanted, &directory)).await;
        let loaded = match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => {
                tell_unread(&error);
                return Reload::Failed;
            }
            Err(_) => return Reload::Failed, // it panicked, which was reported
        };
        let certificates = match &self.certificates {
            None => None,
            Some(certificates) => match certificates.read_again().await {
                Ok(read) => Some((certificates, read)),
                Err(_) => return Reload::Failed,
            },
        };
        self.state.set(false);
        let specs = specs(&to, &self.spool);
        let changed = self.all_pools.change(GRPC, &self.pools, &specs).await;
        self.state.set(true);
        if !changed {
            return Reload::Failed;
        }
        if let Some((certificates, read)) = certificates {
            certificates.replace(read);
        }
        *lock(&self.shown) = loaded.table.clone();
        tell(&loaded.doubts);
        let handler = handler(
            &to,
            loaded,
            &self.pools,
            &self.metrics,
            &self.state,
            &self.tracer,
        );
        self.door.set(to.on_http.then(|| handler.clone()));
        self.service.set_handler(handler);
        self.settings = to;
        Reload::Applied
    }

    /// No new calls, those under way finish within the pools' `destroy_timeout`, then the workers
    /// end.
    async fn stop(self, deadline: Instant) -> Stopped {
        self.state.set(false);
        self.door.set(None);
        let destroy = pools_of(&self.settings).map(|(_, _, pool)| pool.common.destroy_timeout);
        let cut_at = deadline.min(Instant::now() + destroy.max().unwrap_or_default());
        let told_at = cut_at.checked_sub(GOODBYE).unwrap_or(cut_at);
        let mut drained = std::pin::pin!(self.service.drain(IDLE));
        let in_time = timeout_at(told_at, &mut drained).await.is_ok();
        if !in_time {
            self.state.cut().cancel();
            _ = timeout_at(cut_at, drained).await;
        }
        drop(self.accepting);
        let cut = self.service.open();
        let (pools, tasks) = (self.pools, self.tasks);
        let killed = StartedPools { pools, tasks }.end(in_time, deadline).await;
        // A file that is left there is removed at the next start.
        _ = timeout_at(deadline, self.spool.settle()).await;
        Stopped::by(cut, killed)
    }
}

fn tell_unread(error: &FileError) {
    tracing::error!(target: "grpc", "reload failed, nothing has changed: {error}");
}
