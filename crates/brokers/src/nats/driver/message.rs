//! A job as a message, as RoadRunner writes it: JSON, and the job's headers as those of the
//! message.

use async_nats::Message;
use async_nats::header::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use pronghorn_queue::{Headers, Job};

use crate::broker::item;

/// NATS acts on headers of its own, and has messages expire by them, for example.
const RESERVED: &str = "nats-";

/// `due` is of a job that waits.
pub(super) fn write(job: &Job, pipeline: &str, due: Option<u64>) -> (HeaderMap, Bytes) {
    let mut headers = HeaderMap::new();
    for (name, values) in &job.headers {
        if name.to_ascii_lowercase().starts_with(RESERVED) {
            continue;
        }
        let Ok(name) = name.parse::<HeaderName>() else {
            continue;
        };
        for value in values {
            if let Ok(value) = value.parse::<HeaderValue>() {
                headers.append(name.clone(), value);
            }
        }
    }
    (headers, item::write(job, pipeline, due).into())
}

/// A job, and when it is due if it waits.
pub(super) fn read(message: &Message) -> (Job, Option<u64>) {
    read_parts(&message.payload, message.headers.as_ref())
}

pub(super) fn read_parts(payload: &Bytes, headers: Option<&HeaderMap>) -> (Job, Option<u64>) {
    item::read(payload, || {
        let headers = headers.into_iter().flat_map(HeaderMap::iter);
        let headers = headers.map(|(name, values)| {
            let values = values.iter().map(|value| value.as_str().to_owned());
            (name.to_string(), values.collect())
        });
        headers.collect::<Headers>()
    })
}
