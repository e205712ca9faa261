//! The keys of a pool, typed.
//!
//! They are read in one order, whatever the pool runs, and the statement of a key says in which
//! pools it counts. What was read becomes the settings of one runner, which have nothing of the
//! others.

use std::num::NonZeroU64;
use std::time::Duration;

use pronghorn_config::{Command, Listen, Pairs, Section, Size, Table};
use pronghorn_launch::{Ini, TransportChoice};
use pronghorn_pool::{Fence, Scaling};

mod choices;
mod classic;
mod fastcgi;
mod ini;
mod plan;
mod requests;
mod scaling;
mod scripts;

pub use choices::{ClientGone, CodecChoice, Leaks, Mode, RequestBody, Retry};
pub use classic::{ClassicSettings, SpawnChoice};
pub use fastcgi::{FastCgiPeer, FastCgiSettings};
pub use requests::HttpPoolSettings;
pub use scripts::{CgiSettings, ResolveRoot, SiteSettings, Symlinks};

use choices::{FenceWord, TransportWord};
use fastcgi::FastCgiKeys;

/// As RoadRunner's. Far more processes than that need another machine.
pub const MAX_WORKERS: usize = 500;

/// Waiting calls. Enough for a burst, few enough that the last one is still answered in time.
const QUEUE_SIZE: usize = 1024;

/// Every queue has an end. Each waiting call holds a connection, and this is as many as an
/// open-file limit usually leaves.
const MAX_QUEUE_SIZE: usize = 65_536;

/// How long a call may wait for a worker. Shorter than the 60 s after which common proxies give up,
/// so that the client sees our 503 and not their 504.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// From start to handshake, as RoadRunner's: a cold framework on a busy disk takes its time.
const BOOT_TIMEOUT: Duration = Duration::from_mins(1);

/// What calls under way get when the server stops, as RoadRunner's.
const DESTROY_TIMEOUT: Duration = Duration::from_mins(1);

/// What calls under way get when a reload replaces their workers, as RoadRunner's.
const RESET_TIMEOUT: Duration = Duration::from_mins(1);

/// What a worker gets to notice that the client of its stream left, as RoadRunner's.
const STREAM_TIMEOUT: Duration = Duration::from_mins(1);

/// A call that takes longer is hung: no client waits that long.
const EXEC_TTL: Duration = Duration::from_mins(5);

/// The most that a call may ask for at a time; one that needs longer asks again.
const DEADLINE_MAX: Duration = Duration::from_hours(1);

/// How often soft limits are looked at, as RoadRunner's.
const WATCH_TICK: Duration = Duration::from_secs(5);

/// Code that was written for php-fpm silently does nothing without it, or worse: one session for
/// all visitors.
const GLOBALS: bool = true;

/// Of our own keys, where 0 would be a riddle.
pub const SHORTEST: Duration = Duration::from_millis(1);
/// Longer ones are none.
pub const LONGEST: Duration = Duration::from_hours(24);
/// The most that `spin` may be: a worker sleeps and is woken in a twentieth of that.
const LONGEST_SPIN: Duration = Duration::from_millis(1);

/// A pool: what every pool has, and what its workers are.
///
/// Read as a section, it is the pool of a service whose calls are no HTTP requests: its workers run
/// a script, and keys about requests and other runners are refused. See [`HttpPoolSettings`].
#[derive(Clone, Debug)]
pub struct PoolSettings {
    pub common: CommonSettings,
    pub runner: Runner,
}

/// What every pool has.
#[derive(Clone, Debug)]
pub struct CommonSettings {
    /// At least 1.
    pub num_workers: usize,
    /// Between which numbers of workers it moves by itself.
    pub scaling: Option<Scaling>,
    /// Waiting calls, from 1 to 65,536; those that run are not counted.
    pub max_queue_size: usize,
    /// How long a call may wait for a worker.
    pub queue_timeout: Duration,
    /// What calls under way get when the server stops.
    pub destroy_timeout: Duration,
    /// What calls under way get at a reload.
    pub reset_timeout: Duration,
    /// How long a worker may go on with a stream whose client left.
    pub stream_timeout: Duration,
    /// The most that a call may ask for at a time.
    pub deadline_max: Duration,
    pub client_gone: ClientGone,
    /// How often the limits of [`KeptSettings`] and the number of workers are looked at.
    pub watch_tick: Duration,
    /// The hard limit of one call.
    pub exec_ttl: Option<Duration>,
    /// Calls that take longer are told of.
    pub slow: Option<Duration>,
    /// The storages that its workers reach; None is all.
    pub storages: Option<Vec<String>>,
    /// The services and methods that its workers may call; None is the default.
    pub methods: Option<Vec<String>>,
    /// The pipelines that its workers may push to; None is all.
    pub pipelines: Option<Vec<String>>,
    /// Variables for its workers, which override those of all. Set by the service.
    pub env: Pairs,
    /// Name of the user that its workers run as; None is the server's.
    pub user: Option<String>,
    /// Name of their group; None is the user's.
    pub group: Option<String>,
}

/// What the workers of a pool are.
#[derive(Clone, Debug)]
pub enum Runner {
    /// Processes that run a worker script.
    Worker(WorkerSettings),
    /// Processes of PHP with the extension, which run any PHP program.
    Classic(ClassicSettings),
    /// Whatever speaks FastCGI.
    FastCgi(FastCgiSettings),
    /// An executable per call.
    Cgi(CgiSettings),
}

/// Of workers that serve one call after the other.
#[derive(Clone, Debug)]
pub struct KeptSettings {
    /// From a worker's start to its handshake.
    pub boot_timeout: Duration,
    /// Calls after which a worker is replaced.
    pub max_jobs: Option<NonZeroU64>,
    /// A fresh worker for each call.
    pub debug: bool,
    /// Age at which a worker is replaced.
    pub ttl: Option<Duration>,
    /// Time without a call after which a worker is replaced.
    pub idle_ttl: Option<Duration>,
    /// Memory of its own at which a worker is replaced between calls.
    pub max_worker_memory: Option<Size>,
}

/// Of pools that run a worker script.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    pub kept: KeptSettings,
    /// None runs the server's command.
    pub command: Option<Command>,
    /// How workers are connected.
    pub transport: TransportChoice,
    /// How long a worker looks for its next call before it sleeps.
    pub spin: Option<Duration>,
    pub ini: Ini,
    /// How calls are written for foreign packages.
    pub codec: CodecChoice,
    /// When to check that a worker has nothing left to say.
    pub fence: Fence,
    /// Whether each call is a request of PHP's own.
    pub globals: bool,
    pub spawn: SpawnChoice,
    pub leaks: Leaks,
}

impl WorkerSettings {
    /// Keys that do not go together.
    fn check(&self, t: &mut Table<'_>) {
        if self.spawn != SpawnChoice::Fork {
            return;
        }
        classic::check_spawn(t, self.spawn, &self.ini);
        if self.transport == TransportChoice::Relay {
            let message = "is `fork`, and forked workers get their calls in shared memory only, \
                           but `transport` is `relay`";
            t.error("spawn", message, "remove one of the two");
        }
    }
}

impl PoolSettings {
    pub const fn mode(&self) -> Mode {
        match self.runner {
            Runner::Worker(_) => Mode::Worker,
            Runner::Classic(_) => Mode::Classic,
            Runner::FastCgi(_) => Mode::FastCgi,
            Runner::Cgi(_) => Mode::Cgi,
        }
    }

    /// The most workers that it may have.
    pub fn most_workers(&self) -> usize {
        let plan = self.plan();
        plan.scaling.map_or(plan.workers, |it| it.max)
    }

    /// Where its scripts are, if it runs those.
    pub const fn site(&self) -> Option<&SiteSettings> {
        match &self.runner {
            Runner::Worker(_) => None,
            Runner::Classic(classic) => Some(&classic.site),
            Runner::FastCgi(fastcgi) => Some(&fastcgi.site),
            Runner::Cgi(cgi) => Some(&cgi.site),
        }
    }

    /// If its workers serve one call after the other.
    pub const fn kept(&self) -> Option<&KeptSettings> {
        match &self.runner {
            Runner::Worker(worker) => Some(&worker.kept),
            Runner::Classic(classic) => Some(&classic.kept),
            Runner::FastCgi(fastcgi) => Some(&fastcgi.kept),
            Runner::Cgi(_) => None,
        }
    }

    /// Where those are that answer, if they are not this server's.
    pub fn addresses(&self) -> &[Listen] {
        match &self.runner {
            Runner::FastCgi(fastcgi) => fastcgi.peer.addresses(),
            Runner::Worker(_) | Runner::Classic(_) | Runner::Cgi(_) => &[],
        }
    }

    /// Whether each call gets a fresh worker.
    pub const fn is_debug(&self) -> bool {
        matches!(self.kept(), Some(kept) if kept.debug)
    }
}

impl Section for PoolSettings {
    fn read(t: &mut Table<'_>) -> Self {
        read(t, Calls::Other).workers
    }
}

/// What the calls of a pool are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    Requests,
    Other,
}

impl Calls {
    /// Reads keys that only pools for HTTP requests have; other pools refuse them.
    fn http_keys<R>(self, t: &mut Table<'_>, read: impl FnOnce(&mut Table<'_>) -> R) -> Option<R> {
        if self == Self::Requests {
            return Some(read(t));
        }
        let message = "is of pools that answer HTTP requests, and this one does not";
        t.refuse_keys(message, "remove it", read);
        None
    }
}

/// The keys that say what the workers are.
struct RunnerKeys {
    mode: Mode,
    /// Of all modes but [`Mode::Worker`].
    site: Option<SiteSettings>,
    php: Option<Command>,
    clear_env: bool,
    fastcgi: FastCgiKeys,
}

impl RunnerKeys {
    fn read(t: &mut Table<'_>) -> Self {
        let probably = if t.is_written("root") {
            Mode::Classic
        } else {
            Mode::Worker
        };
        let mode = t
            .key(
                "mode",
                "What the workers run. `worker`: a worker script. `classic`: any PHP script below \
                 a `root`. `fastcgi`: the same, with a FastCGI program. `cgi`: programs below a \
                 `root`, with one process for each call.",
            )
            .ours()
            .guess(probably)
            .default(Mode::Worker);
        Self {
            mode,
            site: scripts::read(t, mode),
            php: classic::read_php(t, mode),
            clear_env: scripts::read_clear_env(t, mode),
            fastcgi: fastcgi::read(t, mode),
        }
    }

    /// Without any of them.
    fn of_worker_script() -> Self {
        Self {
            mode: Mode::Worker,
            site: None,
            php: None,
            clear_env: true,
            fastcgi: FastCgiKeys::default(),
        }
    }
}

/// The keys about how workers that run PHP are connected and what they are given.
struct WorkerKeys {
    transport: TransportChoice,
    spin: Option<Duration>,
    ini: Ini,
    codec: CodecChoice,
    fence: Fence,
    globals: bool,
    leaks: Leaks,
}

/// All keys of a pool, in the order in which they are shown.
fn read(t: &mut Table<'_>, calls: Calls) -> HttpPoolSettings {
    t.live();
    t.key::<Duration>(
        "allocate_timeout",
        "RoadRunner's single limit for both `boot_timeout` and `queue_timeout`.",
    )
    .zero_is_default()
    .optional();
    let of_runner = calls.http_keys(t, RunnerKeys::read);
    let of_runner = of_runner.unwrap_or_else(RunnerKeys::of_worker_script);
    let mode = of_runner.mode;
    let command = read_command(t, mode);
    let spawn = classic::read_spawn(t, mode);
    let num_workers = scaling::num_workers(t);
    let scaling = scaling::scaling(t, num_workers);
    let (max_queue_size, queue_timeout) = read_queue(t);
    let boot_timeout = read_boot_timeout(t, mode);
    let elsewhere = of_runner.fastcgi.is_elsewhere();
    let warmup = calls.http_keys(t, |t| requests::read_warmup(t, mode, elsewhere));
    let destroy_timeout = t
        .key(
            "destroy_timeout",
            "How long running calls may still take when the server stops.",
        )
        .zero_is_default()
        .default(DESTROY_TIMEOUT);
    let (user, group) = read_user(t);
    let reach = Reach::read(t, mode);
    let times = CallTimes::read(t);
    let max_jobs = read_max_jobs(t, mode);
    let debug = t
        .key(
            "debug",
            "For development: a new worker for each call, and errors in the browser.",
        )
        .refused(mode.without_kept())
        .default(false);
    let worker = WorkerKeys::read(t, mode, calls);
    let retry = calls.http_keys(t, requests::read_retry);
    let client_gone = read_client_gone(t, mode);
    let request_body = calls.http_keys(t, |t| requests::read_body(t, mode));
    let slow = read_slow(t);
    let limits = t.section_with("supervisor", "Limits for each worker.", |t| {
        Limits::read(t, mode)
    });
    let common = CommonSettings {
        env: Pairs::default(),
        num_workers: scaling.map_or(num_workers, |scaling| scaling.min),
        scaling,
        max_queue_size,
        queue_timeout,
        destroy_timeout,
        reset_timeout: times.reset_timeout,
        storages: reach.storages,
        methods: reach.methods,
        pipelines: reach.pipelines,
        user,
        group,
        stream_timeout: times.stream_timeout,
        deadline_max: times.deadline_max,
        client_gone,
        watch_tick: limits.watch_tick,
        exec_ttl: limits.exec_ttl,
        slow,
    };
    let kept = KeptSettings {
        boot_timeout,
        max_jobs,
        debug,
        ttl: limits.ttl,
        idle_ttl: limits.idle_ttl,
        max_worker_memory: limits.max_worker_memory,
    };
    let runner = of_runner.runner(t, kept, command, spawn, worker);
    HttpPoolSettings {
        workers: PoolSettings { common, runner },
        warmup: warmup.unwrap_or_default(),
        retry: retry.unwrap_or(Retry::Never),
        request_body: request_body.unwrap_or(RequestBody::Buffer),
    }
}

/// The limit for the start of a worker.
fn read_boot_timeout(t: &mut Table<'_>, mode: Mode) -> Duration {
    t.key(
        "boot_timeout",
        "Time limit for a worker's start, up to its handshake.",
    )
    .ours()
    .or_key("allocate_timeout")
    .range(SHORTEST..=LONGEST)
    .no_effect(mode.ignores(&[Mode::Cgi]))
    .default(BOOT_TIMEOUT)
}

fn read_max_jobs(t: &mut Table<'_>, mode: Mode) -> Option<NonZeroU64> {
    t.key(
        "max_jobs",
        "The number of calls after which a worker is replaced, plus a random 0 to 14 %. The worker \
         continues until its successor is ready. With 1, no worker gets a second call.",
    )
    .refused(mode.without_kept())
    .limit()
    .and_then(NonZeroU64::new)
}

fn read_client_gone(t: &mut Table<'_>, mode: Mode) -> ClientGone {
    t.key(
        "client_gone",
        "What happens to a waiting call whose client has disconnected. `run`: it still runs, as \
         with php-fpm, but such calls fill at most a quarter of the queue. `drop`: it does not \
         run. Some programs send requests to themselves and do not wait for the answer, as \
         WordPress does for its cron; they need `run`.",
    )
    .ours()
    .refused(mode.without_kept())
    .default_as(
        ClientGone::usual(mode),
        "`run` in `mode: classic` and `fastcgi`, else `drop`",
    )
}

/// The parts of the server that workers reach over their connection; None: all of them.
struct Reach {
    storages: Option<Vec<String>>,
    pipelines: Option<Vec<String>>,
    methods: Option<Vec<String>>,
}

impl Reach {
    fn read(t: &mut Table<'_>, mode: Mode) -> Self {
        Self {
            storages: t
                .key(
                    "storages",
                    "Storages of `kv` that the workers may use, in shared memory and over their \
                     connection. By default, all; with `[]`, none.",
                )
                .ours()
                .optional(),
            pipelines: t
                .key(
                    "pipelines",
                    "Pipelines of `jobs` that the workers may push to over their connection. By \
                     default, all; with `[]`, none.",
                )
                .ours()
                .no_effect(mode.ignores(&[Mode::Cgi, Mode::FastCgi]))
                .optional(),
            methods: t
                .key(
                    "methods",
                    "RPC services (`kv`) and methods (`jobs.Push`) that the workers may call over \
                     their connection. By default, all; if pools have different users, those that \
                     affect no other pool. With `[]`, none.",
                )
                .ours()
                .no_effect(mode.ignores(&[Mode::Cgi, Mode::FastCgi]))
                .optional(),
        }
    }
}

/// How long calls may take that somebody has stopped waiting for, or that ask for more time.
struct CallTimes {
    reset_timeout: Duration,
    stream_timeout: Duration,
    deadline_max: Duration,
}

impl CallTimes {
    fn read(t: &mut Table<'_>) -> Self {
        Self {
            reset_timeout: t
                .key(
                    "reset_timeout",
                    "How long running calls may still take when a reload replaces their workers.",
                )
                .zero_is_default()
                .default(RESET_TIMEOUT),
            stream_timeout: t
                .key(
                    "stream_timeout",
                    "How long a worker may continue a stream after its client has disconnected.",
                )
                .zero_is_default()
                .default(STREAM_TIMEOUT),
            deadline_max: t
                .key(
                    "deadline_max",
                    "The longest time by which a call may extend its deadline, counted from the \
                     moment it asks.",
                )
                .ours()
                .range(SHORTEST..=LONGEST)
                .default(DEADLINE_MAX),
        }
    }
}

/// Who the workers are.
fn read_user(t: &mut Table<'_>) -> (Option<String>, Option<String>) {
    let user = t
        .key(
            "user",
            "The user that the pool's workers run as. Requires a server that is started as root. \
             By default, `server.user`.",
        )
        .ours()
        .not_live()
        .optional();
    let group = t
        .key(
            "group",
            "The group that the pool's workers run as. By default, the user's own group.",
        )
        .ours()
        .not_live()
        .optional();
    (user, group)
}

/// After how long a call is told of.
fn read_slow(t: &mut Table<'_>) -> Option<Duration> {
    t.key(
        "slow",
        "Calls that take longer than this get a log record that shows how their time was spent. If \
         a worker with the extension is still busy after that time, the record also has PHP's \
         stack at that moment. The limit is ten records per second.",
    )
    .ours()
    .live()
    .range(SHORTEST..=LONGEST)
    .limit()
}

/// None runs what the mode does by itself.
fn read_command(t: &mut Table<'_>, mode: Mode) -> Option<Command> {
    let of_scripts = (
        "is of pools that run a worker script, and this one runs scripts below a root",
        "`php` names the PHP of a pool in `mode: classic`",
    );
    t.key(
        "command",
        "The command that starts a worker. By default, `server.command`. In `mode: fastcgi`, a \
         program that speaks FastCGI; by default, php-cgi.",
    )
    .refused(match mode {
        Mode::Classic => Some(of_scripts),
        Mode::Worker | Mode::FastCgi | Mode::Cgi => mode.without_kept(),
    })
    .optional()
}

/// How many calls may wait, and how long.
fn read_queue(t: &mut Table<'_>) -> (usize, Duration) {
    let max_queue_size = t
        .key(
            "max_queue_size",
            "How many calls may wait for a worker. Further calls are answered 503.",
        )
        .range(1..=MAX_QUEUE_SIZE)
        .zero_means(MAX_QUEUE_SIZE, "every queue has a limit here")
        .roadrunner("endless", "every queue has a limit here")
        .differs("counts running calls, too", "only waiting calls count")
        .default(QUEUE_SIZE);
    let queue_timeout = t
        .key(
            "queue_timeout",
            "How long a call may wait for a worker. After that, it is answered 503.",
        )
        .ours()
        .roadrunner("60s", "a proxy should not give up before the 503")
        .or_key("allocate_timeout")
        .range(SHORTEST..=LONGEST)
        .default(QUEUE_TIMEOUT);
    (max_queue_size, queue_timeout)
}

impl WorkerKeys {
    fn read(t: &mut Table<'_>, mode: Mode, calls: Calls) -> Self {
        let transport = t
            .key(
                "transport",
                "How workers exchange calls with the server: `relay`, over pipes or sockets; \
                 `ring`, in shared memory. `auto` uses what a worker announces.",
            )
            .ours()
            .no_effect(mode.ignores(&[Mode::FastCgi]))
            .refused(mode.without_kept())
            .default(TransportWord(TransportChoice::Auto))
            .0;
        let spin = t
            .key(
                "spin",
                "How long a worker in shared memory polls for its next call before it sleeps. A \
                 call that arrives in that time starts faster, but polling keeps a CPU busy.",
            )
            .ours()
            .range(Duration::from_micros(1)..=LONGEST_SPIN)
            .no_effect(mode.ignores(&[Mode::FastCgi]))
            .refused(mode.without_kept())
            .limit();
        if spin.is_some() && transport == TransportChoice::Relay {
            let message = "has no effect: with `transport: relay` there is no memory to look at";
            t.warn("spin", message, "remove one of them");
        }
        let ini = ini::read(t, mode);
        let codec = t
            .key(
                "codec",
                "The encoding of calls for workers of other packages. For them, `auto` is `json`.",
            )
            .ours()
            .no_effect(mode.ignores(&[Mode::Classic, Mode::FastCgi]))
            .refused(mode.without_kept())
            .default(CodecChoice::Auto);
        let globals = calls.http_keys(t, |t| {
            t.key(
                "globals",
                "Whether each call is a complete PHP request with its own `$_GET`, `header()`, \
                 sessions and `exit`. What a call sets in PHP does not affect the next call. Needs \
                 the extension and our PHP package.",
            )
            .ours()
            .no_effect(mode.ignores(&[Mode::Classic, Mode::FastCgi, Mode::Cgi]))
            .default(GLOBALS)
        });
        let leaks = t
            .key(
                "leaks",
                "What to do about state that a call leaves for later calls, such as a static \
                 property that holds a user. Needs the extension. `report` logs each place once; \
                 `recycle` also replaces the worker. The server examines one of 64 calls, and in \
                 development mode every call. `auto` is `report` in development mode, and \
                 otherwise `off`.",
            )
            .ours()
            .no_effect(mode.ignores(&[Mode::Classic, Mode::FastCgi]))
            .refused(mode.without_kept())
            .default(Leaks::Auto);
        let fence = t.section_with(
            "relay",
            "Settings for workers that are connected by pipes or sockets.",
            |t| {
                t.key(
                    "fence",
                    "Whether the server sends a ping before each call to a worker of another \
                     package. Answers that arrive before the reply to the ping belong to an \
                     earlier call and are dropped.",
                )
                .ours()
                .no_effect(mode.ignores(&[Mode::Classic, Mode::FastCgi, Mode::Cgi]))
                .default(FenceWord(Fence::Always))
                .0
            },
        );
        Self {
            transport,
            spin,
            ini,
            codec,
            fence,
            globals: globals.unwrap_or(false),
            leaks,
        }
    }
}

/// The section `supervisor`.
struct Limits {
    watch_tick: Duration,
    ttl: Option<Duration>,
    idle_ttl: Option<Duration>,
    exec_ttl: Option<Duration>,
    max_worker_memory: Option<Size>,
}

impl Limits {
    fn read(t: &mut Table<'_>, mode: Mode) -> Self {
        Self {
            watch_tick: t
                .key(
                    "watch_tick",
                    "How often the server checks `ttl`, `idle_ttl` and `max_worker_memory`.",
                )
                .zero_is_default()
                .range(Duration::from_millis(100)..=LONGEST)
                .default(WATCH_TICK),
            ttl: t
                .key("ttl", "The age at which a worker is replaced.")
                .refused(mode.without_kept())
                .limit(),
            idle_ttl: t
                .key(
                    "idle_ttl",
                    "The time without a call after which a worker is replaced, if it has had a \
                     call before.",
                )
                .refused(mode.without_kept())
                .limit(),
            exec_ttl: t
                .key(
                    "exec_ttl",
                    "The time limit of a call. After it, the client gets 504, and the worker is \
                     stopped.",
                )
                .zero_warns("a call that never ends holds its worker for ever, and nobody is told")
                .roadrunner(
                    "off",
                    "a hung worker must not block a place in the pool forever",
                )
                .limit_of(EXEC_TTL),
            max_worker_memory: t
                .key(
                    "max_worker_memory",
                    "The memory use at which a worker is replaced after its current call. Memory \
                     that it shares with other processes does not count.",
                )
                .refused(mode.without_kept())
                .limit(),
        }
    }
}

impl RunnerKeys {
    /// What of all keys counts for what the pool runs.
    fn runner(
        self,
        t: &mut Table<'_>,
        kept: KeptSettings,
        command: Option<Command>,
        spawn: SpawnChoice,
        worker: WorkerKeys,
    ) -> Runner {
        let Self {
            mode,
            site,
            php,
            clear_env,
            fastcgi,
        } = self;
        let WorkerKeys {
            transport,
            spin,
            ini,
            codec,
            fence,
            globals,
            leaks,
        } = worker;
        match (mode, site) {
            (Mode::Classic, Some(site)) => {
                let settings = ClassicSettings {
                    kept,
                    site,
                    php,
                    spawn,
                    clear_env,
                    transport,
                    spin,
                    ini,
                };
                settings.check(t);
                Runner::Classic(settings)
            }
            (Mode::FastCgi, Some(site)) => {
                let settings = FastCgiSettings {
                    kept,
                    site,
                    clear_env,
                    peer: fastcgi.peer(command),
                    ini,
                };
                settings.check(t);
                Runner::FastCgi(settings)
            }
            (Mode::Cgi, Some(site)) => Runner::Cgi(CgiSettings { site, clear_env }),
            (Mode::Worker, _) | (_, None) => {
                let settings = WorkerSettings {
                    kept,
                    command,
                    transport,
                    spin,
                    ini,
                    codec,
                    fence,
                    globals,
                    spawn,
                    leaks,
                };
                settings.check(t);
                Runner::Worker(settings)
            }
        }
    }
}

#[cfg(test)]
mod tests;
