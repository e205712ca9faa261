//! The PHP that a pool's command runs, and what its workers are given beside its own settings: the
//! extension, and settings that suit processes that are kept.
//!
//! Both go in through `PHP_INI_SCAN_DIR`, which reaches `php worker.php`, a script that begins with
//! `#!` and `sh -c` alike. The PHP is asked once what it is. Where the command does not tell which
//! PHP it runs, nothing is given.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_base::open_linked;
use tokio::sync::OnceCell;

use crate::spec::LaunchSpec;

mod classic;
mod ini;
mod program;
mod question;
mod settings;
pub(crate) mod stack;

pub(crate) use classic::classic_worker;
pub use classic::{classic_command, classic_variables};
use ini::Folder;
pub use program::installed as installed_phps;
pub use question::{About, ask_one as ask_php};
pub use settings::{Ini, IniSetting, Preset};

/// Where PHP looks for settings beside `php.ini`; an empty part stands for the folder that it was
/// compiled with.
const SCAN: &str = "PHP_INI_SCAN_DIR";
/// Where it looks for `php.ini` first.
const RC: &str = "PHPRC";

/// What the workers of one pool are given.
#[derive(Debug)]
pub struct Php {
    /// False: the pool is to use pipes in any case.
    offer_extension: bool,
    /// What it runs is what php-fpm runs elsewhere.
    scripts: bool,
    ini: Ini,
    found: OnceCell<Found>,
}

/// What was found out, once for all workers.
#[derive(Debug, Default)]
struct Found {
    about: Option<Arc<About>>,
    /// Where it looks for `php.ini` and more.
    variables: Variables,
    folder: Option<Folder>,
    /// The extension is there, or given to it.
    has_extension: bool,
}

type Variables = Vec<(OsString, OsString)>;

/// A PHP without the extension, and what gives it one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LackingPhp {
    pub version: String,
    /// The command to type.
    pub install: String,
}

impl Php {
    pub fn new(offer_extension: bool, scripts: bool, ini: Ini) -> Self {
        Self {
            offer_extension,
            scripts,
            ini,
            found: OnceCell::new(),
        }
    }

    /// The variables that workers get besides. Asks PHP the first time, which takes as long as PHP
    /// takes to start.
    pub(crate) async fn variables(&self, of: &LaunchSpec) -> Variables {
        let found = self.found(of).await;
        let mut variables = found.variables.clone();
        if let Some(folder) = &found.folder {
            let known = of.env.iter().chain(&variables);
            let known = known.rev().find(|(name, _)| name == SCAN);
            let scanned = scanned(known.map(|(_, value)| value.as_os_str()), folder.path());
            variables.retain(|(name, _)| name != SCAN);
            variables.push((SCAN.into(), scanned));
        }
        variables
    }

    /// What its PHP says of itself; None where the command does not tell which one it is.
    pub async fn about(&self, of: &LaunchSpec) -> Option<&About> {
        self.found(of).await.about.as_deref()
    }

    /// Whether its workers have the extension, as far as is known.
    pub(crate) async fn has_extension(&self, of: &LaunchSpec) -> bool {
        self.found(of).await.has_extension
    }

    /// Names of the pool's `ini` that its PHP does not have.
    pub async fn unknown_settings(&self, of: &LaunchSpec) -> Vec<String> {
        let Some(about) = self.about(of).await else {
            return Vec::new();
        };
        let names = self.ini.written.iter().map(|setting| &setting.name);
        names.filter(|name| !about.knows(name)).cloned().collect()
    }

    /// Whether its workers run scripts.
    pub(crate) fn runs_scripts(&self) -> bool {
        self.scripts
    }

    /// The PHP that could use the extension, has none and gets none: its path. None where the pool
    /// does not want it, or its workers are not of our package.
    pub async fn lacks_extension(&self, of: &LaunchSpec) -> Option<LackingPhp> {
        let found = self.found(of).await;
        let about = found.about.as_ref().filter(|_| !found.has_extension)?;
        let program = program::find(&of.argv, &of.env, &of.cwd)?;
        let uses_it = self.scripts || self.offer_extension && program.uses_package();
        uses_it.then(|| LackingPhp {
            version: about.version.clone(),
            install: extension_command(&program.path),
        })
    }

    /// The PHP that says nothing of itself when it is asked. None also where no PHP is known.
    pub async fn silent(&self, of: &LaunchSpec) -> Option<PathBuf> {
        if self.about(of).await.is_some() {
            return None;
        }
        program::find(&of.argv, &of.env, &of.cwd).map(|program| program.path)
    }

    async fn found(&self, of: &LaunchSpec) -> &Found {
        self.found.get_or_init(|| self.find(of)).await
    }

    async fn find(&self, of: &LaunchSpec) -> Found {
        let Some(program) = program::find(&of.argv, &of.env, &of.cwd) else {
            if self.offer_extension || self.ini.is_written() {
                tracing::info!(
                    target: "server", pool = of.pool,
                    "it is unknown which PHP `{}` runs, so its workers get neither the extension \
                     nor the pool's `ini`: write both into its php.ini",
                    of.command
                );
            }
            return Found::default();
        };
        let asked = question::ask(of, &program, &of.env).await;
        let (asked, variables) = match asked {
            Some(about) if self.scripts => self.as_fpm(of, &program, about).await,
            asked => (asked, Variables::new()),
        };
        let Some(about) = asked else {
            tracing::warn!(
                target: "server", pool = of.pool,
                "`{}` does not report its version, so its workers get neither the extension nor \
                 the pool's `ini`",
                program.path.display()
            );
            return Found::default();
        };
        let mut lines = ini::of_pool(&self.ini, &about, &program, &of.pool);
        let mut has_extension = about.has_extension;
        if self.offer_extension
            && !has_extension
            && let Some(path) = pronghorn_extension::find(&about.identity)
        {
            lines.push(ini::extension(&path));
            has_extension = true;
        }
        let folder = (!lines.is_empty()).then(|| Folder::make(of.spool.path("ini"), &lines));
        let folder = folder.and_then(|made| {
            made.inspect_err(|error| {
                let folder = of.spool.folder().display();
                tracing::warn!(
                    target: "server", pool = of.pool,
                    "workers get neither the extension nor the pool's `ini`: no folder for it can \
                     be made in `{folder}`: {error}"
                );
            })
            .ok()
        });
        Found {
            about: Some(about),
            variables,
            folder,
            has_extension,
        }
    }

    /// With the settings of php-fpm, where a distribution has them apart from those of the command
    /// line.
    async fn as_fpm(
        &self,
        of: &LaunchSpec,
        program: &Program,
        about: Arc<About>,
    ) -> (Option<Arc<About>>, Variables) {
        let written = |name: &str| of.env.iter().any(|(known, _)| known == name);
        let chosen =
            |option: &OsString| matches!(option.as_encoded_bytes(), [b'-', b'c' | b'n', ..]);
        if written(RC) || written(SCAN) || program.options.iter().any(chosen) {
            return (Some(about), Variables::new());
        }
        let Some(folder) = fpm_folder(&about.ini_file) else {
            return (Some(about), Variables::new());
        };
        let scanned = folder.join("conf.d").into();
        let variables = vec![(RC.into(), folder.into()), (SCAN.into(), scanned)];
        let environment = [of.env.as_slice(), &variables].concat();
        (question::ask(of, program, &environment).await, variables)
    }
}

/// What `PHP_INI_SCAN_DIR` becomes with one more folder. To PHP it is not the same whether it is
/// not set, which stands for the folder that it was compiled with, or empty, which stands for none.
fn scanned(before: Option<&OsStr>, folder: &Path) -> OsString {
    let mut scanned = before.unwrap_or_default().to_owned();
    if before.is_none_or(|before| !before.is_empty()) {
        scanned.push(":");
    }
    scanned.push(folder);
    scanned
}

/// Of `/etc/php/8.2/cli/php.ini`: `/etc/php/8.2/fpm`, if it is there.
fn fpm_folder(ini_file: &Path) -> Option<PathBuf> {
    let folder = ini_file.parent()?;
    let beside = folder.with_file_name("fpm");
    (folder.ends_with("cli") && beside.join("php.ini").is_file()).then_some(beside)
}

/// The command that builds the extension for this PHP. The one that a shell finds need not be
/// named.
pub fn extension_command(php: &Path) -> String {
    let of_shell = pronghorn_process::which("php", std::env::var_os("PATH"), Path::new("/"));
    let real = |path: &Path| path.canonicalize().ok();
    if of_shell.is_some_and(|found| real(&found) == real(php)) {
        return "pronghorn extension install".to_owned();
    }
    format!("pronghorn extension install --php {}", php.display())
}

/// The script that a command has PHP run, where it tells.
pub fn script_of(argv: &[OsString], env: &[(OsString, OsString)], cwd: &Path) -> Option<PathBuf> {
    program::find(argv, env, cwd)?.script
}

/// A PHP, and what stands on the command line before its script.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Program {
    path: PathBuf,
    options: Vec<OsString>,
    script: Option<PathBuf>,
}

impl Program {
    /// Whether the script names our package.
    fn uses_package(&self) -> bool {
        /// A worker's script is short; what it includes is not looked at.
        const LONGEST: u64 = 64 << 10;
        let read = |path: &Path| -> std::io::Result<Vec<u8>> {
            use std::io::Read as _;
            let mut text = Vec::new();
            open_linked(path)?.take(LONGEST).read_to_end(&mut text)?;
            Ok(text)
        };
        self.script
            .as_deref()
            .and_then(|path| read(path).ok())
            .is_some_and(|text| memchr::memmem::find(&text, b"Pronghorn\\").is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_folder_is_not_the_one_that_php_was_compiled_with() {
        for (before, after) in [
            (None, ":/made"),
            (Some(""), "/made"),
            (Some("/a"), "/a:/made"),
            (Some("/a:/b"), "/a:/b:/made"),
            (Some(":/a"), ":/a:/made"),
            (Some("/a:"), "/a::/made"),
        ] {
            let scanned = scanned(before.map(OsStr::new), Path::new("/made"));
            assert_eq!(scanned, after, "{before:?}");
        }
    }
}
