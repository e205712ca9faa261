//! Memory that processes share. What lies there may be overwritten by any of them at any time, so
//! it is only reached by atomics and by copies, each within its bounds.

#![expect(
    unsafe_code,
    reason = "mapping memory, and copying into and out of what another process may write"
)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};

#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    size: usize,
    file: OwnedFd,
}

// SAFETY: it is only read and written by atomics and by copies of bytes, from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Of this size for ever: nobody can make it shorter, which would be a SIGBUS for all others.
    /// Its pages are taken as they are needed.
    pub(crate) fn new(size: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("pronghorn-cache", flags)?;
        ftruncate(&file, size as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::map(file)
    }

    /// What another process made.
    pub(crate) fn map(file: OwnedFd) -> io::Result<Self> {
        let size = usize::try_from(fstat(&file)?.st_size).unwrap_or(0);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = std::ptr::null_mut();
        // SAFETY: a mapping of its own, at an address that the kernel chooses.
        let start = unsafe { mmap(nowhere, size, access, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, size, file })
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Takes the pages, so that a machine that has none says so here.
    pub(crate) fn populate(&self, at: usize, length: usize) -> io::Result<()> {
        let start = self.at(at, length).cast();
        // SAFETY: inside of the mapping, and only its pages are taken.
        match unsafe { madvise(start, length, Advice::LinuxPopulateWrite) } {
            // A kernel before 5.14: they are taken as they are written.
            Err(Errno::INVAL) => Ok(()),
            done => Ok(done?),
        }
    }

    #[expect(clippy::cast_ptr_alignment, reason = "asserted before it is used")]
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        let at = self.at(at, 8).cast::<u64>();
        assert!(at.is_aligned(), "words are aligned");
        // SAFETY: inside of the mapping, aligned, and others write it by atomics too, or harm only
        // what it says.
        unsafe { AtomicU64::from_ptr(at) }
    }

    #[expect(clippy::cast_ptr_alignment, reason = "asserted before it is used")]
    pub(crate) fn half(&self, at: usize) -> &AtomicU32 {
        let at = self.at(at, 4).cast::<u32>();
        assert!(at.is_aligned(), "words are aligned");
        // SAFETY: as in `word`.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// A private copy.
    pub(crate) fn copy(&self, at: usize, length: usize) -> Vec<u8> {
        let from = self.at(at, length);
        let mut copy = Vec::<u8>::with_capacity(length);
        // SAFETY: `from` has so many bytes, and `copy` room for as many. What arrives is bytes of
        // any value, and is judged where it arrives.
        unsafe { std::ptr::copy_nonoverlapping(from, copy.as_mut_ptr(), length) };
        // SAFETY: they were just written.
        unsafe { copy.set_len(length) };
        copy
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.at(at, bytes.len());
        // SAFETY: inside of the mapping; nothing borrows from this memory but atomics.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    fn at(&self, at: usize, length: usize) -> *mut u8 {
        let end = at.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.size),
            "outside of the segment"
        );
        // SAFETY: inside of the mapping, as was just checked.
        unsafe { self.start.as_ptr().add(at) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it is this mapping, and nobody borrows from it any more. It can't fail for one.
        _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// Milliseconds of the clock that nobody sets. At least 1: 0 means no end.
pub(crate) fn milliseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    1 + seconds * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}

/// Seconds of the same clock, as of the kernel's last tick: no clock of the hardware is read.
pub(crate) fn seconds() -> u32 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    u32::try_from(now.tv_sec).unwrap_or(0)
}

/// Whether there is a process of that number.
pub(crate) fn is_alive(process: u64) -> bool {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    number.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}
