//! The state that the requests of a connection share, and their count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use pronghorn_base::micros;
use tokio::time::Instant;

use super::guard::Signs;
use crate::client_memory::{Charge, ClientBytes, UNCOUNTED};
use crate::date::epoch_us;
use crate::message::Peer;
use crate::service::Entered;

/// Bytes that each stream takes, with its task, its state in `h2` and its place in a pool's queue:
/// measured with thousands of requests that wait.
const STREAM: usize = 7 << 10;
/// Beyond as many, streams are counted.
const ORDINARY_STREAMS: usize = UNCOUNTED / STREAM;

/// The state that all requests of a connection share. The connection counts as open until the last
/// one has ended.
pub(super) struct ConnectionState {
    pub(super) peer: Arc<Peer>,
    pub(super) entered: Entered,
    pub(super) opened: Instant,
    /// The same moment in microseconds since the Unix epoch.
    pub(super) opened_us: u64,
    /// Tasks of requests.
    running: AtomicUsize,
    /// How many of them wait for more of their bodies.
    silent: AtomicUsize,
    /// Tasks that wait until their clients take more of a response.
    unread: AtomicUsize,
    /// When the client took something last while a response waited for it, in microseconds since
    /// `opened`.
    moved: AtomicU64,
    pub(super) signs: Arc<Signs>,
}

impl ConnectionState {
    pub(super) fn new(
        peer: Arc<Peer>,
        entered: Entered,
        opened: Instant,
        signs: Arc<Signs>,
    ) -> Arc<Self> {
        Arc::new(Self {
            peer,
            entered,
            opened,
            opened_us: epoch_us(opened),
            running: AtomicUsize::new(0),
            silent: AtomicUsize::new(0),
            unread: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
            signs,
        })
    }

    /// Requests that are at work.
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn charge(&self) -> Charge {
        self.entered.account(&self.peer).charge()
    }

    /// Bytes that one request may hold uncounted: the requests at work share what a connection of
    /// HTTP/1.1 has.
    pub(super) fn uncounted(&self) -> usize {
        UNCOUNTED / self.running().max(1)
    }

    /// For so much memory, where it is worth counting.
    pub(super) fn charged(&self, bytes: usize) -> Charge {
        self.entered.charged(&self.peer, bytes, self.uncounted())
    }

    /// Counts what `h2` keeps of the client's blocks of fields, also between requests.
    pub(super) fn note_pinned(&self) {
        let pinned = self.signs.pinned();
        self.entered.keeps(&self.peer, ClientBytes::Input, pinned);
    }

    /// One more request waits for its client.
    pub(super) fn begin_silence(&self) {
        self.silent.fetch_add(1, Ordering::Relaxed);
        self.may_be_silent();
    }

    pub(super) fn end_silence(&self) {
        self.silent.fetch_sub(1, Ordering::Relaxed);
        self.entered.place().busy();
    }

    /// One more request has nobody at work for it, until this is dropped.
    pub(super) fn silent(self: &Arc<Self>) -> Silent {
        self.begin_silence();
        Silent(self.clone())
    }

    /// A connection of which all requests wait for their client makes room for others. Those of
    /// which responses wait do so once it is [known](Self::is_still) that none is taken.
    fn may_be_silent(&self) {
        let silent = self.silent.load(Ordering::Relaxed);
        if self.has_unread() {
            self.entered.place().look(); // the connection's task does
        } else if silent > 0 && silent == self.running() {
            self.entered.place().awaits();
        }
    }

    /// Whether a response waits for its client.
    pub(super) fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > 0
    }

    /// The client has taken nothing of any response since this moment.
    pub(super) fn is_still(&self, since: Instant) {
        let silent = self.silent.load(Ordering::Relaxed);
        if silent + self.unread.load(Ordering::Relaxed) == self.running() {
            self.entered.place().untaken(since);
        }
    }

    /// The client has taken something of a response.
    pub(super) fn has_moved(&self) {
        let since = micros(self.opened.elapsed());
        self.moved.store(since, Ordering::Relaxed);
        self.entered.place().taken();
    }

    pub(super) fn moved(&self) -> Instant {
        self.opened + Duration::from_micros(self.moved.load(Ordering::Relaxed))
    }

    /// One more response waits, until this is dropped, for its client to take more.
    pub(super) fn unread(self: &Arc<Self>) -> Unread {
        self.unread.fetch_add(1, Ordering::Relaxed);
        self.may_be_silent();
        Unread(self.clone())
    }
}

/// A request that has nobody at work for it.
pub(super) struct Silent(Arc<ConnectionState>);

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.end_silence();
    }
}

/// A response of which the client takes nothing.
pub(super) struct Unread(Arc<ConnectionState>);

impl Drop for Unread {
    fn drop(&mut self) {
        self.0.unread.fetch_sub(1, Ordering::Relaxed);
        self.0.entered.place().taken();
    }
}

/// Counts a request's task, and what it takes, while it lives.
pub(super) struct Running {
    pub(super) shared: Arc<ConnectionState>,
    charge: Charge,
}

impl Running {
    pub(super) fn new(shared: &Arc<ConnectionState>) -> Self {
        let others = shared.running.fetch_add(1, Ordering::Relaxed);
        let charge = if others < ORDINARY_STREAMS {
            Charge::default()
        } else {
            shared.charge()
        };
        Self {
            shared: shared.clone(),
            charge,
        }
    }

    /// Its head has so many bytes.
    pub(super) fn holds(&mut self, head: usize) {
        if self.charge.is_none() && head > self.shared.uncounted() {
            self.charge = self.shared.charge();
        }
        self.charge.set(STREAM + head);
    }

    /// It takes so much more until it ends.
    pub(super) fn takes(&mut self, bytes: usize) {
        self.charge.add(bytes);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.running.fetch_sub(1, Ordering::Relaxed);
        self.shared.may_be_silent();
    }
}
