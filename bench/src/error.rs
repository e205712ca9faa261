//! What can be in the way of a measurement.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::client::CheckError;
use crate::scenario::ScenarioError;

#[derive(Debug, Error)]
pub(crate) enum BenchError {
    /// The machine's: a program is not installed.
    #[error("`{program}` was not found\nhint: sudo apt install {package}")]
    Missing {
        program: String,
        package: &'static str,
    },
    /// The caller's.
    #[error("there is no server `{name}`\nhint: there are {known}")]
    NoAdapter { name: String, known: String },
    /// The scenario's author's.
    #[error("the application has no {}", .0.display())]
    NoScript(PathBuf),
    #[error("needs RoadRunner's PHP packages\nhint: name their folder with --packages")]
    NoPackages,
    /// The caller's.
    #[error("there is no scenario `{name}`\nhint: there are {known}")]
    NoScenario { name: String, known: String },
    /// The caller's.
    #[error("there is no part `{name}` of the report\nhint: there are {known}")]
    NoPart { name: String, known: String },
    /// The page's author's.
    #[error("{}: {why}", file.display())]
    Figure { file: PathBuf, why: String },
    #[error("these pages disagree with docs/benchmarks.json: {0}\nhint: scripts/figures")]
    Stale(String),
    #[error("{0}")]
    Scenario(#[from] ScenarioError),
    #[error("cannot read {}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("the server was not found: {}\nhint: cargo build --release, or name it with --pronghorn", .0.display())]
    NoServer(PathBuf),
    #[error("no port is free on 127.0.0.1")]
    NoPort(#[source] io::Error),
    #[error("the thread that starts programs did not start: {0}")]
    NoSpawner(#[source] io::Error),
    #[error("cannot write {}: {source}", file.display())]
    Write { file: PathBuf, source: io::Error },
    #[error("{0}")]
    Spawn(#[from] pronghorn_process::SpawnError),
    /// A server ended, or did not answer as it should.
    #[error("it {why}\nit said: {said}\nhint: of Debian's packages it needs: {packages}")]
    NotReady {
        why: String,
        said: String,
        packages: &'static str,
    },
    /// A server answered wrongly before a round.
    #[error("{0}")]
    Check(#[from] CheckError),
    /// Its CPU time before and after would be that of different processes.
    #[error("processes ended whose CPU time nobody inherited")]
    Changed,
    #[error("{}: these are no results: {why}\nhint: `--json FILE` writes them", file.display())]
    NoResults { file: PathBuf, why: String },
    #[error(
        "no process that listens on {0} can be looked at: its CPU time would be missing\nhint: run this as root, or start it with --peer name=command"
    )]
    NoProcesses(SocketAddr),
    /// The caller's: there was more to do than time.
    #[error("the time that --limit sets was over")]
    OverTime,
    /// The caller's.
    #[error("requests at a constant rate are for HTTP/1.1")]
    NoConstantRate,
    #[error("this was left, though everything was stopped:\n  {}", .0.join("\n  "))]
    Left(Vec<String>),
    #[error("cannot read /proc/stat: there is no telling how much others did meanwhile")]
    NoMachine,
    /// wrk, h2load, strace or openssl did not do what they are for.
    #[error("`{program}` {why}\nit said: {said}")]
    Tool {
        program: &'static str,
        why: String,
        said: String,
    },
    /// Answers that are no answers.
    #[error("no rate, because of errors: {0}")]
    Errors(String),
    #[error("cannot listen on {address}: {why}")]
    Listen { address: SocketAddr, why: String },
    #[error("stopped by a signal")]
    Stopped,
}
