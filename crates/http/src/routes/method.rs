//! Methods. Symfony and others take `post` for `POST`, so their case does not count here either.

use pronghorn_config::{Node, Setting, Shown, Wrong};

/// A method; `GET` is also `HEAD`, which asks for the head of the same reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method(String);

impl Method {
    pub(super) fn matches(&self, method: &str) -> bool {
        let is = |name: &str| method.eq_ignore_ascii_case(name);
        is(&self.0) || (self.0 == "GET" && is("HEAD"))
    }

    /// As it is written: what one server takes for another method, another one may not.
    pub(super) fn is_exactly(&self, method: &str) -> bool {
        self.0 == method
    }

    pub(super) fn name(&self) -> &str {
        &self.0
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Setting for Method {
    fn example() -> String {
        "GET".to_owned()
    }

    fn accepts() -> String {
        "a method such as `GET`, which is also `HEAD`".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().map(str::trim).unwrap_or_default();
        if text.is_empty() || !text.bytes().all(is_token) {
            return Err(Wrong::value(node));
        }
        // Methods have a case, but none in use has a small letter.
        Ok(Self(text.to_ascii_uppercase()))
    }

    fn show(&self) -> Shown {
        Shown::One(self.0.clone())
    }
}

/// RFC 9110, section 5.6.2.
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
