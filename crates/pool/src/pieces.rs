//! The pieces of a reply's body on their way to a client that may be slow: a queue that is bounded
//! by what it holds in memory.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;

use crate::content::Content;
use crate::spool::{SpoolClient, SpoolFile};

/// Bytes that may wait in all.
const ROOM: u32 = 1 << 20;
/// Bytes that may wait while the worker goes on: what waits longer is no longer in the processor's
/// cache.
const SHORT_LEAD: u32 = 256 << 10;
/// What a piece counts as at least: an entry of the queue is memory, too.
const LEAST: u32 = 512;
/// As many as have room, and what is put last: files, of which one waits at a time, and the end.
const PLACES: usize = (ROOM / LEAST) as usize + 4;

/// Counts what waits for a client.
pub trait QueueCounter: fmt::Debug + Send + Sync {
    /// So many bytes wait from now on.
    fn waits(&self, bytes: usize);
}

/// Fewer bytes are not counted.
const UNCOUNTED: usize = 16 << 10;

/// A piece of a reply's body.
#[derive(Debug)]
pub enum Piece {
    Bytes(Content),
    /// The rest was put into a file because the client was slower than the worker.
    Spooled(SpoolFile),
    /// The body is complete.
    End,
}

/// The pieces of a body, as they come. Dropping it tells the worker that nobody reads.
#[derive(Debug)]
pub struct Pieces {
    queue: mpsc::Receiver<Entry>,
    client: Arc<OnceLock<Arc<dyn SpoolClient>>>,
    room: Arc<Semaphore>,
    counter: Counter,
    /// Room that nobody gets while it is [shut](Self::shut).
    kept: Option<OwnedSemaphorePermit>,
}

/// Where they are put.
#[derive(Debug)]
pub struct PieceSender {
    queue: mpsc::Sender<Entry>,
    room: Arc<Semaphore>,
    counter: Counter,
    client: Arc<OnceLock<Arc<dyn SpoolClient>>>,
}

type Counter = Arc<OnceLock<Arc<dyn QueueCounter>>>;

fn count(counter: &Counter, room: &Semaphore) {
    if let Some(counter) = counter.get() {
        let waiting = (ROOM as usize).saturating_sub(room.available_permits());
        counter.waits(if waiting > UNCOUNTED { waiting } else { 0 });
    }
}

/// A piece, and the room that it takes until it is taken.
#[derive(Debug)]
struct Entry {
    piece: Piece,
    room: Option<OwnedSemaphorePermit>,
}

/// How far a worker may be ahead of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// It goes on, and may as well wait.
    Short,
    /// It has nothing left to do but this.
    Long,
}

impl Lead {
    /// What has to be left free.
    fn spare(self) -> u32 {
        match self {
            Self::Short => ROOM - SHORT_LEAD,
            Self::Long => 0,
        }
    }
}

/// An empty queue.
pub fn pieces() -> (PieceSender, Pieces) {
    let (queue, taken) = mpsc::channel(PLACES);
    let room = Arc::new(Semaphore::new(ROOM as usize));
    let client = Arc::new(OnceLock::new());
    let counter = Counter::default();
    let pieces = Pieces {
        queue: taken,
        client: client.clone(),
        room: room.clone(),
        counter: counter.clone(),
        kept: None,
    };
    let sender = PieceSender {
        queue,
        room,
        counter,
        client,
    };
    (sender, pieces)
}

impl Pieces {
    /// The next piece. `None` means that the reply broke off: no [`Piece::End`] was seen.
    pub async fn next(&mut self) -> Option<Piece> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for whoever waits for something else as well.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        self.kept = None;
        let entry = self.queue.poll_recv(cx);
        let piece = entry.map(|entry| entry.map(|entry| entry.piece));
        count(&self.counter, &self.room);
        piece
    }

    /// Takes no more bytes until it is asked for the next piece: the worker waits, or puts them
    /// into a file. For a client that reads nothing now. Says how many wait.
    pub fn shut(&mut self) -> usize {
        let free = self.room.available_permits();
        let free = u32::try_from(free).unwrap_or(ROOM);
        // A worker may take some at this moment: those are put then.
        if let Ok(free) = self.room.clone().try_acquire_many_owned(free) {
            self.keep(free);
        }
        let kept = self
            .kept
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        ROOM as usize - kept
    }

    /// The next piece if it is there. It stays shut.
    pub fn try_next(&mut self) -> Option<Piece> {
        let Entry { piece, room } = self.queue.try_recv().ok()?;
        if let Some(room) = room {
            self.keep(room);
        }
        Some(piece)
    }

    fn keep(&mut self, room: OwnedSemaphorePermit) {
        match &mut self.kept {
            Some(kept) => kept.merge(room),
            kept @ None => *kept = Some(room),
        }
    }

    /// Has the bytes counted that wait, now and later.
    pub fn count_by(&self, counter: Arc<dyn QueueCounter>) {
        _ = self.counter.set(counter); // there is one
        count(&self.counter, &self.room);
    }

    /// Files of this reply are held for this client.
    pub fn hold_for(&self, client: Arc<dyn SpoolClient>) {
        _ = self.client.set(client); // there is one client
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        if let Some(counter) = self.counter.get() {
            counter.waits(0);
        }
    }
}

/// Why the pieces of a body are not put together.
#[derive(Debug, Error)]
pub enum NotWhole {
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    #[error("it broke off")]
    BrokenOff,
    #[error("it can't be read back: {0}")]
    Unreadable(#[from] io::Error),
}

impl Pieces {
    /// Waits for all of them, at most so many bytes.
    ///
    /// # Errors
    ///
    /// When there are more, or the last one does not come.
    pub async fn whole(mut self, most: usize) -> Result<Bytes, NotWhole> {
        let mut bytes = BytesMut::new();
        loop {
            let piece = match self.next().await {
                Some(Piece::Bytes(piece)) => piece.into(),
                Some(Piece::Spooled(file)) if file.len() <= most as u64 => read_back(file).await?,
                Some(Piece::Spooled(_)) => return Err(NotWhole::TooLong(most)),
                Some(Piece::End) => return Ok(bytes.freeze()),
                None => return Err(NotWhole::BrokenOff),
            };
            if bytes.len() + piece.len() > most {
                return Err(NotWhole::TooLong(most));
            }
            bytes.extend_from_slice(&piece);
        }
    }
}

async fn read_back(file: SpoolFile) -> io::Result<Bytes> {
    let read = move || {
        let mut bytes = vec![0; usize::try_from(file.len()).unwrap_or(usize::MAX)];
        file.file().read_exact_at(&mut bytes, 0)?;
        Ok(bytes.into())
    };
    spawn_blocking(read).await.map_err(io::Error::other)?
}

impl PieceSender {
    /// Whether nobody reads any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Whose files these pieces become, once that is known.
    pub(crate) fn client(&self) -> Option<&Arc<dyn SpoolClient>> {
        self.client.get()
    }

    /// Breaks the reply off: what was put can still be taken, and nothing is put any more.
    pub(crate) fn break_off(&mut self) {
        self.queue = mpsc::channel(1).0;
    }

    /// Waits until nobody reads any more.
    pub(crate) async fn closed(&self) {
        self.queue.closed().await;
    }

    /// Puts bytes if there is room for them, and gives them back if not. One piece has room,
    /// however long it is.
    ///
    /// # Errors
    ///
    /// The bytes.
    pub fn try_put(&self, bytes: Content, lead: Lead) -> Result<(), Content> {
        let free = free_for(&bytes, lead);
        match self.room.clone().try_acquire_many_owned(free) {
            Ok(room) => {
                self.put_into(room, bytes);
                Ok(())
            }
            Err(_) => Err(bytes),
        }
    }

    /// Waits until there is room for these bytes.
    pub(crate) async fn room(&self, bytes: &Content, lead: Lead) {
        _ = self.room.acquire_many(free_for(bytes, lead)).await; // nobody closes it
    }

    /// Waits for room. Ends at once when nobody reads any more, because what was put is gone then.
    pub(crate) async fn put_in_time(&self, bytes: Content, lead: Lead) {
        let free = free_for(&bytes, lead);
        // Nobody closes it.
        if let Ok(room) = self.room.clone().acquire_many_owned(free).await {
            self.put_into(room, bytes);
        }
    }

    /// Puts the file with the rest, or the end, which have room always.
    pub fn put_last(&self, piece: Piece) {
        // A file that was put alone counts for `emptied`.
        let room = self.room.clone().try_acquire_many_owned(1).ok();
        self.put(piece, room);
    }

    /// Waits until everything was taken.
    pub(crate) async fn emptied(&self) {
        _ = self.room.acquire_many(ROOM).await;
    }

    /// Of what was free, the bytes keep what they take.
    fn put_into(&self, mut free: OwnedSemaphorePermit, bytes: Content) {
        let room = free.split(room_of(&bytes) as usize);
        // It is free again before what waits is counted.
        drop(free);
        self.put(Piece::Bytes(bytes), room);
        count(&self.counter, &self.room);
    }

    fn put(&self, piece: Piece, room: Option<OwnedSemaphorePermit>) {
        // There is a place, so it fails only when nobody reads any more, which shows elsewhere.
        _ = self.queue.try_send(Entry { piece, room });
    }
}

fn room_of(bytes: &Content) -> u32 {
    u32::try_from(bytes.len())
        .unwrap_or(ROOM)
        .clamp(LEAST, ROOM)
}

/// How much must be free for bytes to be put: all, for one piece that is longer.
fn free_for(bytes: &Content, lead: Lead) -> u32 {
    (room_of(bytes) + lead.spare()).min(ROOM)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use bytes::Bytes;
    use tokio::task::unconstrained;

    use super::*;

    fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
        match pin!(unconstrained(future)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    fn of(len: usize) -> Content {
        Bytes::from(vec![0; len]).into()
    }

    #[tokio::test]
    async fn so_many_bytes_may_wait_in_however_many_pieces() {
        for (lead, most) in [(Lead::Short, SHORT_LEAD), (Lead::Long, ROOM)] {
            for len in [1, 100, 5_000, 100_000, 3 << 20] {
                let (sender, mut pieces) = pieces();
                let put = std::iter::from_fn(|| sender.try_put(of(len), lead).ok()).count();
                let counted = len.max(LEAST as usize);
                assert_eq!(put, (most as usize / counted).max(1), "{len} {lead:?}");
                assert!(poll_once(sender.put_in_time(of(len), lead)).is_none());
                pieces.next().await.unwrap();
                assert!(poll_once(sender.put_in_time(of(len), lead)).is_some());
                // What is put last has room.
                sender.put_last(Piece::End);
                let waiting = std::iter::from_fn(|| poll_once(pieces.next()).flatten());
                assert!(matches!(waiting.last(), Some(Piece::End)));
            }
        }
    }

    #[tokio::test]
    async fn while_it_is_shut_nothing_is_put_and_nothing_is_lost() {
        let (sender, mut pieces) = pieces();
        sender.try_put(of(3_000), Lead::Short).unwrap();
        sender.try_put(of(4_000), Lead::Short).unwrap();
        assert_eq!(pieces.shut(), 7_000);
        assert!(sender.try_put(of(1), Lead::Long).is_err());
        assert!(matches!(pieces.try_next(), Some(Piece::Bytes(bytes)) if bytes.len() == 3_000));
        assert!(sender.try_put(of(1), Lead::Long).is_err());
        assert_eq!(pieces.shut(), 4_000);
        assert!(pieces.next().await.is_some());
        sender.try_put(of(1), Lead::Short).unwrap();
        sender.put_last(Piece::End);
        assert!(poll_once(pieces.next()).flatten().is_some());
        assert!(matches!(pieces.next().await, Some(Piece::End)));
        assert!(poll_once(sender.emptied()).is_some());
    }

    #[tokio::test]
    async fn it_is_empty_when_all_was_taken_and_nobody_waits_for_one_who_left() {
        let (sender, mut pieces) = pieces();
        assert!(poll_once(sender.emptied()).is_some());
        sender.try_put(of(10), Lead::Short).unwrap();
        assert!(poll_once(sender.emptied()).is_none());
        assert!(matches!(pieces.next().await, Some(Piece::Bytes(bytes)) if bytes.len() == 10));
        assert!(poll_once(sender.emptied()).is_some());
        sender.try_put(of(2 << 20), Lead::Short).unwrap();
        drop(pieces);
        assert!(sender.is_closed());
        assert!(poll_once(sender.put_in_time(of(2 << 20), Lead::Short)).is_some());
    }
}
