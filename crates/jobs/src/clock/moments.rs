//! When a schedule is due.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, TimeZone};
use chrono_tz::Tz;
use croner::Cron;

/// Moments that repeat.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    when: When,
    zone: Tz,
}

#[derive(Clone, Debug, PartialEq)]
pub enum When {
    Cron(Box<Cron>),
    /// Counted from 1970 on, so that a restart does not move it.
    Every(Duration),
}

impl Moments {
    pub fn new(when: When, zone: Tz) -> Self {
        Self { when, zone }
    }

    /// Reads a pattern of cron: five fields, or six with seconds.
    pub(crate) fn pattern(text: &str) -> Result<When, String> {
        let cron = Cron::from_str(text).map_err(|error| error.to_string())?;
        Ok(When::Cron(Box::new(cron)))
    }

    /// The first moment behind this one, in milliseconds since 1970. None where none is left.
    pub(crate) fn after(&self, ms: u64) -> Option<u64> {
        match &self.when {
            When::Every(period) => {
                let period = pronghorn_base::millis(*period).max(1);
                Some((ms / period + 1) * period)
            }
            When::Cron(cron) => {
                let then = DateTime::from_timestamp_millis(i64::try_from(ms).ok()?)?;
                let then = self.zone.from_utc_datetime(&then.naive_utc());
                let next = cron.find_next_occurrence(&then, false).ok()?;
                u64::try_from(next.timestamp_millis()).ok()
            }
        }
    }

    /// Those behind `from`, up to `to`.
    pub(crate) fn between(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        // A second's schedule over a year is no list that anybody needs.
        const MOST: usize = 10_000;
        let mut at = from;
        std::iter::from_fn(move || {
            at = self.after(at)?;
            (at <= to).then_some(at)
        })
        .take(MOST)
    }
}

impl fmt::Display for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.when {
            When::Every(period) => {
                write!(f, "every {}", pronghorn_config::show_duration(*period))
            }
            When::Cron(cron) => write!(f, "{} {}", cron.as_str(), self.zone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> u64 {
        let time = DateTime::parse_from_rfc3339(text).unwrap();
        time.timestamp_millis().try_into().unwrap()
    }

    fn cron(pattern: &str, zone: &str) -> Moments {
        Moments::new(Moments::pattern(pattern).unwrap(), zone.parse().unwrap())
    }

    #[test]
    fn a_pattern_holds_in_its_time_zone() {
        let daily = cron("30 3 * * *", "Europe/Berlin");
        let next = daily.after(ms("2026-11-26T05:00:00Z"));
        assert_eq!(next, Some(ms("2026-11-27T02:30:00Z")));
        let seconds = cron("*/20 * * * * *", "UTC");
        let next = seconds.after(ms("2026-11-26T05:00:00Z"));
        assert_eq!(next, Some(ms("2026-11-26T05:00:20Z")));
        assert!(Moments::pattern("soon").is_err());
    }

    #[test]
    fn each_day_has_one_run_when_clocks_are_set() {
        let daily = cron("30 2 * * *", "Europe/Berlin");
        for from in ["2026-03-27T12:00:00Z", "2026-10-23T12:00:00Z"] {
            let runs = daily.between(ms(from), ms(from) + 4 * 86_400_000);
            assert_eq!(runs.count(), 4, "from {from}");
        }
    }

    #[test]
    fn every_counts_from_the_same_moment_after_each_start() {
        let every = Moments::new(When::Every(Duration::from_mins(5)), Tz::UTC);
        let start = ms("2026-11-26T05:02:11Z");
        assert_eq!(every.after(start), Some(ms("2026-11-26T05:05:00Z")));
        let missed = every.between(start, ms("2026-11-26T05:15:00Z"));
        assert_eq!(missed.count(), 3);
    }
}
