//! What a worker prints: the boot transcript first, then log records, line by line, and its last
//! words.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pronghorn_base::lock;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinSet;

/// As much of what is printed before a worker is up is kept; PHP's longest traces fit.
const TRANSCRIPT: usize = 64 << 10;
/// A longer line becomes several records.
const LONGEST_LINE: usize = 64 << 10;
/// Lines that a crash report shows.
const LAST_WORDS: usize = 20;
/// How long the output of a process is waited for after its end. All it wrote is there already;
/// whatever else holds the pipe open may write on, and nobody listens.
const AFTER_THE_END: Duration = Duration::from_millis(100);

/// The name of the events that carry a line of a worker: in logs of mode `raw` they are that line
/// alone.
pub const WORKER_OUTPUT: &str = "worker output";

/// The output of one worker. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    pool: String,
    pid: u32,
    /// `None` once the worker is up.
    transcript: Option<String>,
    last_words: VecDeque<String>,
}

impl Output {
    pub(crate) fn new(pool: &str, pid: u32) -> Self {
        let state = State {
            pool: pool.to_owned(),
            pid,
            transcript: Some(String::new()),
            last_words: VecDeque::with_capacity(LAST_WORDS),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn line(&self, line: &str) {
        let mut state = self.lock();
        if let Some(transcript) = &mut state.transcript {
            if transcript.len() < TRANSCRIPT {
                transcript.push_str(line);
                transcript.push('\n');
            }
            return;
        }
        if state.last_words.len() == LAST_WORDS {
            state.last_words.pop_front();
        }
        state.last_words.push_back(line.to_owned());
        state.log(line);
    }

    /// The worker is up: what it printed on its way becomes log records, and what follows too.
    pub(crate) fn up(&self) {
        let mut state = self.lock();
        if let Some(transcript) = state.transcript.take() {
            for line in transcript.lines() {
                state.log(line);
            }
        }
    }

    pub(crate) fn transcript(&self) -> String {
        self.lock().transcript.clone().unwrap_or_default()
    }

    pub(crate) fn last_words(&self) -> Vec<String> {
        self.lock().last_words.iter().cloned().collect()
    }
}

impl State {
    /// Octane reads these records: `logger` server, level info, the line alone as message. What PHP
    /// itself calls an error or a warning has that level, so that the reason of a 500 is in a log
    /// of errors too.
    fn log(&self, line: &str) {
        let Self { pool, pid, .. } = self;
        match Severity::of(line) {
            Severity::Error => {
                tracing::error!(name: WORKER_OUTPUT, target: "server", pool, pid, "{line}");
            }
            Severity::Warning => {
                tracing::warn!(name: WORKER_OUTPUT, target: "server", pool, pid, "{line}");
            }
            Severity::Other => {
                tracing::info!(name: WORKER_OUTPUT, target: "server", pool, pid, "{line}");
            }
        }
    }
}

/// How bad a line is by its beginning, where PHP names the kind of a message.
#[derive(Debug, PartialEq, Eq)]
enum Severity {
    Error,
    Warning,
    Other,
}

impl Severity {
    fn of(line: &str) -> Self {
        let Some(message) = line.strip_prefix("PHP ") else {
            return Self::Other;
        };
        let is = |kinds: &[&str]| {
            let mut kinds = kinds.iter();
            kinds.any(|kind| {
                message
                    .strip_prefix(kind)
                    .is_some_and(|rest| rest.starts_with(": "))
            })
        };
        if is(&["Fatal error", "Parse error", "Recoverable fatal error"]) {
            Self::Error
        } else if is(&["Warning"]) {
            Self::Warning
        } else {
            Self::Other
        }
    }
}

/// The tasks that read a worker's pipes.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    tasks: JoinSet<()>,
}

impl Readers {
    pub(crate) fn read(&mut self, pipe: OwnedFd, output: Output) -> std::io::Result<()> {
        let pipe = pipe::Receiver::from_owned_fd(pipe)?;
        self.tasks.spawn(read_lines(pipe, Vec::new(), output));
        Ok(())
    }

    /// Goes on with a pipe that was read for other reasons before.
    pub(crate) fn go_on(&mut self, pipe: pipe::Receiver, before: Vec<u8>, output: Output) {
        self.tasks.spawn(read_lines(pipe, before, output));
    }

    /// After the end of the process: the rest of what it said.
    pub(crate) async fn finish(&mut self) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(AFTER_THE_END, all).await.is_err() {
            self.tasks.shutdown().await;
        }
    }
}

async fn read_lines(mut pipe: pipe::Receiver, before: Vec<u8>, output: Output) {
    let mut lines = Lines::new(before, output);
    loop {
        lines.take();
        match pipe.read_buf(lines.room()).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    lines.end();
}

/// Bytes of an output on their way to lines.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    output: Output,
}

impl Lines {
    pub(crate) const fn new(before: Vec<u8>, output: Output) -> Self {
        Self {
            buffer: before,
            output,
        }
    }

    /// Where bytes are to be put; [`take`](Self::take) then reads them.
    pub(crate) const fn room(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Hands whole lines on.
    pub(crate) fn take(&mut self) {
        while let Some(end) = memchr::memchr(b'\n', &self.buffer)
            .or_else(|| (self.buffer.len() >= LONGEST_LINE).then(|| self.buffer.len() - 1))
        {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            self.output
                .line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
        }
        if self.buffer.is_empty() && self.buffer.capacity() > LONGEST_LINE {
            self.buffer = Vec::new();
        }
    }

    /// No more comes: hands on what is left.
    pub(crate) fn end(&mut self) {
        self.take();
        if !self.buffer.is_empty() {
            let rest = std::mem::take(&mut self.buffer);
            self.output.line(&String::from_utf8_lossy(&rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_php_has_the_level_that_php_gives_it() {
        for (line, severity) in [
            ("PHP Fatal error:  Uncaught Error: no", Severity::Error),
            ("PHP Parse error:  syntax error", Severity::Error),
            ("PHP Recoverable fatal error:  x", Severity::Error),
            ("PHP Warning:  Undefined variable", Severity::Warning),
            ("PHP Notice:  x", Severity::Other),
            ("PHP Deprecated:  x", Severity::Other),
            ("PHP Fatal errors are rare", Severity::Other),
            ("Fatal error: not by PHP's log", Severity::Other),
            ("", Severity::Other),
        ] {
            assert_eq!(Severity::of(line), severity, "{line}");
        }
    }
}
