//! The keys of pools whose scripts run by FastCGI.

use pronghorn_config::{Listen, Table};

use super::Mode;

/// Each is tried when those before it do not answer.
const MOST_ADDRESSES: usize = 64;

/// Who answers, where it is not php-cgi or the pool's command.
#[derive(Clone, Debug, Default)]
pub struct FastCgiSettings {
    /// FastCGI servers that somebody else runs.
    pub addresses: Vec<Listen>,
    /// A php-fpm to be run, by name or path.
    pub php_fpm: Option<String>,
}

pub(super) fn read(t: &mut Table<'_>, mode: Mode) -> FastCgiSettings {
    let message = "is of pools in `mode: fastcgi`, and this one is in another";
    let holds = mode == Mode::FastCgi;
    let settings = t.keys_where(holds, &["fastcgi"], message, "remove it", |t| {
        t.section_with(
            "fastcgi",
            "Who runs the scripts of a pool in `mode: fastcgi`. When nothing is written: the pool's `command`, a program that \
             takes a listening socket as its standard input; else php-cgi, a process for each worker; else php-fpm.",
            read_section,
        )
    });
    let settings = settings.unwrap_or_default();
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

fn read_section(t: &mut Table<'_>) -> FastCgiSettings {
    t.ours();
    let addresses: Vec<Listen> = t
        .key(
            "address",
            "Where FastCGI servers listen that do the same, php-fpm for instance. Workers are shared out among them, and go \
             to the next one when theirs does not answer.",
        )
        .default(Vec::new());
    if addresses.len() > MOST_ADDRESSES {
        let message = format!(
            "has {} addresses; at most {MOST_ADDRESSES} are taken",
            addresses.len()
        );
        t.error("address", &message, "put a balancer before them");
    }
    FastCgiSettings {
        addresses,
        php_fpm: t
            .key(
                "php_fpm",
                "A php-fpm to run in place of php-cgi, by its name or path: its workers share one OPcache, and none of them can \
                 be stopped at a deadline.",
            )
            .optional(),
    }
}
