//! A job as a message of SQS, with RoadRunner's attributes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pronghorn_queue::{Headers, Job};
use serde::{Deserialize, Serialize};

use crate::broker::attributes::{self, ATTEMPTS, AUTO_ACK, DELAY, HEADERS, ID, NAME, PRIORITY};
use crate::broker::item::{UNNAMED, new_id};

/// Ours: the body is no text that SQS takes, and stands in base64; or there is none.
const CODING: &str = "pronghorn_coding";

/// Names and values of a message beside its body.
pub(super) type Attributes = BTreeMap<String, Attribute>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Attribute {
    #[serde(default)]
    data_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    string_value: Option<String>,
    /// The bytes are in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary_value: Option<String>,
}

impl Attribute {
    fn text(value: impl Into<String>) -> Self {
        Self {
            data_type: "String".to_owned(),
            string_value: Some(value.into()),
            binary_value: None,
        }
    }

    fn number(value: impl Into<i64>) -> Self {
        Self {
            data_type: "Number".to_owned(),
            ..Self::text(value.into().to_string())
        }
    }

    fn binary(value: &[u8]) -> Self {
        Self {
            data_type: "Binary".to_owned(),
            string_value: None,
            binary_value: Some(STANDARD.encode(value)),
        }
    }
}

/// The body and the attributes of a job.
pub(super) fn write(job: &Job) -> (String, Attributes) {
    let (body, coding) = match std::str::from_utf8(&job.payload) {
        Ok("") => ("-".to_owned(), Some("none")),
        Ok(text) if text.chars().all(is_taken) => (text.to_owned(), None),
        _ => (STANDARD.encode(&job.payload), Some("base64")),
    };
    let headers = serde_json::to_vec(&job.headers).expect("texts can be written");
    let mut attributes = Attributes::from([
        (HEADERS.to_owned(), Attribute::binary(&headers)),
        (PRIORITY.to_owned(), Attribute::number(job.priority)),
        (
            DELAY.to_owned(),
            Attribute::text(job.delay.as_secs().to_string()),
        ),
        (
            AUTO_ACK.to_owned(),
            Attribute::text(job.auto_ack.to_string()),
        ),
    ]);
    let mut add = |name: &str, value: Attribute| {
        attributes.insert(name.to_owned(), value);
    };
    // SQS takes no empty ones.
    for (name, value) in [(ID, &job.id), (NAME, &job.name)] {
        if !value.is_empty() {
            add(name, Attribute::text(value));
        }
    }
    if job.attempts > 0 {
        add(ATTEMPTS, Attribute::number(job.attempts));
    }
    if let Some(coding) = coding {
        add(CODING, Attribute::text(coding));
    }
    (body, attributes)
}

/// These are the characters of XML, in which SQS once was spoken to.
fn is_taken(sign: char) -> bool {
    matches!(sign, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// A message that somebody else has sent is a job, too.
pub(super) fn read(body: &str, attributes: &Attributes) -> Job {
    let text = |name: &str| attributes.get(name)?.string_value.as_deref();
    let payload = match text(CODING) {
        Some("none") => Bytes::new(),
        Some("base64") => match STANDARD.decode(body) {
            Ok(payload) => payload.into(),
            Err(_) => Bytes::copy_from_slice(body.as_bytes()),
        },
        _ => Bytes::copy_from_slice(body.as_bytes()),
    };
    // An attribute that each job of ours and of RoadRunner has.
    if !attributes.contains_key(HEADERS) && !attributes.contains_key(NAME) {
        let headers = attributes.iter().filter_map(|(name, value)| {
            let value = value.string_value.clone()?;
            Some((name.clone(), vec![value]))
        });
        return Job {
            id: new_id(),
            name: UNNAMED.to_owned(),
            payload,
            headers: headers.collect(),
            ..Job::default()
        };
    }
    let headers = attributes.get(HEADERS).and_then(|it| {
        let bytes = STANDARD.decode(it.binary_value.as_deref()?).ok()?;
        serde_json::from_slice::<Option<Headers>>(&bytes).ok()?
    });
    attributes::job(text, headers, payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let payloads: [&[u8]; 5] = [b"", b"text", b"-", &[0, 255], "\u{fffe}".as_bytes()];
        for payload in payloads {
            let job = Job {
                id: "1".to_owned(),
                name: "App\\Job".to_owned(),
                payload: Bytes::copy_from_slice(payload),
                headers: Headers::from([("a".to_owned(), vec!["b".to_owned()])]),
                priority: -3,
                auto_ack: true,
                attempts: 2,
                ..Job::default()
            };
            let (body, attributes) = write(&job);
            assert!(!body.is_empty() && body.chars().all(is_taken) && attributes.len() <= 10);
            assert_eq!(read(&body, &attributes), job);
        }
    }

    #[test]
    fn a_message_of_somebody_else_is_a_job() {
        let attributes = Attributes::from([("x".to_owned(), Attribute::text("y"))]);
        let job = read("hello", &attributes);
        assert_eq!((&*job.name, &job.payload[..]), (UNNAMED, &b"hello"[..]));
        assert_eq!(job.headers["x"], ["y"]);
        let of_roadrunner = Attributes::from([
            (NAME.to_owned(), Attribute::text("j")),
            (HEADERS.to_owned(), Attribute::binary(b"null")),
            (PRIORITY.to_owned(), Attribute::text("x")),
        ]);
        assert_eq!(read("", &of_roadrunner).name, "j");
    }
}
