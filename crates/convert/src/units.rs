//! The limits in files of Apache and nginx, as each is [tried](super::trial) by itself.

use super::directive::{self, Directive};
use super::draft::is_found;
use super::limits::{forbids, limits, names_hidden, refusing_status};
use super::php::{expression, gives_php, is_of_scripts};
use super::statements::{
    is_access, is_granted, is_hidden, is_none, is_scope, makes_others, named_by,
};
use super::trial::{self, Part};

/// The statements of a file, as many as are to be read. `name`: that of the file.
///
/// # Errors
///
/// As [`directive::apache`].
pub(super) fn statements(text: &str, file: usize, name: &str) -> Result<Vec<Directive>, String> {
    let all = directive::apache(text, file)?;
    Ok(trial::pass(
        (text, name),
        all,
        |all, with| groups(all, true, with),
        says_who,
    ))
}

/// The same of a file of nginx.
///
/// # Errors
///
/// As [`directive::nginx`].
pub(super) fn of_nginx(text: &str, file: usize, name: &str) -> Result<Vec<Directive>, String> {
    let all = directive::nginx(text, file)?;
    Ok(trial::pass((text, name), all, groups_of_nginx, is_nginxs))
}

/// Whether a statement of nginx says who may come.
fn is_nginxs(it: &Directive) -> bool {
    let names = [
        "allow",
        "deny",
        "satisfy",
        "internal",
        "limit_except",
        "valid_referers",
    ];
    names.contains(&it.name.as_str()) || it.name.starts_with("auth_")
}

/// As [`groups`], for nginx.
fn groups_of_nginx(all: &[Directive], with: &mut dyn FnMut(Part<'_>)) {
    let access: Vec<&Directive> = all.iter().filter(|it| is_nginxs(it)).collect();
    // Whoever is let in alone keeps nobody out, and a front controller is no page by its own path.
    let runs = all.iter().any(|it| it.name == "fastcgi_pass");
    let says_nothing = |it: &Directive| it.name == "allow" || it.name == "internal" && runs;
    if access.iter().any(|it| !says_nothing(it) && limits(it)) {
        with(Part::Limit(&access));
    }
    // Behind a redirect of each name, as certbot writes it, nothing is asked.
    let has_condition = all.iter().any(|it| it.name == "if");
    for it in all.iter().filter(|it| !is_nginxs(it)) {
        let path = it.arguments.last().map_or("", String::as_str);
        let is_hidden = names_hidden(path) || path.starts_with("/.") || path.starts_with("^/\\.");
        let runs_none = expression(it).is_some_and(is_of_scripts) && !gives_php(it);
        if it.name == "location" && (is_hidden || runs_none) {
            with(Part::Block(it)); // hidden names and sources are never sent
            continue;
        }
        let refuses =
            it.name == "return" && it.argument(0).starts_with(['4', '5']) && !has_condition;
        if it.arguments.iter().any(|it| it == "(!-f" || it == "(!-e") {
            continue; // what is not there is nobody's
        }
        if it.is_foreign || refuses || it.name == "if" && limits(it) {
            with(Part::Limit(&[it]));
        } else {
            groups_of_nginx(&it.inside, with);
        }
    }
}

/// Calls for each limit: statements on who may come that stand together, or one other statement
/// with its conditions. The first of a group is the limit's own. `has_scripts`: they may be about
/// scripts.
fn groups(all: &[Directive], has_scripts: bool, with: &mut dyn FnMut(Part<'_>)) {
    let access: Vec<&Directive> = all.iter().filter(|it| says_who(it)).collect();
    let copies: Vec<Directive> = access.iter().map(|it| (*it).clone()).collect();
    if !is_granted(&copies) {
        with(Part::Limit(&access));
    }
    let mut conditions = Vec::new();
    for it in all {
        if it.is("RewriteCond") {
            conditions.push(it);
            continue;
        }
        let conditions = std::mem::take(&mut conditions);
        if says_who(it) {
            continue;
        }
        let named = it
            .arguments
            .last()
            .filter(|_| it.is("Files") || it.is("FilesMatch"));
        let is_match = it.is("FilesMatch") || it.arguments.len() > 1;
        if named.is_some_and(|it| is_hidden(it, is_match)) {
            with(Part::Block(it)); // hidden names are never sent
            continue;
        }
        if is_limit(it) && (has_scripts || !is_none(it)) {
            let group: Vec<_> = [it].into_iter().chain(conditions).collect();
            with(Part::Limit(&group));
        } else {
            let is_script = |named: &String| {
                let expression = named_by(it);
                named.contains("ph") || is_found(&expression, "/a.php")
            };
            let has_scripts = has_scripts && named.is_none_or(is_script);
            groups(&it.inside, has_scripts, with);
        }
    }
}

/// Whether a statement says who may come, or may say so.
fn says_who(it: &Directive) -> bool {
    let name = it.name.to_ascii_lowercase();
    !it.is_foreign && (is_access(it) || name.starts_with("auth"))
}

/// Whether a statement keeps something from clients, or scripts from running.
fn is_limit(it: &Directive) -> bool {
    let of_php = || {
        let shown = it.shown().to_ascii_lowercase();
        shown.contains("fcgi") || shown.contains("php")
    };
    let is_redirect = it.is("Redirect") || it.is("RedirectMatch");
    let is_block = is_scope(it) || !it.inside.is_empty();
    if it.is("RewriteRule") {
        return forbids(it) && !names_hidden(it.argument(0));
    }
    if it.is("RedirectMatch") && names_hidden(it.argument(1)) {
        return false;
    }
    it.is_foreign
        || !is_block
            && (is_none(it)
                || is_redirect && refusing_status(it).is_some()
                || makes_others(it) && !of_php()
                || limits(it) && !it.name.to_ascii_lowercase().starts_with("php_"))
}
