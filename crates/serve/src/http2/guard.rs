//! The layer between `h2` and the socket: frames are counted on their way in, malformed requests
//! are marked, and a client that takes nothing is noticed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use pronghorn_process::socket::untaken;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tokio_util::io::poll_read_buf;

use super::flood::{Flood, Frames};
use super::inlet::{Inlet, Stop};
use crate::stream::Stream;
use crate::uptake::Seen;

/// `h2` ends the connection for a head beyond its limit: it gets so many times ours, and what is
/// between them is answered. The frames that a head may be cut into follow from it.
pub(super) const HEADS: usize = 2;
/// Bytes of all replies of a connection that may wait for room in the socket: as many as of one
/// reply of HTTP/1.1.
const QUEUE: usize = 256 << 10;
/// Bytes that a stream may add to them, however many others wait: a frame of HTTP/2.
const LEAST: usize = 16 << 10;
/// The socket was not looked at, in place of one more than what the client has not taken.
const NOT_SEEN: u64 = 0;
/// For the rest of a block of fields that did not come in one read.
const READ: usize = 4 << 10;

/// The socket, as `h2` sees it.
pub(super) struct Guard {
    stream: Stream,
    /// Bytes that `h2` may have.
    ready: BytesMut,
    /// Bytes that can't be judged before more have come: the beginning of a block of fields.
    held: BytesMut,
    inlet: Inlet,
    frames: Frames,
    signs: Arc<Signs>,
}

/// Facts about the socket that `h2`, which owns it, does not tell.
#[derive(Debug, Default)]
pub(super) struct Signs {
    flood: std::sync::OnceLock<Flood>,
    /// Whether a request was marked as malformed.
    marked: AtomicBool,
    /// Whether the last write found no room.
    blocked: AtomicBool,
    written: AtomicU64,
    /// Bytes that have come.
    read: AtomicU64,
    /// Bytes that `h2` keeps of blocks of fields.
    pinned: AtomicUsize,
    /// Bytes that `h2` does not have yet: a block of fields of which the rest is to come.
    held: AtomicUsize,
    /// How much was written when the last byte of a body was.
    bodies_written: AtomicU64,
    /// The connection's task wants to know what the client has not taken; then what the kernel
    /// says.
    asks: AtomicBool,
    untaken: AtomicU64,
    /// Bytes of bodies that `h2` has and the socket has not taken. A little less than that, since
    /// heads are written, too.
    queued: AtomicUsize,
    /// Bytes that are being read from files to be sent.
    reading: AtomicUsize,
    drained: Notify,
    /// Streams that wait for room, and whose turn it is: they come in their order.
    waiting: AtomicUsize,
    turn: Mutex<()>,
}

/// A stream that waits for room.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Signs {
    /// Too many frames of a kind. Nothing more is read then.
    pub(super) fn flood(&self) -> Option<Flood> {
        self.flood.get().copied()
    }

    /// Whether there was a malformed request. Others need not be asked for its mark before.
    pub(super) fn marked(&self) -> bool {
        self.marked.load(Ordering::Relaxed)
    }

    /// How many bytes have come in all.
    pub(super) fn last_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the client's blocks of fields: those that `h2` keeps, and those of a block that has
    /// not come whole.
    pub(super) fn of_blocks(&self) -> usize {
        self.pinned.load(Ordering::Relaxed) + self.held.load(Ordering::Relaxed)
    }

    /// Whether something waits for room in the socket.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// The next time that `h2` comes to the end of what it can read or write, the socket is to be
    /// looked at.
    pub(super) fn ask(&self) {
        self.asks.store(true, Ordering::Relaxed);
    }

    /// The outcome of a look, once.
    pub(super) fn seen(&self) -> Option<Seen> {
        let untaken = self.untaken.swap(NOT_SEEN, Ordering::Relaxed);
        if untaken == NOT_SEEN {
            return None;
        }
        let sent = self.bodies_written.load(Ordering::Relaxed);
        Some(Seen {
            sent,
            after: self.written.load(Ordering::Relaxed) - sent,
            untaken: (untaken - 1).try_into().ok(),
            is_blocked: self.is_blocked(),
        })
    }

    /// Waits until the replies of this connection that nobody takes are less than it may hold, one
    /// stream after the other, and gives the share of the next: else one that sends a long file
    /// would take all the room again before another one has looked.
    pub(super) async fn room(&self) -> usize {
        if self.waiting.load(Ordering::Relaxed) == 0 && self.has_room() {
            return QUEUE;
        }
        let _counted = Waiting::new(&self.waiting);
        let _turn = self.turn.lock().await;
        while !self.has_room() {
            self.drained.notified().await;
        }
        (QUEUE / self.waiting.load(Ordering::Relaxed).max(1)).max(LEAST)
    }

    pub(super) fn has_room(&self) -> bool {
        self.queued.load(Ordering::Relaxed) + self.reading.load(Ordering::Relaxed) < QUEUE
    }

    pub(super) fn begin_reading(&self, bytes: usize) {
        self.reading.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn end_reading(&self, bytes: usize) {
        self.reading.fetch_sub(bytes, Ordering::Relaxed);
        self.drained.notify_waiters();
    }

    /// Something was given to `h2` to be sent.
    pub(super) fn queue(&self, bytes: usize) {
        self.queued.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `h2` has written all that the socket takes.
    pub(super) fn flushed(&self) {
        if !self.blocked.load(Ordering::Relaxed) {
            self.queued.store(0, Ordering::Relaxed);
        }
        if self.queued.load(Ordering::Relaxed) < QUEUE {
            self.drained.notify_waiters();
        }
    }

    fn note(&self, written: &Poll<io::Result<usize>>) {
        self.blocked.store(written.is_pending(), Ordering::Relaxed);
        if let Poll::Ready(Ok(bytes)) = written {
            self.written.fetch_add(*bytes as u64, Ordering::Relaxed);
            let left = self.queued.load(Ordering::Relaxed);
            if left > 0 {
                let written = self.written.load(Ordering::Relaxed);
                self.bodies_written.store(written, Ordering::Relaxed);
                self.queued
                    .store(left.saturating_sub(*bytes), Ordering::Relaxed);
            }
        }
    }

    /// Looks at the socket, if somebody has asked.
    fn look(&self, stream: &Stream) {
        if self.asks.load(Ordering::Relaxed) {
            self.asks.store(false, Ordering::Relaxed);
            let untaken = untaken(stream.socket()).map_or(u64::MAX, |bytes| u64::from(bytes) + 1);
            self.untaken.store(untaken, Ordering::Relaxed);
        }
    }
}

/// Says how many of these bytes may pass, and notes what `h2` keeps of blocks of fields.
fn judge(inlet: &mut Inlet, signs: &Signs, bytes: &[u8]) -> (usize, Stop) {
    let judged = inlet.take(bytes);
    signs.pinned.store(inlet.pinned(), Ordering::Relaxed);
    judged
}

impl Guard {
    /// `received` was read before it was known that this is HTTP/2.
    pub(super) fn new(
        stream: Stream,
        received: BytesMut,
        limits: &pronghorn_h1::Limits,
    ) -> (Self, Arc<Signs>) {
        let signs = Arc::<Signs>::default();
        let mut guard = Self {
            stream,
            ready: BytesMut::new(),
            held: received,
            inlet: Inlet::new(limits.head * HEADS, limits.fields),
            frames: Frames::new(Instant::now()),
            signs: signs.clone(),
        };
        guard.count(guard.held.len());
        guard.settle();
        (guard, signs)
    }

    /// Counts the frames in the last bytes of what is held.
    fn count(&mut self, bytes: usize) {
        self.signs.read.fetch_add(bytes as u64, Ordering::Relaxed);
        let from = self.held.len() - bytes;
        let counted = self.frames.take(&self.held[from..]);
        self.note_flood(counted);
    }

    fn note_flood(&self, counted: Result<(), Flood>) {
        if let Err(flood) = counted {
            _ = self.signs.flood.set(flood); // the first one is enough
        }
    }

    /// Makes ready what is held and can be judged.
    fn settle(&mut self) {
        let before = self.held.len();
        while !self.held.is_empty() {
            let (passed, stop) = judge(&mut self.inlet, &self.signs, &self.held);
            self.ready.extend_from_slice(&self.held[..passed]);
            self.held.advance(passed);
            match stop {
                Stop::Wait => break,
                Stop::Instead(length, instead) => {
                    self.held.advance(length);
                    self.put(&instead);
                }
                Stop::Flood => {
                    self.note_flood(Err(Flood::Fields));
                    break;
                }
            }
        }
        if self.held.len() < before {
            // The rest would keep all the room of what has gone.
            self.held = BytesMut::from(&self.held[..]);
        }
    }

    fn put(&mut self, instead: &[u8]) {
        self.signs.marked.store(true, Ordering::Relaxed);
        self.ready.extend_from_slice(instead);
    }

    /// Reads into `h2`'s buffer what passes as it is. False where all of it was held back.
    fn poll_straight(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = &buffer.filled()[before..];
        self.signs
            .read
            .fetch_add(read.len() as u64, Ordering::Relaxed);
        let counted = self.frames.take(read);
        self.note_flood(counted);
        let (passed, stop) = judge(&mut self.inlet, &self.signs, read);
        if passed == read.len() {
            return Poll::Ready(Ok(true));
        }
        match stop {
            Stop::Wait => self.held.extend_from_slice(&read[passed..]),
            Stop::Instead(length, instead) => {
                self.held.extend_from_slice(&read[passed + length..]);
                self.put(&instead);
                self.settle();
            }
            Stop::Flood => self.note_flood(Err(Flood::Fields)),
        }
        buffer.set_filled(before + passed);
        Poll::Ready(Ok(passed > 0))
    }

    fn poll_ready(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.ready.is_empty() {
                let taken = self.ready.len().min(buffer.remaining());
                buffer.put_slice(&self.ready.split_to(taken));
                if self.ready.is_empty() {
                    self.ready = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            if self.signs.flood().is_some() {
                return Poll::Pending; // the connection's task, which asks, ends it now
            }
            if self.frames.take_turn() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.held.is_empty() {
                if ready!(self.poll_straight(cx, buffer))? {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            self.held.reserve(READ);
            match ready!(poll_read_buf(
                Pin::new(&mut self.stream),
                cx,
                &mut self.held
            ))? {
                0 => return Poll::Ready(Ok(())),
                read => self.count(read),
            }
            self.settle();
        }
    }
}

impl AsyncRead for Guard {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = this.poll_ready(cx, buffer);
        let held = this.held.capacity() + this.ready.capacity();
        this.signs.held.store(held, Ordering::Relaxed);
        if read.is_pending() {
            this.signs.look(&this.stream);
        }
        read
    }
}

impl AsyncWrite for Guard {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.signs.note(&written);
        if written.is_pending() {
            this.signs.look(&this.stream);
        }
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        this.signs.note(&written);
        if written.is_pending() {
            this.signs.look(&this.stream);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        if flushed.is_pending() {
            this.signs.blocked.store(true, Ordering::Relaxed);
            this.signs.look(&this.stream);
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;

    use super::*;

    /// A long file comes again at once, and a small reply waits for one share of it.
    #[test]
    fn streams_get_room_in_their_order_and_share_it() {
        let signs = Signs::default();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert_eq!(
            Box::pin(signs.room()).as_mut().poll(&mut cx),
            Poll::Ready(QUEUE)
        );
        signs.queue(QUEUE);
        let mut long = Box::pin(signs.room());
        assert!(long.as_mut().poll(&mut cx).is_pending());
        let mut small = Box::pin(signs.room());
        assert!(small.as_mut().poll(&mut cx).is_pending());
        signs.flushed();
        assert!(
            small.as_mut().poll(&mut cx).is_pending(),
            "the other one came before"
        );
        assert_eq!(long.as_mut().poll(&mut cx), Poll::Ready(QUEUE / 2));
        drop(long);
        signs.queue(QUEUE);
        let mut again = Box::pin(signs.room());
        assert!(again.as_mut().poll(&mut cx).is_pending());
        signs.flushed();
        assert!(
            again.as_mut().poll(&mut cx).is_pending(),
            "the small one waited before"
        );
        assert_eq!(small.as_mut().poll(&mut cx), Poll::Ready(QUEUE / 2));
        drop(small);
        let many: Vec<_> = (0..100).map(|_| Waiting::new(&signs.waiting)).collect();
        assert_eq!(again.as_mut().poll(&mut cx), Poll::Ready(LEAST));
        drop(many);
    }
}
