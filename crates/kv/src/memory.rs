//! `memory`: entries in memory that PHP maps too, until the server stops.

use std::future::ready;

use bytes::Bytes;
use pronghorn_cache::layout::{BYTES, FALSE, FLOAT, IGBINARY, INTEGER, NULL, SERIALIZED, TRUE};
use pronghorn_cache::{Cache, NewEntry, Refused};

use crate::driver::{Answer, Driver, DriverError, Item, Room};
use crate::moment::Moment;

/// One storage in shared memory. Its clock is not the calendar's: a clock that is set makes no
/// entry early or late.
#[derive(Debug)]
pub(crate) struct Memory {
    cache: Cache,
}

impl Memory {
    pub(crate) const fn new(cache: Cache) -> Self {
        Self { cache }
    }

    fn look<T>(
        &self,
        keys: &[Bytes],
        read: impl Fn(pronghorn_cache::Entry) -> Result<T, DriverError>,
    ) -> Result<Vec<Option<T>>, DriverError> {
        let found = keys.iter().map(|key| self.cache.get(key));
        found.map(|entry| entry.map(&read).transpose()).collect()
    }

    fn keep(&self, items: &[Item], now: Moment) -> Result<(), DriverError> {
        let refused = |refused| self.refused(refused);
        // One that is too long is a mistake of the caller, who is to find all as it was.
        for new in items.iter().filter_map(|item| new_entry(item, now)) {
            self.cache.check_length(&new).map_err(refused)?;
        }
        for item in items {
            match new_entry(item, now) {
                Some(new) => self.cache.set(&new).map_err(refused)?,
                None => _ = self.cache.delete(&item.key),
            }
        }
        Ok(())
    }

    fn refused(&self, refused: Refused) -> DriverError {
        match refused {
            Refused::Full => DriverError::Full {
                limit: self.cache.figures().size,
            },
            Refused::TooLong { most } => DriverError::TooLong { most },
        }
    }
}

/// None for one whose end has come.
fn new_entry(item: &Item, now: Moment) -> Option<NewEntry<'_>> {
    let Item { key, entry } = item;
    let is_over = entry.ends.is_some_and(|end| end <= now);
    (!is_over).then(|| NewEntry {
        key,
        value: &entry.value,
        kind: BYTES,
        ends: entry.ends.map_or(0, |end| Cache::end(end.since(now))),
    })
}

/// When an entry ends by the calendar.
fn end(entry: &pronghorn_cache::Entry, now: Moment) -> Option<Moment> {
    (entry.ends() != 0).then(|| now.after(Cache::until(entry.ends())))
}

/// What PHP has put there as it is, as PHP's serializer writes it: so it is read by whoever reads
/// what came over RPC.
fn value(entry: pronghorn_cache::Entry) -> Bytes {
    let number = || entry.value().try_into().unwrap_or_default();
    match entry.kind() {
        INTEGER => format!("i:{};", i64::from_le_bytes(number())).into(),
        FLOAT => format!("d:{:?};", f64::from_le_bytes(number())).into(),
        NULL => Bytes::from_static(b"N;"),
        FALSE => Bytes::from_static(b"b:0;"),
        TRUE => Bytes::from_static(b"b:1;"),
        BYTES | SERIALIZED | IGBINARY => entry.into_value().into(),
        // Of a process that scribbles.
        _ => Bytes::new(),
    }
}

impl Driver for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn get(&self, keys: Vec<Bytes>, _: Moment, most: usize) -> Answer<'_, Vec<Option<Bytes>>> {
        let room = Room::of(most);
        let found = self.look(&keys, |entry| {
            room.take(entry.value().len())?;
            Ok(value(entry))
        });
        Box::pin(ready(found))
    }

    fn has(&self, keys: Vec<Bytes>, _: Moment) -> Answer<'_, Vec<bool>> {
        let found = self.look(&keys, |_| Ok(()));
        let there = found.map(|all| all.iter().map(Option::is_some).collect());
        Box::pin(ready(there))
    }

    fn ends(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<Option<Option<Moment>>>> {
        Box::pin(ready(self.look(&keys, |entry| Ok(end(&entry, now)))))
    }

    fn set(&self, items: Vec<Item>, now: Moment) -> Answer<'_, ()> {
        Box::pin(ready(self.keep(&items, now)))
    }

    fn expire(&self, ends: Vec<(Bytes, Moment)>, now: Moment) -> Answer<'_, ()> {
        let done = ends.iter().try_for_each(|(key, end)| {
            if *end <= now {
                self.cache.delete(key);
                return Ok(());
            }
            let expired = self.cache.expire(key, Cache::end(end.since(now)));
            expired.map(|_| ()).map_err(|refused| self.refused(refused))
        });
        Box::pin(ready(done))
    }

    fn delete(&self, keys: Vec<Bytes>) -> Answer<'_, ()> {
        for key in &keys {
            self.cache.delete(key);
        }
        Box::pin(ready(Ok(())))
    }

    fn clear(&self) -> Answer<'_, ()> {
        self.cache.clear(b"");
        Box::pin(ready(Ok(())))
    }

    fn shared(&self) -> Option<&Cache> {
        Some(&self.cache)
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}
