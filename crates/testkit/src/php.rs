//! PHP as tests run it: with the extensions of its own sources, whatever else a machine has.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::LazyLock;

use crate::site::repository;

/// The variable that names the directories of settings beside `php.ini`.
pub(crate) const SCAN: &str = "PHP_INI_SCAN_DIR";

/// The environment wins where it has the variable, as under `make test`.
static CONFIGURATION: LazyLock<String> = LazyLock::new(|| {
    std::env::var(SCAN).unwrap_or_else(|_| {
        let script = repository().join("scripts/php-configuration");
        let made = Command::new(script).output().expect("the script is there");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "scripts/php-configuration: {said}");
        let path = String::from_utf8(made.stdout).expect("a path");
        path.trim_end().to_owned()
    })
});

/// The directory in which PHP finds its extensions.
pub fn php_configuration() -> &'static str {
    &CONFIGURATION
}

/// A program that is PHP, or runs it.
pub fn php_command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env(SCAN, php_configuration());
    command
}
