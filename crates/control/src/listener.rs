//! The server's socket.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use pronghorn_process::socket::{Access, BindError, bind_unix, connect_at_once};
use thiserror::Error;

use crate::place::{Place, Surroundings};
use crate::private;
use crate::trusted::Trusted;

/// For the server's user alone.
const OWN: Access = Access {
    mode: 0o600,
    uid: None,
    gid: None,
};

/// A directory is gone when it is to be used only if a server of the same user ends at this moment.
const TRIES: u32 = 3;

/// A bound control socket. Dropped, it removes its file, unless another server's is there by then.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: UnixListener,
    pub(crate) file: SocketFile,
}

/// Why there is no control socket.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The operator's: the same configuration is served twice.
    #[error("another server of this configuration is running{}", by(*pid))]
    Running { path: PathBuf, pid: Option<u32> },
    /// No folder can take it; what was in the way in the first one.
    #[error(transparent)]
    Bind(BindError),
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl Listener {
    /// Binds the first place of a server that can be had.
    pub fn bind_at(place: &Place, surroundings: &Surroundings) -> Result<Self, ListenError> {
        match Self::bind(&place.for_server(surroundings)) {
            Err(ListenError::Bind(_)) => Self::bind_among_temporary(place, surroundings),
            bound => bound,
        }
    }

    pub(crate) fn bind_among_temporary(
        place: &Place,
        surroundings: &Surroundings,
    ) -> Result<Self, ListenError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let path = place.for_server_among_temporary(surroundings);
            let path = path.map_err(|cause| {
                let folder = surroundings.temporary.clone();
                ListenError::Bind(BindError::FolderNotOurs { folder, cause })
            })?;
            let directory = path.parent().expect("it is in one").to_owned();
            let bound = Self::bind(&[path]).map(|mut listener| {
                listener.file.directory = Some(directory.clone());
                listener
            });
            // A server that ended meanwhile may have removed the directory.
            if private::is_private(&directory, surroundings.uid) || tries == TRIES {
                return bound;
            }
        }
    }

    /// Binds the first of `paths` that can be had. One that nobody listens on any more is replaced;
    /// one on which somebody listens ends the search.
    pub fn bind(paths: &[PathBuf]) -> Result<Self, ListenError> {
        let mut first = None;
        for path in paths {
            match bind_unix(path, OWN) {
                Ok(socket) => match Self::of(socket, path) {
                    Ok(listener) => return Ok(listener),
                    Err(error) => _ = first.get_or_insert(error),
                },
                Err(BindError::SocketInUse(path)) => {
                    let there = connect_at_once(&path).ok();
                    // Anybody may listen in a directory for temporary files.
                    if there.as_ref().is_some_and(is_foreign) {
                        _ = first.get_or_insert(BindError::SocketInUse(path));
                        continue;
                    }
                    let pid = there.as_ref().and_then(pid_behind);
                    return Err(ListenError::Running { path, pid });
                }
                Err(error) => _ = first.get_or_insert(error),
            }
        }
        let nowhere = || BindError::Runtime(io::ErrorKind::NotFound.into());
        Err(ListenError::Bind(first.unwrap_or_else(nowhere)))
    }

    /// Takes the place of the server that listens on `path`, which is about to hand over: whoever
    /// connects finds the one or the other.
    pub fn take_over(path: &Path) -> Result<Self, ListenError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let socket = bind_unix(&beside, OWN).map_err(ListenError::Bind)?;
        let mut listener = Self::of(socket, &beside).map_err(ListenError::Bind)?;
        let moved = std::fs::rename(&beside, path);
        moved.map_err(|cause| ListenError::Bind(unix(path, cause)))?;
        path.clone_into(&mut listener.file.path);
        listener.file.directory = private::of_server(path);
        Ok(listener)
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    fn of(socket: UnixListener, path: &Path) -> Result<Self, BindError> {
        match std::fs::symlink_metadata(path) {
            Ok(file) => Ok(Self {
                socket,
                file: SocketFile {
                    path: path.to_owned(),
                    identity: (file.dev(), file.ino()),
                    directory: None,
                },
            }),
            Err(cause) => {
                _ = std::fs::remove_file(path); // the error that is returned matters more
                Err(unix(path, cause))
            }
        }
    }
}

fn unix(path: &Path, cause: io::Error) -> BindError {
    BindError::Unix {
        path: path.to_owned(),
        cause,
    }
}

/// The process at the other end, unless it is in another container.
pub(crate) fn pid_behind(stream: &UnixStream) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    let pid = peer.pid.as_raw_nonzero().get();
    u32::try_from(pid).ok()
}

/// Whether it is neither root's nor this user's.
fn is_foreign(stream: &UnixStream) -> bool {
    let trusted = Trusted::new(rustix::process::geteuid().as_raw(), None);
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| !trusted.has(peer.uid.as_raw()))
}

/// Removed when it is dropped, if it is still the same.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    /// The server's own directory among temporary files, which goes with its last socket.
    directory: Option<PathBuf>,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let found = std::fs::symlink_metadata(&self.path);
        if found.is_ok_and(|file| (file.dev(), file.ino()) == self.identity) {
            _ = std::fs::remove_file(&self.path); // somebody may have been quicker
        }
        if let Some(directory) = &self.directory {
            _ = std::fs::remove_dir(directory); // another server's socket may be there
        }
    }
}
