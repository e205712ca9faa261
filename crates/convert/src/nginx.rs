//! nginx, and the pool of php-fpm behind it.

use std::path::Path;

use super::access;
use super::directive::{self, Directive};
use super::draft::{
    ALL_CLOSED, At, Draft, NOT_FOUND, Rank, Site, accepts_rule, as_it_is, front_alone, is_found,
    is_in, is_script, led_to, pattern, refusal, scripts, seconds, size, target,
};
use super::limits::{endings, expand, has_parts, limits, methods};
use super::passwords;
use super::php::{
    Php, Runs, below_prefix, both, expression, gives_php, is_of_all_paths, is_of_scripts,
    leads_all_to, literal, locations, sends_files, takes_every_script, tries_own,
};
use super::spelling::plainly;
use super::tree::{Tree, Value};

/// What nothing here depends on: how connections are held, how much memory is used, what is logged.
/// Nothing that says who gets what.
const NEEDLESS: &[&str] = &[
    "events",
    "use",
    "multi_accept",
    "worker_rlimit_nofile",
    "ssl_protocols",
    "ssl_ciphers",
    "worker_processes",
    "worker_connections",
    "pid",
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
    "charset",
    "log_not_found",
    "http2",
    "ssl_session_cache",
    "ssl_session_timeout",
    "ssl_prefer_server_ciphers",
    "ssl_dhparam",
    "ssl_session_tickets",
    "ssl_stapling",
    "ssl_stapling_verify",
    "ssl_trusted_certificate",
    "resolver",
    "fastcgi_intercept_errors",
    "fastcgi_connect_timeout",
    "client_body_timeout",
    "client_header_timeout",
    "send_timeout",
    "server_name_in_redirect",
];
/// Files of nginx's packages that say what holds here anyway.
const KNOWN_INCLUDES: [&str; 7] = [
    "fastcgi_params",
    "fastcgi.conf",
    "fastcgi-php.conf",
    "mime.types",
    "modules-enabled/*.conf",
    // How certbot sets ciphers, and Debian its own certificate for tests.
    "letsencrypt/options-ssl-nginx.conf",
    "snippets/snakeoil.conf",
];

pub(super) fn is_known_include(file: &str) -> bool {
    KNOWN_INCLUDES.iter().any(|known| file.ends_with(known))
}

/// Of `fastcgi_params`: what scripts get here anyway.
const KNOWN_PARAMETERS: &[&str] = &[
    "QUERY_STRING",
    "REQUEST_METHOD",
    "CONTENT_TYPE",
    "CONTENT_LENGTH",
    "SCRIPT_NAME",
    "SCRIPT_FILENAME",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "REQUEST_URI",
    "DOCUMENT_URI",
    "DOCUMENT_ROOT",
    "SERVER_PROTOCOL",
    "REQUEST_SCHEME",
    "HTTPS",
    "GATEWAY_INTERFACE",
    "SERVER_SOFTWARE",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "SERVER_ADDR",
    "SERVER_PORT",
    "SERVER_NAME",
    "REDIRECT_STATUS",
    "HTTP_PROXY",
];

/// What servers have around them.
#[derive(Default)]
struct Around {
    zones: Vec<Directive>,
    /// Sockets of php-fpm by the names of their `upstream`.
    upstreams: Vec<(String, Vec<String>)>,
    has_tls: bool,
    /// Names of the files that answer for directories, where a server says none.
    index: Vec<String>,
    /// One of the servers gives scripts to php-fpm.
    has_php: bool,
}

/// nginx needs no blank behind the sign of a location: `location =/a`, `location ~\.php$`.
fn split_signs(all: &mut [Directive]) {
    for it in all {
        if let ("location", [path]) = (it.name.as_str(), &it.arguments[..])
            && let Some(sign) = ["=", "^~", "~*", "~"]
                .iter()
                .find(|it| path.starts_with(**it))
        {
            let rest = path.get(sign.len()..).unwrap_or_default().to_owned();
            it.arguments = vec![(*sign).to_owned(), rest];
        }
        split_signs(&mut it.inside);
    }
}

pub(super) fn read(mut all: Vec<Directive>, draft: &mut Draft) {
    split_signs(&mut all);
    let mut around = Around::default();
    let mut servers = Vec::new();
    let mut others = Vec::new();
    gather(all, &mut servers, &mut others, &mut around);
    around.has_tls = servers.iter().any(is_tls);
    if let Some(index) = others.iter().find(|it| it.name == "index") {
        around.index.clone_from(&index.arguments);
    }
    around.has_php = servers.iter().any(gives_php);
    draft.has_many |= servers
        .iter()
        .filter(|it| it.has("root") || gives_php(it))
        .count()
        > 1;
    if servers.is_empty() {
        // A piece of one.
        servers.push(Directive {
            inside: others,
            ..Directive::default()
        });
        others = Vec::new();
    }
    let mut outer = Site::default();
    for other in &others {
        of_server(other, &mut outer, draft, &around);
    }
    let closes_all = draft.leave_out_unread(&others, "each site is answered 404");
    for server in &mut servers {
        *server = plainly(server);
        join_conditions(server);
        keep_sources(&mut server.inside, false);
        let access = access::take(server, &around.index);
        let passwords = passwords::take(server, &around.index);
        let Some(mut site) = self::server(server, draft, &around) else {
            continue;
        };
        access::restrict(&mut site, access, draft);
        passwords::ask(&mut site, passwords, draft);
        if closes_all {
            site.close("");
        }
        // What stands around servers holds in each, unless one says otherwise.
        if !server.has("root") {
            site.root = site.root.or_else(|| outer.root.clone());
        }
        if site.certificate == (None, None) {
            site.certificate.clone_from(&outer.certificate);
        }
        let mut pool = outer.pool.clone();
        pool.merge(site.pool);
        site.pool = pool;
        draft.sites.push(site);
    }
}

/// `if (-f $request_filename) { break; }` and a `rewrite` of all paths behind it are one statement:
/// the `rewrite` holds where there is no file.
fn join_conditions(block: &mut Directive) {
    let slash = |it: &&mut Directive| it.name == "location" && it.arguments == ["/"];
    block
        .inside
        .iter_mut()
        .filter(slash)
        .for_each(join_conditions);
    let is_of_file = |it: &Directive| {
        let conditions = ["(-f $request_filename)", "(-e $request_filename)"];
        it.name == "if"
            && conditions.contains(&&*it.arguments.join(" "))
            && matches!(&it.inside[..], [inside] if inside.name == "break")
    };
    let Some(at) = block.inside.iter().position(is_of_file) else {
        return;
    };
    let mut rest = block.inside.iter().skip(at);
    let leads = |it: &Directive| it.name == "rewrite" && leads_all_to(it).is_some();
    if let Some(after) = rest.position(leads) {
        let rewrite = block.inside.remove(at + after);
        if let Some(condition) = block.inside.get_mut(at) {
            condition.arguments = vec!["(!-e".to_owned(), "$request_filename)".to_owned()];
            condition.inside = vec![rewrite];
        }
    }
}

/// A location in another one that is about scripts and runs none sends their sources, which nobody
/// gets here.
fn keep_sources(inside: &mut [Directive], is_inner: bool) {
    for it in inside.iter_mut().filter(|it| it.name == "location") {
        if is_inner && expression(it).is_some_and(is_of_scripts) && sends_files(it) {
            it.inside.push(Directive {
                place: it.place,
                name: "return".to_owned(),
                arguments: vec![NOT_FOUND.to_owned()],
                ..Directive::default()
            });
        } else {
            keep_sources(&mut it.inside, true);
        }
    }
}

/// Servers, whatever block they are in, and what stands beside them.
fn gather(
    all: Vec<Directive>,
    servers: &mut Vec<Directive>,
    others: &mut Vec<Directive>,
    around: &mut Around,
) {
    for directive in all {
        match directive.name.as_str() {
            "http" => gather(directive.inside, servers, others, around),
            "server" => servers.push(directive),
            "limit_req_zone" => around.zones.push(directive),
            "upstream" => {
                let of_php = directive.inside.iter().filter(|it| it.name == "server");
                let sockets = of_php.map(|it| it.argument(0).to_owned()).collect();
                around
                    .upstreams
                    .push((directive.argument(0).to_owned(), sockets));
            }
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
fn server(server: &Directive, draft: &mut Draft, around: &Around) -> Option<Site> {
    let mut site = Site {
        place: server.place,
        ..Site::default()
    };
    for directive in &server.inside {
        match directive.name.as_str() {
            "listen" => listen(directive, &mut site),
            "server_name" => {
                let names = directive.arguments.iter().filter(|name| *name != "_");
                if names.clone().all(|name| is_host(name)) {
                    site.names.extend(names.flat_map(|name| hosts_of(name)));
                    directive.done();
                }
            }
            _ => {}
        }
    }
    if let Some(redirect) = redirect_of_all(server)
        && let Some(goal) = goal_of(redirect, &site, is_tls(server))
    {
        let has_files =
            redirect_is_locations(server) && files_beside_redirect(server, &site, draft);
        // Nothing else of it is ever asked.
        server.done_whole();
        match goal {
            Goal::Tls => draft.lead_to_tls(redirect, &site, has_files),
            Goal::Itself => draft.leave_out_loop(redirect),
            Goal::Other(place, status) => {
                for name in &site.names {
                    lead_host(name, &place, &status, draft);
                }
                if has_files {
                    draft.note(
                        "`/.well-known` of a host that is redirected is redirected as well; its \
                         files are sent for the other hosts",
                    );
                }
                listen_only(&site, draft);
            }
        }
        return None;
    }
    let answers = server.has("return");
    let mut redirected = Vec::new();
    for directive in server.inside.iter().filter(|it| it.name == "if") {
        redirected.extend(on_condition(
            directive,
            &mut site,
            is_tls(server),
            draft,
            around,
        ));
    }
    if answers && !site.names.is_empty() && site.names.iter().all(|it| redirected.contains(it)) {
        // As certbot writes it: each name leads to TLS, and nothing else is asked.
        server.done_whole();
        listen_only(&site, draft);
        return None;
    }
    let php = Php::of(server);
    site.root.clone_from(&php.root);
    // It must be known before other locations are looked at.
    let slash = server
        .inside
        .iter()
        .find(|it| it.name == "location" && it.arguments == ["/"]);
    site.rest = slash.and_then(refuses).map(str::to_owned);
    site.gives_php = server.name == "server" && gives_php(server);
    // A server's own rewrites come before its locations, but not before its conditions.
    let is_first = site.rules.is_empty();
    for directive in server
        .inside
        .iter()
        .filter(|it| it.name == "rewrite" && is_first)
    {
        if is_led_on(directive, server) {
            let expression = directive.argument(0);
            let outcome = site.refuse_expression(expression, NOT_FOUND);
            let text = format!(
                "all paths with `{expression}` in them are answered 404: nginx may apply a later \
                 `rewrite` to the result, but only one rule applies here"
            );
            draft.leave_out_limit(directive, &outcome.unwrap_or(text));
        } else if let Some(rule) = rewrite(directive, &site, draft) {
            draft.rewrite(rule);
        }
    }
    // The first rule of `http.rewrite` holds: those of exact paths come first, as in nginx, and no
    // rule that leaves them alone for another location stands before them.
    let mut all: Vec<&Directive> = server.inside.iter().collect();
    all.sort_by_key(|it| match it.arguments.first().map(String::as_str) {
        _ if it.name != "location" => 0,
        Some("=") => 1,
        Some("~" | "~*") => 2,
        _ => 3,
    });
    for directive in all {
        match directive.name.as_str() {
            "listen" | "server_name" | "if" => {}
            "rewrite" if is_first => {}
            "location" => location(directive, &mut site, draft, around, &php, false),
            "root" => root(directive, &mut site, draft),
            _ => of_server(directive, &mut site, draft, around),
        }
    }
    // Whatever it answers, it is not the site.
    let unnamed = server
        .inside
        .iter()
        .any(|it| it.name == "server_name" && it.fate.get() == directive::Fate::Unread);
    let has_limit = draft.leave_out_unread(&server.inside, ALL_CLOSED);
    if has_limit || answers || unnamed {
        site.close("");
    }
    // A piece of a server says less.
    if server.name == "server" && !site.is_closed() {
        if gives_php(server) && !leads_to_front(server) {
            site.pool.set("fallback", "none");
        }
        limit(&php, server, &mut site, around);
        site.answered = answered(&php, around, &site);
        keep_path_info_away(server, &php, &mut site);
    }
    Some(site)
}

/// Whether paths without a file go to a script.
fn leads_to_front(server: &Directive) -> bool {
    let is_all = |it: &Directive| it.arguments == ["/"] || it.argument(0).starts_with('@');
    let locations = server
        .inside
        .iter()
        .filter(|it| it.name == "location" && is_all(it));
    std::iter::once(server).chain(locations).any(|it| {
        let conditions = it.inside.iter().filter(|it| it.name == "if");
        let mut all = it.inside.iter().chain(conditions.flat_map(|it| &it.inside));
        all.any(|it| {
            let names = ["try_files", "rewrite", "error_page", "fastcgi_pass"];
            let last = it.arguments.last().map_or("", String::as_str);
            let is_named = it.name == "try_files" && last.starts_with('@');
            names.contains(&it.name.as_str())
                && (it.name == "fastcgi_pass" || is_named || it.arguments.concat().contains(".php"))
        })
    })
}

/// `return` of a server, or of its `location /` beside which there are only files.
fn redirect_of_all(server: &Directive) -> Option<&Directive> {
    if let Some(redirect) = server.find("return") {
        return Some(redirect);
    }
    let mut locations = server.inside.iter().filter(|it| it.name == "location");
    let is_all = |it: &Directive| it.arguments == ["/"];
    let others_are_files =
        locations.all(|it| is_all(it) || (!gives_php(it) && it.argument(0) != "~*"));
    let mut locations = server.inside.iter().filter(|it| it.name == "location");
    let all = locations.find(|it| is_all(it)).filter(|_| others_are_files);
    all.filter(|it| !it.has("try_files"))?.find("return")
}

fn redirect_is_locations(server: &Directive) -> bool {
    !server.has("return")
}

/// Files that are sent without TLS, for certificates above all: clients that ask for one follow the
/// redirect. Whether there are any.
fn files_beside_redirect(server: &Directive, site: &Site, draft: &mut Draft) -> bool {
    let mut has_files = false;
    for it in server.inside.iter().filter(|it| it.name == "location") {
        let path = it.arguments.last().map_or("", String::as_str);
        let folder = it.find("alias").or_else(|| it.find("root"));
        let folder = folder.or_else(|| server.find("root"));
        if let Some(folder) = folder.filter(|_| path.starts_with("/.well-known"))
            && !folder.argument(0).contains('$')
        {
            let folder = folder.argument(0).trim_end_matches('/');
            has_files |= files(it, path, Some(folder), Beside::default(), site, draft);
        }
    }
    has_files
}

/// An `if` of a server. The host that it leads to TLS is returned.
fn on_condition(
    directive: &Directive,
    site: &mut Site,
    is_tls: bool,
    draft: &mut Draft,
    around: &Around,
) -> Option<String> {
    let condition = directive.arguments.join(" ");
    let condition = condition.strip_prefix('(').unwrap_or(&condition);
    // Others stand in the expression.
    let condition = condition.strip_suffix(')').unwrap_or(condition).trim();
    let words: Vec<&str> = condition.split_whitespace().collect();
    if let [
        "$request_uri" | "$uri" | "$document_uri",
        how @ ("~" | "~*"),
        expression,
    ] = words[..]
        && directive.inside.iter().any(leads_elsewhere)
    {
        // The files there were not sent.
        let sign = if how == "~*" { "(?i)" } else { "" };
        let outcome = site.refuse_expression(&format!("{sign}{expression}"), NOT_FOUND);
        let text = format!("all paths with `{expression}` in them are answered 404");
        draft.leave_out_limit(directive, &outcome.unwrap_or(text));
        return None;
    }
    let is_of_no_file = condition.contains("$request_filename") && condition.contains("!-");
    let is_of_host = ["$host", "$http_host", "$server_name", "$scheme", "$https"]
        .contains(&words.first().copied().unwrap_or_default());
    if is_of_no_file && directive.inside.iter().any(leads_to_others) {
        draft.leave_out_limit(
            directive,
            "rules can't ask whether a file exists, so these paths are not rewritten: sites of a \
             network in subdirectories have no files and scripts",
        );
        return None;
    }
    if (is_of_no_file || is_of_host) && directive.inside.iter().any(|it| it.name == "rewrite") {
        // No file at its own path is kept from this host by it.
        draft.leave_out(directive);
        return None;
    }
    let [returns] = &directive.inside[..] else {
        return None;
    };
    let (status, to) = (returns.argument(0), returns.argument(1));
    let is_redirect = returns.name == "return" && self::status(status).is_some();
    let is_refusal = returns.name == "return" && status.starts_with('4') && to.is_empty();
    let status = if status == "444" { NOT_FOUND } else { status };
    let place = to.strip_suffix("$request_uri");
    match words[..] {
        ["$scheme", "=", "http"]
        | ["$scheme" | "$https", "!=", "https" | "on"]
        | ["$https", "="]
            if is_redirect
                && around.has_tls
                && place.is_some_and(|it| it.starts_with("https://")) =>
        {
            draft.section("ssl").set("redirect", true);
            directive.done_whole();
        }
        ["$host" | "$http_host", "=", host] if is_redirect && is_host(host) => {
            let place = place?.replace("$host", host).replace("$server_name", host);
            if place == format!("https://{host}") {
                if is_tls {
                    return None;
                }
                draft.lead_to_tls(returns, site, false);
                directive.done_whole();
                return Some(host.to_owned());
            }
            if !place.contains(['$', '{', '}']) {
                lead_host(host, &place, &self::status(status)?, draft);
                directive.done_whole();
                return Some(host.to_owned());
            }
        }
        [
            "$http_user_agent" | "$http_referer",
            how @ ("~" | "~*"),
            expression,
        ] if is_refusal => {
            let name = if words[0] == "$http_referer" {
                "Referer"
            } else {
                "User-Agent"
            };
            let sign = if how == "~*" { "(?i)" } else { "" };
            let mut fields = Tree::default();
            fields.set(name, format!("{sign}{expression}"));
            let mut keys = Tree::default();
            keys.set("header", Value::Map(fields));
            keys.merge(refusal(status));
            if site.condition(keys) {
                directive.done_whole();
            }
        }
        [
            "$request_method",
            how @ ("~" | "~*" | "!~" | "!~*" | "=" | "!="),
            methods,
        ] if is_refusal => {
            if let Some(mut keys) = self::methods(how, methods) {
                keys.merge(refusal(status));
                if site.condition(keys) {
                    directive.done_whole();
                }
            }
        }
        [
            variable @ ("$request_uri" | "$uri" | "$document_uri"),
            "~" | "~*",
            expression,
        ] if is_refusal => {
            draft.refuse(directive, expression, status, site);
            if variable == "$request_uri" && may_be_in_a_query(expression) {
                let outcome = "the path is looked at, the query is the application's";
                draft.leave_out_limit(directive, outcome);
            }
        }
        ["$query_string" | "$args" | "$http_cookie", ..] if is_refusal => {
            draft.leave_out_limit(directive, "such requests are the application's");
        }
        _ => {}
    }
    None
}

/// Whether a statement of an `if` gives its requests another path.
fn leads_elsewhere(inside: &Directive) -> bool {
    let is_redirect = inside.name == "return" && status(inside.argument(0)).is_some();
    inside.name == "rewrite" || is_redirect
}

/// Whether an expression may be found after the path of a target, or nowhere else.
fn may_be_in_a_query(expression: &str) -> bool {
    !expression.starts_with("^/") || expression.contains(['?', '&', '=', '.', '['])
}

/// All requests for a host go elsewhere.
fn lead_host(host: &str, place: &str, status: &Value, draft: &mut Draft) {
    let mut rule = Tree::default();
    rule.set("host", host)
        .set("path", "^/(.*)$")
        .set("to", format!("{place}/{{1}}"));
    rule.set("status", status.clone());
    draft.rewrite(rule);
}

/// Whether a `rewrite` leads a path to a file or script whose name is a part of it.
fn leads_to_others(rewrite: &Directive) -> bool {
    let is_inner = !["permanent", "redirect"].contains(&rewrite.argument(2));
    rewrite.name == "rewrite" && is_inner && rewrite.argument(1).starts_with('$')
}

/// Keeps from running here what did not run there.
fn limit(php: &Php<'_>, server: &Directive, site: &mut Site, around: &Around) {
    let runs_some = gives_php(server);
    if site.root.is_none() || !runs_some && !around.has_php {
        return;
    }
    if site.pool.get("fallback") == Some(&Value::from("none"))
        && let Some((page, script)) = php.server().inside.iter().find_map(answers_missing)
        && php.runs_front(script)
    {
        site.pool.set("fallback", script.trim_start_matches('/'));
        page.done();
    }
    let front = match site.pool.get("fallback") {
        Some(Value::Text(script)) => format!("/{script}"),
        _ => php.front.clone(),
    };
    let has_front = runs_some && front != "/none" && php.runs_front(&front);
    if runs_some && !has_front {
        site.pool.set("fallback", "none");
    }
    if runs_some && !has_front {
        close_index("/", site, php);
    }
    if php.is_root_all() {
        site.whole = scripts("named");
    } else if !php.runs_all() {
        site.whole = scripts(if has_front { "front" } else { "none" });
        if !has_front && php.shows_index(&around.index) {
            site.rule(At::Path("/".to_owned()), Rank::Plain, scripts("named"));
        }
    }
}

/// Paths that a script answers, as far as it can be told.
fn answered(php: &Php<'_>, around: &Around, site: &Site) -> Vec<String> {
    let mut paths = Vec::new();
    if php.shows_index(&around.index) {
        paths.push("/".to_owned());
    }
    let leads = leads_to_front(php.server()) && php.takes_rest("/a-1/b");
    if leads && site.pool.get("fallback") != Some(&Value::from("none")) {
        paths.extend([php.front.clone(), "/a-1/b".to_owned()]);
    }
    paths.retain(|path| path == "/" || php.runs_front(&php.front));
    paths
}

/// `.example.com` is the host and all below it.
fn hosts_of(name: &str) -> Vec<String> {
    match name.strip_prefix('.') {
        Some(host) => vec![host.to_owned(), format!("*.{host}")],
        None => vec![name.to_owned()],
    }
}

/// Whether a path that a rule of a server gives may be taken by a later one: without a flag nginx
/// goes on with those.
fn is_led_on(rewrite: &Directive, server: &Directive) -> bool {
    let goes_on = rewrite.argument(2).is_empty() && !rewrite.argument(1).contains("://");
    let groups: Vec<String> = (1..=9).map(|it| format!("${it}")).collect();
    let target = |with: &str| {
        let to = rewrite
            .argument(1)
            .split('?')
            .next()
            .unwrap_or_default()
            .to_owned();
        groups.iter().fold(to, |to, group| to.replace(group, with))
    };
    let later = server
        .inside
        .iter()
        .skip_while(|it| !std::ptr::eq(*it, rewrite));
    let mut later = later.skip(1).filter(|it| it.name == "rewrite");
    goes_on
        && later.any(|it| {
            ["a", "a/b", "a.php"]
                .iter()
                .any(|with| is_found(it.argument(0), &target(with)))
        })
}

fn is_host(name: &str) -> bool {
    let rest = name.strip_prefix("*.").unwrap_or(name);
    !rest.is_empty()
        && rest
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

/// A server that leads to TLS still says where.
fn listen_only(site: &Site, draft: &mut Draft) {
    if let Some((address, false)) = site.listens.first()
        && draft.http().get("address").is_none()
    {
        draft.http().set("address", address.as_str());
    }
}

fn listen(directive: &Directive, site: &mut Site) {
    let given = directive.argument(0);
    let is_tls = directive.arguments.iter().any(|argument| argument == "ssl");
    let mut flags = directive.arguments.iter();
    site.is_default |= flags.any(|it| it == "default_server" || it == "default");
    // It changes who a client is.
    if directive
        .arguments
        .iter()
        .any(|it| it == "proxy_protocol" || it == "quic")
    {
        return;
    }
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut any = ["[::]:", "*:", "0.0.0.0:"].iter();
    let address = match any.find_map(|it| given.strip_prefix(it)) {
        Some(port) => format!(":{port}"),
        None if is_port(given) => format!(":{given}"),
        None => match given.strip_prefix("unix:") {
            Some(path) => format!("unix://{path}"),
            None if given.ends_with(']') || !given.contains(':') => format!("{given}:80"),
            None => given.to_owned(),
        },
    };
    if !site.listens.contains(&(address.clone(), is_tls)) {
        site.listens.push((address, is_tls));
    }
    directive.done();
}

/// A status of a redirect.
fn status(text: &str) -> Option<Value> {
    let is_redirect = ["301", "302", "303", "307", "308"].contains(&text);
    is_redirect.then(|| Value::Bare(text.to_owned()))
}

/// The place to which a server leads all its requests.
enum Goal {
    /// The same host, with TLS.
    Tls,
    /// The same host as it is here, where each site answers at all addresses.
    Itself,
    /// Another host, with a status.
    Other(String, Value),
}

/// The goal of `return 301 https://…`; None where ours cannot lead there.
fn goal_of(redirect: &Directive, site: &Site, is_tls: bool) -> Option<Goal> {
    let place = redirect.argument(1).strip_suffix("$request_uri")?;
    let (scheme, authority) = place.split_once("://")?;
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit());
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => authority,
    };
    let status = status(redirect.argument(0))?;
    if host == "$host" || host == "$server_name" || site.names.iter().any(|name| name == host) {
        return Some(match scheme {
            "https" if !is_tls => Goal::Tls,
            _ => Goal::Itself,
        });
    }
    let is_fixed = !place.contains(['$', '{', '}']) && !site.names.is_empty();
    is_fixed.then(|| Goal::Other(place.to_owned(), status))
}

/// What may stand in a server as well as around it. Who translates one says so by `done`.
fn of_server(directive: &Directive, site: &mut Site, draft: &mut Draft, around: &Around) {
    let first = directive.argument(0);
    let is_plain = !first.contains('$');
    match directive.name.as_str() {
        "root" if is_plain => site.root = Some(first.trim_end_matches('/').to_owned()),
        "index" => index(directive, site),
        "try_files" => {
            if !tries_own(directive) {
                // The file of a path itself was not sent.
                site.send_none("");
                let is_led = try_files(directive, site);
                let last = directive.arguments.last().map_or("", String::as_str);
                if is_led && !last.starts_with('=') {
                    return tell_tries(directive, site.root.as_deref(), draft);
                }
                return draft.leave_out_limit(directive, "no files are sent");
            }
            if !try_files(directive, site) {
                return;
            }
        }
        "ssl_certificate" if is_plain => site.certificate.0 = Some(first.to_owned()),
        "ssl_certificate_key" if is_plain => site.certificate.1 = Some(first.to_owned()),
        "add_header" if first.eq_ignore_ascii_case("strict-transport-security") => {
            draft.hsts(directive.argument(1));
        }
        "add_header" if is_plain && !directive.argument(1).contains('$') => {
            draft.response_field(first, directive.argument(1));
        }
        "gzip" if first == "on" => draft.compress(Vec::new()),
        "gzip" | "gzip_static" | "auth_basic" | "auth_request" | "ssl_verify_client"
        | "disable_symlinks"
            if first == "off" => {}
        "satisfy" if first == "all" => {}
        "allow" if first == "all" => {}
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
            None => return,
        },
        "fastcgi_read_timeout" if seconds(first).is_some() => time_limit(first, site),
        "fastcgi_param" => return parameter(directive, site, draft),
        "fastcgi_pass" => {
            let known = around.upstreams.iter().find(|(name, _)| name == first);
            match known {
                Some((_, sockets)) => site.backends.extend(sockets.iter().cloned()),
                None => site.backends.push(first.to_owned()),
            }
        }
        "rewrite" => {
            if let Some(rule) = rewrite(directive, site, draft) {
                draft.rewrite_unless_refused(rule);
            }
            return;
        }
        "error_page" => return error_page(directive, site, draft),
        "access_log" if first == "off" || first.is_empty() => {}
        "access_log" if is_plain => draft.section("access_log").push("output", first),
        "include" if is_known_include(first) => {}
        "include" => {
            let place = draft.place(directive.place);
            draft.limits.push(format!(
                "{place}: `include {first}`: this file does not exist here, so its limits do not \
                 hold; copy it here, or paste its content in this place"
            ));
            directive.fate.set(directive::Fate::Told);
            return;
        }
        "user" => _ = draft.tree.map(&["server"]).set("user", first),
        "types" | "events" => directive.done_whole(),
        name if NEEDLESS.contains(&name) => {}
        _ => return,
    }
    directive.done();
}

/// The root of a server or of its `location /`, where its scripts may have another one.
fn root(directive: &Directive, site: &mut Site, draft: &mut Draft) {
    let root = directive.argument(0).trim_end_matches('/');
    if site.root.as_deref() == Some(root) {
        return directive.done();
    }
    if site.root.is_some() {
        site.send_none("");
        return draft.leave_out_limit(directive, "no files are sent; scripts have another root");
    }
    draft.leave_out_limit(
        directive,
        "one pool has one root: write a site for each of its values",
    );
}

fn index(directive: &Directive, site: &mut Site) {
    let is_name = |name: &&String| !name.contains(['/', '$']);
    let names: Vec<String> = directive
        .arguments
        .iter()
        .filter(is_name)
        .cloned()
        .collect();
    // A path as the last one is what answers where there is none of the names.
    if let Some(path) = directive.arguments.last().filter(|it| it.starts_with('/')) {
        try_files_last(path, site);
    }
    // index.php alone is what holds anyway.
    if names.len() > 1 || names.first().is_some_and(|name| name != "index.php") {
        site.pool.set("index", names);
    }
}

fn try_files(directive: &Directive, site: &mut Site) -> bool {
    match directive.arguments.last().map(String::as_str) {
        Some("=404") => _ = site.pool.set("fallback", "none"),
        Some(last) if last.starts_with('/') => return try_files_last(last, site),
        Some(last) if last.starts_with('@') => {}
        _ => return false,
    }
    true
}

/// A `try_files` that sends no file of a path and leads all of them to the front controller.
fn tries_front<'a>(location: &'a Directive, php: &Php<'_>) -> Option<&'a Directive> {
    let tries = location.find("try_files").filter(|it| !tries_own(it))?;
    (php.led_to(tries)? == php.front && php.runs_front(&php.front)).then_some(tries)
}

/// Lets scripts below a prefix run by their names, where no file of it is sent: an expression is
/// asked for them. None of them answers for its directory, for which the prefix is asked.
fn named_below(path: &str, rank: Rank, site: &mut Site) {
    let start = as_it_is(path);
    let mut named = front_alone();
    named.set("scripts", "named");
    site.rule_within(format!("^{start}(?:.*/)?$"), rank, front_alone(), path);
    site.rule_within(format!("^{start}.*\\.php(?:/.*)?$"), rank, named, path);
}

/// Says what else is tried than the file of a path: nothing here looks for it.
fn tell_tries(tries: &Directive, root: Option<&str>, draft: &mut Draft) {
    let files = tries.arguments.split_last().map_or(&[][..], |it| it.1);
    // A page of maintenance that is there would be all that nginx sends.
    let is_there = |file: &str| {
        let file = file.trim_start_matches("$document_root");
        file.contains('$')
            || root.is_some_and(|it| Path::new(it).join(file.trim_start_matches('/')).exists())
    };
    if files.iter().any(|it| is_there(it)) {
        return draft.leave_out_limit(tries, "no files are sent, and the front controller answers");
    }
    tries.done();
    for file in files.iter().filter(|it| it.starts_with('/')) {
        draft.note(&format!(
            "`{file}` is not looked for: the front controller answers, also when such a file \
             comes to be there"
        ));
    }
}

/// The script that answers for paths without a file.
fn try_files_last(last: &str, site: &mut Site) -> bool {
    let script = last.split(['?', '$']).next().unwrap_or_default();
    let is_known = is_script(script);
    if is_known && script != "/index.php" {
        site.pool.set("fallback", script.trim_start_matches('/'));
    }
    is_known
}

fn time_limit(time: &str, site: &mut Site) {
    if let Some(seconds) = seconds(time) {
        let limit = format!("{seconds}s");
        site.pool.map(&["supervisor"]).set("exec_ttl", limit);
    }
}

fn parameter(directive: &Directive, site: &mut Site, draft: &mut Draft) {
    let (name, value) = (directive.argument(0), directive.argument(1));
    if value.contains("$realpath_root") {
        site.pool.set("resolve_root", "each_request");
    }
    if KNOWN_PARAMETERS.contains(&name) {
        return directive.done();
    }
    if value.contains('$') {
        return;
    }
    if !["PHP_VALUE", "PHP_ADMIN_VALUE"].contains(&name) {
        if draft.variable(name, value) {
            directive.done();
        }
        return;
    }
    let lines = value.split(['\n']).flat_map(|it| it.split("\\n"));
    let lines = lines.map(str::trim).filter(|it| !it.is_empty());
    let pairs: Option<Vec<_>> = lines.map(|it| it.split_once('=')).collect();
    for (name, value) in pairs.iter().flatten() {
        let value = value.trim().trim_matches('"');
        site.pool.map(&["ini"]).set(name.trim(), value);
    }
    if pairs.is_some() {
        directive.done();
    }
}

/// The rule of a `rewrite`, if the server takes it.
fn rewrite(directive: &Directive, site: &Site, draft: &Draft) -> Option<Tree> {
    let status = match directive.argument(2) {
        "permanent" => Some(301),
        "redirect" => Some(302),
        _ => None,
    };
    let to = directive.argument(1);
    // The query is kept anyway.
    let to = ["?$args", "?$query_string", "$is_args$args"]
        .iter()
        .find_map(|query| to.strip_suffix(query))
        .unwrap_or(to);
    let to = target(to.trim_end_matches('?'));
    if to.contains('$') {
        return None;
    }
    let mut rule = Tree::default();
    draft.for_hosts(&mut rule, site);
    rule.set("path", with_path_info(&pattern(directive.argument(0))))
        .set("to", to);
    if let Some(status) = status {
        rule.set("status", status);
    }
    accepts_rule(&rule).then(|| {
        directive.done();
        rule
    })
}

/// An expression that is also found in what follows the name of a script at its end: scripts run
/// here with a path after their names, which a rule for these names alone would let run.
fn with_path_info(expression: &str) -> String {
    let script = expression.strip_suffix('$').filter(|it| {
        let name = it.trim_end_matches(')');
        name.ends_with("\\.php") && !has_parts(it)
    });
    match script {
        Some(script) => format!("{script}(?:/.*)?$"),
        None => expression.to_owned(),
    }
}

/// Whether an expression may be found at the end of a script's name and not in what follows it.
fn may_end_in_script(expression: &str) -> bool {
    if with_path_info(expression) != expression {
        return false;
    }
    let Some(text) = expression.strip_suffix('$') else {
        return has_parts(expression) && expression.contains('$');
    };
    let text = text.strip_suffix("/?").unwrap_or(text);
    let bare = text.trim_end_matches([')', '?']);
    let of_digits = ["[0-9]+", "[0-9]*", "\\d+", "\\d*"];
    let of_all = [".*", ".+"];
    if has_parts(expression) || !bare.is_ascii() {
        return true;
    }
    if bare.ends_with('/') || of_digits.iter().chain(&of_all).any(|it| bare.ends_with(it)) {
        return false;
    }
    let tail = bare.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "-_".contains(c));
    let tail = bare.get(tail.len()..).unwrap_or_default();
    tail.is_empty() || bare.contains(['[', '|']) || "php".ends_with(tail) || tail.ends_with("php")
}

/// Keeps scripts from running with a path after their names, where nginx runs them without one
/// alone, and a rule leads some of them away that can't be written for both.
fn keep_path_info_away(server: &Directive, php: &Php<'_>, site: &mut Site) {
    fn leads_some(it: &Directive) -> bool {
        let is_redirect = expression(it).is_some_and(may_end_in_script) && it.has("return");
        it.name == "rewrite" && may_end_in_script(it.argument(0))
            || it.name == "location" && is_redirect
            || it.inside.iter().any(leads_some)
    }
    if !gives_php(server) || !server.inside.iter().any(leads_some) || php.takes_path_info() {
        return;
    }
    let has_none = site.pool.get("fallback") == Some(&Value::from("none"));
    let which = site.without(if has_none { "none" } else { "front" });
    site.rule(At::Expression("\\.php/".to_owned()), Rank::Inner, which);
}

/// A `rewrite` of a location, if it is about this path, and leads to files that are sent anyway or
/// is a redirect.
fn rewrite_inside(
    directive: &Directive,
    path: &str,
    site: &Site,
    draft: &mut Draft,
    php: &Php<'_>,
) {
    let is_about = directive.argument(0).starts_with(&format!("^{path}"));
    let stays = directive.argument(1).starts_with(path)
        || ["permanent", "redirect"].contains(&directive.argument(2));
    if is_about
        && stays
        && !directive.argument(1).contains(".php")
        && let Some(others) = rules_of_others(directive, path, site, draft, php)
        && let Some(rule) = rewrite(directive, site, draft)
    {
        for rule in others.into_iter().chain([rule]) {
            draft.rewrite_unless_refused(rule);
        }
    }
}

/// A `rewrite` of `location /`, which other locations come before. The paths of one that ours can't
/// say are closed.
fn rewrite_of_rest(
    directive: &Directive,
    location: &Directive,
    site: &mut Site,
    draft: &mut Draft,
    php: &Php<'_>,
) {
    let own = location.argument(0);
    let others = rules_of_others(directive, own, site, draft, php);
    let others = others.filter(|_| !draft.has_many || !site.names.is_empty());
    let rules = others.and_then(|it| Some((it, rewrite(directive, site, draft)?)));
    match rules {
        Some((others, rule)) => {
            for rule in others.into_iter().chain([rule]) {
                draft.rewrite_unless_refused(rule);
            }
        }
        None if is_of_all_paths(directive.argument(0)) => {}
        None => {
            let expression = directive.argument(0);
            let outcome = site.refuse_expression(expression, NOT_FOUND);
            let text = format!("all paths with `{expression}` in them are answered 404");
            draft.leave_out_limit(directive, &outcome.unwrap_or(text));
        }
    }
}

/// Rules that leave the paths of other locations as they are, before one of a `rewrite` that stands
/// in the location of a path and would take them: the first rule that matches holds. None where one
/// can't be said.
fn rules_of_others(
    rewrite: &Directive,
    own: &str,
    site: &Site,
    draft: &Draft,
    php: &Php<'_>,
) -> Option<Vec<Tree>> {
    let taken = rewrite.argument(0);
    let mut all: Vec<&Directive> = locations(php.server()).collect();
    let inner: Vec<&Directive> = all.iter().flat_map(|it| locations(it)).collect();
    all.extend(inner);
    let mut rules: Vec<Tree> = Vec::new();
    for other in all {
        let (sign, path) = match &other.arguments[..] {
            [path] => ("", path.as_str()),
            [sign, path] => (sign.as_str(), path.as_str()),
            _ => continue,
        };
        let plain = as_it_is(path);
        let (expression, stays) = match sign {
            "" if path.starts_with('@') || is_in(own, path) => continue,
            "" | "^~" => (
                format!("^{plain}"),
                (format!("^{plain}(.*)$"), format!("{path}{{1}}")),
            ),
            "=" => (
                format!("^{plain}$"),
                (format!("^{plain}$"), path.to_owned()),
            ),
            _ => {
                let flag = if sign == "~*" { "(?i)" } else { "" };
                let is_start = path.starts_with("^/") && !has_parts(path);
                let rest = path.strip_prefix("^/").filter(|_| is_start);
                let rest = match rest {
                    Some(rest) => format!("(?:{rest}).*"),
                    None => format!(".*(?:{path}).*"),
                };
                let stays = format!("{flag}^/({})$", pattern(&rest));
                (format!("{flag}{path}"), (stays, "/{1}".to_owned()))
            }
        };
        if !may_meet(taken, &expression) {
            continue;
        }
        // A start in its middle, or the first slash of a path, is not found behind that slash.
        let is_said = !sign.starts_with('~')
            || stays.0.matches('^').count() == 1 + stays.0.matches("[^").count()
                && !path.starts_with(['/', '(']);
        let mut rule = Tree::default();
        draft.for_hosts(&mut rule, site);
        rule.set("path", stays.0).set("to", stays.1);
        if !is_said || !accepts_rule(&rule) {
            return None;
        }
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    Some(rules)
}

/// Whether a path may be one of both expressions, as far as their starts tell.
fn may_meet(one: &str, other: &str) -> bool {
    if let Some(all) = one.strip_prefix('^').and_then(|it| it.strip_suffix('$'))
        && let Some(all) = expand(all)
    {
        return all.iter().any(|path| is_found(other, path));
    }
    let start = |it: &str| {
        let rest = it.strip_prefix('^').filter(|it| !has_parts(it))?;
        let plain = rest.replace('\\', "");
        let end = plain.find(|c: char| !(c.is_ascii_alphanumeric() || "/-_".contains(c)));
        let end = end.map_or(plain.len(), |at| at.saturating_sub(1));
        plain.get(..end).map(str::to_owned)
    };
    match (start(one), start(other)) {
        (Some(one), Some(other)) => one.starts_with(&other) || other.starts_with(&one),
        _ => true,
    }
}

fn error_page(directive: &Directive, site: &Site, draft: &mut Draft) {
    let Some((page, statuses)) = directive.arguments.split_last() else {
        return;
    };
    let is_page = page.starts_with('/') && !is_script(page) && !page.contains('$');
    let are_statuses = statuses
        .iter()
        .all(|it| it.len() == 3 && it.starts_with(['4', '5']));
    if let Some(root) = &site.root
        && is_page
        && are_statuses
        && !statuses.is_empty()
    {
        let file = format!("{root}{page}");
        if statuses.iter().all(|it| draft.error_page(it, &file)) {
            directive.done();
        }
    }
}

/// `error_page 404 = /index.php;`: with the sign, the script's own status counts.
fn answers_missing(page: &Directive) -> Option<(&Directive, &str)> {
    let (script, statuses) = page.arguments.split_last()?;
    let has = |word: &str| statuses.iter().any(|it| it == word);
    let leads = page.name == "error_page" && has("404") && has("=");
    (leads && script.starts_with('/') && is_script(script)).then_some((page, script.as_str()))
}

/// `is_inner`: it stands inside `location /`.
fn location(
    directive: &Directive,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
    php: &Php<'_>,
    is_inner: bool,
) {
    let (how, path) = match &directive.arguments[..] {
        [path] => ("", path.as_str()),
        [how, path] => (how.as_str(), path.as_str()),
        _ => return,
    };
    match how {
        "~" | "~*" => {
            by_pattern(directive, path, site, draft, around, php, is_inner);
            close_index_of_pattern(path, site, php);
        }
        _ if path.starts_with('@') => {
            directive.done();
            for inside in &directive.inside {
                // It is what try_files leads to: the front controller.
                if inside.name == "internal"
                    || inside.name == "rewrite" && inside.argument(1).contains(".php")
                {
                    inside.done();
                    if leads_all_to(inside).is_some_and(|it| it == php.front) {
                        _ = try_files_last(&php.front, site); // it is a script
                    }
                } else if inside.name != "rewrite" {
                    of_server(inside, site, draft, around);
                }
            }
        }
        "^~" if path == "/" => {
            // No expression of the server is asked.
            draft.leave_out_limit(directive, ALL_CLOSED);
            site.close("");
        }
        _ if path == "/" && how != "=" => {
            directive.done();
            if let Some(status) = refuses(directive) {
                // Other locations answer for their own paths.
                site.rest = Some(status.to_owned());
                return directive.done_whole();
            }
            match php.runs(directive, &[]) {
                Runs::Nothing => {}
                Runs::Named => site.send_none(""),
                Runs::Always(script) => {
                    site.send_none("");
                    _ = try_files_last(&script, site); // it is a script
                }
                Runs::Elsewhere => {
                    site.send_none("");
                    // The root here is that of other scripts.
                    site.pool.set("fallback", "none");
                    draft.leave_out_limit(
                        directive,
                        "no files are sent, and its scripts do not run",
                    );
                }
            }
            for inside in &directive.inside {
                match inside.name.as_str() {
                    "location" => location(inside, site, draft, around, php, true),
                    "if" => front_by_condition(inside, site),
                    "rewrite" if leads_all_to(inside).is_some() => {
                        // Other locations are asked before it, as no rule would be.
                        inside.done();
                        site.send_none("");
                        _ = try_files_last(&php.front, site); // it is a script
                    }
                    "rewrite" => rewrite_of_rest(inside, directive, site, draft, php),
                    "root" => root(inside, site, draft),
                    _ => of_server(inside, site, draft, around),
                }
            }
            if let Some(inside) = answers_otherwise(directive).filter(|it| is_for_all(it)) {
                // Then no file below the root was sent.
                draft.leave_out_limit(inside, ALL_CLOSED);
                site.close("");
            }
        }
        _ if !path.starts_with('/') || path.contains(['*', '?', '#', '$', '\\']) => {}
        _ => {
            let how = match how {
                "=" => How::Exact,
                // Inside of another one, it keeps no expression of the server from being asked.
                "^~" if !is_inner => How::Strong,
                _ => How::Plain,
            };
            below(directive, how, path, site, draft, around, php);
            if let (How::Exact, Some(directory)) = (how, path.strip_suffix("index.php")) {
                close_index(directory, site, php);
            }
        }
    }
}

/// `if (!-e $request_filename) { rewrite ^ /index.php last; }`, the older way to write `try_files`.
fn front_by_condition(directive: &Directive, site: &mut Site) {
    let condition = directive.arguments.concat();
    if let [rewrite] = &directive.inside[..]
        && condition.contains("$request_filename")
        && condition.contains("!-")
        && rewrite.name == "rewrite"
        && !rewrite.argument(1).contains("=$")
        && try_files_last(rewrite.argument(1), site)
    {
        directive.done_whole();
    }
}

/// With which sign a location is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Exact,
    /// `^~`: no expression is asked.
    Strong,
    Plain,
}

impl How {
    const fn rank(self) -> Rank {
        match self {
            Self::Exact => Rank::Exact,
            Self::Strong => Rank::Strong,
            Self::Plain => Rank::Plain,
        }
    }

    fn at(self, path: &str) -> At {
        match self {
            Self::Exact => At::Path(path.to_owned()),
            Self::Strong | Self::Plain => At::Below(path.to_owned()),
        }
    }

    /// All paths that it takes, for what it keeps from them. Without a slash at its end it is the
    /// beginning of longer names, too.
    fn all(self, path: &str) -> At {
        match self {
            Self::Exact => At::Path(path.to_owned()),
            Self::Strong | Self::Plain => At::Start(path.to_owned()),
        }
    }
}

/// The status of a block that refuses all: `deny all`, or `return 403` or another one.
fn refuses(directive: &Directive) -> Option<&str> {
    if ["allow", "location", "fastcgi_pass", "if"]
        .iter()
        .any(|name| directive.has(name))
    {
        return None;
    }
    let mut returns = directive.inside.iter().filter(|it| it.name == "return");
    let status = returns.next().map(|it| it.argument(0));
    match status {
        Some("444") => Some(NOT_FOUND),
        Some(status) => (status.starts_with('4') && status.len() == 3).then_some(status),
        None => {
            let mut all = directive.inside.iter();
            all.any(|it| it.name == "deny" && it.argument(0) == "all")
                .then_some("403")
        }
    }
}

/// Keeps the script of a directory from answering for it, where it does not run by its own name.
fn close_index(directory: &str, site: &mut Site, php: &Php<'_>) {
    if gives_php(php.server()) && !php.runs_front(&format!("{directory}index.php")) {
        let keys = site.without("none");
        site.rule(At::Path(directory.to_owned()), Rank::Refusal, keys);
    }
}

/// The same for the directories of an expression.
fn close_index_of_pattern(expression: &str, site: &mut Site, php: &Php<'_>) {
    let Some(rest) = expression.strip_prefix('^') else {
        return;
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
    let end = rest.find(|c| !is_plain(c)).unwrap_or(rest.len());
    let Some((directory, _)) = rest.get(..end).and_then(|it| it.rsplit_once('/')) else {
        return;
    };
    let finds = |name: &str| is_found(expression, &format!("{directory}/{name}"));
    if finds("index.php") {
        close_index(&format!("{directory}/"), site, php);
    }
    let deeper = format!("{directory}/a-1/index.php");
    // An expression that finds the directory's own path has its own rule for that.
    let is_of_script = finds("a-1/index.php") && !finds("a-1/");
    if gives_php(php.server()) && is_of_script && !php.runs_front(&deeper) {
        let at = At::Expression(format!("^{}/.*/$", as_it_is(directory)));
        let keys = site.without("none");
        site.rule(at, Rank::Refusal, keys);
    }
}

/// Answers 404 where an expression is found, and says so.
fn close_pattern(
    directive: &Directive,
    told: &Directive,
    expression: &str,
    site: &mut Site,
    draft: &mut Draft,
) {
    directive.done();
    let at = At::Expression(expression.to_owned());
    let outcome = if takes_every_script(expression) {
        // Scripts of an expression before it run.
        site.rule(at, Rank::Expression, refusal(NOT_FOUND));
        None
    } else {
        site.refuse_expression(expression, NOT_FOUND)
    };
    let text = format!("all paths with `{expression}` in them are answered 404");
    draft.leave_out_limit(told, &outcome.unwrap_or(text));
}

/// Locations inside of an expression's one, each an expression, too: they are asked first.
fn inside_pattern(
    directive: &Directive,
    outer: &str,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
    php: &Php<'_>,
) {
    for inner in locations(directive) {
        let pattern = expression(inner).unwrap_or_default();
        let runs = if limits(inner) || locations(inner).next().is_some() {
            Runs::Elsewhere
        } else {
            php.runs(inner, &[directive])
        };
        let here = both(outer, pattern).filter(|_| runs == Runs::Named);
        let here = here.filter(|it| is_of_scripts(it) || is_of_scripts(pattern));
        let is_open =
            here.is_some_and(|it| site.rule(At::Expression(it), Rank::Expression, Tree::default()));
        if is_open {
            inner.done();
            for inside in &inner.inside {
                of_php(inside, site, draft, around);
            }
            continue;
        }
        // More than where both are found.
        let below = literal(pattern).filter(|_| takes_every_script(outer));
        let wider = below.map(|it| format!("^{}.*\\.php", as_it_is(&it)));
        let wider = wider.unwrap_or_else(|| pattern.to_owned());
        match refuses(inner) {
            Some(status) => {
                if let Some(outcome) = site.refuse_expression(&wider, status) {
                    draft.leave_out_limit(inner, &outcome);
                } else {
                    inner.done_whole();
                }
            }
            None => close_pattern(inner, inner, &wider, site, draft),
        }
    }
}

/// A statement of a location whose scripts run.
fn of_php(inside: &Directive, site: &mut Site, draft: &mut Draft, around: &Around) {
    match inside.name.as_str() {
        "try_files" => inside.done(), // whether the script is there is looked at anyway
        "if" if looks_for_script(inside) => inside.done_whole(),
        "root" => inside.done(), // the site's
        "location" => {}
        _ => of_server(inside, site, draft, around),
    }
}

/// `if (!-f $document_root$fastcgi_script_name) { return 404; }`.
fn looks_for_script(inside: &Directive) -> bool {
    inside.name == "if" && inside.arguments.concat().contains("!-f") && inside.has("return")
}

/// The rule for scripts that an expression names, if one after it refuses some of them and none
/// before it does.
fn named_scripts(
    directive: &Directive,
    expression: &str,
    site: &Site,
    php: &Php<'_>,
) -> Option<String> {
    let bare = expression.strip_prefix('^')?;
    let with_path = bare
        .strip_suffix("(/|$)")
        .or_else(|| bare.strip_suffix("(?:/|$)"));
    let mut all = expand(with_path.or_else(|| bare.strip_suffix('$'))?)?;
    if with_path.is_some() {
        all.extend(all.clone().iter().map(|it| format!("{it}/a")));
    }
    let is_in = |expression: &str| all.iter().any(|it| is_found(expression, it));
    let refused = site.refused_expressions();
    if !php.refuses_after(directive, is_in) || refused.into_iter().any(is_in) {
        return None;
    }
    // With letters of another case it would be another script.
    let sign = if directive.argument(0) == "~" {
        "(?-i)"
    } else {
        ""
    };
    Some(format!("{sign}{expression}"))
}

/// A location of an expression with `fastcgi_pass`.
fn pattern_of_php(
    directive: &Directive,
    expression: &str,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
    php: &Php<'_>,
    is_inner: bool,
) {
    let runs = php.runs(directive, &[]);
    let is_every = takes_every_script(expression);
    // The front controller answers for all paths: its own name says no more.
    let is_front = expression.starts_with(&format!("^{}", as_it_is(&php.front)));
    let is_known = |it: &Directive| {
        it.name == "location"
            || looks_for_script(it)
            || it.name == "internal" && is_front && is_of_scripts(expression)
    };
    if directive
        .inside
        .iter()
        .any(|it| limits(it) && !is_known(it))
    {
        return close_pattern(directive, directive, expression, site, draft);
    }
    let is_front_alone = is_front && is_of_scripts(expression) && php.runs_front(&php.front);
    let prefix = literal(expression).filter(|it| it.ends_with('/'));
    let at = At::Expression(expression.to_owned());
    // Inside of `location /` it is not asked below other prefixes.
    let rank = if is_inner && php.has_prefixes() {
        Rank::Plain
    } else {
        Rank::Expression
    };
    let is_open = match (&runs, prefix) {
        (Runs::Named, _)
            if site.rest.is_none() && (is_every && php.runs_all() || is_front_alone) =>
        {
            true
        }
        (Runs::Named, _) if is_of_scripts(expression) => site.rule(at, rank, Tree::default()),
        (Runs::Named, Some(prefix)) => {
            site.send_none(&prefix);
            site.rule(at, rank, scripts("named"))
        }
        (Runs::Always(script), Some(prefix)) if *script == php.front => {
            site.send_none(&prefix);
            site.rule(at, rank, scripts("front"))
        }
        _ => false,
    };
    if !is_open {
        return close_pattern(directive, directive, expression, site, draft);
    }
    if runs == Runs::Named
        && !is_inner
        && let Some(named) = named_scripts(directive, expression, site, php)
    {
        site.rule(At::Expression(named), Rank::Named, Tree::default());
    }
    directive.done();
    for inside in &directive.inside {
        if is_known(inside) && inside.name == "internal" {
            inside.done();
        } else if inside.name == "rewrite" && leads_to(inside, &php.front) {
            others_to_front(inside, expression, site, draft);
        } else {
            of_php(inside, site, draft, around);
        }
    }
}

/// Whether a rule leads to a script, and not away from the server.
fn leads_to(rewrite: &Directive, script: &str) -> bool {
    let rest = rewrite.argument(1).strip_prefix(script);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['$', '/', '?']))
        && !["permanent", "redirect"].contains(&rewrite.argument(2))
}

/// A `rewrite` to the front controller among the scripts of an expression: all but those that it
/// names after `(?!`, which expressions of ours do not know; where it says more, all of them.
fn others_to_front(rewrite: &Directive, scripts_of: &str, site: &mut Site, draft: &mut Draft) {
    let others = rewrite.argument(0).strip_prefix("^/(?!");
    let others = others
        .and_then(|it| it.strip_suffix(')'))
        .filter(|it| is_whole_group(it));
    // The script of a directory is one of those below it: a route is asked for the directory.
    let with_directories = |it: &str| match it.strip_suffix("/.+") {
        Some(directory) => format!("{directory}/.*"),
        None => it.to_owned(),
    };
    let others = others.map(|it| {
        let all: Vec<_> = pattern(it).split('|').map(with_directories).collect();
        format!("^/(?:{})", all.join("|"))
    });
    let all = At::Expression(scripts_of.to_owned());
    // A route for these scripts alone would be asked before one for all other paths, and the latter
    // would open what the site refuses.
    let is_alone = site.rest.is_none() && !site.rules.iter().any(|it| it.at == all);
    if let Some(others) = others.filter(|_| is_alone)
        && site.rule(At::Without(others), Rank::Expression, scripts("front"))
    {
        return rewrite.done();
    }
    site.rules
        .retain(|it| it.at != all || it.keys.get("refuse").is_some());
    site.rule(all, Rank::Expression, scripts("front"));
    draft.leave_out_limit(
        rewrite,
        "the front controller answers for all of these scripts",
    );
}

/// Whether no group of a text is closed that is not opened in it.
fn is_whole_group(text: &str) -> bool {
    let mut depth = 0_i32;
    let mut is_escaped = false;
    text.chars().all(|letter| {
        match letter {
            _ if is_escaped => {}
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
        depth >= 0
    }) && depth == 0
}

fn by_pattern(
    directive: &Directive,
    expression: &str,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
    php: &Php<'_>,
    is_inner: bool,
) {
    if locations(directive).any(|_| true) {
        let limit = directive.inside.iter().find(|it| {
            // Rewrites alone do not hold inside.
            !["location", "return", "if"].contains(&it.name.as_str()) && limits(it)
        });
        if let Some(limit) = limit {
            return close_pattern(directive, limit, expression, site, draft);
        }
        inside_pattern(directive, expression, site, draft, around, php);
        let others = directive.inside.iter().filter(|it| it.name != "location");
        let rest = Directive {
            inside: others.cloned().collect(),
            ..directive.clone()
        };
        by_pattern(&rest, expression, site, draft, around, php, is_inner);
        draft.leave_out_unread(std::slice::from_ref(&rest), "it holds nowhere here");
        directive.done();
        for inside in directive.inside.iter().filter(|it| it.name != "location") {
            inside.done_whole();
        }
        return;
    }
    if let Some(status) = refuses(directive) {
        if takes_every_script(expression) && !php.runs_all() && gives_php(php.server()) {
            // It refuses scripts that do not run anyway, unless a later location runs some.
            if php.runs_after(directive) {
                let at = At::Expression(expression.to_owned());
                site.rule(at, Rank::Expression, refusal(status));
            }
            return directive.done_whole();
        }
        return draft.refuse(directive, expression, status, site);
    }
    if directive.has("fastcgi_pass") {
        return pattern_of_php(directive, expression, site, draft, around, php, is_inner);
    }
    if limits(directive) {
        return close_pattern(directive, directive, expression, site, draft);
    }
    if let Some(to) = directive.find("return")
        && lead_on(expression, to, site, draft)
    {
        return directive.done();
    }
    if let Some(tries) = tries_front(directive, php).filter(|_| is_front_alone(directive)) {
        tell_tries(tries, site.root.as_deref(), draft);
        let rank = if is_inner {
            Rank::Inner
        } else {
            Rank::Expression
        };
        if !php.is_before(directive) {
            match literal(expression) {
                Some(path) => named_below(&path, rank, site),
                None => draft.leave_out_limit(
                    tries,
                    "the front controller alone answers, and no other script there runs",
                ),
            }
        }
        site.rule(At::Expression(expression.to_owned()), rank, front_alone());
        for inside in &directive.inside {
            of_files(inside);
        }
        return directive.done();
    }
    if let Some(inside) = answers_otherwise(directive) {
        return close_pattern(directive, inside, expression, site, draft);
    }
    // Files of another directory are not those of the site's root.
    let root = directive.find("root").filter(|it| {
        let root = it.argument(0).trim_end_matches('/');
        site.root.as_deref().is_some_and(|known| known != root)
    });
    if let Some(inside) = directive.find("alias").or(root) {
        return close_pattern(directive, inside, expression, site, draft);
    }
    // It is asked before later ones that refuse, and no script of such a name is one.
    if sends_files(directive) && php.refuses_after(directive, |_| true) {
        let sign = match directive.argument(0) {
            "~" => "(?-i)",
            _ => "",
        };
        let at = At::Expression(format!("{sign}{expression}"));
        site.rule(at, Rank::Refusal, scripts("none"));
    }
    if php.leads_all() {
        // The root's files are not sent for `/`.
        match (endings(expression), &site.root) {
            (Some(endings), Some(root)) => {
                let mut files = Tree::default();
                files.set("prefix", "/").set("root", root.as_str());
                files.set("allow", endings);
                let expires = directive.find("expires");
                if let Some(age) = expires.and_then(|it| seconds(it.argument(0))) {
                    files.set("max_age", age.min(31_536_000));
                    expires.into_iter().for_each(Directive::done);
                }
                draft.serve_files(files);
            }
            _ => draft.leave_out_limit(directive, "its files are not sent"),
        }
    }
    let mut keys = Tree::default();
    for inside in &directive.inside {
        of_route(inside, &mut keys, &around.zones);
        of_files(inside);
    }
    // Before that of scripts it is the one that is asked for them, too.
    let has_front = has_front(directive) && php.runs_front(&php.front);
    let which = match (has_front, php.is_before(directive)) {
        (false, true) => Some("none"),
        (false, false) => Some("named"),
        (true, true) => Some("front"),
        (true, false) => None,
    };
    keys.merge(which.map(scripts).unwrap_or_default());
    // Expressions inside of `location /` are asked first.
    let rank = if is_inner {
        Rank::Inner
    } else {
        Rank::Expression
    };
    let is_needless = keys.is_empty() && site.rest.is_none();
    if is_needless || site.rule(At::Expression(expression.to_owned()), rank, keys) {
        if directive.fate.get() == directive::Fate::Unread {
            directive.done();
        }
    } else {
        site.close("");
        draft.leave_out_limit(directive, ALL_CLOSED);
    }
}

/// Whether what is no file in a location goes to a front controller.
fn has_front(location: &Directive) -> bool {
    let tries = location
        .find("try_files")
        .and_then(|it| it.arguments.last());
    tries.is_some_and(|last| last.contains(".php") || last.starts_with('@'))
        || location.inside.iter().any(|it| {
            (it.name == "rewrite" || it.name == "error_page" || it.name == "fastcgi_param")
                && it.arguments.concat().contains(".php")
        })
        || location.has("fastcgi_pass")
}

/// A statement that nobody has read, and by which something else than files answers for a location:
/// what lies below the root there is not meant for clients.
fn answers_otherwise(location: &Directive) -> Option<&Directive> {
    const NAMES: [&str; 7] = [
        "return",
        "rewrite",
        "stub_status",
        "empty_gif",
        "js_content",
        "perl",
        "echo",
    ];
    location.inside.iter().find(|it| {
        let name = it.name.as_str();
        it.fate.get() == directive::Fate::Unread
            && (name.ends_with("_pass") && name != "fastcgi_pass"
                || name.contains("_by_lua")
                || name == "try_files" && !tries_own(it)
                || NAMES.contains(&name))
    })
}

/// Whether a statement is about all paths of its location.
fn is_for_all(directive: &Directive) -> bool {
    directive.name != "rewrite" || is_of_all_paths(directive.argument(0))
}

/// Whether nothing but `try_files` says who answers in a location.
fn is_front_alone(location: &Directive) -> bool {
    const OTHERS: [&str; 8] = [
        "alias",
        "root",
        "return",
        "rewrite",
        "if",
        "error_page",
        "index",
        "set",
    ];
    location.inside.iter().all(|it| {
        let name = it.name.as_str();
        !OTHERS.contains(&name) && !name.ends_with("_pass") && !name.contains("_by_lua")
    })
}

/// Statements that say nothing of who answers where only files are sent.
fn of_files(inside: &Directive) {
    let first = inside.argument(0);
    match inside.name.as_str() {
        "access_log" if first == "off" => inside.done(),
        "try_files" | "log_not_found" | "default_type" | "etag" | "if_modified_since" => {
            inside.done();
        }
        "auth_basic" | "gzip" | "gzip_static" if first == "off" => inside.done(),
        "allow" if first == "all" => inside.done(),
        _ => {}
    }
}

/// A redirect of the paths in which an expression is found.
fn lead_on(expression: &str, to: &Directive, site: &Site, draft: &mut Draft) -> bool {
    let rule = rule_of_redirect(expression, to, site, draft);
    if let Some(rule) = rule {
        draft.rewrite(rule);
        to.done();
        return true;
    }
    false
}

fn rule_of_redirect(expression: &str, to: &Directive, site: &Site, draft: &Draft) -> Option<Tree> {
    let status = status(to.argument(0))?;
    // The query is kept anyway.
    let to = to.argument(1).trim_end_matches("$is_args$args");
    let (expression, to) = match to.strip_suffix("$request_uri") {
        // The path as it was, after one of this server's.
        Some(start) if start.starts_with('/') && expression.starts_with("^/") => {
            let bare = expression.trim_start_matches('^');
            let whole = match bare.strip_suffix('$') {
                Some(bare) => format!("^({bare})$"),
                None => format!("^({bare}.*)$"),
            };
            (
                Some(whole).filter(|_| !has_parts(bare))?,
                format!("{start}{{1}}"),
            )
        }
        _ => (with_path_info(&pattern(expression)), target(to)),
    };
    let mut rule = Tree::default();
    draft.for_hosts(&mut rule, site);
    rule.set("path", expression).set("to", to.as_str());
    rule.set("status", status);
    Some(rule).filter(|rule| !to.contains('$') && accepts_rule(rule))
}

/// Makes a rule of the redirect of a prefix. The paths that other locations take of those to which
/// it leads are left to them, or it would lead to itself.
fn lead_prefix_on(
    path: &str,
    to: &Directive,
    site: &Site,
    draft: &mut Draft,
    php: &Php<'_>,
) -> bool {
    let expression = format!("^{}", as_it_is(path));
    let Some(own) = rule_of_redirect(&expression, to, site, draft) else {
        return false;
    };
    let mut others = Vec::new();
    if to.argument(1).starts_with(path) {
        let rule = Directive {
            arguments: vec![expression],
            ..Directive::default()
        };
        let Some(rules) = rules_of_others(&rule, path, site, draft, php) else {
            return false;
        };
        others = rules;
    }
    for rule in others.into_iter().chain([own]) {
        draft.rewrite(rule);
    }
    to.done();
    true
}

/// Locations inside one that leads all else elsewhere: redirects of single paths, and prefixes of
/// which files are sent. False where one is something else.
fn beside_redirect(location: &Directive, site: &mut Site, draft: &mut Draft) -> bool {
    for inner in locations(location) {
        match &inner.arguments[..] {
            [how, path] if how == "=" => {
                let Some(to) = inner.find("return").filter(|_| inner.inside.len() == 1) else {
                    return false;
                };
                if !lead_on(&format!("^{}$", as_it_is(path)), to, site, draft) {
                    return false;
                }
                inner.done();
            }
            [path] if path.starts_with('/') && inner.inside.iter().all(is_of_files_alone) => {
                let plain = as_it_is(path.trim_start_matches('/'));
                let mut rule = Tree::default();
                draft.for_hosts(&mut rule, site);
                rule.set("path", format!("^/({plain}.*)$"))
                    .set("to", "/{1}");
                if !accepts_rule(&rule) {
                    return false;
                }
                draft.rewrite(rule);
                site.rule(At::Start(path.clone()), Rank::Strong, scripts("none"));
                inner.done_whole();
            }
            _ => return false,
        }
    }
    true
}

/// Whether a statement of a location leaves its files to be sent, and nothing else.
fn is_of_files_alone(it: &Directive) -> bool {
    match it.name.as_str() {
        "try_files" => it.arguments.last().is_some_and(|last| last == "=404") && tries_own(it),
        "allow" => it.argument(0) == "all",
        name => ["access_log", "log_not_found", "default_type", "etag"].contains(&name),
    }
}

fn below(
    location: &Directive,
    how: How,
    path: &str,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
    server: &Php<'_>,
) {
    let directory = location.find("alias").or_else(|| location.find("root"));
    let directory = directory.map(|it| it.argument(0).trim_end_matches('/').to_owned());
    // The site's own is none.
    let directory = directory.filter(|it| location.has("alias") || Some(it) != site.root.as_ref());
    if let Some(status) = refuses(location) {
        refuse_below(location, (how, path), status, site, draft, server);
        return location.done_whole();
    }
    if location.has("internal") {
        return internal(location, how, path, directory.as_deref(), site, draft);
    }
    if directory.as_ref().is_some_and(|it| it.contains('$')) {
        return close_below(location, how, path, site, draft);
    }
    let is_php = |it: &&Directive| gives_php(it);
    let php = locations(location).find(is_php);
    let php = php.or_else(|| location.has("fastcgi_pass").then_some(location));
    if let (Some(directory), Some(php)) = (&directory, php) {
        // An expression of the server may take its scripts.
        let takes =
            |name: &str| server.takes(php, &format!("{}{name}", path.trim_end_matches('/')));
        let is_reached = takes("/a.php") && takes("/b-2/c_d.php");
        if how == How::Exact || !is_reached || !is_application(location, php, directory) {
            return close_below(location, how, path, site, draft);
        }
        return application(location, php, path, directory, site, draft, around);
    }
    // A location inside for scripts, which refuses them: the rest is files.
    let is_for_scripts = |it: &&Directive| {
        it.name == "location" && refuses(it).is_some() && it.argument(1).contains("php")
    };
    let refuses_scripts = location.inside.iter().find(is_for_scripts);
    if let Some(inside) = refuses_scripts {
        inside.done_whole();
    }
    if location
        .inside
        .iter()
        .any(|it| limits(it) && it.fate.get() == directive::Fate::Unread)
    {
        site.rule(how.all(path), Rank::Refusal, refusal(NOT_FOUND));
        return draft.leave_out_limit(
            location,
            "the path is answered 404, by a route with `refuse: 404`",
        );
    }
    if location.has("fastcgi_pass") {
        return php_below(location, how, path, site, draft, around, server);
    }
    let is_redirect = location
        .find("return")
        .is_some_and(|it| status(it.argument(0)).is_some());
    if is_redirect && how == How::Strong && !beside_redirect(location, site, draft) {
        location.done_whole();
        return close_below(location, how, path, site, draft);
    }
    let Some(runs_inside) = inside_below(location, how, path, site, draft, around, server) else {
        return close_below(location, how, path, site, draft);
    };
    let led = location.find("return").map(|to| match how {
        How::Exact => lead_on(&format!("^{}$", as_it_is(path)), to, site, draft),
        _ => lead_prefix_on(path, to, site, draft, server),
    });
    if led == Some(true) {
        return location.done();
    }
    for inside in location.inside.iter().filter(|it| it.name == "rewrite") {
        rewrite_inside(inside, path, site, draft, server);
    }
    if directory.is_none() && front_below(location, how, path, site, draft, around, server) {
        return;
    }
    if let Some(inside) = answers_otherwise(location) {
        // Nothing inside is open then.
        location.done_whole();
        site.rule(how.all(path), Rank::Refusal, refusal(NOT_FOUND));
        return draft.leave_out_limit(
            inside,
            &format!("`{path}` is answered 404, by a route with `refuse: 404`"),
        );
    }
    if names_its_script(location, path, server) {
        location.done();
        for inside in &location.inside {
            of_files(inside);
        }
        site.rule(how.at(path), how.rank(), scripts("named"));
        return;
    }
    let is_elsewhere = directory.is_some() && directory != site.root;
    let has_age = ["expires", "gzip_static"]
        .iter()
        .any(|name| location.has(name));
    // A longer prefix keeps its paths from this one, and `http.static` would not.
    let is_shadowed = server.longer(path).any(|it| {
        let has_own = it.has("root") || it.has("alias");
        refuses(it).is_none() && (it.has("fastcgi_pass") || is_elsewhere && !has_own)
    });
    if is_elsewhere && (how == How::Exact || is_shadowed) {
        // A prefix of `http.static` is a directory.
        return close_below(location, how, path, site, draft);
    }
    let has_age = (has_age || server.leads_all()) && how != How::Exact && !is_shadowed;
    location.done();
    if is_elsewhere || has_age {
        let beside = Beside::of(location, how, path, site, around, server);
        let beside = if is_elsewhere {
            beside
        } else {
            Beside::default()
        };
        let is_there = files(location, path, directory.as_deref(), beside, site, draft);
        if is_elsewhere && !is_there {
            site.send_none(path); // those of the root are others
        }
    }
    let mut keys = Tree::default();
    for inside in &location.inside {
        of_route(inside, &mut keys, &around.zones);
        of_files(inside);
    }
    draft.leave_out_unread(&location.inside, "");
    // Expressions are asked before a plain prefix; without one that runs scripts, it has none.
    let runs_named = how == How::Plain && refuses_scripts.is_none() && server.runs_below();
    let has_front = has_front(location);
    // `index` leads on to a script of the directory itself.
    let stands = how == How::Exact
        && path.ends_with('/')
        && server.runs_index(path, location.find("index"), &around.index);
    let which = match (has_front, runs_named || runs_inside || stands) {
        (false, true) => Some("named"),
        (false, false) => Some("none"),
        (true, true) if runs_inside && !server.runs_all() => Some("all"),
        (true, true) => None,
        // It names no script.
        (true, false) if how == How::Exact && !path.contains(".php") => None,
        (true, false) => Some("front"),
    };
    // Where it keeps scripts from running, it does so for all of its paths.
    let at = match which {
        Some("none" | "front") => how.all(path),
        _ => how.at(path),
    };
    if is_elsewhere && !has_front {
        return site.rest_of_files(at, how.rank());
    }
    keys.merge(which.map(scripts).unwrap_or_default());
    if how != How::Exact
        && which.is_none()
        && let Some(script) = other_front(location, server)
    {
        keys.merge(led_to(&script));
    }
    if !keys.is_empty() || site.rest.is_some() {
        // Refusals inside are asked before any expression of the server.
        let rank = match how {
            How::Plain if refuses_scripts.is_some() => Rank::Inner,
            _ => how.rank(),
        };
        site.rule(at, rank, keys);
    }
}

/// The script to which a location leads paths without a file, where `location /` leads to another
/// one, or to none.
fn other_front(location: &Directive, php: &Php<'_>) -> Option<String> {
    let script = |it: &Directive| {
        let tries = it.find("try_files").filter(|it| tries_own(it))?;
        php.led_to(tries)
    };
    let own = script(location).filter(|it| php.runs_front(it))?;
    (php.slash().map(script)? != Some(own.clone())).then_some(own)
}

/// Leads all below a prefix to the front controller where its `try_files` does, and sends no file
/// of it. False where it says something else.
fn front_below(
    location: &Directive,
    how: How,
    path: &str,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
    server: &Php<'_>,
) -> bool {
    let tries = tries_front(location, server).filter(|_| is_front_alone(location));
    let Some(tries) = tries.filter(|_| locations(location).next().is_none()) else {
        return false;
    };
    tell_tries(tries, site.root.as_deref(), draft);
    location.done();
    let mut keys = front_alone();
    for inside in &location.inside {
        of_route(inside, &mut keys, &around.zones);
        of_files(inside);
    }
    site.rule(how.all(path), how.rank(), keys);
    if how == How::Plain && server.runs_below() {
        named_below(path, how.rank(), site);
    }
    true
}

/// Whether a location is of what follows a script's name, and that script answers:
/// `location /rest.php/ { try_files $uri /rest.php; }`.
fn names_its_script(location: &Directive, path: &str, php: &Php<'_>) -> bool {
    let Some(script) = path.strip_suffix('/').filter(|it| is_script(it)) else {
        return false;
    };
    let tries = location
        .find("try_files")
        .and_then(|it| it.arguments.last());
    let rest = tries.and_then(|it| it.strip_prefix(script));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('?')) && php.runs_front(script)
}

/// Leads all below a prefix to one script, which runs by its own name as well. False where a rule
/// can't say it.
fn lead_to_script(
    location: &Directive,
    (how, path): (How, &str),
    script: &str,
    site: &mut Site,
    draft: &mut Draft,
    php: &Php<'_>,
) -> bool {
    let rule = Directive {
        place: location.place,
        name: "rewrite".to_owned(),
        arguments: vec![format!("^{}", as_it_is(path)), script.to_owned()],
        ..Directive::default()
    };
    let rewrites = location.inside.iter().filter(|it| it.name == "rewrite");
    if how == How::Exact
        || !php.runs_front(script)
        || rewrites.clone().any(|it| !leads_to(it, script))
    {
        return false;
    }
    let others = rules_of_others(&rule, path, site, draft, php);
    let Some((others, own)) = others.and_then(|it| Some((it, rewrite(&rule, site, draft)?))) else {
        return false;
    };
    rewrites.for_each(Directive::done);
    for rule in others.into_iter().chain([own]) {
        draft.rewrite_unless_refused(rule);
    }
    // Without the rule nothing of it would be answered.
    site.send_none(path);
    site.rule(how.all(path), how.rank(), scripts("none"));
    true
}

/// Refuses what a location takes, as it does itself.
fn refuse_below(
    location: &Directive,
    (how, path): (How, &str),
    status: &str,
    site: &mut Site,
    draft: &mut Draft,
    server: &Php<'_>,
) {
    let rank = if how == How::Plain {
        Rank::Refusal
    } else {
        how.rank()
    };
    site.rule(how.all(path), rank, refusal(status));
    if how == How::Plain && path.ends_with('/') && server.runs_below() {
        draft.note(&format!(
            "{}: `{}`: scripts below it ran, as their own location is asked first; here they are \
             refused, too",
            draft.place(location.place),
            location.shown()
        ));
    }
}

/// Answers 404 for what a location takes, and says so.
fn close_below(location: &Directive, how: How, path: &str, site: &mut Site, draft: &mut Draft) {
    location.done();
    site.rule(how.all(path), Rank::Refusal, refusal(NOT_FOUND));
    let outcome = format!("`{path}` is answered 404, by a route with `refuse: 404`");
    draft.leave_out_limit(location, &outcome);
}

/// `fastcgi_pass` of a location itself: no file of it is sent.
fn php_below(
    location: &Directive,
    how: How,
    path: &str,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
    php: &Php<'_>,
) {
    let runs = php.runs(location, &[]);
    if let Runs::Always(script) = &runs
        && *script != php.front
        && locations(location).next().is_none()
        && lead_to_script(location, (how, path), script, site, draft, php)
    {
        location.done();
        for inside in &location.inside {
            of_files(inside);
            if ["include", "fastcgi_pass", "fastcgi_param"].contains(&inside.name.as_str()) {
                of_server(inside, site, draft, around);
            }
        }
        return;
    }
    let which = match &runs {
        Runs::Named if how == How::Exact && is_script(path) => "all",
        Runs::Named if how != How::Exact => "named",
        Runs::Always(script) if *script == php.front => "front",
        _ => return close_below(location, how, path, site, draft),
    };
    if locations(location).next().is_some() {
        return close_below(location, how, path, site, draft);
    }
    location.done();
    let mut keys = scripts(which);
    for inside in &location.inside {
        of_route(inside, &mut keys, &around.zones);
        of_files(inside);
        if ["include", "fastcgi_pass", "fastcgi_param"].contains(&inside.name.as_str()) {
            of_server(inside, site, draft, around);
        }
    }
    if how == How::Exact {
        let at = At::Expression(format!("^{}$", as_it_is(path)));
        site.rule(at, How::Exact.rank(), keys);
        if which == "front" {
            site.send_none(path);
        }
        return;
    }
    site.send_none(path);
    let rank = open_rank(how, path, php);
    site.close_longer(path, rank);
    site.rule(how.all(path), rank, keys);
}

/// The rank of a rule that opens what is below a prefix.
fn open_rank(how: How, path: &str, php: &Php<'_>) -> Rank {
    // Below a longer one, expressions of the server may be asked.
    match how {
        How::Strong if php.has_longer(path) => Rank::Plain,
        _ => how.rank(),
    }
}

/// Scripts that locations inside one give to php-fpm: whether all below it, and None if it can't be
/// said as a route.
fn inside_below(
    location: &Directive,
    how: How,
    path: &str,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
    php: &Php<'_>,
) -> Option<bool> {
    let mut runs_all = false;
    for inner in locations(location) {
        if inner.fate.get() != directive::Fate::Unread {
            continue;
        }
        if inner.has("root") && php.runs(inner, &[location]) != Runs::Named || inner.has("alias") {
            return None;
        }
        if !gives_php(inner) {
            let is_of_files = expression(inner).is_some_and(|it| endings(it).is_some());
            match &inner.arguments[..] {
                _ if is_of_files || runs_all && expression(inner).is_some() => {}
                [how, start] if how == "^~" || how == "=" => {
                    site.rule(At::Start(start.clone()), Rank::Strong, scripts("none"));
                }
                [_, _] if locations(location).any(gives_php) => return None,
                _ => {}
            }
            continue;
        }
        if php.runs(inner, &[location]) != Runs::Named || locations(inner).next().is_some() {
            return None;
        }
        match &inner.arguments[..] {
            [how, script] if how == "=" && is_script(script) => {
                if !php.takes(inner, script) {
                    return None;
                }
                let at = At::Expression(format!("^{}$", as_it_is(script)));
                site.rule(at, Rank::Exact, Tree::default());
            }
            [_, pattern] if expression(inner).is_some() && takes_every_script(pattern) => {
                runs_all = true;
            }
            [_, pattern] if expression(inner).is_some() && is_of_scripts(pattern) => {
                let pattern = below_prefix(path, pattern)?;
                let rank = match how {
                    _ if php.has_longer(path) => Rank::Plain,
                    How::Plain => Rank::Inner,
                    How::Strong | How::Exact => how.rank(),
                };
                if !site.rule_within(pattern, rank, Tree::default(), path) {
                    return None;
                }
            }
            _ => return None,
        }
        inner.done();
        for inside in &inner.inside {
            of_php(inside, site, draft, around);
        }
    }
    Some(runs_all)
}

/// Whether a location with a directory of its own and scripts is a site below a path.
fn is_application(location: &Directive, php: &Directive, directory: &str) -> bool {
    let is_itself = std::ptr::eq(location, php);
    let is_all = is_itself || expression(php).is_some_and(takes_every_script);
    let is_named = [location, php].iter().all(|it| {
        let mut all = it.inside.iter();
        all.all(|it| {
            let (name, script) = (it.argument(0), it.argument(1));
            let is_below = ["$document_root$f", "$realpath_root$f", "$request_filename"];
            it.name != "fastcgi_param"
                || name != "SCRIPT_FILENAME"
                || is_below.iter().any(|it| script.starts_with(it))
                || script.starts_with(&format!("{directory}$fastcgi_script_name"))
        })
    });
    let is_other = |it: &Directive| {
        !std::ptr::eq(it, php)
            && refuses(it).is_none()
            && expression(it).is_none_or(|it| endings(it).is_none())
    };
    let has_own = !is_itself && (php.has("root") || php.has("alias"));
    let is_inner = locations(php).next().is_some();
    is_all && is_named && !has_own && !is_inner && !locations(location).any(is_other)
}

/// A path that clients may not ask for, and files of which scripts may name.
fn internal(
    location: &Directive,
    how: How,
    path: &str,
    directory: Option<&str>,
    site: &mut Site,
    draft: &mut Draft,
) {
    let is_plain = location
        .inside
        .iter()
        .all(|it| ["internal", "alias", "root"].contains(&it.name.as_str()));
    site.refuse(how.all(path), NOT_FOUND);
    if how == How::Exact && is_plain {
        return location.done_whole();
    }
    if let Some(directory) = directory
        && is_plain
    {
        location.done_whole();
        let below = if location.has("alias") {
            ""
        } else {
            path.trim_end_matches('/')
        };
        return draft.send_files_of(path.trim_end_matches('/'), &format!("{directory}{below}"));
    }
    draft.leave_out_limit(location, "the path is answered 404");
}

/// Another application below a path. What can't be translated of it closes it.
fn application(
    location: &Directive,
    php: &Directive,
    path: &str,
    folder: &str,
    site: &mut Site,
    draft: &mut Draft,
    around: &Around,
) {
    location.done();
    php.done();
    // Longer names are in that directory, too, and not in the site's.
    site.close_longer(path, Rank::Refusal);
    let mut inner = Site::default();
    let insides = location.inside.iter().chain(&php.inside);
    for inside in insides {
        match inside.name.as_str() {
            "alias" | "root" | "try_files" => inside.done(),
            "location" => {}
            "index"
            | "fastcgi_param"
            | "fastcgi_pass"
            | "fastcgi_read_timeout"
            | "include"
            | "fastcgi_index"
            | "fastcgi_split_path_info"
            | "access_log"
            | "log_not_found" => {
                of_server(inside, &mut inner, draft, around);
            }
            _ => {}
        }
    }
    if draft.leave_out_unread(
        &location.inside,
        "the application below this path is answered 404, by a route with `refuse: 404`",
    ) {
        site.close(path);
    }
    if std::ptr::eq(location, php) {
        inner.send_none("");
    }
    inner.pool.set(
        "root",
        if location.has("alias") {
            folder.to_owned()
        } else {
            format!("{folder}{}", path.trim_end_matches('/'))
        },
    );
    if !leads_to_own(location, path) && !leads_to_own(php, path) {
        inner.pool.set("fallback", "none");
    }
    site.application_below(path, inner.pool, inner.backends);
}

/// Whether what is no file of an application below a path goes to its front controller.
fn leads_to_own(location: &Directive, path: &str) -> bool {
    let is_own = |to: &str| {
        let is_script = to.contains(".php");
        is_script && (is_in(to, path) || !to.starts_with('/')) || to.starts_with('@')
    };
    let last = |it: &Directive| it.arguments.last().is_some_and(|to| is_own(to));
    let conditions = location.inside.iter().filter(|it| it.name == "if");
    let mut all = location
        .inside
        .iter()
        .chain(conditions.flat_map(|it| &it.inside));
    all.any(|it| match it.name.as_str() {
        "try_files" => last(it),
        "rewrite" => is_own(it.argument(1)),
        "fastcgi_param" => it.argument(0) == "SCRIPT_FILENAME" && it.argument(1).contains(".php"),
        _ => false,
    })
}

/// Settings for files of another directory.
#[derive(Default)]
struct Beside {
    /// Names that answer for directories.
    index: Vec<String>,
    /// Endings of files that are another location's.
    taken: Vec<String>,
}

impl Beside {
    fn of(
        location: &Directive,
        how: How,
        path: &str,
        site: &Site,
        around: &Around,
        server: &Php<'_>,
    ) -> Self {
        let own = site.root.as_ref().map(|root| format!("{root}{path}"));
        let own = own.as_deref().map(|it| it.trim_end_matches('/'));
        let alias = location.find("alias");
        let is_own = alias.map(|it| it.argument(0).trim_end_matches('/')) == own;
        Self {
            index: server.index_of(location, &around.index),
            taken: match how {
                How::Plain => server.taken_endings(is_own),
                _ => Vec::new(),
            },
        }
    }
}

/// Files below a path, without PHP. False where their directory is not there.
fn files(
    location: &Directive,
    path: &str,
    folder: Option<&str>,
    beside: Beside,
    site: &Site,
    draft: &mut Draft,
) -> bool {
    let Some(root) = folder.or(site.root.as_deref()) else {
        return true;
    };
    let path = path.trim_end_matches('/');
    let root = if location.has("alias") {
        root.to_owned()
    } else {
        format!("{root}{path}")
    };
    let is_here = |directory: &str| Path::new(directory).is_dir();
    let is_missing = site.root.as_deref().is_some_and(is_here) && !is_here(&root);
    let missing = format!("there is no directory `{root}`, so no files are sent below `{path}`");
    let mut files = Tree::default();
    files.set("prefix", path).set("root", root);
    if !beside.index.is_empty() {
        files.set("index", beside.index);
        location.find("index").into_iter().for_each(Directive::done);
        // An application in the browser has one page for all of its paths.
        let page = location
            .find("try_files")
            .and_then(|it| it.arguments.last());
        let page = page.and_then(|it| it.strip_prefix(path)?.strip_prefix('/'));
        if let Some(page) = page.filter(|it| !it.is_empty() && !it.contains(['$', '?'])) {
            files.set("fallback", page);
        }
    }
    if !beside.taken.is_empty() {
        files.set("forbid", beside.taken);
    }
    location.done();
    for inside in &location.inside {
        match inside.name.as_str() {
            "root" | "alias" | "access_log" | "log_not_found" | "try_files" | "default_type" => {
                inside.done();
            }
            "expires" if let Some(age) = seconds(inside.argument(0)) => {
                files.set("max_age", age.min(31_536_000));
                inside.done();
            }
            "gzip_static" if inside.argument(0) == "on" => {
                _ = files.set("precompressed", vec!["gzip".to_owned()]);
                inside.done();
            }
            _ => {}
        }
    }
    if is_missing {
        // The server would not start.
        let place = draft.place(location.place);
        draft.left_out.push(format!("{place}: {missing}"));
    } else {
        draft.serve_files(files);
    }
    !is_missing
}

/// Puts what a statement says into a route.
fn of_route(directive: &Directive, route: &mut Tree, zones: &[Directive]) {
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
        _ => return,
    }
    directive.done();
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

/// Pools of php-fpm, for the sites whose sockets they have.
pub(super) fn read_fpm(text: &str, draft: &mut Draft) {
    let mut pools: Vec<Pool> = Vec::new();
    let mut is_global = true;
    for (line, text) in (1..).zip(text.lines()) {
        let text = without_comment(text);
        if let Some(name) = text.strip_prefix('[') {
            is_global = name.trim_end_matches(']') == "global";
            if !is_global {
                pools.push(Pool::default());
            }
            continue;
        }
        let Some((key, value)) = text.split_once('=') else {
            if !text.is_empty() {
                draft.leave_out_text(line, text);
            }
            continue;
        };
        if !is_global && pools.is_empty() {
            pools.push(Pool::default());
        }
        let (key, value) = (key.trim(), value.trim().trim_matches('"'));
        let is_known =
            if is_global && pools.is_empty() && !key.contains('[') && !key.starts_with("pm") {
                ["pid", "error_log", "daemonize", "log_level"].contains(&key)
            } else {
                if pools.is_empty() {
                    pools.push(Pool::default());
                }
                pools.last_mut().is_some_and(|pool| pool.read(key, value))
            };
        if !is_known {
            let text = if key.starts_with("env[") { key } else { text };
            let place = draft.place(draft.line(line));
            if ["chroot", "security.limit_extensions"].contains(&key) {
                draft.limits.push(format!(
                    "{place}: `{text}`: nothing here does the same; only files whose names end in \
                     `.php` run, and none outside of the root"
                ));
            } else {
                draft.leave_out_text(line, text);
            }
        }
    }
    let is_only = pools.len() == 1;
    for pool in pools {
        pool.apply(is_only, draft);
    }
}

/// A line up to its comment, which a quoted value has none of.
fn without_comment(line: &str) -> &str {
    let mut is_quoted = false;
    let end = line.char_indices().find(|(_, letter)| {
        is_quoted ^= *letter == '"';
        *letter == ';' && !is_quoted
    });
    end.map_or(line, |(at, _)| line.get(..at).unwrap_or_default())
        .trim()
}

/// One pool of php-fpm.
#[derive(Default)]
struct Pool {
    socket: String,
    keys: Tree,
    user: Option<String>,
    group: Option<String>,
    env: Vec<(String, Value)>,
    kind: String,
    fewest: Option<u64>,
    most: Option<u64>,
}

impl Pool {
    /// False for what has no counterpart.
    fn read(&mut self, key: &str, value: &str) -> bool {
        let named = key
            .split_once('[')
            .map(|(kind, name)| (kind, name.trim_end_matches(']')));
        let number = value.parse::<u64>().ok();
        match (key, named) {
            ("user", _) => self.user = Some(value.to_owned()),
            ("group", _) => self.group = Some(value.to_owned()),
            ("listen", _) => value.clone_into(&mut self.socket),
            ("pm", _) => value.clone_into(&mut self.kind),
            ("pm.max_children", _) => self.most = number,
            ("pm.min_spare_servers", _) => self.fewest = number,
            ("pm.max_requests", _) if let Some(number) = number => {
                if number > 0 {
                    self.keys.set("max_jobs", number);
                }
            }
            ("request_terminate_timeout", _) if let Some(seconds) = seconds(value) => {
                if seconds > 0 {
                    let limit = format!("{seconds}s");
                    self.keys.map(&["supervisor"]).set("exec_ttl", limit);
                }
            }
            (_, Some(("php_admin_value" | "php_value", name))) => {
                self.keys.map(&["ini"]).set(name, value);
            }
            (_, Some(("php_admin_flag" | "php_flag", name))) => {
                let lower = value.to_ascii_lowercase();
                let is_on = ["on", "1", "yes", "true"].contains(&lower.as_str());
                let value = if is_on { "1" } else { "0" };
                self.keys.map(&["ini"]).set(name, value);
            }
            (_, Some(("env", name))) => {
                let value = match value.strip_prefix('$') {
                    Some(variable) => Value::Expanded(format!("${{{variable}}}")),
                    None => Value::from(value),
                };
                self.env.push((name.to_owned(), value));
            }
            ("request_slowlog_timeout", _) if let Some(seconds) = seconds(value) => {
                if seconds > 0 {
                    self.keys.set("slow", format!("{seconds}s"));
                }
            }
            // Records of slow calls have PHP's stack, in the log.
            ("slowlog", _) => {}
            ("security.limit_extensions", _) => return value == ".php",
            ("pm.start_servers" | "pm.max_spare_servers" | "pm.process_idle_timeout", _) => {}
            ("catch_workers_output" | "clear_env", _) => return value != "no",
            // Who may speak FastCGI: nobody does here.
            (key, _) => return key.starts_with("listen."),
        }
        true
    }

    /// `is_only`: there is no other pool in the file.
    fn apply(mut self, is_only: bool, draft: &mut Draft) {
        match (self.kind.as_str(), self.most) {
            ("static", Some(most)) => _ = self.keys.set("num_workers", most),
            (_, Some(most)) => {
                let fewest = self.fewest.unwrap_or(1);
                self.keys
                    .set("min_workers", fewest)
                    .set("max_workers", most);
            }
            _ => {}
        }
        let plain = |socket: &str| socket.trim_start_matches("unix:").to_owned();
        let is_mine =
            |backends: &[String]| backends.iter().any(|it| plain(it) == plain(&self.socket));
        let mut sites = std::mem::take(&mut draft.sites);
        let has_sites = sites.iter().any(|it| it.root.is_some());
        let any = sites
            .iter()
            .any(|site| is_mine(&site.backends) || site.below.iter().any(|it| is_mine(&it.2)));
        // Where no socket tells, its limits hold for all rather than for none.
        let mine = |backends: &[String]| is_mine(backends) || (!any && is_only);
        let mut others = Vec::new();
        for site in &mut sites {
            if mine(&site.backends) {
                site.pool.merge_deep(self.keys.clone());
            } else if site.root.is_some() {
                others.push(site.names.first().cloned().unwrap_or_default());
            }
            for (_, pool, backends) in &mut site.below {
                if is_mine(backends) {
                    pool.merge_deep(self.keys.clone());
                }
            }
        }
        if !has_sites {
            sites.push(Site {
                pool: self.keys.clone(),
                ..Site::default()
            });
        }
        draft.sites = sites;
        if !any && !is_only && has_sites {
            let socket = &self.socket;
            draft.limits.push(format!(
                "{}: the pool at `{socket}`: no site has this socket as its `fastcgi_pass`, so \
                 that nothing of it holds; write its `php_admin_value` as `ini` of the right pool",
                draft.file()
            ));
            return;
        }
        let holds_for_all = is_only && others.is_empty();
        if holds_for_all {
            let server = draft.tree.map(&["server"]);
            if let Some(user) = &self.user {
                server.set("user", user.as_str());
            }
            if let Some(group) = self.group.filter(|it| Some(it) != self.user.as_ref()) {
                server.set("group", group);
            }
            for (name, value) in self.env {
                server.map(&["env"]).set(&name, value);
            }
            if server.is_empty() {
                draft.tree.remove("server");
            }
            return;
        }
        for site in draft.sites.iter_mut().filter(|site| {
            site.backends
                .iter()
                .any(|it| plain(it) == plain(&self.socket))
        }) {
            if let Some(user) = &self.user {
                site.pool.set("user", user.as_str());
            }
            if let Some(group) = self
                .group
                .as_ref()
                .filter(|it| Some(*it) != self.user.as_ref())
            {
                site.pool.set("group", group.as_str());
            }
        }
        for (name, _) in self.env {
            draft.left_out.push(format!(
                "{}: `env[{name}]`: `server.env` is for all sites, and this pool is of some",
                draft.file()
            ));
        }
        others.retain(|it| !it.is_empty());
        if !others.is_empty() && is_only {
            draft.limits.push(format!(
                "the site `{}`: its pool of php-fpm is not among the files, and nothing of it \
                 holds; give it to `--from` too",
                others.join("`, `")
            ));
        }
    }
}
