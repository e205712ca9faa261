//! Paths: the form in which they are compared, and the patterns.
//!
//! A client can write one path in many ways, and PHP's frameworks undo most of them. So a route
//! sees a path as they do: percent signs decoded once, then empty and dot segments removed. What
//! could pass for another path behind that, an encoded slash, a backslash or NUL, keeps a path from
//! matching any pattern with a `*`.

use std::borrow::Cow;

use pronghorn_config::{Node, Setting, Shown, Wrong};

/// A request's path in the form in which paths are compared: decoded, but for `%` and the slash,
/// which stay `%25` and `%2F`, so that no two different paths become one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Path<'a> {
    pub(super) text: Cow<'a, [u8]>,
    /// An encoded slash, a backslash or NUL was in it: only a pattern that says the same may match.
    pub(super) hostile: bool,
}

impl<'a> Path<'a> {
    pub(super) fn of(received: &'a [u8]) -> Self {
        // The `*` of OPTIONS is no path: no pattern says this.
        if received.first() != Some(&b'/') || is_plain(received) {
            return Self {
                text: received.into(),
                hostile: false,
            };
        }
        let (decoded, hostile) = decode(received);
        Self {
            text: without_dots(&decoded).into(),
            hostile,
        }
    }
}

/// Whether a path is in its form already, as almost all are.
fn is_plain(path: &[u8]) -> bool {
    let mut after_slash = false;
    path.iter().all(|&byte| {
        let plain = match byte {
            b'%' | b'\\' | 0 => false,
            b'/' | b'.' => !after_slash,
            _ => true,
        };
        after_slash = byte == b'/';
        plain
    })
}

/// Undoes percent-encoding once, and tells whether there was something hostile.
fn decode(path: &[u8]) -> (Vec<u8>, bool) {
    let mut decoded = Vec::with_capacity(path.len());
    let mut hostile = false;
    let mut rest = path.iter();
    while let Some(&byte) = rest.next() {
        let encoded = match (byte, rest.as_slice()) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        if encoded.is_some() {
            rest.nth(1);
        }
        match encoded.unwrap_or(byte) {
            b'/' if encoded.is_some() => {
                hostile = true;
                decoded.extend_from_slice(b"%2F");
            }
            // Encoded, or one that begins no code: PHP takes both for a percent sign.
            b'%' => decoded.extend_from_slice(b"%25"),
            byte @ (0 | b'\\') => {
                hostile = true;
                decoded.push(byte);
            }
            byte => decoded.push(byte),
        }
    }
    (decoded, hostile)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Without empty segments, `.` and `..`; a path that ends in one of them ends in a slash.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut clean: Vec<u8> = Vec::with_capacity(path.len());
    let mut ends_in_slash = false;
    for segment in path.split(|&byte| byte == b'/') {
        ends_in_slash = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                let parent = memchr::memrchr(b'/', &clean).unwrap_or(0);
                clean.truncate(parent);
            }
            segment => {
                clean.push(b'/');
                clean.extend_from_slice(segment);
            }
        }
    }
    if ends_in_slash {
        clean.push(b'/');
    }
    clean
}

/// `/about`, just this path, or `/admin/*`, this path and all below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    written: String,
    /// In the form of a request's path; of a pattern with a star what stands before `/*`.
    text: Vec<u8>,
    below: bool,
    /// Holds what a request's path may only hold where a pattern says it.
    hostile: bool,
}

impl PathPattern {
    /// # Errors
    ///
    /// What has to be written instead.
    pub fn parse(written: &str) -> Result<Self, String> {
        if !written.starts_with('/') {
            return Err(format!("a path begins with a slash: `/{written}`"));
        }
        if written.contains(['?', '#']) {
            return Err("routes look at the path alone: leave out `?` or `#` and what follows, or write `%3F` or `%23`".into());
        }
        let (path, below) = match written.strip_suffix("/*") {
            Some(above) => (above, true),
            None => (written, false),
        };
        if path.contains('*') {
            return Err("`*` stands only at the end, behind a slash: `/admin/*` is `/admin` and all below it; `%2A` is a star itself".into());
        }
        let (text, hostile) = decode(path.as_bytes());
        if below && hostile {
            return Err("a path with an encoded slash, a backslash or NUL is only matched literally: leave out `/*`".into());
        }
        let mut clean = without_dots(&text);
        if below && clean.ends_with(b"/") {
            clean.pop();
        }
        if clean != text {
            let (clean, star) = (
                String::from_utf8_lossy(&clean),
                if below { "/*" } else { "" },
            );
            return Err(format!(
                "empty and dot segments are removed before paths are compared: write `{clean}{star}`"
            ));
        }
        Ok(Self {
            written: written.to_owned(),
            text,
            below,
            hostile,
        })
    }

    pub(super) fn matches(&self, path: &Path<'_>) -> bool {
        if self.below {
            !path.hostile && self.is_above(&path.text)
        } else {
            // Dot segments may have removed what was hostile.
            self.hostile == path.hostile && *self.text == *path.text
        }
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        if self.below {
            !other.hostile && self.is_above(&other.text)
        } else {
            !other.below && self.text == other.text
        }
    }

    /// Whether a path lies at or below this one.
    fn is_above(&self, path: &[u8]) -> bool {
        path.strip_prefix(&*self.text)
            .is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }
}

impl Setting for PathPattern {
    fn example() -> String {
        "/admin/*".to_owned()
    }

    fn accepts() -> String {
        "a path such as `/about`, or `/admin/*` for it and all below it".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?;
        Self::parse(text).map_err(|hint| Wrong::hinted(node, hint))
    }

    fn show(&self) -> Shown {
        Shown::One(self.written.clone())
    }
}
