//! What a worker prints: the boot transcript first, then log records, line by line, and its last
//! words.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use pronghorn_base::lock;
use pronghorn_pool::{CallDetails, Extent, LastWords, Payload, PhpMessage, Quote, Source, Speaker};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::process_output::{ProcessOutput, finish};

/// As much of what is printed before a worker is up is kept; PHP's longest traces fit.
const TRANSCRIPT: usize = 64 << 10;
/// A longer line becomes several records.
const LONGEST_LINE: usize = 64 << 10;
/// How long the rest of a message of PHP is waited for: it writes all of it at once.
const REST_OF_A_MESSAGE: Duration = Duration::from_millis(100);

/// The streams of a transcript, by the name that records have.
const BOTH: &str = "stdout and stderr";

/// The output of one worker. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    state: Arc<Mutex<State>>,
    is_stdout: bool,
    /// The one call of the process.
    call: Option<OfCall>,
}

#[derive(Clone)]
struct OfCall(Arc<dyn Payload>);

impl fmt::Debug for OfCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.describe())
    }
}

#[derive(Debug)]
struct State {
    pool: String,
    pid: u32,
    /// `None` once the worker is up.
    transcript: Option<String>,
    last_words: LastWords,
    reports_fatals: bool,
    /// How stdout is told, where a worker may print what is meant for a client.
    stdout: Quote,
    /// Bytes of it that were left out, and not told yet.
    left_out: usize,
}

impl Output {
    pub(crate) fn new(pool: &str, pid: u32) -> Self {
        let state = State {
            pool: pool.to_owned(),
            pid,
            transcript: Some(String::new()),
            last_words: LastWords::default(),
            reports_fatals: false,
            stdout: Quote::All,
            left_out: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            is_stdout: false,
            call: None,
        }
    }

    /// For a process that was started for this call alone.
    pub(crate) fn of_call(self, call: Arc<dyn Payload>) -> Self {
        Self {
            call: Some(OfCall(call)),
            ..self
        }
    }

    /// For what comes over stdout.
    pub(crate) fn of_stdout(&self) -> Self {
        Self {
            is_stdout: true,
            ..self.clone()
        }
    }

    /// Stdout is told so once the worker is up.
    pub(crate) fn quote_stdout(&self, quote: Quote) {
        self.lock().stdout = quote;
    }

    /// Tells how much was left out since the last time.
    fn tell_left_out(&self) {
        let mut state = self.lock();
        let bytes = std::mem::take(&mut state.left_out);
        if bytes > 0 {
            let State { pool, pid, .. } = &*state;
            tracing::warn!(
                target: "server", pool, pid,
                hint = "return what is for the client, and write what is for the log to stderr, as error_log() does; \
                        with the extension of `pronghorn extension install`, what is printed is the reply",
                "a worker printed {bytes} bytes on stdout, in no reply: they are left out here, because they may be a visitor's"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A line, or all lines of a message of PHP.
    pub(crate) fn text(&self, text: &str) {
        let call = self.call.as_ref().and_then(|call| call.0.details());
        self.text_of(text, call.as_deref());
    }

    /// What was said of a call, at once.
    pub(crate) fn texts(&self, said: &[u8], call: Option<&CallDetails>) {
        let mut message = Message::default();
        let mut text = |text: &str| self.text_of(text, call);
        let said = String::from_utf8_lossy(said);
        if PhpMessage::extent(said.trim_end()) == Extent::Whole {
            // One message, whatever lines are in it.
            return text(said.trim_end());
        }
        for line in said.lines() {
            if !line.trim().is_empty() {
                message.line(line, &mut text);
            }
        }
        message.flush(&mut text);
    }

    fn text_of(&self, text: &str, call: Option<&CallDetails>) {
        let mut state = self.lock();
        if let Some(transcript) = &mut state.transcript {
            if transcript.len() < TRANSCRIPT {
                transcript.push_str(text);
                transcript.push('\n');
            }
            return;
        }
        if self.is_stdout && !state.stdout.shows(text) {
            state.left_out += text.len() + 1;
            return;
        }
        state.last_words.say(text);
        let stream = if self.is_stdout { "stdout" } else { "stderr" };
        state.log(text, call, stream);
    }

    /// What the worker says of a fatal error, it also reports with the call that it ended.
    pub(crate) fn reports_fatals(&self) {
        self.lock().reports_fatals = true;
    }

    /// The worker is up: what it printed on its way becomes log records, and what follows too.
    pub(crate) fn up(&self) {
        let mut state = self.lock();
        if let Some(transcript) = state.transcript.take() {
            let mut message = Message::default();
            for line in transcript.lines() {
                message.line(line, |text| state.log(text, None, BOTH));
            }
            message.flush(&mut |text: &str| state.log(text, None, BOTH));
        }
    }

    pub(crate) fn transcript(&self) -> String {
        self.lock().transcript.clone().unwrap_or_default()
    }

    pub(crate) fn last_words(&self) -> LastWords {
        self.lock().last_words.clone()
    }
}

impl State {
    fn log(&self, text: &str, call: Option<&CallDetails>, stream: &'static str) {
        let speaker = Speaker {
            pool: &self.pool,
            pid: self.pid,
        };
        if self.reports_fatals {
            speaker.log_reported(text, Source::Stream(stream));
        } else {
            _ = speaker.log(text, call, Source::Stream(stream));
        }
    }
}

/// Lines on their way to a record: those of one message of PHP belong together.
#[derive(Debug, Default)]
struct Message {
    text: String,
    extent: Option<Extent>,
}

impl Message {
    /// Takes a line; calls `whole` with each text that is complete.
    fn line(&mut self, line: &str, mut whole: impl FnMut(&str)) {
        let begins = PhpMessage::extent(line);
        match self.extent {
            None => {}
            // Of a fatal error, a trace may follow.
            Some(Extent::Whole) if line == "Stack trace:" => {}
            Some(Extent::Begun) if begins == Extent::None && self.text.len() < LONGEST_LINE => {}
            Some(_) => self.flush(&mut whole),
        }
        if self.extent.is_none() && begins == Extent::None {
            return whole(line);
        }
        if self.extent.is_some() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        let extent = PhpMessage::extent(&self.text);
        self.extent = Some(extent);
        if extent == Extent::Whole && !PhpMessage::may_go_on(&self.text) {
            self.flush(&mut whole);
        }
    }

    fn flush(&mut self, whole: &mut impl FnMut(&str)) {
        if self.extent.take().is_some() {
            whole(&self.text);
            self.text.clear();
        }
    }
}

/// The tasks that read a worker's pipes.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    tasks: JoinSet<()>,
    /// The process has ended.
    end: CancellationToken,
}

impl Readers {
    pub(crate) fn read(&mut self, pipe: OwnedFd, output: Output) -> std::io::Result<()> {
        let pipe = ProcessOutput::new(pipe, &self.end)?;
        self.tasks.spawn(read_lines(pipe, Vec::new(), output));
        Ok(())
    }

    /// Goes on with a pipe that was read for other reasons before.
    pub(crate) fn go_on(&mut self, pipe: pipe::Receiver, before: Vec<u8>, output: Output) {
        let pipe = ProcessOutput::of(pipe, &self.end);
        self.tasks.spawn(read_lines(pipe, before, output));
    }

    /// After the end of the process: the rest of what it said.
    pub(crate) async fn finish(&mut self) {
        finish(&mut self.tasks, &self.end).await;
    }
}

async fn read_lines(mut pipe: ProcessOutput, before: Vec<u8>, output: Output) {
    let mut lines = Lines::new(before, output);
    loop {
        lines.take();
        lines.output.tell_left_out();
        let rest = lines.waits().then_some(REST_OF_A_MESSAGE);
        let read = pipe.read_buf(lines.room());
        let read = match rest {
            None => read.await,
            Some(rest) => match tokio::time::timeout(rest, read).await {
                Ok(read) => read,
                Err(_) => {
                    lines.flush();
                    continue;
                }
            },
        };
        match read {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    lines.end();
    lines.output.tell_left_out();
}

/// Bytes of an output on their way to lines.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    message: Message,
    output: Output,
}

impl Lines {
    pub(crate) fn new(before: Vec<u8>, output: Output) -> Self {
        Self {
            buffer: before,
            message: Message::default(),
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
            self.line(&line);
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
            self.line(&rest);
        }
        self.flush();
    }

    fn line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim_end_matches(['\n', '\r']);
        self.message.line(line, |text| self.output.text(text));
    }

    /// Whether the rest of a message may follow.
    const fn waits(&self) -> bool {
        self.message.extent.is_some()
    }

    /// Waits no longer for it.
    fn flush(&mut self) {
        self.message.flush(&mut |text: &str| self.output.text(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &str) -> Vec<String> {
        let (mut texts, mut message) = (Vec::new(), Message::default());
        for line in lines.lines() {
            message.line(line, |text| texts.push(text.to_owned()));
        }
        message.flush(&mut |text: &str| texts.push(text.to_owned()));
        texts
    }

    #[test]
    fn the_lines_of_a_message_of_php_are_one_text() {
        let thrown = "PHP Fatal error:  Uncaught Error: no\nway in /a.php:2\nStack trace:\n\
            #0 {main}\n  thrown in /a.php on line 2";
        let warning = "PHP Warning:  Undefined variable $a in /a.php on line 2";
        let fatal = "Fatal error: Out of it in /a.php on line 3";
        let traced = "PHP Fatal error:  Out of it in /a.php on line 3\nStack trace:\n#0 {main}";
        for parts in [
            vec!["one", thrown, "two"],
            vec![thrown, thrown, warning, warning],
            vec![fatal, "the application's own"],
            vec![traced, warning],
            vec!["PHP Fatal error:  Uncaught Error: cut", warning, "end"],
        ] {
            assert_eq!(texts(&parts.join("\n")), parts);
        }
    }

    #[test]
    fn what_never_ends_is_cut() {
        let endless = format!("PHP Warning:  x\n{}", "y\n".repeat(LONGEST_LINE));
        let texts = texts(&endless);
        assert!(texts.iter().all(|text| text.len() <= LONGEST_LINE + 2));
    }
}
