//! `rewrite`: another target for a request, or a redirect.
//!
//! Expressions see the path as the client sent it, and what their groups find is passed on as it
//! is: nothing is decoded, so nothing that was encoded can become a line end or a slash.
//!
//! Routes see the target that a rule gave. A rule with `unless_refused` asks them before: it
//! carries nothing away from a route that refuses, however the path is spelled.

use std::sync::Arc;

use pronghorn_h1::RequestHead;
use pronghorn_serve::{Body, Exchange, Handled, Handler, Request, Response};

use super::parts::Parts;
use crate::routes::{Asked, Routes};
use crate::settings::{HttpSettings, RewriteRule, TargetPiece};

struct Rewrite {
    next: Arc<dyn Handler>,
    rules: Vec<RewriteRule>,
    refusals: Refusals,
}

/// Whether a route refuses a request.
struct Refusals(Option<Routes<bool>>);

impl Refusals {
    fn of(settings: &HttpSettings) -> Self {
        let has_refusals = settings.routes.iter().any(|route| route.refuse.is_some());
        let routes = || settings.compile(&[], |route| route.refuse.is_some());
        Self(has_refusals.then(routes))
    }

    fn take(&self, head: &RequestHead) -> bool {
        self.0.as_ref().is_some_and(|routes| {
            let picked = routes.pick(&Asked {
                method: head.method(),
                authority: head.authority(),
                path: head.path(),
                fields: head.fields(),
            });
            // One of several readings may be refused: the router answers 400.
            picked.copied().unwrap_or(true)
        })
    }
}

pub(super) fn around(next: Arc<dyn Handler>, parts: Parts<'_>) -> Arc<dyn Handler> {
    Arc::new(Rewrite {
        next,
        rules: parts.settings.rewrite.clone(),
        refusals: Refusals::of(parts.settings),
    })
}

impl Handler for Rewrite {
    fn handle<'a>(&'a self, mut request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        let mut rules = self.rules.iter();
        let found = rules.find_map(|rule| {
            let target = target(rule, &request.head)?;
            let is_left = rule.unless_refused && self.refusals.take(&request.head);
            (!is_left).then_some((rule.status, target))
        });
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
fn target(rule: &RewriteRule, head: &RequestHead) -> Option<Vec<u8>> {
    let host = head.host();
    if !rule.hosts.is_empty() && !rule.hosts.iter().any(|pattern| pattern.matches(&host)) {
        return None;
    }
    let found = rule.path.0.captures(head.path())?;
    let mut target = Vec::new();
    for piece in &rule.to.pieces {
        match piece {
            TargetPiece::Text(text) => target.extend_from_slice(text.as_bytes()),
            TargetPiece::Group(number) => {
                let found = found.get(*number).map(|found| found.as_bytes());
                target.extend_from_slice(found.unwrap_or_default());
            }
        }
    }
    // `//evil.example` and `/\evil.example` are other sites to a browser.
    if target.first() == Some(&b'/') {
        let is_slash = |byte: &&u8| matches!(byte, b'/' | b'\\');
        let slashes = target.iter().take_while(is_slash).count();
        target.drain(1..slashes);
    }
    if let Some(query) = head.query().filter(|_| !rule.to.drops_query) {
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
        let target = target(rule, &head).unwrap_or_else(|| b"-".to_vec());
        String::from_utf8(target).expect("ASCII")
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
