//! A job as a worker gets it.

use std::sync::Arc;

use bytes::Bytes;
use pronghorn_pool::{Body, Encoding, Payload, Unencodable};
use pronghorn_wire::{Codec, DecodeError, Head};
use serde::Serialize;

use crate::job::{Headers, Job};

/// A job on its way to a worker, in the protocol of RoadRunner's packages.
pub(crate) struct JobCall {
    pub(crate) job: Arc<Job>,
    pub(crate) pipeline: String,
    /// Where it was in a broker.
    pub(crate) queue: Option<String>,
    pub(crate) driver: &'static str,
}

/// What the packages read in a frame's context; keys in RoadRunner's order.
#[derive(Serialize)]
struct Context<'a> {
    id: &'a str,
    job: &'a str,
    driver: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    headers: &'a Headers,
    pipeline: &'a str,
}

impl Payload for JobCall {
    fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) -> Result<Body, Unencodable> {
        match encoding {
            Encoding::Frame(Codec::Json | Codec::Proto, _) => {}
            // Such a worker announces its kinds, and `job` is none of them yet.
            Encoding::Frame(Codec::Native, _) => {
                let why = "jobs are run by the class `Consumer` of `spiral/roadrunner-jobs`";
                return Err(Unencodable::Pool(why.to_owned()));
            }
            Encoding::Variables => return Err(Unencodable::for_no_script()),
        }
        let context = Context {
            id: &self.job.id,
            job: &self.job.name,
            driver: self.driver,
            queue: self.queue.as_deref(),
            headers: &self.job.headers,
            pipeline: &self.pipeline,
        };
        let written = serde_json::to_writer(out, &context);
        written.map_err(|error| Unencodable::Request(error.to_string()))?;
        Ok(Body::Bytes(self.job.payload.clone()))
    }

    fn decode_head(&self, _: Codec, _: &Bytes) -> Result<Head, DecodeError> {
        // RoadRunner looks at the body alone.
        Ok(Head::Raw)
    }

    /// The pipeline gives it again, and counts.
    fn repeatable(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!("job {} ({})", self.job.name, self.job.id)
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_pool::Dispatch;

    use super::*;

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
