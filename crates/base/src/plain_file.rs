//! Files in folders where somebody else may have put something else under their names.

use std::fs::{File, FileType, OpenOptions, symlink_metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file, and nothing else: a symbolic link is not followed, and a pipe that nobody writes
/// to does not hold it up.
///
/// # Errors
///
/// As `open(2)`; when it is no file, with what it is.
pub fn open_plain(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if let Ok(found) = symlink_metadata(path) {
        expect_file(found.file_type())?; // without opening it, which some devices notice
    }
    open(path, options, OFlags::NOFOLLOW)
}

/// The whole of such a file, if it has at most so many bytes.
///
/// # Errors
///
/// The same, and when it is longer.
pub fn read_plain(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read(open_plain(path, OpenOptions::new().read(true))?, most)
}

/// The whole of a file that links may lead to, if it has at most so many bytes.
///
/// # Errors
///
/// The same, but for links.
pub fn read_linked(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read(open_linked(path)?, most)
}

/// The whole of a file that is open, if it has at most so many bytes.
///
/// # Errors
///
/// The same.
pub fn read_opened(file: File, most: u64) -> io::Result<Vec<u8>> {
    expect_file(file.metadata()?.file_type())?;
    read(file, most)
}

/// Opens a file for reading that links may lead to. A pipe does not hold it up.
///
/// # Errors
///
/// The same.
pub fn open_linked(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true), OFlags::empty())
}

fn open(path: &Path, options: &mut OpenOptions, more: OFlags) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | more;
    let file = options
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    expect_file(file.metadata()?.file_type())?;
    Ok(file)
}

fn read(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it is longer than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

fn expect_file(kind: FileType) -> io::Result<()> {
    match kind_of(kind) {
        None => Ok(()),
        Some("a symbolic link") => Err(io::Error::other(
            "it is a symbolic link, which is not followed",
        )),
        Some(other) => {
            let why = format!("it is {other}, and no file");
            let of_folder = kind.is_dir().then_some(io::ErrorKind::IsADirectory);
            Err(io::Error::new(
                of_folder.unwrap_or(io::ErrorKind::Other),
                why,
            ))
        }
    }
}

/// What stands there, in words; `None` for a file.
pub fn kind_of(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_symlink() {
        Some("a symbolic link")
    } else if kind.is_dir() {
        Some("a folder")
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use pronghorn_testkit::Directory;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    /// A directory with one of each kind in it.
    fn zoo() -> Directory {
        let zoo = Directory::with(&[("folder/x", ""), ("file", "content")]);
        symlink(zoo.join("file"), zoo.join("link")).unwrap();
        symlink("/dev/zero", zoo.join("endless")).unwrap();
        mknodat(CWD, zoo.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        drop(UnixListener::bind(zoo.join("socket")).unwrap());
        zoo
    }

    #[test]
    fn only_files_are_opened_and_nothing_holds_it_up() {
        let zoo = zoo();
        let why = |name| read_plain(&zoo.join(name), 7).unwrap_err().to_string();
        assert_eq!(read_plain(&zoo.join("file"), 7).unwrap(), b"content");
        for name in ["link", "endless"] {
            assert_eq!(why(name), "it is a symbolic link, which is not followed");
        }
        assert_eq!(why("pipe"), "it is a named pipe, and no file");
        assert_eq!(why("folder"), "it is a folder, and no file");
        assert_eq!(why("socket"), "it is a socket, and no file");
        let too_long = read_plain(&zoo.join("file"), 6).unwrap_err();
        assert_eq!(too_long.to_string(), "it is longer than 6 bytes");

        assert_eq!(read_linked(&zoo.join("link"), 7).unwrap(), b"content");
        for name in ["pipe", "folder", "endless", "socket"] {
            assert!(read_linked(&zoo.join(name), 7).is_err(), "{name}");
        }
        // Also where it would be made if it were not there, and is there only after the first look.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        for name in ["pipe", "link", "endless"] {
            assert!(open_plain(&zoo.join(name), &mut options).is_err(), "{name}");
            assert!(open(&zoo.join(name), &mut options, OFlags::NOFOLLOW).is_err());
        }
        assert!(open_plain(&zoo.join("new"), &mut options).is_ok());
    }
}
