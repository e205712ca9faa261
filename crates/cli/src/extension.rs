//! `extension install` and `extension status`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use pronghorn_base::with_causes;
use pronghorn_extension::{
    BuildError, StepError, Toolchain, build, find, folder_to_install, folders,
};
use pronghorn_launch::{About, ask_php, extension_command, installed_phps};
use pronghorn_process::{Spawner, which};
use pronghorn_server::VERSION;
use serde::Serialize;
use tokio::runtime::Builder;

use crate::arguments::ExtensionCommand;
use crate::exit::{Exit, failed, mention, misused, say};

/// The releases of PHP that the extension is for, and that it was tried with.
const OLDEST: (u32, u32) = (8, 1);
const NEWEST: (u32, u32) = (8, 6);

pub(crate) fn run(command: &ExtensionCommand) -> Exit {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let started = runtime.and_then(|runtime| Ok((runtime, Spawner::start()?)));
    let (runtime, spawner) = match started {
        Ok(started) => started,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    runtime.block_on(async {
        match command {
            ExtensionCommand::Install { php } => install(&spawner, php.as_deref()).await,
            ExtensionCommand::Status { json } => status(&spawner, *json).await,
        }
    })
}

async fn install(spawner: &Spawner, php: Option<&Path>) -> Exit {
    let php = match named(php) {
        Ok(php) => php,
        Err(why) => return misused(&why),
    };
    let shown = php.display();
    let Some(about) = ask_php(spawner, &php).await else {
        return failed(&format!(
            "`{shown}` does not report its version\nhint: `{shown} -v` shows what it says"
        ));
    };
    let version = &about.version;
    if release(version) < OLDEST {
        return failed(&format!(
            "`{shown}` is PHP {version}, and the extension needs 8.1 or newer"
        ));
    }
    if about.has_extension {
        say(&format!(
            "`{shown}` (PHP {version}) has the extension {} by `{}`: nothing to do\n",
            about.release,
            about.ini_file.display()
        ));
        return Exit::Done;
    }
    let Some(folder) = folder_to_install() else {
        return failed(
            "there is no folder for the extension: `HOME` is not set, or is somebody else's\n\
             hint: `PRONGHORN_EXTENSIONS=/a/folder` names one, here and for the server",
        );
    };
    if let Some(there) = find(&about.identity)
        && there.path().parent() != Some(&folder)
        && there
            .release(spawner, &php)
            .await
            .is_ok_and(|found| found == VERSION)
    {
        let there = there.path().display();
        say(&format!(
            "`{shown}` (PHP {version}) has a build that fits, `{there}`: nothing to do\n"
        ));
        return Exit::Done;
    }
    make(spawner, &php, &about, &folder).await
}

async fn make(spawner: &Spawner, php: &Path, about: &About, folder: &Path) -> Exit {
    let About {
        version, identity, ..
    } = about;
    let shown = php.display();
    let toolchain = Toolchain::find(spawner, php, &about.binaries, version, identity).await;
    let toolchain = match toolchain {
        Ok(toolchain) => toolchain,
        Err(error) => {
            let hint = error.hint(version);
            return failed(&format!("{}\nhint: {hint}", with_causes(&error)));
        }
    };
    if release(version) > NEWEST {
        mention(&format!("{}\n", newer(version)));
    }
    mention(&format!(
        "building the extension for PHP {version} ({identity})\n"
    ));
    match build(spawner, php, &toolchain, folder).await {
        Ok(file) if find(identity).is_none_or(|found| found.path() != file) => failed(&format!(
            "`{}` was built, and servers do not load it: on its path is a folder where others may \
             write, or one of another user\nhint: `PRONGHORN_EXTENSIONS=/a/folder` names another \
             folder, here and for the server",
            file.display()
        )),
        Ok(file) => {
            say(&format!(
                "`{}`: workers of `{shown}` will use it from the next start or `pronghorn reset`\n",
                file.display()
            ));
            Exit::Done
        }
        Err(error) => failed(&unbuilt(&error, version)),
    }
}

/// Why nothing was built, with what the compiler said and what to type.
fn unbuilt(error: &BuildError, version: &str) -> String {
    let mut text = with_causes(error);
    match error {
        BuildError::Folder(folder, error) => {
            let hint = crate::directories::disk_hint(folder, error);
            let hint =
                hint.unwrap_or_else(|| "run it as root, with `sudo` for instance".to_owned());
            _ = write!(
                text,
                "\nhint: {hint}; or name a folder of your own, here and for the server: \
                 `PRONGHORN_EXTENSIONS=/a/folder`"
            );
        }
        BuildError::Work(..) => {
            text.push_str("\nhint: `TMPDIR=/another/folder` names another folder to build in");
        }
        BuildError::Step(StepError::Failed { output, .. }) => {
            for line in output.lines() {
                _ = write!(text, "\n  {line}");
            }
            if release(version) > NEWEST {
                _ = write!(text, "\nhint: {}", newer(version));
            }
        }
        BuildError::Step(_) | BuildError::NotLoaded { .. } => {}
    }
    text
}

/// The PHP that was asked for.
fn named(php: Option<&Path>) -> Result<PathBuf, String> {
    let name = php.unwrap_or_else(|| Path::new("php"));
    let folder = crate::directories::current();
    let found = which(name, std::env::var_os("PATH"), &folder).filter(|path| path.is_file());
    found.ok_or_else(|| match php {
        Some(php) => format!("there is no PHP `{}`\nhint: `--php` takes a path or a name in PATH", php.display()),
        None => "there is no `php` in PATH\nhint: `apt install php-cli` for instance, or name one by `--php`".to_owned(),
    })
}

/// Said of a PHP above [`NEWEST`].
fn newer(version: &str) -> String {
    format!("PHP {version} is newer than Pronghorn {VERSION}, which was not tried with it")
}

/// Of `8.2.36`: 8 and 2.
fn release(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// `extension status --json`; the reference of the command line describes it.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    folders: Vec<PathBuf>,
    phps: Vec<Standing>,
}

#[derive(Serialize)]
struct Standing {
    php: PathBuf,
    /// None where it does not answer.
    version: Option<String>,
    identity: Option<String>,
    /// Whether this release of ours was tried with that one.
    tried: bool,
    state: BuildState,
    file: Option<PathBuf>,
    release: Option<String>,
    /// What to type.
    install: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum BuildState {
    /// A build is there.
    Ready,
    /// Its `php.ini` loads one.
    PhpIni,
    /// A build is there, of another release of ours, or PHP does not load it.
    Unfit,
    Missing,
    /// Older than the extension supports.
    TooOld,
    /// It does not say what it is.
    Silent,
}

async fn status(spawner: &Spawner, json: bool) -> Exit {
    let phps = installed_phps();
    if phps.is_empty() && !json {
        return failed("there is no PHP in PATH\nhint: `apt install php-cli` for instance");
    }
    let mut report = Report {
        version: VERSION,
        folders: folders(),
        phps: Vec::new(),
    };
    for php in phps {
        report.phps.push(standing(spawner, php).await);
    }
    if json {
        let text = serde_json::to_string_pretty(&report).unwrap_or_default();
        say(&format!("{text}\n"));
    } else {
        say(&table(&report));
    }
    match report.phps.first().map(|first| first.state) {
        Some(BuildState::Ready | BuildState::PhpIni) => Exit::Done,
        _ => Exit::Failed,
    }
}

async fn standing(spawner: &Spawner, php: PathBuf) -> Standing {
    let mut standing = Standing {
        php,
        version: None,
        identity: None,
        tried: false,
        state: BuildState::Silent,
        file: None,
        release: None,
        install: None,
    };
    let Some(about) = ask_php(spawner, &standing.php).await else {
        return standing;
    };
    let build = find(&about.identity);
    let built = match &build {
        Some(build) => build.release(spawner, &standing.php).await.ok(),
        None => None,
    };
    let file = build.map(|build| build.path().to_owned());
    standing.state = if release(&about.version) < OLDEST {
        BuildState::TooOld
    } else if about.has_extension && about.release == VERSION {
        BuildState::PhpIni
    } else if about.has_extension {
        BuildState::Unfit
    } else if built.as_deref() == Some(VERSION) {
        BuildState::Ready
    } else if file.is_some() {
        BuildState::Unfit
    } else {
        BuildState::Missing
    };
    if matches!(standing.state, BuildState::Missing | BuildState::Unfit) && !about.has_extension {
        standing.install = Some(extension_command(&standing.php));
    }
    standing.tried = (OLDEST..=NEWEST).contains(&release(&about.version));
    let loaded = about.has_extension.then_some(about.ini_file);
    standing.file = loaded.or(file);
    standing.release = if about.has_extension {
        Some(about.release)
    } else {
        built
    };
    standing.version = Some(about.version);
    standing.identity = Some(about.identity);
    standing
}

fn table(report: &Report) -> String {
    let mut text = String::new();
    for it in &report.phps {
        let version = it.version.as_deref().unwrap_or("?");
        let identity = it.identity.as_deref().unwrap_or_default();
        let file = it.file.as_deref().map(Path::display);
        let file = file.map_or_else(String::new, |file| file.to_string());
        let remedy = it.install.as_deref().map_or_else(
            || "take it out of php.ini".to_owned(),
            |install| format!("`{install}` builds it"),
        );
        let state = match it.state {
            BuildState::Ready => format!("ready: {file}"),
            BuildState::PhpIni => format!("loaded by {file}"),
            BuildState::Unfit => {
                let found = it
                    .release
                    .as_deref()
                    .unwrap_or("one that this PHP does not load");
                format!("{file} has {found}, and the server is {VERSION}: {remedy}")
            }
            BuildState::Missing => format!("missing: {remedy}"),
            BuildState::TooOld => "PHP is older than 8.1, which the extension needs".to_owned(),
            BuildState::Silent => "does not report its version".to_owned(),
        };
        _ = writeln!(
            text,
            "{}  {version}  {identity}\n    {state}",
            it.php.display()
        );
        if release(version) > NEWEST {
            _ = writeln!(text, "    {}", newer(version));
        }
    }
    let looked: Vec<_> = report
        .folders
        .iter()
        .map(|it| it.display().to_string())
        .collect();
    _ = writeln!(text, "builds are looked for in {}", looked.join(", "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_its_first_two_numbers() {
        assert_eq!(release("8.2.36"), (8, 2));
        assert_eq!(release("8.6.0RC3"), (8, 6));
        assert!(release("8.0.30") < OLDEST && release("8.10.1") > NEWEST);
        assert_eq!(release("?"), (0, 0));
    }
}
