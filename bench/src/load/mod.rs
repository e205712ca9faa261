//! Load on a server, and what it showed. While it lasts, answers are looked at: an error is
//! answered fast.

mod h2load;
mod open;
#[cfg(test)]
mod tests;
mod wrk;

use std::cell::RefCell;
use std::future::pending;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::client::{CheckError, check};
use crate::error::BenchError;
use crate::program::{Argv, Program};
use crate::scenario::Load;
use crate::servers::Server;
use crate::site::Site;

/// Beyond a program's time under load, for its start and its last answers.
const GRACE: Duration = Duration::from_secs(30);

/// What a server did under load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// That were answered.
    pub(crate) requests: f64,
    #[serde(rename = "requests_per_second")]
    pub(crate) rate: f64,
    #[serde(flatten)]
    pub(crate) latency: Latency,
    /// Of an open load: requests without an answer when patience was over. They count in the
    /// latency with their wait until then.
    pub(crate) unanswered: u64,
    /// Answers that are none, where a setup counts them.
    #[serde(default)]
    pub(crate) errors_percent: f64,
}

/// Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

impl Latency {
    /// Of a histogram of microseconds.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53 microseconds")]
    fn of(histogram: &Histogram<u64>) -> Self {
        let quantile = |share| histogram.value_at_quantile(share) as f64;
        Self {
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            max_us: histogram.max() as f64,
        }
    }
}

/// What a load generator counted.
#[derive(Debug, PartialEq)]
struct Counted {
    seen: Seen,
    /// On the wire, as [`Answer::size`](crate::client::Answer) counts them.
    bytes: f64,
}

/// Puts a server under load for so many seconds.
///
/// # Errors
/// When an answer was not as the scenario says, before, meanwhile or afterwards: then there is no
/// rate.
pub(crate) async fn run(
    server: &Server,
    load: Load,
    seconds: u32,
    site: &Site,
) -> Result<Seen, BenchError> {
    let first = check(server.address, &server.scenario).await?;
    let seen = match load {
        Load::Closed { connections } => {
            closed(server, connections, seconds, first.unframed, site).await?
        }
        Load::Open { .. } if server.scenario.protocol.is_http2() => {
            return Err(BenchError::NoConstantRate);
        }
        Load::Open { rate, connections } => {
            open::run(server.address, &server.scenario, rate, connections, seconds).await?
        }
    };
    if !server.scenario.setup.counts_errors {
        check(server.address, &server.scenario).await?;
    }
    Ok(seen)
}

async fn closed(
    server: &Server,
    connections: u32,
    seconds: u32,
    unframed: bool,
    site: &Site,
) -> Result<Seen, BenchError> {
    let sizes = RefCell::new(Vec::new());
    let run = async {
        if server.scenario.protocol.is_http2() {
            h2load::run(server, connections, seconds, site).await
        } else {
            wrk::run(server, connections, seconds, unframed, site).await
        }
    };
    let setup = &server.scenario.setup;
    if setup.counts_errors {
        return Ok(run.await?.seen);
    }
    let counted = tokio::select! {
        counted = run => counted?,
        wrong = watch(server, seconds, &sizes) => return Err(wrong.into()),
    };
    if setup.file.is_some() {
        return Ok(counted.seen); // its answers have two sizes
    }
    plausible_size(&counted, connections, &sizes.into_inner())?;
    Ok(counted.seen)
}

/// Runs a load generator for so long, and reads what it prints.
async fn figures<F>(
    program: &'static str,
    argv: Argv,
    seconds: u32,
    site: &Site,
    parse: impl FnOnce(&str) -> Option<F>,
) -> Result<F, BenchError> {
    let mut running = Program::start(argv, site, &site.folder).await?;
    let limit = Duration::from_secs(seconds.into()) + GRACE;
    let ended = running.finish(limit).await;
    let output = running.stdout();
    let figures = parse(&output).filter(|_| ended);
    figures.ok_or_else(|| BenchError::Tool {
        program,
        why: "gave no figures".to_owned(),
        said: format!("{output}\n{}", running.stderr()),
    })
}

/// Looks at some answers while others are served; returns with the first that is wrong.
async fn watch(server: &Server, seconds: u32, sizes: &RefCell<Vec<usize>>) -> CheckError {
    const LOOKS: u32 = 4;
    for _ in 0..LOOKS {
        sleep(Duration::from_secs(seconds.into()) / (LOOKS + 1)).await;
        match check(server.address, &server.scenario).await {
            Ok(answer) => sizes.borrow_mut().push(answer.size),
            // Who belongs to other connections lets this one wait: no answer is no wrong answer.
            Err(CheckError::Slow) => {}
            Err(wrong) => return wrong,
        }
    }
    pending().await
}

/// The load generator looks at no body, but it counts bytes: they have to be those of right
/// answers.
#[expect(clippy::cast_precision_loss, reason = "sizes of answers")]
fn plausible_size(counted: &Counted, connections: u32, sizes: &[usize]) -> Result<(), BenchError> {
    /// Dates, identifiers and cookies differ a little.
    const SHARE: f64 = 0.03;
    const BYTES: f64 = 16.0;
    let (Some(least), Some(most)) = (sizes.iter().min(), sizes.iter().max()) else {
        return Ok(());
    };
    let mean = counted.bytes / counted.seen.requests;
    // Of answers under way at the end a part is counted, the request is not.
    let partial = 1.0 + f64::from(connections) / counted.seen.requests;
    let (least, most) = (*least as f64, *most as f64);
    if mean < least * (1.0 - SHARE) - BYTES || mean > (most * (1.0 + SHARE) + BYTES) * partial {
        return Err(BenchError::Errors(format!(
            "answers under load have {mean:.0} bytes, those that were looked at {least:.0} to {most:.0}"
        )));
    }
    Ok(())
}
