//! Jobs that could run now, by priority.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

/// One in so many goes to another priority than the best one, each of them in turn: however many
/// urgent jobs come, the others go on, and the urgent ones hardly notice.
const SHARE: u32 = 8;

/// A queue for each priority.
#[derive(Debug)]
pub(crate) struct Ready<T> {
    queues: BTreeMap<i64, VecDeque<T>>,
    len: usize,
    /// Taken since one had its turn that was not the best.
    since: u32,
    /// The priority that had the last such turn.
    turn: i64,
}

impl<T> Ready<T> {
    pub(crate) fn new() -> Self {
        Self {
            queues: BTreeMap::new(),
            len: 0,
            since: 0,
            turn: i64::MIN,
        }
    }

    pub(crate) fn push(&mut self, priority: i64, item: T) {
        self.queues.entry(priority).or_default().push_back(item);
        self.len += 1;
    }

    /// Puts one back that was taken.
    pub(crate) fn push_front(&mut self, priority: i64, item: T) {
        self.queues.entry(priority).or_default().push_front(item);
        self.len += 1;
    }

    /// Takes out the first of a priority that is wanted.
    pub(crate) fn remove(&mut self, priority: i64, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let queue = self.queues.get_mut(&priority)?;
        let at = queue.iter().position(wanted)?;
        let item = queue.remove(at);
        if queue.is_empty() {
            self.queues.remove(&priority);
        }
        self.len -= 1;
        item
    }

    /// Takes out all that are wanted.
    pub(crate) fn remove_all(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for queue in self.queues.values_mut() {
            if queue.iter().any(&wanted) {
                let all = std::mem::take(queue).into_iter();
                let (gone, left) = all.partition::<Vec<_>, _>(&wanted);
                removed.extend(gone);
                queue.extend(left);
            }
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        self.len -= removed.len();
        removed
    }

    /// By priority.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.queues.values().flatten()
    }

    /// The next one of each priority.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = &T> {
        self.queues.values().filter_map(VecDeque::front)
    }

    /// The next one of a priority.
    pub(crate) fn front_of(&self, priority: i64) -> Option<&T> {
        self.queues.get(&priority)?.front()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many there are of a priority.
    pub(crate) fn len_of(&self, priority: i64) -> usize {
        self.queues.get(&priority).map_or(0, VecDeque::len)
    }

    /// The best priority of which there is one.
    pub(crate) fn best(&self) -> Option<i64> {
        self.queues.keys().next().copied()
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let best = self.best()?;
        self.since += 1;
        let priority = if self.since >= SHARE {
            self.since = 0;
            self.next_turn(best)
        } else {
            best
        };
        let queue = self.queues.get_mut(&priority)?;
        let item = queue.pop_front();
        if queue.is_empty() {
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
