//! The workers of the server's pools: how they are started, and the one task per pool that starts, replaces and stops them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pronghorn_config::{Address, Command, Listen};
use pronghorn_metrics::Registry;
use pronghorn_plugin_api::{NotReady, Sockets};
use pronghorn_pool::settings::{
    CodecChoice, FastCgiSettings, MAX_WORKERS, Mode, PoolSettings, SpawnChoice, TransportChoice,
};
use pronghorn_pool::{
    Addresses, BootError, CommandLauncher, Current, FastCgiLauncher, Filling, Fpm, Home,
    NotExtended, NotResized, Options, PATIENCE, Peers, Php, Place, Plan, Pool, ProgramLauncher,
    RelayAddress, RelayListener, Spawn, Spool, Stats, Supervised, Warmup, WorkerInfo, Zygotes,
    classic_command, classic_variable,
};
use pronghorn_process::{Credentials, Spawner, cpus, which};
use pronghorn_wire::Codec;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use crate::error::StartError;
use crate::http::CrewInfo;
use crate::settings::{RelayAddress as RelaySetting, ServerSettings};
use crate::{ROADRUNNER_VERSION, VERSION};

/// The socket of `server.relay`, for the next process.
const RELAY: &str = "relay";
/// Of a pool in which each call gets a fresh worker, one serves and one is ready.
const DEBUG_WORKERS: usize = 2;
/// How often a worker that is free is asked whether it hears.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Workers that ask for new ones get them at most so often: code that calls `opcache_reset()` with each request must not keep the
/// machine busy with starting PHP.
const BETWEEN_RENEWALS: Duration = Duration::from_secs(60);
/// Orders that wait for the workers' task. Each is a person's wish or a stop.
const ORDERS: usize = 16;

/// All that is needed to start the workers of a pool.
#[derive(Clone)]
pub(crate) struct Start<'a> {
    pub(crate) name: &'a str,
    pub(crate) settings: &'a PoolSettings,
    pub(crate) server: &'a ServerSettings,
    pub(crate) relay: RelaySetting,
    pub(crate) user: Option<(String, Credentials)>,
    pub(crate) folder: PathBuf,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) rpc: Option<String>,
    pub(crate) spawner: Spawner,
    pub(crate) spool: Arc<Spool>,
    pub(crate) homes: Vec<Home>,
    pub(crate) metrics: Registry,
    /// Where foreign workers of all pools connect.
    pub(crate) listener: Option<Arc<RelayListener>>,
    pub(crate) development: bool,
}

impl Start<'_> {
    fn options(&self) -> Options {
        let settings = self.settings;
        Options {
            name: self.name.to_owned(),
            queue_limit: settings.max_queue_size,
            queue_timeout: settings.queue_timeout,
            // In development somebody may sit in a debugger.
            exec_ttl: settings.supervisor.exec_ttl.filter(|_| !self.development),
            deadline_max: settings.deadline_max,
            max_jobs: if settings.debug {
                NonZeroU64::new(1)
            } else {
                settings.max_jobs
            },
            // Each I/O thread is as busy as a worker of quick calls.
            processors: cpus::usable().saturating_sub(self.homes.len()).max(1),
        }
    }

    /// What a pool is, or is to become.
    pub(crate) fn setup(&self) -> Setup {
        Setup {
            options: self.options(),
            launch: self.launch(),
            plan: self.plan(),
            reset_timeout: self.settings.reset_timeout,
        }
    }

    fn plan(&self) -> Plan {
        let settings = self.settings;
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

    pub(crate) fn launch(&self) -> Launch {
        match self.settings.mode {
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
            spawner: self.spawner.clone(),
            environment,
            user: self.user.as_ref().map(|(_, user)| user.clone()),
            spool: self.spool.clone(),
            homes: self.homes.iter().map(|home| home.runtime.clone()).collect(),
        }
    }

    /// Addresses, the pool's own command, or the first PHP for FastCGI that is found.
    fn fastcgi(&self) -> FastCgiLauncher {
        let FastCgiSettings { addresses, php_fpm } = &self.settings.fastcgi;
        let is_fastcgi = self.settings.mode == Mode::FastCgi;
        let (command, argv, peers) = if !addresses.is_empty() {
            let places: Vec<Place> = addresses.iter().map(|at| self.place(at)).collect();
            let shown: Vec<String> = places.iter().map(Place::to_string).collect();
            let addresses = Addresses::new(self.name.to_owned(), places);
            (
                shown.join(", "),
                Vec::new(),
                Peers::Addresses(Arc::new(addresses)),
            )
        } else if let Some(command) = self.settings.command.as_ref().filter(|_| is_fastcgi) {
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
            for (setting, value) in self.settings.ini.written.iter() {
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
            pool: self.name.to_owned(),
            peers,
            master: Current::default(),
            spawner: self.spawner.clone(),
            command,
            argv,
            env: self.variables(),
            cwd: self.folder.clone(),
            user: self.user.clone(),
            boot_timeout: self.settings.boot_timeout,
            warmup: if self.settings.fastcgi.addresses.is_empty() {
                self.warmup()
            } else {
                Warmup::default()
            },
            stream_timeout: self.settings.stream_timeout,
            spool: self.spool.clone(),
            homes: self.homes.clone(),
        }
    }

    /// Whether what a classic pool runs is there.
    pub(crate) fn finds_php(&self) -> bool {
        let (_, argv) = self.command();
        let program = argv.first();
        program.is_some_and(|name| self.which(name).is_some_and(|path| path.is_file()))
    }

    fn which(&self, name: &OsStr) -> Option<PathBuf> {
        let path = self.environment.iter().rfind(|(name, _)| name == "PATH");
        which(name, path.map(|(_, path)| path), &self.folder)
    }

    /// Also where daemons are.
    fn find_program(&self, name: impl AsRef<OsStr>) -> Option<PathBuf> {
        let name = name.as_ref();
        self.which(name)
            .or_else(|| which(name, Some(SYSTEM_PROGRAMS), &self.folder))
    }

    fn place(&self, at: &Listen) -> Place {
        match at {
            Listen::Unix(path) => Place::Unix(self.folder.join(path)),
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
            max_requests: self.settings.max_jobs.map(NonZeroU64::get),
            // The client is told by the server; what still runs then is ended soon after.
            drain: self.settings.reset_timeout,
            terminate_after: self.options().exec_ttl.map(|limit| limit + FPM_GRACE),
        }
    }

    /// What to run, as people know it and as the system does.
    fn command(&self) -> (String, Vec<OsString>) {
        let of_server = self.server.command.as_ref();
        if let Some(classic) = &self.settings.classic {
            let argv = classic_command(classic.php.as_ref(), of_server);
            let program = argv[0].to_string_lossy().into_owned();
            return (program, argv);
        }
        let Some(command) = self.settings.command.as_ref().or(of_server) else {
            return Default::default();
        };
        (command.to_string(), words(command))
    }

    fn warmup(&self) -> Warmup {
        let targets = &self.settings.warmup;
        match &self.settings.site {
            Some(site) => {
                let root = self.folder.join(&site.root).components().collect();
                pronghorn_http::warmup_of_scripts(targets, site, self.settings.mode, root)
            }
            None => pronghorn_http::warmup(targets),
        }
    }

    fn launcher(&self) -> CommandLauncher {
        let (command, argv) = self.command();
        let php = Php::new(
            self.settings.transport != TransportChoice::Relay,
            self.settings.mode == Mode::Classic,
            self.settings.ini.clone(),
        );
        CommandLauncher {
            pool: self.name.to_owned(),
            spawner: self.spawner.clone(),
            command,
            argv,
            env: self.environment(),
            php,
            cwd: self.folder.clone(),
            user: self.user.clone(),
            boot_timeout: self.settings.boot_timeout,
            warmup: self.warmup(),
            listener: self.listener.clone(),
            foreign_codec: match self.settings.codec {
                CodecChoice::Auto | CodecChoice::Json => Codec::Json,
                CodecChoice::Proto => Codec::Proto,
            },
            fence: self.settings.fence,
            stream_timeout: self.settings.stream_timeout,
            spool: self.spool.clone(),
            homes: self.homes.clone(),
            transport: self.settings.transport,
            told: AtomicBool::new(false),
            spawn: self.spawn(),
        }
    }

    fn spawn(&self) -> Spawn {
        let choice = self.settings.spawn;
        if self.settings.mode != Mode::Classic || choice == SpawnChoice::Exec {
            return Spawn::Exec;
        }
        Spawn::Fork(Zygotes::new(choice == SpawnChoice::Fork))
    }

    pub(crate) fn crew(&self) -> Crew {
        Crew {
            pool: Pool::new(self.options(), &self.homes[0].runtime, &self.metrics),
            setup: self.setup(),
        }
    }

    fn name_user(&self, environment: &mut Vec<(OsString, OsString)>) {
        if let Some((_, user)) = &self.user {
            environment.retain(|(name, _)| name != "USER" && name != "HOME");
            environment.push(("USER".into(), user.name().into()));
            environment.push(("HOME".into(), user.home().into()));
        }
    }

    /// Whether a variable of the environment is for scripts.
    fn is_seen(&self, name: &str) -> bool {
        let of_environment = !self.settings.clear_env
            && !OF_SCRIPTS_NEVER.contains(&name)
            && !name.starts_with("PRONGHORN_");
        let is_written = || self.server.env.iter().any(|(known, _)| known == name);
        ["USER", "HOME"].contains(&name) || of_environment || is_written()
    }

    /// The environment of FastCGI programs, of which php-cgi shows all to scripts.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = self.passed_environment();
        self.name_user(&mut variables);
        let rpc = self.rpc.as_deref().map(|rpc| ("RR_RPC", rpc));
        // php-cgi ends after 500 requests where nothing is said; `max_jobs` says it.
        let ours = [("PHP_FCGI_MAX_REQUESTS", "0")].into_iter().chain(rpc);
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
        let relay = match (&self.relay, &self.listener) {
            (RelaySetting::Pipes, _) => "pipes".to_owned(),
            // As it was written, without the folder: packages parse it themselves.
            (RelaySetting::Unix(path), _) => format!("unix://{}", path.display()),
            (RelaySetting::Tcp(_), Some(listener)) => listener.address().to_string(),
            (RelaySetting::Tcp(address), None) => format!("tcp://{address}"),
        };
        let mut environment = self.environment.clone();
        let mut set = |name: &str, value: &str| {
            environment.retain(|(known, _)| known != name);
            environment.push((name.into(), value.into()));
        };
        set("RR_RELAY", &relay);
        if let Some(rpc) = &self.rpc {
            set("RR_RPC", rpc);
        }
        for (name, value) in self.server.env.iter() {
            set(name, value);
        }
        set("RR_VERSION", ROADRUNNER_VERSION);
        set("RR_MODE", "http");
        set("PRONGHORN_VERSION", VERSION);
        set("PRONGHORN_PIPES", "3,4");
        if let Some(spin) = self.settings.spin {
            set("PRONGHORN_SPIN", &spin.as_micros().to_string());
        }
        if self.settings.mode == Mode::Classic {
            self.for_scripts(&mut environment);
        }
        environment
    }

    /// Says who the workers are, and which variables scripts see.
    fn for_scripts(&self, environment: &mut Vec<(OsString, OsString)>) {
        self.name_user(environment);
        let is_seen = |name: &&str| self.is_seen(name);
        let names = environment.iter().filter_map(|(name, _)| name.to_str());
        let variable = classic_variable(names.filter(is_seen));
        environment.push(variable);
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
        variables.retain(|(known, _)| known != name);
        variables.push((name.into(), value.into()));
    }
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

/// The socket that `server.relay` names. There is one for the workers of all pools: each tells its process.
pub(crate) fn relay_listener(
    server: &ServerSettings,
    folder: &Path,
    owner: Option<&Credentials>,
    sockets: &Sockets,
) -> Result<Option<Arc<RelayListener>>, StartError> {
    let address = match &server.relay {
        RelaySetting::Pipes => return Ok(None),
        RelaySetting::Unix(path) => RelayAddress::Unix(folder.join(path)),
        RelaySetting::Tcp(address) => RelayAddress::Tcp(*address),
    };
    let listener = RelayListener::open(&address, owner, sockets.take(RELAY))?;
    sockets.offer(RELAY, listener.socket())?;
    Ok(Some(Arc::new(listener)))
}

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
pub(crate) enum Launch {
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
    pub(crate) fn command(&self) -> &str {
        match self {
            Self::Command(launcher)
            | Self::Classic {
                command: launcher, ..
            } => &launcher.command,
            Self::FastCgi(launcher) => &launcher.command,
            Self::Programs(_) => "programs",
        }
    }

    async fn filling(&self) -> Filling {
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
    pub(crate) async fn lacks_extension(&self) -> Option<Lacking<'_>> {
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
pub(crate) struct Lacking<'a> {
    php: &'a str,
    /// What it becomes; None: it does not start.
    pub(crate) otherwise: Option<&'a Arc<FastCgiLauncher>>,
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
pub(crate) struct Setup {
    options: Options,
    launch: Launch,
    plan: Plan,
    reset_timeout: Duration,
}

impl Setup {
    async fn start(&self, pool: &Pool) -> Result<Supervised, BootError> {
        Supervised::start(pool.clone(), self.launch.filling().await, self.plan).await
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

/// All pools of the server, by name: what people and signals act on.
#[derive(Debug, Clone)]
pub struct Pools(Arc<[Workers]>);

impl Pools {
    pub(crate) fn new(pools: Vec<Workers>) -> Self {
        Self(pools.into())
    }

    /// In the order of the configuration; the default pool, if it runs, is the first.
    pub fn iter(&self) -> impl Iterator<Item = &Workers> {
        self.0.iter()
    }

    pub fn get(&self, name: &str) -> Option<&Workers> {
        self.iter().find(|workers| workers.name() == name)
    }

    /// Calls that wait for a worker.
    pub(crate) fn waiting(&self) -> usize {
        self.iter()
            .map(|workers| workers.pool.stats().waiting())
            .sum()
    }

    /// Replaces the workers of all pools at once. Each tells by itself when that fails.
    pub(crate) async fn reload(&self) {
        let mut reloading = JoinSet::new();
        for workers in self.iter() {
            let workers = workers.clone();
            reloading.spawn(async move { workers.reload().await });
        }
        reloading.join_all().await;
    }

    /// The same with other settings for each. False when one kept its own.
    pub(crate) async fn change<'a>(&self, changes: impl Iterator<Item = (&'a str, Setup)>) -> bool {
        let mut changing = JoinSet::new();
        for (name, change) in changes {
            let workers = self.get(name).expect("the pools are the same").clone();
            changing.spawn(async move { workers.change(change).await.is_ok() });
        }
        changing.join_all().await.into_iter().all(|changed| changed)
    }

    /// Stops the workers of all pools at once; how many had to be killed.
    pub(crate) async fn stop(&self, grace: Duration) -> usize {
        let mut stopping = JoinSet::new();
        for workers in self.iter() {
            let workers = workers.clone();
            stopping.spawn(async move { workers.stop(grace).await });
        }
        stopping.join_all().await.into_iter().sum()
    }
}

/// The workers of one pool. They have one owner, a task; everybody else sends it orders.
#[derive(Debug, Clone)]
pub struct Workers {
    pool: Pool,
    orders: mpsc::Sender<Order>,
    standing: watch::Receiver<Standing>,
}

/// What a pool's workers are started with, for the first time and again.
pub(crate) struct Crew {
    pool: Pool,
    setup: Setup,
}

impl Crew {
    /// What its workers are started by.
    pub(crate) fn launch(&self) -> Launch {
        self.setup.launch.clone()
    }

    pub(crate) fn info(&self) -> CrewInfo {
        CrewInfo {
            size: self.setup.plan.workers,
            command: self.setup.launch.command().to_owned(),
        }
    }
}

/// Starts the workers of all pools at once. In development a failure is kept for the browser to show, and the next reload
/// tries again; otherwise the first pool that does not come up ends the start, and nothing is left running.
pub(crate) async fn start_all(
    crews: Vec<Crew>,
    development: bool,
) -> Result<(Pools, JoinSet<()>), Box<BootError>> {
    let pools = crews.len().max(1);
    let mut starting = JoinSet::new();
    let mut owners = JoinSet::new();
    for (place, mut crew) in crews.into_iter().enumerate() {
        let plan = &mut crew.setup.plan;
        plan.at_once = (plan.at_once / pools).max(1);
        starting.spawn(async move { (place, Workers::start(crew, development).await) });
    }
    let mut pools = Vec::new();
    while let Some(started) = starting.join_next().await {
        let (place, started) = started.expect("a start neither panics nor is cancelled");
        match started {
            Ok((workers, owner)) => {
                pools.push((place, workers));
                owners.spawn(owner);
            }
            Err(error) => {
                starting.shutdown().await;
                let pools: Vec<_> = pools.into_iter().map(|(_, workers)| workers).collect();
                Pools::new(pools).stop(Duration::ZERO).await;
                return Err(error);
            }
        }
    }
    pools.sort_by_key(|(place, _)| *place);
    let pools = pools.into_iter().map(|(_, workers)| workers).collect();
    Ok((Pools::new(pools), owners))
}

impl Workers {
    async fn start(
        crew: Crew,
        development: bool,
    ) -> Result<(Self, impl Future<Output = ()> + use<>), Box<BootError>> {
        let Crew { pool, setup } = crew;
        let started = setup.start(&pool).await;
        let (supervised, standing) = match started {
            Ok(supervised) => (Some(supervised), Standing::Up),
            Err(error) if development => (None, Standing::Down(report(&error))),
            Err(error) => return Err(Box::new(error)),
        };
        let (standing_sender, standing) = watch::channel(standing);
        let (orders, inbox) = mpsc::channel(ORDERS);
        let workers = Self {
            pool: pool.clone(),
            orders,
            standing,
        };
        let owner = Owner {
            pool,
            setup,
            development,
            supervised,
            standing: standing_sender,
            pings: pings(),
            renewed: None,
            renewal_due: None,
        };
        Ok((workers, owner.run(inbox)))
    }

    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    pub fn name(&self) -> &str {
        self.pool.name()
    }

    /// Whether anybody could take a call.
    pub(crate) fn alive(&self) -> Result<(), NotReady> {
        if self.pool.workers() == 0 {
            return Err(self.missing("no worker is up"));
        }
        Ok(())
    }

    /// Whether a further call would be taken in good time.
    pub(crate) fn ready(&self) -> Result<(), NotReady> {
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

    fn missing(&self, what: &str) -> NotReady {
        NotReady(format!("pool `{}`: {what}", self.name()).into())
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The queue as it is, and counters.
    pub(crate) fn stats(&self) -> &Stats {
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
    pub(crate) async fn change(&self, change: Setup) -> Reloaded {
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
    pub(crate) async fn stop(&self, grace: Duration) -> usize {
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

struct Owner {
    pool: Pool,
    setup: Setup,
    development: bool,
    supervised: Option<Supervised>,
    standing: watch::Sender<Standing>,
    pings: Interval,
    /// The last time that workers had asked for it, and when it is due again.
    renewed: Option<Instant>,
    renewal_due: Option<Instant>,
}

impl Owner {
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
