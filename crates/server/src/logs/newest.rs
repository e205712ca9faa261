//! The newest records, in memory: what `pronghorn logs` shows.
//!
//! They are kept as JSON, whatever they look like in their outputs. Who makes a record copies its
//! text and goes on; a reader that is late finds that the oldest are gone. Knows no reader.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use pronghorn_base::lock;

use crate::settings::Level;

/// How many records are kept: as many of requests as [`ROOM`] has place for, at half a kilobyte
/// each.
const RECORDS: usize = 2000;

/// Bytes of them together. A worker's memory is twenty times as much, and the report of a crash
/// pushes out a quarter at most.
const ROOM: usize = 1 << 20;

/// Bytes that are read at a time: makers of records wait as long as they are copied, some
/// microseconds.
const READ: usize = 64 << 10;

/// The newest records of a process. A record that is made pushes out the oldest.
#[derive(Debug)]
pub struct Newest(Mutex<State>);

#[derive(Debug)]
struct State {
    /// All texts, one behind the other.
    text: VecDeque<u8>,
    records: VecDeque<Kept>,
    /// Records that were made, and their bytes.
    made: u64,
    written: u64,
}

#[derive(Debug)]
struct Kept {
    level: Level,
    /// Where it begins in all that was written.
    start: u64,
}

/// Some records, the oldest first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Each with its level, as JSON.
    pub(crate) records: Vec<(Level, String)>,
    /// How many before them are gone.
    pub(crate) lost: u64,
    /// Where to read on.
    pub(crate) next: u64,
}

impl Default for Newest {
    fn default() -> Self {
        Self(Mutex::new(State {
            text: VecDeque::with_capacity(ROOM),
            records: VecDeque::with_capacity(RECORDS),
            made: 0,
            written: 0,
        }))
    }
}

impl Newest {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Keeps a record, without its line ending. One that has no room at all pushes out all others.
    pub(super) fn push(&self, json: &str, level: Level) {
        let mut state = self.lock();
        while !state.records.is_empty()
            && (state.records.len() >= RECORDS || state.text.len() + json.len() > ROOM)
        {
            state.drop_oldest();
        }
        state.made += 1;
        if json.len() <= ROOM {
            let start = state.written;
            state.written += json.len() as u64;
            state.text.extend(json.as_bytes());
            state.records.push_back(Kept { level, start });
        }
    }

    /// The number of the record that is made next. Numbers begin with 0.
    pub(crate) fn next(&self) -> u64 {
        self.lock().made
    }

    /// The records from this number on, at most [`READ`] bytes of them, but one at least if there
    /// is one.
    pub(crate) fn read(&self, from: u64) -> Piece {
        let state = self.lock();
        let first = state.made - state.records.len() as u64;
        let from = from.min(state.made);
        let start = from.max(first);
        let mut piece = Piece {
            lost: start - from,
            next: start,
            ..Piece::default()
        };
        let mut bytes = 0;
        let begin = usize::try_from(start - first).unwrap_or(usize::MAX);
        for (at, kept) in state.records.iter().enumerate().skip(begin) {
            let range = state.range(at);
            bytes += range.len();
            if bytes > READ && !piece.records.is_empty() {
                break;
            }
            piece.records.push((kept.level, state.copy(range)));
            piece.next += 1;
        }
        piece
    }
}

impl State {
    fn drop_oldest(&mut self) {
        let range = self.range(0);
        self.records.pop_front();
        self.text.drain(range);
    }

    /// Where the text of a record is.
    fn range(&self, at: usize) -> Range<usize> {
        let gone = self.written - self.text.len() as u64;
        let start = |at: usize| {
            let start = self.records.get(at).map_or(self.written, |kept| kept.start);
            usize::try_from(start - gone).unwrap_or(usize::MAX)
        };
        start(at)..start(at + 1)
    }

    fn copy(&self, range: Range<usize>) -> String {
        let (first, second) = self.text.as_slices();
        let part = |slice: &[u8], before: usize| {
            let at = |end: usize| end.saturating_sub(before).min(slice.len());
            at(range.start)..at(range.end)
        };
        let mut text = Vec::with_capacity(range.len());
        text.extend_from_slice(first.get(part(first, 0)).unwrap_or_default());
        text.extend_from_slice(second.get(part(second, first.len())).unwrap_or_default());
        String::from_utf8_lossy(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All that is there from this number on, with what was lost on the way.
    fn all(newest: &Newest, mut from: u64) -> (Vec<String>, u64) {
        let (mut records, mut lost) = (Vec::new(), 0);
        loop {
            let piece = newest.read(from);
            lost += piece.lost;
            from = piece.next;
            if piece.records.is_empty() {
                return (records, lost);
            }
            records.extend(piece.records.into_iter().map(|(_, text)| text));
        }
    }

    #[test]
    fn the_oldest_go_by_number() {
        let newest = Newest::default();
        for number in 0..RECORDS + 3 {
            newest.push(&number.to_string(), Level::Info);
        }
        let (records, lost) = all(&newest, 0);
        assert_eq!((records.len(), lost), (RECORDS, 3));
        assert_eq!(records[0], "3");
        assert_eq!(records[RECORDS - 1], (RECORDS + 2).to_string());
        // A reader that has seen them waits for the next one.
        let next = newest.next();
        assert_eq!(newest.read(next).records, []);
        newest.push("new", Level::Warn);
        let piece = newest.read(next);
        assert_eq!(piece.records, [(Level::Warn, "new".to_owned())]);
        assert_eq!((piece.lost, piece.next), (0, next + 1));
    }

    #[test]
    fn the_oldest_go_by_bytes() {
        let newest = Newest::default();
        let (quarter, whole) = ("q".repeat(ROOM / 4), "w".repeat(ROOM));
        newest.push("first", Level::Info);
        for _ in 0..4 {
            newest.push(&quarter, Level::Info);
        }
        assert_eq!(all(&newest, 0), (vec![quarter; 4], 1));
        newest.push(&whole, Level::Info);
        assert_eq!(all(&newest, 0), (vec![whole], 5));
        // There is no place for it anywhere.
        newest.push(&"x".repeat(ROOM + 1), Level::Info);
        assert_eq!(all(&newest, 0), (Vec::new(), 7));
        newest.push("last", Level::Info);
        assert_eq!(all(&newest, 6), (vec!["last".to_owned()], 1));
    }

    #[test]
    fn a_read_is_bounded_and_goes_on() {
        let newest = Newest::default();
        let long = "l".repeat(READ - 10);
        for record in ["short", &long, &long] {
            newest.push(record, Level::Info);
        }
        let lengths = |piece: &Piece| -> Vec<usize> {
            piece.records.iter().map(|(_, text)| text.len()).collect()
        };
        let piece = newest.read(0);
        assert_eq!(lengths(&piece), [5, READ - 10]);
        assert_eq!(lengths(&newest.read(piece.next)), [READ - 10]);
    }

    proptest! {
        /// Against a list that forgets nothing.
        #[test]
        fn what_is_kept_is_what_was_made(
            lengths in prop::collection::vec(prop_oneof![0usize..50, 100_000usize..700_000], 1..60)
        ) {
            let newest = Newest::default();
            let made: Vec<String> = lengths.iter().enumerate()
                .map(|(at, length)| format!("{at}é{}", "x".repeat(*length)))
                .collect();
            for record in &made {
                newest.push(record, Level::Info);
            }
            let (records, lost) = all(&newest, 0);
            let lost = usize::try_from(lost).unwrap();
            prop_assert_eq!(lost + records.len(), made.len());
            prop_assert_eq!(&records[..], &made[lost..]);
            let next = made.get(lost.wrapping_sub(1));
            let bytes: usize = records.iter().map(String::len).sum();
            prop_assert!(bytes <= ROOM);
            prop_assert!(next.is_none_or(|next| bytes + next.len() > ROOM), "no more than needed");
        }
    }
}
