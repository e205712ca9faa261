//! How jobs lie in the store.
//!
//! Keys sort as jobs are wanted: `pipeline 0 'r' priority number` for those that are ready,
//! `pipeline 0 'w' priority due number` for those that wait for their time. A job that expires has
//! an entry beside them, `pipeline 0 time number`, with its key.
//!
//! Older versions wrote `pipeline 0 'd' due number` for all priorities. Those keys are read, and
//! leave with their jobs.

use std::time::Duration;

use pronghorn_base::millis;
use pronghorn_store::{Failed, Transaction, Tree};
use prost::Message;

use crate::job::{Headers, Job, LONGEST_DELAY};

/// Pipelines with their counts.
pub(super) const PIPELINES: Tree = Tree::new("jobs.pipelines");

/// Where a job is in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) kind: Kind,
    pub(super) number: u64,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ready {
        priority: i64,
    },
    Delayed {
        lane: Lane,
        /// In milliseconds since 1970.
        due: u64,
    },
}

/// Jobs that wait for their time and lie together, in the order of their times: those of one
/// priority, or all that an older version has written.
pub(super) type Lane = Option<i64>;

const READY: u8 = b'r';
const WAITS: u8 = b'w';
const DELAYED_ONCE: u8 = b'd';

impl Key {
    pub(super) fn ready(pipeline: &str, priority: i64, number: u64) -> Self {
        let kind = Kind::Ready { priority };
        Self::new(pipeline, READY, kind, &[order_of(priority), number])
    }

    pub(super) fn delayed(pipeline: &str, lane: Lane, due: u64, number: u64) -> Self {
        let kind = Kind::Delayed { lane, due };
        match lane {
            Some(priority) => Self::new(pipeline, WAITS, kind, &[order_of(priority), due, number]),
            None => Self::new(pipeline, DELAYED_ONCE, kind, &[due, number]),
        }
    }

    /// The last of the numbers is that of the job.
    fn new(pipeline: &str, letter: u8, kind: Kind, numbers: &[u64]) -> Self {
        let mut bytes = Vec::with_capacity(pipeline.len() + 2 + 8 * numbers.len());
        bytes.extend_from_slice(pipeline.as_bytes());
        bytes.extend_from_slice(&[0, letter]);
        for number in numbers {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        Self {
            kind,
            number: numbers.last().copied().unwrap_or_default(),
            bytes,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// None for what is no key of this pipeline.
    pub(super) fn parse(pipeline: &str, bytes: &[u8]) -> Option<Self> {
        let behind = bytes.strip_prefix(pipeline.as_bytes())?;
        let (letter, behind) = behind.strip_prefix(&[0])?.split_first()?;
        let (numbers, rest) = behind.as_chunks::<8>();
        let (kind, number) = match (*letter, numbers, rest) {
            (READY, [order, number], []) => {
                let priority = priority_of(u64::from_be_bytes(*order));
                (Kind::Ready { priority }, number)
            }
            (WAITS, [order, due, number], []) => {
                let lane = Some(priority_of(u64::from_be_bytes(*order)));
                let due = u64::from_be_bytes(*due);
                (Kind::Delayed { lane, due }, number)
            }
            (DELAYED_ONCE, [due, number], []) => {
                let (lane, due) = (None, u64::from_be_bytes(*due));
                (Kind::Delayed { lane, due }, number)
            }
            _ => return None,
        };
        let number = u64::from_be_bytes(*number);
        let bytes = bytes.to_vec();
        Some(Self {
            kind,
            number,
            bytes,
        })
    }
}

/// The sign turned round, so that bytes sort as numbers do.
const fn order_of(priority: i64) -> u64 {
    priority.cast_unsigned() ^ (1 << 63)
}

const fn priority_of(order: u64) -> i64 {
    (order ^ (1 << 63)).cast_signed()
}

/// Where the key of a job stands that expires then, in milliseconds since 1970.
pub(super) fn expiry_key(pipeline: &str, at: u64, number: u64) -> Vec<u8> {
    let (at, number) = (at.to_be_bytes(), number.to_be_bytes());
    [pipeline.as_bytes(), &[0], &at, &number].concat()
}

/// The time in such a key. None for what is none of this pipeline.
pub(super) fn expiry_of(pipeline: &str, bytes: &[u8]) -> Option<u64> {
    let behind = bytes.strip_prefix(pipeline.as_bytes())?;
    let (at, _number) = behind.strip_prefix(&[0])?.split_first_chunk::<8>()?;
    Some(u64::from_be_bytes(*at))
}

/// The counts of a pipeline, and the number of its next job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) ready: u64,
    pub(super) delayed: u64,
    /// From 1 on: 0 is in front of all jobs.
    next: u64,
    /// The size of the jobs, as of [`Job::size`]. A release before has not counted it.
    pub(super) bytes: u64,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            ready: 0,
            delayed: 0,
            next: 1,
            bytes: 0,
        }
    }
}

/// The bytes of a record.
pub(super) const LENGTH: usize = 32;

impl Record {
    pub(super) fn read(transaction: &mut Transaction<'_>, pipeline: &str) -> Result<Self, Failed> {
        let bytes = transaction.get(PIPELINES, pipeline.as_bytes())?;
        Ok(Self::decode(&bytes.unwrap_or_default()))
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let mut numbers = bytes.chunks_exact(8).map(|number| {
            let number = number.try_into().expect("chunks have eight bytes");
            u64::from_be_bytes(number)
        });
        let mut next = || numbers.next().unwrap_or(0);
        Self {
            ready: next(),
            delayed: next(),
            next: next().max(Self::default().next),
            bytes: next(),
        }
    }

    pub(super) fn write(
        self,
        transaction: &mut Transaction<'_>,
        pipeline: &str,
    ) -> Result<(), Failed> {
        let numbers = [self.ready, self.delayed, self.next, self.bytes];
        let bytes = numbers.map(u64::to_be_bytes).concat();
        transaction.put(PIPELINES, pipeline.as_bytes(), &bytes)
    }

    /// Gives a job its key.
    pub(super) fn add(&mut self, pipeline: &str, job: &Job, now: u64) -> Key {
        let number = self.next;
        self.next += 1;
        self.bytes = self.bytes.saturating_add(job.size());
        if job.delay.is_zero() {
            self.ready += 1;
            return Key::ready(pipeline, job.priority, number);
        }
        self.delayed += 1;
        // A millisecond of `now` has begun, and no job comes early.
        let due = now.saturating_add(millis(job.delay.min(LONGEST_DELAY)) + 1);
        Key::delayed(pipeline, Some(job.priority), due, number)
    }

    pub(super) fn remove(&mut self, kind: &Kind, job: &Job) {
        let count = match kind {
            Kind::Ready { .. } => &mut self.ready,
            Kind::Delayed { .. } => &mut self.delayed,
        };
        *count = count.saturating_sub(1);
        let is_empty = self.ready + self.delayed == 0;
        let bytes = self.bytes.saturating_sub(job.size());
        self.bytes = if is_empty { 0 } else { bytes };
    }
}

/// A job as it is written. Fields may be added; numbers are never used again.
#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(bytes = "bytes", tag = "3")]
    payload: bytes::Bytes,
    #[prost(message, repeated, tag = "4")]
    headers: Vec<StoredHeader>,
    #[prost(int64, tag = "5")]
    priority: i64,
    #[prost(bool, tag = "6")]
    auto_ack: bool,
    #[prost(uint32, tag = "7")]
    attempts: u32,
    /// Since when it can run, in milliseconds since 1970; 0 where nobody has noted it.
    #[prost(uint64, tag = "8")]
    since: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StoredHeader {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    values: Vec<String>,
}

/// A job as bytes that [`decode`] reads, of this version or a later one.
pub fn encode(job: &Job) -> Vec<u8> {
    encode_since(job, 0)
}

/// With the time from which on it can run, in milliseconds since 1970.
pub(super) fn encode_since(job: &Job, since: u64) -> Vec<u8> {
    let header = |(name, values): (&String, &Vec<String>)| StoredHeader {
        name: name.clone(),
        values: values.clone(),
    };
    let stored = Stored {
        id: job.id.clone(),
        name: job.name.clone(),
        payload: job.payload.clone(),
        headers: job.headers.iter().map(header).collect(),
        priority: job.priority,
        auto_ack: job.auto_ack,
        attempts: job.attempts,
        since,
    };
    stored.encode_to_vec()
}

/// Bytes that can't be read as a job, after somebody wrote to the file, is the payload of one
/// without a name: a handler sees it, and the pipeline goes on.
pub fn decode(bytes: &[u8]) -> Job {
    decode_since(bytes).0
}

/// With the time that was noted, or 0.
pub(super) fn decode_since(bytes: &[u8]) -> (Job, u64) {
    let Ok(stored) = Stored::decode(bytes) else {
        let job = Job {
            payload: bytes::Bytes::copy_from_slice(bytes),
            ..Job::default()
        };
        return (job, 0);
    };
    let headers = stored.headers.into_iter();
    let job = Job {
        id: stored.id,
        name: stored.name,
        payload: stored.payload,
        headers: headers
            .map(|header| (header.name, header.values))
            .collect::<Headers>(),
        priority: stored.priority,
        delay: Duration::ZERO,
        auto_ack: stored.auto_ack,
        attempts: stored.attempts,
    };
    (job, stored.since)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_sort_as_jobs_are_wanted(
            a in (any::<i64>(), any::<u64>()),
            b in (any::<i64>(), any::<u64>()),
        ) {
            let key = |(priority, number)| Key::ready("p", priority, number);
            prop_assert_eq!(a.cmp(&b), key(a).bytes().cmp(key(b).bytes()));
            prop_assert_eq!(Key::parse("p", key(a).bytes()), Some(key(a)));
            prop_assert_eq!(Key::parse("q", key(a).bytes()), None);
            for lane in [Some(a.0), None] {
                let delayed = Key::delayed("p", lane, a.1, b.1);
                prop_assert_eq!(Key::parse("p", delayed.bytes()), Some(delayed.clone()));
                let later = Key::delayed("p", lane, a.1.saturating_add(1), b.1);
                prop_assert!(delayed.bytes() <= later.bytes());
            }
        }

        #[test]
        fn any_bytes_are_read_as_a_job(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            decode(&bytes);
        }
    }

    #[test]
    fn a_pipeline_whose_name_begins_as_another_one_has_keys_of_its_own() {
        let key = Key::ready("mail", 10, 1);
        assert_eq!(Key::parse("mai", key.bytes()), None);
        assert_eq!(Key::parse("mails", key.bytes()), None);
    }
}
