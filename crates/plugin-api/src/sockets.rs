//! Listening sockets that outlive their process.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use pronghorn_base::lock;

/// What this process was handed by the one before it, and what the next one will get.
///
/// A socket that is closed resets the connections that wait to be accepted, so none is closed and
/// opened anew: a service takes those that bear its name, and binds only what is missing.
#[derive(Clone, Default)]
pub struct Sockets(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    inherited: Vec<(String, OwnedFd)>,
    offered: Vec<(String, OwnedFd)>,
}

impl Sockets {
    /// With those of the process before.
    pub fn inherited(sockets: Vec<(String, OwnedFd)>) -> Self {
        Self(Arc::new(Mutex::new(State {
            inherited: sockets,
            offered: Vec::new(),
        })))
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
