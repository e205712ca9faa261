//! What the page says: losses first, then the articles, the suspects, all tables, the model, and
//! how it was measured.

use super::articles::{ARTICLES, Article, PUZZLES, Place, Sight};
use super::document::Document;
use super::explain::{
    Loss, LostCase, Predicted, Suspected, losses, model, predicted_memory, predicted_rates,
    reproduces, suspected,
};
use super::parts::{FPM, parts};
use super::plots::{Axis, Line, Plot, Shape};
use super::reasons::{Reason, UNKNOWN, reason};
use super::record::{Figures, Row};
use super::suspects::{COMBINATIONS, SUSPECTS};
use crate::spread::grouped;

pub(crate) const TITLE: &str = "Benchmarks";

pub(crate) fn page(figures: &Figures) -> Document {
    let mut page = Document::default();
    page.heading(1, TITLE);
    introduction(&mut page, figures);
    where_we_lose(&mut page, figures);
    articles(&mut page, figures);
    suspects(&mut page, figures);
    combinations(&mut page, figures);
    tables(&mut page, figures);
    over_numbers(&mut page, figures);
    arithmetic(&mut page, figures);
    method(&mut page, figures);
    not_measured(&mut page, figures);
    page
}

fn introduction(page: &mut Document, figures: &Figures) {
    if figures.quick {
        page.text("A trial run with `--quick`: these figures mean nothing.");
    }
    page.text(format!(
        "All figures on this page are from one run of `make report` on one machine, on {}. Each \
         row has {} rounds of {} seconds; in each round, the servers of a table are measured one \
         after another. Compare the ratios: the absolute figures are valid only for this machine. \
         `bench/README.md` has the rules for figures.",
        figures.date, figures.rounds, figures.seconds
    ));
    let machine = figures.machine.iter();
    let rows = machine.map(|(name, value)| [name.clone(), value.clone()]);
    page.table(["", ""], rows.collect());
}

fn where_we_lose(page: &mut Document, figures: &Figures) {
    page.heading(2, "Where others are better");
    let losses = losses(figures);
    if losses.is_empty() {
        page.text("No rival was ahead in this run.");
        return;
    }
    page.text(
        "In these cases of this run, the best rival is ahead of Pronghorn's best mode by more than \
         3 %. The tables of suspects are left out, because they make Pronghorn slow on purpose. \
         The cases are grouped by cause. Within a cause, the order is latency, rate, CPU time, \
         memory; for each measure, the worst case comes first. Cases that differ only in a number \
         are one row, with the figures of the worst one.",
    );
    for (cause, losses) in by_cause(&losses) {
        page.heading(3, cause.name);
        page.text(cause.why);
        let rows = losses.into_iter().map(|loss| {
            let worst = &loss.cases[0];
            [
                loss.measure.to_owned(),
                lost_cases(loss),
                format!("{}: {}", worst.rival.0, number(worst.rival.1)),
                format!("{}: {}", worst.ours.0, number(worst.ours.1)),
                factors(&loss.cases),
            ]
        });
        page.table(
            ["measure", "case", "rival", "ours", "factor"],
            rows.collect(),
        );
    }
}

/// Losses of one cause together, in the order in which the causes come first.
fn by_cause(losses: &[Loss]) -> Vec<(&'static Reason, Vec<&Loss>)> {
    let mut causes: Vec<(&'static Reason, Vec<&Loss>)> = Vec::new();
    for loss in losses {
        let cause = reason(loss.measure, &loss.family).unwrap_or(&UNKNOWN);
        match causes.iter_mut().find(|it| it.0.name == cause.name) {
            Some(known) => known.1.push(loss),
            None => causes.push((cause, vec![loss])),
        }
    }
    causes
}

/// The worst case, and the numbers by which the others differ.
fn lost_cases(loss: &Loss) -> String {
    let worst = &loss.cases[0];
    let told = format!("`{}`, connections: {}", worst.case, worst.load);
    match &loss.cases[1..] {
        [] => told,
        [other] => format!("{told}, and `{}`", other.case),
        others => format!("{told}, and {} others like `{}`", others.len(), loss.family),
    }
}

fn factors(cases: &[LostCase]) -> String {
    let worst = times(cases[0].times);
    match cases {
        [_] => worst,
        [.., least] => format!("{} to {worst}", times(least.times)),
        [] => String::new(),
    }
}

fn articles(page: &mut Document, figures: &Figures) {
    page.heading(2, "Five articles, measured again");
    page.text(
        "For each of five articles about servers for PHP, this section gives its results, the \
         reasons, and the same comparison here. The articles used other machines, so the tables \
         compare only the ratio of two servers.",
    );
    for article in &ARTICLES {
        page.heading(3, article.title);
        page.text(article.saw);
        page.text(format!("Why: {}", article.why));
        let rows: Vec<[String; 3]> = article
            .sights
            .iter()
            .map(|sight| {
                let now = here(sight, figures);
                [
                    sight.what.to_owned(),
                    times(sight.ratio()),
                    now.map_or_else(|| "not measured".to_owned(), times),
                ]
            })
            .collect();
        page.text(now(article, figures));
        page.table(["", "there", "here"], rows);
    }
}

/// The ratio here, if both were measured.
fn here(sight: &Sight, figures: &Figures) -> Option<f64> {
    let rate = |(case, load, server): Place| {
        Some(figures.row(case, load, server)?.requests_per_second.median)
    };
    Some(rate(sight.here)? / rate(sight.beside)?)
}

/// What its author would see, in a sentence.
fn now(article: &Article, figures: &Figures) -> String {
    let told = article.sights.iter().filter_map(|sight| {
        let ratio = here(sight, figures)?;
        Some(format!("{} {}", sight.what, times(ratio)))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() {
        return "Now: not measured in this run.".to_owned();
    }
    format!("The same ratios here: {}.", told.join(", "))
}

fn suspects(page: &mut Document, figures: &Figures) {
    page.heading(2, "Why a worker server may be no faster than php-fpm");
    page.text(
        "The table shows Laravel's landing page with 50 connections. The row `base` is the setup \
         that should be measured: two workers forked from one process, sessions in memory, no \
         other server in between. Each other row changes one thing, a suspect. The last columns \
         show how much of the difference between the base's ratio and an article's ratio a suspect \
         explains. They compare the logarithms of ratios: two suspects that each halve the rate \
         explain as much as one that divides it by four. `–` means that Pronghorn is not faster in \
         the base, so there is nothing to explain.",
    );
    let cases = std::iter::once(("base", "as it should be measured"));
    let all = cases.chain(SUSPECTS.iter().map(|suspect| (suspect.name, suspect.what)));
    suspect_table(page, figures, all);
    split_table(page, figures);
}

fn combinations(page: &mut Document, figures: &Figures) {
    page.heading(3, "Several suspects together");
    let all = COMBINATIONS.iter().map(|it| (it.name, it.what));
    suspect_table(page, figures, all);
    let names = SUSPECTS.iter().map(|suspect| suspect.name);
    let names: Vec<&str> = names.chain(COMBINATIONS.iter().map(|it| it.name)).collect();
    for puzzle in &PUZZLES {
        let fits = names.iter().filter(|name| {
            let ratio = suspected(figures, name).map(|suspected| suspected.ratio);
            ratio.is_some_and(|ratio| reproduces(ratio, puzzle.ratio))
        });
        let fits: Vec<String> = fits.map(|name| format!("`{name}`")).collect();
        let said = if fits.is_empty() {
            "No measured case comes within 20 % of it.".to_owned()
        } else {
            format!("These come within 20 % of it: {}.", fits.join(", "))
        };
        page.text(format!(
            "The ratio of the {} is {}. {said}",
            puzzle.name,
            times(puzzle.ratio)
        ));
    }
}

fn suspect_table<'a>(
    page: &mut Document,
    figures: &Figures,
    cases: impl Iterator<Item = (&'a str, &'a str)>,
) {
    let row = |(name, what): (&str, &str)| {
        let Suspected {
            ours,
            fpm,
            ratio,
            shares,
        } = suspected(figures, name)?;
        let of_fpm = |figure: fn(&Row) -> String| fpm.map_or_else(String::new, figure);
        let mut shares = shares
            .into_iter()
            .map(|share| share.map_or_else(|| "–".to_owned(), percent));
        let mut share = || shares.next().unwrap_or_default();
        Some([
            format!("`{name}`: {what}{}", errors(ours, fpm)),
            format!("{} : {}", rate(ours), of_fpm(rate)),
            unstable(ours, times(ratio)),
            format!("{} : {}", cpu(ours), of_fpm(cpu)),
            format!("{} : {}", latencies(ours), of_fpm(latencies)),
            share(),
            share(),
            share(),
        ])
    };
    let [first, second, third] = PUZZLES
        .each_ref()
        .map(|puzzle| format!("explains, {}", puzzle.name));
    page.table(
        [
            "suspect",
            "req/s, ours : php-fpm",
            "ratio",
            "CPU µs per request",
            "p50 / p99 ms",
            &first,
            &second,
            &third,
        ],
        cases.filter_map(row).collect(),
    );
}

fn errors(ours: &Row, fpm: Option<&Row>) -> String {
    let of = |row: &Row| format!("{:.0} %", row.errors_percent);
    match fpm {
        Some(fpm) if ours.errors_percent + fpm.errors_percent > 0.0 => {
            format!(" (errors: ours {}, php-fpm {})", of(ours), of(fpm))
        }
        _ => String::new(),
    }
}

/// Where a request's time goes: by our own metrics, and by the processes' clocks.
fn split_table(page: &mut Document, figures: &Figures) {
    page.text(
        "The next table shows where the time of a request goes. Pronghorn's times are means from \
         its metrics: the wait for a worker, the time in the worker, and writing the response. The \
         time in the worker minus PHP's CPU time is the time for which PHP waits for a processor, \
         a file or a database. php-fpm has no such metrics: its wait is the median latency minus \
         the CPU time.",
    );
    let names = std::iter::once("base").chain(SUSPECTS.iter().map(|suspect| suspect.name));
    let row = |name: &str| {
        let Suspected { ours, fpm, .. } = suspected(figures, name)?;
        let phase = |name: &str| ours.phases_us.get(name).copied();
        let told = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), micros);
        let waits = phase("worker").map(|worker| (worker - ours.cpu_us_php).max(0.0));
        let outside = fpm.map(|fpm| (fpm.p50_us - fpm.cpu_us.median).max(0.0));
        Some([
            format!("`{name}`"),
            told(phase("queue")),
            told(phase("worker")),
            micros(ours.cpu_us_php),
            told(waits),
            told(phase("write")),
            micros(ours.cpu_us_server),
            fpm.map_or_else(|| "–".to_owned(), |fpm| micros(fpm.cpu_us.median)),
            told(outside),
        ])
    };
    page.table(
        [
            "µs per request",
            "queue",
            "worker",
            "worker: PHP's CPU",
            "worker: waits",
            "write",
            "server's CPU",
            "php-fpm: CPU",
            "php-fpm: waits",
        ],
        names.filter_map(row).collect(),
    );
}

/// All rows of the articles' tables.
fn tables(page: &mut Document, figures: &Figures) {
    page.heading(2, "All tables");
    page.text(
        "The ratio is the server's rate divided by that of nginx with php-fpm in the same rounds. \
         For CGI programs, it is divided by the rate of Apache with mod_cgid. Parentheses contain \
         the lowest and the highest rate of the rounds. `unstable` means that rounds, or two runs, \
         differ by more than 15 %.",
    );
    for part in parts() {
        let told_elsewhere = ["suspects", "together"].contains(&part.name);
        if told_elsewhere || !figures.rows.iter().any(|row| row.part == part.name) {
            continue;
        }
        page.heading(3, part.title);
        for case in &part.cases {
            let rows = figures.rows.iter().filter(|row| row.case == case.name);
            page.table(
                [
                    &*format!("`{}`, {} workers", case.name, case.workers),
                    "connections",
                    "req/s",
                    "ratio",
                    "p50 ms",
                    "p99 ms",
                    "CPU µs",
                    "server + PHP",
                    "memory MB",
                ],
                rows.map(table_row).collect(),
            );
        }
        if part.name == "laravel" {
            page.plot(processes_plot(figures));
            page.plot(latency_plot(figures, "landing", "50"));
        }
    }
}

fn table_row(row: &Row) -> [String; 9] {
    let spread = row.requests_per_second;
    [
        row.server.clone(),
        row.load.clone(),
        format!(
            "{} ({}–{})",
            rate(row),
            grouped(spread.min),
            grouped(spread.max)
        ),
        row.ratio.map_or_else(
            || "–".to_owned(),
            |ratio| unstable(row, times(ratio.median)),
        ),
        millis(row.p50_us),
        millis(row.p99_us),
        cpu(row),
        format!("{} + {}", micros(row.cpu_us_server), micros(row.cpu_us_php)),
        row.memory_bytes
            .map_or_else(|| "–".to_owned(), |bytes| number(bytes / 1e6)),
    ]
}

fn over_numbers(page: &mut Document, figures: &Figures) {
    let connections = ("hello-", "-connections");
    let workers = ("hello-", "-workers");
    let plots = [
        over(
            figures,
            "Rate over connections: hello, 2 workers",
            connections,
            ("connections", true),
            ("requests per second", false),
            |row| Some(row.requests_per_second.median),
        ),
        over(
            figures,
            "Cost over connections: hello, 2 workers",
            connections,
            ("connections", true),
            ("CPU µs per request", false),
            |row| Some(row.cpu_us.median),
        ),
        over(
            figures,
            "Rate over workers: hello, 100 connections",
            workers,
            ("workers", true),
            ("requests per second", false),
            |row| Some(row.requests_per_second.median),
        ),
        over(
            figures,
            "Rate over workers: Laravel's landing page, 50 connections",
            ("landing-", "-workers"),
            ("workers", true),
            ("requests per second", false),
            |row| Some(row.requests_per_second.median),
        ),
        over(
            figures,
            "Memory over workers: Laravel",
            ("memory-", "-workers"),
            ("workers", false),
            ("MB of all processes", false),
            |row| Some(row.memory_bytes? / 1e6),
        ),
    ];
    if plots.iter().any(|plot| !plot.is_empty()) {
        page.heading(2, "Over connections and workers");
        page.text("Plots are in `benchmarks.html`; their figures are in the tables above.");
    }
    for plot in plots {
        page.plot(plot);
    }
}

/// A line for each server, over the number in the names of cases.
fn over(
    figures: &Figures,
    title: &str,
    (before, behind): (&str, &str),
    (x, x_is_logarithmic): (&'static str, bool),
    (y, y_is_logarithmic): (&'static str, bool),
    figure: fn(&Row) -> Option<f64>,
) -> Plot {
    let mut lines: Vec<Line> = Vec::new();
    for row in &figures.rows {
        let number = row
            .case
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(behind));
        let (Some(Ok(number)), Some(value)) = (number.map(str::parse), figure(row)) else {
            continue;
        };
        let known = lines.iter().position(|line| line.name == row.server);
        let index = known.unwrap_or(lines.len());
        if known.is_none() {
            lines.push(Line {
                name: row.server.clone(),
                points: Vec::new(),
            });
        }
        if let Some(line) = lines.get_mut(index) {
            line.points.push((number, value));
        }
    }
    Plot {
        title: title.to_owned(),
        x: Axis {
            name: x,
            is_logarithmic: x_is_logarithmic,
        },
        y: Axis {
            name: y,
            is_logarithmic: y_is_logarithmic,
        },
        shape: Shape::Lines(lines),
    }
}

fn processes_plot(figures: &Figures) -> Plot {
    let rows = figures
        .rows
        .iter()
        .filter(|row| row.case == "landing" && row.load == "50");
    let bar = |row: &Row| (row.server.clone(), vec![row.cpu_us_server, row.cpu_us_php]);
    let axis = |name| Axis {
        name,
        is_logarithmic: false,
    };
    Plot {
        title: "CPU per request by process: Laravel's landing page, 50 connections".to_owned(),
        x: axis("CPU µs per request"),
        y: axis(""),
        shape: Shape::Bars {
            parts: vec!["server (of Apache and php -S all)", "PHP"],
            bars: rows.map(bar).collect(),
        },
    }
}

/// How many of the slowest requests each latency leaves out: 50 %, 10 %, 1 %, 0.1 %.
fn latency_plot(figures: &Figures, case: &str, load: &str) -> Plot {
    const SHOWN: usize = 8;
    let rows = figures
        .rows
        .iter()
        .filter(|row| row.case == case && row.load == load);
    let line = |row: &Row| {
        let latencies = [
            (50.0, row.p50_us),
            (10.0, row.p90_us),
            (1.0, row.p99_us),
            (0.1, row.p999_us),
        ];
        let points = latencies.map(|(slower, us)| (100.0 / slower, us / 1e3));
        Line {
            name: row.server.clone(),
            points: points.into(),
        }
    };
    Plot {
        title: "Latency: one request of so many takes longer (Laravel, 50 connections)".to_owned(),
        x: Axis {
            name: "one request of",
            is_logarithmic: true,
        },
        y: Axis {
            name: "ms",
            is_logarithmic: true,
        },
        shape: Shape::Lines(rows.map(line).take(SHOWN).collect()),
    }
}

fn arithmetic(page: &mut Document, figures: &Figures) {
    page.heading(2, "Other machines, by arithmetic");
    page.text(
        "The model has N processors, W workers and C connections. A request takes `cpu` µs of CPU \
         time in all processes, including the load generator if it runs on the same machine. Of \
         this time, `php` µs are in a worker. The handler also waits for `blocked` µs. The blocked \
         share is `blocked ÷ (php + blocked)`.",
    );
    page.text(
        "The rate is the lower one of two limits. The limit of the workers is `W ÷ (php + \
         blocked)`. The limit of the processors is that of a closed queue with C requests, by mean \
         value analysis. The demand of a request at the queue is `cpu ÷ N`, and the request spends \
         `cpu × (N-1) ÷ N + blocked` outside of the queue. This is Seidmann's approximation: it \
         treats N processors as one that is N times as fast. Without contention, the limit is `C ÷ \
         (cpu + blocked)`; under full load, it is `N ÷ cpu`.",
    );
    page.text(
        "`N ÷ cpu × (php + blocked)` workers keep the processors busy; further workers only wait. \
         The memory is that of the server, and W times that of a worker.",
    );
    page.text(
        "The model takes its values from one measured row of a series (with 2 workers, with 100 \
         connections, or with 4 workers that wait), and predicts the other rows. It does not \
         include switches between many workers; this causes the error with 64 workers and more.",
    );
    let rates = predicted_rates(figures);
    page.table(
        ["rate", "model", "measured", "error"],
        rates.iter().map(|it| predicted(it, &grouped)).collect(),
    );
    let mut points = Vec::new();
    for (server, memory, predictions) in predicted_memory(figures) {
        page.text(format!(
            "`{server}` with Laravel: {} MB, and {} MB for each worker.",
            number(memory.server_bytes / 1e6),
            number(memory.worker_bytes / 1e6)
        ));
        points.extend(predictions);
    }
    let megabytes = |bytes: f64| number(bytes / 1e6);
    page.table(
        ["memory, MB", "model", "measured", "error"],
        points.iter().map(|it| predicted(it, &megabytes)).collect(),
    );
    if let Some(row) = figures.row("waiting-4-workers", "100", "pronghorn") {
        let waits = model(row, 10_000.0, figures);
        page.text(format!(
            "An example: handlers that wait 10 ms and compute {} µs are blocked for {:.0} % of their \
             time. {} workers keep this machine's processors busy.",
            micros(waits.php_us),
            waits.blocked_share() * 100.0,
            number(waits.workers().ceil())
        ));
    }
}

fn predicted(it: &Predicted, written: &dyn Fn(f64) -> String) -> [String; 4] {
    [
        it.what.clone(),
        written(it.said),
        written(it.measured),
        format!("{:+.0} %", it.error() * 100.0),
    ]
}

fn method(page: &mut Document, figures: &Figures) {
    page.heading(2, "How to repeat it");
    page.code("make report                          # an hour; goes on where it was stopped\nmake report REPORT=laravel,suspects  # some parts\nmake report REPORT=\"slim --again\"     # measures a part again");
    page.text(
        "The load generator is `wrk` with one thread on the same machine; it keeps its connections \
         open. All servers use the same `php.ini`, with OPcache on and JIT off, and write no log \
         record for a request. They have two workers or children unless a table gives another \
         number. nginx has two processes. Each server starts again for each table. Before and \
         after each measurement, and four times during it, the status and the body of an answer \
         are checked; after a wrong answer, the row is not used. If other processes took more than \
         6 % of a processor during a measurement, it is repeated. `bench/src/servers` writes the \
         exact configurations.",
    );
    page.heading(3, "Other servers");
    page.text(
        "`--peer NAME=COMMAND` adds a server to all tables. `--peer NAME@SCENARIO,…=COMMAND` adds \
         it to the tables of these scenarios. The command must listen on port `{port}` of \
         127.0.0.1, stay in the foreground, and end at SIGTERM. Before the start, `{app}` is \
         replaced with the application's directory, `{workers}` with the number of workers, and \
         `{ini}` with the path of the `php.ini`. The repository contains none of these servers:",
    );
    for (name, how) in PEERS {
        page.text(format!("{name}: {how}"));
    }
    let fpm = figures.rows.iter().filter(|row| row.server == FPM).count();
    page.text(format!(
        "This run has {} rows, {fpm} of them for nginx with php-fpm.",
        figures.rows.len()
    ));
}

/// In prose: none of them is built here.
const PEERS: [(&str, &str); 4] = [
    (
        "RoadRunner",
        "Take the binary of a release, or build it with Go from its repository. Install its PHP \
         packages `spiral/roadrunner-http` and `nyholm/psr7` with Composer, and protobuf's extension \
         with PECL for a second row. Write a `.rr.yaml` with the worker loop of its documentation, \
         `logs.level: error` and `http.pool.num_workers`. The command is `rr serve -c .rr.yaml -o \
         http.address=127.0.0.1:{port}`.",
    ),
    (
        "FrankenPHP",
        "Take the static binary of a release, or build it with Go against a thread-safe PHP. Write \
         a Caddyfile with `worker` and the script's path, `num_threads` with the value of \
         `{workers}`, `admin off`, and no log. The command is `frankenphp run --config Caddyfile`; \
         the Caddyfile takes the port from an environment variable.",
    ),
    (
        "Swoole",
        "Build the extension with PECL (`swoole`) for the same PHP. Write a script with \
         `Swoole\\Http\\Server`, once with `SWOOLE_PROCESS` and once with `SWOOLE_BASE`, and \
         `worker_num` with the value of `{workers}`. The command is `php -c {ini} -d \
         extension=swoole server.php {port}`.",
    ),
    (
        "Workerman",
        "Install `workerman/workerman` with Composer, and the extension `event` with PECL. Write a \
         script with `Workerman\\Worker` on `http://127.0.0.1:{port}` and `count` with the value \
         of `{workers}`. The command is `php -c {ini} server.php start`.",
    ),
];

fn not_measured(page: &mut Document, figures: &Figures) {
    let measured = |name: &str| figures.rows.iter().any(|row| row.part == name);
    let parts = parts();
    let missing = parts.iter().filter(|part| !measured(part.name));
    let mut rows: Vec<[String; 2]> = missing
        .map(|part| [part.title.to_owned(), "not part of this run".to_owned()])
        .collect();
    rows.extend(
        figures
            .left_out
            .iter()
            .map(|(what, why)| [what.replace('|', "/"), why.replace('|', "/")]),
    );
    let packages = "pronghorn-roadrunner";
    if !figures.rows.iter().any(|row| row.server == packages) {
        rows.push([
            format!("`{packages}`, `protobuf`, `all-with-protobuf`"),
            "RoadRunner's packages were not named: `--packages DIR`".to_owned(),
        ]);
    }
    if !rows.is_empty() {
        page.heading(2, "Not measured");
    }
    page.table(["what", "why"], rows);
}

pub(super) fn rate(row: &Row) -> String {
    grouped(row.requests_per_second.median)
}

pub(super) fn cpu(row: &Row) -> String {
    micros(row.cpu_us.median)
}

fn latencies(row: &Row) -> String {
    format!("{} / {}", millis(row.p50_us), millis(row.p99_us))
}

fn unstable(row: &Row, ratio: String) -> String {
    if row.unstable {
        format!("{ratio} unstable")
    } else {
        ratio
    }
}

pub(super) fn micros(us: f64) -> String {
    number(us)
}

pub(super) fn millis(us: f64) -> String {
    number(us / 1e3)
}

pub(super) fn times(ratio: f64) -> String {
    format!("{} ×", number(ratio))
}

fn percent(share: f64) -> String {
    // Not `-0 %`.
    format!("{} %", (share * 100.0).round() + 0.0)
}

/// Three digits that say something.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => grouped(value),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
