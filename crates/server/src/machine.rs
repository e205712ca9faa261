//! What `check` finds out about this machine, by the code that the start goes by. It asks PHP what it is, and starts nothing
//! else.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use pronghorn_config::{Listen, Severity};
use pronghorn_http::settings::{DEFAULT_POOL, HttpSettings};
use pronghorn_metrics::Registry;
use pronghorn_pool::{Spool, Warmup};
use pronghorn_process::Spawner;
use pronghorn_wire::Kind;
use pronghorn_workers::settings::{Mode, Runner};
use pronghorn_workers::{
    Launch, PoolResources, PoolSpec, Start, UserError, Versions, WorkerUser, look_up_user,
};
use tokio::runtime::Builder;

use crate::VERSION;
use crate::http::HTTP;
use crate::listening::Certificates;
use crate::server::{WORKERS_OF_ROOT, run_as_root};
use crate::settings::{Finding, Settings};

/// What of this machine is not as the settings say: users, certificates, folders, sockets, programs and scripts that are not
/// there, and classic pools whose PHP has no extension. Of the last nothing where it can't be found out, as by somebody who may
/// not run programs as the workers' user.
pub fn look(
    settings: &Settings,
    folder: &Path,
    environment: &[(OsString, OsString)],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let server = &settings.server;
    let user = match look_up_user(server.user.as_deref(), server.group.as_deref()) {
        Ok(user) => Some(user),
        Err(UserError::Unknown(error)) => {
            findings.push(missing(
                path(&["server", "user"]),
                format!("names nobody: {error}"),
                "name another one, or add it: `useradd --system --no-create-home NAME`",
            ));
            None
        }
        Err(_) => None,
    };
    if run_as_root(settings) {
        let (message, hint) = WORKERS_OF_ROOT;
        findings.push(Finding {
            severity: Severity::Warning,
            path: path(&["server", "user"]),
            message: message.to_owned(),
            hint: hint.to_owned(),
        });
    }
    let Some(http) = &settings.http else {
        return findings;
    };
    look_at_certificates(http, folder, &mut findings);
    look_at_folders(http, folder, &mut findings);
    look_at_sockets(http, folder, &mut findings);
    if let Ok(runtime) = Builder::new_current_thread().enable_all().build() {
        let found = runtime.block_on(look_at_pools(settings, folder, environment, user.as_ref()));
        findings.extend(found.into_iter().flatten());
        // A question that was given up leaves nothing to wait for.
        runtime.shutdown_background();
    }
    findings
}

/// What the server does not start without.
fn missing(path: Vec<String>, message: String, hint: impl Into<String>) -> Finding {
    Finding {
        severity: Severity::Error,
        path,
        message,
        hint: hint.into(),
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
        findings.push(missing(path(&["http", "ssl"]), message, hint));
    }
}

/// Those of files and scripts, and for bodies.
fn look_at_folders(http: &HttpSettings, folder: &Path, findings: &mut Vec<Finding>) {
    let sites = http.running_pools().filter_map(|(name, pool)| {
        let root = &pool.workers.site()?.root;
        Some((of_pool(name, "root"), root))
    });
    let are_sent = http.middleware.iter().any(|name| name == "static");
    let files = http.files.iter().filter(|_| are_sent);
    let files = files.flat_map(|files| &files.roots);
    let files = files.map(|root| (path(&["http", "static"]), &root.folder));
    let uploads = std::iter::once((path(&["http", "uploads", "dir"]), &http.uploads.dir));
    let spool = std::iter::once((path(&["http", "spool_dir"]), &http.spool_dir));
    let spool = spool.filter(|(_, spool)| **spool != http.uploads.dir);
    for (path, named) in sites.chain(files).chain(uploads).chain(spool) {
        if let Err(error) = std::fs::read_dir(folder.join(named)) {
            findings.push(missing(
                path,
                format!("names `{}`, which can't be used: {error}", named.display()),
                "the server does not start without it: create it, or name another directory",
            ));
        }
    }
}

/// Those of FastCGI servers that somebody else runs.
fn look_at_sockets(http: &HttpSettings, folder: &Path, findings: &mut Vec<Finding>) {
    for (name, pool) in http.running_pools() {
        for address in pool.workers.addresses() {
            if let Listen::Unix(socket) = address
                && let Err(error) = std::fs::metadata(folder.join(socket))
            {
                findings.push(missing(
                    of_pool(name, "fastcgi"),
                    format!("names the socket `{}`: {error}", socket.display()),
                    "start what listens there, php-fpm for instance, or name another one",
                ));
            }
        }
    }
}

/// None where it can't be found out.
async fn look_at_pools(
    settings: &Settings,
    folder: &Path,
    environment: &[(OsString, OsString)],
    user: Option<&Option<WorkerUser>>,
) -> Option<Vec<Finding>> {
    let server = &settings.server;
    let spawner = Spawner::start().ok()?;
    let spool = Arc::new(Spool::open(std::env::temp_dir(), None).ok()?);
    let mut findings = Vec::new();
    let may_ask = user.is_some();
    let resources = PoolResources {
        user: user.cloned().flatten(),
        folder: folder.to_owned(),
        variables: Vec::new(),
        spawner,
        homes: Vec::new(),
        metrics: Registry::default(),
        relay: server.relay.clone(),
        listener: None,
        versions: Versions {
            roadrunner: settings.compat.version(),
            pronghorn: VERSION,
        },
        development: false,
    };
    for (name, pool) in settings.http.as_ref()?.running_pools() {
        let spec = PoolSpec {
            name,
            settings: &pool.workers,
            kind: Kind::Http,
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
        let found = match pool.workers.mode() {
            Mode::Worker => look_at_command(&start),
            Mode::FastCgi => look_at_fastcgi(&start),
            Mode::Classic if may_ask => look_at_classic(&start).await,
            Mode::Classic | Mode::Cgi => None,
        };
        findings.extend(found);
    }
    Some(findings)
}

/// The program of a worker script, and the script.
fn look_at_command(start: &Start<'_>) -> Option<Finding> {
    let (message, hint) = start.lacks()?;
    Some(missing(of_command(start), message, hint))
}

fn of_command(start: &Start<'_>) -> Vec<String> {
    match &start.spec.settings.runner {
        Runner::Worker(worker) if worker.command.is_some() => of_pool(start.spec.name, "command"),
        _ => path(&["server", "command"]),
    }
}

fn look_at_fastcgi(start: &Start<'_>) -> Option<Finding> {
    let Launch::FastCgi(launcher) = start.launch() else {
        return None;
    };
    let program = Path::new(launcher.spec.argv.first()?);
    if program.is_file() {
        return None;
    }
    Some(missing(
        of_pool(start.spec.name, "mode"),
        format!("is `fastcgi`, and `{}` was not found", program.display()),
        "install it, `apt install php-cgi` for instance, or name another one by `command`",
    ))
}

async fn look_at_classic(start: &Start<'_>) -> Option<Finding> {
    let launch = start.launch();
    let (severity, what, hint) = if start.finds_php() {
        let lacking = launch.lacks_extension().await?;
        let (severity, hint) = match lacking.otherwise {
            Some(_) => (
                Severity::Warning,
                "docs/reference/extension.md says how to get it; `mode: fastcgi` turns this \
                 warning off",
            ),
            None => (
                Severity::Error,
                "docs/reference/extension.md says how to get it; or `apt install php-cgi`",
            ),
        };
        (severity, lacking.to_string(), hint)
    } else {
        (
            Severity::Error,
            format!("`{}` was not found", launch.command()),
            "install it, `apt install php-cli` for instance, or name another one by `php`",
        )
    };
    Some(Finding {
        severity,
        path: of_pool(start.spec.name, "mode"),
        message: format!("is `classic`, and {what}"),
        hint: hint.to_owned(),
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
