//! The workers of the server's pools: how they are started, and the one task per pool that starts,
//! replaces and stops them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_config::Command;
use pronghorn_launch::{RelayListener, Storage};
use pronghorn_metrics::Registry;
use pronghorn_pool::transport::MethodCallers;
use pronghorn_pool::{
    Home, Incidents, LaunchError, NotExtended, NotResized, Options, Plan, Pool, RunningPool, Spool,
    Stats, Warmup, WorkerInfo,
};
use pronghorn_process::memory::of_control_group;
use pronghorn_process::{Credentials, Spawner};
use pronghorn_wire::Kind;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::launch::Launch;
use crate::memory::{MemoryShare, TooMuchMemory};
use crate::renewals::Renewals;
use crate::settings::{PoolSettings, RelayAddress, Runner, ServerSettings};
use crate::start::{Start, name_user};
use crate::user::WorkerUsers;

/// The time that workers get that have a call when its own is over. Those without one need no more
/// to end in order.
const AFTER_CUT: Duration = Duration::from_secs(2);

/// The name of the pool that a command means where it names none.
pub const DEFAULT_POOL: &str = "default";
/// A pool whose workers take no waiting call for so long is stuck, and gets no further ones. One
/// that is merely full goes on: under a load that all servers share, each would leave its balancer.
const STALLED: Duration = Duration::from_secs(3);
/// How often a worker that is free is asked whether it hears.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Orders that wait for the workers' task. Each is a person's wish or a stop.
const ORDERS: usize = 16;

/// What the pools of all services have in common, for as long as the server runs.
#[derive(Clone, Debug)]
pub struct PoolResources {
    pub users: WorkerUsers,
    /// Where workers run and relative paths begin.
    pub folder: PathBuf,
    /// By which workers find the server's services.
    pub variables: Vec<(&'static str, String)>,
    pub spawner: Spawner,
    pub homes: Vec<Home>,
    pub metrics: Registry,
    /// What `server.relay` said at the start.
    pub relay: RelayAddress,
    /// Where foreign workers of all pools connect.
    pub listener: Option<Arc<RelayListener>>,
    /// What workers find in `RR_VERSION` and `PRONGHORN_VERSION`.
    pub versions: Versions,
    pub development: bool,
    /// Who keeps what went wrong with workers.
    pub incidents: Incidents,
    /// Who answers the methods that workers call over their own connection.
    pub methods: Option<Arc<dyn MethodCallers>>,
    /// The directory that keeps PHP's answers about itself from one start to the next.
    pub answers: Option<PathBuf>,
    /// Storages in shared memory.
    pub storages: Vec<Storage>,
}

/// What workers are told of the server's release.
#[derive(Clone, Copy, Debug)]
pub struct Versions {
    pub roadrunner: &'static str,
    pub pronghorn: &'static str,
}

/// A pool as a service wants it.
#[derive(Debug)]
pub struct PoolSpec<'a> {
    pub name: &'a str,
    pub settings: &'a PoolSettings,
    /// What its calls are, where its workers run a worker script; others run scripts.
    pub kind: Kind,
    /// What a worker answers before it gets calls.
    pub warmup: Warmup,
    /// For bodies that workers leave in files.
    pub spool: Arc<Spool>,
}

/// What came of a reload.
pub type Reloaded = Result<(), Arc<str>>;

/// How many workers there are after some came or went.
pub type Resized = Result<usize, NotResized>;

/// Whether the pool has workers, or why not.
#[derive(Debug, Clone)]
pub enum Standing {
    Up,
    /// None has come up. At the first start that is possible in development only: elsewhere it ends
    /// the start.
    Down(Arc<str>),
}

/// What the configuration makes of a pool.
struct Setup {
    options: Options,
    launch: Launch,
    plan: Plan,
    reset_timeout: Duration,
}

impl Setup {
    fn of(start: &Start<'_>) -> Self {
        Self {
            options: start.options(),
            launch: start.launch(),
            plan: start.plan(),
            reset_timeout: start.spec.settings.common.reset_timeout,
        }
    }

    async fn start(&self, pool: &Pool) -> Result<RunningPool, LaunchError> {
        RunningPool::start(pool.clone(), self.launch.launcher().await?, self.plan).await
    }
}

/// The memory that workers may take, where that is known. Asks PHP the first time.
pub(crate) async fn memory_of(launch: &Launch, plan: &Plan) -> Option<MemoryShare> {
    let limits = [launch.memory_limit().await, plan.limits.max_memory];
    Some(MemoryShare {
        workers: plan.largest(),
        each: limits.into_iter().flatten().min()?,
    })
}

enum Order {
    /// With another setup, which holds if it comes up.
    Reload(Option<Box<Setup>>, oneshot::Sender<Reloaded>),
    Add(usize, oneshot::Sender<Resized>),
    Remove(usize, oneshot::Sender<Resized>),
    Stop {
        grace: Duration,
        killed: oneshot::Sender<usize>,
    },
}

/// The pools of all services: where a service starts its own, and what people and signals act on.
#[derive(Clone, Debug)]
pub struct Pools(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    resources: PoolResources,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    server: Arc<ServerSettings>,
    environment: Arc<[(OsString, OsString)]>,
    running: Vec<PoolHandle>,
    /// It was said that workers may take more memory than there is.
    told_of_memory: bool,
}

/// The pools of one service, by name.
#[derive(Clone, Debug)]
pub struct PoolSet(Arc<[PoolHandle]>);

/// The pools of a service that came up, and their tasks, which end with them.
#[derive(Debug)]
pub struct StartedPools {
    pub pools: PoolSet,
    pub tasks: JoinSet<()>,
}

impl Pools {
    pub fn new(
        resources: PoolResources,
        server: ServerSettings,
        environment: Vec<(OsString, OsString)>,
    ) -> Self {
        Self(Arc::new(Shared {
            resources,
            state: Mutex::new(State {
                server: Arc::new(server),
                environment: environment.into(),
                running: Vec::new(),
                told_of_memory: false,
            }),
        }))
    }

    pub fn resources(&self) -> &PoolResources {
        &self.0.resources
    }

    /// What holds for workers that start from now on.
    pub fn configure(&self, server: ServerSettings, environment: Vec<(OsString, OsString)>) {
        let mut state = self.lock();
        state.server = Arc::new(server);
        state.environment = environment.into();
    }

    /// Starts the workers of all pools of a service at once. In development a failure is kept for
    /// the browser to show, and the next reload tries again.
    ///
    /// # Errors
    ///
    /// Otherwise the first pool that does not come up ends the start, and nothing of it is left
    /// running.
    pub async fn start(
        &self,
        owner: &'static str,
        specs: &[PoolSpec<'_>],
    ) -> Result<StartedPools, LaunchError> {
        let setups = self.setups(owner, specs);
        let setups = setups.into_iter().zip(specs);
        let starting_pools = setups.map(|(setup, spec)| StartingPool {
            owner,
            pool: Pool::new(
                setup.options.clone(),
                &self.0.resources.homes[0].runtime,
                &self.0.resources.metrics,
            ),
            settings_of_memory: spec.leaves_memory_unlimited(),
            setup,
        });
        let started = start_all(starting_pools.collect(), self.0.resources.development).await?;
        self.lock().running.extend(started.pools.0.iter().cloned());
        self.warn_of_memory();
        Ok(started)
    }

    /// Says once that workers may take more than the server's control group allows.
    fn warn_of_memory(&self) {
        let Some(allowed) = of_control_group() else {
            return;
        };
        let mut state = self.lock();
        let pools = state.running.iter();
        let pools = pools.filter_map(|pool| Some((pool.name(), pool.info.memory?)));
        let found = TooMuchMemory::find(pools, allowed);
        if state.told_of_memory {
            return;
        }
        if let Some(TooMuchMemory {
            pool,
            message,
            hint,
        }) = found
        {
            state.told_of_memory = true;
            tracing::warn!(target: "server", hint = hint.as_str(), "pool `{pool}` {message}");
        }
    }

    /// Replaces the workers of a service by those of other settings. False when a pool kept what it
    /// had.
    ///
    /// The names are those that the service started with.
    pub async fn change(
        &self,
        owner: &'static str,
        pools: &PoolSet,
        specs: &[PoolSpec<'_>],
    ) -> bool {
        let mut changing = JoinSet::new();
        for (setup, spec) in self.setups(owner, specs).into_iter().zip(specs) {
            let pool = pools
                .get(spec.name)
                .expect("the pools are the same")
                .clone();
            changing.spawn(async move { pool.change(setup).await.is_ok() });
        }
        changing.join_all().await.into_iter().all(|changed| changed)
    }

    /// In the order in which they were started, and then in that of the configuration.
    pub fn all(&self) -> Vec<PoolHandle> {
        self.lock().running.clone()
    }

    /// All pools of a service, or the one of this name.
    pub fn named(&self, name: &str) -> Vec<PoolHandle> {
        let mut pools = self.all();
        if pools.iter().any(|pool| pool.owner() == name) {
            pools.retain(|pool| pool.owner() == name);
        } else {
            pools.retain(|pool| pool.name() == name);
        }
        pools
    }

    /// Replaces the workers of all pools at once whose owners are these. Each tells by itself when
    /// that fails.
    pub async fn reload(&self, is_meant: impl Fn(&str) -> bool) {
        let mut reloading = JoinSet::new();
        for pool in self.all().into_iter().filter(|pool| is_meant(pool.owner())) {
            reloading.spawn(async move { pool.reload().await });
        }
        reloading.join_all().await;
    }

    /// The command of workers whose pool has none.
    pub fn server_command(&self) -> Option<Command> {
        self.lock().server.command.clone()
    }

    /// The environment of a command that belongs to no pool: that of the server, then the variables
    /// that name its user if it has its own, then the addresses of services, then `server.env`.
    /// Later ones replace earlier ones.
    pub fn command_variables(&self, user: Option<&Credentials>) -> Vec<(OsString, OsString)> {
        let state = self.lock();
        let mut variables = state.environment.to_vec();
        if let Some(user) = user {
            name_user(&mut variables, user);
        }
        let services = self.0.resources.variables.iter();
        let services = services.map(|(name, value)| (*name, value.as_str()));
        let own = state.server.env.iter();
        for (name, value) in services.chain(own) {
            variables.retain(|(known, _)| known != name);
            variables.push((name.into(), value.into()));
        }
        variables
    }

    fn setups(&self, owner: &'static str, specs: &[PoolSpec<'_>]) -> Vec<Setup> {
        let (server, environment) = {
            let state = self.lock();
            (state.server.clone(), state.environment.clone())
        };
        let start = |spec| Start {
            owner,
            spec,
            server: &server,
            environment: &environment,
            resources: &self.0.resources,
        };
        specs.iter().map(|spec| Setup::of(&start(spec))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl PoolSpec<'_> {
    /// Whether nothing but PHP's own `memory_limit` could end a leak.
    fn leaves_memory_unlimited(&self) -> bool {
        let (kept, ini) = match &self.settings.runner {
            Runner::Worker(worker) => (&worker.kept, &worker.ini),
            Runner::Classic(classic) => (&classic.kept, &classic.ini),
            Runner::FastCgi(_) | Runner::Cgi(_) => return false,
        };
        let mut written = ini.written.iter();
        kept.max_worker_memory.is_none() && !written.any(|it| it.name == "memory_limit")
    }
}

impl PoolSet {
    /// In the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &PoolHandle> {
        self.0.iter()
    }

    pub fn get(&self, name: &str) -> Option<&PoolHandle> {
        self.iter().find(|pool| pool.name() == name)
    }

    /// Calls that wait for a worker.
    pub fn waiting(&self) -> usize {
        self.iter().map(|pool| pool.stats().waiting()).sum()
    }

    /// Stops the workers of all pools at once; how many had to be killed.
    pub async fn stop(&self, grace: Duration) -> usize {
        let mut stopping = JoinSet::new();
        for pool in self.iter() {
            let pool = pool.clone();
            stopping.spawn(async move { pool.stop(grace).await });
        }
        stopping.join_all().await.into_iter().sum()
    }
}

impl StartedPools {
    /// Ends the workers of a service that takes no more calls, soon where the time of those that
    /// still run is over; how many had to be killed.
    pub async fn end(self, in_time: bool, deadline: Instant) -> usize {
        let most = if in_time { Duration::MAX } else { AFTER_CUT };
        let left = deadline.saturating_duration_since(Instant::now());
        let killed = self.pools.stop(left.min(most)).await;
        self.tasks.join_all().await; // each has done its last order
        killed
    }
}

/// The workers of one pool. They have one owner, a task; everybody else sends it orders.
#[derive(Debug, Clone)]
pub struct PoolHandle {
    owner: &'static str,
    pool: Pool,
    info: Arc<PoolInfo>,
    orders: mpsc::Sender<Order>,
    standing: watch::Receiver<Standing>,
}

/// The workers of a pool as they were started.
#[derive(Debug)]
pub struct PoolInfo {
    pub size: usize,
    pub command: String,
    /// Names that the script of its command may have.
    pub scripts: Vec<String>,
    /// None where nobody knows what a worker may take.
    memory: Option<MemoryShare>,
}

/// What a pool's workers are started with, for the first time and again.
struct StartingPool {
    owner: &'static str,
    pool: Pool,
    setup: Setup,
    settings_of_memory: bool,
}

async fn start_all(
    starting_pools: Vec<StartingPool>,
    development: bool,
) -> Result<StartedPools, LaunchError> {
    let pools = starting_pools.len().max(1);
    let mut starting = JoinSet::new();
    let mut tasks = JoinSet::new();
    for (place, mut starting_pool) in starting_pools.into_iter().enumerate() {
        let plan = &mut starting_pool.setup.plan;
        plan.at_once = (plan.at_once / pools).max(1);
        starting.spawn(async move { (place, PoolHandle::start(starting_pool, development).await) });
    }
    let mut pools = Vec::new();
    while let Some(started) = starting.join_next().await {
        let (place, started) = started.expect("a start neither panics nor is cancelled");
        match started {
            Ok((pool, task)) => {
                pools.push((place, pool));
                tasks.spawn(task);
            }
            Err(error) => {
                starting.shutdown().await;
                let pools: Vec<_> = pools.into_iter().map(|(_, pool)| pool).collect();
                PoolSet(pools.into()).stop(Duration::ZERO).await;
                return Err(error);
            }
        }
    }
    pools.sort_by_key(|(place, _)| *place);
    let pools: Vec<_> = pools.into_iter().map(|(_, pool)| pool).collect();
    Ok(StartedPools {
        pools: PoolSet(pools.into()),
        tasks,
    })
}

impl PoolHandle {
    async fn start(
        starting_pool: StartingPool,
        development: bool,
    ) -> Result<(Self, impl Future<Output = ()> + use<>), LaunchError> {
        let StartingPool {
            owner,
            pool,
            setup,
            settings_of_memory,
        } = starting_pool;
        let started = setup.start(&pool).await;
        let (supervised, standing) = match started {
            Ok(supervised) => (Some(supervised), Standing::Up),
            Err(error) if development => (None, Standing::Down(report(&error))),
            Err(error) => return Err(error),
        };
        if settings_of_memory {
            setup.launch.warn_of_unlimited_memory().await;
        }
        let (standing_sender, standing) = watch::channel(standing);
        let (orders, inbox) = mpsc::channel(ORDERS);
        let handle = Self {
            owner,
            pool: pool.clone(),
            info: Arc::new(PoolInfo {
                size: setup.plan.workers,
                command: setup.launch.command().to_owned(),
                scripts: setup.launch.scripts(),
                memory: memory_of(&setup.launch, &setup.plan).await,
            }),
            orders,
            standing,
        };
        let task = PoolTask {
            pool,
            setup,
            development,
            supervised,
            standing: standing_sender,
            pings: pings(),
            renewals: Renewals::default(),
        };
        Ok((handle, task.run(inbox)))
    }

    /// The name of the service that it is for.
    pub const fn owner(&self) -> &'static str {
        self.owner
    }

    pub fn info(&self) -> &PoolInfo {
        &self.info
    }

    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    pub fn name(&self) -> &str {
        self.pool.name()
    }

    /// Whether anybody could take a call.
    ///
    /// # Errors
    ///
    /// Why not, for a person.
    pub fn alive(&self) -> Result<(), String> {
        if self.pool.workers() == 0 {
            return Err(self.missing("no worker is up"));
        }
        Ok(())
    }

    /// Whether a further call would be taken in good time.
    ///
    /// # Errors
    ///
    /// Why not, for a person.
    pub fn ready(&self) -> Result<(), String> {
        self.alive()?;
        if let Standing::Down(why) = &*self.standing.borrow() {
            return Err(self.missing(why));
        }
        match self.pool.stats().stalled() {
            Some(stalled) if stalled >= STALLED => {
                let seconds = stalled.as_secs_f32();
                Err(self.missing(&format!(
                    "calls wait, and no worker took one for {seconds:.1} s"
                )))
            }
            _ => Ok(()),
        }
    }

    fn missing(&self, what: &str) -> String {
        format!("pool `{}`: {what}", self.name())
    }

    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The queue as it is, and counters.
    pub fn stats(&self) -> &Stats {
        self.pool.stats()
    }

    /// Who works, and at what. Answers within a second, also during a reload.
    pub async fn inspect(&self) -> Vec<WorkerInfo> {
        self.pool.inspect().await
    }

    /// Replaces all workers. The reason when that fails is for people.
    pub async fn reload(&self) -> Reloaded {
        self.order_reload(None).await
    }

    /// The same with other settings, which hold only if it succeeds.
    async fn change(&self, change: Setup) -> Reloaded {
        self.order_reload(Some(Box::new(change))).await
    }

    async fn order_reload(&self, change: Option<Box<Setup>>) -> Reloaded {
        self.ask(|done| Order::Reload(change, done))
            .await
            .unwrap_or_else(|| Err("the server is stopping".into()))
    }

    /// Adds workers, which stay beyond a reload; how many there are then.
    pub async fn add(&self, count: usize) -> Resized {
        self.resize(|done| Order::Add(count, done)).await
    }

    /// Takes workers away, which finish what they have; how many there will be.
    pub async fn remove(&self, count: usize) -> Resized {
        self.resize(|done| Order::Remove(count, done)).await
    }

    async fn resize(&self, order: impl FnOnce(oneshot::Sender<Resized>) -> Order) -> Resized {
        self.ask(order)
            .await
            .unwrap_or_else(|| Err(NotResized::Stopping(self.name().to_owned())))
    }

    /// Gives the call that a worker is at more time, counted from now; how much it is.
    pub async fn extend(&self, pid: u32, time: Duration) -> Result<Duration, NotExtended> {
        self.pool.extend(pid, time).await
    }

    /// Stops all workers; how many had to be killed.
    pub async fn stop(&self, grace: Duration) -> usize {
        self.ask(|killed| Order::Stop { grace, killed })
            .await
            .unwrap_or(0)
    }

    /// None when the owner has ended.
    async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Option<T> {
        let (done, answer) = oneshot::channel();
        self.orders.send(order(done)).await.ok()?;
        answer.await.ok()
    }
}

fn pings() -> Interval {
    let mut pings = interval(PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

fn report(error: &LaunchError) -> Arc<str> {
    tracing::error!(target: "server", "{}", error.report());
    error.report().into()
}

struct PoolTask {
    pool: Pool,
    setup: Setup,
    development: bool,
    supervised: Option<RunningPool>,
    standing: watch::Sender<Standing>,
    pings: Interval,
    renewals: Renewals,
}

impl PoolTask {
    /// Brings new workers up; with a change, which holds if they come up.
    async fn boot(&mut self, change: Option<Setup>) -> Result<(), LaunchError> {
        let Some(change) = change else {
            match &self.supervised {
                Some(supervised) => supervised.reload(self.setup.reset_timeout).await?,
                None => self.supervised = Some(self.setup.start(&self.pool).await?),
            }
            return Ok(());
        };
        // First, because some of them are read as a worker starts.
        self.pool.adjust(&change.options).await;
        let booted = match &self.supervised {
            Some(supervised) => {
                let Setup {
                    launch,
                    plan,
                    reset_timeout,
                    ..
                } = &change;
                match launch.launcher().await {
                    Ok(launcher) => supervised.change(launcher, *plan, *reset_timeout).await,
                    Err(error) => Err(error),
                }
            }
            None => change
                .start(&self.pool)
                .await
                .map(|supervised| self.supervised = Some(supervised)),
        };
        match booted {
            Ok(()) => self.setup = change,
            Err(_) => self.pool.adjust(&self.setup.options).await,
        }
        booted
    }

    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        while let Some(order) = self.next(&mut orders).await {
            match order {
                Order::Add(count, done) => {
                    let added = match &self.supervised {
                        Some(supervised) => supervised.add(count).await,
                        None => Err(self.down()),
                    };
                    _ = done.send(added); // as below
                }
                Order::Remove(count, done) => {
                    let removed = match &self.supervised {
                        Some(supervised) => supervised.remove(count).await,
                        None => Err(self.down()),
                    };
                    _ = done.send(removed); // as below
                }
                Order::Reload(change, done) => {
                    let reloaded = self.reload(change.map(|change| *change)).await;
                    _ = done.send(reloaded); // whoever asked may have left
                }
                Order::Stop { grace, killed } => {
                    let count = match self.supervised.take() {
                        Some(supervised) => supervised.stop(grace).await,
                        None => 0,
                    };
                    _ = killed.send(count);
                    return;
                }
            }
        }
    }

    /// The next order; meanwhile others learn whether there are workers.
    async fn next(&mut self, orders: &mut mpsc::Receiver<Order>) -> Option<Order> {
        let Some(supervised) = &self.supervised else {
            return orders.recv().await;
        };
        let mut troubles = supervised.troubles();
        loop {
            tokio::select! {
                order = orders.recv() => return order,
                _ = self.pings.tick() => self.pool.ping(),
                () = supervised.renewal_asked_for() => self.renewals.ask(),
                () = self.renewals.begin() => {
                    let (nobody, _) = oneshot::channel();
                    return Some(Order::Reload(None, nobody));
                }
                Ok(()) = troubles.changed() => {
                    let standing = match troubles.borrow_and_update().clone() {
                        Some(why) => Standing::Down(why),
                        None => Standing::Up,
                    };
                    self.standing.send_replace(standing);
                }
            }
        }
    }

    fn down(&self) -> NotResized {
        match &*self.standing.borrow() {
            Standing::Down(why) => NotResized::Boot(why.clone()),
            Standing::Up => NotResized::Stopping(self.pool.name().to_owned()),
        }
    }

    async fn reload(&mut self, change: Option<Setup>) -> Reloaded {
        let reloaded = self.boot(change).await;
        let pool = self.pool.name();
        match reloaded {
            Ok(()) => {
                tracing::info!(target: "server", pool, "reloaded: new workers have taken over");
                self.standing.send_replace(Standing::Up);
                Ok(())
            }
            Err(error) => {
                let why = report(&error);
                tracing::error!(target: "server", pool, "reload failed: the old workers stay");
                if self.development {
                    // Old code would answer as if nothing had been written.
                    self.standing.send_replace(Standing::Down(why.clone()));
                }
                Err(why)
            }
        }
    }
}
