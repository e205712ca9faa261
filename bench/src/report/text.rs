//! The tables.

use crate::goals::Goal;
use crate::memory::{Idle, IdleWorker};
use crate::processes::{Memory, Split};
use crate::results::{AtRest, Rate, Results, Row};
use crate::scenario::Scenario;
use crate::spread::{Spread, grouped};
use crate::syscalls::{Calls, Count};
use crate::table::Table;

/// All of them.
pub(super) fn text(results: &Results, scenarios: &[Scenario]) -> String {
    let mut parts = vec![head(results)];
    for scenario in scenarios {
        let of_it = |name: &str| name == scenario.name;
        let rates: Vec<&Rate> = results
            .rates
            .iter()
            .filter(|rate| of_it(&rate.row.scenario))
            .collect();
        let mut loads: Vec<&str> = rates.iter().map(|rate| &*rate.row.load).collect();
        loads.dedup();
        for load in loads {
            let rates: Vec<&Rate> = rates
                .iter()
                .copied()
                .filter(|rate| rate.row.load == load)
                .collect();
            parts.push(rate_table(scenario, load, &rates));
        }
        let servers: Vec<&AtRest> = results
            .servers
            .iter()
            .filter(|server| of_it(&server.scenario))
            .collect();
        parts.push(server_table(&scenario.name, &servers));
    }
    parts.push(explanation(results));
    parts.push(idle_table(&results.idle));
    parts.push(worker_table(&results.workers));
    parts.push(syscall_lists(&results.syscalls));
    parts.push(goal_table(&results.goals));
    parts.push(refusals(results));
    // The whole of it was told when it happened.
    let mut left_out = String::new();
    for (what, why) in &results.left_out {
        left_out.extend([
            "left out: ",
            what,
            ": ",
            why.lines().next().unwrap_or_default(),
            "\n",
        ]);
    }
    parts.push(left_out);
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn head(results: &Results) -> String {
    let mut table = Table::new([]);
    for (name, value) in &results.machine {
        table.add([name.clone(), value.clone()]);
    }
    table.text()
}

fn rate_table(scenario: &Scenario, load: &str, rates: &[&Rate]) -> String {
    let best = rates.iter().find_map(|rate| rate.best_rival.as_deref());
    let title = format!("{}; connections: {load}", scenario.what);
    let to_best = best.map_or(String::new(), |best| format!("× {best}"));
    let ideal = if scenario.waits.is_some() {
        "of ideal"
    } else {
        ""
    };
    let mut table = Table::new([
        title.as_str(),
        "req/s",
        "",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
        "CPU µs",
        "",
        "server + PHP",
        "× nginx",
        &to_best,
        ideal,
        " ",
    ]);
    let ratio =
        |ratio: Option<Spread>| ratio.map_or(String::new(), |ratio| format!("{:.2}", ratio.median));
    for rate in rates {
        let (requests, cpu) = (rate.requests_per_second, rate.cpu_us);
        table.add([
            rate.row.server.clone(),
            grouped(requests.median),
            format!("({}–{})", grouped(requests.min), grouped(requests.max)),
            grouped(rate.p50_us.median),
            grouped(rate.p99_us.median),
            grouped(rate.p999_us.median),
            grouped(rate.max_us.median),
            format!("{:.1}", cpu.median),
            format!("({:.1}–{:.1})", cpu.min, cpu.max),
            format!(
                "{:.1} + {:.1}",
                rate.cpu_us_server.median, rate.cpu_us_php.median
            ),
            ratio(rate.cpu_to_floor),
            ratio(rate.cpu_to_best),
            rate.of_ideal_percent
                .map_or(String::new(), |percent| format!("{percent:.0} %")),
            unanswered(rate.unanswered),
        ]);
    }
    table.text()
}

fn unanswered(requests: u64) -> String {
    match requests {
        0 => String::new(),
        _ => format!(" without an answer: {requests}"),
    }
}

fn server_table(scenario: &str, servers: &[&AtRest]) -> String {
    let title = format!("{scenario}: servers");
    let mut table = Table::new([
        title.as_str(),
        "start to first answer",
        "PSS at rest: server + PHP",
        "after the load",
        "server's peak RSS",
    ]);
    let memory = |memory: Option<Split<Memory>>| {
        memory.map_or(String::new(), |memory| {
            format!(
                "{} + {}",
                megabytes(memory.server.pss),
                megabytes(memory.php.pss)
            )
        })
    };
    for server in servers {
        table.add([
            server.server.clone(),
            server
                .start_ms
                .map_or(String::new(), |ms| format!("{ms:.0} ms")),
            memory(server.rest),
            memory(server.after),
            server
                .after
                .map_or(String::new(), |memory| megabytes(memory.server.peak)),
        ]);
    }
    table.text()
}

fn explanation(results: &Results) -> String {
    if results.rates.is_empty() {
        return String::new();
    }
    format!(
        "Rounds: {}, of {} s or what the scenario says for each; medians (least–most). CPU is that of all processes of the server, per request; × is how \
         many times\nthat of another row. Measurements during which others took over {} % of a CPU count nowhere: {} of {}.\n",
        results.rounds,
        results.seconds,
        results.noise_percent,
        results.refused.len(),
        results.samples.len() + results.refused.len(),
    )
}

/// Rows that lack rounds because others were at work.
fn refusals(results: &Results) -> String {
    let mut rows: Vec<&Row> = results.refused.iter().map(|sample| &sample.row).collect();
    rows.dedup();
    let mut told: Vec<&Row> = Vec::new();
    let mut lines = String::new();
    for row in rows {
        let calm = results
            .samples
            .iter()
            .filter(|sample| sample.row == *row)
            .count();
        if told.contains(&row) || calm >= results.rounds as usize {
            continue;
        }
        told.push(row);
        let refused = results.refused.iter().filter(|sample| sample.row == *row);
        let others = Spread::of(refused.map(|sample| sample.others_percent));
        let (least, most) = others.map_or((0.0, 0.0), |others| (others.min, others.max));
        let line = format!(
            "disturbed: {}, {}, connections {}: calm rounds {calm} of {}; in the others {least:.0} to {most:.0} % of a CPU went elsewhere\n",
            row.scenario, row.server, row.load, results.rounds,
        );
        lines.push_str(&line);
    }
    lines
}

fn idle_table(idle: &[Idle]) -> String {
    let mut table = Table::new(["idle connections", "server RSS at rest", "private", "each"]);
    for idle in idle {
        table.add([
            format!("{}, {}", idle.scenario, idle.server),
            megabytes(idle.rss_bytes),
            megabytes(idle.private_bytes),
            format!("{} B", grouped(idle.connection_bytes)),
        ]);
    }
    table.text()
}

fn worker_table(workers: &[IdleWorker]) -> String {
    let mut table = Table::new(["an idle worker", "its own", "plain php", "box"]);
    for worker in workers {
        table.add([
            worker.server.clone(),
            megabytes(worker.private_bytes),
            megabytes(worker.plain_bytes),
            megabytes(worker.box_bytes),
        ]);
    }
    table.text()
}

fn syscall_lists(counts: &[Count]) -> String {
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
    for count in counts {
        let by_name = |side, calls| format!("  {side}: {}", names(calls));
        table.add([
            format!("{}, {}", count.scenario, count.server),
            count.connections.to_string(),
            sum(&count.of_server),
            sum(&count.of_php),
            by_name("server", &count.of_server),
        ]);
        if !count.of_php.is_empty() {
            let nothing = String::new;
            let php = by_name("PHP", &count.of_php);
            table.add([nothing(), nothing(), nothing(), nothing(), php]);
        }
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

fn goal_table(goals: &[Goal]) -> String {
    let mut table = Table::new(["goals", "aim", "at most", "measured", ""]);
    for goal in goals {
        table.add([
            goal.what.clone(),
            goal.aim.to_string(),
            format!("{} {}", goal.limit, goal.unit),
            format!("{:.2} {}", goal.measured, goal.unit),
            if goal.met { "met" } else { "missed" }.to_owned(),
        ]);
    }
    table.text()
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use super::super::rates::tests::sample;
    use super::*;
    use crate::error::BenchError;
    use crate::results::Sample;
    use crate::scenario::{folder, select};

    fn report() -> Report {
        let scenarios = select(&folder(), &["hello".to_owned()]).unwrap();
        let mut report = Report::new(Results::new(2, 3, 6.0), scenarios);
        let disturbed = |sample: Sample| Sample {
            others_percent: 40.0,
            ..sample
        };
        report.results.samples = vec![
            sample("pronghorn", "10", 1, 10.0),
            sample("nginx", "10", 1, 5.0),
            sample("nginx", "10", 2, 5.0),
        ];
        report.results.refused = vec![
            disturbed(sample("pronghorn", "10", 2, 99.0)),
            disturbed(sample("nginx", "10", 1, 99.0)),
        ];
        report
    }

    fn told(mut report: Report) -> String {
        report.conclude();
        text(&report.results, &report.scenarios)
    }

    #[test]
    fn what_others_disturbed_counts_nowhere_and_is_told_where_rounds_lack() {
        let text = told(report());
        assert!(!text.contains("99.0"), "{text}");
        assert!(text.contains("count nowhere: 2 of 5."), "{text}");
        assert!(text.contains("disturbed: hello, pronghorn, connections 10: calm rounds 1 of 2; in the others 40 to 40 %"), "{text}");
        assert!(!text.contains("disturbed: hello, nginx"), "{text}");
    }

    #[test]
    fn a_run_is_whole_when_each_row_has_a_calm_round() {
        let mut report = report();
        assert!(report.is_whole());
        report
            .results
            .samples
            .retain(|sample| sample.row.server != "pronghorn");
        assert!(!report.is_whole(), "only the disturbed round is left");
    }

    #[test]
    fn a_row_that_failed_has_no_figures_and_says_why() {
        let mut report = report();
        let refused = BenchError::Errors("500 of 500 answers had a status above 399".to_owned());
        report.leave_out("hello, pronghorn", &refused);
        let text = told(report);
        assert!(!text.contains("\npronghorn  "), "{text}");
        assert!(
            text.contains(
                "left out: hello, pronghorn: no rate, because of errors: 500 of 500 answers"
            ),
            "{text}"
        );
    }
}
