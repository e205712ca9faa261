//! What is known of files, and small ones themselves: so that a file that is asked for again costs
//! no system call.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pronghorn_base::lock;
use tokio::time::Instant;

use super::entry::Entry;
use super::kept_open::{KeptOpen, OpenCache};

/// Threads that look at the same moment seldom look in the same one.
const SHARDS: usize = 8;
/// In each. All may hold some of a small file's memory, and as many descriptors as all caches
/// together may.
const MOST: usize = 64;

/// Files by their path below the root.
#[derive(Debug)]
pub(super) struct Cache {
    hasher: RandomState,
    shards: Arc<Shards>,
    kept: Arc<KeptOpen>,
    /// How long what was seen is believed.
    pub(super) duration: Duration,
}

/// The entries of a cache.
#[derive(Debug, Default)]
pub(super) struct Shards([Mutex<Shard>; SHARDS]);

type Shard = HashMap<Box<[u8]>, Arc<Entry>>;

impl Cache {
    /// Its open files are among those of `kept`.
    pub(super) fn new(duration: Duration, kept: Arc<KeptOpen>) -> Self {
        let shards: Arc<Shards> = Arc::default();
        let as_open: Arc<dyn OpenCache> = shards.clone();
        kept.add(&as_open);
        Self {
            hasher: RandomState::new(),
            shards,
            kept,
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
    /// for is not seen again. Where no more files may be kept open, it is not kept.
    pub(super) fn put(&self, path: &[u8], entry: Arc<Entry>) {
        if !entry.is_kept_open(|| self.kept.permit()) {
            return self.remove(path);
        }
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
        for shard in &self.shards.0 {
            let old = std::mem::take(&mut *lock(shard));
            drop(old); // not while others wait
        }
    }

    pub(super) fn remove(&self, path: &[u8]) {
        drop(self.with(path, |shard| shard.remove(path)));
    }

    fn with<R>(&self, path: &[u8], work: impl FnOnce(&mut Shard) -> R) -> R {
        let place = usize::try_from(self.hasher.hash_one(path) % SHARDS as u64);
        let shard = &self.shards.0[place.unwrap_or_default()];
        work(&mut lock(shard))
    }
}

impl OpenCache for Shards {
    fn seen_open(&self) -> Vec<Instant> {
        let mut seen = Vec::new();
        for shard in &self.0 {
            let shard = lock(shard);
            let open = shard.values().filter(|entry| entry.is_open());
            seen.extend(open.map(|entry| entry.seen));
        }
        seen
    }

    fn close_until(&self, last: Instant) {
        self.close(|entry| entry.seen <= last);
    }

    fn close_all(&self) {
        self.close(|_| true);
    }
}

impl Shards {
    fn close(&self, which: impl Fn(&Entry) -> bool) {
        for shard in &self.0 {
            let old: Vec<_> = lock(shard)
                .extract_if(|_, entry| entry.is_open() && which(entry))
                .collect();
            drop(old); // closes files: not while others wait
        }
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_process::open_files::Spare;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_cache_has_an_end_and_forgets_what_it_saw_first() {
        let cache = Cache::new(Duration::from_secs(1), KeptOpen::new(0));
        let start = Instant::now();
        for number in 0..4 * SHARDS * MOST {
            let seen = start + Duration::from_millis(number as u64);
            let path = number.to_string();
            cache.put(path.as_bytes(), Arc::new(Entry::empty(seen)));
        }
        let kept: usize = cache.shards.0.iter().map(|s| s.lock().unwrap().len()).sum();
        assert_eq!(kept, SHARDS * MOST);
        let last = (4 * SHARDS * MOST - 1).to_string();
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

    #[tokio::test(start_paused = true)]
    async fn all_caches_together_keep_so_many_files_open() {
        const OPEN: usize = 100;
        let kept = KeptOpen::new(OPEN);
        let caches = [(); 3].map(|()| Cache::new(Duration::from_secs(1), kept.clone()));
        let start = Instant::now();
        let mut number = 0;
        for cache in &caches {
            for _ in 0..SHARDS * MOST {
                number += 1;
                let seen = start + Duration::from_millis(number);
                let path = number.to_string();
                cache.put(path.as_bytes(), Arc::new(Entry::open(seen)));
                assert!(cache.get(path.as_bytes()).is_some(), "the newest is kept");
                assert!(kept.open() <= OPEN);
            }
        }
        assert!(kept.open() > OPEN - OPEN / 8);
        // One that is seen again needs no second permit.
        let last = number.to_string();
        let entry = caches[2].get(last.as_bytes()).unwrap();
        let open = kept.open();
        caches[2].put(last.as_bytes(), Arc::new(entry.seen_again(start)));
        drop(entry);
        assert_eq!(kept.open(), open);
        kept.give_back();
        assert_eq!(kept.open(), 0, "where descriptors are short");
        assert!(caches[2].get(last.as_bytes()).is_none());
        caches[0].put(b"small", Arc::new(Entry::empty(start)));
        kept.give_back();
        assert!(caches[0].get(b"small").is_some(), "it holds no descriptor");
    }
}
