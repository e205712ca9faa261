//! Answers calls: by a worker, or here.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::{BoxFuture, LogThrottle};
use pronghorn_grpc_wire::{
    Answers, Call, Code, Decoder, FrameError, Input, Messages, Metadata, MethodPath, Reply,
    ReplyBody, Status, Streamed, is_for_the_transport, too_long,
};
use pronghorn_pool::ReplyBody as WorkerBody;
use pronghorn_pool::{Answer, CallError, NotWhole, Pool, Reply as WorkerReply, Terms};
use pronghorn_serve::{Body, Read, Reader, request_number};
use pronghorn_trace::Recorder;
use pronghorn_wire::Head;
use pronghorn_wire::native::Thrown;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::call::GrpcCall;
use crate::health::{ServingState, stopped};
use crate::metrics::Metrics;
use crate::proto::Method;
use crate::reflection::{Catalogue, Conversation, METHOD, SERVICES};
use crate::reply::{Lines, foreign, lines, status_of};
use crate::table::{HEALTH, ServiceTable};
use crate::tls::peer_metadata;
use crate::trace::CallTrace;
use crate::uplink::Uplink;

/// A client's deadline does not end a worker sooner than this: to begin and be ended costs a worker
/// more than most calls, and clients choose their deadlines.
const LEAST_DEADLINE: Duration = Duration::from_secs(1);

/// The class in a record of a call that `exit` has ended.
const EXIT: &str = "exit";

/// The handler of calls, made anew by each reload.
pub(crate) struct Calls {
    pub(crate) table: Arc<ServiceTable>,
    pub(crate) pool: Pool,
    /// For methods that stream.
    pub(crate) stream_pool: Pool,
    pub(crate) metrics: Metrics,
    pub(crate) state: ServingState,
    pub(crate) catalogue: Arc<Catalogue>,
    /// Bytes that a message of a worker may have.
    pub(crate) most: usize,
    /// None while nobody wants traces.
    pub(crate) recorder: Option<Arc<Recorder>>,
}

/// Tells how a call ended, once.
#[derive(Debug)]
struct Record {
    /// Its path; empty where no service has it.
    method: Arc<str>,
    peer: String,
    request_id: Option<Box<str>>,
    trace: Option<Arc<CallTrace>>,
    metrics: Metrics,
    begun: Instant,
    deadline: Option<Instant>,
    told: bool,
}

impl Record {
    fn end(&mut self, status: &Status) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let took = self.begun.elapsed();
        self.metrics.ended(&self.method, status.code, took);
        if let Some(trace) = &self.trace {
            trace.end(status, took);
        }
        let elapsed = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let (method, remote_address) = (&*self.method, &*self.peer);
        let request_id = self.request_id.as_deref();
        let trace_id = || self.trace.as_ref().map(|trace| trace.id());
        if status.code == Code::Ok {
            tracing::debug!(
                target: "grpc", method, URI = method, remote_address, elapsed, request_id, trace_id = trace_id(),
                "method was called successfully"
            );
            return;
        }
        // A method that no file has is the mistake of whoever calls it.
        static UNANSWERED: LogThrottle = LogThrottle::new();
        if status.code == Code::Unimplemented
            && !method.is_empty()
            && let Some(calls) = UNANSWERED.should_log()
        {
            tracing::warn!(
                target: "grpc", method, URI = method, remote_address, calls, request_id,
                trace_id = trace_id(),
                "a method of `grpc.proto` is not implemented: {} (hint: the worker registers each service \
                 under its name in the `.proto` file, with its package, and an object that has the method)",
                status.message
            );
            return;
        }
        if !is_the_servers(status.code) {
            tracing::debug!(
                target: "grpc", method, URI = method, remote_address, elapsed, status = %status.code,
                request_id, trace_id = trace_id(),
                "method call was finished with error: {}", status.message
            );
            return;
        }
        // A client may call what fails as often as it likes.
        static FAILED: LogThrottle = LogThrottle::new();
        if let Some(times) = FAILED.should_log() {
            tracing::warn!(
                target: "grpc", method, URI = method, remote_address, elapsed, times, status = %status.code,
                request_id, trace_id = trace_id(),
                "method call was finished with error: {}", status.message
            );
        }
    }
}

/// Whether somebody who runs the server may have to do something about such a status.
const fn is_the_servers(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

impl Drop for Record {
    /// The client has left, or its deadline has passed.
    fn drop(&mut self) {
        let is_late = self
            .deadline
            .is_some_and(|deadline| deadline <= Instant::now());
        self.end(&if is_late {
            Status::new(Code::DeadlineExceeded, "the client's deadline passed")
        } else {
            Status::new(Code::Cancelled, "the client left")
        });
    }
}

impl Answers for Calls {
    fn answer<'a>(&'a self, call: Call, input: &'a mut Input<'_>) -> BoxFuture<'a, Reply> {
        Box::pin(self.respond(call, input))
    }
}

impl Calls {
    async fn respond(&self, mut call: Call, input: &mut Input<'_>) -> Reply {
        let MethodPath { service, method } = &call.method;
        let found = self.table.method(service, method);
        if found.is_none() && method == METHOD && SERVICES.contains(&&**service) {
            return match input.detach() {
                Some(messages) => {
                    let (catalogue, stopping) =
                        (self.catalogue.clone(), self.state.stopping().clone());
                    Reply::stream(Conversation::new(catalogue, messages, stopping))
                }
                None => Reply::ended(Status::new(Code::Unimplemented, "reflection needs HTTP/2")),
            };
        }
        if found.is_none() && service == HEALTH {
            return match input.only().await {
                Ok(_) => self.state.answer(method, self.table.iter().map(|it| it.0)),
                Err(status) => Reply::ended(status),
            };
        }
        self.metrics.begun();
        let recorder = self.recorder.as_ref();
        let trace = recorder.map(|recorder| {
            let trace = CallTrace::begin(recorder, &mut call, found.is_some());
            Arc::new(trace)
        });
        let request_id = call.metadata.get("x-request-id");
        let mut record = Record {
            method: match found {
                Some(_) => call.method.full().into(),
                None => Arc::default(),
            },
            peer: call.peer.shown_address(),
            request_id: request_id.and_then(|value| request_number(value.bytes())),
            trace,
            metrics: self.metrics.clone(),
            begun: call.accepted,
            deadline: call.deadline,
            told: false,
        };
        let mut reply = match found {
            Some(method) => self.ask(call, method, input, &record).await,
            None => Reply::ended(self.unknown(&call.method)),
        };
        match &mut reply.body {
            ReplyBody::Empty(ending) | ReplyBody::One(_, ending) => record.end(&ending.status),
            ReplyBody::Stream(_) => {
                let body = std::mem::replace(&mut reply.body, ReplyBody::Empty(Status::OK.into()));
                if let ReplyBody::Stream(source) = body {
                    reply.body = ReplyBody::Stream(Box::new(Recorded { source, record }));
                }
            }
        }
        reply
    }

    fn unknown(&self, MethodPath { service, method }: &MethodPath) -> Status {
        let text = match self.table.get(service) {
            Some(_) => format!("unknown method {method} for service {service}"),
            None => format!("unknown service {service}"),
        };
        Status::new(Code::Unimplemented, text)
    }

    /// Answers a call by a worker.
    async fn ask(
        &self,
        call: Call,
        method: &Method,
        input: &mut Input<'_>,
        record: &Record,
    ) -> Reply {
        let is_stream = method.client_streams || method.server_streams;
        let pool = if is_stream {
            &self.stream_pool
        } else {
            &self.pool
        };
        let (mut message, mut uplink, mut messages) = (Bytes::new(), None, None);
        if method.client_streams {
            let Some(detached) = input.detach() else {
                let what = "a client that streams needs HTTP/2";
                return Reply::ended(Status::new(Code::Unimplemented, what));
            };
            let (begun, stream) = Uplink::new(detached);
            (uplink, messages) = (Some(begun), Some(stream));
        } else {
            message = match input.only().await {
                Ok(message) => message,
                Err(status) => return Reply::ended(status),
            };
        }
        let now = Instant::now();
        let terms = Terms {
            deadline: call.deadline.map(|deadline| {
                let left = deadline.saturating_duration_since(now).max(LEAST_DEADLINE);
                pool.exec_ttl().map_or(left, |ttl| ttl.min(left))
            }),
            ..Terms::default()
        };
        let (accepted, address) = (call.accepted, call.peer.address);
        let payload = Arc::new(GrpcCall {
            context: context_of(&call),
            service: call.method.service,
            method: call.method.method,
            client_streams: method.client_streams,
            server_streams: method.server_streams,
            message,
            messages: Mutex::new(messages),
            accepted_us: call.accepted_us,
            is_repeatable: false,
            path: record.method.clone(),
            request_id: record.request_id.clone(),
            remote_address: record.peer.clone(),
            trace: record.trace.clone(),
        });
        if let Some(trace) = &record.trace {
            trace.asks(pool.name());
        }
        let mut pending = pool.call(payload, terms, accepted, now);
        let answer = poll_fn(|cx| {
            if input.poll_gone(cx).is_ready() {
                return Poll::Ready(Err(Status::new(Code::Cancelled, "the client left")));
            }
            if let Some(uplink) = &mut uplink
                && let Poll::Ready(status) = uplink.poll_failed(cx)
            {
                return Poll::Ready(Err(status));
            }
            loop {
                match std::task::ready!(pending.poll_answer(cx)) {
                    Ok(Answer::Interim(_)) => {}
                    Ok(Answer::Reply(reply)) => return Poll::Ready(Ok(Ok(reply))),
                    Err(error) => return Poll::Ready(Ok(Err(error))),
                }
            }
        });
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = self.state.cut().cancelled() => Err(stopped()),
        };
        match answer {
            Err(status) => Reply::ended(status),
            Ok(Ok(reply)) => {
                let is_stream = method.server_streams;
                if let WorkerBody::Pieces { pieces, .. } = &reply.body
                    && let Some(client) = input.spool_client(address)
                {
                    pieces.hold_for(client);
                }
                self.reply(*reply, is_stream, uplink, pool, record).await
            }
            Ok(Err(error)) => {
                if let CallError::Thrown(thrown) = &error {
                    Teller::new(pool, record).tell(thrown);
                }
                Reply::ended(status_of(&error))
            }
        }
    }

    /// Makes a reply of what a worker has answered.
    async fn reply(
        &self,
        reply: WorkerReply,
        is_stream: bool,
        uplink: Option<Uplink>,
        pool: &Pool,
        record: &Record,
    ) -> Reply {
        let WorkerReply { head, body } = reply;
        let body = match body {
            WorkerBody::Whole(content) => Body::Whole(content.into()),
            WorkerBody::Pieces { pieces, len } => Body::Pieces { pieces, len },
            WorkerBody::File(_) => {
                let what = "the worker answered with a file";
                return Reply::ended(Status::new(Code::Internal, what));
            }
        };
        if let Head::Context(context) = &head {
            return match body {
                Body::Whole(message) => foreign(context, message),
                // One that is long: its length was announced.
                Body::Pieces {
                    pieces,
                    len: Some(_),
                } => match pieces.whole(self.most).await {
                    Ok(message) => foreign(context, message),
                    Err(why) => Reply::ended(not_whole(&why)),
                },
                _ => {
                    let what = "streaming is not supported by this package of the worker";
                    Reply::ended(Status::new(Code::Unknown, what))
                }
            };
        }
        let cut = Box::pin(self.state.cut().clone().cancelled_owned());
        let (exec_ttl, teller) = (pool.exec_ttl(), Teller::new(pool, record));
        let mut stream = WorkerStream::new(body, self.most, uplink, exec_ttl, cut, teller);
        let headers = match poll_fn(|cx| stream.poll_headers(cx)).await {
            Ok(headers) => headers,
            Err(status) => return Reply::ended(status),
        };
        let body = if is_stream {
            ReplyBody::Stream(Box::new(stream))
        } else {
            match poll_fn(|cx| stream.poll_next(cx)).await {
                Messages::End(ending) => ReplyBody::Empty(ending),
                Messages::Message(message) => match poll_fn(|cx| stream.poll_next(cx)).await {
                    Messages::End(ending) if ending.status.code == Code::Ok => {
                        ReplyBody::One(message, ending)
                    }
                    Messages::End(ending) => ReplyBody::Empty(ending),
                    Messages::Message(_) => {
                        let what = "the worker answered with more than one message";
                        ReplyBody::Empty(Status::new(Code::Internal, what).into())
                    }
                },
            }
        };
        Reply { headers, body }
    }
}

fn not_whole(why: &NotWhole) -> Status {
    let (code, text) = match why {
        NotWhole::TooLong(most) => {
            let text = format!("grpc: trying to send message larger than max {most}");
            (Code::ResourceExhausted, text)
        }
        NotWhole::BrokenOff => {
            let text = "the worker ended before its reply was complete";
            (Code::Unavailable, text.to_owned())
        }
        NotWhole::Unreadable(error) => (Code::Internal, error.to_string()),
    };
    Status::new(code, text)
}

/// Tells what a method threw: the client learns nothing of it, so the record has all.
#[derive(Debug)]
struct Teller {
    pool: Pool,
    method: Arc<str>,
    request_id: Option<Box<str>>,
}

impl Teller {
    fn new(pool: &Pool, record: &Record) -> Self {
        Self {
            pool: pool.clone(),
            method: record.method.clone(),
            request_id: record.request_id.clone(),
        }
    }

    fn tell(&self, thrown: &Thrown) {
        let what = if thrown.class == EXIT {
            "called exit"
        } else {
            "threw"
        };
        self.pool.tell_failure(|left_out| {
            tracing::error!(
                target: "grpc", class = thrown.class, file = thrown.file, line = thrown.line,
                method = &*self.method, request_id = self.request_id.as_deref(),
                pool = self.pool.name(), trace = thrown.trace, left_out,
                "a method {what}: {thrown}"
            );
        });
    }
}

/// Everything that PHP finds beside the message: the client's metadata and what is known of it.
fn context_of(call: &Call) -> Metadata {
    let mut context = Metadata::new();
    context.push(":authority", call.authority.as_bytes());
    for (name, value) in call.metadata.iter() {
        let is_known = matches!(name, "content-type" | "grpc-accept-encoding");
        if is_known || !is_for_the_transport(name) {
            context.push_value(name, value.clone());
        }
    }
    peer_metadata(&call.peer, &mut context);
    context
}

/// A stream whose end is noted.
#[derive(Debug)]
struct Recorded {
    source: Box<dyn Streamed>,
    record: Record,
}

impl Streamed for Recorded {
    fn is_news(&self) -> bool {
        self.source.is_news()
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Messages> {
        let next = std::task::ready!(self.source.poll_next(cx));
        if let Messages::End(ending) = &next {
            self.record.end(&ending.status);
        }
        Poll::Ready(next)
    }
}

/// Messages of one of our workers: framed as in gRPC-Web, with lines of metadata before and behind.
#[derive(Debug)]
struct WorkerStream {
    /// While the client streams as well.
    uplink: Option<Uplink>,
    reader: Reader,
    decoder: Decoder,
    ready: Option<Messages>,
    /// The time that the worker has for a message.
    exec_ttl: Option<Duration>,
    heard: Instant,
    /// Ready when a stop waits no longer.
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    teller: Teller,
}

impl WorkerStream {
    fn new(
        body: Body,
        most: usize,
        uplink: Option<Uplink>,
        exec_ttl: Option<Duration>,
        cut: Pin<Box<WaitForCancellationFutureOwned>>,
        teller: Teller,
    ) -> Self {
        Self {
            uplink,
            reader: Reader::new(body),
            decoder: Decoder::of_worker(most),
            ready: None,
            exec_ttl,
            heard: Instant::now(),
            cut,
            teller,
        }
    }

    /// Waits for the first message or the end, and gives the metadata before that.
    fn poll_headers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Metadata, Status>> {
        match std::task::ready!(self.poll_part(cx)) {
            Part::Headers(headers) => Poll::Ready(Ok(headers)),
            Part::Message(message) => {
                self.ready = Some(message);
                Poll::Ready(Ok(Metadata::new()))
            }
        }
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Part> {
        let ended = |status: Status| Poll::Ready(Part::Message(Messages::End(status.into())));
        let failed = |what: &str| ended(Status::new(Code::Internal, what));
        loop {
            match self.decoder.take() {
                Ok(Some(part)) if part.trailers => {
                    return Poll::Ready(match lines(&part.bytes) {
                        Lines::Headers(headers) => Part::Headers(headers),
                        Lines::End(ending, thrown) => {
                            if let Some(thrown) = &thrown {
                                self.teller.tell(thrown);
                            }
                            Part::Message(Messages::End(ending))
                        }
                    });
                }
                Ok(Some(part)) => {
                    return Poll::Ready(Part::Message(Messages::Message(part.bytes)));
                }
                Ok(None) => {}
                Err(FrameError::TooLong { announced, most }) => {
                    let announced = usize::try_from(announced).unwrap_or(usize::MAX);
                    return ended(too_long(announced, most));
                }
                Err(FrameError::Flag(_)) => {
                    return failed("the worker's reply is none of messages");
                }
            }
            if let Some(uplink) = &mut self.uplink
                && let Poll::Ready(status) = uplink.poll_failed(cx)
            {
                return ended(status);
            }
            // First: a worker may yield without a pause.
            if self.cut.as_mut().poll(cx).is_ready() {
                return ended(stopped());
            }
            match std::task::ready!(self.reader.poll_next(cx)) {
                Read::Bytes(bytes) => {
                    self.heard = Instant::now();
                    self.decoder.add(&bytes);
                }
                Read::End => return failed("the worker's reply has no end"),
                Read::Broken => {
                    let is_late = self.exec_ttl.is_some_and(|ttl| self.heard.elapsed() >= ttl);
                    return ended(if is_late {
                        status_of(&CallError::Deadline)
                    } else {
                        not_whole(&NotWhole::BrokenOff)
                    });
                }
            }
        }
    }
}

/// A part of a worker's reply.
enum Part {
    Headers(Metadata),
    Message(Messages),
}

impl Streamed for WorkerStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Messages> {
        if let Some(ready) = self.ready.take() {
            return Poll::Ready(ready);
        }
        loop {
            if let Part::Message(message) = std::task::ready!(self.poll_part(cx)) {
                return Poll::Ready(message);
            }
        }
    }
}
