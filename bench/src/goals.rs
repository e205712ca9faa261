//! What the figures are to be, and whether they are.

use serde::Serialize;

use crate::memory::AtRest;
use crate::report::Rate;

#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) limit: f64,
    pub(crate) measured: f64,
    pub(crate) met: bool,
}

/// Those of what was measured.
pub(crate) fn goals(rates: &[Rate], memory: &[AtRest]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for rate in rates {
        let (what, limit, unit, measured) = match rate.row {
            "native" => ("CPU", 20.0, "µs", Some(rate.cpu_us)),
            "psr7" => ("CPU", 40.0, "µs", Some(rate.cpu_us)),
            "http-alone" => ("CPU", 1.1, "× nginx", rate.cpu_to.get("nginx").copied()),
            _ => continue,
        };
        let what = format!("{}, {} connections: {what}", rate.row, rate.connections);
        goals.extend(measured.map(|measured| Goal::new(what, limit, unit, measured.median)));
    }
    for row in memory.iter().filter(|row| row.row == "native") {
        let at_rest = row.server.rss / f64::from(1 << 20);
        let idle = row.idle_connection / 1024.0;
        goals.push(Goal::new("server at rest".to_owned(), 15.0, "MB", at_rest));
        goals.push(Goal::new("an idle connection".to_owned(), 4.0, "KB", idle));
    }
    goals
}

impl Goal {
    fn new(what: String, limit: f64, unit: &'static str, measured: f64) -> Self {
        Self {
            what,
            unit,
            limit,
            measured,
            met: measured <= limit,
        }
    }
}
