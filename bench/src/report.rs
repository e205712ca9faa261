//! All figures of a run: the table on standard output, the file of `--json`; what goes on meanwhile on standard error.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::arguments::Arguments;
use crate::error::BenchError;
use crate::goals::{Goal, goals};
use crate::memory::AtRest;
use crate::rounds::Sample;
use crate::rows::RIVALS;
use crate::scenario::{Load, Scenario};
use crate::spread::{Spread, grouped};
use crate::syscalls::{Calls, Count};
use crate::table::Table;

/// Says something on standard error.
#[expect(clippy::print_stderr, reason = "this is where the command speaks")]
pub(crate) fn tell(text: &str) {
    eprintln!("{text}");
}

/// What can be asked, as a table.
pub(crate) fn print_scenarios(scenarios: &[Scenario]) {
    let mut table = Table::new(["scenario", " ", " servers", " connections"]);
    let words = |words: Vec<String>| format!(" {}", words.join(" "));
    for scenario in scenarios {
        let loads = scenario.full.loads.iter().map(Load::to_string);
        table.add([
            scenario.name.clone(),
            format!(" {}", scenario.what),
            words(scenario.full.servers.clone()),
            words(loads.collect()),
        ]);
    }
    _ = io::stdout().write_all(table.text().as_bytes()); // nobody reads it: nothing to be done
}

pub(crate) struct Report {
    machine: Vec<(&'static str, String)>,
    rounds: u32,
    seconds: u32,
    noise: f64,
    pub(crate) samples: Vec<Sample>,
    pub(crate) memory: Vec<AtRest>,
    pub(crate) syscalls: Vec<Count>,
    /// What could not be measured, and why.
    left_out: Vec<(String, String)>,
}

/// What the rounds of one row gave.
#[derive(Debug, Serialize)]
pub(crate) struct Rate {
    pub(crate) row: &'static str,
    pub(crate) connections: u32,
    pub(crate) requests_per_second: Spread,
    pub(crate) p50_us: Spread,
    pub(crate) p99_us: Spread,
    pub(crate) cpu_us: Spread,
    pub(crate) cpu_us_server: Spread,
    pub(crate) cpu_us_php: Spread,
    /// CPU time per request as a multiple of a rival's in the same round.
    pub(crate) cpu_to: BTreeMap<&'static str, Spread>,
    /// Measurements made again because others were at work.
    pub(crate) repeats: u32,
    /// Rounds in which the calmest try was still disturbed.
    pub(crate) disturbed: u32,
}

#[derive(Serialize)]
struct Json<'a> {
    machine: BTreeMap<&'a str, &'a str>,
    rounds: u32,
    seconds: u32,
    noise_percent: f64,
    rates: Vec<Rate>,
    memory: &'a [AtRest],
    syscalls: &'a [Count],
    goals: Vec<Goal>,
    left_out: &'a [(String, String)],
    samples: &'a [Sample],
}

impl Report {
    pub(crate) fn new(machine: Vec<(&'static str, String)>, arguments: &Arguments) -> Self {
        Self {
            machine,
            rounds: arguments.rounds,
            seconds: arguments.seconds,
            noise: arguments.noise,
            samples: Vec::new(),
            memory: Vec::new(),
            syscalls: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Notes that something was not measured. Of a row, what was measured before no longer counts.
    pub(crate) fn leave_out(&mut self, what: &str, error: &BenchError) {
        tell(&format!("error: {what}: {error}"));
        self.samples.retain(|sample| sample.row != what);
        self.left_out.push((what.to_owned(), error.to_string()));
    }

    /// Success is that all was measured, whatever came out.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.left_out.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), BenchError> {
        let rates = self.rates();
        let json = Json {
            machine: self
                .machine
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect(),
            rounds: self.rounds,
            seconds: self.seconds,
            noise_percent: self.noise,
            goals: goals(&rates, &self.memory),
            rates,
            memory: &self.memory,
            syscalls: &self.syscalls,
            left_out: &self.left_out,
            samples: &self.samples,
        };
        let text = serde_json::to_string_pretty(&json).expect("all keys are texts");
        std::fs::write(file, text + "\n").map_err(|source| BenchError::Write {
            file: file.to_owned(),
            source,
        })
    }

    pub(crate) fn print(&self) {
        _ = io::stdout().write_all(self.text().as_bytes()); // nobody reads it: nothing to be done
    }

    fn text(&self) -> String {
        let mut parts = vec![self.head()];
        let rates = self.rates();
        let mut connections: Vec<u32> = rates.iter().map(|rate| rate.connections).collect();
        connections.dedup();
        for connections in connections {
            parts.push(rate_table(connections, &rates));
        }
        parts.push(self.noise(&rates));
        parts.push(self.memory_table());
        parts.push(self.syscall_lists());
        parts.push(goal_table(&goals(&rates, &self.memory)));
        let left_out = self.left_out.iter();
        // The whole of it was told when it happened.
        let first_line = |why: &str| why.lines().next().unwrap_or_default().to_owned();
        parts
            .extend(left_out.map(|(what, why)| format!("left out: {what}: {}\n", first_line(why))));
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }

    fn head(&self) -> String {
        let mut table = Table::new([]);
        for (name, value) in &self.machine {
            table.add([(*name).to_owned(), value.clone()]);
        }
        table.text()
    }

    /// By connections, then in the order of the rows.
    fn rates(&self) -> Vec<Rate> {
        let mut groups: Vec<(u32, &'static str)> = Vec::new();
        for sample in &self.samples {
            let group = (sample.connections, sample.row);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
            .iter()
            .filter_map(|&(connections, row)| self.rate(row, connections))
            .collect()
    }

    fn rate(&self, row: &'static str, connections: u32) -> Option<Rate> {
        let samples = || {
            let all = self.samples.iter();
            all.filter(move |sample| sample.row == row && sample.connections == connections)
        };
        let spread = |figure: fn(&Sample) -> f64| Spread::of(samples().map(figure));
        let against = |rival: &'static str| {
            let ratios = samples().filter_map(|sample| {
                let of_round = |other: &&Sample| {
                    (other.row, other.connections, other.round)
                        == (rival, connections, sample.round)
                };
                Some(sample.cpu() / self.samples.iter().find(of_round)?.cpu())
            });
            Some((rival, Spread::of(ratios)?))
        };
        let disturbed = samples()
            .filter(|sample| sample.others > self.noise)
            .count();
        Some(Rate {
            row,
            connections,
            requests_per_second: spread(|sample| sample.seen.rate)?,
            p50_us: spread(|sample| sample.seen.p50)?,
            p99_us: spread(|sample| sample.seen.p99)?,
            cpu_us: spread(Sample::cpu)?,
            cpu_us_server: spread(|sample| sample.server)?,
            cpu_us_php: spread(|sample| sample.php)?,
            cpu_to: RIVALS.into_iter().filter_map(against).collect(),
            repeats: samples().map(|sample| sample.repeats).sum(),
            disturbed: u32::try_from(disturbed).unwrap_or(u32::MAX),
        })
    }

    fn noise(&self, rates: &[Rate]) -> String {
        if rates.is_empty() {
            return String::new();
        }
        let repeats: u32 = rates.iter().map(|rate| rate.repeats).sum();
        let disturbed: u32 = rates.iter().map(|rate| rate.disturbed).sum();
        format!(
            "Rounds: {}, of {} s for each; medians (least–most). CPU is that of all processes of the server, per request; × is how
many times that of another row. Measurements repeated because other work took over {} % of the machine's CPU: {repeats}.
Disturbed all the same, marked with !: {disturbed} of {}.\n",
            self.rounds,
            self.seconds,
            self.noise,
            self.samples.len(),
        )
    }

    fn memory_table(&self) -> String {
        let mut table = Table::new([
            "memory at rest",
            "server RSS",
            "PSS",
            "PHP PSS",
            "an idle connection",
        ]);
        for row in &self.memory {
            table.add([
                row.row.to_owned(),
                megabytes(row.server.rss),
                megabytes(row.server.pss),
                megabytes(row.php.pss),
                format!("{} B", grouped(row.idle_connection)),
            ]);
        }
        table.text()
    }

    fn syscall_lists(&self) -> String {
        let mut table = Table::new([
            "system calls per request",
            "connections",
            "server",
            "PHP",
            "  by name",
        ]);
        // Without calls there are no processes: nothing, not 0.
        let sum = |calls: &Calls| {
            let sum = calls.values().copied().reduce(|sum, calls| sum + calls);
            sum.map(|sum| format!("{sum:.2}")).unwrap_or_default()
        };
        for count in &self.syscalls {
            let by_name = |side, calls| format!("  {side}: {}", names(calls));
            table.add([
                count.row.to_owned(),
                count.connections.to_string(),
                sum(&count.server),
                sum(&count.php),
                by_name("server", &count.server),
            ]);
            if !count.php.is_empty() {
                let nothing = String::new;
                table.add([
                    nothing(),
                    nothing(),
                    nothing(),
                    nothing(),
                    by_name("PHP", &count.php),
                ]);
            }
        }
        table.text()
    }
}

fn rate_table(connections: u32, rates: &[Rate]) -> String {
    let title = format!("connections: {connections}");
    let mut table = Table::new([
        title.as_str(),
        "req/s",
        "",
        "p50 µs",
        "p99 µs",
        "CPU µs",
        "",
        "server + PHP",
        "× nginx-fpm",
        "× nginx",
        "",
    ]);
    for rate in rates.iter().filter(|rate| rate.connections == connections) {
        let ratio = |rival| match rate.cpu_to.get(rival) {
            Some(ratio) => format!("{:.2}", ratio.median),
            None => String::new(),
        };
        let (requests, cpu) = (rate.requests_per_second, rate.cpu_us);
        table.add([
            rate.row.to_owned(),
            grouped(requests.median),
            format!("({}–{})", grouped(requests.min), grouped(requests.max)),
            grouped(rate.p50_us.median),
            grouped(rate.p99_us.median),
            format!("{:.1}", cpu.median),
            format!("({:.1}–{:.1})", cpu.min, cpu.max),
            format!(
                "{:.1} + {:.1}",
                rate.cpu_us_server.median, rate.cpu_us_php.median
            ),
            ratio("nginx-fpm"),
            ratio("nginx"),
            "!".repeat(rate.disturbed as usize),
        ]);
    }
    table.text()
}

fn goal_table(goals: &[Goal]) -> String {
    let mut table = Table::new(["goals", "at most", "measured", ""]);
    for goal in goals {
        table.add([
            goal.what.clone(),
            format!("{} {}", goal.limit, goal.unit),
            format!("{:.2} {}", goal.measured, goal.unit),
            if goal.met { "met" } else { "missed" }.to_owned(),
        ]);
    }
    table.text()
}

/// The most frequent first, those that hardly ever happen left out.
fn names(calls: &Calls) -> String {
    const RARE: f64 = 0.005;
    let mut calls: Vec<_> = calls.iter().filter(|(_, calls)| **calls >= RARE).collect();
    calls.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    let names: Vec<_> = calls
        .iter()
        .map(|(name, calls)| format!("{name} {calls:.2}"))
        .collect();
    names.join(", ")
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::wrk::Seen;

    fn sample(row: &'static str, round: u32, cpu: f64, others: f64) -> Sample {
        let seen = Seen {
            requests: 4000.0,
            rate: 1000.0,
            p50: 90.0,
            p99: 200.0,
        };
        Sample {
            row,
            connections: 10,
            round,
            seen,
            server: cpu,
            php: 0.0,
            others,
            repeats: u32::from(others > 5.0) * 2,
        }
    }

    fn report() -> Report {
        let mut report = Report::new(Vec::new(), &Arguments::parse_from(["pronghorn-bench"]));
        report.samples = vec![
            sample("native", 1, 10.0, 0.0),
            sample("nginx", 1, 5.0, 0.0),
            sample("native", 2, 60.0, 9.0),
            sample("nginx", 2, 20.0, 5.0),
            sample("native", 3, 12.0, 0.0),
            sample("nginx", 3, 3.0, 0.0),
        ];
        report
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        let rates = report().rates();
        let native = &rates[0];
        assert_eq!((native.row, native.cpu_us.median), ("native", 12.0));
        let to_nginx = native.cpu_to["nginx"];
        assert_eq!(
            (to_nginx.min, to_nginx.median, to_nginx.max),
            (2.0, 3.0, 4.0)
        );
        assert!(!native.cpu_to.contains_key("nginx-fpm"));
    }

    #[test]
    fn disturbed_rounds_are_counted() {
        let rates = report().rates();
        assert_eq!((rates[0].repeats, rates[0].disturbed), (2, 1));
        assert_eq!((rates[1].repeats, rates[1].disturbed), (0, 0));
    }

    #[test]
    fn a_row_that_failed_has_no_figures() {
        let mut report = report();
        report.leave_out("nginx", &BenchError::Changed);
        assert_eq!(report.rates().len(), 1);
        assert!(report.text().contains("left out: nginx: "));
    }
}
