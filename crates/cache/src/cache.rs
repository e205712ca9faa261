//! One storage, as a process has it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::entry::{Entry, NewEntry};
use crate::layout::INTEGER;
use crate::memory::milliseconds;
use crate::segment::{Figures, Refused, Segment, Step, Survey};
use crate::writer::{self, Writer};

/// A storage in shared memory. Threads of one process share its place to write.
#[derive(Debug)]
pub struct Cache {
    segment: Segment,
    writer: Mutex<Writer>,
}

/// What came of a change that depends on what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// Something else is there, or nothing.
    Differs,
}

impl Cache {
    /// A new one of `size` bytes. The index takes its memory at once, entries as they come. `seed`
    /// is random.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory, or forbids such files.
    pub fn new(size: usize, seed: u64) -> io::Result<Self> {
        Segment::new(size, seed).map(Self::with)
    }

    /// That of another process. None for one of another release.
    ///
    /// # Errors
    ///
    /// When it can't be mapped.
    pub fn map(file: OwnedFd) -> io::Result<Option<Self>> {
        Ok(Segment::map(file)?.map(Self::with))
    }

    fn with(segment: Segment) -> Self {
        Self {
            segment,
            writer: Mutex::default(),
        }
    }

    /// What other processes map.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.segment.file()
    }

    /// The moment from which on an entry is over that is kept for so long.
    pub fn end(after: Duration) -> u64 {
        let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        milliseconds().saturating_add(after)
    }

    /// How long it is until an end.
    pub fn until(end: u64) -> Duration {
        Duration::from_millis(end.saturating_sub(milliseconds()))
    }

    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        self.segment.read(key)
    }

    /// Whether this entry is one that [`set`](Self::set) takes, if there is room.
    ///
    /// # Errors
    ///
    /// When it is too long.
    pub fn check_length(&self, entry: &NewEntry<'_>) -> Result<(), Refused> {
        writer::check_length(&self.segment, entry.len())
    }

    /// # Errors
    ///
    /// When it is too long, or no block is to be had.
    pub fn set(&self, entry: &NewEntry<'_>) -> Result<(), Refused> {
        self.put_if(entry, |_| true).map(|_| ())
    }

    /// Keeps it where nothing is there.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub fn add(&self, entry: &NewEntry<'_>) -> Result<Outcome, Refused> {
        self.put_if(entry, |there| there.is_none())
    }

    /// Keeps it in the place of an entry that has this kind and this value.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub fn compare_and_swap(
        &self,
        kind: u32,
        value: &[u8],
        by: &NewEntry<'_>,
    ) -> Result<Outcome, Refused> {
        self.put_if(by, |there| {
            there.is_some_and(|it| it.kind() == kind && it.value() == value)
        })
    }

    /// Gives an entry another end, 0 for none.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub fn expire(&self, key: &[u8], ends: u64) -> Result<Outcome, Refused> {
        let Some((_, there)) = self.segment.find(key) else {
            return Ok(Outcome::Differs);
        };
        let by = NewEntry {
            key,
            value: there.value(),
            kind: there.kind(),
            ends,
        };
        self.compare_and_swap(there.kind(), there.value(), &by)
    }

    /// Adds to a number, which begins with 0 and then ends at `ends`. None where something else is
    /// there, or the sum is too large.
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub fn increment(&self, key: &[u8], by: i64, ends: u64) -> Result<Option<i64>, Refused> {
        let segment = &self.segment;
        let mut writer = self.writer();
        let mut placed: Option<u64> = None;
        segment.change(key, |there| {
            let before = match there {
                None => Some(0),
                Some(it) if it.kind() == INTEGER => {
                    it.value().try_into().ok().map(i64::from_le_bytes)
                }
                Some(_) => None,
            };
            let Some(sum) = before.and_then(|before| before.checked_add(by)) else {
                return Ok((Step::Nothing, None));
            };
            let new = NewEntry {
                key,
                value: &sum.to_le_bytes(),
                kind: INTEGER,
                ends: there.map_or(ends, Entry::ends),
            };
            if let Some(place) = placed {
                writer.take_back(segment, place, new.len());
            }
            let place = writer.put(segment, &new)?;
            placed = Some(place);
            Ok((Step::Put(place), Some(sum)))
        })
    }

    /// Whether it was there.
    pub fn delete(&self, key: &[u8]) -> bool {
        let gone = self
            .segment
            .change(key, |there| Ok((Step::Remove, there.is_some())));
        gone.unwrap_or(false)
    }

    /// Removes all entries whose key begins so; how many.
    pub fn clear(&self, prefix: &[u8]) -> usize {
        self.segment.remove_all(prefix)
    }

    /// Shows the entries that are there, a copy of each, until `visit` has enough.
    pub fn visit(&self, visit: impl FnMut(Entry) -> bool) {
        self.segment.visit(visit);
    }

    /// How many entries there are, and since when. It looks at the whole index, which is up to a
    /// quarter of the storage, and at each entry.
    pub fn survey(&self) -> Survey {
        self.segment.survey()
    }

    /// The keys of about one read in 64, the last 256 of them at most: what is read most is there
    /// most often.
    pub fn read_lately(&self) -> Vec<Vec<u8>> {
        self.segment.read_lately()
    }

    pub fn figures(&self) -> Figures {
        self.segment.figures()
    }

    /// Writes a word anywhere, as a broken process may.
    #[cfg(test)]
    pub(crate) fn scribble(&self, at: u64, word: u64) {
        let words = self.segment.memory.size() as u64 / 8;
        let at = usize::try_from(at % words).expect("inside") * 8;
        self.segment.memory.write(at, &word.to_le_bytes());
    }

    /// Makes an entry older.
    #[cfg(test)]
    pub(crate) fn backdate(&self, key: &[u8], seconds: u32) {
        self.segment.backdate(key, seconds);
    }

    /// Writes the entry first, and puts it into its place if `may` says so of what is there.
    fn put_if(
        &self,
        entry: &NewEntry<'_>,
        may: impl Fn(Option<&Entry>) -> bool,
    ) -> Result<Outcome, Refused> {
        let mut writer = self.writer();
        let place = writer.put(&self.segment, entry)?;
        let outcome = self.segment.change(entry.key, |there| {
            Ok(if may(there) {
                (Step::Put(place), Outcome::Done)
            } else {
                (Step::Nothing, Outcome::Differs)
            })
        });
        if outcome != Ok(Outcome::Done) {
            writer.take_back(&self.segment, place, entry.len());
        }
        outcome
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        // A panic between two steps leaves what the next one finishes.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.close(&self.segment);
    }
}
