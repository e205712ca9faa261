//! The open store, as its users have it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak, mpsc as std_mpsc};
use std::thread;

use pronghorn_base::{Trusted, lock, open_plain};
use redb::Database;
use redb::backends::FileBackend;
use tokio::sync::{mpsc, oneshot, watch};

use crate::backend::{Backend, LastHeader, Room};
use crate::elsewhere;
use crate::engine::{self, CACHE, Engine, Operation, PROBE, Volume};
use crate::error::{OpenError, StoreError};
use crate::folder;
use crate::link::Link;
use crate::lock::{Lent, Lock, SharedLock};
use crate::transaction::{Failed, Transaction};

/// How many operations share a commit at most. A commit takes as long as the disk needs, and so
/// many come together in this time when the disk is slow and the load is high.
const GROUP: usize = 1024;

/// An open store. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Store {
    orders: mpsc::Sender<Order>,
    shared: Arc<StoreState>,
}

#[derive(Debug)]
struct StoreState {
    commits: AtomicU64,
    foreign: Foreign,
}

enum Order {
    Do(Box<dyn Operation>),
    /// Says whether it was.
    HandOver(Link, oneshot::Sender<bool>),
    Close(oneshot::Sender<()>),
}

/// Who has given out something of a store, and says later what became of it.
pub trait Lender: std::fmt::Debug + Send + Sync {
    /// The store goes to the process that takes over, right behind what is written here: that one
    /// has to know what is given out. Nothing more is.
    fn lend(&self, transaction: &mut Transaction<'_>) -> Result<(), Failed>;

    /// It was not written, and the store stays.
    fn stay(&self);
}

/// The work with other processes. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Foreign {
    pub(crate) others: watch::Sender<Others>,
    lenders: Arc<Mutex<Vec<Weak<dyn Lender>>>>,
}

/// The state of the other processes that have work with the same store, if there are some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// They are there: what they have given out is their own.
    pub are_there: bool,
    /// One before this one has not come to its end.
    pub(crate) before: bool,
    /// One has taken over from this one.
    pub(crate) after: bool,
    /// How often it may have changed something: a mirror of entries has to be made anew then.
    pub changes: u64,
    /// It has taken over the store, and has ended: nothing of this process is written any more.
    pub are_lost: bool,
}

impl Foreign {
    fn changed(&self) {
        self.others.send_modify(|others| others.changes += 1);
    }

    pub(crate) fn before(&self, is_there: bool) {
        self.change(|others| others.before = is_there);
    }

    pub(crate) fn has_successor(&self) {
        self.change(|others| others.after = true);
    }

    fn change(&self, change: impl FnOnce(&mut Others)) {
        self.others.send_modify(|others| {
            change(others);
            others.are_there = others.before || others.after;
        });
    }

    pub(crate) fn are_lost(&self) {
        self.others.send_modify(|others| others.are_lost = true);
    }

    /// See [`LazyStore::lends`](crate::LazyStore::lends).
    pub(crate) fn lends(&self, lender: Weak<dyn Lender>) {
        let mut lenders = lock(&self.lenders);
        lenders.retain(|lender| lender.strong_count() > 0);
        lenders.push(lender);
    }
}

impl Store {
    /// Opens the store in this directory; makes both when they are not there, for this user alone.
    /// Entries may count `limit` bytes in all ([`entry_size`](crate::entry_size)); the file is
    /// somewhat larger, and never becomes smaller.
    ///
    /// Blocks: after a kill, the whole file is checked, a second for a quarter of a gigabyte.
    ///
    /// # Errors
    ///
    /// When another process has it, when it is of a newer version or broken, or the system says no.
    /// A file that is empty is broken.
    pub fn open(directory: &Path, limit: u64) -> Result<Self, OpenError> {
        Self::open_beside(directory, limit, Foreign::default(), &SharedLock::default())
    }

    pub(crate) fn open_beside(
        directory: &Path,
        limit: u64,
        foreign: Foreign,
        shared: &SharedLock,
    ) -> Result<Self, OpenError> {
        folder::create_state_folder(directory)
            .map_err(|source| OpenError::io(directory, source))?;
        let lock = shared.take(directory)?;
        let path = folder::file(directory, "redb");
        let judged = Trusted::steps_of_server().judge_file(&path);
        judged.map_err(|source| OpenError::io(&path, source))?;
        let is_there = path
            .try_exists()
            .map_err(|source| OpenError::io(&path, source))?;
        if !is_there {
            let created = create(directory, &path);
            created.map_err(|error| OpenError::of_engine(&path, error))?;
        }
        let volume = Box::new(InDirectory {
            file: path.clone(),
            new: folder::file(directory, "new"),
            header: LastHeader::default(),
        });
        let engine = Engine::open(path, volume, limit)?;
        let keeper = Keeper::Here(engine, Some(lock));
        Self::start(keeper, foreign).map_err(|source| OpenError::io(directory, source))
    }

    /// The one that another process has, by what it carries out for this one.
    pub(crate) fn elsewhere(link: Link, foreign: Foreign) -> io::Result<Self> {
        Self::start(Keeper::Elsewhere(link, None), foreign)
    }

    pub(crate) fn start(keeper: Keeper, foreign: Foreign) -> io::Result<Self> {
        let (orders, received) = mpsc::channel(GROUP);
        let shared = Arc::new(StoreState {
            commits: AtomicU64::new(0),
            foreign,
        });
        let of_thread = shared.clone();
        thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || work(keeper, received, &of_thread))?;
        Ok(Self { orders, shared })
    }

    /// How many groups of operations were carried out.
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// The other process that works with this store. Within an operation this is what holds for
    /// its transaction; who has a mirror waits for changes beside that.
    pub fn others(&self) -> watch::Receiver<Others> {
        self.shared.foreign.others.subscribe()
    }

    /// From now on, this one is asked before the store goes to another process.
    pub fn lends(&self, lender: Weak<dyn Lender>) {
        self.shared.foreign.lends(lender);
    }

    /// Gives the file to the process at the other end, which carries out what is asked for from
    /// then on. False: it stays here.
    pub(crate) async fn hand_over(&self, to: Link) -> bool {
        let (answer, answered) = oneshot::channel();
        let sent = self.orders.send(Order::HandOver(to, answer)).await;
        sent.is_ok() && answered.await.unwrap_or(false)
    }

    /// Has an operation carried out that says by itself how it ended.
    pub(crate) async fn submit(&self, operation: Box<dyn Operation>) {
        // Dropped by a store that is closed.
        _ = self.orders.send(Order::Do(operation)).await;
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
        self.ask(growth, None, false, run, then).await
    }

    /// The same for one of several owners who share the store, and who holds so many bytes already:
    /// it has nine times as many as it leaves to others, and a thousandth of the limit in any case.
    /// In the store of another process it has all that is free there.
    ///
    /// # Errors
    ///
    /// As [`carry_out`](Self::carry_out).
    pub async fn carry_out_in_share<T: Send + 'static, U: Send + 'static>(
        &self,
        growth: u64,
        held: impl FnOnce(&mut Transaction<'_>) -> Result<u64, Failed> + Send + 'static,
        run: impl FnOnce(&mut Transaction<'_>) -> Result<T, Failed> + Send + 'static,
        then: impl FnOnce(Result<T, StoreError>) -> U + Send + 'static,
    ) -> Result<U, StoreError> {
        let held: HeldBytes = Box::new(held);
        self.ask(growth, Some(held), false, run, then).await
    }

    /// Reads something: also while the disk takes no writes.
    ///
    /// # Errors
    ///
    /// When the store was closed before, or the disk can't be read.
    pub async fn look<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Transaction<'_>) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(0, None, true, read, |outcome| outcome).await?
    }

    async fn ask<T: Send + 'static, U: Send + 'static>(
        &self,
        growth: u64,
        held: Option<HeldBytes>,
        only_reads: bool,
        run: impl FnOnce(&mut Transaction<'_>) -> Result<T, Failed> + Send + 'static,
        then: impl FnOnce(Result<T, StoreError>) -> U + Send + 'static,
    ) -> Result<U, StoreError> {
        let (answer, answered) = oneshot::channel();
        let operation = Closures {
            growth,
            held,
            only_reads,
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
fn create(directory: &Path, path: &Path) -> Result<(), redb::Error> {
    let new = folder::file(directory, "new");
    let created = create_by(&new, directory, path);
    if created.is_err() {
        _ = fs::remove_file(&new); // on a full disk it is in the way
    }
    created
}

fn create_by(new: &Path, directory: &Path, path: &Path) -> Result<(), redb::Error> {
    match fs::remove_file(new) {
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
        .open(new)?;
    let database = builder().create_with_backend(FileBackend::new(file)?)?;
    engine::begin(&database)?;
    drop(database);
    fs::rename(new, path)?;
    File::open(directory)?.sync_all()?;
    tracing::info!(target: "store", path = %path.display(), "a new store, without entries");
    Ok(())
}

/// The file of a store, the name of a new one beside it, and the header to which it may have to go
/// back.
struct InDirectory {
    file: PathBuf,
    new: PathBuf,
    header: LastHeader,
}

impl InDirectory {
    fn open_file(&self) -> Result<File, redb::Error> {
        let file = open_plain(&self.file, OpenOptions::new().read(true).write(true))?;
        // The engine would take it for a new one, and what was in it would be gone unnoticed.
        if file.metadata()?.len() == 0 {
            let why = "it is empty, as a full disk or an interrupted copy leaves a file";
            return Err(redb::Error::Corrupted(why.to_owned()));
        }
        Ok(file)
    }
}

impl Volume for InDirectory {
    fn open(&self) -> Result<(Database, Arc<Room>), redb::Error> {
        let file = self.open_file()?;
        let room = Room::of(&file, self.file.parent().unwrap_or(&self.file))?;
        let file = FileBackend::new(file)?;
        self.header.put_back(&file)?;
        let backend = Backend::with_room(file, room.clone(), self.header.clone());
        Ok((builder().create_with_backend(backend)?, room))
    }

    fn open_to_read(&self) -> Result<Database, redb::Error> {
        let backend = Backend::with_memory(FileBackend::new(self.open_file()?)?)?;
        Ok(builder().create_with_backend(backend)?)
    }

    fn probe(&self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let probed = open_plain(&self.new, &mut options).and_then(|mut file| {
            file.write_all(&vec![0; PROBE])?;
            file.sync_data()
        });
        _ = fs::remove_file(&self.new); // it is overwritten the next time
        probed
    }
}

pub(crate) fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    builder
}

/// Who has the file.
pub(crate) enum Keeper {
    Here(Engine, Option<Arc<Lock>>),
    /// The process that has taken over.
    Elsewhere(Link, Option<Lent>),
    /// That one, which has ended or does not answer.
    Gone {
        _lent: Option<Lent>,
    },
}

/// The step behind a group of operations.
enum Next {
    More,
    HandOver(Link, oneshot::Sender<bool>),
    Close(oneshot::Sender<()>),
}

/// Until the store is closed, or nobody is left who could ask for anything.
fn work(mut keeper: Keeper, mut orders: mpsc::Receiver<Order>, shared: &StoreState) {
    let mut closing = None;
    while closing.is_none()
        && let Some(order) = orders.blocking_recv()
    {
        let (group, next) = group(order, &mut orders);
        carry_out(&mut keeper, group, shared);
        match next {
            Next::More => {}
            Next::Close(closed) => closing = Some(closed),
            Next::HandOver(link, answer) => {
                keeper = hand_over(keeper, link, &shared.foreign);
                // Who asked for it may have left.
                _ = answer.send(matches!(keeper, Keeper::Elsewhere(..)));
            }
        }
    }
    drop(orders);
    drop(keeper);
    if let Some(closed) = closing {
        // Whoever closed it may not wait any more.
        _ = closed.send(());
    }
}

/// Operations that wait now. One of another process is alone: the others see the whole of it, or
/// nothing.
fn group(order: Order, orders: &mut mpsc::Receiver<Order>) -> (Vec<Box<dyn Operation>>, Next) {
    let mut group = Vec::new();
    let mut next = Some(order);
    while let Some(order) = next {
        match order {
            Order::Do(operation) => group.push(operation),
            Order::HandOver(link, answer) => return (group, Next::HandOver(link, answer)),
            Order::Close(closed) => return (group, Next::Close(closed)),
        }
        next = (group.len() < GROUP)
            .then(|| orders.try_recv().ok())
            .flatten();
    }
    (group, Next::More)
}

fn carry_out(keeper: &mut Keeper, group: Vec<Box<dyn Operation>>, shared: &StoreState) {
    let mut operations = group.into_iter().peekable();
    while let Some(first) = operations.next() {
        let is_foreign = first.is_foreign();
        let mut part = vec![first];
        while !is_foreign && let Some(next) = operations.next_if(|next| !next.is_foreign()) {
            part.push(next);
        }
        let is_gone = match keeper {
            Keeper::Here(engine, _) => {
                engine.carry_out(part);
                false
            }
            Keeper::Elsewhere(link, _) => {
                shared.foreign.changed();
                !elsewhere::carry_out(link, part)
            }
            Keeper::Gone { .. } => {
                for operation in part {
                    operation.finish(Err(StoreError::Gone));
                }
                false
            }
        };
        if is_gone {
            shared.foreign.are_lost();
            let lent = match keeper {
                Keeper::Elsewhere(_, lent) => lent.take(),
                _ => None,
            };
            *keeper = Keeper::Gone { _lent: lent };
        }
        if is_foreign {
            shared.foreign.changed();
        }
        shared.commits.fetch_add(1, Ordering::Relaxed);
    }
}

/// The file and its lock are free before the other process is asked for anything.
fn hand_over(keeper: Keeper, link: Link, foreign: &Foreign) -> Keeper {
    let Keeper::Here(mut engine, file_lock) = keeper else {
        // A process that hands over twice has nothing left.
        return keeper;
    };
    let lenders: Vec<_> = lock(&foreign.lenders)
        .iter()
        .filter_map(Weak::upgrade)
        .collect();
    let (said, outcome) = std_mpsc::channel();
    let lending = Lending {
        lenders: lenders.clone(),
        said,
    };
    let lent = file_lock.as_ref().map(|lock| lock.lend()).transpose();
    if lent.is_ok() {
        engine.carry_out(vec![Box::new(lending)]);
    }
    if let Ok(lent) = lent
        && outcome.try_recv().is_ok_and(|outcome| outcome.is_ok())
    {
        drop(engine);
        drop(file_lock);
        foreign.has_successor();
        return Keeper::Elsewhere(link, lent);
    }
    for lender in lenders {
        lender.stay();
    }
    Keeper::Here(engine, file_lock)
}

struct Lending {
    lenders: Vec<Arc<dyn Lender>>,
    said: std_mpsc::Sender<Result<(), StoreError>>,
}

impl Operation for Lending {
    fn growth(&self) -> u64 {
        0
    }

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Failed> {
        (self.lenders.iter()).try_for_each(|lender| lender.lend(transaction))
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        _ = self.said.send(outcome); // its receiver is there
    }
}

/// How many bytes an owner holds.
type HeldBytes = Box<dyn FnOnce(&mut Transaction<'_>) -> Result<u64, Failed> + Send>;

struct Closures<F, T, G, U> {
    growth: u64,
    held: Option<HeldBytes>,
    only_reads: bool,
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

    fn held(&mut self, transaction: &mut Transaction<'_>) -> Result<Option<u64>, Failed> {
        let held = self.held.take();
        held.map(|held| held(transaction)).transpose()
    }

    fn only_reads(&self) -> bool {
        self.only_reads
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
