//! What builds extensions for one PHP: `phpize`, its headers, a compiler, make.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pronghorn_process::{Spawner, which};
use thiserror::Error;

use crate::run::{StepError, run};

/// What `phpize` and `./configure` run besides.
const PROGRAMS: [&str; 3] = ["autoconf", "make", "cc"];

/// A `phpize` and a `php-config` that make extensions for a PHP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    pub phpize: PathBuf,
    pub config: PathBuf,
    identity: String,
}

/// Why nothing can be built. `hint` says what to type.
#[derive(Debug, Error)]
pub enum ToolchainError {
    /// The operator's: the headers of that PHP are not installed.
    #[error("there is no `phpize` for `{php}`, looked for as {}", listed(.tried))]
    NoPhpize { php: String, tried: Vec<PathBuf> },
    /// The operator's: those that are there are another PHP's.
    #[error("`{}` builds for {found}, and this PHP needs {needed}", .phpize.display())]
    OtherPhp {
        phpize: PathBuf,
        found: String,
        needed: String,
    },
    #[error("there is no `{0}`, which a build needs")]
    NoProgram(&'static str),
    /// `php-config` can't be asked.
    #[error(transparent)]
    Step(#[from] StepError),
}

impl ToolchainError {
    /// What to type on this distribution, for a PHP of this version (`8.2.36`).
    pub fn hint(&self, version: &str) -> String {
        if let Self::Step(_) = self {
            return "`TMPDIR=/another/folder` names another folder for temporary files".to_owned();
        }
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        install_hint(&release, version)
    }
}

impl Toolchain {
    /// Looks beside the PHP and where it was installed (`binaries`, its `PHP_BINDIR`), for one that
    /// builds for this identity.
    pub async fn find(
        spawner: &Spawner,
        php: &Path,
        binaries: &Path,
        version: &str,
        identity: &str,
    ) -> Result<Self, ToolchainError> {
        let tried = candidates(php, binaries, version);
        let mut other = None;
        for phpize in tried.iter().filter(|path| path.is_file()) {
            let Some(config) = config_of(phpize) else {
                continue;
            };
            match built_for(spawner, &config).await? {
                Some(found) if found == identity => {
                    let (phpize, identity) = (phpize.clone(), found);
                    return Self {
                        phpize,
                        config,
                        identity,
                    }
                    .with_programs();
                }
                Some(found) => other = other.or_else(|| Some((phpize.clone(), found))),
                None => {}
            }
        }
        Err(match other {
            Some((phpize, found)) => ToolchainError::OtherPhp {
                phpize,
                found,
                needed: identity.to_owned(),
            },
            None => ToolchainError::NoPhpize {
                php: php.display().to_string(),
                tried,
            },
        })
    }

    /// What its builds are for: `20220829-nts`.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    fn with_programs(self) -> Result<Self, ToolchainError> {
        let path = std::env::var_os("PATH");
        let mut programs = PROGRAMS.into_iter();
        let missing = programs.find(|name| which(name, path.as_ref(), Path::new("/")).is_none());
        missing.map_or(Ok(self), |name| Err(ToolchainError::NoProgram(name)))
    }
}

fn listed(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths
        .iter()
        .map(|path| format!("`{}`", path.display()))
        .collect();
    paths.join(", ")
}

/// `phpize8.2` for `php8.2`, beside it and in its own folder for programs; each once.
fn candidates(php: &Path, binaries: &Path, version: &str) -> Vec<PathBuf> {
    let mut parts = version.split('.');
    let minor = format!(
        "{}.{}",
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default()
    );
    let mut suffixes = vec![minor.clone(), minor.replace('.', ""), String::new()];
    let real = php.canonicalize().unwrap_or_else(|_| php.to_owned());
    for path in [&real, php] {
        let name = path.file_name().and_then(|name| name.to_str());
        let suffix = name.and_then(|name| name.strip_prefix("php"));
        suffixes.splice(0..0, suffix.map(str::to_owned));
    }
    let mut found = Vec::new();
    for folder in [php.parent(), real.parent(), Some(binaries)]
        .into_iter()
        .flatten()
    {
        for suffix in &suffixes {
            let path = folder.join(format!("phpize{suffix}"));
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// The `php-config8.2` beside a `phpize8.2`.
fn config_of(phpize: &Path) -> Option<PathBuf> {
    let name = phpize.file_name()?.to_str()?;
    let config = phpize.with_file_name(name.replacen("phpize", "php-config", 1));
    config.is_file().then_some(config)
}

/// What the headers say that an extension is built for, as a PHP says it of itself.
async fn built_for(spawner: &Spawner, config: &Path) -> Result<Option<String>, StepError> {
    let args = [OsString::from("--include-dir")];
    match run(spawner, Path::new("/"), config, &args, &[], Vec::new()).await {
        Ok(said) => Ok(identity_of(&said)),
        // It belongs to some other PHP, or is broken: the next one may fit.
        Err(StepError::Failed { .. } | StepError::Spawn(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// By the headers in the folder that a `php-config` names.
fn identity_of(said: &str) -> Option<String> {
    // Before it may stand what its shell complains of.
    let folder = Path::new(said.lines().last()?.trim());
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    identity(&read("Zend/zend_modules.h")?, &read("main/php_config.h")?)
}

fn identity(modules: &str, config: &str) -> Option<String> {
    let number = modules.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let is_it = words.next() == Some("#define") && words.next() == Some("ZEND_MODULE_API_NO");
        is_it.then(|| words.next()).flatten()
    })?;
    let defines = |line: &str| config.lines().any(|given| given.trim_end() == line);
    let threads = if defines("#define ZTS 1") {
        "-zts"
    } else {
        "-nts"
    };
    let debug = if defines("#define ZEND_DEBUG 1") {
        "-debug"
    } else {
        ""
    };
    Some(format!("{number}{threads}{debug}"))
}

/// Packages go by the distribution's `ID` and `ID_LIKE`.
fn install_hint(os_release: &str, version: &str) -> String {
    let field = |name: &str| {
        let mut lines = os_release.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches('"').to_owned()
    };
    let family = format!(" {} {} ", field("ID"), field("ID_LIKE"));
    let is = |name: &str| family.contains(&format!(" {name} "));
    let mut parts = version.split('.');
    let (major, minor) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    if is("debian") || is("ubuntu") {
        format!("`apt install php{major}.{minor}-dev gcc make`")
    } else if is("alpine") {
        format!("`apk add php{major}{minor}-dev build-base autoconf`")
    } else if is("fedora") || is("rhel") {
        "`dnf install php-devel gcc make autoconf`".to_owned()
    } else {
        "install PHP's headers (a package called php-dev or php-devel), a C compiler, make and \
         autoconf"
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phpize_is_looked_for_by_the_name_of_its_php() {
        let found = candidates(
            Path::new("/opt/php/bin/php8.4"),
            Path::new("/usr/bin"),
            "8.4.1",
        );
        assert_eq!(
            found
                .iter()
                .map(|path| path.to_str().unwrap())
                .collect::<Vec<_>>(),
            [
                "/opt/php/bin/phpize8.4",
                "/opt/php/bin/phpize84",
                "/opt/php/bin/phpize",
                "/usr/bin/phpize8.4",
                "/usr/bin/phpize84",
                "/usr/bin/phpize",
            ]
        );
    }

    #[test]
    fn headers_say_what_a_build_is_for() {
        let modules = "#define STANDARD_MODULE 1\n#define ZEND_MODULE_API_NO 20220829\n";
        for (config, expected) in [
            ("/* #undef ZTS */\n#define ZEND_DEBUG 0\n", "20220829-nts"),
            (
                "#define ZTS 1\n#define ZEND_DEBUG 1\n",
                "20220829-zts-debug",
            ),
        ] {
            assert_eq!(identity(modules, config).as_deref(), Some(expected));
        }
        assert_eq!(identity("", ""), None);
    }

    #[test]
    fn the_hint_is_what_the_distribution_calls_it() {
        for (release, expected) in [
            ("ID=debian\n", "`apt install php8.2-dev gcc make`"),
            (
                "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
                "`apt install php8.2-dev gcc make`",
            ),
            ("ID=alpine\n", "`apk add php82-dev build-base autoconf`"),
            (
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                "`dnf install php-devel gcc make autoconf`",
            ),
        ] {
            assert_eq!(install_hint(release, "8.2.36"), expected);
        }
        assert!(install_hint("ID=arch\n", "8.2").contains("headers"));
    }
}
