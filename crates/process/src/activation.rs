//! Listening sockets that systemd has opened for this process (`sd_listen_fds(3)`).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::net::getsockname;
use thiserror::Error;

use crate::socket::unix_path;
use crate::spawner::{FIRST_OWN, reserve_passed};

/// The first descriptor that is passed; the others follow.
const FIRST: RawFd = 3;
/// More than any server listens on: a number beyond is none of systemd's.
const MOST: usize = 64;
/// What tells of them. Children get none of it.
pub const VARIABLES: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// A socket that was open before this process.
#[derive(Debug)]
pub struct Activated {
    /// `FileDescriptorName=` of the unit; without it systemd takes the unit's own name.
    pub name: String,
    pub place: ActivatedPlace,
    pub socket: OwnedFd,
}

/// Where such a socket listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActivatedPlace {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The operator's: a unit passes what no server can use.
#[derive(Debug, Error)]
#[error(
    "systemd passes descriptor {number} (`{name}`), which is no listening socket: {cause}\n\
     hint: the socket's unit needs `ListenStream=`, and `Accept=no`"
)]
pub struct ActivationError {
    number: RawFd,
    name: String,
    cause: io::Error,
}

/// Those that were passed to this process. To be asked once, at its start, before anything else
/// opens files.
///
/// # Errors
///
/// When one of them is no socket that connections can be accepted from.
pub fn activated() -> Result<Vec<Activated>, ActivationError> {
    let [pid, count, names] = VARIABLES.map(|name| std::env::var(name).unwrap_or_default());
    if pid != std::process::id().to_string() {
        return Ok(Vec::new());
    }
    let names = names_of(&count, &names).into_iter();
    let activated = names
        .zip(FIRST..)
        .map(|(name, number)| {
            take(number, &name).map_err(|cause| ActivationError {
                number,
                name,
                cause,
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    // The numbers that are free now are those at which workers get their pipes.
    _ = reserve_passed(); // whoever starts a child is told
    Ok(activated)
}

/// A name for each.
fn names_of(count: &str, names: &str) -> Vec<String> {
    let count = count.parse().unwrap_or(0).min(MOST);
    let mut names = names.split(':').filter(|name| !name.is_empty());
    let unknown = || "unknown".to_owned();
    (0..count)
        .map(|_| names.next().map_or_else(unknown, ToOwned::to_owned))
        .collect()
}

fn take(number: RawFd, name: &str) -> io::Result<Activated> {
    #[expect(unsafe_code, reason = "naming a descriptor by its number")]
    // SAFETY: looked at for as long as this function runs, at the start of the process. A number
    // that is not open is an error of the calls below.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !rustix::net::sockopt::socket_acceptconn(borrowed)? {
        return Err(io::Error::other("nothing listens"));
    }
    let place = place(borrowed)?;
    let socket = rustix::io::fcntl_dupfd_cloexec(borrowed, FIRST_OWN)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    #[expect(unsafe_code, reason = "taking over what exec passed on")]
    // SAFETY: systemd passed it to this process alone, and nothing else here knows its number.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(Activated {
        name: name.to_owned(),
        place,
        socket,
    })
}

/// Where a socket listens.
///
/// # Errors
///
/// When it is no socket, or one without an address.
pub fn place(socket: BorrowedFd<'_>) -> io::Result<ActivatedPlace> {
    let bound = getsockname(socket)?;
    if let Ok(address) = SocketAddr::try_from(bound) {
        return Ok(ActivatedPlace::Tcp(address));
    }
    let path = unix_path(socket);
    let path = path.ok_or_else(|| io::Error::other("it has no path and no internet address"))?;
    Ok(ActivatedPlace::Unix(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_descriptor_has_a_name() {
        for (count, names, expected) in [
            ("", "", &[][..]),
            ("2", "http:rpc", &["http", "rpc"]),
            ("2", "http", &["http", "unknown"]),
            ("-1", "http", &[]),
            ("x", "http", &[]),
        ] {
            assert_eq!(names_of(count, names), expected, "{count} {names}");
        }
        assert_eq!(names_of("100000", "").len(), MOST);
    }

    #[test]
    fn what_was_passed_to_another_process_is_left_alone() {
        assert!(activated().unwrap().is_empty());
    }
}
