//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::benchmarks::Options;
use crate::servers::Peer;

/// `make bench` is to be over in ten minutes, with a build that is up to date.
const SHORT: Duration = Duration::from_secs(9 * 60);
/// Nobody waits for it; but it has an end.
const FULL: Duration = Duration::from_secs(2 * 60 * 60);

/// Measures the server beside its rivals in one run
#[derive(Debug, Clone, Parser)]
#[command(name = "pronghorn-bench", max_term_width = 100)]
pub(crate) struct Arguments {
    /// Scenarios to measure, with commas between [default: those of the short run]
    #[arg(long, value_delimiter = ',')]
    pub(crate) scenarios: Vec<String>,
    /// Servers to measure, of those that a scenario names [default: all of them]
    #[arg(long, value_delimiter = ',')]
    pub(crate) servers: Vec<String>,
    /// All scenarios, servers and loads, not the selection of the short run
    #[arg(long)]
    pub(crate) full: bool,
    /// Connections that send requests at once; each number is measured [default: the scenario's]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=400))]
    pub(crate) connections: Vec<u32>,
    /// Requests per second that come at a constant rate, instead of as fast as they are answered
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) open: Option<u32>,
    /// Rounds, of which the median counts; 0 leaves the load out
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) rounds: u32,
    /// Seconds that each server is under load in a round
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) seconds: u32,
    /// What others may take, in percent of one CPU, before a measurement is repeated or refused
    #[arg(long, default_value_t = 6.0, value_name = "PERCENT", global = true)]
    pub(crate) noise: f64,
    /// Seconds after which nothing more is begun [default: 540, with --full 7200]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) limit: Option<u32>,
    /// Another server: `name=command` with {port} in it, or `name=http://address:port`;
    /// `name@scenario,…=` of some scenarios
    #[arg(long = "peer", value_name = "NAME=COMMAND|URL", global = true)]
    pub(crate) peers: Vec<Peer>,
    /// Folder of RoadRunner's PHP packages, for `pronghorn-roadrunner`
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) packages: Option<PathBuf>,
    /// I/O threads of Pronghorn [default: the server's]
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) io_threads: Option<u16>,
    /// Counts system calls as well; needs strace
    #[arg(long)]
    pub(crate) syscalls: bool,
    /// Writes all figures to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The server [default: `pronghorn` beside this binary]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) pronghorn: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

impl Arguments {
    pub(crate) fn limit(&self) -> Duration {
        let default = if self.full { FULL } else { SHORT };
        let given = self
            .limit
            .map(|seconds| Duration::from_secs(seconds.into()));
        given.unwrap_or(default)
    }
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Command {
    /// Lists what can be asked of the servers
    Scenarios,
    /// Measures the articles' tables and what explains them, part by part; makes their pages
    Report(Options),
    /// Fills the figures of the last report into README.md and the documentation
    Figures {
        /// Changes nothing: fails when a page has other figures
        #[arg(long)]
        check: bool,
    },
    /// Shows what changed between two files of --json, and whether it is more than the spread
    Compare { before: PathBuf, after: PathBuf },
    /// The server of the row `http-alone`
    #[command(hide = true)]
    FromMemory { address: SocketAddr, threads: usize },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }
}
