//! The PHP extension: its sources, which the binary carries, where its builds lie, and how one is
//! built for a PHP.
//!
//! Knows no pool and no command line. Which PHP a pool runs, and what that PHP says of itself, is
//! known in `launch`.

#![forbid(unsafe_code)]

mod build;
mod folders;
mod run;
mod toolchain;

pub use build::{BuildError, StepError, build};
pub use folders::{Build, VARIABLE, file_name, find, folder_to_install, folders};
pub use toolchain::{Toolchain, ToolchainError};

/// The C sources and `config.m4`, by name.
pub const SOURCES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/sources.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A release of the server, of the extension and of the PHP package is one number, that of the
    /// workspace: a worker whose parts have different ones gets pipes. `UPDATE_GOLDEN=1` writes it.
    #[test]
    fn all_parts_are_of_one_release() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let version = env!("CARGO_PKG_VERSION");
        for (file, before, after) in [
            (
                "ext/pronghorn/release.h",
                "#define PRONGHORN_VERSION \"",
                "\"\n",
            ),
            (
                "php/worker/src/Internal/Frames.php",
                "const RELEASE = '",
                "';\n",
            ),
        ] {
            let path = root.join(file);
            let text = std::fs::read_to_string(&path).unwrap();
            let (head, rest) = text.split_once(before).expect(file);
            let (found, tail) = rest.split_once(after).expect(file);
            if found != version && std::env::var_os("UPDATE_GOLDEN").is_some() {
                let text = [head, before, version, after, tail].concat();
                std::fs::write(&path, text).unwrap();
                continue;
            }
            assert_eq!(found, version, "{file}: UPDATE_GOLDEN=1 writes it");
        }
        let changelog = std::fs::read_to_string(root.join("CHANGELOG.md")).unwrap();
        let title = format!("## {version}\n");
        assert!(changelog.contains(&title), "CHANGELOG.md has no `{title}`");
    }

    #[test]
    fn the_sources_are_those_of_the_repository() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ext/pronghorn");
        let mut there: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| [".c", ".h", ".m4"].iter().any(|end| name.ends_with(end)))
            .collect();
        there.sort();
        let embedded: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        assert_eq!(embedded, there);
        for (name, content) in SOURCES {
            assert_eq!(
                *content,
                std::fs::read(folder.join(name)).unwrap(),
                "{name}"
            );
        }
        // What config.m4 compiles.
        let rules = SOURCES
            .iter()
            .find(|(name, _)| *name == "config.m4")
            .unwrap()
            .1;
        let rules = String::from_utf8_lossy(rules);
        let words = rules.split(['[', ' ', ']']);
        let compiled = words.filter(|word| word.strip_suffix(".c").is_some());
        for name in compiled {
            assert!(embedded.contains(&name), "{name}");
        }
    }
}
