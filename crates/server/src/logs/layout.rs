//! Times by a layout of Go, which shows what a certain moment would look like: `logs.time_format`.
//!
//! The moment is `Mon Jan 2 15:04:05 2006`, and what is no part of it stands for itself.

use std::fmt::Write;

use super::time::Moment;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A layout, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TimeLayout(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Month,
    MonthShort,
    /// How many digits at least, and what comes before fewer.
    MonthNumber(Pad),
    Weekday,
    WeekdayShort,
    Day(Pad),
    DayOfYear,
    Hour,
    Hour12(Pad),
    Minute(Pad),
    Second(Pad),
    Year,
    YearShort,
    Afternoon(&'static str, &'static str),
    Zone(&'static str),
    /// What stands before it, digits, and whether zeros at the end are left out.
    Fraction(char, usize, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pad {
    None,
    Zero,
    Space,
}

use Part::{
    Afternoon, Day, DayOfYear, Fraction, Hour, Hour12, Minute, Month, MonthNumber, MonthShort,
    Second, Text, Weekday, WeekdayShort, Year, YearShort, Zone,
};

/// The longer of two that begin alike comes first.
const PARTS: [(&str, Part); 32] = [
    ("January", Month),
    ("Jan", MonthShort),
    ("Monday", Weekday),
    ("Mon", WeekdayShort),
    ("MST", Zone("UTC")),
    ("002", DayOfYear),
    ("01", MonthNumber(Pad::Zero)),
    ("02", Day(Pad::Zero)),
    ("03", Hour12(Pad::Zero)),
    ("04", Minute(Pad::Zero)),
    ("05", Second(Pad::Zero)),
    ("06", YearShort),
    ("15", Hour),
    ("1", MonthNumber(Pad::None)),
    ("2006", Year),
    ("2", Day(Pad::None)),
    ("_2", Day(Pad::Space)),
    ("3", Hour12(Pad::None)),
    ("4", Minute(Pad::None)),
    ("5", Second(Pad::None)),
    ("PM", Afternoon("AM", "PM")),
    ("pm", Afternoon("am", "pm")),
    ("-07:00:00", Zone("+00:00:00")),
    ("-070000", Zone("+000000")),
    ("-07:00", Zone("+00:00")),
    ("-0700", Zone("+0000")),
    ("-07", Zone("+00")),
    ("Z07:00:00", Zone("Z")),
    ("Z070000", Zone("Z")),
    ("Z07:00", Zone("Z")),
    ("Z0700", Zone("Z")),
    ("Z07", Zone("Z")),
];

impl TimeLayout {
    pub(super) fn new(layout: &str) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = layout;
        while let Some(first) = rest.chars().next() {
            if let Some((part, len)) = begins(rest) {
                parts.push(part);
                rest = rest.get(len..).unwrap_or_default();
                continue;
            }
            match parts.last_mut() {
                Some(Text(text)) => text.push(first),
                _ => parts.push(Text(first.to_string())),
            }
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
        Self(parts)
    }

    /// Appends the moment, which is of UTC.
    pub(super) fn write(&self, out: &mut String, moment: Moment) {
        for part in &self.0 {
            part.write(out, moment);
        }
    }
}

/// The part that a layout begins with, and its length.
fn begins(layout: &str) -> Option<(Part, usize)> {
    let is_lower = |at: usize| {
        let next = layout.as_bytes().get(at);
        next.is_some_and(u8::is_ascii_lowercase)
    };
    if layout.starts_with("_2006") {
        return None; // a line before a year, and no day
    }
    for (text, part) in &PARTS {
        let is_word = matches!(part, MonthShort | WeekdayShort);
        if layout.starts_with(text) && !(is_word && is_lower(text.len())) {
            return Some((part.clone(), text.len()));
        }
    }
    fraction(layout)
}

/// `.000` or `,999`: so many digits of a second.
fn fraction(layout: &str) -> Option<(Part, usize)> {
    let bytes = layout.as_bytes();
    let (&before, digits) = bytes.split_first()?;
    let &digit = digits.first()?;
    if !matches!(before, b'.' | b',') || !matches!(digit, b'0' | b'9') {
        return None;
    }
    let len = digits.iter().take_while(|&&other| other == digit).count();
    let is_end = !digits.get(len).is_some_and(u8::is_ascii_digit);
    is_end.then(|| (Fraction(before.into(), len, digit == b'9'), len + 1))
}

impl Part {
    fn write(&self, out: &mut String, moment: Moment) {
        let Moment {
            year,
            month,
            day,
            hour,
            minute,
            second,
            nano,
            weekday,
        } = moment;
        let of = |names: &[&'static str], number: u64| {
            let index = usize::try_from(number).unwrap_or_default();
            names.get(index).copied().unwrap_or_default()
        };
        let hour12 = (hour + 11) % 12 + 1;
        match self {
            Text(text) => out.push_str(text),
            Month => out.push_str(of(&MONTHS, month - 1)),
            MonthShort => out.extend(of(&MONTHS, month - 1).chars().take(3)),
            MonthNumber(pad) => pad.write(out, month),
            Weekday => out.push_str(of(&DAYS, weekday)),
            WeekdayShort => out.extend(of(&DAYS, weekday).chars().take(3)),
            Day(pad) => pad.write(out, day),
            DayOfYear => _ = write!(out, "{:03}", moment.day_of_year()), // a String takes all
            Hour => Pad::Zero.write(out, hour),
            Hour12(pad) => pad.write(out, hour12),
            Minute(pad) => pad.write(out, minute),
            Second(pad) => pad.write(out, second),
            Year => _ = write!(out, "{year:04}"),
            YearShort => Pad::Zero.write(out, year % 100),
            Afternoon(before, after) => out.push_str(if hour < 12 { before } else { after }),
            Zone(zone) => out.push_str(zone),
            Fraction(point, len, is_short) => {
                let mut digits = format!("{nano:09}");
                while digits.len() < *len {
                    digits.push('0');
                }
                digits.truncate(*len);
                let kept = match is_short {
                    true => digits.trim_end_matches('0'),
                    false => &digits,
                };
                if !kept.is_empty() {
                    out.push(*point);
                    out.push_str(kept);
                }
            }
        }
    }
}

impl Pad {
    fn write(self, out: &mut String, number: u64) {
        _ = match self {
            Self::None => write!(out, "{number}"),
            Self::Zero => write!(out, "{number:02}"),
            Self::Space => write!(out, "{number:2}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn shown(layout: &str, seconds: u64, nano: u32) -> String {
        let mut out = String::new();
        let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nano);
        TimeLayout::new(layout).write(&mut out, Moment::of(time));
        out
    }

    /// Each was printed by Go.
    #[test]
    fn layouts_show_what_go_shows() {
        for (layout, text) in [
            ("2006-01-02T15:04:05Z07:00", "2026-03-04T01:00:05Z"),
            ("2006-01-02 15:04:05", "2026-03-04 01:00:05"),
            ("15:04:05", "01:00:05"),
            ("02/Jan/2006:15:04:05 -0700", "04/Mar/2026:01:00:05 +0000"),
            (
                "Mon, 02 Jan 2006 15:04:05 MST",
                "Wed, 04 Mar 2026 01:00:05 UTC",
            ),
            (
                "Monday, 02-Jan-06 15:04:05 MST",
                "Wednesday, 04-Mar-26 01:00:05 UTC",
            ),
            ("Mon Jan _2 15:04:05 2006", "Wed Mar  4 01:00:05 2026"),
            ("3:04PM", "1:00AM"),
            ("03:04:05 pm", "01:00:05 am"),
            (
                "2006-01-02T15:04:05.999999999Z07:00",
                "2026-03-04T01:00:05.12045Z",
            ),
            ("2006-01-02 15:04:05.000", "2026-03-04 01:00:05.120"),
            ("05,000000", "05,120450"),
            (".000x", ".120x"),
            (".0001", ".0003"),
            ("January 2, 002", "March 4, 063"),
            ("Janus Mond 1.2.06", "Janus Mond 3.4.26"),
            ("_2006", "_2026"),
            (
                "Z0700 Z07 -07 -07:00 Z070000 -07:00:00",
                "Z Z +00 +00:00 Z +00:00:00",
            ),
            ("é at 15h", "é at 01h"),
            ("5.99", "5.12"),
            (".9", ".1"),
            ("", ""),
            ("1 2 3 4 5", "3 4 1 0 5"),
            ("MSTx", "UTCx"),
            ("Januaryx", "Marchx"),
        ] {
            assert_eq!(shown(layout, 1_772_586_005, 120_450_000), text, "{layout}");
        }
        assert_eq!(
            shown("2006-01-02T15:04:05Z07:00", 0, 0),
            "1970-01-01T00:00:00Z"
        );
        assert_eq!(shown("3:04 pm, Monday", 0, 0), "12:00 am, Thursday");
    }
}
