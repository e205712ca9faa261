//! For which `RoadRunner` a file was written, 2025.1 or 3: `version: "3"` stands in the files of
//! both.
//!
//! Knows which keys one of them alone has, and nothing of what depends on it.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use crate::diagnostic::Diagnostics;
use crate::load::Disk;
use crate::node::{Map, Node, Value};
use crate::place::Place;
use crate::setting::{Choice, Setting, one_line};

/// RoadRunner 3.0 reads some keys otherwise than 2025.1 does, and `version` stayed as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// RoadRunner 2025.1, and all before it.
    V2025,
    /// RoadRunner 3.0, of October 2026.
    V3,
}

impl Choice for Era {
    const CHOICES: &'static [(&'static str, Self)] = &[("2025", Self::V2025), ("3", Self::V3)];
}

impl Era {
    /// The release as which the server answers PHP packages and tools. They compare it with the
    /// least that they work with (Laravel Octane wants 2023.3), and our own number would be too low
    /// for each; this is the release whose behaviour was taken as the measure.
    pub const fn version(self) -> &'static str {
        match self {
            Self::V2025 => "2025.1.15",
            Self::V3 => "3.0.0",
        }
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2025 => "RoadRunner 2025.1",
            Self::V3 => "RoadRunner 3",
        })
    }
}

/// The era that a file is read in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compat {
    /// The era.
    pub era: Era,
    /// What decided it, the end of a sentence.
    pub reason: String,
}

/// Of files that have `compat` set, of files of our own name, and of no file.
pub(crate) const DEFAULT: Era = Era::V2025;

/// Composer lists what is installed here, beside the configuration.
const INSTALLED: &str = "vendor/composer/installed.json";

/// A list of a thousand packages has 3 MB; a larger file says nothing.
const MAX_INSTALLED_BYTES: usize = 16 << 20;

/// A key that one of them alone has. `*` is any name; a word behind `=` is the value that counts.
const SIGNS: &[(&str, Era)] = &[
    ("amqp.addr", Era::V2025),
    ("jobs.pipelines.*.config.consumer_id", Era::V2025),
    ("jobs.pipelines.*.config.delete_queue_on_stop", Era::V2025),
    ("jobs.pipelines.*.config.exchange_auto_delete", Era::V2025),
    ("jobs.pipelines.*.config.exchange_durable", Era::V2025),
    ("jobs.pipelines.*.config.exchange_type", Era::V2025),
    ("jobs.pipelines.*.config.multiple_ack", Era::V2025),
    ("jobs.pipelines.*.config.queue_auto_delete", Era::V2025),
    ("jobs.pipelines.*.config.queue_headers", Era::V2025),
    ("jobs.pipelines.*.config.requeue_on_fail", Era::V2025),
    ("jobs.pipelines.*.config.routing_key", Era::V2025),
    ("logs.channels.*.file_logger_options", Era::V2025),
    ("logs.file_logger_options", Era::V2025),
    ("otel.exporter=zipkin", Era::V2025),
    ("amqp.*.addr", Era::V3),
    ("http.middleware=rate_limiter", Era::V3),
    ("http.middleware=zstd", Era::V3),
    ("http.proxy_protocol", Era::V3),
    ("http.rate_limiter", Era::V3),
    ("http.ssl.proxy_protocol", Era::V3),
    ("http.static.cache_max_entries", Era::V3),
    ("http.static.cache_miss_ttl", Era::V3),
    ("http.static.cache_ttl", Era::V3),
    ("http.static.prefixes", Era::V3),
    ("http.unix_socket", Era::V3),
    ("jobs.pipelines.*.config.connection", Era::V3),
    ("jobs.pipelines.*.config.exchange.*", Era::V3),
    ("jobs.pipelines.*.config.queue.*", Era::V3),
    ("jobs.pipelines.*.pool", Era::V3),
    ("jobs.pools", Era::V3),
    ("lock.driver", Era::V3),
    ("logs.channels.*.format", Era::V3),
    ("logs.channels.*.time_format", Era::V3),
    ("logs.format", Era::V3),
    ("logs.skip_line_ending", Era::V3),
    ("logs.time_format", Era::V3),
    ("nsq", Era::V3),
    ("protoreg", Era::V3),
    ("redis.sentinel_username", Era::V3),
    ("temporal.worker_heartbeat_interval", Era::V3),
];

/// What is written as `compat`, else what tells it in a file of RoadRunner's name, else what
/// Composer has installed beside it.
pub(crate) fn tell(
    root: &Map,
    file: Option<&Path>,
    (folder, disk): (&Path, &Disk),
    diagnostics: &mut Diagnostics,
) -> Compat {
    let of = |era, reason: String| Compat { era, reason };
    if let Some(node) = root.get("compat")
        && let Ok(era) = Era::read(node)
    {
        return of(era, format!("`compat` is {} ({})", era.show(), node.origin));
    }
    let Some(file) = file.filter(|file| is_roadrunners(file)) else {
        return of(DEFAULT, "nothing says otherwise".to_owned());
    };
    let found = |era| SIGNS.iter().filter(move |(_, of)| *of == era);
    let sign = |era| found(era).find_map(|(key, _)| find(root, key));
    let by_packages = || {
        let path = folder.join(file.with_file_name(INSTALLED));
        let bytes = disk.read(&path, MAX_INSTALLED_BYTES).ok()?;
        installed(&bytes)
    };
    match (sign(Era::V2025), sign(Era::V3)) {
        (Some((key, place)), None) => of(Era::V2025, alone(&key, &place, Era::V3)),
        (None, Some((key, place))) => of(Era::V3, alone(&key, &place, Era::V2025)),
        (None, None) => {
            by_packages().unwrap_or_else(|| of(DEFAULT, "nothing says otherwise".to_owned()))
        }
        (Some((old, _)), Some((new, place))) => {
            let compat = by_packages()
                .unwrap_or_else(|| of(DEFAULT, "it has keys of both, and this one".to_owned()));
            let message = format!(
                "`{new}` is a key of {}, and `{old}` one of {}: read as {} reads it",
                Era::V3,
                Era::V2025,
                compat.era
            );
            diagnostics.warn(&place, message, "write `compat: 2025` or `compat: 3`");
            compat
        }
    }
}

/// False for a file with a name of ours (`pronghorn.yaml`, `pronghorn.test.yaml`), which RoadRunner
/// never reads: what it means does not depend on packages.
pub fn is_roadrunners(file: &Path) -> bool {
    let name = file.file_name().map(OsStr::as_encoded_bytes);
    name.is_some_and(|name| !name.starts_with(b"pronghorn"))
}

fn alone(key: &str, place: &Place, other: Era) -> String {
    format!("it has `{key}` ({place}), which {other} does not know")
}

/// The first value at this path of names.
fn find(root: &Map, key: &str) -> Option<(String, Place)> {
    let (path, word) = match key.split_once('=') {
        Some((path, word)) => (path, Some(word)),
        None => (key, None),
    };
    let counts = |node: &Node| match word {
        Some(word) => node.words().iter().any(|w| w.eq_ignore_ascii_case(word)),
        None => node.value != Value::Null,
    };
    let mut found = root.find(path).into_iter();
    let (path, entry) = found.find(|(_, entry)| counts(&entry.node))?;
    Some((path, entry.origin.place.clone()))
}

/// By the metapackage that workers of RoadRunner 3 require, else by the vendor's name of their own
/// packages.
fn installed(bytes: &[u8]) -> Option<Compat> {
    if bytes.len() > MAX_INSTALLED_BYTES {
        return None;
    }
    let json: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let packages = json.get("packages").unwrap_or(&json).as_array()?;
    let name_and_version = |package: &serde_json::Value| {
        let text = |key| package.get(key)?.as_str().map(one_line);
        Some((text("name")?, text("version").unwrap_or_default()))
    };
    let mut ours: Vec<(u8, Era, String)> = packages
        .iter()
        .filter_map(name_and_version)
        .filter_map(|(name, version)| {
            let major = version.trim_start_matches('v').split('.').next();
            let (rank, era) = match name.as_str() {
                "spiral/roadrunner" => match major?.parse::<u32>() {
                    Ok(3) => (0, Era::V3),
                    _ => (0, Era::V2025),
                },
                "roadrunner/worker" => (1, Era::V3),
                "spiral/roadrunner-worker" => (2, Era::V2025),
                _ => return None,
            };
            Some((rank, era, format!("`{name}` {version} in `{INSTALLED}`")))
        })
        .collect();
    ours.sort_by_key(|(rank, _, _)| *rank);
    let (_, era, reason) = ours.into_iter().next()?;
    Some(Compat { era, reason })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;
    use crate::{Input, load};

    fn loaded(file: &str, yaml: &str, installed: &str) -> (Compat, String) {
        let files = [
            (file, yaml),
            ("app/vendor/composer/installed.json", installed),
        ];
        let files: BTreeMap<PathBuf, Vec<u8>> = files
            .into_iter()
            .filter(|(name, text)| *name == file || !text.is_empty())
            .map(|(name, text)| (name.into(), text.into()))
            .collect();
        let loaded = load(&Input {
            file: Some(file.into()),
            disk: Disk::Memory(files),
            ..Input::default()
        });
        let said: Vec<String> = loaded
            .diagnostics
            .0
            .iter()
            .map(ToString::to_string)
            .collect();
        (loaded.compat().clone(), said.join("\n"))
    }

    fn told(yaml: &str, installed: &str) -> (Era, String) {
        let (compat, said) = loaded("app/.rr.yaml", yaml, installed);
        assert_eq!(said, "");
        (compat.era, compat.reason)
    }

    #[test]
    fn what_is_written_decides() {
        for (yaml, era) in [
            ("compat: 3\namqp: {addr: a}\n", Era::V3),
            ("compat: '2025'\njobs: {pools: {a: {}}}\n", Era::V2025),
        ] {
            assert_eq!(told(yaml, "").0, era, "{yaml}");
        }
        let (_, reason) = told("compat: 3\n", "");
        assert_eq!(reason, "`compat` is 3 (app/.rr.yaml:1)");
    }

    #[test]
    fn a_key_of_one_alone_tells_it() {
        for (yaml, era, key) in [
            (
                "amqp: {addr: x}\n",
                Era::V2025,
                "`amqp.addr` (app/.rr.yaml:1:8)",
            ),
            (
                "amqp: {main: {addr: x}}\n",
                Era::V3,
                "`amqp.main.addr` (app/.rr.yaml:1:15)",
            ),
            (
                "http.middleware: [gzip, ZSTD]\n",
                Era::V3,
                "`http.middleware` (app/.rr.yaml:1:1)",
            ),
            (
                "http: {middleware: 'gzip,zstd'}\n",
                Era::V3,
                "`http.middleware`",
            ),
            ("nsq: {}\n", Era::V3, "`nsq`"),
            ("otel: {exporter: zipkin}\n", Era::V2025, "`otel.exporter`"),
        ] {
            let (told, reason) = told(yaml, "");
            assert_eq!(told, era, "{yaml}");
            assert!(reason.starts_with(&format!("it has {key}")), "{reason}");
        }
        for yaml in [
            "nsq:\n",
            "otel: {exporter: otlp}\n",
            "http: {middleware: [gzip]}\n",
            "",
        ] {
            let expected = (Era::V2025, "nothing says otherwise".to_owned());
            assert_eq!(told(yaml, ""), expected, "{yaml}");
        }
    }

    #[test]
    fn keys_of_both_are_a_warning() {
        let both = "amqp: {addr: x}\nnsq: {addr: y}\n";
        let (compat, said) = loaded("app/.rr.yaml", both, "");
        assert_eq!(compat.era, Era::V2025);
        assert!(
            said.starts_with("warning: app/.rr.yaml:2:1: `nsq` is a key of RoadRunner 3"),
            "{said}"
        );
        let new = r#"{"packages":[{"name":"spiral/roadrunner","version":"v3.0.2"}]}"#;
        assert_eq!(loaded("app/.rr.yaml", both, new).0.era, Era::V3);
    }

    #[test]
    fn packages_tell_it_where_no_key_does() {
        for (packages, era) in [
            (
                r#"{"packages":[{"name":"spiral/roadrunner-worker","version":"v3.6.1"},{"name":"spiral/roadrunner","version":"v2025.1.4"}]}"#,
                Era::V2025,
            ),
            (
                r#"{"packages":[{"name":"roadrunner/worker","version":"3.8.0"},{"name":"spiral/roadrunner","version":"3.0.0"}]}"#,
                Era::V3,
            ),
            (
                r#"[{"name":"roadrunner/worker","version":"3.8.0"},{"name":"spiral/roadrunner","version":"v2025.1.4"}]"#,
                Era::V2025,
            ),
            (r#"[{"name":"roadrunner/worker"}]"#, Era::V3),
            (
                r#"[{"name":"spiral/roadrunner","version":"dev-master"}]"#,
                Era::V2025,
            ),
            (r#"[1, {"name": 2}]"#, Era::V2025),
            ("{", Era::V2025),
        ] {
            assert_eq!(told("version: '3'\n", packages).0, era, "{packages}");
        }
        let (_, reason) = told("", r#"[{"name":"spiral/roadrunner","version":"3.0.0"}]"#);
        assert_eq!(
            reason,
            "`spiral/roadrunner` 3.0.0 in `vendor/composer/installed.json`"
        );
    }

    #[test]
    fn a_file_of_our_name_means_the_same_whatever_is_installed() {
        let new = r#"[{"name":"spiral/roadrunner","version":"3.0.0"}]"#;
        let (compat, _) = loaded("app/pronghorn.yaml", "http: {middleware: zstd}\n", new);
        assert_eq!(compat.era, Era::V2025);
        let (compat, _) = loaded("app/pronghorn.test.yaml", "", new);
        assert_eq!(compat.era, Era::V2025);
        let (compat, _) = loaded("app/pronghorn.yaml", "compat: 3\n", "");
        assert_eq!(compat.era, Era::V3);
    }
}
