//! Routes: which requests go where, decided by path, host, method and header fields.
//!
//! Compiled once from the configuration. A request is compared with one route after the other, the
//! first that matches wins; its path is brought into one form for all of them, which takes no
//! memory when the client sent it in that form.
//!
//! Knows nothing of what lies behind a route.

mod header;
mod host;
mod method;
mod path;
#[cfg(test)]
mod tests;

use pronghorn_wire::Fields;

pub use header::{HeaderPattern, HeaderPatterns};
pub use host::HostPattern;
pub(crate) use host::without_port;
pub use method::Method;
pub(crate) use method::is_token;
pub use path::PathPattern;

use path::Path;

/// Where requests go.
#[derive(Debug, Clone)]
pub struct Routes<T> {
    routes: Vec<(Conditions, T)>,
    otherwise: T,
}

/// What a route asks of a request: one of each kind that is given, and all of the header fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conditions {
    pub paths: Vec<PathPattern>,
    pub hosts: Vec<HostPattern>,
    pub methods: Vec<Method>,
    pub headers: HeaderPatterns,
}

/// What routes look at.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    pub method: &'a str,
    /// Host and port as the client named them; empty when it named none.
    pub authority: &'a str,
    /// As received, without the query.
    pub path: &'a [u8],
    pub fields: &'a Fields,
}

impl<T> Routes<T> {
    /// Routes in their order. What matches none of them goes `otherwise`.
    pub fn new(routes: Vec<(Conditions, T)>, otherwise: T) -> Self {
        Self { routes, otherwise }
    }

    /// Where all requests go, when there are no routes to choose from.
    pub fn only(&self) -> Option<&T> {
        self.routes.is_empty().then_some(&self.otherwise)
    }

    /// Where a request goes.
    pub fn pick(&self, asked: &Asked<'_>) -> &T {
        let path = Path::of(asked.path);
        let host = without_port(asked.authority);
        let found = self
            .routes
            .iter()
            .find(|(conditions, _)| conditions.match_all(asked, host, &path));
        found.map_or(&self.otherwise, |(_, to)| to)
    }
}

impl Conditions {
    /// Every request matches.
    pub fn is_empty(&self) -> bool {
        let Self {
            paths,
            hosts,
            methods,
            headers,
        } = self;
        paths.is_empty() && hosts.is_empty() && methods.is_empty() && headers.0.is_empty()
    }

    /// Whether each request that matches `other` matches these too. Says no where it would take
    /// more than a look at one pattern after the other to tell.
    pub fn cover(&self, other: &Self) -> bool {
        covers(&self.paths, &other.paths, PathPattern::covers)
            && covers(&self.hosts, &other.hosts, HostPattern::covers)
            && covers(&self.methods, &other.methods, Method::covers)
            && self
                .headers
                .0
                .iter()
                .all(|own| other.headers.0.contains(own))
    }

    fn match_all(&self, asked: &Asked<'_>, host: &str, path: &Path<'_>) -> bool {
        // The cheap ones first.
        is_met(&self.methods, |method| method.matches(asked.method))
            && is_met(&self.hosts, |pattern| pattern.matches(host))
            && is_met(&self.paths, |pattern| pattern.matches(path))
            && self.headers.match_all(asked.fields)
    }
}

/// A kind of condition that is not given is met.
fn is_met<P>(patterns: &[P], matches: impl FnMut(&P) -> bool) -> bool {
    patterns.is_empty() || patterns.iter().any(matches)
}

fn covers<P>(own: &[P], others: &[P], covers: impl Fn(&P, &P) -> bool) -> bool {
    let covered = |other: &P| own.iter().any(|own| covers(own, other));
    own.is_empty() || (!others.is_empty() && others.iter().all(covered))
}
