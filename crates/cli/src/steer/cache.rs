//! `cache`: storages of keys and values.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::serialised::readable;
use super::text::{bytes, columns, line, time};
use super::{Task, over_rpc};
use crate::arguments::{Cache, CacheCommand};
use crate::exit::{Exit, say, say_json, write_out};

#[derive(Serialize, Deserialize)]
struct List {
    storages: Vec<Storage>,
}

#[derive(Serialize, Deserialize)]
struct Storage {
    storage: String,
    driver: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wrong: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory: Option<InMemory>,
}

#[derive(Serialize, Deserialize)]
struct InMemory {
    entries: u64,
    used: u64,
    size: u64,
    hits: u64,
    misses: u64,
    writes: u64,
    evictions: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    oldest: Option<u64>,
    #[serde(default)]
    sampled: u64,
    #[serde(default)]
    hottest: Vec<Hot>,
}

#[derive(Serialize, Deserialize)]
struct Hot {
    prefix: String,
    percent: u64,
}

#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    value: String,
}

pub(super) async fn run(task: &Task<'_>, cache: &Cache) -> Result<Exit, String> {
    let mut methods = task.methods().await?;
    let item = |key: &String| json!({"key": key});
    let (method, argument) = match &cache.command {
        None => {
            let list: List = over_rpc::ask(&mut methods, "cache.Storages", &json!({}))
                .await
                .map_err(without_section)?;
            if cache.json {
                return say_json(&list);
            }
            say(&table(&list));
            say(&prefixes(&list));
            return Ok(Exit::Done);
        }
        Some(CacheCommand::Get { storage, key, raw }) => {
            let argument = json!({"storage": storage, "items": [item(key)]});
            let found: Found = over_rpc::ask(&mut methods, "kv.MGet", &argument)
                .await
                .map_err(without_section)?;
            return print(storage, key, found.items.first(), *raw);
        }
        Some(CacheCommand::Delete { storage, keys }) => {
            let items: Vec<Value> = keys.iter().map(item).collect();
            ("kv.Delete", json!({"storage": storage, "items": items}))
        }
        Some(CacheCommand::Clear {
            storage,
            prefix: None,
        }) => ("kv.Clear", json!({"storage": storage})),
        Some(CacheCommand::Clear {
            storage,
            prefix: Some(prefix),
        }) => {
            let argument = json!({"storage": storage, "key": STANDARD.encode(prefix)});
            ("cache.Clear", argument)
        }
    };
    let _done: Value = over_rpc::ask(&mut methods, method, &argument)
        .await
        .map_err(without_section)?;
    Ok(Exit::Done)
}

fn without_section(error: String) -> String {
    if error.contains("can't find method") {
        return "this server has no storages: its configuration has no section `kv`".to_owned();
    }
    error
}

/// A value that PHP has serialised as text, unless it is to be `raw`. Others as they are kept, and
/// nothing behind them; on a terminal, as that can show them.
fn print(storage: &str, key: &str, item: Option<&Item>, raw: bool) -> Result<Exit, String> {
    let Some(item) = item else {
        return Err(format!("the storage `{storage}` has no key `{key}`"));
    };
    let value = STANDARD.decode(&item.value);
    let value = value.map_err(|error| format!("kv.MGet answered oddly: {error}"))?;
    if !raw && let Some(text) = readable(&value) {
        say(&format!("{text}\n"));
        return Ok(Exit::Done);
    }
    if !raw && stdout().is_terminal() {
        say(&String::from_utf8_lossy(&value));
        return Ok(Exit::Done);
    }
    write_out(&value).map_err(|error| format!("the value can't be written: {error}"))?;
    Ok(Exit::Done)
}

fn table(list: &List) -> String {
    let cells: Vec<_> = list.storages.iter().map(Storage::cells).collect();
    columns(
        [
            "STORAGE",
            "DRIVER",
            "ENTRIES",
            "MEMORY",
            "HITS",
            "MISSES",
            "WRITES",
            "EVICTIONS",
            "OLDEST",
            "STATE",
        ],
        &cells,
    )
}

/// Below the table, where reads were sampled: a prefix a line, the hottest of each storage first.
fn prefixes(list: &List) -> String {
    let mut rows = Vec::new();
    for storage in &list.storages {
        for hot in storage.memory.iter().flat_map(|memory| &memory.hottest) {
            let prefix = match &*hot.prefix {
                "" => "(others)".to_owned(),
                prefix => line(prefix),
            };
            rows.push([line(&storage.storage), prefix, format!("{} %", hot.percent)]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "\n{}",
        columns(["STORAGE", "HOTTEST PREFIX", "READS"], &rows)
    )
}

impl Storage {
    fn cells(&self) -> [String; 10] {
        let of = |read: &dyn Fn(&InMemory) -> String| {
            let shown = self.memory.as_ref().map(read);
            shown.unwrap_or_else(|| "-".to_owned())
        };
        let state = self
            .wrong
            .as_deref()
            .map_or_else(|| "ready".to_owned(), line);
        [
            line(&self.storage),
            line(&self.driver),
            of(&|it| it.entries.to_string()),
            of(&|it| format!("{} of {}", bytes(it.used), bytes(it.size))),
            of(&|it| it.hits.to_string()),
            of(&|it| it.misses.to_string()),
            of(&|it| it.writes.to_string()),
            of(&|it| it.evictions.to_string()),
            of(&|it| {
                let age = it.oldest.map(|age| time(Duration::from_secs(age)));
                age.unwrap_or_else(|| "-".to_owned())
            }),
            state,
        ]
    }
}
