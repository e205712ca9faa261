//! What the figures are to be, and whether they are.

use serde::Serialize;

use crate::results::Results;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) limit: f64,
    pub(crate) measured: f64,
    pub(crate) met: bool,
}

/// Those of what was measured. With one connection a server sleeps and wakes for each request: that is not what they are about.
pub(crate) fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    let hello = |load: &str| ["10", "100"].contains(&load);
    for rate in &results.rates {
        let row = &rate.row;
        let (what, limit, unit, measured) = match (&*row.scenario, &*row.server) {
            ("hello", "pronghorn") => ("CPU", 20.0, "µs", Some(rate.cpu_us)),
            ("hello", "pronghorn-psr7") => ("CPU", 40.0, "µs", Some(rate.cpu_us)),
            ("hello", "http-alone") => ("CPU", 1.1, "× nginx", rate.cpu_to_floor),
            _ => continue,
        };
        if let Some(measured) = measured.filter(|_| hello(&row.load)) {
            let what = format!("{}, {} connections: {what}", row.server, row.load);
            goals.push(Goal::new(what, limit, unit, measured.median));
        }
    }
    for idle in results
        .idle
        .iter()
        .filter(|idle| idle.server == "pronghorn")
    {
        let at_rest = idle.rss_bytes / f64::from(1 << 20);
        let each = idle.connection_bytes / 1024.0;
        goals.push(Goal::new("server at rest".to_owned(), 15.0, "MB", at_rest));
        goals.push(Goal::new("an idle connection".to_owned(), 4.0, "KB", each));
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
