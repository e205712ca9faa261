//! What a storage asks of the place where its entries are.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::BoxFuture;
use pronghorn_cache::Cache;
use pronghorn_store::{Failed, Transaction};
use thiserror::Error;

use crate::moment::Moment;

/// The bytes of all values of an answer. What can be sent in one call can be read in one.
pub(crate) const LONGEST_ANSWER: usize = 64 << 20;

/// Keeps the entries of one storage. Keys are not empty, and no longer than
/// `LONGEST_KEY`.
///
/// `now` comes with each call. An entry is over from its end on: nobody is shown it, whether it is
/// removed yet or not.
pub trait Driver: Send + Sync + 'static {
    /// As the configuration names it.
    fn name(&self) -> &'static str;

    /// The values of these keys, each at the place of its key; None for one that is not there.
    /// Values that have more than `most` bytes together are refused, and never all in memory.
    fn get(&self, keys: Vec<Bytes>, now: Moment, most: usize) -> Answer<'_, Vec<Option<Bytes>>>;

    /// Which of these keys are there.
    fn has(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<bool>>;

    /// When these entries end: None for one that is not there, `Some(None)` for one without an end.
    fn ends(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<Option<Option<Moment>>>>;

    /// Adds entries, or replaces them. One whose end has come is removed.
    fn set(&self, items: Vec<Item>, now: Moment) -> Answer<'_, ()>;

    /// Gives entries another end. Keys that are not there are passed over; an end that has come
    /// removes its entry.
    fn expire(&self, ends: Vec<(Bytes, Moment)>, now: Moment) -> Answer<'_, ()>;

    fn delete(&self, keys: Vec<Bytes>) -> Answer<'_, ()>;

    /// Removes all entries of this storage, and nobody else's.
    fn clear(&self) -> Answer<'_, ()>;

    /// The memory that PHP maps too, where the entries are there.
    fn shared(&self) -> Option<&Cache> {
        None
    }

    /// The same place for PHP's sessions, where processes may ask for them over RPC.
    fn sessions(self: Arc<Self>) -> Option<Arc<dyn SessionDriver>> {
        None
    }

    /// Asks whether it answers, where it is a server of its own.
    fn probe(&self) -> Option<Answer<'_, ()>> {
        None
    }

    /// Whether it would answer now, as far as is known without asking; what is wrong, as a text.
    fn health(&self) -> Result<(), String>;
}

/// Keeps PHP's sessions: an entry each under `session:ID`, and under `session-lock:ID` which of the
/// servers that share the storage has it open.
pub trait SessionDriver: Driver {
    /// Claims a session for this server, and reads it: at most so many bytes.
    fn open(&self, claim: Claim, now: Moment, most: usize) -> Answer<'_, Opened>;

    /// Keeps a session that is claimed, and ends the claim.
    fn write_and_close(&self, claim: Claim, entry: Entry, now: Moment) -> Answer<'_, ()>;

    fn close(&self, claim: Claim) -> Answer<'_, ()>;

    /// False: another server has it.
    fn renew(&self, claim: Claim) -> Answer<'_, bool>;

    /// Notes the claim before others share the storage, which know of none.
    fn note(&self, _: &mut Transaction<'_>, _claim: &Claim) -> Result<(), Failed> {
        Ok(())
    }
}

/// A session that a server has asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It is claimed, and may have an entry.
    Here(Option<Entry>),
    /// Another server has it.
    Elsewhere,
}

impl Opened {
    pub(crate) fn within(self, most: usize) -> Result<Self, DriverError> {
        if let Self::Here(Some(entry)) = &self {
            Room::of(most).take(entry.value.len())?;
        }
        Ok(self)
    }
}

/// The claim of a server to a session.
#[derive(Clone, Debug)]
pub struct Claim {
    pub id: String,
    pub server: Bytes,
}

impl Claim {
    /// How long it holds that is not renewed: others wait for so long after a server was killed.
    pub(crate) const LASTS: Duration = Duration::from_secs(30);

    pub(crate) fn data_key(&self) -> Bytes {
        session_key(&self.id)
    }

    pub(crate) fn lock_key(&self) -> Bytes {
        format!("session-lock:{}", self.id).into()
    }
}

pub(crate) fn session_key(id: &str) -> Bytes {
    format!("session:{id}").into()
}

pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, DriverError>>;

/// What is kept of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub value: Bytes,
    pub ends: Option<Moment>,
}

/// What is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub key: Bytes,
    pub entry: Entry,
}

/// Why a driver did not do something.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DriverError {
    /// The caller's, or that of whoever lets entries pile up. Nothing was kept.
    #[error("the storage is full: {limit} bytes are allowed")]
    Full { limit: u64 },
    /// The caller's. Nothing was kept of this item.
    #[error(
        "a value with its key is longer than the {most} bytes that this storage takes; a larger `max_size` takes more"
    )]
    TooLong { most: usize },
    /// The caller's. Nothing was done.
    #[error("a key of {length} bytes is too long for memcached: use a hash of it")]
    LongKey { length: usize },
    /// The caller's.
    #[error(
        "the values are longer than the {most} bytes that this answer has at most: ask for fewer at a time"
    )]
    LongAnswer { most: usize },
    /// The engine's: it does not answer, or says that it can't. It may have been done.
    #[error("{0}")]
    Unavailable(String),
}

/// The bytes that values of one call may still have. A key may be asked for many times in one call,
/// so that its length and theirs say nothing of the answer's.
#[derive(Debug)]
pub(crate) struct Room {
    most: usize,
    left: AtomicUsize,
}

impl Room {
    pub(crate) const fn of(most: usize) -> Self {
        let left = AtomicUsize::new(most);
        Self { most, left }
    }

    pub(crate) fn take(&self, bytes: usize) -> Result<(), DriverError> {
        let less = |left: usize| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Relaxed, Relaxed, less);
        taken.map(|_| ()).map_err(|_| self.too_long())
    }

    pub(crate) const fn too_long(&self) -> DriverError {
        DriverError::LongAnswer { most: self.most }
    }
}
