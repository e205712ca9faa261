//! How a PHP is started that serves scripts: as php's command line, which the extension takes over
//! before its first request.

use std::ffi::{OsStr, OsString};

use super::program::is_php;

/// Tells the extension to do so, and which variables scripts may see.
const ASK: &str = "PRONGHORN_CLASSIC";
/// For `ps`: the pool's name, and the number of a worker's place in it.
const POOL: &str = "PRONGHORN_POOL";
const WORKER: &str = "PRONGHORN_WORKER";
/// Between the names of variables, in which it can't be.
const BETWEEN: &str = "=";
/// What php's command line runs when nothing has taken it over.
const OTHERWISE: &str = "if (PHP_SAPI === 'cli') { fwrite(STDERR, 'This PHP has no extension `pronghorn` that serves scripts: `pronghorn extension install` builds it, and `mode: fastcgi` needs none'.PHP_EOL); exit(1); }";

/// The command of a classic pool: the PHP that is named, with its options, else the program of the
/// server's command if that is a PHP, else `php`.
pub fn classic_command(php: Option<Vec<OsString>>, of_server: Option<&OsStr>) -> Vec<OsString> {
    let mut argv = php.unwrap_or_else(|| {
        let of_server = of_server.filter(|program| is_php(program.as_ref()));
        vec![of_server.map_or_else(|| "php".into(), OsStr::to_owned)]
    });
    argv.extend(["-r", OTHERWISE].map(OsString::from));
    argv
}

/// What starts such a PHP in this pool, whose scripts see the variables with these names.
pub fn classic_variables<'a>(
    pool: &str,
    names: impl Iterator<Item = &'a str>,
) -> [(OsString, OsString); 2] {
    let names: Vec<&str> = names.collect();
    [
        (ASK.into(), names.join(BETWEEN).into()),
        (POOL.into(), pool.into()),
    ]
}

/// By which number a worker that is not forked calls itself.
pub(crate) fn classic_worker(number: usize) -> (OsString, OsString) {
    (WORKER.into(), number.to_string().into())
}
