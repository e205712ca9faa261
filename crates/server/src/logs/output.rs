//! One output and the thread that writes to it: it alone waits when the output does.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use super::complaints::Complaints;
use super::file::Rotating;
use super::format::{Content, Format, Record};
use super::host::Clock;
use super::queue::{Batch, Queue, Work};
use crate::settings::Level;

/// Takes from a queue and writes until it is closed.
pub(super) struct Writer {
    pub(super) queue: Arc<Queue>,
    pub(super) sink: Sink,
    /// Of what the writer itself has to say in the log.
    pub(super) format: Format,
    pub(super) complaints: Arc<Complaints>,
    pub(super) clock: Clock,
}

pub(super) enum Sink {
    Stream(Stream),
    Rotating(Rotating),
}

/// Bytes go where they go, in order.
pub(super) struct Stream {
    out: Box<dyn Write + Send>,
    /// The last write ended inside a record.
    torn: bool,
}

/// Records that are lost, and why.
pub(super) struct Failed {
    pub(super) lost: usize,
    /// Bytes that were written before.
    pub(super) written: usize,
    pub(super) error: io::Error,
}

impl Writer {
    pub(super) fn run(mut self) {
        let _ended = Ended(self.queue.clone());
        let mut batch = Batch::default();
        while let Some(mut work) = self.queue.take(&mut batch) {
            if let Some(file) = work.reopened.take() {
                self.sink.reopened(file);
            }
            self.tell_of_dropped(&work, &mut batch);
            if let Err(failed) = self.sink.write(&batch) {
                self.complaints.lost(failed.lost, &failed.error);
            }
            self.queue.finish(&work);
        }
        self.complaints.finish();
    }

    /// They were dropped after the batch had filled the queue: this is their place.
    fn tell_of_dropped(&self, work: &Work, batch: &mut Batch) {
        let message = match work.dropped {
            0 => return,
            1 => "1 log record was dropped: the output is too slow".to_owned(),
            n => format!("{n} log records were dropped: the output is too slow"),
        };
        let mut line = String::new();
        let record = Record {
            time: (self.clock)(),
            level: Level::Warn,
            logger: "server",
            content: Content::Text(&message),
        };
        self.format.write(&mut line, &record);
        batch.push(&line);
    }
}

/// Nobody waits for a writer that panicked.
struct Ended(Arc<Queue>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Sink {
    fn write(&mut self, batch: &Batch) -> Result<(), Failed> {
        match self {
            Self::Stream(stream) => stream.write(batch, 0..batch.len()),
            Self::Rotating(file) => file.write(batch),
        }
    }

    fn reopened(&mut self, file: std::fs::File) {
        match self {
            Self::Stream(stream) => *stream = Stream::new(Box::new(file)),
            Self::Rotating(rotating) => rotating.reopened(file),
        }
    }
}

impl Stream {
    pub(super) fn new(out: Box<dyn Write + Send>) -> Self {
        Self { out, torn: false }
    }

    /// Writes these records, with one call unless the output takes less.
    pub(super) fn write(&mut self, batch: &Batch, records: Range<usize>) -> Result<(), Failed> {
        if self.torn {
            // What follows a piece of a record must not look like its rest.
            self.put(b"\n").map_err(|(written, error)| Failed {
                lost: records.len(),
                written,
                error,
            })?;
            self.torn = false;
        }
        self.put(batch.bytes(records.clone()))
            .map_err(|(written, error)| {
                let whole = batch.fitting(records.start, written as u64);
                let first_lost = records.start + whole;
                self.torn = written > batch.bytes(records.start..first_lost).len();
                Failed {
                    lost: records.end - first_lost,
                    written,
                    error,
                }
            })
    }

    /// How much was written before the error.
    fn put(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut written = 0;
        while let Some(rest @ [_, ..]) = bytes.get(written..) {
            match self.out.write(rest) {
                Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
                Ok(n) => written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((written, error)),
            }
        }
        Ok(())
    }
}
