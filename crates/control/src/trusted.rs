//! Whose server a command asks: anybody may put up a socket in a directory for temporary files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Made by root's systemd for the units' users.
const OF_UNITS: &str = "/run";
/// Also below it, and each login's own.
const OF_LOGINS: &str = "/run/user";

/// The users whose server a command talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trusted {
    /// The command's.
    own: u32,
    /// The configuration's, for root: a server may run as who has written it.
    owner: Option<u32>,
}

impl Trusted {
    /// For the server of this configuration, or of this directory.
    pub fn at(named: &Path) -> Self {
        let own = rustix::process::geteuid().as_raw();
        let named = std::fs::metadata(named).ok();
        Self::new(own, named.map(|named| named.uid()))
    }

    pub(crate) fn new(own: u32, owner: Option<u32>) -> Self {
        let owner = owner.filter(|_| own == 0);
        Self { own, owner }
    }

    /// Root, the command's user, and for root the configuration's owner.
    pub fn has(self, uid: u32) -> bool {
        uid == 0 || uid == self.own || self.owner == Some(uid)
    }

    /// Whether this user's server may be asked on this socket: for root, also one that systemd has
    /// made the socket's directory for (`User=` and `RuntimeDirectory=`).
    pub(crate) fn has_at(self, uid: u32, socket: &Path) -> bool {
        self.has(uid) || self.own == 0 && is_of_unit(socket, uid)
    }
}

fn is_of_unit(socket: &Path, uid: u32) -> bool {
    let Some(directory) = socket.parent() else {
        return false;
    };
    let is_private = |path: &Path, owner: u32| {
        let found = std::fs::symlink_metadata(path);
        found.is_ok_and(|it| it.is_dir() && it.uid() == owner && it.mode() & 0o022 == 0)
    };
    directory.parent() == Some(Path::new(OF_UNITS))
        && directory != Path::new(OF_LOGINS)
        && is_private(Path::new(OF_UNITS), 0)
        && is_private(directory, uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_root_asks_root_and_who_owns_the_configuration() {
        let socket = Path::new("/tmp/pronghorn-1.sock");
        let asks = |own, owner, peer| Trusted::new(own, owner).has_at(peer, socket);
        for (own, owner, peer, expected) in [
            (0, None, 0, true),
            (0, Some(0), 1000, false),
            (0, None, 1000, false),
            (0, Some(1000), 1000, true),
            (0, Some(1000), 1001, false),
            (1000, Some(1000), 1000, true),
            (1000, Some(1000), 0, true),
            // Others' sockets are no business of a user who is not root.
            (1000, Some(1001), 1001, false),
        ] {
            assert_eq!(asks(own, owner, peer), expected, "{own} {owner:?} {peer}");
        }
    }

    #[test]
    fn a_directory_of_a_login_is_no_units() {
        for socket in [
            "/run/user/x.sock",
            "/run/user/0/x.sock",
            "/run/none/x.sock",
            "/run/../tmp/x.sock",
            "/x.sock",
        ] {
            assert!(!is_of_unit(Path::new(socket), 0), "{socket}");
        }
    }
}
