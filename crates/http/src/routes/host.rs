//! Hosts: names without port and case.

use pronghorn_config::{Node, Setting, Shown, Wrong};

/// `example.com`, just this host, or `*.example.com`, all hosts below it but not itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    /// Lower case; of a pattern with a star what follows `*.`.
    name: String,
    below: bool,
}

/// A host as clients may write it: without its port, and without the dot that makes a name
/// absolute.
pub(crate) fn without_port(authority: &str) -> &str {
    let host = match authority.rsplit_once(':') {
        // A colon inside of an IPv6 address is none before a port.
        Some((host, port)) if !port.ends_with(']') => host,
        _ => authority,
    };
    host.strip_suffix('.').unwrap_or(host)
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
        let host = without_port(name);
        if host.len() < name.trim_end_matches('.').len() {
            let star = if below { "*." } else { "" };
            return Err(format!("ports are not compared: `{star}{host}`"));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~[]:".contains(c);
        if host.is_empty() || host.starts_with('.') || !host.chars().all(allowed) {
            return Err(String::new());
        }
        Ok(Self {
            name: host.to_ascii_lowercase(),
            below,
        })
    }

    /// `host` is without its port.
    pub(crate) fn matches(&self, host: &str) -> bool {
        if !self.below {
            return host.eq_ignore_ascii_case(&self.name);
        }
        let Some(start) = host.len().checked_sub(self.name.len()) else {
            return false;
        };
        match host.as_bytes().split_at_checked(start) {
            Some(([_, .., b'.'], name)) => name.eq_ignore_ascii_case(self.name.as_bytes()),
            _ => false,
        }
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
