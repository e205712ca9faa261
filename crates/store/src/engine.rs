//! The file, its format, and groups of operations that share a commit. Runs on the store's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redb::Database;
use tokio::time::Instant;

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

/// What has to fit before a store is taken for one that works again: more than the note of an end.
/// On a full disk a small write often finds room in the file, and the next one does not: jobs would
/// run again and again, because their ends are not kept.
const PROBE: usize = 256 << 10;

const ABOUT: Tree = Tree::new("store");
const KEY_FORMAT: &[u8] = b"format";
const KEY_SIZE: &[u8] = b"size";
const KEY_PROBE: &[u8] = b"probe";

/// Opens the file; again after a failure.
pub(crate) type Opener = Box<dyn Fn() -> Result<Database, redb::Error> + Send>;

/// What a caller has asked for.
pub(crate) trait Operation: Send {
    /// How much it adds at most.
    fn growth(&self) -> u64;
    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Failed>;
    /// It is on the disk, or why not.
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
}

pub(crate) struct Engine {
    path: PathBuf,
    opener: Opener,
    limit: u64,
    state: State,
}

enum State {
    /// The size is what entries count, on the disk.
    Open { database: Database, size: u64 },
    /// The engine refuses all further work after a failure of the disk.
    Failed { at: Instant, why: StoreError },
}

impl Engine {
    pub(crate) fn open(path: PathBuf, opener: Opener, limit: u64) -> Result<Self, OpenError> {
        let state = open(&path, &opener)?;
        Ok(Self {
            path,
            opener,
            limit,
            state,
        })
    }

    /// Carries out operations in their order, and answers them in this order.
    pub(crate) fn carry_out(&mut self, mut group: Vec<Box<dyn Operation>>) {
        self.open_again();
        let (database, size) = match &mut self.state {
            State::Open { database, size } => (database, size),
            State::Failed { why, .. } => {
                let why = why.clone();
                for operation in group {
                    operation.finish(Err(why.clone()));
                }
                return;
            }
        };
        let limit = self.limit;
        let mut refused = vec![false; group.len()];
        // Pages that were changed by somebody else may make the engine panic. The thread has to
        // live on, or every caller would wait for ever.
        let done = catch_unwind(AssertUnwindSafe(|| {
            commit(database, *size, limit, &mut group, &mut refused)
        }));
        let done = done.unwrap_or_else(|_| {
            let why = "the engine has panicked: the file may be broken";
            Err(redb::Error::Corrupted(why.to_owned()))
        });
        let outcome = match done {
            Ok(now) => {
                *size = now;
                Ok(())
            }
            Err(failure) => {
                let why = StoreError::Failed(Arc::new(failure));
                tracing::error!(target: "store", path = %self.path.display(), "{why}");
                self.state = State::Failed {
                    at: Instant::now(),
                    why: why.clone(),
                };
                Err(why)
            }
        };
        for (operation, refused) in group.into_iter().zip(refused) {
            let full = refused.then_some(StoreError::Full { limit });
            let outcome = outcome.clone();
            operation.finish(outcome.and(full.map_or(Ok(()), Err)));
        }
    }

    fn open_again(&mut self) {
        let State::Failed { at, .. } = &self.state else {
            return;
        };
        if at.elapsed() < REOPEN_AFTER {
            return;
        }
        let opened =
            open(&self.path, &self.opener).map_err(|error| StoreError::OutOfOrder(Arc::new(error)));
        let works = opened.and_then(|state| match probe(&state) {
            Ok(()) => Ok(state),
            Err(failure) => Err(StoreError::Failed(Arc::new(failure))),
        });
        self.state = match works {
            Ok(state) => {
                tracing::info!(target: "store", path = %self.path.display(), "the store works again");
                state
            }
            Err(why) => State::Failed {
                at: Instant::now(),
                why,
            },
        };
    }

    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }
}

/// Writes something and takes it away.
fn probe(state: &State) -> Result<(), redb::Error> {
    let State::Open { database, size } = state else {
        return Ok(());
    };
    for value in [Some(vec![0; PROBE]), None] {
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

fn open(path: &std::path::Path, opener: &Opener) -> Result<State, OpenError> {
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let database = opener()?;
        let about = read_about(&database)?;
        Ok((database, about))
    }));
    let opened = opened.unwrap_or_else(|_| {
        let why = "its pages contradict each other";
        Err(redb::Error::Corrupted(why.to_owned()))
    });
    let (database, (format, size)) = opened.map_err(|error| OpenError::of_engine(path, error))?;
    if format > FORMAT {
        return Err(OpenError::Newer {
            path: path.to_owned(),
            found: format,
            known: FORMAT,
        });
    }
    Ok(State::Open { database, size })
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

/// The new size. An operation that does not fit is marked as refused and has no effect.
fn commit(
    database: &Database,
    size: u64,
    limit: u64,
    group: &mut [Box<dyn Operation>],
    refused: &mut [bool],
) -> Result<u64, redb::Error> {
    let inner = database.begin_write()?;
    let mut transaction = Transaction::new(&inner, size);
    for (operation, refused) in group.iter_mut().zip(refused) {
        let growth = operation.growth();
        if growth > 0 && transaction.size().saturating_add(growth) > limit {
            *refused = true;
            continue;
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
