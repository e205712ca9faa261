//! Which scripts Apache gives to PHP, where handlers of php-fpm are for some alone.

use super::directive::Directive;
use super::draft::{At, Rank, Site, is_found, names_in, scripts};
use super::tree::Value;

/// Names of scripts that nobody has on purpose.
const SCRIPTS: [&str; 4] = ["/a.php", "/zq-1.php", "/x_y.z.php", "/d-1/e/b.php"];

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
    let mut found = Vec::new();
    for block in blocks {
        add(block, "", named_by, site, &mut found);
    }
    let is_all = |at: &At| *at == At::Below(String::new());
    if !blocks.iter().any(|it| names_fpm(it)) || found.is_empty() || found.iter().any(is_all) {
        return;
    }
    let front = match site.pool.get("fallback") {
        Some(Value::Text(script)) => format!("/{script}"),
        _ => "/index.php".to_owned(),
    };
    let runs_front = has_front && found.iter().any(|at| takes(at, &front));
    let whole = if runs_front { "front" } else { "none" };
    // The root's own path is none of the script that stands for it.
    if found.iter().any(|at| takes(at, "/index.php")) {
        site.rule(At::Path("/".to_owned()), Rank::Plain, scripts("named"));
    }
    for at in found {
        let rank = match at {
            At::Expression(_) => Rank::Expression,
            _ => Rank::Plain,
        };
        site.rule(at, rank, scripts("named"));
    }
    if site.whole.is_empty() {
        site.whole = scripts(whole);
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
    found: &mut Vec<At>,
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
                found.push(At::Below(inner.to_owned()));
            }
            for it in &block.inside {
                add(it, inner, named_by, site, found);
            }
        }
        "files" | "filesmatch" if has_handler => {
            let name = named_by(block);
            if SCRIPTS.iter().all(|it| is_found(&name, it)) {
                return found.push(At::Below(below.to_owned()));
            }
            // A path after a script's name leads to it, too.
            let name = format!("{}(?:/|$)", name.strip_suffix('$').unwrap_or(&name));
            found.push(At::Expression(names_in(below, &name)));
        }
        "location" if has_handler => {
            found.push(At::Below(
                block.argument(0).trim_end_matches('/').to_owned(),
            ));
        }
        "locationmatch" if has_handler => expression(block.argument(0), found),
        "proxypassmatch" if is_php(block.argument(1)) => expression(block.argument(0), found),
        "proxypass" if is_php(block.argument(1)) => {
            found.push(At::Below(
                block.argument(0).trim_end_matches('/').to_owned(),
            ));
        }
        "addhandler" | "addtype" | "sethandler" if is_handler(block) => {
            found.push(At::Below(below.to_owned()));
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

    use crate::convert;

    fn made(inside: &str) -> String {
        let text = format!(
            "<VirtualHost *:80>\nServerName a.x\nDocumentRoot /srv/x\n{inside}\n</VirtualHost>\n"
        );
        let directory = Directory::with(&[("site.conf", &text)]);
        convert(&[directory.join("site.conf")]).unwrap().yaml
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
                "{path: \"/api/*\", scripts: named}",
                "none",
            ),
            (
                "ProxyPassMatch ^/(index|info)\\.php$ fcgi://127.0.0.1:9000/srv/x/".to_owned(),
                "~ ^/(index|info)\\\\.php$\"",
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
}
