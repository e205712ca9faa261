//! A segment: the index, and what readers and writers do with it.
//!
//! Every change of a bucket is announced by one compare-and-swap of its first word, and carried out
//! by whoever sees it first. A process that is killed or stopped between two steps leaves something
//! that the next one finishes; nobody waits for anybody. Entries are written before they are
//! announced, never changed, and belong to a block that one living process writes.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

use crate::entry::{Entry, NewEntry};
use crate::hash::hash;
use crate::layout::{
    AT_BLOCK_SIZE, AT_BLOCKS, AT_BUCKETS, AT_COUNTS, AT_FRESH, AT_MAGIC, AT_SAMPLES, AT_SEED,
    AT_SIZE, AT_VERSION, BLOCKS, BUCKET, BYTES_PER_BUCKET, CHANGE_SHIFT, COUNT_LINE, COUNT_LINES,
    ENTRY, ENTRY_HASH, ENTRY_KEY_LENGTH, ENTRY_TOUCHED, ENTRY_VALUE_LENGTH, EVICTIONS, FACTOR_A,
    GENERATION_BITS, GENERATION_SHIFT, HEAD, HITS, IDLE, LARGEST_BLOCK, LONGEST_KEY, MAGIC, MISSES,
    PLACE_BITS, PUT, REMOVE, ROW, ROW_DEAD, SAMPLE_SHIFT, SAMPLES, SLOT_BITS, SLOT_SHIFT, SLOTS,
    SMALLEST_BLOCK, STEP_BITS, STEP_SHIFT, TAG_SHIFT, TOUCHED, UNIT, VERSION, WRITES,
    WRITTEN_SHIFT,
};
use crate::memory::{Memory, is_alive, milliseconds, seconds};

/// How often a step that others got ahead of is tried. Each time somebody got on, so that this many
/// in a row mean a segment that was scribbled on.
const TRIES: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) memory: Memory,
    pub(crate) shape: Shape,
    /// This process, in states of blocks.
    pub(crate) process: u64,
}

/// Read once and checked: what the segment says of itself later does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    buckets: usize,
    pub(crate) blocks: usize,
    pub(crate) block_size: usize,
    seed: u64,
}

/// Why a value was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It would not fit into a block; so many bytes would.
    TooLong { most: usize },
    /// There is no block to be had.
    Full,
}

/// What to do with a key, once it is known what is there.
pub(crate) enum Step {
    Nothing,
    /// An entry that lies there already, at this place.
    Put(u64),
    Remove,
}

/// A slot that holds the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) word: u64,
    slot: u64,
}

impl Shape {
    /// Of a segment of about this size.
    fn of(size: usize, seed: u64) -> Self {
        let ideal = (size / BLOCKS).next_power_of_two();
        let block_size = ideal.clamp(SMALLEST_BLOCK, LARGEST_BLOCK);
        let buckets = (size / BYTES_PER_BUCKET + 1).next_power_of_two() / 2;
        let mut shape = Self {
            buckets,
            blocks: 0,
            block_size,
            seed,
        };
        let rest = size.saturating_sub(HEAD + buckets * BUCKET);
        shape.blocks = (rest / (block_size + ROW)).saturating_sub(1);
        shape
    }

    /// None for one that makes no sense in so many bytes.
    fn read(memory: &Memory) -> Option<Self> {
        if memory.size() < HEAD
            || memory.half(AT_MAGIC).load(Relaxed) != MAGIC
            || memory.half(AT_VERSION).load(Relaxed) != VERSION
        {
            return None;
        }
        let number = |at| usize::try_from(memory.word(at).load(Relaxed)).ok();
        let shape = Self {
            buckets: number(AT_BUCKETS)?,
            blocks: number(AT_BLOCKS)?,
            block_size: number(AT_BLOCK_SIZE)?,
            seed: memory.word(AT_SEED).load(Relaxed),
        };
        let makes_sense = shape.buckets.is_power_of_two()
            && shape.block_size.is_power_of_two()
            && (SMALLEST_BLOCK..=LARGEST_BLOCK).contains(&shape.block_size)
            && shape.blocks > 0
            && shape.buckets <= memory.size() / BUCKET
            && shape.blocks <= memory.size() / shape.block_size
            && shape.size() <= memory.size();
        makes_sense.then_some(shape)
    }

    fn size(&self) -> usize {
        self.block(0) + self.blocks * self.block_size
    }

    fn table(&self) -> usize {
        HEAD + self.buckets * BUCKET
    }

    pub(crate) fn row(&self, block: usize) -> usize {
        self.table() + block * ROW
    }

    /// Where a block begins. All lie on a page of their own.
    pub(crate) fn block(&self, block: usize) -> usize {
        (self.table() + self.blocks * ROW).next_multiple_of(4096) + block * self.block_size
    }

    /// The block that a place lies in.
    pub(crate) fn block_of(&self, at: usize) -> Option<usize> {
        let block = at.checked_sub(self.block(0))? / self.block_size;
        (block < self.blocks).then_some(block)
    }
}

pub(crate) fn generation(word: u64) -> u64 {
    word >> GENERATION_SHIFT & GENERATION_BITS
}

pub(crate) fn place(word: u64) -> usize {
    usize::try_from(word & PLACE_BITS).expect("32 bits") * UNIT
}

impl Segment {
    pub(crate) fn new(size: usize, seed: u64) -> io::Result<Self> {
        let shape = Shape::of(size, seed);
        let memory = Memory::new(shape.size())?;
        memory.populate(0, shape.block(0))?;
        let number = |at, value: usize| memory.word(at).store(value as u64, Relaxed);
        number(AT_SIZE, shape.size());
        number(AT_BUCKETS, shape.buckets);
        number(AT_BLOCKS, shape.blocks);
        number(AT_BLOCK_SIZE, shape.block_size);
        memory.word(AT_SEED).store(seed, Relaxed);
        memory.half(AT_MAGIC).store(MAGIC, Relaxed);
        memory.half(AT_VERSION).store(VERSION, Relaxed);
        Ok(Self::with(memory, shape))
    }

    /// What another process made. None for another version, or for something else.
    pub(crate) fn map(file: OwnedFd) -> io::Result<Option<Self>> {
        let memory = Memory::map(file)?;
        let shape = Shape::read(&memory);
        Ok(shape.map(|shape| Self::with(memory, shape)))
    }

    fn with(memory: Memory, shape: Shape) -> Self {
        let process = u64::from(std::process::id());
        Self {
            memory,
            shape,
            process,
        }
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        hash(self.shape.seed, bytes)
    }

    /// How many there were before.
    pub(crate) fn count(&self, what: usize) -> u64 {
        let line = usize::try_from(self.process).unwrap_or(0) % COUNT_LINES;
        let counter = self.memory.word(AT_COUNTS + line * COUNT_LINE + what);
        // Two processes on one line may lose some; nobody is slowed.
        let before = counter.load(Relaxed);
        counter.store(before.wrapping_add(1), Relaxed);
        before
    }

    /// Counts a read that has found the entry of a slot, and keeps the slot of one in 64.
    fn count_hit(&self, word: u64) {
        let sample = self.count(HITS).wrapping_mul(FACTOR_A) >> SAMPLE_SHIFT;
        let sample = usize::try_from(sample).expect("14 bits");
        if sample < SAMPLES {
            self.memory
                .word(AT_SAMPLES + 8 * sample)
                .store(word, Relaxed);
        }
    }

    /// The keys of the reads that left a sample, as far as their entries still lie there.
    pub(crate) fn read_lately(&self) -> Vec<Vec<u8>> {
        let samples =
            (0..SAMPLES).map(|sample| self.memory.word(AT_SAMPLES + 8 * sample).load(Acquire));
        samples.filter_map(|word| self.key_of(word)).collect()
    }

    /// The key alone of a slot's entry, whose value may be long.
    fn key_of(&self, word: u64) -> Option<Vec<u8>> {
        if !self.is_current(word) {
            return None;
        }
        let at = place(word);
        let room = self.room_at(at)?;
        let length = self.memory.half(at + ENTRY_KEY_LENGTH).load(Relaxed) as usize;
        if !(1..=LONGEST_KEY).contains(&length) || ENTRY + length > room {
            return None;
        }
        let key = self.memory.copy(at + ENTRY, length);
        fence(Acquire);
        let is_its_own = self.hash(&key) >> TAG_SHIFT == word >> TAG_SHIFT;
        (self.is_current(word) && is_its_own).then_some(key)
    }

    fn counted(&self, what: usize) -> u64 {
        let lines = (0..COUNT_LINES).map(|line| AT_COUNTS + line * COUNT_LINE + what);
        let counts = lines.map(|at| self.memory.word(at).load(Relaxed));
        // Any process may write any number there.
        counts.fold(0, u64::wrapping_add)
    }

    pub(crate) fn figures(&self) -> Figures {
        let mut figures = Figures {
            hits: self.counted(HITS),
            misses: self.counted(MISSES),
            writes: self.counted(WRITES),
            evictions: self.counted(EVICTIONS),
            size: self.shape.size() as u64,
            ..Figures::default()
        };
        let fresh = self.memory.word(AT_FRESH).load(Relaxed);
        let used = usize::try_from(fresh)
            .unwrap_or(usize::MAX)
            .min(self.shape.blocks);
        figures.used = (self.shape.block(0) + used * self.shape.block_size) as u64;
        figures
    }

    /// A look at the whole index.
    pub(crate) fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        let now = seconds();
        let slots = (0..self.shape.buckets)
            .flat_map(|bucket| (1..=SLOTS as u64).map(move |slot| (bucket, slot)));
        for (bucket, slot) in slots {
            let word = self.slot(bucket, slot).load(Acquire);
            if self.is_current(word) {
                let used = self.memory.half(place(word) + ENTRY_TOUCHED).load(Relaxed);
                let age = Duration::from_secs(now.saturating_sub(used >> WRITTEN_SHIFT).into());
                survey.oldest = survey.oldest.max(Some(age));
                survey.entries += 1;
            }
        }
        survey
    }

    fn bucket_of(&self, hash: u64) -> usize {
        // The lower half chooses the bucket, the upper one is the tag.
        usize::try_from(hash & u64::from(u32::MAX)).expect("32 bits") & (self.shape.buckets - 1)
    }

    fn announcement(&self, bucket: usize) -> &std::sync::atomic::AtomicU64 {
        self.memory.word(HEAD + bucket * BUCKET)
    }

    fn slot(&self, bucket: usize, slot: u64) -> &std::sync::atomic::AtomicU64 {
        let slot = usize::try_from(slot).expect("at most seven");
        self.memory.word(HEAD + bucket * BUCKET + 8 * slot)
    }

    pub(crate) fn state(&self, block: usize) -> &std::sync::atomic::AtomicU64 {
        self.memory.word(self.shape.row(block))
    }

    pub(crate) fn dead(&self, block: usize) -> &std::sync::atomic::AtomicU32 {
        self.memory.half(self.shape.row(block) + ROW_DEAD)
    }

    /// Whether the block of an entry was not emptied since.
    fn is_current(&self, word: u64) -> bool {
        let block = self.shape.block_of(place(word));
        word & PLACE_BITS != 0
            && block.is_some_and(|it| generation(self.state(it).load(Acquire)) == generation(word))
    }

    /// The slot of an entry that lies at this place, as its own head has it.
    fn word_of(&self, at: usize) -> Option<u64> {
        let block = self.shape.block_of(at)?;
        self.room_at(at)?;
        let of_block = generation(self.state(block).load(Acquire));
        let hash = u64::from(self.memory.half(at + ENTRY_HASH).load(Relaxed));
        Some((at / UNIT) as u64 | of_block << GENERATION_SHIFT | hash >> 20 << TAG_SHIFT)
    }

    /// Bytes from here to the end of the block, where the head of an entry has room.
    fn room_at(&self, at: usize) -> Option<usize> {
        let block = self.shape.block_of(at)?;
        let room = self.shape.block(block) + self.shape.block_size - at;
        (at.is_multiple_of(UNIT) && room >= ENTRY).then_some(room)
    }

    /// Bytes of an entry by its own head, where they are inside of its block.
    pub(crate) fn length_at(&self, at: usize) -> Option<usize> {
        let room = self.room_at(at)?;
        let key = self.memory.half(at + ENTRY_KEY_LENGTH).load(Relaxed) as usize;
        let value = self.memory.half(at + ENTRY_VALUE_LENGTH).load(Relaxed) as usize;
        let length = (ENTRY + key).checked_add(value)?;
        let is_inside = (1..=LONGEST_KEY).contains(&key) && length <= room;
        is_inside.then_some(length)
    }

    /// The entry of a key, as somebody asks for it: it is marked as read, and counted.
    pub(crate) fn read(&self, key: &[u8]) -> Option<Entry> {
        let Some((word, entry)) = self.find(key) else {
            self.count(MISSES);
            return None;
        };
        let touched = self.memory.half(place(word) + ENTRY_TOUCHED);
        let before = touched.load(Relaxed);
        if before & TOUCHED == 0 {
            touched.store(before | TOUCHED, Relaxed);
        }
        self.count_hit(word);
        Some(entry)
    }

    #[cfg(test)]
    pub(crate) fn backdate(&self, key: &[u8], by: u32) {
        let (word, _) = self.find(key).expect("it is there");
        let used = self.memory.half(place(word) + ENTRY_TOUCHED);
        let written = (used.load(Relaxed) >> WRITTEN_SHIFT).saturating_sub(by);
        used.store(written << WRITTEN_SHIFT, Relaxed);
    }

    /// The entry of a key, whole and checked, with its slot. None: it is not there, or it is over.
    pub(crate) fn find(&self, key: &[u8]) -> Option<(u64, Entry)> {
        let hash = self.hash(key);
        let bucket = self.bucket_of(hash);
        for _ in 0..TRIES {
            let mut moved = false;
            for slot in 1..=SLOTS as u64 {
                let word = self.slot(bucket, slot).load(Acquire);
                if word >> TAG_SHIFT != hash >> TAG_SHIFT || word & PLACE_BITS == 0 {
                    continue;
                }
                match self.entry(word).filter(|entry| entry.key() == key) {
                    Some(entry) if entry.is_over(milliseconds()) => return None,
                    Some(entry) => return Some((word, entry)),
                    None => moved |= self.slot(bucket, slot).load(Acquire) != word,
                }
            }
            if !moved {
                return None;
            }
        }
        None
    }

    /// A private copy of the entry of a slot. None where it was emptied meanwhile or is broken.
    pub(crate) fn entry(&self, word: u64) -> Option<Entry> {
        if !self.is_current(word) {
            return None;
        }
        let at = place(word);
        let length = self.length_at(at)?;
        let entry = Entry::new(self.memory.copy(at, length));
        fence(Acquire);
        // Where it was emptied while it was copied, what was copied may be another's.
        let whole = self.is_current(word) && entry.is_whole(|bytes| self.hash(bytes));
        whole.then_some(entry)
    }

    /// Carries out what was announced for a bucket. The word that says there is nothing left.
    fn settle(&self, bucket: usize) -> u64 {
        let announcement = self.announcement(bucket);
        for _ in 0..TRIES {
            let word = announcement.load(Acquire);
            let (step, slot) = (
                word >> STEP_SHIFT & STEP_BITS,
                word >> SLOT_SHIFT & SLOT_BITS,
            );
            if step == IDLE {
                return word;
            }
            let change = word >> CHANGE_SHIFT;
            if slot != 0 {
                let target = self.slot(bucket, slot);
                let before = target.load(Acquire);
                // While this holds, `before` is what was there before the step, or what it makes of
                // it: whoever comes late finds another word and changes nothing.
                if announcement.load(SeqCst) != word {
                    continue;
                }
                let empty = change << STEP_SHIFT;
                let after = match step {
                    PUT => self.word_of(place(word)).unwrap_or(empty),
                    _ => empty,
                };
                // Somebody else has done the same.
                _ = target.compare_exchange(before, after, AcqRel, Acquire);
            }
            let idle = change.wrapping_add(1) << CHANGE_SHIFT;
            _ = announcement.compare_exchange(word, idle, AcqRel, Acquire);
        }
        announcement.load(Acquire) & !(STEP_BITS << STEP_SHIFT)
    }

    /// The slots of a bucket: that of the key, and one that nobody needs. Where there is none it is
    /// one whose entry has to go for another, and the last is true.
    fn look(&self, bucket: usize, hash: u64, key: &[u8]) -> (Option<(Found, Entry)>, Found, bool) {
        let now = milliseconds();
        let (mut found, mut free, mut least) = (None, None, None);
        for slot in 1..=SLOTS as u64 {
            let word = self.slot(bucket, slot).load(Acquire);
            let here = Found { word, slot };
            if !self.is_current(word) {
                free = free.or(Some(here));
                continue;
            }
            if word >> TAG_SHIFT == hash >> TAG_SHIFT
                && let Some(entry) = self.entry(word)
                && entry.key() == key
            {
                if entry.is_over(now) {
                    free = Some(here);
                } else {
                    found = Some((here, entry));
                }
            } else {
                let used = self.memory.half(place(word) + ENTRY_TOUCHED).load(Relaxed);
                let touched = used & TOUCHED;
                let is_less = least.is_none_or(|(of_least, _)| touched < of_least);
                least = if is_less {
                    Some((touched, here))
                } else {
                    least
                };
            }
        }
        let first = || Found {
            word: self.slot(bucket, 1).load(Acquire),
            slot: 1,
        };
        let place = free
            .or_else(|| least.map(|(_, here)| here))
            .unwrap_or_else(first);
        (found, place, free.is_none())
    }

    /// One change of a key, as if at one moment: `decide` sees what is there. It may be asked again
    /// when another process was faster.
    pub(crate) fn change<T>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&Entry>) -> Result<(Step, T), Refused>,
    ) -> Result<T, Refused> {
        let hash = self.hash(key);
        let bucket = self.bucket_of(hash);
        for _ in 0..TRIES {
            let idle = self.settle(bucket);
            let (found, free, is_full) = self.look(bucket, hash, key);
            let entry = found.as_ref().map(|(_, entry)| entry);
            let (step, outcome) = decide(entry)?;
            let target = found.as_ref().map_or(free, |(found, _)| *found);
            let step = match step {
                Step::Nothing => return Ok(outcome),
                Step::Remove if found.is_none() => return Ok(outcome),
                Step::Remove => REMOVE << STEP_SHIFT,
                Step::Put(new) => {
                    if found.is_some() {
                        // What is written again and again is in use as well.
                        let touched = self.memory.half(place(new) + ENTRY_TOUCHED);
                        touched.store(touched.load(Relaxed) | TOUCHED, Relaxed);
                    }
                    new | PUT << STEP_SHIFT
                }
            };
            if self.announce(bucket, idle, target, step) {
                if found.is_none() && is_full && self.is_current(target.word) {
                    self.count(EVICTIONS);
                }
                self.bury(target.word);
                self.count(WRITES);
                return Ok(outcome);
            }
        }
        Err(Refused::Full)
    }

    /// Puts an entry in the place of another one of the same key, if that is still in its slot.
    pub(crate) fn replace(&self, key: &[u8], word: u64, by: u64) -> bool {
        let bucket = self.bucket_of(self.hash(key));
        for _ in 0..TRIES {
            let idle = self.settle(bucket);
            let mut slots = 1..=SLOTS as u64;
            let holds = |slot: &u64| self.slot(bucket, *slot).load(Acquire) == word;
            let Some(slot) = slots.find(holds) else {
                return false;
            };
            if self.announce(bucket, idle, Found { word, slot }, by | PUT << STEP_SHIFT) {
                return true;
            }
        }
        false
    }

    /// Whether this entry is in its slot, once all that was announced is done.
    pub(crate) fn is_needed(&self, key: &[u8], word: u64) -> bool {
        let bucket = self.bucket_of(self.hash(key));
        self.settle(bucket);
        (1..=SLOTS as u64).any(|slot| self.slot(bucket, slot).load(Acquire) == word)
    }

    fn announce(&self, bucket: usize, idle: u64, target: Found, step: u64) -> bool {
        let change = idle >> CHANGE_SHIFT << CHANGE_SHIFT;
        let word = step | target.slot << SLOT_SHIFT | change;
        let announced = self
            .announcement(bucket)
            .compare_exchange(idle, word, SeqCst, Acquire)
            .is_ok();
        if announced {
            self.settle(bucket);
        }
        announced
    }

    /// Notes that nobody needs the entry of a slot any more.
    pub(crate) fn bury(&self, word: u64) {
        if self.is_current(word)
            && let Some(length) = self.length_at(place(word))
            && let Some(block) = self.shape.block_of(place(word))
        {
            let length = u32::try_from(length.next_multiple_of(UNIT)).unwrap_or(0);
            self.dead(block).fetch_add(length, Relaxed);
        }
    }

    /// Removes all entries whose key begins so. How many.
    pub(crate) fn remove_all(&self, prefix: &[u8]) -> usize {
        let mut removed = 0;
        for bucket in 0..self.shape.buckets {
            for slot in 1..=SLOTS as u64 {
                let word = self.slot(bucket, slot).load(Acquire);
                if word & PLACE_BITS == 0 {
                    continue;
                }
                let Some(entry) = self.entry(word).filter(|it| it.key().starts_with(prefix)) else {
                    continue;
                };
                let gone = self.change(entry.key(), |_| Ok((Step::Remove, ())));
                removed += usize::from(gone.is_ok());
            }
        }
        removed
    }

    /// Shows the entries that are there, a copy of each, until `visit` has enough.
    pub(crate) fn visit(&self, mut visit: impl FnMut(Entry) -> bool) {
        let now = milliseconds();
        for bucket in 0..self.shape.buckets {
            for slot in 1..=SLOTS as u64 {
                let entry = self.entry(self.slot(bucket, slot).load(Acquire));
                let entry = entry.filter(|entry| !entry.is_over(now));
                if entry.is_some_and(|entry| !visit(entry)) {
                    return;
                }
            }
        }
    }

    /// Whether another process still has a block of this state.
    pub(crate) fn is_held(&self, state: u64) -> bool {
        let process = state >> crate::layout::PID_SHIFT & crate::layout::PID_BITS;
        process != 0 && (process == self.process || is_alive(process))
    }

    /// `written`: since when it is there, where it was written before.
    pub(crate) fn write(&self, at: usize, entry: &NewEntry<'_>, written: Option<u32>) {
        let written = written.unwrap_or_else(seconds);
        self.memory
            .write(at, &entry.encode(written, |bytes| self.hash(bytes)));
    }
}

/// What a look at all entries finds, those that are over and not removed yet among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub entries: u64,
    /// For how long the oldest of them has been there, in whole seconds.
    pub oldest: Option<Duration>,
}

/// What is in a segment, and what was done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes that were taken of the machine.
    pub used: u64,
    /// Bytes that may be taken.
    pub size: u64,
    pub hits: u64,
    pub misses: u64,
    pub writes: u64,
    pub evictions: u64,
}
