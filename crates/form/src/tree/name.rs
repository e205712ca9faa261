//! A field's name, taken apart as RoadRunner does it.

use std::borrow::Cow;

/// The keys of a name: the first is the field, each further one a level below it, and an empty
/// further one means the next element of a list.
///
/// Spaces are dropped. A bracket of either kind ends a key, so that text behind `]` is a key of its
/// own, as is text behind a `[` that never closes. Only `[` directly followed by `]` makes an empty
/// key. What is not UTF-8 is replaced before keys are compared, as in the JSON that they end up in.
///
/// `None`: there are more than `levels` keys behind the first.
pub(super) fn keys(name: &[u8], levels: u8) -> Option<Vec<Cow<'_, str>>> {
    let mut keys = Vec::new();
    let mut before = None;
    for piece in name.split_inclusive(|byte| matches!(byte, b'[' | b']')) {
        let (text, bracket) = match piece.split_last() {
            Some((bracket @ (b'[' | b']'), text)) => (text, Some(*bracket)),
            _ => (piece, None),
        };
        let key = key(text);
        let is_element = before == Some(b'[') && bracket == Some(b']');
        if before.is_none() || !key.is_empty() || is_element {
            if keys.len() > usize::from(levels) {
                return None;
            }
            keys.push(key);
        }
        before = bracket;
    }
    if keys.is_empty() {
        keys.push(Cow::Borrowed(""));
    }
    Some(keys)
}

fn key(text: &[u8]) -> Cow<'_, str> {
    if text.contains(&b' ') {
        let dense: Vec<u8> = text.iter().copied().filter(|byte| *byte != b' ').collect();
        return Cow::Owned(String::from_utf8_lossy(&dense).into_owned());
    }
    String::from_utf8_lossy(text)
}

/// The index that PHP makes of a key: a decimal number written as PHP would write it.
pub(super) fn index(key: &str) -> Option<i64> {
    let number: i64 = key.parse().ok()?;
    let first = key.as_bytes().first()?;
    let canonical = match number {
        0 => key == "0",
        1.. => (b'1'..=b'9').contains(first),
        _ => !key.starts_with("-0"),
    };
    canonical.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_brackets_of_both_kinds() {
        for (name, expected) in [
            ("", &[""][..]),
            (" ", &[""]),
            ("a", &["a"]),
            ("a[b][c]", &["a", "b", "c"]),
            ("a[]", &["a", ""]),
            ("a[][]", &["a", "", ""]),
            ("a[ ]", &["a", ""]),
            ("a[][k]", &["a", "", "k"]),
            ("[c]", &["", "c"]),
            ("[]", &["", ""]),
            ("a[b", &["a", "b"]),
            ("a[", &["a"]),
            ("a]", &["a"]),
            ("a]b", &["a", "b"]),
            ("]a", &["", "a"]),
            ("d[e]f", &["d", "e", "f"]),
            ("g[[h]]", &["g", "h"]),
            ("g[[]]", &["g", ""]),
            ("a]]]]", &["a"]),
            ("a[[[[", &["a"]),
            ("a b[ c ]", &["ab", "c"]),
            ("a.b", &["a.b"]),
        ] {
            assert_eq!(keys(name.as_bytes(), 2).unwrap(), expected, "{name}");
        }
        assert_eq!(keys(b"\xff[\xc3\xa9]", 2).unwrap(), ["\u{FFFD}", "é"]);
        for name in ["a[b][c][d]", "a]b]c]d", "a[][][]"] {
            assert_eq!(keys(name.as_bytes(), 2), None, "{name}");
        }
    }

    #[test]
    fn only_a_number_as_php_writes_it_is_an_index() {
        for (key, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-7", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("99999999999999999999999999", None),
            ("00", None),
            ("07", None),
            ("+7", None),
            ("-0", None),
            ("-07", None),
            ("1e3", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(index(key), expected, "{key}");
        }
    }
}
