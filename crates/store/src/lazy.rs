//! A store that nobody may need.

use std::error::Error;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use pronghorn_base::{Backoff, lock, with_causes};
use tokio::sync::{Mutex, Notify, OnceCell, mpsc};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

use crate::elsewhere::serve;
use crate::error::OpenError;
use crate::folder;
use crate::link::Link;
use crate::lock::{Lock, SharedLock, is_lent};
use crate::store::{Foreign, Lender, Others, Store};

/// How long an operation waits for the store of the process before, which leaves it when its last
/// work is done: as long as drivers of jobs have by default.
const PATIENCE: Duration = Duration::from_secs(60);
const NEXT_TRY: Duration = Duration::from_millis(20);
/// A server that was killed keeps its locks until the system has cleared it away, which takes the
/// longer the more memory it had.
const CLEARED: Duration = Duration::from_secs(2);
/// The pause between two tries to open the store while other processes of this server have it. They
/// leave it when their jobs have run.
const UNTIL_LEFT: Duration = Duration::from_millis(50);
/// Pauses between tries of what a disk does not allow: most of its troubles are over soon, and
/// nobody waits longer than that after one that was not.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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
    /// It was opened, for whoever tries again.
    opened: Notify,
    /// Why the last try to open it has failed.
    failure: std::sync::Mutex<Option<String>>,
    lock: SharedLock,
    /// One waits for the process before, for all that need the store.
    waits: Mutex<()>,
    /// Users that have not closed it.
    users: AtomicUsize,
    /// Once is enough: a server that does not go in this time goes on.
    has_waited: AtomicBool,
    /// The process that has taken over, before anybody here has needed the store.
    successor: std::sync::Mutex<Option<Link>>,
    foreign: Foreign,
    /// For those that had the store before, and are no process that has started this one.
    waiting: std::sync::Mutex<JoinSet<()>>,
}

impl LazyStore {
    /// See [`Store::open`].
    pub fn new(folder: PathBuf, limit: u64) -> Self {
        Self(Arc::new(Inner {
            place: Some((folder, limit)),
            store: OnceCell::new(),
            opened: Notify::new(),
            failure: std::sync::Mutex::default(),
            lock: SharedLock::default(),
            waits: Mutex::default(),
            users: AtomicUsize::new(0),
            has_waited: AtomicBool::new(false),
            successor: std::sync::Mutex::default(),
            foreign: Foreign::default(),
            waiting: std::sync::Mutex::default(),
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

    /// The store, after other processes of this server have left it, however long that takes.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), but for the time in which another process has it.
    pub async fn get_at_last(&self) -> Result<Store, OpenError> {
        once_left(|| self.get()).await
    }

    /// Repeats what needs the store until it is done: at an upgrade, this process is the one that
    /// serves when it comes to open it, and no other one can any more. `failed` hears why not, each
    /// time that it is for another reason. Pauses between tries grow to half a minute, and end when
    /// somebody has opened the store. Cancel safe if what is repeated is.
    pub async fn until_done<T, E: Error, F>(
        &self,
        mut attempt: impl FnMut() -> F,
        mut failed: impl FnMut(&str),
    ) -> T
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut said = String::new();
        loop {
            let opened = self.0.opened.notified();
            let why = match attempt().await {
                Ok(done) => return done,
                Err(error) => with_causes(&error),
            };
            if why != said {
                failed(&why);
                said = why;
            }
            _ = timeout(backoff.next_wait(), opened).await; // either ends the pause
        }
    }

    /// The state after the last try to open it. It counts as well if nobody has tried, and while
    /// another process has it.
    ///
    /// # Errors
    ///
    /// With the reason.
    pub fn health(&self) -> Result<(), String> {
        match &*lock(&self.0.failure) {
            Some(why) if self.0.store.get().is_none() => Err(why.clone()),
            _ => Ok(()),
        }
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

    /// As long as another server may be one that was killed.
    async fn when_cleared<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, OpenError>
    where
        F: Future<Output = Result<T, OpenError>>,
    {
        let until = Instant::now() + CLEARED;
        loop {
            let tried = attempt().await;
            let may_go = match &tried {
                Err(error @ OpenError::InUse { .. }) => !error.is_of_predecessor(),
                _ => false,
            };
            if !may_go || self.0.has_waited.load(Ordering::Relaxed) {
                return tried;
            }
            if Instant::now() >= until {
                self.0.has_waited.store(true, Ordering::Relaxed);
                return tried;
            }
            sleep(NEXT_TRY).await;
        }
    }

    /// The same without waiting: for the time in which that process waits for this one. It waits a
    /// moment for a server that was killed.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn get_now(&self) -> Result<Store, OpenError> {
        self.when_cleared(|| self.try_get()).await
    }

    async fn try_get(&self) -> Result<Store, OpenError> {
        let open = || async {
            let (directory, limit) = self.0.place.clone().ok_or(OpenError::NoFolder)?;
            let directory_of_it = directory.clone();
            let (path, foreign, lock_of_directory) = (
                directory.clone(),
                self.0.foreign.clone(),
                self.0.lock.clone(),
            );
            if let Some(link) = lock(&self.0.successor).take() {
                let elsewhere = Store::elsewhere(link, foreign);
                return elsewhere.map_err(|source| OpenError::Io { path, source });
            }
            let open = move || {
                let store = Store::open_beside(&directory, limit, foreign, &lock_of_directory)?;
                Ok((store, is_lent(&directory)))
            };
            let (store, is_lent) = opened_apart(path, open).await?;
            // The last process of a chain was killed, and the ones before it are about to end.
            if is_lent && !self.others().are_there {
                self.0.foreign.before(true);
                let (directory, foreign) = (directory_of_it, self.0.foreign.clone());
                lock(&self.0.waiting).spawn(before_has_ended(directory, foreign));
            }
            self.0.opened.notify_waiters();
            Ok(store)
        };
        let tried = self.0.store.get_or_try_init(open).await.cloned();
        *lock(&self.0.failure) = match &tried {
            Ok(_) | Err(OpenError::InUse { .. }) => None,
            Err(error) => Some(with_causes(error)),
        };
        tried
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

    /// The claim, after other processes of this server have left the directory, however long that
    /// takes.
    ///
    /// # Errors
    ///
    /// As [`get_at_last`](Self::get_at_last).
    pub async fn claim_at_last(&self) -> Result<Claim, OpenError> {
        once_left(|| self.claim()).await
    }

    /// The same without waiting, but for a server that was killed.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub async fn claim_now(&self) -> Result<Claim, OpenError> {
        self.when_cleared(|| self.try_claim()).await
    }

    async fn try_claim(&self) -> Result<Claim, OpenError> {
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

    /// Where it is, if it is open.
    pub fn open_in(&self) -> Option<&Path> {
        self.0.store.get()?;
        let (directory, _) = self.0.place.as_ref()?;
        Some(directory)
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

    /// Whether a process before this one may have work for this store, which no other one has.
    pub fn follows_others(&self) -> bool {
        let others = self.others();
        others.before && !others.after
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
        self.0.foreign.has_successor();
        true
    }

    /// Carries out what the process before asks for, which may hand over its store from now on,
    /// until it ends, and the ones before it with all that they have given out. That one hears of
    /// it at once; one that has ended asks for nothing.
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
                self.0.foreign.before(true);
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
                // The other process waits for a while. Its users say what is wrong with the store.
                let store = this.until_done(|| this.get(), |_| {}).await;
                store.submit(operation).await;
            }
            let directory = this
                .0
                .place
                .as_ref()
                .map(|(directory, _)| directory.clone());
            before_has_ended(directory.unwrap_or_default(), this.0.foreign.clone()).await;
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

/// Tries until all others have left the directory.
async fn once_left<T, F>(attempt: impl Fn() -> F) -> Result<T, OpenError>
where
    F: Future<Output = Result<T, OpenError>>,
{
    loop {
        match attempt().await {
            Err(OpenError::InUse { .. }) => sleep(UNTIL_LEFT).await,
            tried => return tried,
        }
    }
}

/// Processes of a chain come to their end in any order, and one that has lost its connection may
/// have workers.
async fn before_has_ended(directory: PathBuf, foreign: Foreign) {
    let directory: Arc<Path> = directory.into();
    // This one shares the lock, once it has handed over itself.
    while !foreign.others.borrow().after {
        let directory = directory.clone();
        if !spawn_blocking(move || is_lent(&directory))
            .await
            .unwrap_or(false)
        {
            break;
        }
        sleep(NEXT_TRY).await;
    }
    foreign.before(false);
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
