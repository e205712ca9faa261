//! What is said to make a worker server no faster than nginx and php-fpm: fourteen suspects, each
//! as a change of one setup, and those that the articles had together.

use serde_json::json;

use crate::scenario::Setup;

/// One difference between a benchmark as it should be and as it was.
#[derive(Debug)]
pub(crate) struct Suspect {
    pub(crate) name: &'static str,
    /// What is done, in a sentence.
    pub(crate) what: &'static str,
    /// The mode of ours that it takes.
    pub(crate) server: Option<&'static str>,
    /// Of ours.
    pub(crate) workers: Option<u16>,
    pub(crate) connections: Option<u32>,
    /// Of the scenario's setup.
    pub(crate) change: fn(&mut Setup),
}

/// What most suspects are: a change of the setup alone.
const CHANGE: Suspect = Suspect {
    name: "",
    what: "",
    server: None,
    workers: None,
    connections: None,
    change: |_| {},
};

/// Calls after which the first article's workers were replaced.
const MAX_JOBS: u32 = 64;
/// What a query of a busy database takes.
const DATABASE_MS: u32 = 20;

pub(crate) const SUSPECTS: [Suspect; 14] = [
    Suspect {
        name: "opcache-off",
        what: "OPcache is off on the command line, as PHP has it by default",
        change: |setup| {
            setup.ini.push("opcache.enable_cli = 0".to_owned());
            setup.pool.push(("ini_preset", json!("off")));
        },
        ..CHANGE
    },
    Suspect {
        name: "private-opcache",
        what: "Each worker is started by itself and has its own OPcache",
        change: |setup| setup.pool.push(("spawn", json!("exec"))),
        ..CHANGE
    },
    Suspect {
        name: "many-workers",
        what: "100 workers, and 100 children of php-fpm",
        workers: Some(100),
        ..CHANGE
    },
    Suspect {
        name: "file-sessions",
        what: "Sessions in files, and a client without cookies: each request makes a file, and two \
               of 100 requests search all files",
        change: |setup| setup.ini.push("bench.sessions = file".to_owned()),
        ..CHANGE
    },
    Suspect {
        name: "psr7",
        what: "Requests and replies are turned into PSR-7 and back",
        server: Some("pronghorn-psr7"),
        ..CHANGE
    },
    Suspect {
        name: "protobuf",
        what: "RoadRunner's packages, PSR-7, and protobuf decoded in PHP; each worker boots by \
               itself",
        server: Some("pronghorn-roadrunner"),
        change: |setup| {
            setup.pool.push(("codec", json!("proto")));
            setup.pool.push(("spawn", json!("exec")));
        },
        ..CHANGE
    },
    Suspect {
        name: "recycling",
        what: "Workers are replaced after 64 requests, and each new one boots",
        change: |setup| {
            setup.pool.push(("spawn", json!("exec")));
            setup.pool.push(("max_jobs", json!(MAX_JOBS)));
        },
        ..CHANGE
    },
    Suspect {
        name: "collect-cycles",
        what: "`gc_collect_cycles()` after each request",
        change: |setup| setup.ini.push("bench.collect_cycles = 1".to_owned()),
        ..CHANGE
    },
    Suspect {
        name: "no-keep-alive",
        what: "nginx in front of the worker server, with a new connection for each request",
        change: |setup| setup.behind_nginx = true,
        ..CHANGE
    },
    Suspect {
        name: "debug",
        what: "Laravel's debug mode, and Xdebug if it is installed",
        change: |setup| {
            setup.ini.push("bench.debug = 1".to_owned());
            setup.ini.extend(xdebug());
        },
        ..CHANGE
    },
    Suspect {
        name: "terminal",
        what: "A line per request to a terminal",
        change: |setup| setup.terminal = true,
        ..CHANGE
    },
    Suspect {
        name: "static-files",
        what: "Every second request is for a static file",
        change: |setup| setup.file = Some("/robots.txt"),
        ..CHANGE
    },
    Suspect {
        name: "errors-counted",
        what: "400 connections; php-fpm's queue is short, and its errors count as answers",
        connections: Some(400),
        change: |setup| {
            setup.backlog = Some(16);
            setup.counts_errors = true;
        },
        ..CHANGE
    },
    Suspect {
        name: "database",
        what: "A database answers in 20 ms: the handler waits",
        change: |setup| setup.ini.push(format!("bench.database_ms = {DATABASE_MS}")),
        ..CHANGE
    },
];

/// Several suspects at once.
#[derive(Debug)]
pub(crate) struct Combination {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    names: &'static [&'static str],
}

pub(crate) const COMBINATIONS: [Combination; 5] = [
    Combination {
        name: "as-the-first-article",
        what: "the article's setup: each worker boots by itself, PSR-7, file sessions without \
               cookies, recycling after 64 requests, nginx without keep-alive, a terminal",
        names: &[
            "private-opcache",
            "psr7",
            "recycling",
            "file-sessions",
            "no-keep-alive",
            "terminal",
        ],
    },
    Combination {
        name: "as-the-fourth-article",
        what: "the article's setup: 100 workers, each boots by itself, PSR-7, file sessions \
               without cookies, nginx without keep-alive",
        names: &[
            "private-opcache",
            "many-workers",
            "psr7",
            "file-sessions",
            "no-keep-alive",
        ],
    },
    Combination {
        name: "without-opcache",
        what: "the same, and OPcache off on the command line",
        names: &[
            "opcache-off",
            "private-opcache",
            "many-workers",
            "psr7",
            "file-sessions",
            "no-keep-alive",
        ],
    },
    Combination {
        name: "all",
        what: "all suspects except protobuf and those that change php-fpm, too (debug mode, static \
               files, errors, the database)",
        names: &[
            "opcache-off",
            "many-workers",
            "psr7",
            "recycling",
            "file-sessions",
            "collect-cycles",
            "no-keep-alive",
            "terminal",
        ],
    },
    Combination {
        name: "all-with-protobuf",
        what: "the same with RoadRunner's packages and protobuf",
        names: &[
            "opcache-off",
            "many-workers",
            "psr7",
            "protobuf",
            "recycling",
            "file-sessions",
            "collect-cycles",
            "no-keep-alive",
            "terminal",
        ],
    },
];

impl Combination {
    pub(crate) fn suspects(&self) -> impl Iterator<Item = &'static Suspect> {
        let of_it = |suspect: &&Suspect| self.names.contains(&suspect.name);
        SUSPECTS.iter().filter(of_it)
    }
}

/// Xdebug as `scripts/php-extensions` unpacks it: what is installed would be in every PHP.
fn xdebug() -> Option<String> {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| crate::site::repository().join("target"), Into::into);
    let list = target.join("tools/php-extensions/list");
    let list = std::fs::read_to_string(list).ok()?;
    let line = list.lines().find(|line| line.starts_with("xdebug"))?;
    let file = line
        .split_whitespace()
        .find(|word| word.ends_with("xdebug.so"))?;
    let file = file.rsplit('=').next()?;
    Some(format!("zend_extension = {file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_made_of_suspects() {
        for combination in &COMBINATIONS {
            assert_eq!(combination.suspects().count(), combination.names.len());
        }
    }
}
