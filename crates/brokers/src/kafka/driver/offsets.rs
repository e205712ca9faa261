//! Which records of partitions are done: Kafka keeps one number for each partition, up to which all
//! are. Knows no Kafka.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A topic, and a partition of it.
pub(super) type PartitionKey = (Arc<str>, i32);

#[derive(Debug, Default)]
pub(super) struct Offsets {
    places: HashMap<PartitionKey, Partition>,
}

#[derive(Debug, Default)]
struct Partition {
    /// Brought and not done.
    out: BTreeSet<i64>,
    /// The place behind the last one that was brought.
    next: i64,
    /// The number that Kafka has.
    committed: Option<i64>,
}

impl Offsets {
    /// A record was brought. False: it is one that was here before.
    pub(super) fn brought(&mut self, place: &PartitionKey, offset: i64) -> bool {
        let partition = self.places.entry(place.clone()).or_default();
        if offset < partition.next {
            return false;
        }
        partition.next = offset + 1;
        partition.out.insert(offset)
    }

    /// A partition has come, and `next` is what this server gets of it first.
    pub(super) fn begin(&mut self, place: &PartitionKey, next: i64) {
        self.places
            .entry(place.clone())
            .or_insert_with(|| Partition {
                next,
                ..Partition::default()
            });
    }

    /// A record is done. False: it was not out.
    pub(super) fn done(&mut self, place: &PartitionKey, offset: i64) -> bool {
        let partition = self.places.get_mut(place);
        partition.is_some_and(|partition| partition.out.remove(&offset))
    }

    pub(super) fn is_out(&self, place: &PartitionKey, offset: i64) -> bool {
        let partition = self.places.get(place);
        partition.is_some_and(|partition| partition.out.contains(&offset))
    }

    /// The numbers that Kafka is to be told.
    pub(super) fn to_commit(&self) -> BTreeMap<PartitionKey, i64> {
        let all = self.places.iter().filter_map(|(place, partition)| {
            let up_to = partition.out.first().copied().unwrap_or(partition.next);
            let is_new = partition.committed.is_none_or(|known| known < up_to);
            is_new.then(|| (place.clone(), up_to))
        });
        all.collect()
    }

    pub(super) fn committed(&mut self, told: &BTreeMap<PartitionKey, i64>) {
        for (place, up_to) in told {
            if let Some(partition) = self.places.get_mut(place) {
                partition.committed = Some(*up_to);
            }
        }
    }

    /// A partition is another server's now.
    pub(super) fn forget(&mut self, place: &PartitionKey) {
        self.places.remove(place);
    }

    /// The place behind the last record that was brought.
    pub(super) fn next(&self, place: &PartitionKey) -> Option<i64> {
        self.places.get(place).map(|partition| partition.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_done_up_to_the_first_record_that_is_not() {
        let place: PartitionKey = ("t".into(), 0);
        let mut offsets = Offsets::default();
        for offset in [5, 6, 9] {
            assert!(offsets.brought(&place, offset));
        }
        assert!(!offsets.brought(&place, 6), "it was here before");
        let told = |up_to| BTreeMap::from([(place.clone(), up_to)]);
        assert!(offsets.done(&place, 6) && !offsets.done(&place, 6));
        assert_eq!(offsets.to_commit(), told(5));
        offsets.committed(&told(5));
        assert!(offsets.to_commit().is_empty());
        offsets.done(&place, 5);
        assert_eq!(offsets.to_commit(), told(9));
        offsets.done(&place, 9);
        assert_eq!(
            (offsets.to_commit(), offsets.next(&place)),
            (told(10), Some(10))
        );
        offsets.forget(&place);
        assert!(!offsets.done(&place, 9) && offsets.next(&place).is_none());
    }

    #[test]
    fn kafka_is_told_where_a_partition_begins_before_anything_is_brought_of_it() {
        let place: PartitionKey = ("t".into(), 0);
        let mut offsets = Offsets::default();
        offsets.begin(&place, 7);
        assert_eq!(offsets.to_commit(), BTreeMap::from([(place.clone(), 7)]));
        offsets.brought(&place, 7);
        offsets.begin(&place, 8);
        assert_eq!(offsets.to_commit(), BTreeMap::from([(place, 7)]));
    }
}
