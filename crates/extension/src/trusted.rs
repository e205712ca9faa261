//! Opens a file that nobody can have put there but the users who are trusted.
//!
//! Every folder and every link on the way is looked at by a descriptor before the next step is
//! taken from it: a path that is judged first and opened afterwards may lead elsewhere meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};

/// Links on the way, as many as the kernel follows.
const MOST_LINKS: usize = 40;
/// Steps of the way. A path has at most 4096 bytes.
const MOST_STEPS: usize = 4096;
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o002;

/// Who may have made what code is loaded from, beside root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trusted(pub(crate) Vec<u32>);

impl Trusted {
    /// A file at this absolute path, for reading.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` when somebody else could have made it, or could replace it.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        let (at, name) = self.walk(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&at, name, flags, Mode::empty())?;
        let facts = fstat(&file)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.expect_owner(&facts)?;
        if facts.st_mode & OTHERS_WRITE != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(file.into())
    }

    /// The folder in which a path ends, and the name that it has there, which is no link's.
    fn walk(&self, path: &Path) -> io::Result<(OwnedFd, OsString)> {
        let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = self.root()?;
        let mut rest = steps(path);
        let mut links = 0;
        for _ in 0..MOST_STEPS {
            let Some(name) = rest.pop() else {
                return Err(io::ErrorKind::InvalidInput.into()); // it ends in a folder
            };
            let next = openat(&at, &name, step, Mode::empty())?;
            let facts = fstat(&next)?;
            match FileType::from_raw_mode(facts.st_mode) {
                FileType::Symlink => {
                    self.expect_owner(&facts)?;
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(io::ErrorKind::InvalidInput.into());
                    }
                    let target = readlinkat(&next, "", Vec::new())?;
                    let target = OsString::from_vec(target.into_bytes());
                    if Path::new(&target).is_absolute() {
                        at = self.root()?;
                    }
                    rest.extend(steps(Path::new(&target)));
                }
                FileType::Directory => {
                    self.judge(&facts)?;
                    at = next;
                }
                _ if rest.is_empty() => return Ok((at, name)),
                _ => return Err(io::ErrorKind::InvalidInput.into()),
            }
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    fn root(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, "/", flags, Mode::empty())?;
        self.judge(&fstat(&root)?)?;
        Ok(root)
    }

    /// Looks at a folder: what is in it is its owner's, or, where others may write as in `/tmp`,
    /// of the one who made it, which the next step looks at.
    fn judge(&self, folder: &Stat) -> io::Result<()> {
        self.expect_owner(folder)?;
        if folder.st_mode & OTHERS_WRITE != 0 && folder.st_mode & STICKY == 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }

    fn expect_owner(&self, of: &Stat) -> io::Result<()> {
        if of.st_uid == 0 || self.0.contains(&of.st_uid) {
            return Ok(());
        }
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// The names of a path, the first one last.
fn steps(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.map(OsStr::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use pronghorn_testkit::Directory;

    use super::*;

    fn directory() -> Directory {
        Directory::with(&[("own/lib/x.so", "")])
    }

    fn me() -> Trusted {
        Trusted(vec![rustix::process::geteuid().as_raw()])
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_may_replace_is_not_opened() {
        let directory = directory();
        let path = directory.join("own/lib/x.so");
        assert!(me().open(&path).is_ok());
        assert!(me().open(&directory.join("own/../own/./lib/x.so")).is_ok());
        for (part, mode, is_trusted) in [
            ("own", 0o777, false),
            ("own", 0o1777, true),
            ("own", 0o755, true),
            ("own/lib/x.so", 0o666, false),
            ("own/lib/x.so", 0o644, true),
        ] {
            set_mode(&directory.join(part), mode);
            assert_eq!(me().open(&path).is_ok(), is_trusted, "{part} {mode:o}");
        }
        assert!(me().open(&directory.join("own/lib")).is_err(), "a folder");
        let none = me().open(&directory.join("own/none/x.so")).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_link_counts_as_its_owner_s() {
        let directory = directory();
        let (to, end) = (directory.join("to"), directory.join("own/lib/y.so"));
        symlink("own", &to).unwrap();
        symlink(directory.join("to/lib/x.so"), &end).unwrap();
        assert!(me().open(&to.join("lib/y.so")).is_ok());
        let circle = directory.join("circle");
        symlink("circle", &circle).unwrap();
        assert!(me().open(&circle).is_err());
        if rustix::process::geteuid().is_root() {
            const STRANGER: u32 = 65534;
            std::os::unix::fs::lchown(&to, Some(STRANGER), None).unwrap();
            let refused = me().open(&to.join("lib/x.so")).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(Trusted(vec![STRANGER]).open(&to.join("lib/x.so")).is_ok());
            chown(directory.join("own/lib/x.so"), Some(STRANGER), None).unwrap();
            assert!(me().open(&directory.join("own/lib/x.so")).is_err());
        }
    }
}
