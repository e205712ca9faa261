//! The PHP that a pool's command runs, and what its workers are given beside its own settings: the
//! extension, and settings that suit processes that are kept.
//!
//! Both are options of its command line, which nobody can take from a worker, and the extension is
//! a descriptor. The PHP is asked once what it is, and whether it takes them. Where the command
//! does not tell which PHP it runs, nothing is given; a pool that needs something does not start
//! then.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_base::open_linked;
use pronghorn_extension::Build;
use tokio::sync::OnceCell;

use crate::spec::LaunchSpec;

mod classic;
mod error;
mod ini;
mod kept;
mod program;
mod question;
mod settings;
pub(crate) mod stack;
mod wrapper;

pub(crate) use classic::classic_worker;
pub use classic::{classic_command, classic_variables};
pub use error::{PhpError, SHORTER};
pub use ini::option as php_option;
use ini::{MemoryLimit, Settings};
use kept::{RC, SCAN};
pub use program::installed as installed_phps;
pub use question::{About, ask_one as ask_php};
pub use settings::{Ini, IniSetting, Preset};

/// Tells the extension by which descriptor it was loaded, for it to close that.
const LOADED_BY: &str = "pronghorn.extension";

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
pub(crate) struct Found {
    about: Option<Arc<About>>,
    /// Where it looks for `php.ini` and more.
    pub(crate) variables: Variables,
    program: Option<Program>,
    settings: Settings,
    extension: Option<Build>,
    /// The extension is there, or given to it.
    has_extension: bool,
    memory_limit: MemoryLimit,
}

type Variables = Vec<(OsString, OsString)>;

/// A PHP without the extension, and what gives it one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LackingPhp {
    pub version: String,
    /// The command to type.
    pub install: String,
}

impl Found {
    /// The command line of a process that is passed the extension as this descriptor.
    pub(crate) fn argv(&self, argv: &[OsString], place: usize) -> Vec<OsString> {
        let Some(program) = self.program.as_ref().filter(|_| self.gives_something()) else {
            return argv.to_vec();
        };
        let mut ours = Vec::new();
        if self.extension.is_some() {
            for (name, value) in [
                ("extension", format!("'/proc/self/fd/{place}'")),
                (LOADED_BY, place.to_string()),
            ] {
                ours.extend(["-d".into(), ini::option(name, &value).into()]);
            }
        }
        if !self.settings.is_empty() {
            ours.extend(self.settings.arguments());
        }
        program.argv(argv, ours)
    }

    /// The build of the extension for it.
    pub(crate) fn extension(&self) -> io::Result<Option<OwnedFd>> {
        let build = self.extension.as_ref();
        build.map(Build::descriptor).transpose()
    }

    /// What a worker says of itself that has its settings; None where there are none to have.
    pub(crate) fn digest(&self) -> Option<String> {
        (!self.settings.is_empty()).then(|| self.settings.digest())
    }

    fn gives_something(&self) -> bool {
        self.extension.is_some() || !self.settings.is_empty()
    }
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

    /// What its PHP says of itself; None where the command does not tell which one it is, or that
    /// one does not answer.
    pub async fn about(&self, of: &LaunchSpec) -> Option<&About> {
        self.found(of).await.ok()?.about.as_deref()
    }

    /// Whether its workers have the extension, as far as is known.
    pub(crate) async fn has_extension(&self, of: &LaunchSpec) -> bool {
        self.found(of).await.is_ok_and(|found| found.has_extension)
    }

    /// What keeps the pool's workers from what they need.
    pub async fn wrong(&self, of: &LaunchSpec) -> Option<PhpError> {
        self.found(of).await.err()
    }

    /// Whether a call's memory has no limit of PHP's; false where the PHP is unknown.
    pub async fn leaves_memory_unlimited(&self, of: &LaunchSpec) -> bool {
        let found = self.found(of).await;
        found.is_ok_and(|found| found.memory_limit == MemoryLimit::None)
    }

    /// The limit of PHP's for a call's memory, in bytes, where it has one.
    pub async fn memory_limit(&self, of: &LaunchSpec) -> Option<u64> {
        match self.found(of).await.ok()?.memory_limit {
            MemoryLimit::Bytes(bytes) => Some(bytes),
            MemoryLimit::None | MemoryLimit::Unknown => None,
        }
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
        let found = self.found(of).await.ok()?;
        let about = found.about.as_ref().filter(|_| !found.has_extension)?;
        let program = found.program.as_ref()?;
        let uses_it = self.scripts || self.offer_extension && program.uses_package();
        uses_it.then(|| LackingPhp {
            version: about.version.clone(),
            install: extension_command(&program.path),
        })
    }

    /// What workers are given. Asks PHP the first time, which takes as long as PHP takes to start.
    ///
    /// # Errors
    ///
    /// When the pool needs something that its workers can't be given.
    pub(crate) async fn found(&self, of: &LaunchSpec) -> Result<&Found, PhpError> {
        // It is large, and in the future of each start of a worker.
        self.found.get_or_try_init(|| Box::pin(self.find(of))).await
    }

    async fn find(&self, of: &LaunchSpec) -> Result<Found, PhpError> {
        let Some(program) = program::find(&of.argv, &of.env, &of.cwd) else {
            if self.ini.is_written() && program::is_there(&of.argv, &of.env, &of.cwd) {
                return Err(PhpError::Unknown {
                    command: of.command.clone(),
                });
            }
            if self.offer_extension {
                tracing::info!(
                    target: "server", pool = of.pool,
                    "it is unknown which PHP `{}` runs, so its workers do not get the extension: \
                     write it into its php.ini",
                    of.command
                );
            }
            return Ok(Found::default());
        };
        let about = match question::ask(of, &program, &of.env).await {
            Err(_) if !self.needs_something() => return Ok(Found::default()),
            about => about?,
        };
        let mut asked = (about, Variables::new());
        if self.scripts {
            asked = self.as_fpm(of, &program, asked.0).await?;
        }
        let (about, variables) = asked;
        let settings = ini::of_pool(&self.ini, &about, &program, &of.pool);
        let extension = if self.offer_extension && !about.has_extension {
            pronghorn_extension::find(&about.identity)
        } else {
            None
        };
        let found = Found {
            has_extension: about.has_extension || extension.is_some(),
            memory_limit: MemoryLimit::of(&settings, &about),
            variables,
            settings,
            extension,
            program: Some(program),
            about: Some(about),
        };
        match (&found.about, &found.program) {
            (Some(about), Some(program)) if found.gives_something() && !about.takes_options => {
                Err(PhpError::NoOptions {
                    php: program.path.clone(),
                })
            }
            _ => Ok(found),
        }
    }

    /// Whether workers are given anything, with any PHP.
    fn needs_something(&self) -> bool {
        self.scripts
            || self.offer_extension
            || self.ini.is_written()
            || self.ini.preset != Preset::Off
    }

    /// With the settings of php-fpm, where a distribution has them apart from those of the command
    /// line.
    async fn as_fpm(
        &self,
        of: &LaunchSpec,
        program: &Program,
        about: Arc<About>,
    ) -> Result<(Arc<About>, Variables), PhpError> {
        let written = |name: &str| of.env.iter().any(|(known, _)| known == name);
        let chosen =
            |option: &OsString| matches!(option.as_encoded_bytes(), [b'-', b'c' | b'n', ..]);
        if written(RC) || written(SCAN) || program.options.iter().any(chosen) {
            return Ok((about, Variables::new()));
        }
        let Some(folder) = fpm_folder(&about.ini_file) else {
            return Ok((about, Variables::new()));
        };
        let scanned = folder.join("conf.d").into();
        let variables = vec![(RC.into(), folder.into()), (SCAN.into(), scanned)];
        let environment = [of.env.as_slice(), &variables].concat();
        let about = question::ask(of, program, &environment).await?;
        Ok((about, variables))
    }
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

/// The script that a command has PHP run, where it tells, if by `nice` or its like.
pub fn script_of(argv: &[OsString], env: &[(OsString, OsString)], cwd: &Path) -> Option<PathBuf> {
    let program = program::find(wrapper::wrapped(argv), env, cwd)?;
    program
        .script
        .filter(|_| program::runs_script(&program.options))
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
        let read = |path: &Path| -> io::Result<Vec<u8>> {
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
