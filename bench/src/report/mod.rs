//! All figures of a run: the tables on standard output, the file of `--json`; what goes on
//! meanwhile on standard error.

mod rates;
mod text;

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::error::BenchError;
use crate::goals::goals;
use crate::results::{Results, Sample};
use crate::scenario::{Load, Scenario};
use crate::table::Table;

/// Says something on standard error.
#[expect(clippy::print_stderr, reason = "this is where the command speaks")]
pub(crate) fn tell(text: &str) {
    eprintln!("{text}");
}

/// Says a result on standard output.
pub(crate) fn print(text: &str) {
    _ = io::stdout().write_all(text.as_bytes()); // nobody reads it: nothing to be done
}

/// What can be asked, as a table.
pub(crate) fn print_scenarios(scenarios: &[Scenario]) {
    let mut table = Table::new(["scenario", " ", " servers", " connections"]);
    let words = |words: Vec<String>| format!(" {}", words.join(", "));
    for scenario in scenarios {
        let loads = scenario.full.loads.iter().map(Load::to_string);
        table.add([
            scenario.name.clone(),
            format!(" {}", scenario.what),
            words(scenario.full.servers.clone()),
            words(loads.collect()),
        ]);
    }
    print(&table.text());
}

/// What is known so far.
pub(crate) struct Report {
    pub(crate) results: Results,
    /// Those that were measured, for the tables.
    scenarios: Vec<Scenario>,
}

impl Report {
    pub(crate) const fn new(results: Results, scenarios: Vec<Scenario>) -> Self {
        Self { results, scenarios }
    }

    /// Notes that something was not measured. Of a scenario's server, what was measured before no
    /// longer counts.
    pub(crate) fn leave_out(&mut self, what: &str, error: &BenchError) {
        tell(&format!("error: {what}: {error}"));
        if let Some((scenario, server)) = what.split_once(", ") {
            let samples = &mut self.results.samples;
            samples.retain(|sample| {
                (&*sample.row.scenario, &*sample.row.server) != (scenario, server)
            });
        }
        let why = error.to_string();
        self.results.left_out.push((what.to_owned(), why));
    }

    /// Makes of the samples what is quoted.
    pub(crate) fn conclude(&mut self) {
        self.results.rates = rates::rates(&self.results, &self.scenarios);
        self.results.goals = goals(&self.results, &self.scenarios);
    }

    pub(crate) fn print(&self) {
        print(&text::text(&self.results, &self.scenarios));
    }

    /// Success is that all was measured, whatever came out: each row in one calm round at least.
    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.is_whole() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn is_whole(&self) -> bool {
        let Results {
            refused,
            samples,
            left_out,
            ..
        } = &self.results;
        let has_figures = |lost: &Sample| samples.iter().any(|sample| sample.row == lost.row);
        left_out.is_empty() && refused.iter().all(has_figures)
    }
}
