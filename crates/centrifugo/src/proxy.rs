//! The proxy: Centrifugo's calls, answered by workers.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use pronghorn_base::{BoxFuture, LogThrottle};
use pronghorn_grpc_wire::{Answers, Call, Code, Input, Reply, Status};
use pronghorn_pool::{
    Answer, CallError, NotWhole, Pool, Refused, Reply as WorkerReply, ReplyBody, Terms, Unencodable,
};
use pronghorn_wire::Head;
use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use crate::call::{CentrifugoCall, context_of};
use crate::message::is_message;
use crate::metrics::Metrics;
use crate::settings::ProxyKey;

/// The service that Centrifugo calls.
const SERVICE: &str = "centrifugal.centrifugo.proxy.CentrifugoProxy";
/// Its methods that stream, which the packages can't answer.
const STREAMS: [&str; 2] = ["SubscribeUnidirectional", "SubscribeBidirectional"];
const LONGEST_NAME: usize = 64;

/// Bytes that a message of a worker may have, as in RoadRunner.
const LONGEST_REPLY: usize = 50 << 20;

/// Answers calls; made anew by each reload.
pub(crate) struct Proxy {
    pub(crate) pool: Pool,
    pub(crate) key: Option<ProxyKey>,
    pub(crate) metrics: Metrics,
}

/// Tells how a call ended, once.
struct Record<'a> {
    metrics: &'a Metrics,
    method: String,
    begun: Instant,
    deadline: Option<Instant>,
    is_told: bool,
}

impl Record<'_> {
    fn end(&mut self, status: &Status) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        let took = self.begun.elapsed();
        self.metrics.ended(&self.method, status.code, took);
        let elapsed = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let method = &*self.method;
        if matches!(status.code, Code::Ok | Code::Cancelled) {
            tracing::debug!(target: "centrifuge", method, elapsed, "a call was answered");
            return;
        }
        static FAILED: LogThrottle = LogThrottle::new();
        if let Some(times) = FAILED.should_log() {
            tracing::warn!(
                target: "centrifuge", method, elapsed, times, status = %status.code,
                "a call of Centrifugo failed: {}", status.message
            );
        }
    }
}

impl Drop for Record<'_> {
    /// Centrifugo has left, or its deadline has passed.
    fn drop(&mut self) {
        let now = Instant::now();
        let is_late = self.deadline.is_some_and(|deadline| deadline <= now);
        self.end(&if is_late {
            Status::new(Code::DeadlineExceeded, "Centrifugo's deadline passed")
        } else {
            Status::new(Code::Cancelled, "Centrifugo left")
        });
    }
}

impl Answers for Proxy {
    fn answer<'a>(&'a self, call: Call, input: &'a mut Input<'_>) -> BoxFuture<'a, Reply> {
        Box::pin(async move {
            self.metrics.begun();
            let mut record = Record {
                metrics: &self.metrics,
                method: call.method.method.clone(),
                begun: call.accepted,
                deadline: call.deadline,
                is_told: false,
            };
            match self.respond(call, input).await {
                Ok(message) => {
                    record.end(&Status::OK);
                    Reply::message(message)
                }
                Err(status) => {
                    record.end(&status);
                    Reply::ended(status)
                }
            }
        })
    }
}

impl Proxy {
    async fn respond(&self, call: Call, input: &mut Input<'_>) -> Result<Bytes, Status> {
        if !self.may_call(&call) {
            let what = "the proxy's key is missing or wrong: `grpc.credentials_key` and \
                        `grpc.credentials_value` in Centrifugo, `proxy_key_name` and `proxy_key` here";
            return Err(Status::new(Code::Unauthenticated, what));
        }
        is_answered(&call.method.service, &call.method.method)?;
        let message = input.only().await?;
        let (now, accepted) = (Instant::now(), call.accepted);
        let secret = self.key.as_ref().map(|key| &*key.name);
        let payload = Arc::new(CentrifugoCall {
            context: context_of(&call, secret),
            method: call.method.method,
            message,
        });
        // The deadline of Centrifugo ends the call, not the worker: to end and begin one costs
        // more than to let it finish, and `exec_ttl` bounds that.
        let mut pending = self.pool.call(payload, Terms::default(), accepted, now);
        let answer = poll_fn(|cx| {
            if input.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(Status::new(Code::Cancelled, "Centrifugo left")));
            }
            loop {
                match std::task::ready!(pending.poll_answer(cx)) {
                    Ok(Answer::Interim(_)) => {}
                    Ok(Answer::Reply(reply)) => return Poll::Ready(Ok(reply)),
                    Err(error) => return Poll::Ready(Err(status_of(&error))),
                }
            }
        });
        message_of(*answer.await?).await
    }

    /// Compares in a time that does not tell how much of the key is right.
    fn may_call(&self, call: &Call) -> bool {
        let Some(key) = &self.key else {
            return true;
        };
        let sent = call.metadata.get(&key.name);
        let sent = sent.map_or(&b""[..], |value| value.bytes());
        sent.ct_eq(key.value.as_bytes()).into()
    }
}

/// Whether such a method is for workers: each of the service that does not stream, also one that is
/// not known here.
fn is_answered(service: &str, method: &str) -> Result<(), Status> {
    let unimplemented = |text: String| Err(Status::new(Code::Unimplemented, text));
    if service != SERVICE {
        return unimplemented(format!("unknown service {service}"));
    }
    if STREAMS.contains(&method) {
        return unimplemented(format!("{method} streams, which is not supported"));
    }
    let is_name = method.len() <= LONGEST_NAME && method.bytes().all(|b| b.is_ascii_alphanumeric());
    if !is_name {
        return unimplemented(format!("unknown method {method} for service {service}"));
    }
    Ok(())
}

/// The one message of an answer.
async fn message_of(reply: WorkerReply) -> Result<Bytes, Status> {
    let unknown = |text: &str| Status::new(Code::Unknown, text);
    if reply.head == Head::NoAnswer {
        let text = "the worker did not answer: its package does not know the request, or its loop \
                    passed over it";
        return Err(unknown(text));
    }
    let message: Bytes = match reply.body {
        ReplyBody::Whole(content) => content.into(),
        // A long one, whose length was announced.
        ReplyBody::Pieces {
            pieces,
            len: Some(_),
        } => pieces.whole(LONGEST_REPLY).await.map_err(|why| match why {
            NotWhole::TooLong(most) => {
                let text = format!("the worker's answer is longer than {most} bytes");
                Status::new(Code::ResourceExhausted, text)
            }
            NotWhole::BrokenOff => {
                let text = "the worker ended before its answer was complete";
                Status::new(Code::Unavailable, text)
            }
            NotWhole::Unreadable(error) => Status::new(Code::Internal, error.to_string()),
        })?,
        ReplyBody::Pieces { len: None, .. } => {
            return Err(unknown("streaming response not supported"));
        }
        ReplyBody::File(_) => return Err(unknown("the worker answered with a file")),
    };
    if !is_message(&message) {
        return Err(unknown("the worker's answer is no protobuf message"));
    }
    Ok(message)
}

/// The status of a call without an answer. RoadRunner has 2 for all of them.
fn status_of(error: &CallError) -> Status {
    let code = match error {
        CallError::Reported(text) => return Status::new(Code::Unknown, text),
        CallError::Refused(Refused::QueueFull) => Code::ResourceExhausted,
        CallError::Refused(Refused::WaitedTooLong | Refused::NoWorker | Refused::Stopping)
        | CallError::NotBegun
        | CallError::Worker(_) => Code::Unavailable,
        CallError::Deadline => Code::DeadlineExceeded,
        CallError::Unencodable(Unencodable::Request(_) | Unencodable::Pool(_))
        | CallError::Poisoned
        | CallError::Thrown(_) => Code::Internal,
    };
    Status::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::METHODS;

    #[test]
    fn each_method_that_does_not_stream_is_answered() {
        for method in METHODS.into_iter().chain(["LaterMethod2"]) {
            assert_eq!(is_answered(SERVICE, method), Ok(()), "{method}");
        }
        for (service, method) in [
            (SERVICE, STREAMS[0]),
            (SERVICE, STREAMS[1]),
            (SERVICE, "a-b"),
            (SERVICE, &*"A".repeat(65)),
            ("centrifugal.centrifugo.proxy.Other", "Connect"),
        ] {
            let status = is_answered(service, method).unwrap_err();
            assert_eq!(status.code, Code::Unimplemented, "{method}");
        }
    }

    #[test]
    fn an_error_of_the_worker_is_what_roadrunner_makes_of_it() {
        let status = status_of(&CallError::Reported("boom".to_owned()));
        assert_eq!((status.code, &*status.message), (Code::Unknown, "boom"));
        let full = status_of(&CallError::Refused(Refused::QueueFull));
        assert_eq!(full.code, Code::ResourceExhausted);
    }
}
