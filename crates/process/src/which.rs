//! Which file a program's name stands for.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// As a shell in `folder` finds it: in the first folder of `path` that has such a file. What has a
/// slash in it is a path itself, whether something is there or not.
pub fn which(
    name: impl AsRef<OsStr>,
    path: Option<impl AsRef<OsStr>>,
    folder: &Path,
) -> Option<PathBuf> {
    let name = name.as_ref();
    if name.as_bytes().contains(&b'/') {
        return Some(folder.join(name));
    }
    std::env::split_paths(&path?)
        .map(|entry| folder.join(entry).join(name))
        .find(|path| path.is_file())
}

/// The search path in an environment.
pub fn search_path(environment: &[(OsString, OsString)]) -> Option<&OsStr> {
    let path = environment.iter().rfind(|(name, _)| name == "PATH");
    path.map(|(_, path)| path.as_os_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_for_and_paths_are_not() {
        let root = Path::new("/");
        let found = |name, path| which(name, path, root);
        assert_eq!(
            found("sh", Some("nowhere:bin:/usr/bin")),
            Some("/bin/sh".into())
        );
        assert_eq!(found("./sh", None::<&str>), Some("/./sh".into()));
        assert_eq!(found("sh", Some("/etc")), None);
        assert_eq!(found("bin", Some("/")), None, "a folder");
        assert_eq!(found("", Some("/bin")), None);
        assert_eq!(found("sh", None), None);
    }
}
