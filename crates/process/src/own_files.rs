//! The server's own files: configuration, logs, keys, what it keeps. They hold passwords, and
//! nobody gets them as files of a site, whatever folder they lie in and by whatever name they are
//! reached.
//!
//! One table for the process, because all that opens files for clients has to ask it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use crate::file::name_of_open;

/// Which they are.
#[derive(Debug, Default)]
struct OwnFiles {
    /// Files by device and inode, which are the same by every link and in every case of letters.
    identities: Vec<(u64, u64)>,
    /// Files as they are named. A link on the way may lead elsewhere at any time, as that to the
    /// release of a deployment does.
    named: Vec<PathBuf>,
    /// Their paths, without any link in them: a log may be made again at any time.
    paths: Vec<PathBuf>,
    /// The same of folders: all in them is the server's.
    folders: Vec<PathBuf>,
}

/// What a configuration is called that this server does not run by, in any case of letters.
const CONFIGURATIONS: [&[u8]; 2] = [b"pronghorn.yaml", b"pronghorn.yml"];

static OWN: RwLock<Option<Arc<OwnFiles>>> = RwLock::new(None);

/// Takes these files and folders, by absolute paths, for the server's own, instead of those from
/// before. What is not there yet counts by its path.
pub fn set(files: &[PathBuf], folders: &[PathBuf]) {
    let own = OwnFiles {
        identities: files.iter().filter_map(|path| identity_at(path)).collect(),
        named: files.to_owned(),
        paths: files.iter().map(|path| real(path)).collect(),
        folders: folders.iter().map(|path| real(path)).collect(),
    };
    *OWN.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(own));
}

fn identity_at(path: &Path) -> Option<(u64, u64)> {
    let metadata = path.metadata().ok()?;
    metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
}

/// Whether an open file is one of them. Costs a call of the kernel for each of them: for a file
/// that is looked at, not for one that is known.
pub fn has(file: &File, (device, inode): (u64, u64)) -> bool {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner).clone();
    let own = own.unwrap_or_default();
    let is_it = |path: &PathBuf| identity_at(path) == Some((device, inode));
    if own.identities.contains(&(device, inode)) || own.named.iter().any(is_it) {
        return true;
    }
    // Without /proc, what is there counts by its identity alone.
    let path = std::fs::read_link(name_of_open(file));
    path.is_ok_and(|path| {
        is_configuration(&path)
            || own.paths.iter().any(|own| is_or_goes_with(&path, own))
            || own.folders.iter().any(|own| path.starts_with(own))
    })
}

fn is_configuration(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_ascii_lowercase();
    let known =
        |known: &&[u8]| is_or_goes_with(Path::new(&name), Path::new(OsStr::from_bytes(known)));
    CONFIGURATIONS.iter().any(known)
}

/// Whether a path is that of an own file, or of a copy beside it: `pronghorn.yaml~`,
/// `access.log.1`, `access.log-20261126.gz`.
fn is_or_goes_with(path: &Path, own: &Path) -> bool {
    let rest = path
        .as_os_str()
        .as_bytes()
        .strip_prefix(own.as_os_str().as_bytes());
    rest.is_some_and(|rest| {
        !rest.contains(&b'/') && !rest.first().is_some_and(u8::is_ascii_alphanumeric)
    })
}

/// A path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => real(folder).join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    #[test]
    fn copies_beside_a_file_go_with_it() {
        let own = Path::new("/srv/app/pronghorn.yaml");
        for path in ["", "~", ".bak", ".gz", "-old"] {
            let path = format!("/srv/app/pronghorn.yaml{path}");
            assert!(is_or_goes_with(Path::new(&path), own), "{path}");
        }
        for path in [
            "/srv/app/pronghorn.yamls",
            "/srv/app/pronghorn.yaml/x",
            "/srv/app",
        ] {
            assert!(!is_or_goes_with(Path::new(path), own), "{path}");
        }
    }

    #[test]
    fn an_own_file_is_known_by_every_way_to_it() {
        let directory = Directory::new();
        std::fs::create_dir_all(directory.join("real/state")).unwrap();
        std::os::unix::fs::symlink("real", directory.join("link")).unwrap();
        let at = |name: &str| directory.join(name);
        for name in ["real/conf", "real/other", "real/state/data"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::fs::hard_link(at("real/conf"), at("hard")).unwrap();
        let is_own = |name: &str| {
            let file = File::open(at(name)).unwrap();
            let metadata = file.metadata().unwrap();
            has(&file, (metadata.dev(), metadata.ino()))
        };
        set(
            &[at("link/conf"), at("link/later.log")],
            &[at("link/state")],
        );
        for name in ["real/conf", "link/conf", "hard", "link/state/data"] {
            assert!(is_own(name), "{name}");
        }
        assert!(!is_own("real/other"));
        std::fs::write(at("real/later.log"), "").unwrap();
        assert!(is_own("real/later.log"), "made after the start");
        for name in ["pronghorn.yaml", "Pronghorn.YML", "pronghorn.yaml~"] {
            std::fs::write(at(name), "").unwrap();
            assert!(is_own(name), "{name}");
        }
        std::fs::create_dir(at("next")).unwrap();
        std::fs::write(at("next/conf"), "").unwrap();
        assert!(!is_own("next/conf"));
        std::fs::remove_file(at("link")).unwrap();
        std::os::unix::fs::symlink("next", at("link")).unwrap();
        for name in ["next/conf", "real/conf"] {
            assert!(is_own(name), "{name} after the link has moved");
        }
        set(&[], &[]);
        assert!(!is_own("real/conf"), "it is none any more");
    }
}
