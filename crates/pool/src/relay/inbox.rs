//! What a relay is told from outside: calls and orders. Written by any thread, read by the relay's task.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use pronghorn_process::Exit;

use crate::call::Call;
use crate::pool::{Order, Transport};

/// At most one call is ever in here: only a worker that is free is given one.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Mutex<Content>);

#[derive(Debug, Default)]
struct Content {
    call: Option<Call>,
    stop: bool,
    ended: Option<Exit>,
    reader: Option<Waker>,
}

/// What a relay finds, the more urgent first.
#[derive(Debug)]
pub(crate) enum Told {
    Ended,
    Call(Call),
    Stop,
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for anything. An end is told again and again; a call and a stop once.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Told> {
        let mut content = self.lock();
        if content.ended.is_some() {
            return Poll::Ready(Told::Ended);
        }
        if let Some(call) = content.call.take() {
            return Poll::Ready(Told::Call(call));
        }
        if std::mem::take(&mut content.stop) {
            return Poll::Ready(Told::Stop);
        }
        Self::register(&mut content, cx);
        Poll::Pending
    }

    /// Waits for the end only; what else comes stays.
    pub(crate) fn poll_ended(&self, cx: &Context<'_>) -> Poll<Exit> {
        let mut content = self.lock();
        if let Some(exit) = content.ended {
            return Poll::Ready(exit);
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

    /// A call that came too late for its worker.
    pub(crate) fn take_call(&self) -> Option<Call> {
        self.lock().call.take()
    }
}

impl Transport for Inbox {
    fn submit(&self, call: Call) {
        self.change(|content| {
            debug_assert!(content.call.is_none(), "a busy worker was given a call");
            content.call = Some(call);
        });
    }

    fn order(&self, order: Order) {
        self.change(|content| match order {
            Order::Stop => content.stop = true,
            Order::Ended(exit) => content.ended = Some(exit),
        });
    }
}
