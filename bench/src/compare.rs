//! Two runs side by side: what changed, and whether it is more than the spread.

use crate::results::{AtRest, Rate, Results};
use crate::spread::Spread;
use crate::table::Table;

/// A figure of one row in two runs.
#[derive(Debug, PartialEq)]
struct Change {
    before: Spread,
    after: Spread,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Better,
    Worse,
    /// The ranges touch, or the difference is no greater than one of them.
    WithinSpread,
    /// Fewer than two rounds in one of them.
    NoSpread,
}

impl Change {
    fn of(before: (Spread, u32), after: (Spread, u32), less_is_better: bool) -> Self {
        let ((before, rounds_before), (after, rounds_after)) = (before, after);
        let difference = after.median - before.median;
        let range = |spread: Spread| spread.max - spread.min;
        let apart = after.min > before.max || after.max < before.min;
        let verdict = if rounds_before < 2 || rounds_after < 2 {
            Verdict::NoSpread
        } else if !apart || difference.abs() <= range(before).max(range(after)) {
            Verdict::WithinSpread
        } else if (difference < 0.0) == less_is_better {
            Verdict::Better
        } else {
            Verdict::Worse
        };
        Self {
            before,
            after,
            verdict,
        }
    }

    fn percent(&self) -> f64 {
        (self.after.median / self.before.median - 1.0) * 100.0
    }
}

/// The figures that are compared: name, digits behind the point, whether less is better, where it
/// is.
type Figure = (&'static str, usize, bool, fn(&Rate) -> Option<Spread>);

/// CPU time as a multiple of nginx's is steadier than the time itself, which depends on the
/// machine's day.
const FIGURES: [Figure; 4] = [
    ("CPU × nginx", 2, true, |rate| rate.cpu_to_floor),
    ("CPU µs", 1, true, |rate| Some(rate.cpu_us)),
    ("req/s", 0, false, |rate| Some(rate.requests_per_second)),
    ("p99 µs", 0, true, |rate| Some(rate.p99_us)),
];

/// What is to be said about two runs.
pub(crate) fn text(before: &Results, after: &Results) -> String {
    let mut parts = vec![machines(before, after)];
    let mut table = Table::new(["", "figure", "before", "", "after", "", "change", " "]);
    let (mut compared, mut beyond) = (0, 0);
    for rate in &after.rates {
        let Some(old) = before.rates.iter().find(|old| old.row == rate.row) else {
            continue;
        };
        let row = &rate.row;
        let mut title = format!("{}, {}, connections {}", row.scenario, row.server, row.load);
        for (name, digits, less_is_better, figure) in FIGURES {
            let (Some(was), Some(is)) = (figure(old), figure(rate)) else {
                continue;
            };
            let change = Change::of((was, old.rounds), (is, rate.rounds), less_is_better);
            compared += 1;
            beyond += u32::from(matches!(change.verdict, Verdict::Better | Verdict::Worse));
            let median = |spread: Spread| format!("{:.digits$}", spread.median);
            let range =
                |spread: Spread| format!("({:.digits$}–{:.digits$})", spread.min, spread.max);
            table.add([
                std::mem::take(&mut title),
                name.to_owned(),
                median(change.before),
                range(change.before),
                median(change.after),
                range(change.after),
                format!("{:+.1} %", change.percent()),
                format!(" {}", change.verdict.words()),
            ]);
        }
    }
    parts.push(table.text());
    parts.push(memory(before, after));
    parts.push(only_in("before", before, after));
    parts.push(only_in("after", after, before));
    parts.push(format!(
        "Changed by more than the spread: {beyond} of {compared} figures.\n"
    ));
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

impl Verdict {
    const fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::WithinSpread => "within the spread",
            Self::NoSpread => "one round: no telling",
        }
    }
}

/// Where they differ.
fn machines(before: &Results, after: &Results) -> String {
    let mut table = Table::new(["taken on", " before", " after"]);
    for (name, value) in &after.machine {
        let old = before.machine.iter().find(|(old, _)| old == name);
        let old = old.map_or("", |(_, old)| old);
        if old != value {
            table.add([name.clone(), format!(" {old}"), format!(" {value}")]);
        }
    }
    table.text()
}

/// Memory is taken once in a run: without a spread, only what is told apart by a tenth is shown.
fn memory(before: &Results, after: &Results) -> String {
    const SHOWN: f64 = 0.1;
    let mut table = Table::new([
        "PSS after the load, server + PHP",
        "before",
        "after",
        "change",
    ]);
    let pss = |server: &AtRest| {
        server
            .after
            .map(|memory| memory.server.pss + memory.php.pss)
    };
    for server in &after.servers {
        let is_it =
            |old: &&AtRest| (&old.scenario, &old.server) == (&server.scenario, &server.server);
        let old = before.servers.iter().find(is_it).and_then(pss);
        let (Some(old), Some(new)) = (old, pss(server)) else {
            continue;
        };
        let change = new / old - 1.0;
        if change.abs() >= SHOWN {
            let megabytes = |bytes: f64| format!("{:.1} MB", bytes / f64::from(1 << 20));
            table.add([
                format!("{}, {}", server.scenario, server.server),
                megabytes(old),
                megabytes(new),
                format!("{:+.0} %", change * 100.0),
            ]);
        }
    }
    table.text()
}

fn only_in(name: &str, one: &Results, other: &Results) -> String {
    let lacks = |rate: &&Rate| !other.rates.iter().any(|other| other.row == rate.row);
    let lines = one.rates.iter().filter(lacks).map(|rate| {
        let row = &rate.row;
        format!(
            "only {name}: {}, {}, connections {}\n",
            row.scenario, row.server, row.load
        )
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(before: &[f64], after: &[f64], less_is_better: bool) -> Verdict {
        let spread = |figures: &[f64]| {
            let rounds = u32::try_from(figures.len()).unwrap();
            (Spread::of(figures.iter().copied()).unwrap(), rounds)
        };
        Change::of(spread(before), spread(after), less_is_better).verdict
    }

    #[test]
    fn a_change_counts_when_it_is_more_than_the_spread() {
        let before = [10.0, 11.0, 12.0];
        for (after, verdict) in [
            (&[10.0, 11.0, 12.0][..], Verdict::WithinSpread),
            (&[12.0, 13.0, 14.0][..], Verdict::WithinSpread), // they touch
            (&[12.5, 12.6, 12.7][..], Verdict::WithinSpread), // apart, but by less than the one's range
            (&[13.0, 14.0, 15.0][..], Verdict::Worse),
            (&[8.0, 8.5, 9.0][..], Verdict::Better),
            (&[5.0, 5.5, 9.9][..], Verdict::Better),
            (&[1.0, 8.0, 9.9][..], Verdict::WithinSpread),
            (&[100.0][..], Verdict::NoSpread),
        ] {
            assert_eq!(change(&before, after, true), verdict, "{after:?}");
        }
        assert_eq!(change(&before, &[20.0, 20.0], false), Verdict::Better);
        assert_eq!(change(&before, &[2.0, 2.0], false), Verdict::Worse);
    }
}
