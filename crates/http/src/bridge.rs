//! The handler that asks PHP: a request becomes a call, its reply a response.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use pronghorn_pool::{
    Answer, Body as CallBody, CallError, Dispatch, Payload, Pending, Pool, Reply, ReplyBody,
    Unencodable,
};
use pronghorn_wire::native::{self, Envelope};
use pronghorn_wire::{Codec, Request as WireRequest};

use crate::error;
use crate::exchange::Exchange;
use crate::message::{Body, Handled, Handler, Request, Response};
use crate::record::Record;

/// PHP's default for a body without a Content-Type (`default_mimetype` and `default_charset` of php.ini).
const DEFAULT_CONTENT_TYPE: &str = "text/html; charset=UTF-8";

/// Answers requests by a pool of workers.
#[derive(Debug)]
pub struct PoolHandler {
    pub pool: Pool,
    /// What a client gets when the application failed, `http.internal_error_code`.
    pub internal_error_code: u16,
}

impl Handler for PoolHandler {
    fn handle<'a>(&'a self, request: Request, exchange: &'a mut dyn Exchange) -> Handled<'a> {
        Box::pin(self.answer(request, exchange))
    }
}

impl PoolHandler {
    async fn answer(&self, request: Request, exchange: &mut dyn Exchange) -> Response {
        let request = Arc::new(request);
        let call = Arc::new(HttpCall {
            request: request.clone(),
        });
        let record = Record::of(&request, 0);
        let mut pending = self.pool.call(call, request.accepted);
        let mut response = match wait(&mut pending, exchange).await {
            Some(Ok(reply)) => respond(reply),
            Some(Err(error)) => self.refuse(&error),
            // Nobody reads this.
            None => Response::new(499, Body::Empty),
        };
        response.record = record;
        response
    }

    fn refuse(&self, error: &CallError) -> Response {
        let mut response = Response::status_only(error::status(error, self.internal_error_code));
        if let CallError::Refused(_) = error {
            response.fields.push("Retry-After", error::RETRY_AFTER);
        }
        response
    }
}

/// Waits for the reply and passes 1xx replies on. `None` when the client has left.
async fn wait(
    pending: &mut Pending,
    exchange: &mut dyn Exchange,
) -> Option<Result<Reply, CallError>> {
    loop {
        let answer = poll_fn(|cx| match pending.poll_answer(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => exchange.poll_gone(cx).map(|()| None),
        });
        match answer.await? {
            Ok(Answer::Reply(reply)) => return Some(Ok(reply)),
            Ok(Answer::Informational(head)) => {
                // One that can't be sent is no reason to fail the request: hints are hints.
                if head.check().is_ok() {
                    exchange.inform(head.status, &head.headers);
                    exchange.flush().await;
                }
            }
            Err(error) => return Some(Err(error)),
        }
    }
}

fn respond(reply: Reply) -> Response {
    let Reply { mut head, body, .. } = reply;
    let bad_head = match head.check() {
        Ok(()) if head.status >= 200 => None,
        Ok(()) => Some(format!("status {} ends no request", head.status)),
        Err(bad) => Some(bad.to_string()),
    };
    if let Some(why) = bad_head {
        tracing::error!(target: "http", "the application's reply can't be sent: {why}");
        return Response::status_only(500);
    }
    let body = match body {
        ReplyBody::Whole(bytes) if bytes.is_empty() => Body::Empty,
        ReplyBody::Whole(bytes) => Body::Whole(bytes),
        ReplyBody::File(path) => Body::File { path },
        ReplyBody::Pieces { pieces, len } => Body::Pieces { pieces, len },
    };
    if !matches!(body, Body::Empty) && head.headers.get("content-type").is_none() {
        head.headers.push("Content-Type", DEFAULT_CONTENT_TYPE);
    }
    Response {
        status: head.status,
        fields: head.headers,
        body,
        record: None,
    }
}

/// A request on its way through a pool.
struct HttpCall {
    request: Arc<Request>,
}

impl Payload for HttpCall {
    fn encode(
        &self,
        codec: Codec,
        terms: Dispatch,
        out: &mut Vec<u8>,
    ) -> Result<CallBody, Unencodable> {
        let request = self.wire();
        match codec {
            Codec::Native => {
                let envelope = Envelope {
                    call: terms.number,
                    time_left_ms: terms.time_left_ms,
                    ..Envelope::default()
                };
                native::encode_request(out, &request, envelope);
            }
            Codec::Json => {
                pronghorn_wire::json::encode_request(
                    out,
                    &request,
                    pronghorn_wire::Form::default(),
                );
            }
            Codec::Proto => {
                pronghorn_wire::proto::encode_request(
                    out,
                    &request,
                    pronghorn_wire::Form::default(),
                );
            }
        }
        Ok(CallBody::Bytes(Bytes::new()))
    }

    fn repeatable(&self) -> bool {
        matches!(self.request.head.method(), "GET" | "HEAD" | "OPTIONS")
    }

    fn describe(&self) -> String {
        format!("{} {}", self.request.head.method(), self.request.target())
    }
}

impl HttpCall {
    fn wire(&self) -> WireRequest<'_> {
        let Request {
            head,
            peer,
            attributes,
            accepted_us,
            ..
        } = &*self.request;
        WireRequest {
            method: head.method(),
            tls: peer.tls,
            authority: head.authority(),
            path: head.path(),
            query: head.query(),
            protocol: self.request.protocol(),
            remote: &peer.ip,
            headers: head.fields(),
            attributes,
            accepted_us: *accepted_us,
        }
    }
}
