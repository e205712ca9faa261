//! Files that a worker names for the server to send.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pronghorn_process::{Credentials, own_files};
use pronghorn_serve::OpenFile;

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

/// Opens a file off the I/O thread. It must lie in one of the folders, if there are any.
///
/// The server may run as root and its workers not: an application that lets itself be talked into
/// naming a file must not give away more than it could read. So with `user` the file, and each
/// folder above it, must be open to that user.
pub(crate) async fn open(
    path: PathBuf,
    folders: Arc<[PathBuf]>,
    user: Option<Arc<Credentials>>,
) -> Result<(OpenFile, Identity), String> {
    let opened = tokio::task::spawn_blocking(move || open_now(&path, &folders, user.as_deref()));
    opened.await.map_err(|error| error.to_string())?
}

fn open_now(
    path: &Path,
    folders: &[PathBuf],
    user: Option<&Credentials>,
) -> Result<(OpenFile, Identity), String> {
    if !path.is_absolute() {
        return Err("its path is not absolute".into());
    }
    let text = |error: io::Error| error.to_string();
    let path = path.canonicalize().map_err(text)?;
    let lies_in = |folder: &PathBuf| folder.canonicalize().is_ok_and(|f| path.starts_with(f));
    if !folders.is_empty() && !folders.iter().any(lies_in) {
        return Err("it lies outside of the folders for such files".into());
    }
    // Not to be held up by a pipe that nobody writes to.
    let options =
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
    let file = rustix::fs::open(&path, options, rustix::fs::Mode::empty());
    let file = File::from(file.map_err(|error| error.to_string())?);
    let metadata = file.metadata().map_err(text)?;
    if !metadata.is_file() {
        return Err("it is no file".into());
    }
    if let Some(user) = user {
        let folders = path.ancestors().skip(1);
        let open_folders = folders.map(|folder| {
            std::fs::metadata(folder).is_ok_and(|metadata| allows(user, &metadata, 0o1))
        });
        if !allows(user, &metadata, 0o4) || !open_folders.into_iter().all(|open| open) {
            return Err("the workers' user may not read it".into());
        }
    }
    let identity = Identity::of(&metadata);
    if identity.is_own(&file) {
        return Err(OWN.into());
    }
    Ok((OpenFile::new(file, metadata.len()), identity))
}

/// Whether the mode gives `user` this right: 4 to read, 1 to go through a folder.
fn allows(user: &Credentials, metadata: &Metadata, right: u32) -> bool {
    if user.uid() == 0 {
        return true;
    }
    let mode = metadata.mode();
    if metadata.uid() == user.uid() {
        mode & (right << 6) != 0
    } else if user.is_in_group(metadata.gid()) {
        mode & (right << 3) != 0
    } else {
        mode & right != 0
    }
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
        assert_eq!(open_now(&file, &[], Some(&nobody)).unwrap().0.size(), 5);
        mode(&file, 0o640);
        assert_eq!(
            open_now(&file, &[], Some(&nobody)).unwrap_err(),
            "the workers' user may not read it"
        );
        assert!(open_now(&file, &[], None).is_ok());
        assert!(open_now(&file, &[directory.to_path_buf()], None).is_ok());
        assert_eq!(
            open_now(&file, &["/usr".into()], None).unwrap_err(),
            "it lies outside of the folders for such files"
        );
        mode(&file, 0o644);
        mode(&directory, 0o700);
        assert!(
            open_now(&file, &[], Some(&nobody)).is_err(),
            "its directory is closed"
        );
    }

    #[test]
    fn what_is_no_file_is_named() {
        assert_eq!(
            open_now(Path::new("relative"), &[], None).unwrap_err(),
            "its path is not absolute"
        );
        assert_eq!(
            open_now(Path::new("/tmp"), &[], None).unwrap_err(),
            "it is no file"
        );
        assert!(
            open_now(Path::new("/nope"), &[], None)
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
