//! Apache's `Require ip`, `Allow` and `Deny`, as conditions of routes that refuse.

use super::access::{Access, net, restrict};
use super::directive::{Directive, Fate};
use super::draft::{At, Draft, Site, is_found, is_in, names_in};
use super::statements::{directory_of, is_access, is_condition, is_granted, is_scope, named_by};
use super::tree::Tree;

/// Stands for statements that were taken out of a block: its words are nets that are refused, and,
/// after a sign, nets that are not.
const TAKEN: &str = "(addresses)";

/// Clients that are refused: those of nets, or all, but for those of other nets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Refused {
    nets: Vec<String>,
    but: Vec<String>,
}

impl Refused {
    fn all_but(but: Vec<String>) -> Self {
        Self {
            nets: Vec::new(),
            but,
        }
    }

    fn of(nets: Vec<String>) -> Self {
        Self {
            nets,
            but: Vec::new(),
        }
    }

    fn words(&self) -> Vec<String> {
        let sign = "!".to_owned();
        let nets = self.nets.iter().cloned();
        nets.chain([sign]).chain(self.but.iter().cloned()).collect()
    }

    fn keys(words: &[String]) -> Tree {
        let mut parts = words.split(|it| it == "!");
        let mut keys = Tree::default();
        for name in ["address", "not_address"] {
            let nets = parts.next().unwrap_or_default();
            if !nets.is_empty() {
                keys.set(name, nets.to_vec());
            }
        }
        keys
    }
}

/// Takes out of blocks what tells clients apart by their addresses alone: they are for all then, as
/// far as others look at them. The rest stays where it is, and closes its paths.
pub(super) fn take(all: &mut [Directive]) {
    for it in all {
        if it.is("VirtualHost") {
            take(&mut it.inside);
        } else if it.is("Directory") {
            let is_plain = it.arguments.len() == 1 && !it.argument(0).contains(['*', '?', '[']);
            if is_plain {
                take_of(it);
                take(&mut it.inside);
            }
        } else if it.is("Files") || it.is("FilesMatch") {
            // The front controller answers for paths that do not name it.
            if !is_found(&named_by(it), "/index.php") {
                take_of(it);
            }
        } else if is_plain_location(it) || it.is("LocationMatch") {
            take_of(it);
        }
    }
}

fn is_plain_location(it: &Directive) -> bool {
    it.is("Location") && it.arguments.len() == 1 && !it.argument(0).contains(['*', '?', '['])
}

/// The same for the statements of one block.
pub(super) fn take_of(block: &mut Directive) {
    let Some(refused) = refused_by(&block.inside) else {
        return;
    };
    if refused.iter().all(|it| *it == Refused::default()) {
        return; // for all, or for nobody
    }
    block.inside.retain(|it| !is_access(it));
    let done = |name: &str, arguments: Vec<String>| {
        let it = Directive {
            place: block.place,
            name: name.to_owned(),
            arguments,
            ..Directive::default()
        };
        it.fate.set(Fate::Done);
        it
    };
    let granted = ["all", "granted"].map(str::to_owned).to_vec();
    let mut all = vec![done("Require", granted)];
    all.extend(refused.iter().map(|it| done(TAKEN, it.words())));
    block.inside.splice(0..0, all);
}

/// Whether clients were told apart in a block.
pub(super) fn is_taken(block: &Directive) -> bool {
    block.has(TAKEN)
}

/// The clients that a block refuses. None where that does not depend on addresses alone.
fn refused_by(inside: &[Directive]) -> Option<Vec<Refused>> {
    let is_other = |it: &&Directive| {
        let name = it.name.to_ascii_lowercase();
        let is_known = name.starts_with("require") && !name.starts_with("requiressl")
            || ["order", "allow", "deny"].contains(&name.as_str())
            || name == "satisfy" && it.argument(0).eq_ignore_ascii_case("all");
        is_access(it) && !is_known
            || name.starts_with("auth")
            || is_condition(it) && !is_granted(&it.inside)
    };
    if inside.iter().any(|it| is_other(&it)) {
        return None;
    }
    let new = inside.iter().filter(|it| is_one(it)).collect::<Vec<_>>();
    let new = (!new.is_empty()).then(|| any_of(&new));
    let is_old = |it: &&Directive| ["Order", "Allow", "Deny"].iter().any(|name| it.is(name));
    if inside.iter().find(is_old).is_none() {
        return new?;
    }
    // Both have to let a client in.
    let old = by_order(inside)?;
    match new {
        Some(new) => new.filter(|new| *new == old),
        None => Some(old),
    }
}

fn is_one(it: &Directive) -> bool {
    ["Require", "RequireAll", "RequireAny", "RequireNone"]
        .iter()
        .any(|name| it.is(name))
}

/// The clients that one `Require`, or a block of them, refuses.
fn by_one(it: &Directive) -> Option<Vec<Refused>> {
    if it.is("RequireAny") {
        return any_of(&it.inside.iter().collect::<Vec<_>>());
    }
    if it.is("RequireAll") {
        // One that only says who may not come lets nobody in.
        let lets_in = |it: &Directive| !it.is("RequireNone") && !is_not(it);
        if !it.inside.iter().any(lets_in) {
            return None;
        }
        let all: Option<Vec<_>> = it.inside.iter().map(by_one).collect();
        return Some(all?.concat());
    }
    if it.is("RequireNone") {
        let nets = it.inside.iter().map(|it| nets_of(&it.arguments));
        let nets: Option<Vec<_>> = nets.collect();
        return Some(vec![Refused::of(nets?.concat())]);
    }
    if !it.is("Require") {
        return None;
    }
    let words = it.arguments.join(" ").to_ascii_lowercase();
    match words.as_str() {
        "all granted" | "not all denied" => Some(Vec::new()),
        "all denied" => Some(vec![Refused::default()]),
        _ if is_not(it) => {
            let nets = nets_of(it.arguments.get(1..)?)?;
            Some(vec![Refused::of(nets)])
        }
        _ => Some(vec![Refused::all_but(nets_of(&it.arguments)?)]),
    }
}

fn is_not(it: &Directive) -> bool {
    it.argument(0).eq_ignore_ascii_case("not")
}

/// The clients that are refused where one of these statements is enough to let one in.
fn any_of(all: &[&Directive]) -> Option<Vec<Refused>> {
    if let [one] = all {
        return if is_not(one) || one.is("RequireNone") {
            None
        } else {
            by_one(one)
        };
    }
    let mut nets = Vec::new();
    for it in all {
        if !it.is("Require") || is_not(it) {
            return None;
        }
        match by_one(it)?.as_slice() {
            [] => return Some(Vec::new()),
            [one] => nets.extend(one.but.iter().cloned()),
            _ => return None,
        }
    }
    Some(vec![Refused::all_but(nets)])
}

/// The nets of `ip …` and `local`.
fn nets_of(words: &[String]) -> Option<Vec<String>> {
    let (kind, nets) = words.split_first()?;
    if kind.eq_ignore_ascii_case("local") && nets.is_empty() {
        return Some(vec!["127.0.0.0/8".to_owned(), "::1".to_owned()]);
    }
    let is_ip = kind.eq_ignore_ascii_case("ip") && !nets.is_empty();
    let nets: Option<Vec<_>> = nets.iter().map(|it| written(it)).collect();
    nets.filter(|_| is_ip)
}

/// An address or a net as routes have it: `10.1` and `10.1.0.0/255.255.0.0` are `10.1.0.0/16`.
fn written(text: &str) -> Option<String> {
    if let Some((address, mask)) = text.split_once('/')
        && let Ok(mask) = mask.parse::<std::net::Ipv4Addr>()
    {
        let mask = u32::from(mask);
        let is_whole = mask.leading_ones() + mask.trailing_zeros() == u32::BITS;
        return is_whole
            .then(|| net(&format!("{address}/{}", mask.leading_ones())))
            .flatten();
    }
    let parts: Vec<&str> = text.trim_end_matches('.').split('.').collect();
    let is_part = parts.len() < 4 && parts.iter().all(|it| it.parse::<u8>().is_ok());
    if is_part {
        let rest = ".0".repeat(4 - parts.len());
        return net(&format!("{}{rest}/{}", parts.join("."), parts.len() * 8));
    }
    net(text)
}

/// The clients that `Order`, `Allow` and `Deny` refuse.
fn by_order(inside: &[Directive]) -> Option<Vec<Refused>> {
    let order = inside.iter().rfind(|it| it.is("Order"));
    let order = order.map_or_else(String::new, |it| it.arguments.concat().to_ascii_lowercase());
    // None: all; else the nets.
    let of = |name: &str| -> Option<(bool, Vec<String>)> {
        let (mut is_all, mut nets) = (false, Vec::new());
        for it in inside.iter().filter(|it| it.is(name)) {
            let (from, words) = it.arguments.split_first()?;
            if !from.eq_ignore_ascii_case("from") || words.is_empty() {
                return None;
            }
            for word in words {
                is_all |= word.eq_ignore_ascii_case("all");
                if !word.eq_ignore_ascii_case("all") {
                    nets.push(written(word)?);
                }
            }
        }
        Some((is_all, nets))
    };
    let ((allows_all, allowed), (denies_all, denied)) = (of("Allow")?, of("Deny")?);
    Some(match order.as_str() {
        "" | "deny,allow" if allows_all || !denies_all && denied.is_empty() => Vec::new(),
        "" | "deny,allow" => vec![Refused {
            nets: if denies_all { Vec::new() } else { denied },
            but: allowed,
        }],
        "allow,deny" | "mutual-failure" => {
            let mut all = Vec::new();
            if !allows_all {
                all.push(Refused::all_but(allowed));
            }
            if denies_all {
                all.push(Refused::default());
            } else if !denied.is_empty() {
                all.push(Refused::of(denied));
            }
            all
        }
        _ => return None,
    })
}

/// A block that says who may come.
struct Limit<'a> {
    block: &'a Directive,
    /// The directory that files of it lie in.
    directory: Option<&'a str>,
    /// It stands in a host, and not around all.
    is_own: bool,
}

fn limits_in<'a>(
    all: &'a [Directive],
    directory: Option<&'a str>,
    is_own: bool,
    out: &mut Vec<Limit<'a>>,
) {
    for block in all.iter().filter(|it| is_scope(it)) {
        // One that closes its paths opens none of another's.
        if block.inside.iter().any(is_access) && is_granted(&block.inside) {
            out.push(Limit {
                block,
                directory,
                is_own,
            });
        }
        if block.is("Directory") {
            limits_in(&block.inside, Some(directory_of(block)), is_own, out);
        }
    }
}

impl Limit<'_> {
    /// Whether Apache asks it in the place of another one, for paths of both or for some.
    fn replaces(&self, other: &Self) -> bool {
        let (it, of) = (self.block, other.block);
        let is_location = |it: &Directive| it.is("Location") || it.is("LocationMatch");
        if std::ptr::eq(it, of) {
            false
        } else if it.is("Directory") {
            let (path, around) = (directory_of(it), directory_of(of));
            let is_later = path.len() > around.len() || self.is_own && !other.is_own;
            of.is("Directory") && is_in(path, around) && is_later
        } else if is_location(it) && is_location(of) {
            let (path, other) = (it.argument(0), of.argument(0));
            let is_plain = it.is("Location") && of.is("Location");
            !is_plain || is_in(path, other) || is_in(other, path)
        } else if is_location(it) {
            true
        } else {
            let is_plain = |it: &Directive| it.is("Files") && !it.argument(0).contains(['*', '?']);
            let are_others = is_plain(it) && is_plain(of) && it.argument(0) != of.argument(0);
            !is_location(of) && !are_others
        }
    }

    /// The paths of a site that it is about.
    fn at(&self, root: &str, all: &[Self]) -> Option<At> {
        let below = |directory: &str| {
            let is_root = is_in(root, directory);
            let inner = directory.strip_prefix(root);
            let inner = inner.filter(|it| it.starts_with('/'));
            is_root
                .then(String::new)
                .or_else(|| inner.map(str::to_owned))
        };
        let block = self.block;
        if block.is("Directory") {
            // A nearer one holds for the root.
            let is_nearer = |it: &Self| {
                let is_root = it.block.is("Directory") && is_in(root, directory_of(it.block));
                is_root && it.replaces(self)
            };
            let below = below(directory_of(block))?;
            let is_held = !below.is_empty() || !all.iter().any(is_nearer);
            return is_held.then_some(At::Below(below));
        }
        if block.is("LocationMatch") {
            return Some(At::Expression(block.argument(0).to_owned()));
        }
        if block.is("Location") {
            return Some(At::Below(
                block.argument(0).trim_end_matches('/').to_owned(),
            ));
        }
        let below = match self.directory {
            Some(directory) => below(directory)?,
            None => String::new(),
        };
        Some(of_files(block, &below))
    }
}

/// Whether some paths are those of the script that answers for others.
fn is_of_front(at: &At, site: &Site) -> bool {
    let front = site.front();
    match at {
        At::Below(below) => !below.is_empty() && is_in(&front, below),
        At::Expression(expression) => is_found(expression, &front),
        _ => false,
    }
}

fn of_files(block: &Directive, below: &str) -> At {
    let name = named_by(block);
    // A path after a program's name leads to it, too.
    let name = format!("{}(?:/|$)", name.strip_suffix('$').unwrap_or(&name));
    At::Expression(names_in(below, &name))
}

fn refused(block: &Directive) -> Vec<Tree> {
    let all = block.inside.iter().filter(|it| it.name == TAKEN);
    all.map(|it| Refused::keys(&it.arguments)).collect()
}

/// Keeps clients from paths of a site by the blocks that stand around hosts and in its own.
pub(super) fn keep_out(
    around: &[Directive],
    own: &[Directive],
    site: &mut Site,
    draft: &mut Draft,
) {
    let mut all = Vec::new();
    limits_in(around, None, false, &mut all);
    limits_in(own, None, true, &mut all);
    let root = site.root.clone().unwrap_or_default();
    for limit in all.iter().filter(|it| is_taken(it.block)) {
        let at = if root.is_empty() && !limit.block.is("Location") {
            Some(At::Below(String::new()))
        } else {
            limit.at(&root, &all)
        };
        let Some(mut at) = at else {
            continue;
        };
        if is_of_front(&at, site) {
            at = At::Below(String::new());
            draft.limits.push(format!(
                "{}: `{}`: such clients are kept from all paths, as the front controller is there",
                draft.place(limit.block.place),
                limit.block.shown()
            ));
        } else if let At::Expression(expression) = &at {
            let named = draft.named_files(limit.block, expression.clone(), true);
            site.named.push(named);
        }
        for other in all.iter().filter(|it| it.replaces(limit)) {
            if other.at(&root, &all).is_some() {
                tell(other.block, limit.block, draft);
            }
        }
        restrict(site, vec![Access::new(at, refused(limit.block))], draft);
    }
}

/// The same for a `.htaccess`, by the path of its directory below the root.
pub(super) fn keep_out_of(scope: &Directive, below: &str, site: &mut Site, draft: &mut Draft) {
    let is_files = |it: &&Directive| it.is("Files") || it.is("FilesMatch");
    let all: Vec<_> = scope.inside.iter().filter(is_files).collect();
    if is_taken(scope) {
        let opens = |it: &&&Directive| it.inside.iter().any(is_access) && is_granted(&it.inside);
        for it in all.iter().filter(opens) {
            tell(it, scope, draft);
        }
        let at = At::Below(below.to_owned());
        restrict(site, vec![Access::new(at, refused(scope))], draft);
    }
    for it in all.into_iter().filter(|it| is_taken(it)) {
        let at = of_files(it, below);
        if let At::Expression(expression) = &at {
            site.named
                .push(draft.named_files(it, expression.clone(), true));
        }
        restrict(site, vec![Access::new(at, refused(it))], draft);
    }
}

fn tell(block: &Directive, around: &Directive, draft: &mut Draft) {
    draft.limits.push(format!(
        "{}: `{}`: clients that `{}` refuses are refused there, too",
        draft.place(block.place),
        block.shown(),
        around.shown()
    ));
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use crate::tests::{answer, host_at};
    use crate::{Converted, convert};

    fn made(inside: &str) -> Converted {
        let text = format!(
            "<VirtualHost *:80>\nServerName site.example\nDocumentRoot /srv/x\n{inside}\n\
             </VirtualHost>\n"
        );
        let directory = Directory::with(&[("site.conf", &text)]);
        convert(&[directory.join("site.conf")]).unwrap()
    }

    /// Answers of a path for clients of these addresses: whether each may come.
    fn may(yaml: &str, path: &str) -> [bool; 3] {
        ["10.1.2.3", "192.0.2.7", "2001:db8::1"].map(|it| answer(yaml, path, it) == "All")
    }

    #[test]
    fn clients_come_in_as_apache_lets_them() {
        for (statements, expected) in [
            ("Require ip 10.0.0.0/8", [true, false, false]),
            ("Require ip 10", [true, false, false]),
            ("Require ip 10.1 2001:db8::/32", [true, false, true]),
            ("Require ip 10.1.0.0/255.255.0.0", [true, false, false]),
            ("Require local", [false; 3]),
            ("Require local\nRequire ip 192.0.2.7", [false, true, false]),
            (
                "<RequireAny>\nRequire ip 192.0.2.0/24\nRequire ip 10\n</RequireAny>",
                [true, true, false],
            ),
            (
                "<RequireAll>\nRequire all granted\nRequire not ip 10\n</RequireAll>",
                [false, true, true],
            ),
            (
                "<RequireAll>\nRequire ip 10\nRequire not ip 10.1.2.3\n</RequireAll>",
                [false; 3],
            ),
            (
                "<RequireAll>\nRequire all granted\n<RequireNone>\nRequire ip 192.0.2.7\n\
                 </RequireNone>\n</RequireAll>",
                [true, false, true],
            ),
            (
                "Order deny,allow\nDeny from all\nAllow from 10.0.0.0/8 127.0.0.1",
                [true, false, false],
            ),
            ("Order allow,deny\nAllow from 10", [true, false, false]),
            (
                "Order allow,deny\nAllow from all\nDeny from 192.0.2.7",
                [true, false, true],
            ),
            ("Order deny,allow\nDeny from 10\nAllow from 10.1", [true; 3]),
            (
                "<IfModule mod_authz_core.c>\nRequire ip 10\n</IfModule>\n\
                 <IfModule !mod_authz_core.c>\nOrder deny,allow\nDeny from all\n\
                 Allow from 10\n</IfModule>",
                [true, false, false],
            ),
        ] {
            let of_root = format!("<Directory /srv/x>\n{statements}\n</Directory>");
            let of_path = format!("<Location /a>\n{statements}\n</Location>");
            let of_file = format!("<Files b.php>\n{statements}\n</Files>");
            let of_one = format!("<Directory /srv/x/a>\n{of_file}\n</Directory>");
            for (block, is_whole) in [
                (of_root, true),
                (of_path, false),
                (of_file, false),
                (of_one, false),
            ] {
                let made = made(&block);
                let yaml = &made.yaml;
                assert!(!made.is_unsure(), "{block}\n{:?}", made.limits);
                for path in ["/a/b.php", "/A/b.php/x", "/a//b.php"] {
                    assert_eq!(may(yaml, path), expected, "{block} {path}\n{yaml}");
                }
                let rest = if is_whole { expected } else { [true; 3] };
                assert_eq!(may(yaml, "/c"), rest, "{block}\n{yaml}");
            }
        }
    }

    #[test]
    fn other_ways_to_tell_clients_apart_close() {
        for statements in [
            "Require host example.com",
            "Require ip 10\nRequire valid-user",
            "Require ip 10\nRequire env a",
            "Require not ip 10",
            "Require ip 10.0.0.0/255.0.255.0",
            "<RequireAll>\nRequire not ip 10\n</RequireAll>",
            "<RequireNone>\nRequire ip 10\n</RequireNone>",
            "Order deny,allow\nDeny from all\nAllow from example.com",
            "Order deny,allow\nDeny from all\nAllow from env=a",
            "Require ip 10\nSatisfy any",
            "Require ip 10\nOrder deny,allow\nDeny from all\nAllow from 192.0.2",
            "Require ip 10\n<Limit GET>\nRequire ip 10\n</Limit>",
            "AuthType Basic\nRequire ip 10",
        ] {
            let made = made(&format!("<Directory /srv/x>\n{statements}\n</Directory>"));
            assert_eq!(may(&made.yaml, "/c"), [false; 3], "{statements}");
            assert_eq!(made.limits.len(), 1, "{statements}\n{:?}", made.limits);
        }
    }

    #[test]
    fn a_nearer_block_is_told_or_counts() {
        let limited = "Require ip 10";
        let open = "Require all granted";
        let root = |inside: &str| format!("<Directory /srv/x>\n{inside}\n</Directory>\n");
        let part = |inside: &str| format!("<Directory /srv/x/a>\n{inside}\n</Directory>\n");
        let around = |inside: &str| format!("<Directory /srv>\n{inside}\n</Directory>\n");
        let path = |inside: &str| format!("<Location /a>\n{inside}\n</Location>\n");
        for (blocks, told, in_a, in_root) in [
            (root(limited) + &part(open), 1, false, false),
            (root(limited) + &part("Require all denied"), 0, false, false),
            (root(limited) + &path(open), 1, false, false),
            (around(limited) + &root(open), 0, true, true),
            (
                around("Require all denied") + &root(limited),
                0,
                false,
                false,
            ),
            (root(open) + &part(limited), 0, false, true),
            (part(limited) + &root(open), 0, false, true),
            (
                format!("Alias /files /opt/files\n<Directory /opt/files>\n{limited}\n</Directory>"),
                1,
                true,
                true,
            ),
            (
                format!("FallbackResource /app.php\n<Files app.php>\n{limited}\n</Files>"),
                1,
                false,
                false,
            ),
        ] {
            let made = made(&blocks);
            let asked = ["/a/b", "/c"].map(|it| answer(&made.yaml, it, "192.0.2.7") == "All");
            assert_eq!(asked, [in_a, in_root], "{blocks}\n{}", made.yaml);
            assert_eq!(made.limits.len(), told, "{blocks}\n{:?}", made.limits);
            let is_open = answer(&made.yaml, "/files/a", "192.0.2.7") == "All";
            assert!(!(is_open && blocks.contains("/files")), "{}", made.yaml);
        }
    }

    #[test]
    fn they_are_refused_before_anything_answers() {
        let blocks = "<Location /a>\nSetHandler None\n</Location>\n\
                      <Files index.php>\nSetHandler \"proxy:fcgi://127.0.0.1:9000\"\n</Files>\n\
                      <LocationMatch \"^/(a|index)\">\nRequire ip 10\n</LocationMatch>";
        let made = made(blocks);
        for path in ["/a/b", "/index.php", "/index.php/a"] {
            assert_eq!(
                answer(&made.yaml, path, "192.0.2.7"),
                "403",
                "{}",
                made.yaml
            );
        }
    }

    #[test]
    fn clients_of_a_htaccess_are_told_apart() {
        let text = "Order deny,allow\nDeny from all\nAllow from 10\n";
        let file = "<Files b.php>\nRequire ip 10\n</Files>\n";
        let directory = Directory::with(&[
            ("root/index.php", ""),
            ("root/a/.htaccess", text),
            ("root/.htaccess", file),
        ]);
        let host = host_at(&directory.join("root"));
        directory.write("site.conf", &host);
        let made = convert(&[directory.join("site.conf")]).unwrap();
        assert!(!made.is_unsure(), "{:?}", made.limits);
        for path in ["/a/c", "/c/b.php"] {
            assert_eq!(
                may(&made.yaml, path),
                [true, false, false],
                "{path}\n{}",
                made.yaml
            );
        }
        assert_eq!(may(&made.yaml, "/c/d"), [true; 3], "{}", made.yaml);
    }
}
