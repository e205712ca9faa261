//! `jobs.v1`, as PHP and JSON have it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use pronghorn_plugin_api::rpc::{
    Argument, Binary, Failure, Outcome, Reader, Writer, read_message, write_message,
};
use pronghorn_queue::{Headers, Job, options};
use serde::{Deserialize, Deserializer, Serialize};

use crate::batches::Last;

/// An id is a UUID, a name a class, a pipeline a word; nobody needs more.
pub(crate) const LONGEST_NAME: usize = 4096;
/// Of all headers together. They are written into the context of each call.
pub(crate) const MOST_HEADERS: usize = 64 << 10;
/// A job names what is to be done. What is larger belongs into a file or a database.
pub(crate) const MOST_PAYLOAD: usize = 16 << 20;
/// More are pushed in several calls: they are kept together or not at all.
const MOST_IN_BATCH: usize = 65_536;

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct PushRequest {
    #[prost(message, optional, tag = "1")]
    job: Option<JobMessage>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct PushBatchRequest {
    #[prost(message, repeated, tag = "1")]
    jobs: Vec<JobMessage>,
}

/// Jobs, and one that is pushed when all of them have come to their end. RoadRunner has none.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct BatchRequest {
    #[prost(message, repeated, tag = "1")]
    jobs: Vec<JobMessage>,
    #[prost(message, optional, tag = "2")]
    then: Option<JobMessage>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct JobMessage {
    #[prost(string, tag = "1")]
    job: String,
    #[prost(string, tag = "2")]
    id: String,
    #[prost(bytes = "bytes", tag = "3")]
    #[serde(deserialize_with = "binary")]
    payload: Bytes,
    #[prost(btree_map = "string, message", tag = "4")]
    headers: BTreeMap<String, HeaderValue>,
    #[prost(message, optional, tag = "5")]
    options: Option<Options>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct HeaderValue {
    #[prost(string, repeated, tag = "1")]
    value: Vec<String>,
}

/// What is not read is passed over: `metadata` and `offset` of those for Kafka.
#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    #[prost(int64, tag = "1")]
    priority: i64,
    #[prost(string, tag = "2")]
    pipeline: String,
    /// Seconds.
    #[prost(int64, tag = "3")]
    delay: i64,
    #[prost(bool, tag = "6")]
    auto_ack: bool,
    /// For Kafka, as the next one.
    #[prost(string, tag = "7")]
    topic: String,
    #[prost(int32, tag = "10")]
    partition: i32,
    /// That the job has had. RoadRunner has none: jobs that move from one server to another keep
    /// theirs.
    #[prost(uint32, tag = "100")]
    attempts: u32,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PipelineNames {
    #[prost(string, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pipelines: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message, Deserialize)]
#[serde(default)]
pub(crate) struct DeclareRequest {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(crate) pipeline: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize)]
pub(crate) struct Empty {}

/// The answer to a push. RoadRunner's is empty, and ours mostly as well.
#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct Kept {
    /// IDs of jobs that were not kept, because those of these IDs have their keys.
    #[prost(btree_map = "string, string", tag = "100")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) duplicates: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct Stats {
    #[prost(message, repeated, tag = "1")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stats: Vec<PipelineStat>,
}

#[derive(Clone, PartialEq, prost::Message, Serialize)]
pub(crate) struct PipelineStat {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) pipeline: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) driver: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) queue: String,
    #[prost(int64, tag = "4")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) active: i64,
    #[prost(int64, tag = "5")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) delayed: i64,
    #[prost(int64, tag = "6")]
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) reserved: i64,
    #[prost(bool, tag = "7")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ready: bool,
    #[prost(uint64, tag = "8")]
    #[serde(skip_serializing_if = "is_zero_too")]
    pub(crate) priority: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero_too(number: &u64) -> bool {
    *number == 0
}

fn binary<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    Binary::deserialize(deserializer).map(|binary| binary.0)
}

macro_rules! argument {
    ($($message:ident)*) => {$(
        impl Argument for $message {
            const PROTOBUF: Option<Reader<Self>> = Some(read_message);
        }
    )*};
}

macro_rules! outcome {
    ($($message:ident)*) => {$(
        impl Outcome for $message {
            const PROTOBUF: Option<Writer<Self>> = Some(write_message);
        }
    )*};
}

argument!(PushRequest PushBatchRequest BatchRequest PipelineNames DeclareRequest Empty);
outcome!(PipelineNames Empty Kept Stats);

/// Jobs of one call, each with the name of its pipeline.
pub(crate) type Pushed = Vec<(String, Job)>;

impl PushRequest {
    pub(crate) fn jobs(self) -> Result<Pushed, Failure> {
        let job = self.job.unwrap_or_default();
        Ok(vec![job.read()?])
    }
}

impl PushBatchRequest {
    pub(crate) fn jobs(self) -> Result<Pushed, Failure> {
        let count = self.jobs.len();
        if count > MOST_IN_BATCH {
            return Err(refused(&format!(
                "a batch of {count} jobs; at most {MOST_IN_BATCH} are taken at a time"
            )));
        }
        self.jobs.into_iter().map(JobMessage::read).collect()
    }
}

impl BatchRequest {
    pub(crate) fn jobs(self) -> Result<(Pushed, Last), Failure> {
        let (pipeline, job) = self.then.unwrap_or_default().read()?;
        let jobs = PushBatchRequest { jobs: self.jobs };
        Ok((jobs.jobs()?, Last { pipeline, job }))
    }
}

/// With the name of RoadRunner's method.
fn refused(what: &str) -> Failure {
    Failure::new(format!("rpc_push: {what}"))
}

impl JobMessage {
    fn read(self) -> Result<(String, Job), Failure> {
        if self.id.is_empty() {
            return Err(refused("empty ID field not allowed"));
        }
        let headers = self.headers.iter();
        let headers: usize = headers
            .map(|(name, values)| header_size(name, &values.value))
            .sum();
        let lengths = [
            ("ID", self.id.len(), LONGEST_NAME),
            ("name", self.job.len(), LONGEST_NAME),
            ("headers", headers, MOST_HEADERS),
            ("payload", self.payload.len(), MOST_PAYLOAD),
        ];
        for (what, length, most) in lengths {
            if length > most {
                return Err(refused(&format!(
                    "the job's {what}: {length} bytes; at most {most} are taken"
                )));
            }
        }
        let options = self.options.unwrap_or_default();
        let headers = self.headers.into_iter();
        let mut headers: Headers = headers.map(|(name, values)| (name, values.value)).collect();
        if !options.topic.is_empty() {
            options::put_topic(&mut headers, options.topic, options.partition);
        }
        let job = Job {
            id: self.id,
            name: self.job,
            payload: self.payload,
            headers,
            priority: options.priority,
            // As RoadRunner, which delays for what is above 0.
            delay: Duration::from_secs(options.delay.try_into().unwrap_or(0)),
            auto_ack: options.auto_ack,
            attempts: options.attempts,
        };
        Ok((options.pipeline, job))
    }
}

/// The bytes that count against [`MOST_HEADERS`].
pub(crate) fn header_size(name: &str, values: &[String]) -> usize {
    // An empty one takes its place as well.
    name.len() + values.iter().map(|value| value.len() + 2).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written byte by byte by the numbers of `jobs.v1`.
    const PUSH: &[u8] = b"\x0a\x39\
        \x0a\x08App\\Ping\
        \x12\x01i\
        \x1a\x05\x00\x01\x02\xfe\xff\
        \x22\x0e\x0a\x05x-try\x12\x05\x0a\x01a\x0a\x00\
        \x2a\x13\x08\x07\x12\x04mail\x18\x1e\x30\x01\x3a\x05topic";

    #[test]
    fn a_push_is_read_as_the_php_package_writes_it() {
        let request: PushRequest = read_message(PUSH.into()).unwrap();
        let values = vec!["a".to_owned(), String::new()];
        let job = Job {
            id: "i".to_owned(),
            name: "App\\Ping".to_owned(),
            payload: Bytes::from_static(b"\x00\x01\x02\xfe\xff"),
            headers: Headers::from([
                ("x-try".to_owned(), values),
                ("pronghorn-topic".to_owned(), vec!["topic".to_owned()]),
            ]),
            priority: 7,
            delay: Duration::from_secs(30),
            auto_ack: true,
            attempts: 0,
        };
        assert_eq!(request.jobs().unwrap(), [("mail".to_owned(), job)]);
    }

    #[test]
    fn json_is_read_as_go_reads_it() {
        let json = br#"{"Job":{"ID":"i","job":"n","payload":"aGk=","headers":{"h":{"value":["1"]}},"options":{"pipeline":"p","delay":-3}}}"#;
        let request = PushRequest::from_json(json).unwrap();
        let (pipeline, job) = request.jobs().unwrap().remove(0);
        assert_eq!(
            (&*pipeline, &*job.name, &job.payload[..]),
            ("p", "n", &b"hi"[..])
        );
        assert_eq!(
            (job.delay, &job.headers["h"][..]),
            (Duration::ZERO, &["1".to_owned()][..])
        );
    }

    #[test]
    fn what_is_too_long_or_has_no_id_is_refused() {
        let push = |job: JobMessage| {
            let request = PushRequest { job: Some(job) };
            request.jobs().unwrap_err().to_string()
        };
        let with = |length: usize| JobMessage {
            id: "i".repeat(length),
            ..JobMessage::default()
        };
        assert_eq!(push(with(0)), "rpc_push: empty ID field not allowed");
        assert_eq!(
            push(with(4097)),
            "rpc_push: the job's ID: 4097 bytes; at most 4096 are taken"
        );
        let nothing = PushRequest { job: None };
        assert!(nothing.jobs().is_err());
        let batch = PushBatchRequest {
            jobs: vec![with(1); MOST_IN_BATCH + 1],
        };
        assert!(batch.jobs().is_err());
    }

    #[test]
    fn a_stat_leaves_out_what_is_zero() {
        let stat = PipelineStat {
            pipeline: "p".to_owned(),
            active: 3,
            ..PipelineStat::default()
        };
        let json = serde_json::to_string(&Stats { stats: vec![stat] }).unwrap();
        assert_eq!(json, r#"{"stats":[{"pipeline":"p","active":3}]}"#);
        assert_eq!(serde_json::to_string(&Empty {}).unwrap(), "{}");
    }
}
