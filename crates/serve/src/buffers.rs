//! Buffers of a thread that serves requests: an idle connection has none, and one that wakes gets
//! the warmest.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};

/// To read into. Heads fit, and the bodies of most requests with them: what comes in one read is
/// neither put together nor copied.
pub(crate) const INPUT: usize = 16 << 10;
/// To write from. Heads and small bodies fit; longer ones grow their buffer.
const OUTPUT: usize = 8 << 10;
/// More than are in use at a time on a thread that serves small requests.
const KEPT: usize = 32;

thread_local! {
    static INPUTS: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
    static OUTPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer to read into.
pub(crate) fn input() -> BytesMut {
    INPUTS
        .with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| BytesMut::with_capacity(INPUT))
}

/// Gives a buffer back. One that grew, or whose memory is shared with a body, is dropped instead.
pub(crate) fn give_back_input(mut buffer: BytesMut) {
    buffer.clear();
    // A buffer that was consumed from the front gets its full room back only if nobody else holds
    // part of it.
    if buffer.try_reclaim(INPUT) && buffer.capacity() <= 2 * INPUT {
        INPUTS.with_borrow_mut(|kept| {
            if kept.len() < KEPT {
                kept.push(buffer);
            }
        });
    }
}

/// Gives the buffer back in which a body lies that came in one read, if nobody else holds part of
/// it.
pub fn give_back_body(body: Bytes) {
    if let Ok(buffer) = body.try_into_mut() {
        give_back_input(buffer);
    }
}

/// An empty buffer to write from.
pub(crate) fn output() -> Vec<u8> {
    OUTPUTS
        .with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| Vec::with_capacity(OUTPUT))
}

pub(crate) fn give_back_output(mut buffer: Vec<u8>) {
    if (OUTPUT..=4 * OUTPUT).contains(&buffer.capacity()) {
        buffer.clear();
        OUTPUTS.with_borrow_mut(|kept| {
            if kept.len() < KEPT {
                kept.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_of_a_body_is_the_next_one_to_read_into() {
        let mut buffer = input();
        buffer.extend_from_slice(&[b'x'; 8200]);
        let start = buffer.as_ptr();
        _ = buffer.split_to(100); // the head
        let body = buffer.split_to(8100).freeze();
        give_back_input(buffer);
        assert_ne!(input().as_ptr(), start, "the body is in use");
        give_back_body(body);
        // Takes the memory, if it went back to the allocator.
        let _other = BytesMut::with_capacity(INPUT);
        let next = input();
        assert_eq!((next.as_ptr(), next.len()), (start, 0));
        assert!(next.capacity() >= INPUT);
    }
}
