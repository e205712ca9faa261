//! What follows from the figures: where others win, which suspects explain which ratio, and what
//! the model says beside what was measured.

use super::articles::PUZZLES;
use super::model::{Memory, Model};
use super::parts::FPM;
use super::record::{Figures, Row};
use crate::servers::{Kind, kind};

/// Less is within what two runs differ by.
const LOST_BY: f64 = 1.03;
/// How near a combination has to come to an article's ratio.
const REPRODUCED: f64 = 0.2;
/// What the handler of the scenario `slow` waits.
const WAITS_US: f64 = 10_000.0;

/// Cases by which a rival is ahead of the best of ours in one measure, with names that differ by
/// numbers only.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loss {
    pub(crate) measure: &'static str,
    /// As in `hello-N-workers`.
    pub(crate) family: String,
    /// The worst first.
    pub(crate) cases: Vec<LostCase>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LostCase {
    pub(crate) case: String,
    pub(crate) load: String,
    pub(crate) ours: (String, f64),
    pub(crate) rival: (String, f64),
    /// How many times as good the rival is.
    pub(crate) times: f64,
}

/// Name, figure, and whether less is better.
type Measure = (&'static str, fn(&Row) -> Option<f64>, bool);

/// Visitors feel the first ones, and the others are paid for.
const MEASURES: [Measure; 4] = [
    ("p99, ms", |row| Some(row.p99_us / 1e3), true),
    (
        "requests per second",
        |row| Some(row.requests_per_second.median),
        false,
    ),
    ("CPU per request, µs", |row| Some(row.cpu_us.median), true),
    ("memory, MB", |row| Some(row.memory_bytes? / 1e6), true),
];

/// Where ours lose, by measure, the worst first. Suspects are left out: there ours is made slow.
pub(crate) fn losses(figures: &Figures) -> Vec<Loss> {
    let mut losses = Vec::new();
    for measure in &MEASURES {
        let first = losses.len();
        for case in lost_cases(figures, measure) {
            let family = family(&case.case);
            let known = losses[first..].iter_mut();
            match known.into_iter().find(|it: &&mut Loss| it.family == family) {
                Some(known) => known.cases.push(case),
                None => losses.push(Loss {
                    measure: measure.0,
                    family,
                    cases: vec![case],
                }),
            }
        }
    }
    losses
}

fn lost_cases(figures: &Figures, measure: &Measure) -> Vec<LostCase> {
    let mut lost = Vec::new();
    let rows = figures.rows.iter();
    for first in rows.filter(|row| !is_about_suspects(row)) {
        let is_first = |row: &&Row| (&row.case, &row.load) == (&first.case, &first.load);
        if figures.rows.iter().find(is_first) != Some(first) {
            continue;
        }
        let together: Vec<&Row> = figures.rows.iter().filter(is_first).collect();
        lost.extend(loss(&together, measure));
    }
    lost.sort_by(|one: &LostCase, other| other.times.total_cmp(&one.times));
    // Memory is measured once for all loads of a case.
    let of = |it: &LostCase| (it.case.clone(), it.ours.clone(), it.rival.clone());
    lost.dedup_by(|next, kept| of(next) == of(kept));
    lost
}

/// A case without its numbers.
fn family(case: &str) -> String {
    let parts = case.split('-').map(|part| {
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        if is_number { "N" } else { part }
    });
    parts.collect::<Vec<_>>().join("-")
}

fn is_about_suspects(row: &Row) -> bool {
    row.part == "suspects" || row.part == "together"
}

fn loss(rows: &[&Row], (_, figure, less_is_better): &Measure) -> Option<LostCase> {
    let best = |wanted: Kind| {
        let of_kind = rows.iter().filter(|row| kind(&row.server) == wanted);
        let figures = of_kind.filter_map(|row| Some((row, figure(row)?)));
        let order = |(_, one): &(&&Row, f64), (_, other): &(&&Row, f64)| {
            let order = one.total_cmp(other);
            if *less_is_better {
                order
            } else {
                order.reverse()
            }
        };
        figures.min_by(order)
    };
    let ((ours, our_figure), (rival, rivals_figure)) = (best(Kind::Ours)?, best(Kind::Rival)?);
    let times = if *less_is_better {
        our_figure / rivals_figure
    } else {
        rivals_figure / our_figure
    };
    (times > LOST_BY).then(|| LostCase {
        case: ours.case.clone(),
        load: ours.load.clone(),
        ours: (ours.server.clone(), our_figure),
        rival: (rival.server.clone(), rivals_figure),
        times,
    })
}

/// A suspect, or several together.
pub(crate) struct Suspected<'a> {
    pub(crate) ours: &'a Row,
    pub(crate) fpm: Option<&'a Row>,
    pub(crate) ratio: f64,
    /// Of the way from the base to each puzzle's ratio, by orders of magnitude: two suspects that
    /// each halve the rate explain as much as one that quarters it.
    pub(crate) shares: Vec<Option<f64>>,
}

/// The case of this name, if it was measured.
pub(crate) fn suspected<'a>(figures: &'a Figures, name: &str) -> Option<Suspected<'a>> {
    let (ours, fpm) = pair(figures, name)?;
    let ratio = ours.ratio?.median;
    let (base, _) = pair(figures, "base")?;
    let base = base.ratio?.median;
    let share = |puzzle: f64| {
        let way = (puzzle / base).ln();
        // Ours is not faster to begin with: there is no way to go.
        (way < -0.05).then(|| (ratio / base).ln() / way)
    };
    Some(Suspected {
        ours,
        fpm,
        ratio,
        shares: PUZZLES.iter().map(|puzzle| share(puzzle.ratio)).collect(),
    })
}

fn pair<'a>(figures: &'a Figures, case: &str) -> Option<(&'a Row, Option<&'a Row>)> {
    let rows = || figures.rows.iter().filter(|row| row.case == case);
    let ours = rows().find(|row| kind(&row.server) == Kind::Ours)?;
    Some((ours, rows().find(|row| row.server == FPM)))
}

/// Whether a ratio is that of an article, as near as is asked for.
pub(crate) fn reproduces(ratio: f64, puzzle: f64) -> bool {
    (ratio / puzzle - 1.0).abs() <= REPRODUCED
}

/// What the model says of a measured row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Predicted {
    pub(crate) what: String,
    pub(crate) said: f64,
    pub(crate) measured: f64,
}

impl Predicted {
    pub(crate) fn error(&self) -> f64 {
        self.said / self.measured - 1.0
    }
}

/// A model of one row, for rows of other numbers of workers or connections.
struct Series {
    /// Names of cases around their number.
    case: (&'static str, &'static str),
    server: &'static str,
    waits_us: f64,
    /// Whose row the model is made of.
    known: u16,
    others: &'static [u16],
}

const SERIES: [Series; 4] = [
    Series {
        case: ("hello-", "-workers"),
        server: "pronghorn",
        waits_us: 0.0,
        known: 2,
        others: &[1, 4, 8, 16, 32, 64, 100],
    },
    Series {
        case: ("hello-", "-connections"),
        server: "pronghorn",
        waits_us: 0.0,
        known: 100,
        others: &[1, 10, 1000, 5000, 10_000],
    },
    Series {
        case: ("landing-", "-workers"),
        server: "pronghorn",
        waits_us: 0.0,
        known: 2,
        others: &[4, 8, 16, 100],
    },
    Series {
        case: ("waiting-", "-workers"),
        server: "pronghorn",
        waits_us: WAITS_US,
        known: 4,
        others: &[1, 16, 64],
    },
];

/// Rates, by one measured row of each series.
pub(crate) fn predicted_rates(figures: &Figures) -> Vec<Predicted> {
    let of_series = |series: &Series| {
        let row = |number: u16| {
            let case = format!("{}{number}{}", series.case.0, series.case.1);
            let of_it = |row: &&Row| row.case == case && row.server == series.server;
            figures.rows.iter().find(of_it)
        };
        let model = row(series.known).map(|known| model(known, series.waits_us, figures));
        let others = series.others.iter().filter_map(move |number| {
            let (model, row) = (model?, row(*number)?);
            Some(Predicted {
                what: format!("`{}` at {}", row.case, row.load),
                said: model.rate(row.workers, row.connections()),
                measured: row.requests_per_second.median,
            })
        });
        others.collect::<Vec<_>>()
    };
    SERIES.iter().flat_map(of_series).collect()
}

/// Of a row, with the processors that the figures were measured on.
pub(crate) fn model(row: &Row, blocked_us: f64, figures: &Figures) -> Model {
    let cpu = figures.machine.iter().find(|(name, _)| name == "CPU");
    let processors = cpu.and_then(|(_, value)| value.split_whitespace().next()?.parse().ok());
    Model {
        processors: processors.unwrap_or(1.0),
        cpu_us: row.cpu_us.median + row.cpu_us_client,
        php_us: row.cpu_us_php,
        blocked_us,
    }
}

/// Memory of ours, through the measurements with 1 and 16 workers.
pub(crate) fn predicted_memory(figures: &Figures) -> Vec<(String, Memory, Vec<Predicted>)> {
    let servers = ["pronghorn", "pronghorn-exec", "pronghorn-classic", FPM];
    let of_server = |server: &str| {
        let bytes = |workers: u16| {
            let case = format!("memory-{workers}-workers");
            let of_it = |row: &&Row| row.case == case && row.server == server;
            figures.rows.iter().find(of_it)?.memory_bytes
        };
        let memory = Memory::through((1, bytes(1)?), (16, bytes(16)?))?;
        let points = [4, 64].into_iter().filter_map(|workers| {
            Some(Predicted {
                what: format!("`{server}`, {workers} workers"),
                said: memory.bytes(workers),
                measured: bytes(workers)?,
            })
        });
        Some((server.to_owned(), memory, points.collect()))
    };
    servers.into_iter().filter_map(of_server).collect()
}

#[cfg(test)]
mod tests {
    use super::super::published;
    use super::super::reasons::reason;
    use super::super::record::tests::{figures, row};
    use super::*;

    #[test]
    fn each_loss_that_is_published_has_its_reason() {
        let figures = Figures::read(&published()).unwrap();
        for loss in losses(&figures) {
            let why = reason(loss.measure, &loss.family);
            assert!(why.is_some(), "a reason for {loss:?}");
        }
    }

    #[test]
    fn losses_are_told_by_measure_and_those_of_a_family_together() {
        let mut figures = figures();
        assert_eq!(losses(&figures), [], "ours is ahead, or as good");
        figures.rows[0].requests_per_second.median = 250.0;
        figures.rows[0].p99_us = 4500.0;
        let mut more = figures.rows.clone();
        for row in &mut more {
            row.case = "hello-64-workers".to_owned();
        }
        more[0].requests_per_second.median = 100.0;
        figures.rows.extend(more.clone());
        for row in &mut more {
            row.case = "hello-2-workers".to_owned();
        }
        figures.rows.extend(more);
        let losses = losses(&figures);
        let told: Vec<_> = losses.iter().map(|it| (it.measure, &*it.family)).collect();
        let (p99, rate) = ("p99, ms", "requests per second");
        let (alone, workers) = (&*figures.rows[0].case, "hello-N-workers");
        assert_eq!(
            told,
            [(p99, alone), (p99, workers), (rate, workers), (rate, alone)]
        );
        let worst = &losses[2].cases;
        assert_eq!((worst.len(), worst[0].times), (2, 5.0));
        assert_eq!(worst[0].rival, (FPM.to_owned(), 500.0));
    }

    #[test]
    fn what_all_loads_of_a_case_have_in_common_is_told_once() {
        let mut figures = figures();
        figures.rows[0].memory_bytes = Some(4e6);
        figures.rows[1].memory_bytes = Some(2e6);
        let mut more = figures.rows.clone();
        for row in &mut more {
            row.load = "20".to_owned();
        }
        figures.rows.extend(more);
        let told = losses(&figures);
        assert_eq!((told.len(), told[0].cases.len()), (1, 1));
        assert_eq!(told[0].measure, "memory, MB");
    }

    #[test]
    fn shares_of_suspects_add_up() {
        let puzzle = PUZZLES[0].ratio;
        let halfway = (4.0 * puzzle).sqrt();
        let mut figures = figures();
        figures.rows = vec![
            row("base", "pronghorn", 2000.0, 4.0),
            row("psr7", "pronghorn-psr7", 1000.0, halfway),
            row("all", "pronghorn-psr7", 100.0, puzzle),
        ];
        let share = |name| suspected(&figures, name).unwrap().shares[0].unwrap();
        assert!((share("psr7") - 0.5).abs() < 1e-9 && (share("all") - 1.0).abs() < 1e-9);
        assert!(
            suspected(&figures, "debug").is_none(),
            "it was not measured"
        );
        assert!(reproduces(puzzle * 1.1, puzzle) && !reproduces(puzzle * 1.3, puzzle));
    }

    #[test]
    fn the_model_is_made_of_one_row_and_says_others() {
        let mut figures = figures();
        let mut known = row("waiting-4-workers", "pronghorn", 390.0, 1.0);
        known.cpu_us.median = 50.0;
        known.cpu_us_php = 30.0;
        known.workers = 4;
        let mut other = row("waiting-1-workers", "pronghorn", 99.0, 1.0);
        other.workers = 1;
        figures.rows = vec![known, other];
        let predicted = predicted_rates(&figures);
        assert_eq!(predicted.len(), 1);
        assert!(predicted[0].error().abs() < 0.02, "{predicted:?}");
    }
}
