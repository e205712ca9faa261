//! Which storages there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use pronghorn_plugin_api::rpc::Caller;

use crate::driver::{Driver, DriverError, LONGEST_ANSWER};

/// The bytes that an answer may have at first. A longer one is read once more, with room for the
/// longest one: few of those are made at a time.
const USUAL_ANSWER: usize = 1 << 20;

/// Storages, by name. Clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct Storages {
    all: Arc<BTreeMap<String, Arc<dyn Driver>>>,
    /// Others than those of its pool are not there for a worker.
    caller: Caller,
}

impl Storages {
    pub(crate) fn new(all: impl IntoIterator<Item = (String, Arc<dyn Driver>)>) -> Self {
        let all = all.into_iter().map(|(name, it)| (folded(&name), it));
        Self {
            all: Arc::new(all.collect()),
            caller: Caller::anyone(),
        }
    }

    /// The storages that there are for a caller.
    pub(crate) fn of(&self, caller: &Caller) -> Self {
        Self {
            all: self.all.clone(),
            caller: caller.clone(),
        }
    }

    /// Reads values for one answer. `read` gets the bytes that they may have together, for which
    /// there is room. Short ones wait for none; where they are longer they are read again.
    pub(crate) async fn read<T, R>(&self, read: impl Fn(usize) -> R) -> Result<T, DriverError>
    where
        R: Future<Output = Result<T, DriverError>>,
    {
        let mut most = self.caller.try_reserve(USUAL_ANSWER);
        loop {
            let found = read(most.min(LONGEST_ANSWER)).await;
            let longer = match &found {
                Err(DriverError::LongAnswer { .. }) if most < USUAL_ANSWER => USUAL_ANSWER,
                Err(DriverError::LongAnswer { .. }) if most < LONGEST_ANSWER => LONGEST_ANSWER,
                _ => return found,
            };
            most = self.caller.reserve(longer).await;
        }
    }

    fn is_there(&self, name: &str) -> bool {
        let borders = self.caller.borders();
        borders.is_none_or(|borders| borders.has_storage(name))
    }

    /// Names match without regard to case: RoadRunner makes those of the configuration lower-case,
    /// and then finds none that PHP writes in another way.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn Driver>> {
        let found = self.all.get(&folded(name));
        found.filter(|_| self.is_there(name)).cloned()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<dyn Driver>)> {
        let there = self.all.iter().filter(|(name, _)| self.is_there(name));
        there.map(|(name, driver)| (&**name, driver))
    }

    /// What is wrong with the first one that would not answer.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.all.iter().try_for_each(|(name, driver)| {
            let health = driver.health();
            health.map_err(|wrong| format!("storage `{name}`: {wrong}"))
        })
    }
}

fn folded(name: &str) -> String {
    name.to_lowercase()
}

impl std::fmt::Debug for Storages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.all.keys()).finish()
    }
}
