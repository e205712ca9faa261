//! What `check` finds out about this machine, by the code that the start goes by. It asks PHP what it is, and starts nothing
//! else.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use pronghorn_http::settings::{DEFAULT_POOL, HttpSettings};
use pronghorn_metrics::Registry;
use pronghorn_pool::settings::Mode;
use pronghorn_pool::{Spool, Warmup};
use pronghorn_process::Spawner;
use pronghorn_workers::{PoolResources, PoolSpec, Start, Versions, look_up_user};
use tokio::runtime::Builder;

use crate::http::HTTP;
use crate::settings::{Finding, Settings};
use crate::{ROADRUNNER_VERSION, VERSION};

/// What would not be as the settings say: folders that can't be used, and classic pools whose PHP is not there or has no extension.
/// Nothing where that can't be found out, as by somebody who may not run programs as the workers' user.
pub fn look(
    settings: &Settings,
    folder: &Path,
    environment: &[(OsString, OsString)],
) -> Vec<Finding> {
    let mut findings = look_at_folders(settings, folder);
    let mut pools = settings.http.iter().flat_map(HttpSettings::running_pools);
    if !pools.any(|(_, pool)| pool.mode == Mode::Classic) {
        return findings;
    }
    if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
        let found = runtime.block_on(look_at_pools(settings, folder, environment));
        findings.extend(found.into_iter().flatten());
        // A question that was given up leaves nothing to wait for.
        runtime.shutdown_background();
    }
    findings
}

/// Those of files and scripts.
fn look_at_folders(settings: &Settings, folder: &Path) -> Vec<Finding> {
    let Some(http) = &settings.http else {
        return Vec::new();
    };
    let sites = http.running_pools().filter_map(|(name, pool)| {
        let root = &pool.site.as_ref()?.root;
        Some((of_pool(name, "root"), root))
    });
    let are_sent = http.middleware.iter().any(|name| name == "static");
    let files = http.files.iter().filter(|_| are_sent);
    let files = files.flat_map(|files| &files.roots);
    let files = files.map(|root| (path(&["http", "static"]), &root.folder));
    let mut findings = Vec::new();
    for (path, named) in sites.chain(files) {
        if let Err(error) = std::fs::read_dir(folder.join(named)) {
            findings.push(Finding {
                path,
                message: format!("names `{}`, which can't be used: {error}", named.display()),
                hint: "the server does not start without it: make it, or name another folder",
            });
        }
    }
    findings
}

async fn look_at_pools(
    settings: &Settings,
    folder: &Path,
    environment: &[(OsString, OsString)],
) -> Option<Vec<Finding>> {
    let server = &settings.server;
    let user = look_up_user(server.user.as_deref(), server.group.as_deref()).ok()?;
    let spawner = Spawner::start().ok()?;
    let spool = Arc::new(Spool::open(std::env::temp_dir(), None).ok()?);
    let mut findings = Vec::new();
    let resources = PoolResources {
        user,
        folder: folder.to_owned(),
        rpc: None,
        spawner,
        homes: Vec::new(),
        metrics: Registry::default(),
        relay: server.relay.clone(),
        listener: None,
        versions: Versions {
            roadrunner: ROADRUNNER_VERSION,
            pronghorn: VERSION,
        },
        development: false,
    };
    for (name, pool) in settings.http.as_ref()?.running_pools() {
        let spec = PoolSpec {
            name,
            settings: pool,
            warmup: Warmup::default(),
            spool: spool.clone(),
        };
        let start = Start {
            owner: HTTP,
            spec: &spec,
            server,
            environment,
            resources: &resources,
        };
        findings.extend(look_at_pool(&start).await);
    }
    Some(findings)
}

async fn look_at_pool(start: &Start<'_>) -> Option<Finding> {
    if start.spec.settings.mode != Mode::Classic {
        return None;
    }
    let launch = start.launch();
    let (what, hint) = if start.finds_php() {
        let lacking = launch.lacks_extension().await?;
        let hint = match lacking.otherwise {
            Some(_) => {
                "docs/reference/extension.md says how to get it; `mode: fastcgi` says that this is meant"
            }
            None => "docs/reference/extension.md says how to get it; or `apt install php-cgi`",
        };
        (lacking.to_string(), hint)
    } else {
        (
            format!("`{}` was not found", launch.command()),
            "install it, `apt install php-cli` for instance, or name another one by `php`",
        )
    };
    Some(Finding {
        path: of_pool(start.spec.name, "mode"),
        message: format!("is `classic`, and {what}"),
        hint,
    })
}

/// The path of a pool's key.
fn of_pool(name: &str, key: &str) -> Vec<String> {
    match name {
        DEFAULT_POOL => path(&["http", "pool", key]),
        name => path(&["http", "pools", name, key]),
    }
}

fn path(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(str::to_owned).collect()
}
