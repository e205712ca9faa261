//! Files of a site that are not sent: by their ending, their name, or their path.

use super::path::{ending, is_php, name};

/// What a compressed copy is called beside its file.
const COMPRESSED: [&[u8]; 6] = [b".gz", b".bz2", b".xz", b".zst", b".br", b".zip"];

/// The name of the file that one of this name would be a compressed copy of.
pub(super) fn uncompressed(name: &[u8]) -> Option<&[u8]> {
    COMPRESSED.iter().find_map(|suffix| {
        let (plain, end) = name.split_at(name.len().checked_sub(suffix.len())?);
        end.eq_ignore_ascii_case(suffix).then_some(plain)
    })
}

/// Without regard to the case of letters: a file system may not have one.
#[derive(Debug, Clone, Default)]
pub struct Forbidden {
    /// With their dots.
    endings: Vec<Box<[u8]>>,
    /// Ends of names, wherever their dots are.
    tails: Vec<Box<[u8]>>,
    names: Vec<Box<[u8]>>,
    /// Files and directories.
    paths: Vec<Box<[u8]>>,
    /// Directories below which no file is sent, and scripts run; each with its slash.
    below: Vec<Box<[u8]>>,
}

impl Forbidden {
    /// `.sql` is an ending, `*~` what a name ends in, `composer.json` a name, and what has a slash
    /// in it a path below the root, of a file or a directory. `*` and `a/*` are
    /// all files but scripts.
    pub fn new(given: &[String]) -> Self {
        let mut all = Self::default();
        for text in given {
            let bytes = text
                .trim_matches('/')
                .to_ascii_lowercase()
                .into_bytes()
                .into();
            if let Some(below) = text.strip_suffix('*').filter(|it| is_directory(it)) {
                let below = below.trim_start_matches('/').to_ascii_lowercase();
                all.below.push(below.into_bytes().into());
            } else if text.contains('/') {
                all.paths.push(bytes);
            } else if text.starts_with('.') {
                all.endings.push(bytes);
            } else if let Some(tail) = text.strip_prefix('*') {
                all.tails
                    .push(tail.to_ascii_lowercase().into_bytes().into());
            } else {
                all.names.push(bytes);
            }
        }
        all
    }

    /// Whether the file at a path below the root, without a slash at its start, is one of them or a
    /// compressed copy of one.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let path = path.to_ascii_lowercase();
        self.names(&path)
            || uncompressed(&path).is_some_and(|path| self.names(path))
            || self.below.iter().any(|it| path.starts_with(it)) && !is_php(name(&path))
    }

    fn is_empty(&self) -> bool {
        let Self {
            endings,
            tails,
            names,
            paths,
            below,
        } = self;
        [endings, tails, names, paths, below]
            .iter()
            .all(|it| it.is_empty())
    }

    fn names(&self, path: &[u8]) -> bool {
        let name = name(path);
        let is_at = |known: &[u8]| {
            let rest = path.strip_prefix(known);
            rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
        };
        self.names.iter().any(|it| **it == *name)
            || ending(name).is_some_and(|last| self.endings.iter().any(|it| **it == *last))
            || self.tails.iter().any(|it| name.ends_with(it))
            || self.paths.iter().any(|it| is_at(it))
    }
}

/// Whether it is the root itself, or ends in a slash.
fn is_directory(path: &str) -> bool {
    path.is_empty() || path.ends_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_ending_name_and_path() {
        let given = [
            ".sql",
            "composer.json",
            "storage/logs/",
            "a/b.txt",
            "*~",
            "*-WAL",
        ];
        let given = given.map(str::to_owned);
        let forbidden = Forbidden::new(&given);
        for path in [
            "dump.sql",
            "sub/DUMP.SQL",
            "dump.sql.gz",
            "composer.json",
            "sub/Composer.json",
            "storage/logs",
            "storage/logs/today",
            "Storage/Logs/a.css",
            "a/b.txt",
            "a/b.txt.br",
            "config.yml~",
            "sub/data.sqlite-wal",
            "notes~.gz",
        ] {
            assert!(forbidden.has(path.as_bytes()), "{path}");
        }
        for path in [
            "a.css",
            "sql",
            "a.sql.css",
            "my-composer.json",
            "sub/storage/logs/a.css",
            "storage/logsx",
            "b.txt",
            "a~b.css",
            "",
        ] {
            assert!(!forbidden.has(path.as_bytes()), "{path}");
        }
        assert!(!Forbidden::default().has(b"dump.sql"));
    }

    #[test]
    fn all_files_are_forbidden_and_no_script() {
        let has = |given: &str, path: &str| {
            let forbidden = Forbidden::new(&[given.to_owned()]);
            forbidden.has(path.as_bytes())
        };
        for (given, path, is_forbidden) in [
            ("*", "a.css", true),
            ("*", "sub/a", true),
            ("*", "index.php", false),
            ("*", "sub/Index.PHP", false),
            ("sub/*", "sub/a.css", true),
            ("/Sub/*", "sub/deeper/a.css", true),
            ("sub/*", "sub/a.php", false),
            ("sub/*", "subtle/a.css", false),
            ("sub/*", "sub", false),
            ("sub/*", "a.css", false),
            // A directory as such is closed with its scripts.
            ("sub/", "sub/a.php", true),
        ] {
            assert_eq!(has(given, path), is_forbidden, "{given} {path}");
        }
    }
}
