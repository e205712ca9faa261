//! wrk: one thread with connections that each send the next request when they have the answer.

use super::{Counted, Latency, Seen, figures};
use crate::error::BenchError;
use crate::program::Argv;
use crate::scenario::Scenario;
use crate::servers::Server;
use crate::site::{Site, find};

/// What the script prints before each figure.
const MARK: &str = "pronghorn ";

pub(super) async fn run(
    server: &Server,
    connections: u32,
    seconds: u32,
    unframed: bool,
    site: &Site,
) -> Result<Counted, BenchError> {
    let Server {
        address, scenario, ..
    } = server;
    let script = site.folder.join(format!("{}.lua", address.port()));
    let body = script.with_extension("body");
    Site::write(&body, &scenario.body)?;
    Site::write(&script, lua(scenario, &body.to_string_lossy()))?;
    let arguments = [
        "-t1".into(),
        format!("-c{connections}").into(),
        format!("-d{seconds}s").into(),
        // Slow is a result; an answer that never comes is not.
        "--timeout=10s".into(),
        "-s".into(),
        script.into(),
        format!(
            "{}://{address}{}",
            scenario.protocol.scheme(),
            scenario.target
        )
        .into(),
    ];
    let argv = Argv::new(find("wrk", "wrk")?, arguments);
    let figures = figures("wrk", argv, seconds, site, Figures::parse).await?;
    if scenario.setup.counts_errors {
        return figures.with_errors();
    }
    figures.counted(scenario.expected.status, unframed)
}

/// It has no function that would run for each request: those would cost wrk more than the requests
/// do.
fn lua(scenario: &Scenario, body: &str) -> String {
    // Lua's own escapes are decimal; these texts are visible ASCII, or bytes.
    let quoted = |text: &str| {
        let bytes = text.bytes().map(|byte| format!("\\{byte:03}"));
        format!("\"{}\"", bytes.collect::<String>())
    };
    let mut script = format!("wrk.method = {}\n", quoted(&scenario.method));
    for (name, value) in scenario.fields() {
        script.extend(["wrk.headers[", &quoted(name), "] = ", &quoted(value), "\n"]);
    }
    if !scenario.body.is_empty() {
        let read = format!(
            "wrk.body = assert(io.open({}, \"rb\")):read(\"*a\")\n",
            quoted(body)
        );
        script.push_str(&read);
    }
    if let Some(file) = scenario.setup.file {
        // Two texts, made once.
        let alternating = [
            "local page, file, turn
init = function(args)
    page, file, turn = wrk.format(), wrk.format(nil, ",
            &quoted(file),
            "), false
end
request = function()
    turn = not turn
    return turn and page or file
end
",
        ];
        script.extend(alternating);
    }
    let done = format!(
        "done = function(summary, latency)
    local e = summary.errors
    print(string.format(\"{MARK}%d %d %d %d %d %d %d %d\",
        summary.requests, summary.duration, summary.bytes, e.connect, e.read, e.write, e.timeout, e.status))
    print(string.format(\"{MARK}%d %d %d %d %d\", latency:percentile(50), latency:percentile(90),
        latency:percentile(99), latency:percentile(99.9), latency.max))
end
"
    );
    script + &done
}

#[derive(Debug, PartialEq)]
struct Figures {
    /// Requests, microseconds, bytes; errors of connect, read, write, time; statuses above 399.
    counts: [f64; 8],
    /// Microseconds.
    latency: [f64; 5],
}

impl Figures {
    fn parse(output: &str) -> Option<Self> {
        let mut lines = output.lines().filter_map(|line| line.strip_prefix(MARK));
        let mut next = || -> Option<Vec<f64>> {
            let numbers = lines.next()?.split_whitespace();
            numbers.map(|number| number.parse().ok()).collect()
        };
        Some(Self {
            counts: next()?.try_into().ok()?,
            latency: next()?.try_into().ok()?,
        })
    }

    /// Whatever was answered counts, with the share of what a client would not call an answer.
    fn with_errors(self) -> Result<Counted, BenchError> {
        let [requests, _, _, connect, read, write, late, refused] = self.counts;
        let failed = connect + read + write + late + refused;
        let mut counts = self.counts;
        for error in &mut counts[3..] {
            *error = 0.0;
        }
        let mut counted = Self { counts, ..self }.counted(200, false)?;
        counted.seen.errors_percent = failed / requests * 100.0;
        Ok(counted)
    }

    fn counted(self, status: u16, unframed: bool) -> Result<Counted, BenchError> {
        let [requests, time, bytes, connect, read, write, late, refused] = self.counts;
        let [p50_us, p90_us, p99_us, p999_us, max_us] = self.latency;
        if requests < 1.0 {
            return Err(BenchError::Errors(
                "not one request was answered".to_owned(),
            ));
        }
        let as_expected = if status > 399 { requests } else { 0.0 };
        if (refused - as_expected).abs() > 0.5 {
            return Err(BenchError::Errors(format!(
                "{refused:.0} of {requests:.0} answers had a status above 399"
            )));
        }
        // wrk takes each end of a connection for an error, also where it is the end of an answer.
        // Bytes tell then.
        let read = if unframed && read <= requests {
            0.0
        } else {
            read
        };
        if connect + read + write + late > 0.0 {
            return Err(BenchError::Errors(format!(
                "of {requests:.0} requests failed: {connect:.0} at connecting, {write:.0} at sending, {read:.0} at \
                 reading, {late:.0} for want of an answer"
            )));
        }
        let latency = Latency {
            p50_us,
            p90_us,
            p99_us,
            p999_us,
            max_us,
        };
        let seen = Seen {
            requests,
            rate: requests / time * 1e6,
            latency,
            unanswered: 0,
            errors_percent: 0.0,
        };
        Ok(Counted { seen, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Running 4s test @ http://127.0.0.1:8080/
  1 threads and 10 connections
  224513 requests in 4.00s, 37.25MB read
Requests/sec:  56119.85
pronghorn 224513 4000000 39059456 0 0 0 0 0
pronghorn 98 162 1230 4000 14200
";

    #[test]
    fn figures_are_read() {
        let counted = Figures::parse(OUTPUT).unwrap().counted(200, false).unwrap();
        let latency = Latency {
            p50_us: 98.0,
            p90_us: 162.0,
            p99_us: 1230.0,
            p999_us: 4000.0,
            max_us: 14200.0,
        };
        let seen = Seen {
            requests: 224_513.0,
            rate: 56_128.25,
            latency,
            unanswered: 0,
            errors_percent: 0.0,
        };
        assert_eq!(
            counted,
            Counted {
                seen,
                bytes: 39_059_456.0
            }
        );
    }

    #[test]
    fn what_was_cut_off_is_no_figure() {
        let cut = OUTPUT.rsplit_once("pronghorn").unwrap().0;
        assert_eq!(Figures::parse(cut), None);
        assert_eq!(Figures::parse(""), None);
    }

    #[test]
    fn answers_that_are_none_refuse_the_rate() {
        let refused_of = |counts: &str, status, unframed| {
            let output = OUTPUT.replace("224513 4000000 39059456 0 0 0 0 0", counts);
            let counted = Figures::parse(&output).unwrap().counted(status, unframed);
            counted
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        let refused = |counts, status| refused_of(counts, status, false);
        for (counts, why) in [
            (
                "500 4000000 1 0 0 0 0 500",
                "500 of 500 answers had a status above 399",
            ),
            (
                "500 4000000 1 0 0 0 0 1",
                "1 of 500 answers had a status above 399",
            ),
            ("500 4000000 1 0 3 0 0 0", "3 at reading"),
            ("500 4000000 1 0 0 0 7 0", "7 for want of an answer"),
            ("0 4000000 0 0 0 0 0 0", "not one request"),
        ] {
            let message = refused(counts, 200);
            assert!(message.contains(why), "{message:?}");
        }
        assert_eq!(refused("500 4000000 1 0 0 0 0 500", 404), "");
        assert_eq!(refused_of("500 4000000 1 0 500 0 0 0", 200, true), "");
        assert!(refused_of("500 4000000 1 0 501 0 0 0", 200, true).contains("501 at reading"));
        assert!(refused("500 4000000 1 0 0 0 0 499", 404).contains("499 of 500"));
    }

    #[test]
    fn the_script_holds_any_bytes() {
        let mut scenario =
            crate::scenario::select(&crate::scenario::folder(), &["hello".to_owned()])
                .unwrap()
                .remove(0);
        scenario.headers = vec![("A".to_owned(), "\"\\".to_owned())];
        scenario.body = vec![0];
        let script = lua(&scenario, "/b");
        assert!(
            script.contains(r#"wrk.headers["\065"] = "\034\092""#),
            "{script}"
        );
        assert!(script.contains(r#"io.open("\047\098", "rb")"#), "{script}");
    }
}
