//! A job as a message of Pub/Sub, with RoadRunner's attributes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pronghorn_queue::{Headers, Job};
use serde::{Deserialize, Serialize};

use crate::broker::attributes::{self, ATTEMPTS, AUTO_ACK, DELAY, HEADERS, ID, NAME, PRIORITY};
use crate::broker::item::{self, UNNAMED, new_id};

const PIPELINE: &str = "rr_pipeline";
/// Ours: the data is the whole job, as JSON.
const CODING: &str = "pronghorn_coding";

/// The value of an attribute has so many bytes at most.
const LONGEST_VALUE: usize = 1024;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    /// The bytes are in base64.
    data: String,
    attributes: BTreeMap<String, String>,
}

pub(super) fn write(job: &Job, pipeline: &str) -> Message {
    let headers = serde_json::to_string(&job.headers).expect("texts can be written");
    let mut attributes = BTreeMap::from(
        [
            (ID, job.id.clone()),
            (NAME, job.name.clone()),
            (PIPELINE, pipeline.to_owned()),
            (HEADERS, headers),
            (PRIORITY, job.priority.to_string()),
            (DELAY, job.delay.as_secs().to_string()),
            (AUTO_ACK, job.auto_ack.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    if job.attempts > 0 {
        attributes.insert(ATTEMPTS.to_owned(), job.attempts.to_string());
    }
    if attributes.values().any(|value| value.len() > LONGEST_VALUE) {
        return Message {
            data: STANDARD.encode(item::write(job, pipeline, None)),
            attributes: BTreeMap::from([(CODING.to_owned(), "item".to_owned())]),
        };
    }
    Message {
        data: STANDARD.encode(&job.payload),
        attributes,
    }
}

/// A message that somebody else has published is a job, too.
pub(super) fn read(message: &Message) -> Job {
    let text = |name: &str| message.attributes.get(name).map(String::as_str);
    let data = STANDARD.decode(&message.data).map_or_else(
        |_| Bytes::copy_from_slice(message.data.as_bytes()),
        Bytes::from,
    );
    if text(CODING) == Some("item") {
        return item::read(&data, Headers::new).0;
    }
    if text(NAME).is_none() {
        let headers = message.attributes.iter();
        return Job {
            id: new_id(),
            name: UNNAMED.to_owned(),
            payload: data,
            headers: headers
                .map(|(name, value)| (name.clone(), vec![value.clone()]))
                .collect(),
            ..Job::default()
        };
    }
    let headers = text(HEADERS).and_then(|json| serde_json::from_str(json).ok()?);
    attributes::job(text, headers, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        for value in ["b".to_owned(), "b".repeat(5000)] {
            let job = Job {
                id: "1".to_owned(),
                name: "App\\Job".to_owned(),
                payload: Bytes::from_static(&[0, 255]),
                headers: Headers::from([("a".to_owned(), vec![value])]),
                priority: -3,
                auto_ack: true,
                attempts: 2,
                ..Job::default()
            };
            let message = write(&job, "p");
            let values = message.attributes.values();
            assert!(values.map(String::len).all(|it| it <= LONGEST_VALUE));
            assert_eq!(read(&message), job);
        }
    }

    #[test]
    fn a_message_of_somebody_else_is_a_job() {
        let message = Message {
            data: STANDARD.encode("hello"),
            attributes: BTreeMap::from([("x".to_owned(), "y".to_owned())]),
        };
        let job = read(&message);
        assert_eq!((&*job.name, &job.payload[..]), (UNNAMED, &b"hello"[..]));
        assert_eq!(job.headers["x"], ["y"]);
    }
}
