//! The path of a request in the one form in which it is looked up.
//!
//! A client can write one path in many ways. It is decoded once, and what is no proper code, or
//! NUL, is no path. An encoded slash and a backslash are read in two ways: programs may take both
//! for slashes. So they belong to what an application is told, and nothing is looked up behind the
//! last slash before the first of them. What is looked up is exactly what the rules have judged.

use std::borrow::Cow;

/// The one folder with a dot that is there to be seen (RFC 8615).
pub const WELL_KNOWN: &[u8] = b".well-known";

/// A decoded path: it begins with a slash and has no empty segment but perhaps the last one, no `.`
/// and no `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path<'a> {
    text: Cow<'a, [u8]>,
    certain: usize,
}

/// Why something is no path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadPath {
    /// It can't be a path at all.
    Malformed,
    /// It has a `..` in it.
    Climbs,
}

impl<'a> Path<'a> {
    /// # Errors
    ///
    /// When it is no path.
    pub fn of(received: &'a [u8]) -> Result<Self, BadPath> {
        if received.first() != Some(&b'/') {
            return Err(BadPath::Malformed);
        }
        let Decoded { text, doubt } = decode(received).ok_or(BadPath::Malformed)?;
        let certain = match doubt {
            None => text.len(),
            Some(at) => memchr::memrchr(b'/', text.get(..at).unwrap_or_default()).unwrap_or(0),
        };
        let mut clean = true;
        let mut previous: Option<&[u8]> = None;
        for segment in segments(&text) {
            // An empty one is fine as the last.
            clean &= !matches!(previous, Some(b""));
            clean &= segment != b".";
            if segment.split(|&byte| byte == b'\\').any(|it| it == b"..") {
                return Err(BadPath::Climbs);
            }
            previous = Some(segment);
        }
        if clean {
            return Ok(Self { text, certain });
        }
        let (text, certain) = join(&text, certain);
        Ok(Self {
            text: text.into(),
            certain,
        })
    }

    /// With the slash at its start; one at its end is that of the request.
    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// Where the part ends in which each slash is one to everybody: its whole length, or the place
    /// of a slash. Behind it nothing is looked up.
    pub fn certain(&self) -> usize {
        self.certain
    }
}

/// The parts between slashes of a path that begins with one. The last one is empty where it ends in
/// one, too.
pub(crate) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let below = path.strip_prefix(b"/").unwrap_or(path);
    below.split(|&byte| byte == b'/')
}

/// Whether a segment is hidden from clients. `is_first`: it is the first of its path.
pub(crate) fn is_hidden(segment: &[u8], is_first: bool) -> bool {
    segment.first() == Some(&b'.') && !(is_first && segment == WELL_KNOWN)
}

/// Without empty segments and `.`; one that ends in such ends in a slash. `certain` is a place in
/// it, and where that is then.
fn join(path: &[u8], certain: usize) -> (Vec<u8>, usize) {
    let mut joined = Vec::with_capacity(path.len());
    let mut ends_in_slash = false;
    let (mut end, mut certain_in_joined) = (0_usize, 0);
    for segment in segments(path) {
        end = end.saturating_add(1).saturating_add(segment.len());
        ends_in_slash = matches!(segment, b"" | b".");
        if !ends_in_slash {
            joined.push(b'/');
            joined.extend_from_slice(segment);
        }
        if end <= certain {
            certain_in_joined = joined.len();
        }
    }
    if ends_in_slash {
        joined.push(b'/');
    }
    if certain == path.len() {
        certain_in_joined = joined.len();
    }
    (joined, certain_in_joined)
}

/// What percent-encoding stood for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Decoded once.
    pub text: Cow<'a, [u8]>,
    /// The place of the first slash that was encoded, or of the first backslash.
    pub doubt: Option<usize>,
}

/// Undoes percent-encoding once. `None` when a percent sign begins no code, or for NUL, which ends
/// a path for the system.
pub fn decode(path: &[u8]) -> Option<Decoded<'_>> {
    let is_plain = memchr::memchr3(b'%', b'\\', 0, path).is_none();
    if is_plain {
        return Some(Decoded {
            text: path.into(),
            doubt: None,
        });
    }
    let mut decoded = Vec::with_capacity(path.len());
    let mut doubt = None;
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        rest = after;
        let mut is_doubtful = *byte == b'\\';
        let byte = match (byte, rest) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                let byte = hex(*high)? << 4 | hex(*low)?;
                is_doubtful = matches!(byte, b'/' | b'\\');
                byte
            }
            (b'%', _) => return None,
            (byte, _) => *byte,
        };
        if byte == 0 {
            return None;
        }
        if is_doubtful {
            doubt = doubt.or(Some(decoded.len()));
        }
        decoded.push(byte);
    }
    Some(Decoded {
        text: decoded.into(),
        doubt,
    })
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
    fn nothing_is_certain_behind_what_could_be_read_in_two_ways() {
        for (received, text, certain) in [
            ("/a%2fb", "/a/b", ""),
            ("/a/b%2Fc/d.php", "/a/b/c/d.php", "/a"),
            ("/a/%2F", "/a/", "/a"),
            ("/a/%2fb", "/a/b", "/a"),
            ("/a//./x%2F%2Fy//", "/a/x/y/", "/a"),
            ("//a/.//%2f", "/a/", "/a"),
            ("/a/%61%5Cb", "/a/a\\b", "/a"),
            ("/a\\b", "/a\\b", ""),
            ("/%5c", "/\\", ""),
            ("/%2F", "/", ""),
            ("/a/./%2e%2f", "/a/", "/a"),
            ("/a/b", "/a/b", "/a/b"),
            ("//a/./", "/a/", "/a/"),
            ("/a%252Fb/", "/a%2Fb/", "/a%2Fb/"),
        ] {
            let path = Path::of(received.as_bytes()).expect(received);
            assert_eq!(path.bytes(), text.as_bytes(), "{received}");
            let found = &path.bytes()[..path.certain()];
            assert_eq!(found, certain.as_bytes(), "{received}");
        }
    }

    #[test]
    fn what_no_file_can_be_called_is_no_path() {
        for text in [
            "",
            "a",
            "*",
            "%2Fa",
            "/a%00.php",
            "/a%2F%00",
            "/%",
            "/%4",
            "/%zz",
            "/a%2Fb%",
        ] {
            assert_eq!(path(text), Err(BadPath::Malformed), "{text}");
        }
        for text in [
            "/..",
            "/a/../b",
            "/%2e%2E/x",
            "//..",
            "/a/..",
            "/..%2fetc",
            "/a%2F..",
            "/a%2f%2e%2e%2fb",
            "/..%5Cetc",
            "/a\\..\\b",
        ] {
            assert_eq!(path(text), Err(BadPath::Climbs), "{text}");
        }
        assert_eq!(path("/a..%2F..b"), Ok("/a../..b".to_owned()));
        let long = "/a".repeat(4000);
        assert_eq!(path(&long), Ok(long));
    }

    proptest! {
        #[test]
        fn a_path_holds_nothing_doubtful(received in prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'.'), Just(b'%'), Just(b'2'), Just(b'e'), Just(b'\\'), any::<u8>()], 0..40,
        )) {
            if let Ok(path) = Path::of(&received) {
                let certain = path.certain();
                let path = path.bytes();
                prop_assert_eq!(path[0], b'/');
                prop_assert!(certain == path.len() || path[certain] == b'/');
                prop_assert!(!path[..certain].contains(&b'\\'));
                let segments: Vec<&[u8]> = segments(path).collect();
                let (last, others) = segments.split_last().unwrap();
                prop_assert!(others.iter().all(|segment| !matches!(*segment, b"" | b"." | b"..")));
                prop_assert!(!matches!(*last, b"." | b".."));
                prop_assert!(!path.contains(&0));
            }
        }
    }
}
