//! From the samples of the rounds to what is quoted: medians, and multiples of others in the same
//! round.

use crate::results::{Rate, Results, Row, Sample};
use crate::scenario::Scenario;
use crate::servers::{FLOOR, Kind, kind};
use crate::spread::Spread;

/// One for each row that has a calm round, in the order in which they were measured first.
pub(super) fn rates(results: &Results, scenarios: &[Scenario]) -> Vec<Rate> {
    let mut rows: Vec<&Row> = Vec::new();
    for sample in &results.samples {
        if !rows.contains(&&sample.row) {
            rows.push(&sample.row);
        }
    }
    // Loads together, in the order of their first measurement.
    let place = |row: &Row| rows.iter().position(|other| same_load(other, row));
    let mut ordered = rows.clone();
    ordered.sort_by_key(|row| place(row));
    let rates = ordered
        .iter()
        .filter_map(|row| rate(row, &rows, results, scenarios));
    rates.collect()
}

fn same_load(one: &Row, other: &Row) -> bool {
    (&one.scenario, &one.load) == (&other.scenario, &other.load)
}

fn rate(row: &Row, rows: &[&Row], results: &Results, scenarios: &[Scenario]) -> Option<Rate> {
    let samples = of(row, results);
    let spread = |figure: fn(&Sample) -> f64| Spread::of(samples.iter().copied().map(figure));
    let best = best_rival(row, rows, results);
    let ideal = scenarios
        .iter()
        .find(|scenario| scenario.name == row.scenario);
    let requests_per_second = spread(|sample| sample.seen.rate)?;
    Some(Rate {
        row: row.clone(),
        rounds: u32::try_from(samples.len()).unwrap_or(u32::MAX),
        requests_per_second,
        p50_us: spread(|sample| sample.seen.latency.p50_us)?,
        p90_us: spread(|sample| sample.seen.latency.p90_us)?,
        p99_us: spread(|sample| sample.seen.latency.p99_us)?,
        p999_us: spread(|sample| sample.seen.latency.p999_us)?,
        max_us: spread(|sample| sample.seen.latency.max_us)?,
        cpu_us: spread(Sample::cpu_us)?,
        cpu_us_server: spread(|sample| sample.cpu_us_server)?,
        cpu_us_php: spread(|sample| sample.cpu_us_php)?,
        cpu_to_floor: to(row, FLOOR, results),
        cpu_to_best: best.and_then(|best| to(row, &best.server, results)),
        best_rival: best.map(|best| best.server.clone()),
        of_ideal_percent: ideal
            .and_then(Scenario::ideal_rate)
            .map(|ideal| requests_per_second.median / ideal * 100.0),
        unanswered: samples.iter().map(|sample| sample.seen.unanswered).sum(),
    })
}

fn of<'a>(row: &Row, results: &'a Results) -> Vec<&'a Sample> {
    let samples = results.samples.iter();
    samples.filter(|sample| sample.row == *row).collect()
}

/// The one that takes the least CPU time under the same load.
fn best_rival<'a>(row: &Row, rows: &[&'a Row], results: &Results) -> Option<&'a Row> {
    let median =
        |row: &Row| Some(Spread::of(of(row, results).into_iter().map(Sample::cpu_us))?.median);
    let rivals = rows.iter().copied();
    let rivals = rivals.filter(|rival| same_load(rival, row) && kind(&rival.server) == Kind::Rival);
    rivals
        .filter_map(|rival| Some((rival, median(rival)?)))
        .min_by(|(_, one), (_, other)| one.total_cmp(other))
        .map(|(rival, _)| rival)
}

/// CPU time as a multiple of another server's, within each round: what disturbs one often disturbs
/// the next one as well.
fn to(row: &Row, server: &str, results: &Results) -> Option<Spread> {
    let ratio = |sample: &&Sample| {
        let of_round = |other: &&Sample| {
            same_load(&other.row, row) && other.row.server == server && other.round == sample.round
        };
        Some(sample.cpu_us() / results.samples.iter().find(of_round)?.cpu_us())
    };
    Spread::of(of(row, results).iter().filter_map(ratio))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::load::{Latency, Seen};
    use crate::scenario::{folder, select};

    pub(in crate::report) fn sample(server: &str, load: &str, round: u32, cpu: f64) -> Sample {
        let latency = Latency {
            p50_us: 90.0,
            p90_us: 150.0,
            p99_us: 200.0,
            p999_us: 300.0,
            max_us: 400.0,
        };
        Sample {
            row: Row {
                scenario: "hello".to_owned(),
                server: server.to_owned(),
                load: load.to_owned(),
            },
            round,
            seen: Seen {
                requests: 4000.0,
                rate: 1000.0,
                latency,
                unanswered: 1,
                errors_percent: 0.0,
            },
            cpu_us_server: cpu,
            cpu_us_php: 0.0,
            cpu_us_client: 0.0,
            phases_us: BTreeMap::new(),
            others_percent: 1.0,
            repeats: 0,
        }
    }

    fn rates_of(samples: Vec<Sample>) -> Vec<Rate> {
        let mut results = Results::new(3, 3, 6.0);
        results.samples = samples;
        let scenarios = select(&folder(), &["hello".to_owned()]).unwrap();
        rates(&results, &scenarios)
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        let rates = rates_of(vec![
            sample("pronghorn", "10", 1, 10.0),
            sample("nginx", "10", 1, 5.0),
            sample("pronghorn", "10", 2, 60.0),
            sample("nginx", "10", 2, 20.0),
            sample("pronghorn", "10", 3, 12.0),
            sample("nginx", "10", 3, 3.0),
            sample("pronghorn", "10", 4, 11.0), // of the other, others disturbed this round
        ]);
        let ours = &rates[0];
        assert_eq!(
            (ours.row.server.as_str(), ours.cpu_us.median, ours.rounds),
            ("pronghorn", 11.5, 4)
        );
        let to_nginx = ours.cpu_to_floor.unwrap();
        assert_eq!(
            (to_nginx.min, to_nginx.median, to_nginx.max),
            (2.0, 3.0, 4.0)
        );
        assert_eq!(ours.unanswered, 4);
    }

    #[test]
    fn the_best_rival_is_that_under_the_same_load_and_is_none_of_ours() {
        let rates = rates_of(vec![
            sample("pronghorn", "10", 1, 10.0),
            sample("pronghorn-psr7", "10", 1, 1.0),
            sample("nginx", "10", 1, 2.0),
            sample("nginx-fpm", "10", 1, 40.0),
            sample("swoole", "10", 1, 20.0),
            sample("apache-php", "100", 1, 5.0),
            sample("pronghorn", "100", 1, 10.0),
        ]);
        let best = |index: usize| rates[index].best_rival.as_deref();
        assert_eq!(
            (best(0), rates[0].cpu_to_best.unwrap().median),
            (Some("swoole"), 0.5)
        );
        assert_eq!(rates[5].row.load, "100");
        assert_eq!(
            (best(6), rates[6].cpu_to_best.unwrap().median),
            (Some("apache-php"), 2.0)
        );
    }

    #[test]
    fn rows_of_one_load_stand_together() {
        let rates = rates_of(vec![
            sample("pronghorn", "10", 1, 10.0),
            sample("pronghorn", "100", 1, 10.0),
            sample("nginx", "10", 1, 10.0),
        ]);
        let order: Vec<_> = rates
            .iter()
            .map(|rate| (&*rate.row.load, &*rate.row.server))
            .collect();
        assert_eq!(
            order,
            [("10", "pronghorn"), ("10", "nginx"), ("100", "pronghorn")]
        );
    }
}
