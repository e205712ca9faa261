//! `rewrite`: another target for a request, or a redirect.
//!
//! Expressions see the path as the client sent it, and in each way in which programs read it, as
//! routes do. What their groups find in the first is passed on as it is; what they find in another
//! reading is encoded, so that nothing that was encoded becomes a line end, a question mark or a
//! parameter.
//!
//! Routes see the target that a rule gave. A rule with `unless_refused` asks them before: it
//! carries nothing away from a route that refuses, however the path is spelled.

use std::sync::Arc;

use pronghorn_h1::host_of;
use pronghorn_serve::{Body, Exchange, Handled, Handler, Request, Response};

use super::limits::{Limits, asked};
use super::parts::Parts;
use crate::router::ambiguous;
use crate::routes::{Ambiguous, Asked, other_readings};
use crate::settings::{HttpSettings, RewriteRule, TargetPiece};

struct Rewrite {
    next: Arc<dyn Handler>,
    rules: Rules,
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    let rules = Rules::of(parts.settings);
    Arc::new(Rewrite { next, rules })
}

/// The rules, and the routes that some of them ask first.
pub(crate) struct Rules {
    rules: Vec<RewriteRule>,
    /// The routes that refuse, or ask for a password.
    limits: Limits<()>,
}

/// The number of a rule, and the target that it gives.
pub(crate) type RuleTarget = (usize, Vec<u8>);

impl Rules {
    pub(crate) fn of(settings: &HttpSettings) -> Self {
        Self {
            rules: settings.rewrite.clone(),
            limits: Limits::by(settings, |route| route.closes_paths().then_some(())),
        }
    }

    /// The rule that each way to read the path finds, if one does.
    pub(crate) fn find(
        &self,
        asked: &Asked<'_>,
        query: Option<&[u8]>,
    ) -> Result<Option<RuleTarget>, Ambiguous> {
        let mut found: Option<RuleTarget> = None;
        for reading in other_readings(asked.path).ok_or(Ambiguous)? {
            let this = self.find_in((asked, query), &reading, Groups::Encoded);
            match (&found, &this) {
                (Some(found), Some(this)) if found.0 != this.0 => return Err(Ambiguous),
                _ => found = found.or(this),
            }
        }
        // A rule may be about how a path is written, and a group keeps what was sent.
        let sent = self.find_in((asked, query), asked.path, Groups::AsSent);
        let is_other = matches!((&sent, &found), (Some(sent), Some(found)) if sent.0 != found.0);
        Ok(if is_other { found } else { sent.or(found) })
    }

    fn find_in(
        &self,
        (asked, query): (&Asked<'_>, Option<&[u8]>),
        path: &[u8],
        groups: Groups,
    ) -> Option<RuleTarget> {
        let mut rules = self.rules.iter().enumerate();
        rules.find_map(|(at, rule)| {
            let target = target(rule, (asked.authority, query), path, groups)?;
            let is_limited = || !matches!(self.limits.of(asked), Ok(None));
            let is_left = rule.unless_refused && is_limited();
            (!is_left).then_some((at, target))
        })
    }
}

/// How what groups find comes into the target.
#[derive(Clone, Copy)]
enum Groups {
    AsSent,
    Encoded,
}

impl Groups {
    fn push(self, target: &mut Vec<u8>, found: &[u8]) {
        for &byte in found {
            // A reading keeps percent signs encoded.
            let is_plain = byte.is_ascii_alphanumeric() || b"-._~/%".contains(&byte);
            match self {
                Self::Encoded if !is_plain => {
                    target.extend_from_slice(format!("%{byte:02X}").as_bytes());
                }
                _ => target.push(byte),
            }
        }
    }
}

impl Handler for Rewrite {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let asked = asked(&request.head, request.peer.address.ip());
        let Ok(found) = self.rules.find(&asked, request.head.query()) else {
            return Box::pin(std::future::ready(ambiguous(&request)));
        };
        let rules = &self.rules.rules;
        let found = found.and_then(|(at, target)| Some((rules.get(at)?.status, target)));
        match found {
            Some((Some(status), target)) => {
                let mut response = Response::new(status, Body::Empty);
                response.fields.push("Location", target);
                Box::pin(std::future::ready(response))
            }
            Some((None, target)) => {
                match memchr::memchr(b'?', &target) {
                    Some(mark) => {
                        let (path, query) = target.split_at(mark);
                        request.head.set_target(path, query.get(1..));
                    }
                    None => request.head.set_target(&target, None),
                }
                self.next.handle(request, exchange)
            }
            None => self.next.handle(request, exchange),
        }
    }
}

/// The new target of a request, if the rule is about it.
fn target(
    rule: &RewriteRule,
    (authority, query): (&str, Option<&[u8]>),
    path: &[u8],
    groups: Groups,
) -> Option<Vec<u8>> {
    let host = host_of(authority);
    if !rule.hosts.is_empty() && !rule.hosts.iter().any(|pattern| pattern.matches(&host)) {
        return None;
    }
    let found = rule.path.0.captures(path)?;
    let mut target = Vec::new();
    for piece in &rule.to.pieces {
        match piece {
            TargetPiece::Text(text) => target.extend_from_slice(text.as_bytes()),
            TargetPiece::Group(number) => {
                let found = found.get(*number).map(|found| found.as_bytes());
                groups.push(&mut target, found.unwrap_or_default());
            }
        }
    }
    // `//evil.example` and `/\evil.example` are other sites to a browser.
    if target.first() == Some(&b'/') {
        let is_slash = |byte: &&u8| matches!(byte, b'/' | b'\\');
        let slashes = target.iter().take_while(is_slash).count();
        target.drain(1..slashes);
    }
    if let Some(query) = query.filter(|_| !rule.to.drops_query) {
        let joint = if target.contains(&b'?') { b'&' } else { b'?' };
        target.push(joint);
        target.extend_from_slice(query);
    }
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middleware::testing::head;
    use crate::routes::HostPattern;
    use crate::settings::rewrite_rule as rule;

    fn to(rule: &RewriteRule, of: &str) -> String {
        let head = head(&format!("GET {of} HTTP/1.1\r\nHost: A.example:80\r\n\r\n"));
        let of = (head.authority(), head.query());
        let target = target(rule, of, head.path(), Groups::AsSent);
        String::from_utf8(target.unwrap_or_else(|| b"-".to_vec())).expect("ASCII")
    }

    fn rewrite(rules: Vec<RewriteRule>) -> Rules {
        Rules {
            rules,
            limits: Limits::default(),
        }
    }

    fn found(rules: &Rules, of: &str) -> String {
        let head = head(&format!("GET {of} HTTP/1.1\r\nHost: a\r\n\r\n"));
        match rules.find(&asked(&head, None), head.query()) {
            Ok(None) => "none".to_owned(),
            Ok(Some((_, target))) => String::from_utf8(target).expect("ASCII"),
            Err(Ambiguous) => "400".to_owned(),
        }
    }

    /// The table of `docs/guide/pools-and-routes.md`: a rule is found by each spelling that a route
    /// is found by, but for the case of letters, which counts in expressions, and for the name of
    /// the front controller, which a rule may be about.
    #[test]
    fn rules_are_found_by_every_spelling_in_the_guide() {
        let page = include_str!("../../../../docs/guide/pools-and-routes.md");
        let (_, table) = page
            .split_once("| the client requests |")
            .expect("the table");
        let rules = [
            ("(?i)^/admin(/|$)", "/to-admin"),
            ("(?i)^/login/?$", "/to-login"),
            ("\\.sql/?$", "/to-sql"),
        ];
        let rewrite = rewrite(rules.map(|(path, to)| rule(path, to, None)).to_vec());
        let of = |route: &str| match route {
            "`/admin/*`" => "/to-admin",
            "`/login`" => "/to-login",
            "`~ \\.sql$`" => "/to-sql",
            "none" => "none",
            _ => "400",
        };
        let mut compared = 0;
        for row in table.lines().skip(2).take_while(|row| row.starts_with('|')) {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            for path in cells[0].split("`, `").map(|path| path.trim_matches('`')) {
                if !path.starts_with("/index.php") {
                    assert_eq!(found(&rewrite, path), of(cells[1]), "{path}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 30, "{compared}");
    }

    #[test]
    fn groups_of_another_reading_are_encoded() {
        let rules = rewrite(vec![
            rule("^/private/(.*)$", "/p?x={1}", None),
            rule("^/as%20sent/(.*)$", "/s/{1}", None),
            rule("^//+(.*)$", "/one/{1}", None),
        ]);
        for (of, to) in [
            ("/private/a%2Fb%0d%0a&c=d", "/p?x=a%2Fb%0d%0a&c=d"),
            (
                "/%70rivate/a%2Fb%0d%0aX%26c=d%3F?q",
                "/p?x=a%2Fb%0D%0AX%26c%3Dd%3F&q",
            ),
            ("/%70rivate/%2570%25", "/p?x=%2570%25"),
            ("/as%20sent/b", "/s/b"),
            ("//x", "/one/x"),
            ("//private/x", "/p?x=x"),
            ("/public/%61", "none"),
        ] {
            assert_eq!(found(&rules, of), to, "{of}");
        }
    }

    #[test]
    fn groups_and_the_query_are_carried_over() {
        let post = rule("^/blog/([0-9]+)$", "/post?id={1}", None);
        for (of, expected) in [
            ("/blog/7", "/post?id=7"),
            ("/blog/7?a=b", "/post?id=7&a=b"),
            ("/blog/x", "-"),
            ("/x/blog/7", "-"),
        ] {
            assert_eq!(to(&post, of), expected, "{of}");
        }
        let dropped = rule("^/old/(.*)$", "https://b.example/new/{1}?", Some(301));
        assert_eq!(
            to(&dropped, "/old/a%2Fb%0d%0aX?c"),
            "https://b.example/new/a%2Fb%0d%0aX"
        );
        assert_eq!(to(&rule("^/(x)?y$", "/z{1}", None), "/y"), "/z");
    }

    #[test]
    fn no_path_leads_to_another_site() {
        let all = rule("^/go(.*)$", "/{1}", Some(302));
        for of in [
            "/go//evil.example",
            "/go/\\evil.example",
            "/go\\evil.example",
            "/go///evil.example",
        ] {
            assert_eq!(to(&all, of), "/evil.example", "{of}");
        }
    }

    #[test]
    fn a_rule_may_be_about_a_host() {
        let mut about = rule("^/(.*)$", "https://www.a.example/{1}", Some(308));
        about.hosts = vec![HostPattern::parse("a.example").expect("a host")];
        assert_eq!(to(&about, "/x?y"), "https://www.a.example/x?y");
        about.hosts = vec![HostPattern::parse("b.example").expect("a host")];
        assert_eq!(to(&about, "/x"), "-");
    }
}
