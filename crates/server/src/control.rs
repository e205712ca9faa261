//! What the command line steers a server by, through the control socket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use pronghorn_base::{lock, millis};
use pronghorn_control::{
    Answer, Ask, ListenError, Listener, Place, Refusal, Reset, Served, State, Status, Steerable,
    Steering, Surroundings, Tell, WorkersOf, serve,
};
use pronghorn_plugin_api::rpc::{Caller, Encoding, Methods};
use pronghorn_plugin_api::{Caches, Configuration, Health, InOrder, Question, Restartable};
use pronghorn_workers::{DEFAULT_POOL, PoolHandle, Pools, newest_generation};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::VERSION;
use crate::log_readers::LogReaders;
use crate::logs::Newest;
use crate::views::{pool_status, processes_of, program_status, program_waits, workers_of};

/// Longer than what the signals of one stop may be apart, so that the second one counts.
const SECOND_STOP: Duration = Duration::from_millis(200);

/// A server's face to the command line, from before its start to its end. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Control(Arc<Shared>);

/// A control socket that commands are answered on. Dropped, it is gone.
#[derive(Debug)]
pub struct ControlSocket(JoinHandle<io::Result<()>>);

#[derive(Debug)]
struct Shared {
    since: Instant,
    config: Option<PathBuf>,
    grace: Duration,
    starting: OnceLock<Starting>,
    serving: OnceLock<Serving>,
    stopping: AtomicBool,
    logs: LogReaders,
    wishes: mpsc::Sender<ReloadWish>,
    /// Until the server takes it.
    wished: Mutex<Option<mpsc::Receiver<ReloadWish>>>,
}

/// How a reload came out, for whoever asked for it.
#[derive(Debug, Default)]
pub struct ReloadOutcome {
    /// Something goes on as it was.
    pub failed: bool,
    /// The part of the files that does not hold now, and why; none where all of it holds.
    pub pending: Option<String>,
}

impl ReloadOutcome {
    pub(crate) fn failed(why: String) -> Self {
        Self {
            failed: true,
            pending: Some(why),
        }
    }
}

/// A command that waits for a reload.
pub type ReloadWish = oneshot::Sender<ReloadOutcome>;

/// Commands that wait for a reload; each has one of its own.
const MOST_WISHES: usize = 8;

/// A server while services with processes start: what it can show.
#[derive(Debug)]
pub(crate) struct Starting {
    pub(crate) health: Health,
    /// More are added.
    pub(crate) methods: Methods,
}

/// What a server that is up can show.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Services by name and where clients reach them.
    pub(crate) addresses: Vec<(&'static str, Vec<String>)>,
    /// None where no service has workers.
    pub(crate) pools: Option<Pools>,
    pub(crate) health: Health,
    pub(crate) caches: Caches,
    pub(crate) methods: Methods,
    pub(crate) configuration: Configuration,
    /// The state directory.
    pub(crate) state: PathBuf,
}

impl Control {
    /// Of a server that is about to start with this configuration, and takes `grace` at most to
    /// stop. Commands see the `newest` records of its log.
    pub fn new(config: Option<PathBuf>, grace: Duration, newest: Arc<Newest>) -> Self {
        let (wishes, wished) = mpsc::channel(MOST_WISHES);
        Self(Arc::new(Shared {
            wishes,
            wished: Mutex::new(Some(wished)),
            since: Instant::now(),
            config,
            grace,
            starting: OnceLock::new(),
            serving: OnceLock::new(),
            stopping: AtomicBool::new(false),
            logs: LogReaders::new(newest),
        }))
    }

    /// Takes commands on the socket of `place`. A server that can't have one serves all the same,
    /// after a warning.
    ///
    /// Must be called on the control runtime.
    pub fn listen(&self, place: &Place) -> Option<ControlSocket> {
        match Listener::bind_at(place, &Surroundings::of_this_process()) {
            Ok(listener) => Some(self.answer_on(listener)),
            Err(error @ ListenError::Running { .. }) => {
                tracing::warn!(
                    target: "server",
                    "{error}: `pronghorn reset`, `workers`, `status`, `logs` and `stop` reach the \
                     other server; with a configuration of its own, or with `rpc.listen`, they reach \
                     this one"
                );
                None
            }
            Err(ListenError::Bind(error)) => {
                tracing::warn!(
                    target: "server",
                    "there is no control socket, so `pronghorn reset`, `workers`, `status` and `stop` find this server by \
                     `rpc.listen` alone, and `logs` does not: {error}"
                );
                None
            }
        }
    }

    /// The same in the place of a server that has handed over and is about to end.
    ///
    /// Must be called on the control runtime.
    pub fn take_over(&self, place: &Place) -> Option<ControlSocket> {
        let mut paths = place
            .of_server_before(&Surroundings::of_this_process())
            .into_iter();
        let Some(path) = paths.find(|path| path.exists()) else {
            return self.listen(place);
        };
        Listener::take_over(&path)
            .map(|listener| self.answer_on(listener))
            .inspect_err(
                |error| tracing::warn!(target: "server", "there is no control socket: {error}"),
            )
            .ok()
    }

    fn answer_on(&self, listener: Listener) -> ControlSocket {
        tracing::debug!(target: "server", socket = %listener.path().display(), "taking commands");
        let steered = serve(listener, self.0.clone());
        ControlSocket(tokio::runtime::Handle::current().spawn(steered))
    }

    /// Commands that want a reload. Whoever serves takes it, once.
    pub fn wishes(&self) -> Option<mpsc::Receiver<ReloadWish>> {
        lock(&self.0.wished).take()
    }

    /// The configuration, if there is one.
    pub(crate) fn config(&self) -> Option<&Path> {
        self.0.config.as_deref()
    }

    pub(crate) fn starts(&self, starting: Starting) {
        _ = self.0.starting.set(starting); // a server starts once
    }

    pub(crate) fn serves(&self, serving: Serving) {
        _ = self.0.serving.set(serving); // a server starts once
    }

    pub(crate) fn stops(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Steerable for Shared {
    fn steer(self: Arc<Self>, ask: Ask, answer: Answer) -> Steering {
        Box::pin(async move {
            match ask {
                Ask::Status => {
                    let status = Box::new(self.status().await);
                    answer.tell(Tell::Status(status)).await;
                }
                Ask::Workers { of } => {
                    let (processes, of) = self.processes(of);
                    let mut pools = Vec::new();
                    for workers in &of.map_or(Ok(Vec::new()), |of| self.named(&of))? {
                        pools.push(workers_of(&workers.facts().await));
                    }
                    pools.extend(processes);
                    answer.tell(Tell::Workers(pools)).await;
                }
                Ask::Reset { of } => {
                    let (caches, of) = self.caches(of);
                    for cache in caches {
                        answer.tell(Tell::Emptied { cache }).await;
                    }
                    let Some(of) = of else { return Ok(()) };
                    let (programs, of) = self.programs(of);
                    for program in &programs {
                        let pool = program.group.clone();
                        answer.tell(Tell::Resetting { pool }).await;
                    }
                    let work = programs.into_iter().map(|program| {
                        let order = program.order;
                        (order, async move { restart(&program).await })
                    });
                    let mut restarting = InOrder::new(work);
                    while let Some(reset) = restarting.next().await {
                        answer.tell(Tell::Reset(reset)).await;
                    }
                    let Some(of) = of else { return Ok(()) };
                    // One after the other: each boots as many workers as the machine can at once.
                    for workers in &self.named(&of)? {
                        let pool = workers.name().to_owned();
                        answer.tell(Tell::Resetting { pool }).await;
                        answer.tell(Tell::Reset(reset(workers).await)).await;
                    }
                }
                Ask::Reload => {
                    let from = self.logs.next();
                    let ReloadOutcome { failed, pending } = self.reload().await?;
                    let told = Tell::Reloaded {
                        failed,
                        pending,
                        records: self.logs.of_reload(from),
                    };
                    answer.tell(told).await;
                }
                Ask::Resize { pool, by } => {
                    let pool = pool.unwrap_or_else(|| DEFAULT_POOL.to_owned());
                    let of = std::slice::from_ref(&pool);
                    let [workers] = &self.named(of)?[..] else {
                        return Err(Refusal(format!(
                            "`{pool}` is several pools\nhint: name one of them"
                        )));
                    };
                    let count = by.unsigned_abs() as usize;
                    let resized = match by {
                        0.. => workers.add(count).await,
                        _ => workers.remove(count).await,
                    };
                    let workers = resized.map_err(|why| Refusal(why.to_string()))? as u64;
                    answer.tell(Tell::Resized { pool, workers }).await;
                }
                Ask::Call { method, argument } => {
                    let result = self.call(&method, &argument).await?;
                    answer.tell(Tell::Result(result)).await;
                }
                Ask::Logs(wanted) => self.logs.tell(&wanted, &answer).await?,
                Ask::Stop { force } => {
                    let pid = std::process::id();
                    let within = if force { 0 } else { self.grace.as_secs() };
                    answer.tell(Tell::Stopping { pid, within }).await;
                    stop(force).await?;
                }
            }
            Ok(())
        })
    }
}

impl Shared {
    fn state(&self) -> State {
        if self.stopping.load(Ordering::Relaxed) {
            State::Stopping
        } else if self.serving.get().is_none() {
            State::Starting
        } else {
            State::Serving
        }
    }

    fn pools(&self) -> Option<&Pools> {
        self.serving.get()?.pools.as_ref()
    }

    async fn reload(&self) -> Result<ReloadOutcome, Refusal> {
        match self.state() {
            State::Starting => return Err(Refusal("the server is starting".to_owned())),
            State::Stopping => return Err(Refusal("the server is stopping".to_owned())),
            State::Serving => {}
        }
        let (wish, reloaded) = oneshot::channel();
        self.wishes.try_send(wish).map_err(|_| {
            Refusal("as many reloads are asked for as may wait: ask again later".to_owned())
        })?;
        let is_gone =
            |_| Refusal("the server is stopping, or another process has taken over".to_owned());
        reloaded.await.map_err(is_gone)
    }

    /// Empties the caches of these names, of all for none, and gives what they are with the names
    /// that are left; None where there were caches alone.
    fn caches(&self, mut names: Vec<String>) -> (Vec<String>, Option<Vec<String>>) {
        let Some(caches) = self.serving.get().map(|serving| &serving.caches) else {
            return (Vec::new(), Some(names));
        };
        let wants_all = names.is_empty();
        let mut emptied = Vec::new();
        for name in caches.names() {
            if wants_all || names.iter().any(|wanted| wanted == name) {
                caches.forget(name);
                emptied.push(name.to_owned());
            }
        }
        names.retain(|name| !emptied.contains(name));
        let is_done = !wants_all && names.is_empty();
        (emptied, (!is_done).then_some(names))
    }

    /// The programs of these names, and the names that are left; None where there were programs
    /// alone. Without a name there are none: a program may take an hour for its stop.
    fn programs(&self, mut names: Vec<String>) -> (Vec<Restartable>, Option<Vec<String>>) {
        let Some(serving) = self.serving.get().filter(|_| !names.is_empty()) else {
            return (Vec::new(), Some(names));
        };
        let mut programs: Vec<Restartable> = Vec::new();
        names.retain(|name| {
            let found = serving.health.processes().restartable(name);
            let is_other = found.is_empty();
            let is_new = |it: &Restartable| programs.iter().all(|known| known.group != it.group);
            let new: Vec<_> = found.into_iter().filter(is_new).collect();
            programs.extend(new);
            is_other
        });
        let is_done = names.is_empty();
        (programs, (!is_done).then_some(names))
    }

    /// The processes beside workers of these names, of all for none, and the names that are left;
    /// None where there were such processes alone.
    fn processes(&self, mut names: Vec<String>) -> (Vec<WorkersOf>, Option<Vec<String>>) {
        let Some(serving) = self.serving.get() else {
            return (Vec::new(), Some(names));
        };
        let mut groups = processes_of(serving.health.processes());
        let wants_all = names.is_empty();
        let is = |group: &WorkersOf, name: &str| name == group.plugin || name == group.pool;
        let known = groups.clone();
        groups.retain(|group| wants_all || names.iter().any(|name| is(group, name)));
        names.retain(|name| !known.iter().any(|group| is(group, name)));
        let is_done = !wants_all && names.is_empty();
        (groups, (!is_done).then_some(names))
    }

    /// The pools of these names, each once; all for none. The name of a service means all of its
    /// pools.
    fn named(&self, names: &[String]) -> Result<Vec<PoolHandle>, Refusal> {
        if self.state() == State::Starting {
            return Err(Refusal(
                "the server is starting: its workers are not up yet".to_owned(),
            ));
        }
        let Some(pools) = self.pools() else {
            return Err(Refusal(
                "the server has no workers: no service in its configuration has any".to_owned(),
            ));
        };
        let mut all = pools.all();
        let is = |pool: &PoolHandle, name: &str| name == pool.owner() || name == pool.name();
        for name in names {
            if !all.iter().any(|pool| is(pool, name)) {
                return Err(Refusal(no_pool(name, &all)));
            }
        }
        all.retain(|pool| names.is_empty() || names.iter().any(|name| is(pool, name)));
        Ok(all)
    }

    async fn status(&self) -> Status {
        let serving = self.serving.get();
        let mut pools = Vec::new();
        for workers in self.pools().map(Pools::all).unwrap_or_default() {
            pools.push(pool_status(&workers.facts().await));
        }
        let starting = self.starting.get();
        let processes = starting.map(|starting| starting.health.processes());
        let addresses = serving.map(|serving| serving.addresses.as_slice());
        let services = addresses.unwrap_or_default().iter();
        let services = services.filter(|(_, at)| !at.is_empty());
        Status {
            version: VERSION.to_owned(),
            pid: std::process::id(),
            state: self.state(),
            uptime: self.since.elapsed().as_secs(),
            config: self.config.clone(),
            state_dir: serving.map(|serving| serving.state.clone()),
            services: services
                .map(|(name, at)| Served {
                    service: (*name).to_owned(),
                    at: at.join(", "),
                })
                .collect(),
            not_ready: self.starting().or_else(|| self.wrong(Question::Ready)),
            not_alive: self.wrong(Question::Alive),
            pending: serving.and_then(|serving| serving.configuration.pending()),
            pools,
            programs: processes.map_or_else(Vec::new, program_status),
            waits: processes.map_or_else(Vec::new, program_waits),
            caches: serving
                .map(|serving| serving.caches.names())
                .unwrap_or_default()
                .into_iter()
                .map(ToOwned::to_owned)
                .collect(),
        }
    }

    async fn call(&self, method: &str, argument: &Value) -> Result<Value, Refusal> {
        let refusal = |why: &dyn std::fmt::Display| Refusal(why.to_string());
        let found = match (self.serving.get(), self.starting.get()) {
            (Some(serving), _) => serving.methods.find(method).map_err(|why| refusal(&why)),
            // One that is not there may come.
            (None, starting) => starting
                .and_then(|starting| starting.methods.find(method).ok())
                .ok_or_else(|| Refusal("the server is starting".to_owned())),
        }?;
        let argument = argument.to_string().into();
        let result = found
            .call(&Caller::anyone(), Encoding::Json, argument)
            .await;
        let result = result.map_err(|why| refusal(&why))?;
        serde_json::from_slice(&result).map_err(|why| refusal(&why))
    }

    fn starting(&self) -> Option<String> {
        self.serving.get().is_none().then(|| "starting".to_owned())
    }

    /// Why the services that are up would answer a health check's question with no.
    fn wrong(&self, question: Question) -> Option<String> {
        let health = &self.serving.get()?.health;
        let mut answers = health.names().filter_map(|name| health.ask(question, name));
        let wrong = answers.find_map(Result::err);
        wrong.map(|wrong| wrong.to_string())
    }
}

fn no_pool(name: &str, all: &[PoolHandle]) -> String {
    let known: Vec<_> = all.iter().map(PoolHandle::name).collect();
    let mut owners: Vec<_> = all.iter().map(PoolHandle::owner).collect();
    owners.dedup();
    let means = match &owners[..] {
        [owner] => format!("`{owner}` means all of them"),
        owners => format!("`{}` mean all of theirs", owners.join("`, `")),
    };
    format!(
        "there is no pool `{name}`\nhint: there are `{}`; {means}",
        known.join("`, `")
    )
}

async fn reset(workers: &PoolHandle) -> Reset {
    let start = Instant::now();
    let failed = workers.reload().await.err();
    let took = millis(start.elapsed());
    // The old ones may not have heard of it yet.
    let all = workers.facts().await.workers;
    let generation = newest_generation(&all);
    let new = all.iter().filter(|it| it.info.generation == generation);
    Reset {
        pool: workers.name().to_owned(),
        took,
        workers: new.count() as u64,
        generation,
        failed: failed.map(|why| why.to_string()),
    }
}

/// Programs have no generations.
async fn restart(program: &Restartable) -> Reset {
    let start = Instant::now();
    let name = &program.group;
    let failed = program.restart().await.err().map(|why| {
        format!("{name}: {why}\nhint: `pronghorn programs logs {name}` shows what it has printed")
    });
    Reset {
        pool: program.group.clone(),
        took: millis(start.elapsed()),
        workers: program.count() as u64,
        generation: 0,
        failed,
    }
}

/// As a signal would: there is one way to stop.
async fn stop(force: bool) -> Result<(), Refusal> {
    let signal = || {
        let sent = kill_process(getpid(), Signal::TERM);
        sent.map_err(|error| Refusal(format!("it can't be stopped: {error}")))
    };
    signal()?;
    if force {
        tokio::time::sleep(SECOND_STOP).await;
        signal()?;
    }
    Ok(())
}
