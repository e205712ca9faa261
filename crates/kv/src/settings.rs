//! The keys of `kv`, typed.

use std::time::Duration;

use pronghorn_config::{Choice, Size, Table};
use pronghorn_redis::RedisSettings;

use crate::memcached::MemcachedAddress;

/// Of one storage in memory. Most applications keep less, and most machines have it to spare.
const MAX_SIZE: Size = Size::megabytes(128);

/// Workers take blocks of it for themselves.
const LEAST_SIZE: Size = Size::megabytes(1);
/// What places in it can tell.
const MOST_SIZE: Size = Size::megabytes(30 << 10);

/// Each has a place in memory.
const MOST_STORAGES: usize = 1000;

/// Each worker has a descriptor for each.
const MOST_IN_MEMORY: usize = 16;

const MEMCACHED: &str = "127.0.0.1:11211";
const MOST_SERVERS: usize = 256;
/// memcached answers in less than a millisecond. A cache that takes longer than this is worse than
/// none.
const TIMEOUT: Duration = Duration::from_secs(1);
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);

/// A storage's name is part of each key in the store.
const LONGEST_NAME: usize = 255;

/// Storages, by name.
#[derive(Clone, Debug, Default)]
pub struct KvSettings {
    pub storages: Vec<(String, DriverSettings)>,
}

/// Where a storage's entries are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverSettings {
    /// In memory, so many bytes.
    Memory {
        max_size: u64,
        /// Whether its entries outlive a stop of the server.
        persist: bool,
    },
    /// In the server's store.
    Embedded,
    Redis(Box<RedisStorage>),
    Memcached {
        addresses: Vec<MemcachedAddress>,
        timeout: Duration,
    },
}

impl DriverSettings {
    /// Whether a stop writes its entries into a file.
    pub(crate) fn persists(&self) -> bool {
        matches!(self, Self::Memory { persist: true, .. })
    }
}

/// Which Redis, and what a storage's keys begin with there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisStorage {
    pub server: RedisSettings,
    pub prefix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverChoice {
    Memory,
    Embedded,
    Boltdb,
    Redis,
    Memcached,
}

impl Choice for DriverChoice {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("memory", Self::Memory),
        ("embedded", Self::Embedded),
        ("boltdb", Self::Boltdb),
        ("redis", Self::Redis),
        ("memcached", Self::Memcached),
    ];
}

const WRONG_NAME: &str = "a storage's name has 1 to 255 bytes, and no control characters";

fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len()) && !name.contains(char::is_control)
}

impl KvSettings {
    /// Reads the section, a map of storages by name.
    pub fn read(t: &mut Table<'_>) -> Self {
        let written = t.sections_with(
            "kv",
            "Key-value storages, by name. Without this section, there are none.",
            "One storage.",
            read_storage,
        );
        let storages = written.into_iter().map(|(name, storage)| {
            let elsewhere = elsewhere(t, &name, &storage);
            (name, elsewhere.unwrap_or(storage.settings))
        });
        let storages: Vec<_> = storages.collect();
        for (name, _) in &storages {
            if !is_name(name) && name != "<name>" {
                t.error("kv", WRONG_NAME, "give it a shorter name");
            }
        }
        if storages.len() > MOST_STORAGES {
            let written = storages.len();
            let message = format!("has {written} storages; accepted: at most {MOST_STORAGES}");
            t.error("kv", &message, "remove some of them");
        }
        let in_memory =
            |(_, it): &&(_, DriverSettings)| matches!(it, DriverSettings::Memory { .. });
        let in_memory = storages.iter().filter(in_memory).count();
        if in_memory > MOST_IN_MEMORY {
            let message = format!(
                "has {in_memory} storages with `driver: memory`; accepted: at most {MOST_IN_MEMORY}"
            );
            t.error(
                "kv",
                &message,
                "use one for several purposes, with prefixes",
            );
        }
        Self { storages }
    }
}

struct Storage {
    choice: DriverChoice,
    has_config: bool,
    settings: DriverSettings,
}

/// As in RoadRunner, a storage without a `config` has it in a section of its own name at the top.
fn elsewhere(t: &mut Table<'_>, name: &str, storage: &Storage) -> Option<DriverSettings> {
    let is_server = matches!(
        storage.choice,
        DriverChoice::Redis | DriverChoice::Memcached
    );
    let written = t.names_in(name);
    let has_address = written.iter().any(|key| key == "addr" || key == "addrs");
    if storage.has_config || !is_server || !has_address || t.is_known(name) {
        return None;
    }
    let sentence = "Settings of the storage with this name.";
    Some(t.section_with(name, sentence, |t| read_config(t, storage.choice)))
}

fn read_storage(t: &mut Table<'_>) -> Storage {
    let choice = t
        .key(
            "driver",
            "Where entries are stored. `memory`: in memory, until the server stops. `embedded`: in \
             the server's own store. `redis` and `memcached`: in such a server. RoadRunner's \
             `boltdb` means `embedded`.",
        )
        .default(DriverChoice::Memory);
    if choice == DriverChoice::Boltdb {
        t.warn(
            "driver",
            "is taken for `embedded`, which does not read files of BoltDB",
            "the cache begins empty; write `driver: embedded`",
        );
    }
    let has_config = t.is_written("config");
    let settings = t.section_with("config", "Settings of the driver.", |t| {
        read_config(t, choice)
    });
    Storage {
        choice,
        has_config,
        settings,
    }
}

fn read_config(t: &mut Table<'_>, choice: DriverChoice) -> DriverSettings {
    let of = |wanted| choice == wanted;
    let message = "is of storages with `driver: memory`";
    let memory = t.keys_where(of(DriverChoice::Memory), message, "remove it", read_memory);
    let message = "is of storages with `driver: redis`";
    let redis = t.keys_where(of(DriverChoice::Redis), message, "remove it", |t| {
        Box::new(RedisStorage {
            server: RedisSettings::read(t),
            prefix: t
                .key(
                    "prefix",
                    "A text that is put before all keys. With it, `Clear` removes only keys with \
                     this prefix; without it, all keys of the database.",
                )
                .ours()
                .optional()
                .unwrap_or_default(),
        })
    });
    let message = "is of storages with `driver: memcached`";
    let memcached = t.keys_where(
        of(DriverChoice::Memcached),
        message,
        "remove it",
        read_memcached,
    );
    t.no_effect("interval", "entries expire on time without it");
    t.no_effect("file", "entries are in the server's own store");
    t.no_effect("bucket", "each storage has its own part of the store");
    t.no_effect("permissions", "only its owner may access the store");
    match (choice, redis, memcached) {
        (DriverChoice::Redis, Some(redis), _) => DriverSettings::Redis(redis),
        (DriverChoice::Memcached, _, Some(memcached)) => memcached,
        (DriverChoice::Memory, ..) => memory.unwrap_or(DriverSettings::Memory {
            max_size: MAX_SIZE.bytes(),
            persist: false,
        }),
        _ => DriverSettings::Embedded,
    }
}

fn read_memory(t: &mut Table<'_>) -> DriverSettings {
    let max_size = t
        .key(
            "max_size",
            "How much memory the entries may use. Above it, the entries that were not read for the \
             longest time are removed. The memory is allocated as needed. One entry may have up to \
             a 128th of it; this limit is never below 64 KB or above 4 MB.",
        )
        .ours()
        .range(LEAST_SIZE..=MOST_SIZE)
        .default(MAX_SIZE);
    let persist = t
        .key(
            "persist",
            "Whether a stop writes the entries to a file in the state directory, which the next \
             start reads. A server that is killed loses its entries.",
        )
        .ours()
        .default(false);
    DriverSettings::Memory {
        max_size: max_size.bytes(),
        persist,
    }
}

fn read_memcached(t: &mut Table<'_>) -> DriverSettings {
    let written: Vec<String> = t
        .key(
            "addr",
            "The servers. A key is stored on one of them, the same one that RoadRunner would \
             choose.",
        )
        .default(vec![MEMCACHED.to_owned()]);
    let addresses: Vec<_> = written
        .iter()
        .filter_map(|text| {
            let address = MemcachedAddress::parse(text);
            if address.is_none() {
                let message =
                    format!("is `{text}`; accepted: a host with its port, or the path of a socket");
                t.error("addr", &message, &format!("for example `{MEMCACHED}`"));
            }
            address
        })
        .collect();
    if written.is_empty() || written.len() > MOST_SERVERS {
        let message = format!(
            "has {} servers; accepted: 1 to {MOST_SERVERS}",
            written.len()
        );
        t.error("addr", &message, "write another number of them");
    }
    let timeout = t
        .key("timeout", "Time limit for a command and its answer.")
        .ours()
        .zero_is_default()
        .range(TIMEOUTS)
        .default(TIMEOUT);
    DriverSettings::Memcached { addresses, timeout }
}
