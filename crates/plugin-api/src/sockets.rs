//! Listening sockets that outlive their process.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use pronghorn_base::lock;
use pronghorn_process::socket::unix_path;

/// Begins the names under which the next process gets a second duplicate of each socket of
/// systemd's: what follows is the socket's own name, if that stands for a key of the configuration.
pub const SYSTEMDS: &str = "systemd:";

/// What this process was handed by the one before it or by systemd, and what the next one will get.
///
/// A socket that is closed resets the connections that wait to be accepted, so none is closed and
/// opened anew: a service takes those that bear its name, and binds only what is missing.
#[derive(Clone, Default)]
pub struct Sockets(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    inherited: Vec<(String, OwnedFd)>,
    offered: Vec<(String, OwnedFd)>,
    /// Of unix sockets that systemd listens on after this server, too: their files stay.
    systemds: Vec<PathBuf>,
    has_predecessor: bool,
}

impl Sockets {
    /// With those of the process before.
    pub fn inherited(sockets: Vec<(String, OwnedFd)>) -> Self {
        let (systemds, inherited): (Vec<_>, Vec<_>) = sockets
            .into_iter()
            .partition(|(name, _)| name.starts_with(SYSTEMDS));
        let paths = systemds.iter().filter_map(|(_, socket)| unix_path(socket));
        Self(Arc::new(Mutex::new(State {
            systemds: paths.collect(),
            inherited,
            offered: systemds,
            has_predecessor: true,
        })))
    }

    /// Adds one that systemd has opened, for a service; `name` is its own, or nothing.
    ///
    /// # Errors
    ///
    /// When there are too many open files.
    pub fn add_systemds(&self, service: &str, name: &str, socket: OwnedFd) -> io::Result<()> {
        self.offer(&format!("{SYSTEMDS}{name}"), &socket)?;
        let path = unix_path(&socket);
        let mut state = self.lock();
        state.systemds.extend(path);
        state.inherited.push((service.to_owned(), socket));
        Ok(())
    }

    /// Whether the file of a unix socket stays when this server ends.
    pub fn is_systemds(&self, path: &Path) -> bool {
        self.lock().systemds.iter().any(|known| known == path)
    }

    /// Whether another process still serves what was inherited.
    pub fn has_predecessor(&self) -> bool {
        self.lock().has_predecessor
    }

    /// Those of this name, in the order in which they were offered. Whoever takes one that it has
    /// no use for drops it.
    pub fn take(&self, name: &str) -> Vec<OwnedFd> {
        let inherited = &mut self.lock().inherited;
        let taken = inherited.extract_if(.., |(known, _)| known == name);
        taken.map(|(_, socket)| socket).collect()
    }

    /// Keeps a duplicate for the next process, under a name without white space.
    ///
    /// # Errors
    ///
    /// When there are too many open files.
    pub fn offer(&self, name: &str, socket: impl AsFd) -> io::Result<()> {
        let duplicate = socket.as_fd().try_clone_to_owned()?;
        self.lock().offered.push((name.to_owned(), duplicate));
        Ok(())
    }

    /// What was offered, again as duplicates.
    ///
    /// # Errors
    ///
    /// When there are too many open files.
    pub fn offered(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let state = self.lock();
        let duplicates = state.offered.iter();
        duplicates
            .map(|(name, socket)| Ok((name.clone(), socket.try_clone()?)))
            .collect()
    }

    /// There is no next process: nothing is kept any more.
    pub fn close(&self) {
        *self.lock() = State::default();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        let names = |list: &[(String, OwnedFd)]| -> Vec<String> {
            list.iter().map(|(name, _)| name.clone()).collect()
        };
        f.debug_struct("Sockets")
            .field("inherited", &names(&state.inherited))
            .field("offered", &names(&state.offered))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn each_takes_its_own_once() {
        let socket = || TcpListener::bind("127.0.0.1:0").unwrap();
        let before = Sockets::default();
        for name in ["http", "rpc", "http"] {
            before.offer(name, socket()).unwrap();
        }
        let sockets = Sockets::inherited(before.offered().unwrap());
        assert_eq!(sockets.take("http").len(), 2);
        assert_eq!(sockets.take("http").len(), 0);
        assert_eq!(sockets.take("rpc").len(), 1);
        before.close();
        assert!(before.offered().unwrap().is_empty());
    }
}
