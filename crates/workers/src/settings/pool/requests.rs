//! The keys that only pools for HTTP requests have, beside their runners.

use pronghorn_config::{Section, Table};

use super::{Calls, Mode, PoolSettings, RequestBody, Retry};

/// Each is answered by every new worker: a reload with more takes too long.
const MOST_WARMUPS: usize = 16;
/// As long as a request's head may be by default is longer than anybody writes.
const LONGEST_TARGET: usize = 8192;

/// A pool whose calls are HTTP requests.
#[derive(Clone, Debug)]
pub struct HttpPoolSettings {
    pub workers: PoolSettings,
    /// Paths that a worker answers before it gets calls.
    pub warmup: Vec<String>,
    /// Which calls may run again after their worker died.
    pub retry: Retry,
    /// When a worker gets its request's body.
    pub request_body: RequestBody,
}

impl Section for HttpPoolSettings {
    fn read(t: &mut Table<'_>) -> Self {
        super::read(t, Calls::Requests)
    }
}

/// `elsewhere`: who answers is not this server's.
pub(super) fn read_warmup(t: &mut Table<'_>, mode: Mode, elsewhere: bool) -> Vec<String> {
    let elsewhere = elsewhere.then(|| {
        "has no effect: the processes behind `fastcgi.address` are not this server's".to_owned()
    });
    let targets: Vec<String> = t
        .key(
            "warmup",
            "Paths, such as `/`, that every new worker must answer before it gets requests from \
             clients, within `boot_timeout`. With `spawn: fork`, only the process that is forked \
             answers them, once. A worker whose answer has status 5xx counts as failed, and a \
             reload is rolled back. In pools with a `root`, the paths are below the root.",
        )
        .ours()
        .no_effect(elsewhere)
        .refused(mode.without_kept())
        .default(Vec::new());
    if targets.len() > MOST_WARMUPS {
        t.error(
            "warmup",
            &format!(
                "has {} paths; at most {MOST_WARMUPS} are taken",
                targets.len()
            ),
            "name those that load the most code",
        );
    }
    let usable = |target: &&String| {
        let graphic = target
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#');
        target.starts_with('/') && graphic && target.len() <= LONGEST_TARGET
    };
    if let Some(wrong) = targets.iter().find(|target| !usable(target)) {
        t.error(
            "warmup",
            &format!(
                "has `{}`, which is no path of a request",
                wrong.escape_debug()
            ),
            "write a path as in a request, `/health?deep=1` for instance",
        );
    }
    targets
}

pub(super) fn read_retry(t: &mut Table<'_>) -> Retry {
    t.key(
        "retry",
        "Which calls run again if their worker dies before it replies. `safe`: GET, HEAD, OPTIONS \
         and TRACE. `idempotent`: also PUT and DELETE.",
    )
    .ours()
    .default(Retry::Safe)
}

pub(super) fn read_body(t: &mut Table<'_>, mode: Mode) -> RequestBody {
    let of_scripts = (
        "is `stream`, and PHP reads a body before a script in `mode: classic` begins",
        "remove it",
    );
    t.key(
        "request_body",
        "When a worker gets a request. `buffer`: when the whole body has arrived. `stream`: at \
         once. The worker reads the body while it arrives, so a slow client occupies the worker; \
         forms are still buffered. `stream` needs the package `pronghorn/worker`.",
    )
    .ours()
    .no_effect(mode.ignores(&[Mode::FastCgi]))
    .refused(match mode {
        Mode::Classic => Some(of_scripts),
        Mode::Worker | Mode::FastCgi | Mode::Cgi => mode.without_kept(),
    })
    .default(RequestBody::Buffer)
}
