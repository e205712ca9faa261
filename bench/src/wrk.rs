//! wrk: one thread with keep-alive that sends the next request when it has the answer.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::error::BenchError;
use crate::program::{Argv, Program};
use crate::site::{Site, find};

/// Beyond its time under load, for its start and its last answers.
const GRACE: Duration = Duration::from_secs(30);

/// What one run of wrk saw.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Seen {
    pub(crate) requests: f64,
    #[serde(rename = "requests_per_second")]
    pub(crate) rate: f64,
    /// Microseconds.
    #[serde(rename = "p50_us")]
    pub(crate) p50: f64,
    #[serde(rename = "p99_us")]
    pub(crate) p99: f64,
}

/// Puts a server under load.
pub(crate) async fn run(
    address: SocketAddr,
    connections: u32,
    seconds: u32,
    site: &Site,
) -> Result<Seen, BenchError> {
    let arguments = [
        "-t1".into(),
        format!("-c{connections}").into(),
        format!("-d{seconds}s").into(),
        // Slow is a result; an answer that never comes is not.
        "--timeout=10s".into(),
        "--latency".into(),
        format!("http://{address}/").into(),
    ];
    let mut wrk = Program::start(Argv::new(find("wrk", "wrk")?, arguments), site).await?;
    let ended = wrk
        .finish(Duration::from_secs(seconds.into()) + GRACE)
        .await;
    let output = wrk.stdout();
    if let Some(line) = errors(&output) {
        return Err(BenchError::Errors(line.to_owned()));
    }
    parse(&output)
        .filter(|_| ended)
        .ok_or_else(|| BenchError::Tool {
            program: "wrk",
            why: "gave no figures".to_owned(),
            said: format!("{output}\n{}", wrk.stderr()),
        })
}

fn errors(output: &str) -> Option<&str> {
    let lines = output.lines().map(str::trim);
    lines
        .into_iter()
        .find(|line| line.starts_with("Socket errors:") || line.starts_with("Non-2xx"))
}

fn parse(output: &str) -> Option<Seen> {
    let lines = || output.lines().map(str::trim);
    let behind = |start: &str| lines().find_map(|line| line.strip_prefix(start).map(str::trim));
    let requests = lines().find_map(|line| line.split_once(" requests in "))?.0;
    let seen = Seen {
        requests: requests.parse().ok()?,
        rate: behind("Requests/sec:")?.parse().ok()?,
        p50: microseconds(behind("50%")?)?,
        p99: microseconds(behind("99%")?)?,
    };
    (seen.requests > 0.0).then_some(seen)
}

/// `118.00us`, `1.23ms`, `2.46s`, `1.02m`
fn microseconds(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text.strip_prefix(digits)? {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 6e7,
        "h" => 3.6e9,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Running 4s test @ http://127.0.0.1:8080/
  1 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   173.31us  512.12us  14.20ms   97.11%
    Req/Sec    56.41k     7.23k   66.10k    72.50%
  Latency Distribution
     50%   98.00us
     75%  162.00us
     90%  203.00us
     99%    1.23ms
  224513 requests in 4.00s, 37.25MB read
";

    #[test]
    fn figures_are_read() {
        let output = format!("{OUTPUT}Requests/sec:  56119.85\nTransfer/sec:      9.31MB\n");
        assert_eq!(
            parse(&output),
            Some(Seen {
                requests: 224_513.0,
                rate: 56_119.85,
                p50: 98.0,
                p99: 1230.0
            })
        );
        assert_eq!(errors(&output), None);
    }

    #[test]
    fn what_was_cut_off_or_counts_nothing_is_no_figure() {
        assert_eq!(parse(OUTPUT), None);
        let nothing = format!("{OUTPUT}Requests/sec:  0.00\n").replace("224513", "0");
        assert_eq!(parse(&nothing), None);
    }

    #[test]
    fn errors_are_found() {
        for line in [
            "  Socket errors: connect 0, read 12, write 0, timeout 0",
            "  Non-2xx or 3xx responses: 4",
        ] {
            let output = format!("{OUTPUT}{line}\nRequests/sec:  56119.85\n");
            assert_eq!(errors(&output), Some(line.trim()));
        }
    }

    #[test]
    fn times_have_units() {
        let times = ["0.00us", "1.50ms", "2.46s", "1.00m", "3.00"].map(microseconds);
        let expected = [Some(0.0), Some(1500.0), Some(2_460_000.0), Some(6e7), None];
        assert_eq!(times, expected);
    }
}
