//! Memory for replies that their callers have not taken yet.
//!
//! Callers over the listener share one such room, and workers over their own connections another.
//!
//! How long a reply becomes, nobody knows before it is made, and then it is there. So calls of a
//! method are expected to have replies as long as its last ones, and wait until there is room for
//! such. A method that may have far longer ones reserves room itself, through [`CallRoom`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use pronghorn_base::{BoxFuture, lock};
use pronghorn_plugin_api::rpc::ReplyRoom;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Replies that callers have not taken yet, small ones aside. While there is no room, calls that
/// are expected to have long replies wait. Four of the longest.
pub const REPLIES_UNREAD: usize = 256 << 20;
/// The same of one connection, or one longer reply: a caller that reads none holds up no other.
pub const REPLIES_PER_CONNECTION: usize = 16 << 20;
/// The same of the workers of one pool: another pool has as much.
pub const REPLIES_PER_POOL: usize = 128 << 20;

/// Replies of up to this are not counted: however many long ones lie around, the calls that matter
/// when something is wrong are answered. All connections with all their calls have 256 MB of such.
pub(crate) const SMALL: usize = 4 << 10;

/// The room of all callers.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    most: usize,
    /// How many wait for some.
    waiting: watch::Sender<usize>,
    /// How long replies of methods were lately, of those that are not small.
    lengths: Mutex<HashMap<Box<[u8]>, usize>>,
}

/// The part of it that one connection may have, or all workers of a pool.
#[derive(Clone, Debug)]
pub(crate) struct OwnRoom {
    free: Arc<Semaphore>,
    most: usize,
    all: Arc<Room>,
}

/// The room of one call, for its method.
#[derive(Debug)]
pub(crate) struct CallRoom {
    of: OwnRoom,
    taken: Mutex<Taken>,
    /// Its method asks for room itself: what it needed says nothing of the next call.
    was_asked: AtomicBool,
}

/// Some of it, given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    bytes: usize,
    permits: Option<[OwnedSemaphorePermit; 2]>,
}

impl Room {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(most)),
            most,
            waiting: watch::Sender::new(0),
            lengths: Mutex::default(),
        }
    }

    /// Waits until somebody waits for room.
    pub(crate) async fn is_short(&self) {
        let mut waiting = self.waiting.subscribe();
        // The sender is here.
        _ = waiting.wait_for(|waiting| *waiting > 0).await;
    }

    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        if let Ok(taken) = self.free.clone().try_acquire_many_owned(permits(bytes)) {
            return taken;
        }
        let _waiting = Waiting::new(&self.waiting);
        acquire(&self.free, permits(bytes)).await
    }

    fn expected(&self, method: &[u8]) -> usize {
        let lengths = lock(&self.lengths);
        if lengths.is_empty() {
            return 0;
        }
        lengths.get(method).copied().unwrap_or(0)
    }

    /// What is long once is expected for a while, and forgotten in the end.
    fn learn(&self, method: &[u8], length: usize) {
        let mut lengths = lock(&self.lengths);
        match lengths.get_mut(method) {
            Some(known) => {
                *known = length.max(*known - *known / 8);
                if *known <= SMALL {
                    lengths.remove(method);
                }
            }
            None if length > SMALL => _ = lengths.insert(method.into(), length),
            None => {}
        }
    }
}

impl OwnRoom {
    pub(crate) fn new(most: usize, all: &Arc<Room>) -> Self {
        Self {
            free: Arc::new(Semaphore::new(most)),
            most,
            all: all.clone(),
        }
    }

    /// A reply that is longer than all that there is has it for itself.
    async fn take(&self, bytes: usize) -> Taken {
        if bytes <= SMALL {
            return Taken::default();
        }
        let [own, all] = self.shares(bytes);
        let own = acquire(&self.free, permits(own)).await;
        let all = self.all.take(all).await;
        Taken {
            bytes,
            permits: Some([own, all]),
        }
    }

    /// None where so much is not free now.
    fn try_take(&self, bytes: usize) -> Option<Taken> {
        let [own, all] = self.shares(bytes).map(permits);
        let own = self.free.clone().try_acquire_many_owned(own).ok()?;
        let all = self.all.free.clone().try_acquire_many_owned(all).ok()?;
        Some(Taken {
            bytes,
            permits: Some([own, all]),
        })
    }

    /// The parts that so many bytes take of its own room, and of all.
    fn shares(&self, bytes: usize) -> [usize; 2] {
        [self.most, self.all.most].map(|most| bytes.min(most))
    }

    /// Keeps so many bytes of what was taken; the others are given back.
    fn part(&self, taken: Taken, bytes: usize) -> Taken {
        let Some([mut own, mut all]) = taken.permits.filter(|_| bytes > SMALL) else {
            return Taken::default();
        };
        let [of_own, of_all] = self.shares(bytes);
        match (own.split(of_own), all.split(of_all)) {
            (Some(own), Some(all)) => Taken {
                bytes,
                permits: Some([own, all]),
            },
            _ => unreachable!("it is no more than was taken"),
        }
    }
}

impl CallRoom {
    pub(crate) fn new(of: &OwnRoom) -> Self {
        Self {
            of: of.clone(),
            taken: Mutex::default(),
            was_asked: AtomicBool::new(false),
        }
    }

    /// For the reply to a call that is to begin.
    pub(crate) async fn before(&self, method: &[u8]) {
        let expected = self.of.all.expected(method);
        let taken = self.at_least(expected).await;
        *lock(&self.taken) = taken;
    }

    /// For a reply that is there; what was taken beyond it is given back. `method` exists.
    pub(crate) async fn after(&self, method: &[u8], length: usize) -> Taken {
        if !self.was_asked.load(Ordering::Relaxed) {
            self.of.all.learn(method, length);
        }
        let taken = self.at_least(length).await;
        self.of.part(taken, length)
    }

    /// The bytes that were taken, or so many in their place.
    async fn at_least(&self, bytes: usize) -> Taken {
        let taken = std::mem::take(&mut *lock(&self.taken));
        if bytes <= taken.bytes {
            return taken;
        }
        // Not the rest alone: several calls that wait for their rest would wait for each other.
        drop(taken);
        self.of.take(bytes).await
    }
}

impl ReplyRoom for CallRoom {
    fn reserve(&self, bytes: usize) -> BoxFuture<'_, usize> {
        self.was_asked.store(true, Ordering::Relaxed);
        Box::pin(async move {
            let taken = self.at_least(bytes).await;
            let most = taken.bytes.max(SMALL);
            *lock(&self.taken) = taken;
            most
        })
    }

    fn try_reserve(&self, bytes: usize) -> usize {
        self.was_asked.store(true, Ordering::Relaxed);
        let mut taken = lock(&self.taken);
        if bytes > taken.bytes
            && let Some(more) = self.of.try_take(bytes)
        {
            *taken = more;
        }
        taken.bytes.max(SMALL)
    }
}

/// Somebody who waits.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

pub(crate) async fn acquire(semaphore: &Arc<Semaphore>, permits: u32) -> OwnedSemaphorePermit {
    let acquired = semaphore.clone().acquire_many_owned(permits).await;
    acquired.expect("nobody closes it")
}
