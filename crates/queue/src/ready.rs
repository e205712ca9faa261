//! Jobs that could run now, by priority.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// One job in this many is of another priority, or of another pipeline, than the best one, each in
/// turn: however many urgent jobs come, the others go on, and the urgent ones hardly notice.
pub const SHARE: u32 = 8;

/// Queues for each priority.
#[derive(Debug)]
pub struct Ready<T> {
    queues: BTreeMap<i64, Queue<T>>,
    len: usize,
    /// Taken since one had its turn that was not the best.
    since: u32,
    /// The priority that had the last such turn.
    turn: i64,
}

/// The jobs of one priority. Jobs that had to wait for their time take turns with the others: a
/// long backlog does not make them late, and many of them do not stop it.
#[derive(Debug)]
struct Queue<T> {
    /// They were taken already, and go first.
    put_back: VecDeque<T>,
    in_order: VecDeque<T>,
    due: VecDeque<T>,
    had_due: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            put_back: VecDeque::new(),
            in_order: VecDeque::new(),
            due: VecDeque::new(),
            had_due: false,
        }
    }
}

impl<T> Queue<T> {
    fn pop(&mut self) -> Option<T> {
        if let Some(item) = self.put_back.pop_front() {
            return Some(item);
        }
        let is_due = !self.due.is_empty() && (self.in_order.is_empty() || !self.had_due);
        self.had_due = is_due;
        if is_due {
            self.due.pop_front()
        } else {
            self.in_order.pop_front()
        }
    }

    fn lanes(&mut self) -> [&mut VecDeque<T>; 3] {
        [&mut self.put_back, &mut self.due, &mut self.in_order]
    }

    fn iter(&self) -> impl Iterator<Item = &T> {
        self.put_back.iter().chain(&self.due).chain(&self.in_order)
    }

    fn fronts(&self) -> impl Iterator<Item = &T> {
        let lanes = [&self.put_back, &self.due, &self.in_order];
        lanes.into_iter().filter_map(VecDeque::front)
    }

    fn len(&self) -> usize {
        self.put_back.len() + self.due.len() + self.in_order.len()
    }
}

impl<T> Default for Ready<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Ready<T> {
    /// None.
    pub fn new() -> Self {
        Self {
            queues: BTreeMap::new(),
            len: 0,
            since: 0,
            turn: i64::MIN,
        }
    }

    /// Adds one behind those of its priority.
    pub fn push(&mut self, priority: i64, item: T) {
        self.queue(priority).in_order.push_back(item);
    }

    /// Adds one that had to wait for its time.
    pub(crate) fn push_due(&mut self, priority: i64, item: T) {
        self.queue(priority).due.push_back(item);
    }

    /// Puts one back that was taken: it is the next one of its priority.
    pub fn push_front(&mut self, priority: i64, item: T) {
        self.queue(priority).put_back.push_front(item);
    }

    /// For one more.
    fn queue(&mut self, priority: i64) -> &mut Queue<T> {
        self.len += 1;
        self.queues.entry(priority).or_default()
    }

    /// Takes out the first of a priority that is wanted.
    pub(crate) fn remove(&mut self, priority: i64, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let queue = self.queues.get_mut(&priority)?;
        let item = queue.lanes().into_iter().find_map(|lane| {
            let at = lane.iter().position(&wanted)?;
            lane.remove(at)
        })?;
        if queue.len() == 0 {
            self.queues.remove(&priority);
        }
        self.len -= 1;
        Some(item)
    }

    /// Takes out all that are wanted.
    pub(crate) fn remove_all(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for lane in self.queues.values_mut().flat_map(Queue::lanes) {
            if lane.iter().any(&wanted) {
                let all = std::mem::take(lane).into_iter();
                let (gone, left) = all.partition::<Vec<_>, _>(&wanted);
                removed.extend(gone);
                lane.extend(left);
            }
        }
        self.queues.retain(|_, queue| queue.len() > 0);
        self.len -= removed.len();
        removed
    }

    /// By priority.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.queues.values().flat_map(Queue::iter)
    }

    /// The next ones of each priority.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = &T> {
        self.queues.values().flat_map(Queue::fronts)
    }

    /// The next one of a priority among those that were ready at once.
    pub(crate) fn front_of(&self, priority: i64) -> Option<&T> {
        self.queues.get(&priority)?.in_order.front()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many there are of a priority.
    pub(crate) fn len_of(&self, priority: i64) -> usize {
        self.queues.get(&priority).map_or(0, Queue::len)
    }

    /// How many of them are due.
    pub(crate) fn due_of(&self, priority: i64) -> usize {
        self.queues.get(&priority).map_or(0, |it| it.due.len())
    }

    /// The best priority of which there is one.
    pub fn best(&self) -> Option<i64> {
        self.queues.keys().next().copied()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the next one: mostly of the best priority, and now and then of another.
    pub fn pop(&mut self) -> Option<T> {
        let best = self.best()?;
        self.since += 1;
        let priority = if self.since >= SHARE {
            self.since = 0;
            self.next_turn(best)
        } else {
            best
        };
        let queue = self.queues.get_mut(&priority)?;
        let item = queue.pop();
        if queue.len() == 0 {
            self.queues.remove(&priority);
        }
        self.len -= 1;
        item
    }

    /// The priority behind the one that had the last turn; from the first again after the last.
    fn next_turn(&mut self, best: i64) -> i64 {
        let behind = (Bound::Excluded(self.turn.max(best)), Bound::Unbounded);
        let next = self.queues.range(behind).next();
        let behind_best = (Bound::Excluded(best), Bound::Unbounded);
        let next = next.or_else(|| self.queues.range(behind_best).next());
        self.turn = next.map_or(best, |(priority, _)| *priority);
        self.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_goes_first_and_equals_in_their_order() {
        let mut ready = Ready::new();
        for (priority, name) in [(10, "a"), (5, "b"), (10, "c"), (-1, "d"), (5, "e")] {
            ready.push(priority, name);
        }
        assert_eq!(ready.best(), Some(-1));
        let all: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(all, ["d", "b", "e", "a", "c"]);
        assert_eq!((ready.len(), ready.best()), (0, None));
    }

    #[test]
    fn no_priority_starves_and_the_best_one_has_nearly_all() {
        let mut ready = Ready::new();
        for priority in 1..=4 {
            for _ in 0..1000 {
                ready.push(priority, priority);
            }
        }
        let mut taken = [0; 5];
        for _ in 0..800 {
            let priority = ready.pop().unwrap();
            taken[usize::try_from(priority).unwrap()] += 1;
            ready.push(priority, priority);
        }
        assert_eq!(taken[1], 700);
        for share in &taken[2..] {
            assert!((33..=34).contains(share), "{taken:?}");
        }
    }

    #[test]
    fn one_that_is_put_back_is_the_next() {
        let mut ready = Ready::new();
        ready.push(1, "a");
        ready.push(1, "b");
        let first = ready.pop().unwrap();
        ready.push_front(1, first);
        assert_eq!((ready.pop(), ready.pop()), (Some("a"), Some("b")));
        assert_eq!(ready.len_of(1), 0);
    }

    #[test]
    fn those_that_are_due_take_turns_with_a_backlog() {
        let mut ready = Ready::new();
        for number in 0..4 {
            ready.push(1, format!("backlog {number}"));
        }
        for number in 0..3 {
            ready.push_due(1, format!("due {number}"));
        }
        let all: Vec<_> = std::iter::from_fn(|| ready.pop()).collect();
        let expected = "due 0, backlog 0, due 1, backlog 1, due 2, backlog 2, backlog 3";
        assert_eq!(all.join(", "), expected);
    }

    #[test]
    fn one_or_all_that_are_wanted_are_taken_out() {
        let mut ready = Ready::new();
        for (priority, name) in [(1, "a"), (1, "b"), (2, "a"), (2, "c")] {
            ready.push(priority, name);
        }
        assert_eq!(ready.remove(1, |it| *it == "c"), None);
        assert_eq!(ready.remove(2, |it| *it == "c"), Some("c"));
        assert_eq!(ready.remove_all(|it| *it == "a"), ["a", "a"]);
        assert_eq!((ready.len(), ready.best()), (1, Some(1)));
        assert_eq!((ready.pop(), ready.best()), (Some("b"), None));
    }
}
