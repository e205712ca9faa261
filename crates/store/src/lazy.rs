//! A store that nobody may need.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use pronghorn_base::lock;
use tokio::sync::{Mutex, OnceCell, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::elsewhere::serve;
use crate::error::OpenError;
use crate::folder;
use crate::link::Link;
use crate::lock::{Lock, SharedLock};
use crate::store::{Foreign, Lender, Others, Store};

/// How long an operation waits for the store of the process before, which leaves it when its last
/// work is done: as long as drivers of jobs have by default.
const PATIENCE: Duration = Duration::from_secs(60);
const NEXT_TRY: Duration = Duration::from_millis(20);

/// The store of a state directory, opened when somebody asks for it first: a server that keeps
/// nothing makes no folder. Clones are the same one.
///
/// The default has no folder, and nothing can be kept.
#[derive(Clone, Debug, Default)]
pub struct LazyStore(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// With the limit.
    place: Option<(PathBuf, u64)>,
    store: OnceCell<Store>,
    lock: SharedLock,
    /// One waits for the process before, for all that need the store.
    waits: Mutex<()>,
    /// Users that have not closed it.
    users: AtomicUsize,
    /// The process that has taken over, before anybody here has needed the store.
    successor: std::sync::Mutex<Option<Link>>,
    foreign: Foreign,
}

impl LazyStore {
    /// See [`Store::open`].
    pub fn new(folder: PathBuf, limit: u64) -> Self {
        Self(Arc::new(Inner {
            place: Some((folder, limit)),
            store: OnceCell::new(),
            lock: SharedLock::default(),
            waits: Mutex::default(),
            users: AtomicUsize::new(0),
            successor: std::sync::Mutex::default(),
            foreign: Foreign::default(),
        }))
    }

    /// The open store. While the process that has started this one still has it, this waits for a
    /// minute: the other is about to leave it.
    ///
    /// # Errors
    ///
    /// As [`Store::open`]; the next call tries again.
    pub async fn get(&self) -> Result<Store, OpenError> {
        self.when_left(|| self.get_now()).await
    }

    /// Tries until the process before has left the directory, for a minute.
    async fn when_left<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, OpenError>
    where
        F: Future<Output = Result<T, OpenError>>,
    {
        let is_left = |tried: &Result<T, OpenError>| {
            let error = tried.as_ref().err();
            !error.is_some_and(OpenError::is_of_predecessor)
        };
        let first = attempt().await;
        if is_left(&first) {
            return first;
        }
        let wait = async {
            let _turn = self.0.waits.lock().await;
            loop {
                let next = attempt().await;
                if is_left(&next) {
                    return next;
                }
                sleep(NEXT_TRY).await;
            }
        };
        timeout(PATIENCE, wait).await.unwrap_or(first)
    }

    /// The same without waiting: for the time in which that process waits for this one.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn get_now(&self) -> Result<Store, OpenError> {
        let open = || async {
            let (directory, limit) = self.0.place.clone().ok_or(OpenError::NoFolder)?;
            let (path, foreign, lock_of_directory) = (
                directory.clone(),
                self.0.foreign.clone(),
                self.0.lock.clone(),
            );
            if let Some(link) = lock(&self.0.successor).take() {
                let elsewhere = Store::elsewhere(link, foreign);
                return elsewhere.map_err(|source| OpenError::Io { path, source });
            }
            let open = move || Store::open_beside(&directory, limit, foreign, &lock_of_directory);
            opened_apart(path, open).await
        };
        self.0.store.get_or_try_init(open).await.cloned()
    }

    /// Keeps other servers away from the state directory, as an open store does: for who has files
    /// of its own there. Waits as [`get`](Self::get) does.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn claim(&self) -> Result<Claim, OpenError> {
        self.when_left(|| self.claim_now()).await
    }

    /// The same without waiting.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn claim_now(&self) -> Result<Claim, OpenError> {
        let (directory, _) = self.0.place.clone().ok_or(OpenError::NoFolder)?;
        let (path, lock_of_directory) = (directory.clone(), self.0.lock.clone());
        let claim = move || {
            let created = folder::create_state_folder(&directory);
            created.map_err(|source| OpenError::io(&directory, source))?;
            let lock = lock_of_directory.take(&directory)?;
            Ok(Claim { _lock: lock })
        };
        opened_apart(path, claim).await
    }

    /// The store, if it is open or a file of it is there: who only looks makes none, and does not
    /// wait.
    pub async fn get_if_there(&self) -> Option<Result<Store, OpenError>> {
        if self.0.store.get().is_none() {
            let (directory, _) = self.0.place.as_ref()?;
            let file = folder::file(directory, "redb");
            let is_there = spawn_blocking(move || file.exists()).await;
            if !is_there.unwrap_or(false) {
                return None;
            }
        }
        Some(self.get_now().await)
    }

    /// The other process that works with this store.
    pub fn others(&self) -> Others {
        *self.0.foreign.others.borrow()
    }

    /// Returns when no other process works with this store. Cancel safe.
    pub async fn left_alone(&self) {
        let mut others = self.0.foreign.others.subscribe();
        // Its sender lives as long as this one.
        _ = others.wait_for(|others| !others.are_there).await;
    }

    /// The process that has taken over has ended. This one may not know of it: it has nothing to
    /// ask.
    pub fn lose(&self) {
        if self.others().are_there {
            self.0.foreign.are_lost();
        }
    }

    /// Returns when nothing of this process can be written any more: the one that has the store has
    /// ended. Cancel safe.
    pub async fn lost(&self) {
        let mut others = self.0.foreign.others.subscribe();
        // Its sender lives as long as this one.
        _ = others.wait_for(|others| others.are_lost).await;
    }

    /// From now on, this one is asked before the store goes to another process.
    pub fn lends(&self, lender: Weak<dyn Lender>) {
        self.0.foreign.lends(lender);
    }

    /// Gives the store to the process that has taken over. What this one still does with it is
    /// carried out there. False: that process is of a release that can't, or this one could not say
    /// what it has given out; it lets go of the store when it is [closed](Self::close).
    pub async fn hand_over(&self, to: UnixStream) -> bool {
        let Ok(Some(link)) = Link::of_old(to) else {
            return false;
        };
        if let Some(store) = self.0.store.get() {
            return store.hand_over(link).await;
        }
        *lock(&self.0.successor) = Some(link);
        self.0.foreign.are_there(true);
        true
    }

    /// Carries out what the process before asks for, which may hand over its store from now on,
    /// until it ends. That one hears of it at once; one that has ended asks for nothing.
    ///
    /// # Errors
    ///
    /// When the system has no thread for it.
    pub fn take_over(
        &self,
        from: UnixStream,
    ) -> io::Result<impl Future<Output = ()> + Send + 'static> {
        let (sender, mut asked) = mpsc::channel(1);
        match Link::of_new(from) {
            Ok(link) => {
                self.0.foreign.are_there(true);
                // It reads for as long as the other process lives, and ends with it.
                thread::Builder::new()
                    .name("store-before".to_owned())
                    .spawn(move || {
                        serve(link, |operation| sender.blocking_send(operation).is_ok());
                    })?;
            }
            // The kernel has given up its lock of the store.
            Err(error) if is_end(&error) => drop(sender),
            Err(error) => return Err(error),
        }
        let this = self.clone();
        Ok(async move {
            while let Some(operation) = asked.recv().await {
                // Dropped, it ends the connection.
                if let Ok(store) = this.get().await {
                    store.submit(operation).await;
                }
            }
            this.0.foreign.are_there(false);
        })
    }

    /// The same for one more user, who closes it in the end.
    #[must_use]
    pub fn share(&self) -> Self {
        self.0.users.fetch_add(1, Ordering::Relaxed);
        self.clone()
    }

    /// See [`Store::close`]. While others [share](Self::share) it, it stays open for them.
    pub async fn close(&self) {
        let one_less = |users: usize| Some(users.saturating_sub(1));
        let before = self
            .0
            .users
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if before.is_ok_and(|users| users > 1) {
            return;
        }
        if let Some(store) = self.0.store.get() {
            store.close().await;
        }
    }
}

/// The state directory, which no other server uses while this lives.
#[derive(Debug)]
pub struct Claim {
    _lock: Arc<Lock>,
}

/// Whether the other process has ended.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// Opens something on a thread that may wait for the disk.
async fn opened_apart<T: Send + 'static>(
    path: PathBuf,
    open: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    spawn_blocking(open).await.unwrap_or_else(|ended| {
        let source = io::Error::other(ended);
        Err(OpenError::Io { path, source })
    })
}
