//! Which storages there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::driver::Driver;

/// All storages, by name. Clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct Storages(Arc<BTreeMap<String, Arc<dyn Driver>>>);

impl Storages {
    pub(crate) fn new(all: impl IntoIterator<Item = (String, Arc<dyn Driver>)>) -> Self {
        let all = all.into_iter().map(|(name, it)| (folded(&name), it));
        Self(Arc::new(all.collect()))
    }

    /// Names match without regard to case: RoadRunner makes those of the configuration lower-case,
    /// and then finds none that PHP writes in another way.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<dyn Driver>> {
        self.0.get(&folded(name)).cloned()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<dyn Driver>)> {
        self.0.iter().map(|(name, driver)| (&**name, driver))
    }

    /// What is wrong with the first one that would not answer.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.0.iter().try_for_each(|(name, driver)| {
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
        f.debug_set().entries(self.0.keys()).finish()
    }
}
