//! What must hold whatever a worker writes into its box. Tests and fuzz targets call it.

use std::sync::Arc;

use tokio::io::ReadBuf;

use crate::Link;
use crate::layout::{DOWN, PAGE, UP};
use crate::link::count;
use crate::memory::SharedMemory;

/// The most that a step reads or writes: more than a stream holds.
const LONGEST: usize = UP + 4096;

/// Plays a worker that scribbles and a server that reads and writes meanwhile, as the bytes say:
/// four for each step, which are what is done, and how much or where.
///
/// # Panics
///
/// When the server's end takes other bytes than those in its turn, more than there is room for, or
/// any at all of counts that can't be; when it puts more than the stream holds; when there is no
/// memory for a box.
#[doc(hidden)]
pub fn fuzz_box(script: &[u8]) {
    let shared = Arc::new(SharedMemory::new().expect("there is memory"));
    let mut link = Link::new(shared.clone());
    let mut buffer = vec![0; LONGEST];
    for step in script.chunks_exact(4) {
        let [what, a, b, c] = [0, 1, 2, 3].map(|at| step[at]);
        let number = u32::from_le_bytes([a, b, c, 0]) as usize;
        match what % 6 {
            // The words, of which each is four bytes long, and most numbers are wrong.
            0 => shared.scribble(usize::from(a) * 4 % 512, &[b, c, what / 6, 0]),
            // Anywhere in the streams.
            1 => shared.scribble(PAGE + number % (DOWN + UP), &[b; 4]),
            // What the worker says of a call decides nothing but whose it is.
            2 => {
                link.offer(u32::from(a));
                _ = (link.is_offered(u32::from(a)), link.take_back(u32::from(b)));
            }
            3 => read(&mut link, &shared, &mut buffer[..number % LONGEST]),
            4 => borrow(&mut link, &shared, usize::from(a), number % LONGEST),
            _ => write(&mut link, &buffer[..number % LONGEST]),
        }
    }
}

fn read(link: &mut Link, shared: &SharedMemory, into: &mut [u8]) {
    let before = link.counts();
    let mut expected = vec![0; into.len().min(UP)];
    let most = expected.len();
    shared.read_up(before.taken, most, &mut ReadBuf::new(&mut expected));
    let mut next = [0; 8];
    shared.read_up(before.taken, next.len(), &mut ReadBuf::new(&mut next));
    let peeked = link.peek(into.len());
    assert!(
        peeked.is_none_or(|peeked| peeked == next),
        "what lies there next"
    );
    let mut into = ReadBuf::new(into);
    let read = link.read_now(&mut into);
    let (filled, after) = (into.filled(), link.counts());
    assert_eq!(
        after.taken,
        before.taken.wrapping_add(length(filled)),
        "what was read was taken"
    );
    assert_eq!(
        matches!(read, Ok(true)),
        !filled.is_empty(),
        "nothing is read of counts that can't be"
    );
    assert!(
        filled == &expected[..filled.len()],
        "what lies in the stream at its place"
    );
}

/// In one thread nobody changes the bytes between the loan and its end.
fn borrow(link: &mut Link, shared: &SharedMemory, head: usize, most: usize) {
    let before = link.counts();
    let Some((head_bytes, loan)) = link.borrow(head, 1..=most) else {
        assert_eq!(link.counts(), before, "nothing was lent, nothing taken");
        return;
    };
    let len = loan.len();
    assert!(
        (1..=most).contains(&len) && head + len <= UP,
        "{len} are lent"
    );
    let after = before.taken.wrapping_add(length(&head_bytes));
    let expected = shared.copy_up(after, len);
    let rest = loan.send(|bytes| {
        assert!(*bytes == *expected, "what lies in the stream at its place");
        len / 2
    });
    assert!(rest == expected[len / 2..], "what was not sent");
    assert_eq!(link.counts().taken, after.wrapping_add(count(len)));
}

fn write(link: &mut Link, bytes: &[u8]) {
    let before = link.counts();
    let written = link.write_some(bytes);
    let put = length(&bytes[..written.unwrap_or(0)]);
    assert!(put <= count(DOWN), "more than the stream holds");
    assert_eq!(link.counts().put, before.put.wrapping_add(put));
    _ = link.unread(); // any number; the relay compares it with one of its own
}

fn length(bytes: &[u8]) -> u64 {
    count(bytes.len())
}
