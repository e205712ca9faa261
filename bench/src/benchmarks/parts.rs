//! What `report` measures: parts, each of which has a file of results of its own, so that a run
//! that was stopped goes on with the next one.

use serde_json::json;

use super::suspects::{COMBINATIONS, SUSPECTS, Suspect};
use crate::arguments::Arguments;
use crate::error::BenchError;
use crate::plan::Job;
use crate::scenario::{Load, Scenario, Setup, folder, select};
use crate::servers::{Adapter, built_in};

/// Several cases that are measured and shown together.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) cases: Vec<Case>,
    /// Where one look is enough.
    once: bool,
}

/// A scenario with one number of workers and one setup.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Of the rows; unique in the plan.
    pub(crate) name: String,
    /// Of the scenario that is varied.
    scenario: &'static str,
    pub(crate) workers: u16,
    servers: Vec<&'static str>,
    connections: Vec<u32>,
    setup: Setup,
    is_suspected: bool,
}

/// nginx and php-fpm, which all articles compare with.
pub(crate) const FPM: &str = "nginx-fpm";

/// The number of workers that scripts are compared with where nothing else is said: as many as a
/// machine with two processors has.
const WORKERS: u16 = 2;
/// Of the article's author, for both servers.
const SLIM_WORKERS: u16 = 100;
/// At which suspects are looked at, as two of the articles did.
const SUSPECT_CONNECTIONS: u32 = 50;

impl Case {
    fn new(
        name: &str,
        scenario: &'static str,
        servers: &[&'static str],
        connections: &[u32],
    ) -> Self {
        Self {
            name: name.to_owned(),
            scenario,
            workers: WORKERS,
            servers: servers.to_vec(),
            connections: connections.to_vec(),
            setup: Setup {
                connections: connections.iter().copied().max().unwrap_or(1),
                metrics: true,
                ..Setup::default()
            },
            is_suspected: false,
        }
    }

    fn with_workers(mut self, workers: u16) -> Self {
        self.workers = workers;
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Setup)) -> Self {
        change(&mut self.setup);
        self
    }
}

/// All parts, in the order in which they are measured.
pub(crate) fn parts() -> Vec<Part> {
    let part = |name, title, cases| Part {
        name,
        title,
        cases,
        once: false,
    };
    vec![
        part("laravel", "Laravel's landing page", laravel()),
        part(
            "laravel-workers",
            "100 workers on two processors",
            laravel_workers(),
        ),
        part(
            "text-and-query",
            "Plain text and one query",
            text_and_query(),
        ),
        part("template", "A template at 200 connections", template()),
        part("cgi", "CGI programs in five languages", cgi()),
        part("slim", "Slim over connections", slim()),
        part(
            "one-processor",
            "One processor and a greeting, as runtimes of PHP are often compared",
            one_processor(),
        ),
        part(
            "connections",
            "From one connection to 10,000",
            connections(),
        ),
        part("workers", "From one worker to 100", workers()),
        Part {
            once: true,
            ..part("memory", "Memory over workers", memory())
        },
        part("waiting", "A handler that waits", waiting()),
        part("suspects", "What makes a worker server slow", suspects()),
        part("together", "Suspects together", together()),
    ]
}

const OURS_FOR_PHP: [&str; 7] = [
    "pronghorn",
    "pronghorn-exec",
    "pronghorn-psr7",
    "pronghorn-roadrunner",
    "pronghorn-pristine",
    "pronghorn-classic",
    "pronghorn-fastcgi",
];
const RIVALS_FOR_PHP: [&str; 4] = [FPM, "nginx-fpm-kept", "apache-php", "php-s"];

fn laravel() -> Vec<Case> {
    let servers = [&OURS_FOR_PHP[..], &RIVALS_FOR_PHP[..]].concat();
    vec![
        Case::new("landing", "laravel-landing", &servers, &[20, 50]),
        Case::new("landing-bare", "laravel-landing-bare", &servers, &[20, 50]),
    ]
}

fn laravel_workers() -> Vec<Case> {
    let case = |workers: u16| {
        let name = format!("landing-{workers}-workers");
        let servers = ["pronghorn", "pronghorn-exec", FPM];
        Case::new(&name, "laravel-landing", &servers, &[50]).with_workers(workers)
    };
    [2, 4, 8, 16, 100].map(case).into()
}

fn text_and_query() -> Vec<Case> {
    let servers = [
        "pronghorn",
        "pronghorn-psr7",
        "pronghorn-classic",
        FPM,
        "nginx-fpm-kept",
    ];
    let laravel = ["pronghorn", "pronghorn-classic", FPM];
    vec![
        Case::new("json", "json", &servers, &[10]),
        Case::new("query", "sqlite", &servers, &[10]),
        Case::new("laravel-json", "laravel", &laravel, &[10]),
        Case::new("laravel-query", "laravel-sqlite", &laravel, &[10]),
    ]
}

fn template() -> Vec<Case> {
    let servers = [
        "pronghorn",
        "pronghorn-classic",
        "pronghorn-fastcgi",
        FPM,
        "nginx-fpm-kept",
        "apache-php",
        "php-s",
    ];
    vec![Case::new("template", "template", &servers, &[200])]
}

fn cgi() -> Vec<Case> {
    let case = |name: &'static str| {
        let servers = ["pronghorn-cgi", "apache-cgid", "apache-cgi"];
        Case::new(name, name, &servers, &[10]).with_workers(10)
    };
    ["cgi-c", "cgi-cpp", "cgi-sh", "cgi-php", "cgi-python"]
        .map(case)
        .into()
}

fn slim() -> Vec<Case> {
    let servers = [
        "pronghorn",
        "pronghorn-roadrunner",
        "pronghorn-classic",
        FPM,
    ];
    let all = [1, 2, 3, 4, 5, 10, 100, 150];
    vec![
        Case::new("slim", "slim-hello", &servers, &all).with_workers(SLIM_WORKERS),
        Case::new(
            "slim-2-workers",
            "slim-hello",
            &["pronghorn", FPM],
            &[1, 10, 100],
        ),
    ]
}

fn one_processor() -> Vec<Case> {
    let case = |connections: u32| {
        let name = format!("hello-one-processor-{connections}");
        Case::new(
            &name,
            "hello",
            &["pronghorn", "pronghorn-classic", FPM],
            &[connections],
        )
        .with_workers(1)
        .with(|setup| setup.processors = Some("0"))
    };
    [10, 100, 1000].map(case).into()
}

/// A case each: whoever fails with many connections has figures for fewer.
fn connections() -> Vec<Case> {
    let case = |connections: u32| {
        let name = format!("hello-{connections}-connections");
        Case::new(
            &name,
            "hello",
            &["pronghorn", "pronghorn-classic", FPM],
            &[connections],
        )
    };
    [1, 10, 100, 1000, 5000, 10_000].map(case).into()
}

fn workers() -> Vec<Case> {
    let case = |workers: u16| {
        let name = format!("hello-{workers}-workers");
        Case::new(&name, "hello", &["pronghorn", FPM], &[100]).with_workers(workers)
    };
    [1, 2, 4, 8, 16, 32, 64, 100].map(case).into()
}

fn memory() -> Vec<Case> {
    let case = |workers: u16| {
        let name = format!("memory-{workers}-workers");
        let servers = ["pronghorn", "pronghorn-exec", "pronghorn-classic", FPM];
        Case::new(&name, "laravel-landing-bare", &servers, &[50]).with_workers(workers)
    };
    [1, 4, 16, 64].map(case).into()
}

fn waiting() -> Vec<Case> {
    let case = |workers: u16| {
        let name = format!("waiting-{workers}-workers");
        Case::new(&name, "slow", &["pronghorn", FPM], &[100]).with_workers(workers)
    };
    [1, 4, 16, 64].map(case).into()
}

/// The base, and what one suspect makes of it.
fn suspects() -> Vec<Case> {
    let mut cases = vec![suspected("base", &[])];
    cases.extend(
        SUSPECTS
            .iter()
            .map(|suspect| suspected(suspect.name, &[suspect])),
    );
    cases
}

fn together() -> Vec<Case> {
    let combinations = COMBINATIONS.iter();
    let case = |combination: &super::suspects::Combination| {
        let suspects: Vec<&Suspect> = combination.suspects().collect();
        suspected(combination.name, &suspects)
    };
    combinations.map(case).collect()
}

/// The landing page without sessions, by workers forked from one process (no fallback to others),
/// unless a suspect wants it otherwise.
fn suspected(name: &'static str, suspects: &[&Suspect]) -> Case {
    let ours = suspects.iter().rev().find_map(|suspect| suspect.server);
    let servers = [ours.unwrap_or("pronghorn"), FPM];
    let connections = suspects
        .iter()
        .filter_map(|suspect| suspect.connections)
        .max();
    let connections = connections.unwrap_or(SUSPECT_CONNECTIONS);
    let mut case = Case::new(name, "laravel-landing", &servers, &[connections]).with(|setup| {
        setup.ini.push("bench.sessions = array".to_owned());
        setup.pool.push(("spawn", json!("fork")));
    });
    case.is_suspected = true;
    for suspect in suspects {
        if let Some(workers) = suspect.workers {
            case.workers = workers;
        }
        (suspect.change)(&mut case.setup);
    }
    case
}

impl Part {
    /// How often each of its rows is measured.
    pub(crate) const fn rounds(&self, rounds: u32) -> u32 {
        if self.once { 1 } else { rounds }
    }

    /// With `--quick` its first case and a few more, each with its first servers and load: whether
    /// it works, not how fast.
    pub(crate) fn quick(mut self) -> Self {
        const CASES: usize = 2;
        let last = self.cases.len().saturating_sub(1);
        let mut index = 0;
        self.cases.retain(|_| {
            index += 1;
            index < CASES || index - 1 == last
        });
        for case in &mut self.cases {
            let fpm = case.servers.iter().position(|name| *name == FPM);
            let kept = [0, fpm.unwrap_or(1)];
            let servers = kept.iter().filter_map(|index| case.servers.get(*index));
            case.servers = servers.copied().collect();
            case.connections.truncate(1);
            case.workers = case.workers.min(4);
        }
        self
    }

    /// What the rounds take.
    pub(crate) fn jobs<'a>(&self, arguments: &'a Arguments) -> Result<Vec<Job<'a>>, BenchError> {
        self.cases.iter().map(|case| case.job(arguments)).collect()
    }
}

impl Case {
    fn job<'a>(&self, arguments: &'a Arguments) -> Result<Job<'a>, BenchError> {
        let mut read = select(&folder(), &[self.scenario.to_owned()])?;
        let scenario = read.pop().ok_or_else(|| BenchError::NoScenario {
            name: self.scenario.to_owned(),
            known: String::new(),
        })?;
        let scenario = Scenario {
            name: self.name.clone(),
            workers: self.workers,
            setup: self.setup.clone(),
            ..scenario
        };
        let can = |name: &str| name != "pronghorn-roadrunner" || arguments.packages.is_some();
        let named = |name: &&'static str| built_in().find(|adapter| adapter.name() == *name);
        let known = self
            .servers
            .iter()
            .filter(|name| can(name))
            .filter_map(named);
        let mut servers: Vec<&'a dyn Adapter> = Vec::new();
        for adapter in known {
            servers.push(adapter);
        }
        // Suspects are looked at in ours, beside php-fpm.
        let peers = arguments.peers.iter();
        for peer in peers.filter(|peer| !self.is_suspected && peer.serves(self.scenario)) {
            servers.push(peer);
        }
        let load = |&connections| Load::Closed { connections };
        Ok(Job {
            scenario,
            servers,
            loads: self.connections.iter().map(load).collect(),
            seconds: arguments.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own_and_servers_that_are_there() {
        let mut names = BTreeSet::new();
        let arguments = Arguments::parse_from(["pronghorn-bench", "--packages", "."]);
        for part in parts() {
            assert_eq!(part.jobs(&arguments).unwrap().len(), part.cases.len());
            for case in part.cases {
                let job = case.job(&arguments).unwrap();
                assert_eq!(job.servers.len(), case.servers.len(), "{}", case.name);
                assert!(
                    names.insert(case.name.clone()),
                    "{} is there twice",
                    case.name
                );
            }
        }
    }

    #[test]
    fn the_whole_takes_an_hour_at_most_with_room_for_repeats() {
        let words = [
            "pronghorn-bench",
            "--packages",
            ".",
            "--rounds",
            "3",
            "--seconds",
            "2",
        ];
        let arguments = Arguments::parse_from(words);
        let time = |part: &Part| -> Duration {
            let jobs = part.jobs(&arguments).unwrap();
            jobs.iter()
                .map(|job| job.time(part.rounds(arguments.rounds)))
                .sum()
        };
        let all: Duration = parts().iter().map(time).sum();
        assert!(all < Duration::from_secs(50 * 60), "{all:?}");
        let quick: Duration = parts()
            .into_iter()
            .map(Part::quick)
            .map(|part| time(&part))
            .sum();
        assert!(quick < all / 4, "{quick:?}");
    }
}
