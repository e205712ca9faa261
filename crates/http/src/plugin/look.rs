//! What can be said of the settings before a start: with other sections, and on this machine.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use pronghorn_base::{Trusted, Untrusted, begin_in, with_causes};
use pronghorn_config::{Listen, Table};
use pronghorn_plugin_api::Finding;
use pronghorn_workers::ServerSettings;

use super::configured;
use super::listening::{Certificates, access};
use crate::basic_auth;
use crate::middleware::error_pages;
use crate::settings::middleware::Middleware;
use crate::settings::{DEFAULT_POOL, HttpSettings};

const NOT_STARTED: &str = "the server does not start with it";

/// There is no command for all pools, so each that runs needs one.
pub(super) fn check_commands(t: &mut Table<'_>, http: &HttpSettings, server: &ServerSettings) {
    const SERVER: &str = "for example `command: php worker.php` in the section `server`";
    for (name, pool) in http.running_pools() {
        if !configured(name, pool).lacks_command(server) {
            continue;
        }
        let (message, hint) = match name {
            DEFAULT_POOL if http.routes.is_empty() => (
                "has no workers: neither `server.command` nor `http.pool.command` is set".to_owned(),
                SERVER.to_owned(),
            ),
            DEFAULT_POOL => (
                "has no workers for requests that match no route: neither `server.command` nor `http.pool.command` is set"
                    .to_owned(),
                format!("{SERVER}, or a last route for them that has a `pool` and nothing else"),
            ),
            name => (
                format!("has no workers for pool `{name}`: neither `server.command` nor `http.pools.{name}.command` is set"),
                format!("for example `command: php {name}.php` in `http.pools.{name}`"),
            ),
        };
        t.error("http", &message, &hint);
    }
}

/// Requests are traced by a section of its own, whatever the list says.
pub(super) fn check_otel(t: &mut Table<'_>, http: &HttpSettings) {
    let listed = http.middleware.iter();
    let mut listed = listed.filter_map(|name| Middleware::by_name(name));
    if listed.any(|name| name == Middleware::Otel) && !t.is_written("otel") {
        t.warn(
            "http",
            "lists `otel` in `middleware`, and there is no section `otel`: nothing is traced",
            "for example `otel: {insecure: true, endpoint: 127.0.0.1:4318}`, or take it out of the list",
        );
    }
}

/// A rule of `http.rewrite` may open what a route closes.
pub(super) fn check_rewrites(t: &mut Table<'_>, http: &HttpSettings) {
    const HINT: &str = "write `unless_refused: true` in the rule, and the route answers; or \
                        `unless_refused: false` where the rule may open it";
    for opened in http.opened_paths() {
        let message = format!(
            "opens `{}`, which `http.routes[{}]` closes: routes see the new path, `{}`",
            opened.path, opened.route, opened.target
        );
        let rule = format!("rewrite[{}]", opened.rule);
        t.warn_below(&["http", &rule], &message, HINT);
    }
}

/// What of this machine is not as the settings say.
pub(super) fn look(http: &HttpSettings, directory: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    look_at_certificates(http, directory, &mut findings);
    look_at_folders(http, directory, &mut findings);
    look_at_sockets(http, directory, &mut findings);
    findings.extend(basic_auth::look(http, directory));
    let pages = http.error_pages.iter();
    let mut pages = pages.filter(|_| http.middleware.iter().any(|name| name == "error_pages"));
    let unusable = pages.find_map(|pages| error_pages::judge(pages, directory));
    findings.extend(unusable.map(|unusable| unusable.finding()));
    findings
}

/// Owners that nobody knows, and what lies where a socket will be.
fn look_at_sockets(http: &HttpSettings, directory: &Path, findings: &mut Vec<Finding>) {
    const KEY: &str = "http.listen";
    for listener in http.listeners() {
        let Some(Listen::Unix(named)) = &listener.at else {
            continue;
        };
        if let Err(error) = access(&listener) {
            let message = format!("can't be used: {}", with_causes(&error));
            findings.push(Finding::missing(KEY, message, NOT_STARTED));
        }
        let there = std::fs::symlink_metadata(begin_in(directory, named));
        if there.is_ok_and(|there| !there.file_type().is_socket()) {
            findings.push(Finding::missing(
                KEY,
                format!(
                    "names `{}`, which is there, and is no socket",
                    named.display()
                ),
                "the server removes no file of others: name another place, or remove it",
            ));
        }
    }
}

fn look_at_certificates(http: &HttpSettings, folder: &Path, findings: &mut Vec<Finding>) {
    for error in Certificates::judge(http, folder) {
        let said = error.to_string();
        let (message, hint) = said.split_once("\nhint: ").unwrap_or((
            &said,
            "the server does not start without it: create it, or name another file",
        ));
        let message = format!("can't be used: {message}");
        findings.push(Finding::missing("http.ssl", message, hint));
    }
}

/// Those of files, and for bodies.
fn look_at_folders(http: &HttpSettings, folder: &Path, findings: &mut Vec<Finding>) {
    let are_sent = http.middleware.iter().any(|name| name == "static");
    let files = http.files.iter().filter(|_| are_sent);
    let files = files.flat_map(|files| &files.roots);
    let files = files.map(|root| ("http.static", &root.folder));
    let uploads = std::iter::once(("http.uploads.dir", &http.uploads.dir));
    let spool = std::iter::once(("http.spool_dir", &http.spool_dir));
    let spool = spool.filter(|(_, spool)| **spool != http.uploads.dir);
    let all = files.chain(uploads.clone()).chain(spool.clone());
    findings.extend(all.filter_map(|(key, named)| Finding::of_folder(key, named, folder)));
    for (key, named) in uploads.chain(spool) {
        let found = Trusted::links_of_server().directory(&begin_in(folder, named));
        if let Err(error) = found
            && Untrusted::is(&error)
        {
            findings.push(Finding::missing(
                key,
                format!("names `{}`, which can't be used: {error}", named.display()),
                NOT_STARTED,
            ));
        }
    }
}
