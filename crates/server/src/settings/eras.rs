//! What a file means to RoadRunner 2025.1 and what to RoadRunner 3, where that is not the same: for
//! `check`, and for the page of those who come from there.

use std::fmt::Write;

use pronghorn_config::{Entry, Era, Loaded, Map, Node, Value};

/// One thing that the two do in different ways.
struct Row {
    /// In Markdown, as the other texts.
    topic: &'static str,
    in_2025: &'static str,
    in_3: &'static str,
    here: &'static str,
    /// The keys of this tree that it concerns, and what to write for that RoadRunner in place of
    /// them.
    changes: fn(&Map, Era) -> Vec<Change>,
}

/// What to do with a key, so that the other RoadRunner does what is meant.
struct Change {
    path: String,
    place: String,
    /// An imperative.
    write: String,
}

const FOLLOWS: &str = "as `compat` says";

const TABLE: &[Row] = &[
    Row {
        topic: "the order of `http.middleware`",
        in_2025: "the last one listed sees a request first",
        in_3: "the first one listed sees a request first",
        here: FOLLOWS,
        changes: |root, _| {
            at(root, &["http.middleware"], |node, _| {
                let mut names = node.words();
                names.reverse();
                (names.len() > 1).then(|| format!("write `middleware: [{}]`", names.join(", ")))
            })
        },
    },
    Row {
        topic: "the type of a file that PHP names by `X-Sendfile`",
        in_2025: "PHP's, else by the file's name",
        in_3: "`application/octet-stream`",
        here: FOLLOWS,
        changes: |root, era| {
            at(root, &["http.middleware"], |node, _| {
                let is_listed = node
                    .words()
                    .iter()
                    .any(|w| w.eq_ignore_ascii_case("sendfile"));
                let write = match era {
                    Era::V2025 => "nothing to write: files that PHP sends get a type",
                    Era::V3 => "nothing to write: files that PHP sends have no type of their own",
                };
                is_listed.then(|| write.to_owned())
            })
        },
    },
    Row {
        topic: "log records in JSON",
        in_2025: "`ts` in nanoseconds; levels as `info`",
        in_3: "`time` as in RFC 3339; levels as `INFO`",
        here: "as `compat` says; for Laravel Octane as 2025.1",
        changes: |root, era| {
            let keys = [
                "logs.mode",
                "logs.encoding",
                "logs.channels.*.mode",
                "logs.channels.*.encoding",
            ];
            at(root, &keys, |node, _| {
                let is_json = node.text().is_some_and(|text| {
                    text.eq_ignore_ascii_case("production") || text.eq_ignore_ascii_case("json")
                });
                let read = match era {
                    Era::V2025 => {
                        "nothing to write: programs find `ts` for `time`, and `info` for `INFO`"
                    }
                    Era::V3 => {
                        "nothing to write: programs find `time` for `ts`, and `INFO` for `info`"
                    }
                };
                is_json.then(|| read.to_owned())
            })
        },
    },
    Row {
        topic: "`logs.file_logger_options`",
        in_2025: "a file that is replaced when it grows",
        in_3: "no such key",
        here: "as 2025.1",
        changes: |root, era| {
            let keys = [
                "logs.file_logger_options",
                "logs.channels.*.file_logger_options",
            ];
            match era {
                Era::V2025 => Vec::new(),
                Era::V3 => at(root, &keys, |_, _| {
                    Some("name the file in `output`, and let another program replace it".to_owned())
                }),
            }
        },
    },
    Row {
        topic: "`logs.format`, `logs.time_format`",
        in_2025: "no such keys",
        in_3: "what a record looks like",
        here: "in both, with times in UTC",
        changes: |root, era| {
            let keys = [
                "logs.format",
                "logs.time_format",
                "logs.channels.*.format",
                "logs.channels.*.time_format",
            ];
            only_in_3(root, era, &keys)
        },
    },
    Row {
        topic: "log records in development mode",
        in_2025: "columns with tabs between them",
        in_3: "`time=… level=INFO msg=… logger=…`",
        here: "as 2025.1",
        changes: |root, era| {
            let keys = ["logs.mode", "logs.channels.*.mode"];
            at(root, &keys, |node, _| {
                let is_it = node
                    .text()
                    .is_some_and(|text| text.eq_ignore_ascii_case("development"));
                let read = match era {
                    Era::V2025 => "nothing to write: records are columns",
                    Era::V3 => "nothing to write: records are `name=value`; for columns a `format`",
                };
                is_it.then(|| read.to_owned())
            })
        },
    },
    Row {
        topic: "log records with `mode: raw`",
        in_2025: "the message and its fields",
        in_3: "the message",
        here: FOLLOWS,
        changes: |root, era| {
            let keys = ["logs.mode", "logs.channels.*.mode"];
            at(root, &keys, |node, _| {
                let is_it = node
                    .text()
                    .is_some_and(|text| text.eq_ignore_ascii_case("raw"));
                let read = match era {
                    Era::V2025 => "nothing to write: fields stand behind the message",
                    Era::V3 => "write `format: '%message% %attrs%'` where fields are of use",
                };
                is_it.then(|| read.to_owned())
            })
        },
    },
    Row {
        topic: "`logs.level: panic`, `dpanic`, `fatal`",
        in_2025: "these and worse",
        in_3: "`debug`",
        here: "`error`",
        changes: |root, _| {
            at(root, &["logs.level", "logs.channels.*.level"], |node, _| {
                let worse = ["panic", "dpanic", "fatal"];
                let is_worse = worse.iter().any(|level| node.text() == Some(level));
                is_worse.then(|| "write `level: error`".to_owned())
            })
        },
    },
    Row {
        topic: "`http.trusted_headers`",
        in_2025: "no such key",
        in_3: "the first of them that is present names the client",
        here: "in both; those that name the client must agree",
        changes: |root, era| only_in_3(root, era, &["http.trusted_headers"]),
    },
    Row {
        topic: "`http.proxy_protocol`, `http.ssl.proxy_protocol`",
        in_2025: "no such keys",
        in_3: "a load balancer names the client before the first byte",
        here: "in both, on unix sockets too",
        changes: |root, era| {
            only_in_3(
                root,
                era,
                &["http.proxy_protocol", "http.ssl.proxy_protocol"],
            )
        },
    },
    Row {
        topic: "`http.unix_socket`",
        in_2025: "no such key",
        in_3: "mode, owner and group of the socket's file",
        here: "in both",
        changes: |root, era| only_in_3(root, era, &["http.unix_socket"]),
    },
    Row {
        topic: "`http.static.prefixes`, `cache_ttl`; `rr reset static`",
        in_2025: "not there",
        in_3: "there; missing files are remembered, too",
        here: "in both; a missing file is looked for each time",
        changes: |root, era| {
            let keys = [
                "http.static.cache_max_entries",
                "http.static.cache_miss_ttl",
                "http.static.cache_ttl",
                "http.static.prefixes",
            ];
            only_in_3(root, era, &keys)
        },
    },
    Row {
        topic: "`http.rate_limiter`, the middleware `zstd`",
        in_2025: "not there",
        in_3: "there; a full table of clients refuses new ones",
        here: "in both; a full table forgets a client that is nearly idle",
        changes: |root, era| only_in_3(root, era, &["http.rate_limiter"]),
    },
    Row {
        topic: "`http.http2.h2c`",
        in_2025: "also for clients that ask by `Upgrade: h2c`",
        in_3: "for clients that begin with HTTP/2",
        here: "as 3",
        changes: |root, _| {
            at(root, &["http.http2.h2c"], |node, _| {
                let is_on = node.text() == Some("true");
                is_on.then(|| "nothing to write: only 2025.1 answers `Upgrade: h2c`".to_owned())
            })
        },
    },
    Row {
        topic: "the most workers: `pool.num_workers`, `dynamic_allocator.max_workers`",
        in_2025: "500, and 100 more",
        in_3: "2,048 in all",
        here: FOLLOWS,
        changes: |root, era| match era {
            Era::V3 => Vec::new(),
            Era::V2025 => {
                let fewer = |keys: &[&str], most: usize| {
                    at(root, keys, |node, name| {
                        let is_more = node.text()?.parse::<usize>().is_ok_and(|n| n > most);
                        is_more.then(|| format!("write `{name}: {most}`"))
                    })
                };
                let mut all = fewer(&["*.pool.num_workers", "*.pools.*.num_workers"], 500);
                let more = [
                    "*.pool.dynamic_allocator.max_workers",
                    "*.pools.*.dynamic_allocator.max_workers",
                ];
                all.extend(fewer(&more, 100));
                all
            }
        },
    },
    Row {
        topic: "`envfile`",
        in_2025: "read with `-e`",
        in_3: "always read",
        here: "always read",
        changes: |root, era| {
            at(root, &["envfile"], |_, _| {
                Some(match era {
                    Era::V2025 => "call `rr` with `-e`".to_owned(),
                    Era::V3 => "nothing to write: it is read without `-e`, too".to_owned(),
                })
            })
        },
    },
    Row {
        topic: "paths of `status`",
        in_2025: "`/health`, `/ready`, `/jobs`",
        in_3: "also `/livez`, `/readyz`",
        here: "all of them",
        changes: |root, era| match era {
            Era::V3 => Vec::new(),
            Era::V2025 => at(root, &["status"], |_, _| {
                Some("let probes ask for `/health` and `/ready`".to_owned())
            }),
        },
    },
    Row {
        topic: "`rpc.Version`, `RR_VERSION`, the greeting",
        in_2025: "`2025.1.15`",
        in_3: "`3.0.0`",
        here: "as `compat` says; `rr --version` has `2025.1.15`, and `3.0.0` with `-o compat=3`",
        changes: |_, _| Vec::new(),
    },
    Row {
        topic: "`amqp`",
        in_2025: "one connection: `addr`, `tls`",
        in_3: "connections by name, each with `addr` and `tls`",
        here: "as `compat` says",
        changes: |root, era| match era {
            Era::V2025 => at(root, &["amqp.*.addr", "amqp.*.tls"], |_, name| {
                Some(format!("write it as `amqp.{name}`"))
            }),
            Era::V3 => at(root, &["amqp.addr", "amqp.tls"], |_, name| {
                Some(format!("write it as `amqp.default.{name}`"))
            }),
        },
    },
    Row {
        topic: "a pipeline of `amqp`",
        in_2025: "flat keys: `exchange`, `exchange_type`, `queue`, `routing_key` …",
        in_3: "`connection`, and sections `exchange` and `queue`",
        here: "as `compat` says",
        changes: pipelines,
    },
    Row {
        topic: "`jobs.pools`, `jobs.pipelines.<name>.pool`, `nsq`, `lock.driver`, `protoreg`",
        in_2025: "no such key",
        in_3: "there",
        here: "in both",
        changes: |root, era| {
            let keys = [
                "jobs.pipelines.*.pool",
                "jobs.pools",
                "lock.driver",
                "nsq",
                "protoreg",
            ];
            only_in_3(root, era, &keys)
        },
    },
    Row {
        topic: "`tcp`",
        in_2025: "there",
        in_3: "only in a build of your own",
        here: "in both",
        changes: |root, era| match era {
            Era::V2025 => Vec::new(),
            Era::V3 => at(root, &["tcp"], |_, _| {
                Some("build a RoadRunner that has it, or leave it out".to_owned())
            }),
        },
    },
    Row {
        topic: "`otel.exporter: zipkin`",
        in_2025: "there",
        in_3: "gone",
        here: "an error, with what to write",
        changes: |root, era| match era {
            Era::V2025 => Vec::new(),
            Era::V3 => at(root, &["otel.exporter"], |node, _| {
                (node.text() == Some("zipkin")).then(|| "write `exporter: otlp`".to_owned())
            }),
        },
    },
];

/// Flat keys of a pipeline of AMQP, and where RoadRunner 3 has them.
const PIPELINE: &[(&str, &str)] = &[
    ("consumer_id", "queue.consumer_id"),
    ("delete_queue_on_stop", "queue.delete_on_stop"),
    ("durable", "queue.durable"),
    ("exchange", "exchange.name"),
    ("exchange_auto_delete", "exchange.auto_delete"),
    ("exchange_durable", "exchange.durable"),
    ("exchange_type", "exchange.type"),
    ("exclusive", "queue.exclusive"),
    ("multiple_ack", "queue.multiple_ack"),
    ("queue", "queue.name"),
    ("queue_auto_delete", "queue.auto_delete"),
    ("queue_headers", "queue.headers"),
    ("requeue_on_fail", "queue.requeue_on_fail"),
    ("routing_key", "queue.routing_key"),
];

fn pipelines(root: &Map, era: Era) -> Vec<Change> {
    let drivers = root.find("jobs.pipelines.*.driver");
    let of_amqp = drivers
        .iter()
        .filter(|(_, driver)| driver.node.text() == Some("amqp"));
    let mut changes = Vec::new();
    for (driver, _) in of_amqp {
        let pipeline = driver.trim_end_matches("driver");
        for (flat, nested) in PIPELINE {
            let (from, to) = match era {
                Era::V2025 => (nested, flat),
                Era::V3 => (flat, nested),
            };
            changes.extend(at(
                root,
                &[&format!("{pipeline}config.{from}")],
                |node, _| {
                    let is_section =
                        matches!(node.value, Value::Map(_)) && *flat != "queue_headers";
                    (!is_section).then(|| format!("write it as `{to}`"))
                },
            ));
        }
    }
    changes
}

/// Keys that RoadRunner 2025.1 ignores.
fn only_in_3(root: &Map, era: Era, keys: &[&str]) -> Vec<Change> {
    match era {
        Era::V2025 => at(root, keys, |_, _| {
            Some("remove it: there is no such key".to_owned())
        }),
        Era::V3 => Vec::new(),
    }
}

/// What `write` says of each key that is there, by its value and its name; of what it says nothing
/// there is no change.
fn at(root: &Map, keys: &[&str], write: impl Fn(&Node, &str) -> Option<String>) -> Vec<Change> {
    let found = keys.iter().flat_map(|key| root.find(key));
    let changes = found.filter_map(|(path, Entry { name, node, origin })| {
        let write = write(node, name).filter(|_| node.value != Value::Null)?;
        let place = origin.place.to_string();
        Some(Change { path, place, write })
    });
    changes.collect()
}

/// What `check` says of the era: which one it is and why, and the keys that the other RoadRunner
/// reads in another way.
pub(super) fn tell(loaded: &Loaded, out: &mut String) {
    let (era, reason) = (loaded.compat().era, &loaded.compat().reason);
    let other = other(era);
    // Writing to a String cannot fail, here and below.
    _ = writeln!(out, "Read as {era} reads it: {reason}.");
    let mut heading = format!(
        "{other} would read it in another way (`check --to {}` says what to write):\n",
        word(other)
    );
    for row in TABLE {
        let there = match other {
            Era::V2025 => row.in_2025,
            Era::V3 => row.in_3,
        };
        for change in (row.changes)(loaded.root(), other) {
            out.push_str(&std::mem::take(&mut heading));
            _ = writeln!(out, "  {}: {there}", change.path);
        }
    }
}

/// What has to be changed in the file for this RoadRunner.
pub(super) fn tell_changes(loaded: &Loaded, to: Era, out: &mut String) {
    if to == loaded.compat().era {
        _ = writeln!(
            out,
            "The file is for {to} already: {}.",
            loaded.compat().reason
        );
        return;
    }
    _ = writeln!(
        out,
        "For {to}:\n  compat: write `compat: {}` for this server",
        word(to)
    );
    for change in TABLE
        .iter()
        .flat_map(|row| (row.changes)(loaded.root(), to))
    {
        let Change { path, place, write } = change;
        _ = writeln!(out, "  {path} ({place}): {write}");
    }
}

/// What who comes from this RoadRunner should know, in Markdown.
pub fn eras(from: Era) -> String {
    let mut page = format!("| what | {from} | here |\n|---|---|---|\n");
    for row in TABLE {
        let (there, as_there) = match from {
            Era::V2025 => (row.in_2025, "as 2025.1"),
            Era::V3 => (row.in_3, "as 3"),
        };
        if there.starts_with("no such") || there.starts_with("not there") {
            continue;
        }
        let here = row.here.replace(FOLLOWS, "the same");
        let is_same = here == as_there || here.ends_with(&format!(" {as_there}"));
        let here = if is_same { "the same" } else { &here };
        _ = writeln!(page, "| {} | {there} | {here} |", row.topic);
    }
    page
}

fn other(era: Era) -> Era {
    match era {
        Era::V2025 => Era::V3,
        Era::V3 => Era::V2025,
    }
}

/// As `compat` has it.
fn word(era: Era) -> &'static str {
    match era {
        Era::V2025 => "2025",
        Era::V3 => "3",
    }
}
