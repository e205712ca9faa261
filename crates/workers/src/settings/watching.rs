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
        let interval = read_interval(
            t,
            "The longest time for which changes are collected before a reload. Where the kernel \
             reports no changes, files are checked at this interval.",
        );
        let patterns: Vec<String> = t
            .key(
                "patterns",
                "Files are watched if their names end with one of these texts.",
            )
            .default(vec![ENDING.to_owned()]);
        let patterns = endings(&patterns);
        let patterns = if patterns.is_empty() {
            vec![ENDING.to_owned()]
        } else {
            patterns
        };
        let others = t.names_in("services");
        t.section_with("services", "The files to watch, for each service.", |t| {
            let watching = services.iter().map(|&name| {
                let sentence = "The files to watch for the workers of all pools of this service.";
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

fn read_interval(t: &mut Table<'_>, sentence: &'static str) -> Duration {
    t.key("interval", sentence)
        .zero_is_default()
        .range(Duration::from_millis(100)..=Duration::from_hours(1))
        .default(INTERVAL)
}

fn read_service(t: &mut Table<'_>, interval: Duration, patterns: &[String]) -> Watching {
    let own: Vec<String> = t
        .key(
            "patterns",
            "Files are watched if their names end with one of these texts.",
        )
        .default_as(patterns.to_vec(), "`reload.patterns`");
    let own = endings(&own);
    Watching {
        folders: t
            .key(
                "dirs",
                "The directories to watch, relative to the working directory.",
            )
            .default(vec![PathBuf::from(".")]),
        recursive: t
            .key(
                "recursive",
                "Whether to watch subdirectories, too. Of `vendor`, only `vendor/composer` is \
                 watched, which each installation changes.",
            )
            .default(false),
        ignored: t
            .key(
                "ignore",
                "Directories that are not watched: a name, or the last names of a path.",
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

impl Watching {
    /// Reads what is watched for one thing that is no service.
    pub fn read_one(t: &mut Table<'_>) -> Self {
        let interval = read_interval(
            t,
            "The longest time for which changes are collected before a restart. Where the kernel \
             reports no changes, files are checked at this interval.",
        );
        read_service(t, interval, &[ENDING.to_owned()])
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
