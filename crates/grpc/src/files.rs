//! Finds the `.proto` files of the configuration and reads them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::proto::{ProtoFile, SyntaxError, scan};

/// Files that are read, imports too.
const MOST_FILES: usize = 2000;
/// Bytes of a file. The longest that people write have some hundred kilobytes.
pub(crate) const LONGEST_FILE: u64 = 4 << 20;

/// Characters that make a path a pattern, as in RoadRunner.
const OF_PATTERNS: [char; 4] = ['*', '?', '[', '{'];

/// The operator's: `.proto` files that can't be served.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    #[error("cannot read `{path}`: {cause}", path = .path.display())]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("`{path}` is no .proto file: {cause}", path = .path.display())]
    Syntax { path: PathBuf, cause: SyntaxError },
    #[error("the pattern `{0}` can't be read")]
    Pattern(String),
    #[error("there are more than {MOST_FILES} .proto files")]
    TooMany,
    #[error(
        "the service `{service}` is in two files: `{first}` and `{second}`",
        first = .first.display(), second = .second.display()
    )]
    Twice {
        service: String,
        first: PathBuf,
        second: PathBuf,
    },
    #[cfg_attr(
        not(feature = "descriptors"),
        expect(dead_code, reason = "rules are read in builds that have descriptors")
    )]
    #[error("the option `google.api.http` of `{method}` can't be used: {why}")]
    Rule { method: String, why: String },
    #[cfg_attr(
        feature = "descriptors",
        expect(dead_code, reason = "builds with descriptors have JSON")
    )]
    #[error("{NO_DESCRIPTORS}")]
    NoDescriptors,
}

/// The reason for which a build has no JSON.
pub(crate) const NO_DESCRIPTORS: &str =
    "this binary was built without the cargo feature `descriptors`, which JSON needs";
/// The step that mends it.
pub(crate) const WITH_DESCRIPTORS: &str =
    "`make build DRIVERS=descriptors` builds a server with it, and packages have it";

impl FileError {
    /// A step that mends it, for people.
    pub(crate) const fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "relative paths begin in the directory of the configuration",
            Self::Syntax { .. } => "`protoc` refuses it as well; correct the file or take it out",
            Self::Pattern(_) => "`*`, `**`, `?`, `[a-z]` and `{a,b}` make a pattern",
            Self::TooMany => "name fewer",
            Self::Rule { .. } => "correct the option, or take it out",
            Self::NoDescriptors => WITH_DESCRIPTORS,
            Self::Twice { .. } => "a client could not tell them apart: take one of them out",
        }
    }
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) path: PathBuf,
    pub(crate) file: ProtoFile,
}

/// Reads the files that these names and patterns stand for, and those that they import from beside
/// them. An import that is not there is passed over, as in RoadRunner.
pub(crate) fn read_all(named: &[String], directory: &Path) -> Result<Vec<Read>, FileError> {
    let mut roots = Vec::new();
    for name in named {
        roots.extend(paths(name, directory)?);
    }
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for root in roots {
        let beside = root.parent().map(Path::to_owned).unwrap_or_default();
        let mut waiting = vec![(root, true)];
        while let Some((path, is_root)) = waiting.pop() {
            let identity = match path.canonicalize() {
                Ok(identity) => identity,
                Err(_) if !is_root => continue,
                Err(cause) => return Err(FileError::Unreadable { path, cause }),
            };
            if !seen.insert(identity) {
                continue;
            }
            if found.len() == MOST_FILES {
                return Err(FileError::TooMany);
            }
            let file = read(&path)?;
            for import in file.imports.iter().rev() {
                // An absolute path, or one out of the directory, is none of `protoc`.
                let is_inside = !import.starts_with('/') && !import.split('/').any(|it| it == "..");
                let imported = beside.join(import);
                if is_inside && imported.is_file() {
                    waiting.push((imported, false));
                }
            }
            found.push(Read { path, file });
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<ProtoFile, FileError> {
    let text = pronghorn_base::read_linked(path, LONGEST_FILE);
    let text = text.map_err(|cause| FileError::Unreadable {
        path: path.to_owned(),
        cause,
    })?;
    scan(&text).map_err(|cause| FileError::Syntax {
        path: path.to_owned(),
        cause,
    })
}

/// The files that a name stands for. A pattern may stand for none; a plain name is one file.
pub(crate) fn paths(name: &str, directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    if !name.contains(OF_PATTERNS) {
        return Ok(vec![directory.join(name)]);
    }
    let mut all = BTreeSet::new();
    for pattern in braces(name).ok_or_else(|| FileError::Pattern(name.to_owned()))? {
        let whole = directory.join(&pattern);
        let found = whole.to_str().and_then(|whole| glob::glob(whole).ok());
        let found = found.ok_or_else(|| FileError::Pattern(name.to_owned()))?;
        for path in found.flatten() {
            if all.len() > MOST_FILES {
                return Err(FileError::TooMany);
            }
            if path.is_file() {
                all.insert(path);
            }
        }
    }
    Ok(all.into_iter().collect())
}

/// Patterns without braces that one with braces stands for. None where they do not match, or make
/// too many.
fn braces(pattern: &str) -> Option<Vec<String>> {
    let mut waiting = vec![pattern.to_owned()];
    let mut done = Vec::new();
    while let Some(pattern) = waiting.pop() {
        if done.len() + waiting.len() > MOST_FILES {
            return None;
        }
        let Some(close) = pattern.find('}') else {
            if pattern.contains('{') {
                return None;
            }
            done.push(pattern);
            continue;
        };
        let (before, after) = (pattern.get(..close)?, pattern.get(close + 1..)?);
        let (before, choices) = before.rsplit_once('{')?;
        let choices = choices.split(',');
        waiting.extend(choices.map(|choice| format!("{before}{choice}{after}")));
    }
    Some(done)
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    fn names(found: &[Read]) -> Vec<String> {
        let names = found
            .iter()
            .map(|it| it.path.file_name().unwrap().to_string_lossy());
        names.map(std::borrow::Cow::into_owned).collect()
    }

    #[test]
    fn patterns_and_imports_are_followed_once() {
        let directory = Directory::new();
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let imports = "import \"c.proto\"; import \"google/missing.proto\"; import \"a.proto\";";
        write("p/a.proto", imports);
        write("p/c.proto", "import \"a.proto\"; import \"../d.proto\";");
        write("p/deep/b.proto", "service B {}");
        write("d.proto", "service D {}");
        let read = |named: &[&str]| {
            let named: Vec<_> = named.iter().map(|it| (*it).to_owned()).collect();
            read_all(&named, directory.as_ref())
        };
        assert_eq!(
            names(&read(&["p/a.proto"]).unwrap()),
            ["a.proto", "c.proto"]
        );
        let all = read(&["p/**/*.proto", "p/{a,c}.proto", "p/a.proto"]).unwrap();
        assert_eq!(names(&all), ["a.proto", "c.proto", "b.proto"]);
        assert!(read(&["q/*.proto"]).unwrap().is_empty());
        assert!(matches!(
            read(&["q.proto"]),
            Err(FileError::Unreadable { .. })
        ));
        assert!(matches!(read(&["p/{a.proto"]), Err(FileError::Pattern(_))));
        write("e.proto", "service {");
        let error = read(&["e.proto"]).unwrap_err().to_string();
        assert!(
            error.ends_with("line 1: `{` is no name of a service"),
            "{error}"
        );
    }

    #[test]
    fn braces_are_choices() {
        let mut all = braces("{a,b}/{c,}.x").unwrap();
        all.sort();
        assert_eq!(all, ["a/.x", "a/c.x", "b/.x", "b/c.x"]);
        assert_eq!(braces("a}"), None);
        assert_eq!(braces(&"{a,b}".repeat(30)), None);
    }
}
