//! Apache: a server, virtual hosts, or a `.htaccess`.

use super::clients;
use super::directive::{Directive, Fate, SourceLine};
use super::draft::{
    ALL_CLOSED, At, Draft, Files, NOT_FOUND, Rank, Rewriting, Site, accepts_rule, as_it_is,
    front_alone, is_found, is_in, is_script, led_to, names_in, no_scripts, pattern, refusal,
    scripts, seconds, size, target,
};
use super::handlers;
use super::limits::{
    expand, flags, forbids, has_parts, leads_away, leads_to_proxy, limits, methods, names_hidden,
    refusing_status,
};
use super::statements::{
    directory_of, first_of, glob, is_access, is_condition, is_granted, is_hidden, is_none,
    is_scope, makes_others, named_by,
};
use super::tree::{Tree, Value};
use super::units;

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

/// Statements that may not stand in a `.htaccess`.
const OF_SERVERS: [&str; 15] = [
    "alias",
    "aliasmatch",
    "allowoverride",
    "directory",
    "directorymatch",
    "documentroot",
    "include",
    "includeoptional",
    "listen",
    "location",
    "locationmatch",
    "proxypass",
    "scriptalias",
    "scriptaliasmatch",
    "virtualhost",
];

pub(super) fn read(all: Vec<Directive>, draft: &mut Draft) {
    let mut all = flat(all);
    clients::take(&mut all);
    handlers::tell_conditions(&all, draft);
    let mut outer = Site::default();
    let mut state = SiteState::default();
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
    // A host for all addresses gets each request: none is left for the server around it.
    let is_for_all = |it: &Directive| it.arguments.iter().any(|it| it.starts_with(['*', '_']));
    let is_reached = outer.root.is_some() && !hosts.iter().any(|it| is_for_all(it));
    draft.has_many = hosts.len() > 1 || !hosts.is_empty() && is_reached;
    let mut sites = Vec::new();
    for one in &hosts {
        // What stands around hosts holds in each.
        let mut site = Site {
            pool: outer.pool.clone(),
            place: one.place,
            root: root_in(&one.inside).or_else(|| outer.root.clone()),
            ..Site::default()
        };
        if host(one, &all, &mut site, draft) {
            narrow(&mut site.listens, &listens);
            inherit(&all, &mut site, draft);
            for files in &outer.files {
                add_files(files.clone(), &mut site);
            }
            sites.push(site);
        }
    }
    if hosts.is_empty() || is_reached {
        scopes(&all, &all, &mut outer, draft, &mut state);
    } else {
        of_hosts(&all, &sites, draft);
    }
    state.finish(&mut outer);
    if hosts.is_empty() || is_reached {
        clients::keep_out(&all, &[], &mut outer, draft);
        let blocks: Vec<&Directive> = all.iter().collect();
        handlers::keep_others(&blocks, named_by, state.has_front, &mut outer);
    }
    for site in sites.iter_mut().chain([&mut outer]) {
        guard_aliases(&all, site, draft);
        let overridden = overriding(&all).into_iter();
        let overridden = overridden.map(|(place, path)| (draft.place(place), path));
        site.overridden = overridden.collect();
    }
    leave_names_to_first(&mut sites, draft);
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
    if hosts.is_empty() || is_reached {
        draft.sites.push(outer);
    }
    draft.sites.extend(sites);
}

/// Gives each name to the first host at an address that has it or a pattern for it: routes ask
/// exact names before patterns, and Apache asks hosts in their order.
fn leave_names_to_first(sites: &mut Vec<Site>, draft: &mut Draft) {
    let mut before = Vec::new();
    sites.retain_mut(|site| {
        let listens = site.listens.clone();
        let is_taken = |name: &String| {
            let is_here = |it: &&(_, String)| it.0 == listens;
            let mut patterns = before.iter().filter(is_here).map(|(_, name)| name);
            patterns.any(|it| it.strip_prefix('*').is_some_and(|end| name.ends_with(end)))
        };
        let had_names = !site.names.is_empty();
        site.names.retain(|name| !is_taken(name));
        before.extend(site.names.iter().map(|it| (listens.clone(), it.clone())));
        let stays = !had_names || !site.names.is_empty();
        if !stays {
            let place = draft.place(site.place);
            draft.note(&format!(
                "{place}: this host is never used: one before it has its names"
            ));
        }
        stays
    });
}

/// A host for all addresses of a port gets requests of those alone at which the server listens.
fn narrow(of_host: &mut Vec<(String, bool)>, listens: &[(String, bool)]) {
    let port = |address: &str| address.rsplit(':').next().map(str::to_owned);
    let narrowed = of_host.iter().flat_map(|(address, is_tls)| {
        let is_of_port = |it: &&(String, bool)| port(&it.0) == port(address);
        let at_port = listens.iter().filter(is_of_port).map(|it| it.0.clone());
        let all: Vec<String> = match address.strip_prefix(':') {
            Some(_) => at_port.collect(),
            None => Vec::new(),
        };
        let all = if all.is_empty() {
            vec![address.clone()]
        } else {
            all
        };
        all.into_iter().map(|it| (it, *is_tls))
    });
    *of_host = narrowed.collect();
}

/// Statements outside of blocks that keep paths or scripts from clients hold in each host; rules do
/// not.
fn inherit(all: &[Directive], site: &mut Site, draft: &mut Draft) {
    let holds = |it: &&Directive| {
        let names = [
            "AliasMatch",
            "ProxyPass",
            "ProxyPassMatch",
            "ScriptAlias",
            "ScriptAliasMatch",
        ];
        let is_redirect = it.is("Redirect") || it.is("RedirectMatch");
        is_redirect && refusing_status(it).is_some()
            || names.iter().any(|name| it.is(name))
            || is_engine_off(it)
    };
    let copies: Vec<_> = all.iter().filter(holds).cloned().collect();
    for copy in &copies {
        if is_engine_off(copy) {
            site.whole = scripts("none");
            copy.done();
        } else {
            of_server(copy, site, draft, &mut SiteState::default());
        }
    }
    if draft.leave_out_unread(&copies, ALL_CLOSED) {
        site.close("");
    }
}

/// Whether it keeps all scripts from running, wherever it stands.
fn is_engine_off(it: &Directive) -> bool {
    let names = ["php_admin_flag", "php_flag", "php_admin_value", "php_value"];
    names.iter().any(|name| it.is(name)) && is_none(it)
}

/// Whether a host speaks TLS. `SSLEngine on` may stand in an included file, as certbot's does.
fn is_tls(host: &Directive) -> bool {
    let is_off = |it: &Directive| it.is("SSLEngine") && it.argument(0).eq_ignore_ascii_case("off");
    (host.has_one("SSLEngine") || host.has_one("SSLCertificateFile"))
        && !host.inside.iter().any(is_off)
}

/// Whether a file has a host with TLS.
pub(super) fn has_tls(all: &[Directive]) -> bool {
    flat(all.to_vec()).iter().any(is_tls)
}

/// A `.htaccess` of the root of a site, whose statements hold in that site.
pub(super) fn read_root(text: &str, site: &mut Site, draft: &mut Draft) -> Result<(), String> {
    let all = statements_of_file(text, "", true, site, draft)?;
    let mut state = SiteState::default();
    for directive in all.iter().filter(|it| !is_scope(it)) {
        of_server(directive, site, draft, &mut state);
    }
    scopes(&all, &all, site, draft, &mut state);
    if state.has_front {
        site.pool.remove("fallback");
    }
    state.finish(site);
    if is_granted(&all) {
        mark_granted(&all);
    }
    if draft.leave_out_unread(&all, ALL_CLOSED) {
        site.close("");
    }
    Ok(())
}

/// The statements of a `.htaccess`, after its limits to addresses became routes of their own where
/// `tells_clients` says so.
fn statements_of_file(
    text: &str,
    below: &str,
    tells_clients: bool,
    site: &mut Site,
    draft: &mut Draft,
) -> Result<Vec<Directive>, String> {
    let mut inside = flat(units::statements(text, draft.file, draft.file())?);
    for it in &mut inside {
        // Apache answers 500 to all below a file with one of these.
        it.is_foreign |= OF_SERVERS.contains(&&*it.name.to_ascii_lowercase());
    }
    let mut scope = Directive {
        place: draft.line(1),
        name: ".htaccess".to_owned(),
        inside,
        ..Directive::default()
    };
    if tells_clients {
        clients::take(&mut scope.inside);
        clients::take_of(&mut scope);
        clients::keep_out_of(&scope, below, site, draft);
    }
    handlers::tell_conditions(&scope.inside, draft);
    Ok(scope.inside)
}

/// The front controller of the `.htaccess` of a root.
fn front_of(inside: &[Directive]) -> Option<String> {
    let (mut site, mut draft) = (Site::default(), Draft::default());
    let mut state = SiteState::default();
    for it in inside.iter().filter(|it| !is_scope(it)) {
        // Most statements are read for good elsewhere.
        let copy = it.clone();
        of_server(&copy, &mut site, &mut draft, &mut state);
        let leads = it.is("RewriteRule") || it.is("FallbackResource");
        if leads && state.has_front && copy.fate.get() == Fate::Done {
            it.done();
        }
    }
    let front = state.front.unwrap_or_else(|| "index.php".to_owned());
    state.has_front.then_some(front)
}

/// Directories in which `.htaccess` files count, and in those below them, with their lines.
fn overriding(all: &[Directive]) -> Vec<(SourceLine, String)> {
    let mut directories = Vec::new();
    for it in all {
        let is_set = |it: &Directive| {
            let is_one = it.is("AllowOverride") || it.is("AllowOverrideList");
            is_one && !it.argument(0).eq_ignore_ascii_case("none")
        };
        if it.is("VirtualHost") {
            directories.extend(overriding(&it.inside));
        } else if it.inside.iter().any(is_set) {
            let is_plain = it.is("Directory")
                && it.arguments.len() == 1
                && !it.argument(0).contains(['*', '?', '[']);
            let path = if is_plain { directory_of(it) } else { "/" };
            directories.push((it.place, path.to_owned()));
        }
    }
    directories
}

/// A `.htaccess` in a directory by its path below the root: what it closes.
pub(super) fn read_directory(
    below: &str,
    text: &str,
    site: &mut Site,
    draft: &mut Draft,
) -> Result<(), String> {
    let tells_clients = !draft.closes_for_all;
    let inside = statements_of_file(text, below, tells_clients, site, draft)?;
    if below.is_empty() {
        site.leads_to = front_of(&inside);
    }
    draft.note_parameters(&inside);
    let mut state = SiteState::default();
    let base = rewrite_base(&inside);
    for it in &inside {
        if it.is("RewriteCond") {
            of_server(it, &mut Site::default(), &mut Draft::default(), &mut state);
        } else if it.is("RewriteRule") {
            let conditions = std::mem::take(&mut state.conditions);
            state.passes_files |= passes_files(it, &conditions);
            let is_root = below.is_empty() && !state.passes_files;
            let base = base.filter(|_| is_root && conditions.is_empty());
            if let Some(base) = base
                && !draft.closes_for_all
                && rewrite_in_root(it, base, site, draft)
            {
                it.done();
            } else if !is_root || !lead_in_root(it, &conditions, site, draft) {
                in_directory(it, below, &conditions, site, draft);
            }
        } else if it.is("Files") || it.is("FilesMatch") {
            files(it, below, site, draft);
        } else if refusing_status(it).is_some() {
            match it.name.to_ascii_lowercase().as_str() {
                "redirect" => redirect(it, site, draft),
                "redirectmatch" => redirect_match(it, site, draft),
                _ => {}
            }
        }
    }
    tell_rest(&inside, draft);
    let scope = Directive {
        place: draft.line(1),
        name: "Directory".to_owned(),
        arguments: vec![if below.is_empty() { "/" } else { below }.to_owned()],
        inside,
        ..Directive::default()
    };
    if runs_none(&scope) && is_granted(&scope.inside) {
        match below {
            "" => site.whole = scripts("none"),
            below => no_scripts(&mut site.pool, below),
        }
    }
    let is_limiting = |it: &Directive| is_condition(it) && !keeps_nothing(it);
    if is_granted(&scope.inside) && !scope.inside.iter().any(is_limiting) {
        return Ok(());
    }
    let is_files = |it: &&Directive| it.is("Files") || it.is("FilesMatch");
    let inside_files: Vec<_> = scope.inside.iter().filter(is_files).cloned().collect();
    let limits = scope
        .inside
        .iter()
        .filter(|it| is_access(it) || is_condition(it) && !keeps_nothing(it))
        .cloned()
        .collect();
    let scope = Directive {
        inside: limits,
        ..scope
    };
    let open: Vec<_> = inside_files.iter().filter(|it| is_open(it)).collect();
    if refuse_but(&scope, &open, below, site) {
        return Ok(());
    }
    for it in open {
        draft.leave_out_limit(it, "it stays closed, as the directory around it is");
    }
    close(&scope, below, site, draft);
    Ok(())
}

/// Says what else stands in a directory's file: nothing of it holds here.
fn tell_rest(inside: &[Directive], draft: &mut Draft) {
    for it in inside {
        let name = it.name.to_ascii_lowercase();
        let is_silent = NEEDLESS.contains(&&*name)
            || ["rewriteengine", "rewritecond", "options"].contains(&&*name)
            || name == "rewriterule" && !is_redirect(it)
            || name == "directoryindex" && it.arguments == ["index.php"]
            || name.starts_with("allowoverride")
            || name.starts_with("auth")
            || makes_others(it) && it.shown().contains("php");
        if is_scope(it) && it.fate.get() != Fate::Told {
            tell_rest(&it.inside, draft);
        } else if it.fate.get() == Fate::Unread
            && !(is_silent || is_access(it) || is_condition(it) || is_none(it))
            && (name == "rewriterule" || !limits(it))
        {
            draft.leave_out(it);
        }
    }
}

/// The text before the targets of a root's rules that stands for the root. None where they lead
/// elsewhere.
fn rewrite_base(inside: &[Directive]) -> Option<&'static str> {
    // Rules that skip others, or are one with the next, say when those hold.
    let leads_on = |flag: String| flag.starts_with("S=") || flag.starts_with("SKIP") || flag == "C";
    let is_other = |it: &Directive| match it.name.to_ascii_lowercase().as_str() {
        "rewritebase" => it.argument(0) != "/",
        "rewriterule" => flags(it).any(leads_on) || flags(it).any(|flag| flag == "CHAIN"),
        _ => false,
    };
    if inside.iter().any(is_other) {
        return None;
    }
    let sets = |it: &Directive| it.is("RewriteRule") && it.argument(2).contains("E=REWRITEBASE:");
    let mut all = inside.iter().filter(|it| sets(it));
    // PrestaShop's rules set it, for the root as well as for a directory.
    let is_root = all.all(|it| it.argument(2).trim_matches(['[', ']']) == "E=REWRITEBASE:/");
    is_root.then_some("%{ENV:REWRITEBASE}")
}

/// A rule of a root's file that leads paths to another script or file, whatever files there are.
/// False where it is none, or `http.rewrite` can't say the same.
fn rewrite_in_root(rule: &Directive, base: &str, site: &mut Site, draft: &Draft) -> bool {
    let (from, to) = (rule.argument(0), rule.argument(1));
    let to = to.strip_prefix(base).unwrap_or(to);
    let mut is_last = false;
    let are_known = flags(rule).all(|flag| {
        let ends = ["L", "END", "LAST"].contains(&flag.as_str());
        is_last |= ends;
        ends || ["PT", "QSA", "NC", "NOCASE"].contains(&flag.as_str())
    });
    let name = to.split('?').next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    // A directory may be led on by another rule of the file.
    let is_file = name.contains('.') && !to.contains(['%', '\\']) && !to.contains("://");
    // The front controller answers before the rules behind the one that leads to it.
    let is_behind_front =
        site.whole == front_alone() || site.rules.iter().any(|it| it.keys == front_alone());
    let is_some = !is_any(from) && !from.starts_with('!') && !is_front(to) && !is_behind_front;
    if !(are_known && is_last && is_file && is_some) {
        return false;
    }
    let expression = from_root(from, "");
    let path = pattern(&expression);
    let is_loose = flags(rule).any(|flag| flag == "NC" || flag == "NOCASE");
    let path = if is_loose {
        format!("(?i){path}")
    } else {
        path
    };
    let mut tree = Tree::default();
    let to = format!("/{}", target(to.trim_start_matches('/')));
    tree.set("path", path).set("to", to);
    if !accepts_rule(&tree) {
        return false;
    }
    site.rewrites.push(Rewriting {
        rule: tree,
        at: At::Expression(expression),
        shown: format!("{}: `{}`", draft.place(rule.place), rule.shown()),
    });
    true
}

/// Names of the root in targets of rules, as frameworks write it.
const BASES: [&str; 4] = [
    "%{DOCUMENT_ROOT}",
    "%{ENV:BASE}",
    "%{ENV:REWRITEBASE}",
    "%{ENV:CWD}",
];

/// Whether a rule leads to the front controller of a root.
fn is_front(to: &str) -> bool {
    let to = BASES
        .iter()
        .find_map(|start| to.strip_prefix(start))
        .unwrap_or(to);
    !to.contains("://") && to.trim_start_matches('/').starts_with("index.php")
}

/// Whether a rule leads to another address.
fn is_redirect(rule: &Directive) -> bool {
    let leaves = |flag: String| flag == "P" || flag == "R" || flag.starts_with("R=");
    rule.argument(1).contains("://") || flags(rule).any(leaves)
}

/// The outcome for paths that rules lead to another script where there is no file.
const NOT_LED: &str = "rules do not ask whether a file is there: such paths are answered as others \
                       are, by the front controller or by nobody";

/// Refuses all that lies in a directory but files that blocks in it open. False where there are
/// none, or the directory is not closed to everybody.
fn refuse_but(scope: &Directive, open: &[&Directive], below: &str, site: &mut Site) -> bool {
    let (Some(status), Some(mut free)) = (refuses(scope), outside(below)) else {
        return false;
    };
    free.extend(open.iter().map(|it| {
        let name = names_in(below, &named_by(it));
        format!("(?:{name})")
    }));
    let others = At::Without(free.join("|"));
    !open.is_empty() && site.rule(others, Rank::Refusal, refusal(status))
}

/// Expressions of all paths that do not lie below a directory, in whatever letters that is written;
/// none for the root, below which all lie. Nothing where its letters may have other forms.
fn outside(directory: &str) -> Option<Vec<String>> {
    let letters = directory.strip_prefix('/').unwrap_or_default();
    if !letters.is_ascii() {
        return None;
    }
    let (mut before, mut all) = ("^/".to_owned(), Vec::new());
    for letter in letters.chars() {
        let forms = [letter.to_ascii_lowercase(), letter.to_ascii_uppercase()];
        let forms = forms.map(|it| as_it_is(&it.to_string())).concat();
        all.push(format!("{before}(?:$|[^{forms}])"));
        before = format!("{before}[{forms}]");
    }
    if !letters.is_empty() {
        all.push(format!("{before}[^/]"));
    }
    Some(all)
}

/// A rule of a directory's file: what it refuses, or leads away from, is closed.
fn in_directory(
    rule: &Directive,
    below: &str,
    conditions: &[Directive],
    site: &mut Site,
    draft: &mut Draft,
) {
    let to = rule.argument(1);
    let is_lost =
        below.is_empty() && to != "-" && !is_redirect(rule) && !is_front(to) && !forbids(rule);
    if keeps_files(rule, conditions) {
        let is_of_none = groups(conditions).iter().any(|it| asks_for_none(it));
        if is_lost && is_of_none {
            return draft.leave_out_limit(rule, NOT_LED);
        }
        if is_of_none && let Some(script) = front_of_directory(rule, below, draft) {
            site.rule(At::Below(below.to_owned()), Rank::Plain, led_to(&script));
            return rule.done();
        }
        return draft.leave_out(rule);
    }
    if forbids(rule) {
        return refuse(rule, below, conditions, site, draft);
    }
    // A root's own front controller is what PHP's pool does; some paths of it are told.
    let is_part = || {
        matches!(covered(rule, "", conditions), Some(all) if is_any(rule.argument(0))
        && all.iter().all(|at| matches!(at, At::Expression(_))))
    };
    if leads_away(rule) && (!below.is_empty() || is_part()) {
        shut_rule(rule, below, conditions, site, draft);
    } else if is_lost {
        draft.leave_out_limit(rule, NOT_LED);
    }
}

/// The script below the root to which a rule leads all paths of a directory that have no file.
fn front_of_directory(rule: &Directive, below: &str, draft: &Draft) -> Option<String> {
    let (from, to) = (rule.argument(0), rule.argument(1));
    let is_all = is_any(from) || from == ".";
    if below.is_empty() || !is_all || draft.closes_for_all || to.contains(['%', '$', ':']) {
        return None;
    }
    let script = to.split('?').next().unwrap_or_default();
    let script = match script.strip_prefix('/') {
        Some(_) => script.to_owned(),
        None => format!("{below}/{script}"),
    };
    (is_script(&script) && is_in(&script, below)).then_some(script)
}

/// A rule of a root's file that leads paths away whatever files there are: none of them is sent.
/// False for any other rule.
fn lead_in_root(
    rule: &Directive,
    conditions: &[Directive],
    site: &mut Site,
    draft: &mut Draft,
) -> bool {
    let (from, to) = (rule.argument(0), rule.argument(1));
    if to == "-" || !leads_away(rule) || forbids(rule) || keeps_files(rule, conditions) {
        return false;
    }
    if names_hidden(from) {
        return true; // no such file is sent
    }
    let leaves = is_redirect(rule);
    let is_front = !leaves && is_front(to);
    let is_all = is_any(from) || from.starts_with('!');
    let all = covered(rule, "", conditions);
    let is_part = |all: &Vec<At>| all.iter().all(|at| matches!(at, At::Expression(_)));
    if is_any(from) && all.as_ref().is_some_and(is_part) || leaves && !is_all {
        return false; // its paths are closed, or a redirect of some
    }
    if is_all && !is_front {
        shut_rule(rule, "", conditions, site, draft);
        return true;
    }
    let is_said = match all {
        Some(all) => {
            let mut all = all.into_iter();
            all.all(|at| site.rule(at, Rank::Expression, front_alone()))
        }
        None => false,
    };
    if is_said && !is_front {
        draft.leave_out_limit(rule, "the front controller answers for these paths");
    }
    if !is_said {
        site.send_nothing();
        if !conditions.is_empty() {
            let outcome = "no file is sent, because its conditions are not translated";
            draft.leave_out_limit(rule, outcome);
        }
    }
    true
}

/// Blocks outside of hosts, which each host has looked at already.
fn of_hosts(all: &[Directive], sites: &[Site], draft: &mut Draft) {
    for scope in all.iter().filter(|it| is_scope(it)) {
        let is_open = keeps_nothing(scope);
        let is_said = limits(scope) || leads_away(scope) || says_handler(scope);
        if (!scope.is("Directory") || has_pattern(scope)) && is_said {
            scope.done_whole();
            continue;
        }
        if is_open || !scope.is("Directory") {
            let mut probe = Site::default();
            let copy = scope.clone();
            settle(&copy, all, &mut probe, &mut Draft::default());
            if copy.fate.get() == Fate::Done && probe == Site::default() {
                settle(scope, all, &mut probe, draft);
            }
            continue;
        }
        let folder = directory_of(scope);
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
        let around = scopes.iter().filter(|it| is_in(folder, directory_of(it)));
        let nearest = around.max_by_key(|it| directory_of(it).len());
        let mut within = scopes.iter().filter(|it| is_in(directory_of(it), folder));
        nearest.is_some_and(|it| !is_whole(it)) || within.any(|it| !is_whole(it))
    };
    let mut closed = Vec::new();
    site.files.retain(|files| {
        let stays = !is_limited(&files.root);
        if !stays {
            closed.push(files.prefix.clone());
        }
        stays
    });
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
            draft.file()
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

    pub(super) fn is(&self, name: &str) -> bool {
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
            out.extend(handlers::beside_condition(&mut directive));
            out.push(directive);
        }
    }
    out
}

/// A site as far as it is read: several lines say something together.
#[derive(Debug, Default)]
struct SiteState {
    has_index: bool,
    /// Paths without a file lead to a script.
    has_front: bool,
    /// The script that they lead to, by its path below the root.
    front: Option<String>,
    /// They lead to something else.
    has_other: bool,
    has_root: bool,
    /// A rule ends the others for files that there are.
    passes_files: bool,
    /// Conditions of the next rule.
    conditions: Vec<Directive>,
}

impl SiteState {
    fn finish(&self, site: &mut Site) {
        let first = match site.pool.get("index") {
            Some(Value::List(all)) => all.iter().find_map(|it| match it {
                Value::Text(name) if is_script(name) => Some(name.as_str()),
                _ => None,
            }),
            _ => Some("index.php"),
        };
        match &self.front {
            Some(script) if first == Some(script.as_str()) => {}
            Some(script) => _ = site.pool.set("fallback", script.as_str()),
            None if self.has_front => {}
            None if self.has_other || self.has_root && self.has_index => {
                site.pool.set("fallback", "none");
            }
            None => {}
        }
    }
}

/// False for a host that only leads elsewhere.
fn host(host: &Directive, all: &[Directive], site: &mut Site, draft: &mut Draft) -> bool {
    let is_tls = is_tls(host);
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
    if leads_to_tls && draft.has_tls && !is_tls {
        draft.section("ssl").set("redirect", true);
        if let Some((address, _)) = site.listens.first()
            && draft.http().get("address").is_none()
        {
            draft.http().set("address", address.as_str());
        }
        return false;
    }
    let asks_early = |it: &&Directive| it.is("RewriteCond") && asks_for_none(&[*it]);
    let mut asking = host.inside.iter().filter(asks_early);
    if let Some(it) = asking.find(|it| !it.argument(0).starts_with("%{DOCUMENT_ROOT}")) {
        let (place, shown) = (draft.place(it.place), it.shown());
        draft.limits.push(format!(
            "{place}: `{shown}`: outside of a `<Directory>`, Apache evaluates this before it \
             looks for files, and sends none; here, files that exist are sent"
        ));
    }
    let mut state = SiteState::default();
    // Redirects are for these names alone.
    for name in ["ServerName", "ServerAlias"] {
        for directive in host.inside.iter().filter(|it| it.is(name)) {
            of_server(directive, site, draft, &mut state);
        }
    }
    let is_name = |it: &Directive| it.is("ServerName") || it.is("ServerAlias");
    for directive in host
        .inside
        .iter()
        .filter(|it| !is_scope(it) && !is_name(it))
    {
        of_server(directive, site, draft, &mut state);
    }
    let folders = host.inside.iter().chain(all);
    let folders: Vec<_> = folders.filter(|it| it.is("Directory")).cloned().collect();
    scopes(&host.inside, &folders, site, draft, &mut state);
    // Directories, files and paths are named outside of hosts as well.
    for scope in all.iter().filter(|it| is_scope(it)) {
        if scope.is("Directory") {
            settle_copy(scope, &host.inside, &folders, site, draft);
        } else if limits(scope) || leads_away(scope) || says_handler(scope) {
            let copy = [scope.clone()];
            scopes(&copy, &folders, site, draft, &mut state);
            if draft.leave_out_unread(&copy, ALL_CLOSED) {
                site.close("");
            }
        }
    }
    let blocks: Vec<&Directive> = all.iter().chain(&host.inside).collect();
    state.finish(site);
    clients::keep_out(all, &host.inside, site, draft);
    handlers::keep_others(&blocks, named_by, state.has_front, site);
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
    state: &mut SiteState,
) {
    for scope in of.iter().filter(|it| is_scope(it)) {
        let is_roots = scope.is("Directory") && site.root.as_deref() == Some(directory_of(scope));
        settle(scope, all, site, draft);
        if scope.fate.get() != Fate::Done {
            continue;
        }
        let below = below_root(scope, site);
        for inside in scope
            .inside
            .iter()
            .filter(|it| it.fate.get() == Fate::Unread)
        {
            if let Some(below) = &below
                && inside.is("RewriteRule")
            {
                let conditions = std::mem::take(&mut state.conditions);
                in_directory(inside, below, &conditions, site, draft);
            } else if is_roots || below.is_some() && inside.is("RewriteCond") {
                of_server(inside, site, draft, state);
            } else if inside.is("DirectoryIndex")
                && add_index(site, directory_of(scope), &inside.arguments)
            {
                inside.done();
            }
        }
        for inside in scope.inside.iter().filter(|it| is_scope(it)) {
            match &below {
                _ if is_roots => settle(inside, all, site, draft),
                Some(below) if inside.is("Files") || inside.is("FilesMatch") => {
                    files(inside, below, site, draft);
                }
                _ => {}
            }
        }
    }
    for scope in of.iter().filter(|it| it.is("Directory") && is_open(it)) {
        if let Some(below) = below_root(scope, site)
            && site.is_refused(&below)
        {
            draft.leave_out_limit(scope, "it stays closed, as the directory around it is");
        }
    }
}

/// The path of a directory below the root.
fn below_root(scope: &Directive, site: &Site) -> Option<String> {
    let root = site.root.as_deref().filter(|it| !it.is_empty())?;
    let below = directory_of(scope).strip_prefix(root)?;
    (scope.is("Directory") && below.starts_with('/')).then(|| below.to_owned())
}

/// A block outside of hosts, for one of them: fates are of the block as a whole. `own`: what stands
/// in the host. `blocks`: those, and all outside of hosts.
fn settle_copy(
    scope: &Directive,
    own: &[Directive],
    blocks: &[Directive],
    site: &mut Site,
    draft: &mut Draft,
) {
    let root = site.root.clone().unwrap_or_default();
    let is_below = is_in(directory_of(scope), &root) || has_pattern(scope);
    let meets = is_below || is_in(&root, directory_of(scope));
    if root.is_empty() || !meets || keeps_nothing(scope) {
        return;
    }
    // The nearer one holds, and of the same directory the host's.
    let opens = |it: &Directive, more: usize| {
        let is_near = directory_of(it).len() >= directory_of(scope).len() + more;
        it.is("Directory") && is_in(&root, directory_of(it)) && is_near && is_open(it)
    };
    let is_overruled = own.iter().any(|it| opens(it, 0)) || blocks.iter().any(|it| opens(it, 1));
    if is_below || !is_overruled {
        let copy = [scope.clone()];
        scopes(&copy, blocks, site, draft, &mut SiteState::default());
        if draft.leave_out_unread(&copy, ALL_CLOSED) {
            site.close("");
        }
    }
}

/// Whether a block says what is made of files, or one in it does.
fn says_handler(scope: &Directive) -> bool {
    let says = |it: &Directive| is_none(it) || makes_others(it) || is_scope(it) && says_handler(it);
    scope.inside.iter().any(says)
}

/// Whether a block keeps nobody from anything, and scripts from nothing.
fn keeps_nothing(scope: &Directive) -> bool {
    let keeps = |it: &Directive| {
        if is_scope(it) || is_condition(it) {
            !keeps_nothing(it)
        } else {
            !is_access(it) && limits(it)
        }
    };
    is_granted(&scope.inside) && !says_handler(scope) && !scope.inside.iter().any(keeps)
}

/// Whether the directories of a block are more than one path says.
fn has_pattern(scope: &Directive) -> bool {
    scope.is("DirectoryMatch")
        || scope.arguments.len() > 1
        || scope.argument(0).contains(['*', '?', '['])
}

/// Whether it says that all may come.
fn is_open(scope: &Directive) -> bool {
    let says = scope
        .inside
        .iter()
        .any(|it| it.is("Require") || it.is("Allow"));
    says && is_granted(&scope.inside)
}

/// Whether nobody is kept out, and what lies there is what is sent.
fn is_free(scope: &Directive) -> bool {
    let leads_away = |it: &Directive| {
        it.is("Redirect") && (it.arguments.len() == 1 || !scope.is("Directory"))
            || it.is("ProxyPass") && leads_to_proxy(it)
            || it.is("RedirectMatch") && refusing_status(it).is_some()
            || it.is("RewriteRule") && forbids(it) && !scope.is("Directory")
    };
    is_granted(&scope.inside) && !scope.inside.iter().any(leads_away)
}

/// Whether nobody is kept out of any of its files, nor led away from one.
fn is_whole(scope: &Directive) -> bool {
    let asks_for_file = scope
        .inside
        .iter()
        .any(|it| it.is("RewriteCond") && it.argument(1) == "!-f");
    is_granted(&scope.inside)
        && !clients::is_taken(scope)
        && scope.inside.iter().all(|it| {
            let leads = forbids(it) && it.is("RewriteRule") || leads_away(it) && !asks_for_file;
            !leads && (!is_scope(it) || is_whole(it))
        })
}

/// Statements that say nothing where all may come.
fn mark_granted(inside: &[Directive]) {
    for it in inside {
        let name = it.name.to_ascii_lowercase();
        if ["require", "allow", "order", "satisfy"].contains(&name.as_str())
            || name.starts_with("auth")
        {
            it.done();
        }
        if name.starts_with("allowoverride") {
            it.done(); // what such files close is looked for when all is read
        }
    }
}

/// What a block limits: nothing, or what it names is closed.
fn settle(scope: &Directive, all: &[Directive], site: &mut Site, draft: &mut Draft) {
    let named = match &scope.arguments[..] {
        [path] => path.as_str(),
        [sign, path] if sign == "~" && !scope.is("Directory") => path.as_str(),
        _ => return,
    };
    let root = site.root.clone().unwrap_or_default();
    let has_none = runs_none(scope);
    if named.contains("${") && (has_none || !is_free(scope)) {
        site.close("");
        return draft.leave_out_limit(scope, ALL_CLOSED);
    }
    if is_free(scope) && !has_none {
        if scope.is("Files") || scope.is("FilesMatch") {
            note_named(scope, "", site, draft);
        }
        mark_granted(&scope.inside);
        scope.done();
        return handlers(scope, named, site, draft);
    }
    if scope.is("Location") || scope.is("LocationMatch") {
        return location(scope, named, site, draft);
    }
    if !scope.is("Directory") {
        return files(scope, "", site, draft);
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
    if has_none && is_granted(&scope.inside) && root == directory_of(scope) && !root.is_empty() {
        site.whole = scripts("none");
        mark_granted(&scope.inside);
        mark_none(scope);
        return scope.done();
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
    if is_in(&root, directory_of(scope)) && !root.is_empty() {
        // A folder nearer to the root says otherwise.
        let is_nearer = |it: &&Directive| {
            it.is("Directory")
                && is_in(&root, directory_of(it))
                && directory_of(it).len() > directory_of(scope).len()
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

/// Handlers in a block where all may come.
fn handlers(scope: &Directive, named: &str, site: &mut Site, draft: &mut Draft) {
    let is_files = scope.is("Files") || scope.is("FilesMatch");
    let below = below_root(scope, site).unwrap_or_default();
    let other = handled(scope).filter(|_| is_files);
    for it in &scope.inside {
        if it.is("Options") {
            it.done();
        } else if is_files && makes_others(it) {
            match &other {
                Some(expression) => shut_expression(it, expression, site, draft),
                None => it.done(),
            }
        } else if makes_others(it) && scope.is("LocationMatch") {
            shut_expression(it, named, site, draft);
        } else if makes_others(it) && scope.is("Location") {
            shut(it, named, site, draft);
        } else if makes_others(it) {
            let is_here = is_in(
                directory_of(scope),
                site.root.as_deref().unwrap_or_default(),
            );
            if is_here || it.arguments.len() > 1 {
                handler(it, &below, site, draft);
            } else {
                it.done(); // a directory of an alias, which is guarded by itself
            }
        }
    }
}

fn runs_none(scope: &Directive) -> bool {
    scope.inside.iter().any(is_none)
}

fn mark_none(scope: &Directive) {
    for it in &scope.inside {
        if is_none(it) || it.is("Options") {
            it.done();
        }
    }
}

/// Endings of scripts: their sources are never sent.
fn is_scripts(ending: &str) -> bool {
    let ending = ending.trim_start_matches('.').to_ascii_lowercase();
    ending.starts_with("php") || ["phtml", "phar", "pht"].contains(&ending.as_str())
}

/// A handler by the endings of files, or for a whole directory: those of PHP alone are ours.
fn handler(it: &Directive, below: &str, site: &mut Site, draft: &mut Draft) {
    if !makes_others(it) {
        return;
    }
    if it.is("SetHandler") {
        return shut(it, below, site, draft);
    }
    let endings = it.arguments.iter().skip(1);
    let others: Vec<String> = endings
        .filter(|it| !is_scripts(it))
        .map(|it| as_it_is(it.trim_start_matches('.')))
        .collect();
    if others.is_empty() {
        return it.done();
    }
    let start = if below.is_empty() {
        String::new()
    } else {
        format!("^{}/.*", as_it_is(below))
    };
    // An ending in the middle of a name counts there.
    let expression = format!("{start}\\.({})(\\.[^/]*)?$", others.join("|"));
    shut_expression(it, &expression, site, draft);
}

/// The files of a block with a handler that are no scripts here, as an expression.
fn handled(scope: &Directive) -> Option<String> {
    if !scope.inside.iter().any(makes_others) {
        return None;
    }
    let name = named_by(scope);
    let is_of_php = |it: &Directive| {
        let shown = it.shown().to_ascii_lowercase();
        ["php", "fcgi", "proxy:"]
            .iter()
            .any(|word| shown.contains(word))
    };
    if !scope
        .inside
        .iter()
        .filter(|it| makes_others(it))
        .any(is_of_php)
    {
        return Some(name); // something else has its scripts, too
    }
    let rest = ["[^/]+", "[^/]*", "/[^/]+", "/[^/]*"];
    let bare = rest.iter().find_map(|it| name.strip_prefix(it));
    let bare = bare.unwrap_or(&name);
    if let Some(all) = bare.strip_suffix('$').and_then(expand) {
        let all = all.iter().filter(|it| {
            let ending = it.rsplit_once('.').map_or("", |(_, ending)| ending);
            !is_scripts(ending)
        });
        let all: Vec<String> = all.map(|it| as_it_is(it)).collect();
        return (!all.is_empty()).then(|| format!("({})$", all.join("|")));
    }
    let others = [
        "", ".inc", ".module", ".html", ".htm", ".shtml", ".txt", ".tpl", ".cgi", ".pl", ".py",
        ".sh", ".css", ".js", ".fcgi", ".rb", ".lib", ".class",
    ];
    let is_other = |ending: &str| is_found(&name, &format!("/x{ending}"));
    (!name.contains("ph") || others.iter().any(|it| is_other(it))).then_some(name)
}

/// A path that some may not have: nobody has it.
fn close(scope: &Directive, path: &str, site: &mut Site, draft: &mut Draft) {
    if let Some(status) = refuses(scope).filter(|_| !path.is_empty()) {
        site.refuse(At::Below(path.to_owned()), status);
        return scope.done_whole();
    }
    site.close(path);
    let outcome = if path.trim_end_matches('/').is_empty() {
        ALL_CLOSED.to_owned()
    } else {
        format!("`{path}` and what is below it are answered 404, by a route with `refuse: 404`")
    };
    draft.leave_out_limit(scope, &outcome);
}

/// The status of a block that says nothing else than that nobody may come.
pub(super) fn refuses(scope: &Directive) -> Option<&str> {
    let redirect = scope.inside.iter().find(|it| it.is("Redirect"));
    let status = redirect.and_then(refusing_status);
    let is_only = scope.inside.iter().all(|it| {
        let words = it.arguments.join(" ").to_ascii_lowercase();
        match it.name.to_ascii_lowercase().as_str() {
            "require" => words == "all denied",
            "deny" => words == "from all",
            "order" | "satisfy" | "options" => true,
            "redirect" => status.is_some_and(is_refusal) && it.arguments.len() == 1,
            _ => false,
        }
    });
    is_only.then(|| status.unwrap_or("403"))
}

/// Whether a route can answer with a status.
fn is_refusal(status: &str) -> bool {
    status.len() == 3 && status.starts_with('4')
}

/// `<Location>` and `<LocationMatch>`.
fn location(scope: &Directive, named: &str, site: &mut Site, draft: &mut Draft) {
    let is_match = scope.is("LocationMatch") || scope.arguments.len() > 1;
    let at = if is_match {
        At::Expression(named.to_owned())
    } else if named.contains(['*', '?', '[']) {
        At::Expression(format!("^{}(/|$)", glob(named, ".*")))
    } else {
        At::Below(named.to_owned())
    };
    if is_free(scope) {
        if named == "/" {
            site.whole = scripts("none");
        } else if !site.rule(at, Rank::Expression, scripts("none")) {
            return;
        }
        mark_granted(&scope.inside);
        mark_none(scope);
        return scope.done();
    }
    match at {
        At::Below(path) | At::Path(path) | At::Start(path) => close(scope, &path, site, draft),
        At::Expression(expression) | At::Without(expression) => {
            refuse_expression(scope, &expression, site, draft);
        }
    }
}

/// Nobody has what a block limits to some.
fn refuse_expression(scope: &Directive, expression: &str, site: &mut Site, draft: &mut Draft) {
    if let Some(status) = refuses(scope) {
        return draft.refuse(scope, expression, status, site);
    }
    let outcome = site.refuse_expression(expression, NOT_FOUND);
    let text = format!("all paths with `{expression}` in them are answered 404");
    draft.leave_out_limit(scope, &outcome.unwrap_or(text));
}

/// Notes who may have files by their names: it counts for the front controller.
fn note_named(scope: &Directive, below: &str, site: &mut Site, draft: &Draft) {
    // Limits to addresses have routes of their own.
    if clients::is_taken(scope) {
        return;
    }
    let shuts = !is_free(scope);
    if shuts || scope.inside.iter().any(is_access) {
        let expression = names_in(below, &named_by(scope));
        site.named.push(draft.named_files(scope, expression, shuts));
    }
}

/// The same of a rule that refuses, whatever else it asks of a request.
fn note_forbidden(
    rule: &Directive,
    below: &str,
    conditions: &[Directive],
    site: &mut Site,
    draft: &Draft,
) {
    if !conditions.is_empty() {
        return; // it may be about what the client has asked for
    }
    for at in covered(rule, below, conditions).unwrap_or_default() {
        if let At::Expression(expression) = at {
            site.named.push(draft.named_files(rule, expression, true));
        }
    }
}

/// Files by their names, in a directory by its path below the root, and all below it.
fn files(scope: &Directive, below: &str, site: &mut Site, draft: &mut Draft) {
    let is_match = scope.is("FilesMatch") || scope.arguments.len() > 1;
    let Some(named) = scope.arguments.last() else {
        return;
    };
    let name = named_by(scope);
    note_named(scope, below, site, draft);
    if is_free(scope) {
        if let Some(handled) = handled(scope) {
            return shut_expression(scope, &names_in(below, &handled), site, draft);
        }
        if runs_none(scope) {
            keep_scripts(scope, &name, below, site, draft);
            mark_none(scope);
        }
        mark_granted(&scope.inside);
        return scope.done();
    }
    if is_hidden(named, is_match) {
        // Hidden names are never sent.
        return scope.done_whole();
    }
    let expression = names_in(below, &name);
    refuse_programs(scope, &expression, site);
    refuse_expression(scope, &expression, site, draft);
}

/// Keeps scripts whose names an expression finds from running.
fn keep_scripts(scope: &Directive, name: &str, below: &str, site: &mut Site, draft: &mut Draft) {
    let takes = |script: &str| is_found(name, &format!("/{script}"));
    let takes_all = ["a.php", "zq-1.php", "x_y.z.php"]
        .iter()
        .all(|it| takes(it));
    if !takes_all && !takes("index.php") {
        let tail = name.strip_suffix('$').and_then(|it| it.chars().last());
        let has_ending = tail.is_some_and(|it| it.is_ascii_alphanumeric() || it == ')');
        if has_ending && !name.contains("ph") {
            return; // of other files
        }
        // A path after a script's name leads to it, too.
        let some = format!("{}(?:/|$)", name.strip_suffix('$').unwrap_or(name));
        let expression = names_in(below, &some);
        let is_named = has_ending && name.contains("ph");
        if is_named
            && site.rule(
                At::Expression(expression),
                Rank::Refusal,
                refusal(NOT_FOUND),
            )
        {
            return;
        }
    }
    if below.is_empty() {
        site.whole = scripts("none");
    } else {
        no_scripts(&mut site.pool, below);
    }
    if !takes_all {
        draft.leave_out_limit(scope, "no script runs there");
    }
}

/// Refuses programs by their names, whatever follows these in a path.
fn refuse_programs(scope: &Directive, expression: &str, site: &mut Site) {
    let status = refuses(scope).unwrap_or(NOT_FOUND);
    let bare = expression.trim_end_matches('$').trim_start_matches('^');
    let of_programs = |(path, pool, _): &(String, Tree, Vec<String>)| {
        let is_programs = pool.get("mode") == Some(&Value::from("cgi"));
        is_programs.then(|| format!("^{}(?:/.*)?{bare}/", as_it_is(path)))
    };
    let all: Vec<String> = site.below.iter().filter_map(of_programs).collect();
    for expression in all {
        site.rule(At::Expression(expression), Rank::Refusal, refusal(status));
    }
}

fn of_server(directive: &Directive, site: &mut Site, draft: &mut Draft, state: &mut SiteState) {
    let name = directive.name.to_ascii_lowercase();
    match name.as_str() {
        "rewriterule" => return rewrite(directive, site, draft, state),
        "header" => return header(directive, draft),
        "expiresbytype" | "expiresdefault" => return expires(directive, site, draft),
        "redirect" | "redirectpermanent" | "redirecttemp" => {
            return redirect(directive, site, draft);
        }
        "redirectmatch" => return redirect_match(directive, site, draft),
        "aliasmatch" | "scriptaliasmatch" => {
            return shut_expression(directive, directive.argument(0), site, draft);
        }
        "proxypass" | "proxypassmatch" => return proxy(directive, site, draft),
        "include" | "includeoptional" => return include(directive, draft),
        "allowoverride" | "allowoverridelist" => directive.done(),
        "sethandler" | "addhandler" => return handler(directive, "", site, draft),
        "addtype" if first_of(directive).starts_with("application/x-httpd-php") => {
            return handler(directive, "", site, draft);
        }
        // A type that makes none of scripts.
        "addtype" if directive.shown().contains("php") => return,
        _ => {}
    }
    let is_translated = of_site(&name, directive, site, draft, state)
        || of_answers(&name, directive, site, draft)
        || of_php(&name, directive, site, draft);
    if is_translated || NEEDLESS.contains(&&*name) {
        directive.done();
    }
}

/// The script that answers where there is no file. False where it is none, or another one does
/// already.
fn fallback(to: &str, state: &mut SiteState) -> bool {
    if to.eq_ignore_ascii_case("disabled") {
        return true;
    }
    let path = to.split(['?', '$', '%']).next().unwrap_or_default();
    let end = path.find(".php/").map(|at| at + ".php".len());
    let script = path.get(..end.unwrap_or(path.len())).unwrap_or_default();
    let script = script.trim_matches('/');
    if !is_script(script) || to.contains("://") {
        state.has_other = true;
        return false;
    }
    state.has_front = true;
    state.front.get_or_insert_with(|| script.to_owned()) == script
}

/// Which requests are a site's, and where its files are. Whether the directive is about that.
fn of_site(
    name: &str,
    directive: &Directive,
    site: &mut Site,
    draft: &mut Draft,
    state: &mut SiteState,
) -> bool {
    let first = directive.argument(0);
    match name {
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
            let names = directive
                .arguments
                .iter()
                .map(|it| it.trim_start_matches('/'));
            let mut names: Vec<String> = names.map(str::to_owned).collect();
            names.dedup();
            if names.iter().any(|it| it.is_empty() || it.contains('/')) {
                return false;
            }
            if names != ["index.php"] {
                site.pool.set("index", names);
            }
        }
        "fallbackresource" => return fallback(first, state),
        "rewriteengine" if first.eq_ignore_ascii_case("on") => {}
        // Told with its rule, if that is.
        "rewritecond" => state.conditions.push(directive.clone()),
        "alias" if is_of_file(first, directive.argument(1)) => {
            shut(directive, first, site, draft);
            return false;
        }
        // All that is asked for lies there.
        "alias" if first == "/" => {
            site.root = Some(directive.argument(1).trim_end_matches('/').to_owned());
        }
        "alias" => {
            let files = Files {
                prefix: first.trim_end_matches('/').to_owned(),
                root: directive.argument(1).trim_end_matches('/').to_owned(),
                index: Vec::new(),
            };
            return add_files(files, site);
        }
        "scriptalias" => programs(directive, site),
        "sslengine" if first.eq_ignore_ascii_case("on") => {}
        "sslcertificatefile" => site.certificate.0 = Some(first.to_owned()),
        "sslcertificatekeyfile" => site.certificate.1 = Some(first.to_owned()),
        _ => return false,
    }
    true
}

/// Translates a directive about how answers are sent and logged. False: it is about something else.
fn of_answers(name: &str, directive: &Directive, site: &Site, draft: &mut Draft) -> bool {
    let first = directive.argument(0);
    match name {
        "addoutputfilterbytype" if first.eq_ignore_ascii_case("deflate") => {
            draft.compress(Vec::new());
        }
        "errordocument" => match &site.root {
            Some(root)
                if directive.argument(1).starts_with('/')
                    && first.len() == 3
                    && first.starts_with(['4', '5']) =>
            {
                return draft.error_page(first, &format!("{root}{}", directive.argument(1)));
            }
            _ => return false,
        },
        "xsendfile" if first.eq_ignore_ascii_case("on") => draft.uses("sendfile"),
        "xsendfilepath" => {
            draft.uses("sendfile");
            draft.section("sendfile").push("roots", first);
        }
        // A variable of Apache's own, of which nobody knows the text here.
        "customlog" if first.contains("${") => return false,
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
        "options" => {}
        _ => return false,
    }
    true
}

/// PHP's settings, and the number and limits of its workers. Whether the directive is about that.
fn of_php(name: &str, directive: &Directive, site: &mut Site, draft: &mut Draft) -> bool {
    let first = directive.argument(0);
    match name {
        "php_flag" | "php_admin_flag" | "php_value" | "php_admin_value"
            if first.eq_ignore_ascii_case("engine") =>
        {
            if is_none(directive) {
                site.whole = scripts("none");
            }
        }
        "removehandler" | "removetype" if directive.shown().contains("php") => {
            site.whole = scripts("none");
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
        "user" | "group" if first.contains('$') => return false,
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
        _ => return false,
    }
    true
}

/// Whether an `Alias` is of one file: directories alone are sent.
fn is_of_file(path: &str, to: &str) -> bool {
    let to = std::path::Path::new(to);
    let name = path.rsplit('/').next().unwrap_or_default();
    to.is_file() || !to.is_dir() && to.extension().is_some() && name.contains('.')
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

fn add_index(site: &mut Site, folder: &str, names: &[String]) -> bool {
    let mut is_set = false;
    for files in site.files.iter_mut().filter(|it| it.root == folder) {
        files.index = names.to_vec();
        is_set = true;
    }
    is_set
}

/// A directory of files below a path; false where an earlier one has that path already.
fn add_files(files: Files, site: &mut Site) -> bool {
    let is_taken = |known: &Files| is_in(&files.prefix, &known.prefix);
    if site.files.iter().any(is_taken) {
        return false;
    }
    site.files.push(files);
    true
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

/// Files of distributions that load modules and say nothing of who gets what.
const KNOWN_INCLUDES: [&str; 4] = [
    "mods-enabled/*.load",
    "conf.modules.d/*.conf",
    "ports.conf",
    "letsencrypt/options-ssl-apache.conf",
];

pub(super) fn is_known_include(file: &str) -> bool {
    KNOWN_INCLUDES.iter().any(|known| file.ends_with(known))
}

fn include(directive: &Directive, draft: &mut Draft) {
    if is_known_include(directive.argument(0)) {
        return directive.done();
    }
    let (place, shown) = (draft.place(directive.place), directive.shown());
    draft.limits.push(format!(
        "{place}: `{shown}`: this file does not exist here, so its limits do not hold; copy it \
         here, or paste its content in this place"
    ));
    directive.fate.set(Fate::Told);
}

/// Closes a path for which something else than a file would have answered.
fn shut(directive: &Directive, path: &str, site: &mut Site, draft: &mut Draft) {
    let path = path.trim_end_matches('/');
    let is_taken = !path.is_empty()
        && site.rule(
            At::Below(path.to_owned()),
            Rank::Refusal,
            refusal(NOT_FOUND),
        );
    if is_taken {
        let outcome = format!("`{path}` and what is below it are answered 404");
        return draft.leave_out_limit(directive, &outcome);
    }
    site.close("");
    draft.leave_out_limit(directive, ALL_CLOSED);
}

/// As [`shut`], for the paths of an expression.
fn shut_expression(directive: &Directive, expression: &str, site: &mut Site, draft: &mut Draft) {
    let outcome = site.refuse_expression(expression, NOT_FOUND);
    let text = format!("all paths with `{expression}` in them are answered 404");
    draft.leave_out_limit(directive, &outcome.unwrap_or(text));
}

/// Another server answers: what lies below the root there is not meant for clients.
fn proxy(directive: &Directive, site: &mut Site, draft: &mut Draft) {
    let path = directive.argument(0);
    if directive.argument(1) == "!" {
        return directive.done();
    }
    if !leads_to_proxy(directive) || site.root.is_none() {
        return;
    }
    if directive.is("ProxyPassMatch") {
        shut_expression(directive, path, site, draft);
    } else {
        shut(directive, path, site, draft);
    }
}

/// A status, the place that it is about, and where it leads.
fn parts_of_redirect(directive: &Directive) -> Option<(&str, &str, &str)> {
    let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
    Some(match words[..] {
        [from, to] if directive.is("RedirectPermanent") => ("301", from, to),
        [from, to] => ("302", from, to),
        [status, from, to] => {
            let status = match status.to_ascii_lowercase().as_str() {
                "permanent" => "301",
                "temp" => "302",
                "seeother" => "303",
                _ => ["301", "302", "303", "307", "308"]
                    .into_iter()
                    .find(|it| *it == status)?,
            };
            (status, from, to)
        }
        _ => return None,
    })
}

/// Whether a rule can be limited to a site: all others have names.
fn is_for_names(site: &Site, draft: &Draft) -> bool {
    !draft.has_many || !site.names.is_empty()
}

fn redirect(directive: &Directive, site: &mut Site, draft: &mut Draft) {
    if let Some(status) = refusing_status(directive) {
        let path = directive.argument(1);
        let is_taken = is_refusal(status)
            && path.len() > 1
            && site.rule(At::Below(path.to_owned()), Rank::Refusal, refusal(status));
        if is_taken {
            directive.done();
        } else {
            shut(directive, path, site, draft);
        }
        return;
    }
    let Some((status, from, to)) = parts_of_redirect(directive) else {
        return;
    };
    if !is_for_names(site, draft) {
        return shut(directive, from, site, draft);
    }
    let plain = as_it_is(from);
    let mut rule = Tree::default();
    draft.for_hosts(&mut rule, site);
    // Whole parts of a path count.
    let rest = if from.ends_with('/') {
        "(.*)"
    } else {
        "(/.*)?"
    };
    rule.set("path", format!("^{plain}{rest}$"))
        .set("to", format!("{to}{{1}}"));
    rule.set("status", Value::Bare(status.to_owned()));
    if accepts_rule(&rule) {
        draft.rewrite(rule);
        directive.done();
    } else {
        shut(directive, from, site, draft);
    }
}

fn redirect_match(directive: &Directive, site: &mut Site, draft: &mut Draft) {
    if let Some(status) = refusing_status(directive) {
        let expression = directive.argument(1);
        return if is_refusal(status) {
            draft.refuse(directive, expression, status, site);
        } else {
            shut_expression(directive, expression, site, draft);
        };
    }
    let Some((status, from, to)) = parts_of_redirect(directive) else {
        return;
    };
    let mut rule = Tree::default();
    if !is_for_names(site, draft) {
        return shut_expression(directive, from, site, draft);
    }
    draft.for_hosts(&mut rule, site);
    rule.set("path", pattern(from)).set("to", target(to));
    rule.set("status", Value::Bare(status.to_owned()));
    if accepts_rule(&rule) {
        draft.rewrite(rule);
        directive.done();
    } else {
        shut_expression(directive, from, site, draft);
    }
}

/// A rule that is not translated stays unread, and so do its conditions.
fn rewrite(directive: &Directive, site: &mut Site, draft: &mut Draft, state: &mut SiteState) {
    let conditions = std::mem::take(&mut state.conditions);
    let (from, to) = (directive.argument(0), directive.argument(1));
    let flags = directive.argument(2).trim_matches(['[', ']']);
    if forbids(directive) {
        return refuse(directive, "", &conditions, site, draft);
    }
    let goes_to_tls = to.strip_prefix("https://%{").is_some_and(|rest| {
        let rest = rest.split_once('}').map_or("", |(_, rest)| rest);
        ["%{REQUEST_URI}", "/$1", "%{REQUEST_URI}$1"].contains(&rest)
    });
    if goes_to_tls && flags.contains('R') {
        // A site of another file may have TLS.
        conditions.iter().for_each(Directive::done);
        draft.lead_to_tls(directive, site, false);
        return directive.done();
    }
    if let Some(others) = from.strip_prefix('!')
        && to != "-"
    {
        return rewrite_others(directive, others, site, draft, state);
    }
    let to = BASES
        .iter()
        .find_map(|start| to.strip_prefix(start))
        .unwrap_or(to);
    if to == "-" && !leads_away(directive) {
        if passes_files(directive, &conditions) {
            state.passes_files = true;
            return directive.done();
        }
        // It only sets a variable, such as HTTP_AUTHORIZATION, which is there anyway.
        if flags.contains("E=HTTP_AUTHORIZATION") || (from == "^index\\.php$" && flags == "L") {
            directive.done();
        }
        return;
    }
    let is_front = to.trim_start_matches('/').starts_with("index.php");
    let has_no_file = groups(&conditions).iter().any(|it| asks_for_none(it));
    if has_no_file || state.passes_files && conditions.is_empty() {
        let is_read = if is_front {
            fallback("index.php", state)
        } else {
            let is_of_some = |it: &Directive| {
                it.argument(0) == "%{REQUEST_URI}" && !it.argument(1).starts_with(['!', '-'])
            };
            is_any(from) && !conditions.iter().any(is_of_some) && fallback(to, state)
        };
        if is_read && conditions.iter().all(asks_for_nothing) {
            return directive.done();
        }
    }
    let is_plain = !to.contains("%{") && !to.contains("%1") && to != "-";
    if !conditions.is_empty() || !is_plain || !is_for_names(site, draft) {
        if !keeps_files(directive, &conditions) {
            return shut_rule(directive, "", &conditions, site, draft);
        }
        for condition in conditions.iter().filter(|it| !asks_for_nothing(it)) {
            draft.leave_out(condition);
        }
        return draft.leave_out(directive);
    }
    // Another server answers, by `[P]`.
    if to.contains("://") && flags.split(',').any(|flag| flag.trim() == "P") {
        return shut_expression(directive, &from_root(from, ""), site, draft);
    }
    let status = flags.split(',').find_map(|flag| match flag.trim() {
        "R" => Some("302"),
        flag => flag.strip_prefix("R="),
    });
    if status.is_some_and(|it| !["301", "302", "303", "307", "308"].contains(&it)) {
        return shut_rule(directive, "", &conditions, site, draft);
    }
    let from = from_root(from, "");
    let to = target(to);
    let to = if to.starts_with('/') || to.contains("://") {
        to
    } else {
        format!("/{to}")
    };
    let mut rule = Tree::default();
    draft.for_hosts(&mut rule, site);
    rule.set("path", pattern(&from)).set("to", to);
    if let Some(status) = status {
        rule.set("status", Value::Bare(status.to_owned()));
    }
    if accepts_rule(&rule) {
        draft.rewrite_unless_refused(rule);
        directive.done();
    } else {
        shut_rule(directive, "", &conditions, site, draft);
    }
}

/// An expression of a rule as one of whole paths. In a server they begin with a slash, in a
/// directory's file without one: where both may be meant, it is found where either is.
fn from_root(from: &str, below: &str) -> String {
    if below.is_empty() {
        return with_starts(from, |rest| {
            let (rest, has_slash) = match rest.strip_prefix("/?").map(|rest| (rest, false)) {
                Some(bare) => bare,
                None => match rest.strip_prefix('/') {
                    Some(bare) if !bare.starts_with(['*', '+', '{']) => (bare, true),
                    _ => (rest, false),
                },
            };
            let start = if has_slash || begins_with_name(rest) {
                "^/"
            } else {
                "^/?"
            };
            (start, rest)
        });
    }
    let start = format!("^{}", as_it_is(below));
    let bare = with_starts(from, |rest| ("", without_slash(rest)));
    if let Some(rest) = from.strip_prefix('^')
        && !bare.contains('|')
        && !has_starts(rest)
    {
        format!("{start}/{bare}")
    } else if has_starts(from) {
        // In its middle, `^` is found nowhere.
        format!("{start}/(?:{bare}|.*(?:{from}))")
    } else if from.contains('|') {
        format!("{start}/.*(?:{from})")
    } else {
        format!("{start}/.*{from}")
    }
}

/// Whether there is a sign of the start anywhere in an expression.
fn has_starts(expression: &str) -> bool {
    with_starts(expression, |rest| ("", rest)) != expression
}

fn without_slash(rest: &str) -> &str {
    rest.trim_start_matches("/?").trim_start_matches('/')
}

/// An expression with something else for each sign of the start, and for what follows it.
fn with_starts<'a>(
    expression: &'a str,
    start: impl Fn(&'a str) -> (&'static str, &'a str),
) -> String {
    let mut out = String::new();
    let mut rest = expression;
    let mut is_class = false;
    while let Some(letter) = rest.chars().next() {
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
        if letter == '^' && !is_class {
            let (text, after) = start(rest);
            out.push_str(text);
            rest = after;
            continue;
        }
        out.push(letter);
        let mut signs: &[char] = &[];
        match letter {
            '\\' => {
                out.extend(rest.chars().next());
                rest = rest
                    .get(rest.chars().next().map_or(0, char::len_utf8)..)
                    .unwrap_or_default();
            }
            '[' if !is_class => {
                is_class = true;
                signs = &['^', ']'];
            }
            ']' => is_class = false,
            _ => {}
        }
        for sign in signs {
            if let Some(after) = rest.strip_prefix(*sign) {
                out.push(*sign);
                rest = after;
            }
        }
    }
    out
}

/// Whether all that an expression matches begins with a letter of a name, and not with a slash.
fn begins_with_name(expression: &str) -> bool {
    let is_many = |rest: &str| rest.starts_with(['?', '*', '{']);
    if let Some(inner) = expression.strip_prefix('(') {
        let inner = inner.strip_prefix("?:").unwrap_or(inner);
        let (mut depth, mut start) = (0_usize, 0);
        let mut before = ' ';
        for (at, letter) in inner.char_indices() {
            if before == '\\' {
                before = ' ';
                continue;
            }
            before = letter;
            match letter {
                '[' => return false, // a class may hold each of these signs
                '(' => depth += 1,
                '|' | ')' if depth == 0 => {
                    if !begins_with_name(inner.get(start..at).unwrap_or_default()) {
                        return false;
                    }
                    start = at + 1;
                    if letter == ')' {
                        return !is_many(inner.get(start..).unwrap_or_default());
                    }
                }
                ')' => depth -= 1,
                _ => {}
            }
        }
        return false;
    }
    let bare = expression.strip_prefix("\\.");
    let rest = bare.or_else(|| {
        expression.strip_prefix(|c: char| c.is_ascii_alphanumeric() || "_-".contains(c))
    });
    rest.is_some_and(|rest| !is_many(rest))
}

/// Whether a list of rules refuses something, or leads it away whatever files there are.
pub(super) fn takes_files(rules: &[Directive]) -> bool {
    let mut conditions: Vec<Directive> = Vec::new();
    rules.iter().any(|it| {
        if it.is("RewriteCond") {
            conditions.push(it.clone());
            return false;
        }
        let conditions = std::mem::take(&mut conditions);
        forbids(it) && it.is("RewriteRule") || leads_away(it) && !keeps_files(it, &conditions)
    })
}

/// Conditions of a rule: all of these groups have to hold, and one of each does.
fn groups(conditions: &[Directive]) -> Vec<Vec<&Directive>> {
    let mut all = vec![Vec::new()];
    for it in conditions {
        if let Some(group) = all.last_mut() {
            group.push(it);
        }
        if !flags(it).any(|flag| ["OR", "ORNEXT"].contains(&flag.as_str())) {
            all.push(Vec::new());
        }
    }
    all.retain(|it| !it.is_empty());
    all
}

/// Whether a condition asks for the file that a path leads to.
fn is_of_file_itself(condition: &Directive) -> bool {
    [
        "%{REQUEST_FILENAME}",
        "%{SCRIPT_FILENAME}",
        "%{DOCUMENT_ROOT}%{REQUEST_URI}",
        "%{DOCUMENT_ROOT}/%{REQUEST_URI}",
    ]
    .contains(&condition.argument(0))
}

fn asks_for_nothing(condition: &Directive) -> bool {
    is_of_file_itself(condition) && ["!-f", "!-d", "!-l", "!-s"].contains(&condition.argument(1))
}

/// Whether a group only holds where there is no file.
fn asks_for_none(group: &[&Directive]) -> bool {
    let is = |it: &&Directive| is_of_file_itself(it) && ["!-f", "-d"].contains(&it.argument(1));
    group.iter().all(is)
}

/// `RewriteRule ^ - [L]` for files that there are.
fn passes_files(rule: &Directive, conditions: &[Directive]) -> bool {
    let ends = flags(rule).any(|flag| ["L", "END"].contains(&flag.as_str()));
    let is_files =
        |it: &&Directive| is_of_file_itself(it) && ["-f", "-s"].contains(&it.argument(1));
    let groups = groups(conditions);
    ends && is_any(rule.argument(0))
        && groups.len() == 1
        && conditions.iter().any(|it| is_files(&it))
}

/// Whether an expression of a rule is found in each path.
fn is_any(from: &str) -> bool {
    let bare = from.trim_start_matches('^').trim_end_matches('$');
    let bare = without_slash(bare).trim_matches(['(', ')']);
    ["", ".", ".*", ".+", ".?", ".*?"].contains(&bare) && !matches!(from, "^$" | "^/$" | "^/?$")
}

/// Whether an expression is found in an empty text, or where that can't be told.
fn is_found_in_nothing(expression: &str) -> bool {
    is_found(&with_starts(expression, |rest| ("^/", rest)), "/")
}

/// Whether no file is kept from anybody by a rule: it only holds where there is none, for a script,
/// for requests that say more than their paths, or leads to the same path of another address.
fn keeps_files(rule: &Directive, conditions: &[Directive]) -> bool {
    let groups = groups(conditions);
    if groups.iter().any(|it| asks_for_none(it)) {
        return true;
    }
    if forbids(rule) {
        return false;
    }
    let (from, to) = (rule.argument(0), rule.argument(1));
    let name = without_slash(from.trim_start_matches('^'));
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "_-/".contains(c);
    let of_script = name.trim_start_matches(is_letter).starts_with("\\.php");
    let is_root = ["^$", "^/?$", "^/*$", "^/$"].contains(&from);
    let is_script = |it: &str| {
        ["/$", "\\.php", "\\.php)", "\\.php$", "\\.php)$"]
            .iter()
            .any(|end| it.ends_with(end))
    };
    if from.starts_with('^') && of_script && !has_parts(from) || is_root || is_script(from) {
        return !conditions.is_empty() || of_script;
    }
    let says_more = |it: &&Directive| {
        let (of, expression) = (it.argument(0), it.argument(1));
        let is_clients = of == "%{QUERY_STRING}"
            || (of.starts_with("%{HTTP_") || of.starts_with("%{HTTP:")) && !is_of_address(it);
        is_clients
            && !expression.starts_with(['!', '=', '<', '>', '-'])
            && !is_found_in_nothing(expression)
    };
    let is_copy = |it: &&Directive| {
        !is_of_file_itself(it)
            && ["-f", "-s"].contains(&it.argument(1))
            && (it.argument(0).contains('$') || it.argument(0).contains("%{REQUEST"))
    };
    let of_script =
        |it: &&Directive| it.argument(0) == "%{REQUEST_URI}" && is_script(it.argument(1));
    if groups.iter().any(|group| {
        group.iter().all(says_more) || group.iter().all(is_copy) || group.iter().all(of_script)
    }) {
        return true;
    }
    let is_others = |it: &&Directive| matches!(asks(it), Asks::OtherPath(_));
    let of_address = |group: &Vec<&Directive>| group.iter().all(|it| is_of_address(it));
    let proxies = flags(rule).any(|flag| flag == "P");
    is_any(from)
        && to.contains("://")
        && !proxies
        && groups.iter().any(of_address)
        && groups
            .iter()
            .all(|it| of_address(it) || it.iter().all(is_others))
}

/// Whether a condition asks by which address a client has come.
fn is_of_address(condition: &Directive) -> bool {
    let of = condition.argument(0).to_ascii_uppercase();
    [
        "%{HTTPS}",
        "%{HTTP_HOST}",
        "%{SERVER_NAME}",
        "%{SERVER_PORT}",
        "%{REQUEST_SCHEME}",
        "%{HTTP_X_FORWARDED_PROTO}",
        "%{HTTP:X-FORWARDED-PROTO}",
        "%{HTTP:X-FORWARDED-SSL}",
        "%{HTTP:CF-VISITOR}",
        "%{ENV:HTTPS}",
    ]
    .contains(&of.as_str())
}

/// Paths that are all that a rule may be about, or more; nothing where that can't be told.
fn covered(rule: &Directive, below: &str, conditions: &[Directive]) -> Option<Vec<At>> {
    let from = rule.argument(0);
    if let Some(others) = from.strip_prefix('!') {
        return below.is_empty().then(|| vec![without(others, rule)]);
    }
    if !is_any(from) || !below.is_empty() {
        return Some(vec![At::Expression(from_root(from, below))]);
    }
    let of_paths = |group: &Vec<&Directive>| -> Option<Vec<At>> {
        // One that holds where there is no file keeps none from anybody.
        let of_files = group.iter().filter(|it| !asks_for_none(&[it]));
        let ats = of_files.map(|it| match asks(it) {
            Asks::Path(expression) => Some(At::Expression(expression)),
            Asks::OtherPath(expression) => Some(At::Without(expression)),
            _ => None,
        });
        ats.collect()
    };
    let mut all: Vec<Vec<At>> = groups(conditions).iter().filter_map(of_paths).collect();
    all.sort_by_key(|it| it.iter().any(|at| matches!(at, At::Without(_))));
    all.into_iter().next()
}

/// All paths but those of a rule.
fn without(others: &str, rule: &Directive) -> At {
    let others = with_starts(others, |rest| ("^/", without_slash(rest)));
    if rule.argument(2).to_ascii_uppercase().contains("NC") {
        At::Without(format!("(?i){others}"))
    } else {
        At::Without(others)
    }
}

/// Closes the files that a rule leads away from.
fn shut_rule(
    rule: &Directive,
    below: &str,
    conditions: &[Directive],
    site: &mut Site,
    draft: &mut Draft,
) {
    conditions.iter().for_each(Directive::done);
    let Some(all) = covered(rule, below, conditions) else {
        if below.is_empty() {
            site.close("");
            return draft.leave_out_limit(rule, ALL_CLOSED);
        }
        return shut(rule, below, site, draft);
    };
    let mut texts = Vec::new();
    for at in all {
        match at {
            At::Expression(expression) => {
                let outcome = site.refuse_expression(&expression, NOT_FOUND);
                let text = format!("all paths with `{expression}` in them are answered 404");
                texts.push(outcome.unwrap_or(text));
            }
            At::Without(expression) => {
                let at = At::Without(expression.clone());
                if site.rule(at, Rank::Refusal, refusal(NOT_FOUND)) {
                    texts.push(format!("all paths without `{expression}` are answered 404"));
                } else {
                    site.close("");
                    texts.push(ALL_CLOSED.to_owned());
                }
            }
            At::Path(_) | At::Below(_) | At::Start(_) => {}
        }
    }
    draft.leave_out_limit(rule, &texts.join("; "));
}

/// `RewriteRule !…`: all but some go to a script.
fn rewrite_others(
    rule: &Directive,
    others: &str,
    site: &mut Site,
    draft: &mut Draft,
    state: &mut SiteState,
) {
    let is_front = rule
        .argument(1)
        .trim_start_matches('/')
        .starts_with("index.php");
    let at = without(others, rule);
    if is_front && site.rule(at, Rank::Expression, front_alone()) {
        state.has_front = true;
        let text = "a pool that sends no files has the paths of `RewriteRule !…`: files there are \
                    answered 404, and not by the front controller";
        draft.note(text);
        return rule.done();
    }
    site.close("");
    draft.leave_out_limit(rule, ALL_CLOSED);
}

/// A condition of a rule, as a route can ask it.
enum Asks {
    /// The path, by an expression.
    Path(String),
    /// The path, by an expression that is not found in it.
    OtherPath(String),
    /// A field or the method.
    Keys(Tree),
    /// The query or a cookie, by which nobody is kept from a path.
    Query,
    Other,
}

fn asks(condition: &Directive) -> Asks {
    let (of, expression) = (condition.argument(0), condition.argument(1));
    let flags = condition.argument(2).to_ascii_uppercase();
    let sign = if flags.contains("NC") { "(?i)" } else { "" };
    let field = |name: &str| {
        let mut fields = Tree::default();
        fields.set(name, format!("{sign}{expression}"));
        let mut keys = Tree::default();
        keys.set("header", Value::Map(fields));
        Asks::Keys(keys)
    };
    match of.trim_start_matches("%{").trim_end_matches('}') {
        // Some expressions also refuse a client that sends none.
        "QUERY_STRING" | "HTTP_COOKIE"
            if !expression.starts_with(['!', '=', '<', '>', '-'])
                && !is_found_in_nothing(expression) =>
        {
            Asks::Query
        }
        "REQUEST_METHOD" => {
            let (not, rest) = match expression.strip_prefix('!') {
                Some(rest) => ("!", rest),
                None => ("", expression),
            };
            let (how, rest) = match rest.strip_prefix('=') {
                Some(rest) => ("=", rest),
                None => ("~", rest),
            };
            methods(&format!("{not}{how}"), rest).map_or(Asks::Other, Asks::Keys)
        }
        "REQUEST_URI" if expression.starts_with("!^") || expression.starts_with("!/") => {
            Asks::OtherPath(format!("{sign}{}", expression.trim_start_matches('!')))
        }
        _ if expression.starts_with(['!', '=', '<', '>', '-']) => Asks::Other,
        "REQUEST_URI" => Asks::Path(expression.to_owned()),
        "HTTP_USER_AGENT" => field("User-Agent"),
        "HTTP_REFERER" => field("Referer"),
        _ => Asks::Other,
    }
}

/// `RewriteRule … - [F]`. With conditions that a route does not have, more is closed than they say.
fn refuse(
    rule: &Directive,
    below: &str,
    conditions: &[Directive],
    site: &mut Site,
    draft: &mut Draft,
) {
    note_forbidden(rule, below, conditions, site, draft);
    let (is_others, from) = match rule.argument(0).strip_prefix('!') {
        Some(from) => (true, from),
        None => (false, rule.argument(0)),
    };
    let is_any = !is_others && is_any(from) && below.is_empty();
    let status = flags(rule).find_map(|flag| match flag.as_str() {
        "G" | "GONE" => Some("410".to_owned()),
        flag => flag.split_once('=').map(|(_, status)| status.to_owned()),
    });
    let status = status.filter(|it| is_refusal(it));
    let status = status.as_deref().unwrap_or("403");
    if is_others {
        return refuse_others(rule, from, status, (below, conditions), site, draft);
    }
    let from = from_root(from, below);
    if conditions.is_empty() {
        return draft.refuse(rule, &from, status, site);
    }
    if conditions.iter().all(|it| matches!(asks(it), Asks::Query)) {
        conditions.iter().for_each(Directive::done);
        return draft.leave_out_limit(rule, "such requests are the application's");
    }
    let mut groups: Vec<Vec<Asks>> = groups(conditions)
        .into_iter()
        .map(|group| group.into_iter().map(asks).collect())
        .collect();
    // One that a route can say may stand for all: one that closes all other paths comes last.
    let closes_others = |it: &Asks| matches!(it, Asks::OtherPath(_));
    groups.sort_by_key(|it| it.iter().any(closes_others));
    let is_one = groups.len() == 1;
    let can_be_said = |it: &Asks| match it {
        Asks::Path(_) | Asks::OtherPath(_) => is_any,
        Asks::Keys(_) => true,
        Asks::Query | Asks::Other => false,
    };
    let group = groups.iter().find(|it| it.iter().all(can_be_said));
    let mut is_closed = group.is_some();
    for it in group.into_iter().flatten() {
        is_closed &= match it {
            Asks::Path(expression) => site.refuse_expression(expression, status).is_none(),
            Asks::OtherPath(expression) => site.rule(
                At::Without(expression.clone()),
                Rank::Refusal,
                refusal(status),
            ),
            Asks::Keys(keys) => {
                let mut keys = keys.clone();
                keys.merge(refusal(status));
                if is_any {
                    site.condition(keys)
                } else {
                    site.rule(At::Expression(from.clone()), Rank::Exact, keys)
                }
            }
            Asks::Query | Asks::Other => false,
        };
    }
    if is_closed && is_one {
        return rule.done_whole();
    }
    if !is_closed {
        let expression = if is_any { "^".to_owned() } else { from };
        let text = format!("all paths with `{expression}` in them are answered {status}");
        let outcome = if is_any {
            site.close("");
            ALL_CLOSED.to_owned()
        } else {
            site.refuse_expression(&expression, status).unwrap_or(text)
        };
        return draft.leave_out_limit(rule, &outcome);
    }
    draft.leave_out_limit(rule, "more is refused: one of its conditions is enough");
}

/// `RewriteRule !… - [F]`: all paths but some are refused, whatever the conditions say.
fn refuse_others(
    rule: &Directive,
    from: &str,
    status: &str,
    (below, conditions): (&str, &[Directive]),
    site: &mut Site,
    draft: &mut Draft,
) {
    if !below.is_empty() {
        return shut(rule, below, site, draft);
    }
    if !site.rule(without(from, rule), Rank::Refusal, refusal(status)) {
        site.close("");
        return draft.leave_out_limit(rule, ALL_CLOSED);
    }
    if conditions.is_empty() {
        return rule.done_whole();
    }
    let outcome = "more requests are refused, because its conditions are not translated";
    draft.leave_out_limit(rule, outcome);
}
