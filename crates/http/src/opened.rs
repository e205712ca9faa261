//! Rules of `http.rewrite` that lead out of paths which a route closes.
//!
//! Routes see what a rule has made of a path. So a rule opens what a route with `refuse` or
//! `basic_auth` is there for, unless it has `unless_refused`. Nobody can list all paths of an
//! expression: a few that both a rule and a route are about are tried, with the code that requests
//! go through. What is found is true, and something may be missed.
//!
//! Routes that close all but some paths are left out: rules that lead to those are usual.

use std::collections::HashSet;
use std::fmt::Write as _;

use crate::middleware::rewrite::Rules;
use crate::routes::{Asked, PathPattern, Routes, other_readings};
use crate::samples::samples;
use crate::settings::{HttpSettings, RewriteRule, RouteSettings};

/// Paths that are tried in all, so that a thousand routes cost a start no second.
const MOST_TRIED: usize = 200_000;
/// Texts of an expression that are joined with those of another one.
const MOST_JOINED: usize = 4;

/// A path that a rule opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedPath {
    /// The number of the rule.
    pub rule: usize,
    /// The number of the route that closes the path.
    pub route: usize,
    pub path: String,
    /// The target that the rule gives for it.
    pub target: String,
}

impl HttpSettings {
    /// One path for each rule that opens some.
    pub fn opened_paths(&self) -> Vec<OpenedPath> {
        let mut listed = self.middleware.iter();
        if !listed.any(|name| name.eq_ignore_ascii_case("rewrite")) {
            return Vec::new();
        }
        let routes = self.routes.iter().enumerate();
        let closing = routes.filter(|(_, route)| route.closes_paths());
        let closed: Vec<Closed<'_>> = closing.flat_map(Closed::of).collect();
        let trial = Trial::of(self);
        let mut budget = MOST_TRIED;
        let rules = self.rewrite.iter().filter(|rule| opens(rule));
        rules
            .filter_map(|rule| {
                let rewritten = samples(rule.path.0.as_str());
                let mut closed = closed.iter();
                closed.find_map(|closed| trial.find(closed, (rule, &rewritten), &mut budget))
            })
            .collect()
    }
}

/// Whether a rule may open something, and nobody has written that it may.
fn opens(rule: &RewriteRule) -> bool {
    rule.status.is_none() && !rule.unless_refused && !rule.may_open
}

/// Whether a rule is about a path, as it is sent or read.
fn finds(rule: &RewriteRule, path: &[u8]) -> bool {
    let expression = &rule.path.0;
    let mut readings = other_readings(path).into_iter().flatten();
    expression.is_match(path) || readings.any(|reading| expression.is_match(&reading))
}

/// The paths of one pattern of a route that closes them.
struct Closed<'a> {
    /// The number of the route.
    at: usize,
    route: &'a RouteSettings,
    pattern: &'a PathPattern,
    samples: Vec<Vec<u8>>,
}

impl<'a> Closed<'a> {
    fn of((at, route): (usize, &'a RouteSettings)) -> impl Iterator<Item = Self> {
        let patterns = route.conditions.paths.iter();
        patterns.map(move |pattern| Self {
            at,
            route,
            pattern,
            samples: pattern.samples(),
        })
    }
}

/// The rules and the routes, as requests meet them.
struct Trial<'a> {
    settings: &'a HttpSettings,
    rules: Rules,
    /// The numbers of those that close something.
    routes: Routes<Option<usize>>,
}

impl<'a> Trial<'a> {
    fn of(settings: &'a HttpSettings) -> Self {
        let number = |route: &RouteSettings| {
            let mut all = settings.routes.iter();
            let at = all.position(|it| std::ptr::eq(it, route));
            at.filter(|_| route.closes_paths())
        };
        Self {
            settings,
            rules: Rules::of(settings),
            routes: settings.compile(&[], number),
        }
    }

    /// A closed path that this rule opens.
    fn find(
        &self,
        closed: &Closed<'_>,
        (rule, rewritten): (&RewriteRule, &[Vec<u8>]),
        budget: &mut usize,
    ) -> Option<OpenedPath> {
        if closed.samples.is_empty() || *budget == 0 {
            return None;
        }
        let sample = closed.route.conditions.sample(&rule.hosts)?;
        let paths = paths_of_both(&closed.samples, rewritten);
        *budget = budget.saturating_sub(paths.len());
        let of_both =
            |path: &&String| finds(rule, path.as_bytes()) && closed.pattern.gets(path.as_str());
        let mut paths = paths.iter().filter(of_both);
        paths.find_map(|path| self.try_path((closed.at, rule), &sample.asked(path.as_bytes())))
    }

    fn try_path(&self, (at, rule): (usize, &RewriteRule), asked: &Asked<'_>) -> Option<OpenedPath> {
        if *self.routes.pick(asked).ok()? != Some(at) {
            return None;
        }
        let (number, target) = self.rules.find(asked, None).ok()??;
        let first = self.settings.rewrite.get(number)?;
        let path = target.split(|&byte| byte == b'?').next()?;
        let is_open = self.routes.pick(&Asked { path, ..*asked }).ok()?.is_none();
        (std::ptr::eq(first, rule) && is_open).then(|| OpenedPath {
            rule: number,
            route: at,
            path: String::from_utf8_lossy(asked.path).into_owned(),
            target: String::from_utf8_lossy(&target).into_owned(),
        })
    }
}

/// Paths that a route and a rule may both be about, the simple ones first.
fn paths_of_both(closed: &[Vec<u8>], rewritten: &[Vec<u8>]) -> Vec<String> {
    let ends = [&b""[..], b"a", b"/a", b"/a.php"];
    let alone = closed.iter().chain(rewritten);
    let alone = alone.flat_map(|text| ends.map(|end| [&text[..], end].concat()));
    let joined = closed.iter().take(MOST_JOINED).flat_map(|closed| {
        let others = rewritten.iter().take(MOST_JOINED);
        others.flat_map(move |other| {
            let joints = [&b""[..], b"/a"];
            let both = joints.map(|joint| [&closed[..], joint, other].concat());
            let turned = joints.map(|joint| [&other[..], joint, closed].concat());
            both.into_iter().chain(turned)
        })
    });
    let mut seen = HashSet::new();
    let mut paths = Vec::new();
    for text in alone.chain(joined) {
        for start in [&b""[..], b"/", b"/a"] {
            let path = to_sent(&[start, &text[..]].concat());
            if path.starts_with('/') && seen.insert(path.clone()) {
                paths.push(path);
            }
        }
    }
    paths
}

/// As a client sends it.
fn to_sent(text: &[u8]) -> String {
    let mut sent = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            // Both expressions pass over a slash that is doubled where two texts meet.
            b'/' if sent.ends_with('/') => {}
            b'!'..=b'~' if !b"?#\"<>\\^`{|}".contains(&byte) => sent.push(char::from(byte)),
            byte => _ = write!(sent, "%{byte:02X}"), // a `String` takes all
        }
    }
    sent
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Input, Severity, load};

    use super::*;

    fn opened(rules: &str, routes: &str) -> Vec<OpenedPath> {
        let yaml = format!(
            "version: '3'\nmiddleware: [rewrite]\npool: {{command: php w.php}}\nrewrite:\n{rules}\nroutes:\n{routes}\n"
        );
        let loaded = load(&Input::from_text("test", yaml.clone()));
        let resolved = loaded.resolve::<HttpSettings>(Severity::Error);
        let settings = resolved
            .into_settings()
            .map_err(|report| report.to_string());
        settings.expect(&yaml).opened_paths()
    }

    #[test]
    fn a_rule_that_leads_out_of_a_closed_path_is_found() {
        const FRONT: &str = "{path: '^/(.*)$', to: '/index.php?q={1}'}";
        for (rule, route, path) in [
            (FRONT, "{path: /private/*, refuse: 403}", "/private"),
            (FRONT, "{path: /a/b, basic_auth: {user_file: u}}", "/a/b"),
            (FRONT, r"{path: '~ /\.', refuse: 404}", "/."),
            (FRONT, r"{path: '~ \.(sql|bak)$', refuse: 404}", "/.sql"),
            // The rule is about a part of what the route closes.
            (
                "{path: '^/admin/old/(.*)$', to: '/old.php?p={1}'}",
                "{path: /admin/*, basic_auth: {user_file: u}}",
                "/admin/old/",
            ),
            // Each is about something that the other one does not say.
            (
                "{path: '^/files/(.*)$', to: '/send.php?f={1}'}",
                r"{path: '~ \.sql$', refuse: 404}",
                "/files/.sql",
            ),
            (
                r"{path: '\.php$', to: /index.php}",
                "{path: /private/*, refuse: 403}",
                "/private/a.php",
            ),
            (
                r"{path: '\.html?$', to: /page}",
                "{path: /in/*, refuse: 403}",
                "/in/a.htm",
            ),
            // By more than the path.
            (
                "{path: '^/in/', host: '*.a.x', to: /out}",
                "{path: /in/*, host: [b.x, c.a.x], not_method: [GET, HEAD], refuse: 405}",
                "/in/a",
            ),
            (
                "{path: '^/in/', to: /out}",
                "{path: /in/*, address: 10.0.0.0/8, header: {X-A: '^b+$'}, refuse: 403}",
                "/in/a",
            ),
            (
                "{path: '^/in/', to: /out}",
                "{path: /in/*, not_address: 10.0.0.0/8, refuse: 403}",
                "/in/a",
            ),
            (
                "{path: '^/ä b', to: /out}",
                "{path: '/ä b/*', refuse: 403}",
                "/%C3%A4%20b",
            ),
        ] {
            let found = opened(&format!("- {rule}"), &format!("- {route}"));
            let paths: Vec<_> = found.iter().map(|it| it.path.as_str()).collect();
            assert_eq!(paths, [path], "{rule} {route}");
            let open = "- {path: /index.php, pool: default}\n";
            let behind = opened(&format!("- {rule}"), &format!("{open}- {route}"));
            assert_eq!(behind[0].route, 1, "{rule} {route}");
        }
    }

    #[test]
    fn what_opens_nothing_or_is_meant_is_left_alone() {
        const CLOSED: &str = "{path: /private/*, refuse: 403}";
        for (rule, route) in [
            ("{path: '^/(.*)$', to: '/x', unless_refused: true}", CLOSED),
            ("{path: '^/(.*)$', to: '/x', unless_refused: false}", CLOSED),
            ("{path: '^/(.*)$', to: '/x', status: 302}", CLOSED),
            // Another part of the site, and another host.
            ("{path: '^/open/(.*)$', to: '/x'}", CLOSED),
            (
                "{path: '^/(.*)$', host: a.x, to: '/x'}",
                "{path: /private/*, host: b.x, refuse: 403}",
            ),
            // It stays closed, by this route or by another one.
            ("{path: '^/private/(.*)$', to: '/PRIVATE//{1}.php'}", CLOSED),
            ("{path: '^/open/(.*)$', to: '/private/{1}'}", CLOSED),
            (
                "{path: '^/a/(.*)$', to: '/b/{1}'}",
                "{path: /a/*, refuse: 403}\n- {path: /b/*, basic_auth: {user_file: u}}",
            ),
            ("{path: '^/(.*)$', to: '/x'}", "{refuse: 403}"),
            (
                "{path: '^/(.*)$', to: '/x'}",
                "{path: /*, host: a.x, basic_auth: {user_file: u}}",
            ),
            // All but some paths are closed, and the rule leads to those.
            (
                "{path: '^/a$', to: '/open/a'}",
                "{path: '!~ ^/open/', refuse: 404}",
            ),
            (
                "{path: '^/a$', to: '/open/a'}",
                "{path: /open/*, pool: default}\n- {refuse: 404}",
            ),
            // An earlier route gets what the rule is about.
            (
                "{path: '^/private/a$', to: '/x'}",
                "{path: /private/a, pool: default}\n- {path: /private/*, refuse: 403}",
            ),
        ] {
            let found = opened(&format!("- {rule}"), &format!("- {route}"));
            assert_eq!(found, [], "{rule} {route}");
        }
    }

    #[test]
    fn each_rule_is_told_once_and_the_one_that_applies() {
        let found = opened(
            "- {path: '^/a/one', to: /one}\n- {path: '^/a/', to: '/other', unless_refused: true}\n\
             - {path: '^/a/', to: '/last'}\n- {path: '^/b/(.*)$', to: '/b.php?x={1}'}",
            "- {path: ['/a/*', '/c/*'], refuse: 403}\n- {path: '/b/*', refuse: 403}\n\
             - {path: '~ ^/b/', refuse: 403}",
        );
        let found = found
            .iter()
            .map(|it| (it.rule, it.route, &*it.path, &*it.target));
        let found: Vec<_> = found.collect();
        assert_eq!(
            found,
            [
                (0, 0, "/a/one", "/one"),
                (2, 0, "/a/a", "/last"),
                (3, 1, "/b/a", "/b.php?x=a")
            ]
        );
    }

    #[test]
    fn many_routes_and_rules_are_looked_at_in_a_moment() {
        let rules = (0..200).map(|at| format!("- {{path: '^/r{at}/(.*)$', to: '/x'}}"));
        let rules: Vec<_> = rules.collect();
        let routes = (0..999).map(|at| format!("- {{path: '~ ^/c{at}/', refuse: 403}}"));
        let routes: Vec<_> = routes.collect();
        let started = tokio::time::Instant::now();
        assert_eq!(opened(&rules.join("\n"), &routes.join("\n")), []);
        let took = started.elapsed();
        assert!(took.as_secs() < 20, "{took:?}");
    }
}
