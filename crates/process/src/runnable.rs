//! Whether a command can be started, before anything is started for it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pronghorn_base::open_linked;
use thiserror::Error;

use crate::Credentials;
use crate::credentials::may_run;

/// The kernel reads no more of a script's first line.
const FIRST_LINE: u64 = 256;

/// Why a program can't be started, for the operator. The texts follow the program's name and
/// `which`.
#[derive(Debug, Error)]
pub enum NotRunnable {
    #[error("was not found")]
    Missing,
    #[error("is a directory")]
    Directory,
    /// It is a pipe or a device, for instance.
    #[error("is not a file")]
    NoFile,
    /// Nobody may run it.
    #[error("is not executable")]
    NotExecutable(PathBuf),
    /// Another user may be able to run it. `user` is None for this process's own.
    #[error(
        "the user {} may not execute: {source}",
        user.as_deref().map_or_else(|| "of this command".to_owned(), |name| format!("`{name}`"))
    )]
    Denied {
        found: PathBuf,
        user: Option<String>,
        source: io::Error,
    },
    /// The first line of the script names a program that is not there.
    #[error("asks for `{}` in its first line, which was not found", .0.as_encoded_bytes().escape_ascii())]
    NoInterpreter(OsString),
}

impl NotRunnable {
    /// Whether another user might start it.
    #[must_use]
    pub const fn is_about_user(&self) -> bool {
        matches!(self, Self::Denied { .. })
    }

    /// The remedy. Paths of commands begin in `directory`.
    #[must_use]
    pub fn hint(&self, directory: &Path) -> String {
        match self {
            Self::Missing => format!(
                "a name is looked up in PATH, and a path is taken from {}",
                directory.display()
            ),
            Self::Directory | Self::NoFile => "name a program, and its arguments after it".into(),
            Self::NotExecutable(found) => format!(
                "`chmod +x {0}` if it is a program; a script is an argument of its interpreter, \
                 for example `php {0}`",
                found.display()
            ),
            Self::Denied { found, .. } => format!(
                "`chmod a+rx {0}`; `namei -l {0}` shows who may enter its directories",
                found.display()
            ),
            Self::NoInterpreter(name) if name.as_bytes().ends_with(b"\r") => {
                "the script has line ends of Windows: `sed -i 's/\\r$//' FILE` removes them".into()
            }
            Self::NoInterpreter(_) => "install it, or correct the first line".into(),
        }
    }
}

/// The file that a command starts as this user, none for whoever asks: with `path` as its PATH, in
/// this directory.
///
/// # Errors
///
/// Why it would not be started.
pub fn find_runnable(
    name: impl AsRef<OsStr>,
    path: Option<&OsStr>,
    directory: &Path,
    user: Option<&Credentials>,
) -> Result<PathBuf, NotRunnable> {
    let name = name.as_ref();
    if name.is_empty() {
        return Err(NotRunnable::Missing);
    }
    if name.as_bytes().contains(&b'/') {
        return judge(directory.join(name), user);
    }
    // As the system looks: it skips files that can't be run. The first of them is the reason if
    // there is no other file.
    let mut refused = NotRunnable::Missing;
    for entry in std::env::split_paths(path.unwrap_or_default()) {
        let found = directory.join(entry).join(name);
        if !found.is_file() {
            continue;
        }
        match judge(found, user) {
            Ok(found) => return Ok(found),
            Err(why) if matches!(refused, NotRunnable::Missing) => refused = why,
            Err(_) => {}
        }
    }
    Err(refused)
}

fn judge(found: PathBuf, user: Option<&Credentials>) -> Result<PathBuf, NotRunnable> {
    let Ok(metadata) = std::fs::metadata(&found) else {
        return Err(NotRunnable::Missing);
    };
    if metadata.is_dir() {
        return Err(NotRunnable::Directory);
    }
    if !metadata.is_file() {
        return Err(NotRunnable::NoFile);
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(NotRunnable::NotExecutable(found));
    }
    let line = first_line(&found);
    let allowed = match user {
        Some(user) => user.may_run(&found).and_then(|()| match line {
            // Its interpreter reads it.
            Some(_) => user.may_read(&found),
            None => Ok(()),
        }),
        None => may_run(&found),
    };
    if let Err(source) = allowed {
        let user = user.map(|user| user.name().to_owned());
        return Err(NotRunnable::Denied {
            found,
            user,
            source,
        });
    }
    match line.and_then(|line| missing_interpreter(&line)) {
        Some(name) => Err(NotRunnable::NoInterpreter(name)),
        None => Ok(found),
    }
}

/// The text after the `#!` of a script, as far as the kernel reads it: its first line, and what
/// follows that. None if it is not a script, or can't be read.
pub fn after_shebang(script: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let file = open_linked(script).ok()?;
    file.take(FIRST_LINE).read_to_end(&mut text).ok()?;
    text.strip_prefix(b"#!").map(<[u8]>::to_vec)
}

fn first_line(script: &Path) -> Option<Vec<u8>> {
    let text = after_shebang(script)?;
    text.split(|byte| *byte == b'\n').next().map(<[u8]>::to_vec)
}

/// The program that such a line names, if it is not there.
fn missing_interpreter(line: &[u8]) -> Option<OsString> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut words = line.split(is_space).filter(|word| !word.is_empty());
    let name = words.next()?;
    let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    if line.ends_with(b"\r") {
        // The system takes it for a letter.
        return Some(word(words.next_back().unwrap_or(name)));
    }
    // A relative one depends on where the program works.
    let is_missing = name.starts_with(b"/") && !Path::new(OsStr::from_bytes(name)).exists();
    is_missing.then(|| word(name))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};

    use pronghorn_testkit::Directory;

    use super::*;

    fn why(directory: &Directory, name: &str, user: Option<&Credentials>) -> Option<String> {
        let path = format!("{}:/usr/bin:/bin", directory.join("bin").display());
        let found = find_runnable(name, Some(path.as_ref()), directory, user);
        found.err().map(|why| why.to_string())
    }

    #[test]
    fn each_reason_that_prevents_a_start_has_its_text() {
        let directory = Directory::with(&[
            ("bin/sh", "no program"),
            ("bin/plain", "no program"),
            ("bin/directory/file", ""),
            ("bin/own", "#!/bin/sh\n"),
            ("bin/gone", "#!/nowhere/php -n\n"),
            ("bin/windows", "#!/bin/sh\r\n"),
            ("bin/env", "#!/usr/bin/env php\r\n"),
            ("bin/odd", "#!\n"),
            ("bin/relative", "#! php\n"),
        ]);
        for name in ["own", "gone", "windows", "env", "odd", "relative"] {
            let path = directory.join("bin").join(name);
            set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        for (name, expected) in [
            ("", Some("was not found")),
            ("nowhere", Some("was not found")),
            ("./nowhere", Some("was not found")),
            ("directory", Some("was not found")),
            ("bin/directory", Some("is a directory")),
            (".", Some("was not found")),
            ("/dev/null", Some("is not a file")),
            ("plain", Some("is not executable")),
            ("bin/plain", Some("is not executable")),
            // That of the system comes later in PATH.
            ("sh", None),
            ("bin/own", None),
            ("odd", None),
            ("relative", None),
            (
                "gone",
                Some("asks for `/nowhere/php` in its first line, which was not found"),
            ),
            (
                "bin/env",
                Some("asks for `php\\r` in its first line, which was not found"),
            ),
            (
                "windows",
                Some("asks for `/bin/sh\\r` in its first line, which was not found"),
            ),
        ] {
            assert_eq!(why(&directory, name, None).as_deref(), expected, "{name}");
        }
        let nothing = find_runnable("sh", None, &directory, None);
        assert!(matches!(nothing, Err(NotRunnable::Missing)));
    }

    #[test]
    fn a_program_is_judged_as_the_user_that_runs_it() {
        if !Credentials::may_change() {
            return;
        }
        let nobody = Credentials::look_up("nobody", None).unwrap();
        let directory = Directory::with(&[("bin/own", "#!/bin/sh\n")]);
        let path = directory.join("bin/own");
        set_permissions(&path, Permissions::from_mode(0o744)).unwrap();
        assert_eq!(why(&directory, "own", None), None);
        let denied = why(&directory, "own", Some(&nobody)).unwrap();
        assert!(
            denied.starts_with("the user `nobody` may not execute: "),
            "{denied}"
        );
        assert_eq!(why(&directory, "sh", Some(&nobody)), None);
        // A script is read as well.
        set_permissions(&path, Permissions::from_mode(0o711)).unwrap();
        assert!(why(&directory, "own", Some(&nobody)).is_some());
        set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(why(&directory, "own", Some(&nobody)), None);
    }
}
