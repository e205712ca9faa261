//! The table of workers.

use std::fmt::Write;
use std::time::Duration;

use super::boxes::{ago, boxes, size};
use super::over_rpc::{JOBS, Pipeline};
use super::text::{bytes, coarse_time, count, counted, cut, line, short_time};

/// The workers of one pool, from whatever source.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    pub(super) pool: String,
    /// What RoadRunner calls it.
    pub(super) plugin: String,
    /// Calls that wait; RPC does not say.
    pub(super) waiting: Option<u64>,
    /// Whether they take calls: programs do not.
    pub(super) takes_calls: bool,
    pub(super) rows: Vec<Row>,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) pid: u32,
    pub(super) state: String,
    /// How calls reach it.
    pub(super) transport: Option<String>,
    /// RPC does not say.
    pub(super) forked_by: Option<u32>,
    pub(super) generation: Option<u64>,
    pub(super) executions: u64,
    pub(super) memory: u64,
    /// Processor time since the start, in milliseconds.
    pub(super) cpu: Option<u64>,
    /// Of one processor, in percent.
    pub(super) load: f64,
    pub(super) age: Duration,
    /// None of a PHP worker.
    pub(super) command: Option<String>,
    pub(super) request: Option<(String, Duration)>,
}

impl Row {
    /// It finishes what it has, beside a worker of the next generation.
    fn is_leaving(&self) -> bool {
        matches!(self.state.as_str(), "draining" | "stopping")
    }

    /// At a call, and for how long: the order in which a person wants to see them when there is no
    /// room for all.
    fn urgency(&self) -> (bool, Duration) {
        let age = self.request.as_ref().map(|(_, age)| *age);
        (
            self.state == "busy" || age.is_some(),
            age.unwrap_or_default(),
        )
    }
}

/// How the table is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Columns of the terminal; none when there is none.
    pub(super) width: Option<usize>,
    /// Lines that there is room for.
    pub(super) height: Option<usize>,
    pub(super) colours: bool,
}

/// Columns but the last one, which takes what is left.
const HEADS: [&str; 8] = [
    "PID", "STATE", "VIA", "GEN", "EXECS", "MEMORY", "CPU", "AGE",
];
/// What is usual fits, so that columns stay where they are when the table is drawn again.
const WIDTHS: [usize; 8] = [7, 8, 5, 3, 7, 8, 6, 4];
/// `STATE` and `VIA` are words, which begin on the left.
const WORDS: std::ops::RangeInclusive<usize> = 1..=2;
const REQUEST: &str = "REQUEST";
/// Enough for `9.9s GET /` and some of a path.
const NARROWEST_REQUEST: usize = 14;
/// Columns in the order in which a narrow terminal keeps them: each that there is still room for.
const KEPT: [usize; 8] = [0, 1, 6, 5, 7, 4, 2, 3];
/// Between two columns.
const GAP: usize = 2;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// One table for all pools, a line for each pool above its workers. Every line ends with a line
/// feed, and none is wider than the terminal.
pub(super) fn table(views: &[View], look: Look) -> String {
    let cells: Vec<Vec<[String; 8]>> = views
        .iter()
        .map(|view| view.rows.iter().map(cells_of).collect())
        .collect();
    let widths = widths(cells.iter().flatten());
    let columns = columns(&widths, look.width);
    let heads = HEADS.map(ToOwned::to_owned);
    let mut out = Lines {
        text: String::new(),
        look,
        left: look.height.unwrap_or(usize::MAX),
    };
    out.line(BOLD, &format!("{}  {REQUEST}", padded(&heads, &columns)));
    for (index, (view, cells)) in views.iter().zip(&cells).enumerate() {
        out.line("", &summary(view));
        let others = views.len() - index - 1;
        let room = out.left.saturating_sub(2 * others); // a summary and something below it for each
        let mut order: Vec<usize> = (0..view.rows.len()).collect();
        let hidden = order.len().saturating_sub(room);
        if hidden > 0 {
            // The sort is stable: those without a call keep their order.
            order.sort_by_key(|row| {
                view.rows
                    .get(*row)
                    .map(|row| std::cmp::Reverse(row.urgency()))
            });
            order.truncate(room.saturating_sub(1));
        }
        for row in order.iter().copied() {
            let (Some(row), Some(cells)) = (view.rows.get(row), cells.get(row)) else {
                continue;
            };
            let request = row
                .request
                .as_ref()
                .map(|(what, age)| format!("{} {}", short_time(*age), line(what)));
            let behind = request.map_or_else(String::new, |request| format!("  {request}"));
            out.line(
                colour(&row.state),
                &format!("{}{behind}", padded(cells, &columns)),
            );
        }
        if hidden > 0 && room > 0 {
            let more = view.rows.len() - order.len();
            out.line(
                DIM,
                &format!("… and {}", counted(more as u64, "more worker")),
            );
        }
    }
    out.text
}

struct Lines {
    text: String,
    look: Look,
    left: usize,
}

impl Lines {
    fn line(&mut self, colour: &str, text: &str) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let text = text.trim_end();
        let fitting = self.look.width.map(|width| cut(text, width));
        let text = fitting.as_deref().unwrap_or(text);
        let written = if self.look.colours && !colour.is_empty() {
            writeln!(self.text, "{colour}{text}{PLAIN}")
        } else {
            writeln!(self.text, "{text}")
        };
        written.expect("a String takes everything");
    }
}

fn summary(view: &View) -> String {
    if !view.takes_calls {
        let processes = view.rows.iter().filter(|row| row.pid > 0).count();
        let processes = match processes {
            1 => "1 process".to_owned(),
            _ => format!("{processes} processes"),
        };
        return format!("{}: {processes}", line(&view.pool));
    }
    let leaving = view.rows.iter().filter(|row| row.is_leaving()).count();
    let busy = view
        .rows
        .iter()
        .filter(|row| !row.is_leaving() && row.urgency().0);
    let workers = counted((view.rows.len() - leaving) as u64, "worker");
    let mut out = format!("{}: {workers}, {} busy", line(&view.pool), busy.count());
    if leaving > 0 {
        _ = write!(out, ", {leaving} leaving"); // a String takes it
    }
    if let Some(waiting) = view.waiting {
        _ = write!(out, ", {} waiting", counted(waiting, "call"));
    }
    // Those of the last reload, which come last.
    if let Some(zygote) = view.rows.last().and_then(|row| row.forked_by) {
        _ = write!(out, ", forked by {zygote}");
    }
    out
}

fn cells_of(row: &Row) -> [String; 8] {
    [
        match row.pid {
            0 => "-".to_owned(),
            pid => pid.to_string(),
        },
        line(&row.state),
        row.transport
            .as_deref()
            .map_or_else(|| "-".to_owned(), line),
        row.generation.map_or_else(|| "-".to_owned(), count),
        count(row.executions),
        bytes(row.memory),
        format!("{:.1}%", row.load),
        coarse_time(row.age),
    ]
}

fn widths<'a>(rows: impl Iterator<Item = &'a [String; 8]>) -> [usize; 8] {
    rows.fold(WIDTHS, |mut widths, row| {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
        widths
    })
}

/// Those that fit beside a request, with their widths, in the order of the table.
fn columns(widths: &[usize; 8], width: Option<usize>) -> Vec<(usize, usize)> {
    let mut left = width.map(|width| width.saturating_sub(NARROWEST_REQUEST));
    let mut columns: Vec<(usize, usize)> = KEPT
        .into_iter()
        .filter_map(|column| Some((column, *widths.get(column)?)))
        .filter(|(_, width)| match &mut left {
            None => true,
            Some(left) => left
                .checked_sub(width + GAP)
                .map(|rest| *left = rest)
                .is_some(),
        })
        .collect();
    columns.sort_unstable();
    columns
}

fn padded(cells: &[String; 8], columns: &[(usize, usize)]) -> String {
    let padded = columns.iter().filter_map(|&(column, width)| {
        let cell = cells.get(column)?;
        Some(if WORDS.contains(&column) {
            format!("{cell:<width$}")
        } else {
            format!("{cell:>width$}")
        })
    });
    padded.collect::<Vec<_>>().join("  ")
}

fn colour(state: &str) -> &'static str {
    match state {
        "ready" => GREEN,
        "busy" | "working" => YELLOW,
        "failed" | "invalid" => RED,
        _ => DIM,
    }
}

/// RoadRunner's tables, one for each plugin that has workers.
pub(super) fn roadrunners(views: &[View]) -> String {
    let mut out = String::new();
    let mut plugins: Vec<&str> = views.iter().map(|view| view.plugin.as_str()).collect();
    plugins.dedup();
    for plugin in plugins {
        let of_plugin = views.iter().filter(|view| view.plugin == plugin);
        let mut rows: Vec<&Row> = of_plugin.flat_map(|view| &view.rows).collect();
        rows.sort_by_key(|row| row.pid);
        if rows.iter().any(|row| row.command.is_some()) {
            rows.retain(|row| row.pid > 0);
            out.push_str(&roadrunners_programs(plugin, &rows));
        } else if !rows.is_empty() {
            out.push_str(&roadrunners_table(plugin, &rows));
        }
    }
    out
}

fn roadrunners_table(plugin: &str, rows: &[&Row]) -> String {
    let cells = |row: &&Row| {
        let state = match row.state.as_str() {
            "busy" => "working",
            other => other,
        };
        [
            row.pid.to_string(),
            line(state),
            count(row.executions),
            size(row.memory),
            format!("{:.2}", row.load),
            ago(row.age),
        ]
    };
    let heads = ["PID", "STATUS", "EXECS", "MEMORY", "CPU %", "CREATED"];
    let rows: Vec<_> = rows.iter().map(cells).collect();
    format!("Workers of [{}]:\n{}", line(plugin), boxes(heads, &rows))
}

/// RoadRunner's table for processes that are no PHP workers.
fn roadrunners_programs(plugin: &str, rows: &[&Row]) -> String {
    let cells = |row: &&Row| {
        [
            row.pid.to_string(),
            size(row.memory),
            format!("{:.2}", row.load),
            line(row.command.as_deref().unwrap_or_default()),
        ]
    };
    let heads = ["PID", "MEMORY", "CPU %", "COMMAND"];
    let rows: Vec<_> = rows.iter().map(cells).collect();
    format!("Workers of [{}]:\n{}", line(plugin), boxes(heads, &rows))
}

/// RoadRunner's table of pipelines; nothing for none.
pub(super) fn jobs_table(mut pipelines: Vec<Pipeline>) -> String {
    if pipelines.is_empty() {
        return String::new();
    }
    pipelines.sort_by(|a, b| a.pipeline.cmp(&b.pipeline));
    let cells = |it: &Pipeline| {
        [
            if it.ready { "READY" } else { "PAUSED/STOPPED" }.to_owned(),
            line(&it.pipeline),
            line(&it.driver),
            line(&it.queue),
            it.active.to_string(),
            it.delayed.to_string(),
            it.reserved.to_string(),
        ]
    };
    let heads = [
        "STATUS", "PIPELINE", "DRIVER", "QUEUE", "ACTIVE", "DELAYED", "RESERVED",
    ];
    let rows: Vec<_> = pipelines.iter().map(cells).collect();
    format!("Jobs of [{JOBS}]:\n{}", boxes(heads, &rows))
}

#[cfg(test)]
mod tests;
