//! When a schedule is due.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, Offset, TimeDelta, TimeZone};
use chrono_tz::Tz;

use super::cron::Cron;

/// Far more than there are between two moments of a pattern.
const MOST_TRANSITIONS: usize = 64;

/// Missed moments of a pattern that are counted: a second's over a year is a number that nobody
/// needs.
const MOST_COUNTED: usize = 10_000;
/// Moments that are walked over at a time to find the last ones.
const MOST_WALKED: usize = 1_000;

/// Moments that have passed without a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) runs: u64,
    /// There are more than those that were counted.
    pub(crate) are_more: bool,
    /// In milliseconds since 1970.
    pub(crate) last: Vec<u64>,
}

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
        const FIELDS: &str = "minute 0 to 59, hour 0 to 23, day 1 to 31, month 1 to 12, day of \
                              the week 0 to 7";
        let cron = Cron::read(text).map_err(|why| format!("{why}; the fields are {FIELDS}"));
        Ok(When::Cron(Box::new(cron?)))
    }

    /// The first moment behind this one, in milliseconds since 1970. None where none is left.
    pub(crate) fn after(&self, ms: u64) -> Option<u64> {
        match &self.when {
            When::Every(period) => {
                let period = pronghorn_base::millis(*period).max(1);
                Some((ms / period + 1) * period)
            }
            When::Cron(cron) => {
                // A pattern knows whole seconds.
                let then = DateTime::from_timestamp(i64::try_from(ms / 1000).ok()?, 0)?;
                let then = then.with_timezone(&self.zone);
                let next = if cron.has_any_hour() {
                    by_the_time_that_passes(cron, then)?
                } else {
                    by_the_clock_on_the_wall(cron, then)?
                };
                u64::try_from(next.timestamp_millis()).ok()
            }
        }
    }

    /// Those behind `from`, up to `to`.
    fn between(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        let mut at = from;
        std::iter::from_fn(move || {
            at = self.after(at)?;
            (at <= to).then_some(at)
        })
    }

    /// Counts the moments behind `from`, up to `to`, and lists the last ones, up to `most`.
    pub(crate) fn missed(&self, from: u64, to: u64, most: usize) -> Missed {
        if let When::Every(period) = &self.when {
            let period = pronghorn_base::millis(*period).max(1);
            let (first, last) = (from / period + 1, to / period);
            let runs = (last + 1).saturating_sub(first);
            let begin = first.max((last + 1).saturating_sub(most as u64));
            return Missed {
                runs,
                are_more: false,
                last: (begin..=last).map(|number| number * period).collect(),
            };
        }
        let runs = self.between(from, to).take(MOST_COUNTED).count();
        Missed {
            runs: runs as u64,
            are_more: runs == MOST_COUNTED,
            last: self.last(from, to, most.min(runs)),
        }
    }

    /// The last ones behind `from`, up to `to`. A pattern is walked in one direction only, so a
    /// moment is looked for behind which there are enough and not too many.
    fn last(&self, from: u64, to: u64, most: usize) -> Vec<u64> {
        let (mut early, mut late, mut start) = (from, to, from);
        loop {
            let mut all: Vec<u64> = self.between(start, to).take(MOST_WALKED + 1).collect();
            if all.len() > MOST_WALKED {
                early = start;
            } else if all.len() < most && start > from {
                late = start;
            } else {
                return all.split_off(all.len().saturating_sub(most));
            }
            start = early + (late - early) / 2;
            if start == early || start == late {
                return all.split_off(all.len().saturating_sub(most));
            }
        }
    }
}

/// What is due each hour or minute is due in the hour that comes twice, too: clocks that are set do
/// not change how often it runs.
fn by_the_time_that_passes(cron: &Cron, then: DateTime<Tz>) -> Option<DateTime<Tz>> {
    let zone = then.timezone();
    let mut from = then;
    let mut local = then.naive_local();
    // Between two moments of such a pattern clocks may be set more than once: it can have a month.
    for _ in 0..MOST_TRANSITIONS {
        let offset = from.offset().fix();
        let next = offset.from_local_datetime(&cron.after(local)?).single()?;
        let next = next.with_timezone(&zone);
        if next.offset().fix() == offset {
            return Some(next);
        }
        from = transition(from, next);
        // The first second of the new time counts.
        local = from.naive_local() - TimeDelta::seconds(1);
    }
    None
}

/// What is due at a time of the day runs once a day: at the first of two such times, and behind an
/// hour that is left out.
fn by_the_clock_on_the_wall(cron: &Cron, then: DateTime<Tz>) -> Option<DateTime<Tz>> {
    let zone = then.timezone();
    let mut local = then.naive_local();
    // Each second of an hour that comes twice, at most.
    for _ in 0..=3600 {
        local = cron.after(local)?;
        let next = match zone.from_local_datetime(&local) {
            MappedLocalTime::Single(next) | MappedLocalTime::Ambiguous(next, _) => next,
            MappedLocalTime::None => end_of_gap(zone, local),
        };
        if next > then {
            return Some(next);
        }
    }
    None
}

/// The first second behind a gap, in which clocks never show `local`.
fn end_of_gap(zone: Tz, local: NaiveDateTime) -> DateTime<Tz> {
    // Nowhere are clocks set twice within two days.
    let before = zone.from_utc_datetime(&(local - TimeDelta::days(1)));
    let behind = zone.from_utc_datetime(&(local + TimeDelta::days(1)));
    transition(before, behind)
}

/// The first second behind `before` with another offset, of which there is one until `behind`.
fn transition(before: DateTime<Tz>, behind: DateTime<Tz>) -> DateTime<Tz> {
    let zone = before.timezone();
    let old = before.offset().fix();
    let (mut low, mut high) = (before.timestamp(), behind.timestamp());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        let at = DateTime::from_timestamp(middle, 0).map(|at| at.with_timezone(&zone));
        if at.is_some_and(|at| at.offset().fix() == old) {
            low = middle;
        } else {
            high = middle;
        }
    }
    DateTime::from_timestamp(high, 0).map_or(behind, |at| at.with_timezone(&zone))
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
    fn behind_a_moment_is_never_before_it() {
        let patterns = [
            "30 2 * * *",
            "59 2 * * *",
            "* 2 * * *",
            "* * * * *",
            "*/15 * * * *",
        ];
        let more = [
            "*/20 1-3 * * *",
            "0 */2 * * *",
            "*/7 * * * * *",
            "0 0 1 * *",
        ];
        for pattern in patterns.iter().chain(&more) {
            let moments = cron(pattern, "Europe/Berlin");
            for night in ["2026-03-29T00:00:00Z", "2026-10-25T00:00:00Z"] {
                for step in 0..2_000 {
                    let then = ms(night) + step * 7_321;
                    let next = moments.after(then).unwrap();
                    assert!(next > then, "{pattern} behind {then}: {next}");
                    assert_eq!(next % 1000, 0, "{pattern}");
                }
            }
        }
    }

    #[test]
    fn an_hour_that_comes_twice_has_all_its_minutes_twice_and_its_times_once() {
        let (from, to) = (ms("2026-10-24T23:59:59Z"), ms("2026-10-25T02:59:59Z"));
        let runs = |pattern: &str| cron(pattern, "Europe/Berlin").between(from, to).count();
        // Two o'clock to four on the wall, and two o'clock again.
        assert_eq!(runs("* * * * *"), 180);
        assert_eq!(runs("*/15 * * * *"), 12);
        assert_eq!(runs("30 2 * * *"), 1);
        assert_eq!(runs("30 2,3 * * *"), 2);
        let behind = cron("30 2 * * *", "Europe/Berlin").after(ms("2026-10-25T01:10:30Z"));
        assert_eq!(behind, Some(ms("2026-10-26T01:30:00Z")));
    }

    #[test]
    fn servers_that_start_within_a_second_mean_the_same_moments() {
        let minutely = cron("* * * * *", "UTC");
        let start = ms("2026-11-26T05:00:00Z");
        assert_eq!(minutely.after(start + 582), minutely.after(start + 858));
    }

    #[test]
    fn every_counts_from_the_same_moment_after_each_start() {
        let every = Moments::new(When::Every(Duration::from_mins(5)), Tz::UTC);
        let start = ms("2026-11-26T05:02:11Z");
        assert_eq!(every.after(start), Some(ms("2026-11-26T05:05:00Z")));
        let missed = every.missed(start, ms("2026-11-26T05:15:00Z"), 2);
        assert_eq!((missed.runs, missed.are_more), (3, false));
        let last = ["2026-11-26T05:10:00Z", "2026-11-26T05:15:00Z"];
        assert_eq!(missed.last, last.map(ms));
        assert_eq!(every.missed(start, start, 2).runs, 0);
    }

    #[test]
    fn the_last_moments_are_found_however_many_there_are() {
        let (from, to) = (ms("2026-01-01T00:00:00Z"), ms("2026-11-26T05:00:07Z"));
        let last = |pattern: &str, most| cron(pattern, "UTC").missed(from, to, most);
        let each_second = last("* * * * * *", 2);
        assert_eq!((each_second.runs, each_second.are_more), (10_000, true));
        assert_eq!(each_second.last, [to - 1000, to]);
        // Many in a row, and then none for months.
        let in_january = last("* * * 1 1 *", 1);
        assert_eq!(in_january.last, [ms("2026-01-01T23:59:59Z")]);
        let daily = last("30 3 * * *", 3);
        assert_eq!(
            (daily.runs, daily.are_more, daily.last.len()),
            (330, false, 3)
        );
        assert_eq!(daily.last[2], ms("2026-11-26T03:30:00Z"));
        let minutely = Moments::new(When::Every(Duration::from_secs(1)), Tz::UTC);
        let missed = minutely.missed(from, to, 1);
        assert_eq!((missed.runs, missed.last), ((to - from) / 1000, vec![to]));
        assert_eq!(last("0 0 31 2 *", 1).runs, 0);
    }
}
