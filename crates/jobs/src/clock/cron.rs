//! Patterns of cron: which seconds one means, by a clock on the wall. Knows no time zone.
//!
//! Five fields, or six with seconds in front. In each: `*`, numbers, ranges `1-5`, steps `*/15`,
//! `10-30/5` and `3/15`, lists of all that, and names of months and days of the week. A day may be
//! `L`, the last one, or `15W`, the nearest day from Monday to Friday; a day of the week may be
//! `5#2`, the second Friday, or `5L`, the last one. Where both kinds of days are restricted, one of
//! them is enough, as in a crontab.

use chrono::{Datelike as _, Days, NaiveDate, NaiveDateTime, NaiveTime, Timelike as _};

/// A day that a pattern means comes within that, if ever: the fifth Friday of a February is seldom.
const MOST_DAYS: u64 = 366 * 50;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const NICKNAMES: [(&str, &str); 6] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    seconds: Numbers,
    minutes: Numbers,
    hours: Numbers,
    /// None: each of them.
    days: Option<MonthDays>,
    months: Numbers,
    /// None: each of them.
    weekdays: Option<WeekDays>,
    has_any_hour: bool,
}

/// A set of numbers below 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Numbers(u64);

impl Numbers {
    const fn add(&mut self, number: u32) {
        self.0 |= 1 << number;
    }

    const fn has(self, number: u32) -> bool {
        self.0 & (1 << number) != 0
    }

    /// The first one from `number` on.
    const fn from(self, number: u32) -> Option<u32> {
        let rest = self.0 >> number << number;
        if rest == 0 {
            return None;
        }
        Some(rest.trailing_zeros())
    }
}

/// Days of a month.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MonthDays {
    numbers: Numbers,
    /// Moved to the nearest day from Monday to Friday of the month.
    nearest: Numbers,
    last: bool,
}

/// Days of the week, from Sunday on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct WeekDays {
    numbers: Numbers,
    /// The first to the fifth ones of a month.
    nth: [Numbers; 5],
    /// The last ones of a month.
    last: Numbers,
}

/// What a field is called, which numbers it takes, and which names stand for them.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    names: &'static [&'static str],
}

const SECOND: Field = Field::numbers("second", 0, 59);
const MINUTE: Field = Field::numbers("minute", 0, 59);
const HOUR: Field = Field::numbers("hour", 0, 23);
const DAY: Field = Field::numbers("day", 1, 31);
const MONTH: Field = Field {
    names: &MONTHS,
    ..Field::numbers("month", 1, 12)
};
/// Sunday is 0 and 7.
const WEEKDAY: Field = Field {
    names: &WEEKDAYS,
    ..Field::numbers("day of the week", 0, 7)
};

impl Field {
    const fn numbers(name: &'static str, first: u32, last: u32) -> Self {
        Self {
            name,
            first,
            last,
            names: &[],
        }
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| *name == text);
        let named = named.map(|at| self.first + u32::try_from(at).expect("there are twelve"));
        let number = named.or_else(|| text.parse().ok());
        number
            .filter(|number| (self.first..=self.last).contains(number))
            .ok_or_else(|| self.wrong(text))
    }

    fn wrong(&self, text: &str) -> String {
        format!("`{}` is no {}", text.escape_debug(), self.name)
    }

    /// `*`, a number or a range, each perhaps with a step.
    fn add(&self, text: &str, to: &mut Numbers) -> Result<(), String> {
        let (range, step) = match text.split_once('/') {
            None => (text, None),
            Some((range, step)) => {
                // A longer one means the first number alone, and not what it says.
                let longest = self.last - self.first + 1;
                let step = step.parse::<u32>().ok();
                let step = step.filter(|step| (1..=longest).contains(step));
                (range, Some(step.ok_or_else(|| self.wrong(text))?))
            }
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.first, self.last),
            Some((first, last)) => {
                let first = self.number(first)?;
                // `fri-sun`: the week ends with it.
                let last = match self.number(last)? {
                    0 if self.last == 7 && first > 0 => 7,
                    last => last,
                };
                (first, last)
            }
            None => {
                let first = self.number(range)?;
                (first, if step.is_some() { self.last } else { first })
            }
        };
        if first > last {
            return Err(self.wrong(text));
        }
        let step = usize::try_from(step.unwrap_or(1)).expect("32 bits fit");
        (first..=last).step_by(step).for_each(|it| to.add(it));
        Ok(())
    }

    fn read(&self, text: &str) -> Result<Numbers, String> {
        let mut numbers = Numbers::default();
        for part in text.split(',') {
            self.add(part, &mut numbers)?;
        }
        Ok(numbers)
    }
}

impl MonthDays {
    fn read(text: &str) -> Result<Option<Self>, String> {
        if matches!(text, "*" | "?") {
            return Ok(None);
        }
        let mut days = Self::default();
        for part in text.split(',') {
            if part == "l" {
                days.last = true;
            } else if let Some(day) = part.strip_suffix('w') {
                days.nearest.add(DAY.number(day)?);
            } else {
                DAY.add(part, &mut days.numbers)?;
            }
        }
        Ok(Some(days))
    }

    fn has(&self, date: NaiveDate) -> bool {
        let last = u32::from(date.num_days_in_month());
        self.numbers.has(date.day())
            || self.last && date.day() == last
            || (1..=last)
                .filter(|day| self.nearest.has(*day))
                .any(|day| nearest_workday(date, day, last) == date.day())
    }
}

/// The day from Monday to Friday of the month of `date` that is nearest to a day of it.
fn nearest_workday(date: NaiveDate, day: u32, last: u32) -> u32 {
    let weekday = date.with_day(day).map_or(0, weekday);
    match weekday {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == last => day - 2,
        0 => day + 1,
        _ => day,
    }
}

fn weekday(date: NaiveDate) -> u32 {
    date.weekday().num_days_from_sunday()
}

impl WeekDays {
    fn read(text: &str) -> Result<Option<Self>, String> {
        if matches!(text, "*" | "?") {
            return Ok(None);
        }
        let mut days = Self::default();
        for part in text.split(',') {
            if let Some((day, nth)) = part.split_once('#') {
                let day = WEEKDAY.number(day)? % 7;
                let nth = nth.parse::<usize>().ok().and_then(|nth| nth.checked_sub(1));
                let of_month = nth.and_then(|nth| days.nth.get_mut(nth));
                of_month.ok_or_else(|| WEEKDAY.wrong(part))?.add(day);
            } else if let Some(day) = part.strip_suffix('l').filter(|day| !day.is_empty()) {
                days.last.add(WEEKDAY.number(day)? % 7);
            } else {
                WEEKDAY.add(part, &mut days.numbers)?;
            }
        }
        if days.numbers.has(7) {
            days.numbers.add(0);
        }
        Ok(Some(days))
    }

    fn has(&self, date: NaiveDate) -> bool {
        let (day, weekday) = (date.day(), weekday(date));
        let nth = usize::try_from((day - 1) / 7).expect("a month has five weeks");
        self.numbers.has(weekday)
            || self.nth.get(nth).is_some_and(|nth| nth.has(weekday))
            || self.last.has(weekday) && day + 7 > u32::from(date.num_days_in_month())
    }
}

impl Cron {
    /// Err says what is wrong.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_lowercase();
        let nickname = NICKNAMES.iter().find(|(name, _)| *name == lower);
        let pattern = nickname.map_or(&*lower, |(_, pattern)| pattern);
        let mut fields: Vec<&str> = pattern.split_whitespace().collect();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        let [seconds, minutes, hours, days, months, weekdays] = fields[..] else {
            return Err(format!(
                "it has {} fields, and not five or six",
                fields.len()
            ));
        };
        Ok(Self {
            seconds: SECOND.read(seconds)?,
            minutes: MINUTE.read(minutes)?,
            hours: HOUR.read(hours)?,
            days: MonthDays::read(days)?,
            months: MONTH.read(months)?,
            weekdays: WeekDays::read(weekdays)?,
            has_any_hour: hours.starts_with('*'),
            text: text.trim().to_owned(),
        })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it means each hour, or each of some step.
    pub(crate) const fn has_any_hour(&self) -> bool {
        self.has_any_hour
    }

    /// The first second behind this one. None where none is left.
    pub(crate) fn after(&self, then: NaiveDateTime) -> Option<NaiveDateTime> {
        let from = then.with_nanosecond(0)? + chrono::Duration::seconds(1);
        for day in 0..MOST_DAYS {
            let date = from.date().checked_add_days(Days::new(day))?;
            if !self.has_day(date) {
                continue;
            }
            let earliest = if day == 0 {
                from.time()
            } else {
                NaiveTime::MIN
            };
            if let Some(time) = self.time_from(earliest) {
                return Some(date.and_time(time));
            }
        }
        None
    }

    fn has_day(&self, date: NaiveDate) -> bool {
        let is_day = match (&self.days, &self.weekdays) {
            (None, None) => true,
            (Some(days), None) => days.has(date),
            (None, Some(weekdays)) => weekdays.has(date),
            (Some(days), Some(weekdays)) => days.has(date) || weekdays.has(date),
        };
        is_day && self.months.has(date.month())
    }

    /// The first time of a day that it means, from this one on.
    fn time_from(&self, time: NaiveTime) -> Option<NaiveTime> {
        let (hour, minute) = (time.hour(), time.minute());
        let mut next_hour = self.hours.from(hour);
        while let Some(h) = next_hour {
            let mut next_minute = self.minutes.from(if h == hour { minute } else { 0 });
            while let Some(m) = next_minute {
                let is_now = (h, m) == (hour, minute);
                let second = self.seconds.from(if is_now { time.second() } else { 0 });
                if let Some(s) = second {
                    return NaiveTime::from_hms_opt(h, m, s);
                }
                next_minute = self.minutes.from(m + 1);
            }
            next_hour = self.hours.from(h + 1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> NaiveDateTime {
        text.parse().unwrap()
    }

    /// The days of the first moments behind the beginning of a year.
    fn days(pattern: &str, year: i32, count: usize) -> Vec<String> {
        let cron = Cron::read(pattern).unwrap();
        let mut then = NaiveDate::from_ymd_opt(year, 1, 1)
            .unwrap()
            .and_time(NaiveTime::MIN);
        let mut found = Vec::new();
        for _ in 0..count {
            then = cron.after(then).unwrap();
            found.push(then.format("%m-%d").to_string());
        }
        found
    }

    #[test]
    fn times_of_a_day_follow_each_other() {
        for (pattern, then, next) in [
            ("* * * * *", "2026-11-27T07:00:00", "2026-11-27T07:01:00"),
            ("* * * * *", "2026-11-27T07:00:59.5", "2026-11-27T07:01:00"),
            ("*/15 * * * *", "2026-11-27T07:45:00", "2026-11-27T08:00:00"),
            ("7/20 * * * *", "2026-11-27T07:30:00", "2026-11-27T07:47:00"),
            (
                "0 9-17/4 * * *",
                "2026-11-27T13:00:00",
                "2026-11-27T17:00:00",
            ),
            (
                "0 9-17/4 * * *",
                "2026-11-27T17:00:00",
                "2026-11-28T09:00:00",
            ),
            (
                "30,10 3 * * *",
                "2026-11-27T03:10:00",
                "2026-11-27T03:30:00",
            ),
            (
                "59 59 23 * * *",
                "2026-12-31T23:59:59",
                "2027-01-01T23:59:59",
            ),
            (
                "*/20 * * * * *",
                "2026-11-27T07:00:40",
                "2026-11-27T07:01:00",
            ),
            ("@hourly", "2026-11-27T07:00:00", "2026-11-27T08:00:00"),
            ("@YEARLY", "2026-11-27T07:00:00", "2027-01-01T00:00:00"),
        ] {
            let found = Cron::read(pattern).unwrap().after(at(then));
            assert_eq!(found, Some(at(next)), "{pattern} behind {then}");
        }
    }

    #[test]
    fn days_are_those_of_a_calendar() {
        // 2026 begins on a Thursday.
        for (pattern, found) in [
            ("0 1 1,15 * *", ["01-01", "01-15", "02-01"]),
            ("0 1 31 * *", ["01-31", "03-31", "05-31"]),
            ("0 1 L * *", ["01-31", "02-28", "03-31"]),
            ("0 1 * * mon-fri", ["01-01", "01-02", "01-05"]),
            ("0 1 * * fri-sun", ["01-02", "01-03", "01-04"]),
            ("0 1 * * 7", ["01-04", "01-11", "01-18"]),
            ("0 1 * * 0", ["01-04", "01-11", "01-18"]),
            ("0 1 * * 5#2", ["01-09", "02-13", "03-13"]),
            ("0 1 * * FriL", ["01-30", "02-27", "03-27"]),
            ("0 1 1W feb,aug ?", ["02-02", "08-03", "02-01"]),
            ("0 1 31W jan,may *", ["01-30", "05-29", "01-29"]),
            ("0 1 13 * 5", ["01-02", "01-09", "01-13"]),
            ("0 1 29 2 *", ["02-29", "02-29", "02-29"]),
        ] {
            assert_eq!(days(pattern, 2026, 3), found, "{pattern}");
        }
    }

    #[test]
    fn a_day_that_never_comes_has_no_end_of_looking() {
        let never = Cron::read("0 0 31 2 *").unwrap();
        assert_eq!(never.after(at("2026-11-27T07:00:00")), None);
        let seldom = Cron::read("0 0 * 2 5#5").unwrap();
        let next = seldom.after(at("2026-11-27T07:00:00"));
        assert_eq!(next, Some(at("2036-02-29T00:00:00")));
    }

    #[test]
    fn what_is_wrong_is_said_by_the_name_of_its_field() {
        for (pattern, said) in [
            ("soon", "it has 1 fields, and not five or six"),
            ("* * * * * * 2026", "it has 7 fields, and not five or six"),
            ("60 * * * *", "`60` is no minute"),
            ("* 24 * * *", "`24` is no hour"),
            ("* * 0 * *", "`0` is no day"),
            ("* * 5-3 * *", "`5-3` is no day"),
            ("* * * feb-month *", "`month` is no month"),
            ("* * * * 1#6", "`1#6` is no day of the week"),
            ("* * * * 8", "`8` is no day of the week"),
            ("*/0 * * * *", "`*/0` is no minute"),
            ("*/61 * * * *", "`*/61` is no minute"),
            ("1,,2 * * * *", "`` is no minute"),
            ("-1 * * * *", "`` is no minute"),
        ] {
            assert_eq!(Cron::read(pattern).unwrap_err(), said, "{pattern}");
        }
    }
}
