//! A Caddyfile with `php_server` or `php_fastcgi`: `FrankenPHP`'s, or Caddy's with php-fpm.

use super::access;
use super::directive::{Directive, Fate};
use super::draft::{
    ALL_CLOSED, At, Draft, NOT_FOUND, Rank, Site, accepts_rule, as_it_is, is_found, is_in,
    is_script, pattern, refusal, scripts, seconds, size,
};
use super::limits::{NAMES, limits};
use super::tree::{Tree, Value};

/// More are no configuration that a person wrote.
const MOST_EXPANDED: usize = 20_000;
/// The same for snippets in snippets.
const DEEPEST_IMPORT: usize = 16;

pub(super) fn read(all: &[Directive], draft: &mut Draft) {
    // A file of one site may have it without braces.
    let is_bare = all.first().is_some_and(|it| {
        it.inside.is_empty() && it.arguments.is_empty() && !it.name.starts_with('(')
    });
    if is_bare && let Some((first, rest)) = all.split_first() {
        let site = Directive {
            inside: rest.to_vec(),
            ..first.clone()
        };
        return self::site(&site, draft);
    }
    let is_site = |it: &&Directive| {
        let is_other = it.name.starts_with(['(', '&']) || it.name == "import";
        !it.name.is_empty() && !is_other
    };
    draft.has_many |= all.iter().filter(is_site).count() > 1;
    draft.moves_rewrites |= all.iter().any(moves_rewrites);
    let snippets: Vec<&Directive> = all.iter().filter(|it| it.name.starts_with('(')).collect();
    for block in all {
        if block.name.is_empty() {
            global(block, draft);
        } else if block.name == "import" || block.name.starts_with("&(") {
            draft.leave_out(block);
        } else if !block.name.starts_with('(') {
            let mut left = MOST_EXPANDED;
            let block = Directive {
                inside: expanded(&block.inside, &snippets, 0, &mut left),
                ..block.clone()
            };
            site(&block, draft);
        }
    }
}

/// A text with the defaults of `{$NAME:default}`, which Caddy puts in before it reads statements.
pub(super) fn with_defaults(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("{$") {
        let (before, variable) = rest.split_at(at);
        out.push_str(before);
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let inside = variable.get(2..).unwrap_or_default();
        let name = inside.find(|c| !is_letter(c)).unwrap_or(inside.len());
        let default = inside.get(name..).and_then(|it| it.strip_prefix(':'));
        match default.and_then(|it| it.split_once('}')) {
            Some((default, after)) if name > 0 && !default.contains(['\n', '{']) => {
                out.push_str(default);
                rest = after;
            }
            _ => {
                out.push_str("{$");
                rest = inside;
            }
        }
    }
    out + rest
}

/// Statements with the snippets of the same file in the place of `import`, also in blocks and in
/// snippets. An `import` of anything else stays, and closes its site.
fn expanded(
    all: &[Directive],
    snippets: &[&Directive],
    depth: usize,
    left: &mut usize,
) -> Vec<Directive> {
    let mut out = Vec::new();
    for directive in all {
        *left = left.saturating_sub(1);
        let name = format!("({})", directive.argument(0));
        let snippet = snippets.iter().find(|it| it.name == name);
        let snippet = snippet.filter(|_| {
            let is_plain = directive.name == "import" && directive.inside.is_empty();
            is_plain && depth < DEEPEST_IMPORT && *left > 0
        });
        let given = directive.arguments.get(1..).unwrap_or_default();
        match snippet.and_then(|it| with_arguments(&it.inside, given)) {
            Some(inside) => out.extend(expanded(&inside, snippets, depth + 1, left)),
            None => out.push(Directive {
                inside: expanded(&directive.inside, snippets, depth, left),
                ..directive.clone()
            }),
        }
    }
    out
}

/// A snippet with what its `import` gives in the place of `{args[0]}` and its kind. None where
/// something stands for what is not given.
fn with_arguments(all: &[Directive], given: &[String]) -> Option<Vec<Directive>> {
    let in_word = |word: &str| {
        let mut word = word.to_owned();
        for (nth, value) in given.iter().enumerate() {
            word = word.replace(&format!("{{args.{nth}}}"), value);
            word = word.replace(&format!("{{args[{nth}]}}"), value);
        }
        (!["{args", "{block"].iter().any(|it| word.contains(it))).then_some(word)
    };
    let in_directive = |it: &Directive| {
        let mut arguments = Vec::new();
        for word in &it.arguments {
            if word == "{args[:]}" {
                arguments.extend(given.iter().cloned());
            } else {
                arguments.push(in_word(word)?);
            }
        }
        Some(Directive {
            name: in_word(&it.name)?,
            arguments,
            inside: with_arguments(&it.inside, given)?,
            ..it.clone()
        })
    };
    all.iter().map(in_directive).collect()
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

/// Whether global options change which of `rewrite` and a statement that refuses comes first: Caddy
/// rewrites before it refuses.
fn moves_rewrites(block: &Directive) -> bool {
    let is_global = block.name.is_empty();
    let moves = |option: &Directive| {
        let moved = option.argument(0);
        let is_one = ["rewrite", "handle", "handle_path", "route"].contains(&moved);
        option.name == "order" && (is_one || NAMES.contains(&moved))
    };
    is_global && block.inside.iter().any(moves)
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
        place: block.place,
        ..Site::default()
    };
    for address in std::iter::once(&block.name).chain(&block.arguments) {
        listen(address.trim_end_matches(','), block, &mut site, draft);
    }
    let around = Around::of(&block.inside);
    site.gives_php = names_php(&block.inside);
    // The root must be known before files below it are looked at.
    let mut all: Vec<&Directive> = block.inside.iter().collect();
    all.sort_by_key(|it| it.name != "root");
    for directive in all {
        if !lead(directive, &mut site, draft, &around) {
            of_site(directive, &mut site, draft, &around);
        }
    }
    let has_files = site.root.is_some() || runs_php(&block.inside);
    close_ways(&block.inside, has_files, &mut site, draft, &around);
    if !around.sends_all && site.root.is_some() {
        site.send_none("");
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

/// Whether scripts run for some paths.
fn names_php(all: &[Directive]) -> bool {
    all.iter()
        .any(|it| PHP.contains(&it.name.as_str()) || names_php(&it.inside))
}

/// Statements that lead no request away from the file below the root.
const HARMLESS: [&str; 24] = [
    "bind",
    "copy_response_headers",
    "encode",
    "file_server",
    "handle_errors",
    "header",
    "intercept",
    "log",
    "log_append",
    "log_name",
    "log_skip",
    "map",
    "mercure",
    "method",
    "php",
    "php_fastcgi",
    "php_server",
    "request_body",
    "request_header",
    "skip_log",
    "templates",
    "tls",
    "tracing",
    "vulcain",
];

/// Whether a statement may lead requests elsewhere, so far as it is not translated.
fn leads_away(directive: &Directive) -> bool {
    let name = directive.name.as_str();
    // A variable of the environment has no text here.
    let is_other = !HARMLESS.contains(&name) && name != "vars" && !name.starts_with(['@', '{']);
    is_other && !directive.arguments.iter().any(|it| is_of_file(it))
}

/// Whether a target is the file that a matcher has found, or the path with a slash after it.
fn is_of_file(target: &str) -> bool {
    let found = [
        "{http.matchers.file.relative}",
        "{file_match.relative}",
        "{path}/",
        "{http.request.orig_uri.path}/",
    ];
    found.contains(&target)
}

/// Closes what statements lead elsewhere that nobody has translated. Without files there is nothing
/// to close.
fn close_ways(
    all: &[Directive],
    has_files: bool,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
) {
    for directive in all {
        let is_around = ["handle", "route"].contains(&directive.name.as_str());
        match directive.fate.get() {
            Fate::Done if is_around => {
                close_ways(&directive.inside, has_files, site, draft, around);
            }
            Fate::Unread if !limits(directive) => {
                let matched = matcher(directive).map(|it| around.get(it));
                let leads = has_files && leads_away(directive);
                match matched {
                    Some(matched) if leads && !matched.without_file => {
                        refuse(directive, &matched, NOT_FOUND, site, draft);
                    }
                    None if leads => {
                        site.close("");
                        draft.leave_out_limit(directive, ALL_CLOSED);
                    }
                    _ => draft.leave_out(directive),
                }
            }
            _ => {}
        }
    }
}

/// `redir` and `rewrite` of some paths to one target, as rules that come before all else. What they
/// do not take of these paths is closed. False for any other statement.
fn lead(directive: &Directive, site: &mut Site, draft: &mut Draft, around: &Around) -> bool {
    let Some(matched) = matcher(directive).map(|it| around.get(it)) else {
        return false;
    };
    let is_plain = !matched.has_more && matched.keys.is_empty() && !matched.paths.is_empty();
    let status = match (directive.name.as_str(), directive.arguments.len()) {
        ("rewrite", 2) => None,
        ("redir", 2) => Some("302"),
        ("redir", 3) => Some(match directive.argument(2) {
            "permanent" => "301",
            "temporary" => "302",
            other => other,
        }),
        _ => return false,
    };
    let is_status = |it| ["301", "302", "303", "307", "308"].contains(&it);
    let to = directive.argument(1);
    let is_fixed = !to.contains(['{', '}']) && (to.starts_with('/') || to.contains("://"));
    let target = to.split(['?', '#']).next().unwrap_or_default();
    let takes_target = |at: &At| match at {
        At::Path(path) => path == target,
        At::Below(path) => is_in(target, path),
        At::Expression(expression) => is_found(expression, target),
        At::Start(_) | At::Without(_) => true,
    };
    if !is_plain
        || !is_fixed
        || status.is_none() && draft.moves_rewrites
        || !status.is_none_or(is_status)
        || matched.paths.iter().any(takes_target)
    {
        return false;
    }
    let mut rules = Vec::new();
    for at in &matched.paths {
        let expression = match at {
            At::Path(path) => format!("^{}$", as_it_is(path)),
            At::Below(path) => format!("^{}/", as_it_is(path)),
            At::Expression(expression) => pattern(expression),
            At::Start(_) | At::Without(_) => return false,
        };
        let mut rule = Tree::default();
        draft.for_hosts(&mut rule, site);
        // A redirect leads to this very address, without the client's query.
        let end = status.map_or("", |_| "?");
        rule.set("path", expression).set("to", format!("{to}{end}"));
        match status {
            Some(status) => _ = rule.set("status", Value::Bare(status.to_owned())),
            // Caddy rewrites before it refuses, also what another statement closes.
            None => _ = rule.set("unless_refused", false),
        }
        if !accepts_rule(&rule) {
            return false;
        }
        rules.push(rule);
    }
    directive.done();
    for rule in rules {
        draft.rewrite(rule);
    }
    for at in matched.paths {
        match at {
            // `/blog` to `/blog/`: it is no file.
            At::Path(path) if !path.contains('.') => {}
            At::Expression(expression) => {
                if let Some(wider) = site.refuse_expression(&expression, NOT_FOUND) {
                    draft.leave_out_limit(directive, &wider);
                }
            }
            at => site.refuse(at, NOT_FOUND),
        }
    }
    true
}

/// Whether files are sent for all paths that no other block takes.
fn sends_files(all: &[Directive]) -> bool {
    all.iter().any(|it| {
        matcher(it).is_none()
            && match it.name.as_str() {
                "file_server" => true,
                "php_server" => it
                    .find("file_server")
                    .is_none_or(|files| files.argument(0) != "off"),
                "handle" | "route" => sends_files(&it.inside),
                _ => false,
            }
    })
}

/// The facts about a site.
struct Around {
    /// `@name`: what it says of requests.
    matchers: Vec<(String, Matched)>,
    /// Files are sent for all paths.
    sends_all: bool,
    /// Scripts run for all paths that no other block takes.
    runs_all: bool,
    /// Paths without a file lead to this script, with its slash.
    front: Option<String>,
}

/// Requests that a matcher is about.
#[derive(Debug, Clone, Default)]
struct Matched {
    paths: Vec<At>,
    /// Conditions on fields, the method and addresses, by one key each.
    keys: Vec<Tree>,
    /// It says more, so that fewer requests match.
    has_more: bool,
    /// No path at which there is a file.
    without_file: bool,
}

impl Around {
    fn of(all: &[Directive]) -> Self {
        let mut around = Self {
            matchers: Vec::new(),
            sends_all: sends_files(all),
            runs_all: runs_php(all),
            front: None,
        };
        around.gather(all);
        around.front = around.front_of(all);
        around
    }

    /// Matchers, in whatever block they stand. Two of one name are told apart nowhere: they say
    /// nothing.
    fn gather(&mut self, all: &[Directive]) {
        for directive in all {
            if directive.name.starts_with('@') {
                let is_known = self.matchers.iter_mut().find(|it| it.0 == directive.name);
                let matched = Matched::of(directive);
                match is_known {
                    Some((_, known)) => *known = Matched::default(),
                    None => self.matchers.push((directive.name.clone(), matched)),
                }
            } else if ["handle", "handle_path", "route"].contains(&directive.name.as_str()) {
                self.gather(&directive.inside);
            }
        }
    }

    fn front_of(&self, all: &[Directive]) -> Option<String> {
        all.iter().find_map(|it| match it.name.as_str() {
            "try_files" if has_own_path(&it.arguments) => front(&it.arguments),
            "rewrite" if self.get(it.argument(0)).without_file => front(&it.arguments),
            "handle" | "route" if matcher(it).is_none() => self.front_of(&it.inside),
            _ => None,
        })
    }

    fn get(&self, matcher: &str) -> Matched {
        if matcher.starts_with('/') {
            return Matched {
                paths: vec![at(matcher)],
                ..Matched::default()
            };
        }
        let known = self.matchers.iter().find(|(name, _)| name == matcher);
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
                (kind, nets) if is_of_address(kind) => {
                    matched.add_addresses("address", nets);
                }
                ("not", [kind, nets @ ..]) if is_of_address(kind) => {
                    matched.add_addresses("not_address", nets);
                }
                ("not", []) if matches!(&it.inside[..], [one] if is_of_address(&one.name)) => {
                    matched.add_addresses("not_address", &it.inside[0].arguments);
                }
                ("not", [kind, ..]) if kind == "file" => {
                    (matched.has_more, matched.without_file) = (true, true);
                }
                ("not", []) if it.inside.len() == 1 && it.has("file") => {
                    (matched.has_more, matched.without_file) = (true, true);
                }
                _ => matched.has_more = true,
            }
        }
        matched
    }

    fn add_addresses(&mut self, key: &str, nets: &[String]) {
        let known = nets.iter().map(|net| match net.as_str() {
            "private_ranges" => Some(PRIVATE.map(str::to_owned).to_vec()),
            net => access::net(net).map(|it| vec![it]),
        });
        let Some(all) = known
            .collect::<Option<Vec<_>>>()
            .filter(|it| !it.is_empty())
        else {
            self.has_more = true;
            return;
        };
        let mut keys = Tree::default();
        keys.set(key, all.concat());
        self.keys.push(keys);
    }
}

/// Caddy's `private_ranges`.
const PRIVATE: [&str; 6] = [
    "192.168.0.0/16",
    "172.16.0.0/12",
    "10.0.0.0/8",
    "127.0.0.0/8",
    "fd00::/8",
    "::1",
];

fn is_of_address(kind: &str) -> bool {
    kind == "remote_ip" || kind == "client_ip"
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
    // These have targets alone, if there is but one word.
    let has_none = match directive.name.as_str() {
        "try_files" | "import" => true,
        "redir" | "rewrite" => directive.arguments.len() < 2,
        _ => false,
    };
    (first.starts_with(['/', '@']) && !has_none).then_some(first)
}

/// Whether the file of a path itself is among those that are tried.
fn has_own_path(files: &[String]) -> bool {
    let own = ["{path}", "{http.request.uri.path}", "{uri}"];
    files.iter().any(|it| own.contains(&it.as_str()))
}

/// The script that is tried last, with its slash.
fn front(files: &[String]) -> Option<String> {
    let last = files.last()?.split('?').next()?;
    let script = last.strip_prefix("{path}").unwrap_or(last);
    let script = script.trim_start_matches('/');
    (is_script(script) && !script.contains('{')).then(|| format!("/{script}"))
}

/// Paths without a file lead to what is tried last. False: that is neither a script nor 404.
fn fall_back(files: &[String], site: &mut Site) -> bool {
    match front(files) {
        Some(front) if front == "/index.php" => {}
        Some(front) => _ = site.pool.set("fallback", front.trim_start_matches('/')),
        None if files.last().is_some_and(|last| last == "=404") => {
            site.pool.set("fallback", "none");
        }
        None => return false,
    }
    true
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
            let place = draft.place(block.place);
            draft.left_out.push(format!(
                "{place}: the certificate of `{host}`, which Caddy fetches by itself"
            ));
        }
    }
}

fn of_site(directive: &Directive, site: &mut Site, draft: &mut Draft, around: &Around) {
    let first = directive.argument(0);
    let last = directive
        .arguments
        .last()
        .map(String::as_str)
        .unwrap_or_default();
    if let Some(matcher) = matcher(directive) {
        let matched = around.get(matcher);
        if let Some(status) = refuses(directive) {
            return refuse(directive, &matched, status, site, draft);
        }
        if ["handle", "handle_path", "route"].contains(&directive.name.as_str()) {
            return block_of_paths(directive, &matched, site, draft, around);
        }
        if PHP.contains(&directive.name.as_str()) && !matched.has_more && matched.keys.is_empty() {
            if directive.has("root") {
                return refuse(directive, &matched, NOT_FOUND, site, draft);
            }
            let is_front = |at: &At| match (at, &around.front) {
                (At::Path(path), Some(front)) => path.trim_matches('/') == front.trim_matches('/'),
                _ => false,
            };
            let has_front = matched.paths.iter().any(is_front);
            if !around.runs_all {
                site.whole = scripts(if has_front { "front" } else { "none" });
            }
            if directive.name == "php_server" && !around.sends_all {
                files_of(directive, &matched, site, draft);
            }
            for at in matched.paths {
                site.rule(at, Rank::Plain, Tree::default());
            }
            site.backends.push(last.to_owned());
            return directive.done();
        }
        if directive.name == "file_server" {
            directive.done();
            if around.sends_all {
                hidden_of(directive, &matched, site, draft);
            } else {
                files_of(directive, &matched, site, draft);
            }
            return;
        }
        if limits(directive) {
            return refuse(directive, &matched, NOT_FOUND, site, draft);
        }
    }
    if matcher(directive).is_some() && directive.arguments.len() > 1 {
        return;
    }
    match directive.name.as_str() {
        "root" => site.root = Some(last.trim_end_matches('/').to_owned()),
        "php_server" | "php" => php(directive, site, draft),
        "php_fastcgi" => {
            site.backends.push(last.to_owned());
            php(directive, site, draft);
        }
        "file_server" => {
            hidden(directive, site, draft);
            if first == "browse" {
                return;
            }
        }
        "try_files" if has_own_path(&directive.arguments) => {
            if !fall_back(&directive.arguments, site) {
                return;
            }
        }
        // Handlers for all paths.
        "route" | "handle" if directive.arguments.is_empty() => {
            for inside in &directive.inside {
                of_site(inside, site, draft, around);
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
    around: &Around,
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
    let is_kept = |it: &Directive| it.name == "root" && matcher(it).is_none();
    let leads = |it: &Directive| leads_away(it) && !is_kept(it);
    if block.inside.iter().any(|it| limits(it) || leads(it)) || !is_plain {
        return refuse(block, matched, NOT_FOUND, site, draft);
    }
    if runs_php(&block.inside) {
        let sends = sends_files(&block.inside);
        let all_below = matched.paths.iter().all(|it| matches!(it, At::Below(_)));
        if block.has("root")
            || block.name == "handle_path"
            || sends != around.sends_all && !all_below
        {
            return refuse(block, matched, NOT_FOUND, site, draft);
        }
        block.done();
        for inside in &block.inside {
            of_site(inside, site, draft, around);
        }
        for at in &matched.paths {
            if let At::Below(path) = at
                && !sends
                && around.sends_all
            {
                site.send_none(path);
            }
            // It runs there, whatever runs elsewhere.
            site.rule(at.clone(), Rank::Plain, Tree::default());
        }
        if sends && !around.sends_all {
            files_of(block, matched, site, draft);
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
            of_site(inside, site, draft, around);
        }
    }
    let has_files = block.has("file_server");
    for at in &matched.paths {
        let root = root.and_then(|it| it.arguments.last());
        let root = root.map(|it| it.trim_end_matches('/').to_owned());
        let is_own = block.name == "handle_path" || has_files && !around.sends_all;
        let root = root.or_else(|| is_own.then(|| site.root.clone())?);
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

/// Files of these paths alone: those of the rest are not sent.
fn files_of(directive: &Directive, matched: &Matched, site: &mut Site, draft: &mut Draft) {
    hidden(directive, site, draft);
    let is_plain = !matched.has_more && matched.keys.is_empty() && !matched.paths.is_empty();
    let mut is_said = is_plain;
    for at in matched.paths.iter().filter(|_| is_plain) {
        match (at, &site.root) {
            (At::Below(path), Some(root)) => {
                let mut files = Tree::default();
                files.set("prefix", path.as_str());
                files.set("root", format!("{root}{path}"));
                draft.serve_files(files);
            }
            _ => is_said = false,
        }
    }
    if !is_said {
        draft.leave_out_limit(directive, "its files are not sent");
    }
}

/// The same where the files of all other paths are sent, too.
fn hidden_of(directive: &Directive, matched: &Matched, site: &mut Site, draft: &mut Draft) {
    let is_plain = !matched.has_more && matched.keys.is_empty() && !matched.paths.is_empty();
    let prefixes = matched.paths.iter().map(|at| match at {
        At::Below(path) if is_plain => Some(path.as_str()),
        _ => None,
    });
    let prefixes: Option<Vec<&str>> = prefixes.collect();
    let hide = directive.inside.iter().filter(|it| it.name == "hide");
    match prefixes.filter(|it| !it.is_empty()) {
        Some(prefixes) => {
            for inside in hide {
                inside.done();
                for (name, prefix) in inside
                    .arguments
                    .iter()
                    .flat_map(|it| prefixes.iter().map(move |prefix| (it, prefix)))
                {
                    if let Some(outcome) = self::hide(name, prefix, site) {
                        draft.leave_out_limit(inside, &outcome);
                    }
                }
            }
            hidden(directive, site, draft);
        }
        None => {
            let inside = directive.find("hide");
            hidden(directive, site, draft);
            if let Some(inside) = inside {
                draft.leave_out_limit(inside, "such files are answered 404 at all paths");
            }
        }
    }
}

/// `hide`, and another directory of files.
fn hidden(directive: &Directive, site: &mut Site, draft: &mut Draft) {
    let unread = |it: &&Directive| it.fate.get() == Fate::Unread;
    for inside in directive.inside.iter().filter(unread) {
        match inside.name.as_str() {
            "hide" => {
                inside.done();
                for name in &inside.arguments {
                    if let Some(outcome) = hide(name, "", site) {
                        draft.leave_out_limit(inside, &outcome);
                    }
                }
            }
            "root" if site.root.as_deref() == Some(inside.argument(0).trim_end_matches('/')) => {
                inside.done();
            }
            "root" | "fs" => {
                site.send_none("");
                draft.leave_out_limit(inside, "no files are sent; scripts have another root");
            }
            _ => {}
        }
    }
}

/// A name of files or directories that are not sent, in any directory below a prefix, or a path of
/// one. What holds instead is returned.
fn hide(name: &str, prefix: &str, site: &mut Site) -> Option<String> {
    // Sources of scripts are never sent.
    if name.starts_with('*') && is_script(name) {
        return None;
    }
    let root = site.root.clone().unwrap_or_default();
    let roots = [root.as_str(), "{http.vars.root}", "{vars.root}"];
    let below = roots.iter().filter(|it| !it.is_empty());
    let mut below = below.filter_map(|it| name.strip_prefix(it));
    let below = below.find(|it| it.starts_with('/'));
    let (start, text, outcome) = match below {
        Some(path) => ("^", path.trim_end_matches('/'), None),
        // Its place below the root is not known.
        None if name.starts_with('/') || name.contains('{') => {
            let last = name.trim_end_matches('/').rsplit('/').next();
            let outcome = format!("all files of the name of `{name}` are answered 404");
            ("/", last.unwrap_or_default(), Some(outcome))
        }
        None => ("/", name.trim_matches('/'), None),
    };
    let letters = text.chars().map(|letter| match letter {
        '*' => "[^/]*".to_owned(),
        '?' => "[^/]".to_owned(),
        letter => as_it_is(letter.encode_utf8(&mut [0; 4])),
    });
    let within = match (start, prefix) {
        ("/", prefix) if !prefix.is_empty() => format!("^{}/(?:.*/)?", as_it_is(prefix)),
        (start, _) => start.to_owned(),
    };
    let expression = format!("{within}{}(/|$)", letters.collect::<String>());
    if text.is_empty() || text.contains(['[', '{', '\\']) {
        site.send_none("");
        return Some("no files are sent".to_owned());
    }
    let wider = site.refuse_expression(&expression, NOT_FOUND);
    // Other directories of files have a `hide` of their own.
    if let Some(rule) = site.rules.last_mut() {
        rule.after_files = true;
    }
    wider.or(outcome)
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
        // It says how paths without a file are answered, which other statements say here.
        "index" if first == "off" => return,
        "index" if first != "index.php" => _ = site.pool.set("index", inside.arguments.clone()),
        "index" | "split_path" => {}
        "env" => {
            let value = inside.argument(1);
            let value = match value.strip_prefix("{$").and_then(|it| it.strip_suffix('}')) {
                Some(name) => Value::Expanded(format!("${{{name}}}")),
                None => Value::from(value),
            };
            draft.tree.map(&["server", "env"]).set(first, value);
        }
        "try_files" => {
            if !fall_back(&inside.arguments, site) {
                return;
            }
            if !has_own_path(&inside.arguments) {
                // No file answers by its own path.
                site.send_none("");
                if site.whole.is_empty() {
                    site.whole = scripts("front");
                }
            }
        }
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
