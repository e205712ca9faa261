//! A worker behind Goridge frames: one task owns the connection and carries one call at a time. In
//! shared memory the next ones may lie behind it already; they are not the worker's before it
//! begins them.
//!
//! Knows the frames of both kinds of worker ([`Dialect`]): our SDK's, whose replies name their
//! call, and the official packages', whose replies don't. The task ends when the worker's process
//! has ended, which it is told; an end of file proves nothing, because grandchildren inherit the
//! other end.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::Timer;
use pronghorn_process::{CpuClock, Exit};
use pronghorn_wire::Codec;
use pronghorn_wire::frame::{Flags, OpenFrame, Stream, encode_plain};
use pronghorn_wire::native::{Aside, Logged, Thrown};
use tokio::io::AsyncWrite;
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use crate::body::{BodyStream, StreamPiece};
use crate::call::{Body, Call, CallError, Dispatch, Encoding, Unencodable, WorkerFault};
use crate::core::Next;
use crate::last_words::LastWords;
use crate::pool::{Lifetime, Report, SlotHandle};
use crate::quote::Quote;
use crate::roster::UnderWay;
use crate::session::{Peer, Served};
use crate::spool::Spool;

pub(crate) mod channel;
pub(crate) mod connection;
mod dialect;
mod exchange;
pub(crate) mod inbox;
pub(crate) mod incoming;
mod meter;
pub(crate) mod outlet;
mod prefetch;
mod questions;

pub use dialect::Dialect;
pub use prefetch::{Prefetched, Sent};
pub use questions::{Allowed, Borders, Calling, Held, MethodCaller, MethodCallers, Returned};

use crate::observer::Observer;
use crate::php_message::Source;
use channel::Channel;
use inbox::{Inbox, News, Told};
use incoming::{Garbage, Incoming, Item};
use meter::Meter;
use prefetch::{LONGEST_BODY, Prefetch};
use questions::{Asked, Noted};

/// Wishes for new workers between two calls. The extension sends one, if any, before it waits for
/// the next call, and it waits again where one was taken back.
const MOST_WISHES: u32 = 100;
/// Questions of a worker that did not wait for the answer to the one before. One that gave up
/// waiting does so once in a call.
const MOST_IMPATIENT: u32 = 100;
/// Methods that a worker has asked for and that are not done, also those it has given up waiting
/// for. It waits for one at a time.
const MOST_UNDER_WAY: usize = 16;
/// Of what a worker that has ended left behind: as much as a pipe or its shared memory can hold. A
/// process that it started may write on for ever.
const MOST_LAST_READS: u32 = 1024;

/// The settings of a relay, from its start on.
#[derive(Debug)]
pub struct Settings {
    /// How calls are written.
    pub codec: Codec,
    /// Whether the worker can end a call that is late, and stay.
    pub interruptible: bool,
    /// How long a worker may go on with a reply that nobody reads.
    pub stream_timeout: Duration,
    pub spool: Arc<Spool>,
    /// How bytes are told that are no frame.
    pub quote: Quote,
    /// Who answers what the worker asks; nobody where workers are not told that they may.
    pub methods: Option<Arc<dyn MethodCaller>>,
    /// Where messages of PHP belong as well, which its stderr does not have.
    pub last_words: LastWords,
}

pub struct Relay {
    channel: Channel,
    incoming: Incoming,
    out: Vec<u8>,
    dialect: Dialect,
    settings: Settings,
    slot_handle: SlotHandle,
    inbox: Arc<Inbox>,
    /// The call at hand, for those who ask.
    under_way: Option<UnderWay>,
    timer: Timer,
    /// Calls that the worker has before it has answered the one at hand.
    prefetch: Prefetch<Call>,
    /// Ends the patience with the call at hand.
    impatience: Timer,
    /// Wishes for new workers since the last call began.
    wishes: u32,
    /// Interim replies to the call at hand.
    informed: u32,
    /// A method of the server that the worker waits for.
    asked: Asked,
    /// Calls of methods that are under way for it.
    held: Held,
    /// Another question stands behind the call at hand, and has no answer yet.
    is_asked_again: bool,
    /// Questions before the one before was answered, since the last call began.
    impatient: u32,
    /// When somebody wants to know what PHP does in the call at hand.
    slow_at: Option<Instant>,
    /// Calls that the worker still gets.
    calls_left: Lifetime,
    /// For a worker without clocks of its own.
    meter: Option<Meter>,
}

/// An event that a relay waits for while it has a call.
enum Event {
    Item(Item),
    Withdrawn,
    /// The piece of its request's body that the worker asked for; None when the rest does not come.
    Body(Option<StreamPiece>),
    /// More time was granted from outside.
    Extended(Duration),
    Over(Over),
}

/// Why a call, or a reply, can't go on.
enum Over {
    Garbage(String),
    /// The worker closed its end.
    HungUp,
    Ended(Exit),
    Overdue,
}

impl Relay {
    pub(crate) fn new(
        channel: Channel,
        leftover: &[u8],
        dialect: Dialect,
        settings: Settings,
        slot_handle: SlotHandle,
        inbox: Arc<Inbox>,
    ) -> Self {
        Self {
            incoming: Incoming::starting_with(leftover, channel.most_whole())
                .quoting(settings.quote),
            prefetch: Prefetch::new(channel.can_prefetch(), Instant::now()),
            impatience: Timer::default(),
            out: Vec::with_capacity(1024),
            dialect,
            settings,
            calls_left: slot_handle.lifetime(),
            wishes: 0,
            informed: 0,
            asked: Asked::Nothing,
            held: Held::default(),
            impatient: 0,
            is_asked_again: false,
            slow_at: None,
            meter: meter(&channel, &slot_handle),
            channel,
            slot_handle,
            inbox,
            under_way: None,
            timer: Timer::default(),
        }
    }

    /// Changes over to a slot handle in a pool. What the worker did before does not count there.
    pub(crate) fn in_slot(self, slot_handle: SlotHandle, inbox: Arc<Inbox>) -> Self {
        Self {
            meter: meter(&self.channel, &slot_handle),
            calls_left: slot_handle.lifetime(),
            slot_handle,
            inbox,
            ..self
        }
    }

    /// Sends the calls for later, as long as each can be had whole and needs no waiting.
    fn send_prefetched(&mut self) {
        if self.asked.sends() {
            return; // nothing may come between its bytes
        }
        while let Some((number, call)) = self.prefetch.unsent() {
            let body = match encode(&mut self.out, &self.dialect, &self.settings, call, number) {
                Ok(Body::Empty) => Bytes::new(),
                Ok(Body::Bytes(bytes)) if bytes.len() <= LONGEST_BODY => bytes,
                // It is sent when it is at hand.
                Ok(Body::Bytes(_) | Body::File(_) | Body::Stream(_)) | Err(_) => return,
            };
            self.channel.offer(number);
            let parts = [IoSlice::new(&self.out), IoSlice::new(&body)];
            if !matches!(self.channel.write_whole(&parts), Ok(true)) {
                self.channel.take_back(number);
                return;
            }
            self.prefetch.sent(self.out.len() + body.len());
        }
    }

    /// Takes what belongs to no call.
    fn is_aside(&mut self, item: &mut Item) -> bool {
        let Some((aside, body)) = self.dialect.aside(item) else {
            return false;
        };
        match aside {
            Aside::Renewal { full } => {
                self.wishes = self.wishes.saturating_add(1);
                self.slot_handle.asks_for_renewal(full);
            }
            Aside::Remark(remark) => self.tell_remark(&remark),
            Aside::Counts(changes) => self.slot_handle.count_for_application(changes),
            Aside::Question(question) => {
                let Some(methods) = &self.settings.methods else {
                    return false;
                };
                pronghorn_ring::asked();
                let argument = std::mem::replace(body, Bytes::new().into());
                let noted = Noted::of(self.under_way.as_ref(), &question.method);
                self.impatient += u32::from(!self.asked.is_nothing());
                let calling = if self.held.count() < MOST_UNDER_WAY {
                    methods.call(&question.method, argument.into(), self.held.clone())
                } else {
                    Calling::Done(Err(format!(
                        "{MOST_UNDER_WAY} methods that this worker did not wait for are under way \
                         already"
                    )))
                };
                // A worker that gave up waiting may ask again before it is answered.
                if !self.asked.sends() {
                    self.asked = Asked::new(question.number, calling, noted);
                }
                // It reads the answer before it begins another call.
                self.reclaim();
            }
            Aside::Logged(Logged { text, by_php }) => {
                self.settings.last_words.say(&text);
                let by = if by_php {
                    Source::Php
                } else {
                    Source::Application
                };
                self.slot_handle
                    .log_message(self.under_way.as_ref(), &text, by);
            }
            Aside::Log(entry) => {
                let call = self
                    .under_way
                    .as_ref()
                    .map(|of| -> &dyn Observer { &*of.payload });
                self.slot_handle.log(call, &entry);
            }
        }
        true
    }

    /// Gets on with the answer to what the worker asked, as far as that is possible now.
    fn poll_asked(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.asked.is_nothing() {
            let polled = self.asked.poll(cx, &mut self.channel);
            let Poll::Ready(written) = polled else {
                return Poll::Pending;
            };
            self.prefetch.wrote(written);
        }
        Poll::Ready(())
    }

    /// Waits until nothing of an answer is left to be written: other bytes must not come between.
    fn poll_answered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.asked.sends() {
            return self.poll_asked(cx);
        }
        Poll::Ready(())
    }

    /// Once for a place: every worker of the pool would say the same, at every call.
    fn tell_remark(&self, remark: &Thrown) {
        let (pool, slot) = (self.slot_handle.pool(), self.slot_handle.slot());
        if let Some(is_last) = self.slot_handle.is_new(remark) {
            let more = if is_last {
                " (so much was found that nothing more is told until the next reload)"
            } else {
                ""
            };
            tracing::error!(
                target: "server", pool, slot, file = remark.file, line = remark.line, "{}{more}", remark.message
            );
        }
    }

    /// What a worker did that says nothing else.
    fn too_many_asides(&self) -> Option<String> {
        if self.impatient > MOST_IMPATIENT {
            return Some(format!(
                "it called methods more than {MOST_IMPATIENT} times during one call without \
                 waiting for their answers"
            ));
        }
        (self.wishes > MOST_WISHES).then(|| {
            format!("it asked for new workers more than {MOST_WISHES} times during one call")
        })
    }

    /// Reads what there is. 0 is the end of file.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let between = self.incoming.is_between_frames();
        let start = between.then(|| self.channel.peek(incoming::READ)).flatten();
        if let Some(wish) = self.incoming.wish(start)
            && let Some((head, body)) = self.channel.borrow(wish.head, wish.body.clone())
        {
            let taken = head.len() + body.len();
            self.incoming.put_lent(&wish, head, body);
            return Poll::Ready(Ok(taken));
        }
        if let Some(start) = start {
            self.incoming.expect(start);
        }
        poll_read_buf(Pin::new(&mut self.channel), cx, self.incoming.room())
    }

    /// What happens next while the worker has a call. `call` is there while its client waits for
    /// the first byte.
    async fn event_until(
        &mut self,
        mut call: Option<&mut Call>,
        wanted: Option<&BodyStream>,
        deadline: Option<Instant>,
    ) -> Event {
        poll_fn(|cx| {
            loop {
                loop {
                    match self.incoming.next() {
                        Ok(Some(mut item)) => {
                            if !self.is_aside(&mut item) {
                                return Poll::Ready(Event::Item(item));
                            }
                            match self.too_many_asides() {
                                None => continue,
                                Some(what) => {
                                    return Poll::Ready(Event::Over(Over::Garbage(what)));
                                }
                            }
                        }
                        Ok(None) => {}
                        Err(Garbage(what)) => return Poll::Ready(Event::Over(Over::Garbage(what))),
                    }
                    match self.poll_fill(cx) {
                        Poll::Ready(Ok(0) | Err(_)) => {
                            return Poll::Ready(Event::Over(Over::HungUp));
                        }
                        Poll::Ready(Ok(_)) => {}
                        Poll::Pending => break,
                    }
                }
                if !self.asked.is_nothing() {
                    _ = self.poll_asked(cx); // it is looked at again when it can go on
                }
                match self.inbox.poll_news(cx, self.under_way.as_ref()) {
                    // Its last bytes are there, even if their event is not.
                    Poll::Ready(News::Ended(exit)) => {
                        return Poll::Ready(match self.last_item() {
                            Some(item) => Event::Item(item),
                            None => Event::Over(Over::Ended(exit)),
                        });
                    }
                    Poll::Ready(News::Extended(time)) => return Poll::Ready(Event::Extended(time)),
                    Poll::Ready(News::Prefetched(call)) => {
                        if self.prefetch.add(call) {
                            self.send_prefetched();
                        } else {
                            self.reclaim();
                        }
                        continue;
                    }
                    Poll::Pending => {}
                }
                let until = self.prefetch.patient_until();
                if self.impatience.poll(cx, until).is_ready() {
                    self.reclaim();
                }
                if let Some(wanted) = wanted
                    && let Poll::Ready(piece) = wanted.poll_piece(cx)
                {
                    return Poll::Ready(Event::Body(piece));
                }
                if let Some(call) = &mut call
                    && call.poll_withdrawn(cx).is_ready()
                {
                    return Poll::Ready(Event::Withdrawn);
                }
                return self
                    .timer
                    .poll(cx, deadline)
                    .map(|()| Event::Over(Over::Overdue));
            }
        })
        .await
    }

    /// Waits for the end of the process, and says meanwhile what it is at when somebody asks.
    fn poll_ended(&self, cx: &Context<'_>) -> Poll<Exit> {
        self.inbox.poll_ended(cx, self.under_way.as_ref())
    }

    /// An item that was read already. What is none is found again by who waits for one.
    fn item_here(&mut self) -> Option<Item> {
        loop {
            match self.incoming.next() {
                Ok(Some(mut item)) => {
                    if !self.is_aside(&mut item) {
                        return Some(item);
                    }
                }
                Ok(None) | Err(Garbage(_)) => return None,
            }
        }
    }

    /// The last item of a worker that has ended.
    fn last_item(&mut self) -> Option<Item> {
        let mut buffer = [0; 4096];
        for _ in 0..MOST_LAST_READS {
            let Ok(read @ 1..) = self.channel.read_now(&mut buffer) else {
                break;
            };
            self.incoming.room().extend_from_slice(&buffer[..read]);
        }
        self.item_here()
    }

    /// Short enough to go out at once, because a worker that is free has read what there was. One
    /// at a time.
    async fn say_ping(&mut self) {
        self.out.clear();
        self.dialect
            .ping(&mut self.out, self.prefetch.number().max(1));
        if !self.out.is_empty() && self.inbox.pings() {
            self.flush().await;
        }
    }

    async fn say(&mut self, flags: Flags, stream: Stream, payload: &[u8]) {
        self.out.clear();
        encode_plain(&mut self.out, flags, stream, payload);
        self.flush().await;
    }

    /// Writes `out`, a short frame beside the calls. A failure is the worker's end, which shows
    /// elsewhere; a worker that reads nothing is given up when its process ends, and whoever
    /// watches it sees to that.
    async fn flush(&mut self) {
        let mut written = 0;
        poll_fn(|cx| {
            if self.poll_answered(cx).is_pending() {
                return self.poll_ended(cx).map(|_| ());
            }
            while written < self.out.len() {
                match Pin::new(&mut self.channel).poll_write(cx, &self.out[written..]) {
                    Poll::Ready(Ok(more)) => {
                        self.prefetch.wrote(more);
                        written += more;
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return self.poll_ended(cx).map(|_| ()),
                }
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl Peer for Relay {
    type Call = Prefetched<Call>;

    fn slot_handle(&self) -> &SlotHandle {
        &self.slot_handle
    }

    fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    fn under_way(&mut self) -> &mut Option<UnderWay> {
        &mut self.under_way
    }

    fn serve(&mut self, call: Prefetched<Call>) -> impl Future<Output = Served> + Send {
        self.exchange(call)
    }

    /// Waits for a call, and looks at what comes meanwhile: nothing should.
    async fn idle(&mut self) -> Result<Told, Report> {
        loop {
            match self.incoming.next() {
                Ok(None) => {}
                Ok(Some(mut item)) => {
                    if self.is_aside(&mut item) {
                        match self.too_many_asides() {
                            None => continue,
                            Some(what) => {
                                let request = None;
                                return Err(Report::Garbage { what, request });
                            }
                        }
                    }
                    if self.dialect.is_pong(&item) {
                        self.inbox.pong();
                        continue;
                    }
                    match self.dialect.stray(item, &self.slot_handle) {
                        Ok(()) => continue,
                        Err(why) => return Err(why),
                    }
                }
                Err(garbage) => {
                    match self
                        .dialect
                        .text(&mut self.incoming, garbage, &self.slot_handle)
                    {
                        Ok(()) => continue,
                        Err(why) => return Err(why),
                    }
                }
            }
            let told = poll_fn(|cx| {
                // The next call comes behind all of it.
                if self.poll_answered(cx).is_pending() {
                    return self.poll_ended(cx).map(|_| Some(Ok(Told::Ended)));
                }
                if let Poll::Ready(told) = self.inbox.poll(cx) {
                    return Poll::Ready(Some(Ok(told)));
                }
                self.poll_fill(cx).map(|filled| match filled {
                    Ok(0) => Some(Err("closed its connection".to_owned())),
                    Ok(_) => None,
                    Err(error) => Some(Err(format!("its connection broke: {error}"))),
                })
            });
            match told.await {
                Some(Ok(Told::Ping)) => self.say_ping().await,
                Some(Ok(Told::Ended)) => {
                    // Its last bytes are there, even if their event is not.
                    let mut last = self.last_item();
                    while let Some(item) = last {
                        self.dialect.stray(item, &self.slot_handle)?;
                        last = self.item_here();
                    }
                    return Ok(Told::Ended);
                }
                Some(Ok(told)) => return Ok(told),
                Some(Err(what)) => return Err(Report::HungUp { what }),
                None => {}
            }
        }
    }

    fn is_worn(&mut self) -> bool {
        self.calls_left.is_over(&self.slot_handle)
    }

    /// What comes after a call that ended `since`.
    fn next(&mut self, since: Instant) -> Next<Prefetched<Call>> {
        self.prefetch.end(since);
        self.channel
            .set_wakeup_threshold(self.prefetch.enough_calls());
        self.channel.set_fast_calls(self.prefetch.is_quick());
        let limits = self.prefetch.limits(self.calls_left.calls_left());
        let turn = self.slot_handle.next(since, limits);
        self.prefetch.extend(turn.prefetched);
        match turn.next {
            Next::Run(call) => Next::Run(call.into()),
            Next::Wait => self.prefetch.next().map_or(Next::Wait, Next::Run),
            Next::Stop => Next::Stop,
        }
    }

    /// Gives back what the worker has not begun of the calls for later, and lets none come before
    /// the one at hand is done.
    fn reclaim(&mut self) {
        if !self.prefetch.is_possible() {
            return;
        }
        while let Some(call) = self.inbox.take_call() {
            self.prefetch.add(call);
        }
        let channel = &self.channel;
        let back = self.prefetch.take_back(|number| channel.take_back(number));
        self.slot_handle.give_back(back);
    }

    async fn hang_up(&mut self) {
        self.say(
            Flags::CONTROL.with(Flags::JSON),
            Stream::END,
            br#"{"stop":true}"#,
        )
        .await;
    }

    fn leave(mut self) {
        // Calls may have been given in the moment of the end; nobody has seen them.
        let late = self.inbox.close(self.slot_handle.requeue());
        self.prefetch.extend(late);
        let mut back = Vec::new();
        for Prefetched { call, sent } in self.prefetch.take_all() {
            let begun = sent.is_some_and(|sent| {
                let since = self.prefetch.written_since(sent);
                !self.channel.has_not_begun(sent.number, since)
            });
            match self.inbox.exit() {
                Some(exit) if begun => _ = self.slot_handle.lose(call, WorkerFault::Died(exit)),
                _ => back.push(call),
            }
        }
        self.slot_handle.give_back(back);
        self.slot_handle.leave();
    }
}

/// None where the worker has clocks of its own: with the extension.
fn meter(channel: &Channel, slot_handle: &SlotHandle) -> Option<Meter> {
    let clock = match channel {
        Channel::Ring { .. } => None,
        // A script may have started the one that has connected.
        Channel::Unix(_) => channel
            .peer()
            .map_or_else(|| slot_handle.clock(), CpuClock::of),
        Channel::Tcp(_) | Channel::Pipes { .. } => slot_handle.clock(),
    };
    clock.map(Meter::new)
}

/// Writes a call to `out`, but for the body that follows it.
fn encode(
    out: &mut Vec<u8>,
    dialect: &Dialect,
    settings: &Settings,
    call: &Call,
    number: u32,
) -> Result<Body, CallError> {
    let codec = settings.codec;
    // Told apart by no more than the time that this thread has been at it since.
    let now = call.stamps.dispatched.unwrap_or_else(Instant::now);
    let left = call
        .deadline
        .map(|deadline| deadline.saturating_duration_since(now));
    let time_left_ms = left.map(|left| u32::try_from(left.as_millis()).unwrap_or(u32::MAX));
    let terms = Dispatch {
        number,
        time_left_ms,
    };
    out.clear();
    out.extend_from_slice(dialect.question());
    let frame = OpenFrame::begin(out);
    let body = call.payload.encode(Encoding::Frame(codec, terms), out)?;
    let len = usize::try_from(body.size()).unwrap_or(usize::MAX);
    frame
        .finish(out, codec.flag(), Stream::END, len)
        .map_err(|error| Unencodable::Request(error.to_string()))?;
    Ok(body)
}
