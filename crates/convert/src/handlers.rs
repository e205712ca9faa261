//! Which scripts Apache gives to PHP, where handlers of php-fpm are for some alone.

use super::directive::Directive;
use super::draft::{At, Draft, Rank, Site, as_it_is, is_found, names_in, scripts};
use super::statements::{is_condition, is_none};

/// Names of scripts that nobody has on purpose.
const SCRIPTS: [&str; 4] = ["/a.php", "/zq-1.php", "/x_y.z.php", "/d-1/e/b.php"];

/// The paths of scripts that have a handler.
#[derive(Default)]
struct GivenScripts {
    all: Vec<At>,
    /// Others have one where a condition holds.
    is_conditional: bool,
}

/// Keeps scripts from running that none of these blocks gives to PHP, `has_front` being whether one
/// leads paths without a file to the front controller. Where no block names a handler of php-fpm,
/// the module is there, which gives all of them to PHP. `named_by`: an expression of the paths that
/// a block of files is about.
pub(super) fn keep_others(
    blocks: &[&Directive],
    named_by: fn(&Directive) -> String,
    has_front: bool,
    site: &mut Site,
) {
    let mut found = GivenScripts::default();
    for block in blocks {
        add(block, "", named_by, site, &mut found);
    }
    let GivenScripts {
        all,
        is_conditional,
    } = found;
    let is_all = |at: &At| *at == At::Below(String::new());
    let is_ended = blocks.iter().any(|it| is_ended(it));
    if (all.is_empty() && is_conditional || is_ended) && site.whole.is_empty() {
        site.whole = scripts("none");
    }
    let is_of_some = !all.is_empty() && !all.iter().any(is_all) && !is_ended;
    if !is_of_some || !blocks.iter().any(|it| names_fpm(it)) {
        return;
    }
    let front = site.front();
    let runs_front = has_front && all.iter().any(|at| takes(at, &front));
    let whole = if runs_front { "front" } else { "none" };
    // The root's own path is none of the script that stands for it.
    if all.iter().any(|at| takes(at, "/index.php")) {
        site.rule(At::Path("/".to_owned()), Rank::Plain, scripts("named"));
    }
    for at in all {
        // A script whose name has letters of another case is another one, and has no handler.
        let (at, rank) = match at {
            At::Below(below) => {
                let at = At::Expression(format!("(?-i)^{}(?:/|$)", as_it_is(&below)));
                (at, Rank::Plain)
            }
            At::Expression(expression) => {
                let at = At::Expression(format!("(?-i){expression}"));
                (at, Rank::Expression)
            }
            at => (at, Rank::Plain),
        };
        site.rule(at, rank, scripts("named"));
    }
    if site.whole.is_empty() {
        site.whole = scripts(whole);
    }
}

/// Statements that hold beside a condition. `<If "-f …">` asks for the script that is there, and so
/// does the server: its handler is taken out. Where another one ends that scripts run, they never
/// do.
pub(super) fn beside_condition(block: &mut Directive) -> Vec<Directive> {
    if !is_condition(block) {
        return Vec::new();
    }
    let asked = block.arguments.join(" ").replace(['\'', '"'], "");
    let is_of_file = ["-f %{REQUEST_FILENAME}", "-f %{SCRIPT_FILENAME}"].contains(&asked.as_str());
    if block.is("If") && is_of_file {
        let inside = std::mem::take(&mut block.inside);
        let (outside, rest) = inside.into_iter().partition(is_handler);
        block.inside = rest;
        return outside;
    }
    if !ends_scripts(block) {
        return Vec::new();
    }
    let end = Directive {
        place: block.place,
        name: "php_admin_flag".to_owned(),
        arguments: vec!["engine".to_owned(), "off".to_owned()],
        ..Directive::default()
    };
    vec![end]
}

/// Whether a condition, anywhere in a block, ends that scripts run.
fn is_ended(block: &Directive) -> bool {
    is_condition(block) && ends_scripts(block) || block.inside.iter().any(is_ended)
}

fn ends_scripts(it: &Directive) -> bool {
    is_none(it) || it.inside.iter().any(ends_scripts)
}

/// Says of each handler that holds where a condition does what becomes of it.
pub(super) fn tell_conditions(all: &[Directive], draft: &mut Draft) {
    fn has_handler(it: &Directive) -> bool {
        is_handler(it) || it.inside.iter().any(has_handler)
    }
    for it in all {
        if is_condition(it) && (has_handler(it) || ends_scripts(it)) {
            draft.leave_out_limit(it, "its condition is not asked: scripts do not run by it");
        } else {
            tell_conditions(&it.inside, draft);
        }
    }
}

fn takes(at: &At, path: &str) -> bool {
    match at {
        At::Below(below) => path.starts_with(&format!("{below}/")),
        At::Expression(expression) => is_found(expression, path),
        _ => false,
    }
}

/// Adds the paths of scripts that a block gives to php-fpm. `below`: the path of the directory that
/// it stands in.
fn add(
    block: &Directive,
    below: &str,
    named_by: fn(&Directive) -> String,
    site: &Site,
    found: &mut GivenScripts,
) {
    let has_handler = block.inside.iter().any(is_handler);
    match block.name.to_ascii_lowercase().as_str() {
        "directory" => {
            let root = site.root.as_deref().unwrap_or_default();
            let directory = block.argument(0).trim_end_matches('/');
            let is_above = directory.is_empty()
                || root == directory
                || root
                    .strip_prefix(directory)
                    .is_some_and(|it| it.starts_with('/'));
            let inner = directory
                .strip_prefix(root)
                .filter(|it| it.starts_with('/'));
            let inner = inner.or_else(|| is_above.then_some(""));
            let Some(inner) = inner else {
                return;
            };
            if has_handler {
                found.all.push(At::Below(inner.to_owned()));
            }
            for it in &block.inside {
                add(it, inner, named_by, site, found);
            }
        }
        "files" | "filesmatch" | "location" | "locationmatch" if !has_handler => {
            let mut conditions = block.inside.iter().filter(|it| is_condition(it));
            found.is_conditional |= conditions.any(names_fpm);
        }
        "files" | "filesmatch" => {
            let name = named_by(block);
            if SCRIPTS.iter().all(|it| is_found(&name, it)) {
                return found.all.push(At::Below(below.to_owned()));
            }
            // A path after a script's name leads to it, too.
            let name = format!("{}(?:/|$)", name.strip_suffix('$').unwrap_or(&name));
            found.all.push(At::Expression(names_in(below, &name)));
        }
        "location" => {
            found.all.push(At::Below(
                block.argument(0).trim_end_matches('/').to_owned(),
            ));
        }
        "locationmatch" => expression(block.argument(0), &mut found.all),
        "proxypassmatch" if is_php(block.argument(1)) => {
            expression(block.argument(0), &mut found.all);
        }
        "proxypass" if is_php(block.argument(1)) => {
            found.all.push(At::Below(
                block.argument(0).trim_end_matches('/').to_owned(),
            ));
        }
        "if" | "elseif" | "else" => found.is_conditional |= names_fpm(block),
        "addhandler" | "addtype" | "sethandler" if is_handler(block) => {
            found.all.push(At::Below(below.to_owned()));
        }
        _ => {}
    }
}

fn expression(expression: &str, found: &mut Vec<At>) {
    found.push(if SCRIPTS.iter().all(|it| is_found(expression, it)) {
        At::Below(String::new())
    } else {
        At::Expression(expression.to_owned())
    });
}

fn is_handler(it: &Directive) -> bool {
    let is_one = ["SetHandler", "AddHandler", "AddType"]
        .iter()
        .any(|name| it.is(name));
    is_one && (is_php(it.argument(0)) || it.argument(0).starts_with("application/x-httpd-"))
}

fn names_fpm(it: &Directive) -> bool {
    it.arguments.iter().any(|it| is_php(it)) || it.inside.iter().any(names_fpm)
}

fn is_php(target: &str) -> bool {
    target.contains("fcgi:")
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use crate::tests::answer;
    use crate::{Converted, convert};

    fn made(inside: &str) -> String {
        of_host(inside).yaml
    }

    fn of_host(inside: &str) -> Converted {
        let text = format!(
            "<VirtualHost *:80>\nServerName a.x\nDocumentRoot /srv/x\n{inside}\n</VirtualHost>\n"
        );
        let directory = Directory::with(&[("site.conf", &text)]);
        convert(&[directory.join("site.conf")]).unwrap()
    }

    const FPM: &str = "SetHandler \"proxy:unix:/run/fpm.sock|fcgi://localhost\"";

    #[test]
    fn scripts_run_where_apache_gives_them_to_php_fpm() {
        let every = format!("<FilesMatch \"\\.php$\">\n{FPM}\n</FilesMatch>");
        let debian = format!("<FilesMatch \".+\\.ph(?:ar|p|tml)$\">\n{FPM}\n</FilesMatch>");
        let root = format!("<Directory /srv/x>\n{every}\n</Directory>");
        let above = format!("<Directory /srv>\n{every}\n</Directory>");
        let proxied =
            "ProxyPassMatch ^/(.*\\.php(/.*)?)$ fcgi://127.0.0.1:9000/srv/x/$1".to_owned();
        let added = "AddHandler \"proxy:fcgi://127.0.0.1:9000\" .php".to_owned();
        let sources = "<FilesMatch \"\\.phps$\">\nSetHandler application/x-httpd-php-source\n\
                       </FilesMatch>";
        for all in [
            sources, "", &every, &debian, &root, &above, &proxied, &added,
        ] {
            let yaml = made(all);
            assert!(!yaml.contains("scripts:"), "{all}\n{yaml}");
        }
    }

    #[test]
    fn others_do_not_run() {
        let every = format!("<FilesMatch \"\\.php$\">\n{FPM}\n</FilesMatch>");
        let front = format!("<Files index.php>\n{FPM}\n</Files>\nFallbackResource /index.php");
        for (some, open, rest) in [
            (
                format!("<Directory /srv/x/api>\n{every}\n</Directory>"),
                "~ (?-i)^/api(?:/|$)\", scripts: named}",
                "none",
            ),
            (
                "ProxyPassMatch ^/(index|info)\\.php$ fcgi://127.0.0.1:9000/srv/x/".to_owned(),
                "~ (?-i)^/(index|info)\\\\.php$\"",
                "none",
            ),
            (
                format!("<FilesMatch \"^(index|info)\\.php$\">\n{FPM}\n</FilesMatch>"),
                "info)\\\\.php(?:/|$)\"",
                "none",
            ),
            (
                front.replace("index.php", "app.php"),
                "app\\\\.php(?:/|$)\"",
                "front",
            ),
            (front, "index\\\\.php(?:/|$)\"", "front"),
        ] {
            let yaml = made(&some);
            assert!(yaml.contains(open), "{some}\n{yaml}");
            let is_index = !some.contains("/api") && rest == "none";
            assert!(
                !is_index || yaml.contains("/], scripts: named}"),
                "{some}\n{yaml}"
            );
            assert!(
                yaml.contains(&format!("scripts: {rest}}}")),
                "{some}\n{yaml}"
            );
        }
    }

    #[test]
    fn letters_of_another_case_are_another_script() {
        let every = format!("<FilesMatch \"\\.php$\">\n{FPM}\n</FilesMatch>");
        let of_directory = format!("<Directory /srv/x/api>\n{every}\n</Directory>");
        let of_names = format!("<FilesMatch \"^(index|info)\\.php$\">\n{FPM}\n</FilesMatch>");
        for (some, path, other) in [
            (of_directory, "/api/a.php", "/API/a.php"),
            (of_names, "/info.php/x", "/INFO.php"),
        ] {
            let yaml = made(&some);
            let asked = [path, other].map(|path| answer(&yaml, path, ""));
            assert_eq!(asked, ["Named", "Nothing"], "{yaml}");
        }
    }

    #[test]
    fn handlers_with_conditions_are_told_and_run_nothing() {
        let conditional = |condition: &str, handler: &str| {
            format!(
                "<FilesMatch \"\\.php$\">\n<If \"{condition}\">\n{handler}\n</If>\n</FilesMatch>"
            )
        };
        let off = "<If \"%{REQUEST_URI} =~ m#^/up/#\">\nSetHandler None\n</If>".to_owned();
        let named = conditional("%{HTTP_HOST} == 'a.x'", FPM);
        for (text, expected, told) in [
            (conditional("-f %{REQUEST_FILENAME}", FPM), "All", 0),
            (conditional("-f '%{SCRIPT_FILENAME}'", FPM), "All", 0),
            (named.clone(), "Nothing", 1),
            (
                format!("{named}\n<Files a.php>\n{FPM}\n</Files>"),
                "Nothing",
                1,
            ),
            (off.clone(), "Nothing", 1),
            (
                format!("{off}\n<Files b.php>\n{FPM}\n</Files>"),
                "Nothing",
                1,
            ),
            (
                format!("<Directory /srv/x>\nRequire all granted\n{off}\n</Directory>"),
                "Nothing",
                1,
            ),
        ] {
            let made = of_host(&text);
            let asked = answer(&made.yaml, "/up/b.php", "");
            assert_eq!(asked, expected, "{text}\n{}", made.yaml);
            assert_eq!(made.limits.len(), told, "{text}\n{:?}", made.limits);
        }
    }
}
