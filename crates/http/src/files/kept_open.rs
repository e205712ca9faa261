//! Files that caches keep open. Descriptors are the process's, so one bound holds for all caches
//! together: of every root, of every service.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use pronghorn_base::lock;
use pronghorn_process::open_files::{Share, Spare, spared_by};
use tokio::time::Instant;

/// So much of the bound is freed where it is reached: looking for what was seen first takes longer
/// than what each file costs.
const FREED: usize = 32;

/// A cache that keeps files open.
pub(super) trait OpenCache: std::fmt::Debug + Send + Sync {
    /// When those that hold a descriptor were seen.
    fn seen_open(&self) -> Vec<Instant>;

    /// Forgets those that hold a descriptor and were seen no later.
    fn close_until(&self, last: Instant);

    /// Forgets all that hold a descriptor.
    fn close_all(&self);
}

/// The files that caches keep open, with their bound.
#[derive(Debug)]
pub(super) struct KeptOpen {
    most: usize,
    open: AtomicUsize,
    caches: Mutex<Vec<Weak<dyn OpenCache>>>,
}

/// One of the files that may be kept open; free again when it is dropped.
#[derive(Debug)]
pub(super) struct KeptPermit(Arc<KeptOpen>);

impl KeptOpen {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: AtomicUsize::new(0),
            caches: Mutex::default(),
        })
    }

    /// That of this process. It gives all back where the process has no descriptor left.
    pub(super) fn of_process() -> Arc<Self> {
        static KEPT: OnceLock<Arc<KeptOpen>> = OnceLock::new();
        let kept = KEPT.get_or_init(|| {
            let kept = Self::new(Share::FILES.connections());
            let spare: Arc<dyn Spare> = kept.clone();
            spared_by(Arc::downgrade(&spare));
            kept
        });
        kept.clone()
    }

    /// Its files are among those that may be closed.
    pub(super) fn add(&self, cache: &Arc<dyn OpenCache>) {
        let mut caches = lock(&self.caches);
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(Arc::downgrade(cache));
    }

    /// For one more file. None where all that may be open are in use.
    pub(super) fn permit(self: &Arc<Self>) -> Option<KeptPermit> {
        self.enter().or_else(|| {
            self.close_oldest();
            self.enter()
        })
    }

    fn enter(self: &Arc<Self>) -> Option<KeptPermit> {
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        let one_more = |open| (open < self.most).then_some(open + 1);
        let entered = self.open.fetch_update(set, read, one_more);
        entered.ok().map(|_| KeptPermit(self.clone()))
    }

    /// Closes those that were seen first.
    fn close_oldest(&self) {
        let caches = self.caches();
        let mut seen: Vec<Instant> = caches.iter().flat_map(|cache| cache.seen_open()).collect();
        let Some(last) = seen.len().checked_sub(1) else {
            return;
        };
        let (_, until, _) = seen.select_nth_unstable((self.most / FREED).min(last));
        let until = *until;
        for cache in caches {
            cache.close_until(until);
        }
    }

    fn caches(&self) -> Vec<Arc<dyn OpenCache>> {
        lock(&self.caches)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

impl Spare for KeptOpen {
    fn give_back(&self) {
        for cache in self.caches() {
            cache.close_all();
        }
    }
}

impl Drop for KeptPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl KeptOpen {
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}
