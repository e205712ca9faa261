//! Finds what is secret inside a text, by its looks or by the name before it: `password: …`, a
//! header, JSON, a private key, the address of a webhook.

use std::borrow::Cow;
use std::ops::Range;

use super::table::{
    ADDRESSES, INSIDE, LINES, LONG, LONG_SHAPES, MASK, NOT_IN_TEXTS, SHAPES, WORDS,
};

/// The text with a mask in place of each of them.
pub(super) fn without_secrets(text: &str) -> Cow<'_, str> {
    let mut found = Vec::new();
    private_keys(text, &mut found);
    addresses(text, &mut found);
    tokens(text, &mut found);
    bearers(text, &mut found);
    pairs(text, &mut found);
    if found.is_empty() {
        return text.into();
    }
    found.sort_by_key(|place| place.start);
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    for place in found {
        if place.start >= at {
            shown.push_str(text.get(at..place.start).unwrap_or_default());
            shown.push_str(MASK);
        }
        at = at.max(place.end);
    }
    shown.push_str(text.get(at..).unwrap_or_default());
    shown.into()
}

/// Blocks of PEM. One without an end goes up to that of the text.
fn private_keys(text: &str, found: &mut Vec<Range<usize>>) {
    for (start, _) in text.match_indices("-----BEGIN ") {
        let rest = text.get(start..).unwrap_or_default();
        let head = rest.find('\n').unwrap_or(rest.len());
        let is_private = |head: &str| head.contains("PRIVATE KEY");
        if !rest.get(..head.min(64)).is_some_and(is_private) {
            continue;
        }
        let last = rest.find("-----END ").and_then(|end| {
            let line = rest.get(end + 9..)?;
            Some(end + 9 + line.find("-----")? + 5)
        });
        found.push(start..start + last.unwrap_or(rest.len()));
    }
}

fn addresses(text: &str, found: &mut Vec<Range<usize>>) {
    for address in ADDRESSES {
        for (at, _) in text.match_indices(address) {
            let start = at + address.len();
            let end = end_of(text, start, |c| c.is_whitespace() || is_quote(c));
            if end > start {
                found.push(start..end);
            }
        }
    }
}

/// Tokens of well-known services. Names are shorter.
fn tokens(text: &str, found: &mut Vec<Range<usize>>) {
    let ours = SHAPES.iter().filter(|shape| !shape.starts_with('-'));
    for shape in ours.chain(LONG_SHAPES) {
        for (at, _) in text.match_indices(shape) {
            let end = end_of(text, at, |c| !is_of_token(c));
            let is_long = end >= at + shape.len() + LONG;
            let has_digit = has_digit(text.get(at + shape.len()..end));
            if begins_word(text, at) && is_long && has_digit {
                found.push(at..end);
            }
        }
    }
}

/// `Bearer` before something that is no word.
fn bearers(text: &str, found: &mut Vec<Range<usize>>) {
    const NAME: &str = "bearer ";
    let lower = text.to_ascii_lowercase();
    for (at, _) in lower.match_indices(NAME) {
        let start = at + NAME.len();
        let end = end_of(text, start, |c| !is_of_token(c));
        if begins_word(text, at) && end >= start + LONG && has_digit(text.get(start..end)) {
            found.push(start..end);
        }
    }
}

/// `NAME: value`, `"NAME": "value"`, `'NAME' => 'value'`.
fn pairs(text: &str, found: &mut Vec<Range<usize>>) {
    for (at, separator) in text.match_indices([':', '>']) {
        let before = text.get(..at).unwrap_or_default();
        let before = match separator {
            ">" => match before.strip_suffix('=') {
                Some(before) => before.trim_end_matches(' '),
                None => continue,
            },
            _ => before,
        };
        let start = at + 1;
        let name = Name::before(before);
        if name.is_secret()
            && let Some(value) = name.value(text, start)
        {
            found.push(value);
        }
    }
}

/// The word before a colon.
struct Name<'t> {
    name: &'t str,
    /// It is in quotes, as in JSON.
    is_quoted: bool,
    /// It is the host of a URL, the value of something else, or a class.
    is_value: bool,
}

impl<'t> Name<'t> {
    fn before(text: &'t str) -> Self {
        let bare = text.trim_end_matches(is_quote);
        let is_quoted = bare.len() < text.len();
        let bare = bare.trim_end_matches('\\');
        let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let name = bare.len() - bare.trim_end_matches(of_name).len();
        let (rest, name) = bare.split_at(bare.len() - name);
        Self {
            name,
            is_quoted,
            is_value: rest.ends_with(['/', '@', '=', ':', '\\']) && !is_quoted,
        }
    }

    fn is_secret(&self) -> bool {
        if self.name.is_empty() || self.is_value {
            return false;
        }
        let lower = self.name.to_ascii_lowercase();
        let counts = |part: &&&str| !NOT_IN_TEXTS.contains(part);
        let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
        INSIDE
            .iter()
            .filter(counts)
            .chain(LINES)
            .any(|part| lower.contains(part))
            || words.any(|word| WORDS.iter().filter(counts).any(|secret| *secret == word))
            // `x-api-key: …`
            || lower.ends_with("api-key")
            || lower.ends_with("api_key")
    }

    /// The value that begins there, if it is one and not a word of a sentence or a port.
    fn value(&self, text: &str, start: usize) -> Option<Range<usize>> {
        let rest = text.get(start..)?;
        let spaces = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let start = start + spaces;
        let rest = text.get(start..)?;
        let escaped = usize::from(rest.starts_with('\\'));
        if let Some(quote) = rest.get(escaped..)?.chars().next().filter(|c| is_quote(*c)) {
            let inside = start + escaped + 1;
            let end = if escaped > 0 {
                format!("\\{quote}")
            } else {
                quote.to_string()
            };
            let len = closing(text.get(inside..)?, &end);
            return (len > 0).then_some(inside..inside + len);
        }
        let end = self.end(text, start);
        let value = text.get(start..end)?;
        let is_nothing = ["true", "false", "null", "none", "yes", "no", MASK];
        let is_reference = value.starts_with(['$', '%', '{', '[', '(', ':', '/']);
        let lower = value.to_ascii_lowercase();
        if value.is_empty() || is_nothing.contains(&&*lower) || is_reference {
            return None;
        }
        // `host:8080`, `user:password@host`.
        let is_port = value.len() <= 5 && value.bytes().all(|byte| byte.is_ascii_digit());
        let is_place = value.contains('@') || is_port;
        let is_bare = spaces == 0 && !self.is_quoted && is_place;
        (!is_bare).then_some(start..end)
    }

    /// A field goes up to the end of its quotes or line; of `Authorization` at least the scheme and
    /// a word. Others are one word.
    fn end(&self, text: &str, start: usize) -> usize {
        let lower = self.name.to_ascii_lowercase();
        let is_line = LINES.iter().any(|name| lower.contains(name));
        let ends = |c: char| is_quote(c) || matches!(c, '\n' | '\r');
        if is_line {
            return end_of(text, start, ends);
        }
        let end = end_of(text, start, |c| c.is_whitespace() || ends(c));
        let value = text.get(start..end).unwrap_or_default();
        start + value.trim_end_matches([',', ';', ')', '}', ']']).len()
    }
}

/// The length of what stands before the closing quote; all of it if there is none.
fn closing(text: &str, quote: &str) -> usize {
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find(quote)) {
        let end = at + found;
        let escapes = text.get(..end).unwrap_or_default();
        let escapes = escapes.len() - escapes.trim_end_matches('\\').len();
        if escapes % 2 == 0 {
            return end;
        }
        at = end + quote.len();
    }
    text.len()
}

fn end_of(text: &str, start: usize, ends: impl Fn(char) -> bool) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    start + rest.find(ends).unwrap_or(rest.len())
}

fn begins_word(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn has_digit(text: Option<&str>) -> bool {
    text.is_some_and(|text| text.contains(|c: char| c.is_ascii_digit()))
}

const fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+' | '/' | '=')
}

const fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'')
}
