//! The section `reload`, which RoadRunner had up to its version 2.

use std::path::PathBuf;
use std::time::Duration;

use pronghorn_config::{Section, Table};

use crate::watching::Watching;

/// As RoadRunner's.
const INTERVAL: Duration = Duration::from_secs(1);
/// The only one with workers.
const HTTP: &str = "http";
const ENDING: &str = ".php";

impl Section for Watching {
    fn read(t: &mut Table<'_>) -> Self {
        let interval = t
            .key(
                "interval",
                "How long changes are collected at most, and how often files are checked where the \
                 kernel reports no changes.",
            )
            .zero_is_default()
            .range(Duration::from_millis(100)..=Duration::from_hours(1))
            .default(INTERVAL);
        let patterns: Vec<String> = t
            .key("patterns", "Endings of the names of files to watch.")
            .default(vec![ENDING.to_owned()]);
        let patterns = endings(&patterns);
        let patterns = if patterns.is_empty() {
            vec![ENDING.to_owned()]
        } else {
            patterns
        };
        let others = t.names_in("services");
        t.section_with("services", "What to watch, by service.", |t| {
            let watching = t.section_with(HTTP, "For the workers of all pools of HTTP.", |t| {
                read_service(t, interval, patterns)
            });
            for name in others {
                if !t.is_known(&name) {
                    t.no_effect(&name, "it has no workers here; `http` has");
                }
            }
            watching
        })
    }
}

fn read_service(t: &mut Table<'_>, interval: Duration, patterns: Vec<String>) -> Watching {
    let own: Vec<String> = t
        .key("patterns", "Endings of the names of files to watch.")
        .default_as(patterns.clone(), "`reload.patterns`");
    let own = endings(&own);
    Watching {
        folders: t
            .key(
                "dirs",
                "Directories to watch, relative to the working directory.",
            )
            .default(vec![PathBuf::from(".")]),
        recursive: t
            .key(
                "recursive",
                "Watch subdirectories, too; of `vendor` only `vendor/composer`, which each \
                 installation writes.",
            )
            .default(false),
        ignored: t
            .key(
                "ignore",
                "Directories that are never watched: a name, or the last names of a path.",
            )
            .default(Vec::new()),
        patterns: if own.is_empty() { patterns } else { own },
        interval,
    }
}

/// An asterisk says no more than that something may come before. An empty ending would be every name's.
fn endings(patterns: &[String]) -> Vec<String> {
    let endings = patterns.iter().map(|text| text.trim_start_matches('*'));
    endings
        .filter(|ending| !ending.is_empty())
        .map(str::to_owned)
        .collect()
}
