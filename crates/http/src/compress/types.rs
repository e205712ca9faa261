//! Which types of content are worth compressing.

use pronghorn_config::{Node, Setting, Shown, Wrong};

/// `text/html`, or many at once: `text/*`, `*+json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypePattern {
    start: String,
    end: String,
    is_one: bool,
}

/// Text in all its forms, and what else is stored without compression. Not: images, films,
/// archives.
const DEFAULT: [&str; 14] = [
    "text/*",
    "application/json",
    "application/javascript",
    "application/x-javascript",
    "application/xml",
    "application/wasm",
    "application/x-ndjson",
    "application/vnd.ms-fontobject",
    "font/ttf",
    "font/otf",
    "image/bmp",
    "image/x-icon",
    "*+json",
    "*+xml",
];

impl TypePattern {
    pub(crate) fn defaults() -> Vec<Self> {
        DEFAULT
            .iter()
            .filter_map(|text| Self::parse(text))
            .collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (start, end, is_one) = match text.split_once('*') {
            Some((start, end)) => (start.to_owned(), end.to_owned(), false),
            None => (text, String::new(), true),
        };
        let is_plain = |part: &str| !part.contains(['*', ';', ' ', ',']);
        let has_slash = start.contains('/') || !is_one;
        (is_plain(&start) && is_plain(&end) && has_slash).then_some(Self { start, end, is_one })
    }

    /// Whether a field `Content-Type` says such a type.
    pub(crate) fn matches(&self, content_type: &[u8]) -> bool {
        let end = memchr::memchr(b';', content_type).unwrap_or(content_type.len());
        let essence = content_type[..end].trim_ascii();
        let (start, end) = (self.start.as_bytes(), self.end.as_bytes());
        if self.is_one {
            return essence.eq_ignore_ascii_case(start);
        }
        let has = |part: Option<&[u8]>, is: &[u8]| part.is_some_and(|p| p.eq_ignore_ascii_case(is));
        essence.len() >= start.len() + end.len()
            && has(essence.get(..start.len()), start)
            && has(essence.get(essence.len() - end.len()..), end)
    }
}

impl Setting for TypePattern {
    fn example() -> String {
        "text/*".to_owned()
    }

    fn accepts() -> String {
        "a type such as `text/html`, `text/*` or `*+json`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?;
        Self::parse(text).ok_or_else(|| Wrong::value(node))
    }

    fn show(&self) -> Shown {
        let star = if self.is_one { "" } else { "*" };
        Shown::One(format!("{}{star}{}", self.start, self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_with_and_without_stars() {
        let all = TypePattern::defaults();
        assert_eq!(all.len(), DEFAULT.len());
        let is_worth_it = |text: &str| all.iter().any(|known| known.matches(text.as_bytes()));
        for text in [
            "text/html",
            "Text/HTML; charset=utf-8",
            "text/event-stream",
            "application/json ; x=1",
            "image/svg+xml",
            "application/problem+json",
        ] {
            assert!(is_worth_it(text), "{text}");
        }
        for text in [
            "",
            "image/png",
            "text",
            "application/jsonp",
            "+json/x",
            "video/mp4",
        ] {
            assert!(!is_worth_it(text), "{text}");
        }
        for text in ["a b/c", "text", "text/*/*", "text/html;q=1"] {
            assert_eq!(TypePattern::parse(text), None, "{text}");
        }
    }
}
