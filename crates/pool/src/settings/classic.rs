//! The keys of pools that run scripts in PHP processes with the extension.

use pronghorn_config::{Choice, Command, Table};

use super::Mode;

/// How the PHP of a classic pool is started.
#[derive(Clone, Debug)]
pub struct ClassicSettings {
    /// None is the one of `server.command`, or `php`.
    pub php: Option<Command>,
}

/// How the workers of a pool come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnChoice {
    /// Forked in a pool that runs scripts, unless something speaks against it.
    Auto,
    /// Each is a start of its command.
    Exec,
    /// From one process that has started PHP.
    Fork,
}

impl Choice for SpawnChoice {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("exec", Self::Exec),
        ("fork", Self::Fork),
    ];
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

pub(super) fn read_spawn(t: &mut Table<'_>, mode: Mode) -> SpawnChoice {
    let spawn = t
        .key(
            "spawn",
            "How workers come to be. `fork`: from one PHP that has started its engine, so that they share one OPcache; in `mode: classic`. `exec`: each is a start of its command. `auto`: `fork` in `mode: classic` if OPcache's JIT is off, else `exec`.",
        )
        .ours()
        .default(SpawnChoice::Auto);
    if spawn == SpawnChoice::Fork && mode != Mode::Classic {
        t.error(
            "spawn",
            "is `fork`, which is for scripts in `mode: classic`, and this pool is in another",
            "remove it: workers of this pool are started one by one",
        );
    }
    spawn
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
