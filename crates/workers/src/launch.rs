//! What fills the slots of a pool.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pronghorn_launch::{CommandLauncher, FastCgiLauncher, Peers, PhpError, ProgramLauncher};
use pronghorn_pool::{LaunchError, LauncherRef};
use pronghorn_process::TooLong;

/// What kept workers with the extension have, and those without it have not.
const LOST_BY_PIPES: &str = "calls cost more, and `exit` or a passed deadline ends the worker";
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

    /// The reason why the system does not start its processes: more than it takes.
    pub fn too_long(&self) -> Option<TooLong> {
        match self {
            Self::Command(launcher)
            | Self::Classic {
                command: launcher, ..
            } => TooLong::find(&launcher.spec.argv, &launcher.spec.env),
            Self::FastCgi(launcher) => TooLong::find(&launcher.spec.argv, &launcher.spec.env),
            Self::Programs(launcher) => TooLong::find(&[], &launcher.environment),
        }
    }

    /// Names that the worker's script may have for itself: those of the words that are no options,
    /// and of the files that they lead to. Which word it is, PHP and programs before it know.
    pub(crate) fn scripts(&self) -> Vec<String> {
        let Self::Command(launcher) = self else {
            return Vec::new();
        };
        script_names(&launcher.spec.cwd, &launcher.spec.argv)
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
        if launcher.php.leaves_memory_unlimited(&launcher.spec).await {
            tracing::info!(
                target: "server", pool = launcher.spec.pool,
                "workers have no memory limit: `memory_limit` is -1 for PHP on the command line, and the pool's `supervisor.max_worker_memory` is not set"
            );
        }
    }

    /// The limit of PHP's for the memory of a worker's call, in bytes, where it is known and there
    /// is one.
    pub(crate) async fn memory_limit(&self) -> Option<u64> {
        match self {
            Self::Command(command) | Self::Classic { command, .. } => {
                command.php.memory_limit(&command.spec).await
            }
            Self::FastCgi(_) | Self::Programs(_) => None,
        }
    }

    /// What starts the workers.
    ///
    /// # Errors
    ///
    /// When they can't be given what the pool needs of its PHP.
    pub(crate) async fn launcher(&self) -> Result<LauncherRef, LaunchError> {
        if let Self::Command(command) | Self::Classic { command, .. } = self {
            command.prepare().await?;
        }
        if let Some(lacking) = self.lacks_extension().await {
            if lacking.starts {
                let (pool, remedy) = (lacking.pool, &lacking.remedy);
                tracing::warn!(target: "server", pool, "{lacking}: {remedy}");
            }
            if let Self::Classic {
                otherwise: Some(otherwise),
                ..
            } = self
            {
                return Ok(otherwise.clone().into());
            }
        }
        Ok(match self {
            Self::Command(launcher)
            | Self::Classic {
                command: launcher, ..
            } => launcher.clone().into(),
            Self::FastCgi(launcher) => launcher.clone().into(),
            Self::Programs(launcher) => launcher.clone().into(),
        })
    }

    /// Names of the pool's `ini` that its PHP does not have, and all that it has. Asks PHP the
    /// first time.
    pub async fn unknown_settings(&self) -> Option<(Vec<String>, &str)> {
        let command = match self {
            Self::Command(command) | Self::Classic { command, .. } => command,
            Self::FastCgi(_) | Self::Programs(_) => return None,
        };
        let unknown = command.php.unknown_settings(&command.spec).await;
        let about = command.php.about(&command.spec).await?;
        Some((unknown, &about.settings))
    }

    /// What keeps its workers from what they need of their PHP.
    pub async fn wrong_php(&self) -> Option<PhpError> {
        match self {
            Self::Command(command) | Self::Classic { command, .. } => {
                command.php.wrong(&command.spec).await
            }
            Self::FastCgi(_) | Self::Programs(_) => None,
        }
    }

    /// Of a pool whose PHP could use the extension, has none and gets none. Asks PHP the first
    /// time.
    pub async fn lacks_extension(&self) -> Option<Lacking<'_>> {
        let (command, lost) = match self {
            Self::Command(command) => (command, Lost::Ring),
            Self::Classic { command, otherwise } => {
                let lost = otherwise.as_deref().map_or(Lost::All, Lost::ByFastCgi);
                (command, lost)
            }
            Self::FastCgi(_) | Self::Programs(_) => return None,
        };
        let php = command.php.lacks_extension(&command.spec).await?;
        Some(Lacking {
            pool: &command.spec.pool,
            php: &command.spec.command,
            version: php.version,
            starts: !matches!(lost, Lost::All),
            lost,
            remedy: format!("`{}` builds it", php.install),
        })
    }
}

/// A pool without the extension, in words.
#[derive(Debug)]
pub struct Lacking<'a> {
    pool: &'a str,
    php: &'a str,
    version: String,
    lost: Lost<'a>,
    /// Whether the pool starts all the same.
    pub starts: bool,
    /// What to type.
    pub remedy: String,
}

#[derive(Debug)]
enum Lost<'a> {
    /// Kept workers use pipes.
    Ring,
    /// Scripts run by something else.
    ByFastCgi(&'a FastCgiLauncher),
    /// Nothing runs scripts.
    All,
}

impl fmt::Display for Lacking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { php, version, .. } = self;
        let otherwise = match self.lost {
            Lost::Ring => {
                return write!(
                    f,
                    "PHP {version} has no extension `pronghorn`, so workers use pipes: {LOST_BY_PIPES}"
                );
            }
            Lost::All => {
                return write!(
                    f,
                    "`{php}` has no extension `pronghorn`, and neither php-cgi nor php-fpm is \
                     there to run scripts"
                );
            }
            Lost::ByFastCgi(otherwise) => otherwise,
        };
        let lost = match otherwise.peers {
            Peers::Fpm(_) => LOST_BY_FPM,
            Peers::Own | Peers::Addresses(_) => LOST_BY_CGI,
        };
        let name = &otherwise.spec.command;
        write!(
            f,
            "`{php}` has no extension `pronghorn`, so scripts run by FastCGI (`{name}`): calls \
             cost more, and {lost}"
        )
    }
}

fn script_names(cwd: &Path, argv: &[OsString]) -> Vec<String> {
    let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
    let mut names = Vec::new();
    for argument in argv.iter().skip(1).filter_map(|word| word.to_str()) {
        // `sh -c 'exec php worker.php'` is one argument.
        for word in argument.split_whitespace().chain([argument]) {
            if word.starts_with('-') || word.contains('=') {
                continue;
            }
            let path = cwd.join(word);
            names.extend(name(&path));
            names.extend(path.canonicalize().ok().and_then(|path| name(&path)));
        }
    }
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_a_command_is_among_its_names() {
        let directory =
            std::env::temp_dir().join(format!("pronghorn-names-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("real.php"), "").unwrap();
        _ = std::os::unix::fs::symlink("real.php", directory.join("link.php"));
        for (argv, names) in [
            (
                &["php", "-d", "memory_limit=1G", "artisan"][..],
                &["artisan"][..],
            ),
            (&["php", "link.php"], &["link.php", "real.php"]),
            (
                &["sh", "-c", "exec php bin/w.php"],
                &["exec", "php", "w.php"],
            ),
            (&["/srv/app/worker"], &[]),
        ] {
            let argv: Vec<OsString> = argv.iter().map(Into::into).collect();
            assert_eq!(script_names(&directory, &argv), names);
        }
        assert!(
            script_names(&directory, &["php".into(), "my app.php".into()])
                .contains(&"my app.php".to_owned())
        );
        std::fs::remove_dir_all(directory).unwrap();
    }
}
