//! nginx, and the pool of php-fpm behind it.

use super::directive::{self, Directive};
use super::draft::{Draft, Site, is_script, pattern, seconds, size, target};
use super::tree::{Tree, Value};

/// What nothing here depends on.
const NEEDLESS: [&str; 34] = [
    "events",
    "worker_processes",
    "worker_connections",
    "pid",
    "types",
    "default_type",
    "sendfile",
    "tcp_nopush",
    "tcp_nodelay",
    "keepalive_timeout",
    "server_tokens",
    "types_hash_max_size",
    "error_log",
    "gzip_vary",
    "gzip_proxied",
    "gzip_comp_level",
    "gzip_min_length",
    "gzip_http_version",
    "gzip_disable",
    "fastcgi_index",
    "fastcgi_split_path_info",
    "fastcgi_buffers",
    "fastcgi_buffer_size",
    "fastcgi_intercept_errors",
    "fastcgi_hide_header",
    "charset",
    "log_not_found",
    "user",
    "http2",
    "ssl_session_cache",
    "ssl_session_timeout",
    "ssl_prefer_server_ciphers",
    "index",
    "fastcgi_pass",
];
/// Files of nginx's packages that say what holds here anyway.
const KNOWN_INCLUDES: [&str; 5] = [
    "fastcgi_params",
    "fastcgi.conf",
    "fastcgi-php.conf",
    "mime.types",
    "modules-enabled/*.conf",
];

pub(super) fn read(text: &str, draft: &mut Draft) -> Result<(), String> {
    let all = directive::nginx(text)?;
    let mut zones = Vec::new();
    let mut servers = Vec::new();
    let mut others = Vec::new();
    gather(all, &mut servers, &mut others, &mut zones);
    let has_tls = servers.iter().any(is_tls);
    if servers.is_empty() {
        // A piece of one.
        servers.push(Directive {
            inside: others,
            ..Directive::default()
        });
    } else {
        let mut site = Site::default();
        for other in &others {
            of_server(other, &mut site, draft, &[]);
        }
    }
    for server in &servers {
        let site = self::server(server, draft, &zones, has_tls);
        draft.sites.extend(site);
    }
    Ok(())
}

/// Servers, whatever block they are in, and what stands beside them.
fn gather(
    all: Vec<Directive>,
    servers: &mut Vec<Directive>,
    others: &mut Vec<Directive>,
    zones: &mut Vec<Directive>,
) {
    for directive in all {
        match directive.name.as_str() {
            "http" => gather(directive.inside, servers, others, zones),
            "server" => servers.push(directive),
            "limit_req_zone" => zones.push(directive),
            _ => others.push(directive),
        }
    }
}

fn is_tls(server: &Directive) -> bool {
    let listens = server.inside.iter().filter(|it| it.name == "listen");
    server.has("ssl_certificate")
        || listens
            .into_iter()
            .any(|it| it.arguments.iter().any(|a| a == "ssl"))
}

/// None for a server that only leads elsewhere.
fn server(
    server: &Directive,
    draft: &mut Draft,
    zones: &[Directive],
    has_tls: bool,
) -> Option<Site> {
    let names = server.find("server_name").map(|it| it.arguments.clone());
    let names: Vec<String> = names
        .unwrap_or_default()
        .into_iter()
        .filter(|name| name != "_")
        .collect();
    let mut site = Site {
        names,
        ..Site::default()
    };
    for directive in server.inside.iter().filter(|it| it.name == "listen") {
        listen(directive, draft);
    }
    if let Some(redirect) = server.find("return")
        && leads_elsewhere(redirect, &site, is_tls(server), has_tls, draft)
    {
        return None;
    }
    for directive in &server.inside {
        match directive.name.as_str() {
            "listen" | "server_name" => {}
            "location" => location(directive, &mut site, draft, zones),
            _ => of_server(directive, &mut site, draft, zones),
        }
    }
    Some(site)
}

fn listen(directive: &Directive, draft: &mut Draft) {
    let given = directive.argument(0);
    let is_tls = directive.arguments.iter().any(|argument| argument == "ssl");
    let address = match given.strip_prefix("[::]:") {
        Some(port) => format!(":{port}"),
        None if given.bytes().all(|byte| byte.is_ascii_digit()) => format!(":{given}"),
        None => match given.strip_prefix("unix:") {
            Some(path) => format!("unix://{path}"),
            None => given.to_owned(),
        },
    };
    if is_tls {
        draft.listen_tls(&address);
    } else {
        draft.listen(&address);
    }
}

/// `return 301 https://…`: to TLS, or to another host.
fn leads_elsewhere(
    redirect: &Directive,
    site: &Site,
    is_tls: bool,
    has_tls: bool,
    draft: &mut Draft,
) -> bool {
    let to = redirect.argument(1);
    let Some(place) = to.strip_suffix("$request_uri") else {
        return false;
    };
    let host = place.strip_prefix("https://");
    let is_same = host.is_some_and(|host| {
        host == "$host" || host == "$server_name" || site.names.iter().any(|name| name == host)
    });
    if is_same && !is_tls && has_tls {
        draft.section("ssl").set("redirect", true);
        return true;
    }
    if place.contains('$') || site.names.is_empty() {
        return false;
    }
    for name in &site.names {
        let mut rule = Tree::default();
        rule.set("host", name.as_str())
            .set("path", "^/(.*)$")
            .set("to", format!("{place}/{{1}}"));
        rule.set("status", Value::Bare(redirect.argument(0).to_owned()));
        draft.rewrite(rule);
    }
    true
}

/// What may stand in a server as well as around it.
fn of_server(directive: &Directive, site: &mut Site, draft: &mut Draft, zones: &[Directive]) {
    let first = directive.argument(0);
    match directive.name.as_str() {
        "root" => site.root = Some(root(first, site)),
        "location" => location(directive, site, draft, zones),
        "index" => index(directive, site),
        "try_files" => try_files(directive, site),
        "ssl_certificate" => _ = draft.section("ssl").set("cert", first),
        "ssl_certificate_key" => _ = draft.section("ssl").set("key", first),
        "add_header" if first.eq_ignore_ascii_case("strict-transport-security") => {
            draft.hsts(directive.argument(1));
        }
        "add_header" if !directive.argument(1).contains('$') => {
            draft.response_field(first, directive.argument(1));
        }
        "gzip" if first == "on" => draft.compress(Vec::new()),
        "gzip" | "gzip_static" if first == "off" => {}
        "gzip_types" => {
            // HTML is always among them.
            let types = directive
                .arguments
                .iter()
                .map(|media| match media.as_str() {
                    "text/css" => "text/*".to_owned(),
                    other => other.to_owned(),
                });
            let mut types: Vec<String> = types.collect();
            types.dedup();
            draft.compress(types);
        }
        "client_max_body_size" => match size(first) {
            Some(size) => _ = draft.http().set("max_request_size", size),
            None => draft.leave_out(directive),
        },
        "fastcgi_read_timeout" => time_limit(first, site),
        "fastcgi_param" => parameter(directive, site),
        "rewrite" => rewrite(directive, site, draft),
        "error_page" => error_page(directive, site, draft),
        "access_log" if first == "off" || first.is_empty() => {}
        "access_log" => draft.section("access_log").push("output", first),
        "include" => {
            if !KNOWN_INCLUDES.iter().any(|known| first.ends_with(known)) {
                draft.leave_out(directive);
            }
        }
        name if NEEDLESS.contains(&name) => {}
        _ => draft.leave_out(directive),
    }
}

/// `$realpath_root` stands for the root as well.
fn root(path: &str, _: &Site) -> String {
    path.trim_end_matches('/').to_owned()
}

fn index(directive: &Directive, site: &mut Site) {
    let names = &directive.arguments;
    // index.php alone is what holds anyway.
    if names.len() > 1 || names.first().is_some_and(|name| name != "index.php") {
        site.pool.set("index", names.clone());
    }
}

fn try_files(directive: &Directive, site: &mut Site) {
    match directive.arguments.last().map(String::as_str) {
        Some(last) if last.starts_with('=') => _ = site.pool.set("fallback", "none"),
        Some(last) if last.starts_with('/') => {
            let script = last.split(['?', '$']).next().unwrap_or_default();
            if script != "/index.php" {
                site.pool.set("fallback", script.trim_start_matches('/'));
            }
        }
        _ => {}
    }
}

fn time_limit(time: &str, site: &mut Site) {
    if let Some(seconds) = seconds(time) {
        let limit = format!("{seconds}s");
        site.pool.map(&["supervisor"]).set("exec_ttl", limit);
    }
}

fn parameter(directive: &Directive, site: &mut Site) {
    if directive.argument(1).contains("$realpath_root") {
        site.pool.set("resolve_root", "each_request");
    }
}

fn rewrite(directive: &Directive, site: &Site, draft: &mut Draft) {
    let status = match directive.argument(2) {
        "permanent" => Some(301),
        "redirect" => Some(302),
        _ => None,
    };
    let to = target(directive.argument(1).trim_end_matches('?'));
    if to.contains('$') {
        return draft.leave_out(directive);
    }
    let mut rule = Tree::default();
    if let [name, ..] = &site.names[..] {
        rule.set("host", name.as_str());
    }
    rule.set("path", pattern(directive.argument(0)))
        .set("to", to);
    if let Some(status) = status {
        rule.set("status", status);
    }
    draft.rewrite(rule);
}

fn error_page(directive: &Directive, site: &Site, draft: &mut Draft) {
    let Some((page, statuses)) = directive.arguments.split_last() else {
        return draft.leave_out(directive);
    };
    let is_page = page.starts_with('/') && !is_script(page);
    match &site.root {
        Some(root) if is_page && !statuses.is_empty() => {
            for status in statuses {
                draft.error_page(status, &format!("{root}{page}"));
            }
        }
        _ => draft.leave_out(directive),
    }
}

fn location(directive: &Directive, site: &mut Site, draft: &mut Draft, zones: &[Directive]) {
    let (how, path) = match &directive.arguments[..] {
        [path] => ("", path.as_str()),
        [how, path] => (how.as_str(), path.as_str()),
        _ => return draft.leave_out(directive),
    };
    match how {
        "~" | "~*" => by_pattern(directive, path, site, draft),
        _ if path.starts_with('@') => {} // it is what try_files leads to
        _ if path == "/" => {
            for inside in &directive.inside {
                of_server(inside, site, draft, zones);
            }
        }
        _ => below(directive, how == "=", path, site, draft, zones),
    }
}

fn by_pattern(directive: &Directive, pattern: &str, site: &mut Site, draft: &mut Draft) {
    let denies = directive
        .find("deny")
        .is_some_and(|it| it.argument(0) == "all");
    if pattern.contains("php") && denies {
        let folders = pattern
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(')'));
        match folders {
            Some((folders, _)) => {
                for folder in folders.split('|') {
                    site.pool.push("no_scripts", folder.trim_matches('/'));
                }
            }
            None => draft.leave_out(directive),
        }
    } else if pattern.contains("php") {
        for inside in &directive.inside {
            match inside.name.as_str() {
                "try_files" => {} // whether the script is there is looked at anyway
                _ => of_server(inside, site, draft, &[]),
            }
        }
    } else if denies && pattern.starts_with("/\\.") {
        // Hidden files are never sent.
    } else {
        draft.leave_out(directive);
    }
}

fn below(
    location: &Directive,
    is_exact: bool,
    path: &str,
    site: &Site,
    draft: &mut Draft,
    zones: &[Directive],
) {
    let folder = location.find("alias").or_else(|| location.find("root"));
    let folder = folder.map(|it| it.argument(0).trim_end_matches('/').to_owned());
    let alias = location.has("alias");
    let runs_php = location.has("fastcgi_pass")
        || location
            .inside
            .iter()
            .any(|it| it.name == "location" && it.shown().contains("php"));
    if location.has("internal")
        && let Some(folder) = &folder
    {
        return draft.send_files_of(path.trim_end_matches('/'), folder);
    }
    if runs_php && let Some(folder) = &folder {
        let mut pool = Tree::default();
        pool.set("root", folder.as_str());
        return draft.application_below(path, pool);
    }
    let has_files = ["expires", "gzip_static"]
        .iter()
        .any(|name| location.has(name));
    if let Some(root) = folder.as_ref().or(site.root.as_ref())
        && (has_files || folder.is_some())
    {
        let path = path.trim_end_matches('/');
        let mut files = Tree::default();
        let root = if alias {
            root.clone()
        } else {
            format!("{root}{path}")
        };
        files.set("prefix", path).set("root", root);
        for inside in &location.inside {
            match inside.name.as_str() {
                "root" | "alias" | "access_log" | "log_not_found" => {}
                "expires" if let Some(age) = seconds(inside.argument(0)) => {
                    _ = files.set("max_age", age);
                }
                "gzip_static" => _ = files.set("precompressed", vec!["gzip".to_owned()]),
                _ => draft.leave_out(inside),
            }
        }
        return draft.serve_files(files);
    }
    let mut route = Tree::default();
    let path = if is_exact {
        path.to_owned()
    } else {
        format!("{}/*", path.trim_end_matches('/'))
    };
    route.set("path", path.as_str());
    let mut is_meant = false;
    for inside in &location.inside {
        is_meant |= of_route(inside, &mut route, draft, zones);
    }
    if is_meant {
        draft.route(route);
    } else if let Some(to) = location.find("return")
        && to.argument(0).starts_with('3')
    {
        let mut rule = Tree::default();
        let pattern = format!(
            "^{}{}",
            path.trim_end_matches('*'),
            if is_exact { "$" } else { "" }
        );
        rule.set("path", pattern).set("to", to.argument(1));
        rule.set("status", Value::Bare(to.argument(0).to_owned()));
        draft.rewrite(rule);
    }
}

/// Whether a statement says something of a route.
fn of_route(
    directive: &Directive,
    route: &mut Tree,
    draft: &mut Draft,
    zones: &[Directive],
) -> bool {
    let first = directive.argument(0);
    match directive.name.as_str() {
        "client_max_body_size" if let Some(size) = size(first) => {
            _ = route.set("max_request_size", size);
        }
        "fastcgi_read_timeout" if let Some(time) = seconds(first) => {
            route.set("deadline", format!("{time}s"));
        }
        "limit_req" if let Some(limit) = rate(directive, zones) => {
            // nginx limits every method; what is asked for in a form is what is tried out.
            route.set("rate_limit", Value::Map(limit));
        }
        "return" | "try_files" | "include" => return false,
        _ => {
            draft.leave_out(directive);
            return false;
        }
    }
    true
}

fn rate(directive: &Directive, zones: &[Directive]) -> Option<Tree> {
    let value = |of: &Directive, name: &str| {
        let mut arguments = of.arguments.iter();
        arguments.find_map(|argument| argument.strip_prefix(name).map(str::to_owned))
    };
    let zone = value(directive, "zone=")?;
    let zone = zones.iter().find(|it| {
        let named = value(it, "zone=").unwrap_or_default();
        named.split(':').next() == Some(zone.as_str())
    })?;
    let rate = value(zone, "rate=")?;
    let (count, per) = rate.split_once("r/")?;
    let mut limit = Tree::default();
    limit.set("rate", format!("{count}/{per}"));
    if let Some(Ok(burst)) = value(directive, "burst=").map(|burst| burst.parse::<u64>()) {
        limit.set("burst", burst);
    }
    Some(limit)
}

/// A pool of php-fpm.
pub(super) fn read_fpm(text: &str, draft: &mut Draft) {
    let mut site = Site::default();
    let mut workers = (String::new(), None, None);
    let mut names = 0;
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split(';').next().unwrap_or_default().trim();
        if text.starts_with('[') && text != "[global]" {
            names += 1;
            if names > 1 {
                draft.leave_out_text(line, text);
                break;
            }
        }
        let Some((key, value)) = text.split_once('=') else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim().trim_matches('"'));
        let named = key
            .split_once('[')
            .map(|(kind, name)| (kind, name.trim_end_matches(']')));
        let number = value.parse::<u64>().ok();
        match (key, named) {
            ("user", _) => _ = draft.tree.map(&["server"]).set("user", value),
            ("group", _) => {} // that of the user
            ("pm", _) => value.clone_into(&mut workers.0),
            ("pm.max_children", _) => workers.2 = number,
            ("pm.min_spare_servers", _) => workers.1 = number,
            ("pm.max_requests", _) if let Some(number) = number => {
                _ = site.pool.set("max_jobs", number);
            }
            ("request_terminate_timeout", _) if value != "0" => time_limit(value, &mut site),
            (_, Some(("php_admin_value" | "php_value", name))) => {
                site.pool.map(&["ini"]).set(name, value);
            }
            (_, Some(("php_admin_flag" | "php_flag", name))) => {
                let is_on =
                    ["on", "1", "yes", "true"].contains(&value.to_ascii_lowercase().as_str());
                site.pool
                    .map(&["ini"])
                    .set(name, if is_on { "1" } else { "0" });
            }
            (_, Some(("env", name))) => {
                let value = match value.strip_prefix('$') {
                    Some(variable) => format!("${{{variable}}}"),
                    None => value.to_owned(),
                };
                draft.tree.map(&["server", "env"]).set(name, value);
            }
            ("pm.start_servers" | "pm.max_spare_servers" | "pm.process_idle_timeout", _) => {}
            (
                "listen" | "catch_workers_output" | "clear_env" | "pid" | "error_log" | "daemonize",
                _,
            ) => {}
            (key, _) if key.starts_with("listen.") => {}
            _ => draft.leave_out_text(line, text),
        }
    }
    match workers {
        (kind, _, Some(most)) if kind == "static" => _ = site.pool.set("num_workers", most),
        (_, fewest, Some(most)) => {
            site.pool
                .set("min_workers", fewest.unwrap_or(1))
                .set("max_workers", most);
        }
        _ => {}
    }
    match draft.sites.iter_mut().find(|known| known.root.is_some()) {
        Some(known) => known.pool.merge(site.pool),
        None => draft.sites.push(site),
    }
}
