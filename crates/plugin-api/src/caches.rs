//! What services keep in order to answer faster, and forget when they are told to.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use pronghorn_base::lock;

type Forget = Arc<dyn Fn() + Send + Sync>;

/// Caches by the names that `reset` takes.
#[derive(Clone, Default)]
pub struct Caches(Arc<Mutex<BTreeMap<&'static str, Forget>>>);

impl Caches {
    /// From now on `reset NAME` calls this, which does not block. It takes the place of one with
    /// this name.
    pub fn add(&self, name: &'static str, forget: impl Fn() + Send + Sync + 'static) {
        lock(&self.0).insert(name, Arc::new(forget));
    }

    /// In the order of the alphabet.
    pub fn names(&self) -> Vec<&'static str> {
        lock(&self.0).keys().copied().collect()
    }

    /// False where there is no cache of this name.
    pub fn forget(&self, name: &str) -> bool {
        let forget = lock(&self.0).get(name).cloned();
        forget.is_some_and(|forget| {
            forget();
            true
        })
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caches").field(&self.names()).finish()
    }
}
