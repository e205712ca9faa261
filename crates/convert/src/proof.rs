//! Asks what is made for a few pages, as clients will: a site of which nothing is answered, or no
//! script runs that ran there, is told.

use pronghorn_cgi::Answering;

use pronghorn_http::routes::{Asked, Conditions, HostPattern, Routes};
use pronghorn_http::settings::{HttpSettings, RewriteRule, RouteSettings, TargetPiece};
use pronghorn_wire::Fields;

use super::draft::{Site, http_settings};

/// Pages that any site may have.
const PAGES: [&str; 4] = ["/", "/index.php", "/a-1/b", "/a-1.css"];

/// A site as it is asked for.
pub(super) struct Probe {
    shown: String,
    host: String,
    /// The rest of its paths was refused there, too.
    refuses_rest: bool,
    gives_php: bool,
    answered: Vec<String>,
}

impl Probe {
    /// None for a site without a root, which has no pages.
    pub(super) fn of(site: &Site) -> Option<Self> {
        site.root.as_ref()?;
        let host = site.names.first().map_or("", String::as_str);
        Some(Self {
            shown: site.shown(),
            host: host.replacen("*.", "a.", 1),
            refuses_rest: site.rest.is_some(),
            gives_php: site.gives_php,
            answered: site.answered.clone(),
        })
    }

    /// A sentence for a person, if it does not answer as it did.
    fn judge(&self, asked: &Made) -> Option<String> {
        let is_refused = |path: &&str| asked.get(&self.host, path) == Answer::Refused;
        if !self.refuses_rest && PAGES.iter().all(is_refused) {
            return Some(format!("{}: nothing of it is answered", self.shown));
        }
        if self.gives_php && !asked.runs_any(&self.host) {
            return Some(format!("{}: none of its scripts runs", self.shown));
        }
        let lost = self
            .answered
            .iter()
            .filter(|path| asked.get(&self.host, path) != Answer::Runs);
        let lost: Vec<&str> = lost.map(String::as_str).collect();
        (!lost.is_empty()).then(|| {
            let lost = lost.join("`, `");
            format!(
                "{}: no script answers `{lost}`, and one did there",
                self.shown
            )
        })
    }
}

/// The one that answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Refused,
    /// A file, or nobody.
    File,
    Runs,
}

/// A configuration that is asked.
struct Made {
    /// As a browser sends them: who has none may be refused.
    fields: Fields,
    settings: HttpSettings,
    routes: Routes<Answer>,
}

impl Made {
    fn of(yaml: &str) -> Option<Self> {
        let mut settings = http_settings(yaml)?;
        // They are asked for what the clients get that may come.
        let is_of_some = |it: &RouteSettings| {
            let Conditions {
                addresses,
                not_addresses,
                ..
            } = &it.conditions;
            it.refuse.is_some() && !(addresses.is_empty() && not_addresses.is_empty())
        };
        settings.routes.retain(|it| !is_of_some(it));
        let routes = settings.compile(&[], answer);
        let mut fields = Fields::default();
        for (name, value) in [
            ("user-agent", "Mozilla/5.0"),
            ("referer", "http://a.example/"),
        ] {
            fields.push(name, value);
        }
        Some(Self {
            fields,
            settings,
            routes,
        })
    }

    fn get(&self, host: &str, path: &str) -> Answer {
        let by_route = |path: &str| {
            let picked = self.routes.pick(&Asked {
                method: "GET",
                authority: host,
                path: path.as_bytes(),
                fields: &self.fields,
                address: None,
            });
            picked.copied().unwrap_or(Answer::Refused)
        };
        let rules = self.settings.rewrite.iter();
        let mut rules = rules.filter(|it| is_of(&it.hosts, host));
        let rule = rules.find_map(|rule| {
            let is_left = rule.unless_refused && by_route(path) == Answer::Refused;
            Some((rule, target(rule, path)?)).filter(|_| !is_left)
        });
        match rule {
            // The other address may be anything.
            Some((rule, _)) if rule.status.is_some() => Answer::Runs,
            Some((_, to)) => by_route(&to),
            None => by_route(path),
        }
    }

    /// Whether there is a route for a host on which scripts run.
    fn runs_any(&self, host: &str) -> bool {
        let is_for_all = |it: &&RouteSettings| it.conditions.is_empty();
        let mut routes = self.settings.routes.iter();
        !self.settings.routes.iter().any(|it| is_for_all(&it))
            || routes.any(|it| is_of(&it.conditions.hosts, host) && answer(it) == Answer::Runs)
    }
}

fn answer(route: &RouteSettings) -> Answer {
    match route.scripts {
        _ if route.refuse.is_some() => Answer::Refused,
        Answering::Nothing => Answer::File,
        Answering::All | Answering::Named | Answering::Front => Answer::Runs,
    }
}

fn is_of(hosts: &[HostPattern], host: &str) -> bool {
    hosts.is_empty() || hosts.iter().any(|it| it.matches(host))
}

/// The path to which a rule leads another one.
fn target(rule: &RewriteRule, path: &str) -> Option<String> {
    let found = rule.path.0.captures(path.as_bytes())?;
    let pieces = rule.to.pieces.iter().map(|piece| match piece {
        TargetPiece::Text(text) => text.clone(),
        TargetPiece::Group(number) => found.get(*number).map_or_else(String::new, |it| {
            String::from_utf8_lossy(it.as_bytes()).into_owned()
        }),
    });
    let to: String = pieces.collect();
    Some(to.split('?').next().unwrap_or_default().to_owned())
}

/// Sentences on what is wrong with these sites in a configuration.
pub(super) fn judge(yaml: &str, sites: &[Probe]) -> Vec<String> {
    let Some(made) = Made::of(yaml) else {
        return Vec::new();
    };
    sites.iter().filter_map(|it| it.judge(&made)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_as_it_did_is_said() {
        let probe = Probe {
            shown: "the site `a.x`".to_owned(),
            host: "a.x".to_owned(),
            refuses_rest: false,
            gives_php: true,
            answered: ["/", "/index.php", "/a-1/b"].map(str::to_owned).to_vec(),
        };
        let judged = |routes: &str, rules: &str| {
            let yaml = format!(
                "version: '3'\nhttp:\n  address: ':80'\n  middleware: [rewrite]\n  \
                 rewrite: [{rules}]\n  pool: {{mode: classic, root: .}}\n  routes: [{routes}]\n"
            );
            judge(&yaml, std::slice::from_ref(&probe)).join("\n")
        };
        let other = "{host: b.x, refuse: 404}";
        for (routes, rules, expected) in [
            ("{path: /a/*, refuse: 404}", "", ""),
            (other, "", ""),
            ("{refuse: 404}", "", "nothing of it is answered"),
            ("{host: a.x, refuse: 404}", "", "nothing of it is answered"),
            ("{scripts: none}", "", "none of its scripts runs"),
            ("{path: /, scripts: none}", "", "no script answers `/`"),
            (
                "{path: '~ ^/a-', refuse: 403}",
                "",
                "no script answers `/a-1/b`",
            ),
            (
                "{path: '~ ^/a-', refuse: 403}",
                "{path: '^/a-1/', to: /}",
                "",
            ),
            (
                "{path: '~ ^/a-', refuse: 403}",
                "{path: '^/a-1/', to: /, unless_refused: true}",
                "/a-1/b",
            ),
            (
                "{path: /, scripts: none}",
                "{path: '^/$', to: /b, status: 301}",
                "no script answers `/index.php`,",
            ),
        ] {
            let said = judged(routes, rules);
            let is_right = said.contains(expected) && said.is_empty() == expected.is_empty();
            assert!(is_right, "{routes} {rules}: {said}");
        }
    }
}
