//! Folders as the person wrote them: a link in a path stays one.

use std::path::{Path, PathBuf};

use crate::arguments::Arguments;

/// `-w`, else the configuration file's folder, else where the command runs.
pub(crate) fn working(arguments: &Arguments, file: Option<&Path>) -> PathBuf {
    let here = current();
    let folder = arguments
        .globals
        .workdir
        .as_deref()
        .or_else(|| file?.parent());
    match folder {
        // `.rr.yaml` has the parent "": joined, that would add a slash.
        Some(folder) if folder != Path::new("") => here.join(folder),
        _ => here,
    }
}

/// The shell's `PWD` keeps links that getcwd(3) resolves: a `current` link that moves at a
/// deployment must stay one.
pub(crate) fn current() -> PathBuf {
    let physical = std::env::current_dir().unwrap_or_default();
    let same = |logical: &PathBuf| logical.canonicalize().ok() == physical.canonicalize().ok();
    std::env::var_os("PWD")
        .map(PathBuf::from)
        .filter(|logical| logical.is_absolute() && same(logical))
        .unwrap_or(physical)
}
