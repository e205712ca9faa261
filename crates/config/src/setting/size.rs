//! Amounts of memory and disk.

use std::fmt;

use super::{Setting, Shown, Wrong, text};
use crate::node::Node;

/// A number of bytes. A bare number in a file means megabytes, as in RoadRunner; `64KB`, `1GB` and
/// the like say their unit. All units are powers of 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

const UNITS: [(&str, u64); 4] = [("B", 1), ("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30)];

/// More than any machine has; keeps every sum of sizes far from overflow.
const LARGEST: u64 = 1 << 50;

impl Size {
    /// So many × 1024².
    pub const fn megabytes(n: u64) -> Self {
        Self(n << 20)
    }

    /// So many × 1024.
    pub const fn kilobytes(n: u64) -> Self {
        Self(n << 10)
    }

    /// The number of bytes, at most 2⁵⁰ when read from a file.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl Setting for Size {
    fn example() -> String {
        "64MB".to_owned()
    }

    fn accepts() -> String {
        "a size such as `64MB`, or a number of MB".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = text(node)?;
        match parse(text) {
            Some(bytes) if bytes <= LARGEST => Ok(Self(bytes)),
            Some(_) => Err(Wrong::hinted(
                node,
                "a bare number is in MB; write `100B` for bytes",
            )),
            None => Err(Wrong::value(node)),
        }
    }

    fn show(&self) -> Shown {
        Shown::One(self.to_string())
    }

    fn roadrunner(text: &str) -> Option<(&'static str, &'static str)> {
        let has_unit = text.contains(|c: char| c.is_ascii_alphabetic());
        has_unit.then_some(("refused", "RoadRunner knows megabytes only"))
    }

    fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

/// In the largest unit that is exact: `1000MB`, `1GB`, `64KB`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS
            .iter()
            .rev()
            .find(|(_, unit)| self.0.is_multiple_of(*unit));
        match exact {
            Some((name, unit)) if self.0 > 0 => write!(f, "{}{name}", self.0 / unit),
            _ => f.write_str("0"),
        }
    }
}

fn parse(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_uppercase();
    let factor = match unit.as_str() {
        "" | "M" | "MIB" => 1 << 20,
        "K" | "KIB" => 1 << 10,
        "G" | "GIB" => 1 << 30,
        named => UNITS.iter().find(|(name, _)| *name == named)?.1,
    };
    // Past the largest all is one: the caller refuses it.
    Some(number.parse::<u64>().ok()?.saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::testing::read;

    #[test]
    fn a_bare_number_is_megabytes_and_units_are_powers_of_1024() {
        for (text, bytes, shown) in [
            ("1000", 1000 << 20, "1000MB"),
            ("\"10\"", 10 << 20, "10MB"),
            ("64KB", 64 << 10, "64KB"),
            ("64 kb", 64 << 10, "64KB"),
            ("1GB", 1 << 30, "1GB"),
            ("1024", 1 << 30, "1GB"),
            ("128M", 128 << 20, "128MB"),
            ("2GiB", 2 << 30, "2GB"),
            ("100B", 100, "100B"),
            ("0", 0, "0"),
        ] {
            let read = read::<Size>(text).expect(text);
            assert_eq!(
                (read.bytes(), read.to_string().as_str()),
                (bytes, shown),
                "{text}"
            );
        }
        for text in [
            "MB",
            "1TB",
            "-1",
            "1.5GB",
            "ten",
            "[1]",
            "99999999999999999999",
        ] {
            assert!(read::<Size>(text).is_err(), "{text}");
        }
        assert!(read::<Size>("1048576000000").is_err_and(|e| e.contains("in MB")));
    }
}
