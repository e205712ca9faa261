//! The socket below TLS, with a limit on what a client sends before the end of the handshake.
//!
//! rustls joins the parts of a message, up to 64 KB, before it looks at them. Clients have no use
//! for that much: their messages are short.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes of a handshake: a first message has some hundred of them, two KB with keys that resist
/// quantum computers.
const HANDSHAKE: usize = 16 << 10;
/// The same where clients show certificates: as long as rustls takes them.
const HANDSHAKE_WITH_CERTIFICATES: usize = 64 << 10;

/// A socket below TLS.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    stream: TcpStream,
    /// Bytes that may come until the handshake has ended; `None` after it.
    left: Option<usize>,
}

impl TlsSocket {
    pub(crate) fn new(stream: TcpStream, asks_for_certificates: bool) -> Self {
        Self {
            stream,
            left: Some(if asks_for_certificates {
                HANDSHAKE_WITH_CERTIFICATES
            } else {
                HANDSHAKE
            }),
        }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// The handshake has ended.
    pub(crate) fn end_handshake(&mut self) {
        self.left = None;
    }
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The limit is looked at before a read: one may bring the end of a handshake, and more.
        if self.left == Some(0) {
            let why = "the client's messages of the handshake are too long";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        self.left = self.left.map(|left| left.saturating_sub(read));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
