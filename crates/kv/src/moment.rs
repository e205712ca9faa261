//! Moments of the calendar: those of the entries' ends, as RFC 3339 writes them.

use std::fmt;
use std::time::Duration;

use pronghorn_base::{millis, now_ms};

/// Milliseconds since 1970, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

const DAY: i64 = 86_400;
/// The last second that RFC 3339 can write, whose years have four digits.
const LAST_SECOND: u64 = 253_402_300_799_000;

impl Moment {
    /// The moment that the system's clock shows.
    pub fn now() -> Self {
        Self(now_ms())
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> u64 {
        self.0
    }

    /// So much later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// The second that is nearest, of those that [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_second(self) -> Self {
        Self((self.0.saturating_add(500) / 1000 * 1000).min(LAST_SECOND))
    }

    /// How long it is from `earlier` to here; nothing when it lies before.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Reads `2026-11-26T04:30:00Z`, with a fraction of a second or with another offset too. None
    /// for what is no such time. What lies before 1970 is its beginning.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |at: usize, length: usize| digits(bytes.get(at..at + length)?);
        let separator = |at: usize, one_of: &[u8]| one_of.contains(bytes.get(at)?).then_some(());
        let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
        let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
        separator(4, b"-").and_then(|()| separator(7, b"-"))?;
        separator(10, b"Tt").and_then(|()| separator(13, b":"))?;
        separator(16, b":")?;
        let is_date = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
        // A second of 60 is a leap second, which the calendar of computers does not have.
        if !is_date || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let (fraction, at) = fraction(bytes, 19)?;
        let offset = offset(bytes.get(at..)?)?;
        let days = days_since_1970(year, month, day);
        let seconds = days * DAY + hour * 3600 + minute * 60 + second - offset;
        let seconds = u64::try_from(seconds).unwrap_or(0);
        Some(Self(seconds * 1000 + fraction))
    }
}

fn digits(bytes: &[u8]) -> Option<i64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
    bytes
        .iter()
        .try_fold(0, |sum, byte| Some(sum * 10 + digit(byte)?))
}

/// Milliseconds of what stands behind a point at `at`, if one does, and where it ends.
fn fraction(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    if bytes.get(at) != Some(&b'.') {
        return Some((0, at));
    }
    let rest = &bytes[at + 1..];
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut millis = 0;
    for place in 0..3 {
        let digit = rest.get(place).filter(|_| place < length);
        millis = millis * 10 + digit.map_or(0, |digit| u64::from(digit - b'0'));
    }
    (length > 0).then_some((millis, at + 1 + length))
}

/// Seconds that a place is ahead of UTC.
fn offset(bytes: &[u8]) -> Option<i64> {
    let (sign, rest) = match bytes {
        b"Z" | b"z" => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let [a, b, b':', c, d] = rest else {
        return None;
    };
    let (hours, minutes) = (digits(&[*a, *b])?, digits(&[*c, *d])?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn is_leap(year: i64) -> bool {
    (year % 4 == 0 && year % 100 != 0) || year % 400 == 0
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Years begin with March here, so that the day of the leap is their last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let month = (month + 9) % 12;
    let before = 365 * year + year / 4 - year / 100 + year / 400;
    before + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// In UTC, with whole seconds where it has no others.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0 / 1000).unwrap_or(i64::MAX);
        let (mut year, mut days) = (1970, seconds / DAY);
        // From a day that is surely not behind it, in steps of a year.
        year += days / 366;
        days -= days_since_1970(year, 1, 1);
        while days >= 365 + i64::from(is_leap(year)) {
            days -= 365 + i64::from(is_leap(year));
            year += 1;
        }
        let mut month = 1;
        while days >= days_of(year, month) {
            days -= days_of(year, month);
            month += 1;
        }
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let day = days + 1;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        match self.0 % 1000 {
            0 => f.write_str("Z"),
            millis => write!(f, ".{millis:03}Z"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_as_php_and_go_write_them() {
        for (text, millis) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-26T04:30:00+00:00", 1_795_667_400_000),
            ("2026-11-26T06:00:00+01:30", 1_795_667_400_000),
            ("2026-11-25T23:30:00.25-05:00", 1_795_667_400_250),
            ("2024-02-29t23:59:59.123456789z", 1_709_251_199_123),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("1969-12-31T23:59:59Z", 0),
            ("9999-12-31T23:59:60Z", 253_402_300_800_000),
        ] {
            assert_eq!(Moment::parse(text), Some(Moment(millis)), "{text}");
        }
    }

    #[test]
    fn the_nearest_second_has_no_fraction() {
        for (millis, second) in [
            (0, 0),
            (499, 0),
            (500, 1000),
            (59_999, 60_000),
            (LAST_SECOND + 999, LAST_SECOND),
            (u64::MAX, LAST_SECOND),
        ] {
            assert_eq!(Moment(millis).to_second(), Moment(second));
        }
        let last = Moment(LAST_SECOND).to_string();
        assert_eq!(Moment::parse(&last), Some(Moment(LAST_SECOND)), "{last}");
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "60",
            "tomorrow",
            "2026-11-26",
            "2026-11-26T04:30:00",
            "2026-11-26 04:30:00Z",
            "2026-13-26T04:30:00Z",
            "2026-02-29T04:30:00Z",
            "2026-11-00T04:30:00Z",
            "2026-11-26T24:30:00Z",
            "2026-11-26T04:60:00Z",
            "2026-11-26T04:30:61Z",
            "2026-11-26T04:30:00.Z",
            "2026-11-26T04:30:00+0100",
            "2026-11-26T04:30:00+24:00",
            "2026-11-26T04:30:00Zz",
            "20é6-11-26T04:30:00Z",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read(millis in 0..253_402_300_800_000_u64) {
            let moment = Moment(millis);
            prop_assert_eq!(Moment::parse(&moment.to_string()), Some(moment));
        }

        #[test]
        fn no_text_makes_it_panic(text: String) {
            _ = Moment::parse(&text);
        }
    }
}
