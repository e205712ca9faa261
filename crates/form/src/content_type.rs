//! A request's `Content-Type`: is the body a form, and what separates its parts?

use thiserror::Error;

/// Longest boundary accepted. RFC 2046 says 70, PHP takes 5,116; nothing that is in use sends more
/// than about 80.
pub const MAX_BOUNDARY: usize = 1_024;

/// What a request's `Content-Type` says about its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentType {
    /// `application/x-www-form-urlencoded`
    Urlencoded,
    /// `multipart/form-data`
    Multipart(Boundary),
    /// No form: the body goes to PHP as it is.
    Other,
}

impl ContentType {
    /// Reads a header value. As in PHP the media type ends at `;`, `,` or a space, and its case
    /// does not matter.
    ///
    /// # Errors
    ///
    /// The client's: a multipart form without one usable `boundary`.
    pub fn parse(value: &[u8]) -> Result<Self, BoundaryError> {
        let value = value.trim_ascii();
        let end = value
            .iter()
            .position(|byte| matches!(byte, b';' | b',' | b' ' | b'\t'));
        let (media_type, parameters) = value.split_at(end.unwrap_or(value.len()));
        if media_type.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
            Ok(Self::Urlencoded)
        } else if media_type.eq_ignore_ascii_case(b"multipart/form-data") {
            Boundary::find(parameters).map(Self::Multipart)
        } else {
            Ok(Self::Other)
        }
    }
}

/// The text that separates the parts of a multipart body: 1 to [`MAX_BOUNDARY`] bytes, none a
/// control character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary(Vec<u8>);

impl Boundary {
    /// Checks a boundary that was found elsewhere.
    ///
    /// # Errors
    ///
    /// Empty, too long, or with a byte that would make a boundary line ambiguous.
    pub fn new(boundary: &[u8]) -> Result<Self, BoundaryError> {
        if boundary.is_empty() {
            return Err(BoundaryError::Empty);
        }
        if boundary.len() > MAX_BOUNDARY {
            return Err(BoundaryError::TooLong {
                length: boundary.len(),
            });
        }
        if boundary
            .iter()
            .any(|byte| byte.is_ascii_control() || matches!(byte, b'"' | b'\\'))
        {
            return Err(BoundaryError::BadByte);
        }
        Ok(Self(boundary.to_vec()))
    }

    /// Without the two dashes that precede it in the body.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// PHP looks for the word anywhere and takes the first; here it must be the name of a
    /// parameter, and the only one.
    fn find(mut parameters: &[u8]) -> Result<Self, BoundaryError> {
        let mut found = None;
        while let Some((name, value, rest)) = next_parameter(parameters)? {
            parameters = rest;
            if name.eq_ignore_ascii_case(b"boundary") && found.replace(value).is_some() {
                return Err(BoundaryError::Twice);
            }
        }
        found.ok_or(BoundaryError::Missing).and_then(Self::new)
    }
}

/// Name, value without its quotes (escapes stay: a boundary can't have any), and what follows. The
/// comma is RFC 1867's own example, and PHP takes it.
type Parameter<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn next_parameter(text: &[u8]) -> Result<Option<Parameter<'_>>, BoundaryError> {
    let Some(start) = text
        .iter()
        .position(|byte| !is_separator(*byte) && *byte != b' ')
    else {
        return Ok(None);
    };
    let (_, text) = text.split_at(start);
    let name_end = text
        .iter()
        .position(|byte| *byte == b'=' || is_separator(*byte));
    let (name, text) = text.split_at(name_end.unwrap_or(text.len()));
    let name = name.trim_ascii();
    let Some(value) = text.strip_prefix(b"=").map(<[u8]>::trim_ascii_start) else {
        return Ok(Some((name, b"", text)));
    };
    let Some(quoted) = value.strip_prefix(b"\"") else {
        let (value, rest) = value.split_at(end_of_word(value));
        return Ok(Some((name, value.trim_ascii_end(), rest)));
    };
    let end = end_of_quoted(quoted).ok_or(BoundaryError::Unterminated)?;
    let (value, rest) = quoted.split_at(end);
    // What stands between the closing quote and the next separator is ignored by PHP too.
    Ok(Some((name, value, rest.split_at(end_of_word(rest)).1)))
}

fn end_of_word(text: &[u8]) -> usize {
    text.iter()
        .position(|byte| is_separator(*byte))
        .unwrap_or(text.len())
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b';' | b',')
}

fn end_of_quoted(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })
}

/// The client's: the boundary of a multipart form can't be used. Answer 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BoundaryError {
    /// No such parameter. Often a client that sets the header itself instead of leaving it to its
    /// HTTP library.
    #[error(
        "`Content-Type: multipart/form-data` has no `boundary` parameter; let the HTTP library set this header"
    )]
    Missing,
    /// `boundary=` and nothing.
    #[error("the `boundary` in Content-Type is empty")]
    Empty,
    /// Two of them: which one counts differs from program to program.
    #[error("Content-Type has two `boundary` parameters; send one")]
    Twice,
    /// A quoted string that does not end.
    #[error("a quoted string in Content-Type has no closing quote")]
    Unterminated,
    /// Longer than [`MAX_BOUNDARY`].
    #[error(
        "the `boundary` in Content-Type has {length} bytes; at most {MAX_BOUNDARY} are accepted, RFC 2046 allows 70"
    )]
    TooLong {
        /// What was sent.
        length: usize,
    },
    /// A control character, a quote or a backslash.
    #[error("the `boundary` in Content-Type holds a control character, a quote or a backslash")]
    BadByte,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(value: &str) -> Result<String, BoundaryError> {
        match ContentType::parse(value.as_bytes())? {
            ContentType::Multipart(boundary) => {
                Ok(String::from_utf8(boundary.as_bytes().to_vec()).unwrap())
            }
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn a_media_type_ends_where_php_lets_it_end_and_has_no_case() {
        for value in [
            "application/x-www-form-urlencoded",
            " Application/X-WWW-Form-Urlencoded ; charset=UTF-8",
            "application/x-www-form-urlencoded, text/plain",
            "application/x-www-form-urlencoded charset=UTF-8",
        ] {
            assert_eq!(
                ContentType::parse(value.as_bytes()),
                Ok(ContentType::Urlencoded),
                "{value}"
            );
        }
        for value in [
            "",
            "text/plain; x=application/x-www-form-urlencoded",
            "application/x-www-form-urlencodedX",
            "multipart/mixed; boundary=a",
        ] {
            assert_eq!(
                ContentType::parse(value.as_bytes()),
                Ok(ContentType::Other),
                "{value}"
            );
        }
    }

    #[test]
    fn a_boundary_is_found_quoted_or_not_wherever_it_stands() {
        for (value, expected) in [
            ("multipart/form-data; boundary=abc", "abc"),
            ("multipart/form-data;boundary=abc", "abc"),
            ("Multipart/Form-Data; BOUNDARY=abc", "abc"),
            ("multipart/form-data, boundary=AaB03x", "AaB03x"),
            ("multipart/form-data boundary=abc", "abc"),
            ("multipart/form-data; boundary=abc; charset=utf-8", "abc"),
            ("multipart/form-data; boundary=abc ;charset=utf-8", "abc"),
            (
                "multipart/form-data; boundary=\"a b;c,d=e\"; charset=utf-8",
                "a b;c,d=e",
            ),
            ("multipart/form-data; boundary=\"abc\"junk", "abc"),
            ("multipart/form-data; boundary= abc", "abc"),
            ("multipart/form-data; boundary = abc", "abc"),
            ("multipart/form-data; charset=utf-8; boundary=abc", "abc"),
            ("multipart/form-data; flag; boundary=abc;", "abc"),
            (
                "multipart/form-data; x=\";boundary=no\"; boundary=yes",
                "yes",
            ),
            (
                "multipart/form-data; x=\"\\\";boundary=no\"; boundary=yes",
                "yes",
            ),
            ("multipart/form-data; xboundary=no; boundary=yes", "yes"),
            ("multipart/form-data; boundary='a'", "'a'"),
            ("multipart/form-data; boundary=--=_é", "--=_é"),
        ] {
            assert_eq!(boundary(value).as_deref(), Ok(expected), "{value}");
        }
    }

    #[test]
    fn a_boundary_that_could_be_read_in_two_ways_is_refused() {
        for (value, expected) in [
            ("multipart/form-data", BoundaryError::Missing),
            ("multipart/form-data;;, ;", BoundaryError::Missing),
            ("multipart/form-data; boundary", BoundaryError::Empty),
            ("multipart/form-data; boundary=", BoundaryError::Empty),
            ("multipart/form-data; boundary=\"\"", BoundaryError::Empty),
            (
                "multipart/form-data; boundary=\"abc",
                BoundaryError::Unterminated,
            ),
            (
                "multipart/form-data; boundary=a; boundary=a",
                BoundaryError::Twice,
            ),
            (
                "multipart/form-data; boundary=\"a\\\"b\"",
                BoundaryError::BadByte,
            ),
            ("multipart/form-data; boundary=a\tb", BoundaryError::BadByte),
            ("multipart/form-data; boundary=a\0b", BoundaryError::BadByte),
        ] {
            assert_eq!(boundary(value), Err(expected), "{value}");
        }
        let long = "x".repeat(MAX_BOUNDARY);
        assert_eq!(
            boundary(&format!("multipart/form-data; boundary={long}")),
            Ok(long.clone())
        );
        assert_eq!(
            boundary(&format!("multipart/form-data; boundary={long}x")),
            Err(BoundaryError::TooLong {
                length: MAX_BOUNDARY + 1
            })
        );
    }
}
