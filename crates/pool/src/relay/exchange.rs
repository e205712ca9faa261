//! One call on its way to a worker, and its reply on the way back.

use std::ffi::OsStr;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes};
use pronghorn_process::Exit;
use pronghorn_wire::Head;
use pronghorn_wire::frame::{Flags, Stream};
use pronghorn_wire::native::Thrown;
use tokio::io::AsyncWrite;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::dialect::{Dialect, Heard, Said};
use super::incoming::{self, Garbage, Item};
use super::outlet::{Outlet, Streamed};
use super::prefetch::Prefetched;
use super::{Event, Over, Relay, encode};
use crate::body::BodyStream;
use crate::call::{Body, Call, CallError, ReplyBody, WorkerFault};
use crate::content::Content;
use crate::incident::{CallDetails, Progress};
use crate::pieces::Lead;
use crate::pool::Report;
use crate::roster::UnderWay;
use crate::session::{self, Peer, PieceDeadline, Served};
use crate::spool::SpoolFile;
use crate::stamps::Stamps;
use crate::stats::Counter;

/// A body up to this size goes out in the same buffer as its head; copying it is cheaper than a
/// second vector.
const JOINED_BODY: usize = 1 << 10;
/// Interim replies to one call. Each waits in memory for a client that reads slowly.
const MOST_INTERIM: u32 = 100;
/// Buffers that grew beyond this are given back after a call.
const KEPT_BUFFER: usize = 64 << 10;

/// The body of the call at hand, if its worker may ask for it in pieces.
#[derive(Default)]
struct AskedBody {
    stream: Option<BodyStream>,
    /// The worker waits for a piece.
    is_wanted: bool,
}

impl AskedBody {
    /// The stream that a piece is waited for from.
    fn wanted(&self) -> Option<&BodyStream> {
        self.stream.as_ref().filter(|_| self.is_wanted)
    }

    /// The worker asks for a piece. False if there is none to ask for.
    fn want(&mut self, most: usize) -> bool {
        match &self.stream {
            Some(stream) if !self.is_wanted && most > 0 => {
                stream.want(most.min(incoming::PIECE));
                self.is_wanted = true;
                true
            }
            _ => false,
        }
    }
}

impl Relay {
    /// Carries one call to the worker and its reply back.
    pub(super) async fn exchange(
        &mut self,
        Prefetched { mut call, sent }: Prefetched<Call>,
    ) -> Served {
        if call.is_unwanted() && sent.is_none_or(|sent| self.channel.take_back(sent.number)) {
            return Served::Free(Instant::now());
        }
        (self.wishes, self.informed, self.impatient) = (0, 0, 0);
        self.is_asked_again = false;
        let since = call.stamps.dispatched.unwrap_or(call.stamps.queued);
        self.prefetch.begin(since, sent);
        let nth = self.inbox.count();
        self.under_way = Some(UnderWay {
            payload: call.payload.clone(),
            since: self.prefetch.since(),
            pid: None,
        });
        self.measure(&call);
        let mut body = AskedBody::default();
        if sent.is_none() {
            match self.send(call, &mut body).await {
                Ok(sent) => call = sent,
                Err(served) => return served,
            }
        }
        // Told apart by no more than the time that writing takes: each look at the clock costs.
        call.stamps.claimed = Some(self.prefetch.since());
        self.prefetch.may_send(body.stream.is_none());
        self.send_prefetched();
        if sent.is_none() && !self.prefetch.is_quick() {
            self.channel.wake();
        }
        let (call, leaving) = if self.dialect.question().is_empty() {
            (call, false)
        } else {
            match self.taken_up(call).await {
                Ok(taken_up) => taken_up,
                Err(served) => return served,
            }
        };
        self.tell_begun(&call, nth);
        self.until_answered(call, body, leaving).await
    }

    /// Writes a call to the worker. One that it can't get all of has not begun.
    async fn send(&mut self, call: Call, asked: &mut AskedBody) -> Result<Call, Served> {
        let number = self.prefetch.number();
        let encoded = encode(&mut self.out, &self.dialect, &self.settings, &call, number);
        let mut body = match encoded {
            Ok(body) => body,
            Err(error) => {
                call.fail(error);
                return Err(Served::Free(Instant::now()));
            }
        };
        if let Body::Stream(stream) = &body {
            asked.stream = Some(stream.clone());
        }
        if !self.dialect.question().is_empty() && call.payload.unanswered().is_some() {
            let question = self.dialect.question();
            if let Body::Bytes(bytes) = body {
                body = Body::Bytes([&bytes, question].concat().into());
            } else {
                debug_assert_eq!(body.size(), 0, "the question follows at once");
                self.out.extend_from_slice(question);
            }
            self.is_asked_again = true;
        }
        self.channel.offer(number);
        match self.write_call(body, &call).await {
            Ok(()) => Ok(call),
            Err(Over::HungUp) => Err(self.not_begun(hung_up(), call)),
            Err(Over::Ended(_)) => {
                self.slot_handle.decline(call);
                Err(Served::Ended)
            }
            Err(over @ (Over::Garbage(_) | Over::Overdue)) => {
                Err(self.cut_short(over, Some(call)).await)
            }
        }
    }

    /// Waits for the reply, and does what the worker, the client or the clock want before it.
    async fn until_answered(
        &mut self,
        mut call: Call,
        mut body: AskedBody,
        leaving: bool,
    ) -> Served {
        // It runs all the same, and the worker is not told before it has begun a reply.
        let mut told_withdrawn = call.is_withdrawn();
        let slow = call.terms.slow.or_else(|| self.slot_handle.slow());
        self.slow_at = slow.map(|slow| self.prefetch.since() + slow);
        loop {
            let (deadline, is_slow_first) = self.next_deadline(&call);
            let client = Some(&mut call).filter(|_| !told_withdrawn);
            let item = match self.event_until(client, body.wanted(), deadline).await {
                Event::Item(item) => item,
                Event::Body(Some((bytes, last))) => {
                    body.is_wanted = false;
                    match self.write_piece(bytes, last, call.deadline).await {
                        Ok(()) => continue,
                        Err(over) => return self.cut_short(over, Some(call)).await,
                    }
                }
                Event::Withdrawn | Event::Body(None) => {
                    body.is_wanted = false;
                    if call.is_unwanted() && self.passes_over() {
                        return Served::Free(Instant::now());
                    }
                    self.tell_withdrawn(&call, told_withdrawn).await;
                    told_withdrawn = true;
                    continue;
                }
                Event::Extended(time) => {
                    self.extend(&mut call, time);
                    continue;
                }
                Event::Over(Over::Overdue) if is_slow_first => {
                    self.have_looked_at();
                    continue;
                }
                Event::Over(Over::Overdue) if self.settings.interruptible => {
                    let request = self.answer_overdue(call, Some(self.prefetch.number()));
                    return self.until_ended(request, None).await;
                }
                Event::Over(over) => return self.cut_short(over, Some(call)).await,
            };
            let wrong = match self.hear(&item, None) {
                Ok(Heard::Interim(head)) => {
                    call.inform(head);
                    continue;
                }
                Ok(Heard::Extend(time)) => {
                    self.extend(&mut call, time);
                    continue;
                }
                Ok(Heard::Pong) => {
                    self.inbox.pong();
                    continue;
                }
                Ok(Heard::Nothing) => continue,
                // Who was told that the client has left asked before it heard that.
                Ok(Heard::Want(_)) if told_withdrawn => continue,
                Ok(Heard::Want(most)) => {
                    if body.want(most) {
                        continue;
                    }
                    "it asked for more of a body than there is to ask for".into()
                }
                Ok(Heard::Reply {
                    head,
                    file,
                    mut said,
                }) => {
                    said.leaving |= leaving;
                    call.stamps.first_byte = Some(Instant::now());
                    self.tell_spent();
                    return self.reply(call, head, file, said, item, body).await;
                }
                Ok(Heard::Failed { error, mut said }) => {
                    self.tell_spent();
                    self.tell_fatal(&call, &error, said);
                    said.leaving |= leaving;
                    call.fail(error);
                    return self.after(said, Instant::now()).await;
                }
                Ok(Heard::Unanswered(head)) => {
                    self.is_asked_again = false;
                    let now = Instant::now();
                    (call.stamps.first_byte, call.stamps.complete) = (Some(now), Some(now));
                    self.tell_spent();
                    call.deliver(head, ReplyBody::Whole(Bytes::new().into()));
                    let said = Said {
                        leaving,
                        ..Said::default()
                    };
                    return self.after(said, now).await;
                }
                Ok(Heard::Declined) => {
                    self.slot_handle.decline(call);
                    return Served::Leaving;
                }
                Ok(Heard::Chunk(_) | Heard::Free(_)) => "a frame at the wrong time".into(),
                Err(Garbage(what)) => what,
            };
            return self.cut_short(Over::Garbage(wrong), Some(call)).await;
        }
    }

    /// Tells the worker that nobody waits for its call, once, where it hears that before its reply
    /// and the call does not run alone.
    async fn tell_withdrawn(&mut self, call: &Call, is_told: bool) {
        let hears = self.dialect.hears_cancel_before_its_reply();
        if !is_told && hears && !self.waits_alone(call) {
            self.say_cancel().await;
        }
    }

    /// Looks at the worker's clock, where it does not tell by it itself.
    fn measure(&mut self, call: &Call) {
        if let Some(meter) = &mut self.meter {
            meter.begin(self.prefetch.since(), call.payload.is_timed());
        }
    }

    /// Tells what the time of the call at hand was spent on, where the worker does not.
    fn tell_spent(&self) {
        if let (Some(meter), Some(call)) = (&self.meter, &self.under_way)
            && let Some(spent) = meter.spent(call.since, Instant::now())
        {
            call.payload.spent(spent);
        }
    }

    /// How far the call at hand has come.
    fn progress(&self, stamps: &Stamps) -> Progress {
        let cpu_before = match &self.meter {
            Some(meter) => meter.cpu_before(),
            None => self.channel.cpu_before(self.prefetch.number()),
        };
        Progress {
            cpu_before,
            ..stamps.progress()
        }
    }

    /// The details of the call at hand.
    fn details(&self) -> Option<Box<CallDetails>> {
        self.under_way.as_ref()?.payload.details()
    }

    /// When the call is late, or slow before that: whether it is slow then.
    fn next_deadline(&self, call: &Call) -> (Option<Instant>, bool) {
        let is_first = |at: Instant| call.deadline.is_none_or(|by| at < by);
        match self.slow_at.filter(|at| is_first(*at)) {
            Some(at) => (Some(at), true),
            None => (call.deadline, false),
        }
    }

    /// Asks for a look at what PHP does, if there were not too many.
    fn have_looked_at(&mut self) {
        self.slow_at = None;
        if let Some(call) = &self.under_way
            && self.slot_handle.may_look()
        {
            let (call, stack) = (call.clone(), self.channel.stack_layout());
            self.slot_handle.report(Report::Slow { call, stack });
        }
    }

    /// PHP could not go on after it.
    fn tell_fatal(&self, call: &Call, error: &CallError, said: Said) {
        if said.leaving {
            self.slot_handle.tell_fatal(call, error);
        }
    }

    fn tell_begun(&self, call: &Call, nth: u64) {
        let hears = self.dialect.hears_cancel_before_its_reply();
        call.payload.begun(self.slot_handle.taker(call, hears, nth));
    }

    fn extend(&self, call: &mut Call, time: Duration) {
        call.deadline = self.slot_handle.later(call.deadline, time);
    }

    /// The worker can't be used any more and has not begun this call: another one gets it.
    fn not_begun(&self, why: Report, call: Call) -> Served {
        self.slot_handle.report(why);
        self.slot_handle.decline(call);
        Served::Broken
    }

    /// Waits until the worker answers the question that the call began with. A worker that can't be
    /// used any more before that has not begun the call, so another one gets it, whatever it is.
    /// True: the worker said that it leaves.
    async fn taken_up(&mut self, mut call: Call) -> Result<(Call, bool), Served> {
        let (mut leaving, mut withdrawn) = (false, false);
        loop {
            let deadline = call.deadline;
            let client = Some(&mut call).filter(|_| !withdrawn);
            let unusable = match self.event_until(client, None, deadline).await {
                Event::Item(Item::Frame { header, .. }) if header.flags.has(Flags::CONTROL) => {
                    return Ok((call, leaving));
                }
                Event::Item(item) => self.dialect.stray(item, &self.slot_handle),
                Event::Withdrawn | Event::Body(_) => {
                    withdrawn = true;
                    Ok(())
                }
                Event::Extended(time) => {
                    self.extend(&mut call, time);
                    Ok(())
                }
                Event::Over(Over::Garbage(what)) => {
                    self.dialect
                        .text(&mut self.incoming, Garbage(what), &self.slot_handle)
                }
                Event::Over(Over::HungUp) => Err(hung_up()),
                Event::Over(Over::Ended(_)) => {
                    self.slot_handle.decline(call);
                    return Err(Served::Ended);
                }
                Event::Over(over @ Over::Overdue) => {
                    self.slot_handle.tell_failure(|left_out| tracing::warn!(
                        target: "server", pool = self.slot_handle.pool(), slot = self.slot_handle.slot(), left_out,
                        "a worker did not begin a call in time: it was still at work on the call before, or it \
                         does not use an official package and needs `pool.relay.fence: never`"
                    ));
                    return Err(self.cut_short(over, Some(call)).await);
                }
            };
            match unusable {
                Ok(()) => {}
                // It may go on all the same; if not, its end shows.
                Err(Report::Leaving) => leaving = true,
                Err(why) => return Err(self.not_begun(why, call)),
            }
        }
    }

    /// Whether the worker has not begun a call that runs without its client.
    fn waits_alone(&self, call: &Call) -> bool {
        let (number, since) = self.prefetch.at_hand();
        call.runs_alone && self.channel.has_not_begun(number, since)
    }

    /// Takes the call at hand back, if the worker has not begun it.
    fn passes_over(&self) -> bool {
        self.prefetch.may_pass_over() && self.channel.take_back(self.prefetch.number())
    }

    fn hear(&mut self, item: &Item, begun: Option<Said>) -> Result<Heard, Garbage> {
        let under_way = self.under_way.as_ref();
        let payload = &*under_way.expect("it is heard with a call").payload;
        let call = (self.prefetch.number(), payload);
        let heard = match item {
            Item::Frame {
                header,
                context,
                body: Content::Here(body),
            } => self.dialect.hear(header, context, body, call, begun),
            // Only of native workers, who say everything in the context.
            Item::Frame {
                header, context, ..
            }
            | Item::Large {
                header, context, ..
            } => self
                .dialect
                .hear(header, context, &Bytes::new(), call, begun),
            Item::Piece { .. } => Err(Garbage("a piece of nothing".into())),
        };
        if matches!(heard, Ok(Heard::Interim(_))) {
            self.informed = self.informed.saturating_add(1);
            if self.informed > MOST_INTERIM {
                let what = format!("more than {MOST_INTERIM} interim replies to one call");
                return Err(Garbage(what));
            }
        }
        // An answer to a ping was asked for before.
        if !matches!(heard, Ok(Heard::Pong | Heard::Nothing)) {
            self.prefetch.heard();
        }
        heard
    }

    /// Sends a call: one write for all of it where the kernel takes that much.
    async fn write_call(&mut self, body: Body, call: &Call) -> Result<(), Over> {
        match body {
            Body::Empty | Body::Stream(_) => self.write(&Bytes::new(), call.deadline).await,
            Body::Bytes(bytes) if bytes.len() <= JOINED_BODY => {
                self.out.extend_from_slice(&bytes);
                self.write(&Bytes::new(), call.deadline).await
            }
            Body::Bytes(bytes) => self.write(&bytes, call.deadline).await,
            Body::File(file) => {
                let mut at = 0;
                while at < file.len() {
                    let piece = read_piece(file.clone(), at).await.map_err(|error| {
                        Over::Garbage(format!("the request's body cannot be read back: {error}"))
                    })?;
                    at += piece.len() as u64;
                    self.write(&piece, call.deadline).await?;
                    self.out.clear();
                }
                Ok(())
            }
        }
    }

    /// Sends a piece of a body that the worker asked for.
    async fn write_piece(
        &mut self,
        bytes: Bytes,
        last: bool,
        deadline: Option<Instant>,
    ) -> Result<(), Over> {
        self.out.clear();
        Dialect::body(&mut self.out, self.prefetch.number(), bytes.len(), last);
        self.write(&bytes, deadline).await
    }

    /// Writes `out` and then `body`.
    async fn write(&mut self, body: &Bytes, deadline: Option<Instant>) -> Result<(), Over> {
        let (mut head, mut body) = (0, body.clone());
        poll_fn(|cx| {
            if self.poll_answered(cx).is_pending() {
                return match self.poll_ended(cx) {
                    Poll::Ready(exit) => Poll::Ready(Err(Over::Ended(exit))),
                    Poll::Pending => (self.timer.poll(cx, deadline)).map(|()| Err(Over::Overdue)),
                };
            }
            while head < self.out.len() || !body.is_empty() {
                let channel = Pin::new(&mut self.channel);
                let written = if body.is_empty() {
                    channel.poll_write(cx, &self.out[head..])
                } else {
                    let parts = [IoSlice::new(&self.out[head..]), IoSlice::new(&body)];
                    channel.poll_write_vectored(cx, &parts)
                };
                match written {
                    Poll::Ready(Ok(written)) => {
                        self.prefetch.wrote(written);
                        let of_head = written.min(self.out.len() - head);
                        head += of_head;
                        body.advance(written - of_head);
                    }
                    // The worker closed its end: it is about to die, and its exit says more than
                    // this error.
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Over::HungUp)),
                    Poll::Pending => {
                        if let Poll::Ready(exit) = self.poll_ended(cx) {
                            return Poll::Ready(Err(Over::Ended(exit)));
                        }
                        return self.timer.poll(cx, deadline).map(|()| Err(Over::Overdue));
                    }
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// The call can't go on. Settles it and says what that means for the worker.
    async fn cut_short(&self, over: Over, call: Option<Call>) -> Served {
        match over {
            Over::Garbage(what) => {
                let request = call.map(|call| {
                    let request = call.payload.describe();
                    call.fail(WorkerFault::Garbage(what.clone()));
                    request
                });
                self.slot_handle.report(Report::Garbage { what, request });
                Served::Broken
            }
            Over::Overdue => {
                if let Some(call) = call {
                    self.answer_overdue(call, None);
                }
                Served::Broken
            }
            Over::HungUp => {
                self.slot_handle.report(Report::HungUp {
                    what: "closed its connection during a call".into(),
                });
                let exit = poll_fn(|cx| self.poll_ended(cx)).await;
                self.lost(call, exit)
            }
            Over::Ended(exit) => self.lost(call, exit),
        }
    }

    /// Answers the client. `number` is of a call that PHP can be told to end.
    fn answer_overdue(&self, call: Call, number: Option<u32>) -> String {
        let request = call.payload.describe();
        self.slot_handle.count(Counter::Overdue);
        self.slot_handle.report(Report::Overdue {
            what: request.clone(),
            ran: call.stamps.ran(),
            progress: Some(Box::new(self.progress(&call.stamps))),
            client: call.payload.late_answer(),
            is_told: call.payload.tells_failures(),
            call: number,
            details: call.payload.details(),
            stack: self.channel.stack_layout(),
        });
        call.fail(CallError::Deadline);
        request
    }

    /// Waits until the worker ends a call whose client was answered, or its reply that nobody gets.
    /// It is free then, unless it was given up.
    async fn until_ended(&mut self, request: String, mut begun: Option<Said>) -> Served {
        // A large frame whose pieces are still to come said this.
        let mut inside = None;
        let said = loop {
            let item = match self.event_until(None, None, None).await {
                Event::Item(Item::Piece { last, .. }) => match inside.filter(|_| last) {
                    Some(Said { more: false, .. }) => break inside.unwrap_or_default(),
                    _ => continue,
                },
                Event::Item(item) => item,
                Event::Withdrawn | Event::Body(_) | Event::Extended(_) => continue,
                Event::Over(over) => return self.cut_short(over, None).await,
            };
            let said = match self.hear(&item, begun) {
                Ok(Heard::Reply { said, .. } | Heard::Chunk(said)) => said,
                Ok(Heard::Failed { error, said }) => {
                    self.tell_end(&request, &error);
                    break said;
                }
                Ok(_) => continue,
                Err(Garbage(what)) => return self.cut_short(Over::Garbage(what), None).await,
            };
            begun = Some(said);
            inside = matches!(item, Item::Large { .. }).then_some(said);
            if inside.is_none() && !said.more {
                break said;
            }
        };
        if self.may_go_on().await {
            self.after(said, Instant::now()).await
        } else {
            Served::Broken
        }
    }

    /// The worker has ended what it was late with. Whether it is given up all the same.
    async fn may_go_on(&self) -> bool {
        let (may_go_on, told) = oneshot::channel();
        self.slot_handle.report(Report::Recovered { may_go_on });
        told.await.is_ok()
    }

    /// What is told of a call that nobody waits for; only our SDK can be interrupted, and it says
    /// what was thrown.
    fn tell_end(&self, request: &str, error: &CallError) {
        let CallError::Thrown(thrown) = error else {
            return;
        };
        let (pool, slot) = (self.slot_handle.pool(), self.slot_handle.slot());
        let Thrown {
            class,
            message,
            file,
            line,
            trace,
        } = &**thrown;
        let under_way = self.under_way.as_ref();
        if under_way.is_some_and(|it| it.payload.tells_failures()) {
            tracing::debug!(target: "server", pool, slot, request, class, file, line, trace, "late call ended: {message}");
        } else {
            tracing::error!(target: "server", pool, slot, request, class, file, line, trace, "late call ended: {message}");
        }
    }

    fn lost(&self, call: Option<Call>, exit: Exit) -> Served {
        if let Some(call) = call {
            let (number, since) = self.prefetch.at_hand();
            if self.channel.has_not_begun(number, since) {
                // It was on its way out already.
                self.slot_handle.decline(call);
                return Served::Ended;
            }
            let progress = self.progress(&call.stamps);
            return session::lost(&self.slot_handle, call, progress, exit);
        }
        Served::Ended
    }

    /// The head of a reply is here: hands it over, and what follows it.
    async fn reply(
        &mut self,
        mut call: Call,
        head: Head,
        file: bool,
        said: Said,
        item: Item,
        asked: AskedBody,
    ) -> Served {
        let (first, whole) = match item {
            Item::Frame { body, .. } if !said.more => {
                // All of it came with its first byte, as far as anybody can tell.
                let complete = call.stamps.first_byte;
                call.stamps.complete = complete;
                let is_lent = body.is_lent();
                let body = if file {
                    ReplyBody::File(path_of(&Bytes::from(body)))
                } else {
                    ReplyBody::Whole(body)
                };
                call.deliver(head, body);
                if is_lent {
                    yield_to_ready_tasks().await;
                }
                return self
                    .after(said, complete.unwrap_or_else(Instant::now))
                    .await;
            }
            Item::Frame { body, .. } => (Some(body), None),
            Item::Large { len, .. } => (None, (!said.more).then_some(len)),
            Item::Piece { .. } => unreachable!("`hear` refused it"),
        };
        self.reclaim();
        let streamed = Streamed::of(&call, &self.slot_handle);
        let spool = self.settings.spool.clone();
        let reads_on = call.payload.reads_on();
        let asked = Some(asked).filter(|_| reads_on).unwrap_or_default();
        let outlet = Outlet::begin(call, head, whole, spool);
        if said.ping {
            self.say(Flags::NONE, Stream::PONG, b"").await;
        }
        self.pass_on(outlet, first, said, streamed, asked).await
    }

    /// Passes the body of a reply on until it ends.
    async fn pass_on(
        &mut self,
        mut outlet: Outlet,
        first: Option<Content>,
        said: Said,
        streamed: Streamed,
        asked: AskedBody,
    ) -> Served {
        let begun = said;
        let passed = self
            .pass_pieces(&mut outlet, first, said, &streamed, asked)
            .await;
        match passed {
            Ok(said) => self.after(said, Instant::now()).await,
            Err(Over::Overdue) => {
                let interruptible = self.settings.interruptible;
                // The client's connection is cut.
                drop(outlet);
                self.slot_handle.report(Report::Overdue {
                    what: streamed.request.clone(),
                    ran: streamed.stamps.ran(),
                    progress: Some(Box::new(self.progress(&streamed.stamps))),
                    client: "was cut off",
                    is_told: false,
                    call: interruptible.then_some(self.prefetch.number()),
                    details: self.details(),
                    stack: self.channel.stack_layout(),
                });
                if !interruptible {
                    return Served::Broken;
                }
                self.until_ended(streamed.request, Some(begun)).await
            }
            Err(Over::HungUp) => {
                let hung_up = "closed its connection during a reply";
                self.slot_handle.report(Report::HungUp {
                    what: hung_up.into(),
                });
                poll_fn(|cx| self.poll_ended(cx)).await;
                self.lost_in_stream(streamed)
            }
            Err(Over::Ended(_)) => self.lost_in_stream(streamed),
            Err(Over::Garbage(what)) => {
                let request = Some(streamed.request);
                self.slot_handle.report(Report::Garbage { what, request });
                Served::Broken
            }
        }
    }

    fn lost_in_stream(&self, streamed: Streamed) -> Served {
        let progress = self.progress(&streamed.stamps);
        let under_way = self.under_way.as_ref();
        session::lost_in_stream(&self.slot_handle, streamed, progress, under_way)
    }

    async fn pass_pieces(
        &mut self,
        outlet: &mut Outlet,
        first: Option<Content>,
        mut said: Said,
        Streamed { request, limit, .. }: &Streamed,
        mut asked: AskedBody,
    ) -> Result<Said, Over> {
        let begun = said;
        let mut deadline = PieceDeadline::new(*limit);
        // Whether pieces of a large frame are still to come.
        let mut inside = first.is_none();
        let mut next = first;
        loop {
            if let Some(bytes) = next.take() {
                let is_lent = bytes.is_lent();
                if !bytes.is_empty() {
                    self.hand_out(outlet, bytes, !said.more).await?;
                }
                deadline.renew();
                if is_lent {
                    yield_to_ready_tasks().await;
                }
            }
            if !inside && !said.more {
                self.tell_spent();
                outlet.end();
                return Ok(said);
            }
            if outlet.is_closed() && deadline.give_up(self.settings.stream_timeout) {
                self.say_cancel().await;
            }
            let item = match self.event_until(None, asked.wanted(), deadline.get()).await {
                Event::Item(Item::Piece { bytes, last }) => {
                    inside = !last;
                    next = Some(bytes);
                    continue;
                }
                Event::Item(item) => item,
                Event::Body(Some((bytes, last))) => {
                    asked.is_wanted = false;
                    self.write_piece(bytes, last, deadline.get()).await?;
                    continue;
                }
                // Its client has left in the middle of it.
                Event::Body(None) => {
                    asked.is_wanted = false;
                    self.say_cancel().await;
                    continue;
                }
                // Only waited for with a call at hand.
                Event::Withdrawn => continue,
                Event::Extended(time) => {
                    deadline.extend(&self.slot_handle, time);
                    continue;
                }
                Event::Over(over) => return Err(over),
            };
            match self
                .hear(&item, Some(begun))
                .map_err(|Garbage(what)| Over::Garbage(what))?
            {
                Heard::Chunk(more) => {
                    let (busy, leaving) = (said.busy || more.busy, said.leaving || more.leaving);
                    said = Said {
                        busy,
                        leaving,
                        ..more
                    };
                    if said.ping && !outlet.is_closed() {
                        self.say(Flags::NONE, Stream::PONG, b"").await;
                    }
                }
                Heard::Extend(time) => {
                    deadline.extend(&self.slot_handle, time);
                    continue;
                }
                Heard::Pong => {
                    self.inbox.pong();
                    continue;
                }
                Heard::Nothing => continue,
                // Who was told that the client has left asked before it heard that.
                Heard::Want(_) if deadline.is_given_up() => continue,
                Heard::Want(most) if asked.want(most) => {
                    deadline.renew();
                    continue;
                }
                Heard::Failed { error, said } => {
                    let what = if deadline.is_given_up() {
                        "failed after its client had left"
                    } else {
                        // Without its end the client's connection is cut: the reply must not look
                        // whole.
                        "reply broken off"
                    };
                    self.slot_handle.tell_failure(|left_out| tracing::error!(
                        target: "server", pool = self.slot_handle.pool(), request, left_out, "{what}: {error}"
                    ));
                    return Ok(said);
                }
                Heard::Interim(_)
                | Heard::Reply { .. }
                | Heard::Free(_)
                | Heard::Want(_)
                | Heard::Unanswered(_)
                | Heard::Declined => {
                    return Err(Over::Garbage("a frame at the wrong time".into()));
                }
            }
            match item {
                Item::Frame { body, .. } => next = Some(body),
                Item::Large { .. } | Item::Piece { .. } => inside = true,
            }
        }
    }

    /// Hands a piece to the client's side. `finished` says that the worker has nothing left to
    /// decide: it must not wait for a slow client, so what finds no room goes to a file. Otherwise
    /// the worker waits, which is how a slow client slows it down.
    async fn hand_out(
        &self,
        outlet: &mut Outlet,
        bytes: Content,
        finished: bool,
    ) -> Result<(), Over> {
        let lead = if finished { Lead::Long } else { Lead::Short };
        let Some(bytes) = outlet.send_or_spill(bytes, lead).await else {
            return Ok(());
        };
        tokio::select! {
            () = outlet.send(bytes, lead, &self.slot_handle) => Ok(()),
            exit = poll_fn(|cx| self.poll_ended(cx)) => Err(Over::Ended(exit)),
        }
    }

    /// The reply is out. What is left before the worker takes the next call?
    async fn after(&mut self, said: Said, done: Instant) -> Served {
        if self.out.capacity() > KEPT_BUFFER {
            self.out = Vec::new();
        }
        if said.leaving {
            return Served::Leaving;
        }
        if std::mem::take(&mut self.is_asked_again) {
            return self.until_it_waits(done).await;
        }
        if said.busy {
            return self.until_free(done).await;
        }
        Served::Free(done)
    }

    /// Takes calls for after what this one has left, if that is short.
    fn wind_down(&mut self, since: Instant) {
        let calls_left = self.calls_left.calls_left();
        if let Some(limits) = self.prefetch.wind_down(since, calls_left) {
            self.prefetch
                .extend(self.slot_handle.winds_down(since, limits));
            self.send_prefetched();
        }
    }

    /// Waits for the worker's word that it is free; other frames are dropped. What it does
    /// meanwhile has a deadline of its own. Calls stay ahead of it as they do behind a call: that,
    /// and what it leaves for later, are short or are not.
    async fn until_free(&mut self, since: Instant) -> Served {
        let limit = self.slot_handle.exec_ttl();
        let mut deadline = limit.map(|limit| since + limit);
        let mut late = false;
        let mut waits = false;
        loop {
            // Its word often came with the reply: it does not wake this thread for it while it has
            // another call.
            let event = if let Some(item) = self.item_here() {
                Event::Item(item)
            } else {
                if !std::mem::replace(&mut waits, true) {
                    self.wind_down(since);
                }
                self.event_until(None, None, deadline).await
            };
            match event {
                Event::Item(item) => match self.hear(&item, None) {
                    Ok(Heard::Free(_)) if late && !self.may_go_on().await => return Served::Broken,
                    Ok(Heard::Free(rest)) => {
                        if let Some(rest) = rest {
                            self.prefetch.note_rest(rest);
                        }
                        return Served::Free(Instant::now());
                    }
                    Ok(Heard::Extend(time)) => deadline = self.slot_handle.later(deadline, time),
                    Ok(_) | Err(Garbage(_)) => {}
                },
                Event::Extended(time) => deadline = self.slot_handle.later(deadline, time),
                Event::Withdrawn | Event::Body(_) => {}
                Event::Over(Over::Overdue) => {
                    let interruptible = self.settings.interruptible;
                    let of = self.under_way.as_ref();
                    let of = of.map_or_else(String::new, |of| of.payload.describe());
                    self.slot_handle.report(Report::Overdue {
                        what: format!("deferred work of {of}"),
                        ran: limit.unwrap_or_default(),
                        progress: None,
                        client: "has its reply",
                        is_told: false,
                        call: interruptible.then_some(deferred_work_of(self.prefetch.number())),
                        details: self.details(),
                        stack: self.channel.stack_layout(),
                    });
                    if !interruptible {
                        return Served::Broken;
                    }
                    (late, deadline) = (true, None);
                }
                Event::Over(over) => return self.cut_short(over, None).await,
            }
        }
    }

    /// Waits for the answer to the question behind a call: before it nothing that comes may be
    /// taken for the answer to another one.
    async fn until_it_waits(&mut self, since: Instant) -> Served {
        let limit = self.slot_handle.exec_ttl();
        let mut deadline = limit.map(|limit| since + limit);
        loop {
            let unusable = match self.event_until(None, None, deadline).await {
                Event::Item(Item::Frame { header, .. }) if header.flags.has(Flags::CONTROL) => {
                    return Served::Free(Instant::now());
                }
                Event::Item(item) => self.dialect.stray(item, &self.slot_handle),
                Event::Withdrawn | Event::Body(_) => Ok(()),
                Event::Extended(time) => {
                    deadline = self.slot_handle.later(deadline, time);
                    Ok(())
                }
                Event::Over(Over::Garbage(what)) => {
                    self.dialect
                        .text(&mut self.incoming, Garbage(what), &self.slot_handle)
                }
                Event::Over(Over::Overdue) => {
                    let of = self.under_way.as_ref();
                    let of = of.map_or_else(String::new, |of| of.payload.describe());
                    self.slot_handle.report(Report::Overdue {
                        what: format!("work after the answer to {of}"),
                        ran: limit.unwrap_or_default(),
                        progress: None,
                        client: "has its reply",
                        is_told: false,
                        call: None,
                        details: self.details(),
                        stack: self.channel.stack_layout(),
                    });
                    return Served::Broken;
                }
                Event::Over(over) => return self.cut_short(over, None).await,
            };
            match unusable {
                Ok(()) => {}
                Err(Report::Leaving) => return Served::Leaving,
                Err(why) => {
                    self.slot_handle.report(why);
                    return Served::Broken;
                }
            }
        }
    }

    async fn say_cancel(&mut self) {
        // The worker finds it behind what it passes over, not behind a call.
        self.reclaim();
        self.out.clear();
        self.dialect.cancel(&mut self.out, self.prefetch.number());
        self.flush().await;
    }
}

/// By which the worker can be told to end what comes after its reply: another number than that of
/// the call, which it may have been told a moment before.
fn deferred_work_of(number: u32) -> u32 {
    !number
}

fn hung_up() -> Report {
    Report::HungUp {
        what: "closed its connection".into(),
    }
}

fn path_of(bytes: &Bytes) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// A piece of a spooled body, read off the I/O thread.
async fn read_piece(file: Arc<SpoolFile>, at: u64) -> io::Result<Bytes> {
    let read = move || {
        use std::os::unix::fs::FileExt;
        let want = usize::try_from(file.len() - at)
            .unwrap_or(usize::MAX)
            .min(incoming::PIECE);
        let mut piece = vec![0; want];
        file.file().read_exact_at(&mut piece, at)?;
        Ok(piece.into())
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(io::Error::other)?
}

/// Lets each task that is ready run once: the client's, which was just woken, and will send from
/// where they lie the bytes that it was lent. If it does not, they are copied when the relay reads
/// on.
async fn yield_to_ready_tasks() {
    let mut over = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
