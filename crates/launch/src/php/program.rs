//! Which PHP a command runs, by its name or by the first line of the script that it names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pronghorn_process::{after_shebang, search_path, which};

use super::Program;

/// A machine for all releases has five of them, with and without threads.
const MOST_PHPS: usize = 32;

/// None where the command does not tell: `docker exec`, a shell.
pub(super) fn find(argv: &[OsString], env: &[(OsString, OsString)], cwd: &Path) -> Option<Program> {
    let (name, arguments) = argv.split_first()?;
    let path = resolve(name, env, cwd)?;
    if is_php(Path::new(name)) {
        let options = options(arguments);
        let script = arguments.get(options.len());
        let script = script.filter(|script| !script.as_bytes().starts_with(b"-"));
        let script = script.map(|script| cwd.join(script));
        return Some(Program {
            path,
            options: options.to_vec(),
            script,
        });
    }
    let interpreter = interpreter(&path)?;
    let mut words = interpreter.split_ascii_whitespace().map(OsString::from);
    let mut php = words.next()?;
    if Path::new(&php).file_name() == Some(OsStr::new("env")) {
        php = words.next()?;
    }
    is_php(Path::new(&php)).then_some(())?;
    Some(Program {
        path: resolve(&php, env, cwd)?,
        options: words.collect(),
        script: Some(path),
    })
}

/// Whether there is a program for the command.
pub(super) fn is_there(argv: &[OsString], env: &[(OsString, OsString)], cwd: &Path) -> bool {
    let name = argv.first();
    name.is_some_and(|name| resolve(name, env, cwd).is_some_and(|path| path.is_file()))
}

impl Program {
    /// Its command line with more options, before all others: of two that say something else, PHP
    /// takes the last one. A script that names its PHP in its first line is run as the kernel would
    /// run it.
    pub(super) fn argv(&self, argv: &[OsString], more: Vec<OsString>) -> Vec<OsString> {
        let Some((name, arguments)) = argv.split_first() else {
            return Vec::new();
        };
        let mut all = Vec::with_capacity(argv.len() + more.len() + self.options.len() + 1);
        if is_php(Path::new(name)) {
            all.push(name.clone());
            all.extend(more);
        } else {
            all.push(self.path.clone().into());
            all.extend(more);
            all.extend_from_slice(&self.options);
            let is_path = name.as_bytes().contains(&b'/');
            let script = self.script.as_ref().filter(|_| !is_path);
            all.push(script.map_or_else(|| name.clone(), |found| found.clone().into()));
        }
        all.extend_from_slice(arguments);
        all
    }
}

/// `php`, `php8.2`, `php82`, `php-zts`: what takes `-r` and is no php-cgi.
pub(super) fn is_php(path: &Path) -> bool {
    let Some(rest) = path
        .file_name()
        .and_then(OsStr::to_str)
        .and_then(|name| name.strip_prefix("php"))
    else {
        return false;
    };
    let suffix = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(suffix, "" | "-cli" | "-zts")
}

/// Every PHP in the search path, the one that `php` stands for first; each file once, by its first
/// name.
pub fn installed() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = Vec::new();
    let mut files = Vec::new();
    let mut note = |path: PathBuf| {
        let file = path.canonicalize().unwrap_or_else(|_| path.clone());
        // What a shell can't run is no PHP.
        let runs = rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).is_ok();
        if file.is_file() && runs && !files.contains(&file) && found.len() < MOST_PHPS {
            files.push(file);
            found.push(path);
        }
    };
    if let Some(first) = which("php", Some(&path), Path::new("/")) {
        note(first);
    }
    for folder in std::env::split_paths(&path).filter(|folder| folder.is_absolute()) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
        paths.retain(|path| is_php(path));
        paths.sort();
        paths.into_iter().for_each(&mut note);
    }
    found
}

/// Whether PHP runs a script after these options: not code of the command line, nor its own server.
pub(super) fn runs_script(options: &[OsString]) -> bool {
    let mut options = options.iter().map(|option| option.as_bytes());
    options.all(|option| {
        !option.starts_with(b"-")
            || matches!(option.get(1), Some(b'c' | b'd' | b'f' | b'n' | b'q' | b'z'))
    })
}

/// What stands before the script: `-d memory_limit=1G`, for instance.
fn options(arguments: &[OsString]) -> &[OsString] {
    let mut value_follows = false;
    let is_option = |argument: &&OsString| {
        // What follows `-r` is code.
        let begins = argument.as_bytes().starts_with(b"-") && *argument != "-r";
        let belongs = value_follows || begins;
        value_follows = matches!(argument.as_bytes(), b"-d" | b"-c" | b"-z");
        belongs
    };
    &arguments[..arguments.iter().take_while(is_option).count()]
}

fn resolve(name: &OsStr, env: &[(OsString, OsString)], cwd: &Path) -> Option<PathBuf> {
    which(name, search_path(env), cwd)
}

/// The first line of a script, after its `#!`.
fn interpreter(script: &Path) -> Option<String> {
    let mut line = after_shebang(script)?;
    let end = line.iter().position(|&byte| byte == b'\n')?;
    line.truncate(end);
    String::from_utf8(line).ok()
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    fn found(command: &[&str], cwd: &Path) -> Option<Program> {
        let argv: Vec<_> = command.iter().map(OsString::from).collect();
        let path = cwd.join("bin");
        find(&argv, &[("PATH".into(), path.into())], cwd)
    }

    #[test]
    fn a_php_is_known_by_its_name() {
        for name in [
            "php",
            "php8.2",
            "php84",
            "/usr/bin/php",
            "php-zts",
            "php8.4-cli",
        ] {
            assert!(is_php(Path::new(name)), "{name}");
        }
        for name in [
            "php-cgi",
            "php-fpm8.2",
            "phpunit",
            "docker",
            "sh",
            "xphp",
            "",
        ] {
            assert!(!is_php(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn the_command_tells_program_options_and_script() {
        let directory = Directory::new();
        let bin = directory.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("php"), "").unwrap();
        std::fs::write(directory.join("tool"), "#!/usr/bin/env php\n<?php").unwrap();
        std::fs::write(
            directory.join("direct"),
            "#!/opt/php/bin/php8.4 -d a=b\n<?php",
        )
        .unwrap();
        std::fs::write(directory.join("script"), "#!/bin/sh\nexec php worker.php\n").unwrap();

        let plain = found(&["php", "-d", "a=b", "-n", "worker.php", "-x"], &directory).unwrap();
        assert_eq!(plain.path, bin.join("php"));
        assert_eq!(plain.options, ["-d", "a=b", "-n"]);
        assert_eq!(plain.script, Some(directory.join("worker.php")));

        let tool = found(&["./tool", "serve"], &directory).unwrap();
        assert_eq!((tool.path, tool.options.len()), (bin.join("php"), 0));
        assert_eq!(tool.script, Some(directory.join("./tool")));

        let direct = found(&["./direct"], &directory).unwrap();
        assert_eq!(direct.path, Path::new("/opt/php/bin/php8.4"));
        assert_eq!(direct.options, ["-d", "a=b"]);

        let script = |command: &[&str]| {
            let program = found(command, &directory).unwrap();
            program.script.filter(|_| runs_script(&program.options))
        };
        let expected = Some(directory.join("a.php"));
        assert_eq!(script(&["php", "-f", "a.php"]), expected);
        assert_eq!(script(&["php", "-q", "-d", "a=b", "a.php"]), expected);
        assert_eq!(script(&["php", "-r", "echo 1;"]), None);
        assert_eq!(script(&["php", "-S", "127.0.0.1:80"]), None);
        assert_eq!(script(&["php", "--ini", "x"]), None);
        assert_eq!(script(&["php"]), None);

        let argv = |program: &Program, command: &[&str]| {
            let command: Vec<_> = command.iter().map(OsString::from).collect();
            let argv = program.argv(&command, vec!["-d".into(), "x=y".into()]);
            let words: Vec<_> = argv.iter().map(|word| word.to_str().unwrap()).collect();
            words.join(" ")
        };
        assert_eq!(
            argv(&plain, &["php", "-d", "a=b", "-n", "worker.php", "-x"]),
            "php -d x=y -d a=b -n worker.php -x",
        );
        assert_eq!(
            argv(&direct, &["./direct", "serve"]),
            "/opt/php/bin/php8.4 -d x=y -d a=b ./direct serve",
        );

        for unclear in [
            &["./script"][..],
            &["sh", "-c", "php worker.php"],
            &["none"],
            &[],
        ] {
            assert_eq!(found(unclear, &directory), None, "{unclear:?}");
        }
    }
}
