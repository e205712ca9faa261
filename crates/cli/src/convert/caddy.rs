//! A Caddyfile with `php_server` or `php_fastcgi`: `FrankenPHP`'s, or Caddy's with php-fpm.

use super::directive::{self, Directive};
use super::draft::{Draft, Site, is_script, seconds, size};
use super::tree::{Tree, Value};

pub(super) fn read(text: &str, draft: &mut Draft) -> Result<(), String> {
    let all = directive::caddy(text)?;
    // A file of one site may have it without braces.
    let is_bare = all.first().is_some_and(|it| {
        it.inside.is_empty() && it.arguments.is_empty() && !it.name.starts_with('(')
    });
    if is_bare && let Some((first, rest)) = all.split_first() {
        let site = Directive {
            inside: rest.to_vec(),
            ..first.clone()
        };
        self::site(&site, draft);
        return Ok(());
    }
    for block in &all {
        if block.name.is_empty() {
            global(block, draft);
        } else if block.name.starts_with('(') || block.name == "import" {
            draft.leave_out(block);
        } else {
            site(block, draft);
        }
    }
    Ok(())
}

fn global(block: &Directive, draft: &mut Draft) {
    for option in &block.inside {
        match option.name.as_str() {
            "frankenphp" => {
                for inside in &option.inside {
                    match inside.name.as_str() {
                        "worker" => worker(inside, draft),
                        "num_threads" => {}
                        _ => draft.leave_out(inside),
                    }
                }
            }
            "admin" | "order" => {}
            _ => draft.leave_out(option),
        }
    }
}

/// A worker of `FrankenPHP` takes its calls by a function of its own.
fn worker(directive: &Directive, draft: &mut Draft) {
    draft.leave_out(directive);
    draft.note(
        "a script that calls `frankenphp_handle_request()` runs for each request here; \
         `Pronghorn\\serve()` keeps it",
    );
}

fn site(block: &Directive, draft: &mut Draft) {
    let mut site = Site::default();
    for address in std::iter::once(&block.name).chain(&block.arguments) {
        listen(address.trim_end_matches(','), block, &mut site, draft);
    }
    for directive in &block.inside {
        of_site(directive, &mut site, draft);
    }
    draft.sites.push(site);
}

fn listen(address: &str, block: &Directive, site: &mut Site, draft: &mut Draft) {
    let (scheme, place) = address.split_once("://").unwrap_or(("", address));
    let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
    let own = block
        .find("tls")
        .is_some_and(|tls| tls.arguments.len() == 2);
    if !host.is_empty() {
        site.names.push(host.to_owned());
    }
    match (scheme, port) {
        ("http", "") => draft.listen(":80"),
        ("http", port) => draft.listen(&format!(":{port}")),
        (_, port) if !port.is_empty() && port != "443" && !own => draft.listen(&format!(":{port}")),
        (_, port) if own => {
            draft.listen(":80");
            let port = if port.is_empty() { "443" } else { port };
            draft.listen_tls(&format!(":{port}"));
            draft.section("ssl").set("redirect", true);
        }
        _ => {
            draft.listen(":80");
            draft.left_out.push(format!(
                "line {}: the certificate of `{host}`, which Caddy fetches by itself",
                block.line
            ));
        }
    }
}

fn of_site(directive: &Directive, site: &mut Site, draft: &mut Draft) {
    let first = directive.argument(0);
    let last = directive
        .arguments
        .last()
        .map(String::as_str)
        .unwrap_or_default();
    match directive.name.as_str() {
        "root" => site.root = Some(last.trim_end_matches('/').to_owned()),
        "php_server" | "php" => php(directive, site, draft),
        "php_fastcgi" => {
            for inside in &directive.inside {
                php_option(inside, site, draft);
            }
        }
        "file_server" if directive.inside.is_empty() && first != "browse" => {}
        "encode" => draft.compress(Vec::new()),
        "tls" if directive.arguments.len() == 2 => {
            draft.section("ssl").set("cert", first).set("key", last);
        }
        "header" if directive.inside.is_empty() => header(&directive.arguments, directive, draft),
        "header" => {
            for inside in &directive.inside {
                let mut words = vec![inside.name.clone()];
                words.extend(inside.arguments.iter().cloned());
                header(&words, inside, draft);
            }
        }
        "redir" => redirect(directive, draft),
        "request_body" => match directive
            .find("max_size")
            .and_then(|it| size(it.argument(0)))
        {
            Some(size) => _ = draft.http().set("max_request_size", size),
            None => draft.leave_out(directive),
        },
        "log" => {
            let output = directive
                .find("output")
                .filter(|it| it.argument(0) == "file");
            if let Some(output) = output {
                draft
                    .section("access_log")
                    .push("output", output.argument(1));
            }
        }
        _ => draft.leave_out(directive),
    }
}

fn php(directive: &Directive, site: &mut Site, draft: &mut Draft) {
    for inside in &directive.inside {
        php_option(inside, site, draft);
    }
}

fn php_option(inside: &Directive, site: &mut Site, draft: &mut Draft) {
    let first = inside.argument(0);
    match inside.name.as_str() {
        "root" => site.root = Some(first.trim_end_matches('/').to_owned()),
        "index" if first != "index.php" => _ = site.pool.set("index", inside.arguments.clone()),
        "index" | "split_path" => {}
        "env" => {
            let value = inside.argument(1);
            let value = match value.strip_prefix("{$").and_then(|it| it.strip_suffix('}')) {
                Some(name) => format!("${{{name}}}"),
                None => value.to_owned(),
            };
            draft.tree.map(&["server", "env"]).set(first, value);
        }
        "try_files" => match inside.arguments.last().map(String::as_str) {
            Some("index.php" | "{path}/index.php" | "/index.php") => {}
            Some(script) if is_script(script) => {
                site.pool.set("fallback", script.trim_start_matches('/'));
            }
            _ => draft.leave_out(inside),
        },
        "resolve_root_symlink" if first != "false" => {
            site.pool.set("resolve_root", "each_request");
        }
        "resolve_root_symlink" => {}
        "read_timeout" if let Some(seconds) = seconds(first) => {
            site.pool
                .map(&["supervisor"])
                .set("exec_ttl", format!("{seconds}s"));
        }
        "worker" => worker(inside, draft),
        _ => draft.leave_out(inside),
    }
}

fn header(words: &[String], directive: &Directive, draft: &mut Draft) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let words = words.strip_prefix(&["*"]).unwrap_or(&words);
    match words {
        [name, value] if name.eq_ignore_ascii_case("strict-transport-security") => {
            draft.hsts(value);
        }
        [name, value] if !value.contains('{') && !name.starts_with(['?', '/', '@']) => {
            draft.response_field(name.trim_start_matches('+'), value);
        }
        [name] if let Some(name) = name.strip_prefix('-') => draft.response_field(name, ""),
        _ => draft.leave_out(directive),
    }
}

fn redirect(directive: &Directive, draft: &mut Draft) {
    let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
    let (from, to, status) = match words[..] {
        [from, to] if from.starts_with('/') => (from, to, "302"),
        [from, to, status] if from.starts_with('/') => (from, to, status),
        _ => return draft.leave_out(directive),
    };
    let status = match status {
        "permanent" => "301",
        "temporary" => "302",
        other => other,
    };
    if to.contains('{') || from.contains('*') || status.parse::<u16>().is_err() {
        return draft.leave_out(directive);
    }
    let mut rule = Tree::default();
    rule.set("path", format!("^{from}$")).set("to", to);
    rule.set("status", Value::Bare(status.to_owned()));
    draft.rewrite(rule);
}
