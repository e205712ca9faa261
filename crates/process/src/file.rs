//! Files and sockets where only this kernel has the call: opening below a folder, sending without
//! copying, reading only what is in memory.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::SendFlags;

/// Which symbolic links are followed below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// None.
    Never,
    /// Those that lead to somewhere in the folder.
    Inside,
    /// All, wherever they lead.
    Anywhere,
}

/// Whether a call may wait for a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It fails with `WouldBlock` instead.
    None,
    Waits,
}

/// Opens a folder, for [`open_below`].
///
/// # Errors
///
/// When it can't be opened, or is none.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The same for a folder that the kernel finds without waiting for a disk.
///
/// # Errors
///
/// `WouldBlock` when it does not, or can't tell.
pub fn open_folder_at_once(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Err(Errno::INVAL | Errno::AGAIN | Errno::NOSYS | Errno::PERM) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        opened => Ok(opened?),
    }
}

/// Device and inode of what is open. As long as it is, no other thing has the same.
///
/// # Errors
///
/// As `fstat(2)`.
pub fn identity(of: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(of)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Opens for reading what a relative path without `..` names below a folder. The kernel sees to it
/// that the path does not leave the folder, whatever is renamed or linked meanwhile. A pipe that
/// nobody writes to does not hold it up.
///
/// # Errors
///
/// `WouldBlock` when that would take [patience](Patience);
/// [`CrossesDevices`](io::ErrorKind::CrossesDevices) for a link that leads out; `Unsupported` where
/// this kernel, or who confines this process, lacks the call.
pub fn open_below(
    folder: &OwnedFd,
    path: &Path,
    links: Links,
    patience: Patience,
) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::NO_MAGICLINKS
        | match links {
            Links::Never => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Links::Inside => ResolveFlags::BENEATH,
            Links::Anywhere => ResolveFlags::empty(),
        };
    let cached = match patience {
        Patience::None => ResolveFlags::CACHED,
        Patience::Waits => ResolveFlags::empty(),
    };
    match openat2(folder, path, flags, Mode::empty(), resolve | cached) {
        Ok(file) => Ok(file.into()),
        // Kernels before 5.12 do not know how to leave it be; a rename somewhere makes any one ask
        // for another try.
        Err(Errno::INVAL | Errno::AGAIN) if patience == Patience::None => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(Errno::AGAIN) => Ok(openat2(folder, path, flags, Mode::empty(), resolve)?.into()),
        Err(Errno::NOSYS | Errno::PERM) => Err(io::ErrorKind::Unsupported.into()),
        Err(error) => Err(error.into()),
    }
}

/// Opens one name in a folder, which must not be a symbolic link.
///
/// # Errors
///
/// When it can't be opened.
pub fn open_name(folder: &OwnedFd, name: &Path, is_folder: bool) -> io::Result<OwnedFd> {
    let kind = if is_folder {
        OFlags::PATH | OFlags::DIRECTORY
    } else {
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY
    };
    let flags = kind | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?)
}

/// Opens the directory that a path without links lies in, name by name: nobody who renames
/// something on the way can lead elsewhere. `look` judges each directory before a name in it is
/// used.
///
/// # Errors
///
/// When one can't be opened, or `look` refuses it; `NotFound` for a path that has more than names.
pub fn open_parent(
    directory: OwnedFd,
    path: &Path,
    look: impl Fn(&OwnedFd) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let mut here = directory;
    for name in path.parent().into_iter().flat_map(Path::components) {
        let Component::Normal(name) = name else {
            return Err(io::ErrorKind::NotFound.into());
        };
        look(&here)?;
        here = open_name(&here, Path::new(name), true)?;
    }
    look(&here)?;
    Ok(here)
}

/// A name by which what is open can be opened and changed again, whatever lies at its path by now.
pub fn name_of_open(open: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()).into()
}

/// Has the kernel send a stretch of a file to a socket. Returns how much of it; 0 when the file
/// ends before.
///
/// # Errors
///
/// `WouldBlock` when the socket has no room; `Unsupported` when the file is on a file system that
/// can't.
pub fn send_file(socket: impl AsFd, file: &File, start: u64, len: usize) -> io::Result<usize> {
    let mut at = start;
    match rustix::fs::sendfile(socket, file, Some(&mut at), len) {
        Ok(sent) => Ok(sent),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            Err(io::ErrorKind::Unsupported.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes to a socket bytes that more will follow at once: half a packet is not worth sending.
///
/// # Errors
///
/// As `send(2)`.
pub fn send_before_more(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// Reads from a place in a file. Without patience only what is in memory.
///
/// # Errors
///
/// `WouldBlock` also where the file system can't tell.
pub fn read_at(
    file: impl AsFd,
    bytes: &mut [u8],
    at: u64,
    patience: Patience,
) -> io::Result<usize> {
    if patience == Patience::Waits {
        return Ok(rustix::io::pread(file, bytes, at)?);
    }
    let mut bytes = [IoSliceMut::new(bytes)];
    match rustix::io::preadv2(file, &mut bytes, at, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read),
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_kernel_sends_a_stretch_of_a_file_and_no_more_than_there_is() {
        let path = std::env::temp_dir().join(format!("pronghorn-sent-{}", std::process::id()));
        File::create(&path)
            .unwrap()
            .write_all(b"0123456789")
            .unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        assert_eq!(send_file(&ours, &file, 2, 3).unwrap(), 3);
        assert_eq!(send_file(&ours, &file, 8, 100).unwrap(), 2);
        assert_eq!(send_file(&ours, &file, 10, 1).unwrap(), 0, "its end");
        drop(ours);
        let mut got = String::new();
        theirs.read_to_string(&mut got).unwrap();
        assert_eq!(got, "23489");
    }
}
