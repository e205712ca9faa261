//! PHP's built-in server.

use rustix::process::Signal;

use super::{Adapter, Kind, Place};
use crate::error::BenchError;
use crate::program::Argv;
use crate::site::find;

pub(crate) struct CliServer;

impl Adapter for CliServer {
    fn name(&self) -> &'static str {
        "php-s"
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    /// At others it leaves its workers behind.
    fn stop_signal(&self) -> Signal {
        Signal::INT
    }

    fn packages(&self) -> &'static str {
        "php-cli"
    }

    fn programs(&self, place: &Place<'_>) -> Result<Vec<Argv>, BenchError> {
        let script = place.script("public/index.php")?;
        // `env` sets the number of processes, which has no option; below two it stays one process.
        // -q: no line per request.
        let arguments = [
            format!("PHP_CLI_SERVER_WORKERS={}", place.workers()).into(),
            find("php", "php-cli")?,
            "-q".into(),
            "-c".into(),
            place.php_ini().into(),
            "-S".into(),
            place.address.to_string().into(),
            "-t".into(),
            script.with_file_name("").into(),
        ];
        Ok(vec![Argv::new(find("env", "coreutils")?, arguments)])
    }
}
