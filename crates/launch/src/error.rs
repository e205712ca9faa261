//! Why a worker did not come up, told to the one who has to mend it.

use std::error::Error;
use std::fmt;
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pronghorn_pool::transport::LaunchError;
use pronghorn_process::{Exit, ForkError, SpawnError};
use pronghorn_wire::Kind;

use crate::output::Output;
use crate::php::{PhpError, SHORTER};
use crate::spec::LaunchSpec;

/// A worker that was started, or was to be, and is not up.
#[derive(Debug)]
pub(crate) struct BootError {
    pub(crate) pool: String,
    /// As the operator wrote it.
    pub(crate) command: String,
    pub(crate) cwd: PathBuf,
    pub(crate) user: Option<String>,
    pub(crate) cause: BootCause,
    /// The socket of `server.relay`, where workers of other packages were to connect.
    pub(crate) relay: Option<String>,
    /// The kind of its calls, where it was started for calls.
    pub(crate) kind: Option<Kind>,
    /// What it printed on stdout and stderr until then.
    pub(crate) transcript: String,
}

#[derive(Debug)]
pub(crate) enum BootCause {
    /// The operator's: wrong path, no permission.
    Spawn(SpawnError),
    /// The application's: it ran, said something and left.
    Exited(Exit),
    /// The application's: it runs and doesn't announce itself.
    TimedOut {
        after: Duration,
        /// Processes that announced themselves meanwhile and were not started as workers.
        strangers: Vec<u32>,
    },
    /// It announced itself as something that this server can't talk to.
    Protocol(String),
    /// The application's: it failed a call of `pool.warmup`, and how.
    WarmUp(String),
    /// The zygote's that its workers are forked from.
    NotForked(NotForked),
    /// The operator's: the workers would lack what the pool needs.
    Php(PhpError),
    /// The server's: no descriptors, no memory.
    System(std::io::Error),
}

/// Why a zygote gave no worker.
#[derive(Debug)]
pub(crate) enum NotForked {
    TimedOut(Duration),
    Ended(Exit),
    Failed(ForkError),
}

impl fmt::Display for NotForked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(after) => write!(f, "it did not answer within {after:?}"),
            Self::Ended(exit) => write!(f, "it has ended ({exit})"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for BootCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spawn(error) => {
                write!(f, "{error}")?;
                error
                    .source()
                    .map_or(Ok(()), |source| write!(f, ": {source}"))
            }
            Self::Exited(exit) => write!(f, "worker ended before it was ready ({exit})"),
            Self::TimedOut { after, .. } => {
                write!(f, "worker did not announce itself within {after:?}")
            }
            Self::Protocol(what) => write!(f, "worker cannot be used: {what}"),
            Self::WarmUp(how) => write!(f, "worker failed its warm-up: {how}"),
            Self::NotForked(why) => write!(f, "the zygote gave no worker: {why}"),
            Self::Php(error) => write!(f, "no worker is started: {error}"),
            Self::System(error) => write!(f, "worker cannot be connected: {error}"),
        }
    }
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool `{}`: {}", self.pool, self.cause)
    }
}

impl Error for BootError {}

impl From<BootError> for LaunchError {
    fn from(error: BootError) -> Self {
        Self::new(error.to_string(), error.report())
    }
}

impl LaunchSpec {
    /// No worker was started for want of something.
    pub(crate) fn without(&self, error: PhpError) -> BootError {
        let transcript = error.said().to_owned();
        BootError {
            transcript,
            ..self.failed(BootCause::Php(error), None)
        }
    }

    pub(crate) fn failed(&self, cause: BootCause, output: Option<&Output>) -> BootError {
        BootError {
            pool: self.pool.clone(),
            command: self.command.clone(),
            cwd: self.cwd.clone(),
            user: self.user.as_ref().map(|(name, _)| name.clone()),
            cause,
            relay: None,
            kind: None,
            transcript: output.map(Output::transcript).unwrap_or_default(),
        }
    }
}

impl BootError {
    /// The whole story: what, where, the evidence, the next step. Several lines, without an end of
    /// line.
    pub(crate) fn report(&self) -> String {
        let mut text = self.to_string();
        _ = write!(
            text,
            "\n  command  {}   in {}",
            self.command,
            self.cwd.display()
        ); // a String takes all
        if let Some(user) = &self.user {
            _ = write!(text, "   as {user}");
        }
        for (index, line) in self
            .transcript
            .lines()
            .filter(|line| !line.trim().is_empty())
            .enumerate()
        {
            _ = write!(
                text,
                "\n  {:8} {}",
                if index == 0 { "it said" } else { "" },
                readable(line)
            );
        }
        if let Some(hint) = self.hint() {
            _ = write!(text, "\nhint: {hint}");
        }
        text
    }

    /// The next step, where the evidence points to one.
    fn hint(&self) -> Option<String> {
        let said = |text: &str| self.transcript.contains(text);
        if let Some(hint) = self.about_relay() {
            return Some(hint);
        }
        let cwd = self.cwd.display();
        Some(match &self.cause {
            BootCause::Spawn(SpawnError::NotFound { program }) if program.contains("cgi") => {
                "`mode: fastcgi` needs php-cgi: `apt install php-cgi`, `apk add php83-cgi`, `dnf install php-cli`; or write the \
                 path of one into the pool's `command`"
                    .into()
            }
            BootCause::Spawn(SpawnError::NotFound { program }) if program.contains("fpm") => {
                "`fastcgi.php_fpm` is the name or the path of a php-fpm: `apt install php-fpm`, `apk add php83-fpm`, `dnf \
                 install php-fpm`"
                    .into()
            }
            BootCause::Spawn(SpawnError::NotFound { program }) if is_php(program) => {
                "PHP is not installed, or not in PATH: `apt install php-cli`, or write its path into `server.command`".into()
            }
            BootCause::Spawn(SpawnError::NotFound { .. }) => {
                format!("the first word of `server.command` is looked up in PATH; a path is taken from {cwd}")
            }
            BootCause::Spawn(SpawnError::NoFolder(_)) => "see `-w` and where the configuration file lies".into(),
            BootCause::Spawn(SpawnError::Failed { source, .. })
                if source.kind() == ErrorKind::ArgumentListTooLong =>
            {
                SHORTER.into()
            }
            BootCause::Exited(_) if said(NOT_OPENED) => self.about_script(),
            BootCause::Exited(_) if said("vendor/autoload.php") => self.about_packages(),
            BootCause::Exited(_) if said("Parse error") || said("syntax error") => {
                "`php -l` checks a file; `pronghorn serve --dev` waits for a change and tries again".into()
            }
            BootCause::Exited(Exit::Code(0)) if OWN_LINES.iter().any(|line| said(line)) => {
                "the script was printed, not run: its first line has to be `<?php`".into()
            }
            BootCause::Exited(Exit::Code(0)) => self.about_end().into(),
            BootCause::TimedOut { .. } => {
                "a worker script announces itself when it calls `Pronghorn\\serve(…)` or a RoadRunner worker; a slow start, \
                 or a slow `warmup` before workers are forked, can be given more time with `pool.boot_timeout`"
                    .into()
            }
            BootCause::NotForked(_) => {
                "`spawn: exec` of the pool does without a zygote: each worker is a PHP started anew, with an OPcache of its own".into()
            }
            BootCause::Php(error) => error.hint(),
            BootCause::WarmUp(_) => {
                "every new worker answers the requests of `pool.warmup` before it gets those of clients".into()
            }
            BootCause::Spawn(_) | BootCause::Exited(_) | BootCause::Protocol(_) | BootCause::System(_) => {
                return None;
            }
        })
    }
}

/// What goridge says of a stdin without an end that writes to it.
const NOTHING_READ: &str = "Unable to read frame header";

/// Calls in scripts of workers, which are in no output unless PHP prints the script.
const OWN_LINES: [&str; 3] = ["->run(", "->waitRequest(", "Pronghorn\\serve("];

/// What PHP says of a script that is not there and of one that it may not read.
const NOT_OPENED: &str = "Could not open input file: ";

impl BootError {
    /// Where the evidence is that the worker was elsewhere than its server.
    fn about_relay(&self) -> Option<String> {
        let relay = self.relay.as_ref()?;
        match &self.cause {
            BootCause::TimedOut { strangers, .. } if !strangers.is_empty() => Some(format!(
                "process {} announced itself at `server.relay` and is no child of the worker's command: a command that \
                 starts PHP elsewhere, in a container for instance, needs `relay: pipes`",
                strangers[0]
            )),
            BootCause::TimedOut { .. } | BootCause::Exited(_)
                if self.transcript.contains(NOTHING_READ) =>
            {
                Some(format!(
                    "the worker waits for its server on stdin, as Laravel Octane's does, and `server.relay` is `{relay}`: \
                     write `relay: pipes`, or have the worker connect to the address in `RR_RELAY`"
                ))
            }
            BootCause::TimedOut { .. } => Some(format!(
                "a worker script announces itself when it calls `Pronghorn\\serve(…)` or a RoadRunner worker. The latter \
                 connects to `{relay}`, which it finds in `RR_RELAY` unless its own command line names a socket; one that \
                 uses stdin and stdout needs `relay: pipes`. A slow start can be given more time with `pool.boot_timeout`"
            )),
            BootCause::Spawn(_)
            | BootCause::Exited(_)
            | BootCause::Protocol(_)
            | BootCause::WarmUp(_)
            | BootCause::NotForked(_)
            | BootCause::Php(_)
            | BootCause::System(_) => None,
        }
    }

    /// The reader of calls that the script has not.
    fn about_end(&self) -> &'static str {
        match self.kind {
            None | Some(Kind::Http | Kind::Script) => {
                "the script ran to its end: a worker script waits for requests, with `Pronghorn\\serve(…)` for instance"
            }
            Some(Kind::Centrifugo) => {
                "the script ran to its end: a worker of Centrifugo loops over `$worker->waitRequest()`"
            }
            Some(Kind::Grpc | Kind::Tcp | Kind::Job | Kind::Raw) => {
                "the script ran to its end: `$worker->run()`, its last line, waits for calls"
            }
        }
    }

    fn about_packages(&self) -> String {
        let cwd = self.cwd.display();
        if self.cwd.join("composer.json").exists() {
            format!("the application's packages are not installed: run `composer install` in {cwd}")
        } else {
            let package = match self.kind {
                Some(Kind::Centrifugo) => {
                    return format!(
                        "there is no composer.json in {cwd}: `composer require roadrunner-php/centrifugo` writes one \
                         and installs the package"
                    );
                }
                Some(Kind::Grpc) => "pronghorn/grpc",
                _ => "pronghorn/worker",
            };
            let packages = packages();
            format!(
                "there is no composer.json in {cwd}: `echo '{{}}' > composer.json`, {} and `composer require {package}` \
                 install the package; without Composer, `require '{}/autoload.php'`",
                repository_command(),
                packages.display()
            )
        }
    }

    fn about_script(&self) -> String {
        let mut said = self.transcript.lines();
        let named = said.find_map(|line| line.split_once(NOT_OPENED));
        let name = named.map_or("", |(_, name)| name.trim());
        let path = self.cwd.join(name);
        let who = self.user.as_deref().unwrap_or("the server's user");
        match std::fs::metadata(&path) {
            Ok(found) if found.is_file() => format!(
                "`{}` is there, and {who} can't read it: {}",
                path.display(),
                how_to_let_read(&path)
            ),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => format!(
                "{who} may not enter a folder of `{0}`: `namei -l {0}` shows which",
                path.display()
            ),
            _ if Path::new(name).iter().any(|part| part == "vendor") => self.about_packages(),
            _ => format!("the script's path is taken from {}", self.cwd.display()),
        }
    }
}

/// Where an installation has the PHP packages, if it is not beside this program.
const PACKAGES: &str = "/usr/share/pronghorn/php";

/// The directory of the PHP packages that came with this program.
fn packages() -> PathBuf {
    let program = std::env::current_exe().ok();
    let prefix = program.as_deref().and_then(|it| it.parent()?.parent());
    let beside = prefix.map(|prefix| prefix.join("share/pronghorn/php"));
    let beside = beside.filter(|beside| beside.is_dir());
    beside.unwrap_or_else(|| PACKAGES.into())
}

/// The command, in backquotes, after which Composer finds Pronghorn's packages. It is typed in a
/// directory that has a `composer.json`.
#[must_use]
pub fn repository_command() -> String {
    format!(
        "`composer config repositories.pronghorn path '{}/*'`",
        packages().display()
    )
}

/// What to type where somebody can't read a file.
#[must_use]
pub fn how_to_let_read(path: &Path) -> String {
    format!(
        "`chmod a+r {0}`; `namei -l {0}` shows who may enter its directories",
        path.display()
    )
}

/// Without what a terminal would obey.
fn readable(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for c in line.chars() {
        if c.is_control() && c != '\t' {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

fn is_php(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    name.starts_with("php")
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn the_report_has_what_where_the_evidence_and_the_next_step() {
        let error = LaunchError::from(BootError {
            pool: "test".into(),
            command: "php worker.php".into(),
            cwd: PathBuf::from("/srv/app"),
            user: None,
            cause: BootCause::Exited(Exit::Code(255)),
            relay: None,
            kind: None,
            transcript: "PHP Parse error: oops".into(),
        });
        assert_eq!(
            error.to_string(),
            "pool `test`: worker ended before it was ready (exit code 255)"
        );
        let report = error.report();
        for part in [
            "command  php worker.php   in /srv/app",
            "it said  PHP Parse error: oops",
            "hint: ",
        ] {
            assert!(report.contains(part), "{report}");
        }
    }

    #[test]
    fn a_worker_that_is_elsewhere_than_its_server_is_told_where_it_is_expected() {
        let timed_out = |strangers: &[u32]| BootCause::TimedOut {
            after: Duration::from_secs(2),
            strangers: strangers.to_vec(),
        };
        let nothing_read = "PHP Fatal error:  Uncaught Spiral\\Goridge\\Exception\\HeaderException: \
                            Unable to read frame header: Incorrect header size";
        let socket = Some("unix:///srv/app/rr.sock");
        for (cause, relay, transcript, hint) in [
            (timed_out(&[7]), socket, "", "process 7 announced itself"),
            (
                timed_out(&[]),
                socket,
                "",
                "`unix:///srv/app/rr.sock`, which it finds in `RR_RELAY`",
            ),
            (timed_out(&[]), socket, nothing_read, "write `relay: pipes`"),
            (
                BootCause::Exited(Exit::Code(255)),
                socket,
                nothing_read,
                "write `relay: pipes`",
            ),
            (
                timed_out(&[]),
                None,
                nothing_read,
                "a worker script announces itself",
            ),
        ] {
            let error = BootError {
                pool: "test".into(),
                command: "php worker.php".into(),
                cwd: PathBuf::from("/srv/app"),
                user: None,
                cause,
                relay: relay.map(str::to_owned),
                kind: None,
                transcript: transcript.into(),
            };
            let said = error.hint().expect("there is one");
            assert!(said.contains(hint), "{said}");
        }
    }

    #[test]
    fn a_script_that_ends_is_told_what_waits() {
        let hint = |kind, transcript: &str| {
            let error = BootError {
                pool: "test".into(),
                command: "php worker.php".into(),
                cwd: PathBuf::from("/srv/app"),
                user: None,
                cause: BootCause::Exited(Exit::Code(0)),
                relay: None,
                kind,
                transcript: transcript.into(),
            };
            error.hint().expect("there is one")
        };
        assert!(hint(Some(Kind::Grpc), "").contains("`$worker->run()`, its last line"));
        assert!(hint(Some(Kind::Tcp), "started").contains("`$worker->run()`, its last line"));
        assert!(hint(Some(Kind::Http), "").contains("Pronghorn\\serve("));
        let printed = "require 'vendor/x.php';\n$worker->run();";
        assert!(hint(Some(Kind::Tcp), printed).ends_with("has to be `<?php`"));
    }

    #[test]
    fn who_has_no_composer_json_is_not_told_to_install_from_it() {
        let directory = Directory::new();
        let error = BootError {
            pool: "test".into(),
            command: "php worker.php".into(),
            cwd: directory.to_path_buf(),
            user: None,
            cause: BootCause::Exited(Exit::Code(255)),
            relay: None,
            kind: None,
            transcript: "Failed opening required '/srv/vendor/autoload.php'".into(),
        };
        let without = error.hint().expect("a hint");
        assert!(
            without.contains(&repository_command())
                && without.contains("composer require pronghorn/worker"),
            "{without}"
        );
        let of_centrifugo = BootError {
            kind: Some(Kind::Centrifugo),
            transcript: error.transcript.clone(),
            command: error.command.clone(),
            pool: error.pool.clone(),
            cwd: error.cwd.clone(),
            user: None,
            relay: None,
            cause: BootCause::Exited(Exit::Code(255)),
        };
        let of_centrifugo = of_centrifugo.hint().expect("a hint");
        assert!(
            of_centrifugo.contains("composer require roadrunner-php/centrifugo"),
            "{of_centrifugo}"
        );
        std::fs::write(directory.join("composer.json"), "{}").expect("a file for the test");
        let with = error.hint().expect("a hint");
        assert!(with.contains("run `composer install`"), "{with}");
        let of_a_package = BootError {
            transcript: "Could not open input file: vendor/bin/pronghorn-laravel".into(),
            ..error
        };
        assert_eq!(of_a_package.hint(), Some(with));
    }
}
