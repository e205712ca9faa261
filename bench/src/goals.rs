//! What the figures are to be, and whether they are.

use serde::Serialize;

use crate::results::{Rate, Results};
use crate::scenario::{Load, Scenario};

/// A figure that is to be small.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    /// What it is to come to.
    pub(crate) aim: f64,
    /// What it may be.
    pub(crate) limit: f64,
    pub(crate) measured: f64,
    pub(crate) met: bool,
}

/// Which figure of a row, and in which unit.
#[derive(Debug, Clone, Copy)]
enum Figure {
    /// CPU time as a multiple of that of nginx from memory.
    Cpu,
    /// The same of the best server of the kind on which PHP runs inside of the server, where it is
    /// measured with `--peer`.
    CpuOfPeer(&'static str),
    /// CPU time as a multiple of our own in another scenario.
    CpuOfScenario(&'static str),
    P99,
    /// The 99th percentile as a multiple of what so many workers could do at best.
    P99OfIdeal,
    /// What is missing of the rate that so many workers could have.
    ShortOfIdeal,
}

/// Scenario, server, connections; what it is to come to and what it may be.
type Row = (&'static str, &'static str, u32, Figure, f64, f64);

/// Multiples of nginx are those of the machine on which all rivals were measured: the best rival's,
/// by what is wanted of it. There nginx took 9.7, 7.8 and 5.5 µs with 1, 10 and 100 connections;
/// Workerman 6.8 and 7.4 with 10 and 100.
const ROWS: [Row; 26] = [
    ("hello", "pronghorn", 1, Figure::Cpu, 1.86, 2.06),
    ("hello", "pronghorn", 1, Figure::P99, 70.0, 70.0),
    ("hello", "pronghorn", 10, Figure::Cpu, 0.87, 1.18),
    (
        "hello",
        "pronghorn",
        10,
        Figure::CpuOfPeer("workerman"),
        1.0,
        1.35,
    ),
    ("hello", "pronghorn", 100, Figure::Cpu, 1.35, 1.61),
    (
        "hello",
        "pronghorn",
        100,
        Figure::CpuOfPeer("workerman"),
        1.0,
        1.2,
    ),
    ("hello", "pronghorn", 100, Figure::P99, 1200.0, 2000.0),
    ("hello", "pronghorn-psr7", 10, Figure::Cpu, 1.79, 2.31),
    ("hello", "pronghorn-psr7", 100, Figure::Cpu, 2.55, 3.27),
    (
        "hello",
        "pronghorn-classic",
        100,
        Figure::P99,
        5000.0,
        5000.0,
    ),
    (
        "hello",
        "pronghorn-fastcgi",
        100,
        Figure::P99,
        10_000.0,
        10_000.0,
    ),
    ("hello", "http-alone", 10, Figure::Cpu, 1.1, 1.1),
    ("hello", "http-alone", 100, Figure::Cpu, 1.1, 1.1),
    (
        "hello-8",
        "pronghorn",
        10,
        Figure::CpuOfScenario("hello"),
        1.15,
        1.3,
    ),
    ("slim", "pronghorn", 10, Figure::Cpu, 2.69, 3.08),
    ("post", "pronghorn", 10, Figure::Cpu, 3.08, 3.46),
    ("reply-64k", "pronghorn", 10, Figure::Cpu, 2.18, 2.82),
    (
        "reply-1m",
        "pronghorn",
        10,
        Figure::CpuOfPeer("swoole"),
        1.0,
        1.2,
    ),
    (
        "stream-100m",
        "pronghorn",
        2,
        Figure::CpuOfPeer("swoole"),
        1.0,
        1.2,
    ),
    ("laravel", "pronghorn", 10, Figure::Cpu, 17.9, 19.2),
    ("slow", "pronghorn", 16, Figure::ShortOfIdeal, 3.0, 3.0),
    ("slow", "pronghorn", 16, Figure::P99OfIdeal, 1.15, 1.15),
    ("slow", "pronghorn", 100, Figure::ShortOfIdeal, 3.0, 3.0),
    ("slow", "pronghorn", 100, Figure::P99OfIdeal, 1.15, 1.15),
    ("slow", "pronghorn-psr7", 16, Figure::ShortOfIdeal, 3.0, 3.0),
    (
        "slow",
        "pronghorn-psr7",
        100,
        Figure::ShortOfIdeal,
        3.0,
        3.0,
    ),
];

/// Which figure is compared with that of another server.
#[derive(Debug, Clone, Copy)]
enum Compared {
    Cpu,
    /// From one reply to the next: who answers at a higher rate has less.
    TimePerReply,
    P99,
}

/// A server, and another one beside it.
type Pair = (&'static str, &'static str);

/// Scenario, servers, the loads that count, or none for each; what the figure of the first may be
/// as a multiple of the other's.
type Beside = (&'static str, Pair, &'static [Load], Compared, f64);

const BESIDE: [Beside; 20] = {
    use Compared::{Cpu, P99, TimePerReply};

    const CLASSIC: Pair = ("pronghorn-classic", "nginx-fpm-kept");
    const FASTCGI: Pair = ("pronghorn-fastcgi", "nginx-fpm-kept");
    const CGI: Pair = ("pronghorn-cgi", "apache-cgi");
    const CACHED: Pair = ("pronghorn-files", "nginx-files-cached");
    const FILES: Pair = ("pronghorn-files", "nginx-files");
    const FPM: Pair = ("pronghorn", "nginx-fpm");
    // What it costs at most is counted as instructions; these are as near as times can tell.
    const METRICS: Pair = ("pronghorn-metrics", "pronghorn");
    const TRACES: Pair = ("pronghorn-traces", "pronghorn-metrics");
    const EACH: &[Load] = &[];
    const BUSY: &[Load] = &[
        Load::Closed { connections: 10 },
        Load::Closed { connections: 100 },
    ];
    // Asked by more at once, php-fpm with kept connections leaves requests without an answer, and
    // so much of the machine to the others that these cost less than on a busy one.
    const MODERATE: &[Load] = &[
        Load::Closed { connections: 1 },
        Load::Open {
            rate: 300,
            connections: 10,
        },
    ];
    [
        ("hello", CLASSIC, BUSY, Cpu, 0.7),
        ("slim", CLASSIC, BUSY, Cpu, 0.9),
        ("laravel", CLASSIC, MODERATE, Cpu, 1.0),
        ("hello", FASTCGI, EACH, Cpu, 1.0),
        ("cgi-c", CGI, EACH, TimePerReply, 1.0),
        ("cgi-cpp", CGI, EACH, TimePerReply, 1.0),
        ("cgi-sh", CGI, EACH, TimePerReply, 1.0),
        ("cgi-python", CGI, EACH, TimePerReply, 1.0),
        ("cgi-php", CGI, EACH, TimePerReply, 1.0),
        ("file-1k", CACHED, EACH, Cpu, 1.3),
        ("file-20k", CACHED, EACH, Cpu, 1.3),
        ("file-100k", CACHED, EACH, Cpu, 1.3),
        ("hello-tls", FPM, EACH, Cpu, 1.0),
        ("hello-h2", FPM, EACH, Cpu, 1.0),
        ("hello-h2c", FPM, EACH, Cpu, 1.0),
        ("gzip-file", FILES, EACH, Cpu, 1.0),
        ("gzip-json", FPM, EACH, Cpu, 1.0),
        ("insight", METRICS, EACH, Cpu, 1.05),
        ("insight", METRICS, BUSY, P99, 1.1),
        ("insight", TRACES, EACH, Cpu, 1.05),
    ]
};

const MB: f64 = 1_048_576.0;

/// Those of what was measured.
pub(crate) fn goals(results: &Results, scenarios: &[Scenario]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (scenario, server, connections, figure, aim, limit) in ROWS {
        let find = |scenario: &str, server: &str| rate(results, scenario, server, connections);
        let Some(row) = find(scenario, server) else {
            continue;
        };
        let to = |other: Option<&Rate>| Some(row.cpu_us.median / other?.cpu_us.median);
        let ideal = scenarios.iter().find(|known| known.name == scenario);
        let ideal = ideal.and_then(Scenario::ideal_rate);
        let p99 = row.p99_us.median;
        let (what, unit, measured) = match figure {
            Figure::Cpu => ("CPU", "× nginx", row.cpu_to_floor.map(|ratio| ratio.median)),
            Figure::CpuOfPeer(peer) => ("CPU × a peer", peer, to(find(scenario, peer))),
            Figure::CpuOfScenario(other) => ("CPU ×", other, to(find(other, server))),
            Figure::P99 => ("p99", "µs", Some(p99)),
            // Each connection waits until all those before it had their turn.
            Figure::P99OfIdeal => {
                let least = ideal.map(|rate| f64::from(connections) / rate * 1e6);
                ("p99", "× ideal", least.map(|least| p99 / least))
            }
            Figure::ShortOfIdeal => {
                let short = row.of_ideal_percent.map(|percent| 100.0 - percent);
                ("rate below the ideal", "%", short)
            }
        };
        if let Some(measured) = measured {
            let what = format!("{scenario}, {server}, {connections} connections: {what}");
            goals.push(Goal::new(what, unit, aim, limit, measured));
        }
    }
    for (scenario, (server, other), loads, compared, limit) in BESIDE {
        let counts = |load: &str| loads.is_empty() || loads.iter().any(|it| it.to_string() == load);
        let measured = |rate: &&Rate| {
            (&*rate.row.scenario, &*rate.row.server) == (scenario, server) && counts(&rate.row.load)
        };
        for row in results.rates.iter().filter(measured) {
            let load = &*row.row.load;
            let beside = |rate: &&Rate| {
                (&*rate.row.scenario, &*rate.row.server, &*rate.row.load) == (scenario, other, load)
            };
            let Some(beside) = results.rates.iter().find(beside) else {
                continue;
            };
            let per_second = |rate: &Rate| rate.requests_per_second.median;
            let (what, ratio) = match compared {
                Compared::Cpu => ("CPU", row.cpu_us.median / beside.cpu_us.median),
                Compared::TimePerReply => ("time per reply", per_second(beside) / per_second(row)),
                Compared::P99 => ("p99", row.p99_us.median / beside.p99_us.median),
            };
            let what = format!("{scenario}, {server}, {load} connections: {what} ×");
            goals.push(Goal::new(what, other, limit.min(1.0), limit, ratio));
        }
    }
    let ours = |server: &str| server == "pronghorn";
    let idle = results.idle.iter();
    for idle in idle.filter(|idle| ours(&idle.server) && idle.scenario == "hello") {
        let (private, each) = (idle.private_bytes / MB, idle.connection_bytes / 1024.0);
        let what = "server at rest, private".to_owned();
        goals.push(Goal::new(what, "MB", 12.0, 12.0, private));
        let what = "server at rest, RSS".to_owned();
        goals.push(Goal::new(what, "MB", 15.0, 15.0, idle.rss_bytes / MB));
        let what = "an idle connection".to_owned();
        goals.push(Goal::new(what, "KB", 4.0, 4.0, each));
    }
    for worker in results.workers.iter().filter(|idle| ours(&idle.server)) {
        let more = (worker.private_bytes - worker.plain_bytes) / MB;
        let what = "a worker's box".to_owned();
        goals.push(Goal::new(what, "MB", 1.5, 1.5, worker.box_bytes / MB));
        let what = "an idle worker beyond php, without its box".to_owned();
        goals.push(Goal::new(what, "MB", 1.0, 1.0, more));
    }
    goals
}

fn rate<'a>(
    results: &'a Results,
    scenario: &str,
    server: &str,
    connections: u32,
) -> Option<&'a Rate> {
    let load = connections.to_string();
    results.rates.iter().find(|rate| {
        let row = &rate.row;
        (&*row.scenario, &*row.server, &row.load) == (scenario, server, &load)
    })
}

impl Goal {
    fn new(what: String, unit: &'static str, aim: f64, limit: f64, measured: f64) -> Self {
        Self {
            what,
            unit,
            aim,
            limit,
            measured,
            met: measured <= limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Row;
    use crate::spread::Spread;

    fn rate(scenario: &str, server: &str, load: &str, cpu_us: f64, per_second: f64) -> Rate {
        let spread = |figure: f64| Spread::of([figure]).unwrap();
        Rate {
            row: Row {
                scenario: scenario.to_owned(),
                server: server.to_owned(),
                load: load.to_owned(),
            },
            rounds: 1,
            requests_per_second: spread(per_second),
            p50_us: spread(1.0),
            p90_us: spread(1.0),
            p99_us: spread(1.0),
            p999_us: spread(1.0),
            max_us: spread(1.0),
            cpu_us: spread(cpu_us),
            cpu_us_server: spread(cpu_us),
            cpu_us_php: spread(cpu_us),
            cpu_to_floor: None,
            cpu_to_best: None,
            best_rival: None,
            of_ideal_percent: None,
            unanswered: 0,
        }
    }

    #[test]
    fn servers_are_compared_under_the_loads_that_count() {
        let mut results = Results::new(1, 1, 6.0);
        for load in ["1", "10", "300/s over 10"] {
            results.rates.extend([
                rate("laravel", "pronghorn-classic", load, 90.0, 1.0),
                rate("laravel", "nginx-fpm-kept", load, 100.0, 1.0),
                rate("cgi-c", "pronghorn-cgi", load, 1.0, 50.0),
                rate("cgi-c", "apache-cgi", load, 1.0, 40.0),
            ]);
        }
        let goals = goals(&results, &[]);
        let seen: Vec<_> = goals
            .iter()
            .map(|goal| (&*goal.what, goal.measured, goal.met))
            .collect();
        let expected = [
            ("laravel, pronghorn-classic, 1 connections: CPU ×", 0.9),
            (
                "laravel, pronghorn-classic, 300/s over 10 connections: CPU ×",
                0.9,
            ),
            ("cgi-c, pronghorn-cgi, 1 connections: time per reply ×", 0.8),
            (
                "cgi-c, pronghorn-cgi, 10 connections: time per reply ×",
                0.8,
            ),
            (
                "cgi-c, pronghorn-cgi, 300/s over 10 connections: time per reply ×",
                0.8,
            ),
        ];
        assert_eq!(seen, expected.map(|(what, ratio)| (what, ratio, true)));
    }
}
