//! The figures as files: one of each part while they are measured, and one of all, of which the
//! pages are made. Names end in their unit.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::parts::{FPM, Part};
use crate::error::BenchError;
use crate::results::{Results, Sample};
use crate::spread::Spread;

/// Raised when the pages could not be made of an older file.
const FORMAT: u32 = 1;
/// Two runs' ratios, or the rounds of one, may lie so far apart before a row is called unstable.
const STABLE: f64 = 0.15;
/// What CGI programs are compared with, who don't run behind php-fpm.
const OTHERS: [&str; 2] = [FPM, "apache-cgid"];

/// Whose file is there is not measured again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartRecord {
    format: u32,
    /// Of the server's binary, the part's cases, the rounds: another one is measured anew.
    fingerprint: String,
    /// All of it was measured, or can't be on this machine.
    pub(crate) complete: bool,
    pub(crate) date: String,
    pub(crate) machine: Vec<(String, String)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) left_out: Vec<(String, String)>,
}

/// All parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    format: u32,
    /// Whether it works was tried, not how fast it is.
    pub(crate) quick: bool,
    pub(crate) date: String,
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) machine: Vec<(String, String)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) left_out: Vec<(String, String)>,
}

/// A server in a case under a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) part: String,
    pub(crate) case: String,
    pub(crate) server: String,
    /// Connections.
    pub(crate) load: String,
    pub(crate) workers: u16,
    pub(crate) requests_per_second: Spread,
    /// Its rate to that of php-fpm (of Apache for CGI programs) in the same rounds.
    pub(crate) ratio: Option<Spread>,
    /// The rounds, or two runs, disagree about the ratio.
    pub(crate) unstable: bool,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    pub(crate) cpu_us: Spread,
    pub(crate) cpu_us_server: f64,
    pub(crate) cpu_us_php: f64,
    pub(crate) cpu_us_client: f64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) phases_us: BTreeMap<String, f64>,
    /// Of the answers; 0 where each was looked at.
    pub(crate) errors_percent: f64,
    /// Of all its processes after the load (PSS).
    pub(crate) memory_bytes: Option<f64>,
}

impl PartRecord {
    pub(crate) fn new(part: &Part, fingerprint: String, results: &Results) -> Self {
        let over = BenchError::OverTime.to_string();
        let calm = |lost: &Sample| results.samples.iter().any(|sample| sample.row == lost.row);
        Self {
            format: FORMAT,
            fingerprint,
            complete: results.refused.iter().all(calm)
                && results.left_out.iter().all(|(_, why)| *why != over),
            date: today(),
            machine: machine(results),
            rows: rows(part, results),
            left_out: left_out(results),
        }
    }

    /// Of the file, if it is there, whole, and of this binary and these cases.
    pub(crate) fn read(file: &Path, fingerprint: &str) -> Option<Self> {
        let record: Self = read(file).ok()?;
        let fits = record.format == FORMAT && record.fingerprint == fingerprint;
        (fits && record.complete).then_some(record)
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), BenchError> {
        write(self, file)
    }
}

impl Figures {
    /// Of parts, those of the last run's rows that disagree with `before` called unstable.
    pub(crate) fn of(records: Vec<PartRecord>, quick: bool, rounds: u32, seconds: u32) -> Self {
        let last = records.last();
        let mut figures = Self {
            format: FORMAT,
            quick,
            date: last.map_or_else(today, |record| record.date.clone()),
            rounds,
            seconds,
            machine: last.map_or_else(Vec::new, |record| record.machine.clone()),
            rows: Vec::new(),
            left_out: Vec::new(),
        };
        for record in records {
            figures.rows.extend(record.rows);
            figures.left_out.extend(record.left_out);
        }
        figures
    }

    /// Marks rows whose ratio another run saw differently.
    pub(crate) fn compare(&mut self, before: &Self) {
        for row in &mut self.rows {
            let same = |other: &&Row| {
                (&other.case, &other.server, &other.load) == (&row.case, &row.server, &row.load)
            };
            let Some(other) = before.rows.iter().find(same) else {
                continue;
            };
            if let (Some(now), Some(then)) = (row.ratio, other.ratio) {
                // The same run: what it was compared with before counts.
                row.unstable |= other.unstable && now == then;
                let factor = now.median / then.median;
                row.unstable |= !(1.0 / (1.0 + STABLE)..=1.0 + STABLE).contains(&factor);
            }
        }
    }

    pub(crate) fn read(file: &Path) -> Result<Self, BenchError> {
        let figures: Self = read(file)?;
        if figures.format == FORMAT {
            return Ok(figures);
        }
        Err(BenchError::NoResults {
            file: file.to_owned(),
            why: format!(
                "it has format {}, this program reads {FORMAT}",
                figures.format
            ),
        })
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), BenchError> {
        write(self, file)
    }

    pub(crate) fn row(&self, case: &str, load: &str, server: &str) -> Option<&Row> {
        let wanted = |row: &&Row| (&*row.case, &*row.load, &*row.server) == (case, load, server);
        self.rows.iter().find(wanted)
    }
}

impl Row {
    pub(crate) fn connections(&self) -> u32 {
        self.load.parse().unwrap_or(1)
    }
}

/// The whole of it was told when it happened; what a server said names folders of this machine.
fn left_out(results: &Results) -> Vec<(String, String)> {
    let first = |(what, why): &(String, String)| {
        let line = why.lines().next().unwrap_or_default();
        (what.clone(), line.to_owned())
    };
    results.left_out.iter().map(first).collect()
}

/// Without the folders of this machine: of our binary's path, the build.
fn machine(results: &Results) -> Vec<(String, String)> {
    let told = |(name, value): &(String, String)| {
        let value = match value.split_once(", /") {
            Some((version, path)) => {
                let build = path.rsplit('/').nth(1).unwrap_or_default();
                format!("{version}, build `{build}`")
            }
            None => value.clone(),
        };
        (name.clone(), value)
    };
    results.machine.iter().map(told).collect()
}

fn rows(part: &Part, results: &Results) -> Vec<Row> {
    let row = |rate: &crate::results::Rate| {
        let of_it = |sample: &&Sample| sample.row == rate.row;
        let samples: Vec<&Sample> = results.samples.iter().filter(of_it).collect();
        let workers = part
            .cases
            .iter()
            .find(|case| case.name == rate.row.scenario);
        let memory = results.servers.iter().find(|at_rest| {
            (&at_rest.scenario, &at_rest.server) == (&rate.row.scenario, &rate.row.server)
        });
        let memory = memory.and_then(|at_rest| at_rest.after);
        let ratio = Spread::of(samples.iter().filter_map(|sample| ratio(sample, results)));
        let mean = |figure: fn(&Sample) -> f64| {
            Spread::of(samples.iter().map(|sample| figure(sample))).map_or(0.0, |it| it.median)
        };
        Row {
            part: part.name.to_owned(),
            case: rate.row.scenario.clone(),
            server: rate.row.server.clone(),
            load: rate.row.load.clone(),
            workers: workers.map_or(0, |case| case.workers),
            requests_per_second: rate.requests_per_second,
            ratio,
            unstable: ratio
                .is_some_and(|ratio| (ratio.max - ratio.min) / ratio.median > 2.0 * STABLE),
            p50_us: rate.p50_us.median,
            p90_us: rate.p90_us.median,
            p99_us: rate.p99_us.median,
            p999_us: rate.p999_us.median,
            max_us: rate.max_us.median,
            cpu_us: rate.cpu_us,
            cpu_us_server: rate.cpu_us_server.median,
            cpu_us_php: rate.cpu_us_php.median,
            cpu_us_client: mean(|sample| sample.cpu_us_client),
            phases_us: phases(&samples),
            errors_percent: mean(|sample| sample.seen.errors_percent),
            memory_bytes: memory.map(|memory| memory.server.pss + memory.php.pss),
        }
    };
    results.rates.iter().map(row).collect()
}

/// Within a round: what disturbs one often disturbs the next one as well.
fn ratio(sample: &Sample, results: &Results) -> Option<f64> {
    let of_round = |other: &&Sample| {
        let others = OTHERS.contains(&&*other.row.server) && other.round == sample.round;
        others && (&other.row.scenario, &other.row.load) == (&sample.row.scenario, &sample.row.load)
    };
    let other = results.samples.iter().find(of_round)?;
    Some(sample.seen.rate / other.seen.rate)
}

fn phases(samples: &[&Sample]) -> BTreeMap<String, f64> {
    let names = samples.iter().flat_map(|sample| sample.phases_us.keys());
    let median = |name: &String| {
        let of_it = samples
            .iter()
            .filter_map(|sample| sample.phases_us.get(name));
        Some((name.clone(), Spread::of(of_it.copied())?.median))
    };
    names.filter_map(median).collect()
}

/// `26 Nov 2026`, in UTC.
fn today() -> String {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let words = date.split(' ').skip(1).take(3);
    words.collect::<Vec<_>>().join(" ")
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T, BenchError> {
    let text = std::fs::read_to_string(file).map_err(|source| BenchError::Read {
        file: file.to_owned(),
        source,
    })?;
    serde_json::from_str(&text).map_err(|error| BenchError::NoResults {
        file: file.to_owned(),
        why: error.to_string(),
    })
}

fn write<T: Serialize>(value: &T, file: &Path) -> Result<(), BenchError> {
    let text = serde_json::to_string_pretty(value).expect("all keys are texts");
    std::fs::write(file, text + "\n").map_err(|source| BenchError::Write {
        file: file.to_owned(),
        source,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::benchmarks) fn row(case: &str, server: &str, rate: f64, ratio: f64) -> Row {
        let spread = |value| Spread::of([value]).unwrap();
        Row {
            part: "laravel".to_owned(),
            case: case.to_owned(),
            server: server.to_owned(),
            load: "50".to_owned(),
            workers: 2,
            requests_per_second: spread(rate),
            ratio: Some(spread(ratio)),
            unstable: false,
            p50_us: 1000.0,
            p90_us: 2000.0,
            p99_us: 3000.0,
            p999_us: 4000.0,
            max_us: 5000.0,
            cpu_us: spread(1e6 / rate),
            cpu_us_server: 100.0,
            cpu_us_php: 400.0,
            cpu_us_client: 10.0,
            phases_us: BTreeMap::new(),
            errors_percent: 0.0,
            memory_bytes: None,
        }
    }

    pub(in crate::benchmarks) fn figures() -> Figures {
        Figures {
            format: FORMAT,
            quick: false,
            date: "1 Jan 2026".to_owned(),
            rounds: 3,
            seconds: 2,
            machine: vec![("CPU".to_owned(), "2 × some".to_owned())],
            rows: vec![
                row("landing", "pronghorn", 2000.0, 4.0),
                row("landing", FPM, 500.0, 1.0),
            ],
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_row_is_unstable_when_two_runs_disagree() {
        let mut now = figures();
        let mut before = figures();
        now.compare(&before);
        assert_eq!(now, before, "the same ratio");
        before.rows[0] = row("landing", "pronghorn", 2000.0, 3.0);
        now.compare(&before);
        assert_eq!((now.rows[0].unstable, now.rows[1].unstable), (true, false));
    }

    #[test]
    fn a_file_of_another_plan_is_not_taken() {
        let part = super::super::parts::parts().remove(0);
        let results = Results::new(3, 2, 6.0);
        let mut record = PartRecord::new(&part, "abc".to_owned(), &results);
        let name = format!("pronghorn-part-{}.json", std::process::id());
        let file = std::env::temp_dir().join(name);
        record.write(&file).unwrap();
        assert_eq!(PartRecord::read(&file, "abc").as_ref(), Some(&record));
        assert_eq!(PartRecord::read(&file, "abd"), None);
        record.complete = false;
        record.write(&file).unwrap();
        assert_eq!(PartRecord::read(&file, "abc"), None, "it is to be finished");
        std::fs::remove_file(&file).unwrap();
    }
}
