//! A job as a record of Kafka, with RoadRunner's headers.

use bytes::Bytes;
use krafka::consumer::ConsumerRecord;
use krafka::producer::Record;
use pronghorn_queue::options::{self, LogPlace};
use pronghorn_queue::{Headers, Job};

use crate::broker::item::{UNNAMED, new_id};

const NAME: &str = "rr_job";
const PIPELINE: &str = "rr_pipeline";
/// Eight bytes, the lowest first.
const PRIORITY: &str = "rr_priority";
/// Ours: how often the job has failed.
const ATTEMPTS: &str = "pronghorn_attempts";
/// Ours: all headers, where one of them has not one value.
const HEADERS: &str = "pronghorn_headers";
/// Ours: it is there where it is so.
const AUTO_ACK: &str = "pronghorn_auto_ack";

/// `topic` is that of jobs that name none.
pub(super) fn write(job: &Job, pipeline: &str, topic: &str) -> Record {
    let mut headers = job.headers.clone();
    let (named, partition) = options::take_topic(&mut headers);
    let mut record = Record::new(named.as_deref().unwrap_or(topic), job.payload.clone())
        .key(job.id.clone())
        .header(NAME, job.name.clone())
        .header(PIPELINE, pipeline.to_owned())
        .header(
            PRIORITY,
            Bytes::copy_from_slice(&job.priority.to_le_bytes()),
        );
    if let Some(partition) = partition {
        record = record.partition(partition);
    }
    if job.attempts > 0 {
        record = record.header(ATTEMPTS, job.attempts.to_string());
    }
    if job.auto_ack {
        record = record.header(AUTO_ACK, "1");
    }
    let is_plain = |(name, values): (&String, &Vec<String>)| values.len() == 1 && !is_ours(name);
    if !headers.iter().all(is_plain) {
        let json = serde_json::to_vec(&headers).expect("texts can be written");
        record = record.header(HEADERS, json);
    }
    for (name, values) in headers {
        if let Some(value) = values.into_iter().next() {
            record = record.header(name, value);
        }
    }
    record
}

fn is_ours(name: &str) -> bool {
    name.starts_with("rr_") || name.starts_with("pronghorn_")
}

/// A record that somebody else has pushed is a job, too.
pub(super) fn read(record: &ConsumerRecord) -> Job {
    let find = |name: &str| {
        let mut all = record.headers.iter();
        all.find(|(known, _)| known == name)?.1.as_ref()
    };
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let name = find(NAME).map(text);
    let all = find(HEADERS).and_then(|json| serde_json::from_slice::<Headers>(json).ok());
    let mut headers = all.unwrap_or_else(|| {
        let theirs = record.headers.iter().filter(|(name, _)| !is_ours(name));
        let theirs = theirs.map(|(name, value)| {
            let value = value.as_ref().map(text).unwrap_or_default();
            (name.clone(), vec![value])
        });
        theirs.collect()
    });
    let place = LogPlace {
        topic: record.topic.to_string(),
        partition: record.partition,
        offset: record.offset,
    };
    options::put_place(&mut headers, &place);
    let number = |bytes: &Bytes| <[u8; 8]>::try_from(&bytes[..]).ok().map(i64::from_le_bytes);
    let attempts = find(ATTEMPTS).and_then(|it| text(it).parse().ok());
    let key = record.key.as_ref().map(text);
    Job {
        id: match (&name, key) {
            (Some(_), Some(key)) => key,
            _ => new_id(),
        },
        name: name.unwrap_or_else(|| UNNAMED.to_owned()),
        payload: record.value.clone().unwrap_or_default(),
        headers,
        priority: find(PRIORITY).and_then(number).unwrap_or_default(),
        delay: std::time::Duration::ZERO,
        auto_ack: find(AUTO_ACK).is_some(),
        attempts: attempts.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(record: Record) -> ConsumerRecord {
        let mut read = ConsumerRecord::new(record.topic, 3, 7, record.key, record.value);
        read.headers = record.headers;
        read
    }

    #[test]
    fn a_job_is_read_as_it_was_written() {
        for values in [vec!["1"], vec!["1", "2"], vec![]] {
            let values: Vec<_> = values.into_iter().map(ToOwned::to_owned).collect();
            let job = Job {
                id: "1".to_owned(),
                name: "App\\Job".to_owned(),
                payload: Bytes::from_static(&[0, 255]),
                headers: Headers::from([("a".to_owned(), values)]),
                priority: i64::MIN,
                auto_ack: true,
                attempts: 2,
                ..Job::default()
            };
            let record = write(&job, "p", "t");
            assert_eq!(record.topic, "t");
            let mut read = read(&sent(record));
            let place = options::place(&read.headers).expect("it is from there");
            assert_eq!((&*place.topic, place.partition, place.offset), ("t", 3, 7));
            options::take_topic(&mut read.headers);
            assert_eq!(read, job);
        }
    }

    #[test]
    fn a_record_of_somebody_else_is_a_job() {
        let job = read(&sent(Record::new("t", "hello").key("k").header("x", "y")));
        assert_eq!((&*job.name, &job.payload[..]), (UNNAMED, &b"hello"[..]));
        assert_eq!(
            (job.id.len(), &*job.headers["x"]),
            (32, &["y".to_owned()][..])
        );
    }
}
