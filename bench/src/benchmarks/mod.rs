//! `pronghorn-bench report`: the articles' tables and what explains them, measured part by part,
//! and the pages that are made of the figures.
//!
//! Each part is measured by [`rounds`] as any run is. What was measured stays in a file per part:
//! a run that was stopped goes on behind it.

mod articles;
mod document;
mod explain;
mod html;
mod marks;
mod model;
mod page;
mod parts;
mod plots;
mod reasons;
mod record;
mod suspects;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use crate::arguments::Arguments;
use crate::error::BenchError;
use crate::plan::Job;
use crate::report::{Report, tell};
use crate::results::Results;
use crate::rounds;
use crate::site::{Site, repository};
use crate::{machine, scenario};
use parts::Part;
use record::{Figures, PartRecord};

/// Of load in each measurement. The plan has several hundred of them, and an hour.
const SECONDS: u32 = 2;
const ROUNDS: u32 = 3;
/// Beyond what is planned, for measurements that others disturb.
const REPEATS: u32 = 2;

/// What `report` measures, and where it leaves it
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Parts to measure, with commas between [default: all]
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    parts: Vec<String>,
    /// Tries a little of each part, in two minutes: shows whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Measures parts again whose figures are there
    #[arg(long)]
    again: bool,
    /// Minutes after which nothing more is begun
    #[arg(long, default_value_t = 60, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..=600))]
    minutes: u32,
    /// Folder for the figures of each part and for the pages [default: target/report]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also writes the figures, their pages and the figures in other pages of this repository; only
    /// when all parts are there
    #[arg(long, conflicts_with = "quick")]
    publish: bool,
}

impl Options {
    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { ROUNDS }
    }

    fn seconds(&self) -> u32 {
        if self.quick { 1 } else { SECONDS }
    }

    fn out(&self) -> PathBuf {
        let name = if self.quick { "report-quick" } else { "report" };
        let default = || repository().join("target").join(name);
        self.out.clone().unwrap_or_else(default)
    }

    fn parts(&self) -> Result<Vec<Part>, BenchError> {
        let mut parts = parts::parts();
        if let Some(name) = self
            .parts
            .iter()
            .find(|name| !parts.iter().any(|part| part.name == **name))
        {
            let known: Vec<&str> = parts.iter().map(|part| part.name).collect();
            return Err(BenchError::NoPart {
                name: name.clone(),
                known: known.join(", "),
            });
        }
        parts.retain(|part| self.parts.is_empty() || self.parts.iter().any(|it| it == part.name));
        if self.quick {
            parts = parts.into_iter().map(Part::quick).collect();
        }
        Ok(parts)
    }

    /// Of a part's rounds.
    fn arguments(&self, part: &Part, given: &Arguments, limit: Duration) -> Arguments {
        Arguments {
            rounds: part.rounds(self.rounds()),
            seconds: self.seconds(),
            limit: Some(u32::try_from(limit.as_secs()).unwrap_or(u32::MAX)),
            syscalls: false,
            ..given.clone()
        }
    }
}

/// A part that is to be measured, or was.
struct Planned {
    part: Part,
    file: PathBuf,
    fingerprint: String,
    done: Option<PartRecord>,
    /// Of its rounds, without repeats.
    time: Duration,
}

/// Measures the parts whose figures are not there yet, and makes the pages.
pub(crate) async fn run(
    options: &Options,
    given: &Arguments,
    site: &Site,
) -> Result<ExitCode, BenchError> {
    let out = options.out();
    std::fs::create_dir_all(&out).map_err(|source| BenchError::Write {
        file: out.clone(),
        source,
    })?;
    let limit = Duration::from_secs(u64::from(options.minutes) * 60);
    let start = Instant::now();
    let mut planned = plan(options, given, site, &out)?;
    let number = planned.len();
    for index in 0..number {
        let rest: Duration = planned.iter().skip(index).map(Planned::left).sum();
        let Some(part) = planned.get_mut(index) else {
            break;
        };
        if part.done.is_some() {
            tell(&format!(
                "part {} of {number}: {} is there",
                index + 1,
                part.part.name
            ));
            continue;
        }
        let left = limit.saturating_sub(start.elapsed());
        if left.is_zero() {
            tell(&format!("{}: left out, the time is over", part.part.name));
            continue;
        }
        tell(&format!(
            "part {} of {number}: {}; about {} minutes left, and at most {}",
            index + 1,
            part.part.name,
            rest.as_secs().div_ceil(60),
            left.as_secs().div_ceil(60),
        ));
        let arguments = options.arguments(&part.part, given, left.min(part.time * REPEATS));
        part.measure(&arguments, site).await?;
    }
    conclude(options, planned, &out)
}

fn plan(
    options: &Options,
    given: &Arguments,
    site: &Site,
    out: &Path,
) -> Result<Vec<Planned>, BenchError> {
    let planned = |part: Part| {
        let arguments = options.arguments(&part, given, Duration::ZERO);
        let jobs = part.jobs(&arguments)?;
        let file = out.join(part.name).with_extension("json");
        let fingerprint = fingerprint(&part, &arguments, site);
        let done = PartRecord::read(&file, &fingerprint).filter(|_| !options.again);
        let time = jobs.iter().map(|job| job.time(arguments.rounds)).sum();
        Ok(Planned {
            part,
            file,
            fingerprint,
            done,
            time,
        })
    };
    options.parts()?.into_iter().map(planned).collect()
}

impl Planned {
    fn left(&self) -> Duration {
        match self.done {
            Some(_) => Duration::ZERO,
            None => self.time,
        }
    }

    async fn measure(&mut self, arguments: &Arguments, site: &Site) -> Result<(), BenchError> {
        let jobs: Vec<Job<'_>> = self.part.jobs(arguments)?;
        let mut results = Results::new(arguments.rounds, arguments.seconds, arguments.noise);
        results.machine = machine::describe(site).await;
        let scenarios: Vec<scenario::Scenario> =
            jobs.iter().map(|job| job.scenario.clone()).collect();
        let mut report = Report::new(results, scenarios);
        rounds::run(&jobs, site, arguments, &mut report).await;
        report.conclude();
        let record = PartRecord::new(&self.part, self.fingerprint.clone(), &report.results);
        record.write(&self.file)?;
        self.done = Some(record);
        Ok(())
    }
}

/// What a part's figures depend on.
fn fingerprint(part: &Part, arguments: &Arguments, site: &Site) -> String {
    let binary = std::fs::metadata(&site.pronghorn);
    let binary = binary.map(|binary| (binary.len(), binary.modified().ok()));
    let of = format!(
        "{part:?} {} {} {:?} {:?} {binary:?}",
        arguments.rounds, arguments.seconds, arguments.peers, arguments.packages
    );
    format!("{:08x}", crc32fast::hash(of.as_bytes()))
}

/// Success is that all parts that were asked for are there.
fn conclude(options: &Options, planned: Vec<Planned>, out: &Path) -> Result<ExitCode, BenchError> {
    let missing = planned.iter().filter(|part| part.done.is_none());
    let missing: Vec<&str> = missing.map(|part| part.part.name).collect();
    let code = if missing.is_empty() {
        ExitCode::SUCCESS
    } else {
        tell(&format!(
            "not measured: {}; the same command goes on",
            missing.join(", ")
        ));
        ExitCode::FAILURE
    };
    let is_whole = planned.len() == parts::parts().len()
        && planned
            .iter()
            .all(|part| part.done.as_ref().is_some_and(|done| done.complete));
    let records: Vec<PartRecord> = planned.into_iter().filter_map(|part| part.done).collect();
    let mut figures = Figures::of(records, options.quick, options.rounds(), options.seconds());
    let file = out.join("benchmarks.json");
    let before = if options.publish { &published() } else { &file };
    if let Ok(before) = Figures::read(before) {
        figures.compare(&before);
    }
    figures.write(&file)?;
    for (file, text) in pages(&figures, out) {
        Site::write(&file, text)?;
        tell(&format!("written: {}", file.display()));
    }
    if options.publish && is_whole {
        figures.write(&published())?;
        return fill_in(false);
    }
    if options.publish {
        tell("nothing is published: parts are missing");
        return Ok(ExitCode::FAILURE);
    }
    Ok(code)
}

/// The last whole run, of which all figures in pages are.
fn published() -> PathBuf {
    repository().join("docs/benchmarks.json")
}

/// The page, for people who read the repository and for browsers.
fn pages(figures: &Figures, folder: &Path) -> Vec<(PathBuf, String)> {
    let document = page::page(figures);
    let file = folder.join("benchmarks.md");
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    let text = marks::with_summary(&document::markdown(&document), &before);
    let mut pages = vec![(file, text)];
    // Without its plots it would be another page.
    if cfg!(feature = "plots") {
        let text = html::html(&document, page::TITLE);
        pages.push((folder.join("benchmarks.html"), text));
    }
    pages
}

/// `figures`: writes what pages have of the published figures, or says which pages disagree.
pub(crate) fn fill_in(only_check: bool) -> Result<ExitCode, BenchError> {
    let json = published();
    let figures = json.exists().then(|| Figures::read(&json)).transpose()?;
    let mut wanted = Vec::new();
    if let Some(figures) = &figures {
        wanted.extend(pages(figures, &repository().join("docs")));
    }
    let generated: Vec<PathBuf> = wanted.iter().map(|(file, _)| file.clone()).collect();
    for file in markdown_files()?
        .into_iter()
        .filter(|file| !generated.contains(file))
    {
        let text = read(&file)?;
        let filled = marks::fill(&text, figures.as_ref());
        let filled = filled.map_err(|why| BenchError::Figure {
            file: file.clone(),
            why,
        })?;
        wanted.push((file, filled));
    }
    let is_stale = |(file, text): &&(PathBuf, String)| {
        std::fs::read_to_string(file).ok().as_ref() != Some(text)
    };
    let stale: Vec<&(PathBuf, String)> = wanted.iter().filter(is_stale).collect();
    if only_check && !stale.is_empty() {
        let names = stale.iter().map(|(file, _)| file.display().to_string());
        return Err(BenchError::Stale(names.collect::<Vec<_>>().join(", ")));
    }
    for (file, text) in stale {
        Site::write(file, text)?;
        tell(&format!("written: {}", file.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// README.md and all pages below `docs`.
fn markdown_files() -> Result<Vec<PathBuf>, BenchError> {
    let mut files = vec![repository().join("README.md")];
    let mut folders = vec![repository().join("docs")];
    while let Some(folder) = folders.pop() {
        let unreadable = |source| BenchError::Read {
            file: folder.clone(),
            source,
        };
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            let file = entry.map_err(unreadable)?.path();
            if file.is_dir() {
                folders.push(file);
            } else if file.extension().is_some_and(|extension| extension == "md") {
                files.push(file);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Result<String, BenchError> {
    std::fs::read_to_string(file).map_err(|source| BenchError::Read {
        file: file.to_owned(),
        source,
    })
}
