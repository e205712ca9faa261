//! The rounds: each row under load for a few seconds, one after the other, again and again.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::arguments::Arguments;
use crate::client::check;
use crate::error::BenchError;
use crate::processes::{Machine, own_cpu};
use crate::report::{Report, tell};
use crate::rows::Server;
use crate::site::Site;
use crate::wrk::{self, Seen};

/// How often a measurement is made again because others were at work.
const REPEATS: u32 = 2;
/// Seconds of load before the first round: PHP compiles, memory grows to its size.
const WARM_UP: u32 = 1;

/// One row in one round.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Sample {
    pub(crate) row: &'static str,
    pub(crate) connections: u32,
    pub(crate) round: u32,
    #[serde(flatten)]
    pub(crate) seen: Seen,
    /// CPU microseconds per request.
    #[serde(rename = "cpu_us_server")]
    pub(crate) server: f64,
    #[serde(rename = "cpu_us_php")]
    pub(crate) php: f64,
    /// Percentage of the machine's CPU that went to other processes meanwhile.
    #[serde(rename = "others_percent")]
    pub(crate) others: f64,
    pub(crate) repeats: u32,
}

impl Sample {
    pub(crate) fn cpu(&self) -> f64 {
        self.server + self.php
    }
}

/// Measures all rows. One that fails is left out from then on.
pub(crate) async fn run(
    servers: &mut Vec<Server>,
    site: &Site,
    arguments: &Arguments,
    report: &mut Report,
) {
    let mut progress = Progress::new(servers.len(), arguments);
    for round in 1..=arguments.rounds {
        for &connections in &arguments.connections {
            let mut measured = Vec::new();
            for server in servers.drain(..) {
                let name = server.row.name;
                tell(&format!(
                    "round {round} of {}: {name}, connections: {connections}; about {} s left",
                    arguments.rounds,
                    progress.left().as_secs()
                ));
                if round == 1 {
                    // Whatever is wrong shows again under load.
                    _ = wrk::run(server.address, connections, WARM_UP, site).await;
                }
                match calm_sample(&server, round, connections, site, arguments).await {
                    Ok(sample) => {
                        report.samples.push(sample);
                        measured.push(server);
                    }
                    Err(error) => {
                        report.leave_out(name, &error);
                        server.stop().await;
                    }
                }
                progress.done += 1;
            }
            *servers = measured;
        }
    }
}

/// How far the rounds are.
struct Progress {
    start: Instant,
    done: u32,
    all: u32,
    /// As long as none is done.
    each: Duration,
}

impl Progress {
    fn new(rows: usize, arguments: &Arguments) -> Self {
        let all = rows * arguments.connections.len() * arguments.rounds as usize;
        Self {
            start: Instant::now(),
            done: 0,
            all: u32::try_from(all).unwrap_or(u32::MAX),
            each: Duration::from_secs(arguments.seconds.into()),
        }
    }

    /// At the pace so far, repeats included.
    fn left(&self) -> Duration {
        let each = self.start.elapsed().checked_div(self.done);
        each.unwrap_or(self.each) * self.all.saturating_sub(self.done)
    }
}

/// Of several tries the one that others disturbed least.
async fn calm_sample(
    server: &Server,
    round: u32,
    connections: u32,
    site: &Site,
    arguments: &Arguments,
) -> Result<Sample, BenchError> {
    let mut repeats = 0;
    let mut best: Option<Sample> = None;
    loop {
        let tried = sample(server, round, connections, site, arguments.seconds).await?;
        let calmest = best
            .filter(|best| best.others <= tried.others)
            .unwrap_or(tried);
        if calmest.others <= arguments.noise || repeats == REPEATS {
            return Ok(Sample { repeats, ..calmest });
        }
        tell(&format!(
            "  others took {:.0} % of the CPU: again",
            tried.others
        ));
        best = Some(calmest);
        repeats += 1;
    }
}

async fn sample(
    server: &Server,
    round: u32,
    connections: u32,
    site: &Site,
    seconds: u32,
) -> Result<Sample, BenchError> {
    check(server.address).await?;
    let processes = server.processes();
    let (start, own_before, machine_before) = (Instant::now(), own_cpu(), Machine::read());
    let before = processes.cpu().ok_or(BenchError::Changed)?;
    let seen = wrk::run(server.address, connections, seconds, site).await?;
    let after = processes.cpu().ok_or(BenchError::Changed)?;
    let (elapsed, own_after, machine_after) = (start.elapsed(), own_cpu(), Machine::read());
    if server.processes() != processes {
        return Err(BenchError::Changed);
    }
    let took = after.since(before);
    let ours = took.server + took.php + own_after.saturating_sub(own_before);
    let per_request = |time: Duration| time.as_secs_f64() * 1e6 / seen.requests;
    Ok(Sample {
        row: server.row.name,
        connections,
        round,
        seen,
        server: per_request(took.server),
        php: per_request(took.php),
        others: match (machine_before, machine_after) {
            (Some(before), Some(after)) => after.others(&before, ours, elapsed),
            _ => return Err(BenchError::NoMachine),
        },
        repeats: 0,
    })
}
