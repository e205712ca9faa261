//! The path of a request in the one form in which it is looked up.
//!
//! A client can write one path in many ways. It is decoded once; what could be read as another path behind that (an encoded
//! slash, a backslash, NUL) or is no proper code is no path. So what is looked up is exactly what the rules have judged.

use std::borrow::Cow;

/// What is longer than the kernel takes names no file.
const LONGEST: usize = 4095;

/// The one folder with a dot that is there to be seen (RFC 8615).
pub const WELL_KNOWN: &[u8] = b".well-known";

/// A path without doubt: it begins with a slash and has no empty segment but perhaps the last one, no `.` and no `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path<'a>(Cow<'a, [u8]>);

/// Why something is no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadPath {
    /// It could be read in two ways, or can't be one at all.
    Malformed,
    /// It has a `..` in it.
    Climbs,
}

impl<'a> Path<'a> {
    /// # Errors
    ///
    /// When it is no path.
    pub fn of(received: &'a [u8]) -> Result<Self, BadPath> {
        if received.first() != Some(&b'/') || received.len() > LONGEST {
            return Err(BadPath::Malformed);
        }
        let decoded = decode(received).ok_or(BadPath::Malformed)?;
        let mut clean = true;
        let mut previous: Option<&[u8]> = None;
        for segment in segments(&decoded) {
            // An empty one is fine as the last.
            clean &= !matches!(previous, Some(b""));
            match segment {
                b"." => clean = false,
                b".." => return Err(BadPath::Climbs),
                _ => {}
            }
            previous = Some(segment);
        }
        Ok(Self(if clean {
            decoded
        } else {
            join(&decoded).into()
        }))
    }

    /// With the slash at its start; one at its end is that of the request.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The parts between slashes of a path that begins with one. The last one is empty where it ends in one, too.
pub(crate) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let below = path.strip_prefix(b"/").unwrap_or(path);
    below.split(|&byte| byte == b'/')
}

/// Whether a segment is hidden from clients. `is_first`: it is the first of its path.
pub(crate) fn is_hidden(segment: &[u8], is_first: bool) -> bool {
    segment.first() == Some(&b'.') && !(is_first && segment == WELL_KNOWN)
}

/// Without empty segments and `.`; one that ends in such ends in a slash.
fn join(path: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len());
    let mut ends_in_slash = false;
    for segment in segments(path) {
        ends_in_slash = matches!(segment, b"" | b".");
        if !ends_in_slash {
            joined.push(b'/');
            joined.extend_from_slice(segment);
        }
    }
    if ends_in_slash {
        joined.push(b'/');
    }
    joined
}

/// Undoes percent-encoding once. `None` when something in it must not be in a file's path.
pub fn decode(path: &[u8]) -> Option<Cow<'_, [u8]>> {
    let is_plain = memchr::memchr3(b'%', b'\\', 0, path).is_none();
    if is_plain {
        return Some(path.into());
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        rest = after;
        let byte = match (byte, rest) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                match hex(*high)? << 4 | hex(*low)? {
                    b'/' => return None,
                    byte => byte,
                }
            }
            (b'%', _) => return None,
            (byte, _) => *byte,
        };
        if matches!(byte, b'\\' | 0) {
            return None;
        }
        decoded.push(byte);
    }
    Some(decoded.into())
}

fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(received: &str) -> Result<String, BadPath> {
        let path = Path::of(received.as_bytes())?;
        Ok(String::from_utf8(path.bytes().to_vec()).unwrap())
    }

    #[test]
    fn one_path_has_many_spellings() {
        for spelling in ["/a/b.php", "//a///b.php", "/./a/./b.php", "/%61/b%2Ephp"] {
            assert_eq!(path(spelling), Ok("/a/b.php".to_owned()), "{spelling}");
        }
        assert_eq!(path("/"), Ok("/".to_owned()));
        assert_eq!(path("//."), Ok("/".to_owned()));
        assert_eq!(path("/a/"), Ok("/a/".to_owned()));
        assert_eq!(path("/a//."), Ok("/a/".to_owned()));
        assert_eq!(
            path("/%252e%252e"),
            Ok("/%2e%2e".to_owned()),
            "decoded once"
        );
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_no_path() {
        for text in [
            "",
            "a",
            "*",
            "/a%2fb",
            "/a%5Cb",
            "/a\\b",
            "/a%00.php",
            "/%",
            "/%4",
            "/%zz",
        ] {
            assert_eq!(path(text), Err(BadPath::Malformed), "{text}");
        }
        assert_eq!(path(&"/a".repeat(2048)), Err(BadPath::Malformed));
        for text in ["/..", "/a/../b", "/%2e%2E/x", "//..", "/a/.."] {
            assert_eq!(path(text), Err(BadPath::Climbs), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_path_holds_nothing_doubtful(received in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'%'), Just(b'2'), Just(b'e'), Just(b'\\'), any::<u8>()], 0..40,
        )) {
            if let Ok(path) = Path::of(&received) {
                let path = path.bytes();
                prop_assert_eq!(path[0], b'/');
                let segments: Vec<&[u8]> = segments(path).collect();
                let (last, others) = segments.split_last().unwrap();
                prop_assert!(others.iter().all(|segment| !matches!(*segment, b"" | b"." | b"..")));
                prop_assert!(!matches!(*last, b"." | b".."));
                prop_assert!(!path.contains(&0) && !path.contains(&b'\\'));
            }
        }
    }
}
