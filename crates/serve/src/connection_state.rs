//! The state that the requests share that a connection has at a time, and their count: over HTTP/2
//! and HTTP/3.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_base::micros;
use pronghorn_pool::SpoolFile;
use tokio::time::Instant;

use crate::client_memory::{Charge, UNCOUNTED};
use crate::date::epoch_us;
use crate::held_replies::{HeldReplies, NotStored, Spilled};
use crate::message::Peer;
use crate::sent::{OnSent, Sent};
use crate::service::Entered;

/// Bytes that each stream takes, with its task, its state in `h2` and its place in a pool's queue:
/// measured with thousands of requests that wait.
const STREAM: usize = 7 << 10;
/// Beyond as many, streams are counted.
const ORDINARY_STREAMS: usize = UNCOUNTED / STREAM;

/// The state that all requests of a connection share. The connection counts as open until the last
/// one has ended. `P` is what its protocol adds.
pub(crate) struct ConnectionState<P> {
    pub(crate) peer: Arc<Peer>,
    pub(crate) entered: Entered,
    pub(crate) opened: Instant,
    /// The same moment in microseconds since the Unix epoch.
    opened_us: u64,
    /// Tasks of requests.
    running: AtomicUsize,
    /// How many of them wait for more of their bodies.
    silent: AtomicUsize,
    /// Tasks that wait until their clients take more of a response.
    unread: AtomicUsize,
    /// When the client took something last while a response waited for it, in microseconds since
    /// `opened`.
    moved: AtomicU64,
    pub(crate) replies: HeldReplies,
    pub(crate) own: P,
}

impl<P> ConnectionState<P> {
    pub(crate) fn new(peer: Arc<Peer>, entered: Entered, opened: Instant, own: P) -> Arc<Self> {
        Arc::new(Self {
            peer,
            entered,
            opened,
            opened_us: epoch_us(opened),
            running: AtomicUsize::new(0),
            silent: AtomicUsize::new(0),
            unread: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
            replies: HeldReplies::default(),
            own,
        })
    }

    /// Requests that are at work.
    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(crate) fn charge(&self) -> Charge {
        self.entered.account(&self.peer).charge()
    }

    /// A moment of this connection in microseconds since the Unix epoch.
    pub(crate) fn time_of(&self, moment: Instant) -> u64 {
        self.opened_us + micros(moment.saturating_duration_since(self.opened))
    }

    /// A response is out with so many bytes of its body, or nobody is there who would take it.
    pub(crate) fn sent(
        &self,
        on_sent: Option<Arc<dyn OnSent>>,
        status: u16,
        bytes: u64,
        is_too_long: bool,
        accepted: Instant,
    ) {
        let sent = Sent {
            status,
            bytes,
            is_too_long,
            elapsed: accepted.elapsed(),
            split: None,
        };
        self.entered.service().sent(on_sent, sent);
    }

    /// Puts the rest of a response into a file, until its client has room for it.
    pub(crate) async fn spill(
        &self,
        bytes: Vec<Bytes>,
    ) -> Result<(SpoolFile, Spilled<'_>), NotStored> {
        let spool = self.entered.service().spool.as_ref().ok_or(NotStored)?;
        let client = self.charge().client(self.peer.address);
        self.replies.spill(spool, bytes, client).await
    }

    /// Bytes that one request may hold uncounted: the requests at work share what a connection of
    /// HTTP/1.1 has.
    pub(crate) fn uncounted(&self) -> usize {
        UNCOUNTED / self.running().max(1)
    }

    /// For so much memory, where it is worth counting.
    pub(crate) fn charged(&self, bytes: usize) -> Charge {
        self.entered.charged(&self.peer, bytes, self.uncounted())
    }

    /// One more request waits for its client.
    pub(crate) fn begin_silence(&self) {
        self.silent.fetch_add(1, Ordering::Relaxed);
        self.may_be_silent();
    }

    pub(crate) fn end_silence(&self) {
        self.silent.fetch_sub(1, Ordering::Relaxed);
        self.entered.place().busy();
    }

    /// One more request has nobody at work for it, until this is dropped.
    pub(crate) fn silent(self: &Arc<Self>) -> Silent<P> {
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
    pub(crate) fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed) > 0
    }

    /// The client has taken nothing of any response since this moment.
    pub(crate) fn is_still(&self, since: Instant) {
        let silent = self.silent.load(Ordering::Relaxed);
        if silent + self.unread.load(Ordering::Relaxed) == self.running() {
            self.entered.place().untaken(since);
        }
    }

    /// The client has taken something of a response.
    pub(crate) fn has_moved(&self) {
        let since = micros(self.opened.elapsed());
        self.moved.store(since, Ordering::Relaxed);
        self.entered.place().taken();
    }

    pub(crate) fn moved(&self) -> Instant {
        self.opened + Duration::from_micros(self.moved.load(Ordering::Relaxed))
    }

    /// One more response waits, until this is dropped, for its client to take more.
    pub(crate) fn unread(self: &Arc<Self>) -> Unread<P> {
        self.unread.fetch_add(1, Ordering::Relaxed);
        self.may_be_silent();
        Unread(self.clone())
    }
}

/// A request that has nobody at work for it.
pub(crate) struct Silent<P>(Arc<ConnectionState<P>>);

impl<P> Drop for Silent<P> {
    fn drop(&mut self) {
        self.0.end_silence();
    }
}

/// A response of which the client takes nothing.
pub(crate) struct Unread<P>(Arc<ConnectionState<P>>);

impl<P> Drop for Unread<P> {
    fn drop(&mut self) {
        self.0.unread.fetch_sub(1, Ordering::Relaxed);
        self.0.entered.place().taken();
    }
}

/// Counts a request's task, and what it takes, while it lives.
pub(crate) struct Running<P> {
    pub(crate) shared: Arc<ConnectionState<P>>,
    charge: Charge,
}

impl<P> Running<P> {
    pub(crate) fn new(shared: &Arc<ConnectionState<P>>) -> Self {
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
    pub(crate) fn holds(&mut self, head: usize) {
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

impl<P> Drop for Running<P> {
    fn drop(&mut self) {
        self.shared.running.fetch_sub(1, Ordering::Relaxed);
        self.shared.may_be_silent();
    }
}
