//! The jobs that are in memory: of each priority the next ones and the next delayed ones, and those
//! that workers have. The rest is in the store alone.
//!
//! Knows no store and no clock: what was committed and what was read comes in, in the order in
//! which the store did it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Delivery, Stat, Ticket};
use crate::embedded::record::{Key, Kind, Lane, Record};
use crate::job::Job;
use crate::options;
use crate::ready::Ready;

/// How many jobs are read at a time. Large enough that a read is rare, small enough that other
/// operations of the store do not wait for it. Tests come to the edges with few jobs.
pub(super) const CHUNK: usize = if cfg!(test) { 8 } else { 256 };
/// How many bytes of them: large payloads come in smaller numbers.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// Fewer of a priority, and more are read: enough for the time that a read takes.
const LOW: usize = CHUNK / 4;
/// More are not kept, of a priority and of its delayed ones.
const HIGH: usize = 2 * CHUNK;
/// How many are kept of all priorities, and their bytes, before they are wanted. The best priority
/// has one in memory in any case, and so have the delayed jobs of each.
const MOST: usize = 16 * CHUNK;
const MOST_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug)]
pub(super) struct LoadedJob {
    pub(super) key: Key,
    pub(super) job: Arc<Job>,
    /// When it was pushed, in milliseconds since 1970; 0 where that is not known.
    pub(super) since: u64,
}

impl LoadedJob {
    /// Since when it could run.
    fn ready_since(&self) -> Option<u64> {
        let since = match self.key.kind {
            Kind::Delayed { due, .. } => due,
            Kind::Ready { .. } => self.since,
        };
        (since > 0).then_some(since)
    }
}

/// How far the window reaches into the jobs of one priority.
#[derive(Clone, Copy, Debug)]
struct Reach {
    /// The number of the last job that was brought in.
    last: u64,
    /// There are further ones in the store.
    more: bool,
}

/// The part of the store to read next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Which priorities there are: nothing is known, or nothing any more.
    All,
    Ready {
        priority: i64,
        behind: u64,
    },
    Delayed {
        lane: Lane,
        behind: LanePlace,
        /// So many at most.
        most: usize,
    },
}

/// The findings of a survey of the store.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) record: Record,
    /// The priorities of jobs that are ready.
    pub(super) priorities: Vec<i64>,
    /// The lanes of delayed ones.
    pub(super) lanes: Vec<Lane>,
    /// The keys of jobs that workers of the process before have.
    pub(super) lent: Vec<Key>,
}

/// When a delayed job is due, and its number.
type LanePlace = (u64, u64);

/// The next delayed jobs of a lane.
#[derive(Debug)]
struct Waits {
    entries: BTreeMap<LanePlace, LoadedJob>,
    /// The jobs up to here are in memory.
    last: LanePlace,
    /// There are further ones in the store.
    more: bool,
}

impl Waits {
    const fn new(more: bool) -> Self {
        Self {
            entries: BTreeMap::new(),
            last: (0, 0),
            more,
        }
    }

    /// The time of its first.
    fn due(&self) -> Option<u64> {
        let first = self.entries.first_key_value();
        first.map(|((due, _), _)| *due)
    }

    fn is_over(&self) -> bool {
        self.entries.is_empty() && !self.more
    }
}

#[derive(Debug)]
pub(super) struct Window {
    record: Record,
    ready: Ready<LoadedJob>,
    reach: BTreeMap<i64, Reach>,
    delayed: BTreeMap<Lane, Waits>,
    /// None of those that are in memory is due before.
    due: Option<u64>,
    reserved: HashMap<Ticket, LoadedJob>,
    /// Keys of jobs that are being removed: what was read before does not bring them back.
    withdrawn: HashSet<Vec<u8>>,
    /// Jobs that workers of the process before have.
    lent: HashMap<Vec<u8>, Kind>,
    tickets: u64,
    /// Delayed ones whose time has come and that are in `ready`.
    promoted: u64,
    /// The bytes of jobs in `ready` and in `delayed`.
    bytes: u64,
    /// No job that could be taken expires before, in milliseconds since 1970.
    expires_at: Option<u64>,
    /// The priority that was read last; the next ones have their turn before it.
    read_last: i64,
    paused: bool,
    stale: bool,
    /// Another process has changed something.
    is_outdated: bool,
    /// The store is with another process, which gives out what is there.
    has_left: bool,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            record: Record::default(),
            ready: Ready::new(),
            reach: BTreeMap::new(),
            delayed: BTreeMap::new(),
            due: None,
            reserved: HashMap::new(),
            withdrawn: HashSet::new(),
            lent: HashMap::new(),
            tickets: 0,
            promoted: 0,
            bytes: 0,
            expires_at: None,
            read_last: i64::MIN,
            paused: true,
            stale: false,
            is_outdated: false,
            has_left: false,
        }
    }

    /// Begins with what a survey has found. Jobs that workers have stay theirs.
    pub(super) fn begin(&mut self, found: Survey) {
        let Survey {
            record,
            priorities,
            lanes,
            lent,
        } = found;
        self.record = record;
        let lent = lent.into_iter();
        self.lent = lent.map(|key| (key.bytes().to_vec(), key.kind)).collect();
        self.is_outdated = false;
        self.ready = Ready::new();
        let all = Reach {
            last: 0,
            more: true,
        };
        self.reach = priorities.into_iter().map(|p| (p, all)).collect();
        self.delayed = (lanes.into_iter().map(|lane| (lane, Waits::new(true)))).collect();
        self.due = None;
        self.promoted = 0;
        self.bytes = 0;
        self.stale = false;
    }

    /// What is in the store is not known any more. What was being removed may still be there: it is
    /// read again, and given out then.
    pub(super) fn forget(&mut self) {
        self.stale = true;
        self.withdrawn.clear();
    }

    /// Another process may have changed something: it is read again, while what is here goes on.
    pub(super) fn look_again(&mut self) {
        self.is_outdated = true;
    }

    /// Nothing more is given out, and what is in the store is not looked at: the keys of the jobs
    /// that are out, or are about to be removed.
    pub(super) fn leave(&mut self) -> Vec<Vec<u8>> {
        self.has_left = true;
        let reserved = self.reserved.values();
        let reserved = reserved.map(|entry| entry.key.bytes().to_vec());
        reserved.chain(self.withdrawn.iter().cloned()).collect()
    }

    pub(super) fn stay(&mut self) {
        self.has_left = false;
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left
    }

    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    pub(super) fn next_load(&self) -> Option<Load> {
        if self.has_left {
            return None;
        }
        if self.stale || self.is_outdated {
            return Some(Load::All);
        }
        let has_room = self.bytes < MOST_BYTES;
        let is_low = |(_, it): &(&Lane, &Waits)| {
            it.more && (it.entries.is_empty() || (has_room && it.entries.len() < LOW))
        };
        if let Some((lane, waits)) = self.delayed.iter().find(is_low) {
            return Some(Load::Delayed {
                lane: *lane,
                behind: waits.last,
                most: if has_room { CHUNK } else { 1 },
            });
        }
        let best = self.reach.keys().next();
        let has_room = has_room && self.ready.len() < MOST;
        let is_low = |(priority, reach): &(&i64, &Reach)| {
            let here = self.ready.len_of(**priority);
            let first = here == 0 && best == Some(*priority);
            reach.more && (first || (has_room && here < LOW))
        };
        let behind = (Bound::Excluded(self.read_last), Bound::Unbounded);
        let next = self.reach.range(behind).find(is_low);
        let (priority, reach) = next.or_else(|| self.reach.iter().find(is_low))?;
        Some(Load::Ready {
            priority: *priority,
            behind: reach.last,
        })
    }

    /// Takes in jobs that were read behind the last one of a priority.
    pub(super) fn loaded_ready(&mut self, priority: i64, entries: Vec<LoadedJob>, more: bool) {
        let taken = self.out();
        self.read_last = priority;
        let Some(reach) = self.reach.get_mut(&priority) else {
            return;
        };
        for entry in entries {
            // One that is there already was pushed while it was read.
            if entry.key.number > reach.last {
                reach.last = entry.key.number;
                if !taken.contains(entry.key.bytes()) {
                    self.bytes += entry.job.size();
                    self.ready.push(priority, entry);
                }
            }
        }
        reach.more = more;
        self.drop_empty(priority);
    }

    /// Takes in jobs that were read behind the last delayed one of a lane.
    pub(super) fn loaded_delayed(&mut self, lane: Lane, entries: Vec<LoadedJob>, more: bool) {
        let mut taken = self.out();
        // One that was put back may be ready, and the window be before it: it goes back in a lane.
        let of_lane =
            |it: &&LoadedJob| matches!(it.key.kind, Kind::Delayed { lane: of, .. } if of == lane);
        let ready = self.ready.iter().filter(of_lane);
        taken.extend(ready.map(|it| it.key.bytes().to_vec()));
        let Some(waits) = self.delayed.get_mut(&lane) else {
            return;
        };
        for entry in entries {
            let place = place(&entry.key);
            if place > waits.last {
                waits.last = place;
                if !taken.contains(entry.key.bytes()) {
                    self.bytes += entry.job.size();
                    waits.entries.insert(place, entry);
                }
            }
        }
        waits.more = more;
        self.due = self.due.into_iter().chain(waits.due()).min();
        if waits.is_over() {
            self.delayed.remove(&lane);
        }
    }

    /// Jobs were added, or none, and this is what the pipeline has now.
    pub(super) fn pushed(&mut self, record: Record, entries: Vec<LoadedJob>) {
        self.record = record;
        for entry in entries {
            self.note_expiry(&entry.job);
            match entry.key.kind {
                Kind::Ready { priority } => self.add_ready(priority, entry),
                Kind::Delayed { lane, .. } => self.add_delayed(lane, entry),
            }
        }
    }

    fn add_ready(&mut self, priority: i64, entry: LoadedJob) {
        // All before it were here, and are gone or with workers.
        let none = Reach {
            last: entry.key.number - 1,
            more: false,
        };
        let reach = self.reach.entry(priority).or_insert(none);
        let here = self.ready.len_of(priority);
        // Behind jobs that are not here, it can't be either.
        if reach.more || here >= HIGH || (here > 0 && self.bytes >= MOST_BYTES) {
            reach.more = true;
            return;
        }
        reach.last = entry.key.number;
        self.bytes += entry.job.size();
        self.ready.push(priority, entry);
    }

    fn add_delayed(&mut self, lane: Lane, entry: LoadedJob) {
        let place = place(&entry.key);
        let waits = self.delayed.entry(lane).or_insert(Waits::new(false));
        if waits.more && place > waits.last {
            return;
        }
        waits.last = waits.last.max(place);
        self.bytes += entry.job.size();
        waits.entries.insert(place, entry);
        let too_many = waits.entries.len() > HIGH;
        if too_many || self.bytes >= MOST_BYTES {
            let keep = if too_many { CHUNK } else { 1 };
            while waits.entries.len() > keep
                && let Some((_, entry)) = waits.entries.pop_last()
            {
                self.bytes = self.bytes.saturating_sub(entry.job.size());
                waits.more = true;
            }
            let last = waits.entries.last_key_value();
            waits.last = last.map_or((0, 0), |(place, _)| *place);
        }
        self.due = self.due.into_iter().chain(waits.due()).min();
    }

    /// None while the store does not work: no end of a job could be kept.
    pub(super) fn head(&mut self, now: u64) -> Option<i64> {
        if self.paused || self.stale || self.has_left {
            return None;
        }
        self.promote(now);
        self.ready.best()
    }

    pub(super) fn take(&mut self, now: u64) -> Option<Delivery> {
        self.head(now)?;
        let entry = self.ready.pop()?;
        self.bytes = self.bytes.saturating_sub(entry.job.size());
        if matches!(entry.key.kind, Kind::Delayed { .. }) {
            self.promoted -= 1;
        }
        self.drop_empty(entry.job.priority);
        Some(self.reserve(entry))
    }

    /// Takes one that was read in the store, wherever it is here, also in a pipeline that is
    /// paused. None: it is out already.
    pub(super) fn take_this(&mut self, entry: LoadedJob) -> Option<Delivery> {
        let is_removed = self.withdrawn.contains(entry.key.bytes());
        if self.has_left || is_removed || !self.take_out(&entry.key, entry.job.priority) {
            return None;
        }
        Some(self.reserve(entry))
    }

    fn reserve(&mut self, entry: LoadedJob) -> Delivery {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let job = entry.job.clone();
        self.reserved.insert(ticket, entry);
        Delivery { job, ticket }
    }

    pub(super) const fn expires_at(&self) -> Option<u64> {
        self.expires_at
    }

    /// Notes the first expiry that the store has, among all that are not out.
    pub(super) const fn expect_expiry(&mut self, at: Option<u64>) {
        self.expires_at = at;
    }

    fn note_expiry(&mut self, job: &Job) {
        let expires_at = options::expires_at(&job.headers).into_iter();
        self.expires_at = expires_at.chain(self.expires_at).min();
    }

    /// Jobs whose time has come are ready, as long as there is room among those of their priority
    /// that are due.
    fn promote(&mut self, now: u64) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        for waits in self.delayed.values_mut() {
            while let Some(first) = waits.entries.first_entry()
                && first.key().0 <= now
                && self.ready.due_of(first.get().job.priority) < HIGH
            {
                let entry = first.remove();
                self.promoted += 1;
                self.ready.push_due(entry.job.priority, entry);
            }
        }
        self.delayed.retain(|_, waits| !waits.is_over());
        self.due = self.delayed.values().filter_map(Waits::due).min();
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.due
            .filter(|_| !self.paused && !self.stale && !self.has_left)
    }

    pub(super) fn reserved(&self, ticket: Ticket) -> Option<LoadedJob> {
        self.reserved.get(&ticket).cloned()
    }

    /// Gives out a job no more, unless it is given out already: whether it is not. One that
    /// somebody else is removing is on its way, too.
    pub(super) fn withdraw(&mut self, key: &Key, priority: i64) -> bool {
        let is_here = !self.withdrawn.contains(key.bytes()) && self.take_out(key, priority);
        if is_here {
            self.withdrawn.insert(key.bytes().to_vec());
        }
        is_here
    }

    /// Whether one that was withdrawn is not given out. After a failure of the store it may be.
    pub(super) fn stays_withdrawn(&mut self, key: &Key, priority: i64) -> bool {
        self.withdrawn.contains(key.bytes()) || self.withdraw(key, priority)
    }

    /// They are not removed, and are read again.
    pub(super) fn restore(&mut self, keys: &[Key]) {
        for key in keys {
            self.withdrawn.remove(key.bytes());
        }
        self.look_again();
    }

    /// False: a worker has it.
    fn take_out(&mut self, key: &Key, priority: i64) -> bool {
        let is_lent = self.lent.contains_key(key.bytes());
        if is_lent || self.reserved.values().any(|entry| entry.key == *key) {
            return false;
        }
        let (is_delayed, waiting) = match key.kind {
            Kind::Delayed { lane, .. } => (true, self.take_waiting(lane, place(key))),
            Kind::Ready { .. } => (false, None),
        };
        let removed = waiting.or_else(|| {
            let entry = self.ready.remove(priority, |entry| entry.key == *key)?;
            self.promoted -= u64::from(is_delayed);
            Some(entry)
        });
        let size = removed.map_or(0, |entry| entry.job.size());
        self.bytes = self.bytes.saturating_sub(size);
        self.drop_empty(priority);
        true
    }

    fn take_waiting(&mut self, lane: Lane, place: LanePlace) -> Option<LoadedJob> {
        let waits = self.delayed.get_mut(&lane)?;
        let entry = waits.entries.remove(&place);
        if waits.is_over() {
            self.delayed.remove(&lane);
        }
        entry
    }

    /// They are gone, and this is what the pipeline has now.
    pub(super) fn withdrawn(&mut self, record: Record, keys: &[Key]) {
        self.record = record;
        for key in keys {
            self.withdrawn.remove(key.bytes());
        }
    }

    /// The store has done with it what was asked.
    pub(super) fn settled(&mut self, ticket: Ticket) {
        self.reserved.remove(&ticket);
    }

    /// One that the window has not come to, since it began anew, is read in its turn.
    pub(super) fn put_back(&mut self, ticket: Ticket) {
        let Some(entry) = self.reserved.remove(&ticket) else {
            return;
        };
        self.note_expiry(&entry.job);
        let place = place(&entry.key);
        let is_here = match entry.key.kind {
            Kind::Delayed { lane, .. } => {
                let waits = self.delayed.get(&lane);
                waits.is_none_or(|waits| !waits.more || place <= waits.last)
            }
            Kind::Ready { priority } => {
                let reach = self.reach.get(&priority);
                reach.is_none_or(|reach| !reach.more || entry.key.number <= reach.last)
            }
        };
        if !is_here {
            return;
        }
        if matches!(entry.key.kind, Kind::Delayed { .. }) {
            self.promoted += 1;
        }
        self.bytes += entry.job.size();
        self.ready.push_front(entry.job.priority, entry);
    }

    pub(super) fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    pub(super) fn stat(&mut self, now: u64) -> Stat {
        self.promote(now);
        let reserved = self.reserved.values().map(|entry| &entry.key.kind);
        let out = reserved.chain(self.lent.values());
        let was_delayed = |kind: &&Kind| matches!(kind, Kind::Delayed { .. });
        let of_delayed = out.filter(was_delayed).count() as u64;
        let reserved = (self.reserved.len() + self.lent.len()) as u64;
        let of_ready = reserved - of_delayed;
        // The next one of a priority waits for the longest time; those that were delayed are
        // behind others that came while they were.
        let oldest = self.ready.fronts().filter_map(LoadedJob::ready_since).min();
        Stat {
            oldest: oldest.map(|since| Duration::from_millis(now.saturating_sub(since))),
            active: (self.record.ready + self.promoted).saturating_sub(of_ready),
            delayed: (self.record.delayed).saturating_sub(self.promoted + of_delayed),
            reserved,
        }
    }

    /// A priority of which nothing is left anywhere needs no place.
    fn drop_empty(&mut self, priority: i64) {
        if self.ready.len_of(priority) == 0
            && self.reach.get(&priority).is_some_and(|reach| !reach.more)
        {
            self.reach.remove(&priority);
        }
    }

    /// Keys of jobs that are with workers or are being removed.
    pub(super) fn out(&self) -> HashSet<Vec<u8>> {
        let keys = self.reserved.values().map(|entry| entry.key.bytes());
        let keys = keys.map(<[u8]>::to_vec);
        let others = self.withdrawn.iter().chain(self.lent.keys());
        keys.chain(others.cloned()).collect()
    }
}

fn place(key: &Key) -> LanePlace {
    match key.kind {
        Kind::Delayed { due, .. } => (due, key.number),
        Kind::Ready { .. } => (0, key.number),
    }
}

#[cfg(test)]
mod tests;
