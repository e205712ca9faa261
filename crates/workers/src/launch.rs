//! What fills the slots of a pool.

use std::fmt;
use std::sync::Arc;

use pronghorn_launch::{CommandLauncher, FastCgiLauncher, Peers, ProgramLauncher};
use pronghorn_pool::LauncherRef;

/// What a classic pool has, and one by FastCGI has not.
const LOST_BY_CGI: &str = "each process has an OPcache of its own and ends with a call that takes too long, without a trace of where it was";
const LOST_BY_FPM: &str = "a call that takes too long runs on, and the death of its process is not told from a broken connection";

/// How the slots of a pool are filled.
#[derive(Clone, Debug)]
pub enum Launch {
    Command(Arc<CommandLauncher>),
    /// By the extension; by FastCGI where the PHP has none and something speaks that.
    Classic {
        command: Arc<CommandLauncher>,
        otherwise: Option<Arc<FastCgiLauncher>>,
    },
    FastCgi(Arc<FastCgiLauncher>),
    Programs(Arc<ProgramLauncher>),
}

impl Launch {
    pub fn command(&self) -> &str {
        match self {
            Self::Command(launcher)
            | Self::Classic {
                command: launcher, ..
            } => &launcher.spec.command,
            Self::FastCgi(launcher) => &launcher.spec.command,
            Self::Programs(_) => "programs",
        }
    }

    /// A leak in a worker without any limit ends with the machine's memory.
    pub(crate) async fn warn_of_unlimited_memory(&self) {
        let (Self::Command(launcher)
        | Self::Classic {
            command: launcher, ..
        }) = self
        else {
            return;
        };
        let about = launcher.php.about(&launcher.spec).await;
        if about.is_some_and(|about| about.memory_limit == "-1") {
            tracing::info!(
                target: "server", pool = launcher.spec.pool,
                "workers have no memory limit: `memory_limit` is -1 for PHP on the command line, and the pool's `supervisor.max_worker_memory` is not set"
            );
        }
    }

    pub(crate) async fn launcher(&self) -> LauncherRef {
        if let Some(lacking) = self.lacks_extension().await
            && let Some(otherwise) = lacking.otherwise
        {
            tracing::warn!(target: "server", pool = otherwise.spec.pool, "{lacking}");
            return otherwise.clone().into();
        }
        match self {
            Self::Command(launcher)
            | Self::Classic {
                command: launcher, ..
            } => launcher.clone().into(),
            Self::FastCgi(launcher) => launcher.clone().into(),
            Self::Programs(launcher) => launcher.clone().into(),
        }
    }

    /// Of a classic pool whose PHP says that it has no extension, and gets none. Asks PHP the first
    /// time.
    pub async fn lacks_extension(&self) -> Option<Lacking<'_>> {
        match self {
            Self::Classic { command, otherwise } => {
                let lacks = command.php.lacks_extension(&command.spec).await;
                lacks.then_some(Lacking {
                    php: &command.spec.command,
                    otherwise: otherwise.as_ref(),
                })
            }
            Self::Command(_) | Self::FastCgi(_) | Self::Programs(_) => None,
        }
    }
}

/// A classic pool without the extension, in words.
#[derive(Debug)]
pub struct Lacking<'a> {
    php: &'a str,
    /// What it becomes; None: it does not start.
    pub otherwise: Option<&'a Arc<FastCgiLauncher>>,
}

impl fmt::Display for Lacking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let php = self.php;
        write!(f, "`{php}` has no extension `pronghorn`")?;
        let Some(otherwise) = self.otherwise else {
            return f.write_str(", and neither php-cgi nor php-fpm is there to run scripts");
        };
        let lost = match otherwise.peers {
            Peers::Fpm(_) => LOST_BY_FPM,
            Peers::Own | Peers::Addresses(_) => LOST_BY_CGI,
        };
        let name = &otherwise.spec.command;
        write!(
            f,
            ", so scripts run by FastCGI (`{name}`): calls cost more, and {lost}"
        )
    }
}
