//! A server with one more service. `echo.Say` over RPC takes a text, asks a worker in PHP with it,
//! and returns the worker's answer behind a prefix.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_cli::Services;
use pronghorn_config::{Section, Table};
use pronghorn_metrics::Counter;
use pronghorn_plugin_api::rpc::Failure;
use pronghorn_plugin_api::{
    BoxFuture, ConfiguredPool, Context, NotReady, Reload, Running, Service, ServiceKind,
    StartError, Stopped,
};
use pronghorn_pool::{Pool, RawCall, Spool, Terms, Warmup};
use pronghorn_wire::Kind;
use pronghorn_workers::settings::PoolSettings;
use pronghorn_workers::{PoolHandle, PoolSet, PoolSpec, Pools, StartedPools};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The name of the service, of its section and of its pool.
const ECHO: &str = "echo";
/// Nobody reads more of an echo.
const LONGEST: usize = 64 << 10;

/// The row of the table is all that a server needs of a service.
fn main() -> ExitCode {
    let sentence = "Texts that PHP answers. Without this section, there is no echo.";
    let echo = ServiceKind::optional(ECHO, sentence, |settings| Echo { settings });
    pronghorn_cli::run_services(Services::default().with(echo))
}

#[derive(Debug)]
struct EchoSettings {
    prefix: String,
    pool: PoolSettings,
}

impl Section for EchoSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.ours();
        Self {
            prefix: t
                .key("prefix", "The text before each answer.")
                .live()
                .default("echo: ".to_owned()),
            pool: t.section("pool", "The workers."),
        }
    }
}

/// The service before its start.
#[derive(Debug)]
struct Echo {
    settings: EchoSettings,
}

impl Service for Echo {
    fn pools(&self) -> Vec<ConfiguredPool<'_>> {
        vec![ConfiguredPool {
            section: "echo.pool".to_owned(),
            name: ECHO,
            settings: &self.settings.pool,
        }]
    }

    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>> {
        Box::pin(async move { Ok(Box::new(start(self.settings, context).await?) as _) })
    }
}

/// The service at work.
struct RunningEcho {
    prefix: Arc<Mutex<String>>,
    all_pools: Pools,
    pools: PoolSet,
    /// End with the pools.
    tasks: JoinSet<()>,
    /// How long a stop waits for texts under way.
    patience: Duration,
    spool: Arc<Spool>,
}

async fn start(settings: EchoSettings, context: Context) -> Result<RunningEcho, StartError> {
    let workers = context.workers.expect("it has a pool");
    let owner = context.users.of_pool(ECHO).map(|(_, user)| user.clone());
    let spool = Arc::new(Spool::open(&std::env::temp_dir(), owner)?);
    let specs = [spec(&settings.pool, &spool)];
    let StartedPools { pools, tasks } = workers.pools.start(ECHO, &specs).await?;
    let asked = pools.clone();
    context.readiness.answer_with(move || {
        let ready = asked.iter().try_for_each(PoolHandle::ready);
        ready.map_err(|why| NotReady(why.into()))
    });
    let prefix = Arc::new(Mutex::new(settings.prefix));
    let echoing = Echoing {
        prefix: prefix.clone(),
        pool: pools.get(ECHO).expect("it was started").pool().clone(),
        io: workers.io.threads()[0].runtime.clone(),
        echoes: context
            .metrics
            .counter("echoes", "Texts that PHP has answered."),
    };
    context.rpc.service(ECHO, echoing).add("Say", say);
    Ok(RunningEcho {
        prefix,
        all_pools: workers.pools,
        pools,
        tasks,
        patience: settings.pool.common.destroy_timeout,
        spool,
    })
}

fn spec<'a>(settings: &'a PoolSettings, spool: &Arc<Spool>) -> PoolSpec<'a> {
    PoolSpec {
        name: ECHO,
        settings,
        kind: Kind::Raw,
        warmup: Warmup::default(),
        spool: spool.clone(),
    }
}

/// What the method needs.
#[derive(Clone)]
struct Echoing {
    prefix: Arc<Mutex<String>>,
    pool: Pool,
    io: Handle,
    echoes: Counter,
}

async fn say(echoing: Echoing, text: String) -> Result<String, Failure> {
    let Echoing {
        prefix,
        pool,
        io,
        echoes,
    } = echoing;
    let call = RawCall {
        name: "an echo".to_owned(),
        body: text.into(),
        repeatable: true,
    };
    // A call takes the lock of its pool, which the thread of RPC must not do.
    let asked = io.spawn(async move { call.ask(&pool, Terms::default(), LONGEST).await });
    let answer = asked
        .await
        .map_err(|error| Failure::new(error.to_string()))?;
    let answer = answer.map_err(|error| Failure::new(error.to_string()))?;
    echoes.increment();
    Ok(format!(
        "{}{}",
        lock(&prefix),
        String::from_utf8_lossy(&answer)
    ))
}

impl Running for RunningEcho {
    fn reload(&mut self, to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        Box::pin(async move {
            let Some(to) = to.downcast::<Echo>() else {
                return Reload::NeedsRestart;
            };
            let EchoSettings { prefix, pool } = to.settings;
            let specs = [spec(&pool, &self.spool)];
            if !self.all_pools.change(ECHO, &self.pools, &specs).await {
                return Reload::Failed;
            }
            *lock(&self.prefix) = prefix;
            self.patience = pool.common.destroy_timeout;
            Reload::Applied
        })
    }

    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped> {
        Box::pin(async move {
            let left = deadline.saturating_duration_since(Instant::now());
            let killed = self.pools.stop(left.min(self.patience)).await;
            self.tasks.join_all().await;
            self.spool.settle().await;
            match killed {
                0 => Stopped::Clean,
                killed => Stopped::CutOff(format!("{killed} workers")),
            }
        })
    }
}
