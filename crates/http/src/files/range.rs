//! Ranges of a file (RFC 9110, section 14).

use std::ops::Range;

/// More are refused by sending the whole file: somebody is not after parts of it.
const MOST: usize = 16;

/// What a field Range asks for, of a file of a known length.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Not understood, or not reasonable: the field does not count.
    Whole,
    /// At least one, none of them empty, in the client's order.
    Parts(Vec<Range<u64>>),
    /// All of it lies behind the end.
    Unsatisfiable,
}

pub(super) fn asked(field: &[u8], len: u64) -> Wanted {
    // `bytes=-5` of an empty file can be satisfied (RFC 9110, section 14.1.2), but no Content-Range
    // can say so; nginx sends all.
    if len == 0 {
        return Wanted::Whole;
    }
    let list = match field.split_at_checked(6) {
        Some((unit, list)) if unit.eq_ignore_ascii_case(b"bytes=") => list,
        _ => return Wanted::Whole,
    };
    let mut parts = Vec::new();
    let mut seen = 0;
    for spec in list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        if spec.is_empty() {
            continue;
        }
        seen += 1;
        if seen > MOST {
            return Wanted::Whole;
        }
        match one(spec, len) {
            None => return Wanted::Whole,
            Some(part) if part.is_empty() => {}
            Some(part) => parts.push(part),
        }
    }
    let total: u64 = parts.iter().map(|part| part.end - part.start).sum();
    match parts.as_slice() {
        [] if seen == 0 => Wanted::Whole,
        [] => Wanted::Unsatisfiable,
        // What overlaps asks for more than there is.
        [_, _, ..] if total > len => Wanted::Whole,
        _ => Wanted::Parts(parts),
    }
}

/// `None` when it is no range; empty when it lies behind the end.
fn one(spec: &[u8], len: u64) -> Option<Range<u64>> {
    let dash = memchr::memchr(b'-', spec)?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return Some(len.saturating_sub(number(last)?)..len);
    }
    let first = number(first)?;
    if last.is_empty() {
        return Some(first.min(len)..len);
    }
    let last = number(last)?;
    (first <= last).then(|| first.min(len)..last.saturating_add(1).min(len))
}

/// Longer ones are as good as endless.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |number: u64, digit: &u8| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    };
    Some(digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_as_clients_write_them() {
        let parts = |parts: &[(u64, u64)]| {
            Wanted::Parts(parts.iter().map(|(start, end)| *start..*end).collect())
        };
        for (field, expected) in [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=0-9", parts(&[(0, 10)])),
            ("Bytes=5-", parts(&[(5, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-99", parts(&[(0, 10)])),
            ("bytes=8-99", parts(&[(8, 10)])),
            ("bytes=8-99999999999999999999999", parts(&[(8, 10)])),
            ("bytes=0-1, 4-5 ,,-1", parts(&[(0, 2), (4, 6), (9, 10)])),
            ("bytes=0-1,20-", parts(&[(0, 2)])),
            ("bytes=10-", Wanted::Unsatisfiable),
            ("bytes=-0", Wanted::Unsatisfiable),
            ("bytes=99999999999999999999999-", Wanted::Unsatisfiable),
            ("bytes=20-30,40-", Wanted::Unsatisfiable),
            ("bytes=5-4", Wanted::Whole),
            ("bytes=", Wanted::Whole),
            ("bytes=,", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=1", Wanted::Whole),
            ("bytes=+1-2", Wanted::Whole),
            ("lines=1-2", Wanted::Whole),
            ("bytes=0-8,1-9", Wanted::Whole),
        ] {
            assert_eq!(asked(field.as_bytes(), 10), expected, "{field}");
        }
        let many = format!("bytes={}", "0-0,".repeat(17));
        assert_eq!(asked(many.as_bytes(), 1000), Wanted::Whole);
        for field in [
            "bytes=0-",
            "bytes=0-0",
            "bytes=-5",
            "bytes=-0",
            "bytes=7-9",
            "bytes=0-1,-1",
        ] {
            assert_eq!(
                asked(field.as_bytes(), 0),
                Wanted::Whole,
                "{field} of nothing"
            );
        }
    }

    proptest! {
        #[test]
        fn no_range_leaves_the_file(field in "bytes=[-0-9, ]{0,40}", len in 0_u64..1000) {
            if let Wanted::Parts(parts) = asked(field.as_bytes(), len) {
                prop_assert!(!parts.is_empty());
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= len));
            }
        }
    }
}
