//! The jobs that this server has of its partitions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use krafka::consumer::{ConsumerRebalanceListener, ConsumerRecord, TopicPartition};
use pronghorn_base::lock;
use pronghorn_queue::Job;

use super::message;
use super::offsets::{Offsets, PartitionKey};

/// The place of a record.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(super) place: PartitionKey,
    pub(super) offset: i64,
}

#[derive(Debug, Default)]
pub(super) struct HeldJobs {
    pub(super) offsets: Offsets,
    /// Given back, or come while none was wanted: the next ones.
    given_back: VecDeque<(Job, Token)>,
    /// Partitions that have come, of which it is not known where they begin.
    new: Vec<PartitionKey>,
}

impl HeldJobs {
    /// A job of a record, unless it was here before.
    pub(super) fn take_in(&mut self, record: &ConsumerRecord) -> Option<(Job, Token)> {
        let place: PartitionKey = (record.topic.clone(), record.partition);
        let offset = record.offset;
        let is_new = self.offsets.brought(&place, offset);
        is_new.then(|| (message::read(record), Token { place, offset }))
    }

    pub(super) fn give_back(&mut self, job: Job, token: Token) {
        self.given_back.push_back((job, token));
    }

    /// Up to so many of those that were given back.
    pub(super) fn take_back(&mut self, most: usize) -> Vec<(Job, Token)> {
        let count = most.min(self.given_back.len());
        self.given_back.drain(..count).collect()
    }

    pub(super) fn waiting(&self) -> u64 {
        self.given_back.len() as u64
    }

    /// Kafka has been told of all that is done, and of where partitions begin.
    pub(super) fn is_settled(&self) -> bool {
        self.new.is_empty() && self.offsets.to_commit().is_empty()
    }

    /// It is not known yet where this partition begins.
    pub(super) fn put_new(&mut self, place: PartitionKey) {
        self.new.push(place);
    }

    /// Partitions that have come since the last call.
    pub(super) fn take_new(&mut self) -> Vec<PartitionKey> {
        std::mem::take(&mut self.new)
    }

    fn welcome(&mut self, partitions: &[TopicPartition]) {
        self.new.extend(partitions.iter().map(place_of));
    }

    fn forget(&mut self, partitions: &[TopicPartition]) {
        for place in partitions.iter().map(place_of) {
            self.offsets.forget(&place);
            self.given_back.retain(|(_, token)| token.place != place);
            self.new.retain(|new| *new != place);
        }
    }
}

fn place_of(partition: &TopicPartition) -> PartitionKey {
    (partition.topic.as_str().into(), partition.partition)
}

/// Hears which partitions are this server's from now on, and which another one's, with their jobs.
pub(super) struct Moves(pub(super) Arc<Mutex<HeldJobs>>);

impl ConsumerRebalanceListener for Moves {
    async fn on_partitions_assigned(&self, partitions: &[TopicPartition]) {
        lock(&self.0).welcome(partitions);
    }

    async fn on_partitions_revoked(&self, partitions: &[TopicPartition]) {
        lock(&self.0).forget(partitions);
    }

    async fn on_partitions_lost(&self, partitions: &[TopicPartition]) {
        lock(&self.0).forget(partitions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn jobs_of_a_partition_that_goes_are_none_of_this_server() {
        let held = Arc::new(Mutex::new(HeldJobs::default()));
        let record = |partition| ConsumerRecord::new("t", partition, 5, None, None);
        for partition in [0, 1] {
            let mut held = lock(&held);
            let (job, token) = held.take_in(&record(partition)).expect("it is new");
            assert!(held.take_in(&record(partition)).is_none());
            held.give_back(job, token);
        }
        let gone = [TopicPartition::new("t", 0)];
        let listener = Moves(held.clone());
        let both = [gone[0].clone(), TopicPartition::new("t", 1)];
        listener.on_partitions_assigned(&both).await;
        listener.on_partitions_revoked(&gone).await;
        let mut held = lock(&held);
        assert_eq!(held.take_new(), [("t".into(), 1)]);
        assert_eq!(held.waiting(), 1);
        let (_, token) = held.take_back(9).remove(0);
        assert_eq!(token.place, ("t".into(), 1));
        assert!(held.take_in(&record(0)).is_some(), "it has come again");
    }
}
