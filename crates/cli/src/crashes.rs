//! `crashes`: the reports that a server has kept, whether or not it runs.

use std::fmt::Write;

use pronghorn_server::reports::{Found, Group, Report, ReportedSplit, Reports, groups};

use crate::arguments::{Arguments, Crashes, Name};
use crate::exit::{Exit, failed, mention, say, say_json};
use crate::{directories, steer};

pub(crate) fn run(name: Name, arguments: &Arguments, options: &Crashes) -> Exit {
    let input = arguments.input();
    let folder = directories::working(arguments, input.main_file().as_deref());
    // Of a server that runs, its own word counts: systemd may have named the folder.
    let state = match steer::state_folder(name, arguments) {
        Some(state) => Ok(state),
        None => pronghorn_server::state_folder_of(&input, &folder),
    };
    let reports = match state {
        Ok(state) => pronghorn_server::reports_in(&state),
        Err(why) => return failed(&why),
    };
    let found = match &options.id {
        Some(id) => reports.find(id),
        None => reports.all(),
    };
    match found {
        Ok(Found {
            reports: found,
            others,
        }) => {
            let exit = tell(&found, &reports, options);
            if !others.is_empty() {
                mention(&passed_over(&others));
            }
            exit
        }
        Err(error) => failed(&format!(
            "cannot read {}: {error}",
            reports.folder().display()
        )),
    }
}

fn tell(found: &[Report], reports: &Reports, options: &Crashes) -> Exit {
    match (&options.id, found) {
        (Some(id), []) => {
            let folder = reports.folder().display();
            failed(&format!(
                "no report in {folder} has an ID that begins with `{id}`, and no group is called so\nhint: `pronghorn crashes` lists them"
            ))
        }
        (Some(_), [report]) if !options.json => {
            say(&shown(report));
            Exit::Done
        }
        _ if options.json && options.group => {
            say_json(&groups(found)).unwrap_or_else(|error| failed(&error))
        }
        _ if options.json => say_json(&found).unwrap_or_else(|error| failed(&error)),
        (_, []) => {
            say(&format!("No reports in {}\n", reports.folder().display()));
            Exit::Done
        }
        _ if options.group => {
            say(&grouped(&groups(found)));
            Exit::Done
        }
        _ => {
            let older = found.len().saturating_sub(options.last);
            say(&listed(&found[older..]));
            if older > 0 {
                say(&format!(
                    "{older} older ones: `--last {}` lists them, `--group` counts them by their cause\n",
                    found.len()
                ));
            }
            Exit::Done
        }
    }
}

/// What is in the folder and no report, in one line.
fn passed_over(others: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = others[..others.len().min(SHOWN)].join(", ");
    let more = match others.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("warning: these are not reports, and were skipped: {shown}{more}\n")
}

/// The last one first, a line each.
fn listed(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports.iter().rev() {
        let (time, kind, pool, id) = (&report.time, &report.kind, &report.pool, &report.id);
        let request = report.request.as_ref();
        let request = request.map_or_else(String::new, |request| format!(" · {}", request.what));
        let cause = first_line(&report.cause);
        // A String takes all, here and below.
        _ = writeln!(text, "{time}  {kind:7}  {pool}  {cause}{request}\n    {id}");
    }
    text
}

fn grouped(groups: &[Group]) -> String {
    let mut text = String::new();
    for Group { reports, last } in groups {
        let cause = first_line(&last.cause);
        let (kind, pool, time, id) = (&last.kind, &last.pool, &last.time, &last.id);
        let group = &last.group;
        _ = writeln!(
            text,
            "{reports:5} × {kind:7}  {pool}  {cause}\n    group {group}, last {time}, {id}"
        );
    }
    text
}

fn shown(report: &Report) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        if !value.is_empty() {
            let value = value.trim_end().replace('\n', "\n             ");
            _ = writeln!(text, "{name:12} {value}");
        }
    };
    row("report", &report.id);
    row("time", &report.time);
    row("kind", &report.kind);
    row("pool", &report.pool);
    row("group", &report.group);
    row(
        "pid",
        &number(Some(u64::from(report.pid)).filter(|pid| *pid != 0)),
    );
    row("cause", &report.cause);
    if report.text != report.cause {
        row("", &report.text);
    }
    row(
        "ran",
        &report
            .ran_ms
            .map_or_else(String::new, |ms| format!("{ms} ms")),
    );
    row("time went to", &report.split.map(parts).unwrap_or_default());
    row(
        "retried",
        &report
            .retried
            .map_or_else(String::new, |retried| retried.to_string()),
    );
    let memory = report.memory_bytes.map(|bytes| bytes >> 20);
    row(
        "memory",
        &memory.map_or_else(String::new, |mb| format!("{mb} MB")),
    );
    if let Some(request) = &report.request {
        row("request", &request.what);
        row("from", &request.remote_address);
        row(
            "request id",
            request.request_id.as_deref().unwrap_or_default(),
        );
        row("route", request.route.as_deref().unwrap_or_default());
        let headers = request.headers.iter();
        let headers: Vec<_> = headers
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        row("headers", &headers.join("\n"));
    }
    row("stack", &report.stack.join("\n"));
    row("stderr", &report.stderr.join("\n"));
    row(
        "left out",
        &number(Some(report.left_out).filter(|number| *number > 0)),
    );
    row("version", &report.version);
    text
}

/// What the time was spent on, in milliseconds.
fn parts(split: ReportedSplit) -> String {
    let ms = |micros: u64| format!("{}.{} ms", micros / 1000, micros / 100 % 10);
    let mut parts = Vec::new();
    if split.read_us > 0 {
        parts.push(format!("reading {}", ms(split.read_us)));
    }
    parts.push(format!("waiting in the queue {}", ms(split.queue_us)));
    parts.push(format!("PHP {}", ms(split.php_us)));
    if let Some(write) = split.write_us {
        parts.push(format!("the reply {}", ms(write)));
    }
    let mut text = parts.join(", ");
    if let (Some(cpu), Some(blocked)) = (split.php_cpu_us, split.php_blocked_us) {
        _ = write!(
            text,
            "\nPHP computed {}, was blocked {}",
            ms(cpu),
            ms(blocked)
        );
    }
    text
}

fn number(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(160).collect()
}
