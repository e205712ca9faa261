//! The keys of `kv`, typed.

use pronghorn_config::{Choice, Size, Table};

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

/// A storage's name is part of each key in the store.
const LONGEST_NAME: usize = 255;

/// Storages, by name.
#[derive(Clone, Debug, Default)]
pub struct KvSettings {
    pub storages: Vec<(String, DriverSettings)>,
}

/// Where a storage's entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverSettings {
    /// In memory, so many bytes.
    Memory { max_size: u64 },
    /// In the server's store.
    Embedded,
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
        let storages = t.sections_with(
            "kv",
            "Storages of keys and values, by name. Without this section there are none.",
            "A storage.",
            read_storage,
        );
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
        let in_memory = |(_, it): &&(_, Option<DriverSettings>)| {
            matches!(it, Some(DriverSettings::Memory { .. }))
        };
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
        let there = storages.into_iter();
        Self {
            storages: there.filter_map(|(name, it)| Some((name, it?))).collect(),
        }
    }
}

/// None, with a warning, for a driver that is not there yet.
fn read_storage(t: &mut Table<'_>) -> Option<DriverSettings> {
    let choice = t
        .key(
            "driver",
            "Where the entries are: `memory` until the server stops, `embedded` in its own store. \
             RoadRunner's `boltdb` is taken for `embedded`.",
        )
        .default(DriverChoice::Memory);
    match choice {
        DriverChoice::Memory | DriverChoice::Embedded => {}
        DriverChoice::Boltdb => t.warn(
            "driver",
            "is taken for `embedded`, which does not read files of BoltDB",
            "the cache begins empty; write `driver: embedded`",
        ),
        DriverChoice::Redis | DriverChoice::Memcached => {
            t.not_yet("config", "caches in Redis and Memcached");
            let message = "is not there yet: the storage is not there either";
            t.warn("driver", message, "for now use `memory` or `embedded`");
            return None;
        }
    }
    let max_size = t.section_with("config", "Settings of the driver.", |t| {
        let message = "is of storages with `driver: memory`";
        let in_memory = choice == DriverChoice::Memory;
        let max_size = t.keys_where(in_memory, message, "remove it", |t| {
            t.key(
                "max_size",
                "How much memory the entries may take; what was not read for the longest time goes first. It is \
                 taken as it is needed. An entry may have a 128th of it, at least 64 KB and at most 4 MB.",
            )
                .ours()
                .range(LEAST_SIZE..=MOST_SIZE)
                .default(MAX_SIZE)
        });
        t.no_effect(
            "interval",
            "an entry is over in time, whenever it is removed",
        );
        t.no_effect("file", "entries are in the server's own store");
        t.no_effect("bucket", "each storage has its own part of the store");
        t.no_effect("permissions", "the store is for its owner alone");
        max_size.unwrap_or(MAX_SIZE).bytes()
    });
    Some(match choice {
        DriverChoice::Memory => DriverSettings::Memory { max_size },
        _ => DriverSettings::Embedded,
    })
}
