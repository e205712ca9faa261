//! Routes: which requests go where, decided by path, host, method and header fields.
//!
//! Compiled once from the configuration. A request is compared with one route after the other, the
//! first that matches wins. Where programs read its path in more than one way, this is done for
//! each of them, and has to lead to one route; a path that has one reading, as almost all, takes no
//! memory.
//!
//! Knows nothing of what lies behind a route.

mod header;
mod host;
mod method;
mod path;
mod sample;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use pronghorn_config::Subnet;
use pronghorn_h1::host_of;
use pronghorn_wire::Fields;

pub use header::{HeaderPattern, HeaderPatterns};
pub use host::HostPattern;
pub use method::Method;
pub(crate) use method::is_token;
pub use path::PathPattern;
pub(crate) use path::other_readings;

use path::{Fronts, Reading, Readings};

/// Where requests go.
#[derive(Debug, Clone)]
pub struct Routes<T> {
    routes: Vec<(Conditions, T)>,
    otherwise: Otherwise<T>,
    fronts: Fronts,
    /// Some of them look at paths.
    have_paths: bool,
}

/// Where requests go that match none of the routes before.
#[derive(Debug, Clone)]
pub enum Otherwise<T> {
    /// By a last route, which takes them all.
    Route(T),
    /// By no route.
    Default(T),
}

/// The meaning of a request's path depends on who reads it: there are routes for more than one of
/// the readings, or more readings than anybody can mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ambiguous;

/// What a route asks of a request: one of each kind that is given, and all of the header fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conditions {
    pub paths: Vec<PathPattern>,
    pub hosts: Vec<HostPattern>,
    pub methods: Vec<Method>,
    /// It is none of these.
    pub not_methods: Vec<Method>,
    pub headers: HeaderPatterns,
    pub addresses: Vec<Subnet>,
    /// It is in none of these.
    pub not_addresses: Vec<Subnet>,
    /// The route keeps scripts from running; see [`Routes::closing`].
    pub closes: bool,
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
    /// The client's; one of a unix socket has none.
    pub address: Option<IpAddr>,
}

impl<T> Routes<T> {
    /// Routes in their order.
    pub fn new(routes: Vec<(Conditions, T)>, otherwise: Otherwise<T>) -> Self {
        let have_paths = routes.iter().any(|(it, _)| !it.paths.is_empty());
        Self {
            routes,
            otherwise,
            fronts: Fronts::default(),
            have_paths,
        }
    }

    /// Scripts, by their paths below a root, that stand for a directory or answer for paths without
    /// a file: an application takes `/index.php/login` for `/login`.
    #[must_use]
    pub fn with_fronts<'a>(self, scripts: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            fronts: Fronts::new(scripts),
            ..self
        }
    }

    /// Where all requests go, when there are no routes to choose from.
    pub fn only(&self) -> Option<&T> {
        self.routes.is_empty().then_some(self.otherwise.to())
    }

    /// Where a request goes.
    ///
    /// # Errors
    ///
    /// When that depends on who reads its path.
    pub fn pick(&self, asked: &Asked<'_>) -> Result<&T, Ambiguous> {
        let route = self.find(asked)?.and_then(|at| self.routes.get(at));
        Ok(route.map_or_else(|| self.otherwise.to(), |(_, to)| to))
    }

    /// The route before that of a request that keeps the script or the page of its directory from
    /// its clients. `path` is that of the script, decoded. Only who has found it can ask: an
    /// expression such as `\.php$` is not found in `/blog/`, which may be a page of the front
    /// controller.
    pub fn closing(&self, asked: &Asked<'_>, path: &[u8]) -> Option<&T> {
        let script = &encoded(path);
        let at = self.find(asked).ok()?.unwrap_or(self.routes.len());
        let readings = Readings::of(script, &self.fronts)?;
        let host = host_of(asked.authority);
        let mut before = self.routes.get(..at)?.iter();
        let (conditions, to) = before.find(|(it, _)| it.match_script(asked, &host, &readings))?;
        conditions.closes.then_some(to)
    }

    /// The number of the route in the list; `None`: none of it.
    fn find(&self, asked: &Asked<'_>) -> Result<Option<usize>, Ambiguous> {
        let readings = if self.have_paths {
            Readings::of(asked.path, &self.fronts).ok_or(Ambiguous)?
        } else {
            Readings::plain(asked.path)
        };
        let host = host_of(asked.authority);
        let last = matches!(self.otherwise, Otherwise::Route(_)).then_some(self.routes.len());
        let mut found = None;
        for reading in readings.iter() {
            let position = |reading: &Reading<'_>| {
                let mut routes = self.routes.iter();
                routes.position(|(it, _)| it.match_all(asked, &host, reading))
            };
            let closes = |at: &usize| self.routes.get(*at).is_some_and(|(it, _)| it.closes);
            let mut at = position(reading);
            // A route that is open for what follows the name of a front controller opens nothing
            // that the path itself keeps closed.
            if reading.has_others() && !at.as_ref().is_some_and(closes) {
                at = position(&reading.without_others()).filter(closes).or(at);
            }
            let at = if reading.is_below_host() {
                // They come last: what is closed already is left to its route.
                if found.as_ref().is_some_and(closes) {
                    continue;
                }
                at.filter(closes)
            } else {
                at.or(last)
            };
            if at.is_some() && found.is_some() && at != found {
                return Err(Ambiguous);
            }
            found = found.or(at);
        }
        Ok(found)
    }
}

/// A path that is decoded as this one.
fn encoded(path: &[u8]) -> Vec<u8> {
    path.split(|&byte| byte == b'%')
        .collect::<Vec<_>>()
        .join(&b"%25"[..])
}

impl Asked<'_> {
    fn is_in(&self, net: &Subnet) -> bool {
        self.address.is_some_and(|address| net.contains(address))
    }
}

impl<T> Otherwise<T> {
    fn to(&self) -> &T {
        match self {
            Self::Route(to) | Self::Default(to) => to,
        }
    }
}

impl Conditions {
    /// Every request matches.
    pub fn is_empty(&self) -> bool {
        let Self {
            paths,
            hosts,
            methods,
            not_methods,
            headers,
            addresses,
            not_addresses,
            closes: _,
        } = self;
        paths.is_empty()
            && hosts.is_empty()
            && methods.is_empty()
            && not_methods.is_empty()
            && headers.0.is_empty()
            && addresses.is_empty()
            && not_addresses.is_empty()
    }

    /// Whether each request that matches `other` matches these too. Says no where it would take
    /// more than a look at one pattern after the other to tell.
    pub fn cover(&self, other: &Self) -> bool {
        covers(&self.paths, &other.paths, PathPattern::covers)
            && covers(&self.hosts, &other.hosts, HostPattern::covers)
            && covers(&self.methods, &other.methods, Method::covers)
            && self
                .not_methods
                .iter()
                .all(|own| other.not_methods.contains(own))
            && self
                .headers
                .0
                .iter()
                .all(|own| other.headers.0.contains(own))
            && covers(&self.addresses, &other.addresses, Subnet::eq)
            && self
                .not_addresses
                .iter()
                .all(|own| other.not_addresses.contains(own))
    }

    fn match_all(&self, asked: &Asked<'_>, host: &str, path: &Reading<'_>) -> bool {
        self.match_client(asked, host)
            && is_met(&self.paths, |pattern| pattern.matches(path, self.closes))
            && self.headers.match_all(asked.fields, self.closes)
    }

    /// Whether the route names the path of a script.
    fn match_script(&self, asked: &Asked<'_>, host: &str, script: &Readings<'_>) -> bool {
        let mut paths = self.paths.iter();
        self.match_client(asked, host)
            && paths.any(|it| script.iter().any(|path| it.finds(path)))
            && self.headers.match_all(asked.fields, self.closes)
    }

    fn match_client(&self, asked: &Asked<'_>, host: &str) -> bool {
        // The cheap ones first.
        is_met(&self.methods, |method| method.matches(asked.method))
            && !self
                .not_methods
                .iter()
                .any(|method| method.is_exactly(asked.method))
            && is_met(&self.addresses, |net| asked.is_in(net))
            && !self.not_addresses.iter().any(|net| asked.is_in(net))
            && is_met(&self.hosts, |pattern| pattern.matches(host))
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
