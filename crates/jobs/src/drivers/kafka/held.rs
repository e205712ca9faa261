//! The jobs that this server has of its partitions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use krafka::consumer::{ConsumerRebalanceListener, ConsumerRecord, TopicPartition};
use pronghorn_base::lock;

use super::message;
use super::offsets::{Offsets, Place};
use crate::job::Job;

/// Where a record is.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(super) place: Place,
    pub(super) offset: i64,
}

#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) offsets: Offsets,
    /// Given back, or come while none was wanted: the next ones.
    given_back: VecDeque<(Job, Token)>,
}

impl Held {
    /// A job of a record, unless it was here before.
    pub(super) fn take_in(&mut self, record: &ConsumerRecord) -> Option<(Job, Token)> {
        let place: Place = (record.topic.clone(), record.partition);
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

    fn forget(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            let place: Place = (partition.topic.as_str().into(), partition.partition);
            self.offsets.forget(&place);
            self.given_back.retain(|(_, token)| token.place != place);
        }
    }
}

/// Hears which partitions are another server's from now on, with their jobs.
pub(super) struct Leaving(pub(super) Arc<Mutex<Held>>);

impl ConsumerRebalanceListener for Leaving {
    async fn on_partitions_assigned(&self, _: &[TopicPartition]) {}

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
        let held = Arc::new(Mutex::new(Held::default()));
        let record = |partition| ConsumerRecord::new("t", partition, 5, None, None);
        for partition in [0, 1] {
            let mut held = lock(&held);
            let (job, token) = held.take_in(&record(partition)).expect("it is new");
            assert!(held.take_in(&record(partition)).is_none());
            held.give_back(job, token);
        }
        let gone = [TopicPartition::new("t", 0)];
        let listener = Leaving(held.clone());
        listener.on_partitions_revoked(&gone).await;
        let mut held = lock(&held);
        assert_eq!(held.waiting(), 1);
        let (_, token) = held.take_back(9).remove(0);
        assert_eq!(token.place, ("t".into(), 1));
        assert!(held.take_in(&record(0)).is_some(), "it has come again");
    }
}
