//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Measures the server beside its rivals in one run
#[derive(Debug, Parser)]
#[command(name = "pronghorn-bench", max_term_width = 100)]
pub(crate) struct Arguments {
    /// Rows to measure, with commas between
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "native,psr7,http-alone,nginx,nginx-fpm"
    )]
    pub(crate) rows: Vec<String>,
    /// Connections that send requests at once; each number is measured
    #[arg(long, value_delimiter = ',', default_value = "10,100", value_parser = clap::value_parser!(u32).range(1..=400))]
    pub(crate) connections: Vec<u32>,
    /// Rounds, of which the median counts; 0 leaves the load out
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) rounds: u32,
    /// Seconds that each row is under load in a round
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) seconds: u32,
    /// Share of the machine's CPU, in percent, that others may take before a round is repeated
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT")]
    pub(crate) noise: f64,
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
    #[arg(long, value_name = "FILE")]
    pub(crate) pronghorn: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists what can be asked of the servers
    Scenarios,
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

    #[test]
    fn the_rows_measured_by_default_exist() {
        let arguments = Arguments::parse_from(["pronghorn-bench"]);
        assert_eq!(crate::rows::select(&arguments.rows).unwrap().len(), 5);
    }
}
