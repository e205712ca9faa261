//! The keys of pools that run scripts in PHP processes with the extension.

use std::time::Duration;

use pronghorn_config::{Choice, Command, Table};
use pronghorn_launch::{Ini, TransportChoice};

use super::{KeptSettings, Mode, SiteSettings};

/// Of pools that run any PHP program, in kept processes.
#[derive(Clone, Debug)]
pub struct ClassicSettings {
    pub kept: KeptSettings,
    pub site: SiteSettings,
    /// None is the one of `server.command`, or `php`.
    pub php: Option<Command>,
    pub spawn: SpawnChoice,
    /// Scripts see no more of the environment than what is named for them.
    pub clear_env: bool,
    /// How workers are connected.
    pub transport: TransportChoice,
    /// How long a worker looks for its next call before it sleeps.
    pub spin: Option<Duration>,
    pub ini: Ini,
}

/// How the workers of a pool come to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnChoice {
    /// Forked, unless something speaks against it.
    Auto,
    /// Each is a start of its command.
    Exec,
    /// From one process that has started PHP, or has booted the application.
    Fork,
}

impl Choice for SpawnChoice {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("exec", Self::Exec),
        ("fork", Self::Fork),
    ];
}

pub(super) fn read_php(t: &mut Table<'_>, mode: Mode) -> Option<Command> {
    let message = "is of pools in `mode: classic`, and this one is in another";
    let php = t.keys_where(mode == Mode::Classic, message, "remove it", |t| {
        t.key(
            "php",
            "The PHP that runs the scripts in `mode: classic`, and its options. By default, the \
             one in `server.command`, else `php`.",
        )
        .ours()
        .optional()
    });
    php.flatten()
}

pub(super) fn read_spawn(t: &mut Table<'_>, mode: Mode) -> SpawnChoice {
    t.key(
        "spawn",
        "How workers are created. `exec`: each worker runs its command. `fork`: one process is \
         forked, so that all workers share one OPcache. In `mode: classic`, that process is a PHP \
         that has started its engine. In `mode: worker`, it has booted the application up to its \
         first wait for a call, which needs the extension and our PHP package. `auto`: `fork` if \
         the server finds it safe and, in `mode: worker`, if the pool has more than one worker; \
         else `exec`, and a log record gives the reason.",
    )
    .ours()
    .no_effect(mode.ignores(&[Mode::FastCgi]))
    .refused(mode.without_kept())
    .default(SpawnChoice::Auto)
}

/// Keys that do not go together with forks.
pub(super) fn check_spawn(t: &mut Table<'_>, spawn: SpawnChoice, ini: &Ini) {
    if spawn == SpawnChoice::Exec || !ini.wants_jit() {
        return;
    }
    let (message, hint) = match spawn {
        SpawnChoice::Fork => (
            "switches on OPcache's JIT, which is known to crash in a cache that processes share, and `spawn` is `fork`",
            "remove one of the two",
        ),
        SpawnChoice::Auto | SpawnChoice::Exec => (
            "switches on OPcache's JIT, so workers share no OPcache: each starts PHP anew",
            "`spawn: exec` says that this is meant",
        ),
    };
    t.warn("ini", message, hint);
}

impl ClassicSettings {
    /// Keys that do not go together.
    pub(super) fn check(&self, t: &mut Table<'_>) {
        check_spawn(t, self.spawn, &self.ini);
        if self.transport == TransportChoice::Relay {
            let message =
                "is `relay`, and scripts in `mode: classic` get their calls in shared memory only";
            t.error("transport", message, "remove it");
        }
    }
}
