//! A Caddyfile with `php_server` or `php_fastcgi`: `FrankenPHP`'s, or Caddy's with php-fpm.

use super::directive::{self, Directive};
use super::draft::{ALL_CLOSED, Draft, Site, as_it_is, is_script, seconds, size};
use super::limits::limits;
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
    let snippets: Vec<&Directive> = all.iter().filter(|it| it.name.starts_with('(')).collect();
    for block in &all {
        if block.name.is_empty() {
            global(block, draft);
        } else if block.name == "import" {
            draft.leave_out(block);
        } else if !block.name.starts_with('(') {
            site(&with_snippets(block, &snippets), draft);
        }
    }
    Ok(())
}

/// A site with the snippets of the same file in the place of `import`.
fn with_snippets(block: &Directive, snippets: &[&Directive]) -> Directive {
    let mut out = Directive {
        inside: Vec::new(),
        ..block.clone()
    };
    for inside in &block.inside {
        let name = format!("({})", inside.argument(0));
        let known = snippets.iter().find(|it| it.name == name);
        match known.filter(|_| inside.name == "import" && inside.arguments.len() == 1) {
            Some(snippet) => out.inside.extend(snippet.inside.iter().cloned()),
            None => out.inside.push(inside.clone()),
        }
    }
    out
}

fn global(block: &Directive, draft: &mut Draft) {
    block.done();
    for option in &block.inside {
        match option.name.as_str() {
            "frankenphp" => {
                option.done();
                for inside in &option.inside {
                    match inside.name.as_str() {
                        "worker" => worker(inside, draft),
                        "num_threads" => inside.done(),
                        _ => {}
                    }
                }
            }
            "admin" | "order" => option.done(),
            _ => {}
        }
    }
    draft.leave_out_unread(&block.inside, "it holds nowhere here");
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
    let mut site = Site {
        line: block.line,
        ..Site::default()
    };
    for address in std::iter::once(&block.name).chain(&block.arguments) {
        listen(address.trim_end_matches(','), block, &mut site, draft);
    }
    let mut runs_php = false;
    for directive in &block.inside {
        runs_php |= ["php_server", "php_fastcgi", "php"].contains(&directive.name.as_str())
            && matcher(directive).is_none();
        of_site(directive, &mut site, draft);
    }
    if draft.leave_out_unread(&block.inside, ALL_CLOSED) {
        site.close("");
    }
    if !runs_php && site.root.is_some() {
        site.close("");
        let place = draft.place(block.line);
        draft.limits.push(format!(
            "{place}: `{}`: PHP does not run for all of it there: {ALL_CLOSED}",
            block.shown()
        ));
    }
    draft.sites.push(site);
}

/// What a directive is limited to; `*` is all.
fn matcher(directive: &Directive) -> Option<&str> {
    let first = directive.argument(0);
    first.starts_with(['/', '@']).then_some(first)
}

/// `/admin` or `/admin/*`; None for others.
fn folder(matcher: &str) -> Option<&str> {
    let path = matcher.strip_suffix("/*").unwrap_or(matcher);
    (path.starts_with('/') && !path.contains(['*', '{', '%']) && path != "/").then_some(path)
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
    // Where it listens, whatever hosts it is asked for.
    let bound = block.find("bind").filter(|bind| bind.arguments.len() == 1);
    let bound = bound.map_or("", |bind| {
        bind.done();
        bind.argument(0)
    });
    let mut at = |port: &str, is_tls| site.listens.push((format!("{bound}:{port}"), is_tls));
    match (scheme, port) {
        ("http", "") => at("80", false),
        ("http", port) => at(port, false),
        (_, port) if !port.is_empty() && port != "443" && !own => at(port, false),
        (_, port) if own => {
            at("80", false);
            at(if port.is_empty() { "443" } else { port }, true);
            draft.section("ssl").set("redirect", true);
        }
        _ => {
            at("80", false);
            let place = draft.place(block.line);
            draft.left_out.push(format!(
                "{place}: the certificate of `{host}`, which Caddy fetches by itself"
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
    if let Some(matcher) = matcher(directive)
        && limits(directive)
    {
        return closed(directive, matcher, site, draft);
    }
    if matcher(directive).is_some() && directive.name != "redir" && directive.arguments.len() > 1 {
        return;
    }
    match directive.name.as_str() {
        "root" => site.root = Some(last.trim_end_matches('/').to_owned()),
        "php_server" | "php" => php(directive, site, draft),
        "php_fastcgi" => {
            site.backends.push(last.to_owned());
            php(directive, site, draft);
        }
        "file_server" if directive.inside.is_empty() && first != "browse" => {}
        // Handlers for all paths.
        "route" if directive.arguments.is_empty() => {
            for inside in &directive.inside {
                of_site(inside, site, draft);
            }
        }
        "encode" => {
            draft.compress(Vec::new());
            directive.done_whole();
        }
        "tls" if directive.arguments.len() == 2 => {
            site.certificate = (Some(first.to_owned()), Some(last.to_owned()));
        }
        "header" if directive.inside.is_empty() => {
            return header(&directive.arguments, directive, draft);
        }
        "header" => {
            for inside in &directive.inside {
                let mut words = vec![inside.name.clone()];
                words.extend(inside.arguments.iter().cloned());
                header(&words, inside, draft);
            }
        }
        "redir" => return redirect(directive, site, draft),
        "request_body" => match directive
            .find("max_size")
            .and_then(|it| size(it.argument(0)))
        {
            Some(size) => {
                draft.http().set("max_request_size", size);
                directive.done_whole();
            }
            None => return,
        },
        "log" => {
            let output = directive
                .find("output")
                .filter(|it| it.argument(0) == "file");
            if let Some(output) = output {
                draft
                    .section("access_log")
                    .push("output", output.argument(1));
                output.done();
            }
        }
        _ => return,
    }
    directive.done();
}

/// What some or all may not have.
fn closed(directive: &Directive, matcher: &str, site: &mut Site, draft: &mut Draft) {
    let Some(path) = folder(matcher) else {
        return;
    };
    site.close(path);
    let refuses = ["403", "404", "410"];
    let is_refused = directive.arguments.len() == 2 && refuses.contains(&directive.argument(1));
    if ["respond", "error"].contains(&directive.name.as_str()) && is_refused {
        directive.done_whole();
        return draft.note_closed(directive);
    }
    draft.leave_out_limit(
        directive,
        "the path is answered 404, by a route with `strip_prefix: /closed`",
    );
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
            _ => return,
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
        "worker" => return worker(inside, draft),
        _ => return,
    }
    inside.done();
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
        _ => return,
    }
    directive.done();
}

fn redirect(directive: &Directive, site: &Site, draft: &mut Draft) {
    let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
    let (from, to, status) = match words[..] {
        [from, to] if from.starts_with('/') => (from, to, "302"),
        [from, to, status] if from.starts_with('/') => (from, to, status),
        _ => return,
    };
    let status = match status {
        "permanent" => "301",
        "temporary" => "302",
        other => other,
    };
    let is_redirect = ["301", "302", "303", "307", "308"].contains(&status);
    if to.contains('{') || from.contains('*') || !is_redirect {
        return;
    }
    let plain = as_it_is(from);
    let mut rule = Tree::default();
    if let [name, ..] = &site.names[..] {
        rule.set("host", name.as_str());
    }
    rule.set("path", format!("^{plain}$")).set("to", to);
    rule.set("status", Value::Bare(status.to_owned()));
    draft.rewrite(rule);
    directive.done();
}
