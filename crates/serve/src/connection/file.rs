//! Sending a stretch of a file: by the kernel, from its page cache to the socket.

use std::future::poll_fn;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::Poll;

use pronghorn_h1 as h1;
use pronghorn_process::file::{send_before_more, send_file};

use super::{Gone, Http1, JOINED_BODY, TURN, Turn};
use crate::message::Body;
use crate::open_file::OpenFile;
use crate::reader::{FILE_PIECE, Reader, in_memory, read_now};
use crate::source::Read;

/// The outcome of one attempt to have the kernel send.
enum Sent {
    Bytes(u64),
    /// The file is shorter than it was.
    Ended,
    /// This file system leaves it to us.
    Unable,
}

impl Http1 {
    /// Sends a stretch of a file. What would have to come from a disk is read off the I/O thread.
    pub(super) async fn send_file(
        &mut self,
        framing: &mut h1::Response,
        mut file: OpenFile,
    ) -> Result<(), Gone> {
        if file.len <= JOINED_BODY as u64
            && let Ok(len) = usize::try_from(file.len)
            && let Some(bytes) = read_now(&file.file, file.start, len)
            && bytes.len() == len
        {
            return self.send_piece(framing, bytes).await;
        }
        if self.stream.plain().is_none() || framing.has_chunks() {
            return self
                .send_read(framing, Reader::new(Body::File(file)), true)
                .await
                .map(drop);
        }
        self.flush_before_more().await?;
        let mut turn = Turn(self.body_sent);
        while file.len > 0 {
            turn.pass(self.body_sent).await;
            let mut first = file.clone();
            first.len = in_memory(&file.file, file.start, file.len.min(TURN));
            if first.len > 0 {
                match self.send_by_kernel(&first).await? {
                    Sent::Bytes(sent) => {
                        _ = framing.piece(usize::try_from(sent).unwrap_or(usize::MAX)); // its length is known: nothing surrounds it
                        self.body_sent += sent;
                        file.start += sent;
                        file.len -= sent;
                        continue;
                    }
                    // It is shorter than it was, and no other part may follow.
                    Sent::Ended => return Err(Gone),
                    Sent::Unable => {}
                }
            }
            let stretch = file.len.min(FILE_PIECE as u64);
            first.len = stretch;
            let mut reader = Reader::new(Body::File(first));
            loop {
                match poll_fn(|cx| reader.poll_next(cx)).await {
                    Read::Bytes(bytes) => self.send_piece(framing, bytes).await?,
                    Read::End => break,
                    Read::Broken => {
                        framing.abort();
                        return Ok(());
                    }
                }
            }
            file.start += stretch;
            file.len -= stretch;
        }
        Ok(())
    }

    /// Writes what is in `out`, of which more follows at once: the kernel need not send half a
    /// packet.
    async fn flush_before_more(&mut self) -> Result<(), Gone> {
        let out = std::mem::take(&mut self.out);
        while self.written < out.len() {
            let rest = &out[self.written..];
            let send = |socket: BorrowedFd<'_>| send_before_more(socket, rest);
            self.written += self.write_by(send).await?.map_err(|_| Gone)?;
        }
        self.out = out;
        self.flush().await
    }

    /// One system call's worth of a file.
    async fn send_by_kernel(&mut self, file: &OpenFile) -> Result<Sent, Gone> {
        let len = usize::try_from(file.len).unwrap_or(usize::MAX);
        let send = |socket: BorrowedFd<'_>| send_file(socket, &file.file, file.start, len);
        match self.write_by(send).await? {
            Ok(0) => Ok(Sent::Ended),
            Ok(sent) => Ok(Sent::Bytes(sent as u64)),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(Sent::Unable),
            Err(_) => Err(Gone),
        }
    }

    /// One write of the caller's, however long the client takes to make room for it.
    async fn write_by(
        &mut self,
        mut write: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Result<io::Result<usize>, Gone> {
        poll_fn(|cx| match self.stream.poll_write_by(cx, &mut write) {
            Poll::Ready(written) => {
                self.took();
                Poll::Ready(Ok(written))
            }
            Poll::Pending => self.poll_untaken(cx).map(|()| Err(Gone)),
        })
        .await
    }
}
