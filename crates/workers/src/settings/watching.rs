//! The section `reload`, which RoadRunner had up to its version 2.

use std::path::PathBuf;
use std::time::Duration;

use pronghorn_config::Table;

use crate::watching::Watching;

/// As RoadRunner's.
const INTERVAL: Duration = Duration::from_secs(1);
const ENDING: &str = ".php";

impl Watching {
    /// Reads what is watched for each of these services, which are those that have workers.
    pub fn read(t: &mut Table<'_>, services: &[&'static str]) -> Vec<(&'static str, Self)> {
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
            let watching = services.iter().map(|&name| {
                let sentence = "For the workers of all pools of this service.";
                let watching =
                    t.section_with(name, sentence, |t| read_service(t, interval, &patterns));
                (name, watching)
            });
            let watching = watching.collect();
            for name in others {
                if !t.is_known(&name) {
                    t.no_effect(&name, "it has no workers");
                }
            }
            watching
        })
    }
}

fn read_service(t: &mut Table<'_>, interval: Duration, patterns: &[String]) -> Watching {
    let own: Vec<String> = t
        .key("patterns", "Endings of the names of files to watch.")
        .default_as(patterns.to_vec(), "`reload.patterns`");
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
        patterns: if own.is_empty() {
            patterns.to_vec()
        } else {
            own
        },
        interval,
    }
}

/// An asterisk says no more than that something may come before. An empty ending would be every
/// name's.
fn endings(patterns: &[String]) -> Vec<String> {
    let endings = patterns.iter().map(|text| text.trim_start_matches('*'));
    endings
        .filter(|ending| !ending.is_empty())
        .map(str::to_owned)
        .collect()
}
