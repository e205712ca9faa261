//! The open store, as its users have it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;

use pronghorn_base::open_plain;
use redb::Database;
use redb::backends::FileBackend;
use tokio::sync::{mpsc, oneshot};

use crate::engine::{self, CACHE, Engine, Opener, Operation};
use crate::error::{OpenError, StoreError};
use crate::folder;
use crate::lock::Lock;
use crate::transaction::{Failed, Transaction};

/// How many operations share a commit at most. A commit takes as long as the disk needs, and so
/// many come together in this time when the disk is slow and the load is high.
const GROUP: usize = 1024;

/// An open store. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Store {
    orders: mpsc::Sender<Order>,
}

enum Order {
    Do(Box<dyn Operation>),
    Close(oneshot::Sender<()>),
}

impl Store {
    /// Opens the store in this folder; makes both when they are not there, for this user alone.
    /// Entries may count `limit` bytes in all ([`entry_size`](crate::entry_size)); the file is
    /// somewhat larger, and never becomes smaller.
    ///
    /// Blocks: after a kill, the whole file is checked, a second for a quarter of a gigabyte.
    ///
    /// # Errors
    ///
    /// When another process has it, when it is of a newer version or broken, or the system says no.
    /// A file that is empty is broken.
    pub fn open(folder: &Path, limit: u64) -> Result<Self, OpenError> {
        folder::create_state_folder(folder).map_err(|source| OpenError::io(folder, source))?;
        let lock = Lock::take(folder)?;
        let path = folder::file(folder, "redb");
        let is_there = path
            .try_exists()
            .map_err(|source| OpenError::io(&path, source))?;
        if !is_there {
            let created = create(folder, &path);
            created.map_err(|error| OpenError::of_engine(&path, error))?;
        }
        let of_file = path.clone();
        let opener: Opener = Box::new(move || {
            let file = open_plain(&of_file, OpenOptions::new().read(true).write(true))?;
            // The engine would take it for a new one, and what was in it would be gone unnoticed.
            if file.metadata()?.len() == 0 {
                let why = "it is empty, as a full disk or an interrupted copy leaves a file";
                return Err(redb::Error::Corrupted(why.to_owned()));
            }
            Ok(builder().create_with_backend(FileBackend::new(file)?)?)
        });
        let engine = Engine::open(path, opener, limit)?;
        Self::start(engine, Some(lock)).map_err(|source| OpenError::io(folder, source))
    }

    pub(crate) fn start(engine: Engine, lock: Option<Lock>) -> io::Result<Self> {
        let (orders, received) = mpsc::channel(GROUP);
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || work(engine, lock, received))?;
        Ok(Self { orders })
    }

    /// Does something with the entries and says what came out once it is on the disk. It adds at
    /// most `growth` bytes, as [`entry_size`](crate::entry_size) counts them; without any, it is
    /// done in a full store too.
    ///
    /// `then` runs on the store's thread, for all operations in the order in which they were
    /// carried out: the place to change what mirrors the entries in memory. It must not block.
    /// Both run also when the caller has left.
    ///
    /// # Errors
    ///
    /// When the store was closed before. All else is for `then` to judge.
    pub async fn carry_out<T: Send + 'static, U: Send + 'static>(
        &self,
        growth: u64,
        run: impl FnOnce(&mut Transaction<'_>) -> Result<T, Failed> + Send + 'static,
        then: impl FnOnce(Result<T, StoreError>) -> U + Send + 'static,
    ) -> Result<U, StoreError> {
        let (answer, answered) = oneshot::channel();
        let operation = Closures {
            growth,
            run: Some(run),
            outcome: None,
            then,
            answer,
        };
        let sent = self.orders.send(Order::Do(Box::new(operation))).await;
        sent.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)
    }

    /// Carries out what was asked for before, closes the file and gives up the lock: another
    /// process can open it once this is done.
    pub async fn close(&self) {
        let (closed, done) = oneshot::channel();
        if self.orders.send(Order::Close(closed)).await.is_ok() {
            // An error says that it was closed by somebody else just before.
            _ = done.await;
        }
    }
}

/// A new file gets its name when it is a store: one of this name that is empty was cut.
fn create(folder: &Path, path: &Path) -> Result<(), redb::Error> {
    let new = folder::file(folder, "new");
    match fs::remove_file(&new) {
        // It was left by a process that was killed.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let database = builder().create_with_backend(FileBackend::new(file)?)?;
    engine::begin(&database)?;
    drop(database);
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()?;
    tracing::info!(target: "store", path = %path.display(), "a new store, without entries");
    Ok(())
}

pub(crate) fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    builder
}

/// Until the store is closed, or nobody is left who could ask for anything.
fn work(mut engine: Engine, lock: Option<Lock>, mut orders: mpsc::Receiver<Order>) {
    let mut closing = None;
    while closing.is_none()
        && let Some(order) = orders.blocking_recv()
    {
        let mut group = Vec::new();
        let mut next = Some(order);
        while let Some(order) = next {
            match order {
                Order::Do(operation) => group.push(operation),
                Order::Close(closed) => {
                    closing = Some(closed);
                    break;
                }
            }
            next = (group.len() < GROUP)
                .then(|| orders.try_recv().ok())
                .flatten();
        }
        if !group.is_empty() {
            engine.carry_out(group);
        }
    }
    drop(orders);
    drop(engine);
    drop(lock);
    if let Some(closed) = closing {
        // Whoever closed it may not wait any more.
        _ = closed.send(());
    }
}

struct Closures<F, T, G, U> {
    growth: u64,
    run: Option<F>,
    outcome: Option<T>,
    then: G,
    answer: oneshot::Sender<U>,
}

impl<F, T, G, U> Operation for Closures<F, T, G, U>
where
    F: FnOnce(&mut Transaction<'_>) -> Result<T, Failed> + Send,
    T: Send,
    G: FnOnce(Result<T, StoreError>) -> U + Send,
    U: Send,
{
    fn growth(&self) -> u64 {
        self.growth
    }

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Failed> {
        let run = self.run.take().expect("an operation runs once");
        self.outcome = Some(run(transaction)?);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self {
            outcome: out,
            then,
            answer,
            ..
        } = *self;
        let outcome = outcome.map(|()| out.expect("what was committed has run"));
        // The caller may have left.
        _ = answer.send(then(outcome));
    }
}
