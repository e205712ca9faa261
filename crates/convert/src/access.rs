//! nginx's `allow` and `deny`, as conditions of routes that refuse.

use std::net::IpAddr;

use super::directive::Directive;
use super::draft::{ALL_CLOSED, At, Draft, Rank, Site, as_it_is, is_found, refusal};
use super::tree::Tree;

/// Clients that some paths of a server are kept from.
pub(super) struct Access {
    at: At,
    rank: Rank,
    /// Conditions on addresses, one for each route that refuses.
    refused: Vec<Tree>,
    /// Locations in it that are limited by it, and were not.
    limited: Vec<String>,
}

impl Access {
    /// Keeps clients from paths, whoever answers for others of these.
    pub(super) fn new(at: At, refused: Vec<Tree>) -> Self {
        Self {
            at,
            rank: Rank::Exact,
            refused,
            limited: Vec::new(),
        }
    }
}

/// A location of a server.
struct Location {
    at: At,
    rank: Rank,
    /// Finds its paths, and no others.
    expression: String,
    kind: LocationKind,
    shown: String,
    /// It, or one around it, has statements of its own.
    has_own: bool,
    /// It leads to no other location, in which these statements would not hold.
    is_last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LocationKind {
    Prefix,
    /// It comes before prefixes, as expressions and exact paths do.
    First,
}

/// Takes out of a server what tells clients apart by their addresses alone. The rest of `allow` and
/// `deny` stays where it is, and closes its paths.
/// `index`: names of the files that answer for directories, which stand around the server.
pub(super) fn take(server: &mut Directive, index: &[String]) -> Vec<Access> {
    if has_others(server) {
        return Vec::new();
    }
    let targets = targets(server, index);
    let (mut all, mut locations) = (Vec::new(), Vec::new());
    take_locations(
        &mut server.inside,
        false,
        &targets,
        &mut all,
        &mut locations,
    );
    let Some(refused) = take_statements(&mut server.inside) else {
        return all;
    };
    // A location with statements of its own has none of the server's.
    let is_free = |it: &&Location| it.has_own && it.is_last;
    let free: Vec<&Location> = locations.iter().filter(is_free).collect();
    let limited = locations.iter().filter(|it| it.has_own && !it.is_last);
    let limited = limited.map(|it| it.shown.clone()).collect();
    let mut push = |at: At, rank, limited| {
        let refused = refused.clone();
        all.push(Access {
            at,
            rank,
            refused,
            limited,
        });
    };
    if free.is_empty() {
        push(At::Below(String::new()), Rank::Exact, limited);
        return all;
    }
    let free_paths: Vec<&str> = free.iter().map(|it| it.expression.as_str()).collect();
    push(At::Without(free_paths.join("|")), Rank::Exact, limited);
    // Other locations may be asked before those, for the same paths.
    for it in locations.iter().filter(|it| !it.has_own) {
        let is_inside = |around: &&&Location| match (&it.at, &around.at) {
            (At::Start(path), At::Start(around)) => path.starts_with(around),
            _ => true,
        };
        if it.kind == LocationKind::First || free.iter().any(|around| is_inside(&around)) {
            push(it.at.clone(), it.rank, Vec::new());
        }
    }
    all
}

/// Keeps these clients out of a site.
pub(super) fn restrict(site: &mut Site, all: Vec<Access>, draft: &mut Draft) {
    for access in all {
        for location in access.limited {
            draft.limits.push(format!(
                "{}: `{location}`: the `allow` and `deny` of the server hold for it, too, as it \
                 leads to other locations",
                site.shown()
            ));
        }
        for mut keys in access.refused {
            if keys.is_empty() {
                site.refuse(access.at.clone(), "403");
                continue;
            }
            keys.merge(refusal("403"));
            if !site.rule(access.at.clone(), access.rank, keys) {
                site.close("");
                draft.limits.push(format!(
                    "{}: an expression of paths that some clients may have is not understood: {ALL_CLOSED}",
                    site.shown()
                ));
            }
        }
    }
}

/// Whether a password or something that is not known here decides as well.
fn has_others(directive: &Directive) -> bool {
    directive.inside.iter().any(|it| match it.name.as_str() {
        "satisfy" => it.argument(0) == "any",
        "allow" | "deny" => it.argument(0) != "all" && net(it.argument(0)).is_none(),
        "location" => has_others(it),
        // A block that has its own clients is not looked at.
        _ => it.has("allow") || it.has("deny"),
    })
}

/// Paths to which nginx leads others, where it asks again who may come. `index`: as in [`take`].
pub(super) fn targets(server: &Directive, index: &[String]) -> Vec<String> {
    let mut targets = vec!["/index.html".to_owned()];
    targets.extend(index.iter().map(|it| format!("/{it}")));
    add_targets(server, &mut targets);
    targets
}

fn add_targets(directive: &Directive, targets: &mut Vec<String>) {
    for it in &directive.inside {
        let is_one = ["try_files", "error_page", "rewrite", "index"].contains(&it.name.as_str());
        if is_one {
            let paths = it.arguments.iter().map(|it| {
                let path = it.split('?').next().unwrap_or_default();
                format!("/{}", path.trim_start_matches('/'))
            });
            targets.extend(paths);
        }
        add_targets(it, targets);
    }
}

fn take_locations(
    inside: &mut [Directive],
    is_own: bool,
    targets: &[String],
    all: &mut Vec<Access>,
    locations: &mut Vec<Location>,
) {
    for it in inside.iter_mut().filter(|it| it.name == "location") {
        let has_own = is_own || it.has("allow") || it.has("deny");
        take_locations(&mut it.inside, has_own, targets, all, locations);
        let Some(mut location) = Location::of(it) else {
            continue;
        };
        location.has_own = has_own;
        if location.is_target(it, targets) {
            // Other paths are kept from these clients as well.
        } else if let Some(refused) = take_statements(&mut it.inside) {
            all.push(Access {
                at: location.at.clone(),
                rank: location.rank,
                refused,
                limited: Vec::new(),
            });
        }
        locations.push(location);
    }
}

impl Location {
    /// Whether paths of other locations may lead to it.
    fn is_target(&self, directive: &Directive, targets: &[String]) -> bool {
        match &self.at {
            At::Expression(expression) => {
                directive.has("fastcgi_pass") || targets.iter().any(|it| is_found(expression, it))
            }
            // A name of an index may be one of any directory.
            At::Path(path) => targets.iter().any(|it| path.ends_with(it.as_str())),
            At::Start(path) => targets.iter().any(|it| it.starts_with(path.as_str())),
            At::Below(_) | At::Without(_) => false,
        }
    }

    /// None for one with a name, which has no paths.
    fn of(directive: &Directive) -> Option<Self> {
        let (how, path) = match &directive.arguments[..] {
            [path] => ("", path.clone()),
            [how, path] => (how.as_str(), path.clone()),
            _ => return None,
        };
        let begins = format!("^{}", as_it_is(&path));
        let (at, rank, kind, expression) = match how {
            _ if path.starts_with('@') => return None,
            "=" => {
                let expression = format!("{begins}$");
                (At::Path(path), Rank::Exact, LocationKind::First, expression)
            }
            "~" | "~*" => {
                let sign = if how == "~*" { "(?i)" } else { "" };
                let expression = format!("{sign}{path}");
                let at = At::Expression(path);
                (at, Rank::Named, LocationKind::First, expression)
            }
            _ if path == "/" => {
                let at = At::Below(String::new());
                (at, Rank::Exact, LocationKind::Prefix, begins)
            }
            "^~" => (At::Start(path), Rank::Refusal, LocationKind::First, begins),
            _ => (At::Start(path), Rank::Refusal, LocationKind::Prefix, begins),
        };
        let leads_on = directive.inside.iter().any(|it| match it.name.as_str() {
            "try_files" => it.arguments.last().is_none_or(|it| !it.starts_with('=')),
            "rewrite" | "error_page" | "if" | "location" => true,
            _ => false,
        });
        Some(Self {
            at,
            rank,
            expression: format!("(?:{expression})"),
            kind,
            shown: directive.shown(),
            has_own: false,
            is_last: !leads_on,
        })
    }
}

/// The conditions of all clients that statements refuse, in their order; the statements are taken
/// out. None where they are about all clients or none.
fn take_statements(inside: &mut Vec<Directive>) -> Option<Vec<Tree>> {
    let is_one = |it: &Directive| it.name == "allow" || it.name == "deny";
    let is_of_some = |it: &Directive| is_one(it) && it.argument(0) != "all";
    if !inside.iter().any(is_of_some) {
        return None;
    }
    let mut refused: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    let mut allowed: Vec<String> = Vec::new();
    for it in inside.iter().filter(|it| is_one(it)) {
        let net = net(it.argument(0));
        match (it.name.as_str(), net) {
            ("allow", Some(net)) => allowed.push(net),
            ("deny", Some(net)) => match refused.last_mut() {
                Some((nets, but)) if *but == allowed => nets.push(net),
                _ => refused.push((vec![net], allowed.clone())),
            },
            ("deny", None) => {
                refused.push((Vec::new(), allowed.clone()));
                break;
            }
            _ => break,
        }
    }
    inside.retain(|it| !is_one(it));
    let conditions = refused.into_iter().map(|(nets, but)| {
        let mut keys = Tree::default();
        if !nets.is_empty() {
            keys.set("address", nets);
        }
        if !but.is_empty() {
            keys.set("not_address", but);
        }
        keys
    });
    Some(conditions.collect())
}

/// An address, or a net without the bits beyond its prefix.
pub(super) fn net(text: &str) -> Option<String> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix.parse::<u32>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let Some(prefix) = prefix else {
        return Some(address.to_string());
    };
    let masked = match address {
        IpAddr::V4(it) => {
            let mask = u32::MAX
                .checked_shl(32_u32.checked_sub(prefix)?)
                .unwrap_or(0);
            IpAddr::from((u32::from(it) & mask).to_be_bytes())
        }
        IpAddr::V6(it) => {
            let mask = u128::MAX
                .checked_shl(128_u32.checked_sub(prefix)?)
                .unwrap_or(0);
            IpAddr::from((u128::from(it) & mask).to_be_bytes())
        }
    };
    Some(format!("{masked}/{prefix}"))
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;
    use crate::{Converted, convert};

    fn made(server: &str) -> Converted {
        let text = format!(
            "server {{ root /srv; index index.php; {server}\nlocation ~ \\.php$ {{ fastcgi_pass \
             127.0.0.1:9000; }} }}"
        );
        let directory = Directory::with(&[("site.conf", &text)]);
        convert(&[directory.join("site.conf")]).unwrap()
    }

    #[test]
    fn the_order_of_statements_counts() {
        const FRONT: &str = "location / { try_files $uri /index.php; }";
        for (statements, routes) in [
            (
                "allow 10.0.0.9/8; allow ::1; deny all;",
                &["not_address: [\"10.0.0.0/8\", \"::1\"], refuse: 403}"][..],
            ),
            (
                "deny 192.0.2.7;",
                &["address: [\"192.0.2.7\"], refuse: 403}"],
            ),
            (
                "deny 10.1.0.0/16; allow 10.0.0.0/8; deny 192.0.2.0/24; deny 198.51.100.1; allow all;",
                &[
                    "address: [\"10.1.0.0/16\"], refuse: 403}",
                    "address: [\"192.0.2.0/24\", \"198.51.100.1\"], not_address: [\"10.0.0.0/8\"], refuse: 403}",
                ],
            ),
            ("allow 10.0.0.0/8;", &[]),
            ("deny all; allow 10.0.0.0/8;", &["refuse: 403}"]),
        ] {
            let made = made(&format!("{statements} {FRONT}"));
            let refusing = made.yaml.lines().filter(|it| it.contains("refuse"));
            let conditions = refusing.map(|it| {
                let it = it.trim_start_matches([' ', '-', '{']);
                it.trim_start_matches("path: \"/*\", ")
            });
            let refusing: Vec<_> = conditions.collect();
            assert_eq!(refusing, routes, "{statements}\n{}", made.yaml);
            let is_shut = routes == ["refuse: 403}"];
            assert_eq!(
                made.is_unsure(),
                is_shut,
                "{:?} {:?}",
                made.limits,
                made.lost
            );
        }
    }

    #[test]
    fn each_location_has_its_own_clients() {
        let made = made(
            "location /admin/ { allow 10.0.0.0/8; deny all; try_files $uri /index.php; }\n\
             location = /wp-login.php { allow 10.0.0.0/8; deny all; fastcgi_pass 127.0.0.1:9000; }\n\
             location ~* \\.sql$ { allow 10.0.0.0/8; deny all; }",
        );
        for path in ["/wp-login.php", "[\"/admin/*\", \"~ \\\\.sql$\"]"] {
            let route = format!("{{path: {path}, not_address: [\"10.0.0.0/8\"], refuse: 403}}");
            assert!(made.yaml.contains(&route), "{path} {}", made.yaml);
        }
        assert!(!made.is_unsure(), "{:?} {:?}", made.limits, made.lost);
    }

    #[test]
    fn a_sign_needs_no_blank() {
        for location in ["=/admin", "^~/admin", "~^/admin", "~*^/admin"] {
            let made = made(&format!(
                "location {location} {{ allow 10.0.0.0/8; deny all; }}"
            ));
            let is_limited = made.yaml.contains("/admin")
                && made
                    .yaml
                    .contains("not_address: [\"10.0.0.0/8\"], refuse: 403}");
            assert!(
                is_limited && !made.yaml.contains("\\\\="),
                "{location} {}",
                made.yaml
            );
            assert!(made.left_out.is_empty(), "{:?}", made.left_out);
        }
    }

    #[test]
    fn a_location_is_free_of_the_servers_clients_by_its_own_alone() {
        let server = "allow 10.0.0.0/8; deny all;";
        let challenge = "location ^~ /.well-known/acme-challenge/ { allow all; root /var/www; }";
        let made_of = |more: &str| made(&format!("{server} {challenge} {more}"));
        let made = made_of("location /a/ { try_files $uri =404; }");
        let free = "!~ (?:^/\\\\.well-known/acme-challenge/)";
        assert!(made.yaml.contains(free), "{}", made.yaml);
        // An expression is asked before a plain prefix that is open.
        assert!(
            made.yaml.contains("{path: \"~ \\\\.php$\", not_address"),
            "{}",
            made.yaml
        );
        assert!(
            !made.yaml.contains("{path: \"/a/*\", not_address"),
            "{}",
            made.yaml
        );
        // A location that leads to another one needs that one's leave, too.
        let open = made_of("location /api/ { allow all; try_files $uri /index.php; }");
        assert!(
            open.limits.iter().any(|it| it.contains("location /api/")),
            "{:?}",
            open.limits
        );
        assert!(!open.yaml.contains("api/)"), "{}", open.yaml);
    }

    #[test]
    fn what_is_no_address_closes_as_before() {
        for statements in [
            "allow unix:; deny all;",
            "satisfy any; allow 10.0.0.0/8; deny all;",
        ] {
            let made = made(&format!("location /admin/ {{ {statements} }}"));
            assert!(
                made.is_unsure() && !made.yaml.contains("address: ["),
                "{}",
                made.yaml
            );
        }
        assert_eq!(net("10.0.0.1/0").as_deref(), Some("0.0.0.0/0"));
        assert_eq!(net("2001:db8::1/32").as_deref(), Some("2001:db8::/32"));
        for text in [
            "10.0.0.0/33",
            "::/129",
            "10.0.0",
            "localhost",
            "10.0.0.0/",
            "",
        ] {
            assert_eq!(net(text), None, "{text}");
        }
    }
}
