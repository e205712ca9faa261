//! A server's own directory within one for temporary files, where every user may take any name.
//!
//! It is called `pronghorn-UID`. Where somebody else has that name, a random part follows, and
//! commands look through the names that there are. Its owner and mode say whose it is: the name
//! proves nothing.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const PREFIX: &str = "pronghorn-";
const FOR_OWNER: u32 = 0o700;
const FOR_OTHERS: u32 = 0o077;
/// A random name is free but for one of 2^64.
const TRIES: u32 = 4;
/// A command looks at so many names, in a directory that everybody may fill.
const MOST_NAMES: usize = 1 << 16;
/// Directories that are looked into: one for each user.
const MOST: usize = 256;

/// The server's own directory in `temporary`, made if it is not there.
pub(crate) fn make(temporary: &Path, uid: u32) -> io::Result<PathBuf> {
    let is_own = |owner| owner == uid;
    if let Some(there) = find(temporary, is_own, uid).into_iter().next() {
        return Ok(there);
    }
    let mut name = first_name(uid);
    let mut tries = 0;
    loop {
        let path = temporary.join(&name);
        match DirBuilder::new().mode(FOR_OWNER).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {
                // Another server of this user may have been quicker.
                if is_private(&path, uid) {
                    return Ok(path);
                }
                tries += 1;
                name = format!("{}-{:016x}", first_name(uid), fastrand::u64(..));
            }
            Err(error) => return Err(error),
            Ok(()) => return Ok(path),
        }
    }
}

/// The directories in `temporary` whose owners are trusted and which nobody else can enter: those
/// of the user `first` before others.
pub(crate) fn find(temporary: &Path, is_trusted: impl Fn(u32) -> bool, first: u32) -> Vec<PathBuf> {
    let likeliest = temporary.join(first_name(first));
    let names = std::fs::read_dir(temporary).into_iter().flatten();
    let entries = names.take(MOST_NAMES).flatten();
    let named = entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()));
    let others = named.map(|entry| entry.path());
    let others = others.filter(|path| *path != likeliest);
    let all = std::iter::once(likeliest.clone()).chain(others);
    let mut found: Vec<_> = all
        .filter(|path| is_private_of(path, &is_trusted))
        .take(MOST)
        .collect();
    found.sort_by_cached_key(|path| (*path != likeliest, !is_private(path, first)));
    found
}

/// The directory of a socket, if a server has made it for itself.
pub(crate) fn of_server(socket: &Path) -> Option<PathBuf> {
    let directory = socket.parent()?;
    let uid = rustix::process::geteuid().as_raw();
    let name = directory.file_name()?.as_bytes();
    let is_ours = name.starts_with(first_name(uid).as_bytes()) && is_private(directory, uid);
    is_ours.then(|| directory.to_owned())
}

/// Whether it is a directory of this user that nobody else can enter.
pub(crate) fn is_private(path: &Path, uid: u32) -> bool {
    is_private_of(path, |owner| owner == uid)
}

fn is_private_of(path: &Path, is_trusted: impl Fn(u32) -> bool) -> bool {
    let is_private = |facts: Metadata| {
        facts.is_dir() && is_trusted(facts.uid()) && facts.mode() & FOR_OTHERS == 0
    };
    std::fs::symlink_metadata(path).is_ok_and(is_private)
}

fn first_name(uid: u32) -> String {
    format!("{PREFIX}{uid}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use pronghorn_testkit::Directory;

    use super::*;

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn name(path: &Path) -> String {
        path.file_name().unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn a_directory_is_made_once_and_nobody_else_enters_it() {
        let directory = Directory::new();
        let made = make(&directory, me()).unwrap();
        assert_eq!(name(&made), first_name(me()));
        let mode = std::fs::metadata(&made).unwrap().mode();
        assert_eq!(mode & 0o777, FOR_OWNER);
        assert_eq!(make(&directory, me()).unwrap(), made);
        assert_eq!(find(&directory, |owner| owner == me(), me()), [made]);
    }

    #[test]
    fn whoever_has_the_name_does_not_keep_a_server_from_a_directory() {
        let directory = Directory::new();
        let taken = directory.join(first_name(me()));
        let elsewhere = directory.join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o700)).unwrap();
        for take in [
            &(|| std::fs::write(&taken, "").unwrap()) as &dyn Fn(),
            &|| symlink(&elsewhere, &taken).unwrap(),
            &|| {
                std::fs::create_dir(&taken).unwrap();
                std::fs::set_permissions(&taken, PermissionsExt::from_mode(0o750)).unwrap();
            },
        ] {
            take();
            let made = make(&directory, me()).unwrap();
            let random = name(&made);
            assert!(
                random.starts_with(&format!("{}-", name(&taken))),
                "{random}"
            );
            // The next server, and a command, use the one that is there.
            assert_eq!(make(&directory, me()).unwrap(), made);
            let found = find(&directory, |owner| owner == me(), me());
            assert_eq!(found, std::slice::from_ref(&made));
            std::fs::remove_dir(&made).unwrap();
            _ = std::fs::remove_dir(&taken).or_else(|_| std::fs::remove_file(&taken));
        }
    }

    #[test]
    fn a_strangers_directory_is_not_used() {
        if me() != 0 {
            return; // only root can give a directory away
        }
        let directory = Directory::new();
        let taken = make(&directory, me()).unwrap();
        std::os::unix::fs::chown(&taken, Some(65534), None).unwrap();
        let made = make(&directory, me()).unwrap();
        assert_ne!(made, taken);
        let found = find(&directory, |owner| owner == 0, 0);
        assert_eq!(found, std::slice::from_ref(&made));
        // Root's command looks at that of the configuration's owner, too.
        let both = find(&directory, |owner| owner == 0 || owner == 65534, 0);
        assert_eq!(both, [taken, made]);
    }
}
