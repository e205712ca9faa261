//! Which pipelines of a pool have a job that may begin, and which of them has its turn.
//!
//! Knows no pipeline and no driver: it notes what a look at one has found, and looks again when
//! something has happened to it. So a job costs the same beside one pipeline and beside hundreds
//! that have none.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use pronghorn_queue::SHARE;
use tokio::time::Instant;

/// One look at a pipeline, and what it has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Glance {
    /// The priority of its job that may begin now.
    pub(super) head: Option<i64>,
    /// When to look again, if nothing happens before.
    pub(super) again: Option<Instant>,
    /// Nobody but this server has its jobs.
    pub(super) is_ours: bool,
}

/// The pipelines of one pool, by their names.
#[derive(Debug, Default)]
pub(super) struct Turns {
    found: BTreeMap<Arc<str>, Glance>,
    /// Pipelines that have a job which may begin.
    ready: BTreeSet<Arc<str>>,
    /// The same ones by the priority of that job.
    by_priority: BTreeMap<i64, BTreeSet<Arc<str>>>,
    /// Pipelines to look at again, by the time.
    due: BTreeSet<(Instant, Arc<str>)>,
    /// Pipelines whose jobs others may have as well.
    shared: BTreeSet<Arc<str>>,
    /// Jobs taken since one had its turn that was not the best.
    taken: u32,
    /// The pipeline that had a job last.
    last: Arc<str>,
}

impl Turns {
    /// Looks at those that were told of and at those whose time has come, and takes a job from the
    /// one whose turn it is. With `ours_alone`, the others wait.
    pub(super) fn take<T>(
        &mut self,
        told: BTreeSet<Arc<str>>,
        ours_alone: bool,
        now: Instant,
        look: impl Fn(&str) -> Option<Glance>,
        take: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let is_due = |(time, _): &&(Instant, Arc<str>)| *time <= now;
        let due = self.due.iter().take_while(is_due);
        let due: Vec<_> = due.map(|(_, name)| name.clone()).collect();
        for name in due.into_iter().chain(told) {
            self.note(&name, look(&name));
        }
        // Each of them may have lost its job since it was looked at.
        for _ in 0..=self.ready.len() {
            let name = self.next(ours_alone)?;
            let before = self.head_of(&name);
            self.note(&name, look(&name));
            if before.is_none() || self.head_of(&name) != before {
                continue;
            }
            if let Some(taken) = take(&name) {
                self.taken = (self.taken + 1) % SHARE;
                self.last = name;
                return Some(taken);
            }
            // Somebody was quicker. Whoever brings another job tells of it.
            let found = self.found.get(&name);
            let without = found.map(|found| Glance {
                head: None,
                ..*found
            });
            self.note(&name, without);
        }
        None
    }

    fn head_of(&self, name: &str) -> Option<i64> {
        self.found.get(name)?.head
    }

    /// When to look again, if nothing happens before.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(time, _)| *time)
    }

    /// The pipelines whose jobs others may have as well.
    pub(super) const fn shared(&self) -> &BTreeSet<Arc<str>> {
        &self.shared
    }

    /// Mostly one of the best priority, and now and then any.
    fn next(&self, ours_alone: bool) -> Option<Arc<str>> {
        let may = |name: &&Arc<str>| !ours_alone || !self.shared.contains(*name);
        // From the one behind that of the last job on, so that equal ones take turns.
        let in_turn = |names: &BTreeSet<Arc<str>>| {
            let last = &*self.last;
            let behind = names.range::<str, _>((Bound::Excluded(last), Bound::Unbounded));
            let until = names.range::<str, _>((Bound::Unbounded, Bound::Included(last)));
            behind.chain(until).find(may).cloned()
        };
        if self.taken + 1 >= SHARE {
            in_turn(&self.ready)
        } else {
            self.by_priority.values().find_map(in_turn)
        }
    }

    /// None: it is gone.
    fn note(&mut self, name: &Arc<str>, found: Option<Glance>) {
        if self.found.get(name) == found.as_ref() {
            return;
        }
        if let Some(before) = self.found.remove(name) {
            self.forget(name, before);
        }
        let Some(found) = found else {
            return;
        };
        if let Some(head) = found.head {
            self.ready.insert(name.clone());
            let equal = self.by_priority.entry(head).or_default();
            equal.insert(name.clone());
        }
        if let Some(again) = found.again {
            self.due.insert((again, name.clone()));
        }
        if !found.is_ours {
            self.shared.insert(name.clone());
        }
        self.found.insert(name.clone(), found);
    }

    fn forget(&mut self, name: &Arc<str>, before: Glance) {
        self.ready.remove(name);
        if let Some(head) = before.head
            && let Some(equal) = self.by_priority.get_mut(&head)
        {
            equal.remove(name);
            if equal.is_empty() {
                self.by_priority.remove(&head);
            }
        }
        if let Some(again) = before.again {
            self.due.remove(&(again, name.clone()));
        }
        self.shared.remove(name);
    }
}

#[cfg(test)]
mod tests;
