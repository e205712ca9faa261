//! A job as RoadRunner writes it into brokers whose messages are bytes alone: JSON.

use std::time::Duration;

use bytes::Bytes;
use pronghorn_queue::{Headers, Job};
use serde::{Deserialize, Serialize};

/// RoadRunner's name of a job that somebody else has pushed.
pub(crate) const UNNAMED: &str = "deduced_by_rr";

/// A new ID, of a job that somebody else has pushed.
pub(crate) fn new_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Names are RoadRunner's, but for what is marked.
#[derive(Deserialize, Serialize)]
struct Item {
    job: String,
    id: String,
    #[serde(default, with = "base64_bytes")]
    payload: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    headers: Option<Headers>,
    #[serde(default)]
    options: Options,
    /// Ours: how often the job has failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pronghorn_attempts: u32,
    /// Ours: when it is due, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pronghorn_due: Option<u64>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Options {
    priority: i64,
    pipeline: String,
    /// It is in seconds.
    delay: u64,
    auto_ack: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes what it is")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A job as JSON; `due` is of one that waits.
pub(crate) fn write(job: &Job, pipeline: &str, due: Option<u64>) -> Vec<u8> {
    let item = Item {
        job: job.name.clone(),
        id: job.id.clone(),
        payload: job.payload.clone(),
        headers: Some(job.headers.clone()),
        options: Options {
            priority: job.priority,
            pipeline: pipeline.to_owned(),
            delay: job.delay.as_secs(),
            auto_ack: job.auto_ack,
        },
        pronghorn_attempts: job.attempts,
        pronghorn_due: due,
    };
    serde_json::to_vec(&item).expect("texts and numbers can be written")
}

/// A job, and when it is due if it waits. What somebody else has written is a job, too: its headers
/// are `foreign`, as those of RoadRunner's jobs are where it writes none into the JSON.
pub(crate) fn read(bytes: &Bytes, foreign: impl FnOnce() -> Headers) -> (Job, Option<u64>) {
    let Ok(item) = serde_json::from_slice::<Item>(bytes) else {
        let job = Job {
            id: new_id(),
            name: UNNAMED.to_owned(),
            payload: bytes.clone(),
            headers: foreign(),
            ..Job::default()
        };
        return (job, None);
    };
    let job = Job {
        id: item.id,
        name: item.job,
        payload: item.payload,
        headers: item.headers.unwrap_or_else(foreign),
        priority: item.options.priority,
        delay: Duration::ZERO,
        auto_ack: item.options.auto_ack,
        attempts: item.pronghorn_attempts,
    };
    (job, item.pronghorn_due)
}

/// Bytes as Go writes them; none are null.
mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        STANDARD.encode(bytes).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = Option::<String>::deserialize(from)?.unwrap_or_default();
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_headers() -> Headers {
        Headers::new()
    }

    #[test]
    fn a_job_of_roadrunner_is_read() {
        let json = br#"{"job":"App\\Ping","id":"1","payload":"aGk=","options":{"priority":3,
            "pipeline":"p","delay":2,"auto_ack":true,"Queue":"q"},"more":[1]}"#;
        let header = || Headers::from([("a".to_owned(), vec!["b".to_owned()])]);
        let (job, due) = read(&Bytes::from_static(json), header);
        let expected = Job {
            id: "1".to_owned(),
            name: "App\\Ping".to_owned(),
            payload: Bytes::from_static(b"hi"),
            headers: header(),
            priority: 3,
            auto_ack: true,
            ..Job::default()
        };
        assert_eq!((job, due), (expected, None));
        let null = br#"{"job":"j","id":"1","payload":null,"options":{}}"#;
        assert_eq!(read(&Bytes::from_static(null), no_headers).0.name, "j");
    }

    #[test]
    fn what_is_not_of_roadrunner_is_a_job_as_it_is() {
        for bytes in [
            "",
            "hello",
            "{}",
            r#"{"job":"a"}"#,
            "[1]",
            "\u{0}",
            r#"{"job":1,"id":2}"#,
        ] {
            let bytes = Bytes::from_static(bytes.as_bytes());
            let (job, due) = read(&bytes, no_headers);
            assert_eq!((&*job.name, &job.payload, due), (UNNAMED, &bytes, None));
            assert_eq!(job.id.len(), 32);
        }
    }

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let job = Job {
            id: "ä".to_owned(),
            payload: (0..=255).collect(),
            headers: Headers::from([("empty".to_owned(), Vec::new())]),
            priority: i64::MIN,
            attempts: 7,
            ..Job::default()
        };
        let written = Bytes::from(write(&job, "p", Some(5)));
        assert_eq!(read(&written, no_headers), (job, Some(5)));
    }
}
