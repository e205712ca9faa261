//! Where everything lies in a segment, and what its words mean: the one source of the numbers in
//! Rust and in C.

/// The first four bytes: `PHKV`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"PHKV");
/// Counts up with each change that an older end would get wrong.
pub const VERSION: u32 = 2;

/// The head; buckets follow, then the table of blocks, then the blocks.
pub const HEAD: usize = 4096;
pub const AT_MAGIC: usize = 0;
pub const AT_VERSION: usize = 4;
/// Bytes of the whole segment.
pub const AT_SIZE: usize = 8;
/// A power of two.
pub const AT_BUCKETS: usize = 16;
pub const AT_BLOCKS: usize = 24;
/// Bytes of a block, a power of two.
pub const AT_BLOCK_SIZE: usize = 32;
/// Of the hash, so that nobody outside knows which keys collide.
pub const AT_SEED: usize = 40;
/// How many blocks were taken that nobody has had before.
pub const AT_FRESH: usize = 128;
/// Where the next block is looked for that has to make room.
pub const AT_HAND: usize = 192;
/// Counters, in lines by process so that processes do not slow each other.
pub const AT_COUNTS: usize = 1024;
pub const COUNT_LINES: usize = 16;
pub const COUNT_LINE: usize = 64;
/// Places in a line.
pub const HITS: usize = 0;
pub const MISSES: usize = 8;
pub const WRITES: usize = 16;
pub const EVICTIONS: usize = 24;
/// Slots of entries that were read. One read in 64 leaves its own, wherever the count of hits says:
/// a product with [`FACTOR_A`] is spread so evenly that no rhythm of reads is favoured.
pub const AT_SAMPLES: usize = 2048;
pub const SAMPLES: usize = 256;
/// What is left of the product are 14 bits.
pub const SAMPLE_SHIFT: u32 = 50;

/// A bucket is a line of eight words: one that says what is being changed, and seven slots.
pub const BUCKET: usize = 64;
pub const SLOTS: usize = 7;
/// Bytes of blocks for which there is a bucket.
pub const BYTES_PER_BUCKET: usize = 256;

/// A row of the table of blocks: its state, and how many bytes in it nobody needs any more.
pub const ROW: usize = 16;
pub const ROW_DEAD: usize = 8;
pub const SMALLEST_BLOCK: usize = 64 << 10;
pub const LARGEST_BLOCK: usize = 4 << 20;
/// So many blocks there are at least, where they are not the smallest.
pub const BLOCKS: usize = 128;

/// State of a block: bits 0 to 2, then the process that has it, and from bit 32 on how often it was
/// emptied.
pub const FREE: u64 = 0;
/// A living process writes into it.
pub const OPEN: u64 = 1;
pub const FULL: u64 = 2;
/// A living process moves what is needed out of it.
pub const CLEANING: u64 = 3;
/// The kernel has no memory for it.
pub const REFUSED: u64 = 4;
pub const KIND_BITS: u64 = 7;
pub const PID_SHIFT: u32 = 3;
pub const PID_BITS: u64 = (1 << 22) - 1;
/// In states and in slots.
pub const GENERATION_SHIFT: u32 = 32;
pub const GENERATION_BITS: u64 = (1 << 20) - 1;

/// A slot: the entry's place in units of eight bytes, the generation of its block, and a part of
/// the hash. Place 0: it is empty, and the rest is a number of its own each time.
pub const PLACE_BITS: u64 = u32::MAX as u64;
pub const UNIT: usize = 8;
pub const TAG_SHIFT: u32 = 52;

/// The first word of a bucket: the entry's place, what is to be done, in which slot, and a number
/// that counts changes.
pub const IDLE: u64 = 0;
pub const PUT: u64 = 1;
pub const REMOVE: u64 = 2;
pub const STEP_SHIFT: u32 = 32;
pub const STEP_BITS: u64 = 3;
pub const SLOT_SHIFT: u32 = 34;
pub const SLOT_BITS: u64 = 7;
pub const CHANGE_SHIFT: u32 = 37;

/// The head of an entry; its key and its value follow.
pub const ENTRY: usize = 32;
/// A sum over all that follows [`ENTRY_TOUCHED`].
pub const ENTRY_SUM: usize = 0;
/// Bit 0 is set once it was read: what makes room lets it live once more. The others are the second
/// of `CLOCK_MONOTONIC` in which it was written.
pub const ENTRY_TOUCHED: usize = 4;
pub const TOUCHED: u32 = 1;
pub const WRITTEN_SHIFT: u32 = 1;
pub const ENTRY_KEY_LENGTH: usize = 8;
pub const ENTRY_VALUE_LENGTH: usize = 12;
/// Milliseconds of `CLOCK_MONOTONIC`; 0: it has no end.
pub const ENTRY_ENDS: usize = 16;
/// What the value is, one of the kinds below, and from bit 8 on for how many milliseconds before
/// its end it is stale.
pub const ENTRY_KIND: usize = 24;
/// The upper half of the hash.
pub const ENTRY_HASH: usize = 28;

/// Kinds of values: what was written over RPC, and PHP's strings.
pub const BYTES: u32 = 0;
pub const INTEGER: u32 = 1;
pub const FLOAT: u32 = 2;
pub const NULL: u32 = 3;
pub const FALSE: u32 = 4;
pub const TRUE: u32 = 5;
pub const SERIALIZED: u32 = 6;
pub const IGBINARY: u32 = 7;

pub const LONGEST_KEY: usize = 64 << 10;

/// Factors of the hash: odd numbers with as many bits set as not.
pub const FACTOR_A: u64 = 0x9e37_79b9_7f4a_7c15;
pub const FACTOR_B: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// `cache_layout.h` of the extension.
pub fn c_header() -> String {
    use std::fmt::Write;
    let mut text = String::from("/* Made by crates/cache from its layout; a test compares. */\n\n");
    let mut row = |name: &str, number: u64| {
        _ = writeln!(text, "#define CACHE_{name} {number:#x}ull"); // a string takes everything
    };
    macro_rules! rows {
        ($($name:ident)*) => {$( row(stringify!($name), u64::try_from($name).expect("it fits")); )*};
    }
    rows!(MAGIC VERSION HEAD AT_MAGIC AT_VERSION AT_SIZE AT_BUCKETS AT_BLOCKS AT_BLOCK_SIZE AT_SEED
        AT_FRESH AT_HAND AT_COUNTS COUNT_LINES COUNT_LINE HITS MISSES WRITES EVICTIONS
        AT_SAMPLES SAMPLES SAMPLE_SHIFT
        BUCKET SLOTS ROW ROW_DEAD SMALLEST_BLOCK LARGEST_BLOCK
        FREE OPEN FULL CLEANING REFUSED KIND_BITS PID_SHIFT PID_BITS GENERATION_SHIFT GENERATION_BITS
        PLACE_BITS UNIT TAG_SHIFT IDLE PUT REMOVE STEP_SHIFT STEP_BITS SLOT_SHIFT SLOT_BITS CHANGE_SHIFT
        ENTRY ENTRY_SUM ENTRY_TOUCHED TOUCHED WRITTEN_SHIFT ENTRY_KEY_LENGTH ENTRY_VALUE_LENGTH ENTRY_ENDS ENTRY_KIND ENTRY_HASH
        BYTES INTEGER FLOAT NULL FALSE TRUE SERIALIZED IGBINARY LONGEST_KEY FACTOR_A FACTOR_B);
    text
}
