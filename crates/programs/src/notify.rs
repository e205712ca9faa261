//! The socket in `NOTIFY_SOCKET`, by which a program says that it is up.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pronghorn_process::Credentials;
use rustix::cmsg_space;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::{Instant, sleep_until};

/// A longer message than any that systemd's documentation has.
const LONGEST: usize = 4 << 10;
/// Messages of one second, for each of which the server looks at its sender. Whoever sends more
/// waits.
const MOST: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);
/// Letters of a status.
const LONGEST_STATUS: usize = 200;
/// Begins the names of sockets; the number of their server follows.
const NAME: &str = "pronghorn-notify-";

/// One process's: a file that its user alone may write to. An abstract name would leave nothing
/// behind, but PHP's `socket_sendto` knows none.
#[derive(Debug)]
pub(crate) struct NotifySocket {
    socket: UnixDatagram,
    path: PathBuf,
    /// When this second began, and the messages in it.
    second: (Instant, u32),
}

impl NotifySocket {
    pub(crate) fn open(user: Option<&Credentials>) -> io::Result<Self> {
        let (server, random) = (std::process::id(), fresh());
        let path = std::env::temp_dir().join(format!("{NAME}{server}-{random:016x}"));
        let opened = Self {
            socket: UnixDatagram::bind(&path)?,
            path,
            second: (Instant::now(), 0),
        };
        set_socket_passcred(&opened.socket, true)?;
        fs::set_permissions(&opened.path, Permissions::from_mode(0o600))?;
        if let Some(user) = user.filter(|user| !user.is_current()) {
            chown(&opened.path, Some(user.uid()), None)?;
        }
        Ok(opened)
    }

    /// The value of `NOTIFY_SOCKET`.
    pub(crate) fn variable(&self) -> OsString {
        self.path.clone().into()
    }

    /// The next message, and the process that has sent it, as the kernel tells it. Descriptors that
    /// come along are closed: a program that waits for that knows then that its message was heard.
    /// Cancel safe.
    pub(crate) async fn receive(&mut self) -> (u32, Notice) {
        let (began, heard) = self.second;
        if heard >= MOST {
            sleep_until(began + SECOND).await;
        }
        let mut buffer = [0; LONGEST];
        let receive = || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmCredentials(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(&mut buffer)];
            let got = recvmsg(&self.socket, parts, &mut ancillary, RecvFlags::DONTWAIT)?;
            let sender = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmCredentials(sender) => Some(sender.pid),
                _ => None,
            });
            Ok((got.bytes, sender))
        };
        match self.socket.async_io(Interest::READABLE, receive).await {
            Ok((length, sender)) => {
                if began.elapsed() >= SECOND {
                    self.second = (Instant::now(), 0);
                }
                self.second.1 += 1;
                // 0 is a process that is not seen from here.
                let sender = sender.map_or(0, |pid| pid.as_raw_pid().cast_unsigned());
                let notice = Notice::parse(buffer.get(..length).unwrap_or_default());
                (sender, notice)
            }
            Err(_) => std::future::pending().await, // it says no more
        }
    }
}

impl Drop for NotifySocket {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path); // somebody has tidied up
    }
}

/// Removes the sockets of servers that were killed.
pub(crate) fn tidy() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let server = name.to_str().and_then(|name| name.strip_prefix(NAME));
        let server = server.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        let is_over = server.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if is_over && entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            _ = fs::remove_file(entry.path()); // another user's, who removes it
        }
    }
}

/// A message of a program about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) ready: bool,
    pub(crate) status: Option<String>,
}

impl Notice {
    fn parse(message: &[u8]) -> Self {
        let message = String::from_utf8_lossy(message);
        let mut told = Self::default();
        for line in message.lines() {
            match line.split_once('=') {
                Some(("READY", "1")) => told.ready = true,
                Some(("STATUS", status)) => {
                    let shown = status.chars().filter(|c| !c.is_control());
                    told.status = Some(shown.take(LONGEST_STATUS).collect());
                }
                _ => {}
            }
        }
        told
    }
}

/// As random as the keys of a hash map.
pub(crate) fn fresh() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _, RandomState};
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_says_that_it_is_up() {
        use std::os::unix::net::UnixDatagram as Socket;
        let mut socket = NotifySocket::open(None).unwrap();
        let path = PathBuf::from(socket.variable());
        let program = Socket::unbound().unwrap();
        program.send_to(b"STATUS=warms \x1b[1mup\n", &path).unwrap();
        program.send_to(b"READY=1", &path).unwrap();
        let (sender, told) = socket.receive().await;
        assert_eq!(sender, std::process::id());
        let expected = (false, Some("warms [1mup"));
        assert_eq!((told.ready, told.status.as_deref()), expected);
        assert!(socket.receive().await.1.ready);
        tidy();
        assert!(path.exists(), "its server is there");
        drop(socket);
        assert!(!path.exists());
        for other in [&b"READY=0"[..], b"READY", b"\xff\xff", b"", b"XREADY=1"] {
            assert_eq!(Notice::parse(other), Notice::default());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_sends_without_a_pause_waits() {
        use std::os::unix::net::UnixDatagram as Socket;

        let mut socket = NotifySocket::open(None).unwrap();
        let path = PathBuf::from(socket.variable());
        let program = Socket::unbound().unwrap();
        let began = Instant::now();
        for heard in 0..=2 * MOST {
            assert_eq!(began.elapsed(), SECOND * (heard.saturating_sub(1) / MOST));
            program.send_to(b"STATUS=busy", &path).unwrap();
            socket.receive().await;
        }
    }

    #[test]
    fn what_a_killed_server_has_left_is_removed() {
        let left = std::env::temp_dir().join(format!("{NAME}4294967295-1"));
        _ = fs::remove_file(&left);
        drop(std::os::unix::net::UnixDatagram::bind(&left).unwrap());
        tidy();
        assert!(!left.exists());
    }
}
