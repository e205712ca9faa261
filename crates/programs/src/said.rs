//! The output of programs: records of the log, the last lines for who asks, files of their own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use pronghorn_base::{BoxFuture, lock, now_ms};
use pronghorn_launch::{Hear, OutputStream, SaidLine};
use serde::Serialize;

use crate::LOG;
use crate::channel::Channel;
use crate::files::LogFile;
use crate::roadrunner::LogLine;

/// Lines and bytes of them that are kept of a program, the last ones.
const MOST_LINES: usize = 1_000;
const MOST_BYTES: usize = 256 << 10;

/// A line that was said.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// One more with each line of the program.
    pub(crate) number: u64,
    /// Milliseconds since 1970.
    pub(crate) time: u64,
    pub(crate) index: u32,
    pub(crate) pid: u32,
    pub(crate) stream: &'static str,
    pub(crate) line: String,
}

/// Hears all processes of one program.
#[derive(Debug)]
pub(crate) struct Hearing {
    program: String,
    tail: Mutex<Tail>,
}

#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<Line>,
    bytes: usize,
    last: u64,
}

/// Where the lines of a process go beside its program's last ones.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) index: u32,
    pub(crate) files: Option<LogFiles>,
    /// Whether they are records.
    pub(crate) logged: bool,
    /// Whether those name the program as RoadRunner does.
    pub(crate) name_in_log: bool,
    pub(crate) channel: Channel,
}

/// The files of a program, one for each stream; the same one where there is one for both.
#[derive(Clone, Debug)]
pub(crate) struct LogFiles {
    pub(crate) out: LogFile,
    pub(crate) err: LogFile,
}

impl LogFiles {
    const fn of(&self, stream: OutputStream) -> &LogFile {
        match stream {
            OutputStream::Out => &self.out,
            OutputStream::Err => &self.err,
        }
    }
}

/// Hears one process.
#[derive(Clone, Debug)]
pub(crate) struct Hearer {
    pub(crate) hearing: Arc<Hearing>,
    pub(crate) target: Arc<Target>,
}

impl Hear for Hearer {
    fn hear(&self, said: SaidLine<'_>) {
        self.hearing.hear(&self.target, said);
    }

    fn waits_for(&self) -> Option<BoxFuture<'_, ()>> {
        let files = self.target.files.as_ref()?;
        Some(Box::pin(files.out.has_room())) // one thread writes all files
    }
}

impl Hearing {
    pub(crate) fn new(program: &str) -> Self {
        Self {
            program: program.to_owned(),
            tail: Mutex::default(),
        }
    }

    pub(crate) fn hear(&self, target: &Target, said: SaidLine<'_>) {
        let Target { index, .. } = *target;
        if let Some(files) = &target.files {
            files.of(said.stream).write(said.line);
        }
        let line = String::from_utf8_lossy(said.line);
        let line = line.trim_end();
        let (program, pid) = (self.program.as_str(), said.pid);
        if target.logged && !line.is_empty() {
            let stream = said.stream.name();
            if target.channel == Channel::Temporal {
                LogLine::of(line).record(index, pid, stream);
            } else if target.name_in_log {
                tracing::info!(target: LOG, service = program, program, index, pid, stream, "{line}");
            } else {
                tracing::info!(target: LOG, program, index, pid, stream, "{line}");
            }
        }
        lock(&self.tail).add(index, pid, said.stream, line);
    }

    /// The newest lines after that of this number, and the number of the last one of all.
    pub(crate) fn lines(&self, after: u64, most: usize) -> (Vec<Line>, u64) {
        let tail = lock(&self.tail);
        let fitting = tail
            .lines
            .iter()
            .rev()
            .take_while(|line| line.number > after);
        let mut lines: Vec<Line> = fitting.take(most).cloned().collect();
        lines.reverse();
        (lines, tail.last)
    }

    /// The last words of one process.
    pub(crate) fn last_words(&self, pid: u32) -> Vec<String> {
        const MOST: usize = 10;
        let tail = lock(&self.tail);
        let own = tail.lines.iter().rev().filter(|line| line.pid == pid);
        let mut words: Vec<String> = own.take(MOST).map(|line| line.line.clone()).collect();
        words.reverse();
        words
    }
}

impl Tail {
    fn add(&mut self, index: u32, pid: u32, stream: OutputStream, line: &str) {
        self.last += 1;
        self.bytes += line.len();
        self.lines.push_back(Line {
            number: self.last,
            time: now_ms(),
            index,
            pid,
            stream: stream.name(),
            line: line.to_owned(),
        });
        while self.lines.len() > MOST_LINES || self.bytes > MOST_BYTES {
            let Some(first) = self.lines.pop_front() else {
                return;
            };
            self.bytes -= first.line.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_within_their_bounds() {
        let hearing = Hearing::new("a");
        let target = Target {
            index: 2,
            files: None,
            logged: false,
            name_in_log: false,
            channel: Channel::Service,
        };
        let said = |line: &str| {
            hearing.hear(
                &target,
                SaidLine {
                    pid: 7,
                    stream: OutputStream::Err,
                    line: line.as_bytes(),
                },
            );
        };
        for number in 0..MOST_LINES + 10 {
            said(&format!("{number}\n"));
        }
        let (lines, newest) = hearing.lines(0, usize::MAX);
        assert_eq!((lines.len(), newest), (MOST_LINES, 1010));
        let last = lines.last().map(|line| (line.number, line.line.as_str()));
        assert_eq!(last, Some((1010, "1009")));
        assert_eq!(hearing.lines(1008, usize::MAX).0.len(), 2);
        assert_eq!(hearing.lines(0, 3).0.len(), 3);
        assert_eq!(
            (hearing.lines(0, 0).0.len(), hearing.lines(0, 0).1),
            (0, 1010)
        );
        assert_eq!(hearing.last_words(7).len(), 10);
        assert_eq!(hearing.last_words(8), [""; 0]);
        said(&"x".repeat(MOST_BYTES - 10));
        assert!(hearing.lines(0, usize::MAX).0.len() < 10);
    }
}
