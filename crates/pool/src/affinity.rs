//! Calls that belong together and go to one worker, for as long as it takes calls.

use std::num::NonZeroU32;

use crate::slot::SlotId;

/// Calls with the same number go to one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AffinityId(NonZeroU32);

/// A worker: a slot, and which of the workers that take calls in it one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tenure {
    pub(crate) slot: SlotId,
    pub(crate) nth: u64,
}

/// The worker of each origin, once it has one. It may have ended since.
#[derive(Debug, Default)]
pub(crate) struct Affinities {
    workers: Vec<Option<Tenure>>,
    /// Numbers that nobody has.
    free: Vec<AffinityId>,
}

impl Affinities {
    pub(crate) fn add(&mut self) -> AffinityId {
        self.free.pop().unwrap_or_else(|| {
            self.workers.push(None);
            let count = u32::try_from(self.workers.len()).ok();
            let id = count.and_then(NonZeroU32::new);
            AffinityId(id.expect("there are fewer connections than that"))
        })
    }

    pub(crate) fn remove(&mut self, id: AffinityId) {
        if let Some(worker) = self.workers.get_mut(index(id)) {
            *worker = None;
            self.free.push(id);
        }
    }

    pub(crate) fn worker(&self, id: AffinityId) -> Option<Tenure> {
        self.workers.get(index(id)).copied().flatten()
    }

    pub(crate) fn set_worker(&mut self, id: AffinityId, worker: Tenure) {
        if let Some(has) = self.workers.get_mut(index(id)) {
            *has = Some(worker);
        }
    }
}

const fn index(AffinityId(number): AffinityId) -> usize {
    number.get() as usize - 1
}
