//! A job as a message, as RoadRunner writes it: the payload is the body, the rest is in headers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use pronghorn_queue::{Headers, Job};

use crate::broker::attributes::{ATTEMPTS, AUTO_ACK, DELAY, HEADERS, ID, NAME, PRIORITY};
use crate::broker::item::{UNNAMED, new_id};

const PIPELINE: &str = "rr_pipeline";
/// A header of a job that replaces the pipeline's routing key.
const ROUTING_KEY: &str = "x-routing-key";
/// A message that outlives the broker.
const PERSISTENT: u8 = 2;

/// A delivery whose content was taken out.
pub(crate) type Token = Arc<Delivery>;

pub(super) fn routing_key(job: &Job) -> Option<&str> {
    job.headers.get(ROUTING_KEY)?.first().map(String::as_str)
}

pub(super) fn properties(job: &Job, pipeline: &str) -> BasicProperties {
    let text = |text: &str| AMQPValue::LongString(text.to_owned().into());
    let number = |number: u64| AMQPValue::LongLongInt(number.cast_signed());
    let headers = serde_json::to_vec(&job.headers).expect("texts can be written");
    let fields = [
        (ID, text(&job.id)),
        (NAME, text(&job.name)),
        (PIPELINE, text(pipeline)),
        (HEADERS, AMQPValue::ByteArray(headers.into())),
        (DELAY, number(job.delay.as_secs())),
        (PRIORITY, AMQPValue::LongLongInt(job.priority)),
        (AUTO_ACK, AMQPValue::Boolean(job.auto_ack)),
        (ATTEMPTS, number(job.attempts.into())),
    ];
    let fields: BTreeMap<ShortString, AMQPValue> = fields
        .into_iter()
        .map(|(name, value)| (name.into(), value))
        .collect();
    BasicProperties::default()
        .with_content_type("application/octet-stream".into())
        .with_delivery_mode(PERSISTENT)
        .with_headers(FieldTable::from(fields))
}

/// A job, and what it is settled by. What somebody else has written is a job, too: its headers are
/// those of the message.
pub(super) fn read(mut delivery: Delivery) -> (Job, Token) {
    let payload = Bytes::from(std::mem::take(&mut delivery.data));
    let fields = delivery.properties.headers().as_ref();
    let field = |name: &str| fields.and_then(|fields| fields.inner().get(name));
    let word = |name: &str| field(name).and_then(text);
    let number = |name: &str| field(name).and_then(number);
    let headers = match field(HEADERS) {
        Some(AMQPValue::ByteArray(bytes)) => serde_json::from_slice(bytes.as_slice()).ok(),
        Some(AMQPValue::LongString(bytes)) => serde_json::from_slice(bytes.as_bytes()).ok(),
        _ => None,
    };
    let job = Job {
        id: word(ID).unwrap_or_else(new_id),
        name: word(NAME).unwrap_or_else(|| UNNAMED.to_owned()),
        headers: headers.unwrap_or_else(|| fields.map(foreign).unwrap_or_default()),
        priority: number(PRIORITY).unwrap_or_default(),
        delay: Duration::ZERO,
        auto_ack: matches!(field(AUTO_ACK), Some(AMQPValue::Boolean(true))),
        attempts: number(ATTEMPTS)
            .and_then(|attempts| attempts.try_into().ok())
            .unwrap_or_default(),
        payload,
    };
    (job, Arc::new(delivery))
}

fn foreign(fields: &FieldTable) -> Headers {
    let fields = fields.inner().iter();
    let texts = fields.filter(|(name, _)| !name.as_str().starts_with("rr_"));
    let texts = texts.filter_map(|(name, value)| {
        let value = text(value).or_else(|| number(value).map(|number| number.to_string()))?;
        Some((name.as_str().to_owned(), vec![value]))
    });
    texts.collect()
}

fn text(value: &AMQPValue) -> Option<String> {
    match value {
        AMQPValue::LongString(text) => String::from_utf8(text.as_bytes().to_vec()).ok(),
        AMQPValue::ShortString(text) => Some(text.as_str().to_owned()),
        _ => None,
    }
}

fn number(value: &AMQPValue) -> Option<i64> {
    match *value {
        AMQPValue::ShortShortInt(number) => Some(number.into()),
        AMQPValue::ShortShortUInt(number) => Some(number.into()),
        AMQPValue::ShortInt(number) => Some(number.into()),
        AMQPValue::ShortUInt(number) => Some(number.into()),
        AMQPValue::LongInt(number) => Some(number.into()),
        AMQPValue::LongUInt(number) => Some(number.into()),
        AMQPValue::LongLongInt(number) => Some(number),
        _ => None,
    }
}

/// An argument of a queue: a number, yes or no, or a text.
pub(super) fn argument(value: &str) -> AMQPValue {
    if let Ok(number) = value.parse() {
        return AMQPValue::LongLongInt(number);
    }
    match value {
        "true" => AMQPValue::Boolean(true),
        "false" => AMQPValue::Boolean(false),
        text => AMQPValue::LongString(text.to_owned().into()),
    }
}
