//! Apache: a server, virtual hosts, or a `.htaccess`.

use super::directive::{self, Directive, Fate};
use super::draft::{
    ALL_CLOSED, Draft, Site, accepts_rule, as_it_is, is_in, no_scripts, pattern, seconds, size,
    target,
};
use super::limits::{Refused, forbids, refused};
use super::tree::{Tree, Value};

/// What nothing here depends on: how connections and processes are held, what is logged. Nothing
/// that says who gets what.
const NEEDLESS: &[&str] = &[
    "rewritebase",
    "addtype",
    "loadmodule",
    "serverroot",
    "pidfile",
    "errorlog",
    "loglevel",
    "logformat",
    "serveradmin",
    "serversignature",
    "servertokens",
    "keepalive",
    "keepalivetimeout",
    "maxkeepaliverequests",
    "startservers",
    "minsparethreads",
    "maxsparethreads",
    "minspareservers",
    "maxspareservers",
    "threadsperchild",
    "cgipassauth",
    "sslprotocol",
    "sslciphersuite",
    "sslhonorcipherorder",
    "expiresactive",
    "hostnamelookups",
];

pub(super) fn read(text: &str, draft: &mut Draft) -> Result<(), String> {
    let all = flat(directive::apache(text)?);
    let has_tls = all.iter().any(|it| it.has_one("SSLEngine"));
    let mut outer = Site::default();
    let mut state = State::default();
    let mut listens = Vec::new();
    // The roots must be known before folders below them are looked at.
    outer.root = root_in(&all);
    for directive in &all {
        if directive.is("Listen") {
            listens.push((address(directive.argument(0)), false));
            directive.done();
        }
    }
    let mut hosts = Vec::new();
    for directive in &all {
        if directive.is("VirtualHost") {
            hosts.push(directive);
        } else if !is_scope(directive) {
            of_server(directive, &mut outer, draft, &mut state);
        }
    }
    outer.listens.clone_from(&listens);
    let mut sites = Vec::new();
    for one in &hosts {
        // What stands around hosts holds in each.
        let mut site = Site {
            pool: outer.pool.clone(),
            line: one.line,
            root: root_in(&one.inside).or_else(|| outer.root.clone()),
            ..Site::default()
        };
        if host(one, &all, &mut site, draft, has_tls) {
            sites.push(site);
        }
    }
    state.finish(&mut outer);
    if hosts.is_empty() || outer.root.is_some() {
        scopes(&all, &all, &mut outer, draft, &mut state);
    } else {
        of_hosts(&all, &sites, draft);
    }
    guard_aliases(&all, &mut outer, draft);
    for site in &mut sites {
        guard_aliases(&all, site, draft);
    }
    let rest: Vec<_> = all
        .iter()
        .filter(|it| !it.is("VirtualHost"))
        .cloned()
        .collect();
    if draft.leave_out_unread(&rest, ALL_CLOSED) {
        outer.close("");
        for site in &mut sites {
            site.close("");
        }
    }
    // A root of its own, which is the default where no host has one.
    if hosts.is_empty() || outer.root.is_some() {
        draft.sites.push(outer);
    }
    draft.sites.extend(sites);
    Ok(())
}

/// Blocks outside of hosts, which each host has looked at already.
fn of_hosts(all: &[Directive], sites: &[Site], draft: &mut Draft) {
    for scope in all.iter().filter(|it| is_scope(it)) {
        let is_open = is_granted(&scope.inside) && !runs_none(scope);
        if is_open || !scope.is("Directory") {
            // What it closes, it closes in none of them: then it stays unread.
            let mut probe = Site::default();
            let copy = scope.clone();
            settle(&copy, all, &mut probe, &mut Draft::default());
            if copy.fate.get() == Fate::Done && probe == Site::default() {
                settle(scope, all, &mut probe, draft);
            }
            continue;
        }
        let folder = folder_of(scope);
        let meets = sites.iter().filter_map(|it| it.root.as_deref());
        if meets
            .into_iter()
            .any(|root| is_in(root, folder) || is_in(folder, root))
        {
            scope.done_whole();
        } else {
            draft.leave_out_limit(scope, UNUSED);
        }
    }
}

const UNUSED: &str = "no site has its root there";

/// Folders that `Alias` and `ScriptAlias` put below paths, if some may not have them.
fn guard_aliases(all: &[Directive], site: &mut Site, draft: &mut Draft) {
    let mut scopes: Vec<&Directive> = Vec::new();
    for directive in all {
        scopes.extend(Some(directive).filter(|it| it.is("Directory")));
        scopes.extend(directive.inside.iter().filter(|it| it.is("Directory")));
    }
    let is_limited = |folder: &str| {
        let around = scopes.iter().filter(|it| is_in(folder, folder_of(it)));
        let nearest = around.max_by_key(|it| folder_of(it).len());
        let mut within = scopes.iter().filter(|it| is_in(folder_of(it), folder));
        nearest.is_some_and(|it| !is_granted(&it.inside))
            || within.any(|it| !is_granted(&it.inside))
    };
    let mut closed = draft.remove_files(|folder| is_limited(folder));
    for (path, pool, _) in &site.below {
        if let Some(Value::Text(folder)) = pool.get("root")
            && is_limited(folder)
        {
            closed.push(path.clone());
        }
    }
    for path in closed {
        site.close(&path);
        draft.limits.push(format!(
            "{}: the folder at `{path}` is limited to some: the path is answered 404; put a proxy \
             in front that asks who it is",
            draft.file
        ));
    }
}

fn root_in(all: &[Directive]) -> Option<String> {
    let root = all.iter().find(|it| it.is("DocumentRoot"))?;
    Some(root.argument(0).trim_end_matches('/').to_owned())
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

/// Whether a block limits what it says to some files or paths.
fn is_scope(directive: &Directive) -> bool {
    let names = ["Directory", "Files", "FilesMatch", "Location"];
    names.iter().any(|name| directive.is(name))
}

/// What several lines say together.
#[derive(Debug, Default)]
struct State {
    /// Conditions of the next rule: they ask whether there is such a file.
    asks_for_file: Vec<Directive>,
    has_index: bool,
    /// Paths without a file lead to a script.
    has_front: bool,
    has_root: bool,
    has_other_conditions: bool,
}

impl State {
    fn finish(&self, site: &mut Site) {
        if self.has_root && self.has_index && !self.has_front {
            site.pool.set("fallback", "none");
        }
    }
}

/// False for a host that only leads elsewhere.
fn host(
    host: &Directive,
    all: &[Directive],
    site: &mut Site,
    draft: &mut Draft,
    has_tls: bool,
) -> bool {
    let is_tls = host.has_one("SSLEngine");
    for given in &host.arguments {
        let given = if given.contains(':') {
            given.clone()
        } else {
            format!("{given}:80")
        };
        site.listens
            .push((address(&given.replace("_default_:", "*:")), is_tls));
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
        if let Some((address, _)) = site.listens.first()
            && draft.http().get("address").is_none()
        {
            draft.http().set("address", address.as_str());
        }
        return false;
    }
    let mut state = State::default();
    for directive in host.inside.iter().filter(|it| !is_scope(it)) {
        of_server(directive, site, draft, &mut state);
    }
    let folders = host.inside.iter().chain(all);
    let folders: Vec<_> = folders.filter(|it| it.is("Directory")).cloned().collect();
    scopes(&host.inside, &folders, site, draft, &mut state);
    // Folders are named outside of hosts as well.
    for scope in all.iter().filter(|it| it.is("Directory")) {
        settle_copy(scope, &host.inside, site, draft);
    }
    state.finish(site);
    if draft.leave_out_unread(&host.inside, ALL_CLOSED) {
        site.close("");
    }
    true
}

/// Blocks for folders, files and paths: what they limit, and what they say of the root.
fn scopes(
    of: &[Directive],
    all: &[Directive],
    site: &mut Site,
    draft: &mut Draft,
    state: &mut State,
) {
    for scope in of.iter().filter(|it| is_scope(it)) {
        let is_roots = scope.is("Directory") && site.root.as_deref() == Some(folder_of(scope));
        settle(scope, all, site, draft);
        if scope.fate.get() != Fate::Done {
            continue;
        }
        for inside in scope
            .inside
            .iter()
            .filter(|it| it.fate.get() == Fate::Unread)
        {
            if is_roots {
                of_server(inside, site, draft, state);
            } else if inside.is("DirectoryIndex")
                && add_index(draft, folder_of(scope), &inside.arguments)
            {
                inside.done();
            }
        }
        for inside in scope.inside.iter().filter(|it| is_roots && is_scope(it)) {
            settle(inside, all, site, draft);
        }
    }
}

fn folder_of(scope: &Directive) -> &str {
    match scope.argument(0) {
        "/" => "/",
        path => path.trim_end_matches('/'),
    }
}

/// A block outside of hosts, for one of them: fates are of the block as a whole.
fn settle_copy(scope: &Directive, own: &[Directive], site: &mut Site, draft: &mut Draft) {
    let root = site.root.clone().unwrap_or_default();
    let is_below = is_in(folder_of(scope), &root);
    let meets = is_below || is_in(&root, folder_of(scope));
    if root.is_empty() || !meets || is_granted(&scope.inside) && !runs_none(scope) {
        return;
    }
    let is_overruled = own
        .iter()
        .any(|it| it.is("Directory") && is_in(&root, folder_of(it)) && is_open(it));
    if is_below || !is_overruled {
        settle(&scope.clone(), own, site, draft);
    }
}

/// Whether it says that all may come.
fn is_open(scope: &Directive) -> bool {
    let says = scope
        .inside
        .iter()
        .any(|it| it.is("Require") || it.is("Allow"));
    says && is_granted(&scope.inside)
}

/// Whether nobody is kept out.
fn is_granted(inside: &[Directive]) -> bool {
    let is = |it: &Directive, words: &str| it.arguments.join(" ").eq_ignore_ascii_case(words);
    let allows = inside.iter().any(|it| it.is("Allow") && is(it, "from all"));
    inside
        .iter()
        .all(|it| match it.name.to_ascii_lowercase().as_str() {
            "require" => is(it, "all granted"),
            "allow" => is(it, "from all"),
            "order" => allows || is(it, "deny,allow") || is(it, "mutual-failure"),
            "deny" | "limit" | "limitexcept" | "requireall" | "requireany" | "requirenone"
            | "sslrequire" | "sslrequiressl" | "sslverifyclient" => false,
            _ => true,
        })
}

/// Statements that say nothing where all may come.
fn mark_granted(inside: &[Directive]) {
    for it in inside {
        let name = it.name.to_ascii_lowercase();
        let is_none = it.argument(0).eq_ignore_ascii_case("none");
        if ["require", "allow", "order", "satisfy"].contains(&name.as_str())
            || name.starts_with("auth")
            || (name == "allowoverride" && is_none)
        {
            it.done();
        }
    }
}

/// What a block limits: nothing, or what it names is closed.
fn settle(scope: &Directive, all: &[Directive], site: &mut Site, draft: &mut Draft) {
    let named = match &scope.arguments[..] {
        [path] => path.as_str(),
        _ => return,
    };
    let root = site.root.clone().unwrap_or_default();
    let has_none = runs_none(scope);
    if is_granted(&scope.inside) && !has_none {
        mark_granted(&scope.inside);
        for it in &scope.inside {
            if it.is("SetHandler") || it.is("AddHandler") || it.is("Options") {
                is_handler(it);
            }
        }
        return scope.done();
    }
    if !scope.is("Directory") {
        if scope.is("Location") && named.starts_with('/') && !named.contains(['*', '?']) {
            return close(scope, named, site, draft);
        }
        return files(scope, named, site, draft);
    }
    if named.contains(['*', '?', '~']) {
        return;
    }
    if let Some(below) = named
        .strip_prefix(root.as_str())
        .filter(|it| !root.is_empty() && it.starts_with('/'))
    {
        if has_none && is_granted(&scope.inside) {
            no_scripts(&mut site.pool, below);
            mark_granted(&scope.inside);
            mark_none(scope);
            return scope.done();
        }
        return close(scope, below, site, draft);
    }
    if has_none
        && is_granted(&scope.inside)
        && root.is_empty()
        && let Some((_, below)) = named.split_once("/public/")
    {
        no_scripts(&mut site.pool, below);
        mark_none(scope);
        return scope.done();
    }
    if is_in(&root, folder_of(scope)) && !root.is_empty() {
        // A folder nearer to the root says otherwise.
        let is_nearer = |it: &&Directive| {
            it.is("Directory")
                && is_in(&root, folder_of(it))
                && folder_of(it).len() > folder_of(scope).len()
                && is_open(it)
        };
        if all.iter().any(|it| is_nearer(&it)) && !has_none {
            return scope.done_whole();
        }
        return close(scope, "", site, draft);
    }
    if !root.is_empty() && named == "/" {
        scope.done_whole();
    } else if !root.is_empty() {
        draft.leave_out_limit(scope, UNUSED);
    }
}

fn runs_none(scope: &Directive) -> bool {
    scope.inside.iter().any(is_none)
}

/// Whether a statement ends that scripts run.
fn is_none(it: &Directive) -> bool {
    let first = it.argument(0).to_ascii_lowercase();
    let is_flag = it.is("php_admin_flag") || it.is("php_flag");
    (is_flag
        && first == "engine"
        && !["on", "1"].contains(&it.argument(1).to_ascii_lowercase().as_str()))
        || it.is("RemoveHandler")
        || it.is("RemoveType")
        || (it.is("SetHandler") && ["none", "default-handler"].contains(&first.as_str()))
        || it.is("ForceType")
}

fn mark_none(scope: &Directive) {
    for it in &scope.inside {
        if is_none(it)
            || it.is("Options")
            || (it.is("AllowOverride") && it.argument(0).eq_ignore_ascii_case("none"))
        {
            it.done();
        }
    }
}

/// Handlers of PHP and of programs, and options that do not open anything here.
fn is_handler(it: &Directive) {
    let text = it.shown().to_ascii_lowercase();
    let is_options = it.is("Options");
    if is_options || text.contains("php") || text.contains("fcgi") || text.contains("cgi-script") {
        it.done();
    }
}

/// A path that some may not have: nobody has it.
fn close(scope: &Directive, path: &str, site: &mut Site, draft: &mut Draft) {
    site.close(path);
    let refuses = scope.inside.iter().all(|it| {
        let words = it.arguments.join(" ").to_ascii_lowercase();
        match it.name.to_ascii_lowercase().as_str() {
            "require" => words == "all denied",
            "deny" => words == "from all",
            "order" => true,
            _ => false,
        }
    });
    if refuses && !path.is_empty() {
        scope.done_whole();
        return draft.note_closed(scope);
    }
    let outcome = if path.trim_end_matches('/').is_empty() {
        ALL_CLOSED.to_owned()
    } else {
        format!(
            "`{path}` and what is below it are answered 404, by a route with `strip_prefix: \
             /closed`"
        )
    };
    draft.leave_out_limit(scope, &outcome);
}

/// Files by their names, in whatever folder.
fn files(scope: &Directive, named: &str, site: &mut Site, draft: &mut Draft) {
    let is_match = scope.is("FilesMatch");
    if named.starts_with(".ht") || named.starts_with("^\\.") || named.starts_with("^.ht") {
        // Hidden names are never sent.
        return if named.contains('|') && !named.contains('(') {
            draft.refuse(scope, named, false, site);
        } else {
            scope.done_whole();
        };
    }
    let is_plain = !named.contains(['*', '?', '[']);
    if !is_match && is_plain {
        site.close(&format!("/{named}"));
        let outcome = format!("`/{named}` is answered 404, and the name in no other folder");
        return draft.leave_out_limit(scope, &outcome);
    }
    if !is_match {
        let is_script = named.to_ascii_lowercase().contains("php") || named.ends_with('*');
        if is_script {
            site.close("");
            return draft.leave_out_limit(scope, ALL_CLOSED);
        }
        return draft.leave_out_limit(scope, "such files are sent");
    }
    draft.refuse(scope, named.trim_start_matches('^'), false, site);
}

fn of_server(directive: &Directive, site: &mut Site, draft: &mut Draft, state: &mut State) {
    let first = directive.argument(0);
    let name = directive.name.to_ascii_lowercase();
    match name.as_str() {
        "servername" | "serveralias" => {
            let all: Vec<String> = directive.arguments.iter().map(|it| host_of(it)).collect();
            if name == "servername" || !site.names.is_empty() {
                site.names.extend(all);
            }
        }
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
        "fallbackresource" if first == "/index.php" => state.has_front = true,
        "rewriteengine" if first.eq_ignore_ascii_case("on") => {}
        "rewritecond"
            if directive.argument(0) == "%{REQUEST_FILENAME}"
                && ["!-f", "!-d", "!-l"].contains(&directive.argument(1)) =>
        {
            state.asks_for_file.push(directive.clone());
        }
        "rewritecond" => {
            state.has_other_conditions = true;
            return;
        }
        "rewriterule" => return rewrite(directive, site, draft, state),
        "alias" => {
            let mut files = Tree::default();
            files
                .set("prefix", first.trim_end_matches('/'))
                .set("root", directive.argument(1));
            draft.serve_files(files);
        }
        "scriptalias" => programs(directive, site),
        "sslengine" if first.eq_ignore_ascii_case("on") => {}
        "sslcertificatefile" => site.certificate.0 = Some(first.to_owned()),
        "sslcertificatekeyfile" => site.certificate.1 = Some(first.to_owned()),
        "header" => return header(directive, draft),
        "expiresbytype" | "expiresdefault" => return expires(directive, site, draft),
        "addoutputfilterbytype" if first.eq_ignore_ascii_case("deflate") => {
            draft.compress(Vec::new());
        }
        "php_flag" | "php_admin_flag" if first == "engine" => {
            if !["on", "1"].contains(&directive.argument(1).to_ascii_lowercase().as_str()) {
                return;
            }
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
        "group" => _ = draft.tree.map(&["server"]).set("group", first),
        "maxrequestworkers" | "maxclients" if let Ok(count) = first.parse::<u64>() => {
            site.pool.set("num_workers", count.min(500));
        }
        "maxconnectionsperchild" | "maxrequestsperchild"
            if let Ok(count) = first.parse::<u64>() =>
        {
            if count > 0 {
                site.pool.set("max_jobs", count);
            }
        }
        "timeout" if let Some(seconds) = seconds(first) => {
            let limit = format!("{seconds}s");
            // CGI programs are what runs long.
            if !site.limit_below(&limit) {
                site.pool.map(&["supervisor"]).set("exec_ttl", limit);
            }
        }
        "redirect" | "redirectpermanent" => return redirect(directive, draft),
        "errordocument" => match &site.root {
            Some(root)
                if directive.argument(1).starts_with('/')
                    && first.len() == 3
                    && first.starts_with(['4', '5']) =>
            {
                draft.error_page(first, &format!("{root}{}", directive.argument(1)));
            }
            _ => return,
        },
        "xsendfile" if first.eq_ignore_ascii_case("on") => draft.uses("sendfile"),
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
        "allowoverride" if first.eq_ignore_ascii_case("none") => {}
        "options" => {}
        "sethandler" | "addhandler" => return is_handler(directive),
        // A type that makes a script of files, or none of scripts.
        "addtype" if directive.shown().contains("php") => return,
        name if NEEDLESS.contains(&name) => {}
        _ => return,
    }
    directive.done();
}

fn address(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((host, port)) if !["*", "0.0.0.0", "[::]"].contains(&host) => format!("{host}:{port}"),
        Some((_, port)) => format!(":{port}"),
        None => format!(":{text}"),
    }
}

fn host_of(name: &str) -> String {
    let name = name.split_once("://").map_or(name, |(_, rest)| rest);
    name.split(':').next().unwrap_or_default().to_owned()
}

fn add_index(draft: &mut Draft, folder: &str, names: &[String]) -> bool {
    if draft.http().get("static").is_none() {
        return false;
    }
    let files = draft.section("static").get_mut("serve");
    let Some(Value::List(folders)) = files else {
        return false;
    };
    let mut is_set = false;
    for files in folders {
        if let Value::Map(files) = files
            && files.get("root") == Some(&Value::from(folder))
        {
            files.set("index", names.to_vec());
            is_set = true;
        }
    }
    is_set
}

fn programs(directive: &Directive, site: &mut Site) {
    let mut pool = Tree::default();
    pool.set("mode", "cgi")
        .set("root", directive.argument(1).trim_end_matches('/'))
        .set("num_workers", 8)
        .set("symlinks", "anywhere");
    site.application_below(directive.argument(0), pool, Vec::new());
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
        _ => return,
    }
    directive.done();
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
    let (Some(seconds), Some(root)) = (seconds, &site.root) else {
        return;
    };
    draft.uses("static");
    draft.section("static").set("dir", root.as_str());
    draft
        .section("static")
        .set("max_age", seconds.min(31_536_000));
    directive.done();
    draft.note("one age for all files: `ExpiresByType` sets one for each type");
}

fn redirect(directive: &Directive, draft: &mut Draft) {
    let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
    let (status, from, to) = match words[..] {
        [from, to] if directive.is("RedirectPermanent") => ("301", from, to),
        [from, to] => ("302", from, to),
        ["permanent", from, to] => ("301", from, to),
        ["temp", from, to] => ("302", from, to),
        [status, from, to] if ["301", "302", "303", "307", "308"].contains(&status) => {
            (status, from, to)
        }
        _ => return,
    };
    let plain = as_it_is(from);
    let mut rule = Tree::default();
    rule.set("path", format!("^{plain}(.*)$"))
        .set("to", format!("{to}{{1}}"));
    rule.set("status", Value::Bare(status.to_owned()));
    if accepts_rule(&rule) {
        draft.rewrite(rule);
        directive.done();
    }
}

/// A rule that is not translated stays unread, and so do its conditions.
fn rewrite(directive: &Directive, site: &mut Site, draft: &mut Draft, state: &mut State) {
    let has_conditions = std::mem::take(&mut state.has_other_conditions);
    let asks_for_file = !std::mem::take(&mut state.asks_for_file).is_empty();
    let (from, to) = (directive.argument(0), directive.argument(1));
    let flags = directive.argument(2).trim_matches(['[', ']']);
    if forbids(directive) {
        return refuse(
            directive,
            from,
            site,
            draft,
            has_conditions || asks_for_file,
        );
    }
    if to == "-" {
        // It only sets a variable, such as HTTP_AUTHORIZATION, which is there anyway.
        if flags.contains("E=HTTP_AUTHORIZATION") || (from == "^index\\.php$" && flags == "L") {
            directive.done();
        }
        return;
    }
    let is_front = to.trim_start_matches('/').starts_with("index.php");
    if is_front && asks_for_file && !has_conditions {
        state.has_front = true;
        return directive.done();
    }
    if has_conditions || asks_for_file || to.contains("%{") || to.contains("%1") {
        return;
    }
    let status = flags.split(',').find_map(|flag| match flag.trim() {
        "R" => Some("302"),
        flag => flag.strip_prefix("R="),
    });
    if status.is_some_and(|it| !["301", "302", "303", "307", "308"].contains(&it)) {
        return;
    }
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
    if accepts_rule(&rule) {
        draft.rewrite(rule);
        directive.done();
    }
}

/// `RewriteRule … - [F]`. With conditions, more is closed than they say.
fn refuse(
    directive: &Directive,
    from: &str,
    site: &mut Site,
    draft: &mut Draft,
    has_conditions: bool,
) {
    let from = match from.strip_prefix('^') {
        Some(rest) => format!("^/{}", rest.trim_start_matches('/')),
        None => from.to_owned(),
    };
    let is_plain = !has_conditions && !directive.argument(2).contains("NC");
    if matches!(refused(&from, is_plain), Refused::Hidden) && has_conditions {
        return;
    }
    draft.refuse(directive, &from, is_plain, site);
}
