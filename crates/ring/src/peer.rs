//! The worker's end of a box, for tests: what `ext/pronghorn/ring.c` does, in Rust.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::thread::futex;
use tokio::io::ReadBuf;
use tokio::time::Instant;

use crate::half::{Bell, Worker, there};
use crate::layout::{AWAKE, DOWN, FOR_BYTES, FOR_ROOM, MAGIC, UP, VERSION};
use crate::link::count;
use crate::memory::{ParkingPage, SharedMemory};
use crate::sync::Ordering;

/// The worker's end. Blocks its thread.
#[derive(Debug)]
pub struct Peer {
    shared: SharedMemory,
    page: ParkingPage,
    bell: OwnedFd,
    put: u64,
    taken: u64,
    rings: Bell,
}

impl Peer {
    /// Maps what a worker is handed: its box, the page and the bell of its thread.
    ///
    /// # Errors
    ///
    /// When it can't be mapped, or is of another version.
    pub fn attach(memory: OwnedFd, page: OwnedFd, bell: OwnedFd) -> io::Result<Self> {
        let shared = SharedMemory::map(memory)?;
        let head: Vec<u32> = shared
            .words()
            .head
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        if head[..2] != [MAGIC, VERSION] || head[2] as usize != DOWN || head[3] as usize != UP {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "another version",
            ));
        }
        Ok(Self {
            shared,
            page: ParkingPage::map(page)?,
            bell,
            put: 0,
            taken: 0,
            rings: Bell::default(),
        })
    }

    /// Waits for at least one byte, at most so long. 0: the time is over.
    ///
    /// # Errors
    ///
    /// When the server's count can't be.
    pub fn read(&mut self, into: &mut [u8], longest: Duration) -> io::Result<usize> {
        let taken = self.taken;
        self.act(|half| half.server_has_put() == taken && half.settles());
        let there = self.wait(longest, FOR_BYTES, |peer| {
            let put = peer.half().server_has_put();
            there(put, peer.taken, DOWN).map_err(|_| io::ErrorKind::InvalidData.into())
        })?;
        let len = there.min(into.len());
        self.shared
            .read_down(self.taken, len, &mut ReadBuf::new(into));
        self.taken = self.taken.wrapping_add(count(len));
        let taken = self.taken;
        self.act(|half| half.taken(taken));
        Ok(len)
    }

    /// Writes all of it, waiting for room at most so long each time.
    ///
    /// # Errors
    ///
    /// When there is none in time, or the server's count can't be.
    pub fn write(&mut self, mut bytes: &[u8], longest: Duration) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.wait(longest, FOR_ROOM, |peer| {
                let taken = peer.half().server_has_taken();
                match there(peer.put, taken, UP) {
                    Ok(there) => Ok(UP - there),
                    Err(_) => Err(io::ErrorKind::InvalidData.into()),
                }
            })?;
            if room == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            let put = self.copy(now);
            self.act(|half| half.put(put));
            bytes = rest;
        }
        Ok(())
    }

    /// Writes what the server need not know before the answer to the call that lies there, if one
    /// does. There is room for it.
    #[doc(hidden)]
    pub fn write_with_next(&mut self, bytes: &[u8]) {
        let (put, lies_there) = (self.copy(bytes), self.lies_there());
        self.act(|half| half.put_with_next(put, lies_there));
    }

    /// Writes a reply, which may wait for others as far as the server says. There is room for it.
    #[doc(hidden)]
    pub fn write_reply(&mut self, bytes: &[u8]) {
        let (put, lies_there) = (self.copy(bytes), self.lies_there());
        self.act(|half| half.put_reply(put, lies_there));
    }

    /// How much can be written now.
    #[doc(hidden)]
    pub fn room(&self) -> usize {
        UP - there(self.put, self.half().server_has_taken(), UP).unwrap_or(UP)
    }

    /// With how many calls that it has not begun it need not ring for a reply.
    #[doc(hidden)]
    pub fn enough_calls(&self) -> u32 {
        self.shared.words().enough_calls.load(Ordering::Relaxed)
    }

    fn lies_there(&self) -> bool {
        self.half().server_has_put() != self.taken
    }

    /// What the count is with these bytes.
    fn copy(&mut self, bytes: &[u8]) -> u64 {
        self.shared.write_up(self.put, bytes);
        self.put = self.put.wrapping_add(count(bytes.len()));
        self.put
    }

    /// Begins a call that was read. False: the server has taken it back.
    pub fn claims(&self, call: u32) -> bool {
        self.half().claims(call)
    }

    /// Says that it sleeps, as it would if it did.
    #[doc(hidden)]
    pub fn lies_down(&self) {
        self.half().sleeps(FOR_BYTES, || false);
    }

    /// Whether its calls are said to be quick.
    #[doc(hidden)]
    pub fn is_quick(&self) -> bool {
        self.shared.words().quick.load(Ordering::Relaxed) == 1
    }

    /// On which processor the thread of its server went to sleep last.
    #[doc(hidden)]
    pub fn threads_processor(&self) -> u32 {
        self.page.words().processor.load(Ordering::Relaxed)
    }

    /// Whether it was woken since.
    #[doc(hidden)]
    pub fn is_woken(&self) -> bool {
        self.half().sleep_word().load(Ordering::Relaxed) == AWAKE
    }

    /// Takes a step and rings where that is asked for.
    fn act(&mut self, step: impl FnOnce(&mut Worker<'_>) -> bool) {
        let mut half = self.half();
        let rings = step(&mut half);
        self.rings = half.bell;
        if rings {
            _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()); // full means that it rings anyway
        }
    }

    /// Sleeps until `look` finds something, in the order that loses no wake-up.
    fn wait(
        &self,
        longest: Duration,
        until: u32,
        look: impl Fn(&Self) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let deadline = Instant::now() + longest;
        let half = self.half();
        let mut found = look(self)?;
        // Whoever wakes may mean the sleep before: a wake-up says nothing by itself.
        while found == 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let mut judged = Ok(0);
            let sleeps = half.sleeps(until, || {
                judged = look(self);
                !matches!(judged, Ok(0))
            });
            found = judged?;
            if sleeps {
                let limit = rustix::thread::Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                };
                // Woken, interrupted, too late: what is there says all.
                _ = futex::wait(
                    half.sleep_word(),
                    futex::Flags::empty(),
                    until,
                    Some(&limit),
                );
                found = look(self)?;
            }
            half.awake();
        }
        Ok(found)
    }

    fn half(&self) -> Worker<'_> {
        Worker {
            words: self.shared.words(),
            parking: self.page.words(),
            bell: self.rings,
        }
    }

    /// Puts other counts where the worker's are: what a broken one may do.
    #[doc(hidden)]
    pub fn scribble(&self, put: u64, taken: u64) {
        let words = self.shared.words();
        words.up_put.store(put, Ordering::Relaxed);
        words.down_taken.store(taken, Ordering::Relaxed);
    }

    /// Writes over the whole of the box, from `at` on: words, both streams.
    #[doc(hidden)]
    pub fn scribble_over(&self, at: usize, bytes: &[u8]) {
        self.shared.scribble(at, bytes);
    }
}
