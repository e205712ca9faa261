//! `memory`: entries until the server stops.

use std::collections::{BTreeSet, HashMap};
use std::future::ready;
use std::sync::Mutex;

use bytes::Bytes;
use pronghorn_base::lock;

use crate::driver::{Answer, Driver, DriverError, Entry, Item};
use crate::moment::Moment;

/// What an entry takes beside its key and value: its places in two trees.
const ENTRY_OVERHEAD: usize = 160;

/// How many entries that are over a call removes: more than it adds.
const SWEEP: usize = 16;

/// One storage in memory.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<Bytes, Entry>,
    ends: BTreeSet<(Moment, Bytes)>,
    size: usize,
}

impl Memory {
    /// Entries may take `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            entries: Mutex::default(),
        }
    }

    fn with<T>(&self, now: Moment, step: impl FnOnce(&mut Entries) -> T) -> T {
        let mut entries = lock(&self.entries);
        entries.sweep(now);
        step(&mut entries)
    }

    fn look<T>(&self, keys: &[Bytes], now: Moment, read: impl Fn(&Entry) -> T) -> Vec<Option<T>> {
        self.with(now, |entries| {
            let found = keys.iter().map(|key| entries.live(key, now).map(&read));
            found.collect()
        })
    }
}

fn size(key: &Bytes, entry: &Entry) -> usize {
    key.len() + entry.value.len() + ENTRY_OVERHEAD
}

impl Entries {
    fn live(&self, key: &Bytes, now: Moment) -> Option<&Entry> {
        let entry = self.by_key.get(key)?;
        entry.ends.is_none_or(|end| end > now).then_some(entry)
    }

    fn put(&mut self, key: Bytes, entry: Entry) {
        self.remove(&key);
        self.size += size(&key, &entry);
        if let Some(end) = entry.ends {
            self.ends.insert((end, key.clone()));
        }
        self.by_key.insert(key, entry);
    }

    fn remove(&mut self, key: &Bytes) {
        let Some(entry) = self.by_key.remove(key) else {
            return;
        };
        self.size -= size(key, &entry);
        if let Some(end) = entry.ends {
            self.ends.remove(&(end, key.clone()));
        }
    }

    fn sweep(&mut self, now: Moment) {
        for _ in 0..SWEEP {
            match self.ends.first() {
                Some((end, key)) if *end <= now => {
                    let key = key.clone();
                    self.remove(&key);
                }
                _ => return,
            }
        }
    }
}

impl Driver for Memory {
    fn get(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<Option<Entry>>> {
        Box::pin(ready(Ok(self.look(&keys, now, Entry::clone))))
    }

    fn has(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<bool>> {
        let found = self.look(&keys, now, |_| ());
        Box::pin(ready(Ok(found.iter().map(Option::is_some).collect())))
    }

    fn ends(&self, keys: Vec<Bytes>, now: Moment) -> Answer<'_, Vec<Option<Option<Moment>>>> {
        Box::pin(ready(Ok(self.look(&keys, now, |entry| entry.ends))))
    }

    fn set(&self, items: Vec<Item>, now: Moment) -> Answer<'_, ()> {
        let limit = self.limit;
        let done = self.with(now, |entries| {
            let more: usize = items.iter().map(|it| size(&it.key, &it.entry)).sum();
            if entries.size + more > limit {
                let limit = limit as u64;
                return Err(DriverError::Full { limit });
            }
            for Item { key, entry } in items {
                entries.put(key, entry);
            }
            entries.sweep(now);
            Ok(())
        });
        Box::pin(ready(done))
    }

    fn expire(&self, ends: Vec<(Bytes, Moment)>, now: Moment) -> Answer<'_, ()> {
        self.with(now, |entries| {
            for (key, end) in ends {
                if let Some(entry) = entries.live(&key, now).cloned() {
                    let ends = Some(end);
                    entries.put(key, Entry { ends, ..entry });
                }
            }
        });
        Box::pin(ready(Ok(())))
    }

    fn delete(&self, keys: Vec<Bytes>) -> Answer<'_, ()> {
        let mut entries = lock(&self.entries);
        for key in &keys {
            entries.remove(key);
        }
        Box::pin(ready(Ok(())))
    }

    fn clear(&self) -> Answer<'_, ()> {
        *lock(&self.entries) = Entries::default();
        Box::pin(ready(Ok(())))
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }
}
