//! Counts the instructions that the release binary spends on a request, and those that PHP spends,
//! and compares them with `bench/instructions.toml`.
//!
//! The binary runs under callgrind; this program plays its workers and its clients. Each of their
//! steps waits until all threads of the server sleep, so nothing depends on who is faster: two runs
//! differ by less than a thousandth. For PHP's side only its workers run under callgrind.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program for the terminal that waits in real time"
)]

mod client;
mod error;
mod figures;
mod php;
mod rows;
mod server;
mod worker;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use error::Error;
use figures::{Figures, Verdict};
use rows::{COSTS, Most, ROWS};
use server::Folder;

/// Written anew with the figures of this run.
const UPDATE: &str = "UPDATE_INSTRUCTIONS";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, Error> {
    if !is_usual_cpu() {
        println!(
            "nothing was counted: the figures hold for x86-64 with AVX2, elsewhere other code runs"
        );
        return Ok(true);
    }
    let mut arguments = std::env::args_os().skip(1);
    let binary = arguments.next().map(PathBuf::from);
    let binary = binary.ok_or(Error::Usage)?;
    let wanted: Vec<_> = arguments.collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|row| *row == *name);
    let binary = match std::path::absolute(&binary) {
        Ok(path) if path.is_file() => path,
        _ => return Err(Error::NoBinary(binary)),
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).with_extension("toml");
    let tracked = Figures::read(&file)?;
    let folder = Folder::new(&binary)?;
    let mut measured = tracked.clone();
    measured.compiler = said_by("rustc");
    measured.php = said_by("php");
    let is_judged = [
        tracked.compiler == measured.compiler,
        tracked.php == measured.php,
    ];
    println!("{:<14} {:>9} {:>9}", "row", "tracked", "measured");
    let mut verdicts = Vec::new();
    let mut count = |name, figure, is_judged: bool| {
        let verdict = tracked.judge(name, figure);
        let before = tracked.of(name);
        let before = before.map_or_else(|| "-".to_owned(), |figure| figure.to_string());
        println!("{name:<14} {before:>9} {figure:>9} {verdict}");
        measured.set(name, figure);
        if is_judged {
            verdicts.push((name, verdict));
        }
    };
    for row in ROWS.iter().filter(|row| is_wanted(row.name)) {
        count(row.name, row.measure(&binary, &folder)?, is_judged[0]);
    }
    let copy = php::Copied::new()?;
    for row in php::ROWS.iter().filter(|row| is_wanted(row.name)) {
        count(
            row.name,
            row.measure(&binary, &folder, &copy)?,
            is_judged[1],
        );
    }
    let are_allowed = costs(&measured);
    if std::env::var_os(UPDATE).is_some() {
        measured.write(&file)?;
        println!("\n{} is written anew: look at what changed", file.display());
        return Ok(are_allowed);
    }
    for (tracked, measured, whose) in [
        (
            &tracked.compiler,
            &measured.compiler,
            "the server's figures",
        ),
        (&tracked.php, &measured.php, "PHP's figures"),
    ] {
        if tracked != measured {
            println!(
                "\n{whose} are not judged: they were counted with {}, this is {}",
                tracked.as_deref().unwrap_or("something else"),
                measured.as_deref().unwrap_or("something else"),
            );
        }
    }
    Ok(conclude(&verdicts, &folder) && are_allowed)
}

/// The first line of what a program says about its version.
fn said_by(program: &str) -> Option<String> {
    let said = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    said.lines().next().map(|line| line.trim().to_owned())
}

/// Libraries choose their code by the CPU, and callgrind shows them the features of the real one.
fn is_usual_cpu() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// What rows take beyond those that they are compared with. False if one takes more than is
/// allowed.
fn costs(measured: &Figures) -> bool {
    println!();
    let mut are_allowed = true;
    for cost in &COSTS {
        let (Some(base), Some(row)) = (measured.of(cost.base), measured.of(cost.row)) else {
            continue;
        };
        let percent = figures::change(base, row);
        let (most, word) = match cost.most {
            Most::Allowed(most) => (most, "allowed"),
            Most::Aimed(most) => (most, "aimed at"),
        };
        let is_more = percent > most;
        let verdict = if is_more { "  MORE" } else { "" };
        println!(
            "{}: {percent:+.2} % of `{}`, at most {most} % are {word}{verdict}",
            cost.what, cost.base
        );
        are_allowed &= !is_more || matches!(cost.most, Most::Aimed(_));
    }
    are_allowed
}

fn conclude(verdicts: &[(&str, Verdict)], folder: &Folder) -> bool {
    let names = |wanted: fn(&Verdict) -> bool| -> Vec<&str> {
        let found = verdicts.iter().filter(|(_, verdict)| wanted(verdict));
        found.map(|(name, _)| *name).collect()
    };
    let grown = names(|verdict| matches!(verdict, Verdict::Grew(_)));
    let others = names(|verdict| matches!(verdict, Verdict::Shrank(_) | Verdict::New));
    if grown.is_empty() && others.is_empty() {
        return true;
    }
    if !grown.is_empty() {
        println!(
            "\nmore instructions per request than tracked: {}\n\
             where they are spent: callgrind_annotate {}",
            grown.join(", "),
            folder.profile(grown.first().unwrap_or(&"")).display(),
        );
    }
    if !others.is_empty() {
        println!("\nno longer as tracked: {}", others.join(", "));
    }
    println!(
        "if that is meant, `make instructions {UPDATE}=1` accepts the new figures; the commit says why"
    );
    false
}
