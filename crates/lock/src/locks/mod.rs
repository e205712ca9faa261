//! The table with time, and with callers that wait.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use pronghorn_base::{lock, micros, since_1970};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use crate::table::{Acquired, Full, Limits, Mode, Table};

/// All locks of a server. Clones are the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Locks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Another lock ends next.
    changed: Notify,
}

#[derive(Debug)]
struct State {
    table: Table<Turn>,
    /// Nobody waits any more.
    stopped: bool,
}

/// Told that it is one's turn; dropped, that it will not come.
type Turn = oneshot::Sender<()>;

impl Locks {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            table: Table::new(limits, microseconds()),
            stopped: false,
        };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            changed: Notify::new(),
        }))
    }

    /// Takes a lock; false when it is not to be had within `wait`.
    ///
    /// Whoever drops the future leaves the line, and gives back a lock that it was granted and
    /// never told of.
    pub(crate) async fn acquire(
        &self,
        resource: &str,
        id: &str,
        mode: Mode,
        ttl: Duration,
        wait: Duration,
    ) -> Result<bool, Full> {
        let (turn, told) = oneshot::channel();
        let acquired = self.step(|state, now| {
            let acquired = state.table.acquire(resource, id, mode, ttl, now, turn);
            if state.stopped {
                drop(state.table.dismiss_all());
            }
            acquired
        })?;
        let Acquired::Waits(ticket) = acquired else {
            return Ok(true);
        };
        let mut place = Place {
            locks: self,
            resource,
            id,
            ticket,
            settled: false,
        };
        let told = timeout(wait, told).await;
        place.settled = true;
        match told {
            Ok(told) => Ok(told.is_ok()),
            // Its turn may have come at the last moment.
            Err(_) => Ok(!self.leave(resource, ticket)),
        }
    }

    pub(crate) fn release(&self, resource: &str, id: &str) -> bool {
        self.step(|state, now| {
            let (released, granted) = state.table.release(resource, id, now);
            tell(granted);
            released
        })
    }

    pub(crate) fn release_all(&self, resource: &str) -> bool {
        self.step(|state, now| {
            let (released, granted) = state.table.release_all(resource, now);
            tell(granted);
            released
        })
    }

    /// Whether `id`, or anybody, holds a lock.
    pub(crate) fn is_held(&self, resource: &str, id: Option<&str>) -> bool {
        self.step(|state, _| state.table.is_held(resource, id))
    }

    pub(crate) fn prolong(&self, resource: &str, id: &str, ttl: Duration) -> bool {
        self.step(|state, now| state.table.prolong(resource, id, ttl, now))
    }

    pub(crate) fn token(&self, resource: &str, id: &str) -> Option<u64> {
        self.step(|state, _| state.table.token(resource, id))
    }

    fn leave(&self, resource: &str, ticket: u64) -> bool {
        self.step(|state, now| {
            let (left, granted) = state.table.leave(resource, ticket, now);
            tell(granted);
            left
        })
    }

    /// Nobody waits any more, from now on.
    pub(crate) fn stop(&self) {
        self.step(|state, _| {
            state.stopped = true;
            drop(state.table.dismiss_all());
        });
    }

    /// Held locks and waiting callers.
    #[cfg(test)]
    pub(crate) fn count(&self) -> (usize, usize) {
        self.step(|state, _| (state.table.locks(), state.table.waiting()))
    }

    /// Ends locks when their time is over. Without end.
    pub(crate) fn keep_time(&self) -> impl Future<Output = ()> + Send + 'static {
        let locks = self.clone();
        async move {
            loop {
                let changed = locks.0.changed.notified();
                match locks.step(|state, _| state.table.next_end()) {
                    None => changed.await,
                    Some(end) => tokio::select! {
                        () = changed => {}
                        () = sleep_until(end) => {}
                    },
                }
            }
        }
    }

    /// One step, behind those that time has brought.
    fn step<R>(&self, step: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.lock();
        let now = Instant::now();
        let before = state.table.next_end();
        tell(state.table.expire(now));
        let result = step(&mut state, now);
        let next = state.table.next_end();
        drop(state);
        if next.is_some() && next != before {
            self.0.changed.notify_one();
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The table's steps don't panic.
        lock(&self.0.state)
    }
}

/// Since 1970: tokens that begin there are larger than those of a server that was here before,
/// which has not granted a million locks a second.
fn microseconds() -> u64 {
    micros(since_1970(SystemTime::now()))
}

fn tell(granted: Vec<Turn>) {
    for turn in granted {
        // Whoever left gives it back: see `Place`.
        _ = turn.send(());
    }
}

/// A place in a line, given back when the caller drops its future.
struct Place<'a> {
    locks: &'a Locks,
    resource: &'a str,
    id: &'a str,
    ticket: u64,
    settled: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.settled && !self.locks.leave(self.resource, self.ticket) {
            self.locks.release(self.resource, self.id);
        }
    }
}

#[cfg(test)]
mod tests;
