//! Memory that two processes share.

#![expect(
    unsafe_code,
    reason = "mapping memory, and copying into and out of what another process may write"
)]

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use tokio::io::ReadBuf;

use crate::layout::{DOWN, MAGIC, PAGE, Parking, SIZE, UP, VERSION, Words};
use crate::sync::Ordering;

/// The memory of one worker process: words and two streams.
///
/// Each stream is mapped twice in a row, so any part of it is one piece of memory, also where it
/// wraps.
#[derive(Debug)]
pub struct SharedMemory {
    map: Map,
    memory: OwnedFd,
}

/// Addresses: the page, the stream down twice, the stream up twice.
const MAPPED: usize = PAGE + 2 * DOWN + 2 * UP;

impl SharedMemory {
    /// Makes a box. All of its memory is taken now: later a full machine would be a SIGBUS.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory or no descriptors, or forbids such files.
    pub fn new() -> io::Result<Self> {
        let memory = sealed("pronghorn-box", SIZE)?;
        let made = Self::map(memory)?;
        let sizes = [MAGIC, VERSION, number(DOWN), number(UP)];
        for (word, value) in made.words().head.iter().zip(sizes) {
            word.store(value, Ordering::Relaxed);
        }
        Ok(made)
    }

    /// Maps a box that another process made.
    pub(crate) fn map(memory: OwnedFd) -> io::Result<Self> {
        let map = Map::reserve(MAPPED)?;
        let parts = [
            (0, 0, PAGE),
            (PAGE, PAGE, DOWN),
            (PAGE + DOWN, PAGE, DOWN),
            (PAGE + 2 * DOWN, PAGE + DOWN, UP),
            (PAGE + 2 * DOWN + UP, PAGE + DOWN, UP),
        ];
        for (at, offset, len) in parts {
            map.place(at, memory.as_fd(), offset, len)?;
        }
        Ok(Self { map, memory })
    }

    /// What the worker is handed.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Frees the pages of a box that nobody uses: a worker without the extension keeps its
    /// descriptor open.
    pub fn give_back(&self) {
        let whole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // At worst the memory stays until the worker ends.
        _ = fallocate(&self.memory, whole, 0, SIZE as u64);
    }

    pub(crate) fn words(&self) -> &Words {
        // SAFETY: the map begins with a page that was made for `Words`, which are atomics and
        // padding: any bytes are valid, and the other process's writes are atomic, too, or harm
        // only what they say.
        unsafe { self.map.start.cast::<Words>().as_ref() }
    }

    /// Copies into the stream down, at most [`DOWN`] bytes.
    pub(crate) fn write_down(&self, put: u64, bytes: &[u8]) {
        self.write(PAGE + place(put, DOWN), bytes, DOWN);
    }

    pub(crate) fn read_down(&self, taken: u64, len: usize, into: &mut ReadBuf<'_>) {
        self.read(PAGE + place(taken, DOWN), len, DOWN, into);
    }

    pub(crate) fn write_up(&self, put: u64, bytes: &[u8]) {
        self.write(PAGE + 2 * DOWN + place(put, UP), bytes, UP);
    }

    /// Appends `len` bytes of the stream up, at most [`UP`] and what `into` has room for.
    pub(crate) fn read_up(&self, taken: u64, len: usize, into: &mut ReadBuf<'_>) {
        self.read(PAGE + 2 * DOWN + place(taken, UP), len, UP, into);
    }

    /// The same in a buffer of its own.
    pub(crate) fn copy_up(&self, taken: u64, len: usize) -> Vec<u8> {
        let mut copy = Vec::with_capacity(len);
        self.read_up(taken, len, &mut ReadBuf::uninit(copy.spare_capacity_mut()));
        // SAFETY: `read_up` has filled so many.
        unsafe { copy.set_len(len) };
        copy
    }

    /// Lends `len` bytes of the stream up, at most [`UP`], to a system call that `send` makes.
    pub(crate) fn lend_up<R>(
        &self,
        taken: u64,
        len: usize,
        send: impl FnOnce(IoSlice<'_>) -> R,
    ) -> R {
        assert!(len <= UP, "more than a stream holds");
        let at = self.map.at(PAGE + 2 * DOWN + place(taken, UP));
        // SAFETY: as in `read`. That the other process may write there meanwhile concerns who reads
        // it, and that is the kernel, which copies what it finds.
        send(IoSlice::new(unsafe { std::slice::from_raw_parts(at, len) }))
    }

    /// Anywhere, for tests.
    pub(crate) fn scribble(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= MAPPED, "outside of the box");
        // SAFETY: inside of the mapping; words and streams take any bytes, at any time.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.at(at), bytes.len()) };
    }

    fn write(&self, at: usize, bytes: &[u8], most: usize) {
        assert!(bytes.len() <= most, "more than a stream holds");
        // SAFETY: `at` is inside of the first of two mappings of a stream, and `bytes` is no longer
        // than one, so all of it is mapped. The other process may read or scribble meanwhile;
        // nothing but `lend_up` borrows from this memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.at(at), bytes.len()) };
    }

    fn read(&self, at: usize, len: usize, most: usize, into: &mut ReadBuf<'_>) {
        assert!(len <= most.min(into.remaining()), "more than there is");
        // SAFETY: nothing in there becomes uninitialised.
        let to = unsafe { into.unfilled_mut() }.as_mut_ptr().cast();
        // SAFETY: as above, and `to` has room for as much. What arrives is bytes of any value, and
        // is judged where it arrives.
        unsafe { std::ptr::copy_nonoverlapping(self.map.at(at), to, len) };
        // SAFETY: they were just written.
        unsafe { into.assume_init(len) };
        into.advance(len);
    }
}

fn place(count: u64, size: usize) -> usize {
    usize::try_from(count % size as u64).expect("a stream is short")
}

fn number(size: usize) -> u32 {
    u32::try_from(size).expect("a box is small")
}

/// What workers read of an I/O thread.
#[derive(Debug)]
pub(crate) struct ParkingPage {
    map: Map,
    memory: OwnedFd,
}

impl ParkingPage {
    /// After this nobody can map it for writing any more.
    pub(crate) fn new() -> io::Result<Self> {
        let memory = allocated("pronghorn-thread", PAGE)?;
        let map = Map::reserve(PAGE)?;
        map.place(0, memory.as_fd(), 0, PAGE)?;
        fcntl_add_seals(&memory, SealFlags::FUTURE_WRITE | FIXED)?;
        Ok(Self { map, memory })
    }

    /// Maps what another process made.
    pub(crate) fn map(memory: OwnedFd) -> io::Result<Self> {
        let map = Map::reserve(PAGE)?;
        map.place_readable(0, memory.as_fd(), PAGE)?;
        Ok(Self { map, memory })
    }

    pub(crate) fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    pub(crate) fn words(&self) -> &Parking {
        // SAFETY: as in `SharedMemory::words`.
        unsafe { self.map.start.cast::<Parking>().as_ref() }
    }
}

/// Nobody may make it shorter, which would be a SIGBUS for all who have it mapped, or longer, or
/// change these rules.
const FIXED: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

fn sealed(name: &str, size: usize) -> io::Result<OwnedFd> {
    let memory = allocated(name, size)?;
    fcntl_add_seals(&memory, FIXED)?;
    Ok(memory)
}

fn allocated(name: &str, size: usize) -> io::Result<OwnedFd> {
    let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fallocate(&memory, FallocateFlags::empty(), 0, size as u64)?;
    Ok(memory)
}

/// A range of addresses.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is an address range that lives until the value is dropped. Words in it are atomics;
// streams are copied into and out of by the one owner of a `Link` or `Peer`.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn reserve(len: usize) -> io::Result<Self> {
        // SAFETY: a new range, chosen by the kernel.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    fn place(
        &self,
        at: usize,
        memory: BorrowedFd<'_>,
        offset: usize,
        len: usize,
    ) -> io::Result<()> {
        self.put(at, memory, offset, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn place_readable(&self, at: usize, memory: BorrowedFd<'_>, len: usize) -> io::Result<()> {
        self.put(at, memory, 0, len, ProtFlags::READ)
    }

    fn put(
        &self,
        at: usize,
        memory: BorrowedFd<'_>,
        offset: usize,
        len: usize,
        rights: ProtFlags,
    ) -> io::Result<()> {
        assert!(at + len <= self.len, "outside of the range");
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is ours, and nothing was borrowed from it yet.
        unsafe {
            mmap(
                self.at(at).cast(),
                len,
                rights,
                flags,
                memory,
                offset as u64,
            )
        }?;
        Ok(())
    }

    fn at(&self, at: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(at)
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and borrows of it end with the value.
        _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) }; // nothing can be done about it
    }
}
