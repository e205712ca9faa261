//! Counts the instructions that the release binary spends on a request, and compares them with
//! `bench/instructions.toml`.
//!
//! The binary runs under callgrind; this program plays its workers and its clients. Each of their
//! steps waits until all threads of the server sleep, so nothing depends on who is faster: two runs
//! differ by less than a thousandth.

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
    let binary = std::env::args_os().nth(1).map(PathBuf::from);
    let binary = binary.ok_or(Error::Usage)?;
    if !binary.is_file() {
        return Err(Error::NoBinary(binary));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).with_extension("toml");
    let tracked = Figures::read(&file)?;
    let folder = Folder::new(&binary)?;
    let mut measured = Figures::default();
    measured.compiler = compiler();
    println!("{:<10} {:>12} {:>12}", "row", "tracked", "measured");
    let mut verdicts = Vec::new();
    for row in &ROWS {
        let figure = row.measure(&binary, &folder)?;
        let verdict = tracked.judge(row.name, figure);
        println!(
            "{:<10} {:>12} {figure:>12} {verdict}",
            row.name,
            tracked
                .of(row.name)
                .map_or_else(|| "-".to_owned(), |figure| figure.to_string()),
        );
        measured.set(row.name, figure);
        verdicts.push((row.name, verdict));
    }
    let are_allowed = costs(&measured);
    if std::env::var_os(UPDATE).is_some() {
        measured.write(&file)?;
        println!("\n{} is written anew: look at what changed", file.display());
        return Ok(are_allowed);
    }
    if tracked.compiler != measured.compiler {
        println!(
            "\nnot judged: the tracked figures were counted with {}, this is {}",
            tracked.compiler.as_deref().unwrap_or("another compiler"),
            measured.compiler.as_deref().unwrap_or("another"),
        );
        return Ok(are_allowed);
    }
    Ok(conclude(&verdicts, &folder) && are_allowed)
}

fn compiler() -> Option<String> {
    let said = Command::new("rustc").arg("--version").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    Some(said.trim().to_owned())
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
