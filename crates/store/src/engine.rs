//! The file, its format, and groups of operations that share a commit. Runs on the store's thread.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use redb::Database;
use tokio::time::Instant;

use crate::backend::Room;
use crate::error::{OpenError, StoreError};
use crate::transaction::{Failed, Transaction, Tree};

/// What this version reads and writes. It changes when an older version could not go on with what
/// a newer one has written.
pub(crate) const FORMAT: u32 = 1;

/// Pages that are kept in memory. The entries that are at hand next lie together, so little is
/// enough: with a million of them, all of the server's store stays below 64 MB.
pub(crate) const CACHE: usize = 16 << 20;

/// After a failure, the file is opened again at most this often: a full disk stays full for a
/// while, and the check of a large file takes a second.
const REOPEN_AFTER: Duration = Duration::from_secs(1);
/// And at least this often.
const REOPEN_AT_LEAST: Duration = Duration::from_secs(30);

/// What has to fit before a store takes more again: more than the note of an end. On a full disk a
/// small write often finds room in the file, and the next one does not.
pub(crate) const PROBE: usize = 256 << 10;

/// This much has to fit before ends and removals are tried again. Only they make room
/// on a volume that the file itself fills.
const SMALL_PROBE: usize = 1 << 10;

const ABOUT: Tree = Tree::new("store");
const KEY_FORMAT: &[u8] = b"format";
const KEY_SIZE: &[u8] = b"size";
const KEY_PROBE: &[u8] = b"probe";

/// Where the file is.
pub(crate) trait Volume: Send {
    /// Opens the file; again after a failure.
    fn open(&self) -> Result<(Database, Arc<Room>), redb::Error>;

    /// Opens it without writing anything.
    fn open_to_read(&self) -> Result<Database, redb::Error>;

    /// Whether the volume takes writes: to open the file only to find that out would take long.
    fn probe(&self) -> io::Result<()>;
}

/// The engine takes whole pages, and twice as many bytes as an entry has at worst.
const PAGES_PER_BYTE: u64 = 2;

/// What a caller has asked for.
pub(crate) trait Operation: Send {
    /// How much it adds at most.
    fn growth(&self) -> u64;
    /// How much its owner has already, where it has a share of the store alone.
    fn held(&mut self, _transaction: &mut Transaction<'_>) -> Result<Option<u64>, Failed> {
        Ok(None)
    }
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Failed>;
    /// It can be done although nothing can be written.
    fn only_reads(&self) -> bool {
        false
    }
    /// Whether it is one of the process before.
    fn is_foreign(&self) -> bool {
        false
    }
    /// It is on the disk, or why not.
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
}

pub(crate) struct Engine {
    path: PathBuf,
    volume: Box<dyn Volume>,
    limit: u64,
    state: State,
    /// From a failure to the next try. It grows until the store takes more again: jobs whose ends
    /// are not kept would run again and again.
    pause: Duration,
}

enum State {
    /// The size is what entries count, on the disk.
    Open {
        database: Database,
        size: u64,
        room: Arc<Room>,
        /// The size when there was room for more, or at the start: the file holds as much.
        fits: u64,
        shortage: Option<Shortage>,
    },
    /// The engine refuses all further work after a failure of the disk. What is there is read by
    /// another one, once somebody wants that.
    Failed {
        at: Instant,
        why: StoreError,
        reader: Option<Database>,
    },
}

/// The volume is full. What was taken away makes room in the file, so nearly as much may be in it
/// as when this was noticed, or less when the reserve turned out to be needed for that.
#[derive(Clone, Copy, Debug)]
struct Shortage {
    most: u64,
    /// The rest of the reserve; less than a half of it, and `most` is less.
    left: u64,
}

impl Shortage {
    fn note(&mut self, left: u64, size: u64) {
        if left < self.left / 2 {
            self.left = left;
            self.most = self.most.min(size - size / 4);
        }
    }
}

impl Engine {
    pub(crate) fn open(
        path: PathBuf,
        volume: Box<dyn Volume>,
        limit: u64,
    ) -> Result<Self, OpenError> {
        let state = open(&path, &*volume)?;
        Ok(Self {
            path,
            volume,
            limit,
            state,
            pause: REOPEN_AFTER,
        })
    }

    /// Carries out operations in their order, and answers them in this order.
    pub(crate) fn carry_out(&mut self, mut group: Vec<Box<dyn Operation>>) {
        self.open_again();
        let State::Open {
            database,
            size,
            room,
            fits,
            shortage,
        } = &mut self.state
        else {
            self.carry_out_reading(group);
            return;
        };
        let limits = Limits {
            most: self.limit,
            room,
            fits,
            shortage,
        };
        let mut refused = vec![None; group.len()];
        // Pages that were changed by somebody else may make the engine panic. The thread has to
        // live on, or every caller would wait for ever.
        let done = catch_unwind(AssertUnwindSafe(|| {
            commit(database, *size, limits, &mut group, &mut refused)
        }));
        let done = done.unwrap_or_else(|_| {
            let why = "the engine has panicked: the file may be broken";
            Err(redb::Error::Corrupted(why.to_owned()))
        });
        let outcome = match done {
            Ok(now) => {
                *size = now;
                if shortage.is_none() {
                    self.pause = REOPEN_AFTER;
                }
                Ok(())
            }
            Err(failure) => {
                let why = StoreError::Failed(Arc::new(failure));
                tracing::error!(target: "store", path = %self.path.display(), "{why}");
                self.state = State::Failed {
                    at: Instant::now(),
                    why: why.clone(),
                    reader: None,
                };
                Err(why)
            }
        };
        for (operation, refused) in group.into_iter().zip(refused) {
            let outcome = outcome.clone();
            operation.finish(outcome.and(refused.map_or(Ok(()), Err)));
        }
    }

    /// Carries out operations that only read, while the file can't be written.
    fn carry_out_reading(&mut self, group: Vec<Box<dyn Operation>>) {
        let State::Failed { why, reader, .. } = &mut self.state else {
            return;
        };
        for mut operation in group {
            if !operation.only_reads() {
                operation.finish(Err(why.clone()));
                continue;
            }
            if reader.is_none() {
                let opened = catch_unwind(AssertUnwindSafe(|| self.volume.open_to_read()));
                *reader = opened.ok().and_then(Result::ok);
            }
            let read = reader.as_ref().is_some_and(|reader| {
                let read = catch_unwind(AssertUnwindSafe(|| read(reader, &mut *operation)));
                read.is_ok_and(|read| read.is_ok())
            });
            if !read {
                *reader = None;
            }
            operation.finish(if read { Ok(()) } else { Err(why.clone()) });
        }
    }

    fn open_again(&mut self) {
        let State::Failed { at, reader, .. } = &mut self.state else {
            return;
        };
        if at.elapsed() < self.pause {
            return;
        }
        // One has the file at a time.
        *reader = None;
        let has_room = self.volume.probe().is_ok();
        self.state = match self.tried(has_room) {
            Ok(state) => {
                tracing::info!(target: "store", path = %self.path.display(), "the store works again");
                state
            }
            Err(why) => State::Failed {
                at: Instant::now(),
                why,
                reader: None,
            },
        };
        let takes_all = matches!(&self.state, State::Open { shortage: None, .. });
        self.pause = if takes_all {
            REOPEN_AFTER
        } else {
            (2 * self.pause).min(REOPEN_AT_LEAST)
        };
    }

    /// Opens the file as a start does: for all, or else for what needs no room.
    fn tried(&self, has_room: bool) -> Result<State, StoreError> {
        let try_with = |bytes| {
            let state = open(&self.path, &*self.volume)
                .map_err(|error| StoreError::OutOfOrder(Arc::new(error)))?;
            match catch_unwind(AssertUnwindSafe(|| probe(&state, bytes))) {
                Ok(Ok(())) => Ok(state),
                Ok(Err(failure)) => Err(StoreError::Failed(Arc::new(failure))),
                Err(_) => Err(StoreError::Failed(Arc::new(redb::Error::Corrupted(
                    "the engine has panicked: the file may be broken".to_owned(),
                )))),
            }
        };
        if has_room && let Ok(state) = try_with(PROBE) {
            return Ok(state);
        }
        let mut state = try_with(SMALL_PROBE)?;
        if let State::Open { shortage, size, .. } = &mut state {
            let most = *size - *size / 4;
            *shortage = Some(Shortage { most, left: 0 });
        }
        Ok(state)
    }

    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }
}

/// Writes something and takes it away.
fn probe(state: &State, bytes: usize) -> Result<(), redb::Error> {
    let State::Open { database, size, .. } = state else {
        return Ok(());
    };
    for value in [Some(vec![0; bytes]), None] {
        let inner = database.begin_write()?;
        let mut transaction = Transaction::new(&inner, *size);
        let done = match value {
            Some(value) => transaction.put(ABOUT, KEY_PROBE, &value),
            None => transaction.remove(ABOUT, KEY_PROBE).map(drop),
        };
        if done.is_err() {
            return Err(transaction.failure());
        }
        drop(transaction);
        inner.commit()?;
    }
    Ok(())
}

fn open(path: &Path, volume: &dyn Volume) -> Result<State, OpenError> {
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let (database, room) = volume.open()?;
        let about = read_about(&database)?;
        Ok((database, room, about))
    }));
    let opened = opened.unwrap_or_else(|_| {
        let why = "its pages contradict each other";
        Err(redb::Error::Corrupted(why.to_owned()))
    });
    let (database, room, (format, size)) =
        opened.map_err(|error| OpenError::of_engine(path, error))?;
    if format > FORMAT {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found: format,
            known: FORMAT,
        });
    }
    Ok(State::Open {
        database,
        size,
        room,
        fits: size,
        shortage: None,
    })
}

/// Nothing of what it may have written counts.
fn read(database: &Database, operation: &mut dyn Operation) -> Result<(), redb::Error> {
    let inner = database.begin_write()?;
    let mut transaction = Transaction::new(&inner, 0);
    if operation.run(&mut transaction).is_err() {
        return Err(transaction.failure());
    }
    drop(transaction);
    Ok(inner.abort()?)
}

/// Writes the first thing into a new file.
pub(crate) fn begin(database: &Database) -> Result<(), redb::Error> {
    let inner = database.begin_write()?;
    let mut transaction = Transaction::new(&inner, 0);
    let format = transaction.put(ABOUT, KEY_FORMAT, &FORMAT.to_be_bytes());
    let written = format.and_then(|()| transaction.put(ABOUT, KEY_SIZE, &0u64.to_be_bytes()));
    if written.is_err() {
        return Err(transaction.failure());
    }
    drop(transaction);
    Ok(inner.commit()?)
}

/// The format and the size.
fn read_about(database: &Database) -> Result<(u32, u64), redb::Error> {
    let inner = database.begin_write()?;
    let mut transaction = Transaction::new(&inner, 0);
    let Ok((format, size)) = about(&mut transaction) else {
        return Err(transaction.failure());
    };
    drop(transaction);
    inner.abort()?;
    match (format, size) {
        (Some(format), Some(size)) => Ok((format, size)),
        _ => Err(redb::Error::Corrupted(
            "it is no store of Pronghorn".to_owned(),
        )),
    }
}

fn about(transaction: &mut Transaction<'_>) -> Result<(Option<u32>, Option<u64>), Failed> {
    let format = transaction.get(ABOUT, KEY_FORMAT)?;
    let size = transaction.get(ABOUT, KEY_SIZE)?;
    let format = format.and_then(|format| Some(u32::from_be_bytes(format.try_into().ok()?)));
    let size = size.and_then(|size| Some(u64::from_be_bytes(size.try_into().ok()?)));
    Ok((format, size))
}

/// Owners that have shares of a store, at most.
const OWNERS: u64 = 1000;

/// How much an owner may have that holds so much, of a store with so much room: nine times as much
/// as it leaves to others, and a thousandth of the store in any case. There are not so many owners
/// that this doubles the store.
fn share(held: u64, free: u64, most: u64) -> u64 {
    let both = held.saturating_add(free);
    (both - both / 10).max(most / OWNERS)
}

/// The limits to the growth of a store.
struct Limits<'l> {
    most: u64,
    room: &'l Room,
    fits: &'l mut u64,
    shortage: &'l mut Option<Shortage>,
}

impl Limits<'_> {
    /// Whether a group that has begun at a size, and now has the second one, may grow so much more:
    /// by an owner that has a share of the store and holds so much of it, or by any.
    fn allow(
        &mut self,
        began: u64,
        now: u64,
        growth: u64,
        held: Option<u64>,
    ) -> Result<(), StoreError> {
        let then = now.saturating_add(growth);
        let (has, limit) = match held {
            Some(held) => {
                let free = self.most.saturating_sub(now);
                (held.saturating_add(growth), share(held, free, self.most))
            }
            None => (then, self.most),
        };
        if has > limit {
            return Err(StoreError::Full { limit });
        }
        let added = then.saturating_sub(began);
        if self.room.has(added.saturating_mul(PAGES_PER_BYTE)) {
            *self.shortage = None;
            *self.fits = began;
            return Ok(());
        }
        let left = self.room.left();
        let shortage = self.shortage.get_or_insert_with(|| {
            tracing::warn!(target: "store", "the volume is full: new data is refused; existing data can still be read and removed");
            // The engine does not find every page that is free.
            let fits = began.max(*self.fits);
            let most = fits - fits / 8;
            Shortage { most, left }
        });
        shortage.note(left, began);
        if then > shortage.most {
            return Err(StoreError::NoRoom);
        }
        Ok(())
    }
}

/// The new size. An operation that does not fit is marked as refused and has no effect.
fn commit(
    database: &Database,
    size: u64,
    mut limits: Limits<'_>,
    group: &mut [Box<dyn Operation>],
    refused: &mut [Option<StoreError>],
) -> Result<u64, redb::Error> {
    let inner = database.begin_write()?;
    let mut transaction = Transaction::new(&inner, size);
    for (operation, refused) in group.iter_mut().zip(refused) {
        let growth = operation.growth();
        if growth > 0 {
            let Ok(held) = operation.held(&mut transaction) else {
                return Err(transaction.failure());
            };
            if let Err(why) = limits.allow(size, transaction.size(), growth, held) {
                *refused = Some(why);
                continue;
            }
        }
        if operation.run(&mut transaction).is_err() {
            return Err(transaction.failure());
        }
    }
    let now = transaction.size();
    let has_changes = transaction.has_changes();
    // It does not count itself: the entry is there from the start, and its length stays.
    if has_changes
        && transaction
            .put(ABOUT, KEY_SIZE, &now.to_be_bytes())
            .is_err()
    {
        return Err(transaction.failure());
    }
    drop(transaction);
    if has_changes {
        inner.commit()?;
    } else {
        inner.abort()?;
    }
    Ok(now)
}
