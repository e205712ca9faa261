//! Where new entries go: a block of one's own, and how others are emptied for it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::entry::{Entry, NewEntry};
use crate::layout::{
    AT_FRESH, AT_HAND, CLEANING, ENTRY, ENTRY_TOUCHED, EVICTIONS, FREE, FULL, GENERATION_BITS,
    GENERATION_SHIFT, KIND_BITS, OPEN, PID_SHIFT, REFUSED, TOUCHED, UNIT, WRITTEN_SHIFT,
};
use crate::memory::milliseconds;
use crate::segment::{Refused, Segment, generation};

/// With less than one in so many blocks free, a block is emptied for each that is taken.
const RESERVE: usize = 32;
/// A block of which nobody needs one in so many bytes is emptied without losing anything.
const WORTHWHILE: usize = 4;

/// This process's block.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    block: usize,
    /// Where the next entry goes, from the block's begin on.
    filled: usize,
}

fn state(kind: u64, process: u64, generation: u64) -> u64 {
    kind | process << PID_SHIFT | (generation & GENERATION_BITS) << GENERATION_SHIFT
}

fn kind(state: u64) -> u64 {
    state & KIND_BITS
}

/// Whether an entry of so many bytes fits into a block.
pub(crate) fn check_length(on: &Segment, length: usize) -> Result<(), Refused> {
    if length.next_multiple_of(UNIT) > on.shape.block_size {
        let most = on.shape.block_size - ENTRY;
        return Err(Refused::TooLong { most });
    }
    Ok(())
}

impl Writer {
    /// Writes an entry where nobody reads it yet. Its place, as buckets have it.
    pub(crate) fn put(&mut self, on: &Segment, entry: &NewEntry<'_>) -> Result<u64, Refused> {
        let at = self.room(on, entry.len())?;
        on.write(at, entry, None);
        Ok((at / UNIT) as u64)
    }

    /// The entry at this place was not needed.
    pub(crate) fn take_back(&mut self, on: &Segment, place: u64, length: usize) {
        let at = usize::try_from(place)
            .unwrap_or(usize::MAX)
            .saturating_mul(UNIT);
        if let Some(open) = &mut self.open
            && on.shape.block(open.block) + open.filled == at + length.next_multiple_of(UNIT)
        {
            open.filled -= length.next_multiple_of(UNIT);
        }
    }

    fn room(&mut self, on: &Segment, length: usize) -> Result<usize, Refused> {
        check_length(on, length)?;
        let length = length.next_multiple_of(UNIT);
        if let Some(at) = self.fit(on, length) {
            return Ok(at);
        }
        self.next_block(on)?;
        self.fit(on, length).ok_or(Refused::Full)
    }

    fn fit(&mut self, on: &Segment, length: usize) -> Option<usize> {
        let open = self.open.as_mut()?;
        if open.filled + length > on.shape.block_size {
            return None;
        }
        let at = on.shape.block(open.block) + open.filled;
        open.filled += length;
        Some(at)
    }

    /// Leaves the block to others.
    pub(crate) fn close(&mut self, on: &Segment) {
        if let Some(open) = self.open.take() {
            end(on, open);
        }
    }

    /// Takes a block that has room, and makes room for others where there is little.
    fn next_block(&mut self, on: &Segment) -> Result<(), Refused> {
        self.close(on);
        let (block, left) = match take_free(on) {
            Some(free) => free,
            // Others were faster, or were killed with theirs: what the next one holds is lost.
            None => (take_over(on).ok_or(Refused::Full)?, 0),
        };
        self.open = Some(Open { block, filled: 0 });
        if left <= on.shape.blocks / RESERVE + 1
            && let Some((victim, keeps_all)) = choose(on)
        {
            self.empty(on, victim, keeps_all);
        }
        Ok(())
    }

    /// Moves what is needed out of a block that this process cleans, and frees it.
    fn empty(&mut self, on: &Segment, block: usize, keeps_all: bool) {
        let now = milliseconds();
        let of_block = generation(on.state(block).load(Acquire));
        let begin = on.shape.block(block);
        let mut at = begin;
        let mut lost = 0;
        while let Some(length) = on.length_at(at) {
            let entry = Entry::new(on.memory.copy(at, length));
            let hash = on.hash(entry.key()) >> 52;
            let word = (at / UNIT) as u64 | of_block << GENERATION_SHIFT | hash << 52;
            let used = on.memory.half(at + ENTRY_TOUCHED).load(Relaxed);
            if on.is_needed(entry.key(), word) && !entry.is_over(now) {
                let moved = (keeps_all || used & TOUCHED != 0)
                    && self.moves(on, &entry, word, used >> WRITTEN_SHIFT);
                lost += u32::from(!moved);
            }
            at += length.next_multiple_of(UNIT);
            if at >= begin + on.shape.block_size {
                break;
            }
        }
        for _ in 0..lost {
            on.count(EVICTIONS);
        }
        on.dead(block).store(0, Relaxed);
        let mine = state(CLEANING, on.process, of_block);
        let free = state(FREE, 0, of_block + 1);
        // Another one has taken it over: it thought that this process was gone.
        _ = on
            .state(block)
            .compare_exchange(mine, free, AcqRel, Acquire);
    }

    /// At most half of a block is moved, so that something is won.
    fn moves(&mut self, on: &Segment, entry: &Entry, word: u64, written: u32) -> bool {
        let new = NewEntry {
            key: entry.key(),
            value: entry.value(),
            kind: entry.whole_kind(),
            ends: entry.ends(),
        };
        let length = new.len().next_multiple_of(UNIT);
        let most = on.shape.block_size / 2;
        if self.open.is_none_or(|open| open.filled + length > most) {
            return false;
        }
        let Some(at) = self.fit(on, length) else {
            return false;
        };
        on.write(at, &new, Some(written));
        on.replace(entry.key(), word, (at / UNIT) as u64)
    }
}

fn end(on: &Segment, open: Open) {
    let now = on.state(open.block).load(Acquire);
    let begin = on.shape.block(open.block);
    // What lies behind the last entry is no entry.
    if open.filled + ENTRY <= on.shape.block_size {
        on.memory.write(begin + open.filled, &[0; ENTRY]);
    }
    let rest = on.shape.block_size - open.filled;
    on.dead(open.block)
        .fetch_add(u32::try_from(rest).unwrap_or(0), Relaxed);
    let full = state(FULL, 0, generation(now));
    // Another one has taken it over.
    _ = on
        .state(open.block)
        .compare_exchange(now, full, AcqRel, Acquire);
}

/// A block that is emptied at once, whatever it holds.
fn take_over(on: &Segment) -> Option<usize> {
    let (block, _) = choose(on)?;
    let now = on.state(block).load(Acquire);
    let emptied = state(OPEN, on.process, generation(now) + 1);
    on.dead(block).store(0, Relaxed);
    on.state(block).store(emptied, Release);
    Some(block)
}

/// A block that holds nothing, and how many more there are.
fn take_free(on: &Segment) -> Option<(usize, usize)> {
    let fresh = on.memory.word(AT_FRESH);
    while usize::try_from(fresh.load(Relaxed)).is_ok_and(|taken| taken < on.shape.blocks) {
        let block = usize::try_from(fresh.fetch_add(1, Relaxed)).unwrap_or(usize::MAX);
        if block < on.shape.blocks
            && let Some(taken) = take(on, block)
        {
            return Some((taken, on.shape.blocks.saturating_sub(block + 1)));
        }
    }
    let is_free = |block: &usize| kind(on.state(*block).load(Relaxed)) == FREE;
    let free: Vec<usize> = (0..on.shape.blocks).filter(is_free).collect();
    let mut left = free.len();
    free.into_iter().find_map(|block| {
        left -= 1;
        Some((take(on, block)?, left))
    })
}

fn take(on: &Segment, block: usize) -> Option<usize> {
    let now = on.state(block).load(Acquire);
    if kind(now) != FREE {
        return None;
    }
    let mine = state(OPEN, on.process, generation(now));
    let taken = on.state(block).compare_exchange(now, mine, AcqRel, Acquire);
    taken.ok()?;
    let size = on.shape.block_size;
    if generation(now) == 0 && on.memory.populate(on.shape.block(block), size).is_err() {
        on.state(block).store(state(REFUSED, 0, 0), Relaxed);
        return None;
    }
    Some(block)
}

/// How many bytes of a block nobody needs, as far as is known: of one whose process is gone the end
/// was never written.
fn gain(on: &Segment, block: usize) -> usize {
    let unwritten = match kind(on.state(block).load(Relaxed)) {
        OPEN | CLEANING => on.shape.block_size / WORTHWHILE,
        _ => 0,
    };
    on.dead(block).load(Relaxed) as usize + unwritten
}

/// Begins to clean the block that costs least, and whether nothing need be lost for it: one of
/// which nobody needs much, or else the next one in turn.
fn choose(on: &Segment) -> Option<(usize, bool)> {
    for _ in 0..4 {
        let hand = on.memory.word(AT_HAND).load(Relaxed) % on.shape.blocks as u64;
        let hand = usize::try_from(hand).unwrap_or(0);
        let blocks = (0..on.shape.blocks).map(|step| (hand + step) % on.shape.blocks);
        let may_be_cleaned = |block: &usize| {
            let state = on.state(*block).load(Acquire);
            match kind(state) {
                FULL => true,
                OPEN | CLEANING => !on.is_held(state),
                _ => false,
            }
        };
        let mut there = blocks.filter(may_be_cleaned).peekable();
        let next = *there.peek()?;
        let best = there.max_by_key(|block| gain(on, *block))?;
        let keeps_all = gain(on, best) >= on.shape.block_size / WORTHWHILE;
        let block = if keeps_all { best } else { next };
        let now = on.state(block).load(Acquire);
        let mine = state(CLEANING, on.process, generation(now));
        let free = may_be_cleaned(&block);
        if free
            && on
                .state(block)
                .compare_exchange(now, mine, AcqRel, Acquire)
                .is_ok()
        {
            if !keeps_all {
                on.memory.word(AT_HAND).store((block + 1) as u64, Relaxed);
            }
            return Some((block, keeps_all));
        }
    }
    None
}
