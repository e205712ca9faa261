//! Bodies of `application/x-www-form-urlencoded`.

use std::borrow::Cow;

use memchr::{memchr, memchr2};
use thiserror::Error;

use crate::Limits;

/// How a body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// As for RoadRunner's codecs: a `%` that starts no escape is an error, and so is a `;`, which
    /// older programs take for a separator.
    Strict,
    /// As PHP reads it: such a `%` stands for itself, and so does `;`.
    Php,
}

/// A name and its value, not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair<'a> {
    /// What stands before the first `=`, or all of it.
    pub name: &'a [u8],
    /// What follows it; empty without `=`.
    pub value: &'a [u8],
    /// Where the name starts in the body.
    pub offset: usize,
}

/// The pairs of a body, in order. Empty ones (`a=1&&b=2`) are left out.
pub fn pairs(body: &[u8]) -> Pairs<'_> {
    Pairs {
        rest: body,
        offset: 0,
    }
}

/// Iterator over the pairs of a body.
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Pair<'a>;

    fn next(&mut self) -> Option<Pair<'a>> {
        while !self.rest.is_empty() {
            let offset = self.offset;
            let end = memchr(b'&', self.rest).unwrap_or(self.rest.len());
            let (pair, rest) = self.rest.split_at(end);
            self.rest = rest.get(1..).unwrap_or_default();
            self.offset = offset.saturating_add(end).saturating_add(1);
            if !pair.is_empty() {
                let (name, value) = pair.split_at(memchr(b'=', pair).unwrap_or(pair.len()));
                return Some(Pair {
                    name,
                    value: value.get(1..).unwrap_or_default(),
                    offset,
                });
            }
        }
        None
    }
}

/// Looks through a body once, without decoding it: is it well-formed under `rules`, and within
/// `limits`?
///
/// # Errors
///
/// The client's; answer 400.
pub fn check(body: &[u8], rules: Rules, limits: &Limits) -> Result<(), Error> {
    if body.len() > limits.field_bytes {
        return Err(Error::TooLong {
            limit: limits.field_bytes,
        });
    }
    let mut fields = 0_u32;
    for pair in pairs(body) {
        fields = fields.saturating_add(1);
        if fields > limits.fields {
            return Err(Error::TooManyFields {
                limit: limits.fields,
            });
        }
        if levels(pair.name) > usize::from(limits.levels) {
            return Err(Error::TooManyLevels {
                limit: limits.levels,
                offset: pair.offset,
            });
        }
        if rules == Rules::Strict {
            let value = pair
                .offset
                .saturating_add(pair.name.len())
                .saturating_add(1);
            check_strict(pair.name, pair.offset)?;
            check_strict(pair.value, value)?;
        }
    }
    Ok(())
}

/// Opening brackets, escaped or not: never fewer than the levels that PHP or RoadRunner would make
/// of them.
fn levels(name: &[u8]) -> usize {
    let plain = memchr::memchr_iter(b'[', name).count();
    let escaped = name
        .windows(3)
        .filter(|window| window.eq_ignore_ascii_case(b"%5b"))
        .count();
    plain.saturating_add(escaped)
}

fn check_strict(text: &[u8], offset: usize) -> Result<(), Error> {
    let mut rest = text;
    while let Some(at) = memchr2(b'%', b';', rest) {
        rest = rest.split_at(at).1;
        let offset = || offset.saturating_add(text.len()).saturating_sub(rest.len());
        rest = match rest {
            [b'%', high, low, after @ ..] if escaped(*high, *low).is_some() => after,
            [b'%', ..] => return Err(Error::BadEscape { offset: offset() }),
            _ => return Err(Error::Semicolon { offset: offset() }),
        };
    }
    Ok(())
}

/// A name or value as it was meant: `+` is a space, `%41` is `A`, and a `%` that starts no escape
/// stays. Under [`Rules::Strict`], [`check`] has refused the latter before.
pub fn decode(raw: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr2(b'%', b'+', raw) else {
        return Cow::Borrowed(raw);
    };
    let (plain, mut rest) = raw.split_at(first);
    let mut decoded = Vec::with_capacity(raw.len());
    decoded.extend_from_slice(plain);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'+', _) => decoded.push(b' '),
            (b'%', [high, low, after @ ..]) if let Some(byte) = escaped(*high, *low) => {
                decoded.push(byte);
                rest = after;
            }
            _ => decoded.push(*byte),
        }
    }
    Cow::Owned(decoded)
}

fn escaped(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    Some(digit(high)? << 4 | digit(low)?)
}

/// Why a urlencoded body is refused. Always the client's fault: answer 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Error {
    /// A `%` without two hexadecimal digits behind it.
    #[error(
        "malformed form (byte {offset} of the body): `%` without two hexadecimal digits; send `%` itself as `%25`"
    )]
    BadEscape {
        /// Bytes of the body before it.
        offset: usize,
    },
    /// A `;`, separator for some programs and text for others.
    #[error(
        "malformed form (byte {offset} of the body): `;` separates nothing here; send it as `%3B`, and separate by `&`"
    )]
    Semicolon {
        /// Bytes of the body before it.
        offset: usize,
    },
    /// Beyond [`Limits::fields`].
    #[error("the form has more than {limit} fields")]
    TooManyFields {
        /// What is accepted.
        limit: u32,
    },
    /// Beyond [`Limits::levels`].
    #[error("malformed form (byte {offset} of the body): a name with more than {limit} brackets")]
    TooManyLevels {
        /// What is accepted.
        limit: u8,
        /// Bytes of the body before the name.
        offset: usize,
    },
    /// Beyond [`Limits::field_bytes`].
    #[error("the form is longer than {limit} bytes")]
    TooLong {
        /// What is accepted.
        limit: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(body: &str) -> Vec<(String, String)> {
        let text = |raw| String::from_utf8_lossy(&decode(raw)).into_owned();
        pairs(body.as_bytes())
            .map(|pair| (text(pair.name), text(pair.value)))
            .collect()
    }

    #[test]
    fn pairs_are_decoded_in_order_and_empty_ones_left_out() {
        let expected = [
            ("a", "1 2"),
            ("a", "=&"),
            ("b", ""),
            ("", "3"),
            ("%zz", "%4"),
            ("é;", "+"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(decoded("&a=1+2&&a==%26&b&=3&%zz=%4&%C3%a9;=%2b&"), expected);
        assert_eq!(decoded(""), []);
    }

    #[test]
    fn strict_rules_refuse_what_could_be_read_in_two_ways_and_say_where() {
        let check = |body: &str| check(body.as_bytes(), Rules::Strict, &Limits::default());
        assert_eq!(check("a=%41+&b=%3B&%5B=&&"), Ok(()));
        for body in ["&a=%zz", "&a=%4", "&a=%", "&a=%%41", "&x=%4g"] {
            assert_eq!(check(body), Err(Error::BadEscape { offset: 3 }), "{body}");
        }
        assert_eq!(check("a=1;b=2"), Err(Error::Semicolon { offset: 3 }));
        assert_eq!(check("a=%41&b;=2"), Err(Error::Semicolon { offset: 7 }));
        assert_eq!(
            super::check(b"a=%zz;", Rules::Php, &Limits::default()),
            Ok(())
        );
    }

    #[test]
    fn limits_hold_before_anything_is_decoded() {
        let limits = Limits {
            fields: 2,
            levels: 2,
            field_bytes: 20,
            ..Limits::default()
        };
        let check = |body: &str| check(body.as_bytes(), Rules::Php, &limits);
        assert_eq!(check("a=1&&&b=[[[&"), Ok(()));
        assert_eq!(check("a&b&c"), Err(Error::TooManyFields { limit: 2 }));
        assert_eq!(check("a[][]=1&b"), Ok(()));
        assert_eq!(
            check("&a[%5b%5B=1"),
            Err(Error::TooManyLevels {
                limit: 2,
                offset: 1
            })
        );
        assert_eq!(
            check("a=1234567890123456789"),
            Err(Error::TooLong { limit: 20 })
        );
    }
}
