//! Calls that wait for a worker: bounded, by priority, each with the moment it gives up.
//!
//! Within a priority the first in is the first out, as long as that serves everybody in good time.
//! Once the oldest has waited too long for a whole interval, the newest goes first: in an overload
//! somebody is served too late anyway, and the newest still waits for an answer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::affinity::AffinityId;
use crate::slot::SlotId;

/// The longest wait that is still good service, where the queue's own limit is not much longer.
/// Readiness uses it too.
const PATIENCE: Duration = Duration::from_secs(1);

/// A queue with an end. Lower priorities go first.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    levels: BTreeMap<u8, Level<T>>,
    /// Items that only the worker in this slot may have; without a slot, the first one that takes
    /// one has the next ones of the same origin, too.
    lines: BTreeMap<Option<SlotId>, Line<T>>,
    /// Items in lines.
    lined: usize,
    /// Items in all.
    len: usize,
    /// Items that may wait outside of lines. In a line, each origin has one.
    limit: usize,
    /// A wait up to this is no overload; also how long one lasts before the order turns.
    patience: Duration,
    /// Since when the oldest wait is longer than that.
    late_since: Option<Instant>,
    newest_first: bool,
    /// When the last item was taken.
    taken: Option<Instant>,
}

/// Ascending by sequence number. An entry that was taken out stays as a hole until it is in front
/// or at the end.
#[derive(Debug)]
struct Level<T> {
    entries: VecDeque<Waiting<T>>,
    holes: usize,
    /// Items whose callers have left.
    left: usize,
}

#[derive(Debug)]
struct Line<T> {
    level: Level<T>,
    /// The last item that its worker took was from here: a busy line must not hold up the others.
    had_turn: bool,
}

#[derive(Debug)]
struct Waiting<T> {
    ticket: Ticket,
    item: Option<T>,
}

/// What became of an item that came in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pushed<T> {
    Waits,
    /// In place of this one, which is less urgent.
    Displaced(T),
    /// In place of this one, which has waited in vain.
    Outlived(T),
    Full(T),
}

/// When and where an item waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    /// Lower goes first.
    pub(crate) priority: u8,
    pub(crate) seq: u64,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
    /// Its caller waits no more, and it comes back to its place.
    pub(crate) has_left: bool,
    /// It is for the worker of its origin.
    pub(crate) affinity: Option<AffinityId>,
}

/// Of the places in a queue, this part may be taken by items whose callers have left: those who
/// come and go must leave room for those who wait.
const LEFT: usize = 4;

impl<T> Queue<T> {
    /// For at most `limit` items, which wait at most `timeout`.
    pub(crate) fn new(limit: usize, timeout: Duration) -> Self {
        Self {
            levels: BTreeMap::new(),
            lines: BTreeMap::new(),
            lined: 0,
            len: 0,
            limit,
            patience: PATIENCE.min(timeout / 4),
            late_since: None,
            newest_first: false,
            taken: None,
        }
    }

    /// Other limits; those that wait already keep their time, and their place also in a queue that
    /// is too long by now.
    pub(crate) fn set_limits(&mut self, limit: usize, timeout: Duration) {
        self.limit = limit;
        self.patience = PATIENCE.min(timeout / 4);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Since when items wait and none is taken.
    pub(crate) fn stalled(&self) -> Option<Instant> {
        self.oldest()
            .map(|oldest| self.taken.map_or(oldest, |taken| taken.max(oldest)))
    }

    /// Since when the oldest waits.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let fronts = self.lines.values().filter_map(|line| line.level.oldest());
        fronts.chain(self.oldest_outside()).min()
    }

    /// Since when the oldest waits that any worker may have.
    fn oldest_outside(&self) -> Option<Instant> {
        self.levels.values().filter_map(Level::oldest).min()
    }

    /// The number of waiting items that another worker could take, and the time since which the
    /// oldest of them waits: items that any worker may have, and those in lines for which `counts`.
    pub(crate) fn wanting(&self, counts: impl Fn(SlotId) -> bool) -> (usize, Option<Instant>) {
        let lines = self.lines.iter();
        let lines = lines.filter(|(of, _)| of.is_none_or(&counts));
        let levels = self
            .levels
            .values()
            .chain(lines.map(|(_, line)| &line.level));
        levels.fold((0, None), |(count, oldest), level| {
            let since = oldest.into_iter().chain(level.oldest()).min();
            (count + level.len(), since)
        })
    }

    /// Adds an item behind all with a lower number of its priority. In a full queue it takes the
    /// place of a less urgent one, or in an overload of the oldest.
    ///
    /// Numbers rise, so this is the end, but for an item that comes back: it returns to its old
    /// place.
    pub(crate) fn push(&mut self, ticket: Ticket, item: T) -> Pushed<T> {
        let mut pushed = Pushed::Waits;
        if self.len - self.lined >= self.limit {
            self.look(ticket.since);
            match self.make_room(ticket.priority, ticket.since) {
                Some(made) => pushed = made,
                None => return Pushed::Full(item),
            }
        }
        let level = self.levels.entry(ticket.priority).or_default();
        level.insert(ticket, item);
        self.len += 1;
        pushed
    }

    /// Adds an item for the worker in `slot`, or for the first one that takes it.
    pub(crate) fn push_in_line(&mut self, slot: Option<SlotId>, ticket: Ticket, item: T) {
        self.lines
            .entry(slot)
            .or_default()
            .level
            .insert(ticket, item);
        self.lined += 1;
        self.len += 1;
    }

    /// Whether items wait for the worker in this slot alone.
    pub(crate) fn has_line(&self, slot: SlotId) -> bool {
        self.lined > 0 && self.waits_in(Some(slot))
    }

    fn waits_in(&self, of: Option<SlotId>) -> bool {
        let line = self.lines.get(&of);
        line.is_some_and(|line| !line.level.is_empty())
    }

    /// The worker in this slot takes no more: its items come back, in their order.
    pub(crate) fn take_line(&mut self, slot: SlotId) -> Vec<(Ticket, T)> {
        if self.lined == 0 {
            return Vec::new();
        }
        let line = self.lines.remove(&Some(slot)).unwrap_or_default();
        let entries = line.level.entries.into_iter();
        let items = entries.filter_map(|waiting| Some((waiting.ticket, waiting.item?)));
        let items: Vec<_> = items.collect();
        self.lined -= items.len();
        self.len -= items.len();
        items
    }

    fn make_room(&mut self, priority: u8, now: Instant) -> Option<Pushed<T>> {
        let (newest_first, patience) = (self.newest_first, self.patience);
        let (&least, level) = self
            .levels
            .iter_mut()
            .rfind(|(_, level)| !level.entries.is_empty())?;
        let front = level.oldest()?;
        let late = newest_first && now.saturating_duration_since(front) > patience;
        let made = if late && least >= priority {
            Pushed::Outlived(level.pop_oldest()?.1)
        } else if least > priority {
            Pushed::Displaced(level.pop_newest()?.1)
        } else {
            return None;
        };
        self.len -= 1;
        Some(made)
    }

    /// The next item for the worker in this slot.
    pub(crate) fn pop_for(&mut self, slot: SlotId, now: Instant) -> Option<(Ticket, T)> {
        if self.lined > 0
            && let Some(popped) = self.pop_line(slot)
        {
            self.lined -= 1;
            self.len -= 1;
            self.taken = Some(now);
            return Some(popped);
        }
        self.pop(now)
    }

    fn pop_line(&mut self, slot: SlotId) -> Option<(Ticket, T)> {
        let others_wait = self.len > self.lined;
        let mut lines = [Some(slot), None].into_iter();
        let of = lines.find(|of| self.waits_in(*of))?;
        let line = self.lines.get_mut(&of)?;
        line.had_turn = !(line.had_turn && others_wait);
        if line.had_turn {
            return line.level.pop_oldest();
        }
        None
    }

    /// The next item that any worker may have.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Ticket, T)> {
        if self.len == 0 {
            self.late_since = None;
            return None;
        }
        self.look(now);
        for level in self.levels.values_mut() {
            let popped = if self.newest_first {
                level.pop_newest()
            } else {
                level.pop_oldest()
            };
            if popped.is_some() {
                self.len -= 1;
                self.taken = Some(now);
                return popped;
            }
        }
        None
    }

    /// Decides which end is next.
    fn look(&mut self, now: Instant) {
        let late = |since: Instant| now.saturating_duration_since(since) > self.patience;
        if self.oldest_outside().is_some_and(late) {
            let since = *self.late_since.get_or_insert(now);
            self.newest_first = now.saturating_duration_since(since) >= self.patience;
        } else {
            self.late_since = None;
            self.newest_first = false;
        }
    }

    /// The caller of an item has left, and it stays. False: it is not here, or there are too many
    /// of its kind.
    pub(crate) fn leave(&mut self, priority: u8, seq: u64) -> bool {
        let left = self.levels.values().map(|level| level.left);
        let lined = self.lines.values().map(|line| line.level.left);
        if left.chain(lined).sum::<usize>() >= (self.limit / LEFT).max(1) {
            return false;
        }
        let level = self.levels.get_mut(&priority);
        level.is_some_and(|level| level.leave(seq))
            || self.lines.values_mut().any(|line| line.level.leave(seq))
    }

    /// Takes an item out of the middle, if it is still there.
    pub(crate) fn forget(&mut self, priority: u8, seq: u64) -> Option<T> {
        let level = self.levels.get_mut(&priority);
        if let Some(item) = level.and_then(|level| level.forget(seq)) {
            self.len -= 1;
            return Some(item);
        }
        let mut lines = self.lines.values_mut();
        let item = lines.find_map(|line| line.level.forget(seq))?;
        self.lined -= 1;
        self.len -= 1;
        Some(item)
    }

    /// Takes out every item whose moment has come.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<T> {
        let mut expired = Vec::new();
        for line in self.lines.values_mut() {
            line.level.expire(now, &mut expired);
        }
        self.lined -= expired.len();
        for level in self.levels.values_mut() {
            level.expire(now, &mut expired);
        }
        self.len -= expired.len();
        expired
    }

    /// The first moment at which an item gives up.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let levels = self.levels.values().filter_map(Level::next_expiry);
        let lines = self.lines.values();
        let lines = lines.filter_map(|line| line.level.next_expiry());
        levels.chain(lines).min()
    }

    /// Takes out everything.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        (self.len, self.lined) = (0, 0);
        let levels = std::mem::take(&mut self.levels).into_values();
        let lines = std::mem::take(&mut self.lines).into_values();
        let levels = levels.chain(lines.map(|line| line.level));
        let waiting = levels.flat_map(|level| level.entries);
        waiting.filter_map(|waiting| waiting.item).collect()
    }
}

impl<T> Default for Level<T> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            holes: 0,
            left: 0,
        }
    }
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            level: Level::default(),
            had_turn: false,
        }
    }
}

impl<T> Level<T> {
    /// No hole is left at an end.
    fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn len(&self) -> usize {
        self.entries.len() - self.holes
    }

    fn oldest(&self) -> Option<Instant> {
        self.entries.front().map(|waiting| waiting.ticket.since)
    }

    fn insert(&mut self, ticket: Ticket, item: T) {
        let is_last = |last: &Waiting<T>| last.ticket.seq < ticket.seq;
        let place = if self.entries.back().is_none_or(is_last) {
            self.entries.len()
        } else {
            self.entries
                .partition_point(|waiting| waiting.ticket.seq < ticket.seq)
        };
        self.left += usize::from(ticket.has_left);
        let item = Some(item);
        self.entries.insert(place, Waiting { ticket, item });
    }

    fn find(&mut self, seq: u64) -> Option<&mut Waiting<T>> {
        let place = self
            .entries
            .binary_search_by_key(&seq, |waiting| waiting.ticket.seq);
        self.entries.get_mut(place.ok()?)
    }

    fn leave(&mut self, seq: u64) -> bool {
        let waiting = self.find(seq);
        let Some(waiting) = waiting.filter(|it| it.item.is_some() && !it.ticket.has_left) else {
            return false;
        };
        waiting.ticket.has_left = true;
        self.left += 1;
        true
    }

    fn forget(&mut self, seq: u64) -> Option<T> {
        let waiting = self.find(seq)?;
        let item = waiting.item.take()?;
        self.left -= usize::from(waiting.ticket.has_left);
        self.holes += 1;
        self.drop_holes();
        Some(item)
    }

    fn expire(&mut self, now: Instant, expired: &mut Vec<T>) {
        let before = expired.len();
        let (entries, left) = (&mut self.entries, &mut self.left);
        let over = entries
            .iter_mut()
            .filter(|waiting| waiting.ticket.until <= now);
        expired.extend(over.filter_map(|waiting| {
            let item = waiting.item.take()?;
            *left -= usize::from(waiting.ticket.has_left);
            Some(item)
        }));
        self.holes += expired.len() - before;
        self.drop_holes();
    }

    fn next_expiry(&self) -> Option<Instant> {
        let waiting = self.entries.iter().filter(|waiting| waiting.item.is_some());
        waiting.map(|waiting| waiting.ticket.until).min()
    }

    fn pop_oldest(&mut self) -> Option<(Ticket, T)> {
        let popped = self.entries.pop_front();
        self.taken(popped)
    }

    fn pop_newest(&mut self) -> Option<(Ticket, T)> {
        let popped = self.entries.pop_back();
        self.taken(popped)
    }

    /// What was popped is no hole, because none is left at an end.
    fn taken(&mut self, popped: Option<Waiting<T>>) -> Option<(Ticket, T)> {
        self.drop_holes();
        let waiting = popped?;
        self.left -= usize::from(waiting.ticket.has_left);
        Some((waiting.ticket, waiting.item?))
    }

    /// Without this a queue whose calls all leave would only grow.
    fn drop_holes(&mut self) {
        let hole = |waiting: Option<&Waiting<T>>| waiting.is_some_and(|it| it.item.is_none());
        while hole(self.entries.front()) {
            self.entries.pop_front();
            self.holes -= 1;
        }
        while hole(self.entries.back()) {
            self.entries.pop_back();
            self.holes -= 1;
        }
        // Holes in the middle: when they are the larger part, pay once to be rid of them.
        if self.holes > 64 && self.holes > self.entries.len() / 2 {
            self.entries.retain(|waiting| waiting.item.is_some());
            self.holes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(40);

    fn after(seconds: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    fn ticket(priority: u8, seq: u64, until: u64) -> Ticket {
        Ticket {
            priority,
            seq,
            since: after(0),
            until: after(until),
            has_left: false,
            affinity: None,
        }
    }

    fn came(priority: u8, seq: u64, since: u64) -> Ticket {
        Ticket {
            since: after(since),
            ..ticket(priority, seq, since + 40)
        }
    }

    fn order(queue: &mut Queue<u64>, now: u64) -> Vec<u64> {
        let popped = std::iter::from_fn(|| queue.pop(after(now)));
        popped.map(|(_, item)| item).collect()
    }

    #[test]
    fn first_in_first_out_and_lower_priorities_first() {
        let mut queue = Queue::new(10, TIMEOUT);
        for (seq, priority) in [(1, 10), (2, 10), (3, 1), (4, 10)] {
            assert_eq!(queue.push(ticket(priority, seq, 1), seq), Pushed::Waits);
        }
        assert_eq!(order(&mut queue, 0), [3, 1, 2, 4]);
    }

    #[test]
    fn the_newest_goes_first_once_the_oldest_waited_too_long_for_an_interval() {
        let mut queue = Queue::new(20, TIMEOUT);
        for seq in 0..10 {
            queue.push(came(10, seq, 0), seq);
        }
        let next = |queue: &mut Queue<u64>, now| queue.pop(after(now)).unwrap().1;
        assert_eq!(next(&mut queue, 1), 0, "in time");
        assert_eq!(next(&mut queue, 2), 1, "late, but not for long");
        assert_eq!(next(&mut queue, 3), 9, "late for an interval");
        assert_eq!(next(&mut queue, 3), 8);
        queue.push(came(10, 20, 3), 20);
        queue.push(came(1, 21, 3), 21);
        assert_eq!(next(&mut queue, 3), 21, "priorities hold all the same");
        assert_eq!(next(&mut queue, 3), 20);
        assert_eq!(order(&mut queue, 3), [7, 6, 5, 4, 3, 2]);
        for seq in 30..33 {
            queue.push(came(10, seq, 4), seq);
        }
        assert_eq!(order(&mut queue, 4), [30, 31, 32], "the overload is over");
    }

    #[test]
    fn a_full_queue_gives_the_item_back() {
        let mut queue = Queue::new(1, TIMEOUT);
        assert_eq!(queue.push(ticket(10, 1, 1), 'a'), Pushed::Waits);
        assert_eq!(queue.push(ticket(10, 2, 1), 'b'), Pushed::Full('b'));
        assert_eq!(queue.forget(10, 1), Some('a'));
        assert_eq!(queue.push(ticket(10, 3, 1), 'c'), Pushed::Waits);
    }

    #[test]
    fn in_a_full_queue_the_urgent_take_the_place_of_the_others() {
        let mut queue = Queue::new(3, TIMEOUT);
        for seq in 1..=3 {
            queue.push(came(10, seq, 0), seq);
        }
        assert_eq!(queue.push(came(5, 4, 0), 4), Pushed::Displaced(3));
        assert_eq!(queue.push(came(20, 5, 0), 5), Pushed::Full(5));
        // Late, and late for an interval: now the oldest makes room.
        assert_eq!(queue.push(came(10, 6, 2), 6), Pushed::Full(6));
        assert_eq!(queue.push(came(10, 7, 3), 7), Pushed::Outlived(1));
        assert_eq!(queue.push(came(20, 8, 3), 8), Pushed::Full(8));
        assert_eq!(order(&mut queue, 3), [4, 7, 2]);
    }

    #[test]
    fn a_line_is_for_one_worker_and_takes_turns_with_what_is_for_all() {
        let mut queue = Queue::new(2, TIMEOUT);
        for seq in 0..4 {
            queue.push_in_line(Some(7), ticket(10, seq, seq + 1), seq);
        }
        queue.push_in_line(None, ticket(10, 4, 9), 4);
        for seq in 5..7 {
            assert_eq!(queue.push(ticket(10, seq, 9), seq), Pushed::Waits);
        }
        assert_eq!(queue.push(ticket(10, 7, 9), 7), Pushed::Full(7));
        assert!(queue.has_line(7) && !queue.has_line(8));
        let next = |queue: &mut Queue<u64>, slot| Some(queue.pop_for(slot, after(0))?.1);
        assert_eq!(next(&mut queue, 7), Some(0));
        assert_eq!(next(&mut queue, 7), Some(5));
        assert_eq!(next(&mut queue, 8), Some(4), "for the first that comes");
        assert_eq!(next(&mut queue, 8), Some(6));
        assert_eq!((next(&mut queue, 8), queue.len()), (None, 3));
        assert_eq!(queue.expire(after(2)), [1]);
        assert_eq!(queue.next_expiry(), Some(after(3)));
        assert_eq!(queue.forget(10, 2), Some(2));
        let line = queue.take_line(7);
        assert_eq!(line.len(), 1);
        assert_eq!((line[0].0.seq, line[0].1, queue.len()), (3, 3, 0));
    }

    #[test]
    fn an_item_that_comes_back_returns_to_its_place() {
        let mut queue = Queue::new(10, TIMEOUT);
        for seq in [1, 2, 3] {
            queue.push(ticket(10, seq, 1), seq);
        }
        let (back, first) = queue.pop(after(0)).unwrap();
        assert_eq!(queue.push(back, first), Pushed::Waits);
        assert_eq!(queue.pop(after(0)).unwrap().1, 1);
    }

    #[test]
    fn expired_items_come_out_whatever_their_place() {
        let mut queue = Queue::new(10, TIMEOUT);
        queue.push(ticket(10, 1, 5), 1);
        queue.push(ticket(10, 2, 1), 2);
        queue.push(ticket(5, 3, 2), 3);
        assert_eq!(queue.next_expiry(), Some(after(1)));
        assert_eq!(queue.expire(after(2)), [3, 2]);
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.next_expiry(), Some(after(5)));
    }

    #[test]
    fn a_queue_that_everybody_leaves_does_not_grow() {
        let mut queue = Queue::new(10, TIMEOUT);
        queue.push(ticket(10, 0, 40), 0);
        for seq in 1..10_000 {
            queue.push(ticket(10, seq, 40), seq);
            queue.push(ticket(10, seq + 20_000, 40), seq);
            assert_eq!(queue.forget(10, seq), Some(seq));
            assert_eq!(queue.forget(10, seq + 20_000), Some(seq));
            assert!(queue.levels[&10].entries.len() < 200);
        }
        assert_eq!(order(&mut queue, 0), [0]);
    }

    #[test]
    fn those_who_left_stay_up_to_a_quarter_of_the_places() {
        let mut queue = Queue::new(8, TIMEOUT);
        for seq in 0..8 {
            queue.push(ticket(10, seq, seq), seq);
        }
        assert!(queue.leave(10, 7) && !queue.leave(10, 7), "once");
        assert!(queue.leave(10, 3) && !queue.leave(10, 4), "two of eight");
        assert!(!queue.leave(9, 5) && !queue.leave(10, 99), "not there");
        assert_eq!(queue.expire(after(3)), [0, 1, 2, 3], "one of them");
        assert!(queue.leave(10, 4) && !queue.leave(10, 5));
        assert_eq!(queue.pop(after(0)).map(|it| it.1), Some(4));
        assert!(queue.leave(10, 5) && !queue.leave(10, 6));
        assert_eq!(queue.forget(10, 5), Some(5));
        let back = Ticket {
            has_left: true,
            ..ticket(10, 4, 40)
        };
        queue.push(back, 4);
        assert!(!queue.leave(10, 6), "one that came back counts");
        assert_eq!(order(&mut queue, 0), [4, 6, 7]);
        assert!(queue.levels.values().all(|level| level.left == 0));
        queue.set_limits(1, TIMEOUT);
        queue.push(ticket(10, 20, 40), 20);
        assert!(queue.leave(10, 20), "one at least");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u8),
        Leave(usize),
        Pop,
        Forget(usize),
        Expire(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..3_u8).prop_map(Step::Push),
            2 => any::<usize>().prop_map(Step::Leave),
            2 => Just(Step::Pop),
            2 => any::<usize>().prop_map(Step::Forget),
            1 => (0..40_u64).prop_map(Step::Expire),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// Against the obvious list: same order, same count, nothing lost or given twice.
        #[test]
        fn it_behaves_like_a_sorted_list(steps in steps()) {
            let mut queue = Queue::new(20, TIMEOUT);
            let mut model: Vec<(u8, u64, u64)> = Vec::new();
            let mut left = std::collections::BTreeSet::new();
            for (seq, step) in (0_u64..).zip(steps) {
                match step {
                    Step::Push(priority) => {
                        let until = (seq * 7) % 40;
                        let pushed = queue.push(ticket(priority, seq, until), seq);
                        let full = model.len() == 20;
                        let last = model.last().copied().filter(|last| full && last.0 > priority);
                        match pushed {
                            Pushed::Waits => prop_assert!(!full),
                            Pushed::Displaced(item) => {
                                prop_assert_eq!(Some(item), last.map(|last| last.1));
                                model.pop();
                            }
                            Pushed::Full(_) => prop_assert!(full && last.is_none()),
                            Pushed::Outlived(_) => prop_assert!(false, "no time has passed"),
                        }
                        if !full || last.is_some() {
                            model.push((priority, seq, until));
                            model.sort_unstable();
                        }
                    }
                    Step::Leave(at) => {
                        if let Some(&(priority, seq, _)) = model.get(at % model.len().max(1)) {
                            let room = left.len() < 5;
                            prop_assert_eq!(queue.leave(priority, seq), room && left.insert(seq));
                        }
                    }
                    Step::Pop => {
                        let want = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(queue.pop(after(0)).map(|(_, item)| item), want.map(|(_, seq, _)| seq));
                    }
                    Step::Forget(at) => {
                        if let Some(&(priority, seq, _)) = model.get(at % model.len().max(1)) {
                            prop_assert_eq!(queue.forget(priority, seq), Some(seq));
                            prop_assert_eq!(queue.forget(priority, seq), None);
                            model.retain(|entry| entry.1 != seq);
                        }
                    }
                    Step::Expire(now) => {
                        let mut got = queue.expire(after(now));
                        got.sort_unstable();
                        let mut want: Vec<_> =
                            model.iter().filter(|entry| entry.2 <= now).map(|entry| entry.1).collect();
                        want.sort_unstable();
                        prop_assert_eq!(got, want);
                        model.retain(|entry| entry.2 > now);
                    }
                }
                left.retain(|seq| model.iter().any(|entry| entry.1 == *seq));
                prop_assert_eq!(queue.levels.values().map(|it| it.left).sum::<usize>(), left.len());
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.next_expiry(), model.iter().map(|entry| entry.2).min().map(after));
            }
        }
    }
}
