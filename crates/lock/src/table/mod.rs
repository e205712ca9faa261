//! Which locks are held, until when, and who waits for them.
//!
//! Knows no clock: the time comes in. Whom a step grants a lock comes back, in the order of their
//! turn, as what they left to be told by.
//!
//! A resource is free, or held by one writer, or by any number of readers, each with an id. Whoever
//! can't have it waits in one line, so that a writer is not starved by readers that keep coming.
//! Two go past the line, because those in it wait for them: a reader that asks again, and one that
//! is alone and asks to write.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

/// Locks that are held at a time; 200 bytes each, and the names.
pub(crate) const LOCKS: usize = 100_000;
/// Callers that wait, for all locks; each is a call under way.
pub(crate) const WAITING: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Table<W> {
    resources: HashMap<Arc<str>, Resource<W>>,
    /// When which lock ends, first the next one; the same moments as in `Resource::holders`.
    ends: BTreeSet<(Instant, Arc<str>, Arc<str>)>,
    waiting: usize,
    next_ticket: u64,
    last_token: u64,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) locks: usize,
    pub(crate) waiting: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// Removed when it is neither held nor waited for.
#[derive(Debug)]
struct Resource<W> {
    /// `Write` only together with a single holder.
    mode: Mode,
    /// By id.
    holders: HashMap<Arc<str>, Held>,
    /// By ticket, which rise.
    line: VecDeque<Waiter<W>>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    end: Instant,
    /// Larger than that of any lock before: see [`Table::token`].
    token: u64,
}

#[derive(Debug)]
struct Waiter<W> {
    ticket: u64,
    id: Arc<str>,
    mode: Mode,
    ttl: Duration,
    told: W,
}

/// What came of an acquisition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted,
    /// In the line; what is to be told comes back with its turn.
    Waits(u64),
}

/// The caller's, or that of whoever lets locks pile up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Full {
    #[error(
        "{0} locks are held already, and no more are allowed; release some, or let them end by a ttl"
    )]
    Locks(usize),
    #[error("{0} callers wait for locks already, and no more are allowed")]
    Waiting(usize),
    #[error("{0} callers hold this lock or wait for it already, and no more are allowed")]
    Resource(usize),
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            locks: LOCKS,
            waiting: WAITING,
        }
    }
}

impl<W> Table<W> {
    /// Tokens begin behind `last_token`.
    pub(crate) fn new(limits: Limits, last_token: u64) -> Self {
        Self {
            resources: HashMap::new(),
            ends: BTreeSet::new(),
            waiting: 0,
            next_ticket: 0,
            last_token,
            limits,
        }
    }

    /// Takes a lock, or a place in the line for it. `ttl` counts from the grant.
    ///
    /// Call [`expire`](Self::expire) before, with the same time.
    pub(crate) fn acquire(
        &mut self,
        resource: &str,
        id: &str,
        mode: Mode,
        ttl: Duration,
        now: Instant,
        told: W,
    ) -> Result<Acquired, Full> {
        if self.locks() >= self.limits.locks {
            return Err(Full::Locks(self.limits.locks));
        }
        let (name, id): (Arc<str>, Arc<str>) = (resource.into(), id.into());
        let entry = self
            .resources
            .entry(name.clone())
            .or_insert_with(Resource::free);
        let past_the_line = entry.is_reader(&id) && entry.admits(&id, mode);
        if past_the_line || (entry.line.is_empty() && entry.admits(&id, mode)) {
            self.last_token += 1;
            let held = Held {
                end: now + ttl,
                token: self.last_token,
            };
            entry.grant(&mut self.ends, &name, id, mode, held);
            return Ok(Acquired::Granted);
        }
        if self.waiting >= self.limits.waiting {
            return Err(Full::Waiting(self.limits.waiting));
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        entry.line.push_back(Waiter {
            ticket,
            id,
            mode,
            ttl,
            told,
        });
        Ok(Acquired::Waits(ticket))
    }

    /// Takes a waiter out of the line. False when it isn't there any more: it was granted the lock.
    pub(crate) fn leave(&mut self, resource: &str, ticket: u64, now: Instant) -> (bool, Vec<W>) {
        let Some(entry) = self.resources.get_mut(resource) else {
            return (false, Vec::new());
        };
        let Ok(place) = entry
            .line
            .binary_search_by_key(&ticket, |waiter| waiter.ticket)
        else {
            return (false, Vec::new());
        };
        entry.line.remove(place);
        self.waiting -= 1;
        // Readers behind a writer that left join those that hold the lock.
        (true, self.advance(resource, now))
    }

    /// Ends the lock that `id` holds. False when it holds none.
    pub(crate) fn release(&mut self, resource: &str, id: &str, now: Instant) -> (bool, Vec<W>) {
        let Some(entry) = self.resources.get_mut(resource) else {
            return (false, Vec::new());
        };
        let Some((id, held)) = entry.holders.remove_entry(id) else {
            return (false, Vec::new());
        };
        self.ends.remove(&(held.end, resource.into(), id));
        (true, self.advance(resource, now))
    }

    /// Ends all locks of a resource. False when there are none.
    pub(crate) fn release_all(&mut self, resource: &str, now: Instant) -> (bool, Vec<W>) {
        let Some(entry) = self.resources.get_mut(resource) else {
            return (false, Vec::new());
        };
        let holders = std::mem::take(&mut entry.holders);
        let any = !holders.is_empty();
        for (id, held) in holders {
            self.ends.remove(&(held.end, resource.into(), id));
        }
        (any, self.advance(resource, now))
    }

    /// Whether `id`, or anybody, holds a lock.
    pub(crate) fn is_held(&self, resource: &str, id: Option<&str>) -> bool {
        self.resources.get(resource).is_some_and(|entry| match id {
            Some(id) => entry.holders.contains_key(id),
            None => !entry.holders.is_empty(),
        })
    }

    /// The fencing token of the lock that `id` holds: what is written under it can be refused where
    /// a larger one was seen.
    pub(crate) fn token(&self, resource: &str, id: &str) -> Option<u64> {
        Some(self.resources.get(resource)?.holders.get(id)?.token)
    }

    /// Lets a lock end `ttl` from now. False when `id` holds none.
    pub(crate) fn prolong(
        &mut self,
        resource: &str,
        id: &str,
        ttl: Duration,
        now: Instant,
    ) -> bool {
        let entry = self.resources.get_key_value(resource);
        let Some((name, holder, token)) = entry.and_then(|(name, entry)| {
            let (id, held) = entry.holders.get_key_value(id)?;
            Some((name.clone(), id.clone(), held.token))
        }) else {
            return false;
        };
        let entry = self.resources.get_mut(resource).expect("just seen");
        let (mode, end) = (entry.mode, now + ttl);
        entry.grant(&mut self.ends, &name, holder, mode, Held { end, token });
        true
    }

    /// Ends the locks whose time is over.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<W> {
        let mut granted = Vec::new();
        while self.ends.first().is_some_and(|(end, ..)| *end <= now) {
            let (_, resource, id) = self.ends.pop_first().expect("just seen");
            if let Some(entry) = self.resources.get_mut(&resource) {
                entry.holders.remove(&id);
                granted.extend(self.advance(&resource, now));
            }
        }
        granted
    }

    /// When the next lock ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(end, ..)| *end)
    }

    /// How many there are.
    pub(crate) fn locks(&self) -> usize {
        self.ends.len()
    }

    /// Callers in line.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// What all who wait are told by; nobody waits any more.
    pub(crate) fn dismiss_all(&mut self) -> Vec<W> {
        self.waiting = 0;
        let lines = self
            .resources
            .values_mut()
            .map(|entry| std::mem::take(&mut entry.line));
        let waited = lines.flatten().map(|waiter| waiter.told).collect();
        self.resources.retain(|_, entry| !entry.holders.is_empty());
        waited
    }

    /// Gives the lock to whoever's turn it is, and forgets a resource that nobody wants.
    fn advance(&mut self, resource: &str, now: Instant) -> Vec<W> {
        let Some((name, _)) = self.resources.get_key_value(resource) else {
            return Vec::new();
        };
        let name = name.clone();
        let entry = self.resources.get_mut(resource).expect("just seen");
        let mut granted = Vec::new();
        while let Some(waiter) = entry.next_in_turn() {
            self.last_token += 1;
            let held = Held {
                end: now + waiter.ttl,
                token: self.last_token,
            };
            entry.grant(&mut self.ends, &name, waiter.id, waiter.mode, held);
            granted.push(waiter.told);
        }
        self.waiting -= granted.len();
        if entry.holders.is_empty() && entry.line.is_empty() {
            self.resources.remove(resource);
        }
        granted
    }
}

impl<W> Resource<W> {
    fn free() -> Self {
        Self {
            mode: Mode::Read,
            holders: HashMap::new(),
            line: VecDeque::new(),
        }
    }

    fn is_reader(&self, id: &str) -> bool {
        self.mode == Mode::Read && self.holders.contains_key(id)
    }

    /// Whether those who hold it leave room for this one.
    fn admits(&self, id: &str, mode: Mode) -> bool {
        match mode {
            _ if self.holders.is_empty() => true,
            Mode::Read => self.mode == Mode::Read,
            Mode::Write => self.is_reader(id) && self.holders.len() == 1,
        }
    }

    /// The first in line or, when it can't have its turn yet, the one reader that is left and asks
    /// to write.
    fn next_in_turn(&mut self) -> Option<Waiter<W>> {
        let front = self.line.front()?;
        if self.admits(&front.id, front.mode) {
            return self.line.pop_front();
        }
        let promoted =
            |waiter: &Waiter<W>| waiter.mode == Mode::Write && self.admits(&waiter.id, Mode::Write);
        let place = self.line.iter().position(promoted)?;
        self.line.remove(place)
    }

    fn grant(
        &mut self,
        ends: &mut BTreeSet<(Instant, Arc<str>, Arc<str>)>,
        name: &Arc<str>,
        id: Arc<str>,
        mode: Mode,
        held: Held,
    ) {
        self.mode = mode;
        if let Some(before) = self.holders.insert(id.clone(), held) {
            ends.remove(&(before.end, name.clone(), id.clone()));
        }
        ends.insert((held.end, name.clone(), id));
    }
}

#[cfg(test)]
mod tests;
