//! The keys of a pool, typed.

use std::num::NonZeroU64;
use std::time::Duration;

use pronghorn_config::{Choice, Command, Section, Size, Table};
use pronghorn_process::cpus;

use crate::supervisor::{Limits, Scaling};

mod classic;
mod fastcgi;
mod ini;
mod scripts;

pub use classic::{ClassicSettings, SpawnChoice};
pub use fastcgi::FastCgiSettings;
pub use ini::{INI, Ini, Preset};
pub(crate) use ini::{in_php_ini, wants_jit};
pub use scripts::{ResolveRoot, SiteSettings, Symlinks};

/// As RoadRunner's. Far more processes than that need another machine.
pub const MAX_WORKERS: usize = 500;

/// Waiting calls. Enough for a burst, few enough that the last one is still answered in time.
pub const QUEUE_SIZE: usize = 1024;

/// Every queue has an end. Each waiting call holds a connection, and this is as many as an open-file
/// limit usually leaves.
pub const MAX_QUEUE_SIZE: usize = 65_536;

/// How long a call may wait for a worker. Shorter than the 60 s after which common proxies give up,
/// so that the client sees our 503 and not their 504.
pub const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// From start to handshake, as RoadRunner's: a cold framework on a busy disk takes its time.
pub const BOOT_TIMEOUT: Duration = Duration::from_mins(1);

/// What calls under way get when the server stops, as RoadRunner's.
pub const DESTROY_TIMEOUT: Duration = Duration::from_mins(1);

/// What calls under way get when a reload replaces their workers, as RoadRunner's.
pub const RESET_TIMEOUT: Duration = Duration::from_mins(1);

/// What a worker gets to notice that the client of its stream left, as RoadRunner's.
pub const STREAM_TIMEOUT: Duration = Duration::from_mins(1);

/// A call that takes longer is hung: no client waits that long.
pub const EXEC_TTL: Duration = Duration::from_mins(5);

/// The most that a call may ask for at a time; one that needs longer asks again.
pub const DEADLINE_MAX: Duration = Duration::from_hours(1);

/// More workers than are always there, and how many come at once, as RoadRunner's.
pub const DYNAMIC_WORKERS: usize = 10;
pub const SPAWN_RATE: usize = 5;
const MOST_DYNAMIC: usize = 100;

/// What a worker that was added may idle, as RoadRunner's: long enough that a wave of visitors does not boot it twice.
pub const SCALING_IDLE: Duration = Duration::from_mins(1);

/// How often soft limits are looked at, as RoadRunner's.
pub const WATCH_TICK: Duration = Duration::from_secs(5);

/// Of our own keys, where 0 would be a riddle.
pub const SHORTEST: Duration = Duration::from_millis(1);
/// Longer ones are none.
pub const LONGEST: Duration = Duration::from_hours(24);
/// The most that `spin` may be: a worker sleeps and is woken in a twentieth of that.
const LONGEST_SPIN: Duration = Duration::from_millis(1);

/// Each is answered by every new worker: a reload with more takes too long.
pub const MOST_WARMUPS: usize = 16;
/// As long as a request's head may be by default is longer than anybody writes.
const LONGEST_TARGET: usize = 8192;

/// At least 2: one slow call must not stop the site, and a call to oneself must not deadlock.
pub fn default_workers() -> usize {
    cpus::usable().clamp(2, MAX_WORKERS)
}

/// One pool: its workers, its queue, its limits.
#[derive(Clone, Debug)]
pub struct PoolSettings {
    pub mode: Mode,
    /// Of all modes but [`Mode::Worker`].
    pub site: Option<SiteSettings>,
    /// Of [`Mode::Classic`].
    pub classic: Option<ClassicSettings>,
    pub spawn: SpawnChoice,
    /// Scripts see no more of the environment than what is named for them.
    pub clear_env: bool,
    /// Of [`Mode::FastCgi`].
    pub fastcgi: FastCgiSettings,
    /// None runs the server's command.
    pub command: Option<Command>,
    /// From 1 to [`MAX_WORKERS`].
    pub num_workers: usize,
    /// Waiting calls, from 1 to [`MAX_QUEUE_SIZE`]; those that run are not counted.
    pub max_queue_size: usize,
    /// How long a call may wait for a worker.
    pub queue_timeout: Duration,
    /// From a worker's start to its handshake.
    pub boot_timeout: Duration,
    /// What a worker answers before it gets calls; at most [`MOST_WARMUPS`].
    pub warmup: Vec<String>,
    /// What calls under way get when the server stops.
    pub destroy_timeout: Duration,
    /// What calls under way get at a reload.
    pub reset_timeout: Duration,
    /// How long a worker may go on with a stream whose client left.
    pub stream_timeout: Duration,
    /// Between which numbers of workers it moves by itself.
    pub scaling: Option<Scaling>,
    /// The most that a call may ask for at a time.
    pub deadline_max: Duration,
    /// Calls after which a worker is replaced.
    pub max_jobs: Option<NonZeroU64>,
    /// A fresh worker for each call.
    pub debug: bool,
    /// How workers are connected.
    pub transport: TransportChoice,
    /// How long a worker looks for its next call before it sleeps.
    pub spin: Option<Duration>,
    pub ini: Ini,
    /// How calls are written for foreign packages.
    pub codec: CodecChoice,
    /// When to check that a worker has nothing left to say.
    pub fence: Fence,
    /// Which calls may run again after their worker died.
    pub retry: Retry,
    pub client_gone: ClientGone,
    /// When a worker gets its request's body.
    pub request_body: RequestBody,
    /// Limits per worker.
    pub supervisor: Supervisor,
}

/// Limits per worker.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// How often the soft limits are looked at.
    pub watch_tick: Duration,
    /// Age at which a worker is replaced.
    pub ttl: Option<Duration>,
    /// Time without a call after which a worker is replaced.
    pub idle_ttl: Option<Duration>,
    /// The hard limit of one call.
    pub exec_ttl: Option<Duration>,
    /// Memory of its own at which a worker is replaced between calls.
    pub max_worker_memory: Option<Size>,
}

/// What the workers of a pool are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// PHP processes that serve one call after the other.
    Worker,
    /// Any PHP program, in a kept process.
    Classic,
    /// Whatever speaks FastCGI.
    FastCgi,
    /// An executable per call.
    Cgi,
}

impl Choice for Mode {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("worker", Self::Worker),
        ("classic", Self::Classic),
        ("fastcgi", Self::FastCgi),
        ("cgi", Self::Cgi),
    ];
}

/// How workers are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    /// As the worker announces itself.
    Auto,
    /// Goridge frames.
    Relay,
    /// Shared memory.
    Ring,
}

impl Choice for TransportChoice {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("relay", Self::Relay),
        ("ring", Self::Ring),
    ];
}

/// How calls are written for foreign packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecChoice {
    /// `json`, or `native` for a worker that announces it.
    Auto,
    /// RoadRunner's older one; takes UTF-8 only.
    Json,
    /// RoadRunner's newer one; any bytes.
    Proto,
}

impl Choice for CodecChoice {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("json", Self::Json),
        ("proto", Self::Proto),
    ];
}

/// Whether a call to a foreign worker begins with a question, whose answer separates its reply from what was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Each call.
    Always,
    /// Not at all.
    Never,
}

impl Choice for Fence {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("always", Self::Always), ("never", Self::Never)];
}

/// Which calls may run once more when their worker died before it replied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// None.
    Never,
    /// GET, HEAD, OPTIONS, TRACE.
    Safe,
    /// Those, PUT and DELETE.
    Idempotent,
}

impl Choice for Retry {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("never", Self::Never),
        ("safe", Self::Safe),
        ("idempotent", Self::Idempotent),
    ];
}

/// What becomes of a call whose client leaves while it waits for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientGone {
    /// It runs, as with php-fpm: a program may ask itself for work and not wait for it, as `WordPress` does for its cron.
    Run,
    /// It is dropped: a worker does nothing for nobody.
    Drop,
}

impl Choice for ClientGone {
    const CHOICES: &'static [(&'static str, Self)] = &[("run", Self::Run), ("drop", Self::Drop)];
}

impl ClientGone {
    /// What programs written for php-fpm rely on, where such programs run.
    const fn usual(mode: Mode) -> Self {
        match mode {
            Mode::Classic | Mode::FastCgi => Self::Run,
            Mode::Worker | Mode::Cgi => Self::Drop,
        }
    }
}

/// When a worker gets its request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// When all of it is there: a slow client holds no worker.
    Buffer,
    /// As it comes, when the worker asks.
    Stream,
}

impl Choice for RequestBody {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("buffer", Self::Buffer), ("stream", Self::Stream)];
}

impl Section for PoolSettings {
    fn read(t: &mut Table<'_>) -> Self {
        t.key::<Duration>(
            "allocate_timeout",
            "RoadRunner's one limit for boot and queue.",
        )
        .zero_is_default()
        .optional();
        let probably = if t.is_written("root") {
            Mode::Classic
        } else {
            Mode::Worker
        };
        let mode = t
            .key("mode", "What the workers are: `worker` runs a worker script; `classic` any PHP program below a `root`, and `fastcgi` too, by a FastCGI program; `cgi` programs below a `root`, a process for each call.")
            .ours()
            .guess(probably)
            .default(Mode::Worker);
        let site = scripts::read(t, mode);
        let classic = classic::read(t, mode);
        let spawn = classic::read_spawn(t, mode);
        let clear_env = classic::read_clear_env(t, mode);
        let fastcgi = fastcgi::read(t, mode);
        let command = t
            .key(
                "command",
                "What to run as a worker; `server.command` when not written. In `mode: fastcgi` what speaks FastCGI, php-cgi when not written.",
            )
            .optional();
        let num_workers = num_workers(t);
        let scaling = scaling(t, num_workers);
        let settings = Self {
            mode,
            site,
            classic,
            spawn,
            clear_env,
            fastcgi,
            command,
            num_workers: scaling.map_or(num_workers, |scaling| scaling.min),
            scaling,
            max_queue_size: t
                .key("max_queue_size", "How many calls may wait for a worker; more are answered 503.")
                .range(1..=MAX_QUEUE_SIZE)
                .zero_means(MAX_QUEUE_SIZE, "every queue has an end")
                .roadrunner("endless", "every queue has an end")
                .differs("counts running calls too", "only waiting ones are counted")
                .default(QUEUE_SIZE),
            queue_timeout: t
                .key("queue_timeout", "How long a call may wait for a worker; then it is answered 503.")
                .ours()
                .roadrunner("60s", "ours answers before a proxy's 60 s")
                .or_key("allocate_timeout")
                .range(SHORTEST..=LONGEST)
                .default(QUEUE_TIMEOUT),
            boot_timeout: t
                .key("boot_timeout", "How long a worker may take from its start to its handshake.")
                .ours()
                .or_key("allocate_timeout")
                .range(SHORTEST..=LONGEST)
                .default(BOOT_TIMEOUT),
            warmup: warmup(t),
            destroy_timeout: t
                .key("destroy_timeout", "How long calls under way may take when the server stops.")
                .zero_is_default()
                .default(DESTROY_TIMEOUT),
            reset_timeout: t
                .key("reset_timeout", "How long calls under way may take when a reload replaces their workers.")
                .zero_is_default()
                .default(RESET_TIMEOUT),
            stream_timeout: t
                .key("stream_timeout", "How long a worker may go on with a stream whose client left.")
                .zero_is_default()
                .default(STREAM_TIMEOUT),
            deadline_max: t
                .key("deadline_max", "The most time that a call may ask for, counted from then.")
                .ours()
                .range(SHORTEST..=LONGEST)
                .default(DEADLINE_MAX),
            max_jobs: t
                .key(
                    "max_jobs",
                    "Calls after which a worker is replaced, with 0 to 14 % added by chance. It goes on until its \
                     successor is up; with 1, no worker gets a second call.",
                )
                .limit()
                .and_then(NonZeroU64::new),
            debug: t
                .key("debug", "For development: a fresh worker for each call, errors in the browser.")
                .default(false),
            transport: t
                .key("transport", "How workers are connected; `auto` follows what a worker announces.")
                .ours()
                .default(TransportChoice::Auto),
            spin: t
                .key(
                    "spin",
                    "How long a worker in shared memory looks for its next call before it sleeps. A call that comes meanwhile \
                     finds it awake, and a processor is busy with looking.",
                )
                .ours()
                .range(Duration::from_micros(1)..=LONGEST_SPIN)
                .limit(),
            ini: ini::read(t, mode),
            codec: t
                .key("codec", "How calls are written for foreign packages; `auto` is `json` for them.")
                .ours()
                .default(CodecChoice::Auto),
            fence: t.section_with("relay", "Workers on pipes and sockets.", |t| {
                t.key("fence", "Whether a call to a foreign worker begins with a question, so that no answer to another call passes for its own.")
                    .ours()
                    .default(Fence::Always)
            }),
            retry: t
                .key("retry", "Which calls run once more when their worker died before it replied.")
                .ours()
                .default(Retry::Safe),
            client_gone: t
                .key(
                    "client_gone",
                    "What becomes of a call whose client leaves while it waits: `run`, as with php-fpm, up to a quarter of the \
                     queue, or `drop`. A program may ask itself for work and not wait for it, as WordPress does for its cron.",
                )
                .ours()
                .default_as(ClientGone::usual(mode), "`run` in `mode: classic` and `fastcgi`, else `drop`"),
            request_body: t
                .key(
                    "request_body",
                    "`buffer`: a worker gets a request when all of its body is there. `stream`: it reads the body as it comes, \
                     and a slow client holds it; forms are buffered all the same. Needs the package `pronghorn/worker`.",
                )
                .ours()
                .default(RequestBody::Buffer),
            supervisor: t.section("supervisor", "Limits per worker."),
        };
        match mode {
            Mode::Classic => settings.check_classic(t),
            Mode::FastCgi => settings.check_fastcgi(t),
            Mode::Worker | Mode::Cgi => {}
        }
        if settings.spin.is_some() && settings.transport == TransportChoice::Relay {
            let message = "has no effect: with `transport: relay` there is no memory to look at";
            t.warn("spin", message, "remove one of them");
        }
        scripts::warn_of_others(t, mode);
        not_yet(t);
        if mode == Mode::Cgi {
            scripts::refuse_keys_of_kept(t, &settings);
        }
        settings
    }
}

impl PoolSettings {
    /// Keys that come to nothing because of who answers.
    fn check_fastcgi(&self, t: &mut Table<'_>) {
        let FastCgiSettings { addresses, php_fpm } = &self.fastcgi;
        let elsewhere = !addresses.is_empty();
        if (elsewhere || self.command.is_some()) && !self.ini.written.0.is_empty() {
            let message = "has no effect: it is for a PHP that the server finds and starts";
            t.warn("ini", message, "put it into the php.ini of what runs there");
        }
        if elsewhere && !self.warmup.is_empty() {
            let message =
                "has no effect: the processes behind `fastcgi.address` are not this server's";
            t.warn("warmup", message, "remove it");
        }
        let unknown = elsewhere || php_fpm.is_some();
        if unknown && self.supervisor.max_worker_memory.is_some() {
            let message = "has a `max_worker_memory`, and what processes of php-fpm or at an address take is not looked at";
            let hint =
                "remove it; `max_jobs` replaces the processes of a php-fpm that the server runs";
            t.warn("supervisor", message, hint);
        }
    }

    /// Keys that mean something else in a classic pool than was thought.
    fn check_classic(&self, t: &mut Table<'_>) {
        if self.command.is_some() {
            t.error(
                "command",
                "is of pools that run a worker script, and this one runs scripts below a root",
                "`php` names the PHP of a pool in `mode: classic`",
            );
        }
        if self.spawn != SpawnChoice::Exec && self.ini.written.iter().any(|it| wants_jit(&it)) {
            let (message, hint) = match self.spawn {
                SpawnChoice::Fork => (
                    "switches on OPcache's JIT, which is known to crash in a cache that processes share, and `spawn` is `fork`",
                    "remove one of the two",
                ),
                SpawnChoice::Auto | SpawnChoice::Exec => (
                    "switches on OPcache's JIT, so workers share no OPcache: each starts PHP anew",
                    "`spawn: exec` says that this is meant",
                ),
            };
            t.warn("ini", message, hint);
        }
        if self.transport == TransportChoice::Relay {
            let message =
                "is `relay`, and scripts in `mode: classic` get their calls in shared memory only";
            t.error("transport", message, "remove it");
        }
        if self.request_body == RequestBody::Stream {
            let message =
                "is `stream`, and PHP reads a body before a script in `mode: classic` begins";
            t.error("request_body", message, "remove it");
        }
    }
}

fn warmup(t: &mut Table<'_>) -> Vec<String> {
    let targets: Vec<String> = t
        .key(
            "warmup",
            "Paths, `/` for instance, that every new worker answers before it gets requests of clients, within \
             `boot_timeout`. One that answers 5xx has not come up: a reload with it is rolled back. In pools of scripts paths \
             below the root.",
        )
        .ours()
        .default(Vec::new());
    if targets.len() > MOST_WARMUPS {
        t.error(
            "warmup",
            &format!(
                "has {} paths; at most {MOST_WARMUPS} are taken",
                targets.len()
            ),
            "name those that load the most code",
        );
    }
    let usable = |target: &&String| {
        let graphic = target
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#');
        target.starts_with('/') && graphic && target.len() <= LONGEST_TARGET
    };
    if let Some(wrong) = targets.iter().find(|target| !usable(target)) {
        t.error(
            "warmup",
            &format!(
                "has `{}`, which is no path of a request",
                wrong.escape_debug()
            ),
            "write a path as in a request, `/health?deep=1` for instance",
        );
    }
    targets
}

fn num_workers(t: &mut Table<'_>) -> usize {
    t.key("num_workers", "How many workers run at once.")
        .range(1..=MAX_WORKERS)
        .zero_is_default()
        .roadrunner(
            "the machine's CPUs",
            "a call to oneself must not deadlock, and a container's limits count",
        )
        .default_as(
            default_workers(),
            "CPUs that this process may use, at least 2",
        )
}

/// Ours, `min_workers` and `max_workers`, or RoadRunner's `dynamic_allocator`: the same mechanism.
fn scaling(t: &mut Table<'_>, num_workers: usize) -> Option<Scaling> {
    let min = t
        .key(
            "min_workers",
            "How many workers are always there, in a pool that grows; `num_workers` when not written.",
        )
        .ours()
        .range(1..=MAX_WORKERS)
        .optional();
    let max = t
        .key(
            "max_workers",
            "How many workers there are at most; one is added while calls wait for 100 ms, and ends after a minute \
             without a call. `num_workers` is fixed when not written.",
        )
        .ours()
        .range(1..=MAX_WORKERS)
        .optional();
    let dynamic = t.optional_section_with(
        "dynamic_allocator",
        "RoadRunner's way to more workers under load: they come while calls wait for 100 ms.",
        |t| read_dynamic(t, num_workers),
    );
    let fewest = min.unwrap_or(num_workers);
    let ours = match (min, max) {
        (_, Some(max)) if max < fewest => {
            t.error(
                "max_workers",
                &format!("is {max}, which is less than the {fewest} workers that are always there"),
                "write a larger one, or a smaller `min_workers`",
            );
            None
        }
        (_, Some(max)) => Some(Scaling {
            min: fewest,
            max,
            // Four steps from the fewest to the most: quick enough for a wave, without starting all for a ripple.
            step: ((max - fewest) / 4).max(1),
            idle: SCALING_IDLE,
        }),
        (Some(_), None) => {
            t.warn(
                "min_workers",
                "has no effect without `max_workers`",
                "write `num_workers` for a fixed number",
            );
            None
        }
        (None, None) => None,
    };
    if dynamic.is_some() && (min.is_some() || max.is_some()) {
        t.error(
            "dynamic_allocator",
            "says how the pool grows, and `min_workers` and `max_workers` say so too",
            "leave one of them out",
        );
    }
    ours.or(dynamic)
}

fn read_dynamic(t: &mut Table<'_>, num_workers: usize) -> Scaling {
    let more = t
        .key("max_workers", "How many workers more than `num_workers`.")
        .range(1..=MOST_DYNAMIC)
        .zero_is_default()
        .default(DYNAMIC_WORKERS);
    let step = t
        .key("spawn_rate", "How many workers are added at once.")
        .range(1..=MOST_DYNAMIC)
        .zero_is_default()
        .default(SPAWN_RATE);
    let idle = t
        .key(
            "idle_timeout",
            "Time without a call after which an added worker ends.",
        )
        .zero_is_default()
        .range(Duration::from_secs(1)..=LONGEST)
        .differs(
            "ends all added workers together, so long after the last was added",
            "one that works is needed",
        )
        .default(SCALING_IDLE);
    Scaling {
        min: num_workers,
        max: num_workers + more,
        step,
        idle,
    }
}

impl Supervisor {
    /// The soft limits.
    pub fn limits(&self) -> Limits {
        Limits {
            watch_tick: self.watch_tick,
            ttl: self.ttl,
            idle_ttl: self.idle_ttl,
            max_memory: self.max_worker_memory.map(Size::bytes),
        }
    }
}

impl Section for Supervisor {
    fn read(t: &mut Table<'_>) -> Self {
        Self {
            watch_tick: t
                .key("watch_tick", "How often the soft limits are looked at.")
                .zero_is_default()
                .range(Duration::from_millis(100)..=LONGEST)
                .default(WATCH_TICK),
            ttl: t.key("ttl", "Age at which a worker is replaced.").limit(),
            idle_ttl: t
                .key(
                    "idle_ttl",
                    "Time without a call after which a worker is replaced that had one.",
                )
                .limit(),
            exec_ttl: t
                .key(
                    "exec_ttl",
                    "The hard limit of one call: the client gets 504, the worker is stopped.",
                )
                .zero_warns("a call that never ends holds its worker for ever, and nobody is told")
                .roadrunner("off", "a hung worker must be noticed")
                .limit_of(EXEC_TTL),
            max_worker_memory: t
                .key(
                    "max_worker_memory",
                    "Memory of its own at which a worker is replaced after its call; what it shares is not counted.",
                )
                .limit(),
        }
    }
}

/// What later work brings; each line moves up into a key of its own then.
fn not_yet(t: &mut Table<'_>) {
    t.not_yet("fork", "workers forked from a booted one");
}
