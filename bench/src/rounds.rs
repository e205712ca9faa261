//! The rounds: each server of a scenario under load for a few seconds, one after the other, again
//! and again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::arguments::Arguments;
use crate::beside::Beside;
use crate::error::BenchError;
use crate::load;
use crate::phases::Phases;
use crate::plan::{Job, WARM_UP};
use crate::processes::{Machine, own_cpu};
use crate::report::{Report, tell};
use crate::results::{AtRest, Row, Sample};
use crate::scenario::Load;
use crate::servers::Server;
use crate::site::Site;
use crate::syscalls;

/// How often a measurement is made again because others were at work.
const REPEATS: u32 = 2;
/// After its last answer a server may still tidy up.
const SETTLE: Duration = Duration::from_millis(500);

/// Measures all jobs. A server that fails in one is left out of the rest of it.
pub(crate) async fn run(jobs: &[Job<'_>], site: &Site, arguments: &Arguments, report: &mut Report) {
    let mut budget = Budget::new(jobs, arguments);
    tell(&format!(
        "{} scenarios, {} measurements: about {} minutes, and at most {} with repeats",
        jobs.len(),
        jobs.iter()
            .map(|job| job.measurements(arguments.rounds))
            .sum::<u32>(),
        budget.all.as_secs().div_ceil(60),
        budget.limit.as_secs().div_ceil(60),
    ));
    for (index, job) in jobs.iter().enumerate() {
        let name = &job.scenario.name;
        if budget.is_over() {
            report.leave_out(name, &BenchError::OverTime);
            continue;
        }
        tell(&format!("scenario {} of {}: {name}", index + 1, jobs.len()));
        scenario(job, &mut budget, site, arguments, report).await;
    }
}

async fn scenario(
    job: &Job<'_>,
    budget: &mut Budget,
    site: &Site,
    arguments: &Arguments,
    report: &mut Report,
) {
    let scenario = &job.scenario;
    let row = |server: &str| format!("{}, {server}", scenario.name);
    let beside = match Beside::start(scenario, site).await {
        Ok(beside) => beside,
        Err(error) => return report.leave_out(&scenario.name, &error),
    };
    let mut servers = Vec::new();
    for adapter in &job.servers {
        match Server::start(*adapter, scenario, site).await {
            Ok(server) => servers.push(server),
            Err(error) => report.leave_out(&row(adapter.name()), &error),
        }
    }
    sleep(SETTLE).await;
    for server in &servers {
        report.results.servers.push(AtRest {
            scenario: scenario.name.clone(),
            server: server.name.clone(),
            start_ms: server.start.map(|start| start.as_secs_f64() * 1e3),
            rest: server.processes().memory(),
            after: None,
        });
    }
    for round in 1..=arguments.rounds {
        for &load in &job.loads {
            let mut measured = Vec::new();
            for server in servers.drain(..) {
                tell(&format!(
                    "  {}, round {round} of {}, connections: {load}, {}; about {} s left",
                    scenario.name,
                    arguments.rounds,
                    server.name,
                    budget.left().as_secs()
                ));
                let of = Measured {
                    job,
                    server: &server,
                    beside: &beside,
                    load,
                    round,
                };
                match of.calm_sample(budget, site, arguments, report).await {
                    Ok(()) => measured.push(server),
                    // What was measured in time counts.
                    Err(BenchError::OverTime) => {
                        let what = format!(
                            "{}: round {round} of {} with connections {load}",
                            scenario.name, server.name
                        );
                        report.leave_out(&what, &BenchError::OverTime);
                        measured.push(server);
                    }
                    Err(error) => {
                        report.leave_out(&row(&server.name), &error);
                        server.stop().await;
                    }
                }
                budget.done += job.each();
            }
            servers = measured;
        }
    }
    sleep(SETTLE).await;
    for server in &servers {
        let of_it = |at_rest: &&mut AtRest| {
            (&at_rest.scenario, &at_rest.server) == (&scenario.name, &server.name)
        };
        if let Some(at_rest) = report.results.servers.iter_mut().find(of_it) {
            at_rest.after = server.processes().memory();
        }
    }
    if arguments.syscalls {
        syscalls::count(&servers, site, report).await;
    }
    for server in servers {
        server.stop().await;
    }
    beside.stop().await;
}

/// One measurement.
struct Measured<'a> {
    job: &'a Job<'a>,
    server: &'a Server,
    beside: &'a Beside,
    load: Load,
    round: u32,
}

impl Measured<'_> {
    /// Tries until others leave it alone. What they disturbed is noted, and is no figure.
    async fn calm_sample(
        &self,
        budget: &Budget,
        site: &Site,
        arguments: &Arguments,
        report: &mut Report,
    ) -> Result<(), BenchError> {
        if budget.is_over() {
            return Err(BenchError::OverTime);
        }
        if self.round == 1 {
            // Whatever is wrong shows again under load.
            _ = load::run(self.server, self.load, WARM_UP, site).await;
        }
        let mut repeats = 0;
        loop {
            let sample = self.sample(site, repeats).await?;
            let others = sample.others_percent;
            if others <= arguments.noise {
                report.results.samples.push(sample);
                return Ok(());
            }
            report.results.refused.push(sample);
            if repeats == REPEATS || !budget.allows(self.job.each()) {
                tell(&format!("    others took {others:.0} % of a CPU: refused"));
                return Ok(());
            }
            tell(&format!("    others took {others:.0} % of a CPU: again"));
            repeats += 1;
        }
    }

    async fn sample(&self, site: &Site, repeats: u32) -> Result<Sample, BenchError> {
        let Self {
            job,
            server,
            beside,
            load,
            round,
        } = self;
        let processes = server.processes();
        if processes.is_empty() {
            return Err(BenchError::NoProcesses(server.address));
        }
        let phases = Phases::ask(server.metrics).await?;
        let (start, own_before, machine_before) = (Instant::now(), own_cpu(), Machine::read());
        let (before, beside_before) = (processes.cpu(), beside.cpu());
        let seen = load::run(server, *load, job.seconds, site).await?;
        let after = server.processes().cpu();
        let (elapsed, own_after, machine_after) = (start.elapsed(), own_cpu(), Machine::read());
        let took = after.since(&before).ok_or(BenchError::Changed)?;
        let own = own_after.saturating_sub(own_before);
        let ours = took.server + took.php + own + beside.cpu().saturating_sub(beside_before);
        let phases_us = Phases::ask(server.metrics).await?.since(&phases);
        let per_request = |time: Duration| time.as_secs_f64() * 1e6 / seen.requests;
        let mut others = match (machine_before, machine_after) {
            (Some(before), Some(after)) => after.others(&before, ours, elapsed),
            _ => return Err(BenchError::NoMachine),
        };
        let mut php = took.php;
        if server.forgets_children {
            php += elapsed.mul_f64(others.max(0.0) / 100.0);
            others = 0.0;
        }
        Ok(Sample {
            row: Row {
                scenario: job.scenario.name.clone(),
                server: server.name.clone(),
                load: load.to_string(),
            },
            round: *round,
            seen,
            cpu_us_server: per_request(took.server),
            cpu_us_php: per_request(php),
            cpu_us_client: per_request(own),
            phases_us,
            others_percent: others,
            repeats,
        })
    }
}

/// How far the run is, and what time it has.
struct Budget {
    start: Instant,
    limit: Duration,
    /// As planned, without repeats.
    all: Duration,
    done: Duration,
}

impl Budget {
    fn new(jobs: &[Job<'_>], arguments: &Arguments) -> Self {
        Self {
            start: Instant::now(),
            limit: arguments.limit(),
            all: jobs.iter().map(|job| job.time(arguments.rounds)).sum(),
            done: Duration::ZERO,
        }
    }

    fn is_over(&self) -> bool {
        self.start.elapsed() > self.limit
    }

    /// Whether there is time for a repeat: those that come later get their part too.
    fn allows(&self, repeat: Duration) -> bool {
        let share = (self.done + repeat).as_secs_f64() / self.all.as_secs_f64();
        self.start.elapsed() + repeat <= self.limit.mul_f64(share.min(1.0))
    }

    /// At the pace so far, repeats included.
    fn left(&self) -> Duration {
        let rest = self.all.saturating_sub(self.done);
        let pace = self.start.elapsed().as_secs_f64() / self.done.as_secs_f64().max(0.001);
        let pace = if self.done.is_zero() { 1.0 } else { pace };
        let ends = self.limit.saturating_sub(self.start.elapsed());
        rest.mul_f64(pace).min(ends)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeats_get_their_share_of_the_time_and_no_more() {
        let seconds = Duration::from_secs;
        let mut budget = Budget {
            start: Instant::now(),
            limit: seconds(200),
            all: seconds(100),
            done: Duration::ZERO,
        };
        assert_eq!(budget.left(), seconds(100));
        advance(seconds(3)).await;
        assert!(
            budget.allows(seconds(3)),
            "a tenth of the work may take a tenth of the limit"
        );
        advance(seconds(10)).await;
        assert!(!budget.allows(seconds(3)));
        budget.done = seconds(50);
        assert!(budget.allows(seconds(3)));
        assert_eq!(budget.left(), seconds(13));
        advance(seconds(188)).await;
        assert!(budget.is_over() && !budget.allows(seconds(3)));
        assert_eq!(budget.left(), Duration::ZERO);
    }
}
