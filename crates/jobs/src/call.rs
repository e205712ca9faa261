//! A job as a worker gets it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pronghorn_base::{micros, since_1970};
use pronghorn_pool::{Body, Dispatch, Encoding, Observer, Payload, Taker, Unencodable};
use pronghorn_queue::{Headers, Job, options};
use pronghorn_trace::Calls;
use pronghorn_wire::native::{self, Envelope};
use pronghorn_wire::{Codec, DecodeError, Head};
use serde::Serialize;
use tokio::time::Instant;

/// A job on its way to a worker.
pub(crate) struct JobCall {
    pub(crate) job: Arc<Job>,
    pub(crate) pipeline: String,
    /// Where it was in a broker.
    pub(crate) queue: Option<String>,
    pub(crate) driver: &'static str,
    /// Instead of the pool's `exec_ttl`.
    pub(crate) deadline: Option<Duration>,
    /// The reply is to have what the handler returns.
    pub(crate) wants_result: bool,
    /// Its pipeline takes it back as if it had never been taken.
    pub(crate) can_go_back: bool,
    /// Takes the methods of the server that its handler calls, while traces are wanted.
    pub(crate) calls: Option<Arc<Calls>>,
    /// The process of the worker that has begun it; 0 before.
    pub(crate) pid: AtomicU32,
}

/// What RoadRunner's packages read in a frame's context; keys in its order.
#[derive(Serialize)]
struct Context<'a> {
    id: &'a str,
    job: &'a str,
    driver: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    headers: &'a Headers,
    pipeline: &'a str,
    /// Of Kafka, as the next ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
}

impl Payload for JobCall {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        match encoding {
            Encoding::Frame(Codec::Json | Codec::Proto, _) => self.encode_json(out)?,
            Encoding::Frame(Codec::Native, dispatch) => self.encode_native(dispatch, out),
            Encoding::Variables => return Err(Unencodable::for_no_script()),
        }
        Ok(Body::Bytes(self.job.payload.clone()))
    }

    fn decode_head(&self, codec: Codec, context: &Bytes) -> Result<Head, DecodeError> {
        Head::decode_job(codec, context)
    }

    /// The pipeline gives it again, and counts.
    fn repeatable(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!("job {} ({})", self.job.name, self.job.id)
    }
}

impl Observer for JobCall {
    fn notes_methods(&self) -> bool {
        self.calls.is_some()
    }

    fn called(&self, method: &str, since: Instant, error: Option<&str>) {
        if let Some(calls) = &self.calls {
            calls.add(method, since, error);
        }
    }

    fn begun(&self, by: Taker) {
        self.pid.store(by.pid, Ordering::Relaxed);
    }

    /// The consumer knows what comes next.
    fn tells_failures(&self) -> bool {
        true
    }

    fn waits_elsewhere(&self) -> bool {
        self.can_go_back
    }
}

impl JobCall {
    /// The process of the worker that has begun it.
    pub(crate) fn worker(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    fn encode_json(&self, out: &mut Vec<u8>) -> Result<(), Unencodable> {
        let headers = options::visible(&self.job.headers);
        let place = options::place(&self.job.headers);
        let context = Context {
            id: &self.job.id,
            job: &self.job.name,
            driver: self.driver,
            queue: self.queue.as_deref(),
            headers: &headers,
            pipeline: &self.pipeline,
            topic: place.as_ref().map(|place| &*place.topic),
            partition: place.as_ref().map(|place| place.partition),
            offset: place.as_ref().map(|place| place.offset),
        };
        let written = serde_json::to_writer(out, &context);
        written.map_err(|error| Unencodable::Request(error.to_string()))
    }

    fn encode_native(&self, dispatch: Dispatch, out: &mut Vec<u8>) {
        let job = native::Job {
            id: &self.job.id,
            name: &self.job.name,
            pipeline: &self.pipeline,
            driver: self.driver,
            attempt: self.job.attempts.saturating_add(1),
            wants_result: self.wants_result,
        };
        let headers = options::visible(&self.job.headers);
        let headers = headers.iter().flat_map(|(name, values)| {
            let name = name.as_bytes();
            values.iter().map(move |value| (name, value.as_bytes()))
        });
        let envelope = Envelope {
            call: dispatch.number,
            time_left_ms: dispatch.time_left_ms,
            ..Envelope::default()
        };
        let now = micros(since_1970(SystemTime::now()));
        native::encode_job(out, &job, headers, now, envelope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_kafka_says_where_it_was() {
        let mut job = Job::default();
        let place = options::LogPlace {
            topic: "t".to_owned(),
            partition: 1,
            offset: 5,
        };
        options::put_place(&mut job.headers, &place);
        let call = JobCall {
            job: Arc::new(job),
            pipeline: "p".to_owned(),
            queue: Some("t".to_owned()),
            driver: "kafka",
            deadline: None,
            wants_result: false,
            can_go_back: false,
            calls: None,
            pid: AtomicU32::new(0),
        };
        let mut out = Vec::new();
        call.encode_json(&mut out).unwrap();
        let context = r#"{"id":"","job":"","driver":"kafka","queue":"t","headers":{},"pipeline":"p","topic":"t","partition":1,"offset":5}"#;
        assert_eq!(str::from_utf8(&out).unwrap(), context);
    }

    #[test]
    fn a_job_is_written_as_the_official_packages_read_it() {
        let values = vec!["a".to_owned(), "\"".to_owned()];
        let call = JobCall {
            job: Arc::new(Job {
                id: "bid1".to_owned(),
                name: "App\\Ping".to_owned(),
                payload: Bytes::from_static(b"\x00\xff"),
                headers: Headers::from([("x-try".to_owned(), values)]),
                ..Job::default()
            }),
            pipeline: "mail".to_owned(),
            queue: None,
            driver: "memory",
            deadline: None,
            wants_result: false,
            can_go_back: true,
            calls: None,
            pid: AtomicU32::new(0),
        };
        let dispatch = Dispatch {
            number: 1,
            time_left_ms: None,
        };
        let mut out = Vec::new();
        let body = call.encode(Encoding::Frame(Codec::Json, dispatch), &mut out);
        let context = r#"{"id":"bid1","job":"App\\Ping","driver":"memory","headers":{"x-try":["a","\""]},"pipeline":"mail"}"#;
        assert_eq!(str::from_utf8(&out).unwrap(), context);
        assert!(matches!(body, Ok(Body::Bytes(bytes)) if bytes[..] == *b"\x00\xff"));
        assert_eq!(call.describe(), "job App\\Ping (bid1)");
    }
}
