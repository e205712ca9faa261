//! The file `.pid`, which tells the number of this process.
//!
//! The working folder may belong to somebody else than the server's user: no name in it is
//! followed, and what is not a plain file is left alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Everybody may know the number.
const MODE: u32 = 0o644;

/// A file that was written. It stays until [`PidFile::remove`].
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl PidFile {
    /// Puts a new file in the place of an old one, in one step: a reader finds a whole number.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => {
                return Err(io::Error::other(
                    "it is a symbolic link, which the server does not follow; remove it",
                ));
            }
            Ok(found) if !found.is_file() => {
                return Err(io::Error::other("it is not a file; remove it"));
            }
            _ => {}
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let written = create(&beside)
            .and_then(|mut file| {
                write!(file, "{}", std::process::id())?;
                file.metadata()
            })
            // It takes the place of a link, and does not follow one.
            .and_then(|metadata| fs::rename(&beside, path).map(|()| metadata));
        match written {
            Ok(metadata) => Ok(Self {
                path: path.to_owned(),
                identity: identity(&metadata),
            }),
            Err(error) => {
                _ = fs::remove_file(&beside); // the error that is returned matters more
                Err(error)
            }
        }
    }

    /// Removes it, unless another server's is there by now.
    pub(crate) fn remove(self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| identity(&found) == self.identity) {
            _ = fs::remove_file(&self.path); // it may be gone
        }
    }
}

/// A process of the same number may have been killed between the two steps.
fn create(path: &Path) -> io::Result<File> {
    let create = || {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(MODE).open(path)
    };
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create()
        }
        created => created,
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use pronghorn_testkit::Directory;

    use super::*;

    fn number() -> String {
        std::process::id().to_string()
    }

    #[test]
    fn an_old_file_is_replaced_and_ours_is_removed() {
        let directory = Directory::new();
        let path = directory.join(".pid");
        fs::write(&path, "123456789").unwrap();
        let file = PidFile::write(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), number());
        assert_eq!(directory.names(), [".pid"]);
        file.remove();
        assert_eq!(directory.names(), [""; 0]);
    }

    #[test]
    fn what_is_left_of_a_process_of_the_same_number_is_no_hindrance() {
        let directory = Directory::new();
        let precious = directory.join("precious");
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, directory.join(format!(".pid.{}", number()))).unwrap();
        PidFile::write(&directory.join(".pid")).unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(directory.names(), [".pid", "precious"]);
    }

    #[test]
    fn no_link_is_followed_and_nothing_else_is_replaced() {
        let directory = Directory::new();
        let path = directory.join(".pid");
        let precious = directory.join("precious");
        fs::write(&precious, "precious").unwrap();
        for target in [&*precious, &*directory.join("missing"), &*directory, &*path] {
            symlink(target, &path).unwrap();
            let error = PidFile::write(&path).unwrap_err().to_string();
            assert!(error.contains("symbolic link"), "{error}");
            fs::remove_file(&path).unwrap();
        }
        fs::create_dir(&path).unwrap();
        let error = PidFile::write(&path).unwrap_err().to_string();
        assert!(error.contains("not a file"), "{error}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert_eq!(directory.names(), [".pid", "precious"]);
    }

    #[test]
    fn that_of_another_server_stays() {
        let directory = Directory::new();
        let path = directory.join(".pid");
        let file = PidFile::write(&path).unwrap();
        // A new file before the old one goes, so that it can't have its number.
        fs::write(directory.join("new"), "1").unwrap();
        fs::rename(directory.join("new"), &path).unwrap();
        file.remove();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
    }
}
