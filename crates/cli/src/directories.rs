//! Directories as the person wrote them: a link in a path stays one. And what stands in the way of
//! a new file there.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::arguments::Arguments;

/// `-w`, else the configuration file's directory, else where the command runs.
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

/// Never in the place of another file, nor through a link. What was begun on a full disk is
/// removed.
pub(crate) fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| {
        _ = std::fs::remove_file(path); // the error that counts is told
    })
}

/// Puts a file that is written beside it in the place of another one: whole, or not at all.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let new = beside(path);
    write(&new)
        .and_then(|()| std::fs::rename(&new, path))
        .inspect_err(|_| _ = std::fs::remove_file(&new)) // the error that counts is told
}

/// A name that nothing has, in the same directory.
pub(crate) fn beside(path: &Path) -> PathBuf {
    path.with_extension(format!("new-{:x}", fastrand::u64(..)))
}

/// The command that shows what is wrong with a disk that took no file; None where the disk is not
/// the reason.
pub(crate) fn disk_hint(folder: &Path, error: &io::Error) -> Option<String> {
    let mut there = folder.ancestors();
    let shown = there.find(|folder| folder.exists())?.display();
    match error.kind() {
        io::ErrorKind::StorageFull => Some(format!("`df -h {shown}` shows the disk")),
        io::ErrorKind::ReadOnlyFilesystem => Some(format!("`findmnt -T {shown}` shows the mount")),
        _ => None,
    }
}
