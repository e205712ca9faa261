//! Paths that `.htaccess` files below the roots of a configuration close, and that it leaves open.

use std::path::Path;

use pronghorn_config::{Effective, Loaded, Severity};
use pronghorn_convert::Closed;
use pronghorn_http::routes::PathPattern;
use pronghorn_plugin_api::Finding;
use pronghorn_server::settings::Settings;

/// Files that are named in one finding.
const MOST_NAMED: usize = 5;

pub(crate) fn findings(settings: &Settings, loaded: &Loaded, folder: &Path) -> Vec<Finding> {
    // Nobody is shown this.
    let json = loaded.to_json(&Effective::default());
    let refused = of_routes(&json, |it| !it["refuse"].is_null());
    let sends_none = of_routes(&json, |it| {
        !it["refuse"].is_null() || it["scripts"] == "front"
    });
    let pools = settings.pools().filter(|(service, _)| *service == "http");
    let found = pools.filter_map(|(_, pool)| {
        let site = pool.settings.site()?;
        let closed = Closed::below(&folder.join(&site.root));
        let is_forbidden = |path: &str| {
            let below = path.trim_end_matches("/*").trim_matches('/');
            site.forbid.iter().any(|it| it.contains('/') && it.trim_matches('/') == below)
        };
        let is_closed = |path: &str| {
            is_forbidden(path) || refused.iter().any(|(written, it)| gets(written, it, path))
        };
        let runs_nothing = |path: &String| site.no_scripts.iter().any(|it| it.trim_matches('/') == path);
        let is_sent =
            |path: &&String| !sends_none.iter().any(|(written, it)| gets(written, it, path));
        let routes = closed.routes.iter();
        let open = routes.filter(|(path, _)| !is_closed(path)).map(|(path, _)| path);
        let open: Vec<&String> = open
            .chain(closed.front.iter().filter(is_sent))
            .chain(closed.no_scripts.iter().filter(|it| !runs_nothing(it)))
            .collect();
        let (first, others) = open.split_at(open.len().min(MOST_NAMED));
        let first = first.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ");
        let more = match others.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        (!open.is_empty()).then(|| Finding {
            severity: Severity::Warning,
            key: format!("{}.root", pool.section),
            message: format!(
                "has `.htaccess` files, which are not read: they close {first}{more}, which are open here"
            ),
            hint: "write a route for each in `http.routes`, `{path: /data/*, refuse: 403}` for \
                   instance, or `no_scripts` where they turn PHP off"
                .to_owned(),
        })
    });
    found.collect()
}

/// Patterns of these routes, as they are written.
fn of_routes(
    json: &str,
    is_one: impl Fn(&serde_json::Value) -> bool,
) -> Vec<(String, PathPattern)> {
    let json: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let routes = json["http"]["routes"].as_array();
    let all = routes.into_iter().flatten().filter(|it| is_one(it));
    let paths = all.flat_map(|route| match &route["path"] {
        serde_json::Value::Array(all) => all.clone(),
        // All paths, if nothing else limits it.
        serde_json::Value::Null if is_for_all(route) => vec!["/*".into()],
        one => vec![one.clone()],
    });
    let written = paths.filter_map(|path| path.as_str().map(str::to_owned));
    written
        .filter_map(|written| {
            let pattern = PathPattern::parse(&written).ok()?;
            Some((written, pattern))
        })
        .collect()
}

/// Whether a route has no conditions.
fn is_for_all(route: &serde_json::Value) -> bool {
    [
        "host",
        "header",
        "method",
        "not_method",
        "address",
        "not_address",
    ]
    .iter()
    .all(|name| route[*name].is_null())
}

/// Whether a route's pattern is the same as another one, or gets what is below that.
fn gets(written: &str, pattern: &PathPattern, path: &str) -> bool {
    match path.strip_prefix('~') {
        Some(expression) => written.strip_prefix('~').map(str::trim) == Some(expression.trim()),
        None => pattern.gets(&path.replace("/*", "/any/file")),
    }
}
