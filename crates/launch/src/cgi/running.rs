//! A program under way: its pipes and its end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use pronghorn_pool::Payload;
use pronghorn_process::{Child, Exit, Process, Signal};
use tokio::io::AsyncWrite;
use tokio::net::unix::pipe;
use tokio_util::io::poll_read_buf;

use crate::output::{Lines, Output as Log};

/// Read at a time; a pipe holds four of them.
const READ: usize = 16 << 10;

/// What there is of a program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    More,
    /// Not now.
    None,
    Complete,
}

pub(super) struct Running {
    process: Process,
    exit: Option<Exit>,
    stdin: Option<(pipe::Sender, Bytes)>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<(pipe::Receiver, Lines)>,
    log: Log,
    /// What came of its output and was not yet passed on.
    pub(super) received: BytesMut,
}

impl Running {
    pub(super) fn new(
        child: Child,
        input: Bytes,
        pool: &str,
        call: Arc<dyn Payload>,
    ) -> io::Result<Self> {
        let log = Log::new(pool, child.process.pid()).of_call(call);
        log.up();
        let stdin = match child.stdin {
            Some(stdin) => Some((pipe::Sender::from_owned_fd(stdin)?, input)),
            None => None,
        };
        let stdout = child
            .stdout
            .map(pipe::Receiver::from_owned_fd)
            .transpose()?;
        let stderr = match child.stderr {
            Some(stderr) => Some((
                pipe::Receiver::from_owned_fd(stderr)?,
                Lines::new(Vec::new(), log.clone()),
            )),
            None => None,
        };
        Ok(Self {
            process: child.process,
            exit: None,
            stdin,
            stdout,
            stderr,
            log,
            received: BytesMut::new(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// How it ended, once that was seen.
    pub(super) const fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// The end of its stderr.
    pub(super) fn last_words(&self) -> String {
        self.log.last_words().lines().join("\n")
    }

    /// Signals it, and what it started in its process group, until it is [reaped](Self::reaped).
    pub(super) fn signal(&self, signal: Signal) {
        self.process.signal_group(signal);
    }

    /// Ready when it has ended. Its output may go on: what it started has the same pipe.
    pub(super) fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.exit.is_none() {
            let exit = std::task::ready!(self.process.poll_exit(cx));
            // The kernel has lost it, which can't happen; there is no process to wait for.
            self.exit = Some(exit.unwrap_or(Exit::Code(-1)));
            self.read_log(cx);
        }
        Poll::Ready(())
    }

    /// What it has taken of a processor, if anybody can tell.
    pub(super) async fn reaped(mut self) -> Option<Duration> {
        _ = self.process.wait().await; // as above
        if let Some((_, lines)) = &mut self.stderr {
            lines.end();
        }
        self.process.cpu()
    }

    /// Goes on with all pipes; ready when there is something new of the answer. It is complete when
    /// the program has closed its output, or has ended and all that it wrote was read: what it left
    /// running does not hold the client.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Output> {
        self.write_input(cx);
        self.read_log(cx);
        let Some(stdout) = &mut self.stdout else {
            return Poll::Ready(Output::Complete);
        };
        self.received.reserve(READ);
        match poll_read_buf(Pin::new(stdout), cx, &mut self.received) {
            Poll::Ready(Ok(1..)) => return Poll::Ready(Output::More),
            Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(self.complete()),
            Poll::Pending => {}
        }
        std::task::ready!(self.poll_exit(cx));
        Poll::Ready(match self.try_more() {
            Output::More => Output::More,
            Output::None | Output::Complete => self.complete(),
        })
    }

    fn complete(&mut self) -> Output {
        self.stdout = None;
        Output::Complete
    }

    /// What is there right now, whatever the runtime knows.
    pub(super) fn try_more(&mut self) -> Output {
        let Some(stdout) = &self.stdout else {
            return Output::Complete;
        };
        let before = self.received.len();
        self.received.resize(before + READ, 0);
        let read = rustix::io::read(stdout, &mut self.received[before..]);
        self.received.truncate(before + read.unwrap_or(0));
        match read {
            Ok(1..) => Output::More,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Output::None,
            Ok(0) | Err(_) => self.complete(),
        }
    }

    /// Goes on with all pipes and drops what comes of the answer.
    pub(super) fn discard(&mut self, cx: &mut Context<'_>) {
        /// An end of the loop for a program that writes faster than it is read; its end is looked
        /// for then.
        const MOST: usize = 64;
        for _ in 0..MOST {
            if self.poll_output(cx) != Poll::Ready(Output::More) {
                return;
            }
            self.received.clear();
        }
        cx.waker().wake_by_ref();
    }

    fn write_input(&mut self, cx: &mut Context<'_>) {
        while let Some((pipe, left)) = &mut self.stdin {
            match Pin::new(pipe).poll_write(cx, left) {
                Poll::Ready(Ok(written)) => left.advance(written),
                // It reads no more, which is its business.
                Poll::Ready(Err(_)) => left.clear(),
                Poll::Pending => return,
            }
            if left.is_empty() {
                self.stdin = None;
            }
        }
    }

    fn read_log(&mut self, cx: &mut Context<'_>) {
        /// Of a program that writes faster than it is logged, the answer must not wait for its
        /// messages.
        const MOST: usize = 16;
        for _ in 0..MOST {
            let Some((pipe, lines)) = &mut self.stderr else {
                return;
            };
            match poll_read_buf(Pin::new(pipe), cx, lines.room()) {
                Poll::Ready(Ok(1..)) => lines.take(),
                Poll::Ready(Ok(0) | Err(_)) => {
                    lines.end();
                    self.stderr = None;
                }
                Poll::Pending => return,
            }
        }
        cx.waker().wake_by_ref();
    }
}
