//! A slot behind FastCGI: one task owns its connection and carries one call at a time.
//!
//! The connection to a process of ours is kept as long as that lives. To an address each call has
//! one of its own: whichever process is free accepts it. The task ends when the slot's process, or
//! what stands for it, has ended, which it is told.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pronghorn_base::{LogThrottle, Timer, millis};
use pronghorn_cgi::fastcgi::{BadRecord, End, Item, Records, RequestId};
use pronghorn_cgi::{BadReply, Head, HeadReader, Lines};
use pronghorn_process::Exit;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use super::addresses::Addresses;
use super::request::{NotWritten, Outgoing};
use crate::measured::{Measured, TooShort};
use crate::output::Output;
use pronghorn_pool::Counter;
use pronghorn_pool::Lead;
use pronghorn_pool::SlotId;
use pronghorn_pool::Spool;
use pronghorn_pool::transport::Call;
use pronghorn_pool::transport::Next;
use pronghorn_pool::transport::UnderWay;
use pronghorn_pool::transport::{Channel, Detached};
use pronghorn_pool::transport::{Inbox, News, Told};
use pronghorn_pool::transport::{Lifetime, Report, SlotHandle};
use pronghorn_pool::transport::{Outlet, Streamed};
use pronghorn_pool::transport::{Peer, PieceDeadline, Served, lost, lost_in_stream, run};
use pronghorn_pool::{CallError, ReplyBody, Stamps, WorkerFault};

/// Room for a read when nothing larger came before. Most replies fit.
const READ: usize = 16 << 10;
/// What one read of a long reply may give.
const LONG_READ: usize = 256 << 10;
/// A reply that is complete before it is longer is handed over whole.
const WHOLE: usize = 256 << 10;
const ANSWERS_NOTHING: &str = "it came while no request was under way, or behind the end of one";
/// What may wait for a client in a file, as with nginx: then the script has to wait.
const MOST_SPILLED: u64 = 1 << 30;

/// What a responder is told at its start.
pub(super) struct Settings {
    /// How long a worker may go on with a reply that nobody reads.
    pub(super) stream_timeout: Duration,
    pub(super) spool: Arc<Spool>,
    /// Where what it says to the operator goes.
    pub(super) output: Output,
    /// Told when the worker is not needed any more.
    pub(super) unneeded: Arc<Notify>,
}

/// Over what a slot's calls go.
pub(super) enum Line {
    /// The connection to a process of its own. Over it went no more than the beginning of a
    /// request, with this number.
    Of(Detached, RequestId),
    To(Dial),
}

/// Connections to addresses, from this slot's own on.
pub(super) struct Dial {
    pub(super) addresses: Arc<Addresses>,
    pub(super) slot: SlotId,
}

pub(super) struct Responder {
    /// None while there is no connection to an address.
    channel: Option<Channel>,
    /// Of a process of its own, until this runtime watches it.
    detached: Option<(Detached, RequestId)>,
    dial: Option<Dial>,
    received: BytesMut,
    room: usize,
    records: Records,
    outgoing: Outgoing,
    settings: Settings,
    slot_handle: SlotHandle,
    inbox: Arc<Inbox>,
    /// The call at hand, for those who ask.
    under_way: Option<UnderWay>,
    timer: Timer,
    /// Calls that the worker still gets.
    calls_left: Lifetime,
    /// Lines of heads.
    left_out: LogThrottle,
}

/// What a responder waits for while it has a call.
enum Event {
    Item(Item),
    Withdrawn,
    /// More time was granted from outside.
    Extended(Duration),
    Over(Over),
}

/// Why a call, or a reply, can't go on.
enum Over {
    Garbage(String),
    /// What came is for another request, so it says nothing about this one.
    Stray(String),
    /// The worker closed its end.
    HungUp,
    Ended(Exit),
    Overdue,
}

impl From<BadRecord> for Over {
    fn from(bad: BadRecord) -> Self {
        match bad {
            BadRecord::Request(_) => Self::Stray(bad.to_string()),
            BadRecord::Version(_) | BadRecord::Kind(_) | BadRecord::End { .. } => {
                Self::Garbage(bad.to_string())
            }
        }
    }
}

/// What a worker did with a call that it was given.
enum Trouble {
    Overdue {
        request: String,
        /// Of the call.
        stamps: Stamps,
        /// What became of the client.
        client: &'static str,
    },
    Garbage {
        request: String,
        what: String,
    },
}

impl From<Trouble> for Report {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Overdue {
                request,
                stamps,
                client,
            } => Self::Overdue {
                what: request,
                ran: stamps.ran(),
                progress: Some(Box::new(stamps.progress())),
                client,
                is_told: false,
                call: None,
                details: None,
                stack: None,
            },
            Trouble::Garbage { request, what } => Self::Garbage {
                what,
                request: Some(request),
            },
        }
    }
}

/// What has come of a reply's head.
struct Opening {
    reader: HeadReader,
    received: BytesMut,
}

impl Opening {
    fn new() -> Self {
        Self {
            reader: HeadReader::of(Lines::Some),
            received: BytesMut::new(),
        }
    }

    /// The head, and what came behind it, once all of it is there.
    fn take(&mut self, piece: &Bytes) -> Result<Option<(Head, Bytes)>, BadReply> {
        let whole = if self.received.is_empty() {
            match self.reader.find(piece)? {
                Some(len) => Some((piece.slice(..len), piece.slice(len..))),
                None => {
                    self.received.extend_from_slice(piece);
                    None
                }
            }
        } else {
            self.received.extend_from_slice(piece);
            let found = self.reader.find(&self.received)?;
            found.map(|len| {
                let head = self.received.split_to(len).freeze();
                (head, self.received.split().freeze())
            })
        };
        let Some((head, rest)) = whole else {
            return Ok(None);
        };
        Ok(Some((self.reader.parse(&head)?, rest)))
    }
}

impl Responder {
    pub(super) fn new(
        line: Line,
        settings: Settings,
        slot_handle: SlotHandle,
        inbox: Arc<Inbox>,
    ) -> Self {
        let (detached, dial) = match line {
            Line::Of(detached, id) => (Some((detached, id)), None),
            Line::To(dial) => (None, Some(dial)),
        };
        Self {
            channel: None,
            detached,
            dial,
            received: BytesMut::new(),
            room: READ,
            records: Records::default(),
            outgoing: Outgoing::default(),
            settings,
            calls_left: slot_handle.lifetime(),
            slot_handle,
            inbox,
            under_way: None,
            timer: Timer::default(),
            left_out: LogThrottle::default(),
        }
    }

    /// Has this thread's runtime watch the connection to a process of its own.
    pub(super) fn attach(&mut self) -> io::Result<()> {
        if let Some((detached, id)) = self.detached.take() {
            self.channel = Some(Channel::attach(detached)?);
            self.outgoing = Outgoing::begun(id);
        }
        Ok(())
    }

    /// Changes over to a slot handle in a pool. What was done before does not count there.
    pub(super) fn in_slot(self, slot_handle: SlotHandle, inbox: Arc<Inbox>) -> Self {
        Self {
            calls_left: slot_handle.lifetime(),
            slot_handle,
            inbox,
            ..self
        }
    }

    /// Carries calls until the worker's process has ended.
    pub(super) async fn run(mut self) {
        if let Err(error) = self.attach() {
            let what = format!("nothing, its connection can't be watched ({error})");
            self.slot_handle.report(garbage(what));
            poll_fn(|cx| self.poll_ended(cx)).await;
            return self.leave();
        }
        run(self).await;
    }

    /// Closes the connection to an address, and forgets what was under way over it.
    fn disconnect(&mut self) {
        self.channel = None;
        self.received = BytesMut::new();
        self.records = Records::default();
        self.outgoing = Outgoing::default();
    }

    /// Nothing can be had over this connection any more. To an address another one is made for the
    /// next call.
    fn unusable(&mut self, trouble: Trouble) -> Served {
        if self.dial.is_none() {
            self.slot_handle.report(trouble.into());
            return Served::Broken;
        }
        self.disconnect();
        let pool = self.slot_handle.pool();
        match trouble {
            Trouble::Overdue {
                request,
                stamps,
                client,
            } => tracing::error!(
                target: "server", pool, request, ran_ms = millis(stamps.ran()),
                "deadline passed: the client {client}; what runs in the FastCGI server can't be \
                 stopped"
            ),
            Trouble::Garbage { request, what } => {
                self.slot_handle.tell_failure(|left_out| {
                    tracing::error!(
                        target: "server", pool, request, left_out,
                        "protocol error of a FastCGI server: {what}"
                    );
                });
            }
        }
        Served::Free(Instant::now())
    }

    /// Sees to it that there is a connection.
    async fn connect(&mut self, deadline: Option<Instant>) -> Result<(), String> {
        let Some(dial) = self.dial.as_ref().filter(|_| self.channel.is_none()) else {
            return Ok(());
        };
        let connecting = dial.addresses.connect(dial.slot);
        let channel = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, connecting)
                .await
                .unwrap_or_else(|_| {
                    Err("no FastCGI server answered before the deadline".to_owned())
                }),
            None => connecting.await,
        }?;
        self.channel = Some(channel);
        Ok(())
    }

    fn lost(&self, call: Call, exit: Exit) -> Served {
        let progress = call.stamps.progress();
        lost(&self.slot_handle, call, progress, exit)
    }

    /// The worker is to end: php-cgi does when it waits for the next connection.
    fn give_up(&self) {
        self.settings.unneeded.notify_one();
        if let Some(channel) = &self.channel {
            channel.hang_up();
        }
    }

    /// Looks at what came while there was no call: nothing should. Over a connection with anything
    /// on it goes no call.
    fn poll_unusable(&mut self, cx: &mut Context<'_>) -> Poll<Report> {
        loop {
            match self.poll_fill(cx) {
                Poll::Pending => return Poll::Pending,
                // Whoever serves many may end what nobody uses.
                Poll::Ready(Ok(0) | Err(_)) if self.dial.is_some() => self.disconnect(),
                Poll::Ready(Ok(0) | Err(_)) => {
                    return Poll::Ready(hung_up("closed its connection"));
                }
                Poll::Ready(Ok(_)) => {
                    if self.records.is_clean(&mut self.received) {
                        continue; // what pads the last record
                    }
                    if self.dial.is_none() {
                        return Poll::Ready(garbage(ANSWERS_NOTHING.to_owned()));
                    }
                    self.disconnect();
                    self.slot_handle.tell_failure(|left_out| {
                        tracing::error!(
                            target: "server", pool = self.slot_handle.pool(), left_out,
                            "protocol error of a FastCGI server: {ANSWERS_NOTHING}"
                        );
                    });
                }
            }
        }
    }

    /// Reads what there is. 0 is the end of file.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(channel) = &mut self.channel else {
            return Poll::Pending;
        };
        self.received.reserve(self.room);
        let filled = poll_read_buf(Pin::new(channel), cx, &mut self.received);
        if let Poll::Ready(Ok(read)) = &filled {
            self.room = if *read >= self.room { LONG_READ } else { READ };
        }
        filled
    }

    /// What the worker says to the operator: lines, and messages of PHP.
    fn complain(&self, text: &[u8]) {
        let payload = self.under_way.as_ref().map(|call| &call.payload);
        let details = payload.and_then(|payload| payload.details());
        self.settings.output.texts(text, details.as_deref());
    }

    /// What happens next while the worker has a call. `call` is there while its client waits for
    /// the first byte.
    async fn event_until(
        &mut self,
        mut call: Option<&mut Call>,
        deadline: Option<Instant>,
    ) -> Event {
        poll_fn(|cx| {
            // A request of a few records goes out before anything is waited for.
            let mut written = self.poll_write(cx);
            loop {
                match self.records.next(&mut self.received) {
                    Ok(Some(item)) => return Poll::Ready(Event::Item(item)),
                    Ok(None) => {}
                    Err(bad) => return Poll::Ready(Event::Over(bad.into())),
                }
                match self.poll_fill(cx) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Event::Over(Over::HungUp)),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => break,
                }
                if written.is_pending() {
                    written = self.poll_write(cx);
                }
            }
            match written {
                Poll::Ready(Ok(())) | Poll::Pending => {}
                Poll::Ready(Err(NotWritten::HungUp)) => {
                    return Poll::Ready(Event::Over(Over::HungUp));
                }
                Poll::Ready(Err(NotWritten::Unreadable(error))) => {
                    return Poll::Ready(Event::Over(Over::Garbage(format!(
                        "nothing: the request's body can't be read back: {error}"
                    ))));
                }
            }
            match self.inbox.poll_news(cx, self.under_way.as_ref()) {
                Poll::Ready(News::Ended(exit)) => {
                    return Poll::Ready(match self.last_item() {
                        Some(item) => Event::Item(item),
                        None => Event::Over(Over::Ended(exit)),
                    });
                }
                Poll::Ready(News::Extended(time)) => return Poll::Ready(Event::Extended(time)),
                // It never asks for one.
                Poll::Ready(News::Prefetched(call)) => self.slot_handle.give_back(vec![call]),
                Poll::Pending => {}
            }
            if let Some(call) = &mut call
                && call.poll_withdrawn(cx).is_ready()
            {
                return Poll::Ready(Event::Withdrawn);
            }
            self.timer
                .poll(cx, deadline)
                .map(|()| Event::Over(Over::Overdue))
        })
        .await
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NotWritten>> {
        match &mut self.channel {
            Some(channel) => self.outgoing.poll_write(cx, Pin::new(channel)),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Waits for the end of the process, and says meanwhile what it is at when somebody asks.
    fn poll_ended(&self, cx: &Context<'_>) -> Poll<Exit> {
        self.inbox.poll_ended(cx, self.under_way.as_ref())
    }

    /// What a process that has ended wrote last is there, even if its event is not.
    fn last_item(&mut self) -> Option<Item> {
        let mut buffer = [0; 4096];
        let channel = self.channel.as_mut()?;
        while let Ok(read @ 1..) = channel.read_now(&mut buffer) {
            self.received.extend_from_slice(&buffer[..read]);
        }
        self.records.next(&mut self.received).ok().flatten()
    }

    /// The worker ended the request before there was a head.
    fn ended_early(&mut self, end: End, call: Call) -> Served {
        let what = match end {
            End::Overloaded => {
                // It did nothing, and says so.
                self.slot_handle.decline(call);
                return self.done();
            }
            End::Complete(_) => "it ended the request without the end of a header",
            End::CannotMultiplex => "it refuses the request, because it takes one at a time",
            End::UnknownRole => "it is no FastCGI responder",
        };
        self.slot_handle.tell_failure(|left_out| tracing::error!(
            target: "server", pool = self.slot_handle.pool(), request = call.payload.describe(), left_out,
            "the script's answer can't be used: {what}"
        ));
        call.fail(WorkerFault::Garbage(what.to_owned()));
        self.done()
    }

    /// The answer begins with no head: it is read to its end and thrown away.
    async fn refuse(&mut self, call: Call, bad: &BadReply) -> Served {
        let streamed = Streamed::of(&call, &self.slot_handle);
        self.slot_handle.tell_failure(|left_out| tracing::error!(
            target: "server", pool = self.slot_handle.pool(), request = streamed.request, left_out,
            "the script's answer can't be used: {bad}"
        ));
        call.fail(WorkerFault::Garbage(bad.to_string()));
        let mut outlet = Outlet::closed_from_the_start(self.settings.spool.clone());
        self.pass_on(&mut outlet, streamed, Measured::of_none())
            .await
    }

    /// The head of a reply is here: hands it over, and what follows it.
    async fn reply(&mut self, mut call: Call, head: Head, first: Bytes) -> Served {
        if let Some(line) = &head.left_out
            && let Some(times) = self.left_out.should_log()
        {
            tracing::warn!(
                target: "server", pool = self.slot_handle.pool(), request = call.payload.describe(), times,
                "a line of the script's header is left out, because it is no `Name: value`: \
                 `{line}`"
            );
        }
        let mut measured = Measured::of(&head);
        let reply = head.for_client();
        measured.add(first.len());
        let mut length = 0;
        let mut body = vec![first];
        let ended = loop {
            match self.item_now().await {
                Some(Ok(Item::Output(more))) => {
                    length += more.len();
                    measured.add(more.len());
                    body.push(more);
                }
                Some(Ok(Item::Errors(text))) => self.complain(&text),
                Some(Ok(Item::End(_))) => break true,
                Some(Err(over)) => return self.cut_short(over, call).await,
                None => break false,
            }
            if length > WHOLE {
                break false;
            }
        };
        body.retain(|piece| !piece.is_empty());
        let body = match body.as_mut_slice() {
            [] => Bytes::new(),
            [whole] => std::mem::take(whole),
            pieces => pieces.concat().into(),
        };
        let too_short = if ended {
            measured.check(call.payload.as_ref()).err()
        } else {
            None
        };
        if ended && too_short.is_none() {
            let now = Instant::now();
            call.stamps.complete = Some(now);
            call.deliver(reply, ReplyBody::Whole(body.into()));
            return self.done_at(now);
        }
        let streamed = Streamed::of(&call, &self.slot_handle);
        let spool = self.settings.spool.clone();
        let mut outlet = Outlet::begin(call, reply, None, spool);
        _ = outlet.try_send(body.into(), Lead::Long); // there is room for the first
        if let Some(too_short) = too_short {
            self.tell_of(&too_short, &streamed.request);
            return self.done(); // without its end the client's connection is cut
        }
        self.pass_on(&mut outlet, streamed, measured).await
    }

    fn tell_of(&self, too_short: &TooShort, request: &str) {
        self.slot_handle.tell_failure(|left_out| {
            tracing::error!(
                target: "server", pool = self.slot_handle.pool(), request, left_out, "{too_short}"
            );
        });
    }

    /// Passes the body of a reply on until it ends.
    async fn pass_on(
        &mut self,
        outlet: &mut Outlet,
        streamed: Streamed,
        measured: Measured,
    ) -> Served {
        let request = streamed.request.clone();
        match self.pass_pieces(outlet, &streamed, measured).await {
            Ok(()) => self.done(),
            Err(Over::Overdue) => self.unusable(Trouble::Overdue {
                request,
                stamps: streamed.stamps,
                client: "was cut off",
            }),
            Err(Over::Garbage(what) | Over::Stray(what)) => {
                self.unusable(Trouble::Garbage { request, what })
            }
            Err(Over::HungUp) if self.dial.is_some() => {
                let what = "it closed its connection in the middle of its answer".to_owned();
                self.unusable(Trouble::Garbage { request, what })
            }
            Err(over @ (Over::HungUp | Over::Ended(_))) => {
                if matches!(over, Over::HungUp) {
                    self.slot_handle
                        .report(hung_up("closed its connection during a reply"));
                    poll_fn(|cx| self.poll_ended(cx)).await;
                }
                let progress = streamed.stamps.progress();
                lost_in_stream(
                    &self.slot_handle,
                    streamed,
                    progress,
                    self.under_way.as_ref(),
                )
            }
        }
    }

    async fn pass_pieces(
        &mut self,
        outlet: &mut Outlet,
        Streamed { request, limit, .. }: &Streamed,
        mut measured: Measured,
    ) -> Result<(), Over> {
        let mut deadline = PieceDeadline::new(*limit);
        loop {
            if outlet.is_closed() && self.dial.is_some() {
                self.disconnect();
                return Ok(());
            }
            if outlet.is_closed() {
                deadline.give_up(self.settings.stream_timeout);
            }
            let spilled = outlet.spilled().is_some();
            let event = tokio::select! {
                biased;
                event = self.event_until(None, deadline.get()) => event,
                () = outlet.drained(), if spilled => {
                    outlet.pass_file();
                    continue;
                }
            };
            match event {
                Event::Item(Item::Output(bytes)) => {
                    measured.add(bytes.len());
                    self.hand_out(outlet, bytes).await?;
                    deadline.renew();
                }
                Event::Item(Item::Errors(text)) => self.complain(&text),
                Event::Item(Item::End(_)) => {
                    let payload = self.under_way.as_ref().map(|call| &call.payload);
                    match payload.map_or(Ok(()), |payload| measured.check(payload.as_ref())) {
                        Ok(()) => outlet.end(),
                        Err(too_short) => self.tell_of(&too_short, request),
                    }
                    return Ok(());
                }
                Event::Withdrawn => {} // only waited for with a call at hand
                Event::Extended(time) => deadline.extend(&self.slot_handle, time),
                Event::Over(over) => return Err(over),
            }
        }
    }

    /// Hands a piece to the client's side. A script must not wait for a slow client, so what finds
    /// no room goes to a file; only when there is none, or a very long one, it has to.
    async fn hand_out(&self, outlet: &mut Outlet, bytes: Bytes) -> Result<(), Over> {
        let Some(bytes) = outlet.try_send(bytes.into(), Lead::Long) else {
            return Ok(());
        };
        let left = if outlet.spilled().unwrap_or(0) < MOST_SPILLED {
            outlet.spill(bytes).await
        } else {
            Some(bytes)
        };
        let Some(bytes) = left else { return Ok(()) };
        tokio::select! {
            () = outlet.send(bytes, Lead::Long, &self.slot_handle) => Ok(()),
            exit = poll_fn(|cx| self.poll_ended(cx)) => Err(Over::Ended(exit)),
        }
    }

    /// What is there without waiting.
    async fn item_now(&mut self) -> Option<Result<Item, Over>> {
        poll_fn(|cx| {
            Poll::Ready(loop {
                match self.records.next(&mut self.received) {
                    Ok(Some(item)) => break Some(Ok(item)),
                    Ok(None) => {}
                    Err(bad) => break Some(Err(bad.into())),
                }
                match self.poll_fill(cx) {
                    Poll::Ready(Ok(0) | Err(_)) => break Some(Err(Over::HungUp)),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => break None,
                }
            })
        })
        .await
    }

    fn done(&mut self) -> Served {
        self.done_at(Instant::now())
    }

    /// The request has ended. Who did not take all of it, or sent more than its answer, can't be
    /// given another one: the rest would be in its way.
    fn done_at(&mut self, now: Instant) -> Served {
        if !self.records.is_clean(&mut self.received) {
            let request = self.under_way.as_ref();
            let request = request.map_or_else(String::new, |it| it.payload.describe());
            let what = ANSWERS_NOTHING.to_owned();
            return self.unusable(Trouble::Garbage { request, what });
        }
        // The process behind it may be at work for long after its answer, by
        // `fastcgi_finish_request()`, while others are free.
        if self.dial.is_some() {
            self.disconnect();
            return Served::Free(now);
        }
        if self.outgoing.is_done() {
            return Served::Free(now);
        }
        self.slot_handle
            .report(hung_up("answered before it had read its request"));
        self.give_up();
        Served::Broken
    }

    /// The call can't go on. Settles it and says what that means for the worker.
    async fn cut_short(&mut self, over: Over, call: Call) -> Served {
        match over {
            Over::Garbage(what) => {
                let request = call.payload.describe();
                call.fail(WorkerFault::Garbage(what.clone()));
                self.unusable(Trouble::Garbage { request, what })
            }
            Over::Stray(what) => {
                let request = call.payload.describe();
                self.slot_handle
                    .lose(call, WorkerFault::Garbage(what.clone()));
                self.unusable(Trouble::Garbage { request, what })
            }
            Over::Overdue => {
                self.slot_handle.count(Counter::Overdue);
                let late = Trouble::Overdue {
                    request: call.payload.describe(),
                    stamps: call.stamps,
                    client: call.payload.late_answer(),
                };
                call.fail(CallError::Deadline);
                self.unusable(late)
            }
            Over::HungUp if self.dial.is_some() => {
                let request = call.payload.describe();
                let what = "it closed its connection in place of an answer".to_owned();
                self.slot_handle
                    .lose(call, WorkerFault::Garbage(what.clone()));
                self.unusable(Trouble::Garbage { request, what })
            }
            Over::HungUp => {
                self.slot_handle
                    .report(hung_up("closed its connection during a call"));
                let exit = poll_fn(|cx| self.poll_ended(cx)).await;
                self.lost(call, exit)
            }
            Over::Ended(exit) => self.lost(call, exit),
        }
    }
}

impl Peer for Responder {
    type Call = Call;

    fn slot_handle(&self) -> &SlotHandle {
        &self.slot_handle
    }

    fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    fn under_way(&mut self) -> &mut Option<UnderWay> {
        &mut self.under_way
    }

    async fn serve(&mut self, mut call: Call) -> Served {
        if call.is_unwanted() {
            return Served::Free(Instant::now());
        }
        // What is known to be there: bytes that come later have the wrong number.
        let unusable = poll_fn(|cx| Poll::Ready(self.poll_unusable(cx))).await;
        if let Poll::Ready(why) = unusable {
            self.slot_handle.report(why);
            self.slot_handle.decline(call);
            self.give_up();
            return Served::Broken;
        }
        if let Err(why) = self.connect(call.deadline).await {
            call.fail(WorkerFault::NotStarted(why));
            return Served::Free(Instant::now());
        }
        match self.outgoing.set(call.payload.as_ref()) {
            Ok(id) => self.records.expect(id),
            Err(error) => {
                call.fail(error);
                return Served::Free(Instant::now());
            }
        }
        let nth = self.inbox.count();
        call.stamps.claimed = Some(Instant::now());
        call.payload
            .begun(self.slot_handle.taker(&call, false, nth));
        self.under_way = Some(UnderWay {
            payload: call.payload.clone(),
            since: call.stamps.dispatched.unwrap_or(call.stamps.queued),
            pid: None,
        });
        let mut opening = Opening::new();
        // It runs all the same.
        let mut gone = call.is_withdrawn();
        loop {
            let deadline = call.deadline;
            let client = Some(&mut call).filter(|_| !gone);
            let output = match self.event_until(client, deadline).await {
                Event::Item(Item::Output(output)) => output,
                Event::Item(Item::Errors(text)) => {
                    self.complain(&text);
                    continue;
                }
                Event::Item(Item::End(end)) => return self.ended_early(end, call),
                Event::Withdrawn if self.dial.is_some() => {
                    // PHP ends a script that writes to nobody.
                    self.disconnect();
                    return Served::Free(Instant::now());
                }
                Event::Withdrawn => {
                    gone = true;
                    continue;
                }
                Event::Extended(time) => {
                    call.deadline = self.slot_handle.later(call.deadline, time);
                    continue;
                }
                Event::Over(over) => return self.cut_short(over, call).await,
            };
            if output.is_empty() {
                continue;
            }
            call.stamps.first_byte.get_or_insert_with(Instant::now);
            match opening.take(&output) {
                Ok(None) => {}
                Ok(Some((head, rest))) => return self.reply(call, head, rest).await,
                // The script's mistake: it costs no worker.
                Err(bad) => return self.refuse(call, &bad).await,
            }
        }
    }

    async fn idle(&mut self) -> Result<Told, Report> {
        poll_fn(|cx| {
            if let Poll::Ready(told) = self.inbox.poll(cx) {
                return Poll::Ready(Ok(told));
            }
            self.poll_unusable(cx).map(Err)
        })
        .await
    }

    fn is_worn(&mut self) -> bool {
        self.calls_left.is_over(&self.slot_handle)
    }

    fn next(&mut self, since: Instant) -> Next<Call> {
        self.slot_handle.next_alone(since)
    }

    async fn hang_up(&mut self) {
        self.give_up();
    }

    fn leave(self) {
        self.inbox.leave(self.slot_handle);
    }
}

fn hung_up(what: &str) -> Report {
    Report::HungUp { what: what.into() }
}

fn garbage(what: String) -> Report {
    Report::Garbage {
        what,
        request: None,
    }
}
