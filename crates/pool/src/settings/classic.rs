//! The keys of pools that run scripts in PHP processes with the extension.

use pronghorn_config::{Command, Table};

use super::Mode;

/// How the PHP of a classic pool is started.
#[derive(Clone, Debug)]
pub struct ClassicSettings {
    /// None is the one of `server.command`, or `php`.
    pub php: Option<Command>,
}

const KEYS: [&str; 1] = ["php"];

pub(super) fn read(t: &mut Table<'_>, mode: Mode) -> Option<ClassicSettings> {
    let message = "is of pools in `mode: classic`, and this one is in another";
    let hint = "remove it";
    let holds = mode == Mode::Classic;
    t.keys_where(holds, &KEYS, message, hint, |t| ClassicSettings {
        php: t
            .key(
                "php",
                "In `mode: classic`, the PHP that runs the scripts, and options for it; the one of `server.command` when not written, else `php`.",
            )
            .ours()
            .optional(),
    })
}

/// Whether scripts see no more of the environment than what is named for them.
pub(super) fn read_clear_env(t: &mut Table<'_>, mode: Mode) -> bool {
    let message = "is of pools that run scripts or programs, and this one runs a worker script";
    let holds = mode != Mode::Worker;
    let clear_env = t.keys_where(holds, &["clear_env"], message, "remove it", |t| {
        t.key(
            "clear_env",
            "In other modes than `worker`, whether scripts see of the environment only `server.env`, `HOME` and `USER`, as under php-fpm; php-cgi and programs also `TMPDIR`, programs `PATH`.",
        )
        .ours()
        .default(true)
    });
    clear_env.unwrap_or(true)
}
