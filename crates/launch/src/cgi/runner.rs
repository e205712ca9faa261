//! A slot at work: one program at a time, from its start to its end.

use std::ffi::OsString;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::{Timer, millis};
use pronghorn_cgi::{BadReply, HeadReader};
use pronghorn_process::{Command, CpuClock, Credentials, Exit, Limits, Signal, Spawner, Stream};
use pronghorn_wire::Head;
use pronghorn_wire::native::Spent;
use tokio::sync::watch;
use tokio::time::Instant;

use super::running::{Output, Running};
use super::start::{Program, cannot_start, stdin_of};
use crate::measured::{Measured, TooShort};
use pronghorn_pool::Counter;
use pronghorn_pool::Lead;
use pronghorn_pool::Spool;
use pronghorn_pool::transport::Call;
use pronghorn_pool::transport::Next;
use pronghorn_pool::transport::UnderWay;
use pronghorn_pool::transport::{Inbox, News, Told};
use pronghorn_pool::transport::{Outlet, Streamed};
use pronghorn_pool::transport::{Peer, PieceDeadline, Served};
use pronghorn_pool::transport::{Report, SlotHandle};
use pronghorn_pool::{Body, CallError, Encoding, ReplyBody, Stamps, Taker, WorkerFault};

/// What a program gets to end by itself after SIGTERM; as with workers.
const GRACE: Duration = Duration::from_secs(5);
/// The kernel closes what a process had open a moment before its end shows: so long is waited for
/// it, to tell a reply that is complete from one that a crash cut off.
const UNTIL_THE_END: Duration = Duration::from_millis(100);
/// An answer that is at once there and no longer goes out in one piece.
const WHOLE: usize = 64 << 10;
/// The variables of most requests.
const BLOCK: usize = 2 << 10;

/// A slot at work.
pub(super) struct CgiRunner {
    pub(super) spawner: Spawner,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) user: Option<Credentials>,
    pub(super) spool: Arc<Spool>,
    pub(super) slot_handle: SlotHandle,
    pub(super) inbox: Arc<Inbox>,
    pub(super) end: Arc<watch::Sender<Option<Exit>>>,
    /// The call at hand, for those who ask.
    pub(super) under_way: Option<UnderWay>,
    pub(super) timer: Timer,
}

/// What happens while a program runs.
enum Event {
    /// There is more of its output in its buffer.
    Output,
    /// There is no more of it.
    Complete,
    Withdrawn,
    Extended(Duration),
    Overdue,
    /// The slot is killed.
    Killed(Exit),
}

/// How a program is parted with.
enum Parting {
    /// It may finish what it is at, by then.
    Finish(Option<Instant>),
    /// It is asked to end, and then made to.
    Terminate,
    Kill,
}

impl Peer for CgiRunner {
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

    async fn serve(&mut self, call: Call) -> Served {
        self.run(call).await;
        Served::Free(Instant::now())
    }

    async fn idle(&mut self) -> Result<Told, Report> {
        Ok(poll_fn(|cx| self.inbox.poll(cx)).await)
    }

    /// Each call has a process of its own.
    fn is_worn(&mut self) -> bool {
        false
    }

    fn next(&mut self, since: Instant) -> Next<Call> {
        self.slot_handle.next_alone(since)
    }

    async fn hang_up(&mut self) {
        self.end.send_replace(Some(Exit::Code(0)));
    }

    fn leave(self) {
        self.inbox.leave(self.slot_handle);
    }
}

impl CgiRunner {
    async fn run(&mut self, mut call: Call) {
        if call.is_unwanted() {
            return;
        }
        let mut block = Vec::with_capacity(BLOCK);
        let body = match call.payload.encode(Encoding::Variables, &mut block) {
            Ok(body) => body,
            Err(error) => return call.fail(error),
        };
        let Some(program) = Program::of(&block, &self.environment) else {
            let why = "the request names no program".to_owned();
            return call.fail(WorkerFault::NotStarted(why));
        };
        self.inbox.count();
        let mut running = match self.start(program, body, &call).await {
            Ok(running) => running,
            Err(error) => return call.fail(error),
        };
        self.under_way = Some(UnderWay {
            payload: call.payload.clone(),
            since: call.stamps.dispatched.unwrap_or(call.stamps.queued),
            pid: Some(running.pid()),
        });
        call.stamps.claimed = Some(Instant::now());
        call.payload.begun(Taker {
            pid: running.pid(),
            // Each has a process of its own.
            ..self.slot_handle.taker(&call, false, 1)
        });
        let parting = self.reply(call, &mut running).await;
        self.part(running, parting).await;
    }

    async fn start(
        &mut self,
        program: Program,
        body: Body,
        call: &Call,
    ) -> Result<Running, CallError> {
        let Program {
            file,
            folder,
            environment,
        } = program;
        let not_started = |why: String| CallError::from(WorkerFault::NotStarted(why));
        let (stdin, input) = stdin_of(body).map_err(|error| {
            not_started(format!("the request's body can't be handed over: {error}"))
        })?;
        let command = Command {
            program: file.clone().into(),
            args: Vec::new(),
            env: environment,
            cwd: folder,
            credentials: self.user.clone(),
            stdin,
            stdout: Stream::Pipe,
            stderr: Stream::Pipe,
            passed: Vec::new(),
            mark: None,
            overtakes: false,
            limits: Limits::default(),
        };
        let mut spawned = std::pin::pin!(self.spawner.spawn(command));
        // Given up, the thread that spawns ends what it has just started.
        let child = poll_fn(|cx| match spawned.as_mut().poll(cx) {
            Poll::Ready(child) => Poll::Ready(Some(child)),
            Poll::Pending => self.timer.poll(cx, call.deadline).map(|()| None),
        })
        .await;
        match child {
            Some(Ok(child)) => {
                let (pool, payload) = (self.slot_handle.pool(), call.payload.clone());
                Running::new(child, input, pool, payload)
                    .map_err(|error| not_started(format!("its pipes can't be watched: {error}")))
            }
            Some(Err(error)) => {
                let why = cannot_start(&file, &error);
                self.slot_handle.tell_failure(|left_out| tracing::error!(
                    target: "server", pool = self.slot_handle.pool(), request = call.payload.describe(), left_out,
                    "{why}"
                ));
                Err(not_started(why))
            }
            None => {
                self.slot_handle.count(Counter::Overdue);
                Err(CallError::Deadline)
            }
        }
    }

    /// Reads the answer and passes it on.
    async fn reply(&mut self, mut call: Call, running: &mut Running) -> Parting {
        let mut reader = HeadReader::default();
        let head = loop {
            let deadline = call.deadline;
            match self.event(running, Some(&mut call), deadline).await {
                Event::Output => {
                    call.stamps.first_byte.get_or_insert_with(Instant::now);
                    match reader.find(&running.received) {
                        Ok(None) => {}
                        Ok(Some(len)) => {
                            break reader.parse(&running.received.split_to(len).freeze());
                        }
                        Err(bad) => break Err(bad),
                    }
                }
                Event::Complete => return self.no_answer(call, running).await,
                Event::Withdrawn => return Parting::Terminate,
                Event::Extended(time) => {
                    call.deadline = self.slot_handle.later(call.deadline, time);
                }
                Event::Overdue => {
                    self.overdue(&call.payload.describe(), &call.stamps, running);
                    self.slot_handle.count(Counter::Overdue);
                    call.fail(CallError::Deadline);
                    return Parting::Terminate;
                }
                Event::Killed(exit) => {
                    call.fail(WorkerFault::Died(exit));
                    return Parting::Kill;
                }
            }
        };
        match head {
            Ok(head) => {
                let measured = Measured::of(&head);
                let head = Head::from(head);
                if !matches!(head, Head::LocalRedirect(_)) {
                    return self.document(call, head, measured, running).await;
                }
                call.deliver(head, ReplyBody::Whole(Bytes::new().into()));
                Parting::Finish(self.limit_from_now())
            }
            Err(bad) => self.bad_answer(call, &bad, running),
        }
    }

    fn limit_from_now(&self) -> Option<Instant> {
        self.slot_handle
            .exec_ttl()
            .map(|limit| Instant::now() + limit)
    }

    fn bad_answer(&self, call: Call, bad: &BadReply, running: &Running) -> Parting {
        self.slot_handle.tell_failure(|left_out| tracing::error!(
            target: "server", pool = self.slot_handle.pool(), pid = running.pid(), request = call.payload.describe(),
            left_out, "the program's answer is invalid: {bad}"
        ));
        call.fail(WorkerFault::Garbage(bad.to_string()));
        Parting::Terminate
    }

    /// It has said all that it will, and that is no answer.
    async fn no_answer(&mut self, call: Call, running: &mut Running) -> Parting {
        self.until_the_end(running).await;
        let exit = running.exit();
        let how = exit.map_or_else(
            || "closed its stdout".to_owned(),
            |exit| format!("ended with {exit}"),
        );
        let what = match running.received.len() {
            0 => "before it had sent anything".to_owned(),
            bytes => format!("before its header was complete, {bytes} bytes of which came"),
        };
        self.slot_handle.tell_failure(|left_out| tracing::error!(
            target: "server", pool = self.slot_handle.pool(), pid = running.pid(), request = call.payload.describe(),
            ran_ms = millis(call.stamps.ran()), stderr = running.last_words(), left_out, "the program {how} {what}"
        ));
        match exit {
            Some(exit @ Exit::Signal(_)) => call.fail(WorkerFault::Died(exit)),
            _ => call.fail(WorkerFault::Garbage(format!("the program {how} {what}"))),
        }
        Parting::Terminate
    }

    /// Waits for the end of a program that has closed its output, if that comes at once.
    async fn until_the_end(&mut self, running: &mut Running) {
        let until = Some(Instant::now() + UNTIL_THE_END);
        poll_fn(|cx| match running.poll_exit(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.timer.poll(cx, until),
        })
        .await;
    }

    async fn document(
        &mut self,
        mut call: Call,
        head: Head,
        mut measured: Measured,
        running: &mut Running,
    ) -> Parting {
        while running.received.len() < WHOLE {
            match running.try_more() {
                Output::More => {}
                Output::None => break,
                Output::Complete => {
                    self.until_the_end(running).await;
                    let request = call.payload.describe();
                    if self.is_cut(&request, running) {
                        call.fail(WorkerFault::Died(running.exit().unwrap_or(Exit::Signal(9))));
                        return Parting::Terminate;
                    }
                    self.tell_spent(running);
                    measured.add(running.received.len());
                    let body = running.received.split().freeze().into();
                    if let Err(too_short) = measured.check(call.payload.as_ref()) {
                        self.tell_of(&too_short, &request, running);
                        let mut outlet = Outlet::begin(call, head, None, self.spool.clone());
                        _ = outlet.try_send(body, Lead::Long); // there is room for the first
                        return Parting::Finish(self.limit_from_now());
                    }
                    call.stamps.complete = Some(Instant::now());
                    call.deliver(head, ReplyBody::Whole(body));
                    return Parting::Finish(self.limit_from_now());
                }
            }
        }
        let streamed = Streamed::of(&call, &self.slot_handle);
        let mut outlet = Outlet::begin(call, head, None, self.spool.clone());
        self.pass_on(&mut outlet, &streamed, measured, running)
            .await
    }

    fn tell_of(&self, too_short: &TooShort, request: &str, running: &Running) {
        self.slot_handle.tell_failure(|left_out| {
            tracing::error!(
                target: "server", pool = self.slot_handle.pool(), pid = running.pid(), request,
                left_out, "{too_short}"
            );
        });
    }

    /// What the call was spent on: its program has done nothing else.
    fn tell_spent(&self, running: &Running) {
        let call = self.under_way.as_ref();
        if let Some(call) = call.filter(|call| call.payload.is_timed())
            && let Some(cpu) = CpuClock::of(running.pid()).and_then(CpuClock::read)
        {
            let spent = Spent::of(call.since.elapsed(), Duration::ZERO, cpu);
            call.payload.spent(spent);
        }
    }

    async fn pass_on(
        &mut self,
        outlet: &mut Outlet,
        streamed: &Streamed,
        mut measured: Measured,
        running: &mut Running,
    ) -> Parting {
        let mut deadline = PieceDeadline::new(streamed.limit);
        loop {
            if !running.received.is_empty() {
                let piece = running.received.split().freeze();
                measured.add(piece.len());
                if let Err(parting) = self.hand_out(outlet, piece, running).await {
                    return parting;
                }
                deadline.renew();
            }
            match self.event_or_closed(running, outlet, deadline.get()).await {
                Event::Output => {}
                Event::Complete => {
                    self.until_the_end(running).await;
                    if self.is_cut(&streamed.request, running) {
                        return Parting::Terminate; // without its end the client's connection is cut
                    }
                    self.tell_spent(running);
                    let payload = self.under_way.as_ref().map(|call| &call.payload);
                    match payload.map_or(Ok(()), |payload| measured.check(payload.as_ref())) {
                        Ok(()) => outlet.end(),
                        Err(too_short) => self.tell_of(&too_short, &streamed.request, running),
                    }
                    return Parting::Finish(self.limit_from_now());
                }
                Event::Withdrawn => return Parting::Terminate,
                Event::Extended(time) => deadline.extend(&self.slot_handle, time),
                Event::Overdue => {
                    self.overdue(&streamed.request, &streamed.stamps, running);
                    return Parting::Terminate;
                }
                Event::Killed(_) => return Parting::Kill,
            }
        }
    }

    /// Hands a piece to the client's side. While it finds no room there, nothing more is read: that
    /// is how a slow client slows the program down. A program that has ended holds its slot no
    /// longer: what it left goes to a file.
    async fn hand_out(
        &self,
        outlet: &mut Outlet,
        bytes: Bytes,
        running: &Running,
    ) -> Result<(), Parting> {
        let has_ended = running.exit().is_some();
        let lead = if has_ended { Lead::Long } else { Lead::Short };
        let Some(bytes) = outlet.send_or_spill(bytes.into(), lead).await else {
            return Ok(());
        };
        tokio::select! {
            () = outlet.send(bytes, lead, &self.slot_handle) => Ok(()),
            _ = poll_fn(|cx| self.inbox.poll_ended(cx, self.under_way.as_ref())) => Err(Parting::Kill),
        }
    }

    /// Whether a crash cut the answer off; then the log says so.
    fn is_cut(&self, request: &str, running: &Running) -> bool {
        let Some(exit @ Exit::Signal(_)) = running.exit() else {
            return false;
        };
        self.slot_handle.tell_failure(|left_out| {
            tracing::error!(
                target: "server", pool = self.slot_handle.pool(), pid = running.pid(), request,
                stderr = running.last_words(), left_out, "the program died with {exit} in its reply"
            );
        });
        true
    }

    fn overdue(&self, request: &str, stamps: &Stamps, running: &Running) {
        tracing::error!(
            target: "server", pool = self.slot_handle.pool(), pid = running.pid(), request, ran_ms = millis(stamps.ran()),
            "deadline passed: the program is stopped"
        );
    }

    async fn event(
        &mut self,
        running: &mut Running,
        mut call: Option<&mut Call>,
        deadline: Option<Instant>,
    ) -> Event {
        poll_fn(|cx| {
            if let Some(event) = self.poll_program(cx, running, deadline) {
                return Poll::Ready(event);
            }
            match &mut call {
                Some(call) => call.poll_withdrawn(cx).map(|()| Event::Withdrawn),
                None => Poll::Pending,
            }
        })
        .await
    }

    async fn event_or_closed(
        &mut self,
        running: &mut Running,
        outlet: &Outlet,
        deadline: Option<Instant>,
    ) -> Event {
        let mut closed = std::pin::pin!(outlet.closed());
        poll_fn(|cx| {
            if let Some(event) = self.poll_program(cx, running, deadline) {
                return Poll::Ready(event);
            }
            closed.as_mut().poll(cx).map(|()| Event::Withdrawn)
        })
        .await
    }

    fn poll_program(
        &mut self,
        cx: &mut Context<'_>,
        running: &mut Running,
        deadline: Option<Instant>,
    ) -> Option<Event> {
        match running.poll_output(cx) {
            Poll::Ready(Output::More | Output::None) => return Some(Event::Output),
            Poll::Ready(Output::Complete) => return Some(Event::Complete),
            Poll::Pending => {}
        }
        match self.inbox.poll_news(cx, self.under_way.as_ref()) {
            Poll::Ready(News::Ended(exit)) => return Some(Event::Killed(exit)),
            Poll::Ready(News::Extended(time)) => return Some(Event::Extended(time)),
            // It never asks for one.
            Poll::Ready(News::Prefetched(call)) => self.slot_handle.give_back(vec![call]),
            Poll::Pending => {}
        }
        self.timer
            .poll(cx, deadline)
            .is_ready()
            .then_some(Event::Overdue)
    }

    /// Waits for the end of a program, and sees to it that there is one.
    async fn part(&mut self, mut running: Running, parting: Parting) {
        let mut until = match parting {
            Parting::Finish(until) => until,
            Parting::Terminate => {
                running.signal(Signal::Terminate);
                Some(Instant::now() + GRACE)
            }
            Parting::Kill => {
                running.signal(Signal::Kill);
                None
            }
        };
        let mut given_up = !matches!(parting, Parting::Finish(_));
        loop {
            let ended = poll_fn(|cx| {
                running.discard(cx);
                if running.poll_exit(cx).is_ready() {
                    return Poll::Ready(Ok(()));
                }
                if let Poll::Ready(exit) = self.inbox.poll_ended(cx, self.under_way.as_ref()) {
                    return Poll::Ready(Err(Some(exit)));
                }
                self.timer.poll(cx, until).map(|()| Err(None))
            })
            .await;
            match ended {
                Ok(()) => break,
                Err(None) if !given_up => {
                    tracing::warn!(
                        target: "server", pool = self.slot_handle.pool(), pid = running.pid(),
                        "the program ran on after its reply until the time limit of a call: it is \
                         stopped"
                    );
                    given_up = true;
                    running.signal(Signal::Terminate);
                    until = Some(Instant::now() + GRACE);
                }
                Err(_) => {
                    running.signal(Signal::Kill);
                    break;
                }
            }
        }
        if given_up {
            // What it started may ignore SIGTERM, and nobody waits for that.
            running.signal(Signal::Kill);
        }
        let cpu = running.reaped().await;
        self.slot_handle.ended_after(cpu);
    }
}
