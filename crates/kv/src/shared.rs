//! `cache.Get` and its companions: what PHP does with a storage that it has mapped, for processes
//! that have not. JSON alone; keys and values are base64.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_cache::{Cache, NewEntry, Outcome as Done, Refused};
use pronghorn_plugin_api::rpc::{Argument, Binary, Failure, Methods, Outcome};
use serde::{Deserialize, Serialize};

use crate::driver::{Driver, DriverError, Room};
use crate::hottest::{Hot, hottest};
use crate::messages::LONGEST_KEY;
use crate::storages::Storages;

/// More are asked for in several calls: all of an answer is in memory at once.
const MOST_KEYS: usize = 65_536;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Request {
    storage: String,
    keys: Vec<Binary>,
    key: Binary,
    old: Value,
    value: Value,
    by: i64,
    /// Milliseconds; 0 for no end.
    ttl: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Value {
    kind: u32,
    bytes: Binary,
}

#[derive(Debug, Default, Serialize)]
struct Response {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    items: Vec<Item>,
    done: bool,
    sum: i64,
    /// Bytes that an entry may have, where this one has more.
    #[serde(skip_serializing_if = "Option::is_none")]
    most: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Item {
    key: Binary,
    kind: u32,
    value: Binary,
}

/// All storages, for `pronghorn cache`.
#[derive(Debug, Serialize)]
struct Listed {
    storages: Vec<About>,
}

#[derive(Debug, Serialize)]
struct About {
    storage: String,
    driver: &'static str,
    /// Why it would not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    wrong: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<InMemory>,
}

#[derive(Debug, Serialize)]
struct InMemory {
    entries: u64,
    /// Bytes that were taken of the machine, and those that may be.
    used: u64,
    size: u64,
    hits: u64,
    misses: u64,
    writes: u64,
    evictions: u64,
    /// Seconds since the oldest entry was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<u64>,
    /// Of so many reads that were sampled, the prefixes that had most.
    sampled: usize,
    hottest: Vec<Hot>,
}

impl Outcome for Listed {}
impl Argument for Request {}
impl Outcome for Response {}

pub(crate) fn add(methods: &Methods, storages: &Storages) {
    let storages = storages.clone();
    let methods = methods.service_by_caller("cache", move |caller| storages.of(caller));
    methods.add("Storages", async |storages: Storages, _: Request| {
        // That is a look at all entries.
        let listed = tokio::task::spawn_blocking(move || list(&storages)).await;
        listed.map_err(|_| failed("the server is stopping"))
    });
    methods.add("Get", async |storages: Storages, request: Request| {
        let driver = find(&storages, &request)?;
        let cache = shared(&driver, &request)?;
        let keys = request.keys()?;
        let found = storages.read(|most| ready(get(cache, keys, most))).await;
        found.map_err(|error| failed(&error.to_string()))
    });
    methods.add("Set", async |storages, request: Request| {
        with(&storages, &request, |cache, request| {
            let kept = cache.set(&request.entry()?).map(|()| Done::Done);
            Ok(done(kept))
        })
    });
    methods.add("Add", async |storages, request: Request| {
        with(&storages, &request, |cache, request| {
            Ok(done(cache.add(&request.entry()?)))
        })
    });
    methods.add("CompareAndSwap", async |storages, request: Request| {
        with(&storages, &request, |cache, request| {
            let (kind, old) = (request.old.kind, &request.old.bytes.0);
            let swapped = cache.compare_and_swap(kind, old, &request.entry()?);
            Ok(done(swapped))
        })
    });
    methods.add("Increment", async |storages, request: Request| {
        with(&storages, &request, increment)
    });
    methods.add("Delete", async |storages, request: Request| {
        with(&storages, &request, |cache, request| {
            let done = cache.delete(request.key()?);
            Ok(Response {
                done,
                ..Response::default()
            })
        })
    });
    methods.add("Clear", async |storages, request: Request| {
        with(&storages, &request, |cache, request: &Request| {
            let removed = cache.clear(&request.key.0);
            Ok(Response {
                done: true,
                sum: i64::try_from(removed).unwrap_or(i64::MAX),
                ..Response::default()
            })
        })
    });
}

fn list(storages: &Storages) -> Listed {
    let about = |(name, driver): (&str, &Arc<dyn Driver>)| About {
        storage: name.to_owned(),
        driver: driver.name(),
        wrong: driver.health().err(),
        memory: driver.shared().map(|cache| {
            let figures = cache.figures();
            let survey = cache.survey();
            let lately = cache.read_lately();
            InMemory {
                entries: survey.entries,
                used: figures.used,
                size: figures.size,
                hits: figures.hits,
                misses: figures.misses,
                writes: figures.writes,
                evictions: figures.evictions,
                oldest: survey.oldest.map(|age| age.as_secs()),
                sampled: lately.len(),
                hottest: hottest(&lately),
            }
        }),
    };
    Listed {
        storages: storages.iter().map(about).collect(),
    }
}

fn with<T>(
    storages: &Storages,
    request: &Request,
    step: impl FnOnce(&Cache, &Request) -> Result<T, Failure>,
) -> Result<T, Failure> {
    step(shared(&find(storages, request)?, request)?, request)
}

fn find(storages: &Storages, request: &Request) -> Result<Arc<dyn Driver>, Failure> {
    let name = &request.storage;
    let driver = storages.find(name);
    driver.ok_or_else(|| failed(&format!("no such storage: {name}")))
}

fn shared<'a>(driver: &'a Arc<dyn Driver>, request: &Request) -> Result<&'a Cache, Failure> {
    driver.shared().ok_or_else(|| {
        let name = &request.storage;
        failed(&format!(
            "the storage {name} is not in memory: `driver: memory` is what can do this"
        ))
    })
}

fn failed(why: &str) -> Failure {
    Failure::new(format!("cache: {why}"))
}

/// As PHP has it that has mapped the storage: what has no room is not kept, and that is the answer.
fn done(outcome: Result<Done, Refused>) -> Response {
    let most = match &outcome {
        Err(Refused::TooLong { most }) => Some(*most),
        _ => None,
    };
    Response {
        done: outcome == Ok(Done::Done),
        most,
        ..Response::default()
    }
}

/// The values may have `most` bytes together.
fn get(cache: &Cache, keys: &[Binary], most: usize) -> Result<Response, DriverError> {
    let room = Room::of(most);
    let mut items = Vec::new();
    for key in keys {
        let Some(entry) = cache.get(&key.0) else {
            continue;
        };
        room.take(entry.value().len())?;
        items.push(Item {
            key: key.clone(),
            kind: entry.kind(),
            value: Binary(entry.into_value().into()),
        });
    }
    Ok(Response {
        items,
        done: true,
        ..Response::default()
    })
}

fn increment(cache: &Cache, request: &Request) -> Result<Response, Failure> {
    let sum = cache.increment(request.key()?, request.by, request.ends());
    let sum = sum.map_err(|_| failed("the storage has no room"))?;
    Ok(Response {
        done: sum.is_some(),
        sum: sum.unwrap_or(0),
        ..Response::default()
    })
}

fn check(key: &[u8]) -> Result<(), Failure> {
    let length = key.len();
    if (1..=LONGEST_KEY).contains(&length) {
        return Ok(());
    }
    let why = format!("the key has {length} bytes; accepted: 1 to {LONGEST_KEY}");
    Err(failed(&why))
}

impl Request {
    fn keys(&self) -> Result<&[Binary], Failure> {
        let count = self.keys.len();
        if count > MOST_KEYS {
            let why = format!("{count} keys; at most {MOST_KEYS} are taken at a time");
            return Err(failed(&why));
        }
        self.keys.iter().try_for_each(|key| check(&key.0))?;
        Ok(&self.keys)
    }

    fn key(&self) -> Result<&[u8], Failure> {
        check(&self.key.0)?;
        Ok(&self.key.0)
    }

    fn ends(&self) -> u64 {
        match self.ttl {
            0 => 0,
            ttl => Cache::end(Duration::from_millis(ttl)),
        }
    }

    fn entry(&self) -> Result<NewEntry<'_>, Failure> {
        Ok(NewEntry {
            key: self.key()?,
            value: &self.value.bytes.0,
            kind: self.value.kind & 0xff,
            ends: self.ends(),
        })
    }
}
