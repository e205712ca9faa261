//! What a worker answers about a job, in our protocol and in that of RoadRunner's packages.

use std::time::Duration;

use bytes::Bytes;
use pronghorn_queue::{Headers, Settlement};
use pronghorn_wire::native::JobReply;
use serde::{Deserialize, Deserializer};

use crate::metrics::Verdict;

/// What an answer means, and what is odd about it, for the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) wish: Wish,
    pub(crate) verdict: Verdict,
    pub(crate) remark: Option<String>,
}

/// What is to become of a job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// It is done; with what its handler returned.
    Done(Bytes),
    /// The same, without a result that can be had: why.
    DoneWithout(String),
    /// This attempt has failed. When the next one is to be, if the handler has said.
    Failed { delay: Option<Duration> },
    /// No attempt would help.
    GiveUp,
    /// What RoadRunner's packages ask for beside that.
    Settle(Settlement),
}

/// Longer texts of a worker are cut in a record.
const LONGEST_REMARK: usize = 1000;

#[derive(Deserialize)]
struct Reply {
    #[serde(rename = "type")]
    kind: u64,
    #[serde(default, deserialize_with = "lenient")]
    data: Data,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    message: Option<String>,
    requeue: Option<bool>,
    delay_seconds: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    headers: Headers,
}

/// PHP writes an empty array where a map is meant.
fn lenient<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written<T> {
        Empty([(); 0]),
        There(T),
        Null(()),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::There(value) => value,
        Written::Empty([]) | Written::Null(()) => T::default(),
    })
}

/// What an answer of our package means.
pub(crate) fn of(reply: JobReply, body: &Bytes) -> Answered {
    let why = || {
        let why: String = String::from_utf8_lossy(body)
            .chars()
            .take(LONGEST_REMARK)
            .collect();
        (!why.is_empty()).then_some(why)
    };
    let (wish, verdict, remark) = match reply {
        JobReply::Done => (Wish::Done(body.clone()), Verdict::Done, None),
        JobReply::DoneWithout => {
            let why = why().unwrap_or_else(|| "it has no result".to_owned());
            (Wish::DoneWithout(why), Verdict::Done, None)
        }
        JobReply::Failed => {
            let why = why().or_else(|| Some("the handler failed".to_owned()));
            (Wish::GiveUp, Verdict::Failed, why)
        }
        JobReply::Retry { delay } => {
            let delay = Some(delay);
            (Wish::Failed { delay }, Verdict::Again, why())
        }
    };
    Answered {
        wish,
        verdict,
        remark,
    }
}

/// Reads the body of an answer of RoadRunner's packages.
pub(crate) fn read(body: &[u8]) -> Answered {
    let Ok(reply) = serde_json::from_slice::<Reply>(body) else {
        // RoadRunner would take the job for done.
        let what = if body.is_empty() {
            "the worker's answer is empty".to_owned()
        } else {
            let text: String = String::from_utf8_lossy(body).chars().take(100).collect();
            format!("the worker's answer is invalid: `{}`", text.escape_debug())
        };
        return Answered {
            wish: Wish::Failed { delay: None },
            verdict: Verdict::Failed,
            remark: Some(what),
        };
    };
    let Data {
        message,
        requeue,
        delay_seconds,
        headers,
    } = reply.data;
    let requeue = requeue.unwrap_or(false);
    let delay = Duration::from_secs(delay_seconds.unwrap_or(0).try_into().unwrap_or(0));
    let message: Option<String> = message.map(|text| text.chars().take(LONGEST_REMARK).collect());
    let settle = Wish::Settle;
    let (wish, verdict, remark) = match reply.kind {
        0 | 2 => (Wish::Done(Bytes::new()), Verdict::Done, None),
        1 if requeue => (
            settle(Settlement::Requeue { headers, delay }),
            Verdict::Failed,
            message,
        ),
        // In RoadRunner some drivers lose such a job, and others try it for ever.
        3 if requeue => (settle(Settlement::Nack { delay }), Verdict::Failed, message),
        1 | 3 => (
            Wish::GiveUp,
            Verdict::Failed,
            message.or_else(|| Some("the handler failed".to_owned())),
        ),
        4 => (
            settle(Settlement::Requeue { headers, delay }),
            Verdict::Again,
            None,
        ),
        other => (
            Wish::Done(Bytes::new()),
            Verdict::Done,
            Some(format!(
                "the worker's answer is of the unknown type {other}"
            )),
        ),
    };
    Answered {
        wish,
        verdict,
        remark,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> Headers {
        Headers::from([("a".to_owned(), vec!["1".to_owned()])])
    }

    #[test]
    fn each_type_of_answer_has_its_settlement() {
        let done = || Wish::Done(Bytes::new());
        let failed = || Wish::Failed { delay: None };
        let requeue = |headers, seconds| {
            Wish::Settle(Settlement::Requeue {
                headers,
                delay: Duration::from_secs(seconds),
            })
        };
        let nack = |seconds| {
            Wish::Settle(Settlement::Nack {
                delay: Duration::from_secs(seconds),
            })
        };
        for (body, wish, verdict) in [
            (r#"{"type":0}"#, done(), Verdict::Done),
            (r#"{"type":0,"data":[]}"#, done(), Verdict::Done),
            (r#"{"type":2,"data":null}"#, done(), Verdict::Done),
            (
                r#"{"type":1,"data":{"message":"no","requeue":false,"delay_seconds":0}}"#,
                Wish::GiveUp,
                Verdict::Failed,
            ),
            (
                r#"{"type":1,"data":{"message":"no","requeue":true,"delay_seconds":5,"headers":{"a":["1"]}}}"#,
                requeue(headers(), 5),
                Verdict::Failed,
            ),
            (
                r#"{"type":1,"data":{"message":"no","requeue":true,"delay_seconds":-1,"headers":[]}}"#,
                requeue(Headers::new(), 0),
                Verdict::Failed,
            ),
            (
                r#"{"type":3,"data":{"message":"no","requeue":true,"delay_seconds":2}}"#,
                nack(2),
                Verdict::Failed,
            ),
            (
                r#"{"type":3,"data":{"message":"no"}}"#,
                Wish::GiveUp,
                Verdict::Failed,
            ),
            (
                r#"{"type":4,"data":{"message":"later","delay_seconds":1,"headers":{"a":["1"]}}}"#,
                requeue(headers(), 1),
                Verdict::Again,
            ),
            (r#"{"type":99}"#, done(), Verdict::Done),
            ("", failed(), Verdict::Failed),
            ("{", failed(), Verdict::Failed),
            (r#"{"type":"x"}"#, failed(), Verdict::Failed),
        ] {
            let answered = read(body.as_bytes());
            assert_eq!((answered.wish, answered.verdict), (wish, verdict), "{body}");
        }
    }

    #[test]
    fn answers_of_our_package_say_what_they_mean() {
        let of = |reply, body: &'static str| {
            let answered = of(reply, &Bytes::from_static(body.as_bytes()));
            (answered.wish, answered.verdict, answered.remark)
        };
        let result = r#"{"any":1}"#;
        let done = (Wish::Done(result.into()), Verdict::Done, None);
        assert_eq!(of(JobReply::Done, result), done);
        let without = (Wish::DoneWithout("NaN".to_owned()), Verdict::Done, None);
        assert_eq!(of(JobReply::DoneWithout, "NaN"), without);
        let failed = |why: &str| (Wish::GiveUp, Verdict::Failed, Some(why.to_owned()));
        assert_eq!(of(JobReply::Failed, "no"), failed("no"));
        assert_eq!(of(JobReply::Failed, ""), failed("the handler failed"));
        let delay = Duration::from_secs(5);
        let again = Wish::Failed { delay: Some(delay) };
        let again = (again, Verdict::Again, None);
        assert_eq!(of(JobReply::Retry { delay }, ""), again);
    }

    #[test]
    fn what_is_odd_is_said() {
        let remark = |body: &str| read(body.as_bytes()).remark;
        assert_eq!(remark(r#"{"type":0}"#), None);
        assert_eq!(
            remark(r#"{"type":1,"data":{"message":"no"}}"#).unwrap(),
            "no"
        );
        assert_eq!(remark("").unwrap(), "the worker's answer is empty");
        assert_eq!(
            remark("a\nb").unwrap(),
            "the worker's answer is invalid: `a\\nb`"
        );
        assert!(remark(r#"{"type":7}"#).unwrap().ends_with("type 7"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_an_answer(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
            read(&body);
        }
    }
}
