//! What a run is to measure: scenarios, each with its servers and loads.

use std::time::Duration;

use crate::arguments::Arguments;
use crate::error::BenchError;
use crate::scenario::{Extent, Load, Scenario, folder, select};
use crate::servers::{Adapter, Peer, built_in, floor, names};

/// Seconds of load before the first round: PHP compiles, memory grows to its size.
pub(crate) const WARM_UP: u32 = 1;
/// Beside its seconds: looks before and after, the load generator's start.
const BESIDE: Duration = Duration::from_millis(300);
/// Until the servers of a scenario run and their memory was looked at.
const SET_UP: Duration = Duration::from_secs(3);
/// Connections of `--open` when none are named.
const OPEN_CONNECTIONS: u32 = 20;

/// One scenario.
pub(crate) struct Job<'a> {
    pub(crate) scenario: Scenario,
    pub(crate) servers: Vec<&'a dyn Adapter>,
    pub(crate) loads: Vec<Load>,
    /// Of load in each measurement.
    pub(crate) seconds: u32,
}

impl Job<'_> {
    /// One measurement, as long as nothing is repeated.
    pub(crate) fn each(&self) -> Duration {
        Duration::from_secs(self.seconds.into()) + BESIDE
    }

    pub(crate) fn measurements(&self, rounds: u32) -> u32 {
        let of_a_round = self.servers.len() * self.loads.len();
        rounds * u32::try_from(of_a_round).unwrap_or(u32::MAX)
    }

    pub(crate) fn time(&self, rounds: u32) -> Duration {
        let warm_up = Duration::from_secs(WARM_UP.into()) + BESIDE;
        let once = self.measurements(rounds.min(1));
        self.each() * self.measurements(rounds) + warm_up * once + SET_UP
    }
}

/// In the order in which they are measured.
pub(crate) fn jobs(arguments: &Arguments) -> Result<Vec<Job<'_>>, BenchError> {
    if let Some(name) = arguments
        .servers
        .iter()
        .find(|name| !is_server(name, &arguments.peers))
    {
        let known: Vec<_> = names().collect();
        return Err(BenchError::NoAdapter {
            name: name.clone(),
            known: known.join(", "),
        });
    }
    let mut scenarios = select(&folder(), &arguments.scenarios)?;
    if arguments.scenarios.is_empty() && !arguments.full {
        scenarios.retain(|scenario| scenario.short.is_some());
    }
    let jobs = scenarios
        .into_iter()
        .map(|scenario| job(scenario, arguments));
    Ok(jobs.filter(|job| !job.servers.is_empty()).collect())
}

fn is_server(name: &str, peers: &[Peer]) -> bool {
    names().any(|known| known == name) || peers.iter().any(|peer| peer.name() == name)
}

fn job(scenario: Scenario, arguments: &Arguments) -> Job<'_> {
    let extent = match &scenario.short {
        Some(short) if !arguments.full => short,
        _ => &scenario.full,
    };
    let loads = loads(extent, arguments);
    // Whoever names servers may mean one that the short run leaves out.
    let listed = if arguments.servers.is_empty() {
        &extent.servers
    } else {
        &scenario.full.servers
    };
    let wanted = |name: &str| {
        arguments.servers.is_empty() || arguments.servers.iter().any(|wanted| wanted == name)
    };
    let can = |name: &str| name != "pronghorn-roadrunner" || arguments.packages.is_some();
    let mut servers: Vec<&dyn Adapter> = Vec::new();
    for adapter in built_in() {
        let name = adapter.name();
        if listed.iter().any(|listed| listed == name) && wanted(name) && can(name) {
            servers.push(adapter);
        }
    }
    let peers = arguments.peers.iter();
    for peer in peers.filter(|peer| peer.serves(&scenario.name) && wanted(peer.name())) {
        servers.push(peer);
    }
    // Where handlers wait, CPU time is not the point.
    if !servers.is_empty() && scenario.waits.is_none() {
        servers.push(floor());
    }
    let seconds = arguments.seconds.max(scenario.seconds.unwrap_or(0));
    Job {
        scenario,
        servers,
        loads,
        seconds,
    }
}

fn loads(extent: &Extent, arguments: &Arguments) -> Vec<Load> {
    let named = arguments.connections.iter().copied();
    match arguments.open {
        Some(rate) => {
            let open = |connections| Load::Open { rate, connections };
            let mut loads: Vec<Load> = named.map(open).collect();
            if loads.is_empty() {
                loads.push(open(OPEN_CONNECTIONS));
            }
            loads
        }
        None if arguments.connections.is_empty() => extent.loads.clone(),
        None => named
            .map(|connections| Load::Closed { connections })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn planned(arguments: &str) -> Vec<(String, Vec<String>, Vec<Load>)> {
        let words = std::iter::once("pronghorn-bench").chain(arguments.split_whitespace());
        let arguments = Arguments::parse_from(words);
        let jobs = jobs(&arguments).unwrap();
        let named = |job: &Job<'_>| {
            job.servers
                .iter()
                .map(|server| server.name().to_owned())
                .collect()
        };
        jobs.iter()
            .map(|job| (job.scenario.name.clone(), named(job), job.loads.clone()))
            .collect()
    }

    #[test]
    fn the_short_run_is_a_part_of_the_full_one() {
        let (short, full) = (planned(""), planned("--full"));
        assert!(short.len() < full.len());
        for (scenario, servers, _) in &short {
            let (_, all, _) = full.iter().find(|(name, ..)| name == scenario).unwrap();
            assert!(
                servers.iter().all(|server| all.contains(server)),
                "{scenario}"
            );
        }
    }

    #[test]
    fn the_short_run_takes_at_most_ten_minutes_with_room_for_repeats() {
        let arguments = Arguments::parse_from(["pronghorn-bench"]);
        let jobs = jobs(&arguments).unwrap();
        let time: Duration = jobs.iter().map(|job| job.time(arguments.rounds)).sum();
        assert!(time < Duration::from_secs(510), "{time:?}");
    }

    #[test]
    fn the_yardstick_goes_with_every_scenario() {
        let jobs = planned("--scenarios hello --servers nginx-fpm,pronghorn --connections 5");
        let names = ["pronghorn", "nginx-fpm", "nginx"]
            .map(str::to_owned)
            .to_vec();
        let loads = vec![Load::Closed { connections: 5 }];
        assert_eq!(jobs, [("hello".to_owned(), names, loads)]);
    }

    #[test]
    fn a_constant_rate_takes_the_place_of_as_fast_as_possible() {
        let jobs = planned("--scenarios hello --servers pronghorn --open 500 --connections 7");
        assert_eq!(
            jobs[0].2,
            [Load::Open {
                rate: 500,
                connections: 7
            }]
        );
    }

    #[test]
    fn a_peer_joins_where_it_can() {
        let arguments = [
            "pronghorn-bench",
            "--scenarios",
            "hello,slow",
            "--servers",
            "x",
            "--peer",
            "x@slow=run {port}",
        ];
        let arguments = Arguments::parse_from(arguments);
        let jobs = jobs(&arguments).unwrap();
        assert_eq!(jobs.len(), 1);
        assert_eq!(jobs[0].servers[0].name(), "x");
    }

    #[test]
    fn an_unknown_server_is_refused() {
        let arguments = Arguments::parse_from(["pronghorn-bench", "--servers", "ngnix"]);
        let error = jobs(&arguments).err().unwrap().to_string();
        assert!(
            error.contains("`ngnix`") && error.contains("nginx-fpm"),
            "{error}"
        );
    }
}
