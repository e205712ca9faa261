//! The workers of the server's pools: how they are started, and the one task per pool that starts, replaces and stops them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_config::{Address, Command, Listen};
use pronghorn_metrics::Registry;
use pronghorn_pool::settings::{
    ClientGone, CodecChoice, FastCgiSettings, MAX_WORKERS, Mode, PoolSettings, SpawnChoice,
    TransportChoice,
};
use pronghorn_pool::{
    Addresses, BootError, CommandLauncher, Current, FastCgiLauncher, Fpm, Home, LauncherRef,
    NotExtended, NotResized, Options, PATIENCE, Peers, Php, Place, Plan, Pool, ProgramLauncher,
    RelayListener, RunningPool, Spawn, Spool, Stats, Warmup, WorkerInfo, Zygotes, classic_command,
    classic_variables, script_of,
};
use pronghorn_process::{Credentials, Spawner, cpus, which};
use pronghorn_wire::Codec;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use crate::settings::{RelayAddress, ServerSettings};
use crate::user::WorkerUser;

/// Of a pool in which each call gets a fresh worker, one serves and one is ready.
const DEBUG_WORKERS: usize = 2;
/// How often a worker that is free is asked whether it hears.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Workers that ask for new ones get them at most so often: code that calls `opcache_reset()` with each request must not keep the
/// machine busy with starting PHP.
const BETWEEN_RENEWALS: Duration = Duration::from_secs(60);
/// Orders that wait for the workers' task. Each is a person's wish or a stop.
const ORDERS: usize = 16;

/// What the pools of all services have in common, for as long as the server runs.
#[derive(Clone, Debug)]
pub struct PoolResources {
    pub user: Option<WorkerUser>,
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
    /// What a worker answers before it gets calls.
    pub warmup: Warmup,
    /// For bodies that workers leave in files.
    pub spool: Arc<Spool>,
}

/// All that is needed to start the workers of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The service that the pool is for.
    pub owner: &'static str,
    pub spec: &'a PoolSpec<'a>,
    pub server: &'a ServerSettings,
    pub environment: &'a [(OsString, OsString)],
    pub resources: &'a PoolResources,
}

impl Start<'_> {
    fn options(&self) -> Options {
        let settings = self.spec.settings;
        Options {
            name: self.spec.name.to_owned(),
            queue_limit: settings.max_queue_size,
            queue_timeout: settings.queue_timeout,
            // In development somebody may sit in a debugger.
            exec_ttl: settings
                .supervisor
                .exec_ttl
                .filter(|_| !self.resources.development),
            deadline_max: settings.deadline_max,
            max_jobs: if settings.debug {
                NonZeroU64::new(1)
            } else {
                settings.max_jobs
            },
            runs_alone: settings.client_gone == ClientGone::Run,
            // Each I/O thread is as busy as a worker of quick calls.
            processors: cpus::usable()
                .saturating_sub(self.resources.homes.len())
                .max(1),
        }
    }

    /// What a pool is, or is to become.
    fn setup(&self) -> Setup {
        Setup {
            options: self.options(),
            launch: self.launch(),
            plan: self.plan(),
            reset_timeout: self.spec.settings.reset_timeout,
        }
    }

    fn plan(&self) -> Plan {
        let settings = self.spec.settings;
        let limits = settings.supervisor.limits();
        let (workers, scaling) = if settings.debug {
            (DEBUG_WORKERS, None)
        } else {
            (settings.num_workers, settings.scaling)
        };
        Plan {
            workers,
            scaling,
            most: MAX_WORKERS.max(scaling.map_or(0, |scaling| scaling.max)),
            at_once: boots_at_once(),
            limits,
        }
    }

    pub fn launch(&self) -> Launch {
        match self.spec.settings.mode {
            Mode::FastCgi => Launch::FastCgi(Arc::new(self.fastcgi())),
            Mode::Cgi => Launch::Programs(Arc::new(self.programs())),
            Mode::Worker => Launch::Command(Arc::new(self.launcher())),
            Mode::Classic => {
                let otherwise = self.fastcgi();
                let is_there = Path::new(&otherwise.argv[0]).is_file();
                Launch::Classic {
                    command: Arc::new(self.launcher()),
                    otherwise: is_there.then(|| Arc::new(otherwise)),
                }
            }
        }
    }

    fn programs(&self) -> ProgramLauncher {
        let mut environment = self.passed_environment();
        self.name_user(&mut environment);
        let path = self.environment.iter().rfind(|(name, _)| name == "PATH");
        if !environment.iter().any(|(name, _)| name == "PATH") {
            environment.extend(path.cloned());
        }
        extend(&mut environment, self.server.env.iter());
        ProgramLauncher {
            spawner: self.resources.spawner.clone(),
            environment,
            user: self.resources.user.as_ref().map(|(_, user)| user.clone()),
            spool: self.spec.spool.clone(),
            homes: self
                .resources
                .homes
                .iter()
                .map(|home| home.runtime.clone())
                .collect(),
        }
    }

    /// Addresses, the pool's own command, or the first PHP for FastCGI that is found.
    fn fastcgi(&self) -> FastCgiLauncher {
        let FastCgiSettings { addresses, php_fpm } = &self.spec.settings.fastcgi;
        let is_fastcgi = self.spec.settings.mode == Mode::FastCgi;
        let (command, argv, peers) = if !addresses.is_empty() {
            let places: Vec<Place> = addresses.iter().map(|at| self.place(at)).collect();
            let shown: Vec<String> = places.iter().map(Place::to_string).collect();
            let addresses = Addresses::new(self.spec.name.to_owned(), places);
            (
                shown.join(", "),
                Vec::new(),
                Peers::Addresses(Arc::new(addresses)),
            )
        } else if let Some(command) = self.spec.settings.command.as_ref().filter(|_| is_fastcgi) {
            (command.to_string(), words(command), Peers::Own)
        } else {
            let find = |names: &[&str]| {
                let mut there = names
                    .iter()
                    .filter(|name| self.find_program(name).is_some());
                there.next().map(|name| (*name).to_owned())
            };
            let fpm = php_fpm.clone().map(|name| (name, true));
            let cgi = || find(&PHP_CGI).map(|name| (name, false));
            let any_fpm = || find(&PHP_FPM).map(|name| (name, true));
            let (name, is_fpm) = fpm
                .or_else(cgi)
                .or_else(any_fpm)
                .unwrap_or_else(|| (PHP_CGI[0].to_owned(), false));
            let mut argv = vec![OsString::from(&name)];
            for (setting, value) in self.spec.settings.ini.written_lines() {
                argv.extend(["-d".into(), format!("{setting}={value}").into()]);
            }
            let peers = if is_fpm {
                Peers::Fpm(self.fpm())
            } else {
                Peers::Own
            };
            (name, argv, peers)
        };
        let mut argv = argv;
        // The programs themselves may have no PATH.
        if let Some(program) = argv.first_mut()
            && let Some(found) = self.find_program(&*program)
        {
            *program = found.into();
        }
        FastCgiLauncher {
            pool: self.spec.name.to_owned(),
            peers,
            master: Current::default(),
            spawner: self.resources.spawner.clone(),
            command,
            argv,
            env: self.variables(),
            cwd: self.resources.folder.clone(),
            user: self.resources.user.clone(),
            boot_timeout: self.spec.settings.boot_timeout,
            warmup: if self.spec.settings.fastcgi.addresses.is_empty() {
                self.spec.warmup.clone()
            } else {
                Warmup::default()
            },
            stream_timeout: self.spec.settings.stream_timeout,
            spool: self.spec.spool.clone(),
            homes: self.resources.homes.clone(),
        }
    }

    /// Whether what a classic pool runs is there.
    pub fn finds_php(&self) -> bool {
        let (_, argv) = self.command();
        let program = argv.first();
        program.is_some_and(|name| self.which(name).is_some_and(|path| path.is_file()))
    }

    /// What the command of a worker script names and this machine has not, and what to do. A command that does not tell which
    /// PHP it runs is believed.
    pub fn lacks(&self) -> Option<(String, String)> {
        let (_, argv) = self.command();
        let program = argv.first()?;
        if !self.finds_php() {
            let message = format!("runs `{}`, which was not found", program.display());
            let hint = format!(
                "`apt install php-cli` for instance; a name is looked up in PATH, and a path is taken from {}",
                self.resources.folder.display()
            );
            return Some((message, hint));
        }
        let script = script_of(&argv, &self.environment(), &self.resources.folder)?;
        let what = match std::fs::File::open(&script) {
            Ok(_) if script.is_dir() => "is a folder".to_owned(),
            Ok(_) => return None,
            Err(error) => format!("can't be read: {error}"),
        };
        let message = format!("runs `{}`, which {what}", script.display());
        let hint = format!(
            "the script's path is taken from {}",
            self.resources.folder.display()
        );
        Some((message, hint))
    }

    fn which(&self, name: &OsStr) -> Option<PathBuf> {
        let path = self.environment.iter().rfind(|(name, _)| name == "PATH");
        which(name, path.map(|(_, path)| path), &self.resources.folder)
    }

    /// Also where daemons are.
    fn find_program(&self, name: impl AsRef<OsStr>) -> Option<PathBuf> {
        let name = name.as_ref();
        self.which(name)
            .or_else(|| which(name, Some(SYSTEM_PROGRAMS), &self.resources.folder))
    }

    fn place(&self, at: &Listen) -> Place {
        match at {
            Listen::Unix(path) => Place::Unix(self.resources.folder.join(path)),
            Listen::Tcp(Address { host, port }) => {
                let host = host.clone().unwrap_or_else(|| "127.0.0.1".to_owned());
                Place::Tcp(host, *port)
            }
        }
    }

    /// What php-fpm is told: as many workers as there are connections.
    fn fpm(&self) -> Fpm {
        let plan = self.plan();
        Fpm {
            workers: plan.scaling.map_or(plan.workers, |scaling| scaling.max),
            max_requests: self.spec.settings.max_jobs.map(NonZeroU64::get),
            // The client is told by the server; what still runs then is ended soon after.
            drain: self.spec.settings.reset_timeout,
            terminate_after: self.options().exec_ttl.map(|limit| limit + FPM_GRACE),
        }
    }

    /// What to run, as people know it and as the system does.
    fn command(&self) -> (String, Vec<OsString>) {
        let of_server = self.server.command.as_ref();
        if let Some(classic) = &self.spec.settings.classic {
            let argv = classic_command(classic.php.as_ref(), of_server);
            let program = argv[0].to_string_lossy().into_owned();
            return (program, argv);
        }
        let Some(command) = self.spec.settings.command.as_ref().or(of_server) else {
            return Default::default();
        };
        (command.to_string(), words(command))
    }

    fn launcher(&self) -> CommandLauncher {
        let (command, argv) = self.command();
        let php = Php::new(
            self.spec.settings.transport != TransportChoice::Relay,
            self.spec.settings.mode == Mode::Classic,
            self.spec.settings.ini.clone(),
        );
        CommandLauncher {
            pool: self.spec.name.to_owned(),
            spawner: self.resources.spawner.clone(),
            command,
            kind: match self.spec.settings.mode {
                Mode::Classic => "script",
                _ => "http",
            },
            argv,
            env: self.environment(),
            php,
            cwd: self.resources.folder.clone(),
            user: self.resources.user.clone(),
            boot_timeout: self.spec.settings.boot_timeout,
            warmup: self.spec.warmup.clone(),
            listener: self.resources.listener.clone(),
            foreign_codec: match self.spec.settings.codec {
                CodecChoice::Auto | CodecChoice::Json => Codec::Json,
                CodecChoice::Proto => Codec::Proto,
            },
            fence: self.spec.settings.fence,
            stream_timeout: self.spec.settings.stream_timeout,
            spool: self.spec.spool.clone(),
            homes: self.resources.homes.clone(),
            transport: self.spec.settings.transport,
            told: AtomicBool::new(false),
            spawn: self.spawn(),
        }
    }

    fn spawn(&self) -> Spawn {
        let choice = self.spec.settings.spawn;
        if self.spec.settings.mode != Mode::Classic || choice == SpawnChoice::Exec {
            return Spawn::Exec;
        }
        Spawn::Fork(Zygotes::new(choice == SpawnChoice::Fork))
    }

    /// `USER` and `HOME` from the account, whatever the server was started with, as php-fpm does it.
    fn name_user(&self, environment: &mut Vec<(OsString, OsString)>) {
        let user = self.resources.user.as_ref().map(|(_, user)| user.clone());
        if let Some(user) = user.or_else(Credentials::current) {
            set(environment, "USER", user.name());
            set(environment, "HOME", user.home());
        }
    }

    /// Whether a variable of the environment is for scripts.
    fn is_seen(&self, name: &str) -> bool {
        let of_environment = !self.spec.settings.clear_env
            && !OF_SCRIPTS_NEVER.contains(&name)
            && !name.starts_with("PRONGHORN_");
        let is_written = || self.server.env.iter().any(|(known, _)| known == name);
        ["USER", "HOME"].contains(&name) || of_environment || is_written()
    }

    /// The environment of FastCGI programs, of which php-cgi shows all to scripts.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = self.passed_environment();
        self.name_user(&mut variables);
        let services = self.resources.variables.iter();
        let services = services.map(|(name, value)| (*name, value.as_str()));
        // php-cgi ends after 500 requests where nothing is said; `max_jobs` says it.
        let ours = [("PHP_FCGI_MAX_REQUESTS", "0")].into_iter().chain(services);
        extend(&mut variables, ours.chain(self.server.env.iter()));
        variables
    }

    /// Of the server's environment what programs get. All of it where that was asked for; else what they need to run: scripts
    /// show what they find, in `phpinfo()` for instance, and there may be secrets.
    fn passed_environment(&self) -> Vec<(OsString, OsString)> {
        const NEEDED: [&str; 3] = ["TMPDIR", "PHPRC", "PHP_INI_SCAN_DIR"];
        let passes = |(name, _): &&(OsString, OsString)| {
            let name = name.to_str();
            name.is_some_and(|name| NEEDED.contains(&name) || self.is_seen(name))
        };
        self.environment.iter().filter(passes).cloned().collect()
    }

    /// The server's environment and what workers are told beside it; what comes later wins.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let relay = match (&self.resources.relay, &self.resources.listener) {
            (RelayAddress::Pipes, _) => "pipes".to_owned(),
            // As it was written, without the folder: packages parse it themselves.
            (RelayAddress::Unix(path), _) => format!("unix://{}", path.display()),
            (RelayAddress::Tcp(_), Some(listener)) => listener.address().to_string(),
            (RelayAddress::Tcp(address), None) => format!("tcp://{address}"),
        };
        let mut environment = self.environment.to_vec();
        let is_there = |wanted: &str| environment.iter().any(|(name, _)| name == wanted);
        // A worker that we only start keeps what the server was given.
        if self.spec.settings.mode == Mode::Classic
            || self.resources.user.is_some()
            || !(is_there("USER") && is_there("HOME"))
        {
            self.name_user(&mut environment);
        }
        let mut set = |name: &str, value: &str| set(&mut environment, name, value);
        set("RR_RELAY", &relay);
        for (name, value) in &self.resources.variables {
            set(name, value);
        }
        for (name, value) in self.server.env.iter() {
            set(name, value);
        }
        set("RR_VERSION", self.resources.versions.roadrunner);
        set("RR_MODE", self.owner);
        set("PRONGHORN_VERSION", self.resources.versions.pronghorn);
        set("PRONGHORN_PIPES", "3,4");
        if let Some(spin) = self.spec.settings.spin {
            set("PRONGHORN_SPIN", &spin.as_micros().to_string());
        }
        if self.spec.settings.mode == Mode::Classic {
            let is_seen = |name: &&str| self.is_seen(name);
            let names = environment.iter().filter_map(|(name, _)| name.to_str());
            let variables = classic_variables(self.spec.name, names.filter(is_seen));
            environment.extend(variables);
        }
        environment
    }
}

/// What says where php.ini is was for this process, and not for those that scripts start.
const OF_SCRIPTS_NEVER: [&str; 2] = ["PHPRC", "PHP_INI_SCAN_DIR"];

/// Adds variables, each in place of one of the same name.
fn extend<'a>(
    variables: &mut Vec<(OsString, OsString)>,
    more: impl Iterator<Item = (&'a str, &'a str)>,
) {
    for (name, value) in more {
        set(variables, name, value);
    }
}

fn set(variables: &mut Vec<(OsString, OsString)>, name: &str, value: impl Into<OsString>) {
    variables.retain(|(known, _)| known != name);
    variables.push((name.into(), value.into()));
}

fn words(command: &Command) -> Vec<OsString> {
    let arguments = command.arguments().iter().map(OsString::from);
    let program = std::iter::once(OsString::from(command.program()));
    program.chain(arguments).collect()
}

/// As distributions call it; the newest first where several lie side by side.
const PHP_CGI: [&str; 6] = [
    "php-cgi",
    "php-cgi8.5",
    "php-cgi8.4",
    "php-cgi8.3",
    "php-cgi8.2",
    "php-cgi8.1",
];

const PHP_FPM: [&str; 6] = [
    "php-fpm",
    "php-fpm8.5",
    "php-fpm8.4",
    "php-fpm8.3",
    "php-fpm8.2",
    "php-fpm8.1",
];
/// Where php-fpm is, which a user's PATH may not name.
const SYSTEM_PROGRAMS: &str = "/usr/local/sbin:/usr/sbin";
/// So long after a deadline php-fpm ends what still runs; it counts in seconds.
const FPM_GRACE: Duration = Duration::from_secs(5);

/// How many workers boot at once: more than there are CPUs, because a boot also waits for the disk; not all of a hundred,
/// because then each takes a hundred times as long.
fn boots_at_once() -> usize {
    (cpus::usable() * 2).max(4)
}

/// What came of a reload.
pub type Reloaded = Result<(), Arc<str>>;

/// How many workers there are after some came or went.
pub type Resized = Result<usize, NotResized>;

/// Whether the pool has workers, or why not.
#[derive(Debug, Clone)]
pub enum Standing {
    Up,
    /// None has come up. At the first start that is possible in development only: elsewhere it ends the start.
    Down(Arc<str>),
}

/// What a classic pool has, and one by FastCGI has not.
const LOST_BY_CGI: &str = "each process has an OPcache of its own and ends with a call that takes too long, without a trace of where it was";
const LOST_BY_FPM: &str = "a call that takes too long runs on, and the death of its process is not told from a broken connection";

/// How the slots of a pool are filled.
#[derive(Clone, Debug)]
pub enum Launch {
    Command(Arc<CommandLauncher>),
    /// By the extension; by FastCGI where the PHP has none and something speaks that.
    Classic {
        command: Arc<CommandLauncher>,
        otherwise: Option<Arc<FastCgiLauncher>>,
    },
    FastCgi(Arc<FastCgiLauncher>),
    Programs(Arc<ProgramLauncher>),
}

impl Launch {
    pub fn command(&self) -> &str {
        match self {
            Self::Command(launcher)
            | Self::Classic {
                command: launcher, ..
            } => &launcher.command,
            Self::FastCgi(launcher) => &launcher.command,
            Self::Programs(_) => "programs",
        }
    }

    /// A leak in a worker without any limit ends with the machine's memory.
    async fn warn_of_unlimited_memory(&self) {
        let (Self::Command(launcher)
        | Self::Classic {
            command: launcher, ..
        }) = self
        else {
            return;
        };
        let about = launcher.php.about(launcher).await;
        if about.is_some_and(|about| about.memory_limit == "-1") {
            tracing::info!(
                target: "server", pool = launcher.pool,
                "workers have no memory limit: `memory_limit` is -1 for PHP on the command line, and the pool's `supervisor.max_worker_memory` is not set"
            );
        }
    }

    async fn filling(&self) -> LauncherRef {
        if let Some(lacking) = self.lacks_extension().await
            && let Some(otherwise) = lacking.otherwise
        {
            tracing::warn!(target: "server", pool = otherwise.pool, "{lacking}");
            return otherwise.clone().into();
        }
        match self {
            Self::Command(launcher)
            | Self::Classic {
                command: launcher, ..
            } => launcher.clone().into(),
            Self::FastCgi(launcher) => launcher.clone().into(),
            Self::Programs(launcher) => launcher.clone().into(),
        }
    }

    /// Of a classic pool whose PHP says that it has no extension, and gets none. Asks PHP the first time.
    pub async fn lacks_extension(&self) -> Option<Lacking<'_>> {
        match self {
            Self::Classic { command, otherwise } => {
                let lacks = command.php.lacks_extension(command).await;
                lacks.then_some(Lacking {
                    php: &command.command,
                    otherwise: otherwise.as_ref(),
                })
            }
            Self::Command(_) | Self::FastCgi(_) | Self::Programs(_) => None,
        }
    }
}

/// A classic pool without the extension, in words.
#[derive(Debug)]
pub struct Lacking<'a> {
    php: &'a str,
    /// What it becomes; None: it does not start.
    pub otherwise: Option<&'a Arc<FastCgiLauncher>>,
}

impl fmt::Display for Lacking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let php = self.php;
        write!(f, "`{php}` has no extension `pronghorn`")?;
        let Some(otherwise) = self.otherwise else {
            return f.write_str(", and neither php-cgi nor php-fpm is there to run scripts");
        };
        let lost = match otherwise.peers {
            Peers::Fpm(_) => LOST_BY_FPM,
            Peers::Own | Peers::Addresses(_) => LOST_BY_CGI,
        };
        let name = &otherwise.command;
        write!(
            f,
            ", so scripts run by FastCGI (`{name}`): calls cost more, and {lost}"
        )
    }
}

/// What the configuration makes of a pool.
struct Setup {
    options: Options,
    launch: Launch,
    plan: Plan,
    reset_timeout: Duration,
}

impl Setup {
    async fn start(&self, pool: &Pool) -> Result<RunningPool, BootError> {
        RunningPool::start(pool.clone(), self.launch.filling().await, self.plan).await
    }
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

    /// Starts the workers of all pools of a service at once. In development a failure is kept for the browser to show, and
    /// the next reload tries again.
    ///
    /// # Errors
    ///
    /// Otherwise the first pool that does not come up ends the start, and nothing of it is left running.
    pub async fn start(
        &self,
        owner: &'static str,
        specs: &[PoolSpec<'_>],
    ) -> Result<StartedPools, Box<BootError>> {
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
        Ok(started)
    }

    /// Replaces the workers of a service by those of other settings. False when a pool kept what it had.
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

    /// Replaces the workers of all pools at once whose owners are these. Each tells by itself when that fails.
    pub async fn reload(&self, is_meant: impl Fn(&str) -> bool) {
        let mut reloading = JoinSet::new();
        for pool in self.all().into_iter().filter(|pool| is_meant(pool.owner())) {
            reloading.spawn(async move { pool.reload().await });
        }
        reloading.join_all().await;
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
        specs.iter().map(|spec| start(spec).setup()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

impl PoolSpec<'_> {
    /// Whether nothing but PHP's own `memory_limit` could end a leak.
    fn leaves_memory_unlimited(&self) -> bool {
        let mut written = self.settings.ini.written.iter();
        self.settings.supervisor.max_worker_memory.is_none()
            && !written.any(|(name, _)| name == "memory_limit")
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
) -> Result<StartedPools, Box<BootError>> {
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
    ) -> Result<(Self, impl Future<Output = ()> + use<>), Box<BootError>> {
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
            Err(error) => return Err(Box::new(error)),
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
            renewed: None,
            renewal_due: None,
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
        match self.pool.stats().oldest_wait() {
            Some(wait) if wait >= PATIENCE => {
                let seconds = wait.as_secs_f32();
                Err(self.missing(&format!("a call has waited for {seconds:.1} s")))
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

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn report(error: &BootError) -> Arc<str> {
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
    /// The last time that workers had asked for it, and when it is due again.
    renewed: Option<Instant>,
    renewal_due: Option<Instant>,
}

impl PoolTask {
    /// Brings new workers up; with a change, which holds if they come up.
    async fn boot(&mut self, change: Option<Setup>) -> Result<(), BootError> {
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
                supervised
                    .change(launch.filling().await, *plan, *reset_timeout)
                    .await
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
                () = supervised.renewal_asked_for() => {
                    let earliest = self.renewed.map(|last| last + BETWEEN_RENEWALS);
                    self.renewal_due = earliest.max(Some(Instant::now()));
                }
                () = due(self.renewal_due) => {
                    self.renewal_due = None;
                    self.renewed = Some(Instant::now());
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
                tracing::error!(target: "server", pool, "not reloaded: the workers that were there go on");
                if self.development {
                    // Old code would answer as if nothing had been written.
                    self.standing.send_replace(Standing::Down(why.clone()));
                }
                Err(why)
            }
        }
    }
}
