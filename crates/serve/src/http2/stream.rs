//! One request of HTTP/2, from its head to the end of its reply.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pronghorn_base::Timer;
use pronghorn_h1::{self as h1, BodySize, Parts, Refusal, RequestHead, Version};
use pronghorn_wire::Fields;
use tokio::time::Instant;

use super::block::MARK;
use super::guard::Signs;
use crate::body_error::BodyError;
use crate::client_memory::Charge;
use crate::connection_state::Running;
use crate::date;
use crate::detached::DetachedBody;
use crate::exchange::Exchange;
use crate::field_name::Fault;
use crate::held_replies::NotStored;
use crate::limits::Limits;
use crate::message::{Body, Request, Unhandled};
use crate::reader::{FILE_PIECE, Reader};
use crate::source::Read;

/// A request and the way back to its client.
struct Stream {
    running: Running<Arc<Signs>>,
    /// Until its end was seen, or nobody wants the rest: `h2` keeps what came as long as this is
    /// there, trailers too.
    body: Option<RecvStream>,
    respond: SendResponse<Bytes>,
    timer: Timer,
    /// When the head was complete.
    since: Instant,
    /// When the client last sent something of the body.
    heard: Instant,
    received: u64,
    /// Bytes of the body that the handler has and for which the client may not send more yet.
    held: usize,
    owes_continue: bool,
    /// More of the body is awaited.
    is_silent: bool,
    sent: u64,
    /// How long the client has let its reply wait.
    waited: Duration,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.hear();
    }
}

/// The client is gone, or must not get more.
struct Cut;

/// Answers one request.
pub(super) async fn answer(
    mut running: Running<Arc<Signs>>,
    request: http::Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let accepted = Instant::now();
    let service = running.shared.entered.service().clone();
    let (parts, body) = request.into_parts();
    let limits = &service.limits.receive;
    let fault = running
        .shared
        .own
        .marked()
        .then(|| parts.headers.get(MARK))
        .flatten()
        .map(|mark| Fault::of(mark.as_bytes()));
    let head = match fault {
        Some(Fault::TooMany) => Err(Refusal::TooManyFields(limits.fields)),
        Some(fault) => Err(Refusal::Syntax(fault.name())),
        None => head(&parts, &body, &service.limits),
    };
    let is_malformed = fault.is_some_and(|fault| fault != Fault::TooMany);
    // All of it is in the head now, or not wanted. Each part keeps the whole buffer that it was
    // read into, and a reply may wait for minutes.
    let handler = service.handler();
    let head = head.map_err(|refusal| {
        let content = parts.headers.get(http::header::CONTENT_TYPE);
        let response = handler.answer_refused(content.map(HeaderValue::as_bytes), refusal);
        (refusal, response, parts.method, parts.uri)
    });
    drop(parts.headers);
    running.holds(head.as_ref().map_or(0, RequestHead::size));
    let accepted_us = running.shared.time_of(accepted);
    let mut stream = Stream {
        running,
        body: Some(body),
        respond,
        timer: Timer::default(),
        since: accepted,
        heard: accepted,
        received: 0,
        held: 0,
        owes_continue: false,
        is_silent: false,
        sent: 0,
        waited: Duration::ZERO,
    };
    let (mut framing, response) = match head {
        Ok(head) => {
            stream.owes_continue = head.expects_continue();
            let framing = h1::Response::new(&head, true);
            let is_for_all = head.path() == b"*";
            let peer = stream.running.shared.peer.clone();
            let request = Request::new(Box::new(head), peer, accepted, accepted_us);
            let response = if is_for_all {
                handler.answer_for_all(&request)
            } else {
                handler.handle(request, &mut stream).await
            };
            (framing, response)
        }
        Err((refusal, mut response, method, uri)) => {
            let peer = &stream.running.shared.peer;
            tracing::debug!(
                target: "http", remote_address = %peer.address,
                "request refused: {refusal}"
            );
            // One that connects has no path, and names in HTTP/1.1 what is the authority here.
            let authority = || uri.authority().map(http::uri::Authority::as_str);
            let target = uri.path_and_query().map(http::uri::PathAndQuery::as_str);
            let target = target.or_else(authority).unwrap_or_default();
            response.on_sent = handler.unhandled(&Unhandled {
                peer,
                method: method.as_str().as_bytes(),
                target: target.as_bytes(),
                protocol: b"HTTP/2.0",
                accepted,
                accepted_us,
            });
            (h1::Response::to_unreadable(), response)
        }
    };
    stream.hear();
    stream.body = None;
    let (status, on_sent) = (response.status, response.on_sent);
    if is_malformed {
        // An error of the stream (RFC 9113, section 8.1.1). A reply before it would have to be out
        // first.
        stream.respond.send_reset(Reason::PROTOCOL_ERROR);
        let shared = &stream.running.shared;
        shared.sent(on_sent, status, stream.sent, false, accepted);
        return;
    }
    // A client that is gone is told nothing; the record says what was sent.
    _ = stream
        .send(&mut framing, status, &response.fields, response.body)
        .await;
    let (shared, is_too_long) = (&stream.running.shared, framing.is_too_long());
    shared.sent(on_sent, status, stream.sent, is_too_long, accepted);
}

fn head(
    parts: &http::request::Parts,
    body: &RecvStream,
    limits: &Limits,
) -> Result<RequestHead, Refusal> {
    let target = parts.uri.path_and_query();
    let parts = Parts {
        version: Version::Http2,
        method: parts.method.as_str(),
        authority: parts.uri.authority().map(|host| host.as_str().as_bytes()),
        target: target.map_or(&b""[..], |target| target.as_str().as_bytes()),
        fields: || {
            let fields = parts.headers.iter();
            fields.map(|(name, value)| {
                let value = value.as_bytes();
                let value = if limits.http2.trims {
                    value.trim_ascii()
                } else {
                    value
                };
                (name.as_str().as_bytes(), value)
            })
        },
        ends: body.is_end_stream(),
    };
    RequestHead::from_parts(&parts, &limits.receive)
}

/// Fields as `h2` takes them, without blanks around values (RFC 9113, section 8.2.1). What it would
/// not take was refused where the reply came in.
fn header_map<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(8);
    for (name, value) in fields {
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name),
            HeaderValue::from_bytes(value.trim_ascii()),
        ) {
            map.append(name, value);
        }
    }
    map
}

impl Stream {
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
        let mut map = header_map(framing.head_fields(fields));
        if !map.contains_key(http::header::DATE) {
            date::with_now(Instant::now(), |date| {
                if let Ok(date) = HeaderValue::from_bytes(date) {
                    map.insert(http::header::DATE, date);
                }
            });
        }
        if let Some(length) = length {
            map.insert(http::header::CONTENT_LENGTH, length.into());
        }
        let mut head = http::Response::new(());
        *head.status_mut() = StatusCode::from_u16(status).map_err(|_| Cut)?;
        *head.headers_mut() = map;

        let trailers = header_map(framing.trailers(fields));
        let is_all = !framing.sends_body() || length == Some(0) && trailers.is_empty();
        let mut out = self.respond.send_response(head, is_all)?;
        if is_all {
            if framing.sends_body() {
                Reader::new(body).pass_over(framing).await;
            }
            return Ok(());
        }
        let sent = self.send_body(framing, &mut out, body, trailers).await;
        if framing.is_broken() {
            // The client must not take it for whole.
            out.send_reset(Reason::INTERNAL_ERROR);
        } else if sent.is_err() {
            out.send_reset(Reason::CANCEL);
        }
        sent
    }

    async fn send_body(
        &mut self,
        framing: &mut h1::Response,
        out: &mut SendStream<Bytes>,
        body: Body,
        mut trailers: HeaderMap,
    ) -> Result<(), Cut> {
        let mut reader = Reader::new(body);
        let shared = self.running.shared.clone();
        let cost = reader.cost();
        let mut making = Charge::default();
        // For what the reader reads from a file; one at a time.
        let mut spilled = None;
        loop {
            // A file is read only as far as there is room. Streams that nobody reads would fill the
            // memory.
            let mut reading = 0;
            let is_from_file = reader.is_at_file();
            if cost > 0 && reader.is_made() {
                // An encoder takes more memory than most bodies.
                self.room(out, 1).await?;
                if making.is_none() {
                    making = shared.charged(cost);
                }
            } else if is_from_file {
                reading = self.room(out, FILE_PIECE).await?.min(FILE_PIECE);
                reader.read_at_most(reading);
                shared.own.begin_reading(reading);
            } else {
                reader.read_at_most(1); // a file may come now
            }
            let silent = reader.is_news().then(|| shared.silent());
            let next = poll_fn(|cx| match reader.poll_next(cx) {
                Poll::Ready(next) => Poll::Ready(Ok(next)),
                // A stream may be silent for hours.
                Poll::Pending => out.poll_reset(cx).map(|_| Err(Cut)),
            });
            let next = next.await;
            drop(silent);
            if reading > 0 {
                shared.own.end_reading(reading);
            }
            match next? {
                // The worker's side has put the rest into a file meanwhile: as above.
                Read::Bytes(bytes) if !is_from_file && reader.is_in_file() => {
                    reader.read_again(bytes.len());
                }
                Read::Bytes(bytes) => {
                    let signs = &shared.own;
                    let fits = is_from_file || {
                        out.reserve_capacity(bytes.len());
                        out.capacity() >= bytes.len() && signs.has_room()
                    };
                    let waiting = if fits { 0 } else { reader.shut() };
                    let all = bytes.len() + waiting;
                    let held = if fits { None } else { shared.replies.hold(all) };
                    if !fits && held.is_none() {
                        let mut all = vec![bytes];
                        all.extend(reader.take_waiting());
                        let (file, counted) = shared.spill(all).await?;
                        drop(spilled.replace(counted));
                        reader.go_on_with(file);
                        continue;
                    }
                    let counted = held.map(|held| (held, shared.charged(all)));
                    let bytes = bytes.slice(..framing.piece(bytes.len()).take);
                    let is_last = framing.is_complete() && trailers.is_empty();
                    self.send_bytes(out, bytes, is_last).await?;
                    if is_last {
                        drop((counted, making, spilled));
                        reader.pass_over(framing).await;
                        return Ok(());
                    }
                    if framing.has_fault() {
                        break;
                    }
                }
                Read::Broken => {
                    framing.abort();
                    return Ok(());
                }
                Read::End => break,
            }
        }
        framing.end(&mut Vec::new(), &Fields::new());
        if framing.is_broken() {
            return Ok(());
        }
        if let Some(more) = reader.trailers() {
            trailers.extend(header_map(more.iter()));
        }
        if trailers.is_empty() {
            out.send_data(Bytes::new(), true)?;
        } else {
            out.send_trailers(trailers)?;
        }
        Ok(())
    }

    /// Sends what the client has room for, and waits for more room.
    async fn send_bytes(
        &mut self,
        out: &mut SendStream<Bytes>,
        mut bytes: Bytes,
        is_last: bool,
    ) -> Result<(), Cut> {
        while !bytes.is_empty() {
            let room = self.room(out, bytes.len()).await?;
            if room == 0 {
                continue; // the client has taken it back
            }
            let piece = bytes.split_to(room.min(bytes.len()));
            self.sent += piece.len() as u64;
            self.running.shared.own.queue(piece.len());
            out.send_data(piece, is_last && bytes.is_empty())?;
        }
        Ok(())
    }

    /// Waits until the client takes more, and the connection has written what it has. Says how much
    /// may be sent then.
    async fn room(&mut self, out: &mut SendStream<Bytes>, wanted: usize) -> Result<usize, Cut> {
        out.reserve_capacity(wanted);
        if out.capacity() == 0 {
            let _unread = self.running.shared.unread();
            let since = Instant::now();
            let limits = &self.running.shared.entered.service().limits;
            let shared = &self.running.shared;
            let waited = poll_fn(|cx| match out.poll_capacity(cx) {
                Poll::Ready(Some(Ok(0))) | Poll::Pending => {
                    // A window may be larger than what a slow client takes in this time.
                    let moved = since.max(shared.moved());
                    let until = limits.untaken_until(since, moved, self.sent, self.waited);
                    self.timer.poll(cx, Some(until)).map(|()| Err(Cut))
                }
                Poll::Ready(Some(Ok(_))) => Poll::Ready(Ok(())),
                Poll::Ready(Some(Err(_)) | None) => Poll::Ready(Err(Cut)),
            });
            waited.await?;
            self.waited += since.elapsed();
        }
        let shared = &self.running.shared;
        let mut drained = pin!(shared.own.room());
        let mut unread = None;
        let share = poll_fn(|cx| match drained.as_mut().poll(cx) {
            Poll::Ready(share) => Poll::Ready(Ok(share)),
            Poll::Pending => {
                unread.get_or_insert_with(|| shared.unread());
                out.poll_reset(cx).map(|_| Err(Cut))
            }
        })
        .await?;
        Ok(out.capacity().min(share))
    }
}

impl From<NotStored> for Cut {
    fn from(NotStored: NotStored) -> Self {
        Self
    }
}

impl From<h2::Error> for Cut {
    fn from(_: h2::Error) -> Self {
        Self
    }
}

impl Exchange for Stream {
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        let held = std::mem::take(&mut self.held);
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(None));
        };
        if held > 0 && body.flow_control().release_capacity(held).is_err() {
            return Poll::Ready(Err(BodyError::Gone));
        }
        loop {
            match body.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) if bytes.is_empty() => {}
                Poll::Ready(Some(Ok(bytes))) => {
                    self.hear();
                    self.owes_continue = false;
                    self.held = bytes.len();
                    self.received += bytes.len() as u64;
                    self.heard = Instant::now();
                    return Poll::Ready(Ok(Some(bytes)));
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(BodyError::Gone)),
                // Trailers, if there are any, go with it.
                Poll::Ready(None) => {
                    self.hear();
                    self.body = None;
                    return Poll::Ready(Ok(None));
                }
                Poll::Pending => break,
            }
        }
        if !std::mem::replace(&mut self.is_silent, true) {
            self.running.shared.begin_silence();
        }
        if std::mem::take(&mut self.owes_continue) {
            self.inform(100, &Fields::new());
        }
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
        Some(DetachedBody::new(body, std::mem::take(&mut self.held)))
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.respond.poll_reset(cx).map(|_| ())
    }

    fn charge(&self) -> Charge {
        self.running.shared.charge()
    }

    fn takes(&mut self, bytes: usize) {
        self.running.takes(bytes);
    }

    fn uncounted(&self) -> usize {
        self.running.shared.uncounted()
    }

    fn inform(&mut self, status: u16, fields: &Fields) {
        // There is no 101 here (RFC 9113, section 8.6).
        let status = StatusCode::from_u16(status).ok();
        let Some(status) = status.filter(|status| *status != StatusCode::SWITCHING_PROTOCOLS)
        else {
            return;
        };
        let mut head = http::Response::new(());
        *head.status_mut() = status;
        *head.headers_mut() = header_map(h1::interim_fields(fields));
        _ = self.respond.send_informational(head); // whoever waits for the client sees that it is gone
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(()) // the connection's task writes
    }
}
