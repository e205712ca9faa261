//! One request of HTTP/3, from its head to the end of its reply.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::{BoxFuture, Timer};
use pronghorn_h1::{self as h1, BodySize, Parts, Refusal, RequestHead, Version};
use pronghorn_wire::Fields;
use quinn::{RecvStream, SendStream};
use tokio::time::Instant;

use super::frame::{Code, DATA, Event, Frames, HEADERS, append_head};
use super::own::{GAPS, Own, SEND_WINDOW};
use super::qpack::{Encoder, Failed, Section};
use crate::body_error::BodyError;
use crate::client_memory::{Charge, UNCOUNTED};
use crate::connection_state::{ConnectionState, Running};
use crate::date;
use crate::detached::{DetachedBody, DetachedSource};
use crate::exchange::Exchange;
use crate::held_replies::NotStored;
use crate::message::{Body, Request, Response, Unhandled};
use crate::reader::Reader;
use crate::source::Read;

/// Bytes of a body that are sent as one, and that wait with their request while the client takes
/// nothing.
const PIECE: usize = 16 << 10;

/// A head, or why it is refused.
struct Received {
    head: Result<RequestHead, Refusal>,
    /// The client has broken a rule: there is an end of the stream, and no reply.
    is_malformed: bool,
    section: Section,
}

/// A request and the way back to its client.
struct Stream {
    running: Running<Own>,
    body: Option<StreamBody>,
    send: SendStream,
    /// Replies before the reply that are not out yet.
    informed: Vec<u8>,
    stopped: Option<BoxFuture<'static, ()>>,
    timer: Timer,
    /// When the head was complete.
    since: Instant,
    /// When the client last sent something of the body.
    heard: Instant,
    received: u64,
    owes_continue: bool,
    /// More of the body is awaited.
    is_silent: bool,
    sent: u64,
    /// How long the client has let its reply wait.
    waited: Duration,
    /// For what the client has not acknowledged.
    unacknowledged: Charge,
}

/// The body of a request.
struct StreamBody {
    frames: Frames,
    shared: Arc<ConnectionState<Own>>,
    /// The piece that came with the head.
    ahead: Option<Event>,
    /// Bytes that were announced and have not come.
    missing: Option<u64>,
    /// For trailers whose rest has not come.
    trailers: Charge,
    /// For pieces that come out of order.
    gaps: Charge,
}

impl std::fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamBody").finish_non_exhaustive()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.hear();
        self.running.shared.own.ended.notify_one();
    }
}

/// The client is gone, or must not get more.
struct Cut;

impl From<NotStored> for Cut {
    fn from(NotStored: NotStored) -> Self {
        Self
    }
}

/// Answers one request.
pub(super) async fn answer(running: Running<Own>, send: SendStream, receive: RecvStream) {
    let service = running.shared.entered.service().clone();
    let limits = service.limits.receive;
    let is_early = receive.is_0rtt();
    let mut stream = Stream {
        body: Some(StreamBody {
            frames: Frames::new(receive, limits.head),
            shared: running.shared.clone(),
            ahead: None,
            missing: None,
            trailers: Charge::default(),
            gaps: Charge::default(),
        }),
        running,
        send,
        informed: Vec::new(),
        stopped: None,
        timer: Timer::default(),
        since: Instant::now(),
        heard: Instant::now(),
        received: 0,
        owes_continue: false,
        is_silent: false,
        sent: 0,
        waited: Duration::ZERO,
        unacknowledged: Charge::default(),
    };
    let Some(received) = stream.read_head().await else {
        return;
    };
    let accepted = Instant::now();
    (stream.since, stream.heard) = (accepted, accepted);
    let shared = stream.running.shared.clone();
    let accepted_us = shared.time_of(accepted);
    let handler = service.handler();
    let peer = shared.peer.clone();
    let (mut framing, response) = match received.head {
        Ok(mut head) => {
            stream.running.holds(head.size());
            if is_early {
                // The application may want to be sure, too (RFC 8470, section 5.1).
                head.fields_mut().push("early-data", "1");
            }
            stream.owes_continue = head.expects_continue();
            stream.rank(&head);
            let framing = h1::Response::new(&head, true);
            let is_for_all = head.path() == b"*";
            let request = Request::new(Box::new(head), peer, accepted, accepted_us);
            let response = if is_early && !is_safe(request.head.method()) {
                let mut response = Response::plain(425, TOO_EARLY);
                response.on_sent = handler.unhandled(&Unhandled::of(&request));
                response
            } else if is_for_all {
                handler.answer_for_all(&request)
            } else {
                handler.handle(request, &mut stream).await
            };
            (framing, response)
        }
        Err(refusal) => {
            tracing::debug!(
                target: "http", remote_address = %peer.address, "request refused: {refusal}"
            );
            let section = &received.section;
            let mut response = handler.answer_refused(section.field("content-type"), refusal);
            // One that connects has no path, and names in HTTP/1.1 what is the authority here.
            let target = match section.path() {
                b"" => section.authority().unwrap_or_default(),
                path => path,
            };
            response.on_sent = handler.unhandled(&Unhandled {
                peer: &peer,
                method: section.method().as_bytes(),
                target,
                protocol: b"HTTP/3.0",
                accepted,
                accepted_us,
            });
            (h1::Response::to_unreadable(), response)
        }
    };
    stream.hear();
    if let Some(mut body) = stream.body.take() {
        // Nobody reads the rest; the reply is whole all the same (RFC 9114, section 4.1.1).
        body.frames.stop(Code::NO_ERROR);
    }
    let (status, on_sent) = (response.status, response.on_sent);
    if received.is_malformed {
        stream.reset(Code::MESSAGE_ERROR);
        shared.sent(on_sent, status, stream.sent, false, accepted);
        return;
    }
    // A client that is gone is told nothing; the record says what was sent.
    let sent = stream
        .send(&mut framing, status, &response.fields, response.body)
        .await;
    if framing.is_broken() {
        stream.reset(Code::INTERNAL_ERROR); // the client must not take it for whole
    } else if sent.is_err() {
        stream.reset(Code::REQUEST_CANCELLED);
    }
    let is_too_long = framing.is_too_long();
    shared.sent(on_sent, status, stream.sent, is_too_long, accepted);
    if sent.is_ok() {
        // Until the client has it, it is counted, and a stop waits for it.
        let acknowledged = stream.send.stopped();
        _ = tokio::time::timeout(service.limits.send_pause, acknowledged).await;
    }
}

impl Stream {
    /// Reads the head. None where the stream ends without one, or the connection does.
    async fn read_head(&mut self) -> Option<Received> {
        let service = self.running.shared.entered.service().clone();
        let limits = &service.limits.receive;
        let body = self.body.as_mut()?;
        let waiting = self.running.shared.silent();
        let running = &mut self.running;
        let event = poll_fn(|cx| {
            let event = body.frames.poll_next(cx);
            running.holds(body.frames.held());
            if event.is_pending() {
                body.expects_more();
            }
            event
        });
        let event = tokio::time::timeout(limits.head_time, event).await;
        drop(waiting);
        let refused = |refusal| Received {
            head: Err(refusal),
            is_malformed: false,
            section: Section::default(),
        };
        let block = match event {
            Ok(Ok(Event::Fields(block))) => block,
            Ok(Ok(Event::TooLong)) => return Some(refused(Refusal::HeadTooLong(limits.head))),
            Ok(Ok(Event::End)) => {
                self.reset(Code::REQUEST_INCOMPLETE);
                return None;
            }
            // A body comes after its head.
            Ok(Ok(Event::Data(_))) => return None,
            Ok(Err(ended)) => {
                self.running.shared.own.stream_ended(ended);
                return None;
            }
            Err(_) => {
                body.frames.stop(Code::REQUEST_REJECTED);
                self.reset(Code::REQUEST_REJECTED);
                return None;
            }
        };
        let section = match Section::read(&block, limits) {
            Ok(section) => section,
            Err(Failed::Refused(refusal)) => return Some(refused(refusal)),
            Err(Failed::NoQpack) => {
                self.running
                    .shared
                    .own
                    .close(Code::QPACK_DECOMPRESSION_FAILED);
                return None;
            }
        };
        if let Some(fault) = section.fault {
            return Some(Received {
                head: Err(Refusal::Syntax(fault.name())),
                is_malformed: true,
                section,
            });
        }
        let ends = match poll_fn(|cx| Poll::Ready(body.frames.poll_next(cx))).await {
            Poll::Ready(Ok(Event::End)) => true,
            Poll::Ready(Ok(event)) => {
                body.ahead = Some(event);
                false
            }
            Poll::Ready(Err(ended)) => {
                self.running.shared.own.stream_ended(ended);
                return None;
            }
            Poll::Pending => false,
        };
        let parts = Parts {
            version: Version::Http3,
            method: section.method(),
            authority: section.authority(),
            target: section.path(),
            fields: || section.fields(),
            ends,
        };
        let head = RequestHead::from_parts(&parts, limits);
        let mut is_malformed = false;
        if let Ok(head) = &head {
            body.missing = head.fields().get("content-length").and_then(number);
            is_malformed = body.missing.is_some_and(|missing| match &body.ahead {
                Some(Event::Data(bytes)) => bytes.len() as u64 > missing,
                _ => ends && missing > 0,
            });
        }
        let head = match head {
            Ok(_) if is_malformed => Err(Refusal::Syntax("a body of another length")),
            head => head,
        };
        if ends {
            self.body = None;
        } else {
            body.expects_more();
            if body
                .missing
                .is_none_or(|missing| missing > UNCOUNTED as u64)
            {
                let shared = &self.running.shared;
                shared.own.widen(&shared.entered, &shared.peer);
            }
        }
        Some(Received {
            head,
            is_malformed,
            section,
        })
    }

    /// The client's wish which reply goes first (RFC 9218, section 4).
    fn rank(&self, head: &RequestHead) {
        let urgency = head.fields().get("priority").and_then(|value| {
            let mut parts = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            parts.find_map(|part| match part {
                [b'u', b'=', digit @ b'0'..=b'7'] => Some(i32::from(digit - b'0')),
                _ => None,
            })
        });
        if let Some(urgency) = urgency {
            _ = self.send.set_priority(USUAL - urgency); // it has ended
        }
    }

    fn reset(&mut self, code: Code) {
        _ = self.send.reset(code.into()); // it has ended
    }

    /// More of the body came, or none is awaited any more.
    fn hear(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            self.running.shared.end_silence();
        }
    }

    async fn send(
        &mut self,
        framing: &mut h1::Response,
        status: u16,
        fields: &Fields,
        body: Body,
    ) -> Result<(), Cut> {
        let size = body.known_len().map_or(BodySize::Unknown, BodySize::Known);
        let length = framing.frame(status, fields, size);
        let mut out = std::mem::take(&mut self.informed);
        append_fields(&mut out, |block| {
            block.status(status);
            let mut has_date = false;
            for (name, value) in framing.head_fields(fields) {
                has_date |= name.eq_ignore_ascii_case(b"date");
                block.field(name, value);
            }
            if !has_date {
                date::with_now(Instant::now(), |date| block.field(b"date", date));
            }
            if let Some(length) = length {
                let mut text = itoa::Buffer::new();
                block.field(b"content-length", text.format(length).as_bytes());
            }
        });
        let has_trailers = framing.trailers(fields).next().is_some();
        let sends_body = framing.sends_body();
        if !sends_body || length == Some(0) && !has_trailers {
            self.write(&out).await?;
            self.finish();
            if sends_body {
                Reader::new(body).pass_over(framing).await;
            }
            return Ok(());
        }
        if let Some(length) = length {
            // All of the body is one frame.
            append_head(
                &mut out,
                DATA,
                usize::try_from(length).unwrap_or(usize::MAX),
            );
        }
        let is_framed = length.is_some();
        let mut reader = Reader::new(body);
        self.send_body(framing, &mut reader, out, is_framed).await?;
        if framing.is_broken() {
            return Ok(());
        }
        let more = reader.trailers();
        if has_trailers || more.is_some() {
            let mut out = Vec::new();
            append_fields(&mut out, |block| {
                let more = more.iter().flat_map(Fields::iter);
                for (name, value) in framing.trailers(fields).chain(more) {
                    block.field(name, value);
                }
            });
            self.write(&out).await?;
        }
        self.finish();
        if framing.is_complete() {
            reader.pass_over(framing).await;
        }
        Ok(())
    }

    /// Sends the body, `out` before it. `is_framed`: there is one frame around all of it already.
    async fn send_body(
        &mut self,
        framing: &mut h1::Response,
        reader: &mut Reader,
        mut out: Vec<u8>,
        is_framed: bool,
    ) -> Result<(), Cut> {
        let shared = self.running.shared.clone();
        let cost = reader.cost();
        let mut making = Charge::default();
        // For what the reader reads from a file; one at a time.
        let mut spilled = None;
        loop {
            let is_from_file = reader.is_at_file();
            if cost > 0 && reader.is_made() && making.is_none() {
                // An encoder takes more memory than most bodies.
                self.write(&out).await?;
                out.clear();
                making = shared.charged(cost);
            }
            // A file may come at any time. Streams that nobody reads must not fill the memory.
            reader.read_at_most(if is_from_file { PIECE } else { 1 });
            let silent = reader.is_news().then(|| shared.silent());
            let next = poll_fn(|cx| match reader.poll_next(cx) {
                Poll::Ready(next) => Poll::Ready(Some(next)),
                Poll::Pending => Poll::Ready(None),
            });
            let next = match next.await {
                Some(next) => next,
                None => {
                    // Pieces before it are on their way while more is awaited.
                    self.write(&out).await?;
                    out.clear();
                    let next = poll_fn(|cx| match reader.poll_next(cx) {
                        Poll::Ready(next) => Poll::Ready(Ok(next)),
                        // A stream may be silent for hours.
                        Poll::Pending => self.poll_gone(cx).map(|()| Err(Cut)),
                    });
                    next.await?
                }
            };
            drop(silent);
            let mut bytes = match next {
                // The worker's side has put the rest into a file meanwhile: as above.
                Read::Bytes(bytes) if !is_from_file && reader.is_in_file() => {
                    reader.read_again(bytes.len());
                    continue;
                }
                Read::Bytes(bytes) => bytes,
                Read::Broken => {
                    framing.abort();
                    return Ok(());
                }
                Read::End => break,
            };
            let mut held = None;
            while !bytes.is_empty() {
                let piece = bytes.split_to(bytes.len().min(PIECE));
                let piece = piece.slice(..framing.piece(piece.len()).take);
                if !is_framed && !piece.is_empty() {
                    append_head(&mut out, DATA, piece.len());
                }
                out.extend_from_slice(&piece);
                let written = self.write_now(&out)?;
                out.drain(..written);
                self.count(piece.len());
                if framing.has_fault() || framing.is_complete() {
                    break;
                }
                if out.is_empty() {
                    continue;
                }
                // It has to wait. What the worker has sent does not wait with the worker.
                if !is_from_file && held.is_none() {
                    let all = bytes.len() + reader.shut();
                    held = shared
                        .replies
                        .hold(all)
                        .map(|held| (held, shared.charged(all)));
                    if held.is_none() {
                        let mut all = vec![std::mem::take(&mut bytes)];
                        all.extend(reader.take_waiting());
                        let (file, counted) = shared.spill(all).await?;
                        drop(spilled.replace(counted));
                        reader.go_on_with(file);
                    }
                }
                self.write(&out).await?;
                out.clear();
            }
            if framing.has_fault() || framing.is_complete() {
                break;
            }
        }
        self.write(&out).await?;
        drop((making, spilled));
        if !framing.is_complete() {
            framing.end(&mut Vec::new(), &Fields::new());
        }
        Ok(())
    }

    /// So many more bytes of the body were given to be sent.
    fn count(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        let kept = usize::try_from(self.sent).unwrap_or(usize::MAX);
        let kept = kept.min(SEND_WINDOW as usize);
        let shared = &self.running.shared;
        if self.unacknowledged.is_none() {
            self.unacknowledged = shared.charged(kept);
        } else {
            self.unacknowledged.set(kept);
        }
    }

    /// Sends as much as there is room for.
    fn write_now(&mut self, bytes: &[u8]) -> Result<usize, Cut> {
        let mut written = 0;
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while written < bytes.len() {
            match Pin::new(&mut self.send).poll_write(&mut cx, &bytes[written..]) {
                Poll::Ready(Ok(more)) => written += more,
                Poll::Ready(Err(_)) => return Err(Cut),
                Poll::Pending => break,
            }
        }
        Ok(written)
    }

    /// Sends all of it, and waits for room as long as the client may let it wait.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        let mut written = self.write_now(bytes)?;
        if written == bytes.len() {
            return Ok(());
        }
        let shared = self.running.shared.clone();
        let _unread = shared.unread();
        let limits = &shared.entered.service().limits;
        while written < bytes.len() {
            let since = Instant::now();
            let until = limits.untaken_until(since, since, self.sent, self.waited);
            let more =
                poll_fn(
                    |cx| match Pin::new(&mut self.send).poll_write(cx, &bytes[written..]) {
                        Poll::Ready(more) => Poll::Ready(more.map_err(|_| Cut)),
                        Poll::Pending => self.timer.poll(cx, Some(until)).map(|()| Err(Cut)),
                    },
                );
            written += more.await?;
            self.waited += since.elapsed();
            shared.has_moved();
        }
        Ok(())
    }

    fn finish(&mut self) {
        _ = self.send.finish(); // the client wants no more of it
    }
}

/// The answer to a request that changes something, before it is certain that its client has sent
/// it: the client sends it once more.
const TOO_EARLY: &str = "the request came before the end of the handshake: send it again\n";

/// Whether a request with this method may be had twice (RFC 9110, section 9.2.1).
fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// The urgency of replies of which a client says nothing (RFC 9218, section 4.1).
const USUAL: i32 = 3;

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Appends a frame with a block of fields.
fn append_fields(to: &mut Vec<u8>, fill: impl FnOnce(&mut Encoder)) {
    let mut encoder = Encoder::new();
    fill(&mut encoder);
    append_head(to, HEADERS, encoder.block.len());
    to.extend(encoder.block);
}

impl DetachedSource for StreamBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            let event = match self.ahead.take() {
                Some(event) => Ok(event),
                None => match self.frames.poll_next(cx) {
                    Poll::Ready(event) => event,
                    Poll::Pending => {
                        self.trailers = self.shared.charged(self.frames.held());
                        return Poll::Pending;
                    }
                },
            };
            match event {
                Ok(Event::Data(bytes)) => {
                    if let Some(missing) = &mut self.missing {
                        let Some(left) = missing.checked_sub(bytes.len() as u64) else {
                            return Poll::Ready(self.malformed());
                        };
                        *missing = left;
                    }
                    return Poll::Ready(Ok(Some(bytes)));
                }
                Ok(Event::Fields(block)) => {
                    let limits = &self.shared.entered.service().limits.receive;
                    match Section::are_trailers(&block, limits) {
                        Ok(Some(false)) => return Poll::Ready(self.malformed()),
                        Ok(Some(true) | None) => {}
                        Err(_) => {
                            self.shared.own.close(Code::QPACK_DECOMPRESSION_FAILED);
                            return Poll::Ready(Err(BodyError::Gone));
                        }
                    }
                }
                Ok(Event::TooLong | Event::End) => {
                    if self.missing.is_some_and(|missing| missing > 0) {
                        return Poll::Ready(self.malformed());
                    }
                    return Poll::Ready(Ok(None));
                }
                Err(ended) => {
                    self.shared.own.stream_ended(ended);
                    return Poll::Ready(Err(BodyError::Gone));
                }
            }
        }
    }
}

impl StreamBody {
    /// Not all of the request has come.
    fn expects_more(&mut self) {
        if self.gaps.is_none() {
            self.gaps = self.shared.charged(GAPS);
        }
    }

    /// The client has broken a rule about this request.
    fn malformed(&mut self) -> Result<Option<Bytes>, BodyError> {
        self.frames.stop(Code::MESSAGE_ERROR);
        Err(BodyError::Refused(Refusal::Syntax(
            "a body of another length, or its trailers",
        )))
    }
}

impl Exchange for Stream {
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(None));
        };
        match body.poll_next(cx) {
            Poll::Ready(Ok(Some(bytes))) => {
                self.hear();
                self.owes_continue = false;
                self.received += bytes.len() as u64;
                self.heard = Instant::now();
                return Poll::Ready(Ok(Some(bytes)));
            }
            Poll::Ready(Ok(None)) => {
                self.hear();
                self.body = None;
                return Poll::Ready(Ok(None));
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {}
        }
        if !std::mem::replace(&mut self.is_silent, true) {
            self.running.shared.begin_silence();
        }
        if std::mem::take(&mut self.owes_continue) {
            self.inform(100, &Fields::new());
        }
        _ = self.poll_flush(cx); // the body is awaited whatever becomes of it
        let limits = &self.running.shared.entered.service().limits.receive;
        let until = limits.body_deadline(
            Duration::ZERO,
            self.heard.saturating_duration_since(self.since),
            self.received,
        );
        let until = self.since + until;
        let late = self.timer.poll(cx, Some(until));
        late.map(|()| Err(BodyError::TooSlow))
    }

    fn detach_body(&mut self) -> Option<DetachedBody> {
        self.hear();
        let body = self.body.take()?;
        Some(DetachedBody::of_source(body))
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let stopped = self.stopped.get_or_insert_with(|| {
            let stopped = self.send.stopped();
            Box::pin(async move {
                _ = stopped.await; // an error is the end of the connection
            })
        });
        stopped.as_mut().poll(cx)
    }

    fn charge(&self) -> Charge {
        self.running.shared.charge()
    }

    fn uncounted(&self) -> usize {
        self.running.shared.uncounted()
    }

    fn inform(&mut self, status: u16, fields: &Fields) {
        // There is no 101 here (RFC 9114, section 4.5).
        if status == 101 {
            return;
        }
        append_fields(&mut self.informed, |block| {
            block.status(status);
            for (name, value) in h1::interim_fields(fields) {
                block.field(name, value);
            }
        });
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.informed.is_empty() {
            match ready!(Pin::new(&mut self.send).poll_write(cx, &self.informed)) {
                Ok(written) => _ = self.informed.drain(..written),
                // Whoever waits for the client sees that it is gone.
                Err(_) => self.informed.clear(),
            }
        }
        Poll::Ready(())
    }
}
