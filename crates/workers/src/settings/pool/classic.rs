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
            "In `mode: classic`, the PHP that runs the scripts, and options for it; the one of `server.command` when not written, else `php`.",
        )
        .ours()
        .optional()
    });
    php.flatten()
}

pub(super) fn read_spawn(t: &mut Table<'_>, mode: Mode) -> SpawnChoice {
    t.key(
        "spawn",
        "How workers come to be. `fork`: from one process, so that they share one OPcache: in `mode: classic` from a PHP that has started its engine; in `mode: worker` from one that has booted the application up to its first wait for a call, with the extension and our PHP package. `exec`: each is a start of its command. `auto`: `fork` where that is safe as far as the server can tell, in `mode: worker` in pools of more than one worker; else `exec`, and a record says why.",
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
