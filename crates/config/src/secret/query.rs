//! Parameters of queries that are known by their whole names.

use std::borrow::Cow;

use super::table::{MASK, OF_QUERIES, SHORT_CODE};

/// Whether a parameter of a query has a secret value, whose name is too short or too common to say
/// so elsewhere.
pub(super) fn is_secret_of_query(name: &str, value: &str) -> bool {
    let is_known = |known: &&&str| name.eq_ignore_ascii_case(known);
    let known = OF_QUERIES.iter().find(is_known);
    known.is_some_and(|known| *known != "code" || value.len() > SHORT_CODE)
}

/// A text without the values of [`OF_QUERIES`] in the queries and fragments of its URLs.
pub(super) fn without_parameters(text: &str) -> Cow<'_, str> {
    if !text.contains("://") || !text.contains('=') {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    let (mut is_url, mut is_query) = (false, false);
    for part in text.split_inclusive(|c: char| {
        c.is_whitespace() || matches!(c, '?' | '#' | '&' | '"' | '\'' | '<' | '>')
    }) {
        is_url |= part.contains("://");
        let end = part.trim_end_matches(['?', '#', '&']).len();
        let (parameter, mark) = part.split_at(end);
        let hidden = parameter
            .split_once('=')
            .filter(|(name, value)| is_query && is_secret_of_query(name, plain(value)));
        match hidden {
            Some((name, value)) => {
                let rest = value.get(plain(value).len()..).unwrap_or_default();
                shown.extend([name, "=", MASK, rest]);
            }
            None => shown.push_str(parameter),
        }
        shown.push_str(mark);
        if mark.is_empty() {
            // It is at the end of the text, or of the URL.
            (is_url, is_query) = (false, false);
        }
        is_query |= is_url && !mark.is_empty();
    }
    shown.into()
}

/// A value without what ends its URL.
fn plain(value: &str) -> &str {
    value.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>'))
}
