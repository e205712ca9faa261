//! Conditional requests (RFC 9110, section 13): whether a client needs the file at all.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pronghorn_wire::Fields;

/// By what a client can tell whether its copy is still good.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Validators<'a> {
    /// As it stands in the field `ETag`.
    pub(crate) etag: Option<&'a [u8]>,
    /// In seconds since the epoch: dates have no more.
    pub(crate) modified: Option<u64>,
}

/// What conditions come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Send,
    NotModified,
    Failed,
}

/// Judges the conditions of a GET or HEAD in the order of section 13.2.2.
pub(crate) fn judge(request: &Fields, validators: Validators<'_>) -> Outcome {
    // Most requests have none, and are looked through once.
    if !request.iter().any(|(name, _)| name.starts_with(b"if-")) {
        return Outcome::Send;
    }
    let unchanged_since = |field| {
        let date = seconds(request.get(field)?)?;
        Some(validators.modified? <= date)
    };
    let holds = if request.get("if-match").is_some() {
        matches(request, "if-match", validators.etag, Comparison::Strong)
    } else {
        unchanged_since("if-unmodified-since").unwrap_or(true)
    };
    if !holds {
        return Outcome::Failed;
    }
    let is_known = if request.get("if-none-match").is_some() {
        matches(request, "if-none-match", validators.etag, Comparison::Weak)
    } else {
        unchanged_since("if-modified-since").unwrap_or(false)
    };
    if is_known {
        Outcome::NotModified
    } else {
        Outcome::Send
    }
}

/// Whether a range may be sent of the file as it is: the client has the other parts of this very
/// one (section 13.1.5).
pub(crate) fn allows_range(request: &Fields, validators: Validators<'_>) -> bool {
    match request.get("if-range") {
        None => true,
        Some(tag) if tag.ends_with(b"\"") => validators
            .etag
            .is_some_and(|etag| Comparison::Strong.holds(tag, etag)),
        Some(date) => seconds(date).is_some_and(|date| validators.modified == Some(date)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Byte for byte the same.
    Strong,
    /// As good as the same.
    Weak,
}

impl Comparison {
    fn holds(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Self::Strong => one == other && !one.starts_with(b"W/"),
            Self::Weak => opaque(one) == opaque(other),
        }
    }
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Whether one of the tags in all fields of this name is the file's. A star is whatever there is.
fn matches(request: &Fields, field: &str, etag: Option<&[u8]>, comparison: Comparison) -> bool {
    request.all(field).any(|list| {
        list.trim_ascii() == b"*"
            || etag.is_some_and(|etag| Tags(list).any(|tag| comparison.holds(tag, etag)))
    })
}

/// The tags of a list. A comma may be inside of one. Ends at what is no tag.
pub(crate) struct Tags<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let list = self.0.trim_ascii_start();
        let list = match list.iter().position(|byte| !b", \t".contains(byte)) {
            Some(start) => &list[start..],
            None => return None,
        };
        let quoted = opaque(list);
        let inside = quoted.strip_prefix(b"\"")?;
        let end = memchr::memchr(b'"', inside)?;
        let len = list.len() - inside.len() + end + 1;
        let (tag, rest) = list.split_at(len);
        self.0 = rest;
        Some(tag)
    }
}

/// A date in one of HTTP's forms, in seconds since the epoch.
pub(super) fn seconds(date: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(date).ok()?).ok()?;
    Some(date.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// The date of a moment, as fields have it.
pub(crate) fn date(seconds: u64) -> String {
    let most = Duration::from_secs(253_402_300_799); // the last second of the year 9999: a file may claim to be of any time
    let moment: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds).min(most);
    httpdate::fmt_http_date(moment)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Sunday, 06-Nov-94 08:49:38 GMT";
    const MODIFIED: u64 = 784_111_777;

    fn judged(etag: &'static str, fields: &[(&str, &str)]) -> Outcome {
        let validators = Validators {
            etag: Some(etag.as_bytes()),
            modified: Some(MODIFIED),
        };
        judge(&fields.iter().copied().collect(), validators)
    }

    #[test]
    fn each_condition_by_itself() {
        use Outcome::{Failed, NotModified, Send};
        for (field, value, outcome) in [
            ("if-none-match", "\"a\"", NotModified),
            ("if-none-match", "W/\"a\"", NotModified),
            ("if-none-match", "\"x,y\", W/\"a\"", NotModified),
            ("if-none-match", "*", NotModified),
            ("if-none-match", "\"b\"", Send),
            ("if-none-match", "a", Send),
            ("if-none-match", "\"x\" , ,\"a\"", NotModified),
            ("if-match", "\"a\"", Send),
            ("if-match", "\"b\", \"a\"", Send),
            ("if-match", "*", Send),
            ("if-match", "W/\"a\"", Failed),
            ("if-match", "\"b\"", Failed),
            ("if-modified-since", OLD, Send),
            ("if-modified-since", SAME, NotModified),
            ("if-modified-since", NEW, NotModified),
            ("if-modified-since", "yesterday", Send),
            ("if-unmodified-since", OLD, Failed),
            ("if-unmodified-since", SAME, Send),
            ("if-unmodified-since", NEW, Send),
            ("if-unmodified-since", "yesterday", Send),
            ("accept", "*/*", Send),
        ] {
            assert_eq!(
                judged("\"a\"", &[(field, value)]),
                outcome,
                "{field}: {value}"
            );
        }
        assert_eq!(
            judged("W/\"a\"", &[("if-match", "W/\"a\"")]),
            Failed,
            "weak ones match nothing strongly"
        );
        assert_eq!(
            judged("W/\"a\"", &[("if-none-match", "\"a\"")]),
            NotModified
        );
    }

    #[test]
    fn tags_go_before_dates_and_failure_before_all() {
        use Outcome::{Failed, NotModified, Send};
        let none = |tag| ("if-none-match", tag);
        assert_eq!(
            judged("\"a\"", &[none("\"b\""), ("if-modified-since", SAME)]),
            Send
        );
        assert_eq!(
            judged("\"a\"", &[none("\"a\""), ("if-modified-since", OLD)]),
            NotModified
        );
        assert_eq!(
            judged(
                "\"a\"",
                &[("if-match", "\"a\""), ("if-unmodified-since", OLD)]
            ),
            Send
        );
        assert_eq!(
            judged("\"a\"", &[("if-match", "\"b\""), none("\"a\"")]),
            Failed
        );
        assert_eq!(
            judged("\"a\"", &[none("\"b\""), none("\"a\"")]),
            NotModified,
            "two fields are one list"
        );
    }

    #[test]
    fn a_range_needs_the_very_same_file() {
        let validators = Validators {
            etag: Some(b"\"a\""),
            modified: Some(MODIFIED),
        };
        let allows =
            |value: &str| allows_range(&[("if-range", value)].into_iter().collect(), validators);
        assert!(allows("\"a\"") && allows(SAME));
        assert!(!allows("\"b\"") && !allows("W/\"a\"") && !allows(OLD) && !allows(NEW));
        assert!(allows_range(&Fields::new(), validators));
    }

    #[test]
    fn any_time_has_a_date() {
        assert_eq!(date(MODIFIED), SAME);
        assert!(date(u64::MAX).ends_with("9999 23:59:59 GMT"));
    }
}
