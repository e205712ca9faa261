//! A Caddyfile with `php_server` or `php_fastcgi`: `FrankenPHP`'s, or Caddy's with php-fpm.

use super::directive::{self, Directive};
use super::draft::{
    ALL_CLOSED, At, Draft, NOT_FOUND, Rank, Site, as_it_is, is_script, refusal, scripts, seconds,
    size,
};
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
    let is_site = |it: &&Directive| !it.name.is_empty() && !it.name.starts_with('(');
    draft.has_many |= all.iter().filter(is_site).count() > 1;
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
    let matchers = Matchers::of(&block.inside);
    // The root must be known before files below it are looked at.
    let mut all: Vec<&Directive> = block.inside.iter().collect();
    all.sort_by_key(|it| it.name != "root");
    for directive in all {
        of_site(directive, &mut site, draft, &matchers);
    }
    if draft.leave_out_unread(&block.inside, ALL_CLOSED) {
        site.close("");
    }
    if !runs_php(&block.inside) && site.root.is_some() && site.whole.is_empty() {
        site.whole = scripts("none");
    }
    draft.sites.push(site);
}

const PHP: [&str; 3] = ["php_server", "php_fastcgi", "php"];

/// Whether scripts run for all paths that no other block takes.
fn runs_php(all: &[Directive]) -> bool {
    all.iter().any(|it| {
        let is_php = PHP.contains(&it.name.as_str());
        let is_around = ["handle", "route"].contains(&it.name.as_str());
        matcher(it).is_none() && (is_php || is_around && runs_php(&it.inside))
    })
}

/// `@name`: what it says of requests.
struct Matchers(Vec<(String, Matched)>);

/// Requests that a matcher is about.
#[derive(Debug, Clone, Default)]
struct Matched {
    paths: Vec<At>,
    /// Conditions on fields and the method, by one key each.
    keys: Vec<Tree>,
    /// It says more, so that fewer requests match.
    has_more: bool,
}

impl Matchers {
    fn of(all: &[Directive]) -> Self {
        let named = all.iter().filter(|it| it.name.starts_with('@'));
        Self(named.map(|it| (it.name.clone(), Matched::of(it))).collect())
    }

    fn get(&self, matcher: &str) -> Matched {
        if matcher.starts_with('/') {
            return Matched {
                paths: vec![at(matcher)],
                ..Matched::default()
            };
        }
        let known = self.0.iter().find(|(name, _)| name == matcher);
        known.map(|(_, it)| it.clone()).unwrap_or_default()
    }
}

impl Matched {
    fn of(definition: &Directive) -> Self {
        // Its limits are told where it is used.
        definition.done_whole();
        let mut all = definition.inside.clone();
        if let [kind, arguments @ ..] = &definition.arguments[..] {
            all.push(Directive {
                name: kind.clone(),
                arguments: arguments.to_vec(),
                ..Directive::default()
            });
        }
        let mut matched = Self::default();
        for it in &all {
            match (it.name.as_str(), &it.arguments[..]) {
                ("path", paths) if !paths.is_empty() => {
                    matched.paths.extend(paths.iter().map(|path| at(path)));
                }
                ("path_regexp", [.., expression]) => {
                    matched.paths.push(At::Expression(expression.clone()));
                }
                ("method", methods) if !methods.is_empty() => {
                    let mut keys = Tree::default();
                    keys.set("method", methods.to_vec());
                    matched.keys.push(keys);
                }
                ("header", [name, value]) if !name.starts_with('!') => {
                    let mut fields = Tree::default();
                    let value = value
                        .split('*')
                        .map(as_it_is)
                        .collect::<Vec<_>>()
                        .join(".*");
                    fields.set(name, format!("^{value}$"));
                    let mut keys = Tree::default();
                    keys.set("header", Value::Map(fields));
                    matched.keys.push(keys);
                }
                _ => matched.has_more = true,
            }
        }
        matched
    }
}

/// A path as a matcher has it.
fn at(path: &str) -> At {
    match path.strip_suffix("/*") {
        Some(above) if !above.contains('*') && !above.is_empty() => At::Below(above.to_owned()),
        _ if path.contains('*') => {
            let parts: Vec<_> = path.split('*').map(as_it_is).collect();
            let expression = format!("^{}$", parts.join(".*"));
            let expression = expression.strip_prefix("^.*").unwrap_or(&expression);
            At::Expression(
                expression
                    .strip_suffix(".*$")
                    .unwrap_or(expression)
                    .to_owned(),
            )
        }
        _ => At::Path(path.to_owned()),
    }
}

/// What a directive is limited to; `*` is all.
fn matcher(directive: &Directive) -> Option<&str> {
    let first = directive.argument(0);
    first.starts_with(['/', '@']).then_some(first)
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

fn of_site(directive: &Directive, site: &mut Site, draft: &mut Draft, matchers: &Matchers) {
    let first = directive.argument(0);
    let last = directive
        .arguments
        .last()
        .map(String::as_str)
        .unwrap_or_default();
    if let Some(matcher) = matcher(directive) {
        let matched = matchers.get(matcher);
        if let Some(status) = refuses(directive) {
            return refuse(directive, &matched, status, site, draft);
        }
        if ["handle", "handle_path", "route"].contains(&directive.name.as_str()) {
            return block_of_paths(directive, &matched, site, draft, matchers);
        }
        if PHP.contains(&directive.name.as_str()) && !matched.has_more && matched.keys.is_empty() {
            // It runs there and nowhere else.
            for at in matched.paths {
                site.rule(at, Rank::Plain, Tree::default());
            }
            site.whole = scripts("none");
            site.backends.push(last.to_owned());
            return directive.done();
        }
        if limits(directive) {
            return refuse(directive, &matched, NOT_FOUND, site, draft);
        }
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
        "file_server" if first != "browse" => {
            for inside in directive.inside.iter().filter(|it| it.name == "hide") {
                for name in &inside.arguments {
                    hide(name, site);
                }
                inside.done();
            }
        }
        // Handlers for all paths.
        "route" | "handle" if directive.arguments.is_empty() => {
            for inside in &directive.inside {
                of_site(inside, site, draft, matchers);
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

/// The status of a directive that refuses.
fn refuses(directive: &Directive) -> Option<&str> {
    let is_status = |it: &&String| it.len() == 3 && it.starts_with('4');
    match directive.name.as_str() {
        "respond" | "error" => {
            let status = directive.arguments.iter().skip(1).find(is_status);
            let inside = directive.inside.iter().all(|it| it.name == "close");
            status.filter(|_| inside).map(String::as_str)
        }
        "abort" => Some(NOT_FOUND),
        _ => None,
    }
}

/// Refuses the requests of a matcher, and tells what it says more.
fn refuse(
    directive: &Directive,
    matched: &Matched,
    status: &str,
    site: &mut Site,
    draft: &mut Draft,
) {
    let mut is_taken = true;
    let mut outcome = format!("the path is answered {status}, by a route with `refuse: {status}`");
    for at in &matched.paths {
        for keys in matched
            .keys
            .iter()
            .map(Some)
            .chain(matched.keys.is_empty().then_some(None))
        {
            let refused = match (at, keys) {
                (At::Expression(expression), None) => {
                    let wider = site.refuse_expression(expression, status);
                    let is_exact = wider.is_none();
                    outcome = wider.unwrap_or(outcome);
                    is_exact
                }
                (at, None) => site.rule(at.clone(), Rank::Refusal, refusal(status)),
                (at, Some(keys)) => {
                    let mut keys = keys.clone();
                    keys.merge(refusal(status));
                    site.rule(at.clone(), Rank::Exact, keys)
                }
            };
            is_taken &= refused;
        }
    }
    if matched.paths.is_empty() {
        is_taken = !matched.keys.is_empty() && !matched.has_more;
        for keys in matched.keys.iter().filter(|_| !matched.has_more) {
            let mut keys = keys.clone();
            keys.merge(refusal(status));
            is_taken &= site.condition(keys);
        }
        if !is_taken {
            site.close("");
            ALL_CLOSED.clone_into(&mut outcome);
        }
    }
    let says_all = !matched.has_more && matched.keys.len() < 2 && refuses(directive).is_some();
    if is_taken && says_all {
        return directive.done_whole();
    }
    draft.leave_out_limit(directive, &outcome);
}

/// `handle`, `handle_path` or `route` for some paths.
fn block_of_paths(
    block: &Directive,
    matched: &Matched,
    site: &mut Site,
    draft: &mut Draft,
    matchers: &Matchers,
) {
    let is_plain = !matched.has_more && matched.keys.is_empty() && !matched.paths.is_empty();
    if let [inside] = &block.inside[..]
        && matcher(inside).is_none()
        && let Some(status) = ["respond", "error"]
            .contains(&inside.name.as_str())
            .then(|| {
                inside
                    .arguments
                    .iter()
                    .find(|it| it.len() == 3 && it.starts_with('4'))
            })
            .flatten()
    {
        let status = status.clone();
        refuse(block, matched, &status, site, draft);
        if is_plain {
            block.done_whole();
        }
        return;
    }
    if block.inside.iter().any(limits) || !is_plain {
        if limits(block) || !runs_php(&block.inside) {
            refuse(block, matched, NOT_FOUND, site, draft);
        }
        return;
    }
    if runs_php(&block.inside) {
        if block.inside.iter().any(|it| it.name == "root") {
            return refuse(block, matched, NOT_FOUND, site, draft);
        }
        block.done();
        for inside in &block.inside {
            of_site(inside, site, draft, matchers);
        }
        return;
    }
    block.done();
    let root = block.find("root");
    if let Some(root) = root {
        root.done();
    }
    for inside in block.inside.iter().filter(|it| it.name != "root") {
        if ["file_server", "encode"].contains(&inside.name.as_str()) {
            of_site(inside, site, draft, matchers);
        }
    }
    let has_files = block.has("file_server");
    for at in &matched.paths {
        let root = root.and_then(|it| it.arguments.last());
        let root = root.map(|it| it.trim_end_matches('/').to_owned());
        let root = root.or_else(|| (block.name == "handle_path").then(|| site.root.clone())?);
        match (at, root) {
            (At::Below(path), Some(root)) if has_files => {
                let mut files = Tree::default();
                let root = if block.name == "handle_path" {
                    root
                } else {
                    format!("{root}{path}")
                };
                files.set("prefix", path.as_str()).set("root", root);
                draft.serve_files(files);
                site.rest_of_files(at.clone(), Rank::Plain);
            }
            (at, None) if has_files => _ = site.rule(at.clone(), Rank::Plain, scripts("none")),
            (at, _) => _ = site.rule(at.clone(), Rank::Refusal, refusal(NOT_FOUND)),
        }
    }
    draft.leave_out_unread(&block.inside, "the path is answered 404, or by files alone");
}

/// A name of files or directories that are not sent, in any directory.
fn hide(name: &str, site: &mut Site) {
    let parts: Vec<_> = name.trim_matches('/').split('*').map(as_it_is).collect();
    site.refuse_expression(&format!("/{}(/|$)", parts.join("[^/]*")), NOT_FOUND);
    // Other directories of files have a `hide` of their own.
    if let Some(rule) = site.rules.last_mut() {
        rule.after_files = true;
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
    draft.for_hosts(&mut rule, site);
    rule.set("path", format!("^{plain}$")).set("to", to);
    rule.set("status", Value::Bare(status.to_owned()));
    draft.rewrite(rule);
    directive.done();
}
