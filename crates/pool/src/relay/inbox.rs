//! Calls and orders for a relay from outside. Written by any thread, read by the relay's task.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_process::Exit;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::call::Call;
use crate::pool::{Order, Report, Requeue, SlotHandle, Transport};
use crate::roster::UnderWay;

/// Only a worker that is free is given a call, or one that may have some ahead: there are never
/// many in here.
#[derive(Debug, Default)]
pub struct Inbox {
    content: Mutex<Content>,
    /// Calls that the worker was given; written by its relay alone.
    executions: AtomicU64,
    /// Touched with a ping and its answer only.
    ping: Mutex<Ping>,
}

#[derive(Debug, Clone, Copy, Default)]
enum Ping {
    #[default]
    Never,
    Sent(Instant),
    Took(Duration),
}

#[derive(Debug, Default)]
struct Content {
    calls: VecDeque<Call>,
    /// Who takes calls that come too late: the relay has left.
    requeue: Option<Requeue>,
    stop: bool,
    /// A ping is due, if the worker is free.
    ping: bool,
    ended: Option<Exit>,
    /// More time for the call under way.
    extension: Option<Duration>,
    /// Somebody wants to know what it is at.
    asked: Option<oneshot::Sender<Option<UnderWay>>>,
    reader: Option<Waker>,
}

/// One thing that a relay finds, the more urgent first.
#[derive(Debug)]
pub enum Told {
    Ended,
    Call(Call),
    Stop,
    Ping,
}

/// News for a relay that has a call.
#[derive(Debug)]
pub enum News {
    Ended(Exit),
    /// The call gets so much time from now on.
    Extended(Duration),
    /// One more, for later.
    Prefetched(Call),
}

impl Inbox {
    fn change(&self, change: impl FnOnce(&mut Content)) {
        let mut content = self.lock();
        change(&mut content);
        let reader = content.reader.take();
        drop(content);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        lock(&self.content)
    }

    /// Counts a call. How many it was given, this one included.
    pub fn count(&self) -> u64 {
        let executions = self.executions.load(Relaxed) + 1;
        self.executions.store(executions, Relaxed);
        executions
    }

    /// Waits for anything. An end is told again and again; a call and a stop once.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<Told> {
        let mut content = self.lock();
        if content.ended.is_some() {
            return Poll::Ready(Told::Ended);
        }
        if let Some(call) = content.calls.pop_front() {
            return Poll::Ready(Told::Call(call));
        }
        if std::mem::take(&mut content.stop) {
            return Poll::Ready(Told::Stop);
        }
        if std::mem::take(&mut content.ping) {
            return Poll::Ready(Told::Ping);
        }
        answer(&mut content, None);
        Self::register(&mut content, cx);
        Poll::Pending
    }

    /// Whether a ping may be sent; it is then. No second one before the first is answered.
    pub(crate) fn pings(&self) -> bool {
        let mut ping = self.lock_ping();
        let may = !matches!(*ping, Ping::Sent(_));
        if may {
            *ping = Ping::Sent(Instant::now());
        }
        may
    }

    /// A ping was answered.
    pub(crate) fn pong(&self) {
        let mut ping = self.lock_ping();
        if let Ping::Sent(at) = *ping {
            *ping = Ping::Took(at.elapsed());
        }
    }

    fn lock_ping(&self) -> MutexGuard<'_, Ping> {
        lock(&self.ping)
    }

    /// Waits for the end only; what else comes stays, but for a question, which is answered with
    /// `under_way`.
    pub fn poll_ended(&self, cx: &Context<'_>, under_way: Option<&UnderWay>) -> Poll<Exit> {
        let mut content = self.lock();
        content.ping = false; // a reply says as much
        answer(&mut content, under_way);
        if let Some(exit) = content.ended {
            return Poll::Ready(exit);
        }
        Self::register(&mut content, cx);
        Poll::Pending
    }

    /// As [`poll_ended`](Self::poll_ended), while there is a call that may be given more time.
    pub fn poll_news(&self, cx: &Context<'_>, under_way: Option<&UnderWay>) -> Poll<News> {
        let mut content = self.lock();
        content.ping = false; // a reply says as much
        answer(&mut content, under_way);
        if let Some(exit) = content.ended {
            return Poll::Ready(News::Ended(exit));
        }
        if let Some(time) = content.extension.take() {
            return Poll::Ready(News::Extended(time));
        }
        if let Some(call) = content.calls.pop_front() {
            return Poll::Ready(News::Prefetched(call));
        }
        Self::register(&mut content, cx);
        Poll::Pending
    }

    fn register(content: &mut Content, cx: &Context<'_>) {
        match &mut content.reader {
            Some(reader) => reader.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    /// How the process ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        self.lock().ended
    }

    /// Nobody reads any more. What is in here comes back, and calls that are still on their way go
    /// to the requeue.
    pub fn close(&self, requeue: Requeue) -> VecDeque<Call> {
        let mut content = self.lock();
        content.requeue = Some(requeue);
        std::mem::take(&mut content.calls)
    }

    /// A free worker turned out to be unusable. Calls that were given to it in the same moment go
    /// to others.
    pub fn retire(&self, slot_handle: &SlotHandle, why: Report) {
        slot_handle.report(why);
        slot_handle.retire();
        while let Some(call) = self.take_call() {
            slot_handle.decline(call);
        }
    }

    /// The process of a worker that has one call at a time has ended. Calls that were given to it
    /// in the same moment, which nobody has seen, go to others.
    pub fn leave(&self, slot_handle: SlotHandle) {
        for call in self.close(slot_handle.requeue()) {
            slot_handle.decline(call);
        }
        slot_handle.leave();
    }

    /// A call that came too late for its worker, or for later.
    pub(crate) fn take_call(&self) -> Option<Call> {
        self.lock().calls.pop_front()
    }
}

fn answer(content: &mut Content, under_way: Option<&UnderWay>) {
    if let Some(asked) = content.asked.take() {
        _ = asked.send(under_way.cloned()); // whoever asked may have left
    }
}

impl Transport for Inbox {
    fn submit(&self, call: Call) {
        let mut late = None;
        self.change(|content| match &content.requeue {
            Some(requeue) => late = Some((requeue.clone(), call)),
            None => content.calls.push_back(call),
        });
        if let Some((requeue, call)) = late {
            requeue.take(call);
        }
    }

    fn order(&self, order: Order) {
        self.change(|content| match order {
            Order::Stop => content.stop = true,
            Order::Extend(time) => content.extension = Some(time),
            Order::Ended(exit) => content.ended = Some(exit),
        });
    }

    fn executions(&self) -> u64 {
        self.executions.load(Relaxed)
    }

    fn ping(&self) {
        self.change(|content| content.ping = true);
    }

    fn ping_time(&self) -> Option<Duration> {
        match *self.lock_ping() {
            Ping::Never => None,
            Ping::Sent(at) => Some(at.elapsed()),
            Ping::Took(time) => Some(time),
        }
    }

    fn ask(&self, asked: oneshot::Sender<Option<UnderWay>>) {
        self.change(|content| content.asked = Some(asked));
    }
}
