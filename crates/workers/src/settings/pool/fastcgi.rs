//! The keys of pools whose scripts run by FastCGI.

use pronghorn_config::{Command, Listen, Table};
use pronghorn_launch::Ini;

use super::{KeptSettings, Mode, SiteSettings};

/// Each is tried when those before it do not answer.
const MOST_ADDRESSES: usize = 64;

/// Of pools whose scripts run by FastCGI.
#[derive(Clone, Debug)]
pub struct FastCgiSettings {
    pub kept: KeptSettings,
    pub site: SiteSettings,
    /// Scripts see no more of the environment than what is named for them.
    pub clear_env: bool,
    pub peer: FastCgiPeer,
    pub ini: Ini,
}

/// What runs the scripts.
#[derive(Clone, Debug)]
pub enum FastCgiPeer {
    /// FastCGI servers that somebody else runs.
    Addresses(Vec<Listen>),
    /// A program that takes a listening socket as its standard input.
    Command(Command),
    /// A php-fpm to be run, by name or path.
    PhpFpm(String),
    /// php-cgi, else php-fpm: what is there.
    Found,
}

impl FastCgiPeer {
    pub(super) fn addresses(&self) -> &[Listen] {
        match self {
            Self::Addresses(addresses) => addresses,
            Self::Command(_) | Self::PhpFpm(_) | Self::Found => &[],
        }
    }
}

/// The section `fastcgi`.
#[derive(Clone, Debug, Default)]
pub(super) struct FastCgiKeys {
    addresses: Vec<Listen>,
    php_fpm: Option<String>,
}

pub(super) fn read(t: &mut Table<'_>, mode: Mode) -> FastCgiKeys {
    let message = "is of pools in `mode: fastcgi`, and this one is in another";
    let holds = mode == Mode::FastCgi;
    let settings = t.keys_where(holds, message, "remove it", |t| {
        t.section_with(
            "fastcgi",
            "What runs the scripts of a pool in `mode: fastcgi`. By default, it is the pool's \
             `command`, a program that gets a listening socket as its standard input; else \
             php-cgi, with one process for each worker; else php-fpm.",
            read_section,
        )
    });
    let settings = settings.unwrap_or_default();
    if holds && t.is_written("command") && settings.php_fpm.is_some() {
        t.error(
            "fastcgi.php_fpm",
            "names a php-fpm to run, and the pool's `command` another program",
            "keep one of them",
        );
    }
    let others = t.is_written("command") || settings.php_fpm.is_some();
    if holds && !settings.addresses.is_empty() && others {
        t.error(
            "fastcgi",
            "says where FastCGI servers are, and what to run as one as well",
            "keep `address`, or `command` or `php_fpm`",
        );
    }
    settings
}

fn read_section(t: &mut Table<'_>) -> FastCgiKeys {
    t.ours();
    let addresses: Vec<Listen> = t
        .key(
            "address",
            "Addresses of FastCGI servers, such as php-fpm, that run the scripts. Workers are \
             distributed among them. A worker whose server does not answer uses the next one.",
        )
        .default(Vec::new());
    if addresses.len() > MOST_ADDRESSES {
        let message = format!(
            "has {} addresses; at most {MOST_ADDRESSES} are taken",
            addresses.len()
        );
        t.error("address", &message, "put a balancer before them");
    }
    FastCgiKeys {
        addresses,
        php_fpm: t
            .key(
                "php_fpm",
                "The name or path of a php-fpm to run instead of php-cgi. Its workers share one \
                 OPcache, but can't be stopped at a deadline.",
            )
            .optional(),
    }
}

impl FastCgiKeys {
    /// Whether somebody else runs what answers.
    pub(super) fn is_elsewhere(&self) -> bool {
        !self.addresses.is_empty()
    }

    pub(super) fn peer(self, command: Option<Command>) -> FastCgiPeer {
        match (self.addresses, command, self.php_fpm) {
            (addresses, ..) if !addresses.is_empty() => FastCgiPeer::Addresses(addresses),
            (_, Some(command), _) => FastCgiPeer::Command(command),
            (_, None, Some(php_fpm)) => FastCgiPeer::PhpFpm(php_fpm),
            (_, None, None) => FastCgiPeer::Found,
        }
    }
}

impl FastCgiSettings {
    /// Keys that come to nothing because of who answers.
    pub(super) fn check(&self, t: &mut Table<'_>) {
        let (no_ini, no_memory) = match &self.peer {
            FastCgiPeer::Addresses(_) => (true, true),
            FastCgiPeer::Command(_) => (true, false),
            FastCgiPeer::PhpFpm(_) => (false, true),
            FastCgiPeer::Found => (false, false),
        };
        if no_ini && !self.ini.written.is_empty() {
            let message = "has no effect: it is for a PHP that the server finds and starts";
            t.error(
                "ini",
                message,
                "put it into the php.ini of what runs there, and remove it here",
            );
        }
        if !no_ini && self.ini.has_sessions() {
            let message = "has `session.save_handler: pronghorn`, and php-cgi and php-fpm have no such handler: \
                           no session would start";
            let hint = "`mode: classic` has it; or name another handler, `files` for instance";
            t.error("ini", message, hint);
        }
        if no_memory && self.kept.max_worker_memory.is_some() {
            let message = "has a `max_worker_memory`, and what processes of php-fpm or at an \
                           address take is not looked at";
            let hint =
                "remove it; `max_jobs` replaces the processes of a php-fpm that the server runs";
            t.warn("supervisor", message, hint);
        }
    }
}
