//! Binding sockets, where every way that it fails says what is in the way and what to do; failures
//! of accepting.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::libc;
use pronghorn_base::lock;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, getsockname, socket_with,
    sockopt::socket_type,
};
use thiserror::Error;

use crate::Credentials;
use crate::file::name_of_open;

/// A pause after a failed accept: out of descriptors, most likely, and trying again at once would
/// only spin.
pub const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(100);

/// Whether an accept failed because the peer gave up between its SYN and the accept: no reason to
/// pause.
pub fn is_about_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

/// A socket that cannot be bound. The operator's to mend. Causes are in the text, before the hint,
/// and not in `source()`.
#[derive(Debug, Error)]
pub enum BindError {
    #[error("{address} is in use by another process\nhint: `ss -ltnp 'sport = :{}'` shows which", .address.port())]
    AddressInUse { address: SocketAddr },
    #[error("{address} is in use by another process for UDP, which HTTP/3 needs\nhint: `ss -lunp 'sport = :{}'` shows which", .address.port())]
    DatagramsInUse { address: SocketAddr },
    #[error("port {} needs the right to bind ports below 1024\nhint: `setcap cap_net_bind_service=+ep` on the binary, `AmbientCapabilities=CAP_NET_BIND_SERVICE` in its systemd unit, or a port from 1024 up", .address.port())]
    PortNeedsRight { address: SocketAddr },
    #[error("{address} is no address of this machine")]
    NotOurs { address: SocketAddr },
    #[error("cannot listen on {address}: {cause}")]
    Tcp {
        address: SocketAddr,
        cause: io::Error,
    },
    #[error("a live server listens on `{}`\nhint: stop it first, or choose another path", .0.display())]
    SocketInUse(PathBuf),
    #[error("`{}` exists and is no socket", .0.display())]
    NotASocket(PathBuf),
    #[error(
        "the folder `{0}` for the socket cannot be created: {cause}\nhint: `sudo mkdir -p {0}` and `sudo chown {user} {0}`",
        .folder.display(), user = user_name()
    )]
    NoFolder { folder: PathBuf, cause: io::Error },
    #[error(
        "cannot create a socket in the folder `{0}`: {cause}\nhint: `sudo chown {user} {0}`, or choose another path",
        .folder.display(), user = user_name()
    )]
    FolderNotOurs { folder: PathBuf, cause: io::Error },
    #[error("cannot listen on `{}`: {cause}", .path.display())]
    Unix { path: PathBuf, cause: io::Error },
    #[error("cannot watch a socket: {0}")]
    Runtime(io::Error),
}

impl BindError {
    /// The same as [`tcp`](Self::tcp) for a socket of UDP.
    pub fn udp(address: SocketAddr, source: io::Error) -> Self {
        match Self::tcp(address, source) {
            Self::AddressInUse { address } => Self::DatagramsInUse { address },
            other => other,
        }
    }

    /// Sorts the errors of bind(2) and listen(2) for an internet address.
    pub fn tcp(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse { address },
            io::ErrorKind::PermissionDenied if address.port() < 1024 => {
                Self::PortNeedsRight { address }
            }
            io::ErrorKind::AddrNotAvailable => Self::NotOurs { address },
            _ => Self::Tcp {
                address,
                cause: source,
            },
        }
    }
}

/// The file of a unix socket that this process listens on: removed with this value, unless it is
/// another process's.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    ours: AtomicBool,
    /// True if systemd has opened the socket: it stays open after this process, so nobody removes
    /// its file.
    kept: bool,
    /// The access that the process before gave the socket, if this process has changed it. A
    /// process that does not take over gives it back.
    before: Mutex<Option<Access>>,
}

impl SocketFile {
    fn new(path: &Path, ours: bool, kept: bool) -> Self {
        let ours = AtomicBool::new(ours);
        Self {
            path: path.to_owned(),
            ours,
            kept,
            before: Mutex::default(),
        }
    }

    /// Gives an inherited socket what is configured for it now.
    fn change(&self, access: Access) -> io::Result<()> {
        let found = rustix::fs::stat(&self.path)?;
        let before = Access {
            mode: found.st_mode & 0o777,
            uid: Some(found.st_uid),
            gid: Some(found.st_gid),
        };
        let access = access.resolved(&self.path);
        if access != before {
            give(&self.path, access)?;
            *lock(&self.before) = Some(before);
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_ours(&self) -> bool {
        !self.kept && self.ours.load(Ordering::Relaxed)
    }

    /// Whether it is this process that removes it: not while an inherited socket still belongs to
    /// the process before.
    pub fn set_ours(&self, ours: bool) {
        self.ours.store(ours, Ordering::Relaxed);
        *lock(&self.before) = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_ours() {
            _ = std::fs::remove_file(&self.path); // somebody may have been quicker
        } else if let Some(before) = lock(&self.before).take() {
            _ = give(&self.path, before); // the process before may have removed it
        }
    }
}

/// The bit of a directory whose files get its group.
const SETGID: u32 = 0o2000;

/// Who may connect to a unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// As of chmod(1). Whoever may write may connect.
    pub mode: u32,
    /// `None` is this process's.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Access {
    /// This process's own user and group, and nobody else.
    pub const OWNER_AND_GROUP: Self = Self {
        mode: 0o660,
        uid: None,
        gid: None,
    };

    /// The same with the numbers that a new socket of this path would have.
    fn resolved(self, path: &Path) -> Self {
        let directory = path.parent().and_then(|it| rustix::fs::stat(it).ok());
        let of_directory = directory.filter(|it| it.st_mode & SETGID != 0);
        let gid = self.gid.or_else(|| of_directory.map(|it| it.st_gid));
        Self {
            mode: self.mode,
            uid: self.uid.or_else(|| Some(nix::unistd::geteuid().as_raw())),
            gid: gid.or_else(|| Some(nix::unistd::getegid().as_raw())),
        }
    }

    /// These users and nobody else; `None` is this process's own. A file has one owner: where there
    /// are several users, everybody may connect, and [`Admitted`] looks at each who does.
    pub fn only(users: &[Option<Credentials>]) -> Self {
        match users {
            [] | [None] => Self {
                mode: 0o700,
                uid: None,
                gid: None,
            },
            [Some(owner)] => Self {
                mode: 0o700,
                uid: Some(owner.uid()),
                gid: Some(owner.gid()),
            },
            _ => Self {
                mode: 0o777,
                uid: None,
                gid: None,
            },
        }
    }
}

/// The users who may use a unix socket that has the permissions of [`Access::only`], root always.
#[derive(Debug, Clone)]
pub struct Admitted(Vec<u32>);

impl Admitted {
    pub fn only(users: &[Option<Credentials>]) -> Self {
        let own = nix::unistd::geteuid().as_raw();
        let users = users.iter();
        let mut admitted = vec![0, own];
        admitted.extend(users.map(|user| user.as_ref().map_or(own, Credentials::uid)));
        Self(admitted)
    }

    /// Whether whoever has connected may stay.
    pub fn has(&self, guest: impl AsFd) -> bool {
        let peer = rustix::net::sockopt::socket_peercred(guest);
        peer.is_ok_and(|peer| self.0.contains(&peer.uid.as_raw()))
    }
}

/// Listens on a unix socket: the inherited one of that path if its file is still there, whose file
/// then belongs to the process before; else [bound](bind_unix). What is taken is no longer among
/// those that were inherited. A socket of systemd keeps its file and its access.
pub fn open_unix(
    path: &Path,
    access: Access,
    is_systemds: bool,
    inherited: &mut Vec<OwnedFd>,
) -> Result<(UnixListener, SocketFile), BindError> {
    let is_there = || std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let bound_here = |socket: &mut OwnedFd| unix_path(socket).is_some_and(|bound| bound == path);
    let found = inherited.extract_if(.., bound_here).last();
    match found {
        Some(socket) if is_there() => {
            let file = SocketFile::new(path, false, is_systemds);
            if !is_systemds {
                let changed = file.change(access);
                changed.map_err(|source| BindError::Unix {
                    path: path.to_owned(),
                    cause: source,
                })?;
            }
            Ok((socket.into(), file))
        }
        _ => Ok((
            bind_unix(path, access)?,
            SocketFile::new(path, true, is_systemds),
        )),
    }
}

/// Where a unix socket is bound, if it is one that has a path.
pub fn unix_path(socket: impl AsFd) -> Option<PathBuf> {
    let bound = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    Some(OsStr::from_bytes(bound.path_bytes()?).into())
}

/// Takes the inherited sockets that listen on one of these addresses; port 0 stands for that of the
/// first one found.
pub fn bound_to(addresses: &[SocketAddr], inherited: &mut Vec<OwnedFd>) -> Vec<TcpListener> {
    let taken = take_bound(addresses, SocketType::STREAM, inherited);
    taken.into_iter().map(TcpListener::from).collect()
}

/// Takes the socket of UDP that is bound to this address.
pub fn bound_datagrams(address: SocketAddr, inherited: &mut Vec<OwnedFd>) -> Option<UdpSocket> {
    let taken = take_bound(&[address], SocketType::DGRAM, inherited);
    taken.into_iter().next().map(UdpSocket::from)
}

/// Lets each read of a socket of UDP have one packet, and none that the kernel has put together.
///
/// # Errors
///
/// When the kernel has no such option.
pub fn receive_singly(socket: &UdpSocket) -> io::Result<()> {
    const UDP_GRO: libc::c_int = 104;
    let off: libc::c_int = 0;
    let size = libc::socklen_t::try_from(size_of_val(&off)).map_err(io::Error::other)?;
    #[expect(unsafe_code, reason = "no library that is here has this option")]
    // SAFETY: the option is a number, of which the place and the length are given.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_UDP,
            UDP_GRO,
            (&raw const off).cast(),
            size,
        )
    };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes the ends of unix sockets that carry datagrams and have no name.
pub fn take_unix_datagrams(inherited: &mut Vec<OwnedFd>) -> Vec<OwnedFd> {
    let is_one = |socket: &mut OwnedFd| {
        let is_unix =
            getsockname(&*socket).is_ok_and(|name| name.address_family() == AddressFamily::UNIX);
        is_unix && socket_type(&*socket) == Ok(SocketType::DGRAM)
    };
    inherited.extract_if(.., is_one).collect()
}

fn take_bound(
    addresses: &[SocketAddr],
    kind: SocketType,
    inherited: &mut Vec<OwnedFd>,
) -> Vec<OwnedFd> {
    let mut addresses = addresses.to_vec();
    let bound_there = |socket: &mut OwnedFd| {
        if socket_type(&*socket) != Ok(kind) {
            return false;
        }
        let bound = getsockname(socket).ok().map(SocketAddr::try_from);
        let Some(Ok(bound)) = bound else {
            return false;
        };
        let wanted = addresses.iter_mut().find(|address| {
            is_same_ip(address.ip(), bound.ip())
                && (address.port() == 0 || address.port() == bound.port())
        });
        wanted.is_some_and(|address| {
            *address = bound;
            true
        })
    };
    inherited.extract_if(.., bound_there).collect()
}

/// Every address of the machine is one, with IPv6 or without.
fn is_same_ip(one: IpAddr, other: IpAddr) -> bool {
    one == other || one.is_unspecified() && other.is_unspecified()
}

/// Listens on a unix socket. Makes the folder if it can, and removes a socket that nobody listens
/// on.
pub fn bind_unix(path: &Path, access: Access) -> Result<UnixListener, BindError> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or_else(|| Path::new("."));
    if !folder.is_dir() {
        std::fs::create_dir_all(folder).map_err(|source| BindError::NoFolder {
            folder: folder.to_owned(),
            cause: source,
        })?;
    }
    remove_stale(path)?;
    let listener = UnixListener::bind(path).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => BindError::FolderNotOurs {
            folder: folder.to_owned(),
            cause: source,
        },
        _ => BindError::Unix {
            path: path.to_owned(),
            cause: source,
        },
    })?;
    let prepared = listener
        .set_nonblocking(true)
        .and_then(|()| give(path, access));
    match prepared {
        Ok(()) => Ok(listener),
        Err(source) => {
            _ = std::fs::remove_file(path); // the error that is returned matters more
            Err(BindError::Unix {
                path: path.to_owned(),
                cause: source,
            })
        }
    }
}

/// Whoever may write in the folder can put something else under the name at any moment, a link to a
/// file of root's for instance: it is a socket that owner and permissions are given to, whatever
/// has the name by then.
fn give(path: &Path, access: Access) -> io::Result<()> {
    let Access { mode, uid, gid } = access;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind != FileType::Socket {
        return Err(io::Error::other("something else has taken its name"));
    }
    // The mode comes last: a change of the owner may take bits of it away.
    if uid.is_some() || gid.is_some() {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        rustix::fs::chownat(&file, "", uid, gid, AtFlags::EMPTY_PATH)?;
    }
    // What is open by its path alone can be changed by this name.
    std::fs::set_permissions(name_of_open(&file), std::fs::Permissions::from_mode(mode))
}

/// A server that was killed leaves its socket behind. One that lives answers.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Unix {
        path: path.to_owned(),
        cause: source,
    };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => Err(BindError::NotASocket(path.to_owned())),
        Ok(_) => match connect_at_once(path) {
            Ok(_) => Err(BindError::SocketInUse(path.to_owned())),
            // Somebody listens, and does not accept.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(BindError::SocketInUse(path.to_owned()))
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed)
            }
            Err(error) => Err(failed(error)),
        },
    }
}

/// Connects to a unix socket. A listener that accepts nobody does not hold it up.
///
/// # Errors
///
/// As `connect(2)`; `WouldBlock` where too many wait already.
pub fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// How many bytes that were written the peer has not taken: over TCP, has not acknowledged; of a
/// unix socket, has not read, and somewhat more, since their buffers count. `None` where the kernel
/// does not say.
pub fn untaken(socket: impl AsFd) -> Option<u32> {
    let mut bytes: libc::c_int = 0;
    #[expect(unsafe_code, reason = "neither rustix nor nix has SIOCOUTQ")]
    // SAFETY: the descriptor is open while it is borrowed. The kernel writes one int, which lives
    // until the call returns.
    let failed = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes)
    };
    if failed == 0 {
        bytes.try_into().ok()
    } else {
        None
    }
}

fn user_name() -> String {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_testkit::Directory;

    use super::*;

    const OURS: Access = Access {
        mode: 0o700,
        uid: None,
        gid: None,
    };

    #[test]
    fn what_a_peer_takes_is_seen_before_there_is_room() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ours = listener.accept().unwrap().0;
        let pair = UnixStream::pair().unwrap();
        let of_unix = (OwnedFd::from(pair.0), OwnedFd::from(pair.1));
        for (ours, theirs) in [(ours.into(), theirs.into()), of_unix] {
            assert_eq!(untaken(&ours), Some(0));
            rustix::io::ioctl_fionbio(&ours, true).unwrap();
            while rustix::io::write(&ours, &[7; 1 << 14]).is_ok() {}
            let before = untaken(&ours).unwrap();
            assert!(before > 0);
            let mut left = 1 << 20;
            while untaken(&ours) == Some(before) && left > 0 {
                left -= rustix::io::read(&theirs, &mut [0; 1 << 12]).unwrap();
            }
            assert!(untaken(&ours).unwrap() < before);
        }
        assert_eq!(untaken(std::fs::File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn a_missing_directory_is_made() {
        let directory = Directory::new();
        let path = directory.join("a/b/c.sock");
        let _listener = bind_unix(&path, OURS).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn an_inherited_socket_is_used_and_its_file_left_until_it_is_ours() {
        let directory = Directory::new();
        let path = directory.join("s.sock");
        let (first, file) = open_unix(&path, OURS, false, &mut Vec::new()).unwrap();
        let (second, inherited) = open_unix(&path, OURS, false, &mut vec![first.into()]).unwrap();
        drop(inherited);
        UnixStream::connect(&path).unwrap();
        second.accept().unwrap();
        let (third, inherited) = open_unix(&path, OURS, false, &mut vec![second.into()]).unwrap();
        file.set_ours(false);
        drop(file);
        inherited.set_ours(true);
        UnixStream::connect(&path).unwrap();
        drop((third, inherited));
        assert!(!path.exists());
    }

    #[test]
    fn an_upgrade_gives_a_socket_its_new_access_and_a_failed_one_the_old() {
        use std::os::unix::fs::MetadataExt;
        let directory = Directory::new();
        let path = directory.join("s.sock");
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o777;
        let open = Access {
            mode: 0o666,
            ..OURS
        };
        let (first, file) = open_unix(&path, open, false, &mut Vec::new()).unwrap();
        let hand_over = || vec![OwnedFd::from(first.try_clone().unwrap())];
        let (_second, failing) = open_unix(&path, OURS, false, &mut hand_over()).unwrap();
        assert_eq!(mode(), OURS.mode);
        drop(failing);
        assert_eq!(mode(), 0o666, "the process before goes on");
        let (_systemds, kept) = open_unix(&path, OURS, true, &mut hand_over()).unwrap();
        drop(kept);
        assert_eq!(mode(), 0o666);
        let (_third, inherited) = open_unix(&path, OURS, false, &mut hand_over()).unwrap();
        file.set_ours(false);
        inherited.set_ours(true);
        drop(file);
        assert_eq!(mode(), OURS.mode);
        inherited.set_ours(false);
        drop(inherited);
        assert_eq!(mode(), OURS.mode, "another one has taken its place");
    }

    #[test]
    fn an_upgrade_keeps_the_group_of_a_directory_that_gives_it() {
        use std::os::unix::fs::{MetadataExt, chown};
        if !nix::unistd::geteuid().is_root() {
            return; // nobody else may give a directory to another group
        }
        let directory = Directory::new();
        let path = directory.join("s.sock");
        chown(&*directory, None, Some(33)).unwrap();
        let mode = std::fs::Permissions::from_mode(0o2770);
        std::fs::set_permissions(&*directory, mode).unwrap();
        let group = || std::fs::metadata(&path).unwrap().gid();
        let (first, _file) = open_unix(&path, OURS, false, &mut Vec::new()).unwrap();
        assert_eq!(group(), 33);
        let (_second, _inherited) = open_unix(&path, OURS, false, &mut vec![first.into()]).unwrap();
        assert_eq!(group(), 33);
    }

    #[test]
    fn of_many_inherited_sockets_each_takes_its_own() {
        let directory = Directory::new();
        let path = directory.join("s.sock");
        let (unix, _file) = open_unix(&path, OURS, false, &mut Vec::new()).unwrap();
        let tcp = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (one, two) = (tcp(), tcp());
        let address = one.local_addr().unwrap();
        let mut inherited: Vec<OwnedFd> = vec![two.into(), unix.into(), one.into()];
        let any = SocketAddr::new(address.ip(), 0);
        let mut more: Vec<OwnedFd> = vec![tcp().into(), tcp().into()];
        assert_eq!(bound_to(&[any], &mut more).len(), 1, "of one port alone");
        assert_eq!(bound_to(&[address], &mut inherited).len(), 1);
        let (_unix, file) = open_unix(&path, OURS, false, &mut inherited).unwrap();
        assert!(!file.is_ours());
        assert_eq!(inherited.len(), 1, "what nobody wants is left");
        assert!(bound_to(&[address], &mut inherited).is_empty());
    }

    #[test]
    fn a_socket_has_the_mode_and_group_that_are_asked_for() {
        use std::os::unix::fs::MetadataExt;
        let directory = Directory::new();
        let path = directory.join("s.sock");
        let gid = nix::unistd::getegid().as_raw();
        let access = Access {
            mode: 0o662,
            uid: None,
            gid: Some(gid),
        };
        let _listener = bind_unix(&path, access).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o777, found.gid()), (0o662, gid));
    }

    #[test]
    fn what_has_taken_a_sockets_name_is_given_to_nobody() {
        use std::os::unix::fs::{MetadataExt, symlink};
        let directory = Directory::new();
        let precious = directory.join("precious");
        std::fs::write(&precious, "precious").unwrap();
        let before = std::fs::metadata(&precious).unwrap().mode();
        let access = Access {
            mode: 0o777,
            uid: Some(nix::unistd::geteuid().as_raw()),
            gid: None,
        };
        let link = directory.join("link");
        symlink(&precious, &link).unwrap();
        give(&link, access).unwrap_err();
        give(&precious, access).unwrap_err();
        give(&directory, access).unwrap_err();
        assert_eq!(std::fs::metadata(&precious).unwrap().mode(), before);
        // A link is not followed to a socket either, and binding makes none where it points.
        bind_unix(&link, access).unwrap_err();
        symlink(directory.join("none"), directory.join("dangling")).unwrap();
        bind_unix(&directory.join("dangling"), access).unwrap_err();
        assert!(!directory.join("none").exists());
    }

    #[test]
    fn a_socket_of_another_path_or_without_its_file_is_bound_anew() {
        let directory = Directory::new();
        let (one, two) = (directory.join("one"), directory.join("two"));
        let (first, _file) = open_unix(&one, OURS, false, &mut Vec::new()).unwrap();
        let (_second, file) = open_unix(&two, OURS, false, &mut vec![first.into()]).unwrap();
        assert_eq!(file.path(), two);
        UnixStream::connect(&two).unwrap();
        let (first, _file) = open_unix(&one, OURS, false, &mut Vec::new()).unwrap();
        std::fs::remove_file(&one).unwrap();
        let (_third, _file) = open_unix(&one, OURS, false, &mut vec![first.into()]).unwrap();
        UnixStream::connect(&one).unwrap();
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = Directory::new();
        let path = directory.join("s.sock");
        drop(UnixListener::bind(&path).unwrap());
        let _listener = bind_unix(&path, OURS).unwrap();
        assert!(matches!(
            bind_unix(&path, OURS),
            Err(BindError::SocketInUse(_))
        ));
    }

    /// As of a process that was stopped.
    #[test]
    fn a_listener_that_accepts_nobody_holds_no_start_up() {
        let directory = Directory::new();
        let path = directory.join("s.sock");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| connect_at_once(&path).ok()).collect();
        assert!(!waiting.is_empty() && waiting.len() < 10);
        assert!(matches!(
            bind_unix(&path, OURS),
            Err(BindError::SocketInUse(_))
        ));
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let directory = Directory::new();
        let path = directory.join("file");
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(
            bind_unix(&path, OURS),
            Err(BindError::NotASocket(_))
        ));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "precious");
    }

    #[test]
    fn a_directory_that_cannot_be_made_names_the_two_commands() {
        let error = bind_unix(Path::new("/proc/nope/s.sock"), OURS)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sudo mkdir -p /proc/nope") && error.contains("sudo chown"),
            "{error}"
        );
    }

    #[test]
    fn a_taken_port_and_a_foreign_address_are_told_apart() {
        let address = "127.0.0.1:80".parse().unwrap();
        let of = |kind: io::ErrorKind| BindError::tcp(address, kind.into());
        assert!(matches!(
            of(io::ErrorKind::AddrInUse),
            BindError::AddressInUse { .. }
        ));
        assert!(matches!(
            of(io::ErrorKind::PermissionDenied),
            BindError::PortNeedsRight { .. }
        ));
        assert!(matches!(
            of(io::ErrorKind::AddrNotAvailable),
            BindError::NotOurs { .. }
        ));
        let error = of(io::ErrorKind::AddrInUse).to_string();
        assert_eq!(
            error,
            "127.0.0.1:80 is in use by another process\nhint: `ss -ltnp 'sport = :80'` shows which"
        );
    }
}
