//! Durations in Go's syntax: numbers with units, `1m30s`.

use std::time::Duration;

use super::{Setting, Shown, Wrong, text};
use crate::node::Node;

/// A year. Clocks overflow somewhere beyond, and nobody waits that long.
const LONGEST: Duration = Duration::from_hours(365 * 24);

const UNITS: [(&str, u64); 8] = [
    // Longer spellings first: `m` must not take the `m` of `ms`.
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl Setting for Duration {
    fn example() -> String {
        "30s".to_owned()
    }

    fn accepts() -> String {
        "a duration such as `30s`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = text(node)?;
        if let Some(hint) = bare_number(text) {
            return Err(Wrong::hinted(node, hint));
        }
        match parse(text) {
            Some(duration) if duration <= LONGEST => Ok(duration),
            Some(_) => Err(Wrong::hinted(node, "the longest is a year, `8760h`")),
            None => Err(Wrong::hinted(node, unknown_unit(text))),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(show_duration(*self))
    }

    fn is_zero(&self) -> bool {
        Self::is_zero(self)
    }
}

/// A duration that RoadRunner, or its documentation, writes as a bare number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub struct Seconds(pub Duration);

impl Setting for Seconds {
    fn example() -> String {
        Duration::example()
    }

    fn accepts() -> String {
        format!("{}, or a number of seconds", Duration::accepts())
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        match text(node)?.parse::<u32>() {
            Ok(seconds) => Ok(Self(Duration::from_secs(seconds.into()))),
            Err(_) => Duration::read(node).map(Self),
        }
    }

    fn show(&self) -> Shown {
        self.0.show()
    }

    fn is_zero(&self) -> bool {
        Setting::is_zero(&self.0)
    }
}

/// As it is written in a configuration, in as few units as are exact: `1m30s`, `1500ms`, `0`.
pub fn show_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    for (unit, length) in [("ns", 1_u128), ("us", 1_000), ("ms", 1_000_000)] {
        if !nanoseconds.is_multiple_of(length * 1000) {
            return format!("{}{unit}", nanoseconds / length);
        }
    }
    let seconds = duration.as_secs();
    let parts = [
        ("h", seconds / 3600),
        ("m", seconds / 60 % 60),
        ("s", seconds % 60),
    ];
    let mut shown = String::new();
    for (unit, n) in parts {
        if n > 0 {
            shown.extend([n.to_string().as_str(), unit]);
        }
    }
    if shown.is_empty() {
        "0".to_owned()
    } else {
        shown
    }
}

/// `0`, or one or more numbers each with a unit. None for anything else and for what overflows.
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds: u64 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let (unit, left) = UNITS.iter().find_map(|(name, length)| {
            let left = after.strip_prefix(name)?;
            // A unit ends where the next number begins: `5mins` has no unit we know.
            left.chars()
                .next()
                .is_none_or(|c| c.is_ascii_digit() || c == '.')
                .then_some((*length, left))
        })?;
        nanoseconds = nanoseconds.checked_add(scaled(number, unit)?)?;
        rest = left;
    }
    Some(Duration::from_nanos(nanoseconds))
}

/// A decimal number of units, in nanoseconds, cut to whole ones.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut nanoseconds = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        nanoseconds = nanoseconds.checked_add(place * u64::from(digit - b'0'))?;
    }
    Some(nanoseconds)
}

/// What a number without a unit probably means; None when it has one, and for 0.
fn bare_number(text: &str) -> Option<String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits == "0"
        || digits.is_empty()
        || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
    {
        return None;
    }
    let meant = match digits.parse::<u64>() {
        // Somebody who knows RoadRunner's unit wrote nanoseconds.
        Ok(n) if n >= 1_000_000 && n.is_multiple_of(1_000_000) => {
            format!("write `{}`", show_duration(Duration::from_nanos(n)))
        }
        Ok(n) if n >= 1000 => format!("write `{n}ms` or `{n}s`"),
        _ => format!("write `{digits}s` for seconds"),
    };
    Some(format!(
        "{meant}: RoadRunner reads a bare number as nanoseconds"
    ))
}

fn unknown_unit(text: &str) -> &'static str {
    if text.starts_with('-') {
        "a duration cannot be negative"
    } else if text.ends_with(['d', 'D']) || text.contains("day") {
        "there is no unit for days: a day is `24h`"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::testing::read;

    #[test]
    fn gos_syntax_is_read_and_shown_in_few_units() {
        for (text, milliseconds, shown) in [
            ("60s", 60_000, "1m"),
            ("1m30s", 90_000, "1m30s"),
            ("1500ms", 1500, "1500ms"),
            ("1.5s", 1500, "1500ms"),
            (".5s", 500, "500ms"),
            ("2.s", 2000, "2s"),
            ("+1h", 3_600_000, "1h"),
            ("24h", 86_400_000, "24h"),
            ("1h0m1s", 3_601_000, "1h1s"),
            ("0", 0, "0"),
            ("0s", 0, "0"),
            ("\"5s\"", 5000, "5s"),
        ] {
            let read = read::<Duration>(text).expect(text);
            assert_eq!(read, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(show_duration(read), shown, "{text}");
        }
        assert_eq!(read::<Duration>("3µs"), Ok(Duration::from_micros(3)));
        assert_eq!(read::<Duration>("1us7ns"), Ok(Duration::from_nanos(1007)));
        assert_eq!(show_duration(Duration::from_nanos(1007)), "1007ns");
    }

    #[test]
    fn seconds_may_have_no_unit_where_roadrunner_writes_none() {
        for (text, seconds) in [("30", 30), ("30s", 30), ("1m30s", 90), ("0", 0)] {
            let read = read::<Seconds>(text).expect(text);
            assert_eq!(read, Seconds(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["-1", "1.5", "5 s", "soon"] {
            assert!(read::<Seconds>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_refused_and_told_what_it_means() {
        for (text, hint) in [
            ("60", "write `60s` for seconds"),
            ("\"60\"", "write `60s` for seconds"),
            ("1.5", "write `1.5s` for seconds"),
            ("1500", "write `1500ms` or `1500s`"),
            ("60000000000", "write `1m`:"),
        ] {
            let said = read::<Duration>(text).expect_err(text);
            assert!(said.contains(hint), "{text}: {said}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "s",
            "1x",
            "1 s",
            "5mins",
            "1h30",
            "-1s",
            "1d",
            "1..5s",
            ".s",
            "1sm",
            "9999999h",
            "99999999999999999999s",
            "[1s]",
            "1ms5",
        ] {
            assert!(read::<Duration>(text).is_err(), "{text}");
        }
    }
}
