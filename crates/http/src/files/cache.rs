//! What is known of files, and small ones themselves: so that a file that is asked for again costs
//! no system call.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::lock;
use tokio::time::Instant;

use super::entry::Entry;

/// Threads that look at the same moment seldom look in the same one.
const SHARDS: usize = 8;
/// In each. All may hold a descriptor, or some of a small file's memory.
const MOST: usize = 64;

/// How many files a cache keeps open at most.
pub(super) const MOST_OPEN: usize = SHARDS * MOST;

/// Files by their path below the root.
#[derive(Debug)]
pub(super) struct Cache {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// How long what was seen is believed.
    pub(super) duration: Duration,
}

type Shard = HashMap<Box<[u8]>, Arc<Entry>>;

impl Cache {
    pub(super) fn new(duration: Duration) -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            duration,
        }
    }

    pub(super) fn get(&self, path: &[u8]) -> Option<Arc<Entry>> {
        self.with(path, |shard| shard.get(path).cloned())
    }

    pub(super) fn is_fresh(&self, entry: &Entry, now: Instant) -> bool {
        now.saturating_duration_since(entry.seen) < self.duration
    }

    /// Keeps an entry. When there is no room, the one that was seen first goes; what nobody asked
    /// for is not seen again.
    pub(super) fn put(&self, path: &[u8], entry: Arc<Entry>) {
        let old = self.with(path, |shard| {
            let mut oldest = None;
            if shard.len() >= MOST && !shard.contains_key(path) {
                let first = shard.iter().min_by_key(|(_, entry)| entry.seen);
                oldest = first.map(|(path, _)| path.clone());
            }
            let removed = oldest.and_then(|path| shard.remove(&path));
            (shard.insert(path.into(), entry), removed)
        });
        drop(old); // closes files: not while others wait
    }

    /// Forgets all. Closes files, so not on an I/O thread's way.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let old = std::mem::take(&mut *lock(shard));
            drop(old); // not while others wait
        }
    }

    pub(super) fn remove(&self, path: &[u8]) {
        drop(self.with(path, |shard| shard.remove(path)));
    }

    fn with<R>(&self, path: &[u8], work: impl FnOnce(&mut Shard) -> R) -> R {
        let place = usize::try_from(self.hasher.hash_one(path) % SHARDS as u64);
        let shard = &self.shards[place.unwrap_or_default()];
        work(&mut lock(shard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_cache_has_an_end_and_forgets_what_it_saw_first() {
        let cache = Cache::new(Duration::from_secs(1));
        let start = Instant::now();
        for number in 0..4 * MOST_OPEN {
            let seen = start + Duration::from_millis(number as u64);
            let path = number.to_string();
            cache.put(path.as_bytes(), Arc::new(Entry::empty(seen)));
        }
        let kept: usize = cache.shards.iter().map(|s| s.lock().unwrap().len()).sum();
        assert_eq!(kept, MOST_OPEN);
        let last = (4 * MOST_OPEN - 1).to_string();
        let entry = cache.get(last.as_bytes()).unwrap();
        assert!(cache.is_fresh(&entry, entry.seen + Duration::from_millis(999)));
        assert!(!cache.is_fresh(&entry, entry.seen + Duration::from_secs(1)));
        assert!(cache.get(b"0").is_none());
        cache.clear();
        assert!(cache.get(last.as_bytes()).is_none());
        cache.put(last.as_bytes(), entry);
        cache.remove(last.as_bytes());
        assert!(cache.get(last.as_bytes()).is_none());
    }
}
