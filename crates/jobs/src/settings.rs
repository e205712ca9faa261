//! The keys of `jobs`, typed.

use std::collections::BTreeMap;
use std::time::Duration;

use pronghorn_brokers::{BrokerPipeline, Brokers, KINDS, Kind};
use pronghorn_config::{Choice, Seconds, Section as _, Size, Table};
use pronghorn_workers::settings::PoolSettings;

use crate::clock::{self, ScheduleSettings, What};
use crate::rules::Rules;

/// As RoadRunner's; lower goes first.
pub(crate) const PRIORITY: i64 = 10;

/// Of one pipeline in memory. A million small jobs fit, and most machines have it to spare.
const MAX_SIZE: Size = Size::megabytes(512);

/// As RoadRunner's: an engine that does not answer by then is away.
const TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_TIMEOUT: Duration = Duration::from_hours(1);

/// Each has a place in memory, and consumers look at all of them.
pub(crate) const MOST_PIPELINES: usize = 1000;

/// Each is a pool of processes.
const MOST_POOLS: usize = 32;

/// Of `jobs.pool`, and of pipelines that name none.
const DEFAULT_POOL: &str = "default";

/// A pipeline's name is part of a key in the store.
const LONGEST_NAME: usize = 255;

/// Queues of jobs.
#[derive(Clone, Debug)]
pub struct JobsSettings {
    /// Those who run them. The first one is that of `jobs.pool`, without `jobs.pools`.
    pub pools: Vec<JobsPool>,
    /// How many jobs run at a time at most; None is as many as there are workers.
    pub num_pollers: Option<usize>,
    /// What a push or another step of a driver may take.
    pub timeout: Duration,
    /// The pipelines that are resumed at the start.
    pub consume: Vec<String>,
    /// Those that PHP may declare pipelines for.
    pub brokers: Brokers,
    pub pipelines: Vec<(String, PipelineSettings)>,
    pub schedules: Vec<(String, ScheduleSettings)>,
}

/// One pool of workers for jobs.
#[derive(Clone, Debug)]
pub struct JobsPool {
    /// As pipelines and jobs name it.
    pub name: String,
    /// As commands and records name it.
    pub full_name: String,
    pub settings: PoolSettings,
}

/// A pipeline before it is opened.
#[derive(Clone, Debug)]
pub struct PipelineSettings {
    pub driver: DriverSettings,
    /// Of jobs that have none of their own.
    pub priority: i64,
    /// Whose workers run the jobs that name no other.
    pub pool: String,
    pub rules: Rules,
}

/// Where a pipeline's jobs are.
#[derive(Clone, Debug)]
pub enum DriverSettings {
    /// In memory, so many bytes.
    Memory {
        max_size: u64,
    },
    /// In the server's store. RoadRunner's name for such a driver is `boltdb`.
    Embedded {
        is_boltdb: bool,
    },
    Broker(BrokerPipeline),
}

/// The names of drivers that are this server's own.
const MEMORY: &str = "memory";
pub(crate) const EMBEDDED: &str = "embedded";
const BOLTDB: &str = "boltdb";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverChoice {
    Memory,
    Embedded,
    Boltdb,
    Broker(&'static Kind),
}

impl Choice for DriverChoice {
    const CHOICES: &'static [(&'static str, Self)] = &{
        const OURS: usize = 3;
        let mut all = [(MEMORY, Self::Memory); OURS + KINDS.len()];
        all[1] = (EMBEDDED, Self::Embedded);
        all[2] = (BOLTDB, Self::Boltdb);
        let mut at = 0;
        while at < KINDS.len() {
            all[OURS + at] = (KINDS[at].name, Self::Broker(&KINDS[at]));
            at += 1;
        }
        all
    };
}

impl DriverSettings {
    /// As the configuration and workers name it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Memory { .. } => MEMORY,
            Self::Embedded { is_boltdb: false } => EMBEDDED,
            Self::Embedded { is_boltdb: true } => BOLTDB,
            Self::Broker(place) => place.driver(),
        }
    }

    /// As PHP declares it.
    fn declared(
        choice: DriverChoice,
        map: &BTreeMap<String, String>,
        name: &str,
        brokers: &Brokers,
    ) -> Result<Self, String> {
        if !choice.is_built() {
            let (driver, hint) = (choice.spelling(), choice.how_to_build());
            return Err(format!(
                "the driver `{driver}` is not in this build: {hint}"
            ));
        }
        Ok(match choice {
            DriverChoice::Memory => Self::Memory {
                max_size: MAX_SIZE.bytes(),
            },
            DriverChoice::Embedded => Self::Embedded { is_boltdb: false },
            DriverChoice::Boltdb => Self::Embedded { is_boltdb: true },
            DriverChoice::Broker(kind) => Self::Broker(brokers.declared(kind, map, name)?),
        })
    }
}

impl DriverChoice {
    /// Whether this build has it. Who builds the server without it has it sooner.
    const fn is_built(self) -> bool {
        match self {
            Self::Memory | Self::Embedded | Self::Boltdb => true,
            Self::Broker(kind) => kind.is_built,
        }
    }

    /// What to do about one that is not built.
    fn how_to_build(self) -> String {
        let driver = self.spelling();
        format!(
            "`make build DRIVERS={driver}` builds a server with it, and packages have all drivers"
        )
    }
}

/// The names of all drivers in this build.
#[cfg(test)]
pub(crate) fn built_drivers() -> impl Iterator<Item = &'static str> {
    let built = DriverChoice::CHOICES.iter().filter(|it| it.1.is_built());
    built.map(|(name, _)| *name)
}

impl PipelineSettings {
    /// Whether it needs the server's store, for all of its jobs or for delayed ones.
    pub(crate) fn is_stored(&self) -> bool {
        match &self.driver {
            DriverSettings::Memory { .. } => false,
            DriverSettings::Embedded { .. } => true,
            DriverSettings::Broker(place) => place.needs_store(),
        }
    }

    /// What PHP declares at run time: all values are texts. Its name and the pipeline, or what is
    /// wrong.
    pub(crate) fn declared<'m>(
        map: &'m BTreeMap<String, String>,
        brokers: &Brokers,
    ) -> Result<(&'m str, Self), String> {
        let name = map.get("name").map(String::as_str).unwrap_or_default();
        if name.is_empty() {
            return Err("the pipeline has no name".to_owned());
        }
        if !is_name(name) {
            return Err(WRONG_NAME.to_owned());
        }
        let Some(driver) = map.get("driver").filter(|driver| !driver.is_empty()) else {
            return Err(format!(
                "no associated driver with the pipeline, pipeline name: {name}"
            ));
        };
        let Some(choice) = DriverChoice::spelled(driver) else {
            let all: Vec<_> = DriverChoice::CHOICES
                .iter()
                .map(|(word, _)| *word)
                .collect();
            let all = all.join("`, `");
            return Err(format!(
                "no such driver, pipeline name: {name}; there are `{all}`"
            ));
        };
        let driver = DriverSettings::declared(choice, map, name, brokers)
            .map_err(|wrong| format!("{wrong}, pipeline name: {name}"))?;
        let priority = match map.get("priority").map(|text| text.trim()) {
            None | Some("" | "0") => PRIORITY,
            Some(text) => text.parse().map_err(|_| {
                format!("the priority is `{text}` and not a number, pipeline name: {name}")
            })?,
        };
        let pool = map.get("pool").map_or(DEFAULT_POOL, String::as_str);
        Ok((
            name,
            Self {
                driver,
                priority,
                pool: pool.to_owned(),
                rules: Rules::default(),
            },
        ))
    }
}

const WRONG_NAME: &str = "a pipeline's name has 1 to 255 bytes, and no control characters";

fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && !name.contains(char::is_control)
}

impl JobsSettings {
    /// `t` is the section `jobs`.
    pub(crate) fn read(t: &mut Table<'_>, brokers: Brokers) -> Self {
        let num_pollers = t
            .key(
                "num_pollers",
                "How many jobs may run at a time. By default, the number of workers.",
            )
            .zero_is_default()
            .range(1..=65_536)
            .optional();
        let timeout = t
            .key(
                "timeout",
                "Time limit for a push or another operation of a driver.",
            )
            .zero_is_default()
            .range(Seconds(Duration::from_secs(1))..=Seconds(LONGEST_TIMEOUT))
            .default(Seconds(TIMEOUT));
        t.no_effect(
            "pipeline_size",
            "a job is taken out of its pipeline when a worker is free for it, and not before",
        );
        t.no_effect("options", "pipelines are started and stopped together");
        let consume: Vec<String> = t
            .key(
                "consume",
                "The pipelines whose jobs run from the start. Other pipelines wait for \
                 `jobs.Resume`.",
            )
            .default(Vec::new());
        let pipelines = t.sections_with(
            "pipelines",
            "Pipelines by name. A pipeline stores jobs until they run.",
            "One pipeline.",
            |t| read_pipeline(t, &brokers),
        );
        check_names(t, &pipelines, &consume);
        let schedules = clock::read(t);
        check_schedules(t, &schedules, &pipelines);
        let mut pools = read_pools(t);
        let has_pool = t.is_written("pool") || t.is_written("pools");
        let mut whats = schedules.iter().map(|(_, schedule)| &schedule.what);
        let are_commands = whats.all(|what| matches!(what, What::Command { .. }));
        if !schedules.is_empty() && are_commands && pipelines.is_empty() && !has_pool {
            // Schedules of commands take no workers. `server.command` may be one for HTTP alone.
            pools.clear();
        }
        check_pools(t, &pipelines, &pools);
        let names: Vec<&str> = pipelines.iter().map(|(name, _)| &**name).collect();
        warn_of_unconsumed(t, &names, &consume);
        Self {
            pools,
            num_pollers,
            timeout: timeout.0,
            consume,
            brokers,
            pipelines: pipelines
                .into_iter()
                .filter_map(|(name, pipeline)| Some((name, pipeline?)))
                .collect(),
            schedules,
        }
    }
}

/// Pipelines by their names; None for one that is wrong, which was told.
type Declared = [(String, Option<PipelineSettings>)];

fn check_names(t: &mut Table<'_>, pipelines: &Declared, consume: &[String]) {
    for (name, _) in pipelines {
        if !is_name(name) && name != "<name>" {
            t.error_below(&["pipelines", name], WRONG_NAME, "give it a shorter name");
        }
    }
    if pipelines.len() > MOST_PIPELINES {
        let message = format!(
            "has {} pipelines; accepted: at most {MOST_PIPELINES}",
            pipelines.len()
        );
        t.error("pipelines", &message, "remove some of them");
    }
    for name in consume {
        if !pipelines.iter().any(|(known, _)| known == name) {
            let message = format!("names `{name}`, and there is no such pipeline");
            let hint = "remove it, or add it to `jobs.pipelines`";
            t.unknown("consume", &message, hint);
        }
    }
}

fn check_schedules(
    t: &mut Table<'_>,
    schedules: &[(String, ScheduleSettings)],
    pipelines: &Declared,
) {
    for (name, schedule) in schedules {
        let What::Job { pipeline, .. } = &schedule.what else {
            continue;
        };
        if !pipelines.iter().any(|(known, _)| known == pipeline) {
            let message = format!("is `{pipeline}`, and there is no such pipeline");
            let all: Vec<_> = pipelines.iter().map(|(name, _)| &**name).collect();
            let hint = match &all[..] {
                [] => "add it to `jobs.pipelines`".to_owned(),
                all => format!(
                    "add it to `jobs.pipelines`, or write `pipeline:` with one of `{}`",
                    all.join("`, `")
                ),
            };
            t.error_below(&["schedules", name, "pipeline"], &message, &hint);
        }
    }
}

fn check_pools(t: &mut Table<'_>, pipelines: &Declared, pools: &[JobsPool]) {
    for (name, pipeline) in pipelines {
        let Some(PipelineSettings { pool, .. }) = pipeline else {
            continue;
        };
        if name != "<name>" && !pools.iter().any(|known| known.name == *pool) {
            let all: Vec<_> = pools.iter().map(|pool| &*pool.name).collect();
            let message = format!("is `{pool}`, and there is no such pool");
            let hint = format!("`pool:` takes one of `{}`", all.join("`, `"));
            t.error_below(&["pipelines", name, "pool"], &message, &hint);
        }
    }
}

/// Jobs of such a pipeline wait, and nobody sees why. Who writes `consume: []`, or has no workers
/// for jobs, means it.
fn warn_of_unconsumed(t: &mut Table<'_>, pipelines: &[&str], consume: &[String]) {
    let is_meant = if t.is_written("consume") {
        consume.is_empty()
    } else {
        !t.is_written("pool") && !t.is_written("pools")
    };
    if is_meant {
        return;
    }
    for name in pipelines {
        if !consume.iter().any(|it| it.eq_ignore_ascii_case(name)) {
            let message = "is not consumed: `jobs.consume` lacks it, so its jobs wait until PHP or \
                           `pronghorn jobs resume` starts it";
            let hint = format!(
                "add `{name}` to `jobs.consume`; or write `consume: []`, if all pipelines are \
                 started so"
            );
            t.warn_below(&["pipelines", name], message, &hint);
        }
    }
}

fn read_pools(t: &mut Table<'_>) -> Vec<JobsPool> {
    let named = t.sections_like(
        "pools",
        "Several pools for jobs, by name, instead of `jobs.pool`. A pipeline names its pool.",
        "One pool. It accepts every key of `jobs.pool`, with the same defaults.",
        MOST_POOLS,
        |t| {
            let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            if !t.name().bytes().all(usable) {
                let hint = "letters, digits, `-` and `_` make a name";
                t.error("", "has a name that can't be used", hint);
            }
            PoolSettings::read(t)
        },
    );
    if t.is_written("pool") && !named.is_empty() {
        let hint = "give it a name in `jobs.pools`, or remove those";
        t.error("pool", "stands beside `jobs.pools`", hint);
    }
    let only: PoolSettings = t.section("pool", "The workers that run jobs.");
    if named.is_empty() {
        return vec![JobsPool {
            name: DEFAULT_POOL.to_owned(),
            full_name: "jobs".to_owned(),
            settings: only,
        }];
    }
    let pools = named.into_iter().map(|(name, settings)| JobsPool {
        full_name: format!("jobs-{name}"),
        name,
        settings,
    });
    pools.collect()
}

/// None, with an error, for a driver that is not in this build.
fn read_pipeline(t: &mut Table<'_>, brokers: &Brokers) -> Option<PipelineSettings> {
    let name = t.name().to_owned();
    let choice = t
        .key(
            "driver",
            "Where jobs are stored. `memory`: in memory, until the server stops. `embedded`: in \
             the server's own store. All others: in a broker. RoadRunner's `boltdb` means \
             `embedded`.",
        )
        .default(DriverChoice::Embedded);
    let pool = t
        .key(
            "pool",
            "The pool of `jobs.pools` whose workers run these jobs. A job can name another pool in \
             its header `pool`.",
        )
        .default(DEFAULT_POOL.to_owned());
    let rules = Rules::read(t);
    if !choice.is_built() {
        let message = format!("is `{}`, which is not in this build", choice.spelling());
        t.error("driver", &message, &choice.how_to_build());
    }
    if choice == DriverChoice::Boltdb {
        let hint = "let RoadRunner finish the jobs that are in its file first";
        t.warn(
            "driver",
            "is taken for `embedded`, which does not read files of BoltDB",
            hint,
        );
    }
    // RoadRunner takes it in both places.
    let priority = t
        .key::<u32>(
            "priority",
            "The priority of jobs that have none. A lower number runs first.",
        )
        .zero_is_default()
        .optional();
    let (inside, driver) = t.section_with("config", "Settings of the driver.", |t| {
        let priority = t
            .key::<u32>(
                "priority",
                "The priority of jobs that have none. A lower number runs first.",
            )
            .zero_is_default()
            .optional();
        let message = format!("is of pipelines with `driver: {MEMORY}`");
        let max_size = t.keys_where(choice == DriverChoice::Memory, &message, "remove it", |t| {
            t.key(
                "max_size",
                "How much memory the jobs may use. A push that would exceed it is refused.",
            )
            .ours()
            .default(MAX_SIZE)
        });
        t.no_effect(
            "prefetch",
            "a job is taken when a worker is free for it, and not before",
        );
        let kind = match choice {
            DriverChoice::Broker(kind) => Some(kind),
            DriverChoice::Memory | DriverChoice::Embedded | DriverChoice::Boltdb => None,
        };
        let place = brokers.read_pipeline(t, &name, kind);
        t.no_effect("tube_priority", "each job has its own priority");
        t.no_effect("reserve_timeout", "the server asks again on its own");
        let driver = match choice {
            DriverChoice::Memory => {
                let max_size = max_size.unwrap_or(MAX_SIZE).bytes();
                Some(DriverSettings::Memory { max_size })
            }
            DriverChoice::Embedded => Some(DriverSettings::Embedded { is_boltdb: false }),
            DriverChoice::Boltdb => Some(DriverSettings::Embedded { is_boltdb: true }),
            DriverChoice::Broker(_) => place.map(DriverSettings::Broker),
        };
        t.no_effect("file", "jobs are in the server's own store");
        t.no_effect("permissions", "only its owner may access the store");
        (priority, driver)
    });
    Some(PipelineSettings {
        driver: driver.filter(|_| choice.is_built())?,
        priority: inside.or(priority).map_or(PRIORITY, i64::from),
        pool,
        rules,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use pronghorn_config::{Input, Severity, load};

    use super::*;

    /// Those of a configuration that says nothing.
    pub(crate) fn brokers() -> Brokers {
        brokers_of("")
    }

    /// Those of a configuration.
    pub(crate) fn brokers_of(text: &str) -> Brokers {
        let loaded = load(&Input::from_text("p.yaml", text));
        let resolved = loaded.resolve_with(Severity::Error, Brokers::read);
        resolved.settings().clone()
    }

    fn declared(keys: &[(&str, &str)]) -> Result<(String, PipelineSettings), String> {
        let map = keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let map = map.collect();
        PipelineSettings::declared(&map, &brokers())
            .map(|(name, pipeline)| (name.to_owned(), pipeline))
    }

    #[test]
    fn schedules_of_commands_alone_take_no_workers() {
        let commands = "schedules: {a: {every: 1h, command: 'true'}}";
        for (keys, pools) in [
            (commands.to_owned(), 0),
            (format!("{commands}, pool: {{num_workers: 1}}"), 1),
            (
                format!("{commands}, pipelines: {{p: {{driver: memory}}}}"),
                1,
            ),
            ("pipelines: {p: {driver: memory}}".to_owned(), 1),
        ] {
            let text = format!("server: {{command: php http.php}}\njobs: {{{keys}}}\n");
            let loaded = load(&Input::from_text("p.yaml", text.as_str()));
            let resolved = loaded.resolve_with(Severity::Error, |t| {
                let brokers = Brokers::read(t);
                t.optional_section_with("jobs", "Jobs.", |t| JobsSettings::read(t, brokers))
            });
            let settings = resolved
                .settings()
                .as_ref()
                .expect("the section is written");
            assert_eq!(settings.pools.len(), pools, "{text}");
        }
    }

    /// Tests are built without Kafka's client.
    #[test]
    fn a_driver_that_is_not_in_this_build_is_told() {
        let Some(missing) = KINDS.iter().find(|kind| !kind.is_built) else {
            return;
        };
        let name = missing.name;
        let refused = declared(&[("name", "n"), ("driver", name)]).unwrap_err();
        assert_eq!(
            refused,
            format!(
                "the driver `{name}` is not in this build: `make build DRIVERS={name}` builds a \
                 server with it, and packages have all drivers, pipeline name: n"
            )
        );
    }

    #[test]
    fn a_declared_pipeline_is_read_from_texts() {
        let (name, pipeline) = declared(&[
            ("name", "mail"),
            ("driver", "memory"),
            ("priority", "3"),
            ("prefetch", "100"),
            ("consume_all", "true"),
        ])
        .unwrap();
        assert_eq!((&*name, pipeline.priority), ("mail", 3));
        assert_eq!(pipeline.driver.name(), "memory");
        let (_, pipeline) = declared(&[("name", "n"), ("driver", "boltdb")]).unwrap();
        assert_eq!((pipeline.driver.name(), pipeline.priority), ("boltdb", 10));
    }

    #[test]
    fn what_is_wrong_with_a_declared_pipeline_is_said() {
        let long = "n".repeat(256);
        for (keys, said) in [
            (&[("driver", "memory")][..], "the pipeline has no name"),
            (&[("name", &*long), ("driver", "memory")], WRONG_NAME),
            (&[("name", "a\0b"), ("driver", "memory")], WRONG_NAME),
            (
                &[("name", "n")],
                "no associated driver with the pipeline, pipeline name: n",
            ),
            (
                &[("name", "n"), ("driver", "nonsense")],
                "no such driver, pipeline name: n; there are `memory`, `embedded`, `boltdb`, `redis`, `amqp`, `beanstalk`, `google_pub_sub`, `kafka`, `nats`, `nsq`, `sqs`",
            ),
            (
                &[("name", "n"), ("driver", "memory"), ("priority", "high")],
                "the priority is `high` and not a number, pipeline name: n",
            ),
        ] {
            assert_eq!(declared(keys).unwrap_err(), said);
        }
    }
}
