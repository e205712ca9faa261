//! One HTTP/1.1 connection: a task that drives the state machine over a socket.

mod batch;
mod file;

use std::future::poll_fn;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use pronghorn_base::{Timer, micros};
use pronghorn_h1::{self as h1, BodySize, Expiry, Received, Refusal, RequestHead};
use pronghorn_pool::{Content, Loan};
use pronghorn_process::socket::untaken;
use pronghorn_wire::Fields;
use tokio::io::AsyncWrite;
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::body_error::BodyError;
use crate::client_memory::{Charge, ClientBytes, UNCOUNTED};
use crate::date::epoch_us;
use crate::end_watch::EndWatch;
use crate::exchange::Exchange;
use crate::message::{Body, Part, Peer, Request, Response, Unhandled, WITHOUT_TLS};
use crate::reader::Reader;
use crate::sent::{OnSent, Sent};
use crate::service::Entered;
use crate::source::Read;
use crate::stream::Stream;
use crate::upgrade::{Upgrade, Upgraded};
use crate::uptake::{Look, Seen, Uptake};
use crate::{buffers, date, http2};

use batch::Batch;

/// A body up to this size is sent from the same buffer as its head.
const JOINED_BODY: usize = 8 << 10;
/// Bytes of a body after which others get their turn: a client that takes them as fast as they come
/// would keep the thread. One call of sendfile(2) has them all: a file of 10 MB takes 1.2 times the
/// processor with a quarter of a megabyte each.
const TURN: u64 = 2 << 20;
/// When so much of a body is announced, it is read in larger pieces: fewer system calls, and that
/// much memory for each upload.
const LONG_BODY: u64 = 256 << 10;
const BODY_READ: usize = 64 << 10;
/// Bytes that a client may send ahead while its request is being answered.
const SENT_AHEAD: usize = 64 << 10;
/// A body that the handler did not want is read away up to this length, so that the connection can
/// be kept.
const UNWANTED_BODY: u64 = 256 << 10;
/// After a refusal: how long and how much is read away so that the answer is not lost in a reset
/// (RFC 9112, section 9.6).
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;

/// A client that closes its sending side with its request, however late that is seen, or so soon
/// behind it, wants the answer all the same (RFC 9112, section 9.6), if somebody is at work on it
/// by then. Else it has left, as for nginx: the two can't be told apart.
const HALF_CLOSE: Duration = Duration::from_millis(3);

pub(crate) struct Http1 {
    stream: Stream,
    machine: h1::Connection,
    input: BytesMut,
    out: Vec<u8>,
    /// How much of `out` is written.
    written: usize,
    timer: Timer,
    opened: Instant,
    /// The same moment in microseconds since the Unix epoch.
    opened_us: u64,
    peer: Arc<Peer>,
    entered: Entered,
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Whether this task is woken by a drain: it need not ask for that again at each request.
    hears_drain: bool,
    /// When a draining connection without a request is closed.
    drain_until: Option<Instant>,
    /// Whether HTTP/2 may begin instead of the first request.
    may_be_http2: bool,
    /// Whether the client should have spoken TLS: it gets one answer, and not from a worker.
    lacks_tls: bool,
    owes_continue: bool,
    /// Whether the client knows interim replies.
    knows_interim: bool,
    /// Bytes of the current response's body.
    body_sent: u64,
    /// How the client takes this response, once it had to be waited for.
    uptake: Option<Box<Uptake>>,
    /// Whether the client has closed its sending side, and when its last request was complete.
    half_closed: bool,
    /// Whether reading came to an end, and to no error.
    has_ended: bool,
    /// Where a response has a limit as a whole, it is also when its body was last waited for.
    accepted: Duration,
    /// When that was seen.
    ended: Option<Duration>,
    /// Whether the client was still there once its request was complete.
    is_behind: bool,
    /// Watches for the client's end, while more was sent ahead than is read.
    end_watch: Option<Box<EndWatch>>,
    /// Whether somebody is at work on the answer, and can be told to stop.
    begun: Option<bool>,
    /// Whether it was seen that nobody waits for the answer.
    is_gone: bool,
    /// Whether more of a body is awaited.
    is_silent: bool,
    /// The protocol that the handler goes on with, if it does: its name and what serves it.
    upgrade: Option<(&'static str, Upgrade)>,
}

/// How waiting for a head ended.
enum Next {
    /// With the moment at which it was complete, from the connection's start.
    Head(Box<RequestHead>, Duration),
    Refused(Refusal),
    TooSlow,
    /// The client speaks no protocol that is spoken here.
    Neither,
    /// The client has begun with HTTP/2.
    Http2,
    Closed,
}

/// The next step of a connection after a response.
enum After {
    Next,
    Close,
    /// It did not reach its end: the client must not take it for whole.
    Cut,
    Upgrade(Upgrade),
}

/// How HTTP/1.1 on a connection ends.
enum End {
    Closed,
    /// The client has begun to speak HTTP/2.
    Http2,
    Upgrade(Upgrade),
}

/// A connection on which the client has begun to speak HTTP/2.
pub(crate) struct Begun {
    pub(crate) stream: Stream,
    pub(crate) received: BytesMut,
    pub(crate) peer: Arc<Peer>,
    pub(crate) entered: Entered,
}

/// The client can't be reached any more.
struct Gone;

/// The bytes of a body that were sent when others last had their turn.
struct Turn(u64);

impl Turn {
    /// Lets others go on after each [`TURN`].
    async fn pass(&mut self, sent: u64) {
        if sent - self.0 >= TURN {
            self.0 = sent;
            tokio::task::yield_now().await;
        }
    }
}

impl Http1 {
    pub(crate) fn new(stream: Stream, peer: Arc<Peer>, entered: Entered) -> Self {
        let service = entered.service();
        let drain = Box::pin(service.draining.clone().cancelled_owned());
        let opened = Instant::now();
        Self {
            machine: h1::Connection::new(service.limits.receive, Duration::ZERO),
            input: BytesMut::new(),
            out: Vec::new(),
            written: 0,
            timer: Timer::default(),
            opened,
            opened_us: epoch_us(opened),
            peer,
            drain,
            hears_drain: false,
            drain_until: None,
            may_be_http2: service.limits.http2.clear && stream.plain().is_some(),
            lacks_tls: false,
            owes_continue: false,
            knows_interim: false,
            body_sent: 0,
            uptake: None,
            half_closed: false,
            has_ended: false,
            accepted: Duration::ZERO,
            ended: None,
            is_behind: false,
            end_watch: None,
            begun: None,
            is_gone: false,
            is_silent: false,
            stream,
            upgrade: None,
            entered,
        }
    }

    /// For a client that came to a port of TLS without it.
    pub(crate) fn without_tls(self) -> Self {
        Self {
            may_be_http2: false,
            lacks_tls: true,
            ..self
        }
    }

    /// Serves requests until either side ends the connection. `Some` when the client has begun to
    /// speak HTTP/2.
    pub(crate) async fn run(mut self: Box<Self>) -> Option<Begun> {
        match self.serve_all().await {
            End::Closed => None,
            End::Http2 => Some(Begun {
                stream: self.stream,
                received: self.input,
                peer: self.peer,
                entered: self.entered,
            }),
            End::Upgrade(serve) => {
                let stopping = self.entered.service().draining.clone();
                let entered = self.entered;
                serve(Upgraded::new(self.stream, self.input, stopping, entered)).await;
                None
            }
        }
    }

    async fn serve_all(&mut self) -> End {
        loop {
            let (head, accepted) = match self.next_head().await {
                Next::Head(head, accepted) => (head, accepted),
                Next::Refused(_) if self.lacks_tls => {
                    self.answer_and_close(400, WITHOUT_TLS).await;
                    return End::Closed;
                }
                Next::Refused(refusal) => {
                    tracing::debug!(target: "http", remote_address = %self.peer.address, "request refused: {refusal}");
                    let text = format!("{refusal}\n");
                    self.answer_and_close(refusal.status(), &text).await;
                    return End::Closed;
                }
                Next::TooSlow => {
                    self.answer_and_close(408, "the request came too slowly\n")
                        .await;
                    return End::Closed;
                }
                Next::Http2 => return End::Http2,
                Next::Neither => {
                    let now = Instant::now();
                    let now_us = self.opened_us + micros(now - self.opened);
                    let request = Unhandled::unreadable(&self.peer, &self.input, now, now_us);
                    let on_sent = self.entered.service().handler().unhandled(&request);
                    self.sent(on_sent, 400, 0, false, now);
                    return End::Closed;
                }
                Next::Closed => {
                    self.say_goodbye().await;
                    return End::Closed;
                }
            };
            match self.serve(head, accepted).await {
                After::Next => {}
                After::Close => {
                    self.say_goodbye().await;
                    return End::Closed;
                }
                After::Cut => return End::Closed,
                After::Upgrade(serve) => return End::Upgrade(serve),
            }
        }
    }

    /// Answers one request.
    async fn serve(&mut self, head: Box<RequestHead>, accepted: Duration) -> After {
        self.entered.place().busy();
        self.owes_continue = head.expects_continue();
        self.accepted = accepted;
        self.begun = None;
        self.is_behind = false;
        self.end_watch = None;
        let mut framing = h1::Response::new(&head, true);
        self.knows_interim = framing.allows_interim();
        let is_for_all = head.path() == b"*";
        let accepted_us = self.opened_us + micros(accepted);
        let accepted = self.opened + accepted;
        self.keeps(ClientBytes::Head, head.size());
        let request = Request::new(head, self.peer.clone(), accepted, accepted_us);
        let handler = self.entered.service().handler();
        let response = if self.lacks_tls {
            framing.close();
            handler.answer_without_tls(&request)
        } else if is_for_all {
            handler.answer_for_all(&request)
        } else {
            handler.handle(request, self).await
        };
        self.hear();
        if self.is_gone {
            // The status is for the record alone: none is for a client that left.
            self.sent(response.on_sent, response.status, 0, false, accepted);
            return After::Cut;
        }
        let response = match (response.status, self.upgrade.take()) {
            (101, Some(upgrade)) => return self.switch(upgrade, response, accepted).await,
            // There is nothing to switch to.
            (101, None) => Response {
                on_sent: response.on_sent,
                ..Response::status_only(500)
            },
            _ => response,
        };
        // The rest of the body is read away so that the connection can go on; the client gets its
        // answer first.
        let mut discarded = 0;
        let rest = poll_fn(|cx| Poll::Ready(self.poll_discard(cx, &mut discarded))).await;
        if rest == Poll::Ready(false) || self.entered.service().draining.is_cancelled() {
            framing.close();
        }
        let (status, on_sent) = (response.status, response.on_sent);
        let done = Instant::now();
        let sent = self
            .send(&mut framing, status, &response.fields, response.body, done)
            .await;
        let is_too_long = framing.is_too_long();
        let mut ended = self.sent(on_sent, status, self.body_sent, is_too_long, accepted);
        if sent.is_err() || framing.is_broken() {
            return After::Cut;
        }
        self.release_output();
        self.keeps(ClientBytes::Head, 0);
        let read = match rest {
            Poll::Ready(read) => read,
            Poll::Pending => {
                let read = poll_fn(|cx| match self.drain.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(false),
                    Poll::Pending => match self.poll_discard(cx, &mut discarded) {
                        Poll::Pending => self.poll_silent(cx).map(|()| false),
                        read @ Poll::Ready(_) => read,
                    },
                });
                let read = read.await;
                ended = Instant::now();
                read
            }
        };
        let is_evicted = poll_fn(|cx| Poll::Ready(self.entered.place().poll_evicted(cx)));
        if self.is_silent && is_evicted.await.is_ready() {
            return After::Cut;
        }
        self.hear();
        if !read {
            self.linger().await;
        }
        if framing.keeps_alive() && self.machine.finish(ended - self.opened) {
            self.entered.place().idle(ended);
            After::Next
        } else {
            After::Close
        }
    }

    /// Sends a response that ends HTTP on this connection.
    async fn switch(
        &mut self,
        upgrade: (&'static str, Upgrade),
        response: Response,
        accepted: Instant,
    ) -> After {
        let (protocol, serve) = upgrade;
        if self.out.capacity() == 0 {
            self.out = buffers::output();
        }
        h1::switching(&mut self.out, protocol, &response.fields);
        let sent = self.flush().await;
        self.sent(response.on_sent, response.status, 0, false, accepted);
        self.release_output();
        sent.map_or(After::Cut, |()| After::Upgrade(serve))
    }

    /// A response is out, or nobody is there who would take it. Says when that was.
    fn sent(
        &self,
        on_sent: Option<Arc<dyn OnSent>>,
        status: u16,
        bytes: u64,
        is_too_long: bool,
        accepted: Instant,
    ) -> Instant {
        let at = Instant::now();
        let sent = Sent {
            status,
            bytes,
            is_too_long,
            elapsed: at.saturating_duration_since(accepted),
            split: None,
        };
        self.entered.service().sent(on_sent, sent);
        at
    }

    async fn next_head(&mut self) -> Next {
        poll_fn(|cx| {
            loop {
                let waits = self.may_be_http2 && http2::PREFACE.starts_with(&self.input);
                if self.may_be_http2 && self.input.starts_with(http2::PREFACE) {
                    return Poll::Ready(Next::Http2);
                }
                if !self.input.is_empty() && !waits {
                    let now = self.opened.elapsed();
                    match self.machine.receive(&mut self.input, now) {
                        Ok(Some(Received::Head(head))) => {
                            self.may_be_http2 = false;
                            return Poll::Ready(Next::Head(head, now));
                        }
                        Ok(Some(Received::Body(_) | Received::End)) => {
                            unreachable!("no body before a head")
                        }
                        Ok(None) if self.lacks_tls && has_foreign_line(&self.input) => {
                            return Poll::Ready(Next::Neither);
                        }
                        Ok(None) => {}
                        // Neither protocol: no answer would be understood.
                        Err(_)
                            if self.may_be_http2 && is_like_preface(&self.input)
                                || self.lacks_tls && !is_http(&self.input) =>
                        {
                            return Poll::Ready(Next::Neither);
                        }
                        Err(refusal) => return Poll::Ready(Next::Refused(refusal)),
                    }
                }
                match self.poll_fill(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(Gone)) => return Poll::Ready(Next::Closed),
                    Poll::Pending => break,
                }
            }
            if self.machine.is_idle() {
                self.release_input();
                if self.poll_drained(cx).is_ready() {
                    return Poll::Ready(Next::Closed);
                }
            } else {
                self.entered.place().reading();
            }
            if self.entered.place().poll_evicted(cx).is_ready() {
                return Poll::Ready(Next::Closed);
            }
            self.poll_expiry(cx).map(|expiry| match expiry {
                Expiry::Idle => Next::Closed,
                Expiry::Head | Expiry::Body => Next::TooSlow,
            })
        })
        .await
    }

    /// Reads what there is.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        if self.input.capacity() == self.input.len() {
            if self.stream.poll_read_ready(cx)?.is_pending() {
                return Poll::Pending;
            }
            if self.machine.announced() > LONG_BODY && !self.entered.is_memory_tight() {
                self.input.reserve(BODY_READ);
            } else {
                if self.input.is_empty() {
                    self.input = buffers::input();
                }
                self.input.reserve(buffers::INPUT);
            }
            self.count_input();
        }
        match poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.input) {
            Poll::Ready(Ok(1..)) => Poll::Ready(Ok(())),
            Poll::Ready(read) => {
                self.has_ended = read.is_ok();
                Poll::Ready(Err(Gone))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// As reading, for the end alone: what was sent ahead stays in the kernel.
    fn poll_end_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let watch = match self.end_watch.take() {
            Some(watch) => watch,
            None => match EndWatch::new(self.stream.socket()) {
                Ok(watch) => Box::new(watch),
                // Without a descriptor for it, the end is seen once the bytes before it are read.
                Err(_) => return Poll::Pending,
            },
        };
        let ended = watch.poll_ended(cx);
        self.end_watch = Some(watch);
        ended.map(|ended| self.has_ended = ended.is_ok())
    }

    /// Whether a client that sends nothing more has left, or still takes the answer.
    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let (opened, is_behind, accepted) = (self.opened, self.is_behind, self.accepted);
        let ended = *self.ended.get_or_insert_with(|| {
            if is_behind {
                opened.elapsed()
            } else {
                accepted
            }
        });
        let is_soon = ended < self.accepted + HALF_CLOSE;
        match self.begun {
            Some(can_be_told) => Poll::Ready(can_be_told && !is_soon),
            None => {
                let until = opened + self.accepted + HALF_CLOSE;
                self.timer.poll(cx, Some(until)).map(|()| true)
            }
        }
    }

    fn poll_expiry(&mut self, cx: &mut Context<'_>) -> Poll<Expiry> {
        let Some((deadline, expiry)) = self.machine.deadline() else {
            return Poll::Pending;
        };
        let deadline = self.opened + deadline;
        let deadline = self
            .drain_until
            .map_or(deadline, |until| until.min(deadline));
        self.timer.poll(cx, Some(deadline)).map(|()| expiry)
    }

    /// Ready when a draining server has waited long enough for a request on this connection.
    fn poll_drained(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.drain_until.is_none() && self.is_draining(cx) {
            self.drain_until = Some(Instant::now() + self.entered.service().drain_idle());
        }
        match self.drain_until {
            Some(until) if Instant::now() >= until => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    /// A connection lives in one task, so one question is enough to be woken.
    fn is_draining(&mut self, cx: &mut Context<'_>) -> bool {
        if self.hears_drain {
            return self.entered.service().draining.is_cancelled();
        }
        self.hears_drain = true;
        self.drain.as_mut().poll(cx).is_ready()
    }

    /// Ready when the client, for whom nobody is at work now, is to make room for others.
    fn poll_silent(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.is_silent = true;
        let place = self.entered.place();
        place.awaits();
        place.poll_evicted(cx)
    }

    /// More of a body came, or none is awaited any more.
    fn hear(&mut self) {
        if std::mem::take(&mut self.is_silent) {
            self.entered.place().busy();
        }
    }

    fn count_input(&self) {
        /// As much as is given back to be used again.
        const ORDINARY: usize = 2 * buffers::INPUT;
        let held = self.input.capacity();
        self.keeps(ClientBytes::Input, if held > ORDINARY { held } else { 0 });
    }

    fn keeps(&self, what: ClientBytes, bytes: usize) {
        self.entered.keeps(&self.peer, what, bytes);
    }

    fn release_input(&mut self) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            buffers::give_back_input(std::mem::take(&mut self.input));
            self.keeps(ClientBytes::Input, 0);
        }
    }

    fn release_output(&mut self) {
        self.written = 0;
        buffers::give_back_output(std::mem::take(&mut self.out));
    }

    /// Reads away what the handler left of the body. False when that is too much, is no body, or
    /// does not come: the client may wait to be told to send it.
    fn poll_discard(&mut self, cx: &mut Context<'_>, discarded: &mut u64) -> Poll<bool> {
        while !self.machine.has_all() {
            match self.machine.receive(&mut self.input, self.opened.elapsed()) {
                Ok(Some(Received::Body(len))) => {
                    self.input.advance(len);
                    *discarded += len as u64;
                }
                Ok(Some(Received::End)) => {}
                Ok(None)
                    if self.owes_continue
                        || discarded.saturating_add(self.machine.announced()) > UNWANTED_BODY =>
                {
                    return Poll::Ready(false);
                }
                Ok(None) => match self.poll_fill(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(Gone)) => return Poll::Ready(false),
                    Poll::Pending => return self.poll_expiry(cx).map(|_| false),
                },
                Ok(Some(Received::Head(_))) | Err(_) => return Poll::Ready(false),
            }
        }
        Poll::Ready(true)
    }

    /// Writes a response in the shortest way that its body allows.
    async fn send(
        &mut self,
        framing: &mut h1::Response,
        status: u16,
        fields: &Fields,
        body: Body,
        now: Instant,
    ) -> Result<(), Gone> {
        self.body_sent = 0;
        self.uptake = None;
        if self.out.capacity() == 0 {
            self.out = buffers::output();
        }
        let size = body.known_len().map_or(BodySize::Unknown, BodySize::Known);
        date::with_now(now, |date| {
            framing.head(&mut self.out, status, fields, size, date);
        });
        match body {
            _ if !framing.sends_body() => {}
            Body::Empty => {}
            Body::Whole(bytes) if bytes.len() <= JOINED_BODY => self.join(framing, &bytes),
            Body::Whole(bytes) => self.send_piece(framing, bytes).await?,
            Body::Lent(loan) => self.send_lent(framing, loan, true).await?,
            // These wait in places of their own: here they would make every idle connection larger.
            Body::File(file) => Box::pin(self.send_file(framing, file)).await?,
            Body::Parts(parts) => Box::pin(self.send_parts(framing, parts)).await?,
            body @ (Body::Pieces { .. } | Body::Made(_)) => {
                let is_announced = body.known_len().is_some();
                if let Body::Pieces { pieces, .. } = &body {
                    pieces.count_by(self.entered.account(&self.peer).clone());
                }
                let reader = Reader::new(body);
                let sent = Box::pin(self.send_read(framing, reader, is_announced)).await?;
                if let Some(mut trailers) = sent {
                    for named in fields.all("trailer") {
                        trailers.push("trailer", named);
                    }
                    framing.end(&mut self.out, &trailers);
                    return self.flush().await;
                }
            }
        }
        framing.end(&mut self.out, fields);
        self.flush().await
    }

    async fn send_parts(
        &mut self,
        framing: &mut h1::Response,
        parts: Vec<Part>,
    ) -> Result<(), Gone> {
        for part in parts {
            match part {
                Part::Bytes(bytes) => self.send_piece(framing, bytes).await?,
                Part::File(file) => self.send_file(framing, file).await?,
            }
        }
        Ok(())
    }

    /// Passes pieces on as they come: what is there goes out together, and nothing waits for more,
    /// but for what was announced, which is written already.
    /// Sends a body that is read piece by piece. Returns the fields that it has at its end.
    async fn send_read(
        &mut self,
        framing: &mut h1::Response,
        mut reader: Reader,
        is_announced: bool,
    ) -> Result<Option<Fields>, Gone> {
        let _made = self.entered.charged(&self.peer, reader.cost(), UNCOUNTED);
        let mut seen = None;
        let mut turn = Turn(self.body_sent);
        loop {
            turn.pass(self.body_sent).await;
            let next = match seen.take() {
                Some(next) => next,
                None => self.next_of(&mut reader).await?,
            };
            match next {
                Read::Bytes(Content::Lent(loan)) => {
                    self.send_lent(framing, loan, is_announced).await?;
                }
                Read::Bytes(Content::Here(bytes)) if bytes.len() > JOINED_BODY => {
                    let mut batch = Batch::from(bytes);
                    seen = poll_fn(|cx| Poll::Ready(batch.fill(&mut reader, cx))).await;
                    self.send_long(framing, batch).await?;
                }
                Read::Bytes(Content::Here(bytes)) => self.send_piece(framing, bytes).await?,
                Read::End => return Ok(reader.trailers()),
                Read::Broken => framing.abort(),
            }
            if framing.has_fault() {
                self.flush().await?;
                return Ok(None);
            }
        }
    }

    /// Waits for a piece, and for the client's end: a stream may be silent for hours.
    async fn next_of(&mut self, reader: &mut Reader) -> Result<Read<Content>, Gone> {
        if let Poll::Ready(next) = poll_fn(|cx| Poll::Ready(reader.poll_content(cx))).await {
            return Ok(next);
        }
        self.flush().await?;
        let next = poll_fn(|cx| match reader.poll_content(cx) {
            Poll::Ready(next) => Poll::Ready(Ok(next)),
            Poll::Pending if reader.is_news() && self.poll_silent(cx).is_ready() => {
                Poll::Ready(Err(Gone))
            }
            Poll::Pending => self.poll_gone(cx).map(|()| Err(Gone)),
        });
        let next = next.await?;
        self.hear();
        if self.entered.service().limits.whole_response.is_some() {
            // There was nothing that the client could have taken.
            self.accepted = self.opened.elapsed();
        }
        Ok(next)
    }

    async fn send_piece(&mut self, framing: &mut h1::Response, bytes: Bytes) -> Result<(), Gone> {
        if bytes.len() <= JOINED_BODY {
            self.join(framing, &bytes);
            // Several small pieces that are there share a write.
            return if self.out.len() > JOINED_BODY {
                self.flush().await
            } else {
                Ok(())
            };
        }
        self.send_long(framing, bytes).await
    }

    async fn send_long(&mut self, framing: &mut h1::Response, bytes: impl Buf) -> Result<(), Gone> {
        let piece = framing.piece(bytes.remaining());
        self.out.extend_from_slice(piece.before.as_ref());
        self.write_with(bytes.take(piece.take), piece.after).await
    }

    /// Sends a worker's bytes from where they lie, as many as can be sent at once. For the others
    /// the worker does not wait.
    async fn send_lent(
        &mut self,
        framing: &mut h1::Response,
        loan: Loan,
        is_announced: bool,
    ) -> Result<(), Gone> {
        let piece = framing.piece(loan.len());
        self.out.extend_from_slice(piece.before.as_ref());
        let mut after = piece.after;
        // Encryption would look at the bytes more than once.
        if self.stream.plain().is_none() || piece.take < loan.len() {
            let bytes = Bytes::from(loan).slice(..piece.take);
            return self.write_with(bytes, after).await;
        }
        let more_follows = is_announced && !framing.is_complete();
        let len = loan.len();
        let rest = loan.send(|bytes| {
            let out = IoSlice::new(&self.out[self.written..]);
            let parts = [out, bytes, IoSlice::new(after)];
            let taken = self.stream.write_now(&parts, more_follows);
            self.wrote(taken, len, &mut after)
        });
        self.write_with(rest, after).await
    }

    /// Puts a small piece behind what is to be written already.
    fn join(&mut self, framing: &mut h1::Response, bytes: &[u8]) {
        let piece = framing.piece(bytes.len());
        self.body_sent += piece.take as u64;
        self.out.extend_from_slice(piece.before.as_ref());
        self.out.extend_from_slice(&bytes[..piece.take]);
        self.out.extend_from_slice(piece.after);
    }

    /// Writes `out`, then `body`, then `after`: one system call where the kernel takes that much.
    async fn write_with(
        &mut self,
        mut body: impl Buf,
        mut after: &'static [u8],
    ) -> Result<(), Gone> {
        // A piece is in memory until its last byte is written.
        let pieces = body.remaining();
        poll_fn(|cx| {
            while self.written < self.out.len() || body.has_remaining() || !after.is_empty() {
                let (stream, out) = (Pin::new(&mut self.stream), &self.out[self.written..]);
                let written = if !body.has_remaining() && after.is_empty() {
                    stream.poll_write(cx, out)
                } else {
                    let mut parts = [IoSlice::new(out); Batch::MOST_PIECES + 2];
                    let of_body = body.chunks_vectored(&mut parts[1..=Batch::MOST_PIECES]);
                    parts[1 + of_body] = IoSlice::new(after);
                    stream.poll_write_vectored(cx, &parts[..2 + of_body])
                };
                match written {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(Gone)),
                    Poll::Ready(Ok(taken)) => {
                        self.took();
                        let of_body = self.wrote(taken, body.remaining(), &mut after);
                        body.advance(of_body);
                    }
                    Poll::Pending => {
                        let left = self.out.len() - self.written + pieces;
                        self.keeps(ClientBytes::Output, left);
                        return self.poll_untaken(cx).map(|()| Err(Gone));
                    }
                }
            }
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(flushed) => {
                    self.took();
                    Poll::Ready(flushed.map_err(Gone::from))
                }
                Poll::Pending => self.poll_untaken(cx).map(|()| Err(Gone)),
            }
        })
        .await?;
        self.out.clear();
        self.written = 0;
        self.keeps(ClientBytes::Output, 0);
        Ok(())
    }

    /// So much was written of `out`, a body of `body` bytes and `after`. How much was it of the
    /// body?
    fn wrote(&mut self, taken: usize, body: usize, after: &mut &'static [u8]) -> usize {
        let of_out = taken.min(self.out.len() - self.written);
        self.written += of_out;
        let of_body = (taken - of_out).min(body);
        self.body_sent += of_body as u64;
        *after = &after[taken - of_out - of_body..];
        of_body
    }

    /// Writes what is in `out`.
    async fn flush(&mut self) -> Result<(), Gone> {
        self.write_with(Bytes::new(), b"").await
    }

    /// Ready when the client has taken nothing for too long, or has had all the time that there is
    /// for a response.
    fn poll_untaken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limits = &self.entered.service().limits;
        let place = self.entered.place();
        let uptake = self.uptake.get_or_insert_default();
        uptake.begin();
        let asked = self.opened + self.accepted;
        let whole = limits.whole_response.map(|whole| asked + whole);
        if whole.is_some() {
            place.idle(asked); // all that is left to do is the client's
        }
        let until = |uptake: &Uptake| [uptake.until(limits), whole].into_iter().flatten().min();
        loop {
            if place.poll_evicted(cx).is_ready() {
                return Poll::Ready(());
            }
            let next = [until(uptake), uptake.next_look()];
            ready!(self.timer.poll(cx, next.into_iter().flatten().min()));
            let looked = uptake.look(Seen {
                sent: self.body_sent,
                after: 0,
                untaken: untaken(self.stream.socket()),
                is_blocked: true,
            });
            if until(uptake).is_some_and(|until| until <= Instant::now()) {
                return Poll::Ready(());
            }
            match looked {
                _ if whole.is_some() => {}
                Look::First => {}
                Look::Moved => place.taken(),
                Look::Still(since) => place.untaken(since),
            }
        }
    }

    /// The client has taken something.
    fn took(&mut self) {
        if let Some(uptake) = &mut self.uptake
            && uptake.end()
        {
            self.entered.place().taken();
        }
    }

    /// The last answer on a connection whose request could not be read.
    async fn answer_and_close(&mut self, status: u16, text: &str) {
        let now = Instant::now();
        let now_us = self.opened_us + micros(now - self.opened);
        let request = Unhandled::unreadable(&self.peer, &self.input, now, now_us);
        let on_sent = self.entered.service().handler().unhandled(&request);
        let response = Response::plain(status, text);
        let mut framing = h1::Response::to_unreadable();
        let sent = self
            .send(&mut framing, status, &response.fields, response.body, now)
            .await;
        self.sent(on_sent, status, self.body_sent, false, now);
        if sent.is_ok() {
            self.linger().await;
        }
    }

    /// Tells a client that knows no other way that nothing was cut off.
    async fn say_goodbye(&mut self) {
        if self.stream.owes_goodbye() {
            let until = self.begin_linger();
            poll_fn(|cx| match Pin::new(&mut self.stream).poll_shutdown(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => self.poll_lingered(cx, until),
            })
            .await;
        }
    }

    /// The answer is out, and what is left to do is for the client's sake: from now on the
    /// connection makes room for others, as those do that have no request.
    fn begin_linger(&self) -> Instant {
        let now = Instant::now();
        self.entered.place().idle(now);
        now + LINGER
    }

    fn poll_lingered(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        if self.entered.place().poll_evicted(cx).is_ready() {
            return Poll::Ready(());
        }
        self.timer.poll(cx, Some(until))
    }

    /// Closing with unread bytes resets the connection, and the client may never see the answer:
    /// tells it that nothing more comes, and reads away what it still sends for a moment.
    async fn linger(&mut self) {
        let until = self.begin_linger();
        let (mut told, mut read) = (false, 0);
        poll_fn(|cx| {
            if !told {
                match Pin::new(&mut self.stream).poll_shutdown(cx) {
                    Poll::Ready(Ok(())) => told = true,
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return self.poll_lingered(cx, until),
                }
            }
            while read < LINGER_BYTES {
                self.input.clear();
                match self.poll_fill(cx) {
                    Poll::Ready(Ok(())) => read += self.input.len(),
                    Poll::Ready(Err(Gone)) => return Poll::Ready(()),
                    Poll::Pending => return self.poll_lingered(cx, until),
                }
            }
            Poll::Ready(())
        })
        .await;
    }
}

/// Whether the first line begins as that of a request: with a method, and a path or a URI.
fn is_request(input: &[u8]) -> bool {
    let line = input.split(u8::is_ascii_control).next();
    let mut words = line.unwrap_or_default().split(|byte| *byte == b' ');
    let method = words
        .next()
        .is_some_and(|word| !word.is_empty() && word != b"PRI");
    let is_target = |word: &[u8]| word.starts_with(b"/") || word == b"*" || word.contains(&b':');
    method && words.next().is_some_and(is_target)
}

/// Whether the first line is none of HTTP/1.1 but of three words, as the one that HTTP/2 begins
/// with: such a client would take an answer for a frame.
fn is_like_preface(input: &[u8]) -> bool {
    let line = input.split(u8::is_ascii_control).next();
    let words: Vec<&[u8]> = line
        .unwrap_or_default()
        .splitn(4, |byte| *byte == b' ')
        .collect();
    let is_upper = |word: &&[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_uppercase);
    words.len() == 3 && words.iter().all(is_upper)
}

/// Whether what came begins as a request does, or as HTTP/2.
fn is_http(input: &[u8]) -> bool {
    let input = input.trim_ascii_start(); // empty lines may be in front (RFC 9112, section 2.2)
    is_request(input) || input.starts_with(b"PRI ")
}

/// Whether there is a whole first line, and it is not of HTTP.
fn has_foreign_line(input: &[u8]) -> bool {
    memchr::memchr(b'\n', input.trim_ascii_start()).is_some() && !is_http(input)
}

impl From<std::io::Error> for Gone {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl Exchange for Http1 {
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            let now = self.opened.elapsed();
            match self.machine.receive(&mut self.input, now)? {
                Some(Received::Body(len)) => {
                    self.owes_continue = false;
                    self.accepted = now;
                    self.is_behind = false;
                    return Poll::Ready(Ok(Some(self.input.split_to(len).freeze())));
                }
                Some(Received::End) => return Poll::Ready(Ok(None)),
                Some(Received::Head(_)) => unreachable!("the next head waits for `finish`"),
                None if self.machine.deadline().is_none() => return Poll::Ready(Ok(None)),
                None => {}
            }
            if std::mem::take(&mut self.owes_continue) {
                self.inform(100, &Fields::new());
            }
            if self.poll_flush(cx).is_pending() {
                return Poll::Pending;
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(())) => self.hear(),
                Poll::Ready(Err(Gone)) => {
                    self.is_gone = true;
                    return Poll::Ready(Err(BodyError::Gone));
                }
                Poll::Pending if self.poll_silent(cx).is_ready() => {
                    self.is_gone = true;
                    return Poll::Ready(Err(BodyError::Gone));
                }
                Poll::Pending => return self.poll_expiry(cx).map(|_| Err(BodyError::TooSlow)),
            }
        }
    }

    fn resume_body(&mut self, paused: Duration) {
        self.machine.resume_body(paused);
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.entered.place().poll_evicted(cx).is_ready() {
            self.is_gone = true;
            return Poll::Ready(());
        }
        loop {
            if self.half_closed {
                return Poll::Pending;
            }
            let filled = if self.input.len() >= SENT_AHEAD {
                self.poll_end_ahead(cx).map(|()| Err(Gone))
            } else {
                self.poll_fill(cx)
            };
            match filled {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Gone)) => {
                    if !self.has_ended || ready!(self.poll_left(cx)) {
                        self.is_gone = true;
                        return Poll::Ready(());
                    }
                    self.half_closed = true;
                }
                Poll::Pending => {
                    self.is_behind = true;
                    self.release_input();
                    return Poll::Pending;
                }
            }
        }
    }

    fn begun(&mut self, can_be_told: bool) {
        self.begun = Some(can_be_told);
    }

    fn upgrade(&mut self, protocol: &'static str, serve: Upgrade) -> bool {
        let may = self.knows_interim && self.machine.has_all();
        if may {
            self.upgrade = Some((protocol, serve));
        }
        may
    }

    fn charge(&self) -> Charge {
        self.entered.account(&self.peer).charge()
    }

    fn inform(&mut self, status: u16, fields: &Fields) {
        if self.knows_interim {
            if self.out.capacity() == 0 {
                self.out = buffers::output();
            }
            h1::interim(&mut self.out, status, fields);
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.written < self.out.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.out[self.written..]) {
                Poll::Ready(Ok(taken @ 1..)) => self.written += taken,
                // Whoever waits for the client next will see that it is gone.
                Poll::Ready(Ok(0) | Err(_)) => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        self.out.clear();
        self.written = 0;
        Pin::new(&mut self.stream).poll_flush(cx).map(|_| ())
    }
}
