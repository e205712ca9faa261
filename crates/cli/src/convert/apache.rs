//! Apache: a server, virtual hosts, or a `.htaccess`.

use super::directive::{self, Directive};
use super::draft::{Draft, Site, pattern, seconds, size, target};
use super::tree::{Tree, Value};

/// What nothing here depends on.
const NEEDLESS: [&str; 30] = [
    "rewriteengine",
    "rewritebase",
    "options",
    "allowoverride",
    "require",
    "order",
    "allow",
    "sethandler",
    "addhandler",
    "addtype",
    "loadmodule",
    "serverroot",
    "pidfile",
    "errorlog",
    "loglevel",
    "logformat",
    "serveradmin",
    "group",
    "keepalive",
    "keepalivetimeout",
    "maxkeepaliverequests",
    "startservers",
    "minsparethreads",
    "maxsparethreads",
    "threadsperchild",
    "cgipassauth",
    "sslprotocol",
    "sslciphersuite",
    "expiresactive",
    "removehandler",
];

pub(super) fn read(text: &str, draft: &mut Draft) -> Result<(), String> {
    let all = flat(directive::apache(text)?);
    let has_tls = all.iter().any(|it| it.has_one("SSLEngine"));
    let mut outer = Site::default();
    let mut state = State::default();
    for directive in &all {
        match directive.name.to_ascii_lowercase().as_str() {
            "virtualhost" => host(directive, draft, has_tls),
            _ => of_server(directive, &mut outer, draft, &mut state),
        }
    }
    state.finish(&mut outer);
    draft.sites.insert(0, outer);
    Ok(())
}

impl Directive {
    /// Apache's names are not told apart by their letters' case.
    fn has_one(&self, name: &str) -> bool {
        self.inside.iter().any(|it| it.is(name))
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// What stands in conditions counts: they ask for modules.
fn flat(all: Vec<Directive>) -> Vec<Directive> {
    let mut out = Vec::new();
    for mut directive in all {
        if ["ifmodule", "ifdefine", "ifversion"]
            .iter()
            .any(|name| directive.is(name))
        {
            out.extend(flat(directive.inside));
        } else {
            directive.inside = flat(directive.inside);
            out.push(directive);
        }
    }
    out
}

/// What several lines say together.
#[derive(Debug, Default)]
struct State {
    /// Conditions of the next rule: they ask whether there is such a file.
    asks_for_file: bool,
    other_conditions: Vec<Directive>,
    has_index: bool,
    /// Paths without a file lead to a script.
    has_front: bool,
    has_root: bool,
}

impl State {
    fn finish(&self, site: &mut Site) {
        if self.has_root && self.has_index && !self.has_front {
            site.pool.set("fallback", "none");
        }
    }
}

fn host(host: &Directive, draft: &mut Draft, has_tls: bool) {
    let is_tls = host.has_one("SSLEngine");
    let port = host.argument(0).rsplit(':').next().unwrap_or_default();
    let port = if port.is_empty() || port == "*" {
        "80"
    } else {
        port
    };
    if is_tls {
        draft.listen_tls(&format!(":{port}"));
    } else {
        draft.listen(&format!(":{port}"));
    }
    let redirect = host.inside.iter().find(|it| it.is("Redirect"));
    let leads_to_tls = redirect.is_some_and(|it| {
        it.arguments
            .last()
            .is_some_and(|to| to.starts_with("https://"))
            && it.arguments.iter().any(|argument| argument == "/")
    });
    if leads_to_tls && has_tls && !is_tls {
        draft.section("ssl").set("redirect", true);
        return;
    }
    let (mut site, mut state) = (Site::default(), State::default());
    for directive in &host.inside {
        of_server(directive, &mut site, draft, &mut state);
    }
    state.finish(&mut site);
    draft.sites.push(site);
}

fn of_server(directive: &Directive, site: &mut Site, draft: &mut Draft, state: &mut State) {
    let first = directive.argument(0);
    match directive.name.to_ascii_lowercase().as_str() {
        "listen" => draft.listen(&address(first)),
        "servername" => site.names.push(host_of(first)),
        "serveralias" => {} // the same site; other hosts of several sites are told below
        "documentroot" => {
            state.has_root = true;
            site.root = Some(first.trim_end_matches('/').to_owned());
        }
        "directoryindex" => {
            state.has_index = true;
            if directive.arguments.len() > 1 || first != "index.php" {
                site.pool.set("index", directive.arguments.clone());
            }
        }
        "fallbackresource" => state.has_front = true,
        "rewritecond" if directive.shown().contains("REQUEST_FILENAME") => {
            state.asks_for_file = true;
        }
        "rewritecond" => state.other_conditions.push(directive.clone()),
        "rewriterule" => rewrite(directive, draft, state),
        "directory" | "files" | "filesmatch" | "location" => folder(directive, site, draft, state),
        "alias" => {
            let mut files = Tree::default();
            files
                .set("prefix", first.trim_end_matches('/'))
                .set("root", directive.argument(1));
            draft.serve_files(files);
        }
        "scriptalias" => programs(directive, draft),
        "sslengine" => {}
        "sslcertificatefile" => _ = draft.section("ssl").set("cert", first),
        "sslcertificatekeyfile" => _ = draft.section("ssl").set("key", first),
        "header" => header(directive, draft),
        "expiresbytype" | "expiresdefault" => expires(directive, site, draft),
        "addoutputfilterbytype" if first.eq_ignore_ascii_case("deflate") => {
            draft.compress(Vec::new());
        }
        "php_value" | "php_admin_value" => {
            site.pool.map(&["ini"]).set(first, directive.argument(1));
        }
        "php_flag" | "php_admin_flag" => {
            let is_on = ["on", "1"].contains(&directive.argument(1).to_ascii_lowercase().as_str());
            site.pool
                .map(&["ini"])
                .set(first, if is_on { "1" } else { "0" });
        }
        "setenv" => {
            _ = draft
                .tree
                .map(&["server", "env"])
                .set(first, directive.argument(1));
        }
        "limitrequestbody" if let Some(size) = size(first) => {
            _ = draft.http().set("max_request_size", size);
        }
        "user" => _ = draft.tree.map(&["server"]).set("user", first),
        "maxrequestworkers" | "maxclients" if let Ok(count) = first.parse::<u64>() => {
            site.pool.set("num_workers", count);
        }
        "maxconnectionsperchild" | "maxrequestsperchild"
            if let Ok(count) = first.parse::<u64>() =>
        {
            site.pool.set("max_jobs", count);
        }
        "timeout" if let Some(seconds) = seconds(first) => {
            let limit = format!("{seconds}s");
            // CGI programs are what runs long.
            if !draft.limit_below(&limit) {
                site.pool.map(&["supervisor"]).set("exec_ttl", limit);
            }
        }
        "redirect" | "redirectpermanent" => redirect(directive, draft),
        "errordocument" => match &site.root {
            Some(root) if directive.argument(1).starts_with('/') => {
                draft.error_page(first, &format!("{root}{}", directive.argument(1)));
            }
            _ => draft.leave_out(directive),
        },
        "xsendfile" => draft.uses("sendfile"),
        "xsendfilepath" => {
            draft.uses("sendfile");
            draft.section("sendfile").push("roots", first);
        }
        "customlog" => {
            let log = draft.section("access_log");
            log.set(
                "format",
                if directive.argument(1) == "common" {
                    "common"
                } else {
                    "combined"
                },
            );
            log.push("output", first);
        }
        "remoteipheader" => draft.http().push("trusted_headers", first),
        "remoteipinternalproxy" | "remoteiptrustedproxy" => {
            draft.http().push("trusted_subnets", first);
        }
        name if NEEDLESS.contains(&name) => {}
        _ => draft.leave_out(directive),
    }
}

fn address(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((host, port)) if host != "*" => format!("{host}:{port}"),
        Some((_, port)) => format!(":{port}"),
        None => format!(":{text}"),
    }
}

fn host_of(name: &str) -> String {
    name.split(':').next().unwrap_or_default().to_owned()
}

/// `<Directory>` and the like: folders without scripts, else what holds for all.
fn folder(directive: &Directive, site: &mut Site, draft: &mut Draft, state: &mut State) {
    let runs_none = directive.inside.iter().any(|it| {
        it.shown().to_ascii_lowercase().ends_with("flag engine off") || it.is("RemoveHandler")
    });
    if runs_none {
        let path = directive.argument(0);
        let root = site.root.as_deref().unwrap_or_default();
        let below = path.strip_prefix(root).filter(|_| !root.is_empty());
        match below.or_else(|| path.split_once("/public/").map(|(_, below)| below)) {
            Some(below) => site.pool.push("no_scripts", below.trim_matches('/')),
            None => draft.leave_out(directive),
        }
        return;
    }
    // Of a folder that is not the root's own: the files that Alias has put below a path.
    let is_other = directive.is("Directory") && site.root.as_deref() != Some(directive.argument(0));
    for inside in &directive.inside {
        if is_other && inside.is("DirectoryIndex") {
            add_index(draft, directive.argument(0), &inside.arguments);
        } else {
            of_server(inside, site, draft, state);
        }
    }
}

fn add_index(draft: &mut Draft, folder: &str, names: &[String]) {
    let files = draft.section("static").get_mut("serve");
    let Some(Value::List(folders)) = files else {
        return;
    };
    for files in folders {
        if let Value::Map(files) = files
            && files.get("root") == Some(&Value::from(folder))
        {
            files.set("index", names.to_vec());
        }
    }
}

fn programs(directive: &Directive, draft: &mut Draft) {
    let mut pool = Tree::default();
    pool.set("mode", "cgi")
        .set("root", directive.argument(1).trim_end_matches('/'))
        .set("num_workers", 8)
        .set("symlinks", "anywhere");
    draft.application_below(directive.argument(0), pool);
}

fn header(directive: &Directive, draft: &mut Draft) {
    let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
    let words = words.strip_prefix(&["always"]).unwrap_or(&words);
    match words {
        ["set" | "add", name, value, ..]
            if name.eq_ignore_ascii_case("strict-transport-security") =>
        {
            draft.hsts(value);
        }
        ["set" | "add", name, value] if !value.contains('%') => draft.response_field(name, value),
        ["unset", name] => draft.response_field(name, ""),
        _ => draft.leave_out(directive),
    }
}

/// `"access plus 1 month"`: one age for all files.
fn expires(directive: &Directive, site: &Site, draft: &mut Draft) {
    let age = directive
        .arguments
        .last()
        .map(String::as_str)
        .unwrap_or_default();
    let words: Vec<&str> = age.split_whitespace().collect();
    let seconds = match words[..] {
        ["access" | "now", "plus", count, unit] => {
            let unit = match unit.trim_end_matches('s') {
                "second" => "s",
                "minute" => "m",
                "hour" => "h",
                "day" => "d",
                "week" => "w",
                "month" => "M",
                "year" => "y",
                _ => "?",
            };
            seconds(&format!("{count}{unit}"))
        }
        _ => None,
    };
    let Some(seconds) = seconds else {
        return draft.leave_out(directive);
    };
    draft.uses("static");
    if let Some(root) = &site.root {
        draft.section("static").set("dir", root.as_str());
    }
    draft.section("static").set("max_age", seconds);
    draft.note("one age for all files: `ExpiresByType` sets one for each type");
}

fn redirect(directive: &Directive, draft: &mut Draft) {
    let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
    let (status, from, to) = match words[..] {
        [from, to] if directive.is("RedirectPermanent") => ("301", from, to),
        [from, to] => ("302", from, to),
        ["permanent", from, to] => ("301", from, to),
        ["temp", from, to] => ("302", from, to),
        [status, from, to] => (status, from, to),
        _ => return draft.leave_out(directive),
    };
    let mut rule = Tree::default();
    rule.set("path", format!("^{from}(.*)$"))
        .set("to", format!("{to}{{1}}"));
    rule.set("status", Value::Bare(status.to_owned()));
    draft.rewrite(rule);
}

fn rewrite(directive: &Directive, draft: &mut Draft, state: &mut State) {
    let conditions = std::mem::take(&mut state.other_conditions);
    let asks_for_file = std::mem::take(&mut state.asks_for_file);
    let (from, to) = (directive.argument(0), directive.argument(1));
    let flags = directive.argument(2).trim_matches(['[', ']']);
    if to == "-" {
        // It only sets a variable, such as HTTP_AUTHORIZATION, which is there anyway.
        if !flags.contains("E=HTTP_AUTHORIZATION") {
            draft.leave_out(directive);
        }
        return;
    }
    let is_front = to.trim_start_matches('/').starts_with("index.php");
    if is_front && asks_for_file && conditions.is_empty() {
        state.has_front = true;
        return;
    }
    if !conditions.is_empty() || to.contains("%{") || to.contains("%1") {
        for condition in &conditions {
            draft.leave_out(condition);
        }
        return draft.leave_out(directive);
    }
    let status = flags.split(',').find_map(|flag| match flag.trim() {
        "R" => Some("302"),
        flag => flag.strip_prefix("R="),
    });
    // In a folder's file, paths begin without a slash.
    let from = match from.strip_prefix('^') {
        Some(rest) => format!("^/{}", rest.trim_start_matches('/')),
        None => from.to_owned(),
    };
    let to = target(to);
    let to = if to.starts_with('/') || to.contains("://") {
        to
    } else {
        format!("/{to}")
    };
    let mut rule = Tree::default();
    rule.set("path", pattern(&from)).set("to", to);
    if let Some(status) = status {
        rule.set("status", Value::Bare(status.to_owned()));
    }
    draft.rewrite(rule);
}
