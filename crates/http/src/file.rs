//! Files that a worker names for the server to send.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_base::{Trusted, Untrusted, read_opened};
use pronghorn_process::file::{name_of_open, open_folder, open_parent};
use pronghorn_process::{Credentials, own_files};
use pronghorn_serve::OpenFile;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open as open_path, openat};

/// Why a file of the server itself is not sent.
pub(crate) const OWN: &str = "it is the server's own: its configuration, a log, a key or its data";

/// As long as this is the same, so is the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) len: u64,
    pub(crate) modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

impl Identity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether this is a file of the server itself, which no client gets.
    pub(crate) fn is_own(&self, file: &File) -> bool {
        own_files::has(file, (self.device, self.inode))
    }

    pub(crate) fn modified(&self) -> u64 {
        u64::try_from(self.modified.0).unwrap_or_default()
    }
}

/// Whether a file may be named: by its path below the directory for such files that it lies in, if
/// there are any, and by its whole path, both without links.
pub(crate) type MayBeNamed = fn(Option<&Path>, &Path) -> bool;

/// Opens a file off the I/O thread. It must lie in one of the directories, if there are any.
///
/// The server may run as root and its workers not: an application that lets itself be talked into
/// naming a file must not give away more than it could read. So with `user` the file, and each
/// directory above it, must be open to that user.
pub(crate) async fn open(
    path: PathBuf,
    directories: Arc<[PathBuf]>,
    user: Option<Arc<Credentials>>,
    may_be_named: MayBeNamed,
) -> Result<(OpenFile, Identity), String> {
    let open = move || open_now(&path, &directories, user.as_deref(), may_be_named);
    let opened = tokio::task::spawn_blocking(open);
    opened.await.map_err(|error| error.to_string())?
}

fn open_now(
    path: &Path,
    directories: &[PathBuf],
    user: Option<&Credentials>,
    may_be_named: MayBeNamed,
) -> Result<(OpenFile, Identity), String> {
    if !path.is_absolute() {
        return Err("its path is not absolute".into());
    }
    let text = |error: io::Error| error.to_string();
    let path = path.canonicalize().map_err(text)?;
    let below = |directory: &PathBuf| {
        let directory = directory.canonicalize().ok()?;
        path.strip_prefix(directory).ok()
    };
    let below = directories.iter().find_map(below);
    if !directories.is_empty() && below.is_none() {
        return Err("it lies outside of the directories for such files".into());
    }
    if !may_be_named(below, &path) {
        return Err(HIDDEN.into());
    }
    let file = open_by_names(&path, user)?;
    let metadata = file.metadata().map_err(text)?;
    let identity = Identity::of(&metadata);
    if identity.is_own(&file) {
        return Err(OWN.into());
    }
    Ok((OpenFile::new(file, metadata.len()), identity))
}

/// The users who must be able to read a file before clients get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    Server,
    /// A stranger's link leads to it: what only the server may read stays closed.
    Everybody,
}

/// Opens a directory of files for clients. Whoever owns a directory above could put a link to any
/// directory of root's in its place.
///
/// # Errors
///
/// When it can't be opened.
pub(crate) fn open_root(path: &Path) -> io::Result<(OwnedFd, Readers)> {
    match Trusted::links_of_server().directory(path) {
        Err(error) if Untrusted::is(&error) => Ok((open_folder(path)?, Readers::Everybody)),
        found => Ok((found?, Readers::Server)),
    }
}

/// The same file once more, if everybody may read it, and go through the directories above it.
///
/// # Errors
///
/// When not.
pub(crate) fn open_for_everybody(file: &File) -> io::Result<File> {
    let path = std::fs::read_link(name_of_open(file))?;
    open_by_names(&path, Some(&Credentials::nobody())).map_err(io::Error::other)
}

/// The whole of a file that the configuration names for all clients, if it has at most so many
/// bytes.
///
/// A link counts if it is root's or the server's, as in the walk of [`Trusted`]; what a stranger's
/// link leads to counts if everybody may read it.
///
/// # Errors
///
/// When it can't be read, is longer, or is the server's own.
pub(crate) fn read_for_all(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = match Trusted::links_of_server().place(path) {
        Ok(place) => place.open(OFlags::RDONLY, 0)?,
        Err(error) if Untrusted::is(&error) => {
            let everybody = Credentials::nobody();
            let opened = open_by_names(&path.canonicalize()?, Some(&everybody));
            opened.map_err(|why| io::Error::other(format!("{error}; behind it: {why}")))?
        }
        Err(error) => return Err(error),
    };
    if Identity::of(&file.metadata()?).is_own(&file) {
        return Err(io::Error::other(OWN));
    }
    read_opened(file, most)
}

/// Opens a file by a path without links, name by name. Each thing on the way is judged by its
/// descriptor, and the file before it is opened for reading: so nobody who may rename something
/// there can put another thing in its place meanwhile, and no pipe or device is opened.
fn open_by_names(path: &Path, user: Option<&Credentials>) -> Result<File, String> {
    let check = |stat: &Stat, right| match user {
        Some(user) if !allows(user, stat, right) => Err(io::Error::other(CLOSED)),
        _ => Ok(()),
    };
    let open = || {
        let no_file = || io::Error::other(NO_FILE);
        let path = path.strip_prefix("/").map_err(io::Error::other)?;
        let name = path.file_name().ok_or_else(no_file)?;
        let look = |directory: &OwnedFd| check(&fstat(directory)?, 0o1);
        let directory = open_parent(open_folder(Path::new("/"))?, path, look)?;
        let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(&directory, name, place, Mode::empty())?;
        let stat = fstat(&found)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(no_file());
        }
        check(&stat, 0o4)?;
        let read = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(open_path(name_of_open(&found), read, Mode::empty())?.into())
    };
    open().map_err(|error: io::Error| error.to_string())
}

/// Why a link is not followed.
pub(crate) const HIDDEN: &str = "it is a link to a hidden file or a PHP source";
const NO_FILE: &str = "it is no file";
const CLOSED: &str = "the workers' user may not read it";

/// Whether the mode gives `user` this right: 4 to read, 1 to go through a directory.
fn allows(user: &Credentials, stat: &Stat, right: u32) -> bool {
    if user.is_root() {
        return true;
    }
    let shift = if stat.st_uid == user.uid() {
        6
    } else if user.is_in_group(stat.st_gid) {
        3
    } else {
        0
    };
    stat.st_mode & (right << shift) != 0
}

/// The type by the name's ending.
pub(crate) fn content_type(path: &Path) -> &'static str {
    mime_guess::from_path(path)
        .first_raw()
        .unwrap_or("application/octet-stream")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use pronghorn_testkit::Directory;

    use super::*;

    fn open_any(
        path: &Path,
        folders: &[PathBuf],
        user: Option<&Credentials>,
    ) -> Result<(OpenFile, Identity), String> {
        open_now(path, folders, user, |_, _| true)
    }

    /// A link stands where a directory stood when its path was looked at.
    #[test]
    fn a_path_is_followed_through_no_link() {
        let directory = Directory::new();
        std::fs::create_dir(directory.join("closed")).unwrap();
        std::fs::write(directory.join("closed/f"), "secret").unwrap();
        std::os::unix::fs::symlink("closed", directory.join("link")).unwrap();
        std::os::unix::fs::symlink("closed/f", directory.join("name")).unwrap();
        assert!(open_by_names(&directory.join("closed/f"), None).is_ok());
        assert!(open_by_names(&directory.join("link/f"), None).is_err());
        assert_eq!(
            open_by_names(&directory.join("name"), None).unwrap_err(),
            NO_FILE
        );
    }

    /// As the user of an application makes it, who owns its directory.
    #[test]
    fn a_strangers_link_gives_clients_what_everybody_may_read() {
        use std::os::unix::fs::{chown, lchown, symlink};
        if !Credentials::may_change() {
            eprintln!("skipped: only root makes files of others");
            return;
        }
        let directory =
            Directory::with(&[("app/errors/x", ""), ("secret", "secret"), ("open", "open")]);
        let at = |name: &str| directory.join(name);
        for (name, mode) in [("", 0o755), ("secret", 0o600), ("open", 0o644)] {
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        for (link, to) in [
            ("secret.html", "../../secret"),
            ("open.html", "../../open"),
            ("meant.html", "../../secret"),
            ("up", "../.."),
        ] {
            symlink(to, at("app/errors").join(link)).unwrap();
        }
        for name in [
            "app",
            "app/errors",
            "app/errors/secret.html",
            "app/errors/open.html",
            "app/errors/up",
        ] {
            lchown(at(name), Some(65534), None).unwrap();
        }
        std::fs::write(at("app/errors/private"), "theirs").unwrap();
        chown(at("app/errors/private"), Some(65534), None).unwrap();
        let read = |name: &str| read_for_all(&at("app/errors").join(name), 100);
        for (name, expected) in [
            ("open.html", "open"),
            ("meant.html", "secret"),
            ("private", "theirs"),
            ("up/open", "open"),
        ] {
            assert_eq!(read(name).unwrap(), expected.as_bytes(), "{name}");
        }
        for name in ["secret.html", "up/secret"] {
            let refused = read(name).unwrap_err().to_string();
            assert!(refused.contains("symbolic link of user 65534"), "{refused}");
            assert!(refused.ends_with(CLOSED), "{refused}");
        }
        own_files::set(&[at("open")], &[]);
        assert!(read("open.html").is_err(), "the server's own");
        own_files::set(&[], &[]);
    }

    #[test]
    fn only_what_the_user_could_read_is_opened() {
        let nobody = Credentials::look_up("nobody", None).unwrap();
        let directory = Directory::new();
        let file = directory.join("file.txt");
        std::fs::write(&file, "hello").unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&directory, 0o755);
        mode(&file, 0o644);
        assert_eq!(open_any(&file, &[], Some(&nobody)).unwrap().0.size(), 5);
        mode(&file, 0o640);
        assert_eq!(
            open_any(&file, &[], Some(&nobody)).unwrap_err(),
            "the workers' user may not read it"
        );
        assert!(open_any(&file, &[], None).is_ok());
        assert!(open_any(&file, &[directory.to_path_buf()], None).is_ok());
        assert_eq!(
            open_any(&file, &["/usr".into()], None).unwrap_err(),
            "it lies outside of the directories for such files"
        );
        mode(&file, 0o644);
        mode(&directory, 0o700);
        assert!(
            open_any(&file, &[], Some(&nobody)).is_err(),
            "its directory is closed"
        );
    }

    #[test]
    fn what_is_no_file_is_named() {
        assert_eq!(
            open_any(Path::new("relative"), &[], None).unwrap_err(),
            "its path is not absolute"
        );
        assert_eq!(
            open_any(Path::new("/tmp"), &[], None).unwrap_err(),
            "it is no file"
        );
        assert!(
            open_any(Path::new("/nope"), &[], None)
                .unwrap_err()
                .contains("No such file")
        );
    }

    #[test]
    fn types_by_ending() {
        assert_eq!(content_type(Path::new("/a/report.PDF")), "application/pdf");
        assert_eq!(content_type(Path::new("/a/style.css")), "text/css");
        assert_eq!(
            content_type(Path::new("/a/noending")),
            "application/octet-stream"
        );
    }
}
