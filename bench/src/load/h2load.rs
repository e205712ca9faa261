//! h2load: one thread with connections of HTTP/2 that each keep so many requests open.

use hdrhistogram::Histogram;

use super::{Counted, Latency, Seen, figures};
use crate::error::BenchError;
use crate::program::Argv;
use crate::servers::Server;
use crate::site::{Site, find};

/// Microseconds; far above what can be.
const LONGEST: u64 = 120_000_000;

pub(super) async fn run(
    server: &Server,
    connections: u32,
    seconds: u32,
    site: &Site,
) -> Result<Counted, BenchError> {
    let Server {
        address, scenario, ..
    } = server;
    let log = site.folder.join(format!("{}.log", address.port()));
    // It appends.
    _ = std::fs::remove_file(&log);
    let mut arguments = vec![
        "-t1".into(),
        format!("-c{connections}").into(),
        format!("-m{}", scenario.streams).into(),
        format!("-D{seconds}").into(),
        "--connection-inactivity-timeout=10".into(),
        // For percentiles: it prints none.
        "--log-file".into(),
        log.clone().into(),
    ];
    for (name, value) in scenario.fields() {
        arguments.extend(["-H".into(), format!("{name}: {value}").into()]);
    }
    let scheme = scenario.protocol.scheme();
    arguments.push(format!("{scheme}://{address}{}", scenario.target).into());
    let argv = Argv(find("h2load", "nghttp2-client")?, arguments);
    let told = figures("h2load", argv, seconds, site, Told::parse).await?;
    let lines = std::fs::read_to_string(&log);
    _ = std::fs::remove_file(&log);
    let lines = lines.map_err(|source| BenchError::Read { file: log, source })?;
    told.counted(seconds, latency(&lines))
}

/// What it prints at its end.
#[derive(Debug, PartialEq)]
struct Told {
    done: f64,
    /// With a status below 400.
    succeeded: f64,
    errored: f64,
    timeout: f64,
    /// Of bodies.
    bytes: f64,
}

impl Told {
    fn parse(output: &str) -> Option<Self> {
        let line = |start: &str| output.lines().find_map(|line| line.strip_prefix(start));
        let requests = line("requests: ")?;
        let number = |name: &str| -> Option<f64> {
            let part = requests.split(", ").find(|part| part.ends_with(name))?;
            part.split(' ').next()?.parse().ok()
        };
        // `… , 1.03MB (1080000) data`
        let (_, bytes) = line("traffic: ")?
            .strip_suffix(") data")?
            .rsplit_once('(')?;
        Some(Self {
            done: number(" done")?,
            succeeded: number(" succeeded")?,
            errored: number(" errored")?,
            timeout: number(" timeout")?,
            bytes: bytes.parse().ok()?,
        })
    }

    fn counted(self, seconds: u32, latency: Latency) -> Result<Counted, BenchError> {
        let Self {
            done,
            succeeded,
            errored,
            timeout,
            bytes,
        } = self;
        if done < 1.0 {
            let none = "not one request was answered".to_owned();
            return Err(BenchError::Errors(none));
        }
        if done > succeeded || errored + timeout > 0.0 {
            return Err(BenchError::Errors(format!(
                "of {done:.0} requests {succeeded:.0} had a status below 400; {errored:.0} failed, {timeout:.0} for want of an answer"
            )));
        }
        let seen = Seen {
            requests: done,
            rate: done / f64::from(seconds),
            latency,
            unanswered: 0,
            errors_percent: 0.0,
        };
        Ok(Counted { seen, bytes })
    }
}

/// Of its log: a line for each request, with its start, status and time in microseconds.
fn latency(log: &str) -> Latency {
    let mut times = Histogram::new_with_max(LONGEST, 3).expect("the bounds are sound");
    for line in log.lines() {
        if let Some(time) = line.rsplit('\t').next().and_then(|time| time.parse().ok()) {
            times.saturating_record(time);
        }
    }
    Latency::of(&times)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "starting benchmark...
finished in 3.00s, 30000.00 req/s, 1.23MB/s
requests: 90000 total, 90020 started, 90000 done, 90000 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 90000 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 6.38MB (6690420) total, 1.23MB (1290000) headers (space savings 91.00%), 1.03MB (1080000) data
";

    #[test]
    fn figures_are_read() {
        let latency = latency("1700000000000000\t200\t100\n1700000000000100\t200\t300\n");
        assert_eq!((latency.p50_us, latency.max_us), (100.0, 300.0));
        let counted = Told::parse(OUTPUT).unwrap().counted(3, latency).unwrap();
        assert_eq!(
            (counted.seen.requests, counted.bytes),
            (90_000.0, 1_080_000.0)
        );
        assert!((counted.seen.rate - 30_000.0).abs() < 0.1);
    }

    #[test]
    fn answers_that_are_none_refuse_the_rate() {
        for (good, bad, why) in [
            (
                "90000 succeeded, 0 failed",
                "89999 succeeded, 1 failed",
                "89999 had a status",
            ),
            ("0 timeout", "7 timeout", "7 for want of an answer"),
            ("90000 done", "0 done", "not one request"),
        ] {
            let told = Told::parse(&OUTPUT.replace(good, bad)).unwrap();
            let latency = latency("");
            let error = told.counted(3, latency).err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(Told::parse("finished in 3.00s"), None);
    }
}
