//! The same script in every mode in which PHP answers requests.

use pronghorn_testkit::Site;

use crate::ring::extension;

/// A way to run `public/index.php`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    /// What `Pronghorn\serve()` gets, in modes with a worker.
    handler: Option<&'static str>,
    /// Keys of the pool.
    pool: &'static str,
}

impl Mode {
    const fn worker(name: &'static str, handler: &'static str, pool: &'static str) -> Self {
        Self {
            name,
            handler: Some(handler),
            pool,
        }
    }

    const fn scripts(name: &'static str, pool: &'static str) -> Self {
        Self {
            name,
            handler: None,
            pool,
        }
    }
}

const HANDLER: &str =
    "function (Pronghorn\\Request $request) { require 'public/index.php'; return ''; }";
const FRONT: &str = "function () { require 'public/index.php'; }";

pub(crate) const MODES: [Mode; 9] = [
    Mode::worker("handler", HANDLER, ""),
    Mode::worker("forked handler", HANDLER, "spawn: fork"),
    Mode::worker("front controller", FRONT, ""),
    Mode::worker("forked front controller", FRONT, "spawn: fork"),
    Mode::worker("pristine", FRONT, "spawn: fork, max_jobs: 1"),
    Mode::worker("front controller by exec, once", FRONT, "max_jobs: 1"),
    Mode::scripts("classic", "mode: classic, root: public"),
    Mode::scripts(
        "classic by exec",
        "mode: classic, root: public, spawn: exec",
    ),
    Mode::scripts("fastcgi", "mode: fastcgi, root: public"),
];

/// A site with this script, and further settings of PHP.
pub(crate) fn site(mode: Mode, script: &str, ini: &str) -> Site {
    extension();
    let worker = mode.handler.map(|handler| {
        Site::sdk_worker("").replace(
            "function (Pronghorn\\Request $request): mixed {\n\n}",
            handler,
        )
    });
    Site::new()
        .file("worker.php", &worker.unwrap_or_default())
        .file("public/index.php", script)
        .config(&format!(
            "version: '3'\nserver: {{command: php worker.php}}\nlogs: {{mode: production, level: debug}}\nhttp:\n  \
             address: '127.0.0.1:0'\n  request_id: {{}}\n  pool: {{num_workers: 1, ini: {{{ini}}}, {}}}\n",
            mode.pool
        ))
}
