//! An output of a process, which ends soon after the process does.
//!
//! A pipe has its end when nobody holds it open any more, and a process may leave others behind
//! that do. So the process's own end counts: what is in the pipe then is its own and is read
//! whatever time that takes; what others write is heard for a moment.

use std::future::Future as _;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionread, retry_on_intr};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The time for which others are heard after the end of a process.
const OTHERS: Duration = Duration::from_millis(100);

/// A limit on the time that whoever hears an output takes for the rest: it may wait for a disk.
const LONGEST_REST: Duration = Duration::from_secs(10);

/// After the end of a process: waits for the readers of its outputs.
pub(crate) async fn finish(readers: &mut JoinSet<()>, end: &CancellationToken) {
    end.cancel();
    let all = async { while readers.join_next().await.is_some() {} };
    if timeout(LONGEST_REST, all).await.is_err() {
        readers.shutdown().await;
    }
}

/// The reading end of a pipe.
#[derive(Debug)]
pub(crate) struct ProcessOutput {
    pipe: Receiver,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Until the process has ended.
    Running(Pin<Box<WaitForCancellationFutureOwned>>),
    /// It has, and so many bytes are left of those that it wrote.
    Left(u64),
    /// Others may write.
    Others(Pin<Box<Sleep>>),
}

impl ProcessOutput {
    /// `end` is cancelled when the process has ended.
    ///
    /// # Errors
    ///
    /// When it is no pipe.
    pub(crate) fn new(pipe: OwnedFd, end: &CancellationToken) -> io::Result<Self> {
        Ok(Self::of(Receiver::from_owned_fd(pipe)?, end))
    }

    /// Goes on with a pipe that was read before.
    pub(crate) fn of(pipe: Receiver, end: &CancellationToken) -> Self {
        let end = Box::pin(end.clone().cancelled_owned());
        Self {
            pipe,
            stage: Stage::Running(end),
        }
    }
}

impl AsyncRead for ProcessOutput {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { pipe, stage } = self.get_mut();
        loop {
            match stage {
                Stage::Running(end) => match end.as_mut().poll(cx) {
                    Poll::Pending => return Pin::new(pipe).poll_read(cx, buffer),
                    Poll::Ready(()) => *stage = Stage::Left(ioctl_fionread(&*pipe)?),
                },
                Stage::Left(0) => *stage = Stage::Others(Box::pin(sleep(OTHERS))),
                Stage::Left(left) => match read_now(pipe, buffer, *left) {
                    Ok(read @ 1..) => {
                        *left = left.saturating_sub(read as u64);
                        return Poll::Ready(Ok(()));
                    }
                    Ok(0) | Err(Errno::AGAIN) => *left = 0,
                    Err(error) => return Poll::Ready(Err(error.into())),
                },
                Stage::Others(end) => {
                    // The time is looked at first: others may write without an end.
                    if end.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Ok(()));
                    }
                    return Pin::new(pipe).poll_read(cx, buffer);
                }
            }
        }
    }
}

/// Reads without asking the runtime, which may not know yet that there is something.
fn read_now(pipe: &Receiver, buffer: &mut ReadBuf<'_>, most: u64) -> Result<usize, Errno> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let room = buffer.initialize_unfilled_to(buffer.remaining().min(most));
    let read = retry_on_intr(|| rustix::io::read(pipe, &mut *room))?;
    buffer.advance(read);
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::pipe::pipe;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn output() -> (ProcessOutput, std::fs::File, CancellationToken) {
        let (read, write) = pipe().unwrap();
        let end = CancellationToken::new();
        let output = ProcessOutput::new(read, &end).unwrap();
        (output, write.into(), end)
    }

    #[tokio::test]
    async fn a_closed_pipe_is_read_to_its_end() {
        let (mut output, mut pipe, end) = output();
        let mut read = String::new();
        pipe.write_all(b"last ").unwrap();
        output.read_exact(&mut [0; 3]).await.unwrap();
        pipe.write_all(b"words").unwrap();
        drop(pipe);
        end.cancel();
        output.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "t words");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_before_the_end_is_read_however_long_that_takes() {
        let (mut output, mut pipe, end) = output();
        pipe.write_all(&[b'x'; 1000]).unwrap();
        end.cancel();
        let mut read = 0;
        let mut part = [0; 100];
        while let 1.. = output.read(&mut part).await.unwrap() {
            read += 1;
            tokio::time::advance(10 * OTHERS).await;
        }
        assert_eq!(read, 10);
        // Somebody else has it still.
        pipe.write_all(b"more").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_writes_without_an_end_is_heard_for_a_moment() {
        let (mut output, mut pipe, end) = output();
        pipe.write_all(b"own").unwrap();
        end.cancel();
        let mut part = [0; 10];
        assert_eq!(output.read(&mut part).await.unwrap(), 3);
        for _ in 0..2 {
            pipe.write_all(b"of another").unwrap();
            assert_eq!(output.read(&mut part).await.unwrap(), 10);
        }
        tokio::time::advance(2 * OTHERS).await;
        pipe.write_all(b"of another").unwrap();
        assert_eq!(output.read(&mut part).await.unwrap(), 0);
    }
}
