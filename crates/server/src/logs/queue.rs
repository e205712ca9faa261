//! What stands between the threads that make records and the one that writes them to an output.
//!
//! A record is copied into one text that grows; the writer takes the whole text and leaves an empty
//! one. Nobody waits for the output: without room a record is dropped and counted. Knows neither
//! formats nor files.

use std::fs::File;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pronghorn_base::lock;
use tokio::time::Instant;

use crate::settings::Level;

/// Bytes that may wait for one output: thousands of records, a third of a second of requests at
/// full speed.
const ROOM: usize = 4 << 20;

/// On top of it for errors. They are few and tell why the rest went wrong. To wait for room instead
/// would stop every connection of the thread that has the error.
const ROOM_FOR_ERRORS: usize = 1 << 20;

/// What a record costs besides its bytes; keeps a flood of empty ones bounded.
const RECORD: usize = 32;

/// After a write, so long more records are collected for the next one: a hundred writes a second
/// instead of one for each record. Short enough to follow by eye. Errors don't wait for it.
const PAUSE: Duration = Duration::from_millis(10);

/// Capacity that a text may keep when it is empty: one output should not hold megabytes for good
/// after a burst.
const KEPT: usize = 256 << 10;

/// Records one after the other.
#[derive(Debug, Default)]
pub(super) struct Batch {
    text: String,
    /// Where each record ends.
    ends: Vec<usize>,
}

/// The queue of one output.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// The writer waits here.
    work: Condvar,
    /// Who flushes waits here.
    written: Condvar,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
    dropped: u64,
    reopened: Option<File>,
    /// The writer pauses no longer.
    hurry: bool,
    /// The writer waits for something to do.
    idle: bool,
    pushed: u64,
    done: u64,
    closed: bool,
    ended: bool,
}

/// What there is to do besides the batch.
#[derive(Debug)]
pub(super) struct Work {
    /// Records for which there was no room, since the last time.
    pub(super) dropped: u64,
    /// From now on records go to this file.
    pub(super) reopened: Option<File>,
    upto: u64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Takes a record, or counts it as dropped. After the end of the queue it does neither.
    pub(super) fn push(&self, record: &str, level: Level) {
        let room = match level {
            Level::Error => ROOM + ROOM_FOR_ERRORS,
            Level::Debug | Level::Info | Level::Warn => ROOM,
        };
        let mut state = self.lock();
        if state.closed {
            return;
        }
        if state.batch.weight() + record.len() + RECORD > room {
            state.dropped += 1;
            return;
        }
        state.batch.push(record);
        state.pushed += 1;
        let mut wake = std::mem::take(&mut state.idle);
        if !state.hurry && (level == Level::Error || state.batch.weight() > ROOM / 2) {
            state.hurry = true;
            wake = true;
        }
        drop(state);
        if wake {
            self.work.notify_one();
        }
    }

    /// The writer's side: waits for records or something else to do, and swaps `batch`, emptied,
    /// for them. `None` when the queue was closed and all is written.
    pub(super) fn take(&self, batch: &mut Batch) -> Option<Work> {
        batch.clear();
        let (mut state, _) = self
            .work
            .wait_timeout_while(self.lock(), PAUSE, |state| !state.hurry)
            .unwrap_or_else(PoisonError::into_inner);
        while state.has_nothing() && !state.closed {
            state.idle = true;
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.idle = false;
        if state.has_nothing() {
            return None;
        }
        state.hurry = state.closed;
        std::mem::swap(&mut state.batch, batch);
        Some(Work {
            dropped: std::mem::take(&mut state.dropped),
            reopened: state.reopened.take(),
            upto: state.pushed,
        })
    }

    /// The writer's side: that work is done, well or badly.
    pub(super) fn finish(&self, work: &Work) {
        self.lock().done = work.upto;
        self.written.notify_all();
    }

    /// The writer's side: it is gone.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.ended = true;
        drop(state);
        self.written.notify_all();
    }

    /// Waits until all that was pushed before is written. False when it is not by `deadline`.
    pub(super) fn flush(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        let upto = state.pushed;
        if state.done < upto {
            self.hurry(&mut state);
        }
        self.wait(state, deadline, |state| state.done < upto).done >= upto
    }

    /// No more records are taken.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.hurry(&mut state);
    }

    /// Waits for the writer's end after [`Self::close`]. False when it has not ended by `deadline`.
    pub(super) fn has_ended(&self, deadline: Instant) -> bool {
        self.wait(self.lock(), deadline, |_| true).ended
    }

    /// From now on records go to this file.
    pub(super) fn reopen(&self, file: File) {
        let mut state = self.lock();
        state.reopened = Some(file);
        self.hurry(&mut state);
    }

    fn hurry(&self, state: &mut State) {
        state.hurry = true;
        self.work.notify_one();
    }

    /// Until `deadline`, or the writer's end.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Instant,
        unfinished: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let left = deadline.saturating_duration_since(Instant::now());
        let waiting = |state: &mut State| !state.ended && unfinished(state);
        self.written
            .wait_timeout_while(state, left, waiting)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

impl State {
    fn has_nothing(&self) -> bool {
        self.batch.is_empty() && self.dropped == 0 && self.reopened.is_none()
    }
}

impl Batch {
    pub(super) fn push(&mut self, record: &str) {
        self.text.push_str(record);
        self.ends.push(self.text.len());
    }

    /// How many records.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// These records' bytes.
    pub(super) fn bytes(&self, records: Range<usize>) -> &[u8] {
        let bytes = self.start(records.start)..self.start(records.end);
        self.text.as_bytes().get(bytes).unwrap_or_default()
    }

    /// How many records from `first` on fit into so many bytes.
    pub(super) fn fitting(&self, first: usize, bytes: u64) -> usize {
        let start = self.start(first);
        let rest = self.ends.get(first..).unwrap_or_default();
        rest.partition_point(|end| (end - start) as u64 <= bytes)
    }

    fn start(&self, record: usize) -> usize {
        match record.checked_sub(1) {
            Some(previous) => self.ends.get(previous).copied().unwrap_or(self.text.len()),
            None => 0,
        }
    }

    fn weight(&self) -> usize {
        self.text.len() + self.ends.len() * RECORD
    }

    fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(KEPT);
        self.ends.clear();
        self.ends.shrink_to(KEPT / RECORD);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_record_wakes_a_writer_that_has_nothing_to_do() {
        let (queue, (send, taken)) = (Queue::default(), mpsc::channel());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut batch = Batch::default();
                while queue.take(&mut batch).is_some() {
                    send.send(batch.bytes(0..batch.len()).to_vec()).unwrap();
                }
            });
            for _ in 0..2 {
                while !queue.lock().idle {
                    thread::yield_now();
                }
                queue.push("record", Level::Info);
                let record = taken.recv_timeout(LONG);
                // Before any check: the writer must end, else the test does not.
                if record.is_err() {
                    queue.close();
                }
                assert_eq!(record.as_deref(), Ok(&b"record"[..]));
            }
            queue.close();
        });
    }

    #[test]
    fn the_writer_hurries_for_an_error_and_when_there_is_much() {
        let queue = Queue::default();
        queue.push("record", Level::Warn);
        assert!(!queue.lock().hurry, "it waits for more");
        queue.push("record", Level::Error);
        assert!(queue.lock().hurry);

        let queue = Queue::default();
        queue.push(&"x".repeat(ROOM / 2), Level::Info);
        assert!(queue.lock().hurry);
    }
}
