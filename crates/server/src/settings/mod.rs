//! The whole configuration, typed, and what `check` and `config show` say about it.

mod eras;
mod logs;
mod reports;
mod say;

use std::path::PathBuf;
use std::time::Duration;

use pronghorn_config::{Choice, Era, Listen, Section, Table, describe};
use pronghorn_launch::Ini;
use pronghorn_plugin_api::{ConfiguredPool, Service};
use pronghorn_workers::settings::Runner;

use crate::services::Services;

pub use eras::eras;
pub use logs::{Encoding, FileLog, Level, LogMode, LogOutput, LogSettings, LogTarget};
pub use pronghorn_plugin_api::Finding;
pub use pronghorn_workers::Watching;
pub use pronghorn_workers::{OnInit, RelayAddress, ServerSettings};
pub use reports::ReportSettings;
pub use say::{Form, Said, check, config_show, effective_json};

/// What everything gets when the server stops, as RoadRunner's.
pub const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// What a new process gets to boot: all its workers within their `boot_timeout`, in two turns.
pub const UPGRADE_TIMEOUT: Duration = Duration::from_mins(2);

/// An hour; nobody waits that long to learn that a server hangs.
const MOST_WATCHDOG: u64 = 3600;

/// Everything that a file can say.
#[derive(Debug)]
pub struct Settings {
    /// Which RoadRunner the file was written for.
    pub compat: Era,
    /// How workers are started.
    pub server: ServerSettings,
    /// Where is what outlives the server; None is as the machine has it.
    pub state_dir: Option<PathBuf>,
    /// What is kept of what went wrong.
    pub reports: ReportSettings,
    /// What is configured of the table of services, in its order, by name.
    pub services: Vec<(&'static str, Box<dyn Service>)>,
    /// The names of those that have no section.
    pub unconfigured: Vec<&'static str>,
    /// Log records.
    pub logs: LogSettings,
    /// What to watch for changes for which service, when there is a section for it.
    pub reload: Option<Vec<(&'static str, Watching)>>,
    /// The server's own life.
    pub endure: EndureSettings,
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
        self.drain_delay().saturating_add(self.endure.grace_period)
    }

    /// How long the server goes on after it has said that it is not ready any more.
    pub(crate) fn drain_delay(&self) -> Duration {
        let services = self.services.iter();
        let longest = services.map(|(_, service)| service.drain_delay()).max();
        longest.unwrap_or_default()
    }

    /// Whether a service of this name is configured.
    pub fn has(&self, name: &str) -> bool {
        self.services.iter().any(|(known, _)| *known == name)
    }

    /// The pools of all services, with the names of these.
    pub fn pools(&self) -> impl Iterator<Item = (&'static str, ConfiguredPool<'_>)> {
        let services = self.services.iter();
        services.flat_map(|(name, service)| service.pools().into_iter().map(|pool| (*name, pool)))
    }

    /// The statements of a server that has these services.
    pub fn read_with(t: &mut Table<'_>, kinds: &Services) -> Self {
        let era = t.era();
        let compat = t
            .key(
                "compat",
                "The RoadRunner version that the file was written for. Two versions read some keys \
                 differently ([the differences](../migration/from-roadrunner.md#two-eras)).",
            )
            .ours()
            .default_as(
                era,
                "recognised by keys that only one of the two has, else by Composer's packages, \
                 else `2025`; always `2025` in `pronghorn.yaml`",
            );
        let server = t.section("server", "How the server starts workers.");
        let state_dir = state_dir(t);
        let reports = t.section(
            "reports",
            "Reports of crashes, timeouts, fatal errors and failed boots, as files in \
             `state_dir/reports`. `pronghorn crashes` shows them.",
        );
        let (mut services, mut unconfigured) = (Vec::new(), Vec::new());
        for kind in kinds.iter() {
            match kind.read(t) {
                Some(service) => services.push((kind.name(), service)),
                None => unconfigured.push(kind.name()),
            }
        }
        let mut logs: LogSettings = t.section("logs", "Log records.");
        let with_pools = services
            .iter()
            .filter(|(_, service)| !service.pools().is_empty());
        let with_pools: Vec<&'static str> = with_pools.map(|(name, _)| *name).collect();
        let reload = t.optional_section_with(
            "reload",
            "Workers are replaced when files change, as in RoadRunner 2. Without this section, \
             only development mode watches files.",
            |t| Watching::read(t, &with_pools),
        );
        let endure = t.section(
            "endure",
            "How the server stops and upgrades. RoadRunner gave the section its name.",
        );
        for (name, service) in &services {
            logs.services.push(name);
            service.check(t, &server);
            for (channel, outputs) in service.log_channels() {
                logs.add_channel(channel, outputs);
            }
        }
        check_addresses(t, &services);
        check_borders(t, &services);
        check_users(t, &services, &server);
        check_storages(t, &services);
        not_yet(t);
        Self {
            compat,
            server,
            state_dir,
            reports,
            services,
            unconfigured,
            logs,
            reload,
            endure,
        }
    }
}

/// Two services can't listen on one address: the second one would find it taken, by this process.
fn check_addresses(t: &mut Table<'_>, services: &[(&'static str, Box<dyn Service>)]) {
    let mut taken: Vec<(&str, Listen)> = Vec::new();
    for (name, service) in services {
        for listen in service.listens() {
            let other = taken
                .iter()
                .find(|(by, at)| by != name && at.overlaps(&listen));
            if let Some((by, _)) = other {
                let at = &listen;
                t.error(
                    name,
                    &format!("listens on `{at}`, and so does `{by}`"),
                    "give each an address or a port of its own",
                );
            }
            taken.push((name, listen));
        }
    }
}

/// The section `rpc` gives to every process what these keys keep from a pool.
fn check_borders(t: &mut Table<'_>, services: &[(&'static str, Box<dyn Service>)]) {
    if !services.iter().any(|(name, _)| *name == RPC) {
        return;
    }
    let mut pools = services.iter().flat_map(|(_, service)| service.pools());
    let bounded = pools.find_map(|pool| {
        let common = &pool.settings.common;
        let keys = [
            ("methods", &common.methods),
            ("storages", &common.storages),
            ("pipelines", &common.pipelines),
        ];
        let (key, _) = keys.into_iter().find(|(_, listed)| listed.is_some())?;
        Some(format!("{}.{key}", pool.section))
    });
    if let Some(key) = bounded {
        t.warn(
            RPC,
            &format!(
                "lets every process that reaches its address call all methods, in spite of `{key}`"
            ),
            "remove the section if nothing but workers calls: they need none for their own \
             connection",
        );
    }
}

/// A pool with a user of its own is meant to be kept apart, and by default reaches what all reach.
fn check_users(
    t: &mut Table<'_>,
    services: &[(&'static str, Box<dyn Service>)],
    server: &ServerSettings,
) {
    let has_jobs = services.iter().any(|(name, _)| *name == "jobs");
    // The service is there without a section, too.
    let has_storages = !t.names_in("kv").is_empty();
    for (name, service) in services {
        for pool in service.pools() {
            let common = &pool.settings.common;
            let is_kept_apart = common.user.is_some() && common.user != server.user;
            let may_push = common.methods.as_ref().is_none_or(|methods| {
                methods
                    .iter()
                    .any(|it| it == "jobs" || it.starts_with("jobs.Push"))
            });
            let (key, what) = if !is_kept_apart || !pool.settings.addresses().is_empty() {
                continue;
            } else if has_jobs && common.pipelines.is_none() && may_push {
                ("pipelines", "push into all pipelines")
            } else if has_storages && common.storages.is_none() {
                ("storages", "use all storages of `kv`")
            } else {
                continue;
            };
            let section = &pool.section;
            t.warn(
                name,
                &format!("has a pool with a user of its own whose workers may {what}: `{section}`"),
                &format!("name those that are for them in `{section}.{key}`; `[]` for none"),
            );
        }
    }
}

/// A storage that there is not would be told by each request that uses it, and by nobody before.
fn check_storages(t: &mut Table<'_>, services: &[(&'static str, Box<dyn Service>)]) {
    let all = t.names_in("kv");
    for pool in services.iter().flat_map(|(_, service)| service.pools()) {
        let section: Vec<_> = pool.section.split('.').collect();
        let listed = pool.settings.common.storages.as_ref();
        for name in listed.into_iter().flatten() {
            if !lists(&all, name) {
                let message = format!("names `{name}`, and there is no such storage");
                let hint = with_storage(name, &pool.section, "remove it", &all);
                t.error_below(&[&section[..], &["storages"]].concat(), &message, &hint);
            }
        }
        let ini = match &pool.settings.runner {
            Runner::Worker(worker) => &worker.ini,
            Runner::Classic(classic) => &classic.ini,
            Runner::FastCgi(_) | Runner::Cgi(_) => continue,
        };
        let is_given = |name: &&String| listed.is_none_or(|it| lists(it, name));
        let given: Vec<_> = all.iter().filter(is_given).collect();
        if let (true, Some((name, what))) = (ini.has_sessions(), lacks_sessions(ini, &all, &given))
        {
            let message = format!("has `session.save_handler: pronghorn`, and {what}");
            let hint = with_storage(
                name,
                &pool.section,
                "name another handler, `files` for instance",
                &all,
            );
            t.error_below(&[&section[..], &["ini"]].concat(), &message, &hint);
        }
    }
}

/// Whether a name is among others, whatever its case.
fn lists(names: &[impl AsRef<str>], name: &str) -> bool {
    let mut names = names.iter().map(AsRef::as_ref);
    names.any(|it: &str| it.eq_ignore_ascii_case(name))
}

fn with_storage(name: &str, pool: &str, or: &str, all: &[String]) -> String {
    if lists(all, name) {
        return format!("add `{name}` to `{pool}.storages`, or {or}");
    }
    let known = match all {
        [] => "no storage".to_owned(),
        all => format!("`{}`", all.join("`, `")),
    };
    format!("write `kv: {{{name}: {{driver: memory}}}}`, or {or}; `kv` has {known}")
}

/// The storage that is missed where PHP's sessions are to be in one, and why. A pool with others
/// may name one by `ini_set()`.
fn lacks_sessions<'a>(
    ini: &'a Ini,
    all: &'a [String],
    given: &[&String],
) -> Option<(&'a str, String)> {
    // A path is of files, and names none.
    let named = ini.value("session.save_path");
    match named.filter(|path| !path.is_empty() && !path.contains('/')) {
        Some(name) if !lists(given, name) => {
            let what = format!("the pool has no storage `{name}`, as `session.save_path` names it");
            Some((name, what))
        }
        None if given.is_empty() => {
            let name = all.first().map_or("sessions", String::as_str);
            Some((name, "the pool has no storage".to_owned()))
        }
        _ => None,
    }
}

const RPC: &str = "rpc";

/// Where the server keeps what outlives it.
pub(crate) fn state_dir(t: &mut Table<'_>) -> Option<PathBuf> {
    t.key::<PathBuf>(
        "state_dir",
        "The directory for data that survives a restart, such as jobs. The default is the first of \
         these that applies: `$STATE_DIRECTORY`, which systemd sets; as root, a directory in \
         `/var/lib/pronghorn` named after that of the configuration (`srv+shop` for `/srv/shop`); \
         a directory in `$XDG_STATE_HOME/pronghorn`; `.pronghorn` beside the configuration. \
         `pronghorn status` shows it. As root, the server refuses a directory that other users \
         could replace: all directories on its path must belong to root.",
    )
    .ours()
    .is_path()
    .optional()
}

/// `docs/reference/configuration.md`, from the statements that read the keys.
pub fn reference() -> String {
    format!("{}{}", include_str!("reference.md"), describe::<Settings>())
}

/// A JSON Schema of everything that can be written, for editors.
pub fn schema(services: &Services) -> String {
    pronghorn_config::schema(|t| Settings::read_with(t, services))
}

impl Section for Settings {
    fn read(t: &mut Table<'_>) -> Self {
        Self::read_with(t, &Services::default())
    }
}

impl Section for EndureSettings {
    fn read(t: &mut Table<'_>) -> Self {
        let settings = Self {
            grace_period: t
                .key(
                    "grace_period",
                    "Time limit for a stop. After it, everything ends at once.",
                )
                .live()
                .zero_is_default()
                .default(GRACE_PERIOD),
            upgrade: t
                .key(
                    "upgrade",
                    "How SIGUSR2 switches to a new process: `beside` starts it beside the old one, \
                     `in_place` keeps the process ID.",
                )
                .live()
                .ours()
                .default_as(
                    UpgradeChoice::Auto,
                    "`auto`: `in_place` for the first process of a container and under a \
                     supervisor that can't follow a new process ID, else `beside`",
                ),
            upgrade_timeout: t
                .key(
                    "upgrade_timeout",
                    "Time limit for a new process to become ready. After it, the old process \
                     continues.",
                )
                .live()
                .ours()
                .range(Duration::from_secs(1)..=Duration::from_hours(1))
                .default(UPGRADE_TIMEOUT),
            watchdog: t
                .key::<u64>(
                    "watchdog_sec",
                    "Seconds between reports to systemd. By default, half of the unit's \
                     `WatchdogSec`.",
                )
                .range(0..=MOST_WATCHDOG)
                .optional()
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
        };
        t.no_effect("log_level", "`logs.level` applies to all records");
        t.no_effect("print_graph", "there is no graph of plugins");
        settings
    }
}

/// Sections that later services read beside their own.
fn not_yet(t: &mut Table<'_>) {
    let kv: Vec<String> = t.names_in("kv");
    t.not_yet("boltdb", "message queues and caches");
    const OF_STORAGES: &str = "only a storage of this name with `driver: redis` or `memcached` and \
                               without `config` uses it";
    // A cache may keep its settings in a section of its own name at the top.
    let storages = kv.iter().map(String::as_str);
    for name in ["redis", "memcached", "memory"].into_iter().chain(storages) {
        if !t.is_known(name) {
            t.no_effect(name, OF_STORAGES);
        }
    }
    t.no_effect("websockets", "RoadRunner removed it");
    t.no_effect("broadcast", "RoadRunner removed it");
}
