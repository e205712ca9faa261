//! The service `tcp`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_config::Listen;
use pronghorn_plugin_api::{
    ConfiguredPool, Context, Finding, Handover, Machine, Reload, Running, Service, StartError,
    Stopped,
};
use pronghorn_pool::{Spool, Warmup};
use pronghorn_process::open_files::Share;
use pronghorn_process::socket::Access;
use pronghorn_serve::{Accepting, Addresses, Limits, Listener, Pair, Service as Clients};
use pronghorn_wire::Kind;
use pronghorn_workers::{Io, PoolSet, PoolSpec, Pools, StartedPools};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::methods::{self, Connections};
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::server::Server;
use crate::settings::{CONNECTIONS, TcpSettings};
use crate::tls::Certificates;

/// The name of the service, of its only pool, and of its listening sockets.
const TCP: &str = "tcp";

/// Fewer are worth a word also where nobody has asked for more.
const FEW_CONNECTIONS: usize = 64;

/// TCP servers before their start.
#[derive(Debug)]
pub struct TcpService {
    pub settings: TcpSettings,
}

/// One server at work.
struct Served {
    server: Arc<Server>,
    clients: Arc<Clients>,
    addresses: Arc<Addresses>,
    certificates: Option<Certificates>,
    /// Until clients are taken from it.
    listener: Option<Listener>,
    url: String,
}

struct Tcp {
    settings: TcpSettings,
    served: Vec<Served>,
    accepting: Vec<Accepting>,
    all_pools: Pools,
    pools: PoolSet,
    tasks: JoinSet<()>,
    spool: Arc<Spool>,
    io: Io,
    /// Where the paths of certificates begin.
    directory: PathBuf,
    handed_over: bool,
    _looks: JoinSet<()>,
}

impl Service for TcpService {
    fn pools(&self) -> Vec<ConfiguredPool<'_>> {
        vec![ConfiguredPool {
            section: "tcp.pool".to_owned(),
            name: TCP,
            settings: &self.settings.pool,
        }]
    }

    fn share(&self) -> Option<Share> {
        Some(Share::TCP)
    }

    fn listens(&self) -> Vec<Listen> {
        let servers = self.settings.servers.iter();
        servers.filter_map(|(_, it)| it.listen.clone()).collect()
    }

    fn look(&self, machine: &Machine<'_>) -> Vec<Finding> {
        let possible = possible(&self.settings);
        let found = too_few(&self.settings, &possible).filter_map(|(name, wanted, possible)| {
            let key = format!("tcp.servers.{name}.max_connections");
            machine.lacks_open_files(key, wanted, possible)
        });
        found.collect()
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

/// Listening sockets come first, so that a taken port is known at once. Clients are taken when all
/// workers are up.
async fn start(settings: TcpSettings, context: &Context) -> Result<Tcp, StartError> {
    let workers = context.workers.clone().expect("a service with workers");
    let mut inherited = context.sockets.take(TCP);
    let directory = workers.pools.resources().folder.clone();
    let (mut listeners, mut looks) = (Vec::new(), JoinSet::new());
    for (_, server) in &settings.servers {
        let tls = server.tls.as_ref();
        let certificates = tls.map(|tls| Certificates::load(tls, &directory));
        let certificates = certificates.transpose()?;
        if let Some(certificates) = &certificates {
            certificates.watch(&mut looks);
        }
        let at = server.listen.as_ref().expect("it was checked");
        let access = Access::OWNER_AND_GROUP;
        let listener = Listener::configured(TCP, at, access, &mut inherited, context)?;
        let listener = match &certificates {
            Some(certificates) => listener.with_tls(certificates.tls.clone()),
            None => listener,
        };
        let listener = match &server.proxies {
            Some(proxies) => listener.with_proxies(proxies.clone()),
            None => listener,
        };
        listeners.push((listener, certificates));
    }
    let connections = connections(&settings);
    let owner = context.users.of_server().map(|(_, user)| user.clone());
    let spool = Arc::new(Spool::open(&std::env::temp_dir(), owner)?);
    let specs = specs(&settings, &spool);
    let StartedPools { pools, tasks } = workers.pools.start(TCP, &specs).await?;
    let pool = pools.get(TCP).expect("it was started").pool().clone();
    let registry = Arc::<Registry>::default();
    let calls = Arc::new(Semaphore::new(settings.pool.common.max_queue_size));
    let mut served = Vec::new();
    let servers = settings.servers.iter().zip(connections);
    for (((name, of), connections), (listener, certificates)) in servers.zip(listeners) {
        let metrics = context.metrics.named(TCP).labelled("server", name);
        let server = Arc::new(Server::new(
            name,
            of.dialogue.clone(),
            pool.clone(),
            calls.clone(),
            registry.clone(),
            Metrics::new(&metrics),
        ));
        let limits = Limits {
            connections,
            memory: usize::try_from(of.client_memory).unwrap_or(usize::MAX),
            memory_key: "client_memory",
            ..Limits::default()
        };
        let addresses = Arc::<Addresses>::default();
        addresses.set(of.max_per_address, Vec::new());
        served.push(Served {
            clients: Clients::of_streams(server.clone(), limits, addresses.clone(), Some(&metrics)),
            server,
            addresses,
            certificates,
            url: url(&listener),
            listener: Some(listener),
        });
    }
    let names = served.iter();
    let connections = Connections {
        registry,
        servers: names
            .map(|it| (it.server.name.clone(), it.url.clone()))
            .collect(),
    };
    methods::add(&context.rpc, &connections);
    let schema = include_str!("pages/tcp.json");
    context
        .pages
        .add_method(TCP, schema, &context.rpc, "tcp.Count");
    let stopping = context.shutdown.clone();
    context
        .readiness
        .answer_by_pools(&pools, stopping, || Ok(()));
    Ok(Tcp {
        settings,
        served,
        accepting: Vec::new(),
        all_pools: workers.pools,
        pools,
        tasks,
        spool,
        io: workers.io,
        directory,
        handed_over: false,
        _looks: looks,
    })
}

/// The limit of connections of each server: what was asked for, as far as there are descriptors.
fn connections(settings: &TcpSettings) -> Vec<usize> {
    let parts = possible(settings);
    for (server, wanted, possible) in too_few(settings, &parts) {
        tracing::warn!(
            target: "tcp", server, wanted, possible,
            "`max_connections` exceeds what the limit of open files leaves to this server: \
             raise that limit (`ulimit -n`, `LimitNOFILE` of systemd)"
        );
    }
    parts
}

/// Gives each server its part of the limit of open files, of what it asks for.
fn possible(settings: &TcpSettings) -> Vec<usize> {
    let servers = settings.servers.iter();
    let wanted: Vec<_> = servers.map(|(_, it)| it.max_connections).collect();
    parts(&wanted, Share::TCP.connections())
}

/// The servers that get fewer connections than they ask for, with both numbers. Nobody has asked
/// for those of the default.
fn too_few<'a>(
    settings: &'a TcpSettings,
    possible: &'a [usize],
) -> impl Iterator<Item = (&'a str, usize, usize)> {
    let servers = settings.servers.iter().zip(possible);
    servers.filter_map(|((name, server), &possible)| {
        let wanted = server.max_connections;
        let is_much = wanted == CONNECTIONS && possible >= FEW_CONNECTIONS;
        (possible < wanted && !is_much).then_some((&**name, wanted, possible))
    })
}

/// Divides what there is evenly. What one does not want, the others get.
fn parts(wanted: &[usize], mut left: usize) -> Vec<usize> {
    let mut by_size: Vec<_> = wanted.iter().copied().enumerate().collect();
    by_size.sort_unstable_by_key(|&(_, wanted)| wanted);
    let mut parts = vec![0; wanted.len()];
    for (done, (at, wanted)) in by_size.into_iter().enumerate() {
        let part = wanted.min(left / (parts.len() - done)).max(1);
        left = left.saturating_sub(part);
        parts[at] = part;
    }
    parts
}

/// As a person would type it.
fn url(listener: &Listener) -> String {
    let place = listener.place().to_string();
    if place.starts_with("unix:") {
        return place;
    }
    format!("tcp://{place}")
}

fn specs<'a>(settings: &'a TcpSettings, spool: &Arc<Spool>) -> [PoolSpec<'a>; 1] {
    [PoolSpec {
        name: TCP,
        settings: &settings.pool,
        kind: Kind::Tcp,
        warmup: Warmup::default(),
        spool: spool.clone(),
    }]
}

impl Running for Tcp {
    fn open(&mut self) -> Result<(), StartError> {
        for served in &mut self.served {
            if let Some(listener) = served.listener.take() {
                let accepting = listener.serve(self.io.threads(), &served.clients)?;
                accepting.set_ours(true);
                self.accepting.push(accepting);
                let (server, address) = (&*served.server.name, &*served.url);
                tracing::debug!(target: "tcp", server, address, "listening");
            }
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<String> {
        self.served.iter().map(|it| it.url.clone()).collect()
    }

    fn handover_time(&self) -> Duration {
        let common = &self.settings.pool.common;
        self.settings
            .handover_timeout
            .saturating_add(common.destroy_timeout)
    }

    fn reload(&mut self, to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        Box::pin(async move {
            let Some(to) = to.downcast::<TcpService>() else {
                return Reload::NeedsRestart;
            };
            let places = |settings: &TcpSettings| {
                let servers = settings.servers.iter();
                servers
                    .map(|(name, it)| {
                        let tls = it.tls.as_ref().map(|tls| tls.clients.clone());
                        let proxies = it.proxies.clone();
                        (name.clone(), it.listen.clone(), tls, proxies)
                    })
                    .collect::<Vec<_>>()
            };
            if places(&to.settings) != places(&self.settings) {
                return Reload::NeedsRestart;
            }
            let mut certificates = Vec::new();
            for (served, (_, settings)) in self.served.iter().zip(&to.settings.servers) {
                let read = match (&settings.tls, &served.certificates) {
                    (Some(tls), Some(certificates)) => {
                        let pairs = Pair::all_in(&tls.pairs, &self.directory);
                        let Ok(read) = certificates.read(pairs).await else {
                            return Reload::Failed;
                        };
                        Some(read)
                    }
                    _ => None,
                };
                certificates.push(read);
            }
            let specs = specs(&to.settings, &self.spool);
            if !self.all_pools.change(TCP, &self.pools, &specs).await {
                return Reload::Failed;
            }
            let settings = to.settings.servers.iter().zip(certificates);
            for (served, ((_, settings), read)) in self.served.iter().zip(settings) {
                served.server.set_dialogue(settings.dialogue.clone());
                served.addresses.set(settings.max_per_address, Vec::new());
                if let (Some(certificates), Some(read)) = (&served.certificates, read) {
                    certificates.replace(read);
                }
            }
            self.settings = to.settings;
            Reload::Applied
        })
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
        Box::pin(stop(*self, deadline))
    }
}

/// Nobody new is taken. After a handover connections go on for their time; then those without a
/// call end, and those with one once it is answered. The workers hear of that, and end.
async fn stop(tcp: Tcp, deadline: Instant) -> Stopped {
    let Tcp {
        settings,
        served,
        accepting,
        pools,
        tasks,
        spool,
        handed_over,
        ..
    } = tcp;
    let destroy = settings.pool.common.destroy_timeout;
    if handed_over {
        let until = deadline.checked_sub(destroy).unwrap_or(deadline);
        let until = until.min(Instant::now() + settings.handover_timeout);
        let ended = async {
            for it in &served {
                it.clients.all_ended().await;
            }
        };
        _ = timeout_at(until, ended).await;
    }
    let cut_at = deadline.min(Instant::now() + destroy);
    let mut draining = JoinSet::new();
    for it in &served {
        let clients = it.clients.clone();
        draining.spawn(async move { clients.drain(Duration::ZERO).await });
    }
    let all = async { while draining.join_next().await.is_some() {} };
    let in_time = timeout_at(cut_at, all).await.is_ok();
    drop(accepting);
    let cut: usize = served.iter().map(|it| it.clients.open()).sum();
    let killed = StartedPools { pools, tasks }.end(in_time, deadline).await;
    _ = timeout_at(deadline, spool.settle()).await;
    Stopped::by(cut, killed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_divide_what_there_is_and_leave_what_they_do_not_want() {
        assert_eq!(parts(&[10_000, 10, 10_000], 256), [123, 10, 123]);
        assert_eq!(parts(&[100, 50], 1000), [100, 50]);
        assert_eq!(parts(&[5, 5, 5], 2), [1, 1, 1]);
    }
}
