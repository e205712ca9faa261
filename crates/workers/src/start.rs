//! From the settings of a pool to what starts its workers.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pronghorn_base::open_linked;
use pronghorn_config::{Address, Command, Listen};
use pronghorn_launch::{
    Addresses, Booted, CommandLauncher, Current, FastCgiLauncher, Fpm, Ini, LaunchSpec, Peers, Php,
    Place, ProgramLauncher, Spawn, Storage, TransportChoice, Zygotes, classic_command,
    classic_variables, how_to_let_read, php_option, script_of,
};
use pronghorn_pool::transport::{Allowed, Borders};
use pronghorn_pool::{Fence, Options, Plan, Quote, Warmup};
use pronghorn_process::{Credentials, NotRunnable, cpus, find_runnable, search_path, which};
use pronghorn_wire::{Codec, Kind};

use crate::launch::Launch;
use crate::memory::MemoryShare;
use crate::pools::{PoolResources, PoolSpec, memory_of};
use crate::settings::{
    ClassicSettings, ClientGone, CodecChoice, FastCgiPeer, FastCgiSettings, KeptSettings, Mode,
    PoolSettings, RelayAddress, Runner, ServerSettings, SpawnChoice, WorkerSettings,
};
use crate::user::WorkerUser;

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
    pub(crate) fn options(&self) -> Options {
        let PoolSettings { common, .. } = self.spec.settings;
        Options {
            name: self.spec.name.to_owned(),
            queue_limit: common.max_queue_size,
            queue_timeout: common.queue_timeout,
            exec_ttl: self.spec.settings.exec_ttl(self.resources.development),
            slow: common.slow,
            incidents: self.resources.incidents.clone(),
            deadline_max: common.deadline_max,
            max_jobs: self.spec.settings.max_jobs(),
            runs_alone: common.client_gone == ClientGone::Run,
            // Each I/O thread is as busy as a worker of quick calls.
            processors: cpus::usable()
                .saturating_sub(self.resources.homes.len())
                .max(1),
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        self.spec.settings.plan()
    }

    /// The memory that the pool's workers may take, where that is known. Asks PHP the first time.
    pub async fn memory(&self) -> Option<MemoryShare> {
        memory_of(&self.launch(), &self.plan()).await
    }

    pub fn launch(&self) -> Launch {
        match &self.spec.settings.runner {
            Runner::Worker(worker) => Launch::Command(Arc::new(self.worker(worker))),
            Runner::Classic(classic) => {
                let otherwise = self.fastcgi(&classic.kept, &FastCgiPeer::Found, &classic.ini);
                let is_there = Path::new(&otherwise.spec.argv[0]).is_file();
                Launch::Classic {
                    command: Arc::new(self.classic(classic)),
                    otherwise: is_there.then(|| Arc::new(otherwise)),
                }
            }
            Runner::FastCgi(FastCgiSettings {
                kept, peer, ini, ..
            }) => Launch::FastCgi(Arc::new(self.fastcgi(kept, peer, ini))),
            Runner::Cgi(_) => Launch::Programs(Arc::new(self.programs())),
        }
    }

    /// Who the workers are, if not the server's own user.
    fn user(&self) -> Option<&WorkerUser> {
        self.resources.users.of_pool(self.spec.name)
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
            user: self.user().map(|(_, user)| user.clone()),
            spool: self.spec.spool.clone(),
            homes: self
                .resources
                .homes
                .iter()
                .map(|home| home.runtime.clone())
                .collect(),
        }
    }

    fn fastcgi(&self, kept: &KeptSettings, peer: &FastCgiPeer, ini: &Ini) -> FastCgiLauncher {
        let mut warmup = self.spec.warmup.clone();
        let (command, mut argv, peers) = match peer {
            FastCgiPeer::Addresses(addresses) => {
                let places: Vec<Place> = addresses.iter().map(|at| self.place(at)).collect();
                let shown: Vec<String> = places.iter().map(Place::to_string).collect();
                let addresses = Addresses::new(self.spec.name.to_owned(), places);
                warmup = Warmup::default();
                let peers = Peers::Addresses(Arc::new(addresses));
                (shown.join(", "), Vec::new(), peers)
            }
            FastCgiPeer::Command(command) => (command.to_string(), words(command), Peers::Own),
            FastCgiPeer::PhpFpm(name) => (
                name.clone(),
                with_ini(name, ini),
                Peers::Fpm(self.fpm(kept)),
            ),
            FastCgiPeer::Found => {
                let (name, peers) = match (self.first_of(&PHP_CGI), self.first_of(&PHP_FPM)) {
                    (None, Some(php_fpm)) => (php_fpm, Peers::Fpm(self.fpm(kept))),
                    (php_cgi, _) => (php_cgi.unwrap_or(PHP_CGI[0]), Peers::Own),
                };
                (name.to_owned(), with_ini(name, ini), peers)
            }
        };
        // The programs themselves may have no PATH.
        if let Some(program) = argv.first_mut()
            && let Some(found) = self.find_program(&*program)
        {
            *program = found.into();
        }
        let spec = LaunchSpec {
            command,
            argv,
            env: self.variables(),
            warmup,
            ..self.spec_of(kept)
        };
        FastCgiLauncher {
            spec,
            peers,
            master: Current::default(),
        }
    }

    /// What all processes of the pool are started with.
    fn spec_of(&self, kept: &KeptSettings) -> LaunchSpec {
        LaunchSpec {
            pool: self.spec.name.to_owned(),
            spawner: self.resources.spawner.clone(),
            command: String::new(),
            argv: Vec::new(),
            env: Vec::new(),
            cwd: self.resources.folder.clone(),
            user: self.user().cloned(),
            boot_timeout: kept.boot_timeout,
            warmup: self.spec.warmup.clone(),
            stream_timeout: self.spec.settings.common.stream_timeout,
            spool: self.spec.spool.clone(),
            homes: self.resources.homes.clone(),
            methods: self
                .resources
                .methods
                .as_ref()
                .map(|methods| methods.of_pool(self.borders())),
            answers: self.resources.answers.clone(),
            storages: self.storages(),
        }
    }

    /// Those that the pool is given, or all.
    fn storages(&self) -> Vec<Storage> {
        let borders = self.borders();
        let all = self.resources.storages.iter();
        let given = all.filter(|(name, _)| borders.has_storage(name));
        given.cloned().collect()
    }

    /// What its workers may reach of the server.
    fn borders(&self) -> Borders {
        let common = &self.spec.settings.common;
        Borders {
            pool: self.spec.name.to_owned(),
            methods: match &common.methods {
                Some(listed) => Allowed::Listed(listed.clone()),
                None if self.resources.users.differ() => Allowed::Apart,
                None => Allowed::All,
            },
            storages: common.storages.clone(),
            pipelines: common.pipelines.clone(),
        }
    }

    fn first_of(&self, names: &[&'static str]) -> Option<&'static str> {
        let mut names = names.iter().copied();
        names.find(|name| self.find_program(name).is_some())
    }

    /// The directory in which its workers run.
    pub fn directory(&self) -> &Path {
        &self.resources.folder
    }

    /// Why the program of its workers can't be started. None if it can, or if there is no command.
    pub fn judge_program(&self) -> Option<NotRunnable> {
        let (_, argv) = self.command();
        self.judge(argv.first()?).err()
    }

    /// The program of this name, found as its workers find it.
    ///
    /// # Errors
    ///
    /// Why they can't start it.
    pub fn judge(&self, name: &OsStr) -> Result<PathBuf, NotRunnable> {
        let user = self.user().map(|(_, user)| user);
        find_runnable(name, self.path(), self.directory(), user)
    }

    /// What the command of a worker script names and this machine has not, and what to do. A
    /// command that does not tell which PHP it runs is believed. `knows_users` is false where
    /// somebody else starts the server.
    pub fn lacks(&self, knows_users: bool) -> Option<(String, String)> {
        let (_, argv) = self.command();
        let program = argv.first()?;
        if let Some(needs) = self.written_command().and_then(Command::needs_shell) {
            return Some(needs);
        }
        let why = self.judge_program();
        if let Some(why) = why.filter(|why| knows_users || !why.is_about_user()) {
            let message = format!("runs `{}`, which {why}", program.display());
            let hint = why.hint(self.directory());
            let hint = match why {
                NotRunnable::Missing => format!("`apt install php-cli` for instance; {hint}"),
                _ => hint,
            };
            return Some((message, hint));
        }
        let user = self.user().map(|(_, user)| user);
        lacks_script(&argv, &self.environment(), self.directory(), user)
    }

    /// A script that stands for the pages of the pool's site and that its workers may not read,
    /// with the reason.
    pub fn unreadable_script(&self) -> Option<(String, String)> {
        let site = self.spec.settings.site()?;
        let root = self.resources.folder.join(&site.root);
        let of_server = || Credentials::current().map(|user| (user.name().to_owned(), user));
        let (name, user) = self.user().cloned().or_else(of_server)?;
        let fronts = site.fallback.iter().chain(&site.index);
        fronts
            .map(|front| root.join(front.trim_start_matches('/')))
            .find_map(|script| {
                let error = user.may_read(&script).err()?;
                if error.kind() != std::io::ErrorKind::PermissionDenied {
                    return None;
                }
                let message = format!(
                    "has `{}`, which {name} can't read: {error}",
                    script.display()
                );
                Some((message, how_to_let_read(&script)))
            })
    }

    fn which(&self, name: &OsStr) -> Option<PathBuf> {
        which(name, self.path(), self.directory())
    }

    /// The search path of workers.
    fn path(&self) -> Option<&OsStr> {
        let mut own = self.server.env.iter();
        if let Some((_, path)) = own.find(|(name, _)| *name == "PATH") {
            return Some(path.as_ref());
        }
        search_path(self.environment)
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
    fn fpm(&self, kept: &KeptSettings) -> Fpm {
        let plan = self.plan();
        Fpm {
            workers: plan.largest(),
            max_requests: kept.max_jobs.map(NonZeroU64::get),
            // The client is told by the server; what still runs then is ended soon after.
            drain: self.spec.settings.common.reset_timeout,
            terminate_after: self.options().exec_ttl.map(|limit| limit + FPM_GRACE),
        }
    }

    /// What to run, as people know it and as the system does; nothing for what is not PHP.
    /// The command of a worker script.
    fn written_command(&self) -> Option<&Command> {
        match &self.spec.settings.runner {
            Runner::Worker(worker) => worker.command.as_ref().or(self.server.command.as_ref()),
            Runner::Classic(_) | Runner::FastCgi(_) | Runner::Cgi(_) => None,
        }
    }

    fn command(&self) -> (String, Vec<OsString>) {
        let of_server = self.server.command.as_ref();
        match &self.spec.settings.runner {
            Runner::Worker(_) => match self.written_command() {
                Some(command) => (command.to_string(), words(command)),
                None => Default::default(),
            },
            Runner::Classic(classic) => {
                let of_server = of_server.map(|command| command.program().as_ref());
                let argv = classic_command(classic.php.as_ref().map(words), of_server);
                let program = argv[0].to_string_lossy().into_owned();
                (program, argv)
            }
            Runner::FastCgi(_) | Runner::Cgi(_) => Default::default(),
        }
    }

    fn worker(&self, settings: &WorkerSettings) -> CommandLauncher {
        CommandLauncher {
            foreign_codec: match settings.codec {
                // RoadRunner's frames say so, whatever the context is.
                _ if self.spec.kind == Kind::Centrifugo => Codec::Proto,
                CodecChoice::Auto | CodecChoice::Json => Codec::Json,
                CodecChoice::Proto => Codec::Proto,
            },
            fence: settings.fence,
            spawn: match settings.spawn {
                SpawnChoice::Fork => Spawn::Fork(Zygotes::new(Booted::Application, true)),
                SpawnChoice::Auto if self.gains_by_forks(settings) => {
                    Spawn::Fork(Zygotes::new(Booted::Application, false))
                }
                SpawnChoice::Auto | SpawnChoice::Exec => Spawn::Exec,
            },
            ..self.launcher(&settings.kept, settings.transport, &settings.ini)
        }
    }

    /// Workers share what was booted, in pools that have several and whose code is as it was then.
    fn gains_by_forks(&self, settings: &WorkerSettings) -> bool {
        self.plan().largest() > 1
            && !settings.kept.debug
            && settings.transport != TransportChoice::Relay
            && !settings.ini.wants_jit()
    }

    fn classic(&self, settings: &ClassicSettings) -> CommandLauncher {
        CommandLauncher {
            kind: Kind::Script,
            spawn: match settings.spawn {
                SpawnChoice::Exec => Spawn::Exec,
                choice @ (SpawnChoice::Auto | SpawnChoice::Fork) => {
                    let is_wanted = choice == SpawnChoice::Fork;
                    Spawn::Fork(Zygotes::new(Booted::Engine, is_wanted))
                }
            },
            ..self.launcher(&settings.kept, settings.transport, &settings.ini)
        }
    }

    /// What workers that run PHP have in common.
    fn launcher(
        &self,
        kept: &KeptSettings,
        transport: TransportChoice,
        ini: &Ini,
    ) -> CommandLauncher {
        let (command, argv) = self.command();
        let runs_scripts = self.spec.settings.mode() == Mode::Classic;
        let may_ring = transport != TransportChoice::Relay;
        let spec = LaunchSpec {
            command,
            argv,
            env: self.environment(),
            ..self.spec_of(kept)
        };
        CommandLauncher {
            spec,
            kind: self.spec.kind,
            php: Php::new(may_ring, runs_scripts, ini.clone()),
            listener: self.resources.listener.clone(),
            foreign_codec: Codec::Json,
            fence: Fence::Always,
            transport,
            told: AtomicBool::new(false),
            spawn: Spawn::Exec,
            quote: match self.spec.kind {
                Kind::Http | Kind::Script if !self.resources.development => Quote::Messages,
                Kind::Http
                | Kind::Script
                | Kind::Raw
                | Kind::Job
                | Kind::Tcp
                | Kind::Grpc
                | Kind::Centrifugo => Quote::All,
            },
        }
    }

    /// `USER` and `HOME` from the account, whatever the server was started with, as php-fpm does
    /// it.
    fn name_user(&self, environment: &mut Vec<(OsString, OsString)>) {
        let user = self.user().map(|(_, user)| user.clone());
        if let Some(user) = user.or_else(Credentials::current) {
            name_user(environment, &user);
        }
    }

    /// Whether a variable of the environment is for scripts.
    fn is_seen(&self, name: &str) -> bool {
        let clear_env = match &self.spec.settings.runner {
            Runner::Worker(_) => true,
            Runner::Classic(classic) => classic.clear_env,
            Runner::FastCgi(fastcgi) => fastcgi.clear_env,
            Runner::Cgi(cgi) => cgi.clear_env,
        };
        let of_environment =
            !clear_env && !OF_SCRIPTS_NEVER.contains(&name) && !name.starts_with("PRONGHORN_");
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

    /// Of the server's environment what programs get. All of it where that was asked for; else what
    /// they need to run: scripts show what they find, in `phpinfo()` for instance, and there may be
    /// secrets.
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
        if self.spec.settings.mode() == Mode::Classic
            || self.user().is_some()
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
        for (name, value) in self.spec.settings.common.env.iter() {
            set(name, value);
        }
        set("PRONGHORN_VERSION", self.resources.versions.pronghorn);
        set("PRONGHORN_PIPES", "3,4");
        let spin = match &self.spec.settings.runner {
            Runner::Worker(worker) => worker.spin,
            Runner::Classic(classic) => classic.spin,
            Runner::FastCgi(_) | Runner::Cgi(_) => None,
        };
        if let Some(spin) = spin {
            set("PRONGHORN_SPIN", &spin.as_micros().to_string());
        }
        if let Runner::Worker(worker) = &self.spec.settings.runner
            && worker.globals
        {
            set("PRONGHORN_GLOBALS", "1");
        }
        if let Runner::Worker(worker) = &self.spec.settings.runner
            && let Some(leaks) = worker.leaks.variable(self.resources.development)
        {
            set("PRONGHORN_LEAKS", &leaks);
        }
        if self.spec.settings.mode() == Mode::Classic {
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

/// Names the user of a process to it.
pub(crate) fn name_user(variables: &mut Vec<(OsString, OsString)>, user: &Credentials) {
    set(variables, "USER", user.name());
    set(variables, "HOME", user.home());
    // Not every environment has it. If this one does, it names the server's user.
    if variables.iter().any(|(name, _)| name == "LOGNAME") {
        set(variables, "LOGNAME", user.name());
    }
}

fn set(variables: &mut Vec<(OsString, OsString)>, name: &str, value: impl Into<OsString>) {
    variables.retain(|(known, _)| known != name);
    variables.push((name.into(), value.into()));
}

/// The reason for which a command's PHP script can't be run as this user, with what to do: in this
/// environment and directory. None for a command that names no script.
#[must_use]
pub fn lacks_script(
    argv: &[OsString],
    environment: &[(OsString, OsString)],
    directory: &Path,
    user: Option<&Credentials>,
) -> Option<(String, String)> {
    let script = script_of(argv, environment, directory)?;
    let what = match open_linked(&script) {
        Ok(_) => {
            let user = user?;
            let error = user.may_read(&script).err()?;
            let message = format!(
                "runs `{}`, which {} can't read: {error}",
                script.display(),
                user.name()
            );
            return Some((message, how_to_let_read(&script)));
        }
        Err(_) if script.is_dir() => "is a folder".to_owned(),
        Err(error) => format!("can't be read: {error}"),
    };
    let message = format!("runs `{}`, which {what}", script.display());
    let hint = format!("the script's path is taken from {}", directory.display());
    Some((message, hint))
}

/// A command as arguments.
#[must_use]
pub fn words(command: &Command) -> Vec<OsString> {
    let arguments = command.arguments().iter().map(OsString::from);
    let program = std::iter::once(OsString::from(command.program()));
    program.chain(arguments).collect()
}

/// A program of PHP, told what is written of its settings.
fn with_ini(program: &str, ini: &Ini) -> Vec<OsString> {
    let mut argv = vec![OsString::from(program)];
    for (setting, value) in ini.written_lines() {
        argv.extend(["-d".into(), php_option(setting, &value).into()]);
    }
    argv
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
