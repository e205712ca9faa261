//! `embedded`: entries in the server's own store, which outlive it.
//!
//! All storages share two trees. In one an entry's key is behind the name of its storage, which has
//! no byte of zero; in the other the same is behind the entry's end, so that those that are over
//! are found without a look at the others.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_store::{
    Failed, LazyStore, OpenError, Store, StoreError, Transaction, Tree, entry_size,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::driver::{Answer, Claim, Driver, DriverError, Entry, Item, Opened, Room, SessionDriver};
use crate::moment::Moment;

const ENTRIES: Tree = Tree::new("kv");
const ENDS: Tree = Tree::new("kv.ends");

/// How often entries that are over are removed. Nobody is shown them before; this is about room.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// So many at a time: others wait for the store meanwhile.
const SWEEP: usize = 1000;

/// How long an operation waits for the store while the process before still has it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is tried meanwhile.
const UNTIL_NEXT_TRY: Duration = Duration::from_millis(50);

/// One storage in the store.
#[derive(Debug)]
pub(crate) struct Embedded {
    /// The name of the storage, and a byte of zero.
    prefix: Vec<u8>,
    store: LazyStore,
    fails: AtomicBool,
}

impl Embedded {
    pub(crate) fn new(storage: &str, store: LazyStore) -> Self {
        let mut prefix = storage.as_bytes().to_vec();
        prefix.push(0);
        Self {
            prefix,
            store,
            fails: AtomicBool::new(false),
        }
    }

    async fn carry_out<T: Send + 'static>(
        &self,
        growth: u64,
        run: impl FnOnce(&mut Transaction<'_>) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, DriverError> {
        let done = async {
            let store = open(&self.store).await?;
            let done = store.carry_out(growth, run, |outcome| outcome).await;
            done.and_then(|outcome| outcome).map_err(DriverError::from)
        };
        self.note(done.await)
    }

    /// What was not done says something of the store's health.
    fn note<T>(&self, done: Result<T, DriverError>) -> Result<T, DriverError> {
        let fails = matches!(done, Err(DriverError::Unavailable(_)));
        self.fails.store(fails, Ordering::Relaxed);
        done
    }

    fn places(&self, keys: &[Bytes]) -> Vec<Vec<u8>> {
        keys.iter().map(|key| self.place(key)).collect()
    }

    fn place(&self, key: &Bytes) -> Vec<u8> {
        [&self.prefix[..], key].concat()
    }

    async fn look<T: Send + 'static>(
        &self,
        keys: Vec<Bytes>,
        now: Moment,
        read: impl Fn(Entry) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<Vec<Option<T>>, DriverError> {
        let places = self.places(&keys);
        let run = move |transaction: &mut Transaction<'_>| {
            let mut found = Vec::with_capacity(places.len());
            for place in &places {
                match live(transaction, place, now)?.map(&read).transpose() {
                    Ok(entry) => found.push(entry),
                    Err(refused) => return Ok(Err(refused)),
                }
            }
            Ok(Ok(found))
        };
        let done = async {
            let store = open(&self.store).await?;
            store.look(run).await?
        };
        self.note(done.await)
    }

    async fn remove(&self, places: Vec<Vec<u8>>) -> Result<(), DriverError> {
        let run = move |transaction: &mut Transaction<'_>| {
            places
                .iter()
                .try_for_each(|place| remove(transaction, place))
        };
        self.carry_out(0, run).await
    }

    /// Removes all entries, so many at a time that others have their turn between.
    async fn remove_all(&self) -> Result<(), DriverError> {
        loop {
            let prefix = self.prefix.clone();
            let run = move |transaction: &mut Transaction<'_>| {
                let mut places = Vec::new();
                transaction.scan(ENTRIES, Bound::Included(&prefix), |place, _| {
                    if !place.starts_with(&prefix) || places.len() >= SWEEP {
                        return ControlFlow::Break(());
                    }
                    places.push(place.to_vec());
                    ControlFlow::Continue(())
                })?;
                places
                    .iter()
                    .try_for_each(|place| remove(transaction, place))?;
                Ok(places.len())
            };
            if self.carry_out(0, run).await? < SWEEP {
                return Ok(());
            }
        }
    }
}

/// The store, for which the process before is waited for.
async fn open(store: &LazyStore) -> Result<Store, DriverError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match store.get().await {
            Ok(store) => return Ok(store),
            Err(OpenError::InUse { .. }) if Instant::now() < until => sleep(UNTIL_NEXT_TRY).await,
            Err(error) => return Err(DriverError::Unavailable(error.to_string())),
        }
    }
}

fn encode(entry: &Entry) -> Vec<u8> {
    let end = entry.ends.map_or(0, Moment::millis);
    [&end.to_be_bytes()[..], &entry.value].concat()
}

/// None for what nobody of us has written.
fn decode(value: &[u8]) -> Option<Entry> {
    let (end, value) = value.split_first_chunk::<8>()?;
    let end = u64::from_be_bytes(*end);
    Some(Entry {
        value: Bytes::copy_from_slice(value),
        ends: (end != 0).then(|| Moment::from_millis(end)),
    })
}

/// The key in [`ENDS`] of an entry that has this end.
fn end_key(end: Moment, place: &[u8]) -> Vec<u8> {
    [&end.millis().to_be_bytes()[..], place].concat()
}

fn read(transaction: &mut Transaction<'_>, place: &[u8]) -> Result<Option<Entry>, Failed> {
    Ok(transaction.get(ENTRIES, place)?.and_then(|it| decode(&it)))
}

fn live(
    transaction: &mut Transaction<'_>,
    place: &[u8],
    now: Moment,
) -> Result<Option<Entry>, Failed> {
    let found = read(transaction, place)?;
    Ok(found.filter(|entry| entry.ends.is_none_or(|end| end > now)))
}

/// How much longer the store gets at most.
fn growth(place: &[u8], entry: &Entry) -> u64 {
    let end = |end| entry_size(&end_key(end, place), &[]);
    entry_size(place, &entry.value) + 8 + entry.ends.map_or(0, end)
}

fn put(transaction: &mut Transaction<'_>, place: &[u8], entry: &Entry) -> Result<(), Failed> {
    remove(transaction, place)?;
    if let Some(end) = entry.ends {
        transaction.put(ENDS, &end_key(end, place), &[])?;
    }
    transaction.put(ENTRIES, place, &encode(entry))
}

fn remove(transaction: &mut Transaction<'_>, place: &[u8]) -> Result<(), Failed> {
    if let Some(end) = read(transaction, place)?.and_then(|entry| entry.ends) {
        transaction.remove(ENDS, &end_key(end, place))?;
    }
    transaction.remove(ENTRIES, place)?;
    Ok(())
}

/// Removes entries of all storages that are over; how many.
fn sweep(transaction: &mut Transaction<'_>, now: Moment) -> Result<usize, Failed> {
    let mut over = Vec::new();
    transaction.scan(ENDS, Bound::Unbounded, |key, _| {
        let split = key.split_first_chunk::<8>();
        let end = split.map(|(end, _)| Moment::from_millis(u64::from_be_bytes(*end)));
        if over.len() >= SWEEP || end.is_none_or(|end| end > now) {
            return ControlFlow::Break(());
        }
        over.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    for key in &over {
        transaction.remove(ENDS, key)?;
        // An entry that was given another end has been removed from here.
        transaction.remove(ENTRIES, &key[8..])?;
    }
    Ok(over.len())
}

/// Removes what is over from time to time, for all storages, until it is dropped.
pub(crate) fn sweeper(store: LazyStore) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let failed = |why: &str| {
            tracing::warn!(target: "kv", "the store can't be opened, and is tried again: {why}");
        };
        store.until_done(|| store.get_at_last(), failed).await;
        let mut ticks = interval(SWEEP_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // The store of a process that is about to leave is not waited for.
            let Ok(store) = store.get().await else {
                continue;
            };
            let now = Moment::now();
            let mut more = true;
            while more {
                let swept = store.carry_out(0, move |it| sweep(it, now), |done| done);
                more = matches!(swept.await, Ok(Ok(SWEEP)));
            }
        }
    });
    tasks
}

impl From<StoreError> for DriverError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full { limit } => Self::Full { limit },
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl Driver for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn get(&self, keys: Vec<Bytes>, now: Moment, most: usize) -> Answer<'_, Vec<Option<Bytes>>> {
        let room = Room::of(most);
        Box::pin(self.look(keys, now, move |entry| {
            room.take(entry.value.len())?;
            Ok(entry.value)
        }))
    }

    fn has(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<bool>> {
        Box::pin(async move {
            let found = self.look(keys, now, |_| Ok(())).await?;
            Ok(found.iter().map(Option::is_some).collect())
        })
    }

    fn ends(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<Option<Option<Moment>>>> {
        Box::pin(self.look(keys, now, |entry| Ok(entry.ends)))
    }

    fn set(&self, items: Vec<Item>, now: Moment) -> Answer<'_, ()> {
        let place = |item: Item| (self.place(&item.key), item.entry);
        let entries: Vec<_> = items.into_iter().map(place).collect();
        let growth = entries.iter().map(|(place, it)| growth(place, it)).sum();
        Box::pin(self.carry_out(growth, move |transaction| {
            for (place, entry) in &entries {
                if entry.ends.is_some_and(|end| end <= now) {
                    remove(transaction, place)?;
                } else {
                    put(transaction, place, entry)?;
                }
            }
            Ok(())
        }))
    }

    fn expire(&self, ends: Vec<(Bytes, Moment)>, now: Moment) -> Answer<'_, ()> {
        let place = |(key, end): (Bytes, Moment)| (self.place(&key), end);
        let ends: Vec<_> = ends.into_iter().map(place).collect();
        let longest = |(place, end): &(Vec<u8>, Moment)| entry_size(&end_key(*end, place), &[]);
        let growth = ends.iter().map(longest).sum();
        Box::pin(self.carry_out(growth, move |transaction| {
            for (place, end) in ends {
                match live(transaction, &place, now)? {
                    Some(_) if end <= now => remove(transaction, &place)?,
                    Some(entry) => {
                        let ends = Some(end);
                        put(transaction, &place, &Entry { ends, ..entry })?;
                    }
                    None => {}
                }
            }
            Ok(())
        }))
    }

    fn delete(&self, keys: Vec<Bytes>) -> Answer<'_, ()> {
        Box::pin(self.remove(self.places(&keys)))
    }

    fn clear(&self) -> Answer<'_, ()> {
        Box::pin(self.remove_all())
    }

    fn sessions(self: Arc<Self>) -> Option<Arc<dyn SessionDriver>> {
        Some(self)
    }

    fn health(&self) -> Result<(), String> {
        if self.fails.load(Ordering::Relaxed) {
            return Err("the store can't be written or read".to_owned());
        }
        self.store.health()
    }
}

/// Claims are kept only while another process of this server works with the store, at an upgrade.
/// One that is left ends by itself, and nobody looks at it.
impl SessionDriver for Embedded {
    fn open(&self, claim: Claim, now: Moment, most: usize) -> Answer<'_, Opened> {
        Box::pin(async move {
            if !self.store.others().are_there {
                let found = self.look(vec![claim.data_key()], now, Ok);
                return Opened::Here(found.await?.pop().flatten()).within(most);
            }
            let places = (self.place(&claim.lock_key()), self.place(&claim.data_key()));
            let opened = self.carry_out(0, move |transaction| {
                Ok(if take(transaction, &places.0, claim.server, now)? {
                    Opened::Here(live(transaction, &places.1, now)?)
                } else {
                    Opened::Elsewhere
                })
            });
            opened.await?.within(most)
        })
    }

    fn write_and_close(&self, claim: Claim, entry: Entry, now: Moment) -> Answer<'_, ()> {
        let place = self.place(&claim.data_key());
        let growth = growth(&place, &entry);
        let claimed = self.store.others().are_there;
        let claimed = claimed.then(|| (self.place(&claim.lock_key()), claim.server));
        Box::pin(self.carry_out(growth, move |transaction| {
            put(transaction, &place, &entry)?;
            claimed.map_or(Ok(()), |(place, server)| {
                leave(transaction, &place, &server, now)
            })
        }))
    }

    fn close(&self, claim: Claim) -> Answer<'_, ()> {
        if !self.store.others().are_there {
            return Box::pin(async { Ok(()) });
        }
        let (place, now) = (self.place(&claim.lock_key()), Moment::now());
        Box::pin(self.carry_out(0, move |transaction| {
            leave(transaction, &place, &claim.server, now)
        }))
    }

    fn renew(&self, claim: Claim) -> Answer<'_, bool> {
        if !self.store.others().are_there {
            return Box::pin(async { Ok(true) });
        }
        let (place, now) = (self.place(&claim.lock_key()), Moment::now());
        Box::pin(self.carry_out(0, move |transaction| {
            take(transaction, &place, claim.server, now)
        }))
    }

    fn note(&self, transaction: &mut Transaction<'_>, claim: &Claim) -> Result<(), Failed> {
        let place = self.place(&claim.lock_key());
        take(transaction, &place, claim.server.clone(), Moment::now()).map(drop)
    }
}

/// False: another server has it.
fn take(
    transaction: &mut Transaction<'_>,
    place: &[u8],
    server: Bytes,
    now: Moment,
) -> Result<bool, Failed> {
    let claimed = live(transaction, place, now)?;
    if claimed.is_some_and(|claimed| claimed.value != server) {
        return Ok(false);
    }
    let entry = Entry {
        value: server,
        ends: Some(now.after(Claim::LASTS)),
    };
    put(transaction, place, &entry)?;
    Ok(true)
}

fn leave(
    transaction: &mut Transaction<'_>,
    place: &[u8],
    server: &Bytes,
    now: Moment,
) -> Result<(), Failed> {
    match live(transaction, place, now)? {
        Some(claimed) if claimed.value == *server => remove(transaction, place),
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) async fn swept(store: &LazyStore, now: Moment) -> usize {
    let store = store.get().await.expect("it opens");
    let swept = store.carry_out(0, move |it| sweep(it, now), |done| done);
    swept.await.expect("it is open").expect("it works")
}
