//! The allocator: mimalloc, asked in its shortest way.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

/// A request makes a dozen small allocations; mimalloc takes a third of the time of glibc's for
/// them. Its own wrapper for Rust asks for an alignment each time, which costs as much again as the
/// allocation.
///
/// It asks for no huge pages (feature `no_thp`): with them the server takes 11 MB at rest, without
/// 2, and answers as fast.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

/// Whether what mimalloc gives is aligned enough by itself: to 16 bytes, blocks of less than that
/// to 8.
const fn is_natural(align: usize, size: usize) -> bool {
    align <= 8 || (align == 16 && size >= 16)
}

/// `mi_option_purge_delay` in mimalloc's list, for which its Rust crate has no name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// Milliseconds until memory that nobody uses goes back to the system. With mimalloc's second, what
/// 5,000 connections had needed stayed (18 MB, 3 before them); with this it is gone within one
/// second. `MIMALLOC_PURGE_DELAY` wins.
const GIVEN_BACK_AFTER: std::ffi::c_long = 100;

/// Before anything else, for what is allocated from now on.
#[expect(unsafe_code, reason = "mimalloc's settings are behind C functions")]
pub fn give_back_soon() {
    // SAFETY: it writes one number of mimalloc's own, before there are other threads.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, GIVEN_BACK_AFTER) }
}

/// What this thread holds and nobody uses goes back to the system now. Without it, memory stays
/// that a thread freed before it fell asleep: it looks at that only as it allocates.
///
/// Takes up to some milliseconds.
#[expect(unsafe_code, reason = "mimalloc's functions are C's")]
pub fn give_back() {
    // SAFETY: it may be called at any time, and looks after memory of this thread alone.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

#[expect(unsafe_code, reason = "an allocator is made of addresses")]
// SAFETY: each function hands the caller's size and alignment to mimalloc, or leaves the alignment
// out where every block of that size has it. Blocks of both kinds may be grown and freed by either
// of its functions. None of them unwinds.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        if is_natural(align, size) {
            // SAFETY: as above.
            return unsafe { libmimalloc_sys::mi_malloc(size) }.cast();
        }
        // SAFETY: as above.
        unsafe { libmimalloc_sys::mi_malloc_aligned(size, align) }.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        if is_natural(align, size) {
            // SAFETY: as above.
            return unsafe { libmimalloc_sys::mi_zalloc(size) }.cast();
        }
        // SAFETY: as above.
        unsafe { libmimalloc_sys::mi_zalloc_aligned(size, align) }.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller's promise is that it came from here.
        unsafe { libmimalloc_sys::mi_free(block.cast::<c_void>()) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (block, align) = (block.cast::<c_void>(), layout.align());
        if is_natural(align, size) {
            // SAFETY: as above.
            return unsafe { libmimalloc_sys::mi_realloc(block, size) }.cast();
        }
        // SAFETY: as above.
        unsafe { libmimalloc_sys::mi_realloc_aligned(block, size, align) }.cast()
    }
}

#[cfg(test)]
mod tests {
    #[derive(Clone, Default)]
    #[repr(align(32))]
    struct Half(#[expect(dead_code, reason = "for its size")] [u8; 3]);

    #[derive(Clone, Default)]
    #[repr(align(64))]
    struct Line(#[expect(dead_code, reason = "for its size")] u8);

    #[derive(Clone, Default)]
    #[repr(align(4096))]
    struct Page(#[expect(dead_code, reason = "for its size")] u8);

    /// Through the allocator of this very program: made, grown, shrunk, and made of zeros.
    fn are_aligned<T: Clone + Default>() {
        for count in (1..200).chain([255, 256, 257, 1024, 5000]) {
            let mut many = vec![T::default(); count];
            let is_aligned = |many: &Vec<T>| many.as_ptr().addr().is_multiple_of(align_of::<T>());
            assert!(is_aligned(&many), "{count} of {}", size_of::<T>());
            many.extend(vec![T::default(); count]);
            assert!(is_aligned(&many), "{count} of {} grown", size_of::<T>());
            many.truncate(count.div_ceil(3));
            many.shrink_to_fit();
            assert!(is_aligned(&many), "{count} of {} shrunk", size_of::<T>());
        }
    }

    #[test]
    fn every_block_is_aligned_as_it_was_asked_for() {
        are_aligned::<u8>();
        are_aligned::<u16>();
        are_aligned::<u64>();
        are_aligned::<u128>();
        are_aligned::<Half>();
        are_aligned::<Line>();
        are_aligned::<Page>();
        assert_eq!(vec![0_u64; 100_000].iter().sum::<u64>(), 0);
    }
}
