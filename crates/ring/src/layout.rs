//! Where everything lies in a box, byte by byte: the one source of the numbers in Rust, in C and in
//! the reference.

use crate::sync::{AtomicU32, AtomicU64};

/// The first four bytes of a box: `PHRB`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"PHRB");
/// Counts up with each change that an older end would get wrong.
pub const VERSION: u32 = 4;
/// The words; the streams begin behind this page.
pub const PAGE: usize = 4096;
/// Bytes on their way to the worker, whole pages. Any head and most bodies fit.
pub const DOWN: usize = 256 << 10;
/// Bytes on their way to the server. A reply of a megabyte goes out without waiting.
pub const UP: usize = 1152 << 10;
/// All of a box.
pub const SIZE: usize = PAGE + DOWN + UP;

/// Numbers that say where PHP's stack is.
pub(crate) const STACK: usize = 11;

/// `sleep` of a worker that runs.
pub const AWAKE: u32 = 0;
/// `sleep` of one that waits for something to read.
pub const FOR_BYTES: u32 = 1;
/// `sleep` of one that waits for room to write: what it reads is no news to it.
pub const FOR_ROOM: u32 = 2;

/// The words of a box. Each is written by one side only, but for `sleep`; words that different
/// sides write lie on different cache lines.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Words {
    /// [`MAGIC`], [`VERSION`], [`DOWN`], [`UP`], written before the worker starts.
    pub(crate) head: [AtomicU32; 4],
    _head: [u32; 12],
    /// Bytes that the server has put into the stream down, ever.
    pub(crate) down_put: AtomicU64,
    /// 1 while the server waits for room in the stream down.
    pub(crate) room_wanted: AtomicU32,
    /// With so many calls that nobody has begun the worker need not ring for a reply; 0: it rings
    /// for each.
    pub(crate) enough_calls: AtomicU32,
    /// 1 while the worker's calls are quick: it does well at the processor of its thread.
    pub(crate) quick: AtomicU32,
    _down: [u32; 11],
    /// Bytes that the worker has taken from it.
    pub(crate) down_taken: AtomicU64,
    _taken: [u32; 14],
    /// Bytes that the worker has put into the stream up.
    pub(crate) up_put: AtomicU64,
    _put: [u32; 14],
    /// Bytes that the server has taken from it.
    pub(crate) up_taken: AtomicU64,
    _up: [u32; 14],
    /// The futex on which the worker sleeps, or is about to: [`FOR_BYTES`] or [`FOR_ROOM`]. Who
    /// wakes it makes it [`AWAKE`].
    pub(crate) sleep: AtomicU32,
    _sleep: [u32; 15],
    /// Calls in the stream down that nobody has begun, a bit for each: that of its number
    /// modulo 32. Who clears it has the call: the worker, or the server, which takes it back.
    pub(crate) offered: AtomicU32,
    _offered: [u32; 15],
    /// Where PHP's stack is, as `StackLayout` has it; written by the worker
    /// before it announces itself, or zeros.
    pub(crate) stack: [AtomicU64; STACK],
    /// A call that the worker is at and whose time is to be told, 0: none; and what its thread had
    /// taken of a processor when it began it, in nanoseconds. Written by the worker.
    pub(crate) timed: [AtomicU64; 2],
}

/// What workers see of an I/O thread, in memory that they can only read.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Parking {
    /// Odd while the thread sleeps or is about to. Another number for each sleep, so that a worker
    /// rings once for each.
    pub(crate) parked: AtomicU32,
    /// The processor on which it went to sleep last.
    pub(crate) processor: AtomicU32,
    _parked: [u32; 14],
}

#[cfg(all(test, feature = "model"))]
impl Words {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU32::new(0);
        let none = || AtomicU64::new(0);
        Self {
            head: [zero(), zero(), zero(), zero()],
            _head: [0; 12],
            down_put: none(),
            room_wanted: zero(),
            enough_calls: zero(),
            quick: zero(),
            _down: [0; 11],
            down_taken: none(),
            _taken: [0; 14],
            up_put: none(),
            _put: [0; 14],
            up_taken: none(),
            _up: [0; 14],
            sleep: zero(),
            _sleep: [0; 15],
            offered: zero(),
            _offered: [0; 15],
            stack: std::array::from_fn(|_| none()),
            timed: [none(), none()],
        }
    }
}

#[cfg(all(test, feature = "model"))]
impl Parking {
    pub(crate) fn new() -> Self {
        Self {
            parked: AtomicU32::new(0),
            processor: AtomicU32::new(0),
            _parked: [0; 14],
        }
    }
}

/// `ring_layout.h` of the extension.
pub fn c_header() -> String {
    use std::fmt::Write;
    use std::mem::offset_of;
    let rows = [
        ("MAGIC", MAGIC as usize),
        ("VERSION", VERSION as usize),
        ("PAGE", PAGE),
        ("DOWN", DOWN),
        ("UP", UP),
        ("SIZE", SIZE),
        ("AWAKE", AWAKE as usize),
        ("FOR_BYTES", FOR_BYTES as usize),
        ("FOR_ROOM", FOR_ROOM as usize),
        ("AT_HEAD", offset_of!(Words, head)),
        ("AT_DOWN_PUT", offset_of!(Words, down_put)),
        ("AT_ROOM_WANTED", offset_of!(Words, room_wanted)),
        ("AT_ENOUGH_CALLS", offset_of!(Words, enough_calls)),
        ("AT_QUICK", offset_of!(Words, quick)),
        ("AT_DOWN_TAKEN", offset_of!(Words, down_taken)),
        ("AT_UP_PUT", offset_of!(Words, up_put)),
        ("AT_UP_TAKEN", offset_of!(Words, up_taken)),
        ("AT_SLEEP", offset_of!(Words, sleep)),
        ("AT_OFFERED", offset_of!(Words, offered)),
        ("AT_STACK", offset_of!(Words, stack)),
        ("STACK", STACK),
        ("AT_TIMED", offset_of!(Words, timed)),
        ("AT_PARKED", offset_of!(Parking, parked)),
        ("AT_PROCESSOR", offset_of!(Parking, processor)),
    ];
    let mut text = String::from(
        "/* Made by crates/ring from its layout; a test compares. docs/reference/ring.md says what it means. */\n\n",
    );
    for (name, number) in rows {
        _ = writeln!(text, "#define RING_{name} {number}u"); // a string takes everything
    }
    text
}

const _: () = {
    assert!(DOWN.is_multiple_of(PAGE) && UP.is_multiple_of(PAGE));
    assert!(cfg!(all(test, feature = "model")) || size_of::<Words>() <= PAGE);
};
