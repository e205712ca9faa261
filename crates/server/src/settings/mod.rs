//! The whole configuration, typed, and what `check` and `config show` say about it.

mod eras;
mod fileserver;
mod logs;
mod say;

use std::time::Duration;

use pronghorn_config::{Address, Choice, Endpoint, Era, Section, Table, describe};
use pronghorn_http::settings::{DEFAULT_POOL, HttpSettings};
use pronghorn_workers::settings::Runner;

pub use eras::eras;
pub use fileserver::FileServerSettings;
pub use logs::{Encoding, FileLog, Level, LogMode, LogOutput, LogSettings, LogTarget};
pub use pronghorn_workers::Watching;
pub use pronghorn_workers::{OnInit, RelayAddress, ServerSettings};
pub use say::{Finding, Said, check, config_show};

/// What everything gets when the server stops, as RoadRunner's.
pub const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// What a new process gets to boot: all its workers within their `boot_timeout`, in two turns.
pub const UPGRADE_TIMEOUT: Duration = Duration::from_mins(2);

/// An hour; nobody waits that long to learn that a server hangs.
const MOST_WATCHDOG: u64 = 3600;

/// RoadRunner's port for RPC, this machine only.
const RPC_HOST: &str = "127.0.0.1";
const RPC_PORT: u16 = 6001;

/// Where RoadRunner's documentation has its health checks, this machine only.
const STATUS_PORT: u16 = 2114;
/// The status of a health check that fails, as RoadRunner's.
pub const UNAVAILABLE: u16 = 503;
/// Seconds, as RoadRunner's.
const CHECK_TIMEOUT: u16 = 60;

/// Everything that a file can say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which RoadRunner the file was written for.
    pub compat: Era,
    /// How workers are started.
    pub server: ServerSettings,
    /// The HTTP side, when there is a section for it.
    pub http: Option<HttpSettings>,
    /// RPC for PHP, when there is a section for it.
    pub rpc: Option<RpcSettings>,
    /// Files at an address of their own, when there is a section for them.
    pub fileserver: Option<FileServerSettings>,
    /// Health checks, when there is a section for them.
    pub status: Option<StatusSettings>,
    /// Log records.
    pub logs: LogSettings,
    /// What to watch for changes, when there is a section for it.
    pub reload: Option<Watching>,
    /// The server's own life.
    pub endure: EndureSettings,
}

/// RPC for PHP.
#[derive(Clone, Debug)]
pub struct RpcSettings {
    /// Where to listen.
    pub listen: Endpoint,
}

/// Health checks over HTTP.
#[derive(Clone, Debug)]
pub struct StatusSettings {
    /// Where to listen.
    pub address: Address,
    /// The answer's status when something is missing, from 400 to 599.
    pub unavailable_status_code: u16,
    /// How long a client may take to send its request.
    pub check_timeout: Duration,
    /// Between the moment at which readiness turns off and the one at which nothing new is accepted.
    pub drain_delay: Duration,
}

/// The server's own life. The section has RoadRunner's name.
#[derive(Clone, Debug)]
pub struct EndureSettings {
    /// What everything gets when the server stops; then it ends at once.
    pub grace_period: Duration,
    /// How the server goes over to a new process.
    pub upgrade: UpgradeChoice,
    /// What a new process gets to boot.
    pub upgrade_timeout: Duration,
    /// How often systemd hears that the server lives; None is as the unit wants it.
    pub watchdog: Option<Duration>,
}

/// How the server goes over to a new process on SIGUSR2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeChoice {
    /// As whoever watches this process wants it.
    Auto,
    /// To a process beside it.
    Beside,
    /// Keeping its number.
    InPlace,
}

impl Choice for UpgradeChoice {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("beside", Self::Beside),
        ("in_place", Self::InPlace),
    ];
}

impl Settings {
    /// What a stop may take.
    pub fn longest_stop(&self) -> Duration {
        let serving_on = self
            .status
            .as_ref()
            .map_or(Duration::ZERO, |status| status.drain_delay);
        serving_on.saturating_add(self.endure.grace_period)
    }
}

/// `docs/reference/configuration.md`, from the statements that read the keys.
pub fn reference() -> String {
    format!("{}{}", include_str!("reference.md"), describe::<Settings>())
}

impl Section for Settings {
    fn read(t: &mut Table<'_>) -> Self {
        let era = t.era();
        let mut settings = Self {
            compat: t
                .key(
                    "compat",
                    "Which RoadRunner the file was written for, where two of them read it in different ways \
                     ([what depends on it](../migration/from-roadrunner.md#two-eras)).",
                )
                .ours()
                .default_as(
                    era,
                    "told by keys that one of them alone has, else by Composer's packages, else `2025`; in `pronghorn.yaml` `2025`",
                ),
            server: t.section("server", "How workers are started."),
            http: t.optional_section(
                "http",
                "The HTTP server. Without this section, the server does not serve HTTP.",
            ),
            rpc: t.optional_section(
                "rpc",
                "RPC calls from PHP to the server. Without this section, there is no RPC.",
            ),
            fileserver: t.optional_section(
                "fileserver",
                "A file server on an address of its own. Without this section, there is none.",
            ),
            status: t.optional_section(
                "status",
                "Health checks over HTTP. Without this section, there are none.",
            ),
            logs: t.section("logs", "Log records."),
            reload: t.optional_section(
                "reload",
                "New workers when files change, as in RoadRunner 2. Without this section, only \
                 development mode watches files.",
            ),
            endure: t.section(
                "endure",
                "Stopping and upgrading the server; the name is RoadRunner's.",
            ),
        };
        if let Some(http) = settings
            .http
            .as_ref()
            .filter(|_| settings.server.command.is_none())
        {
            check_commands(t, http);
        }
        if let Some(log) = settings
            .http
            .as_ref()
            .and_then(|http| http.access_log.as_ref())
        {
            settings.logs.add_access(&log.output);
        }
        not_yet(t);
        settings
    }
}

/// There is no command for all pools, so each that runs needs one.
fn check_commands(t: &mut Table<'_>, http: &HttpSettings) {
    const SERVER: &str = "for example `command: php worker.php` in the section `server`";
    for (name, pool) in http.running_pools() {
        if !matches!(&pool.workers.runner, Runner::Worker(worker) if worker.command.is_none()) {
            continue;
        }
        let (message, hint) = match name {
            DEFAULT_POOL if http.routes.is_empty() => (
                "has no workers: neither `server.command` nor `http.pool.command` is \
                 set"
                .to_owned(),
                SERVER.to_owned(),
            ),
            DEFAULT_POOL => (
                "has no workers for requests that match no route: neither `server.command` nor \
                 `http.pool.command` is set"
                    .to_owned(),
                format!("{SERVER}, or a last route for them that has a `pool` and nothing else"),
            ),
            name => (
                format!(
                    "has no workers for pool `{name}`: neither `server.command` nor \
                     `http.pools.{name}.command` is set"
                ),
                format!("for example `command: php {name}.php` in `http.pools.{name}`"),
            ),
        };
        t.error("http", &message, &hint);
    }
}

impl Section for RpcSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let default = Endpoint::Tcp(Address {
            host: Some(RPC_HOST.to_owned()),
            port: RPC_PORT,
        });
        Self {
            listen: t
                .key("listen", "Where to listen; workers find it in `RR_RPC`.")
                .default(default),
        }
    }
}

impl Section for StatusSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let address = Address {
            host: Some(RPC_HOST.to_owned()),
            port: STATUS_PORT,
        };
        Self {
            address: t
                .key(
                    "address",
                    "Where to listen for `/health` and `/livez`, `/ready` and `/readyz`, `/jobs`.",
                )
                .default(address),
            check_timeout: Duration::from_secs(
                t.key(
                    "check_timeout",
                    "Seconds that a client may take to send its request.",
                )
                .zero_is_default()
                .range(1..=3600)
                .default(CHECK_TIMEOUT)
                .into(),
            ),
            unavailable_status_code: t
                .key(
                    "unavailable_status_code",
                    "The status of the answer if a check fails.",
                )
                .zero_is_default()
                .range(400..=599)
                .default(UNAVAILABLE),
            drain_delay: t
                .key(
                    "drain_delay",
                    "How long a stopping server continues to serve while `/ready` already answers \
                     503: as long as a load balancer takes to notice.",
                )
                .ours()
                .default(Duration::ZERO),
        }
    }
}

impl Section for EndureSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let settings = Self {
            grace_period: t
                .key(
                    "grace_period",
                    "How long a stop may take in total; then everything ends at once.",
                )
                .live()
                .zero_is_default()
                .default(GRACE_PERIOD),
            upgrade: t
                .key(
                    "upgrade",
                    "How SIGUSR2 switches to a new process; `in_place` keeps the process ID.",
                )
                .live()
                .ours()
                .default_as(
                    UpgradeChoice::Auto,
                    "`auto`: `in_place` as the first process of a container or under a supervisor \
                     that can't follow a new process ID",
                ),
            upgrade_timeout: t
                .key(
                    "upgrade_timeout",
                    "How long a new process may take to be ready; then the old process continues.",
                )
                .live()
                .ours()
                .range(Duration::from_secs(1)..=Duration::from_hours(1))
                .default(UPGRADE_TIMEOUT),
            watchdog: t
                .key::<u64>(
                    "watchdog_sec",
                    "How often the server reports to systemd, in seconds; by default half of the \
                     unit's `WatchdogSec`.",
                )
                .range(0..=MOST_WATCHDOG)
                .optional()
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
        };
        t.no_effect("log_level", "`logs.level` holds for all records");
        t.no_effect("print_graph", "there is no graph of plugins");
        settings
    }
}

/// Of RoadRunner 3.
fn read_lock(t: &mut Table<'_>) {
    let kept = t
        .key("driver", "Where locks are kept.")
        .default(LockDriver::Memory);
    if kept == LockDriver::Redis {
        t.section_not_yet("driver", "locks in Redis");
    }
    t.no_effect("config", "the server keeps locks in memory");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockDriver {
    Memory,
    Redis,
}

impl Choice for LockDriver {
    const CHOICES: &'static [(&'static str, Self)] =
        &[("memory", Self::Memory), ("redis", Self::Redis)];
}

/// What later work brings; each line moves up into a section of its own then.
fn not_yet(t: &mut Table<'_>) {
    let kv: Vec<String> = t.names_in("kv");
    t.not_yet("jobs", "message queues");
    t.not_yet("kv", "caches");
    t.not_yet("service", "other programs kept running");
    t.not_yet("grpc", "gRPC");
    t.not_yet("protoreg", "gRPC");
    t.not_yet("tcp", "TCP servers");
    t.not_yet("centrifuge", "Centrifugo");
    t.not_yet("metrics", "metrics");
    t.not_yet("otel", "OpenTelemetry");
    t.not_yet("temporal", "Temporal");
    t.not_yet("amqp", "message queues");
    t.not_yet("beanstalk", "message queues");
    t.not_yet("boltdb", "message queues and caches");
    t.not_yet("kafka", "message queues");
    t.not_yet("nats", "message queues");
    t.not_yet("nsq", "message queues");
    t.not_yet("sqs", "message queues");
    t.not_yet("google_pub_sub", "message queues");
    t.not_yet("redis", "caches");
    t.not_yet("memcached", "caches");
    t.not_yet("memory", "caches");
    for name in kv {
        // A cache may keep its settings in a section of its own name at the top.
        if !t.is_known(&name) {
            t.not_yet(&name, "caches");
        }
    }
    t.optional_section_with("lock", "Locks over RPC are always there.", read_lock);
    t.no_effect("websockets", "RoadRunner removed it");
    t.no_effect("broadcast", "RoadRunner removed it");
}
