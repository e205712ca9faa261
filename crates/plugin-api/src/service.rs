//! The life of a service.

use std::any::Any;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pronghorn_base::BoxFuture;
use pronghorn_config::{Command, Listen, Severity, Table};
use pronghorn_metrics::Registry;
use pronghorn_process::open_files::{Reserved, Share};
use pronghorn_process::{Credentials, find_runnable, search_path};
use pronghorn_store::LazyStore;
use pronghorn_trace::Tracer;
use pronghorn_workers::settings::{PoolSettings, Runner};
use pronghorn_workers::{Io, Pools, ServerSettings, WorkerUsers, lacks_script, words};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::at_end::AtEnd;
use crate::caches::Caches;
use crate::configuration::Configuration;
use crate::health::Health;
use crate::pages::Pages;
use crate::readiness::Readiness;
use crate::rpc::Methods;
use crate::sockets::Sockets;

/// Why a service did not start; what its source says is printed as well.
pub type StartError = Box<dyn Error + Send + Sync>;

/// A service that was made from its settings and has had no effect yet.
///
/// The server starts services one after the other and stops them in reverse: first those without
/// workers, which workers call from their first line on and until their last, then those that have
/// workers.
pub trait Service: Any + fmt::Debug + Send {
    /// Its pools of PHP workers. Services that have some can be reset, and they start last.
    fn pools(&self) -> Vec<ConfiguredPool<'_>> {
        Vec::new()
    }

    /// Whether it starts processes, by which it is one of those with workers.
    fn starts_processes(&self) -> bool {
        !self.pools().is_empty()
    }

    /// Whether it starts processes, beside its pools, that run as the server's own user if
    /// `server.user` is not set.
    fn has_unnamed_user(&self) -> bool {
        false
    }

    /// Whether health checks ask after it.
    fn is_watched(&self) -> bool {
        !self.pools().is_empty()
    }

    /// Whether a server has something to do with this service alone.
    fn serves(&self) -> bool {
        true
    }

    /// Where it listens.
    fn listens(&self) -> Vec<Listen> {
        Vec::new()
    }

    /// The part of the open files that its clients take, which `http` leaves to it.
    fn share(&self) -> Option<Share> {
        None
    }

    /// Says what is wrong between this section and others. `t` is the whole configuration.
    fn check(&self, t: &mut Table<'_>, server: &ServerSettings) {
        for pool in self.pools() {
            pool.check_command(t, server);
        }
    }

    /// Says what of this machine does not fit the settings, beside its pools: what the start would
    /// fail by.
    fn look(&self, _machine: &Machine<'_>) -> Vec<Finding> {
        Vec::new()
    }

    /// Channels of the log in which its lines stand alone, and the outputs of each: `stdout`,
    /// `stderr` or files.
    fn log_channels(&self) -> Vec<(&'static str, &[String])> {
        Vec::new()
    }

    /// How long the server goes on after it has said that it is not ready any more.
    fn drain_delay(&self) -> Duration {
        Duration::ZERO
    }

    /// How many I/O threads it asks for. The server has as many as the service that asks for most.
    fn io_threads(&self) -> Option<usize> {
        None
    }

    /// Starts it on the runtime it is called on. Done once it does its work or, when that comes
    /// later, once [`Context::readiness`] can tell.
    ///
    /// Whoever drops the future ends what was begun.
    fn start(
        self: Box<Self>,
        context: Context,
    ) -> BoxFuture<'static, Result<Box<dyn Running>, StartError>>;
}

impl dyn Service {
    /// The service itself, where its kind is known: in its own [`Running::reload`]. None for
    /// another kind.
    #[must_use]
    pub fn downcast<S: Service>(self: Box<Self>) -> Option<Box<S>> {
        (self as Box<dyn Any>).downcast().ok()
    }
}

/// A pool of a service before its start.
#[derive(Clone, Debug)]
pub struct ConfiguredPool<'a> {
    /// Where its keys are, `http.pools.api`.
    pub section: String,
    /// Its name in records and commands, one of its own among all pools of the server.
    pub name: &'a str,
    /// What it is, as configured.
    pub settings: &'a PoolSettings,
}

impl ConfiguredPool<'_> {
    /// Whether nothing says which command its workers run.
    #[must_use]
    pub fn lacks_command(&self, server: &ServerSettings) -> bool {
        let own = match &self.settings.runner {
            Runner::Worker(worker) => worker.command.is_some(),
            Runner::Classic(_) | Runner::FastCgi(_) | Runner::Cgi(_) => true,
        };
        !own && server.command.is_none()
    }

    /// Says so where it has no command, neither of its own nor the server's.
    pub fn check_command(&self, t: &mut Table<'_>, server: &ServerSettings) {
        if self.lacks_command(server) {
            let Self { section, name, .. } = self;
            let (service, _) = section.split_once('.').unwrap_or((section, ""));
            t.error(
                service,
                &format!(
                    "has no workers for pool `{name}`: neither `server.command` nor `{section}.command` is set"
                ),
                &format!("for example `command: php {name}.php` in `{section}`"),
            );
        }
    }
}

/// What of this machine does not fit the configuration.
#[derive(Clone, Debug)]
pub struct Finding {
    /// An error where the server does not start with it.
    pub severity: Severity,
    /// The key's path.
    pub key: String,
    /// Goes on after the key's path.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// The machine of a server that is about to start.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// Commands work in it, and relative paths begin there.
    pub directory: &'a Path,
    /// The environment of commands.
    pub environment: &'a [(OsString, OsString)],
    /// None if another user will start the server: then nobody knows what its users may do.
    pub users: Option<&'a WorkerUsers>,
    /// The time of a server's stop.
    pub grace_period: Duration,
    /// The open files that `http` leaves to all services and their workers.
    pub reserved: &'a Reserved,
}

/// Sums up the open files that services and their workers take.
#[must_use]
pub fn reserved_by<'a>(services: impl IntoIterator<Item = &'a dyn Service>) -> Reserved {
    let mut reserved = Reserved::default();
    for service in services {
        reserved.shares.extend(service.share());
        let pools = service.pools().into_iter();
        reserved.workers += pools.map(|it| it.settings.most_workers()).sum::<usize>();
    }
    reserved
}

impl Machine<'_> {
    /// Finds a limit of connections that the limit of open files does not allow. Whoever checks for
    /// another user does not know the server's.
    #[must_use]
    pub fn lacks_open_files(&self, key: String, wanted: usize, possible: usize) -> Option<Finding> {
        if wanted <= possible || self.users.is_none() {
            return None;
        }
        Some(Finding::doubtful(
            key,
            format!("is {wanted}, and the limit of open files leaves {possible} here"),
            "raise that limit where the server is started (`ulimit -Hn`, `LimitNOFILE` of systemd), \
             or write a lower number",
        ))
    }

    /// The search path of commands.
    #[must_use]
    pub fn path(&self) -> Option<&OsStr> {
        search_path(self.environment)
    }

    /// The user of commands that name none. None: the server's own user.
    #[must_use]
    pub fn user(&self) -> Option<&Credentials> {
        let (_, user) = self.users?.of_server()?;
        Some(user)
    }

    /// The reason for which a command would not do its work as this user: of its program, or of
    /// the PHP script that it names.
    #[must_use]
    pub fn lacks(&self, command: &Command, user: Option<&Credentials>) -> Option<Lack> {
        let lack = |(message, hint), starts| Lack {
            message,
            hint,
            starts,
        };
        if let Some(needs) = command.needs_shell() {
            return Some(lack(needs, false));
        }
        let program = command.program();
        match find_runnable(program, self.path(), self.directory, user) {
            Err(why) if self.users.is_none() && why.is_about_user() => None,
            Err(why) => {
                let message = format!("runs `{program}`, which {why}");
                Some(lack((message, why.hint(self.directory)), false))
            }
            Ok(_) => {
                let user = user.filter(|_| self.users.is_some());
                let argv = words(command);
                let lacks = lacks_script(&argv, self.environment, self.directory, user)?;
                Some(lack(lacks, true))
            }
        }
    }
}

/// Why a command does not do its work on a machine.
#[derive(Clone, Debug)]
pub struct Lack {
    /// Goes on after the key's path.
    pub message: String,
    /// A step that mends it.
    pub hint: String,
    /// It is started all the same, and fails.
    pub starts: bool,
}

/// A start fails with it where one key is the reason.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key, message, hint, ..
        } = self;
        write!(f, "`{key}` {message}\nhint: {hint}")
    }
}

impl Error for Finding {}

impl Finding {
    /// What the server does not start without.
    #[must_use]
    pub fn missing(key: impl Into<String>, message: String, hint: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            key: key.into(),
            message,
            hint: hint.into(),
        }
    }

    /// A setting that the server starts with, and that is probably a mistake.
    #[must_use]
    pub fn doubtful(key: impl Into<String>, message: String, hint: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::missing(key, message, hint)
        }
    }

    /// A directory that a key names, if it can't be used. Relative paths begin in the other one.
    #[must_use]
    pub fn of_folder(key: impl Into<String>, named: &Path, folder: &Path) -> Option<Self> {
        let error = std::fs::read_dir(folder.join(named)).err()?;
        Some(Self::missing(
            key,
            format!("names `{}`, which can't be used: {error}", named.display()),
            "the server does not start without it: create it, or name another directory",
        ))
    }
}

/// A service at work. Dropped without [`stop`](Self::stop), it ends at once.
pub trait Running: Send {
    /// All services are up, and no other process is responsible any more: from now on, clients are
    /// taken from the listening sockets. A socket that workers need while they boot is served from
    /// the start, unless it was inherited.
    ///
    /// # Errors
    ///
    /// When a socket can't be served.
    fn open(&mut self) -> Result<(), StartError> {
        Ok(())
    }

    /// Goes over to other settings: those of `to`, which was made from the configuration as it is
    /// now and does not start. Called for each reload, whether or not they differ.
    ///
    /// The default is for a service whose settings hold until it ends; its workers, if it has some,
    /// are replaced all the same.
    fn reload(&mut self, _to: Box<dyn Service>) -> BoxFuture<'_, Reload> {
        Box::pin(std::future::ready(Reload::NeedsRestart))
    }

    /// Where clients reach it, as a person would type it: `http://127.0.0.1:8080`.
    fn addresses(&self) -> Vec<String> {
        Vec::new()
    }

    /// Variables by which workers find it. Those of services without workers count.
    fn variables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Storages in shared memory that workers map, with their names. Those of services without
    /// workers count.
    fn storages(&self) -> Vec<(String, Arc<OwnedFd>)> {
        Vec::new()
    }

    /// What the work under way may take at most after another process has taken over, where that is
    /// longer than a stop.
    fn handover_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The next process begins to use the sockets that this one offered, or gives them back.
    fn hand_over(&mut self, _step: Handover) {}

    /// Returns when all is written down that the next process would otherwise do again: after
    /// [`Handover::Done`], before the store goes to it. Soon, whatever happens.
    fn handed_over(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Ends it: nothing new is begun, what is under way may finish until `deadline`, what is left
    /// is cut off.
    ///
    /// Returns soon after `deadline` at the latest. Whoever drops the future cuts off what is left.
    fn stop(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Stopped>;
}

/// What came of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Reload {
    /// The new settings hold, as far as a reload applies them.
    Applied,
    /// The old ones go on; the service has said why.
    Failed,
    /// The old ones go on: others hold from a restart on.
    NeedsRestart,
}

/// How far another process is in taking over from this one, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// It boots. Sockets on which workers announce themselves are its own for this time.
    Begun,
    /// It gave up: all is as before.
    Failed,
    /// It takes clients. This process takes no further ones, leaves files of sockets alone, and is
    /// about to stop.
    Done,
}

/// What a service is started with.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// Cancelled when the server begins to stop, for all services at once, before the first one's
    /// [`stop`](Running::stop): the time to take nothing new. A service that others need to finish
    /// their work goes on until its own `stop`.
    pub shutdown: CancellationToken,
    /// Where the service adds its methods, as it starts.
    pub rpc: Methods,
    /// Where those are carried out that come over RPC; None: where the services start.
    pub rpc_runtime: Option<Handle>,
    /// Where relative paths begin.
    pub folder: PathBuf,
    /// As whom the workers of each pool run.
    pub users: WorkerUsers,
    /// The open files that `http` leaves to all services and their workers.
    pub reserved: Reserved,
    /// How the services with workers are.
    pub health: Health,
    /// What is configured, as text.
    pub configuration: Configuration,
    /// What `reset` makes a service forget, beside replacing workers.
    pub caches: Caches,
    /// Where the service adds its pages of the admin listener.
    pub pages: Pages,
    /// None for a service without pools.
    pub workers: Option<WorkerContext>,
    /// The pools of all services, to look at: there once the services with workers start.
    pub pools: Arc<OnceLock<Pools>>,
    /// This service's own: its names begin with `pronghorn_`, and it registers at its start.
    pub metrics: Registry,
    /// Of all services. On once the service that exports traces has started, which is before those
    /// with workers.
    pub tracer: Tracer,
    /// This service's own.
    pub readiness: Readiness,
    /// Those to take and those to leave for the next process.
    pub sockets: Sockets,
    /// Where the server keeps what outlives it. A service that uses it closes it in the end: the
    /// next process may wait for it.
    pub store: LazyStore,
    /// For what other services may use until they have stopped.
    pub at_end: AtEnd,
    /// The directory of that store, and of what else outlives the server.
    pub state: PathBuf,
}

impl Context {
    /// Where relative paths begin.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.folder
    }
}

/// What a service needs to have workers.
#[derive(Clone, Debug)]
pub struct WorkerContext {
    /// Where it starts its pools.
    pub pools: Pools,
    /// The threads on which connections of clients and workers live.
    pub io: Io,
}

/// How a service came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// All work was finished.
    Clean,
    /// The deadline came first. Says what was cut off, for the log: `2 calls`.
    CutOff(String),
}

impl Stopped {
    /// The end of a service whose clients call workers, with the number of each that was cut off.
    pub fn by(connections: usize, workers: usize) -> Self {
        if connections == 0 && workers == 0 {
            return Self::Clean;
        }
        Self::CutOff(format!("{connections} connections, {workers} workers"))
    }
}
