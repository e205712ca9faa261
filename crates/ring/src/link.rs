//! The server's end of a box.

use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::thread::futex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::half::{Nonsense, Server, there};
use crate::layout::{DOWN, UP};
use crate::loan::{Lent, Loan};
use crate::memory::SharedMemory;
use crate::stack::StackLayout;
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::thread::{Waiting, forget, wait, wake_later, wake_now};

/// Reads what a worker puts into its box, and writes what it shall take out. Lives on one thread,
/// which [serves boxes](crate::Thread).
///
/// A worker's end is not seen here, only at its process. Numbers that can't be are an error of kind
/// `InvalidData`.
#[derive(Debug)]
pub struct Link {
    shared: Arc<SharedMemory>,
    /// The server's own counts: what stands in the box could have been changed by the worker.
    put: u64,
    taken: u64,
    wants_room: bool,
    enough_calls: u32,
    quick: bool,
    /// The last loan. It may have ended.
    lent: Option<Arc<Lent>>,
}

/// How much was put and taken, ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) put: u64,
    pub(crate) taken: u64,
}

impl Link {
    /// For a box that nobody has used yet.
    pub fn new(shared: Arc<SharedMemory>) -> Self {
        Self {
            shared,
            put: 0,
            taken: 0,
            wants_room: false,
            enough_calls: 0,
            quick: false,
            lent: None,
        }
    }

    /// Where the worker says that PHP's stack is.
    pub fn stack_layout(&self) -> Option<StackLayout> {
        StackLayout::read(&self.shared.words().stack)
    }

    /// What the worker's thread had taken of a processor when it began this call. `None` of another
    /// call, of one whose time nobody wants to know, and where the worker does not tell.
    pub fn cpu_before(&self, call: u32) -> Option<Duration> {
        let [of, cpu] = &self.shared.words().timed;
        let is_told = call != 0 && of.load(Acquire) == u64::from(call);
        is_told.then(|| Duration::from_nanos(cpu.load(Relaxed)))
    }

    /// Bytes that were written and that the worker has not taken; `None` when its count can't be.
    pub fn unread(&self) -> Option<u64> {
        let taken = Server(self.shared.words()).worker_has_taken();
        Some(there(self.put, taken, DOWN).ok()? as u64)
    }

    /// Appends what is there now, if there is something, but at most as much as fits. A loan before
    /// this ends.
    ///
    /// # Errors
    ///
    /// When the worker's count can't be.
    pub fn read_now(&mut self, into: &mut ReadBuf<'_>) -> io::Result<bool> {
        self.end_loan();
        let len = self.there()?.min(into.remaining());
        if len == 0 {
            return Ok(false);
        }
        self.shared.read_up(self.taken, len, into);
        self.taken = self.taken.wrapping_add(count(len));
        give_back(&self.shared, self.taken);
        Ok(true)
    }

    /// The first bytes of at least so many that can be read now, without taking them.
    pub fn peek<const N: usize>(&self, of_at_least: usize) -> Option<[u8; N]> {
        // That a count can't be is told by a read.
        let there = self.there().unwrap_or(0);
        (there >= of_at_least.max(N)).then(|| {
            let mut start = [0; N];
            self.shared
                .read_up(self.taken, N, &mut ReadBuf::new(&mut start));
            start
        })
    }

    /// The next `head` bytes, and a loan of those behind them, so many as are there and `body`
    /// allows, which is not none. `None` when there are fewer. A loan before this one ends.
    pub fn borrow(&mut self, head: usize, body: RangeInclusive<usize>) -> Option<(Vec<u8>, Loan)> {
        self.end_loan();
        let there = self.there().unwrap_or(0);
        let len = there.checked_sub(head)?.min(*body.end());
        if len == 0 || len < *body.start() {
            return None;
        }
        let head_bytes = self.shared.copy_up(self.taken, head);
        let at = self.taken.wrapping_add(count(head));
        let (loan, lent) = Loan::new(self.shared.clone(), at, len);
        self.taken = at.wrapping_add(count(len));
        self.lent = Some(lent);
        Some((head_bytes, loan))
    }

    /// The link reads on: a loan that was not used by now holds the worker up, and its room is
    /// given back before that of what follows.
    fn end_loan(&mut self) {
        if let Some(lent) = self.lent.take() {
            lent.end();
        }
    }

    /// How many bytes can be read.
    fn there(&self) -> io::Result<usize> {
        let put = Server(self.shared.words()).worker_has_put();
        there(put, self.taken, UP).map_err(scribbled)
    }

    /// Writes as much as there is room for; 0 is no room.
    fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let server = Server(self.shared.words());
        let there = there(self.put, server.worker_has_taken(), DOWN).map_err(scribbled)?;
        let len = bytes.len().min(DOWN - there);
        if let Some(bytes) = bytes.get(..len).filter(|bytes| !bytes.is_empty()) {
            self.shared.write_down(self.put, bytes);
            self.put = self.put.wrapping_add(count(len));
        }
        Ok(len)
    }

    /// The server's own counts.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            put: self.put,
            taken: self.taken,
        }
    }

    /// Writes and publishes what there is room for, without waiting.
    pub(crate) fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.write_now(bytes)?;
        self.publish();
        Ok(written)
    }

    /// Writes all of the parts if there is room for them now. False: nothing was written.
    ///
    /// # Errors
    ///
    /// When the worker's count can't be.
    pub fn write_whole(&mut self, parts: &[IoSlice<'_>]) -> io::Result<bool> {
        let server = Server(self.shared.words());
        let there = there(self.put, server.worker_has_taken(), DOWN).map_err(scribbled)?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > DOWN - there {
            return Ok(false);
        }
        self.write_all_now(parts)?;
        self.publish();
        Ok(true)
    }

    /// Wakes the worker if it sleeps, and does not wait until this thread sleeps: for what shares
    /// its wake-up with nothing.
    pub fn wake(&self) {
        wake_now(&self.shared);
    }

    /// A call is about to be written. Of its number the last five bits count: of calls in the box
    /// at a time, no two may have the same.
    pub fn offer(&self, call: u32) {
        Server(self.shared.words()).offer(call);
    }

    /// Takes back a call that the worker has not begun: it will pass its bytes over. False: it has
    /// begun.
    pub fn take_back(&self, call: u32) -> bool {
        Server(self.shared.words()).take_back(call)
    }

    /// With so many calls that it has not begun the worker need not ring for a reply: to be woken
    /// for each costs both sides more than it is worth where calls wait in any case. 0, as at
    /// first: it rings for each.
    pub fn set_wakeup_threshold(&mut self, calls: u32) {
        if self.enough_calls != calls {
            self.enough_calls = calls;
            Server(self.shared.words()).set_wakeup_threshold(calls);
        }
    }

    /// Says whether the worker's calls are so quick that it does well at the processor of this
    /// thread. At first they are not.
    pub fn set_fast_calls(&mut self, quick: bool) {
        if self.quick != quick {
            self.quick = quick;
            Server(self.shared.words()).set_fast_calls(quick);
        }
    }

    /// Whether the worker has not begun a call. What a broken worker says is not to be trusted,
    /// here as elsewhere.
    pub fn is_offered(&self, call: u32) -> bool {
        Server(self.shared.words()).is_offered(call)
    }

    /// A worker that is awake sees it at once. One that sleeps is woken before this thread sleeps,
    /// so that what comes until then shares a wake-up.
    fn publish(&self) {
        Server(self.shared.words()).put(self.put);
        wake_later(&self.shared);
    }

    /// Both counts as they were when they were looked at: had one changed since, waiting for the
    /// next change would be too long.
    fn wait(&self, seen_put: u64, seen_taken: Option<u64>, cx: &Context<'_>) {
        wait(Waiting {
            owner: self.shared.clone(),
            seen_put,
            seen_taken,
            quick: self.quick,
            waker: cx.waker().clone(),
        });
    }

    fn want_room(&mut self, wanted: bool) {
        if self.wants_room != wanted {
            self.wants_room = wanted;
            Server(self.shared.words()).want_room(wanted);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        forget(&self.shared);
    }
}

fn scribbled(_: Nonsense) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the counts in its memory make no sense",
    )
}

pub(crate) fn count(len: usize) -> u64 {
    u64::try_from(len).expect("streams are short")
}

/// Wakes the worker if it sleeps for want of bytes.
pub(crate) fn wake_if_asleep(shared: &SharedMemory) {
    if Server(shared.words()).wakes() {
        wake(shared);
    }
}

/// Gives the worker the room of what was taken, and wakes it if it waits for that.
pub(crate) fn give_back(shared: &SharedMemory, taken: u64) {
    if Server(shared.words()).taken(taken) {
        wake(shared);
    }
}

fn wake(shared: &SharedMemory) {
    // Refused only for an address that is none.
    _ = futex::wake(&shared.words().sleep, futex::Flags::empty(), 1);
}

impl AsyncRead for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let link = self.get_mut();
        if !link.read_now(buf)? && buf.remaining() > 0 {
            link.wait(link.taken, None, cx);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let link = self.get_mut();
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut written = link.write_all_now(bufs)?;
        if written == 0 && wanted > 0 {
            link.want_room(true);
            written = link.write_all_now(bufs)?;
        }
        if written < wanted {
            // It makes room only when it runs.
            Server(link.shared.words()).put(link.put);
            wake_if_asleep(&link.shared);
        }
        if written == 0 && wanted > 0 {
            let full_since = link.put.wrapping_sub(count(DOWN));
            let put = Server(link.shared.words()).worker_has_put();
            link.wait(put, Some(full_since), cx);
            return Poll::Pending;
        }
        link.want_room(false);
        link.publish();
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Link {
    fn write_all_now(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut written = 0;
        for buf in bufs {
            let now = self.write_now(buf)?;
            written += now;
            if now < buf.len() {
                break;
            }
        }
        Ok(written)
    }
}
