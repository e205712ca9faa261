//! Programs that run the command in their arguments: `nice -n 5 php worker.php`.
//!
//! This is a list of words, and no more. After an option that is not listed, the next word may be
//! its value, so nobody can tell where the command begins. `sudo` is not listed: it reads a
//! configuration of its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

struct Wrapper {
    name: &'static str,
    /// Options with a value, which may stand in the same word.
    valued: &'static [&'static str],
    flags: &'static [&'static str],
    /// Words between the options and the command.
    operands: usize,
}

/// The options are those of GNU and util-linux.
const WRAPPERS: [Wrapper; 6] = [
    Wrapper {
        name: "env",
        valued: &["-u", "--unset"],
        flags: &["-", "-i", "--ignore-environment"],
        operands: 0,
    },
    Wrapper {
        name: "nice",
        valued: &["-n", "--adjustment"],
        flags: &[],
        operands: 0,
    },
    Wrapper {
        name: "ionice",
        valued: &["-c", "--class", "-n", "--classdata"],
        flags: &["-t", "--ignore"],
        operands: 0,
    },
    Wrapper {
        name: "nohup",
        valued: &[],
        flags: &[],
        operands: 0,
    },
    Wrapper {
        name: "setsid",
        valued: &[],
        flags: &["-c", "--ctty", "-f", "--fork", "-w", "--wait"],
        operands: 0,
    },
    Wrapper {
        name: "timeout",
        valued: &["-k", "--kill-after", "-s", "--signal"],
        flags: &["--foreground", "--preserve-status", "-v", "--verbose"],
        operands: 1,
    },
];

/// The command that a command runs in the end; the same where nobody can tell.
pub(super) fn wrapped(mut argv: &[OsString]) -> &[OsString] {
    while let Some(wrapper) = argv.first().and_then(|name| Wrapper::named(name)) {
        match wrapper.command(&argv[1..]) {
            Some(command) => argv = command,
            None => break,
        }
    }
    argv
}

impl Wrapper {
    fn named(program: &OsStr) -> Option<&'static Self> {
        let name = Path::new(program).file_name()?;
        WRAPPERS.iter().find(|wrapper| name == wrapper.name)
    }

    /// The command among its arguments.
    fn command<'a>(&self, mut words: &'a [OsString]) -> Option<&'a [OsString]> {
        let is_option = |word: &&OsString| word.as_bytes().starts_with(b"-");
        while let Some(word) = words.first().filter(is_option) {
            words = words.get(self.words_of(word.to_str()?)?..)?;
            if word == "--" {
                break;
            }
        }
        if self.name == "env" {
            let is_variable = |word: &&OsString| word.as_bytes().contains(&b'=');
            words = &words[words.iter().take_while(is_variable).count()..];
        }
        words.get(self.operands..).filter(|words| !words.is_empty())
    }

    /// The number of words that an option is; None for one that is not known.
    fn words_of(&self, option: &str) -> Option<usize> {
        let is_joined = |valued: &&&str| {
            let value = option.strip_prefix(**valued).unwrap_or_default();
            value.starts_with('=') || (!valued.starts_with("--") && !value.is_empty())
        };
        let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        let is_adjustment = || option.strip_prefix('-').is_some_and(is_number);
        if option == "--"
            || self.flags.contains(&option)
            || (self.name == "nice" && is_adjustment())
        {
            Some(1)
        } else if self.valued.contains(&option) {
            Some(2)
        } else {
            self.valued.iter().find(is_joined).map(|_| 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_after_wrappers_is_found() {
        for (written, expected) in [
            ("php a.php", "php a.php"),
            ("env php a.php", "php a.php"),
            (
                "/usr/bin/env -i -u A -uB --unset=C X=1 Y= php a.php",
                "php a.php",
            ),
            ("env - X=1 php a.php X=1", "php a.php X=1"),
            ("nice -n 5 php a.php", "php a.php"),
            ("nice -n5 nohup php a.php", "php a.php"),
            ("nice --adjustment=5 php a.php", "php a.php"),
            ("nice -5 php a.php", "php a.php"),
            ("ionice -c 2 -n7 -t php a.php", "php a.php"),
            ("setsid -w php a.php", "php a.php"),
            (
                "timeout -k 5s --signal TERM 1h php -n a.php",
                "php -n a.php",
            ),
            ("timeout --foreground -- 1h php a.php", "php a.php"),
            ("env X=1 nice timeout 5 setsid php a.php", "php a.php"),
            // Nobody can tell where the command begins, or there is none.
            ("env -C dir php a.php", "env -C dir php a.php"),
            ("env -S 'php a.php'", "env -S 'php a.php'"),
            ("nice --adjust 5 php a.php", "nice --adjust 5 php a.php"),
            ("env X=1", "env X=1"),
            ("timeout 5", "timeout 5"),
            ("nice -n", "nice -n"),
            ("sudo -u www php a.php", "sudo -u www php a.php"),
            ("", ""),
        ] {
            let argv: Vec<OsString> = written.split(' ').map(OsString::from).collect();
            let words: Vec<_> = wrapped(&argv).iter().filter_map(|it| it.to_str()).collect();
            assert_eq!(words.join(" "), expected, "{written}");
        }
    }
}
