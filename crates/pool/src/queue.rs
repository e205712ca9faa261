//! Calls that wait for a worker: bounded, first in first out within a priority, each with the moment it gives up.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

/// A queue with an end. Lower priorities go first.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// Within a level, ascending by sequence number. An entry that was taken out stays as a hole until it is in front.
    levels: BTreeMap<u8, VecDeque<Waiting<T>>>,
    len: usize,
    limit: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    seq: u64,
    until: Instant,
    item: Option<T>,
}

impl<T> Queue<T> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            levels: BTreeMap::new(),
            len: 0,
            limit,
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds an item behind all with a lower number of its priority. Gives it back when the queue is full.
    ///
    /// Numbers rise, so this is the end, but for an item that comes back: it returns to its old place.
    pub(crate) fn push(
        &mut self,
        priority: u8,
        seq: u64,
        until: Instant,
        item: T,
    ) -> Result<(), T> {
        if self.len >= self.limit {
            return Err(item);
        }
        let level = self.levels.entry(priority).or_default();
        let place = level.partition_point(|waiting| waiting.seq < seq);
        level.insert(
            place,
            Waiting {
                seq,
                until,
                item: Some(item),
            },
        );
        self.len += 1;
        Ok(())
    }

    /// The next item and the moment it would have given up.
    pub(crate) fn pop(&mut self) -> Option<(Instant, T)> {
        for level in self.levels.values_mut() {
            while let Some(waiting) = level.pop_front() {
                if let Some(item) = waiting.item {
                    self.len -= 1;
                    return Some((waiting.until, item));
                }
            }
        }
        None
    }

    /// Takes an item out of the middle, if it is still there.
    pub(crate) fn forget(&mut self, priority: u8, seq: u64) -> Option<T> {
        let level = self.levels.get_mut(&priority)?;
        let place = level
            .binary_search_by_key(&seq, |waiting| waiting.seq)
            .ok()?;
        let item = level.get_mut(place)?.item.take()?;
        self.len -= 1;
        Self::drop_holes(level);
        Some(item)
    }

    /// Takes out every item whose moment has come.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<T> {
        let mut expired = Vec::new();
        for level in self.levels.values_mut() {
            for waiting in level.iter_mut().filter(|waiting| waiting.until <= now) {
                expired.extend(waiting.item.take());
            }
            Self::drop_holes(level);
        }
        self.len -= expired.len();
        expired
    }

    /// The first moment at which an item gives up.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        let waiting = self.levels.values().flatten();
        waiting
            .filter(|waiting| waiting.item.is_some())
            .map(|waiting| waiting.until)
            .min()
    }

    /// Takes out everything.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.len = 0;
        let levels = std::mem::take(&mut self.levels);
        levels
            .into_values()
            .flatten()
            .filter_map(|waiting| waiting.item)
            .collect()
    }

    /// Without this a queue whose calls all leave would only grow.
    fn drop_holes(level: &mut VecDeque<Waiting<T>>) {
        while level.front().is_some_and(|waiting| waiting.item.is_none()) {
            level.pop_front();
        }
        while level.back().is_some_and(|waiting| waiting.item.is_none()) {
            level.pop_back();
        }
        // Holes in the middle: when they are the larger part, pay once to be rid of them.
        let holes = level
            .iter()
            .filter(|waiting| waiting.item.is_none())
            .count();
        if holes > 64 && holes > level.len() / 2 {
            level.retain(|waiting| waiting.item.is_some());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn after(seconds: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn first_in_first_out_and_lower_priorities_first() {
        let mut queue = Queue::new(10);
        for (seq, priority) in [(1, 10), (2, 10), (3, 1), (4, 10)] {
            queue.push(priority, seq, after(1), seq).unwrap();
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|(_, item)| item)
            .collect();
        assert_eq!(order, [3, 1, 2, 4]);
    }

    #[test]
    fn a_full_queue_gives_the_item_back() {
        let mut queue = Queue::new(1);
        queue.push(10, 1, after(1), 'a').unwrap();
        assert_eq!(queue.push(10, 2, after(1), 'b'), Err('b'));
        assert_eq!(queue.forget(10, 1), Some('a'));
        queue.push(10, 3, after(1), 'c').unwrap();
    }

    #[test]
    fn an_item_that_comes_back_returns_to_its_place() {
        let mut queue = Queue::new(10);
        for seq in [1, 2, 3] {
            queue.push(10, seq, after(1), seq).unwrap();
        }
        let (until, first) = queue.pop().unwrap();
        queue.push(10, 1, until, first).unwrap();
        assert_eq!(queue.pop().unwrap().1, 1);
    }

    #[test]
    fn expired_items_come_out_whatever_their_place() {
        let mut queue = Queue::new(10);
        queue.push(10, 1, after(5), 1).unwrap();
        queue.push(10, 2, after(1), 2).unwrap();
        queue.push(5, 3, after(2), 3).unwrap();
        assert_eq!(queue.next_expiry(), Some(after(1)));
        assert_eq!(queue.expire(after(2)), [3, 2]);
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.next_expiry(), Some(after(5)));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u8),
        Pop,
        Forget(usize),
        Expire(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..3_u8).prop_map(Step::Push),
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
            let mut queue = Queue::new(20);
            let mut model: Vec<(u8, u64, u64)> = Vec::new();
            for (seq, step) in (0_u64..).zip(steps) {
                match step {
                    Step::Push(priority) => {
                        let until = (seq * 7) % 40;
                        let pushed = queue.push(priority, seq, after(until), seq).is_ok();
                        prop_assert_eq!(pushed, model.len() < 20);
                        if pushed {
                            model.push((priority, seq, until));
                            model.sort_unstable();
                        }
                    }
                    Step::Pop => {
                        let want = (!model.is_empty()).then(|| model.remove(0));
                        prop_assert_eq!(queue.pop().map(|(_, item)| item), want.map(|(_, seq, _)| seq));
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
                prop_assert_eq!(queue.len(), model.len());
                prop_assert_eq!(queue.next_expiry(), model.iter().map(|entry| entry.2).min().map(after));
            }
        }
    }
}
