//! nginx's `auth_basic`, as `basic_auth` of routes: of a whole server, or of locations in which
//! nothing else is unusual. The rest of it stays where it is, and closes its paths.

use super::access;
use super::directive::Directive;
use super::draft::{At, Draft, OPEN, Rank, Rule, Site, scripts};
use super::limits::limits;
use super::php::{expression, is_of_scripts, locations};
use super::tree::Tree;

/// Where Debian's and the project's own packages have nginx's files: relative names begin there.
const PREFIX: &str = "/etc/nginx";

/// Statements that change nothing of who answers in a location.
const PLAIN: [&str; 7] = [
    "access_log",
    "error_log",
    "fastcgi_pass",
    "include",
    "index",
    "log_not_found",
    "try_files",
];

/// Passwords of a server.
#[derive(Default)]
pub(super) struct Passwords {
    /// For all of it.
    whole: Option<Tree>,
    locations: Vec<Password>,
    /// Locations that were open beside it, and are not.
    not_open: Vec<String>,
}

/// The statement of a location.
struct Password {
    path: String,
    at: At,
    rank: Rank,
    /// None lets all in.
    keys: Option<Tree>,
}

/// Takes out of a server what can be said by routes. `index`: as in [`access::take`].
pub(super) fn take(server: &mut Directive, index: &[String]) -> Passwords {
    let mut passwords = Passwords::default();
    let is_other = |it: &Directive| it.name == "satisfy" && it.argument(0) != "all";
    if has(server, &is_other) {
        return passwords;
    }
    let file = server.find("auth_basic_user_file").cloned();
    let of_server = server
        .find("auth_basic")
        .filter(|it| it.argument(0) != "off");
    let mut taken = server.clone();
    if let Some(realm) = of_server {
        let keys = file.as_ref().and_then(|file| keys(realm, file));
        let Some(keys) = keys else {
            return passwords;
        };
        taken.inside.retain(|it| !is_one(it));
        passwords.whole = Some(keys);
    }
    let paths: Vec<String> = locations(server)
        .filter_map(|it| Some(place(it)?.0))
        .collect();
    let targets = access::targets(server, index);
    let is_last = |path: &str| paths.iter().filter(|it| it.starts_with(path)).count() == 1;
    for it in taken.inside.iter_mut().filter(|it| it.name == "location") {
        let Some(realm) = it.find("auth_basic").cloned() else {
            continue;
        };
        let Some((path, at, rank)) = place(it).filter(|(path, ..)| is_last(path)) else {
            continue;
        };
        let is_off = realm.argument(0) == "off";
        let file = it.find("auth_basic_user_file").or(file.as_ref());
        let keys = file.filter(|_| !is_off).and_then(|file| keys(&realm, file));
        let mut without = it.clone();
        without.inside.retain(|it| !is_one(it));
        let is_plain = |it: &Directive| {
            let name = it.name.as_str();
            let is_of_php = name == "location" && expression(it).is_some_and(is_of_scripts);
            is_of_php || PLAIN.contains(&name) || name.starts_with("fastcgi_")
        };
        // nginx asks again where a script or another location answers in the end.
        let is_of_files = |it: &Directive| {
            let name = it.name.as_str();
            name == "try_files" && it.arguments.last().is_some_and(|it| it.starts_with('='))
                || ["access_log", "default_type", "expires", "log_not_found"].contains(&name)
                || name == "allow" && it.argument(0) == "all"
        };
        let is_said = if is_off && passwords.whole.is_some() {
            let is_alone = rank == Rank::Strong && has_only(&without, &is_of_files);
            if !is_alone {
                passwords.not_open.push(it.shown());
            }
            without.inside.retain(|it| it.name != "allow");
            *it = without;
            is_alone
        } else {
            let is_usual =
                !limits(&without) && has_only(&without, &is_plain) && !has(&without, &is_one);
            // Paths that lead to it would need the password, too.
            let is_target = targets.iter().any(|target| match &at {
                At::Path(path) => path.ends_with(target.as_str()),
                _ => target.starts_with(&path),
            });
            let is_said = is_usual && !is_target && keys.is_some();
            if is_said {
                *it = without;
            }
            is_said
        };
        if is_said {
            passwords.locations.push(Password {
                path,
                at,
                rank,
                keys,
            });
        }
    }
    if !has(&taken, &|it| it.name == "auth_basic") {
        taken.inside.retain(|it| it.name != "auth_basic_user_file");
    }
    *server = taken;
    passwords
}

/// Asks for the passwords in a site.
pub(super) fn ask(site: &mut Site, passwords: Passwords, draft: &mut Draft) {
    for Password {
        path,
        at,
        rank,
        keys,
    } in passwords.locations
    {
        let is_in = |rule: &Rule| !rule.refuses() && rule.at.is_below(&path);
        let keys = keys.map_or_else(open, |keys| guarded(&keys));
        for rule in site.rules.iter_mut().filter(|it| is_in(it)) {
            rule.keys.merge(keys.clone());
        }
        let is_there = site.rules.iter().any(|it| it.at == at && it.rank == rank);
        if !is_there && !site.rule(at, rank, keys) {
            site.close("");
            draft.limits.push(format!(
                "{}: the path of a password is not understood: the site is answered 404",
                site.shown()
            ));
        }
    }
    for location in passwords.not_open {
        draft.limits.push(format!(
            "{}: `{location}`: `auth_basic off` is left out, and the password of the server holds \
             there; a route without `basic_auth` for these paths opens them",
            site.shown()
        ));
    }
    site.guard = passwords.whole;
}

fn guarded(keys: &Tree) -> Tree {
    let mut all = Tree::default();
    all.set("basic_auth", keys.clone());
    all
}

/// The keys of a rule to which a site's password does not belong; they end with the draft.
fn open() -> Tree {
    let mut keys = scripts("none");
    keys.set(OPEN, "yes");
    keys
}

fn keys(realm: &Directive, file: &Directive) -> Option<Tree> {
    let (realm, file) = (realm.argument(0), file.argument(0));
    if realm.contains('$') || file.contains('$') || file.is_empty() {
        return None;
    }
    let file = if file.starts_with('/') {
        file.to_owned()
    } else {
        format!("{PREFIX}/{file}")
    };
    let mut keys = Tree::default();
    keys.set("user_file", file).set("realm", realm);
    Some(keys)
}

fn is_one(it: &Directive) -> bool {
    it.name == "auth_basic" || it.name == "auth_basic_user_file"
}

fn has(directive: &Directive, is_it: &dyn Fn(&Directive) -> bool) -> bool {
    directive
        .inside
        .iter()
        .any(|it| is_it(it) || has(it, is_it))
}

fn has_only(directive: &Directive, is_it: &dyn Fn(&Directive) -> bool) -> bool {
    directive
        .inside
        .iter()
        .all(|it| is_it(it) && has_only(it, is_it))
}

/// Path, paths and rank of a location without an expression.
fn place(location: &Directive) -> Option<(String, At, Rank)> {
    let (how, path) = match &location.arguments[..] {
        [path] => ("", path),
        [how, path] => (how.as_str(), path),
        _ => return None,
    };
    if path == "/" || !path.starts_with('/') || path.contains(['*', '?', '#', '$', '\\']) {
        return None;
    }
    let (at, rank) = match how {
        "=" => (At::Path(path.clone()), Rank::Exact),
        "^~" => (At::Start(path.clone()), Rank::Strong),
        "" => (At::Start(path.clone()), Rank::Plain),
        _ => return None,
    };
    Some((path.clone(), at.normal(), rank))
}

#[cfg(test)]
mod tests {
    use pronghorn_config::{Input, Severity, load};
    use pronghorn_http::routes::Asked;
    use pronghorn_http::settings::HttpSettings;
    use pronghorn_testkit::Directory;
    use pronghorn_wire::Fields;

    use crate::{Converted, convert};

    const PHP: &str = "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }";
    const FRONT: &str = "location / { try_files $uri $uri/ /index.php?$args; }";
    const ASK: &str = "auth_basic \"My office\"; auth_basic_user_file /etc/users;";

    fn made(server: &str) -> Converted {
        let text = format!("server {{ root /srv; index index.php; {server}\n{FRONT}\n{PHP} }}");
        let directory = Directory::with(&[("site.conf", &text)]);
        convert(&[directory.join("site.conf")]).unwrap()
    }

    /// The outcome for each path.
    fn gets(server: &str, paths: &[&str]) -> Vec<String> {
        let made = made(server);
        let yaml = made.yaml.as_str();
        let loaded = load(&Input::from_text("pronghorn.yaml", yaml.to_owned()));
        let resolved = loaded.resolve_with(Severity::Warning, |t| {
            t.optional_section::<HttpSettings>("http", "")
        });
        let settings = resolved.into_settings().ok().flatten().expect(yaml);
        let routes = settings.compile(&[], |route| match (&route.refuse, &route.basic_auth) {
            (Some(status), _) => status.to_string(),
            (None, Some(auth)) => auth.user_file.display().to_string(),
            (None, None) => "open".to_owned(),
        });
        let fields = Fields::new();
        let of = |path: &&str| {
            let asked = Asked {
                method: "GET",
                authority: "a",
                path: path.as_bytes(),
                fields: &fields,
                address: None,
            };
            routes
                .pick(&asked)
                .cloned()
                .unwrap_or_else(|_| "400".to_owned())
        };
        paths.iter().map(of).collect()
    }

    #[test]
    fn a_password_of_a_location_is_one_of_its_paths() {
        for (server, paths, expected) in [
            (
                format!("location /admin {{ {ASK} }}"),
                &[
                    "/admin",
                    "/admin/x",
                    "/administrator",
                    "/Admin/x",
                    "/",
                    "/index.php",
                ][..],
                &[
                    "/etc/users",
                    "/etc/users",
                    "/etc/users",
                    "/etc/users",
                    "open",
                    "open",
                ][..],
            ),
            (
                format!("location ^~ /admin/ {{ {ASK} try_files $uri /index.php; {PHP} }}"),
                &["/admin/", "/admin/a.php", "/administrator"],
                &["/etc/users", "/etc/users", "open"],
            ),
            (
                format!("location = /wp-login.php {{ {ASK} fastcgi_pass 127.0.0.1:9000; }}"),
                &["/wp-login.php", "/wp-login.php/x", "/wp-admin/"],
                &["/etc/users", "/etc/users", "open"],
            ),
            // The file of the server, and a name below nginx's own directory.
            (
                "auth_basic_user_file users; location /a/ { auth_basic x; }".to_owned(),
                &["/a/", "/b/"],
                &["/etc/nginx/users", "open"],
            ),
        ] {
            assert_eq!(gets(&server, paths), expected, "{server}");
            assert_eq!(made(&server).limits, Vec::<String>::new(), "{server}");
        }
        let yaml = made(&format!("location /a/ {{ {ASK} }}")).yaml;
        assert!(yaml.contains("realm: \"My office\""), "{yaml}");
    }

    /// nginx rewrites before it looks for a location.
    #[test]
    fn a_rewrite_of_a_server_that_leads_out_of_a_closed_location_is_told() {
        for (closed, rewrites, opened) in [
            (
                ASK,
                "rewrite ^/a/(.*)$ /free.txt;",
                "leads `/a/a` to `/free.txt`",
            ),
            (
                "deny all;",
                "rewrite ^/a/(.*)$ /index.php;",
                "to `/index.php`",
            ),
            (ASK, "rewrite ^/b/(.*)$ /free.txt;", ""),
            (ASK, "rewrite ^/b/(.*)$ /a/$1;", ""),
            (ASK, "rewrite ^/a/(.*)$ /b/$1 permanent;", ""),
        ] {
            let server = format!("{rewrites} location /a/ {{ {closed} }}");
            let Converted { yaml, limits, .. } = made(&server);
            let told = limits.join("\n");
            assert_eq!(
                told.contains("before `http.routes[0]` can close it"),
                !opened.is_empty()
            );
            assert!(told.contains(opened), "{server}: {told}");
            let is_said = yaml.contains("unless_refused: false");
            assert_eq!(is_said, !opened.is_empty(), "{server}: {yaml}");
        }
    }

    /// A route that asks for a password is closed as one that refuses.
    #[test]
    fn a_rewrite_of_the_rest_leaves_a_password_where_it_is() {
        let text = format!(
            "server {{ root /srv; index index.php; location /a/ {{ {ASK} }}\n\
             location / {{ rewrite ^/(.+)\\.html$ /index.php; }}\n{PHP} }}"
        );
        let directory = Directory::with(&[("site.conf", &text)]);
        let Converted { yaml, limits, .. } = convert(&[directory.join("site.conf")]).unwrap();
        assert!(yaml.contains("basic_auth"), "{yaml}");
        assert!(yaml.contains("unless_refused: true"), "{yaml}");
        assert_eq!(limits, Vec::<String>::new());
    }

    #[test]
    fn a_password_of_a_server_is_one_of_all_its_paths() {
        let paths = &[
            "/",
            "/a.css",
            "/index.php",
            "/.well-known/acme-challenge/x",
            "/.git/x",
        ];
        let acme = "location ^~ /.well-known/acme-challenge/ { auth_basic off; }";
        let hidden = "location ~ /\\. { deny all; }";
        let all = "/etc/users";
        assert_eq!(gets(ASK, paths), [all, all, all, all, all]);
        let with = format!("{ASK} {acme} {hidden}");
        assert_eq!(gets(&with, paths), [all, all, all, "open", "403"]);
        assert_eq!(made(&with).limits, Vec::<String>::new());
        let other = format!("{ASK} location /b/ {{ auth_basic b; auth_basic_user_file /b; }}");
        assert_eq!(gets(&other, &["/", "/b/x"]), [all, "/b"]);
        // A script there, or the front controller, answers in another location.
        for off in [
            "location /b/ { auth_basic off; }",
            "location ^~ /b/ { auth_basic off; try_files $uri /index.php; }",
            "location = /b/ { auth_basic off; }",
        ] {
            let with = format!("{ASK} {off}");
            assert_eq!(
                gets(&with, &["/b/", "/b/x.php", "/index.php/b/"]),
                [all; 3],
                "{off}"
            );
            assert!(
                made(&with).limits.join(" ").contains("`auth_basic off`"),
                "{off}"
            );
        }
    }

    /// The front controller answers for paths that need no password, and so on.
    #[test]
    fn the_rest_is_closed_as_before() {
        for server in [
            format!("location = /index.php {{ {ASK} fastcgi_pass 127.0.0.1:9000; }}"),
            format!("location /a/ {{ {ASK} proxy_pass http://127.0.0.1:1; }}"),
            format!("location /a/ {{ {ASK} satisfy any; allow 10.0.0.0/8; deny all; }}"),
            format!("location /a/ {{ {ASK} location /a/b/ {{ auth_basic off; }} }}"),
            "location /a/ { auth_basic x; }".to_owned(),
            "location /a/ { auth_basic $realm; auth_basic_user_file /etc/users; }".to_owned(),
            format!("location ~ ^/a/ {{ {ASK} }}"),
        ] {
            let Converted { yaml, limits, .. } = made(&server);
            assert!(
                !limits.is_empty() && !yaml.contains("basic_auth:"),
                "{server} {yaml}"
            );
            let got = gets(&server, &["/a/x", "/index.php"]);
            assert!(got.iter().any(|it| it.starts_with('4')), "{server} {got:?}");
        }
    }
}
