//! Hosts, as [`host_of`] gives them: without port and case.

use pronghorn_config::{Node, Setting, Shown, Wrong};
use pronghorn_h1::{host_of, is_host};

/// `example.com`, just this host, or `*.example.com`, all hosts below it but not itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// As of [`host_of`]; of a pattern with a star what follows `*.`.
    name: String,
    below: bool,
}

impl HostPattern {
    /// # Errors
    ///
    /// What has to be written instead.
    pub fn parse(written: &str) -> Result<Self, String> {
        let (name, below) = match written.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (written, false),
        };
        if let Some((_, rest)) = written.split_once("://") {
            return Err(format!(
                "a host alone, without a scheme: `{}`",
                rest.trim_end_matches('/')
            ));
        }
        if name.contains('/') {
            return Err("a host alone; a path has a key of its own, `path`".into());
        }
        if name.contains('*') {
            return Err("`*` stands only at the start, before a dot: `*.example.com`".into());
        }
        if !name.is_ascii() {
            return Err(
                "browsers send such a name in its ASCII form, which begins with `xn--`".into(),
            );
        }
        if !name.starts_with('[') && name.matches(':').count() > 1 {
            return Err(format!("an IPv6 address stands in brackets: `[{name}]`"));
        }
        let host = host_of(name);
        // A colon inside of the brackets of an IPv6 address is none before a port.
        if name
            .rsplit(']')
            .next()
            .is_some_and(|rest| rest.contains(':'))
        {
            let star = if below { "*." } else { "" };
            return Err(format!("ports are not compared: `{star}{host}`"));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~[]:".contains(c);
        if host.is_empty() || !is_host(name) || !host.chars().all(allowed) {
            return Err(String::new());
        }
        let name = host.into_owned();
        Ok(Self { name, below })
    }

    /// `host` is one of [`host_of`].
    pub fn matches(&self, host: &str) -> bool {
        if !self.below {
            return host == self.name;
        }
        let Some(start) = host.len().checked_sub(self.name.len()) else {
            return false;
        };
        match host.as_bytes().split_at_checked(start) {
            Some(([_, .., b'.'], name)) => name == self.name.as_bytes(),
            _ => false,
        }
    }

    /// A host that matches.
    pub(crate) fn sample(&self) -> String {
        let below = if self.below { "a." } else { "" };
        format!("{below}{}", self.name)
    }

    pub(super) fn covers(&self, other: &Self) -> bool {
        self == other || (self.below && self.matches(&other.name))
    }
}

impl Setting for HostPattern {
    fn example() -> String {
        "api.example.com".to_owned()
    }

    fn accepts() -> String {
        "a host such as `example.com`, or `*.example.com` for all below it".to_owned()
    }

    fn read(node: &Node) -> Result<Self, Vec<Wrong>> {
        let text = node.text().ok_or_else(|| Wrong::value(node))?;
        Self::parse(text.trim()).map_err(|hint| Wrong::hinted(node, hint))
    }

    fn show(&self) -> Shown {
        let star = if self.below { "*." } else { "" };
        Shown::One(format!("{star}{}", self.name))
    }
}
