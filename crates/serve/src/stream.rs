//! A client's connection as bytes: what lies under every protocol.
//!
//! Each read and write is also the moment at which a busy thread looks for replies of workers in
//! shared memory: it looks by itself only before it sleeps, which it may not do for long.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::tls_socket::TlsSocket;

/// A client's connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TlsSocket>>),
}

impl Stream {
    /// Ready when there may be something to read. Needs no buffer to read into: an idle connection
    /// has none.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(cx),
            Self::Unix(stream) => stream.poll_read_ready(cx),
            Self::Tls(stream) => match stream.get_ref() {
                (_, session) if !session.wants_read() => Poll::Ready(Ok(())), // something is decrypted already
                (stream, _) => stream.socket().poll_read_ready(cx),
            },
        }
    }

    /// The descriptor, where what is written to it reaches the client as it is; `None` where it
    /// must be encrypted first.
    pub(crate) fn plain(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) => Some(stream.as_fd()),
            Self::Unix(stream) => Some(stream.as_fd()),
            Self::Tls(_) => None,
        }
    }

    /// The descriptor, for who asks the kernel about the connection.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.get_ref().0.socket().as_fd(),
        }
    }

    /// Whether the client must be told before the end that nothing was cut off.
    pub(crate) fn owes_goodbye(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Writes to a [plain](Self::plain) connection, and no other, what it has room for. 0 where it
    /// has none, or is gone: the next write will see that. Where `more_follows` at once, the kernel
    /// may wait for it rather than send a short segment.
    pub(crate) fn write_now(&self, parts: &[IoSlice<'_>], more_follows: bool) -> usize {
        pronghorn_pool::collect();
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more_follows);
        let send = |fd: BorrowedFd<'_>| {
            Ok(sendmsg(
                fd,
                parts,
                &mut SendAncillaryBuffer::default(),
                flags,
            )?)
        };
        let written = match self {
            Self::Tcp(stream) => stream.try_io(Interest::WRITABLE, || send(stream.as_fd())),
            Self::Unix(stream) => stream.try_io(Interest::WRITABLE, || send(stream.as_fd())),
            Self::Tls(_) => Ok(0),
        };
        written.unwrap_or(0)
    }

    /// Writes to a [plain](Self::plain) connection, and no other, by a system call of the caller's,
    /// such as sendfile(2). `write` is called whenever the socket has room, until it does not fail
    /// with `WouldBlock`.
    pub(crate) fn poll_write_by(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let written = match self {
                Self::Tcp(stream) => {
                    ready!(stream.poll_write_ready(cx))?;
                    stream.try_io(Interest::WRITABLE, || write(stream.as_fd()))
                }
                Self::Unix(stream) => {
                    ready!(stream.poll_write_ready(cx))?;
                    stream.try_io(Interest::WRITABLE, || write(stream.as_fd()))
                }
                Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        pronghorn_pool::collect();
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => poll_text(stream, cx, buffer),
        }
    }
}

/// Reads what one read of the socket gives, and tells the socket of it: tokio-rustls would read
/// from it until the buffer is full.
fn poll_text(
    stream: &mut TlsStream<TlsSocket>,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        let text = ready!(Pin::new(&mut *stream).poll_fill_buf(cx))?;
        let len = text.len().min(buffer.remaining());
        buffer.put_slice(text.get(..len).unwrap_or_default());
        Pin::new(&mut *stream).consume(len);
        let (socket, session) = stream.get_mut();
        if len == 0 {
            return Poll::Ready(Ok(()));
        }
        socket.gave();
        // Else more is decrypted already.
        if session.wants_read() || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        pronghorn_pool::collect();
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        pronghorn_pool::collect();
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use rustix::net::{RecvFlags, recv};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_short_segment_waits_for_what_follows_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (theirs, ours) = tokio::join!(client, listener.accept());
        let (theirs, ours) = (theirs.unwrap(), Stream::Tcp(ours.unwrap().0));
        poll_fn(|cx| ours.poll_write_by(cx, |_| Ok(0)))
            .await
            .unwrap(); // it has room
        let receive = || {
            let mut received = [0; 8];
            recv(&theirs, &mut received, RecvFlags::DONTWAIT)
                .map(|(len, _)| received[..len].to_vec())
        };
        // Sent bytes are there at once: it is one machine.
        assert_eq!(ours.write_now(&[IoSlice::new(b"ab")], true), 2);
        assert!(receive().is_err(), "it did not wait");
        assert_eq!(ours.write_now(&[IoSlice::new(b"cd")], false), 2);
        theirs.readable().await.unwrap();
        assert_eq!(receive().unwrap(), b"abcd");
    }

    /// More than the kernel holds for a socket that nobody reads from.
    const LONG: usize = 4 << 20;

    #[tokio::test]
    async fn a_system_call_of_the_callers_waits_for_room() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let ours = Stream::Unix(ours);
        let bytes = vec![7; LONG];
        let send = async {
            let mut sent = 0;
            while sent < LONG {
                let write = |fd: BorrowedFd<'_>| Ok(rustix::io::write(fd, &bytes[sent..])?);
                let written = poll_fn(|cx| ours.poll_write_by(cx, write)).await;
                sent += written.unwrap();
            }
        };
        let mut received = vec![0; LONG];
        let ((), read) = tokio::join!(send, theirs.read_exact(&mut received));
        read.unwrap();
        assert_eq!(received, bytes);
    }
}
